--
-- How long it takes from the commit of sweep.start() to the first batch. The
-- clock is read before that commit, which does not wait for the disk: read
-- after it, the session may have lost its processor to the very run it started.
--
\set QUIET on
SET client_min_messages = warning;
CREATE TABLE bench.first (run_id bigint, at timestamptz);
CREATE FUNCTION bench.look_at_clock(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql
AS $$
DECLARE
	first timestamptz := clock_timestamp();
BEGIN
	INSERT INTO bench.first VALUES (b.run_id, first);
	RETURN ROW(0::bigint, NULL::jsonb, NULL::jsonb);
END
$$;
SELECT sweep.create_job('bench', step => 'bench.look_at_clock') \g /dev/null

-- A start waits until the one before has ended and been put away.
CREATE TABLE bench.started (run_id bigint, at timestamptz);
CREATE PROCEDURE bench.starts(count int)
	LANGUAGE plpgsql
AS $$
DECLARE
	id bigint;
	committed timestamptz;
BEGIN
	FOR i IN 1 .. count LOOP
		id := sweep.start('bench');
		committed := clock_timestamp();
		COMMIT;
		INSERT INTO bench.started VALUES (id, committed);
		CALL sweep.wait(id);
		WHILE EXISTS (SELECT FROM sweep.run_live WHERE run_id = id) LOOP
			COMMIT;
		END LOOP;
		PERFORM pg_sleep(0.02);		-- the sleep is the work: a scheduler that has come to rest
		COMMIT;
	END LOOP;
END
$$;
