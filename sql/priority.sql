-- room: api
-- The priority of a job: who may go before others, and in which order runs are listed that may start.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS priority CASCADE;
CREATE SCHEMA priority;
GRANT USAGE ON SCHEMA priority TO PUBLIC;
CREATE FUNCTION priority.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE ROLE regress_sweep_priority_user LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_priority_operator LOGIN IN ROLE sweep_user, sweep_operator;

-- whoever has the rights of an operator may go before others; anybody else only behind
SET ROLE regress_sweep_priority_user;
SELECT sweep.create_job('priority first', step => 'priority.step', priority => 1);
SELECT sweep.create_job('priority last', step => 'priority.step', priority => -1);
SELECT sweep.alter_job('priority last', '{"priority": 1}');
SELECT sweep.alter_job('priority last', '{"priority": -2}');
SET ROLE regress_sweep_priority_operator;
SELECT sweep.create_job('priority first', step => 'priority.step', priority => 1);
SELECT sweep.create_job('priority too high', step => 'priority.step', priority => 101);
SELECT sweep.create_job('priority too low', step => 'priority.step', priority => -101);
SELECT sweep.create_job('priority null', step => 'priority.step', priority => NULL);
SELECT sweep.alter_job('priority first', '{"priority": 2.5}');
RESET ROLE;
SELECT name, priority FROM sweep.job WHERE name LIKE 'priority%' ORDER BY name;

-- one that was given a priority keeps it whatever else its owner changes
REVOKE sweep_operator FROM regress_sweep_priority_operator;
SET ROLE regress_sweep_priority_operator;
SELECT sweep.alter_job('priority first', '{"batch_size": 10}');
SELECT sweep.alter_job('priority first', '{"priority": 3}');
RESET ROLE;

-- listed by priority, then by due time (in a transaction, so that the scheduler does not see these runs)
SELECT sweep.create_job('priority middle', step => 'priority.step');
BEGIN;
INSERT INTO sweep.run_live (job, run_as, trigger, due_at)
	SELECT j.name, j.run_as, 'manual', '2026-01-01 00:00Z'::timestamptz + j.priority * interval '1 min' FROM sweep.job j WHERE j.name LIKE 'priority%';
SELECT job FROM sweep._startable_runs('2026-01-02 00:00Z') WHERE job LIKE 'priority%';
ROLLBACK;

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'priority%';
DROP SCHEMA priority CASCADE;
DROP ROLE regress_sweep_priority_user, regress_sweep_priority_operator;
