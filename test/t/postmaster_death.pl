# room: process
# The postmaster is killed while a run goes from batch to batch, another is in the
# middle of a long statement, one of a job with sql too, a consumer handles a message
# and a session calls a job: all of them end, and the server can be started again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('postmaster_death');

# Both would go on for hours; neither waits for anything, where it would notice by itself.
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.endless(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		SELECT ROW(1, to_jsonb(coalesce((b.cursor #>> '{}')::bigint, 0) + 1), NULL)::sweep.progress
	$$;
	CREATE FUNCTION t.spin() RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		i bigint := 0;
	BEGIN
		WHILE i < 1000000000000 LOOP
			i := i + 1;
		END LOOP;
		RETURN i;
	END $$;
	CREATE FUNCTION t.long(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		SELECT ROW(t.spin(), NULL, NULL)::sweep.progress
	$$;
	CREATE FUNCTION t.handle(m sweep.message) RETURNS bigint LANGUAGE sql AS 'SELECT t.spin()';
	SELECT sweep.create_job('endless', step => 't.endless');
	SELECT sweep.create_job('long', step => 't.long');
	SELECT sweep.create_job('once', NULL, 'SELECT t.spin()');
	SELECT sweep.create_job('called', step => 't.endless');
	SELECT sweep.create_queue('work');
	SELECT sweep.create_consumer('work', 't.handle');
	SELECT sweep.send('work', '{}');
	SELECT sweep.start('endless'), sweep.start('long'), sweep.start('once');
});
my $session = session($node);
begin_query($session, q{CALL sweep.run('called')});
soon($node, q{SELECT count(*) FROM sweep.running WHERE phase IN ('step', 'commit') AND (job IN ('long', 'once') OR batches > 10)}, '4', 'all four runs are at work');
soon($node, q{SELECT in_flight FROM sweep.queues WHERE queue = 'work'}, '1', 'the consumer handles its message');
my $pids = $node->safe_psql('postgres',
	q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type IN ('pg_sweep runner', 'pg_sweep consumer') OR query LIKE 'CALL sweep.run%'});
is(scalar(split / /, $pids), 5, 'five processes do that');

$node->kill9;
forget_session($session);

# A server does not start while a process of the one before is left.
my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
my $started = 0;
while (!$started && time < $deadline)
{
	$started = !system_log('pg_ctl', '-D', $node->data_dir, '-l', $node->logfile, '-w', 'start');
}
ok($started, 'the server can be started again');
# where it could not, nothing else would end them
kill 'KILL', split / /, $pids unless $started;
system_log('pg_ctl', '-D', $node->data_dir, '-w', '-m', 'immediate', 'stop') if $started;

done_testing();
