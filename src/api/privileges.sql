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
REVOKE ALL ON TYPE sweep.batch, sweep.progress, sweep.message, sweep._statements, sweep.run_trigger, sweep.run_status, sweep.run_stop_reason FROM PUBLIC;

GRANT USAGE ON SCHEMA sweep TO sweep_admin, sweep_operator, sweep_user, sweep_monitor, sweep_client;
GRANT USAGE ON TYPE sweep.batch, sweep.progress TO sweep_admin, sweep_user;
GRANT USAGE ON TYPE sweep.message TO sweep_admin, sweep_user, sweep_client;

-- Views, and the functions that they call with the rights of whoever reads them.
GRANT SELECT ON sweep.jobs, sweep.runs, sweep.running, sweep.buckets, sweep.queues TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._may_see(text), sweep._running(), sweep._missing_worker(oid, int), sweep._has_workers(), sweep._seen_queues(), sweep._read_queue(int, bigint, timestamptz, int, int, smallint[], bigint[]), sweep._is_home(bigint, oid), sweep._last_dispatch(text, bigint), sweep._job_problem(sweep.job), sweep._has_redis_url(), sweep._role_problem(text), sweep._role_oid(text), sweep._is_trusted(regprocedure, text), sweep._acts_for(oid, text), sweep._owner_problem(text, regprocedure), sweep._execute_problem(text, regprocedure),
	sweep._resolve(text, text), sweep._function_form(text, text), sweep._function_problem(text, text, text), sweep._next_run(text, text, timestamptz, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The table of jobs shows its own to everybody who may see them.
GRANT SELECT ON sweep.job TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY job_select ON sweep.job FOR SELECT USING (sweep._may_see(run_as));
COMMENT ON POLICY job_select ON sweep.job IS 'one sees the jobs of the roles one is a member of, or all of them as sweep_monitor, sweep_operator or sweep_admin';

-- Jobs: what a function does for whom is checked by the function.
GRANT EXECUTE ON FUNCTION sweep.create_job, sweep.alter_job(text, jsonb), sweep.drop_job(text), sweep.import_pg_cron(boolean) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.create_retention, sweep.create_backfill, sweep.create_copy TO sweep_admin, sweep_user;
-- Steps, and what their statements call as the role of the job.
GRANT EXECUTE ON FUNCTION sweep.retention_step(sweep.batch), sweep.backfill_step(sweep.batch), sweep.copy_step(sweep.batch),
	sweep._drop_partition(text, text, text, jsonb), sweep._settle(text, jsonb, bigint, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.run(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.preview(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.try_lock(text), sweep.release_lock(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause(text), sweep.resume(text), sweep.start(text, jsonb, interval, timestamptz), sweep.cancel(bigint)
	TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_all(), sweep.resume_all() TO sweep_admin, sweep_operator;
GRANT EXECUTE ON PROCEDURE sweep.wait(bigint, interval) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

GRANT EXECUTE ON FUNCTION sweep.release_quarantine(text, jsonb) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.quarantine TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.quarantine ENABLE ROW LEVEL SECURITY;
CREATE POLICY quarantine_select ON sweep.quarantine FOR SELECT USING (EXISTS (SELECT FROM sweep.job j WHERE j.name = job));
COMMENT ON POLICY quarantine_select ON sweep.quarantine IS 'one sees the items of the jobs one sees';

-- Queues.
GRANT EXECUTE ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text, boolean), sweep.drop_queue(text), sweep.purge_queue(text),
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
GRANT EXECUTE ON FUNCTION sweep._consumer_processes(), sweep._consumer_problem(sweep.consumer), sweep._find_handlers(text),
	sweep._handler_problem(text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The launcher has a scheduler started here once this is committed.
SELECT sweep._wake();
