-- Queues: messages that fail, come again, die and are redriven; release, extend, done ones.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
RESET client_min_messages;
\set SHOW_CONTEXT never

-- options are checked
SELECT sweep.create_queue('work', max_attempts => 0);
SELECT sweep.create_queue('work', max_attempts => NULL);
SELECT sweep.create_queue('work', backoff => 'soon');
SELECT sweep.create_queue('work', backoff => '-1 s');
SELECT sweep.create_queue('work', backoff => NULL);
SELECT sweep.create_queue('work', keep_done => '-1 s');
SELECT sweep.create_queue('work', key_policy => 'never');

-- without a pause it comes again at once, until it has been tried often enough
SELECT sweep.create_queue('work', max_attempts => 3, backoff => 'none');
SELECT sweep.send('work', '{"n": 1}', key => 'one', headers => '{"h": 1}') IS NOT NULL AS sent;
SELECT sweep.send('work', '{"n": 2}', priority => 5) IS NOT NULL AS sent;
SELECT payload, attempts, lease FROM sweep.claim('work', 1) \gset
SELECT :'payload' AS payload, :attempts AS attempts;
SELECT sweep.fail(:'lease', 'no luck');
SELECT depth, in_flight, dead FROM sweep.queues WHERE queue = 'work';
SELECT m.lane, m.attempts, m.error, m.due_at <= clock_timestamp() AS due FROM sweep.queue_message m WHERE m.payload = '{"n": 2}';
SELECT payload, attempts, key, headers FROM sweep.claim('work', 10) ORDER BY payload;
-- a rolled back failure is none
SELECT sweep.purge_queue('work');
SELECT sweep.send('work', '{"n": 3}', 'three') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('work') \gset
BEGIN;
SELECT sweep.fail(:'lease', 'rolled back');
ROLLBACK;
SELECT sweep.fail(:'lease', 'first');
\set VERBOSITY sqlstate
SELECT sweep.fail(:'lease', 'again');
\set VERBOSITY default
SELECT attempts, lease FROM sweep.claim('work') \gset
SELECT :attempts AS attempts, sweep.fail(:'lease');
SELECT attempts, lease FROM sweep.claim('work') \gset
SELECT :attempts AS attempts, sweep.fail(:'lease', 'third');
SELECT payload, key, attempts, priority, error, died_at > sent_at AS later FROM sweep.dead('work');
SELECT depth, ready, delayed, in_flight, dead FROM sweep.queues WHERE queue = 'work';
SELECT count(*) FROM sweep.claim('work');

-- a message whose lease always runs out dies, too
SELECT sweep.drop_queue('work');
SELECT sweep.create_queue('work', max_attempts => 2, visibility => '1 microsecond');
SELECT sweep.send_many('work', '{1}');
SELECT payload, attempts FROM sweep.claim('work');
SELECT payload, attempts FROM sweep.claim('work');
SELECT payload, attempts FROM sweep.claim('work');
SELECT payload, attempts, error FROM sweep.dead('work');
SELECT depth, in_flight, dead FROM sweep.queues WHERE queue = 'work';

-- redrive: what the filter says, as many as asked; they start anew, with their ids
SELECT sweep.drop_queue('work');
SELECT sweep.create_queue('work', max_attempts => 1);
SELECT sweep.send_many('work', ARRAY['{"n": 1}', '{"n": 2}', '{"n": 3}', '{"n": 4}']::jsonb[], ARRAY['a', 'b', NULL, NULL], priority => 2);
SELECT sweep.fail(lease, 'timeout', array_agg(message_id)) FROM sweep.claim('work', 3) GROUP BY lease;
SELECT sweep.fail(lease, 'refused') FROM sweep.claim('work');
SELECT payload, key, attempts, priority, error FROM sweep.dead('work');
SELECT sweep.redrive('work', '{"error": {"message": "timeout"}}', dry_run => true), sweep.redrive('work', '{"payload": {"n": 4}}', dry_run => true);
SELECT sweep.redrive('work', max => 0);
SELECT sweep.redrive('work', '{"error": {"message": "timeout"}}', max => 2);
SELECT depth, ready, delayed, dead FROM sweep.queues WHERE queue = 'work';
SELECT m.payload, m.key, m.attempts FROM sweep.claim('work', 10) AS m;
BEGIN;
SELECT sweep.redrive('work');
ROLLBACK;
SELECT depth, dead FROM sweep.queues WHERE queue = 'work';
SELECT sweep.redrive('work');
SELECT m.payload, m.key, m.attempts FROM sweep.claim('work', 10) AS m;
SELECT count(*) FROM sweep.dead('work');

-- Sidekiq's pauses: fourth power of the retries, 15 s, and up to 10 s times the attempts
SELECT sweep.drop_queue('work');
SELECT sweep.create_queue('work');
SELECT sweep.send('work', '1') IS NOT NULL AS sent;
SELECT sweep.fail(lease, 'x') FROM sweep.claim('work');
SELECT due_at - clock_timestamp() BETWEEN interval '14 s' AND interval '25 s' AS first_pause FROM sweep.queue_message WHERE payload = '1';
UPDATE sweep.queue_message SET due_at = now(), attempts = 9 WHERE payload = '1';
SELECT sweep.fail(lease, 'x') FROM sweep.claim('work');
SELECT due_at - clock_timestamp() BETWEEN interval '6575 s' AND interval '6676 s' AS tenth_pause, attempts FROM sweep.queue_message WHERE payload = '1';
-- or an interval
SELECT sweep.drop_queue('work');
SELECT sweep.create_queue('work', backoff => '1 h');
SELECT sweep.send_many('work', ARRAY['1', '2', '3']::jsonb[]);
SELECT lease, array_agg(message_id ORDER BY message_id) AS ids FROM sweep.claim('work', 3) GROUP BY lease \gset
SELECT sweep.fail(:'lease', 'x', (:'ids'::bigint[])[2:2]);
SELECT depth, ready, delayed, in_flight FROM sweep.queues WHERE queue = 'work';
SELECT due_at - clock_timestamp() BETWEEN interval '59 min' AND interval '1 h' AS an_hour FROM sweep.queue_message WHERE due_at IS NOT NULL;

-- release: at once and not an attempt; extend: how many are held
SELECT sweep.extend(:'lease', '1 h');
SELECT sweep.extend(:'lease', '0');
SELECT sweep.extend(:'lease', NULL);
SELECT sweep.release(:'lease', (:'ids'::bigint[])[3:3]);
SELECT payload, attempts FROM sweep.claim('work', 10);
SELECT sweep.release(:'lease');
SELECT sweep.extend('00000000-0000-0000-0000-000000000000', '1 s');
SELECT payload, attempts FROM sweep.claim('work', 10);
-- extended, a lease does not run out
SELECT sweep.drop_queue('work');
SELECT sweep.create_queue('work', visibility => '1 microsecond');
SELECT sweep.send('work', '1') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('work') \gset
SELECT sweep.extend(:'lease', '1 h');
SELECT count(*) FROM sweep.claim('work');
-- a claim that is rolled back gives back what it took, and was no attempt; also with its savepoint
SELECT sweep.ack(:'lease');
SELECT sweep.send_many('work', ARRAY['1', '2']::jsonb[]);
BEGIN;
SELECT payload, attempts FROM sweep.claim('work', 1, '1 h');
SAVEPOINT s;
SELECT payload, attempts FROM sweep.claim('work', 1, '1 h');
ROLLBACK TO s;
SELECT payload, attempts FROM sweep.claim('work', 1, '1 h');
ROLLBACK;
SELECT payload, attempts FROM sweep.claim('work', 10, '1 h') ORDER BY payload;
-- and an acknowledgement that is rolled back leaves the lease as it was
SELECT sweep.send('work', '3') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('work', 1, '1 h') \gset
BEGIN;
SELECT sweep.ack(:'lease');
\set VERBOSITY sqlstate
SELECT sweep.ack(:'lease');
\set VERBOSITY default
ROLLBACK;
SELECT sweep.ack(:'lease');
SELECT depth, in_flight FROM sweep.queues WHERE queue = 'work';

-- acknowledged messages can be kept for a while
SELECT sweep.drop_queue('work');
SELECT sweep.create_queue('work', keep_done => '1 h');
SELECT sweep.send('work', '1', 'k', headers => '{"h": 1}') IS NOT NULL AS sent;
SELECT sweep.ack(lease) FROM sweep.claim('work');
SELECT payload, key, headers, attempts, done_at > sent_at AS later FROM sweep.queue_done;
UPDATE sweep.queue_done SET done_at = done_at - interval '2 h';
-- ... and are removed by later acknowledgements, once a second
DO $$
DECLARE
	deadline timestamptz := clock_timestamp() + interval '30 s';
BEGIN
	WHILE EXISTS (SELECT FROM sweep.queue_done WHERE payload = '1') AND clock_timestamp() < deadline LOOP
		PERFORM sweep.send('work', '2');
		COMMIT;
		PERFORM sweep.ack(lease) FROM sweep.claim('work');
		COMMIT;
	END LOOP;
END
$$;
SELECT DISTINCT payload FROM sweep.queue_done;
SELECT sweep.drop_queue('work');
SELECT count(*) FROM sweep.queue_done;
