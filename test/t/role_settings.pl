# room: base
# Settings of a role, its database and its jobs hold in background runs; those that would end or stop a process do not: what fails is
# recorded as failed, and nothing is lost.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('role_settings', conf => [ 'pg_sweep.max_share_per_role = 1' ]);

sub as_jobber
{
	return $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'jobber' ]);
}

# Status, counters and error of a run that is started now.
sub end_of
{
	my ($job) = @_;
	# in a session that does not have the settings of the role
	my $run_id = $node->safe_psql('postgres', "SET ROLE jobber; SELECT sweep.start('$job')");

	return ended_run($node, $run_id) . ': ' . $node->safe_psql('postgres', "SELECT split_part(coalesce(error, ''), E'\n', 1) FROM sweep.runs WHERE run_id = $run_id");
}

$node->safe_psql('postgres', q{
	CREATE FUNCTION t.fail(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as asked'; END $$;
	CREATE FUNCTION t.catch(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'as asked';
	EXCEPTION WHEN raise_exception THEN
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
		SELECT to_jsonb(n) FROM generate_series(coalesce((b.cursor #>> '{}')::int, 0) + 1, 6) AS n LIMIT b.size $$;
	CREATE FUNCTION t.each(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		IF b.items @> ARRAY['3'::jsonb] THEN
			RAISE EXCEPTION 'not this one';
		END IF;
		RETURN ROW(cardinality(b.items), b.items[cardinality(b.items)], NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.long(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		SELECT pg_sleep(600); -- the sleep is the work
		SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
	CREATE TABLE t.handled (payload jsonb);
	GRANT INSERT ON t.handled TO jobber;
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF m.payload = '2' THEN
			RAISE EXCEPTION 'not this one';
		END IF;
		INSERT INTO t.handled VALUES (m.payload);
	END $$;
});
as_jobber(q{
	SELECT sweep.create_job('fail', step => 't.fail', max_attempts => 2), sweep.create_job('catch', step => 't.catch'), sweep.create_job('long', step => 't.long'),
		sweep.create_job('items', pick => 't.pick', step => 't.each');
});

# ---------------------------------------------------------------- a run has what its role has after a login, then what its job says
$node->safe_psql('postgres', q{
	CREATE SCHEMA app;
	CREATE TABLE app.todo (id int PRIMARY KEY, done boolean);
	CREATE TABLE app.log (id int);
	-- the names in it are looked up in the path of whoever fires it
	CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (new.id); RETURN NULL; END $$;
	CREATE TRIGGER note AFTER UPDATE ON app.todo FOR EACH ROW EXECUTE FUNCTION app.note();
	INSERT INTO app.todo SELECT generate_series(1, 30);
	GRANT USAGE ON SCHEMA app TO jobber;
	GRANT ALL ON ALL TABLES IN SCHEMA app TO jobber;
	CREATE FUNCTION t.tell(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb,
		jsonb_build_object('path', current_setting('search_path'), 'work_mem', current_setting('work_mem'), 'commit', current_setting('synchronous_commit'), 'statement', current_setting('statement_timeout'),
			'library', current_setting('auto_explain.log_level', true), 'own', coalesce(nullif(current_setting('app.own', true), ''), 'none'), 'jit', current_setting('jit')) $$;
});
as_jobber(q{SELECT sweep.create_job('tell', step => 't.tell')});

sub told
{
	my ($job, @names) = @_;
	my $run = as_jobber("SELECT sweep.start('$job')");

	ended_run($node, $run);
	return $node->safe_psql('postgres', "SELECT concat_ws(' ', " . join(', ', map { "detail ->> '$_'" } @names) . ") FROM sweep.runs WHERE run_id = $run");
}

is(told('tell', 'path', 'work_mem', 'jit'), '"$user", public 4MB off', 'login: as the configuration says');
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET search_path = app, "of database"});
is(told('tell', 'path'), 'app, "of database"', 'login: as the database says');
$node->safe_psql('postgres', q{ALTER ROLE jobber SET search_path = app, "of role"; ALTER ROLE jobber SET work_mem = '5MB'});
is(told('tell', 'path', 'work_mem'), 'app, "of role" 5MB', 'login: as the role says');
$node->safe_psql('postgres', q{ALTER ROLE jobber IN DATABASE postgres SET search_path = app, "of both"});
is(told('tell', 'path', 'work_mem'), 'app, "of both" 5MB', 'login: as the role says for the database');

# A login loads the libraries that its role or database has; a login that cannot does not come about, and neither does a run.
$node->safe_psql('postgres', q{ALTER ROLE jobber SET session_preload_libraries = auto_explain});
is(told('tell', 'library'), 'log', 'login: with the libraries of the role');
$node->safe_psql('postgres', q{ALTER ROLE jobber SET session_preload_libraries = none_of_these});
is(end_of('tell'), 'failed error 0 0: background worker ended before it began the run', 'login: without a library that it must have, no run');
like(slurp_file($node->logfile), qr/ERROR:  could not access file "none_of_these".*\n.*CONTEXT:  database "postgres", role "jobber"/, 'login: the log says whose it is');
$node->safe_psql('postgres', q{ALTER ROLE jobber RESET session_preload_libraries});
is(told('tell', 'library'), '', 'login: without libraries');
as_jobber(q{SELECT sweep.create_job('names', batch_size => 10, batch_sql => 'UPDATE todo SET done = true WHERE id IN (SELECT id FROM todo WHERE done IS NULL LIMIT $1)')});
is(end_of('names'), 'succeeded drained 4 30: ', 'login: names in a batch_sql, and in a trigger, are found in it');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.log'), 30, 'login: the trigger has done its work');
as_jobber(q{SELECT sweep.create_job('settings', step => 't.tell', settings => '{"search_path": "t", "work_mem": "6MB", "statement_timeout": "7s", "synchronous_commit": "local", "app.own": "mine", "jit": true}')});
is(told('settings', 'path', 'work_mem', 'statement', 'own', 'jit', 'commit'), 't 6MB 7s mine on off', 'settings of a job: on top of those');
as_jobber(q{SELECT sweep.alter_job('settings', '{"flush": "batch"}')});
is(told('settings', 'commit'), 'local', 'settings of a job: synchronous_commit is that of the commits that wait');

# One process may perform several runs: none has what is another's.
as_jobber(q{SELECT count(*) FROM (SELECT sweep.start(CASE WHEN n % 2 = 0 THEN 'settings' ELSE 'tell' END) FROM generate_series(1, 60) AS n) AS s});
soon($node, q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL}, 0, 'one after the other: all have ended');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT concat_ws(' ', job, detail ->> 'work_mem', detail ->> 'own', detail ->> 'statement'), ', ' ORDER BY concat_ws(' ', job, detail ->> 'work_mem', detail ->> 'own', detail ->> 'statement'))
	FROM (SELECT * FROM sweep.runs WHERE job IN ('tell', 'settings') ORDER BY run_id DESC LIMIT 60) AS r}), 'settings 6MB mine 7s, tell 5MB none 0', 'one after the other: each with its own settings');

# Those of a job with sql as well; what a statement sets comes on top.
as_jobber(q{SELECT sweep.create_job('script', NULL, $$INSERT INTO said SELECT concat_ws(' ', current_setting('search_path'), current_setting('work_mem'), current_setting('synchronous_commit'));
	SET work_mem = '9MB'; INSERT INTO said SELECT current_setting('work_mem')$$, settings => '{"search_path": "t", "work_mem": "6MB", "synchronous_commit": "local", "statement_timeout": "10min"}')});
$node->safe_psql('postgres', 'CREATE TABLE t.said (what text); GRANT ALL ON t.said TO jobber');
is(end_of('script'), 'succeeded done 3 2: ', 'settings of a job with sql: it runs');
is($node->safe_psql('postgres', q{SELECT string_agg(what, ', ' ORDER BY what DESC) FROM t.said}), 't 6MB local, 9MB', 'settings of a job with sql: with these');

# statement_timeout and lock_timeout of a job hold for each batch, and make it smaller.
as_jobber(q{SELECT sweep.create_job('slow', step => 't.long', settings => '{"statement_timeout": "100ms"}', batch_size => 4)});
is(end_of('slow'), 'failed error 0 0: canceling statement due to statement timeout', 'statement_timeout of a job: ends a batch');

# What has become wrong since fails the run, and says so.
$node->safe_psql('postgres', q{GRANT SET ON PARAMETER log_min_duration_statement TO jobber});
as_jobber(q{SELECT sweep.alter_job('settings', '{"settings": {"log_min_duration_statement": "1h"}}')});
like(end_of('settings'), qr/^succeeded drained /, 'a setting that was granted: is set');
$node->safe_psql('postgres', q{REVOKE SET ON PARAMETER log_min_duration_statement FROM jobber});
is(end_of('settings'), 'failed error 0 0: permission denied to set parameter "log_min_duration_statement"', 'a setting that is granted no longer: the run fails');
is($node->safe_psql('postgres', q{SELECT state FROM sweep.jobs WHERE name = 'settings'}), 'broken: permission denied to set parameter "log_min_duration_statement"', 'a setting that is granted no longer: the job is broken');
$node->safe_psql('postgres', q{ALTER ROLE jobber RESET ALL; ALTER ROLE jobber IN DATABASE postgres RESET ALL; ALTER DATABASE postgres RESET ALL});

# ---------------------------------------------------------------- exit_on_error: an error ends the batch and not the process
$node->safe_psql('postgres', 'ALTER ROLE jobber SET exit_on_error = on');
is(end_of('fail'), 'failed error 0 0: as asked', 'exit_on_error: a run that fails says so');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'fail' AND trigger = 'retry'}), 1, 'exit_on_error: and is tried again');
$node->safe_psql('postgres', q{SELECT sweep.cancel(run_id) FROM sweep.runs WHERE job = 'fail' AND trigger = 'retry'});
is(end_of('catch'), 'succeeded drained 1 0: ', 'exit_on_error: a step can catch an error');
is(end_of('items'), 'succeeded drained 2 5: ', 'exit_on_error: an item that fails is found');
is($node->safe_psql('postgres', q{SELECT item FROM sweep.quarantine}), 3, 'exit_on_error: and put into quarantine');
as_jobber(q{SELECT sweep.create_queue('work', max_attempts => 1); SELECT sweep.create_consumer('work', 't.handle', batch => 3); SELECT sweep.send_many('work', '{1,2,3}')});
soon($node, q{SELECT string_agg(error ->> 'message', ' ') FROM sweep.queue_dead}, 'not this one', 'exit_on_error: one message fails');
soon($node, q{SELECT string_agg(payload::text, ' ' ORDER BY payload) FROM t.handled}, '1 3', 'exit_on_error: the others are handled');
as_jobber(q{SELECT sweep.drop_consumer('work'); SELECT sweep.drop_queue('work')});
my ($status, $output, $error) = $node->psql('postgres', q{CALL sweep.run('fail')}, extra_params => [ '-U', 'jobber' ]);
like($error, qr/as asked/, 'exit_on_error: CALL raises the error');
is($node->safe_psql('postgres', q{SELECT status, error LIKE 'as asked%' FROM sweep.runs WHERE job = 'fail' AND trigger = 'manual' ORDER BY run_id DESC LIMIT 1}), 'failed|t',
	'exit_on_error: after it is recorded');
$node->safe_psql('postgres', 'ALTER ROLE jobber RESET exit_on_error');

# ---------------------------------------------------------------- deferrable: a run does not wait for serializable transactions that write
my $writer = session($node);
$writer->query_safe(q{BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO t.handled VALUES ('4')});
$node->safe_psql('postgres', q{
	ALTER ROLE jobber SET default_transaction_isolation = serializable;
	ALTER ROLE jobber SET default_transaction_read_only = on;
	ALTER ROLE jobber SET default_transaction_deferrable = on;
});
is($node->safe_psql('postgres', q{SET ROLE jobber; SELECT sweep.start('catch')}) =~ /^\d+$/, 1, 'deferrable: a run is started');
soon($node, q{SELECT status || ' ' || stop_reason FROM sweep.runs WHERE job = 'catch' ORDER BY run_id DESC LIMIT 1}, 'succeeded drained', 'deferrable: it ends while the other one is open');
$writer->query_safe('ROLLBACK');
$writer->quit;
$node->safe_psql('postgres', 'ALTER ROLE jobber RESET ALL');

# ---------------------------------------------------------------- transaction_timeout: ends the batch, and the run says so
SKIP:
{
	skip 'transaction_timeout came with PostgreSQL 17', 7 if $node->safe_psql('postgres', 'SHOW server_version_num') < 170000;
	$node->safe_psql('postgres', q{ALTER ROLE jobber SET transaction_timeout = '300ms'});
	is(end_of('long'), 'failed error 0 0: canceling statement due to statement timeout', 'transaction_timeout: a long batch fails');
	$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = '200ms'; ALTER ROLE jobber SET transaction_timeout = '1h'});
	is(end_of('long'), 'failed error 0 0: canceling statement due to statement timeout', 'transaction_timeout: the shorter one holds');
	$node->safe_psql('postgres', 'ALTER ROLE jobber RESET ALL');

	# A session that rests between two transactions of a CALL is in the next one already.
	$node->safe_psql('postgres', q{
		TRUNCATE t.todo;
		INSERT INTO t.todo SELECT generate_series(1, 4);
		SELECT sweep.create_queue('rest'), sweep.create_job('rest', step => 't.work', batch_size => 2, pause => '1 s');
	});
	my $queued = $node->safe_psql('postgres', q{SELECT sweep.start('rest', delay => '1 day')});
	for my $call (q{sweep.wait_for_message('rest', '1 s')}, "sweep.wait($queued, '1 s')", q{sweep.run('rest')})
	{
		my ($status, $output) = $node->psql('postgres', "SET transaction_timeout = '500ms'; CALL $call; SELECT 'goes on'", on_error_stop => 0);

		like($output, qr/goes on/, "transaction_timeout: a session that rests in CALL $call");
	}

	# A process that performs several runs reads the configuration between two of them.
	$node->safe_psql('postgres', q{
		ALTER ROLE CURRENT_USER SET transaction_timeout = 0;
		CREATE FUNCTION t.nap(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
			SELECT pg_sleep(0.6); -- the sleep is the work
			SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
	});
	$node->append_conf('postgresql.conf', 'pg_sweep.max_running_jobs = 1');
	$node->reload;
	as_jobber(q{SELECT sweep.create_job('nap' || i, step => 't.nap') FROM generate_series(1, 20) AS i; SELECT sweep.start('nap' || i) FROM generate_series(1, 20) AS i});
	soon($node, q{SELECT count(*) >= 2 FROM sweep.runs WHERE job LIKE 'nap%' AND status = 'succeeded'}, 't', 'transaction_timeout: runs are performed by one process');
	$node->append_conf('postgresql.conf', q{transaction_timeout = '300ms'});
	$node->reload;
	soon($node, q{SELECT string_agg(DISTINCT status, ' ' ORDER BY status) FROM sweep.runs WHERE job LIKE 'nap%'}, 'failed succeeded', 'transaction_timeout: set meanwhile, it ends batches and no process');
}

$node->stop;
done_testing();
