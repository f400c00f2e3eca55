--
-- 200,000 artifacts of 50,000 jobs in three partitions: of each job an archive,
-- a trace, the metadata and a report. The archives have expired within the last
-- 90 days, 50,000 of them; so have the traces, which GitLab keeps, and the
-- metadata, which are locked with the pipeline; the reports expire later.
--
INSERT INTO p_ci_job_artifacts (id, project_id, job_id, file_type, size, created_at, updated_at, expire_at, file, file_store, file_format,
	file_location, locked, partition_id)
SELECT i, 1 + hashint8(job) & 2047, job, file_type, 1000 + i % 9000, created_at, created_at,
	now() + interval '1 s' * CASE WHEN file_type = 4 THEN 86400 + i ELSE -1 - i * 7919 % 7776000 END,
	'file.' || file_type, 2, 2, 2, (file_type = 2)::int, 100 + job * 3 / 50001
FROM (SELECT i, 1 + (i - 1) / 4 AS job, (ARRAY[1, 3, 2, 4])[1 + i % 4] AS file_type, now() - interval '120 days' AS created_at
	FROM generate_series(1::bigint, 200000) AS i) AS artifact;
SELECT setval('ci_job_artifacts_id_seq', 200000) \g /dev/null
