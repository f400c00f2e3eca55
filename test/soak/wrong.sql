--
-- What must not be, in one statement and so in one snapshot: nothing, at any moment
-- and whatever is going on.  One row per kind of violation, with the first cases.
--
WITH message AS (SELECT q.name AS queue, m.payload::bigint AS n FROM sweep.queue_message AS m JOIN sweep.queue AS q USING (queue_id)
	-- a fault of its own, which counts nothing
	WHERE q.name <> 'gone'),
dead AS (SELECT q.name AS queue, m.payload::bigint AS n FROM sweep.queue_dead AS m JOIN sweep.queue AS q USING (queue_id)),
once AS (SELECT queue, n, count(*) AS times FROM soak.handled GROUP BY queue, n),
-- of each message that was sent, where it is: one place, but "outside" may have its effect before it is gone
place AS (
	SELECT s.queue, s.n, 0 AS waits, 0 AS died, 0 AS times, 1 AS sent FROM soak.sent AS s
	UNION ALL SELECT queue, n, 1, 0, 0, 0 FROM message
	UNION ALL SELECT queue, n, 0, 1, 0, 0 FROM dead
	UNION ALL SELECT queue, n, 0, 0, times, 0 FROM once),
places AS (
	SELECT queue, n, sum(waits) AS waits, sum(died) AS died, sum(times) AS times, sum(sent) AS sent FROM place GROUP BY queue, n),
effect AS (
	SELECT run_id, count(*) AS rows FROM (SELECT run_id FROM soak.done UNION ALL SELECT run_id FROM soak.walked WHERE job <> 'rows') AS e GROUP BY run_id),
wrong AS (
	SELECT 'message was lost' AS what, queue || ' ' || n AS example FROM places WHERE sent = 1 AND waits + died + times = 0
	UNION ALL SELECT 'message was never sent', queue || ' ' || n FROM places AS p
		WHERE sent > 1 OR sent = 0 AND NOT EXISTS (SELECT FROM soak.left_out AS l WHERE l.queue = p.queue AND l.n = p.n)
	UNION ALL SELECT 'message is in two places', queue || ' ' || n FROM places
		WHERE waits + died > 1 OR queue IN ('inside', 'by_job') AND waits + died + times > 1
	UNION ALL SELECT 'message was handled twice', queue || ' ' || n FROM places WHERE times > 1 AND queue <> 'outside'
	UNION ALL SELECT 'row was handled twice', kind || ' ' || id FROM soak.done GROUP BY kind, id HAVING count(*) > 1
	UNION ALL SELECT 'row was lost', kind || ' ' || id FROM soak.fed AS f
		WHERE NOT EXISTS (SELECT FROM soak.todo AS t WHERE t.kind = f.kind AND t.id = f.id
			AND t.handled = EXISTS (SELECT FROM soak.done AS d WHERE d.kind = f.kind AND d.id = f.id))
	UNION ALL SELECT 'item was handled twice', job || ' ' || n FROM soak.walked WHERE job <> 'rows' GROUP BY job, n HAVING count(*) > 1
	UNION ALL SELECT 'item was lost', job || ' ' || n FROM (SELECT job, max(n) AS last_n FROM soak.walked GROUP BY job) AS j,
		LATERAL (SELECT n FROM generate_series(1, last_n) AS n EXCEPT SELECT n FROM soak.walked AS w WHERE w.job = j.job) AS l
		WHERE NOT EXISTS (SELECT FROM sweep.quarantine AS q WHERE q.job = j.job AND q.item = to_jsonb(n))
	UNION ALL SELECT 'item is in quarantine and good', job || ' ' || item FROM sweep.quarantine
		WHERE mod(item::bigint, CASE job WHEN 'items' THEN 74 ELSE 37 END) <> 0
	UNION ALL SELECT 'run counts other rows than it did', format('%s #%s (%s): %s, did %s', r.job, r.run_id, r.status, r.rows, coalesce(e.rows, 0))
		FROM sweep.runs AS r LEFT JOIN effect AS e USING (run_id)
		WHERE r.job IN ('sql', 'step', 'call', 'divided', 'walk', 'items') AND r.rows <> coalesce(e.rows, 0)
	UNION ALL SELECT 'run is not recorded', e.run_id::text FROM effect AS e WHERE NOT EXISTS (SELECT FROM sweep.runs AS r WHERE r.run_id = e.run_id)
	UNION ALL SELECT 'run is recorded twice', run_id::text FROM sweep.runs GROUP BY run_id HAVING count(*) > 1
	UNION ALL SELECT 'two runs at a time', job || ' ' || run_id FROM soak.overlap)
SELECT what || ': ' || count(*) || ', first ' || array_to_string((array_agg(example ORDER BY example))[1 : 3], ', ') FROM wrong GROUP BY what ORDER BY what;
