--
-- The result of CALL sweep.wait. call.c calls sweep._wait, in a transaction of its own each time, until it returns a text or raises an error.
--
CREATE FUNCTION sweep._count_of(number bigint, noun text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('%s %s%s', coalesce(number, 0), noun, CASE WHEN number = 1 THEN '' WHEN noun = 'batch' THEN 'es' ELSE 's' END)
$$;
COMMENT ON FUNCTION sweep._count_of(bigint, text) IS 'a number with its noun, for a message: batch or row';

CREATE FUNCTION sweep._wait(caller oid, run_id bigint, is_late boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found constant pg_catalog.record := sweep._wait_outcome(caller, run_id);
	done constant pg_catalog.text := pg_catalog.concat_ws(', ', sweep._count_of(found.batches, 'batch'), sweep._count_of(found.rows, 'row'));
	decisive constant pg_catalog.text := CASE WHEN found.decisive = run_id THEN run_id::pg_catalog.text ELSE pg_catalog.format('%s, a share of run %s,', found.decisive, run_id) END;
BEGIN
	IF NOT found.ended AND is_late THEN
		RAISE EXCEPTION 'run % of job "%" has not ended in time', run_id, found.job USING ERRCODE = 'query_canceled',
			DETAIL = pg_catalog.format('It is %s: %s so far.', found.status, done), HINT = 'It goes on; wait again, or stop it with sweep.cancel().';
	ELSIF NOT found.ended THEN
		RETURN NULL;
	ELSIF found.status = 'skipped' THEN
		RAISE EXCEPTION 'run % of job "%" was skipped: %', run_id, found.job,
				CASE found.reason WHEN 'lock_held' THEN 'its lock was held' WHEN 'no_bucket' THEN 'none of its buckets was free' ELSE 'another run was in progress' END
			USING ERRCODE = CASE WHEN found.reason = 'lock_held' THEN 'lock_not_available' ELSE 'object_in_use' END,
				HINT = 'The detail of its row in sweep.runs says by whom; sweep.start() runs the job when its turn has come.';
	ELSIF found.status = 'cancelled' THEN
		RAISE EXCEPTION 'run % of job "%" was cancelled', decisive, found.job USING ERRCODE = 'query_canceled',
			HINT = 'What was committed before stays: see sweep.runs.';
	ELSIF found.status <> 'succeeded' THEN
		RAISE EXCEPTION 'run % of job "%" %: %', decisive, found.job, CASE found.status WHEN 'lost' THEN 'was lost' ELSE 'failed' END,
				coalesce(found.error, 'its process ended')
			USING ERRCODE = 'external_routine_exception',
				HINT = 'What was committed before stays: see sweep.runs. With max_attempts a job is tried again by itself.';
	END IF;
	RETURN pg_catalog.format('job "%s" run %s: %s in %s, %s', found.job, run_id, sweep._count_of(found.rows, 'row'), sweep._count_of(found.batches, 'batch'), found.stop_reason);
END
$$;
COMMENT ON FUNCTION sweep._wait(oid, bigint, boolean) IS 'implements CALL sweep.wait: the outcome of a run that has succeeded; NULL while it goes on; raises for any other outcome, and when it is late';
