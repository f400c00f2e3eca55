# The lock of the queues is lent to others while a transaction that ends settles
# many messages in flight, and a purge costs what it removes and not what
# pg_sweep.max_in_flight has room for.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

use constant MESSAGES => 20000;

my $node = new_cluster('queue_pieces', conf => ['pg_sweep.max_in_flight = 500000', 'max_prepared_transactions = 2']);

# Looks until nothing of the queue is in flight; returns how often some of it was and some was not.
$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('q', visibility => '1 hour', max_attempts => 32767);
	CREATE FUNCTION count_parts(whole bigint) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		now_in_flight bigint;
		parts int := 0;
	BEGIN
		LOOP
			SELECT in_flight INTO now_in_flight FROM sweep.queues WHERE queue = 'q';
			EXIT WHEN now_in_flight = 0;
			parts := parts + (now_in_flight < whole)::int;
		END LOOP;
		RETURN parts;
	END
	$$;
});

sub state_of_queue
{
	return $node->safe_psql('postgres', q{SELECT concat_ws(' ', ready, delayed, in_flight) FROM sweep.queues WHERE queue = 'q'});
}

my $worker = session($node);
my $watcher = session($node);
my $claim = 'SELECT lease, count(*) FROM sweep.claim(\'q\', ' . MESSAGES . ') GROUP BY lease \gset';

# ---------------------------------------------------------------- others have the lock meanwhile
for my $case (
	['a purge', $claim, q{SELECT sweep.purge_queue('q')}, 'COMMIT', '0 0 0'],
	['an acknowledgement', $claim, q{SELECT sweep.ack(:'lease')}, 'COMMIT', '0 0 0'],
	['a release', $claim, 'SELECT 1', q{SELECT sweep.release(:'lease'); COMMIT}, MESSAGES . ' 0 0'],
	['a claim that is rolled back', 'SELECT 1', $claim, 'ROLLBACK', MESSAGES . ' 0 0'])
{
	my ($name, $before, $statement, $end, $left) = @$case;
	my $parts = 0;

	# On a machine with other work the watcher may not have its turn in time.
	for (my $tries = 0; $parts == 0 && $tries < 20; $tries++)
	{
		$node->safe_psql('postgres', q{SELECT sweep.purge_queue('q'); SELECT sweep.send_many('q', array_fill('1'::jsonb, ARRAY[} . MESSAGES . q{]))});
		$worker->query_safe($before);
		$worker->query_safe("BEGIN; $statement");
		begin_query($watcher, 'SELECT count_parts(' . MESSAGES . q{) || ' parts'});
		$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT count_parts' AND state = 'active'});
		$worker->query_safe($end);
		($parts) = end_query($watcher) =~ /(\d+) parts/;
	}
	diag("$name: $parts") if $ENV{SHOW_TIMES};
	cmp_ok($parts, '>', 0, "$name: others see a part of it");
	is(state_of_queue(), $left, "$name: nothing remains in flight");
}

# ---------------------------------------------------------------- a purge that is prepared
for my $end ('COMMIT', 'ROLLBACK')
{
	$node->safe_psql('postgres', q{SELECT sweep.purge_queue('q'); SELECT sweep.send_many('q', array_fill('1'::jsonb, ARRAY[3000]))});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.claim('q', 2500)}), 2500, "$end PREPARED: claimed");
	$node->safe_psql('postgres', qq{BEGIN; SELECT sweep.purge_queue('q'); PREPARE TRANSACTION 'p'; $end PREPARED 'p'});
	is(state_of_queue(), $end eq 'COMMIT' ? '0 0 0' : '500 0 2500', "$end PREPARED: settled when somebody looks");
}

# ---------------------------------------------------------------- what a call costs does not depend on what else is in flight
# Each case: what comes before the call, and the call, with 1 and with many.
my $pid = $worker->query_safe('SELECT pg_backend_pid()');
my $loop = sub { "DO \$\$ BEGIN FOR i IN 1 .. $_[0] LOOP $_[1]; COMMIT; END LOOP; END \$\$" };
my $send = sub { "SELECT sweep.send_many('q', array_fill('1'::jsonb, ARRAY[$_[0]]));" };

for my $case (
	['a purge, with a message in flight', sub { 'SELECT 1' },
		sub { $loop->(500, "PERFORM sweep.send('q', '1'); COMMIT; PERFORM sweep.claim('q') FROM generate_series(2, least($_[0], 2)); PERFORM sweep.purge_queue('q')") }],
	['an acknowledgement, of one message of a lease', sub { $send->($_[0] + 5000) . "SELECT lease, count(*) FROM sweep.claim('q', $_[0] + 5000) GROUP BY lease \\gset\n"
			. 'SELECT array_agg(message_id) AS ids FROM (SELECT message_id FROM sweep.queue_message ORDER BY message_id DESC LIMIT 5000) AS m \gset' },
		sub { q{SELECT count(sweep.ack(:'lease', ARRAY[id])) FROM unnest(:'ids'::bigint[]) AS id} }],
	['a claim that ends a lease, beside others', sub { $send->($_[0] + 1) . $loop->($_[0], "PERFORM sweep.claim('q', 1, '1 hour')") },
		sub { $loop->(5000, "PERFORM sweep.claim('q', 1, '1 microsecond')") }],
	['a purge of messages that had the same key', sub { $loop->(10000, "PERFORM sweep.send('q', '1', 'key' || i % (20001 - $_[0])); COMMIT; PERFORM sweep.claim('q')") },
		sub { q{SELECT sweep.purge_queue('q')} }])
{
	my ($name, $prepare, $call) = @$case;
	my %cpu;

	for my $many (1, 20000)
	{
		$node->safe_psql('postgres', q{SELECT sweep.purge_queue('q'); VACUUM sweep.queue_message});
		$worker->query_safe($prepare->($many));
		$cpu{$many} = -cpu_seconds($pid);
		$worker->query_safe($call->($many));
		$cpu{$many} += cpu_seconds($pid);
	}
	diag("$name: $cpu{1} s, $cpu{20000} s") if $ENV{SHOW_TIMES};
	cmp_ok($cpu{20000}, '<', 2 * $cpu{1} + 0.05, "$name: costs about the same");
}

$watcher->quit;
$worker->quit;
$node->stop;

done_testing();
