# room: gitlab
# The GitLab jobs for stuck builds: 20,000 of them, some of which refuse; the
# children of the parent; what is logged.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('stuck_builds', gitlab => 1, conf => [ 'autovacuum = off', "pg_sweep.log_batches = 'off'" ]);
my $job = 'ci_stuck_builds_drop_canceling';

$node->safe_psql('postgres', slurp_file(__FILE__ =~ s{[^/]*$}{../../../test/demo/gitlab_schema.sql}r));
$node->safe_psql('postgres', 'SELECT sweep_gitlab.install(paused => true)');

# ---------------------------------------------------------------- 20,000 stuck builds
# Of 200,000 the lowest 20,000 are stuck; 50 of them refuse to be dropped, 20 of these to be doomed as well.
$node->safe_psql('postgres', q{
	CREATE TEMP TABLE secondary ON COMMIT PRESERVE ROWS AS
		SELECT indexrelid::regclass::text AS name, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') AS definition
		FROM pg_index WHERE indrelid = 'p_ci_builds'::regclass AND NOT indisprimary;
	DO $$ DECLARE i record; BEGIN FOR i IN SELECT * FROM secondary LOOP EXECUTE 'DROP INDEX ' || i.name; END LOOP; END $$;
	INSERT INTO p_ci_builds (id, partition_id, type, status, created_at, updated_at, scheduled_at, project_id, commit_id, runner_id, lock_version)
		SELECT i, 100 + i % 3,
			CASE WHEN i > 20000 AND i % 7 = 0 THEN 'Ci::Bridge' ELSE 'Ci::Build' END,
			CASE WHEN i <= 20000 OR i % 7 = 0 THEN 'canceling'
				ELSE (ARRAY['success', 'failed', 'canceled', 'skipped', 'manual', 'created', 'running', 'pending', 'scheduled', 'canceling'])[1 + i % 10] END,
			now() AT TIME ZONE 'UTC' - CASE WHEN i <= 20000 OR i % 7 = 0 OR i % 10 <> 9 THEN interval '3 days' ELSE interval '10 min' END - i * interval '1 ms',
			now() AT TIME ZONE 'UTC' - interval '2 days', now() - interval '1 day', i % 100, i, i % 50, 0
		FROM generate_series(1, 200000) AS i;
	DO $$ DECLARE i record; BEGIN FOR i IN SELECT * FROM secondary WHERE name ~ '(status|scheduled_at)' LOOP EXECUTE i.definition; END LOOP; END $$;
	ANALYZE p_ci_builds;
	CREATE TABLE t.touched (id bigint);
	CREATE FUNCTION t.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.id % 400 = 0 AND (NEW.failure_reason = 3 OR NEW.id / 400 % 5 < 2) THEN
			RAISE EXCEPTION 'build % refuses', NEW.id;
		END IF;
		INSERT INTO t.touched VALUES (NEW.id);
		RETURN NEW;
	END
	$$;
	CREATE TRIGGER refuse BEFORE UPDATE ON p_ci_builds FOR EACH ROW EXECUTE FUNCTION t.refuse();
	CREATE TABLE t.others AS SELECT md5(string_agg(p::text, ' ' ORDER BY id)) AS sum, count(*) FROM p_ci_builds p WHERE id > 20000;
});
my $outcome = q{SELECT status, failure_reason, count(*), count(DISTINCT partition_id), max(lock_version) FROM p_ci_builds WHERE id <= 20000 GROUP BY 1, 2 ORDER BY 2};
my $run = $node->safe_psql('postgres', "SELECT sweep.start('$job')");
is(ended_run($node, $run), 'succeeded drained 201 19980', 'one run, and it gets to the end');
is($node->safe_psql('postgres', $outcome), "failed|3|19950|3|1\nfailed|12|30|3|1\ncanceling||20|3|0", '19,950 dropped, 30 doomed, 20 as they were');
is($node->safe_psql('postgres', "SELECT rescued, quarantined, sqlstate, error FROM sweep.runs WHERE run_id = $run"), '30|20||', 'the run counts them');
is( $node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT item -> 'id'), min(sqlstate), count(*) FILTER (WHERE message LIKE 'build % refuses' || chr(10) || '%'),
		count(*) FILTER (WHERE (item ->> 'id')::int / 400 % 5 < 2) FROM sweep.quarantine}),
	'20|20|P0001|20|20', 'the 20 are in quarantine with their errors');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), max(id) FROM t.touched'), '19980|19980|19999', 'no row is touched twice, none of the others');
is( $node->safe_psql('postgres', 'SELECT q.name, count(*), count(DISTINCT m.key) FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id) GROUP BY 1 ORDER BY 1'),
	"ci_build_finished|19980|19980\nci_pipeline_process|19980|19980", 'every pipeline and every build has its message');
is($node->safe_psql('postgres', q{SELECT p.sum = o.sum, p.count = o.count FROM t.others o,
		(SELECT md5(string_agg(p::text, ' ' ORDER BY id)) AS sum, count(*) FROM p_ci_builds p WHERE id > 20000) AS p}),
	't|t', '180,000 builds of other statuses, types and ages are as they were');

is(ended_run($node, $node->safe_psql('postgres', "SELECT sweep.start('$job')")), 'succeeded drained 2 0', 'the next run leaves the 20 alone');
is($node->safe_psql('postgres', 'SELECT min(attempts), max(attempts) FROM sweep.quarantine'), '1|1', 'and does not try them');
$node->safe_psql('postgres', "SELECT sweep.release_quarantine('$job'); DROP TRIGGER refuse ON p_ci_builds");
is(ended_run($node, $node->safe_psql('postgres', "SELECT sweep.start('$job')")), 'succeeded drained 2 20', 'once it is time, it does');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sweep.quarantine'), 0, 'and the quarantine is empty');

# ---------------------------------------------------------------- what is logged
$node->safe_psql('postgres', q{
	TRUNCATE p_ci_builds;
	INSERT INTO p_ci_builds (id, partition_id, type, status, created_at, updated_at, project_id, commit_id, runner_id, lock_version)
		SELECT i, 100, 'Ci::Build', 'canceling', '2025-01-01', '2025-01-01', 1, i, CASE i WHEN 1 THEN 7 END, 0 FROM generate_series(1, 3) AS i;
	CREATE TRIGGER refuse BEFORE UPDATE ON p_ci_builds FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION t.refuse();
	CREATE OR REPLACE FUNCTION t.refuse() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN IF NEW.failure_reason = 3 THEN RAISE EXCEPTION $$it refuses$$; END IF; RETURN NEW; END';
});
my $offset = -s $node->logfile;
ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('ci_stuck_builds_drop_running')}));
ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('ci_stuck_jobs')}));
my $log = slurp_file($node->logfile, $offset);
like($log, qr/Cleaning running, timed-out builds.*Cleaning pending, timed-out builds/s, 'each job says what it does');
unlike($log, qr/Dropping outdated build/, 'builds are not logged');
$node->safe_psql('postgres', q{ALTER SYSTEM SET pg_sweep.log_batches = 'items'; SELECT pg_reload_conf()});
$node->poll_query_until('postgres', q{SELECT current_setting('pg_sweep.log_batches') = 'items'});
$offset = -s $node->logfile;
ended_run($node, $node->safe_psql('postgres', "SELECT sweep.start('$job')"));
$log = slurp_file($node->logfile, $offset);
is(() = $log =~ /Cleaning canceling, timed-out builds/g, 1, 'the start is logged once');
like($log, qr/Dropping outdated build: build_id 1, runner_id 7, status canceling, failure_reason 3\b/, 'a build that is dropped');
like($log, qr/Dropping outdated build: build_id 2, runner_id none, status canceling, failure_reason 3\b/, 'and one without a runner');
like($log, qr/Dooming build: build_id 3, runner_id none, status canceling, failure_reason 12\b.*it refuses/s, 'a build that is doomed, and why');

# ---------------------------------------------------------------- the children
not_before_the_hour($node);
$node->safe_psql('postgres', q{SELECT sweep_gitlab.install(paused => false)});
my $children = q{SELECT r.job, r.trigger, r.status, date_trunc('min', r.due_at - p.at + interval '1 s') AS after
	FROM sweep.runs r, t.parent p WHERE r.trigger = 'parent' ORDER BY r.due_at};
my $expected = join("\n",
	'ci_stuck_builds_drop_running|parent|waiting|00:15:00',
	'ci_stuck_builds_drop_scheduled|parent|waiting|00:30:00',
	'ci_stuck_builds_drop_canceling|parent|waiting|00:45:00');
my $holder = session($node);
$holder->query_safe("SELECT sweep.try_lock('ci_stuck_jobs')");
$node->safe_psql('postgres', 'CREATE TABLE t.parent AS SELECT clock_timestamp() AS at');
like(ended_run($node, due_run($node, 'ci_stuck_jobs')), qr/^skipped /, 'the parent does not get its lock');
is($node->safe_psql('postgres', $children), $expected, 'its children are queued all the same');
$holder->quit;
like(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('ci_stuck_jobs')})), qr/^succeeded /, 'the parent runs');
is($node->safe_psql('postgres', $children), $expected, 'children that wait are not queued twice');

$node->restart;
is($node->safe_psql('postgres', $children), $expected, 'they survive a restart');
$node->stop('immediate');
# While their clock is moved no scheduler is there, which could start them just before the restart.
$node->append_conf('postgresql.conf', 'pg_sweep.enabled = off');
$node->start;
is($node->safe_psql('postgres', $children), $expected, 'and a crash');

# A late start: the server was down at their time. It is their clock that moves here.
$node->safe_psql('postgres', q{UPDATE sweep.run_live SET due_at = due_at - interval '2 hours' WHERE trigger = 'parent' AND job <> 'ci_stuck_builds_drop_scheduled'});
$node->append_conf('postgresql.conf', 'pg_sweep.enabled = on');
$node->restart;
soon($node, q{SELECT string_agg(job || ' ' || status, ', ' ORDER BY job) FROM sweep.runs WHERE trigger = 'parent'},
	'ci_stuck_builds_drop_canceling succeeded, ci_stuck_builds_drop_running succeeded, ci_stuck_builds_drop_scheduled waiting',
	'those whose time has passed run at once, the others wait');

$node->stop;
done_testing();
