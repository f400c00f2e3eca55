--
-- The tables of the benchmark of queues, from the lines that queues.sh wrote.
--
\set QUIET on
\pset footer off
\pset null '-'
CREATE TEMP TABLE result (test text, peer text, variant text, name text, value text, place int GENERATED ALWAYS AS IDENTITY);
\set copy_command '\\copy result (test, peer, variant, name, value) FROM ' :'results'
:copy_command

-- The median over the runs.
CREATE FUNCTION pg_temp.median(test text, peer text, variant text, name text) RETURNS numeric
	LANGUAGE sql STABLE
AS $$
	SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY r.value::float8)::numeric FROM result r
		WHERE r.test = median.test AND r.peer = median.peer AND r.variant = median.variant AND r.name = median.name
$$;
-- How far apart the runs were, in percent of the median.
CREATE FUNCTION pg_temp.spread(test text, peer text, variant text, name text) RETURNS numeric
	LANGUAGE sql STABLE
AS $$
	SELECT round(((max(r.value::float8) - min(r.value::float8)) / nullif(percentile_cont(0.5) WITHIN GROUP (ORDER BY r.value::float8), 0) * 100)::numeric)
		FROM result r
		WHERE r.test = spread.test AND r.peer = spread.peer AND r.variant = spread.variant AND r.name = spread.name
$$;
-- The best median of those who are not ours.
CREATE FUNCTION pg_temp.best_peer(test text, variant text, name text) RETURNS numeric
	LANGUAGE sql STABLE
AS $$
	SELECT max(pg_temp.median(best_peer.test, p.peer, best_peer.variant, best_peer.name))
		FROM (SELECT DISTINCT r.peer FROM result r WHERE r.test = best_peer.test AND r.peer <> 'pg_sweep') AS p
$$;

\echo
\echo 'Left out'
SELECT peer, name AS why FROM result WHERE test = 'missing';

\echo 'Messages per second, medians (spread of the runs in percent)'
SELECT test, variant,
		max(CASE WHEN peer = 'pg_sweep' THEN cell END) AS pg_sweep, max(CASE WHEN peer = 'pgmq' THEN cell END) AS pgmq,
		max(CASE WHEN peer = 'pgq' THEN cell END) AS pgq, max(CASE WHEN peer = 'graphile' THEN cell END) AS "graphile-worker",
		max(CASE WHEN peer = 'pgboss' THEN cell END) AS "pg-boss"
	FROM (SELECT test, variant, peer, min(place) AS place,
				round(pg_temp.median(test, peer, variant, name)) || ' (' || pg_temp.spread(test, peer, variant, name) || ')' AS cell
			FROM result
			WHERE name = CASE WHEN test IN ('enqueue', 'notify') THEN 'send_rate' ELSE 'drain_rate' END
				AND test IN ('enqueue', 'drain', 'together', 'notify', 'depth', 'consumers')
			GROUP BY test, variant, peer, name) AS cells
	GROUP BY test, variant ORDER BY min(place);

\echo 'Latencies in ms, medians'
SELECT test, peer, variant, round(pg_temp.median(test, peer, variant, 'send_p50_us') / 1000, 2) AS send_p50,
		round(pg_temp.median(test, peer, variant, 'send_p99_us') / 1000, 2) AS send_p99,
		round(pg_temp.median(test, peer, variant, 'claim_p50_us') / 1000, 2) AS claim_p50,
		round(pg_temp.median(test, peer, variant, 'claim_p99_us') / 1000, 2) AS claim_p99,
		round(pg_temp.median(test, peer, variant, 'ack_p50_us') / 1000, 2) AS ack_p50,
		round(pg_temp.median(test, peer, variant, 'ack_p99_us') / 1000, 2) AS ack_p99
	FROM result WHERE test NOT IN ('missing', 'server') GROUP BY test, peer, variant
	HAVING count(*) FILTER (WHERE name IN ('send_p50_us', 'claim_p50_us')) > 0 ORDER BY min(place);

\echo '2,000 messages/s, per slice of 5 s'
SELECT variant, peer, left(name, 8) AS slice,
		max(value::int) FILTER (WHERE name LIKE '%\_send_count') / 5 AS sent_per_s,
		round(max(value::numeric) FILTER (WHERE name LIKE '%\_lag_p99_us') / 1000, 1) AS producer_lag_p99,
		round(max(value::numeric) FILTER (WHERE name LIKE '%\_claim_p50_us' AND name NOT LIKE '%empty%') / 1000, 2) AS claim_p50,
		round(max(value::numeric) FILTER (WHERE name LIKE '%\_claim_p99_us' AND name NOT LIKE '%empty%') / 1000, 2) AS claim_p99,
		round(max(value::numeric) FILTER (WHERE name LIKE '%\_empty\_claim_p99_us') / 1000, 2) AS empty_p99,
		round(max(value::numeric) FILTER (WHERE name LIKE '%\_delay_p99_us') / 1000, 1) AS delay_p99
	FROM result WHERE test = 'steady' AND name LIKE 'slice%'
	GROUP BY variant, peer, left(name, 8) ORDER BY min(place);

CREATE TEMP TABLE gate (place int GENERATED ALWAYS AS IDENTITY, what text, value numeric, relation text, target numeric);
INSERT INTO gate (what, value, relation, target)
	SELECT format('enqueue %s per transaction / pgmq', v),
			pg_temp.median('enqueue', 'pg_sweep', v, 'send_rate') / pg_temp.median('enqueue', 'pgmq', v, 'send_rate'), '>=', 1.2
		FROM unnest('{1,100}'::text[]) AS v
	UNION ALL
	SELECT format('claim and ack / best peer, %s consumers x batch %s', c, b),
			pg_temp.median('drain', 'pg_sweep', c || ' x ' || b, 'drain_rate') / pg_temp.best_peer('drain', c || ' x ' || b, 'drain_rate'), '>=', 1.5
		FROM unnest('{1,10,100}'::text[]) AS b, unnest('{1,4,16}'::text[]) AS c
	UNION ALL
	SELECT format('the same in one transaction, %s consumers x batch %s', c, b),
			pg_temp.median('together', 'pg_sweep', c || ' x ' || b, 'drain_rate') / pg_temp.best_peer('together', c || ' x ' || b, 'drain_rate'), '>=', 1.5
		FROM unnest('{1,10,100}'::text[]) AS b, unnest('{1,4,16}'::text[]) AS c
	UNION ALL
	SELECT format('claim p99 in ms of the worst slice, %s', v),
			(SELECT max(r.value::numeric) / 1000 FROM result r WHERE r.test = 'steady' AND r.peer = 'pg_sweep' AND r.variant = v
				AND (r.name LIKE 'slice%\_claim\_p99\_us')), '<=', 10
		FROM unnest('{plain,snapshot,writer}'::text[]) AS v
	UNION ALL
	SELECT format('sent in time, %s / plain', v),
			pg_temp.median('steady', 'pg_sweep', v, 'send_rate') / pg_temp.median('steady', 'pg_sweep', 'plain', 'send_rate'), '>=', 0.99
		FROM unnest('{snapshot,writer}'::text[]) AS v
	UNION ALL
	SELECT 'producers with notification / without',
			pg_temp.median('notify', 'pg_sweep', '8 producers, notify true', 'send_rate')
				/ pg_temp.median('notify', 'pg_sweep', '8 producers, notify false', 'send_rate'), '>=', 0.95
	UNION ALL
	SELECT format('claim in the server, deep queue / almost empty one, batch %s', b),
			pg_temp.median('depth', 'pg_sweep', 'many x ' || b, 'claim_server_us') / pg_temp.median('depth', 'pg_sweep', 'few x ' || b, 'claim_server_us'), '<=', 1.2
		FROM unnest('{1,10,100}'::text[]) AS b
	UNION ALL
	SELECT format('64 consumers / 8, batch %s', b),
			pg_temp.median('consumers', 'pg_sweep', '64 x ' || b, 'drain_rate') / pg_temp.median('consumers', 'pg_sweep', '8 x ' || b, 'drain_rate'), '>=', 1.0
		FROM unnest('{1,10,100}'::text[]) AS b
	UNION ALL
	SELECT 'runs in which a message was lost or came twice',
			CASE WHEN count(*) > 0 THEN count(*) FILTER (WHERE name = 'wrong') END, '<=', 0
		FROM result WHERE peer = 'pg_sweep' AND test <> 'missing';

\echo 'Targets'
SELECT what, round(value, 2) AS value, relation || ' ' || target AS target,
		CASE WHEN value IS NULL THEN 'not measured' WHEN relation = '>=' AND value >= target OR relation = '<=' AND value <= target THEN 'held' ELSE 'missed' END AS outcome
	FROM gate ORDER BY place;
