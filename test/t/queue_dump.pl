# pg_dump and restore of queues: waiting, held, delayed, failed, dead and keyed
# messages arrive as what they are, and the copy goes on from there.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;
use QueueTest;

my $node = new_cluster('queue_dump', bare => 1);
my $elsewhere = new_cluster('queue_dump_elsewhere', bare => 1);
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump';

$node->safe_psql('postgres', q{CREATE EXTENSION pg_sweep});
$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('q', visibility => '1 hour', max_attempts => 2, backoff => 'none');
	SELECT sweep.send('q', '"dead"');
});
for my $attempt (1, 2)
{
	$node->safe_psql('postgres', qq{SELECT sweep.fail(lease, 'broken $attempt') FROM sweep.claim('q')});
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.dead('q')}), 1, 'one is dead');
$node->safe_psql('postgres', q{SELECT sweep.send('q', '"failed"')});
$node->safe_psql('postgres', q{SELECT sweep.fail(lease, 'broken') FROM sweep.claim('q')});
is($node->safe_psql('postgres', q{SELECT payload FROM sweep.claim('q', 1, '2 hours')}), '"failed"', 'one has failed and is tried again');
$node->safe_psql('postgres', q{
	SELECT sweep.send('q', '"low"', priority => -3);
	SELECT sweep.send('q', '"keyed"', 'key');
	SELECT sweep.send('q', '"with headers"', headers => '{"traceparent": "00-1-2-01"}');
	SELECT sweep.send('q', '"high"', priority => 3);
	SELECT sweep.send('q', '"delayed"', 'later', delay => '1 day');
});

$node->command_checks_all([ 'pg_dump', '-Fc', '-f', $dump, 'postgres' ], 0, [qr/^$/], [qr/^$/], 'pg_dump, without a warning');
for my $cluster ($node, $elsewhere)
{
	my $where = $cluster->name;
	my $copy = sub { $cluster->safe_psql('copy', $_[0]) };

	$cluster->safe_psql('postgres', 'CREATE DATABASE copy');
	$cluster->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'copy', $dump ], "$where: pg_restore");
	is($copy->(q{SELECT concat_ws(' ', depth, ready, delayed, in_flight, dead) FROM sweep.queues}), '6 5 1 0 1', "$where: the counters are right");
	is($copy->(q{SELECT coalesce(sweep.send('q', '1', 'key')::text, 'no')}), 'no', "$where: a key that waits is known");
	is($copy->(q{SELECT coalesce(sweep.send('q', '1', 'later')::text, 'no')}), 'no', "$where: that of a delayed message, too");
	is($copy->(q{SELECT string_agg(payload::text || ' ' || attempts || coalesce(' ' || (headers ->> 'traceparent'), ''), ', ') FROM sweep.claim('q', 10)}),
		'"high" 1, "failed" 2, "keyed" 1, "with headers" 1 00-1-2-01, "low" 1', "$where: what waited or was held is delivered, in order");
	is($copy->(q{SELECT sweep.redrive('q')}), 1, "$where: dead ones can be redriven");
	is($copy->(q{SELECT payload FROM sweep.claim('q')}), '"dead"', "$where: and come again");
	is($copy->(q{SELECT sweep.send('q', '"new"') > (SELECT max(message_id) FROM sweep.queue_message WHERE payload <> '"new"')}), 't',
		"$where: a new message has a number of its own");
	is($copy->(q{SELECT sweep.send('q', '2', 'key') IS NOT NULL}), 't', "$where: a key that was claimed can be sent again");
}
is($node->safe_psql('postgres', q{SELECT concat_ws(' ', depth, ready, delayed, in_flight, dead) FROM sweep.queues}), '6 4 1 1 1',
	'the original is as before');

$node->stop;
$elsewhere->stop;
done_testing();
