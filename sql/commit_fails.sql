-- room: engine
-- A commit within CALL that fails, with an error longer than any buffer: the session gets it, the server stays up.
\set SHOW_CONTEXT never
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS commit_fails CASCADE;
CREATE SCHEMA commit_fails;
DROP ROLE IF EXISTS regress_sweep_commit_fails;
CREATE ROLE regress_sweep_commit_fails LOGIN IN ROLE sweep_user;
GRANT ALL ON SCHEMA commit_fails TO regress_sweep_commit_fails;
SELECT sweep.create_queue('commit_fails');
GRANT sweep_client TO regress_sweep_commit_fails;
SELECT sweep.grant_queue('commit_fails', 'regress_sweep_commit_fails', '{consume}');
SELECT sweep.send('commit_fails', '{}') > 0 AS sent;
RESET client_min_messages;

\set superuser :USER
\c - regress_sweep_commit_fails
CREATE TABLE commit_fails.item (id int);
CREATE FUNCTION commit_fails.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION USING MESSAGE = repeat('message ', 100000), DETAIL = repeat('detail ', 100000), HINT = repeat('hint ', 100000),
		ERRCODE = 'P0043';
END
$$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON commit_fails.item DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION commit_fails.refuse();
CREATE FUNCTION commit_fails.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF b.args ? 'fails' THEN
		INSERT INTO commit_fails.item VALUES (1);
	END IF;
	RETURN ROW(0, NULL, NULL)::sweep.progress;
END
$$;
CREATE FUNCTION commit_fails.due_to_fail(value anyelement) RETURNS anyelement LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO commit_fails.item VALUES (1);
	RETURN value;
END
$$;
SELECT sweep.create_job('commit_fails', step => 'commit_fails.step') AS created \gset

CALL sweep.run('commit_fails', '{"fails": true}');
CALL sweep.run('commit_fails', '{"fails": true}');
CALL sweep.run('commit_fails', '{"fails": true}');
CALL sweep.run('commit_fails', '{"fails": true}');
CALL sweep.run('commit_fails', '{"fails": true}');
CALL sweep.run('commit_fails', '{"fails": true}');
CALL sweep.run('commit_fails');

-- the first thing that the waits do is to commit what their arguments did
SELECT max(run_id) AS run_id FROM sweep.runs WHERE job = 'commit_fails' \gset
CALL sweep.wait(commit_fails.due_to_fail(:run_id), '0');
CALL sweep.wait(commit_fails.due_to_fail(:run_id), '0');
CALL sweep.wait(:run_id);
CALL sweep.wait_for_message(commit_fails.due_to_fail('commit_fails'::text), '0');
CALL sweep.wait_for_message(commit_fails.due_to_fail('commit_fails'::text), '0');
CALL sweep.wait_for_message('commit_fails', '1 min');

SELECT status, stop_reason, sqlstate, error LIKE 'message message %' AS told, count(*) FROM sweep.runs WHERE job = 'commit_fails'
	GROUP BY 1, 2, 3, 4 ORDER BY 1;
SELECT count(*) AS items FROM commit_fails.item;

\c - :superuser
SET client_min_messages = warning;
SELECT sweep.drop_job('commit_fails'), sweep.drop_queue('commit_fails');
DELETE FROM sweep.run_live WHERE job = 'commit_fails';
DELETE FROM sweep.run_history WHERE job = 'commit_fails';
DROP SCHEMA commit_fails CASCADE;
DROP OWNED BY regress_sweep_commit_fails;
DROP ROLE regress_sweep_commit_fails;
