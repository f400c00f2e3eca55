--
-- Rows that are deleted, or lose their reference, together with a deleted row: the tables with foreign keys with ON DELETE CASCADE, SET
-- NULL or SET DEFAULT, and the statements by which cascade.c and dismantle.c count, find and delete their rows.
--
CREATE FUNCTION sweep._referred_columns(relation regclass, is_asked boolean) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum), '{}') FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = relation AND EXISTS (SELECT FROM pg_catalog.pg_constraint c
			WHERE c.contype = 'f' AND c.confrelid = relation AND a.attnum = ANY (c.confkey))
		AND (is_asked OR EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.contype = 'f' AND c.confrelid = relation AND c.confdeltype IN ('c', 'n', 'd')
				AND pg_catalog.to_jsonb(c) -> 'conenforced' IS DISTINCT FROM 'false')));
END
$$;
COMMENT ON FUNCTION sweep._referred_columns(regclass, boolean) IS 'the columns of a table to which foreign keys refer; none when no other rows are deleted or changed with its rows; is_asked: also foreign keys that keep its rows';

-- "removes" returns for each changed row whether it refers to the same row again: true if a trigger has set that, NULL if the default has. Rows
-- of a table to which no further rows refer are counted. In other tables the keys are read, by "places", or by "counts", which locks the rows,
-- so that no rows are added below them.
CREATE FUNCTION sweep._cascade_statements(fk oid, child regclass, action "char", is_asked boolean, parent_columns text[], joined text, OUT counts text, OUT places text, OUT removes text, OUT holds text) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	below constant pg_catalog.text[] := CASE WHEN action = 'c' THEN sweep._referred_columns(child, is_asked) ELSE '{}' END;
	next constant int := pg_catalog.cardinality(parent_columns) + 1;
	key constant pg_catalog.text := (SELECT pg_catalog.format('ROWS FROM (%s) AS sweep_parent (%s)',
			pg_catalog.string_agg(pg_catalog.format('pg_catalog.unnest($%s)', u.n), ', ' ORDER BY u.n), pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n))
		FROM pg_catalog.unnest(parent_columns) WITH ORDINALITY AS u (name, n));
	-- The key of a single row is not joined as a table, which would be copied for each child.
	one_key constant pg_catalog.text := (SELECT pg_catalog.format('(SELECT %s) AS sweep_parent', pg_catalog.string_agg(pg_catalog.format('(SELECT ($%s)[1]) AS %I', u.n, u.name), ', ' ORDER BY u.n))
		FROM pg_catalog.unnest(parent_columns) WITH ORDINALITY AS u (name, n));
	source constant pg_catalog.text := sweep._referring_source(child, 'sweep_child');
	read constant pg_catalog.text := 'sweep_child.tableoid, sweep_child.ctid' || (SELECT coalesce(pg_catalog.string_agg(pg_catalog.format(', sweep_child.%I', u.name), '' ORDER BY u.n), '')
		FROM pg_catalog.unnest(below) WITH ORDINALITY AS u (name, n));
	there constant pg_catalog.text := pg_catalog.format('%s AND sweep_child.ctid OPERATOR(pg_catalog.=) ANY ($%s) AND sweep_child.tableoid OPERATOR(pg_catalog.=) $%s', joined, next, next + 1);
BEGIN
	counts := CASE WHEN below = '{}' THEN pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT FROM %s JOIN %s ON %s LIMIT $%s) AS sweep_counted', key, source, joined, next)
		ELSE pg_catalog.format('SELECT %s FROM %s JOIN %s ON %s LIMIT $%s FOR UPDATE OF sweep_child', read, key, source, joined, next) END;
	places := pg_catalog.format('SELECT %s FROM %s JOIN %s ON %s LIMIT $%s', read, key, source, joined, next);
	removes := CASE action WHEN 'c' THEN pg_catalog.format('DELETE FROM %s USING %s WHERE %s', source, one_key, there)
		ELSE (SELECT pg_catalog.format('UPDATE %s SET %s FROM %s WHERE %s RETURNING %s', source,
				pg_catalog.string_agg(pg_catalog.format('%I = %s', a.attname, CASE action WHEN 'n' THEN 'NULL' ELSE 'DEFAULT' END), ', ' ORDER BY a.attnum), one_key, there, pg_catalog.format(CASE action WHEN 'n' THEN '(%s) IS TRUE' ELSE 'CASE WHEN %s THEN NULL ELSE false END' END, joined))
			FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid
				AND a.attnum = ANY (CASE WHEN pg_catalog.cardinality(c.confdelsetcols) > 0 THEN c.confdelsetcols ELSE c.conkey END)
			WHERE c.oid = fk) END;
	holds := CASE WHEN below <> '{}' THEN pg_catalog.format('SELECT %s FROM %s CROSS JOIN %s WHERE %s FOR UPDATE OF sweep_child', read, source, one_key, there) END;
END
$$;
COMMENT ON FUNCTION sweep._cascade_statements(oid, regclass, "char", boolean, text[], text) IS
	'statements for the rows that refer by a foreign key to any of the keys in the first parameters: counts them, or reads and locks them; places finds them, both up to the number in the next parameter; removes deletes or changes those at the given places of a table; holds locks and reads those to which further rows refer';

CREATE FUNCTION sweep._circular_tables(relation regclass) RETURNS oid[]
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE step AS (
		SELECT c.confrelid AS parent, c.conrelid AS child FROM pg_catalog.pg_constraint c WHERE c.contype = 'f' AND c.confdeltype = 'c'
	), below AS (
		SELECT relation::pg_catalog.oid AS root, relation::pg_catalog.oid AS child
		UNION SELECT b.root, s.child FROM below b JOIN step s ON s.parent = b.child
	), reached AS (
		SELECT s.parent AS root, s.child FROM step s WHERE s.parent IN (SELECT b.child FROM below b)
		UNION SELECT r.root, s.child FROM reached r JOIN step s ON s.parent = r.child
	)
	SELECT coalesce(pg_catalog.array_agg(DISTINCT r.child), '{}') FROM reached r WHERE EXISTS (SELECT FROM reached c WHERE c.root = r.root AND c.child = r.root)
$$;
COMMENT ON FUNCTION sweep._circular_tables(regclass) IS 'of the tables whose rows are deleted with those of a table, those that are in a circle of foreign keys, or that refer to a table in one, directly or not';

CREATE FUNCTION sweep._cascades(role oid, relation regclass) RETURNS TABLE (foreign_key oid, parent oid, child oid, root oid, places oid[], types oid[], keeps boolean, deletes boolean, attributes oid[], counts text, finds text, removes text, holds text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	tables pg_catalog.oid[] := ARRAY[relation::pg_catalog.oid];
	circular constant pg_catalog.oid[] := sweep._circular_tables(relation);
	place int := 1;
	fk pg_catalog.record;
	referred pg_catalog.text[];
	names pg_catalog.text[];
BEGIN
	IF NOT pg_catalog.has_table_privilege(role, relation, 'DELETE') THEN
		RAISE EXCEPTION 'permission denied for table %', relation USING ERRCODE = 'insufficient_privilege', HINT = 'Only roles that may delete rows of the table can see what is deleted with them.';
	END IF;
	-- The condition of the batch has checked which rows are kept, also below a row, but it follows a circle of tables only once.
	WHILE place <= pg_catalog.cardinality(tables) LOOP
		referred := sweep._referred_columns(tables[place], tables[place] = ANY (circular));
		FOR fk IN SELECT * FROM sweep._referencing(tables[place], 'sweep_parent', 'sweep_child') AS r WHERE r.action IN ('c', 'n', 'd') OR tables[place] = ANY (circular) LOOP
			foreign_key := fk.fk;
			parent := tables[place];
			child := fk.child;
			root := coalesce(pg_catalog.pg_partition_root(fk.child)::pg_catalog.oid, fk.child);
			SELECT pg_catalog.array_agg(pg_catalog.array_position(referred, a.attname::pg_catalog.text)::pg_catalog.oid ORDER BY k.n), pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n)
				INTO places, names
				FROM pg_catalog.pg_constraint c CROSS JOIN LATERAL pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k (attnum, n)
					JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum WHERE c.oid = fk.fk;
			types := fk.types;
			keeps := fk.action IN ('a', 'r');
			deletes := fk.action = 'c';
			attributes := (SELECT pg_catalog.array_agg(a.attnum::pg_catalog.int4::pg_catalog.oid ORDER BY a.attnum) FROM pg_catalog.pg_attribute a WHERE fk.action = 'c' AND a.attrelid = fk.child
				AND a.attname::pg_catalog.text = ANY (sweep._referred_columns(fk.child, fk.child::pg_catalog.oid = ANY (circular))));
			SELECT m.counts, m.places, m.removes, m.holds INTO counts, finds, removes, holds FROM sweep._cascade_statements(fk.fk, fk.child, fk.action, fk.child::pg_catalog.oid = ANY (circular), names, fk.joined) AS m;
			RETURN NEXT;
			IF fk.action = 'c' AND fk.child::pg_catalog.oid <> ALL (tables) THEN
				tables := tables || fk.child::pg_catalog.oid;
			END IF;
		END LOOP;
		place := place + 1;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._cascades(oid, regclass) IS
	'the foreign keys by which rows are deleted or changed with those of a table, directly or indirectly; raises unless the role may delete its rows';

-- A ctid does not identify the partition. If possible, all rows of a batch are in one partition.
CREATE FUNCTION sweep._at_places(relation regclass, part regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%I.ctid OPERATOR(pg_catalog.=) ANY ($6)', c.relname) || CASE WHEN part IS NULL AND c.relkind = 'p' THEN ' AND EXISTS ' || sweep._among_places(c.relname) ELSE '' END
		FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._at_places(regclass, regclass) IS 'a condition: the row is at one of the places in $6, in the table beside it in $7';

CREATE FUNCTION sweep._among_places(alias text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('(SELECT FROM ROWS FROM (pg_catalog.unnest($6), pg_catalog.unnest($7)) AS sweep_place (place, part)'
		' WHERE sweep_place.place OPERATOR(pg_catalog.=) %1$I.ctid AND sweep_place.part OPERATOR(pg_catalog.=) %1$I.tableoid)', alias);
END
$$;
COMMENT ON FUNCTION sweep._among_places(text) IS 'a subquery: the place of a row, when it is among those in $6 and $7';

CREATE FUNCTION sweep._roots(relation regclass, part regclass, condition text, most text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('SELECT %1$I.tableoid, %1$I.ctid, %2$s FROM %3$s WHERE %4$s AND NOT EXISTS %5$s%6$s', c.relname,
			(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(sweep._referred_columns(relation, false)) WITH ORDINALITY AS u (name, n)),
			sweep._source(relation, part), condition, sweep._among_places(c.relname), ' LIMIT ' || most)
		FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._roots(regclass, regclass, text, text) IS 'the statement that finds the places and keys of rows whose deletion affects other rows, except those at the places in $6';
