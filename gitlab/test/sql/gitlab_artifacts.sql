-- The step of ci_bulk_delete_expired_job_artifacts: what it deletes, share by
-- share, what it leaves for GitLab, and what it costs to read.
\set ECHO none
\i gitlab/test/include/gitlab.sql
CREATE SCHEMA plain;
CREATE TABLE plain.ci_job_artifacts (LIKE gitlab.p_ci_job_artifacts INCLUDING ALL);
CREATE TABLE plain.ci_deleted_objects (LIKE gitlab.ci_deleted_objects INCLUDING ALL);
SELECT sweep.create_queue('ci_artifact_statistics');

-- in both schemas; job_id is the id, so that project_id 10 makes the bucket that of the id
CREATE PROCEDURE pg_temp.artifact(id bigint, expire_at timestamptz, project_id bigint DEFAULT 10, file_type int DEFAULT 1, locked int DEFAULT 0,
		partition_id int DEFAULT 100, size bigint DEFAULT 1000, created_at timestamptz DEFAULT '2025-06-01Z', file text DEFAULT 'a.zip', final_path text DEFAULT NULL)
	LANGUAGE plpgsql AS $$
DECLARE
	target text;
BEGIN
	FOREACH target IN ARRAY ARRAY['gitlab.p_ci_job_artifacts', 'plain.ci_job_artifacts'] LOOP
		EXECUTE format('INSERT INTO %s (id, job_id, project_id, file_type, locked, partition_id, size, created_at, updated_at, expire_at, file, file_final_path)
			VALUES ($1, $1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10)', target)
			USING id, project_id, file_type, locked, partition_id, size, created_at, expire_at, file, final_path;
	END LOOP;
END
$$;
-- runs of all shares side by side, a batch of each in turn, until each has drained
CREATE FUNCTION pg_temp.run(buckets int DEFAULT NULL, size int DEFAULT 100, schema text DEFAULT 'gitlab', as_of timestamptz DEFAULT '2026-01-08Z', args jsonb DEFAULT '{}')
	RETURNS TABLE (bucket int, batches int, rows bigint, deleted bigint[], detail jsonb)
	LANGUAGE plpgsql AS $$
DECLARE
	kind text := CASE schema WHEN 'gitlab' THEN 'p_ci_job_artifacts' ELSE 'ci_job_artifacts' END;
	batch sweep.batch := ROW(size, NULL, '{"refresh_states": [2, 3, 4]}' || jsonb_build_object('schema', schema, 'table', kind) || args, as_of, NULL, buckets, NULL, 1);
	progress sweep.progress;
	before bigint[];
BEGIN
	CREATE TEMP TABLE share AS SELECT CASE WHEN buckets IS NOT NULL THEN n END AS bucket, 0 AS batches, 0::bigint AS rows, '{}'::bigint[] AS deleted,
			NULL::jsonb AS detail, NULL::jsonb AS cursor, false AS drained
		FROM generate_series(0, coalesce(buckets, 1) - 1) AS n;
	WHILE EXISTS (SELECT FROM share s WHERE NOT s.drained) LOOP -- as the engine would
		FOR bucket IN SELECT s.bucket FROM share s WHERE NOT s.drained ORDER BY 1 LOOP
			batch.bucket := bucket;
			batch.cursor := (SELECT s.cursor FROM share s WHERE s.bucket IS NOT DISTINCT FROM run.bucket);
			EXECUTE format('SELECT array_agg(id) FROM %I.%I', schema, kind) INTO before;
			EXECUTE format('SELECT * FROM %s($1)', sweep_gitlab.artifacts_step(kind)) INTO progress USING batch;
			EXECUTE format('SELECT coalesce(array_agg(i ORDER BY i), ''{}'') FROM unnest($1) AS i WHERE i NOT IN (SELECT id FROM %I.%I)', schema, kind)
				INTO deleted USING before;
			UPDATE share AS s SET batches = s.batches + 1, rows = s.rows + progress.rows, deleted = s.deleted || run.deleted,
					detail = coalesce(s.detail, progress.detail), cursor = progress.cursor, drained = progress.rows = 0
				WHERE s.bucket IS NOT DISTINCT FROM run.bucket;
		END LOOP;
	END LOOP;
	RETURN QUERY SELECT s.bucket, s.batches, s.rows, s.deleted, s.detail FROM share s ORDER BY 1;
	DROP TABLE share;
END
$$;

-- nothing there
SELECT * FROM pg_temp.run();
SELECT * FROM pg_temp.run(2, schema => 'plain');

-- the bound is strict, to the microsecond; traces, locked ones and those that do not expire stay
CALL pg_temp.artifact(1, '2026-01-07 23:59:59.999999Z');
CALL pg_temp.artifact(2, '2026-01-08 00:00:00Z');
CALL pg_temp.artifact(3, '2026-01-08 00:00:00.000001Z');
CALL pg_temp.artifact(4, NULL);
CALL pg_temp.artifact(5, '2025-12-01Z', file_type => 3);
CALL pg_temp.artifact(6, '2025-12-01Z', locked => 1);
CALL pg_temp.artifact(7, '2025-12-01Z', locked => 2);
CALL pg_temp.artifact(8, '2025-12-01Z', locked => NULL);
CALL pg_temp.artifact(9, '2025-12-01Z', partition_id => 101);
CALL pg_temp.artifact(10, '2025-12-02Z', partition_id => 102, file_type => 2);
BEGIN;
SELECT * FROM pg_temp.run();
SELECT * FROM pg_temp.run(schema => 'plain');
ROLLBACK;
BEGIN;
SELECT rows, deleted FROM pg_temp.run(as_of => '2026-01-08 00:00:00.000001Z');
ROLLBACK;
-- the same in every time zone
BEGIN;
SET LOCAL timezone = 'Asia/Tokyo';
SELECT rows, deleted FROM pg_temp.run();
ROLLBACK;

-- each share its own: by project and job
DO $$
BEGIN
	FOR i IN 11 .. 30 LOOP
		CALL pg_temp.artifact(i, '2025-12-03Z'::timestamptz + i * interval '1 s', 10 + i % 2, partition_id => 100 + i % 3);
	END LOOP;
END
$$;
BEGIN;
SELECT * FROM pg_temp.run(5);
ROLLBACK;
BEGIN;
SELECT bucket, rows, deleted FROM pg_temp.run(10);
ROLLBACK;
BEGIN;
SELECT bucket, rows, deleted FROM pg_temp.run(5, schema => 'plain');
ROLLBACK;
-- ids whose sum no bigint holds are of a share as others are; a negative sum is of none, as in the original
BEGIN;
CALL pg_temp.artifact(31, '2025-12-04Z', 9223372036854775807);
CALL pg_temp.artifact(32, '2025-12-04Z', 9223372036854775806);
CALL pg_temp.artifact(33, '2025-12-04Z', -34);
CALL pg_temp.artifact(34, '2025-12-04Z', -33, partition_id => 101);
CALL pg_temp.artifact(40, '2025-12-04Z', -37);
SELECT bucket, deleted FROM pg_temp.run(5);
SELECT n AS bucket, array_agg(id ORDER BY id) FROM (SELECT id, mod(project_id::numeric + job_id, 5) AS n FROM plain.ci_job_artifacts WHERE id > 30) AS a GROUP BY 1 ORDER BY 1;
SELECT array_agg(id ORDER BY id) AS left_alone, (SELECT count(*) FROM sweep_gitlab.artifact_list) AS lists FROM gitlab.p_ci_job_artifacts;
SELECT rows, deleted FROM pg_temp.run(schema => 'plain');
ROLLBACK;
-- one that expired at -infinity has; each once, also when it cannot be deleted and others go on behind it
BEGIN;
CALL pg_temp.artifact(35, '-infinity');
CALL pg_temp.artifact(36, '-infinity', partition_id => 101);
CALL pg_temp.artifact(37, 'infinity');
CALL pg_temp.artifact(38, '4714-11-24 00:00Z BC');
CREATE FUNCTION pg_temp.refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION USING MESSAGE = 'no', ERRCODE = 'ZZ001';
END
$$;
CREATE TRIGGER refuse_one BEFORE DELETE ON gitlab.p_ci_job_artifacts FOR EACH ROW WHEN (old.id = 36) EXECUTE FUNCTION pg_temp.refuse_one();
SET LOCAL client_min_messages = error;
SET LOCAL timezone = 'America/New_York';
SELECT batches, rows, deleted, detail FROM pg_temp.run(size => 4);
SELECT bucket, batches, rows, deleted FROM pg_temp.run(3, 1, schema => 'plain');
SELECT count(*), count(DISTINCT store_dir), min(pick_up_at) FROM gitlab.ci_deleted_objects;
SELECT next_from AT TIME ZONE 'UTC' AS next_from, cardinality(place_of)
	FROM sweep_gitlab.read_artifacts(ROW(9, NULL, '{"schema": "gitlab"}', '4714-11-24 00:00Z BC', 0, 1, NULL, 1)::sweep.batch, 0, 1, '-infinity', true, '{}');
ROLLBACK;
-- small batches: full ones until the list of the share ends, the longest expired first
BEGIN;
SELECT bucket, batches, rows, deleted FROM pg_temp.run(3, 2);
ROLLBACK;
BEGIN;
SELECT batches, rows, deleted FROM pg_temp.run(size => 1);
ROLLBACK;
-- batches that are smaller than those it was read for, as the last one of a run with max_rows is
BEGIN;
CREATE FUNCTION pg_temp.batches(VARIADIC sizes int[]) RETURNS TABLE (size int, rows bigint, gone text)
	LANGUAGE plpgsql AS $$
DECLARE
	progress sweep.progress;
BEGIN
	FOREACH size IN ARRAY sizes LOOP
		progress := sweep_gitlab.ci_bulk_delete_expired_job_artifacts(ROW(size, progress.cursor,
			'{"schema": "gitlab", "table": "p_ci_job_artifacts", "refresh_states": []}', '2026-01-08Z', NULL, NULL, NULL, 1)::sweep.batch);
		rows := progress.rows;
		gone := (SELECT string_agg(i::text, ' ' ORDER BY i) FROM generate_series(1, 30) AS i WHERE i NOT IN (SELECT id FROM gitlab.p_ci_job_artifacts));
		RETURN NEXT;
	END LOOP;
END
$$;
SELECT * FROM pg_temp.batches(4, 3, 2, 1, 3, 5, 4, 4, 4);
ROLLBACK;
-- one number of shares after another, and back
BEGIN;
SELECT sum(rows) FROM pg_temp.run(5, as_of => '2025-12-03 00:00:15Z');
SELECT sum(rows) FROM pg_temp.run(10, as_of => '2025-12-03 00:00:20Z');
SELECT sum(rows) FROM pg_temp.run(5);
ROLLBACK;

-- what became deletable behind the place where the last run stopped reading: found by the next
BEGIN;
SELECT sum(rows) FROM pg_temp.run(5);
UPDATE gitlab.p_ci_job_artifacts SET locked = 0 WHERE id IN (6, 7);
SELECT bucket, deleted FROM pg_temp.run(5) WHERE rows > 0;
SELECT sum(rows) FROM pg_temp.run(5);
ROLLBACK;
-- places in a list are no more than places: each of the conditions is asked for again
BEGIN;
CALL pg_temp.artifact(31, '2025-12-04Z', 11);
CALL pg_temp.artifact(32, '2025-12-04Z', 13);
CALL pg_temp.artifact(35, '2025-12-04Z', 10);
CREATE FUNCTION pg_temp.delete_all(buckets int) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep_gitlab.delete_artifacts(ROW(100, NULL, '{"schema": "gitlab"}', '2026-01-08Z', 0, buckets, NULL, 1)::sweep.batch, 0, buckets, 100,
		ARRAY(SELECT ctid FROM gitlab.p_ci_job_artifacts WHERE partition_id = 100), '{13}', false);
	RETURN ARRAY(SELECT id FROM plain.ci_job_artifacts WHERE id NOT IN (SELECT id FROM gitlab.p_ci_job_artifacts) ORDER BY id);
END
$$;
SELECT pg_temp.delete_all(5);
SELECT pg_temp.delete_all(1);
SELECT id, project_id, file_type, locked, expire_at FROM gitlab.p_ci_job_artifacts WHERE partition_id = 100 ORDER BY id;
ROLLBACK;
-- what ceased to be deletable since it was read: stays; here between the batches of one share
BEGIN;
CREATE FUNCTION pg_temp.lock_next() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE gitlab.p_ci_job_artifacts SET locked = 1 WHERE id = 30 AND locked = 0;
	UPDATE gitlab.p_ci_job_artifacts SET expire_at = '2026-02-01Z' WHERE id = 29 AND expire_at < '2026-01-01Z';
	RETURN NULL;
END
$$;
CREATE TRIGGER lock_next AFTER DELETE ON gitlab.p_ci_job_artifacts FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.lock_next();
SELECT rows, deleted FROM pg_temp.run(size => 5);
SELECT count(*) FILTER (WHERE file IS NOT NULL) FROM gitlab.ci_deleted_objects;
SELECT rows FROM pg_temp.run();
ROLLBACK;
TRUNCATE gitlab.p_ci_job_artifacts, plain.ci_job_artifacts;

-- file_location: 1 is a legacy path, in UTC as well; 2, or nothing, a hashed one; where the final path is known, neither
TRUNCATE gitlab.p_ci_job_artifacts, plain.ci_job_artifacts;
CALL pg_temp.artifact(7, '2026-01-07 12:00Z', 278964, created_at => '2017-06-30 23:30Z', file => 'legacy.zip');
CALL pg_temp.artifact(8, '2026-01-07 12:00Z', 278964, created_at => '2017-07-01 00:30+09', file => 'legacy.zip', partition_id => 101);
CALL pg_temp.artifact(9, '2026-01-07 12:00Z', 1, file => 'hashed.zip');
CALL pg_temp.artifact(10, '2026-01-07 12:00Z', 1, file => NULL);
CALL pg_temp.artifact(11, '2026-01-07 12:00Z', 1, final_path => 'b6/9d/b69d/0a/final.zip');
UPDATE gitlab.p_ci_job_artifacts SET file_location = CASE id WHEN 9 THEN 2 ELSE 1 END;
UPDATE plain.ci_job_artifacts SET file_location = CASE id WHEN 9 THEN 2 ELSE 1 END;
BEGIN;
SET LOCAL timezone = 'Asia/Tokyo';
SELECT rows FROM pg_temp.run();
SELECT rows FROM pg_temp.run(schema => 'plain');
SELECT file, store_dir FROM gitlab.ci_deleted_objects ORDER BY file, store_dir;
SELECT file, store_dir FROM plain.ci_deleted_objects EXCEPT SELECT file, store_dir FROM gitlab.ci_deleted_objects;
ROLLBACK;
TRUNCATE gitlab.p_ci_job_artifacts, plain.ci_job_artifacts;

-- what GitLab gets: paths in UTC, to be picked up when they expired but at most a day ago
CALL pg_temp.artifact(1, '2026-01-07 12:00Z', 1, created_at => '2025-06-01 23:30Z', file => 'one.zip');
CALL pg_temp.artifact(2, '2025-01-01Z', 1, created_at => '2025-06-02 00:30+09', file => 'two.zip', partition_id => 101);
CALL pg_temp.artifact(3, '2026-01-07 00:00Z', 278964, final_path => 'b6/9d/b69d/0a/file', file => 'three.zip');
CALL pg_temp.artifact(4, '2026-01-06 23:59:59Z', 278964, final_path => 'bare', file => NULL);
CALL pg_temp.artifact(5, '2026-01-07 13:00Z', 1, file => NULL, size => 5);
CALL pg_temp.artifact(6, '2026-01-07 13:00Z', 1, file => '', size => NULL, final_path => '');
CALL pg_temp.artifact(7, '2026-01-07 13:00Z', 1, file => 'seven.zip', final_path => '');
BEGIN;
SET LOCAL timezone = 'Asia/Tokyo';
SELECT rows FROM pg_temp.run();
SET LOCAL timezone = 'UTC';
SELECT project_id, file_store, store_dir, file, pick_up_at FROM gitlab.ci_deleted_objects ORDER BY store_dir, file;
SELECT m.payload, m.key FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'ci_artifact_statistics' ORDER BY m.payload -> 'project_id';
-- two batches, a message for each project of each
ROLLBACK;
BEGIN;
SELECT rows FROM pg_temp.run(size => 3);
SELECT m.payload FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'ci_artifact_statistics' ORDER BY m.message_id, m.payload;
ROLLBACK;
BEGIN;
SELECT rows FROM pg_temp.run(schema => 'plain');
SELECT count(*), count(DISTINCT (store_dir, file)) FROM plain.ci_deleted_objects;
ROLLBACK;

-- projects whose size is being recounted: left out, and nobody stops for them
CREATE TABLE gitlab.project_build_artifacts_size_refreshes (project_id bigint PRIMARY KEY, state smallint NOT NULL DEFAULT 1);
INSERT INTO gitlab.project_build_artifacts_size_refreshes VALUES (1, 2), (278964, 1), (5, 2);
BEGIN;
SELECT batches, rows, deleted FROM pg_temp.run(size => 1);
UPDATE gitlab.project_build_artifacts_size_refreshes SET state = 3 WHERE project_id = 1;
SELECT rows, deleted FROM pg_temp.run();
SELECT rows, deleted FROM pg_temp.run(args => '{"refresh_states": [2]}');
ROLLBACK;
-- one that begins after its artifacts were read
BEGIN;
UPDATE gitlab.project_build_artifacts_size_refreshes SET state = 1;
CREATE FUNCTION pg_temp.begin_refresh() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE gitlab.project_build_artifacts_size_refreshes SET state = 2 WHERE project_id = 1;
	RETURN NULL;
END
$$;
CREATE TRIGGER begin_refresh AFTER DELETE ON gitlab.p_ci_job_artifacts FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.begin_refresh();
SELECT rows, deleted FROM pg_temp.run(size => 1);
UPDATE gitlab.project_build_artifacts_size_refreshes SET state = 1;
ROLLBACK;
DROP TABLE gitlab.project_build_artifacts_size_refreshes;

-- an artifact that cannot be deleted stops nobody
BEGIN;
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'artifact % refuses', old.id;
END
$$;
CREATE TRIGGER refuse BEFORE DELETE ON gitlab.p_ci_job_artifacts FOR EACH ROW WHEN (old.id IN (2, 5, 20)) EXECUTE FUNCTION pg_temp.refuse();
SET LOCAL client_min_messages = error;
SAVEPOINT before;
SELECT * FROM pg_temp.run();
SELECT count(*) FROM gitlab.ci_deleted_objects;
ROLLBACK TO before;
SELECT rows, deleted, detail FROM pg_temp.run(3, 1);
ROLLBACK TO before;
SET LOCAL client_min_messages = warning;
SELECT rows FROM pg_temp.run();
ROLLBACK TO before;
-- it is named, and not one that has its place in another partition
SET LOCAL client_min_messages = warning;
CALL pg_temp.artifact(20, '2025-12-01Z', partition_id => 102);
CALL pg_temp.artifact(19, '2025-12-01Z', partition_id => 102);
SELECT ctid, array_agg(id ORDER BY id) FROM gitlab.p_ci_job_artifacts WHERE ctid = (SELECT ctid FROM gitlab.p_ci_job_artifacts WHERE id = 20) GROUP BY 1;
SELECT sweep_gitlab.delete_artifacts(ROW(100, NULL, '{"schema": "gitlab"}', '2026-01-08Z', 0, 1, NULL, 1)::sweep.batch, 0, 1, 102,
	ARRAY(SELECT ctid FROM gitlab.p_ci_job_artifacts WHERE id = 20), '{}', false);
ROLLBACK TO before;
-- lists in which nothing can be deleted are a batch after some time; here at once
DO $do$
BEGIN
	EXECUTE replace(pg_get_functiondef('sweep_gitlab.ci_bulk_delete_expired_job_artifacts(sweep.batch)'::regprocedure), $$'10 s'$$, $$'0'$$);
END
$do$;
DROP TRIGGER refuse ON gitlab.p_ci_job_artifacts;
CREATE TRIGGER refuse BEFORE DELETE ON gitlab.p_ci_job_artifacts FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse();
SELECT batches, rows, deleted, detail FROM pg_temp.run(size => 2);
ROLLBACK;
-- an error that is not the artifact's fails the run; the others are counted
BEGIN;
CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = current_setting('sweep_test.state'), MESSAGE = current_setting('sweep_test.state');
END
$$;
CREATE TRIGGER fail BEFORE DELETE ON gitlab.p_ci_job_artifacts FOR EACH ROW WHEN (old.id = 5) EXECUTE FUNCTION pg_temp.fail();
CREATE FUNCTION pg_temp.fail_with(state text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	outcome text;
BEGIN
	PERFORM set_config('sweep_test.state', state, true);
	SELECT concat_ws(' ', rows, detail) INTO outcome FROM pg_temp.run();
	RAISE SQLSTATE 'ZZZZZ';
EXCEPTION
	WHEN SQLSTATE 'ZZZZZ' THEN RETURN outcome;
	WHEN OTHERS THEN RETURN 'failed with ' || SQLSTATE;
END
$$;
SET LOCAL client_min_messages = error;
SELECT state, pg_temp.fail_with(state) FROM unnest('{25006,40001,42501,53100,57P03,58030,XX001,23503,55P03,P0001,ZZ042}'::text[]) AS state;
ROLLBACK;

-- as a role with the rights that doc/gitlab.md names, and no others
CREATE ROLE regress_sweep_artifacts;
GRANT sweep_user TO regress_sweep_artifacts;
GRANT USAGE ON SCHEMA gitlab TO regress_sweep_artifacts;
GRANT SELECT, DELETE ON gitlab.p_ci_job_artifacts TO regress_sweep_artifacts;
GRANT INSERT ON gitlab.ci_deleted_objects TO regress_sweep_artifacts;
GRANT USAGE ON SEQUENCE gitlab.ci_deleted_objects_id_seq TO regress_sweep_artifacts;
BEGIN;
SELECT sweep.drop_queue('ci_artifact_statistics');
SET LOCAL ROLE regress_sweep_artifacts;
SELECT sweep.create_queue('ci_artifact_statistics');
SELECT rows FROM sweep_gitlab.ci_bulk_delete_expired_job_artifacts(ROW(4, NULL, '{"schema": "gitlab", "table": "p_ci_job_artifacts", "refresh_states": [2]}',
	'2026-01-08Z', 0, 1, NULL, 1)::sweep.batch);
SELECT rows FROM sweep_gitlab.ci_bulk_delete_expired_job_artifacts(ROW(4, '{}', '{"schema": "gitlab", "table": "p_ci_job_artifacts", "refresh_states": [2]}',
	'2026-01-08Z', 0, 1, NULL, 1)::sweep.batch);
-- its lists are its own, and are reached through the functions only
SELECT count(*) FROM sweep_gitlab.artifact_list;
ROLLBACK;
DROP OWNED BY regress_sweep_artifacts;
DROP ROLE regress_sweep_artifacts;

-- without the table for the files nothing is deleted
BEGIN;
ALTER TABLE gitlab.ci_deleted_objects RENAME TO elsewhere;
SAVEPOINT before;
SELECT * FROM pg_temp.run();
ROLLBACK TO before;
SELECT count(*) FROM gitlab.p_ci_job_artifacts;
ROLLBACK;
TRUNCATE gitlab.p_ci_job_artifacts, plain.ci_job_artifacts;

-- all at one moment: read together, deleted in batches
INSERT INTO gitlab.p_ci_job_artifacts (id, job_id, project_id, file_type, locked, partition_id, created_at, updated_at, expire_at, file)
	SELECT i, i, 1, 1, 0, 100 + i % 3, '2025-06-01Z', '2025-06-01Z', '2026-01-01Z', 'a.zip' FROM generate_series(1, 3000) AS i;
BEGIN;
SELECT bucket, batches, rows FROM pg_temp.run(5, 50);
SELECT count(*), count(DISTINCT store_dir) FROM gitlab.ci_deleted_objects;
ROLLBACK;
-- but not without end: a thousand batches for each bucket, and the next pass reads what is left
BEGIN;
CREATE FUNCTION pg_temp.pass(buckets int, for_all boolean) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
	batch sweep.batch := ROW(1, NULL, '{"schema": "gitlab", "table": "p_ci_job_artifacts"}', '2026-01-08Z', 0, buckets, NULL, 1);
	read record;
BEGIN
	LOOP
		read := sweep_gitlab.read_artifacts(batch, 0, buckets, '-infinity', for_all, '{}');
		EXIT WHEN read.next_from IS NULL;
		DELETE FROM gitlab.p_ci_job_artifacts a USING unnest(read.partition_of, read.place_of) AS r (partition_id, place)
			WHERE a.partition_id = r.partition_id AND a.ctid = r.place;
		RETURN NEXT cardinality(read.place_of);
	END LOOP;
END
$$;
SAVEPOINT s;
SELECT * FROM pg_temp.pass(1, true);
ROLLBACK TO s;
SELECT * FROM pg_temp.pass(2, true);
ROLLBACK TO s;
SELECT * FROM pg_temp.pass(2, false);
ROLLBACK;

-- five shares read as much as one, and not five times as much
UPDATE gitlab.p_ci_job_artifacts SET expire_at = expire_at - id * interval '1 s';
VACUUM ANALYZE gitlab.p_ci_job_artifacts;
-- ten batches for each share that it reads for
SELECT for_all, cardinality(r.place_of), count(*) FILTER (WHERE in_bucket = 1) AS of_share_1
	FROM (VALUES (true), (false)) AS v (for_all),
		sweep_gitlab.read_artifacts(ROW(2, NULL, '{"schema": "gitlab"}', '2026-01-08Z', 1, 5, NULL, 1)::sweep.batch, 1, 5, '-infinity', for_all, '{}') AS r,
		unnest(r.bucket_of) AS in_bucket
	GROUP BY 1, 2 ORDER BY 1;
-- a share reads for itself while 2,000 lists wait: from where all have come or it has, and not at the end of a batch
BEGIN;
CREATE FUNCTION pg_temp.read_on(wait boolean, INOUT own_from timestamptz, after bigint DEFAULT NULL, OUT listed boolean, OUT lists bigint, OUT of_others bigint) LANGUAGE plpgsql AS $$
DECLARE
	last_list bigint := coalesce((SELECT max(list_id) FROM sweep_gitlab.artifact_list), 0);
BEGIN
	SELECT r.own_from, r.listed INTO own_from, listed
		FROM sweep_gitlab.read_on(ROW(5, NULL, '{"schema": "gitlab", "table": "p_ci_job_artifacts"}', '2026-01-08Z', 1, 5, NULL, 1)::sweep.batch,
			'gitlab.p_ci_job_artifacts'::regclass, 1, 5, '{}', coalesce(after, last_list), false, wait, own_from) AS r;
	SELECT count(*), count(*) FILTER (WHERE bucket <> 1) INTO lists, of_others FROM sweep_gitlab.artifact_list WHERE list_id > last_list;
END
$$;
SELECT sweep_gitlab.start_reading('gitlab.p_ci_job_artifacts'::regclass, 5, 1, 0, true, true) ->> 'for';
SELECT sweep_gitlab.list_artifacts('gitlab.p_ci_job_artifacts'::regclass, 5, 1, '2025-12-31 23:20Z', true,
	array_fill(3, ARRAY[2000]), array_fill(100::bigint, ARRAY[2000]), array_fill('(0,1)'::tid, ARRAY[2000]));
SELECT * FROM pg_temp.read_on(false, '-infinity');
SELECT * FROM pg_temp.read_on(true, '-infinity');
SELECT * FROM pg_temp.read_on(true, '2025-12-31 23:40Z');
SELECT * FROM pg_temp.read_on(true, '2026-01-07Z');
SELECT * FROM pg_temp.read_on(true, '-infinity', after => 0);
DELETE FROM sweep_gitlab.artifact_list;
SELECT * FROM pg_temp.read_on(true, '2025-12-31 23:40Z');
SELECT read_from FROM sweep_gitlab.artifact_position WHERE table_id = 'gitlab.p_ci_job_artifacts'::regclass AND buckets = 5;
ROLLBACK;
-- a list that was passed by is left to the next run, unless the share has read for itself: then it may have been listed since
BEGIN;
CREATE FUNCTION pg_temp.go_on(expire_at timestamptz) RETURNS bigint LANGUAGE sql AS $$
	SELECT rows FROM sweep_gitlab.ci_bulk_delete_expired_job_artifacts(ROW(5,
		jsonb_build_object('list', (SELECT max(list_id) FROM sweep_gitlab.artifact_list), 'expire_at', expire_at),
		'{"schema": "gitlab", "table": "p_ci_job_artifacts", "refresh_states": []}', '2026-01-08Z', 1, 5, NULL, 1)::sweep.batch)
$$;
SELECT sweep_gitlab.start_reading('gitlab.p_ci_job_artifacts'::regclass, 5, 1, 0, true, true) ->> 'for';
SELECT sweep_gitlab.list_artifacts('gitlab.p_ci_job_artifacts'::regclass, 5, 1, '2026-01-07Z', true, ARRAY[1], array_agg(partition_id), array_agg(ctid))
	FROM gitlab.p_ci_job_artifacts WHERE id = 5;
SELECT pg_temp.go_on('-infinity');
SELECT sweep_gitlab.list_artifacts('gitlab.p_ci_job_artifacts'::regclass, 5, 1, '2026-01-07Z', true,
	array_fill(3, ARRAY[2000]), array_fill(100::bigint, ARRAY[2000]), array_fill('(0,1)'::tid, ARRAY[2000]));
SELECT pg_temp.go_on('2026-01-07Z');
ROLLBACK;
CREATE FUNCTION pg_temp.fetched() RETURNS bigint
	LANGUAGE sql AS $$
	SELECT sum(idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE schemaname = 'gitlab_partitions_dynamic' AND relname LIKE 'ci\_job\_artifacts%'
$$;
CREATE FUNCTION pg_temp.read(buckets int) RETURNS TABLE (deleted bigint, once boolean)
	LANGUAGE plpgsql AS $$
DECLARE
	batch sweep.batch := ROW(20, NULL, '{"refresh_states": [], "schema": "gitlab", "table": "p_ci_job_artifacts"}', '2026-01-08Z', NULL, buckets, NULL, 1);
	cursors jsonb[] := array_fill(NULL::jsonb, ARRAY[buckets]);
	progress sweep.progress;
	before bigint := pg_temp.fetched();
BEGIN
	deleted := 0;
	FOR n IN 1 .. 200 LOOP
		FOR bucket IN 1 .. buckets LOOP
			batch.bucket := bucket - 1;
			batch.cursor := cursors[bucket];
			progress := sweep_gitlab.ci_bulk_delete_expired_job_artifacts(batch);
			cursors[bucket] := progress.cursor;
			deleted := deleted + progress.rows;
		END LOOP;
		EXIT WHEN deleted = 3000;
	END LOOP;
	once := pg_temp.fetched() - before BETWEEN 3000 AND 3300;
	RETURN NEXT;
END
$$;
BEGIN;
SELECT * FROM pg_temp.read(1);
ROLLBACK;
BEGIN;
SELECT * FROM pg_temp.read(5);
ROLLBACK;
BEGIN;
SELECT * FROM pg_temp.read(10);
ROLLBACK;

DROP SCHEMA gitlab, gitlab_partitions_dynamic, plain CASCADE;
SELECT sweep.drop_queue('ci_artifact_statistics');
