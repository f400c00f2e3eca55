--
-- Partitions in a retention: which of them are gone through, one after the other, and which are dropped.
--
CREATE FUNCTION sweep._is_ranged_by(relation regclass, column_name text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
		WHERE p.partrelid = relation AND p.partstrat = 'r' AND a.attname = column_name));
END
$$;
COMMENT ON FUNCTION sweep._is_ranged_by(regclass, text) IS 'whether it is partitioned by ranges of the column, alone or before others';

-- A statement on a table of many partitions opens all of them and merges their rows, which takes as long as the batch. The step
-- therefore works on one partition after the other, where that changes nothing else: no policies, rules or statement triggers, and all
-- rights on each partition. Partitions that are empty, or that cannot have old rows, are left out.
CREATE FUNCTION sweep._parts(relation regclass, age_column text, role oid, type text, age_limit text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
	is_by_age constant boolean := sweep._is_ranged_by(relation, age_column);
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_class c ON c.oid = t.relid
			WHERE c.relrowsecurity OR c.relhasrules OR t.isleaf AND (c.relkind <> 'r' OR NOT pg_catalog.has_schema_privilege(role, c.relnamespace, 'USAGE')
					OR NOT pg_catalog.has_table_privilege(role, c.oid, 'SELECT') OR NOT pg_catalog.has_table_privilege(role, c.oid, 'DELETE'))
				-- of the statement, of DELETE
				OR EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid = c.oid AND g.tgtype & 1 = 0 AND g.tgtype & 8 = 8)) THEN
		RETURN NULL;
	END IF;
	SELECT pg_catalog.array_agg(p.name ORDER BY p.name COLLATE "C") INTO parts FROM (SELECT sweep._table_name(c.oid) AS name,
			CASE WHEN t.parentrelid = relation AND is_by_age THEN pg_catalog.substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([^'']*)''') END AS bound
		FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_class c ON c.oid = t.relid WHERE t.isleaf AND t.relid <> relation
			AND pg_catalog.pg_relation_size(c.oid) > 0) AS p
		WHERE CASE type WHEN 'date' THEN p.bound::pg_catalog.date >= age_limit::pg_catalog.date WHEN 'timestamp without time zone' THEN p.bound::timestamp >= age_limit::timestamp
			ELSE p.bound::pg_catalog.timestamptz >= age_limit::pg_catalog.timestamptz END IS NOT TRUE;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._parts(regclass, text, oid, text, text) IS 'the partitions, in the order of their names, that the role can process one by one; NULL: the table as a whole';

CREATE FUNCTION sweep._is_partitioned(relation regclass) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = relation);
END
$$;
COMMENT ON FUNCTION sweep._is_partitioned(regclass) IS 'whether a table has partitions, or could have';

CREATE FUNCTION sweep._next_place(parts text[], after text, OUT part regclass, OUT next_part text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.to_regclass(u.name), (SELECT pg_catalog.jsonb_build_object('part', parts[u.n + 1]) WHERE u.n < pg_catalog.cardinality(parts)) INTO part, next_part
		FROM pg_catalog.unnest(parts) WITH ORDINALITY AS u (name, n)
		WHERE (after IS NULL OR u.name COLLATE "C" >= after COLLATE "C") AND pg_catalog.to_regclass(u.name) IS NOT NULL ORDER BY u.n LIMIT 1;
END
$$;
COMMENT ON FUNCTION sweep._next_place(text[], text) IS 'the partition of that name, or the next one when it was dropped, and the cursor that the one behind it begins with';

CREATE FUNCTION sweep._check_partitions(role text, relation regclass, args jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner constant pg_catalog.oid := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = relation);
	reason pg_catalog.text;
BEGIN
	IF args ->> 'partitions' NOT IN ('empty', 'drop') THEN
		RAISE EXCEPTION 'invalid partitions "%"', args ->> 'partitions' USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "empty" or "drop".';
	END IF;
	IF args ->> 'partitions' = 'empty' THEN
		RETURN;
	END IF;
	reason := CASE
		WHEN NOT sweep._is_ranged_by(relation, args ->> 'age_column') THEN pg_catalog.format('%s is not partitioned by ranges of "%s"', relation, args ->> 'age_column')
		WHEN args ? 'condition' THEN 'rows in them may not meet the condition'
		WHEN args ? 'archive_to' THEN 'their rows are to be moved'
		WHEN EXISTS (SELECT FROM sweep._referencing(relation, '', '')) THEN pg_catalog.format('foreign keys refer to %s', relation) END;
	IF reason IS NOT NULL THEN
		RAISE EXCEPTION 'partitions cannot be dropped: %', reason USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave partitions out: they are emptied then.';
	END IF;
	IF NOT pg_catalog.pg_has_role(sweep._role_oid(role), owner, 'USAGE') THEN
		RAISE EXCEPTION 'role "%" does not own %', role, relation USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('Only its owner can drop partitions: write run_as => %L, or leave partitions out: they are emptied then.', pg_catalog.pg_get_userbyid(owner));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_partitions(text, regclass, jsonb) IS 'raises unless partitions that are too old can be dropped, if they are to be';

-- DETACH CONCURRENTLY cannot be in a transaction. The step therefore waits for the lock on the table half a second at a time, and
-- sessions that wait behind it get their turn in between.
CREATE FUNCTION sweep._drop_partition(relation text, type text, age_limit text, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
	parent constant pg_catalog.regclass := relation::pg_catalog.regclass;
	tries constant int := coalesce((cursor ->> 'tries')::int, 0);
	found pg_catalog.regclass;
BEGIN
	-- With a bound of several columns, rows may equal its first value. The text of a bound has no quotes inside.
	EXECUTE pg_catalog.format($find$
		SELECT p.partition FROM (SELECT c.oid::pg_catalog.regclass AS partition, t.partnatts,
				pg_catalog.substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid), '[)] TO [(]''([^'']*)''') AS bound
			FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid JOIN pg_catalog.pg_partitioned_table t ON t.partrelid = i.inhparent
			WHERE i.inhparent = $1 AND NOT i.inhdetachpending) AS p
		WHERE p.bound::%1$s < $2::%1$s OR p.bound::%1$s = $2::%1$s AND p.partnatts = 1 ORDER BY p.bound::%1$s LIMIT 1 $find$, type) INTO found USING parent, age_limit;
	IF found IS NULL THEN
		next_cursor := cursor;
		RETURN;
	END IF;
	rows := 1;
	detail := pg_catalog.jsonb_build_object('dropped', pg_catalog.jsonb_build_array(found));
	BEGIN
		EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', parent, found);
		EXECUTE pg_catalog.format('DROP TABLE %s', found);
	EXCEPTION WHEN lock_not_available THEN
		IF tries >= 9 THEN
			RAISE EXCEPTION 'partition % could not be locked', found USING ERRCODE = 'lock_not_available',
				DETAIL = pg_catalog.format('It was tried %s times, for half a second each.', tries + 1), HINT = 'Look in pg_stat_activity for a transaction that is open for long.';
		END IF;
		next_cursor := pg_catalog.jsonb_build_object('tries', tries + 1);
		detail := '{"lock_timeouts": 1}';
	END;
END
$$;
COMMENT ON FUNCTION sweep._drop_partition(text, text, text, jsonb) IS 'drops a partition in which every row is too old; rows is NULL when there is none';
