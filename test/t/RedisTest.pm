# A Redis (or Valkey) of a test's own: on a unix socket in a directory that goes
# with the test, without persistence, its child, killed with it.
#
#	my $redis = RedisTest->new(server => 'valkey-server', password => ..., tls => 1);
#	$redis->url                      what pg_sweep.redis_url is to be
#	$redis->password_file($text)     a file for pg_sweep.redis_password_file
#	$redis->cli('SMEMBERS', $key)    the lines that redis-cli prints
#	$redis->kill; $redis->start      comes back empty
#	$redis->suspend; $redis->resume  SIGSTOP, SIGCONT
package RedisTest;

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

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
	}, $class;

	$self->{socket} = "$self->{directory}/s";
	$self->{port} = PostgreSQL::Test::Cluster::get_free_port() if $self->{tls};
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
	my @option = ('--port', 0, '--unixsocket', $self->{socket}, '--save', '', '--appendonly', 'no', '--dir', $directory);

	push @option, '--requirepass', $self->{password} if defined $self->{password};
	push @option, '--bind', '127.0.0.1', '--tls-port', $self->{port}, '--tls-cert-file', "$directory/server.crt",
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

END
{
	my $status = $?;

	$_->kill for @started;
	$? = $status;
}

1;
