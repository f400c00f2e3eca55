--
-- The views for jobs, runs and retentions.
--
-- OFFSET 0 keeps conditions of the reader out of the subquery, so that neither the counts nor the estimates of EXPLAIN reveal hidden rows.
CREATE VIEW sweep.job WITH (security_barrier) AS
	SELECT j.* FROM sweep.job_definition j WHERE sweep._may_see(j.run_as) OFFSET 0;
COMMENT ON VIEW sweep.job IS 'jobs: what runs, when, within which limits, as whom';

CREATE VIEW sweep.quarantine WITH (security_barrier) AS
	SELECT q.* FROM sweep.job j CROSS JOIN LATERAL (SELECT * FROM sweep.quarantined_item i WHERE i.job = j.name OFFSET 0) AS q OFFSET 0;
COMMENT ON VIEW sweep.quarantine IS 'items that failed, with their errors and when they are tried again';

CREATE VIEW sweep.retentions WITH (security_barrier) AS
	SELECT j.name AS job, j.args ->> 'target' AS target, j.args ->> 'age_column' AS age_column, a.keep,
		v.complete_to, p.proof -> 'kept' AS kept, v.oldest_kept,
		-- Computed from the statistics: planning a statement on the table would execute code of its owner, and wait for locks. Citus cannot
		-- execute an outer join with a condition on three tables in a statement over distributed tables.
		-- Since version 18 the owner of a table may store any numbers as its statistics, so they are bounded.
		(SELECT pg_catalog.round(pg_catalog.sum(least(c.reltuples, 1e13) * sweep._share_older(b.atttypid, coalesce(j.args ->> 'timezone', 'UTC'), a.age_limit, CASE WHEN s.stakind1 = 1 THEN s.stavalues1::pg_catalog.text END,
					CASE WHEN s.stakind1 = 1 THEN s.stanumbers1 END, CASE 2 WHEN s.stakind1 THEN s.stavalues1::pg_catalog.text WHEN s.stakind2 THEN s.stavalues2::pg_catalog.text END, s.stanullfrac)))::bigint
				FROM pg_catalog.pg_class c, pg_catalog.pg_attribute b, pg_catalog.pg_statistic s
				WHERE c.oid = ANY (a.tables) AND c.relkind = 'r' AND c.reltuples >= 0 AND (b.attrelid = c.oid AND b.attname = j.args ->> 'age_column' OR b.attnum = 1 AND b.attrelid IN
						(SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND x.indkey[0] = 0 AND pg_catalog.strpos(j.args ->> 'age_column', pg_catalog.pg_get_indexdef(x.indexrelid, 1, false)) > 0))
					AND s.starelid = b.attrelid AND s.staattnum = b.attnum AND NOT s.stainherit) AS overdue_rows,
		p.proved_at, v.open_since, v.late_rows, CASE WHEN p.run_id IS NULL THEN 'unknown' WHEN v.hidden THEN 'of the rows that the role may see' ELSE 'of all rows' END AS scope, p.run_id
	FROM sweep.job j LEFT JOIN sweep.retention_proof p ON p.job = j.name AND p.run_as = j.run_as AND p.proof -> 'of' = sweep._proof_of(j.args)
			AND sweep._is_home(p.system_identifier, p.database)
		CROSS JOIN LATERAL sweep._retention_age(j.args, j.run_as) AS a CROSS JOIN LATERAL sweep._proof_values(p.proof) AS v
	WHERE j.step = 'sweep.retention_step' OFFSET 0;
COMMENT ON VIEW sweep.retentions IS 'retentions, and up to which age each has proved that no row is left';
COMMENT ON COLUMN sweep.retentions.job IS 'name of the job';
COMMENT ON COLUMN sweep.retentions.target IS 'its table';
COMMENT ON COLUMN sweep.retentions.age_column IS 'the column, or expression, that is the age of a row';
COMMENT ON COLUMN sweep.retentions.keep IS 'for how long rows are kept now';
COMMENT ON COLUMN sweep.retentions.complete_to IS 'at the time of the proof, all rows older than this were gone, except those counted in kept; NULL: not known';
COMMENT ON COLUMN sweep.retentions.kept IS 'how many older rows were left, and why: {"referenced": 3, "condition": 12, "left": 1}, and null_age, rows without an age; up to 10000 each';
COMMENT ON COLUMN sweep.retentions.oldest_kept IS 'the age of the oldest row in kept; NULL: there was none';
COMMENT ON COLUMN sweep.retentions.overdue_rows IS 'estimated number of rows that are older than keep now, including those in kept, from the last ANALYZE; NULL: not analysed, or the role of the job may not read them';
COMMENT ON COLUMN sweep.retentions.proved_at IS 'the time of the proof';
COMMENT ON COLUMN sweep.retentions.open_since IS 'start of the oldest transaction that was in progress then and had written something, which the proof does not see; NULL: there was none';
COMMENT ON COLUMN sweep.retentions.late_rows IS 'how many rows the run found that were older than complete_to of the proof before: inserted, committed or changed since then; up to 10000; NULL: there was no proof before, or the job has parallel';
COMMENT ON COLUMN sweep.retentions.scope IS 'the rows that the proof is about: unknown: nothing is proved in this database; all rows; or the rows that the role may see, as policies may hide others';
COMMENT ON COLUMN sweep.retentions.run_id IS 'the run that has proved it';

CREATE FUNCTION sweep._running(OUT run_id bigint, OUT job text, OUT pid int, OUT phase text, OUT batches bigint, OUT rows bigint,
	OUT last_batch_ms float8, OUT batch_size int, OUT estimated_rows bigint, OUT started_at timestamptz, OUT deadline timestamptz, OUT rows_per_second float8, OUT eta timestamptz, OUT braked_ms bigint)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_running';
COMMENT ON FUNCTION sweep._running() IS 'the runs in progress in this database, from shared memory';

CREATE VIEW sweep.running WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.pid, r.phase, r.batches, r.rows,
		pg_catalog.round(r.rows_per_second::numeric, 1) AS rows_per_second,
		pg_catalog.round(r.last_batch_ms::numeric, 3) AS last_batch_ms, nullif(r.batch_size, 0) AS batch_size, r.estimated_rows,
		CASE WHEN r.estimated_rows IS NOT NULL THEN pg_catalog.round(least(r.rows::numeric / nullif(r.estimated_rows, 0), 1), 3) END AS fraction,
		-- A batch may take longer than the batches before it.
		CASE WHEN r.eta IS NOT NULL THEN greatest(r.eta, pg_catalog.clock_timestamp()) END AS eta, r.started_at, r.deadline, r.braked_ms
	-- The function filters by the role of the run, because the job may have been dropped, or may have another role by now. It reads no table,
	-- since a session could have locked it.
	FROM sweep._running() r;
COMMENT ON VIEW sweep.running IS 'live progress of the runs in progress';

CREATE FUNCTION sweep._missing_worker(role oid, priority int) RETURNS text
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_processes_missing';
COMMENT ON FUNCTION sweep._missing_worker(oid, int) IS 'the setting because of which runs of this role and priority in this database have to wait now; NULL when a run can start';

-- sweep.jobs shows all shares of a dispatch of a divided job as one run.
CREATE FUNCTION sweep._last_dispatch(job text, run_as text, newest bigint) RETURNS TABLE (run_id bigint, status sweep.run_status, stop_reason sweep.run_stop_reason,
	started_at timestamptz, finished_at timestamptz, rows bigint, sqlstate text, error text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	first bigint := newest;
	parent bigint;
	shares bigint[];
	added bigint[];
	tried_again bigint[];
BEGIN
	LOOP
		parent := (SELECT r.parent_run_id FROM sweep._run r WHERE r.run_id = first);
		EXIT WHEN NOT EXISTS (SELECT FROM sweep._run r WHERE r.run_id = parent AND r.job = _last_dispatch.job AND r.run_as = _last_dispatch.run_as);
		first := parent;
	END LOOP;
	-- The run that has divided the job is a run of the job itself, or of its parent.
	shares := ARRAY[first] || ARRAY(SELECT r.run_id FROM sweep._run r WHERE r.parent_run_id = parent AND r.job = _last_dispatch.job AND r.run_as = _last_dispatch.run_as AND r.run_id <> first);
	added := shares;
	WHILE pg_catalog.cardinality(added) > 0 LOOP
		added := ARRAY(SELECT r.run_id FROM sweep._run r WHERE r.parent_run_id = ANY (added) AND r.job = _last_dispatch.job AND r.run_as = _last_dispatch.run_as);
		shares := shares || added;
	END LOOP;
	tried_again := ARRAY(SELECT r.parent_run_id FROM sweep._run r WHERE r.parent_run_id = ANY (shares) AND r.trigger = 'retry' AND r.finished_at IS NOT NULL);
	RETURN QUERY SELECT pg_catalog.min(a.run_id), (pg_catalog.array_agg(a.status ORDER BY a.rank, a.finished_at DESC, a.run_id))[1],
			(pg_catalog.array_agg(a.stop_reason ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], pg_catalog.min(a.started_at), pg_catalog.max(a.finished_at),
			least(pg_catalog.sum(a.rows), 9223372036854775807)::bigint,
			(pg_catalog.array_agg(a.sqlstate ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], (pg_catalog.array_agg(a.error ORDER BY a.rank, a.finished_at DESC, a.run_id))[1]
		-- A run that was skipped, has not ended or was tried again does not count; its rows do.
		FROM (SELECT r.*, CASE WHEN r.finished_at IS NOT NULL AND r.run_id <> ALL (tried_again)
				THEN pg_catalog.array_position('{failed,lost,cancelled,succeeded}'::pg_catalog.text[], r.status::pg_catalog.text) END AS rank
			FROM sweep._run r WHERE r.run_id = ANY (shares)) AS a;
END
$$;
COMMENT ON FUNCTION sweep._last_dispatch(text, text, bigint) IS 'the common result of all shares of the dispatch to which a run of a divided job belongs; for sweep.jobs';

-- Does not contain the error text, which readers of the new role must not see.
CREATE FUNCTION sweep._failure(job sweep.job_definition, failed_before text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	last pg_catalog.record;
BEGIN
	SELECT r.run_id, coalesce(d.status, r.status) AS status INTO last
		FROM (SELECT a.run_id, a.status FROM sweep._run a WHERE a.job = job.name AND a.run_as = job.run_as AND a.finished_at IS NOT NULL AND a.status <> 'skipped'
				ORDER BY a.run_id DESC LIMIT 1) AS r
			LEFT JOIN LATERAL sweep._last_dispatch(job.name, job.run_as, r.run_id) AS d ON job.buckets IS NOT NULL;
	RETURN CASE WHEN NOT FOUND THEN failed_before
		WHEN last.status IN ('failed', 'lost') THEN pg_catalog.format('run %s %s as role "%s"', last.run_id, CASE last.status WHEN 'lost' THEN 'was lost' ELSE 'failed' END, job.run_as) END;
END
$$;
COMMENT ON FUNCTION sweep._failure(sweep.job_definition, text) IS 'the text that describes the failure of the last run of a job that is given to another role; NULL: it did not fail';

-- The list of columns of the view sweep.jobs and of the functions that it reads.
CREATE TYPE sweep._seen_job AS (name text, schedule text, sql text, batch_sql text, step text, timezone text, next_run timestamptz, paused boolean, state text, since timestamptz,
	last_run_id bigint, last_status sweep.run_status, last_stop_reason sweep.run_stop_reason, last_started_at timestamptz, last_rows bigint, last_duration interval,
	last_error text, run_as text, description text);
COMMENT ON TYPE sweep._seen_job IS 'a row of sweep.jobs';

-- This has to be fast with 100,000 jobs. The right to see a job is checked once per role. sweep._job_problem() is called once for
-- all jobs with equal values of the settings that it reads. The last run is found along an index. The JIT compiler is off: the
-- planner overestimates the cost, and compiling would take longer than the query.
CREATE FUNCTION sweep.__seen_jobs(caller oid) RETURNS SETOF sweep._seen_job
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	all_paused constant boolean := EXISTS (SELECT FROM sweep.control);
	no_scheduler constant pg_catalog.text := sweep._no_scheduler();
	watches constant boolean := sweep._acts_for(caller, 'sweep_monitor');
BEGIN
	RETURN QUERY WITH role AS MATERIALIZED (
		SELECT r.run_as FROM (SELECT DISTINCT j.run_as FROM sweep.job_definition j OFFSET 0) AS r WHERE watches OR sweep._may_act_on(caller, r.run_as, true)
	), seen AS MATERIALIZED (
		SELECT j.name, j.schedule, j.sql, j.batch_sql, j.step, j.timezone, j.run_as, j.description, j.priority, j.buckets, s.failed_before, s.next_due, s.next_start, s.paused_at IS NOT NULL AS paused, s.broken,
				h.at_home, CASE WHEN NOT h.at_home THEN 'paused: the database is a copy' WHEN all_paused OR s.all_paused_at IS NOT NULL THEN 'paused: by pause_all'
					WHEN s.paused_at IS NOT NULL THEN 'paused' END AS held_back,
				-- All settings that sweep._job_problem() reads must be in this list.
				ARRAY[j.run_as, j.step, j.pick, j.rescue, j.buckets_function, j.schedule, j.timezone, CASE WHEN j.buckets IS NOT NULL THEN j.bucket_store END, s.as_user::pg_catalog.text] AS looked_at
			FROM role JOIN sweep.job_definition j ON j.run_as = role.run_as JOIN sweep.job_state s ON s.job = j.name
				CROSS JOIN LATERAL (SELECT sweep._is_home(s.system_identifier, s.database) AS at_home OFFSET 0) AS h
	), problem AS MATERIALIZED (
		SELECT k.looked_at, sweep._job_problem(j, t.as_user) AS reason
			FROM (SELECT s.looked_at, pg_catalog.min(s.name) AS name FROM seen s GROUP BY s.looked_at) AS k JOIN sweep.job_definition j ON j.name = k.name JOIN sweep.job_state t ON t.job = k.name
	), live AS MATERIALIZED (
		-- Without a scheduler it is not recorded when the process of a run has gone.
		SELECT r.job, r.run_as, pg_catalog.bool_or(r.status = 'running' AND (no_scheduler IS NULL OR sweep._run_is_alive(r.run_id))) AS running,
				pg_catalog.min(r.started_at) FILTER (WHERE r.status = 'running') AS started_at, pg_catalog.bool_or(r.status = 'waiting' AND r.trigger = 'manual') AS started,
				pg_catalog.bool_or(r.status = 'waiting' AND r.trigger <> 'manual') AS due, pg_catalog.min(r.due_at) FILTER (WHERE r.status = 'waiting') AS due_at
			FROM sweep.run_live r
			WHERE r.pid IS NOT NULL AND r.status = 'running' OR r.pid IS NULL AND r.status = 'waiting' AND r.due_at < pg_catalog.statement_timestamp() - interval '1 s'
			GROUP BY r.job, r.run_as
	), ended AS MATERIALIZED (
		SELECT DISTINCT ON (r.job, r.run_as) r.* FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL AND r.status <> 'skipped'
			ORDER BY r.job, r.run_as, r.run_id DESC
	)
	SELECT s.name, s.schedule, s.sql, s.batch_sql, s.step, s.timezone, s.next_due, s.paused,
			CASE
				WHEN coalesce(problem.reason, s.broken) IS NOT NULL THEN 'broken: ' || coalesce(problem.reason, s.broken)
				WHEN live.running THEN CASE WHEN s.held_back IS NOT NULL THEN 'paused (running)' ELSE 'running' END
				WHEN no_scheduler IS NOT NULL AND (s.held_back IS NULL OR live.started AND s.at_home) THEN 'no_scheduler: ' || no_scheduler
				-- A run that was started by hand begins although the job is paused.
				WHEN live.started AND s.at_home OR (live.started OR live.due) AND s.held_back IS NULL
					THEN 'waiting_for_slot' || coalesce(': ' || sweep._missing_worker(sweep._role_oid(s.run_as), s.priority), '')
				WHEN s.held_back IS NOT NULL THEN s.held_back
				-- The job is due, and no scheduler has queued its run.
				WHEN s.next_start < pg_catalog.statement_timestamp() - interval '1 s' AND sweep._missing_worker(sweep._role_oid(s.run_as), s.priority) IS NOT NULL
					THEN 'waiting_for_slot: ' || sweep._missing_worker(sweep._role_oid(s.run_as), s.priority)
				WHEN s.next_start < pg_catalog.statement_timestamp() - interval '10 s' THEN 'overdue'
				WHEN last.sqlstate ~ '^(42|3D|3F)' THEN 'broken: ' || pg_catalog.split_part(last.error, E'\n', 1)
				WHEN last.status IN ('failed', 'lost') OR last.run_id IS NULL AND s.failed_before IS NOT NULL THEN 'failing'
				ELSE 'idle'
			END,
			-- since
			CASE
				WHEN live.running THEN live.started_at
				WHEN live.started AND s.at_home OR (live.started OR live.due) AND s.held_back IS NULL THEN live.due_at
				WHEN s.held_back IS NULL AND s.next_start < pg_catalog.statement_timestamp() - interval '1 s' THEN s.next_start
			END,
			last.run_id, last.status, last.stop_reason, last.started_at, last.rows, sweep._elapsed(last.started_at, last.finished_at),
			CASE WHEN last.run_id IS NULL THEN s.failed_before ELSE last.error END, s.run_as, s.description
		FROM seen s
			LEFT JOIN problem ON problem.looked_at = s.looked_at
			LEFT JOIN live ON live.job = s.name AND live.run_as = s.run_as
			-- Only runs of this role: a job of the same name of another role is a different job.
			LEFT JOIN ended ON ended.job = s.name AND ended.run_as = s.run_as
			LEFT JOIN LATERAL (SELECT * FROM sweep.run_history h WHERE h.job = s.name AND h.run_as = s.run_as AND h.status <> 'skipped'
				ORDER BY h.run_id DESC LIMIT 1) AS archived ON true
			LEFT JOIN LATERAL (SELECT ended.* WHERE ended.run_id > coalesce(archived.run_id, 0) UNION ALL
				SELECT archived.* WHERE archived.run_id > coalesce(ended.run_id, 0)) AS newest ON true
			LEFT JOIN LATERAL (
				SELECT newest.run_id, newest.status, newest.stop_reason, newest.started_at, newest.finished_at, newest.rows, newest.sqlstate, newest.error
					WHERE s.buckets IS NULL
				UNION ALL
				SELECT d.* FROM sweep._last_dispatch(s.name, s.run_as, newest.run_id) d WHERE s.buckets IS NOT NULL AND newest.run_id IS NOT NULL
			) AS last ON true;
END
$$;
COMMENT ON FUNCTION sweep.__seen_jobs(oid) IS 'implements sweep._seen_jobs';

CREATE FUNCTION sweep._seen_jobs() RETURNS SETOF sweep._seen_job
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._seen_jobs() IS 'the jobs that the caller may see; for sweep.jobs';

CREATE VIEW sweep.jobs WITH (security_barrier) AS
	SELECT * FROM sweep._seen_jobs();
COMMENT ON VIEW sweep.jobs IS 'jobs with their state and the result of their last run';

DO $$
DECLARE
	note pg_catalog.text[];
BEGIN
	FOREACH note SLICE 1 IN ARRAY ARRAY[
		['running', 'run_id', 'number of the run'], ['running', 'job', 'name of the job'], ['running', 'pid', 'its process'],
		['running', 'phase', 'starting, lock (trying to take it), estimate (finding out how many rows there are to process), step, commit, standby (its commit waits for a synchronous standby), braked (pausing between two batches) or ending'],
		['running', 'batches', 'batches committed so far'], ['running', 'rows', 'rows handled so far'],
		['running', 'rows_per_second', 'rows per second from its first batch to its last commit, without the time in braked_ms'], ['running', 'last_batch_ms', 'how long the last batch took'],
		['running', 'batch_size', 'present maximal number of rows of a batch, less than that of the job after batches that took too long; NULL: a job with sql, whose batches are its statements'],
		['running', 'estimated_rows', 'result of the estimate of the job, or the rows of the last run that drained; at most as many as the limits of the run allow. NULL: not known'],
		['running', 'fraction', 'rows as a part of estimated_rows, from 0 to 1'], ['running', 'eta', 'when all rows will be processed, at the rate so far; NULL: not known'], ['running', 'started_at', 'when it had its lock'],
		['running', 'deadline', 'when its stop_after or its timeout ends, whichever is first'],
		['running', 'braked_ms', 'time in pauses between its batches so far'],
		['jobs', 'name', 'name of the job'], ['jobs', 'schedule', 'its schedule; NULL: started by hand only'],
		['jobs', 'sql', 'what it executes once'], ['jobs', 'batch_sql', 'or the statement that does a batch'], ['jobs', 'step', 'or the function that does'],
		['jobs', 'timezone', 'time zone of the schedule'], ['jobs', 'next_run', 'next moment of the schedule'],
		['jobs', 'paused', 'whether this job alone is paused (sweep.pause); state also shows whether all jobs are paused, or the database is a copy'],
		['jobs', 'state', 'running, no_scheduler: (and why), waiting_for_slot: (and the setting that limits it), overdue, paused: (and by what), paused (running): a run goes on to its end, failing: the last run failed, broken: (and why), or idle'],
		['jobs', 'since', 'since when a run is in progress, or is waiting to begin, or else since when the schedule has been due; NULL: none of these'],
		['jobs', 'last_run_id', 'the last run that ended and was not skipped; for a divided job the run that made the last dispatch: the next columns are about all of its shares'],
		['jobs', 'last_status', 'how it ended; for several shares: failed if one has failed and was not tried again, else lost or cancelled'],
		['jobs', 'last_stop_reason', 'why it ended'], ['jobs', 'last_started_at', 'when it had its lock'],
		['jobs', 'last_rows', 'rows it handled, all shares together'], ['jobs', 'last_duration', 'how long it took'], ['jobs', 'last_error', 'its error'],
		['jobs', 'run_as', 'role the job runs as'], ['jobs', 'description', 'free text that says what the job is for']] LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
	FOR note IN SELECT ARRAY[v.name, a.attname, pg_catalog.col_description(a.attrelid, a.attnum)]
			FROM (VALUES ('job', 'sweep.job_definition'::pg_catalog.regclass), ('quarantine', 'sweep.quarantined_item'), ('_seen_job', 'sweep.jobs'), ('_seen_queue', 'sweep.queues')) AS v (name, of)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = v.of AND a.attnum > 0 LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
END
$$;
