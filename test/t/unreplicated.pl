# room: engine
# A commit that waits for a synchronous standby: nothing of ours ends the wait, and a run says so when something else has.
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('unreplicated', init => { allows_streaming => 1 });

$node->safe_psql('postgres', q{
	INSERT INTO t.todo SELECT generate_series(1, 10);
	SELECT sweep.create_job(name, step => 't.work', batch_size => 5, max_batches => 1) FROM unnest('{cancelled,confirmed}'::text[]) AS name;
	CREATE FUNCTION t.go_on(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		INSERT INTO t.started (job) VALUES ('go_on');
		SELECT 1::bigint, jsonb_build_object('n', coalesce((b.cursor ->> 'n')::int, 0) + 1), NULL::jsonb $$;
	SELECT sweep.create_job('batches', step => 't.go_on', flush => 'batch', timeout => '3 s', max_batches => 10);
	SELECT sweep.create_job('script', sql => 'INSERT INTO t.started (job) VALUES ($$script$$)');
	SELECT sweep.create_job('called', step => 't.note', args => '{"job": "called"}');
	SELECT sweep.create_queue('handled');
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql AS $$ INSERT INTO t.started (job) VALUES ('handled') $$;
	SELECT sweep.create_consumer('handled', 't.handle');
	ALTER SYSTEM SET synchronous_standby_names = 'standby';
	SELECT pg_reload_conf();
});
# Of the sessions of the test only those that say so wait for a standby.
$ENV{PGOPTIONS} = '-c synchronous_commit=local';
soon($node, 'SHOW synchronous_standby_names', 'standby', 'commits wait for a standby that is not there');

sub started
{
	my ($job) = @_;

	return $node->safe_psql('postgres', "SELECT sweep.start('$job')");
}

sub outcome
{
	my ($run) = @_;

	return $node->safe_psql('postgres', "SELECT concat_ws(' ', status, stop_reason, batches, rows, detail) FROM sweep.runs WHERE run_id = $run");
}

sub waits_for_standby
{
	my ($what, $condition) = @_;

	soon($node, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND $condition", 1, "$what waits for its standby");
}

# ---------------------------------------------------------------- somebody ends the wait
my $offset = -s $node->logfile;
my $run = started('cancelled');
soon($node, "SELECT phase FROM sweep.running WHERE run_id = $run", 'standby', 'a run waits for the standby with its last commit, and says so');
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'it is cancelled');
is(ended_run($node, $run), 'succeeded max_batches 1 5', 'what it has committed is done');
is(outcome($run), 'succeeded max_batches 1 5 {"unreplicated": true}', 'and known not to be replicated');
$node->wait_for_log(qr/WARNING:  run $run of job "cancelled" is committed, but not replicated/, $offset);

$run = started('script');
waits_for_standby('a statement of an sql', "application_name = 'pg_sweep: script #$run'");
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_sweep: script #$run'");
soon($node, "SELECT phase FROM sweep.running WHERE run_id = $run", 'standby', 'then its outcome does');
$node->safe_psql('postgres', "SELECT sweep.cancel($run)");
is(ended_run($node, $run), 'succeeded done 1 1', 'an sql is done as well');
is(outcome($run), 'succeeded done 1 1 {"tags": ["INSERT 0 1"], "unreplicated": true}', 'and not replicated');

my $caller = session($node);
$caller->query_safe('SET synchronous_commit = on');
begin_query($caller, q{CALL sweep.run('called')});
soon($node, q{SELECT phase FROM sweep.running WHERE job = 'called'}, 'standby', 'a CALL waits for the standby');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'CALL%called%'});
like(end_query($caller), qr/WARNING:  run \d+ of job "called" is committed, but not replicated/, 'its caller is told');
$caller->quit;
is($node->safe_psql('postgres', q{SELECT status, detail FROM sweep.runs WHERE job = 'called'}), 'succeeded|{"unreplicated": true}', 'a CALL says so in its row, too');

$offset = -s $node->logfile;
$node->safe_psql('postgres', q{SELECT sweep.send('handled', '1')});
waits_for_standby('a consumer', q{backend_type = 'pg_sweep consumer'});
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pg_sweep consumer'});
soon($node, 'SELECT count(*) FROM sweep.queue_message', 0, 'a message is acknowledged');
$node->wait_for_log(qr/WARNING:  1 message of queue "handled" is acknowledged, but not replicated/, $offset);

# ---------------------------------------------------------------- nobody does
my $batches = started('batches');
my $confirmed = started('confirmed');
soon($node, "SELECT count(*) FROM sweep.running WHERE phase = 'standby'", 2, 'two runs wait');
# So long that the process would have been ended.
soon($node, "SELECT clock_timestamp() > started_at + interval '10 s' FROM sweep.running WHERE run_id = $batches", 't', 'one of them for longer than its timeout');
is($node->safe_psql('postgres', "SELECT phase FROM sweep.running WHERE run_id = $batches"), 'standby', 'it waits on');
my $standby = IPC::Run::start([ 'pg_receivewal', '--synchronous', '--no-password', '-D', PostgreSQL::Test::Utils::tempdir, '-d', $node->connstr('postgres') . ' application_name=standby' ],
	'>', \my $said, '2>', \my $complaints);
is(ended_run($node, $batches), 'failed timeout 0 0', 'when the standby is there it ends, late');
is(outcome($batches), 'failed timeout 0 0', 'and is replicated');
is(ended_run($node, $confirmed), 'succeeded max_batches 1 5', 'so does the other one');
is(outcome($confirmed), 'succeeded max_batches 1 5', 'and is replicated');
IPC::Run::signal($standby, 'TERM');
IPC::Run::finish($standby);

$node->stop('immediate');
done_testing();
