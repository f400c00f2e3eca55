# room: makers
# A dump in the middle of a copy with changes: its restore has source, copy, the keys of changed rows and how far the copy has come as of one
# moment, and the copy goes on there when it is resumed.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('copy_dump', conf => ['autovacuum = off']);
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump.sql';
my $differ = q{SELECT (SELECT count(*) FROM app.t), count(*) FROM ((TABLE app.t EXCEPT TABLE app.n) UNION ALL (TABLE app.n EXCEPT TABLE app.t)) AS d};

$node->safe_psql('postgres', q{
	CREATE SCHEMA app;
	CREATE TABLE app.t (id int PRIMARY KEY, v int);
	INSERT INTO app.t SELECT n, n FROM generate_series(1, 100) AS n;
	CREATE TABLE app.n (LIKE app.t INCLUDING ALL);
	SELECT sweep.create_copy('app.t', 'app.n', with_changes => true, paused => true, batch_size => 10, max_batches => 5);
});
like(ended_run($node, start('copy_t')), qr/^succeeded max_batches 5 /, 'a run that stops in the middle');
$node->safe_psql('postgres', 'UPDATE app.t SET v = -v WHERE id % 10 = 0; DELETE FROM app.t WHERE id % 10 = 1; INSERT INTO app.t VALUES (0, 0)');
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'restored', '-f', $dump ], 'psql');
is(sql(q{SELECT string_agg(tgname || ' ' || tgenabled::text, ', ' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'app.t'::regclass}, database => 'restored'), 'sweep_changes A, sweep_changes_truncate A', 'the triggers are there');
my $keys = q{SELECT count(*), count(DISTINCT key_1) FROM app.t_sweep_changes};
is(sql($keys, database => 'restored'), sql($keys), 'with the keys of changed rows');
sql('UPDATE app.t SET v = 1000 WHERE id IN (5, 99)', database => 'restored');
sql(q{SELECT sweep.resume_all(); SELECT sweep.alter_job('copy_t', '{"max_batches": null}')}, database => 'restored');
sql(q{CALL sweep.run('copy_t')}, database => 'restored');
is(sql($differ, database => 'restored'), '91|0', 'the restored copy goes on and is what its source is');
sql(q{CALL sweep.run('copy_t', '{"switch": {}}')}, database => 'restored');
is(sql('SELECT count(*) FROM app.t_old', database => 'restored'), 91, 'and is switched');
$node->safe_psql('postgres', q{SELECT sweep.alter_job('copy_t', '{"max_batches": null}')});
like(ended_run($node, start('copy_t')), qr/^succeeded drained /, 'the original goes on as well');
is(sql($differ), '91|0', 'with what has changed here');

# Writers do without the extension.
$node->safe_psql('postgres', 'DROP EXTENSION pg_sweep CASCADE');
is(sql('UPDATE app.t SET v = 1 WHERE id = 2; SELECT v FROM app.t WHERE id = 2'), 1, 'without the extension writers go on');

done_testing();
