--
-- Last part of each update script.
--
DO $$
DECLARE
	line pg_catalog.text;
BEGIN
	-- Numbers are drawn behind those that were.
	FOR line IN SELECT pg_catalog.format('SELECT pg_catalog.setval(%L, o.last_value, o.is_called) FROM %s AS o', n.oid::pg_catalog.regclass, o.oid::pg_catalog.regclass)
			FROM pg_catalog.pg_class o JOIN pg_catalog.pg_class n ON n.relname = o.relname AND n.relkind = 'S' AND n.relnamespace = '@schema@'::pg_catalog.regnamespace
			WHERE o.relkind = 'S' AND o.relnamespace = '_sweep_before'::pg_catalog.regnamespace LOOP
		EXECUTE line;
	END LOOP;
	-- PostgreSQL takes a grant of this script for one of the extension, which a dump leaves out.
	CREATE TABLE _sweep_before.init_privs AS SELECT * FROM pg_catalog.pg_init_privs;
	FOR line IN SELECT pg_catalog.format('%s %s ON %s %s %s %s %s', p.verb, p.privilege, p.kind, o.name, CASE p.verb WHEN 'GRANT' THEN 'TO' ELSE 'FROM' END, p.grantee,
				CASE WHEN p.grantable THEN 'WITH GRANT OPTION' WHEN p.verb = 'REVOKE' THEN 'CASCADE' END)
			FROM _sweep_before.privilege p CROSS JOIN LATERAL (
				SELECT c.oid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_class c WHERE p.kind = 'TABLE' AND c.relkind = 'v' AND (c.relnamespace::pg_catalog.regnamespace::pg_catalog.text, c.relname) = (p.schema, p.name)
				UNION ALL SELECT r.oid::pg_catalog.regprocedure::pg_catalog.text FROM pg_catalog.pg_proc r WHERE p.kind = 'ROUTINE' AND (r.pronamespace::pg_catalog.regnamespace::pg_catalog.text, r.proname) = (p.schema, p.name)
				UNION ALL SELECT t.oid::pg_catalog.regtype::pg_catalog.text FROM pg_catalog.pg_type t WHERE p.kind = 'TYPE' AND (t.typnamespace::pg_catalog.regnamespace::pg_catalog.text, t.typname) = (p.schema, p.name)
				UNION ALL SELECT p.name WHERE p.kind = 'SCHEMA') AS o (name) LOOP
		EXECUTE line;
	END LOOP;
	UPDATE pg_catalog.pg_init_privs AS i SET initprivs = k.initprivs FROM _sweep_before.init_privs k
		WHERE (i.objoid, i.classoid, i.objsubid) = (k.objoid, k.classoid, k.objsubid) AND i.initprivs <> k.initprivs;
	FOR line IN SELECT 'DROP TABLE ' || pg_catalog.string_agg(c.oid::pg_catalog.regclass::pg_catalog.text, ', ') FROM pg_catalog.pg_class c
				WHERE c.relkind = 'r' AND c.relnamespace = '_sweep_before'::pg_catalog.regnamespace
			UNION ALL SELECT CASE t.typtype WHEN 'd' THEN 'DROP DOMAIN ' ELSE 'DROP TYPE ' END || t.oid::pg_catalog.regtype FROM pg_catalog.pg_type t
				WHERE t.typtype IN ('d', 'e', 'c') AND t.typnamespace = '_sweep_before'::pg_catalog.regnamespace
					AND (t.typrelid = 0 OR (SELECT c.relkind = 'c' FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid)) LOOP
		PERFORM _sweep_before.execute(line);
	END LOOP;
END
$$;
DROP FUNCTION _sweep_before.execute(text);
DROP SCHEMA _sweep_before;
