--
-- Backfill: an UPDATE of all rows that meet a condition, once, by ranges of a unique key.
--
-- The first pass goes through all rows, so that a batch reads no more rows than it may change, however few meet the condition. A
-- further pass searches by the condition, for rows that were inserted before the cursor.
--
CREATE FUNCTION sweep._backfill_statements(args jsonb, again boolean) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	key pg_catalog.record := sweep._ordered_key(relation, args ->> 'order_by');
	name constant pg_catalog.text := sweep._source(relation, NULL);
	condition constant pg_catalog.text := pg_catalog.format(E'(%s\n)', args ->> 'condition');
	in_range constant pg_catalog.text := sweep._in_range(relation, args -> 'range', again);
	columns pg_catalog.text[];
	first boolean;
BEGIN
	PERFORM sweep._check_condition(args ->> 'condition');
	BEGIN
		columns := sweep._set_columns(args ->> 'set');
	EXCEPTION WHEN syntax_error THEN
		RAISE EXCEPTION '"%" is not what can stand behind SET', args ->> 'set' USING ERRCODE = 'syntax_error',
			HINT = 'Write columns and their values, for example: total = price * quantity. The condition is another argument.';
	END;
	IF columns && key.columns THEN
		RAISE EXCEPTION 'column "%" cannot be set: the rows are gone through in its order',
				(SELECT c FROM pg_catalog.unnest(columns) AS c WHERE c = ANY (key.columns) LIMIT 1) USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Name in order_by the columns of another unique index.';
	END IF;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(relation, NULL, key.columns, key.nulls, CASE WHEN again THEN condition ELSE 'true' END || in_range, first);
		made.counter := 'updated';
		made.work := pg_catalog.format(E'WITH done AS (UPDATE %1$s SET %2$s\n WHERE %3$s AND %4$s RETURNING %4$s AS again, pg_catalog.concat_ws('', '', %5$s) AS key)'
			' SELECT pg_catalog.count(*), (SELECT d.key FROM done AS d WHERE d.again LIMIT 1) FROM done',
			name, args ->> 'set', sweep._range(relation, key.columns, first) || in_range, condition,
			(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n)
				FROM pg_catalog.unnest(key.columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = relation));
		made.epilogue := CASE WHEN sweep._looks_at_rest(args) THEN pg_catalog.format('SELECT EXISTS (SELECT FROM %s WHERE %s), NULL::pg_catalog.int8, NULL::pg_catalog.int8, NULL::pg_catalog.jsonb', name, condition) END;
		made.checked := true;
		made.custom := sweep._has_select(pg_catalog.concat_ws(' ', args ->> 'condition', args ->> 'set'));
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._backfill_statements(jsonb, boolean) IS 'the statements of a backfill';

CREATE FUNCTION sweep.backfill_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.backfill_step(sweep.batch) IS 'step of the jobs of sweep.create_backfill';

CREATE FUNCTION sweep._create_backfill(caller oid, job sweep.job_definition, target text, set text, condition text, order_by text, parallel int, run_as regrole, paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	existed pg_catalog.bool;
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
BEGIN
	IF set IS NULL OR condition IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN set IS NULL THEN 'set' ELSE 'condition' END USING ERRCODE = 'null_value_not_allowed',
			HINT = CASE WHEN set IS NULL THEN 'Write what stands behind SET, for example: total = price * quantity.'
				ELSE 'Say which rows are to be updated still, for example: total IS NULL.' END;
	END IF;
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'backfill', relation, run_as);
	job.cursor := sweep._kept_by(job);
	-- The number of rows of a run is that of all rows that it has read: all rows of the table.
	job.estimate := coalesce(job.estimate, sweep._rows_estimate(relation));
	PERFORM sweep._check_table(job.run_as, relation, '{SELECT,UPDATE}');
	job.args := job.args || pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'set', set, 'condition', condition,
		'order_by', sweep._column_list((sweep._ordered_key(relation, order_by)).columns));
	PERFORM FROM sweep._backfill_statements(job.args, false);
	PERFORM sweep._check_fragment(job.run_as, pg_catalog.format(E'WITH done AS (UPDATE %1$s SET %2$s\n WHERE $1 IS NOT NULL AND (%3$s\n) RETURNING (%3$s\n)) SELECT FROM done',
		sweep._source(relation, NULL), set, condition), job.settings);
	existed := EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = job.name);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._start_maker(job, paused) WHERE NOT existed;
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_backfill IS 'implements sweep.create_backfill';

CREATE FUNCTION sweep.create_backfill(target text, set text, condition text, order_by text DEFAULT NULL, name text DEFAULT NULL, schedule text DEFAULT NULL,
	timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL,
	timeout interval DEFAULT NULL, pause interval DEFAULT '10 ms', settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL,
	lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL, overlap text DEFAULT NULL, catch_up text DEFAULT NULL, jitter interval DEFAULT NULL,
	estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL,
	priority int DEFAULT NULL, flush text DEFAULT NULL, parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_backfill IS
	'creates a job that updates the rows of a table until none meets the condition, and starts it unless it has a schedule; returns its name';
