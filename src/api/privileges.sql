--
-- Roles of the extension, and all of its grants.
--
DO $$
DECLARE
	wanted pg_catalog.text;
BEGIN
	FOREACH wanted IN ARRAY ARRAY['sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'sweep_client'] LOOP
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = wanted) THEN
			EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted);
			-- Only when the role is created: if an administrator has revoked the membership, CREATE EXTENSION in another database
			-- does not grant it again.
			IF wanted = 'sweep_monitor' THEN
				GRANT sweep_monitor TO pg_monitor;
			END IF;
		END IF;
	END LOOP;
END
$$;

-- A new object has privileges that its extension did not grant: PUBLIC may execute a function and use a type, and ALTER DEFAULT PRIVILEGES of
-- the database adds others. pg_init_privs has the grants of the extension for each object on which its script has granted or revoked anything.
-- An administrator may grant SELECT on a view, EXECUTE on a public function, and USAGE on a public type or the schema.
CREATE FUNCTION sweep._foreign_grants(extension name) RETURNS SETOF text
	LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('REVOKE %s ON %s %s FROM %s CASCADE', pg_catalog.string_agg(DISTINCT g.privilege_type, ', '), o.kind, o.name,
			CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::pg_catalog.regrole::pg_catalog.text END)
	FROM pg_catalog.pg_extension e
	JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	CROSS JOIN LATERAL (
		SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::pg_catalog.regclass::pg_catalog.text, c.relowner, c.relacl, CASE c.relkind WHEN 'v' THEN 'SELECT' END
			FROM pg_catalog.pg_class c WHERE (c.tableoid, c.oid) = (d.classid, d.objid)
		UNION ALL SELECT 'TABLE', c.oid::pg_catalog.regclass::pg_catalog.text, c.relowner, a.attacl, CASE c.relkind WHEN 'v' THEN 'SELECT' END
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid WHERE (c.tableoid, c.oid) = (d.classid, d.objid) AND a.attacl IS NOT NULL
		UNION ALL SELECT 'ROUTINE', p.oid::pg_catalog.regprocedure::pg_catalog.text, p.proowner, coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), CASE WHEN p.proname NOT LIKE E'\\_%' THEN 'EXECUTE' END
			FROM pg_catalog.pg_proc p WHERE (p.tableoid, p.oid) = (d.classid, d.objid)
		UNION ALL SELECT 'TYPE', t.oid::pg_catalog.regtype::pg_catalog.text, t.typowner, coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner)), CASE WHEN t.typname NOT LIKE E'\\_%' THEN 'USAGE' END
			FROM pg_catalog.pg_type t WHERE (t.tableoid, t.oid) = (d.classid, d.objid)
				-- Since version 18 array types and row types of tables are members of the extension, too. An array type has the
				-- privileges of its element type; default privileges never apply to the row type of a table.
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_type AS element WHERE element.typarray = t.oid)
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = t.typrelid AND c.relkind <> 'c')
		UNION ALL SELECT 'SCHEMA', n.oid::pg_catalog.regnamespace::pg_catalog.text, n.nspowner, n.nspacl, 'USAGE'
			FROM pg_catalog.pg_namespace n WHERE (n.tableoid, n.oid) = (d.classid, d.objid)
	) AS o (kind, name, owner, acl, may_be_added)
	LEFT JOIN pg_catalog.pg_init_privs i ON i.classoid = d.classid AND i.objoid = d.objid AND i.objsubid = 0
	CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS g
	WHERE e.extname = extension AND g.grantee <> o.owner
		AND NOT EXISTS (SELECT FROM pg_catalog.aclexplode(i.initprivs) AS own WHERE (own.grantee, own.privilege_type) = (g.grantee, g.privilege_type))
		AND (g.privilege_type = o.may_be_added AND g.grantee <> 0 AND i.initprivs IS NOT NULL) IS NOT TRUE
	GROUP BY o.kind, o.name, g.grantee
$$;
COMMENT ON FUNCTION sweep._foreign_grants(name) IS 'the REVOKE statements for privileges on objects of pg_sweep or pg_sweep_gitlab that the extension did not grant, and that an administrator has no reason to grant';

-- Called by each script that creates objects, after their creation and before the grants.
CREATE FUNCTION sweep._revoke_foreign_grants(extension name) RETURNS void
	LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT sweep._foreign_grants(extension) LOOP
		EXECUTE line;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._revoke_foreign_grants(name) IS 'executes what sweep._foreign_grants lists';

-- A dump of a database with such privileges restores them.
CREATE FUNCTION sweep._warn_of_foreign_grants() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found pg_catalog.record;
BEGIN
	FOR found IN SELECT e.extname, pg_catalog.count(*) AS many, pg_catalog.min(line) AS first FROM pg_catalog.pg_extension e, sweep._foreign_grants(e.extname) AS line
			WHERE e.extname IN ('pg_sweep', 'pg_sweep_gitlab') GROUP BY e.extname ORDER BY e.extname LOOP
		RAISE WARNING 'privileges on objects of extension % were granted that it does not grant', found.extname
			USING ERRCODE = 'invalid_grant_operation',
				DETAIL = pg_catalog.format('There are %s of them. This revokes the first: %s', found.many, found.first),
				HINT = pg_catalog.format('Look at them with: SELECT sweep._foreign_grants(%L); take them back with: SELECT sweep._revoke_foreign_grants(%1$L).', found.extname);
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._warn_of_foreign_grants() IS 'warns of the privileges that sweep._foreign_grants lists, for both extensions';

SELECT sweep._revoke_foreign_grants('pg_sweep');

GRANT USAGE ON SCHEMA sweep TO sweep_admin, sweep_operator, sweep_user, sweep_monitor, sweep_client;
GRANT USAGE ON TYPE sweep.batch, sweep.progress TO sweep_admin, sweep_user;
GRANT USAGE ON TYPE sweep.message TO sweep_admin, sweep_user, sweep_client;

-- Views, and the functions that they call with the rights of the reader.
GRANT SELECT ON sweep.job, sweep.quarantine, sweep.jobs, sweep.runs, sweep.running, sweep.buckets, sweep.queues, sweep.retentions TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._may_see(text), sweep._running(), sweep._seen_jobs(), sweep._seen_queues(), sweep._consumer_processes(), sweep._consumer_problem(sweep.consumer),
	sweep._find_handlers(text), sweep._handler_problem(text), sweep._role_problem(text, boolean), sweep._role_oid(text), sweep._acts_for(oid, text), sweep._execute_problem(text, regprocedure),
	sweep._owner_problem(text, regprocedure), sweep._is_trusted(regprocedure, text), sweep._is_home(bigint, oid), sweep._no_scheduler(), sweep._proof_of(jsonb), sweep._proof_values(jsonb), sweep._retention_age(jsonb, text), sweep._share_older(oid, text, timestamptz, text, real[], text, real) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- Jobs: each function checks the rights of its caller.
GRANT EXECUTE ON FUNCTION sweep.create_job, sweep.alter_job(text, jsonb), sweep.drop_job(text, boolean), sweep.import_pg_cron(boolean) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.create_retention, sweep.create_backfill, sweep.create_copy, sweep.create_partitions, sweep.switch_copy, sweep.delete, sweep.batched TO sweep_admin, sweep_user;
-- Steps, and the functions that their statements call as the role of the job.
GRANT EXECUTE ON FUNCTION sweep.retention_step(sweep.batch), sweep.delete_step(sweep.batch), sweep.backfill_step(sweep.batch), sweep.copy_step(sweep.batch), sweep.partitions_step(sweep.batch), sweep.update_step(sweep.batch), sweep.range_count(sweep.batch),
	sweep._reference_exists(oid, VARIADIC "any"), sweep._drop_partition(text, text, text, boolean, boolean, jsonb), sweep._drop_too_old(text, text, text, text, timestamptz, jsonb), sweep._writers(regclass), sweep._settle(text, jsonb, bigint, jsonb),
	sweep._change_batch(jsonb, jsonb, jsonb, int, bigint, text), sweep._begin_changes(jsonb, jsonb, jsonb), sweep._check_acting(oid, regclass, regclass), sweep._owns(oid, oid),
	sweep._next_blocks(regclass, text, jsonb, int), sweep._capture_changes(jsonb), sweep._apply_changes(jsonb, bigint, text), sweep._holders(text[]), sweep._copy_shape(jsonb, regclass, regclass), sweep._table_name(regclass), sweep._type_name(oid, int), sweep._base_type(oid), sweep._read_key(regclass, text[], jsonb), sweep._may_keep(regclass),
	sweep._switch_batch(jsonb, jsonb, jsonb, bigint, text, interval), sweep._switch(jsonb, jsonb, text), sweep._end_switch(jsonb), sweep._check_switch(jsonb, regclass, regclass, oid, boolean), sweep._old_name(jsonb, regclass),
	sweep._exchange_lines(regclass, regclass), sweep._sequences(regclass, regclass), sweep._stays_settings(regclass, regclass, text), sweep._stays_others(regclass, regclass, oid, text),
	sweep._comment_line(text, oid, text), sweep._privileges(regclass),
	sweep._bounds(regclass, regclass), sweep._key_ordering(text, text[]), sweep._check_ordering(text, text[], jsonb, text), sweep._check_copied(jsonb, jsonb), sweep._check_columns(text, text[], text[]), sweep._archive_columns(regclass, regclass), sweep._check_heirs(regclass), sweep._is_partitioned(regclass), sweep._refuse_age_type(text, text), sweep._lock_table(regclass, boolean, text), sweep._lock_default(regclass, regclass, text), sweep._await_turn(jsonb), sweep._note_try(jsonb, text, text[]), sweep._check_visible(regclass), sweep._is_referred_to(regclass, regclass), sweep._referencing(regclass, text, text), sweep._referring_source(regclass, text),
	sweep._cast_to(oid, oid), sweep._collation_of(oid, oid), sweep._age_limit(text, jsonb), sweep._partition_key(regclass), sweep._interval_parts(interval), sweep._grid_bound(text, jsonb, bigint), sweep._grid_place(text, jsonb, text),
	sweep._present(regclass, text, text, jsonb, timestamptz), sweep._missing_range(regclass, text, jsonb, bigint, bigint), sweep._missing_ranges(regclass, text, jsonb, bigint, bigint, int), sweep._check_range(regclass, sweep._partition_range), sweep._range_type(text),
	sweep._left_behind(regclass, text, text, jsonb, bigint), sweep._partition_name(regclass, text), sweep._fitting_name(text, text), sweep._create_like(regclass, regclass, text), sweep._equip_like(regclass, regclass, text[]),
	sweep._finish_partition(regclass, regclass), sweep._default_part(regclass), sweep._switch_triggers(jsonb, boolean), sweep._firing_triggers(regclass),
	sweep._attach_with_rows(anyarray, regclass, regclass, regclass, text, text, int, text), sweep._default_extent(regclass, text), sweep._exchange_default(regclass, regclass, text, jsonb, bigint, bigint),
	sweep._check_default(regclass, regclass, text, int), sweep._make_of_default(regclass, regclass, text, text, jsonb), sweep._newest_part(regclass, text),
	sweep._make_partitions(regclass, text, text, jsonb, sweep._partition_range[], regclass, int, text), sweep._find_missing(regclass, sweep.batch, jsonb, text, text, bigint), sweep._make_next(regclass, sweep.batch, text), sweep._drop_next(regclass, sweep.batch, jsonb),
	sweep._emptying_names(regclass), sweep._is_emptying(text), sweep._drop_emptying(text, text), sweep._emptying_key(regclass, text, text), sweep._check_emptying(regclass, regclass), sweep._key_of_default(regclass, text, text, text, text, text),
	sweep._gap_at(regclass, regclass, text, text, jsonb, text), sweep._ranges_to_fill(regclass, regclass, text, text, jsonb, int, boolean), sweep._all_to_fill(regclass, regclass, text, text, jsonb, int, bigint),
	sweep._begin_emptying(regclass, regclass, text, text, jsonb, int, bigint), sweep._fill_next(regclass, jsonb, jsonb, int, text), sweep._transactions(), sweep._exchange_emptied(regclass, regclass, jsonb, int, text),
	sweep._emptying_texts(regclass, regclass), sweep._empty_next(regclass, int, jsonb, text), sweep._change_texts(jsonb, regclass, regclass, text[], text[], text[]), sweep._collate_as(regclass, text), sweep._keeps_key(regclass, regclass, text[], text[]), sweep._insert_text(regclass, regclass, text[], text[], text), sweep._copy_columns(regclass, regclass), sweep._changes_name(regclass),
	sweep._index_key(oid), sweep._index_expression(oid), sweep._is_unique(regclass, text[]), sweep._never_null(oid, int), sweep._key_expression(regclass, text), sweep._key_list(regclass, text[]), sweep._key_compare(regclass, text[], text, text),
	sweep._has_names(oid), sweep._key_value(anyelement), sweep._read_value(text, anyelement), sweep._key_values(regclass, text[]), sweep._key_json(regclass, text[], text), sweep._key_order(regclass, text[], text[], boolean), sweep._edge_statements(regclass, regclass, text[], text[], text, boolean), sweep._column_list(text[]), sweep._qualified_list(text, text[]),
	sweep._relation_name(regclass), sweep._source(regclass, regclass),
	sweep._least_seconds(interval), sweep._check_every(text, text), sweep._check_origin(text, text), sweep._life_args(regclass, text, text, int, interval, text, text, text), sweep._check_detachable(regclass), sweep._partitions_batch(sweep.batch, text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.run(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.preview(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.try_lock(text), sweep.release_lock(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause(text), sweep.resume(text), sweep.start(text, jsonb, interval, timestamptz), sweep.cancel(bigint)
	TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON FUNCTION sweep._lock_number(oid, text) TO sweep_admin;
GRANT EXECUTE ON FUNCTION sweep.pause_all(), sweep.resume_all() TO sweep_admin, sweep_operator;
GRANT EXECUTE ON PROCEDURE sweep.wait(bigint, interval) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

GRANT EXECUTE ON FUNCTION sweep.release_quarantine(text, jsonb) TO sweep_admin, sweep_operator, sweep_user;

-- Queues.
GRANT EXECUTE ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text, boolean), sweep.drop_queue(text, boolean), sweep.purge_queue(text),
	sweep.grant_queue(text, regrole, text[]), sweep.revoke_queue(text, regrole, text[]) TO sweep_admin, sweep_user;
-- Rights of applications, whose roles sweep.grant_queue makes members of sweep_client.
GRANT EXECUTE ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb), sweep.send_many(text, jsonb[], text[], interval, int),
	sweep.claim(text, int, interval), sweep.ack(uuid, bigint[]), sweep.fail(uuid, text, bigint[]), sweep.release(uuid, bigint[]),
	sweep.extend(uuid, interval), sweep.messages(text, text, int), sweep.cancel_message(text, bigint, text) TO sweep_admin, sweep_user, sweep_client;
GRANT EXECUTE ON FUNCTION sweep.dead(text), sweep.done(text), sweep._ended_page(text, boolean, timestamptz, bigint), sweep.redrive(text, jsonb, int, boolean) TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.wait_for_message(text, interval) TO sweep_admin, sweep_user, sweep_client;

-- Consumers in the database, and keys for those outside.
GRANT EXECUTE ON FUNCTION sweep.create_consumer(text, text, int, int, regrole, boolean), sweep.alter_consumer(text, jsonb), sweep.drop_consumer(text, boolean),
	sweep.begin_once(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_consumer(text), sweep.resume_consumer(text) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.consumers TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The launcher starts a scheduler here when this has committed.
SELECT sweep._wake();
