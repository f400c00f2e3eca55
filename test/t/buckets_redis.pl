# Buckets in Redis: GitLab's keys and what its workers do to them, Redis that is
# killed, empty, hanging or misconfigured in every moment, and passwords that
# come from a file and stay in it. What both stores have in common is in bucket_runs.pl.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RedisTest;
use Socket qw(AF_INET SOCK_STREAM INADDR_LOOPBACK sockaddr_in);
use SweepTest;
use Test::More;
use Time::HiRes ();

test_without_module() unless RedisTest::module_exists();
my @servers = RedisTest::servers();
plan skip_all => 'there is neither redis-server nor valkey-server' unless @servers;

my $node = new_cluster('buckets_redis',
	conf => [ 'pg_sweep.max_running_jobs = 12', 'max_worker_processes = 24', 'pg_sweep.history_per_job = 1000',
		"pg_sweep.redis_timeout = '5 s'", "include_if_exists = 'redis.conf'" ]);
my $redis;
my ($available, $occupied) = ('{j}:available_buckets', '{j}:occupied_buckets');

# t.share deletes rows of its share, oldest first, and notes which. Its args:
#   gate   waits in the middle of each batch for the advisory lock (gate, bucket + 1)
# Two at a time in one bucket would be noted in t.overlap.
$node->safe_psql('postgres', q{
	CREATE TABLE t.artifact (id bigint PRIMARY KEY);
	CREATE TABLE t.deleted (id bigint, by text, bucket int);
	CREATE FUNCTION t.share(b sweep.batch) RETURNS sweep.progress
		LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
	AS $$
	DECLARE
		n bigint;
	BEGIN
		IF NOT pg_try_advisory_xact_lock(7777, b.bucket) THEN
			INSERT INTO t.overlap VALUES (b.run_id);
		END IF;
		WITH gone AS (DELETE FROM t.artifact WHERE id IN (SELECT a.id FROM t.artifact a WHERE mod(a.id, b.buckets) = b.bucket
				ORDER BY a.id LIMIT b.size) RETURNING id)
		INSERT INTO t.deleted SELECT gone.id, 'run ' || b.run_id, b.bucket FROM gone;
		GET DIAGNOSTICS n = ROW_COUNT;
		IF b.args ? 'gate' AND n > 0 THEN
			PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::int, b.bucket + 1);
		END IF;
		RETURN ROW(n, NULL, NULL)::sweep.progress;
	END
	$$;
	GRANT ALL ON ALL TABLES IN SCHEMA t TO PUBLIC;
	SELECT sweep.create_job('j', step => 't.share', buckets => 5, bucket_store => 'redis', batch_size => 10);
});

# New settings of Redis, in force in each process that starts after this.
my $configured = 0;

sub configure
{
	my (@lines) = @_;
	my $file = $node->data_dir . '/redis.conf';

	$configured++;
	unlink $file;
	append_to_file($file, "$_\n") for @lines, "test.configured = '$configured'";
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('test.configured') = '$configured'") or die 'no reload';
}

sub psql { return $node->safe_psql('postgres', $_[0]); }

# Rows to work on, none of them touched; empty buckets.
sub prepare
{
	my ($count) = @_;

	psql("TRUNCATE t.artifact, t.deleted, t.overlap; INSERT INTO t.artifact SELECT generate_series(0, $count - 1)");
	$redis->cli('FLUSHALL');
}

# Everything that was queued has ended.
sub at_rest
{
	my ($job) = @_;

	return $node->poll_query_until('postgres',
		q{SELECT count(*) = 0 AND NOT EXISTS (SELECT FROM sweep.running) FROM sweep.runs WHERE finished_at IS NULL});
}

sub all_deleted_once
{
	my ($count, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(psql('SELECT count(*) FROM t.artifact'), 0, "$name: nothing is left");
	is(psql('SELECT count(*), count(DISTINCT id) FROM t.deleted'), "$count|$count", "$name: each was deleted once");
	is(psql('SELECT count(*) FROM t.overlap'), 0, "$name: never two in one bucket");
}

# Runs until no more than so many rows are left: a share takes any bucket, also one that is done.
sub work_off
{
	my ($left) = @_;

	for my $round (1 .. 50)
	{
		outcome(start());
		at_rest();
		return if psql('SELECT count(*) FROM t.artifact') <= ($left // 0);
	}
}

# A run, ended: status, stop reason, and its error.
sub outcome
{
	my ($run) = @_;

	ended_run($node, $run);
	return psql("SELECT concat_ws(' ', status, stop_reason, sqlstate, error) FROM sweep.runs WHERE run_id = $run");
}

sub start { return psql("SELECT sweep.start('" . ($_[0] // 'j') . "'" . ($_[1] ? ", '$_[1]'" : '') . ')'); }

for my $server (@servers)
{
	$redis = RedisTest->new(server => $server);
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
	subtest "$server: keys" => \&test_keys;
	subtest "$server: shared with GitLab" => \&test_gitlab;
	subtest "$server: recovery" => \&test_recovery;
	subtest "$server: killed" => \&test_killed;
	subtest "$server: hanging" => \&test_hanging;
	subtest "$server: refusing" => \&test_refusing;
	subtest "$server: strange" => \&test_strange;
	subtest "$server: password" => \&test_password;
	subtest "$server: password file" => \&test_password_file;
	subtest "$server: URL with a password" => \&test_url_with_password;
	subtest "$server: TLS" => \&test_tls, $server;
	at_rest();
	$redis->kill;
}
note('no valkey-server here') unless grep { $_ eq 'valkey-server' } @servers;
$node->stop;
done_testing();

# ---------------------------------------------------------------- WITH_REDIS=no
sub test_without_module
{
	my $without = new_cluster('buckets_without_redis');

	$without->safe_psql('postgres', q{SELECT sweep.create_job('j', step => 't.work', buckets => 2, bucket_store => 'redis')});
	my $run = $without->safe_psql('postgres', q{SELECT sweep.start('j')});
	is(ended_run($without, $run), 'failed error 0 0', 'a job with its buckets in Redis fails');
	like($without->safe_psql('postgres', "SELECT error FROM sweep.runs WHERE run_id = $run"),
		qr/^bucket store "redis" is not installed\n.*HINT: Build pg_sweep with libhiredis/s, 'and says what is missing');
	like($without->safe_psql('postgres', q{SELECT state FROM sweep.jobs WHERE name = 'j'}), qr/^broken: /, 'its state says so');
	$without->safe_psql('postgres', q{SELECT sweep.alter_job('j', '{"bucket_store": "table"}')});
	like(ended_run($without, $without->safe_psql('postgres', q{SELECT sweep.start('j')})), qr/^succeeded/, 'with the store in a table it runs');
	$without->stop;
	done_testing();
	exit 0;
}

# ---------------------------------------------------------------- the keys are those of GitLab
sub test_keys
{
	my $gate;
	my $run;

	prepare(50);
	$gate = hold_gate($node, 31);
	my $before = int(psql('SELECT extract(epoch FROM now())'));
	$run = five_in_a_batch(31);
	my $after = int(psql('SELECT extract(epoch FROM now())'));
	is($redis->members($available), '', 'no bucket is available');
	is($redis->scored($occupied), '0 1 2 3 4', 'all are occupied');
	is(psql(q{SELECT string_agg(bucket || ' ' || state, ', ' ORDER BY bucket) FROM sweep.buckets WHERE job = 'j'}),
		'0 occupied, 1 occupied, 2 occupied, 3 occupied, 4 occupied', 'sweep.buckets has them');
	for my $bucket (0 .. 4)
	{
		my $score = $redis->cli('ZSCORE', $occupied, $bucket);

		like($score, qr/^\d+$/, "the score of bucket $bucket is a whole number");
		cmp_ok($score, '>=', $before, "  not before it was claimed");
		cmp_ok($score, '<=', $after + 1, "  nor after, but for the rounding");
	}
	open_gate($gate);
	like(outcome($run), qr/^succeeded drained/, 'the dispatcher ends');
	at_rest();
	work_off();
	all_deleted_once(50, 'keys');
	is($redis->members($available), '0 1 2 3 4', 'all buckets are given back');
	is($redis->cli('EXISTS', $occupied), '0', 'none is occupied');
	is($redis->cli('TTL', $available), '-1', 'the key does not expire');
	is($redis->cli('DBSIZE'), '1', 'there is no other key');
	is(psql("SELECT detail - 'x' FROM sweep.runs WHERE run_id = $run"),
		'{"max_buckets": 5, "stale_count": 0, "missing_count": 5, "occupied_count": 0, "available_count": 0}', 'what the dispatcher found');

	# another name, another prefix
	configure("pg_sweep.redis_url = '" . $redis->url . "?db=3'", "pg_sweep.redis_key_prefix = 'resque:gitlab:'");
	psql(q{SELECT sweep.alter_job('j', '{"bucket_key": "bulk_delete_expired_job_artifacts"}')});
	outcome(start());
	at_rest();
	is($redis->cli('-n', 3, 'KEYS', '*'), 'resque:gitlab:{bulk_delete_expired_job_artifacts}:available_buckets', 'bucket_key, prefix and number of the database');
	psql(q{SELECT sweep.alter_job('j', '{"bucket_key": null}')});
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# ---------------------------------------------------------------- a worker as GitLab has it
sub gitlab_claim
{
	my ($now) = @_;
	my @reply = split /\n/, $redis->cli('EVAL', q{
		local before = redis.call('SMEMBERS', KEYS[1])
		local bucket = redis.call('SPOP', KEYS[1])
		if bucket then redis.call('ZADD', KEYS[2], ARGV[1], bucket) end
		return {bucket, #before, #redis.call('SMEMBERS', KEYS[1]), redis.call('ZCARD', KEYS[2])}
	}, 2, $available, $occupied, $now // time);

	return @reply ? $reply[0] : undef;
}

sub gitlab_release
{
	my ($bucket, $max) = @_;

	return $redis->cli('ZREM', $occupied, $bucket) if $bucket >= $max;
	return $redis->commands('MULTI', "ZREM $occupied $bucket", "SADD $available $bucket", 'EXEC');
}

sub gitlab_add_missing
{
	my ($max) = @_;
	my %there = map { $_ => 1 } split(/\n/, $redis->cli('SMEMBERS', $available)), split(/\n/, $redis->cli('ZRANGE', $occupied, 0, -1));
	my @missing = grep { !$there{$_} } 0 .. $max - 1;

	$redis->cli('SADD', $available, @missing) if @missing;
}

# At most so many batches of a bucket.
sub gitlab_work
{
	my ($session, $bucket, $batches) = @_;
	my $alone = $session->query_safe("SELECT pg_try_advisory_lock(7777, $bucket)");

	is($alone, 't', "GitLab is alone in bucket $bucket") unless $alone eq 't';
	while ($batches-- > 0)
	{
		last if $session->query_safe("WITH gone AS (DELETE FROM t.artifact WHERE id IN (SELECT id FROM t.artifact WHERE mod(id, 5) = $bucket LIMIT 10) RETURNING id),
			noted AS (INSERT INTO t.deleted SELECT id, 'gitlab', $bucket FROM gone) SELECT count(*) FROM gone") eq '0';
	}
	$session->query_safe("SELECT pg_advisory_unlock(7777, $bucket)") if $alone eq 't';
}

sub test_gitlab
{
	my $session = session($node);
	my $rounds = 0;
	my @claimed;

	# two buckets are theirs, three are ours
	prepare(500);
	gitlab_add_missing(5);
	@claimed = (gitlab_claim(), gitlab_claim());
	my $run = start();
	like(outcome($run), qr/^succeeded drained/, 'our run takes what GitLab has left');
	like(psql("SELECT detail FROM sweep.runs WHERE run_id = $run"), qr/"missing_count": 0, "occupied_count": 2, "available_count": 3/, 'and counts as GitLab does');
	at_rest();
	work_off(200);
	is($redis->scored($occupied), join(' ', sort @claimed), 'what GitLab has claimed stays its own');
	is(psql('SELECT count(*) FROM t.artifact'), 200, 'and nobody has touched its rows');
	gitlab_work($session, $_, 1000) for @claimed;
	gitlab_release($_, 5) for @claimed;
	is($redis->members($available), '0 1 2 3 4', 'all are given back, by either');
	all_deleted_once(500, 'with GitLab');

	# both at once, taking what they get
	prepare(4000);
	gitlab_add_missing(5);
	while (psql('SELECT count(*) FROM t.artifact') > 0 && $rounds++ < 500)
	{
		my $bucket = gitlab_claim();

		start() if psql(q{SELECT count(*) = 0 FROM sweep.runs WHERE finished_at IS NULL}) eq 't';
		next unless defined $bucket && $bucket ne '';
		gitlab_work($session, $bucket, 3);
		gitlab_release($bucket, 5);
	}
	at_rest();
	all_deleted_once(4000, 'against GitLab');
	is(psql(q{SELECT count(DISTINCT left(by, 3)) FROM t.deleted}), 2, 'both have worked');
	is($redis->members($available), '0 1 2 3 4', 'all buckets are available in the end');
	$session->quit;
}

# ---------------------------------------------------------------- what somebody died with
sub test_recovery
{
	my ($run, $gate, $pid, $claimed);

	# one of theirs is as old as can be, another one is not; 7 is from a time with more of them
	prepare(50);
	my $now = time;
	$redis->cli('SADD', $available, 2, 3);
	$redis->cli('ZADD', $occupied, $now - 600, 0, $now - 570, 1, $now - 700, 7);
	$run = start();
	like(outcome($run), qr/^succeeded drained/, 'a run among remains');
	is(psql("SELECT detail FROM sweep.runs WHERE run_id = $run"),
		'{"max_buckets": 5, "stale_count": 2, "missing_count": 1, "occupied_count": 1, "available_count": 4}', 'it counts them');
	at_rest();
	work_off(10);
	is($redis->members($available), '0 2 3 4', 'what was stale is available, what is beyond is gone');
	is($redis->scored($occupied), '1', 'what is not stale is not touched');
	is(psql('SELECT count(*), count(*) FILTER (WHERE mod(id, 5) = 1) FROM t.artifact'), '10|10', 'nor are its rows');

	# strange members do no harm
	$redis->cli('SADD', $available, 'x', '-1', '1e1', '07', '9999999999');
	outcome(start());
	at_rest();
	is($redis->members($available), '0 2 3 4', 'members that are no buckets are dropped');

	# kill -9; the recovery is long until a run has been seen to find nothing, however slow the machine is
	psql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "10 min"}')});
	prepare(50);
	$gate = hold_gate($node, 32);
	$run = start('j', '{"gate": 32}');
	soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 32}, '5', 'five shares are in a batch');
	$claimed = (sort map { $redis->cli('ZSCORE', $occupied, $_) } 0 .. 4)[0];
	crash_of($node, psql("SELECT pid FROM sweep.runs WHERE run_id = $run"));
	forget_session($gate);
	is($redis->scored($occupied), '0 1 2 3 4', 'killed: the buckets stay occupied');
	my $early = start();
	like(outcome($early), qr/^skipped/, 'a run before their time is skipped');
	is(psql("SELECT detail ->> 'reason' FROM sweep.runs WHERE run_id = $early"), 'no_bucket', 'it finds no bucket');
	psql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "4 s"}')});
	while ($redis->members($available) eq '')
	{
		last unless outcome(start()) =~ /^skipped/;
	}
	cmp_ok(psql("SELECT min(extract(epoch FROM started_at)) FROM sweep.runs WHERE detail ->> 'stale_count' > '0' AND run_id > $run"), '>=', $claimed + 4 - 1,
		'the buckets are not back before their time');
	at_rest();
	work_off();
	all_deleted_once(50, 'killed');

	# stopped beyond the recovery, and continued
	psql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "2 s", "buckets": 1}')});
	prepare(50);
	$gate = hold_gate($node, 33);
	my $gate2 = hold_gate($node, 34);
	$run = start('j', '{"gate": 33}');
	at_gate($node, 33, 'a share is in its batch');
	$pid = psql("SELECT pid FROM sweep.runs WHERE run_id = $run");
	kill_process('STOP', $pid);
	$claimed = $redis->cli('ZSCORE', $occupied, 0);
	open_gate($gate);
	my $second;
	do { $second = start('j', '{"gate": 34}') }
	  until $node->poll_query_until('postgres', "SELECT status <> 'waiting' FROM sweep.runs WHERE run_id = $second")
	  && psql("SELECT status FROM sweep.runs WHERE run_id = $second") eq 'running'
	  && $redis->cli('ZSCORE', $occupied, 0) != $claimed;
	kill_process('CONT', $pid);
	like(outcome($run), qr/^failed error 55000 run $run of job "j" has lost bucket 0/, 'the share that was stopped commits nothing more');
	is(psql("SELECT batches, rows FROM sweep.runs WHERE run_id = $run"), '0|0', 'not one batch');
	at_gate($node, 34, 'the second one is in its batch');
	is($redis->scored($occupied), '0', 'its bucket was not given back by the first one');
	is($redis->members($available), '', 'nor can anybody take it');
	open_gate($gate2);
	# its gate may have taken it beyond its timeout (half of the recovery time), or beyond the recovery time as well
	like(outcome($second), qr/^(succeeded (drained|stop_after)|failed error 55000 .* has lost bucket)/, 'the second one ends');
	at_rest();
	psql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "10 min", "buckets": 5}')});
	$redis->cli('FLUSHALL');
	work_off();
	# the second one was in the bucket while the first one stood still in it
	psql('TRUNCATE t.overlap');
	all_deleted_once(50, 'stopped');
}

# Five shares in a batch, waiting at the gate; the run that dispatched them.
sub five_in_a_batch
{
	my ($gate) = @_;
	my $run = start('j', qq({"gate": $gate}));

	soon($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = $gate", '5', 'five shares are in a batch');
	return $run;
}

# How the shares of a dispatcher ended, and it itself.
sub outcomes
{
	my ($run) = @_;

	at_rest();
	return psql("SELECT DISTINCT concat_ws(' ', status, stop_reason, sqlstate, regexp_replace(split_part(error, E'\\n', 1), '\\d+', 'N', 'g'))
		FROM sweep.runs WHERE run_id >= $run ORDER BY 1");
}

# ---------------------------------------------------------------- Redis dies
sub test_killed
{
	my ($run, $gate);
	my $socket = $redis->{socket};
	my $log = -s $node->logfile;

	# before anything
	prepare(50);
	$redis->kill;
	like(outcome(start()), qr/^failed error 08000 could not connect to Redis at "\Q$socket\E": No such file or directory/, 'down: the run says so');
	is(psql('SELECT count(*) FROM t.artifact'), 50, 'and has deleted nothing');
	$node->psql('postgres', q{CALL sweep.run('j')}, stderr => \my $message);
	like($message, qr/ERROR: .*could not connect to Redis/, 'a session is told the same');

	# connections are closed, as Redis does with idle ones: nobody takes notice
	$redis->start;
	$gate = hold_gate($node, 40);
	$run = five_in_a_batch(40);
	is($redis->cli('CLIENT', 'KILL', 'TYPE', 'normal'), 5, 'five connections are closed');
	open_gate($gate);
	is(outcomes($run), 'succeeded drained', 'the shares go on with others');
	is($redis->members($available), '0 1 2 3 4', 'and give their buckets back');

	# in the middle of a batch; the batch itself needs no Redis
	prepare(50);
	$gate = hold_gate($node, 41);
	$run = five_in_a_batch(41);
	$redis->kill;
	open_gate($gate);
	like(outcomes($run), qr/\A(failed error 08000 (could not connect to|no reply from) Redis at [^\n]*\n?)+\z/, 'killed during a batch: the shares fail');
	is(psql("SELECT count(*) FROM sweep.runs WHERE run_id >= $run AND batches = 1 AND rows = 10"), 5, 'after the batch that they were in');
	like(slurp_file($node->logfile, $log), qr/WARNING:  bucket \d of job "j" could not be given back: could not connect to Redis/,
		'that a bucket is not given back is in the log');
	is(psql('SELECT count(*) FROM t.deleted'), 50, 'what they have deleted is deleted');

	# it comes back empty
	psql('TRUNCATE t.deleted; INSERT INTO t.artifact SELECT generate_series(0, 99)');
	$redis->start;
	$gate = hold_gate($node, 42);
	$run = five_in_a_batch(42);
	$redis->kill;
	$redis->start;
	open_gate($gate);
	is(outcomes($run), 'failed error 55000 run N of job "j" has lost bucket N', 'restarted empty during a batch: the buckets are lost');
	is($redis->cli('DBSIZE'), '0', 'and nothing is given back that nobody has');
	is(psql('SELECT count(*) FROM t.artifact'), 50, 'half of the rows are left');
	work_off();
	all_deleted_once(100, 'restarted empty');
	is($redis->members($available), '0 1 2 3 4', 'all buckets are there again');

	# again and again, at any moment
	prepare(2000);
	for my $round (1 .. 8)
	{
		$run = start();
		$node->poll_query_until('postgres', "SELECT status <> 'waiting' FROM sweep.runs WHERE run_id = $run");
		$redis->kill;
		$redis->start;
		at_rest();
	}
	work_off();
	all_deleted_once(2000, 'killed at any moment');
}

# ---------------------------------------------------------------- Redis does not answer
# Cancels a run and returns after how many seconds it ended.
sub cancelled_after
{
	my ($run) = @_;
	my $start = Time::HiRes::time();

	# ends with an error: the run was cancelled
	$node->psql('postgres', "SELECT sweep.cancel($run); CALL sweep.wait($run)");
	return psql("SELECT extract(epoch FROM finished_at) - $start FROM sweep.runs WHERE run_id = $run");
}

sub test_hanging
{
	my ($run, $gate);

	# at the first word
	prepare(50);
	work_off();
	psql('TRUNCATE t.deleted; INSERT INTO t.artifact SELECT generate_series(0, 49)');
	configure("pg_sweep.redis_url = '" . $redis->url . "'", "pg_sweep.redis_timeout = '30 s'");
	$redis->suspend;
	$run = start();
	soon($node, "SELECT count(*) FROM sweep.running WHERE run_id = $run", '1', 'a run begins while Redis hangs');
	psql('CREATE DATABASE other');
	psql('DROP DATABASE other');
	is(psql("SELECT count(*) FROM sweep.running WHERE run_id = $run"), 1, 'meanwhile databases can be created and dropped');
	cmp_ok(cancelled_after($run), '<', 25, 'it can be cancelled, long before that');
	like(outcome($run), qr/^cancelled cancelled$/, 'and is cancelled');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
	like(outcome(start()), qr/^failed error 08000 could not connect to Redis|^failed error 08000 no reply from Redis at "[^"]+": no answer within pg_sweep.redis_timeout/,
		'without that, it gives up in time');

	# shares that only claim
	psql(q{INSERT INTO sweep.run_live (job, run_as, args, trigger, shares_left, due_at)
		SELECT 'j', 'postgres', '{}', 'parent', 0, now() FROM generate_series(1, 3); SELECT sweep._wake()});
	at_rest();
	is(psql(q{SELECT count(*) FROM (SELECT * FROM sweep.runs ORDER BY run_id DESC LIMIT 3) AS r WHERE r.sqlstate = '08000'}), 3, 'three shares give up');
	$redis->resume;
	is($redis->cli('PING'), 'PONG', 'Redis goes on');
	is($redis->scored($occupied), '', 'and gives no bucket to those who have left');
	is($redis->members($available), '0 1 2 3 4', 'all are there');
	claim_too_late();

	# in the middle of a batch
	$gate = hold_gate($node, 43);
	$run = five_in_a_batch(43);
	$redis->suspend;
	open_gate($gate);
	soon($node, "SELECT batches FROM sweep.running WHERE run_id = $run", '1', 'the batch is committed');
	cmp_ok(cancelled_after($run), '<', 3, 'a share can be cancelled while it looks at its bucket');
	is(psql("SELECT count(*) FROM sweep.running WHERE run_id = $run"), 0, 'sweep.wait returns only when it has given that back, or up');
	at_rest();
	$redis->resume;
	$redis->cli('FLUSHALL');
	work_off();
	all_deleted_once(50, 'hanging');

	# a session, a shutdown
	configure("pg_sweep.redis_url = '" . $redis->url . "'", "pg_sweep.redis_timeout = '30 s'");
	$redis->suspend;
	my $session = session($node);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	begin_query($session, q{CALL sweep.run('j')});
	soon($node, "SELECT count(*) FROM sweep.running WHERE pid = $pid", '1', 'a session runs the job');
	my $start = Time::HiRes::time();
	psql("SELECT pg_cancel_backend($pid)");
	like(end_query($session), qr/cancel/, 'it can be cancelled');
	cmp_ok(Time::HiRes::time() - $start, '<', 25, 'long before Redis is given up');
	$session->quit;
	$run = start();
	soon($node, "SELECT count(*) FROM sweep.running WHERE run_id = $run", '1', 'a run begins');
	$start = Time::HiRes::time();
	$node->restart;
	cmp_ok(Time::HiRes::time() - $start, '<', 25, 'so can the server be stopped');
	$redis->resume;
	at_rest();
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# A claim that Redis reads only when its sender has given up takes no bucket. In between stands one that passes
# on the first command (TIME) and its reply, and holds the second one back until it is told.
sub claim_too_late
{
	my $path = PostgreSQL::Test::Utils::tempdir_short() . '/s';
	my $between = q{
		use strict; use warnings; use Socket;
		my ($path, $redis) = @ARGV;
		$| = 1;
		my ($listener, $server);
		socket($listener, AF_UNIX, SOCK_STREAM, 0) && bind($listener, sockaddr_un($path)) && listen($listener, 5) or die $!;
		print "ready\n";
		accept(my $client, $listener) or die $!;
		socket($server, AF_UNIX, SOCK_STREAM, 0) && connect($server, sockaddr_un($redis)) or die $!;
		sysread($client, my $command, 65536);
		syswrite($server, $command);
		sysread($server, my $reply, 65536);
		syswrite($client, $reply);
		sysread($client, $command, 65536);
		print "held\n";
		<STDIN>;
		syswrite($server, $command);
		sysread($server, $reply, 65536);
		print "reply: $reply\n";
	};
	my ($input, $output) = ('', '');
	my $process = IPC::Run::start([ $^X, '-e', $between, $path, $redis->{socket} ], '<', \$input, '>', \$output, '2>&1', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	$process->pump until $output =~ /ready/;
	configure("pg_sweep.redis_url = 'unix:$path'", "pg_sweep.redis_timeout = '3 s'");
	psql(q{INSERT INTO sweep.run_live (job, run_as, args, trigger, shares_left, due_at) SELECT 'j', 'postgres', '{}', 'parent', 0, now(); SELECT sweep._wake()});
	$process->pump until $output =~ /held/;
	at_rest();
	like(psql('SELECT error FROM sweep.runs ORDER BY run_id DESC LIMIT 1'), qr/no answer within pg_sweep.redis_timeout/, 'a share gives up when its claim is on the way');
	$input = "go on\n";
	$process->pump until $output =~ /reply: (.*)/;
	like($output, qr/reply: -TRYAGAIN /, 'the claim arrives too late');
	$process->kill_kill;
	is($redis->members($available), '0 1 2 3 4', 'and takes no bucket');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# ---------------------------------------------------------------- Redis says no
sub test_refusing
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $listener;
	my @user = qw(ACL SETUSER kim on >geheim ~{j}:* -@all +eval +time +spop +zadd +zscore +zrem +sadd +srem +scard +smembers +zrange +zrangebyscore);

	prepare(50);
	# passes by itself
	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	like(outcome(start()), qr/^failed error 08000 Redis at "[^"]+" refused a command: OOM [^\n]*\n.*HINT: Redis has reached its maxmemory/s, 'OOM');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	$redis->cli('REPLICAOF', '127.0.0.1', $port);
	like(outcome(start()), qr/^failed error 08000 Redis at "[^"]+" refused a command: (READONLY|MASTERDOWN) /, 'a replica');
	$redis->cli('REPLICAOF', 'NO', 'ONE');

	# must be mended
	$redis->cli('SET', $available, 'x');
	like(outcome(start()), qr/^failed error 55000 Redis at "[^"]+" refused a command: WRONGTYPE [^\n]*\n.*HINT: Something else uses the key/s, 'a key of another kind');
	$redis->cli('DEL', $available);
	configure("pg_sweep.redis_url = '" . $redis->url . "?db=99'");
	like(outcome(start()), qr/^failed error 55000 Redis at "[^"]+" refused to select the database: ERR /, 'no such database');
	configure();
	my $error;
	$node->psql('postgres', q{SELECT sweep.start('j')}, stderr => \$error);
	like($error, qr/ERROR:  job "j" is broken: pg_sweep.redis_url is not set/, 'no URL: not started');
	is(psql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'broken: pg_sweep.redis_url is not set', 'no URL: shown as broken');
	$node->psql('postgres', q{CALL sweep.run('j')}, stderr => \$error);
	like($error, qr/ERROR:  run \d+ of job "j" failed: pg_sweep.redis_url is not set\n.*HINT:  Set it/s, 'no URL: a call fails');
	# the history has the runs with another server
	my $scheduled = "scheduled, $redis->{server}";
	psql(qq{SELECT sweep.create_job('$scheduled', step => 't.share', buckets => 5, bucket_store => 'redis', schedule => '* * * * * *')});
	$node->poll_query_until('postgres', qq{SELECT broken = 'pg_sweep.redis_url is not set' FROM sweep.job_state WHERE job = '$scheduled'});
	is(psql(qq{SELECT count(*) FROM sweep.runs WHERE job = '$scheduled'}), 0, 'no URL: a job can be created, and is not started by its schedule');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
	is(psql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'failing', 'with a URL it is no longer broken');
	soon($node, qq{SELECT count(*) > 0 FROM sweep.runs WHERE job = '$scheduled' AND status IN ('succeeded', 'skipped')}, 't', 'and the schedule applies');
	psql(qq{SELECT sweep.drop_job('$scheduled')});
	at_rest();
	configure("pg_sweep.redis_url = 'unix:" . $node->host . '/.s.PGSQL.' . $node->port . "'");
	like(outcome(start()), qr/^failed error 08000 no reply from Redis at /, 'something that is not Redis');
	configure("pg_sweep.redis_url = 'redis://localhost:$port'");
	like(outcome(start()), qr/^failed error 08000 could not connect to Redis at "localhost", port $port: Connection refused/, 'nobody there');
	configure("pg_sweep.redis_url = 'redis://no-such-host.invalid'");
	like(outcome(start()), qr/^failed error 08000 could not connect to Redis at "no-such-host.invalid", port 6379: /, 'a host that does not exist');

	# one who listens and never says anything, with and without TLS
	socket($listener, AF_INET, SOCK_STREAM, 0) && bind($listener, sockaddr_in($port, INADDR_LOOPBACK)) && listen($listener, 5) or die "port $port: $!";
	configure("pg_sweep.redis_url = 'redis://127.0.0.1:$port'", 'pg_sweep.redis_timeout = 300');
	like(outcome(start()), qr/^failed error 08000 (could not connect to|no reply from) Redis at "127.0.0.1", port $port: no answer within/, 'silence');
	configure("pg_sweep.redis_url = 'rediss://127.0.0.1:$port'", 'pg_sweep.redis_timeout = 300');
	like(outcome(start()), qr/^failed error (08000 could not connect to Redis at "127.0.0.1", port $port: no answer within|55000 .* built without TLS)/, 'silence instead of TLS');
	close($listener);

	# the least that a user needs
	$redis->cli(@user);
	configure("pg_sweep.redis_url = '" . $redis->url . "'", "pg_sweep.redis_user = 'kim'",
		"pg_sweep.redis_password_file = '" . $redis->password_file('geheim') . "'");
	work_off();
	all_deleted_once(50, 'with few rights');
	$redis->cli('ACL', 'SETUSER', 'kim', '-eval');
	like(outcome(start()), qr/^failed error 55000 Redis at "[^"]+" refused a command: NOPERM [^\n]*\n.*HINT: Grant the user/s, 'without the right to it');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# ---------------------------------------------------------------- something that speaks like Redis, but not well
# Answers each command with the next of these replies, then closes. In a reply ! is the end of a line, {ff} a byte,
# <x>*9 a repetition; what follows "again" is for each connection after the first: those of the run and of its shares,
# in any order.
sub test_strange
{
	my $directory = PostgreSQL::Test::Utils::tempdir_short();
	my $server = q{
		use strict; use warnings; use Socket;
		my ($path, @reply) = @ARGV;
		socket(my $listener, AF_UNIX, SOCK_STREAM, 0) or die $!;
		bind($listener, sockaddr_un($path)) or die $!;
		listen($listener, 5) or die $!;
		print "ready\n";
		close(STDOUT);
		my @turn = ([]);
		for my $reply (@reply) {
			if ($reply eq 'again') { push @turn, [] } else { push @{ $turn[-1] }, $reply }
		}
		for (my $nth = 0; $nth < @turn || @turn > 1; $nth++) {
			accept(my $client, $listener) or die $!;
			for my $reply (@{ $turn[$nth] || $turn[-1] }) {
				sysread($client, my $command, 65536) or last;
				$reply =~ s/!/\r\n/g;
				$reply =~ s/\{([0-9a-f]{2})\}/chr(hex($1))/ge;
				$reply =~ s/<([^>]*)>\*(\d+)/$1 x $2/ge;
				syswrite($client, $reply, length $reply);
			}
			# who goes with a command unread resets the connection, and what was written is lost
			shutdown($client, 1);
			1 while sysread($client, my $unread, 65536);
		}
	};
	my @time = ('*2!$10!1700000000!$1!0!');
	my $strange = 'what it sent is not a reply, or is too long';
	my @case = (
		[ 'no protocol', ['HTTP/1.1 400 Bad Request!!'], qr/^failed error 08000 no reply from Redis at [^\n]*: $strange/ ],
		[ 'a time that no clock has', ['*2!$19!9223372036854775807!$1!0!'], qr/^failed error 38000 Redis at [^\n]* refused to tell its time: the reply is not one of Redis/ ],
		[ 'a time with something behind', ['*2!$10!170000000x!$1!0!'], qr/^failed error 38000 Redis at [^\n]* refused to tell its time: the reply is not one of Redis/ ],
		[ 'no time', [':5!'], qr/^failed error 38000 Redis at [^\n]* refused to tell its time: the reply is not one of Redis/ ],
		[ 'a time that is none', ['*2!*0!*0!'], qr/^failed error 38000 Redis at [^\n]* refused to tell its time: the reply is not one of Redis/ ],
		[ 'an end instead', [ @time ], qr/^failed error 08000 (no reply from|could not connect to) Redis at / ],
		[ 'half of a reply', [ @time, '*5!:1!' ], qr/^failed error 08000 no reply from Redis at [^\n]*: it closed the connection/ ],
		[ 'another kind', [ @time, '+OK!' ], qr/^failed error 08P01 Redis gave a reply of another kind/ ],
		[ 'too few numbers', [ @time, '*2!:1!:2!' ], qr/^failed error 08P01 Redis gave a reply of another kind/ ],
		[ 'an array without end', [ @time, '*2000000000!' ], qr/^failed error 08000 no reply from Redis at [^\n]*: $strange/ ],
		[ 'arrays without bottom', [ @time, '<*1!>*5000' ], qr/^failed error 08000 no reply from Redis at [^\n]*: $strange/ ],
		[ 'a text without end', [ @time, '$1500000000!<x>*2000000' ], qr/^failed error 08000 no reply from Redis at [^\n]*: $strange/ ],
		[ 'numbers below zero', [ @time, '*5!:-1!:0!:0!:0!:5!' ], qr/^failed error 08P01 Redis gave a reply of another kind/ ],
		[ 'numbers that are too large', [ @time, '*5!:5!:0!:0!:0!:4294967297!' ], qr/^failed error 08P01 Redis gave a reply of another kind/ ],
		[ 'texts instead of numbers', [ @time, '*5!+a!+b!+c!+d!+e!' ], qr/^failed error 08P01 Redis gave a reply of another kind/ ],
		(map { [ "a bucket $_", [ @time, '*5!:5!:0!:0!:0!:5!', 'again', @time, $_ ], qr/^failed error 08P01 Redis gave a reply of another kind/ ] }
			'$2!-1!', '$7!1000000!', '$10!4294967296!', '$3!1{00}2!', '$1!x!', '$2! 1!'),
		# neither bytes of another encoding nor what moves a terminal or the log to another line
		[ 'an error that is no text', [ @time, '-ERR {ff}{fe}{c3} {00}{1b}[31m{7f}{c2}{9b} {c3}{a4}{f0}{9f}!' ],
			qr/^failed error 38000 Redis at [^\n]* refused a command: ERR \?\?\? \?\?\[31m\?\?\? \xc3\xa4\?\?$/ ],
		# hiredis 0.14 takes it for text, 1.x for no reply
		[ 'an error of two lines', [ @time, '-ERR{0a}FATAL:  forged!' ],
			qr/^failed error (38000 Redis at [^\n]* refused a command: ERR\?FATAL:  forged|08000 no reply from Redis at [^\n]*: $strange)/ ],
		[ 'an error that is no text, to the time', ['-{ff}{fe}!'], qr/^failed error 38000 Redis at [^\n]* refused to tell its time: \?\?$/ ],
		[ 'an error without end', [ @time, '-ERR <x>*200000!' ], qr/^failed error 38000 Redis at [^\n]* refused a command: ERR x{100,500}\.\.\.$/ ],
		(map { [ "one that is cut within a character, $_", [ @time, '-ERR ' . 'x' x $_ . '<{c3}{a4}>*2000!' ],
				qr/^failed error 38000 Redis at [^\n]* refused a command: ERR x*(\xc3\xa4){50,250}\.\.\.$/ ] } 0, 1),
		[ 'an error without text', [ @time, '-!' ], qr/^failed error 38000 Redis at [^\n]* refused a command: / ],
	);

	for my $case (@case)
	{
		my ($name, $replies, $expected) = @$case;
		my $path = "$directory/s" . ++$configured;
		my $output = '';
		my $process = IPC::Run::start([ $^X, '-e', $server, $path, @$replies ], '<', '/dev/null', '>', \$output);

		$process->pump until $output =~ /ready/;
		configure("pg_sweep.redis_url = 'unix:$path'");
		like(outcome(start()), $expected, $name);
		# Else a share of this run would ask the next server, and that one answers one connection.
		at_rest();
		$process->kill_kill;
	}
	unlike(slurp_file($node->logfile), qr/^FATAL:  forged/m, 'no reply begins a line of the log');

	# other texts that come from outside
	configure("pg_sweep.redis_url = 'redis://%ff%c3.invalid'");
	like(outcome(start()), qr/^failed error 08000 could not connect to Redis at "\?\?.invalid", port 6379: /, 'a host that is no text');
	configure("pg_sweep.redis_url = '" . $redis->url . "'", "pg_sweep.redis_password_file = '/none/\xff\xc3'");
	like(outcome(start()), qr{^failed error 55000 could not use pg_sweep.redis_password_file "/none/\?\?": No such file or directory\n}, 'a file that is no text');
	is(psql(q{SELECT count(*) FROM sweep.runs WHERE error IS DISTINCT FROM convert_from(convert_to(error, 'UTF8'), 'UTF8')}), 0, 'what is stored is text');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# ---------------------------------------------------------------- passwords
sub test_password
{
	my $log = -s $node->logfile;
	my $socket = $redis->{socket};
	my $url = "pg_sweep.redis_url = 'unix://$socket'";
	my $file;

	prepare(50);
	$redis->cli('CONFIG', 'SET', 'requirepass', 'geh#eim');
	$redis->{password} = 'geh#eim';
	configure($url);
	like(outcome(start()), qr/^failed error 55000 Redis at "\Q$socket\E" refused to tell its time: NOAUTH [^\n]*\n.*HINT: Set pg_sweep.redis_password_file/s, 'no password');
	$file = $redis->password_file("falsch\n");
	configure($url, "pg_sweep.redis_password_file = '$file'");
	like(outcome(start()), qr/^failed error 55000 Redis at "\Q$socket\E" refused user or password: WRONGPASS\n.*HINT: Check pg_sweep.redis_user/s, 'wrong password');
	$redis->password_file;
	work_off();
	all_deleted_once(50, 'with a password');

	# the file is read for each connection
	$redis->cli('CONFIG', 'SET', 'requirepass', 'gehneu');
	$redis->{password} = 'gehneu';
	like(outcome(start()), qr/^failed error 55000 .*WRONGPASS/, 'a password that was changed in Redis');
	$redis->password_file;
	like(outcome(start()), qr/^succeeded drained/, 'and in the file, which needs no reload');
	for my $end ('', "\n", "\r\n")
	{
		$redis->password_file("gehneu$end");
		like(outcome(start()), qr/^succeeded drained/, 'the end of the line is no part of it, nor is it needed');
	}
	$redis->password_file('gehneu ');
	like(outcome(start()), qr/WRONGPASS/, 'a space is part of it');
	at_rest();

	# relative to the data directory, as other files of the server
	append_to_file($node->data_dir . '/redis.password', 'gehneu');
	chmod 0600, $node->data_dir . '/redis.password';
	configure($url, "pg_sweep.redis_password_file = 'redis.password'");
	like(outcome(start()), qr/^succeeded drained/, 'a name without a directory');
	unlink $node->data_dir . '/redis.password';

	configure($url, "pg_sweep.redis_user = 'default'");
	like(outcome(start()), qr/^failed error 55000 pg_sweep.redis_user is set, but pg_sweep.redis_password_file is not\n.*HINT: Set/s, 'a user without a password');
	$redis->password_file;
	configure($url, "pg_sweep.redis_user = 'default'", "pg_sweep.redis_password_file = '$file'");
	like(outcome(start()), qr/^succeeded drained/, 'user and password');
	at_rest();
	unlike(slurp_file($node->logfile, $log), qr/geh(#eim|neu)|falsch/, 'the log has no password');
	is(psql(q{SELECT count(*) FROM sweep.runs r WHERE r::text ~ 'geh(#eim|neu)|falsch'}), 0, 'nor has any run');
	$redis->cli('CONFIG', 'SET', 'requirepass', '');
	$redis->{password} = undef;
	configure($url);
}

# Without a password in Redis, so that a file that is accepted is one that Redis complains about.
sub test_password_file
{
	my $log = -s $node->logfile;
	my $directory = PostgreSQL::Test::Utils::tempdir_short();
	my $file = $redis->password_file("geheim\n");
	my $url = "pg_sweep.redis_url = 'unix://$redis->{socket}'";
	my $one_line = qr/The file must have the password in one line, and nothing else\./;
	my $readable = qr/It must be a file that the user of the server can read\./;
	my $permissions = qr/Its permissions must be 0600 or less, or 0640 or less where it belongs to root\./;
	my @case = (
		[ "$directory/none", 'No such file or directory', $readable ],
		[ $directory, 'it is not a regular file', $readable ],
		[ "$directory/pipe", 'it is not a regular file', $readable ],
		[ "$directory/locked", 'Permission denied', $readable ],
		[ "$directory/group", 'others have access to it', $permissions ],
		[ "$directory/write", 'others have access to it', $permissions ],
		[ "$directory/all", 'others have access to it', $permissions ],
		[ "$directory/link", 'others have access to it', $permissions ],
		[ '/etc/passwd', 'others have access to it', $permissions ],
		[ "$directory/empty", 'it is empty', $one_line ],
		[ "$directory/newline", 'it is empty', $one_line ],
		[ "$directory/lines", 'it has more than one line', $one_line ],
		[ "$directory/zero", 'it has a zero byte', $one_line ],
		[ "$directory/long", 'it is longer than 4096 bytes', $one_line ],
		[ "$directory/endless", 'it is longer than 4096 bytes', $one_line ],
	);
	my %text = (
		locked => [ 'geheim', 0000 ], group => [ 'geheim', 0640 ], write => [ 'geheim', 0620 ], all => [ 'geheim', 0604 ],
		empty => [ '', 0600 ], newline => [ "\n", 0600 ], lines => [ "geheim\nhost: x\n", 0600 ], zero => [ "geh\0eim", 0600 ],
		long => [ 'geheim' . 'x' x 4091, 0600 ], endless => [ 'geheim' x 1000000, 0600 ], longest => [ 'geheim' . 'x' x 4090, 0400 ]);

	for my $name (sort keys %text)
	{
		append_to_file("$directory/$name", $text{$name}[0]);
		chmod $text{$name}[1], "$directory/$name" or die "$directory/$name: $!";
	}
	symlink("$directory/all", "$directory/link") or die $!;
	PostgreSQL::Test::Utils::system_or_bail('mkfifo', '-m', '0600', "$directory/pipe");
	prepare(0);
	for my $case (@case)
	{
		my ($path, $reason, $hint) = @$case;

		configure($url, "pg_sweep.redis_password_file = '$path'");
		like(outcome(start()), qr/^failed error 55000 could not use pg_sweep.redis_password_file "\Q$path\E": $reason\n(.*\n)*HINT: $hint/, "$path: $reason");
	}
	for my $accepted ($file, "$directory/longest")
	{
		configure($url, "pg_sweep.redis_password_file = '$accepted'");
		like(outcome(start()), qr/^failed error 55000 Redis at [^\n]* refused user or password: ERR\n.*HINT: Redis has no password/s, "$accepted: read, and sent to Redis");
	}
	at_rest();
	unlike(slurp_file($node->logfile, $log), qr/geheim|geh\\?.eim/, 'the log has nothing of what is in a file');
	is(psql(q{SELECT count(*) FROM sweep.runs r WHERE r::text ~ 'geheim'}), 0, 'nor has any run');
	configure($url);
}

# A URL with a password is refused without being repeated, wherever it comes from.
sub test_url_with_password
{
	my $socket = $redis->{socket};
	my $good = "unix://$socket";
	my $refused = qr/invalid value for parameter "pg_sweep.redis_url"\n[^\n]*DETAIL:  It must have neither a user nor a password\.\n[^\n]*HINT:  [^\n]*pg_sweep.redis_password_file/;
	my @bad = ("unix://:geheim\@$socket", 'redis://u:geheim@h:1/2', 'redis://geheim@h', 'redis://u@geheim', 'rediss:/u:geheim@h', ':geheim@h');
	my ($offset, $log, $error, $output);

	configure("pg_sweep.redis_url = '$good'");
	is(psql('SHOW pg_sweep.redis_url'), $good, 'without a password it is shown as it is');
	is(psql(q{SELECT setting FROM pg_settings WHERE name = 'pg_sweep.redis_url'}), $good, 'also in pg_settings');
	is(psql(q{SET ROLE jobber; SELECT count(*) FROM pg_settings WHERE name ~ '^pg_sweep.redis_(url|user|password|tls)'}), 0, 'not to everybody');
	is(psql(q{SELECT count(*) FROM pg_settings WHERE name ~ '^pg_sweep.redis_(url|user|password|tls)'}), 6, 'all of them to a superuser');
	for my $name (qw(url user password_file tls_ca_file tls_cert_file tls_key_file))
	{
		$node->psql('postgres', "SET ROLE jobber; SHOW pg_sweep.redis_$name", stderr => \$error);
		like($error, qr/ERROR:  must be superuser|permission denied/, "redis_$name is not shown to others");
		$node->psql('postgres', "SET pg_sweep.redis_$name = 'x'", stderr => \$error);
		like($error, qr/cannot be changed now/, "redis_$name belongs into the configuration");
	}

	# a reload: the value before stays
	for my $bad (@bad)
	{
		$offset = -s $node->logfile;
		configure("pg_sweep.redis_url = '$bad'");
		$log = slurp_file($node->logfile, $offset);
		like($log, $refused, 'reload: refused, and the log says what to do');
		unlike($log, qr/geheim/, 'and not what it was');
		is(psql('SHOW pg_sweep.redis_url'), $good, 'what was set stays');
		is(psql(q{SELECT count(*) FROM pg_settings s WHERE s::text ~ 'geheim'}), 0, 'pg_settings does not have it');
		is(psql(q{SELECT applied, error FROM pg_file_settings WHERE name = 'pg_sweep.redis_url'}), 'f|setting could not be applied',
			'pg_file_settings says that it is not applied');
		$node->psql('postgres', 'SET ROLE jobber; SELECT * FROM pg_file_settings', stderr => \$error, stdout => \$output);
		like($error, qr/permission denied/, 'and is not for everybody');
	}
	$offset = -s $node->logfile;
	configure("pg_sweep.redis_url = 'redis://h:x'", "pg_sweep.redis_key_prefix = 'a{'");
	$log = slurp_file($node->logfile, $offset);
	like($log, qr/invalid value for parameter "pg_sweep.redis_url"\n[^\n]*DETAIL:  The port must be a number between 1 and 65535\./, 'another mistake');
	like($log, qr/invalid value for parameter "pg_sweep.redis_key_prefix": "a\{"\n[^\n]*DETAIL:  It must have at most 200 bytes and no braces/,
		'a prefix with a brace is refused');
	$offset = -s $node->logfile;
	configure("pg_sweep.redis_url = '$good'", "pg_sweep.redis_password_file = '/" . 'x' x 1023 . "'");
	like(slurp_file($node->logfile, $offset), qr/DETAIL:  It must have at most 1023 bytes\./, 'a name that is too long is refused');

	# ALTER SYSTEM; what was typed is in the STATEMENT of the log, so only our words are looked at
	for my $bad (@bad)
	{
		$offset = -s $node->logfile;
		$node->psql('postgres', "ALTER SYSTEM SET pg_sweep.redis_url = '$bad'", stderr => \$error);
		like($error, qr/ERROR:  $refused/, 'ALTER SYSTEM: refused');
		unlike($error, qr/geheim/, 'the error does not repeat it');
		unlike(slurp_file($node->logfile, $offset), qr/(ERROR|DETAIL|HINT|CONTEXT):[^\n]*geheim/, 'nor does the log');
		$node->psql('postgres', "ALTER DATABASE postgres SET pg_sweep.redis_url = '$bad'", stderr => \$error);
		like($error, qr/cannot be changed now/, 'it cannot be set for a database');
	}
	unlike(slurp_file($node->data_dir . '/postgresql.auto.conf'), qr/geheim/, 'nor is it in postgresql.auto.conf');

	# the log is as it is without pg_sweep: nobody can take anything out of it
	configure("pg_sweep.redis_url = '$good'", 'log_statement = all');
	$offset = -s $node->logfile;
	psql(q{/* redis_url */ SELECT 'as typed@here'});
	$node->psql('postgres', q{/* redis_url */ SELECT 1/0, 'failed@here'});
	$log = slurp_file($node->logfile, $offset);
	like($log, qr{statement: /\* redis_url \*/ SELECT 'as typed\@here'}, 'a statement that names the setting is logged as it is');
	like($log, qr{STATEMENT:  /\* redis_url \*/ SELECT 1/0, 'failed\@here'}, 'also when it fails');

	# a start of the server
	configure("pg_sweep.redis_url = '$bad[0]'");
	$offset = -s $node->logfile;
	$node->restart;
	$log = slurp_file($node->logfile, $offset);
	like($log, $refused, 'start: refused, and the log says what to do');
	unlike($log, qr/geheim/, 'and not what it was');
	is(psql('SHOW pg_sweep.redis_url'), '', 'it is not set');
	is(psql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'broken: pg_sweep.redis_url is not set', 'and the job says so');
	configure("pg_sweep.redis_url = '$good'");
	is(psql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'failing', 'a reload is enough afterwards');
}

# ---------------------------------------------------------------- TLS
sub test_tls
{
	my ($server) = @_;
	my $plain = $redis;
	my ($message, $directory, $port, $password, @tls);

	$redis = eval { RedisTest->new(server => $server, tls => 1, password => 'geheim') };
	plan skip_all => "$server has no TLS" unless $redis;
	($directory, $port) = @$redis{ 'directory', 'port' };
	$password = "pg_sweep.redis_password_file = '" . $redis->password_file . "'";
	@tls = ("pg_sweep.redis_url = 'rediss://localhost:$port'", $password);
	prepare(50);
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/ca.crt'");
	my $run = start();
	if (outcome($run) =~ /built without TLS/)
	{
		$redis->kill;
		$redis = $plain;
		plan skip_all => 'pg_sweep was built without TLS';
	}
	like(outcome($run), qr/^succeeded drained/, 'TLS');
	work_off();
	all_deleted_once(50, 'over TLS');
	prepare(500);
	my $gate = hold_gate($node, 44);
	$run = five_in_a_batch(44);
	is($redis->cli('CLIENT', 'KILL', 'TYPE', 'normal'), 5, 'five connections are closed');
	open_gate($gate);
	is(outcomes($run), 'succeeded drained', 'the shares go on with others');
	prepare(500);
	$redis->suspend;
	$run = start();
	soon($node, "SELECT count(*) FROM sweep.running WHERE run_id = $run", '1', 'a run begins while Redis hangs');
	cmp_ok(cancelled_after($run), '<', 3, 'it can be cancelled');
	$redis->resume;
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/other.crt'");
	like(outcome(start()), qr/^failed error 55000 could not connect to Redis at "localhost", port $port: its certificate is not accepted: /, 'a certificate by somebody else');
	configure(@tls);
	like(outcome(start()), qr/: its certificate is not accepted: /, 'one that nobody vouches for');
	configure("pg_sweep.redis_url = 'rediss://127.0.0.1:$port'", $password, "pg_sweep.redis_tls_ca_file = '$directory/ca.crt'");
	like(outcome(start()), qr/: its certificate is not accepted: .*mismatch/, 'one for another host');
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/none.crt'");
	like(outcome(start()), qr/^failed error 55000 could not use pg_sweep.redis_tls_ca_file "\Q$directory\E\/none.crt": No such file or directory\n/, 'no such file');
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/names'");
	like(outcome(start()), qr/^failed error 55000 .*: the certificates of pg_sweep.redis_tls_ca_file could not be loaded/, 'a file without certificates');
	configure("pg_sweep.redis_url = 'redis://localhost:$port'", $password);
	like(outcome(start()), qr/^failed error 08000 no reply from Redis/, 'without TLS, where it is spoken');
	test_client_certificate($directory, @tls, "pg_sweep.redis_tls_ca_file = '$directory/ca.crt'");
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/ca.crt'");
	work_off();
	all_deleted_once(500, 'over TLS');
	$redis->kill;
	$redis = $plain;
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# A Redis that wants to see a certificate.
sub test_client_certificate
{
	my ($directory, @tls) = @_;
	my @own = ("pg_sweep.redis_tls_cert_file = '$directory/server.crt'", "pg_sweep.redis_tls_key_file = '$directory/server.key'");

	chmod 0600, "$directory/server.key", "$directory/other.key" or die $!;
	$redis->cli('CONFIG', 'SET', 'tls-auth-clients', 'yes');
	configure(@tls);
	like(outcome(start()), qr/^failed error 08000 (no reply from|could not connect to) Redis at /, 'no certificate');
	configure(@tls, @own);
	like(outcome(start()), qr/^succeeded drained/, 'a certificate');
	at_rest();
	configure(@tls, $own[0]);
	like(outcome(start()), qr/^failed error 55000 only one of pg_sweep.redis_tls_cert_file and pg_sweep.redis_tls_key_file is set\n/, 'no key');
	configure(@tls, $own[0], "pg_sweep.redis_tls_key_file = '$directory/other.key'");
	like(outcome(start()), qr/^failed error 55000 .*: the key of pg_sweep.redis_tls_key_file could not be loaded/, 'the key of another one');
	RedisTest::openssl('pkey', '-in', "$directory/server.key", '-aes256', '-passout', 'pass:geheim', '-out', "$directory/locked.key");
	configure(@tls, $own[0], "pg_sweep.redis_tls_key_file = '$directory/locked.key'");
	like(outcome(start()), qr/^failed error 55000 .*: the key of pg_sweep.redis_tls_key_file could not be loaded, has a passphrase/, 'a key with a passphrase');
	chmod 0644, "$directory/server.key" or die $!;
	configure(@tls, @own);
	like(outcome(start()), qr/^failed error 55000 could not use pg_sweep.redis_tls_key_file "\Q$directory\E\/server.key": others have access to it\n/, 'a key that others can read');
	chmod 0600, "$directory/server.key" or die $!;
	configure(@tls, "pg_sweep.redis_tls_cert_file = '$directory/names'", $own[1]);
	like(outcome(start()), qr/^failed error 55000 .*: the certificate of pg_sweep.redis_tls_cert_file could not be loaded/, 'a file without a certificate');
	$redis->cli('CONFIG', 'SET', 'tls-auth-clients', 'no');
}
