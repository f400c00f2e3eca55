-- room: process
-- Consumers in the database: what create_consumer refuses, and who may do what. That they work is
-- shown by test/t/consumer_runs.pl; here none is started, because nothing is committed before it is dropped.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
RESET client_min_messages;
\set SHOW_CONTEXT never
SET search_path = pg_catalog;
CREATE SCHEMA handlers;
CREATE FUNCTION handlers.good(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION handlers.counts(m sweep.message) RETURNS bigint LANGUAGE sql AS 'SELECT (m).message_id';
CREATE FUNCTION handlers.two(m sweep.message, n int DEFAULT 1) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION handlers.wrong(b sweep.batch) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE PROCEDURE handlers.procedure(m sweep.message) LANGUAGE sql AS 'SELECT';
CREATE FUNCTION handlers.batch(m sweep.message[]) RETURNS int LANGUAGE sql AS 'SELECT cardinality(m)';
CREATE FUNCTION handlers.both(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION handlers.both(m sweep.message[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION handlers.variadic(VARIADIC m sweep.message[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION handlers.other_array(m sweep.batch[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE ROLE regress_sweep_owner LOGIN;
CREATE ROLE regress_sweep_other LOGIN;
CREATE ROLE regress_sweep_operator;
CREATE ROLE regress_sweep_outside LOGIN;
GRANT sweep_user TO regress_sweep_owner, regress_sweep_other;
GRANT sweep_operator TO regress_sweep_operator;
SELECT sweep.create_queue('consumed', notify => false);

-- arguments
SELECT sweep.create_consumer('consumed_', 'handlers.good');
SELECT sweep.create_consumer('consumed', 'handlers.missing');
SELECT sweep.create_consumer('consumed', 'good');
SELECT sweep.create_consumer('consumed', 'handlers.wrong');
SELECT sweep.create_consumer('consumed', 'handlers.two');
SELECT sweep.create_consumer('consumed', 'handlers.procedure');
SELECT sweep.create_consumer('consumed', 'handlers.both');
SELECT sweep.create_consumer('consumed', 'handlers.variadic');
SELECT sweep.create_consumer('consumed', 'handlers.other_array');
SELECT sweep.create_consumer('consumed', 'handlers.batch(sweep.message[])');
SELECT sweep.create_consumer('consumed', 'handlers.good; SELECT 1');
SELECT sweep.create_consumer('consumed', NULL);
SELECT sweep.create_consumer('consumed', 'handlers.good', concurrency => 0);
SELECT sweep.create_consumer('consumed', 'handlers.good', concurrency => NULL);
SELECT sweep.create_consumer('consumed', 'handlers.good', concurrency => 1001);
SELECT sweep.create_consumer('consumed', 'handlers.good', batch => 0);
SELECT sweep.create_consumer('consumed', 'handlers.good', batch => 10001);
SELECT sweep.create_consumer('consumed', 'handlers.good', run_as => 'regress_sweep_outside');
SELECT sweep.grant_queue('consumed', 'regress_sweep_outside', '{consume}');
SELECT sweep.create_consumer('consumed', 'handlers.good', run_as => 'regress_sweep_outside');
SELECT sweep.revoke_queue('consumed', 'regress_sweep_outside', '{consume}');
SELECT sweep.drop_consumer('consumed');
SELECT sweep.pause_consumer('consumed');

-- what the view says; one per queue
BEGIN;
SELECT sweep.create_consumer('consumed', 'handlers.good', concurrency => 2, batch => 10);
SELECT queue, handler, concurrency, batch, state, workers, handled, failed, last_error FROM sweep.consumers;
SELECT sweep.pause_consumer('consumed');
SELECT state FROM sweep.consumers;
SELECT sweep.resume_consumer('consumed');
ALTER FUNCTION handlers.good(sweep.message) RENAME TO gone;
SELECT state FROM sweep.consumers;
ALTER FUNCTION handlers.gone(sweep.message) RENAME TO good;
SAVEPOINT s;
SELECT sweep.create_consumer('consumed', 'handlers.counts');
ROLLBACK TO s;
SELECT sweep.drop_consumer('consumed');
SELECT count(*) FROM sweep.consumers;
SELECT sweep.create_consumer('consumed', 'handlers.counts');
SELECT sweep.drop_queue('consumed');
SELECT count(*) FROM sweep.consumers;
ROLLBACK;

-- a handler of a batch; what becomes of it when there is another function of that name, or one for one message instead
BEGIN;
SELECT sweep.create_consumer('consumed', 'handlers.batch');
SELECT handler, batch, state FROM sweep.consumers;
CREATE FUNCTION handlers.batch(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT state FROM sweep.consumers;
DROP FUNCTION handlers.batch(sweep.message[]);
SELECT state FROM sweep.consumers;
DROP FUNCTION handlers.batch(sweep.message);
SELECT state FROM sweep.consumers;
ROLLBACK;

-- rights: to consume the queue, to be the role, and the role's own
SET ROLE regress_sweep_owner;
SELECT sweep.create_consumer('consumed', 'handlers.good');
SELECT sweep.create_queue('owned', notify => false);
SELECT sweep.create_consumer('owned', 'handlers.good');
RESET ROLE;
GRANT USAGE ON SCHEMA handlers TO regress_sweep_owner, regress_sweep_other;
REVOKE ALL ON FUNCTION handlers.good FROM PUBLIC;
SET ROLE regress_sweep_owner;
SELECT sweep.create_consumer('owned', 'handlers.good');
SELECT sweep.create_consumer('owned', 'handlers.counts', run_as => 'regress_sweep_other');
BEGIN;
SELECT sweep.create_consumer('owned', 'handlers.counts');
SELECT queue, run_as FROM sweep.consumers;
SET LOCAL ROLE regress_sweep_other;
SELECT count(*) FROM sweep.consumers;
SAVEPOINT s;
SELECT sweep.drop_consumer('owned');
ROLLBACK TO s;
SELECT sweep.pause_consumer('owned');
ROLLBACK TO s;
SET LOCAL ROLE regress_sweep_operator;
SELECT queue, state FROM sweep.consumers;
SELECT sweep.pause_consumer('owned');
SELECT queue, state FROM sweep.consumers;
SELECT sweep.drop_consumer('owned');
ROLLBACK;
-- who was granted to consume may; the owner of the queue may end that
SET ROLE regress_sweep_owner;
BEGIN;
SELECT sweep.grant_queue('owned', 'regress_sweep_other', '{consume}');
SET LOCAL ROLE regress_sweep_other;
SELECT sweep.create_consumer('owned', 'handlers.counts');
SELECT queue, run_as FROM sweep.consumers;
SET LOCAL ROLE regress_sweep_owner;
SELECT sweep.drop_consumer('owned');
ROLLBACK;
SET ROLE regress_sweep_other;
SELECT sweep._count_crash(1, '{1}');
TABLE sweep.consumer;
SET ROLE regress_sweep_outside;
SELECT sweep.create_consumer('owned', 'handlers.counts');
RESET ROLE;

-- crashes are counted for messages that are still in the queue
BEGIN;
SELECT array_agg(sweep.send('owned', to_jsonb(i), priority => i - 2) ORDER BY i) AS ids FROM generate_series(1, 3) AS i \gset
SELECT sweep._count_crash(queue_id, (:'ids'::bigint[])[1:2]) FROM sweep.queue WHERE name = 'owned';
SELECT sweep._count_crash(queue_id, (:'ids'::bigint[])[2:3]) FROM sweep.queue WHERE name = 'owned';
SELECT sweep._count_crash(queue_id, (:'ids'::bigint[])[2:3]) FROM sweep.queue WHERE name = 'consumed';
DELETE FROM sweep.queue_message WHERE message_id = (:'ids'::bigint[])[3];
SELECT sweep._count_crash(queue_id, (:'ids'::bigint[])[3:3]) FROM sweep.queue WHERE name = 'owned';
SELECT message_id - (:'ids'::bigint[])[1] AS message, crashes FROM sweep.consumer_crash ORDER BY message_id;
SELECT sweep.drop_queue('owned');
SELECT count(*) FROM sweep.consumer_crash;
ROLLBACK;

SELECT sweep.drop_queue('owned'), sweep.drop_queue('consumed');
DROP SCHEMA handlers CASCADE;
DROP ROLE regress_sweep_owner, regress_sweep_other, regress_sweep_operator, regress_sweep_outside;
