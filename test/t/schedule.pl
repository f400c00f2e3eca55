# room: process
# What is due starts: each moment once, late ones as catch_up says, overlapping
# ones as overlap says, failed ones again, one-off runs also after a restart.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('schedule');

# The job was last looked at so long ago; "how" makes the scheduler look.
sub missed
{
	my ($job, $hours) = @_;

	sql(qq{UPDATE sweep.job_state SET next_due = date_trunc('hour', now()) - interval '$hours hours',
		next_start = date_trunc('hour', now()) - interval '$hours hours' WHERE job = '$job'; SELECT sweep._wake()});
}

sub next_is_ahead
{
	my ($job, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, qq{SELECT next_due > now() AND next_start > now() FROM sweep.job_state WHERE job = '$job'}, 't', "$name: its next moment is ahead");
	soon($node, qq{SELECT count(*) FROM sweep.runs WHERE job = '$job' AND finished_at IS NULL}, 0, "$name: what has started ends");
}

not_before_the_hour($node);
sql(q{
	CREATE FUNCTION t.fail(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION 'it does not work' USING DETAIL = 'Never.'; END $$;
	SELECT sweep.create_job('second', step => 't.note', schedule => '* * * * * *', args => '{"job": "second"}');
	SELECT sweep.create_job('interval', step => 't.note', schedule => 'every 2 seconds', args => '{"job": "interval"}');
	SELECT sweep.create_job('catch_' || c, step => 't.note', schedule => '0 * * * *', timezone => 'UTC', catch_up => c,
		args => jsonb_build_object('job', c)) FROM unnest(ARRAY['once', 'skip', 'all']) AS c;
	SELECT sweep.create_job('overlap_' || o, step => 't.note', schedule => '* * * * * *', overlap => o, paused => true,
		args => '{"gate": 50, "alone": 73}') FROM unnest(ARRAY['skip', 'queue_one', 'cancel_previous']) AS o;
	SELECT sweep.create_job('failing', step => 't.fail', max_attempts => 3);
	SELECT sweep.create_job('boot', step => 't.note', schedule => '@reboot', args => '{"job": "boot"}');
	SELECT sweep.create_job('once', step => 't.note', args => '{"job": "once"}');
});

# ---------------------------------------------------------------- every second
soon($node, q{SELECT count(*) >= 5 FROM sweep.runs WHERE job = 'second' AND status = 'succeeded'}, 't', 'a job due every second starts');
soon($node, q{SELECT count(*) > 0 FROM (SELECT due_at - lag(due_at) OVER (ORDER BY due_at) AS gap FROM sweep.runs WHERE job = 'interval' AND status = 'succeeded') g
		WHERE gap = interval '2 s'}, 't', 'so does one with an interval');
is(sql(q{SELECT count(*) - count(DISTINCT due_at), bool_and(due_at = date_trunc('second', due_at)), bool_and(started_at >= due_at),
		bool_and(trigger = 'schedule') FROM sweep.runs WHERE job = 'second' AND status = 'succeeded'}), '0|t|t|t', 'each second once, not before its moment');
is(sql(q{SELECT count(DISTINCT r.run_id) - count(DISTINCT s.run_id) FROM sweep.runs r LEFT JOIN t.started s USING (run_id)
		WHERE r.job = 'second' AND r.status = 'succeeded'}), 0, 'and each has done its work');
is(sql(q{SELECT count(*) > 0 FROM (SELECT due_at - lag(due_at) OVER (ORDER BY due_at) AS gap FROM sweep.runs WHERE job = 'second') g
		WHERE gap = interval '1 s'}), 't', 'a second apart');
is(sql(q{SELECT min(due_at - lag) >= interval '2 s' FROM (SELECT due_at, lag(due_at) OVER (ORDER BY due_at) FROM sweep.runs WHERE job = 'interval') g}),
	't', 'and two seconds');
sql(q{SELECT sweep.drop_job('second'), sweep.drop_job('interval')});

# ---------------------------------------------------------------- missed moments
not_before_the_hour($node);
missed('catch_once', 5);
next_is_ahead('catch_once', 'once');
is(sql(q{SELECT count(*), min(trigger), min(due_at) = date_trunc('hour', now()) - interval '5 hours', min(status) FROM sweep.runs WHERE job = 'catch_once'}),
	'1|catch_up|t|succeeded', 'once: six missed moments make one run');
missed('catch_skip', 5);
next_is_ahead('catch_skip', 'skip');
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'catch_skip'}), 0, 'skip: missed moments are left out');
missed('catch_all', 5);
next_is_ahead('catch_all', 'all');
is(sql(q{SELECT count(*), count(DISTINCT due_at), min(due_at) = date_trunc('hour', now()) - interval '5 hours', max(due_at) = date_trunc('hour', now()),
		bool_and(status = 'succeeded') FROM sweep.runs WHERE job = 'catch_all'}), '6|6|t|t|t', 'all: each has its run');
is(sql(q{SELECT bool_and(later) FROM (SELECT started_at >= lag(finished_at) OVER (ORDER BY due_at) AS later FROM sweep.runs WHERE job = 'catch_all') o}),
	't', 'all: one after the other, oldest first');
missed('catch_all', 300);
next_is_ahead('catch_all', 'all, very many');
cmp_ok(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'catch_all'}), '<=', 106, 'all: up to a cap');

# The same after a restart, without anybody who wakes the scheduler.
restart_after($node, q{UPDATE sweep.job_state SET next_due = date_trunc('hour', now()) - interval '3 hours',
	next_start = date_trunc('hour', now()) - interval '3 hours' WHERE job IN ('catch_once', 'catch_skip')});
next_is_ahead($_, "restart, $_") for ('catch_once', 'catch_skip');
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'catch_once'}), 2, 'restart, once: one run');
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'catch_skip'}), 0, 'restart, skip: none');

# ---------------------------------------------------------------- @reboot: the server has just been restarted once
soon($node, q{SELECT count(*) FROM t.started WHERE job = 'boot'}, 1, '@reboot: once after a start of the server');
sql('SELECT pg_terminate_backend(' . keep_scheduler($node) . ', 100000)');
is(ended_run($node, sql(q{SELECT sweep.start('once')})), 'succeeded drained 1 0', '@reboot: the new scheduler works');
is(sql(q{SELECT count(*) FROM t.started WHERE job = 'boot'}), 1, '@reboot: not again when the scheduler starts');

# ---------------------------------------------------------------- overlap
my $gate = hold_gate($node, 50);
sql(q{SELECT sweep.alter_job('overlap_skip', '{"paused": false}')});
at_gate($node, 50, 'skip: a run is in progress');
soon($node, q{SELECT count(*) >= 2 FROM sweep.runs WHERE job = 'overlap_skip' AND status = 'skipped'}, 't', 'skip: due moments meanwhile are skipped and counted');
is(sql(q{SELECT bool_and(detail ->> 'reason' = 'overlap' AND (detail ->> 'run_id')::bigint = (SELECT run_id FROM sweep.running WHERE job = 'overlap_skip'))
		FROM sweep.runs WHERE job = 'overlap_skip' AND status = 'skipped'}), 't', 'skip: they name the run in the way');
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'overlap_skip' AND status IN ('running', 'waiting')}), 1, 'skip: nothing waits');
sql(q{SELECT sweep.alter_job('overlap_skip', '{"paused": true}')});
open_gate($gate);
next_is_done('overlap_skip');

$gate = hold_gate($node, 50);
sql(q{SELECT sweep.alter_job('overlap_queue_one', '{"paused": false}')});
at_gate($node, 50, 'queue_one: a run is in progress');
soon($node, q{SELECT count(*) >= 2 FROM sweep.runs WHERE job = 'overlap_queue_one' AND status = 'skipped'}, 't', 'queue_one: moments are skipped');
is(sql(q{SELECT string_agg(status, ' ' ORDER BY status) FROM sweep.runs WHERE job = 'overlap_queue_one' AND finished_at IS NULL}),
	'running waiting', 'queue_one: but one waits');
# no further moments; a pause would take back the one that waits
sql(q{SELECT sweep.alter_job('overlap_queue_one', '{"schedule": "@yearly"}')});
my ($running, $waiting) = split /\n/, sql(q{SELECT run_id FROM sweep.runs WHERE job = 'overlap_queue_one' AND finished_at IS NULL ORDER BY status});
open_gate($gate);
is(ended_run($node, $_), 'succeeded drained 1 0', 'queue_one: both have their turn') for ($running, $waiting);

$gate = hold_gate($node, 50);
sql(q{SELECT sweep.alter_job('overlap_cancel_previous', '{"paused": false}')});
at_gate($node, 50, 'cancel_previous: a run is in progress');
soon($node, q{SELECT count(*) >= 2 FROM sweep.runs WHERE job = 'overlap_cancel_previous' AND status = 'cancelled'}, 't', 'cancel_previous: each run ends for the next');
sql(q{SELECT sweep.alter_job('overlap_cancel_previous', '{"paused": true}')});
open_gate($gate);
next_is_done('overlap_cancel_previous');
is(sql('SELECT count(*) FROM t.overlap'), 0, 'no job has run twice at a time');

sub next_is_done
{
	my ($job) = @_;

	soon($node, qq{SELECT count(*) FROM sweep.runs WHERE job = '$job' AND finished_at IS NULL}, 0, "$job: all runs end");
}

# ---------------------------------------------------------------- attempts
my $run = sql(q{SELECT sweep.start('failing')});
is(ended_run($node, $run), 'failed error 0 0', 'attempts: the first fails');
like(sql("SELECT sqlstate || ' ' || error FROM sweep.runs WHERE run_id = $run"), qr/^P0001 it does not work\nDETAIL: Never\.\nCONTEXT: PL\/pgSQL function t.fail/,
	'attempts: with its error');
for my $attempt (2, 3)
{
	my $next = sql(qq{SELECT run_id FROM sweep.runs WHERE job = 'failing' AND status = 'waiting'});
	my $backoff = 15 + ($attempt - 1) ** 4;
	is(sql("SELECT trigger, attempt, due_at - now() BETWEEN interval '1 s' * ($backoff - 10) AND interval '1 s' * ($backoff + 10 * $attempt) FROM sweep.runs WHERE run_id = $next"),
		"retry|$attempt|t", "attempts: number $attempt waits");
	sql("UPDATE sweep.run_live SET due_at = now() WHERE run_id = $next; SELECT sweep._wake()");
	is(ended_run($node, $next), 'failed error 0 0', "attempts: number $attempt fails, too");
}
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'failing' AND status = 'waiting'}), 0, 'attempts: there is no fourth');
sql(q{SELECT sweep.start('failing')});
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'failing' AND trigger = 'retry' AND status = 'waiting'}, 1, 'attempts: one waits again');
sql(q{CREATE OR REPLACE FUNCTION t.fail(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS 'SELECT (0, NULL, NULL)::sweep.progress';
	UPDATE sweep.run_live SET due_at = now() WHERE job = 'failing' AND status = 'waiting'; SELECT sweep._wake()});
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'failing' AND attempt = 2 AND status = 'succeeded'}, 1, 'attempts: one that succeeds');
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'failing' AND status = 'waiting'}), 0, 'attempts: is the last');

# ---------------------------------------------------------------- wait
my ($status, $output, $message) = $node->psql('postgres', q{CALL sweep.wait(sweep.start('once'))});
like("$status $message", qr/^0 .*NOTICE:  job "once" run \d+: 0 rows in 1 batch, drained/, 'wait: returns when the run has ended');
$gate = hold_gate($node, 50);
$run = sql(q{SELECT sweep.start('overlap_skip')});
at_gate($node, 50, 'wait: the run is in progress');
my $waiter = session($node);
my $pid = $waiter->query_safe('SELECT pg_backend_pid()');
begin_query($waiter, "CALL sweep.wait($run)");
soon($node, "SELECT wait_event_type, backend_xmin IS NULL, backend_xid IS NULL FROM pg_stat_activity WHERE pid = $pid", 'Extension|t|t',
	'wait: without a snapshot');
($status, $output, $message) = $node->psql('postgres', "CALL sweep.wait($run, '100 ms')");
like($message, qr/ERROR:  run $run of job "overlap_skip" has not ended in time\nDETAIL:  It is running/, 'wait: not longer than asked for');
open_gate($gate);
like(end_query($waiter), qr/NOTICE:  job "overlap_skip" run $run: 0 rows in 1 batch, drained/, 'wait: then it returns');
$waiter->quit;
($status, $output, $message) = $node->psql('postgres', 'CALL sweep.wait(999999)');
like($message, qr/ERROR:  run 999999 does not exist/, 'wait: not for a run that there is not');

# ---------------------------------------------------------------- not too often
$node->append_conf('postgresql.conf', "pg_sweep.min_interval = '10 s'");
$node->reload;
soon($node, 'SHOW pg_sweep.min_interval', '10s', 'min_interval: a reload is enough');
for my $schedule ('every 9 seconds', '*/5 * * * * *', '0,1 0 * * * *')
{
	($status, $output, $message) = $node->psql('postgres', "SELECT sweep.create_job('often', step => 't.note', schedule => '$schedule')");
	like($message, qr/ERROR:  schedule "\Q$schedule\E" is due every 00:00:0[159], more often than pg_sweep.min_interval allows/,
		"min_interval: $schedule is refused");
}
is(sql(q{SELECT count(*) FROM sweep.job WHERE name = 'often'}), 0, 'min_interval: no job is left behind');
sql(q{SELECT sweep.create_job('often', step => 't.note', schedule => 'every 10 seconds', paused => true)});
is(sql(q{SELECT count(*) FROM sweep.job WHERE name = 'often'}), 1, 'min_interval: what is not more often is accepted');

# ---------------------------------------------------------------- once, later
$run = sql(q{SELECT sweep.start('once', delay => '2 s')});
is(ended_run($node, $run), 'succeeded drained 1 0', 'delay: it runs');
is(sql("SELECT started_at >= due_at FROM sweep.runs WHERE run_id = $run"), 't', 'delay: not before its time');
$run = sql(q{SELECT sweep.start('once', '{"word": "kept"}', delay => '1 hour')});
$node->restart;
SweepTest::tick($node);
is(sql("SELECT status, args ->> 'word', due_at > now() + interval '50 min' FROM sweep.runs WHERE run_id = $run"), 'waiting|kept|t', 'delay: it survives a restart');
$node->stop('immediate');
$node->start;
is(sql("SELECT status FROM sweep.runs WHERE run_id = $run"), 'waiting', 'delay: and a crash');
restart_after($node, "UPDATE sweep.run_live SET due_at = now() - interval '1 day' WHERE run_id = $run");
is(ended_run($node, $run), 'succeeded drained 1 0', 'delay: its time came while the server was down, it runs late');
is(sql("SELECT count(*) FROM t.started WHERE run_id = $run"), 1, 'delay: once');
$node->stop;
done_testing();
