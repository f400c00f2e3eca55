--
-- Job 5: every project with pending deletions becomes a message.
--
\set QUIET on
SET client_min_messages = warning;
\set step sweep_gitlab.batched_git_ref_updates_cleanup_scheduler
\set args '{"schema": "public", "table": "p_batched_git_ref_updates_deletions"}'
\ir methods.sql

-- With a loose index scan like the step; SELECT DISTINCT reads every row.
CREATE PROCEDURE bench.one_statement(INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	WITH RECURSIVE pending AS (
		SELECT min(project_id) AS project_id FROM p_batched_git_ref_updates_deletions WHERE status = 1
		UNION ALL
		SELECT (SELECT min(d.project_id) FROM p_batched_git_ref_updates_deletions d WHERE d.status = 1 AND d.project_id > p.project_id)
			FROM pending p WHERE p.project_id IS NOT NULL)
	INSERT INTO sweep.queue_message (queue_id, key, payload)
		SELECT q.queue_id, p.project_id::text, jsonb_build_object('project_id', p.project_id)
		FROM sweep.queue q, pending p
		WHERE q.name = 'batched_git_ref_updates_project_cleanup' AND p.project_id IS NOT NULL
		ON CONFLICT (queue_id, key) WHERE key IS NOT NULL AND NOT claimed DO NOTHING;
	COMMIT;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;

CREATE FUNCTION bench.effect() RETURNS bigint
	LANGUAGE sql
AS $$
	SELECT count(DISTINCT key) FROM sweep.queue_message
$$;

CREATE PROCEDURE bench.restore()
	LANGUAGE sql
AS $$
	TRUNCATE sweep.queue_message
$$;

CREATE PROCEDURE bench.kill_front(dead int)
	LANGUAGE sql
AS $$
	UPDATE p_batched_git_ref_updates_deletions SET status = 2 WHERE project_id <= dead
$$;
