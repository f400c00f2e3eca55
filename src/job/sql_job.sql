--
-- Checks of a job with sql, whose text is executed once per run.
--
CREATE FUNCTION sweep._check_sql(sql text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_definition_check_sql';
COMMENT ON FUNCTION sweep._check_sql(text) IS 'raises unless the text consists of statements that can be executed in the background; names are looked up when it is executed';

CREATE FUNCTION sweep._check_sql_settings(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	IF job.sql IS NULL THEN
		RETURN;
	END IF;
	SELECT c.* INTO wrong FROM (VALUES
		('max_batches', job.max_batches IS NOT NULL, 'It is executed once: timeout limits it.'),
		('max_rows', job.max_rows IS NOT NULL, 'It is executed once: timeout limits it.'),
		('stop_after', job.stop_after IS NOT NULL, 'It is executed once: timeout limits it.'),
		('pause', job.pause IS NOT NULL, 'It has no batches to pause between.'),
		('estimate', job.estimate IS NOT NULL, 'How much of it is done is known by its statements: batches in sweep.running.'),
		('cursor', job.cursor <> 'run', 'It is executed once and begins at the start each time.'),
		('args', job.args <> '{}', 'It has no parameters: write values into the text.'),
		('pick', job.pick IS NOT NULL, 'It has no items: for those write a step.'),
		('rescue', job.rescue IS NOT NULL, 'It has no items: for those write a step.'),
		('transaction', job.transaction <> 'batch', 'Each statement is a transaction: write BEGIN and COMMIT around those that belong together.'),
		('flush', job.flush IS NOT NULL, 'It commits as a session would: SET synchronous_commit in the text.'),
		('buckets', job.buckets IS NOT NULL, 'It is executed once, as a whole: to be divided it needs a step or a batch_sql.'),
		('buckets_function', job.buckets_function IS NOT NULL, 'It is executed once, as a whole: to be divided it needs a step or a batch_sql.')
	) AS c (name, given, hint) WHERE c.given LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'job "%" has sql, for which % means nothing', job.name, wrong.name
			USING ERRCODE = 'invalid_parameter_value', HINT = wrong.hint || pg_catalog.format(' Leave %s out.', wrong.name);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_sql_settings(sweep.job_definition) IS 'raises when a job with sql has a setting that only has a meaning for batches';
