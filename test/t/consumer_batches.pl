# room: process
# Consumers whose handler takes sweep.message[]: a batch is one call and one commit. One that fails is halved until the
# message that fails stands alone, after a crash its messages are handled one by one, and nothing is handled twice.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('consumer_batches', conf => [ 'pg_sweep.max_consumers = 4', 'autovacuum = off' ]);

# What the handler does is in the payloads. "bad": fails with that sqlstate; "once": fails with it, but in the first call of
# all; "gate": waits for that advisory lock; "kill": ends its own process; "sleep": that long; "ack": acknowledges itself.
# A call is a line of the log, also when it fails, and when it does not a row.
$node->safe_psql('postgres', q{
	CREATE TABLE t.called (call int GENERATED ALWAYS AS IDENTITY, numbers int[], attempts int, xid xid8 DEFAULT pg_current_xact_id());
	CREATE SEQUENCE t.calls;
	GRANT ALL ON ALL TABLES IN SCHEMA t TO jobber;
	GRANT ALL ON ALL SEQUENCES IN SCHEMA t TO jobber;
	CREATE FUNCTION t.handle(messages sweep.message[]) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
	AS $$
	DECLARE
		nth int := nextval('t.calls');
		m sweep.message;
	BEGIN
		RAISE LOG 'called with % messages', cardinality(messages);
		INSERT INTO t.called (numbers, attempts) SELECT array_agg((u.payload -> 'n')::int), max(u.attempts) FROM unnest(messages) AS u;
		FOREACH m IN ARRAY messages LOOP
			IF m.payload ? 'bad' OR m.payload ? 'once' AND nth = 1 THEN
				RAISE EXCEPTION 'message % is no good', m.payload -> 'n' USING ERRCODE = coalesce(m.payload ->> 'bad', m.payload ->> 'once');
			END IF;
			IF m.payload ? 'gate' THEN
				PERFORM pg_advisory_xact_lock((m.payload ->> 'gate')::bigint);
			END IF;
			IF m.payload ? 'kill' THEN
				EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -9 ' || pg_backend_pid());
			END IF;
			IF m.payload ? 'ack' THEN
				PERFORM sweep.ack(m.lease, ARRAY[m.message_id]);
			END IF;
			IF m.payload ? 'release' THEN
				PERFORM sweep.release(m.lease);
			END IF;
			PERFORM pg_sleep((m.payload ->> 'sleep')::float); -- the sleep is the work
		END LOOP;
		RETURN cardinality(messages);
	END
	$$;
	-- messages 1 to last, of which those in "special" have that in their payload
	CREATE FUNCTION t.send(last int, special jsonb DEFAULT '{}') RETURNS bigint LANGUAGE sql AS $$
		SELECT sweep.send_many('work', array_agg(jsonb_build_object('n', i) || coalesce(special -> i::text, '{}') ORDER BY i))
		FROM generate_series(1, last) AS i
	$$;
});

my $offset;

# An empty queue with these messages and, once they are all there, its consumer.
sub begin
{
	my ($queue, $messages, $consumer) = @_;

	sql(q{SELECT sweep.drop_queue('work') FROM sweep.queues WHERE queue = 'work'});
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pg_sweep consumer'});
	$offset = -s $node->logfile;
	sql("TRUNCATE t.called; ALTER SEQUENCE t.calls RESTART; SELECT sweep.create_queue('work', $queue); SELECT t.send($messages); " .
		"SELECT sweep.create_consumer('work', 't.handle', $consumer)");
}

# The sizes of all calls since, in their order.
sub calls
{
	return join ' ', slurp_file($node->logfile, $offset) =~ /called with (\d+) messages/g;
}

# Each number once, of all that are not in the second argument.
sub handled_once
{
	my ($last, $but, $name) = @_;
	my $expected = sql("SELECT array_agg(i ORDER BY i) FROM generate_series(1, $last) AS i WHERE i <> ALL ('{$but}')");

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql('SELECT array_agg(n ORDER BY n) FROM t.called, unnest(numbers) AS n'), $expected, $name);
}

# ---------------------------------------------------------------- a batch is one call
begin(q{backoff => '100 ms'}, 105, 'batch => 10');
soon($node, q{SELECT depth, in_flight FROM sweep.queues WHERE queue = 'work'}, '0|0', 'what waited is handled');
is(calls(), join(' ', (10) x 10, 5), 'ten messages in each call');
is(sql('SELECT count(DISTINCT xid) FROM t.called'), 11, 'each is a transaction');
is(sql('SELECT array_agg(n ORDER BY call, place) = array_agg(n ORDER BY n) FROM t.called, unnest(numbers) WITH ORDINALITY AS u (n, place)'), 't',
	'in the order of the claim');
handled_once(105, '', 'each once');
soon($node, 'SELECT handler, batch, state, handled, failed FROM sweep.consumers', 't.handle|10|running|105|0', 'sweep.consumers counts messages');
sql(q{SELECT sweep.send('work', '{"n": 106}')});
soon($node, q{SELECT count(*) FROM t.called WHERE numbers = '{106}'}, 1, 'one message is an array of one');

begin(q{backoff => '100 ms'}, 3, 'batch => 1');
soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'work'}, 0, 'with a batch of one');
is(calls(), '1 1 1', 'so is each');

# ---------------------------------------------------------------- one of a hundred fails
begin(q{backoff => '1 h'}, q{100, '{"37": {"bad": "P0001"}}'}, 'batch => 100');
soon($node, q{SELECT depth, delayed, in_flight FROM sweep.queues WHERE queue = 'work'}, '1|1|0', 'one bad message: it waits for its retry');
is(calls(), '100 50 25 25 12 6 6 3 3 1 2 1 1 13 50', 'the batch was halved until it stood alone');
handled_once(100, 37, 'the others are done, once');
soon($node, q{SELECT handled, failed, substring(last_error FROM '^.*?(?=\n)') FROM sweep.consumers}, '99|1|message 37 is no good', 'and one failed, with its error');

begin('max_attempts => 1', q{16, '{"1": {"bad": "P0001"}, "9": {"bad": "22012"}}'}, 'batch => 16');
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|2', 'two bad messages are moved to the dead-letter table');
handled_once(16, '1,9', 'the others are done, once');
is(sql(q{SELECT string_agg(concat_ws(' ', payload -> 'n', attempts, error ->> 'sqlstate', error ->> 'message'), ', ' ORDER BY message_id) FROM sweep.dead('work')}),
	'1 1 P0001 message 1 is no good, 9 1 22012 message 9 is no good', 'each with its own error');

begin('max_attempts => 1', q{8, (SELECT jsonb_object_agg(i, '{"bad": "P0001"}'::jsonb) FROM generate_series(1, 8) AS i)}, 'batch => 8');
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|8', 'all are bad');
is(calls(), '8 4 2 1 1 2 1 1 4 2 1 1 2 1 1', 'each is found');

# ---------------------------------------------------------------- what is no fault of a message
for my $sqlstate ('40001', '40P01', '55P03')
{
	begin('max_attempts => 1', qq{8, '{"3": {"once": "$sqlstate"}}'}, 'batch => 8');
	soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|0', "an error $sqlstate that comes once fails no message");
	is(calls(), '8 4 4', 'the halves are done');
	handled_once(8, '', 'once');
}

# ---------------------------------------------------------------- a handler that acknowledges by itself
begin('max_attempts => 1', q{5, '{"4": {"ack": true}}'}, 'batch => 5');
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|1', 'a message that the handler acknowledges fails');
is(sql(q{SELECT payload -> 'n', error ->> 'message' FROM sweep.dead('work')}), '4|lease of queue "work" holds 0 of 1 message', 'that one');
handled_once(5, 4, 'the others are done, once');

# A release is no attempt: it would be handled again and again.
begin('max_attempts => 2, backoff => $$none$$', q{5, '{"4": {"release": true}}'}, 'batch => 5');
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|1', 'a message that the handler releases fails');
is(sql(q{SELECT payload -> 'n', attempts, error ->> 'message' FROM sweep.dead('work')}), '4|2|a handler cannot release its messages', 'as often as it may');
handled_once(5, 4, 'the others are done, once');

# ---------------------------------------------------------------- the statement timeout of the role is that of a call
sql(q{ALTER ROLE jobber SET statement_timeout = '5s'; SELECT sweep.drop_queue('work')});
$offset = -s $node->logfile;
sql(q{TRUNCATE t.called});
$node->safe_psql('postgres', q{SELECT sweep.create_queue('work', max_attempts => 1); SELECT t.send(3, '{"1": {"sleep": 3600}}');
	SELECT sweep.create_consumer('work', 't.handle', batch => 3)}, extra_params => [ '-U', 'jobber' ]);
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|1', 'a call that takes longer than statement_timeout is halved');
is(calls(), '3 1 2', 'until the slow message stands alone');
like(sql(q{SELECT error ->> 'message' FROM sweep.dead('work')}), qr/canceling statement due to statement timeout/, 'which fails with it');
handled_once(3, 1, 'the others are done, once');
sql(q{ALTER ROLE jobber RESET statement_timeout});

# ---------------------------------------------------------------- cancel and pause
my $gate = hold_gate($node, 5);
begin('max_attempts => 1', q{4, '{"2": {"gate": 5}}'}, 'batch => 4');
at_gate($node, 5, 'a batch is being handled');
my $pid = pid_of($node, 'consumer');
like(sql("SELECT query FROM pg_stat_activity WHERE pid = $pid"), qr/^work: 4 messages from \d+$/, 'pg_stat_activity says of how many messages');
is(sql(q{SELECT in_flight FROM sweep.queues WHERE queue = 'work'}), 4, 'they are in flight');
sql("SELECT pg_cancel_backend($pid)");
soon($node, "SELECT query ~ '^work: 2 messages from' AND wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid", 't', 'pg_cancel_backend has it halved');
sql(q{SELECT sweep.pause_consumer('work')});
soon($node, 'SELECT state, workers FROM sweep.consumers', 'paused|1', 'paused: what is in progress goes on');
open_gate($gate);
soon($node, 'SELECT state, workers FROM sweep.consumers', 'paused|0', 'to its end');
is(sql(q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}), '0|0', 'with all of the batch');
handled_once(4, '', 'once');

# ---------------------------------------------------------------- a process that is terminated
$gate = hold_gate($node, 5);
begin('max_attempts => 2', q{4, '{"2": {"gate": 5}}'}, 'batch => 4');
at_gate($node, 5, 'a batch is being handled');
$pid = pid_of($node, 'consumer');
is(sql("SELECT pg_terminate_backend($pid, 100000)"), 't', 'its process is terminated');
at_gate($node, 5, 'the next process handles it at once');
open_gate($gate);
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|0', 'and the batch is done');
handled_once(4, '', 'once');

# ---------------------------------------------------------------- the handler is replaced by one with another argument
# A call of what is gone is no failure of the message: that would wait for an hour. The messages follow in a transaction of their
# own: a commit can be seen before others hear of what has been dropped with it.
sql(q{
	CREATE TABLE t.turned (how text);
	CREATE FUNCTION t.turn(m sweep.message) RETURNS void LANGUAGE sql AS $$INSERT INTO t.turned VALUES ('one')$$;
	SELECT sweep.create_queue('turn', backoff => '1 h');
	SELECT sweep.send('turn', '1');
	SELECT sweep.create_consumer('turn', 't.turn', batch => 10);
});
soon($node, q{SELECT string_agg(how, ' ') FROM t.turned}, 'one', 'a handler of one message');
sql(q{BEGIN; DROP FUNCTION t.turn; CREATE FUNCTION t.turn(m sweep.message[]) RETURNS void LANGUAGE sql AS $$INSERT INTO t.turned SELECT 'array of ' || cardinality(m)$$; COMMIT});
sql(q{SELECT sweep.send_many('turn', '{2,3}')});
soon($node, q{SELECT string_agg(how, ', ') FROM t.turned}, 'one, array of 2', 'is replaced by one of a batch');
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'turn'}, '0|0', 'and nothing failed');
sql(q{BEGIN; DROP FUNCTION t.turn; CREATE FUNCTION t.turn(m sweep.message) RETURNS void LANGUAGE sql AS $$INSERT INTO t.turned VALUES ('one again')$$; COMMIT});
sql(q{SELECT sweep.send('turn', '4')});
soon($node, q{SELECT string_agg(how, ', ') FROM t.turned}, 'one, array of 2, one again', 'and back');
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'turn'}, '0|0', 'and nothing failed');
sql(q{SELECT sweep.drop_queue('turn')});

# ---------------------------------------------------------------- kill -9 in a batch: its messages are handled one by one
$gate = hold_gate($node, 5);
begin('max_attempts => 25', q{6, '{"2": {"gate": 5}}'}, 'batch => 6');
at_gate($node, 5, 'killed: a batch is being handled');
$offset = -s $node->logfile;
crash_of($node, sql('SELECT pid FROM pg_locks WHERE ' . SweepTest::gate_condition(5)));
forget_session($gate);
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|0', 'killed: it is handled after the restart');
is(calls(), '1 1 1 1 1 1', 'killed: by calls with one message');
handled_once(6, '', 'killed: each once');
soon($node, 'SELECT count(*) FROM sweep.consumer_crash', 0, 'killed: none is a suspect any more');
sql(q{SELECT t.send(6)});
soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'work'}, 0, 'killed: what is sent since is handled');
is(calls(), '1 1 1 1 1 1 6', 'killed: in one call');

# ---------------------------------------------------------------- a message that kills the server
begin('max_attempts => 25', q{10, '{"7": {"kill": true}}'}, 'batch => 10');
$node->wait_for_log(qr/was moved to the dead-letter table: the server went down 3 times/, $offset);
wait_for_server($node);
soon($node, q{SELECT depth, dead FROM sweep.queues WHERE queue = 'work'}, '0|1', 'poison: all but one are handled');
handled_once(10, 7, 'poison: once');
is(sql(q{SELECT payload -> 'n' FROM sweep.dead('work')}), 7, 'poison: the guilty one is among the dead');
my $restarts = () = slurp_file($node->logfile, $offset) =~ /all server processes terminated; reinitializing/g;
is($restarts, 3, 'poison: the server went down three times');
is(sql('SELECT count(*) FROM sweep.consumer_crash'), 0, 'poison: no suspects are left');

$node->stop;
done_testing();
