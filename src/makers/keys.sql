--
-- Keys of the makers: the columns or the expression of an index, their values in a cursor, and their order.
--
CREATE FUNCTION sweep._index_expression(index oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	definition constant pg_catalog.text := pg_catalog.pg_get_indexdef(index, 1, false);
BEGIN
	-- pg_get_indexdef() writes a function call without parentheses around it.
	RETURN CASE WHEN definition LIKE '(%' THEN definition ELSE pg_catalog.format('(%s)', definition) END;
END
$$;
COMMENT ON FUNCTION sweep._index_expression(oid) IS 'the expression with which an index begins, in parentheses, with qualified names';

-- PL/pgSQL although it is one expression: a function in SQL is planned at each call, and these are called for each partition.
-- Since version 18 a NOT NULL constraint may be NOT VALID: older rows may have a null.
CREATE FUNCTION sweep._never_null(relation oid, attnum int) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attnum = _never_null.attnum AND a.attnotnull
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.conrelid = relation AND c.contype = 'n' AND NOT c.convalidated AND c.conkey[1] = a.attnum));
END
$$;
COMMENT ON FUNCTION sweep._never_null(oid, int) IS 'whether no row of a table has a null in a column; false for no column';

-- In an array, a row or a range, a regclass or the like is written as a name, which may later be that of no object, or of several.
CREATE FUNCTION sweep._has_names(type oid) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (WITH RECURSIVE part AS (
			SELECT _has_names.type AS oid
			UNION SELECT m.oid FROM part p JOIN pg_catalog.pg_type t ON t.oid = p.oid CROSS JOIN LATERAL (SELECT t.typelem UNION ALL SELECT t.typbasetype
				UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
				UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)) AS m (oid) WHERE m.oid <> 0)
		SELECT pg_catalog.bool_or(e.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND e.typname ~ '^reg') FROM part p JOIN pg_catalog.pg_type e ON e.oid = p.oid);
END
$$;
COMMENT ON FUNCTION sweep._has_names(oid) IS 'whether the text of a value of this type has names of objects: of a regclass or the like, or of a type with such a part';

-- Only columns with a default operator class of pg_catalog and their own collation, all in one direction: then a row comparison
-- is a range of the index. The first column may be nullable (a null is in no range) and may be an expression; the others may not.
CREATE FUNCTION sweep._index_key(index oid, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.array_agg(p.attname ORDER BY p.n), pg_catalog.array_agg(p.nulls ORDER BY p.n) INTO columns, nulls
		FROM (SELECT k.n, coalesce(a.attname::pg_catalog.text, CASE WHEN k.n = 0 THEN sweep._index_expression(index) END) AS attname,
				CASE WHEN (i.indoption[k.n] & 2 = 2) <> (i.indoption[k.n] & 1 = 1) THEN 'first' ELSE 'last' END AS nulls,
				pg_catalog.bool_and((k.n = 0 OR sweep._never_null(i.indrelid, a.attnum)) AND i.indoption[k.n] & 1 = i.indoption[0] & 1
					AND o.opcdefault AND o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace AND i.indcollation[k.n] = coalesce(a.attcollation, 0::pg_catalog.oid)
					-- PostgreSQL has no operators for a domain of an enum.
					AND (o.opcintype = 'pg_catalog.anyenum'::pg_catalog.regtype AND t.typtype = 'd' OR t.typcategory IN ('A', 'C', 'R') AND sweep._has_names(t.oid)) IS NOT TRUE) OVER (ORDER BY k.n) AS fits
			FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
				LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n] AND a.attnum > 0
				LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[k.n]
			WHERE i.indexrelid = index AND i.indisvalid AND i.indisready AND i.indislive AND i.indpred IS NULL) AS p
			JOIN pg_catalog.pg_class c ON c.oid = index JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname = 'btree'
		WHERE p.fits;
END
$$;
COMMENT ON FUNCTION sweep._index_key(oid) IS 'the leading columns of an index that can be read in ranges, the first of which may be an expression in parentheses, and where their nulls are; NULL: none';

CREATE FUNCTION sweep._is_unique(relation regclass, columns text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = relation AND i.indisunique AND i.indimmediate AND i.indisvalid
		AND i.indpred IS NULL AND i.indexprs IS NULL
		AND NOT EXISTS (SELECT FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = relation AND a.attnum = i.indkey[k.n] WHERE a.attname::pg_catalog.text <> ALL (columns) OR a.attcollation <> i.indcollation[k.n])));
END
$$;
COMMENT ON FUNCTION sweep._is_unique(regclass, text[]) IS 'whether no two rows without nulls have the same values in these columns';

-- In a cursor, a value of the key must be text from which the same value can be read. That is not so for the JSON of an array, a row or a jsonb,
-- nor for a floating-point number with the extra_float_digits of a role, nor for a range of timestamps in its DateStyle, in which the
-- abbreviation of a time zone may be read as another zone, nor for money: lc_monetary decides as what amount its text is read, and how many
-- decimals the money of a number has.
CREATE FUNCTION sweep._key_value(value anyelement) RETURNS jsonb
	LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET lc_monetary = 'C'
AS $$
BEGIN
	RETURN pg_catalog.to_jsonb(pg_catalog.format('%s', value));
END
$$;
COMMENT ON FUNCTION sweep._key_value(anyelement) IS 'the value of a key column for a cursor, if plain JSON is not enough';

-- With array_nulls off, a null in an array would be read as a text. In any DateStyle and IntervalStyle the texts above have the same meaning.
CREATE FUNCTION sweep._read_value(value text, type anyelement) RETURNS anyelement
	LANGUAGE c STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET array_nulls = on SET lc_monetary = 'C' AS 'MODULE_PATHNAME', 'sweep_range_read_value';
COMMENT ON FUNCTION sweep._read_value(text, anyelement) IS 'the value that sweep._key_value has written; type: a null of its type';

-- name: a column, or an expression as PostgreSQL writes it, in parentheses. COLLATE is added if the collation is not that of the type.
CREATE FUNCTION sweep._key_expression(relation regclass, name text, OUT expression text, OUT type text, OUT value_format text, OUT read_format text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT k.expression, sweep._type_name(k.atttypid, k.atttypmod)
			|| coalesce((SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, c.collname) FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
				WHERE c.oid = k.attcollation AND t.typtype = 'd' AND c.oid <> t.typcollation), ''),
			-- A key of regclass or the like is kept as OID: its name may by then be that of no object, or of several.
			CASE WHEN b.is_named THEN '(%s)::pg_catalog.oid' WHEN b.is_special THEN 'sweep._key_value(%s)' ELSE '%s' END,
			CASE WHEN b.is_named THEN '%s::pg_catalog.oid::' WHEN b.is_special THEN pg_catalog.format('sweep._read_value(%%s, NULL::%s)::', pg_catalog.replace(sweep._type_name(b.oid, -1), '%', '%%')) ELSE '%s::' END
		INTO expression, type, value_format, read_format
		FROM (SELECT pg_catalog.format('%I.%I', sweep._relation_name(relation), name) AS expression, a.atttypid, a.atttypmod, a.attcollation
				FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped
			UNION ALL SELECT name, a.atttypid, a.atttypmod, a.attcollation FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = 1
				WHERE i.indrelid = relation AND i.indkey[0] = 0 AND sweep._index_expression(i.indexrelid) = name) AS k
			JOIN pg_catalog.pg_type t ON t.oid = k.atttypid CROSS JOIN LATERAL (SELECT e.oid, e.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND e.typname ~ '^reg',
					t.typtype = 'd' OR t.typcategory IN ('A', 'C', 'R') OR t.oid IN ('pg_catalog.jsonb'::pg_catalog.regtype, 'pg_catalog.float4'::pg_catalog.regtype, 'pg_catalog.float8'::pg_catalog.regtype,
						'pg_catalog.interval'::pg_catalog.regtype, 'pg_catalog.money'::pg_catalog.regtype)
				FROM pg_catalog.pg_type e WHERE e.oid = sweep._base_type(t.oid)) AS b (oid, is_named, is_special) LIMIT 1;
	read_format := read_format || pg_catalog.replace(type, '%', '%%');
END
$$;
COMMENT ON FUNCTION sweep._key_expression(regclass, text) IS
	'a column of the key in a statement, its type, and the formats to write its value into a cursor and to read it; NULL: the table has neither the column nor an index that begins with the expression';

CREATE FUNCTION sweep._key_list(relation regclass, columns text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s AS sweep_%s', e.expression, u.n), ', ' ORDER BY u.n)
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e);
END
$$;
COMMENT ON FUNCTION sweep._key_list(regclass, text[]) IS 'the columns of a subquery k that sweep._key_json reads';

-- The next functions return SQL texts: the key of a cursor, and comparisons with it.
CREATE FUNCTION sweep._key_compare(relation regclass, columns text[], operator text, source text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE pg_catalog.cardinality(columns) WHEN 1 THEN pg_catalog.min(k.name) || o.compare || pg_catalog.min(k.value)
			ELSE pg_catalog.format('ROW(%s)%sROW(%s)', pg_catalog.string_agg(k.name, ', ' ORDER BY k.n), o.compare, pg_catalog.string_agg(k.value, ', ' ORDER BY k.n))
			-- Repeats the condition for the first column alone, because the planner needs it for partition pruning.
			|| CASE operator WHEN '=' THEN '' ELSE pg_catalog.format(' AND %s OPERATOR(pg_catalog.%s=) %s', pg_catalog.min(k.name) FILTER (WHERE k.n = 1),
				pg_catalog.left(operator, 1), pg_catalog.min(k.value) FILTER (WHERE k.n = 1)) END END
		FROM (SELECT u.n, e.expression AS name, pg_catalog.format('(' || e.read_format || ')', pg_catalog.format('(%s OPERATOR(pg_catalog.#>>) ''{after,%s}'')', source, u.n - 1)) AS value
				FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e) AS k,
			(SELECT pg_catalog.format(' OPERATOR(pg_catalog.%s) ', operator) AS compare) AS o
		GROUP BY o.compare);
END
$$;
COMMENT ON FUNCTION sweep._key_compare(regclass, text[], text, text) IS 'a condition: the key of a row is greater or less than, or equal to, that of a cursor';

CREATE FUNCTION sweep._key_values(relation regclass, columns text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('pg_catalog.jsonb_build_array(%s)', pg_catalog.string_agg(pg_catalog.format(e.value_format, 'k.sweep_' || u.n), ', ' ORDER BY u.n))
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e);
END
$$;
COMMENT ON FUNCTION sweep._key_values(regclass, text[]) IS 'an expression: the key of row k as a JSON array';

CREATE FUNCTION sweep._key_json(relation regclass, columns text[], part text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('pg_catalog.jsonb_build_object(''by'', %1$L, ''after'', %3$s%2$s)',
			pg_catalog.array_to_string(columns, ', '), ', ''part'', ' || pg_catalog.quote_literal(part), sweep._key_values(relation, columns));
END
$$;
COMMENT ON FUNCTION sweep._key_json(regclass, text[], text) IS 'an expression: the key of row k as a cursor, of a partition or not';

CREATE FUNCTION sweep._key_order(relation regclass, columns text[], nulls text[], down boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s %s NULLS %s', e.expression, CASE WHEN down THEN 'DESC' ELSE 'ASC' END,
			CASE WHEN (nulls[u.n] = 'first') <> down THEN 'FIRST' ELSE 'LAST' END), ', ' ORDER BY u.n)
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e);
END
$$;
COMMENT ON FUNCTION sweep._key_order(regclass, text[], text[], boolean) IS 'the ORDER BY list, from the smallest key on, or (down) from the largest';

-- With another collation or type the keys have another order, and other keys are after the cursor or up to a bound. The order stays the same
-- when integers or texts get a longer type.
CREATE FUNCTION sweep._key_ordering(relation text, key text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s.%s: %s%s', a.attrelid, a.attnum,
			CASE WHEN a.atttypid IN ('pg_catalog.int2'::pg_catalog.regtype, 'pg_catalog.int4'::pg_catalog.regtype) THEN 'bigint' WHEN a.atttypid = 'pg_catalog.varchar'::pg_catalog.regtype THEN 'text' ELSE pg_catalog.format_type(a.atttypid, NULL) END,
			CASE WHEN a.attcollation <> 0 THEN ' COLLATE ' || a.attcollation::pg_catalog.regcollation ELSE '' END), ', ' ORDER BY pg_catalog.array_position(key, a.attname::pg_catalog.text))
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = pg_catalog.to_regclass(relation) AND a.attname = ANY (key));
END
$$;
COMMENT ON FUNCTION sweep._key_ordering(text, text[]) IS 'what decides the order of a key: its columns, with their types and collations';

-- Another table may have that name, also after a restore; then the columns have other numbers.
CREATE FUNCTION sweep._check_ordering(relation text, key text[], cursor jsonb, advice text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns constant pg_catalog.text := E'[0-9]+\\.[0-9]+: ';
	known constant pg_catalog.text := cursor ->> 'ordering';
	ordering constant pg_catalog.text := sweep._key_ordering(relation, key);
	order_before constant pg_catalog.text := pg_catalog.regexp_replace(known, columns, '', 'g');
	order_now constant pg_catalog.text := pg_catalog.regexp_replace(ordering, columns, '', 'g');
BEGIN
	-- An older version stored no order for keys that are numbers.
	IF order_before <> order_now OR order_before = order_now AND known <> ordering AND pg_catalog.split_part(known, '.', 1) = pg_catalog.split_part(ordering, '.', 1)
			OR known IS NULL AND EXISTS (SELECT FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_attribute a ON a.attrelid = pg_catalog.to_regclass(relation) AND a.attname = u.name AND a.attcollation <> 0
				WHERE pg_catalog.jsonb_typeof(cursor -> 'after' -> (u.n - 1)::int) = 'number') THEN
		RAISE EXCEPTION 'the keys of % have another order since the job began', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = CASE WHEN order_before = order_now THEN pg_catalog.format('(%s) is of other columns than before', sweep._column_list(key)) ELSE pg_catalog.format('(%s) was %s, and is %s', sweep._column_list(key), coalesce(order_before, 'a number'), order_now) END
				|| ': it cannot be known which rows are done.',
			HINT = advice;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_ordering(text, text[], jsonb, text) IS 'raises when the order of the key of a cursor has changed; advice: the hint';
