# room: api
# sweep.jobs says why a job does not run: servers that are prepared in one way each. That of a standby is in standby.pl,
# that of another version of the library in other_version.pl.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('states', conf => [ 'pg_sweep.max_running_jobs = 2' ]);
$node->safe_psql('postgres', q{SELECT sweep.create_job('tick', step => 't.note', schedule => 'every 2 seconds', args => '{"job": "tick"}');
	SELECT sweep.create_job('hand', step => 't.note'); SELECT sweep.create_job('long', step => 't.work', args => '{"gate": 70, "gate_at": 1}')});

sub state_of
{
	my ($job, $database) = @_;

	return $node->safe_psql($database // 'postgres', "SELECT state FROM sweep.jobs WHERE name = '$job'");
}

sub soon_state
{
	my ($job, $expected, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, "SELECT state FROM sweep.jobs WHERE name = '$job'", $expected, $name);
}

sub configure
{
	$node->append_conf('postgresql.conf', $_) for @_;
	$node->reload;
}

# What create_job, resume, resume_all and start say.
sub all_warn
{
	my ($reason, $hint, $name) = @_;
	my $why = qr/DETAIL:  No scheduler works here: \Q$reason\E\.\nHINT:  $hint/;
	my %says = (
		q{SELECT sweep.create_job('other', step => 't.note', schedule => '@daily')} => qr/WARNING:  job "other" will not be started by its schedule\n$why/,
		q{SELECT sweep.resume('tick')} => qr/WARNING:  job "tick" will not be started by its schedule\n$why/,
		q{SELECT sweep.resume_all()} => qr/WARNING:  jobs of database "postgres" will not be started by their schedules\n$why/,
		q{SELECT sweep.start('hand')} => qr/WARNING:  run \d+ of job "hand" waits\n$why/,
		q{SELECT sweep.resume('hand')} => qr/^$/,
		q{SELECT sweep.drop_job('other')} => qr/^$/);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $call (sort keys %says)
	{
		my ($status, $output, $message) = $node->psql('postgres', $call);
		like($message, $says{$call}, "$name: $call");
	}
}

# ---------------------------------------------------------------- nothing is wrong
soon($node, q{SELECT count(*) > 0 FROM t.started WHERE job = 'tick'}, 't', 'its schedule applies');
soon_state('tick', 'idle', 'idle');
is(sql(q{SELECT since IS NULL FROM sweep.jobs WHERE name = 'hand'}), 't', 'since is empty');
my ($status, $output, $message) = $node->psql('postgres', q{SELECT sweep.resume('tick')});
is($message, '', 'resume says nothing');

# ---------------------------------------------------------------- switches
for my $switch ([ 'pg_sweep.enabled', 'off', 'on' ], [ 'pg_sweep.start_paused', 'on', 'off' ])
{
	my ($setting, $stops, $works) = @$switch;

	configure("$setting = $stops");
	for my $job ('tick', 'hand')
	{
		soon_state($job, "no_scheduler: $setting is $stops", "$setting: $job");
	}
	soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'pg_sweep (scheduler|runner|consumer)'}, 0, "$setting: no process but the launcher");
	all_warn("$setting is $stops", qr/Set $setting to $works and reload the configuration/, $setting);
	soon($node, q{SELECT since < clock_timestamp() FROM sweep.jobs WHERE name = 'hand'}, 't', "$setting: since when a run waits");
	configure("$setting = $works");
	soon_state('hand', 'idle', "$setting: $works again, what was started has run");
}

# ---------------------------------------------------------------- pg_sweep.databases
my $log = -s $node->logfile;
configure("pg_sweep.databases = 'postgers, Other, template1'");
soon_state('tick', 'no_scheduler: the database is not in pg_sweep.databases', 'pg_sweep.databases');
$node->wait_for_log(qr/WARNING:  database "other", which pg_sweep.databases names, does not exist/, $log);
my $said = slurp_file($node->logfile, $log);
my $warnings = () = $said =~ /which pg_sweep.databases names, does not exist/g;
is($warnings, 2, 'pg_sweep.databases: each name that is of no database is in the log');
like($said, qr/WARNING:  database "postgers", which/, 'pg_sweep.databases: as it is written');
configure("pg_sweep.databases = ''");
soon_state('tick', 'idle', 'pg_sweep.databases: empty again');

# A database with a run in progress cannot be copied.
sub pause_all
{
	$node->safe_psql('postgres', q{SELECT sweep.pause_all()});
	soon($node, q{SELECT count(*) FROM sweep.running}, 0, 'no run is in progress');
}

# ---------------------------------------------------------------- a template
pause_all();
$node->safe_psql('template1', 'CREATE DATABASE kind TEMPLATE postgres IS_TEMPLATE true');
$node->safe_psql('kind', 'SELECT sweep.resume_all()');
is(state_of('tick', 'kind'), 'no_scheduler: the database is a template', 'a template');
$node->safe_psql('template1', 'ALTER DATABASE kind IS_TEMPLATE false');
$node->safe_psql('template1', 'DROP DATABASE kind');
$node->safe_psql('postgres', q{SELECT sweep.resume_all()});

# ---------------------------------------------------------------- pauses
$node->safe_psql('postgres', q{SELECT sweep.pause('tick')});
is(state_of('tick'), 'paused', 'paused by name');
$node->safe_psql('postgres', q{SELECT sweep.pause_all()});
is(state_of('hand'), 'paused: by pause_all', 'all are paused');
$node->safe_psql('postgres', q{SELECT sweep.resume_all(), sweep.resume('tick')});
pause_all();
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
is(state_of('tick', 'copy'), 'paused: the database is a copy', 'a copy');
$node->safe_psql('template1', 'DROP DATABASE copy');
$node->safe_psql('postgres', q{SELECT sweep.resume_all()});

# ---------------------------------------------------------------- no free process
sql('INSERT INTO t.todo SELECT generate_series(1, 10)');
my $gate = hold_gate($node, 70);
my $run = start('long');
at_gate($node, 70, 'a run is in progress');
is(sql(q{SELECT state, since = (SELECT started_at FROM sweep.runs WHERE run_id = } . $run . q{) FROM sweep.jobs WHERE name = 'long'}), 'running|t', 'running, since it has its lock');
configure('pg_sweep.max_running_jobs = 1');
my $waits = start('hand');
soon_state('hand', 'waiting_for_slot: pg_sweep.max_running_jobs', 'no free process');
is(sql(qq{SELECT since = due_at FROM sweep.jobs, sweep.runs WHERE name = 'hand' AND run_id = $waits}), 't', 'no free process: since when');
configure('pg_sweep.max_running_jobs = 2');
is(ended_run($node, $waits), 'succeeded drained 1 0', 'it runs when there is one');
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 2 10', 'the other one has ended');

# ---------------------------------------------------------------- a scheduler that stands still
my $scheduler = pid_of($node, 'scheduler');
kill('STOP', $scheduler);
soon_state('tick', 'overdue', 'overdue, for whatever reason');
is(sql(q{SELECT next_run < now() AND since < now() - interval '10 s' FROM sweep.jobs WHERE name = 'tick'}), 't', 'overdue: since when');
kill('CONT', $scheduler);
soon_state('tick', 'idle', 'it goes on');

# ---------------------------------------------------------------- broken
$node->safe_psql('postgres', q{CREATE FUNCTION t.brief(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS 'SELECT ROW(0, NULL, NULL)::sweep.progress';
	SELECT sweep.create_job('brief', step => 't.brief'); DROP FUNCTION t.brief});
like(state_of('brief'), qr/^broken: function t.brief/, 'broken');

# ---------------------------------------------------------------- no launcher: it could not be registered
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
soon_state('tick', 'no_scheduler: the launcher is not running', 'no launcher');
all_warn('the launcher is not running', qr/The postmaster starts it again, if max_worker_processes lets it; the server log/, 'no launcher');

# ---------------------------------------------------------------- a run whose process has gone, where nothing can record that
$node->append_conf('postgresql.conf', 'max_worker_processes = 20');
$node->restart;
sql('DELETE FROM t.todo; INSERT INTO t.todo SELECT generate_series(1, 10)');
$gate = hold_gate($node, 70);
$run = start('long');
at_gate($node, 70, 'again a run is in progress');
$node->append_conf('postgresql.conf', 'pg_sweep.enabled = off');
flush_wal($node);
$node->stop('immediate');
forget_session($gate);
$node->start;
is(sql("SELECT status FROM sweep.runs WHERE run_id = $run"), 'running', 'the run has no outcome yet');
is(state_of('long'), 'no_scheduler: pg_sweep.enabled is off', 'but it is not running');

# ---------------------------------------------------------------- not loaded at server start
$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->restart;
is(state_of('tick'), 'no_scheduler: pg_sweep is not in shared_preload_libraries', 'not preloaded');
is(state_of('hand'), 'no_scheduler: pg_sweep is not in shared_preload_libraries', 'nor does a job by hand start');
$node->stop;
done_testing();
