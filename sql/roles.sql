-- room: base
-- Whose a job, queue or key is: roles by name, the two rights that a member may have, and owners of functions.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS roles CASCADE;
CREATE SCHEMA roles;
CREATE ROLE regress_sweep_r_owner LOGIN IN ROLE sweep_user;
CREATE ROLE "regress_sweep_R ""quoted""" LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_r_noinherit LOGIN NOINHERIT IN ROLE sweep_user, regress_sweep_r_owner;
CREATE ROLE regress_sweep_r_caller LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_r_author LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_r_admin LOGIN IN ROLE sweep_admin;
GRANT USAGE, CREATE ON SCHEMA roles TO PUBLIC;
\pset format unaligned

-- Says what comes of a statement as a role, and takes it back.
CREATE FUNCTION roles.try(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	outcome text;
	hint text;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	EXECUTE statement INTO outcome;
	RAISE EXCEPTION USING ERRCODE = 'P9999', MESSAGE = coalesce(nullif(outcome, ''), 'done');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS outcome = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN CASE WHEN SQLSTATE <> 'P9999' THEN SQLSTATE || ' ' ELSE '' END || outcome || coalesce(' (' || nullif(hint, '') || ')', '');
END
$$;

-- ------------------------------------------------------------------ names
-- no table has a role as anything but its name, but for what is never dumped
SELECT a.attrelid::regclass, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_extension e ON e.extname = 'pg_sweep'
	WHERE c.relnamespace = 'sweep'::regnamespace AND a.attnum > 0 AND c.oid = ANY (e.extconfig)
		AND (a.atttypid IN ('regrole'::regtype, 'regrole[]'::regtype, 'oid[]'::regtype) OR a.atttypid = 'oid'::regtype AND a.attname <> 'database');
SELECT sweep.create_job('roles quoted', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', run_as => '"regress_sweep_R ""quoted"""');
SELECT sweep.create_queue('roles');
SELECT sweep.grant_queue('roles', '"regress_sweep_R ""quoted"""', '{send,consume}');
SELECT run_as FROM sweep.jobs WHERE name = 'roles quoted';
SELECT senders, consumers FROM sweep.queue WHERE name = 'roles';
SELECT roles.try('regress_sweep_R "quoted"', $$SELECT sweep.send('roles', '1') > 0$$);
SELECT sweep.alter_job('roles quoted', '{"run_as": "regress_sweep_r_owner"}');
SELECT sweep.alter_job('roles quoted', jsonb_build_object('run_as', '"regress_sweep_R ""quoted"""'::regrole::oid));
SELECT run_as, state FROM sweep.jobs WHERE name = 'roles quoted';
SELECT sweep.alter_job('roles quoted', '{"run_as": "4294967295"}');
-- 70 letters are no role, though the first 63 of them are one
DO $$ BEGIN EXECUTE 'CREATE ROLE ' || repeat('r', 63); END $$;
SELECT sweep._role_oid(repeat('r', 63)) IS NOT NULL AS role, sweep._role_oid(repeat('r', 70)) AS none;
DO $$ BEGIN EXECUTE 'DROP ROLE ' || repeat('r', 63); END $$;

-- renamed: broken, whoever else takes the name it has got; healed by either way
ALTER ROLE "regress_sweep_R ""quoted""" RENAME TO regress_sweep_r_renamed;
SELECT state FROM sweep.jobs WHERE name = 'roles quoted';
SELECT roles.try('regress_sweep_r_renamed', s) FROM unnest(ARRAY[$$SELECT sweep.pause('roles quoted')$$, $$SELECT count(*) FROM sweep.job$$,
	$$SELECT sweep.send('roles', '1') > 0$$]) AS s;
SELECT roles.try('regress_sweep_r_admin', s) FROM unnest(ARRAY[$$SELECT sweep.pause('roles quoted')$$,
	$$SELECT sweep.alter_job('roles quoted', '{"args": {"a": 1}}')$$, $$SELECT sweep.alter_job('roles quoted', '{"run_as": "regress_sweep_r_renamed"}')$$,
	$$SELECT sweep.alter_job('roles quoted', '{"run_as": "regress_sweep_r_admin"}')$$]) AS s;
SELECT sweep.alter_job('roles quoted', '{"run_as": "regress_sweep_r_renamed"}');
SELECT state FROM sweep.jobs WHERE name = 'roles quoted';

-- the process knows the queue, and forgets whose it is as soon as a role is renamed, dropped or created
SET ROLE regress_sweep_r_owner;
SELECT sweep.create_queue('roles_owned');
SELECT sweep.send('roles_owned', '1') > 0 AS sent;
RESET ROLE;
ALTER ROLE regress_sweep_r_owner RENAME TO regress_sweep_r_other;
SELECT roles.try('regress_sweep_r_other', $$SELECT sweep.send('roles_owned', '1') > 0$$);
CREATE ROLE regress_sweep_r_owner LOGIN IN ROLE sweep_user;
SELECT roles.try('regress_sweep_r_owner', $$SELECT sweep.send('roles_owned', '1') > 0$$);
DROP ROLE regress_sweep_r_owner;
SELECT roles.try('regress_sweep_r_admin', $$SELECT sweep.send('roles_owned', '1') > 0$$);
ALTER ROLE regress_sweep_r_other RENAME TO regress_sweep_r_owner;
SELECT roles.try('regress_sweep_r_owner', $$SELECT sweep.send('roles_owned', '1') > 0$$);

-- ------------------------------------------------------------------ to act for a role, and to become it
SELECT sweep.create_job('roles owned', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', run_as => 'regress_sweep_r_owner');
SELECT sweep.grant_queue('roles', 'regress_sweep_r_owner', '{send}');
CREATE TEMP TABLE attempt (nth serial, statement text);
INSERT INTO attempt (statement) VALUES ($$SELECT count(*) FROM sweep.job WHERE name = 'roles owned'$$), ($$SELECT sweep.pause('roles owned')$$),
	($$SELECT sweep.send('roles', '1') > 0$$), ($$SELECT sweep.purge_queue('roles_owned')$$),
	($$SELECT sweep.create_job('roles new', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', run_as => 'regress_sweep_r_owner')$$);
GRANT SELECT ON attempt TO PUBLIC;
-- without INHERIT a member has no rights of the role before SET ROLE, and could become it
GRANT sweep_user TO regress_sweep_r_noinherit;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sweep TO regress_sweep_r_noinherit;
GRANT USAGE ON SCHEMA sweep TO regress_sweep_r_noinherit;
GRANT SELECT ON sweep.job TO regress_sweep_r_noinherit;
SELECT statement, roles.try('regress_sweep_r_noinherit', statement) AS outcome FROM attempt ORDER BY nth;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sweep FROM regress_sweep_r_noinherit;
REVOKE ALL ON SCHEMA sweep FROM regress_sweep_r_noinherit;
REVOKE ALL ON sweep.job FROM regress_sweep_r_noinherit;
-- a parent whose role may not act for that of the child queues no run of it
SELECT sweep.create_job('roles parent', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', run_as => 'regress_sweep_r_noinherit', on_start => '{"roles owned": "1 day"}');
INSERT INTO sweep.run_live (run_id, job, run_as, trigger, due_at, status) OVERRIDING SYSTEM VALUE VALUES (-8, 'roles parent', 'regress_sweep_r_noinherit', 'manual', '2100-01-01', 'running');
SELECT sweep._start_hooks(-8);
SELECT count(*) FROM sweep.runs WHERE job = 'roles owned';
ALTER ROLE regress_sweep_r_noinherit INHERIT;
SELECT current_setting('server_version_num')::int >= 160000 AS has_options \gset
\if :has_options
	-- there the grant says so, not the role
	GRANT regress_sweep_r_owner TO regress_sweep_r_noinherit WITH INHERIT TRUE;
\endif
SELECT sweep._start_hooks(-8);
SELECT count(*) FROM sweep.runs WHERE job = 'roles owned';
-- the run of a job that has got another role since queues nothing
DELETE FROM sweep.run_live WHERE job = 'roles owned';
UPDATE sweep.run_live SET run_as = 'regress_sweep_r_caller' WHERE run_id = -8;
SELECT sweep._start_hooks(-8);
SELECT count(*) FROM sweep.runs WHERE job = 'roles owned';
DELETE FROM sweep.run_live WHERE run_id = -8;

-- ------------------------------------------------------------------ whose function it is
SET ROLE regress_sweep_r_author;
CREATE FUNCTION roles.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION roles.pick(sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb LIMIT 0 $$;
CREATE FUNCTION roles.rescue(sweep.batch, jsonb) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION roles.count(sweep.batch) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION roles.handler(sweep.message) RETURNS void LANGUAGE sql AS '';
RESET ROLE;
CREATE FUNCTION roles.safe_step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION roles.safe_pick(sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb LIMIT 0 $$;
SELECT roles.try('regress_sweep_r_caller', s) FROM unnest(ARRAY[$$SELECT sweep.create_job('roles x', step => 'roles.step')$$,
	$$SELECT sweep.create_job('roles x', step => 'roles.safe_step')$$,
	$$SELECT sweep.create_job('roles x', step => 'roles.safe_step', pick => 'roles.pick')$$,
	$$SELECT sweep.create_job('roles x', step => 'roles.safe_step', pick => 'roles.safe_pick', rescue => 'roles.rescue')$$,
	$$SELECT sweep.create_job('roles x', step => 'roles.safe_step', buckets => 2, buckets_function => 'roles.count', stop_after => '1 min')$$]) AS s;
SELECT roles.try('regress_sweep_r_caller', $$SELECT sweep.create_queue('roles_c'), sweep.create_consumer('roles_c', 'roles.handler')$$);
-- its own, and one whose owner could become the role
SELECT roles.try('regress_sweep_r_author', $$SELECT sweep.create_job('roles x', step => 'roles.step')$$);
GRANT regress_sweep_r_caller TO regress_sweep_r_author;
SET ROLE regress_sweep_r_caller;
SELECT sweep.create_job('roles lent', step => 'roles.step', pick => 'roles.pick', rescue => 'roles.rescue');
RESET ROLE;
SELECT state FROM sweep.jobs WHERE name = 'roles lent';
-- the owner leaves: broken, whether he replaces it or not
REVOKE regress_sweep_r_caller FROM regress_sweep_r_author;
SELECT state FROM sweep.jobs WHERE name = 'roles lent';
SELECT current_user AS superuser \gset
\c - regress_sweep_r_caller
\set VERBOSITY default
\set VERBOSITY sqlstate
CALL sweep.run('roles lent');
\set VERBOSITY default
SELECT * FROM sweep.preview('roles lent');
\c - :superuser
SET client_min_messages = warning;
SELECT sweep.alter_job('roles lent', '{"pick": null, "rescue": null}');
ALTER FUNCTION roles.step(sweep.batch) OWNER TO regress_sweep_r_caller;
SELECT sweep.alter_job('roles lent', '{"pick": null, "rescue": null}');
SELECT sweep._job_problem(j, true) IS NULL AS healed FROM sweep.job_definition j WHERE name = 'roles lent';
\if :has_options
	-- to have the rights of the role is not enough
	ALTER FUNCTION roles.step(sweep.batch) OWNER TO regress_sweep_r_author;
	GRANT regress_sweep_r_caller TO regress_sweep_r_author WITH INHERIT TRUE, SET FALSE;
	DO $$ BEGIN ASSERT (SELECT sweep._job_problem(j, true) ~ 'could not become role "regress_sweep_r_caller"' FROM sweep.job_definition j WHERE name = 'roles lent'); END $$;
	DO $$ BEGIN ASSERT roles.try('regress_sweep_r_author', $q$SELECT sweep.pause('roles lent')$q$) = 'done'; END $$;
	DO $$ BEGIN ASSERT roles.try('regress_sweep_r_author', $q$SELECT sweep.create_job('roles x', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', run_as => 'regress_sweep_r_caller')$q$)
		~ '^42501 permission denied to run job'; END $$;
	-- nor is to be able to become it
	GRANT regress_sweep_r_caller TO regress_sweep_r_author WITH INHERIT FALSE, SET TRUE;
	DO $$ BEGIN ASSERT (SELECT sweep._job_problem(j, true) IS NULL FROM sweep.job_definition j WHERE name = 'roles lent'); END $$;
	DO $$ BEGIN ASSERT roles.try('regress_sweep_r_author', $q$SELECT sweep.pause('roles lent')$q$) ~ '^42501 permission denied for job'; END $$;
	-- neither: nothing
	GRANT regress_sweep_r_caller TO regress_sweep_r_author WITH INHERIT FALSE, SET FALSE;
	DO $$ BEGIN ASSERT roles.try('regress_sweep_r_author', $q$SELECT sweep.pause('roles lent')$q$) ~ '^42501 permission denied for job'; END $$;
	DO $$ BEGIN ASSERT roles.try('regress_sweep_r_author', $q$SELECT count(*) FROM sweep.job WHERE name = 'roles lent'$q$) = '0'; END $$;
	GRANT sweep_admin TO regress_sweep_r_author WITH INHERIT FALSE, SET FALSE;
	DO $$ BEGIN ASSERT roles.try('regress_sweep_r_author', $q$SELECT sweep.pause('roles lent')$q$) ~ '^42501 permission denied for job'; END $$;
\endif

DO $$ BEGIN PERFORM sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'roles%'; PERFORM sweep.drop_queue(name) FROM sweep.queue WHERE name LIKE 'roles%'; END $$;
DELETE FROM sweep.run_live WHERE job LIKE 'roles%';
DELETE FROM sweep.run_history WHERE job LIKE 'roles%';
DROP SCHEMA roles CASCADE;
DROP OWNED BY regress_sweep_r_owner, regress_sweep_r_renamed, regress_sweep_r_noinherit, regress_sweep_r_caller, regress_sweep_r_author, regress_sweep_r_admin;
DROP ROLE regress_sweep_r_owner, regress_sweep_r_renamed, regress_sweep_r_noinherit, regress_sweep_r_caller, regress_sweep_r_author, regress_sweep_r_admin;
