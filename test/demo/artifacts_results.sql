--
-- What the shares did, what GitLab gets, and what is left and why.
--
\set QUIET on
\pset footer off
\echo :bold'What the shares did, side by side (view sweep.runs)':normal
SELECT bucket, lpad(to_char(rows, 'FM999,990'), 7) AS rows, batches, stop_reason AS "ended by",
	to_char(extract(epoch FROM started_at - min(started_at) OVER ()), 'FM990.00 "s"') AS began,
	to_char(extract(epoch FROM finished_at - min(started_at) OVER ()), 'FM990.00 "s"') AS ended
FROM sweep.runs WHERE job = 'ci_bulk_delete_expired_job_artifacts'
ORDER BY bucket, run_id;

\echo :bold'What became of the 200,000 artifacts':normal
SELECT lpad(to_char(number, 'FM999,990'), 7) AS artifacts, what AS "what happened"
FROM (VALUES
	(1, (SELECT count(*) FROM ci_deleted_objects), 'archives, expired: deleted, and their files handed to GitLab (table ci_deleted_objects)'),
	(2, (SELECT count(*) FROM p_ci_job_artifacts WHERE expire_at < now() AND file_type = 3), 'traces: GitLab keeps them'),
	(3, (SELECT count(*) FROM p_ci_job_artifacts WHERE expire_at < now() AND locked = 1), 'metadata: locked with their pipeline'),
	(4, (SELECT count(*) FROM p_ci_job_artifacts WHERE expire_at >= now()), 'reports: not expired'))
	AS outcome (place, number, what)
ORDER BY place;
