--
-- Foreign keys that refer to a table whose rows are to be deleted: which rows they keep, and the checks whether that can be found out.
--
CREATE FUNCTION sweep._referencing(relation regclass, parent_alias text, child_alias text)
	RETURNS TABLE (fk oid, name text, child regclass, columns text[], keys text[], types oid[], joined text, action "char")
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT c.oid, c.conname::pg_catalog.text, c.conrelid::pg_catalog.regclass, pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n),
			pg_catalog.array_agg(p.key ORDER BY k.n), pg_catalog.array_agg(r.atttypid ORDER BY k.n),
			-- Casts to the argument types of the operator, because its schema may have another operator of that name for the
			-- types of the columns.
			pg_catalog.string_agg(pg_catalog.format('%s%s OPERATOR(%I.%s) %I.%I%s%s', p.key,
				sweep._cast_to(r.atttypid, o.oprleft), n.nspname, o.oprname, child_alias, a.attname, sweep._cast_to(a.atttypid, o.oprright), sweep._collation_of(a.attcollation, r.attcollation)), ' AND ' ORDER BY k.n),
			c.confdeltype
		FROM pg_catalog.pg_constraint c CROSS JOIN LATERAL pg_catalog.generate_subscripts(c.conkey, 1) AS k (n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[k.n]
			JOIN pg_catalog.pg_attribute r ON r.attrelid = c.confrelid AND r.attnum = c.confkey[k.n]
			JOIN pg_catalog.pg_operator o ON o.oid = c.conpfeqop[k.n] JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
			CROSS JOIN LATERAL (SELECT CASE WHEN parent_alias IS NULL THEN '$' || k.n ELSE pg_catalog.format('%I.%I', parent_alias, r.attname) END) AS p (key)
		WHERE c.contype = 'f' AND c.confrelid = relation
			-- Since version 18 a foreign key may be NOT ENFORCED: then it neither keeps rows nor deletes others.
			AND pg_catalog.to_jsonb(c) -> 'conenforced' IS DISTINCT FROM 'false'
			-- Leaves out the constraints of partitions of the referring table.
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = c.conparentid AND p.confrelid = c.confrelid)
		GROUP BY c.oid, c.conname, c.conrelid, c.confdeltype ORDER BY c.conname, c.conrelid;
END
$$;
COMMENT ON FUNCTION sweep._referencing(regclass, text, text) IS
	'the foreign keys that refer to a table, with the conditions that join both tables; without an alias of the table its keys are parameters';

-- Types have their schema, because statements are analysed with the search_path of the job, which may have another schema before pg_catalog.
CREATE FUNCTION sweep._type_name(type oid, typmod int) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN e.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND pg_catalog.split_part(pg_catalog.split_part(f.name, '(', 1), '[', 1) = pg_catalog.quote_ident(e.typname) THEN 'pg_catalog.' ELSE '' END || f.name
		FROM pg_catalog.pg_type t CROSS JOIN LATERAL pg_catalog.format_type(t.oid, typmod) AS f (name)
			-- An oidvector has elements and a name of its own.
			JOIN pg_catalog.pg_type e ON e.oid = CASE WHEN pg_catalog.right(f.name, 2) = '[]' THEN t.typelem ELSE t.oid END WHERE t.oid = type);
END
$$;
COMMENT ON FUNCTION sweep._type_name(oid, int) IS 'the name of a type in a statement: with its schema, unless it is a keyword of the grammar such as integer';

CREATE FUNCTION sweep._base_type(type oid) RETURNS oid
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	base pg_catalog.oid := type;
BEGIN
	WHILE (SELECT t.typtype = 'd' FROM pg_catalog.pg_type t WHERE t.oid = base) LOOP
		base := (SELECT t.typbasetype FROM pg_catalog.pg_type t WHERE t.oid = base);
	END LOOP;
	RETURN base;
END
$$;
COMMENT ON FUNCTION sweep._base_type(oid) IS 'the base type of a domain, also of a domain over a domain; any other type itself';

CREATE FUNCTION sweep._read_key(relation regclass, columns text[], cursor jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE (SELECT 'SELECT ' || pg_catalog.string_agg(pg_catalog.format(e.read_format, pg_catalog.format('($1 OPERATOR(pg_catalog.#>>) ''{after,%s}'')', u.n - 1)), ', ' ORDER BY u.n)
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e) USING cursor;
END
$$;
COMMENT ON FUNCTION sweep._read_key(regclass, text[], jsonb) IS 'raises when the key of a cursor has a value that its column does not accept';

CREATE FUNCTION sweep._cast_to(type oid, wanted oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN type = wanted OR t.typtype = 'p' THEN '' ELSE '::' || sweep._type_name(wanted, -1) END FROM pg_catalog.pg_type t WHERE t.oid = wanted);
END
$$;
COMMENT ON FUNCTION sweep._cast_to(oid, oid) IS 'the cast to append to a value of one type for another type, which may be polymorphic';

-- As in PostgreSQL's own checks: keys are compared by the collation of the referenced table if it is nondeterministic, else by that of the
-- referring table.
CREATE FUNCTION sweep._collation_of(referring oid, referred oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF referring = referred OR 0 IN (referring, referred) THEN
		RETURN '';
	END IF;
	RETURN (SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, c.collname) FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
		WHERE c.oid IN (referring, referred) ORDER BY c.oid = referred AND NOT c.collisdeterministic DESC, c.oid = referring DESC LIMIT 1);
END
$$;
COMMENT ON FUNCTION sweep._collation_of(oid, oid) IS 'the COLLATE clause to append to a column of a foreign key, if its collation differs from that of the referenced column';

-- Includes partitions of the table; child tables (INHERITS) do not share its foreign keys, so ONLY leaves them out.
CREATE FUNCTION sweep._referring_source(relation regclass, alias text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%s%s AS %I', CASE c.relkind WHEN 'p' THEN '' ELSE 'ONLY ' END, sweep._table_name(relation), alias) FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._referring_source(regclass, text) IS 'the FROM item for a table that refers to another table';

-- For ON DELETE CASCADE, also follows the tables that refer to the deleted rows. A circle of tables is followed once.
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
COMMENT ON FUNCTION sweep._asked_owners(regclass, "char", regclass[]) IS 'the owners of the tables that must be read for a foreign key before a row is deleted; none: no row keeps it';

-- A table of another owner is neither read nor planned in the statement itself: code of its owner would be executed as the role of the job.
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
	-- A quick check first, because few tables are referred to, and the complete query takes longer.
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
			-- A row that refers to itself can be deleted.
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
	'whether a row with this key cannot be deleted, because of rows that refer to it by a foreign key, or to rows that would be deleted with it; read as the owners of these tables';

-- A foreign key, followed by those that are checked for each row that would be deleted by it, and so on, with increasing depth.
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
		-- A row that refers to itself can be deleted.
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
	'the statements that read, as its owner, a table that refers to the last one of the path; each with the position of its key in the rows of the statement above';

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
		RAISE EXCEPTION 'permission denied for table %', target USING ERRCODE = 'insufficient_privilege', HINT = 'Only roles that may delete rows of the table can see what refers to it.';
	END IF;
	RETURN QUERY SELECT t.* FROM sweep._reference_tree(foreign_key, ARRAY[target], 1) AS t;
END
$$;
COMMENT ON FUNCTION sweep._reference_queries(oid, oid) IS 'the statements of sweep._reference_exists; raises unless the role may delete from the table that is referred to';

CREATE FUNCTION sweep._create_index(relation regclass, columns text[]) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('CREATE INDEX %sON %s (%s);', CASE c.relkind WHEN 'p' THEN '' ELSE 'CONCURRENTLY ' END, relation,
			sweep._column_list(columns))
		|| CASE c.relkind WHEN 'p' THEN ' It takes over indexes that its partitions have already, which can be created CONCURRENTLY.' ELSE '' END
		FROM pg_catalog.pg_class c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION sweep._create_index(regclass, text[]) IS 'the statement that creates an index, for a hint';

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
				WHERE i.indrelid = foreign_key.child AND i.indisvalid AND i.indisready AND i.indislive
					-- A foreign key with PERIOD looks for what overlaps, which an index of the kind that its key has serves.
					AND (m.amname IN ('btree', 'hash') OR m.amname = 'gist' AND (SELECT pg_catalog.to_jsonb(c) -> 'conperiod' = 'true' FROM pg_catalog.pg_constraint c WHERE c.oid = foreign_key.fk))
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
	'raises unless there is an index for each foreign key that refers to the table, and the role may read the tables that its statements read themselves';

CREATE FUNCTION sweep._check_referring(role text, relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_references(role, relation, ARRAY[relation], true);
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_constraint c ON c.confrelid = t.relid AND c.contype = 'f' AND c.conparentid = 0
			WHERE t.relid <> relation) THEN
		RAISE EXCEPTION 'foreign keys refer to partitions of %', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Have them refer to the table itself, or create a job for each partition.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_referring(text, regclass) IS 'raises unless the foreign keys that refer to a table allow its rows to be deleted in batches';

CREATE FUNCTION sweep._not_referenced(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	blockers constant pg_catalog.text[] := sweep._blockers(relation, sweep._relation_name(relation), ARRAY[relation]);
BEGIN
	RETURN coalesce(' AND NOT ' || pg_catalog.array_to_string(nullif(blockers, '{}'), ' AND NOT '), '');
END
$$;
COMMENT ON FUNCTION sweep._not_referenced(regclass) IS 'text to append to a condition: no row of another table keeps the row from being deleted; empty when none can';
