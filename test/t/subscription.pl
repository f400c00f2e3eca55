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
	SELECT sweep.create_queue('mail'), sweep.create_queue('kept', keep_done => '1 day');
	SELECT count(sweep.send('mail', to_jsonb(n))) FROM generate_series(1, 50) AS n;
	SELECT count(sweep.send('kept', to_jsonb(n))) FROM generate_series(1, 5) AS n;
	SELECT sweep.create_job('count', '0 0 1 1 *', 'INSERT INTO public.done VALUES (now())')});
$old->safe_psql('app', q{SELECT count(sweep.ack(lease)) FROM (SELECT DISTINCT lease FROM sweep.claim('kept', 5)) AS c});
my $run = $old->safe_psql('app', q{SELECT sweep.start('count')});
soon($old, "SELECT status FROM sweep.runs WHERE run_id = $run", 'succeeded', 'a run on the old server', 'app');
$old->safe_psql('app', 'CREATE PUBLICATION everything FOR ALL TABLES');
is($old->safe_psql('app', q{SELECT count(*) > 0 FROM pg_publication_tables WHERE pubname = 'everything' AND schemaname = 'sweep'}), 't',
	'FOR ALL TABLES publishes the tables of the extension');

# ---------------------------------------------------------------- replicated
$new->safe_psql('app', 'CREATE TABLE public.done (at timestamptz NOT NULL)');
my $connection = 'dbname=app host=' . $old->host . ' port=' . $old->port;
$new->safe_psql('app', "CREATE SUBSCRIPTION cutover CONNECTION '$connection' PUBLICATION everything");
soon($new, q{SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'}, 0, 'all tables are copied', 'app');
$old->safe_psql('app', q{SELECT sweep.send('mail', '"last"')});
$old->wait_for_catchup('cutover');
is($new->safe_psql('app', q{SELECT count(*), count(*) FILTER (WHERE payload = '"last"') FROM sweep.messages('mail', max => NULL)}), '51|1', 'the messages, and one that was sent later');
is($new->safe_psql('app', q{SELECT state FROM sweep.jobs WHERE name = 'count'}), 'paused: the database is a copy', 'the job is held back');
my ($status, $output, $message) = $new->psql('app', q{SELECT sweep.resume('count')});
like($message, qr/WARNING:  job "count" stays paused\n.*copy.*\n.*resume_all/, 'resume says what is missing');

# ---------------------------------------------------------------- cut over
$new->safe_psql('app', 'DROP SUBSCRIPTION cutover');
isnt($new->safe_psql('app', q{SELECT count(*) FROM sweep._used_numbers() AS u WHERE u.used > coalesce(pg_sequence_last_value(u.sequence::regclass), 0)}), 0,
	'the sequences are behind the rows');
$new->safe_psql('app', 'SELECT sweep.resume_all()');
is($new->safe_psql('app', q{SELECT count(*) FROM sweep._used_numbers() AS u WHERE u.used > coalesce(pg_sequence_last_value(u.sequence::regclass), 0)}), 0,
	'resume_all sets them right');
is($new->safe_psql('app', q{SELECT sweep.send('mail', '"new"') > max(message_id) FROM sweep.messages('mail', max => NULL)}), 't', 'a message that is sent comes last');
is($new->safe_psql('app', q{SELECT sweep.create_queue('other'); SELECT max(queue_id) = count(DISTINCT queue_id) FROM sweep.queue}), "\nt", 'a queue has a number of its own');
is($new->safe_psql('app', q{SELECT sweep.start('count')}) > $run, 1, 'a run has a number behind those before');
soon($new, q{SELECT count(*) FROM sweep.runs WHERE job = 'count' AND status = 'succeeded'}, 2, 'and runs, beside the history', 'app');
is($new->safe_psql('app', q{SELECT count(*), sum(sweep.ack(lease, ARRAY[message_id])) FROM sweep.claim('mail', 100)}), '52|52', 'all messages are delivered, each once');
$_->stop foreach $new, $old;
done_testing();
