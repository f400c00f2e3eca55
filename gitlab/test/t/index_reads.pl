# room: gitlab
# How much the jobs read: the rows that they handle, by an index, and each of them a few times, however many batches a run
# has and however many dead entries lie at the front of the index, where an old snapshot keeps them. Entries that a scan
# passes by because a column of its index does not fit are not counted as read, so its blocks are counted as well.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $top = __FILE__ =~ s{[^/]*$}{../../..}r;
my $node = new_cluster('index_reads', gitlab => 1, conf => [ 'autovacuum = off' ]);
my $due = 10000;

sql(slurp_file("$top/test/demo/gitlab_schema.sql"));
sql('SELECT sweep_gitlab.install(paused => true)');
for my $table (qw(environments ci_runner_machines p_ci_builds p_batched_git_ref_updates_deletions p_ci_job_artifacts))
{
	my %variable = (rows => $due, every => 1, scattered => 'true', last => $due);

	$node->safe_psql('postgres', slurp_file("$top/test/bench/rows_of_$table.sql"), extra_params => [ map { ('-v', "$_=$variable{$_}") } keys %variable ]);
}
sql(q{ANALYZE;
	SELECT sweep.alter_job(name, '{"schedule": null, "batch_size": 50, "max_rows": null, "max_batches": null}'), sweep.resume(name) FROM sweep.job;
	SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts')});
my $snapshot = session($node);
$snapshot->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');

sub reads_little
{
	my ($job, $table, $blocks, $times) = @_;
	my $of_table = "relid IN (SELECT '$table'::regclass UNION SELECT relid FROM pg_partition_tree('$table'))";

	sql('SELECT pg_stat_reset()');
	my $run = start($job);
	soon($node, "SELECT sum(rows) FROM sweep.runs WHERE job = '$job' HAVING bool_and(status = 'succeeded')", $due, "$job: all that was due is done");
	# The process counts what it has read last when it ends.
	soon($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'", 0, "$job: its process has ended");
	is(sql("SELECT sum(seq_scan) FROM pg_stat_all_tables WHERE $of_table"), 0, "$job: by indexes");
	my $read = sql("SELECT sum(idx_tup_read) FROM pg_stat_all_indexes WHERE $of_table");
	cmp_ok($read, '>=', $due, "$job: which is counted");
	cmp_ok($read, '<=', ($times // 4) * $due, "$job: each row a few times");
	cmp_ok(sql("SELECT sum(idx_blks_hit + idx_blks_read) FROM pg_statio_all_indexes WHERE $of_table"), '<=', $blocks, "$job: not from the front again");
	return "FROM pg_stat_all_indexes WHERE $of_table";
}

# Twice the blocks that it takes; the builds are updated, which reads all of their indexes.
reads_little('environments_auto_stop', 'environments', 1000);
reads_little('ci_runners_stale_machines_cleanup', 'ci_runner_machines', 5000);
my $indexes = reads_little('ci_stuck_builds_drop_canceling', 'p_ci_builds', 60 * $due);
is(sql("SELECT sum(idx_scan) $indexes AND indexrelname LIKE '%\\_pkey'"), $due, 'each build is looked for in its own partition');
reads_little('batched_git_ref_updates_cleanup_scheduler', 'p_batched_git_ref_updates_deletions', 4 * $due);
reads_little('ci_bulk_delete_expired_job_artifacts', 'p_ci_job_artifacts', 1000);

$snapshot->quit;

# Builds of one project that were inserted together, in one of the partitions: not all that are left of them in each batch, nor the other partitions.
$node->safe_psql('postgres', 'VACUUM p_ci_builds');
sql(q{INSERT INTO p_ci_builds (id, partition_id, type, status, created_at, updated_at, project_id, lock_version)
		SELECT i, 101, 'Ci::Build', 'canceling', '2026-01-01', '2026-01-01', 7, 0 FROM generate_series(1001, 3000) AS i;
	ANALYZE p_ci_builds;
	DELETE FROM sweep.run_history});
$due = 2000;
reads_little('ci_stuck_builds_drop_canceling', 'p_ci_builds', 60 * $due, 5);
$node->stop;
done_testing();
