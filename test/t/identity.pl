# room: base
# A job's SQL is its owner and cannot become anything else, nothing in a search
# path fools the engine, and who may do what is as documented.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('identity');

# Runs SQL as a role in a session of its own; returns output and messages.
sub as
{
	my ($role, $sql) = @_;
	my ($status, $output, $message) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]);

	return "$output$message";
}

$node->safe_psql('postgres', q{
	CREATE ROLE operator LOGIN IN ROLE sweep_operator;
	CREATE ROLE watcher LOGIN IN ROLE sweep_monitor;
	CREATE ROLE admin LOGIN IN ROLE sweep_admin;
	CREATE ROLE other LOGIN IN ROLE sweep_user;
	CREATE ROLE nobody LOGIN;
	CREATE ROLE shared_owner LOGIN IN ROLE sweep_user;
	GRANT shared_owner TO jobber;
	CREATE SCHEMA evil AUTHORIZATION jobber;
	GRANT CREATE ON SCHEMA public TO jobber;
	CREATE TABLE t.seen (what text, current_user_name text, session_user_name text, path text);
	GRANT ALL ON t.seen TO PUBLIC;
	CREATE TABLE t.secret (word text);
	INSERT INTO t.secret VALUES ('secret');
	SELECT sweep.create_job('of_superuser', step => 't.note', args => '{"job": "of_superuser"}');
});

# ---------------------------------------------------------------- nobody else
my %attack = (
	plain => 'NULL',
	reset_role => 'RESET ROLE',
	set_role => 'SET ROLE postgres',
	set_role_none => 'SET ROLE NONE',
	set_session_authorization => 'SET SESSION AUTHORIZATION postgres',
	reset_session_authorization => 'RESET SESSION AUTHORIZATION',
	read_secret => 'SELECT * FROM t.secret',
	read_jobs => 'UPDATE sweep.job_definition SET run_as = 10',
	write_own_row => 'UPDATE sweep.run_live SET rows = 1000000',
	call_internal => q{SELECT sweep._start(10, 'of_superuser', '{}', '0')},
	reset_all => 'RESET ALL',
	discard => q{SELECT set_config('role', 'postgres', false)},
	session_parameter => q{SELECT set_config('session_authorization', 'postgres', false)},
);
for my $name (sort keys %attack)
{
	my $body = $attack{$name} eq 'NULL' ? 'NULL' : 'EXECUTE ' . "\$x\$$attack{$name}\$x\$";

	as('jobber', qq{
		CREATE FUNCTION evil.$name(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS \$f\$
		BEGIN
			IF b.cursor IS NULL THEN
				BEGIN
					$body;
					INSERT INTO t.seen VALUES ('$name done', current_user, session_user, pg_catalog.current_setting('search_path'));
				EXCEPTION WHEN OTHERS THEN
					INSERT INTO t.seen VALUES ('$name refused', current_user, session_user, pg_catalog.current_setting('search_path'));
				END;
				RETURN ROW(1, '1', NULL)::sweep.progress;
			END IF;
			INSERT INTO t.seen VALUES ('$name later', current_user, session_user, pg_catalog.current_setting('search_path'));
			BEGIN
				PERFORM * FROM t.secret;
				INSERT INTO t.seen VALUES ('$name has the secret', current_user, session_user, '');
			EXCEPTION WHEN insufficient_privilege THEN NULL;
			END;
			RETURN ROW(0, NULL, NULL)::sweep.progress;
		END \$f\$;
		SELECT sweep.create_job('$name', step => 'evil.$name')});
	$node->safe_psql('postgres', 'TRUNCATE t.seen');
	my $run = as('jobber', "SELECT sweep.start('$name')");
	is(ended_run($node, $run), 'succeeded drained 2 1', "$name: the run ends as usual and counts its own rows");
	is($node->safe_psql('postgres', 'SELECT DISTINCT current_user_name, session_user_name FROM t.seen'), 'jobber|jobber',
		"$name: the step is its owner, and nobody else afterwards");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t.seen WHERE what LIKE '%secret'}), 0, "$name: the secret is kept");
	is($node->safe_psql('postgres', q{SELECT rolname FROM pg_roles r JOIN sweep.job j ON j.run_as = r.rolname WHERE j.name = 'of_superuser'}),
		'postgres', "$name: no job has changed");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'of_superuser'}), 0, 'the job of somebody else has not been started');

# the path a job starts with, in a worker and in a session
$node->safe_psql('postgres', q{ALTER ROLE jobber SET search_path = evil, public; TRUNCATE t.seen});
ended_run($node, as('jobber', q{SELECT sweep.start('plain')}));
as('jobber', q{SET search_path = evil; CALL sweep.run('plain')});
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT path, ' and ' ORDER BY path) FROM t.seen}), 'evil and evil, public', 'a step begins with the search_path of its session, or its role');

# ---------------------------------------------------------------- a hostile path
as('jobber', q{
	CREATE FUNCTION evil.caught(text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.seen VALUES ('caught ' || $1, current_user, session_user, '');
		RETURN $1;
	END $$;
	CREATE FUNCTION evil.same(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN PERFORM evil.caught('bigint ='); RETURN true; END $$;
	CREATE FUNCTION evil.same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN PERFORM evil.caught('text ='); RETURN true; END $$;
	CREATE FUNCTION evil.same(tid, tid) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN PERFORM evil.caught('tid ='); RETURN true; END $$;
	CREATE OPERATOR evil.= (FUNCTION = evil.same, LEFTARG = bigint, RIGHTARG = bigint);
	CREATE OPERATOR evil.= (FUNCTION = evil.same, LEFTARG = text, RIGHTARG = text);
	CREATE OPERATOR evil.= (FUNCTION = evil.same, LEFTARG = tid, RIGHTARG = tid);
	CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
		BEGIN PERFORM evil.caught('clock_timestamp'); RETURN pg_catalog.now(); END $$;
	CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $$
		BEGIN PERFORM evil.caught('now'); RETURN pg_catalog.clock_timestamp(); END $$;
	CREATE FUNCTION evil.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN PERFORM evil.caught('format'); RETURN $1; END $$;
	CREATE FUNCTION evil.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN PERFORM evil.caught('pg_has_role'); RETURN true; END $$;
	CREATE FUNCTION public.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	CREATE TABLE evil.pg_roles AS SELECT * FROM pg_catalog.pg_roles;
	CREATE FUNCTION evil.path(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE 'CREATE TEMP TABLE IF NOT EXISTS run_live (run_id bigint, rows bigint)';
		EXECUTE 'CREATE TEMP TABLE IF NOT EXISTS pg_roles AS SELECT * FROM pg_catalog.pg_roles';
		PERFORM pg_catalog.set_config('search_path', 'evil, pg_temp, public, pg_catalog', false);
		RETURN ROW(CASE WHEN b.cursor IS NULL THEN 3 ELSE 0 END, '1', NULL)::sweep.progress;
	END $$;
});
as('jobber', q{SELECT sweep.create_job('path', step => 'evil.path')});
$node->safe_psql('postgres', 'TRUNCATE t.seen');
my $rows_elsewhere = $node->safe_psql('postgres', q{SELECT md5(string_agg(r::text, ' ' ORDER BY run_id)) FROM sweep.runs r WHERE job <> 'path'});
my $run = as('jobber', q{SELECT sweep.start('path')});
is(ended_run($node, $run), 'succeeded drained 2 3', 'hostile path: the run ends as usual');
my $said = as('jobber', q{CALL sweep.run('path')});
like($said, qr/NOTICE:  job "path" run \d+: 3 rows in 2 batches, drained/, 'hostile path: so does one in a session');
for my $act (q{sweep.create_job('more', step => 'evil.plain', run_as => 'postgres')}, q{sweep.start('of_superuser')},
	q{sweep.alter_job('path', '{"run_as": "postgres"}')}, q{sweep.drop_job('of_superuser')})
{
	like(as('jobber', "SET search_path = evil, pg_temp, public, pg_catalog; SELECT $act"), qr/ERROR:  (permission denied|must be|invalid)/,
		"hostile path: $act is refused all the same");
}
$said = as('jobber', q{SET search_path = evil, pg_temp, public, pg_catalog;
	SELECT sweep.pause('path'); SELECT sweep.resume('path'); SELECT pg_catalog.count(*) FROM sweep.jobs; SELECT pg_catalog.count(*) FROM sweep.runs});
unlike($said, qr/ERROR/, 'hostile path: what is allowed works');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.seen WHERE current_user_name <> 'jobber'}), 0,
	'hostile path: nothing of it is ever called as somebody else');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.seen}), 0, 'hostile path: nothing of it is called at all');
is($node->safe_psql('postgres', q{SELECT md5(string_agg(r::text, ' ' ORDER BY run_id)) FROM sweep.runs r WHERE job <> 'path'}),
	$rows_elsewhere, 'hostile path: the rows of other runs are as they were');

# ---------------------------------------------------------------- code of a user in a worker, wherever the engine calls it
# Each of these functions leaves behind a path in which names of the engine are found first, other formats, and the
# role another one. What the engine does next is done as ever, and the traps are called by nobody but jobber.
as('jobber', q{
	CREATE FUNCTION evil.caught_as_user(text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	BEGIN
		INSERT INTO t.seen VALUES ('caught ' || $1, current_user, session_user, '');
		RETURN true;
	END $$;
	CREATE VIEW evil.pg_database AS SELECT oid, datname FROM pg_catalog.pg_database WHERE evil.caught_as_user('pg_database');
	CREATE VIEW evil.pg_proc AS SELECT oid, proname, pronamespace FROM pg_catalog.pg_proc WHERE evil.caught_as_user('pg_proc');
	CREATE FUNCTION evil.random() RETURNS float8 LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.caught_as_user('random'); RETURN 0.5; END $$;
	CREATE FUNCTION evil.leave_behind() RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			PERFORM pg_catalog.set_config('role', 'shared_owner', false);
		EXCEPTION WHEN insufficient_privilege THEN NULL; -- where the engine waits for it with more rights
		END;
		PERFORM pg_catalog.set_config(s.name, s.value, false) FROM (VALUES ('search_path', 'evil, pg_temp, pg_catalog'),
			('standard_conforming_strings', 'off'), ('escape_string_warning', 'off'), ('array_nulls', 'off'), ('transform_null_equals', 'on'),
			('DateStyle', 'German'), ('IntervalStyle', 'sql_standard'), ('plpgsql.extra_errors', 'all')) AS s (name, value)
			-- 19 has no other literals, and no settings for them
			WHERE s.name OPERATOR(pg_catalog.!~) 'string' OR pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.<) 190000;
		RETURN true;
	END $$;
	CREATE FUNCTION evil.note(what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
		BEGIN INSERT INTO t.seen VALUES (what, current_user, session_user, ''); END $$;
	GRANT USAGE ON SCHEMA evil TO shared_owner;
	CREATE FUNCTION evil.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	BEGIN
		PERFORM evil.note('pick');
		RETURN QUERY SELECT to_jsonb(n) FROM generate_series(coalesce((b.cursor #>> '{}')::int, 0) + 1, 4) AS n LIMIT 2;
		PERFORM evil.leave_behind();
	END $$;
	CREATE FUNCTION evil.handle(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	BEGIN
		PERFORM evil.note('step'), evil.leave_behind();
		IF b.items @> ARRAY[to_jsonb(2)] OR b.items @> ARRAY[to_jsonb(3)] THEN
			RAISE EXCEPTION 'not this one';
		END IF;
		RETURN ROW(1, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION evil.save(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	BEGIN
		PERFORM evil.note('rescue'), evil.leave_behind();
		IF b.items @> ARRAY[to_jsonb(3)] THEN
			RAISE EXCEPTION 'nor can this be rescued';
		END IF;
		RETURN ROW(1, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION evil.count(b sweep.batch) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
		BEGIN PERFORM evil.note('buckets_function'), evil.leave_behind(); RETURN 2; END $$;
	CREATE FUNCTION evil.share(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog AS $$
		BEGIN PERFORM evil.leave_behind(); RETURN ROW(CASE WHEN b.cursor IS NULL THEN 1 ELSE 0 END, '1', NULL)::sweep.progress; END $$;
	CREATE DOMAIN evil.checked AS text CHECK (evil.leave_behind());
	CREATE TYPE evil.composite AS (v evil.checked);
	CREATE FUNCTION evil.handler(m sweep.message) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	BEGIN
		PERFORM evil.note('handler'), evil.leave_behind();
		IF m.payload = '2' AND m.attempts = 1 THEN
			RAISE EXCEPTION 'not the first time';
		END IF;
	END $$;
});
$node->safe_psql('postgres', 'TRUNCATE t.seen');
is(as('jobber', q{
	SELECT sweep.create_job('of_items', pick => 'evil.pick', step => 'evil.handle', rescue => 'evil.save', max_attempts => 2);
	SELECT sweep.create_job('of_shares', step => 'evil.share', buckets => 2, buckets_function => 'evil.count');
	SELECT sweep.create_job('of_composites', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE ('(a)'::evil.composite) IS NULL AND $1 < 0$$, on_start => '{"of_shares": "0"}');
	SELECT sweep.create_queue('evil', backoff => 'none');
	SELECT sweep.create_consumer('evil', 'evil.handler', batch => 4);
	SELECT count(sweep.send('evil', to_jsonb(n))) FROM generate_series(1, 4) AS n}) =~ s/\s//gr, '4', 'user code: jobs and a consumer that leave settings behind');
is(ended_run($node, as('jobber', q{SELECT sweep.start('of_items')})), 'succeeded drained 3 3', 'user code: pick, step and rescue');
is($node->safe_psql('postgres', q{SELECT string_agg(item::text, ' ') FROM sweep.quarantine WHERE job = 'of_items'}), '3', 'user code: what none of them can handle is in quarantine');
is(ended_run($node, as('jobber', q{SELECT sweep.start('of_composites')})), 'succeeded drained 1 0', 'user code: a domain in a batch_sql, and a divided child');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'of_shares' AND status = 'succeeded' AND rows = 1}, '2', 'user code: buckets_function and shares');
soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'evil'}, '0', 'user code: a handler');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT what, ' ' ORDER BY what) FROM t.seen WHERE what NOT LIKE 'caught%'}),
	'buckets_function handler pick rescue step', 'user code: all of it was called');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT current_user_name || ' ' || session_user_name, ', ') FROM t.seen
	WHERE current_user_name NOT IN ('jobber', 'shared_owner') OR session_user_name <> 'jobber'}), '', 'user code: by nobody but its own role');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.seen WHERE what LIKE 'caught%'}), 0, 'user code: nothing of the engine was looked up in its path');
is(as('jobber', q{SELECT sweep.drop_consumer('evil'); SELECT sweep.drop_queue('evil')}) =~ s/\s//gr, '', 'user code: the consumer can be dropped');

# ---------------------------------------------------------------- settings that get in the way
for my $setting ('default_transaction_read_only = on', q{default_transaction_isolation = 'serializable'}, 'default_transaction_deferrable = on',
	'row_security = off', q{session_replication_role = 'replica'}, q{statement_timeout = '1ms'}, q{lock_timeout = '1ms'},
	q{idle_in_transaction_session_timeout = '1ms'}, q{client_min_messages = 'error'}, q{DateStyle = 'German'}, q{IntervalStyle = 'sql_standard'},
	q{bytea_output = 'escape'}, q{TimeZone = 'Asia/Kathmandu'}, q{synchronous_commit = 'off'},
	q{plan_cache_mode = 'force_custom_plan'}, 'transform_null_equals = on', 'check_function_bodies = off',
	# 19 has no other literals
	$node->safe_psql('postgres', 'SHOW server_version_num') < 190000 ? 'standard_conforming_strings = off' : ())
{
	$node->safe_psql('postgres', "ALTER ROLE jobber SET $setting");
	my $new = $node->safe_psql('postgres', q{SET ROLE admin; SELECT sweep.start('plain')});
	my $end = ended_run($node, $new);
	# a timeout of a millisecond may end either batch, or none
	like($end, qr/^(succeeded drained 2 1|failed error (0 0|1 1))$/, "$setting: the run has an end ($end)");
	my $why = $node->safe_psql('postgres', "SELECT coalesce(error, '') FROM sweep.runs WHERE run_id = $new");
	like($why, qr/timeout|cannot execute \w+ in a read-only transaction/, "$setting: and says why")
	  if $end =~ /failed/;
	$node->safe_psql('postgres', 'ALTER ROLE jobber RESET ' . ($setting =~ /^(\w+)/)[0]);
}
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET default_transaction_read_only = on});
$node->restart;
my $new = $node->safe_psql('postgres', q{SET default_transaction_read_only = off; SELECT sweep.start('of_superuser')});
like(ended_run($node, $new), qr/^(succeeded|failed) /, 'a database that is read-only by default: the engine works');
$node->safe_psql('postgres', q{SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only});
$node->restart;
is(ended_run($node, as('jobber', q{SELECT sweep.start('plain')})), 'succeeded drained 2 1', 'without such settings it runs');

# ---------------------------------------------------------------- in a session: only as oneself
like(as('jobber', q{CALL sweep.run('of_superuser')}), qr/ERROR:  job "of_superuser" can be run in a session of its role only\nDETAIL: .*"postgres".\nHINT:  Use sweep.start/,
	'CALL: not the job of somebody else');
my ($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('plain')});
like($message, qr/job "plain" can be run in a session of its role only/, 'CALL: not even as superuser');
($status, $output, $message) = $node->psql('postgres', q{SET ROLE jobber; CALL sweep.run('plain')});
like($message, qr/job "plain" can be run in a session of its role only/, 'CALL: nor as superuser after SET ROLE');
($status, $output, $message) = $node->psql('postgres', q{SET SESSION AUTHORIZATION jobber; CALL sweep.run('plain')});
like($message, qr/job "plain" can be run in a session of its role only/, 'CALL: nor after SET SESSION AUTHORIZATION, which the step could RESET');
($status, $output, $message) = $node->psql('postgres', q{SELECT * FROM sweep.preview('plain')});
like($message, qr/job "plain" can be run in a session of its role only/, 'preview: the same');
like(as('jobber', q{SELECT sweep.create_job('of_shared', step => 't.note', run_as => 'shared_owner')}), qr/^$/, 'run_as: a role one is a member of');
like(as('jobber', q{CALL sweep.run('of_shared')}), qr/session of its role only/, 'CALL: not the job of a role one is a member of');
like(as('jobber', q{SELECT sweep.start('of_shared')}), qr/^\d+$/, 'but it can be started');

# ---------------------------------------------------------------- who may do what
like(as('jobber', q{SELECT sweep.create_job('x', step => 't.note', run_as => 'postgres')}),
	qr/ERROR:  permission denied to run job "x" as role postgres\nHINT:  run_as must be a role that you could SET ROLE to/, 'run_as: not a superuser');
like(as('admin', q{SELECT sweep.create_job('x', step => 't.note', run_as => 'jobber')}), qr/permission denied to run job "x" as role jobber/,
	'run_as: not for sweep_admin either');
like(as('admin', q{SELECT sweep.alter_job('plain', '{"step": "t.note"}')}), qr/permission denied to run job "plain" as role jobber/,
	'alter_job: sweep_admin cannot change what somebody else executes');
like(as('admin', q{SELECT sweep.alter_job('plain', '{"batch_size": 7}')}), qr/^$/, 'alter_job: but its limits');
like(as('other', q{SELECT sweep.start('plain')}), qr/ERROR:  permission denied for job "plain"/, 'sweep_user: not the job of another');
like(as('other', qq{SELECT sweep.cancel($run)}), qr/^f$|permission denied/, 'sweep_user: cannot cancel the run of another');
is(as('other', q{SELECT count(*) FROM sweep.jobs}), 0, 'sweep_user: does not see the jobs of another');
is(as('other', q{SELECT count(*) FROM sweep.runs}), 0, 'sweep_user: nor the runs');
is(as('other', q{SELECT count(*) FROM sweep.job}), 0, 'sweep_user: nor the definitions');
like(as('operator', q{SELECT sweep.start('plain')}), qr/^\d+$/, 'sweep_operator: starts any job');
like(as('operator', q{SELECT sweep.start('plain', '{"as_of": "2026-01-01T00:00:00Z"}')}), qr/ERROR:  permission denied to pass args to job "plain"/,
	'sweep_operator: but passes no args');
like(as('operator', q{SELECT sweep.pause('plain'); SELECT sweep.resume('plain')}), qr/^\s*$/, 'sweep_operator: pauses and resumes');
like(as('operator', q{SELECT sweep.alter_job('plain', '{"batch_size": 8}')}), qr/permission denied/, 'sweep_operator: changes no job');
like(as('operator', q{SELECT sweep.drop_job('plain')}), qr/permission denied/, 'sweep_operator: drops none');
like(as('watcher', q{SELECT count(*) > 3 FROM sweep.jobs}), qr/^t$/, 'sweep_monitor: sees all jobs');
like(as('watcher', q{SELECT count(*) > 3 FROM sweep.runs}), qr/^t$/, 'sweep_monitor: and all runs');
like(as('watcher', q{SELECT count(*) FROM sweep.running}), qr/^\d+$/, 'sweep_monitor: and what runs');
for my $act (q{SELECT sweep.start('plain')}, q{SELECT sweep.pause('plain')}, q{SELECT sweep.pause_all()}, q{SELECT sweep.cancel(1)},
	q{SELECT sweep.drop_job('plain')}, q{CALL sweep.run('plain')}, q{SELECT sweep.try_lock('plain')},
	q{SELECT sweep.create_job('x', step => 't.note')}, q{DELETE FROM sweep.run_history}, q{UPDATE sweep.job_state SET broken = 'x'})
{
	like(as('watcher', $act), qr/ERROR:  permission denied/, "sweep_monitor: may not $act");
	like(as('nobody', $act), qr/ERROR:  permission denied for schema sweep/, "PUBLIC: may not $act");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		WHERE p.pronamespace = 'sweep'::regnamespace AND a.grantee = 0}), 0, 'PUBLIC: may execute nothing');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.relnamespace = 'sweep'::regnamespace AND a.grantee = 0}), 0, 'PUBLIC: may read nothing');
$node->stop;
done_testing();
