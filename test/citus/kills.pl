# A job over a distributed table, on a coordinator and two workers, which are
# killed at random moments: at defaults, what was deleted, what was handed on and
# what the runs have counted are the same, whether a batch writes on one worker or
# on both.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $kills = $ENV{KILLS} || 30;
my $seed = $ENV{SEED} || time;
my $rows = 200_000;

srand($seed);
diag("SEED=$seed repeats the same moments");

sub new_node
{
	my ($name) = @_;

	return new_cluster($name, bare => 1, preload => 'citus, pg_sweep',
		conf => [ "listen_addresses = '127.0.0.1'", "citus.node_conninfo = 'sslmode=disable'", 'max_prepared_transactions = 50',
			'max_connections = 60', 'max_worker_processes = 30', 'fsync = on', "citus.recover_2pc_interval = '1s'" ]);
}

my $coordinator = new_node('coordinator');
my @workers = (new_node('worker_1'), new_node('worker_2'));

$_->safe_psql('postgres', 'CREATE EXTENSION citus') for $coordinator, @workers;
$coordinator->safe_psql('postgres', "SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
$coordinator->safe_psql('postgres', "SELECT citus_add_node('127.0.0.1', " . $_->port . ')') for @workers;
# Citus creates it on the workers as well.
$coordinator->safe_psql('postgres', q{
	CREATE EXTENSION pg_sweep;
	CREATE SCHEMA t;
	CREATE TABLE t.many (id bigint PRIMARY KEY);
	CREATE TABLE t.one (tenant int, id bigint, PRIMARY KEY (tenant, id));
	SET citus.shard_count = 8;
	SELECT create_distributed_table('t.many', 'id'), create_distributed_table('t.one', 'tenant');
	SELECT sweep.create_queue('many'), sweep.create_queue('one');
});
# They would find no rows.
foreach my $call (q{sweep.delete('t.many', 'id > 5')}, q{sweep.create_retention('t.many', 'id', keep => '1 day')}, q{sweep.batched('DELETE FROM t.many WHERE id > 5')},
	q{sweep.create_backfill('t.many', 'id = 0', 'id > 5')}, q{sweep.create_copy('t.many', 't.one')}, q{sweep.create_partitions('t.many', '1 day')})
{
	my (undef, undef, $refused) = $coordinator->psql('postgres', "SELECT $call");
	like($refused, qr/ERROR:  t\.many is a table of Citus\n.*HINT:  Create a job with batch_sql/s, "refused: $call");
}

# Deletes a batch and hands on how many that were. Its args: the table, and the condition on the shard.
$coordinator->safe_psql('postgres', q{
	CREATE FUNCTION t.purge(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		ids bigint[];
		deleted bigint;
	BEGIN
		EXECUTE format('SELECT array_agg(d.id) FROM (SELECT id FROM t.%I WHERE %s ORDER BY id LIMIT %s) AS d',
			b.args ->> 'table', b.args ->> 'where', b.size) INTO ids;
		IF ids IS NULL THEN
			RETURN ROW(0, NULL, NULL)::sweep.progress;
		END IF;
		EXECUTE format('DELETE FROM t.%I WHERE %s AND id = ANY ($1)', b.args ->> 'table', b.args ->> 'where') USING ids;
		GET DIAGNOSTICS deleted = ROW_COUNT;
		PERFORM sweep.send(b.args ->> 'table', jsonb_build_object('deleted', deleted));
		RETURN ROW(deleted, NULL, NULL)::sweep.progress;
	END
	$$;
	SELECT sweep.create_job('many', step => 't.purge', batch_size => 100, args => '{"table": "many", "where": "true"}');
	SELECT sweep.create_job('one', step => 't.purge', batch_size => 20, args => '{"table": "one", "where": "tenant = 7"}');
});
is($coordinator->safe_psql('postgres', q{SELECT count(DISTINCT nodeport) FROM citus_shards WHERE table_name = 't.many'::regclass}), 2,
	'the shards are on both workers');

# Nothing that a user reads has what Citus refuses beside a distributed table, as a recursive query or a sub-select without columns.
my $refused = '';
for my $readable (split(/\n/, $coordinator->safe_psql('postgres', q{SELECT oid::regclass FROM pg_class WHERE relnamespace = 'sweep'::regnamespace AND relkind = 'v' AND relname !~ '^_'})),
	"sweep.dead('many')", "sweep.done('many')")
{
	my ($status, $output, $error) = $coordinator->psql('postgres', "SELECT (SELECT count(*) FROM t.many), (SELECT count(*) FROM $readable)");

	$refused .= "$readable: $error\n" if $status;
}
is($refused, '', 'views can be read in a statement that reads a distributed table');

sub fill
{
	$coordinator->safe_psql('postgres', qq{
		TRUNCATE t.many; TRUNCATE t.one;
		SELECT sweep.purge_queue('many'), sweep.purge_queue('one');
		INSERT INTO t.many SELECT i FROM generate_series(1, $rows) AS i;
		INSERT INTO t.one SELECT 7, i FROM generate_series(1, $rows) AS i;
		DELETE FROM sweep.run_history;
	});
}

# What is gone, what was handed on, and what the runs have counted.
sub three_counts
{
	my ($table) = @_;

	return $coordinator->safe_psql('postgres', qq{
		SELECT $rows - (SELECT count(*) FROM t.$table),
			(SELECT coalesce(sum((payload ->> 'deleted')::bigint), 0) FROM sweep.queue_message AS m JOIN sweep.queue AS q USING (queue_id) WHERE q.name = '$table'),
			(SELECT coalesce(sum(rows), 0) FROM sweep.runs WHERE job = '$table')});
}

# Kills it in the middle of a run, and waits until all of it is back. The third crash in a row would make the job broken, and
# the time until it may start again doubles with each: resume says that these were not its own.
sub kill_one
{
	my ($node, $table) = @_;
	my $batches = 1 + int(rand(40));
	$coordinator->safe_psql('postgres', "SELECT sweep.resume('$table')");
	my $run = $coordinator->safe_psql('postgres', "SELECT sweep.start('$table')");

	$coordinator->poll_query_until('postgres', "SELECT batches >= $batches FROM sweep.running WHERE run_id = $run") or return 'the run did not go on';
	if ($node == $coordinator)
	{
		crash_of($node, $coordinator->safe_psql('postgres', "SELECT pid FROM sweep.running WHERE run_id = $run"));
	}
	else
	{
		crash_of($node, $node->safe_psql('postgres',
			q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1}));
		# it may be one that the batches do not write on
		$coordinator->safe_psql('postgres', "SELECT sweep.cancel($run)");
	}
	$coordinator->poll_query_until('postgres', "SELECT finished_at IS NOT NULL FROM sweep.runs WHERE run_id = $run") or return 'the run did not end';
	# What was prepared on a worker follows what the coordinator has recorded.
	$coordinator->poll_query_until('postgres', 'SELECT recover_prepared_transactions() >= 0') or return 'nothing was recovered';
	my @counts = split /\|/, three_counts($table);
	return $counts[0] == $counts[1] && $counts[1] == $counts[2] ? 'same' : "deleted $counts[0], handed on $counts[1], counted $counts[2]";
}

sub kill_often
{
	my ($times, $name, @nodes) = @_;

	for my $table ('many', 'one')
	{
		my %seen;
		fill();
		for my $nth (1 .. $times)
		{
			fill() if $coordinator->safe_psql('postgres', "SELECT count(*) < 30000 FROM t.$table") eq 't';
			$seen{ kill_one($nodes[ $nth % @nodes ], $table) }++;
		}
		is_deeply(\%seen, { same => $times }, "$name killed $times times, batches on " . ($table eq 'one' ? 'one worker' : 'both') . ': deleted, handed on and counted are the same');
		my $run = $coordinator->safe_psql('postgres', "SELECT sweep.start('$table')");
		$coordinator->poll_query_until('postgres', "SELECT batches >= 3 FROM sweep.running WHERE run_id = $run");
		$coordinator->safe_psql('postgres', "SELECT sweep.cancel($run)");
		$coordinator->poll_query_until('postgres', "SELECT finished_at IS NOT NULL FROM sweep.runs WHERE run_id = $run") or die 'the run did not end';
	}
}

kill_often($kills, 'the coordinator', $coordinator);
kill_often(int(($kills + 2) / 3), 'a worker', @workers);
$_->stop for $coordinator, @workers;

done_testing();
