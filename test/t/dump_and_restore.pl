# room: api
# pg_dump and psql: definitions and messages arrive, history does not, and the
# copy does nothing until somebody says that it may.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('dump_and_restore', gitlab => 1);
my $elsewhere = new_cluster('dump_elsewhere', bare => 1);
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump.sql';

$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('handed_on');
	SELECT sweep.create_job('work', step => 't.work', args => '{"queue": "handed_on"}', batch_size => 100, run_as => 'jobber', description => 'a word');
	SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}', timezone => 'Europe/Berlin');
	SELECT sweep.create_job('resting', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', schedule => '@daily');
	SELECT sweep.pause('resting');
	SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
	SELECT sweep.create_job('environments_auto_stop', step => 'sweep_gitlab.environments_auto_stop', args => '{"schema": "public"}');
	SELECT sweep_gitlab.keep_environment(7, '2026-01-01Z');
	SELECT sweep.create_queue('consumed');
	CREATE TABLE t.consumed (payload jsonb);
	CREATE FUNCTION t.consume(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.consumed VALUES (m.payload)';
	SELECT sweep.create_consumer('consumed', 't.consume');
	INSERT INTO t.todo SELECT i FROM generate_series(1, 250) AS i;
	SELECT sweep.alter_job('work', '{"run_as": "postgres"}');
});
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('work')})), 'succeeded drained 4 250', 'a fan-out');
$node->safe_psql('postgres', q{SELECT sweep.alter_job('work', '{"run_as": "jobber"}')});
my $lease = $node->safe_psql('postgres', q{SELECT DISTINCT lease FROM sweep.claim('handed_on', 50, '1 hour')});
$node->safe_psql('postgres', qq{SELECT sweep.ack('$lease')});
$node->safe_psql('postgres', q{SELECT sweep.claim('handed_on', 10, '1 hour')});
soon($node, q{SELECT count(*) > 2 FROM t.started}, 't', 'a schedule');
my $definitions = q{SELECT md5(string_agg(to_jsonb(j)::text, ' ' ORDER BY name)) FROM sweep.job j};
my $messages = q{SELECT md5(string_agg(to_jsonb(m)::text, ' ' ORDER BY message_id)) FROM sweep.queue_message m};

$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'pg_dump');
unlike(slurp_file($dump), qr/COPY sweep\.run_history/, 'runs are not dumped');
like(slurp_file($dump), qr/^COPY sweep\.run_live [^\n]+;\n\\\.$/m, 'nor the last ones of jobs that do not keep their cursor');
$elsewhere->safe_psql('postgres', 'CREATE ROLE jobber LOGIN');

for my $target ([ $node, 'the same cluster' ], [ $elsewhere, 'another cluster' ])
{
	my ($cluster, $where) = @$target;

	$cluster->safe_psql('postgres', 'CREATE DATABASE copy');
	$cluster->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'copy', '-f', $dump ], "$where: psql");
	$cluster->safe_psql('postgres', 'GRANT sweep_user TO jobber');
	is($cluster->safe_psql('copy', $definitions), $node->safe_psql('postgres', $definitions), "$where: definitions arrive");
	is($cluster->safe_psql('copy', q{SELECT string_agg(enabled::text, ' ' ORDER BY name) FROM sweep_gitlab.feature_flag}), 'true false', "$where: feature flags arrive");
	is($cluster->safe_psql('copy', q{SELECT environment_id, run_as FROM sweep_gitlab.kept_environment}), '7|postgres', "$where: what a job of GitLab remembers arrives");
	my (undef, undef, $refused) = $cluster->psql('copy', q{SELECT sweep.alter_job('environments_auto_stop', '{"args": {"schema": 3}}')});
	like($refused, qr/ERROR:  invalid arg "schema": 3/, "$where: and its args are checked");
	is($cluster->safe_psql('copy', $messages), $node->safe_psql('postgres', $messages), "$where: messages arrive");
	is($cluster->safe_psql('copy', 'SELECT count(*) FROM sweep.queue_message'), 200, "$where: all of them");
	is($cluster->safe_psql('copy', 'SELECT count(*), min(state), max(state) FROM sweep.jobs'), '4|paused: the database is a copy|paused: the database is a copy', "$where: every job is paused");
	my $begin = $cluster->safe_psql('postgres', 'SELECT clock_timestamp()');
	my $count = $cluster->safe_psql('copy', 'SELECT count(*) FROM t.started');
	# A scheduler that looks starts nothing.
	tick($cluster, database => 'copy');
	soon($cluster, "SELECT clock_timestamp() > '$begin'::timestamptz + interval '2 s'", 't', "$where: two due moments pass");
	is($cluster->safe_psql('copy', 'SELECT count(*) FROM t.started'), $count, "$where: nothing starts");
	is($cluster->safe_psql('copy', 'SELECT count(*) FROM sweep.runs'), 0, "$where: no run is written down");
	$cluster->safe_psql('copy', q{SELECT sweep.send('consumed', '1')});
	is($cluster->safe_psql('copy', 'SELECT state, workers FROM sweep.consumers'), 'paused: the database is a copy|0', "$where: the consumer is paused");
	$cluster->safe_psql('copy', 'SELECT sweep.resume_all()');
	soon($cluster, 'SELECT payload FROM t.consumed', 1, "$where: resume_all makes it consume", 'copy');
	soon($cluster, "SELECT count(*) > $count FROM t.started", 't', "$where: resume_all makes its schedules apply", 'copy');
	is($cluster->safe_psql('copy', q{SELECT state FROM sweep.jobs WHERE name = 'resting'}), 'paused', "$where: what was paused by name stays so");
	is($cluster->safe_psql('copy', q{SELECT sweep.send('handed_on', '{}', 'new') > (SELECT max(message_id) FROM sweep.queue_message WHERE key <> 'new')}),
		't', "$where: a new message has a number of its own");
	$cluster->safe_psql('copy', q{SELECT sweep.create_queue('another')});
	is($cluster->safe_psql('copy', q{SELECT count(*) FROM sweep.claim('handed_on', 1000)}), 201, "$where: all can be claimed, whoever held them when they were dumped");
	$cluster->safe_psql('copy', 'INSERT INTO t.todo SELECT i FROM generate_series(1001, 1100) AS i; SELECT sweep.alter_job($$work$$, $${"run_as": "postgres"}$$)');
	is(ended_run($cluster, $cluster->safe_psql('copy', q{SELECT sweep.start('work')}), 'copy'), 'succeeded drained 2 100', "$where: jobs work");
}

is($node->safe_psql('postgres', q{SELECT state IN ('idle', 'running', 'waiting_for_slot') FROM sweep.jobs WHERE name = 'tick'}), 't', 'the original goes on as before');

# ---------------------------------------------------------------- the dump of the copy, which is at home now, and one of jobs alone
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dump.c", 'copy' ], 'pg_dump of the copy');
$node->safe_psql('postgres', 'CREATE DATABASE third');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'third', "$dump.c" ], 'pg_restore');
is($node->safe_psql('third', 'SELECT DISTINCT state FROM sweep.jobs'), 'paused: the database is a copy', 'its jobs are paused, too');

# ---------------------------------------------------------------- a dump that is restored in the database that it is of
$node->safe_psql('third', 'SELECT sweep.resume_all()');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dump.c", 'third' ], 'pg_dump of a database that is at home');
is($node->safe_psql('third', q{SELECT count(*) FROM sweep.jobs WHERE state LIKE 'paused: the%'}), 0, 'where jobs run');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--clean', '-d', 'third', "$dump.c" ], 'pg_restore --clean there');
is($node->safe_psql('third', 'SELECT (SELECT string_agg(DISTINCT state, $$ $$) FROM sweep.jobs), (SELECT state FROM sweep.consumers)'),
	'paused: the database is a copy|paused: the database is a copy', 'its jobs and consumers are paused as well');

# ---------------------------------------------------------------- what belonged to a role that was dropped
$node->safe_psql('postgres', 'CREATE ROLE leaver LOGIN IN ROLE sweep_user; CREATE DATABASE left_behind');
prepare_database($node, 'left_behind');
$node->safe_psql('left_behind', q{
	CREATE FUNCTION t.consume(m sweep.message) RETURNS void LANGUAGE sql AS $$ INSERT INTO t.started (job) VALUES ('consumed as ' || current_user) $$;
	CREATE FUNCTION t.who(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		INSERT INTO t.started (job) VALUES ('run as ' || current_user); SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
	SELECT sweep.create_queue('of_others');
	SELECT sweep.grant_queue('of_others', 'leaver', '{send,consume}');
	SET SESSION AUTHORIZATION leaver;
	SELECT sweep.create_job('left', step => 't.who');
	SELECT sweep.create_queue('left');
	SELECT sweep.create_consumer('left', 't.consume');
	SELECT sweep.begin_once('key');
});
my $oid = $node->safe_psql('postgres', q{SELECT 'leaver'::regrole::oid});
$node->safe_psql('postgres', 'DROP ROLE leaver');
$node->command_ok([ 'pg_dump', '-f', $dump, 'left_behind' ], 'pg_dump after DROP ROLE');
unlike(slurp_file($dump), qr/\b$oid\b/, 'no number of a role is in it');
# where that number is a superuser, and the name nobody
$elsewhere->safe_psql('postgres', qq{
	CREATE ROLE impostor LOGIN SUPERUSER;
	SET allow_system_table_mods = on;
	UPDATE pg_authid SET oid = $oid WHERE rolname = 'impostor';
	CREATE DATABASE left_behind;
});
is($elsewhere->safe_psql('postgres', "SELECT $oid\::regrole"), 'impostor', 'elsewhere the number is a superuser');
$elsewhere->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'left_behind', '-f', $dump ], 'it can be restored where the role is missing');
sub left { return $elsewhere->safe_psql('left_behind', $_[0], extra_params => [ '-U', $_[1] // 'postgres' ]) }
left('SELECT sweep.resume_all()');
is(left(q{SELECT run_as FROM sweep.job UNION ALL SELECT owner FROM sweep.queue WHERE name = 'left' UNION ALL SELECT senders[1] || consumers[1] FROM sweep.queue
	WHERE name = 'of_others' UNION ALL SELECT run_as FROM sweep.consumer UNION ALL SELECT role FROM sweep.once_key}), "leaver\nleaver\nleaverleaver\nleaver\nleaver",
	'all of it has the name of the role');
is(left('SELECT state FROM sweep.jobs'), 'broken: role "leaver" does not exist', 'the job is broken');
is(left('SELECT state, workers FROM sweep.consumers'), 'broken: role "leaver" does not exist|0', 'the consumer, too');
isnt($elsewhere->psql('left_behind', q{SELECT sweep.start('left')}), 0, 'it cannot be started');
is(left(q{SELECT sweep.begin_once('key')}, 'impostor'), 't', 'the key is not that of the superuser');
$elsewhere->safe_psql('postgres', 'ALTER ROLE impostor NOSUPERUSER; GRANT sweep_user TO impostor');
for my $act (q{SELECT sweep.pause('left')}, q{SELECT sweep.send('left', '1')}, q{SELECT sweep.send('of_others', '1')}, q{SELECT sweep.claim('of_others')}, q{SELECT sweep.drop_consumer('left')})
{
	my ($status, undef, $message) = $elsewhere->psql('left_behind', $act, extra_params => [ '-U', 'impostor' ]);
	like($message, qr/permission denied/, "nothing belongs to the role of that number: $act");
}
is(left(q{SELECT count(*) FROM sweep.job}, 'impostor'), 0, 'nor does it see the job');
$elsewhere->safe_psql('postgres', 'CREATE ROLE leaver LOGIN IN ROLE sweep_user');
is(ended_run($elsewhere, left(q{SELECT sweep.start('left')}, 'leaver'), 'left_behind'), 'succeeded drained 1 0', 'when there is a role of that name the job is its');
left(q{SELECT sweep.send('left', '1'), sweep.send('of_others', '1'), sweep._wake()});
left(q{SELECT sweep.send('of_others', '1'), sweep.send('left', '1')}, 'leaver');
soon($elsewhere, q{SELECT string_agg(DISTINCT job, ', ' ORDER BY job) FROM t.started}, 'consumed as leaver, run as leaver', 'it heals', 'left_behind');
is(left(q{SELECT sweep.begin_once('key')}, 'leaver'), 'f', 'its key is known');

# ---------------------------------------------------------------- roles that are no superuser
# What pg_dump dumps it first locks, and reads as its role.
$node->safe_psql('postgres', 'CREATE ROLE keeper LOGIN; CREATE ROLE reader LOGIN IN ROLE pg_read_all_data; CREATE DATABASE kept OWNER keeper; CREATE DATABASE kept_again OWNER keeper');
$node->safe_psql('kept', q{
	CREATE EXTENSION pg_sweep_gitlab CASCADE;
	SELECT sweep.create_job('kept', sql => 'SELECT 1');
	SELECT sweep.create_queue('kept'), sweep.send('kept', '1');
	SET ROLE keeper;
	CREATE TABLE own AS SELECT 1 AS id;
});
$node->command_fails_like([ 'pg_dump', '-U', 'keeper', '-f', $dump, 'kept' ], qr/permission denied for/, 'the owner of a database cannot dump the jobs');
$node->command_ok([ 'pg_dump', '-U', 'keeper', '--exclude-schema=sweep*', '-f', $dump, 'kept' ], 'but all the rest');
$node->safe_psql('kept_again', 'CREATE EXTENSION pg_sweep_gitlab CASCADE');
$node->psql('kept_again', slurp_file($dump), extra_params => [ '-U', 'keeper' ], on_error_stop => 0);
is($node->safe_psql('kept_again', 'SELECT (SELECT count(*) FROM own), (SELECT count(*) FROM sweep.jobs)'), '1|0', 'and restore that where there is the extension');
$node->command_ok([ 'pg_dump', '-U', 'reader', '-f', $dump, 'kept' ], 'who may read all data dumps all of it');
like(slurp_file($dump), qr/^COPY sweep\.job_definition [^\n]*\nkept\t.*^COPY sweep\.queue_message [^\n]*\n1\t/ms, 'with jobs and messages');
$node->stop;
$elsewhere->stop;
done_testing();
