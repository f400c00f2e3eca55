--
-- The kinds of jobs, and the settings that have no meaning for a kind. sql_job.sql and job_check.sql refuse such settings, too, with a hint for
-- each.
--
CREATE FUNCTION sweep._job_defaults() RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	defaults pg_catalog.jsonb;
BEGIN
	EXECUTE (SELECT pg_catalog.format('SELECT pg_catalog.jsonb_object_agg(d.name, d.value) FROM (VALUES %s) AS d (name, value)',
			pg_catalog.string_agg(pg_catalog.format('(%L, pg_catalog.to_jsonb(%s))', a.attname, pg_catalog.pg_get_function_arg_default(p.oid, g.n::pg_catalog.int4)), ', '))
		FROM pg_catalog.pg_proc p CROSS JOIN LATERAL pg_catalog.unnest(p.proargnames) WITH ORDINALITY AS g (name, n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = 'sweep.job_definition'::pg_catalog.regclass AND a.attname = g.name AND a.attnum > 0
		WHERE p.oid = 'sweep.create_job'::pg_catalog.regproc AND pg_catalog.pg_get_function_arg_default(p.oid, g.n::pg_catalog.int4) IS NOT NULL) INTO defaults;
	RETURN defaults;
END
$$;
COMMENT ON FUNCTION sweep._job_defaults() IS 'the values that sweep.create_job gives to settings that are left out';

CREATE FUNCTION sweep._job_kind(job sweep.job_definition) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN job.sql IS NOT NULL THEN 'sql' WHEN job.batch_sql IS NOT NULL THEN 'batch_sql'
		WHEN job.step ~ E'^sweep\\.[a-z]+_step$' THEN pg_catalog.substring(job.step, E'^sweep\\.(.*)_step$')
		WHEN job.pick IS NOT NULL THEN 'items' ELSE 'step' END;
END
$$;
COMMENT ON FUNCTION sweep._job_kind(sweep.job_definition) IS 'sql, batch_sql, step, items (a step with a pick), or its maker: retention, backfill, copy, partitions';

-- Checks only the settings in "named". A setting with its default value counts as left out.
CREATE FUNCTION sweep._check_kind(job sweep.job_definition, named text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	kind constant pg_catalog.text := sweep._job_kind(job);
	given constant pg_catalog.jsonb := pg_catalog.to_jsonb(job);
	defaults constant pg_catalog.jsonb := sweep._job_defaults();
	wrong pg_catalog.text;
	of_items constant pg_catalog.text[] := '{pick,rescue,transaction,row_retries}';
	of_shares constant pg_catalog.text[] := '{buckets,buckets_function,bucket_store,bucket_recovery}';
	meaningless pg_catalog.text[];
BEGIN
	-- The check that there is exactly one of these is in job_check.sql.
	IF pg_catalog.num_nonnulls(job.sql, job.batch_sql, job.step) <> 1 THEN
		RETURN;
	END IF;
	meaningless := CASE kind WHEN 'items' THEN '{}' WHEN 'sql' THEN '{batch_size}' || of_items || of_shares WHEN 'batch_sql' THEN of_items WHEN 'step' THEN '{row_retries}'
		-- A maker that divides its job sets these settings itself.
		ELSE of_items || CASE WHEN job.buckets_function = 'sweep.range_count' AND named @> of_shares THEN '{}' ELSE of_shares END END;
	SELECT u.name INTO wrong FROM pg_catalog.unnest(meaningless) WITH ORDINALITY AS u (name, n)
		WHERE u.name = ANY (named) AND given -> u.name <> 'null' AND given -> u.name IS DISTINCT FROM defaults -> u.name ORDER BY u.n LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'job "%" %, for which % means nothing', job.name, CASE kind WHEN 'sql' THEN 'has sql' WHEN 'batch_sql' THEN 'has batch_sql'
				WHEN 'step' THEN 'has a step and no pick' WHEN 'partitions' THEN 'makes partitions' ELSE 'is a ' || kind END, wrong USING ERRCODE = 'invalid_parameter_value',
			HINT = CASE WHEN wrong = 'batch_size' THEN 'It is executed once and has no batches.'
				WHEN wrong = ANY (of_items) THEN 'It is for jobs with items: those that have a pick and a step.'
				WHEN kind = 'sql' THEN 'It is executed once, as a whole: to be divided it needs a step or a batch_sql.'
				WHEN kind = 'partitions' THEN 'Its batches are a partition each and follow each other: it cannot be divided.'
				WHEN kind IN ('retention', 'backfill', 'copy', 'delete', 'update') THEN 'It is divided into ranges of its key by parallel, when it is made.'
				ELSE 'Its batches are ranges of one key and follow each other: it cannot be divided.' END || pg_catalog.format(' Leave %s out.', wrong);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_kind(sweep.job_definition, text[]) IS 'raises when a setting that is named means nothing for a job of that kind';
