# room: api
# Moving a server with pg_cron, 60 entries for three databases, by the commands of doc/from-pg-cron.md and nothing else: no entry is
# lost, none is doubled, and what was not active stays so.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my ($share) = run_command([ 'pg_config', '--sharedir' ]);
plan skip_all => 'pg_cron is not installed (Debian: postgresql-VERSION-cron)' unless -e "$share/extension/pg_cron.control";

my $node = new_cluster('pg_cron_databases', preload => 'pg_cron, pg_sweep', conf => [
		q{cron.database_name = 'postgres'}, 'cron.use_background_workers = on', 'max_worker_processes = 40', 'pg_sweep.max_share_per_role = 1' ]);
my @database = ('postgres', 'app', 'My Shop');
my @command = slurp_file("$FindBin::RealBin/../../doc/from-pg-cron.md") =~ /test\/t\/pg_cron_databases\.pl executes it -->\n```sh\n(.*?)```/gs;
is(scalar @command, 2, 'the page has two commands for other databases');

sub execute
{
	my ($command) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my ($output, $error) = ('', '');

	IPC::Run::run([ 'sh', '-c', $command ], '>', \$output, '2>', \$error);
	return $error;
}

# Each job of each database, with its state.
sub jobs
{
	return { map { my $database = $_; map { my ($name, $state) = split /\|/; ("$database: $name" => $state) }
			  split /\n/, $node->safe_psql($database, 'SELECT name, state FROM sweep.jobs') } @database };
}

sql('CREATE EXTENSION pg_cron; CREATE ROLE shopkeeper LOGIN IN ROLE sweep_user');
sql("CREATE DATABASE \"$_\"") foreach @database[ 1, 2 ];
# 19 of each database, every fourth not active, in each one a name of two owners; one that trims the history, one
# whose schedule means nothing, and one of each minute
foreach my $n (0 .. 56)
{
	my $database = $database[ $n % 3 ];
	my ($name, $role) = $n % 19 < 2 ? ("shared " . $n % 3, $n % 19 ? 'shopkeeper' : 'postgres') : ("entry'$n", 'postgres');

	# in pg_cron a name is unique for its owner
	$name = "entry'$n" if sql("SELECT count(*) FROM cron.job WHERE jobname = \$q\$$name\$q\$ AND username = '$role'");
	sql("INSERT INTO cron.job (jobname, schedule, command, database, username, nodeport, active) VALUES (\$q\$$name\$q\$, '$n 3 * * *', 'SELECT $n', '$database', '$role',
		current_setting('port')::int, " . ($n % 4 ? 'true' : 'false') . ')');
}
sql(q{INSERT INTO cron.job (jobname, schedule, command, database, nodeport) VALUES
	('trim', '@daily', 'DELETE FROM cron.job_run_details', 'postgres', current_setting('port')::int),
	('backwards', '0 22-6 * * *', 'SELECT 1', 'app', current_setting('port')::int),
	('minutely', '* * * * *', 'SELECT 1', 'app', current_setting('port')::int)});
is(sql('SELECT count(*) FROM cron.job'), 60, '60 entries');

# ---------------------------------------------------------------- create
sql('SELECT count(*) FROM sweep.import_pg_cron(false)');
unlike(execute($command[0]), qr/ERROR|FATAL/, 'the jobs of the other databases are created');
my %job = map { my ($job, $database, $active, $note) = split /\|/; ("$database: $job" => [ $active, $note ]) }
  split /\n/, sql('SELECT job, database, active, note FROM sweep.import_pg_cron()');
is(scalar(keys %job), 60, 'each entry has a name of its own in its database');
is_deeply([ sort map { $_->[1] =~ /^(not [a-z]+)/ ? $1 : () } values %job ], [ 'not created', 'not needed' ], 'all but two are moved');
my $there = jobs();
is_deeply([ sort keys %$there ], [ sort grep { $job{$_}[1] !~ /^not / } keys %job ], 'none is lost, and none is doubled');
is(join(' ', grep { $there->{$_} ne 'paused' } keys %$there), '', 'all are paused');
like(execute($command[0]), qr/ERROR:  job ".*" already exists/, 'a second time');
is_deeply(jobs(), $there, 'a second time: nothing is doubled');

# ---------------------------------------------------------------- hand over
$node->safe_psql('My Shop', q{SELECT sweep.drop_job(name) FROM sweep.jobs WHERE name = 'entry''5'});
like(execute($command[1]), qr/database "My Shop": not all jobs are there and paused, nothing was changed/, 'a job is missing: said');
is(sql(q{SELECT count(*) FROM cron.job WHERE active AND database = 'My Shop'}), scalar(grep { /^My Shop/ && $job{$_}[0] eq 't' } keys %job), 'a job is missing: the entries of its database stay');
$node->safe_psql('My Shop', sql(q{SELECT definition FROM sweep.import_pg_cron() WHERE job = 'entry''5'}));
is(execute($command[1]), '', 'handed over');
$there = jobs();
is(sql('SELECT string_agg(jobname, $$ $$ ORDER BY jobname) FROM cron.job WHERE active'), 'backwards trim', 'what is still active in pg_cron was not moved');
is(join(' ', grep { ($there->{$_} eq 'paused') != ($job{$_}[0] eq 'f') } keys %$there), '', 'what was active in pg_cron is, and nothing else');
cmp_ok(scalar(grep { $_ eq 'paused' } values %$there), '>', 10, 'some were not active');
$node->stop;
done_testing();
