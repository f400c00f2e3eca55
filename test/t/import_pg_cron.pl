# room: api
# sweep.import_pg_cron, with the real pg_cron: a crontab of lines of all kinds is imported; the moments that follow are
# those of a search day by day, which reads the lines as pg_cron does; then both run it side by side, and start the same.
# IMPORT_SECONDS: how long they do; without it, over one full minute.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::Local;
use SweepTest;

my ($share) = run_command([ 'pg_config', '--sharedir' ]);
plan skip_all => 'pg_cron is not installed (Debian: postgresql-VERSION-cron)' unless -e "$share/extension/pg_cron.control";

my $seconds = $ENV{IMPORT_SECONDS} || 0;
$PostgreSQL::Test::Utils::timeout_default += $seconds;

my $node = new_cluster('import_pg_cron', preload => 'pg_cron, pg_sweep', conf => [
		q{cron.database_name = 'postgres'}, 'cron.use_background_workers = on', 'cron.max_running_jobs = 15',
		'max_worker_processes = 40', 'pg_sweep.max_running_jobs = 15', 'pg_sweep.max_share_per_role = 1' ]);

# What somebody else than the superuser sees and gets.
sub query_as
{
	my ($role, $query) = @_;
	my ($status, $output, $message) = $node->psql('postgres', $query, extra_params => [ '-U', $role ]);

	return "$output$message";
}

# What is imported, and what is said of it, in lines.
sub import
{
	my ($arguments) = @_;

	return sql("SELECT jobid, job, note FROM sweep.import_pg_cron($arguments) ORDER BY jobid");
}

# ---------------------------------------------------------------- without it
my ($status, $output, $message) = $node->psql('postgres', 'SELECT * FROM sweep.import_pg_cron()');
like($message, qr/ERROR:  extension pg_cron is not installed in database "postgres"\nHINT:  Call/, 'without pg_cron: refused, with a hint');
sql('CREATE DATABASE other');
sql('CREATE EXTENSION pg_cron');
$node->safe_psql('other', 'CREATE EXTENSION pg_sweep');
($status, $output, $message) = $node->psql('other', 'SELECT * FROM sweep.import_pg_cron()');
like($message, qr/HINT:  The entries of all databases are in database "postgres": call sweep.import_pg_cron\(\) there\./,
	'in another database: the hint says where pg_cron is');
is(import(''), '', 'an empty crontab: nothing');

# ---------------------------------------------------------------- a crontab
my @line = (
	[ nightly => '0 3 * * *', 'VACUUM ANALYZE t.todo' ],
	[ refresh => '@hourly', 'SELECT t.note(NULL)' ],
	[ purge => '@daily', q{CALL t.purge('it''s')} ],
	[ weekly => '@weekly', 'REINDEX TABLE t.todo' ],
	[ monthly => '@monthly', 'SELECT 1' ],
	[ yearly => '@yearly', 'SELECT 1' ],
	[ boot => '@reboot', 'SELECT 1' ],
	[ often => '*/5 * * * *', 'UPDATE t.todo SET run_id = NULL WHERE id = 1' ],
	[ office => '0,30 9-17/2 * * Mon-FRI', 'SELECT 1' ],
	[ either => '15 4 1-7 * SUN', 'SELECT 1' ],
	[ both => '0 0 */10 * 1', 'SELECT 1' ],
	[ far_step => '0 0 1 */20 *', 'SELECT 1' ],
	[ half_minutes => '30 seconds', 'SELECT 1' ],
	[ last_day => '0 0 $ * *', 'SELECT 1' ],
	[ undef, "  0\t6 * jan-mar,dec 1-5 ", 'SELECT $$a \ b$$' ],
	[ six_fields => '0 0 3 * * *', 'SELECT 1' ],
	[ forgotten_slash => '*15 2 1,* 5 mon,*', 'SELECT 1' ],
	[ elsewhere => '5 5 * * *', 'SELECT 1', 'database', 'other' ],
	[ asleep => '0 1 * * *', 'SELECT 1', 'active', 'false' ],
	[ of_app => '0 2 * * 7', 'DELETE FROM t.todo WHERE run_id = 1', 'username', 'App Role' ],
	[ two => '0 4 * * *', 'DELETE FROM t.todo WHERE id = 1; VACUUM t.todo' ],
	[ nobody => '0 4 * * *', 'SELECT 1', 'username', 'dropped' ],
	[ 'n' x 64, '0 4 * * *', 'SELECT 1' ],
	[ backwards => '0 22-6 * * *', 'SELECT 1' ],
	[ nonsense => 'at noon', 'SELECT 1' ],
	[ broken => '0 4 * * *', 'SELECT FROM WHERE' ],
	[ two => '0 5 * * *', 'SELECT 1', 'username', 'App Role' ],
	[ trim => '0 5 * * *', q{delete  from cron.job_run_details where end_time < now() - interval '7 days'} ],
	[ wrong_there => '0 23-1 * * *', 'SELECT 1', 'database', 'other' ],
	[ elsewhere => '6 5 * * *', 'SELECT 1', 'database, username', 'other\', \'App Role' ],
	[ 'm' x 64, '0 4 * * *', 'SELECT 1', 'database', 'other' ],
	[ six_there => '0 0 3 * * *', 'SELECT 1', 'database, active', 'other\', \'false' ]);

sql(q{CREATE PROCEDURE t.purge(text) LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
	CREATE ROLE "App Role" LOGIN IN ROLE sweep_user; GRANT ALL ON SCHEMA cron TO "App Role";
	-- before pg_cron 1.5 the name of a job is a name
	ALTER TABLE cron.job ALTER COLUMN jobname TYPE text});
# As the table takes them, so that what a later pg_cron would refuse is there as well.
foreach my $line (@line)
{
	my ($name, $schedule, $command, $column, $value) = @$line;
	my ($job, $text, $sql) = map { defined $_ ? "\$q\$$_\$q\$" : 'NULL' } $name, $schedule, $command;

	sql("INSERT INTO cron.job (jobname, schedule, command, nodeport" . ($column ? ", $column" : '')
		  . ") VALUES ($job, $text, $sql, current_setting('port')::int" . ($column ? ", '$value'" : '') . ')');
}

my $transaction = 'pg_cron executes its statements in one transaction, here each has its own unless the text says BEGIN and COMMIT';
my $wanted = join("\n", map { "$_->[0]|$_->[1]|$_->[2]" }
	  [ 1, 'nightly', '%' ], [ 2, 'refresh', '%' ], [ 3, 'purge', '%' ], [ 4, 'weekly', '%' ], [ 5, 'monthly', '%' ],
	[ 6, 'yearly', '%; pg_cron 1.6 and later never start @yearly' ],
	[ 7, 'boot', '%' ], [ 8, 'often', '%' ], [ 9, 'office', '%' ], [ 10, 'either', '%' ], [ 11, 'both', '%' ],
	[ 12, 'far_step', '%; pg_cron reads "0 0 1 */20 *" as this schedule' ],
	[ 13, 'half_minutes', '%' ], [ 14, 'last_day', '%' ], [ 15, 'pg_cron_15', '%' ],
	[ 16, 'six_fields', '%; pg_cron reads "0 0 3 * * *" as this schedule' ],
	[ 17, 'forgotten_slash', '%; pg_cron reads "*15 2 1,* 5 mon,*" as this schedule' ],
	[ 18, 'elsewhere', 'is for database "other": execute the definition there' ],
	[ 19, 'asleep', '%; not active in pg_cron' ],
	[ 20, 'of_app', '%' ], [ 21, 'two', "%; $transaction" ],
	[ 22, 'nobody', 'not created: role "dropped" does not exist' ],
	[ 23, 'n' x 64, 'not created: invalid job name "' . 'n' x 64 . '" (A name has 1 to 63 bytes.)' ],
	[ 24, 'backwards', 'not created: range "22-6" runs backwards in the hour field (Write it as a list of two ranges.)' ],
	[ 25, 'nonsense', 'not created: schedule "at noon" has 2 fields instead of 5 or 6 (Fields are: [second] minute hour day-of-month month day-of-week. Other forms are @daily, "every 30 seconds", "every minute" and "every 1 day".)' ],
	[ 26, 'broken', 'not created: syntax error at or near "WHERE"' ],
	[ 27, 'two_App Role', 'name taken: execute the definition; another role has a job of that name: the definition creates it as "two_App Role"' ],
	[ 28, 'trim', 'not needed: it trims the history of pg_cron; that of pg_sweep is bounded by pg_sweep.history_per_job and history_max_age' ],
	[ 29, 'wrong_there', 'not created: range "23-1" runs backwards in the hour field (Write it as a list of two ranges.); is for database "other"' ],
	[ 30, 'elsewhere_App Role', 'is for database "other": execute the definition there; another role has a job of that name: the definition creates it as "elsewhere_App Role"' ],
	[ 31, 'm' x 64, 'not created: invalid job name "' . 'm' x 64 . '" (A name has 1 to 63 bytes.); is for database "other"' ],
	[ 32, 'six_there', 'is for database "other": execute the definition there; pg_cron reads "0 0 3 * * *" as this schedule; not active in pg_cron' ]);

is(import(''), $wanted =~ s/%/to be created/gr, 'dry run: says what would come of each line');
is(sql('SELECT count(*) FROM sweep.job'), 0, 'dry run: and creates nothing');
my $definitions = sql('SELECT definition FROM sweep.import_pg_cron()');
is(import('false'), $wanted =~ s/%/created, paused/gr, 'import: does that');
is(import('dry_run => false'), $wanted =~ s/%/exists already/gr, 'again: notes what is there');
is(sql('SELECT count(*), count(*) FILTER (WHERE state = $$paused$$) FROM sweep.jobs'), '20|20', 'again: nothing is doubled, all are paused');
is(sql(q{SELECT string_agg(format('%s %s', name, timezone), ', ') FROM sweep.job WHERE timezone <> 'GMT'}), '', 'all are in the zone of pg_cron');
is(sql(q{SELECT string_agg(c.jobid::text, ', ') FROM cron.job c JOIN sweep.job j ON j.name = coalesce(c.jobname, 'pg_cron_' || c.jobid)
		WHERE c.jobname <> 'two' AND (j.sql, j.run_as) <> (c.command, c.username)}), '', 'each with its text and its role');
is(sql(q{SELECT run_as FROM sweep.job WHERE name = 'of_app'}), 'App Role', 'also one whose name has to be quoted');

# ---------------------------------------------------------------- the definition is the call
my $jobs = 'SELECT j::text FROM sweep.job j ORDER BY name';
my $before = sql($jobs);
sql(q{SELECT count(sweep.drop_job(name)) FROM sweep.job});
like(sql("\\set ON_ERROR_STOP off\n$definitions\n\\set ON_ERROR_STOP on\nSELECT 'done'"), qr/done$/, 'the definitions can be executed');
sql(q{SELECT sweep.drop_job(unnest(ARRAY['elsewhere', 'elsewhere_App Role', 'six_there', 'two_App Role']))});
is(sql($jobs), $before, 'and create the same jobs');
$node->safe_psql('other', sql(q{SELECT definition FROM sweep.import_pg_cron() WHERE job = 'elsewhere'}));
is($node->safe_psql('other', 'SELECT name, schedule, sql, timezone FROM sweep.job'), 'elsewhere|5 5 * * *|SELECT 1|GMT', 'in another database, too');

# ---------------------------------------------------------------- rights
is(query_as('App Role', q{SELECT job, note FROM sweep.import_pg_cron() ORDER BY jobid}),
	join("\n", 'of_app|exists already', 'two_App Role|name taken: execute the definition; another role has a job of that name: the definition creates it as "two_App Role"',
		'elsewhere|is for database "other": execute the definition there'),
	'a role imports its own entries, and sees no others');
sql(q{SELECT sweep.drop_job('of_app'); ALTER ROLE "App Role" RENAME TO app; UPDATE cron.job SET username = 'app' WHERE username = 'App Role'});
is(query_as('app', q{SELECT note FROM sweep.import_pg_cron(false) WHERE job = 'of_app'}), 'created, paused', 'and creates them');
sql('CREATE ROLE auditor LOGIN BYPASSRLS IN ROLE sweep_user; GRANT USAGE ON SCHEMA cron TO auditor; CREATE ROLE stranger LOGIN IN ROLE sweep_user');
sql(q{SELECT sweep.drop_job('of_app')});
is(query_as('auditor', q{SELECT note FROM sweep.import_pg_cron(false) WHERE job = 'of_app'}),
	'not created: permission denied to run job "of_app" as role app (run_as must be a role that you could SET ROLE to.)',
	'one who sees those of others creates none of them');
like(query_as('stranger', 'SELECT * FROM sweep.import_pg_cron()'), qr/^psql:<stdin>:1: ERROR:  permission denied for table cron.job\nHINT:  GRANT USAGE ON SCHEMA cron TO stranger shows it its own entries.$/,
	'who may not read the table is told so, and no more');
sql('CREATE ROLE outsider LOGIN; GRANT USAGE ON SCHEMA cron TO outsider');
like(query_as('outsider', 'SELECT * FROM sweep.import_pg_cron()'), qr/ERROR:  permission denied for (schema sweep|function import_pg_cron)/,
	'and who may not create jobs has no function for it');

# ---------------------------------------------------------------- the same moments
# The values of a field as pg_cron reads it; the second result is whether it begins with a star.
sub field_values
{
	my ($text, $low, $high, @name) = @_;
	my %value = map { lc $name[$_] => $low + $_ } 0 .. $#name;
	my %set;

	foreach my $element (split /,/, $text)
	{
		my ($from, $to, $step) = $element =~ m{^(\*|\w+)(?:-(\w+))?(?:/(\d+))?};

		($from, $to) = ($low, $high) if $from eq '*';
		$from = $value{ lc $from } // $from;
		$to = defined $to ? $value{ lc $to } // $to : $from;
		for (my $n = $from; $n <= $to; $n += $step // 1) { $set{$n} = 1 }
		last if $element =~ /^\*\d/;
	}
	return (\%set, $text =~ /^\*/);
}

# The first moments of a line after one, in GMT: every day is looked at.
sub due_moments
{
	my ($schedule, $after, $count) = @_;
	my @field = split ' ', $schedule;
	my ($minutes) = field_values($field[0], 0, 59);
	my ($hours) = field_values($field[1], 0, 23);
	my ($days, $any_day) = $field[2] eq '$' ? ({}, 0) : field_values($field[2], 1, 31);
	my ($months) = field_values($field[3], 1, 12, qw(jan feb mar apr may jun jul aug sep oct nov dec));
	my ($weekdays, $any_weekday) = field_values($field[4], 0, 7, qw(sun mon tue wed thu fri sat));
	my @due;

	for (my $midnight = $after - $after % 86400; @due < $count; $midnight += 86400)
	{
		my ($day, $month, $weekday) = (gmtime($midnight))[ 3, 4, 6 ];
		my $is_last = (gmtime($midnight + 86400))[3] == 1;
		my $by_day = $days->{$day} || $field[2] eq '$' && $is_last;
		my $by_weekday = $weekdays->{$weekday} || $weekday == 0 && $weekdays->{7};

		next unless $months->{ $month + 1 };
		next unless $any_day || $any_weekday ? $by_day && $by_weekday : $by_day || $by_weekday;
		foreach my $hour (sort { $a <=> $b } keys %$hours)
		{
			push @due, grep { $_ > $after } map { $midnight + 3600 * $hour + 60 * $_ } sort { $a <=> $b } keys %$minutes;
		}
	}
	return join(' ', @due[ 0 .. $count - 1 ]);
}

my $after = timegm(0, 0, 12, 29, 0, 2026);
my $compared = 0;
foreach my $job (map { [ split /\|/ ] } split /\n/, sql(q{SELECT j.name, c.schedule FROM sweep.job j
		JOIN cron.job c ON j.name = coalesce(c.jobname, 'pg_cron_' || c.jobid) AND j.run_as = c.username WHERE c.schedule ~ '(\S+\s+){4}'}))
{
	my ($name, $schedule) = @$job;

	is(sql("SELECT string_agg(extract(epoch FROM r)::bigint::text, ' ') FROM sweep.job j,
			sweep.next_runs(j.schedule, j.timezone, to_timestamp($after), 40, j.name) AS r WHERE j.name = '$name'"),
		due_moments($schedule, $after, 40), "moments: those of \"$schedule\"");
	$compared++;
}
cmp_ok($compared, '>=', 11, 'moments: of all lines with fields');

# ---------------------------------------------------------------- side by side
sql(q{SELECT count(sweep.drop_job(name)) FROM sweep.job; DELETE FROM cron.job; DELETE FROM cron.job_run_details});
my $now = sql(q{SELECT extract(epoch FROM now())::bigint});
# not so close to the end of a minute that a line of the next one could come too late for it
soon($node, 'SELECT extract(second FROM now()) < 45', 't', 'side by side: at the beginning of a minute') if $now % 60 >= 45;
$now = sql(q{SELECT extract(epoch FROM now())::bigint});
my ($minute, $hour, $day, $month, $weekday) = (gmtime($now + 60 - $now % 60))[ 1, 2, 3, 4, 6 ];
my $month_name = (qw(jan feb mar apr may jun jul aug sep oct nov dec))[$month];
my $weekday_name = (qw(sun mon tue wed thu fri sat))[$weekday];
my $next = ($minute + 1) % 60;
my $other_hour = ($hour + 12) % 24;
my %beside = (
	every => ['* * * * *'], even => ['*/2 * * * *'], third => ['1-59/3 * * * *'],
	now => ["$minute * * * *"], list => ["$next,$minute * * * *"], date => ["* * $day $month_name *"], weekday => ["* * * * $weekday_name"],
	either => ["* * $day * " . ($weekday + 1) % 7], far => ["* * * */1 0-7/1"], six => ["* * * * * 1"],
	vacuum => [ '* * * * *', 'VACUUM t.todo' ], commits => [ '* * * * *', q{CALL t.purge('')} ],
	other_hour => ["* $other_hour * * *"], boot => ['@reboot'], fails => [ '* * * * *', 'SELECT 1/0' ]);
foreach my $name (sort keys %beside)
{
	sql("SELECT cron.schedule('$name', '$beside{$name}[0]', \$q\$" . ($beside{$name}[1] // 'SELECT 1') . '$q$)');
}
is(sql(q{SELECT count(*) FROM sweep.import_pg_cron(false) WHERE note ~ '^created, paused'}), scalar keys %beside, 'side by side: imported');
sql(q{SELECT count(sweep.resume(name)) FROM sweep.job});
my $first = sql(q{SELECT extract(epoch FROM date_trunc('minute', now() + interval '1 min'))::bigint});
my $last = $first + ($seconds ? 60 * int(($seconds + 59) / 60) : 0);

# Both, from the first minute up to the last one; what started in which.
sub starts
{
	my ($table, $job, $start) = @_;

	return sql("SELECT $job, to_char(date_trunc('minute', $start) AT TIME ZONE 'UTC', 'HH24:MI'), count(*) FROM $table
		WHERE $start >= to_timestamp($first) AND $start < to_timestamp($last + 60) GROUP BY 1, 2 ORDER BY 1, 2");
}
my $due = sql("SELECT count(*) FROM sweep.job j, sweep.next_runs(j.schedule, j.timezone, to_timestamp($first - 1), 1000, j.name) AS r
	WHERE r BETWEEN to_timestamp($first) AND to_timestamp($last)");
my $history = 'cron.job_run_details JOIN cron.job USING (jobid)';
soon($node, "SELECT count(*) FROM $history WHERE start_time >= to_timestamp($first) AND start_time < to_timestamp($last + 60)", $due,
	"side by side: pg_cron has started all $due");
soon($node, "SELECT count(*) FROM sweep.runs WHERE started_at >= to_timestamp($first) AND started_at < to_timestamp($last + 60)", $due,
	'side by side: so has pg_sweep');
soon($node, "SELECT count(*) FROM $history WHERE status NOT IN ('succeeded', 'failed')", 0, 'side by side: those of pg_cron have ended');
soon($node, 'SELECT count(*) FROM sweep.runs WHERE started_at IS NOT NULL AND finished_at IS NULL', 0, 'side by side: so have ours');
my $theirs = starts($history, 'jobname', 'start_time');
is(starts('sweep.runs', 'job', 'started_at'), $theirs, 'side by side: each in the same minutes');
like($theirs, qr/^every\|/m, 'side by side: there were some');
unlike($theirs, qr/other_hour/, 'side by side: but for those of another hour');
is(sql(q{SELECT string_agg(DISTINCT job, ' ') FROM sweep.runs WHERE finished_at IS NOT NULL AND status <> 'succeeded'}), 'fails', 'side by side: one has failed, as it does there');
is(sql("SELECT string_agg(DISTINCT jobname, ' ') FROM $history WHERE status = 'failed'"), 'fails', 'side by side: that one');

# The server starts: @reboot, in both once.
sql('DELETE FROM cron.job_run_details');
$node->append_conf('postgresql.conf', 'cron.use_background_workers = off');
$node->restart;
soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'boot' AND status = 'succeeded'}, 1, '@reboot: started by pg_sweep');
soon($node, "SELECT count(*) FROM $history WHERE jobname = 'boot'", 1, '@reboot: and by pg_cron');

# ---------------------------------------------------------------- pg_cron connects to servers, if it uses no workers
sql(q{DELETE FROM cron.job; SELECT count(sweep.drop_job(name)) FROM sweep.job});
sql(q{INSERT INTO cron.job (jobname, schedule, command, nodename, nodeport) VALUES
	('a host', '@daily', 'SELECT 1', 'db2', current_setting('port')::int), ('a port', '@daily', 'SELECT 1', 'localhost', 1),
	('a socket', '@daily', 'SELECT 1', '/tmp', current_setting('port')::int), ('here', '@daily', 'SELECT 1', 'localhost', current_setting('port')::int)});
my $port = $node->port;
is(sql(q{SELECT job, note FROM sweep.import_pg_cron() ORDER BY job}), join("\n",
		qq{a host|is for host "db2", port $port, database "postgres": execute the definition there},
		'a port|is for host "localhost", port 1, database "postgres": execute the definition there',
		'a socket|to be created', 'here|to be created'), 'entries of other servers are noted');

# ---------------------------------------------------------------- the last step of doc/from-pg-cron.md
like(import('false'), qr/here\|created, paused/, 'handed over: imported');
sql(q{BEGIN;
	SELECT cron.alter_job(e.jobid, active => false), sweep.resume(i.job) FROM cron.job AS e JOIN sweep.import_pg_cron() AS i USING (jobid)
		WHERE e.active AND i.note LIKE 'exists already%';
	COMMIT});
is(sql('SELECT e.jobname, e.active, j.state FROM cron.job e LEFT JOIN sweep.jobs j ON j.name = e.jobname ORDER BY 1'),
	"a host|t|\na port|t|\na socket|f|idle\nhere|f|idle", 'handed over: each entry is active in one of both');
$node->stop;
done_testing();
