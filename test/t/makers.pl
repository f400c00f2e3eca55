# room: makers
# Jobs that sweep.create_retention, create_backfill and create_copy make, in the background: what starts by itself, what goes on
# where it was stopped, and partitions that cannot be locked.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('makers', conf => ['autovacuum = off']);

$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
});
my $as_app = sub { $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'app' ]) };
$as_app->(q{
	CREATE TABLE app.line (order_id int, line_no int, price int, total int, updates int NOT NULL DEFAULT 0, PRIMARY KEY (order_id, line_no));
	INSERT INTO app.line SELECT n / 10, n % 10, n FROM generate_series(0, 9999) AS n;
	CREATE FUNCTION app.at_update() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF (NEW.order_id, NEW.line_no) = (300, 5) THEN
			PERFORM pg_advisory_xact_lock_shared(70);
		END IF;
		NEW.updates := OLD.updates + 1;
		RETURN NEW;
	END $$;
	CREATE TRIGGER at_update BEFORE UPDATE ON app.line FOR EACH ROW EXECUTE FUNCTION app.at_update();
});

# ---------------------------------------------------------------- a backfill
my $gate = hold_gate($node, 70);
is($as_app->(q{SELECT sweep.create_backfill('app.line', 'total = price * 2', 'total IS NULL', batch_size => 700)}), 'backfill_line', 'a backfill is created');
at_gate($node, 70, 'it is started with the commit');
my $run = $node->safe_psql('postgres', q{SELECT run_id FROM sweep.running WHERE job = 'backfill_line'});
is($node->safe_psql('postgres', "SELECT sweep.cancel($run)"), 't', 'it is cancelled in its fifth batch');
is(ended_run($node, $run), 'cancelled cancelled 4 2800', 'what was done before stays');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.line WHERE total IS NOT NULL'), 2800, 'in the table as well');
open_gate($gate);
# One that would be behind the cursor.
$as_app->(q{INSERT INTO app.line VALUES (7, 100, 5)});
$run = $as_app->(q{SELECT sweep.start('backfill_line')});
like(ended_run($node, $run), qr/^succeeded drained \d+ 7202$/, 'the next run goes on behind it, and comes back for the one that came meanwhile');
is($node->safe_psql('postgres', 'SELECT count(*), sum(updates), max(updates), bool_and(total = price * 2) FROM app.line'), '10001|10001|1|t', 'each row was updated once');

# ---------------------------------------------------------------- a copy
$as_app->(q{CREATE TABLE app.line_copy (LIKE app.line)});
is($as_app->(q{SELECT sweep.create_copy('app.line', 'app.line_copy')}), 'copy_line', 'a copy is created');
soon($node, q{SELECT status, rows FROM sweep.runs WHERE job = 'copy_line' AND finished_at IS NOT NULL}, 'succeeded|10001', 'it is started with the commit, too');
is($as_app->(q{SELECT count(*) FROM (TABLE app.line EXCEPT ALL TABLE app.line_copy) AS d}), 0, 'and has copied all');
not_before_the_hour($node);
$as_app->(q{SELECT sweep.create_copy('app.line', 'app.line_copy', name => 'by the hour', schedule => '@hourly'), sweep.create_copy('app.line', 'app.line_copy', name => 'paused', paused => true)});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job IN ('by the hour', 'paused')}), 0, 'one with a schedule, or paused, is not started');

# ---------------------------------------------------------------- partitions that are in use
$as_app->(q{
	CREATE TABLE app.event (at timestamptz NOT NULL, id int NOT NULL, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
	CREATE TABLE app.event_1 PARTITION OF app.event FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
	CREATE TABLE app.event_2 PARTITION OF app.event FOR VALUES FROM ('2020-02-01Z') TO ('2020-03-01Z');
	CREATE TABLE app.event_3 PARTITION OF app.event DEFAULT;
	INSERT INTO app.event SELECT '2020-01-01Z'::timestamptz + interval '1 hour' * n, n FROM generate_series(0, 1999) AS n;
	SELECT sweep.create_retention('app.event', 'at', '30 days', schedule => NULL, partitions => 'drop');
});
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'retention_event'}), 0, 'a retention without a schedule is started by hand only');
my $reader = session($node);
$reader->query_safe('BEGIN; SELECT count(*) FROM app.event');
$run = $as_app->(q{SELECT sweep.start('retention_event')});
soon($node, "SELECT (detail ->> 'lock_timeouts')::int > 1 FROM sweep.runs WHERE run_id = $run", 't', 'a table that is read is waited for again and again');
my $other = session($node);
is($other->query('SELECT count(*) FROM app.event'), 2000, 'and is not closed to others meanwhile');
like(ended_run($node, $run), qr/^failed error 9 9/, 'but not for ever');
like($node->safe_psql('postgres', "SELECT error FROM sweep.runs WHERE run_id = $run"), qr/^partition app\.event_1 could not be locked/, 'the error says which one it is');
$reader->query_safe('COMMIT');
$run = $as_app->(q{SELECT sweep.start('retention_event')});
is(ended_run($node, $run), 'succeeded drained 4 562', 'when it is free it is dropped, and what else is too old deleted');
is($node->safe_psql('postgres', "SELECT detail FROM sweep.runs WHERE run_id = $run"), '{"deleted": 560, "dropped": ["app.event_1", "app.event_2"]}', 'the detail tells them apart');
is($node->safe_psql('postgres', q{SELECT count(*), (SELECT string_agg(inhrelid::regclass::text, ' ') FROM pg_inherits WHERE inhparent = 'app.event'::regclass) FROM app.event}), '0|app.event_3', 'nothing is left of them');
$_->quit for $reader, $other;

done_testing();
