# room: api
# ALTER DEFAULT PRIVILEGES gives away what is created. Nothing of ours: not when an extension is created, and not when it is
# updated. Grants that came otherwise, with a dump for one, are noticed.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $top = "$FindBin::RealBin/../..";
my $node = new_cluster('default_privileges', bare => 1);

# The output of psql for a file, as pg_regress runs it.
sub output_of
{
	my ($database, $file, @options) = @_;
	my $output = '';

	IPC::Run::run([ 'psql', '-Xq', @options, '-d', $node->connstr($database), '-f', $file ], '>', \$output, '2>&1');
	return $output;
}

# What each object of an extension may be used for by whom, now and as pg_dump takes it to be given by the extension.
sub privileges
{
	my ($database, $extension) = @_;
	my $may = join '', map { "$_\n" } grep { /\bmay\b/ } split /\n/, output_of($database, "$top/test/upgrade/catalogue.sql", '-At', '-v', "extension=$extension");
	my $initial = $node->safe_psql($database, qq{
		SELECT pg_describe_object(i.classoid, i.objoid, i.objsubid), array_agg(a ORDER BY a) FROM pg_init_privs i
			JOIN pg_depend d ON d.classid = i.classoid AND d.objid = i.objoid AND d.deptype = 'e'
			JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = '$extension',
			-- to have them taken away leaves a table the privileges of its owner, which it has without any
			LATERAL (SELECT a::text FROM unnest(i.initprivs) AS a WHERE a::text NOT LIKE 'postgres=%/postgres') AS x (a) GROUP BY 1 ORDER BY 1});

	$may =~ s/may \{("?postgres=[^,}]*)\}/may /g;
	return "$may$initial";
}

my $leak = join '', map { "ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO app WITH GRANT OPTION; ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO PUBLIC, sweep_user;" }
  qw(TABLES SEQUENCES FUNCTIONS TYPES SCHEMAS);

$node->safe_psql('postgres', "CREATE DATABASE $_") for qw(clean leaky);
$node->safe_psql('clean', 'CREATE EXTENSION pg_sweep_gitlab CASCADE');
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE grafana; CREATE ROLE writer');
$node->safe_psql('leaky', $leak);

# ---------------------------------------------------------------- CREATE EXTENSION
$node->safe_psql('leaky', 'CREATE EXTENSION pg_sweep');
$node->safe_psql('leaky', "ALTER DEFAULT PRIVILEGES IN SCHEMA sweep GRANT ALL ON $_ TO grafana") for qw(TABLES SEQUENCES FUNCTIONS TYPES);
$node->safe_psql('leaky', 'CREATE EXTENSION pg_sweep_gitlab');
for my $extension (qw(pg_sweep pg_sweep_gitlab))
{
	my $privileges = privileges('leaky', $extension);

	is($privileges, privileges('clean', $extension), "$extension: the same privileges as without default privileges");
	unlike($privileges, qr/\bapp=/, "$extension: none of them is those of the database");
	is($node->safe_psql('leaky', "SELECT count(*) FROM sweep._foreign_grants('$extension')"), 0, "$extension: and it says so");
}
my $sanity = output_of('leaky', "$top/sql/sanity.sql", '-a');
$sanity =~ s/^psql:[^:\n]*:\d+: //mg;
is($sanity, slurp_file("$top/expected/sanity.out"), 'what sql/sanity.sql asks holds there, too');

# ---------------------------------------------------------------- a dump
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, 'leaky' ], 'pg_dump');
is(join("\n", grep { /^(GRANT|REVOKE)/ && !/DEFAULT/ } split /\n/, slurp_file($dump)), '', 'a dump grants nothing of ours');

# ---------------------------------------------------------------- grants that came with a dump
$node->safe_psql('leaky', q{
	GRANT USAGE ON SCHEMA sweep TO app;
	GRANT ALL ON sweep.run_live, sweep.job_state TO app WITH GRANT OPTION;
	SET ROLE app; GRANT INSERT ON sweep.run_live TO writer; RESET ROLE;
	GRANT UPDATE (name) ON sweep.job TO writer;
	GRANT ALL ON SEQUENCE sweep.run_live_run_id_seq TO PUBLIC;
	GRANT EXECUTE ON FUNCTION sweep._wake() TO PUBLIC;
	GRANT CREATE, USAGE ON SCHEMA sweep TO grafana;
	GRANT SELECT, INSERT ON sweep.jobs TO grafana;
	GRANT EXECUTE ON FUNCTION sweep.cancel(bigint) TO grafana, PUBLIC;
	GRANT USAGE ON TYPE sweep.batch TO grafana;
	GRANT INSERT ON sweep_gitlab.feature_flag TO app;
});
my ($code, $output, $messages) = $node->psql('leaky', 'SELECT sweep.resume_all()');
like($messages, qr/WARNING:  privileges on objects of extension pg_sweep were granted that it does not grant.*WARNING:  privileges on objects of extension pg_sweep_gitlab were/s, 'resume_all says so, which every restored database needs');
my $offset = -s $node->logfile;
$node->restart;
ok($node->wait_for_log(qr/WARNING:  privileges on objects of extension pg_sweep_gitlab were granted/, $offset), 'so does each scheduler that starts');
my $foreign = $node->safe_psql('leaky', q{SELECT line FROM sweep._foreign_grants('pg_sweep') AS line ORDER BY line});
like($foreign, qr/^REVOKE $_ CASCADE$/m, $_)
  for (q{EXECUTE ON ROUTINE sweep\._wake\(\) FROM PUBLIC}, q{EXECUTE ON ROUTINE sweep\.cancel\(bigint\) FROM PUBLIC}, q{CREATE ON SCHEMA sweep FROM grafana},
	q{INSERT ON TABLE sweep\.jobs FROM grafana}, q{INSERT ON TABLE sweep\.run_live FROM writer}, q{UPDATE ON TABLE sweep\.job FROM writer},
	q{SELECT, UPDATE, USAGE ON SEQUENCE sweep\.run_live_run_id_seq FROM PUBLIC}, q{[A-Z, ]*TRUNCATE[A-Z, ]* ON TABLE sweep\.job_state FROM app});
is(scalar(split /\n/, $foreign), 9, 'and no others');
like($messages, qr/HINT:  Look at them with: SELECT sweep\._foreign_grants\('pg_sweep'\)/, 'the hint says what to look at');
$node->safe_psql('leaky', qq{SELECT sweep._revoke_foreign_grants('$_')}) for qw(pg_sweep pg_sweep_gitlab);
is($node->safe_psql('leaky', qq{SELECT count(*) FROM sweep._foreign_grants('$_')}), 0, "$_: taken back") for qw(pg_sweep pg_sweep_gitlab);
my $given = q{SELECT has_table_privilege('grafana', 'sweep.jobs', 'SELECT'), has_function_privilege('grafana', 'sweep.cancel(bigint)', 'EXECUTE'),
	has_type_privilege('grafana', 'sweep.batch', 'USAGE'), has_schema_privilege('grafana', 'sweep', 'USAGE')};
is($node->safe_psql('leaky', $given), 't|t|t|t', 'what an administrator may want to give stays');
is($node->safe_psql('leaky', q{SELECT has_table_privilege('sweep_user', 'sweep.jobs', 'SELECT'), has_function_privilege('sweep_user', 'sweep.cancel(bigint)', 'EXECUTE')}),
	't|t', 'and what we give');
($code, $output, $messages) = $node->psql('leaky', 'SELECT sweep.resume_all()');
is($messages, '', 'nothing is left to be said');

# ---------------------------------------------------------------- ALTER EXTENSION UPDATE
SKIP:
{
	skip 'test/upgrade/next.sql is not installed', 5
	  unless $node->safe_psql('leaky', q{SELECT count(*) FROM pg_extension_update_paths('pg_sweep') WHERE target = 'next' AND path IS NOT NULL});
	$node->safe_psql('leaky', 'GRANT INSERT ON sweep.job, sweep.jobs TO writer; GRANT SELECT ON sweep.run_live TO grafana');
	$node->safe_psql('leaky', q{ALTER EXTENSION pg_sweep UPDATE TO 'next'});
	is($node->safe_psql('leaky', $given), 't|t|t|t', 'an update takes nothing from an administrator');
	is($node->safe_psql('leaky', q{SELECT has_table_privilege('writer', 'sweep.job', 'INSERT'), has_table_privilege('writer', 'sweep.jobs', 'INSERT'),
		has_table_privilege('grafana', 'sweep.run_live', 'SELECT')}), 'f|f|f', 'but what writes, and reads tables');
	is($node->safe_psql('leaky', q{SELECT sweep._foreign_grants('pg_sweep')}), '', 'nothing of what is new is given away');
	is($node->safe_psql('leaky', q{SELECT has_table_privilege('app', 'sweep.next_table', 'SELECT'), has_function_privilege('app', 'sweep.next_function()', 'EXECUTE'),
		has_type_privilege('app', 'sweep.next_type', 'USAGE'), has_table_privilege('grafana', 'sweep.next_view', 'SELECT'), has_table_privilege('sweep_user', 'sweep.next_view', 'SELECT')}),
		'f|f|f|f|t', 'not by name either');
	is($node->safe_psql('leaky', q{SELECT count(*) FROM pg_init_privs i JOIN pg_depend d ON d.classid = i.classoid AND d.objid = i.objoid AND d.deptype = 'e',
		aclexplode(i.initprivs) AS a WHERE a.grantee IN (0, 'app'::regrole)}), 0, 'nor in what pg_dump leaves out');
}

$node->stop;
done_testing();
