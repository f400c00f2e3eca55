-- room: api
-- EXPLAIN (ANALYZE) says nothing of rows of other roles: of each relation that a role may read, the plans of a right and of a wrong
-- guess at what another role has in a column are the same, with their estimates and counts; so is what PostgreSQL's statistics say.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
BEGIN;
CREATE SCHEMA explain;
GRANT USAGE ON SCHEMA explain TO PUBLIC;
CREATE ROLE regress_sweep_alice LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_mallory LOGIN IN ROLE sweep_user;
CREATE FUNCTION explain.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT ROW(0, NULL, NULL)::sweep.progress $$;

-- what alice has, and some of mallory's own: rows as they are after a while
CREATE FUNCTION explain.fill(word text, nth int) RETURNS void LANGUAGE sql AS $$
	SELECT sweep.create_queue('explain_' || word);
	UPDATE sweep.queue SET owner = 'regress_sweep_' || word WHERE name = 'explain_' || word;
	SELECT sweep.create_job(name, '@yearly', step => 'explain.step', args => jsonb_build_object('of', word), description => 'card of ' || word, run_as => ('regress_sweep_' || word)::regrole,
			on_start => CASE WHEN name ~ '^explain' THEN jsonb_build_object('divided ' || word, '1 h') END, buckets => CASE WHEN name ~ '^divided' THEN 3 END, alert_queue => 'explain_' || word)
		FROM unnest(ARRAY['divided ' || word, 'explain ' || word]) AS name;
	SELECT sweep.send('explain_' || word, '1');
	INSERT INTO sweep.consumer (queue_id, handler, run_as, concurrency, batch) SELECT queue_id, 'explain.' || word, owner, nth, nth FROM sweep.queue WHERE name = 'explain_' || word;
	INSERT INTO sweep.bucket (job, bucket, state, run_id, pid, since) SELECT 'divided ' || word, n, 'occupied', nth * 1000, nth, now() - nth * interval '1 h' FROM generate_series(0, 2) AS n;
	INSERT INTO sweep.run_live (run_id, job, run_as, args, trigger, due_at, pid, parent_run_id) OVERRIDING SYSTEM VALUE
		SELECT n, 'explain ' || word, 'regress_sweep_' || word, jsonb_build_object('of', word), 'manual', '2100-01-01 00:00Z'::timestamptz + n * interval '1 s', n, n FROM generate_series(nth * 1000, nth * 1000 + 9) AS n;
	INSERT INTO sweep.run_history (run_id, job, run_as, trigger, due_at, started_at, finished_at, status, stop_reason, detail, sqlstate, error, rows, bucket, shares_left)
		SELECT n, 'explain ' || word, 'regress_sweep_' || word, 'manual', now(), now(), now(), 'failed', 'error', jsonb_build_object('of', word), 'P000' || nth, 'card of ' || word || n % 3, n, n, n
		FROM generate_series(nth * 10000, nth * 10000 + 999) AS n;
	INSERT INTO sweep.quarantined_item (job, item, item_hash, sqlstate, message, attempts, next_try)
		SELECT 'explain ' || word, to_jsonb(n), md5(n::text), 'P000' || nth, 'card of ' || word || n % 3, nth, now() + n * interval '1 min' FROM generate_series(nth * 1000, nth * 1000 + 400) AS n;
$$;
SET check_function_bodies = off;
SELECT explain.fill('alice', 1), explain.fill('mallory', 2);
SELECT sweep.create_job('environments_auto_stop', step => 'explain.step', run_as => 'regress_sweep_alice');
DELETE FROM sweep_gitlab.kept;
INSERT INTO sweep_gitlab.kept (environment_id, auto_stop_at, run_as) SELECT n, now() + n * interval '1 h', 'regress_sweep_alice' FROM generate_series(1, 500) AS n;
ANALYZE sweep.job_definition, sweep.job_state, sweep.quarantined_item, sweep.run_live, sweep.run_history, sweep.bucket, sweep.consumer, sweep.queue, sweep_gitlab.kept;

-- Values of a column as mallory sees them: no guesses.
CREATE FUNCTION explain.seen(relation regclass, attribute name) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	seen text[];
BEGIN
	EXECUTE format('SELECT array_agg(DISTINCT %I::text) FROM %s', attribute, relation) INTO seen;
	RETURN coalesce(seen, '{}');
END
$$;
-- What EXPLAIN says, without the conditions themselves, and what PostgreSQL counts meanwhile for everybody to see.
CREATE FUNCTION explain.reads() RETURNS bigint[] LANGUAGE sql AS $$
	SELECT ARRAY[sum(pg_stat_get_xact_numscans(oid)), sum(pg_stat_get_xact_tuples_returned(oid)), sum(pg_stat_get_xact_tuples_fetched(oid))]::bigint[]
		FROM pg_class WHERE relnamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace)
$$;
CREATE FUNCTION explain.plan(relation regclass, condition text, attribute name, value text, type regtype) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before constant bigint[] := explain.reads();
	after bigint[];
	line text;
	plan text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS OFF, COSTS ON, TIMING OFF, SUMMARY OFF) ' || format(condition, relation, attribute, value, type) LOOP
		plan := plan || regexp_replace(line, '((Filter|Cond): )[^0-9].*', '\1') || E'\n';
	END LOOP;
	after := explain.reads();
	RETURN plan || (after[1] - before[1]) || ' ' || (after[2] - before[2]) || ' ' || (after[3] - before[3]);
END
$$;
CREATE TABLE explain.guess (relation regclass, attribute name, type regtype, good text, bad text);
CREATE FUNCTION explain.guesses(reader text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	column_of record;
	seen text[];
	good text;
BEGIN
	TRUNCATE explain.guess;
	FOR column_of IN SELECT c.oid::regclass AS relation, a.attname AS name, coalesce(nullif(t.typbasetype, 0), t.oid)::regtype AS type FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 JOIN pg_type t ON t.oid = a.atttypid
			WHERE c.relnamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace) AND c.relkind IN ('r', 'v') AND has_table_privilege(reader, c.oid, 'SELECT') LOOP
		EXECUTE format('SET LOCAL ROLE %I', reader);
		seen := explain.seen(column_of.relation, column_of.name);
		RESET ROLE;
		EXECUTE format('SELECT max(v) FROM (SELECT %I::text AS v FROM %s) AS r WHERE v <> ALL ($1)', column_of.name, column_of.relation) INTO good USING seen;
		CONTINUE WHEN good IS NULL;
		INSERT INTO explain.guess SELECT column_of.relation, column_of.name, column_of.type, good, CASE
			WHEN column_of.type IN ('int'::regtype, 'bigint', 'numeric', 'double precision') THEN (good::numeric + 77777)::text
			WHEN column_of.type IN ('timestamptz'::regtype) THEN (good::timestamptz + interval '77777 min')::text
			WHEN column_of.type = 'interval'::regtype THEN (good::interval + interval '77777 min')::text
			WHEN column_of.type = 'jsonb'::regtype THEN '{"a": "guess"}'
			WHEN column_of.type = 'boolean'::regtype THEN (NOT good::boolean)::text
			ELSE md5(good) END;
	END LOOP;
END
$$;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA explain TO PUBLIC;
GRANT SELECT ON explain.guess TO PUBLIC;

CREATE TABLE explain.condition (text text);
GRANT SELECT ON explain.condition TO PUBLIC;
INSERT INTO explain.condition VALUES ('SELECT FROM %s AS r WHERE %I = %L::%s'), ('SELECT FROM %1$s AS r WHERE %2$I >= %3$L::%4$s AND %2$I <= %3$L::%4$s'), ('SELECT %2$I FROM %1$s AS r WHERE %2$I IN (%3$L::%4$s) LIMIT 1'),
	('SELECT FROM %s AS r JOIN (SELECT %3$L::%4$s AS value OFFSET 0) AS g ON r.%2$I = g.value'), ('SELECT FROM %s AS r GROUP BY %I HAVING %2$I = %3$L::%4$s'),
	('SELECT max(%2$I::text) FROM %1$s AS r WHERE %2$I = ANY (ARRAY[%3$L, NULL]::%4$s[])');

-- mallory guesses; there is something to guess of
SELECT explain.guesses('regress_sweep_mallory');
SELECT relation, count(*) FROM explain.guess GROUP BY relation ORDER BY relation::text;
SET LOCAL ROLE regress_sweep_mallory;
SELECT g.relation, g.attribute, c.text, explain.plan(g.relation, c.text, g.attribute, g.good, g.type) AS good, explain.plan(g.relation, c.text, g.attribute, g.bad, g.type) AS bad
	FROM explain.guess AS g, explain.condition AS c
	WHERE explain.plan(g.relation, c.text, g.attribute, g.good, g.type) <> explain.plan(g.relation, c.text, g.attribute, g.bad, g.type);
SELECT schemaname, tablename, attname FROM pg_stats WHERE schemaname IN ('sweep', 'sweep_gitlab') AND tablename <> 'feature_flag';
SELECT statistics_name FROM pg_stats_ext WHERE schemaname IN ('sweep', 'sweep_gitlab');
-- of what she may see she learns it
SELECT count(*) > 5 AS some FROM explain.guess AS g, LATERAL (SELECT (explain.seen(g.relation, g.attribute))[1] AS value) AS own
	WHERE own.value IS NOT NULL AND explain.plan(g.relation, 'SELECT FROM %s AS r WHERE %I = %L::%s', g.attribute, own.value, g.type) <> explain.plan(g.relation, 'SELECT FROM %s AS r WHERE %I = %L::%s', g.attribute, g.bad, g.type);
RESET ROLE;
ROLLBACK;
