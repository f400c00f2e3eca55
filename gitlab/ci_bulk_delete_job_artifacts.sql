--
-- GitLab: job artifacts that have expired are deleted, by several shares at once.
--
-- Purpose    Artifacts are most of what a GitLab stores; each has a time when it expires.
--            ci_schedule_bulk_delete_job_artifacts, every 5 minutes, recovers the
--            buckets and starts shares of ci_bulk_delete_expired_job_artifacts.
-- Predicate  expire_at < as_of AND file_type <> 3 (trace) AND locked = 0 (unlocked)
--            AND mod(project_id + job_id, buckets) = bucket.  Strict; NULL never
--            expires, -infinity has.  Left out: projects whose artifact size is
--            being recounted.
-- Order      expire_at, the longest expired first.
-- Effect     DELETE; for each deleted row that has a file, a
--            row in ci_deleted_objects, from which GitLab removes the file; a message
--            {"project_id", "bytes", "count"} for each project of the batch in the
--            queue ci_artifact_statistics.
-- Done when  no expired artifact is left to read, and those that were read are gone.
-- Args       schema, table: p_ci_job_artifacts, or ci_job_artifacts in an older GitLab;
--            refresh_states: states of project_build_artifacts_size_refreshes in which
--            a project is left alone; buckets, and buckets_high while the feature
--            bulk_delete_job_artifacts_high_concurrency is on.
--
-- No index has the bucket of an artifact. With a filter, each share would read the artifacts of all others. Instead one of them
-- reads for all: it reads the index on expire_at from where the last one stopped, some batches for each bucket at a time, and
-- adds the places of the rows (partition and ctid) to the list of their bucket. A share takes a batch from the list of its
-- bucket; it reads on when that was the last one, or when there was none. N shares together read as much as one.
--
-- A list is only a hint: the DELETE repeats the whole predicate, and any row that is at a place and meets it may be deleted, even
-- if it is another row by now. Therefore lists can be unlogged, and rows that are left by a crash, a rollback or a second list of
-- the same artifacts do no harm. An artifact that becomes deletable before the place where reading has stopped, for example
-- because it is unlocked, is found by the next pass: the first run after one that has drained reads from the start again.
--
-- No share waits for one that hangs. When others have locked its lists, or the position, a share reads for itself alone, with the
-- filter: a lock that it does not get does not mean that the bucket is empty. Rows that are locked are left to the next pass, and
-- counted as locked in the detail of the run. A batch that has found only such rows for ten seconds is committed, as one row
-- handled, so that the run goes on from there and does not begin with these rows again. An artifact that cannot be deleted is
-- left, too: it is logged, and counted as failed.
--
-- See environments_auto_stop.sql for the way the table is addressed.
--
-- mod(project_id + job_id, buckets), also if the sum, of two numbers of the same sign, exceeds a bigint. Negative sums belong to
-- no share, as in GitLab. Without SET clause, so that the planner can inline it.
CREATE FUNCTION sweep_gitlab.artifact_bucket(project_id bigint, job_id bigint, buckets int) RETURNS int
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN CASE WHEN (project_id < 0) = (job_id < 0) THEN pg_catalog.mod(pg_catalog.mod(project_id, buckets::bigint) + pg_catalog.mod(job_id, buckets::bigint), buckets::bigint)
		ELSE pg_catalog.mod(project_id + job_id, buckets::bigint) END;
COMMENT ON FUNCTION sweep_gitlab.artifact_bucket(bigint, bigint, int) IS 'the share to which an artifact belongs; the planner inlines it';

CREATE FUNCTION sweep_gitlab.read_artifacts(b sweep.batch, bucket int, buckets int, read_from timestamptz, for_all boolean, refreshing bigint[],
	OUT next_from timestamptz, OUT bucket_of int[], OUT partition_of bigint[], OUT place_of tid[])
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	-- batches for each bucket
	at_once constant int := 10;
	-- at most that many times as much when many expire at the same time; the next pass finds the others
	most_tied constant int := 100;
	most constant bigint := b.size::bigint * at_once * CASE WHEN for_all THEN buckets ELSE 1 END;
	-- the first timestamp after -infinity
	earliest constant pg_catalog.timestamptz := '4714-11-24 00:00Z BC';
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	SELECT pg_catalog.max(greatest(expire_at + '1 microsecond'::interval, earliest)), pg_catalog.array_agg(in_bucket), pg_catalog.array_agg(partition_id), pg_catalog.array_agg(place)
		INTO next_from, bucket_of, partition_of, place_of
		FROM (SELECT * FROM (SELECT expire_at, sweep_gitlab.artifact_bucket(project_id, job_id, buckets) AS in_bucket, partition_id, ctid AS place
			FROM p_ci_job_artifacts
			WHERE locked = 0 AND file_type <> 3 AND expire_at >= read_from AND expire_at < b.as_of AND project_id <> ALL (refreshing)
				AND CASE WHEN for_all THEN sweep_gitlab.artifact_bucket(project_id, job_id, buckets) >= 0
					ELSE sweep_gitlab.artifact_bucket(project_id, job_id, buckets) = bucket END
			ORDER BY expire_at
			FETCH FIRST (most) ROWS WITH TIES) AS tied FETCH FIRST (most * most_tied) ROWS ONLY) AS artifact;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.read_artifacts(sweep.batch, int, int, timestamptz, boolean, bigint[]) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: where the next expired artifacts are, of all buckets or of one';

CREATE FUNCTION sweep_gitlab.delete_artifacts(b sweep.batch, bucket int, buckets int, partition bigint, places tid[], refreshing bigint[], is_part boolean)
	RETURNS jsonb[]
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = off SET lock_timeout = '100ms'
AS $$
DECLARE
	-- all other values, also NULL, mean a hashed path
	legacy_path constant smallint := 1;
	statistics pg_catalog.jsonb[];
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	IF is_part THEN -- a part of rows that could not be deleted together, as one of them may be locked
		PERFORM pg_catalog.set_config('lock_timeout', '2ms', true);
	END IF;
	BEGIN
		WITH deleted AS (
			DELETE FROM p_ci_job_artifacts
				WHERE partition_id = partition AND ctid = ANY (places)
					AND locked = 0 AND file_type <> 3 AND expire_at < b.as_of
					AND sweep_gitlab.artifact_bucket(project_id, job_id, buckets) = bucket AND project_id <> ALL (refreshing)
				RETURNING id, project_id, job_id, size, created_at, expire_at, file_store, file_location,
					nullif(file_final_path, ''::pg_catalog.text) AS final_path, nullif(file::pg_catalog.text, ''::pg_catalog.text) AS file_name
		), stored AS (
			SELECT *, coalesce(pg_catalog.regexp_replace(final_path, '^.*/'::pg_catalog.text, ''::pg_catalog.text), file_name) AS file,
				pg_catalog.encode(pg_catalog.sha256(project_id::pg_catalog.text::pg_catalog.bytea), 'hex'::pg_catalog.text) AS hex
			FROM deleted
		), queued AS (
			INSERT INTO ci_deleted_objects (file_store, project_id, store_dir, file, pick_up_at)
				SELECT file_store::smallint, project_id,
					CASE
						WHEN final_path IS NULL AND file_location = legacy_path THEN pg_catalog.format('%s/%s/%s'::pg_catalog.text,
							pg_catalog.to_char(created_at AT TIME ZONE 'UTC'::pg_catalog.text, 'YYYY_MM'::pg_catalog.text), project_id, job_id)
						WHEN final_path IS NULL THEN pg_catalog.format('%s/%s/%s/%s/%s/%s'::pg_catalog.text, pg_catalog.substr(hex, 1, 2), pg_catalog.substr(hex, 3, 2), hex,
							pg_catalog.to_char(created_at AT TIME ZONE 'UTC'::pg_catalog.text, 'YYYY_MM_DD'::pg_catalog.text), job_id, id)
						WHEN pg_catalog.strpos(final_path, '/'::pg_catalog.text) = 0 THEN '.'::pg_catalog.text
						ELSE pg_catalog.regexp_replace(final_path, '/[^/]*$'::pg_catalog.text, ''::pg_catalog.text)
					END,
					file, greatest(least(expire_at, b.as_of + '1 hour'::interval), b.as_of - '1 day'::interval)
				FROM stored
				WHERE file <> ''::pg_catalog.text
		)
		SELECT pg_catalog.array_agg(pg_catalog.jsonb_build_object('project_id', project_id, 'bytes', bytes, 'count', rows)) INTO statistics
			FROM (SELECT project_id, coalesce(pg_catalog.sum(size), 0::numeric) AS bytes, pg_catalog.count(*) AS rows FROM deleted GROUP BY project_id) AS project;
		RETURN statistics;
	EXCEPTION WHEN OTHERS THEN
		-- Missing rights or tables, lacking resources of the server, and conflicts of transactions are not errors of an artifact.
		IF SQLSTATE ~ '^(25|40|42|53|57|58|XX)' THEN
			RAISE;
		END IF;
		IF pg_catalog.cardinality(places) = 1 THEN
			IF SQLSTATE = '55P03' THEN
				RETURN ARRAY[pg_catalog.jsonb_build_object('locked', 1)];
			END IF;
			RAISE WARNING 'artifact % cannot be deleted: %',
				(SELECT pg_catalog.min(id) FROM p_ci_job_artifacts WHERE partition_id = partition AND ctid = ANY (places)), SQLERRM;
			RETURN ARRAY[pg_catalog.jsonb_build_object('failed', 1)];
		END IF;
	END;
	-- Tries both halves, until an artifact that is locked or cannot be deleted is alone.
	RETURN sweep_gitlab.delete_artifacts(b, bucket, buckets, partition, places[:pg_catalog.cardinality(places) / 2], refreshing, true)
		|| sweep_gitlab.delete_artifacts(b, bucket, buckets, partition, places[pg_catalog.cardinality(places) / 2 + 1:], refreshing, true);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.delete_artifacts(sweep.batch, int, int, bigint, tid[], bigint[], boolean) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: deletes the expired ones of these artifacts of a partition, and returns statistics for each project';

-- listed: whether the list may have new rows. Without "wait" it does nothing when another share reads.
CREATE FUNCTION sweep_gitlab.read_on(b sweep.batch, table_id oid, bucket int, buckets int, refreshing bigint[], after bigint,
	first boolean, wait boolean, INOUT own_from timestamptz, OUT listed boolean)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	reader pg_catalog.jsonb := sweep_gitlab.start_reading(table_id, buckets, bucket, after, first, wait);
	for_all boolean := reader ->> 'for' = 'all';
	read pg_catalog.record;
BEGIN
	listed := true;
	IF for_all OR wait AND reader ->> 'for' = 'self' THEN
		read := sweep_gitlab.read_artifacts(b, bucket, buckets, CASE WHEN for_all THEN (reader ->> 'from')::pg_catalog.timestamptz
			ELSE greatest(own_from, (reader ->> 'from')::pg_catalog.timestamptz) END, for_all, refreshing);
		PERFORM sweep_gitlab.list_artifacts(table_id, buckets, b.size, read.next_from, for_all, read.bucket_of, read.partition_of, read.place_of);
		listed := read.next_from IS NOT NULL;
		own_from := CASE WHEN for_all THEN own_from ELSE coalesce(read.next_from, own_from) END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.read_on(sweep.batch, oid, int, int, bigint[], bigint, boolean, boolean, timestamptz) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: a share reads on for all shares, or for itself when another one reads for all';

CREATE FUNCTION sweep_gitlab.refreshing_projects(b sweep.batch) RETURNS bigint[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF pg_catalog.to_regclass(pg_catalog.format('%I.project_build_artifacts_size_refreshes', b.args ->> 'schema')) IS NULL THEN
		RETURN '{}';
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	RETURN ARRAY(SELECT project_id FROM project_build_artifacts_size_refreshes WHERE b.args -> 'refresh_states'::pg_catalog.text @> pg_catalog.to_jsonb(state));
END
$$;
COMMENT ON FUNCTION sweep_gitlab.refreshing_projects(sweep.batch) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: projects whose artifact size is being recounted';

CREATE FUNCTION sweep_gitlab.ci_bulk_delete_expired_job_artifacts(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	buckets constant int := coalesce(b.buckets, 1);
	bucket constant int := coalesce(b.bucket, 0);
	table_id constant pg_catalog.oid := pg_catalog.format('%I.%I', b.args ->> 'schema', b.args ->> 'table')::pg_catalog.regclass;
	refreshing constant bigint[] := sweep_gitlab.refreshing_projects(b);
	began constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	last_list bigint := coalesce((b.cursor ->> 'list')::bigint, 0);
	own_from pg_catalog.timestamptz := coalesce(b.cursor ->> 'expire_at', '-infinity');
	first boolean := b.cursor IS NULL;
	list sweep_gitlab.artifact_list;
	read_on pg_catalog.record;
	partition bigint;
	statistics pg_catalog.jsonb[] := '{}';
	rows bigint := 0;
	detail pg_catalog.jsonb;
BEGIN
	IF first THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.ci_bulk_delete_expired_job_artifacts', b.args);
	END IF;
	IF pg_catalog.to_regclass(pg_catalog.format('%I.ci_deleted_objects', b.args ->> 'schema')) IS NULL THEN
		RAISE EXCEPTION 'table "%.ci_deleted_objects" does not exist', b.args ->> 'schema'
			USING ERRCODE = 'undefined_table', DETAIL = 'Nothing was deleted: nobody would remove the files of the artifacts.',
				HINT = 'It is a table of GitLab, in the same schema as its artifacts.';
	END IF;

	WHILE rows = 0 LOOP
		list := sweep_gitlab.take_artifacts(table_id, buckets, bucket, last_list, b.size);
		IF list.list_id IS NULL THEN
			read_on := sweep_gitlab.read_on(b, table_id, bucket, buckets, refreshing, last_list, first, true, own_from);
			first := false;
			own_from := read_on.own_from;
			CONTINUE WHEN read_on.listed;
			-- Lists that another share has made for all, while this one read for itself, have lower numbers than its own.
			IF own_from > '-infinity' THEN
				list := sweep_gitlab.take_artifacts(table_id, buckets, bucket, 0, b.size);
			END IF;
			EXIT WHEN list.list_id IS NULL;
		END IF;
		last_list := list.list_id;
		FOR partition IN SELECT DISTINCT p FROM pg_catalog.unnest(list.partition_ids) AS p ORDER BY p LOOP
			statistics := statistics || sweep_gitlab.delete_artifacts(b, bucket, buckets, partition,
				ARRAY(SELECT l.place FROM unnest(list.partition_ids, list.places) AS l (p, place) WHERE l.p = partition), refreshing, false);
		END LOOP;
		rows := coalesce((SELECT pg_catalog.sum((s -> 'count')::bigint) FROM pg_catalog.unnest(statistics) AS s), 0);
		EXIT WHEN pg_catalog.clock_timestamp() > began + interval '10 s';
	END LOOP;

	detail := (SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('failed', pg_catalog.sum((s -> 'failed')::int), 'locked', pg_catalog.sum((s -> 'locked')::int)))
		FROM pg_catalog.unnest(statistics) AS s);
	IF rows > 0 THEN
		PERFORM sweep.send_many('ci_artifact_statistics', pg_catalog.array_agg(pg_catalog.jsonb_build_object('project_id', p.project_id, 'bytes', p.bytes, 'count', p.count)))
			FROM (SELECT s -> 'project_id' AS project_id, pg_catalog.sum((s -> 'bytes')::numeric) AS bytes, pg_catalog.sum((s -> 'count')::bigint) AS count
				FROM pg_catalog.unnest(statistics) AS s WHERE s ? 'project_id' GROUP BY 1) AS p;
	END IF;
	-- The list is used up. Reading for all at the end of a batch keeps the lock only for a short time.
	IF list.is_last THEN
		PERFORM sweep_gitlab.read_on(b, table_id, bucket, buckets, refreshing, last_list, false, false, own_from);
	END IF;
	RETURN ROW(CASE WHEN list.list_id IS NOT NULL THEN greatest(rows, 1) ELSE 0 END, pg_catalog.jsonb_build_object('list', last_list, 'expire_at', own_from), nullif(detail, '{}'));
END
$$;
COMMENT ON FUNCTION sweep_gitlab.ci_bulk_delete_expired_job_artifacts(sweep.batch) IS 'step of the job ci_bulk_delete_expired_job_artifacts: deletes expired artifacts of a share';

-- ------------------------------------------------------------------ the same in ci_job_artifacts
-- The functions for this table are copies of those above, so that their statements are static, too.
DO $$
DECLARE
	original pg_catalog.regprocedure;
	copy pg_catalog.text;
BEGIN
	FOREACH original IN ARRAY ARRAY['sweep_gitlab.read_artifacts(sweep.batch, int, int, timestamptz, boolean, bigint[])',
			'sweep_gitlab.delete_artifacts(sweep.batch, int, int, bigint, tid[], bigint[], boolean)',
			'sweep_gitlab.read_on(sweep.batch, oid, int, int, bigint[], bigint, boolean, boolean, timestamptz)',
			'sweep_gitlab.ci_bulk_delete_expired_job_artifacts(sweep.batch)']::pg_catalog.regprocedure[] LOOP
		-- read_artifacts becomes read_plain_artifacts, and so on
		copy := pg_catalog.pg_get_functiondef(original);
		copy := pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(copy, 'sweep_gitlab.read_artifacts', 'sweep_gitlab.read_plain_artifacts'),
			'sweep_gitlab.delete_artifacts', 'sweep_gitlab.delete_plain_artifacts'), 'sweep_gitlab.read_on', 'sweep_gitlab.read_plain_on'),
			'sweep_gitlab.ci_bulk_delete_expired_job_artifacts',
			'sweep_gitlab.ci_bulk_delete_expired_plain_job_artifacts');
		EXECUTE pg_catalog.regexp_replace(pg_catalog.replace(copy, 'p_ci_job_artifacts', 'ci_job_artifacts'), E'^CREATE OR \\w+', 'CREATE');
	END LOOP;
	FOR original IN SELECT oid FROM pg_catalog.pg_proc WHERE proname ~ '_plain_' AND pronamespace = 'sweep_gitlab'::pg_catalog.regnamespace LOOP
		EXECUTE pg_catalog.format('COMMENT ON FUNCTION %s IS %L', original, 'the same as the function without "plain" in its name, for the table ci_job_artifacts');
	END LOOP;
END
$$;

CREATE FUNCTION sweep_gitlab.artifacts_step(table_name text) RETURNS text
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE table_name WHEN 'p_ci_job_artifacts' THEN 'sweep_gitlab.ci_bulk_delete_expired_job_artifacts'
		WHEN 'ci_job_artifacts' THEN 'sweep_gitlab.ci_bulk_delete_expired_plain_job_artifacts' END
$$;
COMMENT ON FUNCTION sweep_gitlab.artifacts_step(text) IS 'step function for the table with artifacts; sweep_gitlab.install uses it';

-- ------------------------------------------------------------------ the scheduler
INSERT INTO sweep_gitlab.feature_flag (name) VALUES ('bulk_delete_job_artifacts'), ('bulk_delete_job_artifacts_high_concurrency');

-- The current number of buckets; 0: the job does nothing.
CREATE FUNCTION sweep_gitlab.artifact_buckets(b sweep.batch) RETURNS int
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A missing number, or one less than 1, is an error: 0 would mean that the job is switched off.
	SELECT CASE WHEN number >= 0 THEN number
		ELSE (SELECT 0 FROM sweep_gitlab.check_args('sweep_gitlab.ci_bulk_delete_expired_job_artifacts', b.args)) END
	FROM (SELECT CASE
		WHEN NOT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts') THEN 0
		WHEN sweep_gitlab.feature_enabled('bulk_delete_job_artifacts_high_concurrency') THEN nullif((b.args ->> 'buckets_high')::int, 0)
		ELSE nullif((b.args ->> 'buckets')::int, 0) END) AS n (number)
$$;
COMMENT ON FUNCTION sweep_gitlab.artifact_buckets(sweep.batch) IS 'buckets_function of ci_bulk_delete_expired_job_artifacts: the number of buckets according to the feature flags';

-- The engine recovers the buckets of the child job and starts its shares; the batch itself has nothing to do.
CREATE FUNCTION sweep_gitlab.ci_schedule_bulk_delete_job_artifacts(b sweep.batch) RETURNS sweep.progress
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT ROW(0, NULL, NULL)::sweep.progress
$$;
COMMENT ON FUNCTION sweep_gitlab.ci_schedule_bulk_delete_job_artifacts(sweep.batch) IS
	'step of the job ci_schedule_bulk_delete_job_artifacts: does nothing itself; the engine recovers the buckets of its child and starts the shares';

CREATE FUNCTION sweep_gitlab.create_ci_bulk_delete_expired_job_artifacts(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job('ci_bulk_delete_expired_job_artifacts',
		step => sweep_gitlab.artifacts_step(args ->> 'table'),
		args => '{"buckets": 5, "buckets_high": 10, "refresh_states": [2, 3, 4]}' || args,
		batch_size => 100, max_batches => 500, stop_after => '5 min',
		buckets => 10, buckets_function => 'sweep_gitlab.artifact_buckets', bucket_recovery => '10 min',
		bucket_key => 'bulk_delete_expired_job_artifacts',
		description => 'GitLab: deletes job artifacts that have expired')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_bulk_delete_expired_job_artifacts(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_schedule_bulk_delete_job_artifacts(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job('ci_schedule_bulk_delete_job_artifacts',
		step => 'sweep_gitlab.ci_schedule_bulk_delete_job_artifacts', args => args,
		schedule => '*/5 * * * *', timezone => 'UTC', on_start => '{"ci_bulk_delete_expired_job_artifacts": "0"}',
		description => 'GitLab: keeps the buckets of ci_bulk_delete_expired_job_artifacts and starts its shares')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_schedule_bulk_delete_job_artifacts(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';
