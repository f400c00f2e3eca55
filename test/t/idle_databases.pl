# room: process
# A database in which nothing is due has no process of pg_sweep, however many there are; what falls due or is asked for
# starts one. Seven databases in which a job is due every 10 seconds run it on time with 8 workers.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# The default of max_worker_processes, and of max_parallel_workers.
my $node = new_cluster('idle_databases', conf => [ 'max_worker_processes = 8' ]);
my $ours = q{SELECT string_agg(backend_type, ', ' ORDER BY backend_type) FROM pg_stat_activity WHERE backend_type ~ '^pg_sweep'};

# ---------------------------------------------------------------- nothing to do
$node->safe_psql('postgres', 'CREATE DATABASE pattern');
prepare_database($node, 'pattern');
$node->safe_psql('pattern', q{SELECT sweep.create_job('work', step => 't.note', args => '{"job": "work"}')});
soon($node, $ours, 'pg_sweep launcher', 'a database with a job that nothing starts has no process');
$node->safe_psql('postgres', join(';', map { "CREATE DATABASE d$_ TEMPLATE pattern STRATEGY file_copy" } 1 .. 12));
soon($node, $ours, 'pg_sweep launcher', '12 databases with the extension have none either');

# ---------------------------------------------------------------- what is asked for
$node->safe_psql("d$_", 'SELECT sweep.resume_all()') for 1 .. 7;
soon($node, $ours, 'pg_sweep launcher', 'no process before anything is due');
my $later = $node->safe_psql('d1', q{SELECT sweep.start('work', delay => '10 min')});
soon($node, $ours, 'pg_sweep launcher', 'nor while the next run is due in more than a minute');
my $run = $node->safe_psql('d7', q{SELECT sweep.start('work')});
is(ended_run($node, $run, 'd7'), 'succeeded drained 1 0', 'a run that is started in a database without a process');
cmp_ok($node->safe_psql('d7', "SELECT extract(epoch FROM started_at - due_at) FROM sweep.runs WHERE run_id = $run"), '<', 5, 'begins soon');
soon($node, $ours, 'pg_sweep launcher', 'nothing is left of it');
# Who starts a run again within a second finds the same scheduler.
my $the_scheduler = q{(SELECT concat_ws(' ', pid, backend_start) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler')};
my ($seen, $deadline) = ('', time + $PostgreSQL::Test::Utils::timeout_default);
while ($seen ne 't same' && time < $deadline)
{
	$seen = $node->safe_psql('d7', qq{
		SELECT sweep.start('work') AS run, clock_timestamp() AS begun \\gset
		CALL sweep.wait(:run);
		SELECT coalesce($the_scheduler, 'none') AS first \\gset
		SELECT sweep.start('work') AS run, clock_timestamp() - :'begun' < interval '900 ms' AS soon \\gset
		CALL sweep.wait(:run);
		SELECT concat_ws(' ', :'soon', CASE $the_scheduler WHEN :'first' THEN 'same' ELSE 'another' END)});
}
is($seen, 't same', 'of two runs, one after the other, one scheduler starts both');
soon($node, $ours, 'pg_sweep launcher', 'and leaves after a second');
$node->safe_psql('d1', "SELECT sweep.cancel($later)");

# ---------------------------------------------------------------- seven databases, each with a job every 10 seconds
$node->safe_psql("d$_", q{SELECT sweep.alter_job('work', '{"schedule": "10 seconds"}')}) for 1 .. 7;
for my $database (map { "d$_" } 1 .. 7)
{
	soon($node, "SELECT count(*) >= 2 FROM sweep.runs WHERE trigger = 'schedule' AND status = 'succeeded'", 't', "$database: it runs", $database);
}
for my $database (map { "d$_" } 1 .. 7)
{
	is($node->safe_psql($database, q{SELECT string_agg(format('%s %s', status, started_at - due_at), ', ') FROM sweep.runs
			WHERE trigger <> 'manual' AND (trigger <> 'schedule' OR status NOT IN ('succeeded', 'running', 'waiting') OR started_at - due_at > interval '5 s')}), '', "$database: on time");
	is($node->safe_psql($database, q{SELECT max(due_at - before) FROM (SELECT due_at, lag(due_at) OVER (ORDER BY due_at) AS before FROM sweep.runs WHERE trigger = 'schedule') AS r}),
		'00:00:10', "$database: none is left out");
}
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}), '<=', 3, 'half of the processes at most are schedulers');
$node->safe_psql("d$_", q{SELECT sweep.pause('work')}) for 1 .. 7;
soon($node, $ours, 'pg_sweep launcher', 'no process is left');

# ---------------------------------------------------------------- runs wait for a process that a scheduler has which itself waits
# Six processes: one scheduler, and five runs.
my @gates = map { hold_gate($node, 9, "d$_") } 1 .. 2;
$node->safe_psql("d$_", q{SELECT sweep.create_job('held' || i, step => 't.note', args => '{"gate": 9}') FROM generate_series(1, 5) AS i}) for 1 .. 2;
$later = $node->safe_psql('d1', q{SELECT sweep.start('held5', delay => '50 s')});
soon($node, $ours, 'pg_sweep launcher, pg_sweep scheduler', 'a scheduler waits for what is due within a minute');
$node->safe_psql('d2', q{SELECT sweep.start('held' || i) FROM generate_series(1, 5) AS i});
my $begin = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
soon($node, q{SELECT count(*) >= 5 FROM pg_stat_activity WHERE datname = 'd2' AND backend_type = 'pg_sweep runner' AND wait_event_type = 'Lock'}, 't', 'it leaves its process to a run of another database');
cmp_ok($node->safe_psql('postgres', "SELECT extract(epoch FROM clock_timestamp() - '$begin')"), '<', 20, 'at once');
# Then two schedulers and four runs, and more runs wait in both databases.
open_gate($gates[1]);
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'}, 0, 'they end');
$gates[1] = hold_gate($node, 9, 'd2');
$node->safe_psql("d$_", q{SELECT sweep.start('held' || i) FROM generate_series(1, 4) AS i}) for 1 .. 2;
$begin = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
soon($node, q{SELECT count(*) >= 5 FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner' AND wait_event_type = 'Lock'}, 't', 'of two schedulers whose runs wait one leaves its process to a run');
cmp_ok($node->safe_psql('postgres', "SELECT extract(epoch FROM clock_timestamp() - '$begin')"), '<', 20, 'at once');
open_gate($_) for @gates;
for my $database ('d1', 'd2')
{
	soon($node, q{SELECT count(*) >= 4 FROM sweep.runs WHERE status = 'succeeded' AND job ~ 'held'}, 't', "$database: all runs have their turn", $database);
}

# ---------------------------------------------------------------- runs that take long leave a process to others
soon($node, $ours, 'pg_sweep launcher', 'no process is left of these');
for my $database (map { "d$_" } 1 .. 7)
{
	$node->safe_psql($database, q{SELECT sweep.create_job('long', step => 't.note', args => '{"gate": 7}')});
	ended_run($node, $node->safe_psql($database, q{SELECT sweep.start('long')}), $database);
	tick($node, database => $database);
	$node->safe_psql($database, q{UPDATE sweep.run_history SET started_at = started_at - interval '61 s' WHERE job = 'long'});
}
soon($node, $ours, 'pg_sweep launcher', 'each has run once');
@gates = map { hold_gate($node, 7, "d$_") } 1 .. 7;
$node->safe_psql("d$_", q{SELECT sweep.start('long')}) for 1 .. 7;
my $waiting = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner' AND wait_event_type = 'Lock'};
soon($node, $waiting, 5, 'five of seven runs that take long have a process');
for my $database (map { "d$_" } 1 .. 7)
{
	is(ended_run($node, $node->safe_psql($database, q{SELECT sweep.start('work')}), $database), 'succeeded drained 1 0', "$database: a short one has the last one");
}
is($node->safe_psql('postgres', $waiting), 5, 'which is not given to a sixth');
open_gate($_) for @gates;
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'long' AND status = 'succeeded'}, 2, "d$_: it has its turn", "d$_") for 1 .. 7;
$node->stop;
done_testing();
