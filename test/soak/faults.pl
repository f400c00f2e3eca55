# The faults of the soak, by name. Each does its harm, arranges what undoes it, and returns what it did; nothing
# where it could not be done. Loaded by soak.pl, whose functions they use.
use strict;
use warnings;

use POSIX ();
use Servers;
use Time::HiRes qw(time sleep);

our (%fault, %passed, %child, %client, @conf, $patience, $directory);

# ---------------------------------------------------------------- faults

sub pick
{
	return $_[ int(rand(@_)) ];
}

my @jobs = qw(feed sql step divided walk items rows send consume parent child);
my @tables = qw(run_history run_live job_definition job_state queue queue_message queue_dead bucket consumer quarantined_item control);

# The pid of one of our processes, or of a client.
sub some_process
{
	my ($whose) = @_;
	my $where = $whose eq 'ours' ? "backend_type LIKE 'pg\\_sweep%'" : "backend_type = 'client backend' AND usename = 'soaker'";
	my $found = query('-c', "SELECT pid, backend_type FROM pg_stat_activity WHERE $where AND pid <> pg_backend_pid() ORDER BY backend_type, pid") // '';
	my %pids;

	push @{ $pids{ $_->[1] } }, $_->[0] for map { [ split /\|/ ] } split /\n/, $found;
	return () unless %pids;
	# each kind is as likely, however many there are
	my $kind = pick(sort keys %pids);
	return (pick(@{ $pids{$kind} }), $kind);
}

sub fault_signal
{
	my ($signal, $whose) = @_;
	my ($pid, $kind) = some_process($whose) or return;

	signal_process($signal, $pid) or return;
	later(0.5 + rand(3), 'signal', sub { signal_process('CONT', $pid); 1 }) if $signal eq 'STOP';
	return "$kind $pid";
}

sub fault_function
{
	my ($function, $whose) = @_;
	my ($pid, $kind) = some_process($whose) or return;

	return defined(query('-c', "SELECT $function($pid)")) ? "$kind $pid" : undef;
}

# A statement that sleeps, in a transaction that is then rolled back.
sub fault_hold
{
	my ($what, $duration) = @_;

	in_background("BEGIN; $what; SELECT pg_sleep($duration); ROLLBACK");    # the sleep is the work
	return $what;
}

sub fault_with_undo
{
	my ($sql, $undo, $after) = @_;

	later_sql($after // 0.5 + rand(3), $undo);
	in_background($sql, 'postgres');
	return $sql;
}

sub fault_prepared
{
	my $name = 'soak ' . int(rand(1e9));
	my $end = pick('COMMIT', 'ROLLBACK');

	in_background("BEGIN; SELECT soak.send('inside', 3); SELECT soak.send('outside', 3); PREPARE TRANSACTION '$name'", 'soaker');
	# it may never have been prepared
	later_sql(1 + rand(5), "SELECT '$end PREPARED ''$name''' FROM pg_prepared_xacts WHERE gid = '$name' \\gexec");
	return $end;
}

sub fault_crash_postmaster
{
	my $pid = postmaster();
	my @children = grep { is_ours($_) } map { /(\d+)/ } glob('/proc/[0-9]*');
	my $deadline = time + $patience;

	undo_all('signal');
	kill('KILL', $pid) or return;
	while (my @left = grep { -e "/proc/$_" && (readlink("/proc/$_/exe") // '') =~ /postgres/ } @children)
	{
		if (time > $deadline)
		{
			wrong('processes end with their postmaster', "@left");
			kill('KILL', @left);
		}
		sleep(0.1);    # the sleep is the work
	}
	# where nobody collects orphans, what is left of it looks like a server that runs
	unlink(server() . '/data/postmaster.pid', glob(readlink(server() . '/socket') . '/.s.PGSQL.*.lock'));
	start_server();
	return scalar(@children) . ' processes';
}

# ---------------------------------------------------------------- faults of the server's surroundings

# A standby takes the place of the server, with a clock that differs by up to 10 s. After a synchronous one all messages are
# there that a client had been told of; after another one what is there fits together, as always.
sub fault_fail_over
{
	my $seconds = sprintf('%.1f', rand(20) - 10);
	my $mode = pick('synchronous', 'asynchronous');
	my $sent = 0;

	make_standby($seconds, @conf) or return;
	if ($mode eq 'synchronous')
	{
		sure_query('-c', "ALTER SYSTEM SET synchronous_standby_names = '*'", '-c', 'SELECT pg_reload_conf()');
		my $deadline = time + $patience;
		until ((query('-c', "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") // 0) == 1)
		{
			if (time > $deadline)
			{
				wrong('the standby follows', "not within $patience s");
				last;
			}
			sleep(0.1);    # the sleep is the work
		}
		# The second statement commits when the standby has all that the first one has seen.
		$sent = query('-c', "SELECT count(*) FROM soak.sent WHERE queue = 'outside'", '-c', "SELECT left(pg_logical_emit_message(true, 'soak', '')::text, 0)") // 0;
	}
	undo_all('signal');
	stop_cluster('immediate') == 0 or wrong('the server stops', "for a failover: status $?");
	unless (promote_standby())
	{
		wrong('the standby is promoted', "status $?");
		report();
	}
	my $left = sure_query('-c', "SELECT count(*) FROM soak.sent WHERE queue = 'outside'");
	wrong('a synchronous standby has all', "$left of $sent messages") if $left < $sent;
	$passed{'a synchronous standby has all'}++ if $mode eq 'synchronous';
	return "$mode, clock $seconds s";
}

sub fault_clock
{
	my $seconds = sprintf('%.1f', rand(20) - 10);

	set_clock($seconds);
	return "$seconds s";
}

sub fault_disk_full
{
	fill_disk() or return;
	later(0.5 + rand(3), 'signal', \&free_disk);
	return 'full';
}

# A dump that is restored by several processes at once has what was in it.
sub fault_restore
{
	my $name = 'soak_restored_' . int(rand(1e6));
	my $format = pick('custom', 'directory');
	my $pid = fork() // die "fork: $!";

	if (!$pid)
	{
		my @at = ('-h', readlink(server() . '/socket'), '-p', $ENV{SOAK_PORT}, '-U', 'postgres');
		my $dump = "$directory/$name";
		open(STDOUT, '>>', "$directory/statements.log");
		open(STDERR, '>&', \*STDOUT);
		# A fault may end each of these; what is not restored is not compared.
		my $restored = system("$ENV{SOAK_BINDIR}/pg_dump", @at, '-F', $format, '-f', $dump, 'postgres') == 0
		  && system("$ENV{SOAK_BINDIR}/createdb", @at, '-T', 'template0', $name) == 0
		  && system("$ENV{SOAK_BINDIR}/pg_restore", @at, '-j', '4', '-d', $name, $dump) == 0;
		my $found = $restored ? query('-d', $name, '-c', q{SELECT format('%s jobs, %s queues, %s consumers', (SELECT count(*) FROM sweep.job),
			(SELECT count(*) FROM sweep.queue WHERE name <> 'gone'), (SELECT count(*) FROM sweep.consumer))}) : undef;
		system('rm', '-rf', $dump);
		write_file("$name.found", $found) if defined($found);
		POSIX::_exit(0);
	}
	$child{$pid} = 1;
	later_sql(10 + rand(5), "DROP DATABASE IF EXISTS $name WITH (FORCE)");
	return "$name, $format";
}

# A database of another encoding, whose job names its process by bytes that are no UTF8. All the while UTF8 clients look at all processes.
sub fault_encoding
{
	my $name = 'soak_bytes_' . int(rand(1e6));
	my $encoding = pick('LATIN1', 'SQL_ASCII');

	later_sql(3 + rand(3), "DROP DATABASE IF EXISTS $name WITH (FORCE)");
	$child{ spawn("$directory/statements.log", psql_command('postgres', '-c', "CREATE DATABASE $name ENCODING '$encoding' LOCALE 'C' TEMPLATE template0",
			'-c', "\\connect $name", '-c', "SET client_encoding = '$encoding'", '-c', 'CREATE EXTENSION pg_sweep',
			'-c', qq{SELECT sweep.create_job(E'\\xe9t\\xe9', '* * * * * *', E'SET application_name = ''\\xe9''; SELECT pg_sleep(1)')})) } = 1;    # the sleep is the work
	return "$name, $encoding";
}

%fault = (
	fail_over => \&fault_fail_over,
	clock => \&fault_clock,
	disk_full => \&fault_disk_full,
	restore => \&fault_restore,
	encoding => \&fault_encoding,
	kill_ours => sub { fault_signal('KILL', 'ours') },
	kill_client => sub { fault_signal('KILL', 'client') },
	terminate_ours => sub { fault_signal('TERM', 'ours') },
	terminate_client => sub { fault_function('pg_terminate_backend', 'client') },
	cancel_ours => sub { fault_function('pg_cancel_backend', 'ours') },
	cancel_client => sub { fault_function('pg_cancel_backend', 'client') },
	stop_ours => sub { fault_signal('STOP', 'ours') },
	stop_client => sub { fault_signal('STOP', 'client') },
	restart_fast => sub { stop_server('fast'); 'done' },
	restart_immediate => sub { stop_server('immediate'); 'done' },
	kill_postmaster => \&fault_crash_postmaster,
	psql_dies => sub { my $pid = pick(sort keys %client) // return; kill('KILL', $pid); $client{$pid} },
	alter_job => sub { in_background("SELECT sweep.alter_job('" . pick(@jobs) . "', '{\"batch_size\": " . (5 + int(rand(20))) . "}')"); 'batch_size' },
	pause_job => sub { my $job = pick(@jobs); fault_with_undo("SELECT sweep.pause('$job')", "SELECT sweep.resume('$job')") },
	pause_all => sub { fault_with_undo('SELECT sweep.pause_all()', 'SELECT sweep.resume_all()') },
	pause_consumer => sub { fault_with_undo("SELECT sweep.pause_consumer('inside')", "SELECT sweep.resume_consumer('inside')") },
	disable_job => sub { my $job = pick(@jobs);
		fault_with_undo("SELECT sweep.alter_job('$job', '{\"paused\": true}')", "SELECT sweep.alter_job('$job', '{\"paused\": false}')") },
	drop_job => sub { fault_with_undo("SELECT sweep.drop_job('dropped')",
		q{SELECT sweep.create_job('dropped', step => 'soak.only_note', schedule => 'every 1 second', args => '{"job": "dropped"}', run_as => 'soaker')
			WHERE NOT EXISTS (SELECT FROM sweep.job WHERE name = 'dropped')}, 0.1 + rand(2)) },
	drop_queue => sub {
		in_background(join("\n", "SELECT sweep.create_queue('gone')", "SELECT sweep.send('gone', '1') FROM generate_series(1, 9)",
			"SELECT sweep.create_consumer('gone', 'soak.nothing')", "SELECT count(*) FROM sweep.claim('gone', 5)", "SELECT sweep.drop_queue('gone')"), 'soaker');
		later_sql(5, "SELECT sweep.drop_queue(name) FROM sweep.queue WHERE name = 'gone'");
		'gone' },
	cancel_run => sub { in_background('SELECT sweep.cancel(run_id) FROM sweep.runs WHERE finished_at IS NULL ORDER BY random() LIMIT 1'); 'one' },
	start_runs => sub { in_background("SELECT sweep.start('$_', delay => random() * interval '2 s')") for my @some = map { pick(@jobs) } 1 .. 3; "@some" },
	extension_locked => sub { fault_hold('CREATE FUNCTION soak.more() RETURNS int LANGUAGE sql RETURN 1; ALTER EXTENSION pg_sweep ADD FUNCTION soak.more()', 0.5 + rand(2)) },
	table_locked => sub { fault_hold('LOCK TABLE sweep.' . pick(@tables) . ' IN ACCESS EXCLUSIVE MODE', 0.5 + rand(2)) },
	rows_locked => sub { fault_hold('SELECT FROM sweep.' . pick(qw(job_definition job_state run_live queue consumer)) . ' FOR UPDATE', 0.5 + rand(2)) },
	old_snapshot => sub { fault_hold('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()', 5 + rand(10)) },
	vacuum_full => sub { my $table = pick(@tables); in_background("VACUUM FULL sweep.$table"); $table },
	reindex => sub { my $table = pick(@tables); in_background("REINDEX TABLE sweep.$table"); $table },
	truncate_nothing => sub { in_background('TRUNCATE sweep.queue_done'); 'queue_done' },
	pg_dump => sub {
		my @command = psql_command('postgres');
		$child{ spawn('/dev/null', "$ENV{SOAK_BINDIR}/pg_dump", @command[ 5 .. $#command ]) } = 1;
		'postgres' },
	reload => sub {
		my ($name, $value) = @{ pick([ 'pg_sweep.log_batches', 'batches' ], [ 'pg_sweep.max_share_per_role', '0.5' ], [ 'pg_sweep.max_share_per_role', '1' ],
			[ 'pg_sweep.notify_interval', '1s' ], [ 'pg_sweep.databases', 'postgres' ], [ 'pg_sweep.databases', 'none' ]) };
		later_sql(1 + rand(3), "ALTER SYSTEM RESET $name");
		later_sql(4.1, 'SELECT pg_reload_conf()');
		in_background("ALTER SYSTEM SET $name = '$value'");
		later_sql(0.3, 'SELECT pg_reload_conf()');
		"$name = $value" },
	role_renamed => sub { fault_with_undo('ALTER ROLE soaker RENAME TO renamed',
		"SELECT 'ALTER ROLE renamed RENAME TO soaker' FROM pg_roles WHERE rolname = 'renamed' \\gexec", 0.3 + rand(1)) },
	database => sub {
		my $name = 'soak_' . int(rand(1e6));
		later_sql(2 + rand(3), "DROP DATABASE IF EXISTS $name WITH (FORCE)");
		$child{ spawn("$directory/statements.log", psql_command('postgres', '-c', "CREATE DATABASE $name", '-c', "\\connect $name", '-c', 'CREATE EXTENSION pg_sweep',
			'-c', q{SELECT sweep.create_job('here', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', schedule => 'every 1 second')})) } = 1;
		$name },
	prepared => \&fault_prepared);

1;
