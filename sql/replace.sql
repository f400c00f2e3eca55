-- room: job
-- replace => true of sweep.create_job and sweep.create_queue: what becomes of what is there. That a script run twice
-- changes nothing, while a job runs, is in test/t/deploy.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS replace CASCADE;
CREATE SCHEMA replace;
CREATE ROLE regress_replace LOGIN IN ROLE sweep_user;
CREATE ROLE regress_replace_other LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA replace TO PUBLIC;
CREATE FUNCTION replace.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, '7'::jsonb, NULL::jsonb $$;
CREATE FUNCTION replace.other(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
-- What is different from the defaults.
CREATE VIEW replace.job AS SELECT j.name, (SELECT jsonb_object_agg(d.key, d.value) FROM jsonb_each(to_jsonb(j)) AS d, to_jsonb(o) AS o
	WHERE o -> d.key <> d.value) AS settings FROM sweep.job j, sweep.job o WHERE j.name = 'replace' AND o.name = 'replace plain';
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 6700000, false);
RESET client_min_messages;
SELECT sweep.create_job('replace plain', step => 'replace.step', lock_key => 'replace', bucket_key => 'replace');

-- ------------------------------------------------------------------ creates what is not there
SELECT sweep.create_job('replace', step => 'replace.step', schedule => '0 0 1 1 *', timezone => 'UTC', batch_size => 7, cursor => 'always', jitter => '1 h', replace => true);
SELECT * FROM replace.job;
CALL sweep.run('replace');
SELECT sweep.pause('replace');
SELECT next_due, paused_at AS paused FROM sweep.job_state WHERE job = 'replace' \gset
-- what the scheduler does with a run that has ended writes to the state of its job
DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.run_live WHERE job = 'replace') LOOP PERFORM sweep._archive_runs(true); COMMIT; END LOOP; END $$;
-- the same again: not a row is written, nor locked
SELECT j.xmin AS job, j.xmax AS lock, j.ctid AS place, s.xmin AS state, s.ctid AS state_place FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = 'replace' \gset
SELECT sweep.create_job('replace', step => 'replace.step', schedule => '0 0 1 1 *', timezone => 'UTC', batch_size => 7, cursor => 'always', jitter => '1 h', replace => true);
SELECT j.xmin::text = :'job' AND j.xmax::text = :'lock' AND j.ctid = :'place' AND s.xmin::text = :'state' AND s.ctid = :'state_place' AS untouched
	FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = 'replace';
-- what is not given has its default again; whether it is paused stays, whatever is said, and so do cursor and history
SELECT sweep.create_job('replace', step => 'replace.other', schedule => '0 0 1 1 *', timezone => 'UTC', cursor => 'always', max_rows => 5, paused => false, replace => true);
SELECT * FROM replace.job;
SELECT state, paused FROM sweep.jobs WHERE name = 'replace';
SELECT sweep._kept_cursor('replace'), (SELECT count(*) FROM sweep.runs WHERE job = 'replace') AS runs;
SELECT sweep.resume('replace');
SELECT sweep.create_job('replace', step => 'replace.other', schedule => '0 0 1 1 *', timezone => 'UTC', cursor => 'always', paused => true, replace => true);
SELECT paused FROM sweep.jobs WHERE name = 'replace';
-- a schedule that changes sets the next moment, what else changes does not
UPDATE sweep.job_state SET next_due = '2100-01-01 00:00:00Z', next_start = '2100-01-01 00:00:00Z' WHERE job = 'replace';
SELECT sweep.create_job('replace', step => 'replace.step', schedule => '0 0 1 1 *', timezone => 'UTC', cursor => 'always', replace => true);
SELECT next_due FROM sweep.job_state WHERE job = 'replace';
SELECT sweep.create_job('replace', step => 'replace.step', schedule => '@monthly', timezone => 'UTC', cursor => 'always', replace => true);
SELECT next_due < '2099-01-01' AS moved FROM sweep.job_state WHERE job = 'replace';

-- ------------------------------------------------------------------ what is wrong changes nothing
SELECT sweep.create_job('replace', step => 'replace.none', replace => true);
SELECT sweep.create_job('replace', step => 'replace.step', batch_size => 0, replace => true);
SELECT sweep.create_job('replace', step => 'replace.step', batch_sql => 'SELECT 1', replace => true);
SELECT sweep.create_job('replace', step => 'replace.step', paused => NULL, replace => true);
SELECT sweep.create_job('replace', step => 'replace.step');
SELECT sweep.create_job('replace', step => 'replace.step', replace => NULL);
SELECT * FROM replace.job;

-- ------------------------------------------------------------------ rights are those of alter_job
SELECT current_user AS superuser \gset
\c - regress_replace
SELECT sweep.create_job('replace own', step => 'replace.step', replace => true);
SELECT sweep.create_job('replace own', step => 'replace.step', replace => true);
SELECT sweep.create_job('replace own', step => 'replace.step', run_as => 'regress_replace_other', replace => true);
\c - regress_replace_other
SELECT sweep.create_job('replace own', step => 'replace.step', replace => true);
SELECT sweep.create_job('replace own', step => 'replace.step', run_as => 'regress_replace', replace => true);
\c - :superuser
-- who creates it is whom it runs as, unless it is said
SELECT sweep.create_job('replace own', step => 'replace.step', run_as => 'regress_replace', max_rows => 5, replace => true);
SELECT run_as, max_rows FROM sweep.job WHERE name = 'replace own';
SELECT sweep.create_job('replace own', step => 'replace.step', replace => true);
SELECT run_as = current_user AS ours FROM sweep.job WHERE name = 'replace own';

-- ------------------------------------------------------------------ queues
\c - regress_replace
SELECT sweep.create_queue('replace', visibility => '1 min', backoff => '00:01:00', key_policy => 'while_queued_or_running', replace => true);
SELECT sweep.send('replace', '1', key => 'k') IS NOT NULL AS sent;
SELECT sweep.grant_queue('replace', 'regress_replace_other', '{send}');
\c - :superuser
SELECT q.xmin AS queue, q.ctid AS place, s.last_value AS number FROM sweep.queue q, sweep.queue_queue_id_seq s WHERE q.name = 'replace' \gset
SELECT sweep.create_queue('replace', visibility => '60 s', backoff => '1 minute', key_policy => 'while_queued_or_running', replace => true);
SELECT q.xmin::text = :'queue' AND q.ctid = :'place' AND s.last_value = :number AS untouched, q.owner FROM sweep.queue q, sweep.queue_queue_id_seq s WHERE q.name = 'replace';
SELECT sweep.create_queue('replace', max_attempts => 3, notify => false, replace => true);
SELECT visibility, max_attempts, backoff, keep_done, notify, key_policy, owner, senders FROM sweep.queue q WHERE name = 'replace';
\c - regress_replace_other
SELECT sweep.create_queue('replace', replace => true);
SELECT sweep.send('replace', '2') IS NOT NULL AS sent;
\c - regress_replace
SELECT payload FROM sweep.claim('replace', 10);
SELECT sweep.create_queue('replace', max_attempts => 0, replace => true);
SELECT sweep.create_queue('replace');
SELECT sweep.create_queue('replace', replace => NULL);
SELECT sweep.drop_queue('replace');
\c - :superuser

SET client_min_messages = warning;
SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'replace%';
DELETE FROM sweep.run_live WHERE job LIKE 'replace%';
DELETE FROM sweep.run_history WHERE job LIKE 'replace%';
DROP SCHEMA replace CASCADE;
REVOKE sweep_client FROM regress_replace_other;
DROP ROLE regress_replace, regress_replace_other;
