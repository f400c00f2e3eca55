-- Queues: send, claim, ack, who may, and what is said when something is wrong.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
RESET client_min_messages;
\set SHOW_CONTEXT never

-- names
SELECT sweep.create_queue('mail');
SELECT sweep.create_queue('mail');
SELECT sweep.create_queue(repeat('x', 48), visibility => '1 h');
SELECT sweep.create_queue(repeat('x', 49));
SELECT sweep.create_queue('no-dash');
SELECT sweep.create_queue('');
SELECT sweep.create_queue(NULL);
SELECT sweep.create_queue('mail2', visibility => '0');
SELECT sweep.create_queue('mail2', visibility => NULL);
SELECT sweep.send('mial', '{}');
SELECT sweep.send('mai', '{}');
SELECT sweep.send('zebra', '{}');
SELECT sweep.drop_queue('zebra');

-- a key that waits is not queued again; messages without a key always are
SELECT sweep.send('mail', '{"n": 1}') IS NOT NULL AS sent;
SELECT sweep.send('mail', '{"n": 1}') IS NOT NULL AS sent;
SELECT sweep.send('mail', '{"n": 2}', key => 'a') IS NOT NULL AS sent;
SELECT sweep.send('mail', '{"n": 3}', key => 'a') IS NOT NULL AS sent;
SELECT sweep.send('mail', '{"n": 4}', key => '') IS NOT NULL AS sent;
SELECT sweep.send('mail', NULL);
-- the same key in another queue is another key
SELECT sweep.send(repeat('x', 48), '{"n": 5}', key => 'a') IS NOT NULL AS sent;

-- many: how many were queued; a key twice in one call counts once
SELECT sweep.send_many('mail', ARRAY['{"n": 6}', '{"n": 7}', '{"n": 8}', '{"n": 9}']::jsonb[], ARRAY['b', 'a', 'b', NULL]);
SELECT sweep.send_many('mail', ARRAY['{"n": 10}', '{"n": 11}']::jsonb[]);
SELECT sweep.send_many('mail', '{}');
SELECT sweep.send_many('mail', NULL);
SELECT sweep.send_many('mail', ARRAY['{}']::jsonb[], ARRAY['c', 'd']);
SELECT sweep.send_many('mail', ARRAY['{}', NULL]::jsonb[]);
SELECT queue, depth, ready, in_flight FROM sweep.queues ORDER BY queue;

-- claims come in the order of sending, under one lease
SELECT queue, payload, key, attempts, sent_at <= now() AS sent_before,
		count(*) OVER (PARTITION BY lease) AS of_lease
	FROM sweep.claim('mail', 3) ORDER BY message_id;
SELECT payload, key FROM sweep.claim('mail', max => 3) ORDER BY message_id;
SELECT queue, depth, ready, in_flight FROM sweep.queues ORDER BY queue;
-- once claimed, a key does not wait any more
SELECT sweep.send('mail', '{"n": 12}', key => 'a') IS NOT NULL AS sent;
SELECT sweep.send('mail', '{"n": 13}', key => 'a') IS NOT NULL AS sent;
SELECT payload, key FROM sweep.claim('mail', 100) ORDER BY message_id;
SELECT count(*) FROM sweep.claim('mail', 100);
SELECT sweep.claim('mail', 0);
SELECT sweep.claim('mail', NULL);
SELECT sweep.claim('mail', visibility => '-1 s');

-- ack: all of a lease, some of it, not twice, not with another's lease
SELECT sweep.drop_queue('mail');
SELECT sweep.create_queue('mail');
SELECT sweep.send_many('mail', ARRAY['1', '2', '3', '4', '5']::jsonb[]);
SELECT lease AS one, array_agg(message_id ORDER BY message_id) AS ids FROM sweep.claim('mail', 3) GROUP BY lease \gset
SELECT lease AS two FROM sweep.claim('mail') \gset
SELECT sweep.ack(:'one', (:'ids'::bigint[])[1:1]);
\set VERBOSITY sqlstate
SELECT sweep.ack(:'one', :'ids');
SELECT sweep.ack(:'one');
SELECT sweep.ack(:'two', :'ids');
\set VERBOSITY default
SELECT sweep.ack('00000000-0000-0000-0000-000000000000');
SELECT sweep.ack('00000000-0000-0000-0000-000000000000', '{1,2}');
SELECT sweep.ack(NULL);
SELECT sweep.ack(:'two');
SELECT payload FROM sweep.claim('mail', 10);

-- a lease that ran out: the message comes again, in its place, and a late ack does nothing
SELECT sweep.drop_queue('mail');
SELECT sweep.create_queue('mail', visibility => '1 microsecond');
SELECT sweep.send_many('mail', ARRAY['1', '2']::jsonb[]);
SELECT lease AS late, payload, attempts FROM sweep.claim('mail') \gset
SELECT payload, attempts FROM sweep.claim('mail', 10, '1 h') ORDER BY message_id;
\set VERBOSITY sqlstate
SELECT sweep.ack(:'late');
\set VERBOSITY default
SELECT depth, ready, in_flight FROM sweep.queues WHERE queue = 'mail';

-- a send is part of the transaction
BEGIN;
SELECT sweep.send('mail', '3', key => 'rolled back') IS NOT NULL AS sent;
ROLLBACK;
SELECT sweep.send('mail', '3', key => 'rolled back') IS NOT NULL AS sent;

-- a queue is for its creator, members of that role and sweep_admin
CREATE ROLE regress_sweep_owner;
CREATE ROLE regress_sweep_member;
CREATE ROLE regress_sweep_stranger;
CREATE ROLE regress_sweep_admin;
CREATE ROLE regress_sweep_operator;
CREATE ROLE regress_sweep_nobody;
GRANT sweep_user TO regress_sweep_owner, regress_sweep_stranger;
GRANT regress_sweep_owner TO regress_sweep_member;
GRANT sweep_admin TO regress_sweep_admin;
GRANT sweep_operator TO regress_sweep_operator;
SET ROLE regress_sweep_owner;
SELECT sweep.create_queue('owned');
SELECT sweep.send('owned', '1') IS NOT NULL AS sent;
SET ROLE regress_sweep_member;
SELECT sweep.send('owned', '2') IS NOT NULL AS sent;
SET ROLE regress_sweep_admin;
SELECT lease FROM sweep.claim('owned') \gset
SELECT sweep.ack(:'lease');
SELECT lease FROM sweep.claim('owned') \gset
SET ROLE regress_sweep_stranger;
SELECT sweep.send('owned', '3');
SELECT sweep.send_many('owned', '{1}');
SELECT sweep.claim('owned');
SELECT sweep.ack(:'lease');
SELECT sweep.drop_queue('owned');
SELECT payload FROM sweep.queue_message;
SELECT name FROM sweep.queue;
INSERT INTO sweep.queue_message (queue_id, payload) VALUES (1, '1');
SELECT sweep._find_queue('regress_sweep_owner'::regrole, 'owned', 'send');
SET ROLE regress_sweep_operator;
SELECT sweep.claim('owned');
SELECT depth FROM sweep.queues WHERE queue = 'owned';
SET ROLE regress_sweep_nobody;
SELECT sweep.send('owned', '3');
RESET ROLE;
SELECT depth, ready, in_flight FROM sweep.queues WHERE queue = 'owned';

-- a role that is gone leaves its queue to sweep_admin
REVOKE regress_sweep_owner FROM regress_sweep_member;
DROP ROLE regress_sweep_owner;
SET ROLE regress_sweep_admin;
SELECT sweep.drop_queue('owned');
RESET ROLE;
SELECT sweep.drop_queue('mail');
SELECT sweep.drop_queue(repeat('x', 48));
SELECT count(*) FROM sweep.queue_message;
DROP ROLE regress_sweep_member, regress_sweep_stranger, regress_sweep_admin, regress_sweep_operator, regress_sweep_nobody;
