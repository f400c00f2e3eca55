--
-- Retention: rows that are older than they are to be kept are deleted, or moved to another table, in the order of their age.
--
-- ------------------------------------------------------------------ foreign keys
CREATE FUNCTION sweep._referencing(relation regclass, parent_alias text, child_alias text)
	RETURNS TABLE (fk oid, name text, child regclass, columns text[], keys text[], types oid[], joined text, action "char")
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT c.oid, c.conname::pg_catalog.text, c.conrelid::pg_catalog.regclass, pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n),
			pg_catalog.array_agg(p.key ORDER BY k.n), pg_catalog.array_agg(r.atttypid ORDER BY k.n),
			-- With the types of the operator: there may be another one of that name in its schema, for those of the columns.
			pg_catalog.string_agg(pg_catalog.format('%s%s OPERATOR(%I.%s) %I.%I%s', p.key,
				sweep._cast_to(r.atttypid, o.oprleft), n.nspname, o.oprname, child_alias, a.attname, sweep._cast_to(a.atttypid, o.oprright)), ' AND ' ORDER BY k.n),
			c.confdeltype
		FROM pg_catalog.pg_constraint c CROSS JOIN LATERAL pg_catalog.generate_subscripts(c.conkey, 1) AS k (n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[k.n]
			JOIN pg_catalog.pg_attribute r ON r.attrelid = c.confrelid AND r.attnum = c.confkey[k.n]
			JOIN pg_catalog.pg_operator o ON o.oid = c.conpfeqop[k.n] JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
			CROSS JOIN LATERAL (SELECT CASE WHEN parent_alias IS NULL THEN '$' || k.n ELSE pg_catalog.format('%I.%I', parent_alias, r.attname) END) AS p (key)
		WHERE c.contype = 'f' AND c.confrelid = relation
			-- Partitions of a table that refers to it have a row of their own.
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = c.conparentid AND p.confrelid = c.confrelid)
		GROUP BY c.oid, c.conname, c.conrelid, c.confdeltype ORDER BY c.conname, c.conrelid;
END
$$;
COMMENT ON FUNCTION sweep._referencing(regclass, text, text) IS
	'the foreign keys that refer to a table, with the conditions that join the two; without an alias of the table its keys are parameters';

CREATE FUNCTION sweep._cast_to(type oid, wanted oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN type = wanted OR t.typtype = 'p' THEN '' ELSE '::' || pg_catalog.format_type(wanted, -1) END FROM pg_catalog.pg_type t WHERE t.oid = wanted);
END
$$;
COMMENT ON FUNCTION sweep._cast_to(oid, oid) IS 'text behind a value that casts it from one type to another, which may be polymorphic';

-- Partitions go with their table, tables that inherit from it have no part in its foreign keys.
CREATE FUNCTION sweep._referring_source(relation regclass, alias text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%s%s AS %I', CASE c.relkind WHEN 'p' THEN '' ELSE 'ONLY ' END, sweep._table_name(relation), alias) FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._referring_source(regclass, text) IS 'text behind FROM for a table that refers to another table';

-- A row of a table that goes with it, ON DELETE CASCADE, is asked for what refers to that. A circle of tables is gone through once.
CREATE FUNCTION sweep._asked_owners(referring regclass, action "char", path regclass[]) RETURNS oid[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner constant pg_catalog.oid := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = referring);
	deeper pg_catalog.oid[];
BEGIN
	IF action IN ('a', 'r') THEN
		RETURN ARRAY[owner];
	END IF;
	IF action = 'c' AND referring <> ALL (path) THEN
		SELECT pg_catalog.array_agg(o.owner) INTO deeper
			FROM sweep._referencing(referring, '', '') AS r CROSS JOIN LATERAL pg_catalog.unnest(sweep._asked_owners(r.child, r.action, path || referring)) AS o (owner);
	END IF;
	RETURN CASE WHEN deeper IS NULL THEN '{}' ELSE deeper || owner END;
END
$$;
COMMENT ON FUNCTION sweep._asked_owners(regclass, "char", regclass[]) IS 'of the tables that must be asked because of a foreign key before a row is deleted; none: nothing keeps it';

-- A table of another owner is not read here, nor planned: what its owner has put there would be executed as the role of the job.
CREATE FUNCTION sweep._blockers(relation regclass, alias text, path regclass[]) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
	owner constant pg_catalog.oid := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = relation);
	child_alias constant pg_catalog.text := 'sweep_' || pg_catalog.cardinality(path);
	owners pg_catalog.oid[];
	found pg_catalog.text := NULL;
	blockers pg_catalog.text[] := '{}';
BEGIN
	-- Hardly any table has one, and to look for them properly takes longer.
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.confrelid = relation AND c.contype = 'f') THEN
		RETURN blockers;
	END IF;
	FOR foreign_key IN SELECT * FROM sweep._referencing(relation, alias, child_alias) LOOP
		owners := sweep._asked_owners(foreign_key.child, foreign_key.action, path);
		CONTINUE WHEN owners = '{}';
		IF NOT owners <@ ARRAY[owner] THEN
			blockers := blockers || pg_catalog.format('sweep._reference_exists(%s, %s)', foreign_key.fk, pg_catalog.array_to_string(foreign_key.keys, ', '));
			CONTINUE;
		END IF;
		found := pg_catalog.format('SELECT FROM %s WHERE %s', sweep._referring_source(foreign_key.child, child_alias), foreign_key.joined);
		IF foreign_key.action = 'c' THEN
			found := pg_catalog.format('%s AND (%s)', found, pg_catalog.array_to_string(sweep._blockers(foreign_key.child, child_alias, path || foreign_key.child), ' OR '));
		ELSIF foreign_key.child = relation THEN
			-- A row that refers to itself may go.
			found := pg_catalog.format('%1$s AND NOT (%2$I.ctid OPERATOR(pg_catalog.=) %3$I.ctid AND %2$I.tableoid OPERATOR(pg_catalog.=) %3$I.tableoid)', found, child_alias, alias);
		END IF;
		blockers := blockers || pg_catalog.format('EXISTS (%s)', found);
	END LOOP;
	RETURN blockers;
END
$$;
COMMENT ON FUNCTION sweep._blockers(regclass, text, regclass[]) IS 'conditions, each of which says that a row of the table cannot be deleted because of rows that refer to it';

CREATE FUNCTION sweep._reference_exists(oid, VARIADIC "any") RETURNS boolean
	LANGUAGE c STABLE PARALLEL UNSAFE COST 1000 AS 'MODULE_PATHNAME', 'sweep_reference_exists';
COMMENT ON FUNCTION sweep._reference_exists(oid, "any") IS
	'whether rows that refer to this key by a foreign key, or to rows that would go with them, keep it from being deleted: asked as the owners of these tables';

-- A foreign key, then those that are asked for each row that would go with it, and so on: what is deeper follows.
CREATE FUNCTION sweep._reference_tree(foreign_key oid, path regclass[], column_of_key int)
	RETURNS TABLE (depth int, relation oid, types oid[], first_column int, statement text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	asked pg_catalog.record;
	below pg_catalog.record;
	names pg_catalog.text[] := '{}';
	deeper pg_catalog.oid[] := '{}';
	columns int[] := '{}';
BEGIN
	SELECT r.* INTO asked FROM sweep._referencing(path[pg_catalog.cardinality(path)], NULL, 'sweep') AS r WHERE r.fk = foreign_key;
	depth := pg_catalog.cardinality(path);
	relation := asked.child;
	types := asked.types;
	first_column := column_of_key;
	statement := asked.joined;
	IF asked.child = path[depth] THEN
		-- A row that refers to itself may go.
		types := types || ARRAY['pg_catalog.tid'::pg_catalog.regtype, 'pg_catalog.oid'::pg_catalog.regtype]::pg_catalog.oid[];
		statement := pg_catalog.format('%s AND NOT (sweep.ctid OPERATOR(pg_catalog.=) $%s AND sweep.tableoid OPERATOR(pg_catalog.=) $%s)', statement,
			pg_catalog.cardinality(types) - 1, pg_catalog.cardinality(types));
	END IF;
	IF asked.action = 'c' AND asked.child <> ALL (path) THEN
		FOR below IN SELECT r.fk, r.keys || CASE WHEN r.child = asked.child THEN '{sweep.ctid,sweep.tableoid}'::pg_catalog.text[] END AS keys
				FROM sweep._referencing(asked.child, 'sweep', '') AS r WHERE sweep._asked_owners(r.child, r.action, path || asked.child) <> '{}' LOOP
			deeper := deeper || below.fk;
			columns := columns || pg_catalog.cardinality(names) + 1;
			names := names || below.keys;
		END LOOP;
	END IF;
	statement := pg_catalog.format('SELECT %s FROM %s WHERE %s%s', pg_catalog.array_to_string(names, ', '), sweep._referring_source(asked.child, 'sweep'), statement,
		CASE WHEN names = '{}' AND asked.action NOT IN ('a', 'r') THEN ' AND false' ELSE '' END);
	RETURN NEXT;
	RETURN QUERY SELECT t.* FROM pg_catalog.generate_subscripts(deeper, 1) AS b (n)
		CROSS JOIN LATERAL sweep._reference_tree(deeper[b.n], path || asked.child, columns[b.n]) AS t;
END
$$;
COMMENT ON FUNCTION sweep._reference_tree(oid, regclass[], int) IS
	'the statements by which a table that refers to the last one of the path is asked as its owner, each with where its key is in the rows of the one above it';

CREATE FUNCTION sweep._reference_queries(role oid, foreign_key oid) RETURNS TABLE (depth int, relation oid, types oid[], first_column int, statement text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	target pg_catalog.regclass;
BEGIN
	SELECT c.confrelid INTO target FROM pg_catalog.pg_constraint c WHERE c.oid = foreign_key AND c.contype = 'f';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'foreign key with OID % does not exist', foreign_key USING ERRCODE = 'undefined_object';
	END IF;
	IF NOT pg_catalog.has_table_privilege(role, target, 'DELETE') THEN
		RAISE EXCEPTION 'permission denied for table %', target USING ERRCODE = 'insufficient_privilege', HINT = 'What refers to a table is told to roles that may delete its rows.';
	END IF;
	RETURN QUERY SELECT t.* FROM sweep._reference_tree(foreign_key, ARRAY[target], 1) AS t;
END
$$;
COMMENT ON FUNCTION sweep._reference_queries(oid, oid) IS 'the statements of sweep._reference_exists; raises unless the role may delete from the table that is referred to';

CREATE FUNCTION sweep._check_references(role text, relation regclass, path regclass[], is_inline boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
	owners pg_catalog.oid[];
	is_read boolean;
BEGIN
	FOR foreign_key IN SELECT * FROM sweep._referencing(relation, '', '') LOOP
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam
				WHERE i.indrelid = foreign_key.child AND i.indisvalid AND i.indisready AND i.indislive AND m.amname IN ('btree', 'hash')
					AND (i.indpred IS NULL OR pg_catalog.pg_get_expr(i.indpred, i.indrelid) = pg_catalog.format('(%I IS NOT NULL)', foreign_key.columns[1]))
					AND NOT EXISTS (SELECT FROM pg_catalog.unnest(foreign_key.columns) AS f (name) WHERE NOT EXISTS (
						SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attname = f.name
							AND a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:pg_catalog.cardinality(foreign_key.columns) - 1])))) THEN
			RAISE EXCEPTION 'foreign key "%" of % has no index', foreign_key.name, foreign_key.child USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('For each row that is deleted from %s all of %s would be read.', relation, foreign_key.child),
				HINT = sweep._create_index(foreign_key.child, foreign_key.columns);
		END IF;
		owners := sweep._asked_owners(foreign_key.child, foreign_key.action, path);
		is_read := is_inline AND owners <@ ARRAY[(SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = relation)];
		IF is_read AND owners <> '{}' THEN
			PERFORM sweep._check_table(role, foreign_key.child, '{SELECT}');
		END IF;
		IF foreign_key.action = 'c' AND foreign_key.child <> ALL (path) THEN
			PERFORM sweep._check_references(role, foreign_key.child, path || foreign_key.child, is_read);
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._check_references(text, regclass, regclass[], boolean) IS
	'raises unless each foreign key that refers to the table can be followed by an index, and by the role where its statements read the other table themselves';

-- ------------------------------------------------------------------ age
CREATE FUNCTION sweep._age_type(relation regclass, age_column text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	type pg_catalog.text;
BEGIN
	SELECT pg_catalog.format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL) INTO type FROM pg_catalog.pg_attribute a
		JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE a.attrelid = relation AND a.attname = age_column AND a.attnum > 0 AND NOT a.attisdropped;
	IF type IS NULL THEN
		RAISE EXCEPTION 'column "%" of % does not exist', age_column, relation USING ERRCODE = 'undefined_column',
			HINT = coalesce('There is ' || (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
				WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
					AND a.atttypid IN ('pg_catalog.timestamptz'::pg_catalog.regtype, 'pg_catalog.timestamp'::pg_catalog.regtype, 'pg_catalog.date'::pg_catalog.regtype)) || '.', 'Name a column that says since when the row is there.');
	END IF;
	IF type NOT IN ('timestamp with time zone', 'timestamp without time zone', 'date') THEN
		RAISE EXCEPTION 'column "%" of % is of type %', age_column, relation, type USING ERRCODE = 'datatype_mismatch',
			HINT = 'The age of a row is a timestamptz, timestamp or date. For another type write the batch yourself: sweep.create_job(..., step => ...).';
	END IF;
	RETURN type;
END
$$;
COMMENT ON FUNCTION sweep._age_type(regclass, text) IS 'timestamptz, timestamp or date, as the catalogue calls it; raises for any other type';

-- Days and months are those of the time zone, and so are values without one.
CREATE FUNCTION sweep._age_limit(type text, args jsonb) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE type WHEN 'timestamp with time zone' THEN pg_catalog.format('pg_catalog.timezone(%L, %s)', z.zone, z.moment)
			WHEN 'date' THEN pg_catalog.format('(%s)::pg_catalog.date', z.moment) ELSE '(' || z.moment || ')' END
		FROM (SELECT p.zone, pg_catalog.format('pg_catalog.timezone(%L, $3) OPERATOR(pg_catalog.-) %L::pg_catalog.interval', p.zone, (args ->> 'keep')::interval) AS moment
			FROM (SELECT coalesce(args ->> 'timezone', 'UTC') AS zone) AS p) AS z);
END
$$;
COMMENT ON FUNCTION sweep._age_limit(text, jsonb) IS 'an expression: rows that are older are not kept';

CREATE FUNCTION sweep._age_key(relation regclass, age_column text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- An index with unique keys is best, with as few columns as possible; otherwise the one with the most columns.
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i
			JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = age_column
			CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k CROSS JOIN LATERAL sweep._is_unique(relation, k.columns) AS u (is_unique)
		WHERE i.indrelid = relation AND k.columns IS NOT NULL
		ORDER BY u.is_unique DESC, CASE WHEN u.is_unique THEN pg_catalog.cardinality(k.columns) ELSE - pg_catalog.cardinality(k.columns) END, i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no index that begins with "%"', relation, age_column USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each batch would read the whole table. It must be a valid btree index without a WHERE.', HINT = sweep._create_index(relation, ARRAY[age_column]);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._age_key(regclass, text) IS 'the columns by which the oldest rows are found, and where their nulls are in the index; raises when there is no such index';

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
	-- Generated columns are generated again.
	RETURN (SELECT pg_catalog.array_agg(b.attname::pg_catalog.text ORDER BY b.attnum) FROM pg_catalog.pg_attribute b WHERE b.attrelid = archive AND b.attnum > 0 AND NOT b.attisdropped
		AND b.attgenerated = '' AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped));
END
$$;
COMMENT ON FUNCTION sweep._archive_columns(regclass, regclass) IS 'the columns that are moved; raises unless the other table has all of them';

-- One statement in either case: what is moved is in one of the two tables for everybody at any time.
CREATE FUNCTION sweep._removal(relation regclass, part regclass, archive regclass, picked text, condition text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names pg_catalog.text;
	removal constant pg_catalog.text := pg_catalog.format('DELETE FROM %s WHERE %s', sweep._source(relation, part), condition);
	with_picked constant pg_catalog.text := CASE WHEN picked IS NULL THEN '' ELSE pg_catalog.format('WITH picked AS MATERIALIZED (%s) ', picked) END;
BEGIN
	IF archive IS NULL THEN
		RETURN with_picked || removal;
	END IF;
	SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n) INTO names
		FROM pg_catalog.unnest(sweep._archive_columns(relation, archive)) WITH ORDINALITY AS u (name, n);
	RETURN pg_catalog.format('%s gone AS (%s RETURNING %s) INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM gone',
		CASE WHEN picked IS NULL THEN 'WITH' ELSE with_picked || ',' END, removal, names, sweep._table_name(archive), names, names);
END
$$;
COMMENT ON FUNCTION sweep._removal(regclass, regclass, regclass, text, text) IS 'the statement that deletes the rows of a condition, or moves them to the other table';

-- ------------------------------------------------------------------ the statements
CREATE FUNCTION sweep._retention_statements(args jsonb, again boolean, role oid, as_of timestamptz, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	archive constant pg_catalog.regclass := CASE WHEN args ? 'archive_to' THEN sweep._find_table('archive_to', args ->> 'archive_to', NULL) END;
	age constant pg_catalog.text := args ->> 'age_column';
	type constant pg_catalog.text := sweep._age_type(relation, age);
	age_limit constant pg_catalog.text := sweep._age_limit(type, args);
	key pg_catalog.record;
	table_name constant pg_catalog.text := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = relation);
	blockers constant pg_catalog.text[] := sweep._blockers(relation, table_name, ARRAY[relation]);
	due pg_catalog.text := pg_catalog.format('%I.%I OPERATOR(pg_catalog.<) %s', table_name, age, age_limit);
	free pg_catalog.text := '';
	cascading constant pg_catalog.bool := sweep._referred_columns(relation, false) <> '{}' AND args ->> 'cascade' = 'batched';
	same_key pg_catalog.text;
	moment pg_catalog.text;
	parts pg_catalog.text[] := known_parts;
	place pg_catalog.regclass;
	next_part pg_catalog.text;
	first boolean;
BEGIN
	IF args ->> 'cascade' = 'refuse' AND sweep._referred_columns(relation, false) <> '{}' THEN
		RAISE EXCEPTION 'rows of other tables go, or change, with those of %', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = (SELECT pg_catalog.format('Foreign key "%s" of %s has an ON DELETE action.', r.name, r.child) FROM sweep._referencing(relation, '', '') AS r WHERE r.action IN ('c', 'n', 'd') LIMIT 1),
			HINT = 'Write cascade => ''batched'' to have them deleted batch by batch.';
	END IF;
	IF args ? 'condition' THEN
		PERFORM sweep._check_condition(args ->> 'condition');
		due := pg_catalog.format(E'%s AND (%s\n)', due, args ->> 'condition');
	END IF;
	IF pg_catalog.cardinality(blockers) > 0 THEN
		free := pg_catalog.format(' AND NOT %s', pg_catalog.array_to_string(blockers, ' AND NOT '));
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = relation) THEN
		IF parts IS NULL THEN
			EXECUTE pg_catalog.format('SELECT (%s)::pg_catalog.text', age_limit) INTO moment USING NULL::int, NULL::pg_catalog.jsonb, as_of;
			parts := sweep._parts(relation, age, role, type, moment);
		END IF;
		SELECT pg_catalog.to_regclass(u.name), (SELECT pg_catalog.jsonb_build_object('part', parts[u.n + 1]) WHERE u.n < pg_catalog.cardinality(parts)) INTO place, next_part
			FROM pg_catalog.unnest(parts) WITH ORDINALITY AS u (name, n)
			WHERE (part IS NULL OR u.name COLLATE "C" >= part COLLATE "C") AND pg_catalog.to_regclass(u.name) IS NOT NULL ORDER BY u.n LIMIT 1;
	END IF;
	key := sweep._age_key(coalesce(place, relation), age);
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(relation, place, key.columns, key.nulls, due || CASE WHEN again THEN free ELSE '' END, first);
		made.next_part := next_part;
		made.parts := parts;
		made.counter := CASE WHEN archive IS NULL THEN 'deleted' ELSE 'moved' END;
		IF free <> '' THEN
			made.rest_counter := 'referenced';
			made.epilogue := pg_catalog.format('SELECT EXISTS (SELECT FROM %s WHERE %s%s)', sweep._source(relation, NULL), due, free);
		END IF;
		IF cascading THEN
			-- Rows that go with them are counted first; the statement deletes those that were counted, by their places.
			made.cascading := relation;
			made.roots := sweep._roots(relation, place, pg_catalog.format('%s AND %s%s', due, sweep._range(relation, key.columns, first), free), NULL);
			made.pick := sweep._removal(relation, place, archive, NULL, pg_catalog.format('%s AND %s%s', sweep._at_places(relation, place), due, free));
		ELSE
			made.work := sweep._removal(relation, place, archive, NULL, pg_catalog.format('%s AND %s%s', due, sweep._range(relation, key.columns, first), free));
		END IF;
		IF made.before IS NOT NULL THEN
			same_key := pg_catalog.format('%s AND %s%s', due, sweep._key_compare(relation, key.columns, '=', '$4'), free);
			-- By their places, which are those of a partition each.
			IF cascading THEN
				made.same_roots := sweep._roots(relation, place, same_key, '$1');
			ELSE
				made.pick := sweep._removal(relation, place, archive, pg_catalog.format('SELECT %1$I.tableoid AS part, %1$I.ctid AS place FROM %2$s WHERE %3$s LIMIT $1',
				table_name, sweep._source(relation, place), same_key), pg_catalog.format('%1$I.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT p.place FROM picked AS p))'
				' AND EXISTS (SELECT FROM picked AS p WHERE p.place OPERATOR(pg_catalog.=) %1$I.ctid AND p.part OPERATOR(pg_catalog.=) %1$I.tableoid) AND %2$s', table_name, same_key));
			END IF;
		END IF;
		IF args ->> 'partitions' = 'drop' THEN
			made.prologue := pg_catalog.format('SELECT d.rows, d.next_cursor, d.detail FROM sweep._drop_partition(%L, %L, (%s)::pg_catalog.text, $2) AS d'
				' WHERE (($2 OPERATOR(pg_catalog.->) ''after'') IS NULL)', sweep._table_name(relation), type, age_limit);
		END IF;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._retention_statements(jsonb, boolean, oid, timestamptz, text, text[]) IS 'the statements of a retention, of a partition of its table or of all of it';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep.retention_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.retention_step(sweep.batch) IS 'step of the jobs that sweep.create_retention makes';

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
	PERFORM sweep._check_references(role, relation, ARRAY[relation], true);
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_constraint c ON c.confrelid = t.relid AND c.contype = 'f' AND c.conparentid = 0
			WHERE t.relid <> relation) THEN
		RAISE EXCEPTION 'foreign keys refer to partitions of %', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Have them refer to the table itself, or create a job for each partition.';
	END IF;
	PERFORM sweep._check_partitions(role, relation, args);
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
	PERFORM FROM sweep._retention_statements(args, false, sweep._role_oid(role), pg_catalog.now(), NULL, NULL);
END
$$;
COMMENT ON FUNCTION sweep._check_retention(text, jsonb, jsonb) IS 'raises unless the role can delete what is too old, or move it';

CREATE FUNCTION sweep._create_retention(caller oid, job sweep.job_definition, target text, age_column text, keep interval, condition text, archive_to text,
	partitions text, cascade text, run_as regrole, paused boolean, replace boolean) RETURNS text
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
	IF keep <= interval '0' OR keep > interval '1000 years' THEN
		RAISE EXCEPTION 'invalid keep %', keep USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be greater than zero and at most 1000 years.';
	END IF;
	IF cascade NOT IN ('batched', 'at_once', 'refuse') THEN
		RAISE EXCEPTION 'invalid cascade "%"', cascade USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "batched", "at_once" or "refuse".';
	END IF;
	job := sweep._begin_maker(caller, job, 'retention', relation, run_as);
	-- The next run goes on where one has stopped at a limit, and not over what that one has left dead.
	job.cursor := 'drain';
	job.args := pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'age_column', age_column, 'keep', keep,
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
	run_as regrole DEFAULT NULL, description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_retention IS
	'creates a job that deletes rows that are older than the retention time, or moves them to another table; returns its name';
