--
-- What fill.sql left must be what the demonstration promises. Prints one line
-- for each number that is not.
--
SELECT format('%s: %s rows expected, found %s', what, expected, coalesce(found::text, 'none'))
FROM (
	SELECT v.*
	FROM (SELECT count(*) AS total, count(*) FILTER (WHERE state = 'available' AND auto_stop_at < now()) AS due
			FROM environments) AS e,
		(SELECT sum(refs) AS total, count(*) AS projects
			FROM (SELECT project_id, count(*) AS refs FROM p_batched_git_ref_updates_deletions
				WHERE status = 1 GROUP BY project_id) AS project) AS d,
		(SELECT count(*) AS total, count(*) FILTER (WHERE created_at <= now() - interval '7 days'
				AND (contacted_at IS NULL OR contacted_at <= now() - interval '7 days')) AS stale
			FROM ci_runner_machines) AS m,
		(SELECT count(*) AS total, count(*) FILTER (WHERE type = 'Ci::Build' AND status = 'canceling'
				AND greatest(created_at, updated_at) < now() AT TIME ZONE 'UTC' - interval '1 hour') AS stuck
			FROM p_ci_builds) AS b,
		(SELECT count(*) AS total, count(*) FILTER (WHERE expire_at < now() AND locked = 0 AND file_type <> 3) AS expired
			FROM p_ci_job_artifacts) AS a,
		LATERAL (VALUES
			('environments', 1000000, e.total),
			('environments that are due', 100000, e.due),
			('pending deletions of git refs', 1000000, d.total),
			('projects with pending deletions', 12000, d.projects),
			('builds', 500000, b.total),
			('stuck builds', 20000, b.stuck),
			('job artifacts', 200000, a.total),
			('expired job artifacts', 50000, a.expired),
			('runner machines', 200000, m.total),
			('stale runner machines', 1500, m.stale)) AS v (what, expected, found)
) AS number
WHERE found IS DISTINCT FROM expected;
