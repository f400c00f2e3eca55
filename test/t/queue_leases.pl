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

sub run
{
	return $node->safe_psql('postgres', $_[0]);
}

# The message, claimed for a moment; returns the lease.
sub claim_briefly
{
	return run(q{SELECT lease FROM sweep.claim('q', 1, '50 ms')});
}

# Claims it again as soon as that is possible; returns the new lease and the number of the delivery.
sub claim_again
{
	my ($visibility) = @_;

	run('DROP TABLE IF EXISTS again');
	run('CREATE TABLE again OF sweep.message');
	$node->poll_query_until('postgres', qq{WITH c AS (INSERT INTO again SELECT * FROM sweep.claim('q', 1, '$visibility') RETURNING 1)
		SELECT count(*) > 0 FROM c}) or die 'the message does not come again';
	return split /\|/, run('SELECT lease, attempts FROM again');
}

sub counts
{
	return run(q{SELECT concat_ws(' ', ready, delayed, in_flight, dead) FROM sweep.queues WHERE queue = 'q'});
}

run(q{SELECT sweep.create_queue('q', visibility => '1 hour', max_attempts => 3, backoff => 'none')});

# number 33, for the end: a rate, once there is nothing any more
run(q{SELECT sweep.create_queue('burst'); SELECT sweep.send_many('burst', array_fill('1'::jsonb, ARRAY[1000]))});
run(q{SELECT sweep.ack(lease) FROM (SELECT DISTINCT lease FROM sweep.claim('burst', 1000)) AS claimed});
is(run(q{SELECT sent_per_second BETWEEN 50 AND 100 AND acked_per_second BETWEEN 50 AND 100 FROM sweep.queues WHERE queue = 'burst'}), 't',
	'33: a burst of 1000 messages within ten seconds');

# ---------------------------------------------------------------- a late acknowledgement
run(q{SELECT sweep.send('q', '1')});
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
is(run("SELECT sweep.ack('$lease')"), 1, 'by the lease that may end it');
is(counts(), '0 0 0 0', 'and has ended it');

# ---------------------------------------------------------------- extend and release
run(q{SELECT sweep.send('q', '2')});
$lease = claim_briefly();
is(run("SELECT sweep.extend('$lease', '1 hour')"), 1, 'a lease is extended');
my $begin = run('SELECT clock_timestamp()');
soon($node, "SELECT clock_timestamp() > '$begin'::timestamptz + interval '200 ms'", 't', 'time passes');
is(claim_all($node), 'nothing', 'it does not run out');
is(run("SELECT sweep.release('$lease')"), 1, 'it is released');
($lease, $attempts) = claim_again('1 hour');
is($attempts, 1, 'which was no delivery');
is(run("SELECT sweep.ack('$lease')"), 1, 'it can be acknowledged');

# ---------------------------------------------------------------- an acknowledgement in a transaction that outlives the lease
for my $end ('COMMIT', 'ROLLBACK')
{
	my $session = session($node);

	run(q{SELECT sweep.send('q', '3')});
	run(q{SELECT sweep.send('q', '"other"')});
	$lease = claim_briefly();
	is($session->query_safe("BEGIN; SELECT sweep.ack('$lease')"), 1, "$end: acknowledged in time");
	# The other message, claimed twice for as long, tells that the time is over.
	run(q{SELECT sweep.claim('q', 1, '60 ms')});
	($lease, $attempts) = claim_again('1 hour');
	is(run('SELECT payload FROM again'), '"other"', "$end: only the other one comes again");
	is(claim_all($node), 'nothing', "$end: what is being acknowledged does not, whatever the time");
	run("SELECT sweep.ack('$lease')");
	$session->query_safe($end);
	$session->quit;
	if ($end eq 'ROLLBACK')
	{
		($lease, $attempts) = claim_again('1 hour');
		is("$attempts " . run('SELECT payload FROM again'), '2 3', "$end: then it comes again");
		run("SELECT sweep.ack('$lease')");
	}
	is(counts(), '0 0 0 0', "$end: the queue is empty");
}

# ---------------------------------------------------------------- number 39: what is being ended when its lease runs out
for my $end ('ROLLBACK', 'ROLLBACK PREPARED')
{
	my $session = session($node);

	run(q{SELECT sweep.send('q', '5')});
	run(q{SELECT sweep.send('q', '6')});
	$lease = run(q{SELECT DISTINCT lease FROM sweep.claim('q', 2, '2 s')});
	is($session->query_safe("BEGIN; SELECT sweep.ack('$lease', ARRAY[(SELECT min(message_id) FROM sweep.queue_message)])"), 1, "39, $end: one of two is acknowledged in time");
	$session->query_safe(q{PREPARE TRANSACTION 'ending'}) if $end eq 'ROLLBACK PREPARED';
	soon($node, q{SELECT payload FROM sweep.claim('q', 2, '1 hour')}, '6', "39, $end: the other one is claimed again");
	is($session->query_safe($end eq 'ROLLBACK' ? 'ROLLBACK' : q{ROLLBACK PREPARED 'ending'}), '', "39, $end: the acknowledgement is undone");
	$session->quit;
	is(claim_all($node), '5', "39, $end: and the message comes again at once, its lease being over");
	run(q{SELECT sweep.purge_queue('q')});
}

# ---------------------------------------------------------------- the last delivery
run(q{SELECT sweep.send('q', '4')});
claim_briefly();
(undef, $attempts) = claim_again('50 ms');
is($attempts, 2, 'a second delivery');
(undef, $attempts) = claim_again('50 ms');
is($attempts, 3, 'a third one, the last that the queue allows');
soon($node, q{WITH c AS MATERIALIZED (SELECT count(*) FROM sweep.claim('q')) SELECT dead = 1 FROM sweep.queues, c WHERE queue = 'q'}, 't', 'instead of a fourth one it is dead');
is(run(q{SELECT payload, attempts FROM sweep.dead('q')}), '4|3', 'with its deliveries');
is(counts(), '0 0 0 1', 'the counters say so');

# ---------------------------------------------------------------- a transaction that outlives the lease of what it has claimed, and has given its key free
for my $end ('COMMIT', 'ROLLBACK')
{
	for my $last (0, 1)
	{
		my $session = session($node);
		my $name = "$end, " . ($last ? 'last delivery' : 'not the last');

		run("SELECT sweep.create_queue('open', visibility => '1 hour', max_attempts => " . ($last ? 1 : 2) . ')');
		run(q{SELECT sweep.send('open', '7', 'key')});
		is($session->query_safe(q{BEGIN; SELECT payload FROM sweep.claim('open', 1, '1 microsecond')}), '7', "$name: claimed for a moment");
		is(run(q{SET statement_timeout = '1 min'; SELECT count(*) FROM sweep.claim('open')}), 0, "$name: another claim leaves it, and does not wait");
		is(run(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sweep.claim('open'); COMMIT}), 0, "$name: nor with an old snapshot");
		is(run(q{SELECT dead FROM sweep.queues WHERE queue = 'open'}), 0, "$name: it is not dead");
		$session->query_safe($end);
		$session->quit;
		if ($last)
		{
			soon($node, q{WITH c AS MATERIALIZED (SELECT count(*) FROM sweep.claim('open')) SELECT dead = 1 FROM sweep.queues, c WHERE queue = 'open'}, 't', "$name: then it is dead");
		}
		else
		{
			soon($node, q{SELECT payload, attempts FROM sweep.claim('open')}, '7|2', "$name: then it comes again, the second time");
			isnt(run(q{SELECT sweep.send('open', '8', 'key')}), '', "$name: and its key is free");
		}
		run(q{SELECT sweep.drop_queue('open')});
	}
}

# ---------------------------------------------------------------- a key that waits for the one before it
run(q{SELECT sweep.drop_queue('q')});
run(q{SELECT sweep.create_queue('q', visibility => '1 hour', key_policy => 'once_more_if_running')});
for my $way ('runs out', 'released')
{
	run(q{SELECT sweep.send('q', '5', 'key')});
	$lease = run(q{SELECT lease FROM sweep.claim('q')});
	# once the lease is over the first one waits again, and a second one is not queued
	isnt(run(q{SELECT sweep.send('q', '6', 'key')}), '', "$way: a second one is queued while the first one is held");
	run($way eq 'released' ? "SELECT sweep.release('$lease')" : "SELECT sweep.extend('$lease', '50 ms')");
	($lease, $attempts) = claim_again('1 hour');
	is(run('SELECT payload FROM again'), '5', "$way: the first one comes again");
	is(claim_all($node), 'nothing', "$way: the second one still waits for it");
	is(run("SELECT sweep.ack('$lease')"), 1, "$way: the first one is done");
	is(claim_all($node), '6', "$way: now the second one comes");
	run(q{SELECT sweep.purge_queue('q')});
}

soon($node, q{SELECT sent_per_second, acked_per_second FROM sweep.queues WHERE queue = 'burst'}, '0|0', '33: decays with time, although nothing happens');

$node->stop;
done_testing();
