-- room: queue
-- sweep.messages shows what is in a queue without claiming it, sweep.cancel_message takes a message back: so that a test can assert what
-- was sent, and a user can think better of what is delayed.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
SELECT sweep.create_queue('cancel', visibility => '1 hour');
CREATE TEMP TABLE claimed (n serial, lease uuid, message_id bigint);
CREATE FUNCTION pg_temp.id(wanted text) RETURNS bigint LANGUAGE sql AS $$ SELECT message_id FROM sweep.messages('cancel', NULL, NULL) WHERE payload ->> 'n' = wanted $$;
\set look 'SELECT payload ->> ''n'' AS n, state, key, attempts, priority, due_at IS NOT NULL AS has_due, claimed_until > now() AS claimed FROM sweep.messages(''cancel'')'
\set counts 'SELECT depth, ready, delayed, in_flight FROM sweep.queues WHERE queue = ''cancel'''

-- ---------------------------------------------------------------- what is there
:look;
-- also what the transaction itself has sent
BEGIN;
SELECT count(sweep.send('cancel', '{"n": "own"}')) FROM sweep.queue WHERE name = 'cancel';
:look;
ROLLBACK;
SELECT count(sweep.send('cancel', jsonb_build_object('n', n), key => 'k' || n)) FROM generate_series(1, 3) AS n;
SELECT count(sweep.send('cancel', '{"n": "first"}', priority => 5, headers => '{"h": 1}'));
SELECT count(sweep.send('cancel', jsonb_build_object('n', 'later ' || n), delay => interval '1 hour' * n, key => 'later ' || n)) FROM generate_series(2, 1, -1) AS n;
INSERT INTO claimed (lease, message_id) SELECT lease, message_id FROM sweep.claim('cancel');
:look;
:counts;
SELECT payload ->> 'n' AS n, headers FROM sweep.messages('cancel', 'in_flight');
SELECT payload ->> 'n' AS n FROM sweep.messages('cancel', 'ready', 2);
SELECT payload ->> 'n' AS n FROM sweep.messages('cancel', state => 'delayed');
SELECT payload ->> 'n' AS n FROM sweep.messages('cancel', max => 2);
-- what has failed waits again, with its error
SELECT sweep.fail(lease, 'bad order') FROM claimed;
SELECT payload ->> 'n' AS n, state, attempts, error FROM sweep.messages('cancel', 'delayed') WHERE error IS NOT NULL;
SELECT * FROM sweep.messages('no such queue');
SELECT * FROM sweep.messages('cancel', 'dead');
SELECT * FROM sweep.messages('cancel', max => 0);
SELECT * FROM sweep.messages(NULL);

-- ---------------------------------------------------------------- taken back, and its key is free at once
SELECT sweep.cancel_message('cancel', pg_temp.id('2'));
SELECT sweep.cancel_message('cancel', key => 'later 1');
:look;
:counts;
SELECT sweep.send('cancel', '{"n": "2 again"}', key => 'k2') IS NOT NULL AS sent, sweep.send('cancel', '{"n": "later again"}', key => 'later 1', delay => '1 hour') IS NOT NULL AS delayed;
-- gone, or never there
SELECT sweep.cancel_message('cancel', 0), sweep.cancel_message('cancel', key => 'no such key');
-- claimed: by its id, and by its key, which is free by then
INSERT INTO claimed (lease, message_id) SELECT lease, message_id FROM sweep.claim('cancel');
SELECT sweep.cancel_message('cancel', message_id) FROM claimed ORDER BY n DESC LIMIT 1;
SELECT sweep.cancel_message('cancel', key => 'k1');
-- given back: its row does not say so
SELECT count(sweep.release(lease)) FROM (SELECT lease FROM claimed ORDER BY n DESC LIMIT 1) AS c;
SELECT payload ->> 'n' AS n, state FROM sweep.messages('cancel') WHERE key = 'k1';
SELECT sweep.cancel_message('cancel', key => 'k1');
SELECT sweep.cancel_message('cancel', key => 'k1');
:counts;

-- ---------------------------------------------------------------- in a transaction
-- it is not claimed meanwhile, and when it is rolled back it waits as before, in its place and not before it is due
BEGIN;
SELECT sweep.cancel_message('cancel', pg_temp.id('3')), sweep.cancel_message('cancel', key => 'later 2');
SELECT payload ->> 'n' AS n FROM sweep.claim('cancel', 10);
-- a second time
SELECT sweep.cancel_message('cancel', key => 'later 2');
ROLLBACK;
:look;
:counts;
BEGIN;
SAVEPOINT s;
SELECT sweep.cancel_message('cancel', pg_temp.id('3'));
ROLLBACK TO s;
SELECT payload ->> 'n' AS n FROM sweep.claim('cancel');
ROLLBACK;
-- what it has sent itself
BEGIN;
SELECT count(sweep.send('cancel', '{"n": "own"}', key => 'own'));
SELECT sweep.cancel_message('cancel', key => 'own');
SELECT sweep.send('cancel', '{"n": "own again"}', key => 'own') IS NOT NULL AS sent;
COMMIT;
SELECT payload ->> 'n' AS n FROM sweep.messages('cancel', 'ready');
-- a transaction of REPEATABLE READ takes back what it sees
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT sweep.cancel_message('cancel', key => 'own');
COMMIT;
:counts;

-- ---------------------------------------------------------------- prepared transactions
-- one that acknowledges
INSERT INTO claimed (lease, message_id) SELECT lease, message_id FROM sweep.claim('cancel');
SELECT message_id AS acked, lease FROM claimed ORDER BY n DESC LIMIT 1 \gset
BEGIN;
SELECT sweep.ack(:'lease');
PREPARE TRANSACTION 'regress_cancel_ack';
SELECT sweep.cancel_message('cancel', :acked);
SELECT state FROM sweep.messages('cancel') WHERE message_id = :acked;
ROLLBACK PREPARED 'regress_cancel_ack';
SELECT sweep.cancel_message('cancel', :acked);
SELECT sweep.release(lease) FROM (SELECT lease FROM claimed ORDER BY n DESC LIMIT 1) AS c;
-- one that sends: not there yet
BEGIN;
SELECT count(sweep.send('cancel', '{"n": "prepared"}', priority => -3));
PREPARE TRANSACTION 'regress_cancel_send';
SELECT count(*) FROM sweep.messages('cancel') WHERE payload ->> 'n' = 'prepared';
COMMIT PREPARED 'regress_cancel_send';
SELECT sweep.cancel_message('cancel', pg_temp.id('prepared'));
-- one that takes back
BEGIN;
SELECT sweep.cancel_message('cancel', :acked), sweep.cancel_message('cancel', key => 'later 2');
PREPARE TRANSACTION 'regress_cancel_cancel';
SELECT sweep.cancel_message('cancel', key => 'later 2');
SELECT count(*) FROM sweep.claim('cancel') WHERE message_id = :acked;
ROLLBACK PREPARED 'regress_cancel_cancel';
SELECT state FROM sweep.messages('cancel') WHERE key = 'later 2';
BEGIN;
SELECT sweep.cancel_message('cancel', key => 'later 2');
PREPARE TRANSACTION 'regress_cancel_cancel';
COMMIT PREPARED 'regress_cancel_cancel';
SELECT count(*) FROM sweep.messages('cancel') WHERE key = 'later 2';

-- ---------------------------------------------------------------- keys that are kept while a message is handled, and messages that wait for one
SELECT sweep.purge_queue('cancel') > 0 AS purged;
SELECT sweep.create_queue('cancel', key_policy => 'while_queued_or_running', replace => true);
SELECT count(sweep.send('cancel', '{"n": "running"}', key => 'k'));
SELECT count(*) FROM sweep.claim('cancel');
SELECT sweep.cancel_message('cancel', key => 'k');
SELECT sweep.purge_queue('cancel');
SELECT sweep.create_queue('cancel', key_policy => 'once_more_if_running', replace => true);
SELECT count(sweep.send('cancel', '{"n": "running"}', key => 'k'));
INSERT INTO claimed (lease, message_id) SELECT lease, message_id FROM sweep.claim('cancel');
SELECT count(sweep.send('cancel', '{"n": "once more"}', key => 'k'));
SELECT count(*) FROM sweep.claim('cancel');
:look;
BEGIN;
SELECT sweep.cancel_message('cancel', key => 'k');
ROLLBACK;
SELECT count(*) FROM sweep.claim('cancel');
SELECT sweep.cancel_message('cancel', key => 'k');
SELECT sweep.ack(lease) FROM (SELECT lease FROM claimed ORDER BY n DESC LIMIT 1) AS c;
:counts;
-- of two that wait for a third, one is taken back: the other goes on waiting
SELECT sweep.create_queue('cancel', key_policy => 'once_more_if_running', backoff => 'none', replace => true);
SELECT count(sweep.send('cancel', '{"n": "failed"}', key => 'k'));
SELECT lease AS failed FROM sweep.claim('cancel') \gset
SELECT count(sweep.send('cancel', '{"n": "running"}', key => 'k', priority => 1));
SELECT sweep.fail(:'failed');
SELECT lease AS running, payload FROM sweep.claim('cancel') \gset
SELECT count(sweep.send('cancel', '{"n": "once more"}', key => 'k'));
SELECT count(*) FROM sweep.claim('cancel', 2);
BEGIN;
SELECT sweep.cancel_message('cancel', pg_temp.id('failed'));
ROLLBACK;
SELECT count(*) FROM sweep.claim('cancel', 2);
SELECT sweep.cancel_message('cancel', pg_temp.id('failed'));
SELECT count(*) FROM sweep.claim('cancel', 2);
SELECT sweep.ack(:'running');
SELECT payload FROM sweep.claim('cancel', 2);
SELECT sweep.purge_queue('cancel');
:counts;

-- ---------------------------------------------------------------- who, and what is no call
CREATE ROLE regress_sweep_cancel LOGIN;
SELECT sweep.grant_queue('cancel', 'regress_sweep_cancel', '{send}');
SELECT count(sweep.send('cancel', '{"n": "ours"}', key => 'ours'));
SET ROLE regress_sweep_cancel;
SELECT count(*) FROM sweep.messages('cancel');
SELECT sweep.cancel_message('cancel', key => 'ours');
RESET ROLE;
SELECT sweep.grant_queue('cancel', 'regress_sweep_cancel', '{consume}');
SET ROLE regress_sweep_cancel;
SELECT payload FROM sweep.messages('cancel');
SELECT sweep.cancel_message('cancel', key => 'ours');
RESET ROLE;
SELECT sweep.cancel_message('cancel');
SELECT sweep.cancel_message('cancel', 1, 'k');
SELECT sweep.cancel_message(NULL, 1);
SELECT sweep.cancel_message('no such queue', 1);
:counts;
SELECT sweep.drop_queue('cancel');
REVOKE sweep_client FROM regress_sweep_cancel;
DROP ROLE regress_sweep_cancel;
