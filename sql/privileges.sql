-- room: api
-- Who may do what: each role with each kind of function, row level security, and the views.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
DROP SCHEMA IF EXISTS privileges CASCADE;
CREATE SCHEMA privileges;
CREATE ROLE regress_sweep_admin LOGIN IN ROLE sweep_admin;
CREATE ROLE regress_sweep_operator LOGIN IN ROLE sweep_operator;
CREATE ROLE regress_sweep_user LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_other LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_monitor LOGIN IN ROLE sweep_monitor;
CREATE ROLE regress_sweep_watcher LOGIN IN ROLE pg_monitor;
CREATE ROLE regress_sweep_nobody LOGIN;
CREATE ROLE regress_sweep_member LOGIN IN ROLE regress_sweep_user;
GRANT USAGE, CREATE ON SCHEMA privileges TO PUBLIC;

-- what the catalogue says: public functions by role
SELECT p.proname, string_agg(r.rolname, ' ' ORDER BY r.rolname) FILTER (WHERE has_function_privilege(r.oid, p.oid, 'EXECUTE')) AS roles
	FROM pg_proc p, pg_roles r
	WHERE p.pronamespace = 'sweep'::regnamespace AND p.proname NOT LIKE '\_%' AND r.rolname IN ('sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor')
	GROUP BY p.proname ORDER BY p.proname;
SELECT c.relname, string_agg(r.rolname, ' ' ORDER BY r.rolname) FILTER (WHERE has_table_privilege(r.oid, c.oid, 'SELECT')) AS can_select,
	bool_or(has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')) AS can_write
	FROM pg_class c, pg_roles r
	WHERE c.relnamespace = 'sweep'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname NOT LIKE 'queue%'
		AND r.rolname IN ('sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'regress_sweep_nobody')
	GROUP BY c.relname ORDER BY c.relname;
-- with nothing but a database one cannot even look
SET ROLE regress_sweep_nobody;
SELECT * FROM sweep.jobs;
SELECT sweep.create_job('privileges nobody', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
RESET ROLE;

-- Executes a statement as a role and takes it back; says what came of it.
CREATE FUNCTION privileges.try(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	outcome text := 'done';
	hint text;
BEGIN
	BEGIN
		EXECUTE format('SET LOCAL ROLE %I', role);
		EXECUTE statement;
		RAISE EXCEPTION USING ERRCODE = 'P9999', MESSAGE = 'taken back';
	EXCEPTION
		WHEN SQLSTATE 'P9999' THEN
			NULL;
		WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS outcome = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
			outcome := outcome || coalesce(' (' || nullif(hint, '') || ')', '');
	END;
	RETURN outcome;
END
$$;

SET ROLE regress_sweep_user;
CREATE FUNCTION privileges.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	SELECT ROW(0, NULL, jsonb_build_object('current', current_user, 'session', session_user))::sweep.progress
$$;
SELECT sweep.create_job('privileges user', step => 'privileges.step', schedule => '@yearly', on_failure => '{"privileges none": "1 hour"}');
RESET ROLE;
INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES ('privileges user', 'regress_sweep_user', 'manual', '2100-01-01 00:00:00Z') RETURNING run_id \gset
INSERT INTO sweep.run_history (run_id, job, run_as, trigger, due_at, status, finished_at)
	VALUES (1900000, 'privileges dropped', 'regress_sweep_user', 'manual', '2000-01-01 00:00:00Z', 'cancelled', now()) RETURNING run_id AS dropped_run_id \gset

-- one's own, that of a role one is a member of, another's
\pset format unaligned
SELECT s.statement, r.role, replace(privileges.try('regress_sweep_' || r.role, replace(replace(s.statement, ':run', :'run_id'), ':dropped', :'dropped_run_id')),
		'run ' || :'run_id', 'run :run') AS outcome
	FROM (VALUES
		(1, $$SELECT sweep.alter_job('privileges user', '{"batch_size": 5}')$$),
		(2, $$SELECT sweep.alter_job('privileges user', '{"args": {"x": 1}}')$$),
		(3, $$SELECT sweep.alter_job('privileges user', '{"batch_sql": "UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0", "step": null}')$$),
		(4, $$SELECT sweep.alter_job('privileges user', '{"run_as": "regress_sweep_other"}')$$),
		(5, $$SELECT sweep.drop_job('privileges user')$$),
		(6, $$SELECT sweep.pause('privileges user')$$),
		(7, $$SELECT sweep.resume('privileges user')$$),
		(8, $$SELECT sweep.start('privileges user')$$),
		(9, $$SELECT sweep.start('privileges user', '{"x": 1}')$$),
		(10, $$SELECT sweep.cancel(:run)$$),
		(11, $$SELECT sweep.cancel(:dropped)$$),
		(12, $$SELECT sweep.pause_all()$$),
		(13, $$SELECT sweep.resume_all()$$),
		(14, $$SELECT sweep.preview('privileges user')$$),
		(15, $$SELECT sweep.try_lock('privileges'), sweep.release_lock('privileges')$$),
		(16, $$SELECT sweep.alter_job('privileges user', '{"on_failure": null}')$$)
	) AS s (nr, statement), unnest(ARRAY['admin', 'operator', 'user', 'member', 'other', 'monitor', 'nobody']) WITH ORDINALITY AS r (role, nr)
	ORDER BY s.nr, r.nr;

-- run_as: a role that the caller could SET ROLE to
SELECT r.role, a.run_as, privileges.try('regress_sweep_' || r.role, format($$SELECT sweep.create_job('privileges', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', run_as => 'regress_sweep_%s')$$, a.run_as)) AS outcome
	FROM (VALUES ('user', 'user'), ('user', 'other'), ('member', 'member'), ('member', 'user'), ('user', 'member'), ('admin', 'user'), ('admin', 'admin'), ('monitor', 'monitor')) AS a (role, run_as),
		LATERAL (SELECT a.role) AS r;
\pset format aligned

-- the implementations are nobody's: who could call them could choose who is asking
SELECT privileges.try('regress_sweep_admin', format('SELECT sweep._drop_job(%L::oid, %L, false)', 'regress_sweep_user'::regrole::oid, 'privileges user')) AS outcome;
SELECT privileges.try('regress_sweep_admin', 'SELECT sweep._enqueue_due(now(), 100)') AS outcome;
SELECT privileges.try('regress_sweep_admin', $$INSERT INTO sweep.job_definition (name) VALUES ('x')$$) AS outcome;
SELECT privileges.try('regress_sweep_admin', $$UPDATE sweep.runs SET rows = 1$$) AS outcome;
SELECT privileges.try('regress_sweep_monitor', $$SELECT * FROM sweep.run_live$$) AS outcome;

-- what each of them sees; who monitors the server is a member of sweep_monitor
CREATE FUNCTION privileges.sees(role text) RETURNS TABLE (jobs bigint, job_table bigint, runs bigint, dropped_runs bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	RETURN QUERY SELECT (SELECT count(*) FROM sweep.jobs WHERE name LIKE 'privileges%'), (SELECT count(*) FROM sweep.job WHERE name LIKE 'privileges%'),
		(SELECT count(*) FROM sweep.runs WHERE job = 'privileges user'), (SELECT count(*) FROM sweep.runs WHERE job = 'privileges dropped');
	RESET ROLE;
END
$$;
SELECT r.role, s.* FROM unnest(ARRAY['admin', 'operator', 'user', 'member', 'other', 'monitor', 'watcher']) WITH ORDINALITY AS r (role, nr), privileges.sees('regress_sweep_' || r.role) AS s ORDER BY r.nr;
-- the state of a job is the same for each reader
SET ROLE regress_sweep_user;
SELECT name, state, next_run IS NOT NULL AS scheduled, run_as FROM sweep.jobs;
SELECT name, run_as FROM sweep.job;
SELECT count(*) FROM sweep.running;
SET ROLE regress_sweep_monitor;
SELECT name, state, run_as FROM sweep.jobs WHERE name LIKE 'privileges%';
RESET ROLE;
-- a leaky function of a reader is not shown what row level security hides
SET ROLE regress_sweep_other;
CREATE FUNCTION privileges.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN RAISE WARNING 'leaked %', $1; RETURN true; END $$;
SELECT name FROM sweep.job WHERE privileges.leak(description);
SELECT job FROM sweep.runs WHERE privileges.leak(job);
SELECT name FROM sweep.jobs WHERE privileges.leak(name);
RESET ROLE;

-- CALL sweep.run: as the job's own role only, in the session as well as at the moment
CALL sweep.run('privileges user');
SELECT * FROM sweep.preview('privileges user');
SET ROLE regress_sweep_user;
CALL sweep.run('privileges user');
RESET ROLE;
SELECT current_user AS superuser \gset
\c - regress_sweep_member
CALL sweep.run('privileges user');
SET ROLE regress_sweep_user;
CALL sweep.run('privileges user');
\c - regress_sweep_other
CALL sweep.run('privileges user');
SELECT * FROM sweep.preview('privileges user');
\c - regress_sweep_user
SET client_min_messages = warning;
CALL sweep.run('privileges user');
SELECT rows FROM sweep.preview('privileges user');
SELECT status, detail FROM sweep.runs WHERE job = 'privileges user' AND status <> 'waiting';

-- a step runs as its role and can become nobody else, and leaves nobody else behind
CREATE OR REPLACE FUNCTION privileges.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE b.args ->> 'do';
	RETURN ROW(0, NULL, jsonb_build_object('current', current_user, 'session', session_user))::sweep.progress;
END
$$;
CALL sweep.run('privileges user', '{"do": "RESET ROLE"}');
CALL sweep.run('privileges user', '{"do": "RESET SESSION AUTHORIZATION"}');
CALL sweep.run('privileges user', '{"do": "SET ROLE NONE"}');
CALL sweep.run('privileges user', '{"do": "SET search_path = privileges"}');
SELECT status, detail FROM sweep.runs WHERE job = 'privileges user' AND status <> 'waiting' ORDER BY run_id OFFSET 1;
-- (the number of a run is not that of another test's)
\set VERBOSITY sqlstate
CALL sweep.run('privileges user', '{"do": "SET ROLE regress_sweep_other"}');
CALL sweep.run('privileges user', '{"do": "SET SESSION AUTHORIZATION regress_sweep_admin"}');
CALL sweep.run('privileges user', '{"do": "DELETE FROM sweep.run_live"}');
CALL sweep.run('privileges user', '{"do": "SELECT sweep._mark_lost()"}');
\set VERBOSITY default
SELECT sqlstate, regexp_replace(split_part(error, E'\n', 1), 'permission denied .*', 'permission denied') AS error FROM sweep.runs WHERE job = 'privileges user' AND status = 'failed' ORDER BY run_id;
SELECT current_user, session_user, current_setting('search_path') = 'privileges' AS still_its_path;

-- functions of a hostile path or temporary schema are not called by ours
\c - regress_sweep_other
CREATE FUNCTION privileges.pg_has_role(oid, regrole, text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
CREATE FUNCTION privileges.pg_has_role(oid, text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
CREATE FUNCTION pg_temp.pg_has_role(oid, text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
SET search_path = privileges, pg_temp, pg_catalog;
SELECT sweep.pause('privileges user');
\set VERBOSITY sqlstate
SELECT sweep.cancel(:run_id);
\set VERBOSITY default
SELECT count(*) FROM sweep.runs WHERE job LIKE 'privileges%';
\c - :superuser
SET client_min_messages = warning;

-- SQL of a job is analysed with the rights of its role: the check of a domain is code of a user
SET ROLE regress_sweep_other;
CREATE FUNCTION privileges.take(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE regress_sweep_other SUPERUSER'; RETURN true; END $$;
CREATE DOMAIN privileges.bait AS int CHECK (privileges.take(VALUE));
\set VERBOSITY sqlstate
SELECT sweep.create_job('privileges bait', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('{1}'::privileges.bait[]) IS NULL AND $1 < 0$$);
\set VERBOSITY default
RESET ROLE;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_sweep_other';

-- a job of the same name that belongs to somebody else does not open the runs of the old one
INSERT INTO sweep.run_history (run_id, job, run_as, trigger, due_at, status, finished_at, error)
	VALUES (1899999, 'privileges heir', 'regress_sweep_user', 'manual', '2000-01-01 00:00:00Z', 'failed', now(), 'a secret');
SET ROLE regress_sweep_other;
SELECT sweep.create_job('privileges heir', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
SELECT count(*) FROM sweep.runs WHERE job = 'privileges heir';
SELECT sweep.drop_job('privileges heir');
RESET ROLE;

-- a definer function's caller is the definer: that is whose right counts
SET ROLE regress_sweep_user;
CREATE FUNCTION privileges.pause_it() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ SELECT sweep.pause('privileges user') $$;
SET ROLE regress_sweep_nobody;
SELECT privileges.pause_it();
RESET ROLE;
SELECT paused_at IS NOT NULL AS paused FROM sweep.job_state WHERE job = 'privileges user';
-- the caller of a function in a view is the view's reader
SET ROLE regress_sweep_user;
CREATE VIEW privileges.trap AS SELECT sweep.cancel(:run_id) AS cancelled;
GRANT SELECT ON privileges.trap TO PUBLIC;
SET ROLE regress_sweep_other;
\set VERBOSITY sqlstate
SELECT * FROM privileges.trap;
\set VERBOSITY default
RESET ROLE;

SELECT sweep.drop_job('privileges user');
DELETE FROM sweep.run_live WHERE job LIKE 'privileges%';
DELETE FROM sweep.run_history WHERE job LIKE 'privileges%';
DROP SCHEMA privileges CASCADE;
DROP ROLE regress_sweep_member, regress_sweep_admin, regress_sweep_operator, regress_sweep_user, regress_sweep_other, regress_sweep_monitor, regress_sweep_watcher, regress_sweep_nobody;
