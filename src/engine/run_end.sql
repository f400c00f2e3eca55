--
-- Ends runs that cannot record their own end, queues retries, and moves ended runs to the history.
--
CREATE FUNCTION sweep._retry(run_id bigint) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A share that failed has queued the next shares itself; a share that was lost has not.
	INSERT INTO sweep.run_live (job, run_as, args, trigger, attempt, bucket, shares_left, parent_run_id, hook_depth, due_at)
		SELECT r.job, r.run_as, r.args, 'retry', r.attempt + 1, r.bucket, r.shares_left * (r.status = 'lost')::int, r.run_id, r.hook_depth,
			pg_catalog.clock_timestamp() + interval '1 s' * (r.attempt ^ 4 + 15 + pg_catalog.floor(pg_catalog.random() * 10 * (r.attempt + 1)))
		FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _retry.run_id AND sweep._is_retried(r.status, r.stop_reason, r.attempt, j.max_attempts)
$$;
COMMENT ON FUNCTION sweep._retry(bigint) IS 'queues the next attempt of a run that failed or was lost, with the backoff of Sidekiq';

-- A replicated run is ended by the database that it comes from. If it were moved to the history here, the row that arrives when it is
-- moved there would be a duplicate, and end the replication.
CREATE FUNCTION sweep._is_subscriber() RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = 'sweep.run_live'::pg_catalog.regclass);
END
$$;
COMMENT ON FUNCTION sweep._is_subscriber() IS 'whether a subscription brings runs of another database';

CREATE FUNCTION sweep._cancel_orphans(due timestamptz) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	counted bigint;
BEGIN
	-- PL/pgSQL and not SQL, because it is called in each tick: an SQL function would be planned each time.
	WITH orphan AS (SELECT o.run_id FROM sweep.run_live o WHERE o.status = 'waiting' AND o.pid IS NULL AND o.due_at <= due
			AND NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = o.job AND j.run_as = o.run_as) AND NOT sweep._is_subscriber() FOR UPDATE OF o SKIP LOCKED)
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
		FROM orphan WHERE r.run_id = orphan.run_id;
	GET DIAGNOSTICS counted = ROW_COUNT;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._cancel_orphans(timestamptz) IS 'ends due runs that were queued while their job was dropped or given to another role; returns how many';

CREATE FUNCTION sweep._mark_lost() RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	gone pg_catalog.record;
	again pg_catalog.text;
	counted int := 0;
BEGIN
	PERFORM sweep._cancel_orphans(pg_catalog.clock_timestamp());
	-- In a copy of a database the run is cancelled and not lost, because it goes on in the original database.
	FOR gone IN SELECT r.run_id, r.status, r.job, r.run_as, CASE WHEN pg_catalog.pg_postmaster_start_time() > r.started_at
				THEN pg_catalog.format('the server was restarted while process %s performed the run', r.pid)
				ELSE pg_catalog.format('process %s has ended without an outcome: it was terminated, or the server went down', r.pid) END AS reason, CASE WHEN (SELECT sweep._is_home(s.system_identifier, s.database) IS NOT TRUE
				FROM sweep.job_definition j LEFT JOIN sweep.job_state s ON s.job = j.name WHERE j.name = r.job) THEN 'cancelled' ELSE 'lost' END AS outcome
			FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.status IN ('waiting', 'running') AND NOT sweep._run_is_alive(r.run_id)
			ORDER BY r.job, r.run_id FOR UPDATE OF r SKIP LOCKED LOOP
		-- The job of a run that a subscription has brought may not be copied yet, or be dropped already.
		CONTINUE WHEN NOT sweep._may_end(gone.run_id)
			OR (gone.outcome = 'cancelled' OR NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = gone.job)) AND sweep._is_subscriber();
		-- The changes of a job with sql are not committed together with the row of its run.
		again := CASE WHEN gone.status = 'running' AND EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = gone.job AND j.sql IS NOT NULL)
			THEN 'All of its statements may have been executed; the next run begins with the first one.' END;
		UPDATE sweep.run_live AS r SET status = gone.outcome, stop_reason = gone.outcome, finished_at = pg_catalog.clock_timestamp(),
				error = CASE gone.outcome WHEN 'lost' THEN gone.reason || coalesce(E'\nHINT: ' || again, '') END
			WHERE r.run_id = gone.run_id AND r.status = gone.status;
		IF FOUND THEN
			IF gone.outcome = 'lost' THEN
				RAISE WARNING 'run % of job "%" is lost: %', gone.run_id, gone.job, gone.reason USING DETAIL = pg_catalog.format('It ran as role "%s".', gone.run_as),
					HINT = coalesce(again, 'What it had committed stays; the next run goes on.');
			END IF;
			PERFORM sweep._release_range(b.job, b.run_id, b.bucket) FROM sweep.bucket b WHERE b.job = gone.job AND b.run_id = gone.run_id AND b.range IS NOT NULL;
			PERFORM sweep._follow_end(gone.run_id);
			counted := counted + 1;
		END IF;
	END LOOP;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._mark_lost() IS 'ends the runs whose process is gone: status lost, in a copy cancelled; returns how many';

CREATE FUNCTION sweep._prune(job text, run_as text, status text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- This is a separate query, because FOR UPDATE would also lock the rows that OFFSET leaves out, and each row lock is a write.
	youngest constant bigint := (SELECT k.run_id FROM sweep.run_history k
		WHERE k.job = _prune.job AND k.run_as = _prune.run_as AND k.status = _prune.status ORDER BY k.run_id DESC
		OFFSET pg_catalog.current_setting('pg_sweep.history_per_job')::int LIMIT 1);
BEGIN
	IF youngest IS NULL THEN
		RETURN;
	END IF;
	DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
			WHERE k.job = _prune.job AND k.run_as = _prune.run_as AND k.status = _prune.status AND k.run_id <= youngest
			ORDER BY k.run_id DESC LIMIT 1000 FOR UPDATE SKIP LOCKED) AS old
		WHERE h.run_id = old.run_id;
END
$$;
COMMENT ON FUNCTION sweep._prune(text, text, text) IS 'deletes the oldest runs of a job, role and outcome beyond pg_sweep.history_per_job';

-- A schedule or time zone that cannot be read must not stop the check of the other jobs. The job counts as too late:
-- sweep._reschedule then sets its next moment, finds the error and marks the job as broken.
CREATE FUNCTION sweep._is_too_late(name text, schedule text, timezone text, next_due timestamptz, at timestamptz) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- The handler below does not catch errors of DECLARE.
	RETURN next_due > sweep._next_run(schedule, timezone, at, name);
EXCEPTION WHEN OTHERS THEN
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._is_too_late(text, text, text, timestamptz, timestamptz) IS 'true if next_due is later than the schedule says, or if the schedule cannot be read';

CREATE FUNCTION sweep._mend_clock(at timestamptz, back interval) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	late pg_catalog.record;
BEGIN
	-- If the clock was wrong by so much, the moments are wrong: all of them are set by the new clock.
	IF back > interval '3 h' THEN
		UPDATE sweep.job_state AS s SET last_due = NULL FROM (SELECT o.job FROM sweep.job_state o
			WHERE o.last_due > at FOR UPDATE SKIP LOCKED) AS free WHERE s.job = free.job;
	END IF;
	-- A clock that ran ahead and was set back leaves moments that are too far off.
	FOR late IN SELECT j.name FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name
			WHERE s.next_due > at AND sweep._is_too_late(j.name, j.schedule, j.timezone, s.next_due, at)
				OR s.next_due IS NULL AND s.next_start > at + interval '1 min'
			FOR UPDATE OF s SKIP LOCKED LOOP
		BEGIN
			PERFORM sweep._reschedule(late.name, at, NULL);
		EXCEPTION WHEN insufficient_resources OR operator_intervention OR system_error OR lock_not_available OR serialization_failure OR deadlock_detected THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'next moment of job "%" could not be checked: %', late.name, SQLERRM;
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._mend_clock(timestamptz, interval) IS 'brings forward jobs that are due later than their schedule says; the clock was set back by so much';

CREATE FUNCTION sweep._archivable_jobs(OUT free text[], OUT locked boolean)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	ended pg_catalog.text[];
BEGIN
	-- The recursion goes from one job to the next in the index, however many runs a job has; the jobs that have
	-- waited for longest come first.
	WITH RECURSIVE step AS (
		(SELECT r.job, r.run_id FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL ORDER BY r.job, r.run_id LIMIT 1)
		UNION ALL
		SELECT n.job, n.run_id FROM step s CROSS JOIN LATERAL (SELECT r.job, r.run_id FROM sweep.run_live r
			WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL AND r.job > s.job ORDER BY r.job, r.run_id LIMIT 1) AS n)
	SELECT pg_catalog.array_agg(s.job ORDER BY s.run_id) INTO ended FROM step s
		WHERE EXISTS (SELECT FROM sweep.job_state h WHERE h.job = s.job AND sweep._is_home(h.system_identifier, h.database)) OR NOT sweep._is_subscriber();
	-- A session that is changing a job has locked its state and may wait for the scheduler. The runs of that job are left to the
	-- next call.
	SELECT pg_catalog.array_agg(e.job ORDER BY e.n) INTO free FROM pg_catalog.unnest(ended) WITH ORDINALITY AS e (job, n)
		LEFT JOIN (SELECT s.job FROM sweep.job_state s WHERE s.job = ANY (ended) FOR UPDATE SKIP LOCKED) AS ours ON ours.job = e.job
		WHERE ours.job IS NOT NULL OR NOT EXISTS (SELECT FROM sweep.job_state s WHERE s.job = e.job);
	locked := coalesce(pg_catalog.cardinality(free), 0) < coalesce(pg_catalog.cardinality(ended), 0);
END
$$;
COMMENT ON FUNCTION sweep._archivable_jobs() IS 'the jobs with ended runs, whose states it locks, and whether other sessions have locked some';

-- A job that has not completed its work stays: in a restored database, where the history is missing, or because its run has failed. A job
-- that was altered to be of another kind also stays, because tables may be dropped with it, which may take long or fail, and this runs in
-- the scheduler.
CREATE FUNCTION sweep._drop_jobs_without_history() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ended pg_catalog.text;
BEGIN
	FOR ended IN SELECT j.name FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name
			WHERE s.goes_with_history AND j.step IN ('sweep.delete_step', 'sweep.update_step') AND s.drained_rows IS NOT NULL AND sweep._is_home(s.system_identifier, s.database)
				AND NOT EXISTS (SELECT FROM sweep.run_history h WHERE h.job = j.name) FOR UPDATE OF j, s SKIP LOCKED LOOP
		-- Checked after the job is locked, because a session may just have started it.
		PERFORM sweep._remove_job(ended) WHERE NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.job = ended);
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._drop_jobs_without_history() IS 'drops jobs that were made for one run when the history of that run is gone';

CREATE FUNCTION sweep._archive_runs(age_out boolean) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	-- The number of runs is limited, so that the scheduler gets back to its work, and per job, so that all jobs have their turn.
	most constant int := 1000;
	most_of_job int;
	-- The size is limited, too: the owner of a job decides on its args, cursor and detail, which may be megabytes.
	most_bytes constant bigint := 4 * 1024 * 1024;
	bytes bigint := 0;
	jobs pg_catalog.record;
	ended sweep.run_live;
	moved bigint[] := '{}';
BEGIN
	IF NOT age_out AND NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL) THEN
		RETURN 0;
	END IF;
	BEGIN
		LOCK TABLE sweep.run_history IN ROW EXCLUSIVE MODE NOWAIT;
	EXCEPTION WHEN lock_not_available THEN
		RETURN NULL;
	END;
	SELECT * INTO jobs FROM sweep._archivable_jobs();
	most_of_job := greatest(most / greatest(pg_catalog.cardinality(jobs.free), 1), 100);
	FOR ended IN SELECT f.* FROM pg_catalog.unnest(jobs.free) WITH ORDINALITY AS k (job, n)
			CROSS JOIN LATERAL (SELECT * FROM sweep.run_live r WHERE r.job = k.job AND r.pid IS NOT NULL AND r.finished_at IS NOT NULL
				ORDER BY r.run_id LIMIT most_of_job FOR UPDATE SKIP LOCKED) AS f
			ORDER BY k.n, f.run_id LIMIT most LOOP
		-- The row is moved column by column: as one composite value it could exceed the size limit of a value.
		WITH moved AS (DELETE FROM sweep.run_live r WHERE r.run_id = ended.run_id RETURNING r.*)
		INSERT INTO sweep.run_history SELECT m.* FROM moved m;
		IF ended.batches > 0 OR ended.cursor IS NOT NULL THEN
			UPDATE sweep.job_state AS s SET last_begun = ended.begun,
					drained_rows = CASE WHEN ended.stop_reason = 'drained' THEN ended.rows ELSE s.drained_rows END,
					kept_cursor = CASE WHEN ended.stop_reason IS DISTINCT FROM 'drained' OR EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = ended.job AND j.cursor = 'always')
						THEN ended.cursor END
				WHERE s.job = ended.job AND coalesce(s.last_begun, 0) <= coalesce(ended.begun, 0)
					AND EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = ended.job AND j.run_as = ended.run_as);
		END IF;
		moved := moved || ended.run_id;
		-- The sizes of stored values are known without reading them.
		bytes := bytes + pg_catalog.pg_column_size(ended.args) + coalesce(pg_catalog.pg_column_size(ended.cursor), 0) + coalesce(pg_catalog.pg_column_size(ended.detail), 0);
		EXIT WHEN bytes > most_bytes;
	END LOOP;
	-- One call for all moved runs of a job, role and status: each call reads as many rows of the history as are kept.
	PERFORM sweep._prune(k.job, k.run_as, k.status)
		FROM (SELECT DISTINCT h.job, h.run_as, h.status FROM pg_catalog.unnest(moved) AS m (run_id) JOIN sweep.run_history h USING (run_id)) AS k;
	IF age_out THEN
		DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
				WHERE k.finished_at < pg_catalog.clock_timestamp() - pg_catalog.current_setting('pg_sweep.history_max_age')::interval
				ORDER BY k.finished_at LIMIT 10000 FOR UPDATE SKIP LOCKED) AS old
			WHERE h.run_id = old.run_id;
		PERFORM sweep._drop_jobs_without_history();
		-- If the next try of an item is so long overdue, its job no longer picks it.
		DELETE FROM sweep.quarantined_item AS q USING (SELECT o.job, o.item_hash FROM sweep.quarantined_item o
				WHERE o.next_try < pg_catalog.clock_timestamp() - pg_catalog.current_setting('pg_sweep.history_max_age')::interval FOR UPDATE SKIP LOCKED) AS old
			WHERE q.job = old.job AND q.item_hash = old.item_hash;
	END IF;
	RETURN CASE WHEN bytes > most_bytes THEN most WHEN NOT jobs.locked THEN pg_catalog.cardinality(moved) END;
END
$$;
COMMENT ON FUNCTION sweep._archive_runs(boolean) IS 'moves ended runs to the history and prunes it, by age too if asked; returns how many, 1000 also after a few large ones; else NULL when a lock kept it from some';

-- lock_timeout: a lock on the history delays the process for 5 s at most. Without the note, the log still has the warning.
CREATE FUNCTION sweep._note_unreplicated(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
BEGIN
	UPDATE sweep.run_live AS r SET detail = coalesce(r.detail, '{}') || '{"unreplicated": true}' WHERE r.run_id = _note_unreplicated.run_id;
	IF NOT FOUND THEN
		UPDATE sweep.run_history AS r SET detail = coalesce(r.detail, '{}') || '{"unreplicated": true}' WHERE r.run_id = _note_unreplicated.run_id;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._note_unreplicated(bigint) IS 'notes in the detail of a run that has ended that no standby has its last commit';

-- ------------------------------------------------------------------ what sweep.wait waits for
CREATE FUNCTION sweep._wait_outcome(caller oid, run_id bigint, OUT job text, OUT status text, OUT stop_reason text, OUT batches bigint, OUT rows bigint,
	OUT error text, OUT ended boolean, OUT decisive bigint, OUT reason text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- Checked before the rows are read: a process that has ended by now has committed all runs that it queues.
	alive bigint[] := ARRAY(SELECT p.run_id FROM sweep._running() p);
	asked sweep.run_live := sweep._run_outcome(caller, run_id);
	begun boolean;
BEGIN
	WITH RECURSIVE everything AS NOT MATERIALIZED (SELECT * FROM sweep.run_live UNION ALL SELECT * FROM sweep.run_history),
		share AS (
			SELECT _wait_outcome.run_id
			UNION ALL
			-- A retry is not waited for, because the run that it repeats has failed.
			SELECT e.run_id FROM share s JOIN everything e ON e.parent_run_id = s.run_id
				WHERE e.job = asked.job AND e.run_as = asked.run_as AND e.trigger <> 'retry'),
		-- A share that found no bucket has left them to others.
		run AS (SELECT e.*, pg_catalog.array_position('{failed,lost,cancelled,succeeded,skipped}'::pg_catalog.text[], e.status::pg_catalog.text) AS rank
			FROM share s JOIN everything e ON e.run_id = s.run_id)
	SELECT pg_catalog.bool_and(r.finished_at IS NOT NULL AND r.run_id <> ALL (alive)), pg_catalog.bool_or(r.status <> 'waiting'), pg_catalog.sum(r.batches), least(pg_catalog.sum(r.rows), 9223372036854775807),
			(pg_catalog.array_agg(r.run_id ORDER BY r.rank, r.finished_at DESC, r.run_id))[1]
		INTO ended, begun, batches, rows, decisive FROM run r;
	job := asked.job;
	IF NOT ended THEN
		status := CASE WHEN begun THEN 'running' ELSE 'waiting' END;
		RETURN;
	END IF;
	asked := sweep._run_outcome(caller, decisive);
	status := asked.status;
	stop_reason := asked.stop_reason;
	error := asked.error;
	reason := asked.detail ->> 'reason';
END
$$;
COMMENT ON FUNCTION sweep._wait_outcome(oid, bigint) IS 'the outcome of a run (if it has divided its job, of all shares), and the run that decides it; an ended run no longer has a process';
