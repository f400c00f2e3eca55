-- room: makers
-- Statements as people type them, in batches of seven rows: what they leave is what the plain statement leaves, each row updated as often.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS batched CASCADE;
DROP SCHEMA IF EXISTS batched_other CASCADE;
CREATE SCHEMA batched;
CREATE SCHEMA batched_other;
SET timezone = 'Asia/Tokyo';
SET datestyle = 'SQL, DMY';
SET search_path = batched, public;

CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad');
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE FUNCTION lower(pair) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''pair ''::text || ($1).y';
CREATE FUNCTION noisy(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION close_to(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT abs($1 - $2) < 5';
CREATE OPERATOR ~~~ (LEFTARG = int, RIGHTARG = int, FUNCTION = close_to);
CREATE TABLE item (id bigint PRIMARY KEY, kind text, state text DEFAULT 'new', n int NOT NULL, price numeric(10, 2), qty int, total numeric, note varchar(20), tags int[], doc jsonb,
	created_at timestamptz, loc timestamp, day date, active boolean, "Quoted ""Col" text, parent bigint, code char(4), span interval, f float8, uid uuid, m mood, b bytea, p pair,
	pos positive, txt text COLLATE "C", twice_n int GENERATED ALWAYS AS (n * 2) STORED, t time);
CREATE TABLE item_origin AS SELECT n AS id, 'k' || n % 5 AS kind, CASE n % 3 WHEN 0 THEN 'new' WHEN 1 THEN 'done' END AS state, n::int AS n, n * 1.25 AS price, (n % 7)::int AS qty,
		CASE n % 4 WHEN 0 THEN 0.0 END AS total, nullif('note ' || n % 10, 'note 3') AS note, ARRAY[n, n % 3]::int[] AS tags, jsonb_build_object('a', n % 4, 'b', jsonb_build_object('c', 'x' || n % 3)) AS doc,
		timestamptz '2026-01-01 00:00Z' + n * interval '6 hours' AS created_at, timestamp '2026-01-01' + n * interval '6 hours' AS loc, date '2026-01-01' + n::int AS day, n % 2 = 0 AS active,
		'Q' || n % 6 AS "Quoted ""Col", nullif(n / 2, 0) AS parent, 'c' || n % 9 AS code, n * interval '1 hour' AS span, n / 3.0::float8 AS f,
		('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid AS uid, (ARRAY['sad', 'ok', 'glad'])[1 + n % 3]::mood AS m, decode(lpad(to_hex(n), 4, '0'), 'hex') AS b,
		ROW(n, 'y' || n % 4)::pair AS p, n::positive AS pos, chr((65 + n % 26)::int) || chr((97 + n % 26)::int) AS txt, time '00:00' + n * interval '10 minutes' AS t
	FROM generate_series(1, 100) AS n;
CREATE TABLE owner (id bigint PRIMARY KEY, name text, factor int);
INSERT INTO owner SELECT n, 'owner ' || n, n % 4 FROM generate_series(1, 60) AS n;
CREATE TABLE ban (item_id bigint, reason text);
INSERT INTO ban SELECT n * 3, 'r' || n % 2 FROM generate_series(1, 20) AS n UNION ALL SELECT n * 3, 'again' FROM generate_series(1, 5) AS n;
CREATE TABLE batched_other.item (id bigint PRIMARY KEY, state text);
INSERT INTO batched_other.item SELECT n, 'other ' || n FROM generate_series(1, 100, 2) AS n;
CREATE VIEW owner_view AS SELECT o.id AS owner_id, o.factor FROM owner o WHERE o.factor > 0;
CREATE VIEW item_view AS SELECT * FROM item;
CREATE VIEW item_count AS SELECT (SELECT count(*) FROM item_view) AS n;
CREATE TABLE "Größe; DROP" (id int, "ключ" text, "a.b" int, PRIMARY KEY (id));
CREATE TABLE part (id int, region text, n int, note text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE part_a PARTITION OF part FOR VALUES IN ('a', 'b');
CREATE TABLE part_rest PARTITION OF part DEFAULT;
CREATE TABLE own (id int PRIMARY KEY, own int);
CREATE TABLE touched (id bigint);
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO batched.touched VALUES (NEW.id); RETURN NULL; END $$;
CREATE TRIGGER touch AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch AFTER UPDATE ON own FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch AFTER UPDATE ON part FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch AFTER UPDATE ON "Größe; DROP" FOR EACH ROW EXECUTE FUNCTION touch();

CREATE PROCEDURE fill_items() LANGUAGE plpgsql AS $$
DECLARE
	columns text := (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid = 'batched.item_origin'::regclass AND attnum > 0);
BEGIN
	DELETE FROM batched.item;
	DELETE FROM batched.part;
	DELETE FROM batched."Größe; DROP";
	DELETE FROM batched.own;
	DELETE FROM batched.touched;
	INSERT INTO batched.own SELECT n, n FROM generate_series(1, 40) AS n;
	EXECUTE format('INSERT INTO batched.item (%s) SELECT %1$s FROM batched.item_origin', columns);
	INSERT INTO batched.part SELECT n, chr((97 + n % 5)::int), n, 'n' || n % 3 FROM generate_series(1, 60) AS n;
	INSERT INTO batched."Größe; DROP" SELECT n, 'значение ' || n % 4, n FROM generate_series(1, 40) AS n;
END
$$;
CREATE PROCEDURE fill() LANGUAGE sql AS 'CALL batched.fill_items()';
-- Rows as text, and which rows were updated how often.
CREATE FUNCTION present() RETURNS TABLE (name text, line text) LANGUAGE sql AS $$
	SELECT 'item', i::text FROM batched.item i UNION ALL SELECT 'part', p::text FROM batched.part p UNION ALL SELECT 'size', g::text FROM batched."Größe; DROP" g
	UNION ALL SELECT 'own', o::text FROM batched.own o
	UNION ALL SELECT 'touched', t::text FROM batched.touched t
$$;
CREATE TABLE plain (name text, line text);
CREATE FUNCTION do_plainly(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	rows bigint;
BEGIN
	CALL batched.fill();
	EXECUTE statement;
	GET DIAGNOSTICS rows = ROW_COUNT;
	DELETE FROM batched.plain;
	INSERT INTO batched.plain SELECT * FROM batched.present();
	CALL batched.fill();
	RETURN rows;
END
$$;
-- Small tables without a unique index are gone through by that of the condition, as large ones would be.
CREATE FUNCTION make_job(statement text, serves boolean DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('seq_page_cost', CASE WHEN statement ~ '^(UPDATE|DELETE FROM) (keyless|keyless_part|p|k) ' THEN '100' ELSE '1' END, true);
	PERFORM sweep.create_job('batched test', step => format('sweep.%s_step', b.word), args => b.args || jsonb_strip_nulls(jsonb_build_object('serves', serves)), cursor => 'drain', batch_size => 7)
		FROM sweep._batched_args(current_user, statement, '{"search_path": "batched, public"}') AS b;
END
$$;
CREATE FUNCTION compare() RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN EXISTS ((SELECT * FROM batched.plain EXCEPT ALL SELECT * FROM batched.present()) UNION ALL (SELECT * FROM batched.present() EXCEPT ALL SELECT * FROM batched.plain))
		THEN 'DIFFERS' ELSE 'same' END || ' ' || coalesce((SELECT r.status || ' ' || r.batches || ' ' || coalesce(r.detail::text, '') || coalesce(r.error, '') FROM sweep.runs r WHERE r.job = 'batched test' ORDER BY run_id DESC LIMIT 1), '')
$$;
CREATE TABLE statement (nth int GENERATED ALWAYS AS IDENTITY, text text);
\pset format unaligned
\pset tuples_only on

INSERT INTO statement (text) VALUES
-- plain ones
($$UPDATE item SET n = n + 1$$),
($$update Batched.ITEM set N = n+1 where ID <= 50;$$),
($$UPDATE item SET n = n + 1 WHERE n % 2 = 0 -- the even ones$$),
($$UPDATE /* all */ item SET state = 'done' WHERE state = 'new' ; -- done
$$),
($$UPDATE item SET state = 'x'$$),
($$UPDATE item SET note = NULL WHERE note IS NOT NULL$$),
($$UPDATE item SET total = price * qty WHERE total IS NULL$$),
($$UPDATE item AS i SET total = i.price * i.qty WHERE i.total IS NULL AND i.id BETWEEN 10 AND 90$$),
($$UPDATE item i SET state = 'a', note = 'b', n = i.n - 1 WHERE i.state IS DISTINCT FROM 'a'$$),
($$UPDATE batched.item SET active = NOT active$$),
($$UPDATE item SET active = false WHERE active$$),
($$UPDATE item SET active = true WHERE NOT active OR active IS NULL$$),
($$UPDATE item SET n = 1 WHERE false$$),
($$UPDATE item SET state = DEFAULT WHERE state = 'done'$$),
($$UPDATE item SET state = DEFAULT, note = DEFAULT$$),
($$UPDATE item SET (state, note) = ('s', 't') WHERE kind = 'k1'$$),
($$UPDATE item SET (state, n) = ROW('s', n * 2) WHERE kind = 'k1'$$),
($$UPDATE item SET (state, n) = (SELECT o.name, o.factor FROM owner o WHERE o.id = item.id) WHERE id <= 60$$),
($$UPDATE item SET note = (SELECT reason FROM ban WHERE item_id = item.id ORDER BY reason LIMIT 1)$$),
($$UPDATE item SET note = CASE WHEN n < 20 THEN 'few' WHEN n < 60 THEN 'some' ELSE 'many' END WHERE kind IN ('k1', 'k2')$$),
-- conditions
($$UPDATE item SET n = n + 1 WHERE kind IN ('k1', 'k3') AND state IS NOT NULL$$),
($$UPDATE item SET n = n + 1 WHERE kind NOT IN ('k1', 'k3')$$),
($$UPDATE item SET n = n + 1 WHERE note LIKE 'note _' AND note NOT ILIKE '%7'$$),
($$UPDATE item SET n = n + 1 WHERE note SIMILAR TO 'note (1|2)' OR note ~ '4$'$$),
($$UPDATE item SET n = n + 1 WHERE (id, n) > (40, 3) AND (kind, qty) = ('k1', 1)$$),
($$UPDATE item SET n = n + 1 WHERE (id, kind) IN ((6, 'k1'), (7, 'k2'), (8, 'k4'))$$),
($$UPDATE item SET n = n + 1 WHERE tags @> '{1}' AND 5 = ANY (tags) IS NOT TRUE$$),
($$UPDATE item SET tags[1] = 0, tags[3] = 5 WHERE tags[2] = 1$$),
($$UPDATE item SET tags = tags || 7 WHERE cardinality(tags) = 2$$),
($$UPDATE item SET doc = doc || '{"d": null}' WHERE doc ->> 'a' = '1'$$),
($$UPDATE item SET doc = jsonb_set(doc, '{b,c}', '"new"') WHERE doc #>> '{b,c}' = 'x1' AND doc ? 'a'$$),
($$UPDATE item SET doc['e'] = to_jsonb(n) WHERE doc @> '{"a": 2}'$$),
($$UPDATE item SET p.x = 0 WHERE (p).y = 'y1'$$),
($$UPDATE item SET p.x = 0, p.y = lower(p) WHERE (p).x > 50$$),
($$UPDATE item SET p = ROW(1, 'z') WHERE p IS NOT NULL$$),
($$UPDATE item SET m = 'glad' WHERE m < 'glad'$$),
($$UPDATE item SET b = '\xdeadbeef' WHERE b < '\x0020'::bytea$$),
($$UPDATE item SET note = E'tab\there\'s \\ back' WHERE note = E'note\x20\061'$$),
($$UPDATE item SET note = 'a\b''c' WHERE note <> 'a\b''c'$$),
($$UPDATE item SET note = U&'\0441\043B\043E\043D' WHERE kind = $q$k1$q$ $$),
($$UPDATE item SET note = B'101'::text WHERE uid = '00000000-0000-0000-0000-000000000007'$$),
($$UPDATE item SET f = f + 0.1 WHERE f > 0.1::float8 + 1.0e1 AND f <> 'NaN'$$),
($$UPDATE item SET f = 1e-300 * pi() WHERE f = 1::float8 / 3 OR f = 33.333333333333336$$),
($$UPDATE item SET price = -price WHERE price > 5.25 AND abs(-qty) = 3$$),
($$UPDATE item SET span = span + '1 mon -2 days +03:04' WHERE span < interval '2' day$$),
($$UPDATE item SET span = INTERVAL '1-2' YEAR TO MONTH WHERE span > '30:00'$$),
($$UPDATE item SET created_at = created_at + interval '1 day' WHERE created_at < '05/01/2026'$$),
($$UPDATE item SET n = 0 WHERE created_at >= timestamptz '10/01/2026 03:30' AND loc > timestamp '11/01/2026'$$),
($$UPDATE item SET n = 0 WHERE day = '05/02/2026' OR day BETWEEN DATE '01/03/2026' AND '09/03/2026'$$),
($$UPDATE item SET n = 0 WHERE created_at AT TIME ZONE 'America/New_York' < '2026-01-05'$$),
($$UPDATE item SET n = extract(isodow FROM day) WHERE date_trunc('month', loc) = '2026-01-01'$$),
($$UPDATE item SET t = t + '1 hour' WHERE t < time '03:00'$$),
($$UPDATE item SET n = n + 1 WHERE created_at < now() - interval '1 year' * 0$$),
($$UPDATE item SET n = n + 1 WHERE day < current_date AND loc < localtimestamp(0) AND created_at < CURRENT_TIMESTAMP(3)$$),
($$UPDATE item SET n = n + 1 WHERE created_at < statement_timestamp() AND created_at < transaction_timestamp() AND t < '23:59'$$),
($$UPDATE item SET "Quoted ""Col" = upper("Quoted ""Col") || '"' WHERE "Quoted ""Col" = 'Q1'$$),
($$UPDATE item SET note = 'x' WHERE note IS NULL AND coalesce(state, '') = ''$$),
($$UPDATE item SET n = nullif(qty, 3) + greatest(n, 5, qty) WHERE qty <> 3$$),
($$UPDATE item SET code = 'c9' WHERE code = 'c1'$$),
($$UPDATE item SET code = 'z' WHERE code = 'c1  '::char(4) AND code::text = 'c1'$$),
($$UPDATE item SET note = 'long note that'::varchar(9) || 'x' WHERE note::char(4) = 'note'$$),
($$UPDATE item SET pos = pos + 1::positive WHERE pos::int > 50$$),
($$UPDATE item SET n = twice(n) WHERE n ~~~ 50$$),
($$UPDATE item SET n = n OPERATOR(pg_catalog.+) 1 WHERE twice(n) > 100$$),
($$UPDATE item SET n = noisy(n) + 1 WHERE id > 30$$),
($$UPDATE item SET n = twice_n WHERE twice_n > 30$$),
($$UPDATE item SET txt = txt || 'x' WHERE txt > 'M' AND txt COLLATE "C" < 'm'$$),
($$UPDATE item SET n = 1 WHERE lower(kind) = 'k1' AND position('k' IN kind) = 1 AND substring(kind FROM 2 FOR 1) = '1' AND overlay(kind PLACING 'x' FROM 1) = 'x1'$$),
($$UPDATE item SET n = 1 WHERE trim(both 'k' from kind) = '2' AND kind IS NFC NORMALIZED$$),
($$UPDATE item SET n = 1 WHERE id::text ~ '^1' AND id::numeric % 2 = 1 AND CAST(id AS float8) > 1$$),
($$UPDATE item SET note = item::text WHERE item IS NOT NULL AND id = 3$$),
($$UPDATE item SET n = length(item.*::text) % 7 WHERE row_to_json(item) ->> 'kind' = 'k1'$$),
($$UPDATE item SET n = 5 WHERE tableoid = 'item'::regclass AND ctid IS NOT NULL AND xmin IS NOT NULL$$),
($$UPDATE item SET n = 5 WHERE n IS DISTINCT FROM 5 AND (state = 'new') IS UNKNOWN$$),
($$UPDATE item SET n = 5 WHERE (n, qty) IS DISTINCT FROM (5, 2)$$),
($$UPDATE item SET state = current_user WHERE kind = 'k2'$$),
($$UPDATE item * SET (n, state) = (n + 1, DEFAULT) WHERE kind = ANY (string_to_array('k1,k2', ','))$$),
($$UPDATE item SET note = 'short' WHERE length(note) > 5 AND note <> 'short'$$),
($$UPDATE item SET qty = 0, n = qty WHERE qty <> 0 AND n <> 0$$),
($$UPDATE item SET state = 'new', note = 'n' WHERE state = 'new' AND note IS NULL$$),
($$UPDATE own SET own = own + 1 WHERE own > 3 AND own.own < 30$$),
-- other tables
($$UPDATE item SET n = o.factor FROM owner o WHERE o.id = item.id$$),
($$UPDATE item SET n = o.factor, note = o.name FROM owner AS o WHERE o.id = item.id AND note IS NULL$$),
($$UPDATE item i SET n = o.factor + b.c FROM owner o JOIN (SELECT item_id, count(*) AS c FROM ban GROUP BY item_id) b ON b.item_id = o.id WHERE o.id = i.id$$),
($$UPDATE item SET n = 0 FROM owner o LEFT JOIN ban ON ban.item_id = o.id, owner_view v WHERE o.id = item.id AND ban.item_id IS NULL AND v.owner_id = o.id$$),
($$UPDATE item SET n = item.n + 1 FROM batched_other.item x WHERE x.id = item.id AND x.state LIKE 'other %'$$),
($$UPDATE item x SET n = x.n + 1 FROM batched_other.item WHERE item.id = x.id$$),
($$UPDATE item SET n = v.n FROM (VALUES (1, 100), (2, 200), (77, 7700)) AS v (id, n) WHERE v.id = item.id$$),
($$UPDATE item SET n = s.i FROM generate_series(1, 100) AS s (i) WHERE s.i = item.id AND s.i % 3 = 0$$),
($$UPDATE item i SET n = (SELECT count(*) FROM owner item WHERE item.id = i.id)$$),
($$UPDATE item SET (note, qty) = (SELECT left(b.reason, 5), o.factor FROM ban b WHERE b.item_id = o.id ORDER BY b.reason LIMIT 1) FROM owner o WHERE o.id = item.id AND o.factor > 0$$),
($$UPDATE item SET n = l.most FROM owner o, LATERAL (SELECT max(length(b.reason)) AS most FROM ban b WHERE b.item_id = o.id) AS l WHERE o.id = item.id AND l.most > 1$$),
($$UPDATE item SET n = w.r FROM (SELECT id, rank() OVER (PARTITION BY factor ORDER BY id DESC) AS r FROM owner) w WHERE w.id = item.id$$),
($$UPDATE item SET n = n + 1 WHERE id IN (SELECT item_id FROM ban)$$),
($$UPDATE item SET n = n + 1 WHERE id NOT IN (SELECT item_id FROM ban WHERE item_id IS NOT NULL)$$),
($$UPDATE item SET n = n + 1 WHERE EXISTS (SELECT 1 FROM ban b WHERE b.item_id = id)$$),
($$UPDATE item i SET n = n + 1 WHERE NOT EXISTS (SELECT FROM batched_other.item o JOIN owner USING (id) WHERE id = i.parent AND state LIKE 'other%')$$),
($$UPDATE item i SET n = n + 1 WHERE NOT EXISTS (SELECT FROM owner id JOIN ban b ON b.item_id = id.id WHERE id.id = i.parent)$$),
($$UPDATE item SET n = n + 1 WHERE qty > ALL (SELECT factor FROM owner_view WHERE owner_id < 3)$$),
($$UPDATE item SET n = n + 1 WHERE id = ANY (ARRAY(SELECT item_id FROM ban LIMIT 30))$$),
($$UPDATE item SET n = (SELECT max(factor) FROM owner) WHERE n > (SELECT avg(factor) FROM owner)$$),
($$UPDATE item SET n = 3 WHERE id IN (WITH w AS (SELECT item_id FROM ban) SELECT item_id FROM w UNION SELECT id FROM batched_other.item WHERE id < 9)$$),
-- tables of other kinds
($$UPDATE part SET n = n + 1$$),
($$UPDATE part SET note = 'x' WHERE region IN ('a', 'c') AND note <> 'x'$$),
($$UPDATE part_a SET n = n * 2 WHERE region = 'b'$$),
($$UPDATE "Größe; DROP" SET "ключ" = 'слон', "a.b" = "a.b" + 1 WHERE "Größe; DROP"."ключ" = 'значение 1'$$),
($$UPDATE "Größe; DROP" AS "SELECT" SET "a.b" = 0 WHERE "SELECT"."a.b" > 20$$);

\set ECHO none
SELECT format('SELECT ''-- '' || %L', text), format('SELECT %s || '' '' || batched.do_plainly(%L)', nth, text), format('SELECT batched.make_job(%L, false)', text), 'CALL sweep.run(''batched test'')', 'SELECT batched.compare()',
	'SELECT sweep.drop_job(''batched test'')', 'CALL batched.fill()', format('SELECT batched.make_job(%L, true)', text), 'CALL sweep.run(''batched test'')', 'SELECT batched.compare()', 'SELECT sweep.drop_job(''batched test'')' FROM statement ORDER BY nth \gexec

-- deletes
TRUNCATE statement;
INSERT INTO statement (text) VALUES
($$DELETE FROM item$$),
($$delete from item where created_at < now() - '1 month'::interval and id <> 7;$$),
($$DELETE FROM item AS i WHERE i.state = 'new' OR i.note IS NULL$$),
($$DELETE FROM item USING owner o WHERE o.id = item.parent AND o.factor > 1$$),
($$DELETE FROM item i USING owner_view v JOIN ban b ON b.item_id = v.owner_id, batched_other.item WHERE item.id = i.id AND v.owner_id = i.parent$$),
($$DELETE FROM item USING owner$$),
($$DELETE FROM item USING ban WHERE item_id = id$$),
($$DELETE FROM item x USING batched_other.item JOIN owner o USING (id) WHERE o.id = x.parent$$),
($$DELETE FROM item WHERE id IN (SELECT item_id FROM ban) AND day = '05/02/2026' OR day < date '20/01/2026'$$),
($$DELETE FROM item WHERE "Quoted ""Col" LIKE 'Q_' AND note = 'note 5'$$),
($$DELETE FROM part WHERE region = 'a' AND n > 5$$),
($$DELETE FROM part USING owner WHERE owner.id = part.id AND factor = 2$$),
($$DELETE FROM "Größe; DROP" "d" WHERE d."ключ" ~ '[12]$'$$);
SELECT format('SELECT ''-- '' || %L', text), format('SELECT %s || '' '' || batched.do_plainly(%L)', nth, text), format('SELECT batched.make_job(%L, false)', text), 'CALL sweep.run(''batched test'')', 'SELECT batched.compare()',
	'SELECT sweep.drop_job(''batched test'')', 'CALL batched.fill()', format('SELECT batched.make_job(%L, true)', text), 'CALL sweep.run(''batched test'')', 'SELECT batched.compare()', 'SELECT sweep.drop_job(''batched test'')' FROM statement ORDER BY nth \gexec

-- by which index: one that serves the condition and is not changed, its keys not unique; for what could happen twice a unique one
CREATE TABLE log (id int PRIMARY KEY, at timestamptz NOT NULL, kind int, state text, note text, n int DEFAULT 0);
CREATE INDEX ON log (at);
CREATE INDEX ON log (kind);
CREATE INDEX ON log (state);
CREATE INDEX ON log ((n / 10), id);
CREATE INDEX ON log ((id % 100), id);
CREATE TABLE log_part (id int, at timestamptz NOT NULL, kind int, state text, note text, n int DEFAULT 0, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE log_part_1 PARTITION OF log_part FOR VALUES FROM (MINVALUE) TO ('2026-01-05Z');
CREATE TABLE log_part_2 PARTITION OF log_part DEFAULT;
CREATE INDEX ON log_part (kind);
CREATE TABLE keyless (id int, n int UNIQUE, kind int, state text);
CREATE INDEX ON keyless (kind);
CREATE TABLE keyless_part (LIKE keyless) PARTITION BY HASH (id);
CREATE TABLE keyless_part_1 PARTITION OF keyless_part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE keyless_part_2 PARTITION OF keyless_part FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON keyless_part (kind);
CREATE TABLE p (p int, kind int, picked int);
CREATE INDEX ON p (kind);
CREATE TABLE k (k int, b int, n int);
CREATE INDEX ON k (b);
CREATE TRIGGER touch AFTER UPDATE ON log FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch AFTER UPDATE ON log_part FOR EACH ROW EXECUTE FUNCTION touch();
CREATE OR REPLACE PROCEDURE fill() LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE batched.log, batched.log_part, batched.keyless, batched.keyless_part, batched.p, batched.k, batched.touched;
	INSERT INTO batched.log SELECT n, timestamptz '2026-01-01Z' + n / 40 * interval '1 hour', nullif(n % 20, 19), CASE n % 3 WHEN 0 THEN 'new' ELSE 'old' END FROM generate_series(1, 4000) AS n;
	INSERT INTO batched.log_part SELECT * FROM batched.log;
	INSERT INTO batched.keyless SELECT n, n, n % 30, 'new' FROM generate_series(1, 1000) AS n;
	INSERT INTO batched.keyless_part SELECT * FROM batched.keyless;
	INSERT INTO batched.p SELECT n, n % 20, n % 3 FROM generate_series(1, 1000) AS n;
	INSERT INTO batched.k SELECT n, n % 20, n % 3 FROM generate_series(1, 1000) AS n;
	ANALYZE batched.log, batched.log_part, batched.keyless, batched.keyless_part, batched.p, batched.k;
END
$$;
CREATE OR REPLACE FUNCTION present() RETURNS TABLE (name text, line text) LANGUAGE sql AS $$
	SELECT 'log', i::text FROM batched.log i UNION ALL SELECT 'log_part', p::text FROM batched.log_part p UNION ALL SELECT 'keyless', g::text FROM batched.keyless g
	UNION ALL SELECT 'p', x::text FROM batched.p x UNION ALL SELECT 'keyless_part', q::text FROM batched.keyless_part q UNION ALL SELECT 'k', k::text FROM batched.k UNION ALL SELECT 'touched', t::text FROM batched.touched t
$$;
TRUNCATE statement;
INSERT INTO statement (text) VALUES
($$UPDATE log SET note = 'early' WHERE at < '01/01/2026 15:00' AND note IS NULL$$),
($$UPDATE log SET note = 'early', n = n + 1 WHERE at < '01/01/2026 15:00'$$),
($$UPDATE log SET state = 'done' WHERE state = 'new' AND kind = 5$$),
($$UPDATE log SET state = 'done' WHERE state = 'new'$$),
($$UPDATE log SET note = 'known' FROM owner o WHERE o.id = log.kind AND log.kind IN (5, 7) AND log.note IS NULL$$),
($$UPDATE log SET note = o.name FROM owner o WHERE o.id = log.kind AND log.kind = 5 AND log.note IS NULL$$),
($$UPDATE log SET kind = 3 WHERE kind = 5 AND id < 1000$$),
($$UPDATE log SET n = n + 1 WHERE id BETWEEN 1000 AND 1100$$),
($$UPDATE log SET n = n + 10 WHERE n / 10 = 0 AND id % 2 = 0$$),
($$UPDATE log SET n = n + 10 WHERE id % 100 = 7$$),
($$UPDATE log SET state = 'done' WHERE id % 100 IN (7, 8) AND state = 'new'$$),
($$DELETE FROM log WHERE id % 100 = 8$$),
($$UPDATE log_part SET state = 'done' WHERE kind = 4 AND state <> 'done'$$),
($$UPDATE keyless SET state = 'done' WHERE kind = 4 AND state = 'new'$$),
($$UPDATE keyless SET state = 'done' FROM owner sweep_p, (SELECT 4 AS four) picked WHERE sweep_p.id = keyless.kind AND kind = 4 AND state = 'new'$$),
($$UPDATE keyless_part SET state = 'done' WHERE kind IN (4, 9) AND state = 'new'$$),
($$DELETE FROM keyless_part WHERE kind IN (4, 9)$$),
($$DELETE FROM p WHERE kind IN (4, 9)$$),
($$UPDATE p SET picked = 7 WHERE kind = 4 AND picked IS DISTINCT FROM 7$$),
($$UPDATE k SET n = 9 WHERE b = 4 AND n <> 9$$),
($$DELETE FROM log WHERE kind = 5 AND state = 'new'$$),
($$DELETE FROM log USING owner o WHERE o.id = log.kind AND o.factor = 3 AND kind = 7$$),
($$DELETE FROM keyless WHERE kind = 4$$),
($$DELETE FROM log_part WHERE kind = 4 AND at < now() - interval '1 second'$$);
ANALYZE owner;
SELECT format('SELECT ''-- '' || %L', text), format('SELECT %s || '' '' || batched.do_plainly(%L)', nth, text), format('SELECT batched.make_job(%L)', text), $$SELECT args ->> 'key', args ->> 'serves' FROM sweep.job WHERE name = 'batched test'$$,
	'CALL sweep.run(''batched test'')', 'SELECT batched.compare()', 'SELECT sweep.drop_job(''batched test'')' FROM statement ORDER BY nth \gexec
CREATE FUNCTION keep_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note := OLD.note; RETURN NEW; END $$;
CREATE TRIGGER keep_note BEFORE UPDATE ON log FOR EACH ROW EXECUTE FUNCTION keep_note();
SELECT do_plainly($$UPDATE log SET note = 'early', n = n + 1 WHERE at < '01/01/2026 15:00' AND note IS NULL$$);
SELECT make_job($$UPDATE log SET note = 'early', n = n + 1 WHERE at < '01/01/2026 15:00' AND note IS NULL$$);
CALL sweep.run('batched test');
SELECT compare(), args ->> 'key' FROM sweep.job WHERE name = 'batched test';
SELECT sweep.drop_job('batched test');


-- what is refused, and what to write instead
CREATE FUNCTION refuse(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; detail text; hint text;
BEGIN
	PERFORM sweep._batched_args(current_user, statement, '{"search_path": "batched, public"}');
	RETURN 'NOT REFUSED';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', state, message, nullif(detail, ''), nullif(hint, ''));
END
$$;
CREATE TABLE parent (id int PRIMARY KEY, n int);
CREATE TABLE heir () INHERITS (parent);
CREATE TABLE ruled (id int PRIMARY KEY, n int);
CREATE RULE keep AS ON DELETE TO ruled DO INSTEAD NOTHING;
CREATE TABLE moved (id int PRIMARY KEY, email text, a int, b int, place int4range, EXCLUDE USING gist (place WITH &&)) ;
CREATE UNIQUE INDEX ON moved (pg_catalog.lower(email));
CREATE UNIQUE INDEX ON moved (a) WHERE b > 0;
ALTER TABLE moved ADD double_a int GENERATED ALWAYS AS (id + b) STORED UNIQUE;
CREATE TABLE span_part (id int, at date, UNIQUE (id, at)) PARTITION BY RANGE (at);
CREATE TABLE span_part_1 PARTITION OF span_part DEFAULT;
CREATE TABLE expr_part (id int NOT NULL, n int) PARTITION BY RANGE ((n % 10));
CREATE TABLE expr_part_1 PARTITION OF expr_part DEFAULT;
CREATE FOREIGN DATA WRAPPER regress_sweep_batched;
CREATE SERVER regress_sweep_batched FOREIGN DATA WRAPPER regress_sweep_batched;
CREATE FOREIGN TABLE elsewhere (id int) SERVER regress_sweep_batched;
CREATE TEMP TABLE scratch (id int PRIMARY KEY);
TRUNCATE statement;
INSERT INTO statement (text) VALUES
(NULL), (''), ('-- nothing'), ('UPDATE item SET'), ('UPDATE item SET n = 1 WHERE id = '), ('item'),
('SELECT * FROM item'), ('INSERT INTO item (id) VALUES (1)'), ('TRUNCATE item'), ('DROP TABLE item'),
('MERGE INTO item USING owner o ON o.id = item.id WHEN MATCHED THEN DELETE'), ('EXPLAIN DELETE FROM item'), ('COPY item TO STDOUT'),
('DELETE FROM item; DELETE FROM owner'), ('DELETE FROM item WHERE id = 1;;DELETE FROM item'), ('PREPARE x AS DELETE FROM item'), ('DO $x$ BEGIN DELETE FROM item; END $x$'),
('DELETE FROM item WHERE id = $1'), ('UPDATE item SET n = $2'), ('UPDATE item SET n = (SELECT $1::int)'), ('DELETE FROM item WHERE id IN (SELECT $3::int)'),
('DELETE FROM ONLY item'), ('UPDATE ONLY item SET n = 1'),
('DELETE FROM item RETURNING id'), ('UPDATE item SET n = 1 RETURNING *'),
('WITH w AS (SELECT item_id FROM ban) DELETE FROM item USING w WHERE w.item_id = id'), ('WITH w AS (DELETE FROM ban RETURNING *) UPDATE item SET n = 1'),
('DELETE FROM item WHERE CURRENT OF c'),
('DELETE FROM item WHERE id IN (SELECT id FROM item WHERE state = ''new'' LIMIT 1000)'), ('DELETE FROM item WHERE ctid IN (SELECT ctid FROM item LIMIT 5)'),
('DELETE FROM item WHERE ctid = ANY (ARRAY(SELECT ctid FROM item WHERE n > 1 ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED))'),
('DELETE FROM item a USING item b WHERE a.id < b.id AND a.kind = b.kind'), ('DELETE FROM item WHERE NOT EXISTS (SELECT FROM item c WHERE c.parent = item.id)'),
('UPDATE item SET n = (SELECT max(n) FROM item)'), ('UPDATE item SET n = v.n FROM item_view v WHERE v.id = item.id'), ('UPDATE item SET n = (SELECT n FROM item_count)'),
('UPDATE part_a SET n = 1 WHERE id IN (SELECT id FROM part)'), ('UPDATE part SET n = 1 WHERE id IN (SELECT id FROM part_rest)'),
('UPDATE item SET n = 1 WHERE id IN (WITH w AS (SELECT id FROM item) SELECT id FROM w)'), ('DELETE FROM item WHERE n > (SELECT avg(x) FROM (SELECT n AS x FROM item_view) AS s)'),
('DELETE FROM item WHERE random() < 0.5'), ('DELETE FROM item WHERE created_at < clock_timestamp()'), ('UPDATE item SET n = 1 WHERE noisy(n) = 1'),
('DELETE FROM item USING (SELECT random() AS r) AS s WHERE s.r < 0.5'), ('UPDATE item SET n = s.r FROM noisy(1) AS s (r)'), ('DELETE FROM item WHERE id IN (SELECT noisy(1))'),
('UPDATE item SET n = 1 FROM owner o TABLESAMPLE SYSTEM (50) WHERE o.id = item.id'), ('DELETE FROM item WHERE id IN (SELECT item_id FROM ban TABLESAMPLE BERNOULLI (50))'),
('UPDATE item SET n = 1 WHERE nextval(''s'') > 1'), ('DELETE FROM item WHERE max(n) > 1'), ('UPDATE item SET n = count(*)'), ('DELETE FROM item WHERE (SELECT max(item.n)) > 1'),
('UPDATE item SET id = id + 1'), ('UPDATE item SET (n, id) = (1, 2)'), ('UPDATE keyless SET n = n + 1'), ('UPDATE keyless SET id = 1'),
('UPDATE moved SET email = lower(email)'), ('UPDATE moved SET a = a + 1'), ('UPDATE moved SET b = 1'), ('UPDATE moved SET place = NULL'),
('UPDATE part SET region = ''x'' WHERE region = ''a'''), ('UPDATE part_a SET region = ''b'''), ('UPDATE span_part_1 SET at = now()'), ('UPDATE expr_part SET n = 1'), ('UPDATE span_part SET at = DEFAULT'),
('DELETE FROM item_view'), ('UPDATE owner_view SET factor = 1'), ('UPDATE item_count SET n = 1'), ('DELETE FROM ruled WHERE id = 1'), ('DELETE FROM parent'), ('UPDATE heir SET n = 1'),
('DELETE FROM elsewhere'), ('DELETE FROM pg_class'), ('UPDATE pg_catalog.pg_proc SET proname = ''x'''), ('DELETE FROM information_schema.sql_features'), ('DELETE FROM pg_temp.scratch'),
('UPDATE item SET n = 1 WHERE id IN (SELECT id FROM pg_temp.scratch)'),
('DELETE FROM no_such'), ('UPDATE item SET no_such = 1'), ('UPDATE item SET n = ''x'''), ('DELETE FROM item WHERE n'), ('UPDATE item SET twice_n = 1');
SELECT format('SELECT ''-- '' || coalesce(%L, ''NULL'')', text), format('SELECT batched.refuse(%L)', text) FROM statement ORDER BY nth \gexec
\set ECHO all

-- rows that come meanwhile: each row once, those that came later not at all; where no row meets the condition twice, those that came below the greatest key, too
CALL fill_items();
SELECT make_job('UPDATE item SET n = n + 1 WHERE state IS NOT NULL');
SELECT sweep.alter_job('batched test', '{"max_batches": 4}');
CALL sweep.run('batched test');
SELECT status, stop_reason, detail, cursor - 'ordering' FROM sweep.runs WHERE job = 'batched test' ORDER BY run_id DESC LIMIT 1;
INSERT INTO item (id, state, n) VALUES (-1, 'late', 1000), (50000, 'late', 1000);
SELECT sweep.alter_job('batched test', '{"max_batches": null}');
CALL sweep.run('batched test');
SELECT status, stop_reason, detail FROM sweep.runs WHERE job = 'batched test' ORDER BY run_id DESC LIMIT 1;
SELECT count(*) FILTER (WHERE n = id + 1), count(*) FILTER (WHERE n = id AND state IS NULL), count(*) FILTER (WHERE state = 'late' AND n = 1000) FROM item;
SELECT sweep.drop_job('batched test');
SELECT make_job('UPDATE item SET state = ''done'' WHERE state IS DISTINCT FROM ''done''');
SELECT sweep.alter_job('batched test', '{"max_batches": 4}');
CALL sweep.run('batched test');
INSERT INTO item (id, state, n) VALUES (-2, 'late', 1000), (50001, 'late', 1000);
SELECT sweep.alter_job('batched test', '{"max_batches": null}');
CALL sweep.run('batched test');
SELECT detail, (SELECT array_agg(id) FROM item WHERE state <> 'done') AS left FROM sweep.runs WHERE job = 'batched test' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.drop_job('batched test');

-- a moment is that of the run, for all batches
CALL fill_items();
SELECT make_job('UPDATE item SET created_at = now(), loc = LOCALTIMESTAMP(0), day = CURRENT_DATE, t = localtime, note = CURRENT_TIME(1)::text, span = age(created_at), kind = age(loc) WHERE created_at < transaction_timestamp() - interval ''15 days''');
SELECT args ->> 'statement' FROM sweep.job WHERE name = 'batched test';
CALL sweep.run('batched test', '{"as_of": "2026-01-21 20:34:56.789Z"}');
SELECT created_at, loc, day, t, note, count(*) FROM item WHERE n <= 20 GROUP BY 1, 2, 3, 4, 5 ORDER BY count(*) DESC LIMIT 2;
SELECT span, kind FROM item WHERE id = 1;

-- the owner of the job may alter its args: they are checked again
SELECT sweep.alter_job('batched test', jsonb_build_object('args', args || '{"statement": "UPDATE batched.item SET n = $1"}')) FROM sweep.job WHERE name = 'batched test';
\set VERBOSITY sqlstate
CALL sweep.run('batched test');
SELECT sweep.alter_job('batched test', jsonb_build_object('args', args || '{"statement": "UPDATE batched.item SET n = 1; DROP TABLE batched.item"}')) FROM sweep.job WHERE name = 'batched test';
CALL sweep.run('batched test');
SELECT sweep.alter_job('batched test', jsonb_build_object('args', args || '{"statement": "UPDATE batched.owner SET factor = 1"}')) FROM sweep.job WHERE name = 'batched test';
CALL sweep.run('batched test');
SELECT sweep.alter_job('batched test', jsonb_build_object('args', args || '{"statement": "UPDATE item SET n = 1"}')) FROM sweep.job WHERE name = 'batched test';
CALL sweep.run('batched test');
SELECT sweep.alter_job('batched test', jsonb_build_object('args', args || '{"statement": "DELETE FROM batched.item"}')) FROM sweep.job WHERE name = 'batched test';
CALL sweep.run('batched test');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'batched test' AND status = 'failed' ORDER BY run_id;
SELECT count(*) FROM item;
SELECT sweep.drop_job('batched test');

-- code of users is executed as the role of the job, also while the statement is taken apart
CREATE ROLE regress_sweep_batched LOGIN IN ROLE sweep_user;
CREATE SCHEMA batched_attack AUTHORIZATION regress_sweep_batched;
SET ROLE regress_sweep_batched;
CREATE FUNCTION batched_attack.spy(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RAISE NOTICE 'spy: % %', current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);
	PERFORM set_config('search_path', 'batched_attack', false);
	RETURN x;
END
$$;
CREATE DOMAIN batched_attack.watched AS int CHECK (batched_attack.spy(VALUE) > 0);
CREATE TABLE batched_attack.victim (id int PRIMARY KEY, n batched_attack.watched);
RESET ROLE;
SET search_path = batched, public;
SET client_min_messages = notice;
SELECT word, target, args FROM sweep._batched_args('regress_sweep_batched', 'UPDATE batched_attack.victim SET n = 2 WHERE n = batched_attack.spy(1) AND id = 1::batched_attack.watched', NULL);
SET client_min_messages = warning;
SELECT current_setting('search_path');

-- triggers that would see batches
CREATE TRIGGER each_statement AFTER UPDATE ON item FOR EACH STATEMENT EXECUTE FUNCTION touch();
CREATE TRIGGER all_rows AFTER DELETE ON item REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION touch();
SELECT word FROM sweep._batched_args(current_user, 'UPDATE batched.item SET n = 1', NULL);
SELECT word FROM sweep._batched_args(current_user, 'DELETE FROM batched.item', NULL);

DROP TRIGGER each_statement ON item;
DROP TRIGGER touch ON item;

-- sweep.batched itself: as the caller, with the names and the zone of the session
CALL fill_items();
SELECT current_user AS superuser \gset
GRANT USAGE ON SCHEMA batched TO regress_sweep_batched;
GRANT SELECT, UPDATE (day, note) ON item TO regress_sweep_batched;
SET SESSION AUTHORIZATION regress_sweep_batched;
SET search_path = batched_attack, batched;
SET timezone = 'Asia/Tokyo';
INSERT INTO victim VALUES (1, 1), (2, 1), (3, 3);
SET search_path = batched_attack, batched;
SET client_min_messages = notice;
\set VERBOSITY sqlstate
SELECT sweep.batched('UPDATE victim SET n = 2 WHERE n = spy(1)', run_as => :'superuser');
SELECT sweep.batched('DELETE FROM item WHERE id = 1');
SELECT sweep.batched('UPDATE owner SET factor = 1');
SELECT sweep.batched('UPDATE item SET note = ''x'', n = 1');
SELECT sweep.batched('UPDATE victim SET n = 2', keep_job => NULL);
SELECT sweep.batched(NULL);
SELECT sweep.batched('UPDATE victim SET n = 2', settings => '[1]');
SELECT sweep.batched('UPDATE victim SET n = 2', settings => '{"search_path": null}');
SELECT sweep.batched('UPDATE victim SET n = 2', settings => '{"datestyle": "none"}');
SELECT sweep.batched('UPDATE victim SET n = 2', batch_size => 0);
\set VERBOSITY default
SET client_min_messages = warning;
SELECT sweep.batched('UPDATE victim SET n = 2 WHERE n = spy(1)', description => 'spied') AS run \gset
CALL sweep.wait(:run, '1 min');
SELECT regexp_replace(r.job, '\d+$', 'N') AS job, r.status, r.detail, j.args - 'as_of' AS args, j.args ? 'as_of' AS has_moment, j.settings FROM sweep.runs r JOIN sweep.job j ON j.name = r.job AND j.description = 'spied';
SELECT sweep.batched('UPDATE item SET day = loc::date, note = ''t'' WHERE created_at::date = ''02/01/2026''', settings => '{"timezone": "Europe/Paris"}', name => 'batched test') AS run \gset
CALL sweep.wait(:run, '1 min');
SELECT r.status, r.detail, j.settings FROM sweep.runs r JOIN sweep.job j ON j.name = r.job AND j.name = 'batched test';
SET search_path = '';
SELECT sweep.batched('DELETE FROM batched_attack.victim WHERE id < 3', description => 'gone') AS run \gset
CALL sweep.wait(:run, '1 min');
SELECT r.status, r.detail, (SELECT count(*) FROM batched_attack.victim) FROM sweep.runs r JOIN sweep.job j ON j.name = r.job AND j.description = 'gone';
RESET SESSION AUTHORIZATION;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name ~ '^(update|delete)_victim' OR name = 'batched test';

\pset format aligned
\pset tuples_only off
DELETE FROM sweep.run_history WHERE job ~ '^(update|delete)_victim';
DELETE FROM sweep.run_live WHERE job = 'batched test';
DELETE FROM sweep.run_history WHERE job = 'batched test';
RESET search_path;
DROP FOREIGN DATA WRAPPER regress_sweep_batched CASCADE;
DROP SCHEMA batched_attack, batched_other, batched CASCADE;
DROP ROLE regress_sweep_batched;
