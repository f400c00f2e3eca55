# room: process
# A role that is no longer sweep_user, may not connect or may not log in has nothing done for it: its jobs and consumers stop and say
# why, and go on when it is given back.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('revoked_role');

$node->safe_psql('postgres', q{
	CREATE ROLE worker LOGIN IN ROLE sweep_user;
	CREATE ROLE vouched LOGIN;
	CREATE TABLE t.handled (id bigint);
	CREATE FUNCTION t.handle(m sweep.message) RETURNS void LANGUAGE sql BEGIN ATOMIC INSERT INTO t.handled VALUES ((m.payload ->> 'id')::bigint); END;
	GRANT ALL ON t.handled TO worker;
	CREATE TABLE t.mine (id bigint);
	GRANT ALL ON t.mine TO worker;
	SELECT sweep.create_job('ticks', step => 't.note', schedule => '* * * * * *', run_as => 'worker', args => '{"job": "ticks"}');
	SELECT sweep.create_job('once', step => 't.note', run_as => 'worker', args => '{"job": "once"}');
	SELECT sweep.create_job('long', step => 't.work', batch_size => 1, run_as => 'worker', args => '{"gate": 1}');
	SELECT sweep.create_job('mine', batch_sql => 'DELETE FROM t.mine WHERE $1 > 0', schedule => '* * * * * *', run_as => 'worker');
	SELECT sweep.create_job('of vouched', batch_sql => 'INSERT INTO t.started SELECT ''vouched'' WHERE $1 > 0', max_batches => 1, schedule => '* * * * * *', run_as => 'vouched');
	INSERT INTO t.todo SELECT generate_series(1, 10);
	SELECT sweep.create_queue('q');
	SELECT sweep.grant_queue('q', 'worker', '{consume}');
	SELECT sweep.create_consumer('q', 't.handle', run_as => 'worker');
	SELECT sweep.send('q', '{"id": 1}');
});

sub state_is
{
	my ($pattern, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, qq{SELECT state ~ '$pattern' FROM sweep.jobs WHERE name = 'ticks'}, 't', "$name: the job");
	soon($node, qq{SELECT state ~ '$pattern' FROM sweep.consumers}, 't', "$name: the consumer");
}

# What of the role was about to run stays, while others go on.
sub nothing_is_done
{
	my ($name, $id) = @_;
	my $before = q{SELECT count(*) FROM t.started WHERE job = 'vouched'};

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, q{SELECT sum(workers) FROM sweep.consumers}, 0, "$name: the consumer has no process");
	soon($node, q{SELECT broken IS NOT NULL FROM sweep.job_state WHERE job = 'ticks'}, 't', "$name: the scheduler knows");
	soon($node, q{SELECT count(*) FROM sweep.running WHERE job IN ('ticks', 'once', 'long')}, 0, "$name: no run is in progress");
	$node->safe_psql('postgres', qq{SELECT sweep.send('q', '{"id": $id}')});
	my $count = $node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'ticks'});
	$before = $node->safe_psql('postgres', $before);
	soon($node, qq{SELECT count(*) >= $before + 3 FROM t.started WHERE job = 'vouched'}, 't', "$name: a job that an administrator gave to a role goes on");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'ticks'}), $count, "$name: and the job of the role does not");
	is($node->safe_psql('postgres', "SELECT count(*) FROM t.handled WHERE id = $id"), '0', "$name: no message is handled");
}

sub goes_on
{
	my ($name, $id) = @_;
	my $count = $node->safe_psql('postgres', q{SELECT count(*) FROM t.started WHERE job = 'ticks'});

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, qq{SELECT count(*) > $count FROM t.started WHERE job = 'ticks'}, 't', "$name: the job goes on");
	soon($node, "SELECT count(*) FROM t.handled WHERE id = $id", 1, "$name: so does the consumer");
	soon($node, q{SELECT state ~ '^(idle|running)$' FROM sweep.jobs WHERE name = 'ticks'}, 't', "$name: and says nothing of it");
}

goes_on('at first', 1);

# ---------------------------------------------------------------- sweep_user
my $gate = hold_gate($node, 1);
my $long = $node->safe_psql('postgres', q{SELECT sweep.start('long')});
at_gate($node, 1);
step_gate($node, $gate, 1);
$node->safe_psql('postgres', 'REVOKE sweep_user FROM worker');
open_gate($gate);
is(ended_run($node, $long), 'failed error 2 2', 'REVOKE: a run in progress ends before its next batch');
is($node->safe_psql('postgres', "SELECT sqlstate || ' ' || split_part(error, E'\n', 1) FROM sweep.runs WHERE run_id = $long"),
	'42501 role "worker" is not a member of sweep_user', 'REVOKE: and says why');
state_is('^broken: role "worker" is not a member of sweep_user$', 'REVOKE');
my $waiting = due_run($node, 'once');
nothing_is_done('REVOKE', 2);
is($node->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $waiting"), 'waiting', 'REVOKE: a run that was queued waits');
like(($node->psql('postgres', q{SELECT sweep.start('once')}))[2], qr/job "once" is broken: role "worker" is not a member of sweep_user/, 'REVOKE: start says why not');
$node->safe_psql('postgres', 'GRANT sweep_user TO worker');
goes_on('GRANT', 2);
is(ended_run($node, $waiting), 'succeeded drained 1 0', 'GRANT: so does the run that waited');

# ---------------------------------------------------------------- CONNECT
$node->safe_psql('postgres', 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO vouched');
state_is('^broken: role "worker" may not connect to the database$', 'without CONNECT');
nothing_is_done('without CONNECT', 3);
$node->safe_psql('postgres', 'GRANT CONNECT ON DATABASE postgres TO worker');
goes_on('with CONNECT', 3);

# ---------------------------------------------------------------- LOGIN
SKIP:
{
	skip 'a worker may connect as a role without LOGIN', 12 if $node->safe_psql('postgres', q{SHOW server_version_num}) >= 170000;
	$node->safe_psql('postgres', 'ALTER ROLE worker NOLOGIN');
	state_is('^broken: role "worker" is not permitted to log in$', 'NOLOGIN');
	nothing_is_done('NOLOGIN', 4);
	$node->safe_psql('postgres', 'ALTER ROLE worker LOGIN');
	goes_on('LOGIN', 4);
}

# ---------------------------------------------------------------- the table
$node->safe_psql('postgres', 'REVOKE ALL ON t.mine FROM worker');
soon($node, q{SELECT state FROM sweep.jobs WHERE name = 'mine'}, 'broken: permission denied for table mine', 'without the table: the run fails, and the job says why');
$node->safe_psql('postgres', 'GRANT ALL ON t.mine TO worker');
soon($node, q{SELECT state ~ '^(idle|running)$' FROM sweep.jobs WHERE name = 'mine'}, 't', 'with the table: it goes on');

$node->stop;
done_testing();
