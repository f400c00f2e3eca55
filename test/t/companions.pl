# room: engine
# Beside extensions that watch each statement, as most servers have them: what jobs and consumers execute is counted for their role, its plans are logged,
# and nothing fails.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('companions', preload => 'pg_stat_statements, auto_explain, pg_sweep', conf => [ 'pg_stat_statements.track = all', 'pg_stat_statements.track_planning = on',
	'auto_explain.log_min_duration = 0', 'auto_explain.log_analyze = on', 'auto_explain.log_nested_statements = on', 'auto_explain.log_triggers = on' ]);
$node->safe_psql('postgres', q{
	CREATE EXTENSION pg_stat_statements;
	CREATE ROLE app LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION app;
	SET ROLE app;
	CREATE TABLE app.event (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT '2026-01-01');
	CREATE TABLE app.note (id int PRIMARY KEY, event int REFERENCES app.event ON DELETE CASCADE);
	CREATE INDEX ON app.event (at);
	CREATE INDEX ON app.note (event);
	INSERT INTO app.event SELECT n FROM generate_series(1, 100) AS n;
	INSERT INTO app.note SELECT n, n % 100 + 1 FROM generate_series(1, 300) AS n;
	CREATE TABLE app.item (id int PRIMARY KEY, v int NOT NULL DEFAULT 0);
	INSERT INTO app.item SELECT n FROM generate_series(1, 100) AS n;
	CREATE TABLE app.copy (LIKE app.item INCLUDING ALL);
	CREATE TABLE app.done (id bigint);
	CREATE FUNCTION app.handle(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO app.done SELECT m.message_id';
	SELECT sweep.create_job('own', batch_sql => 'UPDATE app.item SET v = 1 WHERE id IN (SELECT i.id FROM app.item AS i WHERE i.v = 0 LIMIT $1)', batch_size => 40);
	SELECT sweep.create_retention('app.event', 'at', '1 day', schedule => NULL, batch_size => 60, name => 'old');
	SELECT sweep.create_copy('app.item', 'app.copy', with_changes => true, paused => true, name => 'copy');
	SELECT sweep.create_queue('mail');
	SELECT sweep.create_consumer('mail', 'app.handle');
});

is(ended_run($node, start('own')), 'succeeded drained 4 100', 'a job with a statement of its own');
like(ended_run($node, start('old')), qr{^succeeded drained [0-9]+ 100$}, 'a retention with rows that go with others');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.note'), 0, 'all of them have gone');
$node->safe_psql('postgres', q{CALL sweep.run('copy'); UPDATE app.item SET v = 2 WHERE id < 10; CALL sweep.run('copy', '{"switch": {}}')}, extra_params => [ '-U', 'app' ]);
is($node->safe_psql('postgres', q{SELECT sum(v), to_regclass('app.item_old') IS NOT NULL FROM app.item}), '109|t', 'a copy that takes the name of its source');
$node->safe_psql('postgres', q{SELECT sweep.send_many('mail', array_fill('1'::jsonb, ARRAY[20]))});
soon($node, 'SELECT count(*) FROM app.done', 20, 'messages are handled');
soon($node, 'SELECT sum(ready + in_flight) FROM sweep.queues', 0, 'and acknowledged');
is($node->safe_psql('postgres', q{SELECT sum(s.calls), sum(s.rows) FROM pg_stat_statements AS s JOIN pg_roles AS r ON r.oid = s.userid WHERE r.rolname = 'app' AND s.query LIKE 'UPDATE app.item SET v = $_ WHERE id IN%'}),
	'4|100', 'the statement of the job is counted for its role, batch by batch');
like(slurp_file($node->logfile), qr/Query Text: UPDATE app.item SET v = 1 WHERE id IN/, 'its plan is logged');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE status <> 'succeeded'}), 0, 'no run has failed');

done_testing();
