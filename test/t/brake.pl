# room: engine
# A run that pauses between its batches: nothing is open meanwhile, whoever stops it is answered at once, and no pause
# goes beyond stop_after.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('brake', conf => [ 'pg_sweep.max_share_per_role = 1' ]);

sub fill
{
	sql('TRUNCATE t.todo; INSERT INTO t.todo SELECT i FROM generate_series(1, 30) AS i');
}

sub pauses
{
	my ($run, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, "SELECT phase || ' ' || batches FROM sweep.running WHERE run_id = $run", 'braked 1', "$name: it pauses behind its first batch");
}

sql(q{SELECT sweep.create_job('paced', step => 't.work', batch_size => 10, pause => '1 hour')});

# ---------------------------------------------------------------- while it pauses
fill();
my $run = sql(q{SELECT sweep.start('paced')});
pauses($run, 'in the background');
soon($node, "SELECT a.wait_event_type || ' ' || a.wait_event FROM pg_stat_activity a JOIN sweep.running r USING (pid) WHERE r.run_id = $run",
	'Extension ' . event_name('PgSweepBrake'), 'in the background: it waits on an event of its own');
is(sql("SELECT a.xact_start IS NULL, a.backend_xmin IS NULL, a.backend_xid IS NULL FROM pg_stat_activity a JOIN sweep.running r USING (pid) WHERE r.run_id = $run"),
	't|t|t', 'in the background: with no transaction and no snapshot');
soon($node, "SELECT braked_ms > 500 AND rows_per_second > 3 * rows / extract(epoch FROM clock_timestamp() - started_at) FROM sweep.running WHERE run_id = $run", 't',
	'in the background: the pause in progress is counted, and not in the rate');

# ---------------------------------------------------------------- whoever stops it
is(sql("SELECT sweep.cancel($run)"), 't', 'cancel: asked for');
is(ended_run($node, $run), 'cancelled cancelled 1 10', 'cancel: it ends in its pause');
is(sql("SELECT braked_ms > 500 FROM sweep.runs WHERE run_id = $run"), 't', 'cancel: the time it has paused is recorded');
fill();
sql(q{SELECT sweep.alter_job('paced', '{"timeout": "3 s"}')});
is(ended_run($node, sql(q{SELECT sweep.start('paced')})), 'failed timeout 1 10', 'timeout: ends a pause as well');
sql(q{SELECT sweep.alter_job('paced', '{"timeout": null}')});
fill();
$run = sql(q{SELECT sweep.start('paced')});
pauses($run, 'pg_cancel_backend');
sql(q{SELECT pg_cancel_backend(pid) FROM sweep.running});
is(ended_run($node, $run), 'cancelled cancelled 1 10', 'pg_cancel_backend: it ends in its pause');

# ---------------------------------------------------------------- how long
fill();
sql(q{SELECT sweep.alter_job('paced', '{"stop_after": "30 min"}')});
$run = sql(q{SELECT sweep.start('paced')});
is(ended_run($node, $run), 'succeeded stop_after 1 10', 'stop_after: a run whose pause would reach it ends before');
is(sql("SELECT braked_ms FROM sweep.runs WHERE run_id = $run"), 0, 'stop_after: it has not paused');
fill();
sql(q{SELECT sweep.alter_job('paced', '{"stop_after": null, "pause": "200 ms"}')});
$run = sql(q{SELECT sweep.start('paced')});
is(ended_run($node, $run), 'succeeded drained 4 30', 'three pauses: the run is complete');
is(sql("SELECT braked_ms BETWEEN 600 AND extract(epoch FROM finished_at - started_at) * 1000 FROM sweep.runs WHERE run_id = $run"), 't', 'three pauses: of that time');
fill();
sql(q{SELECT sweep.alter_job('paced', '{"max_batches": 1, "pause": "1 hour"}')});
is(ended_run($node, sql(q{SELECT sweep.start('paced')})), 'succeeded max_batches 1 10', 'none follows the last batch');
sql(q{SELECT sweep.alter_job('paced', '{"max_batches": null}')});

# ---------------------------------------------------------------- in a session
fill();
my $session = session($node);
begin_query($session, q{CALL sweep.run('paced')});
soon($node, q{SELECT phase || ' ' || batches FROM sweep.running}, 'braked 1', 'CALL: it pauses');
is(sql('SELECT a.backend_xmin IS NULL, a.backend_xid IS NULL FROM pg_stat_activity a JOIN sweep.running r USING (pid)'), 't|t', 'CALL: with no snapshot');
sql('SELECT pg_cancel_backend(pid) FROM sweep.running');
like(end_query($session), qr/ERROR:  run \d+ of job "paced" was cancelled after 1 batch, 10 rows/, 'CALL: it is cancelled');
fill();
$session->query_safe(q{SET statement_timeout = '3 s'});
begin_query($session, q{CALL sweep.run('paced')});
like(end_query($session), qr/ERROR:  run \d+ of job "paced" failed: canceling statement due to statement timeout/, 'CALL: the timeout of the session ends a pause');
is(sql(q{SELECT concat_ws(' ', status, stop_reason, sqlstate, batches, rows) FROM sweep.runs ORDER BY run_id DESC LIMIT 1}), 'failed error 57014 1 10', 'CALL: and is recorded');
$session->query_safe(q{RESET statement_timeout});

# ---------------------------------------------------------------- other waits
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('paced')});
sql(q{SELECT sweep.alter_job('paced', '{"lock_retries": 1000, "lock_retry_delay": "1 s"}')});
begin_query($session, q{CALL sweep.run('paced')});
soon($node, q{SELECT a.wait_event_type || ' ' || a.wait_event FROM pg_stat_activity a JOIN sweep.running r USING (pid)}, 'Extension ' . event_name('PgSweepLock'), 'for the lock of the job');
sql('SELECT pg_cancel_backend(pid) FROM sweep.running');
end_query($session);
$holder->quit;
$session->quit;
soon($node, q{SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE backend_type = 'pg_sweep launcher'}, 'Extension ' . event_name('PgSweepIdle'), 'the launcher, for work');

# ---------------------------------------------------------------- a share does not lose its bucket
fill();
sql(q{
	CREATE FUNCTION t.share(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		n int;
	BEGIN
		UPDATE t.todo SET run_id = b.run_id WHERE id IN (SELECT id FROM t.todo WHERE run_id IS NULL AND mod(id, b.buckets) = b.bucket
			ORDER BY id LIMIT b.size FOR UPDATE SKIP LOCKED);
		GET DIAGNOSTICS n = ROW_COUNT;
		RETURN ROW(n, NULL, NULL)::sweep.progress;
	END
	$$;
	SELECT sweep.create_job('shares', step => 't.share', buckets => 2, batch_size => 4, pause => '3 s', bucket_recovery => '10 s');
	SELECT sweep.start('shares')});
soon($node, q{SELECT count(*) FROM t.todo WHERE run_id IS NULL}, 0, 'shares: all rows are handled');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'shares' AND finished_at IS NULL}, 0, 'shares: they end');
is(sql(q{SELECT string_agg(DISTINCT status || ' ' || stop_reason, ', ' ORDER BY status || ' ' || stop_reason) FROM sweep.runs WHERE job = 'shares' AND batches > 0}),
	'succeeded drained, succeeded stop_after', 'shares: each with its bucket');
is(sql(q{SELECT bool_and(finished_at - started_at < interval '10 s') FROM sweep.runs WHERE job = 'shares' AND batches > 0}), 't', 'shares: before it would be recovered');

$node->stop;
done_testing();
