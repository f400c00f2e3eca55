# room: process
# On a standby nothing runs; after its promotion jobs run there, and what was
# in progress on the primary is lost.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $primary = new_cluster('primary', gitlab => 1, init => { allows_streaming => 1 }, conf => [ 'max_connections = 20', 'synchronous_commit = on' ]);
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', q{
	SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}');
	SELECT sweep.create_job('work', step => 't.work', batch_size => 10, args => '{"gate": 80, "gate_at": 4}', flush => 'batch');
	SELECT sweep.create_job('later', step => 't.note');
	SELECT sweep.create_queue('mail');
	SELECT sweep.send('mail', to_jsonb(i)), sweep.send('mail', to_jsonb(i), delay => '1 hour') FROM generate_series(1, 3) AS i;
	SELECT sweep.send('mail', '4', priority => 5);
	INSERT INTO t.todo SELECT i FROM generate_series(1, 100) AS i;
});
my $gate = hold_gate($primary, 80);
my $run = $primary->safe_psql('postgres', q{SELECT sweep.start('work')});
my $later = $primary->safe_psql('postgres', q{SELECT sweep.start('later', delay => '1 hour')});
$primary->safe_psql('postgres', q{SELECT sweep.create_job('boot', '@reboot', 'SELECT 1')});
at_gate($primary, 80, 'a run is in progress on the primary');
soon($primary, q{SELECT count(*) >= 3 FROM t.started}, 't', 'and a schedule applies');
$primary->wait_for_catchup($standby);

is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_sweep%'}), 0, 'no process of ours on the standby');
is($standby->safe_psql('postgres', q{SELECT name FROM sweep.jobs WHERE name = 'work'}), 'work', 'the views can be read there');
is($standby->safe_psql('postgres', q{SELECT DISTINCT state FROM sweep.jobs}), 'no_scheduler: the server is a standby', 'the state says why nothing runs');
is($standby->safe_psql('postgres', "SELECT status, batches, rows FROM sweep.runs WHERE run_id = $run"), 'running|3|30', 'as the primary wrote it');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM sweep.running'), 0, 'nothing is in progress there');
is($standby->safe_psql('postgres', 'SELECT queue, depth, ready, delayed, in_flight, oldest_age IS NOT NULL FROM sweep.queues'), 'mail|7|4|3|0|t',
	'the messages of a queue are counted there');
for my $view (split /\n/, $standby->safe_psql('postgres', q{SELECT viewname FROM pg_views WHERE schemaname = 'sweep' ORDER BY 1}))
{
	my ($status, $output, $message) = $standby->psql('postgres', "TABLE sweep.$view");
	is($message, '', "sweep.$view can be read there");
}
# What writes says which server it is, in the same words.
my %calls = (
	start => q{SELECT sweep.start('later')}, create_job => q{SELECT sweep.create_job('new', step => 't.note')}, drop_queue => q{SELECT sweep.drop_queue('mail')},
	grant_queue => q{SELECT sweep.grant_queue('mail', 'pg_monitor', '{send}')}, begin_once => q{SELECT sweep.begin_once('key')}, redrive => q{SELECT sweep.redrive('mail')},
	send => q{SELECT sweep.send('mail', '1')}, send_many => q{SELECT sweep.send_many('mail', '{1}')}, claim => q{SELECT sweep.claim('mail')},
	ack => q{SELECT sweep.ack(gen_random_uuid())}, fail => q{SELECT sweep.fail(gen_random_uuid())}, release => q{SELECT sweep.release(gen_random_uuid())},
	cancel_message => q{SELECT sweep.cancel_message('mail', 1)}, alter_consumer => q{SELECT sweep.alter_consumer('mail', '{}')}, extend => q{SELECT sweep.extend(gen_random_uuid(), '1 s')}, enable_feature => q{SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts')},
	run => q{CALL sweep.run('later')}, preview => q{SELECT sweep.preview('later')}, wait_for_message => q{CALL sweep.wait_for_message('mail', '1 h')},
	try_lock => q{SELECT sweep.try_lock('key')}, release_lock => q{SELECT sweep.release_lock('key')}, wait => q{CALL sweep.wait(1)},
	release_quarantine => q{SELECT sweep.release_quarantine('later')}, cancel => "SELECT sweep.cancel($run)");
for my $function (sort keys %calls)
{
	my ($status, $output, $message) = $standby->psql('postgres', "\\set VERBOSITY verbose\n$calls{$function}");
	like($message, qr/ERROR:  25006: cannot execute sweep\w*.$function\(\) during recovery\nDETAIL:  This server is a standby.*\nHINT:  Connect to the primary/, "$function");
}
# What reads does that.
is($standby->safe_psql('postgres', q{SELECT count(*) FROM sweep.dead('mail')}), 0, 'dead messages can be read');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM sweep.done('mail')}), 0, 'so can those that are done');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM sweep.messages('mail')}), 7, 'and those that wait');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM sweep.next_runs('@daily')}), 5, 'and the moments of a schedule');

$primary->stop('immediate');
forget_session($gate);
$standby->promote;
is(ended_run($standby, $run), 'lost lost 3 30', 'after promotion the run of the primary is lost');
is($standby->safe_psql('postgres', "SELECT count(*) FROM t.todo WHERE run_id = $run"), 30, 'it counts what it did');
my $count = $standby->safe_psql('postgres', 'SELECT count(*) FROM t.started');
soon($standby, "SELECT count(*) >= $count + 2 FROM t.started", 't', 'schedules apply');
soon($standby, q{SELECT count(*) FROM sweep.runs WHERE job = 'boot' AND status = 'succeeded'}, 1, 'a promotion is a start of the server for @reboot');
$standby->safe_psql('postgres', q{SELECT sweep.alter_job('work', '{"args": {}}')});
is(ended_run($standby, $standby->safe_psql('postgres', q{SELECT sweep.start('work')})), 'succeeded drained 8 70', 'the next run does the rest');
is($standby->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $later"), 'waiting', 'what waits still waits');
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
cmp_ok(time - $begin, '<', 50, 'synchronous replication: the server stops');
done_testing();
