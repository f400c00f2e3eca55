# pg_dump and restore of queues: waiting, held, delayed, failed, dead and keyed
# messages arrive as what they are, and the copy goes on from there. Tables of a
# dump may arrive in any order: no row depends on one of another table.
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
	CREATE FUNCTION public.handle(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT 1';
	SELECT sweep.create_consumer('q', 'public.handle'), sweep.pause_consumer('q');
	INSERT INTO sweep.consumer_crash SELECT queue_id, message_id, 1, now() FROM sweep.queue_message LIMIT 1;
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

# ---------------------------------------------------------------- in any order
# What a restore with jobs happens to do is done here on purpose: each table in the reverse order of the archive.
my $list = $dump . '.list';
my @entries = grep { /^\d/ } split /^/, (run_command([ 'pg_restore', '-l', $dump ]))[0];
my @data = grep { /TABLE DATA sweep / } @entries;
my ($consumers) = grep { / consumer / } @data;

sub restore
{
	my ($name, @which) = @_;

	append_to_file($list, join('', @which));
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-L', $list, '-d', 'copy', $dump ], $name);
	unlink $list;
}

sub recreate_copy
{
	$node->safe_psql('postgres', 'DROP DATABASE copy WITH (FORCE)');
	$node->safe_psql('postgres', 'CREATE DATABASE copy');
}

cmp_ok(scalar @data, '>', 5, 'there are tables of data');
recreate_copy();
restore('the objects', grep { !/TABLE DATA|SEQUENCE SET/ } @entries);
restore('the consumers before their queues', $consumers);
is($node->safe_psql('copy', 'SELECT queue, state, workers FROM sweep.consumers'), '|broken: queue 1 does not exist|0', 'a consumer without its queue is broken');
restore('all other tables in the reverse order', grep { $_ ne $consumers } reverse @data);
is($node->safe_psql('copy', 'SELECT queue, state, workers FROM sweep.consumers'), 'q|paused: the database is a copy|0', 'and heals when its queue is there');
is($node->safe_psql('copy', 'SELECT count(*) FROM sweep.consumer_crash'), 1, 'what is known of crashes arrives as well');
$node->safe_psql('copy', q{SELECT sweep.drop_queue('q')});
is($node->safe_psql('copy', 'SELECT (SELECT count(*) FROM sweep.consumer) + (SELECT count(*) FROM sweep.consumer_crash)'), 0, 'drop_queue drops them');
for my $round (1 .. 3)
{
	recreate_copy();
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-j', 4, '-d', 'copy', $dump ], "pg_restore -j 4 ($round)");
	is($node->safe_psql('copy', 'SELECT queue, state FROM sweep.consumers'), 'q|paused: the database is a copy', "the consumer is there ($round)");
}
# ---------------------------------------------------------------- the data alone, while triggers are disabled
recreate_copy();
$node->safe_psql('copy', q{CREATE EXTENSION pg_sweep; SELECT sweep.create_queue('q')});
is($node->safe_psql('copy', q{SELECT count(*) FROM sweep.claim('q'); SELECT depth FROM sweep.queues; DELETE FROM sweep.queue}), "0\n0", 'a queue is known to be empty');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--data-only', '--disable-triggers', '-d', 'copy', $dump ], 'pg_restore --disable-triggers');
$node->safe_psql('copy', 'SELECT sweep.resume_all()');
is($node->safe_psql('copy', q{SELECT concat_ws(' ', depth, ready, delayed, in_flight, dead) FROM sweep.queues}), '6 5 1 0 1', 'the counters are right after resume_all');
is($node->safe_psql('copy', q{SELECT count(*) FROM sweep.claim('q', 10)}), 5, 'and what waits is delivered');

is($node->safe_psql('postgres', q{SELECT concat_ws(' ', depth, ready, delayed, in_flight, dead) FROM sweep.queues}), '6 4 1 1 1',
	'the original is as before');

$node->stop;
$elsewhere->stop;
done_testing();
