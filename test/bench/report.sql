--
-- The tables of doc/performance.md, from the lines that run.sh wrote.
--
\set QUIET on
\pset footer off
\pset null ''
CREATE TEMP TABLE result (test text, method text, ms float8, rows bigint);
\set copy_command '\\copy result FROM ' :'results'
:copy_command

-- nth 0.5 is the median, 0 the fastest; us_each is per row, or per batch where a batch is a row
CREATE FUNCTION pg_temp.time_of(test text, method text, nth float8) RETURNS float8
	LANGUAGE sql STABLE
AS $$
	SELECT percentile_cont(nth) WITHIN GROUP (ORDER BY r.ms) FROM result r
		WHERE r.test = time_of.test AND r.method = time_of.method
$$;
CREATE FUNCTION pg_temp.us_each(test text, method text, nth float8) RETURNS float8
	LANGUAGE sql STABLE
AS $$
	SELECT percentile_cont(nth) WITHIN GROUP (ORDER BY r.ms / r.rows) * 1000 FROM result r
		WHERE r.test = us_each.test AND r.method = us_each.method
$$;
CREATE FUNCTION pg_temp.at_percent(test text, method text, percent float8) RETURNS float8
	LANGUAGE sql STABLE
AS $$
	SELECT percentile_cont(percent / 100) WITHIN GROUP (ORDER BY r.ms) FROM result r
		WHERE r.test = at_percent.test AND r.method = at_percent.method
$$;
-- the faster of the two plans
CREATE FUNCTION pg_temp.one_statement(test text, nth float8) RETURNS float8
	LANGUAGE sql STABLE
AS $$
	SELECT least(pg_temp.time_of(test, 'one statement, planner', nth), pg_temp.time_of(test, 'one statement, index', nth))
$$;

\echo
\echo 'Time of each method; microseconds per row from the median'
SELECT test, method, count(*) AS n, round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 1) AS median_ms,
		round(min(ms)::numeric, 1) AS min_ms, round(max(ms)::numeric, 1) AS max_ms,
		round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) * 1000 / nullif(max(rows), 0))::numeric, 2) AS us_per_row
	FROM result WHERE test NOT IN ('server', 'first_batch', 'each second') AND test NOT LIKE 'idle%' AND test NOT LIKE 'pages%'
	GROUP BY test, method ORDER BY test, method;

\echo 'Pages looked at, and per row'
SELECT test, method, count(*) AS n, min(ms)::bigint AS pages, round((min(ms) / max(rows))::numeric, 2) AS per_row
	FROM result WHERE test LIKE 'pages%' GROUP BY test, method ORDER BY test, method;

\echo 'Distributions in ms'
SELECT test, method, count(*) AS n, round(min(ms)::numeric, 2) AS min, round(pg_temp.at_percent(test, method, 50)::numeric, 2) AS p50,
		round(pg_temp.at_percent(test, method, 90)::numeric, 2) AS p90, round(pg_temp.at_percent(test, method, 99)::numeric, 2) AS p99,
		round(max(ms)::numeric, 2) AS max
	FROM result WHERE test IN ('first_batch', 'each second') GROUP BY test, method ORDER BY test, method;

\echo 'Idle with 1,000 jobs'
SELECT test, method, round(ms::numeric, 2) AS value, rows AS seconds FROM result WHERE test LIKE 'idle%' ORDER BY test, method;

-- Each ratio twice: of medians, which is what counts, and of the fastest runs, which the rest of the
-- machine disturbs less.
CREATE TEMP TABLE gate (place int GENERATED ALWAYS AS IDENTITY, test text, what text, nth float8, value float8, target numeric, relation text);
INSERT INTO gate (test, what, nth, value, target, relation)
	SELECT c, format('engine / procedure, batch 100, flush %s', flush), nth,
			pg_temp.time_of(c, format('engine 100 %s', flush), nth) / pg_temp.time_of(c, format('procedure 100 %s', flush), nth), 1.05, '<='
		FROM (VALUES ('long fan_out'), ('long purge')) AS cases (c), (VALUES ('run'), ('batch')) AS flushes (flush), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT c, format('the same from start to end, flush %s', flush), nth,
			pg_temp.time_of(c, format('engine 100 %s, from start to end', flush), nth)
				/ pg_temp.time_of(c, format('procedure 100 %s', flush), nth), 1.05, '<='
		FROM (VALUES ('long fan_out'), ('long purge')) AS cases (c), (VALUES ('run'), ('batch')) AS flushes (flush), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT c, 'faster than the procedure, defaults, batch 100', nth,
			pg_temp.time_of(c, 'procedure 100 batch', nth) / pg_temp.time_of(c, 'engine 100 run', nth), target, '>='
		FROM (VALUES ('fan_out', 1.1), ('purge', 1.5), ('packed purge', 1.5), ('long fan_out', 1.1), ('long purge', 1.5)) AS cases (c, target), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT c, 'faster than a loop that deletes by key, defaults, batch 100', nth,
			pg_temp.time_of(c, 'by key 100 batch', nth) / pg_temp.time_of(c, 'engine 100 run', nth), 1.5, '>='
		FROM (VALUES ('purge'), ('long purge')) AS cases (c), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT c, format('engine / one statement, batch %s', size), nth,
			pg_temp.time_of(c, format('engine %s run', size), nth) / pg_temp.one_statement(c, nth), target, '<='
		FROM (VALUES ('fan_out', 100, 1.5), ('fan_out', 1000, 1.35), ('purge', 100, 1.2), ('purge', 1000, 1.05),
			('distinct', 100, 1.1), ('scattered fan_out', 100, 1.5), ('scattered fan_out', 1000, 1.35),
			('scattered purge', 100, 1.2), ('scattered purge', 1000, 1.05),
			('packed purge', 100, 1.2), ('packed purge', 1000, 1.05)) AS cases (c, size, target), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'artifacts', format('one share / %s shares, time', shares), nth,
			pg_temp.time_of('artifacts', 'lists 1', nth) / pg_temp.time_of('artifacts', format('lists %s', shares), nth), 1.3, '>='
		FROM (VALUES (5), (10)) AS numbers (shares), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'artifacts', format('%s shares / one share, pages', shares), nth,
			pg_temp.time_of('pages read for artifacts', format('lists %s', shares), nth) / pg_temp.time_of('pages read for artifacts', 'lists 1', nth), 1.5, '<='
		FROM (VALUES (5), (10)) AS numbers (shares), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'artifacts', format('the same for %s with the bucket as a filter', shares), nth,
			pg_temp.time_of('pages read for artifacts', format('filter %s', shares), nth) / pg_temp.time_of('pages read for artifacts', 'lists 1', nth), NULL, NULL
		FROM (VALUES (5), (10)) AS numbers (shares), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'items', format('engine / one statement, transaction %s', kind), nth,
			pg_temp.time_of('items', format('engine, transaction %s', kind), nth) / pg_temp.one_statement('items', nth), target, '<='
		FROM (VALUES ('row', 1.9), ('batch', 1.1)) AS kinds (kind, target), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'items', 'faster than the client, transaction row', nth,
			pg_temp.time_of('items', 'client, a transaction for each', nth) / pg_temp.time_of('items', 'engine, transaction row', nth), 4, '>='
		FROM (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'stop', format('consumer %s / one UPDATE', c), nth,
			pg_temp.time_of('stop', 'sweep_gitlab.stop_environment, ' || c, nth) / pg_temp.one_statement('stop', nth), 2, '<='
		FROM (VALUES ('1 x 1000'), ('2 x 1000')) AS consumers (c), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'stop', 'environments per second, consumer 2 x 1000', nth, 1000000 / pg_temp.us_each('stop', 'sweep_gitlab.stop_environment, 2 x 1000', nth),
			23600, '>='
		FROM (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'stop', 'faster than a call for each message, consumer 2 x ' || size, nth,
			pg_temp.time_of('stop', 'bench.stop_one, 2 x 100', nth) / pg_temp.time_of('stop', 'sweep_gitlab.stop_environment, 2 x ' || size, nth), NULL, NULL
		FROM (VALUES (100), (1000)) AS sizes (size), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT c, 'engine / one statement, batch 1000', nth, pg_temp.time_of(c, 'engine 1000 run', nth) / pg_temp.one_statement(c, nth), 1.3, '<='
		FROM (VALUES ('retention'), ('retention by_age'), ('retention by_account'), ('retention cascade'), ('retention referenced')) AS cases (c), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'retention', 'faster than ' || c, nth, pg_temp.time_of('retention', c, nth) / pg_temp.time_of('retention', 'engine 1000 run', nth), target, '>='
		FROM (VALUES ('by id 1000 batch', 2.5), ('pg_ttl_index 1000', 15)) AS cases (c, target), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT c, 'us per batch', nth, pg_temp.us_each(c, 'engine 1 run', nth), 80, '<='
		FROM (VALUES ('nothing'), ('one row')) AS cases (c), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT c, '(T100 - T1000) / 900, us per batch', nth, (pg_temp.time_of(c, 'engine 100 run', nth) - pg_temp.time_of(c, 'engine 1000 run', nth))
			* 1000 / ((SELECT max(rows) FROM result WHERE test = c AND method = 'engine 100 run') * 9 / 1000), 80, '<='
		FROM (VALUES ('fan_out'), ('purge')) AS cases (c), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	-- what the procedure needs for it is what the statements of the step cost each time
	SELECT c, 'the same of the procedure', nth, (pg_temp.time_of(c, 'procedure 100 run', nth) - pg_temp.time_of(c, 'procedure 1000 run', nth))
			* 1000 / ((SELECT max(rows) FROM result WHERE test = c AND method = 'procedure 100 run') * 9 / 1000), NULL, NULL
		FROM (VALUES ('fan_out'), ('purge')) AS cases (c), (VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'first_batch', format('ms from start to first batch, p%s', percent), 0.5, pg_temp.at_percent('first_batch', 'start', percent), 5, '<='
		FROM (VALUES (50), (99)) AS percents (percent)
	UNION ALL
	SELECT 'flat ' || c, 'cost per row, ' || variant || ' / few', nth,
			pg_temp.us_each(format('flat %s, %s', c, variant), 'engine 100 run', nth) / pg_temp.us_each(format('flat %s, few', c), 'engine 100 run', nth),
			1.3, '<='
		FROM (VALUES ('fan_out'), ('purge'), ('distinct')) AS cases (c),
			(VALUES ('many'), ('many behind dead rows'), ('many behind dead rows, old snapshot')) AS variants (variant),
			(VALUES (0.5), (0)) AS s (nth)
	UNION ALL
	SELECT 'idle scheduler', 'CPU, % of a core', 0.5, ms / 10 / rows, 0.5, '<=' FROM result WHERE test = 'idle scheduler' AND method = 'CPU ms'
	UNION ALL
	SELECT 'each second', 'ms of lateness, p99', 0.5, pg_temp.at_percent('each second', 'lateness', 99), 50, '<=';

\echo 'Targets'
SELECT m.test, m.what, round(m.value::numeric, 3) AS value, round(f.value::numeric, 3) AS of_fastest, m.relation || ' ' || m.target AS target,
		CASE WHEN m.target IS NULL THEN NULL
			WHEN m.relation = '<=' AND m.value <= m.target OR m.relation = '>=' AND m.value >= m.target THEN 'held'
			ELSE 'MISSED' END AS verdict
	FROM gate m LEFT JOIN gate f ON f.test = m.test AND f.what = m.what AND f.nth = 0
	WHERE m.nth = 0.5 AND m.value IS NOT NULL ORDER BY m.place;
