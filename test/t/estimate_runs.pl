# room: engine
# The estimate of a job in the background: the end of its first run is known, and nothing that is wrong with the estimate
# ends the run or keeps it waiting for more than a second.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('estimate_runs');

sub ask
{
	return $node->safe_psql('postgres', $_[0]);
}

# Seconds on the clock of the server.
sub clock
{
	return ask('SELECT extract(epoch FROM clock_timestamp())');
}

# A job with this estimate that handles all of t.todo, 10 rows.
sub job
{
	my ($name, $estimate, $settings) = @_;

	ask("UPDATE t.todo SET run_id = NULL;
		SELECT sweep.create_job('$name', step => 't.work', batch_size => 10, run_as => 'jobber', estimate => \$e\$$estimate\$e\$" . ($settings // '') . ')');
}

# Starts it; its run, how it ended, for how long it was in progress, and what the log says of its estimate.
sub outcome
{
	my ($name) = @_;
	my $offset = -s $node->logfile;
	my $run = ask("SELECT sweep.start('$name')");
	my $end = ended_run($node, $run);
	my ($line) = slurp_file($node->logfile, $offset) =~ /LOG:  job "\Q$name\E" run $run: its estimate is not known: (.*)/;

	return ($run, $end, ask("SELECT extract(epoch FROM finished_at - started_at) FROM sweep.runs WHERE run_id = $run"), $line // 'known');
}

ask(q{
	INSERT INTO t.todo SELECT i FROM generate_series(1, 10) AS i;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA t TO PUBLIC;
	CREATE FUNCTION t.execute(what text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE what; RETURN 5; END $$;
	CREATE TABLE t.seen (work_mem text, locks bigint, read_only text, estimated_rows bigint);
	GRANT ALL ON t.seen TO PUBLIC;
	CREATE FUNCTION t.look(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.seen SELECT current_setting('work_mem'),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND (relation = 't.todo'::regclass OR locktype = 'advisory' AND objid = 77)),
			current_setting('transaction_read_only'), (SELECT estimated_rows FROM sweep.running WHERE run_id = b.run_id);
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
});

# ---------------------------------------------------------------- the first run: what is left, and when that is done
# The first batch is held at a gate for a time that is measured from within and from without, and so is all that follows from it.
ask('INSERT INTO t.todo SELECT i FROM generate_series(11, 100) AS i');
my $gate = hold_gate($node, 60);
job('first', 'SELECT count(*) FROM t.todo', q{, args => '{"gate": 60}'});
my $before = clock();
my $run = ask(q{SELECT sweep.start('first')});
at_gate($node, 60, 'first run: the first batch is in progress');
is(ask("SELECT phase, rows, rows_per_second, estimated_rows, fraction, eta FROM sweep.running WHERE run_id = $run"), 'step|0|0.0|100|0.000|',
	'first run: it is known how much there is to do, and not yet for how long');
my $held = clock();
ok(soon($node, "SELECT extract(epoch FROM clock_timestamp()) > $held + 0.2", 't', 'first run: the batch takes a while'), 'first run: a fifth of a second at least');
my $until = clock();
step_gate($node, $gate, 60);
my $after = clock();
my ($rows, $rate, $fraction, $eta, $last) = split /\|/,
	ask("SELECT rows, rows_per_second, fraction, extract(epoch FROM eta), last_batch_ms FROM sweep.running WHERE run_id = $run");
is("$rows $fraction", '10 0.100', 'first run: a tenth is done');
cmp_ok($rate, '<=', 10 / ($until - $held) + 0.1, 'first run: rows per second, not more than what was done while the batch was held');
cmp_ok($rate, '>=', 10 / ($after - $before) - 0.1, 'first run: and not less than since it was started');
cmp_ok($eta, '>=', $until + 9 * ($until - $held) - 0.01, 'first run: nine times as long is left, at least');
cmp_ok($eta, '<=', $after + 9 * ($after - $before) + 0.01, 'first run: and at most');
cmp_ok(abs($rate - 10000 / $last), '<', 0.01 * $rate + 0.1, 'first run: of one batch it is the rate of that batch');
# Nothing is committed meanwhile: so nothing moves.
ok(soon($node, "SELECT extract(epoch FROM clock_timestamp()) > $after + 0.1", 't', 'first run: time goes by'), 'first run: within the second batch');
my $still = ask("SELECT rows_per_second || ' ' || extract(epoch FROM eta) FROM sweep.running WHERE run_id = $run");
is($still, "$rate $eta", 'first run: rate and end stand still until the next commit')
  if clock() < $eta;
step_gate($node, $gate, 60);
is(ask("SELECT rows || ' ' || fraction FROM sweep.running WHERE run_id = $run"), '20 0.200', 'first run: two tenths are done');
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 11 100', 'first run: it ends');
ask('DELETE FROM t.todo WHERE id > 10');

# An end that has passed is now: the next batch is longer than all before it.
$gate = hold_gate($node, 61);
job('late', 'SELECT 20', q{, args => '{"gate": 61, "gate_at": 2}'});
$run = ask(q{SELECT sweep.start('late')});
at_gate($node, 61, 'late: the second batch is in progress');
soon($node, "SELECT eta < clock_timestamp() AND eta > clock_timestamp() - interval '5 s' FROM sweep.running WHERE run_id = $run AND rows = 10", 't', 'late: the end has come close');
my ($first_look) = ask("SELECT extract(epoch FROM eta) FROM sweep.running WHERE run_id = $run");
cmp_ok(ask("SELECT extract(epoch FROM eta) FROM sweep.running WHERE run_id = $run"), '>', $first_look, 'late: and is never in the past');
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 2 10', 'late: it ends');

# ---------------------------------------------------------------- one second, and no longer
job('slow', 'SELECT count(*) FROM pg_sleep(600)');  # the sleep is the work
my ($end, $seconds, $line);
($run, $end, $seconds, $line) = outcome('slow');
is("$end: $line", 'succeeded drained 2 10: it takes longer than 1000 ms', 'slow: the run does its work, the estimate is not known');
cmp_ok($seconds, '>=', 0.99, 'slow: it had its second');
cmp_ok($seconds, '<', 60, 'slow: and did not have its ten minutes');
job('stubborn', q{SELECT t.stubborn()}) if ask(q{CREATE FUNCTION t.stubborn() RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(600); -- the sleep is the work
		RETURN 1;
	EXCEPTION WHEN query_canceled THEN
		RETURN 1;
	END $$}) eq '';
($run, $end, $seconds, $line) = outcome('stubborn');
is("$end: $line", 'succeeded drained 2 10: it takes longer than 1000 ms', 'slow: a function that catches that has no answer either');
# Planning counts as well: a function that is evaluated by the planner.
ask(q{CREATE FUNCTION t.slow_to_plan() RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM pg_sleep(600); RETURN 1; END $$});  # the sleep is the work
job('planned', 'SELECT count(*) FROM t.todo WHERE id > t.slow_to_plan()');
($run, $end, $seconds, $line) = outcome('planned');
is("$end: $line", 'succeeded drained 2 10: it takes longer than 1000 ms', 'slow: the time to plan it counts');
cmp_ok($seconds, '<', 60, 'slow: in this case, too');
# One that waits for a lock.
my $locker = session($node);
$locker->query_safe('CREATE TABLE t.locked (n int); GRANT SELECT ON t.locked TO PUBLIC');
job('waits', 'SELECT count(*) FROM t.locked');
$locker->query_safe('BEGIN; LOCK TABLE t.locked');
($run, $end, $seconds, $line) = outcome('waits');
is("$end: $line", 'succeeded drained 2 10: it takes longer than 1000 ms', 'slow: a lock is waited for as long');
ask(q{ALTER ROLE jobber SET lock_timeout = '100ms'; UPDATE t.todo SET run_id = NULL});
($run, $end, $seconds, $line) = outcome('waits');
is("$end: $line", 'succeeded drained 2 10: canceling statement due to lock timeout', 'slow: less with the lock_timeout of the role');
ask(q{ALTER ROLE jobber RESET lock_timeout; ALTER ROLE jobber SET statement_timeout = '900ms'; UPDATE t.todo SET run_id = NULL});
($run, $end, $seconds, $line) = outcome('waits');
# Which holds for the batch, too: one that takes as long is done again in halves.
like("$end: $line", qr/^succeeded drained \d+ 10: it takes longer than 900 ms$/, 'slow: less with its statement_timeout');
ask('ALTER ROLE jobber RESET statement_timeout; UPDATE t.todo SET run_id = NULL');
$locker->query_safe('COMMIT');
($run, $end, $seconds, $line) = outcome('waits');
is("$end: $line", 'succeeded drained 2 10: known', 'slow: without the lock it is known');
$locker->quit;

# ---------------------------------------------------------------- what fails is not known, and nothing stays
job('fails', 'SELECT 1 / (count(*) - 10) FROM t.todo');
($run, $end, $seconds, $line) = outcome('fails');
is("$end: $line", 'succeeded drained 2 10: division by zero', 'failing: the run does its work');
job('writes', q{SELECT t.execute('DELETE FROM t.todo')});
($run, $end, $seconds, $line) = outcome('writes');
is("$end: $line", 'succeeded drained 2 10: cannot execute DELETE in a read-only transaction', 'writing: refused');
ask(q{SELECT sweep.create_job('leaves', step => 't.look', run_as => 'jobber', estimate => $e$SELECT t.execute('LOCK TABLE t.todo IN ACCESS SHARE MODE;
	SELECT pg_advisory_xact_lock(77), set_config(''work_mem'', ''77kB'', false), set_config(''transaction_read_only'', ''on'', false)')$e$)});
($run, $end, $seconds, $line) = outcome('leaves');
is("$end: $line", 'succeeded drained 1 0: known', 'locks and settings: the estimate may have them');
is(ask('SELECT work_mem, locks, read_only, estimated_rows FROM t.seen'), '4MB|0|off|5', 'locks and settings: the first batch has none of them');
# One that does not fit into the slot of the run is read by the run.
job('long', 'SELECT 5 -- ' . ('x' x 10000));
($run, $end, $seconds, $line) = outcome('long');
is("$end: $line", 'succeeded drained 2 10: known', 'long: as any other');
# A rollback does not give back advisory locks of the session; that of the run is not among those.
job('unlocks', 'SELECT 5 FROM pg_advisory_unlock_all()');
($run, $end, $seconds, $line) = outcome('unlocks');
is("$end: $line", 'succeeded drained 2 10: known', 'unlocking: the run has its lock');

# ---------------------------------------------------------------- stopped while it is asked
job('cancels', 'SELECT CASE WHEN pg_cancel_backend(pg_backend_pid()) THEN (SELECT count(*) FROM pg_sleep(600)) END');  # the sleep is the work
($run, $end, $seconds, $line) = outcome('cancels');
is("$end: $line", 'cancelled cancelled 0 0: known', 'pg_cancel_backend: the run is cancelled');
ask(q{ALTER ROLE jobber SET statement_timeout = '1min'});
($run, $end, $seconds, $line) = outcome('cancels');
is("$end: $line", 'cancelled cancelled 0 0: known', 'pg_cancel_backend: also where a statement_timeout is set');
ask('ALTER ROLE jobber RESET statement_timeout');
job('times_out', 'SELECT count(*) FROM pg_sleep(600)', q{, timeout => '300 ms'});  # the sleep is the work
($run, $end, $seconds, $line) = outcome('times_out');
# A process that has stood still for long finds that both have passed.
like("$end: $line", qr/^failed timeout 0 0: (known|it takes longer than 1000 ms)$/, 'timeout: it counts for the estimate as well');
# sweep.cancel has a second to come in time; where it did not, the log says so, and it is tried again.
for my $try (1 .. 50)
{
	my $offset = -s $node->logfile;

	ask('UPDATE t.todo SET run_id = NULL');
	$run = ask(q{SELECT sweep.start('slow')});
	$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM sweep.running WHERE run_id = $run AND phase = 'estimate') OR EXISTS (SELECT FROM sweep.runs WHERE run_id = $run AND finished_at IS NOT NULL)");
	ask("SELECT sweep.cancel($run)");
	$end = ended_run($node, $run);
	last unless slurp_file($node->logfile, $offset) =~ /job "slow" run $run: its estimate is not known/;
}
is($end, 'cancelled cancelled 0 0', 'sweep.cancel: the run is cancelled');
is(ask('SELECT count(*) FROM t.todo WHERE run_id IS NOT NULL'), 0, 'sweep.cancel: before its first batch');

# ---------------------------------------------------------------- in a session
my $session = session($node, user => 'jobber');
$session->query(q{CALL sweep.run('slow')});
like(end_query($session), qr/NOTICE:  job "slow" run \d+: its estimate is not known: it takes longer than 1000 ms\n.*NOTICE:  job "slow" run \d+: 10 rows in 2 batches, drained/s,
	'CALL: the session is told, and the run does its work');
ask('UPDATE t.todo SET run_id = NULL');
# Also when both times are over at the same moment.
for my $limit ('500ms', '1s')
{
	$session->query_safe("SET statement_timeout = '$limit'");
	$session->query(q{CALL sweep.run('slow')});
	like(end_query($session), qr/ERROR:  run \d+ of job "slow" failed: canceling statement due to (statement timeout|user request)/, "CALL: a statement_timeout of $limit is that of the CALL");
}
$session->query_safe(q{SET statement_timeout = '1min'});
$session->query(q{CALL sweep.run('slow')});
like(end_query($session), qr/10 rows in 2 batches, drained/, 'CALL: it is still running after the estimate was given up');
is($session->query(q{SELECT current_setting('statement_timeout') || ' ' || current_setting('transaction_read_only')}), '1min off', 'CALL: the session is as it was');
$session->quit;

$node->stop;
done_testing();
