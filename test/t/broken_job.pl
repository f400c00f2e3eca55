# room: process
# A job that cannot run is broken, with the reason, and heals by itself; the
# others never notice.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('broken_job');

sub state_is
{
	my ($job, $pattern, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, qq{SELECT state ~ '$pattern' FROM sweep.jobs WHERE name = '$job'}, 't', $name);
}

# The healthy job goes on, and only these jobs are broken.
sub others_go_on
{
	my ($name, @broken) = @_;
	my $count = $node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'healthy'});

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, qq{SELECT count(*) >= $count + 2 FROM t.started WHERE job = 'healthy'}, 't', "$name: another job goes on");
	soon($node, q{SELECT string_agg(name, ' ' ORDER BY name) FROM sweep.jobs WHERE state LIKE 'broken%'},
		join(' ', @broken), "$name: no other job is broken");
}

sub runs_again
{
	my ($job, $name) = @_;
	my $last = $node->safe_psql('postgres', qq{SELECT coalesce(max(run_id), 0) FROM sweep.runs WHERE job = '$job'});

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, qq{SELECT count(*) > 0 FROM sweep.runs WHERE job = '$job' AND run_id > $last AND status = 'succeeded'}, 't', $name);
	state_is($job, '^(idle|running)$', "$name: it is no longer broken");
}

$node->safe_psql('postgres', q{
	SELECT sweep.create_job('healthy', step => 't.note', schedule => '* * * * * *', args => '{"job": "healthy"}');
	CREATE ROLE leaver LOGIN IN ROLE sweep_user;
	CREATE FUNCTION t.fragile(b sweep.batch) RETURNS sweep.progress LANGUAGE sql
		AS 'SELECT (0, NULL, NULL)::sweep.progress';
	CREATE TABLE t.fragile (id int);
	SELECT sweep.create_job('active', step => 't.note', schedule => '* * * * * *', run_as => 'leaver', args => '{"job": "active"}');
	SELECT sweep.create_job('inactive', step => 't.note', schedule => '* * * * * *', run_as => 'leaver', paused => true);
	SELECT sweep.create_job('zone', step => 't.note', schedule => '* * * * * *', timezone => 'Europe/Berlin', args => '{"job": "zone"}');
	SELECT sweep.create_job('function', step => 't.fragile', schedule => '* * * * * *');
	SELECT sweep.create_job('table', batch_sql => 'DELETE FROM t.fragile WHERE $1 > 0', schedule => '* * * * * *');
});
runs_again($_, "$_ runs at first") for ('active', 'zone', 'function', 'table');
my $scheduler = pid_of($node, 'scheduler');

# ---------------------------------------------------------------- the owner is dropped
$node->safe_psql('postgres', 'DROP ROLE leaver');
state_is($_, '^broken: role "leaver" does not exist$', "owner dropped: $_ job is broken") for ('active', 'inactive');
others_go_on('owner dropped', 'active', 'inactive');
$node->safe_psql('postgres', q{CREATE ROLE leaver LOGIN IN ROLE sweep_user});
runs_again('active', 'owner created again');
state_is('inactive', '^paused$', 'owner created again: the inactive job is only paused');

# ---------------------------------------------------------------- the owner may not log in any more
my $version = $node->safe_psql('postgres', q{SHOW server_version_num});
SKIP:
{
	skip 'a worker may connect as a role without LOGIN', 5 if $version >= 170000;
	$node->safe_psql('postgres', 'ALTER ROLE leaver NOLOGIN');
	state_is('active', '^broken: role "leaver" is not permitted to log in$', 'owner without login: the job is broken');
	others_go_on('owner without login', 'active', 'inactive');
	$node->safe_psql('postgres', 'ALTER ROLE leaver LOGIN');
	runs_again('active', 'owner with login');
}

# ---------------------------------------------------------------- unknown zone, for instance after an update of the zone data
$node->safe_psql('postgres', q{UPDATE sweep.job_definition SET timezone = 'Mars/Olympus' WHERE name = 'zone'});
state_is('zone', '^broken: .*Mars/Olympus', 'unknown zone: the job is broken');
others_go_on('unknown zone', 'zone');
$node->safe_psql('postgres', q{UPDATE sweep.job_definition SET timezone = 'Europe/Berlin' WHERE name = 'zone'});
# It is looked at again within a minute; here at once.
$node->safe_psql('postgres', q{UPDATE sweep.job_state SET next_start = now() WHERE job = 'zone'; SELECT sweep._wake()});
runs_again('zone', 'known zone');

# ---------------------------------------------------------------- the step is dropped
my $offset = -s $node->logfile;
$node->safe_psql('postgres', 'DROP FUNCTION t.fragile(sweep.batch)');
state_is('function', '^broken: function t.fragile\(sweep.batch\) returning sweep.progress does not exist$', 'step dropped: the job is broken');
others_go_on('step dropped', 'function');
my @lines = slurp_file($node->logfile, $offset) =~ /job "function" is broken/g;
is(scalar(@lines), 1, 'step dropped: one line in the log');
my ($status, $output, $message) = $node->psql('postgres', q{SELECT sweep.start('function')});
like($message, qr/job "function" is broken: function t.fragile/, 'step dropped: start says why not');
$node->safe_psql('postgres', q{CREATE FUNCTION t.fragile(b sweep.batch) RETURNS sweep.progress LANGUAGE sql
	AS 'SELECT (0, NULL, NULL)::sweep.progress'});
runs_again('function', 'step is back');

# ---------------------------------------------------------------- the table is dropped
$node->safe_psql('postgres', 'DROP TABLE t.fragile');
state_is('table', '^broken: relation "t.fragile" does not exist$', 'table dropped: the job is broken');
others_go_on('table dropped', 'table');
is($node->safe_psql('postgres', q{SELECT DISTINCT sqlstate FROM sweep.runs WHERE job = 'table' AND status = 'failed'}),
	'42P01', 'table dropped: its runs say why they failed');
$node->safe_psql('postgres', 'CREATE TABLE t.fragile (id int)');
runs_again('table', 'table is back');

# ---------------------------------------------------------------- a disk is full: an error of the server is no fault of a job
$offset = -s $node->logfile;
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.full_disk() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
	CREATE TRIGGER full_disk BEFORE INSERT ON sweep.run_live FOR EACH ROW EXECUTE FUNCTION t.full_disk();
});
$node->wait_for_log(qr/pg_sweep scheduler could not do its work: could not extend file/, $offset);
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.job_state WHERE broken IS NOT NULL}), '0', 'full disk: no job is broken');
$node->safe_psql('postgres', q{DROP TRIGGER full_disk ON sweep.run_live});
runs_again($_, "full disk: $_ runs when there is room") for ('healthy', 'zone', 'function', 'table');

is(pid_of($node, 'scheduler'), $scheduler, 'one scheduler saw it all');
$node->stop;
done_testing();
