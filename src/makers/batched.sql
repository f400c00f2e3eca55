--
-- sweep.batched: a DELETE or UPDATE, written as for one transaction, is done in batches. The checks, and the statements of an UPDATE.
--
-- The job stores the statement as PostgreSQL writes it, with all names qualified. It is analysed again whenever the statements of a run are
-- generated, because the owner of the job may have altered it. An UPDATE goes through the table by a unique key, up to the greatest key at its
-- start, so that each row is updated once. The cursor is committed with the batch, so this also holds after a crash. If no row meets the
-- condition after the update, further passes find the rows that were left out.
--
CREATE FUNCTION sweep._batched_parts(role oid, statement text, settings jsonb, freezes boolean, OUT word text, OUT target oid, OUT written text, OUT set text, OUT source text,
	OUT own text, OUT others text, OUT sets text[], OUT reads oid[], OUT is_limited boolean, OUT falsifies boolean) RETURNS record
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_batched_parts';
COMMENT ON FUNCTION sweep._batched_parts(oid, text, jsonb, boolean) IS 'the parts of a DELETE or UPDATE; freezes: with now() and the like replaced by $3; raises for other statements, and for those that are never possible in batches';

-- ------------------------------------------------------------------ the table
CREATE FUNCTION sweep._check_batched_table(role text, relation regclass, word text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_table(role, relation, ARRAY['SELECT', pg_catalog.upper(word COLLATE "C")]);
	IF EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.oid = relation AND (n.nspname ~ '^pg_' OR n.nspname = 'information_schema')) THEN
		RAISE EXCEPTION '% is a table of the system', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Its rows are changed by commands such as ALTER and DROP.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition WHERE i.inhrelid = relation) THEN
		RAISE EXCEPTION '% inherits from another table', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Take it out with ALTER TABLE ... NO INHERIT, or execute the statement as a whole.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation) THEN
		RAISE EXCEPTION '% has the rule "%"', relation, (SELECT r.rulename FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation ORDER BY r.oid LIMIT 1)
			USING ERRCODE = 'feature_not_supported', HINT = 'Replace it by a trigger FOR EACH ROW: a rule changes the statements of the batches.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_table(text, regclass, text) IS 'raises unless it is a table in which the role can delete or update in batches';

-- A sub-select on the table itself would see rows that earlier batches have changed.
CREATE FUNCTION sweep._check_batched_reads(role text, relation regclass, reads oid[], is_limited boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tables pg_catalog.oid[];
	other pg_catalog.regclass;
BEGIN
	WITH RECURSIVE seen AS (
			SELECT u.id FROM pg_catalog.unnest(reads) AS u (id)
			UNION SELECT d.refobjid FROM seen JOIN pg_catalog.pg_class c ON c.oid = seen.id AND c.relkind = 'v' JOIN pg_catalog.pg_rewrite w ON w.ev_class = seen.id
				JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = w.oid
					AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid <> seen.id)
		SELECT pg_catalog.array_agg(seen.id) INTO tables FROM seen;
	SELECT t.id INTO other FROM pg_catalog.unnest(tables) AS t (id) WHERE t.id = relation
		OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(relation)) AS p WHERE p.relid = t.id) ORDER BY t.id = relation DESC LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'the statement reads %, which it changes', other USING ERRCODE = 'feature_not_supported',
			DETAIL = 'A batch would see what the batches before it have done, and choose other rows than the statement as a whole.',
			HINT = CASE WHEN is_limited THEN 'Leave the sub-select with its LIMIT out, and write its condition: how many rows a batch has is the argument batch_size.'
				ELSE 'Write what is to be read into another table first (CREATE TABLE ... AS SELECT ...), and have the statement read that one.' END;
	END IF;
	SELECT c.oid INTO other FROM pg_catalog.pg_class c WHERE c.oid = ANY (reads) AND c.relpersistence = 't' LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION '% is a temporary table', other USING ERRCODE = 'wrong_object_type',
			HINT = 'A job runs in a session of its own, which does not see it. Make it an ordinary table, and drop that afterwards.';
	END IF;
	SELECT c.oid INTO other FROM pg_catalog.pg_class c WHERE c.oid = ANY (reads) AND NOT pg_catalog.has_any_column_privilege(sweep._role_oid(role), c.oid, 'SELECT') LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'role "%" may not read %', role, other USING ERRCODE = 'insufficient_privilege', HINT = pg_catalog.format('GRANT SELECT ON %s TO %I;', other, role);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_reads(text, regclass, oid[], boolean) IS 'raises when the statement reads what it changes, or what its job cannot see';

-- A generated column changes with the columns from which it is computed.
CREATE FUNCTION sweep._changed_columns(relation regclass, sets text[]) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN sets || ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum AND a.attgenerated <> ''
			JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = relation
			JOIN pg_catalog.pg_attribute s ON s.attrelid = relation AND s.attnum = d.refobjsubid
		WHERE f.adrelid = relation AND s.attname = ANY (sets) AND (d.classid, d.objid) IN (('pg_catalog.pg_attrdef'::pg_catalog.regclass, f.oid))
		UNION SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = relation AND d.objsubid = a.attnum
				AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = relation
			JOIN pg_catalog.pg_attribute s ON s.attrelid = relation AND s.attnum = d.refobjsubid
		WHERE a.attrelid = relation AND a.attgenerated <> '' AND s.attname = ANY (sets));
END
$$;
COMMENT ON FUNCTION sweep._changed_columns(regclass, text[]) IS 'the columns that are set, and those that are generated from them';

CREATE FUNCTION sweep._check_batched_sets(relation regclass, sets text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	SELECT a.attname AS name INTO wrong FROM (SELECT a.relid AS id FROM pg_catalog.pg_partition_ancestors(relation) AS a UNION SELECT t.relid FROM pg_catalog.pg_partition_tree(relation) AS t) AS r JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = r.id
			JOIN pg_catalog.pg_attribute a ON a.attrelid = r.id AND a.attname = ANY (sets)
		WHERE a.attnum = ANY (p.partattrs::pg_catalog.int2[])
			OR EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = r.id AND d.objsubid = 0
				AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = r.id AND d.refobjsubid = a.attnum) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" cannot be set: it is of the partition key of %', wrong.name, relation USING ERRCODE = 'feature_not_supported',
			HINT = 'Rows would move to other partitions, and could be updated twice. Execute the statement as a whole.';
	END IF;
	SELECT u.name, i.indexrelid::pg_catalog.regclass AS index, CASE WHEN i.indisprimary THEN 'primary key' WHEN i.indisexclusion THEN 'exclusion constraint' ELSE 'unique index' END AS word INTO wrong
		FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.unnest(sets) AS u (name)
		WHERE (i.indrelid = relation OR i.indrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(relation) AS t)) AND (i.indisunique OR i.indisexclusion) AND sweep._index_uses(i.indexrelid, ARRAY[u.name])
		ORDER BY i.indrelid = relation DESC, i.indisprimary DESC, i.indexrelid LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" cannot be set: it is of the % %', wrong.name, wrong.word, wrong.index
			USING ERRCODE = 'feature_not_supported',
			DETAIL = 'A row may get a value that another row has until a later batch: that batch would fail, and the batches before have committed.',
			HINT = 'Execute the statement as a whole, or drop the index for the time of the update.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_sets(regclass, text[]) IS 'raises when a column is set that tells rows apart, or says in which partition they are';

-- ------------------------------------------------------------------ the job
-- The search_path is that of the caller: names in the statement are looked up as in any statement of the session.
CREATE FUNCTION sweep._batched_meaning(settings jsonb) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.jsonb_build_object('search_path', coalesce(pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n), ''))
			FROM pg_catalog.unnest(sweep._caller_search_path()) WITH ORDINALITY AS u (name, n))
		|| coalesce((SELECT pg_catalog.jsonb_object_agg(CASE pg_catalog.lower(s.key COLLATE "C") WHEN 'search_path' THEN 'search_path' ELSE s.key END, s.value)
			FROM pg_catalog.jsonb_each_text(CASE pg_catalog.jsonb_typeof(settings) WHEN 'object' THEN settings END) AS s
			WHERE s.value IS NOT NULL AND pg_catalog.lower(s.key COLLATE "C") IN ('search_path', 'transform_null_equals', 'array_nulls', 'datestyle', 'intervalstyle', 'timezone')), '{}');
END
$$;
COMMENT ON FUNCTION sweep._batched_meaning(jsonb) IS 'those settings of the session and of the job that decide the meaning of a statement and differ from the present ones';

CREATE FUNCTION sweep._batched_args(role text, statement text, settings jsonb, OUT word text, OUT target regclass, OUT args jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
	key pg_catalog.record;
	fires pg_catalog.text;
BEGIN
	IF statement IS NULL THEN
		RAISE EXCEPTION 'statement must not be null' USING ERRCODE = 'null_value_not_allowed',
			HINT = 'Write one DELETE or UPDATE, for example: UPDATE app.line SET total = price * quantity WHERE total IS NULL.';
	END IF;
	parts := sweep._checked_parts(role, statement, sweep._batched_meaning(settings), false);
	word := parts.word;
	target := parts.target;
	SELECT pg_catalog.string_agg(pg_catalog.quote_ident(t.tgname), ', ' ORDER BY t.tgname) INTO fires FROM pg_catalog.pg_trigger t
		WHERE t.tgrelid = target AND NOT t.tgisinternal AND t.tgenabled NOT IN ('D', 'R') AND t.tgtype & CASE word WHEN 'delete' THEN 8 ELSE 16 END <> 0
			AND (t.tgtype & 1 = 0 OR t.tgoldtable IS NOT NULL OR t.tgnewtable IS NOT NULL);
	IF fires IS NOT NULL THEN
		RAISE WARNING 'triggers of % fire for each batch: %', target, fires USING HINT = 'They are FOR EACH STATEMENT, or have a transition table: they see the rows of a batch.';
	END IF;
	args := pg_catalog.jsonb_build_object('target', sweep._table_name(target), 'statement', parts.written);
	PERFORM sweep._check_batched_path(role, parts.written, sweep._job_meaning(role, settings) ->> 'search_path', sweep._batched_meaning(settings) ->> 'search_path');
	-- In the parts, names of pg_catalog have no schema.
	key := sweep._run_key(role, target, sweep._found_by(parts), coalesce((SELECT pg_catalog.jsonb_object_agg(s.key, s.value)
		FROM pg_catalog.jsonb_each(CASE pg_catalog.jsonb_typeof(settings) WHEN 'object' THEN settings END) AS s WHERE pg_catalog.lower(s.key COLLATE "C") <> 'search_path'), '{}') || '{"search_path": "pg_catalog"}', sweep._changed_columns(target, parts.sets), word = 'update' AND NOT sweep._repeats(parts));
	args := args || pg_catalog.jsonb_build_object('key', key.columns, 'serves', key.serves);
END
$$;
COMMENT ON FUNCTION sweep._batched_args(text, text, jsonb) IS 'the command (delete or update), the table, and the args of the job; raises when the statement cannot be done in batches';

-- PostgreSQL prefers a function for exactly these types to one with polymorphic types, in whatever schema it is.
CREATE FUNCTION sweep._check_batched_path(role text, statement text, path text, meant_path text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	meant constant pg_catalog.text := (sweep._batched_parts(sweep._role_oid(role), statement, '{"search_path": "pg_catalog"}', false)).written;
	found constant pg_catalog.text := (sweep._batched_parts(sweep._role_oid(role), statement, pg_catalog.jsonb_build_object('search_path', pg_catalog.concat_ws(', ', 'pg_catalog', nullif(path, ''))), false)).written;
BEGIN
	IF found <> meant THEN
		RAISE EXCEPTION 'the statement means something else with the search_path of the job, %', path USING ERRCODE = 'ambiguous_function',
			DETAIL = pg_catalog.format('There it is: %s', found),
			HINT = pg_catalog.format('Give the job the search_path of the session: settings => %L.', pg_catalog.jsonb_build_object('search_path', meant_path));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_path(text, text, text, text) IS 'raises when names in the stored statement would mean other objects with the search_path of the job';

CREATE FUNCTION sweep._checked_parts(role text, statement text, meaning jsonb, freezes boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
	missing pg_catalog.text;
BEGIN
	SELECT p.* INTO parts FROM sweep._batched_parts(sweep._role_oid(role), statement, meaning, freezes) AS p;
	PERFORM sweep._check_batched_table(role, parts.target::pg_catalog.regclass, parts.word);
	PERFORM sweep._check_batched_reads(role, parts.target, parts.reads, parts.is_limited);
	IF parts.word = 'update' THEN
		SELECT sweep._column_list(pg_catalog.array_agg(s.name)) INTO missing FROM pg_catalog.unnest(parts.sets) AS s (name)
			WHERE NOT pg_catalog.has_column_privilege(sweep._role_oid(role), parts.target, s.name, 'UPDATE');
		IF missing IS NOT NULL THEN
			RAISE EXCEPTION 'role "%" may not set % of %', role, missing, parts.target::pg_catalog.regclass USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('GRANT UPDATE (%s) ON %s TO %I;', missing, parts.target::pg_catalog.regclass, role);
		END IF;
		PERFORM sweep._check_batched_sets(parts.target, sweep._changed_columns(parts.target, parts.sets));
	END IF;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._checked_parts(text, text, jsonb, boolean) IS 'the parts of a statement; raises when it cannot be done in batches';

CREATE FUNCTION sweep._stored_parts(args jsonb, role oid, word text) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
BEGIN
	parts := sweep._checked_parts(sweep._role_name(role), args ->> 'statement', '{"search_path": "pg_catalog"}', true);
	IF parts.word <> word OR sweep._table_name(parts.target) IS DISTINCT FROM args ->> 'target' THEN
		RAISE EXCEPTION 'the statement of the job is no % of %', pg_catalog.upper(word COLLATE "C"), args ->> 'target' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Call sweep.batched with the statement, instead of altering the args of a job.';
	END IF;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._stored_parts(jsonb, oid, text) IS 'the parts of the statement in the args of a job, which its owner may have altered';

-- The condition on the row alone is not inside the EXISTS, so that an index can be used for it.
CREATE FUNCTION sweep._found_by(parts record) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('(%s)', coalesce(parts.own, 'true'))
		|| CASE WHEN parts.source IS NOT NULL THEN pg_catalog.format(' AND EXISTS (SELECT FROM %s WHERE %s)', parts.source, coalesce(parts.others, 'true')) ELSE '' END;
END
$$;
COMMENT ON FUNCTION sweep._found_by(record) IS 'an expression: whether a row meets the condition with a row of other tables, if there are any';

-- ------------------------------------------------------------------ the statements of an UPDATE
-- Another session, or a trigger, may set a column of an updated row, such as the time of the update, to a value after the cursor. The primary
-- key of a row is taken to stay. A key WITHOUT OVERLAPS has no order.
CREATE FUNCTION sweep._tells_done(index oid, columns text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT sweep._is_unique(i.indrelid, columns) AND CASE WHEN p.indkey IS NULL THEN i.indisunique
			ELSE NOT sweep._index_uses(index, ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum > 0 AND NOT a.attisdropped
				AND a.attnum <> ALL (p.indkey::pg_catalog.int2[]))) END
		FROM pg_catalog.pg_index i LEFT JOIN pg_catalog.pg_index p ON p.indrelid = i.indrelid AND p.indisprimary AND NOT p.indisexclusion WHERE i.indexrelid = index);
END
$$;
COMMENT ON FUNCTION sweep._tells_done(oid, text[]) IS 'whether the position of a row in an index shows that it has been updated: the index has only columns of the primary key, or there is no primary key that has an order';

-- False if there are BEFORE UPDATE triggers of rows, which may set other values than the statement.
CREATE FUNCTION sweep._repeats(parts record) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN parts.falsifies AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgtype & 19 = 19
		AND (t.tgrelid = parts.target OR t.tgrelid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(parts.target::pg_catalog.regclass) AS p)));
END
$$;
COMMENT ON FUNCTION sweep._repeats(record) IS 'whether no row meets the condition of an UPDATE after it, so that updated rows are recognized';

CREATE FUNCTION sweep._update_statements(args jsonb, again boolean, role oid, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	parts constant pg_catalog.record := sweep._stored_parts(args, role, 'update');
	relation constant pg_catalog.regclass := parts.target;
	repeats constant pg_catalog.bool := sweep._repeats(parts);
	key constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(args -> 'key'));
	bound constant pg_catalog.record := sweep._run_bound(relation, key);
	due constant pg_catalog.text := pg_catalog.format('%s AND %s', sweep._found_by(parts), bound.condition);
	parts_of pg_catalog.text[] := known_parts;
	place pg_catalog.record;
	in_range constant pg_catalog.text := sweep._in_range(relation, args -> 'range', again);
	nulls pg_catalog.text[];
	of_key pg_catalog.record;
	first boolean;
BEGIN
	IF key = '{ctid}' AND repeats THEN
		parts_of := coalesce(known_parts, sweep._place_parts(relation, role, 'UPDATE', pg_catalog.concat_ws(' ', due, parts.set)));
		place := sweep._next_place(relation, parts_of, part);
		made := sweep._place_statements(relation, place.part, due);
		made.counter := 'updated';
		made.pick := sweep._update_of(parts, place.part, NULL, sweep._at_places(relation, place.part));
		made.next_part := place.next_part;
		made.parts := parts_of;
		RETURN QUERY SELECT (made).* FROM pg_catalog.generate_series(1, 2);
		RETURN;
	END IF;
	SELECT k.nulls INTO nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = relation AND k.columns = key AND (repeats OR sweep._tells_done(i.indexrelid, key)) AND NOT sweep._index_uses(i.indexrelid, sweep._changed_columns(relation, parts.sets))
		ORDER BY i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no index of (%) by which the update can go', relation, sweep._column_list(key) USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'It is a valid index of columns that the update does not set, and of those of the primary key alone if there is one.',
			HINT = 'Create the index again, or drop the job and call sweep.batched again, which chooses another index.';
	END IF;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(relation, NULL, key, nulls, CASE WHEN again OR coalesce(args ->> 'serves' = 'true', false) THEN due ELSE bound.condition END || in_range, first);
		made.counter := 'updated';
		made.prologue := CASE WHEN first THEN bound.prologue END;
		made.ordering := bound.ordering;
		made.work := sweep._update_of(parts, NULL, NULL, pg_catalog.format('%s AND %s', sweep._range(relation, key, first), bound.condition || in_range));
		IF made.before IS NOT NULL THEN
			of_key := sweep._rows_of_key(relation, NULL, pg_catalog.format('%s AND %s', due || in_range, sweep._key_compare(relation, key, '=', '$4')));
			made.same_roots := of_key.finds;
			made.pick := sweep._update_of(parts, NULL, of_key.picked, of_key.at_picked);
		END IF;
		IF repeats AND sweep._looks_at_rest(args) THEN
			made.epilogue := sweep._rest_statement(relation, sweep._found_by(parts), bound.condition, NULL);
		END IF;
		-- With another key it is not known which rows were updated.
		made.restarts := repeats;
		made.custom := parts.reads <> '{}';
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._update_statements(jsonb, boolean, oid, text, text[]) IS 'the statements of an UPDATE in batches';

CREATE FUNCTION sweep._update_of(parts record, part regclass, picked text, rows text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('%sUPDATE %s SET %s%s WHERE %s AND (%s) AND (%s)', 'WITH sweep_picked AS MATERIALIZED (' || picked || ') ', sweep._source(parts.target, part), parts.set,
		' FROM ' || parts.source, rows, coalesce(parts.own, 'true'), coalesce(parts.others, 'true'));
END
$$;
COMMENT ON FUNCTION sweep._update_of(record, regclass, text, text) IS 'the UPDATE for some rows, selected by the condition "rows"; picked: a query that returns ctids';

CREATE FUNCTION sweep.update_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.update_step(sweep.batch) IS 'step of the jobs that sweep.batched makes of an UPDATE';

-- ------------------------------------------------------------------ sweep.batched
CREATE FUNCTION sweep._batched(caller oid, job sweep.job_definition, statement text, keep_job boolean, parallel int, run_as regrole) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	new_id constant bigint := pg_catalog.nextval('sweep.run_live_run_id_seq');
	asked sweep.job_definition;
	made pg_catalog.record;
	of_role constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.lower(pg_catalog.split_part(c, '=', 1) COLLATE "C") FROM pg_catalog.pg_db_role_setting r
		CROSS JOIN LATERAL pg_catalog.unnest(r.setconfig) AS c WHERE r.setrole = coalesce(run_as::pg_catalog.oid, caller));
BEGIN
	IF keep_job IS NULL THEN
		RAISE EXCEPTION 'keep_job must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	-- Set first, because names are looked up as that role.
	job.run_as := sweep._role_name(coalesce(run_as::pg_catalog.oid, caller));
	asked := job;
	asked.name := coalesce(job.name, 'batched');
	PERFORM sweep._check_role(caller, asked);
	-- Values are converted as in the session that has written the statement: with its time zone, with what it has set itself, and with its value
	-- of what the role of the job has set.
	IF job.settings IS NULL OR pg_catalog.jsonb_typeof(job.settings) = 'object' THEN
		job.settings := coalesce((SELECT pg_catalog.jsonb_object_agg(p.name, coalesce(f.formats ->> p.name, p.setting))
			FROM pg_catalog.pg_settings p, pg_catalog.jsonb_object(sweep._caller_formats()) AS f (formats)
			WHERE (p.name = 'TimeZone' OR (p.source IN ('session', 'client', 'user', 'database user') OR pg_catalog.lower(p.name COLLATE "C") = ANY (of_role))
					AND p.name IN ('DateStyle', 'IntervalStyle', 'array_nulls', 'bytea_output', 'default_text_search_config', 'extra_float_digits', 'lc_monetary', 'lc_numeric', 'lc_time',
						'transform_null_equals', 'xmlbinary', 'xmloption'))
				AND NOT EXISTS (SELECT FROM pg_catalog.jsonb_object_keys(job.settings) AS k WHERE pg_catalog.lower(k COLLATE "C") = pg_catalog.lower(p.name COLLATE "C"))), '{}') || coalesce(job.settings, '{}');
	END IF;
	made := sweep._batched_args(job.run_as, statement, job.settings);
	job.name := coalesce(job.name, sweep._maker_name(made.word, made.target, '_' || new_id));
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), made.word, made.target, run_as);
	-- now() in the statement is the time of this call in all batches, also in a run that goes on where another one has failed.
	job.args := job.args || made.args || pg_catalog.jsonb_build_object('as_of', pg_catalog.now());
	IF made.word = 'delete' THEN
		PERFORM sweep._check_referring(job.run_as, made.target);
		PERFORM FROM sweep._delete_statements(job.args, false, sweep._role_oid(job.run_as), NULL, NULL);
	ELSE
		PERFORM FROM sweep._update_statements(job.args, false, sweep._role_oid(job.run_as), NULL, NULL);
	END IF;
	RETURN sweep._create_once(caller, job, made.target, new_id, keep_job);
END
$$;
COMMENT ON FUNCTION sweep._batched IS 'implements sweep.batched';

CREATE FUNCTION sweep.batched(statement text, name text DEFAULT NULL, keep_job boolean DEFAULT false, batch_size int DEFAULT 1000,
	max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT '10 ms',
	settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT 5,
	on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL,
	parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.batched IS
	'executes a DELETE or UPDATE in batches, each with its own commit, by a job that is started when the transaction has committed; returns the run_id';
