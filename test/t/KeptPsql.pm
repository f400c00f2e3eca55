# A psql that stays and executes what it is asked, in a session of its own unless the last one will do: to start a psql takes several
# times as long as to start a session, and most queries of a test take less than either.
package KeptPsql;

use strict;
use warnings;

use Errno ();
use IO::Select ();
use IPC::Open3 ();
use Symbol ();

# A session stays until the next question: it has nothing left, and what it has counted is in the statistics.
my $clear = "DISCARD ALL;\nSELECT pg_stat_force_next_flush() \\g /dev/null\n";
my $asked = 0;

# The command is that of a psql which reads its input as a script and stops at errors; its messages go to the file.
sub new
{
	my ($class, $command, $messages) = @_;
	my ($in, $out) = (Symbol::gensym(), Symbol::gensym());

	open(my $err, '+>>', $messages) or die "$messages: $!";
	truncate($err, 0);
	my $pid = IPC::Open3::open3($in, $out, '>&' . fileno($err), @$command);
	$in->autoflush;
	return bless { pid => $pid, parent => $$, in => $in, out => $out, err => $err, connection => '' }, $class;
}

# What the query answers, and the messages of psql and server; whether it has failed, or has not ended in time; whether the psql has ended. Options:
#   session    it may be executed in the session of the last one
#   seconds    how long it may take
sub ask
{
	my ($self, $connection, $query, %option) = @_;
	my $mark = 'end of answer ' . ++$asked . "\n";
	my $output = '';
	local $SIG{PIPE} = 'IGNORE';

	print { $self->{in} } qq{\\connect -reuse-previous=off "$connection"\n} unless $option{session} && $self->{connection} eq $connection;
	$self->{connection} = $connection;
	# psql ignores all that follows a semicolon with nothing before it behind the rows of a COPY.
	my $end = $query =~ /(?:;|\\\.)\s*\z/ ? '' : ';';
	my $rollback = $query =~ /\b(?:BEGIN|START\s+TRANSACTION)\b/i ? "ROLLBACK;\n" : '';
	print { $self->{in} } "$query\n$end\n\\warn $mark\\set ON_ERROR_STOP 0\n$rollback$clear\\set ON_ERROR_STOP 1\n\\echo $mark";
	my $select = IO::Select->new($self->{out});
	while ($output !~ /\Q$mark\E\z/)
	{
		$! = 0;
		my $read = $select->can_read($option{seconds}) ? sysread($self->{out}, $output, 65536, length($output)) : undef;
		# A signal, as of a process that the test has started and that ends, is no answer.
		next if !defined $read && $!{EINTR};
		last if !$read;
	}
	my $ended = $output !~ s/\Q$mark\E\z//;
	kill('TERM', $self->{pid}) if $ended;
	seek($self->{err}, 0, 0);
	my $messages = do { local $/; readline($self->{err}) } // '';
	truncate($self->{err}, 0);
	# A server that goes down behind the query takes nothing from its answer.
	my $failed = $messages !~ s/^\Q$mark\E.*//ms;
	# Settings of a role and of the server are those that a session begins with.
	$self->{connection} = '' if $failed || $query =~ /\bALTER\s+(?:ROLE|USER|SYSTEM)\b/i;
	chomp($output, $messages);
	return ($output, $messages, $failed, $ended);
}

# A test that forks shares its pipes with the child, which must have its own.
sub is_own
{
	my ($self) = @_;

	return $self->{parent} == $$;
}

sub end
{
	my ($self) = @_;

	close($self->{in});
	close($self->{out});
	waitpid($self->{pid}, 0);
}

1;
