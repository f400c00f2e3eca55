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
	ALTER ROLE jobber SET statement_timeout = '5s';
});
my $gate = hold_gate($node, 30);
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('slow')});
is(ended_run($node, $run), 'failed error 2 20', 'statement_timeout of the role ends a batch, the ones before stay');
is($node->safe_psql('postgres', "SELECT sqlstate, split_part(error, E'\\n', 1) FROM sweep.runs WHERE run_id = $run"),
	'57014|canceling statement due to statement timeout', 'the run says what it was');
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
