-- room: makers
-- Settings of a session or a role that have nothing to do with jobs change neither what is made nor what runs do: names that are quoted
-- without need, and triggers that do not fire.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS session_settings CASCADE;
CREATE SCHEMA session_settings;
CREATE ROLE regress_sweep_settings LOGIN IN ROLE sweep_user;
ALTER ROLE regress_sweep_settings SET quote_all_identifiers = on;
CREATE TABLE session_settings.item (id int PRIMARY KEY, n int);
INSERT INTO session_settings.item SELECT n, 0 FROM generate_series(1, 100) AS n;
CREATE TABLE session_settings.copied (LIKE session_settings.item INCLUDING ALL);
CREATE TABLE session_settings.part (at date) PARTITION BY RANGE (at);
GRANT USAGE ON SCHEMA session_settings TO regress_sweep_settings;
GRANT ALL ON session_settings.item TO regress_sweep_settings;

SET quote_all_identifiers = on;
SELECT sweep.create_copy('session_settings.item', 'session_settings.copied', with_changes => true, name => 'session_settings copy', paused => true);
SELECT sweep.create_partitions('session_settings.part', '1 day', name => 'session_settings partitions', paused => true);
SELECT sweep.batched('UPDATE session_settings.item SET n = n + 1', name => 'session_settings batched', parallel => 2, batch_size => 10, run_as => 'regress_sweep_settings') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
CALL sweep.run('session_settings copy');
CALL sweep.run('session_settings copy');
CALL sweep.run('session_settings partitions');
SELECT sweep.alter_job('session_settings copy', '{"args": {"condition": "false"}}');
SELECT sweep.create_job('session_settings quoted', sql => 'SELECT 1', settings => '{"quote_all_identifiers": "on"}');
SHOW quote_all_identifiers;
RESET quote_all_identifiers;
SELECT name, step, buckets_function FROM sweep.job_definition WHERE name LIKE 'session\_settings%' ORDER BY name COLLATE "C";
SELECT n, count(*) FROM session_settings.item GROUP BY n;
TABLE session_settings.item EXCEPT TABLE session_settings.copied;

-- what a batch leaves behind is not found by the next
CREATE TABLE session_settings.seen (cursor jsonb, quotes text, digits text);
CREATE FUNCTION session_settings.leave(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO session_settings.seen VALUES (b.cursor, current_setting('quote_all_identifiers'), current_setting('extra_float_digits'));
	PERFORM set_config('quote_all_identifiers', 'on', false), set_config('extra_float_digits', '-15', false);
	RETURN ROW(CASE WHEN b.cursor = '2' THEN 0 ELSE 1 END, to_jsonb(coalesce(b.cursor::int, 0) + 1), NULL)::sweep.progress;
END
$$;
SELECT sweep.create_job('session_settings left', step => 'session_settings.leave', batch_size => 1);
SELECT sweep.start('session_settings left') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
TABLE session_settings.seen;

-- no plan that is forbidden, or that costs as much as that of a very large table, takes the key from a table
CREATE TABLE session_settings.large (id int PRIMARY KEY, n int);
INSERT INTO session_settings.large SELECT n, 0 FROM generate_series(1, 100) AS n;
ANALYZE session_settings.large;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT k.columns FROM sweep._run_key(current_user, 'session_settings.large', 'true', '{}', '{n}', true) AS k;
RESET enable_indexscan;
RESET enable_indexonlyscan;
SET random_page_cost = 5e9;
SELECT k.columns FROM sweep._run_key(current_user, 'session_settings.large', 'true', '{}', '{n}', true) AS k;
RESET random_page_cost;

-- what a job leaves behind goes with it
SET session_replication_role = replica;
SELECT sweep.drop_job('session_settings copy');
SHOW session_replication_role;
RESET session_replication_role;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'session_settings.item'::regclass;
SELECT relname FROM pg_class WHERE relnamespace = 'session_settings'::regnamespace AND relname LIKE '%changes%';

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'session\_settings%';
DELETE FROM sweep.run_live WHERE job LIKE 'session\_settings%';
DELETE FROM sweep.run_history WHERE job LIKE 'session\_settings%';
DROP SCHEMA session_settings CASCADE;
DROP ROLE regress_sweep_settings;
