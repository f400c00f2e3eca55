# room: engine
# Stopping a run: sweep.cancel in a batch and between two, of a run that waits,
# drop_job, pause, and PostgreSQL's own ways.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('cancel');

$node->safe_psql('postgres', q{
	SELECT sweep.create_job('work', step => 't.work', batch_size => 10);
	SELECT sweep.create_job('gated', step => 't.work', batch_size => 10, args => '{"gate": 40, "gate_at": 3}');
	SELECT sweep.create_job('often', step => 't.note', schedule => '* * * * * *', paused => true, args => '{"job": "often", "gate": 41}');
});

sub fill
{
	$node->safe_psql('postgres', q{TRUNCATE t.todo; INSERT INTO t.todo SELECT i FROM generate_series(1, 200000) AS i});
}

sub handled_as_counted
{
	my ($run, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $node->safe_psql('postgres', "SELECT count(*) FROM t.todo WHERE run_id = $run"),
		$node->safe_psql('postgres', "SELECT rows FROM sweep.runs WHERE run_id = $run"), "$name: it counts what it did");
}

sub one_is_free
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid IN (21335, 21336)}, 0, "$name: its lock is free");
}

# ---------------------------------------------------------------- in a statement
fill();
my $gate = hold_gate($node, 40);
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('gated')});
at_gate($node, 40, 'in a statement: the third batch is in progress');
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'in a statement: cancelled');
is(ended_run($node, $run), 'cancelled cancelled 2 20', 'in a statement: its batch is undone, those before stay');
handled_as_counted($run, 'in a statement');
one_is_free('in a statement');
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 'f', 'in a statement: it cannot be cancelled twice');

# PostgreSQL's own way, with the same outcome.
$run = $node->safe_psql('postgres', q{SELECT sweep.start('gated')});
at_gate($node, 40, 'pg_cancel_backend: the third batch is in progress');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM sweep.runs WHERE run_id = $run");
is(ended_run($node, $run), 'cancelled cancelled 2 20', 'pg_cancel_backend: the run is cancelled');

# A run in a session, by another session.
my $session = session($node);
begin_query($session, q{CALL sweep.run('gated')});
at_gate($node, 40, 'CALL: the third batch is in progress');
$run = $node->safe_psql('postgres', q{SELECT run_id FROM sweep.running});
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'CALL: cancelled');
like(end_query($session), qr/ERROR:  run $run of job "gated" was cancelled after 2 batches, 20 rows/, 'CALL: the session is told');
is(ended_run($node, $run), 'cancelled cancelled 2 20', 'CALL: so is everybody');
is($session->query('SELECT 1'), 1, 'CALL: the session goes on');
begin_query($session, q{CALL sweep.run('gated')});
at_gate($node, 40, 'CALL: again');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM sweep.running');
like(end_query($session), qr/ERROR:  run \d+ of job "gated" was cancelled after 2 batches/, 'CALL: the same by pg_cancel_backend');
$session->quit;
one_is_free('CALL');

# ---------------------------------------------------------------- between batches
$run = $node->safe_psql('postgres', q{SELECT sweep.start('work')});
soon($node, "SELECT batches > 20 FROM sweep.running WHERE run_id = $run", 't', 'between batches: batch follows batch');
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'between batches: cancelled');
like(ended_run($node, $run), qr/^cancelled cancelled /, 'between batches: the run ends');
handled_as_counted($run, 'between batches');

# ---------------------------------------------------------------- one that waits
$run = $node->safe_psql('postgres', q{SELECT sweep.start('work', delay => '1 hour')});
is($node->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $run"), 'waiting', 'waiting: due in an hour');
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'waiting: cancelled');
is(ended_run($node, $run), 'cancelled cancelled 0 0', 'waiting: it will not run');
my ($status, $output, $message) = $node->psql('postgres', 'SELECT sweep.cancel(999999)');
like($message, qr/ERROR:  run 999999 does not exist\nHINT:  The view sweep.runs/, 'unknown: an error says so');

# ---------------------------------------------------------------- at any moment of its start
my @runs;
for my $nth (1 .. 25)
{
	my $new = $node->safe_psql('postgres', q{SELECT sweep.start('work', '{}')});

	$node->safe_psql('postgres', $nth % 2 ? "SELECT sweep.cancel($new)" : "SELECT count(*) FROM pg_class; SELECT sweep.cancel($new)");
	push @runs, $new;
}
is(scalar(grep { ended_run($node, $_) =~ /^(cancelled cancelled|skipped skipped) / } @runs), 25, 'at any moment: each of them ends');
for my $new (@runs)
{
	is($node->safe_psql('postgres', "SELECT count(*) FROM t.todo WHERE run_id = $new"),
		$node->safe_psql('postgres', "SELECT rows FROM sweep.runs WHERE run_id = $new"), "at any moment: run $new counts what it did");
}
soon($node, 'SELECT count(*) FROM sweep.running', 0, 'at any moment: no slot is left behind');
one_is_free('at any moment');

# ---------------------------------------------------------------- drop_job
fill();
$run = $node->safe_psql('postgres', q{SELECT sweep.start('gated')});
my $later = $node->safe_psql('postgres', q{SELECT sweep.start('gated', delay => '1 hour')});
at_gate($node, 40, 'drop_job: a run is in progress');
$node->safe_psql('postgres', q{SELECT sweep.drop_job('gated')});
is(ended_run($node, $run), 'cancelled cancelled 2 20', 'drop_job: it is cancelled');
is(ended_run($node, $later), 'cancelled cancelled 0 0', 'drop_job: so is the one that waits');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.jobs WHERE name = 'gated'}), 0, 'drop_job: the job is gone');
handled_as_counted($run, 'drop_job');
one_is_free('drop_job');
open_gate($gate);

# ---------------------------------------------------------------- a run that begins while it is cancelled
# The cancel has seen it wait, and is kept from its row until it has begun.
$node->append_conf('postgresql.conf', 'pg_sweep.max_running_jobs = 1');
$node->reload;
$node->safe_psql('postgres', q{
	SELECT sweep.create_job('before', step => 't.note', args => '{"gate": 42}'), sweep.create_job('begins', step => 't.note', args => '{"gate": 43}');
	CREATE FUNCTION t.hold_up() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN IF current_setting('application_name') = 'held up' THEN PERFORM pg_advisory_xact_lock(44); END IF; RETURN NULL; END$$;
	CREATE TRIGGER hold_up BEFORE UPDATE ON sweep.run_live FOR EACH STATEMENT EXECUTE FUNCTION t.hold_up()});
my ($before, $gate_of_run, $gate_of_cancel) = map { hold_gate($node, $_) } 42 .. 44;
$node->safe_psql('postgres', q{SELECT sweep.start('before')});
at_gate($node, 42, 'as it begins: another run is in progress');
$run = $node->safe_psql('postgres', q{SELECT sweep.start('begins')});
my $canceller = session($node);
$canceller->query_safe(q{SET application_name = 'held up'});
SweepTest::begin_query($canceller, "SELECT 'cancelled: ' || sweep.cancel($run)");
at_gate($node, 44, 'as it begins: it is being cancelled');
open_gate($before);
at_gate($node, 43, 'as it begins: it has begun');
open_gate($gate_of_cancel);
like(SweepTest::end_query($canceller), qr/cancelled: true/, 'as it begins: it is cancelled');
is(ended_run($node, $run), 'cancelled cancelled 0 0', 'as it begins: and ends');
open_gate($gate_of_run);
$canceller->quit;
$node->safe_psql('postgres', q{DROP FUNCTION t.hold_up() CASCADE; SELECT sweep.drop_job(name) FROM sweep.jobs WHERE name IN ('before', 'begins')});
$node->append_conf('postgresql.conf', 'pg_sweep.max_running_jobs = 8');
$node->reload;

# The same by cancel_previous: the run has changed its row and not committed that when the next one becomes due.
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$SELECT '1'::jsonb WHERE b.cursor IS NULL$$;
	SELECT sweep.create_job('previous', step => 't.note', pick => 't.pick', overlap => 'cancel_previous', args => '{"gate": 45}')});
my $becomes_due = q{SELECT sweep._insert_scheduled(j, clock_timestamp(), 'schedule', false), sweep._wake() FROM sweep.job_definition j WHERE name = 'previous'};
my $gate_of_both = hold_gate($node, 45);
my $locker = session($node);
$locker->query_safe('BEGIN; LOCK TABLE sweep.quarantined_item');
$node->safe_psql('postgres', $becomes_due);
soon($node, q{SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.relation = 'sweep.quarantined_item'::regclass AND NOT l.granted AND a.backend_type = 'pg_sweep runner'}, 1,
	'cancel_previous: a run begins');
$run = $node->safe_psql('postgres', q{SELECT run_id FROM sweep.runs WHERE job = 'previous'});
$node->safe_psql('postgres', $becomes_due);
$locker->query_safe('COMMIT');
like(ended_run($node, $run), qr/^cancelled cancelled 0/, 'cancel_previous: it is cancelled for the next one');
at_gate($node, 45, 'cancel_previous: that runs');
open_gate($gate_of_both);
$locker->quit;
$node->safe_psql('postgres', q{SELECT sweep.drop_job('previous')});

# rolled back, it has changed nothing but cancelled, at most, the run
$node->safe_psql('postgres', q{BEGIN; SELECT sweep.drop_job('work'); ROLLBACK});
is($node->safe_psql('postgres', q{SELECT state FROM sweep.jobs WHERE name = 'work'}), 'idle', 'drop_job rolled back: the job is still there');

# ---------------------------------------------------------------- pause drains
$gate = hold_gate($node, 41);
$node->safe_psql('postgres', q{SELECT sweep.alter_job('often', '{"paused": false}')});
at_gate($node, 41, 'pause: a run is in progress');
$run = $node->safe_psql('postgres', q{SELECT run_id FROM sweep.running});
$node->safe_psql('postgres', q{SELECT sweep.pause('often')});
is($node->safe_psql('postgres', q{SELECT state FROM sweep.jobs WHERE name = 'often'}), 'paused (running)', 'pause: the run goes on');
is($node->safe_psql('postgres', q{SELECT next_run IS NULL FROM sweep.jobs WHERE name = 'often'}), 't', 'pause: there will not be another');
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 1 0', 'pause: it ends as usual');
soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'often'}, 'paused', 'pause: then the job is paused');
my $count = $node->safe_psql('postgres', q{SELECT max(run_id) FROM sweep.runs});
my $begin = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
soon($node, "SELECT clock_timestamp() > '$begin'::timestamptz + interval '2 s'", 't', 'pause: two due moments pass');
is($node->safe_psql('postgres', q{SELECT max(run_id) FROM sweep.runs}), $count, 'pause: nothing has started');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('often')})), 'succeeded drained 1 0', 'pause: it can be started by hand');
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('often')});
like($message, qr/NOTICE:  job "often" run \d+: 0 rows in 1 batch, drained/, 'pause: and called');
$node->safe_psql('postgres', q{SELECT sweep.resume('often')});
soon($node, "SELECT count(*) > 0 FROM sweep.runs WHERE job = 'often' AND trigger = 'schedule' AND run_id > $count AND status = 'succeeded'",
	't', 'resume: its schedule applies again');
$node->safe_psql('postgres', 'SELECT sweep.pause_all()');
soon($node, 'SELECT count(*) FROM sweep.running', 0, 'pause_all: nothing runs any more');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT state, ' ') FROM sweep.jobs}), 'paused: by pause_all', 'pause_all: every job is paused');
$count = $node->safe_psql('postgres', q{SELECT max(run_id) FROM sweep.runs});
$node->safe_psql('postgres', 'SELECT sweep.resume_all()');
soon($node, "SELECT count(*) > 0 FROM sweep.runs WHERE run_id > $count AND status = 'succeeded'", 't', 'resume_all: schedules apply again');
$node->stop;
done_testing();
