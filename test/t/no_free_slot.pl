# room: process
# No worker is free: runs wait and say so, the log says it once when they have waited for ten seconds, nothing
# spins, and they start when there is room.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# Launcher, the launcher of logical replication, and two more.
my $node = new_cluster('no_free_slot', conf => [ 'max_worker_processes = 4', 'max_parallel_workers = 0' ]);

sub check
{
	my ($setting) = @_;
	my $offset = -s $node->logfile;
	my $gate = hold_gate($node, 9);
	my $first = $node->safe_psql('postgres', q{SELECT sweep.start('holder')});

	at_gate($node, 9, "$setting: one run has the only slot");
	my $waits_since = sql('SELECT clock_timestamp()');
	my $second = $node->safe_psql('postgres', q{SELECT sweep.start('waiter')});
	soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'waiter'}, "waiting_for_slot: $setting", "$setting: the next job waits for a slot, and says for which");
	is($node->safe_psql('postgres', "SELECT status, pid IS NULL FROM sweep.runs WHERE run_id = $second"),
		'waiting|t', "$setting: its run is waiting");
	my $begin = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	my $third = $node->safe_psql('postgres', q{SELECT sweep.start('another waiter')});

	my $scheduler = pid_of($node, 'scheduler', 'postgres');
	my $launcher = pid_of($node, 'launcher');
	my $used = cpu_seconds($scheduler) + cpu_seconds($launcher);
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > '$begin'::timestamptz + interval '3 s'");
	$used = cpu_seconds($scheduler) + cpu_seconds($launcher) - $used;
	cmp_ok($used, '<', 0.3, "$setting: scheduler and launcher used $used s of 3 s");

	$node->wait_for_log(qr/pg_sweep runs are waiting for a background worker/, $offset);
	is(sql("SELECT clock_timestamp() >= '$waits_since'::timestamptz + interval '10 s'"), 't', "$setting: the log says so when they have waited for some time");
	open_gate($gate);
	is(ended_run($node, $_), 'succeeded drained 1 0', "$setting: run $_ has its turn") for ($first, $second, $third);
	soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'waiter'}, 'idle', "$setting: the job is idle again");
	$node->wait_for_log(qr/runs no longer wait for a background worker/, $offset);
	my $log = slurp_file($node->logfile, $offset);
	is(scalar(() = $log =~ /pg_sweep runs are waiting for a background worker/g), 1, "$setting: one line when the waiting begins");
	is(scalar(() = $log =~ /pg_sweep runs no longer wait/g), 1, "$setting: one line when it ends");

	# One run after the other that waits for a moment.
	for (1 .. 3)
	{
		$gate = hold_gate($node, 9);
		$first = $node->safe_psql('postgres', q{SELECT sweep.start('holder')});
		at_gate($node, 9, "$setting: again one run has the only slot");
		$second = $node->safe_psql('postgres', q{SELECT sweep.start('waiter')});
		soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'waiter'}, "waiting_for_slot: $setting", "$setting: and the next one waits");
		# The scheduler has seen that: it is told of the end of the tick in which it has.
		tick($node);
		open_gate($gate);
		is(ended_run($node, $_), 'succeeded drained 1 0', "$setting: run $_ has its turn") for ($first, $second);
		tick($node);
	}
	$log = slurp_file($node->logfile, $offset);
	is(scalar(() = $log =~ /pg_sweep runs are waiting for a background worker/g), 1, "$setting: a moment is no line in the log");
	is(scalar(() = $log =~ /pg_sweep runs no longer wait/g), 1, "$setting: nor is its end");
	like($log, qr/HINT:  Raise \Q$setting\E,/, "$setting: the log says what to raise");
}

$node->safe_psql('postgres', q{
	SELECT sweep.create_job('holder', step => 't.note', args => '{"gate": 9}');
	SELECT sweep.create_job('waiter', step => 't.note'), sweep.create_job('another waiter', step => 't.note');
});

# ---------------------------------------------------------------- runs have all processes
$node->safe_psql('postgres', q{SELECT sweep.create_job('holder too', step => 't.note', args => '{"gate": 8}')});
my @gates = map { hold_gate($node, $_) } 8, 9;
my @runs = ($node->safe_psql('postgres', q{SELECT sweep.start('holder')}));
at_gate($node, 9, 'one run has a process');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('waiter')})), 'succeeded drained 1 0', 'a scheduler gives the other one to the next run');
push @runs, $node->safe_psql('postgres', q{SELECT sweep.start('holder too')});
at_gate($node, 8, 'so it does for a run that does not end');
push @runs, $node->safe_psql('postgres', q{SELECT sweep.start('waiter')});
soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'waiter'}, 'waiting_for_slot: max_worker_processes', 'then the next job waits, and says for what');
open_gate($_) for @gates;
is(ended_run($node, $_), 'succeeded drained 1 0', "run $_ has its turn") for @runs;

# ---------------------------------------------------------------- one process for all
# A scheduler takes it, queues a run and leaves, and then the run has it.
$node->safe_psql('postgres', q{CREATE DATABASE other});
prepare_database($node, 'other');
$node->append_conf('postgresql.conf', 'max_worker_processes = 3');
$node->restart;
$node->safe_psql('other', q{SELECT sweep.create_job('waiter', step => 't.note', schedule => '2 seconds')});
$node->safe_psql('postgres', q{SELECT sweep.alter_job('waiter', '{"schedule": "2 seconds"}')});
soon($node, q{SELECT count(*) >= 2 FROM sweep.runs WHERE job = 'waiter' AND trigger = 'schedule' AND status = 'succeeded'}, 't', "one process: $_ has its turns", $_) for 'postgres', 'other';
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('another waiter')})), 'succeeded drained 1 0', 'one process: so has what is asked for');
$node->safe_psql('other', q{SELECT sweep.drop_job('waiter')});
$node->safe_psql('postgres', q{SELECT sweep.alter_job('waiter', '{"schedule": null}')});

$node->append_conf('postgresql.conf', "max_worker_processes = 20\npg_sweep.max_running_jobs = 1");
$node->restart;
check('pg_sweep.max_running_jobs');

# ---------------------------------------------------------------- not even a scheduler finds room
# A query has all the parallel workers that there are, and they wait for a lock.
$node->safe_psql('postgres', q{
	CREATE TABLE t.closed ();
	CREATE TABLE t.large WITH (parallel_workers = 3) AS SELECT i FROM generate_series(1, 5000) AS i;
	CREATE FUNCTION t.look(i int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM FROM t.closed; RETURN i; END'});
$node->append_conf('postgresql.conf', "max_worker_processes = 5\nmax_parallel_workers = 5");
$node->restart;
$node->safe_psql('postgres', q{CREATE ROLE clerk; SELECT sweep.create_queue('letters')});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_sweep (scheduler|runner)'}, 0, 'nothing to do, no scheduler');
my $locker = session($node);
$locker->query_safe('BEGIN; LOCK TABLE t.closed');
my $reader = session($node);
$reader->query_safe('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 3');
my $reader_pid = $reader->query_safe('SELECT pg_backend_pid()');
# A scheduler that the launcher has yet to start for the new queue may take one of the three: then the query is asked again.
my ($workers, $deadline) = (0, time + $PostgreSQL::Test::Utils::timeout_default);
while (time < $deadline)
{
	SweepTest::begin_query($reader, 'SELECT sum(t.look(i)) FROM t.large');
	for (my $until = time + 5; $workers < 3 && time < $until;)
	{
		$workers = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
	}
	last if $workers == 3;
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($reader_pid)");
	SweepTest::end_query($reader);
}
is($workers, 3, 'a query has all processes that there are');
my $offset = -s $node->logfile;
my (undef, undef, $refused) = $node->psql('postgres', q{SELECT sweep.grant_queue('letters', 'clerk', '{send}')});
like($refused, qr/ERROR:  role "clerk" cannot be made a member of sweep_client: no background worker is free\n.*HINT:  .*GRANT sweep_client/s,
	'no room for what makes a role a member of sweep_client: the error says what to do');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.queue WHERE 'clerk' = ANY (senders)}), 0, 'and the queue is not granted');
$node->safe_psql('postgres', q{GRANT sweep_client TO clerk; SELECT sweep.grant_queue('letters', 'clerk', '{send}')});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.queue WHERE 'clerk' = ANY (senders)}), 1, 'that lets the queue be granted');
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('waiter')});
$node->wait_for_log(qr/could not start a scheduler for database "postgres"\n.*DETAIL:  All of max_worker_processes = 5 are in use; parallel queries may use max_parallel_workers = 5 of them/, $offset);
soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'waiter'}, 'waiting_for_slot: max_worker_processes', 'no room for a scheduler: the job says so');
my $launcher = pid_of($node, 'launcher');
my $used = cpu_seconds($launcher);
my $begin = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$node->poll_query_until('postgres', "SELECT clock_timestamp() > '$begin'::timestamptz + interval '2 s'");
$used = cpu_seconds($launcher) - $used;
cmp_ok($used, '<', 0.2, "no room for a scheduler: the launcher used $used s of 2 s");
is(scalar(() = slurp_file($node->logfile, $offset) =~ /could not start a scheduler/g), 1, 'no room for a scheduler: one line in the log');
$locker->query_safe('COMMIT');
SweepTest::end_query($reader);
is(ended_run($node, $run), 'succeeded drained 1 0', 'room again: a scheduler starts, and the run');
$_->quit for $locker, $reader;

# ---------------------------------------------------------------- too few for anything
$node->append_conf('postgresql.conf', "max_worker_processes = 2\nmax_parallel_workers = 2");
$node->restart;
$node->safe_psql('postgres', 'CREATE DATABASE few');
my ($status, $output, $message) = $node->psql('few', 'CREATE EXTENSION pg_sweep');
like($message, qr/^.*WARNING:  max_worker_processes = 2 leaves no process for the runs of jobs\nDETAIL:  It must be 3 at least: .*\nHINT:  Raise max_worker_processes.*max_parallel_workers \(2\)/, 'too few processes: CREATE EXTENSION says so');
$node->stop;
done_testing();
