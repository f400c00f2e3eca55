--
-- What must be true after the runs :runs. Prints one line for each number that
-- is not as expected.
--
WITH done AS (
	SELECT * FROM sweep.runs WHERE run_id IN (:runs)
), expected_run (job, outcome) AS (
	VALUES ('environments_auto_stop', '100000 rows, 1000 batches, succeeded, max_batches'),
		('batched_git_ref_updates_cleanup_scheduler', '10000 rows, 100 batches, succeeded, max_rows'),
		('ci_stuck_builds_drop_canceling', '19990 rows, 201 batches, succeeded, drained'),
		('ci_runners_stale_machines_cleanup', '1000 rows, 10 batches, succeeded, max_rows')
), sent AS (
	SELECT q.name AS queue, m.* FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id)
), stopping AS (
	SELECT s.* FROM sent s WHERE s.queue = 'environments_auto_stop'
), cleaning AS (
	SELECT s.* FROM sent s WHERE s.queue = 'batched_git_ref_updates_project_cleanup'
), checks (what, expected, found) AS (
	SELECT e.job, e.outcome, (SELECT string_agg(format('%s rows, %s batches, %s, %s', d.rows, d.batches, d.status,
			d.stop_reason) || coalesce(': ' || d.error, ''), '; ') FROM done d WHERE d.job = e.job)
		FROM expected_run e
	UNION ALL SELECT 'all runs so far', '4', (SELECT count(*) FROM sweep.runs)::text
	UNION ALL SELECT 'runs still in progress', '0', (SELECT count(*) FROM sweep.running)::text
	UNION ALL SELECT 'depth of ' || q.queue, q.depth, (SELECT format('%s, %s ready', d.depth, d.ready)
			FROM sweep.queues d WHERE d.queue = q.queue)
		FROM (VALUES ('environments_auto_stop', '100000, 100000 ready'),
			('batched_git_ref_updates_project_cleanup', '10000, 10000 ready'), ('ci_pipeline_process', '19990, 19990 ready'),
			('ci_build_finished', '19990, 19990 ready')) AS q (queue, depth)
	UNION ALL SELECT 'due environments in their queue exactly once', '100000', (SELECT count(*)
			FROM (SELECT (payload ->> 'environment_id')::bigint AS id, min((payload ->> 'project_id')::bigint) AS project_id
				FROM stopping GROUP BY 1 HAVING count(*) = 1) AS once
			JOIN environments e USING (id, project_id)
			WHERE e.state = 'available' AND e.auto_stop_at < now())::text
	UNION ALL SELECT 'environments that were changed', '0', (SELECT count(*)
			FROM environments WHERE updated_at > created_at + interval '33 days')::text
	UNION ALL SELECT 'projects in their queue, one message each', '10000 from 1 to 10000', (SELECT
			format('%s from %s to %s', count(DISTINCT payload -> 'project_id'), min((payload ->> 'project_id')::bigint),
				max((payload ->> 'project_id')::bigint)) FROM cleaning)
	UNION ALL SELECT 'pending deletions of git refs', '1000000', (SELECT count(*)
			FROM p_batched_git_ref_updates_deletions WHERE status = 1)::text
	UNION ALL SELECT 'detail of the scheduler of ref deletions', '{"total_projects": 10000}', (SELECT detail::text
			FROM done WHERE job = 'batched_git_ref_updates_cleanup_scheduler')
	UNION ALL SELECT 'detail of the deletion of machines',
		'{"status": "success", "batch_counts": [100, 100, 100, 100, 100, 100, 100, 100, 100, 100], "total_deleted": 1000}',
		(SELECT detail::text FROM done WHERE job = 'ci_runners_stale_machines_cleanup')
	UNION ALL SELECT 'stuck builds', '19970 dropped, 20 doomed, 10 as they were', (SELECT
			format('%s dropped, %s doomed, %s as they were', count(*) FILTER (WHERE status = 'failed' AND failure_reason = 3 AND lock_version = 1),
				count(*) FILTER (WHERE status = 'failed' AND failure_reason = 12 AND lock_version = 1),
				count(*) FILTER (WHERE status = 'canceling' AND failure_reason IS NULL AND lock_version = 0))
			FROM p_ci_builds WHERE id % 25 = 0)
	UNION ALL SELECT 'other builds that were changed', '0', (SELECT count(*)
			FROM p_ci_builds WHERE id % 25 <> 0 AND (lock_version <> 0 OR updated_at <> created_at))::text
	UNION ALL SELECT 'rescued and quarantined', '20, 10', (SELECT format('%s, %s', rescued, quarantined)
			FROM done WHERE job = 'ci_stuck_builds_drop_canceling')
	UNION ALL SELECT 'builds in quarantine', '10 with their errors', (SELECT format('%s with their errors', count(*))
			FROM sweep.quarantine WHERE message LIKE format('build %s refuses%%', item -> 'id'))
	UNION ALL SELECT 'pipelines of builds that have failed, one message each', '19990', (SELECT count(DISTINCT (s.payload -> 'pipeline_id', b.id))
			FROM sent s JOIN p_ci_builds b ON b.commit_id = (s.payload ->> 'pipeline_id')::bigint
			WHERE s.queue = 'ci_pipeline_process' AND b.id % 25 = 0 AND b.status = 'failed')::text
	UNION ALL SELECT 'builds that have failed, one message each', '19990', (SELECT count(DISTINCT b.id)
			FROM sent s JOIN p_ci_builds b ON b.id = (s.payload ->> 'build_id')::bigint AND b.project_id = (s.payload ->> 'project_id')::bigint
			WHERE s.queue = 'ci_build_finished' AND b.id % 25 = 0 AND b.status = 'failed')::text
	UNION ALL SELECT 'runner machines', '199000 left, 500 stale, 1000 new', (SELECT
			format('%s left, %s stale, %s new', count(*),
				count(*) FILTER (WHERE created_at <= now() - interval '7 days'
					AND (contacted_at IS NULL OR contacted_at <= now() - interval '7 days')),
				count(*) FILTER (WHERE contacted_at IS NULL AND created_at > now() - interval '7 days'))
			FROM ci_runner_machines)
	UNION ALL SELECT 'machines that the delete triggers reported', '1000', (SELECT count(DISTINCT primary_key_value)
			FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.ci_runner_machines')::text
)
SELECT format('%s: expected %s, found %s', what, expected, coalesce(found, 'nothing'))
FROM checks
WHERE found IS DISTINCT FROM expected;
