# room: api
# What somebody types on the first day: eight lines that were in pg_cron and six jobs, in a fresh database, by the role of
# an application that is a member of sweep_user and no more.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('first_day', bare => 1);

$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');
$node->safe_psql('postgres', 'CREATE DATABASE app OWNER app');
$node->safe_psql('app', 'CREATE EXTENSION pg_sweep; GRANT sweep_user TO app; GRANT CREATE ON SCHEMA public TO app');

sub as_app
{
	return $node->safe_psql('app', $_[0], extra_params => [ '-U', 'app' ]);
}

# The outcome of a run of the job that is started now.
sub outcome
{
	my ($job) = @_;
	my $run = as_app("SELECT sweep.start('$job')");

	soon($node, "SELECT finished_at IS NOT NULL FROM sweep.runs WHERE run_id = $run", 't', "$job: it ends", 'app');
	return as_app("SELECT concat_ws(' ', status, stop_reason, rows, error) FROM sweep.runs WHERE run_id = $run");
}

as_app(q{
	CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), amount int, tenant int, note text);
	CREATE INDEX ON t (at);
	INSERT INTO t (at, amount, tenant) SELECT now() - i * interval '1 hour', i, i % 12 FROM generate_series(0, 1199) AS i;
	CREATE TABLE rollup (day date PRIMARY KEY, total bigint);
	CREATE FUNCTION refresh_rollups() RETURNS void LANGUAGE sql AS $$
		INSERT INTO rollup SELECT at::date, sum(amount) FROM t GROUP BY 1 ON CONFLICT (day) DO UPDATE SET total = excluded.total $$;
	CREATE TABLE old (id int);
	INSERT INTO old SELECT generate_series(1, 300);
	CREATE PROCEDURE purge_old() LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			DELETE FROM old WHERE id IN (SELECT id FROM old LIMIT 100);
			EXIT WHEN NOT FOUND;
			COMMIT;
		END LOOP;
	END $$;
	CREATE MATERIALIZED VIEW m AS SELECT tenant, count(*) AS n FROM t GROUP BY tenant;
	CREATE UNIQUE INDEX ON m (tenant);
	CREATE TABLE log (what text, at timestamptz DEFAULT clock_timestamp());
});

# ---------------------------------------------------------------- eight lines
as_app(q{
	SELECT sweep.create_job('vacuum', '0 3 * * *', 'VACUUM ANALYZE t');
	SELECT sweep.create_job('rollups', '*/5 * * * *', 'SELECT refresh_rollups()');
	SELECT sweep.create_job('purge', '30 2 * * *', 'CALL purge_old()');
	SELECT sweep.create_job('delete', '15 4 * * 0', $$DELETE FROM t WHERE at < now() - interval '40 days'$$);
	SELECT sweep.create_job('view', '@hourly', 'REFRESH MATERIALIZED VIEW CONCURRENTLY m');
	SELECT sweep.create_job('two', '0 0 1 * *', $$INSERT INTO log VALUES ('one'); INSERT INTO log VALUES ('two')$$);
	SELECT sweep.create_job('start', '@reboot', $$INSERT INTO log VALUES ('boot')$$);
	SELECT sweep.create_job('often', '1 second', $$INSERT INTO log VALUES ('often')$$);
});
is(outcome('vacuum'), 'succeeded done 0', 'VACUUM ANALYZE');
is(outcome('rollups'), 'succeeded done 1', 'a function call');
is(as_app('SELECT sum(total) = (SELECT sum(amount) FROM t) FROM rollup'), 't', 'has rolled up');
is(outcome('purge'), 'succeeded done 0', 'a procedure that commits');
is(as_app('SELECT count(*) FROM old'), 0, 'has purged');
is(outcome('delete'), 'succeeded done 240', 'a DELETE');
is(outcome('view'), 'succeeded done 0', 'REFRESH … CONCURRENTLY');
is(outcome('two'), 'succeeded done 2', 'two statements');
soon($node, q{SELECT count(*) > 1 FROM log WHERE what = 'often'}, 't', 'each second', 'app');
as_app(q{SELECT sweep.drop_job('often')});
$node->restart;
soon($node, q{SELECT count(*) FROM log WHERE what = 'boot'}, 1, '@reboot', 'app');

# ---------------------------------------------------------------- retention with foreign keys
as_app(q{
	CREATE TABLE orders (id bigint PRIMARY KEY, at timestamptz NOT NULL);
	CREATE INDEX ON orders (at);
	CREATE TABLE items (order_id bigint NOT NULL REFERENCES orders ON DELETE CASCADE, n int);
	CREATE INDEX ON items (order_id);
	INSERT INTO orders SELECT i, now() - i * interval '1 day' + interval '12 hours' FROM generate_series(1, 2000) AS i;
	INSERT INTO items SELECT i, 1 FROM generate_series(1, 2000) AS i;
	SELECT sweep.create_retention('orders', 'at', '365 days', name => 'retention');
});
is(outcome('retention'), 'succeeded drained 1635', 'retention');
is(as_app(q{SELECT count(*) FROM orders}) . ' ' . as_app(q{SELECT count(*) FROM items}), '365 365', 'what hangs on it is gone as well');

# ---------------------------------------------------------------- backfill
my $backfill = as_app(q{SELECT sweep.create_backfill('t', $$note = 'tenant ' || tenant$$, 'note IS NULL')});
soon($node, q{SELECT count(*) FROM t WHERE note IS NULL}, 0, 'backfill', 'app');

# ---------------------------------------------------------------- drop of old partitions
as_app(q{
	CREATE TABLE measure (at date NOT NULL, v int) PARTITION BY RANGE (at);
	CREATE TABLE measure_2020 PARTITION OF measure FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
	CREATE TABLE measure_2099 PARTITION OF measure FOR VALUES FROM ('2099-01-01') TO ('2100-01-01');
	SELECT sweep.create_job('partitions', '0 5 1 1 *', 'ALTER TABLE measure DETACH PARTITION measure_2020 CONCURRENTLY; DROP TABLE measure_2020');
});
is(outcome('partitions'), 'succeeded done 0', 'an old partition is detached concurrently and dropped');
is(as_app(q{SELECT string_agg(inhrelid::regclass::text, ' ') FROM pg_inherits WHERE inhparent = 'measure'::regclass}), 'measure_2099', 'the other one stays');

# ---------------------------------------------------------------- hourly roll-up by watermark
not_before_the_hour($node);
as_app(q{
	CREATE TABLE hourly (hour timestamptz PRIMARY KEY, total bigint NOT NULL);
	CREATE FUNCTION roll_up_hour(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		hour timestamptz := (SELECT min(date_trunc('hour', at)) FROM t WHERE at >= coalesce((b.cursor ->> 'until')::timestamptz, '-infinity'));
	BEGIN
		IF hour IS NULL OR hour >= date_trunc('hour', b.as_of) THEN
			RETURN ROW(0, b.cursor, NULL)::sweep.progress;
		END IF;
		INSERT INTO hourly SELECT hour, sum(amount) FROM t WHERE at >= hour AND at < hour + interval '1 hour';
		RETURN ROW(1, jsonb_build_object('until', hour + interval '1 hour'), NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('hourly', '0 * * * *', step => 'roll_up_hour', cursor => 'always');
});
my $hours = as_app(q{SELECT count(DISTINCT date_trunc('hour', at)) FROM t WHERE at < date_trunc('hour', now())});
is(outcome('hourly'), "succeeded drained $hours", 'a roll-up by watermark');
like(outcome('hourly'), qr/^succeeded drained [01]$/, 'the next one goes on from there');

# ---------------------------------------------------------------- 12 tenants in parallel, of which one fails
as_app(q{
	CREATE TABLE billed (tenant int PRIMARY KEY, total bigint);
	CREATE FUNCTION bill(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		IF b.bucket = 7 THEN
			RAISE EXCEPTION 'tenant % cannot be billed', b.bucket;
		END IF;
		INSERT INTO billed SELECT b.bucket, sum(amount) FROM t WHERE tenant = b.bucket AND NOT EXISTS (SELECT FROM billed k WHERE k.tenant = b.bucket) HAVING count(*) > 0;
		RETURN ROW((NOT EXISTS (SELECT FROM billed k WHERE k.tenant = b.bucket))::int, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('tenants', step => 'bill', buckets => 12);
	SELECT sweep.start('tenants');
});
soon($node, q{SELECT count(*) FROM billed}, 11, 'eleven of twelve tenants', 'app');
soon($node, q{SELECT last_status || ' ' || split_part(last_error, E'\n', 1) FROM sweep.jobs WHERE name = 'tenants'}, 'failed tenant 7 cannot be billed', 'the job says which one failed', 'app');

# ---------------------------------------------------------------- archive to another schema
as_app(q{
	CREATE SCHEMA archive;
	CREATE TABLE archive.t (LIKE t INCLUDING DEFAULTS INCLUDING INDEXES);
	SELECT sweep.create_retention('t', 'at', '30 days', archive_to => 'archive.t', name => 'archive');
});
my $rows = as_app('SELECT count(*) FROM t');
like(outcome('archive'), qr/^succeeded drained \d+$/, 'an archive');
is(as_app(q{SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM archive.t)}), $rows, 'no row is lost');
is(as_app(q{SELECT (SELECT count(*) FROM t WHERE at < now() - interval '31 days') || ' ' || (SELECT count(*) FROM archive.t WHERE at > now() - interval '29 days')}), '0 0', 'each is where it belongs');

# ---------------------------------------------------------------- the whole of it
is(as_app(q{SELECT string_agg(name || ': ' || state, ', ') FROM sweep.jobs WHERE state LIKE 'broken%'}), '', 'no job is broken');

$node->stop;
done_testing();
