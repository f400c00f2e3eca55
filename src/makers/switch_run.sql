--
-- The switch of a copy with changes: it takes the name of its source, and the source another one.
--
-- A run of the job does it at its end: batches copy the remaining changes, execute ANALYZE, and then try to lock the source, waiting 50 ms each.
-- The batch that gets the lock does everything else in its transaction, as the role of the job; foreign keys are validated in further batches.
--
-- Locks are taken in the same order as by others: views and tables that refer to the source before the source. Under these locks nothing
-- takes long: the statements that move objects were determined before, and few keys are left.
--
CREATE FUNCTION sweep._exchange_lines(source regclass, target regclass) RETURNS SETOF text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY WITH named AS (
			SELECT i.indrelid = source AS is_old, c.relname, 'INDEX' AS kind, n.nspname, def || pg_catalog.row_number() OVER (PARTITION BY i.indrelid, def ORDER BY c.relname) AS key
				FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
					CROSS JOIN LATERAL pg_catalog.pg_get_indexdef(i.indexrelid) AS d CROSS JOIN LATERAL pg_catalog.format('%s %s %s ', i.indisunique, i.indisprimary, pg_catalog.substr(d, pg_catalog.strpos(d, ' USING '))) AS def
				WHERE i.indrelid IN (source, target)
			UNION ALL SELECT u.is_old, c.relname, 'SEQUENCE', n.nspname, q.name FROM sweep._sequences(source, target) AS q CROSS JOIN LATERAL (VALUES (true, q.old), (false, q.new)) AS u (is_old, oid)
				JOIN pg_catalog.pg_class c ON c.oid = u.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE q.old <> q.new)
		SELECT pg_catalog.format('ALTER %s %I.%I RENAME TO %I', o.kind, o.nspname, x.from_name, x.to_name) FROM named o JOIN named n ON n.is_old < o.is_old AND n.kind = o.kind AND n.key = o.key AND n.nspname = o.nspname
			CROSS JOIN LATERAL (VALUES (1, o.relname, 'sweep_switched'), (2, n.relname, o.relname), (3, 'sweep_switched', n.relname)) AS x (nth, from_name, to_name) ORDER BY o.kind, o.relname, x.nth;
END
$$;
COMMENT ON FUNCTION sweep._exchange_lines(regclass, regclass) IS 'the statements that exchange the names of equal indexes (and their constraints) and of the sequences of the same column';

CREATE FUNCTION sweep._switch(args jsonb, texts jsonb, path text) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
	source constant pg_catalog.regclass := texts ->> 'source';
	target constant pg_catalog.regclass := texts ->> 'target';
	role constant pg_catalog.oid := (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
	table_name constant pg_catalog.text := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = source);
	old_name constant pg_catalog.text := sweep._old_name(args, source);
	items sweep._staying[];
	lines pg_catalog.text[];
	line pg_catalog.text;
	left_keys bigint;
BEGIN
	items := ARRAY(SELECT s FROM sweep._check_switch(args, source, target, role, true) AS s);
	lines := ARRAY(SELECT * FROM sweep._exchange_lines(source, target));
	FOR line IN SELECT s.lock FROM pg_catalog.unnest(items) AS s WHERE s.lock IS NOT NULL GROUP BY s.kind, s.lock ORDER BY s.kind DESC, s.lock LOOP
		EXECUTE line;
	END LOOP;
	PERFORM sweep._lock_table(source, true, 'ACCESS EXCLUSIVE');
	IF pg_catalog.to_regclass(texts ->> 'source') IS DISTINCT FROM source THEN
		RAISE EXCEPTION '% is another table since', texts ->> 'source' USING ERRCODE = 'lock_not_available';
	END IF;
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT FROM %s LIMIT 1001) AS c', texts ->> 'changes') INTO left_keys;
	IF left_keys > 1000 THEN
		RAISE EXCEPTION 'more than 1000 rows of % were changed while it was being locked', source USING ERRCODE = 'lock_not_available';
	END IF;
	PERFORM sweep._apply_changes(texts, NULL, path);
	-- Checks again, because the source may have been changed before it was locked.
	items := ARRAY(SELECT s FROM sweep._check_switch(args, source, target, role, true) AS s);
	IF texts ->> 'shape' <> sweep._copy_shape(args, source, target) THEN
		RAISE EXCEPTION 'the columns of % or % were changed', source, target USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop the job, and create it anew with an empty target.';
	END IF;
	lines := ARRAY[pg_catalog.format('DROP TRIGGER sweep_changes ON %s', texts ->> 'source'), pg_catalog.format('DROP TRIGGER sweep_changes_truncate ON %s', texts ->> 'source'),
			pg_catalog.format('DROP FUNCTION %s()', texts ->> 'changes'), pg_catalog.format('DROP TABLE %s', texts ->> 'changes'),
			pg_catalog.format('ALTER TABLE %s RENAME TO %I', texts ->> 'source', old_name), pg_catalog.format('ALTER TABLE %s RENAME TO %I', texts ->> 'target', table_name)]
		|| ARRAY(SELECT l FROM pg_catalog.unnest(items) AS s CROSS JOIN LATERAL pg_catalog.unnest(s.lines) AS l)
		|| ARRAY(SELECT pg_catalog.format('SELECT pg_catalog.setval(n.name, s.last_value, s.is_called) FROM %s AS s, pg_catalog.pg_get_serial_sequence(%L, %L) AS n (name) WHERE n.name::pg_catalog.regclass OPERATOR(pg_catalog.<>) %1$L::pg_catalog.regclass',
			sweep._table_name(q.old), texts ->> 'source', q.name) FROM sweep._sequences(source, target) AS q)
		|| lines;
	FOREACH line IN ARRAY lines LOOP
		EXECUTE line;
	END LOOP;
	RETURN (SELECT coalesce(pg_catalog.jsonb_agg(s.after), '[]') FROM pg_catalog.unnest(items) AS s WHERE s.after IS NOT NULL);
END
$$;
COMMENT ON FUNCTION sweep._switch(jsonb, jsonb, text) IS 'gives the copy the name of its source; returns the statements that validate the foreign keys that were moved';

CREATE FUNCTION sweep._switch_batch(args jsonb, texts jsonb, cursor jsonb, run_id bigint, path text, took interval, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tries constant int := coalesce((cursor ->> 'tries')::int, 0);
	keys pg_catalog.jsonb;
BEGIN
	rows := 1;
	next_cursor := cursor;
	IF cursor -> 'switch' IS DISTINCT FROM pg_catalog.to_jsonb(run_id) THEN
		EXECUTE pg_catalog.format('ANALYZE %s', texts ->> 'target');
		next_cursor := (cursor - 'tries') || pg_catalog.jsonb_build_object('switch', run_id);
		RETURN;
	END IF;
	BEGIN
		IF took > interval '100 ms' THEN
			RAISE EXCEPTION 'the last changes took % to copy, for which writers would have waited', took USING ERRCODE = 'lock_not_available';
		END IF;
		keys := sweep._switch(args, texts, path);
		next_cursor := pg_catalog.jsonb_build_object('switched', pg_catalog.clock_timestamp(), 'validate', keys);
		detail := '{"switched": true}';
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		next_cursor := next_cursor || pg_catalog.jsonb_build_object('tries', tries + 1);
		detail := '{"lock_timeouts": 1}';
		IF tries >= 200 THEN
			RAISE EXCEPTION '% could not be locked', texts ->> 'source' USING ERRCODE = 'object_in_use', DETAIL = coalesce(sweep._holders((texts ->> 'source') || ARRAY(SELECT c.conrelid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_constraint c
					WHERE c.contype = 'f' AND c.confrelid = (texts ->> 'source')::pg_catalog.regclass)), SQLERRM),
				HINT = 'Nothing was changed. Call sweep.switch_copy again when these transactions have ended.';
		END IF;
	END;
END
$$;
COMMENT ON FUNCTION sweep._switch_batch(jsonb, jsonb, jsonb, bigint, text, interval) IS 'analyses the copy, or tries to give it the name of its source';

-- The validation does not block writers.
CREATE FUNCTION sweep._end_switch(cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	next_cursor := cursor;
	rows := 0;
	IF pg_catalog.jsonb_array_length(cursor -> 'validate') > 0 THEN
		BEGIN
			EXECUTE cursor #>> '{validate,0}';
			detail := '{"validated": 1}';
		-- The foreign key has been dropped since.
		EXCEPTION WHEN undefined_object OR undefined_table OR invalid_schema_name THEN
			detail := '{"gone": 1}';
		END;
		next_cursor := cursor || pg_catalog.jsonb_build_object('validate', (cursor -> 'validate') - 0);
		rows := 1;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._end_switch(jsonb) IS 'validates the next foreign key that was moved, the only work that is left after a switch';

CREATE FUNCTION sweep._switch_copy(caller oid, name text, carry boolean, leave text[], old_name text) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job constant sweep.job_definition := sweep._lock_job(caller, name, false, true);
	state pg_catalog.jsonb;
	wish pg_catalog.jsonb;
BEGIN
	IF job.step <> 'sweep.copy_step' OR NOT job.args ? 'changes' THEN
		RAISE EXCEPTION 'job "%" is no copy with changes', name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Create it with sweep.create_copy(..., with_changes => true).';
	END IF;
	IF carry IS NULL OR leave IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN carry IS NULL THEN 'carry' ELSE 'leave' END USING ERRCODE = 'null_value_not_allowed', HINT = 'Leave it out for its default.';
	END IF;
	state := sweep._kept_cursor(name);
	IF state ? 'switched' THEN
		RAISE EXCEPTION 'job "%" was switched already', name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = pg_catalog.format('SELECT sweep.drop_job(%L);', name);
	END IF;
	wish := pg_catalog.jsonb_build_object('switch', pg_catalog.jsonb_build_object('carry', carry, 'leave', leave, 'old_name', old_name));
	PERFORM FROM sweep._check_switch(job.args || wish, sweep._find_table('source', job.args ->> 'source', NULL), sweep._find_table('target', job.args ->> 'target', NULL), sweep._role_oid(job.run_as), state ? 'captured');
	RETURN sweep._start(caller, name, wish, interval '0', NULL);
END
$$;
COMMENT ON FUNCTION sweep._switch_copy(oid, text, boolean, text[], text) IS 'implements sweep.switch_copy';

CREATE FUNCTION sweep.switch_copy(name text, carry boolean DEFAULT false, leave text[] DEFAULT '{}', old_name text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.switch_copy(text, boolean, text[], text) IS
	'starts a run that copies the last changes and gives the copy the name of its source; raises when objects would stay with the source; returns the run_id';
