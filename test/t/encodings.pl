# room: base
# Only ASCII leaves a database: what names of another encoding are in pg_stat_activity would make it unreadable for all.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('encodings');
my %encoding = (latin => 'LATIN1', nothing => 'SQL_ASCII', many => 'UTF8');

# A job and a statement that are named caf\xe9 in LATIN1 and in no encoding; the same letter in UTF8.
for my $database (sort keys %encoding)
{
	my $letter = $database eq 'many' ? q{E'\303\251'} : q{E'\351'};

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
$node->stop;
done_testing();
