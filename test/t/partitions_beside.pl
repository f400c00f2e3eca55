# room: makers
# Partitions are made and dropped while others insert and read, by the simple protocol and by prepared statements, beside a default partition that has
# rows for all of them, and one is emptied whose rows are on both sides of a partition: no session has an error, and no reader misses a row. Locks that
# are not to be had, and what fails apart. PARTITION_DAYS=3650 makes those of ten years, PARTITION_ROWS=1000000 has so many rows copied out of a
# default partition, PARTITION_WRITES=500 writes so many per second.
use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $days = $ENV{PARTITION_DAYS} || 200;
my $rows = 1000 * int(($ENV{PARTITION_ROWS} || 20000) / 1000);
my $writes = $ENV{PARTITION_WRITES} || 240;
# A statement that reads thousands of partitions has them locked for as long, and is executed more rarely.
my $often = int($days / 200) || 1;
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

# Eight days, from three before today on. Row n is n steps behind the first.
my $step = 8 * 86400 * 1000000 / $rows;
my $start = $node->safe_psql('postgres', q{SELECT date_trunc('day', now()) - interval '3 days'});
my $trail_at = sub { "timestamptz '$start' + interval '1 microsecond' * (($_[0])::bigint * $step)" };
$node->safe_psql('postgres', qq{
	SET ROLE app;
	CREATE TABLE app.trail (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, is_old boolean NOT NULL DEFAULT false, n int NOT NULL DEFAULT 0, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
	CREATE TABLE app.trail_default PARTITION OF app.trail DEFAULT;
	SELECT format('CREATE TABLE app.trail_middle PARTITION OF app.trail FOR VALUES FROM (%L) TO (%L)', timestamptz '$start' + interval '4 days', timestamptz '$start' + interval '5 days') \\gexec
	INSERT INTO app.trail (at, is_old) SELECT @{[$trail_at->('n')]}, true FROM generate_series(1, $rows) AS n;
	CREATE VIEW app.rest AS SELECT * FROM app.trail_default;
	GRANT SELECT, INSERT, UPDATE, DELETE ON app.trail TO writer;
});

# ---------------------------------------------------------------- beside writers and readers
append_to_file("$logs/event.sql", sprintf("\\set day random(1, %d)\nINSERT INTO app.event (at) VALUES (date_trunc('day', now()) + interval '1 day' * :day);\n", $days - 2));
append_to_file("$logs/mail.sql", "INSERT INTO app.mail (at) VALUES (now());\n");
# Rows of the trail are changed in pairs whose sum stays, others come and go.
append_to_file("$logs/pair.sql", sprintf("\\set n 2 * random(1, %d)\nBEGIN;\nUPDATE app.trail SET n = n + 1 WHERE at = %s AND id = :n - 1;\nUPDATE app.trail SET n = n - 1 WHERE at = %s AND id = :n;\nCOMMIT;\n", $rows / 2, $trail_at->(':n - 1'), $trail_at->(':n')));
append_to_file("$logs/trail.sql", "\\set hour random(0, 191)\nINSERT INTO app.trail (at) VALUES (timestamptz '$start' + interval '1 hour' * :hour);\n");
append_to_file("$logs/gone.sql", "\\set hour random(0, 191)\nDELETE FROM app.trail WHERE at = timestamptz '$start' + interval '1 hour' * :hour AND NOT is_old;\n");
my $slice = sprintf('WHERE at > %s AND at <= %s AND is_old', $trail_at->('1000 * :slice'), $trail_at->('1000 * (:slice + 1)'));
append_to_file("$logs/slice.sql", sprintf("\\set slice random(0, %d)\nSELECT 1 / (count(*) = 1000 AND sum(n) = 0)::int FROM app.trail $slice;\n", $rows / 1000 - 1));
append_to_file("$logs/held_slice.sql", sprintf("\\set slice random(0, %d)\nBEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 1;\nSELECT 1 / (count(*) = 1000)::int FROM app.trail $slice;\nCOMMIT;\n", $rows / 1000 - 1));
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
		my @scripts = $kind eq 'write' ? ([ 'event', 3 ], [ 'mail', 1 ], [ 'pair', 2 ], [ 'trail', 2 ], [ 'gone', 1 ]) : ([ 'all', 1 ], [ 'one', 60 * $often ], [ 'held', 1 ], [ 'slice', 60 * $often ], [ 'held_slice', 10 * $often ]);

		$l{run} = IPC::Run::start([ 'pgbench', '-n', '-M', $protocol, '-c', $kind eq 'write' ? 3 : 2, '-j', 1, '-R', $kind eq 'write' ? $writes / 2 : 30, '-T', 7200,
				'-l', "--log-prefix=$logs/$kind-$protocol",
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
my $size = $rows < 100000 ? $rows / 20 : 5000;
is($as_app->(qq{SELECT sweep.create_partitions('app.trail', '1 day', ahead => 6, batch_size => $size, pause => NULL, schedule => NULL)}), 'partitions_trail', 'a job for a default partition with rows on both sides of a partition');
$run = $as_app->(q{SELECT sweep.start('partitions_trail')});
like(ended_run($node, $run), qr/^succeeded drained /, 'its run ends as well');
note($node->safe_psql('postgres', "SELECT rows, detail - 'made', finished_at - started_at FROM sweep.runs WHERE run_id = $run"));
is($node->safe_psql('postgres', "SELECT detail -> 'emptied' FROM sweep.runs WHERE run_id = $run"), '["app.trail_default"]', 'the default partition was emptied by a copy');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.rest'), 0, 'has no row any more, and is the table that it was');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname ~ 'sweep' AND relnamespace = 'app'::regnamespace}), 0, 'nothing is left of the copy');
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
foreach my $name (sort keys %load)
{
	my $l = $load{$name};

	$l->{run}->signal('INT');
	$l->{run}->finish;
	$l->{err} =~ s/^pgbench: warning: .*\n//mg;
	unlike("$l->{out}$l->{err}", qr/error|abort|fatal/i, "$name: nobody had an error");
}
my %slowest = (read => 0, write => 0);
foreach my $file (glob("$logs/*-*.[0-9]*"))
{
	my ($kind) = $file =~ m{/(read|write)-[^/]*$};

	# What a transaction took, without what it was late. A program that is interrupted leaves a part of its last line.
	foreach my $line (slurp_file($file) =~ /^(.*)\n/mg)
	{
		my @column = split(/ /, $line);
		my $took = ($column[2] - $column[6]) / 1e6;

		$slowest{$kind} = $took if $took > $slowest{$kind};
		$slowest{"$kind above 1 s"}++ if $took > 1;
		$slowest{"$kind of"}++;
	}
}
note(join(', ', map { "$_: $slowest{$_}" } sort keys %slowest));
cmp_ok($slowest{write}, '<', 60, 'no writer waited for long');
is($node->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE is_old), sum(n) FROM app.trail'), "$rows|0", 'of the trail each row is there, with the changes of all');
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
like(ended_run($node, $as_app->(q{SELECT sweep.start('partitions_ready')})), qr/^succeeded drained \d+ 4$/, 'four partitions are made');
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
