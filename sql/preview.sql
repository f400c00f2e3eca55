-- room: api
-- sweep.preview: one batch, rolled back; what it did and the plans of its statements.
-- Plans are looked at for what they are about only: their text differs between versions.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS preview CASCADE;
CREATE SCHEMA preview;
CREATE TABLE preview.item (id int PRIMARY KEY, v text);
CREATE TABLE preview.log (what text);
INSERT INTO preview.item SELECT i, 'v' FROM generate_series(1, 5) AS i;
ANALYZE preview.item;

CREATE FUNCTION preview.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	progress sweep.progress;
BEGIN
	IF b.args ? 'fail' THEN
		RAISE EXCEPTION 'as asked' USING HINT = 'Ask for something else.';
	END IF;
	INSERT INTO preview.log VALUES (format('size %s, cursor %s, args %s, run_id %s', b.size, b.cursor, b.args, b.run_id));
	IF b.args ? 'many' THEN
		FOR i IN 1..60 LOOP
			EXECUTE format('SELECT %s', i);
		END LOOP;
	END IF;
	WITH gone AS (DELETE FROM preview.item WHERE id IN (SELECT id FROM preview.item ORDER BY id LIMIT b.size) RETURNING id)
		SELECT count(*), to_jsonb(max(id)) INTO progress.rows, progress.cursor FROM gone;
	RAISE WARNING 'within: % logged: %', progress.rows, (SELECT what FROM preview.log);
	RETURN progress;
END
$$;
SELECT sweep.create_job('preview', step => 'preview.step', batch_size => 3, args => '{"a": 1}');
CREATE TABLE preview.before AS SELECT (SELECT last_value FROM sweep.run_live_run_id_seq) AS last_run, (SELECT to_jsonb(s) FROM sweep.job_state s WHERE job = 'preview') AS state;

-- a full batch: what it would do, with the statements inside of the step
SELECT rows, cursor, split_part(notes, E'\n', 1) AS note, notes LIKE E'%\nEverything was rolled back, except that sequences do not go back.' AS last_note FROM sweep.preview('preview');
SELECT plan LIKE E'%WITH gone AS (DELETE FROM preview.item%\n%Delete on item%' AS inner_statement, plan NOT LIKE '%preview.step%' AS without_the_call,
	plan LIKE '%INSERT INTO preview.log%' AS other_statement, plan ~ 'actual time=' AS timed
	FROM sweep.preview('preview');
-- args of the run, a batch that is not full, one that finds nothing
SELECT sweep.alter_job('preview', '{"batch_size": 6}');
SELECT rows, cursor, split_part(notes, E'\n', 1) AS note FROM sweep.preview('preview', '{"b": 2}');
SELECT sweep.alter_job('preview', '{"max_rows": 2}');
SELECT rows, cursor FROM sweep.preview('preview');
SELECT sweep.alter_job('preview', '{"max_rows": null}');
BEGIN;
DELETE FROM preview.item;
SELECT rows, cursor, split_part(notes, E'\n', 1) AS note, notes LIKE E'%\nEverything was rolled back, except that sequences do not go back.' AS last_note FROM sweep.preview('preview');
ROLLBACK;
-- of many statements the first 50 are shown
SELECT notes LIKE '%further statements are left out%' AS some_left_out FROM sweep.preview('preview', '{"many": true}');

-- one text is one plan, however often it is executed; what triggers and foreign keys do has a line for each statement
CREATE TABLE preview.parent (id int PRIMARY KEY);
CREATE TABLE preview.child (id int REFERENCES preview.parent ON DELETE CASCADE);
CREATE TABLE preview.secret (what text);
INSERT INTO preview.parent SELECT i FROM generate_series(1, 200) AS i;
INSERT INTO preview.child SELECT i FROM generate_series(1, 200) AS i;
CREATE FUNCTION preview.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO preview.log
		VALUES (old.id::text);
	RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER DELETE ON preview.parent FOR EACH ROW EXECUTE FUNCTION preview.note();
CREATE ROLE regress_sweep_preview;
GRANT USAGE, CREATE ON SCHEMA preview TO regress_sweep_preview;
GRANT INSERT ON preview.secret TO regress_sweep_preview;
CREATE FUNCTION preview.hides() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO preview.secret VALUES ('geheim'); END $$;
ALTER FUNCTION preview.hides() OWNER TO regress_sweep_preview;
CREATE FUNCTION preview.deletes(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	gone bigint;
BEGIN
	FOR i IN 1..70 LOOP
		UPDATE preview.item SET v = i WHERE id = 1;
	END LOOP;
	PERFORM preview.hides();
	DELETE FROM preview.parent WHERE id <= b.size;
	GET DIAGNOSTICS gone = ROW_COUNT;
	INSERT INTO preview.log VALUES ('last');
	RETURN ROW(gone, NULL, NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('preview deletes', step => 'preview.deletes', batch_size => 150);
SELECT rows, plan, notes FROM sweep.preview('preview deletes') \gset
SELECT :rows AS rows, :'notes' LIKE '%left out%' AS left_out, position('UPDATE preview.item' IN :'plan') < position('DELETE FROM preview.parent' IN :'plan') AS in_order;
SELECT regexp_replace(line, '  \(cost.*', '') AS line FROM string_to_table(regexp_replace(:'plan', '[0-9.]+ ms', 'N ms', 'g'), E'\n') AS line
	WHERE line ~ '^(\(executed|Update on|Delete on|Insert on|UPDATE|DELETE|INSERT|SELECT|[0-9]+ call|Within|.*geheim)' AND line !~ '^SELECT \$';
SELECT :'plan' LIKE E'%\n(executed 70 times in % ms; the slowest:)\nUpdate on item%' AS one_plan;
-- called from a trigger it is no different
CREATE TABLE preview.calls (plan text);
CREATE FUNCTION preview.calls() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.plan := (SELECT p.plan FROM sweep.preview('preview deletes') AS p); RETURN new; END $$;
CREATE TRIGGER calls BEFORE INSERT ON preview.calls FOR EACH ROW EXECUTE FUNCTION preview.calls();
INSERT INTO preview.calls VALUES (NULL);
SELECT plan LIKE E'%\nDelete on parent%\nWithin triggers%\n150 calls, %' AS same FROM preview.calls;
SELECT sweep.drop_job('preview deletes');
DROP FUNCTION preview.hides();
DROP OWNED BY regress_sweep_preview;
DROP ROLE regress_sweep_preview;

-- nothing was changed, no run recorded, no run number taken
SELECT count(*) AS items, (SELECT count(*) FROM preview.log) AS logged FROM preview.item;
SELECT b.last_run = (SELECT last_value FROM sweep.run_live_run_id_seq) AS same_number, b.state = (SELECT to_jsonb(s) FROM sweep.job_state s WHERE job = 'preview') AS same_state
	FROM preview.before AS b;
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';

-- messages are not sent
SELECT sweep.create_queue('preview_queue');
CREATE FUNCTION preview.sends(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	SELECT ROW(sweep.send('preview_queue', '1'), NULL, NULL)::sweep.progress
$$;
SELECT sweep.create_job('preview sends', step => 'preview.sends');
SELECT rows > 0 AS sent FROM sweep.preview('preview sends');
SELECT depth FROM sweep.queues WHERE queue = 'preview_queue';
SELECT sweep.drop_queue('preview_queue');

-- batch_sql: its row count, no cursor
SELECT sweep.create_job('preview sql', batch_size => 2, batch_sql => 'DELETE FROM preview.item WHERE id IN (SELECT id FROM preview.item ORDER BY id LIMIT $1)');
SELECT rows, cursor, plan LIKE '%Delete on item%' AS planned FROM sweep.preview('preview sql');
SELECT sweep.create_job('preview seq', batch_sql => 'UPDATE preview.item SET v = v WHERE v = ''v'' AND id <= $1');
SELECT rows, plan LIKE '%Seq Scan on item%' AS sequential, split_part(notes, E'\n', 2) AS note FROM sweep.preview('preview seq');
SELECT count(*) FROM preview.item;

-- a preview does what a run would do in a transaction of its own: its settings, and the session has its own back
SET search_path = preview;
SELECT sweep.create_job('preview path', settings => '{"search_path": "pg_catalog, pg_temp"}', batch_sql =>
	'WITH seen AS (UPDATE preview.item SET v = v WHERE $1 < 0) SELECT WHERE current_setting(''search_path'') = ''pg_catalog, pg_temp''');
SELECT rows FROM sweep.preview('preview path');
SHOW search_path;
RESET search_path;

-- an error is that of the step, and the next preview is as usual
SELECT * FROM sweep.preview('preview', '{"fail": true}');
\echo :LAST_ERROR_SQLSTATE
SELECT rows FROM sweep.preview('preview sql');
-- after it no plans are collected any more
SELECT count(*) FROM preview.item;
SELECT * FROM sweep.preview('preview missing');
SELECT * FROM sweep.preview(NULL);
SELECT * FROM sweep.preview('preview', NULL);
SELECT * FROM sweep.preview('preview', '[]');
SELECT * FROM sweep.preview('preview', '{"as_of": "no time"}');
-- a paused job, a job in progress elsewhere: a preview asks for neither
SELECT sweep.pause('preview sql');
SELECT rows FROM sweep.preview('preview sql');

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'preview%';
DROP SCHEMA preview CASCADE;
