-- room: makers
-- A copy with changes whose source is altered meanwhile: what was copied before does not have it, and no copy without it takes the name of the source.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE SCHEMA altered;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 7700000, false);

-- ---------------------------------------------------------------- another collation: the keys have another order
CREATE TABLE altered.t (k text COLLATE "C" PRIMARY KEY, v int);
INSERT INTO altered.t SELECT chr(65 + n % 26) || n, n FROM generate_series(1, 100) AS n;
INSERT INTO altered.t SELECT chr(97 + n % 26) || n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.n (k text PRIMARY KEY, v int);
SELECT sweep.create_copy('altered.t', 'altered.n', with_changes => true, batch_size => 30, max_batches => 3, paused => true, name => 'altered collation');
CALL sweep.run('altered collation');
SELECT count(*) BETWEEN 1 AND 199 AS some FROM altered.n;
ALTER TABLE altered.t ALTER k TYPE text COLLATE "en-x-icu";
CALL sweep.run('altered collation');
CALL sweep.run('altered collation', '{"switch": {}}');
SELECT to_regclass('altered.t_old');
SELECT sweep.drop_job('altered collation');
DROP TABLE altered.t, altered.n;

-- ---------------------------------------------------------------- a column that is another one of the same name and type
CREATE TABLE altered.t (k int PRIMARY KEY, v int);
INSERT INTO altered.t SELECT n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.n (LIKE altered.t INCLUDING ALL);
SELECT sweep.create_copy('altered.t', 'altered.n', with_changes => true, paused => true, name => 'altered column');
CALL sweep.run('altered column');
BEGIN;
ALTER TABLE altered.t DROP v;
ALTER TABLE altered.t ADD v int DEFAULT 0;
COMMIT;
CALL sweep.run('altered column', '{"switch": {}}');
SELECT to_regclass('altered.t_old');
SELECT sweep.drop_job('altered column');
DROP TABLE altered.t, altered.n;

-- ---------------------------------------------------------------- a column of the copy that is not generated any more
CREATE TABLE altered.t (k int PRIMARY KEY, v int, w int);
INSERT INTO altered.t SELECT n, n, -n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.n (k int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v + 1) STORED);
SELECT sweep.create_copy('altered.t', 'altered.n', with_changes => true, batch_size => 10, max_batches => 3, paused => true, name => 'altered generated');
CALL sweep.run('altered generated');
ALTER TABLE altered.n ALTER w DROP EXPRESSION;
CALL sweep.run('altered generated');
CALL sweep.run('altered generated', '{"switch": {}}');
SELECT to_regclass('altered.t_old');
SELECT sweep.drop_job('altered generated');
DROP TABLE altered.t, altered.n;

-- ---------------------------------------------------------------- another type, between two batches of a run
CREATE TABLE altered.t (k int PRIMARY KEY, v int);
INSERT INTO altered.t SELECT n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.n (LIKE altered.t INCLUDING ALL);
SELECT sweep.create_copy('altered.t', 'altered.n', with_changes => true, batch_size => 10, pause => '1 s', name => 'altered type');
DO $$ BEGIN WHILE (SELECT count(*) FROM altered.n) < 20 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
ALTER TABLE altered.t ALTER v TYPE bigint USING v * 2;
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.runs WHERE job = 'altered type' AND finished_at IS NULL) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
SELECT status, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE job = 'altered type';
SELECT count(*) < 100 AS some FROM altered.n;
SELECT sweep.drop_job('altered type');
DROP TABLE altered.t, altered.n;

-- ---------------------------------------------------------------- a table that became a partition, or the parent of another one
CREATE TABLE altered.t (k int PRIMARY KEY, v int);
INSERT INTO altered.t SELECT n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.n (LIKE altered.t INCLUDING ALL);
SELECT sweep.create_copy('altered.t', 'altered.n', with_changes => true, paused => true, name => 'altered tree');
CALL sweep.run('altered tree');
CREATE TABLE altered.p (k int, v int) PARTITION BY RANGE (k);
ALTER TABLE altered.p ATTACH PARTITION altered.t FOR VALUES FROM (0) TO (1000);
SELECT sweep.switch_copy('altered tree', carry => true);
ALTER TABLE altered.p DETACH PARTITION altered.t;
CREATE TABLE altered.c () INHERITS (altered.t);
INSERT INTO altered.c VALUES (1000, 1);
SELECT sweep.switch_copy('altered tree', carry => true);
CALL sweep.run('altered tree', '{"switch": {"leave": ["inheritance"]}}');
SELECT (SELECT count(*) FROM altered.t), (SELECT count(*) FROM altered.t_old);
SELECT sweep.drop_job('altered tree');

-- ---------------------------------------------------------------- another collation of the source of a copy without changes, between two runs and between two batches
CREATE TABLE altered.word (k text COLLATE "C" PRIMARY KEY, v int);
INSERT INTO altered.word SELECT chr(CASE WHEN n % 2 = 0 THEN 65 ELSE 97 END + n % 26) || n, n FROM generate_series(1, 200) AS n;
CREATE TABLE altered.words (k text PRIMARY KEY, v int);
SELECT sweep.create_copy('altered.word', 'altered.words', batch_size => 30, max_batches => 3, paused => true, name => 'altered plain');
CALL sweep.run('altered plain');
ALTER TABLE altered.word ALTER k TYPE text COLLATE "en-x-icu";
CALL sweep.run('altered plain');
ALTER TABLE altered.word ALTER k TYPE text COLLATE "C";
CALL sweep.run('altered plain');
SELECT count(*) > 90 AS more FROM altered.words;
SELECT sweep.drop_job('altered plain');
TRUNCATE altered.words;
SELECT sweep.create_copy('altered.word', 'altered.words', batch_size => 10, pause => '1 s', cursor => 'run', name => 'altered batch');
DO $$ BEGIN WHILE (SELECT count(*) FROM altered.words) < 20 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
ALTER TABLE altered.word ALTER k TYPE text COLLATE "en-x-icu";
DO $$ BEGIN WHILE (SELECT finished_at IS NULL FROM sweep.runs WHERE job = 'altered batch' ORDER BY run_id LIMIT 1) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
SELECT status, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE job = 'altered batch' ORDER BY run_id LIMIT 1;
SELECT sweep.drop_job('altered batch');
DROP TABLE altered.word, altered.words;

-- ---------------------------------------------------------------- a key that was a number and becomes a text, as it is in the target
CREATE TABLE altered.number (k int PRIMARY KEY);
INSERT INTO altered.number SELECT n FROM generate_series(1, 120) AS n;
CREATE TABLE altered.numbers (k text PRIMARY KEY);
SELECT sweep.create_copy('altered.number', 'altered.numbers', batch_size => 30, max_batches => 2, paused => true, name => 'altered number');
CALL sweep.run('altered number');
ALTER TABLE altered.number ALTER k TYPE bigint;
CALL sweep.run('altered number');
ALTER TABLE altered.number ALTER k TYPE text;
INSERT INTO altered.number VALUES (1000);
CALL sweep.run('altered number');
SELECT count(*) FROM altered.numbers;
SELECT sweep.drop_job('altered number');
DROP TABLE altered.number, altered.numbers;

-- ---------------------------------------------------------------- a copy with changes: keys that cannot be compared, and a table that a crash would empty
CREATE TABLE altered.ledger (k int PRIMARY KEY, v int);
INSERT INTO altered.ledger SELECT n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.ledgers (k text PRIMARY KEY, v int);
SELECT sweep.create_copy('altered.ledger', 'altered.ledgers', with_changes => true, paused => true, name => 'altered logged');
ALTER TABLE altered.ledgers ALTER k TYPE numeric USING k::numeric;
SELECT sweep.create_copy('altered.ledger', 'altered.ledgers', with_changes => true, paused => true, name => 'altered logged');
CALL sweep.run('altered logged');
ALTER TABLE altered.ledgers SET UNLOGGED;
CALL sweep.run('altered logged', '{"switch": {}}');
ALTER TABLE altered.ledgers SET LOGGED;
UPDATE altered.ledger SET v = 0 WHERE k > 90;
CALL sweep.run('altered logged');
SELECT count(*), sum(v) FROM altered.ledgers;
SELECT sweep.drop_job('altered logged');
DROP TABLE altered.ledger, altered.ledgers;

-- ---------------------------------------------------------------- another collation of the key: of the same equality, and of another one
CREATE COLLATION altered.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE altered.word (k text COLLATE "C" PRIMARY KEY, v int);
INSERT INTO altered.word SELECT chr(CASE WHEN n % 2 = 0 THEN 65 ELSE 97 END + n % 26) || n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.words (k text COLLATE "en-x-icu" PRIMARY KEY, v int);
SELECT sweep.create_copy('altered.word', 'altered.words', with_changes => true, paused => true, name => 'altered compared', batch_size => 30);
CALL sweep.run('altered compared');
UPDATE altered.word SET k = lower(k), v = 0 WHERE v > 80;
DELETE FROM altered.word WHERE v = 7;
CALL sweep.run('altered compared');
SELECT count(*) FROM (SELECT k COLLATE "C", v FROM altered.word EXCEPT SELECT k COLLATE "C", v FROM altered.words) AS e;
SELECT count(*), count(*) FILTER (WHERE v = 0) FROM altered.words;
SELECT sweep.drop_job('altered compared');
TRUNCATE altered.words;
ALTER TABLE altered.words ALTER k TYPE text COLLATE altered.loose;
SELECT sweep.create_copy('altered.word', 'altered.words', with_changes => true, paused => true, name => 'altered compared');
ALTER TABLE altered.word ALTER k TYPE text COLLATE altered.loose;
SELECT sweep.create_copy('altered.word', 'altered.words', with_changes => true, paused => true, name => 'altered compared');
CALL sweep.run('altered compared');
UPDATE altered.word SET k = upper(k) WHERE v < 20;
DELETE FROM altered.word WHERE v = 9;
CALL sweep.run('altered compared');
SELECT count(*) FROM (SELECT k COLLATE "C", v FROM altered.word EXCEPT SELECT k COLLATE "C", v FROM altered.words) AS e;
SELECT count(*) FROM altered.words;
SELECT sweep.drop_job('altered compared');
DROP TABLE altered.word, altered.words;

-- ---------------------------------------------------------------- a type of the key that rounds it: a row that goes would stay in the copy
CREATE TABLE altered.ledger (k numeric PRIMARY KEY, v int);
INSERT INTO altered.ledger SELECT n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.ledgers (k int PRIMARY KEY, v int);
SELECT sweep.create_copy('altered.ledger', 'altered.ledgers', 'k < 5000000000', with_changes => true, paused => true, name => 'altered rounded');
CALL sweep.run('altered rounded');
INSERT INTO altered.ledger VALUES (200, 200), (1000000000000, 0);
CALL sweep.run('altered rounded');
INSERT INTO altered.ledger VALUES (200.5, 1);
CALL sweep.run('altered rounded');
DELETE FROM altered.ledger WHERE v IN (0, 1);
CALL sweep.run('altered rounded');
SELECT count(*), max(k) FROM altered.ledgers;
SELECT sweep.drop_job('altered rounded');
DROP TABLE altered.ledger, altered.ledgers;
-- also when it goes before its key is looked at
CREATE TABLE altered.ledger (k numeric PRIMARY KEY, v int);
INSERT INTO altered.ledger VALUES (1, 1), (2.4, 2);
CREATE TABLE altered.ledgers (k int PRIMARY KEY, v int);
SELECT sweep.create_copy('altered.ledger', 'altered.ledgers', with_changes => true, paused => true, name => 'altered rounded', max_batches => 2);
CALL sweep.run('altered rounded');
DELETE FROM altered.ledger WHERE v = 2;
CALL sweep.run('altered rounded');
TABLE altered.ledgers;
INSERT INTO altered.ledger VALUES (3.4, 3);
CALL sweep.run('altered rounded');
SELECT sweep.drop_job('altered rounded');
DROP TABLE altered.ledger, altered.ledgers;

-- ---------------------------------------------------------------- a domain with a collation of its own as the type of the key
CREATE DOMAIN altered.sorted AS text COLLATE "en-x-icu";
CREATE TABLE altered.word (k text COLLATE "C" PRIMARY KEY, v int);
INSERT INTO altered.word SELECT n, n FROM generate_series(1, 20) AS n;
CREATE TABLE altered.words (k altered.sorted PRIMARY KEY, v int);
SELECT sweep.create_copy('altered.word', 'altered.words', with_changes => true, paused => true, name => 'altered domain');
CALL sweep.run('altered domain');
UPDATE altered.word SET v = 0 WHERE v > 15;
DELETE FROM altered.word WHERE v = 7;
CALL sweep.run('altered domain');
SELECT count(*), count(*) FILTER (WHERE v = 0) FROM altered.words;
SELECT sweep.drop_job('altered domain');
DROP TABLE altered.word, altered.words;

-- ---------------------------------------------------------------- a schema that has another name: it can have its own again, or the job is dropped
CREATE SCHEMA altered_app;
CREATE TABLE altered_app.t (k int PRIMARY KEY, v int);
INSERT INTO altered_app.t SELECT n, n FROM generate_series(1, 20) AS n;
CREATE TABLE altered_app.n (LIKE altered_app.t INCLUDING ALL);
SELECT sweep.create_copy('altered_app.t', 'altered_app.n', with_changes => true, paused => true, name => 'altered schema');
CALL sweep.run('altered schema');
ALTER SCHEMA altered_app RENAME TO altered_other;
UPDATE altered_other.t SET v = 0 WHERE k = 1;
CALL sweep.run('altered schema');
ALTER SCHEMA altered_other RENAME TO altered_app;
UPDATE altered_app.t SET v = 0 WHERE k = 2;
CALL sweep.run('altered schema');
SELECT v, count(*) FROM altered_app.n WHERE k IN (1, 2) GROUP BY v ORDER BY v;
ALTER SCHEMA altered_app RENAME TO altered_other;
-- of a role that has no rights to them: a table of that name, and a job whose args cannot be read as one
CREATE ROLE altered_role;
GRANT sweep_user TO altered_role;
CREATE SCHEMA altered_decoy AUTHORIZATION altered_role;
SET ROLE altered_role;
CREATE TABLE altered_decoy.t_sweep_changes (id int);
COMMENT ON TABLE altered_decoy.t_sweep_changes IS 'keys of rows that a job of sweep.create_copy copies anew';
RESET ROLE;
SELECT sweep.create_job('altered decoy', batch_sql => 'DELETE FROM altered_decoy.t_sweep_changes WHERE id IN (SELECT id FROM altered_decoy.t_sweep_changes LIMIT $1)', args => '{"changes": "a.b.c"}');
SELECT sweep.drop_job('altered schema');
SELECT to_regclass('altered_decoy.t_sweep_changes');
SELECT sweep.drop_job('altered decoy');
DROP OWNED BY altered_role;
DROP ROLE altered_role;
UPDATE altered_other.t SET v = 0 WHERE k = 1;
SELECT count(*) FROM pg_class WHERE relname LIKE '%sweep_changes' AND relnamespace = 'altered_other'::regnamespace;
DROP SCHEMA altered_other CASCADE;

-- ---------------------------------------------------------------- a column of the source that is generated in another way, or not any more
CREATE TABLE altered.g (k int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v + 1) STORED);
INSERT INTO altered.g SELECT n, n FROM generate_series(1, 100) AS n;
CREATE TABLE altered.h (k int PRIMARY KEY, v int, w int);
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered expression');
CALL sweep.run('altered expression');
DO $$ BEGIN EXECUTE 'ALTER TABLE altered.g ALTER w ' || CASE WHEN current_setting('server_version_num')::int >= 170000 THEN 'SET EXPRESSION AS (v + 2)' ELSE 'DROP EXPRESSION' END; END $$;
UPDATE altered.g SET v = 0 WHERE k = 1;
CALL sweep.run('altered expression', '{"switch": {}}');
SELECT to_regclass('altered.g_old');
SELECT sweep.drop_job('altered expression');
DROP TABLE altered.g, altered.h;

CREATE TABLE altered.g (k int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v + 1) STORED);
CREATE TABLE altered.h (LIKE altered.g INCLUDING ALL);
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered expression');
CALL sweep.run('altered expression');
ALTER TABLE altered.g ALTER w DROP EXPRESSION;
INSERT INTO altered.g VALUES (1, 1, 10);
CALL sweep.run('altered expression', '{"switch": {}}');
SELECT to_regclass('altered.g_old');
SELECT sweep.drop_job('altered expression');
DROP TABLE altered.g, altered.h;

-- it is the same one where the role writes dates and intervals in another way
CREATE TABLE altered.g (k int PRIMARY KEY, v date, i interval, w bool GENERATED ALWAYS AS (v > '2026-01-02'::date AND i > '1 day 2 hours'::interval) STORED);
INSERT INTO altered.g SELECT n, '2026-01-01', '1 day' FROM generate_series(1, 100) AS n;
CREATE TABLE altered.h (LIKE altered.g INCLUDING ALL);
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered expression');
CALL sweep.run('altered expression');
SELECT sweep.alter_job('altered expression', '{"settings": {"datestyle": "German", "intervalstyle": "iso_8601"}}');
CALL sweep.run('altered expression', '{"switch": {}}');
SELECT to_regclass('altered.g_old');
SELECT sweep.drop_job('altered expression');
DROP TABLE altered.g, altered.g_old;

-- ---------------------------------------------------------------- a trigger of the copy that keeps rows: one that is gone would be there again
CREATE FUNCTION altered.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN OLD.v < 0 THEN OLD END; END $$;
CREATE TABLE altered.g (k int PRIMARY KEY, v int);
INSERT INTO altered.g SELECT n, CASE WHEN n < 50 THEN n ELSE -n END FROM generate_series(1, 100) AS n;
CREATE TABLE altered.h (LIKE altered.g INCLUDING ALL) PARTITION BY RANGE (k);
CREATE TABLE altered.h1 PARTITION OF altered.h FOR VALUES FROM (0) TO (1000);
CREATE TRIGGER keep BEFORE DELETE ON altered.h1 FOR EACH ROW EXECUTE FUNCTION altered.keep();
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered kept');
CALL sweep.run('altered kept');
DELETE FROM altered.g WHERE k = 70;
UPDATE altered.g SET v = 0 WHERE k = 71;
CALL sweep.run('altered kept');
SELECT count(*), max(v) FILTER (WHERE k = 71) FROM altered.h;
DELETE FROM altered.g WHERE k = 7;
CALL sweep.run('altered kept', '{"switch": {}}');
SELECT to_regclass('altered.g_old');
DROP TRIGGER keep ON altered.h1;
CALL sweep.run('altered kept', '{"switch": {}}');
SELECT count(*), count(*) FILTER (WHERE k IN (7, 70)) FROM altered.g;
SELECT sweep.drop_job('altered kept');
DROP TABLE altered.g, altered.g_old;

-- one that comes while a run goes on
CREATE TABLE altered.g (k int PRIMARY KEY, v int);
INSERT INTO altered.g SELECT n, n FROM generate_series(1, 200) AS n;
CREATE TABLE altered.h (LIKE altered.g INCLUDING ALL);
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered kept', batch_size => 1, pause => '20 ms');
SELECT sweep.start('altered kept') AS run_id \gset
DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM altered.h WHERE k = 5) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$; -- the sleep is the work
CREATE TRIGGER keep BEFORE DELETE ON altered.h FOR EACH ROW EXECUTE FUNCTION altered.keep();
DELETE FROM altered.g WHERE k = 1;
CALL sweep.wait(:run_id, '1 min');
SELECT status, split_part(error, E'\n', 1) FROM sweep.runs WHERE run_id = :run_id;
SELECT sweep.drop_job('altered kept');
DROP TABLE altered.g, altered.h;

-- one that leaves rows out: they would be missing
CREATE FUNCTION altered.leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN NEW.v >= 0 THEN NEW END; END $$;
CREATE TABLE altered.g (k int PRIMARY KEY, v int);
INSERT INTO altered.g SELECT n, CASE n WHEN 7 THEN -n ELSE n END FROM generate_series(1, 20) AS n;
CREATE TABLE altered.h (LIKE altered.g INCLUDING ALL);
CREATE TRIGGER leave_out BEFORE INSERT ON altered.h FOR EACH ROW EXECUTE FUNCTION altered.leave_out();
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered left out');
CALL sweep.run('altered left out');
UPDATE altered.g SET v = 7 WHERE k = 7;
CALL sweep.run('altered left out');
UPDATE altered.g SET v = -1 WHERE k = 3;
CALL sweep.run('altered left out', '{"switch": {}}');
SELECT to_regclass('altered.g_old');
DROP TRIGGER leave_out ON altered.h;
CALL sweep.run('altered left out', '{"switch": {}}');
SELECT count(*), count(*) FILTER (WHERE v < 0) FROM altered.g;
SELECT sweep.drop_job('altered left out');
DROP TABLE altered.g, altered.g_old;

-- ---------------------------------------------------------------- longer keys: those who write them have no error
CREATE TABLE altered.g (k varchar(3), c char(3), n numeric(3,1), b bit(3), v int, PRIMARY KEY (k, c, n, b));
INSERT INTO altered.g SELECT n, n, n, n::bit(3) FROM generate_series(1, 20) AS n;
CREATE TABLE altered.h (LIKE altered.g INCLUDING ALL);
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered longer', batch_size => 7);
CALL sweep.run('altered longer');
UPDATE altered.g SET v = 1, c = 'x' WHERE n < 5;
DELETE FROM altered.g WHERE n > 18;
CALL sweep.run('altered longer');
SELECT count(*), (SELECT count(*) FROM (TABLE altered.g EXCEPT TABLE altered.h) AS d) AS other FROM altered.h;
ALTER TABLE altered.g ALTER k TYPE varchar(9), ALTER c TYPE char(9), ALTER n TYPE numeric(9,2);
INSERT INTO altered.g VALUES ('longer', 'longer', 1000.01, '001');
CALL sweep.run('altered longer');
SELECT sweep.drop_job('altered longer');
DROP TABLE altered.g, altered.h;
-- of a domain of another one, which takes no null
CREATE DOMAIN altered.short AS varchar(3) NOT NULL;
CREATE DOMAIN altered.code AS altered.short;
CREATE TABLE altered.g (k altered.code PRIMARY KEY, v int);
INSERT INTO altered.g SELECT n, n FROM generate_series(1, 20) AS n;
CREATE TABLE altered.h (LIKE altered.g INCLUDING ALL);
SELECT sweep.create_copy('altered.g', 'altered.h', with_changes => true, paused => true, name => 'altered longer');
CALL sweep.run('altered longer');
TRUNCATE altered.g;
INSERT INTO altered.g VALUES ('abc', 1);
CALL sweep.run('altered longer');
SELECT * FROM altered.h;
ALTER TABLE altered.g ALTER k TYPE varchar(9);
-- a session that has written before does not know it by its new type
\c -
SET client_min_messages = warning;
INSERT INTO altered.g VALUES ('longer', 2);
CALL sweep.run('altered longer');
SELECT sweep.drop_job('altered longer');
DROP TABLE altered.g, altered.h;

DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.run_live WHERE job LIKE 'altered%') AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
DELETE FROM sweep.run_history WHERE job LIKE 'altered%';
DROP SCHEMA altered CASCADE;
