-- room: makers
-- sweep.delete and sweep.batched on tables without an index to go by: batches by places, in passes until one finds nothing.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS places CASCADE;
CREATE SCHEMA places;
CREATE ROLE regress_sweep_placer LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA places TO regress_sweep_placer;
CREATE VIEW places.last AS SELECT regexp_replace(job, '\d+$', 'N') AS job, status, stop_reason AS stop, rows, batches, detail FROM sweep.runs WHERE job ~ '^(delete|update)' ORDER BY run_id DESC LIMIT 1;

-- many rows in one block, in batches of seven; each transaction deletes no more
CREATE TABLE places.event (id int, kind int, payload text);
INSERT INTO places.event SELECT n, n % 10, 'x' FROM generate_series(1, 1000) AS n;
CREATE TABLE places.gone (id int, by_transaction xid8 DEFAULT pg_current_xact_id());
CREATE FUNCTION places.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO places.gone VALUES (OLD.id); RETURN NULL; END $$;
CREATE TRIGGER note AFTER DELETE ON places.event FOR EACH ROW EXECUTE FUNCTION places.note();
SELECT run_id FROM sweep.delete('places.event', 'kind = 3', batch_size => 7, pause => NULL, description => 'three') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT args - 'condition' AS args FROM sweep.job WHERE description = 'three';
SELECT * FROM places.last;
SELECT count(*) FROM places.event;
SELECT count(*), count(DISTINCT id), max(n) FROM places.gone, LATERAL (SELECT count(*) FROM places.gone g WHERE g.by_transaction = gone.by_transaction) AS t (n);
DROP TRIGGER note ON places.event;

-- few rows in many blocks: a NOTICE, and batches of blocks; nothing to do is one pass
INSERT INTO places.event SELECT n, n % 10, repeat('x', 400) FROM generate_series(1001, 20000) AS n;
ANALYZE places.event;
SET client_min_messages = notice;
SELECT run_id FROM sweep.delete('places.event', 'id % 1000 = 500', batch_size => 20, pause => NULL, name => 'delete few') \gset
SET client_min_messages = warning;
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, detail, batches > 20 AS many, (SELECT count(*) FROM places.event WHERE id % 1000 = 500) AS left FROM places.last;
SELECT regexp_replace(plan, '^.*(Tid Range Scan on event).*$', '\1') FROM sweep.preview('delete few') WHERE plan LIKE '%Tid Range Scan%';
SELECT plan ~ 'Seq Scan on (places.)?event' AS sequential FROM sweep.preview('delete few');
SELECT run_id FROM sweep.delete('places.event', 'false') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, batches, detail FROM places.last;
CREATE TABLE places.empty (id int);
SELECT run_id FROM sweep.delete('places.empty', 'true') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, batches, detail FROM places.last;

-- a run goes on where another one has stopped; in a table that was written anew, from its first block
CREATE TABLE places.line (id int, kind int, note text);
INSERT INTO places.line SELECT n, n % 2, repeat('y', 200) FROM generate_series(1, 4000) AS n;
SELECT run_id FROM sweep.delete('places.line', 'id > 2000 AND kind = 1', batch_size => 10, max_batches => 3, pause => NULL, name => 'delete line') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, detail FROM places.last;
SELECT cursor - 'file' - 'blocks' AS cursor FROM sweep.runs WHERE run_id = :run_id;
DELETE FROM places.line WHERE id <= 2000;
VACUUM FULL places.line;
SELECT sweep.alter_job('delete line', '{"max_batches": null}');
CALL sweep.run('delete line');
SELECT job, status, stop, detail, (SELECT count(*) FROM places.line) AS left, (SELECT count(*) FROM places.line WHERE kind = 1) AS wrong FROM places.last;

-- rows that a trigger keeps
CREATE FUNCTION places.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON places.line FOR EACH ROW WHEN (OLD.id IN (2002, 2004)) EXECUTE FUNCTION places.keep();
SELECT run_id FROM sweep.delete('places.line', 'id < 2100', batch_size => 10) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, stop, detail, (SELECT array_agg(id ORDER BY id) FROM places.line WHERE id < 2100) AS left FROM places.last;

-- partitions one after the other, also those without rows
CREATE TABLE places.part (id int, region text) PARTITION BY LIST (region);
CREATE TABLE places.part_a PARTITION OF places.part FOR VALUES IN ('a');
CREATE TABLE places.part_b PARTITION OF places.part FOR VALUES IN ('b') PARTITION BY RANGE (id);
CREATE TABLE places.part_b1 PARTITION OF places.part_b FOR VALUES FROM (0) TO (500);
CREATE TABLE places.part_b2 PARTITION OF places.part_b DEFAULT;
CREATE TABLE places.part_c PARTITION OF places.part FOR VALUES IN ('c');
SELECT run_id FROM sweep.delete('places.part', 'true') \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, detail FROM places.last;
INSERT INTO places.part SELECT n, chr(97 + n % 2) FROM generate_series(1, 1000) AS n;
SELECT run_id FROM sweep.delete('places.part', 'id % 5 = 0', batch_size => 30, pause => NULL) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, detail, (SELECT count(*) FROM places.part) AS left FROM places.last;
SELECT sweep.batched('UPDATE places.part SET id = NULL WHERE id IS NOT NULL AND region = ''a''');
SELECT sweep.batched('UPDATE places.part_a SET id = NULL WHERE id IS NOT NULL AND id > 900', batch_size => 7, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, detail, (SELECT count(*) FROM places.part WHERE id IS NULL) AS nulls FROM places.last;
-- which the role cannot go through one by one
GRANT SELECT, DELETE, UPDATE ON places.part TO regress_sweep_placer;
SET ROLE regress_sweep_placer;
SELECT sweep.delete('places.part', 'true');
RESET ROLE;
ALTER TABLE places.part_a ENABLE ROW LEVEL SECURITY;
SELECT sweep.delete('places.part', 'true');

-- an UPDATE after which no row meets its condition; any other one needs a unique key
CREATE TABLE places.item (id int, state text, n int DEFAULT 0);
INSERT INTO places.item SELECT n, CASE n % 3 WHEN 0 THEN 'new' ELSE 'old' END FROM generate_series(1, 3000) AS n;
CREATE TABLE places.seen (id int);
INSERT INTO places.seen SELECT generate_series(1, 1500);
SELECT sweep.batched('UPDATE places.item SET n = n + 1');
SELECT sweep.batched('UPDATE places.item SET state = ''done'', n = n + 1 WHERE state = ''new'' AND id <= 1800', batch_size => 50, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, detail FROM places.last;
SELECT state, n, count(*) FROM places.item GROUP BY 1, 2 ORDER BY 1, 2;
SELECT sweep.batched('UPDATE places.item SET state = ''seen'', n = item.n + s.id FROM places.seen s WHERE s.id = item.id AND item.state = ''done''', batch_size => 40, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, detail FROM places.last;
SELECT count(*), bool_and(n = id + 1) AS once FROM places.item WHERE state = 'seen';
SELECT sweep.batched('DELETE FROM places.item USING places.seen s WHERE s.id = item.id AND item.id % 2 = 0', batch_size => 40, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, rows, detail, (SELECT count(*) FROM places.item) AS left FROM places.last;

-- a unique index of a column that may be null is none to go by, and rows of others go all the same with those of the table
CREATE TABLE places.parent (id int UNIQUE, kind int);
CREATE TABLE places.child (id int PRIMARY KEY, parent int REFERENCES places.parent (id) ON DELETE CASCADE);
CREATE TABLE places.bill (id int PRIMARY KEY, parent int REFERENCES places.parent (id));
CREATE INDEX ON places.child (parent);
CREATE INDEX ON places.bill (parent);
INSERT INTO places.parent SELECT nullif(n, 50), n % 4 FROM generate_series(1, 100) AS n;
INSERT INTO places.child SELECT n, nullif(1 + n % 100, 50) FROM generate_series(1, 2000) AS n;
INSERT INTO places.bill VALUES (1, 2), (2, 6);
SELECT run_id FROM sweep.delete('places.parent', 'kind = 2', batch_size => 30, pause => NULL) \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, detail FROM places.last;
SELECT (SELECT array_agg(id) FROM places.parent WHERE kind = 2) AS left, (SELECT count(*) FROM places.parent) AS parents, (SELECT count(*) FROM places.child) AS children;
-- an UPDATE takes nothing along
SELECT sweep.batched('UPDATE places.parent SET kind = 7 WHERE kind = 3', batch_size => 10, pause => NULL) AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT job, status, stop, detail FROM places.last;

-- an index that serves the condition is gone by; one that does not, and tells no rows apart, is not
CREATE TABLE places.log (id int NOT NULL, kind int, text text);
INSERT INTO places.log SELECT n, n % 500, repeat('z', 50) FROM generate_series(1, 20000) AS n;
CREATE INDEX ON places.log (id);
ANALYZE places.log;
SELECT k.condition, c.* FROM (VALUES ('id = 3'), ('kind = 3'), ('id < 500'), ('id > 0 AND kind = 5'), ('true')) AS k (condition), LATERAL sweep._run_key(current_user::text, 'places.log', k.condition, NULL, '{}', false) AS c;
SELECT sweep._run_key(current_user::text, 'places.log', 'kind = 3', NULL, '{}', true);

-- with the rights to delete alone; rows that a policy hides stay
CREATE TABLE places.own (id int, kind int);
INSERT INTO places.own SELECT n, n % 3 FROM generate_series(1, 300) AS n;
GRANT SELECT, DELETE ON places.own TO regress_sweep_placer;
ALTER TABLE places.own ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON places.own TO regress_sweep_placer USING (id > 100);
SET ROLE regress_sweep_placer;
SELECT run_id FROM sweep.delete('places.own', 'kind = 1', batch_size => 10, pause => NULL) \gset
CALL sweep.wait(:run_id, '1 min');
RESET ROLE;
SELECT job, status, stop, rows, detail, (SELECT count(*) FROM places.own WHERE kind = 1) AS left FROM places.last;

-- places change while others work
SELECT sweep.delete('places.log', 'kind = 3', parallel => 2);
SELECT sweep.batched('DELETE FROM places.log WHERE kind = 3', parallel => 2);

-- other tables inherit since the job was made: their blocks are none of the table
CREATE TABLE places.bare (id int, kind int);
SELECT run_id FROM sweep.delete('places.bare', 'kind = 1', name => 'delete bare', keep_job => true) \gset
CALL sweep.wait(:run_id, '1 min');
CREATE TABLE places.heir () INHERITS (places.bare);
INSERT INTO places.heir SELECT n, n % 2 FROM generate_series(1, 2000) AS n;
\set VERBOSITY sqlstate
CALL sweep.run('delete bare');
\set VERBOSITY default
SELECT split_part(error, E'\n', 1) AS error FROM sweep.runs WHERE job = 'delete bare' AND status = 'failed';
SELECT count(*) FROM places.bare WHERE kind = 1;

SELECT count(sweep.drop_job(name)) > 10 AS many FROM sweep.job WHERE name ~ '^(delete|update)';
DELETE FROM sweep.run_live WHERE job ~ '^(delete|update)';
DELETE FROM sweep.run_history WHERE job ~ '^(delete|update)';
DROP SCHEMA places CASCADE;
DROP ROLE regress_sweep_placer;
