# room: process
# Notifications: sent by the scheduler, at most one per queue and interval, never
# by the commit of a producer.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('notification', conf => [ 'pg_sweep.notify_interval = 10ms', 'max_prepared_transactions = 1' ]);

# psql shows a notification after the query that is in progress, or follows it.
my $listener = session($node);

sub notifications
{
	my ($channel) = @_;
	my $output = end_query($listener);

	return scalar(() = $output =~ /Asynchronous notification "\Q$channel\E" received/g);
}

# Waits until there is one at least; returns how many there were.
sub notified
{
	my ($channel) = @_;
	my $count = 0;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	while ($count == 0 && time < $deadline)
	{
		# each look is a round trip to the server
		$count = notifications($channel);
	}
	return $count;
}

sql(q{SELECT sweep.create_queue('loud'); SELECT sweep.create_queue('quiet', notify => false)});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep scheduler'}, 0, 'a queue alone needs no process');
$listener->query_safe('LISTEN "sweep.loud"; LISTEN "sweep.quiet"');

sql(q{SELECT sweep.send('quiet', '1'); SELECT sweep.send('loud', '1')});
is(notified('sweep.loud'), 1, 'a message is notified');
is(notifications('sweep.quiet'), 0, 'not that of a queue that does not want it');
my $pid = pid_of($node, 'scheduler', 'postgres');
soon($node, "SELECT state, backend_xmin IS NULL, xact_start IS NULL FROM pg_stat_activity WHERE pid = $pid", 'idle|t|t', 'the scheduler that has sent it waits for more, without a transaction');

$node->psql('postgres', q{BEGIN; SELECT sweep.send('loud', '2'); ROLLBACK; SELECT sweep.send('quiet', '2')});
sql(q{SELECT sweep.create_queue('last')});
$listener->query_safe('LISTEN "sweep.last"');
sql(q{SELECT sweep.send('last', '1')});
is(notified('sweep.last'), 1, 'a queue that came later is notified');
is(notifications('sweep.loud'), 0, 'not what was rolled back');

# Nobody claims or waits meanwhile.
sql(q{BEGIN; SELECT sweep.send('last', '2'); PREPARE TRANSACTION 'news'});
is(notifications('sweep.last'), 0, 'what is prepared is not notified');
sql(q{COMMIT PREPARED 'news'});
is(notified('sweep.last'), 1, 'it is when it is committed');

# The producer itself notifies nobody: its commit takes no lock for it.
is(sql(q{BEGIN; SELECT sweep.send('loud', '3') IS NOT NULL; COMMIT; SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND database = 0 AND pid = pg_backend_pid()}),
	"t\n0", 'a producer takes no lock of the notification queue');
notified('sweep.loud');

sql(q{SELECT sweep.create_queue('again', max_attempts => 1)});
$listener->query_safe('LISTEN "sweep.again"');
sql(q{SELECT sweep.send('again', '1')});
notified('sweep.again');
sql(q{SELECT sweep.fail(lease, 'no') FROM sweep.claim('again')});
is(notifications('sweep.again'), 0, 'a message that has died is no news');
sql(q{SELECT sweep.redrive('again')});
is(notified('sweep.again'), 1, 'one that is redriven is');

# One per interval, however many messages.
$node->append_conf('postgresql.conf', 'pg_sweep.notify_interval = 1h');
$node->reload;
$node->poll_query_until('postgres', q{SELECT setting = '3600000' FROM pg_settings WHERE name = 'pg_sweep.notify_interval'});
my $sender = session($node);
$sender->query_safe(q{SELECT sweep.create_queue('hourly'); SELECT sweep.create_queue('next')});
$listener->query_safe('LISTEN "sweep.hourly"; LISTEN "sweep.next"');
$sender->query_safe(q{SELECT sweep.send('hourly', '4')});
is(notified('sweep.hourly'), 1, 'the first message of an interval is notified');
$sender->query_safe(q{SELECT sweep.send('hourly', '5')}) for 1 .. 20;
$sender->query_safe(q{SELECT sweep.send('next', '5')});
is(notified('sweep.next'), 1, 'so is that of another queue');
is(notifications('sweep.hourly'), 0, 'others of the same interval are not');

# The interval outlives the scheduler, and what was sent meanwhile is announced when it is over.
sql('SELECT pg_terminate_backend(' . keep_scheduler($node) . ', 100000)');
pid_of($node, 'scheduler', 'postgres');
is(notifications('sweep.hourly'), 0, 'another scheduler knows that the interval is not over');
$node->append_conf('postgresql.conf', 'pg_sweep.notify_interval = 10ms');
$node->reload;
is(notified('sweep.hourly'), 1, 'and notifies what was sent before');

# A listener that stays in a transaction keeps the notification queue from being emptied.
$node->append_conf('postgresql.conf', "pg_sweep.notify_interval = 10ms\npg_sweep.notify_queue_limit = 0");
$node->reload;
sql(q{SELECT sweep.create_queue('kept')});
$listener->query_safe('LISTEN "sweep.kept"');
my $stuck = session($node);
$stuck->query_safe('LISTEN "something else"');
$stuck->query_safe('BEGIN; SELECT 1');
sql(q{SELECT pg_notify('something else', repeat('x', 7999)) FROM generate_series(1, 10) AS n});
is(sql('SELECT pg_notification_queue_usage() > 0'), 't', 'the notification queue fills up');
my $offset = -s $node->logfile;
sql(q{SELECT sweep.send('kept', '7')});
ok($node->wait_for_log(qr/pg_sweep sends no notifications: the notification queue of the server is filling up/, $offset), 'the log says that none are sent');
is(notifications('sweep.kept'), 0, 'and none is');
$offset = -s $node->logfile;
sql('SELECT pg_terminate_backend(' . pid_of($node, 'scheduler', 'postgres') . ', 100000)');
ok($node->wait_for_log(qr/pg_sweep sends no notifications: the notification queue of the server is filling up/, $offset), 'another scheduler knows what the one before has not sent');
$stuck->query_safe('COMMIT');
ok($node->wait_for_log(qr/pg_sweep sends notifications again/, $offset), 'the log says when there is room again');
is(notified('sweep.kept'), 1, 'and what was kept is sent');
$stuck->quit;
unlike(slurp_file($node->logfile), qr/could not notify/, 'no notification failed');
$node->stop;
done_testing();
