# room: process
# What was started waits for its turn: while somebody else has the lock it is
# no process and is not skipped, and what it queues comes once.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('turn', conf => [ 'pg_sweep.max_running_jobs = 3' ]);

$node->safe_psql('postgres', q{
	SELECT sweep.create_job('one', step => 't.note', args => '{"job": "one", "gate": 20, "alone": 72}');
	SELECT sweep.create_job('other', step => 't.note', args => '{"job": "other"}');
	SELECT sweep.create_job('child', step => 't.note', args => '{"job": "child"}', lock_key => 'one');
	SELECT sweep.create_job('parent', step => 't.note', args => '{"job": "parent"}', lock_key => 'one', on_start => '{"other": "1 hour"}');
	SELECT sweep.create_job('divided', step => 't.note', args => '{"job": "divided"}', buckets => 2, lock_key => 'shared');
});

sub status
{
	return $node->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $_[0]");
}

my $runners = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'};

# ---------------------------------------------------------------- behind a run
my $gate = hold_gate($node, 20);
my $first = start('one');
at_gate($node, 20, 'a run has the lock');
my @waiting = map { start('one') } 1 .. 8;
tick($node);
is($node->safe_psql('postgres', "SELECT count(*), min(status), max(status) FROM sweep.runs WHERE run_id > $first"), '8|waiting|waiting', 'what is started meanwhile waits');
is($node->safe_psql('postgres', $runners), 1, 'and takes no process');
is(ended_run($node, start('other')), 'succeeded drained 1 0', 'so that there is one for another job');
my ($status, $output, $message) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL sweep.wait($waiting[0], '100 ms')");
like($message, qr/ERROR:  57014: run $waiting[0] of job "one" has not ended in time\nDETAIL:  It is waiting: 0 batches, 0 rows so far/, 'who waits for it is told that it waits');
is($node->safe_psql('postgres', "SELECT sweep.cancel($waiting[7])"), 't', 'one of them is cancelled');
is(status($waiting[7]), 'cancelled', 'at once');
($status, $output, $message) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL sweep.wait($waiting[7])");
like($message, qr/ERROR:  57014: run $waiting[7] of job "one" was cancelled\nHINT:/, 'who waits for that is told so');
my $waiter = session($node);
begin_query($waiter, "CALL sweep.wait($waiting[0])");
open_gate($gate);
like(end_query($waiter), qr/NOTICE:  job "one" run $waiting[0]: 0 rows in 1 batch, drained/, 'its turn comes, and who waits for it succeeds');
is(scalar(grep { ended_run($node, $_) eq 'succeeded drained 1 0' } @waiting[0 .. 6]), 7, 'every one has its turn');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.overlap'), 0, 'never two at a time');
is($node->safe_psql('postgres', q{SELECT string_agg(run_id::text, ' ' ORDER BY at) FROM t.started WHERE job = 'one'}), join(' ', $first, @waiting[0 .. 6]),
	'one after the other as they were started');

# ---------------------------------------------------------------- behind a session
# It wakes nobody when it ends.
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('one')});
my $run = start('parent');
tick($node);
is(status($run), 'waiting', 'a session has the lock: it waits');
soon($node, $runners, 0, 'without a process');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'other' AND trigger = 'parent'}), 0, 'what it queues is not queued yet');
my $begin = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$holder->quit;
is(ended_run($node, $run), 'succeeded drained 1 0', 'the session ends: it runs');
is($node->safe_psql('postgres', "SELECT started_at < '$begin'::timestamptz + interval '20 s' FROM sweep.runs WHERE run_id = $run"), 't', 'soon, not with the next heartbeat');
is($node->safe_psql('postgres', "SELECT count(*), min(parent_run_id) FROM sweep.runs WHERE job = 'other' AND trigger = 'parent'"), "1|$run", 'what it queues is queued once');
# One that gives it back says so.
$holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('one')});
$run = start('parent');
tick($node);
$holder->query_safe(q{SELECT sweep.release_lock('one')});
is(ended_run($node, $run), 'succeeded drained 1 0', 'given back: it runs');

# Children and retries wait as well.
$holder->query_safe(q{SELECT sweep.try_lock('one')});
$run = $node->safe_psql('postgres', q{WITH queued AS (INSERT INTO sweep.run_live (job, trigger, due_at, run_as)
	SELECT 'child', t, clock_timestamp(), 'postgres' FROM unnest('{parent,retry}'::text[]) AS t RETURNING run_id) SELECT min(run_id) FROM queued});
tick($node);
is($node->safe_psql('postgres', "SELECT string_agg(status || ' ' || trigger, ', ' ORDER BY run_id) FROM sweep.runs WHERE run_id >= $run"), 'waiting parent, waiting retry', 'a child and a retry wait, too');
$holder->query_safe(q{SELECT sweep.release_lock('one')});
is(ended_run($node, $run), 'succeeded drained 1 0', 'and run');
is(ended_run($node, $run + 1), 'succeeded drained 1 0', 'one after the other');

# ---------------------------------------------------------------- at the last moment
# A process that stands still before it takes the lock, here while it connects, finds it taken: its run waits on. Who
# cancels the run meanwhile cancels it. Nobody can connect while the table is locked, so sessions are asked that are there.
my $locker = session($node);
keep_scheduler($node);
for my $cancelled (0, 1)
{
	not_before_the_minute($node);
	$locker->query_safe('BEGIN');
	$locker->query_safe('LOCK TABLE pg_catalog.pg_db_role_setting IN ACCESS EXCLUSIVE MODE');
	$run = $holder->query_safe(q{WITH queued AS (INSERT INTO sweep.run_live (job, trigger, due_at, run_as)
		VALUES ('child', 'manual', clock_timestamp(), 'postgres') RETURNING run_id) SELECT q.run_id FROM queued q, sweep._wake()});
	$holder->query_safe(q{DO $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM pg_locks l JOIN sweep._running() r USING (pid)
				WHERE NOT l.granted AND l.relation = 'pg_catalog.pg_db_role_setting'::regclass) LOOP
			IF clock_timestamp() > now() + interval '60 s' THEN
				RAISE EXCEPTION 'no runner connects';
			END IF;
		END LOOP;
	END $$});
	is($holder->query_safe(q{SELECT sweep.try_lock('one')}), 't', 'the lock is taken while a process comes up');
	is($holder->query_safe("SELECT sweep.cancel($run)"), 't', 'its run is cancelled') if $cancelled;
	$locker->query_safe('ROLLBACK');
	soon($node, $runners, 0, 'the process ends');
	tick($node);
	is(status($run), $cancelled ? 'cancelled' : 'waiting', $cancelled ? 'and the run is cancelled' : 'the run waits on');
	$holder->query_safe(q{SELECT sweep.release_lock('one')});
	next if $cancelled;
	is(ended_run($node, $run), 'succeeded drained 1 0', 'and runs in its turn');
}
$locker->quit;

# ---------------------------------------------------------------- shares
# They share their lock with each other, not with a session.
$holder->query_safe(q{SELECT sweep.try_lock('shared')});
$run = start('divided');
tick($node);
is(status($run), 'waiting', 'a divided job waits as well');
$holder->query_safe(q{SELECT sweep.release_lock('shared')});
is(ended_run($node, $run), 'succeeded drained 1 0', 'and runs');
$holder->quit;
$node->stop;
done_testing();
