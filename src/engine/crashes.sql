--
-- Crashes: runs of background workers that were in progress when the server went down, see process/crash_note.c.
--
-- Each of these runs may be the reason. Its job is a suspect until one of its runs ends; it may run again 1 s after the first
-- crash, 2 s after the second. Suspects begin at least 10 s apart, and if the server goes down again, only the suspect that
-- began last is counted, because a run that crashes the server usually does so at once. After the third crash in a row the job
-- is broken, until sweep.alter_job or sweep.resume is called.
--
CREATE FUNCTION sweep._crash_problem(crashes int) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN crashes >= 3 THEN pg_catalog.format('the server went down %s times while it ran', crashes) END
$$;
COMMENT ON FUNCTION sweep._crash_problem(int) IS 'why a job is broken when the server went down so often in a row during its runs; NULL: it is not';

CREATE FUNCTION sweep._is_suspect(state sweep.job_state) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT state.crashes > 0 AND NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.job = state.job AND r.finished_at > state.crashed_at AND r.batches > 0
			AND r.status IN ('succeeded', 'failed', 'cancelled'))
		AND NOT EXISTS (SELECT FROM sweep.run_history r WHERE r.job = state.job AND r.finished_at > state.crashed_at AND r.batches > 0
			AND r.status IN ('succeeded', 'failed', 'cancelled'))
$$;
COMMENT ON FUNCTION sweep._is_suspect(sweep.job_state) IS 'whether the server went down while the job ran, and none of its runs has ended since';

CREATE FUNCTION sweep._may_run_again(state sweep.job_state, at timestamptz) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT state.crashes = 0 OR NOT sweep._is_suspect(state)
		OR sweep._crash_problem(state.crashes) IS NULL
			AND at NOT BETWEEN state.crashed_at - interval '1 min' AND state.crashed_at + interval '1 s' * (1 << state.crashes - 1)
			AND NOT EXISTS (SELECT FROM sweep.run_live r JOIN sweep.job_state s ON s.job = r.job WHERE r.status = 'running' AND s.crashes > 0
				AND s.job <> state.job AND r.started_at > state.crashed_at AND at BETWEEN r.started_at - interval '10 s' AND r.started_at + interval '10 s' AND sweep._is_suspect(s))
$$;
COMMENT ON FUNCTION sweep._may_run_again(sweep.job_state, timestamptz) IS 'whether a run of the job may start, as far as crashes of the server are concerned';

-- Commits with a wait for the disk: the next crash may follow at once. A state that a prepared transaction has locked is skipped.
CREATE FUNCTION sweep._count_run_crashes(jobs text[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	down sweep.job_state;
	last pg_catalog.text;
	count pg_catalog.int4;
BEGIN
	PERFORM pg_catalog.set_config('synchronous_commit', 'local', true);
	-- The row of a run that was queued or begun just before the crash may be lost, because its commit did not wait for the disk.
	SELECT s.job INTO last FROM sweep.job_state s WHERE s.job = ANY (jobs) AND sweep._is_suspect(s)
		ORDER BY (SELECT pg_catalog.max(r.started_at) FROM sweep.run_live r WHERE r.job = s.job AND r.status = 'running') DESC NULLS FIRST LIMIT 1;
	FOR down IN SELECT s.* FROM sweep.job_state s WHERE s.job = ANY (jobs) FOR UPDATE SKIP LOCKED LOOP
		count := CASE WHEN NOT sweep._is_suspect(down) THEN 1 WHEN down.job = last THEN down.crashes + 1 ELSE down.crashes END;
		UPDATE sweep.job_state AS s SET crashes = count, crashed_at = pg_catalog.clock_timestamp() WHERE s.job = down.job;
		RAISE WARNING 'the server went down while job "%" ran', down.job;
		PERFORM sweep._set_broken(down.job, sweep._crash_problem(count)) WHERE sweep._crash_problem(count) IS NOT NULL;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._count_run_crashes(text[]) IS 'the server went down while runs of these jobs were in progress';

CREATE FUNCTION sweep._forget_crashes(job text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep.job_state AS s SET crashes = 0, crashed_at = NULL WHERE s.job = _forget_crashes.job AND s.crashes > 0;
	IF FOUND THEN
		PERFORM sweep._set_broken(job, NULL), sweep._wake();
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._forget_crashes(text) IS 'lets a job run again after the server went down during its runs';
