-- sweep.grant_queue is all that the role of an application needs; what may be redriven by its error; sweep.done.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS queue_client CASCADE;
CREATE SCHEMA queue_client;
SELECT current_user AS superuser \gset
CREATE ROLE regress_sweep_web LOGIN;
CREATE ROLE regress_sweep_queues LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_late LOGIN;
SET ROLE regress_sweep_queues;
SELECT sweep.create_queue('client_mail', backoff => 'none', max_attempts => 1, keep_done => '1 hour'), sweep.create_queue('client_other');
RESET ROLE;

-- what sweep_client has: the functions of messages, and nothing that can be read
SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'sweep'::regnamespace AND has_function_privilege('sweep_client', p.oid, 'EXECUTE') ORDER BY p.proname;
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'sweep'::regnamespace AND c.relkind IN ('r', 'v', 'S')
	AND has_table_privilege('sweep_client', c.oid, 'SELECT');

-- a trigger that whoever inserts executes
CREATE TABLE queue_client.customer (id int);
GRANT USAGE ON SCHEMA queue_client TO regress_sweep_web;
GRANT INSERT ON queue_client.customer TO regress_sweep_web;
CREATE FUNCTION queue_client.greet() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep.send('client_mail', jsonb_build_object('customer', new.id));
	RETURN NULL;
END
$$;
CREATE TRIGGER greet AFTER INSERT ON queue_client.customer FOR EACH ROW EXECUTE FUNCTION queue_client.greet();

\c - regress_sweep_web
INSERT INTO queue_client.customer VALUES (1);
\c - regress_sweep_queues
SELECT sweep.grant_queue('client_mail', 'regress_sweep_web', '{send}');
\c - regress_sweep_web
\set SHOW_CONTEXT never
INSERT INTO queue_client.customer VALUES (2);
-- nothing more than that: not to take it, not another queue, no other function, no view
SELECT * FROM sweep.claim('client_mail');
SELECT sweep.send('client_other', '1');
SELECT sweep.create_queue('client_own');
SELECT sweep.create_job('client', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
SELECT * FROM sweep.dead('client_mail');
SELECT * FROM sweep.queues;
\c - regress_sweep_queues
SELECT sweep.grant_queue('client_mail', 'regress_sweep_web', '{consume}');
\c - regress_sweep_web
SET client_min_messages = warning;
SELECT payload, lease AS mail FROM sweep.claim('client_mail') \gset
SELECT :'payload' AS payload, sweep.extend(:'mail', '1 min') AS extended, sweep.release(:'mail') AS released;
SELECT payload, sweep.ack(lease) AS acked FROM sweep.claim('client_mail');
SELECT sweep.send_many('client_mail', '{1,2}') AS sent;
SELECT payload, sweep.fail(lease, 'bad order') AS failed FROM sweep.claim('client_mail') ORDER BY payload;
CALL sweep.wait_for_message('client_mail', '1 min');
SELECT payload, sweep.ack(lease) AS acked FROM sweep.claim('client_mail');

-- its owner and operators read what is dead and what is done
\c - regress_sweep_queues
SELECT payload, attempts, error FROM sweep.dead('client_mail');
SELECT payload, key, attempts, headers, sent_at <= done_at AS later FROM sweep.done('client_mail');
SELECT sweep.redrive('client_mail', '{"error": {"message": "good order"}}') AS none, sweep.redrive('client_mail', '{"error": {"message": "bad order"}}', dry_run => true) AS one;
SELECT * FROM sweep.done('client_missing');
\c - regress_sweep_web
\set SHOW_CONTEXT never
SELECT * FROM sweep.done('client_mail');

-- granting it again is nothing new; revoking leaves the membership, because other queues may need it, and the right on the queue is gone
\c - regress_sweep_queues
SELECT sweep.grant_queue('client_mail', 'regress_sweep_web', '{send}'), sweep.revoke_queue('client_mail', 'regress_sweep_web', '{send,consume}');
\c - regress_sweep_web
\set SHOW_CONTEXT never
SELECT sweep.send('client_mail', '1');
\c - :superuser
SET client_min_messages = warning;
\set SHOW_CONTEXT never
SELECT count(*) AS memberships FROM pg_auth_members WHERE roleid = 'sweep_client'::regrole AND member = 'regress_sweep_web'::regrole;
-- who has the rights already is made no member: a superuser, the role itself
SELECT sweep.grant_queue('client_mail', :'superuser'::regrole, '{send}'), sweep.grant_queue('client_mail', 'sweep_client', '{send}');
SELECT count(*) AS memberships FROM pg_auth_members WHERE roleid = 'sweep_client'::regrole AND member IN ('sweep_client'::regrole, :'superuser'::regrole);
SELECT sweep.revoke_queue('client_mail', 'sweep_client', '{send}');
-- a grant that is rolled back leaves the membership, which is committed by itself, so that nobody waits for it, and allows nothing
BEGIN;
SELECT sweep.grant_queue('client_mail', 'regress_sweep_late', '{send}');
ROLLBACK;
SELECT count(*) AS memberships FROM pg_auth_members WHERE roleid = 'sweep_client'::regrole AND member = 'regress_sweep_late'::regrole;
SELECT 'regress_sweep_late' = ANY (senders) AS granted FROM sweep.queue WHERE name = 'client_mail';
REVOKE sweep_client FROM regress_sweep_late;
-- where the owner of the extension may not grant it, nothing is granted, and it is said who could
CREATE ROLE regress_sweep_owner;
SELECT proowner::regrole AS owner FROM pg_proc WHERE oid = 'sweep._add_member'::regproc \gset
ALTER FUNCTION sweep._add_member(regrole) SECURITY DEFINER;
ALTER FUNCTION sweep._add_member(regrole) OWNER TO regress_sweep_owner;
GRANT USAGE ON SCHEMA sweep TO regress_sweep_owner;
GRANT EXECUTE ON FUNCTION sweep._role_name(oid) TO regress_sweep_owner;
SELECT sweep.grant_queue('client_mail', 'regress_sweep_late', '{send}');
REVOKE EXECUTE ON FUNCTION sweep._role_name(oid) FROM regress_sweep_owner;
REVOKE USAGE ON SCHEMA sweep FROM regress_sweep_owner;
ALTER FUNCTION sweep._add_member(regrole) OWNER TO :owner;
ALTER FUNCTION sweep._add_member(regrole) SECURITY INVOKER;
SELECT 'regress_sweep_late' = ANY (senders) AS granted FROM sweep.queue WHERE name = 'client_mail';

SELECT sweep.drop_queue('client_mail'), sweep.drop_queue('client_other');
DROP SCHEMA queue_client CASCADE;
DROP ROLE regress_sweep_web, regress_sweep_queues, regress_sweep_late, regress_sweep_owner;
