--
-- GitLab: builds that are stuck in a status are ended.
--
-- Purpose    A build whose runner is gone stays pending, running or canceling,
--            and its pipeline never ends; one that is scheduled may miss its
--            moment.  ci_stuck_jobs, once an hour, queues a run of each
--            ci_stuck_builds_drop_* job, 15 minutes apart, whether it gets its
--            own lease or not, and drops the pending builds itself.
-- Predicate  type = 'Ci::Build', the status, and for each bound in the args that
--            the timestamp is older: created_at, updated_at, scheduled_at <
--            as_of - bound.  Strict; NULL is never older.
--              ci_stuck_jobs                 pending     created 24 hours
--              ci_stuck_builds_drop_running    running     updated 1 hour
--              ci_stuck_builds_drop_scheduled  scheduled   scheduled 1 hour
--              ci_stuck_builds_drop_canceling  canceling   created and updated 1 hour
-- Order      (created_at, project_id, id), created_at NULL last.
-- Effect     status, failure_reason, finished_at, updated_at, lock_version + 1,
--            and processed so that the pipeline looks at the build again;
--            message {"pipeline_id"} in the queue ci_pipeline_process, its key
--            the id.  A build that cannot be written is doomed: status failed,
--            reason data integrity, out of the queues of runners.
-- Done when  nothing lies behind the last build picked.
-- Args       schema, table: p_ci_builds, or ci_builds in an older GitLab; status;
--            created_older_than, updated_older_than, scheduled_older_than, as far
--            as they apply; final_status: with any other than "failed" the reason
--            stays; failure_reason and doom_reason for a column of numbers,
--            failure_reason_name and doom_reason_name for one of names.
--
-- One pick, one step and one rescue function serve all four. The write repeats
-- the predicate and the lock_version that was picked, so a build that changed
-- meanwhile is not written. It is read again and tried again up to 3 times; once
-- it is no longer stuck, it is left as it is. The rescue asks for the same but
-- the lock_version: what the step could not drop and has since finished, or come
-- back to life, is not doomed.
--
-- created_at, updated_at and finished_at are timestamps without time zone and
-- hold UTC; scheduled_at has its zone. Both are compared with as_of in UTC, where
-- every day has 24 hours, and never with the time zone of the session.
--
-- The index is (status, created_at, project_id) WHERE type = 'Ci::Build' in each
-- partition. The plan is a merge of these, with the ids of one created_at and
-- project sorted, so a batch reads what it returns. Where many builds of a project
-- share one created_at, as after a bulk insert, it would read all that are left of
-- them each time; while there are four batches of them it walks along the ids of the
-- project instead. The write is by the primary key, with partition_id, so that it
-- looks into one partition.
--
-- See environments_auto_stop.sql for the way the table is addressed.
--
CREATE FUNCTION sweep.gitlab_pick_stuck_builds(b sweep.batch) RETURNS SETOF jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	stuck_in constant text := b.args ->> 'status';
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	created_before constant timestamp := at - (b.args ->> 'created_older_than')::interval;
	updated_before constant timestamp := at - (b.args ->> 'updated_older_than')::interval;
	scheduled_before constant timestamptz := (at - (b.args ->> 'scheduled_older_than')::interval) AT TIME ZONE 'UTC';
	many constant int := 4;
	lowest_id constant bigint := -9223372036854775808;
	among_nulls constant boolean := coalesce(b.cursor -> 'created_at' = 'null', false);
	last_at constant timestamp := CASE WHEN among_nulls THEN 'infinity' ELSE coalesce(b.cursor ->> 'created_at', '-infinity') END;
	last_project constant bigint := coalesce((b.cursor ->> 'project_id')::bigint, lowest_id);
	last_id constant bigint := coalesce((b.cursor ->> 'id')::bigint, lowest_id);
BEGIN
	IF stuck_in IS NULL OR coalesce(created_before, updated_before, scheduled_before::timestamp) IS NULL THEN
		RAISE EXCEPTION 'args of the job say neither what status nor how long'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('They are %s.', b.args),
				HINT = 'They need "status" and one or more of "created_older_than", "updated_older_than", "scheduled_older_than".';
	END IF;
	IF b.cursor IS NULL THEN
		RAISE LOG 'Cleaning %, timed-out builds', stuck_in;
	END IF;
	PERFORM set_config('search_path', format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	IF b.cursor IS NOT NULL AND (SELECT pg_catalog.count(*) FROM (SELECT FROM p_ci_builds
			WHERE type::text = 'Ci::Build'::text AND status::text = stuck_in
				AND created_at = last_at AND project_id = last_project AND id > last_id
			LIMIT b.size * many) AS same) = b.size * many THEN
		RETURN QUERY
			SELECT pg_catalog.to_jsonb(p)
			FROM (SELECT created_at, project_id, id, partition_id, lock_version
				FROM p_ci_builds
				WHERE type::text = 'Ci::Build'::text AND status::text = stuck_in
					AND created_at = last_at AND project_id = last_project AND id > last_id
					AND created_at < coalesce(created_before, 'infinity'::timestamp)
					AND (updated_before IS NULL OR updated_at < updated_before)
					AND (scheduled_before IS NULL OR scheduled_at < scheduled_before)
				ORDER BY id
				LIMIT b.size) AS p;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;

	RETURN QUERY
		SELECT pg_catalog.to_jsonb(p)
		FROM (
			(SELECT created_at, project_id, id, partition_id, lock_version
			FROM p_ci_builds
			WHERE type::text = 'Ci::Build'::text AND status::text = stuck_in
				AND created_at < coalesce(created_before, 'infinity'::timestamp)
				AND (created_at, project_id, id) > (last_at, last_project, last_id)
				AND (updated_before IS NULL OR updated_at < updated_before)
				AND (scheduled_before IS NULL OR scheduled_at < scheduled_before)
			ORDER BY created_at, project_id, id
			LIMIT b.size)
			UNION ALL
			(SELECT created_at, project_id, id, partition_id, lock_version
			FROM p_ci_builds
			WHERE type::text = 'Ci::Build'::text AND status::text = stuck_in
				AND created_at IS NULL AND created_before IS NULL
				AND (NOT among_nulls OR (project_id, id) > (last_project, last_id))
				AND (updated_before IS NULL OR updated_at < updated_before)
				AND (scheduled_before IS NULL OR scheduled_at < scheduled_before)
			ORDER BY created_at, project_id, id
			LIMIT b.size)) AS p
		LIMIT b.size;
END
$$;
COMMENT ON FUNCTION sweep.gitlab_pick_stuck_builds(sweep.batch) IS 'pick of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: builds that are stuck in a status';

-- Most batches are of one build, and there are as many as there are builds. What
-- this needs of them is in C (gitlab_build.c), for PL/pgSQL prepares its
-- expressions anew in every transaction; the rest is left to the function below.
CREATE FUNCTION sweep.gitlab_drop_stuck_builds(b sweep.batch) RETURNS sweep.progress
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_gitlab_drop_builds';
COMMENT ON FUNCTION sweep.gitlab_drop_stuck_builds(sweep.batch) IS 'step of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: ends builds that are still stuck';

CREATE FUNCTION sweep.gitlab_drop_stuck_builds_in_batch(b sweep.batch) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	retries constant int := 3;
	stuck_in constant text := b.args ->> 'status';
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	created_before constant timestamp := at - (b.args ->> 'created_older_than')::interval;
	updated_before constant timestamp := at - (b.args ->> 'updated_older_than')::interval;
	scheduled_before constant timestamptz := (at - (b.args ->> 'scheduled_older_than')::interval) AT TIME ZONE 'UTC';
	unwritten constant jsonb[] := sweep.gitlab_drop_stuck_builds_at_once(b);
	rows bigint := cardinality(b.items) - cardinality(unwritten);
	item jsonb;
	version int;
BEGIN
	PERFORM set_config('search_path', format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	-- These have changed since they were read. What is still stuck is tried again as it is now.
	FOREACH item IN ARRAY unwritten LOOP
		FOR try IN 0 .. retries LOOP
			SELECT p.lock_version INTO version
				FROM p_ci_builds AS p
				WHERE p.id = (item ->> 'id'::text)::bigint AND p.partition_id = (item ->> 'partition_id'::text)::bigint
					AND p.type::text = 'Ci::Build'::text AND p.status::text = stuck_in
					AND (created_before IS NULL OR p.created_at < created_before)
					AND (updated_before IS NULL OR p.updated_at < updated_before)
					AND (scheduled_before IS NULL OR p.scheduled_at < scheduled_before);
			EXIT WHEN NOT FOUND;
			IF try = retries THEN
				RAISE EXCEPTION 'build % changes faster than it can be dropped', item ->> 'id'::text
					USING ERRCODE = 'serialization_failure', DETAIL = pg_catalog.format('It was tried %s times.', retries + 1);
			END IF;
			b.items := ARRAY[item || pg_catalog.jsonb_build_object('lock_version', version)];
			IF pg_catalog.cardinality(sweep.gitlab_drop_stuck_builds_at_once(b)) = 0 THEN
				rows := rows + 1;
				EXIT;
			END IF;
		END LOOP;
	END LOOP;
	RETURN rows;
END
$$;
COMMENT ON FUNCTION sweep.gitlab_drop_stuck_builds_in_batch(sweep.batch) IS
	'part of sweep.gitlab_drop_stuck_builds: ends the builds of a batch, again if they have changed and are still stuck, and returns how many';

-- The same for any number of items in one statement; returns those that it did not write.
CREATE FUNCTION sweep.gitlab_drop_stuck_builds_at_once(b sweep.batch) RETURNS jsonb[]
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	stuck_in constant text := b.args ->> 'status';
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	created_before constant timestamp := at - (b.args ->> 'created_older_than')::interval;
	updated_before constant timestamp := at - (b.args ->> 'updated_older_than')::interval;
	scheduled_before constant timestamptz := (at - (b.args ->> 'scheduled_older_than')::interval) AT TIME ZONE 'UTC';
	final_status constant text := b.args ->> 'final_status';
	reason jsonb;
	dropped record;
BEGIN
	PERFORM set_config('search_path', format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	reason := CASE WHEN pg_catalog.pg_typeof((NULL::p_ci_builds).failure_reason)::oid IN ('text'::regtype::oid, 'varchar'::regtype::oid)
		THEN b.args -> 'failure_reason_name'::text ELSE b.args -> 'failure_reason'::text END;
	reason := pg_catalog.jsonb_build_object('failure_reason', reason);

	WITH item AS (
		SELECT (i ->> 'id'::text)::bigint AS id, (i ->> 'partition_id'::text)::bigint AS partition_id,
			(i ->> 'lock_version'::text)::int AS lock_version
		FROM pg_catalog.unnest(b.items) AS i
	), written AS (
		UPDATE p_ci_builds AS p
		SET status = final_status,
			failure_reason = CASE WHEN final_status = 'failed'::text
				THEN (SELECT (pg_catalog.jsonb_populate_record(NULL::p_ci_builds, reason)).failure_reason) ELSE p.failure_reason END,
			finished_at = at, updated_at = at, lock_version = p.lock_version + 1, processed = p.retried IS TRUE
		FROM item
		WHERE p.id = item.id AND p.partition_id = item.partition_id AND p.lock_version = item.lock_version
			AND p.type::text = 'Ci::Build'::text AND p.status::text = stuck_in
			AND (created_before IS NULL OR p.created_at < created_before)
			AND (updated_before IS NULL OR p.updated_at < updated_before)
			AND (scheduled_before IS NULL OR p.scheduled_at < scheduled_before)
		RETURNING p.id, p.runner_id, p.commit_id
	)
	SELECT coalesce(pg_catalog.array_agg(id), '{}') AS ids, pg_catalog.array_agg(runner_id) AS runner_ids,
			pg_catalog.array_agg(pg_catalog.jsonb_build_object('pipeline_id', commit_id)) FILTER (WHERE commit_id IS NOT NULL) AS payloads,
			pg_catalog.array_agg(commit_id::text) FILTER (WHERE commit_id IS NOT NULL) AS pipelines
		INTO dropped FROM written;
	IF dropped.payloads IS NOT NULL THEN
		PERFORM sweep.send_many('ci_pipeline_process', dropped.payloads, dropped.pipelines);
	END IF;
	IF current_setting('pg_sweep.log_batches', true) = 'items' THEN
		FOR i IN 1 .. pg_catalog.cardinality(dropped.ids) LOOP
			RAISE LOG 'Dropping outdated build: build_id %, runner_id %, status %, failure_reason %', dropped.ids[i],
				coalesce(dropped.runner_ids[i]::text, 'none'), stuck_in, reason ->> 'failure_reason'::text;
		END LOOP;
	END IF;
	IF pg_catalog.cardinality(dropped.ids) = pg_catalog.cardinality(b.items) THEN
		RETURN '{}';
	END IF;
	RETURN ARRAY(SELECT i FROM pg_catalog.unnest(b.items) AS i WHERE (i ->> 'id'::text)::bigint <> ALL (dropped.ids));
END
$$;
COMMENT ON FUNCTION sweep.gitlab_drop_stuck_builds_at_once(sweep.batch) IS
	'part of sweep.gitlab_drop_stuck_builds: ends the builds of a batch that have not changed since they were picked, and returns the others';

CREATE FUNCTION sweep.gitlab_doom_stuck_build(b sweep.batch, error jsonb) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	stuck_in constant text := b.args ->> 'status';
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	created_before constant timestamp := at - (b.args ->> 'created_older_than')::interval;
	updated_before constant timestamp := at - (b.args ->> 'updated_older_than')::interval;
	scheduled_before constant timestamptz := (at - (b.args ->> 'scheduled_older_than')::interval) AT TIME ZONE 'UTC';
	doomed_id constant bigint := b.items[1] -> 'id';
	doomed_partition constant bigint := b.items[1] -> 'partition_id';
	schema constant text := b.args ->> 'schema';
	reason jsonb;
	doomed record;
BEGIN
	PERFORM set_config('search_path', format('pg_catalog, %I, pg_temp', schema), true);
	reason := CASE WHEN pg_catalog.pg_typeof((NULL::p_ci_builds).failure_reason)::oid IN ('text'::regtype::oid, 'varchar'::regtype::oid)
		THEN b.args -> 'doom_reason_name'::text ELSE b.args -> 'doom_reason'::text END;
	reason := pg_catalog.jsonb_build_object('failure_reason', reason);

	UPDATE p_ci_builds AS p
		SET status = 'failed'::text,
			failure_reason = (pg_catalog.jsonb_populate_record(NULL::p_ci_builds, reason)).failure_reason,
			finished_at = coalesce(p.finished_at, at), updated_at = at, lock_version = p.lock_version + 1, processed = p.retried IS TRUE
		WHERE p.id = doomed_id AND p.partition_id = doomed_partition
			AND p.type::text = 'Ci::Build'::text AND p.status::text = stuck_in
			AND (created_before IS NULL OR p.created_at < created_before)
			AND (updated_before IS NULL OR p.updated_at < updated_before)
			AND (scheduled_before IS NULL OR p.scheduled_at < scheduled_before)
		RETURNING p.runner_id, p.commit_id INTO doomed;
	IF NOT FOUND THEN
		RETURN ROW(0::bigint, NULL::jsonb, NULL::jsonb);
	END IF;
	RAISE LOG 'Dooming build: build_id %, runner_id %, status %, failure_reason %', doomed_id,
			coalesce(doomed.runner_id::text, 'none'), stuck_in, reason ->> 'failure_reason'::text
		USING DETAIL = pg_catalog.format('Dropping it has failed: %s.', error ->> 'message'::text);
	IF to_regclass(pg_catalog.format('%I.ci_pending_builds', schema)) IS NOT NULL THEN
		DELETE FROM ci_pending_builds WHERE build_id = doomed_id AND partition_id = doomed_partition;
	END IF;
	IF to_regclass(pg_catalog.format('%I.ci_running_builds', schema)) IS NOT NULL THEN
		DELETE FROM ci_running_builds WHERE build_id = doomed_id AND partition_id = doomed_partition;
	END IF;
	IF doomed.commit_id IS NOT NULL THEN
		PERFORM sweep.send('ci_pipeline_process', pg_catalog.jsonb_build_object('pipeline_id', doomed.commit_id), doomed.commit_id::text);
	END IF;
	RETURN ROW(1::bigint, NULL::jsonb, NULL::jsonb);
END
$$;
COMMENT ON FUNCTION sweep.gitlab_doom_stuck_build(sweep.batch, jsonb) IS
	'rescue of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: ends a build that could not be dropped, unless it is no longer stuck';

-- ------------------------------------------------------------------ an older GitLab
-- The same four for the table ci_builds. Static statements cannot take a name
-- as an argument; these differ in nothing else, so they are made from the above.
DO $$
DECLARE
	original regprocedure;
	copy text;
BEGIN
	FOREACH original IN ARRAY ARRAY['sweep.gitlab_pick_stuck_builds(sweep.batch)', 'sweep.gitlab_drop_stuck_builds(sweep.batch)',
			'sweep.gitlab_drop_stuck_builds_in_batch(sweep.batch)', 'sweep.gitlab_drop_stuck_builds_at_once(sweep.batch)', 'sweep.gitlab_doom_stuck_build(sweep.batch, jsonb)']::regprocedure[] LOOP
		copy := replace(original::text, 'stuck_build', 'stuck_ci_build');
		EXECUTE regexp_replace(replace(replace(pg_get_functiondef(original), 'stuck_build', 'stuck_ci_build'),
			'p_ci_builds', 'ci_builds'), '^CREATE OR \w+', 'CREATE');
		EXECUTE format('COMMENT ON FUNCTION %s IS %L', copy, obj_description(original, 'pg_proc') || ', in the table ci_builds');
	END LOOP;
END
$$;

-- ------------------------------------------------------------------ the jobs
CREATE FUNCTION sweep.gitlab_stuck_builds_functions(table_name text) RETURNS jsonb
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE table_name
		WHEN 'p_ci_builds' THEN jsonb_build_object('pick', 'sweep.gitlab_pick_stuck_builds',
			'step', 'sweep.gitlab_drop_stuck_builds', 'rescue', 'sweep.gitlab_doom_stuck_build')
		WHEN 'ci_builds' THEN jsonb_build_object('pick', 'sweep.gitlab_pick_stuck_ci_builds',
			'step', 'sweep.gitlab_drop_stuck_ci_builds', 'rescue', 'sweep.gitlab_doom_stuck_ci_build') END
$$;
COMMENT ON FUNCTION sweep.gitlab_stuck_builds_functions(text) IS 'pick, step and rescue functions for the table with builds; sweep.install_gitlab uses it';

CREATE FUNCTION sweep.gitlab_create_stuck_builds_job(name text, description text, defaults jsonb, args jsonb, enabled boolean,
	schedule text, children jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job(name, pick => f ->> 'pick', step => f ->> 'step', rescue => f ->> 'rescue',
		args => '{"final_status": "failed", "failure_reason": 3, "failure_reason_name": "stuck_or_timeout_failure",
			"doom_reason": 12, "doom_reason_name": "data_integrity_failure"}' || defaults || args, enabled => enabled,
		schedule => schedule, timezone => CASE WHEN schedule IS NOT NULL THEN 'UTC' END, children => children,
		transaction => 'row', row_retries => 3, batch_size => 100, lease_ttl => '30 min', description => description)
	FROM sweep.gitlab_stuck_builds_functions(args ->> 'table') AS f
$$;
COMMENT ON FUNCTION sweep.gitlab_create_stuck_builds_job(text, text, jsonb, jsonb, boolean, text, jsonb) IS 'what the jobs for stuck builds have in common; the functions below call it';

CREATE FUNCTION sweep.gitlab_create_ci_stuck_builds_drop_running(args jsonb, enabled boolean) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.gitlab_create_stuck_builds_job('ci_stuck_builds_drop_running', 'GitLab: ends builds that are running and have not been updated',
		'{"status": "running", "updated_older_than": "1 hour"}', args, enabled, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep.gitlab_create_ci_stuck_builds_drop_running(jsonb, boolean) IS 'creates the job with its limits; sweep.install_gitlab calls it';

CREATE FUNCTION sweep.gitlab_create_ci_stuck_builds_drop_scheduled(args jsonb, enabled boolean) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.gitlab_create_stuck_builds_job('ci_stuck_builds_drop_scheduled', 'GitLab: ends builds that have missed their scheduled moment',
		'{"status": "scheduled", "scheduled_older_than": "1 hour", "failure_reason": 7, "failure_reason_name": "stale_schedule"}',
		args, enabled, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep.gitlab_create_ci_stuck_builds_drop_scheduled(jsonb, boolean) IS 'creates the job with its limits; sweep.install_gitlab calls it';

CREATE FUNCTION sweep.gitlab_create_ci_stuck_builds_drop_canceling(args jsonb, enabled boolean) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.gitlab_create_stuck_builds_job('ci_stuck_builds_drop_canceling', 'GitLab: ends builds whose cancellation does not end',
		'{"status": "canceling", "created_older_than": "1 hour", "updated_older_than": "1 hour"}', args, enabled, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep.gitlab_create_ci_stuck_builds_drop_canceling(jsonb, boolean) IS 'creates the job with its limits; sweep.install_gitlab calls it';

CREATE FUNCTION sweep.gitlab_create_ci_stuck_jobs(args jsonb, enabled boolean) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.gitlab_create_stuck_builds_job('ci_stuck_jobs', 'GitLab: ends builds that have been pending for too long, and queues the ci_stuck_builds_drop_* jobs',
		'{"status": "pending", "created_older_than": "24 hours"}', args, enabled, '0 * * * *',
		'{"ci_stuck_builds_drop_running": "15 min", "ci_stuck_builds_drop_scheduled": "30 min", "ci_stuck_builds_drop_canceling": "45 min"}')
$$;
COMMENT ON FUNCTION sweep.gitlab_create_ci_stuck_jobs(jsonb, boolean) IS 'creates the job with its limits; sweep.install_gitlab calls it';
