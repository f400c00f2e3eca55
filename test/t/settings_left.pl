# room: engine
# What code of another role leaves in the session of a run or a consumer: PostgreSQL executes the trigger of a table that
# refers to another one as the owner of that table, when a row is deleted there, and what the trigger sets stays. Names
# of the job must not be looked up where that role can put something.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('settings_left');

sub as
{
	my ($role, $sql) = @_;

	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN IN ROLE sweep_user;
	CREATE ROLE mallory LOGIN;
	CREATE SCHEMA alice AUTHORIZATION alice;
	CREATE SCHEMA mal AUTHORIZATION mallory;
	GRANT USAGE ON SCHEMA mal TO PUBLIC;
	GRANT USAGE ON SCHEMA alice TO mallory;
	ALTER ROLE alice SET search_path = alice;
	CREATE TABLE t.seen (what text, as_whom text DEFAULT current_user);
	GRANT ALL ON t.seen TO PUBLIC;
});
as('alice', q{
	CREATE TABLE alice.event (id int PRIMARY KEY, at timestamptz);
	CREATE INDEX ON alice.event (at);
	GRANT REFERENCES ON alice.event TO mallory;
	CREATE FUNCTION alice.is_old(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$;
	CREATE FUNCTION alice.setup() RETURNS void LANGUAGE sql AS $$
		DELETE FROM alice.event;
		INSERT INTO alice.event SELECT n, '2026-01-01Z' FROM generate_series(1, 50) AS n;
	$$;
});
as('mallory', q{
	CREATE TABLE mal.child (event_id int REFERENCES alice.event ON DELETE CASCADE);
	CREATE INDEX ON mal.child (event_id);
	CREATE FUNCTION mal.mislead() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO t.seen VALUES ('trigger');
		PERFORM set_config('search_path', 'mal', false), set_config('standard_conforming_strings', 'off', false), set_config('row_security', 'off', false),
			set_config('transform_null_equals', 'on', false), set_config('DateStyle', 'German', false), set_config('TimeZone', 'Asia/Kathmandu', false);
		RETURN OLD;
	END $$;
	CREATE TRIGGER misleads BEFORE DELETE ON mal.child FOR EACH ROW EXECUTE FUNCTION mal.mislead();
	CREATE FUNCTION mal.is_old(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.seen VALUES ('is_old'); RETURN true; END $$;
	CREATE FUNCTION mal.seen() RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.seen VALUES ('seen'); RETURN 'mallory'; END $$;
});
as('alice', q{
	CREATE FUNCTION alice.seen() RETURNS text LANGUAGE sql AS $$
		SELECT concat_ws(' ', current_setting('search_path'), current_setting('standard_conforming_strings'), current_setting('row_security'),
			current_setting('transform_null_equals'), current_setting('DateStyle'), current_setting('TimeZone'), NULLIF(current_setting('role'), 'none'),
			NULLIF(current_setting('work_mem'), '7MB'))
	$$;
	CREATE TABLE alice.begun_with (what text, settings text);
	CREATE FUNCTION alice.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		n int;
	BEGIN
		INSERT INTO alice.begun_with VALUES ('step', seen());
		DELETE FROM alice.event WHERE id IN (SELECT id FROM alice.event WHERE is_old(id) LIMIT b.size);
		GET DIAGNOSTICS n = ROW_COUNT;
		RETURN ROW(n, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION alice.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO alice.begun_with VALUES ('pick', seen());
		RETURN QUERY SELECT to_jsonb(id) FROM alice.event WHERE id > coalesce((b.cursor #>> '{}')::int, 0) ORDER BY id LIMIT b.size;
	END $$;
	CREATE FUNCTION alice.handle_item(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO alice.begun_with VALUES ('item', seen());
		IF b.items @> ARRAY['4'::jsonb] THEN
			RAISE EXCEPTION 'not this one';
		END IF;
		DELETE FROM alice.event WHERE to_jsonb(id) = ANY (b.items);
		RETURN ROW(1, NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION alice.handler(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO alice.begun_with VALUES ('handler', alice.seen());
		DELETE FROM alice.event WHERE id = (m.payload #>> '{}')::int;
	END $$;
	SELECT sweep.create_retention('alice.event', 'at', '1 day', condition => 'is_old(id)', batch_size => 5, name => 'retention', schedule => NULL),
		sweep.create_job('batch_sql', batch_sql => 'DELETE FROM alice.event WHERE id IN (SELECT id FROM alice.event WHERE is_old(id) LIMIT $1)', batch_size => 5),
		sweep.create_job('step', step => 'alice.step', batch_size => 5, settings => '{"DateStyle": "ISO, DMY", "work_mem": "7MB"}'),
		sweep.create_job('items', pick => 'alice.pick', step => 'alice.handle_item', batch_size => 5, max_attempts => 1);
});

# ---------------------------------------------------------------- runs
for my $job (qw(retention batch_sql step items))
{
	for my $way ('in the background', 'in a session')
	{
		as('alice', 'SELECT alice.setup()');
		as('mallory', 'INSERT INTO mal.child SELECT n FROM generate_series(1, 50) AS n');
		$node->safe_psql('postgres', 'TRUNCATE t.seen, alice.begun_with; DELETE FROM sweep.quarantined_item');
		if ($way eq 'in the background')
		{
			like(ended_run($node, as('alice', "SELECT sweep.start('$job')")), qr/^succeeded drained/, "$job $way: it ends as usual");
		}
		else
		{
			as('alice', "CALL sweep.run('$job')");
		}
		is($node->safe_psql('postgres', q{SELECT count(*) FROM alice.event}), $job eq 'items' ? 1 : 0, "$job $way: has done its work");
		is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT what || ' ' || as_whom, ', ') FROM t.seen}), 'trigger mallory',
			"$job $way: of the other role only the trigger was called, as that role");
		is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT settings, ' and ') FROM alice.begun_with}), {
			step => 'alice on on off ISO, DMY UTC', items => 'alice on on off ISO, MDY UTC 4MB', }->{$job} // '', "$job $way: each call begins with the same settings");
	}
}

as('alice', q{SELECT sweep.create_job('sql', NULL, $$SET work_mem = '6MB'; DELETE FROM alice.event WHERE id <= 20; DELETE FROM alice.event WHERE id <= 25 AND is_old(id);
	WITH deleted AS (DELETE FROM alice.event WHERE id <= 30 RETURNING id) SELECT count(*) FROM deleted; DELETE FROM alice.event WHERE is_old(id);
	INSERT INTO alice.begun_with VALUES ('sql', seen())$$)});
as('alice', 'SELECT alice.setup()');
as('mallory', 'INSERT INTO mal.child SELECT n FROM generate_series(1, 50) AS n');
$node->safe_psql('postgres', 'TRUNCATE t.seen, alice.begun_with');
like(ended_run($node, as('alice', q{SELECT sweep.start('sql')})), qr/^succeeded done/, 'sql: a statement behind one that deletes');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM alice.event), string_agg(DISTINCT what || ' ' || as_whom, ', ') FROM t.seen}), '0|trigger mallory', 'sql: calls nothing of the other role');
is($node->safe_psql('postgres', 'SELECT settings FROM alice.begun_with'), 'alice on on off ISO, MDY UTC 6MB', 'sql: and has the settings that the text has set');

# What the job itself leaves behind but for these is there in the next batch.
as('alice', q{
	CREATE FUNCTION alice.own(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO alice.begun_with VALUES ('own', concat_ws(' ', current_setting('search_path'), current_setting('work_mem')));
		PERFORM set_config('search_path', 'pg_catalog', false), set_config('work_mem', '6MB', false);
		RETURN ROW(CASE WHEN b.cursor IS NULL THEN 1 ELSE 0 END, '1', NULL)::sweep.progress;
	END $$;
	TRUNCATE alice.begun_with;
	SELECT sweep.create_job('own', step => 'alice.own');
});
is(ended_run($node, as('alice', q{SELECT sweep.start('own')})), 'succeeded drained 2 1', 'own settings: a run');
is($node->safe_psql('postgres', q{SELECT string_agg(settings, ', ' ORDER BY settings) FROM alice.begun_with}), 'alice 4MB, alice 6MB', 'own settings: of others the next batch sees what the step has left');

# ---------------------------------------------------------------- temporary objects, which come first in every path
as('alice', q{
	CREATE TABLE alice.thing (id int PRIMARY KEY);
	GRANT REFERENCES ON alice.thing TO mallory;
	CREATE FUNCTION alice.things(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		n int;
	BEGIN
		EXECUTE 'SELECT count(*) FROM thing' INTO n;
		DELETE FROM alice.thing WHERE id IN (SELECT id FROM alice.thing LIMIT b.size);
		RETURN ROW(least(n, b.size), NULL, NULL)::sweep.progress;
	END $$;
	CREATE FUNCTION alice.handle_thing(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE 'SELECT FROM event';
		DELETE FROM alice.thing WHERE id = (m.payload #>> '{}')::int;
	END $$;
	ALTER FUNCTION alice.handle_thing SET search_path = alice;
	SELECT sweep.create_job('things', step => 'alice.things', batch_size => 5);
});
as('mallory', q{
	CREATE TABLE mal.part (thing_id int REFERENCES alice.thing ON DELETE CASCADE);
	CREATE INDEX ON mal.part (thing_id);
	CREATE FUNCTION mal.note() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.seen VALUES ('view'); RETURN 1; END $$;
	CREATE FUNCTION mal.hide() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE 'CREATE OR REPLACE TEMP VIEW thing AS SELECT mal.note() AS id';
		EXECUTE 'CREATE OR REPLACE TEMP VIEW event AS SELECT mal.note() AS id';
		GRANT SELECT ON thing, event TO PUBLIC;
		-- As in runner_reuse.pl.
		EXECUTE format('COMMENT ON VIEW thing IS %L', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) AS i));
		RETURN OLD;
	END $$;
	CREATE TRIGGER hides BEFORE DELETE ON mal.part FOR EACH ROW EXECUTE FUNCTION mal.hide();
});
sub fill_things
{
	$node->safe_psql('postgres', q{TRUNCATE t.seen, alice.thing CASCADE; INSERT INTO alice.thing SELECT generate_series(1, 20); INSERT INTO mal.part SELECT generate_series(1, 20)});
}
fill_things();
my $run = as('alice', q{SELECT sweep.start('things')});
is(ended_run($node, $run), 'succeeded drained 5 20', 'temporary objects: a run goes on without those of another role');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.seen'), 0, 'temporary objects: nothing of that role is executed');
fill_things();
as('alice', q{CALL sweep.run('things')});
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM t.seen), (SELECT count(*) FROM alice.thing)'), '0|0', 'temporary objects: nor in a session');
fill_things();
sql('GRANT mallory TO alice');
is(as('alice', q{SET ROLE mallory; CREATE TEMP TABLE own AS SELECT 1 AS n; CREATE TEMP VIEW of_own AS SELECT * FROM own; GRANT SELECT ON of_own TO alice; RESET ROLE;
	CALL sweep.run('things'); SELECT * FROM of_own}), 1, 'temporary objects: those that the session made as another role before stay');
sql('REVOKE mallory FROM alice');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM t.seen), (SELECT count(*) FROM alice.thing)'), '0|0', 'temporary objects: and no others are found');
fill_things();
as('alice', q{
	SELECT sweep.create_queue('thing', backoff => 'none', max_attempts => 2), sweep.create_consumer('thing', 'alice.handle_thing', batch => 10);
	SELECT count(sweep.send('thing', to_jsonb(n))) FROM generate_series(1, 20) AS n;
});
soon($node, q{SELECT depth FROM sweep.queues WHERE queue = 'thing'}, '0', 'temporary objects: a consumer handles its messages');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM t.seen), (SELECT count(*) FROM alice.thing)'), '0|0', 'temporary objects: and nothing of that role is executed');
fill_things();
as('alice', q{SELECT sweep.create_job('things by sql', sql => 'DELETE FROM alice.thing WHERE id > 10; SELECT count(*) FROM thing; DELETE FROM thing')});
is(ended_run($node, as('alice', q{SELECT sweep.start('things by sql')})), 'succeeded done 3 21', 'temporary objects: a job of SQL statements goes on without them');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM t.seen), (SELECT count(*) FROM alice.thing)'), '0|0', 'temporary objects: and executes nothing of that role');
# Its own ones, and those of roles that could become it, are there in the next batch.
as('alice', q{
	CREATE FUNCTION alice.counted(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		n int;
	BEGIN
		CREATE TEMP TABLE IF NOT EXISTS counted (n int);
		INSERT INTO counted VALUES (1);
		PERFORM t.count();
		RETURN ROW(CASE WHEN (SELECT count(*) FROM counted) + (SELECT count(*) FROM counted_by_superuser) < 6 THEN 1 ELSE 0 END, NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('counted', step => 'alice.counted');
});
$node->safe_psql('postgres', q{
	CREATE FUNCTION t.count() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		CREATE TEMP TABLE IF NOT EXISTS counted_by_superuser (n int);
		GRANT SELECT ON counted_by_superuser TO alice;
		INSERT INTO counted_by_superuser VALUES (1);
	END $$});
is(ended_run($node, as('alice', q{SELECT sweep.start('counted')})), 'succeeded drained 3 2', 'temporary objects: its own, and those of a superuser, stay for the run');

# ---------------------------------------------------------------- a consumer
as('alice', 'SELECT alice.setup()');
as('mallory', 'INSERT INTO mal.child SELECT n FROM generate_series(1, 50) AS n');
$node->safe_psql('postgres', 'TRUNCATE t.seen, alice.begun_with');
as('alice', q{
	SELECT sweep.create_queue('event'), sweep.create_consumer('event', 'alice.handler', batch => 10);
	SELECT count(sweep.send('event', to_jsonb(n))) FROM generate_series(1, 50) AS n;
});
soon($node, q{SELECT count(*) FROM alice.event}, '0', 'handler: all messages are handled');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT what || ' ' || as_whom, ', ') FROM t.seen}), 'trigger mallory', 'handler: of the other role only the trigger was called');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT settings, ' and ') FROM alice.begun_with}), 'pg_catalog, pg_temp on on off ISO, MDY UTC 4MB', 'handler: each call begins with the same settings');
# A new configuration holds from the next turn on.
$node->append_conf('postgresql.conf', "timezone = 'Europe/Berlin'");
$node->reload;
as('alice', q{CREATE FUNCTION alice.again() RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM sweep.send('event', '51');
		RETURN EXISTS (SELECT FROM alice.begun_with WHERE settings LIKE '%Europe/Berlin%');
	END $$});
soon($node, 'SELECT alice.again()', 't', 'handler: a new configuration is that of the next ones');

done_testing();
