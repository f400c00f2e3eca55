--
-- GitLab: builds that are stuck in a status are ended.
--
-- Purpose    A build whose runner is gone stays pending, running or canceling,
--            and its pipeline never ends; a scheduled build may miss its time.
--            ci_stuck_jobs, once an hour, queues a run of each
--            ci_stuck_builds_drop_* job, 15 minutes apart, even if it does not
--            get its own lock, and drops the pending builds itself.
-- Predicate  type = 'Ci::Build', the status, and for each bound in the args that
--            the timestamp is older: created_at, updated_at, scheduled_at <
--            as_of - bound.  Strict; NULL is never older.
--              ci_stuck_jobs                 pending     created and updated 24 hours
--              ci_stuck_builds_drop_running    running     updated 1 hour
--              ci_stuck_builds_drop_scheduled  scheduled   scheduled 1 hour
--              ci_stuck_builds_drop_canceling  canceling   created and updated 1 hour
-- Order      (created_at, project_id, id, partition_id), created_at NULL last.
-- Effect     status, failure_reason, finished_at, updated_at, lock_version + 1,
--            scheduled_at NULL, and processed so that the pipeline handles the
--            build again; its rows in ci_pending_builds and ci_running_builds
--            are deleted, if these tables exist: a row that stays there makes
--            its project count as busy.  Messages {"pipeline_id"} in the queue
--            ci_pipeline_process and {"build_id", "project_id"} in the queue
--            ci_build_finished, keys: the ids.  A build that cannot be written
--            is doomed: the same with status failed, reason data integrity.
-- Done when  there is no stuck build after the last one picked.
-- Args       schema, table: p_ci_builds, or ci_builds in an older GitLab; status;
--            created_older_than, updated_older_than, scheduled_older_than, as far
--            as they apply; final_status: unless it is "failed", the reason is not
--            changed; failure_reason and doom_reason if the column has numbers,
--            failure_reason_name and doom_reason_name if it has names.  They
--            are checked before the first build is picked (check_args.sql).
--
-- All four jobs use the same pick, step and rescue functions. The UPDATE repeats the predicate and the lock_version that was
-- picked, so that a build that has changed meanwhile is not written. It is read and tried again up to 3 times; if it is no longer
-- stuck, it is left as it is. The rescue repeats the predicate without the lock_version: a build that the step could not drop is
-- not doomed if it is no longer stuck.
--
-- created_at, updated_at and finished_at are timestamps without time zone and
-- hold UTC; scheduled_at has its zone. Both are compared with as_of in UTC, where
-- every day has 24 hours, and never with the time zone of the session.
--
-- The index is (status, created_at, project_id) WHERE type = 'Ci::Build' in each partition. The plan is a merge of these, with
-- the ids of the same created_at and project sorted, so a batch reads only what it returns. If many builds of a project have the
-- same created_at, as after a bulk insert, each batch would read all that are left of them. Therefore it first looks for a full
-- batch of them among the next ids of the project. IS NOT DISTINCT FROM and ANY keep that statement from the index above and from
-- the primary key, in which it would read the builds of all projects in each partition. The UPDATE is by the primary key, with
-- partition_id, so that it reads only one partition.
--
-- See environments_auto_stop.sql for the way the table is addressed.
-- The predicate is only in sweep_gitlab.is_stuck, which the planner can inline: it has no SET clause, and its body is parsed when
-- it is created. The pick repeats the bound at which reading the index ends.
--
CREATE TYPE sweep_gitlab.stuck AS (
	status           text,
	created_before   timestamp,
	updated_before   timestamp,
	scheduled_before timestamptz
);
COMMENT ON TYPE sweep_gitlab.stuck IS 'when a build is stuck: it has this status, and each of its timestamps is before the bound here that is not NULL';
COMMENT ON COLUMN sweep_gitlab.stuck.status IS 'the status it is stuck in';
COMMENT ON COLUMN sweep_gitlab.stuck.created_before IS 'its created_at, in UTC, is before this';
COMMENT ON COLUMN sweep_gitlab.stuck.updated_before IS 'its updated_at, in UTC, is before this';
COMMENT ON COLUMN sweep_gitlab.stuck.scheduled_before IS 'its scheduled_at is before this';

-- For a single build the statement of sweep_gitlab.build_statement computes the same, because this function would take a tenth of
-- the time of the rest.
CREATE FUNCTION sweep_gitlab.when_stuck(args jsonb, as_of timestamptz) RETURNS sweep_gitlab.stuck
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT ROW(args ->> 'status', at - (args ->> 'created_older_than')::interval, at - (args ->> 'updated_older_than')::interval,
		(at - (args ->> 'scheduled_older_than')::interval) AT TIME ZONE 'UTC')::sweep_gitlab.stuck
	FROM (SELECT as_of AT TIME ZONE 'UTC') AS moment (at)
$$;
COMMENT ON FUNCTION sweep_gitlab.when_stuck(jsonb, timestamptz) IS 'when a build is stuck at that moment, by the args of a job';

CREATE FUNCTION sweep_gitlab.is_stuck(type text, status text, created_at timestamp, updated_at timestamp, scheduled_at timestamptz,
	stuck sweep_gitlab.stuck) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN type = 'Ci::Build' AND status = (stuck).status
		AND ((stuck).created_before IS NULL OR created_at < (stuck).created_before)
		AND ((stuck).updated_before IS NULL OR updated_at < (stuck).updated_before)
		AND ((stuck).scheduled_before IS NULL OR scheduled_at < (stuck).scheduled_before);
COMMENT ON FUNCTION sweep_gitlab.is_stuck(text, text, timestamp, timestamp, timestamptz, sweep_gitlab.stuck) IS
	'the predicate of the jobs for stuck builds; the planner inlines it';

CREATE FUNCTION sweep_gitlab.next_lock_version(lock_version int) RETURNS int
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN lock_version % 2147483647 + 1;
COMMENT ON FUNCTION sweep_gitlab.next_lock_version(int) IS 'the next lock_version of a build: one more, and 1 after the highest; the planner inlines it';

-- Returns runner, pipeline and project of the build, and whether it is in one of the tables of queues that there are: a look costs
-- hardly anything, a DELETE of no row as much as the rest of the statement. The planner puts the row of sweep_gitlab.stuck into the
-- body of the predicate. Parameters: id, partition_id, lock_version and the moment, in UTC.
CREATE FUNCTION sweep_gitlab.build_statement(args jsonb, reason text, queues text[]) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('UPDATE %I.%I AS p SET status = %L, ', args ->> 'schema', args ->> 'table', args ->> 'final_status')
		|| CASE WHEN args ->> 'final_status' = 'failed' THEN pg_catalog.format('failure_reason = %L, ', reason) ELSE '' END
		|| 'finished_at = $4, updated_at = $4, scheduled_at = NULL, lock_version = sweep_gitlab.next_lock_version(p.lock_version), processed = p.retried IS TRUE '
		|| 'WHERE p.id = $1 AND p.partition_id = $2 AND p.lock_version = $3 '
		|| 'AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, '
		|| pg_catalog.format('ROW(%L, $4 - %L::interval, $4 - %L::interval, ($4 - %L::interval) AT TIME ZONE ''UTC'')::sweep_gitlab.stuck) ',
			args ->> 'status', (args ->> 'created_older_than')::interval, (args ->> 'updated_older_than')::interval, (args ->> 'scheduled_older_than')::interval)
		|| 'RETURNING p.runner_id::bigint, p.commit_id::bigint, p.project_id::bigint, (false'
		|| coalesce((SELECT pg_catalog.string_agg(pg_catalog.format(' OR EXISTS (SELECT FROM %I.%I AS q WHERE q.build_id = $1 AND q.partition_id = $2)', args ->> 'schema', q), '')
			FROM pg_catalog.unnest(queues) AS q), '') || ')::int::bigint'
$$;
COMMENT ON FUNCTION sweep_gitlab.build_statement(jsonb, text, text[]) IS
	'part of sweep_gitlab.drop_stuck_builds: the statement that ends one build, with the args of a job, the reason and the tables of queues in it';

CREATE FUNCTION sweep_gitlab.pick_stuck_builds(b sweep.batch) RETURNS SETOF jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	created_before constant timestamp := coalesce(stuck.created_before, 'infinity');
	lowest_id constant bigint := -9223372036854775808;
	among_nulls constant boolean := coalesce(b.cursor -> 'created_at' = 'null', false);
	last_at constant timestamp := CASE WHEN among_nulls THEN 'infinity' ELSE coalesce(b.cursor ->> 'created_at', '-infinity') END;
	last_project constant bigint := coalesce((b.cursor ->> 'project_id')::bigint, lowest_id);
	last_id constant bigint := coalesce((b.cursor ->> 'id')::bigint, lowest_id);
	last_partition constant bigint := coalesce((b.cursor ->> 'partition_id')::bigint, lowest_id);
	-- Builds that were inserted together have ids that are close to each other.
	far_id constant bigint := least(last_id::numeric + b.size * 16, 9223372036854775807);
	together pg_catalog.jsonb[];
BEGIN
	IF b.cursor IS NULL THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.drop_stuck_builds', b.args);
		RAISE LOG 'Cleaning %, timed-out builds', stuck.status;
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	IF b.cursor IS NOT NULL THEN
		together := ARRAY(SELECT pg_catalog.to_jsonb(p)
			FROM (SELECT created_at, project_id, id, partition_id, lock_version
				FROM p_ci_builds
				WHERE sweep_gitlab.is_stuck(type, status, created_at, updated_at, scheduled_at, stuck)
					AND created_at IS NOT DISTINCT FROM last_at AND project_id = ANY (ARRAY[last_project])
					AND id BETWEEN last_id AND far_id AND (id, partition_id) > (last_id, last_partition)
				ORDER BY project_id, id, partition_id
				LIMIT b.size) AS p);
		IF pg_catalog.cardinality(together) = b.size THEN
			RETURN QUERY SELECT * FROM pg_catalog.unnest(together);
			RETURN;
		END IF;
	END IF;

	RETURN QUERY
		SELECT pg_catalog.to_jsonb(p)
		FROM (
			(SELECT created_at, project_id, id, partition_id, lock_version
			FROM p_ci_builds
			WHERE sweep_gitlab.is_stuck(type, status, created_at, updated_at, scheduled_at, stuck)
				AND (created_at, project_id, id, partition_id) > (last_at, last_project, last_id, last_partition) AND created_at <= created_before AND NOT among_nulls
			ORDER BY created_at, project_id, id, partition_id
			LIMIT b.size)
			UNION ALL
			(SELECT created_at, project_id, id, partition_id, lock_version
			FROM p_ci_builds
			WHERE sweep_gitlab.is_stuck(type, status, created_at, updated_at, scheduled_at, stuck)
				AND created_at IS NULL AND stuck.created_before IS NULL AND (NOT among_nulls OR (project_id, id, partition_id) > (last_project, last_id, last_partition))
			ORDER BY created_at, project_id, id, partition_id
			LIMIT b.size)) AS p
		LIMIT b.size;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.pick_stuck_builds(sweep.batch) IS 'pick of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: builds that are stuck in a status';

-- Most batches have one build. C code (build.c) does this case, because PL/pgSQL prepares its expressions again in every
-- transaction; the function below does all others.
CREATE FUNCTION sweep_gitlab.drop_stuck_builds(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_gitlab_drop_builds';
COMMENT ON FUNCTION sweep_gitlab.drop_stuck_builds(sweep.batch) IS 'step of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: ends builds that are still stuck';

CREATE FUNCTION sweep_gitlab.drop_stuck_builds_in_batch(b sweep.batch) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	retries constant int := 3;
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	unwritten constant pg_catalog.jsonb[] := sweep_gitlab.drop_stuck_builds_at_once(b);
	rows bigint := pg_catalog.cardinality(b.items) - pg_catalog.cardinality(unwritten);
	item pg_catalog.jsonb;
	version int;
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	-- These builds have changed since they were read. A build that is still stuck is tried again as it is now.
	FOREACH item IN ARRAY unwritten LOOP
		FOR try IN 0 .. retries LOOP
			SELECT p.lock_version INTO version
				FROM p_ci_builds AS p
				WHERE p.id = (item ->> 'id'::pg_catalog.text)::bigint AND p.partition_id = (item ->> 'partition_id'::pg_catalog.text)::bigint
					AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, stuck);
			EXIT WHEN NOT FOUND;
			IF try = retries THEN
				RAISE EXCEPTION 'build % changes faster than it can be dropped', item ->> 'id'::pg_catalog.text
					USING ERRCODE = 'serialization_failure', DETAIL = CASE retries WHEN 0 THEN 'It was tried once.' ELSE pg_catalog.format('It was tried %s times.', retries + 1) END;
			END IF;
			b.items := ARRAY[item || pg_catalog.jsonb_build_object('lock_version', version)];
			IF pg_catalog.cardinality(sweep_gitlab.drop_stuck_builds_at_once(b)) = 0 THEN
				rows := rows + 1;
				EXIT;
			END IF;
		END LOOP;
	END LOOP;
	RETURN rows;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.drop_stuck_builds_in_batch(sweep.batch) IS
	'part of sweep_gitlab.drop_stuck_builds: ends the builds of a batch, again if they have changed and are still stuck, and returns how many';

-- The effects of a change of status outside of the table of the builds.
CREATE FUNCTION sweep_gitlab.follow_builds(schema text, ids bigint[], partition_ids bigint[], project_ids bigint[], pipeline_ids bigint[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
	IF pg_catalog.cardinality(ids) = 0 THEN
		RETURN;
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', schema), true);
	IF pg_catalog.to_regclass(pg_catalog.format('%I.ci_pending_builds', schema)) IS NOT NULL THEN
		DELETE FROM ci_pending_builds AS q USING unnest(ids, partition_ids) AS b (id, partition_id)
			WHERE q.build_id = b.id AND q.partition_id = b.partition_id;
	END IF;
	IF pg_catalog.to_regclass(pg_catalog.format('%I.ci_running_builds', schema)) IS NOT NULL THEN
		DELETE FROM ci_running_builds AS q USING unnest(ids, partition_ids) AS b (id, partition_id)
			WHERE q.build_id = b.id AND q.partition_id = b.partition_id;
	END IF;
	PERFORM sweep.send_many('ci_pipeline_process', pg_catalog.array_agg(pg_catalog.jsonb_build_object('pipeline_id', id)), pg_catalog.array_agg(id::pg_catalog.text))
		FROM pg_catalog.unnest(pipeline_ids) AS id WHERE id IS NOT NULL HAVING pg_catalog.count(*) > 0;
	PERFORM sweep.send_many('ci_build_finished',
		pg_catalog.array_agg(pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('build_id', b.id, 'project_id', b.project_id))),
		pg_catalog.array_agg(b.id::pg_catalog.text))
		FROM unnest(ids, project_ids) AS b (id, project_id);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.follow_builds(text, bigint[], bigint[], bigint[], bigint[]) IS
	'part of the jobs for stuck builds: removes builds that were ended from the queues of runners, and sends their messages';

-- Ends any number of builds in one statement; returns the items that it did not write.
CREATE FUNCTION sweep_gitlab.drop_stuck_builds_at_once(b sweep.batch) RETURNS jsonb[]
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	final_status constant pg_catalog.text := b.args ->> 'final_status';
	reason pg_catalog.jsonb;
	dropped pg_catalog.record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	reason := CASE WHEN pg_catalog.pg_typeof((NULL::p_ci_builds).failure_reason)::pg_catalog.oid IN ('pg_catalog.text'::pg_catalog.regtype::pg_catalog.oid, 'varchar'::pg_catalog.regtype::pg_catalog.oid)
		THEN b.args -> 'failure_reason_name'::pg_catalog.text ELSE b.args -> 'failure_reason'::pg_catalog.text END;
	reason := pg_catalog.jsonb_build_object('failure_reason', reason);

	WITH item AS (
		SELECT (i ->> 'id'::pg_catalog.text)::bigint AS id, (i ->> 'partition_id'::pg_catalog.text)::bigint AS partition_id,
			(i ->> 'lock_version'::pg_catalog.text)::int AS lock_version
		FROM pg_catalog.unnest(b.items) AS i
	), written AS (
		UPDATE p_ci_builds AS p
		SET status = final_status,
			failure_reason = CASE WHEN final_status = 'failed'::pg_catalog.text
				THEN (SELECT (pg_catalog.jsonb_populate_record(NULL::p_ci_builds, reason)).failure_reason) ELSE p.failure_reason END,
			finished_at = at, updated_at = at, scheduled_at = NULL, lock_version = sweep_gitlab.next_lock_version(p.lock_version), processed = p.retried IS TRUE
		FROM item
		WHERE p.id = item.id AND p.partition_id = item.partition_id AND p.lock_version = item.lock_version
			AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, stuck)
		RETURNING p.id, p.partition_id, p.project_id, p.runner_id, p.commit_id
	)
	SELECT coalesce(pg_catalog.array_agg(id), '{}') AS ids, pg_catalog.array_agg(partition_id) AS partition_ids,
			pg_catalog.array_agg(project_id::bigint) AS project_ids, pg_catalog.array_agg(commit_id::bigint) AS pipeline_ids,
			pg_catalog.array_agg(runner_id) AS runner_ids
		INTO dropped FROM written;
	PERFORM sweep_gitlab.follow_builds(b.args ->> 'schema', dropped.ids, dropped.partition_ids, dropped.project_ids, dropped.pipeline_ids);
	IF pg_catalog.current_setting('pg_sweep.log_batches', true) = 'items' THEN
		FOR i IN 1 .. pg_catalog.cardinality(dropped.ids) LOOP
			RAISE LOG 'Dropping outdated build: build_id %, runner_id %, status %, failure_reason %', dropped.ids[i],
				coalesce(dropped.runner_ids[i]::pg_catalog.text, 'none'), stuck.status, reason ->> 'failure_reason'::pg_catalog.text;
		END LOOP;
	END IF;
	IF pg_catalog.cardinality(dropped.ids) = pg_catalog.cardinality(b.items) THEN
		RETURN '{}';
	END IF;
	RETURN ARRAY(SELECT i FROM pg_catalog.unnest(b.items) AS i
		WHERE NOT EXISTS (SELECT FROM unnest(dropped.ids, dropped.partition_ids) AS d (id, partition_id)
			WHERE d.id = (i ->> 'id'::pg_catalog.text)::bigint AND d.partition_id = (i ->> 'partition_id'::pg_catalog.text)::bigint));
END
$$;
COMMENT ON FUNCTION sweep_gitlab.drop_stuck_builds_at_once(sweep.batch) IS
	'part of sweep_gitlab.drop_stuck_builds: ends the builds of a batch that have not changed since they were picked, and returns the others';

CREATE FUNCTION sweep_gitlab.doom_stuck_build(b sweep.batch, error jsonb) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	doomed_id constant bigint := b.items[1] -> 'id';
	doomed_partition constant bigint := b.items[1] -> 'partition_id';
	schema constant pg_catalog.text := b.args ->> 'schema';
	reason pg_catalog.jsonb;
	doomed pg_catalog.record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', schema), true);
	reason := CASE WHEN pg_catalog.pg_typeof((NULL::p_ci_builds).failure_reason)::pg_catalog.oid IN ('pg_catalog.text'::pg_catalog.regtype::pg_catalog.oid, 'varchar'::pg_catalog.regtype::pg_catalog.oid)
		THEN b.args -> 'doom_reason_name'::pg_catalog.text ELSE b.args -> 'doom_reason'::pg_catalog.text END;
	reason := pg_catalog.jsonb_build_object('failure_reason', reason);

	UPDATE p_ci_builds AS p
		SET status = 'failed'::pg_catalog.text,
			failure_reason = (pg_catalog.jsonb_populate_record(NULL::p_ci_builds, reason)).failure_reason,
			finished_at = coalesce(p.finished_at, at), updated_at = at, scheduled_at = NULL, lock_version = sweep_gitlab.next_lock_version(p.lock_version),
			processed = p.retried IS TRUE
		WHERE p.id = doomed_id AND p.partition_id = doomed_partition
			AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, stuck)
		RETURNING p.project_id::bigint, p.runner_id, p.commit_id::bigint INTO doomed;
	IF NOT FOUND THEN
		RETURN ROW(0::bigint, NULL::pg_catalog.jsonb, NULL::pg_catalog.jsonb);
	END IF;
	RAISE LOG 'Dooming build: build_id %, runner_id %, status %, failure_reason %', doomed_id,
			coalesce(doomed.runner_id::pg_catalog.text, 'none'), stuck.status, reason ->> 'failure_reason'::pg_catalog.text
		USING DETAIL = pg_catalog.format('Dropping it has failed: %s.', error ->> 'message'::pg_catalog.text);
	PERFORM sweep_gitlab.follow_builds(schema, ARRAY[doomed_id], ARRAY[doomed_partition], ARRAY[doomed.project_id], ARRAY[doomed.commit_id]);
	RETURN ROW(1::bigint, NULL::pg_catalog.jsonb, NULL::pg_catalog.jsonb);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.doom_stuck_build(sweep.batch, jsonb) IS
	'rescue of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: ends a build that could not be dropped, unless it is no longer stuck';

-- ------------------------------------------------------------------ an older GitLab
-- The same four functions for the table ci_builds. They are generated from those above, because static statements cannot have the
-- name of a table as an argument; nothing else differs.
DO $$
DECLARE
	original pg_catalog.regprocedure;
	copy pg_catalog.text;
BEGIN
	FOREACH original IN ARRAY ARRAY['sweep_gitlab.pick_stuck_builds(sweep.batch)', 'sweep_gitlab.drop_stuck_builds(sweep.batch)',
			'sweep_gitlab.drop_stuck_builds_in_batch(sweep.batch)', 'sweep_gitlab.drop_stuck_builds_at_once(sweep.batch)', 'sweep_gitlab.doom_stuck_build(sweep.batch, jsonb)']::pg_catalog.regprocedure[] LOOP
		copy := pg_catalog.replace(original::pg_catalog.text, 'stuck_build', 'stuck_ci_build');
		EXECUTE pg_catalog.regexp_replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.pg_get_functiondef(original), 'stuck_build', 'stuck_ci_build'),
			'p_ci_builds', 'ci_builds'), E'^CREATE OR \\w+', 'CREATE');
		EXECUTE pg_catalog.format('COMMENT ON FUNCTION %s IS %L', copy, pg_catalog.obj_description(original, 'pg_proc') || ', in the table ci_builds');
	END LOOP;
END
$$;

-- ------------------------------------------------------------------ the jobs
CREATE FUNCTION sweep_gitlab.stuck_builds_functions(table_name text) RETURNS jsonb
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE table_name
		WHEN 'p_ci_builds' THEN pg_catalog.jsonb_build_object('pick', 'sweep_gitlab.pick_stuck_builds',
			'step', 'sweep_gitlab.drop_stuck_builds', 'rescue', 'sweep_gitlab.doom_stuck_build')
		WHEN 'ci_builds' THEN pg_catalog.jsonb_build_object('pick', 'sweep_gitlab.pick_stuck_ci_builds',
			'step', 'sweep_gitlab.drop_stuck_ci_builds', 'rescue', 'sweep_gitlab.doom_stuck_ci_build') END
$$;
COMMENT ON FUNCTION sweep_gitlab.stuck_builds_functions(text) IS 'pick, step and rescue functions for the table with builds; sweep_gitlab.install uses it';

CREATE FUNCTION sweep_gitlab.create_stuck_builds_job(name text, description text, defaults jsonb, args jsonb, schedule text, on_start jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job(name, pick => f ->> 'pick', step => f ->> 'step', rescue => f ->> 'rescue',
		args => '{"final_status": "failed", "failure_reason": 3, "failure_reason_name": "stuck_or_timeout_failure",
			"doom_reason": 12, "doom_reason_name": "data_integrity_failure"}' || defaults || args,
		schedule => schedule, on_start => on_start,
		transaction => 'row', row_retries => 3, batch_size => 100, timeout => '30 min', description => description)
	FROM sweep_gitlab.stuck_builds_functions(args ->> 'table') AS f
$$;
COMMENT ON FUNCTION sweep_gitlab.create_stuck_builds_job(text, text, jsonb, jsonb, text, jsonb) IS 'creates a job for stuck builds; the functions below call it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_running(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_builds_drop_running', 'GitLab: ends builds that are running and have not been updated',
		'{"status": "running", "updated_older_than": "1 hour"}', args, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_running(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_scheduled(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_builds_drop_scheduled', 'GitLab: ends builds that have missed their scheduled moment',
		'{"status": "scheduled", "scheduled_older_than": "1 hour", "failure_reason": 7, "failure_reason_name": "stale_schedule"}',
		args, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_scheduled(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_canceling(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_builds_drop_canceling', 'GitLab: ends builds whose cancellation does not end',
		'{"status": "canceling", "created_older_than": "1 hour", "updated_older_than": "1 hour"}', args, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_canceling(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_jobs(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_jobs', 'GitLab: ends builds that have been pending for too long, and queues the ci_stuck_builds_drop_* jobs',
		'{"status": "pending", "created_older_than": "24 hours", "updated_older_than": "24 hours"}', args, '0 * * * *',
		'{"ci_stuck_builds_drop_running": "15 min", "ci_stuck_builds_drop_scheduled": "30 min", "ci_stuck_builds_drop_canceling": "45 min"}')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_jobs(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';
