-- room: process
-- sweep.alter_consumer, and replace => true of sweep.create_consumer: what becomes of a consumer that is there. None is started here,
-- because each is paused; that processes take a change is in test/t/consumer_runs.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS alter_consumer CASCADE;
CREATE SCHEMA alter_consumer;
CREATE FUNCTION alter_consumer.one(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION alter_consumer.many(m sweep.message[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE ROLE regress_sweep_consumer LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_other LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA alter_consumer TO regress_sweep_consumer;
SELECT sweep.create_queue('alter_consumer', notify => false), sweep.grant_queue('alter_consumer', 'regress_sweep_consumer', '{consume}');
\set look 'SELECT q.name, c.handler, c.run_as, c.concurrency, c.batch, c.paused_at IS NOT NULL AS paused FROM sweep.consumer c JOIN sweep.queue q USING (queue_id)'
\set get_id 'SELECT consumer_id AS id FROM sweep.consumer'

BEGIN;
-- creates what is not there
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.one', replace => true);
SELECT sweep.pause_consumer('alter_consumer');
COMMIT;
:look;
SELECT xmin AS version FROM sweep.consumer \gset
:get_id \gset
-- the same again writes nothing; whether it is paused stays
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.one', replace => true);
SELECT xmin::text = :'version' AS untouched FROM sweep.consumer;
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.one');
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.one', concurrency => 3, replace => true);
:look;
-- more processes of the same kind: those that there are stay
SELECT consumer_id = :id AS same FROM sweep.consumer;
-- others with another handler, role or size
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.many', batch => 10, replace => true);
:look;
SELECT consumer_id = :id AS same FROM sweep.consumer;
:get_id \gset
-- what is wrong changes nothing
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.none', replace => true);
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.one', batch => 0, replace => true);

SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": 2}');
SELECT sweep.alter_consumer('alter_consumer', '{}');
SELECT consumer_id = :id AS same FROM sweep.consumer;
SELECT sweep.alter_consumer('alter_consumer', '{"handler": "alter_consumer.one", "run_as": "regress_sweep_consumer", "batch": 5}');
:look;
SELECT consumer_id = :id AS same FROM sweep.consumer;
SELECT sweep.alter_consumer('alter_consumer', '{"batch": 0}');
SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": 1001}');
SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": "many"}');
SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": null}');
SELECT sweep.alter_consumer('alter_consumer', '{"handler": "alter_consumer.none"}');
SELECT sweep.alter_consumer('alter_consumer', '{"run_as": "regress_sweep_no_such"}');
SELECT sweep.alter_consumer('alter_consumer', '{"run_as": "regress_sweep_other"}');
SELECT sweep.alter_consumer('alter_consumer', '{"visibility": "1 min"}');
SELECT sweep.alter_consumer('alter_consumer', '[]');
SELECT sweep.alter_consumer('alter_consumer', NULL);
SELECT sweep.alter_consumer('alter_consumer_', '{}');
:look;
-- a broken one can be paused, and brought to another handler
DROP FUNCTION alter_consumer.one;
SELECT state FROM sweep.consumers;
SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": 1, "paused": true}');
SELECT sweep.alter_consumer('alter_consumer', '{"batch": 1, "handler": "alter_consumer.many"}');
SELECT state FROM sweep.consumers;
BEGIN;
SELECT sweep.alter_consumer('alter_consumer', '{"paused": false}');
:look;
ROLLBACK;

-- rights: those of its role, and of the owner of the queue, who could not become it
SET ROLE regress_sweep_other;
SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": 2}');
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.many', replace => true);
RESET ROLE;
SELECT sweep.grant_queue('alter_consumer', 'regress_sweep_other', '{consume}');
GRANT USAGE ON SCHEMA alter_consumer TO regress_sweep_other;
SET ROLE regress_sweep_other;
SELECT sweep.create_consumer('alter_consumer', 'alter_consumer.many', replace => true);
RESET ROLE;
SET ROLE regress_sweep_consumer;
SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": 2}');
RESET ROLE;
UPDATE sweep.queue SET owner = 'regress_sweep_other' WHERE name = 'alter_consumer';
SET ROLE regress_sweep_other;
SELECT sweep.alter_consumer('alter_consumer', '{"concurrency": 3}');
SELECT sweep.alter_consumer('alter_consumer', '{"handler": "alter_consumer.no_such"}');
SELECT sweep.alter_consumer('alter_consumer', '{"handler": "alter_consumer.many", "run_as": "regress_sweep_other"}');
RESET ROLE;
:look;
SELECT sweep.drop_queue('alter_consumer');
REVOKE sweep_client FROM regress_sweep_consumer, regress_sweep_other;
DROP SCHEMA alter_consumer CASCADE;
DROP ROLE regress_sweep_consumer, regress_sweep_other;
