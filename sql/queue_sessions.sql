-- Each statement may come from another session, as behind a connection pooler
-- in transaction mode: a lease is known by its name alone.
CREATE FUNCTION await_end(ending_pid int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE EXISTS (SELECT FROM pg_stat_activity WHERE pid = ending_pid) AND clock_timestamp() < statement_timestamp() + interval '1 min' LOOP
		PERFORM pg_stat_clear_snapshot();
	END LOOP;
END
$$;
SELECT sweep.create_queue('q', visibility => '1 hour', backoff => 'none');
SELECT sweep.send_many('q', ARRAY['1', '2', '3', '4']::jsonb[]);
SELECT lease, array_agg(message_id) FILTER (WHERE payload = '1') AS first, array_agg(message_id) FILTER (WHERE payload = '2') AS second,
		array_agg(message_id) FILTER (WHERE payload = '3') AS third
	FROM sweep.claim('q', 3) GROUP BY lease \gset
\c -
SELECT sweep.extend(:'lease', '2 hours');
\c -
SELECT sweep.ack(:'lease', :'first');
\c -
BEGIN;
SELECT sweep.ack(:'lease', :'second');
ROLLBACK;
\c -
SELECT sweep.release(:'lease', :'second');
DISCARD ALL;
SELECT payload, attempts FROM sweep.claim('q', 1);
\c -
SELECT sweep.fail(:'lease', 'broken');
SET client_min_messages = warning;
SELECT sweep.ack(:'lease');
SELECT ready, delayed, in_flight FROM sweep.queues;
\c -
-- a session that ends keeps what it has claimed
SELECT array_agg(payload ORDER BY payload) FROM sweep.claim('q', 10);
\c -
SELECT count(*) FROM sweep.claim('q', 10);
SELECT ready, delayed, in_flight FROM sweep.queues;
-- one that is in the middle of a transaction does not
SELECT sweep.send('q', '5') IS NOT NULL AS sent;
SELECT pg_backend_pid() AS pid \gset
BEGIN;
SELECT payload FROM sweep.claim('q', 1);
\c -
SELECT await_end(:pid);
SELECT payload, attempts FROM sweep.claim('q', 1);

-- a parallel worker has no transaction of its own: functions that were declared to be safe there, and are not, change nothing
\c -
\set SHOW_CONTEXT never
CREATE FUNCTION unsafe_claim() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN (SELECT count(*) FROM sweep.claim('q')); END $$;
CREATE FUNCTION unsafe_send() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN sweep.send('q', '8'); END $$;
CREATE FUNCTION unsafe_ack(l uuid) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN sweep.ack(l); END $$;
CREATE TABLE one_row AS SELECT 1 AS n;
SELECT sweep.send_many('q', '{6,7}');
SELECT lease FROM sweep.claim('q') \gset
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET parallel_leader_participation = off;
SELECT unsafe_claim() FROM one_row WHERE n > 0;
SELECT unsafe_ack(:'lease') FROM one_row WHERE n > 0;
SELECT unsafe_send() FROM one_row WHERE n > 0;
SELECT sweep.ack(:'lease');
SELECT payload, attempts FROM sweep.claim('q', 1);
DROP FUNCTION unsafe_claim(), unsafe_send(), unsafe_ack(uuid);
DROP TABLE one_row;
SELECT sweep.drop_queue('q');
DROP FUNCTION await_end(int);
