-- room: makers
-- A table that refers to the target is asked as its owner, by its name. Whoever owns the schema can give that name to something of his own while
-- a statement, or a run, is in progress, and whoever owns the table can alter it: the owner executes nothing of another role, and the server
-- stays up.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE ROLE regress_sweep_mallory LOGIN IN ROLE sweep_user;
CREATE SCHEMA swapped AUTHORIZATION regress_sweep_mallory;
CREATE SCHEMA swapped_later AUTHORIZATION regress_sweep_mallory;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_sweep_mallory', current_database()); END $$;
SELECT current_user AS superuser \gset

\c - regress_sweep_mallory
SET client_min_messages = warning;
CREATE TABLE swapped.t (id int PRIMARY KEY);
INSERT INTO swapped.t SELECT generate_series(1, 9);
\c - :superuser
SET client_min_messages = warning;
CREATE TABLE swapped.audit (id int PRIMARY KEY, t_id int REFERENCES swapped.t);
CREATE INDEX ON swapped.audit (t_id);
INSERT INTO swapped.audit VALUES (1, 2);
CREATE TABLE swapped.part (t_id int REFERENCES swapped.t ON DELETE CASCADE);
-- An index that only statements use.
CREATE INDEX ON swapped.part USING hash (t_id);
INSERT INTO swapped.part SELECT generate_series(3, 9);
SELECT oid AS key FROM pg_constraint WHERE conname = 'audit_t_id_fkey' AND conrelid = 'swapped.audit'::regclass \gset

-- ---------------------------------------------------------------- another schema of that name, in the middle of a statement
\c - regress_sweep_mallory
SET client_min_messages = warning;
CREATE TABLE swapped_later.seen (as_whom text);
GRANT INSERT ON swapped_later.seen TO PUBLIC;
CREATE FUNCTION swapped_later.act() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO swapped_later.seen VALUES (current_user); RETURN 2; END $$;
CREATE VIEW swapped_later.audit AS SELECT swapped_later.act() AS t_id;
CREATE TABLE swapped_later.t (id int PRIMARY KEY);
INSERT INTO swapped_later.t SELECT generate_series(1, 9);
CREATE VIEW swapped_later.part AS SELECT swapped_later.act() AS t_id, 0 AS x;
CREATE FUNCTION swapped_later.swap(n int, at int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF n = at THEN
		ALTER SCHEMA swapped RENAME TO swapped_before;
		ALTER SCHEMA swapped_later RENAME TO swapped;
	END IF;
	RETURN n;
END $$;
SELECT n, sweep._reference_exists(:key, n) FROM generate_series(1, 3) AS n;
SELECT n, sweep._reference_exists(:key, swapped_later.swap(n, 2)) FROM generate_series(1, 3) AS n;
SELECT * FROM swapped_later.seen;

-- ---------------------------------------------------------------- and between two batches
SELECT run_id FROM sweep.delete('swapped.t', 'id > 2', name => 'swapped tables', batch_size => 2, pause => '1 s') \gset
DO $$ BEGIN WHILE (SELECT count(*) FROM swapped.t) > 8 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
DO $$ BEGIN PERFORM swapped_later.swap(1, 1); END $$;
CALL sweep.wait(:run_id);
SELECT * FROM swapped.seen;
ALTER SCHEMA swapped RENAME TO swapped_later;
ALTER SCHEMA swapped_before RENAME TO swapped;
SELECT sweep.drop_job('swapped tables');

-- ---------------------------------------------------------------- another type of the key, between two batches
CREATE TABLE swapped_later.p (id int PRIMARY KEY, k text UNIQUE);
CREATE TABLE swapped_later.c (k text REFERENCES swapped_later.p (k) ON DELETE CASCADE);
CREATE INDEX ON swapped_later.c (k);
INSERT INTO swapped_later.p SELECT n, n FROM generate_series(1, 9) AS n;
INSERT INTO swapped_later.c SELECT n FROM generate_series(1, 9) AS n;
SELECT run_id FROM sweep.delete('swapped_later.p', 'true', name => 'swapped types', batch_size => 2, pause => '1 s') \gset
DO $$ BEGIN WHILE (SELECT count(*) FROM swapped_later.p) > 8 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
BEGIN;
ALTER TABLE swapped_later.c DROP CONSTRAINT c_k_fkey;
ALTER TABLE swapped_later.p ALTER k TYPE bigint USING k::bigint;
ALTER TABLE swapped_later.c ALTER k TYPE bigint USING k::bigint;
ALTER TABLE swapped_later.c ADD FOREIGN KEY (k) REFERENCES swapped_later.p (k) ON DELETE CASCADE;
COMMIT;
\set VERBOSITY sqlstate
CALL sweep.wait(:run_id);
\set VERBOSITY terse
SELECT status, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE run_id = :run_id;
SELECT sweep.drop_job('swapped types');

-- ---------------------------------------------------------------- a view whose columns have the names of those of the system, between two batches
CREATE TABLE swapped_later.q (id int PRIMARY KEY);
CREATE TABLE swapped_later.d (id int REFERENCES swapped_later.q ON DELETE CASCADE);
CREATE INDEX ON swapped_later.d (id);
INSERT INTO swapped_later.q SELECT generate_series(1, 9);
SELECT run_id FROM sweep.delete('swapped_later.q', 'true', name => 'swapped views', batch_size => 1, pause => '1 s') \gset
DO $$ BEGIN WHILE (SELECT count(*) FROM swapped_later.q) > 8 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
BEGIN;
ALTER TABLE swapped_later.q RENAME TO q_before;
CREATE VIEW swapped_later.q AS SELECT id, NULL::tid AS ctid, 1::oid AS tableoid FROM swapped_later.q_before;
COMMIT;
\set VERBOSITY sqlstate
CALL sweep.wait(:run_id);
\set VERBOSITY terse
SELECT status, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE run_id = :run_id;
SELECT sweep.drop_job('swapped views');

-- ---------------------------------------------------------------- a key whose cast is a function of another role than the owner of its table
CREATE TYPE swapped_later.number AS (v int);
CREATE FUNCTION swapped_later.to_int(swapped_later.number) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1.v; END $$;
CREATE CAST (swapped_later.number AS int) WITH FUNCTION swapped_later.to_int(swapped_later.number) AS IMPLICIT;
CREATE TABLE swapped_later.r (id int PRIMARY KEY);
\c - :superuser
SET client_min_messages = warning;
CREATE ROLE regress_sweep_owner;
CREATE TABLE swapped_later.odd (n swapped_later.number REFERENCES swapped_later.r);
ALTER TABLE swapped_later.odd OWNER TO regress_sweep_owner;
GRANT USAGE ON SCHEMA swapped_later TO regress_sweep_owner;
SELECT oid AS key FROM pg_constraint WHERE conrelid = 'swapped_later.odd'::regclass AND contype = 'f' \gset
\c - regress_sweep_mallory
SELECT sweep._reference_exists(:key, 1);

\c - :superuser
SET client_min_messages = warning;
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.run_live WHERE job LIKE 'swapped%') AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
DELETE FROM sweep.run_history WHERE job LIKE 'swapped%';
DROP SCHEMA swapped, swapped_later CASCADE;
DROP OWNED BY regress_sweep_mallory, regress_sweep_owner;
DROP ROLE regress_sweep_mallory, regress_sweep_owner;
