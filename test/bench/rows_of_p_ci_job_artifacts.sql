--
-- Artifacts of three partitions, three of each job. Those that are due expired
-- within the last 23 days, in an order that has nothing to do with that of the
-- table; the others will.
--
INSERT INTO p_ci_job_artifacts (id, project_id, job_id, file_type, size, created_at, updated_at, expire_at, file, file_store, file_format,
	file_location, locked, partition_id)
SELECT i, 1 + hashint8(job) & 4095, job, (ARRAY[1, 2, 4])[1 + i % 3], 1000 + i % 5000, now() - interval '60 days', now() - interval '60 days',
	now() + interval '1 s' * CASE WHEN due THEN -1 - i * 7919 % 2000003 ELSE 86400 + i * 7919 % 2000003 END,
	'artifacts.zip', 2, 2, 2, 0, 100 + i * 3 / (:rows + 1)
FROM (SELECT i, 1 + (i - 1) / 3 AS job, i % :every = 0 AND i <= :last AS due FROM generate_series(1::bigint, :rows) AS i) AS artifact;
SELECT setval('ci_job_artifacts_id_seq', :rows) \g /dev/null
