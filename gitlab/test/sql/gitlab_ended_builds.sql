-- Builds that are ended leave the tables that say who waits for a runner and who has one,
-- whichever job ends them and in whatever way, and those who have to act on it are told.
\set ECHO none
\i gitlab/test/include/gitlab.sql
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 810000, false);
SELECT count(*) FROM sweep_gitlab.install('gitlab', paused => true) WHERE note = 'created';

CREATE PROCEDURE pg_temp.fill(status text) LANGUAGE sql AS $$
	TRUNCATE gitlab.p_ci_builds, gitlab.ci_pending_builds, gitlab.ci_running_builds;
	DELETE FROM sweep.queue_message;
	INSERT INTO gitlab.p_ci_builds (id, partition_id, type, status, created_at, updated_at, scheduled_at, project_id, commit_id, lock_version)
		SELECT i, 100 + i % 3, 'Ci::Build', status, '2025-12-01', '2025-12-01', '2025-12-01Z', 20 + i, 70 + i / 3, 0 FROM generate_series(1, 6) AS i;
	-- not stuck: nothing of it may go; nor of one that only has the same number, in another partition
	UPDATE gitlab.p_ci_builds SET updated_at = '2026-01-01', scheduled_at = '2026-01-01' WHERE id = 6;
	INSERT INTO gitlab.ci_pending_builds (build_id, project_id, partition_id) SELECT i, 20 + i, 100 + i % 3 + (i = 5)::int FROM generate_series(1, 9) AS i;
	INSERT INTO gitlab.ci_running_builds (build_id, project_id, partition_id, runner_id, runner_type)
		SELECT i, 20 + i, 100 + i % 3 - (i = 4)::int, 1, 1 FROM generate_series(1, 9) AS i;
$$;
CREATE PROCEDURE pg_temp.run(job text, args jsonb DEFAULT '{}') LANGUAGE plpgsql AS $$
BEGIN
	CALL sweep.run(job, '{"as_of": "2026-01-01T00:00:00Z"}' || args);
END
$$;
CREATE FUNCTION pg_temp.outcome(OUT builds text, OUT scheduled bigint, OUT pending text, OUT running text, OUT pipelines text, OUT finished text) LANGUAGE sql AS $$
	SELECT (SELECT string_agg(format('%s:%s', id, status), ' ' ORDER BY id) FROM gitlab.p_ci_builds), (SELECT count(scheduled_at) FROM gitlab.p_ci_builds),
		(SELECT string_agg(build_id::text, ' ' ORDER BY build_id) FROM gitlab.ci_pending_builds),
		(SELECT string_agg(build_id::text, ' ' ORDER BY build_id) FROM gitlab.ci_running_builds),
		(SELECT string_agg(format('%s:%s', key, payload), ' ' ORDER BY key) FROM sweep.queue_message JOIN sweep.queue USING (queue_id) WHERE name = 'ci_pipeline_process'),
		(SELECT string_agg(format('%s:%s', key, payload), ' ' ORDER BY key) FROM sweep.queue_message JOIN sweep.queue USING (queue_id) WHERE name = 'ci_build_finished')
$$;
\x on
-- each job, a build at a time
CALL pg_temp.fill('pending');
CALL pg_temp.run('ci_stuck_jobs');
SELECT * FROM pg_temp.outcome();
CALL pg_temp.fill('running');
CALL pg_temp.run('ci_stuck_builds_drop_running');
SELECT * FROM pg_temp.outcome();
CALL pg_temp.fill('scheduled');
CALL pg_temp.run('ci_stuck_builds_drop_scheduled');
SELECT * FROM pg_temp.outcome();
CALL pg_temp.fill('canceling');
CALL pg_temp.run('ci_stuck_builds_drop_canceling', '{"final_status": "canceled"}');
SELECT * FROM pg_temp.outcome();
-- all of a batch in one statement
SELECT sweep.alter_job('ci_stuck_builds_drop_running', '{"transaction": "batch"}');
CALL pg_temp.fill('running');
CALL pg_temp.run('ci_stuck_builds_drop_running');
SELECT * FROM pg_temp.outcome();
SELECT sweep.alter_job('ci_stuck_builds_drop_running', '{"transaction": "row"}');
-- one that has changed since it was picked, and is read again
CALL pg_temp.fill('running');
SELECT sweep_gitlab.drop_stuck_builds(ROW(1, NULL, j.args, '2026-01-01Z', NULL, NULL,
		ARRAY['{"id": 1, "partition_id": 101, "lock_version": 7}'::jsonb], 1)::sweep.batch)
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running';
SELECT * FROM pg_temp.outcome();
-- of two in one partition one has changed
CALL pg_temp.fill('running');
SELECT sweep_gitlab.drop_stuck_builds(ROW(2, NULL, j.args, '2026-01-01Z', NULL, NULL,
		ARRAY['{"id": 1, "partition_id": 101, "lock_version": 7}', '{"id": 4, "partition_id": 101, "lock_version": 0}'::jsonb], 1)::sweep.batch)
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running';
SELECT builds FROM pg_temp.outcome();
-- the rescue leaves what has the same number in another partition, and what is not stuck any more
CALL pg_temp.fill('running');
INSERT INTO gitlab.p_ci_builds (id, partition_id, type, status, created_at, updated_at, project_id, commit_id, lock_version)
	VALUES (1, 100, 'Ci::Build', 'running', '2025-12-01', '2025-12-01', 21, 70, 0);
SELECT string_agg((sweep_gitlab.doom_stuck_build(ROW(1, NULL, j.args, '2026-01-01Z', NULL, NULL, ARRAY[item], 1)::sweep.batch, '{"message": "no"}')).rows::text, ' ') AS doomed
	FROM sweep.job j, unnest(ARRAY['{"id": 1, "partition_id": 101}', '{"id": 6, "partition_id": 100}'::jsonb]) AS item WHERE name = 'ci_stuck_builds_drop_running';
SELECT string_agg(format('%s/%s:%s', id, partition_id, status), ' ' ORDER BY id, partition_id) AS builds FROM gitlab.p_ci_builds WHERE id IN (1, 6);
-- doomed ones
CREATE FUNCTION gitlab.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.failure_reason = 3 THEN RAISE EXCEPTION $$no$$; END IF; RETURN NEW; END';
CREATE TRIGGER refuse BEFORE UPDATE ON gitlab.p_ci_builds FOR EACH ROW EXECUTE FUNCTION gitlab.refuse();
CALL pg_temp.fill('running');
ALTER TABLE gitlab.p_ci_builds DISABLE TRIGGER refuse;
UPDATE gitlab.p_ci_builds SET failure_reason = 1;
ALTER TABLE gitlab.p_ci_builds ENABLE TRIGGER refuse;
CALL pg_temp.run('ci_stuck_builds_drop_running');
SELECT * FROM pg_temp.outcome();
DROP TRIGGER refuse ON gitlab.p_ci_builds;
-- a build that is left alone keeps its rows
CALL pg_temp.fill('running');
UPDATE gitlab.p_ci_builds SET updated_at = '2025-12-31 23:30';
SELECT sweep_gitlab.drop_stuck_builds(ROW(1, NULL, j.args, '2026-01-01Z', NULL, NULL,
		ARRAY['{"id": 1, "partition_id": 101, "lock_version": 0}'::jsonb], 1)::sweep.batch)
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running';
SELECT * FROM pg_temp.outcome();
-- also where the time zone of the session would make it older
UPDATE gitlab.p_ci_builds SET status = 'canceling', created_at = '2025-12-31 23:30', updated_at = '2025-12-01';
SET timezone = 'Asia/Tokyo';
SELECT sweep_gitlab.drop_stuck_builds(ROW(1, NULL, j.args, '2026-01-01Z', NULL, NULL,
		ARRAY['{"id": 1, "partition_id": 101, "lock_version": 0}'::jsonb], 1)::sweep.batch)
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_canceling';
SET timezone = 'UTC';
-- several of which some have no pipeline, or none has; with another final status the reason stays
CALL pg_temp.fill('running');
UPDATE gitlab.p_ci_builds SET failure_reason = 28, commit_id = nullif(commit_id, 70);
SELECT sweep_gitlab.drop_stuck_builds(ROW(2, NULL, j.args || '{"final_status": "canceled"}', '2026-01-01Z', NULL, NULL,
		ARRAY['{"id": 1, "partition_id": 101, "lock_version": 0}', '{"id": 2, "partition_id": 102, "lock_version": 0}'::jsonb], 1)::sweep.batch)
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running';
SELECT sweep_gitlab.follow_builds('gitlab', '{3,5}', '{100,102}', '{23,25}', '{NULL,71}');
SELECT * FROM pg_temp.outcome();
SELECT string_agg(DISTINCT failure_reason::text, ' ') AS reasons FROM gitlab.p_ci_builds;
\x off

-- the tables may be missing, and come and go between two statements of a session
CREATE FUNCTION pg_temp.drop_one(build bigint) RETURNS bigint LANGUAGE sql AS $$
	SELECT (sweep_gitlab.drop_stuck_builds(ROW(1, NULL, j.args, '2026-01-01Z', NULL, NULL,
		ARRAY[jsonb_build_object('id', build, 'partition_id', 100 + build % 3, 'lock_version', 0)], 1)::sweep.batch)).rows
	FROM sweep.job j WHERE name = 'ci_stuck_builds_drop_running'
$$;
CALL pg_temp.fill('running');
SELECT pg_temp.drop_one(1);
ALTER TABLE gitlab.ci_pending_builds RENAME TO elsewhere;
SELECT pg_temp.drop_one(2);
ALTER TABLE gitlab.ci_running_builds RENAME TO elsewhere_too;
SELECT pg_temp.drop_one(3);
ALTER TABLE gitlab.elsewhere RENAME TO ci_pending_builds;
SELECT pg_temp.drop_one(4);
ALTER TABLE gitlab.elsewhere_too RENAME TO ci_running_builds;
SELECT pg_temp.drop_one(5);
SELECT string_agg(build_id::text, ' ' ORDER BY build_id) AS pending FROM gitlab.ci_pending_builds;
SELECT string_agg(build_id::text, ' ' ORDER BY build_id) AS running FROM gitlab.ci_running_builds;

-- the way to the rows is an index, however large the tables have become since the statement was planned
CALL pg_temp.fill('running');
SELECT pg_temp.drop_one(4);
INSERT INTO gitlab.ci_running_builds (build_id, project_id, partition_id, runner_id, runner_type) SELECT i, 1, 100, 1, 1 FROM generate_series(1000, 20000) AS i;
BEGIN;
SELECT seq_tup_read AS read FROM pg_stat_xact_user_tables WHERE relid = 'gitlab.ci_running_builds'::regclass \gset
SELECT pg_temp.drop_one(1), pg_temp.drop_one(2);
SELECT sweep_gitlab.follow_builds('gitlab', '{3}', '{100}', '{23}', '{71}');
SELECT seq_tup_read - :read AS read_in_vain FROM pg_stat_xact_user_tables WHERE relid = 'gitlab.ci_running_builds'::regclass;
COMMIT;

-- a role that may not delete there is at fault, and no build
CREATE ROLE regress_sweep_builds LOGIN;
GRANT sweep_user TO regress_sweep_builds;
GRANT USAGE ON SCHEMA gitlab TO regress_sweep_builds;
GRANT SELECT, UPDATE ON gitlab.p_ci_builds TO regress_sweep_builds;
GRANT SELECT ON gitlab.ci_pending_builds, gitlab.ci_running_builds TO regress_sweep_builds;
CALL pg_temp.fill('running');
DELETE FROM sweep.queue_message;
SELECT count(*) FROM sweep_gitlab.uninstall();
SELECT current_user AS superuser \gset
\c - regress_sweep_builds
SELECT count(*) FROM sweep_gitlab.install('gitlab', paused => true) WHERE note = 'created';
SET client_min_messages = error;
CALL sweep.run('ci_stuck_builds_drop_running', '{"as_of": "2026-01-01T00:00:00Z"}');
\c - :superuser
SET client_min_messages = warning;
SELECT status, count(*) FROM gitlab.p_ci_builds GROUP BY 1;
SELECT count(*) FROM sweep.quarantine;

SELECT count(*) FROM sweep_gitlab.uninstall();
DROP SCHEMA gitlab, gitlab_partitions_dynamic CASCADE;
DROP ROLE regress_sweep_builds;
