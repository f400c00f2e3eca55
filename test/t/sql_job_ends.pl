# room: engine
# How jobs with sql end, in whatever state their text has left the session: cancelled, past a timeout, without their
# lock, without their process, without the extension. The end is recorded in any case.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('sql_job_ends', conf => ['deadlock_timeout = 100ms']);

sql(q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE ROLE another LOGIN;
	GRANT another TO app;
	CREATE SCHEMA app AUTHORIZATION app;
	CREATE TABLE app.seen (n int PRIMARY KEY, who text DEFAULT current_user);
	CREATE FUNCTION app.same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
	CREATE OPERATOR app.= (FUNCTION = app.same, LEFTARG = text, RIGHTARG = text);
	GRANT ALL ON app.seen TO PUBLIC;
	GRANT USAGE ON SCHEMA app TO PUBLIC;
});

sub create_job
{
	my ($name, $sql, %option) = @_;

	sql("TRUNCATE app.seen");
	return $node->safe_psql('postgres', "SELECT sweep.create_job('$name', NULL, \$job\$$sql\$job\$" . ($option{settings} // '') . ')',
		extra_params => [ '-U', $option{user} // 'app' ]);
}

# Creates and starts a job, waits for its end, and returns status, stop_reason, batches and rows.
sub run_sql
{
	my ($name, @definition) = @_;

	create_job($name, @definition);
	return ended_run($node, start($name));
}

sub last_error
{
	return sql(q{SELECT sqlstate || ' ' || error FROM sweep.runs ORDER BY run_id DESC LIMIT 1});
}

sub seen
{
	return sql(q{SELECT coalesce(string_agg(n::text, ',' ORDER BY n), 'nothing') FROM app.seen});
}

sub locks_are_free
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid IN (21335, 21336)}, 0, 'its locks are free');
}

# ---------------------------------------------------------------- while it runs
subtest 'what is shown of it' => sub {
	my $gate = hold_gate($node, 50);

	create_job('shown', "INSERT INTO seen VALUES (1);\n\n  SELECT pg_advisory_xact_lock(50) -- waits\n;");
	my $run = start('shown');
	at_gate($node, 50, 'its second statement is in progress');
	is(sql("SELECT job, phase, batches, rows, batch_size IS NULL, estimated_rows IS NULL FROM sweep.running WHERE run_id = $run"), 'shown|step|1|1|t|t', 'sweep.running');
	is(sql("SELECT backend_type, application_name, query FROM pg_stat_activity WHERE pid = (SELECT pid FROM sweep.running)"),
		"pg_sweep runner|pg_sweep: shown #$run|SELECT pg_advisory_xact_lock(50) -- waits\n", 'pg_stat_activity');
	is(sql("SELECT status, batches, started_at IS NOT NULL FROM sweep.runs WHERE run_id = $run"), 'running|0|t', 'sweep.runs: that it runs is committed');
	is(sql(q{SELECT state, sql LIKE 'INSERT%' FROM sweep.jobs WHERE name = 'shown'}), 'running|t', 'sweep.jobs');
	is(sql('SELECT count(*) FROM app.seen'), 1, 'what it has done is committed');
	sql(q{SELECT sweep.create_job('same lock', NULL, 'SELECT 1', lock_key => 'shown', run_as => 'app')});
	is(ended_run($node, due_run($node, 'same lock')), 'skipped skipped 0 0', 'a due run of a job with the same lock is skipped: it is held');
	my $second = start('shown');
	tick($node);
	is(sql("SELECT status FROM sweep.runs WHERE run_id = $second"), 'waiting', 'a started one waits');
	my ($status, $output, $message) = $node->psql('template1', q{CREATE DATABASE copy TEMPLATE postgres});
	like($message, qr/being used by pg_sweep.*1 run in progress/s, 'nobody gets its database');
	sql("SELECT sweep.cancel($second)");
	open_gate($gate);
	is(ended_run($node, $run), 'succeeded done 2 2', 'it ends');
	locks_are_free();
};

# ---------------------------------------------------------------- errors
subtest 'an error in the middle' => sub {
	is(run_sql('middle', 'INSERT INTO seen VALUES (1); INSERT INTO seen VALUES (1); INSERT INTO seen VALUES (2)'), 'failed error 1 1', 'ends it');
	is(seen(), '1', 'what was before stays, nothing comes after');
	like(last_error(), qr/^23505 duplicate key .*\nCONTEXT: statement 2 of the sql of the job: INSERT INTO seen VALUES \(1\)$/s, 'it says where');
	is(sql(q{SELECT state, last_stop_reason FROM sweep.jobs WHERE name = 'middle'}), 'failing|error', 'sweep.jobs');
	like(slurp_file($node->logfile), qr/WARNING:  run \d+ of job "middle" failed: duplicate key/, 'the log');
	is(run_sql('names', 'SELECT nothing()'), 'failed error 0 0', 'a name that does not exist');
	like(sql(q{SELECT state FROM sweep.jobs WHERE name = 'names'}), qr/^broken: function nothing\(\) does not exist/, 'makes it broken');
};

subtest 'an error in a procedure that has committed' => sub {
	sql(q{CREATE PROCEDURE app.commits() LANGUAGE plpgsql AS $$ BEGIN
		FOR i IN 1..3 LOOP INSERT INTO app.seen VALUES (i); COMMIT; END LOOP; INSERT INTO app.seen VALUES (4); PERFORM 1 / 0; END $$});
	is(run_sql('procedure', 'CALL commits()'), 'failed error 0 0', 'the run fails');
	is(seen(), '1,2,3', 'what the procedure has committed stays');
};

subtest 'tried again' => sub {
	is(run_sql('again', 'INSERT INTO seen VALUES (1); SELECT 1 / 0', settings => ', max_attempts => 2'), 'failed error 1 1', 'the first attempt');
	is(sql(q{SELECT attempt, trigger FROM sweep.runs WHERE job = 'again' AND status = 'waiting'}), '2|retry', 'another one is queued');
	sql(q{UPDATE sweep.run_live SET due_at = now() WHERE job = 'again' AND status = 'waiting'; SELECT sweep._wake()});
	soon($node, q{SELECT status || ' ' || batches FROM sweep.runs WHERE job = 'again' AND attempt = 2}, 'failed 0', 'it begins with the first statement again');
};

subtest 'as a child, and with children' => sub {
	create_job('child', 'INSERT INTO seen VALUES (7)');
	create_job('parent', 'INSERT INTO seen VALUES (8)', settings => q{, on_start => '{"child": "0"}'});
	is(ended_run($node, start('parent')), 'succeeded done 1 1', 'the parent');
	soon($node, q{SELECT status || ' ' || stop_reason FROM sweep.runs WHERE job = 'child'}, 'succeeded done', 'the child');
	is(seen(), '7,8', 'both have done their work');
};

# ---------------------------------------------------------------- somebody stops it
subtest 'sweep.cancel' => sub {
	my $gate = hold_gate($node, 51);

	create_job('cancelled', 'INSERT INTO seen VALUES (1); BEGIN; INSERT INTO seen VALUES (2); SELECT pg_advisory_xact_lock(51); COMMIT');
	my $run = start('cancelled');
	at_gate($node, 51, 'a statement is in progress');
	is(sql("SELECT sweep.cancel($run)"), 't', 'cancelled');
	is(ended_run($node, $run), 'cancelled cancelled 1 1', 'it has ended');
	is(seen(), '1', 'the block in flight is undone');
	sql('TRUNCATE app.seen');
	$run = start('cancelled');
	at_gate($node, 51, 'again');
	sql("SELECT pg_cancel_backend(pid) FROM sweep.runs WHERE run_id = $run");
	is(ended_run($node, $run), 'cancelled cancelled 1 1', 'pg_cancel_backend does the same');
	open_gate($gate);
	locks_are_free();
	# Between statements, of which there are enough for as long as this takes.
	create_job('between', 'SELECT pg_sleep(0.01);' x 20000);  # the sleep is the work
	$run = start('between');
	soon($node, "SELECT batches > 3 FROM sweep.running WHERE run_id = $run", 't', 'statement follows statement');
	sql("SELECT sweep.cancel($run)");
	like(ended_run($node, $run), qr/^cancelled cancelled /, 'it has ended');
};

subtest 'timeout' => sub {
	is(run_sql('late', 'INSERT INTO seen VALUES (1); SELECT pg_sleep(1000)', settings => q{, timeout => '5 s'}), 'failed timeout 1 1', 'the run');  # the sleep is the work
	is(last_error(), "57014 timeout of 5000 ms has passed\nDETAIL: 1 of its statements was done, the one in flight was cancelled.\nHINT: Raise timeout, or see what the statement waits for.", 'it says so');
	sql('CREATE TABLE app.large AS SELECT i FROM generate_series(1, 10) AS i; ALTER TABLE app.large OWNER TO app');
	my $locker = session($node);
	$locker->query_safe('BEGIN; LOCK TABLE app.large');
	is(run_sql('late vacuum', 'VACUUM large', settings => q{, timeout => '500 ms'}), 'failed timeout 0 0', 'VACUUM that waits for a lock');
	$locker->query_safe('COMMIT');
	$locker->quit;
};

subtest 'statement_timeout and lock_timeout of the text' => sub {
	is(run_sql('statement_timeout', q{SET statement_timeout = '3s'; SELECT pg_sleep(2); SELECT pg_sleep(2); SELECT pg_sleep(1000)}), 'failed error 3 2',  # the sleep is the work
		'it is the time of one statement');
	like(last_error(), qr/^57014 canceling statement due to statement timeout\nCONTEXT: statement 4 /, 'it says so');
	is(run_sql('local', q{BEGIN; SET LOCAL statement_timeout = '100ms'; SELECT pg_sleep(1000); COMMIT}), 'failed error 0 0', 'SET LOCAL');  # the sleep is the work
	create_job('of the role', 'SELECT pg_sleep(1000)');  # the sleep is the work
	sql(q{ALTER ROLE app SET statement_timeout = '300ms'});
	is(ended_run($node, start('of the role')), 'failed error 0 0', 'that of the role');
	sql('ALTER ROLE app RESET ALL');
	my $locker = session($node);
	$locker->query_safe('BEGIN; LOCK TABLE app.large');
	is(run_sql('lock_timeout', q{SET lock_timeout = '100ms'; SELECT * FROM large}), 'failed error 1 0', 'lock_timeout');
	like(last_error(), qr/^55P03 canceling statement due to lock timeout/, 'it says so');
	$locker->query_safe('COMMIT');
	$locker->quit;
};

# ---------------------------------------------------------------- what it leaves behind
# From PostgreSQL 19 on it is always on.
my $conforming = sql('SHOW server_version_num') < 190000 ? 'off' : 'on';
my $left = qq{
	SET search_path = app, pg_catalog;
	SET default_transaction_read_only = on; SET default_transaction_isolation = serializable; SET default_transaction_deferrable = on;
	SET synchronous_commit = off; SET datestyle = 'German, DMY'; SET intervalstyle = 'sql_standard'; SET transform_null_equals = on;
	SET array_nulls = off; SET row_security = off; SET check_function_bodies = off; SET application_name = 'somebody';
	SET enable_indexscan = off; SET standard_conforming_strings = $conforming; SET lock_timeout = 1;
	BEGIN READ ONLY; DECLARE held CURSOR WITH HOLD FOR SELECT 1; COMMIT;
	SET ROLE another; SET statement_timeout = '1s'};

subtest 'settings, a role and a cursor' => sub {
	is(run_sql('left', $left), 'succeeded done 20 0', 'they do not reach what is recorded');
	is(run_sql('left and failed', "$left; SELECT pg_sleep(10)"), 'failed error 20 0', 'nor when it fails');  # the sleep is the work
	like(last_error(), qr/^57014 canceling statement due to statement timeout/, 'with its error');
	is(run_sql('left by a superuser', "SET session_replication_role = replica; SET plpgsql.variable_conflict = 'use_column'; SET plpgsql.extra_errors = 'all'; $left", user => 'postgres'),
		'succeeded done 23 0', 'nor what only a superuser may set');
	my $gate = hold_gate($node, 52);
	create_job('left and cancelled', "$left; SET statement_timeout = 0; SET lock_timeout = 0; SELECT pg_advisory_xact_lock(52)");
	my $run = start('left and cancelled');
	at_gate($node, 52, 'in the middle of it');
	sql("SELECT sweep.cancel($run)");
	is(ended_run($node, $run), 'cancelled cancelled 22 0', 'nor when it is cancelled');
	# With that setting the first try to record the end, which fails here, would end the process.
	create_job('left to wait', 'SELECT pg_advisory_xact_lock(52); SET exit_on_error = on');
	$run = start('left to wait');
	at_gate($node, 52, 'in the middle of it');
	my $altering = session($node);
	$altering->query('BEGIN; ALTER EXTENSION pg_sweep UPDATE');
	open_gate($gate);
	soon($node, "SELECT phase FROM sweep.running WHERE run_id = $run", 'ending', 'what is recorded waits for the extension');
	$altering->query('COMMIT');
	$altering->quit;
	is(ended_run($node, $run), 'succeeded done 2 1', 'for as long as that takes');
};

subtest 'SET ROLE and SET SESSION AUTHORIZATION' => sub {
	is(run_sql('roles', 'SET ROLE another; INSERT INTO app.seen VALUES (1); RESET ROLE; INSERT INTO app.seen VALUES (2); SET ROLE another'), 'succeeded done 5 2', 'the run');
	is(sql(q{SELECT string_agg(who, ',' ORDER BY n) FROM app.seen}), 'another,app', 'it is who it says it is');
	is(run_sql('session', 'SET SESSION AUTHORIZATION app; INSERT INTO app.seen VALUES (1)', user => 'postgres'), 'succeeded done 2 1', 'of a superuser');
	is(sql('SELECT who FROM app.seen'), 'app', 'the same');
	is(run_sql('not allowed', 'SET SESSION AUTHORIZATION postgres'), 'failed error 0 0', 'a role that it could not become');
	like(last_error(), qr/^42501 permission denied to set session authorization/, 'is refused');
};

subtest 'its lock' => sub {
	sql('CREATE PROCEDURE app.careless() LANGUAGE plpgsql AS $$ BEGIN ROLLBACK; PERFORM pg_advisory_unlock_all(); COMMIT; PERFORM pg_advisory_unlock_all(); END $$');
	for my $text ('SELECT pg_advisory_unlock_all()', 'DISCARD ALL', 'CALL app.careless()', 'SELECT sweep.try_lock($$DISCARD$$); DISCARD ALL')
	{
		my $gate = hold_gate($node, 55);

		create_job('careless', "$text; INSERT INTO app.seen VALUES (1); SELECT pg_advisory_xact_lock(55)");
		my $run = start('careless');
		at_gate($node, 55, "after $text");
		is(sql(qq{SELECT sweep.try_lock('careless'), sweep._run_is_alive($run), sweep.try_lock('DISCARD')}), 'f|t|t', 'the run has its lock, and no other');
		open_gate($gate);
		like(ended_run($node, $run), qr/^succeeded done/, 'and goes on');
		sql(q{SELECT sweep.drop_job('careless')});
	}
	is(run_sql('own locks', 'SELECT pg_advisory_lock(77); SELECT pg_advisory_lock(77)'), 'succeeded done 2 2', 'locks of its own are');
	soon($node, 'SELECT count(*) FROM pg_locks WHERE objid = 77', 0, 'gone with its process');
};

# ---------------------------------------------------------------- without its process
subtest 'terminated, crashed' => sub {
	my $gate = hold_gate($node, 53);

	create_job('lost', 'INSERT INTO seen VALUES (1) ON CONFLICT DO NOTHING; SELECT pg_advisory_xact_lock(53)', settings => ', max_attempts => 2');
	my $run = start('lost');
	at_gate($node, 53, 'a statement is in progress');
	sql("SELECT pg_terminate_backend(pid) FROM sweep.runs WHERE run_id = $run");
	is(ended_run($node, $run), 'lost lost 0 0', 'pg_terminate_backend: lost');
	like(sql("SELECT error FROM sweep.runs WHERE run_id = $run"), qr/^process \d+ has ended .*\nHINT: All of its statements may have been executed;/, 'it says so of its statements');
	is(seen(), '1', 'what it has done stays');
	is(sql(q{SELECT attempt, trigger FROM sweep.runs WHERE job = 'lost' AND status = 'waiting'}), '2|retry', 'it is tried again');
	sql('SELECT sweep.drop_job($$lost$$)');
	create_job('crashed', 'INSERT INTO seen VALUES (1); SELECT pg_advisory_xact_lock(53)');
	$run = start('crashed');
	at_gate($node, 53, 'a statement is in progress');
	flush_wal($node);
	crash_of($node, pid_of($node, 'runner'));
	forget_session($gate);
	is(ended_run($node, $run), 'lost lost 0 0', 'a crash: lost');
	is(seen(), '1', 'what it has committed stays');
};

# ---------------------------------------------------------------- without the extension
subtest 'ALTER and DROP EXTENSION' => sub {
	my $gate = hold_gate($node, 54);

	create_job('altered', 'SELECT pg_advisory_xact_lock(54); INSERT INTO seen VALUES (1)');
	my $run = start('altered');
	at_gate($node, 54, 'ALTER: a statement is in progress');
	sql(q{SET statement_timeout = '20 s'; ALTER EXTENSION pg_sweep UPDATE});
	open_gate($gate);
	is(ended_run($node, $run), 'succeeded done 2 2', 'ALTER waits for nobody, and the run goes on');

	$gate = hold_gate($node, 54);
	sql('TRUNCATE app.seen');
	$run = start('altered');
	at_gate($node, 54, 'DROP: a statement is in progress');
	sql(q{SET statement_timeout = '20 s'; DROP EXTENSION pg_sweep CASCADE});
	open_gate($gate);
	soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('pg_sweep runner', 'pg_sweep scheduler')}, 0, 'DROP waits for nobody, and the runner ends');
	is(seen(), 'nothing', 'before the next statement');
};

$node->stop;
done_testing();
