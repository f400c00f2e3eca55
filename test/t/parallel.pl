# room: makers
# Jobs that are made with parallel: each row once, whatever the key, and after a crash; a range that fails alone is tried again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('parallel', conf => [ 'autovacuum = off', 'max_worker_processes = 20', 'pg_sweep.max_running_jobs = 8' ]);

$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
});
my $as_app = sub { $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'app' ]) };

# All runs of a job, the last one included, which looks at the table as a whole, have ended.
sub ended
{
	my ($job, $test, $status) = @_;

	soon($node, qq{SELECT count(*) > 0 AND bool_and(finished_at IS NOT NULL) AND bool_and(status IN ('succeeded', 'skipped')) FROM sweep.runs r WHERE job = '$job'
		AND NOT EXISTS (SELECT FROM sweep.runs t WHERE t.parent_run_id = r.run_id AND t.trigger = 'retry')}, 't', $test);
	is($node->safe_psql('postgres', qq{SELECT count(*) FROM sweep.buckets WHERE job = '$job' AND state <> 'done'}), '0', "$test: nothing is left");
}

sub handled
{
	return $node->safe_psql('postgres', "SELECT coalesce(sum((detail ->> '$_[1]')::int), 0) FROM sweep.runs WHERE job = '$_[0]'");
}

# ---------------------------------------------------------------- each maker, each kind of key
$as_app->(q{
	CREATE TABLE app.event (id bigint PRIMARY KEY, at timestamptz, n int NOT NULL DEFAULT 0, done bool);
	CREATE INDEX ON app.event (at);
	INSERT INTO app.event SELECT n, CASE WHEN n % 10 <> 0 THEN now() - interval '1 min' * n END FROM generate_series(1, 60000) AS n;
	CREATE TABLE app.event_copy (LIKE app.event INCLUDING ALL);
	CREATE TABLE app.named (tenant int, name text COLLATE "C", n int NOT NULL DEFAULT 0, PRIMARY KEY (tenant, name));
	INSERT INTO app.named SELECT n % 3, md5(n::text) FROM generate_series(1, 30000) AS n;
	CREATE TABLE app.uuid (id uuid PRIMARY KEY, n int);
	INSERT INTO app.uuid SELECT md5(n::text)::uuid FROM generate_series(1, 20000) AS n;
	CREATE TABLE app.words (word text PRIMARY KEY, n int NOT NULL DEFAULT 0);
	INSERT INTO app.words SELECT md5(n::text) || repeat('x', n % 9) FROM generate_series(1, 20000) AS n;
	ANALYZE;
});

is($as_app->(q{SELECT sweep.create_copy('app.event', 'app.event_copy', parallel => 4, batch_size => 50)}), 'copy_event', 'a copy is made');
ended('copy_event', 'copy');
is($as_app->('SELECT count(*) FROM app.event e JOIN app.event_copy c USING (id) WHERE (e.*) IS NOT DISTINCT FROM (c.*)'), '60000', 'all is copied');
is(handled('copy_event', 'copied'), '60000', 'each row once');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'copy_event' AND batches > 2}), '>', 8, 'by many ranges');
cmp_ok($node->safe_psql('postgres', q{SELECT max(c) FROM (SELECT count(*) AS c FROM sweep.runs a JOIN sweep.runs b ON a.job = b.job
	AND a.started_at BETWEEN b.started_at AND b.finished_at WHERE a.job = 'copy_event' AND b.bucket IS NOT NULL AND a.bucket IS NOT NULL GROUP BY a.run_id) AS x}), '<=', 5, 'no more at a time than were asked for');

$as_app->(q{SELECT sweep.create_backfill('app.event', 'done = true', 'done IS NULL', parallel => 4, batch_size => 500)});
ended('backfill_event', 'backfill');
is($as_app->('SELECT count(*) FROM app.event WHERE done'), '60000', 'all rows are filled');
is(handled('backfill_event', 'updated'), '60000', 'each once');

$as_app->(q{SELECT sweep.batched('UPDATE app.event SET n = n + 1', name => 'one_pass', parallel => 4, batch_size => 500)});
ended('one_pass', 'one pass');
is($as_app->('SELECT min(n), max(n) FROM app.event'), '1|1', 'each row is updated once');

$as_app->(q{SELECT sweep.batched('UPDATE app.named SET n = n + 1', name => 'composite', parallel => 6, batch_size => 300)});
ended('composite', 'a composite key');
is($as_app->('SELECT min(n), max(n), count(*) FROM app.named'), '1|1|30000', 'a composite key: each row once');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'composite' AND rows > 500}), '>=', 5, 'a composite key: not by its first column alone');

$as_app->(q{SELECT sweep.batched('UPDATE app.words SET n = n + 1', name => 'words', parallel => 4, batch_size => 300)});
ended('words', 'a text key');
is($as_app->('SELECT min(n), max(n) FROM app.words'), '1|1', 'a text key: each row once');

$as_app->(q{SELECT sweep.create_backfill('app.uuid', 'n = 1', 'n IS NULL', parallel => 4, batch_size => 200)});
ended('backfill_uuid', 'a uuid key');
is($as_app->('SELECT count(*) FROM app.uuid WHERE n = 1'), '20000', 'a uuid key: all rows');

$as_app->(q{SELECT sweep.create_retention('app.event', 'at', '10 days', schedule => NULL, parallel => 4, batch_size => 500)});
my $due = $as_app->(q{SELECT count(*) FROM app.event WHERE at < now() - interval '10 days'});
$as_app->(q{SELECT sweep.start('retention_event')});
ended('retention_event', 'retention');
cmp_ok(handled('retention_event', 'deleted'), '>=', $due, 'what is old is deleted');
is($as_app->(q{SELECT count(*) FROM app.event WHERE at < now() - interval '10 days 1 h'}), '0', 'all of it');
is($as_app->(q{SELECT count(*) FROM app.event WHERE at IS NULL}), '6000', 'rows without an age stay');
is($node->safe_psql('postgres', q{SELECT complete_to IS NOT NULL, kept FROM sweep.retentions}), 't|{"null_age": 6000}', 'the last share proves it');
# the next run divides the table anew
$as_app->(q{UPDATE app.event SET at = at - interval '1 year' WHERE id <= 5000});
$as_app->(q{SELECT sweep.start('retention_event')});
soon($node, q{SELECT count(*) FROM app.event WHERE at < now() - interval '11 days'}, '0', 'the next run deletes what is old by then');
ended('retention_event', 'the next run');

my $run = $as_app->(q{SELECT run_id FROM sweep.delete('app.event', 'n = 1', parallel => 4, batch_size => 500, name => 'all_gone')});
my $left = $as_app->('SELECT count(*) FROM app.event');
$node->safe_psql('postgres', "CALL sweep.wait($run, '2 min')");
ended('all_gone', 'delete');
is($as_app->('SELECT count(*) FROM app.event'), '0', 'all rows are deleted');

# ---------------------------------------------------------------- few rows, none
$as_app->(q{SELECT sweep.create_backfill('app.event', 'done = false', 'done', parallel => 8, name => 'empty')});
ended('empty', 'an empty table');
is(handled('empty', 'updated'), '0', 'an empty table has no rows');
$as_app->(q{INSERT INTO app.event SELECT n, now() - interval '1 year' FROM generate_series(1, 10) AS n});
$as_app->(q{SELECT sweep.create_retention('app.event', 'at', '1 day', schedule => NULL, name => 'ten', parallel => 64), sweep.start('ten')});
ended('ten', 'ten rows');
is(handled('ten', 'deleted'), '10', 'ten rows are deleted');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.buckets WHERE job = 'ten'}), '2', 'by one range, and the look at the rest');

# ---------------------------------------------------------------- a crash in the middle
$as_app->(q{
	CREATE TABLE app.line (id int PRIMARY KEY, n int NOT NULL DEFAULT 0);
	INSERT INTO app.line SELECT n FROM generate_series(1, 40000) AS n;
	CREATE FUNCTION app.at_update() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(70);
		RETURN NULL;
	END $$;
	CREATE TRIGGER at_update AFTER UPDATE ON app.line FOR EACH ROW WHEN (OLD.id = 23456) EXECUTE FUNCTION app.at_update();
	ANALYZE app.line;
});
my $gate = hold_gate($node, 70);
$run = $as_app->(q{SELECT sweep.batched('UPDATE app.line SET n = n + 1', name => 'crash', parallel => 2, batch_size => 50, settings => '{"lock_timeout": "10min"}')});
at_gate($node, 70, 'one range has come to the middle');
soon($node, q{SELECT string_agg(state, ' ' ORDER BY bucket) FROM sweep.buckets WHERE job = 'crash' AND state <> 'done'}, 'occupied available', 'the other ones are done meanwhile');
soon($node, q{SELECT count(*) FILTER (WHERE state = 'done'), count(*) FROM sweep.buckets WHERE job = 'crash'}, '7|9', 'sweep.buckets says how many ranges are done');
flush_wal($node);
my $pid = $node->safe_psql('postgres', q{SELECT pid FROM sweep.running WHERE job = 'crash'});
crash_of($node, $pid);
forget_session($gate);
ended('crash', 'after a crash');
is($as_app->('SELECT min(n), max(n) FROM app.line'), '1|1', 'after a crash each row is updated once');
is(handled('crash', 'updated'), '40000', 'and the runs together report each once');
cmp_ok($node->safe_psql('postgres', q{SELECT rows FROM sweep.runs WHERE job = 'crash' AND status = 'lost'}), '>', 0, 'the run that was lost had done some');

# ---------------------------------------------------------------- shares that stop at a limit
$as_app->(q{SELECT sweep.create_backfill('app.line', 'n = n + 1', 'n = 1', parallel => 2, batch_size => 1000, name => 'slices', paused => true);
	SELECT sweep.alter_job('slices', '{"stop_after": "0"}'), sweep.resume('slices'), sweep.start('slices')});
ended('slices', 'a batch per share');
is($as_app->('SELECT min(n), max(n) FROM app.line'), '2|2', 'all rows are done by shares that go on where others have stopped');
is(handled('slices', 'updated'), '40000', 'each once');
$as_app->('UPDATE app.line SET n = 1');

# ---------------------------------------------------------------- one range fails
$as_app->(q{
	CREATE TABLE app.obstacle (id int);
	INSERT INTO app.obstacle VALUES (15000);
	CREATE FUNCTION app.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM app.obstacle WHERE id = NEW.id) THEN
			RAISE EXCEPTION 'an obstacle';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON app.line FOR EACH ROW EXECUTE FUNCTION app.refuse();
});
$as_app->(q{SELECT sweep.batched('UPDATE app.line SET n = n + 10', name => 'fails', parallel => 2, batch_size => 300, max_attempts => 3)});
soon($node, q{SELECT string_agg(state, ' ' ORDER BY state) FROM (SELECT DISTINCT state FROM sweep.buckets WHERE job = 'fails') AS s}, 'available done failed', 'all ranges but one are done');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.buckets WHERE job = 'fails' AND state = 'failed'}), '1', 'one has failed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'fails' AND status = 'failed' AND error LIKE 'an obstacle%'}), '1', 'with its error');
is($node->safe_psql('postgres', q{SELECT count(*), min(attempt) FROM sweep.runs WHERE job = 'fails' AND trigger = 'retry'}), '1|2', 'and is tried again alone');
$as_app->('DELETE FROM app.obstacle');
ended('fails', 'without the obstacle');
is($as_app->('SELECT min(n), max(n) FROM app.line'), '11|11', 'each row is updated once more');

# attempts that are used up stop no other range; a new run takes up what is left
$as_app->(q{INSERT INTO app.obstacle VALUES (15000)});
$as_app->(q{SELECT sweep.batched('UPDATE app.line SET n = n + 100', name => 'gives_up', parallel => 2, batch_size => 300, max_attempts => 1)});
soon($node, q{SELECT string_agg(state, ' ' ORDER BY state) FROM (SELECT DISTINCT state FROM sweep.buckets WHERE job = 'gives_up') AS s}, 'available done failed', 'the last attempt fails');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'gives_up' AND finished_at IS NULL}, '0', 'and nothing waits');
is($node->safe_psql('postgres', q{SELECT last_status FROM sweep.jobs WHERE name = 'gives_up'}), 'failed', 'sweep.jobs says that it has failed');
$as_app->('DELETE FROM app.obstacle');
$as_app->(q{SELECT sweep.start('gives_up')});
soon($node, q{SELECT count(*) FROM sweep.buckets WHERE job = 'gives_up' AND state <> 'done'}, '0', 'a new run does what is left');
is($as_app->('SELECT min(n), max(n) FROM app.line'), '111|111', 'and that alone');

# ---------------------------------------------------------------- cancel
$run = $as_app->(q{SELECT sweep.batched('UPDATE app.line SET n = n + 1000', name => 'cancelled', parallel => 2, batch_size => 10, pause => '20 ms')});
soon($node, q{SELECT count(*) FROM sweep.running WHERE job = 'cancelled'}, '2', 'two are at work');
$node->safe_psql('postgres', "SELECT sweep.cancel($run)");
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'cancelled' AND finished_at IS NULL}, '0', 'a cancel of one is one of all');
cmp_ok($as_app->('SELECT count(*) FROM app.line WHERE n > 1000'), '<', 40000, 'what was not done is not done');
$as_app->(q{SELECT sweep.alter_job('cancelled', '{"batch_size": 1000}')});
$as_app->(q{SELECT sweep.start('cancelled')});
soon($node, q{SELECT count(*) FROM sweep.buckets WHERE job = 'cancelled' AND state <> 'done'}, '0', 'a new run goes on');
is($as_app->('SELECT min(n), max(n) FROM app.line'), '1111|1111', 'each row is updated once');

$node->stop;
done_testing();
