--
-- pgbench, one build each time: what a client outside of the database does that
-- ends stuck builds one by one. It picks them in hundreds; id, partition and
-- pipeline of the nth are known from rows_of_p_ci_builds.sql, which saves it the
-- work to keep what it has picked.
--
\set n :n + 1
\set id :n * :every
\set partition 100 + :id * 3 / (:rows + 1)
\set pipeline :id / 10
\if :n % 100 = 1
SELECT id, partition_id, lock_version, commit_id FROM p_ci_builds
	WHERE type = 'Ci::Build' AND status = 'canceling'
		AND created_at < now() AT TIME ZONE 'UTC' - interval '1 hour' AND updated_at < now() AT TIME ZONE 'UTC' - interval '1 hour'
	ORDER BY created_at, project_id, id LIMIT 100;
\endif
BEGIN;
UPDATE p_ci_builds SET status = 'failed', failure_reason = 3, finished_at = now() AT TIME ZONE 'UTC', updated_at = now() AT TIME ZONE 'UTC', scheduled_at = NULL,
		lock_version = lock_version + 1, processed = retried IS TRUE
	WHERE id = :id AND partition_id = :partition AND lock_version = 0 RETURNING project_id AS project \gset
SELECT sweep.send('ci_pipeline_process', jsonb_build_object('pipeline_id', :pipeline::bigint), :pipeline::text);
DELETE FROM ci_pending_builds WHERE build_id = :id AND partition_id = :partition;
DELETE FROM ci_running_builds WHERE build_id = :id AND partition_id = :partition;
SELECT sweep.send('ci_build_finished', jsonb_build_object('build_id', :id::bigint, 'project_id', :project::bigint), :id::text);
COMMIT;
