-- room: makers
-- Retention whose rows take others with them: no transaction touches more rows than a batch may, however many hang on one of them.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS retention_cascades CASCADE;
CREATE SCHEMA retention_cascades;
SET timezone = 'UTC';
SET search_path = retention_cascades, pg_catalog;
CREATE VIEW last_run AS SELECT status, stop_reason AS stop, batches, rows, jsonb_pretty(detail) AS detail, error FROM sweep.runs WHERE job LIKE 'retention%' ORDER BY run_id DESC LIMIT 1;
\set now '''{"as_of": "2026-01-12 00:00:00Z"}'''

-- what each transaction has deleted and changed, counted by triggers
CREATE TABLE touched (txid bigint, name text, rows bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO retention_cascades.touched SELECT txid_current(), TG_TABLE_NAME, count(*) FROM old; RETURN NULL; END $$;
CREATE PROCEDURE watch(VARIADIC names text[]) LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY names LOOP
		EXECUTE format('CREATE TRIGGER d AFTER DELETE ON %I REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION note()', name);
		EXECUTE format('CREATE TRIGGER u AFTER UPDATE ON %I REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION note()', name);
	END LOOP;
END
$$;
CREATE VIEW largest AS SELECT max(sum) AS rows FROM (SELECT sum(rows) FROM touched GROUP BY txid) AS t;

-- parents with few children and with many, side by side and spread
CREATE TABLE parent (id int PRIMARY KEY, at timestamptz);
CREATE INDEX ON parent (at);
CREATE TABLE child (id int PRIMARY KEY, parent_id int NOT NULL REFERENCES parent ON DELETE CASCADE);
CREATE INDEX ON child (parent_id);
CALL watch('parent', 'child');
INSERT INTO parent SELECT n, '2026-01-01Z'::timestamptz + interval '1 minute' * n FROM generate_series(1, 20) AS n;
INSERT INTO parent VALUES (100, '2026-02-01Z');
INSERT INTO child SELECT n, CASE WHEN n <= 2500 THEN 7 ELSE 1 + n % 20 END FROM generate_series(1, 4000) AS n;
INSERT INTO child SELECT 10000 + n, 100 FROM generate_series(1, 10) AS n;
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', batch_size => 200);
CALL sweep.run('retention_parent', :now);
SELECT * FROM last_run;
SELECT * FROM largest;
SELECT (SELECT count(*) FROM parent) AS parents, (SELECT count(*) FROM child) AS children;

-- children that have children, and some that only lose their reference
TRUNCATE parent CASCADE;
TRUNCATE touched;
CREATE TABLE grandchild (id int PRIMARY KEY, child_id int REFERENCES child ON DELETE CASCADE);
CREATE INDEX ON grandchild (child_id);
CREATE TABLE note (id int PRIMARY KEY, child_id int REFERENCES child ON DELETE SET NULL, parent_id int DEFAULT 100 REFERENCES parent ON DELETE SET DEFAULT);
CREATE INDEX ON note (child_id);
CREATE INDEX ON note (parent_id);
CALL watch('grandchild', 'note');
INSERT INTO parent SELECT n, '2026-01-01Z'::timestamptz + interval '1 minute' * n FROM generate_series(1, 5) AS n;
INSERT INTO parent VALUES (100, '2026-02-01Z');
INSERT INTO child SELECT n, 1 + n % 5 FROM generate_series(1, 500) AS n;
INSERT INTO grandchild SELECT n, CASE WHEN n <= 1000 THEN 6 ELSE 1 + n % 500 END FROM generate_series(1, 3000) AS n;
INSERT INTO note SELECT n, 1 + n % 500, 1 + n % 5 FROM generate_series(1, 1000) AS n;
CALL sweep.run('retention_parent', :now);
SELECT * FROM last_run;
SELECT * FROM largest;
SELECT (SELECT count(*) FROM parent) AS parents, (SELECT count(*) FROM child) AS children, (SELECT count(*) FROM grandchild) AS grandchildren,
	(SELECT count(*) FROM note WHERE child_id IS NULL AND parent_id = 100) AS notes;
DROP TABLE grandchild, note, child, parent;

-- rows that refer to rows of their own table: a long chain, a small circle, and one that is too large
CREATE TABLE node (id int PRIMARY KEY, at timestamptz, parent_id int REFERENCES node ON DELETE CASCADE);
CREATE INDEX ON node (at);
CREATE INDEX ON node (parent_id);
CALL watch('node');
TRUNCATE touched;
INSERT INTO node SELECT n, '2026-01-01Z'::timestamptz + interval '1 minute' * n, nullif(n - 1, 0) FROM generate_series(1, 1000) AS n;
SELECT sweep.create_retention('retention_cascades.node', 'at', '2 days', batch_size => 100);
CALL sweep.run('retention_node', :now);
SELECT * FROM last_run;
SELECT * FROM largest;
SELECT count(*) FROM node;
TRUNCATE touched;
INSERT INTO node SELECT n, '2026-01-01Z'::timestamptz + interval '1 minute' * n, nullif(n - 1, 0) FROM generate_series(1, 500) AS n;
UPDATE node SET parent_id = 500 WHERE id = 1;
CALL sweep.run('retention_node', :now);
SELECT * FROM last_run;
SELECT count(*) FROM node;
INSERT INTO node SELECT n, '2026-01-01Z'::timestamptz + interval '1 minute' * n, nullif(n - 1, 0) FROM generate_series(1, 1200) AS n;
UPDATE node SET parent_id = 1200 WHERE id = 1;
CALL sweep.run('retention_node', :now);
SELECT * FROM last_run;
SELECT count(*) FROM node;
DELETE FROM node;
-- a row that refers to itself, with more below it than a batch may touch
TRUNCATE touched;
INSERT INTO node VALUES (1, '2026-01-01Z', 1);
INSERT INTO node SELECT n, '2026-02-01Z', 1 FROM generate_series(2, 1500) AS n;
CALL sweep.run('retention_node', :now);
SELECT * FROM last_run;
SELECT * FROM largest;

-- triggers of what goes find the settings of the job, and are executed as the owner of their table
CREATE ROLE regress_sweep_cascades;
GRANT USAGE, CREATE ON SCHEMA retention_cascades TO regress_sweep_cascades;
CREATE TABLE settings (who text, path text, seqscan text);
GRANT INSERT, SELECT ON settings TO regress_sweep_cascades;
CREATE TABLE leaf (id int PRIMARY KEY, node_id int REFERENCES node ON DELETE CASCADE);
CREATE INDEX ON leaf (node_id);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO settings VALUES (current_user, current_setting('search_path'), current_setting('enable_seqscan')); RETURN NULL; END $$;
CREATE TRIGGER tell AFTER DELETE ON leaf FOR EACH ROW EXECUTE FUNCTION tell();
ALTER TABLE leaf OWNER TO regress_sweep_cascades;
INSERT INTO node VALUES (1, '2026-01-01Z', NULL);
INSERT INTO leaf SELECT n, 1 FROM generate_series(1, 250) AS n;
CALL sweep.run('retention_node', :now);
-- Those of the last slice, which PostgreSQL deletes with the row itself, are as the owner of the table since version 18.
SELECT path, seqscan, count(*), count(*) FILTER (WHERE who = 'regress_sweep_cascades') >= 200 AS as_owner FROM settings GROUP BY 1, 2;
DROP TABLE leaf;
DROP OWNED BY regress_sweep_cascades;
DROP ROLE regress_sweep_cascades;

-- rows of one moment: one that a trigger keeps something of is left, and the others go
CREATE TABLE parent (id int PRIMARY KEY, at timestamptz);
CREATE INDEX ON parent (at);
CREATE TABLE child (id int PRIMARY KEY, parent_id int REFERENCES parent ON DELETE CASCADE);
CREATE INDEX ON child (parent_id);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.parent_id = 3 THEN RETURN NULL; END IF; RETURN OLD; END $$;
CREATE TRIGGER keep BEFORE DELETE ON child FOR EACH ROW EXECUTE FUNCTION keep();
INSERT INTO parent SELECT n, '2026-01-01Z' FROM generate_series(1, 6) AS n;
INSERT INTO child SELECT n, 1 + n % 6 FROM generate_series(1, 600) AS n;
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_ties', batch_size => 50);
CALL sweep.run('retention_ties', :now);
SELECT * FROM last_run;
SELECT array_agg(DISTINCT p.id) AS parents, count(*) AS children FROM parent p JOIN child c ON c.parent_id = p.id;

-- max_rows counts all of them
TRUNCATE parent, child;
INSERT INTO parent SELECT n, '2026-01-01Z' FROM generate_series(1, 30) AS n;
INSERT INTO child SELECT n, 1 + n % 30 FROM generate_series(1, 270) AS n;
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_limited', batch_size => 50, max_rows => 120);
CALL sweep.run('retention_limited', :now);
SELECT status, stop, detail FROM last_run;

-- a row that is not to go any more while it is taken apart
DROP TRIGGER keep ON child;
TRUNCATE parent, child;
CREATE FUNCTION revive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE retention_cascades.parent SET at = '2026-02-01Z' WHERE id = OLD.parent_id AND OLD.id = 120; RETURN NULL; END $$;
CREATE TRIGGER revive AFTER DELETE ON child FOR EACH ROW EXECUTE FUNCTION revive();
INSERT INTO parent VALUES (1, '2026-01-01Z'), (2, '2026-01-02Z');
INSERT INTO child SELECT n, 1 FROM generate_series(1, 300) AS n;
INSERT INTO child SELECT n, 2 FROM generate_series(301, 320) AS n;
CALL sweep.run('retention_ties', :now);
SELECT * FROM last_run;
SELECT id, (SELECT count(*) FROM child WHERE parent_id = p.id) AS children FROM parent p;
DROP TRIGGER revive ON child;
-- a row that is updated while it is taken apart, as by a trigger that counts its children, is the same row
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE retention_cascades.parent SET at = at WHERE id = OLD.parent_id; RETURN NULL; END $$;
CREATE TRIGGER touch AFTER DELETE ON child FOR EACH ROW EXECUTE FUNCTION touch();
INSERT INTO child SELECT n, 1 FROM generate_series(1001, 1200) AS n;
UPDATE parent SET at = '2026-01-01Z';
CALL sweep.run('retention_ties', :now);
SELECT status, stop, detail::jsonb -> 'deleted' AS deleted, detail::jsonb -> 'abandoned' AS abandoned, (SELECT count(*) FROM child) AS left FROM last_run;
DROP TRIGGER touch ON child;

-- a child that goes with a row that stays, by the time that it is taken apart itself: what is below it stays with it
TRUNCATE parent CASCADE;
CREATE TABLE leaf (id int PRIMARY KEY, child_id int REFERENCES child ON DELETE CASCADE);
CREATE INDEX ON leaf (child_id);
INSERT INTO parent VALUES (1, '2026-01-01Z'), (2, '2026-02-01Z');
INSERT INTO child VALUES (10, 1), (11, 1);
INSERT INTO leaf SELECT n, 10 FROM generate_series(1, 300) AS n;
INSERT INTO leaf SELECT 1000 + n, 11 FROM generate_series(1, 30) AS n;
CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE retention_cascades.child SET parent_id = 2 WHERE id = 10; RETURN NULL; END $$;
CREATE TRIGGER move AFTER DELETE ON leaf FOR EACH ROW WHEN (OLD.id = 120) EXECUTE FUNCTION move();
CALL sweep.run('retention_ties', :now);
SELECT * FROM last_run;
SELECT id, (SELECT array_agg(id) FROM child WHERE parent_id = p.id) AS children, (SELECT count(*) FROM leaf) AS leaves FROM parent p;
DROP TABLE leaf;

-- moved rows are not taken apart; at once means in one transaction; refuse
TRUNCATE parent, child;
CREATE TABLE archive (LIKE parent);
INSERT INTO parent VALUES (1, '2026-01-01Z'), (2, '2026-01-02Z');
INSERT INTO child SELECT n, CASE WHEN n <= 100 THEN 1 ELSE 2 END FROM generate_series(1, 120) AS n;
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_moved', batch_size => 50, archive_to => 'retention_cascades.archive');
CALL sweep.run('retention_moved', :now);
SELECT * FROM last_run;
SELECT (SELECT array_agg(id) FROM parent) AS kept, (SELECT array_agg(id) FROM archive) AS moved;
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_at_once', batch_size => 50, cascade => 'at_once');
CALL sweep.run('retention_at_once', :now);
SELECT * FROM last_run;
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_refused', cascade => 'refuse');
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_refused', cascade => 'some');
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_refused', cascade => NULL);
SET track_counts = off;
INSERT INTO parent VALUES (1, '2026-01-01Z');
SELECT rows FROM sweep.preview('retention_ties', :now);
RESET track_counts;
SET session_replication_role = replica;
SELECT rows FROM sweep.preview('retention_ties', :now);
RESET session_replication_role;

-- rows that refer to the row again when their key is set: because a trigger sees to that, or because it is their default
TRUNCATE parent CASCADE;
CREATE TABLE lasting (id int PRIMARY KEY, parent_id int REFERENCES parent ON DELETE SET NULL);
CREATE INDEX ON lasting (parent_id);
CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.parent_id = 1 THEN NEW.parent_id := 1; END IF; RETURN NEW; END $$;
CREATE TRIGGER undo BEFORE UPDATE ON lasting FOR EACH ROW EXECUTE FUNCTION undo();
INSERT INTO parent VALUES (1, '2026-01-01Z'), (2, '2026-01-02Z');
INSERT INTO lasting SELECT n, 1 + n % 2 FROM generate_series(1, 300) AS n;
SELECT sweep.create_retention('retention_cascades.parent', 'at', '2 days', name => 'retention_lasting', batch_size => 50, max_batches => 30);
CALL sweep.run('retention_lasting', :now);
SELECT * FROM last_run;
SELECT (SELECT array_agg(id) FROM parent) AS kept, count(parent_id) FROM lasting;
DROP TRIGGER undo ON lasting;
ALTER TABLE lasting ALTER parent_id SET DEFAULT 1, DROP CONSTRAINT lasting_parent_id_fkey, ADD FOREIGN KEY (parent_id) REFERENCES parent ON DELETE SET DEFAULT;
\set VERBOSITY sqlstate
CALL sweep.run('retention_lasting', :now);
SELECT status, split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE job = 'retention_lasting' ORDER BY run_id DESC LIMIT 1;
-- the same where the row fits into a batch
DELETE FROM lasting WHERE id > 10;
CALL sweep.run('retention_lasting', :now);
\set VERBOSITY default
DROP TABLE lasting;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'retention%' AND args ->> 'target' LIKE 'retention\_cascades.%';
DELETE FROM sweep.run_live WHERE job LIKE 'retention%';
DELETE FROM sweep.run_history WHERE job LIKE 'retention%';
DROP SCHEMA retention_cascades CASCADE;
