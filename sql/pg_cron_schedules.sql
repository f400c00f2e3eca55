-- room: api
-- What a schedule of pg_cron is here, and what sweep.import_pg_cron refuses to read. The import itself needs pg_cron:
-- test/t/import_pg_cron.pl.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS cron CASCADE;
SET datestyle = 'ISO, YMD';
SET timezone = 'UTC';

-- each, as it is written here, and what is said of it
\pset format unaligned
SELECT s.schedule, CASE WHEN r.meaning = s.schedule THEN '=' ELSE r.meaning END AS meaning, array_to_string(r.remarks, '; ') AS remarks
FROM (VALUES (1, '* * * * *'), (2, '*/5 0-23/2 1,15 jan-MAR mon-fri'), (3, '0 0 $ * *'), (4, '7 7 7 7 7'),
	-- blanks
	(10, E' 1\t2  3 4 5 '), (11, E'1 2 3 4 5\n'),
	-- a step beyond its field, in each of them
	(20, '*/61 */25 */32 */13 */8'), (21, '*/60 */24 */31 */12 */7'), (22, '1-30/99 2-3/99,4-5 * * *'), (23, '* * * */99999999999 *'), (24, '* * * */20x *'),
	-- what follows an element that is over
	(30, '*5 * * * *'), (31, '*5,10 * * * *'), (32, '*-3 * * * *'), (33, '5! 1-2/1/3 1-2-3 * *'), (34, '0 0 3 * * *'), (35, '0 0 * * * # at midnight'),
	-- a star that is not at the beginning counts for days only
	(40, '0 0 1,* * 1'), (41, '0 0 1 * 1,*'), (42, '0 0 1,*/40 * 1,*/9'), (43, '0 0 *,1 * *,1'), (44, '1,* 1,* * 1,* *'),
	-- what pg_cron does not take is left as it is
	(50, '5/15 * * * *'), (51, '*/ * * * *'), (52, '1, * * * *'), (53, '1,,2 * * * *'), (54, '5- * * * *'), (55, '1-5/ * * * *'), (56, '-5 * * * *'),
	(57, '* * * *'), (58, ''), (59, 'at noon'), (60, '0 22-6 * * *'), (61, 'x * * * *'),
	-- a range up to Sunday is none there
	(70, '0 0 * * fri-sun'), (71, '0 0 * * 1,5-SUN/2'), (72, '0 0 * * sun-sun'), (73, '0 0 * * sun-fri'),
	-- words
	(80, '@daily'), (81, '@hourly # often'), (82, '@restart'), (83, '@yearly'), (84, '@annually'), (85, '@Daily'), (86, '30 seconds'), (87, '1 Second'), (88, '30seconds')
) AS s (n, schedule), sweep._read_pg_cron_schedule(s.schedule, false) AS r ORDER BY s.n;
\pset format aligned
-- a day that has to match both: only where both are restricted
\set VERBOSITY terse
SELECT (sweep._read_pg_cron_schedule(s, true)).meaning FROM (VALUES ('0 0 13 * *'), ('0 0 * * fri'), ('0 0 */2 * fri'), ('@daily')) AS v (s);
SELECT sweep._read_pg_cron_schedule('0 0 13 * fri', true);
SELECT sweep._read_pg_cron_schedule('0 0 $ * fri', true);
-- statements, not semicolons
SELECT sweep._count_statements(t) FROM (VALUES (''), (';'), ('SELECT 1'), ('SELECT 1;'), ('SELECT 1; SELECT 2'), ('DO $$ BEGIN PERFORM 1; PERFORM 2; END $$')) AS v (t);

-- ---------------------------------------------------------------- a table of that name that is not pg_cron's
CREATE ROLE regress_sweep_pg_cron;
CREATE ROLE regress_sweep_pg_cron_monitor;
GRANT sweep_user TO regress_sweep_pg_cron;
GRANT sweep_monitor TO regress_sweep_pg_cron_monitor;
CREATE SCHEMA cron AUTHORIZATION regress_sweep_pg_cron;
SET ROLE regress_sweep_pg_cron;
CREATE FUNCTION cron.trap() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'executed as %', current_user; END $$;
CREATE VIEW cron.job AS SELECT cron.trap() AS jobid, '* * * * *' AS schedule, 'SELECT 1' AS command;
GRANT USAGE ON SCHEMA cron TO PUBLIC;
GRANT SELECT ON cron.job TO PUBLIC;
RESET ROLE;
SELECT * FROM sweep.import_pg_cron();
SELECT * FROM sweep.import_pg_cron(false);
SET ROLE regress_sweep_pg_cron;
SELECT * FROM sweep.import_pg_cron();
SET ROLE regress_sweep_pg_cron_monitor;
SELECT * FROM sweep.import_pg_cron();
RESET ROLE;
\set VERBOSITY default
SELECT * FROM sweep.import_pg_cron(NULL);
DROP SCHEMA cron CASCADE;
DROP ROLE regress_sweep_pg_cron, regress_sweep_pg_cron_monitor;
