-- room: makers
-- The switch of a copy with changes: it takes the name of its source, with what is carried; what would stay is named.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE SCHEMA moved;
CREATE VIEW moved.last_run AS SELECT status, stop_reason AS stop, detail - 'lock_timeouts' AS detail FROM sweep.runs WHERE job LIKE 'copy%' ORDER BY run_id DESC LIMIT 1;
CREATE TABLE moved.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, u text UNIQUE, v int);
CREATE INDEX t_low ON moved.t (lower(u));
INSERT INTO moved.t (u, v) SELECT 'again' || n, n FROM generate_series(1, 1000) AS n;
CREATE TABLE moved.n (LIKE moved.t INCLUDING ALL);
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 7200000, false);
SELECT sweep.create_copy('moved.t', 'moved.n', with_changes => true, paused => true, batch_size => 400);
CALL sweep.run('copy_t');

-- what stays is named, and nothing is changed
CREATE ROLE copy_reader;
GRANT SELECT, UPDATE (v) ON moved.t TO copy_reader;
GRANT USAGE ON SEQUENCE moved.t_id_seq TO copy_reader WITH GRANT OPTION;
COMMENT ON TABLE moved.t IS 'the table';
COMMENT ON COLUMN moved.t.v IS 'the value';
CREATE VIEW moved.seen WITH (security_barrier) AS SELECT id, v FROM moved.t WHERE v > 0;
GRANT SELECT ON moved.seen TO copy_reader;
CREATE TABLE moved.child (id int PRIMARY KEY, t_id int CONSTRAINT of_t REFERENCES moved.t ON DELETE CASCADE);
INSERT INTO moved.child SELECT 1, min(id) FROM moved.t;
CREATE FUNCTION moved.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := coalesce(NEW.v, 5); RETURN NEW; END $$;
CREATE TRIGGER note BEFORE INSERT ON moved.t FOR EACH ROW EXECUTE FUNCTION moved.note();
COMMENT ON TRIGGER note ON moved.t IS 'the trigger';
CREATE POLICY positive ON moved.t FOR SELECT TO copy_reader USING (v > 0);
ALTER TABLE moved.t ENABLE ROW LEVEL SECURITY;
ALTER TABLE moved.t REPLICA IDENTITY FULL;
SET client_min_messages = error;
CREATE PUBLICATION copy_published FOR TABLE moved.t WHERE (v > 0);
SET client_min_messages = warning;
CREATE MATERIALIZED VIEW moved.stored AS SELECT id FROM moved.t;
CREATE FUNCTION moved.total() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT sum(v) FROM moved.t; END;
CREATE STATISTICS moved.both_of (dependencies) ON u, v FROM moved.t;
CREATE TABLE moved.whole (t moved.t, ts moved.t[]);
SELECT sweep.switch_copy('copy_t');
SELECT sweep.switch_copy('copy_t', carry => true);
DROP TABLE moved.whole;
SELECT sweep.switch_copy('copy_t', carry => true, leave => ARRAY['function', NULL]);
SELECT sweep.switch_copy('copy_t', carry => NULL);
SELECT sweep.switch_copy('copy_t', carry => true, old_name => 'child', leave => '{materialized view,function,statistics}');
SELECT sweep.switch_copy('no such job');
CALL sweep.run('copy_t', '{"switch": {"carry": false, "leave": [], "old_name": "t_old"}}');
SELECT status, detail FROM moved.last_run;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'moved.t'::regclass AND NOT tgisinternal ORDER BY 1;
SELECT to_regclass('moved.t_old'), count(*) FROM moved.t;

-- and moved, under statements that were prepared before
PREPARE change AS UPDATE moved.t SET v = v + 1 WHERE id = $1 RETURNING tableoid::regclass, v;
PREPARE look AS SELECT tableoid::regclass, count(*) FROM moved.t GROUP BY 1;
EXECUTE change(20);
EXECUTE look;
UPDATE moved.t SET v = 12345 WHERE u = 'again7';
INSERT INTO moved.t (u, v) VALUES ('last', 1);
SET client_min_messages = error;
CALL sweep.run('copy_t', '{"switch": {"carry": true, "leave": ["materialized view", "function", "statistics"]}}');
SET client_min_messages = warning;
SELECT * FROM moved.last_run;
SELECT to_regclass('moved.n') AS n, to_regclass('moved.t_sweep_changes') AS changes, (SELECT count(*) FROM pg_proc WHERE pronamespace = 'moved'::regnamespace) AS functions;
EXECUTE change(20);
EXECUTE look;
UPDATE moved.t SET v = v - 1 WHERE id = 20;
SELECT count(*) FROM ((TABLE moved.t EXCEPT TABLE moved.t_old) UNION ALL (TABLE moved.t_old EXCEPT TABLE moved.t)) AS d;
INSERT INTO moved.t (u) VALUES ('next') RETURNING id > (SELECT max(id) FROM moved.t_old) AS behind, v;
SELECT tablename, indexname FROM pg_indexes WHERE schemaname = 'moved' AND tablename LIKE 't%' ORDER BY 1, 2;
SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype IN ('p', 'u') AND conrelid IN ('moved.t'::regclass, 'moved.t_old'::regclass) ORDER BY 1, 2;
INSERT INTO moved.t (u) VALUES ('next') ON CONFLICT ON CONSTRAINT t_u_key DO NOTHING;
SELECT pg_get_serial_sequence('moved.t', 'id'), pg_get_serial_sequence('moved.t_old', 'id'), has_sequence_privilege('copy_reader', 'moved.t_id_seq', 'USAGE WITH GRANT OPTION');
SELECT obj_description(oid, 'pg_trigger') FROM pg_trigger WHERE tgrelid = 'moved.t'::regclass AND tgname = 'note';
SELECT count(*) FROM moved.seen WHERE v = 12345;
SELECT pg_get_viewdef('moved.seen') ~ 'FROM moved.t\M' AS is_moved, (SELECT reloptions FROM pg_class WHERE oid = 'moved.seen'::regclass), has_table_privilege('copy_reader', 'moved.seen', 'SELECT');
SELECT conname, conrelid::regclass, confrelid::regclass, confdeltype, convalidated FROM pg_constraint WHERE contype = 'f' AND connamespace = 'moved'::regnamespace ORDER BY 1;
DELETE FROM moved.t WHERE id = (SELECT t_id FROM moved.child);
SELECT count(*) FROM moved.child;
SELECT sweep._privileges('moved.t');
SELECT policyname, roles, cmd, qual FROM pg_policies WHERE schemaname = 'moved' AND tablename = 't';
SELECT relrowsecurity, relreplident, obj_description(oid, 'pg_class'), col_description(oid, 3) FROM pg_class WHERE oid = 'moved.t'::regclass;
SELECT tablename, rowfilter FROM pg_publication_tables WHERE pubname = 'copy_published';
SELECT sweep.switch_copy('copy_t');
CALL sweep.run('copy_t');
SELECT * FROM moved.last_run;
SELECT sweep.drop_job('copy_t');
SELECT count(*) FROM pg_class WHERE relname LIKE '%sweep%' AND relnamespace = 'moved'::regnamespace;

-- back: the old table is emptied, and becomes a copy
DROP MATERIALIZED VIEW moved.stored;
DROP FUNCTION moved.total;
TRUNCATE moved.t_old;
SELECT sweep.create_copy('moved.t', 'moved.t_old', with_changes => true, paused => true);
CALL sweep.run('copy_t');
UPDATE moved.t SET v = 54321 WHERE id = 30;
CALL sweep.run('copy_t', '{"switch": {"carry": true}}');
SET client_min_messages = error;
CALL sweep.run('copy_t', '{"switch": {"carry": true, "old_name": "n"}}');
SET client_min_messages = warning;
SELECT * FROM moved.last_run;
SELECT count(*) FROM moved.seen WHERE v = 54321;
SELECT tablename, indexname FROM pg_indexes WHERE schemaname = 'moved' AND tablename IN ('t', 'n') ORDER BY 1, 2;
INSERT INTO moved.t (u) VALUES ('back') RETURNING id > (SELECT max(id) FROM moved.n) AS behind;
SELECT sweep.drop_job('copy_t');

-- serial columns, a foreign key of its own, one to itself, and a column that is left out
CREATE TABLE moved.s (id serial PRIMARY KEY, up int REFERENCES moved.s, v int REFERENCES moved.child, gone int);
CREATE TABLE moved.s_new (LIKE moved.s INCLUDING DEFAULTS INCLUDING INDEXES);
ALTER TABLE moved.s_new DROP COLUMN gone, ALTER COLUMN id TYPE bigint;
GRANT UPDATE (gone, v) ON moved.s TO copy_reader;
INSERT INTO moved.s (up) VALUES (1), (1);
SELECT sweep.create_copy('moved.s', 'moved.s_new', with_changes => true, paused => true);
CALL sweep.run('copy_s', '{"switch": {"carry": true}}');
CALL sweep.run('copy_s', '{"switch": {"carry": true, "leave": ["column"]}}');
SELECT conrelid::regclass, conname, confrelid::regclass, convalidated FROM pg_constraint WHERE contype = 'f' AND conrelid IN ('moved.s'::regclass, 'moved.s_old'::regclass) ORDER BY 1, 2;
SELECT pg_get_serial_sequence('moved.s', 'id'), pg_get_serial_sequence('moved.s_old', 'id');
INSERT INTO moved.s (up) VALUES (2) RETURNING id, pg_typeof(id);
SELECT privilege, grantee FROM sweep._privileges('moved.s');
SELECT sweep.drop_job('copy_s');

-- foreign keys that are dropped between the switch and their validation: the others are validated
CREATE TABLE moved.p (id int PRIMARY KEY);
CREATE TABLE moved.p_new (LIKE moved.p INCLUDING ALL);
CREATE TABLE moved.p_1 (p int REFERENCES moved.p);
CREATE TABLE moved.p_2 (p int REFERENCES moved.p);
CREATE TABLE moved.p_3 (p int REFERENCES moved.p);
SELECT sweep.create_copy('moved.p', 'moved.p_new', with_changes => true, paused => true);
CALL sweep.run('copy_p');
SELECT sweep.alter_job('copy_p', '{"max_batches": 2}');
CALL sweep.run('copy_p', '{"switch": {"carry": true}}');
ALTER TABLE moved.p_1 DROP CONSTRAINT p_1_p_fkey;
DROP TABLE moved.p_2;
SELECT sweep.alter_job('copy_p', '{"max_batches": null}');
CALL sweep.run('copy_p');
SELECT * FROM moved.last_run;
SELECT conrelid::regclass, conname, confrelid::regclass, convalidated FROM pg_constraint WHERE contype = 'f' AND confrelid = 'moved.p'::regclass;
SELECT sweep.drop_job('copy_p');

DELETE FROM sweep.run_live WHERE job LIKE 'copy%';
DELETE FROM sweep.run_history WHERE job LIKE 'copy%';
DROP PUBLICATION copy_published;
DROP SCHEMA moved CASCADE;
DROP ROLE copy_reader;
