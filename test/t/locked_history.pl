# room: process
# A lock on the history delays the history and nothing else.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('history_locked');

$node->safe_psql('postgres', q{
	SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}');
	SELECT sweep.create_job('called', step => 't.note');
});
soon($node, q{SELECT count(*) > 0 FROM sweep.run_history}, 't', 'there is a history');

my $locker = session($node);
$locker->query_safe('BEGIN');
$locker->query_safe('LOCK TABLE sweep.run_history IN ACCESS EXCLUSIVE MODE');
my $count = $node->safe_psql('postgres', q{SELECT count(*) FROM t.started});
soon($node, qq{SELECT count(*) >= $count + 3 FROM t.started}, 't', 'scheduled runs go on');
soon($node, q{SELECT count(*) >= 3 FROM sweep.run_live WHERE status = 'succeeded'}, 't', 'their results are kept');
my ($status, $output, $message) = $node->psql('postgres', q{SET statement_timeout = '60 s'; CALL sweep.run('called')});
is($status, 0, 'a run in a session goes on');
like($message, qr/job "called" run \d+: 0 rows in 1 batch, drained/, 'and says what it did');
my $ended = $node->safe_psql('postgres', q{SELECT max(run_id) FROM sweep.run_live WHERE status = 'succeeded'});
unlike(slurp_file($node->logfile), qr/could not do its work|canceling statement/, 'the scheduler does not even wait for the lock');
$locker->query_safe('COMMIT');
$locker->quit;
soon($node, qq{SELECT count(*) = 1 FROM sweep.run_history WHERE run_id = $ended}, 't', 'the history arrives');
soon($node, q{SELECT count(*) = count(DISTINCT run_id) FROM sweep.runs}, 't', 'no run is there twice');

# ---------------------------------------------------------------- it is bounded
$node->append_conf('postgresql.conf', 'pg_sweep.history_per_job = 2');
$node->reload;
soon($node, q{SELECT count(*) FROM sweep.run_history WHERE job = 'tick' AND status = 'succeeded'}, 2, 'only so many runs are kept');
$node->stop;
done_testing();
