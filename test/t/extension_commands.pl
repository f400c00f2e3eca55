# room: process
# DROP EXTENSION, CREATE EXTENSION and ALTER EXTENSION while jobs run and while
# nothing does: no deadlock, nobody waits for us, our processes leave.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('extension_commands', conf => ['deadlock_timeout = 100ms']);

sub define_jobs
{
	$node->safe_psql('postgres', q{
		INSERT INTO t.todo SELECT i FROM generate_series(1, 100000) AS i;
		SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}');
		SELECT sweep.create_job('many', step => 't.work', batch_size => 1);
		SELECT sweep.create_job('gated', step => 't.work', batch_size => 1, args => '{"gate": 12}');
	});
	soon($node, q{SELECT count(*) > 0 FROM t.started}, 't', 'jobs run');
}

sub all_leave
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('pg_sweep runner', 'pg_sweep scheduler')},
		0, "$name: runner and scheduler leave");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_extension WHERE extname = 'pg_sweep'}), 0, "$name: it is gone");
}

sub again
{
	$node->safe_psql('postgres', 'DROP SCHEMA t CASCADE');
	prepare_database($node, 'postgres');
	define_jobs();
}

define_jobs();

# ---------------------------------------------------------------- DROP, idle
$node->safe_psql('postgres', 'SELECT sweep.pause_all()');
soon($node, 'SELECT count(*) FROM sweep.running', 0, 'nothing runs');
$node->safe_psql('postgres', q{SET statement_timeout = '10 s'; DROP EXTENSION pg_sweep CASCADE});
all_leave('DROP, idle');
again();

# ---------------------------------------------------------------- DROP, in the middle of a batch
my $gate = hold_gate($node, 12);
$node->safe_psql('postgres', q{SELECT sweep.start('gated')});
at_gate($node, 12, 'DROP: a batch is in progress');
my $dropper = session($node);
begin_query($dropper, 'DROP EXTENSION pg_sweep CASCADE');
soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted}, 1, 'DROP: waits for the batch');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.todo WHERE run_id IS NOT NULL'), 0, 'DROP: the batch is not committed');
open_gate($gate);
unlike(end_query($dropper), qr/ERROR/, 'DROP: is done after it');
$dropper->quit;
all_leave('DROP, in a batch');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.todo WHERE run_id IS NOT NULL'), 1, 'DROP: that batch is committed, no other');
again();

# ---------------------------------------------------------------- DROP of an extension that requires it
# The batch has used tables of pg_sweep and is to use one of the other extension; its end needs both.
$node->safe_psql('postgres', 'CREATE EXTENSION pg_sweep_gitlab');
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.ask(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(13);
		PERFORM sweep_gitlab.feature_enabled('bulk_delete_job_artifacts');
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END
	$$;
	SELECT sweep.create_job('asks', step => 't.ask');
});
$gate = session($node);
$gate->query_safe('SELECT pg_advisory_lock(13)');
my $asking = $node->safe_psql('postgres', q{SELECT sweep.start('asks')});
soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 13 AND NOT granted}, 1, 'DROP of another: a batch is in progress');
begin_query($dropper = session($node), 'DROP EXTENSION pg_sweep_gitlab');
soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted}, 1, 'DROP of another: waits for the batch');
$gate->query_safe('SELECT pg_advisory_unlock(13)');
unlike(end_query($dropper), qr/ERROR/, 'DROP of another: is done after it');
$_->quit for $dropper, $gate;
is(ended_run($node, $asking), 'succeeded drained 1 0', 'DROP of another: the batch has found what it needs');
is($node->safe_psql('postgres', q{SELECT string_agg(extname, ' ') FROM pg_extension WHERE extname ~ 'sweep'}), 'pg_sweep', 'DROP of another: pg_sweep stays');
$node->safe_psql('postgres', q{SELECT sweep.drop_job('asks')});

# ---------------------------------------------------------------- DROP: what it leaves are roles
my @catalog = qw(pg_class pg_attribute pg_index pg_constraint pg_attrdef pg_trigger pg_policy pg_rewrite pg_type pg_proc pg_operator pg_cast
  pg_namespace pg_default_acl pg_init_privs pg_event_trigger pg_extension pg_depend pg_description pg_seclabel pg_statistic_ext pg_largeobject_metadata);
my $objects = join(' UNION ALL ', map { "SELECT '$_' AS catalog, count(*) FROM pg_catalog.$_" } @catalog)
  . ' UNION ALL SELECT d.deptype::text, count(*) FROM pg_shdepend d WHERE d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY d.deptype'
  . q{ UNION ALL SELECT 'settings', count(*) FROM pg_db_role_setting};
$node->safe_psql('postgres', 'CREATE DATABASE clean');
my $before = $node->safe_psql('clean', "$objects ORDER BY 1");
prepare_database($node, 'clean');
$node->safe_psql('clean', q{
	SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}'), sweep.create_queue('full');
	SELECT sweep.send('full', '1'), sweep.send('full', '2', delay => '1 hour'), sweep.try_lock('held'), sweep.begin_once('once');
	SELECT sweep.grant_queue('full', 'jobber', '{send,consume}');
});
soon($node, 'SELECT count(*) > 0 FROM t.started', 't', 'DROP, clean: a job runs', 'clean');
isnt($node->safe_psql('clean', "$objects ORDER BY 1"), $before, 'DROP, clean: there is something');
$node->safe_psql('clean', 'DROP EXTENSION pg_sweep CASCADE; DROP SCHEMA t CASCADE');
is($node->safe_psql('clean', "$objects ORDER BY 1"), $before, 'DROP, clean: nothing is left in the database');
is($node->safe_psql('clean', q{SELECT string_agg(rolname, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname ~ 'sweep'}),
	'sweep_admin sweep_client sweep_monitor sweep_operator sweep_user', 'DROP, clean: but the roles of all databases');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'clean'}, 0, 'DROP, clean: nor a process');
$node->safe_psql('postgres', 'DROP DATABASE clean');

# ---------------------------------------------------------------- DROP, against many small batches
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', q{SELECT sweep.start('many')});
	soon($node, q{SELECT count(*) > 0 FROM sweep.running WHERE job = 'many' AND batches > 10}, 't', 'DROP: batch follows batch');
	$node->safe_psql('postgres', q{SET statement_timeout = '10 s'; DROP EXTENSION pg_sweep CASCADE});
	all_leave("DROP, many batches, round $round");
	again();
}

# ---------------------------------------------------------------- DROP, against a run in a session
my $session = session($node);
begin_query($session, q{CALL sweep.run('many')});
soon($node, q{SELECT count(*) > 0 FROM sweep.running WHERE job = 'many' AND batches > 10}, 't', 'DROP: a session runs a job');
$node->safe_psql('postgres', q{SET statement_timeout = '10 s'; DROP EXTENSION pg_sweep CASCADE});
like(end_query($session), qr/ERROR:  (run \d+ of job "many" was cancelled after \d+ batches|extension pg_sweep does not exist)/,
	'DROP: the session is told');
is($session->query('SELECT 1'), 1, 'DROP: and goes on');
all_leave('DROP, a session');
again();
# by itself it would be in the way once a second
$node->safe_psql('postgres', q{SELECT sweep.pause('tick')});
soon($node, 'SELECT count(*) FROM sweep.running', 0, 'DROP, CREATE: the run before is over');
like(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('tick')})), qr/^succeeded/, 'DROP, CREATE: jobs run');
$node->safe_psql('postgres', q{SELECT sweep.resume('tick')});

# ---------------------------------------------------------------- DROP and CREATE, before a run begins
# It waits for its lock and has been told where everything is; all of that is another now.
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('held')});
$node->safe_psql('postgres', q{SELECT sweep.create_job('patient', step => 't.note', lock_key => 'held', lock_retries => 10000, args => '{"job": "patient"}')});
my $patient = due_run($node, 'patient');
soon($node, "SELECT phase FROM sweep.running WHERE run_id = $patient", 'lock', 'DROP and CREATE: a run has not begun');
$node->safe_psql('postgres', q{SET statement_timeout = '10 s'; DROP EXTENSION pg_sweep CASCADE});
again();
my $offset = -s $node->logfile;
$holder->query_safe('DISCARD ALL');
soon($node, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_sweep: patient #$patient'", 0, 'DROP and CREATE: it leaves');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'patient'}), 0, 'DROP and CREATE: without a batch');
unlike(slurp_file($node->logfile, $offset), qr/run $patient of job "patient" could not begin/, 'DROP and CREATE: and without an error');
$holder->quit;

# ---------------------------------------------------------------- DROP, rolled back
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('many')});
soon($node, q{SELECT count(*) > 0 FROM sweep.running WHERE job = 'many' AND batches > 10}, 't', 'rolled back: a run is in progress');
$session->query('BEGIN; DROP EXTENSION pg_sweep CASCADE');
$session->query('ROLLBACK');
my $rows = $node->safe_psql('postgres', "SELECT rows FROM sweep.runs WHERE run_id = $run");
soon($node, "SELECT rows > $rows FROM sweep.runs WHERE run_id = $run", 't', 'rolled back: the run goes on');

# ---------------------------------------------------------------- ALTER EXTENSION
$session->query('BEGIN; ALTER EXTENSION pg_sweep UPDATE');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND granted
		AND classid = 'pg_extension'::regclass AND mode = 'AccessExclusiveLock'}), 1, 'ALTER: has the extension for itself');
is($node->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $run"), 'running', 'ALTER: the run is still there');
$rows = $node->safe_psql('postgres', 'SELECT count(*) FROM t.todo WHERE run_id IS NOT NULL');
soon($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner' AND xact_start IS NULL AND wait_event_type = 'Extension'},
	't', 'ALTER: the run waits outside of a transaction');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.todo WHERE run_id IS NOT NULL'), $rows, 'ALTER: and does no batch');
$session->query('COMMIT');
soon($node, "SELECT rows > $rows FROM sweep.runs WHERE run_id = $run", 't', 'ALTER: then the run goes on');
$session->query('BEGIN; ALTER EXTENSION pg_sweep UPDATE');
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'ALTER: it can be cancelled');
soon($node, q{SELECT count(*) > 0 FROM sweep.running r JOIN pg_stat_activity a USING (pid) WHERE r.phase = 'ending' AND a.xact_start IS NULL
	AND a.wait_event_type = 'Extension'}, 't', 'ALTER: and waits before it says so');
$session->query('COMMIT');
like(ended_run($node, $run), qr/^cancelled cancelled/, 'ALTER: then it does');
$session->quit;
unlike(slurp_file($node->logfile), qr/deadlock detected/, 'there was no deadlock');
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal|cache lookup failed/, 'and nothing worse');
$node->stop;
done_testing();
