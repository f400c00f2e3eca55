--
-- parallel => n: the table of a job is divided into ranges of its key, on which several shares work at the same time.
--
-- The keys that separate the ranges come from a sorted sample of pages of the table. This needs neither statistics nor a numeric key,
-- and the sample has only rows that the role sees and that meet the condition. The sample only decides how even the ranges are: the
-- first range has no lower bound and the last one no upper bound, so that all ranges together cover the table.
--
-- jit is off because the query of the sample has a high estimated cost, and its compilation would take longer than its execution.
CREATE FUNCTION sweep.range_count(b sweep.batch) RETURNS int
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET jit = off AS 'MODULE_PATHNAME', 'sweep_range_count';
COMMENT ON FUNCTION sweep.range_count(sweep.batch) IS 'buckets_function of jobs with parallel: divides the table when a run begins';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep._divide(job sweep.job_definition, parallel int) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	most constant int := 64;
	wrong pg_catalog.text;
BEGIN
	IF parallel IS NULL OR parallel < 1 OR parallel > most THEN
		RAISE EXCEPTION 'invalid parallel %', coalesce(parallel::pg_catalog.text, 'NULL') USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('It must be between 1 and %s: how many processes work on the table at a time.', most);
	END IF;
	IF parallel = 1 THEN
		RETURN job;
	END IF;
	wrong := CASE WHEN job.max_batches IS NOT NULL THEN 'max_batches' WHEN job.max_rows IS NOT NULL THEN 'max_rows' WHEN job.stop_after IS NOT NULL THEN 'stop_after' END;
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION '% has no meaning with parallel => %', wrong, parallel USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'It would end the work on one range, and not that on the table.', HINT = pg_catalog.format('Leave %s out, or parallel.', wrong);
	END IF;
	-- Several ranges per process, because they are not equally long, and one bucket for the final check.
	job.buckets := 4 * parallel + 1;
	job.buckets_function := 'sweep.range_count';
	job.max_attempts := coalesce(job.max_attempts, 3);
	job.args := pg_catalog.jsonb_build_object('parallel', parallel);
	RETURN job;
END
$$;
COMMENT ON FUNCTION sweep._divide(sweep.job_definition, int) IS 'the job with the settings for that many processes; raises when it cannot be divided';

CREATE FUNCTION sweep._kept_by(job sweep.job_definition) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Each range keeps its own cursor.
	RETURN CASE WHEN job.buckets IS NULL THEN 'drain' ELSE 'run' END;
END
$$;
COMMENT ON FUNCTION sweep._kept_by(sweep.job_definition) IS 'the setting cursor of a job whose next run goes on where a run has stopped';

-- ------------------------------------------------------------------ the statements of a range
CREATE FUNCTION sweep._in_range(relation regclass, range jsonb, again boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(range -> 'by'));
	edge pg_catalog.record;
	bounds pg_catalog.text := '';
BEGIN
	-- The last bucket has no range: it only checks whether anything is left.
	IF range ? 'final' THEN
		RETURN CASE WHEN again THEN '' ELSE ' AND false' END;
	END IF;
	FOR edge IN SELECT k.key, CASE k.key WHEN 'after' THEN '>' ELSE '<=' END AS operator FROM pg_catalog.jsonb_object_keys(range) AS k (key) WHERE k.key IN ('after', 'upto') LOOP
		bounds := bounds || ' AND ' || sweep._key_compare(relation, columns, edge.operator,
			pg_catalog.format('%L::pg_catalog.jsonb', pg_catalog.jsonb_build_object('after', range -> edge.key)));
	END LOOP;
	RETURN bounds;
END
$$;
COMMENT ON FUNCTION sweep._in_range(regclass, jsonb, boolean) IS 'text to add to a condition: the row is in the range of a share; empty without a range';

CREATE FUNCTION sweep._looks_at_rest(args jsonb) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN NOT args ? 'range' OR args -> 'range' ? 'final';
END
$$;
COMMENT ON FUNCTION sweep._looks_at_rest(jsonb) IS 'whether a run checks at its end what is left in the whole table';

-- ------------------------------------------------------------------ division
-- If the first sample finds few rows, a second one reads ten times as many pages. The number of ranges is reduced to one per process if they
-- would have less than a hundred batches each, and further if they would have less than one batch.
CREATE FUNCTION sweep._separators(relation regclass, columns text[], filter text, ranges int, batch_size int, prologue text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	pages constant pg_catalog.numeric := 500;
	few constant int := 100;
	all_pages constant pg_catalog.numeric := (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(t.id)), 0) / pg_catalog.current_setting('block_size')::int
		FROM (SELECT relation AS id UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(relation) AS p) AS t);
	percent constant pg_catalog.numeric := least(pages * 100 / greatest(all_pages, 1), 100);
	sample constant pg_catalog.text := pg_catalog.format('SELECT %s, %%s::pg_catalog.int8 AS weight FROM %s TABLESAMPLE SYSTEM (%%s) WHERE %s AND (%s) IS NOT NULL',
		pg_catalog.replace(sweep._key_list(relation, columns), '%', '%%'), pg_catalog.replace(sweep._source(relation, NULL), '%', '%%'), pg_catalog.replace(filter, '%', '%%'),
		pg_catalog.replace((sweep._key_expression(relation, columns[1])).expression, '%', '%%'));
	names constant pg_catalog.text := (SELECT pg_catalog.string_agg('k.sweep_' || n, ', ' ORDER BY n) FROM pg_catalog.generate_subscripts(columns, 1) AS n);
	found constant pg_catalog.text := '(SELECT n.rows FROM sweep_size AS n)';
	place constant pg_catalog.text := '((%s) OPERATOR(pg_catalog.*) k.ranges OPERATOR(pg_catalog./) k.sampled)';
BEGIN
	RETURN pg_catalog.format('WITH sweep_few AS MATERIALIZED (%s), sweep_many AS MATERIALIZED (%s AND (SELECT pg_catalog.count(*) FROM sweep_few) OPERATOR(pg_catalog.<) %s), ',
			pg_catalog.format(sample, pg_catalog.ceil(100 / percent), percent), pg_catalog.format(sample, pg_catalog.ceil(100 / least(percent * 10, 100)), least(percent * 10, 100)),
			CASE WHEN percent < 100 THEN few * ranges ELSE 0 END)
		|| 'sweep_found AS MATERIALIZED (SELECT * FROM sweep_many UNION ALL SELECT * FROM sweep_few WHERE NOT EXISTS (SELECT FROM sweep_many)), '
			'sweep_size AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM sweep_found), '
		-- For even ranges, the rows should come from many pages, rather than many rows from few pages.
		|| pg_catalog.format('sweep_rows AS (SELECT * FROM sweep_found WHERE pg_catalog.random() OPERATOR(pg_catalog.*) %s OPERATOR(pg_catalog.<=) %s), ', found, 1000 * ranges)
		|| pg_catalog.format('sweep_placed AS (SELECT k.*, least(%1$s, greatest(1, least(k.batches, greatest(%1$s OPERATOR(pg_catalog./) 4, k.batches OPERATOR(pg_catalog./) 100)))) AS ranges'
			' FROM (SELECT k.*, %4$s OPERATOR(pg_catalog.*) k.weight OPERATOR(pg_catalog./) %2$s AS batches'
			' FROM (SELECT k.*, pg_catalog.row_number() OVER (ORDER BY %3$s) AS place, pg_catalog.count(*) OVER () AS sampled FROM sweep_rows AS k) AS k) AS k)', ranges, batch_size, names, found)
		|| pg_catalog.format(' SELECT (SELECT pg_catalog.jsonb_agg(s.key ORDER BY s.place) FROM (SELECT %s AS key, pg_catalog.min(k.place) AS place'
			' FROM sweep_placed AS k WHERE k.place OPERATOR(pg_catalog.<) k.sampled AND %s OPERATOR(pg_catalog.<>) %s GROUP BY 1) AS s), %s',
			sweep._key_values(relation, columns), pg_catalog.format(place, 'k.place'), pg_catalog.format(place, 'k.place OPERATOR(pg_catalog.-) 1'),
			coalesce('(SELECT p.cursor FROM (' || prologue || ') AS p (rows, cursor, detail))', 'NULL::pg_catalog.jsonb'));
END
$$;
COMMENT ON FUNCTION sweep._separators(regclass, text[], text, int, int, text) IS
	'a query: the keys that separate the ranges of a table, and the cursor with which each range begins, which a prologue makes';

CREATE FUNCTION sweep._division(job text, args jsonb, role oid, OUT columns text[], OUT query text) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job_definition;
	relation pg_catalog.regclass;
	filter pg_catalog.text := 'true';
	prologue pg_catalog.text;
BEGIN
	SELECT * INTO j FROM sweep.job_definition d WHERE d.name = job;
	relation := CASE j.step WHEN 'sweep.copy_step' THEN sweep._find_table('source', args ->> 'source', NULL) ELSE sweep._find_table('target', args ->> 'target', NULL) END;
	CASE j.step
		WHEN 'sweep.retention_step' THEN
			SELECT k.columns, d.due INTO columns, filter FROM sweep._due_rows(relation, args, role) AS d CROSS JOIN LATERAL sweep._age_key(relation, d.age) AS k;
		WHEN 'sweep.backfill_step', 'sweep.copy_step' THEN
			columns := (sweep._ordered_key(relation, args ->> 'order_by')).columns;
			prologue := CASE j.step WHEN 'sweep.copy_step' THEN sweep._copy_prologue(relation, sweep._find_table('target', args ->> 'target', NULL), columns) END;
		WHEN 'sweep.delete_step', 'sweep.update_step' THEN
			columns := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(args -> 'key'));
			prologue := (sweep._run_bound(relation, columns)).prologue;
			IF args ->> 'serves' = 'true' THEN
				filter := CASE j.step WHEN 'sweep.update_step' THEN sweep._found_by(sweep._stored_parts(args, role, 'update')) ELSE (sweep._deletion_condition(args, role)).text END;
			END IF;
		ELSE
			RAISE EXCEPTION 'job "%" has no ranges', job USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'sweep.range_count is for the jobs that sweep makes with parallel.';
	END CASE;
	query := sweep._separators(relation, columns, pg_catalog.format(E'(%s\n)', filter), j.buckets - 1, j.batch_size, prologue);
END
$$;
COMMENT ON FUNCTION sweep._division(text, jsonb, oid) IS 'the columns by which the table of a job is divided, and the query of the keys that separate its ranges';
