-- Args of the GitLab jobs that make no sense: refused by sweep.alter_job, and by a run before
-- it writes anything. None of them looks like a run that had nothing to do.
\set ECHO none
\i gitlab/test/include/gitlab.sql
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 820000, false);
SELECT count(*) FROM sweep_gitlab.install('gitlab', paused => true) WHERE note = 'created';
INSERT INTO gitlab.p_ci_builds (id, partition_id, type, status, created_at, updated_at, project_id, commit_id, lock_version)
	VALUES (1, 100, 'Ci::Build', 'canceling', '2025-12-01', '2025-12-01', 1, 1, 0);
INSERT INTO gitlab.ci_runner_machines (id, runner_id, runner_type, created_at, updated_at, system_xid) VALUES (1, 1, 1, '2025-12-01Z', '2025-12-01Z', 'x');
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at) VALUES (1, 1, 'e', 'e', '2025-12-01Z');
INSERT INTO gitlab.p_ci_job_artifacts (id, job_id, project_id, file_type, locked, partition_id, created_at, updated_at, expire_at, file)
	VALUES (1, 1, 1, 1, 0, 100, '2025-12-01Z', '2025-12-01Z', '2025-12-02Z', 'a.zip');
INSERT INTO gitlab.p_batched_git_ref_updates_deletions (project_id, created_at, updated_at, ref) VALUES (1, now(), now(), 'refs/1');

-- what alter_job says of an arg
CREATE TEMP TABLE attempt (nth int GENERATED ALWAYS AS IDENTITY, job text, arg jsonb, altered text, hint text);
CREATE PROCEDURE pg_temp.try(job text, VARIADIC args jsonb[]) LANGUAGE plpgsql AS $$
DECLARE
	arg jsonb;
	altered text;
	hinted text;
BEGIN
	FOREACH arg IN ARRAY args LOOP
		BEGIN
			PERFORM sweep.alter_job(name, jsonb_build_object('args', j.args || arg)) FROM sweep.job j WHERE name = job;
			RAISE EXCEPTION 'altered';
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS hinted = PG_EXCEPTION_HINT;
			altered := SQLSTATE || ' ' || SQLERRM;
		END;
		INSERT INTO attempt (job, arg, altered, hint) VALUES (job, arg, altered, hinted);
	END LOOP;
END
$$;
CALL pg_temp.try('ci_stuck_builds_drop_canceling', '{"failure_reason": "stuck_or_timeout_failure"}', '{"failure_reason": 99999999999}', '{"failure_reason": 3.5}',
	'{"failure_reason": -1}', '{"failure_reason": null}', '{"doom_reason": "12"}', '{"doom_reason": 1e20}', '{"final_status": "cancelled"}', '{"final_status": "pending"}',
	'{"final_status": null}', '{"status": "cancelling"}', '{"status": ["canceling"]}', '{"created_older_than": null}', '{"updated_older_than": "1 houer"}',
	'{"updated_older_than": "-1 hour"}', '{"updated_older_than": 1}', '{"scheduled_older_than": "1000000 years"}', '{"table": "ci_builds"}', '{"schema": ""}', '{"schema": null}');
CALL pg_temp.try('ci_stuck_jobs', '{"created_older_than": "forever"}');
CALL pg_temp.try('ci_runners_stale_machines_cleanup', '{"stale_after": null}', '{"stale_after": "7 dayz"}', '{"stale_after": "-7 days"}', '{"stale_after": {}}', '{"schema": 5}');
CALL pg_temp.try('environments_auto_stop', '{"stop_action": 7}', '{"stop_action": ""}', '{"schema": null}');
CALL pg_temp.try('ci_bulk_delete_expired_job_artifacts', '{"refresh_states": null}', '{"refresh_states": 2}', '{"refresh_states": [2, "running"]}', '{"buckets": 0}', '{"buckets_high": "ten"}',
	'{"table": "ci_job_artifacts"}');
CALL pg_temp.try('batched_git_ref_updates_cleanup_scheduler', '{"table": "git_refs"}', '{"table": null}');
SELECT job, arg, altered, hint FROM attempt ORDER BY nth;
-- the same in the args of a run
SELECT clock_timestamp() AS began \gset
SELECT format('CALL sweep.run(%L, %L)', job, '{"as_of": "2026-01-01T00:00:00Z"}'::jsonb || arg) FROM attempt WHERE job NOT LIKE '%artifacts' ORDER BY nth \gexec
-- a divided job would start its other shares, so it is only its functions here
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
SELECT format('SELECT %s(ROW(100, NULL, %L, ''2026-01-01T00:00:00Z'', 0, 1, NULL, 1)::sweep.batch)', f, j.args || a.arg)
	FROM attempt a JOIN sweep.job j ON j.name = a.job,
		LATERAL (SELECT CASE WHEN a.arg ? 'buckets' THEN j.buckets_function ELSE j.step END) AS f (f)
	WHERE job LIKE '%artifacts' ORDER BY nth \gexec
SELECT status, count(*), min(rows), max(rows), sum(rescued + quarantined) AS doomed FROM sweep.runs WHERE started_at >= :'began' GROUP BY 1;
-- nothing was written
SELECT status, failure_reason, lock_version FROM gitlab.p_ci_builds;
SELECT (SELECT count(*) FROM gitlab.ci_runner_machines) AS machines, (SELECT count(*) FROM gitlab.p_ci_job_artifacts) AS artifacts,
	(SELECT count(*) FROM sweep.queue_message) AS messages, (SELECT count(*) FROM sweep.quarantine) AS quarantined;
-- (zero by months of 30 days, and in March two days ahead)
SELECT sweep.alter_job('ci_runners_stale_machines_cleanup', '{"args": {"schema": "gitlab", "stale_after": "1 mon -30 days"}}');
SELECT sweep.alter_job('ci_runners_stale_machines_cleanup', '{"args": {"schema": "gitlab", "stale_after": "1 mon 00:00-30 days"}}');

-- what is missing, for args are replaced as a whole
SELECT sweep.alter_job('ci_runners_stale_machines_cleanup', '{"args": {"schema": "gitlab"}}');
SELECT sweep.alter_job('ci_stuck_jobs', jsonb_build_object('args', args - 'created_older_than' - 'updated_older_than')) FROM sweep.job WHERE name = 'ci_stuck_jobs';
SELECT sweep.alter_job('ci_stuck_jobs', '{"args": {"schema": "gitlab"}}');
-- what is altered otherwise is not looked at, nor are jobs of other kinds
SELECT sweep.alter_job('ci_runners_stale_machines_cleanup', '{"batch_size": 50}');
CREATE FUNCTION public.regress_args_step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS 'SELECT ROW(0, NULL, NULL)::sweep.progress';
SELECT sweep.create_job('regress args', step => 'public.regress_args_step', args => '{"schema": null}');
SELECT sweep.alter_job('regress args', '{"args": {"stale_after": null}}');
SELECT sweep.drop_job('regress args');
DROP FUNCTION public.regress_args_step;

-- what makes sense
SELECT sweep.alter_job('ci_stuck_builds_drop_canceling', jsonb_build_object('args',
	args || '{"final_status": "canceled", "created_older_than": "30 min", "updated_older_than": "P0Y", "failure_reason": 2147483647}')) FROM sweep.job WHERE name = 'ci_stuck_builds_drop_canceling';
SELECT sweep.alter_job('ci_bulk_delete_expired_job_artifacts', jsonb_build_object('args', args || '{"refresh_states": []}')) FROM sweep.job WHERE name = 'ci_bulk_delete_expired_job_artifacts';
SELECT sweep.alter_job('ci_runners_stale_machines_cleanup', '{"args": {"schema": "gitlab", "stale_after": "1 mon 00:00:01"}}');
-- a column of names, and a smaller one
SELECT name, count(*) FROM sweep.job, LATERAL (SELECT sweep_gitlab.check_args(step, args)) AS c WHERE name LIKE 'ci\_stuck%' GROUP BY 1 ORDER BY 1;
ALTER TABLE gitlab.p_ci_builds ALTER failure_reason TYPE smallint;
SELECT sweep_gitlab.check_args(step, args) FROM sweep.job WHERE name = 'ci_stuck_builds_drop_canceling';
ALTER TABLE gitlab.p_ci_builds ALTER failure_reason TYPE text;
SELECT sweep_gitlab.check_args(step, args || '{"failure_reason": null}') IS NOT NULL AS fits FROM sweep.job WHERE name = 'ci_stuck_builds_drop_canceling';
SELECT sweep_gitlab.check_args(step, args || '{"failure_reason_name": 3}') FROM sweep.job WHERE name = 'ci_stuck_builds_drop_canceling';
-- a table that is not there (yet) is for the run to find out
SELECT sweep.alter_job(name, jsonb_build_object('args', args || '{"schema": "elsewhere"}')) FROM sweep.job WHERE name = 'ci_stuck_builds_drop_canceling';
SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts');
SELECT count(*) FROM sweep_gitlab.uninstall();
DROP SCHEMA gitlab, gitlab_partitions_dynamic CASCADE;
