# room: base
# The library and the SQL objects of the extension are replaced one after the other. While they do not fit, everything that would write says
# which versions there are and what to do, and does nothing; DROP EXTENSION, pg_dump and views work. Sessions notice in the middle of
# their life. The same when the extension goes, or gets another owner, under load.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('other_version', gitlab => 1, bare => 0);
my $library = $node->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'pg_sweep'});
my %call = (
	start => q{SELECT sweep.start('noted')}, create_job => q{SELECT sweep.create_job('new', step => 't.note')}, drop_queue => q{SELECT sweep.drop_queue('none')},
	begin_once => q{SELECT sweep.begin_once('key')}, send => q{SELECT sweep.send('mail', '1')}, send_many => q{SELECT sweep.send_many('mail', '{1}')},
	claim => q{SELECT sweep.claim('mail')}, ack => q{SELECT sweep.ack(gen_random_uuid())}, fail => q{SELECT sweep.fail(gen_random_uuid())},
	release => q{SELECT sweep.release(gen_random_uuid())}, extend => q{SELECT sweep.extend(gen_random_uuid(), '1 s')},
	enable_feature => q{SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts')}, preview => q{SELECT sweep.preview('noted')},
	try_lock => q{SELECT sweep.try_lock('key')}, release_lock => q{SELECT sweep.release_lock('key')}, run => q{CALL sweep.run('noted')},
	wait => q{CALL sweep.wait(1)}, wait_for_message => q{CALL sweep.wait_for_message('mail', '1 s')});

# What a session that has been there for long is told.
sub told
{
	my ($session, $query) = @_;

	begin_query($session, $query);
	return end_query($session);
}

$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('mail');
	SELECT sweep.create_job('noted', step => 't.note', args => '{"job": "noted"}');
	SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}');
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.overlap VALUES (m.message_id)';
	SELECT sweep.create_consumer('mail', 't.handle');
	SELECT sweep.send('mail', '1');
});
soon($node, 'SELECT count(*) FROM t.overlap', 1, 'a consumer handles messages');
soon($node, q{SELECT count(*) > 0 FROM t.started WHERE job = 'tick'}, 't', 'jobs run');

# ---------------------------------------------------------------- objects of another version
my $session = session($node);
unlike(told($session, $call{$_}), qr/does not fit/, "$_: before") for qw(send start claim try_lock);
for my $case ([ '0.1.0', 'Execute ALTER EXTENSION pg_sweep UPDATE.' ], [ '99.0.0', 'Restart the server, so that it loads the library of the extension.' ])
{
	my ($version, $hint) = @$case;
	my $offset = -s $node->logfile;

	$node->safe_psql('postgres', qq{BEGIN; ALTER TYPE sweep._interface_1 RENAME TO _interface_0; UPDATE pg_extension SET extversion = '$version' WHERE extname = 'pg_sweep'; COMMIT});
	my $runs = $node->safe_psql('postgres', 'SELECT count(*) FROM sweep.runs');
	for my $function (sort keys %call)
	{
		my $message = qr/ERROR:  library pg_sweep \Q$library\E does not fit the extension of version \Q$version\E in this database\nHINT:  \Q$hint\E/;

		like(told($session, $call{$function}), $message, "$version: $function, in a session that was there before");
		like(($node->psql('postgres', $call{$function}))[2], $message, "$version: $function, in a new one");
	}
	ok($node->wait_for_log(qr/WARNING:  pg_sweep scheduler could not do its work: library pg_sweep.*\n.*DETAIL.*\n.*HINT:  \Q$hint\E/, $offset), "$version: the scheduler says so");
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.runs'), '<=', $runs + 1, "$version: nothing is queued");
	$node->safe_psql('postgres', "TABLE sweep.$_") for qw(jobs runs running queues consumers buckets);
	$node->command_ok([ 'pg_dump', '-f', PostgreSQL::Test::Utils::tempdir . '/dump', 'postgres' ], "$version: pg_dump works, and views can be read");
	is(told($session, 'BEGIN; DROP EXTENSION pg_sweep CASCADE; ROLLBACK') =~ /ERROR/, '', "$version: DROP EXTENSION works");
	my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM t.started');
	$node->safe_psql('postgres', qq{BEGIN; ALTER TYPE sweep._interface_0 RENAME TO _interface_1; UPDATE pg_extension SET extversion = '$library' WHERE extname = 'pg_sweep'; COMMIT; SELECT sweep._wake()});
	unlike(told($session, $call{$_}), qr/does not fit/, "$version: $_ afterwards") for qw(send start claim try_lock);
	soon($node, "SELECT count(*) >= $count + 2 FROM t.started", 't', "$version: jobs run afterwards");
}
$node->safe_psql('postgres', 'ALTER TYPE sweep_gitlab._interface_1 RENAME TO _interface_0');
like(($node->psql('postgres', q{SELECT sweep_gitlab.drop_stuck_builds(ROW(1, NULL, '{}', now(), NULL, NULL, '{}', 1)::sweep.batch)}))[2],
	qr/ERROR:  library pg_sweep_gitlab \Q$library\E does not fit the extension in this database/, 'so does the library for GitLab');
$node->safe_psql('postgres', 'ALTER TYPE sweep_gitlab._interface_0 RENAME TO _interface_1');
like(($node->psql('postgres', q{SELECT sweep._require_library('99.0.0')}))[2],
	qr/ERROR:  extension pg_sweep 99\.0\.0 needs its library, and that of version \Q$library\E is loaded\nHINT:  Restart the server/, 'an update script asks for its library');
SKIP:
{
	skip 'test/bin/server-root has not installed the scripts of a later version', 2
	  unless $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extension_versions WHERE name = 'pg_sweep' AND version LIKE 'later%'}) == 2;
	$node->safe_psql('postgres', 'CREATE DATABASE later');
	like(($node->psql('later', q{CREATE EXTENSION pg_sweep VERSION 'later'}))[2],
		qr/ERROR:  extension pg_sweep later needs its library, and that of version \Q$library\E is loaded\nHINT:  Restart the server/, 'so does an install script');
	like(($node->psql('later', q{CREATE EXTENSION pg_sweep VERSION 'later2'}))[2],
		qr/ERROR:  extension pg_sweep \Q$library\E needs its library, and an older one is loaded\nHINT:  Restart the server/, 'also of a library that lacks the function');
}
like(($node->psql('postgres', q{BEGIN READ ONLY; SELECT sweep.try_lock('other'), sweep.release_lock('other'); COMMIT}))[1], qr/^t\|t$/m, 'a transaction that only reads may take a lock');

# ---------------------------------------------------------------- another owner
$node->safe_psql('postgres', 'CREATE DATABASE owned; CREATE ROLE boss SUPERUSER LOGIN; CREATE ROLE chief SUPERUSER');
my ($code, $out, $error) = $node->psql('owned', 'CREATE EXTENSION pg_sweep', extra_params => [ '-U', 'boss' ]);
is($error, '', 'a role creates the extension');
$node->safe_psql('owned', q{
	CREATE SCHEMA t; CREATE TABLE t.done (n bigint);
	CREATE FUNCTION t.slow(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(70);
		INSERT INTO t.done VALUES (b.run_id);
		RETURN ROW(coalesce((b.cursor ->> 'n')::int, 3), jsonb_build_object('n', coalesce((b.cursor ->> 'n')::int, 3) - 1), NULL)::sweep.progress;
	END
	$$;
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.done VALUES (-m.message_id)';
	SELECT sweep.create_job('slow', step => 't.slow'), sweep.create_queue('mail'), sweep.create_consumer('mail', 't.handle'), sweep.send('mail', '1');
});
soon($node, 'SELECT count(*) FROM t.done', 1, 'a consumer works', 'owned');
$session->quit;
$session = session($node, database => 'owned');
unlike(told($session, q{SELECT sweep.send('mail', '2'), sweep.try_lock('key')}), qr/ERROR/, 'so does a session');
soon($node, 'SELECT count(*) FROM t.done', 2, 'and its message is handled', 'owned');
my $gate = hold_gate($node, 70, 'owned');
my $run = $node->safe_psql('owned', q{SELECT sweep.start('slow')});
at_gate($node, 70, 'a run is in progress', 'owned');
$node->safe_psql('owned', 'REASSIGN OWNED BY boss TO chief');
$node->safe_psql('owned', 'DROP OWNED BY boss');
$node->safe_psql('postgres', 'DROP OWNED BY boss; DROP ROLE boss');
open_gate($gate);
is(ended_run($node, $run, 'owned'), 'succeeded drained 4 6', 'the run goes on when the extension has another owner');
unlike(told($session, q{SELECT sweep.send('mail', '3'), sweep.try_lock('key2'), sweep.start('slow')}), qr/ERROR/, 'so does the session');
soon($node, 'SELECT count(*) FROM t.done WHERE n < 0', 3, 'the consumer', 'owned');
soon($node, q{SELECT count(*) FROM sweep.runs WHERE status = 'succeeded'}, 2, 'and the scheduler', 'owned');
$session->quit;

# ---------------------------------------------------------------- DROP EXTENSION while sessions call
# It takes no table, and has nothing to give back.
delete $call{release_lock};
$session = session($node);
$session->query_safe('SET client_min_messages = error');
my %client;
for my $function (sort keys %call)
{
	# What one knows of the extension is from before, the other has to find out all.
	$client{"$function, known"} = session($node);
	told($client{"$function, known"}, $call{$function});
	# Before it calls it, PostgreSQL opens the row type that claim returns, and raises what it does for any such function.
	$client{"$function, new"} = session($node) unless $function eq 'claim';
}
$session->query_safe('BEGIN; DROP EXTENSION pg_sweep CASCADE');
begin_query($client{$_}, "SELECT 'asked'; " . $call{ s/,.*//r }) for sort keys %client;
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock' AND pid <> pg_backend_pid()},
	0, 'all of them wait or have ended');
$session->query_safe('COMMIT');
for my $name (sort keys %client)
{
	my $answer = end_query($client{$name});

	# sweep.drop_queue waits for 2 s.
	like($answer, qr/ERROR:  (extension pg_sweep (does not exist|is being altered or dropped|was altered or dropped during the call)|canceling statement due to lock timeout|(function|procedure|schema|relation|type) .*does not exist)/, "$name: a plain error when the extension goes");
	unlike($answer, qr/ERROR:  .*(OID|cache lookup)/, "$name: no other");
	$client{$name}->quit;
}
$session->quit;
$node->stop;
done_testing();
