# room: base
# Settings of a role that would end or stop its processes: what fails is recorded as failed, and nothing is lost.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('role_settings', conf => [ 'pg_sweep.max_share_per_role = 1' ]);

sub as_jobber
{
	return $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'jobber' ]);
}

# Status, counters and error of a run that is started now.
sub end_of
{
	my ($job) = @_;
	my $run_id = as_jobber("SELECT sweep.start('$job')");

	return ended_run($node, $run_id) . ': ' . $node->safe_psql('postgres', "SELECT split_part(coalesce(error, ''), E'\n', 1) FROM sweep.runs WHERE run_id = $run_id");
}

$node->safe_psql('postgres', q{
	CREATE FUNCTION t.fail(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as asked'; END $$;
	CREATE FUNCTION t.catch(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'as asked';
	EXCEPTION WHEN raise_exception THEN
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
		SELECT to_jsonb(n) FROM generate_series(coalesce((b.cursor #>> '{}')::int, 0) + 1, 6) AS n LIMIT b.size $$;
	CREATE FUNCTION t.each(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		IF b.items @> ARRAY['3'::jsonb] THEN
			RAISE EXCEPTION 'not this one';
		END IF;
		RETURN ROW(cardinality(b.items), b.items[cardinality(b.items)], NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION t.long(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		SELECT pg_sleep(600); -- the sleep is the work
		SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
	CREATE TABLE t.handled (payload jsonb);
	GRANT INSERT ON t.handled TO jobber;
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF m.payload = '2' THEN
			RAISE EXCEPTION 'not this one';
		END IF;
		INSERT INTO t.handled VALUES (m.payload);
	END $$;
});
as_jobber(q{
	SELECT sweep.create_job('fail', step => 't.fail', max_attempts => 2), sweep.create_job('catch', step => 't.catch'), sweep.create_job('long', step => 't.long'),
		sweep.create_job('items', pick => 't.pick', step => 't.each');
});

# ---------------------------------------------------------------- exit_on_error: an error ends the batch and not the process
$node->safe_psql('postgres', 'ALTER ROLE jobber SET exit_on_error = on');
is(end_of('fail'), 'failed error 0 0: as asked', 'exit_on_error: a run that fails says so');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'fail' AND trigger = 'retry'}), 1, 'exit_on_error: and is tried again');
is(end_of('catch'), 'succeeded drained 1 0: ', 'exit_on_error: a step can catch an error');
is(end_of('items'), 'succeeded drained 2 5: ', 'exit_on_error: an item that fails is found');
is($node->safe_psql('postgres', q{SELECT item FROM sweep.quarantine}), 3, 'exit_on_error: and put into quarantine');
as_jobber(q{SELECT sweep.create_queue('work', max_attempts => 1); SELECT sweep.create_consumer('work', 't.handle', batch => 3); SELECT sweep.send_many('work', '{1,2,3}')});
soon($node, q{SELECT string_agg(error ->> 'message', ' ') FROM sweep.queue_dead}, 'not this one', 'exit_on_error: one message fails');
soon($node, q{SELECT string_agg(payload::text, ' ' ORDER BY payload) FROM t.handled}, '1 3', 'exit_on_error: the others are handled');
as_jobber(q{SELECT sweep.drop_consumer('work'); SELECT sweep.drop_queue('work')});
my ($status, $output, $error) = $node->psql('postgres', q{CALL sweep.run('fail')}, extra_params => [ '-U', 'jobber' ]);
like($error, qr/as asked/, 'exit_on_error: CALL raises the error');
is($node->safe_psql('postgres', q{SELECT status, error LIKE 'as asked%' FROM sweep.runs WHERE job = 'fail' AND trigger = 'manual' ORDER BY run_id DESC LIMIT 1}), 'failed|t',
	'exit_on_error: after it is recorded');
$node->safe_psql('postgres', 'ALTER ROLE jobber RESET exit_on_error');

# ---------------------------------------------------------------- deferrable: a run does not wait for serializable transactions that write
my $writer = session($node);
$writer->query_safe(q{BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO t.handled VALUES ('4')});
$node->safe_psql('postgres', q{
	ALTER ROLE jobber SET default_transaction_isolation = serializable;
	ALTER ROLE jobber SET default_transaction_read_only = on;
	ALTER ROLE jobber SET default_transaction_deferrable = on;
});
is($node->safe_psql('postgres', q{SET ROLE jobber; SELECT sweep.start('catch')}) =~ /^\d+$/, 1, 'deferrable: a run is started');
soon($node, q{SELECT status || ' ' || stop_reason FROM sweep.runs WHERE job = 'catch' ORDER BY run_id DESC LIMIT 1}, 'succeeded drained', 'deferrable: it ends while the other one is open');
$writer->query_safe('ROLLBACK');
$writer->quit;
$node->safe_psql('postgres', 'ALTER ROLE jobber RESET ALL');

# ---------------------------------------------------------------- transaction_timeout: ends the batch, and the run says so
SKIP:
{
	skip 'transaction_timeout came with PostgreSQL 17', 2 if $node->safe_psql('postgres', 'SHOW server_version_num') < 170000;
	$node->safe_psql('postgres', q{ALTER ROLE jobber SET transaction_timeout = '300ms'});
	is(end_of('long'), 'failed error 0 0: canceling statement due to statement timeout', 'transaction_timeout: a long batch fails');
	$node->safe_psql('postgres', q{ALTER ROLE jobber SET statement_timeout = '200ms'; ALTER ROLE jobber SET transaction_timeout = '1h'});
	is(end_of('long'), 'failed error 0 0: canceling statement due to statement timeout', 'transaction_timeout: the shorter one holds');
}

$node->stop;
done_testing();
