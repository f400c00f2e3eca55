--
-- Builds in three partitions, in pipelines of ten. Those that are due have been
-- canceling for 2 to 30 hours, each in a pipeline of its own; the others have
-- ended, or run, or wait, or have been canceling for minutes. A pipeline belongs
-- to any of 5,000 projects and 2,000 users, a build to any of 1,000 runners, and
-- each has its token.
--
INSERT INTO p_ci_builds (id, partition_id, type, status, created_at, updated_at, started_at, finished_at, project_id, commit_id, stage_id,
	runner_id, user_id, name, ref, token_encrypted, lock_version, retried, processed, allow_failure)
SELECT i, 100 + i * 3 / (:rows + 1), 'Ci::Build',
	CASE WHEN due THEN 'canceling' ELSE (ARRAY['success', 'success', 'success', 'success', 'success', 'failed', 'canceled', 'skipped', 'manual',
		'running', 'pending', 'canceling'])[1 + i % 12] END,
	at, at, at, CASE WHEN NOT due AND i % 12 < 7 THEN at END,
	1 + abs(hashint8(pipeline) % 5000), pipeline, i / 3, 1 + abs(hashint8(i) % 1000), 1 + abs(hashint8(pipeline + 7919) % 2000), 'rspec ' || i % 40, 'main',
	'glcbt-' || md5(i::text), 0, false, true, false
FROM (SELECT i, i / 10 AS pipeline, i % :every = 0 AND i <= :last AS due,
		now() AT TIME ZONE 'UTC' - interval '1 s' * CASE WHEN i % :every = 0 THEN 7200 + (:rows - i) * 100000 / :rows
			ELSE (:rows - i) * 600 / :rows END AS at
	FROM generate_series(1::bigint, :rows) AS i) AS build;
