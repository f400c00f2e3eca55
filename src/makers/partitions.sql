--
-- Partitions in a retention: which of them are processed one after the other, and which are dropped.
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

CREATE FUNCTION sweep._column_names(relation regclass) RETURNS name[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ARRAY(SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum);
END
$$;
COMMENT ON FUNCTION sweep._column_names(regclass) IS 'the columns of a table, in their order';

-- A statement on a table of many partitions opens all of them and merges their rows, which takes as long as the batch. The step
-- therefore works on one partition after the other, if the result is the same: there are no policies, rules or statement triggers, and
-- the role has all rights on each partition. Partitions that are empty, or that cannot have old rows, are left out. If the condition
-- uses the name of the table as a whole row, partitions must have their columns in the same order.
CREATE FUNCTION sweep._parts(relation regclass, age_column text, role oid, type text, age_limit text, privilege text, written text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	parts pg_catalog.text[];
	is_by_age constant boolean := sweep._is_ranged_by(relation, age_column);
BEGIN
	IF pg_catalog.strpos(written || pg_catalog.lower(written) || pg_catalog.lower(written COLLATE "C"), sweep._relation_name(relation)) > 0
			AND EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t WHERE t.isleaf AND sweep._column_names(t.relid) <> sweep._column_names(relation)) THEN
		RETURN NULL;
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_class c ON c.oid = t.relid
			WHERE c.relrowsecurity OR c.relhasrules OR t.isleaf AND (c.relkind <> 'r' OR NOT pg_catalog.has_schema_privilege(role, c.relnamespace, 'USAGE')
					OR NOT pg_catalog.has_table_privilege(role, c.oid, 'SELECT') OR NOT pg_catalog.has_table_privilege(role, c.oid, privilege))
				-- a statement trigger for DELETE or UPDATE
				OR EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid = c.oid AND g.tgtype & 1 = 0 AND g.tgtype & CASE privilege WHEN 'DELETE' THEN 8 ELSE 16 END <> 0)) THEN
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
COMMENT ON FUNCTION sweep._parts(regclass, text, oid, text, text, text, text) IS 'the partitions, in the order of their names, that the role can process one by one; NULL: the table as a whole';

CREATE FUNCTION sweep._is_partitioned(relation regclass) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = relation);
END
$$;
COMMENT ON FUNCTION sweep._is_partitioned(regclass) IS 'whether a table has partitions, or could have';

CREATE FUNCTION sweep._next_place(relation regclass, parts text[], after text, OUT part regclass, OUT next_part text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.to_regclass(u.name), (SELECT pg_catalog.jsonb_build_object('part', parts[u.n + 1]) WHERE u.n < pg_catalog.cardinality(parts)) INTO part, next_part
		FROM (SELECT p.name, p.n FROM pg_catalog.unnest(parts) WITH ORDINALITY AS p (name, n) WHERE after IS NULL OR p.name COLLATE "C" >= after COLLATE "C" ORDER BY p.n OFFSET 0) AS u
		WHERE EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(pg_catalog.to_regclass(u.name)) AS a WHERE a.relid = relation)
		LIMIT 1;
END
$$;
COMMENT ON FUNCTION sweep._next_place(regclass, text[], text) IS 'the partition of that name, or the next one when it was dropped or detached, and the cursor with which the partition after it begins';

-- An existing job does not raise an error, but keeps partitions to which rows refer.
CREATE FUNCTION sweep._check_partitions(role text, relation regclass, args jsonb, is_new boolean) RETURNS void
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
		WHEN is_new AND EXISTS (SELECT FROM sweep._referencing(relation, '', '')) THEN pg_catalog.format('foreign keys refer to %s', relation) END;
	IF reason IS NOT NULL THEN
		RAISE EXCEPTION 'partitions cannot be dropped: %', reason USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave partitions out: they are emptied then.';
	END IF;
	IF NOT pg_catalog.pg_has_role(sweep._role_oid(role), owner, 'USAGE') THEN
		RAISE EXCEPTION 'role "%" does not own %', role, relation USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('Only its owner can drop partitions: write run_as => %L, or leave partitions out: they are emptied then.', pg_catalog.pg_get_userbyid(owner));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_partitions(text, regclass, jsonb, boolean) IS 'raises unless partitions that are too old can be dropped, if they are to be';

-- ------------------------------------------------------------------ bounds
-- The text of a bound contains no quotes, and with these settings it means the same in any session.
CREATE FUNCTION sweep._bounds(relation regclass, one regclass) RETURNS TABLE (part regclass, is_default boolean, lower text, upper text)
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
BEGIN
	RETURN QUERY SELECT c.oid::pg_catalog.regclass, b.bound = 'DEFAULT', nullif(pg_catalog.substring(b.bound, 'FROM [(]''?([^'',)]*)'), 'MINVALUE'), nullif(pg_catalog.substring(b.bound, '[)] TO [(]''?([^'',)]*)'), 'MAXVALUE')
		FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid CROSS JOIN LATERAL pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS b (bound)
		WHERE i.inhparent = relation AND NOT i.inhdetachpending AND (one IS NULL OR i.inhrelid = one);
END
$$;
COMMENT ON FUNCTION sweep._bounds(regclass, regclass) IS 'the partitions of a table that is partitioned by ranges, or one of them, with their bounds in its first column; NULL: there is no bound';

-- ------------------------------------------------------------------ a lock that is tried again
-- Other sessions wait behind a statement that waits for its lock. It therefore waits only for a fraction of a second, and the other
-- sessions go on until the next attempt.
CREATE FUNCTION sweep._await_turn(cursor jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	waited constant double precision := extract(epoch FROM pg_catalog.clock_timestamp() - (cursor ->> 'tried_at')::pg_catalog.timestamptz);
BEGIN
	-- Also limits the wait if the clock was set back.
	IF waited < 1 THEN
		PERFORM pg_catalog.pg_sleep(1 - greatest(waited, 0));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._await_turn(jsonb) IS 'waits until a second has passed since the last attempt to get a lock, if the cursor has one';

CREATE FUNCTION sweep._note_try(cursor jsonb, wanted text, tables text[]) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tries constant int := coalesce((cursor ->> 'tries')::int, 0) + 1;
BEGIN
	IF tries >= 10 THEN
		-- Not the code lock_not_available: the engine would do the batch again with fewer rows.
		RAISE EXCEPTION '% could not be locked', wanted USING ERRCODE = 'object_in_use',
			DETAIL = pg_catalog.format('It was tried %s times, once a second. %s', tries, coalesce(sweep._holders(tables) || '.', 'The locks were given back meanwhile.')),
			HINT = 'Look in pg_stat_activity for a transaction that is open for long.';
	END IF;
	RETURN coalesce(cursor, '{}') || pg_catalog.jsonb_build_object('tries', tries, 'tried_at', pg_catalog.clock_timestamp());
END
$$;
COMMENT ON FUNCTION sweep._note_try(jsonb, text, text[]) IS 'the cursor after an attempt to get a lock has failed; raises when that was the last attempt';

-- A statement looks the table up by name before it has the lock, so the name may belong to another table by then.
CREATE FUNCTION sweep._lock_table(relation regclass, parts boolean, mode text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name constant pg_catalog.text := sweep._table_name(relation);
	known constant pg_catalog.pg_class := (SELECT c FROM pg_catalog.pg_class c WHERE c.oid = relation);
BEGIN
	IF known.relkind = 'f' THEN
		-- LOCK TABLE refuses a foreign table. This statement changes nothing, and takes an exclusive lock.
		EXECUTE pg_catalog.format('ALTER FOREIGN TABLE %s OWNER TO %I', name, pg_catalog.pg_get_userbyid(known.relowner));
	ELSIF name IS NOT NULL THEN
		EXECUTE pg_catalog.format('LOCK TABLE %s IN %s MODE', CASE WHEN parts THEN '' ELSE 'ONLY ' END || name, mode);
	END IF;
	IF pg_catalog.to_regclass(name) IS DISTINCT FROM relation THEN
		RAISE EXCEPTION 'table % was renamed or dropped while it was being locked', relation USING ERRCODE = 'lock_not_available';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._lock_table(regclass, boolean, text) IS 'locks a table, with its partitions or without; raises lock_not_available when the name belongs to another table';

-- ------------------------------------------------------------------ the end of a partition
-- Checked because rows that policies hide from the role must count, too.
CREATE FUNCTION sweep._check_visible(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF pg_catalog.row_security_active(relation) THEN
		RAISE EXCEPTION 'policies of % may hide rows from role "%"', relation, current_user USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or run the job as its owner.', sweep._table_name(relation));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_visible(regclass) IS 'raises when row level security hides rows of a table from the role of the job';

-- PostgreSQL refuses to detach a partition to whose rows others refer; it searches for these under the lock, as the role of the job. This
-- therefore searches before, without a lock, and only in tables whose owners the role acts for: code of other owners would be executed as the
-- role.
CREATE FUNCTION sweep._is_referred_to(parent regclass, part regclass) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role constant pg_catalog.oid := (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
	part_name constant pg_catalog.text := sweep._table_name(part);
	started constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	foreign_key pg_catalog.record;
	found boolean;
BEGIN
	FOR foreign_key IN SELECT r.name, r.child, r.joined, c.relowner FROM sweep._referencing(parent, 'sweep_part', 'sweep_child') AS r JOIN pg_catalog.pg_class c ON c.oid = r.child LOOP
		IF NOT sweep._owns(role, foreign_key.relowner) THEN
			RAISE EXCEPTION 'foreign key "%" of % refers to %', foreign_key.name, foreign_key.child, parent USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('To detach a partition, PostgreSQL reads %s as role "%s", which does not act for its owner.', foreign_key.child, current_user), HINT = 'Drop the foreign key, or give both tables the same owner.';
		END IF;
		PERFORM sweep._check_visible(part), sweep._check_visible(foreign_key.child);
		EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM ONLY %s AS sweep_part JOIN %s ON %s)', part_name, sweep._referring_source(foreign_key.child, 'sweep_child'), foreign_key.joined) INTO found;
		IF found THEN
			RETURN true;
		END IF;
		IF pg_catalog.clock_timestamp() - started > interval '1 second' THEN
			RAISE EXCEPTION 'whether rows refer to partition % takes too long to see', part USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('It took %s, and PostgreSQL looks again while all sessions wait. Foreign key "%s" of %s refers to its table.', pg_catalog.clock_timestamp() - started, foreign_key.name, foreign_key.child),
				HINT = 'Empty the partition first: sweep.create_retention deletes its rows in batches.';
		END IF;
	END LOOP;
	RETURN false;
END
$$;
COMMENT ON FUNCTION sweep._is_referred_to(regclass, regclass) IS 'whether rows refer by a foreign key to those of a partition; raises when that cannot be seen quickly, or not by the role of the job';

-- DETACH CONCURRENTLY is not used: it is not possible in a transaction, nor if there is a default partition. When a foreign table that is a
-- partition, or below one, is dropped, its rows stay on their server: a retention deletes them there instead.
CREATE FUNCTION sweep._drop_partition(relation text, type text, age_limit text, is_kept boolean, foreign_too boolean, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	parent constant pg_catalog.regclass := relation::pg_catalog.regclass;
	found pg_catalog.regclass;
	found_upper pg_catalog.text;
	is_foreign boolean;
BEGIN
	-- If the bound has several columns, rows may have its first value. The cursor is after partitions that were kept because rows refer to them.
	EXECUTE pg_catalog.format($find$
		SELECT b.part, b.upper, c.relkind = 'f' FROM sweep._bounds($1, NULL) AS b JOIN pg_catalog.pg_partitioned_table t ON t.partrelid = $1 JOIN pg_catalog.pg_class c ON c.oid = b.part
		WHERE ($4 OR c.relkind = 'r' OR NOT EXISTS (WITH RECURSIVE below AS (SELECT b.part::pg_catalog.oid AS id UNION ALL SELECT i.inhrelid FROM below JOIN pg_catalog.pg_inherits i ON i.inhparent = below.id)
				SELECT FROM below WHERE (SELECT f.relkind FROM pg_catalog.pg_class f WHERE f.oid = below.id) = 'f'))
			AND (b.upper::%1$s < $2::%1$s OR b.upper::%1$s = $2::%1$s AND t.partnatts = 1) AND ($3 IS NULL OR b.upper::%1$s > $3::%1$s) ORDER BY b.upper::%1$s LIMIT 1 $find$, type)
		INTO found, found_upper, is_foreign USING parent, age_limit, cursor ->> 'referred_to', foreign_too;
	IF found IS NULL THEN
		next_cursor := cursor;
		RETURN;
	END IF;
	rows := 1;
	PERFORM sweep._await_turn(cursor);
	BEGIN
		IF sweep._is_referred_to(parent, found) THEN
			RAISE foreign_key_violation;
		END IF;
		PERFORM sweep._lock_table(parent, false, 'ACCESS EXCLUSIVE'), sweep._lock_table(found, true, 'ACCESS EXCLUSIVE');
		-- The partition may have been detached, and attached with newer rows, before it was locked.
		IF NOT EXISTS (SELECT FROM sweep._bounds(parent, found) AS b WHERE b.upper = found_upper) THEN
			RAISE lock_not_available;
		END IF;
		detail := pg_catalog.jsonb_build_object(CASE WHEN is_kept THEN 'detached' ELSE 'dropped' END, pg_catalog.jsonb_build_array(found));
		EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', sweep._table_name(parent), sweep._table_name(found));
		IF NOT is_kept THEN
			EXECUTE pg_catalog.format('DROP %s %s', CASE WHEN is_foreign THEN 'FOREIGN TABLE' ELSE 'TABLE' END, sweep._table_name(found));
		END IF;
		next_cursor := nullif(cursor - '{tries,tried_at}'::pg_catalog.text[], '{}');
	EXCEPTION
		WHEN lock_not_available OR deadlock_detected THEN
			next_cursor := sweep._note_try(cursor, 'partition ' || found, ARRAY[sweep._table_name(parent), sweep._table_name(found)]);
			detail := '{"lock_timeouts": 1}';
		WHEN foreign_key_violation THEN
			next_cursor := coalesce(cursor - '{tries,tried_at}'::pg_catalog.text[], '{}') || pg_catalog.jsonb_build_object('referred_to', found_upper);
			detail := pg_catalog.jsonb_build_object('referred_to', pg_catalog.jsonb_build_array(found));
	END;
END
$$;
COMMENT ON FUNCTION sweep._drop_partition(text, text, text, boolean, boolean, jsonb) IS 'drops, or detaches (is_kept), a partition in which all rows are too old; rows is NULL when there is none';

-- In a function of its own, so that the statement that reads the table has ended before a partition is dropped.
CREATE FUNCTION sweep._drop_too_old(relation text, type text, age_limit text, late text, as_of timestamptz, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	counted bigint;
BEGIN
	IF late IS NOT NULL AND NOT coalesce(cursor ? 'late', false) THEN
		EXECUTE 'SELECT ' || late INTO counted USING NULL::int, NULL::pg_catalog.jsonb, as_of;
		cursor := coalesce(cursor, '{}') || pg_catalog.jsonb_build_object('late', counted);
	END IF;
	SELECT d.rows, d.next_cursor, d.detail INTO rows, next_cursor, detail FROM sweep._drop_partition(relation, type, age_limit, false, false, cursor) AS d;
	IF counted > 0 THEN
		detail := coalesce(detail, '{}') || pg_catalog.jsonb_build_object('late_rows', counted);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._drop_too_old(text, text, text, text, timestamptz, jsonb) IS 'drops a partition as sweep._drop_partition does; before the first one, counts late rows by the expression "late"';
