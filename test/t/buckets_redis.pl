# Buckets in Redis: GitLab's keys and what its workers do to them, and Redis that is
# killed, empty or hanging in every moment. What both stores have in common is in bucket_runs.pl, connecting
# and logging in are in redis_connection.pl.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RedisTest qw(:work);
use SweepTest;
use Test::More;
use Time::HiRes ();

test_without_module() unless RedisTest::module_exists();
redis_cluster('buckets_redis');
my ($available, $occupied) = ('{j}:available_buckets', '{j}:occupied_buckets');

for_each_server(
	sub {
		my ($server) = @_;

		subtest "$server: keys" => \&test_keys;
		subtest "$server: shared with GitLab" => \&test_gitlab;
		subtest "$server: recovery" => \&test_recovery;
		subtest "$server: killed" => \&test_killed;
		subtest "$server: hanging" => \&test_hanging;
	});
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
		qr/^bucket store "redis" is not installed\n.*HINT: Install that module/s, 'and says what is missing');
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
	my $before = int(sql('SELECT extract(epoch FROM now())'));
	$run = five_in_a_batch(31);
	my $after = int(sql('SELECT extract(epoch FROM now())'));
	is($redis->members($available), '', 'no bucket is available');
	is($redis->scored($occupied), '0 1 2 3 4', 'all are occupied');
	is(sql(q{SELECT string_agg(bucket || ' ' || state, ', ' ORDER BY bucket) FROM sweep.buckets WHERE job = 'j'}),
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
	is(sql("SELECT detail - 'x' FROM sweep.runs WHERE run_id = $run"),
		'{"max_buckets": 5, "stale_count": 0, "missing_count": 5, "occupied_count": 0, "available_count": 0}', 'what the dispatcher found');

	# another name, another prefix
	configure("pg_sweep.redis_url = '" . $redis->url . "?db=3'", "pg_sweep.redis_key_prefix = 'resque:gitlab:'");
	sql(q{SELECT sweep.alter_job('j', '{"bucket_key": "bulk_delete_expired_job_artifacts"}')});
	outcome(start('j'));
	at_rest();
	is($redis->cli('-n', 3, 'KEYS', '*'), 'resque:gitlab:{bulk_delete_expired_job_artifacts}:available_buckets', 'bucket_key, prefix and number of the database');
	configure("pg_sweep.redis_url = '" . $redis->url . "?db=4'", "pg_sweep.redis_key_prefix = '" . 'p' x 200 . "'");
	sql(q{SELECT sweep.alter_job('j', jsonb_build_object('bucket_key', repeat(U&'\\00e4', 200)))});
	like(outcome(start('j')), qr/^succeeded drained/, 'prefix and bucket_key as long as they may be');
	at_rest();
	is($redis->cli('-n', 4, 'EXISTS', 'p' x 200 . '{' . "\xc3\xa4" x 200 . '}:available_buckets'), 1, 'nothing of them is cut');
	sql(q{SELECT sweep.alter_job('j', '{"bucket_key": null}')});
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
	my $run = start('j');
	like(outcome($run), qr/^succeeded drained/, 'our run takes what GitLab has left');
	like(sql("SELECT detail FROM sweep.runs WHERE run_id = $run"), qr/"missing_count": 0, "occupied_count": 2, "available_count": 3/, 'and counts as GitLab does');
	at_rest();
	work_off(200);
	is($redis->scored($occupied), join(' ', sort @claimed), 'what GitLab has claimed stays its own');
	is(sql('SELECT count(*) FROM t.artifact'), 200, 'and nobody has touched its rows');
	gitlab_work($session, $_, 1000) for @claimed;
	gitlab_release($_, 5) for @claimed;
	is($redis->members($available), '0 1 2 3 4', 'all are given back, by either');
	all_deleted_once(500, 'with GitLab');

	# both at once, taking what they get
	prepare(4000);
	gitlab_add_missing(5);
	while (sql('SELECT count(*) FROM t.artifact') > 0 && $rounds++ < 500)
	{
		my $bucket = gitlab_claim();

		start('j') if sql(q{SELECT count(*) = 0 FROM sweep.runs WHERE finished_at IS NULL}) eq 't';
		next unless defined $bucket && $bucket ne '';
		gitlab_work($session, $bucket, 3);
		gitlab_release($bucket, 5);
	}
	at_rest();
	all_deleted_once(4000, 'against GitLab');
	is(sql(q{SELECT count(DISTINCT left(by, 3)) FROM t.deleted}), 2, 'both have worked');
	is($redis->members($available), '0 1 2 3 4', 'all buckets are available in the end');
	$session->quit;
}

# ---------------------------------------------------------------- recovery
sub test_recovery
{
	my ($run, $gate, $pid, $claimed);

	# one of theirs is as old as can be, another one is not; 7 is from a time with more of them
	prepare(50);
	my $now = time;
	$redis->cli('SADD', $available, 2, 3);
	$redis->cli('ZADD', $occupied, $now - 600, 0, $now - 300, 1, $now - 700, 7);
	$run = start('j');
	like(outcome($run), qr/^succeeded drained/, 'a run among remains');
	is(sql("SELECT detail FROM sweep.runs WHERE run_id = $run"),
		'{"max_buckets": 5, "stale_count": 2, "missing_count": 1, "occupied_count": 1, "available_count": 4}', 'it counts them');
	at_rest();
	work_off(10);
	is($redis->members($available), '0 2 3 4', 'what was stale is available, what is beyond is gone');
	is($redis->scored($occupied), '1', 'what is not stale is not touched');
	is(sql('SELECT count(*), count(*) FILTER (WHERE mod(id, 5) = 1) FROM t.artifact'), '10|10', 'nor are its rows');

	# strange members do no harm
	$redis->cli('SADD', $available, 'x', '-1', '1e1', '07', '9999999999');
	outcome(start('j'));
	at_rest();
	is($redis->members($available), '0 2 3 4', 'members that are no buckets are dropped');

	# kill -9; the recovery is long until a run has been seen to find nothing, however slow the machine is
	sql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "10 min"}')});
	prepare(50);
	$gate = hold_gate($node, 32);
	$run = start('j', '{"gate": 32}');
	soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 32}, '5', 'five shares are in a batch');
	$claimed = (sort map { $redis->cli('ZSCORE', $occupied, $_) } 0 .. 4)[0];
	flush_wal($node);
	crash_of($node, sql("SELECT pid FROM sweep.runs WHERE run_id = $run"));
	forget_session($gate);
	is($redis->scored($occupied), '0 1 2 3 4', 'killed: the buckets stay occupied');
	my $early = start('j');
	like(outcome($early), qr/^skipped/, 'a run before their time is skipped');
	is(sql("SELECT detail ->> 'reason' FROM sweep.runs WHERE run_id = $early"), 'no_bucket', 'it finds no bucket');
	sql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "4 s"}')});
	while ($redis->members($available) eq '')
	{
		last unless outcome(start('j')) =~ /^skipped/;
	}
	cmp_ok(sql("SELECT min(extract(epoch FROM started_at)) FROM sweep.runs WHERE detail ->> 'stale_count' > '0' AND run_id > $run"), '>=', $claimed + 4 - 1,
		'the buckets are not back before their time');
	at_rest();
	work_off();
	all_deleted_once(50, 'killed');

	# stopped beyond the recovery, and continued
	sql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "2 s", "buckets": 1}')});
	prepare(50);
	$gate = hold_gate($node, 33);
	my $gate2 = hold_gate($node, 34);
	$run = start('j', '{"gate": 33}');
	at_gate($node, 33, 'a share is in its batch');
	$pid = sql("SELECT pid FROM sweep.runs WHERE run_id = $run");
	kill_process('STOP', $pid);
	$claimed = $redis->cli('ZSCORE', $occupied, 0);
	open_gate($gate);
	my $second;
	do { $second = start('j', '{"gate": 34}') }
	  until $node->poll_query_until('postgres', "SELECT status <> 'waiting' FROM sweep.runs WHERE run_id = $second")
	  && sql("SELECT status FROM sweep.runs WHERE run_id = $second") eq 'running'
	  && $redis->cli('ZSCORE', $occupied, 0) != $claimed;
	kill_process('CONT', $pid);
	like(outcome($run), qr/^failed error 55000 run $run of job "j" has lost bucket 0/, 'the share that was stopped commits nothing more');
	is(sql("SELECT batches, rows FROM sweep.runs WHERE run_id = $run"), '0|0', 'not one batch');
	at_gate($node, 34, 'the second one is in its batch');
	is($redis->scored($occupied), '0', 'its bucket was not given back by the first one');
	is($redis->members($available), '', 'nor can anybody take it');
	open_gate($gate2);
	# its gate may have taken it beyond its timeout (half of the recovery time), or beyond the recovery time as well
	like(outcome($second), qr/^(succeeded (drained|stop_after)|failed error 55000 .* has lost bucket)/, 'the second one ends');
	at_rest();
	sql(q{SELECT sweep.alter_job('j', '{"bucket_recovery": "10 min", "buckets": 5}')});
	$redis->cli('FLUSHALL');
	work_off();
	# the second one was in the bucket while the first one stood still in it
	sql('TRUNCATE t.overlap');
	all_deleted_once(50, 'stopped');
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
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis at "\Q$socket\E": No such file or directory/, 'down: the run says so');
	is(sql('SELECT count(*) FROM t.artifact'), 50, 'and has deleted nothing');
	$node->psql('postgres', q{CALL sweep.run('j')}, stderr => \my $message);
	like($message, qr/ERROR: .*could not connect to Redis/, 'a session is told the same');

	# connections are closed, as Redis does with idle ones
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
	is(sql("SELECT count(*) FROM sweep.runs WHERE run_id >= $run AND batches = 1 AND rows = 10"), 5, 'after the batch that they were in');
	like(slurp_file($node->logfile, $log), qr/WARNING:  bucket \d of job "j" could not be given back: could not connect to Redis/,
		'that a bucket is not given back is in the log');
	is(sql('SELECT count(*) FROM t.deleted'), 50, 'what they have deleted is deleted');

	# it comes back empty
	sql('TRUNCATE t.deleted; INSERT INTO t.artifact SELECT generate_series(0, 99)');
	$redis->start;
	$gate = hold_gate($node, 42);
	$run = five_in_a_batch(42);
	$redis->kill;
	$redis->start;
	open_gate($gate);
	is(outcomes($run), 'failed error 55000 run N of job "j" has lost bucket N', 'restarted empty during a batch: the buckets are lost');
	is($redis->cli('DBSIZE'), '0', 'and nothing is given back that nobody has');
	is(sql('SELECT count(*) FROM t.artifact'), 50, 'half of the rows are left');
	work_off();
	all_deleted_once(100, 'restarted empty');
	is($redis->members($available), '0 1 2 3 4', 'all buckets are there again');

	# again and again, at any moment
	prepare(2000);
	for my $round (1 .. 8)
	{
		$run = start('j');
		$node->poll_query_until('postgres', "SELECT status <> 'waiting' FROM sweep.runs WHERE run_id = $run");
		$redis->kill;
		$redis->start;
		at_rest();
	}
	work_off();
	all_deleted_once(2000, 'killed at any moment');
}

# ---------------------------------------------------------------- Redis does not answer
sub test_hanging
{
	my ($run, $gate);

	# at the first word
	prepare(50);
	work_off();
	sql('TRUNCATE t.deleted; INSERT INTO t.artifact SELECT generate_series(0, 49)');
	configure("pg_sweep.redis_url = '" . $redis->url . "'", "pg_sweep.redis_timeout = '30 s'");
	$redis->suspend;
	$run = start('j');
	soon($node, "SELECT count(*) FROM sweep.running WHERE run_id = $run", '1', 'a run begins while Redis hangs');
	sql('CREATE DATABASE other');
	sql('DROP DATABASE other');
	is(sql("SELECT count(*) FROM sweep.running WHERE run_id = $run"), 1, 'meanwhile databases can be created and dropped');
	cmp_ok(cancelled_after($run), '<', 25, 'it can be cancelled, long before that');
	like(outcome($run), qr/^cancelled cancelled$/, 'and is cancelled');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis|^failed error 08000 no reply from Redis at "[^"]+": no answer within pg_sweep.redis_timeout/,
		'without that, it gives up in time');

	# shares that only claim
	sql(q{INSERT INTO sweep.run_live (job, run_as, args, trigger, shares_left, due_at)
		SELECT 'j', 'postgres', '{}', 'parent', 0, now() FROM generate_series(1, 3); SELECT sweep._wake()});
	at_rest();
	is(sql(q{SELECT count(*) FROM (SELECT * FROM sweep.runs ORDER BY run_id DESC LIMIT 3) AS r WHERE r.sqlstate = '08000'}), 3, 'three shares give up');
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
	is(sql("SELECT count(*) FROM sweep.running WHERE run_id = $run"), 0, 'sweep.wait returns only when it has given that back, or up');
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
	sql("SELECT pg_cancel_backend($pid)");
	like(end_query($session), qr/cancel/, 'it can be cancelled');
	cmp_ok(Time::HiRes::time() - $start, '<', 25, 'long before Redis is given up');
	test_stopped_in_batch($session, $pid);
	$session->quit;
	$redis->suspend;
	$run = start('j');
	soon($node, "SELECT count(*) FROM sweep.running WHERE run_id = $run", '1', 'a run begins');
	$start = Time::HiRes::time();
	$node->restart;
	cmp_ok(Time::HiRes::time() - $start, '<', 25, 'so can the server be stopped');
	$redis->resume;
	at_rest();
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# A session that is stopped in the middle of a batch does not wait for long until its bucket is given back.
sub test_stopped_in_batch
{
	my ($session, $pid) = @_;

	$redis->resume;
	for my $how ('cancelled', 'statement timeout')
	{
		my $gate = hold_gate($node, 46);

		$redis->cli('FLUSHALL');
		sql('INSERT INTO t.artifact SELECT generate_series(0, 49) ON CONFLICT DO NOTHING');
		$session->query_safe("SET statement_timeout = '8 s'") if $how eq 'statement timeout';
		begin_query($session, q{CALL sweep.run('j', '{"gate": 46}')});
		soon($node, "SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype = 'advisory' AND NOT granted AND classid = 46", '1', "$how: a session is in a batch");
		$redis->suspend;
		my $start = Time::HiRes::time();
		sql("SELECT pg_cancel_backend($pid)") if $how eq 'cancelled';
		like(end_query($session), $how eq 'cancelled' ? qr/could not be given back: the run was stopped.* was cancelled after 0 batches/s : qr/statement timeout/,
			"$how: its run ends");
		cmp_ok(Time::HiRes::time() - $start, '<', 25, 'long before Redis is given up');
		$redis->resume;
		open_gate($gate);
		at_rest();
	}
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
	sql(q{INSERT INTO sweep.run_live (job, run_as, args, trigger, shares_left, due_at) SELECT 'j', 'postgres', '{}', 'parent', 0, now(); SELECT sweep._wake()});
	$process->pump until $output =~ /held/;
	at_rest();
	like(sql('SELECT error FROM sweep.runs ORDER BY run_id DESC LIMIT 1'), qr/no answer within pg_sweep.redis_timeout/, 'a share gives up when its claim is on the way');
	$input = "go on\n";
	$process->pump until $output =~ /reply: (.*)/;
	like($output, qr/reply: -TRYAGAIN /, 'the claim arrives too late');
	$process->kill_kill;
	is($redis->members($available), '0 1 2 3 4', 'and takes no bucket');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

