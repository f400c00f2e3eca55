# room: api
# The install scripts of released versions are kept in test/upgrade. The one of the current version, once kept, is what is
# built: whoever changes it has to begin a new version. What an older one has created becomes by ALTER EXTENSION UPDATE what
# the current one creates, and what users had in it is still there and works.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $kept = "$FindBin::RealBin/../upgrade";
my $top = "$FindBin::RealBin/../..";
my $node = new_cluster('upgrade');
my @filled = ([ 'fresh', 'a fresh installation' ]);
my $installed = slurp_output('pg_config', '--sharedir') . '/extension';

sub slurp_output
{
	my $output = '';

	IPC::Run::run([@_], '>', \$output) or die "@_";
	chomp $output;
	return $output;
}

# The output of a script of test/upgrade.
sub run_script
{
	my ($script, $database, $extension, $before) = @_;
	my ($output, $error) = ('', '');
	my $ok = IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-v', "extension=$extension", '-d', $node->connstr($database),
			'-c', 'BEGIN', ($before ? ('-c', $before) : ()), '-f', "$kept/$script", '-c', 'COMMIT' ], '>', \$output, '2>', \$error);

	die "$script: $error" unless $ok;
	return $output;
}

sub fill
{
	my ($database) = @_;
	my $error = '';

	IPC::Run::run([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', "$kept/fill.sql" ], '>', \my $output, '2>', \$error)
	  or die "fill.sql: $error";
	# The scheduler moves what has ended to the history.
	soon($node, 'SELECT count(*) FROM sweep.run_live WHERE finished_at IS NOT NULL', 0, "$database: filled", $database);
}

# ---------------------------------------------------------------- what the comparison sees
$node->safe_psql('postgres', "CREATE DATABASE $_") for ('fresh', 'again');
for my $database ('fresh', 'again')
{
	$node->safe_psql($database, 'CREATE EXTENSION pg_sweep');
	fill($database);
}
my $catalogue = run_script('catalogue.sql', 'fresh', 'pg_sweep');
my $data = run_script('data.sql', 'fresh', 'pg_sweep');
cmp_ok(scalar(split /\n/, $catalogue), '>', 1000, 'a catalogue is compared');
is(run_script('catalogue.sql', 'again', 'pg_sweep'), $catalogue, 'two installations are the same');
is(run_script('data.sql', 'again', 'pg_sweep'), $data, 'filled alike they have the same rows');
like($data, qr/^sweep\.$_ /m, "there are rows in $_")
  for qw(job_definition job_state control run_live run_history quarantined_item queue queue_message queue_dead queue_done consumer consumer_crash once_key);
is($node->safe_psql('fresh', q{SELECT string_agg(kind || '.' || key, ', ') FROM (SELECT 'job', j.key FROM sweep.job r, jsonb_each(to_jsonb(r)) AS j GROUP BY j.key HAVING count(DISTINCT j.value) < 2
	UNION ALL SELECT 'queue', j.key FROM sweep.queue r, jsonb_each(to_jsonb(r)) AS j GROUP BY j.key HAVING count(DISTINCT j.value) < 2
	UNION ALL SELECT 'consumer', j.key FROM sweep.consumer r, jsonb_each(to_jsonb(r)) AS j WHERE j.key NOT IN ('system_identifier', 'database', 'all_paused_at')
		GROUP BY j.key HAVING count(DISTINCT j.value) < 2) AS same (kind, key)}), '', 'each setting of a job, a queue and a consumer has another value somewhere');
for my $change ('ALTER FUNCTION sweep.cancel(bigint) COST 7', 'REVOKE EXECUTE ON FUNCTION sweep.cancel(bigint) FROM sweep_operator',
	q{COMMENT ON COLUMN sweep.job_definition.name IS 'another'}, 'ALTER FUNCTION sweep._retry(bigint) SET work_mem = 64', q{ALTER TABLE sweep.job_definition ALTER flush SET DEFAULT 'run'},
	'ALTER TABLE sweep.job_definition DROP CONSTRAINT job_overlap_check', 'ALTER TABLE sweep.job_definition ADD COLUMN more int', 'CREATE INDEX ON sweep.job_definition (schedule)', 'ALTER VIEW sweep.jobs RESET (security_barrier)',
	'ALTER TABLE sweep.job_state RESET (fillfactor)', q{UPDATE pg_extension SET extcondition[1] = 'WHERE false' WHERE extname = 'pg_sweep'},
	'ALTER EXTENSION pg_sweep DROP FUNCTION sweep.cancel(bigint)')
{
	my ($output, $error) = ('', '');

	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-v', 'extension=pg_sweep', '-d', $node->connstr('again'),
			'-c', 'BEGIN', '-c', $change, '-f', "$kept/catalogue.sql", '-c', 'ROLLBACK' ], '>', \$output, '2>', \$error) or die "$change: $error";
	isnt($output, $catalogue, "seen: $change");
}
$node->safe_psql('again', q{SELECT sweep.alter_job('of steps', '{"batch_size": 999}')});
isnt(run_script('data.sql', 'again', 'pg_sweep'), $data, 'seen: a changed row');

# ---------------------------------------------------------------- the same by a dump
$node->safe_psql('postgres', 'CREATE DATABASE restored');
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'fresh' ], 'pg_dump');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'restored', $dump ], 'pg_restore');
my $without_runs = qr/^sweep\.(run_live|run_history|bucket) .*\n/m;
is(run_script('data.sql', 'restored', 'pg_sweep') =~ s/$without_runs//gr, $data =~ s/$without_runs//gr, 'a dump has all rows but those of runs');
push @filled, [ 'restored', 'a restored dump' ];

# ---------------------------------------------------------------- the kept scripts
my $changes = slurp_file("$top/CHANGELOG.md");
for my $control (glob("$installed/pg_sweep*.control"))
{
	my ($extension) = $control =~ m{([^/]+)\.control$};
	my ($current) = slurp_file($control) =~ /^default_version *= *'([^']+)'/m;
	my $script = "$kept/$extension--$current.sql";

	if (-e $script)
	{
		ok(slurp_file($script) eq slurp_file("$installed/$extension--$current.sql"),
			"$extension: its install script is the one that was kept for $current; a change needs a new version and an upgrade script");
	}
	else
	{
		like($changes, qr/^## \Q$current\E \(unreleased\)/m, "$extension: $current is released, and its install script kept (make keep-install-scripts)");
	}
	for my $old (sort map { m{--([^/-]+)\.sql$} ? $1 : () } glob("$kept/$extension--*.sql"))
	{
		next if $old eq $current;
		(my $database = "from_${extension}_$old") =~ s/\W/_/g;
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		$node->safe_psql($database, "CREATE EXTENSION $extension VERSION '$old' CASCADE");
		fill($database);
		my $before = run_script('data.sql', $database, 'pg_sweep');
		$node->safe_psql($database, "ALTER EXTENSION $extension UPDATE");
		is($node->safe_psql($database, "SELECT extversion FROM pg_extension WHERE extname = '$extension'"), $current, "$extension $old: upgraded to $current");
		$node->safe_psql('fresh', "CREATE EXTENSION IF NOT EXISTS $extension CASCADE");
		is(run_script('catalogue.sql', $database, $extension), run_script('catalogue.sql', 'fresh', $extension), "$extension $old: the same objects as a fresh installation");
		is(run_script('data.sql', $database, 'pg_sweep'), $data, "$extension $old: the same rows as a fresh installation");
		cmp_ok(length $before, '>', 0, "$extension $old: there were rows");
		push @filled, [ $database, "$extension $old" ];
	}
}

# ---------------------------------------------------------------- what was there before goes on
works(@$_) for @filled;

sub works
{
	my ($database, $name) = @_;

	$node->safe_psql($database, 'SELECT sweep.resume_all()');
	my $run = $node->safe_psql($database, q{SELECT sweep.start('of sql')});
	$node->safe_psql($database, "CALL sweep.wait($run)");
	is($node->safe_psql($database, 'SELECT count(*) FROM u.row'), 0, "$name: a job does its work");
	is($node->safe_psql($database, q{SELECT count(*) FROM sweep.dead('keyed')}), 1, "$name: a dead message is there");
	is($node->safe_psql($database, q{SELECT sum(sweep.ack(lease)) FROM sweep.claim('keyed', 10)}), 1, "$name: one that waits is handed out");
	is($node->safe_psql($database, q{SELECT count(*) FROM sweep.quarantine WHERE job = 'of items'}), 1, "$name: an item is in quarantine");
	soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'plain'}, 1, "$name: the consumer has handled what is due", $database);
}

$node->stop;
done_testing();
