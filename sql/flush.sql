-- room: engine
-- Which commits of a run wait for the disk: none but the last one, each of them, or those that other servers take part in.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS flush CASCADE;
CREATE SCHEMA flush;
CREATE TABLE flush.done (nth int);
CREATE TABLE flush.commit (nth int, synchronous_commit text);
-- a deferred trigger sees what the commit will go by
CREATE FUNCTION flush.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO flush.commit VALUES (new.nth, current_setting('synchronous_commit'));
	RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON flush.done DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION flush.note();
CREATE FUNCTION flush.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	n int := coalesce((b.cursor #>> '{}')::int, 0) + 1;
BEGIN
	INSERT INTO flush.done VALUES (n);
	RETURN ROW(CASE WHEN n < 3 THEN 1 ELSE 0 END, to_jsonb(n), NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('flush', step => 'flush.step');
CREATE PROCEDURE flush.show() LANGUAGE plpgsql AS $$
BEGIN
	RAISE WARNING '%', (SELECT string_agg(c.synchronous_commit, ' ' ORDER BY c.nth) FROM flush.commit AS c);
	DELETE FROM flush.commit;
END
$$;
SET synchronous_commit = local;

CALL sweep.run('flush');
CALL flush.show();
SELECT sweep.alter_job('flush', '{"flush": "batch"}');
CALL sweep.run('flush');
CALL flush.show();

-- a library that talks to other servers is loaded from now on
LOAD 'dblink';
SELECT sweep.alter_job('flush', '{"flush": null}');
CALL sweep.run('flush');
CALL flush.show();
SELECT sweep.alter_job('flush', '{"flush": "run"}');
CALL sweep.run('flush');
CALL flush.show();

RESET synchronous_commit;
SELECT sweep.drop_job('flush');
DELETE FROM sweep.run_live WHERE job = 'flush';
DELETE FROM sweep.run_history WHERE job = 'flush';
DROP SCHEMA flush CASCADE;
