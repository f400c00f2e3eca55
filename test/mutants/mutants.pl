# Applies the changes in test/mutants/gitlab one after the other, and tells which of them no test notices. Called by
# test/bin/check-mutants, which has started a server and says where its files are.
#
# A line "file PATH TEST ..." begins the mutants of a file, and names the regression and isolation tests that have to notice them, those
# that take long last. A mutant is "- TEXT" and "+ TEXT": what is replaced, which must be there once ("-2 TEXT": the second of several), and by what. "= REASON" behind
# them says that the result is the same.
use strict;
use warnings;

use List::Util qw(any);
use Time::HiRes qw(time);

$| = 1;
my @mutants = read_list('test/mutants/gitlab');
my ($version) = slurp('gitlab/pg_sweep_gitlab.control') =~ /default_version *= *'(.*)'/;

$mutants[0] or die "no mutants\n";
my @wrong = grep { !eval { $_->{text} = mutate($_); 1 } && print STDERR $@ } @mutants;
exit(@wrong > 0) if @wrong || $ARGV[0] eq 'list';

my $script = "$ENV{SHARE}/pg_sweep_gitlab--mutant.sql";
my $module = "$ENV{LIBRARY}/pg_sweep_gitlab_mutant.so";
my @wanted = split ' ', $ENV{MUTANTS} // '';
my %limit;
my $survived = 0;
my $killed = 0;

END { unlink grep { defined } $script, $module }

@mutants = grep { my $m = $_; !@wanted || any { $m->{file} =~ /\Q$_/ || $_ eq "$m->{list}:$m->{line}" } @wanted } @mutants;
install(undef);
foreach my $test (sort { $a cmp $b } map { $_->{tests}->@* } @mutants)
{
	next if $limit{$test};
	my $start = time;
	my $noticed = notices($test);
	die "$test differs without any change: $noticed" if defined $noticed;
	# A change can make a loop endless.
	$limit{$test} = int(2 + 3 * (time - $start)) . 's';
}
foreach my $mutant (grep { !defined $_->{reason} } @mutants)
{
	my $start = time;
	my ($by, $line);

	install($mutant);
	foreach my $test ($mutant->{tests}->@*)
	{
		$line = notices($test);
		$by = $test if defined $line;
		last if defined $by;
	}
	defined $by ? $killed++ : $survived++;
	printf "%s - %s:%d: %s%s (%.1f s)\n", defined $by ? 'ok' : 'not ok', $mutant->{list}, $mutant->{line}, "- $mutant->{from} + $mutant->{to}",
		defined $by ? ", $by" : ': SURVIVES', time - $start;
}
printf "\n%d mutants: %d killed, %d equivalent, %d survived\n", scalar @mutants, $killed, scalar(grep { defined $_->{reason} } @mutants), $survived;
exit($survived > 0);

sub slurp
{
	my ($path) = @_;

	open(my $in, '<', $path) or die "$path: $!\n";
	local $/;
	return scalar <$in>;
}

sub read_list
{
	my ($path) = @_;
	my ($file, @tests, @found);
	my $number = 0;

	foreach (split /\n/, slurp($path))
	{
		$number++;
		if (/^file (\S+) (.*)/) { ($file, @tests) = ($1, split ' ', $2) }
		elsif (/^-(\d*) (.*)/) { push @found, { list => $path, line => $number, file => $file, tests => [@tests], nth => $1, from => $2 } }
		elsif (/^\+ ?(.*)/) { $found[-1]{to} = $1 }
		elsif (/^= (.+)/) { $found[-1]{reason} = $1 }
		elsif (/\S/ && !/^#/) { die "$path:$number: what is \"$_\"?\n" }
	}
	return @found;
}

# The file with the change in it.
sub mutate
{
	my ($mutant) = @_;
	my ($file, $nth) = @$mutant{qw(file nth)};
	my $text = slurp($file);
	my @parts = split /\Q$mutant->{from}\E/, $text, -1;
	my $where = "$mutant->{list}:$mutant->{line}";

	die "$where: no replacement\n" unless defined $mutant->{to};
	die "$where: \"$mutant->{from}\" is " . $#parts . " times in $file\n" if $#parts < 1 || ($nth eq '' ? $#parts != 1 : $#parts < $nth);
	$nth = 1 if $nth eq '';
	return join($mutant->{from}, @parts[ 0 .. $nth - 1 ]) . $mutant->{to} . join($mutant->{from}, @parts[ $nth .. $#parts ]);
}

# As a version of the extension, which no other test asks for.
sub install
{
	my ($mutant) = @_;
	my $installed = slurp("pg_sweep_gitlab--$version.sql");

	if (defined $mutant && $mutant->{file} =~ /\.c$/)
	{
		(my $changed = $script) =~ s/\.sql$/.c/;
		open(my $out, '>', $changed) or die "$changed: $!\n";
		print $out $mutant->{text};
		close $out;
		system("$ENV{COMPILE} -o '$module' '$changed' gitlab/message.c") == 0 or die "$mutant->{list}:$mutant->{line} does not compile\n";
		unlink $changed;
		$installed =~ s/MODULE_PATHNAME/\$libdir\/pg_sweep_gitlab_mutant/g;
	}
	elsif (defined $mutant)
	{
		my $original = slurp($mutant->{file});

		$installed =~ s/\Q$original\E/$mutant->{text}/ or die "$mutant->{file} is not in the install script\n";
	}
	open(my $out, '>', $script) or die "$script: $!\n";
	print $out $installed;
	close $out;
	return;
}

sub admin
{
	my ($database, @commands) = @_;

	return system('psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $database, map { ('-c', $_) } 'SET client_min_messages = error', @commands) == 0;
}

# The first line that is not as expected; undefined when all are.
sub notices
{
	my ($test) = @_;
	my $is_race = -e "gitlab/test/specs/$test.spec";
	my @expected = split /^/, slurp("gitlab/test/expected/$test.out");
	my $difference;

	# What a test that was stopped has left.
	admin('postgres', 'DROP DATABASE IF EXISTS contrib_regression WITH (FORCE)',
		q{DO $$ DECLARE r text; BEGIN FOR r IN SELECT rolname FROM pg_roles WHERE rolname LIKE 'regress\_%' LOOP EXECUTE format('DROP ROLE %I', r); END LOOP; END $$},
		'CREATE DATABASE contrib_regression') or die "no database\n";
	admin('contrib_regression', 'CREATE EXTENSION pg_sweep', q{CREATE EXTENSION pg_sweep_gitlab VERSION 'mutant'}) or die "the extension cannot be created\n";
	local $ENV{PGOPTIONS} = "$ENV{PGOPTIONS} -c statement_timeout=" . ($limit{$test} // 0);
	my $pid = open(my $out, '-|', $is_race ? "exec '$ENV{ISOLATION_TESTER}' dbname=contrib_regression <gitlab/test/specs/$test.spec 2>&1"
		: "exec psql -X -a -q -d contrib_regression -v HIDE_TABLEAM=on <gitlab/test/sql/$test.sql 2>&1") or die "no test: $!\n";
	while (my $line = <$out>)
	{
		my $expected = shift @expected;

		next if defined $expected && $line eq $expected;
		$difference = $line;
		kill 'TERM', $pid;
		last;
	}
	close $out;
	return $difference // $expected[0];
}
