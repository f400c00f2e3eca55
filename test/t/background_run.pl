# room: process
# A run in the background knows of its job what CALL knows, however long the definition is.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('background_run');

$node->safe_psql('postgres', q{
	CREATE TABLE t.seen (run_id bigint, size int, args jsonb, as_of timestamptz, cursor jsonb);
	CREATE FUNCTION t.look(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.seen VALUES (b.run_id, b.size, b.args, b.as_of, b.cursor);
		RETURN ROW(b.size, to_jsonb(b.run_id), NULL)::sweep.progress;
	END $$;
});

# The short definition is handed over in shared memory, the long one is not and is read by the run.
for my $length (10, 10000)
{
	my $job = "job of $length";

	$node->safe_psql('postgres', qq{
		SELECT sweep.create_job('$job', step => 't.look', args => jsonb_build_object('padding', repeat('x', $length), 'a', 1, 'b', 2),
			batch_size => 7, max_rows => 16, cursor => 'drain', lock_key => 'key of $length', timeout => '1 h', stop_after => '1 min');
		CALL sweep.run('$job', '{"b": 3, "as_of": "2026-01-02T03:04:05Z"}');
		TRUNCATE t.seen;
	});
	my $id = $node->safe_psql('postgres', qq{SELECT sweep.start('$job', '{"b": 3, "as_of": "2026-01-02T03:04:05Z"}')});
	$node->safe_psql('postgres', "CALL sweep.wait($id)");
	is($node->safe_psql('postgres', q{SELECT string_agg(size::text, ' ' ORDER BY size DESC) FROM t.seen}), '7 7 2', "$job: its limits");
	is($node->safe_psql('postgres', q{
		SELECT DISTINCT length(args ->> 'padding'), args - 'padding', as_of AT TIME ZONE 'UTC' FROM t.seen}),
		$length . '|{"a": 1, "b": 3, "as_of": "2026-01-02T03:04:05Z"}|2026-01-02 03:04:05', "$job: its args");
	is($node->safe_psql('postgres', "SELECT bool_or(cursor = to_jsonb($id)), bool_or(cursor < to_jsonb($id)) FROM t.seen"), 't|t',
		"$job: the cursor it kept");
	is($node->safe_psql('postgres', "SELECT rows, batches, stop_reason FROM sweep.runs WHERE run_id = $id"), '16|3|max_rows',
		"$job: what came of it");
}

# Changed between two runs: the next one has the new definition.
$node->safe_psql('postgres', q{
	SELECT sweep.alter_job('job of 10', '{"batch_size": 3, "max_rows": 3, "args": {}}');
	TRUNCATE t.seen;
	CALL sweep.wait(sweep.start('job of 10'));
});
is($node->safe_psql('postgres', 'SELECT size, args FROM t.seen'), '3|{}', 'a changed definition holds for the next run');

# A run is of the role that it runs as, whatever becomes of its job meanwhile.
sub running_as
{
	return $node->safe_psql('postgres', q{SELECT string_agg(job, ' ') FROM sweep.running}, extra_params => [ '-U', $_[0] ]);
}
my $gate = hold_gate($node, 9);
$node->safe_psql('postgres', q{
	CREATE ROLE heir LOGIN IN ROLE sweep_user;
	SELECT sweep.create_job('dropped', step => 't.note', args => '{"gate": 9}', run_as => 'jobber');
	SELECT sweep.start('dropped');
});
at_gate($node, 9, 'a run is in progress');
# As sweep.drop_job, whose request to stop the run its step may take long to heed.
$node->safe_psql('postgres', q{DELETE FROM sweep.job_definition WHERE name = 'dropped'});
is(running_as('jobber'), 'dropped', 'its role sees it in sweep.running when its job is gone');
$node->safe_psql('postgres', q{INSERT INTO sweep.job_definition SELECT (jsonb_populate_record(j, '{"name": "dropped", "run_as": "heir"}')).* FROM sweep.job j WHERE name = 'job of 10'});
is(running_as('jobber'), 'dropped', 'and when another role has a job of this name');
is(running_as('heir'), '', 'which does not see it');
open_gate($gate);

$node->stop;
done_testing();
