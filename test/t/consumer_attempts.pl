# room: process
# What counts as an attempt of a message: that its handler was called. Neither the end of a process, nor a crash, nor an
# error of the server costs a message that has nothing to do with it its attempts; a message that causes one itself is dead
# in the end.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# What is used after it was freed is something else then.
$ENV{MALLOC_PERTURB_} = 165;
my $node = new_cluster('consumer_attempts', conf => [ 'autovacuum = off' ]);

# A payload has n and what is done with it: gate: waits for that advisory lock; fail: raises that SQLSTATE, while there is a row in t.outage
# if outage is set. t.calls counts calls: what was rolled back, too.
$node->safe_psql('postgres', q{
	CREATE TABLE t.handled (n int, attempts int);
	CREATE TABLE t.outage (state text);
	CREATE SEQUENCE t.calls;
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF m.payload ? 'gate' THEN
			PERFORM pg_advisory_xact_lock((m.payload -> 'gate')::bigint);
		END IF;
		IF m.payload ? 'fail' AND (NOT m.payload ? 'outage' OR EXISTS (SELECT FROM t.outage)) THEN
			PERFORM nextval('t.calls');
			RAISE EXCEPTION 'raised' USING ERRCODE = m.payload ->> 'fail';
		END IF;
		INSERT INTO t.handled VALUES ((m.payload -> 'n')::int, m.attempts);
	END
	$$;
	CREATE FUNCTION t.handle_all(m sweep.message[]) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM t.handle(a) FROM unnest(m) AS a;
	END
	$$;
	CREATE FUNCTION t.messages(first int, last int, special int, what jsonb) RETURNS jsonb[] LANGUAGE sql
		AS $$ SELECT array_agg(jsonb_build_object('n', i) || CASE WHEN i = special THEN what ELSE '{}' END ORDER BY i) FROM generate_series(first, last) AS i $$;
});

# The handler, which leaves its session unable to write.
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.handle_once(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM t.handle(m), set_config('default_transaction_read_only', 'on', false);
	END
	$$;
});

# A queue whose consumer has claimed what was sent in one batch.
sub begin_case
{
	my ($messages, %option) = @_;
	my $handler = $option{handler} // 't.handle';
	my $attempts = $option{max_attempts} // 2;

	sql(qq{
		TRUNCATE t.handled, t.outage;
		SELECT setval('t.calls', 1, false);
		SELECT sweep.create_queue('q', backoff => '0', max_attempts => $attempts);
		SELECT sweep.send_many('q', $messages);
		SELECT sweep.create_consumer('q', '$handler', batch => 100);
	});
}

sub end_case
{
	sql(q{SELECT sweep.drop_queue('q')});
}

# ---------------------------------------------------------------- a process that is terminated
my $gate = hold_gate($node, 1);
begin_case(q{t.messages(1, 100, 3, '{"gate": 1}')});
for my $round (1 .. 3)
{
	at_gate($node, 1, "terminated: the third of a hundred messages is being handled ($round)");
	sql('SELECT pg_terminate_backend(pid, 100000) FROM pg_locks WHERE ' . SweepTest::gate_condition(1)) if $round < 3;
	last if $round == 2;
}
soon($node, 'SELECT count(*) FROM t.handled', 97, 'terminated: what was behind it is handled');
is(sql('SELECT count(*), max(attempts) FROM t.handled WHERE n > 3'), '97|1', 'terminated: in its first attempt');
is(sql(q{SELECT string_agg(payload ->> 'n', ' ' ORDER BY message_id), min(attempts), min(error ->> 'message') FROM sweep.dead('q')}),
	'1 2 3|2|the lease of its last delivery ran out', 'terminated: those that its handler was called for twice are dead');
open_gate($gate);
end_case();

# ---------------------------------------------------------------- a failure in a session in which nothing can be written
begin_case(q{t.messages(1, 2, 2, '{"fail": "P0001"}')}, handler => 't.handle_once', max_attempts => 1);
soon($node, q{SELECT payload ->> 'n', error ->> 'message' FROM sweep.dead('q')}, '2|cannot execute nextval() in a read-only transaction', 'a message that fails behind one whose handler has left settings is dead by its own error');
is(sql('SELECT n, attempts FROM t.handled'), '1|1', 'and the first one is done');
end_case();

# ---------------------------------------------------------------- a crash: which one was in hand
for my $case ([ 't.handle', '3' ], [ 't.handle_all', '1 2 3 4 5' ])
{
	my ($handler, $suspects) = @$case;

	$gate = hold_gate($node, 1);
	begin_case(q{t.messages(1, 5, 3, '{"gate": 1}')}, handler => $handler);
	at_gate($node, 1, "crash, $handler: the third of five messages is being handled");
	sql(q{SELECT sweep.pause_consumer('q')});
	crash_of($node, sql('SELECT pid FROM pg_locks WHERE ' . SweepTest::gate_condition(1)));
	forget_session($gate);
	soon($node, q{SELECT string_agg(m.payload ->> 'n', ' ' ORDER BY message_id) FROM sweep.consumer_crash JOIN sweep.queue_message m USING (queue_id, message_id)},
		$suspects, "crash, $handler: what it was called with is suspected");
	soon($node, q{SELECT string_agg(file, ' ') FROM pg_ls_dir('pg_stat_tmp') AS file WHERE file LIKE 'pg\_sweep.%'}, '', "crash, $handler: and the note of that is gone");
	sql(q{SELECT sweep.resume_consumer('q')});
	soon($node, 'SELECT count(*), max(attempts) FROM t.handled', '5|1', "crash, $handler: all are handled");
	end_case();
}

# ---------------------------------------------------------------- a suspect that does not return keeps no other role waiting
sub send_suspect
{
	my ($queue, $payload) = @_;

	sql("INSERT INTO sweep.consumer_crash SELECT queue_id, sweep.send(name, '$payload'), 1, now() FROM sweep.queue WHERE name = '$queue'");
}

$gate = hold_gate($node, 1);
sql(q{
	TRUNCATE t.handled;
	GRANT ALL ON ALL TABLES IN SCHEMA t TO jobber;
	SELECT sweep.create_queue('q');
	SELECT sweep.create_queue('other'), sweep.grant_queue('other', 'jobber', '{consume}');
});
send_suspect('q', '{"n": 1, "gate": 1}');
sql(q{SELECT sweep.create_consumer('q', 't.handle', concurrency => 2)});
at_gate($node, 1, 'suspects: one is being handled');
send_suspect('q', '{"n": 2}');
soon($node, q{SELECT in_flight FROM sweep.queues WHERE queue = 'q'}, 2, 'suspects: another process of its role has one, too');
send_suspect('other', '{"n": 3}');
sql(q{SELECT sweep.create_consumer('other', 't.handle', run_as => 'jobber')});
soon($node, 'SELECT n FROM t.handled', 3, 'suspects: one of another role is handled meanwhile, and none of its own');
open_gate($gate);
soon($node, 'SELECT count(*) FROM t.handled', 3, 'suspects: those of its own afterwards');
sql(q{SELECT sweep.drop_queue('other')});
end_case();

# A limit of time, so that they do not wait for ever: that of the role, which is tried here, or a minute.
sql(q{
	ALTER ROLE jobber SET statement_timeout = '1 s';
	SELECT sweep.create_queue('q', max_attempts => 1), sweep.grant_queue('q', 'jobber', '{consume}');
	INSERT INTO sweep.consumer_crash SELECT q.queue_id, sweep.send(q.name, '{"gate": 1}'), 1, now() FROM sweep.queue q;
});
$gate = hold_gate($node, 1);
sql(q{SELECT sweep.create_consumer('q', 't.handle', run_as => 'jobber')});
soon($node, q{SELECT error ->> 'sqlstate' FROM sweep.dead('q')}, '57014', 'suspects: one that takes too long fails');
open_gate($gate);
end_case();

# ---------------------------------------------------------------- an error of the server
for my $handler ('t.handle', 't.handle_all')
{
	sql(q{TRUNCATE t.handled; SELECT setval('t.calls', 1, false); INSERT INTO t.outage VALUES ('full');
		SELECT sweep.create_queue('q', backoff => '0', max_attempts => 1); SELECT sweep.send_many('q', t.messages(1, 5, 3, '{"fail": "53100", "outage": true}'))});
	sql(qq{SELECT sweep.create_consumer('q', '$handler', batch => 100)});
	soon($node, 'SELECT last_value > 3 FROM t.calls', 't', "server's error, $handler: the messages are tried several times");
	like(sql('SELECT last_error FROM sweep.consumers'), qr/raised/, "server's error, $handler: sweep.consumers says why");
	if ($handler eq 't.handle')
	{
		# Timers that go off each second must not cut a pause, after ten of which the attempt counts.
		$node->wait_for_log(qr/pauses for 3200 ms/);
		my ($begun, $ended) = map { slurp_file($node->logfile) =~ /^(\S+ \S+) .*pauses for $_ ms/m } (1600, 3200);
		cmp_ok(sql(qq{SELECT extract(epoch FROM timestamp '$ended' - timestamp '$begun')}), '>=', 1.59, 'a pause is as long as the log says');
	}
	sql('TRUNCATE t.outage');
	soon($node, 'SELECT count(*), max(attempts) FROM t.handled', '5|1', "server's error, $handler: when it has passed all are handled, in their first attempt");
	end_case();
}

# A reload ends a pause, so that the test has not to wait for all of them.
begin_case(q{t.messages(1, 5, 3, '{"fail": "58030"}')}, max_attempts => 1);
soon($node, q{SELECT count(*), (SELECT count(*) FROM t.handled) FROM sweep.dead('q'), pg_reload_conf()}, '1|4', 'always an error of the server: it counts in the end');
is(sql(q{SELECT payload -> 'n', error ->> 'sqlstate' FROM sweep.dead('q')}), '3|58030', 'always an error of the server: the one that raises it');
# ten times with all five of them, then with two and alone at most
like(sql('SELECT last_value FROM t.calls'), qr/^1[123]$/, 'always an error of the server: after ten pauses');
end_case();

# ---------------------------------------------------------------- out of memory, and whatever is the message's own
for my $state ('53200', '57014', 'P0001')
{
	begin_case(qq{t.messages(1, 5, 3, '{"fail": "$state"}')}, max_attempts => 1);
	soon($node, q{SELECT count(*), (SELECT count(*) FROM t.handled) FROM sweep.dead('q')}, '1|4', "$state: counts at once, for the message alone");
	cmp_ok(sql('SELECT last_value FROM t.calls'), '<=', 4, "$state: without a pause");
	end_case();
}

# ---------------------------------------------------------------- a process without memory
SKIP:
{
	skip 'no prlimit', 3 if system('prlimit --version > /dev/null 2>&1') != 0;

	# It takes all that the process may have, in settings of the transaction, and raises an error for which there is just room once, not twice.
	sql(q{
		CREATE FUNCTION t.exhaust(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			size int := 16000000;
			i int := 0;
			why text := repeat('why ', 250000);
			room text := repeat('room', 1500000);
		BEGIN
			PERFORM pg_advisory_xact_lock((m.payload -> 'gate')::bigint);
			WHILE size > 100000 LOOP
				BEGIN
					i := i + 1;
					PERFORM set_config('t.room' || i, repeat('x', size), true);
				EXCEPTION WHEN out_of_memory THEN
					size := size / 2;
				END;
			END LOOP;
			room := NULL;
			RAISE EXCEPTION 'exhausted' USING ERRCODE = 'out_of_memory', DETAIL = why, HINT = why;
		END
		$$;
	});
	$gate = hold_gate($node, 1);
	begin_case(q{ARRAY['{"gate": 1}'::jsonb]}, handler => 't.exhaust', max_attempts => 1);
	at_gate($node, 1, 'memory: the handler is called');
	my $pid = sql('SELECT pid FROM pg_locks WHERE ' . SweepTest::gate_condition(1));
	my ($size) = slurp_file("/proc/$pid/status") =~ /^VmSize:\s+(\d+) kB/m;
	system('prlimit', '--pid', $pid, '--as=' . ($size * 1024 + 100_000_000)) == 0 or die 'prlimit';
	open_gate($gate);
	soon($node, q{SELECT error ->> 'message' FROM sweep.dead('q')}, 'exhausted', 'memory: the message has failed with the error of its handler');
	is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE pid = } . $pid), 1, 'memory: its process goes on');
	end_case();
}

$node->stop;
done_testing();
