# room: engine
# A divided job is one run to whoever waits for it or reads of it: its shares
# are tied together, and one that fails makes the whole fail. Whether a dispatch
# overlaps another one is none of its business.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('dispatch', conf => [ 'pg_sweep.max_running_jobs = 4' ]);

# Rows of t.todo by bucket. A share whose bucket is that of the args fails, waits at the gate, or both.
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.share(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		n bigint;
	BEGIN
		IF b.args ? 'gate' AND (b.args ->> 'at')::int = b.bucket THEN
			PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::bigint);
		END IF;
		IF (b.args ->> 'fail')::int = b.bucket THEN
			RAISE EXCEPTION 'bucket % is bad', b.bucket;
		END IF;
		UPDATE t.todo SET run_id = b.run_id WHERE id IN (SELECT id FROM t.todo WHERE run_id IS NULL AND id % b.buckets = b.bucket LIMIT b.size);
		GET DIAGNOSTICS n = ROW_COUNT;
		RETURN ROW(n, NULL, NULL)::sweep.progress;
	END $$;
	INSERT INTO t.todo SELECT i FROM generate_series(1, 600) AS i;
	SELECT sweep.create_job('shares', step => 't.share', buckets => 6, batch_size => 10);
	SELECT sweep.create_job('parent', step => 't.note', args => '{"job": "parent"}', on_start => '{"shares": "0"}');
});

sub again
{
	$node->safe_psql('postgres', 'UPDATE t.todo SET run_id = NULL');
}

my $last = q{SELECT last_run_id, last_status, last_stop_reason, last_rows, coalesce(substr(last_error, 1, 15), '-') FROM sweep.jobs WHERE name = 'shares'};

# ---------------------------------------------------------------- all is well
my ($status, $output, $message);
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('shares')});
($status, $output, $message) = $node->psql('postgres', "CALL sweep.wait($run)");
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.todo WHERE run_id IS NULL'), 0, 'wait returns when all shares are done');
like($message, qr/NOTICE:  job "shares" run $run: 600 rows in 66 batches, drained/, 'and says what they have done together');
is($node->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE parent_run_id = $run) FROM sweep.runs WHERE job = 'shares'"), '6|5',
	'every share knows the run that has divided the job, those that follow others, too');
is($node->safe_psql('postgres', $last), "$run|succeeded|drained|600|-", 'sweep.jobs says what all of them have done');
is($node->safe_psql('postgres', "SELECT count(*) FROM sweep.running"), 0, 'and no process has anything to do with it any more');

# ---------------------------------------------------------------- one fails, others go on
again();
my $gate = hold_gate($node, 30);
$run = $node->safe_psql('postgres', q{SELECT sweep.start('shares', '{"fail": 2, "at": 4, "gate": 30}')});
my $waiter = session($node);
begin_query($waiter, "\\set VERBOSITY verbose\nCALL sweep.wait($run, '5 min')");
at_gate($node, 30, 'a share waits');
soon($node, "SELECT count(*) FILTER (WHERE status = 'running'), count(*) FILTER (WHERE status = 'failed') FROM sweep.runs WHERE job = 'shares' AND run_id >= $run",
	'1|1', 'all others that there are have ended, one has failed');
is($node->safe_psql('postgres', q{SELECT state FROM sweep.jobs WHERE name = 'shares'}), 'running', 'the job runs');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL sweep.wait%' AND state = 'active'}, 1, 'who waits for it waits on');
open_gate($gate);
# Buckets are claimed at random, so it is the run that has divided the job, or another share.
my $failed = $node->safe_psql('postgres', "SELECT run_id FROM sweep.runs WHERE job = 'shares' AND run_id >= $run AND status = 'failed'");
my $named = $failed == $run ? "run $run" : "run $failed, a share of run $run,";
like(end_query($waiter), qr/ERROR:  38000: $named of job "shares" failed: bucket 2 is bad/, 'and is told of the share that has failed');
$waiter->quit;
is($node->safe_psql('postgres', $last), "$run|failed|error|500|bucket 2 is bad", 'so does sweep.jobs');

# ---------------------------------------------------------------- divided by a parent
again();
$run = $node->safe_psql('postgres', q{SELECT sweep.start('parent')});
is(ended_run($node, $run), 'succeeded drained 1 0', 'a parent');
soon($node, q{SELECT count(*) FROM t.todo WHERE run_id IS NULL}, 0, 'has its child done, in shares');
soon($node, "SELECT count(*) FROM sweep.runs WHERE job = 'shares' AND parent_run_id = $run AND status = 'succeeded'", 6, 'that carry its run');
is($node->safe_psql('postgres', $last), join('|', $node->safe_psql('postgres', "SELECT min(run_id) FROM sweep.runs WHERE parent_run_id = $run"), 'succeeded|drained|600|-'),
	'sweep.jobs says what they have done');

# ---------------------------------------------------------------- nothing overlaps
# A dispatcher stands still before it begins: its process is there, its row still waits.
again();
$node->safe_psql('postgres', q{SELECT sweep.alter_job('shares', '{"lock_retries": 10000}')});
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('shares')});
my $moment = q{SELECT sweep._insert_scheduled(j, clock_timestamp(), 'schedule', false) FROM sweep.job_definition j WHERE name = 'shares'};
my $count = q{SELECT string_agg(n || ' ' || status, ', ' ORDER BY status) FROM (SELECT status, count(*) AS n FROM sweep.runs
	WHERE job = 'shares' AND trigger = 'schedule' GROUP BY status) AS c};
for my $nth (1 .. 4)
{
	$node->safe_psql('postgres', "$moment; SELECT sweep._wake()");
	soon($node, q{SELECT count(*) FROM sweep.running WHERE job = 'shares' AND phase = 'lock'}, $nth, "moment $nth has a process that stands still");
}
is($node->safe_psql('postgres', $count), '4 waiting', 'no moment is skipped for another one');
$node->safe_psql('postgres', $moment) for 1 .. 3;
is($node->safe_psql('postgres', $count), '2 skipped, 5 waiting', 'while there is no process left one waits for all');
$holder->query_safe(q{SELECT sweep.release_lock('shares')});
soon($node, q{SELECT count(*) FROM t.todo WHERE run_id IS NULL}, 0, 'they go on');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'shares' AND finished_at IS NULL}, 0, 'to their end');

# Nor does a moment cancel the shares of the one before.
again();
$node->safe_psql('postgres', q{SELECT sweep.alter_job('shares', '{"overlap": "cancel_previous"}')});
$gate = hold_gate($node, 30);
$run = $node->safe_psql('postgres', q{SELECT sweep.start('shares', '{"at": 1, "gate": 30}')});
at_gate($node, 30, 'a share is at work');
$node->safe_psql('postgres', "$moment; SELECT sweep._wake()");
open_gate($gate);
($status, $output, $message) = $node->psql('postgres', "CALL sweep.wait($run)");
like($message, qr/NOTICE:  job "shares" run $run: \d+ rows/, 'it is not cancelled by the next moment');
$holder->quit;
$node->stop;
done_testing();
