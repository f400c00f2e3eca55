--
-- Retention: rows that are older than the retention time are deleted, or moved to another table, in the order of their age.
--
-- ------------------------------------------------------------------ age
CREATE FUNCTION sweep._age_type(relation regclass, age_column text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	type pg_catalog.text;
BEGIN
	SELECT pg_catalog.format_type(sweep._base_type(a.atttypid), NULL) INTO type FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = relation AND a.attname = age_column AND a.attnum > 0 AND NOT a.attisdropped;
	type := coalesce(type, pg_catalog.replace((sweep._key_expression(relation, age_column)).type, 'pg_catalog.', ''));
	IF type IS NULL THEN
		RAISE EXCEPTION 'column "%" of % does not exist', age_column, relation USING ERRCODE = 'undefined_column',
			HINT = coalesce('There is ' || (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
				WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
					AND a.atttypid IN ('pg_catalog.timestamptz'::pg_catalog.regtype, 'pg_catalog.timestamp'::pg_catalog.regtype, 'pg_catalog.date'::pg_catalog.regtype)) || '.', 'Name a column that says since when the row is there.');
	END IF;
	IF type NOT IN ('timestamp with time zone', 'timestamp without time zone', 'date') THEN
		RAISE EXCEPTION '% of % is of type %', CASE WHEN age_column LIKE '(%' THEN age_column ELSE pg_catalog.format('column "%s"', age_column) END, relation, type USING ERRCODE = 'datatype_mismatch',
			HINT = 'The age of a row is a timestamptz, timestamp or date. For another type write the batch yourself: sweep.create_job(..., step => ...).';
	END IF;
	RETURN type;
END
$$;
COMMENT ON FUNCTION sweep._age_type(regclass, text) IS 'timestamptz, timestamp or date, as the catalogue calls it; raises for any other type';

-- Days and months, and values without a time zone, are those of the time zone. Hours are elapsed time. Where the clock of the zone jumps, a
-- value without a zone must be too old by elapsed time and by the clock, since its hour may come twice.
CREATE FUNCTION sweep._age_limit(type text, args jsonb) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(args ->> 'timezone', 'UTC');
	keep constant interval := (args ->> 'keep')::interval;
	days constant interval := pg_catalog.date_trunc('day', keep);
	clock constant pg_catalog.text := pg_catalog.format('pg_catalog.timezone(%L, $3) OPERATOR(pg_catalog.-) %%L::pg_catalog.interval', zone);
	-- The clock alone does not show which of two equal hours it is.
	moment pg_catalog.text := CASE WHEN days = interval '0' THEN '$3' ELSE pg_catalog.format('pg_catalog.timezone(%L, %s)', zone, pg_catalog.format(clock, days)) END;
	shown pg_catalog.text := '(' || pg_catalog.format(clock, keep) || ')';
BEGIN
	IF days <> keep THEN
		moment := pg_catalog.format('(%s OPERATOR(pg_catalog.-) %L::pg_catalog.interval)', moment, keep - days);
		shown := pg_catalog.format('least(pg_catalog.timezone(%L, %s), %s)', zone, moment, shown);
	END IF;
	RETURN CASE type WHEN 'timestamp with time zone' THEN moment WHEN 'date' THEN shown || '::pg_catalog.date' ELSE shown END;
END
$$;
COMMENT ON FUNCTION sweep._age_limit(text, jsonb) IS 'an expression: the limit of the age; older rows are not kept';

CREATE FUNCTION sweep._expression_index(role oid, relation regclass, expression text, settings jsonb) RETURNS oid
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_expression_index';
COMMENT ON FUNCTION sweep._expression_index(oid, regclass, text, jsonb) IS 'an index of the table that begins with this expression, analysed as the role; NULL: none';

-- An expression is stored as PostgreSQL writes it, with qualified names; another version may write it differently.
CREATE FUNCTION sweep._find_age(role text, relation regclass, age text, settings jsonb) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	index pg_catalog.oid;
BEGIN
	IF age ~ '^[[:alnum:]_]+$' OR EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = age AND a.attnum > 0 AND NOT a.attisdropped) THEN
		RETURN age;
	END IF;
	BEGIN
		PERFORM sweep._check_condition(age);
	EXCEPTION WHEN syntax_error OR invalid_parameter_value THEN
		RETURN age;
	END;
	index := sweep._expression_index(sweep._role_oid(role), relation, age, settings);
	IF index IS NULL THEN
		RAISE EXCEPTION '% has no index that begins with %', relation, age USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each batch would read the whole table. It must be a valid btree index without a WHERE.',
			HINT = pg_catalog.format('CREATE INDEX %sON %s ((%s));', CASE WHEN NOT sweep._is_partitioned(relation) THEN 'CONCURRENTLY ' ELSE '' END, relation, age);
	END IF;
	RETURN coalesce((SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = relation AND a.attnum = i.indkey[0] WHERE i.indexrelid = index),
		sweep._index_expression(index));
END
$$;
COMMENT ON FUNCTION sweep._find_age(text, regclass, text, jsonb) IS 'the age of a row: an expression as it is in an index; any other text is returned unchanged and may be the name of a column';

CREATE FUNCTION sweep._age_key(relation regclass, age_column text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Prefers a unique index with as few columns as possible, else the index with the most columns.
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i
			CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k CROSS JOIN LATERAL sweep._is_unique(relation, k.columns) AS u (is_unique)
		WHERE i.indrelid = relation AND k.columns[1] = age_column
		ORDER BY u.is_unique DESC, CASE WHEN u.is_unique THEN pg_catalog.cardinality(k.columns) ELSE - pg_catalog.cardinality(k.columns) END, i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no index that begins with "%"', relation, age_column USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each batch would read the whole table. It must be a valid btree index without a WHERE.',
			HINT = CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = age_column AND a.attgenerated = 'v')
				THEN 'A virtual generated column cannot have one. Write its expression as age_column, and create an index of that.' ELSE sweep._create_index(relation, ARRAY[age_column]) END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._age_key(regclass, text) IS 'the columns of the index by which the oldest rows are found, and where its nulls are; raises when there is no such index';

-- ------------------------------------------------------------------ another table
CREATE FUNCTION sweep._archive_columns(relation regclass, archive regclass) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, pg_catalog.format_type(b.atttypid, b.atttypmod) AS other_type INTO wrong
		FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attribute b ON b.attrelid = archive AND b.attname = a.attname AND b.attnum > 0 AND NOT b.attisdropped
		WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND (b.atttypid, b.atttypmod) IS DISTINCT FROM (a.atttypid, a.atttypmod) ORDER BY a.attnum LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is not in % with type %', wrong.attname, relation, archive, wrong.type USING ERRCODE = 'datatype_mismatch',
			DETAIL = CASE WHEN wrong.other_type IS NULL THEN 'There is no such column.' ELSE pg_catalog.format('There it has type %s.', wrong.other_type) END,
			HINT = pg_catalog.format('ALTER TABLE %s %s COLUMN %I %s%s;', archive, CASE WHEN wrong.other_type IS NULL THEN 'ADD' ELSE 'ALTER' END, wrong.attname,
				CASE WHEN wrong.other_type IS NULL THEN '' ELSE 'TYPE ' END, wrong.type);
	END IF;
	SELECT b.attname INTO wrong FROM pg_catalog.pg_attribute b WHERE b.attrelid = archive AND b.attnum > 0 AND NOT b.attisdropped AND b.attnotnull AND NOT b.atthasdef
		AND b.attidentity = '' AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is not in %', wrong.attname, archive, relation USING ERRCODE = 'datatype_mismatch',
			HINT = 'It is NOT NULL, so it needs a default.';
	END IF;
	-- If the column is generated only in the archive, the value of the row would be lost.
	SELECT b.attname INTO wrong FROM pg_catalog.pg_attribute b JOIN pg_catalog.pg_attribute a ON a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND a.attgenerated = ''
		WHERE b.attrelid = archive AND b.attnum > 0 AND b.attgenerated <> '' ORDER BY b.attnum LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is generated', wrong.attname, archive USING ERRCODE = 'datatype_mismatch',
			DETAIL = pg_catalog.format('The values that it has in %s would be gone.', relation), HINT = 'ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION;';
	END IF;
	-- Columns that are generated in both tables are computed again.
	RETURN (SELECT pg_catalog.array_agg(b.attname::pg_catalog.text ORDER BY b.attnum) FROM pg_catalog.pg_attribute b WHERE b.attrelid = archive AND b.attnum > 0 AND NOT b.attisdropped
		AND b.attgenerated = '' AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped));
END
$$;
COMMENT ON FUNCTION sweep._archive_columns(regclass, regclass) IS 'the columns that are moved; raises unless the other table has all of them';

-- ------------------------------------------------------------------ the statements
CREATE FUNCTION sweep._due_rows(relation regclass, args jsonb, role oid, OUT age text, OUT type text, OUT age_limit text, OUT due text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	age := sweep._find_age(sweep._role_name(role), relation, args ->> 'age_column', '{}');
	type := sweep._age_type(relation, age);
	age_limit := sweep._age_limit(type, args);
	due := pg_catalog.format('%s OPERATOR(pg_catalog.<) %s', (sweep._key_expression(relation, age)).expression, age_limit);
	IF args ? 'condition' THEN
		PERFORM sweep._check_condition(args ->> 'condition');
		due := pg_catalog.format(E'%s AND (%s\n)', due, args ->> 'condition');
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._due_rows(regclass, jsonb, oid) IS 'the condition of the rows that a retention is to delete, the age of a row, its type, and its limit';

-- If the type of the column were altered during a run, values could be compared with the time zone of the session, and dates before their
-- day is over. The statement that contains this check locks the table for the batch, and is analysed again when the table was altered.
CREATE FUNCTION sweep._refuse_age_type(relation text, age text) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'the type of "%" of % has changed since the run began', age, relation USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Start the job again.';
END
$$;
COMMENT ON FUNCTION sweep._refuse_age_type(text, text) IS 'raises: called when the age of the rows of a table, or of a partition, has another type';

-- Intervals are compared with months of 30 days. One whose parts have different signs may be longer than zero by that, and reach into the
-- future from some dates.
CREATE FUNCTION sweep._least_seconds(keep interval) RETURNS bigint
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT p.seconds + p.days::bigint * CASE WHEN p.days > 0 THEN 23 ELSE 25 END * 3600 + p.months::bigint * CASE WHEN p.months > 0 THEN 28 ELSE 31 END * 86400
		FROM sweep._interval_parts(keep) AS p);
END
$$;
COMMENT ON FUNCTION sweep._least_seconds(interval) IS 'the least time that an interval may be, with the shortest months and days';

CREATE FUNCTION sweep._check_keep(keep interval, cascade text) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF keep IS NULL OR keep < interval '0' OR keep > interval '1000 years' OR sweep._least_seconds(keep) < 0 THEN
		RAISE EXCEPTION 'invalid keep %', keep USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be at least zero, from any date on, and at most 1000 years.';
	END IF;
	IF cascade IS NULL OR cascade NOT IN ('batched', 'at_once', 'refuse') THEN
		RAISE EXCEPTION 'invalid cascade "%"', cascade USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "batched", "at_once" or "refuse".';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_keep(interval, text) IS 'raises unless these args of a retention mean something';

CREATE FUNCTION sweep._retention_statements(args jsonb, again boolean, role oid, as_of timestamptz, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	archive constant pg_catalog.regclass := CASE WHEN args ? 'archive_to' THEN sweep._find_table('archive_to', args ->> 'archive_to', NULL) END;
	rows constant pg_catalog.record := sweep._due_rows(relation, args, role);
	age constant pg_catalog.text := rows.age;
	type constant pg_catalog.text := rows.type;
	age_limit constant pg_catalog.text := rows.age_limit;
	key pg_catalog.record;
	due constant pg_catalog.text := rows.due || sweep._in_range(relation, args -> 'range', again);
	free constant pg_catalog.text := sweep._not_referenced(relation);
	cascading constant pg_catalog.bool := sweep._referred_columns(relation, false) <> '{}' AND args ->> 'cascade' = 'batched';
	-- The DateStyle of a role may write an abbreviation such as CST, which is read as another time zone; JSON has the numeric offset.
	limit_text constant pg_catalog.text := pg_catalog.format('(pg_catalog.to_jsonb(%s) OPERATOR(pg_catalog.#>>) ''{}'')', age_limit);
	moment pg_catalog.text;
	late pg_catalog.text;
	seen pg_catalog.text;
	parts pg_catalog.text[] := known_parts;
	place pg_catalog.record;
	first boolean;
BEGIN
	-- The args may have been altered, and columns renamed.
	PERFORM sweep._check_keep((args ->> 'keep')::interval, args ->> 'cascade');
	IF args ->> 'partitions' <> 'empty' THEN
		PERFORM sweep._check_partitions(sweep._role_name(role), relation, args, false);
	END IF;
	IF archive IS NOT NULL THEN
		-- Child tables (INHERITS) may have further columns, which would not be moved.
		PERFORM sweep._check_logged(archive), sweep._check_heirs(relation);
	END IF;
	IF args ->> 'cascade' = 'refuse' AND sweep._referred_columns(relation, false) <> '{}' THEN
		RAISE EXCEPTION 'rows of other tables go, or change, with those of %', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = (SELECT pg_catalog.format('Foreign key "%s" of %s has an ON DELETE action.', r.name, r.child) FROM sweep._referencing(relation, '', '') AS r WHERE r.action IN ('c', 'n', 'd') LIMIT 1),
			HINT = 'Write cascade => ''batched'' to have them deleted batch by batch.';
	END IF;
	IF parts IS NULL AND sweep._is_partitioned(relation) THEN
		EXECUTE 'SELECT ' || limit_text INTO moment USING NULL::int, NULL::pg_catalog.jsonb, as_of;
		parts := sweep._parts(relation, age, role, type, moment, 'DELETE', args ->> 'condition');
	END IF;
	place := sweep._next_place(relation, parts, part);
	key := sweep._age_key(coalesce(place.part, relation), age);
	-- With ranges late rows cannot be counted: other shares have deleted some of the rows by then.
	seen := due || coalesce((SELECT pg_catalog.format(' AND (SELECT pg_catalog.pg_typeof((NULL::%1$s).%2$I) OPERATOR(pg_catalog.=) %3$L::pg_catalog.regtype OR sweep._refuse_age_type(%1$L, %2$L))', sweep._table_name(a.attrelid::pg_catalog.regclass), age, sweep._type_name(a.atttypid, -1))
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = coalesce(place.part, relation) AND a.attname = age),
		-- For an expression, only its type is determined, with the columns of a null row; it is not executed.
		pg_catalog.format(' AND (SELECT pg_catalog.pg_typeof(CASE WHEN false THEN %2$s END) OPERATOR(pg_catalog.=) %3$L::pg_catalog.regtype OR sweep._refuse_age_type(%1$L, %2$L) FROM (SELECT (NULL::%1$s).*) AS %4$I)',
			sweep._table_name(coalesce(place.part, relation)), age, sweep._type_name(type::pg_catalog.regtype, -1), sweep._relation_name(relation))) || CASE WHEN again THEN free ELSE '' END;
	late := CASE WHEN NOT args ? 'range' THEN sweep._late_rows(role, args, relation, type, age, due) END;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._removal_statements(relation, place.part, archive, key.columns, key.nulls, seen, due, free, cascading, first);
		made.custom := sweep._has_select(args ->> 'condition');
		made.optimistic := args ->> 'condition' IS NULL AND free = '' AND NOT (SELECT c.relrowsecurity FROM pg_catalog.pg_class c WHERE c.oid = relation);
		made.next_part := place.next_part;
		made.parts := parts;
		made.rest_counter := CASE WHEN free <> '' THEN 'referenced' END;
		made.epilogue := CASE WHEN sweep._looks_at_rest(args) THEN pg_catalog.format('SELECT %s, NULL::pg_catalog.int8, NULL::pg_catalog.int8, %s',
			CASE free WHEN '' THEN 'false' ELSE pg_catalog.format('EXISTS (SELECT FROM %s WHERE %s%s)', sweep._source(relation, NULL), rows.due, free) END,
			sweep._proof_expression(relation, type, args, age, rows.due, free)) END;
		made.prologue := CASE args ->> 'partitions' WHEN 'drop' THEN pg_catalog.format('SELECT d.rows, d.next_cursor, d.detail FROM sweep._drop_too_old(%L, %L, %s, %L, $3, $2) AS d'
				' WHERE (($2 OPERATOR(pg_catalog.->) ''after'') IS NULL)', sweep._table_name(relation), type, limit_text, late)
			ELSE sweep._late_prologue(late) END;
		-- Checked while the table is locked, because the values of a column that was added since would be lost.
		IF archive IS NOT NULL THEN
			made.ordering := pg_catalog.format('SELECT sweep._check_columns(%1$L, %3$L, sweep._archive_columns(%1$L, %2$L)), sweep._check_heirs(%1$L)', sweep._table_name(relation), sweep._table_name(archive),
				sweep._archive_columns(relation, archive));
		END IF;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._retention_statements(jsonb, boolean, oid, timestamptz, text, text[]) IS 'the statements of a retention, of a partition of its table or of all of it';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep.retention_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.retention_step(sweep.batch) IS 'step of the jobs of sweep.create_retention';

CREATE FUNCTION sweep._check_retention(role text, args jsonb, settings jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	archive pg_catalog.regclass;
	foreign_key pg_catalog.record;
BEGIN
	PERFORM sweep._check_table(role, relation, '{SELECT,DELETE}');
	PERFORM sweep._age_key(relation, args ->> 'age_column') FROM sweep._age_type(relation, args ->> 'age_column');
	PERFORM sweep._check_referring(role, relation);
	PERFORM sweep._check_partitions(role, relation, args, true);
	IF args ? 'archive_to' THEN
		archive := sweep._find_table('archive_to', args ->> 'archive_to', NULL);
		PERFORM sweep._check_table(role, archive, '{INSERT}');
		IF archive = relation OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(relation)) AS t WHERE t.relid = archive) THEN
			RAISE EXCEPTION 'rows of % cannot be moved to itself', relation USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another table in archive_to.';
		END IF;
		FOR foreign_key IN SELECT r.name, r.child FROM sweep._referencing(relation, '', '') AS r WHERE r.action = 'c' LOOP
			RAISE WARNING 'rows of % that refer to those that are moved are deleted', foreign_key.child
				USING DETAIL = pg_catalog.format('Foreign key "%s" is ON DELETE CASCADE.', foreign_key.name);
		END LOOP;
	END IF;
	IF args ? 'condition' THEN
		PERFORM sweep._check_condition(args ->> 'condition');
		PERFORM sweep._check_fragment(role, pg_catalog.format(E'DELETE FROM %s WHERE $1 IS NOT NULL AND (%s\n)', sweep._source(relation, NULL), args ->> 'condition'), settings);
	END IF;
	PERFORM sweep._check_rules(role, relation, s, settings) FROM sweep._retention_statements(args, false, sweep._role_oid(role), pg_catalog.now(), NULL, NULL) AS s;
END
$$;
COMMENT ON FUNCTION sweep._check_retention(text, jsonb, jsonb) IS 'raises unless the role can delete or move rows that are too old';

CREATE FUNCTION sweep._create_retention(caller oid, job sweep.job_definition, target text, age_column text, keep interval, condition text, archive_to text,
	partitions text, cascade text, parallel int, run_as regrole, paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	wrong constant pg_catalog.text := CASE WHEN age_column IS NULL THEN 'age_column' WHEN keep IS NULL THEN 'keep' WHEN partitions IS NULL THEN 'partitions' WHEN cascade IS NULL THEN 'cascade' END;
	zone constant pg_catalog.text := coalesce(sweep._find_zone(job.timezone), 'UTC');
BEGIN
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', wrong USING ERRCODE = 'null_value_not_allowed',
			HINT = CASE wrong WHEN 'keep' THEN 'Say for how long rows are kept, for example: 90 days.' WHEN 'partitions' THEN 'Write "empty" or "drop".'
				WHEN 'cascade' THEN 'Write "batched", "at_once" or "refuse".'
				ELSE 'Name the column that says since when a row is there.' END;
	END IF;
	PERFORM sweep._check_keep(keep, cascade);
	IF parallel > 1 AND partitions = 'drop' THEN
		RAISE EXCEPTION 'partitions cannot be dropped with parallel => %', parallel USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Leave parallel out: to drop a partition takes no longer when it has more rows. Or leave partitions out: their rows are then deleted.';
	END IF;
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'retention', relation, run_as);
	age_column := sweep._find_age(job.run_as, relation, age_column, sweep._job_meaning(job.run_as, job.settings));
	-- If a run stops at a limit, the next one goes on there, and does not read the dead rows before.
	job.cursor := sweep._kept_by(job);
	job.args := job.args || pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'age_column', age_column, 'keep', keep,
		'timezone', zone, 'condition', condition, 'partitions', partitions, 'cascade', cascade,
		'archive_to', CASE WHEN archive_to IS NOT NULL THEN sweep._table_name(sweep._find_table('archive_to', archive_to, coalesce(run_as::pg_catalog.oid, caller))) END));
	PERFORM sweep._check_retention(job.run_as, job.args, job.settings);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_retention IS 'implements sweep.create_retention';

CREATE FUNCTION sweep.create_retention(target text, age_column text, keep interval, schedule text DEFAULT 'H 3 * * *', condition text DEFAULT NULL,
	archive_to text DEFAULT NULL, name text DEFAULT NULL, partitions text DEFAULT 'empty', cascade text DEFAULT 'batched', timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000,
	max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT NULL,
	settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL,
	overlap text DEFAULT NULL, catch_up text DEFAULT NULL, jitter interval DEFAULT NULL, estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL,
	on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL,
	parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_retention IS
	'creates a job that deletes rows that are older than the retention time, or moves them to another table; returns its name';
