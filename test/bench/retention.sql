--
-- A table that rows are added to, of which the older half is to go: by the job that sweep.create_retention makes, and by what one
-- writes without it.
--
\set QUIET on
SET client_min_messages = warning;
CREATE TABLE bench.event (id bigint PRIMARY KEY, created_at timestamptz NOT NULL, account_id int NOT NULL, body text NOT NULL);
-- 518,400 of a million rows are too old, whenever that is asked: the others are younger by a month
INSERT INTO bench.event
	SELECT n, now() - interval '1 second' * (:rows - n) - CASE WHEN n <= :rows * 0.5184 THEN interval '130 days' ELSE interval '0' END, n % 1000, 'what has happened, in so many words: ' || n
	FROM generate_series(1, :rows) AS n;
CREATE INDEX ON bench.event (created_at);
VACUUM (ANALYZE) bench.event;
SELECT sweep.create_retention('bench.event', 'created_at', '100 days', schedule => NULL, name => 'bench') \g /dev/null

CREATE FUNCTION bench.effect() RETURNS bigint
	LANGUAGE sql
	RETURN (SELECT pg_catalog.max(id) - count(*) FROM bench.event);

CREATE PROCEDURE bench.one_statement(INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	DELETE FROM bench.event WHERE created_at < now() - interval '100 days';
	COMMIT;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;

-- As everybody writes it.
CREATE PROCEDURE bench.by_id(size int, INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
	n bigint;
BEGIN
	LOOP
		DELETE FROM bench.event WHERE id IN (SELECT e.id FROM bench.event AS e WHERE e.created_at < now() - interval '100 days' ORDER BY e.created_at LIMIT size);
		GET DIAGNOSTICS n = ROW_COUNT;
		COMMIT;
		EXIT WHEN n = 0;
	END LOOP;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;
