-- room: makers
-- Copies with changes: the target becomes what the source is, whatever happens to it meanwhile.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE SCHEMA moved;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 7100000, false);
CREATE ROLE copy_other;
ALTER DEFAULT PRIVILEGES IN SCHEMA moved GRANT ALL ON TABLES TO copy_other;
ALTER DEFAULT PRIVILEGES IN SCHEMA moved GRANT ALL ON FUNCTIONS TO copy_other;
CREATE VIEW moved.last_run AS SELECT status, stop_reason AS stop, detail - 'lock_timeouts' AS detail, error FROM sweep.runs WHERE job LIKE 'copy%' ORDER BY run_id DESC LIMIT 1;

CREATE TABLE moved.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, u text UNIQUE, v int, twice int GENERATED ALWAYS AS (v * 2) STORED);
INSERT INTO moved.t (u, v) SELECT 'u' || n, n FROM generate_series(1, 2500) AS n;
CREATE TABLE moved.n (LIKE moved.t INCLUDING ALL);
CREATE VIEW moved.differ AS (TABLE moved.t EXCEPT TABLE moved.n) UNION ALL (TABLE moved.n EXCEPT TABLE moved.t);

-- refused
CREATE TABLE moved.no_key (id int, u text);
CREATE TABLE moved.parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
SELECT sweep.create_copy('moved.no_key', 'moved.n', with_changes => true);
SELECT sweep.create_copy('moved.t', 'moved.no_key', with_changes => true);
SELECT sweep.create_copy('moved.parts', 'moved.no_key', with_changes => true);
CREATE UNLOGGED TABLE moved.volatile (LIKE moved.t INCLUDING INDEXES);
SELECT sweep.create_copy('moved.t', 'moved.volatile', with_changes => true);
CREATE TABLE moved.later (id int PRIMARY KEY, u text UNIQUE DEFERRABLE, v int);
SELECT sweep.create_copy('moved.t', 'moved.later', with_changes => true);
SELECT sweep.create_copy('moved.t', 'moved.later', on_conflict => 'nothing');
DROP TABLE moved.later;
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, cursor => 'drain');
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, on_conflict => 'nothing');
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => NULL);

SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, paused => true, batch_size => 400);
SELECT args FROM sweep.job WHERE name = 'copy_t';
SELECT sweep.create_copy('moved.t', 'moved.n', name => 'copy again', with_changes => true);
-- in mid-copy: rows before and behind the cursor are changed, deleted, inserted, get another key, and change places in a unique index
SELECT sweep.alter_job('copy_t', '{"max_batches": 4}');
CALL sweep.run('copy_t');
SELECT count(*) < 2500 AS not_all FROM moved.n;
DELETE FROM moved.t WHERE id IN (5, 2000);
UPDATE moved.t SET v = -v WHERE id IN (6, 2001);
UPDATE moved.t SET id = DEFAULT WHERE id IN (7, 2002);
UPDATE moved.t SET u = 'x' WHERE id = 8;
UPDATE moved.t SET u = 'u8' WHERE id = 2003;
UPDATE moved.t SET u = 'u2003' WHERE id = 8;
INSERT INTO moved.t (u, v) VALUES ('new', 1);
SET session_replication_role = replica;
UPDATE moved.t SET v = 77 WHERE id = 9;
RESET session_replication_role;
SELECT sweep.alter_job('copy_t', '{"max_batches": null}');
CALL sweep.run('copy_t');
SELECT status, stop, ARRAY(SELECT jsonb_object_keys(detail) ORDER BY 1) AS counted, error FROM moved.last_run;
SELECT count(*) AS differ, (SELECT count(*) FROM moved.n) AS copied FROM moved.differ;
-- no role can write keys but by changing rows
SELECT g.grantee::regrole FROM pg_class, aclexplode(relacl) AS g WHERE oid = 'moved.t_sweep_changes'::regclass AND g.grantee <> relowner;
SELECT g.grantee::regrole FROM pg_proc, aclexplode(proacl) AS g WHERE oid = 'moved.t_sweep_changes()'::regprocedure AND g.grantee <> proowner;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'moved.t'::regclass ORDER BY 1;
-- TRUNCATE, with rows before and after it in one transaction; one that is rolled back
BEGIN;
INSERT INTO moved.t (u, v) VALUES ('before', 1);
TRUNCATE moved.t;
INSERT INTO moved.t (u, v) SELECT 'again' || n, n FROM generate_series(1, 1000) AS n;
COMMIT;
BEGIN; TRUNCATE moved.t; ROLLBACK;
UPDATE moved.t SET v = 0 WHERE u = 'again3';
CALL sweep.run('copy_t');
SELECT count(*) AS differ, (SELECT count(*) FROM moved.n) AS copied FROM moved.differ;

SELECT sweep.drop_job('copy_t');
SELECT to_regclass('moved.t_sweep_changes'), to_regproc('moved.t_sweep_changes'), (SELECT count(*) FROM pg_trigger WHERE tgrelid = 'moved.t'::regclass);

-- what was copied fits one definition: neither args, nor a run, nor the columns may be others
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, paused => true);
CALL sweep.run('copy_t');
TRUNCATE moved.n;
CALL sweep.run('copy_t');
SELECT sweep.alter_job('copy_t', '{"args": {"condition": "false"}}');
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, condition => 'false', replace => true);
SELECT sweep.create_copy('moved.t', 'moved.n', replace => true);
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, batch_size => 200, replace => true);
CALL sweep.run('copy_t', '{"condition": "false"}');
ALTER TABLE moved.t ADD COLUMN later int DEFAULT 5;
CALL sweep.run('copy_t');
ALTER TABLE moved.t DROP COLUMN later;
SET default_transaction_isolation = 'repeatable read';
CALL sweep.run('copy_t');
RESET default_transaction_isolation;
CALL sweep.run('copy_t');
ALTER TABLE moved.t DISABLE TRIGGER ALL;
ALTER TABLE moved.t ENABLE TRIGGER ALL;
SELECT sweep.switch_copy('copy_t');
SELECT sweep.drop_job('copy_t');
SELECT sweep.create_copy('moved.t', 'moved.n', name => 'copy plain', paused => true);
SELECT sweep.create_copy('moved.t', 'moved.n', name => 'copy plain', with_changes => true, replace => true);
SELECT sweep.switch_copy('copy plain');
SELECT sweep.drop_job('copy plain');

-- names are those of the run's path: in the condition, and in triggers of the target
CREATE FUNCTION moved.fits(int) RETURNS boolean LANGUAGE sql AS 'SELECT $1 % 2 = 0';
CREATE TABLE moved.log (id int);
CREATE FUNCTION moved.log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (NEW.id); RETURN NULL; END $$;
CREATE TRIGGER log AFTER INSERT ON moved.n FOR EACH ROW EXECUTE FUNCTION moved.log();
TRUNCATE moved.t, moved.n;
INSERT INTO moved.t (id, u) OVERRIDING SYSTEM VALUE SELECT n, 'u' || n FROM generate_series(1, 10) AS n;
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, condition => 'fits(id)', settings => '{"search_path": "moved"}', paused => true);
CALL sweep.run('copy_t');
DELETE FROM moved.t WHERE id = 4;
UPDATE moved.t SET v = 6 WHERE id IN (6, 7);
CALL sweep.run('copy_t');
SELECT id, v FROM moved.n ORDER BY id;
SELECT id, count(*) FROM moved.log GROUP BY id ORDER BY id;
SELECT sweep.drop_job('copy_t');
DROP TRIGGER log ON moved.n;

-- a key of two columns, one of a domain, and a target that is partitioned by what is no key
CREATE DOMAIN moved.word AS text CHECK (VALUE <> '');
CREATE TABLE moved.pair (a moved.word, b bigint, day date NOT NULL, PRIMARY KEY (a, b));
CREATE TABLE moved.days (b bigint, a moved.word, day date NOT NULL, PRIMARY KEY (a, b, day)) PARTITION BY RANGE (day);
CREATE TABLE moved.days_early PARTITION OF moved.days FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE moved.days_late PARTITION OF moved.days FOR VALUES FROM ('2026-02-01') TO ('2027-01-01');
INSERT INTO moved.pair SELECT 'w' || n % 3, n, date '2026-01-01' + n FROM generate_series(0, 50) AS n;
SELECT sweep.create_copy('moved.pair', 'moved.days', with_changes => true, paused => true, batch_size => 10);
CALL sweep.run('copy_pair');
UPDATE moved.pair SET day = day + 31 WHERE b % 5 = 0;
UPDATE moved.pair SET a = 'x' WHERE b % 7 = 0;
DELETE FROM moved.pair WHERE b % 11 = 0;
CALL sweep.run('copy_pair', '{"switch": {}}');
SELECT count(*) FROM ((SELECT a, b, day FROM moved.pair EXCEPT SELECT a, b, day FROM moved.pair_old) UNION ALL (SELECT a, b, day FROM moved.pair_old EXCEPT SELECT a, b, day FROM moved.pair)) AS d;
SELECT relkind, (SELECT count(*) FROM moved.pair) FROM pg_class WHERE oid = 'moved.pair'::regclass;
SELECT sweep.drop_job('copy_pair');

DELETE FROM sweep.run_live WHERE job LIKE 'copy%';
DELETE FROM sweep.run_history WHERE job LIKE 'copy%';
DROP SCHEMA moved CASCADE;
DROP ROLE copy_other;
