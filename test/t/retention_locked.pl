# room: makers
# Retention with rows of other tables beside sessions that hold these rows, add some, or take some away, and processes that are killed:
# what is held comes in a later pass, nothing waits for long, nothing goes that was not to go, and what is reported is what has gone.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;
use Time::HiRes qw(time);

# The slow part of the tests kills more often.
my $kills = $ENV{KILLS} || 4;
my $now = q{'{"as_of": "2026-03-01Z"}'};

my $node = new_cluster('retention_locked', conf => [ 'autovacuum = off', 'deadlock_timeout = 100ms' ]);

sub last_run { return $node->safe_psql('postgres', q{SELECT status, stop_reason, detail, error FROM sweep.runs ORDER BY run_id DESC LIMIT 1}) }

# Ten parents, of one moment each or all of one, with five children each, which have children themselves.
sub fill
{
	my ($at) = @_;

	$node->safe_psql('postgres', qq{
		DROP TABLE IF EXISTS t.leaf, t.child, t.parent;
		CREATE TABLE t.parent (id int PRIMARY KEY, at timestamptz, note int);
		CREATE TABLE t.child (id int PRIMARY KEY, parent_id int REFERENCES t.parent ON DELETE CASCADE, note int);
		CREATE TABLE t.leaf (id int PRIMARY KEY, child_id int REFERENCES t.child ON DELETE CASCADE, note int);
		CREATE INDEX ON t.parent (at); CREATE INDEX ON t.child (parent_id); CREATE INDEX ON t.leaf (child_id);
		INSERT INTO t.parent SELECT n, $at FROM generate_series(1, 10) AS n;
		INSERT INTO t.child SELECT n, 1 + n % 10 FROM generate_series(1, 50) AS n;
		INSERT INTO t.leaf SELECT n, n FROM generate_series(1, 50) AS n;
	});
}

sub create
{
	my ($batch_size, $settings) = @_;

	$node->safe_psql('postgres', "SELECT sweep.create_retention('t.parent', 'at', '10 days', name => 'held', schedule => NULL, batch_size => $batch_size, settings => '$settings', replace => true)");
}

# ---------------------------------------------------------------- rows that are held
my @holders = map { session($node) } 1 .. 3;

for my $case ([ 'of one moment each', q{'2026-01-01Z'::timestamptz + interval '1 minute' * n}, 1000 ], [ 'all of one moment', q{'2026-01-01Z'::timestamptz}, 1000 ],
	[ 'all of one moment, in small batches', q{'2026-01-01Z'::timestamptz}, 11 ], [ 'of one moment each, none of which fits', q{'2026-01-01Z'::timestamptz + interval '1 minute' * n}, 4 ])
{
	my ($name, $at, $batch_size) = @$case;

	fill($at);
	create($batch_size, '{}');
	$holders[0]->query_safe('BEGIN; UPDATE t.leaf SET note = 1 WHERE id = 2');
	$holders[1]->query_safe('BEGIN; SELECT FROM t.parent WHERE id = 5 FOR UPDATE');
	$holders[2]->query_safe('BEGIN; UPDATE t.child SET note = 1 WHERE id = 6');
	my $begun = time;
	$node->safe_psql('postgres', "CALL sweep.run('held', $now)");
	cmp_ok(time - $begun, '<', 60, "parents $name: the run does not wait for sessions that hold rows");
	like(last_run(), qr/^succeeded\|drained\|.*"locked": 3/, 'it says how many were held');
	is($node->safe_psql('postgres', 'SELECT array_agg(id ORDER BY id) FROM t.parent'), '{3,5,7}', 'all others are gone');
	$_->query_safe('COMMIT') for @holders;
	$node->safe_psql('postgres', "CALL sweep.run('held', $now)");
	unlike(last_run(), qr/locked/, 'the next run is held up by none');
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM t.parent) + (SELECT count(*) FROM t.child) + (SELECT count(*) FROM t.leaf)'), '0', 'and deletes the rest');
}

# ---------------------------------------------------------------- a later pass of the same run
fill(q{'2026-01-01Z'::timestamptz + interval '1 minute' * n});
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN OLD; END $$;
	CREATE TRIGGER waits BEFORE DELETE ON t.parent FOR EACH ROW WHEN (old.id = 9) EXECUTE FUNCTION t.wait();
});
create(5, '{"lock_timeout": "10min"}');
$holders[0]->query_safe('BEGIN; UPDATE t.parent SET note = 1 WHERE id = 2');
$holders[1]->query_safe('SELECT pg_advisory_lock(4711)');
begin_query($holders[2], "CALL sweep.run('held', $now)");
soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted}, 1, 'a run has passed a parent that is held');
$holders[0]->query_safe('COMMIT');
$holders[1]->query_safe('SELECT pg_advisory_unlock(4711)');
end_query($holders[2]);
like(last_run(), qr/^succeeded\|drained\|.*"locked": 1,.*"deleted": 10,/, 'it comes back for it');

# ---------------------------------------------------------------- a row that does not fit, in the first batch
fill(q{'2026-01-01Z'::timestamptz + interval '1 minute' * n});
create(5, '{"lock_timeout": "10min"}');
$node->safe_psql('postgres', q{INSERT INTO t.child SELECT 100 + n, 1 FROM generate_series(1, 20) AS n});
$holders[0]->query_safe('BEGIN; UPDATE t.child SET note = 1 WHERE parent_id = 1');
begin_query($holders[2], "CALL sweep.run('held', $now)");
soon($node, q{SELECT count(*) FROM pg_locks WHERE NOT granted AND waitstart < clock_timestamp() - interval '300 ms'}, 1, 'its children are waited for as long as the job says');
$holders[0]->query_safe('COMMIT');
end_query($holders[2]);
unlike(last_run(), qr/locked/, 'none is left to a later pass');

# ---------------------------------------------------------------- a row that is abandoned in a batch that is done again
fill(q{'2026-01-01Z'::timestamptz + interval '1 minute' * n});
$node->safe_psql('postgres', q{
	INSERT INTO t.child SELECT 100 + n, 1 FROM generate_series(1, 20) AS n;
	CREATE TABLE t.hold (parent_id int);
	CREATE FUNCTION t.is_held(p int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN EXISTS (SELECT FROM t.hold WHERE parent_id = p); END $$;
	CREATE FUNCTION t.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.hold VALUES (old.parent_id); RETURN OLD; END $$;
	CREATE TRIGGER holds BEFORE DELETE ON t.child FOR EACH ROW WHEN (old.parent_id = 1) EXECUTE FUNCTION t.hold();
	CREATE SEQUENCE t.tries;
	CREATE FUNCTION t.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('t.tries') = 1 THEN RAISE foreign_key_violation; END IF; RETURN OLD; END $$;
	CREATE TRIGGER refuses BEFORE DELETE ON t.parent FOR EACH ROW WHEN (old.id = 2) EXECUTE FUNCTION t.refuse();
	SELECT sweep.create_retention('t.parent', 'at', '10 days', name => 'held', schedule => NULL, replace => true, batch_size => 15, condition => 'NOT t.is_held(parent.id)');
});
$node->safe_psql('postgres', "CALL sweep.run('held', $now)");
like(last_run(), qr/^succeeded\|drained\|.*"deleted": 9,/, 'a parent that does not meet the condition any more stays');
like(last_run(), qr/"abandoned": 1/, 'and is counted');

# ---------------------------------------------------------------- a condition that reads the rows below
$node->safe_psql('postgres', q{
	ALTER FUNCTION t.wait() SET lock_timeout = 0;
	CREATE FUNCTION t.is_kept(p int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN EXISTS (SELECT FROM t.child AS c WHERE c.parent_id = p AND c.note = 7); END $$;
});
for my $case ([ q{'NOT EXISTS (SELECT FROM t.child AS c WHERE c.parent_id = parent.id AND c.note = 7)'}, 't.child VALUES (1000, 2, 7)' ],
	[ q{'NOT t.is_kept(parent.id)'}, 't.child VALUES (1000, 2, 7)' ], [ 'NULL', 't.keeper VALUES (2)' ])
{
	my ($condition, $row) = @$case;

	fill(q{'2026-01-01Z'::timestamptz});
	# More is counted than goes, because of entries of dead rows.
	$node->safe_psql('postgres', qq{
		INSERT INTO t.leaf SELECT 100 + n, 1 FROM generate_series(1, 5) AS n;
		DELETE FROM t.leaf WHERE id > 100;
		CREATE TRIGGER waits BEFORE DELETE ON t.parent FOR EACH ROW WHEN (old.id = 1) EXECUTE FUNCTION t.wait();
		SELECT sweep.create_retention('t.parent', 'at', '10 days', name => 'held', schedule => NULL, replace => true, condition => $condition);
	});
	$node->safe_psql('postgres', 'CREATE TABLE t.keeper (parent_id int REFERENCES t.parent DEFERRABLE INITIALLY DEFERRED)') if $condition eq 'NULL';
	$holders[1]->query_safe('SELECT pg_advisory_lock(4711)');
	begin_query($holders[2], "CALL sweep.run('held', $now)");
	soon($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted}, 1, 'a row is being deleted');
	begin_query($holders[0], "INSERT INTO $row");
	soon($node, qq{SELECT count(*) FROM pg_stat_activity WHERE query = 'INSERT INTO $row;' AND (state = 'idle' OR wait_event_type = 'Lock')}, 1, 'a row that keeps the next one is inserted, or waits');
	$holders[1]->query_safe('SELECT pg_advisory_unlock(4711)');
	end_query($holders[2]);
	like(last_run(), qr/^succeeded\|drained/, 'the run ends');
	like(end_query($holders[0]), qr/is not present in table "parent"/, 'the row is not deleted after it was committed: it waits, and finds no parent');
}
$node->safe_psql('postgres', 'DROP TABLE t.keeper');

# ---------------------------------------------------------------- sessions that add children and take some away
fill(q{'2026-02-01Z'::timestamptz + interval '1 day' * n});
$node->safe_psql('postgres', q{
	CREATE TABLE t.gone (id int, at timestamptz);
	CREATE FUNCTION t.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.gone VALUES (old.id, old.at); RETURN NULL; END $$;
	CREATE TRIGGER notes AFTER DELETE ON t.parent FOR EACH ROW EXECUTE FUNCTION t.note();
	INSERT INTO t.parent SELECT n, '2026-01-01Z'::timestamptz + interval '1 minute' * n FROM generate_series(11, 400) AS n;
});
create(10, '{}');
my $script = $node->basedir . '/write.sql';
append_to_file($script, q{
	\set parent random(1, 400)
	INSERT INTO t.child SELECT 1000 * :client_id + 10000 * (random() * 100000)::int + n, id FROM (SELECT id FROM t.parent WHERE id = :parent FOR KEY SHARE) AS p, generate_series(1, 4) AS n ON CONFLICT DO NOTHING;
	DELETE FROM t.child WHERE parent_id = :parent AND random() < 0.2;
	UPDATE t.parent SET at = '2026-02-28Z' WHERE id = :parent AND random() < 0.1;
});
my $writers = IPC::Run::start([ 'pgbench', '-n', '-c', '2', '-T', '600', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], '>', \my $out, '2>', \my $err);
my $runs = 0;
do
{
	$node->safe_psql('postgres', "CALL sweep.run('held', $now)");
	$runs++;
} while ($runs < 100 && $node->safe_psql('postgres', q{SELECT count(*) FROM t.parent WHERE at < '2026-02-19Z'}) ne '0');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.parent WHERE at < '2026-02-19Z'}), '0', 'beside two sessions that write, all that is old goes');
$writers->signal('TERM');
$writers->finish;
unlike($err, qr/ERROR|deadlock/, 'without an error in one of these');
is($node->safe_psql('postgres', "SELECT count(*) FROM sweep.runs WHERE job = 'held' AND status <> 'succeeded'"), '0', 'or of a run');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.gone WHERE at >= '2026-02-19Z'}), '0', 'nothing has gone that was not old');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.child AS c WHERE NOT EXISTS (SELECT FROM t.parent AS p WHERE p.id = c.parent_id)'), '0', 'and no child is left behind');

# ---------------------------------------------------------------- tables that are altered, or written anew, while a row is taken apart
# One parent with 300 children, and others that are as old; the first batches have taken some of the children.
sub begin_large
{
	my ($run) = @_;

	fill(q{'2026-01-01Z'::timestamptz + interval '1 minute' * n});
	$node->safe_psql('postgres', q{INSERT INTO t.child SELECT 100 + n, 1 FROM generate_series(1, 300) AS n});
	create(20, '{}');
	$node->safe_psql('postgres', q{SELECT sweep.alter_job('held', '{"pause": "3 s"}')});
	begin_query($run, "CALL sweep.run('held', $now)");
	soon($node, 'SELECT count(*) < 305 FROM t.child WHERE parent_id = 1', 't', 'a parent is being taken apart');
}

begin_large($holders[0]);
$node->safe_psql('postgres', 'ALTER TABLE t.child DROP CONSTRAINT child_parent_id_fkey, ADD FOREIGN KEY (parent_id) REFERENCES t.parent ON DELETE SET NULL');
my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM t.child');
soon($node, q{SELECT status FROM sweep.runs WHERE job = 'held' ORDER BY run_id DESC LIMIT 1}, 'failed', 'a foreign key that is dropped ends the run');
like(last_run(), qr/a foreign key of "child" that refers to "parent" has been dropped since the run began/, 'and is named');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.child'), $before, 'no row goes by it any more');
forget_session($holders[0]);
$node->safe_psql('postgres', q{SELECT sweep.alter_job('held', '{"pause": null}')});
$node->safe_psql('postgres', "CALL sweep.run('held', $now)");
is($node->safe_psql('postgres', 'SELECT count(*), count(parent_id), (SELECT count(*) FROM t.parent) FROM t.child'), "$before|0|0", 'the next run goes by what there is');

# The place of the parent is that of the next one then.
$holders[0] = session($node);
begin_large($holders[0]);
$node->safe_psql('postgres', q{UPDATE t.parent SET at = '2026-02-28Z' WHERE id = 1});
$before = $node->safe_psql('postgres', 'SELECT count(*) FROM t.child WHERE parent_id = 1');
$node->safe_psql('postgres', 'VACUUM FULL t.parent');
soon($node, q{SELECT count(*) FROM t.parent WHERE id = 2}, 0, 'the run goes on with the next parent');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.child WHERE parent_id = 1'), $before, 'which is not taken for the one that was at its place');
like($node->safe_psql('postgres', q{SELECT sweep.cancel(run_id) FROM sweep.running WHERE job = 'held'}), qr/^t/, 'the run is cancelled');
soon($node, q{SELECT count(*) FROM sweep.running WHERE job = 'held'}, 0, 'and ends');
forget_session($holders[0]);
# The next one would go on behind its cursor.
$node->safe_psql('postgres', q{SELECT sweep.drop_job('held')});

# ---------------------------------------------------------------- processes that are killed
fill(q{'2026-01-01Z'::timestamptz + interval '1 minute' * n});
$node->safe_psql('postgres', q{
	INSERT INTO t.child SELECT n, 1 + n % 10 FROM generate_series(51, 20000) AS n;
	INSERT INTO t.leaf SELECT n, n FROM generate_series(51, 20000) AS n;
});
create(50, '{}');
$node->safe_psql('postgres', q{DELETE FROM sweep.run_live; DELETE FROM sweep.run_history});
my $killed = 0;
for my $kill (1 .. $kills)
{
	my $left = $node->safe_psql('postgres', 'SELECT count(*) FROM t.child');
	my $run = session($node);
	my $pid = $run->query_safe('SELECT pg_backend_pid()');

	last if $left eq '0';
	begin_query($run, "CALL sweep.run('held', $now)");
	# At another place each time.
	my $more = int(rand(20000 / ($kills + 1)));
	soon($node, "SELECT count(*) < greatest(1, $left - $more) FROM t.child", 't', "run $kill has deleted $more rows of one table, or all");
	crash_of($node, $pid);
	forget_session($run);
	$killed++;
}
$node->safe_psql('postgres', "CALL sweep.run('held', $now)");
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM t.parent) + (SELECT count(*) FROM t.child) + (SELECT count(*) FROM t.leaf)'), '0', "all has gone in spite of $killed processes that were killed");
is($node->safe_psql('postgres', q{SELECT sum((detail->>'touched')::bigint), sum((detail->>'deleted')::bigint), sum((detail->'tables'->'t.child'->>'deleted')::bigint), sum((detail->'tables'->'t.leaf'->>'deleted')::bigint)
	FROM sweep.runs WHERE job = 'held'}), '40010|10|20000|20000', 'the runs together report each row once');

$node->stop;
done_testing();
