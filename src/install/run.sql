--
-- What ran and how it ended.
--
-- A run is a row of sweep.run_live while it waits and runs, written in the transactions of its batches.
-- Once it has ended it is moved to sweep.run_history, which the engine never waits for: a lock on the
-- history delays the history and nothing else. The view sweep.run shows both.
--
-- Domains rather than constraints of the table: those would be planned anew by every update of a batch.
CREATE DOMAIN sweep.run_trigger AS text
	CONSTRAINT run_trigger_check CHECK (VALUE IN ('schedule', 'manual', 'parent', 'retry', 'catch_up'));
COMMENT ON DOMAIN sweep.run_trigger IS 'what caused a run';

CREATE DOMAIN sweep.run_status AS text
	CONSTRAINT run_status_check CHECK (VALUE IN ('waiting', 'running', 'succeeded', 'skipped', 'failed', 'cancelled', 'lost'));
COMMENT ON DOMAIN sweep.run_status IS 'how far a run is, or how it ended';

CREATE DOMAIN sweep.run_stop_reason AS text
	CONSTRAINT run_stop_reason_check CHECK (VALUE IN ('drained', 'max_batches', 'max_rows', 'timeout', 'cancelled', 'lease_expired',
		'no_progress', 'error', 'skipped', 'lost', 'rescaled'));
COMMENT ON DOMAIN sweep.run_stop_reason IS 'why a run ended';

CREATE TABLE sweep.run_live (
	run_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job         text NOT NULL,
	args        jsonb NOT NULL DEFAULT '{}',
	trigger     sweep.run_trigger NOT NULL,
	attempt     int NOT NULL DEFAULT 1,
	due_at      timestamptz NOT NULL,
	started_at  timestamptz,
	finished_at timestamptz,
	status      sweep.run_status NOT NULL DEFAULT 'waiting',
	stop_reason sweep.run_stop_reason,
	batches     int NOT NULL DEFAULT 0,
	rows        bigint NOT NULL DEFAULT 0,
	rescued     bigint NOT NULL DEFAULT 0,
	quarantined bigint NOT NULL DEFAULT 0,
	cursor      jsonb,
	detail      jsonb,
	sqlstate    text,
	error       text,
	pid         int,
	run_as      oid NOT NULL DEFAULT current_user::regrole,
	bucket      int,
	shares_left int
) WITH (fillfactor = 50);
-- A restored database goes on counting, so that what its job_state remembers of runs stays older.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live_run_id_seq', '');
COMMENT ON TABLE sweep.run_live IS 'runs that wait, run, or have just ended; see sweep.run';

CREATE TABLE sweep.run_history (LIKE sweep.run_live INCLUDING DEFAULTS, PRIMARY KEY (run_id));
CREATE INDEX run_history_job_idx ON sweep.run_history (job, run_id);
CREATE INDEX run_history_outcome_idx ON sweep.run_history (job, status, run_id);
CREATE INDEX run_history_finished_at_idx ON sweep.run_history (finished_at);
COMMENT ON TABLE sweep.run_history IS 'runs that have ended, bounded by pg_sweep.history_per_job and pg_sweep.history_max_age; see sweep.run';

CREATE FUNCTION sweep._may_see(run_as oid) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_has_role('sweep_monitor', 'MEMBER') OR pg_has_role('sweep_operator', 'MEMBER') OR pg_has_role('sweep_admin', 'MEMBER')
		OR coalesce(pg_has_role(run_as, 'MEMBER'), false)
$$;
COMMENT ON FUNCTION sweep._may_see(oid) IS 'whether the current user may see jobs and runs of a role: its members, and those who watch or act on all';

-- A barrier: no function of the reader sees a row that the reader may not see.
CREATE VIEW sweep.run WITH (security_barrier) AS
	WITH roles AS MATERIALIZED (SELECT r.oid FROM pg_catalog.pg_roles r WHERE sweep._may_see(r.oid)),
		everything AS MATERIALIZED (SELECT sweep._may_see(NULL) AS allowed)
	SELECT r.* FROM sweep.run_live r WHERE (SELECT e.allowed FROM everything e) OR r.run_as IN (SELECT m.oid FROM roles m)
	UNION ALL
	SELECT r.* FROM sweep.run_history r WHERE (SELECT e.allowed FROM everything e) OR r.run_as IN (SELECT m.oid FROM roles m);
COMMENT ON VIEW sweep.run IS 'runs: waiting, running and ended; one sees those of the roles one is a member of, or all of them as sweep_monitor';

DO $$
DECLARE
	target text;
	note text[];
BEGIN
	FOREACH target IN ARRAY ARRAY['run_live', 'run_history', 'run'] LOOP
		FOREACH note SLICE 1 IN ARRAY ARRAY[
			['run_id', 'number of the run'], ['job', 'name of the job'], ['args', 'args of this run, merged over those of the job'],
			['trigger', 'what caused it: schedule, manual, parent, retry, catch_up'], ['attempt', 'number of the attempt, from 1'],
			['due_at', 'when it was meant to start'], ['started_at', 'when it had its lease'], ['finished_at', 'when it ended'],
			['status', 'waiting, running, succeeded, skipped, failed, cancelled or lost'],
			['stop_reason', 'why it ended: drained, max_batches, max_rows, timeout, cancelled, lease_expired, no_progress, error, skipped, lost or rescaled'],
			['batches', 'batches committed'], ['rows', 'rows handled in them'], ['rescued', 'items for which the rescue function reported rows'],
			['quarantined', 'items put into quarantine'], ['cursor', 'where the next batch would go on'], ['detail', 'what the step reported'],
			['sqlstate', 'code of the error that ended it'], ['error', 'that error, with its detail, hint and context'],
			['pid', 'process that runs it, or ran it'],
			['run_as', 'role of its job: a job of the same name that belongs to another role has nothing to do with it'],
			['bucket', 'share of a divided job that it has or had; while it waits the one it would have'],
			['shares_left', 'how many shares follow this one, one after the other; NULL: it was not begun as a share']] LOOP
			EXECUTE format('COMMENT ON COLUMN sweep.%I.%I IS %L', target, note[1], note[2]);
		END LOOP;
	END LOOP;
END
$$;

-- ------------------------------------------------------------------ what C offers to the functions below
CREATE FUNCTION sweep._run_is_alive(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lease_run_is_alive';
COMMENT ON FUNCTION sweep._run_is_alive(bigint) IS 'whether a process holds the lock of the run';

CREATE FUNCTION sweep.try_lease(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lease_try';
COMMENT ON FUNCTION sweep.try_lease(text) IS 'takes the lease of that key for this session, if it is free; runs with this lease_key then wait or are skipped';

CREATE FUNCTION sweep.release_lease(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lease_release';
COMMENT ON FUNCTION sweep.release_lease(text) IS 'gives back a lease that this session took with sweep.try_lease; false when it had none';

-- ------------------------------------------------------------------ due moments
CREATE FUNCTION sweep._insert_scheduled(j sweep.job, due timestamptz, trigger text, always boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	in_the_way bigint;
BEGIN
	IF NOT always THEN
		SELECT min(r.run_id) INTO in_the_way FROM sweep.run_live r WHERE r.job = j.name
			AND (r.status = 'waiting' AND r.due_at <= due AND r.pid IS NULL AND r.trigger <> 'manual'
				-- Of a divided job a run in progress is one share: the buckets say whether there is room for more.
				OR r.status = 'running' AND j.overlap = 'skip' AND j.buckets IS NULL AND sweep._run_is_alive(r.run_id));
		IF j.overlap = 'cancel_previous' THEN
			UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = clock_timestamp()
				WHERE r.run_id = in_the_way;
			PERFORM sweep._signal_cancel(r.run_id) FROM sweep.run_live r WHERE r.job = j.name AND r.status = 'running';
		ELSIF in_the_way IS NOT NULL THEN
			INSERT INTO sweep.run_live (job, run_as, trigger, due_at, finished_at, status, stop_reason, detail)
				VALUES (j.name, j.run_as, trigger, due, clock_timestamp(), 'skipped', 'skipped',
					jsonb_build_object('reason', 'overlap', 'run_id', in_the_way));
			RETURN;
		END IF;
	END IF;
	INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES (j.name, j.run_as, trigger, due);
END
$$;
COMMENT ON FUNCTION sweep._insert_scheduled(sweep.job, timestamptz, text, boolean) IS 'queues the run of a due moment, as the overlap rule of the job says';

CREATE FUNCTION sweep._enqueue_job(j sweep.job, s sweep.job_state, at timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- A start that the scheduler sees later than this counts as missed.
	grace constant interval := '1 min';
	most constant int := 100;
	problem text := sweep._job_problem(j);
	late boolean := at - s.next_start > grace;
	due timestamptz := s.next_due;
	counted int := 0;
BEGIN
	IF problem IS DISTINCT FROM s.broken THEN
		UPDATE sweep.job_state AS t SET broken = problem WHERE t.job = j.name;
		IF problem IS NOT NULL THEN
			RAISE WARNING 'job "%" is broken: %', j.name, problem;
		END IF;
	END IF;
	IF problem IS NULL AND due IS NOT NULL THEN
		IF j.catch_up = 'all' THEN
			WHILE due <= at AND counted < most LOOP
				PERFORM sweep._insert_scheduled(j, due, CASE WHEN at - due > grace THEN 'catch_up' ELSE 'schedule' END, counted > 0);
				due := sweep._next_run(j.schedule, j.timezone, due, j.name);
				counted := counted + 1;
			END LOOP;
		ELSIF j.catch_up = 'once' OR NOT late THEN
			PERFORM sweep._insert_scheduled(j, due, CASE WHEN late THEN 'catch_up' ELSE 'schedule' END, false);
		END IF;
	END IF;
	PERFORM sweep._reschedule(j.name, at);
END
$$;
COMMENT ON FUNCTION sweep._enqueue_job(sweep.job, sweep.job_state, timestamptz) IS 'queues what a due job missed and is due for, and sets its next moment';

CREATE FUNCTION sweep._enqueue_due(at timestamptz) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	due record;
	counted int := 0;
BEGIN
	IF NOT sweep._at_home() THEN
		RETURN 0;
	END IF;
	FOR due IN SELECT j, s FROM sweep.job_state s JOIN sweep.job j ON j.name = s.job
			WHERE s.next_start <= at ORDER BY s.next_start LIMIT 1000 FOR UPDATE OF s SKIP LOCKED LOOP
		-- One job that cannot be scheduled must not keep the others from it.
		BEGIN
			PERFORM sweep._enqueue_job(due.j, due.s, at);
			counted := counted + 1;
		EXCEPTION WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', (due.j).name, SQLERRM;
			UPDATE sweep.job_state AS t SET broken = SQLERRM, next_start = at + interval '1 min' WHERE t.job = (due.j).name;
		END;
	END LOOP;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._enqueue_due(timestamptz) IS 'queues a run for every job that is due at the moment; returns how many jobs were';

CREATE FUNCTION sweep._enqueue_reboot() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	due record;
BEGIN
	IF NOT sweep._at_home() THEN
		RETURN;
	END IF;
	FOR due IN UPDATE sweep.job_state AS s SET boot = pg_postmaster_start_time() FROM sweep.job j
			WHERE j.name = s.job AND s.boot IS DISTINCT FROM pg_postmaster_start_time() AND sweep._is_reboot(j.schedule)
				AND j.enabled AND s.paused_at IS NULL RETURNING j LOOP
		PERFORM sweep._insert_scheduled(due.j, clock_timestamp(), 'schedule', false);
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._enqueue_reboot() IS 'queues the @reboot jobs, once per start of the server';

-- ------------------------------------------------------------------ starts
CREATE FUNCTION sweep._startable_runs(at timestamptz)
	RETURNS TABLE (run_id bigint, job text, run_as oid, place tid, expected_rows bigint, definition sweep.job, args jsonb, shares_left int, bucket int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	at_home boolean := sweep._at_home();
BEGIN
	IF sweep._is_copy() THEN
		RETURN;
	END IF;
	-- A run started by hand ignores pauses, and leaves it to the lease whether it overlaps. Scheduled runs
	-- of one job follow each other.
	RETURN QUERY SELECT r.run_id, r.job, j.run_as::oid, r.ctid, s.drained_rows, j, j.args || r.args, r.shares_left, r.bucket
		FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as JOIN sweep.job_state s ON s.job = j.name
		WHERE r.status = 'waiting' AND r.due_at <= at AND r.pid IS NULL
			AND (r.trigger = 'manual' OR at_home AND s.paused_at IS NULL
				AND (r.trigger = 'parent' OR j.buckets IS NOT NULL OR NOT EXISTS (SELECT FROM sweep.run_live o WHERE o.job = r.job
					AND (o.status = 'running' OR o.status = 'waiting' AND o.due_at <= at AND o.pid IS NULL
						AND (o.due_at, o.run_id) < (r.due_at, r.run_id) AND o.trigger NOT IN ('manual', 'parent')))))
		ORDER BY r.due_at, r.run_id;
END
$$;
COMMENT ON FUNCTION sweep._startable_runs(timestamptz) IS 'the waiting runs that may start now, oldest first';

CREATE FUNCTION sweep._next_wake() RETURNS timestamptz
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT least((SELECT min(s.next_start) FROM sweep.job_state s WHERE isfinite(s.next_start) AND sweep._at_home()),
		(SELECT min(r.due_at) FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at > clock_timestamp() AND isfinite(r.due_at)))
$$;
COMMENT ON FUNCTION sweep._next_wake() IS 'when the scheduler has to look again';

CREATE FUNCTION sweep._start_children(run_id bigint) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- Only jobs that the role of the parent may start; one that waits already is not queued twice.
	INSERT INTO sweep.run_live (job, run_as, trigger, due_at)
		SELECT child.name, child.run_as, 'parent', clock_timestamp() + c.value::interval
		FROM sweep.run_live r JOIN sweep.job parent ON parent.name = r.job
			CROSS JOIN LATERAL jsonb_each_text(parent.children) AS c
			JOIN sweep.job child ON child.name = c.key JOIN sweep.job_state s ON s.job = child.name
		-- A child queues no children: a circle of definitions would go round for ever.
		-- The shares of a divided one are queued by sweep._queue_shares.
		WHERE r.run_id = _start_children.run_id AND r.trigger <> 'parent' AND (child.buckets IS NULL OR child.run_as <> parent.run_as) AND child.enabled AND s.paused_at IS NULL AND sweep._has_workers()
			AND (pg_has_role(parent.run_as, child.run_as, 'MEMBER') OR pg_has_role(parent.run_as, 'sweep_operator', 'MEMBER'))
			AND NOT EXISTS (SELECT FROM sweep.run_live w WHERE w.job = child.name AND w.status = 'waiting' AND w.trigger = 'parent');
	SELECT sweep._wake()
$$;
COMMENT ON FUNCTION sweep._start_children(bigint) IS 'queues the runs that a run of a parent causes, whatever becomes of itself';

CREATE FUNCTION sweep._fail_start(run_id bigint, sqlstate text, reason text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem text;
BEGIN
	-- What is known to be wrong with the job says more than that its process ended.
	SELECT sweep._job_problem(j) INTO problem FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job
		WHERE r.run_id = _fail_start.run_id;
	UPDATE sweep.run_live AS r SET status = CASE WHEN reason IS NULL THEN 'cancelled' ELSE 'failed' END,
			stop_reason = CASE WHEN reason IS NULL THEN 'cancelled' ELSE 'error' END, finished_at = clock_timestamp(),
			sqlstate = CASE WHEN problem IS NULL OR reason IS NULL THEN _fail_start.sqlstate ELSE '55000' END,
			error = CASE WHEN reason IS NOT NULL THEN coalesce(problem, reason) END, bucket = NULL
		WHERE r.run_id = _fail_start.run_id AND r.status = 'waiting';
	PERFORM sweep._retry(run_id);
END
$$;
COMMENT ON FUNCTION sweep._fail_start(bigint, text, text) IS 'ends a run that could not begin, or without a reason one that was cancelled before';

CREATE FUNCTION sweep._kept_cursor(job text) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	last sweep.run_live;
BEGIN
	-- A run that has not been moved to the history yet is the last one; else the state remembers it.
	SELECT r.* INTO last FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as WHERE r.job = _kept_cursor.job
		AND (r.batches > 0 OR r.cursor IS NOT NULL) ORDER BY coalesce(r.started_at, r.finished_at) DESC, r.run_id DESC LIMIT 1;
	IF FOUND THEN
		RETURN CASE WHEN last.stop_reason IS DISTINCT FROM 'drained' THEN last.cursor END;
	END IF;
	RETURN (SELECT s.kept_cursor FROM sweep.job_state s WHERE s.job = _kept_cursor.job);
END
$$;
COMMENT ON FUNCTION sweep._kept_cursor(text) IS 'where the last run of the job stopped; NULL when it drained';

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
			HINT = 'The view sweep.run lists the runs of this database.';
	END IF;
	IF NOT (pg_has_role(caller, 'sweep_monitor', 'MEMBER') OR pg_has_role(caller, 'sweep_operator', 'MEMBER')
			OR pg_has_role(caller, 'sweep_admin', 'MEMBER')
			OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = found_run.run_as AND pg_has_role(caller, r.oid, 'MEMBER'))) THEN
		RAISE EXCEPTION 'permission denied for run %', run_id USING ERRCODE = 'insufficient_privilege',
			HINT = 'Members of the role of its job and of sweep_monitor may see it.';
	END IF;
	RETURN found_run;
END
$$;
COMMENT ON FUNCTION sweep._run_outcome(oid, bigint) IS 'a run, if the caller may see it; for sweep.wait';

-- ------------------------------------------------------------------ public
CREATE FUNCTION sweep._start(caller oid, name text, args jsonb, delay interval) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job sweep.job := sweep._find_job(caller, name, true);
	problem text := sweep._job_problem(job);
	new_id bigint;
BEGIN
	PERFORM sweep._require_workers();
	-- Whoever drops the job or gives it to another role waits for us, or we for him.
	PERFORM FROM sweep.job j WHERE j.name = _start.name AND j.run_as = job.run_as FOR KEY SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'job "%" does not exist', name USING ERRCODE = 'undefined_object', HINT = 'It has just been dropped.';
	END IF;
	PERFORM sweep._check_args(name, args);
	IF delay IS NULL OR delay < interval '0' OR delay > interval '100 years' THEN
		RAISE EXCEPTION 'invalid delay % for job "%"', coalesce(delay::text, 'NULL'), name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be between zero and 100 years.';
	END IF;
	IF args <> '{}' AND NOT sweep._can_become(caller, job.run_as) THEN
		RAISE EXCEPTION 'permission denied to pass args to job "%"', name USING ERRCODE = 'insufficient_privilege',
			HINT = format('Whoever could SET ROLE to %s may pass args; start it without.', job.run_as);
	END IF;
	IF sweep._is_copy() THEN
		RAISE EXCEPTION 'database "%" is a copy: its jobs are paused', current_database()
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'If they are meant to run here, call sweep.resume_all(); CALL sweep.run() works without.';
	END IF;
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" is broken: %', name, problem USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Mend what the message names, or change the job with sweep.alter_job.';
	END IF;
	INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at)
		VALUES (name, job.run_as, args, 'manual', clock_timestamp() + delay)
		RETURNING run_id INTO new_id;
	PERFORM sweep._wake();
	RETURN new_id;
END
$$;
COMMENT ON FUNCTION sweep._start(oid, text, jsonb, interval) IS 'implements sweep.start';

CREATE FUNCTION sweep.start(name text, args jsonb DEFAULT '{}', delay interval DEFAULT '0') RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.start(text, jsonb, interval) IS 'runs a job in the background once the transaction has committed, or after the delay; returns the run_id';

CREATE FUNCTION sweep._cancel(caller oid, run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	target sweep.run_live;
	was_waiting boolean;
BEGIN
	SELECT * INTO target FROM sweep.run_live r WHERE r.run_id = _cancel.run_id;
	IF NOT FOUND THEN
		IF EXISTS (SELECT FROM sweep.run_history h WHERE h.run_id = _cancel.run_id) THEN
			RETURN false;
		END IF;
		RAISE EXCEPTION 'run % does not exist', run_id USING ERRCODE = 'undefined_object',
			HINT = 'The view sweep.run lists the runs of this database.';
	END IF;
	IF NOT (pg_has_role(caller, 'sweep_operator', 'MEMBER') OR pg_has_role(caller, 'sweep_admin', 'MEMBER')
			OR EXISTS (SELECT FROM pg_roles r WHERE r.oid = target.run_as AND pg_has_role(caller, r.oid, 'MEMBER'))) THEN
		RAISE EXCEPTION 'permission denied for run %', run_id USING ERRCODE = 'insufficient_privilege',
			HINT = format('Members of %s, sweep_operator and sweep_admin may do this.', target.run_as::regrole);
	END IF;
	IF target.status = 'waiting' AND NOT sweep._signal_cancel(run_id) THEN
		UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = clock_timestamp()
			WHERE r.run_id = _cancel.run_id AND r.status = 'waiting';
		was_waiting := FOUND;
		PERFORM sweep._wake();
		RETURN was_waiting;
	END IF;
	RETURN target.finished_at IS NULL AND sweep._signal_cancel(run_id);
END
$$;
COMMENT ON FUNCTION sweep._cancel(oid, bigint) IS 'implements sweep.cancel';

CREATE FUNCTION sweep.cancel(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.cancel(bigint) IS 'stops a run: between batches at the latest, a statement in flight is cancelled; false when it had ended';

CREATE PROCEDURE sweep.run(name text, args jsonb DEFAULT '{}')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_run_call';
COMMENT ON PROCEDURE sweep.run(text, jsonb) IS 'runs a job in this session, one commit per batch; raises when the run failed';

CREATE PROCEDURE sweep.wait(run_id bigint, timeout interval DEFAULT '1 min')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_run_wait';
COMMENT ON PROCEDURE sweep.wait(bigint, interval) IS 'ends the transaction and waits until a run has ended; raises when it failed or the time is over';

CREATE FUNCTION sweep.preview(name text, args jsonb DEFAULT '{}', OUT rows bigint, OUT cursor jsonb, OUT plan text, OUT notes text)
	RETURNS record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_preview';
COMMENT ON FUNCTION sweep.preview(text, jsonb) IS 'executes one batch of a job and rolls it back; shows what it would do, and its plan';
