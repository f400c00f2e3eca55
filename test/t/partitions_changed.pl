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

# Two years, with a partition between them: the default partition is emptied by a copy.
$node->safe_psql('postgres', q{
	CREATE TABLE rest (id int, at date NOT NULL, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
	CREATE TABLE rest_default PARTITION OF rest DEFAULT;
	CREATE TABLE rest_1 PARTITION OF rest FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
	INSERT INTO rest SELECT n, date '2000-05-17' + (n % 2) * 800 FROM generate_series(1, 100) AS n;
	INSERT INTO rest SELECT n, now() FROM generate_series(1, 100) AS n;
	SELECT sweep.create_partitions('rest', '1 year', ahead => 1, batch_size => 50, schedule => NULL);
});
my $old = session($node);
$old->query_safe('BEGIN; SELECT 1');
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('partitions_rest')});
soon($node, "SELECT detail ? 'waits_for' FROM sweep.runs WHERE run_id = $run", 't', 'a copy of the default partition waits for an older transaction');
$tries = change_before_lock('rest', sub { $old->query_safe('COMMIT'); return $run; }, 'ALTER TABLE rest DETACH PARTITION rest_default');
$old->quit;
cmp_ok($tries, '>=', 1, 'a table without its default partition is looked at again');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM rest), (SELECT count(*) FROM rest_default)'), '0|200', 'the detached one has its rows');

done_testing();
