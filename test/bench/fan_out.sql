--
-- Job 1: every due environment becomes a message.
--
\set QUIET on
SET client_min_messages = warning;
\set step sweep_gitlab.environments_auto_stop
\set args '{"schema": "public"}'
\ir methods.sql

-- The same effect in one statement: the same rows left out, the same guarantee
-- that no key is queued twice.
CREATE PROCEDURE bench.one_statement(INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	INSERT INTO sweep.queue_message (queue_id, key, payload)
		SELECT q.queue_id, e.id::text, jsonb_build_object('environment_id', e.id, 'project_id', e.project_id)
		FROM sweep.queue q, environments e
		WHERE q.name = 'environments_auto_stop' AND e.state = 'available' AND e.auto_stop_at < now()
			AND NOT EXISTS (SELECT FROM sweep_gitlab.kept_environment k
				WHERE k.environment_id = e.id AND k.auto_stop_at = e.auto_stop_at)
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

-- Nothing was marked: the queue alone has to be as it was.
CREATE PROCEDURE bench.restore()
	LANGUAGE sql
AS $$
	TRUNCATE sweep.queue_message
$$;

-- The environments that would come first have been dealt with.
CREATE PROCEDURE bench.kill_front(dead int)
	LANGUAGE sql
AS $$
	UPDATE environments SET state = 'stopped', auto_stop_at = NULL WHERE id IN (SELECT id FROM environments
		WHERE state = 'available' AND auto_stop_at < now() ORDER BY auto_stop_at, id LIMIT dead)
$$;
