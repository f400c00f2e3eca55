# room: base
# What all share cannot be taken from the others by one: not the slots of runs, not the claims, not the queues in
# use, not the processes of consumers. Roles a and b create jobs and queues; a takes what it can get.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('quotas', conf => [
	'pg_sweep.max_running_jobs = 4', 'pg_sweep.max_in_flight = 64', 'pg_sweep.max_queues = 8', 'pg_sweep.max_consumers = 4',
	'max_connections = 120' ]);

sub as_role
{
	my ($role, $query) = @_;

	return $node->safe_psql('postgres', $query, extra_params => [ '-U', $role ]);
}

# Its one value, or its error with detail and hint.
sub answer_to
{
	my ($role, $query) = @_;
	my ($status, $output, $error) = $node->psql('postgres', $query, extra_params => [ '-U', $role ]);

	return $status == 0 ? $output : $error =~ s/^.*?ERROR:  //sr;
}

sub set_share
{
	my ($kind, $share) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET pg_sweep.max_share_per_$kind = $share");
	$node->reload;
}

sub runs_at_gate
{
	my ($gate, $count, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, 'SELECT count(*) FROM pg_locks WHERE ' . SweepTest::gate_condition($gate), $count, $name);
}

$node->safe_psql('postgres', q{
	CREATE ROLE a LOGIN IN ROLE sweep_user;
	CREATE ROLE b LOGIN IN ROLE sweep_user;
	CREATE ROLE boss LOGIN IN ROLE sweep_admin;
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT; END;
});
for my $role ('a', 'b', 'boss')
{
	as_role($role, qq{SELECT sweep.create_job('$role' || i, step => 't.note', args => '{"gate": 9}') FROM generate_series(1, 6) AS i});
}

# ---------------------------------------------------------------- sessions take none of the slots of background runs
{
	my $gate = hold_gate($node, 9);
	my $script = PostgreSQL::Test::Utils::tempdir . '/call.sql';

	$node->safe_psql('postgres', q{
		SELECT sweep.create_job('call' || i, step => 't.note', args => '{"gate": 9}') FROM generate_series(0, 67) AS i;
		SELECT sweep.create_job('background', step => 't.note');
	});
	PostgreSQL::Test::Utils::append_to_file($script, "CALL sweep.run('call:client_id');\n");
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres');
	my $calls = IPC::Run::start([ 'pgbench', '-n', '-c', 68, '-t', 1, '-f', $script ], '>', \my $output, '2>', \my $error);
	runs_at_gate(9, 68, 'sixty-eight sessions are in CALL sweep.run');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.running'), 64, 'sixty-four of them are shown');
	is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('background')})), 'succeeded drained 1 0',
		'a background run starts');
	open_gate($gate);
	$calls->finish;
	like($output, qr{processed: 68/68}, 'the sessions end');
}

# ---------------------------------------------------------------- background runs
{
	my $gate = hold_gate($node, 9);
	my $offset = -s $node->logfile;

	$node->safe_psql('postgres', q{SELECT sweep.create_job('owned', step => 't.note', run_as => 'b')});
	as_role('a', q{SELECT sweep.start('a' || i) FROM generate_series(1, 5) AS i, generate_series(1, 50) AS again});
	runs_at_gate(9, 3, 'three endless runs of role a have a worker');
	soon($node, q{SELECT DISTINCT state FROM sweep.jobs WHERE name IN ('a4', 'a5')}, 'waiting_for_slot: pg_sweep.max_share_per_role',
		'the others wait, and the view says for what');
	is(ended_run($node, as_role('b', q{SELECT sweep.start('owned')})), 'succeeded drained 1 0', 'role b has its turn before hundreds of them');
	ok($node->wait_for_log(qr/Role "a" has its share of pg_sweep\.max_running_jobs, 3 of 4\./, $offset), 'the log says whose share it is');
	like(slurp_file($node->logfile, $offset), qr/HINT:  Raise pg_sweep\.max_share_per_role, or spread the schedules\./, 'and what to do');

	set_share('role', 1);
	runs_at_gate(9, 4, 'with a share of everything it has four');
	soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'a5'}, 'waiting_for_slot: pg_sweep.max_running_jobs', 'then nothing is left');
	set_share('role', 0.75);
	$node->safe_psql('postgres', q{SELECT sweep.drop_job('a' || i) FROM generate_series(1, 6) AS i});
	runs_at_gate(9, 0, 'its jobs are dropped');

	as_role('boss', q{SELECT sweep.start('boss' || i) FROM generate_series(1, 6) AS i});
	runs_at_gate(9, 4, 'a member of sweep_admin has all of them');
	$node->safe_psql('postgres', q{SELECT sweep.drop_job('boss' || i) FROM generate_series(1, 6) AS i});
	runs_at_gate(9, 0, 'those are dropped, too');

	set_share('database', 0.5);
	$node->safe_psql('postgres', q{SELECT sweep.start('call' || i) FROM generate_series(1, 4) AS i});
	runs_at_gate(9, 2, 'a database with a share of one half has two runs');
	soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'call4'}, 'waiting_for_slot: pg_sweep.max_share_per_database', 'the view says so');
	ok($node->wait_for_log(qr/The database has its share of pg_sweep\.max_running_jobs, 2 of 4\./, $offset), 'so does the log');
	set_share('database', 1);
	runs_at_gate(9, 4, 'with a share of everything it has four, a superuser all of them');
	open_gate($gate);
}

# ---------------------------------------------------------------- claimed messages
as_role($_, "SELECT sweep.create_queue('${_}q'); SELECT sweep.send_many('${_}q', array_fill('1'::jsonb, ARRAY[100]))") for ('a', 'b');
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('aq', 100, '1 h')}), 48, 'claims: as many as the share of role a');
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('aq', 100, '1 h')}), q{role "a" has claimed too many messages
DETAIL:  Role "a" holds 48 and this database 48 of 64; 48 are in use in all, most of them, 48, by role "a".
HINT:  Acknowledge what is claimed, or raise pg_sweep.max_share_per_role.}, 'claims: then none, and the error says who holds what');
is(answer_to('b', q{SELECT count(*) FROM sweep.claim('bq', 100, '1 h')}), 16, 'claims: role b has the rest');
is(answer_to('b', q{SELECT count(*) FROM sweep.claim('bq', 1, '1 h')}), q{too many messages are claimed
DETAIL:  Role "b" holds 16 and this database 64 of 64; 64 are in use in all, most of them, 48, by role "a".
HINT:  Acknowledge what is claimed, or increase pg_sweep.max_in_flight and restart the server.}, 'claims: when nothing is left the error says who has it');
like(answer_to('a', q{SELECT count(*) FROM sweep.claim('none', 1)}), qr/^queue "none" does not exist/, 'claims: other errors are what they were');
as_role($_, "SELECT sweep.purge_queue('${_}q')") for ('a', 'b');
as_role('a', q{SELECT sweep.send_many('aq', array_fill('1'::jsonb, ARRAY[100]))});
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('aq', 100, '2 s')}), 48, 'claims: what was purged is no longer counted');
as_role('a', q{SELECT sweep.create_queue('aq2'); SELECT sweep.send_many('aq2', '{1,2}')});
{
	local $ENV{PGOPTIONS} = '-c role=a';
	soon($node, q{SELECT count(*) FROM sweep.claim('aq2', 1, '1 h')}, 1, 'claims: nor what has run out in another queue');
}
as_role('a', q{SELECT sweep.drop_queue('aq'), sweep.drop_queue('aq2')});

# what was returned and is claimed again counts, too
as_role('a', q{SELECT sweep.create_queue(q), sweep.send_many(q, array_fill('1'::jsonb, ARRAY[40])) FROM unnest(ARRAY['back', 'other']) AS q});
is(answer_to('a', q{SELECT sweep.release((SELECT min(lease::text) FROM sweep.claim('back', 20, '1 h'))::uuid)}), 20, 'returned: twenty');
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('other', 40, '1 h')}), 40, 'returned: forty others are held');
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('back', 20, '1 h')}), 8, 'returned: of the twenty as many as are left of the share');
as_role('a', q{SELECT sweep.drop_queue(q) FROM unnest(ARRAY['back', 'other']) AS q});

# of those whose key is held already, nothing is delivered, but they take room
as_role('a', q{
	SELECT sweep.create_queue('keys', key_policy => 'once_more_if_running');
	SELECT sweep.send('keys', '1', 'k' || i) FROM generate_series(1, 30) AS i});
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('keys', 30, '1 h')}), 30, 'keys: thirty are held');
as_role('a', q{SELECT sweep.send('keys', '2', 'k' || i) FROM generate_series(1, 30) AS i});
like(answer_to('a', q{SELECT count(*) FROM sweep.claim('keys', 30, '1 h')}), qr/role "a" has claimed too many messages\n.*holds 48/,
	'keys: what waits for their end counts as well');
as_role('b', q{SELECT sweep.send_many('bq', array_fill('1'::jsonb, ARRAY[100]))});
is(answer_to('b', q{SELECT count(*) FROM sweep.claim('bq', 100, '1 h')}), 16, 'keys: role b has the rest');
$node->safe_psql('postgres', q{SELECT sweep.drop_queue(q) FROM unnest(ARRAY['keys', 'bq']) AS q});

# a share of a database
set_share('database', 0.25);
$node->safe_psql('postgres', q{SELECT sweep.create_queue('q'); SELECT sweep.send_many('q', array_fill('1'::jsonb, ARRAY[100]))});
is(answer_to('postgres', q{SELECT count(*) FROM sweep.claim('q', 100, '1 h')}), 16, 'claims: a superuser has the share of the database');
like(answer_to('postgres', q{SELECT count(*) FROM sweep.claim('q', 100, '1 h')}), qr/^too many messages are claimed in this database\n.*\nHINT:.*max_share_per_database/,
	'claims: and an error that says so');
set_share('database', 1);
soon($node, q{SELECT count(*) FROM sweep.claim('q', 100, '1 h')}, 48, 'claims: without it all that is left');
$node->safe_psql('postgres', q{SELECT sweep.drop_queue('q')});

# ---------------------------------------------------------------- queues in use
$node->restart;
for my $role ('a', 'b')
{
	as_role($role, qq{
		SELECT sweep.create_queue('$role' || i) FROM generate_series(1, 8) AS i;
		SELECT sweep.send('$role' || i, '1') FROM generate_series(1, 8) AS i});
}
is(join(' ', map { answer_to('a', "SELECT count(*) FROM sweep.claim('a$_', 1, '1 h')") } 1 .. 6), '1 1 1 1 1 1', 'queues: role a uses six');
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('a7', 1, '1 h')}), q{queue "a7" cannot be claimed from: too many queues are in use
DETAIL:  Role "a" holds 6 and this database 8 of 8; 8 are in use in all, most of them, 6, by role "a".
HINT:  Acknowledge what is claimed, or raise pg_sweep.max_share_per_role.}, 'queues: not more, and the error says why');
is(join(' ', map { answer_to('b', "SELECT count(*) FROM sweep.claim('b$_', 1, '1 h')") } 1 .. 2), '1 1', 'queues: role b uses the others');
like(answer_to('b', q{SELECT count(*) FROM sweep.claim('b3', 1, '1 h')}), qr/too many queues are in use\nDETAIL:  Role "b" holds 2 .*8 are in use in all.*\nHINT:  .* increase pg_sweep\.max_queues/,
	'queues: when none is left the error says so');
as_role('a', q{SELECT sweep.purge_queue('a1')});
is(answer_to('a', q{SELECT count(*) FROM sweep.claim('a7', 1, '1 h')}), 1, 'queues: one that is idle gives way to another one of its role');

# ---------------------------------------------------------------- processes of consumers
$node->restart;
as_role('a', q{SELECT sweep.create_consumer('a1', 't.handle', concurrency => 1000)});
soon($node, q{SELECT state, workers FROM sweep.consumers WHERE queue = 'a1'}, 'waiting_for_slot|3', 'consumers: role a has three processes');
as_role('b', q{SELECT sweep.create_consumer('b1', 't.handle')});
soon($node, q{SELECT state, workers FROM sweep.consumers WHERE queue = 'b1'}, 'running|1', 'consumers: role b has the other one');
ok($node->wait_for_log(qr/Role "a" has its share of pg_sweep\.max_consumers, 3 of 4\./), 'consumers: the log says so');

# ---------------------------------------------------------------- locks of one session
is(answer_to('a', q{SELECT count(*) FILTER (WHERE sweep.try_lock('k' || i)) FROM generate_series(1, 1000) AS i}), 1000, 'a session takes a thousand locks');
is(answer_to('a', q{SELECT count(sweep.try_lock('m' || i)) FROM generate_series(1, 1001) AS i}), q{lock "m1001" cannot be taken: the session has 1000 already
HINT:  sweep.release_lock() gives one back.}, 'and no more');

$node->stop;

# ---------------------------------------------------------------- turns
# One process for all: a role with a backlog of older runs does not come first each time.
$node = new_cluster('turns', again => 1, conf => ['pg_sweep.max_running_jobs = 1']);
$node->safe_psql('postgres', q{
	CREATE ROLE a LOGIN IN ROLE sweep_user; CREATE ROLE b LOGIN IN ROLE sweep_user;
	SELECT sweep.create_job('a0', step => 't.note', run_as => 'a', args => '{"job": "a", "gate": 5}');
	SELECT sweep.create_job('b1', step => 't.note', run_as => 'b', args => '{"job": "b"}');
	SELECT sweep.create_job('a' || i, step => 't.note', run_as => 'a', args => '{"job": "a"}') FROM generate_series(1, 20) AS i});
my $gate = hold_gate($node, 5);
$node->safe_psql('postgres', q{SELECT sweep.start('a0')});
at_gate($node, 5, 'turns: role a has the only process');
$node->safe_psql('postgres', q{SELECT sweep.start('a' || i) FROM generate_series(1, 20) AS i});
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('b1')});
tick($node);
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 1 0', 'turns: the run of role b ends');
soon($node, q{SELECT count(*) FROM t.started WHERE job = 'a'}, 21, 'turns: and all of role a');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'a' AND at < (SELECT at FROM t.started WHERE job = 'b')}), '<=', 2,
	'turns: it has not waited for the backlog of role a');

# ---------------------------------------------------------------- priority
# The one process is taken; of what waits the job of the higher priority comes first, whenever it was started.
$node->safe_psql('postgres', q{
	TRUNCATE t.started;
	SELECT sweep.create_job('last', step => 't.note', run_as => 'b', args => '{"job": "last"}', priority => -5);
	SELECT sweep.create_job('first', step => 't.note', run_as => 'b', args => '{"job": "first"}', priority => 5)});
$gate = hold_gate($node, 5);
$node->safe_psql('postgres', q{SELECT sweep.start('a0')});
at_gate($node, 5, 'priority: the only process is in use');
$node->safe_psql('postgres', q{SELECT sweep.start('last')});
$node->safe_psql('postgres', q{SELECT sweep.start('a1')});
$node->safe_psql('postgres', q{SELECT sweep.start('first')});
tick($node);
open_gate($gate);
soon($node, q{SELECT count(*) FROM t.started}, 4, 'priority: all have run');
is($node->safe_psql('postgres', q{SELECT string_agg(job, ' ' ORDER BY at) FROM t.started}), 'a first a last', 'priority: in its order');

# ---------------------------------------------------------------- reserved, by reload
$node->append_conf('postgresql.conf', "pg_sweep.max_running_jobs = 2\npg_sweep.reserved_workers = 1\npg_sweep.max_share_per_role = 1");
$node->reload;
my $offset = -s $node->logfile;
$gate = hold_gate($node, 5);
$node->safe_psql('postgres', q{SELECT sweep.start('a0')});
at_gate($node, 5, 'reserved: one of two workers is in use');
$run = $node->safe_psql('postgres', q{SELECT sweep.start('a1')});
soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'a1'}, 'waiting_for_slot: pg_sweep.reserved_workers', 'reserved: the other one is not for everybody');
ok($node->wait_for_log(qr/What is left of pg_sweep\.max_running_jobs, 2, is reserved for jobs of a priority above 0\./, $offset), 'reserved: the log says so');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('first')})), 'succeeded drained 1 0', 'reserved: but for a job of a higher priority');
is($node->safe_psql('postgres', qq{SELECT status FROM sweep.runs WHERE run_id = $run}), 'waiting', 'reserved: while the others wait');
$node->append_conf('postgresql.conf', 'pg_sweep.reserved_workers = 0');
$node->reload;
is(ended_run($node, $run), 'succeeded drained 1 0', 'reserved: until nothing is, without a restart');
open_gate($gate);
soon($node, q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL}, 0, 'reserved: all have ended');

# ---------------------------------------------------------------- consumers, by reload
$node->safe_psql('postgres', q{CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT; END;
	SELECT sweep.create_queue('reloaded'); SELECT sweep.create_consumer('reloaded', 't.handle', concurrency => 4)});
soon($node, q{SELECT workers FROM sweep.consumers WHERE queue = 'reloaded'}, 4, 'consumers: as many as are wanted');
$node->append_conf('postgresql.conf', 'pg_sweep.max_consumers = 1');
$node->reload;
soon($node, q{SELECT workers FROM sweep.consumers WHERE queue = 'reloaded'}, 1, 'consumers: those beyond a lowered limit leave');
$node->append_conf('postgresql.conf', 'pg_sweep.max_consumers = 3');
$node->reload;
soon($node, q{SELECT workers FROM sweep.consumers WHERE queue = 'reloaded'}, 3, 'consumers: and come when it is raised');

$node->stop;
done_testing();
