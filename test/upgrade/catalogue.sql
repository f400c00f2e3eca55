-- What an extension has created, one line per fact, without OIDs: the same from whatever script it came. :extension is its name.
SET search_path = pg_catalog;
WITH member AS (
		SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
		WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = :'extension'),
	relation AS (
		SELECT c.* FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
		UNION SELECT c.* FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i'
			JOIN member m ON m.classid = d.refclassid AND m.objid = d.refobjid WHERE d.refclassid = 'pg_class'::regclass AND c.relkind = 'S'),
	type AS (SELECT t.* FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid),
	fact (line) AS (
		SELECT format('member %s', pg_describe_object(m.classid, m.objid, 0)) FROM member m
		UNION ALL SELECT format('comment on %s: %s', pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description)
			FROM pg_description d WHERE (d.classoid, d.objoid) IN (SELECT m.classid, m.objid FROM member m)
				OR d.classoid = 'pg_class'::regclass AND d.objoid IN (SELECT i.indexrelid FROM pg_index i JOIN relation r ON r.oid = i.indrelid)
				OR d.classoid = 'pg_constraint'::regclass AND d.objoid IN (SELECT c.oid FROM pg_constraint c JOIN relation r ON r.oid = c.conrelid)
				OR d.classoid = 'pg_policy'::regclass AND d.objoid IN (SELECT p.oid FROM pg_policy p JOIN relation r ON r.oid = p.polrelid)
				OR d.classoid = 'pg_class'::regclass AND d.objoid IN (SELECT t.typrelid FROM type t)
		UNION ALL SELECT format('function %s: owner %s, cost %s, rows %s, leakproof %s, may %s, binary %s.%s, is %s', p.oid::regprocedure, p.proowner::regrole, p.procost,
				p.prorows, p.proleakproof, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(p.proacl) AS a), p.probin, p.prosrc,
				CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) END)
			FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
		UNION ALL SELECT format('relation %s: kind %s, owner %s, persistence %s, options %s, row security %s %s, replica identity %s, may %s, is %s', r.oid::regclass, r.relkind,
				r.relowner::regrole, r.relpersistence, r.reloptions, r.relrowsecurity, r.relforcerowsecurity, r.relreplident,
				(SELECT array_agg(a::text ORDER BY a::text) FROM unnest(r.relacl) AS a), CASE WHEN r.relkind IN ('v', 'm') THEN pg_get_viewdef(r.oid) END)
			FROM relation r
		-- The order of columns counts: rows are made and read in it.
		UNION ALL SELECT format('column %s.%s: number %s, %s, not null %s, default %s, identity %s, generated %s, storage %s, collation %s, may %s', c.oid::regclass, a.attname,
				row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
				a.attidentity, a.attgenerated, a.attstorage, a.attcollation::regcollation, (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(a.attacl) AS x))
			FROM (SELECT oid FROM relation UNION SELECT t.typrelid FROM type t WHERE t.typtype = 'c') AS c
				JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
				LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		UNION ALL SELECT format('constraint %s on %s%s: %s, validated %s', c.conname, nullif(c.conrelid, 0)::regclass, nullif(c.contypid, 0)::regtype, pg_get_constraintdef(c.oid), c.convalidated)
			FROM pg_constraint c WHERE c.conrelid IN (SELECT r.oid FROM relation r) OR c.contypid IN (SELECT t.oid FROM type t)
		UNION ALL SELECT format('index %s, options %s', pg_get_indexdef(i.indexrelid), c.reloptions)
			FROM pg_index i JOIN relation r ON r.oid = i.indrelid JOIN pg_class c ON c.oid = i.indexrelid
		UNION ALL SELECT format('trigger %s, enabled %s', pg_get_triggerdef(t.oid), t.tgenabled) FROM pg_trigger t JOIN relation r ON r.oid = t.tgrelid WHERE NOT t.tgisinternal
		UNION ALL SELECT format('rule %s', pg_get_ruledef(w.oid)) FROM pg_rewrite w JOIN relation r ON r.oid = w.ev_class
		UNION ALL SELECT format('policy %s on %s: %s', p.policyname, p.tablename, to_jsonb(p)) FROM pg_policies p
			JOIN relation r ON r.relname = p.tablename AND r.relnamespace::regnamespace::text = quote_ident(p.schemaname)
		UNION ALL SELECT format('sequence %s: %s', s.seqrelid::regclass, to_jsonb(s) - 'seqrelid') FROM pg_sequence s JOIN relation r ON r.oid = s.seqrelid
		UNION ALL SELECT format('type %s: %s, category %s, owner %s, base %s, default %s, not null %s, labels %s, may %s', t.oid::regtype, t.typtype, t.typcategory, t.typowner::regrole,
				format_type(nullif(t.typbasetype, 0), t.typtypmod), t.typdefault, t.typnotnull, (SELECT array_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid),
				(SELECT array_agg(a::text ORDER BY a::text) FROM unnest(t.typacl) AS a))
			FROM type t
		UNION ALL SELECT format('schema %s: may %s', n.nspname, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(n.nspacl) AS a))
			FROM pg_namespace n JOIN member m ON m.classid = 'pg_namespace'::regclass AND m.objid = n.oid
		UNION ALL SELECT format('dumped %s where %s', c.relation::regclass, c.condition) FROM pg_extension e CROSS JOIN LATERAL unnest(e.extconfig, e.extcondition) AS c (relation, condition)
			WHERE e.extname = :'extension'
		UNION ALL SELECT format('extension %s', to_jsonb(e) - 'oid' - 'extconfig' - 'extcondition') FROM pg_extension e WHERE e.extname = :'extension')
SELECT replace(line, E'\n', ' ') FROM fact ORDER BY line COLLATE "C";
