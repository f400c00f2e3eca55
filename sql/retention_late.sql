-- room: makers
-- Rows that come with an old age behind a proof: the next run counts them; and how many rows are too old now, by the statistics.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS late CASCADE;
CREATE SCHEMA late;
SET timezone = 'UTC';
CREATE FUNCTION late.last(job text) RETURNS jsonb LANGUAGE sql STABLE AS $$ SELECT detail FROM sweep.runs r WHERE r.job = last.job ORDER BY run_id DESC LIMIT 1 $$;

-- a table without any unique index, many rows of one age
CREATE TABLE late.event (id int, at timestamptz, state text DEFAULT 'done');
CREATE INDEX ON late.event (at);
INSERT INTO late.event SELECT n, date_trunc('day', now()) - n / 300 * interval '1 day', CASE WHEN n % 1000 = 999 THEN 'open' ELSE 'done' END FROM generate_series(0, 5999) AS n;
SELECT sweep.create_retention('late.event', 'at', '10 days', condition => 'state = ''done''', name => 'late event', schedule => NULL, batch_size => 70);
SELECT overdue_rows, open_since, late_rows FROM sweep.retentions WHERE job = 'late event';
ANALYZE late.event;
SELECT overdue_rows BETWEEN 2600 AND 3100 AS about_right FROM sweep.retentions WHERE job = 'late event';
CALL sweep.run('late event');
SELECT late.last('late event'), kept, late_rows FROM sweep.retentions WHERE job = 'late event';
SELECT max(at) < now() - interval '10 days' AS old, count(*), min(state) FROM late.event WHERE at < now() - interval '10 days';
ANALYZE late.event;
SELECT overdue_rows < 20 AS none_left FROM sweep.retentions WHERE job = 'late event';
-- nothing has come
CALL sweep.run('late event');
SELECT late.last('late event'), late_rows FROM sweep.retentions WHERE job = 'late event';
-- three have, and more that are not old, or not done; one that was open is done now
INSERT INTO late.event SELECT n, now() - interval '40 days' FROM generate_series(1, 3) AS n;
INSERT INTO late.event SELECT n, now() - interval '40 days', 'open' FROM generate_series(1, 3) AS n;
INSERT INTO late.event SELECT n, now() FROM generate_series(1, 3) AS n;
UPDATE late.event SET state = 'done' WHERE id = 5999;
SELECT sweep.alter_job('late event', '{"max_batches": 1}');
CALL sweep.run('late event');
SELECT sweep.alter_job('late event', '{"max_batches": null}');
SELECT late.last('late event'), late_rows FROM sweep.retentions WHERE job = 'late event';
CALL sweep.run('late event');
SELECT late_rows, kept FROM sweep.retentions WHERE job = 'late event';
CALL sweep.run('late event');
SELECT late_rows, kept FROM sweep.retentions WHERE job = 'late event';
-- another job keeps the same rows for longer
SELECT sweep.create_retention('late.event', 'at', '60 days', condition => 'state = ''done''', name => 'late longer', schedule => NULL);
CALL sweep.run('late longer');
INSERT INTO late.event VALUES (10000, now() - interval '40 days');
CALL sweep.run('late event');
SELECT job, late_rows FROM sweep.retentions WHERE job IN ('late event', 'late longer') ORDER BY job;
SELECT sweep.drop_job('late longer');

-- a row that was kept, and is not any more, was known
CREATE TABLE late.parent (id int PRIMARY KEY, at date, local timestamp);
CREATE INDEX ON late.parent (at);
CREATE INDEX ON late.parent (local);
CREATE TABLE late.child (id int PRIMARY KEY, parent int REFERENCES late.parent);
CREATE INDEX ON late.child (parent);
INSERT INTO late.parent SELECT n, now() - n * interval '1 day', now() - n * interval '1 day' FROM generate_series(1, 20) AS n;
INSERT INTO late.child VALUES (1, 15), (2, 16);
SELECT sweep.create_retention('late.parent', 'at', '10 days', name => 'late parent', schedule => NULL, timezone => 'Asia/Tokyo');
SELECT sweep.create_retention('late.parent', 'local', '10 days', name => 'late local', schedule => NULL, timezone => 'Asia/Tokyo');
CALL sweep.run('late parent');
CALL sweep.run('late local');
SELECT job, kept, late_rows FROM sweep.retentions WHERE job IN ('late parent', 'late local') ORDER BY job;
DELETE FROM late.child WHERE id = 1;
INSERT INTO late.parent VALUES (100, '2020-01-01', '2020-01-01');
CALL sweep.run('late parent');
INSERT INTO late.parent VALUES (101, NULL, '2020-01-01');
CALL sweep.run('late local');
SELECT job, kept, late_rows FROM sweep.retentions WHERE job IN ('late parent', 'late local') ORDER BY job;

-- partitions, dropped or not; an age that is an expression
CREATE TABLE late."part 100%" (at timestamptz NOT NULL, n int) PARTITION BY RANGE (at);
CREATE TABLE late.part_old PARTITION OF late."part 100%" FOR VALUES FROM ('2020-01-01Z') TO ('2021-01-01Z');
CREATE TABLE late.part_rest PARTITION OF late."part 100%" DEFAULT;
CREATE INDEX ON late."part 100%" (at);
INSERT INTO late."part 100%" SELECT now() - n * interval '1 day', n FROM generate_series(1, 100) AS n;
INSERT INTO late."part 100%" SELECT '2020-02-01', n FROM generate_series(1, 50) AS n;
SELECT sweep.create_retention('late."part 100%"', 'at', '50 days', name => 'late part', schedule => NULL, partitions => 'drop');
ANALYZE late."part 100%";
SELECT overdue_rows BETWEEN 95 AND 105 AS about_right FROM sweep.retentions WHERE job = 'late part';
CALL sweep.run('late part');
SELECT late.last('late part'), late_rows FROM sweep.retentions WHERE job = 'late part';
CREATE TABLE late.part_old PARTITION OF late."part 100%" FOR VALUES FROM ('2020-01-01Z') TO ('2021-01-01Z');
INSERT INTO late."part 100%" SELECT '2020-02-01', n FROM generate_series(1, 5) AS n;
INSERT INTO late."part 100%" SELECT now() - n * interval '1 day', n FROM generate_series(60, 61) AS n;
CALL sweep.run('late part');
SELECT late.last('late part'), late_rows FROM sweep.retentions WHERE job = 'late part';
CREATE TABLE late.session (id int, created_at timestamptz NOT NULL, keep_for interval);
CREATE INDEX ON late.session (((created_at AT TIME ZONE 'UTC') + keep_for));
INSERT INTO late.session SELECT n, now() - interval '7 days', CASE n % 2 WHEN 0 THEN interval '1 day' ELSE interval '30 days' END FROM generate_series(1, 400) AS n;
SELECT sweep.create_retention('late.session', '(created_at AT TIME ZONE ''UTC'') + keep_for', keep => '0', name => 'late session', schedule => NULL);
ANALYZE late.session;
SELECT overdue_rows BETWEEN 190 AND 210 AS about_right FROM sweep.retentions WHERE job = 'late session';

-- what the owner of a job has written into its args takes the view from nobody
SELECT sweep.alter_job('late session', '{"args": {"keep": "garbage", "target": "\"", "timezone": "no/where", "age_column": "at"}}');
SELECT job, keep, overdue_rows FROM sweep.retentions WHERE job = 'late session';

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'late%';
DELETE FROM sweep.run_live WHERE job LIKE 'late%';
DELETE FROM sweep.run_history WHERE job LIKE 'late%';
DROP SCHEMA late CASCADE;
