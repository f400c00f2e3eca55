--
-- What an operator reads.
--
-- No condition of the reader gets below OFFSET 0: neither what EXPLAIN counts nor what it estimates tells of a row that a view hides.
CREATE VIEW sweep.job WITH (security_barrier) AS
	SELECT j.* FROM sweep.job_definition j WHERE sweep._may_see(j.run_as) OFFSET 0;
COMMENT ON VIEW sweep.job IS 'jobs: what runs, when, within which limits, as whom';

CREATE VIEW sweep.quarantine WITH (security_barrier) AS
	SELECT q.* FROM sweep.job j CROSS JOIN LATERAL (SELECT * FROM sweep.quarantined_item i WHERE i.job = j.name OFFSET 0) AS q OFFSET 0;
COMMENT ON VIEW sweep.quarantine IS 'items that failed, with their errors and when they are tried again';

CREATE FUNCTION sweep._running(OUT run_id bigint, OUT job text, OUT pid int, OUT phase text, OUT batches bigint, OUT rows bigint,
	OUT last_batch_ms float8, OUT batch_size int, OUT estimated_rows bigint, OUT started_at timestamptz, OUT deadline timestamptz, OUT rows_per_second float8, OUT eta timestamptz, OUT braked_ms bigint)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_running';
COMMENT ON FUNCTION sweep._running() IS 'the runs in progress in this database, from shared memory';

CREATE VIEW sweep.running WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.pid, r.phase, r.batches, r.rows,
		pg_catalog.round(r.rows_per_second::numeric, 1) AS rows_per_second,
		pg_catalog.round(r.last_batch_ms::numeric, 3) AS last_batch_ms, nullif(r.batch_size, 0) AS batch_size, r.estimated_rows,
		CASE WHEN r.estimated_rows IS NOT NULL THEN pg_catalog.round(least(r.rows::numeric / nullif(r.estimated_rows, 0), 1), 3) END AS fraction,
		-- A batch may take longer than all before it have let expect.
		CASE WHEN r.eta IS NOT NULL THEN greatest(r.eta, pg_catalog.clock_timestamp()) END AS eta, r.started_at, r.deadline, r.braked_ms
	-- Which the reader may see is asked there, by the role of the run: its job may be gone, or another role's by now.
	FROM sweep._running() r;
COMMENT ON VIEW sweep.running IS 'live progress of the runs in progress';

CREATE FUNCTION sweep._missing_worker(role oid, priority int) RETURNS text
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_missing';
COMMENT ON FUNCTION sweep._missing_worker(oid, int) IS 'the setting that keeps runs of the role and priority in this database waiting just now; NULL when there is room for one';

-- Of a divided job all shares of a dispatch are one run to the reader. A function for the sake of its settings: the
-- planner takes this for a large query and would have it compiled. It reads what its reader may see.
CREATE FUNCTION sweep._last_dispatch(job text, newest bigint) RETURNS TABLE (run_id bigint, status sweep.run_status, stop_reason sweep.run_stop_reason,
	started_at timestamptz, finished_at timestamptz, rows bigint, sqlstate text, error text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	first bigint := newest;
	parent bigint;
	shares bigint[];
	added bigint[];
	tried_again bigint[];
BEGIN
	-- One look after the other, each by a key: the view sweep.runs cannot be joined by one.
	LOOP
		parent := (SELECT r.parent_run_id FROM sweep.runs r WHERE r.run_id = first);
		EXIT WHEN NOT EXISTS (SELECT FROM sweep.runs r WHERE r.run_id = parent AND r.job = _last_dispatch.job);
		first := parent;
	END LOOP;
	-- What has divided it is a run of it, or the run of a parent.
	shares := ARRAY[first] || ARRAY(SELECT r.run_id FROM sweep.runs r WHERE r.parent_run_id = parent AND r.job = _last_dispatch.job AND r.run_id <> first);
	added := shares;
	WHILE pg_catalog.cardinality(added) > 0 LOOP
		added := ARRAY(SELECT r.run_id FROM sweep.runs r WHERE r.parent_run_id = ANY (added) AND r.job = _last_dispatch.job);
		shares := shares || added;
	END LOOP;
	tried_again := ARRAY(SELECT r.parent_run_id FROM sweep.runs r WHERE r.parent_run_id = ANY (shares) AND r.trigger = 'retry' AND r.finished_at IS NOT NULL);
	RETURN QUERY SELECT pg_catalog.min(a.run_id), (pg_catalog.array_agg(a.status ORDER BY a.rank, a.finished_at DESC, a.run_id))[1],
			(pg_catalog.array_agg(a.stop_reason ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], pg_catalog.min(a.started_at), pg_catalog.max(a.finished_at), pg_catalog.sum(a.rows)::bigint,
			(pg_catalog.array_agg(a.sqlstate ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], (pg_catalog.array_agg(a.error ORDER BY a.rank, a.finished_at DESC, a.run_id))[1]
		-- What was skipped, has not ended or was tried again does not count; its rows do.
		FROM (SELECT r.*, CASE WHEN r.finished_at IS NOT NULL AND r.run_id <> ALL (tried_again)
				THEN pg_catalog.array_position('{failed,lost,cancelled,succeeded}'::pg_catalog.text[], r.status::pg_catalog.text) END AS rank
			FROM sweep.runs r WHERE r.run_id = ANY (shares)) AS a;
END
$$;
COMMENT ON FUNCTION sweep._last_dispatch(text, bigint) IS 'what all shares of the dispatch have come to that a run of a divided job belongs to; for sweep.jobs';

CREATE VIEW sweep.jobs WITH (security_barrier) AS
	SELECT j.name, j.schedule, j.sql, j.batch_sql, j.step, j.timezone, s.next_due AS next_run, s.paused_at IS NOT NULL AS paused,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN live.running THEN CASE WHEN held.back THEN 'paused (running)' ELSE 'running' END
			WHEN live.waiting THEN 'waiting_for_slot' || coalesce(': ' || sweep._missing_worker(sweep._role_oid(j.run_as), j.priority), '')
			WHEN held.back THEN 'paused'
			WHEN j.schedule IS NOT NULL AND NOT sweep._has_workers() THEN 'broken: pg_sweep is not in shared_preload_libraries'
			WHEN last.sqlstate ~ '^(42|3D|3F)' THEN 'broken: ' || pg_catalog.split_part(last.error, E'\n', 1)
			WHEN last.status IN ('failed', 'lost') THEN 'failing'
			ELSE 'idle'
		END AS state,
		last.run_id AS last_run_id, last.status AS last_status, last.stop_reason AS last_stop_reason, last.started_at AS last_started_at,
		last.rows AS last_rows, last.finished_at - last.started_at AS last_duration, last.error AS last_error, j.run_as, j.description
	FROM sweep.job_definition j
		JOIN sweep.job_state s ON s.job = j.name
		CROSS JOIN LATERAL (SELECT s.paused_at IS NOT NULL OR s.all_paused_at IS NOT NULL OR NOT sweep._is_home(s.system_identifier, s.database)
			OR EXISTS (SELECT FROM sweep.control) AS back) AS held
		CROSS JOIN LATERAL (SELECT coalesce(sweep._job_problem(j, s.as_user), s.broken) AS reason) AS problem
		CROSS JOIN LATERAL (SELECT
				EXISTS (SELECT FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running') AS running,
				EXISTS (SELECT FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.status = 'waiting' AND r.pid IS NULL
					AND r.trigger IN ('schedule', 'catch_up', 'retry', 'parent', 'manual') AND r.due_at < pg_catalog.statement_timestamp() - interval '1 s'
					AND (r.trigger = 'manual' AND sweep._is_home(s.system_identifier, s.database) OR NOT held.back)) AS waiting) AS live
		-- Of this role: a job of the same name that belonged to another one has nothing to do with it.
		LEFT JOIN LATERAL (SELECT * FROM (
				(SELECT * FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.finished_at IS NOT NULL
					AND r.status <> 'skipped' ORDER BY r.run_id DESC LIMIT 1)
				UNION ALL
				(SELECT * FROM sweep.run_history h WHERE h.job = j.name AND h.run_as = j.run_as AND h.status <> 'skipped'
					ORDER BY h.run_id DESC LIMIT 1)) AS ended
			ORDER BY ended.run_id DESC LIMIT 1) AS newest ON true
		LEFT JOIN LATERAL (
			SELECT newest.run_id, newest.status, newest.stop_reason, newest.started_at, newest.finished_at, newest.rows, newest.sqlstate, newest.error
				WHERE j.buckets IS NULL
			UNION ALL
			SELECT d.* FROM sweep._last_dispatch(j.name, newest.run_id) d WHERE j.buckets IS NOT NULL AND newest.run_id IS NOT NULL
		) AS last ON true
	WHERE sweep._may_see(j.run_as)
	OFFSET 0;
COMMENT ON VIEW sweep.jobs IS 'jobs with their state and what came of their last run';

DO $$
DECLARE
	note pg_catalog.text[];
BEGIN
	FOREACH note SLICE 1 IN ARRAY ARRAY[
		['running', 'run_id', 'number of the run'], ['running', 'job', 'name of the job'], ['running', 'pid', 'its process'],
		['running', 'phase', 'starting, lock (trying to take it), estimate (asking how many rows there are to do), step, commit, standby (its commit waits for a synchronous standby), braked (between two batches, on purpose) or ending'],
		['running', 'batches', 'batches committed so far'], ['running', 'rows', 'rows handled so far'],
		['running', 'rows_per_second', 'rows per second from its first batch to its last commit, without the time in braked_ms'], ['running', 'last_batch_ms', 'how long the last batch took'],
		['running', 'batch_size', 'rows of one batch at most just now, less than that of the job after batches that took too long; NULL: a job with sql, whose batches are its statements'],
		['running', 'estimated_rows', 'what the estimate of the job says, without one the rows of the last run that drained; at most what the limits of this one allow. NULL: not known'],
		['running', 'fraction', 'rows as a part of estimated_rows, from 0 to 1'], ['running', 'eta', 'when the rows that are left are done if it goes on as until now; NULL: not known'], ['running', 'started_at', 'when it had its lock'],
		['running', 'deadline', 'when its stop_after or its timeout has passed, whichever is first'],
		['running', 'braked_ms', 'time in pauses between its batches so far'],
		['jobs', 'name', 'name of the job'], ['jobs', 'schedule', 'its schedule; NULL: started by hand only'],
		['jobs', 'sql', 'what it executes once'], ['jobs', 'batch_sql', 'or the statement that does a batch'], ['jobs', 'step', 'or the function that does'],
		['jobs', 'timezone', 'time zone of the schedule'], ['jobs', 'next_run', 'next moment of the schedule'],
		['jobs', 'paused', 'whether it is paused by its name; that all are paused, or are a copy, is in state'],
		['jobs', 'state', 'running, waiting_for_slot: and the setting that is short, paused, paused (running): a run goes on to its end, failing: the last run did, broken: and why, or idle'],
		['jobs', 'last_run_id', 'the last run that ended and was not skipped; of a divided job its last dispatch, by the run that made it: all of its shares are meant in what follows'],
		['jobs', 'last_status', 'how it ended; of several shares: failed if one has and was not tried again, else lost or cancelled'],
		['jobs', 'last_stop_reason', 'why it ended'], ['jobs', 'last_started_at', 'when it had its lock'],
		['jobs', 'last_rows', 'rows it handled, all shares together'], ['jobs', 'last_duration', 'how long it took'], ['jobs', 'last_error', 'its error'],
		['jobs', 'run_as', 'role the job runs as'], ['jobs', 'description', 'a word to the reader']] LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
	FOR note IN SELECT ARRAY[v.name, a.attname, pg_catalog.col_description(a.attrelid, a.attnum)]
			FROM (VALUES ('job', 'sweep.job_definition'::pg_catalog.regclass), ('quarantine', 'sweep.quarantined_item')) AS v (name, of)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = v.of AND a.attnum > 0 LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
END
$$;
