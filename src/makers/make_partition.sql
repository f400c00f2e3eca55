--
-- Creates a partition: as a table first, which is then attached, together with the rows that the default partition has for it.
--
-- ATTACH alone allows inserts meanwhile; those of rows that the default partition must not have any more fail. Therefore the table is
-- locked, without its partitions, so that inserts wait. Rows are moved in the same transaction, and then readers wait, too: one that has
-- read the list of partitions already, and waits for the default partition, would find the rows in neither. Everything is executed as the
-- role of the job, which has the rights of the owners.
--
CREATE FUNCTION sweep._partition_name(relation regclass, suffix text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%I.%I', n.nspname, sweep._fitting_name(c.relname, '_' || suffix)) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._partition_name(regclass, text) IS 'the name of a partition, with its schema, quoted';

-- ------------------------------------------------------------------ the table
-- A partitioned table has no storage parameters, so those of the newest partition are used. Its tablespace and access method are the defaults
-- for partitions.
CREATE FUNCTION sweep._create_like(parent regclass, model regclass, name text) RETURNS regclass
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	options pg_catalog.text;
	made pg_catalog.regclass;
	line pg_catalog.text;
BEGIN
	SELECT pg_catalog.string_agg(pg_catalog.format('%s%I=%L', o.prefix, pg_catalog.split_part(u.option, '=', 1), pg_catalog.substr(u.option, pg_catalog.strpos(u.option, '=') + 1)), ', ') INTO options
		FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid CROSS JOIN LATERAL (VALUES ('', c.reloptions), ('toast.', t.reloptions)) AS o (prefix, options)
			CROSS JOIN LATERAL pg_catalog.unnest(o.options) AS u (option) WHERE c.oid = model AND c.relkind = 'r';
	EXECUTE (SELECT pg_catalog.format('CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING IDENTITY)%s%s%s', name, sweep._table_name(parent), ' USING ' || pg_catalog.quote_ident(m.amname),
			' WITH (' || options || ')', ' TABLESPACE ' || pg_catalog.quote_ident(s.spcname))
		FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam LEFT JOIN pg_catalog.pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = parent);
	made := name::pg_catalog.regclass;
	FOR line IN SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s FROM %s', name, p.grantee) FROM sweep._privileges(made) AS p LOOP
		EXECUTE line;
	END LOOP;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._create_like(regclass, regclass, text) IS 'creates a table with the definition of a partitioned table and the storage parameters of the model';

-- Indexes, checks, defaults and their comments were copied before; ATTACH adds triggers and foreign keys.
CREATE FUNCTION sweep._equip_like(source regclass, made regclass, kinds text[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT u.line FROM sweep._stays_settings(source, made, sweep._table_name(made)) WITH ORDINALITY AS s (kind, name, lock, lines, after, n)
			CROSS JOIN LATERAL pg_catalog.unnest(s.lines) WITH ORDINALITY AS u (line, n) WHERE s.kind = ANY (kinds) ORDER BY s.n, u.n LOOP
		EXECUTE line;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._equip_like(regclass, regclass, text[]) IS 'copies properties of these kinds from a table to another: owner, privilege, comment, replica identity, policy';

-- Roles get the same privileges on the partition as on the table, and the table's policies are copied. A replica identity by an index
-- needs the attached index.
CREATE FUNCTION sweep._finish_partition(parent regclass, made regclass) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	identity_index pg_catalog.name;
BEGIN
	SELECT n.relname INTO identity_index FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisreplident
		JOIN pg_catalog.pg_inherits h ON h.inhparent = i.indexrelid JOIN pg_catalog.pg_index p ON p.indexrelid = h.inhrelid AND p.indrelid = made JOIN pg_catalog.pg_class n ON n.oid = p.indexrelid
		WHERE c.oid = parent AND c.relreplident = 'i';
	IF FOUND THEN
		EXECUTE pg_catalog.format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', sweep._table_name(made), identity_index);
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = parent AND (c.relrowsecurity OR c.relforcerowsecurity)) OR EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = parent) THEN
		PERFORM sweep._equip_like(parent, made, '{policy}');
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._finish_partition(regclass, regclass) IS 'gives a partition the properties that it can only get after ATTACH, or when its rows are there';

-- ------------------------------------------------------------------ rows of the default partition
CREATE FUNCTION sweep._default_part(relation regclass) RETURNS regclass
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rest pg_catalog.record;
BEGIN
	SELECT c.oid::pg_catalog.regclass AS part, c.relowner, c.relrowsecurity AND c.relforcerowsecurity AND NOT r.rolbypassrls AND NOT r.rolsuper AS hides, r.oid AS role INTO rest
		FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_class c ON c.oid = p.partdefid JOIN pg_catalog.pg_roles r ON r.rolname = current_user WHERE p.partrelid = relation;
	IF rest.part IS NOT NULL AND NOT sweep._owns(rest.role, rest.relowner) THEN
		RAISE EXCEPTION 'role "%" does not own default partition %', current_user, rest.part USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('ALTER TABLE %s OWNER TO %I;', rest.part, (SELECT pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c WHERE c.oid = relation));
	END IF;
	IF rest.hides THEN
		RAISE EXCEPTION 'policies of default partition % may hide rows from role "%"', rest.part, current_user USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY;', rest.part);
	END IF;
	RETURN rest.part;
END
$$;
COMMENT ON FUNCTION sweep._default_part(regclass) IS 'the default partition of a table; raises unless its rows can be moved; NULL: there is none';

CREATE FUNCTION sweep._lock_default(parent regclass, rest regclass, mode text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._lock_table(parent, false, mode), sweep._lock_table(rest, true, 'ACCESS EXCLUSIVE');
	-- The partition may have been detached before it was locked; then its rows stay there.
	IF sweep._default_part(parent) IS DISTINCT FROM rest THEN
		RAISE EXCEPTION '% has another default partition since', parent USING ERRCODE = 'lock_not_available';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._lock_default(regclass, regclass, text) IS 'locks a table in that mode, and its default partition with the partitions of that; raises lock_not_available when another table is the default partition by now';

-- Moving a row is not a deletion and an insertion for users, so their triggers are disabled.
CREATE FUNCTION sweep._switch_triggers(triggers jsonb, is_on boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT pg_catalog.format('ALTER TABLE %s %s TRIGGER %I', t.relation, CASE WHEN NOT is_on THEN 'DISABLE' WHEN t.always THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END, t.name)
			FROM pg_catalog.jsonb_to_recordset(triggers) AS t (relation pg_catalog.text, name pg_catalog.text, always boolean) LOOP
		EXECUTE line;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._switch_triggers(jsonb, boolean) IS 'disables triggers, or enables them as they were';

CREATE FUNCTION sweep._firing_triggers(relation regclass) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('relation', sweep._table_name(relation), 'name', t.tgname, 'always', t.tgenabled = 'A')), '[]')
		FROM pg_catalog.pg_trigger t WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A'));
END
$$;
COMMENT ON FUNCTION sweep._firing_triggers(regclass) IS 'the enabled user triggers of a table';

-- The rows are inserted after ATTACH: then the partition is published like the others, and subscribers see the same as for an UPDATE that moves
-- a row. Until then the rows are in an array; its type comes from the first argument, which is NULL.
CREATE FUNCTION sweep._attach_with_rows(type_of_rows anyarray, parent regclass, rest regclass, made regclass, bounds text, in_range text, size int, path text) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	taken _attach_with_rows.type_of_rows%TYPE;
	removed bigint;
	triggers pg_catalog.jsonb := sweep._firing_triggers(rest);
	names constant pg_catalog.text := (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = parent AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '');
BEGIN
	EXECUTE pg_catalog.format('SELECT ARRAY(SELECT sweep_row FROM ONLY %s AS sweep_row WHERE %s LIMIT %s)', sweep._table_name(rest), in_range, size + 1) INTO taken;
	IF pg_catalog.cardinality(taken) > size THEN
		RAISE EXCEPTION 'rows of the range came while % was being locked', parent USING ERRCODE = 'lock_not_available';
	END IF;
	IF pg_catalog.cardinality(taken) = 0 THEN
		EXECUTE bounds;
		RETURN 0;
	END IF;
	PERFORM sweep._switch_triggers(triggers, false);
	EXECUTE pg_catalog.format('DELETE FROM ONLY %s AS sweep_row WHERE %s', sweep._table_name(rest), in_range);
	GET DIAGNOSTICS removed = ROW_COUNT;
	IF removed <> pg_catalog.cardinality(taken) THEN
		RAISE EXCEPTION '% of % rows could be deleted from %', removed, pg_catalog.cardinality(taken), rest USING ERRCODE = 'triggered_data_change_violation', HINT = 'Look for a rule or policy of the table.';
	END IF;
	EXECUTE bounds;
	-- ATTACH has added triggers to the partition.
	triggers := triggers || sweep._firing_triggers(made);
	PERFORM sweep._switch_triggers(sweep._firing_triggers(made), false);
	-- Checks, generated columns and index expressions are executed with the search_path of the run.
	PERFORM pg_catalog.set_config('search_path', path, true);
	EXECUTE pg_catalog.format('INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM pg_catalog.unnest($1) AS sweep_row', sweep._table_name(made), names) USING taken;
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	-- A table with pending checks of foreign keys cannot be altered.
	SET CONSTRAINTS ALL IMMEDIATE;
	PERFORM sweep._switch_triggers(triggers, true);
	RETURN removed;
END
$$;
COMMENT ON FUNCTION sweep._attach_with_rows(anyarray, regclass, regclass, regclass, text, text, int, text) IS 'attaches a partition, and moves the rows of the default partition that are for it; the table is locked';

-- ------------------------------------------------------------------ a default partition that becomes another one
CREATE FUNCTION sweep._default_extent(rest regclass, key text, OUT lowest text, OUT highest text, OUT is_ranged boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.min(r.%1$I)::pg_catalog.text, pg_catalog.max(r.%1$I)::pg_catalog.text, NOT EXISTS (SELECT FROM %2$s AS r WHERE r.%1$I IS NULL) FROM %2$s AS r', key, sweep._table_name(rest))
		INTO lowest, highest, is_ranged;
	is_ranged := is_ranged AND lowest <> '-infinity' AND highest <> 'infinity';
END
$$;
COMMENT ON FUNCTION sweep._default_extent(regclass, text) IS 'the smallest and the greatest key of a default partition, and whether all of its rows have a key that is not infinite';

CREATE FUNCTION sweep._exchange_default(parent regclass, rest regclass, type text, args jsonb, first bigint, last bigint) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rest_name constant pg_catalog.text := sweep._table_name(rest);
	parent_name constant pg_catalog.text := sweep._table_name(parent);
	grid constant pg_catalog.record := sweep._grid_bound(type, args, first);
	name constant pg_catalog.text := sweep._partition_name(parent, grid.suffix);
	made pg_catalog.regclass;
BEGIN
	PERFORM sweep._lock_default(parent, rest, 'ACCESS EXCLUSIVE');
	EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', parent_name, rest_name);
	EXECUTE pg_catalog.format('ALTER TABLE %s RENAME TO %s', rest_name, pg_catalog.quote_ident((pg_catalog.parse_ident(name))[2]));
	BEGIN
		EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', parent_name, sweep._table_name(rest), grid.bound, (sweep._grid_bound(type, args, last + 1)).bound);
	EXCEPTION WHEN check_violation THEN
		RAISE EXCEPTION 'rows of another range came while % was being locked', parent USING ERRCODE = 'lock_not_available';
	END;
	made := sweep._create_like(parent, rest, rest_name);
	PERFORM sweep._equip_like(rest, made, '{owner,privilege,comment,replica identity,policy}');
	EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s DEFAULT', parent_name, rest_name);
	RETURN rest::pg_catalog.text;
END
$$;
COMMENT ON FUNCTION sweep._exchange_default(regclass, regclass, text, jsonb, bigint, bigint) IS 'makes the default partition the partition of the ranges of its rows, and an empty table the default partition; returns its new name';

-- ------------------------------------------------------------------ one range
CREATE FUNCTION sweep._check_default(parent regclass, rest regclass, in_range text, size int, OUT rows bigint, OUT is_large boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
	widths constant pg_catalog.text := (SELECT pg_catalog.string_agg(pg_catalog.format('coalesce(pg_catalog.pg_column_size(sweep_row.%I)::bigint, 0)', a.attname), ' + ') FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = rest AND a.attnum > 0 AND NOT a.attisdropped AND a.attlen = -1);
	bytes bigint;
BEGIN
	rows := 0;
	IF rest IS NULL THEN
		RETURN;
	END IF;
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*), pg_catalog.sum(c.bytes) FROM (SELECT %s AS bytes FROM %s AS sweep_row WHERE %s LIMIT %s) AS c',
		coalesce(widths, '0'), sweep._table_name(rest), in_range, size + 1) INTO rows, bytes;
	-- Rows are in memory while they are moved, so their size counts, too.
	IF bytes > 256 * 1024 * 1024 THEN
		rows := size + 1;
	END IF;
	-- PostgreSQL scans the default partition when another one is attached, and inserts wait meanwhile.
	is_large := pg_catalog.pg_relation_size(rest) > 256 * 1024 * 1024;
	IF rows > 0 AND (SELECT c.relkind <> 'r' OR c.relhasrules FROM pg_catalog.pg_class c WHERE c.oid = rest) THEN
		RAISE EXCEPTION 'rows of default partition % cannot be moved', rest USING ERRCODE = 'wrong_object_type', DETAIL = 'It is a partitioned or foreign table, or has rules.', HINT = 'Move or delete its rows that are for the new partition.';
	END IF;
	-- Foreign keys may also refer to the default partition itself.
	SELECT r.name, r.child INTO foreign_key FROM (VALUES (1, parent), (2, rest)) AS t (n, relation) CROSS JOIN LATERAL sweep._referencing(t.relation, '', '') AS r ORDER BY t.n LIMIT 1;
	IF (rows > 0 OR is_large) AND FOUND THEN
		RAISE EXCEPTION 'rows of default partition % cannot be moved', rest USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = pg_catalog.format('Foreign key "%s" of %s refers to them: a row that is taken out of a partition is deleted there, or refused.', foreign_key.name, foreign_key.child),
			HINT = 'Drop the foreign key, run the job, and add it again; or delete the rows.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_default(regclass, regclass, text, int) IS 'how many rows of a range the default partition has, up to size + 1, and whether it is too large to be scanned quickly; raises when the rows cannot be moved';

CREATE FUNCTION sweep._make_of_default(parent regclass, rest regclass, key text, type text, args jsonb) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	extent constant pg_catalog.record := sweep._default_extent(rest, key);
	first bigint;
	last bigint;
	is_split boolean;
BEGIN
	IF extent.is_ranged IS NOT TRUE THEN
		RETURN NULL;
	END IF;
	first := sweep._grid_place(type, args, extent.lowest);
	last := sweep._grid_place(type, args, extent.highest);
	EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM sweep._bounds($1, NULL) AS b'
		' WHERE NOT b.is_default AND pg_catalog.%1$s(b.lower::%2$s, b.upper::%2$s) && pg_catalog.%1$s($2::%2$s, $3::%2$s))', sweep._range_type(type), type)
		INTO is_split USING parent, (sweep._grid_bound(type, args, first)).bound, (sweep._grid_bound(type, args, last + 1)).bound;
	RETURN CASE WHEN NOT is_split THEN sweep._exchange_default(parent, rest, type, args, first, last) END;
END
$$;
COMMENT ON FUNCTION sweep._make_of_default(regclass, regclass, text, text, jsonb) IS
	'makes the default partition the partition of all ranges of its rows; NULL: there are partitions between its rows';

-- It is not known how a new partition would have to be divided: the newest one may be a special case.
CREATE FUNCTION sweep._newest_part(parent regclass, type text) RETURNS regclass
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	newest pg_catalog.record;
BEGIN
	EXECUTE pg_catalog.format('SELECT b.part, c.relkind FROM sweep._bounds($1, NULL) AS b JOIN pg_catalog.pg_class c ON c.oid = b.part WHERE NOT b.is_default ORDER BY b.lower::%s DESC NULLS LAST LIMIT 1', type) INTO newest USING parent;
	IF newest.relkind = 'p' THEN
		RAISE EXCEPTION 'partition % of % is partitioned itself', newest.part, parent USING ERRCODE = 'wrong_object_type',
			DETAIL = 'The next partitions would be ordinary tables.', HINT = 'Make the partitions of this table yourself, or create a job for those of its partition.';
	END IF;
	RETURN CASE newest.relkind WHEN 'r' THEN newest.part END;
END
$$;
COMMENT ON FUNCTION sweep._newest_part(regclass, text) IS 'the newest partition, NULL if it is no ordinary table or there is none; raises when it is partitioned itself';

-- Several at a time, because all sessions must read the list of partitions again whenever it has changed. Sessions wait during ATTACH; the
-- detail says for how long.
CREATE FUNCTION sweep._make_partitions(parent regclass, key text, type text, args jsonb, ranges sweep._partition_range[], model regclass, size int, path text) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	rest constant pg_catalog.regclass := sweep._default_part(parent);
	missing sweep._partition_range;
	name pg_catalog.text;
	conditions pg_catalog.text[] := '{}';
	condition pg_catalog.text;
	found pg_catalog.record;
	exchanged pg_catalog.text;
	made pg_catalog.regclass[] := '{}';
	rows bigint := 0;
	moved bigint := 0;
	moved_now bigint := 0;
	locked_at pg_catalog.timestamptz;
BEGIN
	-- If the cursor was lost, tables that were made to empty the default partition may have names that are needed now.
	PERFORM sweep._drop_emptying(n.copy, n.changes) FROM sweep._emptying_names(rest) AS n WHERE rest IS NOT NULL;
	FOREACH missing IN ARRAY ranges LOOP
		name := sweep._partition_name(parent, missing.suffix);
		EXIT WHEN made <> '{}' AND (missing.overlapping IS NOT NULL OR pg_catalog.to_regclass(name) IS NOT NULL);
		PERFORM sweep._check_range(parent, missing);
		condition := pg_catalog.format('sweep_row.%1$I OPERATOR(pg_catalog.>=) %2$L::%4$s AND sweep_row.%1$I OPERATOR(pg_catalog.<) %3$L::%4$s', key, missing.lower, missing.upper, type);
		found := sweep._check_default(parent, rest, condition, size);
		EXIT WHEN made <> '{}' AND (rows + found.rows > size OR found.is_large);
		IF found.rows > size AND NOT found.is_large THEN
			exchanged := sweep._make_of_default(parent, rest, key, type, args);
		END IF;
		IF exchanged IS NOT NULL THEN
			RETURN pg_catalog.jsonb_build_object('exchanged', pg_catalog.jsonb_build_array(exchanged));
		ELSIF found.rows > size OR found.is_large THEN
			PERFORM sweep._begin_emptying(parent, rest, key, type, args, size, missing.place);
			RETURN NULL;
		END IF;
		rows := rows + found.rows;
		made := made || sweep._create_like(parent, model, name);
		conditions := conditions || condition;
		PERFORM sweep._equip_like(parent, name::pg_catalog.regclass, '{owner,privilege,comment,replica identity}');
	END LOOP;
	IF rest IS NOT NULL THEN
		PERFORM sweep._lock_default(parent, rest, CASE WHEN rows > 0 THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
	END IF;
	locked_at := pg_catalog.clock_timestamp();
	FOR n IN 1 .. pg_catalog.cardinality(made) LOOP
		condition := pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', sweep._table_name(parent), sweep._table_name(made[n]), (ranges[n]).lower, (ranges[n]).upper);
		IF rest IS NULL THEN
			EXECUTE condition;
		ELSE
			EXECUTE pg_catalog.format('SELECT sweep._attach_with_rows(NULL::%s[], $1, $2, $3, $4, $5, $6, $7)', sweep._table_name(rest)) INTO moved_now
				USING parent, rest, made[n], condition, conditions[n], CASE WHEN rows > 0 THEN size ELSE 0 END, path;
		END IF;
		moved := moved + moved_now;
		PERFORM sweep._finish_partition(parent, made[n]);
	END LOOP;
	RETURN pg_catalog.jsonb_build_object('made', pg_catalog.to_jsonb(made), 'took', extract(epoch FROM pg_catalog.clock_timestamp() - locked_at))
		|| CASE WHEN moved > 0 THEN pg_catalog.jsonb_build_object('moved', moved) ELSE '{}' END;
END
$$;
COMMENT ON FUNCTION sweep._make_partitions(regclass, text, text, jsonb, sweep._partition_range[], regclass, int, text) IS
	'creates and attaches partitions for the first of these ranges, with their rows from the default partition; returns the detail; NULL: the default partition must be emptied first';
