-- room: makers
-- A condition with a sub-select: the other table is joined as the planner likes, in the statements of each batch.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS selects CASCADE;
CREATE SCHEMA selects;
CREATE TABLE selects.event (id int PRIMARY KEY, at timestamptz NOT NULL, kind int, note text);
CREATE INDEX ON selects.event (at);
INSERT INTO selects.event SELECT n, now() - n * interval '1 hour', n % 1000 FROM generate_series(1, 20000) AS n;
-- without an index: to read all of it for each row is what a batch must not do
CREATE TABLE selects.hold (kind int);
INSERT INTO selects.hold SELECT n FROM generate_series(1, 900) AS n;
ANALYZE selects.event, selects.hold;

SELECT sweep.create_retention('selects.event', 'at', '500 days', condition => 'NOT EXISTS (SELECT FROM selects.hold h WHERE h.kind = event.kind)', name => 'selects retention', schedule => NULL);
SELECT sweep.create_backfill('selects.event', 'note = ''held''', 'note IS NULL AND kind IN (SELECT kind FROM selects.hold)', name => 'selects backfill', paused => true);
SELECT sweep.create_job('selects delete', step => 'sweep.delete_step', cursor => 'drain',
	args => '{"target": "selects.event", "condition": "kind IN (SELECT h.kind FROM selects.hold h)", "key": ["id"], "serves": true}');
SELECT name, count(*) FILTER (WHERE plan ~ 'Hash (Right |Left )?(Anti|Semi)?') > 0 AS hashed, count(*) FILTER (WHERE plan ~ 'Nested Loop.*Seq Scan on hold') AS looped
	FROM sweep.job, LATERAL sweep.preview(name) WHERE name LIKE 'selects%' GROUP BY name ORDER BY name;
-- one without goes by the index, as ever
SELECT sweep.create_retention('selects.event', 'at', '500 days', condition => 'kind > 900 OR kind = 0', name => 'selects plain', schedule => NULL);
SELECT plan ~ 'Index (Only )?Scan' AS by_index, plan ~ '(Hash|Seq Scan)' AS other FROM sweep.preview('selects plain');
CALL sweep.run('selects retention');
SELECT detail, (SELECT count(*) FROM selects.event WHERE at < now() - interval '500 days' AND (kind > 900 OR kind = 0)) AS left FROM sweep.runs WHERE job = 'selects retention';
CALL sweep.run('selects backfill');
SELECT detail, (SELECT count(*) FROM selects.event WHERE note IS NULL AND kind BETWEEN 1 AND 900) AS left FROM sweep.runs WHERE job = 'selects backfill';
CALL sweep.run('selects delete');
SELECT detail, (SELECT count(*) FROM selects.event) AS left FROM sweep.runs WHERE job = 'selects delete';
SELECT c.condition, sweep._has_select(c.condition) FROM (VALUES ('a = 1'), ('a IN (select 1)'), ('a IN (TABLE b)'), ('a IN (VALUES (1))'), ('selected = 1'), (NULL)) AS c (condition);

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'selects%';
DELETE FROM sweep.run_live WHERE job LIKE 'selects%';
DELETE FROM sweep.run_history WHERE job LIKE 'selects%';
DROP SCHEMA selects CASCADE;
