# More claims and more queues than shared memory has room for: what nobody comes
# back for makes room, and the errors say what to set.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('queue_limits', conf => [ 'pg_sweep.max_leases = 64', 'pg_sweep.max_queues = 2' ]);

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
is(claim('a1', 100, '1 s'), 64, 'as many as there is room for');
is(claim('a2', 100, '1 s'), 'too many messages are claimed', 'then none');
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

# ---------------------------------------------------------------- queues in use at a time
is(claim('a4', 1, '1 h'), 'queue "a4" cannot be claimed from: too many queues are in use', 'two queues have leases');
$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a1')});
is(claim('a4', 1, '1 h'), 1, 'one that is idle gives way');
is($node->safe_psql('postgres', q{SELECT string_agg(concat_ws(' ', queue, depth, ready, in_flight), ', ' ORDER BY queue) FROM sweep.queues}),
	'a1 0 0 0, a2 100 100 0, a3 100 90 10, a4 100 99 1', 'all queues are counted');

# ---------------------------------------------------------------- a database that is gone takes nothing with it
$node->safe_psql('postgres', q{SELECT sweep.purge_queue('a' || i) FROM generate_series(2, 4) AS i});
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{
	CREATE EXTENSION pg_sweep;
	SELECT sweep.create_queue(q) FROM unnest(ARRAY['b1', 'b2']) AS q;
	SELECT sweep.send_many(q, array_fill('1'::jsonb, ARRAY[30])) FROM unnest(ARRAY['b1', 'b2']) AS q;
});
$node->safe_psql('other', q{SELECT count(*) FROM sweep.claim('b1', 30, '100 ms')});
$node->safe_psql('other', q{SELECT count(*) FROM sweep.claim('b2', 30, '100 ms')});
$node->safe_psql('postgres', 'DROP DATABASE other');
$node->safe_psql('postgres', q{SELECT sweep.send_many('a1', array_fill('1'::jsonb, ARRAY[100]))});
soon($node, q{SELECT count(*) FROM sweep.claim('a1', 64, '50 ms')}, '64', 'its leases run out as well');

$node->stop;
done_testing();
