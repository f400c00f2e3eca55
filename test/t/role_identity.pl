# room: base
# Whose code runs as whom: a function that changes hands while its job runs, and
# settings of the database that would make our processes somebody else.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('roles');

# ---------------------------------------------------------------- functions of somebody who has left
sql(q{
	CREATE ROLE author LOGIN IN ROLE sweep_user;
	GRANT jobber TO author;
	CREATE SCHEMA lent;
	GRANT USAGE, CREATE ON SCHEMA lent TO author;
	GRANT USAGE ON SCHEMA lent TO jobber;
	CREATE TABLE lent.seen (what text, as_whom text DEFAULT current_user);
	GRANT ALL ON lent.seen TO PUBLIC;
	CREATE SEQUENCE lent.items;
	GRANT ALL ON lent.items TO PUBLIC;
	-- waits in every batch, and never has enough
	CREATE FUNCTION t.own(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(77); RETURN ROW(1, '1', NULL)::sweep.progress; END $$;
	SET SESSION AUTHORIZATION author;
	CREATE FUNCTION lent.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO lent.seen VALUES ('step'); PERFORM pg_advisory_xact_lock(77); RETURN ROW(1, '1', NULL)::sweep.progress; END $$;
	CREATE FUNCTION lent.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT to_jsonb(nextval('lent.items')) $$;
	CREATE FUNCTION lent.rescue(b sweep.batch, e jsonb) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 1::bigint, NULL::jsonb, NULL::jsonb $$;
	CREATE FUNCTION lent.handle(m sweep.message) RETURNS void LANGUAGE sql AS $$ INSERT INTO lent.seen VALUES ('handle') $$;
	SET SESSION AUTHORIZATION jobber;
	SELECT sweep.create_job('step', step => 'lent.step', batch_size => 1), sweep.create_job('pick', step => 't.own', pick => 'lent.pick', batch_size => 1);
	SELECT sweep.create_queue('lent');
	SELECT sweep.create_consumer('lent', 'lent.handle');
	SELECT sweep.send('lent', '1');
});
soon($node, q{SELECT count(*) FROM lent.seen WHERE what = 'handle' AND as_whom = 'jobber'}, 1, 'the function of a member handles a message');
my $gate = hold_gate($node, 77);
my %run = map { ($_ => sql("SELECT sweep.start('$_')")) } qw(step pick);
soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND objsubid = 1 AND NOT granted}, 2, 'both runs are in their first batch');
sql('REVOKE jobber FROM author');
sql(q{
	SET SESSION AUTHORIZATION author;
	CREATE OR REPLACE FUNCTION lent.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO lent.seen VALUES ('replaced'); RETURN ROW(1, '1', NULL)::sweep.progress; END $$;
	CREATE OR REPLACE FUNCTION lent.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
		INSERT INTO lent.seen VALUES ('replaced'); SELECT to_jsonb(nextval('lent.items')) $$;
	CREATE OR REPLACE FUNCTION lent.handle(m sweep.message) RETURNS void LANGUAGE sql AS $$ INSERT INTO lent.seen VALUES ('replaced') $$;
});
sql(q{SELECT sweep.send('lent', '2')});
open_gate($gate);
for my $job (sort keys %run)
{
	is(ended_run($node, $run{$job}), 'failed error 1 1', "$job: the run fails in the next batch");
	like(sql("SELECT sqlstate || ' ' || error FROM sweep.runs WHERE run_id = $run{$job}"),
		qr/^42501 function lent\.$job belongs to role "author", which could not become role "jobber"/, "$job: and says why");
	is(sql("SELECT state FROM sweep.jobs WHERE name = '$job'"),
		qq{broken: function lent.$job(sweep.batch) belongs to role "author", which could not become role "jobber"}, "$job: sweep.jobs says so");
	isnt($node->psql('postgres', "SELECT sweep.start('$job')"), 0, "$job: cannot be started");
}
soon($node, q{SELECT state, workers FROM sweep.consumers},
	'broken: function lent.handle(sweep.message) belongs to role "author", which could not become role "jobber"|0', 'the consumer is broken');
is(sql(q{SELECT depth, dead FROM sweep.queues WHERE queue = 'lent'}), '1|0', 'the message waits');
is(sql(q{SELECT attempts FROM sweep.queue_message}), 0, 'and has not failed');
is(sql(q{SELECT count(*) FROM lent.seen WHERE what = 'replaced'}), 0, 'nothing that was replaced has run');

# a run in progress, without any function being replaced
sql(q{GRANT jobber TO author; DELETE FROM lent.seen; SELECT sweep._wake()});
soon($node, q{SELECT count(*) FROM lent.seen WHERE what = 'replaced' AND as_whom = 'jobber'}, 1, 'a member again: the consumer goes on');
sql(q{SET SESSION AUTHORIZATION author; CREATE OR REPLACE FUNCTION lent.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN PERFORM pg_advisory_xact_lock(77); RETURN ROW(1, '1', NULL)::sweep.progress; END $$});
$gate = hold_gate($node, 77);
my $run = sql(q{SELECT sweep.start('step')});
at_gate($node, 77);
sql('REVOKE jobber FROM author');
open_gate($gate);
is(ended_run($node, $run), 'failed error 1 1', 'a membership that ends, ends the run after its batch');

# ---------------------------------------------------------------- a role that does not exist
sql(q{
	CREATE ROLE leaver LOGIN IN ROLE sweep_user;
	SELECT sweep.create_job('left', step => 't.note', run_as => 'leaver');
	SELECT sweep.start('left', delay => '1 day');
	ALTER ROLE leaver RENAME TO returned;
	UPDATE sweep.run_live SET due_at = now() WHERE job = 'left';
	SELECT sweep._wake();
});
soon($node, q{SELECT concat_ws(' ', status, sqlstate, error) FROM sweep.runs WHERE job = 'left'}, 'failed 55000 role "leaver" does not exist',
	'a run whose role is gone fails, and is nobody else');
is(sql(q{SELECT count(*) FROM t.started}), 0, 'its step was not called');
sql('ALTER ROLE returned RENAME TO leaver');
is(ended_run($node, sql(q{SELECT sweep.start('left')})), 'succeeded drained 1 0', 'renamed back, it runs');

# ---------------------------------------------------------------- settings that would make us somebody else
sql(q{
	CREATE ROLE boss SUPERUSER LOGIN;
	CREATE ROLE other LOGIN;
	CREATE DATABASE hostile;
});
prepare_database($node, 'hostile');
$node->safe_psql('hostile', q{
	CREATE TABLE t.scheduled (session_role text, role text, kind text, path text);
	CREATE TABLE t.who (session_role text, current_role_name text);
	CREATE FUNCTION t.note_who() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.scheduled SELECT session_user, current_setting('role'), a.backend_type, current_setting('search_path') FROM pg_stat_activity a WHERE pid = pg_backend_pid();
		RETURN NULL;
	END $$;
	CREATE TRIGGER note_who AFTER INSERT ON sweep.run_live FOR EACH ROW EXECUTE FUNCTION t.note_who();
	ALTER TABLE sweep.run_live ENABLE ALWAYS TRIGGER note_who;
	CREATE FUNCTION t.identify(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
		INSERT INTO t.who VALUES (session_user, current_user); SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
	SELECT sweep.create_job('tick', step => 't.identify', schedule => '* * * * * *', timezone => 'UTC');
	SELECT sweep.create_queue('loud');
	CREATE SCHEMA evil;
	GRANT SELECT ON t.who, t.scheduled TO PUBLIC;
});
soon($node, q{SELECT count(*) > 0 FROM t.who}, 't', 'a schedule', 'hostile');
sql(q{
	ALTER DATABASE hostile SET role = other;
	ALTER DATABASE hostile SET session_authorization = boss;
	ALTER DATABASE hostile SET search_path = evil;
	ALTER DATABASE hostile SET default_transaction_isolation = serializable;
	ALTER DATABASE hostile SET default_transaction_deferrable = on;
	ALTER DATABASE hostile SET row_security = off;
	ALTER DATABASE hostile SET session_replication_role = replica;
	ALTER DATABASE hostile SET statement_timeout = '1min';
	ALTER DATABASE hostile SET lock_timeout = 1;
	ALTER DATABASE hostile SET idle_in_transaction_session_timeout = 1;
	ALTER DATABASE hostile SET exit_on_error = on;
	ALTER DATABASE hostile SET transform_null_equals = on;
	ALTER DATABASE hostile SET array_nulls = off;
	ALTER DATABASE hostile SET "DateStyle" = 'SQL, DMY';
	ALTER DATABASE hostile SET "IntervalStyle" = sql_standard;
	ALTER DATABASE hostile SET check_function_bodies = off;
});
my $version = sql('SHOW server_version_num');
sql(q{ALTER DATABASE hostile SET transaction_timeout = 1}) if $version >= 170000;
# 19 has no other literals
sql(q{ALTER DATABASE hostile SET standard_conforming_strings = off}) if $version < 190000;
sql(q{LOAD 'plpgsql'; ALTER DATABASE hostile SET plpgsql.extra_errors = 'all'; ALTER DATABASE hostile SET plpgsql.variable_conflict = use_variable});

# What a session there says once it is itself again.
my $ourselves = 'SET ROLE NONE; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET exit_on_error = off;';
sub hostile
{
	return $node->safe_psql('hostile', "$ourselves $_[0]");
}
# of the transactions, those of this test have no limit
local $ENV{PGOPTIONS} = '-c transaction_timeout=0' if $version >= 170000;
is($node->safe_psql('hostile', 'SELECT session_user, current_user'), 'postgres|other', 'a session is somebody else');
hostile('TRUNCATE t.scheduled, t.who');
my $old = pid_of($node, 'scheduler', 'hostile');
sql("SELECT pg_terminate_backend($old)");
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $old");
isnt(pid_of($node, 'scheduler', 'hostile'), $old, 'a scheduler that begins under these settings');
hostile('TRUNCATE t.scheduled');
soon($node, q{SELECT count(*) > 2 FROM t.scheduled WHERE kind ~ 'scheduler'}, 't', 'whose transactions last longer than the database allows', 'hostile');
# A run keeps to that limit, and nothing is done in a millisecond.
sql('ALTER DATABASE hostile RESET transaction_timeout') if $version >= 170000;
soon($node, 'SELECT count(*) > 2 FROM t.who', 't', 'jobs run', 'hostile');
is(hostile('SELECT DISTINCT session_role, role, path FROM t.scheduled WHERE kind ~ $$scheduler$$'), 'postgres|none|pg_catalog, pg_temp', 'the scheduler is who it is');
is(hostile('SELECT DISTINCT session_role, current_role_name FROM t.who'), 'postgres|postgres', 'and so is the job');
my $listener = session($node, database => 'hostile');
$listener->query_safe("$ourselves LISTEN \"sweep.loud\"");
hostile(q{SELECT sweep.send('loud', '1')});
my $heard = '';
my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
$heard .= end_query($listener) while $heard !~ /Asynchronous notification "sweep.loud"/ && time < $deadline;
like($heard, qr/Asynchronous notification "sweep.loud"/, 'the scheduler notifies');
$listener->quit;
is(pid_of($node, 'scheduler', 'hostile'), $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler' AND datname = 'hostile'}), 'one scheduler');
unlike(slurp_file($node->logfile), qr/pg_sweep scheduler could not do its work|PANIC|could not be scheduled/, 'nothing of all that was in its way');
$node->stop;
done_testing();
