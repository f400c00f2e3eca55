# room: base
# The lock: one at a time, whoever it is; a holder past its timeout is stopped,
# and with the holder the lock is gone.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('lock');

$node->safe_psql('postgres', q{
	CREATE FUNCTION t.slow(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.todo VALUES (100 + coalesce((b.cursor ->> 'n')::int, 0), b.run_id);
		IF (b.cursor ->> 'n')::int = 2 THEN
			PERFORM pg_advisory_xact_lock(21);
		END IF;
		RETURN ROW(1, jsonb_build_object('n', coalesce((b.cursor ->> 'n')::int, 0) + 1), NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.stubborn(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			BEGIN
				PERFORM pg_advisory_xact_lock(22);
				EXIT;
			EXCEPTION WHEN query_canceled THEN
				INSERT INTO t.overlap VALUES (b.run_id);
			END;
		END LOOP;
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.reluctant(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		asked int := 0;
	BEGIN
		WHILE asked < 2 LOOP
			BEGIN
				PERFORM pg_advisory_xact_lock(22);
			EXCEPTION WHEN query_canceled THEN
				asked := asked + 1;
			END;
		END LOOP;
		RAISE query_canceled;
	END $$;
	SELECT sweep.create_job('one', step => 't.note', lock_key => 'shared', args => '{"job": "one", "gate": 20, "alone": 72}');
	SELECT sweep.create_job('two', step => 't.note', lock_key => 'shared', args => '{"job": "two", "gate": 20, "alone": 72}');
	SELECT sweep.create_job('patient', step => 't.note', lock_key => 'shared', lock_retries => 10000, args => '{"job": "patient", "alone": 72}');
	SELECT sweep.create_job('slow', step => 't.slow', timeout => '6 s');
	SELECT sweep.create_job('stubborn', step => 't.stubborn', timeout => '5 s');
	SELECT sweep.create_job('reluctant', step => 't.reluctant', timeout => '1 s');
});

# ---------------------------------------------------------------- a runner and two sessions
my $gate = hold_gate($node, 20);
my $run = start('one');
at_gate($node, 20, 'a runner has the lock');
my $pid = $node->safe_psql('postgres', "SELECT pid FROM sweep.runs WHERE run_id = $run");
my @sessions = (session($node), session($node));
for my $session (@sessions)
{
	for my $job ('one', 'two')
	{
		$session->query("CALL sweep.run('$job')");
		like(end_query($session), qr/ERROR:  job "$job" was skipped: its lock "shared" is held\nDETAIL:  Process $pid holds it.\nHINT:  sweep.start\(\) runs it/,
			"a session that calls job $job is told who has the lock");
	}
	is($session->query_safe(q{SELECT sweep.try_lock('shared')}), 'f', 'a session cannot take the lock');
}
is(ended_run($node, due_run($node, 'two')), 'skipped skipped 0 0', 'another runner is skipped');
is($node->safe_psql('postgres', q{SELECT detail ->> 'reason', detail ->> 'holder_pid' FROM sweep.runs WHERE job = 'two' ORDER BY run_id DESC LIMIT 1}),
	"lock_held|$pid", 'and its row says who has the lock');
is($node->safe_psql('postgres', q{SELECT count(*), min(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 21335}),
	"1|$pid", 'the lock is in pg_locks');
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 1 0', 'the first run ends as usual');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'});

# a session has it
$gate = hold_gate($node, 20);
$pid = $sessions[0]->query_safe('SELECT pg_backend_pid()');
begin_query($sessions[0], q{CALL sweep.run('one')});
at_gate($node, 20, 'a session has the lock');
$run = due_run($node, 'two');
is(ended_run($node, $run), 'skipped skipped 0 0', 'a runner is skipped');
my ($status, $output, $message) = $node->psql('postgres', "\\set VERBOSITY verbose\nCALL sweep.wait($run)");
like($message, qr/ERROR:  55P03: run $run of job "two" was skipped: its lock was held\nHINT:  The detail of its row/, 'who waits for it is told so');
$sessions[1]->query(q{CALL sweep.run('two')});
like(end_query($sessions[1]), qr/DETAIL:  Process $pid holds it/, 'another session is told so');
my $patient = due_run($node, 'patient');
soon($node, "SELECT phase FROM sweep.running WHERE run_id = $patient", 'lock', 'a patient runner tries again');
open_gate($gate);
like(end_query($sessions[0]), qr/NOTICE:  job "one" run \d+: 0 rows in 1 batch, drained/, 'the session is told how its run ended');
is(ended_run($node, $patient), 'succeeded drained 1 0', 'the patient one has the lock then');

# everybody at once, many times
$node->safe_psql('postgres', q{SELECT sweep.alter_job(j, jsonb_build_object('args', jsonb_build_object('job', j, 'alone', 72), 'lock_retries', 10000))
	FROM unnest(ARRAY['one', 'two']) AS j});
my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM t.started');
my @runs;
begin_query($_, join(";\n", (q{CALL sweep.run('one')}, q{CALL sweep.run('two')}) x 10)) for @sessions;
push @runs, start($_) for ('one', 'two', 'patient') x 5;
unlike(end_query($_), qr/ERROR|skipped/, 'every call of a session has its turn') for @sessions;
is(scalar(grep { ended_run($node, $_) eq 'succeeded drained 1 0' } @runs), 15, 'every runner has its turn');
is($node->safe_psql('postgres', "SELECT count(*) - $before FROM t.started"), 55, 'all of them did their work');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.overlap'), 0, 'never two at a time');

# ---------------------------------------------------------------- taken by hand
is($sessions[0]->query_safe(q{SELECT sweep.try_lock('shared')}), 't', 'a session takes the lock');
$node->safe_psql('postgres', q{SELECT sweep.alter_job('one', '{"lock_retries": 0}')});
$run = due_run($node, 'one');
is(ended_run($node, $run), 'skipped skipped 0 0', 'runs keep away');
is($node->safe_psql('postgres', "SELECT detail ->> 'holder_pid' FROM sweep.runs WHERE run_id = $run"), $pid, 'and name the session');
is($sessions[0]->query_safe(q{SELECT sweep.release_lock('shared')}), 't', 'the session gives it back');
is(ended_run($node, start('one')), 'succeeded drained 1 0', 'and runs have it');
$sessions[0]->query(q{SELECT sweep.release_lock('shared')});
like(end_query($sessions[0]), qr/WARNING:  lock "shared" was not taken by this session/, 'nothing more to give back');
is($sessions[0]->query_safe(q{SELECT sweep.try_lock('shared')}), 't', 'a session takes it again');
$sessions[0]->quit;
soon($node, q{SELECT sweep.try_lock('shared')}, 't', 'with the session, the lock is gone');
$sessions[1]->quit;

# ---------------------------------------------------------------- one's own
# A session that has the lock may run the job, and has it still afterwards.
my $own = session($node);
take_lock($own, 'shared');
$own->query(q{CALL sweep.run('one')});
like(end_query($own), qr/NOTICE:  job "one" run \d+: 0 rows in 1 batch, drained/, 'a session with the lock runs the job');
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('shared')}), 'f', 'and has the lock still');
$own->query_safe(q{SELECT sweep.release_lock('shared')});
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('shared')}), 't', 'until it gives it back');
$own->quit;

# A step cannot give away the lock that it runs under, by no function, and not by an error of its own: the run fails once as
# a whole batch and once as half of one before it comes to the gate.
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql
		AS 'SELECT to_jsonb(i) FROM generate_series(coalesce(b.cursor::int, 0) + 1, 6) AS i LIMIT b.size';
	CREATE FUNCTION t.careless(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_unlock_all(), sweep.release_lock('careless');
		IF '2' = ANY (b.items) THEN
			RAISE check_violation;
		ELSIF '6' = ANY (b.items) THEN
			PERFORM pg_advisory_xact_lock(24);
		END IF;
		PERFORM pg_advisory_unlock_all();
		RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('careless', step => 't.careless', pick => 't.pick', batch_size => 4);
	SELECT sweep.create_job('kept away', step => 't.note', lock_key => 'careless', args => '{"job": "kept away"}');
});
$gate = hold_gate($node, 24);
$run = start('careless');
at_gate($node, 24, 'a step that gives up all locks is in its last batch');
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('careless')}), 'f', 'its run has the lock');
is(ended_run($node, due_run($node, 'kept away')), 'skipped skipped 0 0', 'which keeps others away');
is(tick($node, query => "SELECT status, sweep._run_is_alive(run_id) FROM sweep.runs WHERE run_id = $run"), 'running|t', 'the run is not lost');
open_gate($gate);
like(ended_run($node, $run), qr/^succeeded drained \d+ 5$/, 'and ends as usual');
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('careless')}), 't', 'its lock is free then');
# in a session, that is terminated in the middle of it
$gate = hold_gate($node, 24);
my $ended = session($node);
begin_query($ended, q{CALL sweep.run('careless')});
at_gate($node, 24, 'the same in a session');
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('careless')}), 'f', 'it has the lock');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM sweep.running WHERE job = 'careless'});
soon($node, q{SELECT sweep.try_lock('careless')}, 't', 'with the session, the lock is gone');
open_gate($gate);
forget_session($ended);

# ---------------------------------------------------------------- timeout
$gate = hold_gate($node, 21);
$run = start('slow');
at_gate($node, 21, 'the third batch is in progress');
is(ended_run($node, $run), 'failed timeout 2 2', 'a batch longer than the timeout is cancelled, the ones before stay');
is($node->safe_psql('postgres', "SELECT count(*) FROM t.todo WHERE run_id = $run"), 2, 'their rows, too, and no other');
like($node->safe_psql('postgres', "SELECT error FROM sweep.runs WHERE run_id = $run"),
	qr/^timeout of 6000 ms has passed\nDETAIL: 2 batches were committed, the one in flight was rolled back.\nHINT: Set a stop_after below timeout/,
	'the run says what to change');
$node->safe_psql('postgres', 'DELETE FROM t.todo');
$node->safe_psql('postgres', q{SELECT sweep.create_job('too_big', step => 't.note', args => '{"gate": 21}', timeout => '3 s')});
$run = start('too_big');
is(ended_run($node, $run), 'failed timeout 0 0', 'a job whose single batch is longer never gets on');
like($node->safe_psql('postgres', "SELECT error FROM sweep.runs WHERE run_id = $run"), qr/HINT: Not one batch fits into it: lower batch_size/,
	'and is told to lower batch_size');
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('too_big')});
like($message, qr/ERROR:  run \d+ of job "too_big" failed: timeout of 3000 ms has passed/, 'the same in a session');
open_gate($gate);
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('too_big')}), 't', 'its lock is free');

# It passes before the run has begun: while its buckets are counted, in a process of its own and in a session.
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.count(b sweep.batch) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(23);
		RETURN 2;
	END $$;
	SELECT sweep.create_job('uncounted', step => 't.note', buckets => 2, buckets_function => 't.count', timeout => '300 ms');
});
$gate = hold_gate($node, 23);
$run = start('uncounted');
is(ended_run($node, $run), 'failed timeout 0 0', 'a timeout that passes before the run has begun');
is($node->safe_psql('postgres', "SELECT sqlstate, error FROM sweep.runs WHERE run_id = $run"),
	"57014|timeout of 300 ms has passed\nDETAIL: The run had not begun: it was still busy with its buckets, or those of its children.\n"
	  . 'HINT: Raise timeout, or see what keeps the store of buckets or the buckets_function.', 'the run says what to look at');
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('uncounted')});
like($message, qr/ERROR:  run \d+ of job "uncounted" failed: timeout of 300 ms has passed/, 'a session is told the same');
is($node->safe_psql('postgres', q{SELECT status, stop_reason FROM sweep.runs WHERE job = 'uncounted' ORDER BY run_id DESC LIMIT 1}),
	'failed|timeout', 'and so is recorded');
$node->safe_psql('postgres', q{
	CREATE OR REPLACE FUNCTION t.count(b sweep.batch) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(23);
		RETURN 2;
	EXCEPTION WHEN query_canceled THEN
		RAISE query_canceled;
	END $$;
});
$run = start('uncounted');
is(ended_run($node, $run), 'failed timeout 0 0', 'the same where the function raises an error of its own for that');
$node->safe_psql('postgres', q{SELECT sweep.alter_job('uncounted', '{"timeout": null}')});
$run = start('uncounted');
at_gate($node, 23, 'without a timeout it waits');
$node->safe_psql('postgres', "SELECT sweep.cancel($run)");
is(ended_run($node, $run), 'cancelled cancelled 0 0', 'and is cancelled');
open_gate($gate);

# ---------------------------------------------------------------- the watchdog
$gate = hold_gate($node, 22);
$run = start('stubborn');
at_gate($node, 22, 'a step that swallows its cancellation is in progress');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}, 0, 'in a database without a scheduler');
like(ended_run($node, $run), qr/^(failed timeout|lost lost) 0 0$/, 'the watchdog ends it');
soon($node, q{SELECT sweep.try_lock('stubborn')}, 't', 'its lock is free');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.overlap}), 0, 'what it did is undone');
unlike(slurp_file($node->logfile), qr/terminated by signal|crash of another/, 'no process was killed for it');
# Its slot is that of a session next. That one asks itself once, and the watchdog at the same time or a second later.
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'}, 0, 'its slot is free');
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('reluctant')});
like($message, qr/ERROR:  run \d+ of job "reluctant" failed: timeout of 1000 ms has passed/, 'a session that has its slot is stopped, too');
is($node->safe_psql('postgres', q{SELECT finished_at - started_at < interval '6 s' FROM sweep.runs WHERE job = 'reluctant'}),
	't', 'and has not to wait for as long as the other one was asked');
open_gate($gate);

# A runner that stood still until its lock had passed.
$gate = hold_gate($node, 21);
$run = start('slow');
at_gate($node, 21, 'a batch is in progress');
$pid = $node->safe_psql('postgres', "SELECT pid FROM sweep.runs WHERE run_id = $run");
ok(kill_process('STOP', $pid), 'the runner stands still');
$node->poll_query_until('postgres', "SELECT clock_timestamp() > deadline + interval '100 ms' FROM sweep.running WHERE run_id = $run");
open_gate($gate);
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('slow')}), 'f', 'the lock cannot expire under its holder');
ok(kill_process('CONT', $pid), 'the runner goes on');
is(ended_run($node, $run), 'failed timeout 2 2', 'and ends: its timeout has passed');

# ---------------------------------------------------------------- a killed holder
$node->safe_psql('postgres', q{DELETE FROM t.todo; SELECT sweep.alter_job('slow', '{"timeout": "1 hour", "flush": "batch"}')});
$gate = hold_gate($node, 21);
$run = start('slow');
at_gate($node, 21, 'a run with a long lock is in progress');
crash_of($node, pid_of($node, 'runner'));
forget_session($gate);
is($node->safe_psql('postgres', q{SELECT sweep.try_lock('slow')}), 't', 'killed: the lock is free at once');
is(ended_run($node, $run), 'lost lost 2 2', 'killed: the run is lost');
# ---------------------------------------------------------------- number 24: lock_retry_delay, of the first retry as well
$node->safe_psql('postgres', q{SELECT sweep.create_job('retries', step => 't.note', lock_key => 'taken', lock_retries => 2, lock_retry_delay => '2 s')});
my $holder = session($node);
is($holder->query_safe(q{SELECT sweep.try_lock('taken')}), 't', '24: somebody holds the lock');
# of its schedule: what was started waits for its turn
$run = due_run($node, 'retries');
is(ended_run($node, $run), 'skipped skipped 0 0', '24: a run is skipped after its retries');
cmp_ok($node->safe_psql('postgres', "SELECT extract(epoch FROM finished_at - due_at) FROM sweep.runs WHERE run_id = $run"), '>=', 4, '24: each of which has waited');
# a request to cancel does not wait for the end of that
$node->safe_psql('postgres', q{SELECT sweep.alter_job('retries', '{"lock_retry_delay": "1 hour"}')});
$run = due_run($node, 'retries');
soon($node, "SELECT phase FROM sweep.running WHERE run_id = $run", 'lock', '24: another one waits for long');
$node->safe_psql('postgres', "SELECT sweep.cancel($run)");
is(ended_run($node, $run), 'cancelled cancelled 0 0', '24: and is cancelled at once');
$holder->quit;

# ---------------------------------------------------------------- keys of two roles
# Whoever takes a key, or names it as that of a job, keeps nobody else's runs away, before their job exists or after.
$node->safe_psql('postgres', q{CREATE ROLE owner LOGIN IN ROLE sweep_user; CREATE ROLE stranger LOGIN IN ROLE sweep_user; CREATE ROLE member LOGIN IN ROLE sweep_user, owner});
my @owner = (extra_params => [ '-U', 'owner' ]);
my $stranger = session($node, user => 'stranger');
is($stranger->query_safe(q{SELECT sweep.try_lock('theirs')}), 't', 'a stranger takes a key that is nobody else\'s yet');
$stranger->query_safe(q{SELECT sweep.create_job('in the way', step => 't.note', lock_key => 'theirs', args => '{"job": "in the way", "gate": 23}')});
$node->safe_psql('postgres', q{SELECT sweep.create_job('theirs', step => 't.note', args => '{"job": "theirs"}')}, @owner);
is(ended_run($node, start('theirs')), 'succeeded drained 1 0', 'and keeps no run of another role away');
is($stranger->query_safe(q{SELECT sweep.release_lock('theirs'), sweep.try_lock('theirs')}), 't|t', 'nor does one who takes it afterwards');
is(ended_run($node, start('theirs')), 'succeeded drained 1 0', 'the run of the other role has its lock');
$stranger->query_safe(q{SELECT sweep.release_lock('theirs')});
$gate = hold_gate($node, 23);
$run = start('in the way');
at_gate($node, 23, 'a job of the stranger runs with that key');
is(ended_run($node, start('theirs')), 'succeeded drained 1 0', 'beside one of another role with the same key');
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 1 0', 'it ends as usual');
$stranger->quit;
# who may act for the role of the job takes part
for my $user ('owner', 'member', undef)
{
	my $name = $user // 'a superuser';

	$holder = session($node, defined $user ? (user => $user) : ());
	is($holder->query_safe(q{SELECT sweep.try_lock('theirs')}), 't', "$name takes the key");
	is(ended_run($node, due_run($node, 'theirs')), 'skipped skipped 0 0', "$name: runs keep away");
	is($node->safe_psql('postgres', q{SELECT sweep.try_lock('theirs')}), 'f', "$name: and others who may act for the role");
	is($holder->query_safe(q{SELECT sweep.release_lock('theirs')}), 't', "$name gives it back");
	is(ended_run($node, start('theirs')), 'succeeded drained 1 0', "$name: and runs have it");
	$holder->quit;
}

# ---------------------------------------------------------------- a table of locks that is full
$node->safe_psql('postgres', q{DO $$ BEGIN FOR n IN 1 .. 40 LOOP
	EXECUTE format('CREATE ROLE many_%s LOGIN IN ROLE sweep_user', n);
	PERFORM sweep.create_job('many ' || n, sql => 'SELECT 1', lock_key => 'many', run_as => ('many_' || n)::regrole);
END LOOP; END $$});
$holder = session($node);
$holder->query_safe(q{DO $$ BEGIN PERFORM pg_advisory_lock(n) FROM generate_series(1, 1000000) AS n; EXCEPTION WHEN out_of_memory THEN NULL; END $$});
$holder->query_safe('SELECT pg_advisory_unlock(n) FROM generate_series(1, 20) AS n');
my $of_jobs = 'SELECT count(*) FROM pg_locks WHERE objsubid = 21335 AND pid = pg_backend_pid()';
is($holder->query_safe(q{DO $$ BEGIN PERFORM sweep.try_lock('many'); RAISE EXCEPTION 'all of them fit'; EXCEPTION WHEN out_of_memory THEN NULL; END $$; } . $of_jobs),
	'0', 'a key for which there is no room is not taken for some of its roles');
$holder->query_safe('SELECT pg_advisory_unlock_all()');
is($holder->query_safe("SELECT sweep.try_lock('many'); $of_jobs"), "t\n41", 'and for all of them when there is');
is($holder->query_safe("SELECT sweep.release_lock('many'); $of_jobs"), "t\n0", 'it is given back at once');
$holder->quit;

$node->stop;
done_testing();
