--
-- The job "bench" divided into :shares, with :step: time from the start of the
-- first share to the end of the last, and pages looked at by all of them (and by nobody else: autovacuum is
-- off, and the scheduler has nothing to do).
--
SET client_min_messages = warning;
SELECT sweep.alter_job('bench', jsonb_build_object('buckets', :shares, 'step', :'step')) \g /dev/null
SELECT pg_stat_reset() \g /dev/null
SELECT sweep.start('bench') AS run_id \gset
CALL sweep.wait(:run_id, '1 hour');
SELECT format('CALL sweep.wait(%s, ''1 hour'')', run_id) FROM sweep.runs ORDER BY run_id \gexec
SELECT extract(epoch FROM max(finished_at) - min(started_at)) * 1000, (SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database())
	FROM sweep.runs;
