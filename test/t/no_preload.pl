# room: process
# Without shared_preload_libraries, CALL works, and whatever needs background
# workers says what to set.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('no_preload', preload => '');
my ($status, $output, $message);

($status, $output, $message) = $node->psql('postgres', q{SELECT sweep.create_job('work', step => 't.work', batch_size => 10)});
is("$status$message", '0', 'create_job without a schedule says nothing');
($status, $output, $message) = $node->psql('postgres', q{SELECT sweep.create_job('tick', step => 't.note', schedule => '* * * * * *', args => '{"job": "tick"}')});
is($status, 0, 'create_job with a schedule works');
like($message, qr/WARNING:  job "tick" will not be started by its schedule\nDETAIL:  No scheduler works here: pg_sweep is not in shared_preload_libraries.\nHINT:  Add pg_sweep to shared_preload_libraries/,
	'and warns');

$node->safe_psql('postgres', 'INSERT INTO t.todo SELECT i FROM generate_series(1, 95) AS i');
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('work')});
like($message, qr/NOTICE:  job "work" run 1: 95 rows in 11 batches, drained/, 'CALL works');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.todo WHERE run_id = 1'), 95, 'it did what it says');
is($node->safe_psql('postgres', 'SELECT status, stop_reason, batches, rows FROM sweep.run_history WHERE run_id = 1'), 'succeeded|drained|11|95', 'it is in the history');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.running'), 0, 'sweep.running is empty');
is($node->safe_psql('postgres', q{SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM sweep.jobs}), 'tick no_scheduler: pg_sweep is not in shared_preload_libraries, work no_scheduler: pg_sweep is not in shared_preload_libraries',
	'sweep.jobs says that nothing starts them');
like($node->safe_psql('postgres', q{SELECT notes FROM sweep.preview('work')}), qr/Nothing is left to do/, 'so does preview');

($status, $output, $message) = $node->psql('postgres', q{SELECT sweep.start('work')});
like($message, qr/ERROR:  pg_sweep cannot start background workers\nDETAIL:  The library was not loaded at server start.\nHINT:  Add pg_sweep to shared_preload_libraries and restart the server/,
	'start says exactly what to set');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.runs'), 1, 'and queues nothing');

# Whoever asks counts the rows.
$node->safe_psql('postgres', q{SELECT sweep.create_queue('mail');
	SELECT sweep.send('mail', to_jsonb(i)), sweep.send('mail', to_jsonb(i), delay => '1 hour') FROM generate_series(1, 3) AS i;
	SELECT sweep.send('mail', '4', priority => 5)});
is($node->safe_psql('postgres', 'SELECT queue, depth, ready, delayed, in_flight, oldest_age IS NOT NULL FROM sweep.queues'), 'mail|7|4|3|0|t',
	'sweep.queues shows the messages of a queue');

# The module of GitLab's jobs needs nothing of the library; its functions load that when they are called.
$node->safe_psql('postgres', q{LOAD 'pg_sweep_gitlab'});
$node->safe_psql('postgres', 'CREATE EXTENSION pg_sweep_gitlab');
is($node->safe_psql('postgres', q{SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts')}), 'f', 'the jobs of GitLab can be created');

# The lock holds between sessions; it needs no memory of ours.
$node->safe_psql('postgres', q{INSERT INTO t.todo SELECT i FROM generate_series(101, 200) AS i;
	SELECT sweep.alter_job('work', '{"args": {"gate": 60, "gate_at": 3}}')});
my $gate = hold_gate($node, 60);
my $session = session($node);
begin_query($session, q{CALL sweep.run('work')});
at_gate($node, 60, 'a session runs the job');
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('work')});
like($message, qr/job "work" was skipped: its lock "work" is held\nDETAIL:  Process \d+ holds it/, 'another one is skipped');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM sweep.runs WHERE status = 'running'});
like(end_query($session), qr/was cancelled after 2 batches, 20 rows/, 'pg_cancel_backend cancels the run');
begin_query($session, q{CALL sweep.run('work')});
at_gate($node, 60, 'again');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 100000) FROM sweep.runs WHERE status = 'running'});
open_gate($gate);
forget_session($session);
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('work')});
like($message, qr/60 rows in \d+ batches, drained/, 'after a session that was terminated the next run goes on');
is($node->safe_psql('postgres', q{SELECT string_agg(status, ' ' ORDER BY run_id) FROM sweep.runs}), 'succeeded cancelled skipped lost succeeded',
	'and its run is known to be lost') or diag($node->safe_psql('postgres', 'TABLE sweep.runs'));

# What the server did not know when it read its configuration is checked when a session first uses pg_sweep.
$node->append_conf('postgresql.conf', q{pg_sweep.redis_url = 'redis://:geheim@h'});
$node->reload;
soon($node, q{SELECT count(*) FROM pg_file_settings WHERE name = 'pg_sweep.redis_url'}, '1', 'a URL with a password is in the configuration');
my $offset = -s $node->logfile;
($status, $output, $message) = $node->psql('postgres', q{CALL sweep.run('work'); SHOW pg_sweep.redis_url});
like($message, qr/WARNING:  invalid value for parameter "pg_sweep.redis_url"\nDETAIL:  It must have neither a user nor a password\./, 'it is refused');
unlike("$output$message" . slurp_file($node->logfile, $offset), qr/geheim/, 'and neither shown nor logged');
$node->append_conf('postgresql.conf', q{pg_sweep.redis_url = ''});

# ---------------------------------------------------------------- what is begun once
($status, $output, $message) = $node->psql('postgres', q{
	CREATE TABLE lines (id int PRIMARY KEY);
	INSERT INTO lines SELECT generate_series(1, 9);
	SELECT run_id IS NULL FROM sweep.delete('public.lines', 'id > 4', name => 'delete lines')});
is($output, 't', 'sweep.delete makes a job that it cannot start');
like($message, qr/NOTICE:  job "delete lines" is not started: pg_sweep is not loaded at server start\nHINT:  CALL sweep.run\('delete lines'\);/, 'and says what does');
$node->safe_psql('postgres', q{CALL sweep.run('delete lines')});
is($node->safe_psql('postgres', 'SELECT count(*) FROM lines'), 4, 'which it does');

# ---------------------------------------------------------------- with it
$node->append_conf('postgresql.conf', q{shared_preload_libraries = 'pg_sweep'});
$node->restart;
soon($node, q{SELECT count(*) >= 2 FROM t.started WHERE job = 'tick'}, 't', 'once it is preloaded, the schedule applies');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('tick')})), 'succeeded drained 1 0', 'and start works');
$node->stop;

done_testing();
