-- room: engine
-- Quarantine: who gets there, until when, how it ends, and who may look and release.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS quarantine CASCADE;
DROP ROLE IF EXISTS quarantine_owner, quarantine_member, quarantine_other, quarantine_operator, quarantine_monitor, quarantine_nobody;
CREATE SCHEMA quarantine;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 3000000, false);

CREATE TABLE quarantine.thing (id int PRIMARY KEY, handled int NOT NULL DEFAULT 0, rescued int NOT NULL DEFAULT 0);
CREATE TABLE quarantine.call (nth int GENERATED ALWAYS AS IDENTITY, items jsonb[]);
INSERT INTO quarantine.thing SELECT generate_series(1, 6);

-- An item is an object here: {"id": 1}.
CREATE FUNCTION quarantine.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('id', id) FROM quarantine.thing WHERE id > coalesce((b.cursor ->> 'id')::int, 0) ORDER BY id LIMIT b.size
$$;
CREATE FUNCTION quarantine.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	progress sweep.progress;
BEGIN
	INSERT INTO quarantine.call (items) VALUES (b.items);
	UPDATE quarantine.thing SET handled = handled + 1 FROM unnest(b.items) AS item WHERE id = (item ->> 'id')::int;
	GET DIAGNOSTICS progress.rows = ROW_COUNT;
	IF EXISTS (SELECT FROM unnest(b.items) AS item WHERE b.args -> 'bad' @> (item -> 'id')) THEN
		RAISE EXCEPTION '%', coalesce(b.args ->> 'message', 'refused');
	END IF;
	RETURN progress;
END
$$;
CREATE FUNCTION quarantine.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF b.args -> 'hopeless' @> (b.items[1] -> 'id') THEN
		RAISE EXCEPTION 'hopeless: %', error ->> 'message';
	END IF;
	UPDATE quarantine.thing SET rescued = rescued + 1 WHERE id = (b.items[1] ->> 'id')::int;
	RETURN ROW(1, NULL, NULL)::sweep.progress;
END
$$;
CREATE PROCEDURE quarantine.rewind() LANGUAGE sql AS $$
	TRUNCATE quarantine.call RESTART IDENTITY;
	UPDATE quarantine.thing SET handled = 0, rescued = 0;
$$;
-- As if that much time had passed.
CREATE PROCEDURE quarantine.wait(passed interval) LANGUAGE sql AS $$
	UPDATE sweep.quarantined_item SET first_at = first_at - passed, last_at = last_at - passed, next_try = next_try - passed;
$$;
CREATE VIEW quarantine.outcome AS
	SELECT string_agg(handled::text, '' ORDER BY id) AS handled, string_agg(rescued::text, '' ORDER BY id) AS rescued FROM quarantine.thing;
CREATE VIEW quarantine.kept AS
	SELECT job, item, sqlstate, split_part(message, E'\n', 1) AS message, attempts, last_at > first_at AS again, date_trunc('minute', next_try - last_at + interval '1 s') AS pause,
		next_try > clock_timestamp() AS left_alone FROM sweep.quarantine ORDER BY job, item;
RESET client_min_messages;

SELECT sweep.create_job('quarantine', step => 'quarantine.step', pick => 'quarantine.pick', batch_size => 2);

-- ------------------------------------------------------------------ left alone until the next try, the others are handled
CALL sweep.run('quarantine', '{"bad": [3, 4]}');
SELECT * FROM quarantine.outcome;
SELECT * FROM quarantine.kept;
CALL quarantine.rewind();
CALL sweep.run('quarantine', '{"bad": [3, 4]}');
SELECT * FROM quarantine.outcome;
-- the step was not even given them; a batch of which all are in quarantine is none
SELECT items FROM quarantine.call ORDER BY nth;
SELECT batches, rows, quarantined, stop_reason FROM sweep.runs WHERE job = 'quarantine' ORDER BY run_id DESC LIMIT 1;
-- nor does a preview give it to the step
SELECT sweep.alter_job('quarantine', '{"batch_size": 4}');
SELECT rows, cursor FROM sweep.preview('quarantine', '{"bad": [3, 4]}');
SELECT sweep.alter_job('quarantine', '{"batch_size": 2}');
-- the same with transactions of their own
SELECT sweep.alter_job('quarantine', '{"transaction": "row"}');
CALL quarantine.rewind();
CALL sweep.run('quarantine', '{"bad": [3, 4]}');
SELECT * FROM quarantine.outcome;
SELECT batches, rows, quarantined, stop_reason FROM sweep.runs WHERE job = 'quarantine' ORDER BY run_id DESC LIMIT 1;
SELECT * FROM quarantine.kept;
-- where no item of the whole run is left
SELECT sweep.alter_job('quarantine', '{"batch_size": 6}');
CALL sweep.run('quarantine', '{"bad": [1, 2, 3, 4, 5, 6]}');
SELECT count(*) FROM quarantine.kept;
CALL quarantine.rewind();
CALL sweep.run('quarantine');
SELECT sweep.alter_job('quarantine', '{"transaction": "batch"}');
CALL sweep.run('quarantine');
SELECT * FROM quarantine.outcome;
DELETE FROM sweep.quarantined_item WHERE item ->> 'id' NOT IN ('3', '4');
SELECT sweep.alter_job('quarantine', '{"batch_size": 2}');

-- ------------------------------------------------------------------ tried again, twice the pause after each further failure
CALL quarantine.wait('11 min');
SELECT * FROM quarantine.kept;
CALL quarantine.rewind();
CALL sweep.run('quarantine', '{"bad": [3], "message": "still refused"}');
SELECT * FROM quarantine.outcome;
SELECT * FROM quarantine.kept;
SELECT rows, quarantined FROM sweep.runs WHERE job = 'quarantine' ORDER BY run_id DESC LIMIT 1;
-- 10 min, doubled with each attempt up to a cap of 10240
CREATE TABLE quarantine.pauses (attempts int, pause interval);
SET client_min_messages = warning;
DO $$
BEGIN
	FOR attempt IN 3..14 LOOP
		CALL quarantine.wait('20 days');
		CALL sweep.run('quarantine', '{"bad": [3]}');
		INSERT INTO quarantine.pauses SELECT attempts, pause FROM quarantine.kept;
	END LOOP;
END
$$;
RESET client_min_messages;
SELECT attempts, pause FROM quarantine.pauses ORDER BY attempts;
-- handled at last: it is gone
CALL quarantine.wait('20 days');
CALL quarantine.rewind();
CALL sweep.run('quarantine');
SELECT * FROM quarantine.outcome;
SELECT * FROM quarantine.kept;
-- and the next failure is a first one
CALL sweep.run('quarantine', '{"bad": [3]}');
SELECT item, attempts, pause FROM quarantine.kept;
DELETE FROM sweep.quarantined_item;

-- ------------------------------------------------------------------ with a rescue function
SELECT sweep.alter_job('quarantine', '{"rescue": "quarantine.rescue"}');
CALL quarantine.rewind();
CALL sweep.run('quarantine', '{"bad": [2, 5], "hopeless": [5]}');
SELECT * FROM quarantine.outcome;
SELECT item, message FROM quarantine.kept;
-- rescued when its next try has come: it is gone
CALL quarantine.wait('11 min');
CALL quarantine.rewind();
CALL sweep.run('quarantine', '{"bad": [2, 5]}');
SELECT * FROM quarantine.outcome;
SELECT item, message FROM quarantine.kept;

-- ------------------------------------------------------------------ release
SELECT sweep.alter_job('quarantine', '{"rescue": null}');
CALL sweep.run('quarantine', '{"bad": [1, 2, 3]}');
SELECT item, left_alone FROM quarantine.kept;
SELECT sweep.release_quarantine('quarantine', '{"id": 2}');
SELECT item, left_alone, attempts FROM quarantine.kept;
SELECT sweep.release_quarantine('quarantine', '{"id": 2}');
SELECT sweep.release_quarantine('quarantine', '{"id": 77}');
SELECT sweep.release_quarantine('quarantine');
SELECT sweep.release_quarantine('quarantine');
CALL quarantine.rewind();
CALL sweep.run('quarantine', '{"bad": [2]}');
SELECT * FROM quarantine.outcome;
-- released is not forgiven
SELECT item, attempts, pause FROM quarantine.kept;
SELECT sweep.release_quarantine('no such job');
\echo :LAST_ERROR_SQLSTATE
SELECT sweep.release_quarantine(NULL);
\echo :LAST_ERROR_SQLSTATE

-- ------------------------------------------------------------------ an item is of one job
SELECT sweep.create_job('quarantine too', step => 'quarantine.step', pick => 'quarantine.pick', batch_size => 100);
CALL quarantine.rewind();
CALL sweep.run('quarantine too');
SELECT * FROM quarantine.outcome;
CALL sweep.run('quarantine too', '{"bad": [2]}');
SELECT job, item FROM quarantine.kept;
SELECT sweep.release_quarantine('quarantine too');
SELECT job, item, left_alone FROM quarantine.kept;
-- dropped with its job
SELECT sweep.drop_job('quarantine too');
SELECT job, item FROM quarantine.kept;
-- items that are large, and a message that is
CREATE FUNCTION quarantine.large_pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('id', i, 'text', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 2000) AS n))
		FROM generate_series(1, 2) AS i WHERE b.cursor IS NULL
$$;
CREATE FUNCTION quarantine.large(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION '%', repeat('x', 100000);
END
$$;
SELECT sweep.create_job('quarantine large', step => 'quarantine.large', pick => 'quarantine.large_pick');
CALL sweep.run('quarantine large');
CALL sweep.run('quarantine large');
SELECT item -> 'id' AS id, length(item ->> 'text'), octet_length(message) FROM sweep.quarantine WHERE job = 'quarantine large' ORDER BY item -> 'id';
SELECT quarantined, stop_reason FROM sweep.runs WHERE job = 'quarantine large' ORDER BY run_id;
SELECT sweep.drop_job('quarantine large');

-- an item that is no longer picked is forgotten, with the age at which runs are
UPDATE sweep.quarantined_item SET next_try = clock_timestamp() - current_setting('pg_sweep.history_max_age')::interval - interval '1 min'
	WHERE job = 'quarantine';
INSERT INTO sweep.quarantined_item (job, item, item_hash, sqlstate, message, next_try)
	VALUES ('quarantine', '{"id": 9}', md5('{"id": 9}'), 'P0001', 'kept', clock_timestamp() - current_setting('pg_sweep.history_max_age')::interval + interval '1 h');
-- (the scheduler may be at it)
DO $$
BEGIN
	WHILE sweep._archive_runs(true) IS NULL LOOP
		COMMIT;
	END LOOP;
END
$$;
SELECT item FROM quarantine.kept;
DELETE FROM sweep.quarantined_item WHERE item = '{"id": 9}';
CALL sweep.run('quarantine', '{"bad": [2]}');

-- ------------------------------------------------------------------ rights
SET client_min_messages = warning;
CREATE ROLE quarantine_owner LOGIN IN ROLE sweep_user;
CREATE ROLE quarantine_member LOGIN IN ROLE quarantine_owner;
CREATE ROLE quarantine_other LOGIN IN ROLE sweep_user;
CREATE ROLE quarantine_operator LOGIN IN ROLE sweep_operator;
CREATE ROLE quarantine_monitor LOGIN IN ROLE sweep_monitor;
CREATE ROLE quarantine_nobody LOGIN;
GRANT USAGE ON SCHEMA quarantine TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA quarantine TO PUBLIC;
RESET client_min_messages;
SELECT sweep.create_job('quarantine owned', step => 'quarantine.step', pick => 'quarantine.pick', run_as => 'quarantine_owner');
SELECT current_user AS superuser \gset
\c - quarantine_owner
CALL sweep.run('quarantine owned', '{"bad": [1, 4]}');
SELECT job, item FROM sweep.quarantine ORDER BY job, item;
SELECT sweep.release_quarantine('quarantine owned', '{"id": 1}');
\set VERBOSITY terse
SELECT sweep.release_quarantine('quarantine');
\set VERBOSITY default
DELETE FROM sweep.quarantined_item;
UPDATE sweep.quarantined_item SET next_try = now();
SELECT sweep._quarantine('quarantine owned', 10, '1', '00000', 'x');
\c - quarantine_member
SELECT job, item FROM sweep.quarantine ORDER BY job, item;
SELECT sweep.release_quarantine('quarantine owned');
\c - quarantine_other
SELECT job, item FROM sweep.quarantine ORDER BY job, item;
SELECT sweep.release_quarantine('quarantine owned');
\c - quarantine_operator
SELECT job, item FROM sweep.quarantine ORDER BY 1, 2;
SELECT sweep.release_quarantine('quarantine');
SELECT sweep.release_quarantine('quarantine owned');
\c - quarantine_monitor
SELECT job, item FROM sweep.quarantine ORDER BY 1, 2;
SELECT sweep.release_quarantine('quarantine');
\c - quarantine_nobody
SELECT job, item FROM sweep.quarantine ORDER BY job, item;
SELECT sweep.release_quarantine('quarantine');
\c - :superuser
SET timezone = 'UTC';
SET intervalstyle = 'postgres';

-- ------------------------------------------------------------------ a part of dumps
SELECT array_position(extconfig, 'sweep.quarantined_item'::regclass::oid) IS NOT NULL AS dumped,
	extcondition[array_position(extconfig, 'sweep.quarantined_item'::regclass::oid)] = '' AS whole FROM pg_extension WHERE extname = 'pg_sweep';

SET client_min_messages = warning;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'quarantine%' ORDER BY name;
SELECT count(*) FROM sweep.quarantine;
DELETE FROM sweep.run_live WHERE job LIKE 'quarantine%';
DELETE FROM sweep.run_history WHERE job LIKE 'quarantine%';
DROP SCHEMA quarantine CASCADE;
DROP ROLE quarantine_owner, quarantine_member, quarantine_other, quarantine_operator, quarantine_monitor, quarantine_nobody;
