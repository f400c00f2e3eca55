--
-- sweep.delete: rows that meet a condition are deleted once, in batches, with the rows that refer to them.
--
-- A job uses the order of an index that serves its condition: a batch then reads only rows that meet it. If there is none, it uses a
-- unique key, and a batch reads as many rows as it may delete, however few meet the condition.
--
CREATE FUNCTION sweep._key_cost(role oid, statement text, settings jsonb, OUT cost float8, OUT filters boolean) RETURNS record
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_key_cost';
COMMENT ON FUNCTION sweep._key_cost(oid, text, jsonb) IS
	'the estimated cost of reading rows in the order of an index, planned as the role, and whether more rows are read than are returned; NULL: there is no such index, or rows may have a null in a column of the order';

CREATE FUNCTION sweep._count_deletion(role oid, relation regclass, roots text, settings jsonb) RETURNS jsonb
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_delete_count';
COMMENT ON FUNCTION sweep._count_deletion(oid, regclass, text, jsonb) IS
	'how many rows would be deleted, or lose their reference, with those that the statement finds as the role: {"table": {"deleted": 1, "nulled": 2}}';

CREATE FUNCTION sweep._index_uses(index oid, columns text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attname = ANY (columns)
		WHERE i.indexrelid = index AND (a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1])
			-- in an expression, or in the WHERE of the index
			OR (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
				AND EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = index
					AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = i.indrelid AND d.refobjsubid = a.attnum))));
END
$$;
COMMENT ON FUNCTION sweep._index_uses(oid, text[]) IS 'whether the position of a row in an index depends on one of these columns';

-- Compares the planner's costs of reading all rows of the condition. An index that is not unique, or has nulls, does not order all rows.
CREATE FUNCTION sweep._run_key(role text, relation regclass, condition text, settings jsonb, changed text[], only_unique boolean, OUT columns text[], OUT serves boolean) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	meaning constant pg_catalog.jsonb := sweep._job_meaning(role, settings);
	candidate pg_catalog.record;
	best_cost pg_catalog.float8;
	best_filters boolean;
	serving pg_catalog.text[];
	reading pg_catalog.text;
	ordered pg_catalog.text;
	matching pg_catalog.record;
	whole pg_catalog.float8;
	best_whole pg_catalog.float8;
BEGIN
	FOR candidate IN SELECT DISTINCT ON (k.columns) k.columns, k.nulls, sweep._is_unique(relation, k.columns) AS is_unique, i.indisprimary
			FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
			WHERE i.indrelid = relation AND k.columns IS NOT NULL AND NOT sweep._index_uses(i.indexrelid, changed) AND (NOT only_unique OR sweep._tells_done(i.indexrelid, k.columns))
			ORDER BY k.columns, i.indisprimary DESC LOOP
		reading := pg_catalog.format('SELECT %s FROM %s WHERE ', sweep._key_list(relation, candidate.columns), sweep._source(relation, NULL));
		ordered := ' ORDER BY ' || sweep._key_order(relation, candidate.columns, candidate.nulls, false);
		matching := sweep._key_cost(sweep._role_oid(role), reading || pg_catalog.format(E'(%s\n)', condition) || ordered, meaning);
		whole := (sweep._key_cost(sweep._role_oid(role), reading || 'true' || ordered, meaning)).cost;
		IF candidate.is_unique AND whole IS NOT NULL AND (best_whole IS NULL OR candidate.indisprimary) THEN
			best_whole := whole;
			columns := candidate.columns;
		END IF;
		IF matching.cost IS NOT NULL AND (serving IS NULL OR matching.cost < best_cost OR matching.cost = best_cost AND candidate.indisprimary) THEN
			best_cost := matching.cost;
			best_filters := matching.filters;
			serving := candidate.columns;
		END IF;
	END LOOP;
	IF best_whole IS NULL AND NOT only_unique THEN
		best_whole := sweep._scan_cost(relation);
		columns := '{ctid}';
	END IF;
	-- If other rows are read, too, any number of them may lie between two rows that meet the condition.
	serves := coalesce(serving IS NOT NULL AND CASE WHEN best_filters THEN best_cost * CASE WHEN columns = '{ctid}' THEN 1 ELSE 5 END < best_whole ELSE best_cost < best_whole * 3 END, false);
	-- A unique index that has nulls orders only the rows of the condition.
	IF serves OR columns IS NULL THEN
		columns := serving;
	END IF;
	IF columns IS NULL THEN
		RAISE EXCEPTION '% has no unique index by which to go through it', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each row is to be updated once. The index must be a valid btree index without a WHERE, not deferrable, of columns that are not set, of types of PostgreSQL and in one direction, and in which no row that meets the condition has a null.',
			HINT = 'Add a primary key, or a condition that no row meets after the update, for example: ... SET state = ''done'' WHERE state = ''new''.';
	END IF;
	-- A batch by ctid consists of rows that meet the condition.
	serves := serves OR columns = '{ctid}';
END
$$;
COMMENT ON FUNCTION sweep._run_key(text, regclass, text, jsonb, text[], boolean) IS
	'the columns of the index in whose order a deletion or an update works, none of which changes, and whether the index serves the condition, so that a batch reads only rows that meet it; ctid: by places';

CREATE FUNCTION sweep._scan_cost(relation regclass) RETURNS float8
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.sum(pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::pg_catalog.float8 * pg_catalog.current_setting('seq_page_cost')::pg_catalog.float8
			+ greatest(c.reltuples, 0) * pg_catalog.current_setting('cpu_tuple_cost')::pg_catalog.float8)
		FROM (SELECT relation::pg_catalog.oid AS id UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(relation) AS p) AS t JOIN pg_catalog.pg_class c ON c.oid = t.id);
END
$$;
COMMENT ON FUNCTION sweep._scan_cost(regclass) IS 'the cost of reading a table block by block, in the units of the planner';

-- The greatest key at the start of the run bounds the rows that the run deletes. If the run uses another index, IS TRUE keeps the
-- planner from using this condition as an index range. Unless the index is the primary key, its first column may be null in rows that do
-- not meet the condition.
CREATE FUNCTION sweep._run_bound(relation regclass, key text[], OUT condition text, OUT prologue text, OUT ordering text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	bound pg_catalog.record;
	ordered pg_catalog.text[];
	most constant pg_catalog.text := 'pg_catalog.jsonb_build_object(''after'', $2 OPERATOR(pg_catalog.->) ''most'')';
BEGIN
	IF key = '{ctid}' THEN
		condition := 'true';
		RETURN;
	END IF;
	SELECT k.columns, k.nulls, i.indisprimary INTO bound FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = relation AND k.columns IS NOT NULL AND (i.indisprimary OR k.columns = key) ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1;
	condition := sweep._key_compare(relation, bound.columns, '<=', most);
	IF bound.columns <> key THEN
		condition := pg_catalog.format('(%s) IS TRUE', condition);
	END IF;
	-- In this order, not sorted by name, since a column may be renamed.
	ordered := ARRAY(SELECT u.c FROM pg_catalog.unnest(bound.columns || key) WITH ORDINALITY AS u (c, n) GROUP BY u.c ORDER BY pg_catalog.min(u.n));
	prologue := pg_catalog.format('SELECT NULL::pg_catalog.int8, coalesce($2, ''{}'') OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(''ordering'', sweep._key_ordering(%L, %L), ''most'','
		' (SELECT %s FROM (SELECT %s FROM %s%s ORDER BY %s LIMIT 1) AS k)), NULL::pg_catalog.jsonb WHERE ($2 OPERATOR(pg_catalog.->) ''most'') IS NULL', sweep._table_name(relation), ordered,
		sweep._key_values(relation, bound.columns), sweep._key_list(relation, bound.columns), sweep._source(relation, NULL),
		CASE WHEN NOT bound.indisprimary THEN pg_catalog.format(' WHERE %s IS NOT NULL', (sweep._key_expression(relation, bound.columns[1])).expression) END, sweep._key_order(relation, bound.columns, bound.nulls, true));
	ordering := pg_catalog.format('SELECT sweep._check_ordering(%L, %L, $2, %L)', sweep._table_name(relation), ordered, 'Drop the job, and execute the statement for the rows that are left.');
END
$$;
COMMENT ON FUNCTION sweep._run_bound(regclass, text[]) IS 'the condition that the key of a row is at most the greatest key at the start of the run, the statement that puts that key into the cursor, and the one that checks whether the order of keys has changed';

-- With a condition such as id = (SELECT max(id) ...), each batch would find another row, until none is left.
CREATE FUNCTION sweep._check_deletion(role text, relation regclass, condition text, meaning jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
BEGIN
	SELECT p.reads, p.is_limited INTO parts FROM sweep._batched_parts(sweep._role_oid(role), pg_catalog.format(E'DELETE FROM %s WHERE (%s\n)', sweep._table_name(relation), condition), meaning, false) AS p;
	PERFORM sweep._check_batched_reads(role, relation, parts.reads, parts.is_limited);
END
$$;
COMMENT ON FUNCTION sweep._check_deletion(text, regclass, text, jsonb) IS 'raises when batches of a deletion would choose other rows than the condition does now';

-- The condition is checked again, because the owner of the job may have altered it.
CREATE FUNCTION sweep._deletion_condition(args jsonb, role oid, OUT text text, OUT joins boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
BEGIN
	IF args ? 'statement' THEN
		parts := sweep._stored_parts(args, role, 'delete');
		text := sweep._found_by(parts);
		joins := parts.reads <> '{}';
	ELSE
		PERFORM sweep._check_condition(args ->> 'condition');
		text := args ->> 'condition';
		joins := sweep._has_select(text);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._deletion_condition(jsonb, oid) IS 'the condition of a deletion, from its args or from the statement in them, and whether it uses other tables';

CREATE FUNCTION sweep._delete_statements(args jsonb, again boolean, role oid, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	key constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(args -> 'key'));
	by_place constant boolean := key = '{ctid}';
	condition constant pg_catalog.record := sweep._deletion_condition(args, role);
	parts constant pg_catalog.text[] := CASE WHEN known_parts IS NOT NULL THEN known_parts WHEN by_place THEN sweep._place_parts(relation, role, 'DELETE', condition.text)
		WHEN sweep._is_partitioned(relation) THEN sweep._parts(relation, NULL, role, NULL, NULL, 'DELETE', condition.text) END;
	place constant pg_catalog.record := sweep._next_place(relation, parts, part);
	bound constant pg_catalog.record := sweep._run_bound(relation, key);
	due constant pg_catalog.text := pg_catalog.format(E'(%s\n) AND %s', condition.text, bound.condition);
	free constant pg_catalog.text := sweep._not_referenced(relation);
	in_range constant pg_catalog.text := sweep._in_range(relation, args -> 'range', again);
	nulls pg_catalog.text[];
	first boolean;
BEGIN
	SELECT k.nulls INTO nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = coalesce(place.part, relation) AND k.columns = key ORDER BY i.indexrelid LIMIT 1;
	IF NOT FOUND AND NOT by_place THEN
		RAISE EXCEPTION '% has no index of (%) any more', relation, sweep._column_list(key) USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Create the index again, or drop the job and delete by a new one, which chooses another index.';
	END IF;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		IF by_place THEN
			made := sweep._place_removal(relation, place.part, due, free);
			made.next_part := place.next_part;
			made.parts := parts;
			RETURN NEXT made;
			CONTINUE;
		END IF;
		made := sweep._removal_statements(relation, place.part, NULL, key, nulls,
			CASE WHEN again THEN due || free WHEN (args -> 'serves')::boolean THEN due ELSE bound.condition END || in_range, due || in_range, free, sweep._referred_columns(relation, false) <> '{}', first);
		made.custom := condition.joins;
		made.next_part := place.next_part;
		made.parts := parts;
		made.prologue := CASE WHEN part IS NULL AND first THEN bound.prologue END;
		made.ordering := bound.ordering;
		made.epilogue := CASE WHEN sweep._looks_at_rest(args) THEN sweep._rest_statement(relation, pg_catalog.format(E'(%s\n)%s', condition.text, free), bound.condition,
			CASE WHEN free <> '' THEN sweep._count_some(relation, due || pg_catalog.format(' AND (true%s) IS FALSE', free), 10000) END) END;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._delete_statements(jsonb, boolean, oid, text, text[]) IS 'the statements of a deletion, of a partition of its table or of all of it';

CREATE FUNCTION sweep.delete_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.delete_step(sweep.batch) IS 'step of the jobs that sweep.delete makes';

CREATE FUNCTION sweep._check_delete(role text, relation regclass, condition text, settings jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF condition IS NULL THEN
		RAISE EXCEPTION 'condition must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Say which rows are to go, for example: tenant_id = 42. For all rows write true.';
	END IF;
	PERFORM sweep._check_table(role, relation, '{SELECT,DELETE}'), sweep._check_condition(condition);
	PERFORM sweep._check_fragment(role, pg_catalog.format(E'DELETE FROM %s WHERE $1 IS NOT NULL AND (%s\n)', sweep._source(relation, NULL), condition), settings);
	PERFORM sweep._check_deletion(role, relation, condition, sweep._job_meaning(role, settings)), sweep._check_referring(role, relation);
END
$$;
COMMENT ON FUNCTION sweep._check_delete(text, regclass, text, jsonb) IS 'raises unless the role can delete the rows of the condition in batches';

CREATE FUNCTION sweep._note_whole(job sweep.job_definition, relation regclass, columns text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rows pg_catalog.float8;
BEGIN
	EXECUTE sweep._rows_estimate(relation) INTO rows;
	IF rows > 100 * job.batch_size THEN
		RAISE NOTICE 'job "%" looks at all rows of %, about %', job.name, relation, rows::bigint
			USING DETAIL = pg_catalog.format('It goes by (%s), because no index serves the condition.', sweep._column_list(columns));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._note_whole(sweep.job_definition, regclass, text[]) IS 'raises a NOTICE when a job will read all rows of a table, in many batches';

CREATE FUNCTION sweep._create_once(caller oid, job sweep.job_definition, relation regclass, run_id bigint, keep_job boolean) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	serves constant boolean := (job.args -> 'serves')::boolean;
BEGIN
	IF job.buckets IS NOT NULL AND job.args -> 'key' = '["ctid"]' THEN
		RAISE EXCEPTION '% has no index by which it could be divided', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'The places of its rows change meanwhile.', HINT = 'Add a primary key, or leave parallel out.';
	END IF;
	job.estimate := CASE WHEN NOT serves THEN sweep._rows_estimate(relation) END;
	-- If a run stops at a limit, the next one goes on there.
	job.cursor := sweep._kept_by(job);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, false, false);
	PERFORM sweep._note_whole(job, relation, ARRAY(SELECT pg_catalog.jsonb_array_elements_text(job.args -> 'key'))) WHERE NOT serves OR job.args -> 'key' = '["ctid"]';
	RETURN sweep._start_once(job, run_id, keep_job);
END
$$;
COMMENT ON FUNCTION sweep._create_once(oid, sweep.job_definition, regclass, bigint, boolean) IS 'creates a job that deletes or updates rows once, in the order of the key in its args, and starts it; returns the run_id';

CREATE FUNCTION sweep._delete(caller oid, job sweep.job_definition, target text, condition text, dry_run boolean, keep_job boolean, parallel int, run_as regrole, OUT run_id bigint, OUT tables jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	new_id constant bigint := CASE WHEN NOT dry_run THEN pg_catalog.nextval('sweep.run_live_run_id_seq') END;
	key pg_catalog.record;
BEGIN
	IF dry_run IS NULL OR keep_job IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN dry_run IS NULL THEN 'dry_run' ELSE 'keep_job' END USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	job.name := coalesce(job.name, sweep._maker_name('delete', relation, '_' || new_id));
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'delete', relation, run_as);
	PERFORM sweep._check_delete(job.run_as, relation, condition, job.settings);
	IF dry_run THEN
		IF pg_catalog.jsonb_typeof(job.settings) <> 'object' THEN
			RAISE EXCEPTION 'invalid settings %', job.settings USING ERRCODE = 'invalid_parameter_value', HINT = 'Write an object of names and values: {"work_mem": "256MB"}.';
		END IF;
		PERFORM sweep._check_settings(job);
		tables := sweep._count_deletion(sweep._role_oid(job.run_as), relation, sweep._deletion_roots(relation, condition), sweep._job_meaning(job.run_as, job.settings));
		RETURN;
	END IF;
	key := sweep._run_key(job.run_as, relation, condition, job.settings, '{}', false);
	job.args := job.args || pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'condition', condition, 'key', key.columns, 'serves', key.serves);
	PERFORM sweep._check_rules(job.run_as, relation, s, job.settings) FROM sweep._delete_statements(job.args, false, sweep._role_oid(job.run_as), NULL, NULL) AS s;
	run_id := sweep._create_once(caller, job, relation, new_id, keep_job);
END
$$;
COMMENT ON FUNCTION sweep._delete IS 'implements sweep.delete';

CREATE FUNCTION sweep._deletion_roots(relation regclass, condition text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format(E'SELECT %1$s FROM %2$s WHERE (%3$s\n)%4$s', sweep._qualified_list(sweep._relation_name(relation), '{tableoid,ctid}'::pg_catalog.text[] || sweep._referred_columns(relation, false)),
		sweep._source(relation, NULL), condition, sweep._not_referenced(relation));
END
$$;
COMMENT ON FUNCTION sweep._deletion_roots(regclass, text) IS 'the statement that finds the rows that would be deleted: their places, and what other rows refer to';

CREATE FUNCTION sweep.delete(target text, condition text, dry_run boolean DEFAULT false, name text DEFAULT NULL, keep_job boolean DEFAULT false, batch_size int DEFAULT 1000,
	max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT '10 ms',
	settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT 5,
	on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL,
	parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL, OUT run_id bigint, OUT tables jsonb)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.delete IS
	'deletes the rows that meet a condition, with the rows that refer to them, by a job that is started when the transaction has committed; returns the run_id or, for a dry run, how many rows of which tables would be deleted or changed';
