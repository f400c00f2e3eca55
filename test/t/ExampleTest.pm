# The fenced examples of a document: reading them, and comparing what they show
# with what they do. How each language is run is in examples.pl.
#
# A block may be preceded by a comment that says how it is run:
#
#	<!-- example: as ROLE -->                 in a session of that role
#	<!-- example: error 2BP01 -->             it ends with that error
#	<!-- example: consumer of QUEUE -->       a program that works until it is stopped
#	<!-- example: dry run, because ... -->    the commands exist; they are not executed
#	<!-- example: not run, because ... -->    not at all
#	<!-- examples: as ROLE -->                anywhere: all blocks from there on
#
# A block without a language is the output of the block before it, or its end. If
# it begins with a message (NOTICE, ERROR, HINT ...) it is some of the messages,
# line by line.
# An ellipsis stands for anything within a line, and alone for any lines. Widths
# of columns do not count. "-- => 17" after a statement is its last value.
package ExampleTest;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(read_examples agrees pieces unfinished);

my $ellipsis = "\xe2\x80\xa6";

my %marker = (
	qr/as (\w+)/                     => 'role',
	qr/error ([0-9A-Z]{5})/          => 'error',
	qr/consumer of (\w+)/            => 'queue',
	qr/dry run, because (\w.*\S)/    => 'dry_run',
	qr/not run, because (\w.*\S)/    => 'not_run');

sub parse_marker
{
	my ($where, $text) = @_;

	foreach my $form (keys %marker)
	{
		return ($marker{$form} => $1) if $text =~ /^$form$/;
	}
	die "$where: unknown marker \"$text\"\n";
}

# The blocks of a document, each with line, language, text, what its markers say,
# and output, when the document shows it. Dies of what it does not understand.
sub read_examples
{
	my ($name, $document) = @_;
	my (@block, $open, %next, $role);
	my $line = 0;

	foreach (split /\n/, $document)
	{
		my $where = "$name:" . ++$line;

		if ($open)
		{
			if (/^\s*(```|~~~)\s*$/) { $open = undef; }
			else { $open->{text} .= s/^\Q$open->{indent}\E//r . "\n"; }
		}
		elsif (/^(\s*)(?:```|~~~)\s*(.*?)\s*$/)
		{
			$open = { indent => $1, where => $where, language => $2, text => '', %next };
			$open->{role} //= $role;
			die "$where: a marker of output\n" if $2 eq '' && %next;
			die "$where: output of what?\n" if $2 eq '' && (!@block || defined $block[-1]{output});
			if ($2 eq '') { $block[-1]{shows} = $open; $block[-1]{output} = 1; }
			else { push @block, $open; }
			%next = ();
		}
		elsif (/^\s*<!--\s*examples:\s*as (\w+)\s*-->\s*$/) { $role = $1; }
		elsif (/^\s*<!--\s*example:\s*(.*?)\s*-->\s*$/) { %next = (%next, parse_marker($where, $1)); }
		elsif (/<!--\s*examples?\b/) { die "$where: a marker that cannot be read\n"; }
		elsif (/\S/) { die "$where: a marker without its block\n" if %next; }
	}
	die "$name: a marker without its block\n" if %next;
	die "$open->{where}: a block without end\n" if $open;
	$_->{output} = $_->{shows}{text} foreach grep { $_->{shows} } @block;
	return @block;
}

sub flatten
{
	my ($text) = @_;
	my @line = map { s/^\s+|\s+$//gr =~ s/\s+/ /gr =~ s/^[-+]+$/---/r } split /\n/, $text;

	return grep { $_ ne '' } @line;
}

sub pattern
{
	my ($line) = @_;

	return join '.*?', map { quotemeta } split /$ellipsis/, $line, -1;
}

my $message = qr/^(?:NOTICE|WARNING|ERROR|DETAIL|HINT|CONTEXT):/;

# Does a program that printed this agree with the output that is shown?
sub agrees
{
	my ($shown, $output, $messages) = @_;
	my @shown = flatten($shown);
	my @messages = flatten($messages // '');
	my $wanted = join '', map { $_ eq $ellipsis ? '(?:.*\n)*?' : pattern($_) . '\n' } @shown;

	if (@shown && $shown[0] =~ /$message/)
	{
		foreach my $pattern (map { pattern($_) } @shown)
		{
			return 0 unless grep { /^$pattern$/ } @messages;
		}
		return 1;
	}
	return join('', map { "$_\n" } flatten($output)) =~ /(?:^|\n)$wanted\z/;
}

# A block as pieces that each end at a value to compare; the last may have none.
sub pieces
{
	my ($text) = @_;
	my @piece = ({ text => '' });

	foreach (split /\n/, $text)
	{
		$piece[-1]{text} .= "$_\n";
		next unless /--\s*=>\s*(.*?)\s*$/;
		$piece[-1]{value} = $1;
		push @piece, { text => '' };
	}
	return grep { $_->{text} =~ /\S/ } @piece;
}

# The last line that is neither empty nor a comment, if psql would wait for more.
sub unfinished
{
	my ($text) = @_;
	my @line = grep { /\S/ } map { s/\s*--.*//r } split /\n/, $text;

	return @line && $line[-1] !~ /;\s*$|^\s*\\\w|\\g(?:set|desc|exec|x)?\b[^;]*$/ ? $line[-1] : undef;
}

1;
