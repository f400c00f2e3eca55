--
-- The state of the runs :runs, one line each: its number, how far it is in
-- fifths (or "ended"), and the same for a reader, at most 100 characters wide.
-- Counters come from sweep.running, that is from shared memory, while the run
-- is in progress, and from its row in sweep.runs once it has ended.
--
SELECT run_id,
	CASE WHEN ended THEN 'ended' ELSE floor(fraction * 5)::text END,
	format('  %s [%s] %s rows %s batches  %s', rpad(job || coalesce(' ' || bucket, ''), 41),
		rpad(repeat('#', floor(fraction * 14)::int), 14, '.'),
		lpad(to_char(rows, 'FM999,990'), 7), lpad(to_char(batches, 'FM9,990'), 5),
		CASE
			WHEN ended AND status = 'succeeded' THEN stop_reason
			WHEN ended THEN status
			WHEN live THEN to_char(rows_per_second, 'FM999,990') || '/s'
			ELSE status
		END)
FROM (
	SELECT r.run_id, r.job, r.bucket, r.status, r.stop_reason, l.rows_per_second,
		r.finished_at IS NOT NULL AS ended, l.run_id IS NOT NULL AS live,
		greatest(r.rows, l.rows) AS rows, greatest(r.batches, l.batches) AS batches,
		CASE
			WHEN r.status = 'succeeded' THEN 1
			WHEN l.run_id IS NULL AND r.batches > 0 THEN 0.99 -- is just being closed
			ELSE coalesce(l.fraction, 0)
		END AS fraction
	FROM sweep.runs r LEFT JOIN sweep.running l USING (run_id)
	WHERE r.run_id IN (:runs)
) AS run
ORDER BY run_id;
