--
-- A table that rows are added to, of which the older half is to go: by the job that sweep.create_retention makes, and by what one
-- writes without it. Its "shape": plain, by_age or by_account (partitioned by that), cascade or referenced (a foreign key with ON DELETE
-- CASCADE, or without).
--
\set QUIET on
SET client_min_messages = warning;
SELECT :'shape' = 'by_age' AS by_age, :'shape' = 'by_account' AS by_account, :'shape' = 'cascade' AS cascade, :'shape' = 'referenced' AS referenced,
	CASE :'shape' WHEN 'by_age' THEN 'PARTITION BY RANGE (created_at)' WHEN 'by_account' THEN 'PARTITION BY HASH (account_id)' ELSE '' END AS partitioned \gset
CREATE TABLE bench.event (id bigint NOT NULL, created_at timestamptz NOT NULL, account_id int NOT NULL, body text NOT NULL) :partitioned;
SELECT format('CREATE TABLE bench.event_%s PARTITION OF bench.event FOR VALUES WITH (MODULUS 8, REMAINDER %s)', n, n) FROM generate_series(0, 7) AS n WHERE :'by_account' \gexec
-- a day each
SELECT format('CREATE TABLE bench.event_%s PARTITION OF bench.event FOR VALUES FROM (%L) TO (%L)', n, now()::date - n, now()::date - n + 1) FROM generate_series(0, 150) AS n
	WHERE :'by_age' AND (n < 10 OR n BETWEEN 128 AND 145) \gexec
-- 518,400 of a million rows are too old, whenever that is asked: the others are younger by months
INSERT INTO bench.event
	SELECT n, now() - interval '1 second' * (:rows - n) - CASE WHEN n <= :rows * 0.5184 THEN interval '130 days' ELSE interval '0' END, n % 1000, 'what has happened, in so many words: ' || n
	FROM generate_series(1, :rows) AS n;
CREATE INDEX ON bench.event (created_at);
CREATE INDEX event_id ON bench.event (id);
\if :by_age
\elif :by_account
\else
ALTER TABLE bench.event ADD PRIMARY KEY (id);
DROP INDEX bench.event_id;
\endif
-- on one event in five one that goes with it, or on one in fifty one that keeps it
CREATE TABLE bench.note (id bigint PRIMARY KEY, event_id bigint NOT NULL);
CREATE INDEX ON bench.note (event_id);
\if :cascade
INSERT INTO bench.note SELECT n, n * 5 FROM generate_series(1, :rows / 5) AS n;
ALTER TABLE bench.note ADD FOREIGN KEY (event_id) REFERENCES bench.event ON DELETE CASCADE;
\elif :referenced
INSERT INTO bench.note SELECT n, n * 50 FROM generate_series(1, :rows / 50) AS n;
ALTER TABLE bench.note ADD FOREIGN KEY (event_id) REFERENCES bench.event;
\endif
VACUUM (ANALYZE) bench.event, bench.note;
SELECT sweep.create_retention('bench.event', 'created_at', '100 days', schedule => NULL, name => 'bench') \g /dev/null

CREATE FUNCTION bench.effect() RETURNS bigint
	LANGUAGE sql
	RETURN (SELECT pg_catalog.max(id) - count(*) FROM bench.event);

SELECT CASE WHEN :'referenced' THEN 'AND NOT EXISTS (SELECT FROM bench.note WHERE event_id = event.id)' ELSE '' END AS unless \gset
SELECT format($procedure$
CREATE PROCEDURE bench.one_statement(INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	DELETE FROM bench.event WHERE created_at < now() - interval '100 days' %s;
	COMMIT;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$
$procedure$, :'unless') \gexec

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
