-- Queues: priorities, delays, headers; what sweep.queues says of them.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
RESET client_min_messages;
\set SHOW_CONTEXT never
SELECT sweep.create_queue('post');

-- higher priorities first; within one, in the order of sending
SELECT sweep.send('post', '"normal 1"') IS NOT NULL AS sent;
SELECT sweep.send('post', '"low"', priority => -8) IS NOT NULL AS sent;
SELECT sweep.send('post', '"high"', priority => 7) IS NOT NULL AS sent;
SELECT sweep.send('post', '"normal 2"', headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}') IS NOT NULL AS sent;
SELECT sweep.send_many('post', ARRAY['"above 1"', '"above 2"']::jsonb[], priority => 1);
SELECT sweep.send('post', '0', priority => 8);
SELECT sweep.send_many('post', '{0}', priority => -9);
SELECT payload, headers FROM sweep.claim('post', 3);
-- a more urgent one overtakes what the queue had ready for the next claim
SELECT sweep.send('post', '"urgent"', priority => 2) IS NOT NULL AS sent;
SELECT payload, headers FROM sweep.claim('post', 10);

-- a delayed message is not there before it is due
SELECT sweep.purge_queue('post');
SELECT sweep.send('post', '"later"', delay => '1 h', priority => 7) IS NOT NULL AS sent;
SELECT sweep.send('post', '"now"') IS NOT NULL AS sent;
SELECT sweep.send_many('post', ARRAY['"later 1"', '"later 2"', '"later 3"']::jsonb[], delay => '1 month');
SELECT sweep.send_many('post', ARRAY['"later 4"', '"later 5"']::jsonb[], ARRAY['k', NULL], delay => '1 h');
SELECT sweep.send('post', '0', delay => '-1 s');
SELECT count(*), count(DISTINCT due_at), bool_and(due_at > now() + interval '59 min') FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id)
	WHERE q.name = 'post' AND due_at IS NOT NULL;
-- its key waits with it
SELECT sweep.send('post', '"second k"', 'k');
SELECT depth, ready, delayed, in_flight FROM sweep.queues WHERE queue = 'post';
SELECT payload FROM sweep.claim('post', 10);
-- once it is due it is ready, in the order of due times, before others of its priority
SELECT sweep.send('post', '"new"') IS NOT NULL AS sent;
SELECT sweep.send('post', '"soon 2"', delay => '2 ms') IS NOT NULL AS sent;
SELECT sweep.send('post', '"soon 1"', delay => '1 ms') IS NOT NULL AS sent;
SELECT sweep.send('post', '"soon low"', delay => '1 ms', priority => -1) IS NOT NULL AS sent;
DO $$ BEGIN WHILE (SELECT ready FROM sweep.queues WHERE queue = 'post') < 4 AND clock_timestamp() < now() + interval '1 min' LOOP END LOOP; END $$;
SELECT depth, ready, delayed, in_flight FROM sweep.queues WHERE queue = 'post';
SELECT payload = '"soon low"' AS low, payload FROM sweep.claim('post', 10) ORDER BY 1, payload;
SELECT depth, ready, delayed, in_flight FROM sweep.queues WHERE queue = 'post';

-- counters: a rollback leaves none behind, a rolled back savepoint neither
BEGIN;
SELECT sweep.send_many('post', ARRAY['1', '2']::jsonb[]);
SAVEPOINT s;
SELECT sweep.send_many('post', ARRAY['3', '4', '5']::jsonb[]);
ROLLBACK TO s;
SELECT sweep.send('post', '6', delay => '1 h') IS NOT NULL AS sent;
SAVEPOINT s2;
SELECT sweep.send('post', '7') IS NOT NULL AS sent;
RELEASE s2;
COMMIT;
SELECT depth, ready, delayed, in_flight, oldest_age < interval '1 min' AS young FROM sweep.queues WHERE queue = 'post';
SELECT count(*) FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'post';
-- statements of others on the table are noticed, and counted
DELETE FROM sweep.queue_message WHERE payload = '1';
SELECT depth, ready FROM sweep.queues WHERE queue = 'post';
BEGIN;
DELETE FROM sweep.queue_message;
SELECT payload FROM sweep.claim('post', 10);
ROLLBACK;
SELECT payload FROM sweep.claim('post', 10);
TRUNCATE sweep.queue_message;
SELECT depth, ready, delayed FROM sweep.queues WHERE queue = 'post';
INSERT INTO sweep.queue_message (queue_id, payload) SELECT queue_id, '"by hand"' FROM sweep.queue WHERE name = 'post';
SELECT payload FROM sweep.claim('post', 10);
-- counting within a transaction: what it does itself is added when it commits
BEGIN;
INSERT INTO sweep.queue_message (queue_id, payload) SELECT queue_id, 'null' FROM sweep.queue WHERE name = 'post';
COMMIT;
BEGIN;
SELECT sweep.send('post', '"before"') IS NOT NULL AS sent;
SELECT sweep.ack(lease) FROM sweep.claim('post');
SELECT depth FROM sweep.queues WHERE queue = 'post';
SELECT sweep.send('post', '"after"') IS NOT NULL AS sent;
SAVEPOINT s;
SELECT sweep.send('post', '"undone"') IS NOT NULL AS sent;
ROLLBACK TO s;
COMMIT;
SELECT depth, ready, in_flight, (SELECT count(*) FROM sweep.queue_message m WHERE m.queue_id = q.queue_id) AS rows
	FROM sweep.queues JOIN sweep.queue q ON q.name = queue WHERE queue = 'post';
SELECT payload FROM sweep.claim('post', 10);
-- what is sent in a transaction can be claimed when that has committed
BEGIN;
SELECT sweep.send('post', '"own"') IS NOT NULL AS sent;
SELECT payload FROM sweep.claim('post', 10);
COMMIT;
SELECT payload FROM sweep.claim('post', 10);
-- neither sending nor claiming depends on the snapshot of the transaction
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM sweep.queue;
SELECT sweep.send('post', '"unkeyed"') IS NOT NULL AS sent;
COMMIT;
-- a read-only transaction can do neither
BEGIN READ ONLY;
SELECT sweep.send('post', '1');
ROLLBACK;
BEGIN READ ONLY;
SELECT sweep.claim('post');
ROLLBACK;
BEGIN READ ONLY;
SELECT sweep.ack(NULL);
ROLLBACK;

-- purging takes what is claimed and what is delayed
SELECT sweep.send('post', '"delayed"', delay => '1 h') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('post') LIMIT 1 \gset
SELECT sweep.purge_queue('post') > 1 AS several;
\set VERBOSITY sqlstate
SELECT sweep.ack(:'lease');
\set VERBOSITY default
SELECT depth, ready, delayed, in_flight, oldest_age FROM sweep.queues WHERE queue = 'post';
SELECT sweep.send('post', '"after"') IS NOT NULL AS sent;
SELECT payload FROM sweep.claim('post', 10);
SELECT sweep.drop_queue('post');

-- one that falls due does not wait for all that was found before
SELECT sweep.create_queue('post');
SELECT sweep.send_many('post', array_fill('"normal"'::jsonb, ARRAY[300]));
SELECT payload FROM sweep.claim('post');
SELECT sweep.send('post', '"urgent"', delay => '20 ms', priority => 1) IS NOT NULL AS sent;
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.queue_message WHERE due_at > clock_timestamp()) LOOP PERFORM clock_timestamp(); END LOOP; END $$;
SELECT payload FROM sweep.claim('post');
SELECT payload FROM sweep.claim('post');
SELECT sweep.drop_queue('post');

-- a time as long as there is none counts as a thousand years, wherever it is given
SELECT sweep.create_queue('post', visibility => '178000000 years', backoff => '178000000 years', keep_done => '178000000 years');
SELECT sweep.send('post', '"later"', delay => '178000000 years') IS NOT NULL AS sent;
SELECT sweep.send_many('post', '{"\"1\"", "\"2\"", "\"3\"", "\"4\""}');
CREATE TEMP TABLE claimed OF sweep.message;
INSERT INTO claimed SELECT * FROM sweep.claim('post');
INSERT INTO claimed SELECT * FROM sweep.claim('post', 1, '178000000 years');
INSERT INTO claimed SELECT * FROM sweep.claim('post', 1, '1 h');
SELECT payload, sweep.extend(lease, '178000000 years') FROM claimed WHERE payload = '"3"';
SELECT payload FROM sweep.claim('post', 10, '-178000000 years');
SELECT payload FROM sweep.claim('post', 10);
SELECT payload, sweep.fail(lease) FROM claimed WHERE payload = '"1"';
SELECT payload, sweep.ack(lease) FROM claimed WHERE payload = '"2"';
SELECT payload, now() + interval '1000 years' - due_at < interval '1 year' AS in_a_thousand_years
	FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'post' AND due_at IS NOT NULL ORDER BY message_id;
SELECT payload, now() < done_at + interval '1 h' AS kept FROM sweep.queue_done;
SELECT sweep.drop_queue('post');
-- and so does what sidekiq comes to after very many attempts
SELECT sweep.create_queue('post', max_attempts => 32767);
SELECT sweep.send('post', '"1"') IS NOT NULL AS sent;
UPDATE sweep.queue_message SET attempts = 32000;
SELECT attempts, sweep.fail(lease) FROM sweep.claim('post');
SELECT now() + interval '1000 years' - due_at < interval '1 year' AS in_a_thousand_years
	FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'post';
SELECT sweep.drop_queue('post');
DROP TABLE claimed;

-- number 41: more of one due time than a search takes, as only statements of others make them
SELECT sweep.create_queue('post');
INSERT INTO sweep.queue_message (queue_id, lane, due_at, payload)
	SELECT queue_id, 100, '2000-01-01 00:00:00Z', to_jsonb(i) FROM sweep.queue, generate_series(1, 1000) AS i WHERE name = 'post';
SET statement_timeout = '1 min';
SELECT count(*) FROM sweep.claim('post', 300);
SELECT count(*), count(DISTINCT payload) FROM sweep.claim('post', 1000);
SELECT count(*) FROM sweep.claim('post');
RESET statement_timeout;
SELECT sweep.drop_queue('post');
