# room: process
# A process between two runs: what it was claimed for is begun by another process when it is terminated, the server is stopped, or
# its role has changed since it logged in. And what happens while the scheduler has listed what may start: a run of the list ends,
# or somebody wants the database for himself.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# A library that stops a scheduler right after it has committed a transaction.
my $library = PostgreSQL::Test::Utils::tempdir . '/hold_scheduler.so';
my $config = $ENV{PG_CONFIG} || 'pg_config';
chomp(my $include = `$config --includedir-server`);
system('cc', '-shared', '-fPIC', '-O1', '-D_GNU_SOURCE', "-I$include", '-o', $library, __FILE__ =~ s{[^/]*$}{hold_scheduler.c}r) == 0
  or die 'hold_scheduler.c does not compile';

my $node = new_cluster('runner_between', preload => "pg_sweep, $library", conf => [ 'pg_sweep.max_running_jobs = 1', 'pg_sweep.max_share_per_role = 1' ]);
my @stopped;

END { kill('CONT', @stopped) }

sub hold_scheduler
{
	my ($database) = @_;

	append_to_file($node->data_dir . "/hold_$database", '');
	return sub { soon($node, "SELECT count(*) FROM pg_stat_file('held_$database', true) AS f WHERE f.size IS NOT NULL", 1, $_[0]) };
}

sub let_go
{
	unlink($node->data_dir . "/hold_$_[0]") == 1 or die 'nothing was held';
}

my $all_ended = 'SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL';
sql(q{
	CREATE ROLE app LOGIN SUPERUSER IN ROLE sweep_user;
	CREATE ROLE leaver LOGIN IN ROLE sweep_user;
	CREATE TABLE t.ran (job text, pid int DEFAULT pg_backend_pid(), work_mem text DEFAULT current_setting('work_mem'), became text);
	GRANT ALL ON t.ran TO PUBLIC;
	CREATE FUNCTION t.tell(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		became text;
	BEGIN
		BEGIN
			SET LOCAL SESSION AUTHORIZATION postgres;
			became := session_user;
			RESET SESSION AUTHORIZATION;
		EXCEPTION WHEN insufficient_privilege THEN
			became := 'nobody else';
		END;
		INSERT INTO t.ran (job, became) VALUES (b.args ->> 'job', became);
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job(r || ' first', step => 't.note', args => '{"gate": 21}', run_as => r::regrole), sweep.create_job(r || ' next', step => 't.tell', args => '{"job": "next"}', run_as => r::regrole),
		sweep.create_job(r || ' last', step => 't.tell', args => '{"job": "last"}', run_as => r::regrole) FROM unnest('{app,leaver}'::text[]) AS r;
});
my $postgres = sql(q{SELECT oid FROM pg_database WHERE datname = 'postgres'});

# Stops a process that has performed a run, and that another one was given to, before it has taken it; returns its pid and the number of that run.
# It waits for 100 ms, so one of several tries will do. Only then: a process that is stopped with a lock stops the test.
sub stop_between
{
	my ($role) = @_;

	for my $try (1 .. 50)
	{
		my $gate = hold_gate($node, 21);
		my $next = sql("SELECT sweep.start('$role first') + 1, sweep.start('$role next'), sweep.start('$role last')") =~ s/\|.*//r;
		at_gate($node, 21);
		my $pid = pid_of($node, 'runner');
		my $held = hold_scheduler($postgres);
		sql('SELECT sweep._wake()');
		$held->('the scheduler is about to start a run');
		my $looks = session($node);
		begin_query($looks, qq{DO \$\$
			BEGIN
				WHILE EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid AND (state <> 'idle' OR wait_event_type IS DISTINCT FROM 'Extension')) LOOP
					PERFORM pg_stat_clear_snapshot();
				END LOOP;
			END \$\$});
		open_gate($gate);
		end_query($looks);
		$looks->quit;
		if (kill('STOP', $pid))
		{
			push @stopped, $pid;
			let_go($postgres);
			# Begun by another process, or claimed for this one.
			$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM sweep.runs r LEFT JOIN sweep.running p USING (run_id) WHERE r.run_id = $next AND (r.status <> 'waiting' OR p.run_id IS NOT NULL)");
			return ($pid, $next)
			  if sql("SELECT count(*) FROM sweep.running WHERE run_id = $next AND pid IS NULL") eq '1' && sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'}) eq '1';
			go_on($pid);
		}
		else
		{
			let_go($postgres);
		}
		$node->poll_query_until('postgres', "SELECT ($all_ended) = 0");
	}
	die 'no process was stopped between two runs';
}

sub go_on
{
	my ($pid) = @_;

	@stopped = grep { $_ != $pid } @stopped;
	kill('CONT', $pid);
}

# ---------------------------------------------------------------- terminated
my ($pid, $next) = stop_between('app');
sql("TRUNCATE t.ran; SELECT pg_terminate_backend($pid)");
go_on($pid);
is(ended_run($node, $next), 'succeeded drained 1 0', 'terminated: the run that it was to begin is begun by another process');
soon($node, $all_ended, 0, 'so is what waits behind it');
is(sql(qq{SELECT string_agg(job, ' ' ORDER BY job), bool_or(pid = $pid) FROM t.ran}), 'last next|f', 'each once');

# Cancelled before it has ended.
($pid, $next) = stop_between('app');
sql("TRUNCATE t.ran; SELECT sweep.cancel($next), pg_terminate_backend($pid)");
go_on($pid);
is(ended_run($node, $next), 'cancelled cancelled 0 0', 'terminated: one that was cancelled meanwhile is cancelled');
soon($node, $all_ended, 0, 'what waits behind it runs');
is(sql(q{SELECT string_agg(job, ' ') FROM t.ran}), 'last', 'and nothing else');

# ---------------------------------------------------------------- its role has changed
($pid, $next) = stop_between('app');
sql(q{TRUNCATE t.ran; ALTER ROLE app NOSUPERUSER; ALTER ROLE app SET work_mem = '9MB'});
go_on($pid);
is(ended_run($node, $next), 'succeeded drained 1 0', 'the role is no superuser any more, and has other settings: the run');
soon($node, $all_ended, 0, 'and the next one');
is(sql(q{SELECT string_agg(concat_ws(' ', job, work_mem, became), ', ' ORDER BY job) FROM t.ran}), 'last 9MB nobody else, next 9MB nobody else', 'are what the role is now');
for my $change (q{ALTER ROLE app RESET work_mem}, q{ALTER DATABASE postgres SET work_mem = '11MB'})
{
	($pid, $next) = stop_between('app');
	sql("TRUNCATE t.ran; $change");
	go_on($pid);
	is(ended_run($node, $next), 'succeeded drained 1 0', $change);
	soon($node, $all_ended, 0, 'and all end');
	is(sql(q{SELECT string_agg(work_mem, ' ') FROM t.ran}), $change =~ /RESET/ ? '4MB 4MB' : '11MB 11MB', "$change: is seen");
}
($pid, $next) = stop_between('app');
sql(q{TRUNCATE t.ran; ALTER ROLE leaver SET work_mem = '9MB'});
go_on($pid);
is(ended_run($node, $next), 'succeeded drained 1 0', 'another role has changed');
soon($node, $all_ended, 0, 'and all end');
is(sql(q{SELECT pid FROM t.ran WHERE job = 'next'}), $pid, 'which makes no difference');

($pid, $next) = stop_between('leaver');
sql('TRUNCATE t.ran; REASSIGN OWNED BY leaver TO app; DROP OWNED BY leaver; DROP ROLE leaver');
go_on($pid);
is(ended_run($node, $next), 'failed error 0 0', 'the role was dropped: the run fails');
is(sql("SELECT error FROM sweep.runs WHERE run_id = $next"), 'role "leaver" does not exist', 'and says why');
soon($node, $all_ended, 0, 'so does what waits behind it');
is(sql('SELECT count(*) FROM t.ran'), 0, 'nothing was done as anybody');

# ---------------------------------------------------------------- the server is stopped
($pid, $next) = stop_between('app');
sql('TRUNCATE t.ran');
$node->command_ok([ 'pg_ctl', '-D', $node->data_dir, '-m', 'fast', '-W', 'stop' ], 'the server is to stop');
go_on($pid);
# It may be done before it is asked once more.
$node->stop('fast', fail_ok => 1);
$node->start;
is(ended_run($node, $next), 'succeeded drained 1 0', 'after that the run is begun');
soon($node, $all_ended, 0, 'and what waits behind it');
is(sql(q{SELECT string_agg(job, ' ' ORDER BY job) FROM t.ran}), 'last next', 'each once');

# ---------------------------------------------------------------- a run ends while the scheduler lists what may start
# Its process cannot log in when they are listed, so it is among them: next to start is a run of the other role, then one of its own.
sql(q{
	CREATE ROLE other LOGIN IN ROLE sweep_user;
	SELECT sweep.create_job('other ' || i, step => 't.tell', run_as => 'other') FROM generate_series(1, 2) AS i;
	ALTER ROLE app SET default_text_search_config = 'pg_catalog.english'});
my $locker = session($node);
keep_scheduler($node);
not_before_the_minute($node);
$locker->query_safe('BEGIN; LOCK TABLE pg_ts_config IN ACCESS EXCLUSIVE MODE');
$next = sql(q{SELECT sweep.start('app next')});
soon($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'pg_ts_config'::regclass AND NOT granted}, 1, 'a process of a run cannot log in');
soon($node, q{SELECT state FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'postgres'}, 'idle', 'the scheduler rests');
my $held = hold_scheduler($postgres);
sql(q{SELECT sweep.start(job) FROM unnest('{app last,other 1,other 2}'::text[]) AS job});
$held->('it has listed what may start');
$locker->query_safe('ROLLBACK');
is(ended_run($node, $next), 'succeeded drained 1 0', 'the run begins, and ends');
let_go($postgres);
soon($node, $all_ended, 0, 'so do the others');
is(sql("SELECT string_agg(job, ', ' ORDER BY started_at, run_id) FROM sweep.runs WHERE run_id > $next AND job <> 'each minute'"), 'other 1, app last, other 2', 'its role has lost no turn');
sql('ALTER ROLE app RESET default_text_search_config');
$locker->quit;

# ---------------------------------------------------------------- a run is about to start when somebody wants the database for himself
sql('CREATE DATABASE going');
prepare_database($node, 'going');
sql(q{
	CREATE FUNCTION t.sleep(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT pg_sleep(600); /* the sleep is the work */ SELECT ROW(0, NULL, NULL)::sweep.progress $$;
	SELECT sweep.create_job('long', step => 't.sleep')}, database => 'going');
my $going = sql(q{SELECT oid FROM pg_database WHERE datname = 'going'});
keep_scheduler($node, 'going');
my $session = session($node);
my $offset = -s $node->logfile;
my $run;

# With a run of this database listed, and not started.
sub want_database
{
	my ($name, $statement) = @_;

	not_before_the_minute($node, $name);
	soon($node, "SELECT state FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = '$name'", 'idle', "$name: its scheduler rests");
	my $held = hold_scheduler($going);
	$run = sql(q{SELECT sweep.start('long')}, database => $name);
	$held->("$name: a run is listed, and not started");
	begin_query($session, $statement);
	soon($node, "SELECT wait_event_type FROM pg_stat_activity WHERE query LIKE '$statement%' AND pid <> pg_backend_pid()", 'Extension', "$statement waits for the scheduler");
	let_go($going);
	is(end_query($session), "\n", 'and gets it');
}

want_database('going', 'ALTER DATABASE going RENAME TO gone');
soon($node, "SELECT status FROM sweep.runs WHERE run_id = $run", 'running', 'the run is started under the new name', 'gone');
sql("SELECT sweep.cancel($run)", database => 'gone');
is(ended_run($node, $run, 'gone'), 'cancelled cancelled 0 0', 'as any other');
want_database('gone', 'DROP DATABASE gone');
# There is room for one at a time: whatever was started is gone.
is(ended_run($node, sql(q{SELECT sweep.start('app next')})), 'succeeded drained 1 0', 'then a run of another one is started');
unlike(slurp_file($node->logfile, $offset), qr/FATAL: .* does not exist/, 'and none was in a database that is not there any more');
$session->quit;

$node->stop;
done_testing();
