-- The rows of all tables of an extension, without what time and place make of them. :extension is its name.
SET timezone = 'UTC';
SELECT format($$SELECT %L || ' ' || regexp_replace(regexp_replace(to_jsonb(t)::text, '"(\d{4}-\d\d-\d\dT[^"]*|[0-9a-f]{8}-[0-9a-f-]{27})"', '"..."', 'g'),
			'"(system_identifier|database|pid)": "?-?\d+"?|"(ordering)": "\d+|"(copies)": \["\d+", "(?:[^"\\]|\\.)*", "\d+"', '"\1\2\3": 0', 'g') FROM %s AS t ORDER BY 1$$, c.oid::regclass, c.oid::regclass)
	FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
	WHERE e.extname = :'extension' AND c.relkind IN ('r', 'p') ORDER BY c.oid::regclass::text COLLATE "C" \gexec
