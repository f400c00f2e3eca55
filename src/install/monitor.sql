--
-- What an operator reads.
--
CREATE FUNCTION sweep._running(OUT run_id bigint, OUT job text, OUT pid int, OUT phase text, OUT batches bigint, OUT rows bigint,
	OUT last_batch_ms float8, OUT batch_size int, OUT estimated_rows bigint, OUT started_at timestamptz, OUT deadline timestamptz)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_running';
COMMENT ON FUNCTION sweep._running() IS 'the runs in progress in this database, from shared memory';

CREATE VIEW sweep.running WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.pid, r.phase, r.batches, r.rows,
		round((r.rows / nullif(extract(epoch FROM clock_timestamp() - r.started_at), 0))::numeric, 1) AS rows_per_second,
		round(r.last_batch_ms::numeric, 3) AS last_batch_ms, r.batch_size, r.estimated_rows,
		CASE WHEN r.estimated_rows > 0 THEN round(least(r.rows::numeric / r.estimated_rows, 1), 3) END AS fraction, r.started_at, r.deadline
	FROM sweep._running() r
	WHERE sweep._may_see((SELECT j.run_as FROM sweep.job j WHERE j.name = r.job));
COMMENT ON VIEW sweep.running IS 'live progress of the runs in progress';

CREATE VIEW sweep.jobs WITH (security_barrier) AS
	SELECT j.name, j.schedule, j.timezone, s.next_due AS next_run, j.enabled,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN live.running THEN 'running'
			WHEN live.waiting THEN 'waiting_for_slot'
			WHEN s.paused_at IS NOT NULL OR NOT home.here THEN 'paused'
			WHEN last.sqlstate ~ '^(42|3D|3F)' THEN 'broken: ' || split_part(last.error, E'\n', 1)
			ELSE 'idle'
		END AS state,
		last.run_id AS last_run_id, last.status AS last_status, last.stop_reason AS last_stop_reason, last.started_at AS last_started_at,
		last.rows AS last_rows, last.finished_at - last.started_at AS last_duration, last.error AS last_error, j.run_as, j.description
	FROM sweep.job j
		JOIN sweep.job_state s ON s.job = j.name
		CROSS JOIN (SELECT sweep._at_home() AS here) AS home
		CROSS JOIN LATERAL (SELECT coalesce(sweep._job_problem(j), s.broken) AS reason) AS problem
		CROSS JOIN LATERAL (SELECT
				EXISTS (SELECT FROM sweep.run_live r WHERE r.job = j.name AND r.status = 'running') AS running,
				EXISTS (SELECT FROM sweep.run_live r WHERE r.job = j.name AND r.status = 'waiting' AND r.pid IS NULL
					AND r.due_at < clock_timestamp() - interval '1 s'
					AND (r.trigger = 'manual' OR home.here AND s.paused_at IS NULL)) AS waiting) AS live
		LEFT JOIN LATERAL (SELECT * FROM (
				(SELECT * FROM sweep.run_live r WHERE r.job = j.name AND r.finished_at IS NOT NULL AND r.status <> 'skipped'
					ORDER BY r.run_id DESC LIMIT 1)
				UNION ALL
				(SELECT * FROM sweep.run_history h WHERE h.job = j.name AND h.status <> 'skipped' ORDER BY h.run_id DESC LIMIT 1)) AS ended
			ORDER BY ended.run_id DESC LIMIT 1) AS last ON true
	WHERE sweep._may_see(j.run_as);
COMMENT ON VIEW sweep.jobs IS 'jobs with their state and what came of their last run';

DO $$
DECLARE
	note text[];
BEGIN
	FOREACH note SLICE 1 IN ARRAY ARRAY[
		['running', 'run_id', 'number of the run'], ['running', 'job', 'name of the job'], ['running', 'pid', 'its process'],
		['running', 'phase', 'starting, lease (trying to take it), step, commit or ending'],
		['running', 'batches', 'batches committed so far'], ['running', 'rows', 'rows handled so far'],
		['running', 'rows_per_second', 'rows per second since the run began'], ['running', 'last_batch_ms', 'how long the last batch took'],
		['running', 'batch_size', 'rows of one batch at most'],
		['running', 'estimated_rows', 'rows of the last run that drained, or what the limits of this one allow; NULL: not known'],
		['running', 'fraction', 'rows as a part of estimated_rows, from 0 to 1'], ['running', 'started_at', 'when it had its lease'],
		['running', 'deadline', 'when its timeout or its lease ends, whichever is first'],
		['jobs', 'name', 'name of the job'], ['jobs', 'schedule', 'its schedule; NULL: started by hand only'],
		['jobs', 'timezone', 'time zone of the schedule'], ['jobs', 'next_run', 'next moment of the schedule'],
		['jobs', 'enabled', 'whether the schedule applies'],
		['jobs', 'state', 'idle, running, waiting_for_slot, paused, or broken: and why'],
		['jobs', 'last_run_id', 'the last run that ended and was not skipped'], ['jobs', 'last_status', 'how it ended'],
		['jobs', 'last_stop_reason', 'why it ended'], ['jobs', 'last_started_at', 'when it had its lease'],
		['jobs', 'last_rows', 'rows it handled'], ['jobs', 'last_duration', 'how long it took'], ['jobs', 'last_error', 'its error'],
		['jobs', 'run_as', 'role the job runs as'], ['jobs', 'description', 'a word to the reader']] LOOP
		EXECUTE format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
END
$$;
