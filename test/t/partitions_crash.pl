# room: makers
# The server crashes while a default partition is emptied: while its rows are copied, while the exchange waits for an older transaction, and within the
# exchange, when the default partition is truncated already. Each time every row is there once, and the next run goes on; at the end the rows are
# as they were changed meanwhile.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('partitions_crash', conf => [ 'autovacuum = off' ]);
my $rows = 4000;
my $first = sql(q{SELECT date_trunc('day', now()) - interval '3 days'});

# Rows of eight days, an hour apart, on both sides of a partition and of the present.
sql(qq{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
	SET ROLE app;
	CREATE TABLE app.trail (id int NOT NULL, at timestamptz NOT NULL, n int NOT NULL DEFAULT 0, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
	CREATE TABLE app.trail_default PARTITION OF app.trail DEFAULT;
	SELECT timestamptz '$first' + interval '4 days' AS upto, timestamptz '$first' + interval '5 days' AS middle \\gset
	CREATE TABLE app.trail_middle PARTITION OF app.trail FOR VALUES FROM (:'upto') TO (:'middle');
	INSERT INTO app.trail SELECT n, timestamptz '$first' + interval '1 hour' * (n % 192) FROM generate_series(1, $rows) AS n;
	SELECT sweep.create_partitions('app.trail', '1 day', ahead => 1, batch_size => 100, pause => '100 ms', schedule => NULL);
	RESET ROLE;
	-- While the test has the lock, a command that detaches or attaches a partition waits in its transaction.
	CREATE FUNCTION public.gate() RETURNS event_trigger LANGUAGE plpgsql SET lock_timeout = 0
		AS \$\$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); END \$\$;
	CREATE EVENT TRIGGER gate ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION public.gate();
});

# Until the one run has so much in its cursor; then the process is killed, and the server has come back.
my $crash_when = sub {
	my ($run, $condition, $name) = @_;

	soon($node, "SELECT coalesce($condition, false) FROM sweep.runs WHERE run_id = $run", 't', $name);
	crash_of($node, sql("SELECT pid FROM sweep.running WHERE run_id = $run"));
};

# Rows that are copied already and others are changed, by those who do not know of it.
my $changed = 0;
my $change = sub {
	sql(qq{
		UPDATE app.trail SET n = n + 1 WHERE id % 10 = 3;
		DELETE FROM app.trail WHERE id % 100 = 5;
		INSERT INTO app.trail SELECT n, timestamptz '$first' + interval '1 hour' * (n % 192) FROM generate_series(5, 3905, 100) AS n;
		UPDATE app.trail SET at = at + interval '1 minute' WHERE id % 100 = 7});
	$changed++;
};
my $is_whole = sub {
	my ($name) = @_;

	is(sql('SELECT count(*), count(DISTINCT id), sum(n) FROM app.trail'), join('|', $rows, $rows, $changed * $rows / 10), $name);
};
my $start = sub { sql(q{SET ROLE app; SELECT sweep.start('partitions_trail')}) };

my $run = $start->();
$crash_when->($run, q{cursor -> 'emptying' ? 'after'}, 'rows are being copied');
$is_whole->('after a crash each row is there once');
$change->();
like(ended_run($node, $run), qr/^lost /, 'the run is lost');

# Where the first crash was late, the list of older transactions was made before this one, and the exchange tries to lock what it reads.
my $older = session($node);
$older->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM app.trail');
$run = $start->();
$change->();
$crash_when->($run, q{cursor -> 'emptying' ? 'older' AND detail ?| '{waits_for,lock_timeouts}'}, 'all is copied, and an older transaction is waited for');
forget_session($older);
$is_whole->('after another crash each row is there once');
$change->();
like(ended_run($node, $run), qr/^lost /, 'that run is lost, too');

my $gate = session($node);
$gate->query_safe('SELECT pg_advisory_lock(7)');
$run = $start->();
soon($node, q{SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted AND a.backend_type = 'pg_sweep runner'}, 't', 'the exchange has begun');
is(sql(q{SELECT count(*) > 0 FROM pg_locks WHERE relation = 'app.trail_default'::regclass AND mode = 'AccessExclusiveLock' AND granted}), 't', 'and has the default partition for itself');
crash_of($node, sql("SELECT pid FROM sweep.running WHERE run_id = $run"));
forget_session($gate);
$is_whole->('after a crash within the exchange each row is there once');
$change->();
like(ended_run($node, $run), qr/^lost /, 'and the run is lost');

# A job during which the server went down three times waits for somebody who looks at it.
sql(q{SELECT sweep.resume('partitions_trail')});
$run = $start->();
like(ended_run($node, $run), qr/^succeeded drained /, 'a run after that ends');
is(sql("SELECT detail -> 'emptied' FROM sweep.runs WHERE run_id = $run"), '["app.trail_default"]', 'it has emptied the default partition');
is(sql('SELECT count(*) FROM app.trail_default'), 0, 'which has no row any more');
$is_whole->('each row is there once, with all changes');
is(sql(q{SELECT count(*) FROM pg_class WHERE relname ~ 'sweep' AND relnamespace = 'app'::regnamespace}), 0, 'nothing is left of the copy');
is(sql(q{SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = 'app.trail_default'::regclass}), 0, 'and no trigger');

done_testing();
