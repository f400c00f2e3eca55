-- room: makers
-- Jobs that sweep.create_copy makes: each row arrives, once, and so do those that have come since.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS copy CASCADE;
CREATE SCHEMA copy;
SET timezone = 'UTC';
CREATE VIEW copy.last_run AS SELECT status, stop_reason AS stop, batches, rows, detail FROM sweep.runs WHERE job LIKE 'copy%' ORDER BY run_id DESC LIMIT 1;

-- increments; columns by their names, what is generated there, and an identity
CREATE TABLE copy.event (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT '2026-01-01Z', body text, "Odd name" int);
CREATE TABLE copy.archive (copied boolean DEFAULT true, "Odd name" numeric, id bigint GENERATED ALWAYS AS IDENTITY, length int GENERATED ALWAYS AS (length(body)) STORED, body text NOT NULL);
INSERT INTO copy.event (body, "Odd name") SELECT 'event ' || n, n FROM generate_series(1, 2500) AS n;
SELECT sweep.create_copy('copy.event', 'copy.archive', paused => true);
SELECT schedule, timezone, step, args, cursor FROM sweep.job WHERE name = 'copy_event';
SELECT rows, cursor - '{ordering,copies}'::text[] AS cursor FROM sweep.preview('copy_event');
CALL sweep.run('copy_event');
SELECT * FROM copy.last_run;
SELECT count(*), count(DISTINCT id), sum(length), sum("Odd name"), bool_and(copied) FROM copy.archive;
CALL sweep.run('copy_event');
SELECT * FROM copy.last_run;
INSERT INTO copy.event (body, "Odd name") SELECT 'event ' || n, n FROM generate_series(2501, 2600) AS n;
CALL sweep.run('copy_event');
SELECT * FROM copy.last_run;
INSERT INTO copy.event (body, "Odd name") SELECT 'event ' || n, n FROM generate_series(2601, 4700) AS n;
SELECT sweep.alter_job('copy_event', '{"max_rows": 1700, "batch_size": 400}');
CALL sweep.run('copy_event');
SELECT * FROM copy.last_run;
CALL sweep.run('copy_event');
SELECT * FROM copy.last_run;
SELECT count(*), count(DISTINCT id), max(id) FROM copy.archive;
-- what was copied already is not known by another key
CREATE UNIQUE INDEX ON copy.event (at, id);
SELECT sweep.alter_job('copy_event', jsonb_build_object('args', args || '{"order_by": "at, id"}')) FROM sweep.job WHERE name = 'copy_event';
\set VERBOSITY sqlstate
CALL sweep.run('copy_event');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'copy_event' AND status = 'failed';

-- only what meets a condition; a row that the target has already is an error, or left as it is
CREATE TABLE copy.target (id bigint PRIMARY KEY, body text);
SELECT sweep.create_copy('copy.event', 'copy.target', name => 'copy some', condition => 'id % 10 = 0', cursor => 'drain', paused => true, batch_size => 500);
CALL sweep.run('copy some');
SELECT *, (SELECT count(*) FROM copy.target) FROM copy.last_run;
\set VERBOSITY sqlstate
CALL sweep.run('copy some');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'copy some' AND status = 'failed';
SELECT sweep.create_copy('copy.event', 'copy.target', name => 'copy again', on_conflict => 'nothing', cursor => 'run', paused => true);
UPDATE copy.target SET body = 'mine' WHERE id = 20;
CALL sweep.run('copy again');
SELECT *, (SELECT count(*) FROM copy.target) FROM copy.last_run;
SELECT body FROM copy.target WHERE id = 20;

-- into partitions, from partitions, by a key of two columns
CREATE TABLE copy.from_parts (tenant int, id int, v text, PRIMARY KEY (tenant, id)) PARTITION BY HASH (tenant);
CREATE TABLE copy.from_part_0 PARTITION OF copy.from_parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE copy.from_part_1 PARTITION OF copy.from_parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE copy.to_parts (LIKE copy.from_parts) PARTITION BY RANGE (id);
CREATE TABLE copy.to_part_1 PARTITION OF copy.to_parts FOR VALUES FROM (0) TO (100);
CREATE TABLE copy.to_part_2 PARTITION OF copy.to_parts FOR VALUES FROM (100) TO (10000);
INSERT INTO copy.from_parts SELECT n % 7, n, 'v' || n FROM generate_series(1, 3000) AS n;
SELECT sweep.create_copy('copy.from_parts', 'copy.to_parts', paused => true, batch_size => 170);
CALL sweep.run('copy_from_parts');
SELECT *, (SELECT count(*) FROM (TABLE copy.to_parts EXCEPT TABLE copy.from_parts) AS d) AS differ, (SELECT count(*) FROM copy.to_parts) FROM copy.last_run;

-- refused, with nothing created
CREATE VIEW copy.refused AS SELECT count(*) FROM sweep.job;
CREATE TABLE copy.other (a int);
CREATE TABLE copy.more (id bigint, needed int NOT NULL);
SELECT sweep.create_copy('copy.event', 'copy.other');
SELECT sweep.create_copy('copy.event', 'copy.more');
SELECT sweep.create_copy('copy.other', 'copy.target');
SELECT sweep.create_copy('copy.event', 'copy.event');
SELECT sweep.create_copy('copy.from_part_0', 'copy.from_parts');
SELECT sweep.create_copy('copy.last_run', 'copy.target');
SELECT sweep.create_copy('copy.event', 'copy.last_run');
SELECT sweep.create_copy('copy.event', 'copy.archive', on_conflict => 'nothing');
CREATE UNLOGGED TABLE copy.volatile (LIKE copy.target);
SELECT sweep.create_copy('copy.event', 'copy.volatile');
CREATE UNLOGGED TABLE copy.to_part_3 PARTITION OF copy.to_parts FOR VALUES FROM (10000) TO (20000);
SELECT sweep.create_copy('copy.from_parts', 'copy.to_parts', name => 'copy to a partition that is unlogged');
\set VERBOSITY sqlstate
CALL sweep.run('copy_from_parts');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'copy_from_parts' AND status = 'failed';
SELECT sweep.create_copy('copy.event', 'copy.target', on_conflict => 'update');
SELECT sweep.create_copy('copy.event', 'copy.target', cursor => 'never');
SELECT sweep.create_copy('copy.event', 'copy.target', condition => 'id');
SELECT sweep.create_copy('copy.event', 'copy.target', condition => 'true) OR (true');
ALTER TABLE copy.target ALTER body TYPE int USING 1;
SELECT sweep.create_copy('copy.event', 'copy.target', name => 'copy of other types');
TABLE copy.refused;

-- a copy that goes on behind its last key goes on with the same tables, whatever these are called
CREATE TABLE copy.numbers (id int PRIMARY KEY);
CREATE TABLE copy.others (id int PRIMARY KEY);
CREATE TABLE copy.one (id int PRIMARY KEY);
CREATE TABLE copy.two (id int PRIMARY KEY);
INSERT INTO copy.numbers SELECT generate_series(1, 10);
INSERT INTO copy.others SELECT generate_series(1, 10);
SELECT sweep.create_copy('copy.numbers', 'copy.one', name => 'copy to one', paused => true);
CALL sweep.run('copy to one');
INSERT INTO copy.numbers VALUES (11);
\set VERBOSITY sqlstate
CALL sweep.run('copy to one', '{"target": "copy.two"}');
CALL sweep.run('copy to one', '{"source": "copy.others"}');
\set VERBOSITY default
SELECT split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE job = 'copy to one' AND status = 'failed' ORDER BY run_id;
ALTER TABLE copy.one RENAME TO uno;
ALTER TABLE copy.numbers RENAME TO numeros;
SELECT sweep.alter_job('copy to one', jsonb_build_object('args', args || '{"source": "copy.numeros", "target": "copy.uno"}')) FROM sweep.job WHERE name = 'copy to one';
CALL sweep.run('copy to one');
SELECT (SELECT count(*) FROM copy.uno) AS one, (SELECT count(*) FROM copy.two) AS two;
-- a table that inherits from the source has come since: its keys are others
CREATE TABLE copy.heir () INHERITS (copy.numeros);
\set VERBOSITY sqlstate
CALL sweep.run('copy to one');
\set VERBOSITY default
SELECT split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE job = 'copy to one' ORDER BY run_id DESC LIMIT 1;
-- and it keeps its cursor for good only if it waits for transactions that may commit smaller keys
SELECT sweep.create_copy('copy.others', 'copy.two', name => 'copy to two', cursor => 'run', paused => true);
SELECT sweep.alter_job('copy to two', '{"cursor": "always"}');

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'copy%' ORDER BY name;
DELETE FROM sweep.run_live WHERE job LIKE 'copy%';
DELETE FROM sweep.run_history WHERE job LIKE 'copy%';
DROP SCHEMA copy CASCADE;
