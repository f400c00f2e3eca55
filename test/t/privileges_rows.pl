# room: api
# Nobody sees or changes what is another role's: whatever a member of sweep_user may call and read, as the
# catalogue says, is called with the names and numbers of another one's objects, and read. A function that is
# added and granted is in this test by itself; one with a type of argument that is not known here fails it.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SurfaceTest;
use SweepTest;
use Test::More;

my $node = new_cluster('privileges_rows', gitlab => 1, conf => [ 'pg_sweep.max_consumers = 2', 'autovacuum = off' ]);
my $gate = hold_gate($node, 77);

create_roles($node);
create_victim($node, 77);

sub ids
{
	return split /\n/, $node->safe_psql('postgres', $_[0]);
}

# A message that the victim holds, and what may be guessed: numbers.
my $lease = $node->safe_psql('postgres', q{SELECT lease FROM sweep.claim('vict_queue', 1, '1 hour')}, extra_params => [ '-U', 'victim' ]);
my @runs = ids(q{SELECT max(run_id) FROM sweep.runs WHERE run_as = 'victim' GROUP BY status});
my @messages = ids(q{(SELECT max(message_id) FROM sweep.queue_message GROUP BY queue_id) UNION ALL SELECT max(message_id) FROM sweep.queue_dead});
my @queues = ids(q{SELECT queue_id FROM sweep.queue});
my $victim = $node->safe_psql('postgres', q{SELECT oid FROM pg_roles WHERE rolname = 'victim'});
my @texts = map { literal($_) } qw(vict_job vict_item vict_queue vict_dead vict_work victim.step victim.handle heir inbox);

# What there is to try for each type; the rest is made of these.
my %plausible = (
	'text' => [ 'NULL', @texts ],
	'jsonb' => [ 'NULL', q{'{}'}, q{'{"x": 1}'}, q{'{"run_as": "victim"}'} ],
	'boolean' => [qw(true false NULL)],
	'smallint' => [ '0', '100' ],
	'integer' => [ 'NULL', '1', @queues ],
	'bigint' => [ 'NULL', '1', @runs, @messages ],
	'double precision' => ['1'],
	'real' => ['1'],
	'numeric' => ['1'],
	'interval' => [ q{'1 ms'}, 'NULL' ],
	'timestamp with time zone' => [ 'now()', q{'-infinity'} ],
	'timestamp without time zone' => [ 'now()' ],
	'oid' => [ $victim, q{'sweep.run_live'::regclass::oid} ],
	'regrole' => [ q{'victim'}, 'NULL', q{'attacker'} ],
	'regprocedure' => [ q{'victim.step(sweep.batch)'}, 'NULL', q{'pg_catalog.now()'} ],
	'regtype' => [ q{'text'}, 'NULL', q{'sweep.run_live'} ],
	'regclass' => [ q{'sweep.run_live'}, 'NULL', q{'pg_catalog.pg_class'} ],
	'"any"' => [ '1', 'NULL::text' ],
	'anyarray' => [ q{'{1}'::int[]}, 'NULL::text[]' ],
	'anyelement' => [ '1', 'NULL::text' ],
	'uuid' => [ "'$lease'", 'NULL' ],
	'tid' => [q{'(0,1)'}]);

sub plausible_values
{
	my ($surface, $argument, $depth) = @_;
	my $type = $argument->{type};
	my $known = $surface->{types}{$type};

	return @{ $plausible{$type} } if $type =~ /^("any"|anyarray|anyelement)$/;
	return map { "$_\::$type" } @{ $plausible{$type} } if $plausible{$type};
	die "no values for type $type: teach it to this test" unless $known;
	return plausible_values($surface, { %$argument, type => $known->{base} }) if $known->{base};
	return ("NULL::$type", map { "ARRAY[$_]::$type" } plausible_values($surface, { %$argument, type => $known->{element} })) if $known->{element};
	die "no values for type $type: teach it to this test" unless @{ $known->{fields} };

	# Of a row each value of each field, the others being the first ones that are not NULL.
	my @fields = map { my ($name, $field) = split / /, $_, 2; [ plausible_values($surface, { name => $name, type => $field }) ] } @{ $known->{fields} };
	return map { "ROW(" . join(', ', @$_) . ")::$type" } one_at_a_time(@fields);
}

# All of them when they are few, else each value once, with two bases for the rest.
sub combinations
{
	my (@choices) = @_;
	my $count = 1;
	my @all = ([]);

	$count *= @$_ for @choices;
	return one_at_a_time(@choices) if $count > 500;
	for my $choice (@choices)
	{
		@all = map { my $before = $_; map { [ @$before, $_ ] } @$choice } @all;
	}
	return @all;
}

sub one_at_a_time
{
	my (@choices) = @_;
	my @all;

	for my $base (0, 1)
	{
		my @rest = map { my @set = grep { !/^NULL/ } @$_; $set[ $base % @set ] } @choices;

		for my $i (0 .. $#choices)
		{
			push @all, map { my @one = @rest; $one[$i] = $_; \@one } @{ $choices[$i] };
		}
	}
	return @all;
}

sub statements_of
{
	my ($surface) = @_;
	my @statements = map { "TABLE $_" } @{ $surface->{relations} };

	for my $function (@{ $surface->{functions} })
	{
		my @arguments = @{ $function->{arguments} };
		my @values = map { [ plausible_values($surface, $_) ] } @arguments;

		# What has many arguments has defaults: one at a time, the rest left out.
		if (@arguments > 8)
		{
			my @first = map { [ $values[0][$_] ] } 0 .. $#{ $values[0] };

			for my $i (1 .. $#arguments)
			{
				push @first, map { my @one = ($values[0][1]); $one[$i] = $_; \@one } @{ $values[$i] };
			}
			push @statements, map { call_of($function, @$_) } @first;
			next;
		}
		push @statements, map { call_of($function, @$_) } combinations(@values);
	}
	return @statements;
}

# ---------------------------------------------------------------- as the attacker
my $surface = surface($node, 'attacker');
my @statements = statements_of($surface);
my %called;

$called{ /\bsweep(?:_gitlab)?\.(\w+)/ ? $1 : '' }++ for @statements;
cmp_ok(scalar(@{ $surface->{functions} }), '>', 50, 'there are functions to call');
is(join(' ', grep { !$called{ $_->{name} } } @{ $surface->{functions} }), '', 'each of them is called');
note(scalar(@statements) . ' statements');

my ($rows, $tables) = split /\|/, remember_rows($node);
cmp_ok($tables, '>=', 12, "the victim has rows in $tables tables");
remember_privileges($node);

my @said = run_statements($node, 'attacker', \@statements, q{SET statement_timeout = '5s';});
ok($said[@statements] && $said[@statements]{ended}, 'the session has lived to its end');

sub statements_where
{
	my ($wrong) = @_;

	return join("\n", (map { "$statements[$_]: " . ($said[$_]{out} // '') . ($said[$_]{err} // '') } grep { $wrong->($_) } 0 .. $#statements)[ 0 .. 9 ]) =~ s/\n+$//r;
}

{
	no warnings 'uninitialized';
	is(statements_where(sub { "$said[$_[0]]{out}$said[$_[0]]{err}" =~ secret() }), '', 'no secret of another role is in any answer');
	is(statements_where(sub { $said[ $_[0] ]{err} =~ /^(ERROR|FATAL|PANIC):  XX/m }), '', 'no internal error');
	is(statements_where(sub { $statements[ $_[0] ] =~ /^TABLE/ && $said[ $_[0] ]{out} =~ /vict_/ }), '', 'no name of another role\'s objects is in what one may read');
	is(statements_where(sub { $statements[ $_[0] ] =~ /_consumer_processes|_running/ && $said[ $_[0] ]{out} =~ /\d/ }), '', 'nor which processes it has');
	cmp_ok(scalar(grep { $said[$_]{err} =~ /42501/ } 0 .. $#statements), '>', 100, 'much was refused');
	cmp_ok(scalar(grep { $said[$_]{err} !~ /ERROR/ } 0 .. $#statements), '>', 100, 'and much was done');
}
is(changed_rows($node), '', 'nothing of the victim has changed');
is(gained_privileges($node), '', 'no privilege was gained');
is($node->safe_psql('postgres', "SELECT sweep.ack('$lease')", extra_params => [ '-U', 'victim' ]), 1, 'the victim still holds what it held');
soon($node, q{SELECT count(*) FROM sweep.running WHERE job = 'vict_job'}, 1, 'and its run is in progress');

# ---------------------------------------------------------------- the same as the victim finds the secrets: the test can see them
sub finds
{
	my ($statement) = @_;
	my @answer = run_statements($node, 'victim', [$statement]);

	like($answer[0]{out}, secret(), "the victim finds its secrets: $statement");
}

finds($_)
  for 'TABLE sweep.jobs', 'TABLE sweep.job', 'TABLE sweep.runs', 'TABLE sweep.quarantine', 'TABLE sweep.consumers', 'TABLE sweep_gitlab.kept_environment',
  'SELECT * FROM sweep._consumer_processes()', q{SELECT * FROM sweep.dead('vict_dead')},
  q{SELECT * FROM sweep.done('vict_queue')}, q{SELECT * FROM sweep.claim('vict_queue')};

# ---------------------------------------------------------------- an item of a run whose job is another role's meanwhile
$node->safe_psql('postgres', q{
	CREATE FUNCTION victim.late(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(78);
		RAISE EXCEPTION 'secret of the victim: error';
	END $$;
	SELECT sweep.create_job('passed on', step => 'victim.late', pick => 'victim.pick');
}, extra_params => [ '-U', 'victim' ]);
my $second = hold_gate($node, 78);
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('passed on')}, extra_params => [ '-U', 'victim' ]);
at_gate($node, 78);

# Not by drop_job, which also asks the run to stop: what comes first is the question.
$node->safe_psql('postgres', q{UPDATE sweep.job_definition SET run_as = 'attacker'::regrole WHERE name = 'passed on'});
open_gate($second);
is(ended_run($node, $run), 'failed error 0 0', 'a run whose job was passed on ends before its first bad item');
is($node->safe_psql('postgres', "SELECT quarantined, sqlstate, split_part(error, E'\\n', 1) FROM sweep.runs WHERE run_id = $run"),
	'0|55000|an item of job "passed on" cannot be put into quarantine', 'and says why');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.quarantine', extra_params => [ '-U', 'attacker' ]), 0, 'and no item of its is shown to the new role');

forget_session($gate);
done_testing();
