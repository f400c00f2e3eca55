--
-- Job 2: every stuck build is ended, in a transaction of its own or with those
-- of its batch. The job "bench" is ci_stuck_builds_drop_canceling by another
-- name.
--
\set QUIET on
SET client_min_messages = warning;
SELECT sweep_gitlab.create_stuck_builds_job('bench', 'benchmark',
	'{"status": "canceling", "created_older_than": "1 hour", "updated_older_than": "1 hour"}',
	'{"schema": "public", "table": "p_ci_builds"}', NULL, NULL) \g /dev/null

-- The same effect in one statement: the same columns of the same rows, the same
-- messages with their keys.
CREATE PROCEDURE bench.one_statement(INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
	at timestamp := now() AT TIME ZONE 'UTC';
	sent bigint;
BEGIN
	WITH written AS (
		UPDATE p_ci_builds SET status = 'failed', failure_reason = 3, finished_at = at, updated_at = at, scheduled_at = NULL,
				lock_version = lock_version + 1, processed = retried IS TRUE
			WHERE type = 'Ci::Build' AND status = 'canceling'
				AND created_at < at - interval '1 hour' AND updated_at < at - interval '1 hour'
			RETURNING id, partition_id, project_id, commit_id
	), pending AS (
		DELETE FROM ci_pending_builds q USING written w WHERE q.build_id = w.id AND q.partition_id = w.partition_id
	), running AS (
		DELETE FROM ci_running_builds q USING written w WHERE q.build_id = w.id AND q.partition_id = w.partition_id
	), messages AS (
		SELECT array_agg(jsonb_build_object('pipeline_id', commit_id)) AS pipelines, array_agg(commit_id::text) AS pipeline_keys,
			array_agg(jsonb_build_object('build_id', id, 'project_id', project_id)) AS builds, array_agg(id::text) AS build_keys FROM written
	)
	SELECT sweep.send_many('ci_pipeline_process', pipelines, pipeline_keys) + sweep.send_many('ci_build_finished', builds, build_keys)
		INTO sent FROM messages;
	COMMIT;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;

-- Builds that are as they should be; -1 when there are not as many messages.
CREATE FUNCTION bench.effect() RETURNS bigint
	LANGUAGE sql
AS $$
	SELECT CASE WHEN count(*) = (SELECT depth FROM sweep.queues WHERE queue = 'ci_pipeline_process') THEN count(*) ELSE -1 END
		FROM p_ci_builds
		WHERE status = 'failed' AND failure_reason = 3 AND finished_at = updated_at AND lock_version = 1 AND NOT processed
$$;
