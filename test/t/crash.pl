# room: engine
# After a crash in the middle of a run: what is recorded is what was done, the
# next run does the rest, and every message is there exactly once.
#
# The log of the server is written late (wal_writer_delay), so that a crash
# does lose the batches whose commits have not waited for the disk.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $rows = 1000;
my $size = 100;
my $node = new_cluster('crash', gitlab => 1, conf => ['wal_writer_delay = 10s', 'autovacuum = off']);

$node->safe_psql('postgres', q{
	SELECT sweep.create_queue('handed_on');
	SELECT sweep.create_job('work', step => 't.work', args => '{"queue": "handed_on"}', batch_size => 100);
});

for my $flush ('run', 'batch')
{
	for my $way ('runner killed', 'backend killed', 'immediate stop')
	{
		my $case = "flush $flush, $way";

		$node->safe_psql('postgres', qq{
			SELECT sweep.alter_job('work', '{"flush": "$flush"}');
			TRUNCATE t.todo;
			DELETE FROM sweep.queue_message;
			INSERT INTO t.todo SELECT i FROM generate_series(1, $rows) AS i;
			CHECKPOINT;
		});
		my $gate = hold_gate($node, 5);
		my $run = $node->safe_psql('postgres', q{SELECT sweep.start('work', '{"gate": 5, "gate_at": 3}')});
		at_gate($node, 5, "$case: the third batch is in progress");
		# A commit that waits flushes all before it; what comes now is flushed by nobody else.
		$node->safe_psql('postgres', q{INSERT INTO t.started VALUES ('flush')});
		step_gate($node, $gate, 5) for 1 .. 3;
		is($node->safe_psql('postgres', "SELECT batches, rows FROM sweep.runs WHERE run_id = $run"),
			'5|500', "$case: five batches are committed");

		if ($way eq 'immediate stop')
		{
			$node->stop('immediate');
			$node->start;
		}
		elsif ($way eq 'backend killed')
		{
			my $victim = session($node);
			my $pid = $victim->query_safe('SELECT pg_backend_pid()');
			crash_of($node, $pid);
			forget_session($victim);
		}
		else
		{
			crash_of($node, pid_of($node, 'runner'));
		}
		forget_session($gate);

		like(ended_run($node, $run), qr/^lost lost /, "$case: the run is lost");
		my $kept = $node->safe_psql('postgres', "SELECT rows FROM sweep.runs WHERE run_id = $run");
		is($kept, 500, "$case: every commit waited for the disk") if $flush eq 'batch';
		cmp_ok($kept, '<=', 500, "$case: the batch in flight is undone");
		cmp_ok($kept, '>=', 200, "$case: what was flushed is kept");
		is( $node->safe_psql('postgres', "SELECT count(*), count(*) / $size FROM t.todo WHERE run_id = $run"),
			$node->safe_psql('postgres', "SELECT rows, batches FROM sweep.runs WHERE run_id = $run"),
			"$case: counters are what was done ($kept rows)");
		is($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.queue_message'),
			$kept, "$case: as many messages as rows");
		is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE objsubid IN (21335, 21336)}),
			0, "$case: no lock is held");

		my $next = $node->safe_psql('postgres', q{SELECT sweep.start('work')});
		my $left = $rows - $kept;
		is(ended_run($node, $next), 'succeeded drained ' . ($left / $size + 1) . " $left", "$case: the next run does the rest");
		is( $node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT key), min(key::int), max(key::int) FROM sweep.queue_message}),
			"$rows|$rows|1|$rows", "$case: every row is in the queue exactly once");
	}
}

# ---------------------------------------------------------------- the same with the GitLab job that fans out
# Messages are inserted without triggers, but not without indexes: one of these has it wait.
my $schema = slurp_file(__FILE__ =~ s{[^/]*$}{../demo/gitlab_schema.sql}r);
$node->safe_psql('postgres', $schema);
$node->safe_psql('postgres', q{
	INSERT INTO public.environments (project_id, name, slug, state, auto_stop_at)
		SELECT i, 'review/' || i, 'review-' || i, 'available', now() + CASE WHEN i <= 950 THEN -i ELSE i END * interval '1 min'
		FROM generate_series(1, 2000) AS i;
	SELECT sweep_gitlab.install(paused => true);
	CREATE FUNCTION t.wait_at_gate(key text) RETURNS int LANGUAGE plpgsql IMMUTABLE
		AS 'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(6, key::int / 100); RETURN 0; END';
});
for my $flush ('run', 'batch')
{
	$node->safe_psql('postgres', qq{
		DELETE FROM sweep.queue_message;
		CREATE INDEX wait_at_gate ON sweep.queue_message (t.wait_at_gate(key)) WHERE key IN ('650', '350');
		SELECT sweep.alter_job('environments_auto_stop', '{"flush": "$flush"}');
	});
	my $gate = hold_gate($node, 6);
	my $run = $node->safe_psql('postgres', q{SELECT sweep.start('environments_auto_stop')});
	at_gate($node, 6, "environments, flush $flush: a fan-out is in progress");
	$node->safe_psql('postgres', q{INSERT INTO t.started VALUES ('flush')});
	step_gate($node, $gate, 6);
	$node->stop('immediate');
	$node->start;
	forget_session($gate);
	like(ended_run($node, $run), qr/^lost /, "environments, flush $flush: the run is lost");
	is( $node->safe_psql('postgres', 'SELECT count(*) FROM sweep.queue_message'),
		$node->safe_psql('postgres', "SELECT rows FROM sweep.runs WHERE run_id = $run"),
		"environments, flush $flush: counters are what is in the queue");
	$node->safe_psql('postgres', 'DROP INDEX sweep.wait_at_gate');
	like(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('environments_auto_stop')})),
		qr/^succeeded drained /, "environments, flush $flush: the next run goes on");
	is( $node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT m.key), count(e.id) FROM sweep.queue_message m
			LEFT JOIN public.environments e ON e.id::text = m.key AND e.auto_stop_at < now()}),
		'950|950|950', "environments, flush $flush: every due environment is in the queue exactly once");
}

$node->stop;
done_testing();
