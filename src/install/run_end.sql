--
-- How runs end when they cannot say so themselves, what follows from an end, and the history.
--
CREATE FUNCTION sweep._retry(run_id bigint) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A share that failed has queued those that follow it; one that was lost has not.
	INSERT INTO sweep.run_live (job, run_as, args, trigger, attempt, bucket, shares_left, due_at)
		SELECT r.job, r.run_as, r.args, 'retry', r.attempt + 1, r.bucket, r.shares_left * (r.status = 'lost')::int,
			clock_timestamp() + interval '1 s' * (r.attempt ^ 4 + 15 + floor(random() * 10 * (r.attempt + 1)))
		FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _retry.run_id AND r.status IN ('failed', 'lost') AND r.attempt < j.max_attempts
$$;
COMMENT ON FUNCTION sweep._retry(bigint) IS 'queues the next attempt of a run that failed or was lost, with the backoff of Sidekiq';

CREATE FUNCTION sweep._mark_lost() RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	gone record;
	counted int := 0;
BEGIN
	-- Queued while the job was dropped, or given to another role.
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = clock_timestamp()
		WHERE r.status = 'waiting' AND r.pid IS NULL
			AND NOT EXISTS (SELECT FROM sweep.job j WHERE j.name = r.job AND j.run_as = r.run_as);
	FOR gone IN SELECT r.run_id, r.status FROM sweep.run_live r
			WHERE r.status IN ('waiting', 'running') AND r.pid IS NOT NULL AND NOT sweep._run_is_alive(r.run_id) LOOP
		UPDATE sweep.run_live AS r SET status = 'lost', stop_reason = 'lost', finished_at = clock_timestamp()
			WHERE r.run_id = gone.run_id AND r.status = gone.status;
		IF FOUND THEN
			PERFORM sweep._retry(gone.run_id);
			counted := counted + 1;
		END IF;
	END LOOP;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._mark_lost() IS 'ends the runs whose process is gone: status lost; returns how many';

CREATE FUNCTION sweep._prune(job text, status text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
			WHERE k.job = _prune.job AND k.status = _prune.status ORDER BY k.run_id DESC
			OFFSET current_setting('pg_sweep.history_per_job')::int LIMIT 1000) AS old
		WHERE h.run_id = old.run_id
$$;
COMMENT ON FUNCTION sweep._prune(text, text) IS 'deletes the oldest runs of a job and outcome beyond pg_sweep.history_per_job';

CREATE FUNCTION sweep._mend_clock(at timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- A clock that ran ahead and was set back leaves moments that are too far off.
	PERFORM sweep._reschedule(j.name, at) FROM sweep.job j JOIN sweep.job_state s ON s.job = j.name
		WHERE s.next_due > at AND s.broken IS NULL AND s.next_due > sweep._next_run(j.schedule, j.timezone, at, j.name);
EXCEPTION WHEN invalid_parameter_value THEN
	RAISE WARNING 'the next moments of jobs could not be checked: %', SQLERRM;
END
$$;
COMMENT ON FUNCTION sweep._mend_clock(timestamptz) IS 'brings forward what is due later than its schedule says';

CREATE FUNCTION sweep._archive_runs(age_out boolean) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ended sweep.run_live;
	counted int := 0;
	left_out boolean := false;
BEGIN
	IF NOT age_out AND NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.finished_at IS NOT NULL) THEN
		RETURN 0;
	END IF;
	BEGIN
		LOCK TABLE sweep.run_history IN ROW EXCLUSIVE MODE NOWAIT;
	EXCEPTION WHEN lock_not_available THEN
		RETURN NULL;
	END;
	FOR ended IN
		SELECT * FROM sweep.run_live f WHERE f.finished_at IS NOT NULL ORDER BY f.run_id LIMIT 1000 FOR UPDATE SKIP LOCKED LOOP
		-- Somebody who changes the job just now may wait for us: leave the run to the next time.
		PERFORM FROM sweep.job_state s WHERE s.job = ended.job FOR UPDATE SKIP LOCKED;
		IF NOT FOUND AND EXISTS (SELECT FROM sweep.job_state s WHERE s.job = ended.job) THEN
			left_out := true;
			CONTINUE;
		END IF;
		DELETE FROM sweep.run_live r WHERE r.run_id = ended.run_id;
		INSERT INTO sweep.run_history SELECT (ended).*;
		IF ended.batches > 0 OR ended.cursor IS NOT NULL THEN
			UPDATE sweep.job_state AS s SET last_start = coalesce(ended.started_at, ended.finished_at),
					drained_rows = CASE WHEN ended.stop_reason = 'drained' THEN ended.rows ELSE s.drained_rows END,
					kept_cursor = CASE WHEN ended.stop_reason = 'drained' THEN NULL ELSE ended.cursor END
				WHERE s.job = ended.job AND coalesce(s.last_start, '-infinity') <= coalesce(ended.started_at, ended.finished_at)
					AND EXISTS (SELECT FROM sweep.job j WHERE j.name = ended.job AND j.run_as = ended.run_as);
		END IF;
		PERFORM sweep._prune(ended.job, ended.status);
		counted := counted + 1;
	END LOOP;
	IF age_out THEN
		PERFORM sweep._mend_clock(clock_timestamp());
		DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
				WHERE k.finished_at < clock_timestamp() - current_setting('pg_sweep.history_max_age')::interval
				ORDER BY k.finished_at LIMIT 10000) AS old
			WHERE h.run_id = old.run_id;
		-- What was due to be tried again so long ago and was not is no longer picked.
		DELETE FROM sweep.quarantine AS q
			WHERE q.next_try < clock_timestamp() - current_setting('pg_sweep.history_max_age')::interval;
	END IF;
	RETURN CASE WHEN NOT left_out THEN counted END;
END
$$;
COMMENT ON FUNCTION sweep._archive_runs(boolean) IS 'moves ended runs to the history and prunes it, by age too if asked; NULL when a lock kept it from some';
