# Prepared transactions that send, claim and acknowledge, across restarts and
# crashes: what they sent is delivered when they commit, however late, and
# nobody waits for them.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;
use QueueTest;

my $node = new_cluster('queue_two_phase', conf => ['max_prepared_transactions = 10']);

$node->safe_psql('postgres', q{SELECT sweep.create_queue('q', visibility => '1 hour', backoff => 'none')});

sub prepare_sending
{
	my ($gid, $payload) = @_;

	sql("BEGIN; SELECT sweep.send('q', '$payload'); PREPARE TRANSACTION '$gid'");
}

sub counts
{
	return sql(q{SELECT concat_ws(' ', ready, delayed, in_flight) FROM sweep.queues WHERE queue = 'q'});
}

my %interruption = (
	'no restart' => sub { },
	'restart' => sub { $node->restart },
	'crash' => sub { $node->stop('immediate'); $node->start },
);

for my $name ('no restart', 'restart', 'crash')
{
	# ------------------------------------------------------------ sending
	prepare_sending('early', 1);
	sql(q{SELECT sweep.send('q', '2')});
	is(claim_all($node), '2', "$name: a later message is delivered, the prepared one is not");
	prepare_sending('never', 3);
	sql(q{BEGIN; SELECT sweep.send('q', '4'); SAVEPOINT s; SELECT sweep.send('q', '5'); ROLLBACK TO s; PREPARE TRANSACTION 'partly'});
	sql(q{BEGIN; SELECT sweep.send('q', '6', priority => 5); SELECT sweep.send('q', '7', priority => -5); PREPARE TRANSACTION 'lanes'});
	$interruption{$name}->();
	# a crash or restart ends the lease of 2
	is(claim_all($node), $name eq 'no restart' ? 'nothing' : '2', "$name: nothing of the prepared ones");
	sql(q{COMMIT PREPARED 'early'});
	is(claim_all($node), '1', "$name: delivered as soon as it is committed");
	sql(q{COMMIT PREPARED 'partly'});
	sql(q{ROLLBACK PREPARED 'never'});
	is(claim_all($node), '4', "$name: only what was kept");
	sql(q{SELECT sweep.send('q', '8')});
	sql(q{COMMIT PREPARED 'lanes'});
	is(claim_all($node), '6 8 7', "$name: in the order of their priorities");
	is(counts(), '0 0 6', "$name: the counters are right");
	is(claim_all($node), 'nothing', "$name: none comes twice");
	sql(q{SELECT sweep.purge_queue('q')});
	is(counts(), '0 0 0', "$name: the queue is purged");

	# ------------------------------------------------------------ delayed
	sql(q{BEGIN; SELECT sweep.send('q', '"later"', delay => '100 ms'); PREPARE TRANSACTION 'delayed'});
	is(claim_all($node), 'nothing', "$name: a delayed message in a prepared transaction");
	$interruption{$name}->();
	sql(q{COMMIT PREPARED 'delayed'});
	soon($node, q{SELECT count(*) FROM sweep.claim('q', 10, '1 hour')}, '1', "$name: it comes when it is due");
	sql(q{SELECT sweep.purge_queue('q')});

	# ------------------------------------------------------------ acknowledging
	for my $commit (1, 0)
	{
		my $end = $commit ? 'COMMIT' : 'ROLLBACK';

		sql(q{SELECT sweep.send('q', '9')});
		my $lease = sql(q{SELECT lease FROM sweep.claim('q')});
		sql("BEGIN; SELECT sweep.ack('$lease'); PREPARE TRANSACTION 'ack'");
		is(claim_all($node), 'nothing', "$name, $end: what is being acknowledged is not delivered");
		$interruption{$name}->();
		is(claim_all($node), 'nothing', "$name, $end: also not after it");
		sql("$end PREPARED 'ack'");
		if ($commit)
		{
			is(sql(q{SELECT count(*) FROM sweep.queue_message}), 0, "$name, $end: it is gone");
			is(claim_all($node), 'nothing', "$name, $end: it does not come again");
			is(counts(), '0 0 0', "$name, $end: the counters are right");
		}
		elsif ($name eq 'no restart')
		{
			is(sql("SELECT sweep.ack('$lease')"), 1, "$name, $end: the lease holds it still");
		}
		else
		{
			is(claim_all($node), '9', "$name, $end: it comes again, for the restart has ended its lease");
		}
		sql(q{SELECT sweep.purge_queue('q')});
	}

	# ------------------------------------------------------------ giving back; a row that keeps its lane, and whose key is free
	sql(q{SELECT sweep.send('q', '10', 'key', delay => '1 ms')});
	soon($node, q{SELECT due_at < clock_timestamp() FROM sweep.queue_message}, 't', "$name: a message with a key is due");
	my $lease = sql(q{SELECT lease FROM sweep.claim('q')});
	my ($status, $output, $message) = $node->psql('postgres', "BEGIN; SELECT sweep.fail('$lease', 'broken'); PREPARE TRANSACTION 'fail'");
	if ($status == 0)
	{
		$interruption{$name}->();
		is(claim_all($node), 'nothing', "$name: what is failing in a prepared transaction is not delivered");
		($status, $output, $message) = $node->psql('postgres', q{SET lock_timeout = '100 ms'; SELECT sweep.send('q', '11', 'key')});
		like($message, qr/lock timeout/, "$name: whether it has its key nobody knows");
		sql(q{COMMIT PREPARED 'fail'});
		is(sql(q{SELECT sweep.send('q', '11', 'key')}), '', "$name: now it has");
		soon($node, q{SELECT payload FROM sweep.claim('q', 10, '1 hour')}, '10', "$name: what failed in a prepared transaction comes again");
	}
	else
	{
		like($message, qr/cannot PREPARE/, "$name: or is refused in a prepared transaction");
	}
	sql(q{SELECT sweep.purge_queue('q')});
}

# ---------------------------------------------------------------- claiming is refused, and undone
sub cannot_prepare
{
	my ($statements, $name) = @_;
	my ($status, $output, $message) = $node->psql('postgres', "BEGIN; $statements; PREPARE TRANSACTION 'claim'");

	isnt($status, 0, "$name: cannot be prepared");
	like($message, qr/ERROR:  cannot PREPARE a transaction that has claimed messages\nHINT:  Claim in a transaction of its own/, "$name: says why");
	is(sql(q{SELECT count(*) FROM pg_prepared_xacts}), 0, "$name: nothing is prepared");
}

sql(q{SELECT sweep.send('q', '11')});
cannot_prepare(q{SELECT sweep.claim('q')}, 'a claim');
is(sql(q{SELECT payload, attempts FROM sweep.claim('q')}), '11|1', 'the message comes again, as if it had not been claimed');
sql(q{SELECT sweep.purge_queue('q')});
sql(q{SELECT sweep.send('q', '11')});
cannot_prepare(q{SELECT sum(sweep.ack(lease)) FROM sweep.claim('q')}, 'a claim that was acknowledged');
cannot_prepare(q{SAVEPOINT s; SELECT sweep.claim('q'); RELEASE s}, 'a claim of a savepoint');
sql(q{BEGIN; SAVEPOINT s; SELECT sweep.claim('q'); ROLLBACK TO s; PREPARE TRANSACTION 'claim'});
is(claim_all($node), '11', 'one that was rolled back does not matter');
sql(q{COMMIT PREPARED 'claim'});
sql(q{SELECT sweep.purge_queue('q')});

# One that is dead after a claim stays what it is, and nobody can acknowledge it.
sql(q{SELECT sweep.create_queue('once', visibility => '1 hour', max_attempts => 1)});
sql(q{SELECT sweep.send_many('once', ARRAY['1', '2']::jsonb[])});
sql(q{SELECT sweep.claim('once', 1, '1 microsecond')});
cannot_prepare(q{SELECT sweep.claim('once', 5)}, 'a claim that buries');
is(sql(q{SELECT payload FROM sweep.claim('once', 5)}), '2', 'the other one is delivered');
is(sql(q{SELECT payload FROM sweep.dead('once')}), '1', 'and the first one is dead');

# ---------------------------------------------------------------- a purge: what came after it stays claimed
sql(q{SELECT sweep.send('q', '"before"')});
is(claim_all($node), '"before"', 'one is claimed');
sql(q{BEGIN; SELECT sweep.purge_queue('q'); PREPARE TRANSACTION 'purge'});
sql(q{SELECT sweep.send('q', '"after"')});
is(claim_all($node), '"after"', 'another one, after the purge was prepared');
sql(q{COMMIT PREPARED 'purge'});
is(claim_all($node), 'nothing', 'it is held when the purge is committed');
is(counts(), '0 0 1', 'and only that');
sql(q{SELECT sweep.purge_queue('q')});

# ---------------------------------------------------------------- ended while nobody looked
prepare_sending('unseen', 12);
sql(q{SELECT sweep.send('q', '13')});
$node->restart;
is(counts(), '1 0 0', 'after a restart one message is ready');
sql(q{COMMIT PREPARED 'unseen'});
soon($node, q{SELECT concat_ws(' ', ready, delayed, in_flight) FROM sweep.queues WHERE queue = 'q'}, '2 0 0', 'two when the prepared one has been committed');
is(sql(q{SELECT sum(sweep.ack(lease)) FROM (SELECT DISTINCT lease FROM sweep.claim('q', 10)) AS l}), 2, 'both come');
is(counts(), '0 0 0', 'the counters are right');

# ---------------------------------------------------------------- a queue that goes before anybody has looked
sql(q{SELECT sweep.create_queue('gone')});
sql(q{SELECT sweep.send('gone', '14')});
my $lease = sql(q{SELECT lease FROM sweep.claim('gone')});
sql("BEGIN; SELECT sweep.ack('$lease'); PREPARE TRANSACTION 'gone'");
sql(q{COMMIT PREPARED 'gone'});
sql(q{SELECT sweep.drop_queue('gone')});
sql(q{SELECT sweep.create_queue('next')});
sql(q{SELECT sweep.send('next', '15')});
sql(q{SELECT sweep.claim('next', 1, '1 hour')});
is(sql(q{SELECT concat_ws(' ', ready, delayed, in_flight) FROM sweep.queues WHERE queue = 'next'}), '0 0 1', 'the next queue counts what is its own');
is(sql(q{SELECT count(*) FROM sweep.claim('next')}), 0, 'and holds it');

$node->stop;
done_testing();
