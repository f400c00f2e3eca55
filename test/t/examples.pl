# room: api
# Every fenced example of README.md, CONTRIBUTING.md and doc/*.md is run, in its order and its
# language; where a document shows output, it is compared. A document that is
# added, or a block, is found by itself.
#
# Each document has a server of its own, with a database "app" that
# test/examples/DOCUMENT.sql prepares, where there is one. ExampleTest.pm has the
# markers by which a document says what is special about a block.
# EXAMPLES='doc/queues.md ...' restricts it to these.
use strict;
use warnings;

use File::Basename;
use File::Copy;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ExampleTest;
use RedisTest;
use SweepTest;

my $patience = $PostgreSQL::Test::Utils::timeout_default;
my ($node, %session, $pooler);
local %ENV = %ENV;
delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES)};

# What a program is started with and needs: go finds libraries of Debian in GOPATH, node in NODE_PATH.
my %program = (
	python => { file => 'consumer.py', commands => [ [ 'python3', 'consumer.py' ] ], package => 'python3-psycopg', probe => [ '-c', 'import psycopg' ] },
	ruby => { file => 'consumer.rb', commands => [ [ 'ruby', 'consumer.rb' ] ], package => 'ruby-pg', probe => [ '-e', 'require "pg"' ] },
	js => { file => 'consumer.js', commands => [ [ 'node', 'consumer.js' ] ], package => 'node-pg', probe => [ '-e', 'require("pg")' ] },
	go => {
		file => 'consumer.go',
		apart => 'deliver.go',
		commands => [ [ 'go', 'build', '-o', 'consumer', 'consumer.go', 'deliver.go' ], ['./consumer'] ],
		package => 'golang-go golang-github-lib-pq-dev',
		probe => [ 'list', 'github.com/lib/pq' ]
	});
my %of_language = (
	GO111MODULE => 'off', GOPATH => '/usr/share/gocode', GOFLAGS => '-buildvcs=false', GOCACHE => PostgreSQL::Test::Utils::tempdir() . '/go',
	NODE_PATH => join(':', $ENV{NODE_PATH} // (), '/usr/share/nodejs', '/usr/local/lib/node_modules', '/usr/lib/node_modules'));

# ------------------------------------------------------------------ psql

sub open_psql
{
	my ($role) = @_;
	my %new = (in => '', out => '', err => '');

	local %ENV = (%ENV, connection(), $role ? (PGUSER => $role) : ());
	$new{run} = IPC::Run::start([ 'psql', '-X', '-q', '-P', 'pager=off' ], '<', \$new{in}, '>', \$new{out}, '2>', \$new{err},
		$new{timer} = IPC::Run::timeout($patience));
	return \%new;
}

sub connection
{
	return (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'app');
}

# Has a session execute some lines; returns what it printed on each channel.
sub psql
{
	my ($role, $text) = @_;
	my $session = $session{$role} //= open_psql($role);
	my @said;

	# Some of them wait for a job of the document.
	$session->{timer}->start(10 * $patience);
	$session->{in} .= "$text\n\\echo --end--\n\\warn --end-- :LAST_ERROR_SQLSTATE\n";
	eval {
		$session->{run}->pump until $session->{out} =~ /^--end--\n/m && $session->{err} =~ /^--end-- .*\n/m;
	} or $session->{err} .= "psql has ended, or has not answered: $@";
	@said = ($session->{out} =~ s/^--end--\n.*//msr, $session->{err} =~ s/^--end-- (.*)\n.*//msr);
	push @said, $1;
	$said[0] =~ s/^Asynchronous notification .*\n//mg;
	$session->{out} = $session->{err} = '';
	return @said;
}

sub close_sessions
{
	foreach my $role (keys %session)
	{
		$session{$role}{in} .= "\\q\n";
		eval { $session{$role}{run}->finish };
	}
	%session = ();
}

sub run_sql
{
	my ($block) = @_;
	my ($output, $messages, @wrong) = ('', '');
	my $unfinished = unfinished($block->{text});

	return "psql waits for more after: $unfinished" if $unfinished;
	foreach my $piece (pieces($block->{text}))
	{
		my ($out, $err, $state) = psql($block->{role} // '', $piece->{text});
		my @line = grep { $_ ne '' } split /\n/, $out;

		$output .= $out;
		$messages .= $err;
		push @wrong, "not $piece->{value}:\n$out" if defined $piece->{value} && !agrees($piece->{value}, $line[-2] // '');
		push @wrong, "SQLSTATE $state instead of $block->{error}" if defined $block->{error} && $state ne $block->{error};
	}
	push @wrong, "error:\n$messages"
	  if !defined $block->{error} && $messages =~ /^(?:psql:)?.*(?:ERROR|FATAL|PANIC|error):|invalid command|no rows returned|has ended/m;
	push @wrong, "output:\n$output$messages" if defined $block->{output} && !agrees($block->{output}, $output, $messages);
	return @wrong;
}

# ------------------------------------------------------------------ configuration

# The server starts with these lines, and knows every name in them.
sub run_conf
{
	my ($block) = @_;
	my $file = $node->data_dir . '/postgresql.conf';
	my @name = $block->{text} =~ /^([a-z_.]+)\s*=/mg;

	close_sessions();
	# A restart would be the end of what is in progress.
	return 'what was started does not end' unless in_progress_ends();
	copy($file, "$file.before") or die $!;
	$node->append_conf('postgresql.conf', $block->{text});
	$node->stop;
	if (!$node->start(fail_ok => 1))
	{
		copy("$file.before", $file) or die $!;
		$node->start;
		return 'the server does not start';
	}
	return map { "no such setting: $_" }
	  grep { $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = '$_'") ne '1' } @name;
}

sub run_redis
{
	my ($block) = @_;
	my $redis = RedisTest->new;
	my $out = $redis->cli(split ' ', $block->{text});

	return $out eq 'OK' ? () : "Redis says $out";
}

# ------------------------------------------------------------------ the shell

# The command of each line exists, and make knows how to make what it is asked for.
sub look_at_sh
{
	my ($block) = @_;
	my @wrong;

	foreach my $line (grep { /\S/ } map { s/\s#.*//r } split /\n/, $block->{text})
	{
		my ($variables, $command, $rest) = $line =~ /^((?:\w+=(?:"[^"]*"|\S*)\s+)*)(\S+)\s*(.*)$/;
		my $trial = $command eq 'make' ? "$variables make -n $rest" : "command -v $command";

		my ($out, $err) = ('', '');
		IPC::Run::run([ 'sh', '-c', $trial ], '<', \undef, '>', \$out, '2>', \$err) or push @wrong, "$line: $err";
	}
	return @wrong;
}

sub run_sh
{
	my ($block) = @_;
	my ($out, $err) = ('', '');
	my @wrong;

	local %ENV = (%ENV, connection());
	IPC::Run::run([ 'sh', '-euc', $block->{text} ], '<', \undef, '>', \$out, '2>', \$err) or push @wrong, $err;
	push @wrong, "output:\n$out$err" if defined $block->{output} && !agrees($block->{output}, $out, $err);
	return @wrong;
}

# ------------------------------------------------------------------ programs

# The first of that name which has what it needs; a user's own python may lack it.
sub find_program
{
	my ($name, $probe) = @_;

	foreach my $path (grep { -x $_ } map { "$_/$name" } split(/:/, $ENV{PATH}), '/usr/bin')
	{
		my $out = '';

		local %ENV = (%ENV, %of_language);
		return $path if IPC::Run::run([ $path, @$probe ], '<', \undef, '>&', \$out);
	}
	return;
}

# A pooler in transaction mode that gives each transaction another server connection, so that
# whoever counts on its session fails.
sub start_pooler
{
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my ($binary) = grep { -x $_ } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my %new = (port => $port, out => '');

	return unless $binary;
	append_to_file("$directory/users", join '', map { "\"$_\" \"\"\n" } split /\n/, $node->safe_psql('app', 'SELECT rolname FROM pg_roles'));
	append_to_file("$directory/ini", join "\n", '[databases]', '* = host=' . $node->host . ' port=' . $node->port,
		'[pgbouncer]', "listen_port = $port", 'unix_socket_dir = ' . $node->host, 'auth_type = trust', "auth_file = $directory/users",
		'pool_mode = transaction', 'default_pool_size = 3', 'min_pool_size = 3', 'server_round_robin = 1',
		'ignore_startup_parameters = extra_float_digits', 'log_connections = 0', 'log_disconnections = 0', '');
	$new{run} = IPC::Run::start([ $binary, "$directory/ini" ], '<', \undef, '>&', \$new{out}, $new{timer} = IPC::Run::timeout($patience));
	eval { $new{run}->pump until $new{out} =~ /process up/; 1 } or die "no pgbouncer: $new{out}";
	return \%new;
}

sub stop_pooler
{
	$pooler->{run}->kill_kill if $pooler;
	$pooler = undef;
}

# Also when the test dies.
END
{
	my $status = $?;

	stop_pooler();
	$? = $status;
}

# The block is a program that consumes a queue until it is stopped: it delivers what is sent, tells
# of what it cannot, and is there for what comes after it was idle.
sub run_consumer
{
	my ($block) = @_;
	my $program = $program{ $block->{language} };
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my $deliver = "test/examples/deliver." . $program->{file} =~ s/.*\.//r;
	my ($out, @wrong) = ('');
	my ($run, $timer);

	copy($deliver, $directory) or die $!;
	append_to_file("$directory/$program->{file}", ($program->{apart} ? '' : slurp_file($deliver)) . $block->{text});
	$node->safe_psql('app', "SELECT sweep.purge_queue('$block->{queue}')");
	$node->safe_psql('app', "SELECT sweep.send_many('$block->{queue}', ARRAY(SELECT jsonb_build_object('to',
		CASE WHEN n = 10 THEN 'nobody' ELSE 'user ' || n || '.' END) FROM generate_series(1, 25) AS n))");

	local %ENV = (%ENV, %of_language, connection(), PGUSER => $block->{role});
	$pooler //= start_pooler();
	$ENV{PGPORT} = $pooler->{port} if $pooler;
	diag('pgbouncer is not installed: consumers connect to the server') unless $pooler;
	foreach my $command (@{ $program->{commands} })
	{
		my ($name, @argument) = @$command;
		my $path = $name =~ m{^\./(.*)} ? "$directory/$1" : find_program($name, $program->{probe});

		eval { $run->finish } if $run;
		return "$name failed: $out" if $run && $run->result(0) != 0;
		$run = IPC::Run::start([ $path, @argument ], '<', \undef, '>&', \$out, init => sub { chdir $directory or die $! },
			$timer = IPC::Run::timeout(10 * $patience));
	}
	push @wrong, await($run, $timer, \$out, 25, 'all but one are delivered');
	push @wrong, await_failed($block->{queue}) unless @wrong;
	$node->safe_psql('app', qq{SELECT sweep.send('$block->{queue}', '{"to": "user 26."}')});
	push @wrong, await($run, $timer, \$out, 26, 'and what comes later') unless @wrong;
	$run->kill_kill(grace => 5);
	return map { "$_; it said:\n$out" } @wrong;
}

# Reads what a program says until it has delivered all up to that one, but the tenth, each once.
sub await
{
	my ($run, $timer, $out, $last, $what) = @_;
	my $wanted = join ' ', grep { $_ != 10 } 1 .. $last;
	my $delivered = sub { join ' ', sort { $a <=> $b } $$out =~ /delivered to user (\d+)\./g };

	$timer->start($patience);
	eval { $run->pump while length($delivered->()) < length($wanted); 1 } or return "$what: $@";
	return $delivered->() eq $wanted ? () : "$what: delivered to " . $delivered->();
}

# What was not delivered waits for its next attempt, and nothing else does.
sub await_failed
{
	my ($queue) = @_;

	return $node->poll_query_until('app', "SELECT depth = 1 AND delayed = 1 FROM sweep.queues WHERE queue = '$queue'")
	  ? () : 'the message that failed does not wait for its next attempt';
}

sub run_program
{
	my ($block) = @_;
	my $program = $program{ $block->{language} };

	return "only a consumer, marked as one, is run in $block->{language}" unless $block->{queue};
	return run_consumer($block);
}

# ------------------------------------------------------------------ documents

my %run = (
	sql => \&run_sql, conf => \&run_conf, redis => \&run_redis, sh => \&run_sh,
	python => \&run_program, ruby => \&run_program, js => \&run_program, go => \&run_program);

# What is missing here to run a block.
sub missing
{
	my ($block) = @_;
	my $program = $program{ $block->{language} };

	return 'redis-server' if $block->{language} eq 'redis' && !RedisTest::servers();
	return $program->{package} if $program && !find_program($program->{commands}[0][0], $program->{probe});
	return;
}

sub run_example
{
	my ($block) = @_;
	my $name = "$block->{where}: $block->{language}";
	my @wrong;

  SKIP:
	{
		skip("$name: not run, because $block->{not_run}", 1) if $block->{not_run};
		my $missing = missing($block);
		skip("$name: $missing is not installed", 1) if $missing;
		@wrong = $block->{dry_run} ? look_at_sh($block) : $run{ $block->{language} }->($block);
		ok(!@wrong, $name) or diag(join "\n", @wrong);
	}
}

sub has_extension
{
	return $node->safe_psql('app', q{SELECT count(*) FROM pg_extension WHERE extname = 'pg_sweep'});
}

# Waits for the runs that the examples have started.
sub in_progress_ends
{
	return 1 unless has_extension();
	return $node->poll_query_until('app',
		q{SELECT count(*) FROM sweep.runs WHERE status IN ('waiting', 'running') AND due_at < now() AND trigger <> 'schedule'}, '0');
}

# Nothing that the examples started has failed afterwards in the background.
sub nothing_failed
{
	my ($name) = @_;

	return unless has_extension();
	ok(in_progress_ends(), "$name: what was started has ended");
	soon($node, 'SELECT count(*) FROM sweep.consumers JOIN sweep.queues USING (queue) WHERE ready + in_flight > 0', '0',
		"$name: consumers have emptied their queues", 'app');
	is($node->safe_psql('app', q{SELECT job, status, error FROM sweep.runs WHERE status IN ('failed', 'lost')
		UNION ALL SELECT queue, 'consumer', last_error FROM sweep.consumers WHERE last_error IS NOT NULL}), '', "$name: no run has failed");
}

sub run_document
{
	my ($file, @block) = @_;
	my $name = basename($file, '.md');
	my $setup = "test/examples/$name.sql";

	$node = new_cluster("examples_$name", (-e $setup ? 'bare' : 'app') => 1, again => 1);
	$node->safe_psql('postgres', 'CREATE DATABASE app') if -e $setup;
	-e $setup
	  ? $node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('app'), '-f', $setup ], "$file: its database is prepared")
	  : is(has_extension(), 1, "$file: its database is prepared");
	# Schedules of the examples are of 5 minutes at least: none is due in the middle.
	soon($node, 'SELECT floor(extract(epoch FROM now())) % 300 < 250', 't', "$file: it is no full five minutes soon", 'app');
	run_example($_) foreach @block;
	close_sessions();
	nothing_failed($file);
	stop_pooler();
	$node->stop;
}

# What is no example must not pass for one.
sub refuse
{
	my ($document, $expected, $name) = @_;

	like(eval { read_examples('doc', $document); '' } // $@, $expected, $name);
}

refuse("<!-- example: not run -->\n```sql\n```\n", qr/doc:1: unknown marker/, 'not to run a block takes a reason');
refuse("<!-- example as x -->\n```sql\n```\n", qr/doc:1: a marker that cannot be read/, 'a marker with a mistake');
refuse("<!-- example: as x -->\ntext\n```sql\n```\n", qr/doc:2: a marker without its block/, 'a marker and no block');
refuse("```sql\nSELECT 1;\n", qr/doc:1: a block without end/, 'a block without end');
refuse("```\nx\n```\n", qr/doc:1: output of what/, 'output before anything');
is(join(' ', map { "$_->{language} " . ($_->{role} // '-') . " $_->{text}" =~ s/\n//gr } read_examples('doc',
	"<!-- examples: as a -->\n```sql\n1\n```\n<!-- example: as b -->\n```js\n2\n```\n")), 'sql a 1 js b 2', 'roles of blocks');
ok(agrees("a | b\n--+--\n1 | 2\n", "  a  |  b \n-----+----\n  1  |  2\n"), 'widths do not count');
ok(agrees("2\n", "1\n2\n") && !agrees("1\n", "1\n2\n") && !agrees("2\n", "12\n"), 'shown is the end of the output, in whole lines');
ok(agrees("x \xe2\x80\xa6 y\n\xe2\x80\xa6\nz\n", "x 17 y\n1\n2\nz\n") && !agrees("x \xe2\x80\xa6 y\n", "x\ny\n"), 'ellipsis');
ok(agrees("NOTICE: b\nc", "1\n", "NOTICE:  a\nNOTICE:  b\nc\n") && !agrees("NOTICE: a\nx\n", "x\n", "NOTICE:  a\n"), 'messages');
ok(unfinished("SELECT 1\n-- x\n") && !unfinished("SELECT 1; -- x\n") && !unfinished("SELECT 1 \\gset\n") && !unfinished("\\echo x\n"), 'statements without end');

foreach my $file ($ENV{EXAMPLES} ? split(' ', $ENV{EXAMPLES}) : ('README.md', 'CONTRIBUTING.md', sort glob 'doc/*.md'))
{
	my $document = slurp_file($file);
	my @block = read_examples($file, $document);
	my $fences = () = $document =~ /^[\s>*+\d.-]*(?:```|~~~)/mg;
	my @unknown = map { "$_->{where}: $_->{language}" } grep { !$run{ $_->{language} } } @block;

	is(2 * (@block + grep { defined $_->{output} } @block), $fences, "$file: every fence is of an example");
	is("@unknown", '', "$file: it is known how to run each language");
	run_document($file, @block) if @block && !@unknown;
}

done_testing();
