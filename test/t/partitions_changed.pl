# room: makers
# Partitions that others detach and attach while a run waits for the lock: a partition that has newer rows by then is not dropped, and a default
# partition that was detached keeps its rows.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('partitions_changed', conf => ['autovacuum = off']);

# Does this as soon as the run waits for the table, on which another transaction has a lock.
sub change_before_lock
{
	my ($table, $start, $change) = @_;
	my $other = session($node);
	my $run;

	$other->query_safe("BEGIN; LOCK TABLE ONLY $table IN ACCESS SHARE MODE");
	$run = $start->();
	$other->query_safe("DO \$\$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_locks WHERE relation = '$table'::regclass AND NOT granted) LOOP END LOOP; END \$\$; $change; COMMIT");
	$other->quit;
	ended_run($node, $run);
	return $node->safe_psql('postgres', "SELECT detail -> 'lock_timeouts' FROM sweep.runs WHERE run_id = $run");
}

$node->safe_psql('postgres', q{
	CREATE TABLE old (at date NOT NULL) PARTITION BY RANGE (at);
	SELECT sweep.create_partitions('old', '1 year', ahead => 1, keep => '1 year', schedule => NULL);
	CALL sweep.run('partitions_old');
	CREATE TABLE old_1 PARTITION OF old FOR VALUES FROM ('2000-01-01') TO ('2001-01-01');
});
my $tries = change_before_lock('old', sub { $node->safe_psql('postgres', q{SELECT sweep.start('partitions_old')}) }, q{
	ALTER TABLE old DETACH PARTITION old_1; INSERT INTO old_1 SELECT date_trunc('year', now()) - interval '1 day';
	DO $$ BEGIN EXECUTE format('ALTER TABLE old ATTACH PARTITION old_1 FOR VALUES FROM (''2000-01-01'') TO (%L)', date_trunc('year', now())); END $$});
cmp_ok($tries, '>=', 1, 'a partition that was attached with newer rows is looked at again');
is($node->safe_psql('postgres', 'SELECT count(*) FROM old'), 1, 'and is not dropped');

# Two years, with a partition between them: the default partition is emptied by a copy, which waits for an older transaction.
sub begin_emptying
{
	my ($table, $old) = @_;

	$node->safe_psql('postgres', qq{
		CREATE TABLE $table (id int, at date NOT NULL, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
		CREATE TABLE ${table}_default PARTITION OF $table DEFAULT;
		CREATE TABLE ${table}_1 PARTITION OF $table FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
		INSERT INTO $table SELECT n, date '2000-05-17' + (n % 2) * 800 FROM generate_series(1, 100) AS n;
		INSERT INTO $table SELECT n, now() FROM generate_series(1, 100) AS n;
		SELECT sweep.create_partitions('$table', '1 year', ahead => 1, batch_size => 50, schedule => NULL);
	});
	$old->query_safe('BEGIN; SELECT 1');
	my $run = $node->safe_psql('postgres', "SELECT sweep.start('partitions_$table')");
	soon($node, "SELECT detail ? 'waits_for' FROM sweep.runs WHERE run_id = $run", 't', 'a copy of the default partition waits for an older transaction');
	return $run;
}

# What was made for the copy of a default partition.
sub left_of
{
	my ($table) = @_;

	return $node->safe_psql('postgres', qq{SELECT (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'sweep%'), (SELECT count(*) FROM pg_class WHERE relname LIKE '$table%sweep%'), (SELECT count(*) FROM pg_proc WHERE proname LIKE '$table%sweep%')});
}

my $old = session($node);
my $run = begin_emptying('rest', $old);
$tries = change_before_lock('rest', sub { $old->query_safe('COMMIT'); return $run; }, 'ALTER TABLE rest DETACH PARTITION rest_default');
cmp_ok($tries, '>=', 1, 'a table without its default partition is looked at again');
like(ended_run($node, $run), qr/^succeeded/, 'the run makes what is missing');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM rest), (SELECT count(*) FROM rest_default)'), '0|200', 'the detached one has its rows');
is(left_of('rest'), '0|0|0', 'and nothing is left of the copy');

$run = begin_emptying('other', $old);
$node->safe_psql('postgres', 'ALTER TABLE other_default RENAME TO other_rest');
$old->query_safe('COMMIT');
$old->quit;
ended_run($node, $run);
# The batch that met the new name may have failed.
$node->safe_psql('postgres', q{CALL sweep.run('partitions_other')});
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM other), (SELECT count(*) FROM other_rest)'), '200|0', 'a default partition that gets another name is emptied');
is(left_of('other'), '0|0|0', 'and nothing is left of the first copy');

# The same names in a retention, which goes through partitions one by one: one of them is being emptied, the other one comes next.
$node->safe_psql('postgres', q{
	CREATE TABLE event (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at);
	CREATE INDEX ON event (at);
	CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
	CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM ('2025-02-01') TO ('2025-03-01');
	CREATE TABLE event_3 PARTITION OF event FOR VALUES FROM ('2025-03-01') TO ('2025-04-01');
	INSERT INTO event SELECT n, '2025-01-02'::timestamptz + interval '1 month' * (n / 300) + interval '1 minute' * n FROM generate_series(0, 899) AS n;
	SELECT sweep.create_retention('event', 'at', '30 days', batch_size => 100, pause => '3 s', name => 'event', schedule => NULL);
});
$run = $node->safe_psql('postgres', q{SELECT sweep.start('event')});
soon($node, 'SELECT count(*) < 900 FROM event', 't', 'a retention has begun');
$node->safe_psql('postgres', 'ALTER TABLE event DETACH PARTITION event_1; ALTER TABLE event DETACH PARTITION event_2');
my $detached = $node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM event_1), (SELECT count(*) FROM event_2)');
like(ended_run($node, $run), qr/^succeeded/, 'it goes on when partitions are detached');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM event_1), (SELECT count(*) FROM event_2), (SELECT count(*) FROM event)'), "$detached|0", 'and deletes no rows of these');

done_testing();
