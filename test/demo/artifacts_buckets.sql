--
-- The buckets, and what the runs that hold them have done so far.
--
\set QUIET on
\pset footer off
SELECT b.bucket, b.state, b.holder, b.pid, to_char(b.since AT TIME ZONE 'UTC', 'HH24:MI:SS.MS') AS since, r.batches, r.rows,
	to_char(r.rows_per_second, 'FM999,990') AS "rows/s"
FROM sweep.buckets b LEFT JOIN sweep.running r ON r.run_id = b.holder
WHERE b.job = 'ci_bulk_delete_expired_job_artifacts'
ORDER BY b.bucket;
