# Divided jobs: shares side by side, each with a bucket of its own, under every
# accident. One suite for every store of buckets: the table, Redis, Valkey. What
# concerns Redis alone is in buckets_redis.pl.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RedisTest;
use Test::More;
use SweepTest;

my $rows = 600;
my $node = new_cluster('buckets', conf => [ 'pg_sweep.max_running_jobs = 8', 'max_worker_processes = 24', "pg_sweep.redis_timeout = '30 s'" ]);

# t.share deletes the rows of its bucket, and writes down which. Its args:
#   gate    an advisory lock (gate, bucket + 1) that it waits for in the middle of the batch
# If another run works on the same bucket with the same number of buckets, that is an overlap. The lock is one of a row,
# free from the moment on at which the commit of its holder can be seen, as the bucket is: an advisory lock is released later.
$node->safe_psql('postgres', q{
	CREATE TABLE t.artifact (id int PRIMARY KEY);
	CREATE TABLE t.deleted (id int, run_id bigint, bucket int, buckets int);
	CREATE TABLE t.turn AS SELECT buckets, bucket FROM generate_series(1, 20) AS buckets, generate_series(0, buckets - 1) AS bucket;
	CREATE TABLE t.flag (buckets int);
	INSERT INTO t.flag VALUES (1000);
	CREATE FUNCTION t.flagged(b sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT buckets FROM t.flag $$;
	CREATE FUNCTION t.share(b sweep.batch) RETURNS sweep.progress
		LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
	AS $$
	DECLARE
		n int;
	BEGIN
		WITH gone AS (DELETE FROM t.artifact WHERE id IN (SELECT id FROM t.artifact WHERE mod(id, b.buckets) = b.bucket
				ORDER BY id LIMIT b.size FOR UPDATE SKIP LOCKED) RETURNING id)
			INSERT INTO t.deleted SELECT id, b.run_id, b.bucket, b.buckets FROM gone;
		GET DIAGNOSTICS n = ROW_COUNT;
		IF b.args ? 'gate' THEN
			PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::int, b.bucket + 1);
		ELSE
			PERFORM FROM t.turn AS u WHERE u.buckets = b.buckets AND u.bucket = b.bucket FOR UPDATE SKIP LOCKED;
			IF NOT FOUND THEN
				INSERT INTO t.overlap VALUES (b.run_id);
			END IF;
		END IF;
		RETURN ROW(n, NULL, NULL)::sweep.progress;
	END
	$$;
	CREATE FUNCTION t.nothing(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT ROW(0, NULL, NULL)::sweep.progress $$;
});

# ---------------------------------------------------------------- helpers
sub create
{
	my ($job, $store, $definition) = @_;

	sql(qq{SELECT sweep.create_job('$job', step => 't.share', bucket_store => '$store', batch_size => 20, $definition)});
	refill();
}

sub refill
{
	sql("TRUNCATE t.artifact, t.deleted, t.overlap; INSERT INTO t.artifact SELECT generate_series(1, $rows)");
}

# All runs of the job have ended, and none waits.
sub quiet
{
	my ($job) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) = 0 AND NOT EXISTS (SELECT FROM sweep.running WHERE job = '$job')
		FROM sweep.runs WHERE job = '$job' AND finished_at IS NULL")
	  or die "runs of $job go on";
}

# Starts the job until nothing is left: what happened to the runs before may have kept some from their turn.
sub finish
{
	my ($job) = @_;

	for (1 .. 20)
	{
		quiet($job);
		return if sql('SELECT count(*) FROM t.artifact') == 0;
		start($job);
	}
}

sub exactly_once
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql('SELECT count(*), count(DISTINCT id), (SELECT count(*) FROM t.artifact), (SELECT count(*) FROM t.overlap) FROM t.deleted'),
		"$rows|$rows|0|0", "$name: everything is deleted, once, and nobody worked on the bucket of another");
}

# The last run of the job: status and what it found.
sub last_run
{
	my ($job) = @_;

	return sql("SELECT concat_ws(' ', status, stop_reason, detail ->> 'reason', detail ->> 'stale_count') FROM sweep.runs WHERE job = '$job' ORDER BY run_id DESC LIMIT 1");
}

sub at_bucket_gate
{
	my ($gate, $count, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 2 AND classid = $gate",
		$count, $name);
}

sub pid_of_run
{
	my ($run) = @_;

	return sql("SELECT pid FROM sweep.runs WHERE run_id = $run");
}

# Waits until a claim that was made before now is as old as that; the second more is what Redis rounds.
sub until_recovered
{
	my ($run, $recovery) = @_;

	$node->poll_query_until('postgres', "SELECT clock_timestamp() > started_at + interval '$recovery' + interval '2 s' FROM sweep.runs WHERE run_id = $run")
	  or die "run $run never gets so old";
}

# ---------------------------------------------------------------- the stores
my $redis;

# How many buckets of the job are occupied, and available: as the store itself has them.
sub buckets_of
{
	my ($job, $store) = @_;

	return sql("SELECT count(*) FILTER (WHERE state = 'occupied') || ' ' || count(*) FILTER (WHERE state = 'available') FROM sweep.bucket WHERE job = '$job'")
	  if $store eq 'table';
	return $redis->cli('ZCARD', "{$job}:occupied_buckets") . ' ' . $redis->cli('SCARD', "{$job}:available_buckets");
}

sub soon_buckets
{
	my ($job, $store, $expected, $name) = @_;
	my $found;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$found = buckets_of($job, $store);
		last if $found eq $expected;
		sql('SELECT 1');    # paces the loop: no wait of ours
	}
	is($found, $expected, $name);
}

# ---------------------------------------------------------------- the suite
sub side_by_side
{
	my ($name, $store) = @_;
	my $job = "$name five";

	create($job, $store, 'buckets => 5');
	my $gate = hold_gate($node, 40);
	my $run = start($job, '{"gate": 40}');
	at_bucket_gate(40, 5, "$name: five shares are at work");
	is(buckets_of($job, $store), '5 0', "$name: all buckets are occupied");
	is(sql("SELECT count(DISTINCT bucket), count(DISTINCT holder), count(DISTINCT pid), count(*) FROM sweep.buckets WHERE job = '$job' AND state = 'occupied'"),
		'5|5|5|5', "$name: sweep.buckets shows who has which");
	is(sql("SELECT string_agg(trigger || ' ' || c, ', ' ORDER BY trigger) FROM (SELECT trigger, count(*) AS c FROM sweep.runs WHERE job = '$job' GROUP BY 1) AS x"),
		'manual 1, parent 4', "$name: one run was started, four were queued by it");
	# no room for more
	is(ended_run($node, start($job)), 'skipped skipped 0 0', "$name: a sixth share is skipped");
	is(last_run($job), 'skipped skipped no_bucket 0', "$name: and says why");
	open_gate($gate);
	finish($job);
	exactly_once("$name: side by side");
	is(sql("SELECT detail FROM sweep.runs WHERE run_id = $run"),
		'{"max_buckets": 5, "stale_count": 0, "missing_count": 5, "occupied_count": 0, "available_count": 0}', "$name: what the dispatcher found");
	is(buckets_of($job, $store), '0 5', "$name: all buckets are given back");

	# two dispatchers at once
	refill();
	sql("SELECT sweep.start('$job'), sweep.start('$job'), sweep.start('$job')");
	finish($job);
	exactly_once("$name: three dispatchers");
	is(buckets_of($job, $store), '0 5', "$name: three dispatchers: all buckets are given back");
	is(sql("SELECT count(*) FROM sweep.runs WHERE job = '$job' AND status NOT IN ('succeeded', 'skipped')"), 0, "$name: no run failed");
}

sub more_buckets_than_workers
{
	my ($name, $store) = @_;
	my $job = "$name twenty";

	create($job, $store, 'buckets => 20');
	start($job);
	quiet($job);
	is(sql('SELECT count(*) FROM t.artifact'), 0, "$name: shares follow each other until every bucket had its turn");
	cmp_ok(sql("SELECT count(*) FROM sweep.runs WHERE job = '$job' AND status = 'succeeded'"), '>=', 20, "$name: one share per bucket");
	finish($job);
	exactly_once("$name: more buckets than workers");

	# what is left when a limit is reached is done by the next share: it takes the same bucket, though others are free
	$job = "$name limited";
	create($job, $store, 'buckets => 3, max_batches => 3');
	sql("UPDATE t.artifact SET id = CASE WHEN id > 20 THEN id * 3 + 1000000 - 1000000 % 3 ELSE id END");
	start($job);
	quiet($job);
	is(sql('SELECT count(*) FROM t.artifact'), 0, "$name: limited: shares follow each other until nothing is left");
	cmp_ok(sql("SELECT count(*) FROM sweep.runs WHERE job = '$job' AND stop_reason = 'max_batches' AND bucket = 0"), '>=', 9,
		"$name: limited: a share that reached its limit is followed by another one of its bucket");
	exactly_once("$name: limited");
}

sub cancelled_and_failed
{
	my ($name, $store) = @_;
	my $job = "$name stopped";
	my $gate = hold_gate($node, 41);

	create($job, $store, 'buckets => 1');
	my $run = start($job, '{"gate": 41}');
	at_bucket_gate(41, 1, "$name: a share is at work");
	is(sql("SELECT sweep.cancel($run)"), 't', "$name: it is cancelled");
	is(ended_run($node, $run), 'cancelled cancelled 0 0', "$name: and ends");
	soon_buckets($job, $store, '0 1', "$name: its bucket is free at once");
	is(ended_run($node, start($job, '{"gate": "x"}')), 'failed error 0 0', "$name: a share fails");
	soon_buckets($job, $store, '0 1', "$name: its bucket is free at once");
	open_gate($gate);
	finish($job);
	exactly_once("$name: cancelled and failed");
}

# A share that is stopped for longer than the recovery time deletes nothing more and frees nothing.
sub stopped_process
{
	my ($name, $store) = @_;
	my $job = "$name slow";
	my $gate = hold_gate($node, 42);
	my $other_gate = hold_gate($node, 43);

	create($job, $store, q{buckets => 1, bucket_recovery => '10 s', stop_after => '9 s'});
	my $slow = start($job, '{"gate": 42}');
	at_bucket_gate(42, 1, "$name: a share is at work");
	my $pid = pid_of_run($slow);
	ok(kill_process('STOP', $pid), "$name: it stands still");
	my $early = start($job);
	ended_run($node, $early);
	is(sql("SELECT status FROM sweep.runs WHERE run_id = $early AND started_at < (SELECT started_at FROM sweep.runs WHERE run_id = $slow) + interval '10 s'"),
		'skipped', "$name: its bucket is not free before the recovery time");
	until_recovered($slow, '10 s');
	my $next = start($job, '{"gate": 43}');
	at_bucket_gate(43, 1, "$name: another share has the bucket after it");
	open_gate($gate);
	ok(kill_process('CONT', $pid), "$name: the first goes on");
	is(ended_run($node, $slow), 'failed error 0 0', "$name: and fails");
	like(sql("SELECT error FROM sweep.runs WHERE run_id = $slow"), qr/^run $slow of job "$job" has lost bucket 0/, "$name: because it has lost its bucket");
	is(sql("SELECT count(*) FROM t.deleted"), 0, "$name: it deleted nothing");
	is(buckets_of($job, $store), '1 0', "$name: and did not free the bucket of the other");
	open_gate($other_gate);
	finish($job);
	exactly_once("$name: stopped");
	is(buckets_of($job, $store), '0 1', "$name: the bucket is given back by its owner");
}

# Even what is done at the commit itself, by a deferred trigger, cannot be done too late.
sub late_commit
{
	my ($name, $store) = @_;
	my $job = "$name late";
	my $gate = hold_gate($node, 48);

	sql(q{CREATE OR REPLACE FUNCTION t.wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(48, 1); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON t.deleted DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION t.wait_at_commit()});
	create($job, $store, q{buckets => 1, bucket_recovery => '8 s', stop_after => '7 s'});
	my $run = start($job);
	at_bucket_gate(48, 1, "$name: a share is about to commit");
	until_recovered($run, '8 s');
	open_gate($gate);
	is(ended_run($node, $run), 'failed error 0 0', "$name: too late, it fails");
	like(sql("SELECT error FROM sweep.runs WHERE run_id = $run"), qr/^share of job "$job" has lost bucket 0 while it committed/, "$name: and says why");
	is(sql('SELECT count(*) FROM t.deleted'), 0, "$name: it deleted nothing");
	sql('DROP TRIGGER wait_at_commit ON t.deleted');
	finish($job);
	exactly_once("$name: late");
}

# Another number of buckets while shares are at work.
sub rescaled
{
	my ($name, $store) = @_;
	my $job = "$name rescaled";
	my $gate = hold_gate($node, 44);

	create($job, $store, q{buckets => 10, buckets_function => 't.flagged'});
	sql('UPDATE t.flag SET buckets = 8');
	start($job, '{"gate": 44}');
	at_bucket_gate(44, 8, "$name: eight shares are at work");
	sql('UPDATE t.flag SET buckets = 3');
	open_gate($gate);
	quiet($job);
	is(sql("SELECT count(*) FROM sweep.runs WHERE job = '$job' AND stop_reason = 'rescaled' AND bucket >= 3 AND batches = 1"), 5,
		"$name: those beyond have stopped before their next batch");
	is(buckets_of($job, $store), '0 3', "$name: their buckets are gone");
	sql('UPDATE t.flag SET buckets = 10');
	start($job);
	finish($job);
	exactly_once("$name: rescaled");
	is(buckets_of($job, $store), '0 10', "$name: there are more again");

	# switched off in the middle, and on again
	refill();
	$gate = hold_gate($node, 44);
	sql('UPDATE t.flag SET buckets = 4');
	start($job, '{"gate": 44}');
	at_bucket_gate(44, 4, "$name: four shares are at work");
	sql('UPDATE t.flag SET buckets = 0');
	open_gate($gate);
	quiet($job);
	is(sql('SELECT count(*) FROM t.deleted'), 80, "$name: switched off: each ended after its batch");
	is(ended_run($node, start($job)), 'skipped skipped 0 0', "$name: switched off: nothing is done");
	is(sql("SELECT detail FROM sweep.runs WHERE job = '$job' ORDER BY run_id DESC LIMIT 1"), '{"reason": "no_bucket", "max_buckets": 0}',
		"$name: switched off: nothing is touched");
	sql('UPDATE t.flag SET buckets = 1000');
	finish($job);
	exactly_once("$name: switched on again");
}

# The answer to how many buckets there are is never the same: no share is followed for that alone.
sub never_the_same
{
	my ($name, $store) = @_;
	my $job = "$name moody";

	sql('CREATE SEQUENCE IF NOT EXISTS t.mood; GRANT ALL ON t.mood TO PUBLIC;
		CREATE OR REPLACE FUNCTION t.moody(b sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT 4 + (nextval(\'t.mood\') % 2)::int $$');
	create($job, $store, q{buckets => 5, buckets_function => 't.moody'});
	start($job);
	quiet($job);
	cmp_ok(sql("SELECT count(*) FROM sweep.runs WHERE job = '$job'"), '<', 100, "$name: shares do not follow each other for ever");
	sql("SELECT sweep.drop_job('$job')");
}

# Somebody has the state of the job locked while it is dispatched, as the scheduler does now and then.
sub locked_state
{
	my ($name, $store) = @_;
	my $job = "$name locked";

	create($job, $store, 'buckets => 3');
	my $session = session($node);
	$session->query_safe("BEGIN; SELECT FROM sweep.job_state WHERE job = '$job' FOR UPDATE");
	start($job);
	soon($node, "SELECT count(*) = 3 FROM sweep.runs WHERE job = '$job' AND bucket IS NOT NULL", 't', "$name: all shares are queued, though the state of the job is locked");
	$session->query_safe('COMMIT');
	$session->quit;
	quiet($job);
	exactly_once("$name: locked");
}

# A session that waits for its store can be cancelled, and is told so.
sub hanging_store
{
	my ($name, $store) = @_;
	my $job = "$name hanging";
	my $session = session($node);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	create($job, $store, q{buckets => 1});
	for my $way ('cancelled', 'timed out')
	{
		my $gate = hold_gate($node, 46);

		begin_query($session, ($way eq 'cancelled' ? '' : q{SET statement_timeout = '8s'; }) . qq{CALL sweep.run('$job', '{"gate": 46}')});
		at_bucket_gate(46, 1, "$name: a session is at work");
		$redis->suspend;
		open_gate($gate);
		$node->poll_query_until('postgres', "SELECT batches > 0 FROM sweep.running WHERE pid = $pid");
		my $begun = sql('SELECT clock_timestamp()');
		sql("SELECT pg_cancel_backend($pid)") if $way eq 'cancelled';
		my $message = end_query($session);
		cmp_ok(sql("SELECT extract(epoch FROM clock_timestamp() - '$begun')"), '<', 25, "$name: it is $way while Redis hangs, and ends");
		like($message, $way eq 'cancelled' ? qr/ERROR:  run \d+ of job "$job" was cancelled after 1 batch/ : qr/ERROR:  run \d+ of job "$job" failed: canceling statement due to statement timeout/,
			"$name: it is told that it was $way");
		is(sql("SELECT status FROM sweep.runs WHERE job = '$job' ORDER BY run_id DESC LIMIT 1"), $way eq 'cancelled' ? 'cancelled' : 'failed', "$name: as the run is");
		$redis->resume;
		$redis->cli('FLUSHALL');
	}
	$session->quit;
	finish($job);
	exactly_once("$name: hanging");
}

# A run that asks how many buckets there are is cancelled like any other.
sub slow_function
{
	my ($name, $store) = @_;
	my $job = "$name asking";
	my $gate = hold_gate($node, 47);

	sql(q{CREATE OR REPLACE FUNCTION t.asking(b sweep.batch) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(47, 1); RETURN 1; END $$});
	create($job, $store, q{buckets => 1, buckets_function => 't.asking'});
	sql(qq{SELECT sweep.create_job('$job parent', step => 't.nothing', on_start => '{"$job": "0"}')});
	for my $start ($job, "$job parent")
	{
		my $run = start($start);

		at_bucket_gate(47, 1, "$name: a run asks how many buckets there are");
		sql("SELECT sweep.cancel($run)");
		is(ended_run($node, $run), 'cancelled cancelled 0 0', "$name: it is cancelled");
	}
	open_gate($gate);
	is(buckets_of($job, $store), '0 0', "$name: and has touched nothing");
	finish($job);
	exactly_once("$name: asking");
}

# A parent dispatches its divided child.
sub parent
{
	my ($name, $store) = @_;
	my $job = "$name child";

	create($job, $store, q{buckets => 3});
	sql(qq{SELECT sweep.create_job('$name parent', step => 't.nothing', on_start => '{"$job": "0"}')});
	my $run = start("$name parent");
	is(ended_run($node, $run), 'succeeded drained 1 0', "$name: the parent has ended");
	is(sql("SELECT detail FROM sweep.runs WHERE run_id = $run"),
		'{"max_buckets": 3, "stale_count": 0, "missing_count": 3, "occupied_count": 0, "available_count": 0}', "$name: and says what it found");
	quiet($job);
	is(sql("SELECT count(*), min(trigger), max(trigger) FROM sweep.runs WHERE job = '$job' AND status = 'succeeded'"), '3|parent|parent',
		"$name: its child ran as three shares");
	finish($job);
	exactly_once("$name: parent and child");
	# both at once, several times
	refill();
	sql("SELECT sweep.start('$name parent'), sweep.start('$job'), sweep.start('$job')");
	finish($job);
	exactly_once("$name: parent and child dispatch at once");
}

# The server crashes with a share at work: as after kill -9, its bucket comes back after the recovery time.
sub killed
{
	my ($name, $store) = @_;
	my $job = "$name killed";
	my $gate = hold_gate($node, 45);

	create($job, $store, q{buckets => 1, bucket_recovery => '10 min', flush => 'batch'});
	my $run = start($job, '{"gate": 45}');
	at_bucket_gate(45, 1, "$name: a share is at work");
	flush_wal($node);
	crash_of($node, pid_of_run($run));
	forget_session($gate);
	is(ended_run($node, $run), 'lost lost 0 0', "$name: it is killed and lost");
	is(buckets_of($job, $store), '1 0', "$name: its bucket is still occupied");
	is(ended_run($node, start($job)), 'skipped skipped 0 0', "$name: and not free before the recovery time");
	is(last_run($job), 'skipped skipped no_bucket 0', "$name: which the next run says");
	sql(qq{SELECT sweep.alter_job('$job', '{"bucket_recovery": "15 s", "stop_after": "14 s"}')});
	until_recovered($run, '15 s');
	my $next = start($job);
	is(ended_run($node, $next), "succeeded drained 31 $rows", "$name: after it the next run has the bucket");
	is(sql("SELECT detail ->> 'stale_count' FROM sweep.runs WHERE run_id = $next"), 1, "$name: recovered");
	exactly_once("$name: killed");
}

sub suite
{
	my ($name, $store) = @_;

	side_by_side($name, $store);
	more_buckets_than_workers($name, $store);
	cancelled_and_failed($name, $store);
	stopped_process($name, $store);
	late_commit($name, $store);
	rescaled($name, $store);
	never_the_same($name, $store);
	locked_state($name, $store);
	slow_function($name, $store);
	hanging_store($name, $store) if $store eq 'redis';
	parent($name, $store);
	killed($name, $store);
}

suite('table', 'table');
for my $server ('redis-server', 'valkey-server')
{
  SKIP:
	{
		skip 'pg_sweep was built without Redis', 1 unless RedisTest::module_exists();
		skip "there is no $server", 1 unless grep { $_ eq $server } RedisTest::servers();
		$redis = RedisTest->new(server => $server);
		$node->append_conf('postgresql.conf', "pg_sweep.redis_url = '" . $redis->url . "'");
		$node->reload;
		suite($server =~ s/-server//r, 'redis');
		$redis->kill;
	}
}
$node->stop;
done_testing();
