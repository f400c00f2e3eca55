# room: engine
# The settings of a job's role hold in its runs, above all the timeouts, which
# nothing arms in a background worker by itself.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('statement_timeout');

$node->safe_psql('postgres', q{
	INSERT INTO t.todo SELECT i FROM generate_series(1, 50) AS i;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA t TO jobber;
	SELECT sweep.create_job('slow', step => 't.work', batch_size => 10, run_as => 'jobber', args => '{"gate": 30, "gate_at": 3}');
	CREATE FUNCTION t.short(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(0.6);  -- the sleep is the work
		RETURN ROW(CASE WHEN b.run_id IS NULL OR coalesce((b.cursor ->> 'n')::int, 0) = 9 THEN 0 ELSE 1 END,
			jsonb_build_object('n', coalesce((b.cursor ->> 'n')::int, 0) + 1), NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('short', step => 't.short', run_as => 'jobber');
	SELECT sweep.create_job('locker', batch_sql => 'UPDATE t.todo SET run_id = 0 WHERE id = 50 AND run_id IS NULL AND $1 > 0', run_as => 'jobber');
	ALTER ROLE jobber SET statement_timeout = '2s';
});
my $gate = hold_gate($node, 30);
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('slow')});
is(ended_run($node, $run), 'failed error 2 20', 'statement_timeout of the role ends a batch of any size, the ones before stay');
is($node->safe_psql('postgres', "SELECT sqlstate, split_part(error, E'\\n', 1) FROM sweep.runs WHERE run_id = $run"),
	'57014|canceling statement due to statement timeout', 'the run says what it was');
like($node->safe_psql('postgres', "SELECT error FROM sweep.runs WHERE run_id = $run"), qr/^HINT: Not even a batch of one row is done in time/m, 'and what to do');
is($node->safe_psql('postgres', "SELECT count(*) FROM t.todo WHERE run_id = $run"), 20, 'what it counts is what was done');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('short')})), 'succeeded drained 10 9',
	'it is the time of one batch, not of the run');

$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = 0; ALTER ROLE jobber SET lock_timeout = '200ms'});
$run = $node->safe_psql('postgres', q{SELECT sweep.start('slow')});
like(ended_run($node, $run), qr/^failed error 2 /, 'lock_timeout of the role ends a batch');
like($node->safe_psql('postgres', "SELECT sqlstate || ' ' || error FROM sweep.runs WHERE run_id = $run"),
	qr/^55P03 canceling statement due to lock timeout/, 'the run says what it was');
my $locker = session($node);
$locker->query_safe('BEGIN; SELECT id FROM t.todo WHERE id = 50 FOR UPDATE');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('locker')})), 'failed error 0 0', 'the same for a row lock');
$locker->query_safe('COMMIT');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('locker')})), 'succeeded drained 2 1', 'without the lock it goes on');
$locker->quit;

# ---------------------------------------------------------------- a batch that is stopped is done again with half the size
# t.heavy counts up to "rows". Its args: "most", more rows than that take for ever; "gate", a lock that the batch
# behind "gate_at" rows waits for; "free", the batch at which everything is fast. The detail has the sizes.
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.heavy(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		done int := coalesce((b.cursor ->> 'done')::int, 0);
		n int := least(b.size, (b.args ->> 'rows')::int - done);
	BEGIN
		IF n > (b.args ->> 'most')::int AND done >= coalesce((b.args ->> 'from')::int, 0) THEN
			PERFORM pg_sleep(600); -- the sleep is the work
		END IF;
		IF done >= (b.args ->> 'gate_at')::int THEN
			PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::int);
		END IF;
		RETURN ROW(n, jsonb_build_object('done', done + n), jsonb_build_object('sizes', jsonb_build_array(b.size)))::sweep.progress;
	END $$;
	ALTER ROLE jobber SET lock_timeout = 0;
	ALTER ROLE jobber SET statement_timeout = '2s';
	SELECT sweep.create_job('heavy', step => 't.heavy', run_as => 'jobber', batch_size => 16, args => '{"rows": 60, "most": 4}');
});

sub sizes
{
	my ($run) = @_;

	return $node->safe_psql('postgres', "SELECT detail -> 'sizes' FROM sweep.runs WHERE run_id = $run");
}

$run = $node->safe_psql('postgres', q{SELECT sweep.start('heavy')});
is(ended_run($node, $run), 'succeeded drained 16 60', 'halved: the run goes on to its end');
is(sizes($run), '[' . join(', ', (4) x 15, 4) . ']', 'halved: to a size that is done in time; eight were tried again after ten batches');
$node->safe_psql('postgres', q{SELECT sweep.alter_job('heavy', '{"args": {"rows": 400, "most": 4, "gate": 31, "gate_at": 396}}')});
$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = '3s'});
my $second = hold_gate($node, 31);
$run = $node->safe_psql('postgres', q{SELECT sweep.start('heavy', '{"rows": 60, "gate_at": 4}')});
# It is halved again while the test looks, every three seconds.
soon($node, q{SELECT (batch_size <= 4) || ' ' || rows FROM sweep.running WHERE phase = 'step' AND batches = 1}, 'true 4', 'halved: sweep.running shows the size');
$node->safe_psql('postgres', "SELECT sweep.cancel($run)");
is(ended_run($node, $run), 'cancelled cancelled 1 4', 'halved: a cancel is none of the timeouts');
open_gate($second);
$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = '1h'});
$second = hold_gate($node, 31);
$run = $node->safe_psql('postgres', q{SELECT sweep.start('heavy', '{"most": 400, "gate_at": 16}')});
soon($node, 'SELECT batches FROM sweep.running', 1, 'pg_cancel_backend: a batch is in progress');
at_gate($node, 31);
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM sweep.running');
is(ended_run($node, $run), 'cancelled cancelled 1 16', 'pg_cancel_backend: is not taken for the timeout of the role');
open_gate($second);
$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = '2s'; SELECT sweep.alter_job('heavy', '{"stop_after": "1.5 s", "args": {"rows": 60, "most": 0, "from": 16}}')});
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('heavy')})), 'succeeded stop_after 1 16', 'stop_after: no batch is tried again after it');
$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = '1min'; SELECT sweep.alter_job('heavy', '{"stop_after": null, "timeout": "4 s"}')});
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('heavy')})), 'failed timeout 1 16', 'timeout: is none of the timeouts');
$node->safe_psql('postgres', q{SELECT sweep.drop_job('heavy')});

# A lock: the rows before the one that is locked are done.
$node->safe_psql('postgres', q{
	ALTER ROLE jobber RESET statement_timeout;
	ALTER ROLE jobber SET lock_timeout = '100ms';
	TRUNCATE t.todo;
	INSERT INTO t.todo SELECT i FROM generate_series(1, 30) AS i;
	SELECT sweep.create_job('locked', batch_size => 10, run_as => 'jobber',
		batch_sql => 'UPDATE t.todo SET run_id = ($2).run_id WHERE id IN (SELECT id FROM t.todo WHERE run_id IS NULL ORDER BY id LIMIT $1)');
});
$locker = session($node);
$locker->query_safe('BEGIN; SELECT id FROM t.todo WHERE id = 8 FOR UPDATE');
$run = $node->safe_psql('postgres', q{SELECT sweep.start('locked')});
is(ended_run($node, $run), 'failed error 2 7', 'a row that is locked: those before it are done');
like($node->safe_psql('postgres', "SELECT sqlstate || ' ' || error FROM sweep.runs WHERE run_id = $run"),
	qr/^55P03 canceling statement due to lock timeout\n(?:.*\n)*?HINT: Not even a batch of one row gets its locks/, 'a row that is locked: the run says what to do');
my ($result, $output, $message) = $node->psql('postgres', q{SET lock_timeout = '100ms'; CALL sweep.run('locked')}, extra_params => [ '-U', 'jobber' ]);
like($message, qr/failed: canceling statement due to lock timeout.*HINT:  Not even a batch of one row/s, 'CALL: the same, with the hint');
$locker->query_safe('COMMIT');
$run = $node->safe_psql('postgres', q{SELECT sweep.start('locked')});
is(ended_run($node, $run), 'succeeded drained 4 23', 'without the lock the rest is done');
$locker->quit;

# Items: those that take too long are found, and fewer are picked from then on. So are fewer when to pick them takes too long.
$node->safe_psql('postgres', q{
	ALTER ROLE jobber SET statement_timeout = '2s';
	ALTER ROLE jobber SET lock_timeout = 0;
	CREATE FUNCTION t.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF b.size > (b.args ->> 'most')::int THEN
			PERFORM pg_sleep(600); -- the sleep is the work
		END IF;
		RETURN QUERY SELECT to_jsonb(i) FROM generate_series(coalesce((b.cursor #>> '{}')::int, 0) + 1, 20) AS i LIMIT b.size;
	END $$;
	CREATE FUNCTION t.each(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		IF b.size > 4 THEN
			PERFORM pg_sleep(600); -- the sleep is the work
		END IF;
		RETURN ROW(b.size, NULL, jsonb_build_object('sizes', jsonb_build_array(b.size)))::sweep.progress;
	END $$;
	SELECT sweep.create_job('items', pick => 't.pick', step => 't.each', run_as => 'jobber', batch_size => 8, args => '{"most": 100}');
});
$run = $node->safe_psql('postgres', q{SELECT sweep.start('items')});
is(ended_run($node, $run), 'succeeded drained 5 20', 'items: all of them are handled');
is(sizes($run), '[4, 4, 4, 4, 4]', 'items: the next batches are smaller');
$run = $node->safe_psql('postgres', q{SELECT sweep.start('items', '{"most": 3}')});
is(ended_run($node, $run), 'succeeded drained 11 20', 'items: fewer are picked when that takes too long');
is(sizes($run), '[' . join(', ', (2) x 10) . ']', 'items: two at a time');
$node->safe_psql('postgres', q{ALTER ROLE jobber RESET ALL});

# In a session it is the time of the whole CALL, and the outcome is recorded all the same.
$node->safe_psql('postgres', 'INSERT INTO t.todo SELECT i FROM generate_series(101, 200) AS i');
my $session = session($node, user => 'jobber');
$session->query_safe(q{SET lock_timeout = 0; SET statement_timeout = '5s'});
$session->query(q{CALL sweep.run('slow')});
like(end_query($session), qr/ERROR:  run \d+ of job "slow" failed: canceling statement due to statement timeout/, 'CALL: the session is told');
is($node->safe_psql('postgres', q{SELECT status, stop_reason, sqlstate, split_part(error, E'\n', 1) FROM sweep.runs WHERE job = 'slow' ORDER BY run_id DESC LIMIT 1}),
	'failed|error|57014|canceling statement due to statement timeout', 'CALL: so is everybody');
is($session->query('SELECT 1'), 1, 'CALL: the session goes on');
$session->quit;

# The engine's own statements and the scheduler are not in the way of such settings.
$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = '1ms'; ALTER ROLE jobber SET lock_timeout = '1ms'});
$run = $node->safe_psql('postgres', q{SELECT sweep.start('slow')});
like(ended_run($node, $run), qr/^failed error /, 'a timeout that lets nothing through: the run still has an end');
open_gate($gate);
$node->stop;
done_testing();
