--
-- Who may do what. Every grant of the extension is here.
--
DO $$
DECLARE
	wanted pg_catalog.text;
BEGIN
	FOREACH wanted IN ARRAY ARRAY['sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'sweep_client'] LOOP
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = wanted) THEN
			EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted);
		END IF;
	END LOOP;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sweep FROM PUBLIC;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA sweep FROM PUBLIC;
REVOKE ALL ON TYPE sweep.batch, sweep.progress, sweep.message, sweep.run_trigger, sweep.run_status, sweep.run_stop_reason FROM PUBLIC;

GRANT USAGE ON SCHEMA sweep TO sweep_admin, sweep_operator, sweep_user, sweep_monitor, sweep_client;
GRANT USAGE ON TYPE sweep.batch, sweep.progress TO sweep_admin, sweep_user;
GRANT USAGE ON TYPE sweep.message TO sweep_admin, sweep_user, sweep_client;

-- Views, and the functions that they call with the rights of whoever reads them.
GRANT SELECT ON sweep.jobs, sweep.run, sweep.running, sweep.buckets, sweep.queues TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._may_see(text), sweep._running(), sweep._missing_worker(oid), sweep._has_workers(), sweep._seen_queues(), sweep._read_queue(int, bigint, timestamptz, int, int, smallint[], bigint[]), sweep._is_home(bigint, oid), sweep._last_dispatch(text, bigint), sweep._job_problem(sweep.job), sweep._has_redis_url(), sweep._role_problem(text), sweep._role_oid(text), sweep._is_trusted(regprocedure, text), sweep._acts_for(oid, text), sweep._owner_problem(text, regprocedure), sweep._execute_problem(text, regprocedure),
	sweep._resolve(text, text), sweep._function_form(text, text), sweep._function_problem(text, text, text), sweep._next_run(text, text, timestamptz, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The table of jobs shows its own to everybody who may see them.
GRANT SELECT ON sweep.job TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY job_select ON sweep.job FOR SELECT USING (sweep._may_see(run_as));
COMMENT ON POLICY job_select ON sweep.job IS 'one sees the jobs of the roles one is a member of, or all of them as sweep_monitor, sweep_operator or sweep_admin';

-- Jobs: what a function does for whom is checked by the function.
GRANT EXECUTE ON FUNCTION sweep.create_job(text, text, text, text, text, jsonb, text, text, text, int, int, int, bigint,
	interval, interval, text, int, interval, int, text, text, interval, text, jsonb, text, int, text, interval, text, text, regrole, text, boolean), sweep.alter_job(text, jsonb), sweep.drop_job(text)
	TO sweep_admin, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.run(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.preview(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.try_lease(text), sweep.release_lease(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause(text), sweep.resume(text), sweep.start(text, jsonb, interval), sweep.cancel(bigint)
	TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_all(), sweep.resume_all() TO sweep_admin, sweep_operator;
GRANT EXECUTE ON PROCEDURE sweep.wait(bigint, interval) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

GRANT EXECUTE ON FUNCTION sweep.release_quarantine(text, jsonb) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.quarantine TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.quarantine ENABLE ROW LEVEL SECURITY;
CREATE POLICY quarantine_select ON sweep.quarantine FOR SELECT USING (EXISTS (SELECT FROM sweep.job j WHERE j.name = job));
COMMENT ON POLICY quarantine_select ON sweep.quarantine IS 'one sees the items of the jobs one sees';

-- Queues.
GRANT EXECUTE ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text), sweep.drop_queue(text), sweep.purge_queue(text),
	sweep.grant_queue(text, regrole, text[]), sweep.revoke_queue(text, regrole, text[]) TO sweep_admin, sweep_user;
-- What sweep.grant_queue lets an application do, by making its role a member of sweep_client.
GRANT EXECUTE ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb), sweep.send_many(text, jsonb[], text[], interval, int),
	sweep.claim(text, int, interval), sweep.ack(uuid, bigint[]), sweep.fail(uuid, text, bigint[]), sweep.release(uuid, bigint[]),
	sweep.extend(uuid, interval) TO sweep_admin, sweep_user, sweep_client;
GRANT EXECUTE ON FUNCTION sweep.dead(text), sweep.done(text), sweep.redrive(text, jsonb, int, boolean) TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.wait_for_message(text, interval) TO sweep_admin, sweep_user, sweep_client;

-- Consumers in the database, and keys for those outside.
GRANT EXECUTE ON FUNCTION sweep.create_consumer(text, text, int, int, regrole), sweep.drop_consumer(text),
	sweep.begin_once(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_consumer(text), sweep.resume_consumer(text) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.consumers TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._consumer_processes(), sweep._consumer_problem(sweep.consumer), sweep._find_handler(text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- Feature flags are of the whole database.
GRANT SELECT ON sweep.feature_flag TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.feature_enabled(text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.enable_feature(text), sweep.disable_feature(text) TO sweep_admin, sweep_operator;

-- GitLab: everything acts with the rights of its caller, who needs those on the tables as well.
GRANT EXECUTE ON FUNCTION sweep.gitlab_jobs(), sweep.gitlab_key_policy(text), sweep.install_gitlab(text, boolean), sweep.uninstall_gitlab(),
	sweep.gitlab_create_environments_auto_stop(jsonb, boolean), sweep.gitlab_environments_auto_stop(sweep.batch),
	sweep.gitlab_keep_environment(bigint, timestamptz), sweep.gitlab_forget_environments(bigint[]),
	sweep.gitlab_review_kept_environments(sweep.batch), sweep.gitlab_may_have_stop_action(text, bigint), sweep.gitlab_stop_environment(sweep.message),
	sweep.gitlab_check_args(text, jsonb), sweep.gitlab_arg_rules(text, jsonb), sweep.gitlab_arg_fits(jsonb, text, text[]),
	sweep.gitlab_stuck_builds_functions(text), sweep.gitlab_create_stuck_builds_job(text, text, jsonb, jsonb, boolean, text, jsonb),
	sweep.gitlab_create_ci_stuck_jobs(jsonb, boolean), sweep.gitlab_create_ci_stuck_builds_drop_running(jsonb, boolean),
	sweep.gitlab_create_ci_stuck_builds_drop_scheduled(jsonb, boolean), sweep.gitlab_create_ci_stuck_builds_drop_canceling(jsonb, boolean),
	sweep.gitlab_pick_stuck_builds(sweep.batch), sweep.gitlab_drop_stuck_builds(sweep.batch), sweep.gitlab_drop_stuck_builds_in_batch(sweep.batch), sweep.gitlab_drop_stuck_builds_at_once(sweep.batch), sweep.gitlab_follow_builds(text, bigint[], bigint[], bigint[], bigint[]), sweep.gitlab_doom_stuck_build(sweep.batch, jsonb),
	sweep.gitlab_pick_stuck_ci_builds(sweep.batch), sweep.gitlab_drop_stuck_ci_builds(sweep.batch), sweep.gitlab_drop_stuck_ci_builds_in_batch(sweep.batch), sweep.gitlab_drop_stuck_ci_builds_at_once(sweep.batch), sweep.gitlab_doom_stuck_ci_build(sweep.batch, jsonb),
	sweep.gitlab_create_ci_runners_stale_machines_cleanup(jsonb, boolean), sweep.gitlab_ci_runners_stale_machines_cleanup(sweep.batch),
	sweep.gitlab_create_batched_git_ref_updates_cleanup_scheduler(jsonb, boolean),
	sweep.gitlab_batched_git_ref_updates_cleanup_scheduler(sweep.batch),
	sweep.gitlab_create_ci_schedule_bulk_delete_job_artifacts(jsonb, boolean), sweep.gitlab_ci_schedule_bulk_delete_job_artifacts(sweep.batch),
	sweep.gitlab_create_ci_bulk_delete_expired_job_artifacts(jsonb, boolean), sweep.gitlab_artifact_buckets(sweep.batch), sweep.gitlab_artifacts_step(text),
	sweep.gitlab_take_artifacts(oid, int, int, bigint, int), sweep.gitlab_start_reading(oid, int, int, bigint, boolean, boolean),
	sweep.gitlab_list_artifacts(oid, int, int, timestamptz, boolean, int[], bigint[], tid[]), sweep.gitlab_refreshing_projects(sweep.batch),
	sweep.gitlab_ci_bulk_delete_expired_job_artifacts(sweep.batch), sweep.gitlab_ci_bulk_delete_expired_plain_job_artifacts(sweep.batch),
	sweep.gitlab_read_on(sweep.batch, oid, int, int, bigint[], bigint, boolean, boolean, timestamptz), sweep.gitlab_read_plain_on(sweep.batch, oid, int, int, bigint[], bigint, boolean, boolean, timestamptz),
	sweep.gitlab_read_artifacts(sweep.batch, int, int, timestamptz, boolean, bigint[]), sweep.gitlab_read_plain_artifacts(sweep.batch, int, int, timestamptz, boolean, bigint[]),
	sweep.gitlab_delete_artifacts(sweep.batch, int, int, bigint, tid[], bigint[], boolean), sweep.gitlab_delete_plain_artifacts(sweep.batch, int, int, bigint, tid[], bigint[], boolean)
	TO sweep_admin, sweep_user;
GRANT SELECT ON sweep.gitlab_kept_environment TO sweep_admin, sweep_user;
ALTER TABLE sweep.gitlab_kept_environment ENABLE ROW LEVEL SECURITY;
CREATE POLICY kept_environment_select ON sweep.gitlab_kept_environment FOR SELECT USING (EXISTS (SELECT FROM sweep.job j WHERE j.name = job));
COMMENT ON POLICY kept_environment_select ON sweep.gitlab_kept_environment IS 'one sees the environments of the job if one sees the job';

-- The launcher has a scheduler started here once this is committed.
SELECT sweep._wake();
