-- ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: what they pick, what they write, what
-- becomes of builds that refuse.
\set ECHO none
\i gitlab/test/include/gitlab.sql
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 900000, false);
SELECT * FROM sweep_gitlab.install('gitlab', paused => true) WHERE job LIKE 'ci\_stuck%';
\x on
SELECT name, pick, step, rescue, args, transaction, row_retries, batch_size, max_batches, max_rows, lock_key, timeout, schedule, timezone, on_start
	FROM sweep.job WHERE name LIKE 'ci\_stuck%' ORDER BY name;
\x off

CREATE PROCEDURE pg_temp.build(id bigint, status text, created_at timestamp, updated_at timestamp DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL,
		type text DEFAULT 'Ci::Build', project_id bigint DEFAULT 1, retried boolean DEFAULT NULL, finished_at timestamp DEFAULT NULL)
	LANGUAGE sql AS $$
	INSERT INTO gitlab.p_ci_builds (id, partition_id, status, created_at, updated_at, scheduled_at, type, project_id, retried, finished_at, commit_id, runner_id, lock_version)
		VALUES (id, 100 + id % 3, status, created_at, updated_at, scheduled_at, type, project_id, retried, finished_at, 1000 + id, id * 10, 5);
$$;
-- a run at a fixed moment, and how it ended
CREATE PROCEDURE pg_temp.run(name text, args jsonb DEFAULT '{}')
	LANGUAGE plpgsql AS $$
BEGIN
	CALL sweep.run('ci_stuck_' || name, '{"as_of": "2026-01-01T00:00:00Z"}' || args);
END
$$;
CREATE VIEW pg_temp.last_run AS
	SELECT status, stop_reason, rows, batches, rescued, quarantined, detail, error FROM sweep.runs ORDER BY run_id DESC LIMIT 1;
CREATE VIEW pg_temp.pipeline AS
	SELECT m.* FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'ci_pipeline_process';
CREATE VIEW pg_temp.finished AS
	SELECT m.* FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'ci_build_finished';
CREATE VIEW pg_temp.sent AS
	SELECT string_agg(format('%s:%s', m.key, m.payload), ' ' ORDER BY m.message_id) FROM pg_temp.pipeline m;
-- what a job picks at that moment, in the batches of that size
CREATE FUNCTION pg_temp.picked(name text, size int DEFAULT 100, as_of timestamptz DEFAULT '2026-01-01T00:00:00Z') RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	job sweep.job_definition := (SELECT j FROM sweep.job_definition j WHERE j.name = 'ci_stuck_' || picked.name);
	items jsonb[];
	ids text;
BEGIN
	FOR nth IN 1 .. 50 LOOP
		EXECUTE format('SELECT array_agg(i) FROM %s($1) AS i', job.pick) INTO items
			USING ROW(size, items[cardinality(items)], job.args, as_of, NULL, NULL, NULL, 1)::sweep.batch;
		EXIT WHEN items IS NULL;
		ids := concat_ws(' | ', ids, (SELECT string_agg(item ->> 'id', ' ') FROM unnest(items) AS item));
	END LOOP;
	RETURN ids;
END
$$;

\pset format csv
-- nothing there
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;

-- a microsecond longer ago than the bound, at it, a microsecond less, far beyond, never: the last digit of the id says created_at, the one
-- before updated_at and scheduled_at, those before the status; and as many of other types
INSERT INTO gitlab.p_ci_builds (id, partition_id, status, type, created_at, updated_at, scheduled_at, project_id, commit_id, lock_version)
	SELECT s.n * 100 + u.n * 10 + c.n, 100 + (u.n + c.n) % 3, s.status, 'Ci::Build', '2025-12-31 23:00'::timestamp + c.ago, '2025-12-31 23:00'::timestamp + u.ago, '2025-12-31 23:00Z'::timestamptz + u.ago, 1, 1, 0
	FROM (VALUES (1, 'pending'), (2, 'running'), (3, 'scheduled'), (4, 'canceling'), (5, 'created'), (6, 'success'), (7, 'failed'), (8, 'canceled'),
			(9, 'skipped'), (10, 'manual'), (11, 'preparing'), (12, 'waiting_for_resource'), (13, 'waiting_for_callback')) AS s (n, status),
		(VALUES (0, '-1 us'::interval), (1, '0'), (2, '1 us'), (3, '-30 days'), (4, NULL), (5, '-23 hours -1 us'), (6, '-23 hours'), (7, '-22 hours -59 min')) AS u (n, ago),
		(VALUES (0, '-1 us'::interval), (1, '0'), (2, '1 us'), (3, '-30 days'), (4, NULL), (5, '-23 hours -1 us'), (6, '-23 hours'), (7, '-22 hours -59 min')) AS c (n, ago);

INSERT INTO gitlab.p_ci_builds (id, partition_id, status, type, created_at, updated_at, scheduled_at, project_id, commit_id, lock_version)
	SELECT p.id + t.n, p.partition_id, p.status, t.type, p.created_at, p.updated_at, p.scheduled_at, 1, 1, 0
	FROM gitlab.p_ci_builds p, (VALUES (10000, 'Ci::Bridge'), (20000, 'GenericCommitStatus'), (30000, NULL)) AS t (n, type);
-- pending: created and updated 24 hours ago, so that a manual job of last week that became pending a moment ago is left alone
SELECT pg_temp.picked('jobs') AS pending;
SELECT pg_temp.picked('builds_drop_running') AS running;
SELECT pg_temp.picked('builds_drop_scheduled') AS scheduled;
SELECT pg_temp.picked('builds_drop_canceling') AS canceling;
-- a microsecond later, those at the bound as well
SELECT pg_temp.picked('builds_drop_canceling', as_of => '2026-01-01T00:00:00.000001Z') AS canceling;
-- the same whatever the batch size, in every time zone and date style
CREATE TABLE pg_temp.everything AS
	SELECT name, pg_temp.picked(name, 1000) AS ids FROM unnest('{jobs,builds_drop_running,builds_drop_scheduled,builds_drop_canceling}'::text[]) AS name;
SELECT name, count(*) AS sizes, bool_and(replace(pg_temp.picked(name, size), ' | ', ' ') = ids) AS same
	FROM pg_temp.everything, unnest('{1,2,3,7}'::int[]) AS size GROUP BY name ORDER BY name;
SET timezone = 'Asia/Tokyo';
SET datestyle = 'SQL, DMY';
SELECT name, pg_temp.picked(name, 1000) = ids AS same FROM pg_temp.everything ORDER BY name;
SET timezone = 'America/St_Johns';
SET datestyle = 'German';
SELECT name, replace(pg_temp.picked(name, 1), ' | ', ' ') = ids AS same FROM pg_temp.everything ORDER BY name;

-- runs, each in another time zone: as many as were picked, and nothing else is touched
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE TABLE pg_temp.before AS SELECT p.id, p::text AS line FROM gitlab.p_ci_builds p;
SET timezone = 'America/St_Johns';
SET datestyle = 'German';
CALL pg_temp.run('jobs');
SELECT status, stop_reason, rows, batches FROM pg_temp.last_run;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CALL pg_temp.run('builds_drop_running', '{"note": 1}');
SELECT status, stop_reason, rows, batches FROM pg_temp.last_run;
SET timezone = 'Asia/Tokyo';
CALL pg_temp.run('builds_drop_scheduled');
SELECT status, stop_reason, rows, batches FROM pg_temp.last_run;
CALL pg_temp.run('builds_drop_canceling');
SELECT status, stop_reason, rows, batches FROM pg_temp.last_run;
SET timezone = 'UTC';
SELECT (SELECT string_agg(p.id::text, ' ' ORDER BY p.id) FROM gitlab.p_ci_builds p JOIN pg_temp.before b USING (id) WHERE p::text <> b.line)
	= (SELECT string_agg(id, ' ' ORDER BY id::bigint) FROM pg_temp.everything, regexp_split_to_table(ids, '[ |]+') AS id) AS those_picked_and_no_others;
SELECT id / 100 AS hundred, status, failure_reason, finished_at, updated_at, lock_version, processed, count(*) FROM gitlab.p_ci_builds p JOIN pg_temp.before b USING (id)
	WHERE p::text <> b.line GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1;
TABLE pg_temp.sent;
TRUNCATE gitlab.p_ci_builds;
DELETE FROM sweep.queue_message;

-- the order: created_at, project, id, each once; builds that have no created_at last, where that does not matter
CALL pg_temp.build(11, 'running', '2025-12-03', '2025-12-03');
CALL pg_temp.build(12, 'running', '2025-12-02', '2025-12-03', project_id => 7);
CALL pg_temp.build(16, 'running', '2025-12-02', '2025-12-03', project_id => 3);
CALL pg_temp.build(14, 'running', '2025-12-02', '2025-12-03', project_id => 3);
CALL pg_temp.build(15, 'running', '2025-12-02', '2025-12-03', project_id => 3);
CALL pg_temp.build(13, 'running', '-infinity', '2025-12-03');
CALL pg_temp.build(19, 'running', NULL, '2025-12-03');
CALL pg_temp.build(18, 'running', NULL, '2025-12-03');
CALL pg_temp.build(17, 'running', NULL, '2025-12-03', project_id => 2);
SELECT size, pg_temp.picked('builds_drop_running', size) FROM unnest('{1,2,3,7,100}'::int[]) AS size;
SELECT jsonb_pretty(i) FROM sweep_gitlab.pick_stuck_builds(ROW(1, NULL, (SELECT args FROM sweep.job WHERE name = 'ci_stuck_builds_drop_running'),
	'2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch) AS i;
TRUNCATE gitlab.p_ci_builds;

-- many of one project and one moment, others of the project between them: the same order, and no batch reads all of them
INSERT INTO gitlab.p_ci_builds (id, partition_id, status, type, created_at, updated_at, project_id, lock_version)
	SELECT i, 100 + i % 3, CASE WHEN i % 9 = 0 THEN 'success' ELSE 'canceling' END, 'Ci::Build', '2025-12-02', CASE WHEN i % 7 > 0 THEN '2025-12-02' ELSE '2026-01-01' END::timestamp,
		7, 0 FROM generate_series(1, 2000) AS i;
CALL pg_temp.build(3001, 'canceling', '2025-12-02', '2025-12-02', project_id => 6);
CALL pg_temp.build(3002, 'canceling', '2025-12-02', '2025-12-02', project_id => 8);
CALL pg_temp.build(3003, 'canceling', '2025-12-01', '2025-12-02', project_id => 7);
CALL pg_temp.build(3004, 'canceling', '2025-12-03', '2025-12-02', project_id => 7);
INSERT INTO gitlab.p_ci_builds (id, partition_id, status, type, created_at, updated_at, project_id, lock_version) VALUES (1000, 100, 'canceling', 'Ci::Build', '2025-12-02', '2025-12-02', 8, 0);
ANALYZE gitlab.p_ci_builds;
SELECT size, replace(pg_temp.picked('builds_drop_canceling', size), ' | ', ' ') = concat_ws(' ', 3003, 3001,
		(SELECT string_agg(i::text, ' ') FROM generate_series(1, 2000) AS i WHERE i % 9 > 0 AND i % 7 > 0), 1000, 3002, 3004) AS right_order
	FROM unnest('{40,100,2000}'::int[]) AS size;
CREATE FUNCTION pg_temp.builds_read() RETURNS bigint LANGUAGE sql VOLATILE AS $$
	SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables
		WHERE relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'gitlab.p_ci_builds'::regclass)
$$;
BEGIN;
SELECT pg_temp.builds_read() AS read_before \gset
SELECT length(pg_temp.picked('builds_drop_canceling', 40)) > 0 AS picked;
SELECT pg_temp.builds_read() - :read_before < 30000 AS few;
COMMIT;
TRUNCATE gitlab.p_ci_builds;

-- the effect: processed says that the pipeline has to look, but not at a build that was retried; one message per pipeline
CALL pg_temp.build(1, 'canceling', '2025-12-01', '2025-12-01', retried => true);
CALL pg_temp.build(2, 'canceling', '2025-12-02', '2025-12-01', retried => false);
CALL pg_temp.build(3, 'canceling', '2025-12-03', '2025-12-01', finished_at => '2025-12-05');
CALL pg_temp.build(4, 'canceling', '2025-12-04', '2025-12-01');
UPDATE gitlab.p_ci_builds SET commit_id = 1001 WHERE id = 2;
UPDATE gitlab.p_ci_builds SET commit_id = NULL WHERE id = 4;
INSERT INTO gitlab.ci_pending_builds (build_id, project_id, partition_id) VALUES (3, 1, 100);
CALL pg_temp.run('builds_drop_canceling');
SELECT id, status, failure_reason, finished_at, updated_at, lock_version, processed, retried, runner_id FROM gitlab.p_ci_builds ORDER BY id;
TABLE pg_temp.sent;
SELECT count(*) FROM gitlab.ci_pending_builds;
-- a second run finds nothing
CALL pg_temp.run('builds_drop_canceling');
SELECT rows, batches FROM pg_temp.last_run;
TRUNCATE gitlab.p_ci_builds, gitlab.ci_pending_builds;
DELETE FROM sweep.queue_message;

-- every number is an arg; with another final status the reason stays as it is
CALL pg_temp.build(1, 'canceling', '2025-12-31 23:20', '2025-12-31 23:20');
CALL pg_temp.build(2, 'canceling', '2025-12-31 23:40', '2025-12-31 23:20');
UPDATE gitlab.p_ci_builds SET failure_reason = 28;
CALL pg_temp.run('builds_drop_canceling', '{"created_older_than": "30 min", "updated_older_than": "30 min", "final_status": "canceled"}');
SELECT id, status, failure_reason, finished_at FROM gitlab.p_ci_builds ORDER BY id;
CALL pg_temp.run('builds_drop_canceling', '{"created_older_than": "10 min", "updated_older_than": "10 min", "failure_reason": 29}');
SELECT id, status, failure_reason, finished_at FROM gitlab.p_ci_builds ORDER BY id;
TABLE pg_temp.sent;
CALL pg_temp.run('builds_drop_canceling', '{"status": null}');
SELECT rows, split_part(error, E'\n', 1) AS error FROM pg_temp.last_run;
TRUNCATE gitlab.p_ci_builds;
DELETE FROM sweep.queue_message;

-- numbers and moments at the ends of their range: the version begins anew, one that was created at infinity is picked in its turn
CALL pg_temp.build(1, 'running', '2025-12-01', '2025-12-01');
CALL pg_temp.build(2, 'running', '-infinity', '-infinity');
CALL pg_temp.build(3, 'running', 'infinity', '2025-12-01');
CALL pg_temp.build(4, 'running', 'infinity', '2025-12-01');
CALL pg_temp.build(5, 'running', NULL, '2025-12-01');
CALL pg_temp.build(6, 'running', NULL, '2025-12-01', project_id => 2);
CALL pg_temp.build(7, 'running', '2025-12-01', 'infinity');
CALL pg_temp.build(8, 'running', '2025-12-01', '2025-12-01', project_id => -9223372036854775808);
CALL pg_temp.build(9, 'running', '2025-12-01', '2025-12-01', project_id => 9223372036854775807);
CALL pg_temp.build(10, 'running', 'infinity', '2025-12-01', project_id => 3);
UPDATE gitlab.p_ci_builds SET lock_version = 2147483647 WHERE id IN (1, 3);
UPDATE gitlab.p_ci_builds SET lock_version = -1 WHERE id = 2;
SELECT size, pg_temp.picked('builds_drop_running', size) FROM unnest('{1,2,3,100}'::int[]) AS size;
CALL pg_temp.run('builds_drop_running');
SELECT rows, rescued, quarantined FROM pg_temp.last_run;
SELECT id, status, lock_version FROM gitlab.p_ci_builds ORDER BY id;
-- in batches, and doomed
UPDATE gitlab.p_ci_builds SET status = 'running', updated_at = '2025-12-01', lock_version = 2147483647 WHERE id = 1;
SELECT sweep_gitlab.drop_stuck_builds(ROW(2, NULL, j.args, '2026-01-01Z', NULL, NULL,
		ARRAY['{"id": 1, "partition_id": 101, "lock_version": 2147483647}', '{"id": 2, "partition_id": 102, "lock_version": 0}'::jsonb], 1)::sweep.batch)
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running';
SELECT status, failure_reason, lock_version FROM gitlab.p_ci_builds WHERE id = 1;
UPDATE gitlab.p_ci_builds SET status = 'running', updated_at = '2025-12-01', lock_version = 2147483647 WHERE id = 1;
SELECT sweep_gitlab.doom_stuck_build(ROW(1, NULL, j.args, '2026-01-01Z', NULL, NULL, ARRAY['{"id": 1, "partition_id": 101}'::jsonb], 1)::sweep.batch, '{}')
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running';
SELECT status, failure_reason, lock_version FROM gitlab.p_ci_builds WHERE id = 1;
TRUNCATE gitlab.p_ci_builds;
DELETE FROM sweep.queue_message;

-- the key of a build has its partition: those that share an id are picked, written and tried again each by itself
INSERT INTO gitlab.p_ci_builds (id, partition_id, status, type, created_at, updated_at, project_id, commit_id, lock_version)
	SELECT i, p, 'running', 'Ci::Build', CASE WHEN i < 3 THEN '2025-12-01'::timestamp END, '2025-12-01', 1, i * 1000 + p, 0 FROM generate_series(1, 4) AS i, generate_series(100, 102) AS p;
CREATE FUNCTION pg_temp.picked_keys(size int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	job sweep.job := (SELECT j FROM sweep.job j WHERE j.name = 'ci_stuck_builds_drop_running');
	items jsonb[];
	keys text;
BEGIN
	FOR nth IN 1 .. 20 LOOP
		items := ARRAY(SELECT i FROM sweep_gitlab.pick_stuck_builds(ROW(size, items[cardinality(items)], job.args, '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch) AS i);
		EXIT WHEN items = '{}';
		keys := concat_ws(' | ', keys, (SELECT string_agg(format('%s/%s', item ->> 'id', item ->> 'partition_id'), ' ') FROM unnest(items) AS item));
	END LOOP;
	RETURN keys;
END
$$;
SELECT size, pg_temp.picked_keys(size) FROM unnest('{1,2,3,5,100}'::int[]) AS size;
-- one of two has changed since: it is tried again, and no other
UPDATE gitlab.p_ci_builds SET lock_version = 7 WHERE id = 1 AND partition_id = 102;
SELECT sweep_gitlab.drop_stuck_builds(ROW(2, NULL, j.args, '2026-01-01Z', NULL, NULL, ARRAY['{"id": 1, "partition_id": 100, "lock_version": 0}',
		'{"id": 1, "partition_id": 102, "lock_version": 0}'::jsonb], 1)::sweep.batch) FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running';
SELECT partition_id, status, lock_version FROM gitlab.p_ci_builds WHERE id = 1 ORDER BY 1;
CALL pg_temp.run('builds_drop_running');
SELECT rows, rescued, quarantined FROM pg_temp.last_run;
SELECT status, count(*) FROM gitlab.p_ci_builds GROUP BY 1;
TRUNCATE gitlab.p_ci_builds;
-- so many of one moment and project that they are walked along by id
INSERT INTO gitlab.p_ci_builds (id, partition_id, status, type, created_at, updated_at, project_id, lock_version)
	SELECT i, p, 'running', 'Ci::Build', '2025-12-01', '2025-12-01', 1, 0 FROM generate_series(1, 8) AS i, generate_series(100, 102) AS p;
SELECT pg_temp.picked_keys(2);
TRUNCATE gitlab.p_ci_builds;
DELETE FROM sweep.queue_message;

-- ------------------------------------------------------------------ builds that refuse
-- 2,000 stuck builds in three partitions among as many others; 50 refuse to be dropped, 20 of these to be doomed as well
CREATE TABLE gitlab.touched (id bigint);
CREATE FUNCTION gitlab.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.id % 40 = 0 AND (NEW.failure_reason IS DISTINCT FROM 12 OR NEW.id / 40 % 5 < 2) THEN
		RAISE EXCEPTION 'build % refuses', NEW.id USING ERRCODE = 'check_violation', HINT = 'Ask again later.';
	END IF;
	INSERT INTO gitlab.touched VALUES (NEW.id);
	RETURN NEW;
END
$$;
CREATE PROCEDURE pg_temp.fill() LANGUAGE sql AS $$
	TRUNCATE gitlab.p_ci_builds, gitlab.touched, gitlab.ci_pending_builds, gitlab.ci_running_builds;
	DELETE FROM sweep.queue_message;
	INSERT INTO gitlab.p_ci_builds (id, partition_id, type, status, created_at, updated_at, finished_at, project_id, commit_id, runner_id, lock_version)
		SELECT i, 100 + i % 3, 'Ci::Build', CASE WHEN i <= 2000 THEN 'canceling' ELSE (ARRAY['success', 'running', 'pending', 'canceled'])[1 + i % 4] END,
			'2025-12-01'::timestamp - i % 50 * interval '1 hour', '2025-12-02', CASE WHEN i % 80 = 0 THEN '2025-12-03'::timestamp END, i % 10, 5000 + i / 2, i, 3
		FROM generate_series(1, 4000) AS i;
	INSERT INTO gitlab.ci_pending_builds (build_id, project_id, partition_id) SELECT i, 1, 100 + i % 3 FROM generate_series(10, 4000, 10) AS i;
	INSERT INTO gitlab.ci_running_builds (build_id, project_id, partition_id, runner_id, runner_type) SELECT i, 1, 100 + i % 3, 1, 1 FROM generate_series(20, 4000, 20) AS i;
$$;
CREATE VIEW pg_temp.outcome AS
	SELECT status, failure_reason, lock_version, finished_at, updated_at, processed, count(*), min(id), max(id) FROM gitlab.p_ci_builds
		WHERE id <= 2000 GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4;
CALL pg_temp.fill();
CREATE TRIGGER refuse BEFORE UPDATE ON gitlab.p_ci_builds FOR EACH ROW EXECUTE FUNCTION gitlab.refuse();
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;
TABLE pg_temp.outcome;
-- none twice, and none of the others
SELECT count(*), count(DISTINCT id), max(id) FROM gitlab.touched;
SELECT count(*) FROM gitlab.p_ci_builds WHERE id > 2000 AND (lock_version, updated_at) <> (3, '2025-12-02');
-- a message per pipeline that has a build that was dropped or doomed
SELECT count(*), count(DISTINCT key), count(*) FILTER (WHERE payload = jsonb_build_object('pipeline_id', key::bigint)) AS well_formed,
		count(*) FILTER (WHERE EXISTS (SELECT FROM gitlab.p_ci_builds p WHERE p.commit_id = m.key::bigint AND p.id IN (SELECT t.id FROM gitlab.touched t))) AS right_ones
	FROM pg_temp.pipeline m;
-- and one per build
SELECT count(*), count(DISTINCT key), count(*) FILTER (WHERE payload = jsonb_build_object('build_id', key::bigint, 'project_id', key::bigint % 10)) AS well_formed,
		count(*) FILTER (WHERE key::bigint IN (SELECT t.id FROM gitlab.touched t)) AS right_ones
	FROM pg_temp.finished m;
-- those dropped or doomed have left the queues of the runners, nobody else has
SELECT count(*), count(*) FILTER (WHERE build_id IN (SELECT t.id FROM gitlab.touched t)) AS ended FROM gitlab.ci_pending_builds;
SELECT count(*), count(*) FILTER (WHERE build_id IN (SELECT t.id FROM gitlab.touched t)) AS ended FROM gitlab.ci_running_builds;
-- the others are in quarantine with their error, and still as they were
SELECT count(*), count(DISTINCT item ->> 'id') AS builds, sqlstate, regexp_replace(split_part(message, E'\n', 1), '\d+', 'n') AS message, attempts, next_try > last_at AS later
	FROM sweep.quarantine GROUP BY 3, 4, 5, 6;
-- the next run leaves them alone, also when they would not refuse any more
DROP TRIGGER refuse ON gitlab.p_ci_builds;
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;
SELECT sweep.release_quarantine('ci_stuck_builds_drop_canceling');
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;
SELECT count(*) FROM sweep.quarantine;
SELECT status, failure_reason, count(*) FROM gitlab.p_ci_builds WHERE id <= 2000 GROUP BY 1, 2 ORDER BY 2;

-- the same with a transaction for each batch
SELECT sweep.alter_job('ci_stuck_builds_drop_canceling', '{"transaction": "batch"}');
CALL pg_temp.fill();
CREATE TRIGGER refuse BEFORE UPDATE ON gitlab.p_ci_builds FOR EACH ROW EXECUTE FUNCTION gitlab.refuse();
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;
TABLE pg_temp.outcome;
SELECT count(*), count(DISTINCT id), max(id) FROM gitlab.touched;
SELECT count(*), count(DISTINCT key) FROM pg_temp.pipeline;
SELECT count(*), count(DISTINCT key) FROM pg_temp.finished;
SELECT (SELECT count(*) FROM gitlab.ci_pending_builds) AS pending, (SELECT count(*) FROM gitlab.ci_running_builds) AS running;
DROP TRIGGER refuse ON gitlab.p_ci_builds;
DELETE FROM sweep.quarantined_item;
CALL pg_temp.fill();
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;
TABLE pg_temp.outcome;
SELECT count(*), count(DISTINCT key) FROM pg_temp.pipeline;
SELECT count(*), count(DISTINCT key) FROM pg_temp.finished;
SELECT (SELECT count(*) FROM gitlab.ci_pending_builds) AS pending, (SELECT count(*) FROM gitlab.ci_running_builds) AS running;
SELECT sweep.alter_job('ci_stuck_builds_drop_canceling', '{"transaction": "row"}');

-- one that is still stuck each time it is read, and yet cannot be written, is doomed in the end
CALL pg_temp.fill();
DELETE FROM gitlab.p_ci_builds WHERE id > 2;
CREATE FUNCTION gitlab.ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO gitlab.touched VALUES (NEW.id); RETURN NULL; END';
CREATE TRIGGER ignore BEFORE UPDATE ON gitlab.p_ci_builds FOR EACH ROW WHEN (NEW.id = 2 AND NEW.failure_reason = 3) EXECUTE FUNCTION gitlab.ignore();
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;
SELECT id, status, failure_reason, lock_version FROM gitlab.p_ci_builds ORDER BY id;
DROP TRIGGER ignore ON gitlab.p_ci_builds;

-- without its queue nothing is dropped, since nobody would look at the pipelines; and no build is to blame
CALL pg_temp.fill();
DELETE FROM gitlab.p_ci_builds WHERE id > 2;
SELECT sweep.drop_queue('ci_pipeline_process');
CALL pg_temp.run('builds_drop_canceling');
SELECT status, rows, split_part(error, E'\n', 1) AS error FROM pg_temp.last_run;
SELECT id, status, lock_version FROM gitlab.p_ci_builds ORDER BY id;
SELECT count(*) FROM sweep.quarantine;
SELECT sweep.create_queue('ci_pipeline_process');
SELECT sweep.drop_queue('ci_build_finished');
CALL pg_temp.run('builds_drop_canceling');
SELECT status, rows, split_part(error, E'\n', 1) AS error FROM pg_temp.last_run;
SELECT id, status, lock_version FROM gitlab.p_ci_builds ORDER BY id;
SELECT count(*) FROM pg_temp.pipeline;
SELECT sweep.create_queue('ci_build_finished');

-- ------------------------------------------------------------------ other shapes of the tables
-- reasons as names, no queues of runners, an older GitLab's table
CALL pg_temp.fill();
DELETE FROM gitlab.p_ci_builds WHERE id NOT IN (1, 40, 80, 120);
CREATE SCHEMA older;
CREATE TABLE older.ci_builds (LIKE gitlab.p_ci_builds INCLUDING ALL);
ALTER TABLE older.ci_builds ALTER failure_reason TYPE text;
INSERT INTO older.ci_builds SELECT * FROM gitlab.p_ci_builds;
INSERT INTO older.ci_builds (id, partition_id, type, status, scheduled_at, created_at, lock_version, project_id)
	VALUES (200, 100, 'Ci::Build', 'scheduled', '2025-12-01Z', '2025-12-01', 0, 1), (201, 100, 'Ci::Build', 'pending', NULL, '2025-12-01', 0, 1),
		(202, 100, 'Ci::Build', 'running', NULL, NULL, 0, 1);
UPDATE older.ci_builds SET updated_at = '2025-12-01' WHERE id IN (201, 202);
CREATE FUNCTION older.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.id IN (80, 120) AND NEW.failure_reason <> 'data_integrity_failure' OR NEW.id = 40 THEN
		RAISE EXCEPTION 'build % refuses', NEW.id;
	END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER refuse BEFORE UPDATE ON older.ci_builds FOR EACH ROW EXECUTE FUNCTION older.refuse();
SELECT * FROM sweep_gitlab.install('older', paused => true) WHERE job LIKE 'ci\_stuck%';
SELECT name, pick, step, rescue, args ->> 'schema' AS schema, args ->> 'table' AS table FROM sweep.job WHERE name LIKE 'ci\_stuck%' ORDER BY name;
SELECT pg_temp.picked('jobs', 1), pg_temp.picked('builds_drop_running', 1), pg_temp.picked('builds_drop_scheduled', 1), pg_temp.picked('builds_drop_canceling', 1);
CALL pg_temp.run('jobs');
CALL pg_temp.run('builds_drop_running');
CALL pg_temp.run('builds_drop_scheduled');
CALL pg_temp.run('builds_drop_canceling');
TABLE pg_temp.last_run;
SELECT id, status, failure_reason, finished_at, lock_version FROM older.ci_builds ORDER BY id;
SELECT item ->> 'id' AS id, split_part(message, E'\n', 1) AS message FROM sweep.quarantine;
DELETE FROM sweep.quarantined_item;
-- names as character varying, in the partitioned table
DROP VIEW pg_temp.outcome;
ALTER TABLE gitlab.p_ci_builds ALTER failure_reason TYPE varchar;
UPDATE gitlab.p_ci_builds SET status = 'canceling', failure_reason = NULL;
SELECT count(*) FROM sweep_gitlab.install('gitlab', paused => true);
CALL pg_temp.run('builds_drop_canceling', '{"failure_reason_name": "no_updates_canceling"}');
SELECT id, status, failure_reason, lock_version FROM gitlab.p_ci_builds ORDER BY id;
ALTER TABLE gitlab.p_ci_builds ALTER failure_reason TYPE int USING NULL;

-- nothing in the schema of the table is called instead of what the functions mean
CREATE FUNCTION gitlab.evil() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called'; END $$;
CREATE FUNCTION gitlab.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT gitlab.evil()::text $$;
CREATE FUNCTION gitlab.jsonb_build_object(text, bigint) RETURNS jsonb LANGUAGE sql AS $$ SELECT gitlab.evil()::text::jsonb $$;
CREATE FUNCTION gitlab.jsonb_build_object(text, jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT gitlab.evil()::text::jsonb $$;
CREATE FUNCTION gitlab.jsonb_build_object(text, timestamp, text, bigint, text, bigint, text, bigint, text, int) RETURNS jsonb LANGUAGE sql AS $$ SELECT gitlab.evil()::text::jsonb $$;
CREATE FUNCTION gitlab.jsonb_populate_record(gitlab.p_ci_builds, jsonb) RETURNS gitlab.p_ci_builds LANGUAGE sql AS $$ SELECT gitlab.evil()::text::gitlab.p_ci_builds $$;
CREATE FUNCTION gitlab.unnest(jsonb[]) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT gitlab.evil()::text::jsonb $$;
CREATE FUNCTION gitlab.pg_typeof(int) RETURNS regtype LANGUAGE sql AS $$ SELECT gitlab.evil()::text::regtype $$;
CREATE FUNCTION gitlab.evil(varchar, varchar) RETURNS boolean LANGUAGE sql AS $$ SELECT gitlab.evil() IS NULL $$;
CREATE FUNCTION gitlab.evil(jsonb, jsonb) RETURNS text LANGUAGE sql AS $$ SELECT gitlab.evil()::text $$;
CREATE FUNCTION gitlab.evil(bigint[], bigint) RETURNS bigint[] LANGUAGE sql AS $$ SELECT gitlab.evil()::text::bigint[] $$;
CREATE OPERATOR gitlab.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = gitlab.evil);
CREATE OPERATOR gitlab.->> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = gitlab.evil);
CREATE OPERATOR gitlab.-> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = gitlab.evil);
CREATE AGGREGATE gitlab.array_agg(bigint) (SFUNC = gitlab.evil, STYPE = bigint[]);
UPDATE gitlab.p_ci_builds SET status = 'canceling', updated_at = '2025-12-01', failure_reason = NULL;
CREATE TRIGGER refuse BEFORE UPDATE ON gitlab.p_ci_builds FOR EACH ROW EXECUTE FUNCTION gitlab.refuse();
CALL pg_temp.run('builds_drop_canceling');
SELECT rows, rescued, quarantined, error FROM pg_temp.last_run;
SELECT id, status, failure_reason FROM gitlab.p_ci_builds ORDER BY id;
SELECT split_part(message, E'\n', 1) AS message FROM sweep.quarantine;
DELETE FROM sweep.quarantined_item;
DROP TRIGGER refuse ON gitlab.p_ci_builds;
UPDATE gitlab.p_ci_builds SET status = 'canceling', updated_at = '2025-12-01', failure_reason = NULL;
SELECT sweep.alter_job('ci_stuck_builds_drop_canceling', '{"transaction": "batch"}');
CALL pg_temp.run('builds_drop_canceling');
SELECT rows, rescued, quarantined, error FROM pg_temp.last_run;
DROP AGGREGATE gitlab.array_agg(bigint);
DROP OPERATOR gitlab.= (varchar, varchar), gitlab.->> (jsonb, jsonb), gitlab.-> (jsonb, jsonb);

-- one that does not take the change, however often it is read again
UPDATE gitlab.p_ci_builds SET status = 'canceling', updated_at = '2025-12-01', failure_reason = NULL;
CREATE TRIGGER ignore BEFORE UPDATE ON gitlab.p_ci_builds FOR EACH ROW EXECUTE FUNCTION gitlab.ignore();
SELECT sweep_gitlab.drop_stuck_builds(ROW(1, NULL, j.args, '2026-01-01T00:00:00Z', NULL, NULL, ARRAY(
		SELECT i FROM sweep_gitlab.pick_stuck_builds(ROW(1, NULL, j.args, '2026-01-01T00:00:00Z', NULL, NULL, NULL, 1)::sweep.batch) AS i), 1)::sweep.batch)
	FROM sweep.job j WHERE j.name = 'ci_stuck_builds_drop_canceling';

-- by hand: what it needs must be there, and settings are as before
CREATE FUNCTION pg_temp.drop_item(args jsonb, VARIADIC items jsonb[]) RETURNS sweep.progress LANGUAGE sql
	AS $$ SELECT sweep_gitlab.drop_stuck_builds(ROW(1, NULL, args, '2026-01-01T00:00:00Z', NULL, NULL, items, 1)::sweep.batch) $$;
SELECT args FROM sweep.job WHERE name = 'ci_stuck_builds_drop_canceling' \gset
SELECT sweep_gitlab.drop_stuck_builds(ROW(1, NULL, :'args', '2026-01-01T00:00:00Z', NULL, NULL, NULL, 1)::sweep.batch);
SELECT pg_temp.drop_item(NULL, '{}');
SELECT pg_temp.drop_item('{}', '{"id": 40}');
SELECT pg_temp.drop_item(:'args', '{"id": 40, "lock_version": 0}');
SELECT pg_temp.drop_item(:'args', '40');
SELECT pg_temp.drop_item(:'args', '{"id": "40x", "partition_id": 100, "lock_version": 0}');
SELECT pg_temp.drop_item(:'args'::jsonb || '{"table": "builds"}', '{"id": 40}');
SELECT pg_temp.drop_item(:'args'::jsonb || '{"created_older_than": true}', '{"id": 40}');
SELECT pg_temp.drop_item(:'args', VARIADIC '{}');
SHOW search_path;
DROP TRIGGER ignore ON gitlab.p_ci_builds;
-- args that make no sense are no fault of the builds
CALL sweep.run('ci_stuck_builds_drop_canceling', '{"final_status": null}');
SELECT rows, rescued, quarantined, split_part(error, E'\n', 1) AS error FROM pg_temp.last_run;
SELECT id, partition_id, lock_version FROM gitlab.p_ci_builds WHERE id = 40 \gset
SELECT pg_temp.drop_item(:'args', jsonb_build_object('id', :'id', 'partition_id', :'partition_id', 'lock_version', :lock_version));
SELECT pg_temp.drop_item(:'args', jsonb_build_object('id', :id, 'partition_id', :partition_id, 'lock_version', :lock_version));
SELECT status, lock_version - :lock_version AS changes FROM gitlab.p_ci_builds WHERE id = 40;
SHOW search_path;

-- a trigger that drops another build, for another job
UPDATE gitlab.p_ci_builds SET status = CASE id WHEN 40 THEN 'canceling' ELSE 'running' END, updated_at = '2025-12-01';
CREATE FUNCTION gitlab.drop_another() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep_gitlab.drop_stuck_builds(ROW(1, NULL, j.args, '2026-01-01T00:00:00Z', NULL, NULL, ARRAY(
			SELECT i FROM sweep_gitlab.pick_stuck_builds(ROW(1, NULL, j.args, '2026-01-01T00:00:00Z', NULL, NULL, NULL, 1)::sweep.batch) AS i), 1)::sweep.batch)
		FROM sweep.job j WHERE j.name = 'ci_stuck_builds_drop_running';
	RETURN NEW;
END $$;
CREATE TRIGGER drop_another BEFORE UPDATE ON gitlab.p_ci_builds FOR EACH ROW WHEN (OLD.status = 'canceling') EXECUTE FUNCTION gitlab.drop_another();
SELECT id, partition_id, lock_version FROM gitlab.p_ci_builds WHERE id = 40 \gset
-- whose statement must not take the place of the one that is executed: it goes the other way
SET track_functions = 'pl';
BEGIN;
SELECT pg_temp.drop_item(:'args', jsonb_build_object('id', :id, 'partition_id', :partition_id, 'lock_version', :lock_version));
SELECT pg_stat_get_xact_function_calls('sweep_gitlab.drop_stuck_builds_in_batch(sweep.batch)'::regprocedure) AS other_way;
COMMIT;
RESET track_functions;
SELECT status, count(*) FROM gitlab.p_ci_builds GROUP BY status ORDER BY status;
DROP TRIGGER drop_another ON gitlab.p_ci_builds;

-- a rule whose last statement returns nothing
UPDATE gitlab.p_ci_builds SET status = 'canceling', updated_at = '2025-12-01' WHERE id = 40;
SELECT id, partition_id, lock_version FROM gitlab.p_ci_builds WHERE id = 40 \gset
CREATE TABLE gitlab.ruled (n int);
INSERT INTO gitlab.ruled VALUES (1);
CREATE RULE ruled AS ON UPDATE TO gitlab.p_ci_builds DO INSTEAD (UPDATE gitlab.ruled SET n = n + 1 RETURNING OLD.*; UPDATE gitlab.ruled SET n = n + 1);
SELECT pg_temp.drop_item(:'args', jsonb_build_object('id', :id, 'partition_id', :partition_id, 'lock_version', :lock_version));
SELECT n FROM gitlab.ruled;
DROP RULE ruled ON gitlab.p_ci_builds;

-- without the table the run fails, and no build is to blame
DROP TABLE gitlab.p_ci_builds CASCADE;
CALL pg_temp.run('builds_drop_canceling');
SELECT status, rows, split_part(error, E'\n', 1) AS error FROM pg_temp.last_run;
SELECT count(*) FROM sweep.quarantine;
DELETE FROM sweep.queue_message;
SELECT * FROM sweep_gitlab.uninstall() WHERE name LIKE 'ci\_stuck%' OR name IN ('ci_pipeline_process', 'ci_build_finished');
DROP SCHEMA gitlab, gitlab_partitions_dynamic, older CASCADE;
