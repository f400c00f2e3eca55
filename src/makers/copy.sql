--
-- Copy: inserts the rows of one table into another one, by ranges of a unique key; if the cursor is kept for good, further runs insert
-- rows that were added since.
--
CREATE FUNCTION sweep._copy_columns(source regclass, target regclass) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns pg_catalog.text[];
	missing pg_catalog.text;
BEGIN
	SELECT pg_catalog.array_agg(b.attname::pg_catalog.text ORDER BY b.attnum) INTO columns FROM pg_catalog.pg_attribute b
		WHERE b.attrelid = target AND b.attnum > 0 AND NOT b.attisdropped AND b.attgenerated = ''
			AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = source AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped);
	IF columns IS NULL THEN
		RAISE EXCEPTION '% and % have no column in common', source, target USING ERRCODE = 'invalid_parameter_value', HINT = 'Columns are copied by their names.';
	END IF;
	SELECT b.attname INTO missing FROM pg_catalog.pg_attribute b WHERE b.attrelid = target AND b.attnum > 0 AND NOT b.attisdropped AND b.attnotnull
		AND NOT b.atthasdef AND b.attidentity = '' AND b.attname::pg_catalog.text <> ALL (columns) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is not in %', missing, target, source USING ERRCODE = 'invalid_parameter_value', HINT = 'It is NOT NULL, so it needs a default.';
	END IF;
	RETURN columns;
END
$$;
COMMENT ON FUNCTION sweep._copy_columns(regclass, regclass) IS 'the columns that two tables have in common; raises when a row of one cannot become one of the other';

-- An INSERT into the partitioned table of which the source is a partition locks the source only after it has drawn keys.
--
-- DML takes ROW EXCLUSIVE even if its transaction has a stronger lock already. A transaction that only has another lock, such as
-- SHARE ROW EXCLUSIVE for a switch of tables, has inserted no rows.
CREATE FUNCTION sweep._writers(source regclass) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.jsonb_object_agg(l.virtualtransaction, coalesce(pg_catalog.to_jsonb(l.pid), '"prepared transaction"')), '{}') FROM pg_catalog.pg_locks l
		WHERE l.locktype = 'relation' AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
			AND (l.relation = source OR l.relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(source) AS t UNION ALL SELECT a.relid FROM pg_catalog.pg_partition_ancestors(source) AS a))
			AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() AND l.mode = 'RowExclusiveLock');
END
$$;
COMMENT ON FUNCTION sweep._writers(regclass) IS 'the transactions in progress that may have inserted rows into a table: {"virtual transaction": pid}';

-- A transaction in progress may still commit rows with smaller keys than visible ones, and a cursor after those would skip them for ever. Such a
-- transaction has locked the table before it drew its keys. A key is therefore "settled", and rows are copied up to it, when all transactions
-- that held such a lock have ended; "newest" is the key that will be settled next. Most transactions end soon, so a run waits a second. After a
-- restart of the server a prepared transaction has another number, -1/...: it may be any of those that held a lock.
CREATE FUNCTION sweep._settle(source text, cursor jsonb, run_id bigint, newest jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	state pg_catalog.jsonb := coalesce(cursor, '{}') || pg_catalog.jsonb_build_object('run', run_id);
	writers pg_catalog.jsonb := sweep._writers(source::pg_catalog.regclass);
	deadline constant pg_catalog.timestamptz := pg_catalog.clock_timestamp() + interval '1 second';
	pids pg_catalog.jsonb;
BEGIN
	IF state ? 'newest' THEN
		state := state || pg_catalog.jsonb_build_object('writers', (SELECT coalesce(pg_catalog.jsonb_agg(w), '[]') FROM
			(SELECT pg_catalog.jsonb_array_elements_text(state -> 'writers') UNION SELECT r FROM pg_catalog.jsonb_object_keys(writers) AS r WHERE r LIKE '-1/%') AS u (w)));
	END IF;
	IF state ? 'newest' AND NOT EXISTS (SELECT FROM pg_catalog.jsonb_array_elements_text(state -> 'writers') AS w WHERE writers ? w) THEN
		state := (state || pg_catalog.jsonb_build_object('settled', state -> 'newest')) - 'newest';
	END IF;
	IF NOT state ? 'newest' THEN
		state := state || pg_catalog.jsonb_build_object('newest', newest,
			'writers', (SELECT coalesce(pg_catalog.jsonb_agg(w), '[]') FROM pg_catalog.jsonb_object_keys(writers) AS w));
	END IF;
	LOOP
		SELECT pg_catalog.jsonb_agg(DISTINCT writers -> w) INTO pids FROM pg_catalog.jsonb_array_elements_text(state -> 'writers') AS w WHERE writers ? w;
		EXIT WHEN pids IS NULL OR pg_catalog.clock_timestamp() > deadline;
		PERFORM pg_catalog.pg_sleep(0.01);
		writers := sweep._writers(source::pg_catalog.regclass);
	END LOOP;
	IF pids IS NULL THEN
		state := state - ARRAY['newest', 'writers'] || pg_catalog.jsonb_build_object('settled', state -> 'newest');
	ELSIF state #> '{settled,after}' IS DISTINCT FROM newest -> 'after' THEN
		detail := pg_catalog.jsonb_build_object('waits_for', pids);
	END IF;
	next_cursor := state;
	-- The snapshot of this batch may be older than their commits; the next batch has a new one.
	IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
		rows := 1;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._settle(text, jsonb, bigint, jsonb) IS
	'the cursor with the last key to be copied, such that no transaction in progress can insert a smaller one; the detail names the transactions that are waited for; rows is not NULL when the batch has done its work';

-- A cursor of an older version has neither the order of the key nor the tables.
CREATE FUNCTION sweep._with_ordering(source regclass, target regclass, key text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('pg_catalog.jsonb_build_object(''ordering'', sweep._key_ordering(%L, %L)) OPERATOR(pg_catalog.||) coalesce($2, ''{}'') OPERATOR(pg_catalog.||) %L::pg_catalog.jsonb',
		sweep._table_name(source), key, pg_catalog.jsonb_build_object('copies', sweep._copied_tables(source, target)));
END
$$;
COMMENT ON FUNCTION sweep._with_ordering(regclass, regclass, text[]) IS 'an expression: the cursor, completed by the order of the key and the tables of the copy';

CREATE FUNCTION sweep._copy_prologue(source regclass, target regclass, key text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('SELECT NULL::pg_catalog.int8, %s, NULL::pg_catalog.jsonb WHERE ($2 OPERATOR(pg_catalog.->) ''ordering'') IS NULL', sweep._with_ordering(source, target, key));
END
$$;
COMMENT ON FUNCTION sweep._copy_prologue(regclass, regclass, text[]) IS 'a prologue that puts the order of the key and the tables of the copy into the cursor';

CREATE FUNCTION sweep._copied_tables(source regclass, target regclass) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.jsonb_build_array(source::pg_catalog.oid, sweep._table_name(source), target::pg_catalog.oid, sweep._table_name(target));
END
$$;
COMMENT ON FUNCTION sweep._copied_tables(regclass, regclass) IS 'the tables of a copy, by their OIDs and names';

-- A renamed table is recognized by its OID, a restored one by its name.
CREATE FUNCTION sweep._check_copied(cursor jsonb, tables jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known constant pg_catalog.jsonb := cursor -> 'copies';
BEGIN
	IF cursor ? 'after' AND (known -> 0 <> tables -> 0 AND known -> 1 <> tables -> 1 OR known -> 2 <> tables -> 2 AND known -> 3 <> tables -> 3) THEN
		RAISE EXCEPTION 'the job has copied % to %, and is to copy % to %', known ->> 1, known ->> 3, tables ->> 1, tables ->> 3 USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'It would go on behind the last key that it has copied there.', HINT = 'Create another job for these tables.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_copied(jsonb, jsonb) IS 'raises when the cursor of a copy is of other tables';

-- A statement has the columns of the time when it was generated.
CREATE FUNCTION sweep._check_columns(relation text, known text[], columns text[]) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF columns <> known THEN
		RAISE EXCEPTION 'the columns of % have changed since the run began', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = pg_catalog.format('It was to take (%s), and is to take (%s).', sweep._column_list(known), sweep._column_list(columns)), HINT = 'Start the job again.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_columns(text, text[], text[]) IS 'raises when other columns are to be taken from a table than when the run began';

CREATE FUNCTION sweep._collate_as(relation regclass, name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, c.collname) FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
			JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace WHERE a.attrelid = relation AND a.attname = name);
END
$$;
COMMENT ON FUNCTION sweep._collate_as(regclass, text) IS 'the COLLATE clause with the collation of a column; NULL: it has none';

-- A key that the type of the target rounds would not be found again.
CREATE FUNCTION sweep._keeps_key(source regclass, target regclass, key text[], terms text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s OPERATOR(pg_catalog.=) %1$s::%s%s', terms[u.n], sweep._type_name(o.atttypid, o.atttypmod),
			-- A domain may have a collation of its own.
			CASE WHEN o.attcollation <> 0 THEN sweep._collate_as(source, u.name) END), ' AND ' ORDER BY u.n)
		FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attname = u.name JOIN pg_catalog.pg_attribute o ON o.attrelid = target AND o.attname = u.name
		WHERE (a.atttypid, a.atttypmod) <> (o.atttypid, o.atttypmod) AND NOT (o.atttypmod = -1
			AND (a.atttypid = o.atttypid OR a.atttypid = 'pg_catalog.int4'::pg_catalog.regtype AND o.atttypid = 'pg_catalog.int8'::pg_catalog.regtype)));
END
$$;
COMMENT ON FUNCTION sweep._keeps_key(regclass, regclass, text[], text[]) IS 'a condition: the key, given as these terms, has the same value in the target of a copy as in the source; NULL: the types ensure it';

CREATE FUNCTION sweep._holders(tables text[]) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(DISTINCT pg_catalog.format('%s has %s on %s', coalesce('process ' || l.pid, 'a prepared transaction'), l.mode, l.relation::pg_catalog.regclass), ', ')
		FROM pg_catalog.pg_locks l WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
			AND l.relation IN (SELECT pg_catalog.to_regclass(t) FROM pg_catalog.unnest(tables) AS t)
			AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()));
END
$$;
COMMENT ON FUNCTION sweep._holders(text[]) IS 'a text: which processes have which locks on these tables; NULL: none';

-- A trigger may leave a row out, or give it another key. The rows are read once: another session may add some meanwhile.
CREATE FUNCTION sweep._insert_text(source regclass, target regclass, key text[], columns text[], rows text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names constant pg_catalog.text := sweep._column_list(columns);
	keys constant pg_catalog.text := sweep._column_list(key);
BEGIN
	RETURN pg_catalog.format('WITH sweep_rows AS MATERIALIZED (%s), done AS (INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM sweep_rows RETURNING %s)'
		' SELECT sweep_left::pg_catalog.text FROM (SELECT %s FROM sweep_rows EXCEPT SELECT %s FROM done) AS sweep_left LIMIT 1', rows, sweep._table_name(target), names, names, keys, keys,
		(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name) || coalesce(sweep._collate_as(source, u.name), ''), ', ' ORDER BY u.n) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n)));
END
$$;
COMMENT ON FUNCTION sweep._insert_text(regclass, regclass, text[], text[], text) IS 'the statement that inserts rows of the source of a copy, and returns the key of one that has not come to the target';

CREATE FUNCTION sweep._changes_name(source regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema pg_catalog.text;
	base pg_catalog.text;
BEGIN
	SELECT n.nspname, c.relname INTO schema, base FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source;
	WHILE pg_catalog.octet_length(base) > 45 LOOP
		base := pg_catalog.left(base, -1);
	END LOOP;
	RETURN pg_catalog.format('%I.%I', schema, base || '_sweep_changes');
END
$$;
COMMENT ON FUNCTION sweep._changes_name(regclass) IS 'the table, and the trigger function, of keys of changed rows of a table; a table has one copy with changes at a time';

-- The schema of the table may have been renamed; if the trigger stayed, each write to the source would fail. The table is checked, because any
-- role can create a table of that name, or a job with such args.
CREATE FUNCTION sweep._moved_changes(changes text, role oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce((SELECT sweep._table_name(c.oid) FROM pg_catalog.pg_class c WHERE pg_catalog.to_regclass(changes) IS NULL AND c.relname = (pg_catalog.parse_ident(changes))[2]
			AND pg_catalog.obj_description(c.oid, 'pg_class') = 'keys of rows that a job of sweep.create_copy copies anew'
			AND pg_catalog.pg_has_role(role, c.relowner, 'USAGE')
			AND NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.args ->> 'changes' = sweep._table_name(c.oid) AND pg_catalog.pg_has_role(sweep._role_oid(j.run_as), c.relowner, 'USAGE')) ORDER BY c.oid LIMIT 1), changes);
END
$$;
COMMENT ON FUNCTION sweep._moved_changes(text, oid) IS 'the name of a table of keys of changed rows, also where its schema was renamed';

CREATE FUNCTION sweep._check_logged(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.record;
BEGIN
	SELECT c.oid::pg_catalog.regclass AS name, c.relpersistence = 't' AS is_temporary INTO known FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND c.relpersistence <> 'p'
		AND c.oid = ANY (ARRAY(SELECT t.relid FROM pg_catalog.pg_partition_tree(relation) AS t) || relation) LIMIT 1;
	IF known.is_temporary THEN
		RAISE EXCEPTION '% is a temporary table', known.name USING ERRCODE = 'wrong_object_type', HINT = 'It goes with its session, and rows that it was given would not come again.';
	ELSIF known.name IS NOT NULL THEN
		RAISE EXCEPTION '% is unlogged', known.name USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'A crash would empty it, and rows that it was given before would not come again.',
			HINT = pg_catalog.format('ALTER TABLE %s SET LOGGED; what it was given before a crash is gone already.', known.name);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_logged(regclass) IS 'raises when a crash, or the end of a session, would empty the table, or a partition of it';

CREATE FUNCTION sweep._copy_statements(args jsonb, again boolean) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	source pg_catalog.regclass;
	target pg_catalog.regclass;
	key pg_catalog.record;
	is_settled constant boolean := (args ->> 'settled')::boolean;
	source_name pg_catalog.text;
	in_range pg_catalog.text;
	columns pg_catalog.text[];
	first boolean;
BEGIN
	-- After a switch the copy has another name; the cursor has the remaining work.
	IF args ? 'changes' AND pg_catalog.to_regclass(args ->> 'target') IS NULL AND pg_catalog.to_regclass(args ->> 'changes') IS NULL THEN
		made.prologue := pg_catalog.format('SELECT c.rows, c.next_cursor, c.detail FROM sweep._change_batch(%L, NULL, $2, $1, $5, NULL) AS c', args);
		made.key := 'a copy that was switched';
		made.checked := true;
		made.restarts := false;
		RETURN QUERY SELECT made.* UNION ALL SELECT made.*;
		RETURN;
	END IF;
	source := sweep._find_table('source', args ->> 'source', NULL);
	target := sweep._find_table('target', args ->> 'target', NULL);
	PERFORM sweep._check_logged(target);
	-- Child tables (INHERITS) have keys of their own: their rows with keys before the cursor would be left out.
	PERFORM sweep._check_heirs(source) WHERE NOT args ? 'changes';
	source_name := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = source);
	key := sweep._ordered_key(source, args ->> 'order_by');
	columns := sweep._copy_columns(source, target);
	in_range := sweep._in_range(source, args -> 'range', again);
	PERFORM sweep._check_condition(args ->> 'condition');
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(source, NULL, key.columns, key.nulls, CASE WHEN is_settled
			THEN sweep._key_compare(source, key.columns, '<=', '($2 OPERATOR(pg_catalog.->) ''settled'')') ELSE 'true' END || in_range, first);
		made.counter := 'copied';
		made.work := pg_catalog.format(E'INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s AND (%s\n)%s', sweep._table_name(target),
			sweep._column_list(columns),
			sweep._qualified_list(source_name, columns),
			sweep._source(source, NULL), sweep._range(source, key.columns, first) || in_range, coalesce(args ->> 'condition', 'true'),
			CASE args ->> 'on_conflict' WHEN 'nothing' THEN ' ON CONFLICT DO NOTHING' ELSE '' END);
		made.prologue := sweep._copy_prologue(source, target, key.columns);
		IF is_settled THEN
			made.prologue := pg_catalog.format('SELECT s.rows, s.next_cursor, s.detail FROM sweep._settle(%L, %s, $5, (SELECT %s FROM (SELECT %s FROM %s ORDER BY %s LIMIT 1) AS k)) AS s'
				' WHERE (($2 OPERATOR(pg_catalog.->>) ''run'')::pg_catalog.int8 IS DISTINCT FROM $5)', sweep._table_name(source), sweep._with_ordering(source, target, key.columns), sweep._key_json(source, key.columns, NULL),
				sweep._key_list(source, key.columns),
				sweep._source(source, NULL), sweep._key_order(source, key.columns, key.nulls, true));
		END IF;
		made.ordering := pg_catalog.format('SELECT sweep._check_copied($2, %L), sweep._check_ordering(%2$L, %L, $2, %L), sweep._check_columns(%2$L, %5$L, sweep._copy_columns(%2$L, %6$L))', sweep._copied_tables(source, target),
			sweep._table_name(source), key.columns, 'Drop the job, and create it anew with an empty target.', columns, sweep._table_name(target));
		IF args ? 'changes' THEN
			made.ordering := NULL;
			made.work := sweep._change_work(args, source, target, key.columns, columns, first);
			made.checked := true;
			made.prologue := pg_catalog.format('SELECT c.rows, c.next_cursor, c.detail FROM sweep._change_batch(%L, %L, $2, $1, $5, pg_catalog.current_setting(''search_path'')) AS c', args,
				sweep._change_texts(args, source, target, key.columns, key.nulls, columns));
		END IF;
		-- With another key it is not known which rows were copied.
		made.restarts := NOT is_settled;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._copy_statements(jsonb, boolean) IS 'the statements of a copy';

-- Executed for each partition. It reads few rows of large catalogues, so planning takes longer than execution.
CREATE FUNCTION sweep._range_statements(step text, args jsonb, again boolean, role oid, as_of timestamptz, part text, parts text, path text) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
	CASE step
		WHEN 'retention_step' THEN
			RETURN QUERY SELECT * FROM sweep._retention_statements(args, again, role, as_of, part, parts::pg_catalog.text[]);
		WHEN 'delete_step' THEN
			-- Checked once per run, since the args may have been altered. A stored statement is checked by sweep._stored_parts.
			PERFORM sweep._check_deletion(sweep._role_name(role), sweep._find_table('target', args ->> 'target', NULL), args ->> 'condition', pg_catalog.jsonb_build_object('search_path', path)) WHERE parts IS NULL AND NOT args ? 'statement';
			RETURN QUERY SELECT * FROM sweep._delete_statements(args, again, role, part, parts::pg_catalog.text[]);
		WHEN 'backfill_step' THEN
			RETURN QUERY SELECT * FROM sweep._backfill_statements(args, again);
		WHEN 'copy_step' THEN
			RETURN QUERY SELECT * FROM sweep._copy_statements(args, again);
		WHEN 'update_step' THEN
			RETURN QUERY SELECT * FROM sweep._update_statements(args, again, role, part, parts::pg_catalog.text[]);
	END CASE;
END
$$;
COMMENT ON FUNCTION sweep._range_statements(text, jsonb, boolean, oid, timestamptz, text, text, text) IS
	'the statements of the job of a maker, in its first or a further pass: those for the first batch of the pass, and those for the next batches; path: the search_path of the run';

CREATE FUNCTION sweep.copy_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.copy_step(sweep.batch) IS 'step of the jobs that sweep.create_copy makes';

CREATE FUNCTION sweep._create_copy(caller oid, job sweep.job_definition, source text, target text, condition text, order_by text, on_conflict text, with_changes boolean, parallel int, run_as regrole,
	paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	existed pg_catalog.bool;
	source_table constant pg_catalog.regclass := sweep._find_table('source', source, coalesce(run_as::pg_catalog.oid, caller));
	target_table constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	deferred pg_catalog.text;
	names pg_catalog.text;
BEGIN
	IF with_changes IS NULL THEN
		RAISE EXCEPTION 'with_changes must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	IF on_conflict IS NULL OR on_conflict NOT IN ('error', 'nothing') THEN
		RAISE EXCEPTION 'invalid on_conflict "%"', coalesce(on_conflict, 'NULL') USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "error" or "nothing".';
	END IF;
	IF on_conflict = 'nothing' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = target_table AND i.indisunique AND i.indisvalid) THEN
		RAISE EXCEPTION 'rows of % are never in conflict', target_table USING ERRCODE = 'invalid_parameter_value', HINT = 'It has no unique index. Leave on_conflict out.';
	END IF;
	SELECT c.conname INTO deferred FROM pg_catalog.pg_constraint c WHERE c.contype IN ('p', 'u', 'x') AND c.condeferrable AND (with_changes OR on_conflict = 'nothing')
		AND (c.conrelid = target_table OR c.conrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(target_table) AS t)) ORDER BY c.conname LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'constraint "%" of % is deferrable', deferred, target_table USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'PostgreSQL inserts no rows ON CONFLICT DO NOTHING there.',
			HINT = 'Drop it, and add it again when the job has done its work.';
	END IF;
	IF source_table = target_table OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(source_table)) AS t WHERE t.relid = target_table) THEN
		RAISE EXCEPTION '% cannot be copied to itself', source_table USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another table as the target.';
	END IF;
	IF parallel > 1 AND (with_changes OR job.cursor = 'always') THEN
		RAISE EXCEPTION '% is not possible with parallel => %', CASE WHEN with_changes THEN 'with_changes' ELSE 'cursor "always"' END, parallel USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Ranges are done in any order: there is no key up to which all is copied.',
			HINT = 'Leave parallel out; or leave cursor and with_changes out: the job then copies what is there when it runs.';
	END IF;
	job.cursor := coalesce(job.cursor, CASE WHEN parallel > 1 THEN 'run' ELSE 'always' END);
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'copy', source_table, run_as);
	IF job.buckets IS NOT NULL THEN
		job.cursor := sweep._kept_by(job);
	END IF;
	PERFORM sweep._check_table(job.run_as, source_table, '{SELECT}'), sweep._check_table(job.run_as, target_table, '{INSERT}');
	job.args := job.args || pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('source', sweep._table_name(source_table), 'target', sweep._table_name(target_table),
		'condition', condition, 'on_conflict', on_conflict, 'settled', job.cursor = 'always',
		'order_by', sweep._column_list((sweep._ordered_key(source_table, order_by)).columns)));
	IF with_changes THEN
		job.args := job.args || pg_catalog.jsonb_build_object('changes', sweep._changes_name(source_table));
		PERFORM sweep._check_follows(job, source_table, target_table, (sweep._ordered_key(source_table, order_by)).columns);
	END IF;
	PERFORM FROM sweep._copy_statements(job.args, false);
	SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ') INTO names FROM pg_catalog.unnest(sweep._copy_columns(source_table, target_table)) AS c;
	PERFORM sweep._check_fragment(job.run_as, pg_catalog.format(E'INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %3$s WHERE $1 IS NOT NULL AND (%4$s\n)',
		sweep._table_name(target_table), names, sweep._source(source_table, NULL), coalesce(condition, 'true')), job.settings);
	existed := EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = job.name);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._start_maker(job, paused) WHERE NOT existed;
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_copy IS 'implements sweep.create_copy';

CREATE FUNCTION sweep.create_copy(source text, target text, condition text DEFAULT NULL, order_by text DEFAULT NULL, on_conflict text DEFAULT 'error',
	with_changes boolean DEFAULT false, cursor text DEFAULT NULL, name text DEFAULT NULL, schedule text DEFAULT NULL, timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_batches int DEFAULT NULL,
	max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT NULL, settings jsonb DEFAULT NULL,
	lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL, overlap text DEFAULT NULL,
	catch_up text DEFAULT NULL, jitter interval DEFAULT NULL, estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL,
	on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL, parallel int DEFAULT 1, run_as regrole DEFAULT NULL,
	description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_copy IS
	'creates a job that inserts the rows of one table into another one, and in later runs the rows that were added since; starts it unless it has a schedule; returns its name';
