# room: makers
# Jobs that are made with parallel, where ranges meet: rows that go with others of another range, partitions, rows of one key; and a role with another isolation level.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('parallel_ranges', conf => [ 'autovacuum = off', 'max_worker_processes = 20', 'pg_sweep.max_running_jobs = 8' ]);

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

# ---------------------------------------------------------------- rows that go with others
$as_app->(q{
	CREATE TABLE app.a (id int PRIMARY KEY, at timestamptz DEFAULT now() - interval '1 year', parent_id int REFERENCES app.a ON DELETE CASCADE);
	CREATE INDEX ON app.a (at);
	CREATE INDEX ON app.a (parent_id);
	CREATE TABLE app.b (id int PRIMARY KEY, a_id int REFERENCES app.a ON DELETE CASCADE);
	CREATE INDEX ON app.b (a_id);
	CREATE TABLE app.c (id int PRIMARY KEY, a_id int REFERENCES app.a ON DELETE CASCADE);
	CREATE INDEX ON app.c (a_id);
	CREATE TABLE app.d (id int PRIMARY KEY, b_id int REFERENCES app.b ON DELETE CASCADE, c_id int REFERENCES app.c ON DELETE CASCADE);
	CREATE INDEX ON app.d (b_id);
	CREATE INDEX ON app.d (c_id);
	-- a self-reference between the ranges, and a diamond whose sides belong to different rows
	INSERT INTO app.a (id, parent_id) SELECT n, CASE WHEN n > 2000 THEN 1 + (n * 7) % 2000 END FROM generate_series(1, 8000) AS n;
	INSERT INTO app.b SELECT n, n FROM generate_series(1, 8000) AS n;
	INSERT INTO app.c SELECT n, 8001 - n FROM generate_series(1, 8000) AS n;
	INSERT INTO app.d SELECT n, 1 + n % 8000, 1 + (n * 3) % 8000 FROM generate_series(1, 16000) AS n;
	ANALYZE;
});
$as_app->(q{SELECT sweep.create_retention('app.a', 'at', '1 day', schedule => NULL, parallel => 4, batch_size => 200), sweep.start('retention_a')});
ended('retention_a', 'cascades between ranges');
is($as_app->('SELECT (SELECT count(*) FROM app.a), (SELECT count(*) FROM app.b), (SELECT count(*) FROM app.c), (SELECT count(*) FROM app.d)'), '0|0|0|0', 'all rows are gone');

# ---------------------------------------------------------------- partitions, an age that is an expression, ties
$as_app->(q{
	CREATE TABLE app.part (id int, at timestamptz NOT NULL, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
	CREATE TABLE app.part_1 PARTITION OF app.part FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
	CREATE TABLE app.part_2 PARTITION OF app.part FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');
	INSERT INTO app.part SELECT n, timestamptz '2020-06-01' + interval '1 h' * (n / 2) FROM generate_series(1, 20000) AS n;
	CREATE TABLE app.tied (id int, at date, keep int);
	CREATE INDEX ON app.tied ((at + keep));
	INSERT INTO app.tied SELECT n, date '2020-01-01' + n / 3000, 5 FROM generate_series(1, 20000) AS n;
	ANALYZE;
	SELECT sweep.create_retention('app.part', 'at', '1 day', schedule => NULL, parallel => 4, batch_size => 200), sweep.start('retention_part');
	SELECT sweep.create_retention('app.tied', 'at + keep', '0', schedule => NULL, parallel => 4, batch_size => 200), sweep.start('retention_tied');
});
ended('retention_part', 'partitions');
ended('retention_tied', 'few keys with many rows each');
is($as_app->('SELECT (SELECT count(*) FROM app.part), (SELECT count(*) FROM app.tied)'), '0|0', 'all rows are gone');
is(handled('retention_part', 'deleted') . ' ' . handled('retention_tied', 'deleted'), '20000 20000', 'each is reported once');

# ---------------------------------------------------------------- a role that has set another isolation level
$node->safe_psql('postgres', q{ALTER ROLE app SET default_transaction_isolation = 'repeatable read'});
$as_app->(q{CREATE TABLE app.words (word text PRIMARY KEY, n int NOT NULL DEFAULT 0); INSERT INTO app.words SELECT md5(n::text) FROM generate_series(1, 20000) AS n; ANALYZE app.words});
$as_app->(q{SELECT sweep.create_backfill('app.words', 'n = -1', 'n <> -1', parallel => 4, batch_size => 200)});
ended('backfill_words', 'repeatable read');
is($as_app->('SELECT count(*) FROM app.words WHERE n = -1'), '20000', 'repeatable read: all rows');

$node->stop;
done_testing();
