-- A database that uses pg_sweep: a job with a step, a queue with a message and a consumer, a trigger
-- that sends, a view of theirs, and a column of a type of the extension.
CREATE EXTENSION pg_sweep_gitlab CASCADE;
CREATE ROLE app LOGIN IN ROLE sweep_user;
CREATE SCHEMA app AUTHORIZATION app;
SET SESSION AUTHORIZATION app;
CREATE FUNCTION app.tidy(b sweep.batch) RETURNS sweep.progress LANGUAGE sql SET search_path = pg_catalog, pg_temp
	AS 'SELECT 0::bigint, NULL::jsonb, NULL::jsonb';
SELECT sweep.create_job('tidy', step => 'app.tidy');
CREATE FUNCTION app.book(m sweep.message) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS 'SELECT';
SELECT sweep.create_queue('orders'), sweep.create_queue('mail');
SELECT sweep.create_consumer('orders', 'app.book');
SELECT sweep.send('mail', '{"to": "a@example.org"}');
CREATE VIEW app.backlog AS SELECT queue, depth FROM sweep.queues;
CREATE TABLE app.trial (at timestamptz, result sweep.progress);
CREATE TABLE app.purchase (id bigint PRIMARY KEY);
CREATE FUNCTION app.tell() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM sweep.send('orders', to_jsonb(NEW));
	RETURN NEW;
END
$$;
CREATE TRIGGER tell AFTER INSERT ON app.purchase FOR EACH ROW EXECUTE FUNCTION app.tell();
