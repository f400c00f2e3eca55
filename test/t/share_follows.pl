# room: process
# The process of a share goes on with the share that follows it, as soon as it has ended. It is no share of the process when all jobs are
# paused, or when its role has other settings by then; and it finds nothing of the share before it in the session.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# One share at a time.
my $node = new_cluster('follows', conf => [ 'pg_sweep.max_running_jobs = 1', 'log_min_messages = debug1' ]);
$node->safe_psql('postgres', q{
	CREATE ROLE a LOGIN IN ROLE sweep_user;
	CREATE TABLE t.seen (run_id bigint, bucket int, work_mem text, left_over text, pid int DEFAULT pg_backend_pid());
	GRANT ALL ON t.seen TO a;
	CREATE FUNCTION t.change() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ ALTER ROLE a SET work_mem = '7MB' $$;
	CREATE FUNCTION t.pause() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ SELECT sweep.pause_all() $$;
	-- Its args: the function that the first share calls.
	CREATE FUNCTION t.look(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		IF b.args ? 'first' AND NOT EXISTS (SELECT FROM t.seen) THEN
			EXECUTE format('SELECT t.%I()', b.args ->> 'first');
		END IF;
		INSERT INTO t.seen VALUES (b.run_id, b.bucket, current_setting('work_mem'), concat_ws(', ', to_regclass('pg_temp.kept')::text, nullif(current_setting('left.over', true), '')));
		CREATE TEMPORARY TABLE kept ();
		PERFORM set_config('left.over', 'yes', false);
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('plain', step => 't.look', run_as => 'a', buckets => 4);
	SELECT sweep.create_job('changes', step => 't.look', run_as => 'a', buckets => 4, args => '{"first": "change"}');
	SELECT sweep.create_job('pauses', step => 't.look', run_as => 'a', buckets => 4, args => '{"first": "pause"}');
});

sub all_shares
{
	my ($job) = @_;

	soon($node, "SELECT count(*) FROM sweep.runs WHERE job = '$job' AND status = 'succeeded'", 4, "all shares of $job end");
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT bucket) FROM t.seen'), '4|4', 'each bucket once');
}

sub begin_job
{
	$node->safe_psql('postgres', "TRUNCATE t.seen; SELECT sweep.start('$_[0]')");
}

# ---------------------------------------------------------------- one process
begin_job('plain');
all_shares('plain');
is($node->safe_psql('postgres', q{SELECT count(DISTINCT pid), max(left_over) FROM t.seen}), '1|', 'one process has performed them, and they have found nothing of each other');

# ---------------------------------------------------------------- without a scheduler
# It would be started anew for each share. That of the other database is asked for later than one of this database would be.
$node->safe_psql('postgres', q{
	CREATE DATABASE other;
	CREATE FUNCTION t.wait(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(10 + (SELECT count(*) FROM t.seen));
		INSERT INTO t.seen VALUES (b.run_id, b.bucket);
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('waits', step => 't.wait', run_as => 'a', buckets => 4)});
prepare_database($node, 'other');
my ($first, $third) = map { hold_gate($node, $_) } 10, 12;
begin_job('waits');
at_gate($node, 10, 'the first share has begun');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}, 0, 'no scheduler has anything to do');
my $offset = -s $node->logfile;
open_gate($first);
at_gate($node, 12, 'two shares have ended');
$node->safe_psql('other', 'SELECT sweep._wake()');
$node->wait_for_log(qr/starting background worker process "pg_sweep scheduler other"/, $offset);
unlike(slurp_file($node->logfile, $offset), qr/starting background worker process "pg_sweep scheduler postgres"/, 'no scheduler was started when they ended');
open_gate($third);
all_shares('waits');

# ---------------------------------------------------------------- while a run of another database waits
$node->safe_psql('other', q{SELECT sweep.create_job('too', step => 't.note')});
$first = hold_gate($node, 10);
begin_job('waits');
at_gate($node, 10, 'the first share has begun');
my $other = $node->safe_psql('other', q{SELECT sweep.start('too')});
soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'too'}, 'waiting_for_slot: pg_sweep.max_running_jobs', 'a run of another database waits for its end', 'other');
open_gate($first);
is(ended_run($node, $other, 'other'), 'succeeded drained 1 0', 'that run has its turn');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'waits' AND status = 'succeeded'}, 8, 'so have the other shares');
is($node->safe_psql('postgres', q{SELECT count(DISTINCT pid) FROM (SELECT pid FROM t.seen ORDER BY run_id LIMIT 2) AS s}), 2, 'the process of the first share has not gone on');

# ---------------------------------------------------------------- with other settings
begin_job('changes');
all_shares('changes');
is($node->safe_psql('postgres', q{SELECT string_agg(work_mem, ' ' ORDER BY run_id), count(DISTINCT pid) FROM t.seen}), '4MB 7MB 7MB 7MB|2', 'a share begins with the settings that its role has then');

# ---------------------------------------------------------------- while all jobs are paused
begin_job('pauses');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'pauses' AND status = 'succeeded'}, 1, 'the share that pauses all jobs ends');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'}, 0, 'so does its process');
is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE status = 'running') FROM sweep.runs WHERE job = 'pauses' AND finished_at IS NULL}), '1|0',
	'the share that follows waits');
$node->safe_psql('postgres', 'SELECT sweep.resume_all()');
all_shares('pauses');

$node->stop;
done_testing();
