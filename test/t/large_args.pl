# room: engine
# Large args, texts and results: refused where they come in, and what is stored all the same stops nobody else.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('large_args', conf => [ 'autovacuum = off' ]);

sub answer_to
{
	my ($query) = @_;
	my ($status, $output, $error) = $node->psql('postgres', $query, extra_params => [ '-U', 'jobber' ]);

	return $status == 0 ? $output : $error =~ s/^.*?ERROR:  //sr;
}

# The most memory that a process has had, in MB.
sub peak_of
{
	my ($pid) = @_;

	return slurp_file("/proc/$pid/status") =~ /^VmHWM:\s*(\d+) kB/m ? $1 / 1024 : die 'no VmHWM';
}

$node->safe_psql('postgres', q{
	CREATE FUNCTION t.grow(b sweep.batch) RETURNS sweep.progress LANGUAGE sql
		AS $$ SELECT ROW(1, CASE WHEN b.args ? 'cursor' THEN to_jsonb(repeat('x', 2000000)) END,
			CASE WHEN b.args ? 'detail' THEN jsonb_build_object('x', repeat('x', 2000000)) END)::sweep.progress $$;
	CREATE FUNCTION t.large(kilobytes int) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('x', repeat('x', kilobytes * 1024)) $$;
	SET SESSION AUTHORIZATION jobber;
	SELECT sweep.create_job('small', step => 't.note', args => '{"job": "small"}');
	SELECT sweep.create_job('grow', step => 't.grow');
});

# ---------------------------------------------------------------- where they come in
my $refused = qr/^args of job "\w+" are too large: 655\d\d bytes\nDETAIL:  They may have pg_sweep\.max_args_size, 64 kB\.\nHINT:  Keep the data in a table/;
my %way = (
	create_job => q{SELECT sweep.create_job('other', step => 't.note', args => t.large(64))},
	alter_job => q{SELECT sweep.alter_job('small', jsonb_build_object('args', t.large(64)))},
	start => q{SELECT sweep.start('small', t.large(64))},
	run => q{CALL sweep.run('small', t.large(64))},
	preview => q{SELECT sweep.preview('small', t.large(64))});
like(answer_to($way{$_}), $refused, "$_: 64 kB and a little are refused") for sort keys %way;
is($node->safe_psql('postgres', q{SELECT count(*), max(octet_length(args::text)) FROM sweep.job}), '2|16', 'nothing has changed');
is(answer_to(q{SELECT count(sweep.start('small', t.large(63)))}), 1, 'less is accepted');
$node->safe_psql('postgres', q{ALTER SYSTEM SET pg_sweep.max_args_size = '128 kB'});
$node->reload;
soon($node, q{SHOW pg_sweep.max_args_size}, '128kB', 'the limit is raised');
is(answer_to(q{SELECT sweep.alter_job('small', jsonb_build_object('args', t.large(100)))}), '', 'then more is accepted');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET pg_sweep.max_args_size});
$node->reload;
soon($node, q{SHOW pg_sweep.max_args_size}, '64kB', 'the limit is lowered');
is(answer_to(q{SELECT sweep.alter_job('small', '{"max_attempts": 2}')}), '', 'what is stored already keeps nothing else from being changed');
is(ended_run($node, answer_to(q{SELECT sweep.start('small')})), 'succeeded drained 1 0', 'nor the job from running');
like(answer_to(qq{SELECT sweep.create_job('other', step => 't.note', $_->[0] => $_->[1])}), qr/^\Q$_->[0]\E of job "other" is too large: \d+ bytes\nHINT:  It may have \d+ bytes\./,
	"$_->[0] has a limit") for (
	[ 'description', q{repeat('x', 65537)} ],
	[ 'on_start', q{(SELECT jsonb_object_agg('child' || i, '1 min') FROM generate_series(1, 10000) AS i)} ],
	[ 'schedule', q{'0' || repeat(',0', 600) || ' * * * *'} ],
	[ 'lock_key', q{repeat('x', 1025)} ]);
like(answer_to(q{SELECT sweep.create_job('other', batch_sql => 'SELECT 1 -- ' || repeat('x', 1024 * 1024))}),
	qr/^batch_sql of job "other" is too large/, 'batch_sql has a limit');
for my $what ('cursor', 'detail')
{
	my $run = answer_to(qq{SELECT sweep.start('grow', '{"$what": 1}')});

	is(ended_run($node, $run), 'failed error 0 0', "a run that returns a large $what fails");
	like($node->safe_psql('postgres', "SELECT sqlstate || ' ' || error FROM sweep.runs WHERE run_id = $run"),
		qr/^54000 $what of job "grow" is too large: 2000\d\d\d bytes/, "with an error that says so: $what");
}

# ---------------------------------------------------------------- what is stored all the same
$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION jobber; SELECT sweep.create_job('large', step => 't.note'), sweep.create_job('other', step => 't.note')});
my $pid = keep_scheduler($node);
my $before = peak_of($pid);
$node->safe_psql('postgres', q{
	INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at)
		SELECT 'large', 'jobber'::regrole, t.large(20 * 1024), 'manual', now() FROM generate_series(1, 10)});
my $other = answer_to(q{SELECT sweep.start('other')});
is(ended_run($node, $other), 'succeeded drained 1 0', 'ten runs with 20 MB each wait: another job runs');
soon($node, q{SELECT count(*) FROM sweep.run_history WHERE job = 'large' AND status IN ('succeeded', 'skipped')}, 10, 'so do they, and they come to the history');
is(pid_of($node, 'scheduler', 'postgres'), $pid, 'by the same scheduler');
cmp_ok(peak_of($pid) - $before, '<', 60, sprintf('which needed %.0f MB more for it', peak_of($pid) - $before));

# together they are more than a JSON value may have
$node->safe_psql('postgres', q{
	UPDATE sweep.job_definition SET args = t.large(140 * 1024) WHERE name = 'large';
	INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at)
		SELECT 'large', 'jobber'::regrole, jsonb_build_object('y', repeat('y', 140 * 1024 * 1024)), 'manual', now()});
$other = answer_to(q{SELECT sweep.start('other')});
is(ended_run($node, $other), 'succeeded drained 1 0', 'args that cannot be merged: another job runs');
soon($node, q{SELECT status FROM sweep.run_history WHERE job = 'large' ORDER BY run_id DESC LIMIT 1}, 'failed', 'the run of its own fails');
cmp_ok(peak_of($pid) - $before, '<', 60, 'the scheduler has read none of it');

# a job whose texts are more than any value may have is due like all others
$node->safe_psql('postgres', q{
	UPDATE sweep.job_definition SET args = '{}', description = repeat('x', 300000000), schedule = '@hourly', timezone = 'UTC' WHERE name = 'large';
	UPDATE sweep.job_state SET next_due = now(), next_start = now() WHERE job = 'large'});
answer_to(q{SELECT sweep.start('other')});
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'large' AND trigger = 'schedule' AND status = 'succeeded'}, 1, 'a job with a large description is due and runs');
is(pid_of($node, 'scheduler', 'postgres'), $pid, 'by the same scheduler');
cmp_ok(peak_of($pid) - $before, '<', 60, 'which has not read that either');

$node->stop;
done_testing();
