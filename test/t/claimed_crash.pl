# room: process
# After a crash with many messages claimed, by clients and by consumers with large batches, they come again soon: what is
# counted as suspected is found by its key, not among all messages of the queue.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use SweepTest;

my $batch = 10_000;
my $messages = 4 * $batch;
my $node = new_cluster('claimed_crash', conf => [ 'autovacuum = off', 'pg_sweep.max_in_flight = 131072' ]);

sql(qq{
	SELECT sweep.create_queue('clients'), sweep.create_queue('consumed');
	SELECT sweep.send_many(q, array_agg('1'::jsonb)) FROM unnest('{clients,consumed}'::text[]) AS q, generate_series(1, $messages) GROUP BY q;
	CREATE FUNCTION t.handle_all(m sweep.message[]) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock(1)';
});

my $gate = hold_gate($node, 1);
sql(qq{SELECT sweep.create_consumer('consumed', 't.handle_all', batch => $batch, concurrency => 4)});
is(sql(qq{SELECT count(*) FROM sweep.claim('clients', $messages, '1 hour')}), $messages, 'clients have claimed all of a queue');
soon($node, 'SELECT count(*) FROM pg_locks WHERE ' . SweepTest::gate_condition(1), 4, 'consumers have claimed all of another one');
crash_of($node, sql('SELECT min(pid) FROM pg_locks WHERE ' . SweepTest::gate_condition(1)));
forget_session($gate);
my $back = time;
is(sql(qq{SELECT count(*) FROM sweep.claim('clients', $messages / 2, '1 hour')}), $messages / 2, 'every second message of clients can be claimed again at once');
soon($node, qq{SELECT depth < $messages FROM sweep.queues WHERE queue = 'consumed'}, 't', 'those of consumers are handled, each alone');
note sprintf '%.1f s after the server was back', time - $back;
# It is a second on a quiet machine, and was a minute there when each was looked for among all of them.
cmp_ok(time - $back, '<', 45, 'soon');
$node->stop;
done_testing();
