# room: process
# What the scheduler and the launcher must not miss: a run that falls due while
# the scheduler works, an extension that is created while it leaves, a scheduler
# that is up while others wait for their start.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# Less than the minute after which everybody looks anyhow.
my $at_once = 30;

# A library that stops a scheduler right after it has committed a transaction.
my $library = PostgreSQL::Test::Utils::tempdir . '/hold_scheduler.so';
my $config = $ENV{PG_CONFIG} || 'pg_config';
chomp(my $include = `$config --includedir-server`);
system('cc', '-shared', '-fPIC', '-O1', '-D_GNU_SOURCE', "-I$include", '-o', $library, __FILE__ =~ s{[^/]*$}{hold_scheduler.c}r) == 0
  or die 'hold_scheduler.c does not compile';

my $node = new_cluster('scheduler_wake', preload => "pg_sweep, $library");

sub psql
{
	my ($statement, $database) = @_;

	return $node->safe_psql($database // 'postgres', $statement);
}

sub soon_enough
{
	local $PostgreSQL::Test::Utils::timeout_default = $at_once;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, @_);
}

sub hold_scheduler
{
	append_to_file($node->data_dir . "/hold_$_[0]", '');
}

sub is_held
{
	soon($node, "SELECT count(*) FROM pg_stat_file('held_$_[0]', true) AS f WHERE f.size IS NOT NULL", 1, $_[1]);
}

sub let_go
{
	unlink($node->data_dir . "/hold_$_[0]") == 1 or die 'nothing was held';
}

# ---------------------------------------------------------------- 37: it falls due between the list and the question when to wake
my $postgres = psql(q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
psql(q{SELECT sweep.create_job('work', step => 't.note')});
my $scheduler = pid_of($node, 'scheduler', 'postgres');
soon($node, "SELECT state FROM pg_stat_activity WHERE pid = $scheduler", 'idle', '37: the scheduler rests');
hold_scheduler($postgres);
my $run_id = psql(q{SELECT sweep.start('work', delay => '5 s')});
is_held($postgres, '37: the scheduler has listed what may start');
soon($node, "SELECT status, due_at < clock_timestamp() FROM sweep.runs WHERE run_id = $run_id", 'waiting|t', '37: a run falls due that was not in its list');
let_go($postgres);
soon_enough("SELECT status FROM sweep.runs WHERE run_id = $run_id AND finished_at IS NOT NULL", 'succeeded', '37: and is started at once');

# ---------------------------------------------------------------- 38: the extension is created while the scheduler leaves that has not found it
hold_scheduler(77777);
psql('CREATE DATABASE other OID = 77777');
psql('SELECT pg_reload_conf()');
is_held(77777, '38: a scheduler has found no extension');
my $leaving = pid_of($node, 'scheduler', 'other');
psql('CREATE EXTENSION pg_sweep', 'other');
let_go(77777);
soon($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $leaving", 0, '38: it leaves');
soon_enough(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'other'}, 1,
	'38: another one comes, which finds it');

# without an extension it goes, and nobody comes until there is one
psql('DROP EXTENSION pg_sweep', 'other');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'other'}, 0, '38: no extension, no scheduler');
psql('CREATE EXTENSION pg_sweep', 'other');
soon_enough(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'other'}, 1, '38: one that is created has one');

# ---------------------------------------------------------------- 22: many databases after a restart
my $databases = 11;
psql("CREATE DATABASE d$_") for 3 .. $databases;
psql('CREATE EXTENSION pg_sweep', "d$_") for 3 .. $databases;
$node->restart;
soon_enough(q{SELECT count(DISTINCT datname) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}, $databases,
	"22: $databases databases have their schedulers soon after a restart");

$node->stop;
done_testing();
