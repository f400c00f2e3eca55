-- room: engine
-- Item jobs: pick, step, halving, rescue, retries, limits, and pick functions that are wrong.
\set SHOW_CONTEXT never
\pset format csv
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS item_jobs CASCADE;
CREATE SCHEMA item_jobs;
SET timezone = 'UTC';
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 2000000, false);
RESET client_min_messages;

-- Plans are shown below: an ANALYZE that comes by itself would change them.
CREATE TABLE item_jobs.thing (id int PRIMARY KEY, handled int NOT NULL DEFAULT 0, rescued int NOT NULL DEFAULT 0) WITH (autovacuum_enabled = off);
CREATE TABLE item_jobs.call (nth int GENERATED ALWAYS AS IDENTITY, batch sweep.batch, error jsonb, xid xid8 DEFAULT pg_current_xact_id(),
	flush text DEFAULT current_setting('synchronous_commit'));
CREATE SEQUENCE item_jobs.try;

CREATE FUNCTION item_jobs.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
	SELECT to_jsonb(id) FROM item_jobs.thing WHERE id > coalesce(b.cursor::int, 0) ORDER BY id LIMIT b.size
$$;

-- Fails when one of its items is among the bad ones of its args.
CREATE FUNCTION item_jobs.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	progress sweep.progress;
	bad jsonb;
BEGIN
	PERFORM nextval('item_jobs.try');
	INSERT INTO item_jobs.call (batch) VALUES (b);
	UPDATE item_jobs.thing SET handled = handled + 1 FROM unnest(b.items) AS item WHERE id = item::int;
	GET DIAGNOSTICS progress.rows = ROW_COUNT;
	SELECT item INTO bad FROM unnest(b.items) AS item WHERE b.args -> 'bad' @> item LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'thing % refuses', bad USING ERRCODE = coalesce(b.args ->> 'code', 'check_violation'),
			DETAIL = 'It is bad.', HINT = 'Let it be.';
	ELSIF b.items @> ARRAY[b.args -> 'stop'] THEN
		PERFORM pg_cancel_backend(pg_backend_pid());
		PERFORM count(*) FROM generate_series(1, 10000000);
	END IF;
	progress.cursor := '"not used"';
	progress.detail := jsonb_build_object('done', progress.rows, 'sizes', jsonb_build_array(cardinality(b.items)));
	RETURN progress;
END
$$;

-- Fails for the items that are hopeless, and has nothing to do for those that are gone.
CREATE FUNCTION item_jobs.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO item_jobs.call (batch, error) VALUES (b, error);
	IF b.args -> 'gone' @> b.items[1] THEN
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END IF;
	UPDATE item_jobs.thing SET rescued = rescued + 1 WHERE id = b.items[1]::int;
	IF b.args -> 'hopeless' @> b.items[1] THEN
		RAISE EXCEPTION 'thing % is hopeless', b.items[1] USING ERRCODE = 'data_exception';
	END IF;
	RETURN ROW(1, '"not used"', jsonb_build_object('saved', 1, 'why', error -> 'message'))::sweep.progress;
END
$$;

CREATE PROCEDURE item_jobs.refill(n int) LANGUAGE sql AS $$
	TRUNCATE item_jobs.call RESTART IDENTITY;
	DELETE FROM item_jobs.thing;
	INSERT INTO item_jobs.thing SELECT generate_series(1, n);
	DELETE FROM sweep.quarantined_item;
	SELECT setval('item_jobs.try', 1, false);
$$;
CREATE VIEW item_jobs.last_run AS
	SELECT status, stop_reason AS stop, batches, rows, rescued, quarantined, cursor, detail, sqlstate, split_part(error, E'\n', 1) AS error
	FROM sweep.runs WHERE job LIKE 'item\_jobs%' ORDER BY run_id DESC LIMIT 1;
CREATE VIEW item_jobs.calls AS
	SELECT nth, (batch).size, (batch).cursor, (batch).items, error ->> 'sqlstate' AS rescue FROM item_jobs.call ORDER BY nth;
-- How often each thing was handled and rescued, and which are in quarantine.
CREATE VIEW item_jobs.outcome AS
	SELECT string_agg(handled::text, '' ORDER BY id) AS handled, string_agg(rescued::text, '' ORDER BY id) AS rescued,
		string_agg(CASE WHEN EXISTS (SELECT FROM sweep.quarantined_item q WHERE q.job LIKE 'item\_jobs%' AND q.item = to_jsonb(id)) THEN '1' ELSE '0' END, ''
			ORDER BY id) AS quarantined
	FROM item_jobs.thing;

-- ------------------------------------------------------------------ the normal way
SELECT sweep.create_job('item_jobs', step => 'item_jobs.step', pick => 'item_jobs.pick', batch_size => 4);
SELECT step, pick, rescue, transaction, row_retries FROM sweep.job WHERE name = 'item_jobs';
CALL item_jobs.refill(10);
CALL sweep.run('item_jobs');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.calls;
SELECT * FROM item_jobs.outcome;
SELECT count(DISTINCT xid) AS transactions, bool_and((batch).run_id > 0) AS run_id FROM item_jobs.call;
-- nothing to pick is one batch, without a call of the step
CALL item_jobs.refill(0);
CALL sweep.run('item_jobs');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.calls;

-- ------------------------------------------------------------------ halving: no rescue function, so quarantine
CALL item_jobs.refill(8);
CALL sweep.run('item_jobs', '{"bad": [1]}');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.calls;
SELECT * FROM item_jobs.outcome;
SELECT job, item, sqlstate, message ~ '^thing 1 refuses\nDETAIL: It is bad.\nHINT: Let it be.\nCONTEXT: PL/pgSQL function item_jobs.step' AS message,
	attempts, next_try - last_at AS pause FROM sweep.quarantine;
CALL item_jobs.refill(8);
CALL sweep.run('item_jobs', '{"bad": [8]}');
SELECT * FROM item_jobs.outcome;
CALL item_jobs.refill(8);
CALL sweep.run('item_jobs', '{"bad": [2, 3, 7]}');
SELECT * FROM item_jobs.calls;
SELECT * FROM item_jobs.outcome;
CALL item_jobs.refill(8);
CALL sweep.run('item_jobs', '{"bad": [1, 2, 3, 4, 5, 6, 7, 8]}');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.outcome;
-- how often the step was called: both batches in every piece there is
SELECT last_value AS tries FROM item_jobs.try;
-- batches of one
SELECT sweep.alter_job('item_jobs', '{"batch_size": 1}');
CALL item_jobs.refill(4);
CALL sweep.run('item_jobs', '{"bad": [2, 4]}');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.calls;
SELECT * FROM item_jobs.outcome;
-- an error that comes with the commit
SELECT sweep.alter_job('item_jobs', '{"batch_size": 4}');
CREATE FUNCTION item_jobs.late() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN IF new.id = 3 THEN RAISE EXCEPTION 'too late for thing %', new.id; END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON item_jobs.thing DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION item_jobs.late();
CALL item_jobs.refill(5);
CALL sweep.run('item_jobs');
SELECT * FROM item_jobs.outcome;
SELECT split_part(message, E'\n', 1) AS message FROM sweep.quarantine;
DROP TRIGGER late ON item_jobs.thing;

-- ------------------------------------------------------------------ transaction row
SELECT sweep.alter_job('item_jobs', '{"transaction": "row"}');
CALL item_jobs.refill(6);
CALL sweep.run('item_jobs', '{"bad": [2, 6]}');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.calls;
SELECT * FROM item_jobs.outcome;
SELECT count(DISTINCT xid) AS transactions FROM item_jobs.call;
SELECT last_value AS tries FROM item_jobs.try;
SELECT sweep.alter_job('item_jobs', '{"transaction": "batch"}');

-- ------------------------------------------------------------------ rescue
SELECT sweep.alter_job('item_jobs', '{"rescue": "item_jobs.rescue"}');
CALL item_jobs.refill(6);
CALL sweep.run('item_jobs', '{"bad": [2, 3, 6], "hopeless": [3]}');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.calls;
SELECT * FROM item_jobs.outcome;
SELECT jsonb_object_agg(key, CASE WHEN key = 'context' THEN to_jsonb(value LIKE 'PL/pgSQL function item_jobs.step(sweep.batch) line % at RAISE%') ELSE to_jsonb(value) END) AS error
	FROM item_jobs.call, jsonb_each_text(error) WHERE error IS NOT NULL GROUP BY nth ORDER BY nth;
-- hopeless: the error of the rescue function
SELECT item, sqlstate, split_part(message, E'\n', 1) AS message FROM sweep.quarantine;
-- nothing to rescue: neither rescued nor in quarantine, and not kept there
CALL item_jobs.refill(6);
CALL sweep.run('item_jobs', '{"bad": [2, 5], "hopeless": [5]}');
UPDATE sweep.quarantined_item SET next_try = now();
UPDATE item_jobs.thing SET handled = 0;
CALL sweep.run('item_jobs', '{"bad": [2, 3, 5], "gone": [3, 5]}');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.outcome;
-- an error without detail and hint: the keys are there
CREATE FUNCTION item_jobs.bare(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT ROW(1 / (1 - 1), NULL, NULL)::sweep.progress $$;
SELECT sweep.create_job('item_jobs bare', step => 'item_jobs.bare', pick => 'item_jobs.pick', rescue => 'item_jobs.rescue', batch_size => 4);
CALL item_jobs.refill(1);
CALL sweep.run('item_jobs bare');
SELECT error - 'context' AS error, error ? 'context' AS context FROM item_jobs.call;

-- ------------------------------------------------------------------ any set of bad items, both kinds of transactions
CREATE TABLE item_jobs.wrong (round int, transaction text, args jsonb, outcome text);
SELECT setseed(0.4);
SET client_min_messages = warning;
DO $$
DECLARE
	things constant int := 23;
	used jsonb;
	kind text;
BEGIN
	FOR round IN 1..60 LOOP
		kind := CASE WHEN round % 3 = 0 THEN 'row' ELSE 'batch' END;
		PERFORM sweep.alter_job('item_jobs', jsonb_build_object('transaction', kind, 'batch_size', 1 + floor(random() * 25)::int));
		used := (SELECT jsonb_build_object('bad', coalesce(jsonb_agg(i) FILTER (WHERE r < round % 10 / 9.0), '[]'),
				'hopeless', coalesce(jsonb_agg(i) FILTER (WHERE s < 0.5), '[]'))
			FROM (SELECT i, random() AS r, random() AS s FROM generate_series(1, things) AS i) AS draw);
		CALL item_jobs.refill(things);
		CALL sweep.run('item_jobs', used);
		INSERT INTO item_jobs.wrong
			SELECT round, kind, used, format('thing %s: handled %s, rescued %s, quarantined %s', t.id, t.handled, t.rescued, q.n)
			FROM item_jobs.thing t CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM sweep.quarantined_item q WHERE q.item = to_jsonb(t.id)) AS q
			WHERE (t.handled, t.rescued, q.n) IS DISTINCT FROM
				CASE WHEN NOT used -> 'bad' @> to_jsonb(t.id) THEN (1, 0, 0)
					WHEN NOT used -> 'hopeless' @> to_jsonb(t.id) THEN (0, 1, 0) ELSE (0, 0, 1) END;
		INSERT INTO item_jobs.wrong
			SELECT round, kind, used, 'run: ' || r.* FROM item_jobs.last_run r, (SELECT sum(handled) AS handled, sum(rescued) AS rescued FROM item_jobs.thing) AS t
			WHERE (r.status, r.stop, r.rows, r.rescued, r.quarantined) IS DISTINCT FROM
				('succeeded', 'drained', t.handled + t.rescued, t.rescued, things - t.handled - t.rescued);
		INSERT INTO item_jobs.wrong
			SELECT round, kind, used, 'not in order' FROM (SELECT array_agg(i.item::int ORDER BY c.nth, i.n) AS items
				FROM item_jobs.call c, unnest((c.batch).items) WITH ORDINALITY AS i (item, n)) AS h
			WHERE h.items <> ARRAY(SELECT unnest(h.items) ORDER BY 1);
	END LOOP;
END
$$;
RESET client_min_messages;
SELECT * FROM item_jobs.wrong;

-- ------------------------------------------------------------------ row_retries
-- Raises a passing error as often as its args say; a sequence keeps count across rollbacks.
CREATE FUNCTION item_jobs.shaky(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('item_jobs.try') <= (b.args ->> 'fails')::int THEN
		RAISE EXCEPTION 'try again' USING ERRCODE = b.args ->> 'code';
	END IF;
	INSERT INTO item_jobs.call (batch) VALUES (b);
	UPDATE item_jobs.thing SET handled = handled + 1 FROM unnest(b.items) AS item WHERE id = item::int;
	RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('item_jobs shaky', step => 'item_jobs.shaky', pick => 'item_jobs.pick', batch_size => 4);
SET client_min_messages = warning;
DO $$
DECLARE
	code text;
	message text;
BEGIN
	FOREACH code IN ARRAY ARRAY['40001', '40P01', '55P03', '23514', '57014'] LOOP
		CALL item_jobs.refill(4);
		CALL sweep.run('item_jobs shaky', jsonb_build_object('code', code, 'fails', 3));
		SELECT format('%s: in pieces of %s, quarantined %s, tries %s', code, sizes, quarantined, last_value) INTO message
			FROM (SELECT array_agg(cardinality((batch).items) ORDER BY nth) AS sizes FROM item_jobs.call) AS c, item_jobs.outcome, item_jobs.try;
		RAISE INFO '%', message;
	END LOOP;
END
$$;
-- as often as it says, and no more
DO $$
DECLARE
	message text;
BEGIN
	PERFORM sweep.alter_job('item_jobs shaky', '{"batch_size": 1}');
	FOR retries IN 0..4 LOOP
		PERFORM sweep.alter_job('item_jobs shaky', jsonb_build_object('row_retries', retries));
		FOR fails IN 0..4 LOOP
			CALL item_jobs.refill(1);
			CALL sweep.run('item_jobs shaky', jsonb_build_object('code', '40001', 'fails', fails));
			SELECT concat_ws(', ', message, handled || '/' || quarantined || ' after ' || last_value) INTO message FROM item_jobs.outcome, item_jobs.try;
		END LOOP;
		RAISE INFO 'row_retries %: %', retries, message;
		message := NULL;
	END LOOP;
END
$$;
RESET client_min_messages;
-- one item that always fails so does not take the others along
SELECT sweep.alter_job('item_jobs', '{"transaction": "batch", "batch_size": 4, "rescue": null, "row_retries": 1}');
CALL item_jobs.refill(8);
CALL sweep.run('item_jobs', '{"bad": [3], "code": "55P03"}');
SELECT * FROM item_jobs.outcome;
SELECT item, sqlstate FROM sweep.quarantine;

-- ------------------------------------------------------------------ what a run counts, and its limits
SELECT sweep.alter_job('item_jobs', '{"max_rows": 6}');
CALL item_jobs.refill(10);
CALL sweep.run('item_jobs');
SELECT * FROM item_jobs.last_run;
SELECT nth, size, items FROM item_jobs.calls;
-- items in quarantine are no rows
CALL item_jobs.refill(10);
CALL sweep.run('item_jobs', '{"bad": [1, 2]}');
SELECT * FROM item_jobs.last_run;
SELECT * FROM item_jobs.outcome;
SELECT sweep.alter_job('item_jobs', '{"max_rows": null, "max_batches": 1}');
CALL item_jobs.refill(10);
CALL sweep.run('item_jobs', '{"bad": [2]}');
SELECT * FROM item_jobs.last_run;
SELECT sweep.alter_job('item_jobs', '{"max_batches": null, "stop_after": "0"}');
CALL sweep.run('item_jobs', '{"bad": [3]}');
SELECT * FROM item_jobs.last_run;
SELECT sweep.alter_job('item_jobs', '{"stop_after": null}');
-- a step that handles none of its items ends nothing: only an empty pick does
CREATE FUNCTION item_jobs.idle(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT ROW(0, NULL, NULL)::sweep.progress $$;
SELECT sweep.create_job('item_jobs idle', step => 'item_jobs.idle', pick => 'item_jobs.pick', batch_size => 4);
CALL item_jobs.refill(10);
CALL sweep.run('item_jobs idle');
SELECT * FROM item_jobs.last_run;
SELECT rows, cursor, notes FROM sweep.preview('item_jobs idle');
-- flush: as it says, piece by piece
SELECT sweep.alter_job('item_jobs', '{"flush": "batch"}');
CALL item_jobs.refill(4);
CALL sweep.run('item_jobs', '{"bad": [1]}');
SELECT DISTINCT flush FROM item_jobs.call;
SELECT sweep.alter_job('item_jobs', '{"flush": "run"}');
CALL item_jobs.refill(4);
CALL sweep.run('item_jobs', '{"bad": [1]}');
SELECT DISTINCT flush FROM item_jobs.call;

-- ------------------------------------------------------------------ a run that ends in the middle of a batch goes on there
SELECT sweep.alter_job('item_jobs', '{"cursor": "drain", "batch_size": 8}');
CREATE TABLE item_jobs.stopped (transaction text, stop int, batches int, cursor jsonb, handled text, quarantined text);
\pset tuples_only on
SELECT format('SELECT sweep.alter_job(%L, %L)', 'item_jobs', jsonb_build_object('transaction', kind)),
	'CALL item_jobs.refill(16)',
	-- 2 and 9 have both batches cut into pieces; where the run is stopped is stop
	format('CALL sweep.run(%L, %L)', 'item_jobs', jsonb_build_object('bad', '[2, 9]'::jsonb, 'stop', stop)),
	format('INSERT INTO item_jobs.stopped SELECT %L, %s, batches, cursor FROM item_jobs.last_run', kind, stop),
	format('CALL sweep.run(%L, %L)', 'item_jobs', '{"bad": [2, 9]}'),
	format('UPDATE item_jobs.stopped AS s SET (handled, quarantined) = (SELECT handled, quarantined FROM item_jobs.outcome) '
		'WHERE s.transaction = %L AND s.stop = %s', kind, stop)
	FROM unnest(ARRAY['batch', 'row']) AS kind, unnest(ARRAY[1, 3, 4, 5, 8, 10, 16]) AS stop
\gexec
\pset tuples_only off
SELECT * FROM item_jobs.stopped ORDER BY transaction, stop;

-- ------------------------------------------------------------------ pick functions that are wrong
CREATE FUNCTION item_jobs.pick_wrong(b sweep.batch) RETURNS SETOF jsonb LANGUAGE plpgsql AS $$
BEGIN
	CASE b.args ->> 'wrong'
		WHEN 'many' THEN RETURN QUERY SELECT to_jsonb(i) FROM generate_series(1, b.size + 1) AS i;
		WHEN 'null' THEN RETURN QUERY VALUES (to_jsonb(1)), (NULL), (to_jsonb(3));
		WHEN 'twice' THEN RETURN QUERY VALUES ('{"id": 1}'::jsonb), ('{"id": 2}'), ('{"id": 1}');
		WHEN 'again' THEN RETURN QUERY SELECT item_jobs.pick(ROW(b.size, to_jsonb(b.cursor::int - 1), b.args, b.as_of, NULL, NULL, NULL, b.run_id));
		WHEN 'raises' THEN RETURN QUERY SELECT to_jsonb(1 / (i - 2)) FROM generate_series(1, 3) AS i;
	END CASE;
END
$$;
SELECT sweep.create_job('item_jobs wrong', step => 'item_jobs.step', pick => 'item_jobs.pick_wrong', batch_size => 3);
CALL item_jobs.refill(9);
CALL sweep.run('item_jobs wrong', '{"wrong": "many"}');
SELECT status, stop, batches, rows, sqlstate, error FROM item_jobs.last_run;
CALL sweep.run('item_jobs wrong', '{"wrong": "null"}');
SELECT status, stop, batches, rows, sqlstate, error FROM item_jobs.last_run;
CALL sweep.run('item_jobs wrong', '{"wrong": "twice"}');
SELECT status, stop, batches, rows, sqlstate, error FROM item_jobs.last_run;
CALL sweep.run('item_jobs wrong', '{"wrong": "raises"}');
SELECT status, stop, batches, rows, sqlstate, error FROM item_jobs.last_run;
SELECT * FROM item_jobs.outcome;
-- the batches before stay
CALL sweep.run('item_jobs wrong', '{"wrong": "again"}');
SELECT status, stop, batches, rows, cursor, sqlstate, error FROM item_jobs.last_run;
SELECT * FROM item_jobs.outcome;
-- the next run may pick them again
CALL sweep.run('item_jobs wrong', '{"wrong": "again"}');
SELECT * FROM item_jobs.outcome;
-- the same in transactions of their own
SELECT sweep.alter_job('item_jobs wrong', '{"transaction": "row"}');
CALL item_jobs.refill(9);
CALL sweep.run('item_jobs wrong', '{"wrong": "again"}');
SELECT status, stop, batches, rows, cursor, sqlstate, error FROM item_jobs.last_run;
CALL sweep.run('item_jobs wrong', '{"wrong": "many"}');
SELECT * FROM item_jobs.outcome;

-- ------------------------------------------------------------------ preview
SELECT sweep.alter_job('item_jobs', '{"transaction": "batch", "batch_size": 4}');
CALL item_jobs.refill(6);
SELECT rows, cursor, notes, plan LIKE '%FROM item_jobs.thing WHERE id >%' AS pick, plan LIKE '%SET handled = handled + 1%' AS step
	FROM sweep.preview('item_jobs');
SELECT * FROM item_jobs.outcome;
SELECT rows FROM sweep.preview('item_jobs', '{"bad": [2]}');
CALL item_jobs.refill(0);
SELECT rows, cursor, notes FROM sweep.preview('item_jobs');

-- ------------------------------------------------------------------ definitions that are refused
SELECT sweep.create_job('item_jobs x', pick => 'item_jobs.pick');
SELECT sweep.create_job('item_jobs x', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', pick => 'item_jobs.pick');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', rescue => 'item_jobs.rescue');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', transaction => 'row');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.pick', transaction => 'item');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.pick', row_retries => -1);
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.pick', row_retries => 101);
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.pick', row_retries => NULL);
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.step');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.pick', pick => 'item_jobs.pick');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.pick', rescue => 'item_jobs.step');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'pick');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.nothing');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => 'item_jobs.pick', rescue => 'rescue');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step', pick => '');
SELECT sweep.create_job('item_jobs x', step => 'item_jobs.step');
SELECT sweep.alter_job('item_jobs x', '{"transaction": "row"}');
SELECT sweep.alter_job('item_jobs x', '{"rescue": "item_jobs.rescue"}');
SELECT sweep.alter_job('item_jobs x', '{"pick": "item_jobs.step"}');
SELECT sweep.alter_job('item_jobs x', '{"pick": "item_jobs.pick", "rescue": "item_jobs.rescue", "transaction": "row"}');
SELECT sweep.alter_job('item_jobs x', '{"pick": null}');
SELECT pick, rescue, transaction FROM sweep.job WHERE name = 'item_jobs x';
SELECT sweep.alter_job('item_jobs x', '{"pick": null, "rescue": null, "transaction": "batch"}');
SELECT pick, rescue, transaction FROM sweep.job WHERE name = 'item_jobs x';
-- a pick that is gone makes the job broken
SELECT sweep.alter_job('item_jobs x', '{"pick": "item_jobs.pick_wrong"}');
DROP FUNCTION item_jobs.pick_wrong;
SELECT state FROM sweep.jobs WHERE name = 'item_jobs x';
SELECT sweep.start('item_jobs x');

-- a step in SQL that fails between its statements, and is called again
CREATE FUNCTION item_jobs.in_sql(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	UPDATE item_jobs.thing SET handled = handled + 1 WHERE to_jsonb(id) = ANY (b.items);
	SELECT count(6 / (id % 3)) FROM item_jobs.thing WHERE to_jsonb(id) = ANY (b.items);
	SELECT ROW(cardinality(b.items), NULL, NULL)::sweep.progress
$$;
SELECT sweep.create_job('item_jobs in sql', step => 'item_jobs.in_sql', pick => 'item_jobs.pick', batch_size => 4);
CALL item_jobs.refill(9);
CALL sweep.run('item_jobs in sql');
SELECT batches, rows, quarantined FROM item_jobs.last_run;
SELECT * FROM item_jobs.outcome;

-- the statement_timeout of a CALL fires once: it ends the run, also where the step raises an error of its own for it
CREATE FUNCTION item_jobs.slow(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF b.items @> '{1}' THEN
		PERFORM pg_sleep(2);  -- the sleep is the work
	END IF;
	RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
EXCEPTION WHEN query_canceled THEN
	RAISE query_canceled;
END
$$;
SELECT sweep.create_job('item_jobs slow', step => 'item_jobs.slow', pick => 'item_jobs.pick');
CALL item_jobs.refill(2);
\set VERBOSITY sqlstate
SET statement_timeout = '200 ms';
CALL sweep.run('item_jobs slow');
RESET statement_timeout;
\set VERBOSITY default
SELECT status, stop, sqlstate, rows, quarantined FROM item_jobs.last_run;
SET client_min_messages = warning;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'item\_jobs%';
DELETE FROM sweep.run_live WHERE job LIKE 'item\_jobs%';
DELETE FROM sweep.run_history WHERE job LIKE 'item\_jobs%';
DROP SCHEMA item_jobs CASCADE;
