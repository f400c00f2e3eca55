# room: engine
# A text of a job means in its runs what it meant when it was checked: a literal ends at the same place, whatever settings the
# role, the database, the job or the session has by then, and moments are read as the role of the job reads them.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('literals');

sub as_app { return $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'app' ]); }

$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
});
# With backslashes in literals the first one ends before "OR true", and the condition is always true.
my $condition = q{note <> E'it\\'s' AND note <> 'x\\' AND note <> ' OR true --'};
as_app(qq{
	CREATE TABLE app.event (id int PRIMARY KEY, at timestamptz, note text, copied boolean);
	CREATE INDEX ON app.event (at);
	CREATE TABLE app.copy (LIKE app.event, PRIMARY KEY (id));
	CREATE TABLE app.said (what text);
	CREATE FUNCTION app.fill() RETURNS void LANGUAGE sql AS \$\$
		TRUNCATE app.event, app.copy, app.said;
		INSERT INTO app.event SELECT n, '2026-01-01Z', CASE WHEN n <= 6 THEN ' OR true --' ELSE 'old' END, false FROM generate_series(1, 20) AS n;
	\$\$;
	SELECT sweep.create_retention('app.event', 'at', '1 day', condition => \$\$$condition\$\$, name => 'retention', schedule => NULL),
		sweep.create_backfill('app.event', 'copied = true', \$\$NOT copied AND $condition\$\$, name => 'backfill', paused => true),
		sweep.create_copy('app.event', 'app.copy', condition => \$\$$condition\$\$, name => 'copy', cursor => 'run', paused => true),
		sweep.create_job('batch_sql', batch_sql => \$\$DELETE FROM app.event WHERE id IN (SELECT id FROM app.event WHERE $condition\n LIMIT \$1)\$\$,
			estimate => \$\$SELECT count(*) FROM app.event WHERE $condition\$\$),
		sweep.create_job('sql', NULL, \$\$INSERT INTO app.said VALUES ('a\\'); INSERT INTO app.said VALUES (' b'); --')\$\$);
	SELECT sweep.resume('backfill'), sweep.resume('copy');
});
my %left = (
	retention => 'SELECT count(*) = 6 FROM app.event',
	backfill => 'SELECT count(*) = 6 FROM app.event WHERE NOT copied',
	copy => 'SELECT count(*) = 14 FROM app.copy',
	batch_sql => 'SELECT count(*) = 6 FROM app.event',
	sql => 'SELECT count(*) = 2 FROM app.said');

sub runs_as_checked
{
	my ($way) = @_;

	for my $job (sort keys %left)
	{
		as_app('SELECT app.fill()');
		like(ended_run($node, as_app("SELECT sweep.start('$job')")), qr/^succeeded/, "$way: $job succeeds");
		is($node->safe_psql('postgres', $left{$job}), 't', "$way: $job means the same");
		next if $job eq 'sql';
		as_app('SELECT app.fill()');
		as_app("CALL sweep.run('$job')");
		is($node->safe_psql('postgres', $left{$job}), 't', "$way: $job means the same in a session");
		like(as_app("SELECT app.fill(); SELECT rows FROM sweep.preview('$job')"), qr/^\n?(14|20)$/, "$way: $job is previewed the same");
	}
	is($node->safe_psql('postgres', q{SELECT DISTINCT estimated_rows FROM sweep.runs WHERE job = 'batch_sql' AND estimated_rows IS NOT NULL}), '14', "$way: so does its estimate")
	  if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_attribute WHERE attrelid = 'sweep.runs'::regclass AND attname = 'estimated_rows'});
}

runs_as_checked('as created');
SKIP:
{
	skip('there are no other literals', 1) if $node->safe_psql('postgres', 'SHOW server_version_num') >= 190000;
	for my $set ('ALTER ROLE app SET standard_conforming_strings = off', 'ALTER DATABASE postgres SET standard_conforming_strings = off',
		'ALTER ROLE app SET backslash_quote = off')
	{
		$node->safe_psql('postgres', $set);
		runs_as_checked($set);
		$node->safe_psql('postgres', $set =~ s/SET (\w+) = off/RESET $1/r);
	}
	for my $job (grep { $_ ne 'sql' } keys %left)
	{
		as_app(qq{SELECT sweep.alter_job('$job', '{"settings": {"standard_conforming_strings": "off"}}')});
	}
	runs_as_checked('settings of the job');
}

# ---------------------------------------------------------------- what is read when the text is analysed
my $german = q{at < '13.02.2026'};
my ($status, $output, $message) = $node->psql('postgres', qq{SELECT sweep.create_retention('app.event', 'at', '1 day', condition => \$\$$german\$\$, name => 'german', schedule => NULL)},
	extra_params => [ '-U', 'app' ]);
like($message, qr/date\/time field value out of range/, 'moments: one that the role cannot read is refused');
$node->safe_psql('postgres', q{ALTER ROLE app SET DateStyle = 'German'});
as_app(qq{SET DateStyle = ISO; SELECT sweep.create_retention('app.event', 'at', '1 day', condition => \$\$$german\$\$, name => 'german', schedule => NULL),
	sweep.create_job('german batch', batch_sql => \$\$DELETE FROM app.event WHERE id IN (SELECT id FROM app.event WHERE $german LIMIT \$1)\$\$, estimate => \$\$SELECT count(*) FROM app.event WHERE $german\$\$)});
for my $job ('german', 'german batch')
{
	as_app('SELECT app.fill()');
	is(ended_run($node, as_app("SELECT sweep.start('$job')")), 'succeeded drained 2 20', "moments: $job is checked and executed with the settings of its role");
}
$node->safe_psql('postgres', q{ALTER ROLE app RESET DateStyle});
as_app(qq{SELECT sweep.create_job('german by itself', batch_sql => \$\$DELETE FROM app.event WHERE id IN (SELECT id FROM app.event WHERE $german LIMIT \$1)\$\$, settings => '{"datestyle": "German"}')});
as_app('SELECT app.fill()');
is(ended_run($node, as_app("SELECT sweep.start('german by itself')")), 'succeeded drained 2 20', 'moments: or of the job');

done_testing();
