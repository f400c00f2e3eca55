-- pg_sweep_gitlab as an extension: what comes with it, what its end leaves; and that one predicate of stuck builds
-- is as good for the planner as its text would be.
\set ECHO none
\i gitlab/test/include/gitlab.sql
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 840000, false);

-- who may call what: the flags are switched by operators, everything else belongs to who may create jobs
SELECT coalesce(string_agg(r.rolname, ' ' ORDER BY r.rolname) FILTER (WHERE has_function_privilege(r.oid, p.oid, 'EXECUTE')), 'nobody') AS roles, p.proname
	FROM pg_proc p, pg_roles r WHERE p.pronamespace = 'sweep_gitlab'::regnamespace AND r.rolname IN ('sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'sweep_client')
		AND (p.proname ~ 'feature' OR p.proname LIKE '\_%') GROUP BY p.oid, p.proname ORDER BY roles, p.proname;
SELECT roles, count(*) > 10 AS many FROM (SELECT string_agg(r.rolname, ' ' ORDER BY r.rolname) FILTER (WHERE has_function_privilege(r.oid, p.oid, 'EXECUTE')) AS roles
		FROM pg_proc p, pg_roles r WHERE p.pronamespace = 'sweep_gitlab'::regnamespace AND r.rolname IN ('sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'sweep_client')
			AND p.proname !~ 'feature|^_' GROUP BY p.oid) AS f GROUP BY roles;
SELECT c.relname, string_agg(r.rolname, ' ' ORDER BY r.rolname) FILTER (WHERE has_table_privilege(r.oid, c.oid, 'SELECT')) AS can_select,
	bool_or(has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')) AS can_write
	FROM pg_class c, pg_roles r
	WHERE c.relnamespace = 'sweep_gitlab'::regnamespace AND c.relkind = 'r' AND r.rolname IN ('sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'sweep_client')
	GROUP BY c.relname ORDER BY c.relname;

-- it stays where it is, and pg_sweep does not go without it
\set VERBOSITY terse
ALTER EXTENSION pg_sweep_gitlab SET SCHEMA public;
ALTER EXTENSION pg_sweep_gitlab UPDATE;
BEGIN;
DROP EXTENSION pg_sweep;
ROLLBACK;
\set VERBOSITY default

-- the planner puts the predicate in place of its call, and finds both ends of the index
INSERT INTO gitlab.p_ci_builds (id, partition_id, status, type, created_at, updated_at, project_id, lock_version)
	SELECT i, 100 + i % 3, CASE WHEN i % 10 < 3 THEN 'pending' ELSE 'success' END, 'Ci::Build', '2025-12-31 12:00'::timestamp - (i - 9000) * interval '1 min',
		'2025-12-01', i % 7, 0 FROM generate_series(1, 18000) AS i;
ANALYZE gitlab.p_ci_builds;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
PREPARE picked(sweep_gitlab.stuck, timestamp) AS SELECT id FROM gitlab.p_ci_builds
	WHERE sweep_gitlab.is_stuck(type, status, created_at, updated_at, scheduled_at, $1) AND created_at > '2025-01-01' AND created_at < $2 ORDER BY created_at LIMIT 10;
CREATE TEMP TABLE plan (line text);
DO $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) EXECUTE picked(NULL, NULL)' LOOP
		INSERT INTO plan VALUES (line);
	END LOOP;
END
$$;
SELECT bool_or(line ~ 'is_stuck') AS called, count(*) FILTER (WHERE line ~ 'Index Cond: .*status.*created_at >.*created_at <') AS both_ends FROM plan;
RESET ALL;
SET timezone = 'UTC';
SET client_min_messages = warning;
\set SHOW_CONTEXT never

-- a pick reads neither what is done nor what is too young: of 5400 pending ones 2484 are old enough
SELECT count(*) FROM sweep_gitlab.install('gitlab', paused => true) WHERE note = 'created';
CREATE FUNCTION pg_temp.builds_read() RETURNS bigint LANGUAGE sql VOLATILE AS $$
	SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables
		WHERE relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'gitlab.p_ci_builds'::regclass)
$$;
BEGIN;
SELECT pg_temp.builds_read() AS read_before \gset
SELECT count(*) FROM sweep.job AS j, LATERAL sweep_gitlab.pick_stuck_builds(ROW(5000, NULL, j.args, '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch) WHERE name = 'ci_stuck_jobs';
SELECT pg_temp.builds_read() - :read_before AS read;
COMMIT;

-- without it the jobs are there and do nothing, and pg_sweep goes on
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
SELECT sweep_gitlab.keep_environment(7, '2026-01-01Z');
SELECT sweep.create_job('gitlab_extension other', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
DROP EXTENSION pg_sweep_gitlab;
SELECT count(*) FROM pg_namespace WHERE nspname = 'sweep_gitlab';
SELECT count(*) FROM pg_trigger JOIN pg_proc p ON p.oid = tgfoid WHERE tgrelid = 'sweep.job_definition'::regclass AND NOT tgisinternal AND p.pronamespace <> 'sweep'::regnamespace;
SELECT sweep.resume('ci_runners_stale_machines_cleanup');
SELECT name, state FROM sweep.jobs WHERE name IN ('ci_runners_stale_machines_cleanup', 'ci_stuck_jobs') ORDER BY name;
CALL sweep.run('ci_runners_stale_machines_cleanup');
SELECT sweep.alter_job('ci_runners_stale_machines_cleanup', '{"description": "of a GitLab"}');
CALL sweep.run('gitlab_extension other');
SELECT status, stop_reason FROM sweep.runs WHERE job = 'gitlab_extension other';
-- with it again they go on; flags and what was remembered are as in the beginning
CREATE EXTENSION pg_sweep_gitlab;
SELECT name, state FROM sweep.jobs WHERE name IN ('ci_runners_stale_machines_cleanup', 'ci_stuck_jobs') ORDER BY name;
CALL sweep.run('ci_runners_stale_machines_cleanup');
SELECT status, stop_reason FROM sweep.runs WHERE job = 'ci_runners_stale_machines_cleanup' ORDER BY run_id DESC LIMIT 1;
SELECT (SELECT count(*) FROM sweep_gitlab.feature_flag WHERE enabled) AS switched_on, (SELECT count(*) FROM sweep_gitlab.kept_environment) AS kept;
-- a session that has dropped builds finds what is new after the extension was created again
CALL sweep.run('ci_stuck_jobs', '{"as_of": "2026-01-01T00:00:00Z", "final_status": "canceled"}');
SELECT status, count(*) FROM gitlab.p_ci_builds GROUP BY 1 ORDER BY 1;
DROP EXTENSION pg_sweep_gitlab;
-- where a session quotes all names, too
SET quote_all_identifiers = on;
CREATE EXTENSION pg_sweep_gitlab;
RESET quote_all_identifiers;
SELECT count(*) FROM pg_proc WHERE pronamespace = 'sweep_gitlab'::regnamespace AND proconfig::text LIKE '%"pg_catalog%';
CALL sweep.run('ci_stuck_jobs', '{"as_of": "2026-01-03T00:00:00Z", "final_status": "canceled"}');
SELECT status, count(*) FROM gitlab.p_ci_builds GROUP BY 1 ORDER BY 1;

SELECT sweep.drop_job('gitlab_extension other');
DELETE FROM sweep.queue_message;
SELECT count(*) FROM sweep_gitlab.uninstall();
DROP SCHEMA gitlab, gitlab_partitions_dynamic CASCADE;
