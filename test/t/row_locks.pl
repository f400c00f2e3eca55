# room: process
# Transactions that are left open: one role's keep nobody else's jobs and queues
# from going on, and the timeouts of our processes fire.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('locked_rows', conf => [ 'autovacuum = off', 'max_connections = 50' ]);

$node->safe_psql('postgres', q{CREATE ROLE other LOGIN; GRANT sweep_user TO other});
$node->safe_psql('postgres', q{SELECT sweep.create_job('others', step => 't.note', schedule => '* * * * * *', args => '{"job": "others"}')},
	extra_params => [ '-U', 'other' ]);
$node->safe_psql('postgres', q{
	SELECT sweep.create_job('mine', step => 't.note', args => '{"job": "mine"}'),
		sweep.create_job('each second', step => 't.note', schedule => '* * * * * *', args => '{"job": "each second"}'),
		sweep.create_job('parent', step => 't.note', on_start => '{"mine": "0 s"}');
	SELECT sweep.create_queue('told');
}, extra_params => [ '-U', 'jobber' ]);
$node->safe_psql('postgres', 'CREATE DATABASE second');
prepare_database($node, 'second');
$node->safe_psql('second', q{SELECT sweep.create_job('others', step => 't.note', schedule => '* * * * * *', args => '{"job": "others"}')});

my $scheduler = pid_of($node, 'scheduler', 'postgres');
my $locked = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_sweep%' AND wait_event_type = 'Lock'};

# The jobs of the other role are started again and again.
sub goes_on
{
	my ($name, $database) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count = $node->safe_psql($database // 'postgres', q{SELECT count(*) FROM t.started WHERE job = 'others'});
	soon($node, "SELECT count(*) >= $count + 3 FROM t.started WHERE job = 'others'", 't', "$name: jobs of others are started", $database);
}

sub as_jobber
{
	return $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'jobber' ]);
}

# A run that is due in a moment, whose row the session has locked by then.
sub cancel_soon
{
	my ($session) = @_;

	for (1 .. 20)
	{
		my $run = as_jobber(q{SELECT sweep.start('mine', delay => '2 s')});

		$session->query_safe('BEGIN');
		return $run if $session->query_safe("SELECT sweep.cancel($run)") eq 't';
		$session->query_safe('ROLLBACK');
	}
	die 'no run could be cancelled before it was due';
}

# ---------------------------------------------------------------- a run that is being cancelled
my $offset = -s $node->logfile;
my $first = session($node, user => 'jobber');
my $second = session($node, user => 'jobber');
for my $end ('ROLLBACK', 'COMMIT')
{
	my $run = cancel_soon($first);

	soon($node, "SELECT due_at < clock_timestamp() FROM sweep.runs WHERE run_id = $run", 't', "$end: a run is due and locked");
	begin_query($second, q{BEGIN; SELECT sweep.drop_job('mine'); ROLLBACK});
	goes_on("$end of a cancel, with drop_job behind it");
	is($node->safe_psql('postgres', $locked), 0, "$end: no process of ours waits for the run");
	is($node->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $run"), 'waiting', "$end: it is not started");
	$first->query_safe($end);
	end_query($second);
	is(ended_run($node, $run), $end eq 'COMMIT' ? 'cancelled cancelled 0 0' : 'succeeded drained 1 0', "$end: it comes out as the session says");
}

$second->quit;

# A run of a job that was dropped while it was queued.
my $orphan;
for (1 .. 20)
{
	$orphan = $node->safe_psql('postgres', q{INSERT INTO sweep.run_live (job, trigger, due_at, run_as)
		VALUES ('gone', 'manual', clock_timestamp() + interval '2 s', 'jobber'::regrole) RETURNING run_id});
	$orphan =~ s/\n.*//s;
	$first->query_safe('BEGIN');
	last if $first->query_safe("SELECT sweep.cancel($orphan)") eq 't';
	$first->query_safe('ROLLBACK');
}
soon($node, "SELECT due_at < clock_timestamp() FROM sweep.runs WHERE run_id = $orphan", 't', 'a run without a job is due and locked');
goes_on('a run without a job');
$first->query_safe('ROLLBACK');
is(ended_run($node, $orphan), 'cancelled cancelled 0 0', 'a run without a job is ended when it is free');

# ---------------------------------------------------------------- a job that is being changed
for my $change (q{sweep.pause('each second')}, q{sweep.alter_job('each second', '{"schedule": "* * * * * *", "jitter": "1 s"}')}, q{sweep.drop_job('each second')})
{
	as_jobber(q{SELECT sweep.cancel(sweep.start('each second', delay => '1 day')) FROM generate_series(1, 1100)}) if $change =~ /pause/;
	$first->query_safe("BEGIN; SELECT $change");
	goes_on($change);
	my $last = $node->safe_psql('postgres', q{SELECT max(run_id) FROM sweep.runs WHERE job = 'others'});
	soon($node, qq{SELECT count(*) > 0 FROM sweep.run_history WHERE job = 'others' AND run_id > $last}, 't', "$change: the history of others goes on");
	$first->query_safe('ROLLBACK');
	soon($node, qq{SELECT count(*) > 0 FROM sweep.runs WHERE job = 'each second' AND run_id > $last AND status = 'succeeded'}, 't', "$change, undone: the job goes on");
}
unlike(substr(slurp_file($node->logfile), $offset), qr/could not|canceling statement/, 'nothing had to be given up');

# ---------------------------------------------------------------- a table that a superuser locks: the timeout of the scheduler
$offset = -s $node->logfile;
my $locker = session($node);
$locker->query_safe('BEGIN; LOCK TABLE sweep.run_live');
$node->wait_for_log(qr/pg_sweep scheduler could not do its work: canceling statement due to lock timeout/, $offset);
goes_on('sweep.run_live is locked', 'second');
my $lines = () = substr(slurp_file($node->logfile), $offset) =~ /pg_sweep scheduler could not do its work/g;
is($lines, 1, 'that is said once');
$locker->query_safe('COMMIT');
goes_on('sweep.run_live is free again');

# Behind a lock that lets the scheduler read, a run waits: nothing of it is lost, its children are not either.
as_jobber(q{ALTER ROLE jobber SET lock_timeout = '100 ms'});
my $children = $node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'mine' AND trigger = 'parent'});
my $run = as_jobber(q{SELECT sweep.start('parent', delay => '5 s')});
$locker->query_safe('BEGIN; LOCK TABLE sweep.run_live IN SHARE MODE');
soon($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner' AND usename = 'jobber' AND wait_event_type = 'Lock'}, 't', 'a run waits for the table');
my $soon = $node->safe_psql('postgres', q{SELECT clock_timestamp() + interval '1 s'});
soon($node, "SELECT clock_timestamp() > '$soon'", 't', 'for longer than lock_timeout of its role');
$locker->query_safe('COMMIT');
is(ended_run($node, $run), 'succeeded drained 1 0', 'and is recorded');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'mine' AND trigger = 'parent' AND status = 'succeeded'}, $children + 1, 'and so are its children');
as_jobber(q{ALTER ROLE jobber RESET lock_timeout});

# ---------------------------------------------------------------- a run that is divided, and its buckets
as_jobber(q{SELECT sweep.create_job('divided', step => 't.note', buckets => 1, args => '{"job": "divided"}')});
is(ended_run($node, as_jobber(q{SELECT sweep.start('divided')})), 'succeeded drained 1 0', 'a divided job');
$locker->query_safe('BEGIN; LOCK TABLE sweep.bucket');
$run = as_jobber(q{SELECT sweep.start('divided')});
is(ended_run($node, $run), 'failed error 0 0', 'sweep.bucket is locked: the run gives up');
is($node->safe_psql('postgres', "SELECT sqlstate FROM sweep.runs WHERE run_id = $run"), '55P03', 'by the timeout of the lock');
$locker->query_safe('COMMIT');

# ---------------------------------------------------------------- notifications and a consumer
as_jobber(q{SELECT sweep.send('told', '1')});
$offset = -s $node->logfile;
my $sender = session($node, user => 'jobber');
# It knows the queue already, so it need not read the table that is locked.
$sender->query_safe(q{SELECT sweep.send('told', '1')});
$sender->query_safe(q{BEGIN; SELECT sweep.send('told', '2')});
$locker->query_safe('BEGIN; LOCK TABLE sweep.queue');
$sender->query_safe('COMMIT');
$node->wait_for_log(qr/pg_sweep scheduler could not notify: canceling statement due to lock timeout/, $offset);
$locker->query_safe('COMMIT');
my $listener = session($node);
$listener->query_safe('LISTEN "sweep.told"');
as_jobber(q{SELECT sweep.send('told', '3')});
my $heard = '';
my $deadline = time + 60;
while (time < $deadline && $heard !~ /Asynchronous notification/)
{
	# psql tells of a notification after its next query.
	$node->poll_query_until('postgres', 'SELECT true');
	$heard .= $listener->query('SELECT 1 WHERE false');
}
like($heard, qr/"sweep\.told"/, 'the scheduler goes on');

$node->safe_psql('postgres', q{
	CREATE TABLE t.handled (payload jsonb);
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.handled VALUES (m.payload)';
	GRANT ALL ON t.handled TO PUBLIC;
	ALTER ROLE jobber SET lock_timeout = '200 ms';
});
as_jobber(q{SELECT sweep.create_queue('handled'), sweep.create_consumer('handled', 't.handle')});
my $consumer = pid_of($node, 'consumer', 'postgres');
$offset = -s $node->logfile;
$locker->query_safe('BEGIN; LOCK TABLE sweep.consumer');
$node->wait_for_log(qr/consumer of queue "handled" could not claim messages: canceling statement due to lock timeout/, $offset);
$locker->query_safe('COMMIT');
as_jobber(q{SELECT sweep.send('handled', '1')});
soon($node, 'SELECT payload FROM t.handled', 1, 'a consumer goes on after its timeout');
is(pid_of($node, 'consumer', 'postgres'), $consumer, 'it is the same process');
as_jobber(q{ALTER ROLE jobber RESET lock_timeout});

# ---------------------------------------------------------------- a request to cancel that is meant for nothing
my %processes = map { $_ => pid_of($node, $_, $_ eq 'launcher' ? undef : 'postgres') } qw(launcher scheduler consumer);
for my $kind (sort keys %processes)
{
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($processes{$kind}) FROM generate_series(1, 200)") for 1 .. 5;
}
goes_on('cancel requests');
as_jobber(q{SELECT sweep.send('handled', '2')});
soon($node, 'SELECT count(*) FROM t.handled', 2, 'cancel requests: the consumer goes on');
is(pid_of($node, $_, $_ eq 'launcher' ? undef : 'postgres'), $processes{$_}, "cancel requests: the $_ is the same") for sort keys %processes;
is($processes{scheduler}, $scheduler, 'the scheduler has been the same all the time');

# ---------------------------------------------------------------- a queue that is dropped by somebody who does not commit
$first->query_safe(q{BEGIN; SELECT sweep.create_queue('x'), sweep.send('x', '1'); SELECT sweep.drop_queue('x')});
as_jobber(q{SELECT sweep.send('handled', '3')});
soon($node, 'SELECT count(*) FROM t.handled', 3, 'an open drop_queue: other queues go on');
$first->query_safe('COMMIT');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.queue_message m WHERE NOT EXISTS (SELECT FROM sweep.queue q WHERE q.queue_id = m.queue_id)}),
	0, 'of the dropped one nothing is left');

$_->quit for $first, $locker, $sender, $listener;
$node->stop;
done_testing();
