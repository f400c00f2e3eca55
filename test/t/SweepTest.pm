# What the TAP tests share: a cluster with pg_sweep, a table of work, a step
# that a test can stop in the middle of a batch, and waiting with a deadline.
#
# Nothing here sleeps, but for the wait between two looks of a poll. A race is pinned by an advisory lock: the test holds the
# gate, the step waits at it, and the test sees it wait in pg_locks.
package SweepTest;

use strict;
use warnings;

use Exporter 'import';
use Fcntl ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(new_cluster prepare_database sql start soon not_before_the_hour session begin_query end_query
  hold_gate open_gate step_gate at_gate forget_session pid_of kill_process flush_wal crash_of wait_for_server restart_after ended_run cpu_seconds tick keep_scheduler not_before_the_minute take_lock
  due_run start_with_clock set_clock event_name);

# Long enough for a loaded machine, short enough to see a failure today.
$PostgreSQL::Test::Utils::timeout_default = $ENV{PG_TEST_TIMEOUT_DEFAULT} || 120;

# The cluster that a test has made first, which sql and start ask.
my $cluster;

# A started cluster with these lines of configuration; the extension and the
# work are in database postgres, with gitlab => 1 the jobs of GitLab too; with
# app => 1 there is only the extension, in database app, with bare => 1 nothing;
# with clock => 1 its wall clock can be set (set_clock). With SWEEP_PREPARES_UNWATCHED
# they are made by a server that check-memory does not watch. A later cluster of a
# test has a system identifier of its own, unless again => 1 says that it needs none.
sub new_cluster
{
	my ($name, %option) = @_;
	my $node = bless PostgreSQL::Test::Cluster->new($name), 'SweepTest::Node';
	my $template = $ENV{SWEEP_TEMPLATES} && (!$cluster || $option{again}) && !$option{init};
	my $kind = $option{bare} ? 'bare' : $option{app} ? 'app' : 'prepared';

	$cluster //= $node;
	$template ? init_from_template($node, $kind) : $node->init(%{ $option{init} || {} });
	$node->append_conf('postgresql.conf',
		join("\n",
			"shared_preload_libraries = '" . ($option{preload} // 'pg_sweep') . "'",
			'log_statement = none',
			'restart_after_crash = on',
			'max_worker_processes = 20',
			'timezone = UTC',
			# To compile a query takes longer than to execute it.
			'jit_above_cost = -1',
			@{ $option{conf} || [] }));
	{
		local $ENV{SWEEP_UNWATCHED} = $ENV{SWEEP_PREPARES_UNWATCHED} // '';
		$option{clock} ? start_with_clock($node) : $node->start;
		prepare($node, $kind) unless $template;
		$node->safe_psql('postgres', 'CREATE EXTENSION pg_sweep_gitlab') if $option{gitlab};
	}
	if ($ENV{SWEEP_PREPARES_UNWATCHED})
	{
		$node->stop;
		$node->start;
	}
	return $node;
}

# Copies a data directory that the tests of a check have in common: initdb and CREATE EXTENSION take longer than most tests do
# besides. The first test that needs it makes it. All copies have one system identifier.
sub init_from_template
{
	my ($node, $kind) = @_;
	my $template = "$ENV{SWEEP_TEMPLATES}/$kind";

	open(my $lock, '>>', "$template.lock") or die "$template.lock: $!";
	flock($lock, Fcntl::LOCK_EX) or die "$template.lock: $!";
	make_template($kind, $template) unless -d $template;
	close($lock);
	mkdir($_) for $node->backup_dir, $node->archive_dir;
	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', $template, $node->data_dir);
	$node->append_conf('postgresql.conf', join("\n", 'port = ' . $node->port, "unix_socket_directories = '" . $node->host . "'"));
}

# The lines of configuration that matter come with the cluster that is made of it.
sub make_template
{
	my ($kind, $template) = @_;
	my $node = PostgreSQL::Test::Cluster->new($kind);

	local $ENV{SWEEP_UNWATCHED} = $ENV{SWEEP_PREPARES_UNWATCHED} // '';
	$node->init;
	if ($kind ne 'bare')
	{
		$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_sweep'");
		$node->start;
		prepare($node, $kind);
		$node->stop;
	}
	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', $node->data_dir, "$template.new");
	rename("$template.new", $template) or die "$template: $!";
}

# What a cluster of that kind has.
sub prepare
{
	my ($node, $kind) = @_;

	prepare_database($node, 'postgres') if $kind eq 'prepared';
	return unless $kind eq 'app';
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', 'CREATE EXTENSION pg_sweep');
}

# Starts a server of which set_clock sets the wall clock. A server that is stopped and started again is started by this
# function again; one that comes back by itself, or by pg_ctl restart within it, keeps its clock.
sub start_with_clock
{
	my ($node, $start) = @_;
	my $library = PostgreSQL::Test::Utils::tempdir . '/clock_shim.so';
	my $file = $node->basedir . '/clock';

	system('cc', '-shared', '-fPIC', '-O1', '-o', $library, __FILE__ =~ s{[^/]*$}{clock_shim.c}r, '-ldl') == 0
	  or die 'clock_shim.c does not compile';
	set_clock($node, 0) unless -e $file;
	local $ENV{LD_PRELOAD} = $library;
	local $ENV{CLOCK_SHIM} = $file;
	return $start ? $start->() : $node->start;
}

# Sets the wall clock of a server, running or not, to that of the machine and so many seconds more; they may be negative.
sub set_clock
{
	my ($node, $seconds) = @_;

	# Into the file that is mapped: it must be neither replaced nor cut.
	sysopen(my $file, $node->basedir . '/clock', Fcntl::O_WRONLY | Fcntl::O_CREAT) or die "clock: $!";
	syswrite($file, pack('q', int($seconds * 1_000_000))) == 8 or die "clock: $!";
	chmod(0644, $file);
	close($file);
}

# t.work handles rows of t.todo. Its args:
#   gate, gate_at   from batch gate_at on, waits in the middle of the batch for
#                   the advisory lock (gate, number of the batch)
#   queue           hands every row on to that queue
# t.note has no work: it writes down that it was called. Its args:
#   gate            an advisory lock that it waits for
#   alone           an advisory lock that it holds for the batch; if somebody
#                   else does, that is an overlap
sub prepare_database
{
	my ($node, $database) = @_;

	$node->safe_psql($database, q{
		CREATE EXTENSION pg_sweep;
		CREATE SCHEMA t;
		CREATE TABLE t.todo (id bigint PRIMARY KEY, run_id bigint);
		CREATE FUNCTION t.work(b sweep.batch) RETURNS sweep.progress
			LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
		AS $$
		DECLARE
			nth int := coalesce((b.cursor ->> 'nth')::int, 0) + 1;
			ids bigint[];
		BEGIN
			WITH taken AS (UPDATE t.todo SET run_id = b.run_id
				WHERE id IN (SELECT id FROM t.todo WHERE run_id IS NULL ORDER BY id LIMIT b.size) RETURNING id)
			SELECT array_agg(id ORDER BY id) INTO ids FROM taken;
			IF b.args ? 'queue' AND ids IS NOT NULL THEN
				PERFORM sweep.send_many(b.args ->> 'queue',
					(SELECT array_agg(jsonb_build_object('id', i)) FROM unnest(ids) AS i), ids::text[]);
			END IF;
			IF b.args ? 'gate' AND nth >= coalesce((b.args ->> 'gate_at')::int, 1) THEN
				PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::int, nth);
			END IF;
			RETURN ROW(coalesce(cardinality(ids), 0), jsonb_build_object('nth', nth), NULL)::sweep.progress;
		END
		$$;
		CREATE TABLE t.started (job text, run_id bigint, at timestamptz DEFAULT clock_timestamp());
		CREATE TABLE t.overlap (run_id bigint);
		CREATE FUNCTION t.note(b sweep.batch) RETURNS sweep.progress
			LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
		AS $$
		BEGIN
			INSERT INTO t.started VALUES (b.args ->> 'job', b.run_id);
			IF b.args ? 'alone' AND NOT pg_try_advisory_xact_lock((b.args ->> 'alone')::bigint) THEN
				INSERT INTO t.overlap VALUES (b.run_id);
			END IF;
			IF b.args ? 'gate' THEN
				PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::bigint);
			END IF;
			RETURN ROW(0, NULL, NULL)::sweep.progress;
		END
		$$;
	});
	$node->safe_psql($database, q{
		DO $$
		BEGIN
			IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'jobber') THEN
				CREATE ROLE jobber LOGIN IN ROLE sweep_user;
			END IF;
		END
		$$;
		GRANT USAGE ON SCHEMA t TO PUBLIC;
		GRANT ALL ON ALL TABLES IN SCHEMA t TO PUBLIC;
	});
}

# What a query answers, in database postgres and as the superuser; database and user are options. An error ends the test.
sub sql
{
	die 'sql: the options are named' unless @_ % 2;
	my ($query, %option) = @_;
	my @user = $option{user} ? (extra_params => [ '-U', $option{user} ]) : ();

	return $cluster->safe_psql($option{database} // 'postgres', $query, @user);
}

# Starts a job, with these args if any; returns its run_id.
sub start
{
	my ($job, $args) = @_;

	return sql("SELECT sweep.start('$job'" . (defined $args ? ", '$args'" : '') . ')');
}

# Passes when the query gives the expected text before the deadline.
sub soon
{
	my ($node, $query, $expected, $name, $database) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($node->poll_query_until($database // 'postgres', $query, $expected), $name);
}

# Waits until no full hour is within the next fifty seconds: for what must not become due meanwhile.
sub not_before_the_hour
{
	my ($node) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, 'SELECT floor(extract(epoch FROM now())) % 3600 < 3550', 't', 'no full hour soon');
}

# A psql that stays; it goes on after errors. Its deadline is that of each question, and of its end, not of all that a
# test does while it has it.
sub session
{
	my ($node, %option) = @_;
	my @user = $option{user} ? (extra_params => [ '-U', $option{user} ]) : ();
	my $session = $node->background_psql($option{database} // 'postgres', on_error_stop => 0, @user);

	$session->set_query_timer_restart();
	return bless $session, 'SweepTest::Session';
}

# The name that a wait event has on this server.
sub event_name
{
	my ($name) = @_;

	return sql('SHOW server_version_num') >= 170000 ? $name : 'Extension';
}

# Sends a statement and returns at once; end_query waits for its end and
# returns what it and all since said, output and messages.
sub begin_query
{
	my ($session, $query) = @_;

	$session->query_until(qr/begun/, "\\echo begun\n$query;\n");
}

sub end_query
{
	my ($session) = @_;
	my $output = $session->query('SELECT 1 WHERE false');
	my $messages = $session->{stderr};

	$session->{stderr} = '';
	return "$output\n$messages";
}

# Takes a lock that a session may still have which has just ended.
sub take_lock
{
	my ($session, $lock) = @_;

	$session->query_safe("DO \$\$BEGIN WHILE NOT sweep.try_lock('$lock') LOOP END LOOP; END\$\$");
}

# A session that holds the gate until it is given to open_gate.
sub hold_gate
{
	my ($node, $gate, $database) = @_;
	my $session = session($node, database => $database);

	$session->query_safe("SELECT pg_advisory_lock($gate), count(*) FROM (SELECT pg_advisory_lock($gate, n) FROM generate_series(1, 20) AS n) AS batches");
	return $session;
}

sub open_gate
{
	my ($session) = @_;

	$session->query_safe('SELECT pg_advisory_unlock_all()');
	$session->quit;
}

# What waits at a gate.
sub gate_condition
{
	my ($gate) = @_;

	return "locktype = 'advisory' AND NOT granted AND (objsubid = 1 AND objid = $gate OR objsubid = 2 AND classid = $gate)";
}

# Lets the one batch pass that waits at the gate, and returns when the next one
# waits there. Each batch has a lock of its own, so that none can slip through.
sub step_gate
{
	my ($node, $session, $gate) = @_;
	my $waits = gate_condition($gate);
	my $nth = $node->safe_psql('postgres', "SELECT objid FROM pg_locks WHERE $waits");

	$session->query_safe("SELECT pg_advisory_unlock($gate, $nth)");
	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE $waits AND objid <> $nth")
	  or die "nothing waits at gate $gate";
}

# Ends a psql whose server is gone.
sub forget_session
{
	my ($session) = @_;

	# Not by the end of its input: a server started since has inherited that pipe.
	eval { $session->quit; };
}

# Passes when a step waits at the gate.
sub at_gate
{
	my ($node, $gate, $name, $database) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, 'SELECT count(*) > 0 FROM pg_locks WHERE ' . gate_condition($gate), 't', $name // "a batch waits at gate $gate", $database);
}

# The pid of our process of that kind in a database; waits for it.
sub pid_of
{
	my ($node, $kind, $database) = @_;
	my $where = "backend_type = 'pg_sweep $kind'" . ($database ? " AND datname = '$database'" : '');

	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE $where")
	  or die "there is not one $kind";
	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE $where");
}

# Sends a signal to one process of our own cluster, known by its pid.
sub kill_process
{
	my ($signal, $pid) = @_;

	die "no pid" unless $pid && $pid =~ /^\d+$/;
	return kill($signal, $pid) == 1;
}

# Has all that is committed on disk: a run does not wait for that when it starts, so a crash right after it may
# leave a run that never began.
sub flush_wal
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CHECKPOINT');
}

# Kills a process without mercy and waits until the server has restarted by
# itself, which it does whichever process that was.
sub crash_of
{
	my ($node, $pid) = @_;
	my $offset = -s $node->logfile;

	kill_process('KILL', $pid) or die "process $pid could not be killed";
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
	wait_for_server($node);
}

# Waits until the server lets sessions in. A psql that is refused ends without reading what it is asked through a
# pipe, and to write into that is an error of its own, which says no more than "not yet".
sub wait_for_server
{
	my ($node) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	until (eval { $node->poll_query_until('postgres', 'SELECT true') })
	{
		die 'the server did not come back' if time > $deadline;
	}
}

# Restarts the server, changed (SQL) while no process of pg_sweep lives: what the change makes due begins after the restart
# and not before it, when the shutdown would end it.
sub restart_after
{
	my ($node, $change) = @_;

	my $preloaded = $node->safe_psql('postgres', 'SHOW shared_preload_libraries');
	$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
	$node->restart;
	$node->safe_psql('postgres', $change);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$preloaded'");
	$node->restart;
}

# Waits for the end of a run, and until its process, which gives back what it has after that, has no more to do with
# it; returns status, stop_reason, batches and rows.
sub ended_run
{
	my ($node, $run_id, $database) = @_;

	$database //= 'postgres';
	$node->poll_query_until($database, "SELECT finished_at IS NOT NULL AND NOT EXISTS (SELECT FROM sweep.running WHERE run_id = $run_id)
		FROM sweep.runs WHERE run_id = $run_id")
	  or return 'not ended';
	return $node->safe_psql($database,
		"SELECT concat_ws(' ', status, stop_reason, batches, rows) FROM sweep.runs WHERE run_id = $run_id");
}

# A run of a job whose moment has come; returns its run_id. What is started waits for its lock instead.
sub due_run
{
	my ($node, $job) = @_;

	return $node->safe_psql('postgres', "WITH due AS (INSERT INTO sweep.run_live (job, trigger, due_at, run_as)
		SELECT name, 'schedule', clock_timestamp(), run_as FROM sweep.job WHERE name = '$job' RETURNING run_id) SELECT d.run_id FROM due d, sweep._wake()");
}

# Lets a scheduler make a whole tick in a database, after what it was told before (SQL, if any): one that was in progress may
# have looked already. Returns what a query finds then. A run that has ended is moved to the history at the end of a tick.
sub tick
{
	my ($node, %option) = @_;

	return $node->safe_psql($option{database} // 'postgres', ($option{after} // '') . q{
		DO $$
		DECLARE
			began constant timestamptz := clock_timestamp();
		BEGIN
			FOR i IN 1..2 LOOP
				INSERT INTO sweep.run_live (run_id, job, trigger, due_at, finished_at, pid, status, stop_reason) OVERRIDING SYSTEM VALUE
					VALUES (-i, '} . ($option{job} // '') . q{', 'manual', began, began, 0, 'skipped', 'skipped');
				PERFORM sweep._wake();
				COMMIT;
				WHILE EXISTS (SELECT FROM sweep.run_live WHERE run_id = -i) LOOP
					IF clock_timestamp() > began + interval '60 s' THEN
						RAISE EXCEPTION 'no scheduler ticks';
					END IF;
				END LOOP;
				DELETE FROM sweep.run_history WHERE run_id = -i;
				COMMIT;
			END LOOP;
		END
		$$;
	} . ($option{query} // ''));
}

# Has a scheduler stay in a database: a job is due each minute.
sub keep_scheduler
{
	my ($node, $database) = @_;

	$node->safe_psql($database // 'postgres', q{SELECT sweep.create_job('each minute', sql => 'SELECT', schedule => '* * * * *')});
	return pid_of($node, 'scheduler', $database // 'postgres');
}

# Waits until that job is not due soon: for what must not meet a run of it.
sub not_before_the_minute
{
	my ($node, $database) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	soon($node, q{SELECT next_run > now() + interval '25 s' AND NOT EXISTS (SELECT FROM sweep.running) FROM sweep.jobs WHERE name = 'each minute'}, 't',
		'no run of each minute soon', $database);
}

# What a process has used of a processor, user and system.
sub cpu_seconds
{
	my ($pid) = @_;
	my @field = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;

	return ($field[11] + $field[12]) / 100;
}

# A cluster whose safe_psql and poll_query_until ask a psql that stays, in a session for each call as ever: a psql for each call takes longer than
# most of what is asked. What only reads is read in the session before, if that was one of the superuser in this database. A query that tells
# psql something, or is about a database, has a psql of its own.
package SweepTest::Node;

use KeptPsql;
use Time::HiRes ();

our @ISA = ('PostgreSQL::Test::Cluster');

sub safe_psql
{
	my ($self, $database, $query, %option) = @_;
	my ($flag, $user, @more) = @{ $option{extra_params} || [ '-U', '' ] };
	my $is_plain = keys(%option) == !!$option{extra_params} && !@more && $flag eq '-U' && "$database$user" =~ /^\w+$/a && is_plain($query);

	return $self->SUPER::safe_psql($database, $query, %option) unless $is_plain;
	my $reads = $user eq '' && only_reads($query);
	my ($output, $messages, $failed) = ask($self, $database, $user, $query, session => $reads);
	# The session may have ended meanwhile, with its server.
	($output, $messages, $failed) = ask($self, $database, $user, $query) if $failed && $reads;
	die "error running SQL: '$messages'\nwhile running 'psql' with sql '$query'" if $failed;
	print "#### Begin standard error\n$messages\n#### End standard error\n" if $messages ne '';
	return $output;
}

sub is_plain
{
	my ($query) = @_;

	return length($query) < 30_000 && $query !~ /\\[a-z]/ && $query !~ /\bDATABASE\b/i && !utf8::is_utf8($query);
}

# No function of ours is called, which may do something, and no setting is looked at.
sub only_reads
{
	my ($query) = @_;

	return $query =~ /\A\s*(?:SELECT|TABLE|WITH)\b/i && $query !~ /\b(?:sweep|sweep_gitlab|t)\.\w+\(|\b(?:set_config|current_setting|nextval|pg_(?!snapshot|relation|table|total|has|get)\w+)\(|;\s*\S|\b(?:INSERT|UPDATE|DELETE|INTO|txid_\w+)\b/i;
}

# Its session would be in the way of a command on its database.
sub psql
{
	my ($self, @arguments) = @_;

	end_psql($self);
	return $self->SUPER::psql(@arguments);
}

sub poll_query_until
{
	my ($self, $database, $query, $expected) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my $answer;
	my $pause = 20_000;

	$expected //= 't';
	while ((my $seconds = $deadline - time) > 0)
	{
		my ($output, $messages, $failed) = ask($self, $database, '', $query, session => defined $answer || only_reads($query), seconds => $seconds);

		$answer = $output . $messages;
		# A query that is still waiting has said nothing, which is not an empty answer.
		return 1 if !$failed && $answer eq $expected;
		Time::HiRes::usleep($pause); # the sleep is the work: this is the wait between two looks
		$pause = $pause < 150_000 ? $pause * 1.5 : 200_000;
	}
	Test::More::diag("in $PostgreSQL::Test::Utils::timeout_default s\n$query\nhas not become\n$expected\nbut was\n$answer");
	return 0;
}

# As KeptPsql::ask.
sub ask
{
	my ($self, $database, $user, $query, %option) = @_;
	my $connection = $self->connstr($database) . ($user eq '' ? '' : " user=$user");
	my @answer = kept_psql($self, $database)->ask($connection, $query, %option);

	end_psql($self) if $answer[3];
	return @answer;
}

# It inherits the environment that it is started in.
sub kept_psql
{
	my ($self, $database) = @_;
	my $psql = $self->{sweep_psql};

	local %ENV = $self->_get_env();
	my $environment = join("\0", map { "$_=$ENV{$_}" } grep { /^PG/ } sort keys %ENV);
	return $psql if $psql && $psql->is_own && $self->{sweep_psql_environment} eq $environment;
	end_psql($self);
	$self->{sweep_psql_environment} = $environment;
	return $self->{sweep_psql} = KeptPsql->new(
		[ $self->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $self->connstr($database), '-f', '-' ],
		$self->basedir . "/messages_of_psql_$$");
}

sub end_psql
{
	my ($self) = @_;
	my $psql = delete $self->{sweep_psql};

	$psql->end if $psql && $psql->is_own;
}

package SweepTest::Session;

our @ISA = ('PostgreSQL::Test::BackgroundPsql');

sub quit
{
	my ($self) = @_;

	$self->{timeout}->start;
	return $self->SUPER::quit;
}

1;
