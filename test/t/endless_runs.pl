# room: engine
# Nothing runs away, in the background: what goes on reporting rows is ended when its time is over. What gets on is never
# ended, whatever others do meanwhile. The shapes that need no one else are in sql/no_progress.sql.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('endless_runs', conf => [ "pg_sweep.no_progress_after = '1 s'", 'autovacuum = off' ]);

sql(q{
	CREATE TABLE t.item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, done boolean) WITH (fillfactor = 50);
	CREATE INDEX ON t.item (id) WHERE done IS NULL;
	CREATE FUNCTION t.one(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RETURN ROW(1, NULL, NULL)::sweep.progress; END $$;
	CREATE FUNCTION t.circle(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN
		RETURN ROW(100, to_jsonb((coalesce(b.cursor::int, 0) + 1) % 3), NULL)::sweep.progress; END $$;
	CREATE FUNCTION t.counter(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN
		RETURN ROW(1, to_jsonb(coalesce(b.cursor::int, 0) + 1), NULL)::sweep.progress; END $$;
	-- a batch waits for something to do as long as somebody is busy making it
	CREATE TABLE t.busy (since timestamptz);
	CREATE FUNCTION t.until_idle(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		n int;
	BEGIN
		LOOP
			EXECUTE b.args ->> 'do' USING b.size;
			GET DIAGNOSTICS n = ROW_COUNT;
			EXIT WHEN n > 0 OR NOT EXISTS (SELECT FROM t.busy);
			PERFORM pg_sleep(0.01); -- the sleep is the work
		END LOOP;
		RETURN ROW(n, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('one', step => 't.one', max_attempts => 3), sweep.create_job('circle', step => 't.circle'), sweep.create_job('counter', step => 't.counter'),
		sweep.create_job('true', batch_size => 50, batch_sql => 'UPDATE t.item SET done = done WHERE id IN (SELECT id FROM t.item LIMIT $1)'),
		sweep.create_job('mark', batch_size => 50, step => 't.until_idle', args => '{"do": "UPDATE t.item SET done = true WHERE id IN (SELECT id FROM t.item WHERE done IS NULL LIMIT $1)"}'),
		sweep.create_job('purge', batch_size => 50, step => 't.until_idle', args => '{"do": "DELETE FROM t.item WHERE id IN (SELECT id FROM t.item LIMIT $1)"}');
	INSERT INTO t.item (done) SELECT NULL FROM generate_series(1, 500);
});

# ---------------------------------------------------------------- what goes on without an end is ended, when its time is over
for my $job ('one', 'circle', 'true')
{
	my $run = sql("SELECT sweep.start('$job')");

	like(ended_run($node, $run), qr/^failed no_progress /, "$job: is ended");
	is(sql("SELECT finished_at - started_at >= interval '1 s', sqlstate, error LIKE 'job \"$job\" makes no progress%HINT: %' FROM sweep.runs WHERE run_id = $run"), 't|55000|t', "$job: when its time is over, and says why");
}
is(sql(q{SELECT count(*) FROM sweep.runs WHERE trigger = 'retry'}), 0, 'it is not tried again');
is(sql(q{SELECT state FROM sweep.jobs WHERE name = 'one'}), 'failing', 'it is seen in the state of the job');
like(slurp_file($node->logfile), qr/WARNING:  run \d+ of job "one" failed: job "one" makes no progress/, 'and in the log');

# ---------------------------------------------------------------- what others do meanwhile is more to do
# Lets a run go on that handles rows as long as somebody else makes more of them, until it has handled several times as many as
# there are and twice the time has passed; then until it has drained.
sub keep_busy
{
	my ($job, $name, $again) = @_;
	my $run = sql("TRUNCATE t.item; INSERT INTO t.busy VALUES (now()); INSERT INTO t.item (done) SELECT NULL FROM generate_series(1, 2000); SELECT sweep.start('$job')");
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my $enough = '';

	while ($enough ne 't' && time < $deadline)
	{
		sql("$again; SELECT pg_stat_force_next_flush()");
		$enough = sql("SELECT coalesce((SELECT rows > 10000 AND clock_timestamp() > started_at + interval '2 s' FROM sweep.running WHERE run_id = $run), finished_at IS NOT NULL)
			FROM sweep.runs WHERE run_id = $run");
	}
	sql('DELETE FROM t.busy');
	like(ended_run($node, $run), qr/^succeeded drained /, "$name: is not ended");
	is(sql("SELECT rows > 10000, (SELECT count(*) < 5000 FROM t.item) FROM sweep.runs WHERE run_id = $run"), 't|t', "$name: though it has handled several times as many as there were");
}

my $fill = 'INSERT INTO t.item (done) SELECT NULL FROM generate_series(1, 2000 - (SELECT count(*) FROM t.item WHERE done IS NULL))';
keep_busy('mark', 'rows that come in, and go when they are marked', "DELETE FROM t.item WHERE done; $fill");
keep_busy('mark', 'rows that are to be marked again', 'UPDATE t.item SET done = NULL WHERE done');
keep_busy('purge', 'a queue that others fill', $fill);

# ---------------------------------------------------------------- a cursor that moves is believed, for as long as it does
my $run = sql(q{SELECT sweep.start('counter')});
soon($node, q{SELECT rows > 1000 AND clock_timestamp() > started_at + interval '2 s' FROM sweep.running}, 't', 'a cursor that moves: goes on');
sql("SELECT sweep.cancel($run)");
like(ended_run($node, $run), qr/^cancelled /, 'a cursor that moves: until somebody ends it');

# ---------------------------------------------------------------- what cannot be seen is not ended
SKIP:
{
	skip 'file_fdw is not installed', 2 if sql(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'file_fdw'}) == 0;
	sql(q{
		CREATE EXTENSION file_fdw;
		CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
		CREATE FOREIGN TABLE t.elsewhere (line text) SERVER files OPTIONS (program 'echo 1');
		CREATE FUNCTION t.elsewhere(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT count(*), NULL::jsonb, NULL::jsonb FROM t.elsewhere $$;
		SELECT sweep.create_job('elsewhere', step => 't.elsewhere');
	});
	$run = sql(q{SELECT sweep.start('elsewhere')});
	soon($node, q{SELECT rows > 20 AND clock_timestamp() > started_at + interval '2 s' FROM sweep.running}, 't', 'a foreign table: nobody knows how much there is');
	sql("SELECT sweep.cancel($run)");
	like(ended_run($node, $run), qr/^cancelled /, 'a foreign table: until somebody ends it');
}
sql('ALTER SYSTEM SET track_counts = off; SELECT pg_reload_conf()');
soon($node, 'SHOW track_counts', 'off', 'nothing is counted from now on');
keep_busy('purge', 'without statistics', $fill);

$node->stop;
done_testing();
