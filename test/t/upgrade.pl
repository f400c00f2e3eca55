# room: api
# The install scripts of released versions are kept in test/upgrade. The one of the current version, once kept, is what is
# built: whoever changes it has to begin a new version. What an older one has created becomes by ALTER EXTENSION UPDATE what
# the current one creates, and what users had in it is still there and works. Until then calls say what to do. rows-VERSION.sql is what that
# version itself has left when its server was stopped in the middle of a run.
use strict;
use warnings;

use FindBin;
use JSON::PP qw(decode_json);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $kept = "$FindBin::RealBin/../upgrade";
my $top = "$FindBin::RealBin/../..";
my $node = new_cluster('upgrade', conf => [ 'max_worker_processes = 60', 'pg_sweep.max_consumers = 40', 'pg_sweep.max_running_jobs = 10' ]);
my @filled = ([ 'fresh', 'a fresh installation' ]);
my $installed = slurp_output('pg_config', '--sharedir') . '/extension';

sub slurp_output
{
	my $output = '';

	IPC::Run::run([@_], '>', \$output) or die "@_";
	chomp $output;
	return $output;
}

# The output of a script of test/upgrade.
sub run_script
{
	my ($script, $database, $extension, $before, @user) = @_;
	my ($output, $error) = ('', '');
	my $ok = IPC::Run::run([ 'psql', '-XAtq', @user, '-v', 'ON_ERROR_STOP=1', '-v', "extension=$extension", '-d', $node->connstr($database),
			'-c', 'BEGIN', ($before ? ('-c', $before) : ()), '-f', "$kept/$script", '-c', 'COMMIT' ], '>', \$output, '2>', \$error);

	die "$script: $error" unless $ok;
	return $output;
}

sub fill
{
	my ($database) = @_;
	my $error = '';

	IPC::Run::run([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', "$kept/fill.sql" ], '>', \my $output, '2>', \$error)
	  or die "fill.sql: $error";
	# The scheduler moves what has ended to the history.
	soon($node, 'SELECT count(*) FROM sweep.run_live WHERE finished_at IS NOT NULL', 0, "$database: filled", $database);
}

# ---------------------------------------------------------------- what the comparison sees
$node->safe_psql('postgres', "CREATE DATABASE $_") for ('fresh', 'again');
for my $database ('fresh', 'again')
{
	$node->safe_psql($database, 'CREATE EXTENSION pg_sweep');
	fill($database);
}
my $catalogue = run_script('catalogue.sql', 'fresh', 'pg_sweep');
my $data = run_script('data.sql', 'fresh', 'pg_sweep');
cmp_ok(scalar(split /\n/, $catalogue), '>', 1000, 'a catalogue is compared');
is(run_script('catalogue.sql', 'again', 'pg_sweep'), $catalogue, 'two installations are the same');
is(run_script('data.sql', 'again', 'pg_sweep'), $data, 'filled alike they have the same rows');
like($data, qr/^sweep\.$_ /m, "there are rows in $_")
  for qw(job_definition job_state control run_live run_history quarantined_item queue queue_message queue_dead queue_done consumer consumer_crash once_key);
is($node->safe_psql('fresh', q{SELECT string_agg(kind || '.' || key, ', ') FROM (SELECT 'job', j.key FROM sweep.job r, jsonb_each(to_jsonb(r)) AS j GROUP BY j.key HAVING count(DISTINCT j.value) < 2
	UNION ALL SELECT 'queue', j.key FROM sweep.queue r, jsonb_each(to_jsonb(r)) AS j GROUP BY j.key HAVING count(DISTINCT j.value) < 2
	UNION ALL SELECT 'consumer', j.key FROM sweep.consumer r, jsonb_each(to_jsonb(r)) AS j WHERE j.key NOT IN ('system_identifier', 'database', 'all_paused_at')
		GROUP BY j.key HAVING count(DISTINCT j.value) < 2) AS same (kind, key)}), '', 'each setting of a job, a queue and a consumer has another value somewhere');
for my $change ('ALTER FUNCTION sweep.cancel(bigint) COST 7', 'REVOKE EXECUTE ON FUNCTION sweep.cancel(bigint) FROM sweep_operator',
	q{COMMENT ON COLUMN sweep.job_definition.name IS 'another'}, 'ALTER FUNCTION sweep._retry(bigint) SET work_mem = 64', q{ALTER TABLE sweep.job_definition ALTER flush SET DEFAULT 'run'},
	'ALTER TABLE sweep.job_definition DROP CONSTRAINT job_overlap_check', 'ALTER TABLE sweep.job_definition ADD COLUMN more int', 'CREATE INDEX ON sweep.job_definition (schedule)', 'ALTER VIEW sweep.jobs RESET (security_barrier)',
	'ALTER TABLE sweep.job_state RESET (fillfactor)', q{UPDATE pg_extension SET extcondition[1] = 'WHERE false' WHERE extname = 'pg_sweep'},
	'ALTER EXTENSION pg_sweep DROP FUNCTION sweep.cancel(bigint)')
{
	my ($output, $error) = ('', '');

	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-v', 'extension=pg_sweep', '-d', $node->connstr('again'),
			'-c', 'BEGIN', '-c', $change, '-f', "$kept/catalogue.sql", '-c', 'ROLLBACK' ], '>', \$output, '2>', \$error) or die "$change: $error";
	isnt($output, $catalogue, "seen: $change");
}
$node->safe_psql('again', q{SELECT sweep.alter_job('of steps', '{"batch_size": 999}')});
isnt(run_script('data.sql', 'again', 'pg_sweep'), $data, 'seen: a changed row');

# ---------------------------------------------------------------- the same by a dump
$node->safe_psql('postgres', 'CREATE DATABASE restored');
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'fresh' ], 'pg_dump');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'restored', $dump ], 'pg_restore');
my $without_runs = qr/^sweep\.(run_live|run_history|bucket) .*\n/m;
is(run_script('data.sql', 'restored', 'pg_sweep') =~ s/$without_runs//gr, $data =~ s/$without_runs//gr, 'a dump has all rows but those of runs');
push @filled, [ 'restored', 'a restored dump' ];

# ---------------------------------------------------------------- the kept scripts
my $changes = slurp_file("$top/CHANGELOG.md");
for my $control (glob("$installed/pg_sweep*.control"))
{
	my ($extension) = $control =~ m{([^/]+)\.control$};
	my ($current) = slurp_file($control) =~ /^default_version *= *'([^']+)'/m;
	my $script = "$kept/$extension--$current.sql";

	if (-e $script)
	{
		ok(slurp_file($script) eq slurp_file("$installed/$extension--$current.sql"),
			"$extension: its install script is the one that was kept for $current; a change needs a new version and an upgrade script");
	}
	else
	{
		like($changes, qr/^## \Q$current\E \(unreleased\)/m, "$extension: $current is released, and its install script kept (make keep-install-scripts)");
	}
}

# ---------------------------------------------------------------- from each released version
my ($current) = slurp_file("$top/pg_sweep.control") =~ /^default_version *= *'([^']+)'/m;
my @old = grep { $_ ne $current } sort map { m{--([^/-]+)\.sql$} ? $1 : () } glob("$kept/pg_sweep--*.sql");
$node->safe_psql('fresh', 'CREATE EXTENSION pg_sweep_gitlab');
$node->safe_psql('postgres', 'CREATE ROLE watcher; CREATE ROLE boss SUPERUSER LOGIN');
my $update = 'ALTER EXTENSION pg_sweep UPDATE; ALTER EXTENSION pg_sweep_gitlab UPDATE';
cmp_ok(scalar @old, '>', 1, 'there are released versions');
for my $old (@old)
{
	(my $database = "from_$old") =~ s/\W/_/g;
	my $offset = -s $node->logfile;

	load_old($database, $old);
	my $before = run_script('data.sql', $database, 'pg_sweep');
	refuses_meanwhile($database, $old);
	survives_calls($database, $old);
	$node->safe_psql($database, 'GRANT SELECT ON sweep.jobs TO watcher; GRANT USAGE ON SCHEMA sweep TO watcher WITH GRANT OPTION; REVOKE EXECUTE ON FUNCTION sweep.cancel(bigint) FROM sweep_operator;
		REVOKE sweep_monitor FROM pg_monitor; CREATE PUBLICATION of_all FOR ALL TABLES');
	keeps_objects_of_users($database, $old);

	my $file = PostgreSQL::Test::Utils::tempdir . "/$database.dump";
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $file, $database ], "$old: pg_dump of its objects works with the new library");

	# The rows before a scheduler sees them.
	my $after = run_script('data.sql', $database, 'pg_sweep', $update, '-U', 'boss');
	is($node->safe_psql($database, q{SELECT count(*) FROM pg_extension WHERE extname LIKE 'pg_sweep%' AND extversion = '} . $current . q{'}), 2, "$old: both extensions are of $current");
	is($node->safe_psql($database, q{SELECT has_table_privilege('watcher', 'sweep.jobs', 'SELECT'), has_schema_privilege('watcher', 'sweep', 'USAGE WITH GRANT OPTION'),
		has_function_privilege('sweep_operator', 'sweep.cancel(bigint)', 'EXECUTE')}), 't|t|f', "$old: privileges that were added or taken back are as before");
	is($node->safe_psql($database, q{SELECT pg_has_role('pg_monitor', 'sweep_monitor', 'USAGE')}), 't', "$old: who monitors the server sees the views");
	like(output_of('pg_dump', '-s', $node->connstr($database)), qr/^GRANT SELECT ON TABLE sweep\.jobs TO watcher;/m, "$old: they are of the administrator still, and dumped");
	$node->safe_psql($database, 'REVOKE SELECT ON sweep.jobs FROM watcher; REVOKE USAGE ON SCHEMA sweep FROM watcher CASCADE; GRANT EXECUTE ON FUNCTION sweep.cancel(bigint) TO sweep_operator');
	is(run_script('catalogue.sql', $database, $_), run_script('catalogue.sql', 'fresh', $_), "$old: $_ has the objects of a fresh installation") for qw(pg_sweep pg_sweep_gitlab);
	has_rows($database, $before, $after, $old);
	unlike(slurp_file($node->logfile, $offset), qr/was terminated by signal/, "$old: nothing has crashed");
	is(() = slurp_file($node->logfile, $offset) =~ /could not do its work: library/g, 1, "$old: the log has said once that the objects are old");

	# Into objects of the same version; objects of the current one have not the same tables.
	$node->safe_psql('postgres', "CREATE DATABASE ${database}_restored; CREATE DATABASE ${database}_refused");
	$node->safe_psql("${database}_restored", "CREATE EXTENSION pg_sweep VERSION '$old'; CREATE EXTENSION pg_sweep_gitlab VERSION '$old'");
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', "${database}_restored", $file ], "$old: its dump is restored into its objects");
	$node->safe_psql('postgres', 'REVOKE sweep_monitor FROM pg_monitor; GRANT pg_monitor TO sweep_monitor');
	my $notices = ($node->psql("${database}_restored", "BEGIN; $update; COMMIT", on_error_die => 1))[2];
	is($node->safe_psql('postgres', q{SELECT pg_has_role('pg_monitor', 'sweep_monitor', 'MEMBER')}), 'f', "$old: and those who monitor pg_sweep may be members of pg_monitor");
	$node->safe_psql('postgres', 'REVOKE pg_monitor FROM sweep_monitor');
	my $retentions = $node->safe_psql("${database}_restored", q{SELECT string_agg(format('"%s"', name), ', ' ORDER BY name) FROM sweep.job WHERE step = 'sweep.retention_step'});
	$retentions eq '' ? unlike($notices, qr/retentions/, "$old: it has no retentions") : like($notices, qr/NOTICE:  these retentions keep cascade => 'at_once': \Q$retentions\E\n/, "$old: the update names its retentions");
	is($node->safe_psql("${database}_restored", q{SELECT count(*) > 0 AND bool_and(state LIKE 'paused%') FROM sweep.jobs}), 't', "$old: where the jobs of a copy are paused");
	$node->command_fails_like([ 'pg_restore', '-d', "${database}_refused", $file ], qr/cannot copy to view "job"/, "$old: objects of $current refuse it");
	push @filled, [ $database, "from $old" ], [ "${database}_restored", "from a dump of $old" ];
}

# The objects of an old version, with the rows that it had.
sub load_old
{
	my ($database, $old) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION pg_sweep VERSION '$old'");
	like(($node->psql($database, 'CREATE EXTENSION pg_sweep_gitlab'))[2], qr/needs pg_sweep \Q$current\E\n.*Execute ALTER EXTENSION pg_sweep UPDATE first/s, "$old: the current pg_sweep_gitlab needs the current pg_sweep");
	$node->safe_psql($database, "CREATE EXTENSION pg_sweep_gitlab VERSION '$old'");
	$node->safe_psql($database, slurp_output("$top/test/bin/released-rows", $old));
	$node->safe_psql($database, "UPDATE sweep.$_ SET system_identifier = (SELECT system_identifier FROM pg_control_system()), database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	  for qw(job_state consumer);
	$node->safe_psql($database, q{INSERT INTO sweep.consumer_crash SELECT queue_id, message_id, 1, now() FROM sweep.queue_message WHERE payload = '{"n": 2}' LIMIT 1 ON CONFLICT DO NOTHING;
		INSERT INTO sweep.bucket VALUES ('divided', 0, 'available', NULL, NULL, now());
		INSERT INTO sweep.control SELECT true, now() WHERE NOT EXISTS (SELECT FROM sweep.control);
		INSERT INTO sweep_gitlab.feature_flag VALUES ('bulk_delete_job_artifacts', true);
		UPDATE sweep.job SET timezone = 'europe/BERLIN' WHERE name = 'of sql'});
	is($node->safe_psql($database, join ' UNION ALL ', map { "SELECT '$_' WHERE NOT EXISTS (SELECT FROM sweep.$_)" }
		split /\n/, $node->safe_psql($database, q{SELECT relname FROM pg_class WHERE relnamespace = 'sweep'::regnamespace AND relkind = 'r'})), '', "$old: no table is empty");
}

# Before ALTER EXTENSION.
sub refuses_meanwhile
{
	my ($database, $old) = @_;
	my %call = (
		send => q{SELECT sweep.send('plain', '1')}, claim => q{SELECT sweep.claim('plain')}, start => q{SELECT sweep.start('of sql')}, run => q{CALL sweep.run('of sql')},
		create_job => q{SELECT sweep.create_job('new', step => 'u.step')}, resume_all => q{SELECT sweep.resume_all()}, queues => 'TABLE sweep.queues',
		has_workers => 'SELECT sweep._has_workers()', gitlab => q{SELECT sweep_gitlab.enable_feature('x')});

	for my $name (sort keys %call)
	{
		like(($node->psql($database, $call{$name}))[2],
			qr/library pg_sweep \Q$current\E does not fit the extension of version \Q$old\E in this database\nHINT:  Execute ALTER EXTENSION pg_sweep UPDATE\./, "$old: $name says what to do");
	}
	$node->safe_psql($database, "TABLE sweep.$_") for qw(runs running consumers buckets);
	like(($node->psql($database, 'ALTER EXTENSION pg_sweep_gitlab UPDATE'))[2], qr/needs pg_sweep \Q$current\E\n.*Execute ALTER EXTENSION pg_sweep UPDATE first/s, "$old: pg_sweep comes first");
}

# Each function of the old version that is in C, with an argument of each type and with NULLs, as a superuser: none may end the server.
sub survives_calls
{
	my ($database, $old) = @_;
	my $calls = $node->safe_psql($database, q{
		SELECT format('%s %s(%s)', CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT' END, p.oid::regproc, (SELECT string_agg(format('%L::%s', CASE WHEN nulls THEN NULL
				WHEN format_type(t, NULL) LIKE '%[]' THEN '{}' WHEN t IN ('json'::regtype, 'jsonb'::regtype) THEN '{}' WHEN t = 'interval'::regtype THEN '1 s' WHEN t = 'timestamptz'::regtype THEN 'now'
				WHEN t = 'uuid'::regtype THEN gen_random_uuid()::text WHEN t = 'regrole'::regtype THEN 'jobber' WHEN t = 'regclass'::regtype THEN 'u.row' WHEN t = 'regprocedure'::regtype THEN 'u.step(sweep.batch)'
				WHEN t = 'boolean'::regtype THEN 'true' WHEN t::regtype::text = 'sweep.batch' THEN '(1,,{},,,,,1)' WHEN t IN ('text'::regtype, 'name'::regtype) THEN 'x'
				WHEN t IN (SELECT oid FROM pg_type WHERE typtype = 'c') THEN NULL ELSE '1' END, format_type(t, NULL)), ', ' ORDER BY n) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n)))
			FROM pg_proc p, (VALUES (false), (true)) AS v (nulls) WHERE p.pronamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace) AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') AND p.prorettype <> 'trigger'::regtype
				AND p.proname NOT IN ('_wake') AND 'internal'::regtype <> ALL (p.proargtypes) ORDER BY 1});

	# The second call of a session takes other ways.
	my ($code, $out, $error) = $node->psql($database, "SET statement_timeout = '5s';\n" . join('', map { "$_;\n$_;\n" } split /\n/, $calls), on_error_stop => 0);
	unlike($error, qr/server closed the connection|could not find function|cache lookup/, "$old: none of its functions in C does harm");
	cmp_ok(scalar(split /\n/, $calls), '>', 80, "$old: these are its functions");
}

# What would be lost with the old objects is named.
sub keeps_objects_of_users
{
	my ($database, $old) = @_;
	my @case = (
		[ 'CREATE VIEW u.watch AS SELECT name FROM sweep.jobs', 'DROP VIEW u.watch', qr/DETAIL:  view u\.watch depends on view sweep\.jobs/ ],
		[ 'CREATE VIEW u.calls AS SELECT sweep.next_runs(schedule) FROM (VALUES (text $$@daily$$)) AS v (schedule)', 'DROP VIEW u.calls', qr/DETAIL:  view u\.calls depends on function sweep\.next_runs/ ],
		[ 'CREATE TABLE u.of_queue (id int REFERENCES sweep.queue)', 'DROP TABLE u.of_queue', qr/DETAIL:  constraint of_queue_id_fkey on table u\.of_queue depends on table/ ],
		[ 'CREATE INDEX mine ON sweep.run_history (pid)', 'DROP INDEX sweep.mine', qr/DETAIL:  index sweep\.mine/ ],
		[ 'CREATE PUBLICATION part FOR TABLE sweep.job', 'DROP PUBLICATION part', qr/DETAIL:  publication of table sweep\.job in publication part/ ],
		[ 'ALTER TABLE sweep.queue ADD COLUMN mine int', 'ALTER TABLE sweep.queue DROP COLUMN mine', qr/column mine of table "queue" would be lost/ ],
		# The old version did not check rows that are written by hand.
		[ q{INSERT INTO sweep.queue_message (queue_id, lane, payload) VALUES (1, 100, '"by hand"')}, q{DELETE FROM sweep.queue_message WHERE payload = '"by hand"'},
			qr/table "sweep\.queue_message" has a row that version \Q$current\E does not accept: queue_message_lane_check\nDETAIL: .*"by hand".*\nHINT:  Correct or delete this row/ ]);

	for my $case (@case)
	{
		my ($create, $drop, $message) = @$case;

		$node->safe_psql($database, $create);
		like(($node->psql($database, 'ALTER EXTENSION pg_sweep UPDATE'))[2], $message, "$old: $create");
		$node->safe_psql($database, $drop);
	}
}

# Each row is there again, with what it had in each column.
sub has_rows
{
	my ($database, $before, $after, $old) = @_;
	my %name = ('sweep.job' => 'sweep.job_definition', 'sweep.quarantine' => 'sweep.quarantined_item');
	my %rows = (old => {}, new => {});

	for my $version ('old', 'new')
	{
		for (split /\n/, $version eq 'old' ? $before : $after)
		{
			my ($table, $row) = split / /, $_, 2;

			push @{ $rows{$version}{ $name{$table} // $table } }, decode_json($row);
		}
	}
	for my $table (sort keys %{ $rows{old} })
	{
		my @columns = grep { $_ ne 'last_start' } sort keys %{ $rows{old}{$table}[0] };
		my ($was, $is) = map { [ sort map { my $row = $_; changed($table, $row); JSON::PP->new->canonical->encode([ map { $row->{$_} } @columns ]) } @{ $rows{$_}{$table} } ] } 'old', 'new';

		is_deeply($is, $was, "$old: the rows of $table");
	}
	is($node->safe_psql($database, q{SELECT string_agg(format('%s %s', name, timezone), ', ') FROM sweep.job WHERE name = 'of sql'}), 'of sql Europe/Berlin', "$old: a time zone is written as the server does");
	is($node->safe_psql($database, q{SELECT count(*) FROM sweep.job WHERE step = 'sweep.retention_step' AND args ->> 'cascade' IS DISTINCT FROM 'at_once'}), 0, "$old: retentions go on as before");
	is(scalar(grep { defined $_->{started_at} && !defined $_->{begun} } map { @{ $rows{new}{"sweep.run_$_"} } } 'live', 'history'), 0, "$old: runs that have begun have a number");
	is($node->safe_psql($database, q{SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts')}), 't', "$old: a flag is set as before");
	is($node->safe_psql($database, q{SELECT (SELECT count(*) FROM sweep.jobs WHERE state = c.state), (SELECT count(*) FROM sweep.consumers AS s WHERE s.state = c.state) FROM (VALUES ('paused: the database is a copy')) AS c (state)}),
		'0|0', "$old: jobs and consumers are at home");
}

# Takes out of a row what the update changes on purpose.
sub changed
{
	my ($table, $row) = @_;

	delete $row->{timezone} if $table eq 'sweep.job_definition';
	delete $row->{args}{cascade} if $table eq 'sweep.job_definition';
}

sub output_of
{
	my @command = @_;
	my $output = '';

	IPC::Run::run(\@command, '>', \$output) or die "@command";
	return $output;
}

# ---------------------------------------------------------------- what was there before goes on
works(@$_) for @filled;

sub works
{
	my ($database, $name) = @_;

	$node->safe_psql($database, 'SELECT sweep.resume_all()');
	my $run = $node->safe_psql($database, q{SELECT sweep.start('of sql')});
	$node->safe_psql($database, "CALL sweep.wait($run)");
	is($node->safe_psql($database, 'SELECT count(*) FROM u.row'), 0, "$name: a job does its work");
	is($node->safe_psql($database, q{SELECT count(*) FROM sweep.dead('keyed')}), 1, "$name: a dead message is there");
	is($node->safe_psql($database, q{SELECT sum(sweep.ack(lease)) FROM sweep.claim('keyed', 10)}), 1, "$name: one that waits is handed out");
	is($node->safe_psql($database, q{SELECT count(*) FROM sweep.quarantine WHERE job = 'of items'}), 1, "$name: an item is in quarantine");
	soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'plain'}, 1, "$name: the consumer has handled what is due", $database);
	return if $name !~ /^from [0-9]/;
	soon($node, 'SELECT count(*) FROM u.todo', 0, "$name: the run that the restart ended is tried again, and goes on", $database);
	is($node->safe_psql($database, q{SELECT string_agg(status || ' ' || rows || ' ' || attempt, ', ' ORDER BY run_id) FROM sweep.runs WHERE job = 'in progress' AND status = 'lost'}), 'lost 20 1', "$name: once");
	is($node->safe_psql($database, q{SELECT count(*), sum((payload ->> 'n')::int), sum(sweep.ack(lease, ARRAY[message_id])) FROM sweep.claim('flight', 10)}), '3|6|3', "$name: messages in flight come again, each once");
	is($node->safe_psql($database, q{SELECT count(*) FROM sweep.claim('flight', 10)}), 0, "$name: and are done then");
	$node->safe_psql($database, q{SELECT sweep.create_consumer('crowd', 'u.get')});
	soon($node, 'SELECT string_agg(n::text, $$,$$ ORDER BY n) FROM u.got', '7,8', "$name: a consumer gets each message once", $database);
	is($node->safe_psql($database, q{SELECT count(DISTINCT run_id) = count(*) FROM sweep.runs}), 't', "$name: numbers of runs go on");
}

$node->stop;
done_testing();
