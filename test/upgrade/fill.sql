-- Every kind of object that somebody can have when an upgrade comes. It is executed in an old version as well as in the current one: what
-- an old version does not have yet belongs after its upgrade, into test/t/upgrade.pl.
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
CREATE FUNCTION u.handle(m sweep.message) RETURNS void LANGUAGE sql AS $$ SELECT $$;
SELECT sweep.create_job('of sql', batch_sql => 'DELETE FROM u.row WHERE id IN (SELECT id FROM u.row ORDER BY id LIMIT $1)', schedule => '@yearly', timezone => 'Europe/Berlin',
	batch_size => 10, description => 'a word', run_as => 'jobber');
SELECT sweep.create_job('of steps', step => 'u.step', cursor => 'drain', args => '{"a": 1}', children => '{"of sql": "1 day"}');
SELECT sweep.create_job('of items', step => 'u.items', pick => 'u.pick', rescue => 'u.rescue', transaction => 'row', row_retries => 0);
SELECT sweep.create_job('divided', step => 'u.step', buckets => 3, timeout => '1 min');
SELECT sweep.create_job('paused', step => 'u.step', schedule => '@daily', paused => true);
SELECT sweep.pause_all();
CALL sweep.run('of steps');
CALL sweep.run('of items');
SELECT sweep.create_queue('plain'), sweep.create_queue('keyed', key_policy => 'while_queued_or_running', max_attempts => 1, keep_done => '1 day');
SELECT sweep.send('plain', '{"n": 1}'), sweep.send('plain', '{"n": 2}', delay => '1 day', priority => 3), sweep.send('keyed', '{"n": 3}', key => 'k');
SELECT sweep.send_many('keyed', ARRAY['{"n": 4}', '{"n": 5}']::jsonb[], ARRAY['a', 'b']);
SELECT sweep.fail(lease, 'no good') FROM sweep.claim('keyed', 1);
SELECT sweep.ack(lease) FROM sweep.claim('keyed', 1);
SELECT sweep.grant_queue('plain', 'jobber', ARRAY['send', 'consume']);
SELECT sweep.create_consumer('plain', 'u.handle', concurrency => 2);
SELECT sweep.begin_once('once');
