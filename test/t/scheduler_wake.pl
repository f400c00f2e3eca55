# room: process
# What the scheduler and the launcher must not miss: a run that falls due while
# the scheduler works, an extension that is created while it leaves, a scheduler
# that is up while others wait for their start. And what becomes of a run whose
# job is changed or dropped when it is listed and has not begun.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# Less than the minute after which everybody looks anyhow.
my $at_once = 30;

# A library that stops a scheduler right after it has committed a transaction.
my $library = PostgreSQL::Test::Utils::tempdir . '/hold_scheduler.so';
my $config = $ENV{PG_CONFIG} || 'pg_config';
chomp(my $include = `$config --includedir-server`);
system('cc', '-shared', '-fPIC', '-O1', '-D_GNU_SOURCE', "-I$include", '-o', $library, __FILE__ =~ s{[^/]*$}{hold_scheduler.c}r) == 0
  or die 'hold_scheduler.c does not compile';

my $node = new_cluster('scheduler_wake', preload => "pg_sweep, $library");
my $postgres = sql(q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
keep_scheduler($node);

sub soon_enough
{
	local $PostgreSQL::Test::Utils::timeout_default = $at_once;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, @_);
}

# Of the database postgres, before its next tick; of another one, before its first.
sub hold_scheduler
{
	soon($node, "SELECT state FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'postgres'", 'idle', 'the scheduler rests')
	  if $_[0] == $postgres;
	append_to_file($node->data_dir . "/hold_$_[0]", '');
}

sub is_held
{
	soon($node, "SELECT count(*) FROM pg_stat_file('held_$_[0]', true) AS f WHERE f.size IS NOT NULL", 1, $_[1]);
}

sub let_go
{
	unlink($node->data_dir . "/hold_$_[0]") == 1 or die 'nothing was held';
}

# ---------------------------------------------------------------- 37: it falls due between the list and the question when to wake
sql(q{SELECT sweep.create_job('work', step => 't.note')});
hold_scheduler($postgres);
my $run_id = sql(q{SELECT sweep.start('work', delay => '5 s')});
is_held($postgres, '37: the scheduler has listed what may start');
soon($node, "SELECT status, due_at < clock_timestamp() FROM sweep.runs WHERE run_id = $run_id", 'waiting|t', '37: a run falls due that was not in its list');
let_go($postgres);
soon_enough("SELECT status FROM sweep.runs WHERE run_id = $run_id AND finished_at IS NOT NULL", 'succeeded', '37: and is started at once');

# ---------------------------------------------------------------- listed, but not begun
# One that is small is handed over as it was listed; what is large is read by the process of the run.
sql(q{
	CREATE ROLE before LOGIN IN ROLE sweep_user;
	CREATE ROLE after LOGIN IN ROLE sweep_user;
	CREATE TABLE t.ran (job text, who text DEFAULT current_user, pid int DEFAULT pg_backend_pid());
	GRANT ALL ON t.ran TO PUBLIC;
	CREATE FUNCTION t.tell(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
	BEGIN
		INSERT INTO t.ran VALUES (b.args ->> 'job');
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.large(job text) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object('job', job, 'large', string_agg(md5(n::text), '')) FROM generate_series(1, 500) AS n $$;
	SELECT sweep.create_job('small', step => 't.tell', args => '{"job": "small"}', run_as => 'before');
	SELECT sweep.create_job('large', step => 't.tell', args => t.large('large'), run_as => 'before');
});
hold_scheduler($postgres);
sql(q{SELECT sweep.start('small'), sweep.start('large')});
is_held($postgres, 'the scheduler has listed two runs');
sql(q{SELECT sweep.alter_job(name, '{"run_as": "after"}') FROM sweep.jobs WHERE name IN ('small', 'large')});
let_go($postgres);
soon_enough(q{SELECT string_agg(concat_ws(' ', job, status, run_as), ', ' ORDER BY job) FROM sweep.runs WHERE job IN ('small', 'large')},
	'large succeeded after, small succeeded after', 'they run, although their jobs were given to another role');
is(sql(q{SELECT string_agg(concat_ws(' ', job, who), ', ' ORDER BY job) FROM t.ran}), 'large after, small after', 'each once, in a process of that role');

# A process that has performed another run before. It waits for 100 ms, so one of several tries will do.
sql(q{
	ALTER SYSTEM SET pg_sweep.max_running_jobs = 1;
	SELECT pg_reload_conf();
	SELECT sweep.create_job('gated', step => 't.note', args => '{"gate": 5}', run_as => 'before');
	SELECT sweep.create_job('crowd', step => 't.tell', run_as => 'before');
});
soon($node, 'SHOW pg_sweep.max_running_jobs', 1, 'one run at a time');
for my $try (1 .. 3)
{
	my $gate = hold_gate($node, 5);

	sql(q{SELECT sweep.create_job('gone', step => 't.tell', args => t.large('gone'), run_as => 'before'); SELECT sweep.start('gated')});
	at_gate($node, 5);
	sql(q{SELECT sweep.start('gone'), sweep.start('crowd')});
	tick($node);
	hold_scheduler($postgres);
	sql('SELECT sweep._wake()');
	is_held($postgres, 'the scheduler has listed a run that waits for the process');
	sql(q{SELECT sweep.drop_job('gone')});
	$gate->query_safe('SELECT pg_advisory_unlock_all()');
	$gate->query_safe(q{DO $$ BEGIN WHILE EXISTS (SELECT FROM sweep.running) LOOP NULL; END LOOP; END $$});
	let_go($postgres);
	soon_enough(q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL}, 0, 'its job is dropped: the process takes none');
	$gate->quit;
}
is(sql(q{SELECT count(*) FROM t.ran WHERE job = 'gone'}), 0, 'nothing of it is executed');
unlike(slurp_file($node->logfile), qr/terminated by signal/, 'no process has crashed');
sql('ALTER SYSTEM RESET pg_sweep.max_running_jobs');

# ---------------------------------------------------------------- 38: the extension is created while the scheduler leaves that has not found it
hold_scheduler(77777);
sql('CREATE DATABASE other OID = 77777');
sql('SELECT pg_reload_conf()');
is_held(77777, '38: a scheduler has found no extension');
my $leaving = pid_of($node, 'scheduler', 'other');
my $create = q{BEGIN; CREATE EXTENSION pg_sweep; SELECT sweep.create_job('each minute', sql => 'SELECT', schedule => '* * * * *'); COMMIT};
sql($create, database => 'other');
let_go(77777);
soon($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $leaving", 0, '38: it leaves');
soon_enough(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'other'}, 1,
	'38: another one comes, which finds it');

# without an extension it goes, and nobody comes until there is one
sql('DROP EXTENSION pg_sweep', database => 'other');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'other'}, 0, '38: no extension, no scheduler');
sql($create, database => 'other');
soon_enough(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'other'}, 1, '38: one that is created has one');

# ---------------------------------------------------------------- 22: many databases after a restart
my $databases = 11;
sql("CREATE DATABASE d$_") for 3 .. $databases;
sql(q{CREATE EXTENSION pg_sweep; SELECT sweep.create_job('boot', sql => 'SELECT', schedule => '@reboot')}, database => "d$_") for 3 .. $databases;
$node->restart;
soon_enough(q{SELECT count(*) > 0 FROM sweep.runs WHERE status = 'succeeded'}, 't', '22: a database is looked into soon after a restart', "d$_") for 3 .. $databases;

$node->stop;
done_testing();
