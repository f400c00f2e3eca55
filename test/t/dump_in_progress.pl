# room: api
# A dump that is taken while runs are in progress. A job that keeps its cursor goes on, where the dump is restored, behind what its
# run had committed when the dump was taken: nothing is done twice and nothing left out. What waits to be started stays where it was.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('dump_in_progress');
my $elsewhere = new_cluster('dump_in_progress_elsewhere', bare => 1);
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump.sql';

# ---------------------------------------------------------------- three jobs that keep their cursor, one that does not
$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('alerts');
	CREATE TABLE t.source (id int PRIMARY KEY);
	CREATE TABLE t.target (LIKE t.source INCLUDING ALL);
	INSERT INTO t.source SELECT generate_series(1, 20);
	CREATE FUNCTION t.wait_at_11() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(31) WHERE NEW.id = 11; RETURN NEW; END $$;
	CREATE TRIGGER wait BEFORE INSERT ON t.target FOR EACH ROW EXECUTE FUNCTION t.wait_at_11();
	SELECT sweep.create_copy('t.source', 't.target', name => 'copy', batch_size => 5, paused => true);
	SELECT sweep.alter_job('copy', '{"max_attempts": 3, "on_failure": {"told": "0"}, "alert_queue": "alerts"}');
	-- Each batch does one number: those from 1 to 4, and then there is nothing left.
	CREATE TABLE t.number (job text, n int, PRIMARY KEY (job, n));
	CREATE FUNCTION t.count(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		next constant int := coalesce((b.cursor ->> 'n')::int, 0) + 1;
	BEGIN
		IF next > 4 THEN
			RETURN ROW(0, NULL, NULL)::sweep.progress;
		END IF;
		INSERT INTO t.number VALUES (b.args ->> 'job', next);
		PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::int) WHERE next = 3;
		RETURN ROW(1, jsonb_build_object('n', next), NULL)::sweep.progress;
	END
	$$;
	SELECT sweep.create_job('always', step => 't.count', args => '{"job": "always", "gate": 32}', cursor => 'always');
	SELECT sweep.create_job('forgets', step => 't.count', args => '{"job": "forgets", "gate": 32}');
	SELECT sweep.create_job('drained', step => 't.count', args => '{"job": "drained", "gate": 33}', cursor => 'drain', max_batches => 2);
	SELECT sweep.create_job('told', step => 't.note', args => '{"job": "told"}');
});
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('drained')})), 'succeeded max_batches 2 2', 'a run has stopped half way');
soon($node, q{SELECT kept_cursor FROM sweep.job_state WHERE job = 'drained'}, '{"n": 2}', 'that is in the state of the job');

# ---------------------------------------------------------------- the moment of the dump
my @gates = map { hold_gate($node, $_) } (31, 32);
my ($copy) = map { $node->safe_psql('postgres', "SELECT sweep.start('$_')") } qw(copy always forgets);
soon($node, 'SELECT count(*) FROM pg_locks WHERE NOT granted AND objid IN (31, 32) AND objsubid = 1', 3, 'three runs are in the middle of a batch');
# Who has locked the state of a job keeps its run from being archived.
my $holder = session($node);
$holder->query_safe(q{BEGIN; SELECT FROM sweep.job_state WHERE job = 'drained' FOR UPDATE});
$node->safe_psql('postgres', q{SELECT sweep.alter_job('drained', '{"max_batches": null}')});
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('drained')})), 'succeeded drained 3 2', 'another run has drained, which is not in the state of its job yet');
is($node->safe_psql('postgres', q{SELECT kept_cursor FROM sweep.job_state WHERE job = 'drained'}), '{"n": 2}', 'nor will be while somebody has locked that');
# The one that falls due meanwhile waits for its lock.
my $lock = session($node);
$lock->query_safe(q{SELECT sweep.try_lock('told')});
$node->safe_psql('postgres', q{SELECT sweep.start('told', at => now() + interval '1 day'), sweep.start('told', delay => '2 s')});
my $last = $node->safe_psql('postgres', 'SELECT max(run_id) FROM sweep.runs');
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'pg_dump');
$holder->query_safe('ROLLBACK');
$holder->quit;
$lock->quit;

# ---------------------------------------------------------------- restored, with the tables in the order of pg_dump, and with the runs first
# A dump is restored in one go, or not at all: so that it can be in parts.
my $text = slurp_file($dump) =~ s/^\\(un)?restrict .*\n//gmr;
my ($first) = $text =~ /\A(.*?)^COPY /ms;
my ($before, $runs, $after) = $text =~ /\A\Q$first\E(.*?)^(COPY sweep\.run_live .*?^\\\.\n)(.*)\z/ms;
is(() = $runs =~ /^\d/mg, 3, 'runs of jobs that keep their cursor are in it') or diag($runs);
unlike($runs, qr/\t(forgets|told)\t/, 'and of no others');
$elsewhere->safe_psql('postgres', 'CREATE ROLE jobber LOGIN');
for my $where ([ $node, 'dumped', 0 ], [ $elsewhere, 'dumped', 0 ], [ $elsewhere, 'runs_first', 1 ])
{
	my ($cluster, $copy, $runs_first) = @$where;
	my $name = $cluster->name . ", $copy";
	my $ask = sub { $cluster->safe_psql($copy, $_[0]) };

	$cluster->safe_psql('postgres', "CREATE DATABASE $copy");
	if ($runs_first)
	{
		$ask->($first . $runs);
		tick($cluster, database => $copy);
		soon($cluster, 'SELECT count(*) FROM sweep.run_live', 0, "$name: the scheduler has archived runs before their jobs are there", $copy);
		$ask->($before . $after);
	}
	else
	{
		$cluster->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $copy, '-f', $dump ], "$name: psql");
		tick($cluster, database => $copy);
		is($ask->(q{SELECT string_agg(DISTINCT status || ' ' || job, ', ' ORDER BY status || ' ' || job) FROM sweep.runs}),
			'cancelled always, cancelled copy, succeeded drained', "$name: what was in progress has been cancelled, as far as the copy is concerned");
	}
	is($ask->('SELECT count(*) FROM t.target'), 10, "$name: ten rows are copied");
	is($ask->(q{SELECT string_agg(job || ' ' || n, ', ' ORDER BY job, n) FROM t.number}), 'always 1, always 2, drained 1, drained 2, drained 3, drained 4, forgets 1, forgets 2',
		"$name: two numbers are done");
	is($ask->('SELECT DISTINCT state FROM sweep.jobs'), 'paused: the database is a copy', "$name: all is paused");
	is($ask->(q{SELECT count(*) FROM sweep.runs WHERE status = 'waiting' OR trigger <> 'manual'}), 0, "$name: nothing waits, nor is tried again");
	is($ask->(q{SELECT (SELECT count(*) FROM sweep.queue_message) + (SELECT count(*) FROM t.started)}), 0, "$name: nobody is told");
	$ask->('SELECT sweep.resume_all()');
	is(ended_run($cluster, $ask->(q{SELECT sweep.start('copy')}), $copy), 'succeeded drained 3 10', "$name: the copy goes on with the eleventh row");
	is($ask->('SELECT count(*) FROM t.target'), 20, "$name: and all rows are there");
	is(ended_run($cluster, $ask->(q{SELECT sweep.start('always')}), $copy), 'succeeded drained 3 2', "$name: a step goes on with the third number");
	is(ended_run($cluster, $ask->(q{SELECT sweep.start('forgets')}), $copy), 'failed error 0 0', "$name: one that does not keep its cursor begins anew");
	is(ended_run($cluster, $ask->(q{SELECT sweep.start('drained')}), $copy), 'failed error 0 0', "$name: so does one that had drained");
	is($ask->("SELECT min(run_id) > $last FROM sweep.runs WHERE job = 'forgets'"), 't', "$name: runs have numbers of their own");
}

# ---------------------------------------------------------------- the original has not noticed
open_gate($_) for @gates;
is(ended_run($node, $copy), 'succeeded drained 5 20', 'the run that was in progress goes on to its end');
soon($node, q{SELECT count(*) FROM t.started WHERE job = 'told'}, 1, 'what was to start, has');
$node->stop;
$elsewhere->stop;
done_testing();
