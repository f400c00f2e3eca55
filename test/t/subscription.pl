# room: api
# A cutover by logical replication, of a publication FOR ALL TABLES, in which ours are: on the subscriber jobs and consumers are
# held back, and sweep.resume_all() there makes them run and sets the sequences behind what has come.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $old = new_cluster('subscription_old', init => { allows_streaming => 'logical' });
my $new = new_cluster('subscription_new', init => { allows_streaming => 'logical' });

foreach my $node ($old, $new)
{
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', 'CREATE EXTENSION pg_sweep');
}

# ---------------------------------------------------------------- what is there
$old->safe_psql('app', q{CREATE TABLE public.done (at timestamptz NOT NULL);
	SELECT sweep.create_queue('mail'), sweep.create_queue('kept', keep_done => '1 day'), sweep.create_queue('empty'), sweep.create_queue('again');
	SELECT count(sweep.send('mail', to_jsonb(n))) FROM generate_series(1, 50) AS n;
	SELECT count(sweep.send('kept', to_jsonb(n))) FROM generate_series(1, 5) AS n;
	SELECT sweep.create_job('count', '0 0 1 1 *', 'INSERT INTO public.done VALUES (now())')});
$old->safe_psql('app', q{SELECT count(sweep.ack(lease)) FROM (SELECT DISTINCT lease FROM sweep.claim('kept', 5)) AS c});
my $run = $old->safe_psql('app', q{SELECT sweep.start('count')});
soon($old, "SELECT status FROM sweep.runs WHERE run_id = $run", 'succeeded', 'a run on the old server', 'app');
# An item in quarantine.
$old->safe_psql('app', q{
	CREATE FUNCTION public.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb WHERE b.cursor IS NULL $$;
	CREATE FUNCTION public.refuse(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
	SELECT sweep.create_job('items', step => 'public.refuse', pick => 'public.pick')});
$old->safe_psql('app', q{CALL sweep.run('items')});
# Runs that are in progress when the tables are copied.
$old->safe_psql('app', q{
	SELECT sweep.create_job('long', sql => 'SELECT pg_advisory_xact_lock(51, 1); SELECT 1/0', max_attempts => 3, on_failure => '{"told": "0"}'),
		sweep.create_job('told', sql => 'SELECT 1'), sweep.create_job('cut', sql => 'SELECT pg_advisory_xact_lock(51, 2)', max_attempts => 3)});
my ($gate, $cut) = map { my $s = session($old, database => 'app'); $s->query_safe("SELECT pg_advisory_lock(51, $_)"); $s } 1 .. 2;
my ($long, $unfinished) = map { $old->safe_psql('app', "SELECT sweep.start('$_')") } qw(long cut);
soon($old, 'SELECT count(*) FROM pg_locks WHERE NOT granted AND classid = 51', 2, 'two runs are in progress', 'app');
$old->safe_psql('app', 'CREATE PUBLICATION everything FOR ALL TABLES');
is($old->safe_psql('app', q{SELECT count(*) > 0 FROM pg_publication_tables WHERE pubname = 'everything' AND schemaname = 'sweep'}), 't',
	'FOR ALL TABLES publishes the tables of the extension');

# ---------------------------------------------------------------- replicated
$new->safe_psql('app', 'CREATE TABLE public.done (at timestamptz NOT NULL)');
my $connection = 'dbname=app host=' . $old->host . ' port=' . $old->port;
$new->safe_psql('app', "CREATE SUBSCRIPTION cutover CONNECTION '$connection' PUBLICATION everything");
soon($new, q{SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'}, 0, 'all tables are copied', 'app');
$new->safe_psql('app', q{SELECT sweep.create_job('here', sql => 'SELECT 1')});
tick($new, database => 'app', job => 'here');
is($new->safe_psql('app', "SELECT string_agg(status, ' ') FROM sweep.run_live WHERE run_id IN ($long, $unfinished)"), 'running running', 'a scheduler of the subscriber leaves runs of the other database alone');
is($new->safe_psql('app', q{BEGIN; DELETE FROM sweep.job_definition WHERE name = 'cut'; SELECT sweep._mark_lost(); ROLLBACK}), 0,
	'also when the job of a run is not copied yet, or dropped already');
is($new->safe_psql('app', 'SELECT count(*) FROM sweep.quarantined_item WHERE next_try > now()'), 1, 'an item is in quarantine');
$old->safe_psql('app', q{SELECT sweep.release_quarantine('items')});
soon($new, 'SELECT count(*) FROM sweep.quarantined_item WHERE next_try <= now()', 1, 'and is released with that of the other database', 'app');
$gate->query_safe('SELECT pg_advisory_unlock(51, 1)');
soon($old, "SELECT status FROM sweep.run_history WHERE run_id = $long", 'failed', 'one ends there', 'app');
soon($new, "SELECT status FROM sweep.run_history WHERE run_id = $long", 'failed', 'and so it does here', 'app');
# A session that knows the queues as they are now, and that nothing waits in some of them.
my $early = $new->background_psql('app', on_error_stop => 0);
is($new->safe_psql('app', q{SELECT queue, depth, dead FROM sweep.queues ORDER BY queue}), "again|0|0\nempty|0|0\nkept|0|0\nmail|50|0", 'the queues are counted');
is($early->query(q{SELECT count(*) FROM sweep.claim('empty') UNION ALL SELECT count(*) FROM sweep.messages('again')}), "0\n0", 'nothing waits in two of them');
$old->safe_psql('app', q{
	SELECT sweep.send('mail', '"last"'), sweep.send('empty', '"first"'), sweep.send('empty', '"second"', delay => '1 ms');
	SELECT sweep.ack(lease) FROM sweep.claim('mail');
	SELECT sweep.drop_queue('again');
	SELECT sweep.create_queue('again')});
$old->wait_for_catchup('cutover');
is($new->safe_psql('app', q{SELECT queue, depth, dead FROM sweep.queues ORDER BY queue}), "again|0|0\nempty|2|0\nkept|0|0\nmail|50|0", 'they are counted again when rows have come');
is($new->safe_psql('app', q{SELECT count(*), count(*) FILTER (WHERE payload = '"last"') FROM sweep.messages('mail', max => NULL)}), '50|1', 'the messages, and one that was sent later');
is($new->safe_psql('app', q{SELECT state FROM sweep.jobs WHERE name = 'count'}), 'paused: the database is a copy', 'the job is held back');
my ($status, $output, $message) = $new->psql('app', q{SELECT sweep.resume('count')});
like($message, qr/WARNING:  job "count" stays paused\n.*copy.*\n.*resume_all/, 'resume says what is missing');

# ---------------------------------------------------------------- cut over
$new->safe_psql('app', 'DROP SUBSCRIPTION cutover');
isnt($new->safe_psql('app', q{SELECT count(*) FROM sweep._used_numbers() AS u WHERE u.used > coalesce(pg_sequence_last_value(u.sequence::regclass), 0)}), 0,
	'the sequences are behind the rows');
$new->safe_psql('app', 'SELECT sweep.resume_all()');
soon($new, "SELECT status FROM sweep.run_history WHERE run_id = $unfinished", 'cancelled', 'what is still in progress there is cancelled here, and neither lost nor tried again', 'app');
is($new->safe_psql('app', q{SELECT count(*) FROM sweep.runs WHERE job = 'cut'}), 1, 'once');
is($new->safe_psql('app', q{SELECT count(*) FROM sweep._used_numbers() AS u WHERE u.used > coalesce(pg_sequence_last_value(u.sequence::regclass), 0)}), 0,
	'resume_all sets them right');
is($new->safe_psql('app', q{SELECT sweep.send('mail', '"new"') > max(message_id) FROM sweep.messages('mail', max => NULL)}), 't', 'a message that is sent comes last');
is($new->safe_psql('app', q{SELECT sweep.create_queue('other'); SELECT max(queue_id) = count(*) + 1 FROM sweep.queue}), "\nt", 'a queue has a number of its own: one was dropped');
is($new->safe_psql('app', q{SELECT sweep.start('count')}) > $run, 1, 'a run has a number behind those before');
soon($new, q{SELECT count(*) FROM sweep.runs WHERE job = 'count' AND status = 'succeeded'}, 2, 'and runs, beside the history', 'app');
is($new->safe_psql('app', q{SELECT count(*), sum(sweep.ack(lease, ARRAY[message_id])) FROM sweep.claim('mail', 100)}), '51|51', 'all messages are delivered, each once');
is($early->query(q{SELECT count(*) FROM sweep.claim('empty', 10)}), 2, 'also those of a queue in which the session had found none');
is($early->query(q{SELECT count(sweep.send('again', '1')); SELECT depth FROM sweep.queues WHERE queue = 'again'}), "1\n1", 'it sends to the queue that has come in place of another one');
$early->quit;
forget_session($_) for $gate, $cut;
$_->stop foreach $new, $old;
done_testing();
