# room: engine
# Alerts of runs in the background: the queue of the server, one that somebody is
# dropping, and a consumer that is told.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('alert_runs');

sql(q{
	CREATE FUNCTION t.fail(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'as asked';
	END $$;
	CREATE TABLE t.told (alert jsonb);
	GRANT INSERT ON t.told TO PUBLIC;
	CREATE FUNCTION t.tell(m sweep.message) RETURNS void LANGUAGE sql AS $$ INSERT INTO t.told VALUES (m.payload) $$;
	SELECT sweep.create_queue('of_server'), sweep.create_queue('of_job');
	SELECT sweep.create_job('plain', step => 't.fail'), sweep.create_job('own', step => 't.fail', alert_queue => 'of_job'),
		sweep.create_job('of another', step => 't.fail', run_as => 'jobber');
	SELECT sweep.create_consumer('of_server', handler => 't.tell'), sweep.create_consumer('of_job', handler => 't.tell');
});
sub told
{
	my ($run, $name) = @_;

	soon($node, qq{SELECT count(*) FROM t.told WHERE alert ->> 'run_id' = '$run'}, 1, $name);
}
sub failing
{
	my ($job) = @_;
	my $run = sql("SELECT sweep.start('$job')");

	is(ended_run($node, $run), 'failed error 0 0', "a run of $job fails");
	return $run;
}

# ---------------------------------------------------------------- the queue of a job, and that of the server
told(failing('own'), 'whoever consumes the queue of the job is told');
my $untold = failing('plain');
$node->append_conf('postgresql.conf', q{pg_sweep.alert_queue = 'of_server'});
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('pg_sweep.alert_queue') = 'of_server'});
told(failing('plain'), 'the queue of the server is for jobs that have none');
told(failing('of another'), 'and of all roles, whoever may send to it otherwise');
told(failing('own'), 'and not for one that has');
is(sql(q{SELECT string_agg(DISTINCT alert ->> 'job', ', ') FROM t.told}) . sql(qq{SELECT count(*) FROM t.told WHERE alert ->> 'run_id' = '$untold'}), 'of another, own, plain0', 'nobody is told of what was before');
# In a database that has no queue of that name nobody is told, and nothing is said of it.
my $offset = -s $node->logfile;
sql(q{SELECT sweep.drop_queue('of_server')});
failing('plain');
unlike(substr(slurp_file($node->logfile), $offset), qr/could not be sent/, 'a server whose queue is not in this database');
# Somebody who creates it is told of the runs that they see anyhow.
sql(q{CREATE ROLE curious LOGIN IN ROLE sweep_user; GRANT jobber TO curious; SET SESSION AUTHORIZATION curious; SELECT sweep.create_queue('of_server')});
failing('plain');
failing('of another');
is(sql(q{SELECT string_agg(payload ->> 'job', ', ') FROM sweep.claim('of_server', 1, '1 hour')}), 'of another', 'the queue of the server in the hands of some role');
like(substr(slurp_file($node->logfile), $offset), qr/WARNING:  alert of job "plain" could not be sent to queue "of_server": role "curious", which owns it, may not see the runs of the job/, 'the log says so');
sql(q{GRANT sweep_monitor TO curious});
failing('plain');
is(sql(q{SELECT string_agg(payload ->> 'job', ', ') FROM sweep.claim('of_server', 1, '1 hour')}), 'plain', 'of one that sees all');

# ---------------------------------------------------------------- who drops the queue is not waited for
my $dropper = session($node);
sql(q{SELECT sweep.drop_consumer('of_job')});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep consumer'}, 0, 'nobody consumes');
$dropper->query_safe(q{BEGIN; SELECT sweep.drop_queue('of_job')});
failing('own');
$node->wait_for_log(qr/WARNING:  alert of job "own" could not be sent to queue "of_job": queue is being dropped/, $offset);
# Nor by the scheduler, which records what is lost.
sql(q{SELECT sweep.alter_job('own', '{"step": "t.note", "args": {"gate": 11}}')});
my $gate = hold_gate($node, 11);
my $run = sql(q{SELECT sweep.start('own')});
at_gate($node, 11, 'a run is in its step');
$offset = -s $node->logfile;
sql("SELECT pg_terminate_backend(pid) FROM sweep.runs WHERE run_id = $run");
is(ended_run($node, $run), 'lost lost 0 0', 'it is lost');
$node->wait_for_log(qr/WARNING:  alert of job "own" could not be sent to queue "of_job": queue is being dropped/, $offset);
unlike(substr(slurp_file($node->logfile), $offset), qr/could not do its work/, 'and the scheduler did not wait');
open_gate($gate);
$dropper->query_safe('ROLLBACK');
$dropper->quit;
sql(q{SELECT sweep.alter_job('own', '{"step": "t.fail"}')});
failing('own');
is(sql(q{SELECT ready FROM sweep.queues WHERE queue = 'of_job'}), 1, 'the queue was not dropped: it gets the next one');
$node->stop;
done_testing();
