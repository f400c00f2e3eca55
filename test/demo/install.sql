--
-- The extensions, the GitLab jobs, and when they will run. One transaction, so
-- that no schedule can fire before they are paused: one of the jobs is due every
-- minute, and the numbers below would depend on the second at which the
-- demonstration was started.
--
\set QUIET on
\pset footer off
BEGIN;
SET client_min_messages = warning;
CREATE EXTENSION pg_sweep_gitlab CASCADE;
RESET client_min_messages;
SELECT count(*) FROM sweep_gitlab.install() \g /dev/null
SELECT v.name AS job, v.schedule, to_char(v.next_run AT TIME ZONE 'UTC', 'HH24:MI "UTC"') AS "next run", j.batch_size AS batch,
	concat_ws(', ', j.max_batches || ' batches', j.max_rows || ' rows',
		to_char(extract(epoch FROM j.stop_after) / 60, 'FM999 "min"')) AS "a run ends after"
FROM sweep.jobs v JOIN sweep.job j USING (name)
ORDER BY name;
SELECT sweep.pause(name) FROM sweep.job \g /dev/null
COMMIT;
