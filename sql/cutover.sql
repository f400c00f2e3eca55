-- room: api
-- After a cutover by logical replication the rows are there and the sequences begin anew: sweep.resume_all sets them right. And what
-- pg_sweep.max_wait cuts.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
SELECT sweep.create_queue('cutover', keep_done => '1 day', max_attempts => 1);
-- ids of waiting messages in two lanes, of dead and of kept ones
SELECT count(sweep.send('cutover', '1', priority => p)) FROM generate_series(-8, 7, 15) AS p;
SELECT count(sweep.send('cutover', '1', delay => '1 hour'));
SELECT count(sweep.fail(lease)) FROM sweep.claim('cutover');
SELECT count(sweep.ack(lease)) FROM sweep.claim('cutover');
-- every sequence of the extension is among them
SELECT c.oid::regclass FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pg_sweep'
	WHERE c.relkind = 'S' AND c.oid NOT IN (SELECT u.sequence::regclass FROM sweep._used_numbers() AS u);
CREATE TEMP TABLE before AS SELECT u.sequence, pg_sequence_last_value(u.sequence::regclass) AS last, u.used FROM sweep._used_numbers() AS u;
-- none moves where nothing is wrong
SELECT sweep._set_sequences();
SELECT b.sequence FROM before b WHERE pg_sequence_last_value(b.sequence::regclass) IS DISTINCT FROM b.last;
-- as on a subscriber
SELECT count(setval('sweep.queue_message_message_id_seq', 1, false)), count(setval('sweep.queue_queue_id_seq', 1, false));
SELECT sweep.resume_all();
SELECT nextval('sweep.queue_message_message_id_seq') > b.used AS behind_all, b.used = b.last AS was_last FROM before b WHERE b.sequence = 'sweep.queue_message_message_id_seq';
SELECT nextval('sweep.queue_queue_id_seq') > b.used AS behind_all FROM before b WHERE b.sequence = 'sweep.queue_queue_id_seq';
SELECT sweep.create_queue('cutover_next');
SELECT count(sweep.send('cutover_next', '1'));
-- ids that are kept alone
SELECT sweep.purge_queue('cutover');
DELETE FROM sweep.queue_dead d USING sweep.queue q WHERE q.queue_id = d.queue_id AND q.name = 'cutover';
SELECT sweep.purge_queue('cutover_next');
SELECT u.used = (SELECT max(d.message_id) FROM sweep.queue_done d) AS of_kept FROM sweep._used_numbers() AS u WHERE u.sequence = 'sweep.queue_message_message_id_seq';

-- ---------------------------------------------------------------- a resumed job that is held back all the same
SELECT sweep.create_job('cutover', NULL, 'SELECT 1', paused => true);
SELECT sweep.pause_all();
SELECT sweep.resume('cutover');
SELECT sweep.resume_all();
SELECT sweep.resume('cutover');
UPDATE sweep.job_state SET database = 1 WHERE job = 'cutover';
SELECT sweep.resume('cutover');
SELECT sweep.drop_job('cutover');

-- ---------------------------------------------------------------- pg_sweep.max_wait
SET pg_sweep.max_wait = '10 ms';
CALL sweep.wait_for_message('cutover_next', '10 min');
SET pg_sweep.max_wait = 0;
CALL sweep.wait_for_message('cutover_next', '10 min');
RESET pg_sweep.max_wait;
CALL sweep.wait_for_message('cutover_next', '10 ms');
SHOW pg_sweep.max_wait;
CREATE ROLE regress_sweep_cutover;
SET ROLE regress_sweep_cutover;
SET pg_sweep.max_wait = -1;
RESET ROLE;
DROP ROLE regress_sweep_cutover;
SELECT sweep.drop_queue('cutover'), sweep.drop_queue('cutover_next');
