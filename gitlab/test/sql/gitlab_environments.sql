-- The step environments_auto_stop: its predicate, order and cursor, and the
-- consumer that stops an environment.
\set ECHO none
\i gitlab/test/include/gitlab.sql
SELECT * FROM sweep_gitlab.install('gitlab', paused => true) WHERE job = 'environments_auto_stop';

-- one batch, and what it queued
CREATE FUNCTION pg_temp.batch(size int, cursor jsonb DEFAULT NULL, as_of timestamptz DEFAULT '2026-01-01 00:00:00Z',
		OUT rows bigint, OUT cursor_out jsonb, OUT sent text)
	LANGUAGE plpgsql AS $$
BEGIN
	SELECT p.rows, p.cursor INTO rows, cursor_out
		FROM sweep_gitlab.environments_auto_stop(ROW(size, cursor, '{"schema": "gitlab"}', as_of, NULL, NULL, NULL, 1)::sweep.batch) AS p;
	-- as if it had been claimed, which it can be once it is committed
	WITH m AS (UPDATE sweep.queue_message m SET claimed = true FROM sweep.queue q
		WHERE q.queue_id = m.queue_id AND q.name = 'environments_auto_stop' AND NOT m.claimed RETURNING m.*)
	SELECT string_agg(format('%s:%s', m.key, m.payload), ' ' ORDER BY m.message_id) INTO sent FROM m;
END
$$;
CREATE PROCEDURE pg_temp.environment(id bigint, auto_stop_at timestamptz, state text DEFAULT 'available', auto_stop_setting int DEFAULT 0)
	LANGUAGE sql AS $$
	INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at, state, auto_stop_setting)
		VALUES (id, id + 1000, 'e' || id, 'e' || id, auto_stop_at, state, auto_stop_setting);
$$;

-- nothing there
SELECT rows, cursor_out, sent FROM pg_temp.batch(100);

-- strictly before as_of, to the microsecond; never NULL; available ones only
CALL pg_temp.environment(1, '2025-12-31 23:59:59.999999Z');
CALL pg_temp.environment(2, '2026-01-01 00:00:00Z');
CALL pg_temp.environment(3, '2026-01-01 00:00:00.000001Z');
CALL pg_temp.environment(4, NULL);
CALL pg_temp.environment(5, '2025-12-01 00:00:00Z', 'stopped');
CALL pg_temp.environment(6, '2025-12-01 00:00:00Z', 'stopping');
CALL pg_temp.environment(7, '-infinity');
CALL pg_temp.environment(8, 'infinity');
SELECT rows, cursor_out, sent FROM pg_temp.batch(100);
SELECT rows, sent FROM pg_temp.batch(100, as_of => '2026-01-01 00:00:00.000001Z');
SELECT rows, sent FROM pg_temp.batch(100, as_of => '2026-01-01 00:00:00.000002Z');

-- the same in every time zone
SET timezone = 'America/New_York';
SELECT rows, sent FROM pg_temp.batch(100, as_of => '2026-01-01 00:00:00Z');
SET timezone = 'Asia/Kolkata';
SELECT rows, cursor_out, sent FROM pg_temp.batch(1, '{"auto_stop_at": "2025-12-31 23:59:59.999998Z", "id": 0}');
SELECT rows, sent FROM pg_temp.batch(1, '{"auto_stop_at": "2026-01-01T05:29:59.999999+05:30", "id": 0}');
SELECT rows, sent FROM pg_temp.batch(1, '{"auto_stop_at": "2026-01-01T05:29:59.999999+05:30", "id": 1}');
SET timezone = 'UTC';

-- all batches of a run, each with the cursor of the one before
CREATE FUNCTION pg_temp.run(size int) RETURNS TABLE (batch int, rows bigint, sent text)
	LANGUAGE plpgsql AS $$
DECLARE
	cursor_in jsonb;
BEGIN
	FOR i IN 1 .. 20 LOOP
		batch := i;
		SELECT b.rows, b.cursor_out, regexp_replace(b.sent, ':\S+ \S+ \S+ \S+', '', 'g') INTO rows, cursor_in, sent
			FROM pg_temp.batch(size, cursor_in) AS b;
		RETURN NEXT;
		EXIT WHEN rows = 0;
	END LOOP;
END
$$;
-- the longest overdue first, by id where that is the same, each once whatever the batch size
TRUNCATE gitlab.environments;
CALL pg_temp.environment(11, '2025-12-03 00:00:00Z');
CALL pg_temp.environment(12, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(16, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(14, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(15, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(13, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(10, '2025-12-04 00:00:00Z');
CALL pg_temp.environment(17, '2025-12-01 00:00:00Z');
SELECT * FROM pg_temp.run(3);
SELECT * FROM pg_temp.run(1);
SELECT * FROM pg_temp.run(8);

-- so many at one moment that the batches walk along the ids: the same order, each once,
-- and neither the moment before nor the one after is forgotten
TRUNCATE gitlab.environments;
SELECT sweep_gitlab.keep_environment(15, '2025-12-02 00:00:00Z');
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_setting, auto_stop_at)
	SELECT i, 1, i, i, (i = 15)::int, CASE i WHEN 10 THEN '2025-12-03Z'::timestamptz WHEN 20 THEN '2025-12-01Z' ELSE '2025-12-02Z' END
	FROM generate_series(29, 10, -1) AS i;
SELECT * FROM pg_temp.run(4);
SELECT * FROM pg_temp.run(1) WHERE batch IN (1, 2, 3, 19);
SELECT rows, cursor_out FROM pg_temp.batch(1, '{"auto_stop_at": "2025-12-01Z", "id": 20}') \gset
SELECT :'cursor_out';
UPDATE gitlab.environments SET auto_stop_at = '2026-01-02Z' WHERE id BETWEEN 12 AND 29;
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at) VALUES (30, 1, '30', '30', '2025-12-02Z');
SELECT rows, cursor_out, regexp_replace(sent, ':\S+ \S+ \S+ \S+', '', 'g') AS sent FROM pg_temp.batch(3, :'cursor_out');
-- ids at the ends of their range, and what was due for ever
TRUNCATE gitlab.environments;
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at) SELECT i, 1, i, i, '-infinity'
	FROM unnest('{-9223372036854775807, -5, 0, 5, 9223372036854775806, 9223372036854775807}'::bigint[]) AS i;
SELECT * FROM pg_temp.run(1);
SELECT * FROM pg_temp.run(4);
TRUNCATE gitlab.environments;
CALL pg_temp.environment(11, '2025-12-03 00:00:00Z');
CALL pg_temp.environment(12, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(13, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(14, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(15, '2025-12-02 12:00:00Z');
CALL pg_temp.environment(16, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(17, '2025-12-01 00:00:00Z');
CALL pg_temp.environment(10, '2025-12-04 00:00:00Z');

-- what still waits in the queue is passed and counted, but not queued again
SELECT rows FROM sweep_gitlab.environments_auto_stop(ROW(2, NULL, '{"schema": "gitlab"}', '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch);
SELECT * FROM pg_temp.run(3);

-- what became due in mid-run behind the cursor comes with it, what lies before it with the next run
SELECT rows, cursor_out FROM pg_temp.batch(6) \gset
CALL pg_temp.environment(18, '2025-12-02 00:00:00Z');
CALL pg_temp.environment(19, '2025-12-03 12:00:00Z');
SELECT rows, regexp_replace(sent, ':\S+ \S+ \S+ \S+', '', 'g') AS sent FROM pg_temp.batch(6, :'cursor_out');

-- a rolled back batch has sent nothing
BEGIN;
SELECT rows FROM sweep_gitlab.environments_auto_stop(ROW(100, NULL, '{"schema": "gitlab"}', '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch);
ROLLBACK;
SELECT depth FROM sweep.queues WHERE queue = 'environments_auto_stop';
TRUNCATE gitlab.environments;

-- nothing in the schema of the table is called instead of what the step means
CREATE FUNCTION gitlab.evil() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called'; END $$;
CREATE FUNCTION gitlab.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT gitlab.evil()::text $$;
CREATE FUNCTION gitlab.jsonb_build_object(text, bigint, text, bigint) RETURNS jsonb LANGUAGE sql AS $$ SELECT gitlab.evil()::text::jsonb $$;
CREATE FUNCTION gitlab.jsonb_build_object(text, timestamptz, text, bigint) RETURNS jsonb LANGUAGE sql AS $$ SELECT gitlab.evil()::text::jsonb $$;
CREATE FUNCTION gitlab.evil(varchar, varchar) RETURNS boolean LANGUAGE sql AS $$ SELECT gitlab.evil() IS NULL $$;
CREATE FUNCTION gitlab.evil(jsonb, jsonb) RETURNS text LANGUAGE sql AS $$ SELECT gitlab.evil()::text $$;
CREATE FUNCTION gitlab.evil(bigint[], bigint) RETURNS bigint[] LANGUAGE sql AS $$ SELECT gitlab.evil()::text::bigint[] $$;
CREATE OPERATOR gitlab.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = gitlab.evil);
CREATE OPERATOR gitlab.> (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = gitlab.evil);
CREATE OPERATOR gitlab.->> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = gitlab.evil);
CREATE AGGREGATE gitlab.array_agg(bigint) (SFUNC = gitlab.evil, STYPE = bigint[]);
CALL pg_temp.environment(20, '2025-12-01 00:00:00Z');
SELECT rows, sent FROM pg_temp.batch(100);
DROP AGGREGATE gitlab.array_agg(bigint);
DROP OPERATOR gitlab.= (varchar, varchar), gitlab.> (varchar, varchar), gitlab.->> (jsonb, jsonb);
DROP FUNCTION gitlab.format, gitlab.jsonb_build_object(text, bigint, text, bigint), gitlab.jsonb_build_object(text, timestamptz, text, bigint),
	gitlab.evil(), gitlab.evil(varchar, varchar), gitlab.evil(jsonb, jsonb), gitlab.evil(bigint[], bigint);
TRUNCATE gitlab.environments;

-- the consumer
CREATE FUNCTION pg_temp.stop(ids bigint[]) RETURNS TABLE (id bigint, state varchar, auto_stop_at timestamptz, touched boolean)
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep_gitlab.stop_environment(array_agg(ROW(1, 'environments_auto_stop',
		jsonb_build_object('environment_id', i, 'project_id', 1), i, 1, NULL, now(), NULL)::sweep.message)) FROM unnest(ids) AS i;
	RETURN QUERY SELECT e.id, e.state, e.auto_stop_at, e.updated_at = now() AT TIME ZONE 'UTC' FROM gitlab.environments e ORDER BY e.id;
END
$$;
CALL pg_temp.environment(1, '2025-12-01 00:00:00Z');
CALL pg_temp.environment(2, '2025-12-01 00:00:00Z', auto_stop_setting => 1);
CALL pg_temp.environment(3, '2025-12-01 00:00:00Z', 'stopping');
CALL pg_temp.environment(4, NULL);
CALL pg_temp.environment(5, 'infinity');
-- without an action: stopped, unless it may stop only by one; what is not due (any more) or unknown is left alone
SET timezone = 'Asia/Kolkata';
SELECT * FROM pg_temp.stop('{1,2,3,4,5,6}');
SET timezone = 'UTC';
-- and that one is not sent again until its auto_stop_at changes
SELECT rows, sent FROM pg_temp.batch(100);
UPDATE gitlab.environments SET auto_stop_at = '2025-12-02 00:00:00Z' WHERE id = 2;
SELECT rows, sent FROM pg_temp.batch(100);
SELECT * FROM pg_temp.stop('{2}') WHERE id = 2;
SELECT rows, sent FROM pg_temp.batch(100);
-- with an action: stopping
CREATE FUNCTION public.regress_stop_action(environment_id bigint) RETURNS boolean LANGUAGE sql AS 'SELECT environment_id % 2 = 0';
SELECT sweep.alter_job('environments_auto_stop', jsonb_build_object('args', args || '{"stop_action": "public.regress_stop_action"}'))
	FROM sweep.job WHERE name = 'environments_auto_stop';
TRUNCATE gitlab.environments;
CALL pg_temp.environment(1, '2025-12-01 00:00:00Z');
CALL pg_temp.environment(2, '2025-12-01 00:00:00Z');
CALL pg_temp.environment(3, '2025-12-01 00:00:00Z', auto_stop_setting => 1);
CALL pg_temp.environment(4, '2025-12-01 00:00:00Z', auto_stop_setting => 1);
SELECT * FROM pg_temp.stop('{1,2,3,4}');

-- one UPDATE for all of them, also when one is sent twice; the action is asked once for each
CREATE TABLE public.regress_updates (what text);
CREATE FUNCTION public.regress_count() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO public.regress_updates VALUES ('update'); RETURN NULL; END $$;
CREATE TRIGGER count AFTER UPDATE ON gitlab.environments FOR EACH STATEMENT EXECUTE FUNCTION public.regress_count();
CREATE OR REPLACE FUNCTION public.regress_stop_action(environment_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF environment_id = 9 THEN
		RAISE EXCEPTION 'no';
	END IF;
	INSERT INTO public.regress_updates VALUES ('asked ' || environment_id);
	RETURN nullif(environment_id = 4, false);
END
$$;
TRUNCATE gitlab.environments;
DO $$ BEGIN FOR i IN 1 .. 9 LOOP CALL pg_temp.environment(i, '2025-12-01 00:00:00Z'); END LOOP; END $$;
SELECT * FROM pg_temp.stop('{3,1,4,2,4,3}') WHERE id < 6;
SELECT what, count(*) FROM public.regress_updates GROUP BY what ORDER BY what;
-- an action that fails, and an id that is none, fail the call
SELECT * FROM pg_temp.stop('{8,9}');
SELECT sweep_gitlab.stop_environment(ARRAY[ROW(1, '', '{"environment_id": 8}', '1', 1, NULL, now(), NULL), ROW(2, '', '{"environment_id": "x"}', '1', 1, NULL, now(), NULL)]::sweep.message[]);
SELECT sweep_gitlab.stop_environment(ARRAY[ROW(1, '', '{}', '1', 1, NULL, now(), NULL)]::sweep.message[]);
SELECT id, state FROM gitlab.environments WHERE id > 5 ORDER BY id;
SELECT sweep.alter_job('environments_auto_stop', jsonb_build_object('args', args - 'stop_action')) FROM sweep.job WHERE name = 'environments_auto_stop';
TRUNCATE public.regress_updates;
SELECT * FROM pg_temp.stop('{9,8,7,6,5}') WHERE id > 4;
SELECT what, count(*) FROM public.regress_updates GROUP BY what ORDER BY what;
-- nothing in the schema of the table is called instead of what it means
CREATE FUNCTION gitlab.evil() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called'; END $$;
CREATE FUNCTION gitlab.unnest(sweep.message[]) RETURNS SETOF sweep.message LANGUAGE sql AS $$ SELECT gitlab.evil(); SELECT NULL::sweep.message $$;
CREATE FUNCTION gitlab.array_append(bigint[], bigint) RETURNS bigint[] LANGUAGE sql AS $$ SELECT gitlab.evil()::text::bigint[] $$;
CREATE FUNCTION gitlab.cardinality(bigint[]) RETURNS int LANGUAGE sql AS $$ SELECT gitlab.evil()::text::int $$;
CREATE FUNCTION gitlab.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT gitlab.evil()::text::timestamptz $$;
CREATE FUNCTION gitlab.evil(varchar, varchar) RETURNS boolean LANGUAGE sql AS $$ SELECT gitlab.evil() IS NULL $$;
CREATE OPERATOR gitlab.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = gitlab.evil);
CALL pg_temp.environment(10, '2025-12-01 00:00:00Z');
CALL pg_temp.environment(11, '2025-12-01 00:00:00Z', auto_stop_setting => 1);
SELECT * FROM pg_temp.stop('{10,11}') WHERE id > 9;
SELECT sweep.alter_job('environments_auto_stop', jsonb_build_object('args', args || '{"stop_action": "public.regress_stop_action"}'))
	FROM sweep.job WHERE name = 'environments_auto_stop';
CALL pg_temp.environment(12, '2025-12-01 00:00:00Z');
SELECT * FROM pg_temp.stop('{12}') WHERE id = 12;
DROP TABLE public.regress_updates;

-- a missing table says so
DROP TABLE gitlab.environments;
\set VERBOSITY sqlstate
SELECT rows FROM pg_temp.batch(100);
\set VERBOSITY default
SELECT count(*) FROM sweep_gitlab.kept_environment;
SELECT name, note FROM sweep_gitlab.uninstall() WHERE name = 'environments_auto_stop';
SELECT sweep.drop_queue('environments_auto_stop');
SELECT sweep_gitlab.stop_environment(NULL);
DROP FUNCTION public.regress_stop_action, public.regress_count;
DROP SCHEMA gitlab, gitlab_partitions_dynamic CASCADE;
