# room: process
# While more runs wait than may be in progress, a process performs several of a role, one after the other. None of
# them finds what another one has left in the session; a process of another role, or one whose run failed, is not used.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('reuse', conf => [ 'pg_sweep.max_running_jobs = 2', 'pg_sweep.max_share_per_role = 1', 'max_prepared_transactions = 2' ]);
my $runs = 40;

$node->safe_psql('postgres', q{
	CREATE ROLE a LOGIN; CREATE ROLE b LOGIN; GRANT sweep_user TO a, b;
	ALTER ROLE a SET work_mem = '5MB'; ALTER ROLE a SET search_path = 't'; ALTER ROLE a SET synchronous_commit = 'local';
	CREATE SCHEMA left_over AUTHORIZATION a; GRANT USAGE ON SCHEMA left_over TO b;
	CREATE TABLE left_over.found (pid int DEFAULT pg_backend_pid(), who text DEFAULT current_user, what text, at timestamptz DEFAULT clock_timestamp());
	CREATE SEQUENCE left_over.numbers CACHE 10;
	GRANT ALL ON left_over.found, left_over.numbers TO a, b;
	CREATE FUNCTION left_over.look_and_leave(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		found text[] := ARRAY(SELECT 'prepared ' || name FROM pg_prepared_statements UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE name = 'kept'
			UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND classid = 4711
			UNION ALL SELECT 'work_mem ' || current_setting('work_mem') WHERE current_setting('work_mem') <> CASE current_user WHEN 'a' THEN '5MB' ELSE '4MB' END
			UNION ALL SELECT 'synchronous_commit ' || current_setting('synchronous_commit') WHERE current_setting('synchronous_commit') NOT IN ('off', 'local')
			UNION ALL SELECT 'own setting ' || current_setting('left.over', true) WHERE current_setting('left.over', true) <> ''
			UNION ALL SELECT 'application_name ' || current_setting('application_name') WHERE current_setting('application_name') NOT LIKE '%#' || b.run_id
			UNION ALL SELECT 'lock taken' WHERE sweep.release_lock('left')
			UNION ALL SELECT 'row_security' WHERE current_setting('row_security') <> 'on');
	BEGIN
		IF to_regclass('pg_temp.left_table') IS NOT NULL THEN
			found := found || 'temporary table';
		END IF;
		BEGIN
			PERFORM currval('left_over.numbers');
			found := found || 'sequence';
		EXCEPTION WHEN object_not_in_prerequisite_state THEN
			NULL;
		END;
		INSERT INTO left_over.found (what) VALUES (array_to_string(found, ', '));
		EXECUTE 'PREPARE left_statement AS SELECT 1';
		EXECUTE 'DECLARE kept CURSOR WITH HOLD FOR SELECT 1';
		EXECUTE 'CREATE TEMPORARY TABLE left_table (a int)';
		-- Too long for its row of the catalogue: it goes with a snapshot only, which servers with assertions insist on.
		EXECUTE format('COMMENT ON TABLE left_table IS %L', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) AS i));
		PERFORM nextval('left_over.numbers'), sweep.try_lock('left'), pg_advisory_lock(4711, pg_backend_pid()), set_config('work_mem', '7MB', false), set_config('left.over', 'yes', false),
			set_config('synchronous_commit', 'on', false), set_config('row_security', 'off', false), set_config('search_path', 'left_over', false),
			set_config('application_name', 'left over', false);
		RETURN ROW(CASE WHEN b.cursor IS NULL AND b.args ? 'fails' THEN 1 / (b.args->>'fails')::int ELSE 0 END::bigint, NULL::jsonb, NULL::jsonb);
	END $$;
	ALTER FUNCTION left_over.look_and_leave OWNER TO postgres;
	SELECT sweep.create_job('a' || i, step => 'left_over.look_and_leave', run_as => 'a') FROM generate_series(1, } . $runs . q{) AS i;
	SELECT sweep.create_job('b' || i, step => 'left_over.look_and_leave', run_as => 'b') FROM generate_series(1, 5) AS i;
	SELECT sweep.create_job('fails' || i, step => 'left_over.look_and_leave', run_as => 'a', args => '{"fails": 0}') FROM generate_series(1, 10) AS i;
});

sub found
{
	return $node->safe_psql('postgres', "SELECT $_[0] FROM left_over.found");
}

my $ended = q{SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL};

# ---------------------------------------------------------------- one after the other
$node->safe_psql('postgres', "SELECT sweep.start('a' || i) FROM generate_series(1, $runs) AS i");
soon($node, $ended, 0, 'many runs of one role end');
is($node->safe_psql('postgres', q{SELECT count(*), min(status::text), max(status::text) FROM sweep.runs}), "$runs|succeeded|succeeded", 'all have succeeded');
is(found('count(*)'), $runs, 'each has done its work once');
is(found(q{string_agg(DISTINCT what, '; ')}), '', 'and has found nothing of another one');
cmp_ok(found('count(DISTINCT pid)'), '<', $runs, 'a process has performed several of them');
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner'}, 0, 'none stays when nothing waits');

# ---------------------------------------------------------------- another role
$node->safe_psql('postgres', q{TRUNCATE left_over.found; SELECT sweep.start('a' || i) FROM generate_series(1, 30) AS i; SELECT sweep.start('b' || i) FROM generate_series(1, 5) AS i});
soon($node, $ended, 0, 'runs of two roles end');
is(found('count(*)'), 35, 'each has done its work');
is(found(q{string_agg(DISTINCT what, '; ')}), '', 'and has found nothing of another one');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT pid FROM left_over.found GROUP BY pid HAVING count(DISTINCT who) > 1) AS p}), 0, 'no process has run as both');

# ---------------------------------------------------------------- after an error
$node->safe_psql('postgres', q{TRUNCATE left_over.found; SELECT sweep.start('fails' || i) FROM generate_series(1, 10) AS i});
soon($node, $ended, 0, 'runs that fail end');
is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT pid) FROM sweep.runs WHERE status = 'failed' AND sqlstate = '22012'}), '10|10', 'each had a process of its own');

# ---------------------------------------------------------------- a process that is ended while it waits
# At random moments: as idle they show themselves between two runs, and for a moment before the first.
$node->safe_psql('postgres', q{TRUNCATE left_over.found});
$node->safe_psql('postgres', "SELECT sweep.start('a' || i) FROM generate_series(1, $runs) AS i");
my $terminated = 0;
for (1 .. 200)
{
	$terminated += $node->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner' AND state = 'idle' AND xact_start IS NULL});
	last if $node->safe_psql('postgres', $ended) eq '0';
}
soon($node, $ended, 0, "every run ends although $terminated processes were terminated on the way");
is($node->safe_psql('postgres', qq{SELECT count(*) FROM (SELECT r.job FROM sweep.runs r WHERE r.run_id > (SELECT max(run_id) - $runs FROM sweep.runs) AND r.status NOT IN ('succeeded', 'failed', 'lost')) AS x}), 0,
	'as succeeded, failed or lost');
soon($node, q{SELECT count(*) FROM sweep.running}, 0, 'no slot is left behind');
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('a1')})), 'succeeded drained 1 0', 'and the next one runs');

# ---------------------------------------------------------------- one process for many short runs
# Each end is told to the scheduler, which starts the next run at once: it lists them anew every 100 ms, and does not wait for that. Most
# of the time is that of runs and of this list, not of gaps as long as that.
$node->append_conf('postgresql.conf', 'pg_sweep.max_running_jobs = 1');
$node->reload;
$node->safe_psql('postgres', q{SELECT sweep.create_job('short ' || i, step => 't.note') FROM generate_series(1, 300) AS i});
my $last = $node->safe_psql('postgres', 'SELECT max(run_id) FROM sweep.runs');
$node->safe_psql('postgres', q{SELECT sweep.start('short ' || i) FROM generate_series(1, 300) AS i});
soon($node, $ended, 0, 'many short runs end');
my $waited = $node->safe_psql('postgres', qq{
	SELECT (sum(gap) FILTER (WHERE gap > 0.05) / extract(epoch FROM max(finished_at) - min(started_at)))::numeric(9, 2)
	FROM (SELECT started_at, finished_at, extract(epoch FROM started_at - lag(finished_at) OVER (ORDER BY started_at, run_id)) AS gap
		FROM sweep.runs WHERE run_id > $last) AS gaps}) || 0;
cmp_ok($waited, '<', 0.85, "one begins when another one has ended ($waited of the time waited)");

# ---------------------------------------------------------------- when there is no room for another process
# There is room for one. Roles take turns, and no process keeps the next one waiting for its 100 ms: a run begins as soon after one that
# has succeeded as after one that has failed, whose process has ended at once. Both are measured in the same seconds, for how long the
# start of a process takes depends on the machine and on what else it does.
$node->append_conf('postgresql.conf', "max_worker_processes = 4\npg_sweep.max_running_jobs = 2");
$node->restart;
$node->safe_psql('postgres', q{
	CREATE ROLE c LOGIN IN ROLE sweep_user;
	GRANT USAGE ON SCHEMA left_over TO c;
	CREATE FUNCTION left_over.fails_or_not(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT ROW(1 / (b.args->>'divisor')::int - 1, NULL, NULL)::sweep.progress $$;
	SELECT sweep.create_job(r || ' ' || i, step => 'left_over.fails_or_not', run_as => r::regrole, args => jsonb_build_object('divisor', i % 2))
	FROM unnest('{a,b,c}'::text[]) AS r, generate_series(1, 80) AS i;
});
$last = $node->safe_psql('postgres', 'SELECT max(run_id) FROM sweep.runs');
$node->safe_psql('postgres', q{SELECT sweep.start(r || ' ' || i) FROM unnest('{a,b,c}'::text[]) AS r, generate_series(1, 80) AS i});
soon($node, $ended, 0, 'where there is hardly room for a process, runs of three roles end');
is($node->safe_psql('postgres', qq{SELECT status::text, sqlstate, count(*) FROM sweep.runs WHERE run_id > $last GROUP BY 1, 2 ORDER BY 1}), "failed|22012|120\nsucceeded||120", 'as they should');
cmp_ok($node->safe_psql('postgres', qq{SELECT max(ahead) FROM (SELECT greatest(a, b, c) - least(a, b, c) AS ahead FROM (
	SELECT count(*) FILTER (WHERE run_as = 'a') OVER w AS a, count(*) FILTER (WHERE run_as = 'b') OVER w AS b, count(*) FILTER (WHERE run_as = 'c') OVER w AS c
	FROM sweep.runs WHERE run_id > $last WINDOW w AS (ORDER BY started_at, run_id)) AS started) AS turns}), '<=', 1, 'no role has begun a run before each of the others had begun as many');

my ($gap, $gap_of_new) = split /\|/, $node->safe_psql('postgres', qq{
	SELECT (percentile_disc(0.5) WITHIN GROUP (ORDER BY gap) FILTER (WHERE before = 'succeeded'))::numeric(9, 3),
		(percentile_disc(0.5) WITHIN GROUP (ORDER BY gap) FILTER (WHERE before = 'failed'))::numeric(9, 3)
	FROM (SELECT extract(epoch FROM started_at - lag(finished_at) OVER w) AS gap, lag(status::text) OVER w AS before
		FROM sweep.runs WHERE run_id > $last WINDOW w AS (ORDER BY started_at, run_id)) AS gaps});
cmp_ok($gap, '<', $gap_of_new + 0.05, "and none has waited for a process that had nothing to do ($gap s against $gap_of_new)");

$node->stop;
done_testing();
