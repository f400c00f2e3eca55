# Consumers that acknowledge, fail, release, outlive their leases, and roll back
# parts or all of it, at once, on messages with keys, priorities and delays: in
# the end every message that was sent was done once, or is dead, and the
# counters are what is in the tables.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('queue_chaos');

$node->safe_psql('postgres', q{
	CREATE TABLE t.sent (id bigint);
	CREATE TABLE t.done (id bigint);
	CREATE SEQUENCE t.id;
	CREATE FUNCTION t.send_some() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		chance int := random() * 8;
		id     bigint := nextval('t.id');
	BEGIN
		IF sweep.send('chaos', to_jsonb(id), delay => random() * interval '10 ms', priority => (random() * 4)::int - 2,
			key => CASE WHEN chance < 4 THEN 'key ' || id END) IS NOT NULL THEN
			INSERT INTO t.sent VALUES (id);
		END IF;
		BEGIN
			id := nextval('t.id');
			PERFORM sweep.send_many('chaos', ARRAY[to_jsonb(id)]);
			INSERT INTO t.sent VALUES (id);
			IF chance = 2 THEN
				RAISE EXCEPTION 'undo this';
			END IF;
		EXCEPTION WHEN raise_exception THEN
		END;
		-- few keys: most of these are waiting already
		id := nextval('t.id');
		IF sweep.send('chaos', to_jsonb(id), key => 'shared ' || (random() * 5)::int) IS NOT NULL THEN
			INSERT INTO t.sent VALUES (id);
		END IF;
		IF chance = 3 THEN
			RAISE EXCEPTION 'undo all';
		END IF;
	END
	$$;
	CREATE FUNCTION t.consume_some() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		chance   int := random() * 12;
		held     uuid;
		ids      bigint[];
		payloads jsonb[];
	BEGIN
		BEGIN
			SELECT (array_agg(lease))[1], array_agg(message_id), array_agg(payload) INTO held, ids, payloads
				FROM sweep.claim('chaos', 1 + (random() * 40)::int);
			IF held IS NULL OR chance = 1 THEN
				RAISE EXCEPTION 'undo this';
			ELSIF chance = 3 THEN
				PERFORM sweep.fail(held, 'as it happens', ids[1 : cardinality(ids) / 2]);
			ELSIF chance = 4 THEN
				PERFORM sweep.release(held, ids[1 : cardinality(ids) / 2]);
			ELSIF chance = 5 THEN
				-- longer than the lease
				PERFORM pg_sleep(0.06); -- the sleep is the work
			ELSIF chance IN (6, 7) THEN
				BEGIN
					PERFORM CASE chance WHEN 6 THEN sweep.ack(held) ELSE sweep.fail(held, 'undone') END;
					RAISE EXCEPTION 'undo this';
				EXCEPTION WHEN raise_exception THEN
				END;
			END IF;
			-- one by one, to know which were ours
			FOR i IN 1 .. CASE WHEN chance < 11 THEN cardinality(ids) ELSE 0 END LOOP
				IF sweep.ack(held, ids[i : i]) = 1 THEN
					INSERT INTO t.done VALUES (payloads[i]::bigint);
				END IF;
			END LOOP;
			IF chance = 8 THEN
				RAISE EXCEPTION 'undo this';
			END IF;
		EXCEPTION WHEN raise_exception THEN
		END;
		IF chance = 9 THEN
			RAISE EXCEPTION 'undo all';
		END IF;
	END
	$$;
});

# Sessions that call the function again and again; calls that fail are meant to.
sub start_sessions
{
	my ($count, $calls, $function) = @_;
	my @sessions;

	foreach (1 .. $count)
	{
		my %session = (in => "SELECT t.$function();\n" x $calls, out => '', err => '');

		$session{handle} = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-d', $node->connstr('postgres') ],
			'<', \$session{in}, '>', \$session{out}, '2>', \$session{err});
		push @sessions, \%session;
	}
	return @sessions;
}

for my $policy (qw(while_queued while_queued_or_running once_more_if_running))
{
	$node->safe_psql('postgres', qq{
		TRUNCATE t.sent, t.done;
		SELECT sweep.create_queue('chaos', visibility => '50 ms', max_attempts => 3, backoff => '5 ms', key_policy => '$policy')});
	my @sessions = (start_sessions(4, 300, 'send_some'), start_sessions(6, 300, 'consume_some'));
	$_->{handle}->finish for @sessions;
	is(join("\n", grep { /ERROR:/ && !/ERROR:  undo all/ } split /\n/, join("\n", map { $_->{err} } @sessions)), '', "$policy: no other errors");
	# What is left is done in one session, until nothing is.
	soon($node, q{
		WITH c AS MATERIALIZED (SELECT * FROM sweep.claim('chaos', 1000)),
			acked AS MATERIALIZED (SELECT lease, sweep.ack(lease) FROM (SELECT DISTINCT lease FROM c) AS l),
			noted AS (INSERT INTO t.done SELECT payload::bigint FROM c)
		SELECT (SELECT count(*) FROM acked) = 0 AND (SELECT depth FROM sweep.queues WHERE queue = 'chaos') = 0}, 't', "$policy: the queue is empty");
	is($node->safe_psql('postgres', q{SELECT count(*) > 500 FROM t.sent}), 't', "$policy: much was sent");
	is($node->safe_psql('postgres', q{
		WITH ended AS (SELECT id FROM t.done UNION ALL SELECT payload::bigint FROM sweep.dead('chaos'))
		SELECT (SELECT count(*) FROM (SELECT id FROM t.sent EXCEPT ALL SELECT id FROM ended) AS l),
			(SELECT count(*) FROM (SELECT id FROM ended EXCEPT ALL SELECT id FROM t.sent) AS d)}),
		'0|0', "$policy: nothing is lost, nothing was done twice");
	is($node->safe_psql('postgres', q{
		SELECT q.depth, q.ready, q.delayed, q.in_flight, (SELECT count(*) FROM sweep.queue_message), q.dead - (SELECT count(*) FROM sweep.queue_dead)
			FROM sweep.queues AS q WHERE queue = 'chaos'}),
		'0|0|0|0|0|0', "$policy: the counters are what is in the tables");
	$node->safe_psql('postgres', q{SELECT sweep.drop_queue('chaos')});
}

$node->stop;
done_testing();
