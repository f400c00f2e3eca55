# room: process
# The scheduler works when it is called, not each time its latch is set: the
# postmaster sets it for every worker that starts or ends.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('scheduler_rest');
my $scheduler = keep_scheduler($node);
soon($node, "SELECT state FROM pg_stat_activity WHERE pid = $scheduler", 'idle', 'its first tick is over');

# A tick ends with a change of the state that pg_stat_activity shows.
sub last_tick
{
	return $node->safe_psql('postgres', "SELECT state_change FROM pg_stat_activity WHERE pid = $scheduler AND state = 'idle'");
}

# How often the process has gone to sleep.
sub sleeps
{
	return (slurp_file("/proc/$scheduler/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m)[0];
}

sub called
{
	my ($statement, $name) = @_;
	my $before = last_tick();

	$node->safe_psql('postgres', $statement);
	soon($node, "SELECT state_change > '$before' FROM pg_stat_activity WHERE pid = $scheduler AND state = 'idle'", 't', $name);
}

called('SELECT sweep._wake()', 'who calls it has it look');
called(q{SELECT sweep.create_job('work', step => 't.note')}, 'so does who creates a job');

not_before_the_minute($node);
soon($node, "SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = $scheduler", 't', 'it sleeps');
my $before = last_tick();
my $slept = sleeps();
ok(kill_process('USR1', $scheduler), 'its latch is set by a signal');
my $deadline = time() + $PostgreSQL::Test::Utils::timeout_default;
$node->safe_psql('postgres', 'SELECT 1') while sleeps() == $slept && time() < $deadline;
cmp_ok(sleeps(), '>', $slept, 'it wakes');
is(last_tick(), $before, 'and sleeps on');

called(q{SELECT sweep.start('work')}, 'then a start has it look');
soon($node, q{SELECT count(*) FROM sweep.run_history WHERE job = 'work'}, '1', 'and the end of the run');
$node->append_conf('postgresql.conf', 'pg_sweep.history_per_job = 7');
called('SELECT pg_reload_conf()', 'so does a new configuration');

$node->stop;
done_testing();
