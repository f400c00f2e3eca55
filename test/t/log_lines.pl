# room: process
# What the processes log names the database, the role and the job with its run, or the queue; a run that is lost says why.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('lines');
$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE FUNCTION t.tells(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		RAISE WARNING 'seen by the step';
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.fails(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		RAISE 'it cannot be';
	END $$;
	CREATE FUNCTION t.refuses(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		RAISE 'not this one';
	END $$;
	SELECT sweep.create_job('tells', step => 't.tells', run_as => 'app'), sweep.create_job('fails', step => 't.fails', run_as => 'app'),
		sweep.create_job('ends', step => 't.note', args => '{"gate": 5}', run_as => 'app'), sweep.create_queue('mail'),
		sweep.create_consumer('mail', 't.refuses')});

# The lines of the log from one that is like this to the next one that is no part of it.
sub logged
{
	my ($line, $offset) = @_;

	$node->wait_for_log($line, $offset);
	my ($entry) = slurp_file($node->logfile, $offset) =~ /($line.*\n(?:[^\n]*(?:DETAIL|HINT|CONTEXT|STATEMENT):.*\n|\t.*\n)*)/;
	return $entry;
}

my $log = -s $node->logfile;
my $run = start('tells');
is(ended_run($node, $run), 'succeeded drained 1 0', 'a run ends');
like(logged(qr/WARNING:  seen by the step/, $log), qr/CONTEXT:  .*RAISE\n.*database "postgres", role "app", job "tells", run $run\n/, 'what a step says has database, role, job and run');

$run = start('fails');
is(ended_run($node, $run), 'failed error 0 0', 'a run fails');
like(logged(qr/WARNING:  run $run of job "fails" failed: it cannot be/, $log), qr/CONTEXT:  database "postgres", role "app", job "fails", run $run\n/, 'so has the line of a run that failed');
like(sql("SELECT error FROM sweep.runs WHERE run_id = $run"), qr/^it cannot be\nCONTEXT: PL\/pgSQL function t.fails\(sweep.batch\) line 3 at RAISE$/, 'its error has the lines of the step alone');

my $gate = hold_gate($node, 5);
$run = start('ends');
at_gate($node, 5, 'a run is in progress');
my $pid = pid_of($node, 'runner');
sql("SELECT pg_terminate_backend($pid)");
is(ended_run($node, $run), 'lost lost 0 0', 'its process is terminated');
open_gate($gate);
my $why = "process $pid has ended without an outcome: it was terminated, or the server went down";
is(sql("SELECT error FROM sweep.runs WHERE run_id = $run"), $why, 'its error says why');
my $entry = logged(qr/WARNING:  run $run of job "ends" is lost: \Q$why\E/, $log);
like($entry, qr/DETAIL:  It ran as role "app"\./, 'so does the log, which has the role');
like($entry, qr/database "postgres"\n/, 'and the database');
like(logged(qr/FATAL:  terminating background worker "pg_sweep runner"/, $log), qr/CONTEXT:  (?:.*\n.*)*database "postgres", role "app", job "ends", run $run\n/, 'the line of the process has all of it');

$gate = hold_gate($node, 5);
$run = start('ends');
at_gate($node, 5, 'again a run is in progress');
$pid = pid_of($node, 'runner');
flush_wal($node);
$node->stop('immediate');
forget_session($gate);
$node->start;
is(ended_run($node, $run), 'lost lost 0 0', 'the server is restarted');
is(sql("SELECT error FROM sweep.runs WHERE run_id = $run"), "the server was restarted while process $pid performed the run", 'the error of the run says so');
is(sql(q{SELECT state || ' ' || last_error FROM sweep.jobs WHERE name = 'ends'}), "failing the server was restarted while process $pid performed the run", 'and sweep.jobs');

my $message = sql(q{SELECT sweep.send('mail', '{}')});
like(logged(qr/LOG:  message $message of queue "mail" failed: not this one/, $log), qr/CONTEXT:  database "postgres", role "postgres", queue "mail"\n/, 'the line of a consumer has its queue');
$node->stop;
done_testing();
