# room: process
# A run that ends its process takes the server down: its job is tried again ever later, and is broken at the third crash in
# a row. Other jobs go on.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('run_crashes');

# Like sql, while the server may be down.
sub ask
{
	my $found = eval { sql($_[0]) };

	return defined $found ? $found : '';
}

sub crashes
{
	my @crashes = slurp_file($node->logfile) =~ /all server processes terminated; reinitializing/g;

	return scalar @crashes;
}

# What a crash ends, psql among it, is asked again.
sub becomes
{
	my ($query, $expected, $name) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my $found;

	until (($found = ask($query)) eq $expected || time > $deadline) { }
	is($found, $expected, $name);
}

sql(q{
	CREATE TABLE t.kept (n int, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION t.crash(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM t.kept WHERE n = 0) THEN
			RETURN ROW(0, NULL, NULL)::sweep.progress;
		END IF;
		COPY t.kept (n) FROM PROGRAM 'kill -KILL $PPID';
		PERFORM pg_sleep(600);  -- the sleep is the work
	END $$;
	SELECT sweep.create_job('good', '1 second', step => 't.note', args => '{"job": "good"}');
	-- in progress at each crash, and none of the reason
	CREATE FUNCTION t.last(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM t.kept WHERE n = 0) LOOP
			PERFORM pg_sleep(0.1);  -- the sleep is the work
		END LOOP;
		RETURN ROW(0, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('long', '1 second', step => 't.last');
});
soon($node, q{SELECT count(*) FROM sweep.running WHERE job = 'long' AND phase = 'step'}, 1, 'a long run is in progress');
sql(q{SELECT sweep.create_job('bad', '1 second', step => 't.crash')});
becomes(q{SELECT state FROM sweep.jobs WHERE name = 'bad'}, 'broken: the server went down 3 times while it ran', 'the third crash makes the job broken');
is(crashes(), 3, 'and there is no other');
my @times = map { $_->[0] * 3600 + $_->[1] * 60 + $_->[2] } map { [ split /:/ ] } slurp_file($node->logfile) =~ /^\S+ (\S+) .* was terminated by signal 9/mg;
cmp_ok(($times[$_] - $times[ $_ - 1 ]) % 86400, '>=', $_, "number $_ more comes $_ s later at least") for 1 .. 2;
is(sql(q{SELECT state NOT LIKE 'broken%' FROM sweep.jobs WHERE name = 'long'}), 't', 'a job that was in progress beside it is not');
is(sql(q{SELECT crashes FROM sweep.job_state WHERE job = 'bad'}), 3, 'they are counted');
my $offset = sql(q{SELECT count(*) FROM t.started WHERE job = 'good'});
soon($node, "SELECT count(*) > $offset + 2 FROM t.started WHERE job = 'good'", 't', 'another job goes on');
my ($status, $output, $message) = $node->psql('postgres', q{SELECT sweep.start('bad')});
like($message, qr/ERROR:  job "bad" is broken: the server went down 3 times while it ran/, 'it cannot be started');

# ---------------------------------------------------------------- mended
sql('INSERT INTO t.kept VALUES (0)');
sql(q{SELECT sweep.resume('bad')});
soon($node, q{SELECT count(*) > 1 FROM sweep.runs WHERE job = 'bad' AND status = 'succeeded'}, 't', 'once it is resumed it runs');
soon($node, q{SELECT state LIKE 'broken%' FROM sweep.jobs WHERE name = 'bad'}, 'f', 'and is not broken');
is(crashes(), 3, 'the server stays up');

# ---------------------------------------------------------------- the way in
$node->append_conf('postgresql.conf', 'pg_sweep.start_paused = on');
$node->restart;
my $run = sql(q{SELECT sweep.start('good')});
my $seen = sql(q{SELECT count(*) FROM t.started});
is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'pg_sweep (scheduler|runner|consumer)'}), 0, 'start_paused: a server that is started has no scheduler');
sql(q{SELECT sweep.pause('good')});
$node->append_conf('postgresql.conf', 'pg_sweep.start_paused = off');
$node->reload;
is(ended_run($node, $run), 'succeeded drained 1 0', 'start_paused: what was started runs when it is off');
is(sql(q{SELECT count(*) FROM t.started WHERE job = 'good'}) - $seen <= 2 ? 'none' : 'some', 'none', 'start_paused: and nothing ran before');
$node->append_conf('postgresql.conf', 'pg_sweep.start_paused = on');
$node->reload;
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}, 0, 'start_paused: set while the server runs, schedulers leave');
$node->stop;
done_testing();
