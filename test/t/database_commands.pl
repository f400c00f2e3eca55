# room: process
# DROP, RENAME, SET TABLESPACE and CREATE ... TEMPLATE need a database for
# themselves: the scheduler leaves at once, a run in progress is named as the
# reason, and there is a scheduler again where something is due.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use SweepTest;

my $node = new_cluster('database_commands');
my $tablespace = PostgreSQL::Test::Utils::tempdir;
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$tablespace'");

sub create_database
{
	my ($name) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	prepare_database($node, $name);
	$node->safe_psql($name, q{
		SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}');
		SELECT sweep.create_job('long', step => 't.note', args => '{"gate": 11}')});
	works($name, "$name: its jobs run");
	keep_scheduler($node, $name);
}

# Jobs start by their schedule in this database.
sub works
{
	my ($database, $name) = @_;
	my $count = $node->safe_psql($database, 'SELECT count(*) FROM t.started');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, "SELECT count(*) > $count FROM t.started", 't', $name, $database);
}

# How long the commands took that succeed, in seconds; one may meet a slow disk.
my @seconds;

sub succeeds
{
	my ($statement, $name) = @_;
	my $begin = time;
	my ($status, $output, $message) = $node->psql('postgres', $statement);

	push @seconds, time - $begin;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, 0, $name) or diag($message);
}

sub median { return (sort { $a <=> $b } @_)[ @_ / 2 ] }

# A scheduler waits for the next moment, and nothing runs.
sub idle
{
	my ($database) = @_;

	$node->safe_psql($database, q{SELECT sweep.pause('tick')});
	SweepTest::not_before_the_minute($node, $database);
	ok(pid_of($node, 'scheduler', $database), "$database: its scheduler is there");
}

# ---------------------------------------------------------------- idle
create_database('one');
idle('one');
succeeds('ALTER DATABASE one RENAME TO two', 'RENAME');
ok(pid_of($node, 'scheduler', 'two'), 'RENAME: there is a scheduler again');
$node->safe_psql('two', q{SELECT sweep.resume('tick')});
works('two', 'RENAME: its jobs run');

idle('two');
succeeds('ALTER DATABASE two SET TABLESPACE elsewhere', 'SET TABLESPACE');
ok(pid_of($node, 'scheduler', 'two'), 'SET TABLESPACE: there is a scheduler again');

$node->safe_psql('two', q{SELECT sweep.resume('tick')});
works('two', 'SET TABLESPACE: its jobs run');
not_before_the_hour($node);
# Not paused: the copy must not start what the original starts.
$node->safe_psql('two', q{SELECT sweep.alter_job('tick', '{"schedule": "every 1 hour"}')});
SweepTest::not_before_the_minute($node, 'two');
succeeds('CREATE DATABASE three TEMPLATE two', 'TEMPLATE');
ok(pid_of($node, 'scheduler', 'two'), 'TEMPLATE: the original has a scheduler again');
is($node->safe_psql('three', q{SELECT DISTINCT state FROM sweep.jobs}), 'paused: the database is a copy', 'TEMPLATE: the jobs of the copy are paused');
is($node->safe_psql('two', q{SELECT DISTINCT state FROM sweep.jobs}), 'idle', 'TEMPLATE: those of the original are not');
my $count = $node->safe_psql('three', 'SELECT count(*) FROM t.started');
$node->safe_psql('three', q{SELECT sweep.alter_job('tick', '{"schedule": "* * * * * *"}')});
$node->safe_psql('two', q{SELECT sweep.alter_job('tick', '{"schedule": "* * * * * *"}')});
works('two', 'TEMPLATE: the original goes on');
is($node->safe_psql('three', 'SELECT count(*) FROM t.started'), $count, 'TEMPLATE: nothing starts in the copy');
$node->safe_psql('three', 'SELECT sweep.resume_all()');
works('three', 'TEMPLATE: resume_all makes the copy a database of its own');

idle('three');
succeeds('DROP DATABASE three', 'DROP');

# While its scheduler is only just starting, too.
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', 'CREATE DATABASE brief');
	$node->safe_psql('brief', 'CREATE EXTENSION pg_sweep');
	succeeds('DROP DATABASE brief', "DROP just after CREATE EXTENSION, round $round");
}

# ---------------------------------------------------------------- not for those who may not do it
my $scheduler = pid_of($node, 'scheduler', 'two');
for my $statement ('DROP DATABASE two', 'ALTER DATABASE two RENAME TO mine', 'CREATE DATABASE mine TEMPLATE two')
{
	my ($status, $output, $message) = $node->psql('postgres', $statement, extra_params => [ '-U', 'jobber' ]);
	like($message, qr/must be owner of database two|permission denied to (create|copy|rename) database/, "$statement: refused to others");
}
is(pid_of($node, 'scheduler', 'two'), $scheduler, 'and the scheduler has stayed');

# ---------------------------------------------------------------- while a run is in progress
my $gate = hold_gate($node, 11, 'two');
idle('two');
my $run = $node->safe_psql('two', q{SELECT sweep.start('long')});
my @refused;
at_gate($node, 11, 'a run is in progress', 'two');
for my $statement ('DROP DATABASE two', 'ALTER DATABASE two RENAME TO five', 'ALTER DATABASE two SET TABLESPACE pg_default',
	'CREATE DATABASE five TEMPLATE two')
{
	my $begin = time;
	my ($status, $output, $message) = $node->psql('postgres', $statement);
	like($message, qr/ERROR:  database "two" is being used by pg_sweep\nDETAIL:  There is 1 run in progress in it/, "$statement: says why not");
	push @refused, time - $begin;
}
cmp_ok(median(@refused), '<', 5, 'at once');
is($node->safe_psql('two', "SELECT status FROM sweep.runs WHERE run_id = $run"), 'running', 'the run has not been disturbed');
is(pid_of($node, 'scheduler', 'two'), $scheduler, 'nor the scheduler');
open_gate($gate);
is(ended_run($node, $run, 'two'), 'succeeded drained 1 0', 'the run ends as usual');

# The gate is in the same database, so it is one of the sessions that FORCE ends.
$gate = hold_gate($node, 11, 'two');
$run = $node->safe_psql('two', q{SELECT sweep.start('long')});
at_gate($node, 11, 'a run is in progress again', 'two');
succeeds('DROP DATABASE two WITH (FORCE)', 'DROP WITH (FORCE) with a run in progress');
forget_session($gate);
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('pg_sweep runner', 'pg_sweep scheduler') AND datname <> 'postgres'},
	0, 'DROP WITH (FORCE): no process is left');

# ---------------------------------------------------------------- many at once, and one that is not allowed
create_database($_) for ('a1', 'a2');
$node->append_conf('postgresql.conf', "pg_sweep.databases = 'a1, postgres'");
$node->reload;
soon($node, q{SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'},
	'a1', 'pg_sweep.databases: the scheduler elsewhere leaves');
works('a1', 'pg_sweep.databases: jobs run where they may');
my ($status, $output, $message) = $node->psql('a2', q{SELECT sweep.start('tick')});
like($message, qr/pg_sweep does not start background workers in database "a2"\nHINT:  Add the database to pg_sweep.databases/,
	'pg_sweep.databases: start says what to set');
$node->append_conf('postgresql.conf', "pg_sweep.databases = ''");
$node->reload;
ok(pid_of($node, 'scheduler', 'a2'), 'pg_sweep.databases: empty means all again');
works('a2', 'pg_sweep.databases: its jobs run');

# ---------------------------------------------------------------- a template, and closed to connections
for my $closed ([ 'IS_TEMPLATE', 'true', 'false' ], [ 'ALLOW_CONNECTIONS', 'false', 'true' ])
{
	my ($option, $close, $open) = @$closed;
	my $inside = $node->background_psql('a2', on_error_stop => 0);

	idle('a2');
	$inside->query('SELECT 1');
	$node->safe_psql('postgres', "ALTER DATABASE a2 $option $close");
	$run = $inside->query(q{SELECT sweep.start('long')});
	soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'a2' AND backend_type <> 'client backend'}, 0, "$option $close: the scheduler leaves");
	is($inside->query("SELECT status FROM sweep.runs WHERE run_id = $run"), 'waiting', "$option $close: a run waits");
	$node->safe_psql('postgres', "ALTER DATABASE a2 $option $open");
	# asks for a scheduler
	$inside->query(q{SELECT sweep.pause('tick'), sweep.resume('tick')});
	$inside->quit;
	is(ended_run($node, $run, 'a2'), 'succeeded drained 1 0', "$option $open: it is executed");
}

idle('a2');
succeeds('DROP DATABASE a2', 'DROP');
cmp_ok(median(@seconds), '<', 5, 'all these commands succeed within 5 s, unless the disk is slow');
$node->stop;
done_testing();
