# What the TAP tests of queues share: the load program of the benchmark, whose
# books say what was lost or doubled.
package QueueTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(build_load start_load end_load run_load nothing_wrong queue_is_empty claim_all);

my $program;

# Compiles it; libpq and its headers came with those of the server.
sub build_load
{
	my $config = $ENV{PG_CONFIG} || 'pg_config';
	my $source = __FILE__ =~ s{t/[^/]*$}{bench/queues}r;
	my ($include, $lib) = split /\n/, `$config --includedir --libdir`;

	$program = PostgreSQL::Test::Utils::tempdir . '/load';
	system('cc', '-O1', '-std=gnu11', "-I$include", "-L$lib", "-Wl,-rpath,$lib", '-o', $program, "$source/load.c", "$source/books.c", '-lpq') == 0
	  or die 'load does not compile';
}

# Starts it on the queue "q" of database postgres; later options win.
sub start_load
{
	my ($node, %option) = @_;
	my %all = (
		send => q{SELECT sweep.send('q', $1::jsonb)},
		claim => q{SELECT message_id, payload, lease FROM sweep.claim('q', {batch})},
		ack => q{SELECT sweep.ack($2::uuid)},
		release => q{SELECT sweep.release($2::uuid)},
		patience => $PostgreSQL::Test::Utils::timeout_default,
		limit => 300,
		# between two claims of a consumer that finds nothing: there are many of them
		pause_ms => 25,
		%option);
	my %run = (stdout => '', stderr => '');

	local %ENV = (%ENV, PGAPPNAME => 'load', PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres');
	$run{handle} = IPC::Run::start([ $program, map { ('--' . s/_/-/gr, $all{$_}) } sort keys %all ],
		'>', \$run{stdout}, '2>', \$run{stderr});
	return \%run;
}

# Waits for its end; returns what it found out.
sub end_load
{
	my ($run) = @_;

	$run->{handle}->finish;
	my %found = map { split /\t/ } split /\n/, $run->{stdout};
	$found{status} = $run->{handle}->result(0);
	diag($run->{stderr}) if $run->{stderr} ne '';
	return \%found;
}

sub run_load
{
	return end_load(start_load(@_));
}

# Everything that was sent came, what was rolled back did not, nothing came twice, and the load did not wait in vain.
sub nothing_wrong
{
	my ($found, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join(', ', map { "$_ " . ($found->{$_} // 'unknown') } qw(status lost unacknowledged rolled_back_but_received foreign duplicates after_ack failures keys_shared early impatient)),
		'status 0, lost 0, unacknowledged 0, rolled_back_but_received 0, foreign 0, duplicates 0, after_ack 0, failures 0, keys_shared 0, early 0, impatient 0', $name);
	cmp_ok($found->{sent} // 0, '>', 0, "$name: something was sent");
}

# The table is empty and the counters, which nobody counts any more, agree.
sub queue_is_empty
{
	my ($node, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.queue_message JOIN sweep.queue USING (queue_id) WHERE name = 'q'}), 0, "$name: no message is left");
	is($node->safe_psql('postgres', q{SELECT concat_ws(' ', depth, ready, delayed, in_flight) FROM sweep.queues WHERE queue = 'q'}),
		'0 0 0 0', "$name: the counters say so, too");
}

# The payloads of all that can be claimed now, in their order; held for an hour.
sub claim_all
{
	my ($node, $database) = @_;

	return $node->safe_psql($database // 'postgres',
		q{SELECT coalesce(string_agg(payload::text, ' '), 'nothing') FROM sweep.claim('q', 1000, '1 hour')});
}

1;
