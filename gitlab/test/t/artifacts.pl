# room: gitlab
# GitLab's artifact deletion as it is installed: flags, scheduler and shares, when
# flags are switched, a share is cancelled and the server crashes in the middle. Each
# artifact is deleted and handed on once, and counted once.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RedisTest;
use Test::More;
use SweepTest;

my $expired = 6000;
my $scheduler = 'ci_schedule_bulk_delete_job_artifacts';
my $child = 'ci_bulk_delete_expired_job_artifacts';
my $node = new_cluster('artifacts', gitlab => 1, conf => [ 'pg_sweep.max_running_jobs = 12', 'max_worker_processes = 24' ]);
my $schema = slurp_file(__FILE__ =~ s{[^/]*$}{../../../test/demo/gitlab_schema.sql}r);

# The gate is passed at the end of a batch that has deleted something: in its commit.
$node->safe_psql('postgres', $schema);
$node->safe_psql('postgres', q{
	CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER pass_gate AFTER INSERT ON ci_deleted_objects DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION pass_gate();
	-- the others have schedules of their own
	SELECT sweep_gitlab.install(paused => true);
	SELECT sweep.alter_job('ci_schedule_bulk_delete_job_artifacts', '{"schedule": null, "paused": false}');
	SELECT sweep.alter_job('ci_bulk_delete_expired_job_artifacts', '{"batch_size": 20, "paused": false}');
});

sub fill
{
	sql(qq{
		TRUNCATE p_ci_job_artifacts, ci_deleted_objects, sweep.queue_message;
		INSERT INTO p_ci_job_artifacts (id, job_id, project_id, file_type, locked, partition_id, size, created_at, updated_at, expire_at, file)
			SELECT i, i, 1 + i % 7, 1, 0, 100 + i % 3, i, now(), now(), now() - i * interval '1 s', 'a.zip' FROM generate_series(1, $expired) AS i});
}

# Runs the scheduler until nothing is left; when a share was lost, that takes as long as its bucket is not free.
sub finish
{
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	while (sql('SELECT count(*) FROM p_ci_job_artifacts') > 0)
	{
		die 'artifacts are left' if time > $deadline;
		sql("CALL sweep.wait(sweep.start('$scheduler'))");
		$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM sweep.runs WHERE finished_at IS NULL") or die 'runs go on';
	}
}

sub all_once
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql(q{SELECT (SELECT count(*) FROM p_ci_job_artifacts), count(*), count(DISTINCT store_dir) FROM ci_deleted_objects}),
		"0|$expired|$expired", "$name: each is deleted and handed on once");
	is(sql(q{SELECT sum((payload -> 'count')::bigint), sum((payload -> 'bytes')::bigint) FROM sweep.queue_message}),
		"$expired|" . $expired * ($expired + 1) / 2, "$name: the statistics are exact");
}

sub shares_at_gate
{
	my ($number, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, "SELECT count(*) FROM pg_locks l JOIN sweep.runs r USING (pid) WHERE locktype = 'advisory' AND objid = 77 AND NOT granted AND r.job = '$child'",
		$number, $name);
}

# ---------------------------------------------------------------- the flag is off
fill();
sql("CALL sweep.wait(sweep.start('$scheduler'))");
is(sql("SELECT status, detail FROM sweep.runs"), 'succeeded|{"max_buckets": 0}', 'with the feature off the scheduler returns at once');
is(sql('SELECT count(*) FROM sweep.buckets'), 0, 'and touches no bucket');
is(sql('SELECT count(*) FROM p_ci_job_artifacts'), $expired, 'nor an artifact');

# ---------------------------------------------------------------- nobody can say whether it is on
sql('ALTER TABLE sweep_gitlab.feature_flag RENAME TO elsewhere');
my $failed = sql("SELECT sweep.start('$scheduler')");
soon($node, "SELECT status || ' ' || sqlstate FROM sweep.runs WHERE run_id = $failed", 'failed 42P01', 'a flag that cannot be asked for fails the run');
is(sql('SELECT count(*) FROM sweep.buckets'), 0, 'which touches no bucket');
sql('ALTER TABLE sweep_gitlab.elsewhere RENAME TO feature_flag');

# ---------------------------------------------------------------- five shares, two schedulers
sql("SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts')");
my $gate = session($node);
$gate->query('SELECT pg_advisory_lock(77)');
sql("SELECT sweep.start('$scheduler') FROM generate_series(1, 2)");
shares_at_gate(5, 'five shares work side by side');
is(sql(q{SELECT string_agg(bucket::text, ' ' ORDER BY bucket) FROM sweep.buckets WHERE state = 'occupied' AND holder IS NOT NULL}), '0 1 2 3 4',
	'each has a bucket of its own');
soon($node, qq{SELECT sum((detail -> 'missing_count')::int), max((detail -> 'max_buckets')::int) FROM sweep.runs WHERE job = '$scheduler' AND run_id > $failed}, '5|5',
	'the five missing buckets were added once');

# what is surplus has ended: it must not take the bucket that becomes free
soon($node, q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL}, 5, 'five shares are left');
# one of them is cancelled: its batch is rolled back, and its bucket is free again
sql(q{SELECT sweep.cancel(holder) FROM sweep.buckets WHERE bucket = 2});
soon($node, 'SELECT state FROM sweep.buckets WHERE bucket = 2', 'available', 'a share that is cancelled gives its bucket back');
$gate->query('SELECT pg_advisory_unlock_all()');
finish();
all_once('one share cancelled');
is(sql(q{SELECT count(*) FROM sweep.buckets WHERE state = 'occupied'}), 0, 'no bucket is left occupied');

# ---------------------------------------------------------------- the first ones are locked by somebody
my $locked = 300;
my $step = sql("SELECT pg_get_functiondef('sweep_gitlab.ci_bulk_delete_expired_job_artifacts(sweep.batch)'::regprocedure)");
my $before = sql("SELECT sum(rows) FROM sweep.runs WHERE job = '$child'");
fill();
# with no patience, so that each list of which all are locked is a batch
sql($step =~ s/'10 s'/'0'/r);
$gate->query("BEGIN; SELECT count(*) FROM (SELECT FROM p_ci_job_artifacts ORDER BY expire_at LIMIT $locked FOR UPDATE) AS a");
my $last = sql('SELECT max(run_id) FROM sweep.runs');
sql("CALL sweep.wait(sweep.start('$scheduler'))");
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM sweep.runs WHERE finished_at IS NULL}) or die 'runs go on';
is(sql('SELECT count(*) FROM p_ci_job_artifacts'), $locked, 'shares pass by artifacts that are locked');
cmp_ok(sql("SELECT sum((detail -> 'locked')::int) FROM sweep.runs WHERE job = '$child' AND run_id > $last"), '>=', $locked, 'and count them');
cmp_ok(sql("SELECT sum(rows) - $before FROM sweep.runs WHERE job = '$child'"), '>', $expired - $locked,
	'a batch that has found no others for long is committed, and is not the last one');
sql($step);
$gate->query('ROLLBACK');
finish();
all_once('locked for a while');

# ---------------------------------------------------------------- 5 -> 10 -> 5 -> off while they work
fill();
$gate->query('SELECT pg_advisory_lock(77)');
sql("SELECT sweep.start('$scheduler')");
shares_at_gate(5, 'five again');
sql("SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts_high_concurrency')");
sql("CALL sweep.wait(sweep.start('$scheduler'))");
shares_at_gate(10, 'ten while the five are in the middle of their batches');
sql("SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts_high_concurrency')");
$gate->query('SELECT pg_advisory_unlock_all()');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM sweep.runs WHERE finished_at IS NULL}) or die 'runs go on';
finish();
all_once('five, ten and five again');
soon($node, "SELECT string_agg(bucket::text, ' ' ORDER BY bucket) FROM sweep.buckets", '0 1 2 3 4', 'buckets beyond the fifth are dropped');

fill();
$gate->query('SELECT pg_advisory_lock(77)');
sql("SELECT sweep.start('$scheduler')");
shares_at_gate(5, 'five once more');
sql("SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts')");
$gate->query('SELECT pg_advisory_unlock_all()');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM sweep.runs WHERE finished_at IS NULL}) or die 'runs go on';
is(sql('SELECT count(*) FROM ci_deleted_objects'), 100, 'switched off, each share ends with the batch it is in');
sql("SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts')");
finish();
all_once('off and on');

# ---------------------------------------------------------------- a crash
fill();
$gate->query('SELECT pg_advisory_lock(77)');
sql("SELECT sweep.start('$scheduler')");
shares_at_gate(5, 'five before a crash');
sql('CHECKPOINT');
$node->stop('immediate');
$node->start;
sql("SELECT sweep.alter_job('$child', '{\"bucket_recovery\": \"2 s\", \"stop_after\": \"1 s\"}')");
is(sql('SELECT count(*) FROM sweep_gitlab.artifact_list'), 0, 'after a crash there are no lists');
finish();
all_once('a crash');

# ---------------------------------------------------------------- with GitLab's own buckets
SKIP:
{
	skip 'without Redis', 4 unless RedisTest::module_exists() && RedisTest::servers();
	my $redis = RedisTest->new;
	my $key = '{bulk_delete_expired_job_artifacts}';

	$node->append_conf('postgresql.conf', "pg_sweep.redis_url = '" . $redis->url . "'");
	$node->reload;
	fill();
	sql("SELECT sweep.alter_job('$child', '{\"bucket_store\": \"redis\", \"bucket_recovery\": \"10 min\", \"stop_after\": \"5 min\"}')");
	$gate = session($node);
	$gate->query('SELECT pg_advisory_lock(77)');
	sql("SELECT sweep.start('$scheduler')");
	shares_at_gate(5, 'five with buckets in Redis');
	is($redis->members("$key:available_buckets") . '|' . $redis->scored("$key:occupied_buckets"), '|0 1 2 3 4',
		'which are those of GitLab');
	$gate->query('SELECT pg_advisory_unlock_all()');
	finish();
	all_once('buckets in Redis');
}

done_testing();
