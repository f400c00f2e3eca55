# room: process
# Launcher, scheduler or runner killed or terminated: everything comes back,
# what is due starts, locks are free, and no job ever runs twice at a time.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('killed_process');
my $alone = '"alone": 71';

$node->safe_psql('postgres', qq{
	SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}');
	-- With flush 'run' a crash may undo the start as well, and the run waits again.
	SELECT sweep.create_job('long', step => 't.note', flush => 'batch', args => '{"job": "long", "gate": 7, $alone}');
	SELECT sweep.create_job('again', step => 't.note', schedule => '* * * * * *', paused => true,
		args => '{"job": "again", "gate": 8, $alone}');
});

sub ticks
{
	my ($name) = @_;
	my $count = $node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'tick'});

	soon($node, qq{SELECT count(*) >= $count + 2 FROM t.started WHERE job = 'tick'}, 't', "$name: due jobs start");
}

sub never_twice
{
	my ($name) = @_;

	is($node->safe_psql('postgres', 'SELECT count(*) FROM t.overlap'), 0, "$name: never two at a time");
}

ticks('before');

# ---------------------------------------------------------------- killed: the whole server restarts
for my $kind ('launcher', 'scheduler', 'runner')
{
	my $gate = hold_gate($node, 7);
	my $run = $node->safe_psql('postgres', q{SELECT sweep.start('long')});

	at_gate($node, 7, "$kind killed: a run is in progress");
	my $pid = $kind eq 'runner'
	  ? $node->safe_psql('postgres', "SELECT pid FROM sweep.running WHERE run_id = $run")
	  : pid_of($node, $kind);
	flush_wal($node);
	crash_of($node, $pid);
	forget_session($gate);
	is($node->safe_psql('postgres', q{SELECT sweep.try_lock('long')}), 't', "$kind killed: the lock is free at once");
	is(ended_run($node, $run), 'lost lost 0 0', "$kind killed: the run is lost");
	isnt(pid_of($node, $kind), $pid, "$kind killed: there is a new one") if $kind ne 'runner';
	ticks("$kind killed");
	is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('long')})),
		'succeeded drained 1 0', "$kind killed: the job runs again");
}
never_twice('killed');

# ---------------------------------------------------------------- terminated: the others stay
for my $kind ('launcher', 'scheduler')
{
	my $gate = hold_gate($node, 7);
	my $run = $node->safe_psql('postgres', q{SELECT sweep.start('long')});

	at_gate($node, 7, "$kind terminated: a run is in progress");
	my $runner = $node->safe_psql('postgres', "SELECT pid FROM sweep.running WHERE run_id = $run");
	my $scheduler = pid_of($node, 'scheduler');
	my $pid = pid_of($node, $kind);
	is($node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 100000)"), 't', "$kind terminated");
	isnt(pid_of($node, $kind), $pid, "$kind terminated: there is a new one");
	is(pid_of($node, 'scheduler'), $scheduler, 'launcher terminated: the scheduler stays') if $kind eq 'launcher';
	ticks("$kind terminated");
	is($node->safe_psql('postgres', "SELECT status, pid FROM sweep.runs WHERE run_id = $run"),
		"running|$runner", "$kind terminated: the run goes on");
	open_gate($gate);
	is(ended_run($node, $run), 'succeeded drained 1 0', "$kind terminated: the run ends as usual");
}
never_twice('terminated');

# ---------------------------------------------------------------- one scheduler after the other is terminated: the pauses grow
my $end_scheduler = q{SELECT pg_terminate_backend(pid, 100000) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'};
for my $nth (1, 2)
{
	pid_of($node, 'scheduler');
	is($node->safe_psql('postgres', $end_scheduler), 't', "scheduler $nth of two is terminated at once");
}

# ---------------------------------------------------------------- a runner is terminated: the next due moment runs
my $gate = hold_gate($node, 8);
$node->safe_psql('postgres', q{SELECT sweep.alter_job('again', '{"paused": false}')});
at_gate($node, 8, 'runner terminated: a scheduled run is in progress');
my ($run, $pid) = split /\|/, $node->safe_psql('postgres', q{SELECT run_id, pid FROM sweep.running WHERE job = 'again'});
is($node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 100000)"), 't', 'runner terminated');
is(ended_run($node, $run), 'lost lost 0 0', 'runner terminated: its run is lost');
soon($node, qq{SELECT count(*) = 1 FROM sweep.running WHERE job = 'again' AND run_id > $run AND phase = 'step'}, 't',
	'runner terminated: the next due moment runs');
$node->safe_psql('postgres', q{SELECT sweep.alter_job('again', '{"paused": true}')});
open_gate($gate);
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'again' AND finished_at IS NULL}, 0, 'runner terminated: that run ends');
never_twice('runner terminated');

# ---------------------------------------------------------------- at any moment of a run
$node->safe_psql('postgres', q{
	INSERT INTO t.todo SELECT i FROM generate_series(1, 50000) AS i;
	SELECT sweep.create_job('work', step => 't.work', batch_size => 1);
});
for my $batches (1, 2, 3, 5, 10, 50)
{
	$run = $node->safe_psql('postgres', q{SELECT sweep.start('work')});
	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM sweep.running WHERE run_id = $run AND batches >= $batches");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid, 100000) FROM sweep.runs WHERE run_id = $run");
	like(ended_run($node, $run), qr/^lost lost (\d+) \1$/, "terminated after $batches batches or more: the run is lost");
	is( $node->safe_psql('postgres', "SELECT count(*) FROM t.todo WHERE run_id = $run"),
		$node->safe_psql('postgres', "SELECT rows FROM sweep.runs WHERE run_id = $run"), "terminated after $batches batches or more: it counts what it did");
}

# ---------------------------------------------------------------- so is a session that runs a job
my $session = session($node);
$gate = hold_gate($node, 7);
$pid = $session->query_safe('SELECT pg_backend_pid()');
begin_query($session, q{CALL sweep.run('long')});
at_gate($node, 7, 'session terminated: its run is in progress');
$run = $node->safe_psql('postgres', "SELECT run_id FROM sweep.running WHERE pid = $pid");
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 100000)");
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('long')}), 't', 'session terminated: the lock is free at once');
is(ended_run($node, $run), 'lost lost 0 0', 'session terminated: its run is lost');
open_gate($gate);
forget_session($session);

# ---------------------------------------------------------------- after a long life the pauses begin anew: a second and not eight
soon($node, q{SELECT clock_timestamp() - backend_start > interval '11 s' FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}, 't', 'long life: the third scheduler has lived for long');
is($node->safe_psql('postgres', $end_scheduler), 't', 'long life: it is terminated');
my $ended_at = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
pid_of($node, 'scheduler');
cmp_ok($node->safe_psql('postgres', qq{SELECT extract(epoch FROM backend_start - '$ended_at') FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}), '<', 7,
	'long life: the next one comes soon');

# ---------------------------------------------------------------- restarts, in the middle of a run
for my $mode ('fast', 'immediate')
{
	$gate = hold_gate($node, 7);
	$run = $node->safe_psql('postgres', q{SELECT sweep.start('long')});
	at_gate($node, 7, "restart $mode: a run is in progress");
	$node->stop($mode);
	$node->start;
	forget_session($gate);
	is(ended_run($node, $run), 'lost lost 0 0', "restart $mode: the run is lost");
	ticks("restart $mode");
}
never_twice('restart');
$node->stop;
done_testing();
