--
-- Views, triggers, privileges and other objects refer to a table by its OID. When a copy takes the name of its source, they stay with the
-- source, unless they are moved to the copy.
--
-- Each item has the statements that move it. They are executed as the role of the job after both tables were renamed: the name of the source
-- is then that of the copy. An item without statements cannot be moved. Columns, defaults, checks and indexes are no items, because the
-- copy's own definition is the wanted one; only a missing column is an item.
--
CREATE TYPE sweep._staying AS (
	kind  text,
	name  text,
	lock  text,
	lines text[],
	after text
);
COMMENT ON TYPE sweep._staying IS 'an object that stays with the source of a copy when the names are switched';
COMMENT ON COLUMN sweep._staying.kind IS 'kind of object, for the argument leave of sweep.switch_copy';
COMMENT ON COLUMN sweep._staying.name IS 'its name, for messages';
COMMENT ON COLUMN sweep._staying.lock IS 'statement that locks it before the source is locked; NULL: it is locked with the source';
COMMENT ON COLUMN sweep._staying.lines IS 'statements that move it; NULL: it cannot be moved';
COMMENT ON COLUMN sweep._staying.after IS 'statement to execute in a transaction of its own after the switch; NULL: none';

CREATE FUNCTION sweep._privileges(relation regclass) RETURNS TABLE (privilege text, grantee text, grantable boolean, of_column text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT g.privilege_type || coalesce(' (' || pg_catalog.quote_ident(p.of_column) || ')', ''), CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END, g.is_grantable, p.of_column
		FROM (SELECT c.relowner, c.relacl, NULL::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.oid = relation
			UNION ALL SELECT c.relowner, a.attacl, a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid WHERE a.attrelid = relation AND NOT a.attisdropped) AS p (owner, acl, of_column)
			CROSS JOIN LATERAL pg_catalog.aclexplode(p.acl) AS g WHERE g.grantee <> p.owner;
END
$$;
COMMENT ON FUNCTION sweep._privileges(regclass) IS 'the privileges of other roles than the owner on a table and its columns, or a sequence, in the terms of GRANT';

CREATE FUNCTION sweep._sequences(source regclass, target regclass) RETURNS TABLE (name text, old regclass, new regclass)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT a.attname::pg_catalog.text, q.old, q.new FROM pg_catalog.pg_attribute a
			JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname AND NOT n.attisdropped
			CROSS JOIN LATERAL (SELECT pg_catalog.pg_get_serial_sequence(sweep._table_name(source), a.attname)::pg_catalog.regclass, pg_catalog.pg_get_serial_sequence(sweep._table_name(target), n.attname)::pg_catalog.regclass) AS q (old, new)
		WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped AND q.old IS NOT NULL;
END
$$;
COMMENT ON FUNCTION sweep._sequences(regclass, regclass) IS 'sequences of identity and serial columns of a table, and of the same columns of its copy, if they have one';

-- ------------------------------------------------------------------ of the table itself
CREATE FUNCTION sweep._stays_settings(source regclass, target regclass, table_name text) RETURNS SETOF sweep._staying
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old constant pg_catalog.pg_class := (SELECT c FROM pg_catalog.pg_class c WHERE c.oid = source);
	new constant pg_catalog.pg_class := (SELECT c FROM pg_catalog.pg_class c WHERE c.oid = target);
BEGIN
	RETURN QUERY SELECT 'owner', pg_catalog.pg_get_userbyid(old.relowner)::pg_catalog.text, NULL, ARRAY[pg_catalog.format('ALTER TABLE %s OWNER TO %I', table_name, pg_catalog.pg_get_userbyid(old.relowner))], NULL
		WHERE old.relowner <> new.relowner;
	RETURN QUERY SELECT 'privilege', pg_catalog.format('%s of %s%s', pg_catalog.string_agg(a.privilege, ', ' ORDER BY a.privilege), a.grantee, ' on ' || o.sequence), NULL,
			pg_catalog.array_agg(pg_catalog.format('GRANT %s ON %s TO %s%s', a.privilege, o.object, a.grantee, CASE WHEN a.grantable THEN ' WITH GRANT OPTION' ELSE '' END)), NULL
		FROM (SELECT source, target, table_name, NULL UNION ALL SELECT q.old, q.new, 'SEQUENCE ' || sweep._table_name(q.new), q.old::pg_catalog.text FROM sweep._sequences(source, target) AS q WHERE q.new <> q.old) AS o (old, new, object, sequence)
			CROSS JOIN LATERAL sweep._privileges(o.old) AS a
		WHERE NOT EXISTS (SELECT FROM sweep._privileges(o.new) AS n WHERE (n.privilege, n.grantee, n.grantable) = (a.privilege, a.grantee, a.grantable))
			AND (a.of_column IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_attribute n WHERE n.attrelid = target AND n.attname = a.of_column AND NOT n.attisdropped)) GROUP BY a.grantee, o.sequence;
	RETURN QUERY SELECT CASE WHEN a.attidentity <> '' THEN 'identity' ELSE 'sequence' END, a.attname::pg_catalog.text, NULL,
			CASE WHEN n.attidentity = '' AND a.attidentity <> '' THEN ARRAY[pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (INCREMENT %s CACHE %s)', table_name, a.attname, i.kind, s.seqincrement, s.seqcache)]
				WHEN a.attidentity <> '' THEN ARRAY[pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I SET GENERATED %s', table_name, a.attname, i.kind)]
				WHEN n.attidentity = '' THEN ARRAY[pg_catalog.format('ALTER SEQUENCE %s OWNED BY %s.%I', q.old, table_name, a.attname)] END, NULL
		FROM sweep._sequences(source, target) AS q JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attname = q.name JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = q.name
			JOIN pg_catalog.pg_sequence s ON s.seqrelid = q.old CROSS JOIN LATERAL (SELECT CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END) AS i (kind)
		WHERE a.attidentity <> n.attidentity AND a.attidentity <> '' OR q.new IS NULL;
	RETURN QUERY SELECT 'column', a.attname::pg_catalog.text, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_attribute a WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute n WHERE n.attrelid = target AND n.attname = a.attname AND NOT n.attisdropped);
	RETURN QUERY SELECT 'replica identity', CASE old.relreplident WHEN 'i' THEN 'index' WHEN 'f' THEN 'full' WHEN 'n' THEN 'nothing' ELSE 'default' END, NULL,
		CASE WHEN old.relreplident <> 'i' THEN ARRAY[pg_catalog.format('ALTER TABLE %s REPLICA IDENTITY %s', table_name, CASE old.relreplident WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING' ELSE 'DEFAULT' END)] END, NULL
		WHERE old.relreplident <> new.relreplident;
	RETURN QUERY SELECT 'policy', 'row level security', NULL, ARRAY[pg_catalog.format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY%s', table_name, CASE WHEN old.relforcerowsecurity THEN ', FORCE ROW LEVEL SECURITY' ELSE '' END)], NULL
		WHERE old.relrowsecurity AND (NOT new.relrowsecurity OR old.relforcerowsecurity AND NOT new.relforcerowsecurity);
	RETURN QUERY SELECT 'policy', p.polname::pg_catalog.text, NULL, ARRAY[pg_catalog.format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', p.polname, table_name, CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
				CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
				(SELECT pg_catalog.string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(r)) END, ', ') FROM pg_catalog.unnest(p.polroles) AS r),
				' USING (' || pg_catalog.pg_get_expr(p.polqual, source) || ')', ' WITH CHECK (' || pg_catalog.pg_get_expr(p.polwithcheck, source) || ')')]
			|| sweep._comment_line('pg_policy', p.oid, pg_catalog.format('POLICY %I ON %s', p.polname, table_name)), NULL
		FROM pg_catalog.pg_policy p WHERE p.polrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy n WHERE n.polrelid = target AND n.polname = p.polname);
	RETURN QUERY SELECT 'trigger', t.tgname::pg_catalog.text, NULL, ARRAY[pg_catalog.pg_get_triggerdef(t.oid)]
			|| CASE t.tgenabled WHEN 'O' THEN '{}' ELSE ARRAY[pg_catalog.format('ALTER TABLE %s %s TRIGGER %I', table_name, CASE t.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE REPLICA' END, t.tgname)] END
			|| sweep._comment_line('pg_trigger', t.oid, pg_catalog.format('TRIGGER %I ON %s', t.tgname, table_name)), NULL
		FROM pg_catalog.pg_trigger t WHERE t.tgrelid = source AND NOT t.tgisinternal AND t.tgname NOT IN ('sweep_changes', 'sweep_changes_truncate')
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger n WHERE n.tgrelid = target AND n.tgname = t.tgname);
	RETURN QUERY SELECT 'comment', coalesce('on column ' || n.attname, 'on the table'), NULL,
			ARRAY[pg_catalog.format('COMMENT ON %s IS %L', coalesce(pg_catalog.format('COLUMN %s.', table_name) || pg_catalog.quote_ident(n.attname), 'TABLE ' || table_name), d.description)], NULL
		FROM pg_catalog.pg_description d LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attnum = d.objsubid AND d.objsubid > 0
			LEFT JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname AND NOT n.attisdropped
		WHERE d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objoid = source AND (d.objsubid = 0 OR n.attname IS NOT NULL)
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_description e WHERE e.classoid = d.classoid AND e.objoid = target AND e.objsubid = coalesce(n.attnum, 0));
END
$$;
COMMENT ON FUNCTION sweep._stays_settings(regclass, regclass, text) IS 'properties of a table that its copy lacks; table_name: the name of the copy when the statements are executed';

CREATE FUNCTION sweep._comment_line(catalog text, object oid, name text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ARRAY(SELECT pg_catalog.format('COMMENT ON %s IS %L', name, d.description) FROM pg_catalog.pg_description d
		WHERE d.classoid = ('pg_catalog.' || catalog)::pg_catalog.regclass AND d.objoid = object AND d.objsubid = 0);
END
$$;
COMMENT ON FUNCTION sweep._comment_line(text, oid, text) IS 'the statement that gives another object the comment of this one; empty: it has none';

-- ------------------------------------------------------------------ of others
CREATE FUNCTION sweep._stays_others(source regclass, target regclass, role oid, old_name text) RETURNS SETOF sweep._staying
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	table_name constant pg_catalog.text := sweep._table_name(source);
	types constant pg_catalog.oid[] := ARRAY(SELECT t.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_type t ON c.reltype IN (t.oid, t.typelem) WHERE c.oid = source);
BEGIN
	RETURN QUERY SELECT 'publication', p.pubname::pg_catalog.text, NULL, CASE WHEN sweep._owns(role, p.pubowner) THEN ARRAY[
			pg_catalog.format('ALTER PUBLICATION %I ADD TABLE %s%s%s', p.pubname, table_name, ' (' || (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum)
				FROM pg_catalog.pg_attribute a WHERE a.attrelid = source AND a.attnum = ANY (r.prattrs)) || ')', ' WHERE (' || pg_catalog.pg_get_expr(r.prqual, source) || ')'),
			pg_catalog.format('ALTER PUBLICATION %I DROP TABLE %s', p.pubname, (SELECT pg_catalog.format('%I.%I', n.nspname, old_name) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source))] END, NULL
		FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
		WHERE r.prrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel n WHERE n.prrelid = target AND n.prpubid = p.oid);
	RETURN QUERY SELECT DISTINCT CASE WHEN v.oid = source THEN 'rule' WHEN v.relkind = 'v' THEN 'view' WHEN v.relkind = 'm' THEN 'materialized view' ELSE 'rule' END,
			CASE WHEN v.relkind IN ('v', 'm') THEN v.oid::pg_catalog.regclass::pg_catalog.text ELSE pg_catalog.format('%I on %s', w.rulename, v.oid::pg_catalog.regclass) END,
			-- Not LOCK TABLE, which would also lock all tables that the view reads.
			pg_catalog.format('ALTER VIEW %s OWNER TO %I', sweep._table_name(v.oid::pg_catalog.regclass), pg_catalog.pg_get_userbyid(v.relowner)),
			CASE WHEN v.relkind = 'v' AND w.rulename = '_RETURN' AND sweep._owns(role, v.relowner) THEN
				ARRAY[pg_catalog.format('CREATE %s VIEW %s%s AS %s', 'OR REPLACE', sweep._table_name(v.oid::pg_catalog.regclass), ' WITH (' || pg_catalog.array_to_string(v.reloptions, ', ') || ')', pg_catalog.pg_get_viewdef(v.oid))] END, NULL
		FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite w ON w.oid = d.objid JOIN pg_catalog.pg_class v ON v.oid = w.ev_class
		WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND (d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = source OR d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = ANY (types));
	RETURN QUERY SELECT 'foreign key', pg_catalog.format('%I on %s', c.conname, c.conrelid::pg_catalog.regclass), CASE WHEN c.conrelid <> source THEN pg_catalog.format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', k.child) END,
			CASE WHEN c.conrelid <> target AND sweep._owns(role, r.relowner) AND (k.is_plain OR pg_catalog.current_setting('server_version_num')::int >= 180000) THEN
				ARRAY[pg_catalog.format('ALTER TABLE %s%s ADD CONSTRAINT %I %s%s', k.child, CASE WHEN c.conrelid <> source THEN pg_catalog.format(' DROP CONSTRAINT %I,', c.conname) END, c.conname,
					pg_catalog.pg_get_constraintdef(c.oid), CASE WHEN c.convalidated THEN ' NOT VALID' END)] || sweep._comment_line('pg_constraint', c.oid, pg_catalog.format('CONSTRAINT %I ON %s', c.conname, k.child)) END,
			CASE WHEN c.convalidated THEN pg_catalog.format('ALTER TABLE %s VALIDATE CONSTRAINT %I', k.child, c.conname) END
		FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class r ON r.oid = c.conrelid CROSS JOIN LATERAL (SELECT sweep._table_name(c.conrelid::pg_catalog.regclass),
				(SELECT t.relkind = 'r' FROM pg_catalog.pg_class t WHERE t.oid = CASE c.conrelid WHEN source THEN target ELSE c.conrelid END)) AS k (child, is_plain)
		WHERE c.contype = 'f' AND c.conparentid = 0 AND (c.confrelid = source AND c.conrelid <> source
			OR c.conrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint n WHERE n.contype = 'f' AND n.conrelid = target AND n.confrelid = CASE c.confrelid WHEN source THEN target ELSE c.confrelid END
				AND pg_catalog.regexp_replace(pg_catalog.pg_get_constraintdef(n.oid), E' REFERENCES .*\\(', '') = pg_catalog.regexp_replace(pg_catalog.pg_get_constraintdef(c.oid), E' REFERENCES .*\\(', '')));
	RETURN QUERY SELECT 'statistics', s.stxname::pg_catalog.text, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_statistic_ext s
		WHERE s.stxrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_statistic_ext n WHERE n.stxrelid = target AND pg_catalog.pg_get_statisticsobjdef_columns(n.oid) = pg_catalog.pg_get_statisticsobjdef_columns(s.oid));
	RETURN QUERY SELECT 'subscription', 'of the table', NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = source;
	RETURN QUERY SELECT 'inheritance', CASE i.inhrelid WHEN source THEN 'from ' || i.inhparent::pg_catalog.regclass ELSE 'of ' || i.inhrelid::pg_catalog.regclass END, NULL, NULL::pg_catalog.text[], NULL
		FROM pg_catalog.pg_inherits i WHERE source IN (i.inhrelid, i.inhparent);
	RETURN QUERY SELECT 'extension', e.extname::pg_catalog.text, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
		WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = source AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype = 'e';
	-- All other objects, such as a function with an SQL body, or a column of the table's row type.
	RETURN QUERY SELECT DISTINCT i.type, i.identity, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_depend d CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) AS i
		WHERE d.deptype <> 'i' AND (d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = source OR d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = ANY (types))
			AND CASE d.classid WHEN 'pg_catalog.pg_class'::pg_catalog.regclass THEN d.objsubid > 0 AND d.objid <> source
				WHEN 'pg_catalog.pg_attrdef'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_attrdef a WHERE a.oid = d.objid AND a.adrelid = source)
				WHEN 'pg_catalog.pg_policy'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.oid = d.objid AND p.polrelid = source)
				WHEN 'pg_catalog.pg_trigger'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.oid = d.objid AND (t.tgrelid = source OR t.tgisinternal))
				WHEN 'pg_catalog.pg_constraint'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.oid = d.objid AND (c.conrelid = source OR c.contype = 'f'))
				ELSE d.classid NOT IN ('pg_catalog.pg_rewrite'::pg_catalog.regclass, 'pg_catalog.pg_publication_rel'::pg_catalog.regclass, 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass) END;
END
$$;
COMMENT ON FUNCTION sweep._stays_others(regclass, regclass, oid, text) IS 'objects that refer to a table and not to its copy';

-- ------------------------------------------------------------------ whether it can be switched
CREATE FUNCTION sweep._check_switch(args jsonb, source regclass, target regclass, role oid, captured boolean) RETURNS SETOF sweep._staying
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	carry constant boolean := coalesce((args #>> '{switch,carry}')::boolean, false);
	leave constant pg_catalog.text[] := ARRAY(SELECT * FROM pg_catalog.jsonb_array_elements_text(args #> '{switch,leave}'));
	old_name constant pg_catalog.text := sweep._old_name(args, source);
	items constant sweep._staying[] := ARRAY(SELECT (s.kind, s.name, s.lock, s.lines, s.after)::sweep._staying FROM (SELECT * FROM sweep._stays_settings(source, target, sweep._table_name(source)) UNION ALL SELECT * FROM sweep._stays_others(source, target, role, old_name)) AS s
		WHERE (s.kind = ANY (leave)) IS NOT TRUE);
	staying pg_catalog.record;
BEGIN
	IF (SELECT pg_catalog.count(DISTINCT c.relnamespace) FROM pg_catalog.pg_class c WHERE c.oid IN (source, target)) > 1 THEN
		RAISE EXCEPTION '% is in another schema than %', target, source USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A copy can take the name of a table of its own schema.';
	END IF;
	IF pg_catalog.octet_length(old_name) > 63 OR old_name = '' OR EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relname = old_name AND c.relnamespace = (SELECT s.relnamespace FROM pg_catalog.pg_class s WHERE s.oid = source)) THEN
		RAISE EXCEPTION '% cannot be renamed to "%"', source, old_name USING ERRCODE = 'duplicate_table', HINT = 'Name in old_name one that is free and has 63 bytes at most.';
	END IF;
	IF captured AND (SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = source AND t.tgname IN ('sweep_changes', 'sweep_changes_truncate') AND t.tgenabled = 'A'
			AND t.tgfoid = pg_catalog.to_regprocedure((args ->> 'changes') || '()')) < 2 THEN
		RAISE EXCEPTION 'a trigger that follows the changes of % was dropped or disabled', source USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Changes are lost: drop the job, and create it anew with an empty target.';
	END IF;
	SELECT pg_catalog.count(*) AS many, pg_catalog.string_agg(s.kind || ' ' || s.name, ', ' ORDER BY s.kind, s.name) AS names, pg_catalog.bool_and(s.lines IS NOT NULL) AS all_move INTO staying
		FROM pg_catalog.unnest(items) AS s WHERE NOT (carry AND s.lines IS NOT NULL);
	IF staying.many > 0 THEN
		RAISE EXCEPTION '% cannot be switched: what is known by its OID would stay behind', source USING ERRCODE = 'dependent_objects_still_exist', DETAIL = staying.names || '.',
			HINT = CASE WHEN staying.all_move THEN 'carry => true moves all of it.' ELSE 'Make it for the copy, or drop it; carry => true moves what can be moved, leave => ARRAY[...] names kinds that may stay.' END;
	END IF;
	RETURN QUERY SELECT * FROM pg_catalog.unnest(items);
END
$$;
COMMENT ON FUNCTION sweep._check_switch(jsonb, regclass, regclass, oid, boolean) IS 'the objects that are moved with the name; raises unless the copy can take the name of its source';

CREATE FUNCTION sweep._old_name(args jsonb, source regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(args #>> '{switch,old_name}', (SELECT c.relname || '_old' FROM pg_catalog.pg_class c WHERE c.oid = source));
END
$$;
COMMENT ON FUNCTION sweep._old_name(jsonb, regclass) IS 'the name that the source gets';
