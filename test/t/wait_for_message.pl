# room: queue
# CALL sweep.wait_for_message: wakes when there is something to claim, and
# holds nothing while it waits.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('wait_for_message');

sql(q{SELECT sweep.create_queue('mail', visibility => '1 h'); SELECT sweep.create_queue('other')});
my $waiter = session($node);
my $pid = $waiter->query_safe('SELECT pg_backend_pid()');
my $waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Extension' AND wait_event = '" . event_name('PgSweepQueue') . "' AND backend_xmin IS NULL AND query LIKE 'CALL%'";

sub begin_wait
{
	my ($name, $timeout) = @_;

	$waiter->query_safe(q{SELECT count(*) FROM sweep.claim('mail', 100)});
	begin_query($waiter, "CALL sweep.wait_for_message('mail', '$timeout')");
	soon($node, $waits, 1, "$name: it waits, without a snapshot");
}

sub wakes
{
	my ($name) = @_;

	soon($node, "SELECT state FROM pg_stat_activity WHERE pid = $pid", 'idle', "$name: it is woken");
	is(end_query($waiter), "\n", "$name: without a word");
}

# ---------------------------------------------------------------- what wakes it
begin_wait('send', '1 h');
sql(q{SELECT sweep.send('other', '1')});
my $sender = session($node);
$sender->query_safe(q{BEGIN; SELECT sweep.send('mail', '1')});
is(sql($waits), 1, 'neither a message of another queue nor one that is not committed wakes it');
$sender->query_safe('COMMIT');
wakes('send');
is($waiter->query_safe(q{SELECT payload FROM sweep.claim('mail', 10)}), '1', 'send: it can be claimed');

begin_wait('send_many', '1 h');
sql(q{SELECT sweep.send_many('mail', '{2,3}')});
wakes('send_many');
my $lease = $waiter->query_safe(q{SELECT DISTINCT lease FROM sweep.claim('mail', 10)});

begin_wait('release', '1 h');
sql("SELECT sweep.release('$lease')");
wakes('release');
$lease = $waiter->query_safe(q{SELECT DISTINCT lease FROM sweep.claim('mail', 10, '6 s')});

begin_wait('expired', '1 h');
wakes('expired');

begin_wait('delayed', '1 h');
sql(q{SELECT sweep.send('mail', '4', delay => '300 ms')});
wakes('delayed');
is($waiter->query_safe(q{SELECT payload FROM sweep.claim('mail', 10)}), '4', 'delayed: it can be claimed');

sql(q{SELECT sweep.create_queue('retry', backoff => 'none', max_attempts => 2); SELECT sweep.send('retry', '1')});
$lease = sql(q{SELECT lease FROM sweep.claim('retry', visibility => '1 h')});
begin_query($waiter, q{CALL sweep.wait_for_message('retry', '1 h')});
soon($node, $waits, 1, 'failed: it waits');
sql("SELECT sweep.fail('$lease', 'no')");
wakes('failed');
$lease = sql(q{SELECT lease FROM sweep.claim('retry', visibility => '1 h')});
begin_query($waiter, q{CALL sweep.wait_for_message('retry', '1 h')});
soon($node, $waits, 1, 'dead: it waits');
sql("SELECT sweep.fail('$lease', 'no')");
is(sql(q{SELECT dead FROM sweep.queues WHERE queue = 'retry'}), 1, 'dead: a message is dead');
is(sql($waits), 1, 'dead: that wakes nobody');
my $since = sql('SELECT extract(epoch FROM clock_timestamp())');
sql(q{SELECT sweep.redrive('retry')});
wakes('redriven');
cmp_ok(sql("SELECT extract(epoch FROM clock_timestamp()) - $since"), '<', 9, 'redriven: at once');

begin_wait('rollback', '1 h');
sql(q{SELECT sweep.send('mail', '5')});
wakes('rollback');
$waiter->query_safe('BEGIN');
is($waiter->query_safe(q{SELECT payload FROM sweep.claim('mail', 10)}), '5', 'rollback: it is claimed');
$sender->query_safe('SELECT 1');
begin_query($sender, q{CALL sweep.wait_for_message('mail', '1 h')});
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL%' AND wait_event_type = 'Extension'}, 1, 'rollback: another session waits');
$waiter->query_safe('ROLLBACK');
is(end_query($sender), "\n", 'rollback: it is woken when the claim is rolled back');
is($sender->query_safe(q{SELECT payload, attempts FROM sweep.claim('mail', 10)}), '5|1', 'rollback: and can claim that message, as if it had never been claimed');

# ---------------------------------------------------------------- many: all come to something
my @crowd = map { session($node) } 1 .. 5;
begin_query($_, q{CALL sweep.wait_for_message('mail', '1 h'); SELECT count(*) AS claimed FROM sweep.claim('mail')}) for @crowd;
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL%' AND wait_event_type = 'Extension'}, 5, 'five wait');
for my $n (1 .. 3)
{
	sql("SELECT sweep.send('mail', '$n')");
	soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL%' AND wait_event_type = 'Extension'}, 5 - $n, "one message wakes one of them ($n)");
}
sql(q{SELECT sweep.send_many('mail', '{4,5}')});
is(join(' ', map { end_query($_) =~ s/\s//gr } @crowd), '1 1 1 1 1', 'two messages wake the other two, and each of all five gets one');
# All of them know when something falls due; one looks, and wakes as many as there is more.
my $crowd_waits = q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL%' AND wait_event_type = 'Extension'};
sql(q{SELECT sweep.send('mail', '1', delay => '6 s')});
begin_query($_, q{CALL sweep.wait_for_message('mail', '1 h'); SELECT count(*) AS claimed FROM sweep.claim('mail')}) for @crowd;
soon($node, $crowd_waits, 5, 'five wait for a delayed message');
soon($node, q{SELECT ready + delayed FROM sweep.queues WHERE queue = 'mail'}, 0, 'one of them claims it');
# who is slow to claim it has been taken for somebody who does not, and one more was told
soon($node, "SELECT ($crowd_waits) >= 3", 't', 'the others go on waiting');
sql(q{SELECT sweep.send_many('mail', '{1,2,3,4}', delay => '300 ms')});
like(join(' ', sort map { end_query($_) =~ s/\s//gr } @crowd), qr/^[01] 1 1 1 1$/, 'four delayed messages wake them all, and each gets one');
$_->quit for @crowd;

# ---------------------------------------------------------------- number 40: all who wait know when a lease ends
sql(q{SELECT sweep.create_queue('leased', visibility => '1 h')});
sub wait_and_claim
{
	my ($session, $visibility) = @_;

	begin_query($session, "CALL sweep.wait_for_message('leased', '1 h'); SELECT payload, attempts FROM sweep.claim('leased', 1, '$visibility')");
}
my ($first, $second, $third) = map { session($node) } 1 .. 3;
wait_and_claim($first, '2 s');
soon($node, $crowd_waits, 1, '40: one waits');
wait_and_claim($second, '1 h');
soon($node, $crowd_waits, 2, '40: two wait');
$since = time();
sql(q{SELECT sweep.send('leased', '1')});
like(end_query($first), qr/1\|1/, '40: the first claims the message for 2 s, and is not heard of again');
like(end_query($second), qr/1\|2/, '40: the other one gets it');
cmp_ok(time() - $since, '<', 8, '40: when the lease has ended, not when it looks anyhow');
sql(q{SELECT sweep.purge_queue('leased')});

# and when something falls due, whoever of them goes away meanwhile
wait_and_claim($_, '1 h') for $first, $second, $third;
soon($node, $crowd_waits, 3, '40: three wait');
$since = time();
sql(q{SELECT sweep.send('leased', '2', delay => '5 s')});
# on a busy machine all of them may be told one after the other, and look at the same moment
soon($node, q{SELECT pg_cancel_backend((SELECT pid FROM pg_stat_activity WHERE query LIKE 'CALL%' AND wait_event_type = 'Extension' ORDER BY query_start LIMIT 1))}, 't', '40: one that waits is cancelled');
soon($node, $crowd_waits, 2, '40: the one that was told first goes away');
soon($node, q{SELECT ready + delayed FROM sweep.queues WHERE queue = 'leased'}, 0, '40: another one looks');
cmp_ok(time() - $since, '<', 9, '40: when it has fallen due');
sql(q{SELECT sweep.send('leased', '3')});
# who was slow to claim it has been taken for somebody who does not: then the last one was told, too, and has found nothing
like(join(' ', sort map { end_query($_) =~ s/.*ERROR.*/gone/sr =~ s/\s//gr } $first, $second, $third), qr/^(2\|1 3\|1| 2\|1) gone$/, '40: and the last one gets the next');
$_->quit for $first, $second, $third;

# ---------------------------------------------------------------- number 18: who has lost his client takes no message from others
sql(q{SELECT sweep.purge_queue('leased')});
my ($killed, $alive) = map { session($node) } 1 .. 2;
my $killed_pid = $killed->query_safe('SELECT pg_backend_pid()');
wait_and_claim($killed, '1 h');
soon($node, $crowd_waits, 1, '18: one waits');
wait_and_claim($alive, '1 h');
soon($node, $crowd_waits, 2, '18: so does another one, after it');
kill_process('KILL', $killed->{run}->{KIDS}[0]{PID});
{
	local $PostgreSQL::Test::Utils::timeout_default = 20;
	soon($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $killed_pid", 0, '18: the client of the first is killed, and the session ends');
}
$since = time();
sql(q{SELECT sweep.send('leased', '1')});
like(end_query($alive), qr/1\|1/, '18: the other one gets the message');
cmp_ok(time() - $since, '<', 8, '18: at once');
forget_session($killed);
$alive->quit;

# ---------------------------------------------------------------- and what does not
# number 18: of a queue that nobody has claimed from since the start of the server it is not known whether it is empty
sql(q{SELECT sweep.create_queue('fresh')});
my $fresh = session($node);
begin_query($fresh, q{CALL sweep.wait_for_message('fresh', '1 h')});
soon($node, $crowd_waits, 1, '18: nor does a queue of which nothing is known');
sql(q{SELECT sweep.send('fresh', '1')});
is(end_query($fresh), "\n", '18: a message does');
# the lease is gone, but not yet the note of when it was to end
$fresh->query_safe(q{SELECT sweep.ack(lease) FROM sweep.claim('fresh', 1, '1 s')});
$since = time();
$fresh->query_safe(q{CALL sweep.wait_for_message('fresh', '4 s')});
cmp_ok(time() - $since, '>=', 3, '18: nor does the end of a lease that was acknowledged before');
$fresh->quit;

begin_wait('timeout', '4 s');
wakes('timeout');
is($waiter->query_safe(q{SELECT count(*) FROM sweep.claim('mail', 10)}), 0, 'timeout: there is nothing');

begin_wait('cancel', '1 h');
sql("SELECT pg_cancel_backend($pid)");
like(end_query($waiter), qr/canceling statement due to user request/, 'cancel: an error');
begin_wait('dropped', '1 h');
sql(q{SELECT sweep.drop_queue('mail')});
like(end_query($waiter), qr/queue "mail" does not exist/, 'dropped: an error');
my $err;
$node->psql('postgres', q{BEGIN; CALL sweep.wait_for_message('other')}, stderr => \$err);
like($err, qr/cannot be called inside a transaction block/, 'not in a transaction block');
$node->psql('postgres', q{CALL sweep.wait_for_message('none')}, stderr => \$err);
like($err, qr/queue "none" does not exist/, 'not for a queue that there is not');
$node->psql('postgres', q{CALL sweep.wait_for_message('other')}, stderr => \$err, extra_params => [ '-U', 'jobber' ]);
like($err, qr/permission denied for queue "other"/, 'not for a queue of somebody else');
$node->stop;
done_testing();
