# room: makers
# Deletes and updates by places beside other sessions, and through a crash: rows that are held come in a later pass, and so do those that move to where the pass has been.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('places', conf => ['autovacuum = off']);

$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
	ALTER ROLE app SET search_path = app;
});
my $as_app = sub { $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'app' ]) };
$as_app->(q{
	CREATE TABLE line (id int, kind int, n int DEFAULT 0, note text);
	INSERT INTO line SELECT n, n % 2, 0, repeat('x', 100) FROM generate_series(1, 5000) AS n;
	CREATE FUNCTION at_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(70); RETURN coalesce(NEW, OLD); END $$;
	CREATE TRIGGER at_delete BEFORE DELETE ON line FOR EACH ROW WHEN (OLD.id = 3001) EXECUTE FUNCTION at_gate();
	ANALYZE line;
});

# ---------------------------------------------------------------- a crash in the middle
my $gate = hold_gate($node, 70);
my $run = $as_app->(q{SELECT sweep.batched('DELETE FROM line WHERE kind = 1 AND id < 4000', batch_size => 50, pause => NULL, settings => '{"lock_timeout": "10min"}')});
at_gate($node, 70, 'it has come to the middle');
flush_wal($node);
my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM app.line');
cmp_ok($before, '<', 4000, 'some rows are gone');
crash_of($node, $node->safe_psql('postgres', "SELECT pid FROM sweep.running WHERE run_id = $run"));
forget_session($gate);
soon($node, q{SELECT status FROM sweep.runs WHERE trigger = 'retry' AND finished_at IS NOT NULL}, 'succeeded', 'the run that was lost is tried again');
is($node->safe_psql('postgres', 'SELECT count(*), count(*) FILTER (WHERE kind = 1 AND id < 4000) FROM app.line'), '3000|0', 'what is to go is gone, and nothing else');
is($node->safe_psql('postgres', q{SELECT sum((detail->>'deleted')::int) FROM sweep.runs}), '2000', 'the runs together report each row once');

# ---------------------------------------------------------------- rows that others hold, and rows that move
$as_app->(q{
	CREATE TABLE item (id int, state text, n int DEFAULT 0);
	INSERT INTO item SELECT n, CASE WHEN n <= 500 THEN 'free' ELSE 'new' END FROM generate_series(1, 3000) AS n;
	DELETE FROM item WHERE id <= 500;
	CREATE TRIGGER at_delete BEFORE DELETE ON item FOR EACH ROW WHEN (OLD.id = 2000) EXECUTE FUNCTION at_gate();
});
$node->safe_psql('postgres', 'VACUUM app.item');
$gate = hold_gate($node, 70);
my $holder = session($node);
$holder->query_safe('BEGIN; UPDATE app.item SET n = 1 WHERE id IN (700, 800)');
$run = $as_app->(q{SELECT run_id FROM sweep.delete('item', 'state = ''new'' AND id % 2 = 0', batch_size => 40, pause => NULL, name => 'beside', settings => '{"lock_timeout": "10min"}')});
at_gate($node, 70, 'it is behind rows that another session holds');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.item WHERE id IN (700, 800)'), '2', 'these are still there');
# A new version of a row goes into the free space at the beginning.
$as_app->(q{UPDATE item SET n = 2 WHERE id IN (2500, 2700)});
is($node->safe_psql('postgres', 'SELECT bool_and(ctid < (SELECT min(ctid) FROM app.item WHERE id = 1001)) FROM app.item WHERE id IN (2500, 2700)'), 't', 'rows move to where the pass has been');
$holder->query_safe('COMMIT');
open_gate($gate);
like(ended_run($node, $run), qr/^succeeded drained \d+ \d+$/, 'it ends');
is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE id % 2 = 0), count(*) FROM app.item}), '0|1250', 'all are gone');
is($node->safe_psql('postgres', q{SELECT detail FROM sweep.runs WHERE job = 'beside'}), '{"locked": 2, "deleted": 1250}', 'each is counted once');

# ---------------------------------------------------------------- rows that are held to the end
$as_app->(q{DROP TRIGGER at_delete ON item});
$holder->query_safe('BEGIN; UPDATE app.item SET n = 1 WHERE id IN (701, 801, 901)');
$run = $as_app->(q{SELECT sweep.batched('UPDATE item SET state = ''done'', n = n + 1 WHERE state = ''new''', batch_size => 40, pause => NULL, name => 'held', keep_job => true)});
like(ended_run($node, $run), qr/^succeeded drained \d+ \d+$/, 'a run does not wait for them for ever');
is($node->safe_psql('postgres', q{SELECT detail FROM sweep.runs WHERE job = 'held'}), '{"left": 3, "locked": 3, "updated": 1247}', 'and says that they are left');
$holder->query_safe('COMMIT');
$run = $as_app->(q{SELECT sweep.start('held')});
like(ended_run($node, $run), qr/^succeeded drained \d+ \d+$/, 'the next run');
is($node->safe_psql('postgres', q{SELECT n, count(*) FROM app.item WHERE state = 'done' GROUP BY n ORDER BY n}), "1|1247\n2|3", 'updates each of them once');

# ---------------------------------------------------------------- rows that move to a partition that was empty
$as_app->(q{
	CREATE TABLE part (id int, region int) PARTITION BY LIST (region);
	CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
	CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2);
	INSERT INTO part SELECT n, 2 FROM generate_series(1, 1000) AS n;
	CREATE TRIGGER at_delete BEFORE DELETE ON part FOR EACH ROW WHEN (OLD.id = 500) EXECUTE FUNCTION at_gate();
});
$gate = hold_gate($node, 70);
$run = $as_app->(q{SELECT run_id FROM sweep.delete('part', 'id > 0', batch_size => 40, pause => NULL, name => 'moved', settings => '{"lock_timeout": "10min"}')});
at_gate($node, 70, 'it has begun with the only partition that had rows');
$as_app->(q{UPDATE part SET region = 1 WHERE id > 900});
open_gate($gate);
like(ended_run($node, $run), qr/^succeeded drained \d+ \d+$/, 'it ends');
is($node->safe_psql('postgres', q{SELECT count(*) FROM app.part}), '0', 'rows that have moved to the other one are gone, too');
is($node->safe_psql('postgres', q{SELECT detail ->> 'deleted' FROM sweep.runs WHERE job = 'moved'}), '1000', 'each is counted once');

done_testing();
