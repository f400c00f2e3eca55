--
-- Sets the sequences after a cutover by logical replication, which replicates rows but not the positions of sequences.
--
-- Uses the primary keys to find the highest numbers of large tables. The messages kept by keep_done have no index on their ids.
CREATE FUNCTION sweep._used_numbers() RETURNS TABLE (sequence text, used bigint)
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT 'sweep.run_live_run_id_seq', greatest((SELECT pg_catalog.max(r.run_id) FROM sweep.run_live r), (SELECT pg_catalog.max(r.run_id) FROM sweep.run_history r))
	UNION ALL
	SELECT 'sweep.run_begun_seq', greatest((SELECT pg_catalog.max(r.begun) FROM sweep.run_live r), (SELECT pg_catalog.max(r.begun) FROM sweep.run_history r),
		(SELECT pg_catalog.max(s.last_begun) FROM sweep.job_state s))
	UNION ALL
	SELECT 'sweep.consumer_consumer_id_seq', (SELECT pg_catalog.max(c.consumer_id) FROM sweep.consumer c)
	UNION ALL
	SELECT 'sweep.queue_queue_id_seq', (SELECT pg_catalog.max(q.queue_id) FROM sweep.queue q)
	UNION ALL
	SELECT 'sweep.queue_message_message_id_seq', greatest(
		(SELECT pg_catalog.max(m.message_id) FROM sweep.queue q CROSS JOIN pg_catalog.generate_series(0, 100, 100) AS delayed, pg_catalog.generate_series(-8, 7) AS priority,
			LATERAL (SELECT o.message_id FROM sweep.queue_message o WHERE o.queue_id = q.queue_id AND o.lane = (delayed + priority)::smallint ORDER BY o.message_id DESC LIMIT 1) AS m),
		(SELECT pg_catalog.max(m.message_id) FROM sweep.queue q, LATERAL (SELECT o.message_id FROM sweep.queue_dead o WHERE o.queue_id = q.queue_id ORDER BY o.message_id DESC LIMIT 1) AS m),
		(SELECT pg_catalog.max(o.message_id) FROM sweep.queue_done o))
$$;
COMMENT ON FUNCTION sweep._used_numbers() IS 'the sequences of the extension, and the highest number of each that is used in a row';

CREATE FUNCTION sweep._set_sequences() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- A sequence that is ahead of its rows, as usual, is not changed.
	PERFORM pg_catalog.setval(u.sequence::pg_catalog.regclass, u.used) FROM sweep._used_numbers() AS u
		WHERE u.used > coalesce(pg_catalog.pg_sequence_last_value(u.sequence::pg_catalog.regclass), 0);
END
$$;
COMMENT ON FUNCTION sweep._set_sequences() IS 'advances the sequences of the extension to the highest numbers that rows have';
