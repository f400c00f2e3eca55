-- Environments that the consumer has kept are looked at again when something about them changes,
-- and what is remembered of them goes with them.
\set ECHO none
\i gitlab/test/include/gitlab.sql
SELECT count(*) FROM sweep_gitlab.install('gitlab', paused => true) WHERE job = 'environments_auto_stop';
DELETE FROM sweep_gitlab.kept;
CREATE PROCEDURE pg_temp.environment(id bigint, auto_stop_setting int DEFAULT 1) LANGUAGE sql AS $$
	INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at, auto_stop_setting)
		VALUES (id, id + 1000, 'e' || id, 'e' || id, '2025-12-01Z', auto_stop_setting);
$$;
-- a run: what it sends; then the consumer handles it: what becomes of these
CREATE FUNCTION pg_temp.run(OUT sent text, OUT became text, OUT kept text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM sweep_gitlab.environments_auto_stop(ROW(100, NULL, j.args, '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch)
		FROM sweep.job j WHERE j.name = 'environments_auto_stop';
	SELECT string_agg(q.key, ' ' ORDER BY q.message_id) INTO sent FROM sweep.queue_message q;
	PERFORM sweep_gitlab.stop_environment(ARRAY(SELECT ROW(q.message_id, 'environments_auto_stop', q.payload, q.key, 1, NULL, q.sent_at, NULL)::sweep.message
		FROM sweep.queue_message q ORDER BY q.message_id));
	DELETE FROM sweep.queue_message;
	SELECT string_agg(format('%s:%s', e.id, e.state), ' ' ORDER BY e.id) INTO became FROM gitlab.environments e WHERE e.id::text = ANY (string_to_array(sent, ' '));
	SELECT string_agg(environment_id::text, ' ' ORDER BY environment_id) INTO kept FROM sweep_gitlab.kept_environment;
END
$$;
DO $$ BEGIN FOR i IN 1 .. 9 LOOP CALL pg_temp.environment(i); END LOOP; END $$;
-- without an action each is sent once, and kept
SELECT * FROM pg_temp.run();
SELECT * FROM pg_temp.run();
-- its setting, its auto_stop_at, its state, and its end
UPDATE gitlab.environments SET auto_stop_setting = 0 WHERE id = 1;
UPDATE gitlab.environments SET auto_stop_at = '2025-12-02Z' WHERE id = 2;
UPDATE gitlab.environments SET state = 'stopped', auto_stop_at = NULL WHERE id = 3;
DELETE FROM gitlab.environments WHERE id = 4;
UPDATE gitlab.environments SET auto_stop_at = NULL WHERE id = 5;
SELECT * FROM pg_temp.run();
-- one that becomes available again is asked for anew
UPDATE gitlab.environments SET state = 'available', auto_stop_at = '2025-12-01Z' WHERE id IN (3, 5);
SELECT * FROM pg_temp.run();

-- a stop action is named
CREATE TABLE gitlab.actions (environment_id bigint, started int DEFAULT 0);
INSERT INTO gitlab.actions VALUES (2);
CREATE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE sql STABLE AS
	'SELECT EXISTS (SELECT FROM gitlab.actions a WHERE a.environment_id = $1)';
SELECT sweep.alter_job(name, jsonb_build_object('args', args || '{"stop_action": "gitlab.stop_action"}')) FROM sweep.job WHERE name = 'environments_auto_stop';
SELECT * FROM pg_temp.run();
SELECT * FROM pg_temp.run();
-- its answer changes
INSERT INTO gitlab.actions VALUES (3);
SELECT * FROM pg_temp.run();
-- another function, which also starts the action: only the consumer has it done so, and once
CREATE OR REPLACE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	UPDATE gitlab.actions a SET started = started + 1 WHERE a.environment_id = $1;
	RETURN FOUND;
END
$$;
INSERT INTO gitlab.actions VALUES (5);
SELECT * FROM pg_temp.run();
TABLE gitlab.actions ORDER BY environment_id;
SHOW transaction_read_only;
-- one that does something whenever it is asked, has it undone; what it answers counts
CREATE TABLE gitlab.asked (environment_id bigint);
CREATE OR REPLACE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('regress.asked', 'yes', false);
	RETURN NULL;
END
$$;
SELECT * FROM pg_temp.run();
SELECT coalesce(current_setting('regress.asked', true), '') AS asked;
-- one that writes into a table of its own before it looks is asked again where it may write, and that is undone: no is no. It finds its
-- tables as it does when the consumer asks, and can see that it is only asked
CREATE OR REPLACE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO asked VALUES (environment_id);
	PERFORM set_config('regress.asked', concat_ws(' ', current_setting('regress.asked', true), coalesce(nullif(current_setting('sweep_gitlab.only_asks', true), ''), 'off')), false);
	RETURN EXISTS (SELECT FROM actions a WHERE a.environment_id = $1);
END
$$;
SELECT * FROM pg_temp.run();
SELECT * FROM pg_temp.run();
SELECT count(*), coalesce(nullif(current_setting('regress.asked', true), ''), 'undone') AS setting FROM gitlab.asked;
INSERT INTO gitlab.actions VALUES (6);
SELECT * FROM pg_temp.run();
SELECT string_agg(environment_id::text, ' ') AS asked, current_setting('regress.asked') AS only_asks FROM gitlab.asked;
-- one that stops the environment itself is told from it, whatever it answers, and what it has made of it stays
CREATE OR REPLACE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO asked VALUES (environment_id);
	UPDATE environments SET state = 'stopped', auto_stop_at = NULL WHERE id = environment_id AND id < 9;
	RETURN environment_id = 7;
END
$$;
SELECT * FROM pg_temp.run();
SELECT * FROM pg_temp.run();
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at, auto_stop_setting) VALUES (10, 1, '10', '10', '2025-12-01Z', 1);
SELECT * FROM pg_temp.run();
-- one that cannot say is for the consumer to fail with
CREATE OR REPLACE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cannot say'; END $$;
SELECT * FROM pg_temp.run();
SELECT sweep_gitlab.review_kept_environments(ROW(100, NULL, j.args, '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch) FROM sweep.job j WHERE j.name = 'environments_auto_stop';
TABLE sweep_gitlab.kept_environment;

-- however many are kept, a batch reads those that it comes across, and the consumer reads the row of its job
CREATE FUNCTION pg_temp.reads(relation regclass) RETURNS bigint LANGUAGE sql AS
	$$ SELECT pg_stat_get_xact_tuples_returned(relation) + pg_stat_get_xact_tuples_fetched(relation) $$;
BEGIN;
INSERT INTO sweep_gitlab.kept SELECT id, '2025-12-01Z'::timestamptz + id * interval '1 s', current_user FROM generate_series(1001, 4000) AS id;
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at, auto_stop_setting)
	SELECT id, 1, id, id, '2025-12-01Z'::timestamptz + id * interval '1 s', 1 FROM generate_series(1001, 4010) AS id;
INSERT INTO sweep.job_definition SELECT (jsonb_populate_record(j, jsonb_build_object('name', 'kept ' || n))).* FROM sweep.job_definition j, generate_series(1, 200) AS n WHERE j.name = 'environments_auto_stop';
SELECT pg_temp.reads('sweep_gitlab.kept') AS before \gset
SELECT p.rows, p.cursor FROM sweep.job j, sweep_gitlab.environments_auto_stop(ROW(5, '{"auto_stop_at": "2025-12-01 01:06:30Z", "id": 1}', j.args, '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch) AS p
	WHERE j.name = 'environments_auto_stop';
SELECT pg_temp.reads('sweep_gitlab.kept') - :before < 100 AS few;
-- within a run: those that are not kept for the moment that they have now; also along the ids of one moment
UPDATE gitlab.environments SET auto_stop_at = '2025-12-01 01:06:30Z' WHERE id BETWEEN 3990 AND 3995;
UPDATE gitlab.environments SET state = 'stopped' WHERE id = 3992;
UPDATE gitlab.environments SET auto_stop_at = '2025-12-01 01:06:41Z' WHERE id = 3999;
SELECT upto, p.rows, p.cursor FROM sweep.job j, unnest(ARRAY['{"upto": 5000}', '{}']::jsonb[]) AS upto,
		sweep_gitlab.environments_auto_stop(ROW(5, '{"auto_stop_at": "2025-12-01 01:06:30Z", "id": 3989}' || upto, j.args, '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch) AS p
	WHERE j.name = 'environments_auto_stop' ORDER BY upto;
SELECT string_agg(key, ' ' ORDER BY key) AS sent FROM sweep.queue_message;
SELECT pg_temp.reads('sweep.job_definition') AS jobs_before \gset
SELECT sweep_gitlab.stop_environment(ARRAY[ROW(1, 'environments_auto_stop', '{"environment_id": 0}', '0', 1, NULL, now(), NULL)::sweep.message]);
SELECT pg_temp.reads('sweep.job_definition') - :jobs_before < 100 AS few;
ROLLBACK;

-- what was kept for a job of another role is not this job's
CREATE OR REPLACE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
SELECT * FROM pg_temp.run();
UPDATE sweep_gitlab.kept SET run_as = 'regress_sweep_gone';
SELECT * FROM pg_temp.run();
SELECT * FROM pg_temp.run();

-- it is forgotten when it is not available any more, though nothing else has changed
BEGIN;
UPDATE gitlab.environments SET state = 'stopping' WHERE id = 9;
SELECT sweep_gitlab.review_kept_environments(ROW(100, NULL, j.args - 'stop_action', '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch) FROM sweep.job j WHERE j.name = 'environments_auto_stop';
SELECT environment_id FROM sweep_gitlab.kept_environment;
ROLLBACK;
-- the consumer neither asks for nor keeps what was stopped meanwhile, is not due any more, or was not sent; with an action, and without
BEGIN;
TRUNCATE gitlab.asked, sweep_gitlab.kept;
CREATE OR REPLACE FUNCTION gitlab.stop_action(environment_id bigint) RETURNS boolean LANGUAGE sql AS 'INSERT INTO gitlab.asked VALUES ($1) RETURNING false';
INSERT INTO gitlab.environments (id, project_id, name, slug, auto_stop_at, auto_stop_setting, state)
	VALUES (20, 1, '20', '20', '2025-12-01Z', 1, 'stopped'), (21, 1, '21', '21', '2125-12-01Z', 1, 'available'), (22, 1, '22', '22', '2025-12-01Z', 1, 'available'), (23, 1, '23', '23', '2025-12-01Z', 1, 'available');
CREATE FUNCTION pg_temp.stop() RETURNS void LANGUAGE sql AS $$
	SELECT sweep_gitlab.stop_environment(array_agg(ROW(id, 'environments_auto_stop', jsonb_build_object('environment_id', id), id, 1, NULL, now(), NULL)::sweep.message)) FROM unnest('{20,21,23}'::int[]) AS id
$$;
SELECT pg_temp.stop();
SELECT array(SELECT environment_id FROM gitlab.asked ORDER BY 1) AS asked, array(SELECT environment_id FROM sweep_gitlab.kept ORDER BY 1) AS kept;
TRUNCATE sweep_gitlab.kept;
SELECT sweep.alter_job(name, jsonb_build_object('args', args - 'stop_action')) FROM sweep.job WHERE name = 'environments_auto_stop';
SELECT pg_temp.stop();
SELECT array(SELECT environment_id FROM sweep_gitlab.kept ORDER BY 1) AS kept;
ROLLBACK;

-- only who may start the job has it forget
CREATE ROLE regress_sweep_stranger LOGIN;
GRANT sweep_user TO regress_sweep_stranger;
SET ROLE regress_sweep_stranger;
SELECT sweep_gitlab.forget_environments('{6}');
-- nor is anybody else told of them, by the answer or by what is read
BEGIN;
SELECT pg_temp.reads('sweep_gitlab.kept') AS before \gset
SELECT sweep_gitlab.kept_until(9), sweep_gitlab.environments_args(), pg_temp.reads('sweep_gitlab.kept') - :before AS reads;
COMMIT;
RESET ROLE;
SELECT sweep_gitlab.kept_until(9), sweep_gitlab.kept_until(1), sweep_gitlab.environments_args() ->> 'schema' AS schema;
SELECT count(*) FROM sweep_gitlab.uninstall();
DROP SCHEMA gitlab, gitlab_partitions_dynamic CASCADE;
DROP ROLE regress_sweep_stranger;
