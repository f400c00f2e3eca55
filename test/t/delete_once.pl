# room: makers
# sweep.delete in the background: it starts with the commit, goes on after a crash where it was, and leaves what came later alone.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('delete_once', conf => ['autovacuum = off']);

$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
});
my $as_app = sub { $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'app' ]) };
$as_app->(q{
	CREATE TABLE app.tenant (id int PRIMARY KEY);
	CREATE TABLE app.document (id int PRIMARY KEY, tenant_id int REFERENCES app.tenant ON DELETE CASCADE);
	CREATE INDEX ON app.document (tenant_id);
	CREATE TABLE app.page (id int PRIMARY KEY, document_id int REFERENCES app.document ON DELETE CASCADE);
	CREATE INDEX ON app.page (document_id);
	INSERT INTO app.tenant SELECT generate_series(1, 50);
	INSERT INTO app.document SELECT n, 1 + n % 50 FROM generate_series(1, 5000) AS n;
	INSERT INTO app.page SELECT n, 1 + n % 5000 FROM generate_series(1, 20000) AS n;
	CREATE FUNCTION app.at_delete() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(70);
		RETURN OLD;
	END $$;
	CREATE TRIGGER at_delete BEFORE DELETE ON app.document FOR EACH ROW WHEN (OLD.id = 2042) EXECUTE FUNCTION app.at_delete();
	ANALYZE;
});

# ---------------------------------------------------------------- with the commit, or not at all
$as_app->(q{BEGIN; SELECT sweep.delete('app.tenant', 'id = 1'); ROLLBACK});
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM sweep.job), (SELECT count(*) FROM sweep.runs)'), '0|0', 'a rollback leaves neither a job nor a run');

# ---------------------------------------------------------------- a crash in the middle
my $gate = hold_gate($node, 70);
my $run = $as_app->(q{SELECT run_id FROM sweep.delete('app.tenant', 'id = 43', batch_size => 20, settings => '{"lock_timeout": "10min"}')});
at_gate($node, 70, 'it has come to the middle');
flush_wal($node);
my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM app.page');
cmp_ok($before, '<', 20000, 'some pages are gone');
cmp_ok($before, '>', 19600, 'others are not');
my $pid = $node->safe_psql('postgres', "SELECT pid FROM sweep.running WHERE run_id = $run");
crash_of($node, $pid);
forget_session($gate);
soon($node, q{SELECT status FROM sweep.runs WHERE trigger = 'retry' AND finished_at IS NOT NULL}, 'succeeded', 'the run that was lost is tried again');
is($node->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $run"), 'lost', 'it was lost');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM app.tenant), (SELECT count(*) FROM app.document), (SELECT count(*) FROM app.page)'), '49|4900|19600', 'all that hangs on the tenant is gone, and nothing else');
is($node->safe_psql('postgres', q{SELECT sum((detail->'tables'->'app.page'->>'deleted')::int), sum((detail->>'deleted')::int) FROM sweep.runs}), '400|1', 'the runs together report each row once');

# ---------------------------------------------------------------- rows that come while it runs
$as_app->(q{
	CREATE TABLE app.line (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind int);
	CREATE INDEX ON app.line (kind);
	INSERT INTO app.line (kind) SELECT n % 100 FROM generate_series(1, 20000) AS n;
	CREATE TRIGGER at_delete BEFORE DELETE ON app.line FOR EACH ROW WHEN (OLD.id = 9007) EXECUTE FUNCTION app.at_delete();
	ANALYZE app.line;
});
$gate = hold_gate($node, 70);
$run = $as_app->(q{SELECT run_id FROM sweep.delete('app.line', 'kind = 7', batch_size => 20, settings => '{"lock_timeout": "10min"}')});
at_gate($node, 70, 'it deletes by an index of equal keys');
$as_app->(q{INSERT INTO app.line (kind) SELECT 7 FROM generate_series(1, 50)});
open_gate($gate);
like(ended_run($node, $run), qr/^succeeded drained \d+ 200$/, 'it ends');
is($node->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE kind = 7), count(*) FROM app.line'), '50|19850', 'rows that came after it began stay');

# ---------------------------------------------------------------- a dry run locks nothing
my $holder = session($node);
$holder->query_safe('BEGIN; UPDATE app.document SET id = id WHERE tenant_id = 8; LOCK TABLE app.page IN ROW EXCLUSIVE MODE');
is($as_app->(q{SELECT tables FROM sweep.delete('app.tenant', 'id = 8', dry_run => true)}), '{"app.page": {"deleted": 400}, "app.tenant": {"deleted": 1}, "app.document": {"deleted": 100}}',
	'a dry run counts rows that another session holds');
is($as_app->(q{BEGIN; SELECT run_id FROM sweep.delete('app.tenant', 'id = 9', dry_run => true); SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND pid = pg_backend_pid(); COMMIT}), "\n0", 'and writes nothing');
$holder->query_safe('COMMIT');

done_testing();
