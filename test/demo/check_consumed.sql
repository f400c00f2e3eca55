--
-- What must be true after the consumer has emptied its queue. Prints one line
-- for each number that is not as expected.
--
WITH checks (what, expected, found) AS (
	SELECT 'due environments', '100000 stopped', (SELECT format('%s stopped', count(*))
		FROM environments WHERE id % 10 = 0 AND state = 'stopped' AND auto_stop_at IS NULL AND updated_at > created_at + interval '33 days')
	UNION ALL SELECT 'other environments that were changed', '0', (SELECT count(*)
		FROM environments WHERE id % 10 <> 0 AND updated_at > created_at + interval '33 days')::text
	UNION ALL SELECT 'messages in the queue', '0, 0 in flight', (SELECT format('%s, %s in flight', depth, in_flight)
		FROM sweep.queues WHERE queue = 'environments_auto_stop')
	UNION ALL SELECT 'consumer', '100000 handled, 0 failed by 2 workers', (SELECT format('%s handled, %s failed by %s workers', handled, failed, workers)
		FROM sweep.consumers WHERE queue = 'environments_auto_stop')
)
SELECT format('%s: expected %s, found %s', what, expected, coalesce(found, 'nothing'))
FROM checks
WHERE found IS DISTINCT FROM expected;
