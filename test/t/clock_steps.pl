# room: engine
# Steps of the wall clock: what comes after what is told by the order in which runs begin, and whatever waits is measured.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('clock_steps', clock => 1, conf => [ 'autovacuum = off' ]);

# ---------------------------------------------------------------- the clock of the test
my $seconds = 'SELECT extract(epoch FROM clock_timestamp())';
my $before = $node->safe_psql('postgres', $seconds);
set_clock($node, 3600);
cmp_ok($node->safe_psql('postgres', $seconds) - $before, '>=', 3599, 'the clock of the server is an hour ahead');
set_clock($node, 0);
cmp_ok($node->safe_psql('postgres', $seconds) - $before, '<', 3599, 'and right again');

# ---------------------------------------------------------------- the order of runs
# Each run of a job that keeps its cursor does one number.
$node->safe_psql('postgres', q{
	CREATE TABLE t.done (nth int GENERATED ALWAYS AS IDENTITY, job text, n int);
	CREATE FUNCTION t.next(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		here int := coalesce((b.cursor ->> 'n')::int, 0) + 1;
	BEGIN
		INSERT INTO t.done (job, n) VALUES (b.args ->> 'job', here);
		RETURN ROW(1, jsonb_build_object('n', here), NULL)::sweep.progress;
	END
	$$;
	SELECT sweep.create_job(name, step => 't.next', max_batches => 1, cursor => split_part(name, ' ', 1), args => jsonb_build_object('job', name))
		FROM unnest('{drain session,always session,drain worker,always worker,always late}'::text[]) AS name;
});

sub archived
{
	my ($name) = @_;

	soon($node, 'SELECT count(*) FROM sweep.run_live WHERE finished_at IS NOT NULL', 0, "$name: what has ended is in the history");
}

# With each run the clock is set back a little further.
for my $nth (1 .. 4)
{
	set_clock($node, 10 - 5 * $nth);
	$node->safe_psql('postgres', "CALL sweep.run('$_ session')") for ('drain', 'always');
	$node->safe_psql('postgres', "CALL sweep.wait(sweep.start('$_ worker'))") for ('drain', 'always');
	archived("run $nth") if $nth == 3;
}
set_clock($node, 0);
is($node->safe_psql('postgres', q{SELECT string_agg(job || ' ' || numbers, ', ' ORDER BY job)
		FROM (SELECT job, string_agg(n::text, ' ' ORDER BY nth) AS numbers FROM t.done GROUP BY job) AS done}),
	join(', ', map {"$_ 1 2 3 4"} ('always session', 'always worker', 'drain session', 'drain worker')),
	'each run goes on behind the last one, however the clock was set');

# A run that was queued early and begins late, after two that were queued after it.
my $queued = $node->safe_psql('postgres', q{SELECT sweep.start('always late', delay => '1 day')});
$node->safe_psql('postgres', q{CALL sweep.run('always late')}) for 1 .. 2;
$node->safe_psql('postgres', "UPDATE sweep.run_live SET due_at = clock_timestamp() WHERE run_id = $queued; SELECT sweep._wake(); CALL sweep.wait($queued)");
$node->safe_psql('postgres', q{CALL sweep.run('always late')});
archived('a late run');
$node->safe_psql('postgres', q{CALL sweep.run('always late')});
is($node->safe_psql('postgres', q{SELECT string_agg(n::text, ' ' ORDER BY nth) FROM t.done WHERE job = 'always late'}), '1 2 3 4 5',
	'and behind one that was queued earlier and began later');

$node->stop;
done_testing();
