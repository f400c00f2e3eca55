--
-- What must be true after the artifact deletion. Prints one line for each number
-- that is not as expected.
--
WITH done AS (
	SELECT * FROM sweep.runs WHERE job = 'ci_bulk_delete_expired_job_artifacts'
), checks (what, expected, found) AS (
	VALUES ('shares', '50000 rows, 5 buckets, all succeeded, drained', (SELECT format('%s rows, %s buckets, all %s, %s', sum(rows),
			count(DISTINCT bucket), string_agg(DISTINCT status, ' or '), string_agg(DISTINCT stop_reason, ' or ')) FROM done)),
		('runs of the scheduler', '{"max_buckets": 5, "stale_count": 0, "missing_count": 5, "occupied_count": 0, "available_count": 0}',
			(SELECT string_agg(detail::text, '; ') FROM sweep.runs WHERE job = 'ci_schedule_bulk_delete_job_artifacts')),
		('buckets that are occupied', '0', (SELECT count(*) FROM sweep.buckets WHERE state = 'occupied')::text),
		('artifacts', '150000 left, 0 to delete', (SELECT format('%s left, %s to delete', count(*),
			count(*) FILTER (WHERE expire_at < now() AND file_type <> 3 AND locked = 0)) FROM p_ci_job_artifacts)),
		('files handed to GitLab', '50000, each once', (SELECT format('%s, %s once', count(*), CASE WHEN count(*) = count(DISTINCT store_dir || '/' || file)
			THEN 'each' ELSE 'not each' END) FROM ci_deleted_objects)),
		('their paths', '50000 of jobs that have had an archive', (SELECT format('%s of jobs that have had an archive', count(*)) FROM ci_deleted_objects o
			JOIN p_ci_job_artifacts trace ON trace.job_id = split_part(o.store_dir, '/', 5)::bigint AND trace.file_type = 3
				AND trace.project_id = o.project_id AND o.file = 'file.1')),
		('statistics', '50000 artifacts, 273152000 bytes', (SELECT format('%s artifacts, %s bytes', sum((payload -> 'count')::bigint), sum((payload -> 'bytes')::bigint))
			FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'ci_artifact_statistics'))
)
SELECT format('%s: expected %s, found %s', what, expected, coalesce(found, 'nothing'))
FROM checks
WHERE found IS DISTINCT FROM expected;
