# room: engine
# The row that says that a run has begun is changed where the scheduler saw it,
# whatever happened to it since.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('run_row', conf => [ 'max_connections = 40', 'pg_sweep.max_running_jobs = 12', 'autovacuum = off' ]);

# A run that waits for its lock has been told where its row is, and has not changed it yet.
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('held')});
$node->safe_psql('postgres', q{
	SELECT sweep.create_job('patient', step => 't.note', lock_key => 'held', lock_retries => 10000, args => '{"job": "patient", "gate": 60}');
	SELECT sweep.create_job('other', step => 't.note', args => '{"job": "other"}');
});

sub start_patient
{
	my $run = due_run($node, 'patient');

	soon($node, "SELECT phase FROM sweep.running WHERE run_id = $run", 'lock', 'a run waits for its lock');
	return $run;
}

sub is_running
{
	my ($run, $name) = @_;

	at_gate($node, 60, "$name: its step is called");
	is($node->safe_psql('postgres', qq{SELECT r.status, r.pid = a.pid, r.started_at >= r.due_at, r.bucket IS NULL, r.shares_left IS NULL, r.batches, r.args
			FROM sweep.run_live r JOIN pg_stat_activity a ON a.application_name = 'pg_sweep: patient #' || r.run_id WHERE r.run_id = $run}),
		'running|t|t|t|t|0|{}', "$name: its row says so");
}

sub end_patient
{
	my ($run, $gate, $name) = @_;

	open_gate($gate);
	is(ended_run($node, $run), 'succeeded drained 1 0', "$name: it ends as usual");
	take_lock($holder, 'held');
}

# ---------------------------------------------------------------- moved
# Rows before it are gone: the table is rewritten without them, and all that is left stands elsewhere.
$node->safe_psql('postgres', q{CALL sweep.wait(sweep.start('other'))}) for 1 .. 3;
my $gate = hold_gate($node, 60);
my $run = start_patient();
my $place = $node->safe_psql('postgres', "SELECT ctid FROM sweep.run_live WHERE run_id = $run");
$node->safe_psql('postgres', 'VACUUM FULL sweep.run_live');
isnt($node->safe_psql('postgres', "SELECT ctid FROM sweep.run_live WHERE run_id = $run"), $place, 'its row has moved');
$holder->query_safe(q{SELECT sweep.release_lock('held')});
is_running($run, 'moved');
end_patient($run, $gate, 'moved');

# Its place belongs to another run, which must not be taken for it.
$gate = hold_gate($node, 60);
$node->safe_psql('postgres', q{CALL sweep.wait(sweep.start('other'))}) for 1 .. 3;
$run = start_patient();
$place = $node->safe_psql('postgres', "SELECT ctid FROM sweep.run_live WHERE run_id = $run");
$node->safe_psql('postgres', 'VACUUM FULL sweep.run_live');
$node->safe_psql('postgres', q{SELECT sweep.start('other', delay => '1 day') FROM generate_series(1, 20)});
my $stranger = $node->safe_psql('postgres', "SELECT run_id FROM sweep.run_live WHERE ctid = '$place'");
isnt($stranger, '', 'another run is where it was');
$holder->query_safe(q{SELECT sweep.release_lock('held')});
is_running($run, 'replaced');
is($node->safe_psql('postgres', "SELECT status, pid IS NULL FROM sweep.run_live WHERE run_id = $stranger"), 'waiting|t', 'the other one is left alone');
end_patient($run, $gate, 'replaced');
$node->safe_psql('postgres', q{SELECT sweep.cancel(run_id) FROM sweep.runs WHERE status = 'waiting'});

# ---------------------------------------------------------------- being changed
for my $end ('COMMIT', 'ROLLBACK')
{
	$gate = hold_gate($node, 60);
	$run = start_patient();
	my $changer = session($node);
	$changer->query_safe("BEGIN; UPDATE sweep.run_live SET due_at = due_at - interval '1 hour', attempt = 7 WHERE run_id = $run");
	$holder->query_safe(q{SELECT sweep.release_lock('held')});
	soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'}, 0,
		"$end: the run does not wait for who changes its row, its process ends");
	is($node->safe_psql('postgres', "SELECT status, pid IS NULL FROM sweep.runs WHERE run_id = $run"), 'waiting|t', "$end: the run waits on");
	$changer->query_safe($end);
	is_running($run, $end);
	is($node->safe_psql('postgres', "SELECT attempt FROM sweep.run_live WHERE run_id = $run"), $end eq 'COMMIT' ? 7 : 1,
		"$end: what the other one did is kept");
	end_patient($run, $gate, $end);
	$changer->quit;
}

# Cancelled by somebody who writes the table himself: it does not begin.
$run = start_patient();
$node->safe_psql('postgres', "UPDATE sweep.run_live SET status = 'cancelled', stop_reason = 'cancelled', finished_at = clock_timestamp() WHERE run_id = $run");
$holder->query_safe(q{SELECT sweep.release_lock('held')});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'}, 0, 'its process ends');
is(ended_run($node, $run), 'cancelled cancelled 0 0', 'a run whose row has ended does not begin');
is($node->safe_psql('postgres', "SELECT count(*) FROM t.started WHERE run_id = $run"), 0, 'and does nothing');

# ---------------------------------------------------------------- on another page
# Rows so long, and an old snapshot that keeps their versions, that the new ones do not fit on their pages: the
# index must know them.
$node->safe_psql('postgres', q{
	SELECT sweep.create_job('long ' || n, step => 't.note', args => '{"job": "long", "gate": 61}') FROM generate_series(1, 10) AS n;
	CREATE EXTENSION amcheck;
});
my $old = session($node);
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sweep.run_live');
$gate = hold_gate($node, 61);
# Their places are noted before any run can see that it is due.
$node->safe_psql('postgres', q{
	SELECT sweep.start('long ' || n, jsonb_build_object('padding', (SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 50) AS i)), '1 day')
		FROM generate_series(1, 10) AS n;
	BEGIN;
	UPDATE sweep.run_live SET due_at = clock_timestamp() WHERE job LIKE 'long%';
	CREATE TABLE t.place AS SELECT run_id, ctid AS place FROM sweep.run_live WHERE job LIKE 'long%';
	COMMIT;
	SELECT sweep._wake();
});
soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 61 AND objsubid = 1}, '10', 'ten long rows have been changed');
is($node->safe_psql('postgres', q{SET enable_seqscan = off; SET enable_bitmapscan = off;
		SELECT count(*), count(*) FILTER (WHERE (r.ctid::text::point)[0] <> (p.place::text::point)[0]) > 0
			FROM t.place p, LATERAL (SELECT r.*, r.ctid FROM sweep.run_live r WHERE r.run_id = p.run_id OFFSET 0) AS r WHERE r.status = 'running'}),
	'10|t', 'each is found by its key, some of them on another page');
is($node->safe_psql('postgres', q{SELECT bt_index_check('sweep.run_live_pkey', heapallindexed => true)}), '', 'the index is right');
open_gate($gate);
$old->quit;
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job LIKE 'long%' AND status = 'succeeded'}, '10', 'all end as usual');

# ---------------------------------------------------------------- a role with an isolation level of its own
$node->safe_psql('postgres', q{
	SET ROLE jobber;
	SELECT sweep.create_job('isolated', step => 't.note', args => '{"job": "isolated"}');
	RESET ROLE;
	ALTER ROLE jobber SET default_transaction_isolation = 'serializable';
	ALTER ROLE jobber SET default_transaction_read_only = on;
	CREATE OR REPLACE FUNCTION t.look(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS 'SELECT 0::bigint, NULL::jsonb, NULL::jsonb';
	SELECT sweep.alter_job('isolated', '{"step": "t.look"}');
});
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('isolated')})), 'succeeded drained 1 0',
	'a run is recorded whatever transactions its role has');

$holder->quit;
$node->stop;
done_testing();
