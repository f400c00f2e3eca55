# room: engine
# A run that is cancelled while it waits for whoever alters the extension, before it has begun: it is cancelled, and not
# started again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('cancel_unbegun');
$node->safe_psql('postgres', q{
	CREATE TABLE t.did (at timestamptz);
	SELECT sweep.create_job('x', schedule => '@yearly', batch_sql => 'INSERT INTO t.did SELECT clock_timestamp() LIMIT $1',
		max_batches => 1, lock_retries => 10000, lock_retry_delay => '100 ms');
});
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('x')});
my $run = due_run($node, 'x');
soon($node, q{SELECT phase FROM sweep.running}, 'lock', 'a run tries to get the lock');

my $alter = session($node);
$alter->query_safe('SET client_min_messages = warning; BEGIN; ALTER EXTENSION pg_sweep UPDATE');
$holder->query_safe(q{SELECT sweep.release_lock('x')});
soon($node, q{SELECT count(*) FROM pg_locks AS l JOIN sweep.running AS r USING (pid) WHERE l.locktype = 'advisory' AND l.objsubid = 21335}, 1,
	'it has the lock, and waits for the extension');
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'it is cancelled');
$alter->query_safe('COMMIT');
soon($node, "SELECT status, stop_reason, batches FROM sweep.runs WHERE run_id = $run", 'cancelled|cancelled|0', 'and stays so');
soon($node, 'SELECT count(*) FROM sweep.running', 0, 'its process ends');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.did'), 0, 'nothing was done');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.runs'), 1, 'and it was not started again');
forget_session($_) for $holder, $alter;
$node->stop;

done_testing();
