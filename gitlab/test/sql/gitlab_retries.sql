-- Work that fails and waits for its retry is not handed on again by each run that finds it.
\set ECHO none
\i gitlab/test/include/gitlab.sql
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 830000, false);
SELECT count(*) FROM sweep_gitlab.install('gitlab', paused => true) WHERE job IN ('environments_auto_stop', 'batched_git_ref_updates_cleanup_scheduler');
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at) SELECT i, i, i, i, '2025-12-01Z' FROM generate_series(1, 3) AS i;
INSERT INTO gitlab.p_batched_git_ref_updates_deletions (project_id, created_at, updated_at, ref) SELECT i, now(), now(), 'refs/1' FROM generate_series(1, 3) AS i;
CREATE VIEW pg_temp.depths AS SELECT queue, depth, dead FROM sweep.queues WHERE queue IN ('environments_auto_stop', 'batched_git_ref_updates_project_cleanup') ORDER BY queue;
-- a tick of both jobs; then a consumer for whom everything fails
CREATE PROCEDURE pg_temp.fail() LANGUAGE plpgsql AS $$
DECLARE
	name text;
	given uuid;
BEGIN
	FOREACH name IN ARRAY '{environments_auto_stop,batched_git_ref_updates_project_cleanup}'::text[] LOOP
		SELECT c.lease INTO given FROM sweep.claim(name, 100) AS c LIMIT 1;
		IF FOUND THEN
			PERFORM sweep.fail(given, 'Gitaly is down');
		END IF;
	END LOOP;
END
$$;
SELECT 'CALL sweep.run(''environments_auto_stop'')', 'CALL sweep.run(''batched_git_ref_updates_cleanup_scheduler'')', 'CALL pg_temp.fail()'
	FROM generate_series(1, 12) \gexec
TABLE pg_temp.depths;
-- neither while they are being handled
UPDATE sweep.queue_message SET due_at = now();
SELECT count(*), min(attempts), max(attempts) FROM sweep.claim('environments_auto_stop', 100);
SELECT count(*), min(attempts), max(attempts) FROM sweep.claim('batched_git_ref_updates_project_cleanup', 100);
CALL sweep.run('environments_auto_stop');
CALL sweep.run('batched_git_ref_updates_cleanup_scheduler');
TABLE pg_temp.depths;
-- what is done, and still there, is handed on again
DELETE FROM sweep.queue_message;
CALL sweep.run('environments_auto_stop');
CALL sweep.run('batched_git_ref_updates_cleanup_scheduler');
TABLE pg_temp.depths;
DELETE FROM sweep.queue_message;
SELECT count(*) FROM sweep_gitlab.uninstall();
DROP SCHEMA gitlab, gitlab_partitions_dynamic CASCADE;
