# room: makers
# A copy with changes takes the name of its source at a random moment, while sessions insert, update, delete and roll back rows, move keys away and back, and prepare
# transactions. Each does the same to a second table that is not copied: both are the same at the end. COPY_MODEL_SEED and COPY_MODEL_TURNS for others and more.
use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $seed = $ENV{COPY_MODEL_SEED} || int(rand(1e6));
my $turns = $ENV{COPY_MODEL_TURNS} || 1;
my $node = new_cluster('copy_model', conf => [ 'max_prepared_transactions = 10', 'fsync = off' ]);
my $script = PostgreSQL::Test::Utils::tempdir . '/work.sql';

# Columns of the source; the target. The second one is partitioned, the third one has a text as its key, the fourth one a deferred unique key.
my @shapes = (
	[ 'id int PRIMARY KEY, u int UNIQUE, v int, w text', 'CREATE TABLE model.new (LIKE model.row INCLUDING ALL); ALTER TABLE model.new ALTER id TYPE bigint' ],
	[ 'id int, u int, v int, w text, PRIMARY KEY (u, id)', 'CREATE TABLE model.new (LIKE model.row) PARTITION BY HASH (u); ALTER TABLE model.new ADD PRIMARY KEY (u, id);
		CREATE TABLE model.new_0 PARTITION OF model.new FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE model.new_1 PARTITION OF model.new FOR VALUES WITH (MODULUS 2, REMAINDER 1)' ],
	[ 'w text PRIMARY KEY, id int, u int, v int', 'CREATE TABLE model.new (LIKE model.row INCLUDING ALL)' ],
	[ 'id int PRIMARY KEY, u int UNIQUE DEFERRABLE INITIALLY DEFERRED, v int, w text', 'CREATE TABLE model.new (id int PRIMARY KEY, u int UNIQUE, v int, w text)' ],
);

diag("COPY_MODEL_SEED=$seed");
srand($seed);
append_to_file($script, q{
\set kind random(0, 99)
\set next random(0, 99)
\set a random(1, 4000)
\set b random(1, 4000)
\set end random(0, 20)
BEGIN;
SELECT model.change(:kind, :a);
SELECT model.change(:next, :b);
\if :end = 0
ROLLBACK;
\elif :end = 1
PREPARE TRANSACTION 'model_:client_id';
COMMIT PREPARED 'model_:client_id';
\else
COMMIT;
\endif
});

# The rows of the second table are locked first: whoever changes the same rows waits there, and then sees both tables as they are.
sub prepare_turn
{
	my ($columns, $target) = @_;

	sql(qq{
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS model CASCADE;
		CREATE SCHEMA model;
		CREATE TABLE model.row ($columns);
		INSERT INTO model.row (id, u, v, w) SELECT n, n, 0, 'k' || n FROM generate_series(1, 2000) AS n;
		CREATE TABLE model.truth (id int PRIMARY KEY, u int, v int, w text);
		INSERT INTO model.truth SELECT id, u, v, w FROM model.row;
		$target;
		CREATE SEQUENCE model.key START 5000;
		CREATE FUNCTION model.change(kind int, a int) RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			x int;
		BEGIN
			PERFORM FROM model.truth WHERE id BETWEEN a AND a + 30 ORDER BY id FOR UPDATE;
			IF kind < 30 THEN
				x := nextval('model.key');
				INSERT INTO model.row (id, u, v, w) VALUES (x, x, 0, 'k' || x);
				INSERT INTO model.truth (id, u, v, w) VALUES (x, x, 0, 'k' || x);
			ELSIF kind < 60 THEN
				UPDATE model.row SET v = v + 1 WHERE id BETWEEN a AND a + kind - 30;
				UPDATE model.truth SET v = v + 1 WHERE id BETWEEN a AND a + kind - 30;
			ELSIF kind < 72 THEN
				DELETE FROM model.row WHERE id = a;
				DELETE FROM model.truth WHERE id = a;
			ELSIF kind < 80 THEN
				x := nextval('model.key');
				UPDATE model.row SET id = x, w = 'k' || x WHERE id = a;
				UPDATE model.truth SET id = x, w = 'k' || x WHERE id = a;
			ELSIF kind < 86 THEN
				x := nextval('model.key');
				UPDATE model.row SET id = x, w = 'k' || x WHERE id = a;
				UPDATE model.row SET id = a, w = 'k' || a, v = v + 10 WHERE id = x;
				UPDATE model.truth SET w = 'k' || a, v = v + 10 WHERE id = a;
			ELSIF kind < 94 THEN
				BEGIN
					DELETE FROM model.row WHERE id BETWEEN a AND a + 5;
					RAISE division_by_zero;
				EXCEPTION WHEN division_by_zero THEN
					NULL;
				END;
			ELSE
				DELETE FROM model.row WHERE id = a;
				INSERT INTO model.row (id, u, v, w) SELECT id, u, v, w FROM model.truth WHERE id = a;
			END IF;
		END \$\$;
	});
	return;
}

foreach my $turn (1 .. $turns)
{
	my $shape = int(rand(@shapes));
	my $size = 20 + int(rand(200));
	my $more = int(rand(1000));
	my ($out, $err, $run) = ('', '');

	prepare_turn(@{ $shapes[$shape] });
	my $writers = IPC::Run::start([ 'pgbench', '-n', '-c', 4, '-j', 1, '-R', 300, '-T', 10, '--max-tries', 20, '--random-seed', $seed + $turn, '-f', $script, '-h', $node->host, '-p', $node->port, '-U', 'postgres', 'postgres' ],
		'>', \$out, '2>', \$err);
	soon($node, 'SELECT last_value > 5010 FROM model.key', 't', "turn $turn, shape $shape: rows are written");
	sql(qq{SELECT sweep.create_copy('model.row', 'model.new', with_changes => true, name => 'model', batch_size => $size, pause => '5 ms')});
	soon($node, "SELECT last_value > 5010 + $more FROM model.key", 't', 'the copy is under way, or done');
	$run = sql(q{SELECT sweep.switch_copy('model', carry => true)});
	like(ended_run($node, $run), qr/^succeeded drained /, 'the copy takes the name');
	$writers->finish;
	is($err =~ /ERROR|FATAL|abort/ ? $err : '', '', 'no writer has seen an error');
	is(sql(q{SELECT count(*) FROM (SELECT id, u, v, w FROM model.row EXCEPT ALL SELECT id, u, v, w FROM model.truth) AS d}) . ' '
			. sql(q{SELECT count(*) FROM (SELECT id, u, v, w FROM model.truth EXCEPT ALL SELECT id, u, v, w FROM model.row) AS d}), '0 0', 'no row is more, less or another one than in the table that was not copied');
	is(sql(q{SELECT detail -> 'switched', to_regclass('model.row_old') IS NOT NULL, (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'sweep_changes%') FROM sweep.runs WHERE run_id = } . $run), 'true|t|0', 'it was switched, and nothing is left behind');
	sql(q{SELECT sweep.drop_job('model')});
}

done_testing();
