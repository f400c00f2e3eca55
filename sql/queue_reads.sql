-- room: queue
-- What claims, failures and acknowledgements read does not grow with the queue, also where its table was empty when that was planned.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE VIEW pg_temp.fetched AS SELECT pg_stat_get_xact_blocks_fetched('sweep.queue_message'::regclass) AS blocks;
CREATE VIEW pg_temp.read_whole AS SELECT relname, seq_tup_read FROM pg_stat_xact_all_tables WHERE schemaname = 'sweep' AND relname ~ '^queue_' AND seq_tup_read > 10;
-- a queue without keys and one with, each message of which is tried twice
SELECT count(sweep.create_queue(name, max_attempts => 2, backoff => 'none', keep_done => '1 day')) FROM unnest('{reads,reads_keyed}'::text[]) AS name;
VACUUM (ANALYZE) sweep.queue_message, sweep.queue_dead, sweep.queue_done;

-- planned with next to nothing in the tables
SELECT count(sweep.send('reads', '1')) + count(sweep.send('reads_keyed', '1', key => 'key ' || n)) AS sent FROM generate_series(1, 2) AS n;
SELECT sum(sweep.fail(c.lease, 'first', ARRAY[c.message_id])) AS failed FROM sweep.claim('reads', 1) AS c;
SELECT sum(sweep.fail(c.lease, 'second', ARRAY[c.message_id])) AS failed FROM sweep.claim('reads', 1) AS c;
SELECT sum(sweep.ack(c.lease, ARRAY[c.message_id])) AS acked FROM sweep.claim('reads', 1) AS c;
SELECT count(*) AS claimed FROM sweep.claim('reads_keyed', 2);

-- a claim of ten gives ten keys free: of few messages, then of many; the one before it has searched for them
SELECT sweep.send_many('reads_keyed', array_agg(to_jsonb(n)), array_agg('few ' || n)) AS sent FROM generate_series(1, 200) AS n;
SELECT count(*) AS claimed FROM sweep.claim('reads_keyed', 10);
BEGIN;
SELECT blocks AS before FROM pg_temp.fetched \gset
SELECT count(*) AS claimed FROM sweep.claim('reads_keyed', 10);
SELECT blocks - :before AS of_few FROM pg_temp.fetched \gset
COMMIT;
SELECT sweep.send_many('reads_keyed', array_agg(to_jsonb(n)), array_agg('many ' || n)) AS sent FROM generate_series(1, 30000) AS n;
SELECT count(*) AS claimed FROM sweep.claim('reads_keyed', 10);
BEGIN;
SELECT blocks AS before FROM pg_temp.fetched \gset
SELECT count(*) AS claimed FROM sweep.claim('reads_keyed', 10);
SELECT blocks - :before AS of_many FROM pg_temp.fetched \gset
COMMIT;
SELECT :of_few >= 10 AS counted, :of_many < 2 * :of_few AS as_much;

-- to fail a message, to have it among the dead ones, and to keep it when it is done
SELECT sweep.send_many('reads', array_agg(to_jsonb(n))) AS sent FROM generate_series(1, 10) AS n;
BEGIN;
SELECT sum(sweep.fail(c.lease, 'first', ARRAY[c.message_id])) AS failed FROM sweep.claim('reads', 4) AS c;
SELECT sum(sweep.ack(c.lease, ARRAY[c.message_id])) AS acked FROM sweep.claim('reads', 4) AS c;
SELECT * FROM pg_temp.read_whole;
COMMIT;
BEGIN;
SELECT sum(sweep.fail(c.lease, 'second', ARRAY[c.message_id])) AS failed FROM sweep.claim('reads', 10) AS c;
SELECT * FROM pg_temp.read_whole;
COMMIT;
SELECT count(sweep.drop_queue(name)) AS dropped FROM unnest('{reads,reads_keyed}'::text[]) AS name;
