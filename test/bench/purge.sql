--
-- Job 3: every silent runner machine is deleted, each leaving a record of the
-- loose foreign keys.
--
\set QUIET on
SET client_min_messages = warning;
\set step sweep_gitlab.ci_runners_stale_machines_cleanup
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

-- The loop as one writes it by hand: pick the keys of a batch, delete by them, COMMIT. But for the few that never made
-- contact it begins where the last batch was, else each batch would come to all the dead rows of those before.
CREATE PROCEDURE bench.by_key(size int, INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
	stale timestamptz := now() - interval '7 days';
	last_at timestamptz := '-infinity';
	n bigint;
BEGIN
	LOOP
		WITH due AS MATERIALIZED (
			SELECT id, runner_type FROM ci_runner_machines
				WHERE contacted_at IS NULL AND (created_at <= stale) IS TRUE
				ORDER BY contacted_at, id LIMIT size)
		DELETE FROM ci_runner_machines AS machine USING due
			WHERE machine.id = due.id AND machine.runner_type = due.runner_type;
		GET DIAGNOSTICS n = ROW_COUNT;
		COMMIT;
		EXIT WHEN n = 0;
	END LOOP;
	LOOP
		WITH due AS MATERIALIZED (
			SELECT id, runner_type, contacted_at FROM ci_runner_machines
				WHERE contacted_at >= last_at AND contacted_at <= stale AND (created_at <= stale) IS TRUE
				ORDER BY contacted_at, id LIMIT size),
		gone AS (
			DELETE FROM ci_runner_machines AS machine USING due
				WHERE machine.id = due.id AND machine.runner_type = due.runner_type
				RETURNING due.contacted_at)
		SELECT count(*), max(contacted_at) INTO n, last_at FROM gone;
		COMMIT;
		EXIT WHEN n = 0;
	END LOOP;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;
