# Many producers and consumers at once, in every way in which a transaction can
# end, and a server that crashes under them: no message is lost, none that was
# rolled back is delivered, and none comes twice unless the server crashed, and
# then not after its acknowledgement.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;
use QueueTest;

my $node = new_cluster('queue_load', conf => [ 'max_connections = 120', 'max_prepared_transactions = 50', 'wal_level = replica', 'max_wal_senders = 1' ]);
my $found;

build_load();
$node->safe_psql('postgres', q{SELECT sweep.create_queue('q', visibility => '10 min')});

# ---------------------------------------------------------------- the checker finds what a queue loses: a cursor over ids
$node->safe_psql('postgres', q{
	CREATE TABLE naive (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb);
	CREATE TABLE naive_cursor AS SELECT 0::bigint AS at;
});
$found = run_load($node, producers => 8, hold_ms => 20, messages => 1000, consumers => 1, batch => 10, patience => 1,
	send => q{INSERT INTO naive (payload) VALUES ($1::jsonb)},
	claim => q{WITH c AS MATERIALIZED (SELECT id, payload FROM naive WHERE id > (SELECT at FROM naive_cursor) ORDER BY id LIMIT {batch}),
		u AS (UPDATE naive_cursor SET at = (SELECT max(id) FROM c) WHERE EXISTS (SELECT FROM c)) SELECT id, payload, '' FROM c},
	ack => q{SELECT cardinality($1)}, release => q{SELECT 0});
cmp_ok($found->{lost}, '>', 0, "the checker finds that a naive queue loses messages ($found->{lost})");
is($found->{status}, 1, 'and says so');

# ---------------------------------------------------------------- plain, with more consumers than processors
for my $batch (1, 10)
{
	$found = run_load($node, producers => 8, messages => 1000, consumers => 64, batch => $batch);
	nothing_wrong($found, "64 consumers, batch $batch");
	queue_is_empty($node, "64 consumers, batch $batch");
}

# ---------------------------------------------------------------- slow and late commits, savepoints, rollbacks, two phases, failures
$node->safe_psql('postgres', q{
	SELECT sweep.drop_queue('q');
	SELECT sweep.create_queue('q', visibility => '10 min', backoff => '100 ms', max_attempts => 1000);
	SELECT sweep.create_queue('other');
});
for my $one (0, 1)
{
	my $name = $one ? 'claim and ack in one transaction' : 'claim and ack in two transactions';

	$found = run_load($node, producers => 16, hold_ms => 30, mixed => 1, messages => 1000, consumers => 32, batch => 7, work_ms => 10,
		one_transaction => $one, other => q{SELECT sweep.send('other', '0')},
		fail => q{SELECT sweep.fail($2::uuid, 'failed')}, backoff_ms => 100);
	nothing_wrong($found, $name);
	queue_is_empty($node, $name);
}

# ---------------------------------------------------------------- keys
for my $policy ('while_queued', 'while_queued_or_running', 'once_more_if_running')
{
	for my $one (0, 1)
	{
		my $name = "keys $policy, " . ($one ? 'one transaction' : 'two transactions');

		$node->safe_psql('postgres', qq{SELECT sweep.drop_queue('q'); SELECT sweep.create_queue('q', visibility => '10 min', key_policy => '$policy')});
		$found = run_load($node, producers => 8, hold_ms => 5, messages => 1000, keys => 8, consumers => 16, batch => 3, work_ms => 20,
			one_transaction => $one, exclusive => $policy eq 'while_queued' ? 0 : 1,
			# with an xid: a sender that has changed nothing is queued at no commit
			send => q{SELECT sweep.send('q', $1::jsonb, $2) FROM pg_current_xact_id()});
		nothing_wrong($found, $name);
		cmp_ok($found->{sent}, '<', 1000, "$name: some were waiting already");
		# The load does not count those that are queued at the commit of a sender. One whose key was taken may be put off behind its last claims.
		$node->poll_query_until('postgres', q{SELECT (SELECT count(sweep.ack(c.lease, ARRAY[c.message_id])) FROM sweep.claim('q', 1000) AS c) >= 0 AND q.depth = 0
			FROM sweep.queues AS q WHERE q.queue = 'q'}) or die 'a message cannot be claimed';
		queue_is_empty($node, $name);
	}
}
$node->safe_psql('postgres', q{SELECT sweep.drop_queue('q'); SELECT sweep.create_queue('q', visibility => '10 min')});

# ---------------------------------------------------------------- consumers that vanish with what they hold
$found = run_load($node, producers => 4, hold_ms => 5, messages => 1000, consumers => 16, batch => 3, forget => 0.05,
	claim => q{SELECT message_id, payload, lease FROM sweep.claim('q', {batch}, '8 s')});
nothing_wrong($found, 'leases that run out');
queue_is_empty($node, 'leases that run out');

# ---------------------------------------------------------------- crashes
# Takes messages of the load and keeps them: how many its own consumers have at the moment of a crash is chance.
sub hold_some
{
	my ($session) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	until ($session->query_safe(q{SELECT count(*) FROM sweep.claim('q', 5)}) > 0)
	{
		die 'there is nothing to hold' if time > $deadline;
	}
}

for my $way ('backend killed', 'immediate stop')
{
	for my $mixed (0, 1)
	{
		my $name = $way . ($mixed ? ', mixed transactions' : '');
		my $busy = session($node);
		my $pid = $busy->query_safe('SELECT pg_backend_pid()');
		my $run = start_load($node, producers => 4, rate => 800, hold_ms => $mixed ? 20 : 0, mixed => $mixed, messages => 4000,
			consumers => 8, batch => 5, work_ms => 40, reconnect => 1);

		$node->poll_query_until('postgres', q{SELECT count(*) = 12 AND max(backend_start) < clock_timestamp() - interval '1 s'
			FROM pg_stat_activity WHERE application_name = 'load'}) or die 'the load does not begin';
		hold_some($busy);
		if ($way eq 'backend killed')
		{
			crash_of($node, $pid);
		}
		else
		{
			# Commits wait for a standby that there is not: nobody hears of those that the crash leaves done.
			$node->append_conf('postgresql.conf', q{synchronous_standby_names = 'nobody'});
			$node->reload;
			$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity
				WHERE application_name = 'load' AND wait_event = 'SyncRep' AND query LIKE '%sweep.ack%'}) or die 'no acknowledgement waits';
			$node->stop('immediate');
			$node->append_conf('postgresql.conf', q{synchronous_standby_names = ''});
			$node->start;
		}
		forget_session($busy);
		# what was prepared when the crash came has nobody to end it
		$node->safe_psql('postgres', "ROLLBACK PREPARED '$_'")
		  for split /\n/, $node->safe_psql('postgres', q{SELECT gid FROM pg_prepared_xacts WHERE prepared < pg_postmaster_start_time()});
		$found = end_load($run);
		# the load has not received what was held here before it came again
		nothing_wrong($found, "$name, with messages held");
		cmp_ok($found->{in_doubt}, '>', 0, "$name: acknowledgements are in doubt") if $way eq 'immediate stop';
		queue_is_empty($node, $name);
	}
}

$node->stop;
done_testing();
