# room: engine
# Steps of the wall clock: what comes after what is told by the order in which runs begin, and whatever waits is measured.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('clock_steps', clock => 1, conf => [ 'autovacuum = off' ]);

# ---------------------------------------------------------------- the clock of the test
my $seconds = 'SELECT extract(epoch FROM clock_timestamp())';
my $before = $node->safe_psql('postgres', $seconds);
set_clock($node, 3600);
cmp_ok($node->safe_psql('postgres', $seconds) - $before, '>=', 3599, 'the clock of the server is an hour ahead');
set_clock($node, 0);
cmp_ok($node->safe_psql('postgres', $seconds) - $before, '<', 3599, 'and right again');

# ---------------------------------------------------------------- the order of runs
# Each run of a job that keeps its cursor does one number.
$node->safe_psql('postgres', q{
	CREATE TABLE t.done (nth int GENERATED ALWAYS AS IDENTITY, job text, n int);
	CREATE FUNCTION t.next(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		here int := coalesce((b.cursor ->> 'n')::int, 0) + 1;
	BEGIN
		INSERT INTO t.done (job, n) VALUES (b.args ->> 'job', here);
		RETURN ROW(1, jsonb_build_object('n', here), NULL)::sweep.progress;
	END
	$$;
	SELECT sweep.create_job(name, step => 't.next', max_batches => 1, cursor => split_part(name, ' ', 1), args => jsonb_build_object('job', name))
		FROM unnest('{drain session,always session,drain worker,always worker,always late}'::text[]) AS name;
});

sub archived
{
	my ($name) = @_;

	soon($node, 'SELECT count(*) FROM sweep.run_live WHERE finished_at IS NOT NULL', 0, "$name: what has ended is in the history");
}

# With each run the clock is set back a little further.
for my $nth (1 .. 4)
{
	set_clock($node, 10 - 5 * $nth);
	$node->safe_psql('postgres', "CALL sweep.run('$_ session')") for ('drain', 'always');
	$node->safe_psql('postgres', "CALL sweep.wait(sweep.start('$_ worker'))") for ('drain', 'always');
	archived("run $nth") if $nth == 3;
}
set_clock($node, 0);
is($node->safe_psql('postgres', q{SELECT string_agg(job || ' ' || numbers, ', ' ORDER BY job)
		FROM (SELECT job, string_agg(n::text, ' ' ORDER BY nth) AS numbers FROM t.done GROUP BY job) AS done}),
	join(', ', map {"$_ 1 2 3 4"} ('always session', 'always worker', 'drain session', 'drain worker')),
	'each run goes on behind the last one, however the clock was set');

# A run that was queued early and begins late, after two that were queued after it.
my $queued = $node->safe_psql('postgres', q{SELECT sweep.start('always late', delay => '1 day')});
$node->safe_psql('postgres', q{CALL sweep.run('always late')}) for 1 .. 2;
$node->safe_psql('postgres', "UPDATE sweep.run_live SET due_at = clock_timestamp() WHERE run_id = $queued; SELECT sweep._wake(); CALL sweep.wait($queued)");
$node->safe_psql('postgres', q{CALL sweep.run('always late')});
archived('a late run');
$node->safe_psql('postgres', q{CALL sweep.run('always late')});
is($node->safe_psql('postgres', q{SELECT string_agg(n::text, ' ' ORDER BY nth) FROM t.done WHERE job = 'always late'}), '1 2 3 4 5',
	'and behind one that was queued earlier and began later');

# ---------------------------------------------------------------- timeouts
# A lock that has to be waited for arms a timeout, and PostgreSQL looks at all of them then.
$node->safe_psql('postgres', q{
	INSERT INTO t.todo SELECT generate_series(1, 4);
	SELECT sweep.create_job('long', step => 't.work', batch_size => 2, timeout => '30 days', args => '{"gate": 41}');
	SELECT sweep.create_job('called', step => 't.work', batch_size => 2, timeout => '10 min', args => '{"gate": 42}');
	SELECT sweep.create_job('statement', step => 't.work', batch_size => 2, settings => '{"statement_timeout": "10 min"}', args => '{"gate": 43}');
	SELECT sweep.create_job('late', step => 't.work', timeout => '3 s', args => '{"gate": 44}');
});

for my $case ([ 'long', 41, 26 * 86400 ], [ 'called', 42, 3600 ], [ 'statement', 43, 3600 ])
{
	my ($job, $number, $ahead) = @$case;
	my $gate = hold_gate($node, $number);
	my $caller = session($node);

	$node->safe_psql('postgres', 'UPDATE t.todo SET run_id = NULL');
	begin_query($caller, $job eq 'called' ? "CALL sweep.run('$job')" : "SELECT sweep.start('$job')");
	at_gate($node, $number);
	set_clock($node, $ahead);
	step_gate($node, $gate, $number);
	set_clock($node, 0);
	open_gate($gate);
	end_query($caller);
	soon($node, "SELECT concat_ws(' ', status, stop_reason, batches, rows) FROM sweep.runs WHERE job = '$job'", 'succeeded drained 3 4',
		"$job: no timeout passes because the clock is set ahead");
	$caller->quit;
}

my $gate = hold_gate($node, 44);
my $late = $node->safe_psql('postgres', q{UPDATE t.todo SET run_id = NULL; SELECT sweep.start('late')});
at_gate($node, 44);
set_clock($node, -3600);
is(ended_run($node, $late), 'failed timeout 0 0', 'nor does one fail to pass because it is set back');
set_clock($node, 0);
open_gate($gate);

# ---------------------------------------------------------------- queues
$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('leased', visibility => '3 s'), sweep.create_queue('held', visibility => '10 min'), sweep.create_queue('handled', max_attempts => 2);
	SELECT sweep.send('leased', '1'), sweep.send('held', '1'), sweep.send('held', '2', delay => '1 hour');
	SELECT sweep.grant_queue('handled', 'jobber', '{consume}');
	ALTER ROLE jobber SET statement_timeout = '10 min';
	CREATE TABLE t.handled (attempts int);
	GRANT ALL ON t.handled TO jobber;
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.handled VALUES (m.attempts);
		PERFORM pg_advisory_xact_lock(45, 1);
		PERFORM pg_advisory_xact_lock(45, 2);
	END
	$$;
	SET SESSION AUTHORIZATION jobber;
	SELECT sweep.create_consumer('handled', 't.handle');
});

my $waiter = session($node);
begin_query($waiter, q{CALL sweep.wait_for_message('handled', '3 s')});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL sweep.wait_for_message%' AND wait_event_type = 'Extension'}, 1, 'a session waits for messages');
set_clock($node, -3600);
is(end_query($waiter), "\n", 'it waits for 3 s, however far the clock is set back');
$waiter->quit;
# The clock of a machine that has none of its own is below 0 until it has heard of the time.
set_clock($node, 86400 - time());
is($node->psql('postgres', q{SET statement_timeout = '1 min'; CALL sweep.wait_for_message('handled', '100 ms')}), 0, 'nor does it wait longer in 1970');
set_clock($node, -3600);
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.claim('leased')}), 1, 'a message is claimed');
set_clock($node, -7200);
soon($node, q{SELECT count(*) FROM sweep.claim('leased')}, 1, 'and comes again when its lease has run out, by whichever clock');

set_clock($node, 0);
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.claim('held')}), 1, 'one of two messages is due');
set_clock($node, 7200);
is($node->safe_psql('postgres', q{SELECT string_agg(payload::text, ' ') FROM sweep.claim('held')}), 2,
	'when the clock is set ahead the other one is, and no lease has run out');
set_clock($node, 0);

$gate = hold_gate($node, 45);
$node->safe_psql('postgres', q{SELECT sweep.send('handled', '1')});
at_gate($node, 45);
set_clock($node, 3600);
step_gate($node, $gate, 45);
set_clock($node, 0);
open_gate($gate);
soon($node, q{SELECT count(*) FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) WHERE q.name = 'handled'}, 0, 'a message is handled while the clock is set ahead');
is($node->safe_psql('postgres', q{SELECT string_agg(attempts::text, ' ') FROM t.handled}), '1', 'in one attempt');

$node->stop;
done_testing();
