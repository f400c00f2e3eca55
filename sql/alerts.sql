-- room: engine
-- Alerts: which messages the alert_queue of a job gets, that nothing about it keeps an outcome from being recorded, and
-- who may name a queue.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS alerts CASCADE;
CREATE SCHEMA alerts;
GRANT USAGE ON SCHEMA alerts TO PUBLIC;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 6500000, false);
CREATE ROLE regress_alerts LOGIN IN ROLE sweep_user;
CREATE ROLE regress_alerts_owner LOGIN IN ROLE sweep_user;
CREATE FUNCTION alerts.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF b.args ? 'fail' THEN
		RAISE EXCEPTION 'as asked' USING DETAIL = 'a detail';
	END IF;
	RETURN ROW(0, NULL, NULL)::sweep.progress;
END
$$;
-- What is in the queue, which is empty then.
CREATE FUNCTION alerts.taken(queue text DEFAULT 'alerts') RETURNS SETOF text LANGUAGE sql AS $$
	WITH gone AS (DELETE FROM sweep.queue_message m USING sweep.queue q WHERE q.queue_id = m.queue_id AND q.name = queue RETURNING m.*)
	SELECT jsonb_pretty(payload - 'since') || CASE WHEN (payload ->> 'since')::timestamptz BETWEEN now() - interval '1 min' AND clock_timestamp() THEN '' ELSE ' when?' END
		FROM gone ORDER BY message_id
$$;
RESET client_min_messages;
SET ROLE regress_alerts_owner;
SELECT sweep.create_queue('alerts');
RESET ROLE;
SELECT sweep.create_job('alerts', step => 'alerts.step', alert_queue => 'alerts');

-- ------------------------------------------------------------------ failed: once per run, and not before its last attempt
CALL sweep.run('alerts');
SELECT alerts.taken();
CALL sweep.run('alerts', '{"fail": 1}');
SELECT alerts.taken();
SELECT sweep.alter_job('alerts', '{"max_attempts": 2}');
CALL sweep.run('alerts', '{"fail": 1}');
SELECT alerts.taken();
SELECT sweep.alter_job('alerts', '{"max_attempts": 1}');
BEGIN;
INSERT INTO sweep.run_live (job, trigger, due_at, started_at, status, pid) VALUES ('alerts', 'manual', now(), now(), 'running', 0);
SELECT sweep._mark_lost() > 0 AS lost;
SELECT alerts.taken();
ROLLBACK;
BEGIN;
INSERT INTO sweep.run_live (job, trigger, due_at) VALUES ('alerts', 'manual', 'infinity') RETURNING run_id \gset
SELECT sweep._fail_start(:run_id, 'cancelled', NULL, NULL);
SELECT alerts.taken();
ROLLBACK;

-- ------------------------------------------------------------------ broken: when it becomes so, when it is so for another reason, when it ends
SELECT sweep.alter_job('alerts', '{"schedule": "@yearly"}');
BEGIN;
ALTER FUNCTION alerts.step RENAME TO moved;
UPDATE sweep.job_state SET next_due = now() - interval '2 s', next_start = now() - interval '2 s' WHERE job = 'alerts';
SELECT sweep._enqueue_due(now(), 1000) > 0 AS due;
SELECT alerts.taken();
-- it still is
UPDATE sweep.job_state SET next_due = now() - interval '2 s', next_start = now() - interval '2 s' WHERE job = 'alerts';
SELECT sweep._enqueue_due(now(), 1000) > 0 AS due;
SELECT alerts.taken();
ALTER FUNCTION alerts.moved RENAME TO step;
UPDATE sweep.job_definition SET timezone = 'No/Where' WHERE name = 'alerts';
UPDATE sweep.job_state SET next_due = now() - interval '2 s', next_start = now() - interval '2 s' WHERE job = 'alerts';
SELECT sweep._enqueue_due(now(), 1000) > 0 AS due;
SELECT alerts.taken();
SAVEPOINT s;
UPDATE sweep.job_definition SET timezone = 'UTC' WHERE name = 'alerts';
UPDATE sweep.job_state SET next_due = now() - interval '2 s', next_start = now() - interval '2 s' WHERE job = 'alerts';
SELECT sweep._enqueue_due(now(), 1000) > 0 AS due;
SELECT alerts.taken();
ROLLBACK TO s;
-- also when it is dropped
SELECT sweep.drop_job('alerts');
SELECT alerts.taken();
ROLLBACK;

-- ------------------------------------------------------------------ nothing keeps the outcome from being recorded
BEGIN;
SELECT sweep.drop_queue('alerts');
COMMIT;
CALL sweep.run('alerts', '{"fail": 1}');
SELECT status, error FROM sweep.runs WHERE job = 'alerts' ORDER BY run_id DESC LIMIT 1;
SET ROLE regress_alerts_owner;
SELECT sweep.create_queue('alerts');
RESET ROLE;
-- what raises when it is sent
CREATE INDEX alerts_refused ON sweep.queue_message ((1 / (payload ->> 'kind' <> 'failed')::int));
CALL sweep.run('alerts', '{"fail": 1}');
DROP INDEX sweep.alerts_refused;
SELECT status, error FROM sweep.runs WHERE job = 'alerts' ORDER BY run_id DESC LIMIT 1;
SELECT alerts.taken();

-- ------------------------------------------------------------------ who may name a queue: whoever the job runs as may send there
SELECT sweep.create_job('alerts x', step => 'alerts.step', alert_queue => 'alert');
SELECT sweep.create_job('alerts x', step => 'alerts.step', alert_queue => '');
SELECT sweep.create_job('alerts of a role', step => 'alerts.step', run_as => 'regress_alerts');
SELECT sweep.alter_job('alerts of a role', '{"alert_queue": "alerts"}');
SELECT sweep.alter_job('alerts', '{"run_as": "regress_alerts"}');
SELECT current_user AS superuser \gset
\c - regress_alerts
SELECT sweep.alter_job('alerts of a role', '{"alert_queue": "alerts"}');
SELECT sweep.create_job('alerts x', step => 'alerts.step', alert_queue => 'alerts');
\c - :superuser
SELECT sweep.grant_queue('alerts', 'regress_alerts', '{send}');
\c - regress_alerts
SELECT sweep.alter_job('alerts of a role', '{"alert_queue": "alerts"}');
CALL sweep.run('alerts of a role', '{"fail": 1}');
\c - :superuser
SELECT alerts.taken();
-- as long as it may
SELECT sweep.revoke_queue('alerts', 'regress_alerts', '{send}');
\c - regress_alerts
CALL sweep.run('alerts of a role', '{"fail": 1}');
\c - :superuser
SELECT alerts.taken();

-- ------------------------------------------------------------------ another queue of that name is told nothing: neither by a superuser's job, which may send to all, nor by one that was let
CREATE ROLE regress_alerts_mallory LOGIN IN ROLE sweep_user;
SELECT sweep.grant_queue('alerts', 'regress_alerts', '{send}');
\c - regress_alerts
SELECT sweep.alter_job('alerts of a role', '{"alert_queue": "alerts"}');
\c - :superuser
SELECT sweep.drop_queue('alerts');
SET ROLE regress_alerts_mallory;
SELECT sweep.create_queue('alerts'), sweep.grant_queue('alerts', 'regress_alerts', '{send}');
RESET ROLE;
CALL sweep.run('alerts', '{"fail": 1}');
\c - regress_alerts
CALL sweep.run('alerts of a role', '{"fail": 1}');
SELECT sweep.alter_job('alerts of a role', '{"batch_size": 7}');
CALL sweep.run('alerts of a role', '{"fail": 1}');
\c - :superuser
SELECT alerts.taken();
-- unless it is named again
\c - regress_alerts
SELECT sweep.alter_job('alerts of a role', '{"alert_queue": "alerts"}');
CALL sweep.run('alerts of a role', '{"fail": 1}');
\c - :superuser
SELECT count(*) FROM alerts.taken();
-- or its owner sees the runs
SELECT sweep.drop_queue('alerts');
\c - regress_alerts
SELECT sweep.create_queue('alerts');
CALL sweep.run('alerts of a role', '{"fail": 1}');
\c - :superuser
SELECT count(*) FROM alerts.taken();

SET client_min_messages = warning;
SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'alerts%';
SELECT sweep.drop_queue('alerts');
DROP ROLE regress_alerts_mallory;
DELETE FROM sweep.run_live WHERE job LIKE 'alerts%';
DELETE FROM sweep.run_history WHERE job LIKE 'alerts%';
DROP SCHEMA alerts CASCADE;
REVOKE sweep_client FROM regress_alerts;
DROP ROLE regress_alerts, regress_alerts_owner;
