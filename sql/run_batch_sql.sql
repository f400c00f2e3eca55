-- room: engine
-- Jobs that are nothing but a statement: $1 is the size, $2 the batch, its row count the progress.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_batch_sql CASCADE;
CREATE SCHEMA run_batch_sql;
CREATE TABLE run_batch_sql.item (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT '2026-01-01 00:00:00Z', done boolean);
CREATE VIEW run_batch_sql.last_run AS
	SELECT job, status, stop_reason AS stop, batches, rows, cursor, detail FROM sweep.runs WHERE job LIKE 'run\_batch\_sql%' ORDER BY run_id DESC LIMIT 1;

SELECT sweep.create_job('run_batch_sql delete', batch_size => 4, batch_sql =>
	'DELETE FROM run_batch_sql.item WHERE id IN (SELECT id FROM run_batch_sql.item WHERE at < ($2).as_of ORDER BY id LIMIT $1)');
SELECT sweep.create_job('run_batch_sql update', batch_size => 4, max_rows => 6, batch_sql =>
	'UPDATE run_batch_sql.item SET done = true WHERE id IN (SELECT id FROM run_batch_sql.item WHERE done IS NULL LIMIT $1) RETURNING id');
SELECT sweep.create_job('run_batch_sql insert', max_batches => 2, args => '{"n": 5}', batch_sql =>
	'INSERT INTO run_batch_sql.item SELECT (SELECT coalesce(max(id), 0) FROM run_batch_sql.item) + i FROM generate_series(1, least($1, (($2).args ->> ''n'')::int)) AS i');
SELECT sweep.create_job('run_batch_sql select', stop_after => '0', batch_sql =>
	'WITH seen AS (UPDATE run_batch_sql.item SET id = id WHERE id IN (SELECT id FROM run_batch_sql.item LIMIT $1) RETURNING id) SELECT id FROM seen');
SELECT sweep.create_job('run_batch_sql with', stop_after => '0', batch_sql =>
	'WITH gone AS (DELETE FROM run_batch_sql.item WHERE id < 3 AND $1 > 0 RETURNING id) SELECT count(*) FROM gone');

CALL sweep.run('run_batch_sql insert');
SELECT * FROM run_batch_sql.last_run;
CALL sweep.run('run_batch_sql insert', '{"n": 0}');
SELECT * FROM run_batch_sql.last_run;
CALL sweep.run('run_batch_sql update');
SELECT * FROM run_batch_sql.last_run;
SELECT count(*) FILTER (WHERE done) AS done, count(*) FROM run_batch_sql.item;
CALL sweep.run('run_batch_sql select');
SELECT * FROM run_batch_sql.last_run;
-- the clock of the batch: exactly then is not before, a microsecond later is
CALL sweep.run('run_batch_sql delete', '{"as_of": "2026-01-01 00:00:00Z"}');
SELECT * FROM run_batch_sql.last_run;
CALL sweep.run('run_batch_sql delete', '{"as_of": "2026-01-01 00:00:00.000001Z"}');
SELECT * FROM run_batch_sql.last_run;
-- what counts are the rows of the statement, not those of its parts
INSERT INTO run_batch_sql.item VALUES (1), (2), (3);
CALL sweep.run('run_batch_sql with');
SELECT * FROM run_batch_sql.last_run;

-- where names are looked up when it is created the session's temporary tables are not in front; those of a run in a session are
CREATE TEMP TABLE pg_class (oid oid);
SELECT sweep.create_job('run_batch_sql temp', stop_after => '0', batch_sql =>
	'WITH seen AS (UPDATE run_batch_sql.item SET id = id WHERE $1 < 0) SELECT FROM pg_class WHERE relname = ''pg_class'' LIMIT 1');
\set VERBOSITY sqlstate
CALL sweep.run('run_batch_sql temp');
\set VERBOSITY default
DROP TABLE pg_temp.pg_class;
CALL sweep.run('run_batch_sql temp');
SELECT * FROM run_batch_sql.last_run;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'run\_batch\_sql%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_batch\_sql%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_batch\_sql%';
DROP SCHEMA run_batch_sql CASCADE;
