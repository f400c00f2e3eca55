--
-- The statements that delete rows, or move them to another table, for the jobs of sweep.create_retention and sweep.delete.
--
-- Deleting and moving are one statement each, so that a moved row is visible in exactly one of the two tables at any time.
CREATE FUNCTION sweep._removal(relation regclass, part regclass, archive regclass, picked text, condition text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names pg_catalog.text;
	removal constant pg_catalog.text := pg_catalog.format('DELETE FROM %s WHERE %s', sweep._source(relation, part), condition);
	with_picked constant pg_catalog.text := CASE WHEN picked IS NULL THEN '' ELSE pg_catalog.format('WITH sweep_picked AS MATERIALIZED (%s) ', picked) END;
BEGIN
	IF archive IS NULL THEN
		RETURN with_picked || removal;
	END IF;
	names := sweep._column_list(sweep._archive_columns(relation, archive));
	RETURN pg_catalog.format('%s gone AS (%s RETURNING %s) INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM gone',
		CASE WHEN picked IS NULL THEN 'WITH' ELSE with_picked || ',' END, removal, names, sweep._table_name(archive), names, names);
END
$$;
COMMENT ON FUNCTION sweep._removal(regclass, regclass, regclass, text, text) IS 'the statement that deletes the rows of a condition, or moves them to the archive table';

-- After a deletion an index is full of dead entries, which the planner does not know. With a constant limit, or an index that has all columns,
-- it would search the first rows there. Therefore the limit is an expression, for which it compares whole scans, and ctids are counted.
CREATE FUNCTION sweep._count_some(relation regclass, condition text, most int) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('(SELECT pg_catalog.count(sweep_counted.ctid) FROM (SELECT %I.ctid FROM %s WHERE %s LIMIT (SELECT %s)) AS sweep_counted)',
		sweep._relation_name(relation), sweep._source(relation, NULL), condition, most);
END
$$;
COMMENT ON FUNCTION sweep._count_some(regclass, text, int) IS 'an expression: how many rows meet a condition, up to that many';

CREATE FUNCTION sweep._rest_statement(relation regclass, condition text, bound text, referenced text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Without OFFSET 0 the planner would inline the column, and the rows would be counted twice. The bound holds for nearly all rows; IS
	-- TRUE keeps the planner from using an index for it.
	RETURN pg_catalog.format('SELECT e.stays OPERATOR(pg_catalog.>) 0, e.stays, %s::pg_catalog.int8, NULL::pg_catalog.jsonb FROM (SELECT %s OFFSET 0) AS e (stays)',
		coalesce(referenced, 'NULL'), sweep._count_some(relation, pg_catalog.format('%s AND (%s) IS TRUE', condition, bound), 10000));
END
$$;
COMMENT ON FUNCTION sweep._rest_statement(regclass, text, text, text) IS
	'an epilogue: the number of rows within the bound that still meet a condition, and the expression "referenced", which counts those that other rows keep';

-- Rows of one key, by their places, together with the partition of each. Rows that a trigger or a policy has kept would come first again, so they are skipped.
CREATE FUNCTION sweep._rows_of_key(relation regclass, part regclass, same_key text, OUT untried text, OUT picked text, OUT at_picked text, OUT finds text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	source constant pg_catalog.text := sweep._source(relation, part);
BEGIN
	untried := ' OFFSET coalesce(($2 OPERATOR(pg_catalog.->>) ''tried'')::pg_catalog.int8, 0)';
	picked := pg_catalog.format('SELECT %1$I.tableoid AS part, %1$I.ctid AS place FROM %2$s WHERE %3$s LIMIT $1%4$s', sweep._relation_name(relation), source, same_key, untried);
	at_picked := pg_catalog.format('%1$I.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT sweep_p.place FROM sweep_picked AS sweep_p))'
		' AND EXISTS (SELECT FROM sweep_picked AS sweep_p WHERE sweep_p.place OPERATOR(pg_catalog.=) %1$I.ctid AND sweep_p.part OPERATOR(pg_catalog.=) %1$I.tableoid)', sweep._relation_name(relation));
	finds := pg_catalog.format('SELECT FROM %s WHERE %s LIMIT 1%s', source, same_key, untried);
END
$$;
COMMENT ON FUNCTION sweep._rows_of_key(regclass, regclass, text) IS
	'parts of the statements for at most $1 rows of one key: an OFFSET, a query "sweep_picked", a condition that a row is in it, and a query that finds whether there are more';

-- seen: the condition of the rows that a batch reads; due: of the rows that are to be deleted; free: leaves out rows that others keep.
CREATE FUNCTION sweep._removal_statements(relation regclass, part regclass, archive regclass, columns text[], nulls text[], seen text, due text, free text, cascading boolean, first boolean)
	RETURNS sweep._statements LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements := sweep._edge_statements(relation, part, columns, nulls, seen, first);
	range constant pg_catalog.text := pg_catalog.format('%s AND %s%s', due, sweep._range(relation, columns, first), free);
	same_key constant pg_catalog.text := pg_catalog.format('%s AND %s%s', due, sweep._key_compare(relation, columns, '=', '$4'), free);
	of_key constant pg_catalog.record := sweep._rows_of_key(relation, part, same_key);
BEGIN
	made.counter := CASE WHEN archive IS NULL THEN 'deleted' ELSE 'moved' END;
	IF cascading THEN
		-- The rows affected by a deletion are counted first; the statement then deletes the counted rows by their places.
		made.cascading := relation;
		made.roots := sweep._roots(relation, part, range, NULL);
		made.pick := sweep._removal(relation, part, archive, NULL, pg_catalog.format('%s AND %s%s', sweep._at_places(relation, part), due, free));
		made.same_roots := CASE WHEN made.before IS NOT NULL THEN sweep._roots(relation, part, same_key, '$1' || of_key.untried) END;
		RETURN made;
	END IF;
	made.work := sweep._removal(relation, part, archive, NULL, range);
	IF made.before IS NOT NULL THEN
		made.pick := sweep._removal(relation, part, archive, of_key.picked, pg_catalog.format('%s AND %s', of_key.at_picked, same_key));
		made.same_roots := of_key.finds;
	END IF;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._removal_statements(regclass, regclass, regclass, text[], text[], text, text, text, boolean, boolean) IS
	'the statements of a batch that deletes or moves the rows of a range of keys; cascading: other rows are deleted or changed with them';

-- PostgreSQL executes the further statements of a rule only for a plain DELETE: not for moved rows, nor where a batch takes some of the rows of one key.
CREATE FUNCTION sweep._check_rules(role text, relation regclass, made sweep._statements, settings jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rule constant pg_catalog.text := (SELECT r.rulename FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation AND r.ev_type = '4' ORDER BY r.oid LIMIT 1);
	is_moved constant boolean := made.counter = 'moved';
BEGIN
	IF rule IS NOT NULL AND (made.pick LIKE 'WITH %' OR made.work LIKE 'WITH %') THEN
		PERFORM sweep._check_fragment(role, pg_catalog.format(CASE WHEN is_moved THEN 'WITH gone AS (DELETE FROM %s WHERE $1 IS NOT NULL RETURNING 1) SELECT FROM gone'
			ELSE 'WITH picked AS (SELECT $1) DELETE FROM %s WHERE EXISTS (SELECT FROM picked)' END, sweep._source(relation, NULL)), settings);
	END IF;
EXCEPTION WHEN feature_not_supported THEN
	RAISE EXCEPTION 'rule "%" of % does not allow its rows to be %', rule, relation, CASE WHEN is_moved THEN 'moved' ELSE 'deleted in batches' END USING ERRCODE = SQLSTATE,
		DETAIL = CASE WHEN is_moved THEN SQLERRM || '.' ELSE pg_catalog.format('More rows than a batch takes may have the same (%s). PostgreSQL does not execute the rule for some of them.', made.key) END,
		HINT = 'Replace the rule by a trigger FOR EACH ROW' || CASE WHEN is_moved THEN '.' ELSE ', or create a unique index that begins with ' || pg_catalog.split_part(made.key, ', ', 1) || '.' END;
END
$$;
COMMENT ON FUNCTION sweep._check_rules(text, regclass, sweep._statements, jsonb) IS 'raises when a rule of the table cannot be executed with the statements that delete or move its rows';
