-- room: base
-- The longest intervals there are, and infinite ones from version 17 on: wherever one becomes a number of
-- microseconds, it is a thousand years at most and nothing overflows. And moments that are none.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
SELECT CASE WHEN current_setting('server_version_num')::int >= 170000 THEN 'infinity' ELSE '178000000 years' END AS forever,
	CASE WHEN current_setting('server_version_num')::int >= 170000 THEN '-infinity' ELSE '-178000000 years' END AS before \gset
SET client_min_messages = notice;

-- waiting for a run: until it has ended, and not until a moment that has overflowed into the past
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0') AS made \gset
SELECT sweep.start('long_times', delay => '1 year') AS run_id \gset
SET statement_timeout = '300ms';
\set VERBOSITY terse
CALL sweep.wait(:run_id, '300000 years');
CALL sweep.wait(:run_id, :'forever');
CALL sweep.wait(:run_id, '2562047788 hours');
RESET statement_timeout;
-- and not at all
\set VERBOSITY sqlstate
CALL sweep.wait(:run_id, '0');
CALL sweep.wait(:run_id, :'before');
CALL sweep.wait(:run_id, '-300000 years');
\set VERBOSITY terse
UPDATE sweep.run_live SET status = 'succeeded', stop_reason = 'drained', started_at = now(), finished_at = now() WHERE run_id = :run_id;
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CALL sweep.wait(:run_id, :'forever');
\echo :SQLSTATE
SELECT sweep.drop_job('long_times') AS dropped \gset
DELETE FROM sweep.run_live WHERE job = 'long_times';

-- queues: visibility, backoff, keep_done, delay, and the time of a claim
SELECT sweep.create_queue('long_times', visibility => :'forever', backoff => :'forever', keep_done => :'forever');
SELECT sweep.send('long_times', '1', delay => :'forever') > 0 AS sent;
SELECT due_at BETWEEN now() + interval '999 years' AND now() + interval '1001 years' AS late FROM sweep.queue_message JOIN sweep.queue USING (queue_id) WHERE name = 'long_times';
SELECT sweep.purge_queue('long_times');
SELECT sweep.send_many('long_times', '{1,2}');
SELECT lease FROM sweep.claim('long_times') \gset
SELECT sweep.extend(:'lease', :'forever'), sweep.extend(:'lease', '300000 years');
SELECT sweep.ack(:'lease');
SELECT lease FROM sweep.claim('long_times', 1, :'forever') \gset
SELECT ready, in_flight FROM sweep.queues WHERE queue = 'long_times';
SELECT sweep.fail(:'lease');
SELECT ready, delayed, in_flight FROM sweep.queues WHERE queue = 'long_times';
SET statement_timeout = '300ms';
\set VERBOSITY terse
CALL sweep.wait_for_message('long_times', :'forever');
RESET statement_timeout;
CALL sweep.wait_for_message('long_times', :'before');
\set VERBOSITY sqlstate
SELECT sweep.send('long_times', '1', delay => :'before');
SELECT sweep.claim('long_times', 1, :'before');
SELECT sweep.extend(:'lease', :'before');
SELECT sweep.create_queue('long_times 2', visibility => :'before');
SELECT sweep.create_queue('long_times_2', backoff => :'before');
SELECT sweep.create_queue('long_times_2', keep_done => :'before');
SELECT sweep.drop_queue('long_times');

-- jobs: all of them are limited
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', stop_after => :'forever');
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', timeout => :'forever');
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', lock_retry_delay => :'forever');
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', jitter => :'forever');
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', buckets => 2, bucket_recovery => :'forever');
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', on_start => jsonb_build_object('x', :'forever'));
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', stop_after => :'before');
SELECT sweep.create_job('long_times', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0');
SELECT sweep.start('long_times', delay => :'forever');
SELECT sweep.start('long_times', delay => :'before');

-- the clock of a run is a moment
\set VERBOSITY default
SELECT sweep.alter_job('long_times', '{"args": {"as_of": "infinity"}}');
SELECT sweep.start('long_times', '{"as_of": "-infinity"}');
CALL sweep.run('long_times', '{"as_of": "infinity"}');
CALL sweep.run('long_times', '{"as_of": 20260101}');
SELECT * FROM sweep.preview('long_times', '{"as_of": "infinity"}');
CALL sweep.run('long_times', '{"as_of": "294276-12-31T23:59:59Z"}');
CALL sweep.run('long_times', '{"as_of": null}');
SELECT count(*) FROM sweep.next_runs('@daily', 'UTC', 'infinity');
SELECT count(*) FROM sweep.next_runs('@daily', 'UTC', '-infinity');
SELECT sweep.drop_job('long_times');
DELETE FROM sweep.run_live WHERE job = 'long_times';
DELETE FROM sweep.run_history WHERE job = 'long_times';
