-- Every kind of object that somebody can have when an upgrade comes, with every setting at a value that is not its default, which
-- test/t/upgrade.pl looks at. It is executed in the current version; rows-VERSION.sql are those of old ones.
CREATE SCHEMA u;
CREATE TABLE u.row (id int PRIMARY KEY);
INSERT INTO u.row SELECT generate_series(1, 25);
GRANT USAGE ON SCHEMA u TO jobber;
GRANT SELECT, DELETE ON u.row TO jobber;
CREATE FUNCTION u.step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT ROW(0, '{"at": 1}', '{"n": 1}')::sweep.progress $$;
CREATE FUNCTION u.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT to_jsonb(i) FROM generate_series(1, 4) AS i WHERE b.cursor IS NULL $$;
CREATE FUNCTION u.items(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF '3' = ANY (b.items) THEN
		RAISE EXCEPTION 'not this one';
	END IF;
	RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
END
$$;
CREATE FUNCTION u.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'nor so'; END $$;
CREATE FUNCTION u.fail(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'on purpose'; END $$;
CREATE FUNCTION u.shares(b sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
CREATE TABLE u.aged (id int NOT NULL, at timestamptz NOT NULL PRIMARY KEY);
CREATE TABLE u.copied (id int PRIMARY KEY);
CREATE FUNCTION u.handle_all(m sweep.message[]) RETURNS void LANGUAGE sql AS $$ SELECT $$;
CREATE FUNCTION u.handle(m sweep.message) RETURNS void LANGUAGE sql AS $$ SELECT $$;
SELECT sweep.create_job('of sql', batch_sql => 'DELETE FROM u.row WHERE id IN (SELECT id FROM u.row ORDER BY id LIMIT $1)', schedule => '@yearly', timezone => 'Europe/Berlin',
	batch_size => 10, description => 'a word', run_as => 'jobber');
SELECT sweep.create_job('of steps', step => 'u.step', cursor => 'drain', args => '{"a": 1}', on_start => '{"of sql": "1 day"}');
SELECT sweep.create_job('of items', step => 'u.items', pick => 'u.pick', rescue => 'u.rescue', transaction => 'row', row_retries => 0);
SELECT sweep.create_job('divided', step => 'u.step', buckets => 3, stop_after => '1 min');
SELECT sweep.create_job('paused', step => 'u.step', schedule => '@daily', bucket_store => 'redis', paused => true);
SELECT sweep.create_queue('alerts', visibility => '1 min', backoff => '10 s', notify => false);
SELECT sweep.grant_queue('alerts', 'jobber', ARRAY['send', 'consume']);
SELECT sweep.create_job('of statements', '30 2 L * *', 'VACUUM u.row; SELECT 1', timezone => 'America/St_Johns', settings => '{"work_mem": "3MB", "search_path": "u"}',
	lock_key => 'shared', lock_retries => 2, lock_retry_delay => '1 s', overlap => 'queue_one', catch_up => 'all', jitter => '1 min', priority => -3,
	on_success => '{"of sql": "0"}', alert_queue => 'alerts', run_as => 'jobber');
SELECT sweep.create_job('with limits', batch_sql => 'DELETE FROM u.row WHERE id IN (SELECT id FROM u.row WHERE id > 1000 LIMIT $1)', schedule => '@reboot',
	max_batches => 9, max_rows => 90, stop_after => '1 min', timeout => '2 min', pause => '10 ms', max_attempts => 4, cursor => 'drain', flush => 'batch',
	estimate => 'SELECT count(*) FROM u.row', priority => 100, description => 'all that bounds a run', paused => true);
SELECT sweep.create_job('that fails', step => 'u.fail', on_failure => '{"of steps": "1 hour"}', alert_queue => 'alerts');
SELECT sweep.create_job('divided elsewhere', step => 'u.step', buckets => 2, bucket_key => 'of others', bucket_recovery => '1 hour', buckets_function => 'u.shares',
	schedule => 'every 1 day', paused => true);
SELECT sweep.create_retention('u.aged', 'at', '90 days', condition => 'id > 0');
SELECT sweep.create_backfill('u.aged', 'id = id', 'false', order_by => 'at', pause => '1 s', paused => true, name => 'backfill');
SELECT sweep.create_copy('u.row', 'u.copied', paused => true, name => 'copy');
SELECT sweep.start('of items', args => '{"later": true}', at => now() + interval '50 years');
SELECT sweep.pause_all();
CALL sweep.run('of steps');
CALL sweep.run('of items');
CALL sweep.run('copy');
-- One that fails raises.
\set ON_ERROR_STOP off
CALL sweep.run('that fails');
\set ON_ERROR_STOP on
SELECT sweep.create_queue('plain'), sweep.create_queue('keyed', key_policy => 'while_queued_or_running', max_attempts => 1, keep_done => '1 day');
SELECT sweep.send('plain', '{"n": 1}'), sweep.send('plain', '{"n": 2}', delay => '1 day', priority => 3), sweep.send('keyed', '{"n": 3}', key => 'k');
SELECT sweep.send_many('keyed', ARRAY['{"n": 4}', '{"n": 5}']::jsonb[], ARRAY['a', 'b']);
SELECT sweep.fail(lease, 'no good') FROM sweep.claim('keyed', 1);
SELECT sweep.ack(lease) FROM sweep.claim('keyed', 1);
SELECT sweep.grant_queue('plain', 'jobber', ARRAY['send', 'consume']);
SELECT sweep.create_consumer('plain', 'u.handle', concurrency => 2);
SELECT sweep.create_consumer('alerts', 'u.handle_all', batch => 5, run_as => 'jobber'), sweep.pause_consumer('alerts');
SELECT sweep.begin_once('once');
INSERT INTO sweep.consumer_crash SELECT m.queue_id, m.message_id, 1, now() FROM sweep.queue_message m WHERE m.payload = '{"n": 2}';
SET SESSION AUTHORIZATION jobber;
SELECT sweep.create_queue('of_another');
RESET SESSION AUTHORIZATION;
