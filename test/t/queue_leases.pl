# Leases that run out: when a message comes again, who may still end it, how
# its deliveries are counted, and what an open transaction holds.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;
use QueueTest;

my $node = new_cluster('queue_leases', conf => ['max_prepared_transactions = 2']);

# The message, claimed for a moment; returns the lease.
sub claim_briefly
{
	return sql(q{SELECT lease FROM sweep.claim('q', 1, '50 ms')});
}

# Claims it again as soon as that is possible; returns the new lease and the number of the delivery.
sub claim_again
{
	my ($visibility) = @_;

	sql('DROP TABLE IF EXISTS again');
	sql('CREATE TABLE again OF sweep.message');
	$node->poll_query_until('postgres', qq{WITH c AS (INSERT INTO again SELECT * FROM sweep.claim('q', 1, '$visibility') RETURNING 1)
		SELECT count(*) > 0 FROM c}) or die 'the message does not come again';
	return split /\|/, sql('SELECT lease, attempts FROM again');
}

sub counts
{
	return sql(q{SELECT concat_ws(' ', ready, delayed, in_flight, dead) FROM sweep.queues WHERE queue = 'q'});
}

sql(q{SELECT sweep.create_queue('q', visibility => '1 hour', max_attempts => 3, backoff => 'none')});

# number 33, for the end: a rate, once there is nothing any more
sql(q{SELECT sweep.create_queue('burst'); SELECT sweep.send_many('burst', array_fill('1'::jsonb, ARRAY[1000]))});
sql(q{SELECT sweep.ack(lease) FROM (SELECT DISTINCT lease FROM sweep.claim('burst', 1000)) AS claimed});
is(sql(q{SELECT sent_per_second BETWEEN 50 AND 100 AND acked_per_second BETWEEN 50 AND 100 FROM sweep.queues WHERE queue = 'burst'}), 't',
	'33: a burst of 1000 messages within ten seconds');

# ---------------------------------------------------------------- a late acknowledgement
sql(q{SELECT sweep.send('q', '1')});
my $late = claim_briefly();
my ($lease, $attempts) = claim_again('1 hour');
is($attempts, 2, 'the second delivery is counted');
isnt($lease, $late, 'it has a lease of its own');
for my $call ("ack('$late')", "fail('$late', 'late')", "release('$late')", "extend('$late', '1 hour')")
{
	my ($status, $output, $message) = $node->psql('postgres', "SELECT sweep.$call");

	like("$output $message", qr/^0 .*NOTICE:  lease \Q$late\E does not hold any of the messages/s, "late: sweep.$call does nothing and says so");
}
is(counts(), '0 0 1 0', 'it is held as before');
is(sql("SELECT sweep.ack('$lease')"), 1, 'by the lease that may end it');
is(counts(), '0 0 0 0', 'and has ended it');

# ---------------------------------------------------------------- extend and release
sql(q{SELECT sweep.send('q', '2')});
$lease = claim_briefly();
is(sql("SELECT sweep.extend('$lease', '1 hour')"), 1, 'a lease is extended');
my $begin = sql('SELECT clock_timestamp()');
soon($node, "SELECT clock_timestamp() > '$begin'::timestamptz + interval '200 ms'", 't', 'time passes');
is(claim_all($node), 'nothing', 'it does not run out');
is(sql("SELECT sweep.release('$lease')"), 1, 'it is released');
($lease, $attempts) = claim_again('1 hour');
is($attempts, 1, 'which was no delivery');
is(sql("SELECT sweep.ack('$lease')"), 1, 'it can be acknowledged');

# ---------------------------------------------------------------- an acknowledgement in a transaction that outlives the lease
for my $end ('COMMIT', 'ROLLBACK')
{
	my $session = session($node);

	sql(q{SELECT sweep.send('q', '3')});
	sql(q{SELECT sweep.send('q', '"other"')});
	$lease = claim_briefly();
	is($session->query_safe("BEGIN; SELECT sweep.ack('$lease')"), 1, "$end: acknowledged in time");
	# The other message, claimed twice for as long, tells that the time is over.
	sql(q{SELECT sweep.claim('q', 1, '60 ms')});
	($lease, $attempts) = claim_again('1 hour');
	is(sql('SELECT payload FROM again'), '"other"', "$end: only the other one comes again");
	is(claim_all($node), 'nothing', "$end: what is being acknowledged does not, whatever the time");
	sql("SELECT sweep.ack('$lease')");
	$session->query_safe($end);
	$session->quit;
	if ($end eq 'ROLLBACK')
	{
		($lease, $attempts) = claim_again('1 hour');
		is("$attempts " . sql('SELECT payload FROM again'), '2 3', "$end: then it comes again");
		sql("SELECT sweep.ack('$lease')");
	}
	is(counts(), '0 0 0 0', "$end: the queue is empty");
}

# ---------------------------------------------------------------- number 39: what is being ended when its lease runs out
for my $end ('ROLLBACK', 'ROLLBACK PREPARED')
{
	my $session = session($node);

	sql(q{SELECT sweep.send('q', '5')});
	sql(q{SELECT sweep.send('q', '6')});
	$lease = sql(q{SELECT DISTINCT lease FROM sweep.claim('q', 2, '2 s')});
	is($session->query_safe("BEGIN; SELECT sweep.ack('$lease', ARRAY[(SELECT min(message_id) FROM sweep.queue_message)])"), 1, "39, $end: one of two is acknowledged in time");
	$session->query_safe(q{PREPARE TRANSACTION 'ending'}) if $end eq 'ROLLBACK PREPARED';
	soon($node, q{SELECT payload FROM sweep.claim('q', 2, '1 hour')}, '6', "39, $end: the other one is claimed again");
	is($session->query_safe($end eq 'ROLLBACK' ? 'ROLLBACK' : q{ROLLBACK PREPARED 'ending'}), '', "39, $end: the acknowledgement is undone");
	$session->quit;
	is(claim_all($node), '5', "39, $end: and the message comes again at once, its lease being over");
	sql(q{SELECT sweep.purge_queue('q')});
}

# ---------------------------------------------------------------- the last delivery
sql(q{SELECT sweep.send('q', '4')});
claim_briefly();
(undef, $attempts) = claim_again('50 ms');
is($attempts, 2, 'a second delivery');
(undef, $attempts) = claim_again('50 ms');
is($attempts, 3, 'a third one, the last that the queue allows');
soon($node, q{WITH c AS MATERIALIZED (SELECT count(*) FROM sweep.claim('q')) SELECT dead = 1 FROM sweep.queues, c WHERE queue = 'q'}, 't', 'instead of a fourth one it is dead');
is(sql(q{SELECT payload, attempts FROM sweep.dead('q')}), '4|3', 'with its deliveries');
is(counts(), '0 0 0 1', 'the counters say so');

# ---------------------------------------------------------------- a transaction that outlives the lease of what it has claimed, and has given its key free
for my $end ('COMMIT', 'ROLLBACK')
{
	for my $last (0, 1)
	{
		my $session = session($node);
		my $name = "$end, " . ($last ? 'last delivery' : 'not the last');

		sql("SELECT sweep.create_queue('open', visibility => '1 hour', max_attempts => " . ($last ? 1 : 2) . ')');
		sql(q{SELECT sweep.send('open', '7', 'key')});
		is($session->query_safe(q{BEGIN; SELECT payload FROM sweep.claim('open', 1, '1 microsecond')}), '7', "$name: claimed for a moment");
		is(sql(q{SET statement_timeout = '1 min'; SELECT count(*) FROM sweep.claim('open')}), 0, "$name: another claim leaves it, and does not wait");
		is(sql(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sweep.claim('open'); COMMIT}), 0, "$name: nor with an old snapshot");
		is(sql(q{SELECT dead FROM sweep.queues WHERE queue = 'open'}), 0, "$name: it is not dead");
		$session->query_safe($end);
		$session->quit;
		if ($last)
		{
			soon($node, q{WITH c AS MATERIALIZED (SELECT count(*) FROM sweep.claim('open')) SELECT dead = 1 FROM sweep.queues, c WHERE queue = 'open'}, 't', "$name: then it is dead");
		}
		else
		{
			soon($node, q{SELECT payload, attempts FROM sweep.claim('open')}, '7|2', "$name: then it comes again, the second time");
			isnt(sql(q{SELECT sweep.send('open', '8', 'key')}), '', "$name: and its key is free");
		}
		sql(q{SELECT sweep.drop_queue('open')});
	}
}

# ---------------------------------------------------------------- a key that waits for the one before it
sql(q{SELECT sweep.drop_queue('q')});
sql(q{SELECT sweep.create_queue('q', visibility => '1 hour', key_policy => 'once_more_if_running')});
for my $way ('runs out', 'released')
{
	sql(q{SELECT sweep.send('q', '5', 'key')});
	$lease = sql(q{SELECT lease FROM sweep.claim('q')});
	isnt(sql(q{SELECT sweep.send('q', '6', 'key')}), '', "$way: a second one is sent while the first is held");
	sql($way eq 'released' ? "SELECT sweep.release('$lease')" : "SELECT sweep.extend('$lease', '1 microsecond')");
	($lease, $attempts) = claim_again('1 hour');
	is(sql('SELECT payload FROM again'), '5', "$way: the first one comes again");
	is(claim_all($node), 'nothing', "$way: the second one still waits for it");
	is(sql("SELECT sweep.ack('$lease')"), 1, "$way: the first one is done");
	is(claim_all($node), '6', "$way: now the second one comes");
	sql(q{SELECT sweep.purge_queue('q')});
}

soon($node, q{SELECT sent_per_second, acked_per_second FROM sweep.queues WHERE queue = 'burst'}, '0|0', '33: decays with time, although nothing happens');

$node->stop;
done_testing();
