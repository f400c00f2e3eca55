# The soak: clients, faults, and the checks. test/bin/soak starts it; setup.sql is
# what it works on, wrong.sql what must never be, rest.sql what is to be gone at
# the end. SOAK_SECONDS, SEED, SOAK_FAULTS and SOAK_PATIENCE are its settings.
#
# One process and one loop. It runs psql for everything: clients and statements
# that take long are children which it does not wait for, and whose ends it does
# not mind, since a fault may be that of their server.
use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use POSIX qw(WNOHANG);
use Servers;
use Time::HiRes qw(time sleep);

my $seconds = $ENV{SOAK_SECONDS} || 120;
my $seed = $ENV{SEED} || int(time);
# how long anything may take to come back, on a loaded machine
our $patience = $ENV{SOAK_PATIENCE} || 60;
our $directory = $ENV{SOAK_DIRECTORY};
our @conf = (
	'pg_sweep.max_running_jobs = 8', 'pg_sweep.max_consumers = 4', 'max_worker_processes = 24', 'pg_sweep.history_per_job = 1000000',
	'max_prepared_transactions = 4', 'max_wal_senders = 4', 'wal_keep_size = 256MB', 'hot_standby = on', 'restart_after_crash = on', 'fsync = off', 'log_checkpoints = off', 'log_statement = none',
	'log_min_messages = warning', 'jit = off', 'autovacuum_naptime = 5s', "log_line_prefix = '%m [%p] %e %b %q%a '");

our (%fault, %passed, %failed);  # faults by name, checks by name
my %done;                        # how often each fault was
my @undo;                        # [when, what to do]
our %client;                      # pid => what to start again when it ends
our %child;                       # pid => 1: statements that are under way
my $stopping = 0;
my $started = time;

sub say_line
{
	printf "%7.1f  %s\n", time - $started, join(' ', @_);
}

sub wrong
{
	my ($check, $what) = @_;

	say_line("WRONG: $check: $what") if ++$failed{$check} <= 20;
}

# ---------------------------------------------------------------- the server

# Starts a command in a process of its own, with its output in a file.
sub spawn
{
	my ($output, @command) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid;
	open(STDIN, '<', '/dev/null');
	open(STDOUT, '>>', $output) or die "$output: $!";
	open(STDERR, '>&', \*STDOUT);
	exec(@command) or die "$command[0]: $!";
}

sub psql_command
{
	my ($user, @arguments) = @_;

	return ("$ENV{SOAK_BINDIR}/psql", '-X', '-q', '-A', '-t', '-h', readlink(server() . '/socket'), '-p', $ENV{SOAK_PORT}, '-U', $user, '-d', 'postgres',
		@arguments);
}

# So long a query may take. What undoes a fault may have to wait for what the next undo sets free, a process that
# is stopped: it is given up soon, and tried again.
my $query_patience = $patience;

# What a query gives, or undef where it failed: psql is killed should it hang.
sub query
{
	my (@arguments) = @_;
	my $pid = open(my $out, '-|') // die "fork: $!";

	if (!$pid)
	{
		open(STDERR, '>>', "$directory/queries.log");
		open(STDIN, '<', '/dev/null');
		exec('timeout', $query_patience, psql_command('postgres', '-v', 'ON_ERROR_STOP=1', @arguments)) or die "psql: $!";
	}
	my $text = join('', <$out>);
	chomp($text);
	return close($out) ? $text : undef;
}

# The same; tries again until the server is there. A full disk, which no query and not even a session may find room on, is freed when it is time.
sub sure_query
{
	my (@arguments) = @_;
	my $deadline = time + $patience;

	while (1)
	{
		my $text = query(@arguments);
		return $text if defined($text);
		last if time > $deadline;
		undo_due('signal', time);
		sleep(0.2);    # the sleep is the work
	}
	# nothing else could be said now
	wrong('the server answers', "not within $patience s: @arguments");
	report();
}

# Each statement that begins a line is a transaction, unless it says BEGIN.
sub in_background
{
	my ($sql, $user) = @_;

	$child{ spawn("$directory/statements.log", psql_command($user // 'postgres', map { ('-c', $_) } split /\n/, $sql)) } = 1;
}

sub write_file
{
	my ($name, $text) = @_;

	open(my $file, '>', "$directory/$name.sql") or die "$directory/$name.sql: $!";
	print {$file} $text;
	close($file);
}

sub signal_process
{
	my ($signal, $pid) = @_;

	return is_ours($pid) && kill($signal, $pid);
}

sub start_server
{
	return $passed{'the server starts'}++ if start_cluster(@conf) == 0;
	wrong('the server starts', "status $?");
	report();
}

sub stop_server
{
	my ($mode) = @_;
	my $from = time;

	undo_all('signal');
	stop_cluster($mode) == 0 or wrong('the server stops', "$mode: status $?");
	$passed{'the server stops'}++;
	wrong('the server stops', sprintf('%s took %.1f s', $mode, time - $from)) if time - $from > $patience;
	start_server();
}

# The tables of the database go to the disk that a fault fills; the log of the server does not.
sub use_small_disk
{
	my $tables = tables_directory() // return;

	sure_query('-d', 'template1', '-c', "CREATE TABLESPACE small LOCATION '$tables'", '-c', 'ALTER DATABASE postgres SET TABLESPACE small');
}

# ---------------------------------------------------------------- clients

sub client_script
{
	my ($name, $repeats, @lines) = @_;

	write_file($name, join('', map { "$_;\n" } (@lines) x $repeats));
}

my $pause = "SELECT FROM pg_sleep(0.05)";    # the sleep is the work
sub write_scripts
{
	client_script("send_$_", 100, "SELECT soak.send('$_', 3)", $pause, $pause) for qw(inside outside once by_job);
	client_script('send_slowly', 20, 'BEGIN', "SELECT soak.send('outside', 2)", 'SAVEPOINT s', "SELECT soak.send('once', 2)",
		'SELECT FROM pg_sleep(1)', 'ROLLBACK TO s', 'END', $pause);    # the sleep is the work
	client_script('consume_outside', 100, "CALL sweep.wait_for_message('outside', '2 s')", 'CALL soak.consume_outside()');
	client_script('consume_once', 100, "CALL sweep.wait_for_message('once', '2 s')", 'CALL soak.consume_once()');
	client_script('consume_inside', 100, "SELECT soak.consume('by_job', 3)", $pause, $pause, $pause);
	client_script('call', 20, "CALL sweep.run('call')", $pause, "CALL sweep.wait(sweep.start('dropped'), '10 s')");
	client_script('listen', 50, 'LISTEN "sweep.inside"', 'SELECT FROM pg_sleep(0.5)', 'SELECT * FROM sweep.queues', 'SELECT * FROM sweep.jobs');    # the sleep is the work
}

sub start_client
{
	my ($name) = @_;

	$client{ spawn("$directory/clients.log", psql_command('soaker', '-f', "$directory/$name.sql")) } = $name;
}

# Starts those again that have ended, by themselves or by a fault.
sub mind_children
{
	while ((my $pid = waitpid(-1, WNOHANG)) > 0)
	{
		my $name = delete $client{$pid};
		delete $child{$pid};
		push @undo, [ time + 0.3, 'client', sub { start_client($name); 1 } ]
		  if $name && !($stopping && $name =~ /send/) && $stopping < 2;
	}
}

# ---------------------------------------------------------------- undoing

sub later
{
	my ($after, $kind, $sub) = @_;

	push @undo, [ time + $after, $kind, $sub ];
}

# What a fault left, by a statement that is tried until it works.
sub later_sql
{
	my ($after, $sql) = @_;

	later($after, 'sql', sub {
		write_file('undo', "SET lock_timeout = '5s';\n$sql" . ($sql =~ /gexec/ ? "\n" : ";\n"));
		$query_patience = 6;
		my $done = defined(query('-f', "$directory/undo.sql"));
		$query_patience = $patience;
		return $done;
	});
}

sub undo_due
{
	my ($kind, $now) = @_;
	my @due = grep { $_->[0] <= $now && (!$kind || $_->[1] eq $kind) } @undo;

	foreach my $entry (@due)
	{
		@undo = grep { $_ != $entry } @undo;
		$entry->[2]->() or push @undo, [ time + 0.5, $entry->[1], $entry->[2] ];
	}
}

sub undo_all
{
	undo_due($_[0], 9e99);
}

# those that stop everything are rarer than the others
require "$FindBin::Bin/faults.pl";
my @faults = map { ($_) x (/restart|postmaster|fail_over/ ? 1 : 2) } sort($ENV{SOAK_FAULTS} ? split(' ', $ENV{SOAK_FAULTS}) : keys %fault);

sub inject
{
	my $kind = pick(@faults);
	my $what = ($fault{$kind} // die "there is no fault \"$kind\"\n")->() // return;

	$done{$kind}++;
	say_line("$kind: $what");
}

# ---------------------------------------------------------------- checks

sub check_wrong
{
	my $found = sure_query('-f', "$FindBin::Bin/wrong.sql");

	$passed{'nothing is lost or doubled'}++ if $found eq '';
	wrong('nothing is lost or doubled', $_) for split /\n/, $found;
}

my %progress;    # job or queue => [ last seen, since when ]

# Each job runs, each queue is worked on; whoever stood still since patience is stuck.
sub check_progress
{
	my $seen = sure_query('-c', q{
		SELECT 'job ' || j.name, max(r.run_id) FROM sweep.job AS j LEFT JOIN sweep.runs AS r ON r.job = j.name AND r.status = 'succeeded' GROUP BY j.name
		UNION ALL SELECT 'queue ' || name, CASE WHEN EXISTS (SELECT FROM sweep.queue_message AS m WHERE m.queue_id = q.queue_id)
				THEN (SELECT max(at)::text FROM soak.handled WHERE queue = q.name) ELSE clock_timestamp()::text END
			FROM sweep.queue AS q WHERE name <> 'gone'} =~ s/max\(r\.run_id\)/max(r.run_id)::text/r);

	foreach my $line (split /\n/, $seen)
	{
		my ($name, $value) = split /\|/, $line, 2;
		my $last = $progress{$name};
		if (!$last || $last->[0] ne $value)
		{
			$progress{$name} = [ $value, time ];
			$passed{'nothing is stuck'}++;
		}
		elsif (time - $last->[1] > $patience)
		{
			wrong('nothing is stuck', sprintf('%s stands still for %.0f s: %s', $name, time - $last->[1],
				sure_query('-c', "SELECT string_agg(state, ', ') FROM sweep.jobs WHERE 'job ' || name = '$name'")));
			$last->[1] = time;
		}
	}
}

my %memory;      # "pid kind" => [ first look, kB then ]

# Private memory that grows without end: an eighth more, and 4 MB, is none.
sub check_memory
{
	my $found = query('-c', q{SELECT pid, backend_type, backend_start FROM pg_stat_activity
		WHERE backend_type ~ '^pg_sweep (launcher|scheduler|consumer)' AND backend_start < now() - interval '5 s'}) // return;

	foreach (split /\n/, $found)
	{
		my ($pid, $kind) = split /\|/;
		open(my $file, '<', "/proc/$pid/status") or next;
		my ($size) = join('', <$file>) =~ /^RssAnon:\s+(\d+)/m or next;
		my $first = $memory{$_} //= $size;
		if ($size > $first * 1.125 + 4096)
		{
			wrong('memory is flat', "$kind $pid grew from $first to $size kB");
			$memory{$_} = $size;
		}
		else
		{
			$passed{'memory is flat'}++;
		}
	}
}

# Everything that was under way has ended by itself.
sub wait_for_rest
{
	my ($name, $pattern) = @_;
	my $deadline = time + $patience;
	my $left;

	while (1)
	{
		mind_children();
		undo_due(undef, time);
		$left = join("\n", grep { /$pattern/ } split /\n/, sure_query('-f', "$FindBin::Bin/rest.sql"));
		last if $left eq '' || time > $deadline;
		sleep(0.5);    # the sleep is the work
	}
	$passed{$name}++ if $left eq '';
	wrong($name, $_) for split /\n/, $left;
}

# What restores have found: a fault may just have dropped one job.
sub check_restored
{
	foreach my $file (glob("$directory/soak_restored_*.found.sql"))
	{
		open(my $found, '<', $file) or next;
		my $text = <$found>;
		unlink($file);
		$text =~ /^1[23] jobs, 4 queues, 1 consumers$/ ? $passed{'what is restored is whole'}++ : wrong('what is restored is whole', $text);
	}
}

sub check_readable
{
	# by a client that reads UTF8, which is what the database has
	my $found = query('-c', "SELECT count(application_name), count(query) FROM pg_stat_activity");

	return $passed{'UTF8 clients read pg_stat_activity'}++ if defined($found);
	wrong('UTF8 clients read pg_stat_activity', 'no') if query('-c', 'SELECT 1') && !defined(query('-c', 'SELECT max(application_name) FROM pg_stat_activity'));
}

# What nobody meant to happen, from the log of the server.
sub check_log
{
	my %seen;

	local @ARGV = server_logs();
	while (<>)
	{
		# of a database that is dropped later in the log which it replays; of a standby whose server has gone; of a full disk
		next if / startup WARNING: .*"base\/| walreceiver FATAL: |FATAL:  could not write init file/;
		wrong('the log has nothing odd', $_) if /^TRAP|\bPANIC:|leak|XX00[0-9]|was terminated by signal (?!9\b|9:)|exited with exit code (?!1\b)/
		  || / (?:WARNING|ERROR|FATAL): .*(?:lock .*not|corrupt|could not (?:read|open|find|access)|cache lookup|unexpected(?! postmaster exit)|shared memory)/;
		next unless my ($state, $process, $level, $text) = /\] (\w{5}) (pg_sweep \w+|client backend) .*?(WARNING|ERROR|FATAL):  (.*)/;
		# what the faults lead to, and what the clients and messages are meant to do
		wrong('the log has nothing odd', $_) if $process =~ /^pg_sweep/ && $state !~ /^(?:57P0[123]|57014|55P03|53400|53100|55000|01000|42501|28000|3D000|08006|P0001)$/;
		$text =~ s/[0-9]+/N/g;
		$text =~ s/"[^"]*"/"…"/g;
		$seen{"$process $state $level: " . substr($text, 0, 90)}++;
	}
	$passed{'the log has nothing odd'}++ unless $failed{'the log has nothing odd'};
	print "\nThe log of the server:\n";
	printf "%6d  %s\n", $seen{$_}, $_ for sort { $seen{$b} <=> $seen{$a} } keys %seen;
}

# What was done and found; the end of it all.
sub report
{
	my ($good, $bad) = (scalar(grep { !$failed{$_} } keys %passed), scalar(keys %failed));
	my $faults = 0;

	kill('TERM', keys %client, keys %child);
	print "\nFaults:\n";
	foreach (sort keys %done)
	{
		printf "%6d  %s\n", $done{$_}, $_;
		$faults += $done{$_};
	}
	print "\n";
	printf "%s - %s%s\n", $failed{$_} ? 'not ok' : 'ok', $_, $failed{$_} ? " ($failed{$_} times)" : '' for sort keys %{ { %passed, %failed } };
	print "\n$faults faults, SEED=$seed\n$good passed, $bad failed\n";
	exit($bad ? 1 : 0);
}

# ---------------------------------------------------------------- all of it

sub run_faults
{
	my ($next_fault, $next_check, $next_look) = (time + 3, time + 5, time + 1);

	while (time < $started + $seconds)
	{
		mind_children();
		undo_due(undef, time);
		if (time >= $next_fault)
		{
			inject() if keys(%child) < 12;
			$next_fault = time + rand(2);
		}
		if (time >= $next_look)
		{
			check_memory();
			check_readable();
			check_restored();
			$next_look = time + 2;
		}
		if (time >= $next_check)
		{
			my $from = time;
			check_wrong();
			check_progress();
			# a check over a long table does not become the load
			$next_check = time + 3 + 5 * (time - $from);
		}
		sleep(0.05);    # the sleep is the work
	}
}

$| = 1;
srand($seed);
print "SEED=$seed SOAK_SECONDS=$seconds\n";
start_server();
use_small_disk();
query('-f', "$FindBin::Bin/setup.sql") // die "setup.sql failed, see $directory/queries.log\n";
write_scripts();
my @clients = ((map { "send_$_" } qw(inside outside once by_job slowly)), qw(consume_outside consume_outside consume_once consume_once consume_inside call listen));
start_client($_) for @clients;
run_faults();

say_line('no more faults');
undo_all();
$stopping = 1;
sure_query('-c', 'ALTER SYSTEM RESET ALL', '-c', 'SELECT pg_reload_conf()');
sure_query('-c', 'SELECT sweep.resume_all()');
sure_query('-c', "SELECT sweep.pause(name) FROM sweep.job WHERE name IN ('feed', 'send')");
kill('TERM', grep { $client{$_} =~ /send/ } keys %client);
wait_for_rest('what is left is done', '^(row of|message)');
check_progress();
my $run_ids = sure_query('-c', "SELECT sweep.pause(name) FROM sweep.job", '-c',
	"SELECT string_agg(sweep.start(name)::text, ',') FROM sweep.job WHERE name NOT IN ('feed', 'send', 'call')") =~ s/\s//gr;
$stopping = 2;
kill('TERM', keys %client);
wait_for_rest('everything comes to rest', '.');
my $failures = sure_query('-c', "SELECT format('%s #%s %s %s %s', job, run_id, status, stop_reason, error) FROM sweep.runs WHERE run_id IN ($run_ids) AND status <> 'succeeded'");
wrong('each job runs at the end', $_) for split /\n/, $failures;
$passed{'each job runs at the end'}++ if $failures eq '';
check_wrong();
check_memory();
stop_server('fast');
check_wrong();
check_log();

print "\nWork:\n", sure_query('-c', q{
	SELECT format('%6s  runs of %s', count(*), job) FROM sweep.runs GROUP BY job
	UNION ALL SELECT format('%6s  messages sent to %s', count(*), queue) FROM soak.sent GROUP BY queue
	UNION ALL SELECT format('%6s  effects of %s', count(*), queue) FROM soak.handled GROUP BY queue
	UNION ALL SELECT format('%6s  messages are dead', count(*)) FROM sweep.queue_dead}), "\n";
report();
