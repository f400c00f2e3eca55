# room: process
# A dump that is being restored starts nothing, however far it has got and in
# whatever order its tables arrive: the scheduler of the copy ticks between any
# two of them.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('restore_order');
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump.sql';

$node->safe_psql('postgres', q{
	SELECT sweep.create_job('due', step => 't.note', schedule => '* * * * * *', args => '{"job": "due"}', catch_up => 'all');
	SELECT sweep.create_job('reboot', step => 't.note', schedule => '@reboot', args => '{"job": "reboot"}');
	SELECT sweep.create_queue('consumed');
	CREATE TABLE t.consumed (payload jsonb);
	CREATE FUNCTION t.consume(m sweep.message) RETURNS void LANGUAGE sql AS 'INSERT INTO t.consumed VALUES (m.payload)';
});
# Its message stays for both dumps: nobody can write down that he has it.
my $locker = session($node);
$locker->query_safe('BEGIN; LOCK TABLE t.consumed IN SHARE MODE');
$node->safe_psql('postgres', q{SELECT sweep.send('consumed', '1', delay => '2 s'); SELECT sweep.create_consumer('consumed', 't.consume')});
# The copy of the second round is paused as well, which makes no difference to it.
my @dumps;
for my $paused (0, 1)
{
	$node->safe_psql('postgres', q{SELECT sweep.pause_all()}) if $paused;
	$node->safe_psql('postgres', q{UPDATE sweep.job_state SET boot = boot - interval '1 day' WHERE job = 'reboot'});
	$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], $paused ? 'pg_dump of what is paused' : 'pg_dump');
	push @dumps, slurp_file($dump);
}
$locker->quit;

# What comes before the first COPY, and each COPY by its table.
sub pieces
{
	my ($text) = @_;
	my %copy;

	$copy{$1} = $& while $text =~ /^COPY (\S+) .*? FROM stdin;\n.*?^\\\.\n/msg;
	my ($first) = $text =~ /\A(.*?)^COPY /ms;
	return ($first, \%copy);
}

sub permutations
{
	my @of = @_;

	return ([]) unless @of;
	return map { my $i = $_; map { [ $of[$i], @$_ ] } permutations(@of[ grep { $_ != $i } 0 .. $#of ]) } 0 .. $#of;
}

my $looked = 0;
for my $text (@dumps)
{
	my ($first, $copy) = pieces($text);
	# Those that decide; what they refer to comes before, what else there is does not matter.
	my @tables = ('sweep.job_definition', 'sweep.job_state', 'sweep.control', 'sweep.consumer');

	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS copy WITH (FORCE)');
	$node->safe_psql('postgres', 'CREATE DATABASE copy');
	$node->safe_psql('copy', $first);
	$node->safe_psql('copy', join('', @$copy{ 'sweep.queue', 'sweep.queue_message' }));
	for my $order (permutations(grep { $copy->{$_} } @tables))
	{
		my $started;

		$node->safe_psql('copy', 'TRUNCATE ' . join(', ', @tables) . ' CASCADE');
		for my $table (@$order)
		{
			my $found = tick($node, database => 'copy', after => $copy->{$table}, query => q{SELECT (SELECT count(*) FROM sweep.run_live) + (SELECT count(*) FROM sweep.run_history),
				(SELECT count(*) FROM sweep._startable_runs(clock_timestamp())), sweep._next_wake(clock_timestamp()) IS NULL, (SELECT coalesce(sum(workers), 0) FROM sweep.consumers)});
			$looked++;
			$started //= "$table: $found" if $found ne '0|0|t|0';
		}
		is($started, undef, 'nothing starts: ' . join(', ', map { s/^sweep\.//r } @$order));
	}
	is($node->safe_psql('copy', q{SELECT string_agg(DISTINCT state, ', ') FROM sweep.jobs}), 'paused: the database is a copy', 'all of it is paused');
}
cmp_ok($looked, '>', 100, 'there was something to look at');
is($node->safe_psql('copy', 'SELECT (SELECT count(*) FROM t.started) + (SELECT count(*) FROM t.consumed)'), 0, 'nothing was done');
is($node->safe_psql('copy', q{SELECT state, workers FROM sweep.consumers}), 'paused: the database is a copy|0', 'nor will it be');
$node->safe_psql('copy', 'SELECT sweep.resume_all()');
soon($node, q{SELECT count(*) > 0 FROM t.started WHERE job = 'due'}, 't', 'until somebody says so', 'copy');
soon($node, q{SELECT count(*) FROM t.consumed}, 1, 'consumers, too', 'copy');
$node->stop;
done_testing();
