# room: base
# Databases with other encodings and other letters. Only ASCII leaves a database: what names of another encoding are in
# pg_stat_activity would make it unreadable for all.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('encodings');
my %encoding = (latin => 'LATIN1', nothing => 'SQL_ASCII', many => 'UTF8', japan => 'EUC_JP');
# A letter of each. That of SQL_ASCII is in WIN866 one, too, and in UTF8 would be a part of one.
my %letter = (latin => q{E'\351'}, nothing => q{E'\217'}, many => q{E'\303\251'}, japan => q{E'\244\342'});

# A job and a statement that are named caf and the letter.
for my $database (sort keys %encoding)
{
	my $letter = $letter{$database};

	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding{$database}' LC_COLLATE 'C' LC_CTYPE 'C'");
	SweepTest::prepare_database($node, $database);
	$node->safe_psql($database, "SET client_encoding = SQL_ASCII;" . qq{
		CREATE FUNCTION t.handle(sweep.message) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock(1, 1)';
		SELECT sweep.create_job('caf' || $letter, step => 't.work', args => '{"gate": 1}');
		SELECT sweep.create_job('caf' || $letter || ' sql', sql => '/* caf' || $letter || ' */ SELECT pg_advisory_xact_lock(1, 1)');
		SELECT sweep.create_queue('cafe');
		SELECT sweep.create_consumer('cafe', 't.handle');
		INSERT INTO t.todo VALUES (1);
	});
}
for my $database (sort keys %encoding)
{
	my $gate = hold_gate($node, 1, $database);

	$node->safe_psql($database, q{SELECT sweep.start(name), sweep.send((SELECT queue FROM sweep.consumers), '{}') FROM sweep.jobs});
	soon($node, qq{SELECT count(*) FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = '$database') AND } . SweepTest::gate_condition(1), 3,
		"$encoding{$database}: two runs and a consumer are at work");
	# \x5e...: no regular expression, which would look at characters that are none.
	is($node->safe_psql('postgres', qq{SELECT count(*), count(*) FILTER (WHERE translate(encode(convert_to(application_name || query, 'SQL_ASCII'), 'escape'), chr(92), '')
				= application_name || query)
			FROM pg_stat_activity WHERE datname = '$database' AND backend_type ~ '^pg_sweep (runner|consumer)'}), '3|3',
		"$encoding{$database}: what they show elsewhere is ASCII");
	is($node->safe_psql('postgres', qq{SELECT string_agg(left(application_name, 13), ',' ORDER BY application_name) FROM pg_stat_activity
			WHERE datname = '$database' AND backend_type ~ '^pg_sweep (runner|consumer)'}), 'pg_sweep: caf,pg_sweep: caf,pg_sweep: caf',
		"$encoding{$database}: and says what they work on");
	open_gate($gate);
	soon($node, q{SELECT count(*) FROM sweep.runs WHERE status = 'succeeded'}, 2, "$encoding{$database}: they do it", $database);
}

# A dump is read into an encoding in which the name of a job has more than 63 bytes.
my $name = q{'x' || repeat(} . $letter{japan} . q{, 31)};
my $dump = PostgreSQL::Test::Utils::tempdir . '/japan.sql';

$node->safe_psql('japan', qq{SET client_encoding = EUC_JP; SELECT sweep.create_job($name, step => 't.note', args => '{"gate": 7}')});
$node->command_ok(['pg_dump', '--file', $dump, 'japan'], 'a database in EUC_JP is dumped');
$node->safe_psql('postgres', q{CREATE DATABASE restored TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'});
$node->command_ok(['psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'restored'], 'and restored in UTF8');
$node->safe_psql('restored', 'SELECT sweep.resume_all()');
is($node->safe_psql('restored', q{SELECT octet_length(name) FROM sweep.jobs WHERE name ~ '^x'}), 94, 'a name has become longer');
my $gate = session($node, database => 'restored');
$gate->query_safe('SELECT pg_advisory_lock(7)');
$node->safe_psql('restored', q{SELECT sweep.start(name) FROM sweep.jobs WHERE name ~ '^x'});
soon($node, q{SELECT count(*), count(*) FILTER (WHERE job = 'x' || repeat(U&'\3082', 20)) FROM sweep.running}, '1|1', 'while it runs, the name is cut between two characters', 'restored');
$gate->quit;
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job ~ '^x' AND status = 'succeeded'}, 1, 'it is done', 'restored');
is($node->safe_psql('restored', q{SELECT sweep.alter_job(name, '{"description": "long"}') FROM sweep.jobs WHERE name ~ '^x'; SELECT description FROM sweep.jobs WHERE name ~ '^x'}),
	"\nlong", 'and can be altered');

# The settings of a database say an encoding to which it cannot convert: a role that has another one can log in, and a scheduler does not depend on it.
$node->safe_psql('postgres', q{ALTER DATABASE latin SET client_encoding = 'EUC_KR'; ALTER ROLE jobber SET client_encoding = 'LATIN1';
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'latin' AND backend_type = 'pg_sweep scheduler'});
my @jobber = (extra_params => [ '-U', 'jobber', '-q' ]);
$node->safe_psql('latin', q{SELECT sweep.create_job('plain', sql => 'SELECT 1')}, @jobber);
my $run = $node->safe_psql('latin', q{SELECT sweep.start('plain')}, @jobber);
$node->safe_psql('latin', "CALL sweep.wait($run, '30 s')", @jobber);
is($node->safe_psql('latin', "SELECT status FROM sweep.runs WHERE run_id = $run", @jobber), 'succeeded', 'the scheduler of a database whose client_encoding it cannot convert to');

# In Turkish the small letter of I is another one than i.
SKIP:
{
	skip 'this server was built without ICU', 2
	  if $node->safe_psql('postgres', q{SELECT NOT EXISTS (SELECT FROM pg_collation WHERE collname = 'tr-x-icu')}) eq 't';
	$node->safe_psql('postgres', q{CREATE DATABASE turkish TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LC_COLLATE 'C' LC_CTYPE 'C'});
	$node->safe_psql('turkish', 'CREATE EXTENSION pg_sweep; CREATE TABLE public.item (id int PRIMARY KEY, day timestamptz)');
	is($node->safe_psql('turkish', q{SELECT sweep.create_job('zone', sql => 'SELECT 1', timezone => 'EUROPE/istanbul'); SELECT timezone FROM sweep.job}),
		"\nEurope/Istanbul", 'Turkish: a time zone in other letters');
	is($node->safe_psql('turkish', q{SELECT sweep.batched('UPDATE public.item SET day = ''2026-01-01 00:00'' WHERE day IS NULL', settings => '{"TIMEZONE": "Asia/Tokyo"}', keep_job => true);
			SELECT settings FROM sweep.job WHERE name ~ '^update'}), qq{1\n{"TIMEZONE": "Asia/Tokyo"}}, 'Turkish: a setting in other letters');
}
$node->stop;
done_testing();
