-- room: makers
-- Statements in batches that would do rows twice, or others than are meant: keys that triggers change, keys that are not exact as texts, functions that are executed once,
-- operators of the path of the job that fit better.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS once, once_shadow CASCADE;
CREATE SCHEMA once;
CREATE SCHEMA once_shadow;
SET search_path = once;

-- a trigger, or another session, moves rows in an index that serves the condition: only an update after which no row meets it goes by that
CREATE TABLE item (id int PRIMARY KEY, n int DEFAULT 0, pad text, updated_at timestamptz NOT NULL);
CREATE INDEX ON item (updated_at, id);
INSERT INTO item SELECT n, 0, repeat('x', 100), now() - interval '9 days' + CASE WHEN n > 29800 THEN interval '8 days' ELSE interval '0' END + n * interval '1 ms' FROM generate_series(1, 30000) AS n;
ANALYZE item;
CREATE INDEX ON item ((id % 300), id);
ANALYZE item;
SELECT args -> 'key' AS key, args -> 'serves' AS serves FROM (VALUES (1, 'n = n + 1 WHERE updated_at > now() - interval ''3 days'''), (2, 'n = 1 WHERE updated_at > now() - interval ''3 days'' AND n <> 1'), (3, 'n = n + 1 WHERE id % 300 = 7')) AS s (nth, text),
	LATERAL sweep._batched_args(current_user, 'UPDATE once.item SET ' || text, NULL) ORDER BY nth;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updated_at := clock_timestamp(); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION touch();
SELECT sweep.batched('UPDATE item SET n = n + 1 WHERE updated_at > now() - interval ''3 days''', batch_size => 5000, max_batches => 20, pause => NULL, name => 'once', keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, stop_reason, detail FROM sweep.runs WHERE run_id = :run_id;
SELECT n, count(*) FROM item GROUP BY n ORDER BY n;
-- a key that the owner of the job has altered
SELECT sweep.alter_job('once', jsonb_build_object('args', args || '{"key": ["updated_at", "id"], "serves": true}')) FROM sweep.job WHERE name = 'once';
\set VERBOSITY sqlstate
CALL sweep.run('once');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'once' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.drop_job('once');
-- without a primary key by a unique index that has no more columns
ALTER TABLE item DROP CONSTRAINT item_pkey, ADD UNIQUE (id), ALTER id SET NOT NULL;
SELECT args -> 'key' AS key FROM sweep._batched_args(current_user, 'UPDATE once.item SET n = n + 1 WHERE updated_at > now() - interval ''3 days''', NULL);
DROP TABLE item;

-- rows without a key, in a table without a primary key: none of those that meet the condition, nor does one of them bound these
CREATE TABLE nulled (u int, kind int, n int DEFAULT 0);
INSERT INTO nulled SELECT nullif(n, n / 10 * 10), nullif(n % 200, 0) FROM generate_series(1, 20000) AS n;
CREATE INDEX ON nulled (kind);
ANALYZE nulled;
SELECT sweep.batched('DELETE FROM nulled WHERE kind = 7', name => 'once', keep_job => true, batch_size => 30, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT j.args -> 'key' AS key, r.detail, (SELECT count(*) FROM nulled WHERE kind = 7) AS left FROM sweep.runs r JOIN sweep.job j ON j.name = r.job WHERE r.run_id = :run_id;
SELECT sweep.drop_job('once');
SELECT run_id FROM sweep.delete('once.nulled', 'kind IN (8, 9)', name => 'once', keep_job => true, batch_size => 30, pause => NULL) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT j.args -> 'key' AS key, r.detail, (SELECT count(*) FROM nulled WHERE kind IN (8, 9)) AS left FROM sweep.runs r JOIN sweep.job j ON j.name = r.job WHERE r.run_id = :run_id;
SELECT sweep.drop_job('once');
SELECT sweep.batched('UPDATE nulled SET n = 1 WHERE kind = 11 AND n <> 1', batch_size => 30, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT n, count(*) FROM nulled WHERE kind = 11 GROUP BY n;
ALTER TABLE nulled ADD UNIQUE (u);
SELECT sweep.batched('UPDATE nulled SET n = n + 1 WHERE kind = 12');
SELECT sweep.batched('UPDATE nulled SET n = n + 1 WHERE kind = 12 AND u IS NOT NULL', pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT n, u IS NULL AS no_key, count(*) FROM nulled WHERE kind IN (10, 12) GROUP BY 1, 2 ORDER BY 1, 2;
-- a setting of the session, which the job does not have
SET once.kind = '13';
SELECT sweep.batched('DELETE FROM nulled WHERE kind IS DISTINCT FROM (SELECT current_setting(''once.kind'', true)::int)');
SELECT sweep.batched('UPDATE nulled SET n = current_setting(''once.kind'')::int');
SELECT sweep.batched('DELETE FROM nulled WHERE n = length(session_user) OR n = length(current_schema())');
SELECT sweep.batched('UPDATE nulled SET n = (SELECT length(current_schema))');
SELECT run_id FROM sweep.delete('once.nulled', 'kind IS DISTINCT FROM current_setting(''once.kind'', true)::int');
RESET once.kind;

-- rows with the same key, the first of which a policy does not let the role update
CREATE ROLE regress_sweep_once LOGIN IN ROLE sweep_user;
CREATE TABLE shared (id int PRIMARY KEY, kind int NOT NULL, is_own boolean, state text DEFAULT 'new');
INSERT INTO shared SELECT n, n / 100, n % 100 >= 10 FROM generate_series(1, 20000) AS n;
CREATE INDEX ON shared (kind);
ALTER TABLE shared ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON shared FOR SELECT TO regress_sweep_once USING (true);
CREATE POLICY own ON shared FOR UPDATE TO regress_sweep_once USING (is_own);
GRANT USAGE ON SCHEMA once TO regress_sweep_once;
GRANT SELECT, UPDATE ON shared TO regress_sweep_once;
ANALYZE shared;
SELECT sweep.batched('UPDATE shared SET state = ''done'' WHERE state = ''new'' AND kind = 7', batch_size => 7, pause => NULL, run_as => 'regress_sweep_once', name => 'once', keep_job => true) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT j.args -> 'key' AS key, r.status, r.detail FROM sweep.runs r JOIN sweep.job j ON j.name = r.job WHERE r.run_id = :run_id;
SELECT state, is_own, count(*) FROM shared WHERE kind = 7 GROUP BY 1, 2 ORDER BY 1;
SELECT sweep.drop_job('once');
DELETE FROM sweep.run_live WHERE run_as = 'regress_sweep_once';
DELETE FROM sweep.run_history WHERE run_as = 'regress_sweep_once';
DROP TABLE shared;
REVOKE USAGE ON SCHEMA once FROM regress_sweep_once;
DROP ROLE regress_sweep_once;

-- a key that its text is not exactly, with the settings of the role
CREATE ROLE regress_sweep_once LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA once, once_shadow TO regress_sweep_once;
CREATE TABLE float (id float8 PRIMARY KEY, n int DEFAULT 0);
INSERT INTO float SELECT n / 3.0 FROM generate_series(1, 100) AS n;
GRANT ALL ON float TO regress_sweep_once;
SELECT sweep.batched('UPDATE float SET n = n + 1', batch_size => 7, pause => NULL, run_as => 'regress_sweep_once') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT n, count(*) FROM float GROUP BY n;
ALTER ROLE regress_sweep_once SET extra_float_digits = -12;
SELECT sweep.batched('UPDATE float SET n = n + 1', batch_size => 7, pause => NULL, run_as => 'regress_sweep_once') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT n, count(*) FROM float GROUP BY n;

-- a function that the statement executes once, and each batch would execute again
CREATE TABLE coin (id int PRIMARY KEY, side text, "group" uuid);
CREATE SEQUENCE group_id;
SELECT sweep.batched('UPDATE coin SET "group" = (SELECT gen_random_uuid())');
SELECT sweep.batched('UPDATE coin SET (id, side) = (SELECT id, (SELECT nextval(''group_id''))::text)');
SELECT sweep.batched('UPDATE coin SET side = (SELECT concat(coin.id, (SELECT nextval(''group_id''))))');
SELECT args ->> 'statement' AS statement FROM (VALUES ('UPDATE once.coin SET "group" = gen_random_uuid(), side = (SELECT CASE WHEN random() < 0.5 THEN ''head'' ELSE ''tail'' END || coin.id)'),
		('UPDATE once.coin SET side = (SELECT string_agg(s.c, '''') FROM (SELECT chr((65 + random() * 25 + coin.id % 2)::int) AS c FROM generate_series(1, 3)) AS s)')) AS s (text),
	LATERAL sweep._batched_args(current_user, s.text, NULL);

-- a table that the role may not read
CREATE TABLE closed (id int);
GRANT ALL ON coin TO regress_sweep_once;
SELECT sweep.batched('DELETE FROM coin WHERE id IN (SELECT id FROM closed)', run_as => 'regress_sweep_once');
GRANT SELECT (id) ON closed TO regress_sweep_once;
SELECT word FROM sweep._batched_args('regress_sweep_once', 'DELETE FROM once.coin WHERE id IN (SELECT id FROM once.closed)', NULL);

-- what PostgreSQL writes on a line of its own
INSERT INTO coin SELECT n, CASE n % 3 WHEN 0 THEN 'head' END FROM generate_series(1, 50) AS n;
SELECT sweep.batched('UPDATE coin SET side = CASE WHEN id > 25 THEN ''late'' ELSE ''early'' END WHERE CASE WHEN id % 2 = 0 THEN side = ''head'' ELSE side IS NULL END', batch_size => 7, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT side, count(*) FROM coin GROUP BY side ORDER BY side;
SELECT sweep.batched('DELETE FROM coin USING (VALUES (1), (2)) AS v (i) WHERE CASE WHEN id > i THEN side = ''head'' END', batch_size => 7, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT side, count(*) FROM coin GROUP BY side ORDER BY side;

-- a unique index of one partition
CREATE TABLE whole (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE whole_1 PARTITION OF whole DEFAULT;
ALTER TABLE whole_1 ADD UNIQUE (n) DEFERRABLE;
SELECT sweep.batched('UPDATE whole SET n = n + 1');

-- an operator for integers alone, where the statement has the one for any elements
CREATE FUNCTION once_shadow.append(int[], int) RETURNS int[] LANGUAGE sql IMMUTABLE AS $$ SELECT '{-1}'::int[] $$;
CREATE OPERATOR once_shadow.|| (LEFTARG = int[], RIGHTARG = int, FUNCTION = once_shadow.append);
CREATE TABLE tagged (id int PRIMARY KEY, tags int[]);
INSERT INTO tagged SELECT n, ARRAY[n] FROM generate_series(1, 50) AS n;
GRANT ALL ON tagged TO regress_sweep_once;
ALTER ROLE regress_sweep_once SET search_path = once_shadow, once;
SELECT sweep.batched('UPDATE tagged SET tags = tags || 7', run_as => 'regress_sweep_once');
SELECT sweep.batched('UPDATE tagged SET tags = tags || 7', run_as => 'regress_sweep_once', settings => '{"search_path": "once"}') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT count(*) FROM tagged WHERE tags = ARRAY[id, 7];
SET search_path = once, once_shadow;
SELECT sweep.batched('UPDATE tagged SET tags = tags || 7', run_as => 'regress_sweep_once') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT count(*) FROM tagged WHERE tags = '{-1}';
RESET search_path;

-- ---------------------------------------------------------------- another collation between two batches: the keys have another order
CREATE TABLE once.word (k text COLLATE "C" PRIMARY KEY, v int NOT NULL DEFAULT 0);
INSERT INTO once.word SELECT chr(CASE WHEN n % 2 = 0 THEN 65 ELSE 97 END + n % 26) || n FROM generate_series(1, 100) AS n;
SELECT sweep.batched('UPDATE once.word SET v = v + 1', name => 'once word', batch_size => 10, pause => '1 s') AS run_id \gset
DO $$ BEGIN WHILE (SELECT sum(v) FROM once.word) < 20 AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
ALTER TABLE once.word ALTER k TYPE text COLLATE "en-x-icu";
DO $$ BEGIN WHILE (SELECT finished_at IS NULL FROM sweep.runs WHERE job = 'once word' ORDER BY run_id LIMIT 1) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$; -- the sleep is the work
SELECT status, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE run_id = :run_id;
SELECT max(v), sum(v) < 100 AS some FROM once.word;

CREATE TEMPORARY TABLE made AS SELECT name FROM sweep.job WHERE args ->> 'target' LIKE 'once.%';
SELECT count(sweep.drop_job(name)) > 0 AS dropped FROM made;
DELETE FROM sweep.run_live WHERE job = 'once' OR job IN (TABLE made);
DELETE FROM sweep.run_history WHERE job = 'once' OR job IN (TABLE made);
DROP SCHEMA once, once_shadow CASCADE;
DROP ROLE regress_sweep_once;
