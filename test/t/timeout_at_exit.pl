# room: engine
# The timeout of a CALL sweep.run fires while its process exits, when the memory of the run is freed.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

# Freed memory is overwritten by the allocator, as a server with assertions does by itself.
$ENV{MALLOC_PERTURB_} = 165;
my $node = new_cluster('timeout_at_exit');
my $began = sql('SELECT pg_postmaster_start_time()');

sql(q{SELECT sweep.create_job('gated', step => 't.note', timeout => '8 s', args => '{"gate": 7}')});
my $gate = hold_gate($node, 7);
my $caller = session($node);
my $pid = $caller->query_safe('CREATE TEMP TABLE mine (); SELECT pg_backend_pid()');
begin_query($caller, q{CALL sweep.run('gated')});
at_gate($node, 7, 'a run is in progress');

# A process that exits drops its temporary tables, behind the transaction with the run, and waits for this lock.
my $locker = session($node);
my $table = sql(q{SELECT oid::regclass FROM pg_class WHERE relname = 'mine'});
$locker->query_safe("BEGIN; LOCK TABLE $table IN ACCESS SHARE MODE");
sql("SELECT pg_terminate_backend($pid)");
soon($node, "SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted AND relation = '$table'::regclass", 1, 'its process is about to exit');
soon($node, q{SELECT clock_timestamp() > started_at + interval '10 s' FROM sweep.runs WHERE job = 'gated'}, 't', 'the timeout has passed');
is(sql("SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted"), 1, 'the process still waits');
$locker->query_safe('COMMIT');
soon($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", 0, 'it exits');
is(sql('SELECT pg_postmaster_start_time()'), $began, 'the server is the same');
unlike(slurp_file($node->logfile), qr/was terminated by signal/, 'no process has crashed');
open_gate($gate);
forget_session($caller);
$locker->quit;
$node->stop;
done_testing();
