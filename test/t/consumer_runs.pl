# room: process
# Consumers in the database: effect and acknowledgement are one commit, what
# fails is retried alone, what a process held is free when it ends, and a
# message that brings the server down is moved to the dead-letter table.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('consumers', conf => [ 'pg_sweep.max_consumers = 6', 'autovacuum = off' ]);

# What a handler does is in the payload: fail_until: fails in the attempts
# before; gate: waits for that advisory lock; kill: ends its own process.
$node->safe_psql('postgres', q{
	CREATE TABLE t.handled (n int, message_id bigint, attempts int, pid int DEFAULT pg_backend_pid(), xid xid8 DEFAULT pg_current_xact_id());
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void
		LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
	AS $$
	BEGIN
		INSERT INTO t.handled VALUES ((m.payload -> 'n')::int, m.message_id, m.attempts);
		IF m.attempts < (m.payload ->> 'fail_until')::int THEN
			RAISE EXCEPTION 'message % is no good', m.payload -> 'n' USING DETAIL = 'It is a test.';
		END IF;
		IF m.payload ? 'gate' THEN
			PERFORM pg_advisory_xact_lock((m.payload ->> 'gate')::bigint);
		END IF;
		IF m.payload ? 'kill' THEN
			EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -9 ' || pg_backend_pid());
		END IF;
	END
	$$;
	CREATE FUNCTION t.numbers(first int, last int) RETURNS jsonb[] LANGUAGE sql
		AS $$ SELECT array_agg(jsonb_build_object('n', i) ORDER BY i) FROM generate_series(first, last) AS i $$;
});

# ---------------------------------------------------------------- handled once, in order
sql(q{
	SELECT sweep.create_queue('work', backoff => '100 ms');
	SELECT sweep.send_many('work', t.numbers(1, 100));
	SELECT sweep.create_consumer('work', 't.handle', batch => 10);
});
soon($node, 'SELECT count(*) FROM t.handled', 100, 'what waited when the consumer was created is handled');
is(sql('SELECT count(DISTINCT n), count(DISTINCT xid), max(attempts) FROM t.handled'), '100|10|1', 'once each, ten per transaction');
is(sql('SELECT array_agg(n ORDER BY xid, n) = array_agg(n ORDER BY n) FROM t.handled'), 't', 'in the order of sending');
soon($node, q{SELECT depth, in_flight FROM sweep.queues WHERE queue = 'work'}, '0|0', 'and gone from the queue');
soon($node, 'SELECT queue, handler, concurrency, batch, state, workers, handled, failed FROM sweep.consumers',
	'work|t.handle|1|10|running|1|100|0', 'sweep.consumers says so');
is(sql(q{SELECT backend_type, application_name, usename FROM pg_stat_activity WHERE backend_type = 'pg_sweep consumer'}),
	'pg_sweep consumer|pg_sweep: work|postgres', 'so does pg_stat_activity');

# ---------------------------------------------------------------- idle: nothing held, no time used, woken at once
my $pid = pid_of($node, 'consumer');
soon($node, "SELECT state, backend_xmin IS NULL, xact_start IS NULL FROM pg_stat_activity WHERE pid = $pid", 'idle|t|t', 'an idle consumer has no transaction');
my $before = cpu_seconds($pid);
my $session = session($node);
for my $n (101 .. 150)
{
	$session->query_safe(qq{SELECT sweep.send('work', '{"n": $n}')});
	$node->poll_query_until('postgres', "SELECT count(*) FROM t.handled WHERE n = $n", 1) or last;
}
is(sql('SELECT count(*) FROM t.handled WHERE n > 100'), 50, 'an idle consumer is woken by each message');
cmp_ok(cpu_seconds($pid) - $before, '<', 2, 'and uses little time for that');
is(pid_of($node, 'consumer'), $pid, 'it is still the same process');

# ---------------------------------------------------------------- altered
# What is in hand is finished as it was begun, and all that follows is done as the consumer is then.
sql(q{CREATE FUNCTION t.handle_other(m sweep.message) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS 'INSERT INTO t.handled VALUES (-(m.payload -> $$n$$)::int)'});
my $altered_gate = hold_gate($node, 5);
sql(q{SELECT sweep.send('work', '{"n": 201, "gate": 5}')});
at_gate($node, 5, 'altered: a message is in hand');
sql(q{SELECT sweep.alter_consumer('work', '{"handler": "t.handle_other"}'), sweep.send('work', '{"n": 202}')});
soon($node, 'SELECT count(*) FROM t.handled WHERE n = -202', 1, 'altered: the next one is handled by another function');
open_gate($altered_gate);
soon($node, 'SELECT count(*) FROM t.handled WHERE n = 201', 1, 'altered: the one in hand was finished by the first');
sql(q{SELECT sweep.create_consumer('work', 't.handle', batch => 10, replace => true)});
soon($node, q{SELECT handler, workers FROM sweep.consumers WHERE queue = 'work'}, 't.handle|1', 'replaced: there is a process');
sql(q{SELECT sweep.send('work', '{"n": 203}')});
soon($node, 'SELECT count(*) FROM t.handled WHERE n = 203', 1, 'replaced: with the first function again');

# ---------------------------------------------------------------- failures
sql('TRUNCATE t.handled');
sql(q{SELECT sweep.send_many('work', ARRAY(SELECT jsonb_build_object('n', i) || CASE WHEN i = 7 THEN '{"fail_until": 3}' ELSE '{}'::jsonb END
	FROM generate_series(1, 10) AS i))});
soon($node, 'SELECT count(*) FROM t.handled', 10, 'a batch with a message that fails');
is(sql('SELECT n, attempts FROM t.handled WHERE attempts > 1'), '7|3', 'only that one is tried again, until it succeeds');
is(sql('SELECT count(DISTINCT n) FROM t.handled'), 10, 'and nothing of a try that failed stays');
is(sql('SELECT failed FROM sweep.consumers'), 2, 'its failures are counted');
like(sql('SELECT last_error FROM sweep.consumers'), qr/^message 7 is no good\nDETAIL: It is a test\./, 'with the error');
sql(q{SELECT sweep.drop_consumer('work'); SELECT sweep.drop_queue('work'); TRUNCATE t.handled});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep consumer'}, 0, 'a consumer that is dropped ends its process');

sql(q{
	SELECT sweep.create_queue('work', max_attempts => 2, backoff => '0');
	SELECT sweep.create_consumer('work', 't.handle', batch => 10);
	SELECT sweep.send_many('work', '{"{\"n\": 1, \"fail_until\": 99}", "{\"n\": 2}"}');
});
soon($node, q{SELECT count(*) FROM sweep.dead('work')}, 1, 'a message that always fails is moved to the dead-letter table');
is(sql(q{SELECT payload -> 'n', attempts, error ->> 'sqlstate', error ->> 'message', error ->> 'detail', error ->> 'context' ~ 't.handle' FROM sweep.dead('work')}),
	'1|2|P0001|message 1 is no good|It is a test.|t', 'after max_attempts, with its error');
is(sql(q{SELECT sweep.redrive('work', '{"error": {"message": "message 1 is no good"}}', dry_run => true),
	sweep.redrive('work', '{"error": {"sqlstate": "P0001"}}', dry_run => true), sweep.redrive('work', '{"error": {"sqlstate": "22012"}}', dry_run => true)}),
	'1|1|0', 'by which it is found');
soon($node, 'SELECT n FROM t.handled', 2, 'the other one is handled');

# ---------------------------------------------------------------- a process that is terminated
sql('TRUNCATE t.handled');
my $gate = hold_gate($node, 5);
sql(q{SELECT sweep.send('work', '{"n": 20, "gate": 5}')});
at_gate($node, 5, 'a message is being handled');
is(sql(q{SELECT in_flight FROM sweep.queues WHERE queue = 'work'}), 1, 'it is in flight');
$pid = pid_of($node, 'consumer');
is(sql("SELECT pg_terminate_backend($pid, 100000)"), 't', 'its process is terminated');
at_gate($node, 5, 'the next process handles it at once');
isnt(pid_of($node, 'consumer'), $pid, 'another one');
open_gate($gate);
soon($node, 'SELECT count(*) FROM t.handled', 1, 'its effect is there once');
soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'work'}, 0, 'and the message gone');

# ---------------------------------------------------------------- cancelling the statement fails the message
$gate = hold_gate($node, 5);
sql(q{SELECT sweep.send('work', '{"n": 21, "gate": 5}')});
at_gate($node, 5, 'a message is being handled');
$pid = pid_of($node, 'consumer');
sql("SELECT pg_cancel_backend($pid)");
soon($node, q{SELECT failed FROM sweep.consumers}, 1, 'pg_cancel_backend makes its handler fail');
at_gate($node, 5, 'and it is tried again');
is(pid_of($node, 'consumer'), $pid, 'by the same process');
open_gate($gate);
soon($node, 'SELECT count(*) FROM t.handled WHERE n = 21 AND attempts = 2', 1, 'successfully');

# ---------------------------------------------------------------- what fails at the commit fails as well
sql(q{
	CREATE TABLE t.late (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED);
	CREATE FUNCTION t.insert_late(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.late VALUES ((m.payload -> ''n'')::int)';
	SELECT sweep.create_queue('late', max_attempts => 1);
	SELECT sweep.send_many('late', ARRAY(SELECT jsonb_build_object('n', i % 10) FROM generate_series(0, 10) AS i));
	SELECT sweep.create_consumer('late', 't.insert_late', batch => 20);
});
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'late'}, '0|1', 'a constraint that is checked at the commit fails one message');
is(sql('SELECT count(*) FROM t.late'), 10, 'and the others are done');
sql(q{SELECT sweep.drop_queue('late')});

# ---------------------------------------------------------------- the statement timeout of the role
sql(q{
	ALTER ROLE jobber SET statement_timeout = '5s';
	CREATE FUNCTION t.slow(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep((m.payload ->> ''for'')::float) -- the sleep is the work';
});
$node->safe_psql('postgres', q{SELECT sweep.create_queue('slow', max_attempts => 1); SELECT sweep.create_consumer('slow', 't.slow')}, extra_params => [ '-U', 'jobber' ]);
sql(q{SELECT sweep.send_many('slow', '{"{\"for\": 0}", "{\"for\": 3600}", "{\"for\": 0}"}')});
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'slow'}, '0|1', 'a call that takes longer than statement_timeout fails');
like(sql(q{SELECT error ->> 'message' FROM sweep.dead('slow')}), qr/canceling statement due to statement timeout/, 'with its error');
sql(q{SELECT sweep.drop_queue('slow'); ALTER ROLE jobber RESET statement_timeout});

# ---------------------------------------------------------------- pause, resume, concurrency
sql(q{SELECT sweep.pause_consumer('work')});
soon($node, 'SELECT state, workers FROM sweep.consumers', 'paused|0', 'paused: no process');
sql(q{SELECT sweep.send('work', '{"n": 30}')});
is(sql(q{SELECT ready FROM sweep.queues WHERE queue = 'work'}), 1, 'paused: messages wait');
sql(q{SELECT sweep.resume_consumer('work')});
soon($node, 'SELECT count(*) FROM t.handled WHERE n = 30', 1, 'resumed: they are handled');
sql(q{SELECT sweep.drop_consumer('work'); SELECT sweep.create_consumer('work', 't.handle', concurrency => 4)});
$gate = hold_gate($node, 6);
sql(q{SELECT sweep.send('work', '{"gate": 6}') FROM generate_series(1, 4)});
soon($node, 'SELECT count(*) FROM pg_locks WHERE ' . SweepTest::gate_condition(6), 4, 'four processes handle four messages at a time');
sql(q{SELECT sweep.create_queue('more'); SELECT sweep.create_consumer('more', 't.handle', concurrency => 4)});
soon($node, q{SELECT state, workers FROM sweep.consumers WHERE queue = 'more'}, 'waiting_for_slot|2', 'no more processes than pg_sweep.max_consumers');
ok($node->wait_for_log(qr/All of pg_sweep.max_consumers = \d+ are in use/), 'the log says what to raise');
open_gate($gate);
sql(q{SELECT sweep.drop_consumer('work')});
soon($node, q{SELECT state, workers FROM sweep.consumers WHERE queue = 'more'}, 'running|4', 'more when others end');
sql(q{SELECT sweep.pause_all()});
soon($node, q{SELECT state, workers FROM sweep.consumers WHERE queue = 'more'}, 'paused: by pause_all|0', 'pause_all pauses consumers, too');
sql(q{SELECT sweep.resume_all()});
soon($node, q{SELECT state, workers FROM sweep.consumers WHERE queue = 'more'}, 'running|4', 'and resume_all resumes them');
sql(q{SELECT sweep.drop_queue('more')});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep consumer'}, 0, 'drop_queue ends its consumer, too');

# ---------------------------------------------------------------- a handler that goes away
sql(q{
	CREATE FUNCTION t.passing(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.handled (n) VALUES (40)';
	SELECT sweep.create_consumer('work', 't.passing');
});
soon($node, 'SELECT workers FROM sweep.consumers', 1, 'a consumer is there');
sql(q{DROP FUNCTION t.passing; SELECT sweep.send('work', '{}')});
soon($node, 'SELECT state, workers FROM sweep.consumers', 'broken: function t.passing(sweep.message) or (sweep.message[]) does not exist|0', 'its handler is dropped: broken');
is(sql(q{SELECT ready, dead FROM sweep.queues WHERE queue = 'work'}), '1|1', 'its message waits and is not counted as failed');
sql(q{CREATE FUNCTION t.passing(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.handled (n) VALUES (40)'; SELECT sweep.resume_consumer('work')});
soon($node, 'SELECT count(*) FROM t.handled WHERE n = 40', 1, 'it is created again: handled');

# ---------------------------------------------------------------- one of the same name is another one
sql(q{
	CREATE TABLE t.who_handled (who text);
	CREATE FUNCTION t.old(m sweep.message) RETURNS void LANGUAGE sql AS $$INSERT INTO t.who_handled VALUES ('old')$$;
	CREATE FUNCTION t.new(m sweep.message) RETURNS void LANGUAGE sql AS $$INSERT INTO t.who_handled VALUES ('new')$$;
});
for my $n (1 .. 5)
{
	sql(q{SELECT sweep.create_queue('again'); SELECT sweep.create_consumer('again', 't.old')});
	soon($node, q{SELECT workers FROM sweep.consumers WHERE queue = 'again'}, 1, "a queue with a consumer ($n)");
	sql(q{BEGIN; SELECT sweep.drop_queue('again'); SELECT sweep.create_queue('again'); SELECT sweep.send('again', '1');
		SELECT sweep.create_consumer('again', 't.new'); COMMIT});
	soon($node, 'SELECT count(*) FROM t.who_handled', $n, "dropped and created again: it is handled ($n)");
	sql(q{SELECT sweep.drop_queue('again')});
}
is(sql('SELECT DISTINCT who FROM t.who_handled'), 'new', 'by the new handler');

# ---------------------------------------------------------------- a handler cannot act for the extension
sql(q{
	SELECT sweep.drop_consumer('work');
	CREATE TABLE t.identity (session name, current name, path text);
	GRANT INSERT ON t.identity TO jobber;
	CREATE FUNCTION t.who(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO t.identity VALUES (session_user, current_user, current_setting('search_path'));
		RESET ROLE;
		RESET SESSION AUTHORIZATION;
		INSERT INTO t.identity VALUES (session_user, current_user, current_setting('search_path'));
		PERFORM set_config('search_path', 't, public', false), set_config('default_transaction_read_only', 'on', false),
			set_config('default_transaction_isolation', 'serializable', false);
		SET ROLE sweep_user;
	END $$;
});
$node->safe_psql('postgres', q{SELECT sweep.create_queue('own'); SELECT sweep.create_consumer('own', 't.who')}, extra_params => [ '-U', 'jobber' ]);
sql(q{SELECT sweep.send('own', '1')});
soon($node, 'SELECT count(*) FROM t.identity', 2, 'a consumer of an ordinary role works');
sql(q{SELECT sweep.send_many('own', '{2,3}')});
soon($node, 'SELECT count(*) FROM t.identity', 6, 'also after a handler has left settings behind');
is(sql('SELECT DISTINCT session, current, path FROM t.identity'), 'jobber|jobber|pg_catalog, pg_temp', 'as that role, whatever it resets or leaves behind');
sql(q{SELECT sweep.drop_queue('own')});

# ---------------------------------------------------------------- kill -9: the server restarts, nothing is lost
sql(q{SELECT sweep.create_consumer('work', 't.handle', concurrency => 2, batch => 5); TRUNCATE t.handled});
$gate = hold_gate($node, 5);
sql(q{SELECT sweep.send_many('work', t.numbers(1, 20)); SELECT sweep.send('work', '{"n": 21, "gate": 5}')});
at_gate($node, 5, 'killed: a message is being handled');
soon($node, 'SELECT count(*) FROM t.handled', 20, 'killed: all others are done');
crash_of($node, sql('SELECT pid FROM pg_locks WHERE ' . SweepTest::gate_condition(5)));
forget_session($gate);
soon($node, 'SELECT count(*) FROM t.handled WHERE n = 21', 1, 'killed: it is handled after the restart');
soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'work'}, 0, 'killed: the queue is empty');
is(sql('SELECT count(*), count(DISTINCT n) FROM t.handled'), '21|21', 'killed: each effect is there once');
soon($node, 'SELECT count(*) FROM sweep.consumer_crash', 0, 'killed: a message that is done is no suspect any more');

# ---------------------------------------------------------------- poison
sql(q{TRUNCATE t.handled; SELECT sweep.pause_consumer('work')});
soon($node, 'SELECT workers FROM sweep.consumers', 0, 'poison: paused');
my $offset = -s $node->logfile;
# The server may go down before this session is told that its last statement is committed.
$node->psql('postgres', q{SELECT sweep.send_many('work', ARRAY(SELECT jsonb_build_object('n', i) || CASE WHEN i = 7 THEN '{"kill": true}' ELSE '{}'::jsonb END
	FROM generate_series(1, 20) AS i)); SELECT sweep.resume_consumer('work')});
$node->wait_for_log(qr/was moved to the dead-letter table: the server went down 3 times/, $offset);
wait_for_server($node);
soon($node, 'SELECT count(DISTINCT n) FROM t.handled', 19, 'poison: all other messages are handled');
is(sql('SELECT count(*) FROM t.handled'), 19, 'poison: once');
is(sql(q{SELECT payload -> 'n' FROM sweep.dead('work') WHERE payload ? 'kill'}), 7, 'poison: the guilty one is among the dead');
my $restarts = () = slurp_file($node->logfile, $offset) =~ /all server processes terminated; reinitializing/g;
is($restarts, 3, 'poison: the server went down three times');
is(sql('SELECT count(*) FROM sweep.consumer_crash'), 0, 'poison: no suspects are left');

# ---------------------------------------------------------------- a suspected message is kept from nobody by a lease that anybody can take
sql(q{SELECT sweep.pause_consumer('work')});
soon($node, 'SELECT workers FROM sweep.consumers', 0, 'suspect: paused');
my $taker = session($node, user => 'jobber');
$taker->query_safe(q{SELECT sweep.try_lock('pg_sweep: suspected messages')});
$gate = hold_gate($node, 5);
sql(q{TRUNCATE t.handled;
	INSERT INTO sweep.consumer_crash SELECT queue_id, sweep.send('work', '{"n": 30, "gate": 5}'), 1, now() FROM sweep.queue WHERE name = 'work';
	SELECT sweep.resume_consumer('work')});
at_gate($node, 5, 'suspect: a message during which the server went down once is handled');
is(sql(q{SELECT string_agg(objsubid::text, ' ' ORDER BY objsubid) FROM pg_locks
	WHERE locktype = 'advisory' AND granted AND objsubid > 2 AND pid = (SELECT pid FROM pg_locks WHERE } . SweepTest::gate_condition(5) . ')'),
	'21342', 'suspect: under a lock of a class that no function of SQL takes');
open_gate($gate);
soon($node, 'SELECT count(*) FROM t.handled WHERE n = 30', 1, 'suspect: it is done');
$taker->quit;

# ---------------------------------------------------------------- getting out of the way
$node->safe_psql('postgres', 'CREATE DATABASE other');
prepare_database($node, 'other');
$node->safe_psql('other', q{CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT 1';
	SELECT sweep.create_queue('work'); SELECT sweep.create_consumer('work', 't.handle', concurrency => 2)});
soon($node, 'SELECT workers FROM sweep.consumers', 2, 'a consumer in another database', 'other');
is($node->psql('postgres', 'ALTER DATABASE other RENAME TO another'), 0, 'renaming a database with idle consumers');
soon($node, 'SELECT workers FROM sweep.consumers', 2, 'they come back', 'another');
is($node->psql('another', 'DROP EXTENSION pg_sweep CASCADE'), 0, 'dropping the extension under them');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'another' AND backend_type LIKE 'pg_sweep%'}, 0, 'they leave', 'postgres');
$node->safe_psql('another', 'CREATE EXTENSION pg_sweep');
$node->safe_psql('another', q{CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT 1';
	SELECT sweep.create_queue('work'); SELECT sweep.create_consumer('work', 't.handle', concurrency => 2)});
soon($node, 'SELECT workers FROM sweep.consumers', 2, 'created again', 'another');
is($node->psql('postgres', 'DROP DATABASE another'), 0, 'dropping a database with idle consumers');

is(sql(q{SELECT count(*) FROM pg_ls_dir('pg_stat_tmp') AS file WHERE file LIKE 'pg\_sweep.%'}), 2, 'one note per process, none of those that have ended');
$node->stop;
is(scalar(() = glob($node->data_dir . '/pg_stat_tmp/pg_sweep.*')), 0, 'none after the server has stopped');
done_testing();
