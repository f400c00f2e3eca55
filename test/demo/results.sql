--
-- What the runs :runs did, what waits for consumers, what is left and why.
--
\set QUIET on
\pset footer off

\echo :bold'What the runs did (view sweep.runs)':normal
SELECT job, lpad(to_char(rows, 'FM999,990'), 7) AS rows, lpad(to_char(batches, 'FM9,990'), 5) AS batches, stop_reason AS "ended by",
	lpad(to_char(extract(epoch FROM finished_at - started_at), 'FM990.00 "s"'), 7) AS "time",
	lpad(to_char(rows / nullif(extract(epoch FROM finished_at - started_at), 0), 'FM999,990'), 7) AS "rows/s"
FROM sweep.runs WHERE run_id IN (:runs)
ORDER BY job;

\echo :bold'What now waits for consumers (view sweep.queues)':normal
SELECT queue, lpad(to_char(depth, 'FM999,990'), 7) AS depth, lpad(to_char(ready, 'FM999,990'), 7) AS ready,
	lpad(to_char(in_flight, 'FM999,990'), 7) AS in_flight
FROM sweep.queues
ORDER BY queue;

\echo :bold'What is left, and why':normal
WITH sent AS (
	SELECT q.name AS queue, m.key::bigint AS id FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id)
), work (job, what, todo, remaining, why) AS (
	VALUES ('batched_git_ref_updates_cleanup_scheduler', 'projects with pending refs', 12000,
		(SELECT count(*) FROM (SELECT d.project_id AS id FROM p_batched_git_ref_updates_deletions d
				WHERE d.status = 1 GROUP BY d.project_id) AS p
			WHERE NOT EXISTS (SELECT FROM sent WHERE queue = 'batched_git_ref_updates_project_cleanup' AND sent.id = p.id)),
		ARRAY['a run sends 10000 at most (max_rows);',
			format('the next goes on behind project %s', (SELECT max(cursor ->> 'project_id') FROM sweep.runs
				WHERE run_id IN (:runs) AND job = 'batched_git_ref_updates_cleanup_scheduler'))]),
	('ci_runners_stale_machines_cleanup', 'stale runner machines', 1500,
		(SELECT count(*) FROM ci_runner_machines WHERE created_at <= now() - interval '7 days'
			AND (contacted_at IS NULL OR contacted_at <= now() - interval '7 days')),
		ARRAY['a run deletes 1000 at most (max_rows);', 'left are those silent least long']),
	('ci_stuck_builds_drop_canceling', 'stuck builds', 20000,
		(SELECT count(*) FROM p_ci_builds WHERE type = 'Ci::Build' AND status = 'canceling'
			AND greatest(created_at, updated_at) < now() AT TIME ZONE 'UTC' - interval '1 hour'),
		ARRAY['these refuse whatever one writes:', 'they are in quarantine, see below']),
	('environments_auto_stop', 'due environments', 100000,
		(SELECT count(*) FROM environments e WHERE e.state = 'available' AND e.auto_stop_at < now()
			AND NOT EXISTS (SELECT FROM sent WHERE queue = 'environments_auto_stop' AND sent.id = e.id)),
		ARRAY['each is in the queue once; the 1000th', 'batch was the last allowed, and only', 'an empty one would say "drained"'])
)
SELECT CASE line WHEN 1 THEN what END AS "what was to do", CASE line WHEN 1 THEN lpad(to_char(todo, 'FM999,990'), 7) END AS before,
	CASE line WHEN 1 THEN lpad(to_char(handled, 'FM999,990'), 7) END AS handled,
	CASE line WHEN 1 THEN lpad(to_char(remaining, 'FM999,990'), 7) END AS left, reason AS why
FROM work
	JOIN (SELECT job, sum(rows) AS handled FROM sweep.runs WHERE run_id IN (:runs) GROUP BY job) AS run USING (job),
	unnest(why) WITH ORDINALITY AS reason (reason, line)
ORDER BY job, line;

\echo :bold'What became of the 20,000 stuck builds, each a transaction of its own':normal
SELECT lpad(to_char(count(*), 'FM999,990'), 7) AS builds, status, failure_reason AS "failure reason",
	CASE failure_reason
		WHEN 3 THEN 'dropped by the step'
		WHEN 12 THEN 'refused, and were doomed by the rescue function'
		ELSE 'refused that too: in quarantine, and nobody waits for them'
	END AS "what happened"
FROM p_ci_builds WHERE id % 25 = 0
GROUP BY status, failure_reason
ORDER BY count(*) DESC;

\echo :bold'Two of those in quarantine (table sweep.quarantine)':normal
SELECT item ->> 'id' AS "build", split_part(message, E'\n', 1) AS message, attempts, to_char(next_try - last_at, 'FMMI "min later"') AS "next try"
FROM sweep.quarantine
ORDER BY item -> 'id' LIMIT 2;
