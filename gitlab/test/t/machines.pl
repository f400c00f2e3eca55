# room: gitlab
# The deletion of runner machines beside sessions that have some of them locked, as GitLab's own worker has: neither waits
# for the other for long, and nobody ends in a deadlock.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $job = 'ci_runners_stale_machines_cleanup';
my $node = new_cluster('machines', gitlab => 1);

$node->safe_psql('postgres', slurp_file(__FILE__ =~ s{[^/]*$}{../../../test/demo/gitlab_schema.sql}r));
sql(qq{SELECT sweep_gitlab.install(paused => true);
	SELECT sweep.alter_job('$job', '{"schedule": null, "paused": false, "timeout": "100 s"}')});

# Half of them have never made contact.
sub fill
{
	sql(q{
		TRUNCATE ci_runner_machines, loose_foreign_keys_deleted_records;
		INSERT INTO ci_runner_machines (id, runner_id, runner_type, system_xid, created_at, updated_at, contacted_at)
			SELECT i, i, 1 + i % 3, 'x' || i, now() - interval '30 days', now(), CASE WHEN i > 125 THEN now() - interval '20 days' + i * interval '1 s' END
			FROM generate_series(1, 250) AS i});
}

my $session = session($node);
my $deleted = q{SELECT string_agg(id::text, ' ' ORDER BY id), (SELECT count(*) FROM loose_foreign_keys_deleted_records) FROM ci_runner_machines};

# ---------------------------------------------------------------- locked for longer than a run takes
fill();
$session->query_safe('BEGIN; SELECT FROM ci_runner_machines WHERE id IN (7, 120, 200) FOR UPDATE');
my $run = start($job);
like(ended_run($node, $run), qr/^succeeded drained \d+ 250$/, 'a run beside machines that are locked');
is(sql($deleted), '7 120 200|247', 'it has deleted all others');
is(sql("SELECT detail ->> 'status', detail ->> 'total_deleted', detail ->> 'locked' FROM sweep.runs WHERE run_id = $run"), 'success|247|3', 'and says so');
$session->query_safe('COMMIT');
like(ended_run($node, start($job)), qr/^succeeded drained \d+ 3$/, 'the next run deletes them');
is(sql($deleted), '|250', 'all are gone');

# ---------------------------------------------------------------- the other one wants what this one has
fill();
$session->query_safe('BEGIN; DELETE FROM ci_runner_machines WHERE id = 50');
$run = start($job);
# it waits, or has ended already
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM sweep.runs r LEFT JOIN pg_locks l ON l.pid = r.pid AND NOT l.granted
	WHERE r.run_id = $run AND (l.pid IS NOT NULL OR r.finished_at IS NOT NULL)");
begin_query($session, 'DELETE FROM ci_runner_machines WHERE id = 1');
unlike(end_query($session), qr/ERROR/, 'a session that has one machine deletes another one, which the run has deleted as well');
$session->query_safe('COMMIT');
like(ended_run($node, $run), qr/^succeeded drained /, 'and the run goes on');
is(sql($deleted), '|250', 'all are gone, each once');

# ---------------------------------------------------------------- a lock of the table
fill();
$session->query_safe('BEGIN; LOCK TABLE ci_runner_machines IN SHARE MODE');
$run = start($job);
soon($node, "SELECT count(*) FROM pg_locks l JOIN sweep.runs r USING (pid) WHERE r.run_id = $run AND l.locktype = 'relation' AND NOT l.granted", '1',
	'a lock of the table is waited for');
$session->query_safe('COMMIT');
is(ended_run($node, $run), 'succeeded drained 4 250', 'with no batch halved');
$session->quit;
$node->stop;
done_testing();
