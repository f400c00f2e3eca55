# room: engine
# Item jobs in the background: what they cost in transactions, row versions and
# memory; runs that end in the middle of a batch; the log; children and locks.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('item_jobs', conf => ['autovacuum = off', 'log_min_messages = log']);

# t.handle fails where an item is bad, waits at the gate where an item is its
# stop, and writes down what it handled. Args: bad, stop, gate, hopeless, quiet.
$node->safe_psql('postgres', q{
	CREATE TABLE t.item (id int PRIMARY KEY, handled int NOT NULL DEFAULT 0, rescued int NOT NULL DEFAULT 0, xid xid8) WITH (fillfactor = 50);
	CREATE FUNCTION t.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS
		'SELECT to_jsonb(id) FROM t.item WHERE id > coalesce(b.cursor::int, 0) ORDER BY id LIMIT b.size';
	CREATE FUNCTION t.handle(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		progress sweep.progress;
	BEGIN
		IF EXISTS (SELECT FROM unnest(b.items) AS i WHERE b.args -> 'bad' @> i) THEN
			RAISE EXCEPTION 'bad';
		END IF;
		UPDATE t.item SET handled = handled + 1, xid = pg_current_xact_id() FROM unnest(b.items) AS i WHERE id = i::int;
		GET DIAGNOSTICS progress.rows = ROW_COUNT;
		IF b.args -> 'stop' = ANY (b.items) THEN
			PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::bigint);
		END IF;
		RETURN progress;
	END $$;
	CREATE FUNCTION t.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE t.item SET rescued = rescued + 1 WHERE id = b.items[1]::int;
		RETURN ROW(1, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('items', step => 't.handle', pick => 't.pick', batch_size => 8);
});

sub fill
{
	my ($count) = @_;

	$node->safe_psql('postgres', qq{
		TRUNCATE t.item; TRUNCATE sweep.quarantined_item;
		INSERT INTO t.item SELECT generate_series(1, $count);});
}

sub alter
{
	my ($changes, $job) = @_;

	$job //= 'items';
	$node->safe_psql('postgres', qq{SELECT sweep.alter_job('$job', '$changes')});
}

sub next_xid
{
	return $node->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
}

# Nothing but a test uses transaction ids once the scheduler sleeps.
sub quiet
{
	soon($node, q{SELECT count(*) = 0 FROM sweep.run_live WHERE finished_at IS NOT NULL}, 't', 'the scheduler has nothing to do');
}

# How often each item was handled, as digits.
sub handled
{
	return $node->safe_psql('postgres', q{SELECT string_agg(handled::text, '' ORDER BY id) FROM t.item});
}

sub quarantined
{
	return $node->safe_psql('postgres', q{SELECT string_agg(item::text, ' ' ORDER BY item) FROM sweep.quarantine});
}

# ---------------------------------------------------------------- transaction ids and row versions
for my $case (['batch', 40, 40], ['row', 2000, 40])
{
	my ($transaction, $expected, $batches) = @$case;

	fill(2000);
	alter(qq({"transaction": "$transaction", "batch_size": 50}));
	quiet();
	my $before = next_xid();
	my $updates = $node->safe_psql('postgres', q{SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'sweep.run_live'::regclass});
	my $run = start('items');
	is(ended_run($node, $run), 'succeeded drained ' . ($batches + 1) . ' 2000', "transaction $transaction: 2000 items");
	quiet();
	my $used = next_xid() - $before;
	cmp_ok($used, '>=', $expected, "transaction $transaction: a transaction id for each");
	cmp_ok($used, '<=', $expected + $batches + 20, "transaction $transaction: and hardly any more ($used)");
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT xid) FROM t.item'), $expected, "transaction $transaction: so many commits");
	soon($node, qq{SELECT n_tup_upd - $updates BETWEEN $batches AND $batches + 20 FROM pg_stat_user_tables WHERE relid = 'sweep.run_live'::regclass},
		't', "transaction $transaction: the row of the run is written once per batch");
}

# In a session the work of a batch is a subtransaction, which has an id of its own.
fill(2000);
alter('{"transaction": "batch", "batch_size": 50}');
quiet();
my $before = next_xid();
$node->safe_psql('postgres', q{CALL sweep.run('items')});
quiet();
my $used = next_xid() - $before;
cmp_ok($used, '>=', 80, 'CALL: two transaction ids per batch');
cmp_ok($used, '<=', 110, "CALL: and hardly any more ($used)");

# While somebody holds a snapshot no dead version can go; the row of the run must not have one per item.
fill(2000);
alter('{"transaction": "row", "batch_size": 500}');
my $old = session($node);
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t.item');
my $size = $node->safe_psql('postgres', q{SELECT pg_relation_size('sweep.run_live')});
is(ended_run($node, start('items')), 'succeeded drained 5 2000', 'with an old snapshot around: all items');
cmp_ok($node->safe_psql('postgres', q{SELECT pg_relation_size('sweep.run_live')}) - $size, '<=', 4 * 8192, 'the row of the run has few versions');
$old->query_safe('COMMIT');
$old->quit;

# ---------------------------------------------------------------- any set of bad items, with and without a rescue function
srand(20260101);
for my $round (1 .. 12)
{
	my $items = 1 + int(rand(40));
	my $share = ($round % 6) / 5;
	my @bad = grep { rand() < $share } 1 .. $items;
	my %is_bad = map { $_ => 1 } @bad;
	my $transaction = $round % 2 ? 'row' : 'batch';
	my $rescue = $round % 3 ? 'null' : '"t.rescue"';
	my $size = 1 + int(rand(20));

	fill($items);
	alter(qq({"transaction": "$transaction", "batch_size": $size, "rescue": $rescue}));
	like(ended_run($node, start('items', '{"bad": [' . join(',', @bad) . ']}')), qr/^succeeded drained/, "round $round: $items items, " . @bad . ' bad');
	is(handled(), join('', map { $is_bad{$_} ? 0 : 1 } 1 .. $items), "round $round: the others are handled once");
	is($node->safe_psql('postgres', q{SELECT string_agg(rescued::text, '' ORDER BY id) FROM t.item}),
		join('', map { $is_bad{$_} && $rescue ne 'null' ? 1 : 0 } 1 .. $items), "round $round: rescued");
	is(quarantined(), $rescue eq 'null' ? join(' ', @bad) : '', "round $round: quarantined");
}

# ---------------------------------------------------------------- a run that ends in the middle of a batch
# Batches of 8; item 2 has the first cut into pieces, item 10 the second. The
# next run goes on right behind. With transactions per item that is so when the
# run could still write its row; a killed one does its last batch again.
my %ends = (
	cancelled => sub { $node->safe_psql('postgres', "SELECT sweep.cancel($_[0])") },
	'pg_cancel_backend' => sub { $node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM sweep.runs WHERE run_id = $_[0]") },
	terminated => sub { $node->safe_psql('postgres', "SELECT pg_terminate_backend(pid, 100000) FROM sweep.runs WHERE run_id = $_[0]") },
	timeout => sub { },
	'kill -9' => sub { flush_wal($node); crash_of($node, $node->safe_psql('postgres', "SELECT pid FROM sweep.runs WHERE run_id = $_[0]")) });

for my $transaction ('batch', 'row')
{
	for my $how (sort keys %ends)
	{
		for my $stop (5, 13)
		{
			my $name = "$how at item $stop, transaction $transaction";
			my $again = $transaction eq 'row' && ($how eq 'kill -9' || $how eq 'terminated');

			fill(20);
			$node->safe_psql('postgres', q{DELETE FROM sweep.run_live WHERE job = 'items'; UPDATE sweep.job_state SET kept_cursor = NULL});
			alter(qq({"transaction": "$transaction", "batch_size": 8, "cursor": "drain", "flush": "batch", "rescue": null, "timeout": )
				. ($how eq 'timeout' ? '"5 s"}' : 'null}'));
			my $gate = hold_gate($node, 31);
			my $run = start('items', qq({"bad": [2, 10], "stop": $stop, "gate": 31}));
			at_gate($node, 31, "$name: it is there");
			$ends{$how}->($run);
			if ($how eq 'kill -9') { forget_session($gate); }
			unlike(ended_run($node, $run), qr/succeeded/, "$name: it has ended");
			open_gate($gate) if $how ne 'kill -9';
			alter('{"timeout": null}');
			is(ended_run($node, start('items', '{"bad": [2, 10]}')) =~ s/ \d+ \d+$//r, 'succeeded drained', "$name: the next run drains");
			my $expected = '10' . '1' x 7 . '0' . '1' x 10;
			# The row of the run is written once a second, which may have been just then.
			substr($expected, $stop - 5, 4) =~ s/1/[12]/g if $again;
			like(handled(), qr/^$expected$/, "$name: " . ($again ? 'what the killed run had not recorded is done again' : 'nothing is left out or done twice'));
			is(quarantined(), '2 10', "$name: those that failed are in quarantine");
		}
	}
}
alter('{"cursor": "run", "flush": "run"}');

# A process that is terminated writes nothing. What it had done a second before is known all the same.
fill(8);
my $last_second = session($node);
$last_second->query_safe('BEGIN; SELECT FROM t.item WHERE id = 6 FOR UPDATE');
my $third = hold_gate($node, 31);
my $terminated = start('items', '{"stop": 3, "gate": 31}');
at_gate($node, 31, 'terminated: the third item takes more than a second');
soon($node, "SELECT clock_timestamp() > started_at + interval '1500 ms' FROM sweep.runs WHERE run_id = $terminated", 't', 'terminated: it has');
open_gate($third);
soon($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_sweep runner' AND wait_event IN ('transactionid', 'tuple')}, 1, 'terminated: the sixth waits');
$ends{terminated}->($terminated);
is(ended_run($node, $terminated) =~ s/ \d+$//r, 'lost lost 0', 'terminated: the run is lost');
cmp_ok($node->safe_psql('postgres', "SELECT rows FROM sweep.runs WHERE run_id = $terminated"), '>=', 3, 'terminated: its rows are those of a second before');
is(handled(), '11111000', 'terminated: five were committed');
$last_second->query_safe('COMMIT');
$last_second->quit;

# ---------------------------------------------------------------- transient errors between real sessions
fill(8);
alter('{"transaction": "batch", "row_retries": 0}');
$node->safe_psql('postgres', q{ALTER FUNCTION t.handle(sweep.batch) SET lock_timeout = '50 ms'});
my $locker = session($node);
$locker->query_safe('BEGIN; SELECT FROM t.item WHERE id = 3 FOR UPDATE');
like(ended_run($node, start('items')), qr/^succeeded drained 2 7/, 'a row that somebody has locked holds up no other');
is(handled(), '11011111', 'all but that one');
is($node->safe_psql('postgres', 'SELECT item, sqlstate FROM sweep.quarantine'), '3|55P03', 'it is tried later');
$locker->query_safe('COMMIT');
$locker->quit;
$node->safe_psql('postgres', q{ALTER FUNCTION t.handle(sweep.batch) RESET lock_timeout; SELECT sweep.release_quarantine('items')});
is(ended_run($node, start('items')), 'succeeded drained 2 8', 'released: it is handled');
is(quarantined(), '', 'and out of quarantine');

# ---------------------------------------------------------------- a slow item is a bad item
# The statement timeout is that of the role, for each call of the step.
fill(8);
$node->safe_psql('postgres', q{ALTER ROLE postgres SET statement_timeout = '2s'; SELECT sweep.alter_job('items', '{"row_retries": 3}')});
my $slow = hold_gate($node, 34);
like(ended_run($node, start('items', '{"stop": 6, "gate": 34}')), qr/^succeeded drained 2 7/, 'an item that takes too long holds up no other');
is(handled(), '11111011', 'all but that one');
is($node->safe_psql('postgres', 'SELECT item, sqlstate FROM sweep.quarantine'), '6|57014', 'it is tried later');
$node->safe_psql('postgres', 'ALTER ROLE postgres RESET statement_timeout');
open_gate($slow);

# ---------------------------------------------------------------- what is wrong with the job puts no item aside
fill(8);
my @broken = ('ALTER TABLE t.item RENAME COLUMN xid TO other', 'ALTER TABLE t.item RENAME COLUMN handled TO other');
# from 16 on a function can no longer set that
push @broken, 'ALTER FUNCTION t.handle(sweep.batch) SET transaction_read_only = on'
	if $node->safe_psql('postgres', 'SHOW server_version_num') < 160000;
for my $what (@broken)
{
	my $undo = $what =~ /COLUMN (\w+)/ ? "ALTER TABLE t.item RENAME COLUMN other TO $1" : 'ALTER FUNCTION t.handle(sweep.batch) RESET transaction_read_only';

	$node->safe_psql('postgres', $what);
	is(ended_run($node, start('items')), 'failed error 0 0', "$what: the run fails");
	is(quarantined(), '', "$what: no item is in quarantine");
	$node->safe_psql('postgres', $undo);
}
is(ended_run($node, start('items')), 'succeeded drained 2 8', 'mended: all items are handled');

# ---------------------------------------------------------------- the log
fill(4);
alter('{"batch_size": 4}');
$node->safe_psql('postgres', q{ALTER SYSTEM SET pg_sweep.log_batches = 'items'});
$node->reload;
soon($node, 'SHOW pg_sweep.log_batches', 'items', 'every item is logged');
my $offset = -s $node->logfile;
alter('{"rescue": "t.rescue"}');
my $run = start('items', '{"bad": [2]}');
is(ended_run($node, $run), 'succeeded drained 2 4', 'a run with a rescued item');
alter('{"rescue": null}');
my $other = start('items', '{"bad": [2]}');
is(ended_run($node, $other), 'succeeded drained 2 3', 'a run with one for the quarantine');
my $log = slurp_file($node->logfile, $offset);
like($log, qr/job "items" run $run: item $_ handled\n/, "item $_ is logged") for 1, 3, 4;
like($log, qr/job "items" run $run: item 2 rescued\n/, 'the rescued one, too');
like($log, qr/job "items" run $other: item 2 put into quarantine\n/, 'the one in quarantine, too');
is(scalar(() = $log =~ /run $run: item /g), 4, 'a line for each');
is(scalar(() = $log =~ /run $run: batch /g), 2, 'and one for each batch');
$node->safe_psql('postgres', q{ALTER SYSTEM SET pg_sweep.log_batches = 'batches'});
$node->reload;
soon($node, 'SHOW pg_sweep.log_batches', 'batches', 'only batches are logged');
$offset = -s $node->logfile;
alter('{"transaction": "row"}');
$run = start('items', '{"bad": [3]}');
ended_run($node, $run);
$log = slurp_file($node->logfile, $offset);
is(scalar(() = $log =~ /run $run: batch /g), 2, 'a line for each batch, not for each piece');
unlike($log, qr/run $run: item/, 'and none for items');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET pg_sweep.log_batches});
$node->reload;
soon($node, 'SHOW pg_sweep.log_batches', 'off', 'logging is off again');

# ---------------------------------------------------------------- memory
# Private memory of the runner, in kB, when it comes to an item.
sub memory_at
{
	my ($run) = @_;
	my $pid = $node->safe_psql('postgres', "SELECT pid FROM sweep.runs WHERE run_id = $run");
	my ($kb) = slurp_file("/proc/$pid/smaps_rollup") =~ /^Private_Dirty:\s+(\d+)/m;

	return $kb;
}

for my $case (['100,000 items in batches', '{}', '{"transaction": "batch", "batch_size": 1000, "rescue": null}', 100000],
	['100,000 items one by one', '{}', '{"transaction": "row", "batch_size": 1000}', 100000],
	['20,000 items that fail', '{"all": true}', '{"transaction": "batch", "batch_size": 1000, "rescue": "t.rescue"}', 20000])
{
	my ($name, $args, $changes, $items) = @$case;
	my $last = $items - 1;

	$node->safe_psql('postgres', qq{
		CREATE FUNCTION t.note_item(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS \$\$
		BEGIN
			IF b.items[1] \@> '1' THEN
				PERFORM pg_advisory_xact_lock(32);
			END IF;
			IF '$last'::jsonb = ANY (b.items) THEN
				PERFORM pg_advisory_xact_lock(35);
			END IF;
			IF b.args ? 'all' THEN
				RAISE EXCEPTION 'bad: %', repeat('x', 1000);
			END IF;
			RETURN ROW(1, NULL, NULL)::sweep.progress;
		END \$\$;
		SELECT sweep.create_job('memory', step => 't.note_item', pick => 't.pick');});
	fill($items);
	alter($changes, 'memory');
	# What is written to the log must not stay in memory either.
	$node->safe_psql('postgres', q{ALTER SYSTEM SET pg_sweep.log_batches = 'items'}) if $args ne '{}';
	$node->reload;
	soon($node, 'SHOW pg_sweep.log_batches', $args ne '{}' ? 'items' : 'off', "$name: log_batches is as it should be");
	my $gate = hold_gate($node, 32);
	my $last_gate = hold_gate($node, 35);
	my $run = start('memory', $args);
	at_gate($node, 32, "$name: it begins");
	my $first = memory_at($run);
	open_gate($gate);
	at_gate($node, 35, "$name: it comes to its end");
	my $grown = memory_at($run) - $first;
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET pg_sweep.log_batches');
	cmp_ok($grown, '<', 20 * 1024, "$name: memory grew by $grown kB");
	open_gate($last_gate);
	like(ended_run($node, $run), qr/^succeeded drained/, "$name: all are done");
	$node->safe_psql('postgres', q{SELECT sweep.drop_job('memory'); DROP FUNCTION t.note_item});
}

$node->reload;

# ---------------------------------------------------------------- a dump takes the quarantine along
fill(4);
alter('{"rescue": null, "transaction": "batch"}');
ended_run($node, start('items', '{"bad": [2]}'));
my ($dump) = run_command([ 'pg_dump', '-d', $node->connstr('postgres') ]);
like($dump, qr/COPY sweep\.quarantined_item [^\n]*;\nitems\t2\t\w+\tP0001\tbad/, 'a dump has the items in quarantine');

# ---------------------------------------------------------------- children, and the lock of their parent
$node->safe_psql('postgres', q{
	SELECT sweep.create_job('parent', step => 't.note', args => '{"gate": 33}', on_start => '{"child": "1 hour"}');
	SELECT sweep.create_job('child', step => 't.note');
});
sub children
{
	return $node->safe_psql('postgres', q{SELECT count(*) FROM sweep.runs WHERE job = 'child' AND trigger = 'parent' AND status = 'waiting'});
}
my $holder = session($node);
$holder->query_safe(q{SELECT sweep.try_lock('parent')});
is(ended_run($node, due_run($node, 'parent')), 'skipped skipped 0 0', 'a parent whose lock is held is skipped');
is(children(), 1, 'its child waits');
$holder->query_safe(q{SELECT sweep.release_lock('parent')});
$holder->quit;
$node->safe_psql('postgres', q{SELECT sweep.pause('child'); SELECT sweep.resume('child')});
is(children(), 0, 'a pause cancels it');
my $gate = hold_gate($node, 33);
$run = start('parent');
at_gate($node, 33, 'a parent is in its step');
is(children(), 1, 'its child waits already');
$node->safe_psql('postgres', "SELECT sweep.cancel($run)");
is(ended_run($node, $run), 'cancelled cancelled 0 0', 'the parent is cancelled');
is(children(), 1, 'the child waits still');
open_gate($gate);

# Across a restart, and overdue when the server comes back.
restart_after($node, q{UPDATE sweep.run_live SET due_at = now() - interval '10 min' WHERE job = 'child' AND status = 'waiting'});
soon($node, q{SELECT string_agg(status || ' ' || stop_reason, ',') FROM sweep.runs WHERE job = 'child' AND trigger = 'parent' AND status <> 'cancelled'},
	'succeeded drained', 'after a restart a late child runs once');
$node->stop;
done_testing();
