-- sweep_gitlab.install and sweep_gitlab.uninstall.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 800000, false);
\set SHOW_CONTEXT never

-- nothing there
SELECT * FROM sweep_gitlab.install('no such schema');
SELECT * FROM sweep_gitlab.install(NULL);
SELECT * FROM sweep_gitlab.install();
SELECT count(*) FROM sweep.job;
SELECT count(*) FROM sweep.queues;
SELECT * FROM sweep_gitlab.uninstall();

-- the jobs, their limits and queues
CREATE SCHEMA "Git Lab";
SET search_path = "Git Lab", public;
\set ECHO none
\i test/demo/gitlab_schema.sql
\set ECHO all
RESET search_path;
SELECT * FROM sweep_gitlab.install('Git Lab', paused => true);
\x on
SELECT name, step, schedule, timezone, args, flush, batch_size, max_batches, max_rows, stop_after, lock_key, timeout, lock_retries,
		max_attempts, overlap, catch_up, cursor, run_as = current_user AS runs_as_installer, description IS NOT NULL AS described
	FROM sweep.job ORDER BY name;
\x off
SELECT paused, count(*) FROM sweep.jobs GROUP BY paused;
SELECT name, buckets, bucket_store, bucket_recovery, bucket_key, buckets_function, on_start FROM sweep.job WHERE name LIKE '%artifacts' ORDER BY name;
SELECT queue, depth FROM sweep.queues ORDER BY queue;

-- a parent whose child is paused does not look as if it worked
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
CALL sweep.run('ci_schedule_bulk_delete_job_artifacts');
CALL sweep.run('ci_stuck_jobs');
SELECT job, status, detail -> 'not_started' AS not_started FROM sweep.runs ORDER BY started_at DESC LIMIT 2;
SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts');

-- what each run finds again must not pile up in its queue
SELECT name, key_policy FROM sweep.queue ORDER BY name;

-- again: what an operator has altered stays, schema and whether it is paused are set
SELECT sweep.alter_job('ci_runners_stale_machines_cleanup',
	'{"batch_size": 50, "schedule": "6 * * * *", "args": {"schema": "elsewhere", "stale_after": "30 days"}}');
SELECT sweep.alter_job('environments_auto_stop', '{"args": {"schema": "Git Lab", "stop_action": "public.stop"}}');
SELECT * FROM sweep_gitlab.install('Git Lab', paused => false);
SELECT name, paused_at IS NOT NULL AS paused, batch_size, schedule, args FROM sweep.job JOIN sweep.job_state ON job = name ORDER BY name;

-- another layout: plain tables, one of them missing, a view that is no table
CREATE SCHEMA older;
CREATE TABLE older.batched_git_ref_updates_deletions (LIKE "Git Lab".p_batched_git_ref_updates_deletions INCLUDING ALL);
CREATE TABLE older.ci_runner_machines (LIKE "Git Lab".ci_runner_machines INCLUDING ALL);
CREATE TABLE older.ci_job_artifacts (LIKE "Git Lab".p_ci_job_artifacts INCLUDING ALL);
CREATE VIEW older.environments AS SELECT * FROM "Git Lab".environments;
SELECT * FROM sweep_gitlab.install('older', paused => true);
SELECT name, paused_at IS NOT NULL AS paused, args FROM sweep.job JOIN sweep.job_state ON job = name ORDER BY name;
SELECT name, step FROM sweep.job WHERE name LIKE '%artifacts' ORDER BY name;

-- a GitLab that is split: this database has the tables of the other one, too, locked for writes
SELECT count(*) FROM sweep_gitlab.install('Git Lab', paused => true);
CREATE FUNCTION "Git Lab".gitlab_schema_prevent_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'write protected'; END $$;
DO $$
DECLARE
	of_table text;
BEGIN
	FOREACH of_table IN ARRAY '{environments,p_ci_builds,ci_runner_machines,p_ci_job_artifacts,p_batched_git_ref_updates_deletions}'::text[] LOOP
		EXECUTE format('CREATE TRIGGER locked BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON "Git Lab".%I
			FOR EACH STATEMENT EXECUTE FUNCTION "Git Lab".gitlab_schema_prevent_write()', of_table);
	END LOOP;
END
$$;
SELECT DISTINCT note FROM sweep_gitlab.install('Git Lab', paused => true);
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
CALL sweep.run('environments_auto_stop');
CALL sweep.run('ci_stuck_builds_drop_canceling');
CALL sweep.run('ci_runners_stale_machines_cleanup');
CALL sweep.run('ci_bulk_delete_expired_job_artifacts');
CALL sweep.run('batched_git_ref_updates_cleanup_scheduler');
SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts');
SELECT count(*) FROM sweep_gitlab.uninstall();
SELECT job, table_found, note FROM sweep_gitlab.install('Git Lab');
ALTER TABLE "Git Lab".environments DISABLE TRIGGER locked;
SELECT job, note FROM sweep_gitlab.install('Git Lab') WHERE note = 'created';
DROP FUNCTION "Git Lab".gitlab_schema_prevent_write() CASCADE;
SELECT count(*) FROM sweep_gitlab.install('Git Lab', paused => true);

-- a queue with messages outlives the jobs, and serves the next install
SELECT sweep.send('environments_auto_stop', '{"environment_id": 1}') IS NOT NULL AS sent;
SELECT * FROM sweep_gitlab.uninstall();
SELECT * FROM sweep_gitlab.uninstall();
SELECT * FROM sweep_gitlab.install('Git Lab', paused => true);
SELECT queue, depth FROM sweep.queues ORDER BY queue;
SELECT sweep.drop_queue('environments_auto_stop');
SELECT * FROM sweep_gitlab.uninstall();
SELECT count(*) FROM sweep.job;
SELECT count(*) FROM sweep.queues;

-- a sweep_user installs them for himself and runs them as himself; others see nothing of them
CREATE ROLE regress_sweep_gitlab LOGIN;
CREATE ROLE regress_sweep_stranger LOGIN;
GRANT sweep_user TO regress_sweep_gitlab, regress_sweep_stranger;
GRANT USAGE ON SCHEMA "Git Lab" TO regress_sweep_gitlab;
GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "Git Lab" TO regress_sweep_gitlab;
SET ROLE regress_sweep_gitlab;
SELECT job, note FROM sweep_gitlab.install('Git Lab', paused => true);
SELECT rows FROM sweep_gitlab.environments_auto_stop(ROW(9, NULL, '{"schema": "Git Lab"}', now(), NULL, NULL, NULL, 1)::sweep.batch);
SELECT sweep_gitlab.stop_environment(ARRAY[ROW(1, 'environments_auto_stop', '{"environment_id": 1}', '1', 1, NULL, now(), NULL)]::sweep.message[]);
SELECT sweep_gitlab.keep_environment(1, '2026-01-01Z');
SET ROLE regress_sweep_stranger;
SELECT sweep_gitlab.keep_environment(1, '2026-01-01Z');
SELECT job, note FROM sweep_gitlab.install('Git Lab', paused => true);
\set VERBOSITY sqlstate
SELECT rows FROM sweep_gitlab.environments_auto_stop(ROW(9, NULL, '{"schema": "Git Lab"}', now(), NULL, NULL, NULL, 1)::sweep.batch);
\set VERBOSITY default
SELECT name, note FROM sweep_gitlab.uninstall();
SET ROLE regress_sweep_gitlab;
SELECT name, note FROM sweep_gitlab.uninstall();
RESET ROLE;

DROP SCHEMA "Git Lab", gitlab_partitions_dynamic, older CASCADE;
DROP ROLE regress_sweep_gitlab, regress_sweep_stranger;
