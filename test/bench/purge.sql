--
-- Job 3: every silent runner machine is deleted, each leaving a record of the
-- loose foreign keys.
--
\set QUIET on
SET client_min_messages = warning;
\set step sweep.gitlab_ci_runners_stale_machines_cleanup
\set args '{"schema": "public", "stale_after": "7 days"}'
\ir methods.sql

CREATE PROCEDURE bench.one_statement(INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	DELETE FROM ci_runner_machines
		WHERE (contacted_at IS NULL OR contacted_at <= now() - interval '7 days') AND created_at <= now() - interval '7 days';
	COMMIT;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;

CREATE FUNCTION bench.effect() RETURNS bigint
	LANGUAGE sql
AS $$
	SELECT count(DISTINCT primary_key_value) FROM loose_foreign_keys_deleted_records
$$;

CREATE PROCEDURE bench.kill_front(dead int)
	LANGUAGE sql
AS $$
	DELETE FROM ci_runner_machines WHERE contacted_at <= (SELECT contacted_at FROM ci_runner_machines
		WHERE contacted_at IS NOT NULL ORDER BY contacted_at OFFSET dead - 1 LIMIT 1);
	TRUNCATE loose_foreign_keys_deleted_records
$$;
