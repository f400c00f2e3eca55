# The servers of the soak: the one that works, and from time to time a standby that takes its place. Each has a
# directory below SOAK_DIRECTORY (see cluster in test/bin/lib.sh) and a wall clock of its own (test/t/clock_shim.c).
# As root the tables lie in a small file system that a fault fills; elsewhere that fault is left out.
package Servers;

use strict;
use warnings;

use Exporter 'import';
use Fcntl qw(O_WRONLY O_CREAT);
use FindBin;
use Time::HiRes qw(time sleep);

our @EXPORT = qw(server start_cluster stop_cluster postmaster is_ours set_clock has_small_disk tables_directory fill_disk free_disk
  make_standby promote_standby server_logs);

my $directory = $ENV{SOAK_DIRECTORY};
my $cluster = "$FindBin::Bin/../bin/cluster";
my $shim = "$directory/clock_shim.so";
my $number = 1;
my @logs;

# Size of the file system of the tables.
use constant DISK => '512m';

sub directory_of
{
	return "$directory/server$_[0]";
}

# The directory of the server that works.
sub server
{
	return directory_of($number);
}

sub server_logs
{
	return map { directory_of($_) . '/log' } 1 .. $number;
}

sub has_small_disk
{
	return $> == 0;
}

# ---------------------------------------------------------------- start and stop

sub compile_shim
{
	return if -e $shim;
	system('cc', '-shared', '-fPIC', '-O1', '-o', $shim, "$FindBin::Bin/../t/clock_shim.c", '-ldl') == 0 or die "clock_shim.c does not compile\n";
}

# Starts the server that works, with these settings.
sub start_cluster
{
	my (@conf) = @_;
	my $server = server();

	compile_shim();
	mkdir($server);
	set_clock(0) unless -e "$server/clock";
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{CLOCK_SHIM} = "$server/clock";
	return system($cluster, 'start', $server, @conf);
}

sub stop_cluster
{
	my ($mode) = @_;

	return system($cluster, 'stop', server(), $mode);
}

sub postmaster
{
	open(my $file, '<', server() . '/data/postmaster.pid') or return 0;
	my $pid = <$file> // 0;
	return int($pid);
}

# Is it a process of our server? Its parent says so; the pid may be another's by now.
sub is_ours
{
	my ($pid) = @_;

	open(my $file, '<', "/proc/$pid/stat") or return 0;
	my ($parent) = (<$file> // '') =~ /^.*\) \S+ (\d+)/;
	return defined($parent) && $parent == postmaster();
}

# ---------------------------------------------------------------- clock

# Seconds ahead of the machine's clock, in place: all processes of the server map the file.
sub set_clock
{
	my ($seconds, $which) = @_;
	my $file = directory_of($which // $number) . '/clock';

	sysopen(my $clock, $file, O_WRONLY | O_CREAT) or die "$file: $!";
	syswrite($clock, pack('q', int($seconds * 1_000_000))) == 8 or die "$file: $!";
	chmod(0644, $file);
}

# ---------------------------------------------------------------- disk

# Where the tables of a server are to be, empty and of the server's user; undef without a disk of their own.
sub tables_directory
{
	my ($which) = @_;
	my $disk = directory_of($which // $number) . '/disk';

	return undef unless has_small_disk();
	mkdir($disk);
	system('mount', '-t', 'tmpfs', '-o', 'size=' . DISK, 'tmpfs', $disk) == 0 or return undef;
	mkdir("$disk/tables");
	system('chown', '-R', 'postgres', $disk) == 0 or die "chown: $?";
	return "$disk/tables";
}

sub ballast
{
	return server() . '/disk/ballast';
}

# Takes what is free on the disk of the tables.
sub fill_disk
{
	return unless -d server() . '/disk/tables';
	system('dd if=/dev/zero of=' . ballast() . ' bs=64k 2>/dev/null');
	return 1;
}

sub free_disk
{
	unlink(ballast());
	return 1;
}

# ---------------------------------------------------------------- a standby

sub tool
{
	my (@command) = @_;
	my @user = $> == 0 ? ('runuser', '-u', 'postgres', '--', 'env', 'HOME=/tmp') : ();

	return system(@user, "$ENV{SOAK_BINDIR}/$command[0]", @command[ 1 .. $#command ]) == 0;
}

# A standby of the server that works, with a clock of its own that many seconds ahead; not yet promoted. False where it
# cannot be made, because the server has gone meanwhile.
sub make_standby
{
	my ($seconds, @conf) = @_;
	my ($next, $data) = (directory_of($number + 1), directory_of($number + 1) . '/data');
	my ($old_tables, $new_tables) = (server() . '/disk/tables', undef);
	my @mapping;

	system('rm', '-rf', $next);
	mkdir($next);
	chown((getpwnam('postgres'))[ 2, 3 ], $next) if $> == 0;
	if (-d $old_tables)
	{
		$new_tables = tables_directory($number + 1) // die "a second disk cannot be mounted\n";
		@mapping = ('-T', "$old_tables=$new_tables");
	}
	set_clock($seconds, $number + 1);
	return 0 unless tool('pg_basebackup', '-h', readlink(server() . '/socket'), '-p', $ENV{SOAK_PORT}, '-U', 'postgres', '-D', $data,
		'-R', '-X', 'stream', '-c', 'fast', @mapping, '-w');
	# The configuration names the directory of the server that it was copied from.
	system('sed', '-i', 's#' . server() . "/#$next/#", "$data/postgresql.conf") == 0 or die "sed: $?";
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{CLOCK_SHIM} = "$next/clock";
	return system($cluster, 'start', $next, @conf, "cluster_name = 'standby'") == 0;
}

# Makes the standby the server that works. The old one has been stopped by its caller.
sub promote_standby
{
	my $old = server();

	$number++;
	system('umount', '-l', "$old/disk") if -d "$old/disk";
	return tool('pg_ctl', '-D', server() . '/data', '-w', '-t', '60', '-s', 'promote');
}

1;
