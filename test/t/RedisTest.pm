# A Redis (or Valkey) of a test's own: on a unix socket in a directory that goes
# with the test, without persistence, its child, killed with it.
#
#	my $redis = RedisTest->new(server => 'valkey-server', password => ..., tls => 1);
#	$redis->url                      what pg_sweep.redis_url is to be
#	$redis->password_file($text)     a file for pg_sweep.redis_password_file
#	$redis->cli('SMEMBERS', $key)    the lines that redis-cli prints
#	$redis->kill; $redis->start      comes back empty
#	$redis->suspend; $redis->resume  SIGSTOP, SIGCONT
#
# With tcp => 1 it listens on $redis->{port} of 127.0.0.1 as well.
#
# With use RedisTest ':work' also a cluster with a divided job, whose buckets are in $redis:
#
#	redis_cluster('name');
#	for_each_server { subtest ... }  for redis-server and valkey-server, as far as there are any, with $redis
#	configure("pg_sweep.redis_user = 'x'", ...)  all settings of Redis that processes have from now on
#	outcome(start('j'))                        a run of job j, and how it ended
package RedisTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest qw(new_cluster sql soon ended_run);
use Test::More;
use Time::HiRes ();

our ($node, $redis);
our %EXPORT_TAGS = (work => [ qw($node $redis redis_cluster for_each_server configure prepare at_rest all_deleted_once work_off
	  outcome five_in_a_batch outcomes cancelled_after) ]);
our @EXPORT_OK = @{ $EXPORT_TAGS{work} };

my @started;

# The servers that there are.
sub servers
{
	return grep { binary($_) } ('redis-server', 'valkey-server');
}

# The path of a program, found once: later the PATH may be another one.
my %found;

sub binary
{
	my ($name) = @_;

	$found{$name} //= (grep { -x $_ } map { "$_/$name" } (split(/:/, $ENV{PATH}), '/usr/bin', '/usr/local/bin'))[0] // '';
	return $found{$name};
}

# Whether pg_sweep was built with it.
sub module_exists
{
	my ($directory) = run_command([ 'pg_config', '--pkglibdir' ]);

	return -e "$directory/pg_sweep_redis.so";
}

sub new
{
	my ($class, %option) = @_;
	my $self = bless {
		server => $option{server} // (servers())[0],
		cli => binary('redis-cli') || binary('valkey-cli'),
		directory => PostgreSQL::Test::Utils::tempdir_short(),
		password => $option{password},
		tls => $option{tls},
		tcp => $option{tcp},
	}, $class;

	$self->{socket} = "$self->{directory}/s";
	$self->{port} = PostgreSQL::Test::Cluster::get_free_port() if $self->{tls} || $self->{tcp};
	create_certificates($self->{directory}) if $self->{tls};
	push @started, $self;
	$self->start;
	return $self;
}

sub start
{
	my ($self) = @_;
	my $directory = $self->{directory};
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my @option = ('--port', $self->{tcp} ? $self->{port} : 0, '--bind', '127.0.0.1', '--unixsocket', $self->{socket}, '--save', '', '--appendonly', 'no', '--dir', $directory);

	push @option, '--requirepass', $self->{password} if defined $self->{password};
	push @option, '--tls-port', $self->{port}, '--tls-cert-file', "$directory/server.crt",
	  '--tls-key-file', "$directory/server.key", '--tls-ca-cert-file', "$directory/ca.crt", '--tls-auth-clients', 'no'
	  if $self->{tls};
	$self->{process} = IPC::Run::start([ binary($self->{server}), @option ], '<', '/dev/null', '>>', "$directory/log", '2>&1');
	$self->{pid} = $self->{process}{KIDS}[0]{PID};
	# each try is a process, so this does not spin
	while ((eval { $self->cli('PING') } // '') ne 'PONG')
	{
		die "$self->{server} does not answer: " . slurp_file("$directory/log") if time > $deadline;
	}
}

sub url
{
	my ($self) = @_;

	return "unix://$self->{socket}";
}

# With this text in it, of its password and the end of the line unless given; only we may read it.
sub password_file
{
	my ($self, $text) = @_;
	my $file = "$self->{directory}/password";

	unlink $file;
	append_to_file($file, $text // "$self->{password}\n");
	chmod 0600, $file or die "$file: $!";
	return $file;
}

sub cli
{
	my ($self, @command) = @_;
	my @password = defined $self->{password} ? ('-a', $self->{password}, '--no-auth-warning') : ();
	my ($output, $error) = ('', '');

	IPC::Run::run([ $self->{cli}, '-s', $self->{socket}, @password, @command ], '<', \undef, '>', \$output, '2>', \$error, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default))
	  or die "redis-cli @command: $output$error";
	chomp $output;
	return $output;
}

# Several commands on one connection, a line each.
sub commands
{
	my ($self, @lines) = @_;
	my @password = defined $self->{password} ? ('-a', $self->{password}, '--no-auth-warning') : ();
	my $input = join("\n", @lines) . "\n";
	my ($output, $error) = ('', '');

	IPC::Run::run([ $self->{cli}, '-s', $self->{socket}, @password ], '<', \$input, '>', \$output, '2>', \$error, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default))
	  or die "redis-cli: $output$error";
	return $output;
}

# The members of a set, in order, with spaces.
sub members
{
	my ($self, $key) = @_;

	return join(' ', sort { $a <=> $b } split(/\n/, $self->cli('SMEMBERS', $key)));
}

# The members of a sorted set, in order, with spaces.
sub scored
{
	my ($self, $key) = @_;

	return join(' ', sort { $a <=> $b } split(/\n/, $self->cli('ZRANGE', $key, 0, -1)));
}

sub suspend { CORE::kill 'STOP', $_[0]->{pid}; }
sub resume { CORE::kill 'CONT', $_[0]->{pid}; }

# Gone, with all that it knew, when this returns.
sub kill
{
	my ($self) = @_;
	my $process = delete $self->{process} or return;

	CORE::kill 'KILL', $self->{pid};
	$process->finish;
	unlink $self->{socket};
}

# An authority, a certificate for localhost by it, and another authority.
sub create_certificates
{
	my ($directory) = @_;
	my @key = ('-new', '-nodes', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1');

	openssl('req', '-x509', @key, '-days', 30, '-subj', "/CN=$_", '-keyout', "$directory/$_.key", '-out', "$directory/$_.crt") for ('ca', 'other');
	openssl('req', @key, '-subj', '/CN=localhost', '-keyout', "$directory/server.key", '-out', "$directory/server.csr");
	append_to_file("$directory/names", "subjectAltName=DNS:localhost\n");
	openssl('x509', '-req', '-in', "$directory/server.csr", '-CA', "$directory/ca.crt", '-CAkey', "$directory/ca.key", '-CAcreateserial',
		'-days', 30, '-extfile', "$directory/names", '-out', "$directory/server.crt");
}

sub openssl
{
	my $output = '';

	IPC::Run::run([ 'openssl', @_ ], '<', \undef, '>', \$output, '2>&1') or die "openssl @_: $output";
}

# ---------------------------------------------------------------- ':work'
# A cluster with job j, whose step t.share deletes rows of its share, oldest first, and notes which. Its args:
#   gate      waits in the middle of each batch for the advisory lock (gate, bucket + 1)
#   programs  notes the descriptors of a program that it starts, and of its own process, in t.descriptor
# Two at a time in one bucket would be noted in t.overlap. Without Redis or the module the test is skipped.
sub redis_cluster
{
	my ($name) = @_;

	plan skip_all => 'pg_sweep was built without Redis' unless module_exists();
	plan skip_all => 'there is neither redis-server nor valkey-server' unless servers();
	$node = new_cluster($name,
		conf => [ 'pg_sweep.max_running_jobs = 12', 'max_worker_processes = 24', 'pg_sweep.history_per_job = 1000',
			"pg_sweep.redis_timeout = '5 s'", "include_if_exists = 'redis.conf'" ]);
	$node->safe_psql('postgres', q{
		CREATE TABLE t.artifact (id bigint PRIMARY KEY);
		CREATE TABLE t.deleted (id bigint, by text, bucket int);
		CREATE TABLE t.descriptor (of text, line text);
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
			IF b.args ? 'programs' THEN
				COPY t.descriptor FROM PROGRAM 'ls -l /proc/self/fd | sed "s/^/program	/"';
				COPY t.descriptor FROM PROGRAM 'ls -l /proc/$PPID/fd | sed "s/^/process	/"';
			END IF;
			IF b.args ? 'gate' AND n > 0 THEN
				PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::int, b.bucket + 1);
			END IF;
			RETURN ROW(n, NULL, NULL)::sweep.progress;
		END
		$$;
		GRANT ALL ON ALL TABLES IN SCHEMA t TO PUBLIC;
		SELECT sweep.create_job('j', step => 't.share', buckets => 5, bucket_store => 'redis', batch_size => 10);
	});
}

sub for_each_server
{
	my ($test) = @_;

	for my $server (servers())
	{
		$redis = RedisTest->new(server => $server);
		configure("pg_sweep.redis_url = '" . $redis->url . "'");
		$test->($server);
		at_rest();
		$redis->kill;
	}
	note('no valkey-server here') unless binary('valkey-server');
}

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

# Rows to work on, none of them touched; empty buckets.
sub prepare
{
	my ($count) = @_;

	sql("TRUNCATE t.artifact, t.deleted, t.overlap; INSERT INTO t.artifact SELECT generate_series(0, $count - 1)");
	$redis->cli('FLUSHALL');
}

# Everything that was queued has ended.
sub at_rest
{
	return $node->poll_query_until('postgres',
		q{SELECT count(*) = 0 AND NOT EXISTS (SELECT FROM sweep.running) FROM sweep.runs WHERE finished_at IS NULL});
}

sub all_deleted_once
{
	my ($count, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql('SELECT count(*) FROM t.artifact'), 0, "$name: nothing is left");
	is(sql('SELECT count(*), count(DISTINCT id) FROM t.deleted'), "$count|$count", "$name: each was deleted once");
	is(sql('SELECT count(*) FROM t.overlap'), 0, "$name: never two in one bucket");
}

# Runs until no more than so many rows are left: a share takes any bucket, also one that is done.
sub work_off
{
	my ($left) = @_;

	for my $round (1 .. 50)
	{
		outcome(SweepTest::start('j'));
		at_rest();
		return if sql('SELECT count(*) FROM t.artifact') <= ($left // 0);
	}
}

# A run, ended: status, stop reason, and its error.
sub outcome
{
	my ($run) = @_;

	ended_run($node, $run);
	return sql("SELECT concat_ws(' ', status, stop_reason, sqlstate, error) FROM sweep.runs WHERE run_id = $run");
}

# Five shares in a batch, waiting at the gate; the run that dispatched them.
sub five_in_a_batch
{
	my ($gate) = @_;
	my $run = SweepTest::start('j', qq({"gate": $gate}));

	soon($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = $gate", '5', 'five shares are in a batch');
	return $run;
}

# How the shares of a dispatcher ended, and it itself.
sub outcomes
{
	my ($run) = @_;

	at_rest();
	return sql("SELECT DISTINCT concat_ws(' ', status, stop_reason, sqlstate, regexp_replace(split_part(error, E'\\n', 1), '\\d+', 'N', 'g'))
		FROM sweep.runs WHERE run_id >= $run ORDER BY 1");
}

# ---------------------------------------------------------------- Redis does not answer
# Cancels a run and returns after how many seconds it ended.
sub cancelled_after
{
	my ($run) = @_;
	my $start = Time::HiRes::time();

	# ends with an error: the run was cancelled
	$node->psql('postgres', "SELECT sweep.cancel($run); CALL sweep.wait($run)");
	return sql("SELECT extract(epoch FROM finished_at) - $start FROM sweep.runs WHERE run_id = $run");
}

END
{
	my $status = $?;

	$_->kill for @started;
	$? = $status;
}

1;
