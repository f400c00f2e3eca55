-- room: makers
-- What the functions that make jobs refuse, before anything is created, and what they say then; whose rights count.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS makers CASCADE;
CREATE SCHEMA makers;
SET timezone = 'UTC';
SELECT current_user AS superuser \gset
CREATE ROLE regress_sweep_maker LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_other LOGIN;
CREATE TABLE makers.event (id bigint PRIMARY KEY, at timestamptz, day date, epoch bigint, state text);
CREATE INDEX ON makers.event (at);
CREATE TABLE makers.archive (LIKE makers.event);
CREATE FUNCTION makers.refuse(call text) RETURNS TABLE (state text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
DECLARE
	before text := (SELECT count(*) FROM sweep.job) || ' ' || (SELECT count(*) FROM sweep.job_state) || ' ' || (SELECT count(*) FROM sweep.run_live);
BEGIN
	BEGIN
		EXECUTE 'SELECT sweep.create_' || call;
		message := 'not refused: ' || call;
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	END;
	IF before <> (SELECT count(*) FROM sweep.job) || ' ' || (SELECT count(*) FROM sweep.job_state) || ' ' || (SELECT count(*) FROM sweep.run_live) THEN
		message := 'created: ' || call;
	END IF;
	RETURN NEXT;
END
$$;
\pset format unaligned
\pset tuples_only on
\pset fieldsep ' | '

-- which table
SELECT * FROM makers.refuse($$retention(NULL, 'at', '1 day')$$);
SELECT * FROM makers.refuse($$retention('event', 'at', '1 day')$$);
SELECT * FROM makers.refuse($$retention('Makers.Event ', 'no such', '1 day')$$);
SELECT * FROM makers.refuse($$retention('makers.no_such', 'at', '1 day')$$);
SELECT * FROM makers.refuse($$retention('1', 'at', '1 day')$$);
SELECT * FROM makers.refuse($$retention('"', 'at', '1 day')$$);
SELECT * FROM makers.refuse($$retention('makers.event; DROP TABLE makers.event', 'at', '1 day')$$);
CREATE VIEW makers.event_view AS SELECT * FROM makers.event;
SELECT * FROM makers.refuse($$retention('makers.event_view', 'at', '1 day')$$);
SELECT * FROM makers.refuse($$backfill('makers.event_view', 'state = 1', 'true')$$);
CREATE MATERIALIZED VIEW makers.event_result AS SELECT * FROM makers.event;
SELECT * FROM makers.refuse($$retention('makers.event_result', 'at', '1 day')$$);
CREATE FOREIGN DATA WRAPPER regress_sweep_makers;
CREATE SERVER regress_sweep_makers FOREIGN DATA WRAPPER regress_sweep_makers;
CREATE FOREIGN TABLE makers.elsewhere (id int, at timestamptz) SERVER regress_sweep_makers;
SELECT * FROM makers.refuse($$retention('makers.elsewhere', 'at', '1 day')$$);
DROP FOREIGN DATA WRAPPER regress_sweep_makers CASCADE;
CREATE TEMP TABLE event_temp (at timestamptz);
SELECT message, hint FROM makers.refuse(format('retention(%L, ''at'', ''1 day'')', (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'event_temp'::regclass) || '.event_temp')) AS r
	WHERE message ~ 'event_temp is a temporary table';
CREATE TABLE makers.parent (at timestamptz PRIMARY KEY);
CREATE TABLE makers.heir () INHERITS (makers.parent);
SELECT * FROM makers.refuse($$retention('makers.parent', 'at', '1 day')$$);

-- which column, for how long
SELECT * FROM makers.refuse($$retention('makers.event', 'no such', '1 day')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'ctid', '1 day')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'epoch', '1 day')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'day', '1 day')$$);
CREATE INDEX ON makers.event (id, day);
CREATE INDEX ON makers.event USING hash (day);
CREATE INDEX ON makers.event USING brin (day);
CREATE INDEX ON makers.event (day) WHERE state = 'done';
CREATE INDEX ON makers.event ((day + 1));
CREATE INDEX event_invalid ON makers.event (day);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'makers.event_invalid'::regclass;
SELECT * FROM makers.refuse($$retention('makers.event', 'day', '1 day', condition => 'state = ''done''')$$);
SELECT * FROM makers.refuse($$retention('makers.event', NULL, '1 day')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', NULL)$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '-1 us')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '-1 day')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1001 years')$$);
-- (in March two days ahead)
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 mon -30 days')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day -24:00')$$);
SELECT sweep._check_keep(keep, 'refuse') IS NOT NULL AS fits FROM unnest('{0,0.5 s,1 mon -1 day,1000 years,1 day -1 hour}'::interval[]) AS keep;
-- a virtual generated column, which PostgreSQL 18 has
CREATE TABLE makers.virtual (id int PRIMARY KEY, at date);
UPDATE pg_attribute SET attgenerated = 'v' WHERE attrelid = 'makers.virtual'::regclass AND attname = 'at';
SELECT * FROM makers.refuse($$retention('makers.virtual', 'at', '1 day')$$);

-- a rule that PostgreSQL does not execute within a WITH: for some of the rows of one key, and for moved rows
CREATE TABLE makers.ruled (id int NOT NULL, at date NOT NULL);
CREATE TABLE makers.ruled_archive (id int, at date);
CREATE INDEX ON makers.ruled (at);
CREATE RULE note AS ON DELETE TO makers.ruled DO ALSO INSERT INTO makers.ruled_archive VALUES (old.id);
SELECT * FROM makers.refuse($$retention('makers.ruled', 'at', '1 day')$$);
INSERT INTO makers.ruled SELECT n, '2020-01-01'::date + n / 100 FROM generate_series(1, 20000) AS n;
ANALYZE makers.ruled;
SELECT sweep.delete('makers.ruled', 'at = ''2020-02-01''', name => 'makers ruled');
CREATE UNIQUE INDEX ON makers.ruled (at, id);
SELECT * FROM makers.refuse($$retention('makers.ruled', 'at', '1 day', archive_to => 'makers.ruled_archive')$$);
SELECT sweep.create_retention('makers.ruled', 'at', '1 day', name => 'makers ruled', paused => true);
SELECT sweep.drop_job('makers ruled');

-- what any job refuses
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', schedule => 'sometimes')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', timezone => 'Nowhere')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', schedule => NULL, timezone => 'Nowhere')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', batch_size => 0)$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', paused => NULL)$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', name => '')$$);

-- a condition is one expression, and what is set is nothing else
SELECT * FROM unnest(ARRAY['', ' ', 'true; DROP TABLE makers.event', 'true) OR (true', 'true) --', 'true /* ', 'true AS x', 'true x', 'state, day', '*', 'event.*', 'DISTINCT true', 'true FROM makers.event',
	'true ORDER BY 1', 'true LIMIT 1', 'true UNION SELECT true', 'true RETURNING 1', '$1 > 0', '($2).size > 0', 'id', 'count(*) > 0', 'no_such = 1', 'no_such()', 'SELECT true',
	'id IN (SELECT id FROM event)', 'makers.event.id = 1']) AS c, makers.refuse(format('retention(''makers.event'', ''at'', ''1 day'', condition => %L)', c));
SELECT * FROM unnest(ARRAY['', 'state', 'state = 1 WHERE true', 'state = ''x'' FROM makers.archive', 'state = ''x'' RETURNING 1', 'state = ''x''; DELETE FROM makers.event', 'state = ''x'' --' || E'\n; DELETE FROM makers.event --',
	'state = $1', 'state = (SELECT 1', 'state = ''x'' /*', 'no_such = 1', 'id = id + 1', '(state, id) = (''x'', 1)', 'state = 1 IS DISTINCT', 'state = 3 + now()']) AS c,
	makers.refuse(format('backfill(''makers.event'', %L, ''state IS NULL'')', c));
SELECT * FROM makers.refuse($$backfill('makers.event', NULL, 'true')$$);
SELECT * FROM makers.refuse($$backfill('makers.event', 'state = 1', NULL)$$);
SELECT * FROM makers.refuse($$backfill('makers.event', 'state = ''x''', 'true) OR (true')$$);

-- where it is moved to
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', archive_to => 'makers.no_such')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', archive_to => 'makers.event')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', archive_to => 'makers.event_view')$$);
ALTER TABLE makers.archive ADD COLUMN more int NOT NULL;
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', archive_to => 'makers.archive')$$);
ALTER TABLE makers.archive DROP COLUMN more, ALTER epoch TYPE int;
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', archive_to => 'makers.archive')$$);
ALTER TABLE makers.archive DROP COLUMN epoch;
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', archive_to => 'makers.archive')$$);

-- which partitions
CREATE TABLE makers.part (at timestamptz NOT NULL, id int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
CREATE TABLE makers.listed (at timestamptz NOT NULL PRIMARY KEY) PARTITION BY LIST (at);
CREATE TABLE makers.computed (at timestamptz NOT NULL) PARTITION BY RANGE (((at AT TIME ZONE 'UTC')::date));
CREATE INDEX ON makers.computed (at);
SELECT * FROM makers.refuse($$retention('makers.part', 'at', '1 day', partitions => 'detach')$$);
SELECT * FROM makers.refuse($$retention('makers.part', 'at', '1 day', partitions => NULL)$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', partitions => 'drop')$$);
SELECT * FROM makers.refuse($$retention('makers.listed', 'at', '1 day', partitions => 'drop')$$);
SELECT * FROM makers.refuse($$retention('makers.computed', 'at', '1 day', partitions => 'drop')$$);
SELECT * FROM makers.refuse($$retention('makers.part', 'at', '1 day', partitions => 'drop', condition => 'id > 1')$$);
CREATE TABLE makers.part_archive (LIKE makers.part);
SELECT * FROM makers.refuse($$retention('makers.part', 'at', '1 day', partitions => 'drop', archive_to => 'makers.part_archive')$$);
CREATE TABLE makers.refers (at timestamptz, id int, PRIMARY KEY (at, id), FOREIGN KEY (at, id) REFERENCES makers.part);
SELECT * FROM makers.refuse($$retention('makers.part', 'at', '1 day', partitions => 'drop')$$);
DROP TABLE makers.refers;

-- as whom
SET ROLE regress_sweep_other;
SELECT sweep.create_retention('makers.event', 'at', '1 day');
RESET ROLE;
GRANT USAGE ON SCHEMA makers TO regress_sweep_maker;
GRANT EXECUTE ON FUNCTION makers.refuse(text) TO regress_sweep_maker;
GRANT SELECT ON sweep.job_state, sweep.run_live TO regress_sweep_maker;
SET ROLE regress_sweep_maker;
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', run_as => 'regress_sweep_other')$$);
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day')$$);
RESET ROLE;
REVOKE SELECT ON sweep.job_state, sweep.run_live FROM regress_sweep_maker;
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', run_as => 'regress_sweep_other')$$);
GRANT USAGE ON SCHEMA makers TO regress_sweep_other;
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', run_as => 'regress_sweep_other')$$);
GRANT SELECT, DELETE ON makers.event TO regress_sweep_other, regress_sweep_maker;
SELECT * FROM makers.refuse($$retention('makers.event', 'at', '1 day', run_as => 'regress_sweep_other')$$);
SELECT * FROM makers.refuse($$backfill('makers.event', 'state = ''x''', 'state IS NULL', run_as => 'regress_sweep_maker')$$);
SELECT * FROM makers.refuse($$copy('makers.event', 'makers.archive', run_as => 'regress_sweep_maker')$$);
GRANT ALL ON makers.part TO regress_sweep_maker;
ALTER TABLE makers.part OWNER TO regress_sweep_other;
SELECT * FROM makers.refuse($$retention('makers.part', 'at', '1 day', partitions => 'drop', run_as => 'regress_sweep_maker')$$);
GRANT UPDATE (state) ON makers.event TO regress_sweep_maker;
\pset tuples_only off
\pset format aligned
SELECT sweep.create_backfill('makers.event', 'state = ''x''', 'state IS NULL', run_as => 'regress_sweep_maker', paused => true);
SELECT sweep.create_retention('makers.event', 'at', '1 day', run_as => 'regress_sweep_maker');
SELECT sweep.create_retention('makers.event', 'at', '1 day', run_as => 'regress_sweep_maker');
SELECT name, run_as FROM sweep.job ORDER BY name;

-- it is that role whose rights count when it runs
CREATE TABLE makers.secret (id int);
INSERT INTO makers.event (id, at) SELECT n, '2026-01-01Z' FROM generate_series(1, 10) AS n;
\c - regress_sweep_maker
\set SHOW_CONTEXT never
SELECT sweep.alter_job('retention_event', jsonb_build_object('args', args || '{"condition": "id > (SELECT count(*) FROM makers.secret)"}')) FROM sweep.job WHERE name = 'retention_event';
\set VERBOSITY sqlstate
CALL sweep.run('retention_event');
-- what has become of the args since is looked at again
CALL sweep.run('retention_event', '{"condition": "false) OR (true"}');
CALL sweep.run('retention_event', '{"condition": "true; DELETE FROM makers.event"}');
CALL sweep.run('retention_event', '{"age_column": "id\" < 1000 OR \"id"}');
CALL sweep.run('retention_event', '{"target": "makers.secret"}');
CALL sweep.run('retention_event', '{"target": null}');
CALL sweep.run('retention_event', '{"keep": "x"}');
CALL sweep.run('backfill_event', '{"set": "id = 1"}');
CALL sweep.run('backfill_event', '{"set": "state = ''y'' WHERE true --"}');
-- and it is for jobs only
SELECT sweep.retention_step(NULL::sweep.batch);
SELECT sweep.retention_step(ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::sweep.batch);
SELECT sweep.copy_step(ROW(10, NULL, '{}', now(), NULL, NULL, NULL, 1)::sweep.batch);
SELECT sweep.backfill_step(ROW(10, '[1]', '{"target": "makers.event"}', now(), NULL, NULL, NULL, 1)::sweep.batch);
SELECT sweep.retention_step(ROW(10, '{"after": "x", "by": "at"}', '{"target": "makers.event", "age_column": "at", "keep": "100 years", "cascade": "batched"}', now(), NULL, NULL, NULL, 1)::sweep.batch);
SELECT sweep._range_statements('retention_step', '{}', true, 10, now(), NULL, NULL, NULL);
\set VERBOSITY default
\c - :superuser
SELECT count(*) FROM makers.event;
-- a name of a table that has gone, and has come again
ALTER TABLE makers.event RENAME TO away;
\c - regress_sweep_maker
\set VERBOSITY sqlstate
CALL sweep.run('backfill_event');
\set VERBOSITY default
\c - :superuser
ALTER TABLE makers.away RENAME TO event;
\c - regress_sweep_maker
SET client_min_messages = warning;
CALL sweep.run('backfill_event');
SELECT detail FROM sweep.runs WHERE job = 'backfill_event' ORDER BY run_id DESC LIMIT 1;
\c - :superuser
SET client_min_messages = warning;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name ~ '^(retention|backfill)_event' ORDER BY name;
DELETE FROM sweep.run_live WHERE job ~ '^(retention|backfill)_event';
DELETE FROM sweep.run_history WHERE job ~ '^(retention|backfill)_event';
DROP SCHEMA makers CASCADE;
DROP ROLE regress_sweep_maker, regress_sweep_other;
