--
-- What is left when nothing is sent and fed any more and no fault is in effect: soon
-- nothing.  One row per kind of leftover.
--
WITH rest AS (
	SELECT 'row of soak.todo' AS what, kind || ' ' || id AS example FROM soak.todo WHERE NOT handled
	UNION ALL SELECT 'message', q.name || ' ' || m.message_id || ', due ' || coalesce(m.due_at::text, 'at once')
		FROM sweep.queue_message AS m JOIN sweep.queue AS q USING (queue_id)
	UNION ALL SELECT 'count of queue', format('%s: depth %s, ready %s, delayed %s, in flight %s', queue, depth, ready, delayed, in_flight)
		FROM sweep.queues WHERE depth <> 0 OR ready <> 0 OR delayed <> 0 OR in_flight <> 0
	UNION ALL SELECT 'count of dead', format('%s: %s', q.queue, q.dead)
		FROM sweep.queues AS q WHERE dead <> (SELECT count(*) FROM sweep.queue_dead JOIN sweep.queue AS n USING (queue_id) WHERE n.name = q.queue)
	UNION ALL SELECT 'bucket', job || ' ' || bucket || ' since ' || since FROM sweep.buckets WHERE state <> 'available'
	UNION ALL SELECT 'run', format('%s #%s is %s, due %s, pid %s', job, run_id, status, due_at, pid) FROM sweep.runs WHERE finished_at IS NULL
	UNION ALL SELECT 'running', format('%s #%s', job, run_id) FROM sweep.running
	UNION ALL SELECT 'job', name || ' is ' || state FROM sweep.jobs WHERE state NOT IN ('idle', 'paused')
	UNION ALL SELECT 'consumer', format('%s is %s with %s', queue, state, workers) FROM sweep.consumers WHERE state <> 'running' OR workers <> concurrency
	UNION ALL SELECT 'lock', format('%s %s %s of %s', l.objsubid, l.classid, l.objid, l.pid) FROM pg_locks AS l
		WHERE l.locktype = 'advisory' AND l.objsubid BETWEEN 21335 AND 21342
	UNION ALL SELECT 'process', pid || ' ' || application_name FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner')
SELECT what || ': ' || count(*) || ', first ' || array_to_string((array_agg(example ORDER BY example))[1 : 3], ', ') FROM rest GROUP BY what ORDER BY what;
