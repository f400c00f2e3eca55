# room: engine
# Hooks in the background: a chain of jobs, time-outs, kills, and shares of a
# divided job that end at once.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('hook_runs', conf => [ 'pg_sweep.max_running_jobs = 6', 'pg_sweep.max_share_per_role = 1' ]);

# Notes what it was told, and fails or waits when asked to.
sql(q{
	CREATE TABLE t.told (job text, parent jsonb);
	CREATE FUNCTION t.tell(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.told VALUES (b.args ->> 'name', b.args -> 'parent');
		IF b.args ? 'fail' THEN
			RAISE EXCEPTION 'as asked';
		ELSIF b.args ? 'gate' THEN
			PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::bigint, b.bucket);
		END IF;
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('first', step => 't.tell', args => '{"name": "first"}', on_success => '{"second": "0"}', on_failure => '{"third": "0"}');
	SELECT sweep.create_job('second', step => 't.tell', args => '{"name": "second"}', on_start => '{"fourth": "0"}', on_success => '{"third": "0"}');
	SELECT sweep.create_job('third', step => 't.tell', args => '{"name": "third"}');
	SELECT sweep.create_job('fourth', step => 't.tell', args => '{"name": "fourth"}');
});

# ---------------------------------------------------------------- a chain
my $run = sql(q{SELECT sweep.start('first')});
soon($node, q{SELECT string_agg(concat_ws(' ', job, parent ->> 'job', parent ->> 'status'), ', ' ORDER BY job) FROM t.told},
	'first, fourth second running, second first succeeded, third second succeeded', 'each job of a chain runs when the one before has ended');
is(sql(q{SELECT string_agg(c.job || ' ' || p.job || ' ' || c.hook_depth, ', ' ORDER BY c.run_id) FROM sweep.runs c JOIN sweep.runs p ON p.run_id = c.parent_run_id WHERE c.trigger = 'parent' AND c.job <> 'fourth'}),
	'second first 1, third second 2', 'and is tied to it');

# ---------------------------------------------------------------- one that waits will do, unless it begins too early
sql(q{
	CREATE TABLE t.loaded (run_id bigint);
	CREATE TABLE t.summed (n bigint);
	CREATE FUNCTION t.wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(8); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON t.loaded DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION t.wait_at_gate();
	CREATE FUNCTION t.load(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		INSERT INTO t.loaded VALUES (b.run_id); SELECT ROW(0, NULL, NULL)::sweep.progress $$;
	CREATE FUNCTION t.sum(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		INSERT INTO t.summed SELECT count(*) FROM t.loaded; SELECT ROW(0, NULL, NULL)::sweep.progress $$;
	SELECT sweep.create_job('load', step => 't.load', on_success => '{"sum": "0"}');
	SELECT sweep.create_job('sum', step => 't.sum');
});
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('sum')});
is(ended_run($node, sql(q{SELECT sweep.start('load')})), 'succeeded drained 1 0', 'a run has queued another one');
my $commit = hold_gate($node, 8);
$run = sql(q{SELECT sweep.start('load')});
at_gate($node, 8, 'the next one has ended, and has not committed it yet');
$holder->query_safe(q{SELECT sweep.release_lock('sum')});
tick($node);
open_gate($commit);
soon($node, q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL}, 0, 'all have ended');
is(sql('SELECT max(n) FROM t.summed'), 2, 'what was queued has found what both have done');
$holder->query_safe(q{SELECT sweep.try_lock('sum')});
sql(q{SELECT sweep.start('load'); SELECT sweep.start('load')});
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'load' AND status = 'succeeded'}, 4, 'two runs');
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'sum' AND status = 'waiting'}), 1, 'have queued one');
$holder->quit;
soon($node, 'SELECT max(n) FROM t.summed', 4, 'which has found what both have done');

# ---------------------------------------------------------------- failures
sub told
{
	return sql(q{WITH gone AS (DELETE FROM t.told WHERE job = 'third' RETURNING *)
		SELECT concat_ws('|', parent ->> 'run_id', parent ->> 'status', parent #>> '{error,sqlstate}', parent #>> '{error,message}') FROM gone});
}
sub third
{
	my ($name) = @_;

	soon($node, q{SELECT count(*) FROM t.told WHERE job = 'third'}, 1, $name);
}
sql('DELETE FROM t.told');
my $gate = hold_gate($node, 9);
sql(q{SELECT sweep.alter_job('first', '{"timeout": "300 ms", "step": "t.note", "args": {"gate": 9}}')});
$run = sql(q{SELECT sweep.start('first')});
is(ended_run($node, $run), 'failed timeout 0 0', 'a run whose time is over');
third('queues what is to follow a failure');
like(told(), qr/^$run\|failed\|57014\|timeout of 300 ms has passed$/, 'which is told so');
sql(q{SELECT sweep.alter_job('first', '{"timeout": null}')});
$run = sql(q{SELECT sweep.start('first')});
at_gate($node, 9, 'a run is in its step');
sql("SELECT pg_terminate_backend(pid) FROM sweep.runs WHERE run_id = $run");
is(ended_run($node, $run), 'lost lost 0 0', 'a run whose process is ended is lost');
third('which is a failure');
like(told(), qr/^$run\|lost\|process \d+ has ended without an outcome/, 'its error says what became of its process');
$run = sql(q{SELECT sweep.start('first')});
at_gate($node, 9, 'a run is in its step');
sql("SELECT sweep.cancel($run)");
is(ended_run($node, $run), 'cancelled cancelled 0 0', 'a run that is cancelled');
open_gate($gate);
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job IN ('second', 'third') AND status = 'waiting'}) . told(), '0', 'queues neither');

# ---------------------------------------------------------------- two shares end at once
# The lock that all of them end with is held until both want to end: neither sees the other one ended yet.
sql(q{
	SELECT sweep.create_job('divided', step => 't.tell', buckets => 2, args => '{"name": "divided"}', on_success => '{"third": "0"}', on_failure => '{"third": "0"}');
	DELETE FROM t.told;
});
my $wait = q{SELECT count(*) FROM sweep.running WHERE job = 'divided' AND phase = 'ending'};
my $ending = session($node);
sub shares_at_their_end
{
	my ($args) = @_;

	$ending->query_safe(q{BEGIN; SELECT sweep._try_lock_ending('divided')});
	$run = sql("SELECT sweep.start('divided', '$args')");
	soon($node, $wait, 2, 'two shares are about to end');
	is(sql(qq{SELECT count(*) FILTER (WHERE status = 'running'), count(*) FROM sweep.runs WHERE job = 'divided' AND $run IN (run_id, parent_run_id)}), '2|2', 'and have not');
}
shares_at_their_end('{}');
$ending->query_safe('COMMIT');
third('the last one of them queues what is to follow');
is(ended_run($node, $run), 'succeeded drained 1 0', 'the run that has divided the job');
soon($node, q{SELECT count(*) FROM sweep.running}, 0, 'and all others have ended');
is(sql(q{SELECT count(*) FROM sweep.runs WHERE job = 'third' AND parent_run_id IN (SELECT run_id FROM sweep.runs WHERE job = 'divided')}) . ' ' . told(), "1 $run|succeeded", 'one run is queued');

# Whatever the role of the job has its transactions see.
for my $level ('repeatable read', 'serializable')
{
	sql(qq{CREATE ROLE "of $level" LOGIN IN ROLE sweep_user; ALTER ROLE "of $level" SET default_transaction_isolation = '$level';
		GRANT ALL ON t.told TO "of $level";
		SELECT sweep.alter_job(name, '{"run_as": "\\"of $level\\""}') FROM sweep.jobs WHERE name IN ('divided', 'third')});
	shares_at_their_end('{}');
	$ending->query_safe('COMMIT');
	soon($node, q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL}, 0, "two shares whose transactions are $level");
	is(sql(q{SELECT string_agg(DISTINCT status, ', ') FROM sweep.runs WHERE job = 'divided'}), 'succeeded', 'succeed');
	is(told(), "$run|succeeded", 'and the last one of them queues what is to follow');
}
sql(q{SELECT sweep.alter_job(name, '{"run_as": "postgres"}') FROM sweep.jobs WHERE name IN ('divided', 'third')});

# Both have failed.
shares_at_their_end('{"fail": true}');
$ending->query_safe('COMMIT');
third('two that fail');
soon($node, q{SELECT count(*) FROM sweep.running}, 0, 'have ended');
is(sql("SELECT count(*) FROM sweep.runs WHERE job = 'third' AND parent_run_id = $run") . ' ' . told(), "1 $run|failed|P0001|as asked", 'and queue one run');

# One is killed while it waits to end: the scheduler waits for nobody, and says so when the lock is free.
shares_at_their_end('{}');
my $victim = sql(qq{SELECT run_id FROM sweep.runs WHERE job = 'divided' AND parent_run_id = $run});
sql("SELECT pg_terminate_backend(pid) FROM sweep.runs WHERE run_id = $victim");
soon($node, $wait, 1, 'one share is gone');
tick($node);
is(sql("SELECT status FROM sweep.runs WHERE run_id = $victim"), 'running', 'that is not recorded as long as another one is about to end');
is(ended_run($node, sql(q{SELECT sweep.start('fourth')})), 'succeeded drained 1 0', 'other jobs go on');
$ending->query_safe('COMMIT');
tick($node);
is(ended_run($node, $victim), 'lost lost 1 0', 'it is lost');
third('and the dispatch has failed');
like(told(), qr/^$run\|lost\|process \d+ has ended without an outcome[^|]*$/, 'once');
soon($node, q{SELECT count(*) FROM sweep.running}, 0, 'all have ended');
is(sql("SELECT count(*) FROM sweep.runs WHERE job = 'third' AND parent_run_id = $run"), 1, 'one run was queued');
$ending->quit;
$node->stop;
done_testing();
