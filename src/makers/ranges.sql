--
-- Common parts of the makers of retention, backfill and copy: the table, and the statements of a batch, which is a range of an index (keys.sql).
-- ranges.c executes the statements, and documents their order.
--
-- Statements are built from names that were looked up and quoted, from values as constants, and from texts of the user that are checked to be
-- whole expressions. All operators and functions are qualified, because statements are executed with the search_path of the job. Parameters: $1
-- size, $2 cursor, $3 as_of, $4 last key of the batch as a cursor, $5 run_id, $6 and $7 places of rows and their tables.
--
CREATE TYPE sweep._statements AS (
	prologue     text,
	edge         text,
	rest         text,
	before       text,
	work         text,
	pick         text,
	roots        text,
	same_roots   text,
	epilogue     text,
	ordering     text,
	reads        text,
	key          text,
	part         text,
	next_part    text,
	counter      text,
	rest_counter text,
	checked      boolean,
	restarts     boolean,
	custom       boolean,
	optimistic   boolean,
	parts        text,
	cascading    oid
);
COMMENT ON TYPE sweep._statements IS 'the statements of a batch that is a range of keys';
COMMENT ON COLUMN sweep._statements.prologue IS 'executed before each batch; returns rows (not null: the batch is done), cursor and detail; NULL: none';
COMMENT ON COLUMN sweep._statements.edge IS 'returns the last key of the batch and, if keys are not unique, the next key, and whether both are equal';
COMMENT ON COLUMN sweep._statements.rest IS 'returns the last key of the remaining rows, and their number';
COMMENT ON COLUMN sweep._statements.before IS 'returns the greatest key that is smaller than $4';
COMMENT ON COLUMN sweep._statements.work IS 'deletes, moves, updates or copies the rows after the cursor up to $4';
COMMENT ON COLUMN sweep._statements.pick IS 'does the same with at most $1 rows whose key is $4';
COMMENT ON COLUMN sweep._statements.roots IS 'returns the places and keys of the rows of the range, if deleting them affects other rows; pick then deletes the rows at given places, and work is not used; NULL: no other rows are affected';
COMMENT ON COLUMN sweep._statements.same_roots IS 'the same for at most $1 rows whose key is $4; if no other rows are affected, finds whether there are such rows';
COMMENT ON COLUMN sweep._statements.epilogue IS 'executed when there are no rows after the cursor; returns whether rows are left, how many, how many of them are referred to (NULL: not counted), and a proof; NULL: not checked';
COMMENT ON COLUMN sweep._statements.ordering IS 'raises when the order of the key has changed since the cursor was set, or other columns are to be taken; NULL: not checked';
COMMENT ON COLUMN sweep._statements.reads IS 'raises when the key of the cursor has a value that its column does not accept; executed when edge has raised an error';
COMMENT ON COLUMN sweep._statements.key IS 'the columns of the key, as they are in the cursor';
COMMENT ON COLUMN sweep._statements.part IS 'the partition that the statements are for; NULL: the whole table';
COMMENT ON COLUMN sweep._statements.next_part IS 'the cursor with which the next partition begins; NULL: there is none';
COMMENT ON COLUMN sweep._statements.counter IS 'key of the detail for the number of rows done';
COMMENT ON COLUMN sweep._statements.rest_counter IS 'key of the detail for the number of rows read and left; NULL: not counted';
COMMENT ON COLUMN sweep._statements.checked IS 'whether work returns the number of its rows, and the key of a row that a later batch would do again';
COMMENT ON COLUMN sweep._statements.restarts IS 'whether a cursor of another key is discarded; otherwise it is an error';
COMMENT ON COLUMN sweep._statements.custom IS 'whether they are planned for each batch, because they join other tables and the best plan depends on the size of the range; NULL: no';
COMMENT ON COLUMN sweep._statements.optimistic IS 'whether rows that affect others are deleted without being locked before, because nothing but their own columns decides on them: no condition, policy or foreign key; NULL: no';
COMMENT ON COLUMN sweep._statements.parts IS 'array of the partitions that are processed one by one; NULL: none';
COMMENT ON COLUMN sweep._statements.cascading IS 'the table whose deleted rows affect other rows; NULL: none';

CREATE FUNCTION sweep._check_condition(condition text) RETURNS void
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_fragment_check_condition';
COMMENT ON FUNCTION sweep._check_condition(text) IS 'raises unless the text is a single expression without parameters';

-- A false match only costs one plan per batch.
CREATE FUNCTION sweep._has_select(fragment text) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(fragment COLLATE "C" ~* E'\\m(select|table|values)\\M', false);
END
$$;
COMMENT ON FUNCTION sweep._has_select(text) IS 'whether a condition, or what is set, may have a sub-select, so that its statements join other tables';

CREATE FUNCTION sweep._set_columns(assignments text) RETURNS text[]
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_fragment_set_columns';
COMMENT ON FUNCTION sweep._set_columns(text) IS 'the columns that are set; raises unless the text is a list of assignments, as after SET';

-- ------------------------------------------------------------------ the table
-- A name without a schema is looked up in the search_path of the caller, with the rights of the job's role, and stored with its schema.
CREATE FUNCTION sweep._find_table(argument text, name text, role oid) RETURNS regclass
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
	found pg_catalog.regclass;
	candidates pg_catalog.text;
BEGIN
	IF name IS NULL THEN
		RAISE EXCEPTION '% must not be null', argument USING ERRCODE = 'null_value_not_allowed', HINT = 'Name a table.';
	END IF;
	BEGIN
		parts := pg_catalog.parse_ident(name);
		-- Numbers (OIDs) are not accepted, nor are tables of pg_temp and pg_catalog.
		IF pg_catalog.cardinality(parts) = 2 THEN
			found := pg_catalog.to_regclass(name);
		ELSIF pg_catalog.cardinality(parts) = 1 AND role IS NOT NULL THEN
			SELECT c.oid INTO found FROM pg_catalog.unnest(sweep._caller_search_path()) WITH ORDINALITY AS p (name, nth)
					JOIN pg_catalog.pg_namespace n ON n.nspname = CASE p.name WHEN '$user' THEN sweep._role_name(role) ELSE p.name END
					JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = parts[1]
				WHERE n.nspname !~ '^pg_' AND pg_catalog.has_schema_privilege(role, n.oid, 'USAGE') ORDER BY p.nth LIMIT 1;
		END IF;
	EXCEPTION WHEN invalid_parameter_value OR invalid_name OR syntax_error THEN
		found := NULL;
	END;
	IF found IS NOT NULL THEN
		RETURN found;
	END IF;
	SELECT pg_catalog.string_agg(c.oid::pg_catalog.regclass::pg_catalog.text, ', ' ORDER BY c.oid::pg_catalog.regclass::pg_catalog.text) INTO candidates
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = pg_catalog.lower(name COLLATE "C") AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_';
	RAISE EXCEPTION 'table "%" does not exist', name USING ERRCODE = 'undefined_table',
		HINT = coalesce('Write the name with its schema: ' || candidates || '.', 'Write the name with its schema, for example: app.event.');
END
$$;
COMMENT ON FUNCTION sweep._find_table(text, text, oid) IS 'the table that an argument names; raises when there is none';

CREATE FUNCTION sweep._check_table(role text, relation regclass, privileges text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.record;
	missing pg_catalog.text;
	distributed boolean;
BEGIN
	SELECT c.relkind, c.relpersistence, n.nspname, CASE c.relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view'
			WHEN 'f' THEN 'a foreign table' WHEN 'S' THEN 'a sequence' WHEN 'i' THEN 'an index' WHEN 'I' THEN 'an index' ELSE 'a type' END AS word INTO known
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
	IF known.relkind NOT IN ('r', 'p') THEN
		RAISE EXCEPTION '% is %', relation, known.word USING ERRCODE = 'wrong_object_type',
			HINT = CASE known.relkind WHEN 'v' THEN 'Name the table that the view reads; batches go by an index of it.'
				WHEN 'f' THEN 'Create the job on the server where the table is; batches go by an index of it.'
				ELSE 'Name a table or a partitioned table.' END;
	END IF;
	IF known.relpersistence = 't' THEN
		RAISE EXCEPTION '% is a temporary table', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'A job runs in a session of its own, which does not see it.';
	END IF;
	PERFORM sweep._check_heirs(relation);
	-- For a distributed table some of the statements would find no rows, and the run would succeed.
	IF pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
		EXECUTE 'SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = $1)' INTO distributed USING relation;
		IF distributed THEN
			RAISE EXCEPTION '% is a table of Citus', relation USING ERRCODE = 'feature_not_supported',
				DETAIL = 'The rows of a batch are found by statements that Citus does not distribute.', HINT = 'Create a job with batch_sql, or with a step.';
		END IF;
	END IF;
	IF NOT pg_catalog.has_schema_privilege(sweep._role_oid(role), known.nspname, 'USAGE') THEN
		RAISE EXCEPTION 'role "%" may not use schema "%"', role, known.nspname USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I;', known.nspname, role);
	END IF;
	SELECT pg_catalog.string_agg(p, ', ') INTO missing FROM pg_catalog.unnest(privileges) AS p
		WHERE NOT pg_catalog.has_table_privilege(sweep._role_oid(role), relation, p)
			-- A right on some columns may be enough; the statement itself raises if it is not.
			AND (p = 'DELETE' OR NOT pg_catalog.has_any_column_privilege(sweep._role_oid(role), relation, p));
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION 'role "%" lacks privileges on %: %', role, relation, missing USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT %s ON %s TO %I;', missing, relation, role);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_table(text, regclass, text[]) IS 'raises unless it is a table that the role can process in batches';

CREATE FUNCTION sweep._column_list(columns text[]) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n));
END
$$;
COMMENT ON FUNCTION sweep._column_list(text[]) IS 'a list of quoted names, separated by commas';

CREATE FUNCTION sweep._qualified_list(alias text, columns text[]) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', alias, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n));
END
$$;
COMMENT ON FUNCTION sweep._qualified_list(text, text[]) IS 'the same, each with the alias of its table';

CREATE FUNCTION sweep._table_name(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._table_name(regclass) IS 'its name with its schema, quoted';

CREATE FUNCTION sweep._relation_name(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._relation_name(regclass) IS 'its name alone, as it is: the alias that it has in the statements';

-- The alias is the name of the table, also for a partition, so that texts of the user have the same meaning.
CREATE FUNCTION sweep._source(relation regclass, part regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%s AS %I', sweep._table_name(coalesce(part, relation)), c.relname) FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._source(regclass, regclass) IS 'the FROM item for a table, or for a partition of it';

CREATE FUNCTION sweep._job_meaning(role text, settings jsonb) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Settings that are no JSON object are ignored here; they are refused when the job is created.
	RETURN sweep._run_meaning(sweep._role_oid(role), CASE pg_catalog.jsonb_typeof(settings) WHEN 'object' THEN settings END);
END
$$;
COMMENT ON FUNCTION sweep._job_meaning(text, jsonb) IS 'the settings that decide the meaning of texts in a job that is being created';

CREATE FUNCTION sweep._check_fragment(role text, statement text, settings jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	meaning constant pg_catalog.jsonb := sweep._job_meaning(role, settings);
BEGIN
	PERFORM sweep._check_batch_sql(sweep._role_oid(role), statement, meaning);
EXCEPTION WHEN undefined_table OR undefined_function OR undefined_object THEN
	RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE,
		HINT = pg_catalog.format('Write names with their schema%s. The job would run with search_path %s.',
			CASE SQLSTATE WHEN '42P01' THEN ', and columns of the target with its name alone, as in event.id' END, meaning ->> 'search_path');
END
$$;
COMMENT ON FUNCTION sweep._check_fragment(text, text, jsonb) IS 'analyses a statement that contains a text of the user, as the role of the job and with its settings';

CREATE FUNCTION sweep._range(relation regclass, columns text[], first boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN first THEN '' ELSE sweep._key_compare(relation, columns, '>', '$2') || ' AND ' END || sweep._key_compare(relation, columns, '<=', '$4'));
END
$$;
COMMENT ON FUNCTION sweep._range(regclass, text[], boolean) IS 'a condition: the row is in the batch, which is after the cursor, if any, up to its last key';

-- The statements that find the edge of a batch among the rows that match the filter. JSON is built outside of the subquery, for
-- one row only, and not for each row that is skipped.
CREATE FUNCTION sweep._edge_statements(relation regclass, part regclass, columns text[], nulls text[], filter text, first boolean) RETURNS sweep._statements
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	is_unique constant boolean := sweep._is_unique(coalesce(part, relation), columns);
	json constant pg_catalog.text := sweep._key_json(relation, columns, sweep._table_name(part));
	behind constant pg_catalog.text := pg_catalog.format('SELECT %s FROM %s WHERE %s', sweep._key_list(relation, columns),
		sweep._source(relation, part), filter || CASE WHEN first THEN '' ELSE ' AND ' || sweep._key_compare(relation, columns, '>', '$2') END);
	upwards constant pg_catalog.text := sweep._key_order(relation, columns, nulls, false);
BEGIN
	made.key := pg_catalog.array_to_string(columns, ', ');
	-- Compares values, because equal keys may have different texts.
	made.edge := pg_catalog.format('SELECT %s%s FROM (%s ORDER BY %s OFFSET ($1 OPERATOR(pg_catalog.-) 1) LIMIT %s) AS k',
		json, CASE WHEN NOT is_unique THEN (SELECT ', ' || pg_catalog.string_agg(pg_catalog.format('k.sweep_%1$s OPERATOR(pg_catalog.=) pg_catalog.lag(k.sweep_%1$s) OVER ()', n), ' AND ')
			FROM pg_catalog.generate_subscripts(columns, 1) AS n) END, behind, upwards, CASE WHEN is_unique THEN 1 ELSE 2 END);
	-- builds JSON only for the last row
	made.rest := pg_catalog.format('SELECT %s, k.sweep_count FROM (SELECT * FROM (SELECT *, pg_catalog.row_number() OVER () AS sweep_count FROM (%s ORDER BY %s LIMIT $1) AS b) AS n'
		' ORDER BY sweep_count DESC LIMIT 1) AS k', json, behind, upwards);
	IF NOT is_unique THEN
		made.before := pg_catalog.format('SELECT %s FROM (%s AND %s ORDER BY %s LIMIT 1) AS k', json, behind,
			sweep._key_compare(relation, columns, '<', '$4'), sweep._key_order(relation, columns, nulls, true));
	END IF;
	made.reads := pg_catalog.format('SELECT sweep._read_key(%L, %L, $2)', relation::pg_catalog.oid, columns);
	made.part := sweep._table_name(part);
	made.checked := false;
	made.restarts := true;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._edge_statements(regclass, regclass, text[], text[], text, boolean) IS
	'the statements that find the edge of a batch among the rows of a table, or of a part of it, for which the filter holds: after the cursor or, first, from the start';

-- The columns of the primary key, or those that are named: a unique index must have them in this order.
CREATE FUNCTION sweep._ordered_key(relation regclass, order_by text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wanted pg_catalog.text[];
BEGIN
	IF order_by IS NULL THEN
		SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n) INTO wanted
			FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n]
			WHERE i.indrelid = relation AND i.indisprimary;
		IF wanted IS NULL THEN
			RAISE EXCEPTION '% has no primary key', relation USING ERRCODE = 'invalid_parameter_value',
				HINT = 'Name in order_by the columns of a unique index, none of which may be null.';
		END IF;
	ELSE
		BEGIN
			SELECT pg_catalog.array_agg(CASE WHEN pg_catalog.cardinality(p.parts) = 1 THEN p.parts[1] END ORDER BY p.n) INTO wanted
				FROM (SELECT u.n, pg_catalog.parse_ident(pg_catalog.btrim(u.name)) AS parts
					FROM pg_catalog.string_to_table(order_by, ',') WITH ORDINALITY AS u (name, n)) AS p;
		EXCEPTION WHEN invalid_parameter_value THEN
			wanted := NULL;
		END;
	END IF;
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = relation AND k.columns = wanted AND sweep._is_unique(relation, wanted)
			AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = wanted[1] AND sweep._never_null(relation, a.attnum)) ORDER BY i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no unique index by which to go through it in the order of (%)', relation,
				coalesce(order_by, pg_catalog.array_to_string(wanted, ', ')) USING ERRCODE = 'invalid_parameter_value',
			HINT = 'It is a btree index of these columns and no others, of types of PostgreSQL, all NOT NULL and in one direction, without a WHERE. Name its columns in order_by.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._ordered_key(regclass, text) IS 'the columns of the index that gives the order of the batches, and where its nulls are; raises when there is no such index';
