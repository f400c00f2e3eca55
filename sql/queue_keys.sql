-- Queues: how long a key keeps other messages with that key away, and who may use a queue.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
RESET client_min_messages;
\set SHOW_CONTEXT never

-- while it is queued: until it is claimed for the first time
SELECT sweep.create_queue('keyed');
SELECT sweep.send('keyed', '1', 'k') IS NOT NULL AS sent, sweep.send('keyed', '2', 'k') IS NOT NULL AS sent_again;
SELECT lease FROM sweep.claim('keyed') \gset
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent, sweep.send('keyed', '4', 'k') IS NOT NULL AS sent_again;
SELECT payload, key FROM sweep.claim('keyed');
-- one that is released waits again
SELECT sweep.release(:'lease');
SELECT sweep.send('keyed', '5', 'k') IS NOT NULL AS sent, sweep.send_many('keyed', ARRAY['5', '"other"']::jsonb[], ARRAY['k', 'other']);
SELECT payload, key, attempts FROM sweep.claim('keyed', 10);
SELECT sweep.send('keyed', '5', 'k') IS NOT NULL AS sent;
SELECT payload, key, attempts FROM sweep.claim('keyed', 10);
-- a claim that is rolled back leaves the key taken
SELECT sweep.send('keyed', '6', 'r') IS NOT NULL AS sent;
BEGIN;
SELECT payload FROM sweep.claim('keyed');
ROLLBACK;
SELECT sweep.send('keyed', '7', 'r') IS NOT NULL AS sent;
SELECT payload, attempts FROM sweep.claim('keyed', 10);
SELECT sweep.drop_queue('keyed');

-- one that failed and waits for its retry has its key again, each time, until it is claimed
SELECT sweep.create_queue('keyed', backoff => 'none', max_attempts => 3);
SELECT sweep.send('keyed', '1', 'k') IS NOT NULL AS sent;
SELECT sweep.fail(lease, 'x'), attempts FROM sweep.claim('keyed');
SELECT sweep.send('keyed', '2', 'k') IS NOT NULL AS sent;
SELECT sweep.fail(lease, 'x'), attempts FROM sweep.claim('keyed');
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent;
SELECT payload, attempts, lease FROM sweep.claim('keyed') \gset
SELECT :'payload' AS payload, :attempts AS attempts, sweep.send('keyed', '4', 'k') IS NOT NULL AS sent;
-- a dead one has not; it is redriven when no other one waits, and then has its key
SELECT sweep.fail(:'lease', 'x');
SELECT sweep.redrive('keyed');
SELECT payload, lease FROM sweep.claim('keyed') \gset
SELECT :'payload' AS payload, sweep.redrive('keyed'), sweep.send('keyed', '5', 'k') IS NOT NULL AS sent;
-- when another one was sent meanwhile, it has the key: both wait, and nothing else is queued
SELECT payload, lease AS other FROM sweep.claim('keyed') \gset
SELECT :'payload' AS payload, sweep.send('keyed', '6', 'k') IS NOT NULL AS sent;
SELECT sweep.fail(:'lease', 'x'), sweep.fail(:'other', 'x');
SELECT sweep.send('keyed', '7', 'k') IS NOT NULL AS sent;
SELECT m.payload, m.attempts, m.claimed FROM sweep.queue_message m WHERE m.key = 'k' ORDER BY m.message_id;
SELECT depth, ready, delayed, in_flight, dead FROM sweep.queues WHERE queue = 'keyed';
SELECT payload, attempts FROM sweep.claim('keyed', 10) ORDER BY message_id;
SELECT sweep.drop_queue('keyed');
-- with all its columns, large and absent ones, and in the transaction of the claim
SELECT sweep.create_queue('keyed', backoff => 'none');
SELECT sweep.send('keyed', to_jsonb(string_agg(md5(i::text), '')), 'k', priority => 3, headers => '{"h": 1}') IS NOT NULL AS sent FROM generate_series(1, 1000) AS i;
BEGIN;
SELECT sweep.fail(lease) FROM sweep.claim('keyed');
SELECT sweep.send('keyed', '2', 'k') IS NOT NULL AS sent, (SELECT count(*) FROM sweep.claim('keyed')) AS claimed;
COMMIT;
SELECT sweep.send('keyed', '2', 'k') IS NOT NULL AS sent;
SELECT sweep.fail(lease, 'x'), md5(payload::text) = (SELECT md5(to_jsonb(string_agg(md5(i::text), ''))::text) FROM generate_series(1, 1000) AS i) AS same,
	key, headers, attempts FROM sweep.claim('keyed');
SELECT lane, attempts, claimed, key, headers, error, sent_at < due_at AS due, jsonb_typeof(payload) FROM sweep.queue_message WHERE key = 'k';
-- rolled back, also to a savepoint: it is held, and its key is free
BEGIN;
SAVEPOINT s;
SELECT lease FROM sweep.claim('keyed') \gset
SAVEPOINT t;
SELECT sweep.fail(:'lease', 'y');
ROLLBACK TO t;
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent;
ROLLBACK TO t;
SELECT sweep.fail(:'lease', 'z');
RELEASE t;
COMMIT;
SELECT attempts, claimed, error FROM sweep.queue_message WHERE key = 'k';
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent;
SELECT sweep.drop_queue('keyed');
-- one whose lease has run out waits again; whoever had it is too late then
SELECT sweep.create_queue('keyed', visibility => '1 us');
SELECT sweep.send('keyed', '1', 'k') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('keyed') \gset
SELECT sweep.send('keyed', '2', 'k') IS NOT NULL AS sent;
SET client_min_messages = warning;
SELECT sweep.ack(:'lease');
RESET client_min_messages;
SELECT sweep.ack(lease) FROM sweep.claim('keyed', visibility => '1 h');
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent;
SELECT sweep.drop_queue('keyed');
-- a row that was moved meanwhile, and one that is gone
SELECT sweep.create_queue('keyed');
SELECT sweep.send_many('keyed', ARRAY['1', '2']::jsonb[], ARRAY['k', 'l']);
SELECT lease FROM sweep.claim('keyed', 2) LIMIT 1 \gset
VACUUM FULL sweep.queue_message;
SELECT sweep.release(:'lease');
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent;
DELETE FROM sweep.queue_message WHERE key = 'k';
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent, sweep.send('keyed', '3', 'l') IS NOT NULL AS sent_of_other;
SELECT sweep.drop_queue('keyed');

-- many at once: of each key the first, unless one is waiting; without a key all; delivered in the order of the arguments
SELECT sweep.create_queue('keyed');
SELECT sweep.send('keyed', '0', 'k 150') IS NOT NULL AS sent;
SELECT sweep.send_many('keyed', array_agg(to_jsonb(i) ORDER BY i), array_agg(CASE WHEN i % 10 > 0 THEN 'k ' || 301 - i % 300 END ORDER BY i))
	FROM generate_series(1, 600) AS i;
SELECT depth, ready FROM sweep.queues WHERE queue = 'keyed';
SELECT count(*), count(key), count(DISTINCT key), count(*) FILTER (WHERE key IS NOT NULL AND n > 300) AS late, bool_and(n > before) AS ordered
	FROM (SELECT payload::int AS n, key, lag(payload::int) OVER (ORDER BY nth) AS before FROM sweep.claim('keyed', 1000) WITH ORDINALITY AS c (id, q, payload, key, a, h, s, l, nth)) AS claimed;
-- none of them: nothing is written
SELECT sweep.send_many('keyed', ARRAY['1', '2']::jsonb[], ARRAY['a', 'aa']), sweep.send_many('keyed', ARRAY['3', '4']::jsonb[], ARRAY['aa', 'a']);
-- large ones, also as an argument that is in a table elsewhere
CREATE TABLE large AS SELECT to_jsonb(string_agg(md5(i::text), '')) AS payload, repeat('key', 300) AS key FROM generate_series(1, 10000) AS i;
SELECT sweep.send('keyed', payload, key) IS NOT NULL AS sent, sweep.send_many('keyed', ARRAY[payload, payload], ARRAY[key, key || 's']) FROM large;
SELECT count(*), count(DISTINCT c.key) FROM sweep.claim('keyed', 1000) AS c JOIN large USING (payload);
DROP TABLE large;
\set VERBOSITY terse
SELECT sweep.send('keyed', '1', string_agg(md5(i::text), '')) FROM generate_series(1, 200) AS i;
\set VERBOSITY default
SELECT sweep.drop_queue('keyed');

-- while it is queued or running: until it is acknowledged or dead
SELECT sweep.create_queue('keyed', key_policy => 'while_queued_or_running', max_attempts => 2, backoff => 'none');
SELECT sweep.send('keyed', '1', 'k') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('keyed') \gset
SELECT sweep.send('keyed', '2', 'k') IS NOT NULL AS sent;
SELECT sweep.fail(:'lease', 'x');
SELECT sweep.send('keyed', '2', 'k') IS NOT NULL AS sent;
SELECT attempts, lease FROM sweep.claim('keyed') \gset
SELECT :attempts AS attempts, sweep.fail(:'lease', 'x');
SELECT sweep.send('keyed', '3', 'k') IS NOT NULL AS sent;
-- a dead one is not redriven while its key is taken
SELECT sweep.redrive('keyed', dry_run => true), sweep.redrive('keyed');
SELECT sweep.ack(lease) FROM sweep.claim('keyed');
SELECT sweep.redrive('keyed', dry_run => true), sweep.redrive('keyed');
SELECT sweep.send('keyed', '4', 'k') IS NOT NULL AS sent;
SELECT payload FROM sweep.claim('keyed', 10);
SELECT sweep.drop_queue('keyed');

-- nor while a message waits again that was given back, which has its key without saying so in its row
SELECT sweep.create_queue('keyed', max_attempts => 1);
SELECT sweep.send('keyed', '"dead"', 'k') IS NOT NULL AS sent;
SELECT sweep.fail(lease, 'x') FROM sweep.claim('keyed');
SELECT sweep.send('keyed', '"given back"', 'k') IS NOT NULL AS sent;
SELECT sweep.release(lease) FROM sweep.claim('keyed');
SELECT sweep.redrive('keyed', dry_run => true), sweep.redrive('keyed'), sweep.send('keyed', '1', 'k') IS NOT NULL AS sent;
SELECT payload, lease FROM sweep.claim('keyed', 10) \gset
SELECT :'payload' AS payload, sweep.redrive('keyed'), sweep.ack(:'lease');
SELECT payload FROM sweep.claim('keyed', 10);
SELECT sweep.drop_queue('keyed');

-- once more if it is running: the second one waits for the end of the first
SELECT sweep.create_queue('keyed', key_policy => 'once_more_if_running', backoff => '1 h');
SELECT sweep.send('keyed', '1', 'k') IS NOT NULL AS sent;
SELECT sweep.send('keyed', '"other"', 'o') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('keyed') \gset
SELECT sweep.send('keyed', '2', 'k') IS NOT NULL AS sent, sweep.send('keyed', '3', 'k') IS NOT NULL AS sent_again;
SELECT payload FROM sweep.claim('keyed', 10);
SELECT count(*) FROM sweep.claim('keyed', 10);
SELECT depth, ready, in_flight FROM sweep.queues WHERE queue = 'keyed';
SELECT sweep.ack(:'lease');
SELECT payload, attempts, lease FROM sweep.claim('keyed', 10) \gset
SELECT :'payload' AS payload, :attempts AS attempts;
SELECT sweep.send('keyed', '4', 'k') IS NOT NULL AS sent;
SELECT count(*) FROM sweep.claim('keyed', 10);
-- given back, it is still the first
SELECT sweep.release(:'lease');
SELECT payload, lease FROM sweep.claim('keyed', 10) \gset
SELECT :'payload' AS payload;
SELECT sweep.fail(:'lease', 'x');
SELECT payload, lease FROM sweep.claim('keyed', 10) \gset
SELECT :'payload' AS payload;
-- what failed takes its key back, unless there is another one
SELECT sweep.fail(:'lease', 'x');
SELECT sweep.send('keyed', '5', 'k') IS NOT NULL AS sent;
SELECT m.payload, m.attempts, m.claimed FROM sweep.queue_message m WHERE m.key = 'k' ORDER BY m.message_id;
-- of several that wait for one, the oldest comes next
SELECT sweep.purge_queue('keyed');
SELECT sweep.send('keyed', '0', 'k') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('keyed') \gset
INSERT INTO sweep.queue_message (queue_id, key, claimed, payload) SELECT queue_id, 'k', true, to_jsonb(n) FROM sweep.queue, generate_series(1, 3) AS n WHERE name = 'keyed';
SELECT count(*) FROM sweep.claim('keyed', 10);
SELECT sweep.ack(:'lease');
SELECT payload, lease FROM sweep.claim('keyed', 10) \gset
SELECT :'payload' AS payload, sweep.ack(:'lease');
SELECT payload, lease FROM sweep.claim('keyed', 10) \gset
SELECT :'payload' AS payload, sweep.ack(:'lease');
SELECT payload FROM sweep.claim('keyed', 10);
SELECT sweep.drop_queue('keyed');

-- granted: to send, to consume; taken back; by the owner only
CREATE ROLE regress_sweep_q_owner;
CREATE ROLE regress_sweep_q_sender;
CREATE ROLE regress_sweep_q_consumer;
CREATE ROLE regress_sweep_q_operator;
GRANT sweep_user TO regress_sweep_q_owner, regress_sweep_q_sender, regress_sweep_q_consumer;
GRANT sweep_operator TO regress_sweep_q_operator;
SET ROLE regress_sweep_q_owner;
SELECT sweep.create_queue('shared', max_attempts => 1);
SELECT sweep.grant_queue('shared', 'regress_sweep_q_sender', '{send}');
SELECT sweep.grant_queue('shared', 'regress_sweep_q_consumer', '{consume}');
SELECT sweep.grant_queue('shared', 'regress_sweep_q_consumer', '{send,consume}');
SELECT sweep.grant_queue('shared', 'regress_sweep_q_sender', '{read}');
SELECT sweep.grant_queue('shared', 'regress_sweep_q_sender', '{}');
SELECT sweep.grant_queue('shared', 'regress_sweep_q_sender', NULL);
SELECT sweep.grant_queue('shared', 0::regrole, '{send}');
SELECT senders, consumers FROM sweep.queue WHERE name = 'shared';
RESET ROLE;
SELECT senders, consumers FROM sweep.queue WHERE name = 'shared';
SET ROLE regress_sweep_q_sender;
SELECT sweep.send('shared', '1') IS NOT NULL AS sent;
SELECT sweep.claim('shared');
SELECT sweep.grant_queue('shared', 'regress_sweep_q_sender', '{consume}');
SELECT sweep.purge_queue('shared');
SELECT sweep.redrive('shared');
SELECT sweep.dead('shared');
SET ROLE regress_sweep_q_consumer;
SELECT sweep.send('shared', '2') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('shared', 2) LIMIT 1 \gset
SET ROLE regress_sweep_q_owner;
SELECT sweep.revoke_queue('shared', 'regress_sweep_q_consumer', '{consume}');
SET ROLE regress_sweep_q_consumer;
SELECT sweep.ack(:'lease');
SELECT sweep.fail(:'lease');
SELECT sweep.release(:'lease');
SELECT sweep.extend(:'lease', '1 h');
SELECT sweep.claim('shared');
SELECT sweep.send('shared', '3') IS NOT NULL AS sent;
SET ROLE regress_sweep_q_owner;
SELECT sweep.fail(:'lease', 'broken');
-- the operator returns dead messages and sees them, and does not send
SET ROLE regress_sweep_q_operator;
SELECT payload, error FROM sweep.dead('shared');
SELECT sweep.redrive('shared');
SELECT sweep.send('shared', '4');
SELECT depth, dead FROM sweep.queues WHERE queue = 'shared';
RESET ROLE;
-- a role that is gone takes its grants with it
DROP ROLE regress_sweep_q_consumer;
SET ROLE regress_sweep_q_sender;
SELECT sweep.send('shared', '5') IS NOT NULL AS sent;
RESET ROLE;
SELECT sweep.drop_queue('shared');
DROP ROLE regress_sweep_q_owner, regress_sweep_q_sender, regress_sweep_q_operator;
