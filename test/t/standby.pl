# On a standby nothing runs; after its promotion jobs run there, and what was
# in progress on the primary is lost.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $primary = new_cluster('primary', init => { allows_streaming => 1 }, conf => [ 'max_connections = 20', 'synchronous_commit = on' ]);
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', q{
	SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}');
	SELECT sweep.create_job('work', step => 't.work', batch_size => 10, args => '{"gate": 80, "gate_at": 4}', flush => 'batch');
	SELECT sweep.create_job('later', step => 't.note');
	SELECT sweep.create_queue('mail');
	INSERT INTO t.todo SELECT i FROM generate_series(1, 100) AS i;
});
my $gate = hold_gate($primary, 80);
my $run = $primary->safe_psql('postgres', q{SELECT sweep.start('work')});
my $later = $primary->safe_psql('postgres', q{SELECT sweep.start('later', delay => '1 hour')});
at_gate($primary, 80, 'a run is in progress on the primary');
soon($primary, q{SELECT count(*) >= 3 FROM t.started}, 't', 'and a schedule applies');
$primary->wait_for_catchup($standby);

is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_sweep%'}), 0, 'no process of ours on the standby');
is($standby->safe_psql('postgres', q{SELECT name FROM sweep.jobs WHERE name = 'work'}), 'work', 'the views can be read there');
is($standby->safe_psql('postgres', "SELECT status, batches, rows FROM sweep.run WHERE run_id = $run"), 'running|3|30', 'as the primary wrote it');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM sweep.running'), 0, 'nothing is in progress there');
my ($status, $output, $message) = $standby->psql('postgres', q{SELECT sweep.start('later')});
like($message, qr/ERROR:  cannot execute .* (in a read-only transaction|during recovery)/, 'start says that it is read-only');
($status, $output, $message) = $standby->psql('postgres', q{CALL sweep.run('later')});
like($message, qr/ERROR:  cannot execute .* (in a read-only transaction|during recovery)/, 'so does CALL');
($status, $output, $message) = $standby->psql('postgres', q{CALL sweep.wait_for_message('mail', '1 h')});
like($message, qr/ERROR:  cannot execute sweep.wait_for_message\(\) during recovery/, 'nobody can wait for what cannot be claimed');

$primary->stop('immediate');
forget_session($gate);
$standby->promote;
is(ended_run($standby, $run), 'lost lost 3 30', 'after promotion the run of the primary is lost');
is($standby->safe_psql('postgres', "SELECT count(*) FROM t.todo WHERE run_id = $run"), 30, 'it counts what it did');
my $count = $standby->safe_psql('postgres', 'SELECT count(*) FROM t.started');
soon($standby, "SELECT count(*) >= $count + 2 FROM t.started", 't', 'schedules apply');
$standby->safe_psql('postgres', q{SELECT sweep.alter_job('work', '{"args": {}}')});
is(ended_run($standby, $standby->safe_psql('postgres', q{SELECT sweep.start('work')})), 'succeeded drained 8 70', 'the next run does the rest');
is($standby->safe_psql('postgres', "SELECT status FROM sweep.run WHERE run_id = $later"), 'waiting', 'what waits still waits');
$standby->safe_psql('postgres', "UPDATE sweep.run_live SET due_at = now() WHERE run_id = $later; SELECT sweep._wake()");
is(ended_run($standby, $later), 'succeeded drained 1 0', 'and runs when its time has come');

# ---------------------------------------------------------------- a synchronous standby that is not there
# Commits of jobs wait for it, ours do not, and shutdown is in nobody's way.
$standby->append_conf('postgresql.conf', q{synchronous_standby_names = 'nobody'});
$standby->reload;
soon($standby, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner' AND wait_event = 'SyncRep'}, 't',
	'synchronous replication: a run waits for its last commit');
my $due = $standby->safe_psql('postgres', q{SELECT next_due FROM sweep.job_state WHERE job = 'tick'});
soon($standby, "SELECT next_due > '$due'::timestamptz + interval '1 s' FROM sweep.job_state WHERE job = 'tick'", 't',
	'synchronous replication: the scheduler goes on');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type <> 'pg_sweep runner'}),
	0, 'synchronous replication: only the run waits');
my $begin = time;
$standby->stop('fast');
cmp_ok(time - $begin, '<', 10, 'synchronous replication: the server stops');
done_testing();
