--
-- Changes of the source of a copy: a trigger writes the keys of changed rows into a table, and the job copies these rows again.
--
-- The job creates table, function and trigger in its first batch, as its role, which acts for the owners of both tables and may execute
-- their code (sweep._check_acting). The function is SECURITY DEFINER, so that roles that write to the source need no right on the table
-- of keys; no setting of the writer changes its meaning. Triggers are ENABLE ALWAYS, because a session with session_replication_role =
-- replica changes rows, too. They do not depend on the extension: adding the dependency would lock it against all others.
--
-- A key is taken and its row is read in one transaction, the row in the same or a later snapshot. A later change of the row writes a
-- further key. A key only says that the row must be read again, not how it was changed; so the order of keys does not matter.
--
-- The digest has the numbers of columns, which change when a column is dropped and added again; collations, since these give the order of
-- keys; and expressions of columns generated in the source, since a new one changes values without firing a trigger. Columns generated in the
-- target are not copied. The function has fixed settings, because the text of an expression depends on them.
CREATE FUNCTION sweep._copy_shape(args jsonb, source regclass, target regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET timezone = 'UTC'
	SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' SET quote_all_identifiers = off
AS $$
BEGIN
	RETURN (SELECT pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.replace((args - 'switch') || pg_catalog.string_agg(pg_catalog.format('%s %s %s %s %s%s', a.attrelid = source, a.attnum, a.attname,
				pg_catalog.format_type(a.atttypid, a.atttypmod), a.attcollation::pg_catalog.regcollation,
				CASE WHEN a.attrelid = target AND a.attgenerated <> '' THEN ' generated'
					WHEN a.attgenerated <> '' THEN ' ' || (SELECT pg_catalog.pg_get_expr(d.adbin, source) FROM pg_catalog.pg_attrdef d WHERE d.adrelid = source AND d.adnum = a.attnum) END), ', ' ORDER BY a.attrelid = source, a.attname), E'\\', E'\\\\')::pg_catalog.bytea), 'hex'), 32)
		FROM pg_catalog.pg_attribute a WHERE a.attrelid IN (source, target) AND a.attnum > 0 AND NOT a.attisdropped);
END
$$;
COMMENT ON FUNCTION sweep._copy_shape(jsonb, regclass, regclass) IS 'a digest of what must not change while a copy follows its source: its args, and the columns of both tables';

CREATE FUNCTION sweep._change_texts(args jsonb, source regclass, target regclass, key text[], nulls text[], columns text[]) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	changes constant pg_catalog.text := args ->> 'changes';
	source_name constant pg_catalog.text := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = source);
	keys pg_catalog.text;
	types pg_catalog.text;
	old_values pg_catalog.text;
	new_values pg_catalog.text;
	differs pg_catalog.text;
	of_source pg_catalog.text;
	of_target pg_catalog.text;
	kept pg_catalog.text;
	taken pg_catalog.text;
BEGIN
	SELECT pg_catalog.string_agg('key_' || u.n, ', ' ORDER BY u.n),
			-- The base type of a domain, since a key may be NULL here; without length, so that keys of a column that is made longer fit.
			pg_catalog.string_agg(pg_catalog.format('key_%s %s%s', u.n, sweep._type_name(sweep._base_type(a.atttypid), -1),
				sweep._collate_as(source, u.name)), ', ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('OLD.%I', u.name), ', ' ORDER BY u.n), pg_catalog.string_agg(pg_catalog.format('NEW.%I', u.name), ', ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', u.name), ' OR ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('%I.%I OPERATOR(pg_catalog.=) sweep_key.key_%s', source_name, u.name, u.n), ' AND ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('sweep_target.%I OPERATOR(pg_catalog.=) sweep_key.key_%s%s', u.name, u.n, sweep._collate_as(target, u.name)), ' AND ' ORDER BY u.n),
			sweep._keeps_key(source, target, key, pg_catalog.array_agg('sweep_key.key_' || u.n ORDER BY u.n))
		INTO keys, types, old_values, new_values, differs, of_source, of_target, kept
		FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attname = u.name;
	taken := pg_catalog.format('(SELECT DISTINCT %s FROM %s AS c WHERE c.id OPERATOR(pg_catalog.=) ANY ($1) AND NOT c.truncated) AS sweep_key', keys, changes);
	RETURN pg_catalog.jsonb_build_object('changes', changes, 'source', sweep._table_name(source), 'target', sweep._table_name(target), 'shape', sweep._copy_shape(args, source, target),
		'capture', pg_catalog.jsonb_build_array(
			pg_catalog.format('CREATE TABLE %s (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, truncated boolean NOT NULL DEFAULT false, %s)'
				' WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)', changes, types),
			pg_catalog.format('CREATE INDEX ON %s (id) WHERE truncated', changes),
			pg_catalog.format('COMMENT ON TABLE %s IS %L', changes, 'keys of rows that a job of sweep.create_copy copies anew'),
			pg_catalog.format('CREATE FUNCTION %s() RETURNS pg_catalog.trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', changes, pg_catalog.format(
				E'BEGIN\n\tIF TG_OP = ''TRUNCATE'' THEN\n\t\tINSERT INTO %1$s (truncated) VALUES (true);\n\t\tRETURN NULL;\n\tEND IF;\n'
				|| E'\tIF TG_OP <> ''INSERT'' THEN\n\t\tINSERT INTO %1$s (%2$s) VALUES (%3$s);\n\tEND IF;\n'
				|| E'\tIF TG_OP = ''INSERT'' THEN\n\t\tINSERT INTO %1$s (%2$s) VALUES (%4$s);\n'
				|| E'\tELSIF TG_OP = ''UPDATE'' THEN\n\t\tIF %5$s THEN\n\t\t\tINSERT INTO %1$s (%2$s) VALUES (%4$s);\n\t\tEND IF;\n\tEND IF;\n\tRETURN NULL;\nEND',
				changes, keys, old_values, new_values, differs)),
			pg_catalog.format('CREATE TRIGGER sweep_changes AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s()', sweep._table_name(source), changes),
			pg_catalog.format('CREATE TRIGGER sweep_changes_truncate AFTER TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()', sweep._table_name(source), changes),
			pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER sweep_changes, ENABLE ALWAYS TRIGGER sweep_changes_truncate', sweep._table_name(source))),
		'newest', pg_catalog.format('SELECT %s FROM (SELECT %s FROM %s ORDER BY %s LIMIT 1) AS k', sweep._key_json(source, key, NULL),
			sweep._key_list(source, key),
			sweep._source(source, NULL), sweep._key_order(source, key, nulls, true)),
		'behind', pg_catalog.format('SELECT true FROM %s WHERE %s AND ($2 OR %s) ORDER BY %s LIMIT 1', sweep._source(source, NULL), sweep._key_compare(source, key, '<=', '($1 OPERATOR(pg_catalog.->) ''settled'')'),
			sweep._key_compare(source, key, '>', '$1'), sweep._key_order(source, key, nulls, false)),
		-- A mark of a TRUNCATE is taken at once, whatever keys come before it: rows that were inserted since are copied by their keys.
		'take', pg_catalog.format('SELECT pg_catalog.array_agg(c.id), pg_catalog.bool_or(c.truncated) FROM %1$s AS c WHERE c.id OPERATOR(pg_catalog.=) ANY'
			' (ARRAY(SELECT i.id FROM %1$s AS i ORDER BY i.id LIMIT $1)) OR c.id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT i.id FROM %1$s AS i WHERE i.truncated))', changes),
		'rounded', pg_catalog.format('SELECT sweep_key::pg_catalog.text FROM %s CROSS JOIN LATERAL (SELECT ', taken) || kept
			|| pg_catalog.format(E' AS kept FROM %s WHERE %s AND (%s\n) OFFSET 0) AS r WHERE NOT r.kept LIMIT 1', sweep._source(source, NULL), of_source, coalesce(args ->> 'condition', 'true')),
		'remove', pg_catalog.format('DELETE FROM %s AS sweep_target USING %s WHERE %s', sweep._table_name(target), taken, of_target),
		'kept', pg_catalog.format('SELECT sweep_key::pg_catalog.text FROM %s JOIN %s AS sweep_target ON %s LIMIT 1', taken, sweep._table_name(target), of_target),
		'insert', sweep._insert_text(source, target, key, columns, pg_catalog.format(E'SELECT %s FROM %s CROSS JOIN LATERAL (SELECT %s%s FROM %s WHERE %s AND (%s\n) OFFSET 0) AS r%s',
			sweep._qualified_list('r', columns), taken, sweep._qualified_list(source_name, columns), coalesce(', ' || kept || ' AS sweep_kept', ''),
			sweep._source(source, NULL), of_source, coalesce(args ->> 'condition', 'true'), CASE WHEN kept IS NOT NULL THEN ' WHERE r.sweep_kept' END)),
		'forget', pg_catalog.format('DELETE FROM %s AS c WHERE c.id OPERATOR(pg_catalog.=) ANY ($1)', changes));
END
$$;
COMMENT ON FUNCTION sweep._change_texts(jsonb, regclass, regclass, text[], text[], text[]) IS 'the statements that record and copy changes of the source of a copy';

-- Rows of the range that cannot be inserted now get an entry in the table of keys, and are copied by it later: rows that are in the target
-- already, as their key was copied first; rows that a unique index refuses, because another row has not been copied again yet; and rows whose
-- key would have another value in the target. For rows of the last kind the copy by keys raises an error, unless the row is gone.
CREATE FUNCTION sweep._change_work(args jsonb, source regclass, target regclass, key text[], columns text[], first boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names constant pg_catalog.text := sweep._column_list(columns);
	keys constant pg_catalog.text := sweep._column_list(key);
BEGIN
	RETURN pg_catalog.format(E'WITH sweep_range AS MATERIALIZED (SELECT %1$s FROM %2$s WHERE %3$s AND (%4$s\n)), done AS (INSERT INTO %5$s (%6$s) OVERRIDING SYSTEM VALUE'
		' SELECT * FROM sweep_range%11$s ON CONFLICT DO NOTHING RETURNING %7$s), put_off AS (INSERT INTO %8$s (%9$s) SELECT %7$s FROM sweep_range EXCEPT SELECT %10$s FROM done)'
		' SELECT pg_catalog.count(*), NULL::pg_catalog.text FROM done',
		(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = source),
		sweep._source(source, NULL), sweep._range(source, key, first), coalesce(args ->> 'condition', 'true'), sweep._table_name(target), names, keys, args ->> 'changes',
		(SELECT pg_catalog.string_agg('key_' || u.n, ', ' ORDER BY u.n) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n)),
		(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name) || coalesce(sweep._collate_as(source, u.name), ''), ', ' ORDER BY u.n) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n)),
		' WHERE ' || sweep._keeps_key(source, target, key, ARRAY(SELECT pg_catalog.quote_ident(u.name) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) ORDER BY u.n)));
END
$$;
COMMENT ON FUNCTION sweep._change_work(jsonb, regclass, regclass, text[], text[], boolean) IS 'the statement that copies a range of the source';

-- ------------------------------------------------------------------ the batch
-- While this waits for its lock, all writers wait behind it. It therefore waits only 50 ms, and writers go on before the next attempt.
CREATE FUNCTION sweep._capture_changes(texts jsonb) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT * FROM pg_catalog.jsonb_array_elements_text(texts -> 'capture') LOOP
		EXECUTE line;
	END LOOP;
	-- ALTER DEFAULT PRIVILEGES may have granted rights on the table, or on the function, which others could use in a trigger of another table.
	FOR line IN SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s FROM %s', o.object, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END)
			FROM (SELECT 'TABLE ' || (texts ->> 'changes'), c.relowner, c.relacl FROM pg_catalog.pg_class c WHERE c.oid = (texts ->> 'changes')::pg_catalog.regclass
				UNION ALL SELECT 'FUNCTION ' || (texts ->> 'changes') || '()', p.proowner, coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))
					FROM pg_catalog.pg_proc p WHERE p.oid = ((texts ->> 'changes') || '()')::pg_catalog.regprocedure) AS o (object, owner, acl)
				CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS g WHERE g.grantee <> o.owner LOOP
		EXECUTE line;
	END LOOP;
	RETURN true;
EXCEPTION WHEN lock_not_available THEN
	RETURN false;
END
$$;
COMMENT ON FUNCTION sweep._capture_changes(jsonb) IS 'creates table, function and triggers that record the keys of changed rows; false when the source could not be locked, and nothing was created';

-- Called in each batch that has changes, because a trigger may be created during a run.
CREATE FUNCTION sweep._may_keep(target regclass) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_rewrite w WHERE w.ev_class = target) OR EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgtype & 11 = 11 AND t.tgenabled <> 'D'
		AND t.tgrelid = ANY (ARRAY(SELECT target UNION ALL SELECT p.relid FROM pg_catalog.pg_partition_tree(target) AS p)));
END
$$;
COMMENT ON FUNCTION sweep._may_keep(regclass) IS 'whether a rule, or a trigger BEFORE DELETE, may keep a row of the target of a copy';

-- A row can conflict with another one that is copied again later; when all keys are copied, the target equals the source. The condition,
-- and triggers of the target, are executed with the search_path of the run; the function itself looks up no names while that is set.
CREATE FUNCTION sweep._apply_changes(texts jsonb, size bigint, path text, OUT keys bigint, OUT truncated boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ids bigint[];
	rounded pg_catalog.text;
	kept pg_catalog.text;
	wanted bigint := size;
	clear constant pg_catalog.text := pg_catalog.format('TRUNCATE %s', texts ->> 'target');
	source constant pg_catalog.text := texts ->> 'source';
	target constant pg_catalog.text := texts ->> 'target';
	find_rounded constant pg_catalog.text := texts ->> 'rounded';
	find_kept constant pg_catalog.text := texts ->> 'kept';
	remove constant pg_catalog.text := texts ->> 'remove';
	insertion constant pg_catalog.text := texts ->> 'insert';
	forget constant pg_catalog.text := texts ->> 'forget';
BEGIN
	FOR attempt IN 1 .. 5 LOOP
		EXECUTE texts ->> 'take' INTO ids, truncated USING wanted;
		keys := coalesce(pg_catalog.cardinality(ids), 0);
		truncated := coalesce(truncated, false);
		IF keys = 0 THEN
			RETURN;
		END IF;
		BEGIN
			PERFORM pg_catalog.set_config('search_path', path, true);
			IF truncated THEN
				EXECUTE clear;
			END IF;
			IF find_rounded IS NOT NULL THEN
				EXECUTE find_rounded INTO rounded USING ids;
			END IF;
			IF rounded IS NOT NULL THEN
				RAISE EXCEPTION 'key % of % is another one in %', rounded, source, target USING ERRCODE = 'datatype_mismatch', HINT = 'Drop the job, and create it anew with a target whose key has a type that keeps all values.';
			END IF;
			EXECUTE remove USING ids;
			IF sweep._may_keep(target::pg_catalog.regclass) THEN
				EXECUTE find_kept INTO kept USING ids;
			END IF;
			IF kept IS NOT NULL THEN
				RAISE EXCEPTION 'row % of % cannot be removed', kept, target USING ERRCODE = 'triggered_data_change_violation', DETAIL = 'Where it is gone from the source, it would be there again after a switch.',
					HINT = 'Look for a trigger BEFORE DELETE or a rule of the copy, and make it when the copy has taken the name; sweep.switch_copy can move triggers.';
			END IF;
			EXECUTE insertion INTO kept USING ids;
			IF kept IS NOT NULL THEN
				RAISE EXCEPTION 'row % of % cannot be copied to %', kept, source, target USING ERRCODE = 'triggered_data_change_violation', DETAIL = 'It would be missing after a switch.',
					HINT = 'Look for a trigger BEFORE INSERT of the copy. Drop the job, and create it anew with an empty target without that; sweep.switch_copy can move triggers.';
			END IF;
			EXECUTE forget USING ids;
			RETURN;
		EXCEPTION WHEN unique_violation OR exclusion_violation THEN
			IF attempt = 5 THEN
				RAISE;
			END IF;
			wanted := NULL;
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._apply_changes(jsonb, bigint, text) IS 'copies the rows of that many keys again; NULL: of all keys';

CREATE FUNCTION sweep._begin_changes(args jsonb, texts jsonb, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	newest pg_catalog.jsonb;
	found boolean;
	tries constant int := coalesce((cursor ->> 'tries')::int, 0);
BEGIN
	next_cursor := cursor;
	IF texts IS NULL THEN
		RAISE EXCEPTION 'table "%" does not exist', args ->> 'target' USING ERRCODE = 'undefined_table', HINT = 'Drop the job, and create it anew.';
	END IF;
	-- After the lock of a switch, everything that was committed before must be visible.
	IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'changes cannot be followed with the isolation level "%"', pg_catalog.current_setting('transaction_isolation') USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER ROLE %I SET default_transaction_isolation = ''read committed'';', current_user);
	END IF;
	-- With this lock no foreign key can be added after the check.
	EXECUTE pg_catalog.format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', texts ->> 'target');
	PERFORM sweep._check_acting((SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user), (texts ->> 'source')::pg_catalog.regclass, (texts ->> 'target')::pg_catalog.regclass);
	-- Compares with the present tables; the texts were generated when the run began.
	IF next_cursor ->> 'captured' <> sweep._copy_shape(args, (texts ->> 'source')::pg_catalog.regclass, (texts ->> 'target')::pg_catalog.regclass) THEN
		RAISE EXCEPTION 'the columns of % or %, or the args of the job, have changed since the copy began', texts ->> 'source', texts ->> 'target' USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Rows that were copied before do not have what has changed.', HINT = 'Drop the job, and create it anew with an empty target.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid IN ((texts ->> 'source')::pg_catalog.regclass, (texts ->> 'target')::pg_catalog.regclass) AND c.relpersistence <> 'p') THEN
		RAISE EXCEPTION '% or % is unlogged since the copy began', texts ->> 'source', texts ->> 'target' USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'A crash would empty it.',
			HINT = 'If the server has not crashed since: ALTER TABLE ... SET LOGGED;';
	END IF;
	IF next_cursor ? 'settled' THEN
		RETURN;
	END IF;
	EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM %s)', texts ->> 'target') INTO found;
	IF found THEN
		RAISE EXCEPTION '% is not empty', texts ->> 'target' USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A copy with changes is what the source is: empty it first.';
	END IF;
	IF next_cursor ? 'captured' THEN
		EXECUTE texts ->> 'newest' INTO newest;
		next_cursor := next_cursor || pg_catalog.jsonb_build_object('settled', newest);
		RETURN;
	END IF;
	rows := 1;
	IF sweep._capture_changes(texts) THEN
		next_cursor := pg_catalog.jsonb_build_object('captured', texts ->> 'shape');
	ELSIF tries >= 100 THEN
		RAISE EXCEPTION '% could not be locked', texts ->> 'source' USING ERRCODE = 'object_in_use',
			DETAIL = sweep._holders(ARRAY[texts ->> 'source']), HINT = 'Start the job again when these transactions have ended.';
	ELSE
		next_cursor := pg_catalog.jsonb_build_object('tries', tries + 1);
		detail := '{"lock_timeouts": 1}';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._begin_changes(jsonb, jsonb, jsonb) IS 'checks what may have changed since the last batch, and creates the trigger in the first batch; rows is not NULL when the batch has done its work';

-- The prologue of a batch: the first one creates the trigger, others copy the rows of recorded keys; rows is NULL when the next range follows.
CREATE FUNCTION sweep._change_batch(args jsonb, texts jsonb, cursor jsonb, size int, run_id bigint, path text, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	applied pg_catalog.record;
	found boolean;
	started pg_catalog.timestamptz;
BEGIN
	IF cursor ? 'switched' THEN
		SELECT s.rows, s.next_cursor, s.detail INTO rows, next_cursor, detail FROM sweep._end_switch(cursor) AS s;
		RETURN;
	END IF;
	PERFORM pg_catalog.pg_sleep(least(coalesce((cursor ->> 'tries')::int, 0), 10) * 0.03);
	SELECT b.rows, b.next_cursor, b.detail INTO rows, next_cursor, detail FROM sweep._begin_changes(args, texts, coalesce(cursor, '{}')) AS b;
	IF rows IS NOT NULL THEN
		RETURN;
	END IF;
	-- This run has caught up with all changes.
	IF next_cursor -> 'caught_up' = pg_catalog.to_jsonb(run_id) THEN
		rows := 0;
		RETURN;
	END IF;
	started := pg_catalog.clock_timestamp();
	SELECT * INTO applied FROM sweep._apply_changes(texts, size, path);
	IF applied.truncated THEN
		next_cursor := next_cursor || '{"settled": null}';
	END IF;
	IF applied.keys > 0 THEN
		detail := pg_catalog.jsonb_build_object('changes', applied.keys);
	END IF;
	IF NOT next_cursor ? 'copied' THEN
		EXECUTE texts ->> 'behind' INTO found USING next_cursor, NOT next_cursor ? 'after';
		IF found THEN
			RETURN;
		END IF;
		next_cursor := next_cursor || '{"copied": true}';
	END IF;
	rows := applied.keys;
	IF applied.keys < size AND args ? 'switch' THEN
		SELECT s.rows, s.next_cursor, coalesce(_change_batch.detail, '{}') || coalesce(s.detail, '{}') INTO rows, next_cursor, detail
			FROM sweep._switch_batch(args, texts, next_cursor, run_id, path, pg_catalog.clock_timestamp() - started) AS s;
	ELSIF applied.keys < size THEN
		next_cursor := next_cursor || pg_catalog.jsonb_build_object('caught_up', run_id);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._change_batch(jsonb, jsonb, jsonb, int, bigint, text) IS 'the work of a batch of a copy with changes before it copies a range';

-- ------------------------------------------------------------------ the job
-- Code of the tables is executed as the role of the job: their triggers, index expressions, defaults. A role may trust the owners
-- for whom it acts; only a superuser must not, because it acts for all.
CREATE FUNCTION sweep._check_acting(role oid, source regclass, target regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	SELECT c.oid::pg_catalog.regclass AS name, c.relowner, pg_catalog.pg_get_userbyid(role) AS role INTO wrong FROM pg_catalog.pg_class c
		WHERE c.oid IN (source, target) AND NOT sweep._owns(role, c.relowner) ORDER BY c.oid = target LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'role "%" does not own %', wrong.role, wrong.name USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its triggers and expressions are executed as the role of the job.',
			HINT = pg_catalog.format('A copy with changes makes a trigger and exchanges tables: write run_as => %L.', pg_catalog.pg_get_userbyid(wrong.relowner));
	END IF;
	SELECT c.oid::pg_catalog.regclass AS name INTO wrong FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = role WHERE c.oid IN (source, target)
		AND c.relrowsecurity AND c.relforcerowsecurity AND NOT r.rolbypassrls AND NOT r.rolsuper;
	IF FOUND THEN
		RAISE EXCEPTION 'policies of % may hide rows from role "%"', wrong.name, pg_catalog.pg_get_userbyid(role) USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY;', wrong.name);
	END IF;
	-- Triggers of the referring table would be executed in the session of the job, and rows of the target are deleted and inserted again.
	SELECT c.conname, c.conrelid::pg_catalog.regclass AS child INTO wrong FROM pg_catalog.pg_constraint c WHERE c.contype = 'f' AND c.confrelid = target AND c.conrelid <> target LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'foreign key "%" of % refers to %', wrong.conname, wrong.child, target USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Rows are deleted there and inserted again.', HINT = 'Drop it; sweep.switch_copy can move those that refer to the source.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_acting(oid, regclass, regclass) IS 'raises unless a role acts for the owners of both tables and sees all of their rows, and no foreign key refers to the copy';

CREATE FUNCTION sweep._check_follows(job sweep.job_definition, source regclass, target regclass, key text[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role constant pg_catalog.oid := sweep._role_oid(job.run_as);
	wrong pg_catalog.record;
	columns constant pg_catalog.text[] := sweep._copy_columns(source, target);
BEGIN
	PERFORM sweep._check_acting(role, source, target);
	-- Jobs whose role could not create the trigger are ignored: they copy nothing, whatever their args say.
	IF EXISTS (SELECT FROM sweep.job_definition j WHERE j.args ->> 'changes' = job.args ->> 'changes' AND j.name <> job.name
			AND sweep._owns(sweep._role_oid(j.run_as), (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = source))) THEN
		RAISE EXCEPTION 'the changes of % are copied by another job', source USING ERRCODE = 'duplicate_object', HINT = 'A table has one copy with changes at a time.';
	END IF;
	SELECT c.oid::pg_catalog.regclass AS name INTO wrong FROM pg_catalog.pg_class c WHERE c.oid IN (source, target)
		AND (c.oid = source AND c.relkind = 'p' OR c.relpersistence <> 'p' OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid));
	IF FOUND THEN
		RAISE EXCEPTION 'changes of % cannot be copied', wrong.name USING ERRCODE = 'feature_not_supported',
			DETAIL = 'It is a partitioned table, a partition, inherits from another one, or is unlogged.', HINT = 'The source is an ordinary table; the target may be partitioned.';
	END IF;
	SELECT p.pubname INTO wrong FROM pg_catalog.pg_publication p WHERE p.puballtables OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid
		WHERE n.pnpubid = p.oid AND c.oid = source) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'publication "%" would publish the keys of changed rows', wrong.pubname USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'They are in a table beside the source, which a subscriber does not have.', HINT = 'Publish the source by its name.';
	END IF;
	IF NOT pg_catalog.has_schema_privilege(role, (SELECT c.relnamespace FROM pg_catalog.pg_class c WHERE c.oid = source), 'CREATE') THEN
		RAISE EXCEPTION 'role "%" may not create tables in the schema of %', job.run_as, source USING ERRCODE = 'insufficient_privilege', HINT = 'The keys of changed rows are in a table there.';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = target AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
			AND i.indnkeyatts >= pg_catalog.cardinality(key) AND (SELECT pg_catalog.bool_and(a.attnotnull AND a.attname::pg_catalog.text = ANY (columns)
					AND (k.n >= pg_catalog.cardinality(key) OR a.attname::pg_catalog.text = ANY (key)))
				FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n) JOIN pg_catalog.pg_attribute a ON a.attrelid = target AND a.attnum = i.indkey[k.n])) THEN
		RAISE EXCEPTION '% has no unique index that begins with (%)', target, pg_catalog.array_to_string(key, ', ') USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Its columns must be NOT NULL and columns of the source.', HINT = pg_catalog.format('ALTER TABLE %s ADD PRIMARY KEY (%s);', target, pg_catalog.array_to_string(key, ', '));
	END IF;
	-- Analysed and not executed, as the role of the job: a comparison of types of users calls their casts.
	BEGIN
		PERFORM sweep._check_fragment(job.run_as, (SELECT pg_catalog.format('DELETE FROM %s WHERE $1 IS NOT NULL AND %s', sweep._table_name(target), pg_catalog.string_agg(pg_catalog.format(
				'EXISTS (SELECT NULL::%2$s EXCEPT SELECT NULL::%1$s) AND NULL::%1$s OPERATOR(pg_catalog.=) NULL::%2$s', sweep._type_name(sweep._base_type(n.atttypid), -1), sweep._type_name(sweep._base_type(a.atttypid), -1)), ' AND '))
			FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname
			WHERE a.attrelid = source AND a.attname = ANY (key)), job.settings);
	EXCEPTION WHEN undefined_function OR datatype_mismatch THEN
		RAISE EXCEPTION 'keys of % cannot be compared with those of %', target, source USING ERRCODE = 'datatype_mismatch', DETAIL = SQLERRM || '.',
			HINT = pg_catalog.format('Rows that change are found by their keys: (%s) must be of types that compare, as int and bigint do.', pg_catalog.array_to_string(key, ', '));
	END;
	-- Keys that are equal in one of the tables could be different in the other one: a deletion would delete two rows, or none.
	SELECT a.attname INTO wrong FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname AND n.attcollation <> a.attcollation
		WHERE a.attrelid = source AND a.attname = ANY (key) AND EXISTS (SELECT FROM pg_catalog.pg_collation c WHERE c.oid IN (a.attcollation, n.attcollation) AND NOT c.collisdeterministic) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'keys of % cannot be compared with those of %', target, source USING ERRCODE = 'collation_mismatch', DETAIL = pg_catalog.format('The collations of "%s" differ, and by one of them different texts are equal.', wrong.attname),
			HINT = 'Give both the same collation, and alter it when the copy has taken the name.';
	END IF;
	IF job.cursor <> 'always' OR job.args ->> 'on_conflict' <> 'error' THEN
		RAISE EXCEPTION '% does not go with with_changes', CASE WHEN job.cursor <> 'always' THEN 'cursor' ELSE 'on_conflict' END USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_follows(sweep.job_definition, regclass, regclass, text[]) IS 'raises unless a job can follow the changes of its source';

-- For a dropped job. The objects are found by the names in its args, and dropped only if its role could drop them.
CREATE FUNCTION sweep._drop_changes() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
	role constant pg_catalog.oid := sweep._role_oid(OLD.run_as);
	changes pg_catalog.regclass;
	maker pg_catalog.regprocedure;
	line pg_catalog.text;
	-- A job of sweep.create_partitions may be emptying a default partition.
	emptying pg_catalog.jsonb;
	copy pg_catalog.regclass;
	name pg_catalog.text := OLD.args ->> 'changes';
BEGIN
	BEGIN
		IF OLD.args ? 'changes' THEN
			name := sweep._moved_changes(name, role);
			changes := pg_catalog.to_regclass(name);
			maker := pg_catalog.to_regprocedure(name || '()');
		ELSE
			-- The default partition may have been detached since, or renamed.
			emptying := coalesce(sweep._kept_cursor(OLD.name) -> 'emptying', (SELECT pg_catalog.jsonb_build_object('copy', n.copy, 'changes', n.changes)
				FROM pg_catalog.pg_partitioned_table p CROSS JOIN LATERAL sweep._emptying_names(p.partdefid::pg_catalog.regclass) AS n WHERE p.partrelid = pg_catalog.to_regclass(OLD.args ->> 'target') AND p.partdefid <> 0));
			IF emptying IS NULL OR NOT sweep._is_emptying(emptying ->> 'copy') THEN
				RETURN OLD;
			END IF;
			name := emptying ->> 'changes';
			copy := pg_catalog.to_regclass(emptying ->> 'copy');
			changes := pg_catalog.to_regclass(name);
			maker := pg_catalog.to_regprocedure(name || '()');
		END IF;
	EXCEPTION WHEN syntax_error OR invalid_name OR invalid_parameter_value OR undefined_object THEN
		RETURN OLD;
	END;
	IF changes IS NULL AND maker IS NULL AND copy IS NULL THEN
		RETURN OLD;
	END IF;
	IF role IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid IN (changes, copy) AND (c.relkind NOT IN ('r', 'p') OR NOT pg_catalog.pg_has_role(role, c.relowner, 'USAGE')))
			OR EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.oid = maker AND NOT pg_catalog.pg_has_role(role, p.proowner, 'USAGE'))
			OR EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid WHERE t.tgfoid = maker AND NOT pg_catalog.pg_has_role(role, c.relowner, 'USAGE')) THEN
		RAISE WARNING 'the trigger of job "%" is not dropped', OLD.name USING DETAIL = pg_catalog.format('Role "%s" could not drop %s and its function.', OLD.run_as, name),
			HINT = 'Changed rows are still written down there until its owner drops both.';
		RETURN OLD;
	END IF;
	FOR attempt IN 1 .. 100 LOOP
		BEGIN
			FOR line IN SELECT pg_catalog.format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::pg_catalog.regclass) FROM pg_catalog.pg_trigger t WHERE t.tgfoid = maker
					UNION ALL SELECT pg_catalog.format('DROP FUNCTION %s', maker) WHERE maker IS NOT NULL UNION ALL SELECT pg_catalog.format('DROP TABLE %s', t) FROM pg_catalog.unnest(ARRAY[changes, copy]) AS t WHERE t IS NOT NULL LOOP
				EXECUTE line;
			END LOOP;
			RETURN OLD;
		EXCEPTION WHEN lock_not_available THEN
			IF attempt = 100 THEN
				RAISE EXCEPTION 'the trigger of job "%" could not be dropped', OLD.name USING ERRCODE = 'object_in_use',
					DETAIL = sweep._holders(ARRAY(SELECT t.tgrelid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_trigger t WHERE t.tgfoid = maker) || changes::pg_catalog.text),
					HINT = 'Drop the job when these transactions have ended.';
			END IF;
			PERFORM pg_catalog.pg_sleep(0.05);
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._drop_changes() IS 'drops the table, function and triggers that record changes for a copy whose job is dropped';

CREATE TRIGGER drop_changes BEFORE DELETE ON sweep.job_definition FOR EACH ROW WHEN (OLD.step = 'sweep.copy_step' AND OLD.args ? 'changes' OR OLD.step = 'sweep.partitions_step')
	EXECUTE FUNCTION sweep._drop_changes();

-- Copied rows and recorded keys belong to the args with which they were made.
CREATE FUNCTION sweep._keep_changes() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'the args of job "%" cannot be changed', OLD.name USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'What it has copied, and the keys of changed rows, fit these alone.',
		HINT = pg_catalog.format('SELECT sweep.drop_job(%L); and create it anew with an empty target.', OLD.name);
END
$$;
COMMENT ON FUNCTION sweep._keep_changes() IS 'raises when the args of a copy with changes are changed';

CREATE TRIGGER keep_changes BEFORE UPDATE ON sweep.job_definition FOR EACH ROW
	WHEN (NEW.step = 'sweep.copy_step' AND (OLD.args ? 'changes' OR NEW.args ? 'changes') AND OLD.args <> NEW.args OR OLD.step = 'sweep.copy_step' AND OLD.args ? 'changes' AND NEW.step IS DISTINCT FROM OLD.step)
	EXECUTE FUNCTION sweep._keep_changes();
