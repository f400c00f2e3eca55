--
-- Empties a default partition that has more rows than can be moved in one transaction, by means of a copy.
--
-- The copy is a table with the same partition key, whose partitions are those that are missing in the table. Batches fill it in the order of an
-- index, and the trigger of a copy with changes records changes made meanwhile. In one transaction with an exclusive lock on the table, the last
-- changes are copied, the default partition is truncated, and the partitions of the copy are attached. PostgreSQL does not scan them: each has a
-- CHECK constraint with its bounds. The default partition stays the same table, with all objects that refer to it.
--
-- A transaction whose snapshot is older than the copied rows would find them in neither table. The exchange therefore waits for the
-- end of all transactions that were in progress when the last row was copied.
--
-- The cursor is kept from run to run. If it is lost, the tables made before are dropped, and everything begins again.
--
CREATE FUNCTION sweep._is_emptying(copy text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.obj_description(pg_catalog.to_regclass(copy), 'pg_class') IS NOT DISTINCT FROM 'rows of a default partition, for a job of sweep.create_partitions' AND pg_catalog.to_regclass(copy) IS NOT NULL;
END
$$;
COMMENT ON FUNCTION sweep._is_emptying(text) IS 'whether the table exists and has the comment of a copy for emptying a default partition, by which it is told from a table of a user';

CREATE FUNCTION sweep._emptying_names(rest regclass, OUT copy text, OUT changes text, OUT is_there boolean) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.format('%I.%I', n.nspname, sweep._fitting_name(c.relname, '_sweep_copy')) INTO copy FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = rest;
	changes := sweep._changes_name(rest);
	is_there := sweep._is_emptying(copy);
END
$$;
COMMENT ON FUNCTION sweep._emptying_names(regclass) IS 'the names of the tables for emptying a default partition, and whether the copy exists';

-- The trigger is dropped wherever it is: the table may have been renamed, or may not be the default partition any more.
CREATE FUNCTION sweep._drop_emptying(copy text, changes text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	IF NOT sweep._is_emptying(copy) THEN
		RETURN;
	END IF;
	IF pg_catalog.to_regclass(changes) IS NOT NULL THEN
		FOR line IN SELECT pg_catalog.format('DROP TRIGGER %I ON %s', t.tgname, sweep._table_name(t.tgrelid::pg_catalog.regclass)) FROM pg_catalog.pg_trigger t WHERE t.tgfoid = pg_catalog.to_regprocedure(changes || '()') LOOP
			EXECUTE line;
		END LOOP;
		EXECUTE pg_catalog.format('DROP FUNCTION IF EXISTS %s()', changes);
		EXECUTE pg_catalog.format('DROP TABLE %s', changes);
	END IF;
	EXECUTE pg_catalog.format('DROP TABLE %s', copy);
END
$$;
COMMENT ON FUNCTION sweep._drop_emptying(text, text) IS 'drops the tables and triggers that were made to empty a default partition, if there are any';

-- ------------------------------------------------------------------ whether it can be done
-- A row is identified by the key: for a change all rows with its key are copied again. Without a unique index, too many rows may
-- share a date.
CREATE FUNCTION sweep._emptying_key(parent regclass, name text, type text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k CROSS JOIN LATERAL sweep._is_unique(parent, k.columns) AS u (is_unique)
		WHERE i.indrelid = parent AND k.columns[1] NOT LIKE '(%' AND (u.is_unique OR k.columns[1] = name AND type <> 'date')
		ORDER BY u.is_unique DESC, (k.columns[1] = name) DESC, pg_catalog.cardinality(k.columns) DESC, i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the default partition of % has too many rows to be moved', parent USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'They are copied by an index while others write, and the table has none for that.', HINT = CASE type WHEN 'date' THEN 'Add a primary key.' ELSE pg_catalog.format('CREATE INDEX ON %s (%I); or add a primary key.', parent, name) END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._emptying_key(regclass, text, text) IS 'the columns in whose order the rows of a default partition are copied; raises when there is no such index';

CREATE FUNCTION sweep._check_emptying(parent regclass, rest regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	reason pg_catalog.text;
	hint pg_catalog.text;
	publication constant pg_catalog.text := (SELECT p.pubname FROM pg_catalog.pg_publication p CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(p.pubname) AS t
		WHERE t.relid = rest OR t.relid IN (SELECT a.relid FROM pg_catalog.pg_partition_ancestors(rest) AS a) OR p.puballtables LIMIT 1);
BEGIN
	IF publication IS NOT NULL THEN
		reason := pg_catalog.format('Publication "%s" publishes it, and a subscriber would miss the rows or have them twice.', publication);
		hint := 'Raise batch_size, or leave the table out of the publication.';
	ELSIF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
		reason := pg_catalog.format('Changes cannot be followed with the isolation level "%s".', pg_catalog.current_setting('transaction_isolation'));
		hint := pg_catalog.format('ALTER ROLE %I SET default_transaction_isolation = ''read committed'';', current_user);
	ELSIF (SELECT c.relkind <> 'r' OR c.relhasrules OR c.relpersistence <> 'p' FROM pg_catalog.pg_class c WHERE c.oid = rest) THEN
		reason := 'It is a partitioned, foreign or unlogged table, or has rules.';
		hint := 'Move or delete its rows.';
	-- PostgreSQL checks foreign keys while the table is locked.
	ELSIF pg_catalog.pg_relation_size(rest) > 256 * 1024 * 1024 AND EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.conrelid = parent AND c.contype = 'f') THEN
		reason := 'It has more than 256 MB, and foreign keys, which PostgreSQL would check while all others wait.';
		hint := 'Move or delete its rows, or drop the foreign keys of the table.';
	END IF;
	IF reason IS NOT NULL THEN
		RAISE EXCEPTION 'rows of default partition % cannot be copied to others', rest USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = reason, HINT = hint;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_emptying(regclass, regclass) IS 'raises unless the rows of a default partition can be copied to new partitions';

-- ------------------------------------------------------------------ the ranges
CREATE FUNCTION sweep._key_of_default(rest regclass, key text, type text, function text, lower text, upper text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	found pg_catalog.text;
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.%1$s(r.%2$I)::pg_catalog.text FROM %3$s AS r WHERE (%4$L IS NULL OR r.%2$I OPERATOR(pg_catalog.>=) %4$L::%6$s) AND (%5$L IS NULL OR r.%2$I OPERATOR(pg_catalog.<) %5$L::%6$s)%7$s',
		function, key, sweep._table_name(rest), lower, upper, type, CASE WHEN type <> 'bigint' THEN pg_catalog.format(' AND r.%I OPERATOR(pg_catalog.>) ''-infinity'' AND r.%1$I OPERATOR(pg_catalog.<) ''infinity''', key) END) INTO found;
	RETURN found;
END
$$;
COMMENT ON FUNCTION sweep._key_of_default(regclass, text, text, text, text, text) IS 'the smallest or greatest finite key that the default partition has in a range';

-- One range for each gap between partitions, if single ranges would be too many: each ATTACH takes some time, during which others wait.
CREATE FUNCTION sweep._gap_at(parent regclass, rest regclass, key text, type text, args jsonb, value text) RETURNS sweep._partition_range
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	made sweep._partition_range;
	start pg_catalog.text;
	stop pg_catalog.text;
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.max(b.upper::%1$s) FILTER (WHERE b.upper::%1$s <= $2::%1$s), pg_catalog.min(b.lower::%1$s) FILTER (WHERE b.lower::%1$s > $2::%1$s) FROM sweep._bounds($1, NULL) AS b', type)
		INTO start, stop USING parent, value;
	made.place := sweep._grid_place(type, args, value);
	SELECT g.bound, g.suffix INTO made.lower, made.suffix FROM sweep._grid_bound(type, args, made.place) AS g;
	made.upper := (sweep._grid_bound(type, args, sweep._grid_place(type, args, sweep._key_of_default(rest, key, type, 'max', value, stop)) + 1)).bound;
	EXECUTE pg_catalog.format('SELECT greatest($1::%1$s, $2::%1$s)::pg_catalog.text, least($3::%1$s, $4::%1$s)::pg_catalog.text', type) INTO made.lower, made.upper USING made.lower, start, made.upper, stop;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._gap_at(regclass, regclass, text, text, jsonb, text) IS 'the range between two partitions that has the rows of the default partition from a value on';

CREATE FUNCTION sweep._ranges_to_fill(parent regclass, rest regclass, key text, type text, args jsonb, size int, by_gap boolean) RETURNS SETOF sweep._partition_range
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	value pg_catalog.text := sweep._key_of_default(rest, key, type, 'min', NULL, NULL);
	place bigint;
	range sweep._partition_range;
	stays bigint := 0;
	many bigint;
	counted constant pg_catalog.text := 'SELECT pg_catalog.count(*) FROM (SELECT FROM %1$s AS r WHERE %4$s LIMIT %3$s) AS c';
BEGIN
	EXECUTE pg_catalog.format(counted, sweep._table_name(rest), key, size + 1, pg_catalog.format('r.%1$I IS NULL', key) || CASE WHEN type <> 'bigint' THEN pg_catalog.format(' OR r.%1$I IN (''infinity'', ''-infinity'')', key) ELSE '' END) INTO stays;
	WHILE value IS NOT NULL AND stays <= size LOOP
		place := sweep._grid_place(type, args, value);
		range := CASE WHEN by_gap THEN sweep._gap_at(parent, rest, key, type, args, value) ELSE sweep._missing_range(parent, type, args, place, place) END;
		IF range.place IS NOT NULL AND range.overlapping IS NULL AND range.upper IS NOT NULL THEN
			RETURN NEXT range;
		ELSE
			-- Another partition has a part of this range.
			range.upper := (sweep._grid_bound(type, args, place + 1)).bound;
			EXECUTE pg_catalog.format(counted, sweep._table_name(rest), key, size + 1, pg_catalog.format('r.%1$I OPERATOR(pg_catalog.>=) %2$L::%4$s AND (%3$L IS NULL OR r.%1$I OPERATOR(pg_catalog.<) %3$L::%4$s)', key, value, range.upper, type)) INTO many;
			stays := stays + many;
		END IF;
		value := CASE WHEN range.upper IS NOT NULL THEN sweep._key_of_default(rest, key, type, 'min', range.upper, NULL) END;
	END LOOP;
	IF stays > size THEN
		RAISE EXCEPTION 'default partition % has more than % rows for which no partition can be made', rest, size USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Partitions have a part of their ranges, or their key is null or infinite.', HINT = 'Make partitions for what is left of these ranges, raise batch_size, or move or delete the rows.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._ranges_to_fill(regclass, regclass, text, text, jsonb, int, boolean) IS 'the ranges of which the default partition has rows, or those between two partitions; raises when too many rows are in none';

-- Includes ranges of the present and the near future, since such rows may be inserted while the others are copied.
CREATE FUNCTION sweep._all_to_fill(parent regclass, rest regclass, key text, type text, args jsonb, size int, present bigint) RETURNS SETOF sweep._partition_range
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ranges sweep._partition_range[] := ARRAY(SELECT r FROM (SELECT * FROM sweep._ranges_to_fill(parent, rest, key, type, args, size, false) LIMIT 101) AS r);
	coming sweep._partition_range;
	is_known boolean;
BEGIN
	IF pg_catalog.cardinality(ranges) > 100 THEN
		ranges := ARRAY(SELECT r FROM sweep._ranges_to_fill(parent, rest, key, type, args, size, true) AS r);
	END IF;
	FOR n IN 0 .. least((args ->> 'ahead')::int, 7) LOOP
		coming := sweep._missing_range(parent, type, args, present + n, present + n);
		EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM pg_catalog.unnest($1) AS r WHERE r.lower::%1$s < $2::%1$s AND r.upper::%1$s > $3::%1$s)', type) INTO is_known USING ranges, coming.upper, coming.lower;
		IF coming.place IS NOT NULL AND coming.overlapping IS NULL AND NOT is_known THEN
			ranges := ranges || coming;
		END IF;
	END LOOP;
	RETURN QUERY SELECT * FROM pg_catalog.unnest(ranges);
END
$$;
COMMENT ON FUNCTION sweep._all_to_fill(regclass, regclass, text, text, jsonb, int, bigint) IS 'the ranges for which partitions are created to empty the default partition, including those of the present and the near future';

-- ------------------------------------------------------------------ the copy
CREATE FUNCTION sweep._begin_emptying(parent regclass, rest regclass, key text, type text, args jsonb, size int, present bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names constant pg_catalog.record := sweep._emptying_names(rest);
	has_policies constant boolean := (SELECT c.relrowsecurity FROM pg_catalog.pg_class c WHERE c.oid = parent);
	above constant pg_catalog.text := pg_catalog.pg_get_partition_constraintdef(parent);
	model constant pg_catalog.regclass := sweep._newest_part(parent, type);
	range sweep._partition_range;
	name pg_catalog.text;
	line pg_catalog.text;
BEGIN
	PERFORM sweep._check_emptying(parent, rest), sweep._emptying_key(parent, key, type);
	EXECUTE pg_catalog.format('CREATE TABLE %s (LIKE %s INCLUDING GENERATED) PARTITION BY RANGE (%I)', names.copy, sweep._table_name(parent), key);
	EXECUTE pg_catalog.format('COMMENT ON TABLE %s IS %L', names.copy, 'rows of a default partition, for a job of sweep.create_partitions');
	FOR line IN SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s FROM %s', names.copy, p.grantee) FROM sweep._privileges(names.copy::pg_catalog.regclass) AS p LOOP
		EXECUTE line;
	END LOOP;
	name := pg_catalog.format('%I.%I', (pg_catalog.parse_ident(names.copy))[1], sweep._fitting_name((pg_catalog.parse_ident(names.copy))[2], '_rest'));
	PERFORM sweep._create_like(parent, rest, name);
	EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s DEFAULT', names.copy, name);
	FOR range IN SELECT * FROM sweep._all_to_fill(parent, rest, key, type, args, size, present) LOOP
		PERFORM sweep._check_range(parent, range);
		name := sweep._partition_name(parent, range.suffix);
		PERFORM sweep._create_like(parent, model, name);
		-- If there are policies, privileges are granted later, together with these.
		PERFORM sweep._equip_like(parent, name::pg_catalog.regclass, CASE WHEN has_policies THEN '{owner,comment,replica identity}' ELSE '{owner,privilege,comment,replica identity}' END::pg_catalog.text[]);
		EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', names.copy, name, range.lower, range.upper);
		EXECUTE pg_catalog.format('ALTER TABLE %s ADD CONSTRAINT sweep_range CHECK (%s)', name, pg_catalog.concat_ws(' AND ', pg_catalog.pg_get_partition_constraintdef(name::pg_catalog.regclass), above));
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._begin_emptying(regclass, regclass, text, text, jsonb, int, bigint) IS 'makes the table to which the rows of a default partition are copied; raises when that cannot be done';

CREATE FUNCTION sweep._fill_next(rest regclass, texts jsonb, state jsonb, size int, path text, OUT rows bigint, OUT edge jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	key constant pg_catalog.text[] := ARRAY(SELECT * FROM pg_catalog.jsonb_array_elements_text(texts -> 'key'));
	nulls constant pg_catalog.text[] := ARRAY(SELECT * FROM pg_catalog.jsonb_array_elements_text(texts -> 'nulls'));
	columns constant pg_catalog.text[] := sweep._copy_columns(rest, (texts ->> 'target')::pg_catalog.regclass);
	alias constant pg_catalog.text := sweep._relation_name(rest);
	range pg_catalog.text;
	remove pg_catalog.text;
	insert pg_catalog.text;
BEGIN
	-- If keys are not unique, the statement has a second column.
	EXECUTE pg_catalog.format('SELECT k.edge FROM (%s) AS k (edge)', (sweep._edge_statements(rest, NULL, key, nulls, pg_catalog.format('%I.%I IS NOT NULL', alias, key[1]), NOT state ? 'after')).edge) INTO edge USING size, state;
	range := pg_catalog.concat_ws(' AND ', pg_catalog.format('%I.%I IS NOT NULL', alias, key[1]), CASE WHEN state ? 'after' THEN sweep._key_compare(rest, key, '>', '$1') END, CASE WHEN edge IS NOT NULL THEN sweep._key_compare(rest, key, '<=', '$2') END);
	-- Rows may be there already, copied by recorded keys.
	remove := pg_catalog.format('DELETE FROM %s AS %I WHERE %s', texts ->> 'target', alias, range);
	insert := pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s', texts ->> 'target', sweep._column_list(columns), sweep._qualified_list(alias, columns), sweep._source(rest, NULL), range);
	PERFORM pg_catalog.set_config('search_path', path, true);
	EXECUTE remove USING state, edge;
	EXECUTE insert USING state, edge;
	GET DIAGNOSTICS rows = ROW_COUNT;
END
$$;
COMMENT ON FUNCTION sweep._fill_next(regclass, jsonb, jsonb, int, text) IS 'copies the next rows of a default partition; edge: the last key; NULL: these were the last rows';

-- Reads locks, because the role of the job does not see snapshots of other roles' transactions, but the locks of all.
CREATE FUNCTION sweep._transactions() RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.jsonb_object_agg(l.virtualtransaction, l.pid), '{}') FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_catalog.pg_backend_pid() AND a.usesysid IS NOT NULL AND a.datname = pg_catalog.current_database());
END
$$;
COMMENT ON FUNCTION sweep._transactions() IS 'the transactions in progress in sessions of this database: {"virtual transaction": pid}';

-- ------------------------------------------------------------------ the exchange
CREATE FUNCTION sweep._exchange_emptied(parent regclass, rest regclass, texts jsonb, size int, path text) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	names constant pg_catalog.record := sweep._emptying_names(rest);
	columns constant pg_catalog.text := sweep._column_list(sweep._copy_columns(rest, names.copy::pg_catalog.regclass));
	without_key constant pg_catalog.text := pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %3$s AS r WHERE r.%4$I IS NULL', names.copy, columns, sweep._table_name(rest), texts #>> '{key,0}');
	triggers pg_catalog.jsonb;
	back pg_catalog.text;
	many bigint;
	part pg_catalog.record;
	made pg_catalog.jsonb := '[]';
BEGIN
	PERFORM sweep._lock_default(parent, rest, 'ACCESS EXCLUSIVE');
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT FROM %s LIMIT %s) AS c', names.changes, size + 1) INTO many;
	IF many > size THEN
		RAISE EXCEPTION 'more than % rows were changed while % was being locked', size, rest USING ERRCODE = 'lock_not_available';
	END IF;
	PERFORM sweep._apply_changes(texts, NULL, path), sweep._check_emptying(parent, rest);
	-- Checks again, because the table may have been changed before it was locked.
	IF (SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = rest AND t.tgenabled = 'A' AND t.tgfoid = (names.changes || '()')::pg_catalog.regprocedure) < 2
			OR texts ->> 'shape' <> sweep._copy_shape(pg_catalog.jsonb_build_object('changes', names.changes), rest, names.copy::pg_catalog.regclass) THEN
		RETURN NULL;
	END IF;
	PERFORM pg_catalog.set_config('search_path', path, true);
	EXECUTE without_key;
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	SELECT pg_catalog.format('FROM ONLY %s', sweep._table_name(b.part)) INTO back FROM sweep._bounds(names.copy::pg_catalog.regclass, NULL) AS b WHERE b.is_default;
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT %s LIMIT %s) AS c', back, size + 1) INTO many;
	IF many > size THEN
		RETURN NULL;
	END IF;
	EXECUTE pg_catalog.format('DROP TRIGGER sweep_changes ON %s', sweep._table_name(rest));
	EXECUTE pg_catalog.format('DROP TRIGGER sweep_changes_truncate ON %s', sweep._table_name(rest));
	triggers := sweep._firing_triggers(rest);
	PERFORM sweep._switch_triggers(triggers, false);
	EXECUTE pg_catalog.format('TRUNCATE ONLY %s', sweep._table_name(rest));
	FOR part IN SELECT b.part, sweep._table_name(b.part) AS name, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound FROM sweep._bounds(names.copy::pg_catalog.regclass, NULL) AS b JOIN pg_catalog.pg_class c ON c.oid = b.part WHERE NOT b.is_default ORDER BY b.part::pg_catalog.text LOOP
		EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', names.copy, part.name);
		EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s %s', sweep._table_name(parent), part.name, part.bound);
		EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT sweep_range', part.name);
		IF (SELECT c.relrowsecurity OR c.relreplident = 'i' FROM pg_catalog.pg_class c WHERE c.oid = parent) THEN
			PERFORM sweep._finish_partition(parent, part.part), sweep._equip_like(parent, part.part, '{privilege}');
		END IF;
		made := made || pg_catalog.to_jsonb(part.part);
	END LOOP;
	IF many > 0 THEN
		PERFORM pg_catalog.set_config('search_path', path, true);
		EXECUTE pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %2$s %s', sweep._table_name(rest), columns, back);
		PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		SET CONSTRAINTS ALL IMMEDIATE;
	END IF;
	PERFORM sweep._switch_triggers(triggers, true);
	EXECUTE pg_catalog.format('DROP FUNCTION %s()', names.changes);
	EXECUTE pg_catalog.format('DROP TABLE %s, %s', names.changes, names.copy);
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._exchange_emptied(regclass, regclass, jsonb, int, text) IS 'replaces the rows of the default partition by the partitions of the copy; returns their names; NULL: the copy must be begun again';

CREATE FUNCTION sweep._emptying_texts(parent regclass, rest regclass) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part_key constant pg_catalog.record := sweep._partition_key(parent);
	key constant pg_catalog.record := sweep._emptying_key(parent, part_key.name, part_key.type);
	names constant pg_catalog.record := sweep._emptying_names(rest);
	copy constant pg_catalog.regclass := names.copy;
BEGIN
	RETURN sweep._change_texts(pg_catalog.jsonb_build_object('changes', names.changes), rest, copy, key.columns, key.nulls, sweep._copy_columns(rest, copy))
		|| pg_catalog.jsonb_build_object('key', pg_catalog.to_jsonb(key.columns), 'nulls', pg_catalog.to_jsonb(key.nulls));
END
$$;
COMMENT ON FUNCTION sweep._emptying_texts(regclass, regclass) IS 'the statements by which a default partition is copied, and the columns of the key';

-- ------------------------------------------------------------------ the batch
CREATE FUNCTION sweep._empty_next(parent regclass, size int, state jsonb, path text) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rest constant pg_catalog.regclass := sweep._default_part(parent);
	names pg_catalog.record;
	at pg_catalog.jsonb := state -> 'emptying';
	again constant pg_catalog.jsonb := state - '{tries,tried_at,emptying}'::pg_catalog.text[];
	detail pg_catalog.jsonb := '{}';
	texts pg_catalog.jsonb;
	applied pg_catalog.record;
	filled pg_catalog.record;
	done bigint := 1;
	made pg_catalog.jsonb;
	left_open pg_catalog.jsonb;
	deadline constant pg_catalog.timestamptz := pg_catalog.clock_timestamp() + interval '1 second';
BEGIN
	SELECT n.copy, n.changes, n.is_there INTO names FROM sweep._emptying_names(coalesce(rest, parent)) AS n;
	PERFORM sweep._await_turn(state);
	BEGIN
		-- The default partition was detached or renamed.
		IF rest IS NULL OR NOT names.is_there OR names.copy <> at ->> 'copy' THEN
			PERFORM sweep._drop_emptying(at ->> 'copy', at ->> 'changes');
			RETURN ROW(1, again, '{"restarted": 1}')::sweep.progress;
		END IF;
		texts := sweep._emptying_texts(parent, rest);
		IF NOT at ? 'shape' THEN
			IF NOT sweep._capture_changes(texts) THEN
				RAISE lock_not_available;
			END IF;
			at := at || pg_catalog.jsonb_build_object('shape', texts -> 'shape');
		ELSIF at ->> 'shape' <> texts ->> 'shape' OR pg_catalog.to_regclass(texts ->> 'changes') IS NULL THEN
			PERFORM sweep._drop_emptying(names.copy, names.changes);
			RETURN ROW(1, again, '{"restarted": 1}')::sweep.progress;
		ELSE
			applied := sweep._apply_changes(texts, size, path);
			done := greatest(done, applied.keys);
			detail := CASE WHEN applied.keys > 0 THEN pg_catalog.jsonb_build_object('changes', applied.keys) ELSE '{}' END;
			IF NOT at ? 'copied' THEN
				filled := sweep._fill_next(rest, texts, at, size, path);
				done := greatest(done, filled.rows);
				at := at || coalesce(filled.edge, '{"copied": true}');
				detail := detail || pg_catalog.jsonb_build_object('copied', filled.rows);
			ELSIF NOT at ? 'older' THEN
				EXECUTE pg_catalog.format('ANALYZE %s', texts ->> 'target');
				at := at || pg_catalog.jsonb_build_object('older', sweep._transactions());
			ELSIF applied.keys < size THEN
				LOOP
					SELECT pg_catalog.jsonb_object_agg(o.key, o.value) INTO left_open FROM pg_catalog.jsonb_each(at -> 'older') AS o WHERE sweep._transactions() @> pg_catalog.jsonb_build_object(o.key, o.value);
					EXIT WHEN left_open IS NULL OR pg_catalog.clock_timestamp() > deadline;
					PERFORM pg_catalog.pg_sleep(0.05);
				END LOOP;
				at := at || pg_catalog.jsonb_build_object('older', coalesce(left_open, '{}'));
				IF left_open IS NULL THEN
					made := sweep._exchange_emptied(parent, rest, texts, size, path);
					IF made IS NULL THEN
						PERFORM sweep._drop_emptying(names.copy, names.changes);
						RETURN ROW(1, again, '{"restarted": 1}')::sweep.progress;
					END IF;
					RETURN ROW(1, again, detail || pg_catalog.jsonb_build_object('emptied', pg_catalog.jsonb_build_array(rest), 'made', made))::sweep.progress;
				END IF;
				detail := detail || pg_catalog.jsonb_build_object('waits_for', (SELECT pg_catalog.jsonb_agg(DISTINCT o.value) FROM pg_catalog.jsonb_each(left_open) AS o));
				at := at || pg_catalog.jsonb_build_object('waited', coalesce((at ->> 'waited')::int, 0) + 1);
			END IF;
		END IF;
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		RETURN ROW(1, sweep._note_try(state, parent::pg_catalog.text, ARRAY[sweep._table_name(parent), sweep._table_name(rest)]), '{"lock_timeouts": 1}')::sweep.progress;
	END;
	-- If the copy waits for long transactions, which the detail names, the next run goes on with it.
	RETURN ROW(done, again || pg_catalog.jsonb_build_object('emptying', at - 'waited')
		|| CASE WHEN (at ->> 'waited')::int >= 60 THEN '{"later": true}' ELSE pg_catalog.jsonb_build_object('emptying', at) END, detail)::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._empty_next(regclass, int, jsonb, text) IS 'the next batch that empties a default partition';
