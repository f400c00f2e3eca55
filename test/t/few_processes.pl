# room: base
# A server with PostgreSQL's default of max_worker_processes: no role takes all of them, be it by runs, by consumers or by both.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('few_processes', conf => ['max_worker_processes = 8']);
my $waits = 'SELECT count(*) FROM pg_locks WHERE ' . SweepTest::gate_condition(9);

my $end_consumers = q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pg_sweep consumer'};

sub as_role
{
	my ($role, $query) = @_;

	return $node->safe_psql('postgres', $query, extra_params => [ '-U', $role ]);
}

sub alice_runs
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(ended_run($node, as_role('alice', q{SELECT sweep.start('short')})), 'succeeded drained 1 0', $name);
}

sub stop_all
{
	$node->safe_psql('postgres', q{SELECT sweep.cancel(run_id) FROM sweep.runs WHERE finished_at IS NULL});
	soon($node, q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL}, 0, 'all runs are ended');
}

$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN IN ROLE sweep_user; CREATE ROLE mallory LOGIN IN ROLE sweep_user; CREATE ROLE mate LOGIN IN ROLE sweep_user;
	CREATE FUNCTION t.hang(m sweep.message) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS
		$$BEGIN PERFORM pg_advisory_xact_lock(9); END$$});
as_role('alice', q{SELECT sweep.create_job('short', step => 't.note')});
as_role($_, qq{SELECT sweep.create_job('$_' || i, step => 't.note', args => '{"gate": 9}') FROM generate_series(1, 8) AS i}) for ('mallory', 'mate');
my $gate = hold_gate($node, 9);

# ---------------------------------------------------------------- runs
# Launcher, scheduler and PostgreSQL's launcher of logical replication leave five.
my $offset = -s $node->logfile;
as_role('mallory', q{SELECT sweep.start('mallory' || i) FROM generate_series(1, 8) AS i});
soon($node, $waits, 3, 'runs: three endless ones of mallory have a process');
soon($node, q{SELECT DISTINCT state FROM sweep.jobs WHERE name IN ('mallory7', 'mallory8')}, 'waiting_for_slot: max_worker_processes', 'runs: the others wait, and say for what');
ok($node->wait_for_log(qr/Role "mallory" has its share: of max_worker_processes = 8, runs and consumers may have 5, those of a role 3, and/, $offset), 'runs: the log has the numbers');
like(slurp_file($node->logfile, $offset), qr/HINT:  Raise max_worker_processes, which needs a restart of the server, or spread the schedules\./, 'runs: and what to do');
as_role('mate', q{SELECT sweep.start('mate' || i) FROM generate_series(1, 8) AS i});
soon($node, $waits, 4, 'runs: another role with endless ones has one');
alice_runs('runs: and the last process is for a role that has none');
is($node->safe_psql('postgres', $waits), 4, 'runs: neither of the others has more');
stop_all();

# ---------------------------------------------------------------- consumers
as_role('mallory', q{SELECT sweep.create_queue('q'), sweep.send_many('q', array_fill('1'::jsonb, ARRAY[20])), sweep.create_consumer('q', 't.hang', concurrency => 8)});
soon($node, $waits, 3, 'consumers: three processes of mallory do not return');
soon($node, q{SELECT state, workers FROM sweep.consumers}, 'waiting_for_slot|3', 'consumers: it wants more');
alice_runs('consumers: there is one for alice');
ok($node->wait_for_log(qr/consumers are waiting for a background worker\n.*Role "mallory" has its share: of max_worker_processes = 8/, $offset), 'consumers: the log says so');

# ---------------------------------------------------------------- both
as_role('mallory', q{SELECT sweep.start('mallory1')});
soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'mallory1'}, 'waiting_for_slot: max_worker_processes', 'both: a run of mallory waits beside the consumer');
alice_runs('both: and none of alice');
is($node->safe_psql('postgres', $waits), 3, 'both: mallory has three processes');
as_role('mallory', q{SELECT sweep.drop_consumer('q')});
$node->safe_psql('postgres', $end_consumers);
soon($node, $waits, 1, 'both: without the consumer there is room for it');
as_role('mallory', q{SELECT sweep.create_consumer('q', 't.hang')});
soon($node, $waits, 2, 'both: and for a consumer with one process');
as_role('mallory', q{SELECT sweep.start('mallory' || i) FROM generate_series(2, 8) AS i});
soon($node, $waits, 3, 'both: and for another run');
alice_runs('both: but not for all');
as_role('mallory', q{SELECT sweep.drop_consumer('q')});
$node->safe_psql('postgres', $end_consumers);
stop_all();
soon($node, $waits, 0, 'no process is left');
as_role('mallory', q{SELECT sweep.drop_queue('q')});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_sweep (consumer|runner)'}, 0, 'nor any that is not always there');

# ---------------------------------------------------------------- what others use
# Two parallel workers of a query wait for a lock: three processes are left, of which a role may have two.
$node->safe_psql('postgres', q{
	CREATE TABLE t.closed ();
	CREATE TABLE t.large WITH (parallel_workers = 2) AS SELECT i FROM generate_series(1, 5000) AS i;
	CREATE FUNCTION t.look(i int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM FROM t.closed; RETURN i; END'});
my $locker = session($node);
$locker->query_safe('BEGIN; LOCK TABLE t.closed');
my $reader = session($node);
$reader->query_safe('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
SweepTest::begin_query($reader, 'SELECT sum(t.look(i)) FROM t.large');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}, 2, 'others: a query has two parallel workers');
as_role('mallory', q{SELECT sweep.start('mallory' || i) FROM generate_series(1, 8) AS i});
soon($node, $waits, 2, 'others: two runs of mallory have a process');
alice_runs('others: so has one of alice');
is($node->safe_psql('postgres', $waits), 2, 'others: mallory has no more');
$locker->query_safe('COMMIT');
SweepTest::end_query($reader);
soon($node, $waits, 3, 'others: when the query has ended a third one starts');
stop_all();
$_->quit for ($locker, $reader);
open_gate($gate);

# ---------------------------------------------------------------- two, and one
$node->append_conf('postgresql.conf', 'max_worker_processes = 5');
$node->restart;
$gate = hold_gate($node, 9);
as_role('mallory', q{SELECT sweep.start('mallory' || i) FROM generate_series(1, 8) AS i});
soon($node, $waits, 1, 'two: mallory has one of them');
alice_runs('two: alice the other one');
is($node->safe_psql('postgres', $waits), 1, 'two: mallory still one');

$node->append_conf('postgresql.conf', 'max_worker_processes = 4');
open_gate($gate);
stop_all();
$node->restart;
$node->safe_psql('postgres', q{TRUNCATE t.started;
	SELECT sweep.create_job('m' || i, step => 't.note', run_as => 'mallory', args => '{"job": "m"}') FROM generate_series(1, 20) AS i;
	SELECT sweep.create_job('a', step => 't.note', run_as => 'alice', args => '{"job": "a"}')});
$gate = hold_gate($node, 9);
as_role('mallory', q{SELECT sweep.start('mallory1')});
at_gate($node, 9, 'one: mallory has it');
$node->safe_psql('postgres', q{SELECT sweep.start('m' || i) FROM generate_series(1, 20) AS i});
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('a')});
tick($node);
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 1 0', 'one: the run of alice ends');
soon($node, q{SELECT count(*) FROM t.started WHERE job = 'm'}, 20, 'one: and all of mallory');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'm' AND at < (SELECT at FROM t.started WHERE job = 'a')}), '<=', 2,
	'one: it has not waited for the backlog of mallory');

$node->stop;
done_testing();
