# room: process
# A handler is dropped when its consumer has claimed a message, and before it calls it for the first time: the
# consumer is broken, and the message waits. It had ended the server.
#
# Two messages are made suspects of a crash, of which one at a time is handled: the first one stands in its handler,
# the second one has been claimed and waits for it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('handler_dropped');
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.first(m sweep.message) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock(7)';
	CREATE FUNCTION t.second(m sweep.message) RETURNS void LANGUAGE sql AS '';
	SELECT sweep.create_queue('first'), sweep.create_queue('second');
	SELECT sweep.send('first', '1'), sweep.send('second', '2');
	INSERT INTO sweep.consumer_crash SELECT queue_id, message_id, 1, now() FROM sweep.queue_message;
});
my $gate = session($node);
$gate->query_safe('SELECT pg_advisory_lock(7)');
$node->safe_psql('postgres', q{SELECT sweep.create_consumer('first', 't.first')});
soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted}, 1, 'a suspected message is being handled');
$node->safe_psql('postgres', q{SELECT sweep.create_consumer('second', 't.second')});
soon($node, q{SELECT in_flight FROM sweep.queues WHERE queue = 'second'}, 1, 'another one is claimed, and waits');

my $offset = -s $node->logfile;
$node->safe_psql('postgres', 'DROP FUNCTION t.second(sweep.message)');
$gate->query_safe('SELECT pg_advisory_unlock_all()');
soon($node, q{SELECT state, workers FROM sweep.consumers WHERE queue = 'second'}, 'broken: function t.second(sweep.message) or (sweep.message[]) does not exist|0', 'its consumer is broken');
soon($node, q{SELECT depth, in_flight FROM sweep.queues WHERE queue = 'second'}, '1|0', 'and the message is there');
unlike(slurp_file($node->logfile, $offset), qr/terminated by signal/, 'no process crashed');
forget_session($gate);
$node->stop;

done_testing();
