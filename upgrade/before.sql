--
-- Second part of each update script, after src/base/library.sql; the parts of the install script follow, then rows.sql and
-- after.sql. The Makefile puts in what is between two @.
--
-- All objects of the old version are replaced, except the schema and the types that functions of users have as arguments.
-- Its tables wait in the schema _sweep_before, with their rows. An object of a user that depends on what is
-- replaced makes the update fail, with its name.
--
CREATE SCHEMA _sweep_before;

-- Privileges that were added to those of the extension, or taken back, since it was created. A role keeps those that an
-- administrator may add, see sweep._foreign_grants.
CREATE TABLE _sweep_before.privilege AS
	SELECT a.verb, o.kind, s.nspname AS schema, o.name, o.privilege, a.grantable,
		CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END AS grantee
	FROM pg_catalog.pg_extension e
	JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	JOIN pg_catalog.pg_init_privs i ON i.classoid = d.classid AND i.objoid = d.objid AND i.objsubid = 0
	CROSS JOIN LATERAL (
		SELECT 'TABLE', 'SELECT', c.relnamespace, c.relname, c.relacl, c.relowner FROM pg_catalog.pg_class c WHERE (c.tableoid, c.oid) = (d.classid, d.objid) AND c.relkind <> 'S'
		UNION ALL SELECT 'ROUTINE', 'EXECUTE', p.pronamespace, p.proname, p.proacl, p.proowner FROM pg_catalog.pg_proc p WHERE (p.tableoid, p.oid) = (d.classid, d.objid)
		UNION ALL SELECT 'TYPE', 'USAGE', t.typnamespace, t.typname, t.typacl, t.typowner FROM pg_catalog.pg_type t WHERE (t.tableoid, t.oid) = (d.classid, d.objid)
		UNION ALL SELECT 'SCHEMA', 'USAGE', n.oid, n.nspname, n.nspacl, n.nspowner FROM pg_catalog.pg_namespace n WHERE (n.tableoid, n.oid) = (d.classid, d.objid)
	) AS o (kind, privilege, place, name, acl, owner)
	JOIN pg_catalog.pg_namespace s ON s.oid = o.place
	CROSS JOIN LATERAL (
		SELECT 'GRANT', g.grantee, g.privilege_type, g.is_grantable FROM pg_catalog.aclexplode(o.acl) AS g
			WHERE NOT EXISTS (SELECT FROM pg_catalog.aclexplode(i.initprivs) AS own WHERE (own.grantee, own.privilege_type) = (g.grantee, g.privilege_type))
		UNION ALL SELECT 'REVOKE', own.grantee, own.privilege_type, false FROM pg_catalog.aclexplode(i.initprivs) AS own
			WHERE NOT EXISTS (SELECT FROM pg_catalog.aclexplode(o.acl) AS g WHERE (g.grantee, g.privilege_type) = (own.grantee, own.privilege_type))
	) AS a (verb, grantee, privilege, grantable)
	WHERE e.extname = '@extension@' AND a.privilege = o.privilege AND a.grantee <> o.owner AND o.name NOT LIKE E'\\_%' AND (a.grantee <> 0 OR a.verb = 'REVOKE');

CREATE FUNCTION _sweep_before.execute(command text) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found pg_catalog.text;
BEGIN
	EXECUTE command;
EXCEPTION WHEN dependent_objects_still_exist THEN
	GET STACKED DIAGNOSTICS found = PG_EXCEPTION_DETAIL;
	RAISE EXCEPTION 'other objects depend on those of @extension@ that its update replaces' USING ERRCODE = 'dependent_objects_still_exist', DETAIL = found,
		HINT = 'Drop them, execute ALTER EXTENSION @extension@ UPDATE, and create them again.';
END
$$;

DO $$
DECLARE
	id constant pg_catalog.oid := (SELECT e.oid FROM pg_catalog.pg_extension e WHERE e.extname = '@extension@');
	relations constant pg_catalog.oid[] := ARRAY(SELECT d.objid FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
		AND d.refobjid = id AND d.deptype = 'e' AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass);
	owner constant pg_catalog.name := (SELECT r.rolname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_roles r ON r.oid = e.extowner AND r.rolsuper WHERE e.oid = id);
	line pg_catalog.text;
	found pg_catalog.text;
BEGIN
	-- What belongs to a table goes with it. This is all that versions before have made there.
	SELECT pg_catalog.string_agg(pg_catalog.pg_describe_object(d.classid, d.objid, 0), E'\n' ORDER BY d.objid) INTO found
		FROM pg_catalog.pg_depend d CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS i
		CROSS JOIN LATERAL pg_catalog.regexp_replace(i.identity, E'^(?:@schema@\\.)?"?(\\w+).*', E'\\1') AS n (name)
		WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = ANY (relations) AND d.deptype IN ('a', 'i')
			AND d.classid IN ('pg_catalog.pg_class'::pg_catalog.regclass, 'pg_catalog.pg_trigger'::pg_catalog.regclass, 'pg_catalog.pg_policy'::pg_catalog.regclass,
				'pg_catalog.pg_rewrite'::pg_catalog.regclass, 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass, 'pg_catalog.pg_publication_rel'::pg_catalog.regclass)
			AND NOT (i.type IN ('sequence', 'toast table') OR n.name = '_RETURN' OR n.name = ANY (ARRAY['note_change', 'note_foreign_statement', 'note_applied_row', 'consumer_changed', 'queue_changed',
				'sweep_gitlab_check_job', 'replace_feature', 'job_select', 'quarantine_select', 'kept_environment_select', 'job_lock_key_idx', 'job_state_next_start_idx',
				'run_live_due_idx', 'run_live_job_idx', 'run_live_begun_idx', 'run_live_parent_idx', 'run_history_job_idx', 'run_history_outcome_idx', 'run_history_finished_at_idx',
				'run_history_parent_idx', 'queue_message_waiting_key', 'queue_message_due', 'once_key_done_at']));
	IF found IS NOT NULL THEN
		RAISE EXCEPTION 'the update of @extension@ would lose what belongs to its tables' USING ERRCODE = 'dependent_objects_still_exist', DETAIL = found,
			HINT = 'Drop it, execute ALTER EXTENSION @extension@ UPDATE, and create it again.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = ANY (relations)) THEN
		RAISE EXCEPTION 'a subscription writes to tables of @extension@' USING ERRCODE = 'dependent_objects_still_exist',
			HINT = 'Finish the replication first, or drop the subscription.';
	END IF;
	-- What is created belongs to whom the old objects belonged to.
	IF owner IS NOT NULL AND owner <> current_user THEN
		PERFORM pg_catalog.set_config('role', owner, true);
	END IF;
	FOREACH line IN ARRAY ARRAY(SELECT pg_catalog.format('REVOKE %s ON %s %I FROM %s CASCADE', p.privilege, p.kind, p.name, p.grantee) FROM _sweep_before.privilege p
				WHERE p.verb = 'GRANT' AND p.kind = 'SCHEMA'
			UNION ALL SELECT pg_catalog.format('REVOKE %s ON %s %I.%I FROM %s CASCADE', p.privilege, p.kind, p.schema, p.name, p.grantee) FROM _sweep_before.privilege p
				WHERE p.verb = 'GRANT' AND p.kind = 'TYPE' AND p.name = ANY ('{@kept_types@}')
			-- The jobs of GitLab have these on a table of jobs; their own update makes others.
			UNION ALL SELECT 'ALTER TABLE sweep_gitlab.kept_environment DROP CONSTRAINT IF EXISTS kept_environment_job_fkey; DROP POLICY IF EXISTS kept_environment_select ON sweep_gitlab.kept_environment'
				WHERE pg_catalog.to_regclass('sweep_gitlab.kept_environment') IS NOT NULL
			UNION ALL SELECT pg_catalog.format('DROP POLICY %I ON %s', p.polname, p.polrelid::pg_catalog.regclass) FROM pg_catalog.pg_policy p WHERE p.polrelid = ANY (relations) AND p.polname <> 'kept_environment_select'
			UNION ALL SELECT pg_catalog.format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::pg_catalog.regclass) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = ANY (relations) AND NOT t.tgisinternal
			UNION ALL SELECT 'DROP VIEW ' || pg_catalog.string_agg(c.oid::pg_catalog.regclass::pg_catalog.text, ', ') FROM pg_catalog.pg_class c WHERE c.oid = ANY (relations) AND c.relkind = 'v' HAVING count(*) > 0
			UNION ALL SELECT 'DROP ROUTINE ' || pg_catalog.string_agg(d.objid::pg_catalog.regprocedure::pg_catalog.text, ', ') FROM pg_catalog.pg_depend d
				WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = id AND d.deptype = 'e' AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
					AND (SELECT p.pronamespace FROM pg_catalog.pg_proc p WHERE p.oid = d.objid) = '@schema@'::pg_catalog.regnamespace
			UNION ALL SELECT pg_catalog.format('ALTER TABLE %s SET SCHEMA _sweep_before', c.oid::pg_catalog.regclass) FROM pg_catalog.pg_class c WHERE c.oid = ANY (relations) AND c.relkind = 'r' AND c.relnamespace = '@schema@'::pg_catalog.regnamespace
			UNION ALL SELECT pg_catalog.format('ALTER TYPE %s SET SCHEMA _sweep_before', t.oid::pg_catalog.regtype) FROM pg_catalog.pg_type t
				JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = id AND d.deptype = 'e' AND d.classid = t.tableoid AND d.objid = t.oid
				WHERE t.typtype IN ('d', 'e', 'c') AND t.typname <> ALL ('{@kept_types@}') AND (t.typrelid = 0 OR (SELECT c.relkind = 'c' FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid)))
	LOOP
		PERFORM _sweep_before.execute(line);
	END LOOP;
	UPDATE pg_catalog.pg_extension AS e SET extconfig = NULL, extcondition = NULL WHERE e.oid = id;
END
$$;
