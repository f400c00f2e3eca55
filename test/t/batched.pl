# room: makers
# Statements in batches that are killed, terminated and cancelled in the middle: each row is updated exactly once, also where a second
# update would change it again; those that came later, behind the last one, not at all.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('batched', conf => ['autovacuum = off']);

$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
	ALTER ROLE app SET search_path = app;
	ALTER ROLE app SET timezone = 'America/New_York';
});
my $as_app = sub { $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'app' ]) };
$as_app->(q{
	CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL, state text, at timestamptz);
	INSERT INTO counter SELECT n, n, 'new', '2026-03-01 00:00:00'::timestamptz + n * interval '1 minute' FROM generate_series(1, 5000) AS n;
	CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(68 + NEW.id / 1000); RETURN NEW; END $$;
	CREATE TRIGGER gate AFTER UPDATE ON counter FOR EACH ROW WHEN (NEW.id IN (2030, 3030, 4030)) EXECUTE FUNCTION app.wait_at_gate();
});

# ---------------------------------------------------------------- in the middle
my $gate = hold_gate($node, 70);
my $run = $as_app->(q{SELECT sweep.batched('UPDATE counter SET n = n + 1 WHERE state = ''new'' -- all', batch_size => 100, name => 'count', max_attempts => 1, keep_job => true)});
at_gate($node, 70, 'the statement is started with the commit');
$as_app->(q{INSERT INTO counter VALUES (-1, 0, 'new'), (5001, 0, 'new')});
flush_wal($node);
crash_of($node, $node->safe_psql('postgres', "SELECT pid FROM sweep.running WHERE run_id = $run"));
forget_session($gate);
is(ended_run($node, $run), 'lost lost 20 2000', 'the run is lost with the server');

for my $way ('terminate', 'cancel')
{
	my $number = $way eq 'cancel' ? 72 : 71;

	$gate = hold_gate($node, $number);
	$run = $as_app->(q{SELECT sweep.start('count')});
	at_gate($node, $number, "$way: the next run goes on");
	is($node->safe_psql('postgres', $way eq 'cancel' ? "SELECT sweep.cancel($run)" : "SELECT pg_terminate_backend(pid) FROM sweep.running WHERE run_id = $run"), 't', "$way: it is stopped");
	like(ended_run($node, $run), qr/^(?:cancelled|failed|lost) \w+ 10 1000$/, "$way: what it has done stays");
	open_gate($gate);
}
$run = $as_app->(q{SELECT sweep.start('count')});
is(ended_run($node, $run), 'succeeded drained 11 1000', 'the last one ends with the last row that was there at the beginning');
is($node->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE n = id + 1), count(*) FROM app.counter'), '5001|5002', 'each row was updated once');
is($node->safe_psql('postgres', 'SELECT string_agg(concat_ws(\' \', id, n), \', \' ORDER BY id) FROM app.counter WHERE id NOT BETWEEN 1 AND 5000'), '-1 0, 5001 0', 'and none that came later');

# ---------------------------------------------------------------- what the words of the session mean
my $session = $node->safe_psql('postgres', q{
	SET timezone = 'Asia/Tokyo';
	SET datestyle = 'SQL, DMY';
	SELECT sweep.batched('UPDATE counter SET state = ''late'' WHERE state = ''new'' AND at >= ''03/03/2026'' AND at::time < ''00:05''', batch_size => 100);
}, extra_params => [ '-U', 'app' ]);
is(ended_run($node, $session), 'succeeded drained 52 5002', 'a literal of the session is read as it would be there');
is($node->safe_psql('postgres', q{SET timezone = 'Asia/Tokyo'; SELECT count(*), min(at) >= '2026-03-03', bool_and(at::time < '00:05') FROM app.counter WHERE state = 'late'}), '15|t|t', 'and so is the zone');

done_testing();
