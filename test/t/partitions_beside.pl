# room: makers
# Partitions are made and dropped while others insert and read, by the simple protocol and by prepared statements, beside a default partition that has
# rows for all of them: no session has an error, and no reader misses a row. Locks that are not to be had, and what fails apart. PARTITION_DAYS=1095
# makes those of three years.
use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $days = $ENV{PARTITION_DAYS} || 200;
my $node = new_cluster('partitions_beside', conf => [ 'max_wal_size = 4GB', 'autovacuum = off', 'max_locks_per_transaction = 512', 'fsync = off' ]);
my $logs = PostgreSQL::Test::Utils::tempdir;
my $as_app = sub { $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'app' ]) };

# A day on both sides: the test may begin before midnight and end behind it.
$node->safe_psql('postgres', qq{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE ROLE writer LOGIN;
	CREATE SCHEMA app AUTHORIZATION app;
	SET ROLE app;
	GRANT USAGE ON SCHEMA app TO writer;
	CREATE TABLE app.event (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, is_old boolean NOT NULL DEFAULT false, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
	CREATE TABLE app.event_default PARTITION OF app.event DEFAULT;
	INSERT INTO app.event (at, is_old) SELECT date_trunc('day', now()) + interval '12 hours' * n, true FROM generate_series(2, 2 * $days - 3) AS n;
	CREATE TABLE app.mail (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, is_old boolean NOT NULL DEFAULT false, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
	CREATE TABLE app.mail_default PARTITION OF app.mail DEFAULT;
	INSERT INTO app.mail (at, is_old) SELECT now(), true FROM generate_series(1, 50000) AS n;
	GRANT SELECT, INSERT ON app.event, app.mail TO writer;
});
my $old = 2 * $days - 4;

# ---------------------------------------------------------------- beside writers and readers
append_to_file("$logs/event.sql", sprintf("\\set day random(1, %d)\nINSERT INTO app.event (at) VALUES (date_trunc('day', now()) + interval '1 day' * :day);\n", $days - 2));
append_to_file("$logs/mail.sql", "INSERT INTO app.mail (at) VALUES (now());\n");
# An error ends the program.
append_to_file("$logs/all.sql", "SELECT 1 / (count(*) = $old)::int FROM app.event WHERE is_old;\nSELECT 1 / (count(*) = 50000)::int FROM app.mail WHERE is_old;\n");
append_to_file("$logs/one.sql", sprintf("\\set day random(1, %d)\nSELECT 1 / (count(*) = 1)::int FROM app.event WHERE at = date_trunc('day', now()) + interval '1 day' * :day AND is_old;\n", $days - 3));
append_to_file("$logs/held.sql", "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 1;\nSELECT 1 / (count(*) = $old)::int FROM app.event WHERE is_old;\nSELECT 1 / (count(*) = 50000)::int FROM app.mail WHERE is_old;\nCOMMIT;\n");

my %load;
foreach my $protocol ('simple', 'prepared')
{
	foreach my $kind ('write', 'read')
	{
		my %l = (out => '', err => '');
		my @scripts = $kind eq 'write' ? ([ 'event', 3 ], [ 'mail', 1 ]) : ([ 'all', 1 ], [ 'one', 60 ], [ 'held', 1 ]);

		$l{run} = IPC::Run::start([ 'pgbench', '-n', '-M', $protocol, '-c', $kind eq 'write' ? 3 : 2, '-j', 1, '-R', $kind eq 'write' ? 120 : 30, '-T', 600,
				(map { ('-f', "$logs/$_->[0].sql\@$_->[1]") } @scripts), '-U', 'writer', '-h', $node->host, '-p', $node->port, 'postgres' ], '>', \$l{out}, '2>', \$l{err});
		$load{"$kind $protocol"} = \%l;
	}
}
soon($node, 'SELECT count(*) > 100 FROM app.event WHERE NOT is_old', 't', 'the writers write');

is($as_app->(qq{SELECT sweep.create_partitions('app.mail', '1 day', ahead => 3, batch_size => 100, schedule => NULL)}), 'partitions_mail', 'a job is created');
my $run = $as_app->(q{SELECT sweep.start('partitions_mail')});
like(ended_run($node, $run), qr/^succeeded drained /, 'its run ends while they go on');
like($node->safe_psql('postgres', "SELECT detail -> 'exchanged' FROM sweep.runs WHERE run_id = $run"), qr/^\["app.mail_[0-9]{8}"\]$/, 'the default partition has become that of its rows');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.mail_default'), 0, 'and an empty one has its name');
$as_app->(qq{SELECT sweep.create_partitions('app.event', '1 day', ahead => $days, pause => NULL, schedule => NULL)});
# Where readers keep it from being locked, a run leaves what is not urgent to the next one.
my ($runs, $left) = (0, '');
do
{
	$run = $as_app->(q{SELECT sweep.start('partitions_event')});
	like(ended_run($node, $run), qr/^succeeded drained /, 'a run that makes partitions of years ends as well');
	note($node->safe_psql('postgres', "SELECT rows, detail - 'made', finished_at - started_at FROM sweep.runs WHERE run_id = $run"));
	$left = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'app.event'::regclass});
} while ($left < $days + 2 && ++$runs < 20);
cmp_ok($left, '>=', $days + 2, 'all of them are made');

my $seen = $node->safe_psql('postgres', 'SELECT count(*) FROM app.event');
soon($node, "SELECT count(*) > $seen FROM app.event", 't', 'the writers still write');
my $written = 0;
foreach my $name (sort keys %load)
{
	my $l = $load{$name};

	$l->{run}->signal('INT');
	$l->{run}->finish;
	$l->{err} =~ s/^pgbench: warning: .*\n//mg;
	unlike("$l->{out}$l->{err}", qr/error|abort|fatal/i, "$name: nobody had an error");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.event_default'), 0, 'no row is left in the default partition');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT id) = count(*), count(*) FILTER (WHERE is_old) FROM app.event'), "t|$old", 'each row is there once');

# ---------------------------------------------------------------- a table that cannot be locked
$as_app->(q{
	CREATE TABLE app.busy (at timestamptz NOT NULL) PARTITION BY RANGE (at);
	CREATE TABLE app.busy_default PARTITION OF app.busy DEFAULT;
	CREATE TABLE app.ready (LIKE app.busy) PARTITION BY RANGE (at);
	CREATE TABLE app.ready_default PARTITION OF app.ready DEFAULT;
	SELECT sweep.create_partitions('app.ready', '1 month', ahead => 3, schedule => NULL);
	SELECT sweep.create_partitions('app.busy', '1 month', ahead => 3, schedule => NULL);
});
is(ended_run($node, $as_app->(q{SELECT sweep.start('partitions_ready')})), 'succeeded drained 5 4', 'four partitions are made');
my $writer = session($node);
$writer->query_safe(q{BEGIN; INSERT INTO app.busy VALUES ('2000-01-01'); INSERT INTO app.ready VALUES ('2000-01-01')});
$as_app->(q{SELECT sweep.create_partitions('app.ready', '1 month', ahead => 4, schedule => NULL, replace => true)});
my %run = map { $_ => $as_app->("SELECT sweep.start('partitions_$_')") } 'busy', 'ready';
soon($node, "SELECT (detail ->> 'lock_timeouts')::int > 1 FROM sweep.runs WHERE run_id = $run{busy}", 't', 'a table that is written to is waited for again and again');
my $other = session($node);
$other->query_safe(q{INSERT INTO app.busy VALUES ('2000-01-01')});
pass('and is not closed to others meanwhile');
like(ended_run($node, $run{busy}), qr/^failed error 9 /, 'but not for ever');
like($node->safe_psql('postgres', "SELECT error FROM sweep.runs WHERE run_id = $run{busy}"), qr/^app\.busy could not be locked.*RowExclusiveLock on app\.busy/s, 'the error says what has a lock on it');
like(ended_run($node, $run{ready}), qr/^succeeded drained /, 'where two partitions are ahead the next run does it');
is($node->safe_psql('postgres', "SELECT detail FROM sweep.runs WHERE run_id = $run{ready}"), '{"lock_timeouts": 10}', 'and the detail says that it was tried');
$writer->query_safe('COMMIT');
like(ended_run($node, $as_app->("SELECT sweep.start('partitions_$_')")), qr/^succeeded drained /, "when it is free partitions of $_ are made") foreach 'busy', 'ready';
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM pg_inherits WHERE inhparent IN ('app.busy'::regclass, 'app.ready'::regclass)}), '>=', 11, 'all of them');

# ---------------------------------------------------------------- what fails apart
$as_app->(q{
	CREATE TABLE app.life (at date NOT NULL) PARTITION BY RANGE (at);
	CREATE TABLE app.life_2 PARTITION OF app.life FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
	CREATE TABLE app.life_1 PARTITION OF app.life FOR VALUES FROM ('2000-01-01') TO ('2001-01-01');
	SELECT sweep.create_partitions('app.life', '1 year', ahead => 2, keep => '1 year', schedule => NULL);
	SELECT format('CREATE TABLE app.life_half PARTITION OF app.life FOR VALUES FROM (%L) TO (%L)', y || '-06-01', y || '-07-01') FROM (SELECT extract(year FROM now()) + 1 AS y) AS y \gexec
});
$run = $as_app->(q{SELECT sweep.start('partitions_life')});
like(ended_run($node, $run), qr/^failed error /, 'a partition that cannot be made fails the run');
is($node->safe_psql('postgres', "SELECT detail ->> 'dropped' FROM sweep.runs WHERE run_id = $run"), '["app.life_1", "app.life_2"]', 'old ones are dropped before');
like($node->safe_psql('postgres', "SELECT error FROM sweep.runs WHERE run_id = $run"), qr/^partition app\.life_half overlaps the range/, 'and the error names the one that is in the way');
$_->quit for $writer, $other;

done_testing();
