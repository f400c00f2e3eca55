--
-- Runs: the tables with their states, which of them may start, and the functions that start and cancel them.
--
-- A run is a row of sweep.run_live while it waits and runs, written in the transactions of its batches. Once it has ended it is moved to
-- sweep.run_history, which the engine never waits for: a lock on the history delays only the history. The view sweep.runs shows both.
--
-- Domains are used instead of constraints of the table, because the UPDATE of every batch would plan a constraint anew.
CREATE DOMAIN sweep.run_trigger AS text
	CONSTRAINT run_trigger_check CHECK (VALUE IN ('schedule', 'manual', 'parent', 'retry', 'catch_up'));
COMMENT ON DOMAIN sweep.run_trigger IS 'what caused a run';

CREATE DOMAIN sweep.run_status AS text
	CONSTRAINT run_status_check CHECK (VALUE IN ('waiting', 'running', 'succeeded', 'skipped', 'failed', 'cancelled', 'lost'));
COMMENT ON DOMAIN sweep.run_status IS 'how far a run is, or how it ended';

CREATE DOMAIN sweep.run_stop_reason AS text
	CONSTRAINT run_stop_reason_check CHECK (VALUE IN ('drained', 'done', 'max_batches', 'max_rows', 'stop_after', 'cancelled', 'timeout',
		'no_progress', 'error', 'skipped', 'lost', 'rescaled', 'waits'));
COMMENT ON DOMAIN sweep.run_stop_reason IS 'why a run ended';

-- The columns of the indexes come first. Each batch compares their old and new values, and the first columns of a row are found soonest.
CREATE TABLE sweep.run_live (
	run_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	due_at      timestamptz NOT NULL,
	rows        bigint NOT NULL DEFAULT 0,
	rescued     bigint NOT NULL DEFAULT 0,
	quarantined bigint NOT NULL DEFAULT 0,
	braked_ms   bigint NOT NULL DEFAULT 0,
	batches     int NOT NULL DEFAULT 0,
	attempt     int NOT NULL DEFAULT 1,
	hook_depth  int NOT NULL DEFAULT 0,
	pid         int,
	job         text NOT NULL,
	trigger     sweep.run_trigger NOT NULL,
	parent_run_id bigint,
	status      sweep.run_status NOT NULL DEFAULT 'waiting',
	run_as      text NOT NULL DEFAULT current_user,
	started_at  timestamptz,
	finished_at timestamptz,
	bucket      int,
	shares_left int,
	stop_reason sweep.run_stop_reason,
	args        jsonb NOT NULL DEFAULT '{}',
	cursor      jsonb,
	detail      jsonb,
	sqlstate    text,
	error       text,
	begun       bigint
) WITH (fillfactor = 50);
-- The runs of a job are ordered by a number that they draw when they begin. A clock cannot order them, because it may be set back, or
-- be the clock of another server. The run_id cannot either, because it is the order in which runs were queued.
CREATE SEQUENCE sweep.run_begun_seq OWNED BY sweep.run_live.begun;
-- With these indexes the scheduler finds what it has to do without reading the runs that are not due yet. A batch or the end of a
-- run changes no column of an index, because each change would add an entry to every index. For the same reason pid IS NOT NULL
-- stands for "has begun or ended": a run that ends before it has begun gets a pid as well.
CREATE INDEX run_live_due_idx ON sweep.run_live (due_at);
CREATE INDEX run_live_job_idx ON sweep.run_live (job, trigger, due_at);
CREATE INDEX run_live_begun_idx ON sweep.run_live (job, run_id) WHERE pid IS NOT NULL;
COMMENT ON INDEX sweep.run_live_due_idx IS 'what is due';
COMMENT ON INDEX sweep.run_live_job_idx IS 'what waits of a job';
COMMENT ON INDEX sweep.run_live_begun_idx IS 'what runs or has ended';
CREATE INDEX run_live_parent_idx ON sweep.run_live (parent_run_id) WHERE parent_run_id IS NOT NULL;
COMMENT ON INDEX sweep.run_live_parent_idx IS 'what a run has queued';
-- A restored database goes on counting: new runs have higher numbers than those in its job_state.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live_run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.run_begun_seq', '');
-- The dump has the runs of jobs that keep their cursor, or that of each range: the cursor is in sweep.job_state only when the run has ended and was archived.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live', $$WHERE pid IS NOT NULL AND (batches > 0 OR cursor IS NOT NULL)
	AND EXISTS (SELECT FROM sweep.job_definition AS j WHERE j.name = job AND j.run_as = run_live.run_as AND (j.cursor <> 'run' OR j.buckets_function = 'sweep.range_count'))$$);
COMMENT ON TABLE sweep.run_live IS 'runs that wait, run, or have just ended; see sweep.runs';

CREATE TABLE sweep.run_history (LIKE sweep.run_live INCLUDING DEFAULTS, PRIMARY KEY (run_id));
CREATE INDEX run_history_job_idx ON sweep.run_history (job, run_id);
CREATE INDEX run_history_role_idx ON sweep.run_history (run_as);
CREATE INDEX run_history_outcome_idx ON sweep.run_history (job, run_as, status, run_id);
CREATE INDEX run_history_finished_at_idx ON sweep.run_history (finished_at);
CREATE INDEX run_history_parent_idx ON sweep.run_history (parent_run_id) WHERE parent_run_id IS NOT NULL;
COMMENT ON TABLE sweep.run_history IS 'runs that have ended, bounded by pg_sweep.history_per_job and pg_sweep.history_max_age; see sweep.runs';

CREATE VIEW sweep._run WITH (security_barrier) AS
	SELECT * FROM sweep.run_live UNION ALL SELECT * FROM sweep.run_history;
COMMENT ON VIEW sweep._run IS 'all runs, for functions that look one up by its number; granted to no role';

CREATE FUNCTION sweep._elapsed(started_at timestamptz, finished_at timestamptz) RETURNS interval
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	-- An interval can hold the time between any two moments since 2000.
	RETURN CASE WHEN pg_catalog.isfinite(started_at) AND pg_catalog.isfinite(finished_at) AND least(started_at, finished_at) >= '2000-01-01 00:00Z' THEN finished_at - started_at END;
COMMENT ON FUNCTION sweep._elapsed(timestamptz, timestamptz) IS 'the time from one to the other; NULL when there is no interval for it';

-- A security barrier, like all views: ../api/README.md has the reason. For a reader without the right to see all rows, the history is read
-- along the index of run_as. There is no recursive query, because Citus refuses one together with a distributed table.
CREATE VIEW sweep.runs WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.args, r.trigger, r.attempt, r.due_at, r.started_at, r.finished_at, r.status, r.stop_reason, r.batches, r.rows, r.rescued,
			r.quarantined, r.braked_ms, r.cursor, r.detail, r.sqlstate, r.error, r.pid, r.run_as, r.bucket, r.shares_left, r.parent_run_id, r.hook_depth
		FROM (SELECT l.* FROM sweep.run_live l WHERE sweep._may_see(l.run_as)
			UNION ALL SELECT h.* FROM sweep.run_history h WHERE (SELECT sweep._may_see(NULL))
			UNION ALL SELECT h.* FROM pg_catalog.pg_roles AS m CROSS JOIN LATERAL (SELECT * FROM sweep.run_history o WHERE o.run_as = m.rolname::pg_catalog.text COLLATE "default" OFFSET 0) AS h
				WHERE NOT (SELECT sweep._may_see(NULL)) AND sweep._may_see(m.rolname::pg_catalog.text)) AS r
		OFFSET 0;
COMMENT ON VIEW sweep.runs IS 'runs: waiting, running and ended; a role sees the runs of roles that it is a member of, a member of sweep_monitor all of them';

DO $$
DECLARE
	target pg_catalog.text;
	note pg_catalog.text[];
BEGIN
	FOREACH target IN ARRAY ARRAY['run_live', 'run_history', 'runs', '_run'] LOOP
		FOREACH note SLICE 1 IN ARRAY ARRAY[
			['run_id', 'number of the run'], ['job', 'name of the job'], ['args', 'args of this run, merged over those of the job'],
			['trigger', 'what caused it: schedule, manual, parent, retry, catch_up'], ['attempt', 'number of the attempt, from 1'],
			['due_at', 'when it was meant to start'], ['started_at', 'when it had its lock'], ['finished_at', 'when it ended'],
			['status', 'waiting, running, succeeded, skipped, failed, cancelled or lost'],
			['stop_reason', 'why it ended: drained, done, max_batches, max_rows, stop_after, cancelled, timeout, no_progress, error, skipped, lost, rescaled or waits'],
			['batches', 'batches committed'], ['rows', 'rows handled in them'], ['rescued', 'items for which the rescue function reported rows'],
			['quarantined', 'items put into quarantine'], ['braked_ms', 'time in pauses between its batches'], ['cursor', 'where the next batch would go on'], ['detail', 'what the step reported'],
			['sqlstate', 'code of the error that ended it'], ['error', 'that error, with its detail, hint and context'],
			['pid', 'process that runs it, ran it, or has ended it before it began'],
			['run_as', 'role of its job: a job of the same name that belongs to another role has nothing to do with it'],
			['bucket', 'share of a divided job that it has or had; while it waits the one that it prefers'],
			['shares_left', 'how many shares follow this one, one after the other; NULL: it was not begun as a share'],
			['parent_run_id', 'run that has queued it: of a share the one that divided the job, of a retry the one that is tried again, of one that a hook has queued the run that it tells of'],
			['hook_depth', 'how many hooks have led to it, one after the other']] LOOP
			EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', target, note[1], note[2]);
		END LOOP;
	END LOOP;
END
$$;
COMMENT ON COLUMN sweep.run_live.begun IS 'number drawn when it had its lock, which orders the runs of a job; NULL: it has not begun';
COMMENT ON COLUMN sweep.run_history.begun IS 'number drawn when it had its lock, which orders the runs of a job; NULL: it has not begun';
COMMENT ON COLUMN sweep._run.begun IS 'number drawn when it had its lock, which orders the runs of a job; NULL: it has not begun';

CREATE FUNCTION sweep._is_retried(status text, stop_reason text, attempt int, max_attempts int) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A run that made no progress would make no progress in another attempt either.
	SELECT status IN ('failed', 'lost') AND stop_reason IS DISTINCT FROM 'no_progress' AND attempt < max_attempts
$$;
COMMENT ON FUNCTION sweep._is_retried(text, text, int, int) IS 'whether a run that has ended so is tried again';

-- ------------------------------------------------------------------ what C offers to the functions below
CREATE FUNCTION sweep._run_is_alive(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_run_is_alive';
COMMENT ON FUNCTION sweep._run_is_alive(bigint) IS 'whether a process holds the lock of the run';

CREATE FUNCTION sweep._lock_number(role oid, key text) RETURNS bigint
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_lock_number';
COMMENT ON FUNCTION sweep._lock_number(oid, text) IS 'number of the lock of the role with this lock_key, (classid, objid) in pg_locks; changes with each start of the server';

-- The high COST makes the planner call it after all other conditions: when it returns true, the scheduler looks again soon.
CREATE FUNCTION sweep._lock_is_held(role oid, key text, shared boolean) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 1000000 AS 'MODULE_PATHNAME', 'sweep_lock_probe';
COMMENT ON FUNCTION sweep._lock_is_held(oid, text, boolean) IS 'whether a run of the role with this lock_key could not take its lock now, alone or (a share of a divided job) together with others';

CREATE FUNCTION sweep.try_lock(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_try';
COMMENT ON FUNCTION sweep.try_lock(text) IS 'takes the lock of that key for this session, if it is free; runs with this lock_key, of the roles one may act for, then wait or are skipped';

CREATE FUNCTION sweep.release_lock(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_release';
COMMENT ON FUNCTION sweep.release_lock(text) IS 'gives back a lock that this session took with sweep.try_lock; false when it had none';

-- ------------------------------------------------------------------ rows that a session has locked
-- The scheduler and the processes of runs never wait for a row that a session may have locked: one open transaction would
-- stop all jobs. They skip a locked row and come back to it.
CREATE FUNCTION sweep._lock_waiting_run(run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM FROM sweep.run_live r WHERE r.run_id = _lock_waiting_run.run_id AND r.status = 'waiting' FOR UPDATE SKIP LOCKED;
	RETURN CASE WHEN FOUND THEN true
		WHEN NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.run_id = _lock_waiting_run.run_id AND r.status = 'waiting') THEN false END;
END
$$;
COMMENT ON FUNCTION sweep._lock_waiting_run(bigint) IS 'locks the row of a waiting run; false when it does not wait any more, NULL when another session has locked it';

-- ------------------------------------------------------------------ starts
CREATE FUNCTION sweep._startable_runs(at timestamptz)
	RETURNS TABLE (run_id bigint, job text, run_as text, expected_rows bigint)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	most int := pg_catalog.current_setting('pg_sweep.max_running_jobs', true);
BEGIN
	-- A run that was started by hand ignores pauses, and the lock of its job decides whether it overlaps. Scheduled runs of one job
	-- follow each other. sweep.control is read once, and only when a run waits that was not started by hand.
	RETURN QUERY WITH ready AS (SELECT r.run_id, r.job, r.run_as, r.due_at, s.drained_rows, s.crashes > 0 AND sweep._is_suspect(s) AS suspect,
			pg_catalog.row_number() OVER (PARTITION BY s.crashes > 0 AND sweep._is_suspect(s) ORDER BY r.due_at, r.run_id) AS trial, j.priority, j.lock_key, j.buckets IS NOT NULL AS divided,
			-- Runs that were started (manual, parent, retry) wait for their turn at the lock; a run of the schedule tries to take the lock
			-- when it is due.
			r.trigger NOT IN ('schedule', 'catch_up') AS takes_turns,
			pg_catalog.row_number() OVER (PARTITION BY r.run_as, j.lock_key, r.trigger NOT IN ('schedule', 'catch_up') AND j.buckets IS NULL
				ORDER BY r.due_at, r.run_id) AS turn
		FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as JOIN sweep.job_state s ON s.job = j.name
		WHERE r.status = 'waiting' AND r.due_at <= at AND r.pid IS NULL AND sweep._is_home(s.system_identifier, s.database)
			-- A run of a role that is no longer a member of sweep_user waits until it is a member again.
			AND (NOT s.as_user OR sweep._is_user(r.run_as) IS NOT FALSE)
			AND (r.trigger = 'manual' OR NOT EXISTS (SELECT FROM sweep.control) AND s.all_paused_at IS NULL AND s.paused_at IS NULL
				AND (r.trigger = 'parent' OR j.buckets IS NOT NULL
					OR NOT EXISTS (SELECT FROM sweep.run_live o WHERE o.job = r.job AND o.run_as = r.run_as AND o.pid IS NOT NULL AND o.status = 'running')
						AND NOT EXISTS (SELECT FROM sweep.run_live o WHERE o.job = r.job AND o.run_as = r.run_as AND o.trigger IN ('schedule', 'catch_up', 'retry')
							AND o.due_at <= r.due_at AND (o.due_at, o.run_id) < (r.due_at, r.run_id) AND o.status = 'waiting' AND o.pid IS NULL)))
			AND (s.crashes = 0 OR sweep._may_run_again(s, at))
			-- The row is not locked, for example by a session that is cancelling the run: the process of the run would have to wait.
			-- xmax is tested first, because hardly any row has ever been locked.
			AND (r.xmax = 0 OR sweep._lock_waiting_run(r.run_id)))
	-- Only one of the runs that wait for the same lock is listed, and per role 100 more than could start, so that the runs of one
	-- job or role do not hide those of others. The columns that their owners write (args) are left out.
	SELECT w.run_id, w.job, w.run_as, w.drained_rows FROM (SELECT f.*, pg_catalog.row_number() OVER (PARTITION BY f.run_as ORDER BY f.priority DESC, f.due_at, f.run_id) AS nth
			FROM ready f WHERE (f.trial = 1 OR NOT f.suspect) AND (NOT f.takes_turns
				OR (f.turn = 1 OR f.divided) AND sweep._lock_is_held(sweep._role_oid(f.run_as), f.lock_key, f.divided) IS NOT TRUE)) AS w
		WHERE w.nth <= coalesce(most, 1000) + 100 ORDER BY w.priority DESC, w.due_at, w.run_id;
END
$$;
COMMENT ON FUNCTION sweep._startable_runs(timestamptz) IS 'the waiting runs that may start now, of each lock and each role the oldest ones';

CREATE FUNCTION sweep._next_wake(listed_at timestamptz) RETURNS timestamptz
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
	-- PL/pgSQL and not SQL, because it is called in each tick: an SQL function would be planned each time.
	RETURN least((SELECT pg_catalog.min(s.next_start) FROM sweep.job_state s WHERE pg_catalog.isfinite(s.next_start)
			AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL AND NOT EXISTS (SELECT FROM sweep.control)),
		(SELECT pg_catalog.min(r.due_at) FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at > listed_at AND pg_catalog.isfinite(r.due_at)),
		-- A run may wait because of a crash: until a moment, or for other suspects.
		(SELECT pg_catalog.clock_timestamp() + interval '1 s' FROM sweep.job_state s WHERE s.crashes BETWEEN 1 AND 2
			AND EXISTS (SELECT FROM sweep.run_live r WHERE r.job = s.job AND r.status = 'waiting' AND r.pid IS NULL AND r.due_at <= listed_at) LIMIT 1),
		-- A session that has locked a run and rolls back wakes no scheduler.
		(SELECT pg_catalog.clock_timestamp() + interval '1 s' FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at <= listed_at
			AND r.xmax <> 0 LIMIT 1),
		-- GRANT sweep_user wakes no scheduler, nor does the end of a transaction that was prepared before the server started.
		(SELECT pg_catalog.clock_timestamp() + interval '1 min' FROM sweep.run_live r JOIN sweep.job_state s ON s.job = r.job WHERE r.status = 'waiting' AND r.pid IS NULL
			AND r.due_at <= listed_at AND s.as_user AND sweep._is_user(r.run_as) IS FALSE AND sweep._is_home(s.system_identifier, s.database) LIMIT 1),
		CASE WHEN pg_catalog.current_setting('max_prepared_transactions') <> '0' AND EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts x
				WHERE x.database = pg_catalog.current_database() AND x.prepared < pg_catalog.pg_postmaster_start_time())
			THEN pg_catalog.clock_timestamp() + interval '1 min' END);
END
$$;
COMMENT ON FUNCTION sweep._next_wake(timestamptz) IS 'when a scheduler that has listed the startable runs of the given time has to look again';

CREATE FUNCTION sweep._fail_start(run_id bigint, stop_reason text, sqlstate text, error text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text;
BEGIN
	-- If the row of the run is locked, or another share of its job is ending, the run stays waiting, and the scheduler calls this
	-- again. A run that no longer waits has ended already.
	IF NOT sweep._may_end(run_id) OR sweep._lock_waiting_run(run_id) IS NOT TRUE THEN
		RETURN;
	END IF;
	-- The problem of the job is a better error text than the end of its process.
	SELECT sweep._job_problem(sweep._job_frame(j.name), false) INTO problem FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _fail_start.run_id AND _fail_start.stop_reason = 'error';
	UPDATE sweep.run_live AS r SET status = CASE _fail_start.stop_reason WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END,
			stop_reason = _fail_start.stop_reason, finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid()),
			sqlstate = CASE WHEN problem IS NULL THEN _fail_start.sqlstate ELSE '55000' END,
			error = coalesce(problem, _fail_start.error), bucket = NULL
		WHERE r.run_id = _fail_start.run_id AND r.status = 'waiting';
	PERFORM sweep._follow_end(run_id);
END
$$;
COMMENT ON FUNCTION sweep._fail_start(bigint, text, text, text) IS 'ends a run that could not begin: stop_reason error, timeout, or cancelled';

CREATE FUNCTION sweep._kept_cursor(job text) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	last sweep.run_live;
	state sweep.job_state;
	always constant boolean := EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = _kept_cursor.job AND j.cursor = 'always');
BEGIN
	-- job_state has the cursor of the runs that were moved to the history. A later run may have been moved before an earlier one, so
	-- last_begun decides which of the two is the last.
	SELECT * INTO state FROM sweep.job_state s WHERE s.job = _kept_cursor.job;
	SELECT r.* INTO last FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as WHERE r.job = _kept_cursor.job
		AND r.pid IS NOT NULL AND (r.batches > 0 OR r.cursor IS NOT NULL) AND coalesce(r.begun, 0) >= coalesce(state.last_begun, 0) ORDER BY r.begun DESC NULLS LAST, r.run_id DESC LIMIT 1;
	IF FOUND THEN
		RETURN CASE WHEN last.stop_reason IS DISTINCT FROM 'drained' OR always THEN last.cursor END;
	END IF;
	RETURN state.kept_cursor;
END
$$;
COMMENT ON FUNCTION sweep._kept_cursor(text) IS 'cursor at which the last run of the job stopped; NULL when the run drained, unless the job always keeps its cursor';

CREATE FUNCTION sweep._run_outcome(caller oid, run_id bigint) RETURNS sweep.run_live
	LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found_run sweep.run_live;
BEGIN
	SELECT * INTO found_run FROM sweep.run_live r WHERE r.run_id = _run_outcome.run_id;
	IF NOT FOUND THEN
		SELECT * INTO found_run FROM sweep.run_history r WHERE r.run_id = _run_outcome.run_id;
	END IF;
	IF found_run.run_id IS NULL THEN
		RAISE EXCEPTION 'run % does not exist', run_id USING ERRCODE = 'undefined_object',
			HINT = 'The view sweep.runs lists the runs of this database.';
	END IF;
	IF NOT (sweep._may_act_on(caller, found_run.run_as, true) OR sweep._acts_for(caller, 'sweep_monitor')) THEN
		RAISE EXCEPTION 'permission denied for run %', run_id USING ERRCODE = 'insufficient_privilege',
			HINT = 'Members of the role of its job and of sweep_monitor may see it.';
	END IF;
	RETURN found_run;
END
$$;
COMMENT ON FUNCTION sweep._run_outcome(oid, bigint) IS 'a run, if the caller may see it';

-- ------------------------------------------------------------------ public
CREATE FUNCTION sweep._start(caller oid, name text, args jsonb, delay interval, at timestamptz) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- The shared lock on the job: a session that drops the job, or gives it to another role, waits for this transaction, or this call
	-- waits for that session.
	job sweep.job_definition := sweep._lock_job(caller, name, true, true);
	problem pg_catalog.text := coalesce(sweep._job_problem(job, (SELECT s.as_user FROM sweep.job_state s WHERE s.job = name)),
		(SELECT sweep._crash_problem(s.crashes) FROM sweep.job_state s WHERE s.job = name));
	new_id bigint;
BEGIN
	PERFORM sweep._require_workers();
	PERFORM sweep._check_args(name, args), sweep._check_args_size(name, args);
	IF delay IS NULL OR delay < interval '0' OR delay > interval '100 years' THEN
		RAISE EXCEPTION 'invalid delay % for job "%"', coalesce(delay::pg_catalog.text, 'NULL'), name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be between zero and 100 years.';
	END IF;
	IF at IS NOT NULL AND delay <> interval '0' THEN
		RAISE EXCEPTION 'job "%" cannot start both at % and after %', name, at, delay
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass at or delay.';
	END IF;
	IF at > pg_catalog.clock_timestamp() + interval '100 years' OR at = '-infinity' THEN
		RAISE EXCEPTION 'invalid moment % for job "%"', at, name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be finite, and at most 100 years from now.';
	END IF;
	IF args <> '{}' AND job.sql IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" takes no args', name USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Its sql has no parameters; those of a step or a batch_sql are in its batch.';
	END IF;
	IF args <> '{}' AND NOT sweep._can_become(caller, job.run_as) THEN
		RAISE EXCEPTION 'permission denied to pass args to job "%"', name USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('Whoever could SET ROLE to %s may pass args; start it without.', job.run_as);
	END IF;
	IF NOT EXISTS (SELECT FROM sweep.job_state s WHERE s.job = name AND sweep._is_home(s.system_identifier, s.database)) THEN
		RAISE EXCEPTION 'database "%" is a copy: its jobs are paused', pg_catalog.current_database()
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'If they are meant to run here, call sweep.resume_all(); CALL sweep.run() works without.';
	END IF;
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" is broken: %', name, problem USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Mend what the message names, or change the job with sweep.alter_job.';
	END IF;
	INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at)
		VALUES (name, job.run_as, args, 'manual', greatest(at, pg_catalog.clock_timestamp() + delay))
		RETURNING run_id INTO new_id;
	PERFORM sweep._wake(), sweep._warn_no_scheduler(pg_catalog.format('run %s of job "%s" waits', new_id, name));
	RETURN new_id;
END
$$;
COMMENT ON FUNCTION sweep._start(oid, text, jsonb, interval, timestamptz) IS 'implements sweep.start';

CREATE FUNCTION sweep.start(name text, args jsonb DEFAULT '{}', delay interval DEFAULT '0', at timestamptz DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.start(text, jsonb, interval, timestamptz) IS 'runs a job in the background once the transaction has committed, after the delay, or at that moment; returns the run_id';

CREATE FUNCTION sweep._cancel_one(caller oid, run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	target sweep.run_live;
BEGIN
	LOOP
		SELECT * INTO target FROM sweep.run_live r WHERE r.run_id = _cancel_one.run_id;
		IF NOT FOUND THEN
			IF EXISTS (SELECT FROM sweep.run_history h WHERE h.run_id = _cancel_one.run_id) THEN
				RETURN false;
			END IF;
			RAISE EXCEPTION 'run % does not exist', run_id USING ERRCODE = 'undefined_object',
				HINT = 'The view sweep.runs lists the runs of this database.';
		END IF;
		IF NOT sweep._may_act_on(caller, target.run_as, true) THEN
			RAISE EXCEPTION 'permission denied for run %', run_id USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('Members of %s, sweep_operator and sweep_admin may do this.', pg_catalog.quote_ident(target.run_as));
		END IF;
		IF target.status <> 'waiting' OR sweep._signal_cancel(run_id) THEN
			RETURN target.finished_at IS NULL AND sweep._signal_cancel(run_id);
		END IF;
		UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
			WHERE r.run_id = _cancel_one.run_id AND r.status = 'waiting' AND r.run_as = target.run_as;
		-- Before the UPDATE had its lock, the run may have begun, or may have been given to another role, with its job: it is looked at again.
		EXIT WHEN FOUND;
	END LOOP;
	PERFORM sweep._wake();
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._cancel_one(oid, bigint) IS 'stops a run, as sweep.cancel says';

CREATE FUNCTION sweep._cancel(caller oid, run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	was_stopped boolean := sweep._cancel_one(caller, run_id);
	other bigint;
BEGIN
	-- All shares of a job that is done by ranges are cancelled together: to its user they are one run, and the first share may have ended.
	FOR other IN SELECT o.run_id FROM sweep._run r JOIN sweep.run_live o ON o.job = r.job AND o.run_as = r.run_as AND o.run_id <> r.run_id
			WHERE r.run_id = _cancel.run_id AND o.finished_at IS NULL AND o.shares_left IS NOT NULL AND sweep._has_ranges(r.job) ORDER BY o.run_id LOOP
		was_stopped := sweep._cancel_one(caller, other) OR was_stopped;
	END LOOP;
	RETURN was_stopped;
END
$$;
COMMENT ON FUNCTION sweep._cancel(oid, bigint) IS 'implements sweep.cancel';

CREATE FUNCTION sweep.cancel(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.cancel(bigint) IS 'stops a run: between batches at the latest, a statement in flight is cancelled; false when it had ended';

CREATE PROCEDURE sweep.run(name text, args jsonb DEFAULT '{}')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_run_call';
COMMENT ON PROCEDURE sweep.run(text, jsonb) IS 'runs a job in this session, one commit per batch; raises unless the run succeeded';

CREATE PROCEDURE sweep.wait(run_id bigint, timeout interval DEFAULT '1 min')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_run_wait';
COMMENT ON PROCEDURE sweep.wait(bigint, interval) IS 'ends the transaction and waits until a run and all its shares have ended; raises unless they succeeded, or when the time is over';

CREATE FUNCTION sweep.preview(name text, args jsonb DEFAULT '{}', OUT rows bigint, OUT cursor jsonb, OUT plan text, OUT notes text)
	RETURNS record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_preview';
COMMENT ON FUNCTION sweep.preview(text, jsonb) IS 'executes one batch of a job and rolls it back; shows what it would do, and its plan';
