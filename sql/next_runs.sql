-- room: cron
-- Schedules in PostgreSQL's zones and timestamps. The language and the clock
-- rule are tested without a server, in test/unit/cron_*_test.c.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
RESET client_min_messages;
SET datestyle = 'ISO, YMD';
SET timezone = 'UTC';

-- fields, seconds, macros, intervals
SELECT sweep.next_runs('30 4 * * *', after => '2026-01-31 12:00:00Z', n => 3);
SELECT sweep.next_runs('*/20 0 0 1 jan,jul *', after => '2026-01-31 12:00:00Z', n => 4);
SELECT sweep.next_runs('0 0 L * *', after => '2028-01-31 12:00:00Z', n => 2);
SELECT sweep.next_runs('0 0 29 2 *', after => '2096-02-29 00:00:00Z', n => 2);
SELECT sweep.next_runs('@yearly', after => '2026-01-31 12:00:00Z', n => 2);
SELECT sweep.next_runs('every 30 seconds', after => '2026-01-31 12:00:00Z', n => 2);
SELECT sweep.next_runs('every 6 hours', 'Asia/Kolkata', '2026-01-31 12:00:00Z', 2);
SELECT sweep.next_runs(' Every  MINUTE ', after => '2026-01-31 12:00:00Z', n => 2);
-- a day is 24 hours from midnight UTC, also in a zone and over a change of its clock
SELECT sweep.next_runs('every 1 day', 'Europe/Berlin', '2026-03-28 12:00:00Z', 2);
SELECT sweep.next_runs('every 2 days', after => '2026-01-31 12:00:00Z', n => 2);
-- as pg_cron has them
SELECT sweep.next_runs('30 seconds', after => '2026-01-31 12:00:00Z', n => 2);
SELECT sweep.next_runs('0 0 $ * *', after => '2028-01-31 12:00:00Z', n => 2);

-- strictly after, to the microsecond, on both sides of the epochs
SELECT after, sweep.next_runs('30 4 * * *', after => after, n => 1)
FROM (VALUES ('2026-01-01 04:29:59.999999Z'::timestamptz), ('2026-01-01 04:30:00Z'),
             ('2026-01-01 04:30:00.000001Z'), ('1999-12-31 04:29:59.999999Z'),
             ('1999-12-31 04:30:00Z'), ('1965-06-01 04:29:59.999999Z'),
             ('1965-06-01 04:30:00Z'), ('4000-06-01 04:30:00Z BC')) AS moments (after);

-- the zone: the argument's, else UTC, and never that of the session
SELECT sweep.next_runs('0 4 * * *', 'Europe/Berlin', '2026-06-01 00:00:00Z', 1);
SELECT sweep.next_runs('0 4 * * *', 'europe/berlin', '2026-06-01 00:00:00Z', 1);
SET timezone = 'America/New_York';
SELECT sweep.next_runs('0 4 * * *', after => '2026-06-01 00:00:00Z', n => 1);
SELECT sweep._next_run('0 4 * * *', 'UTC', '2026-06-01 00:00:00Z', 'a');

-- clocks change: once after the gap, once in the repeated hour; stars follow the wall clock
SET timezone = 'Europe/Berlin';
SELECT sweep.next_runs('30 2 * * *', 'Europe/Berlin', '2026-03-28 00:00:00Z', 3);
SELECT sweep.next_runs('*/30 2 * * *', 'Europe/Berlin', '2026-03-28 00:00:00Z', 3);
SELECT sweep.next_runs('30 2 * * *', 'Europe/Berlin', '2026-10-24 12:00:00Z', 2);
SELECT sweep.next_runs('*/30 2 * * *', 'Europe/Berlin', '2026-10-24 12:00:00Z', 5);
SET timezone = 'Australia/Lord_Howe';
SELECT sweep.next_runs('15,45 2 * * *', 'Australia/Lord_Howe', '2026-10-03 00:00:00Z', 3);
SET timezone = 'Pacific/Apia';
SELECT sweep.next_runs('0 12 * * *', 'Pacific/Apia', '2011-12-28 22:00:00Z', 3);
-- far beyond the tables of the zone
SET timezone = 'Europe/Berlin';
SELECT sweep.next_runs('30 2 28 3 *', 'Europe/Berlin', '2500-01-01 00:00:00Z', 2);
SET timezone = 'UTC';

-- H depends on the name of the job and on nothing else
SELECT job, sweep.next_runs('H H(0-5) * * *', after => '2026-01-01 00:00:00Z', n => 2, job => job)
FROM (VALUES ('vacuum_sessions'), ('expire_tokens'), (''), (NULL)) AS jobs (job);

-- how many
SELECT count(*), count(DISTINCT run), min(run), max(run)
FROM sweep.next_runs('* * * * *', after => '2026-01-01 00:00:00Z', n => 10000) AS run;
SELECT count(*) FROM sweep.next_runs('* * * * *') AS run;
SELECT count(*) FROM sweep.next_runs('* * * * *', n => 0) AS run;
SELECT run > now() AND run <= now() + interval '1 minute' AS soon FROM sweep.next_runs('* * * * *', n => 1) AS run;

-- never
SELECT sweep.next_runs('@reboot');
SELECT sweep.next_runs('* * * * *', after => 'infinity');
SELECT sweep.next_runs('0 0 1 1 *', after => '294276-06-01 00:00:00Z');
SELECT sweep._next_run('@reboot', 'UTC', now(), 'a'), sweep._next_run('* * * * *', 'UTC', 'infinity', 'a'),
       sweep._next_run(NULL, 'UTC', now(), 'a');

-- the form for jobs
SELECT sweep._next_run('H 4 * * *', 'Europe/Berlin', '2026-06-01 00:00:00Z', 'vacuum_sessions');
SELECT text, sweep._is_reboot(text) FROM (VALUES ('@reboot'), (' @REBOOT '), ('@daily'), ('every 5 minutes'), (NULL)) AS texts (text);
-- white space is what it is in any schedule
SELECT text, sweep._is_reboot(text) FROM (VALUES (E' \t\n\x0B\f\r@reboot\r\n'), (E'@reboot\n@daily'), ('@reboot 1'), ('@rebooted'), ('')) AS texts (text);

-- errors name the value, hints say what would be right
\set VERBOSITY default
SELECT sweep.next_runs('61 * * * *');
SELECT sweep.next_runs('0 0 30 2 *');
SELECT sweep.next_runs('* * * *');
SELECT sweep.next_runs('every 3 weeks');
SELECT sweep.next_runs('every now and then');
SELECT sweep.next_runs('30 sec');
SELECT sweep.next_runs('@dayly');
SELECT sweep.next_runs('1,,2 * * * *');
SELECT sweep.next_runs('');
SELECT sweep.next_runs(repeat('* ', 200));
SELECT sweep.next_runs(NULL);
SELECT sweep.next_runs('* * * * *', 'Europe/Berlim');
SELECT sweep.next_runs('* * * * *', NULL);
SELECT sweep.next_runs('* * * * *', '');
SELECT sweep.next_runs('* * * * *', repeat('x', 300));
SELECT sweep.next_runs('* * * * *', 'XXX100');
SELECT sweep.next_runs('* * * * *', after => NULL);
SELECT sweep.next_runs('* * * * *', after => '-infinity');
SELECT sweep.next_runs('* * * * *', n => -1);
SELECT sweep.next_runs('* * * * *', n => 10001);
SELECT sweep.next_runs('* * * * *', n => NULL);
SELECT sweep._next_run('61 * * * *', 'UTC', now(), 'a');
SELECT sweep._next_run('* * * * *', 'Mars/Base', now(), 'a');
SELECT sweep._next_run('* * * * *', NULL, now(), 'a');
SELECT sweep._next_run('* * * * *', 'UTC', NULL, 'a');
SELECT sweep._is_reboot('reboot');
\set VERBOSITY sqlstate
SELECT sweep.next_runs('61 * * * *');
SELECT sweep.next_runs('* * * * *', 'Europe/Berlim');
SELECT sweep.next_runs(NULL);
\set VERBOSITY default

-- attributes
SELECT oid::regprocedure, provolatile, proisstrict, proparallel
FROM pg_proc WHERE oid IN (
    'sweep.next_runs(text, text, timestamptz, int, text)'::regprocedure,
    'sweep._next_run(text, text, timestamptz, text)'::regprocedure,
    'sweep._is_reboot(text)'::regprocedure) ORDER BY 1;
