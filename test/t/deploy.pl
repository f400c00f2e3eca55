# room: api
# A script that creates jobs and queues, run again while a job runs and again
# with a change: nothing is written that has not changed, and nothing ends.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('deploy');
my $script = join("\n",
	'SET search_path = t, public;',
	(map { "SELECT sweep.create_queue('queue_$_', visibility => '$_ min', replace => true);" } 1 .. 3),
	(map { "SELECT sweep.create_job('job $_', '$_ 4 * * *', step => 't.note', timezone => 'UTC', args => '{\"gate\": $_}', jitter => '$_ min', replace => true);" } 1 .. 4),
	q{SELECT sweep.create_job('divided', step => 't.note', buckets => 3, on_success => '{"job 1": "1 h"}', alert_queue => 'queue_1', replace => true);},
	q{SELECT sweep.create_job('purge', '@daily', 'DELETE FROM t.todo WHERE id <= $1', timezone => 'UTC', run_as => 'jobber', replace => true);},
	q{SELECT sweep.create_job('each second', 'every 1 hour', step => 't.work', timezone => 'UTC', cursor => 'drain', max_rows => 100, replace => true);},
	q{SELECT sweep.create_job('boot', '@reboot', step => 't.work', timezone => 'UTC', paused => true, replace => true);},
	q{SELECT sweep.create_job('by hand', step => 't.work', replace => true);},
	q{SELECT sweep.create_job('described', step => 't.work', description => 'a word', stop_after => '1 min', timeout => '2 min', replace => true);});

not_before_the_hour($node);
$node->safe_psql('postgres', $script);
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM sweep.job), (SELECT count(*) FROM sweep.queue)'), '10|3', 'ten jobs and three queues');

# Every version of every row, who has locked it, and what sequences have given out.
my $rows = join(' UNION ALL ',
	(map { "SELECT '$_ ' || concat_ws(' ', ctid, xmin, xmax, r) FROM $_ AS r" } qw(sweep.job_definition sweep.job_state sweep.queue sweep.bucket)),
	q{SELECT 'number ' || last_value FROM sweep.queue_queue_id_seq}) . ' ORDER BY 1';
my $gate = hold_gate($node, 2);
my $run = $node->safe_psql('postgres', q{SELECT sweep.start('job 2')});
at_gate($node, 2, 'a job runs');
my $before = $node->safe_psql('postgres', $rows);
$node->safe_psql('postgres', $script);
is($node->safe_psql('postgres', $rows), $before, 'the script again writes nothing');
(my $changed = $script) =~ s/'job 2', '2 4/'job 2', batch_size => 5, schedule => '3 4/ or die;
$node->safe_psql('postgres', $changed);
is($node->safe_psql('postgres', q{SELECT schedule || ' ' || batch_size FROM sweep.job WHERE name = 'job 2'}), '3 4 * * * 5', 'a change of the job that runs');
my $other = join("\n", grep { !/"gate": 2/ && !/job 2/ } split(/\n/, $before));
is(join("\n", grep { !/"gate": 2/ && !/job 2/ } split(/\n/, $node->safe_psql('postgres', $rows))), $other, 'writes no other');
is($node->safe_psql('postgres', "SELECT status FROM sweep.runs WHERE run_id = $run"), 'running', 'it runs on');
open_gate($gate);
is(ended_run($node, $run), 'succeeded drained 1 0', 'to its end');
is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE status NOT IN ('succeeded', 'waiting')}), 0, 'and nothing else has ended');

# Two that create the same job at once: the second one waits, and changes it.
my $first = session($node);
my $second = session($node);
$first->query_safe(q{BEGIN; SELECT sweep.create_job('new', step => 't.note', replace => true); SELECT sweep.create_queue('new', replace => true)});
begin_query($second, q{SELECT sweep.create_queue('new', max_attempts => 3, replace => true); SELECT sweep.create_job('new', step => 't.note', batch_size => 3, replace => true)});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%max_attempts%'}, 1, 'one waits for the other');
$first->query_safe('COMMIT');
unlike(end_query($second), qr/ERROR/, 'and neither fails');
is($node->safe_psql('postgres', q{SELECT batch_size, max_attempts FROM sweep.job j, sweep.queue q WHERE j.name = 'new' AND q.name = 'new'} =~ s/, max/, q.max/r), '3|3', 'the last one counts');
$_->quit for $first, $second;
$node->stop;
done_testing();
