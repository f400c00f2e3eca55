# Connecting to Redis and logging in: several addresses, servers that hang, break off, refuse or speak nonsense,
# TLS, and passwords that come from a file and stay in it. Buckets are in buckets_redis.pl.
use strict;
use warnings;

use IO::Handle;
use IO::Select;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RedisTest qw(:work);
use Socket qw(AF_INET AF_UNIX SOCK_STREAM SOL_SOCKET SO_LINGER inet_aton sockaddr_in sockaddr_un);
use SweepTest;
use Test::More;
use Time::HiRes ();

# the server is started again below, so for all of the test
my $shim = PostgreSQL::Test::Utils::tempdir . '/address_shim.so';
system('cc', '-shared', '-fPIC', '-O1', '-o', $shim, __FILE__ =~ s{[^/]*$}{address_shim.c}r, '-ldl') == 0 or die 'address_shim.c does not compile';
$ENV{LD_PRELOAD} = join(' ', $shim, $ENV{LD_PRELOAD} // ());
redis_cluster('redis_connection');
my $available = '{j}:available_buckets';

for_each_server(
	sub {
		my ($server) = @_;

		subtest "$server: refusing" => \&test_refusing;
		subtest "$server: password" => \&test_password;
		subtest "$server: password file" => \&test_password_file;
		subtest "$server: URL with a password" => \&test_url_with_password;
		subtest "$server: TLS" => \&test_tls, $server;
		subtest "$server: several addresses" => \&test_addresses, $server;
		subtest "$server: descriptors" => \&test_descriptors;
	});
$redis = RedisTest->new;
subtest 'hanging' => \&test_hanging;
subtest 'broken off' => \&test_broken_off;
subtest 'strange' => \&test_strange;
$node->stop;
done_testing();

# Listens at an address, and answers nothing.
sub listen_at
{
	my ($host, $port, $queue) = @_;

	my $listener;

	socket($listener, AF_INET, SOCK_STREAM, 0) && bind($listener, sockaddr_in($port, inet_aton($host))) && listen($listener, $queue // 5)
	  or die "$host, port $port: $!";
	return $listener;
}

# Listens at an address with a full queue: who connects gets no answer at all. Lasts as long as what is returned.
sub listen_full
{
	my ($host, $port) = @_;
	my @kept = (listen_at($host, $port, 0));

	for (1 .. 10)
	{
		socket(my $client, AF_INET, SOCK_STREAM, 0) or die $!;
		push @kept, $client;
		$client->blocking(0);
		connect($client, sockaddr_in($port, inet_aton($host)));
		return \@kept unless IO::Select->new($client)->can_write(0.3);
	}
	die "the queue of $host, port $port, is never full";
}

sub listen_full_unix
{
	my ($path) = @_;
	my @kept;

	socket($kept[0], AF_UNIX, SOCK_STREAM, 0) && bind($kept[0], sockaddr_un($path)) && listen($kept[0], 0) or die "$path: $!";
	chmod 0777, $path or die $!;
	for (1 .. 10)
	{
		socket(my $client, AF_UNIX, SOCK_STREAM, 0) or die $!;
		push @kept, $client;
		$client->blocking(0);
		return \@kept unless connect($client, sockaddr_un($path));
	}
	die "the queue of $path is never full";
}

# ---------------------------------------------------------------- several addresses
sub test_addresses
{
	my ($server) = @_;
	my $plain = $redis;

	$redis = RedisTest->new(server => $server, tcp => 1);
	my $port = $redis->{port};
	configure("pg_sweep.redis_url = 'redis://several.test:$port'", "pg_sweep.redis_timeout = '5 s'");
	prepare(50);
	work_off();
	all_deleted_once(50, 'the first address refuses');
	my $full = listen_full('127.0.0.2', $port);
	configure("pg_sweep.redis_url = 'redis://several.test:$port'", "pg_sweep.redis_timeout = '1 s'");
	like(outcome(start('j')), qr/^succeeded drained/, 'the first address does not answer');
	at_rest();
	undef $full;
	$redis->kill;
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis at "several.test", port $port: Connection refused/, 'both refuse');
	$redis = $plain;
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# ---------------------------------------------------------------- hanging
# Seconds from the request to cancel a run to its end: the fewest of several tries, since any one can meet a busy machine.
# The function begins a run and returns it when it waits.
sub fastest_cancel
{
	my ($begin) = @_;
	my @seconds;

	for (1 .. 5)
	{
		my $run = $begin->();
		my ($at) = split /\|/, sql("SELECT clock_timestamp(), sweep.cancel($run)");

		ended_run($node, $run);
		push @seconds, sql("SELECT extract(epoch FROM finished_at - '$at') FROM sweep.runs WHERE run_id = $run AND status = 'cancelled'");
	}
	return (sort { $a <=> $b } @seconds)[0];
}

sub test_hanging
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $url = "pg_sweep.redis_url = 'redis://127.0.0.1:$port'";

	# when it is connected
	my $full = listen_full('127.0.0.1', $port);
	configure($url, 'pg_sweep.redis_timeout = 300');
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis at "127.0.0.1", port $port: no answer within pg_sweep.redis_timeout/,
		'no answer to a connection');
	configure($url, "pg_sweep.redis_timeout = '10 min'");
	my $fastest = fastest_cancel(
		sub {
			my $run = start('j');
			$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM sweep.running WHERE run_id = $run");
			return $run;
		});
	note("cancelled after $fastest s");
	cmp_ok($fastest, '<', 0.15, 'cancelled while it connects');
	undef $full;

	# a unix socket; from hiredis 1.3 on it seems to be connected
	my $path = PostgreSQL::Test::Utils::tempdir_short() . '/s';
	my $queue = listen_full_unix($path);
	configure("pg_sweep.redis_url = 'unix:$path'", 'pg_sweep.redis_timeout = 300');
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis at "$path": Resource temporarily unavailable/,
		'a unix socket with a full queue');
	configure($url, "pg_sweep.redis_timeout = '10 min'");

	# when it is to reply
	my $listener = listen_at('127.0.0.1', $port);
	my @clients;
	$fastest = fastest_cancel(
		sub {
			my $run = start('j');
			accept(my $client, $listener) or die $!;
			sysread($client, my $command, 65536) or die $!;
			push @clients, $client;
			return $run;
		});
	note("cancelled after $fastest s");
	cmp_ok($fastest, '<', 0.15, 'cancelled while it waits for a reply');
	is(sql('SELECT count(*) FROM sweep.running'), 0, 'nothing runs on');
}

# ---------------------------------------------------------------- broken off
sub test_broken_off
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $listener = listen_at('127.0.0.1', $port);

	configure("pg_sweep.redis_url = 'redis://127.0.0.1:$port'");
	for my $reply ('', "*2\r\n\$10\r\n17000")
	{
		my $run = start('j');

		accept(my $client, $listener) or die $!;
		sysread($client, my $command, 65536);
		syswrite($client, $reply);
		setsockopt($client, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)) or die $!;
		close($client);
		like(outcome($run), qr/^failed error 08000 no reply from Redis at "127.0.0.1", port $port: Connection reset by peer/,
			'reset after ' . length($reply) . ' bytes of a reply');
	}
}

# ---------------------------------------------------------------- descriptors
# Notes the sockets of the session.
sub sockets
{
	my ($when) = @_;

	return qq{COPY t.descriptor FROM PROGRAM 'ls -l /proc/\$PPID/fd | grep socket: | sed "s/^/$when\t/"'};
}

sub test_descriptors
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $listener = listen_at('127.0.0.1', $port);

	prepare(50);
	like(outcome(start('j', '{"programs": true}')), qr/^succeeded drained/, 'a job that starts programs');
	at_rest();
	cmp_ok(sql(q{SELECT count(*) FROM t.descriptor WHERE of = 'process' AND line ~ 'socket:'}), '>', 0, 'its process has a socket to Redis');
	is(sql(q{SELECT string_agg(line, E'\n') FROM t.descriptor WHERE of = 'program' AND line ~ 'socket:'}), '', 'its programs have none');

	for my $url ("redis://127.0.0.1:$port", "redis://several.test:$port", 'redis://no-such-host.invalid', "rediss://127.0.0.1:$port", 'unix:/none')
	{
		configure("pg_sweep.redis_url = '$url'", 'pg_sweep.redis_timeout = 20');
		sql('TRUNCATE t.descriptor');
		$node->psql('postgres', join(";\n", sockets('before'), (q{CALL sweep.run('j')}) x 10, sockets('after')), on_error_stop => 0);
		is(sql(q{SELECT count(*) FILTER (WHERE of = 'after') - count(*) FILTER (WHERE of = 'before') FROM t.descriptor}), 0,
			"$url: ten failures leave no socket");
	}
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# ---------------------------------------------------------------- Redis says no
sub test_refusing
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my @user = qw(ACL SETUSER kim on >geheim ~{j}:* -@all +eval +time +spop +zadd +zscore +zrem +sadd +srem +scard +smembers +zrange +zrangebyscore);

	prepare(50);
	# passes by itself
	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	like(outcome(start('j')), qr/^failed error 08000 Redis at "[^"]+" refused a command: OOM [^\n]*\n.*HINT: Redis has reached its maxmemory/s, 'OOM');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	$redis->cli('REPLICAOF', '127.0.0.1', $port);
	like(outcome(start('j')), qr/^failed error 08000 Redis at "[^"]+" refused a command: (READONLY|MASTERDOWN) /, 'a replica');
	$redis->cli('REPLICAOF', 'NO', 'ONE');

	# must be mended
	$redis->cli('SET', $available, 'x');
	like(outcome(start('j')), qr/^failed error 55000 Redis at "[^"]+" refused a command: WRONGTYPE [^\n]*\n.*HINT: Something else uses the key/s, 'a key of another kind');
	$redis->cli('DEL', $available);
	configure("pg_sweep.redis_url = '" . $redis->url . "?db=99'");
	like(outcome(start('j')), qr/^failed error 55000 Redis at "[^"]+" refused to select the database: ERR /, 'no such database');
	configure();
	my $error;
	$node->psql('postgres', q{SELECT sweep.start('j')}, stderr => \$error);
	like($error, qr/ERROR:  job "j" is broken: pg_sweep.redis_url is not set/, 'no URL: not started');
	is(sql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'broken: pg_sweep.redis_url is not set', 'no URL: shown as broken');
	$node->psql('postgres', q{CALL sweep.run('j')}, stderr => \$error);
	like($error, qr/ERROR:  run \d+ of job "j" failed: pg_sweep.redis_url is not set\n.*HINT:  Set it/s, 'no URL: a call fails');
	# the history has the runs with another server
	my $scheduled = "scheduled, $redis->{server}";
	sql(qq{SELECT sweep.create_job('$scheduled', step => 't.share', buckets => 5, bucket_store => 'redis', schedule => '* * * * * *')});
	$node->poll_query_until('postgres', qq{SELECT broken = 'pg_sweep.redis_url is not set' FROM sweep.job_state WHERE job = '$scheduled'});
	is(sql(qq{SELECT count(*) FROM sweep.runs WHERE job = '$scheduled'}), 0, 'no URL: a job can be created, and is not started by its schedule');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
	is(sql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'failing', 'with a URL it is no longer broken');
	soon($node, qq{SELECT count(*) > 0 FROM sweep.runs WHERE job = '$scheduled' AND status IN ('succeeded', 'skipped')}, 't', 'and the schedule applies');
	sql(qq{SELECT sweep.drop_job('$scheduled')});
	at_rest();
	configure("pg_sweep.redis_url = 'unix:" . $node->host . '/.s.PGSQL.' . $node->port . "'");
	like(outcome(start('j')), qr/^failed error 08000 no reply from Redis at /, 'something that is not Redis');
	configure("pg_sweep.redis_url = 'redis://localhost:$port'");
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis at "localhost", port $port: Connection refused/, 'nobody there');
	configure("pg_sweep.redis_url = 'redis://no-such-host.invalid'");
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis at "no-such-host.invalid", port 6379: /, 'a host that does not exist');

	# one who listens and never says anything, with and without TLS
	my $listener = listen_at('127.0.0.1', $port);
	configure("pg_sweep.redis_url = 'redis://127.0.0.1:$port'", 'pg_sweep.redis_timeout = 300');
	like(outcome(start('j')), qr/^failed error 08000 (could not connect to|no reply from) Redis at "127.0.0.1", port $port: no answer within/, 'silence');
	configure("pg_sweep.redis_url = 'rediss://127.0.0.1:$port'", 'pg_sweep.redis_timeout = 300');
	like(outcome(start('j')), qr/^failed error (08000 could not connect to Redis at "127.0.0.1", port $port: no answer within|55000 [^\n]* built without TLS\n(.*\n)*HINT: Build pg_sweep with hiredis 1\.0 or later)/, 'silence instead of TLS');
	close($listener);

	# the least that a user needs
	$redis->cli(@user);
	configure("pg_sweep.redis_url = '" . $redis->url . "'", "pg_sweep.redis_user = 'kim'",
		"pg_sweep.redis_password_file = '" . $redis->password_file('geheim') . "'");
	work_off();
	all_deleted_once(50, 'with few rights');
	$redis->cli('ACL', 'SETUSER', 'kim', '-eval');
	like(outcome(start('j')), qr/^failed error 55000 Redis at "[^"]+" refused a command: NOPERM [^\n]*\n.*HINT: Grant the user/s, 'without the right to it');
	configure("pg_sweep.redis_url = '" . $redis->url . "'");
}

# ---------------------------------------------------------------- something that speaks like Redis, but not well
# Answers each command with the next of these replies, then closes. In a reply ! is the end of a line, {ff} a byte,
# <x>*9 a repetition; what follows "again" is for each connection after the first: those of the run and of its shares,
# in any order.
sub test_strange
{
	my $directory = PostgreSQL::Test::Utils::tempdir_short();
	my $socket = 0;
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
		[ 'texts without end', [ @time, '*9999!<$300!' . 'x' x 300 . '!>*9999' ], qr/^failed error 08000 no reply from Redis at [^\n]*: $strange/ ],
		[ 'a reply too many', [ '*2!$10!1700000000!$1!0!+OK!' ], qr/^failed error 08000 no reply from Redis at [^\n]*: $strange/ ],
		[ 'an error too many', [ '*2!$10!1700000000!$1!0!-ERR x!' ], qr/^failed error 08000 no reply from Redis at [^\n]*: $strange/ ],
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
		my $path = "$directory/s" . ++$socket;
		my $output = '';
		my $process = IPC::Run::start([ $^X, '-e', $server, $path, @$replies ], '<', '/dev/null', '>', \$output);

		$process->pump until $output =~ /ready/;
		configure("pg_sweep.redis_url = 'unix:$path'");
		like(outcome(start('j')), $expected, $name);
		# Else a share of this run would ask the next server, and that one answers one connection.
		at_rest();
		$process->kill_kill;
	}
	unlike(slurp_file($node->logfile), qr/^FATAL:  forged/m, 'no reply begins a line of the log');

	# other texts that come from outside
	configure("pg_sweep.redis_url = 'redis://%ff%c3.invalid'");
	like(outcome(start('j')), qr/^failed error 08000 could not connect to Redis at "\?\?.invalid", port 6379: /, 'a host that is no text');
	configure("pg_sweep.redis_url = '" . $redis->url . "'", "pg_sweep.redis_password_file = '/none/\xff\xc3'");
	like(outcome(start('j')), qr{^failed error 55000 could not use pg_sweep.redis_password_file "/none/\?\?": No such file or directory\n}, 'a file that is no text');
	is(sql(q{SELECT count(*) FROM sweep.runs WHERE error IS DISTINCT FROM convert_from(convert_to(error, 'UTF8'), 'UTF8')}), 0, 'what is stored is text');
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
	like(outcome(start('j')), qr/^failed error 55000 Redis at "\Q$socket\E" refused to tell its time: NOAUTH [^\n]*\n.*HINT: Set pg_sweep.redis_password_file/s, 'no password');
	$file = $redis->password_file("falsch\n");
	configure($url, "pg_sweep.redis_password_file = '$file'");
	like(outcome(start('j')), qr/^failed error 55000 Redis at "\Q$socket\E" refused user or password: WRONGPASS\n.*HINT: Check pg_sweep.redis_user/s, 'wrong password');
	$redis->password_file;
	work_off();
	all_deleted_once(50, 'with a password');

	# the file is read for each connection
	$redis->cli('CONFIG', 'SET', 'requirepass', 'gehneu');
	$redis->{password} = 'gehneu';
	like(outcome(start('j')), qr/^failed error 55000 .*WRONGPASS/, 'a password that was changed in Redis');
	$redis->password_file;
	like(outcome(start('j')), qr/^succeeded drained/, 'and in the file, which needs no reload');
	for my $end ('', "\n", "\r\n")
	{
		$redis->password_file("gehneu$end");
		like(outcome(start('j')), qr/^succeeded drained/, 'the end of the line is no part of it, nor is it needed');
	}
	$redis->password_file('gehneu ');
	like(outcome(start('j')), qr/WRONGPASS/, 'a space is part of it');
	at_rest();

	# relative to the data directory, as other files of the server
	append_to_file($node->data_dir . '/redis.password', 'gehneu');
	chmod 0600, $node->data_dir . '/redis.password';
	configure($url, "pg_sweep.redis_password_file = 'redis.password'");
	like(outcome(start('j')), qr/^succeeded drained/, 'a name without a directory');
	unlink $node->data_dir . '/redis.password';

	configure($url, "pg_sweep.redis_user = 'default'");
	like(outcome(start('j')), qr/^failed error 55000 pg_sweep.redis_user is set, but pg_sweep.redis_password_file is not\n.*HINT: Set/s, 'a user without a password');
	$redis->password_file;
	configure($url, "pg_sweep.redis_user = 'default'", "pg_sweep.redis_password_file = '$file'");
	like(outcome(start('j')), qr/^succeeded drained/, 'user and password');
	at_rest();
	unlike(slurp_file($node->logfile, $log), qr/geh(#eim|neu)|falsch/, 'the log has no password');
	is(sql(q{SELECT count(*) FROM sweep.runs r WHERE r::text ~ 'geh(#eim|neu)|falsch'}), 0, 'nor has any run');
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
		like(outcome(start('j')), qr/^failed error 55000 could not use pg_sweep.redis_password_file "\Q$path\E": $reason\n(.*\n)*HINT: $hint/, "$path: $reason");
	}
	for my $accepted ($file, "$directory/longest")
	{
		configure($url, "pg_sweep.redis_password_file = '$accepted'");
		like(outcome(start('j')), qr/^failed error 55000 Redis at [^\n]* refused user or password: ERR\n.*HINT: Redis has no password/s, "$accepted: read, and sent to Redis");
	}
	at_rest();
	unlike(slurp_file($node->logfile, $log), qr/geheim|geh\\?.eim/, 'the log has nothing of what is in a file');
	is(sql(q{SELECT count(*) FROM sweep.runs r WHERE r::text ~ 'geheim'}), 0, 'nor has any run');
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
	is(sql('SHOW pg_sweep.redis_url'), $good, 'without a password it is shown as it is');
	is(sql(q{SELECT setting FROM pg_settings WHERE name = 'pg_sweep.redis_url'}), $good, 'also in pg_settings');
	is(sql(q{SET ROLE jobber; SELECT count(*) FROM pg_settings WHERE name ~ '^pg_sweep.redis_(url|user|password|tls)'}), 0, 'not to everybody');
	is(sql(q{SELECT count(*) FROM pg_settings WHERE name ~ '^pg_sweep.redis_(url|user|password|tls)'}), 6, 'all of them to a superuser');
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
		is(sql('SHOW pg_sweep.redis_url'), $good, 'what was set stays');
		is(sql(q{SELECT count(*) FROM pg_settings s WHERE s::text ~ 'geheim'}), 0, 'pg_settings does not have it');
		is(sql(q{SELECT applied, error FROM pg_file_settings WHERE name = 'pg_sweep.redis_url'}), 'f|setting could not be applied',
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
	sql(q{/* redis_url */ SELECT 'as typed@here'});
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
	is(sql('SHOW pg_sweep.redis_url'), '', 'it is not set');
	is(sql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'broken: pg_sweep.redis_url is not set', 'and the job says so');
	configure("pg_sweep.redis_url = '$good'");
	is(sql(q{SELECT state FROM sweep.jobs WHERE name = 'j'}), 'failing', 'a reload is enough afterwards');
}

# ---------------------------------------------------------------- TLS
sub test_tls
{
	my ($server) = @_;
	my $plain = $redis;
	my ($message, $directory, $port, $password, @tls);

	my $secure = eval { RedisTest->new(server => $server, tls => 1, password => 'geheim') };

	plan skip_all => "$server has no TLS" unless $secure;
	$redis = $secure;
	($directory, $port) = @$redis{ 'directory', 'port' };
	$password = "pg_sweep.redis_password_file = '" . $redis->password_file . "'";
	@tls = ("pg_sweep.redis_url = 'rediss://localhost:$port'", $password);
	prepare(50);
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/ca.crt'");
	my $run = start('j');
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
	$run = start('j');
	soon($node, "SELECT count(*) FROM sweep.running WHERE run_id = $run", '1', 'a run begins while Redis hangs');
	cmp_ok(cancelled_after($run), '<', 3, 'it can be cancelled');
	$redis->resume;
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/other.crt'");
	like(outcome(start('j')), qr/^failed error 55000 could not connect to Redis at "localhost", port $port: its certificate is not accepted: /, 'a certificate by somebody else');
	configure(@tls);
	like(outcome(start('j')), qr/: its certificate is not accepted: /, 'one that nobody vouches for');
	configure("pg_sweep.redis_url = 'rediss://127.0.0.1:$port'", $password, "pg_sweep.redis_tls_ca_file = '$directory/ca.crt'");
	like(outcome(start('j')), qr/: its certificate is not accepted: .*mismatch/, 'one for another host');
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/none.crt'");
	like(outcome(start('j')), qr/^failed error 55000 could not use pg_sweep.redis_tls_ca_file "\Q$directory\E\/none.crt": No such file or directory\n/, 'no such file');
	configure(@tls, "pg_sweep.redis_tls_ca_file = '$directory/names'");
	like(outcome(start('j')), qr/^failed error 55000 .*: the certificates of pg_sweep.redis_tls_ca_file could not be loaded/, 'a file without certificates');
	configure("pg_sweep.redis_url = 'redis://localhost:$port'", $password);
	like(outcome(start('j')), qr/^failed error 08000 no reply from Redis/, 'without TLS, where it is spoken');
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
	like(outcome(start('j')), qr/^failed error 08000 (no reply from|could not connect to) Redis at /, 'no certificate');
	configure(@tls, @own);
	like(outcome(start('j')), qr/^succeeded drained/, 'a certificate');
	at_rest();
	configure(@tls, $own[0]);
	like(outcome(start('j')), qr/^failed error 55000 only one of pg_sweep.redis_tls_cert_file and pg_sweep.redis_tls_key_file is set\n/, 'no key');
	configure(@tls, $own[0], "pg_sweep.redis_tls_key_file = '$directory/other.key'");
	like(outcome(start('j')), qr/^failed error 55000 .*: the key of pg_sweep.redis_tls_key_file could not be loaded/, 'the key of another one');
	RedisTest::openssl('pkey', '-in', "$directory/server.key", '-aes256', '-passout', 'pass:geheim', '-out', "$directory/locked.key");
	configure(@tls, $own[0], "pg_sweep.redis_tls_key_file = '$directory/locked.key'");
	like(outcome(start('j')), qr/^failed error 55000 .*: the key of pg_sweep.redis_tls_key_file could not be loaded, has a passphrase/, 'a key with a passphrase');
	chmod 0644, "$directory/server.key" or die $!;
	configure(@tls, @own);
	like(outcome(start('j')), qr/^failed error 55000 could not use pg_sweep.redis_tls_key_file "\Q$directory\E\/server.key": others have access to it\n/, 'a key that others can read');
	chmod 0600, "$directory/server.key" or die $!;
	configure(@tls, "pg_sweep.redis_tls_cert_file = '$directory/names'", $own[1]);
	like(outcome(start('j')), qr/^failed error 55000 .*: the certificate of pg_sweep.redis_tls_cert_file could not be loaded/, 'a file without a certificate');
	$redis->cli('CONFIG', 'SET', 'tls-auth-clients', 'no');
}
