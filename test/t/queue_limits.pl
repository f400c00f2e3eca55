# More claims and more queues than shared memory has room for: what nobody comes
# back for makes room, and the errors say what to set.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('queue_limits', conf => [ 'pg_sweep.max_in_flight = 64', 'pg_sweep.max_queues = 2', 'max_prepared_transactions = 1' ]);

sub claim
{
	my ($queue, $max, $visibility) = @_;
	my ($status, $output, $error) = $node->psql('postgres', "SELECT count(*) FROM sweep.claim('$queue', $max, '$visibility')");

	return $status == 0 ? $output : $error =~ /ERROR:  (.*)/ ? $1 : $error;
}

$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('a' || i) FROM generate_series(1, 4) AS i;
	SELECT sweep.send_many('a' || i, array_fill('1'::jsonb, ARRAY[100])) FROM generate_series(1, 4) AS i;
});

# ---------------------------------------------------------------- messages claimed at a time
is(claim('a1', 100, '12 s'), 64, 'as many as there is room for');
is(claim('a2', 100, '3 s'), 'too many messages are claimed', 'then none');
soon($node, q{SELECT count(*) FROM sweep.claim('a2', 100, '100 ms')}, '64', 'until leases of another queue have run out');
soon($node, q{SELECT count(*) FROM sweep.claim('a3', 10, '1 h')}, '10', 'and those of the next one');
is(claim('a1', 1, '1 h'), 1, 'what was forgotten is found again');

# ---------------------------------------------------------------- a claim that is forgotten while its transaction, which has given a key free, is open
for my $case ('another session', 'the same transaction')
{
	my $session = session($node);

	$node->safe_psql('postgres', q{SELECT sweep.create_queue('k')});
	$node->safe_psql('postgres', q{SELECT sweep.send('k', '1', 'key')});
	$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a' || i) FROM generate_series(1, 3) AS i; SELECT sweep.send_many('a1', array_fill('1'::jsonb, ARRAY[100]))});
	is($session->query_safe(q{BEGIN; SELECT payload FROM sweep.claim('k', 1, '1 microsecond')}), '1', "$case: claimed for a moment");
	is(claim('a1', 100, '1 h'), 64, "$case: claims of another queue need its place");
	$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a1')});
	is($session->query_safe(q{SELECT payload FROM sweep.claim('k')}), '1', "$case: can claim it again") if $case eq 'the same transaction';
	is(claim('k', 1, '1 h'), 0, "$case: nobody else while it is open");
	$session->query_safe($case eq 'the same transaction' ? 'ROLLBACK' : 'COMMIT');
	$session->quit;
	soon($node, q{SELECT payload FROM sweep.claim('k')}, '1', "$case: it comes again");
	$node->safe_psql('postgres', q{SELECT sweep.drop_queue('k')});
}
$node->safe_psql('postgres', q{SELECT sweep.send_many('a' || i, array_fill('1'::jsonb, ARRAY[100])) FROM generate_series(1, 3) AS i});
is(claim('a1', 1, '1 h'), 1, 'one queue has a lease');
is(claim('a3', 10, '1 h'), 10, 'and another one');
like(slurp_file($node->logfile), qr/LOG:  more queues are in use than pg_sweep.max_queues/, 'and the log says that a queue has given way');

# ---------------------------------------------------------------- queues in use at a time
is(claim('a4', 1, '1 h'), 'queue "a4" cannot be claimed from: too many queues are in use', 'two queues have leases');
$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a1')});
is(claim('a4', 1, '1 h'), 1, 'one that is idle gives way');
$node->safe_psql('postgres', q{SELECT sweep.send('a4', '2', delay => '1 ms', priority => 7)});
soon($node, q{SELECT due_at < clock_timestamp() FROM sweep.queue_message WHERE due_at IS NOT NULL}, 't', 'a delayed message is due');
is(join(' ', map { $node->safe_psql('postgres', q{SELECT payload FROM sweep.claim('a4', 1, '1 h')}) } 1 .. 2), '1 2', 'and is claimed, after one that was found before');
is($node->safe_psql('postgres', q{SELECT string_agg(concat_ws(' ', queue, depth, ready, in_flight), ', ' ORDER BY queue) FROM sweep.queues}),
	'a1 0 0 0, a2 100 100 0, a3 100 90 10, a4 101 98 3', 'all queues are counted');
$node->safe_psql('postgres', q{SELECT sweep.send('a1', '1')});
soon($node, q{DO $$ BEGIN PERFORM sweep.send('a4', '1'); COMMIT; PERFORM sweep.purge_queue('a4'); END $$; SELECT depth, sent_per_second > 0 FROM sweep.queues WHERE queue = 'a4'},
	'0|t', 'a queue without messages has the rates of its slot, though there are more queues with messages than slots');
$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a1')});

# ---------------------------------------------------------------- a database that is gone takes nothing with it
$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a' || i) FROM generate_series(2, 4) AS i});
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{
	CREATE EXTENSION pg_sweep;
	SELECT sweep.create_queue('b' || i) FROM generate_series(1, 4) AS i;
	SELECT sweep.send_many(q, array_fill('1'::jsonb, ARRAY[30])) FROM unnest(ARRAY['b1', 'b2']) AS q;
});
# nobody looks how they have ended
$node->safe_psql('other', "BEGIN; SELECT sweep.send('b1', '1'), sweep.send('b2', '1'); PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'") for 1 .. 5;
$node->safe_psql('other', q{SELECT count(*) FROM sweep.claim('b1', 30, '1 h')});
my $other = $node->safe_psql('other', q{SELECT DISTINCT lease FROM sweep.claim('b2', 30, '1 h')});
$node->safe_psql('other', "BEGIN; SELECT sweep.ack('$other'), sweep.send('b1', '1'), sweep.send('b3', '1'), sweep.send('b4', '1'); PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'");
is($node->psql('postgres', "BEGIN; SELECT sweep.send('a1', '1'); PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'", on_error_stop => 1), 0,
	'transactions of another database that were prepared, and have ended, take no place');
$node->safe_psql('postgres', 'DROP DATABASE other');
$node->safe_psql('postgres', q{SELECT sweep.send_many('a' || i, array_fill('1'::jsonb, ARRAY[100])) FROM generate_series(1, 2) AS i});
is(claim('a1', 64, '1 h'), 64, 'there is room for its messages');
$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a1')});
is(claim('a1', 1, '1 h') . ' ' . claim('a2', 1, '1 h'), '0 1', 'and for its queues');
$node->safe_psql('postgres', "BEGIN; SELECT sweep.send('a1', '1'), sweep.send('a2', '1'), sweep.send('a3', '1'), sweep.send('a4', '1'); PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'");
is(claim('a1', 10, '1 h'), 1, 'and for its prepared transactions');

# ---------------------------------------------------------------- an extension that is dropped, or not
my $again = q{
	DROP EXTENSION pg_sweep CASCADE;
	CREATE EXTENSION pg_sweep;
	SELECT sweep.create_queue('a' || i) FROM generate_series(1, 4) AS i;
	SELECT sweep.send_many('a1', '{1,2}');
};
my ($lease) = $node->safe_psql('postgres', q{
	SELECT sweep.purge_queue('a' || i) FROM generate_series(1, 4) AS i;
	SELECT sweep.send('a2', '1');
	SELECT lease FROM sweep.claim('a2', 1, '1 h');
}) =~ /(\S+)$/;
$node->safe_psql('postgres', "BEGIN; $again SELECT sweep.claim('a1'); ROLLBACK");
is(claim('a2', 1, '1 h'), 0, 'dropped and rolled back: what was claimed is held');
is($node->safe_psql('postgres', "SELECT sweep.ack('$lease')"), 1, 'dropped and rolled back: by its lease');
$node->safe_psql('postgres', q{SELECT sweep.send_many('a1', '{1,2}'), sweep.send_many('a2', '{1,2}')});
is(claim('a1', 1, '1 h') . ' ' . claim('a2', 1, '1 h'), '1 1', 'two queues have leases');
$node->safe_psql('postgres', "BEGIN; $again COMMIT");
$node->safe_psql('postgres', q{SELECT sweep.send('a2', '1')});
is(claim('a1', 10, '1 h') . ' ' . claim('a2', 10, '1 h'), '2 1', 'they are gone with the extension');

$node->stop;
done_testing();
