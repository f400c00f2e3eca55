# room: makers
# Whose code a copy with changes executes as whom: the roles that write to the source, that own the tables, that refer to them, and that of the
# job are others.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('copy_roles', conf => ['autovacuum = off']);

sub as
{
	my ($role, $sql) = @_;

	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

sub error_as
{
	my ($role, $sql) = @_;
	my (undef, undef, $error) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]);

	return $error =~ /ERROR: +([^\n]*)/ ? $1 : $error;
}

# The first line of the error of a run of the job, or nothing.
sub run_error
{
	my ($job) = @_;
	my $run = start($job);

	ended_run($node, $run);
	return $node->safe_psql('postgres', "SELECT split_part(error, E'\\n', 1) FROM sweep.runs WHERE run_id = $run");
}

my $differ = q{SELECT count(*) FROM ((SELECT id, v FROM app.t EXCEPT SELECT id, v FROM app.n) UNION ALL (SELECT id, v FROM app.n EXCEPT SELECT id, v FROM app.t)) AS d};

$node->safe_psql('postgres', q{
	CREATE ROLE owner LOGIN;
	CREATE ROLE member LOGIN IN ROLE owner, sweep_user;
	CREATE ROLE writer LOGIN;
	CREATE ROLE mallory LOGIN IN ROLE sweep_user;
	CREATE SCHEMA app AUTHORIZATION owner;
	CREATE SCHEMA mal AUTHORIZATION mallory;
	GRANT USAGE ON SCHEMA mal TO PUBLIC;
	CREATE TABLE t.seen (what text, as_whom text DEFAULT current_user, path text DEFAULT current_setting('search_path'));
	GRANT ALL ON t.seen TO PUBLIC;
	GRANT USAGE ON SCHEMA t TO PUBLIC;
});
as('owner', q{
	GRANT USAGE ON SCHEMA app TO PUBLIC;
	CREATE TABLE app.t (id int PRIMARY KEY, v text);
	INSERT INTO app.t SELECT n, 'v' || n FROM generate_series(1, 30) AS n;
	GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES ON app.t TO writer;
	CREATE POLICY few ON app.t TO writer USING (id < 20);
	ALTER TABLE app.t ENABLE ROW LEVEL SECURITY;
	CREATE FUNCTION app.note() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.seen VALUES ('index'); END $$;
	CREATE FUNCTION app.noted(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM app.note(); RETURN $1; END $$;
	CREATE TABLE app.n (id int PRIMARY KEY, v text);
	CREATE INDEX ON app.n (app.noted(v));
	GRANT REFERENCES ON app.n TO mallory;
});
# What a writer's path would find first, were names looked up in it.
as('mallory', q{
	CREATE FUNCTION mal.equal(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.seen VALUES ('operator'); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
	CREATE OPERATOR mal.= (LEFTARG = int, RIGHTARG = int, FUNCTION = mal.equal);
	CREATE TABLE mal.t_sweep_changes (id int, key_1 int, truncated boolean);
});

# ---------------------------------------------------------------- who may make one
like(error_as('mallory', q{SELECT sweep.create_copy('app.t', 'app.n', with_changes => true)}), qr/^role "mallory" (?:does not own app.t|lacks)/, 'who does not own the tables may not');
is(error_as('postgres', q{SELECT sweep.create_copy('app.t', 'app.n', with_changes => true)}), 'role "postgres" does not own app.t', 'a superuser executes no code of other owners');
is(as('member', q{SELECT sweep.create_copy('app.t', 'app.n', with_changes => true, batch_size => 10)}), 'copy_t', 'a member of the owner may');
soon($node, q{SELECT status, stop_reason FROM sweep.runs WHERE job = 'copy_t' AND finished_at IS NOT NULL}, 'succeeded|drained', 'it ends');
is($node->safe_psql('postgres', $differ), 0, 'rows that a policy hides from others are copied');
is($node->safe_psql('postgres', q{SELECT DISTINCT what, as_whom FROM t.seen}), 'index|member', 'an index expression of the copy is executed as the role of the job');

# ---------------------------------------------------------------- who writes
$node->safe_psql('postgres', 'DELETE FROM t.seen');
as('writer', q{
	SET search_path = mal, pg_catalog;
	SET row_security = on;
	SET plpgsql.extra_errors = 'all';
	UPDATE app.t SET v = 'w' WHERE id OPERATOR(pg_catalog.=) 3;
	INSERT INTO app.t VALUES (-41, 'low');
	DELETE FROM app.t WHERE id OPERATOR(pg_catalog.=) 4;
});
is($node->safe_psql('postgres', 'SELECT count(*) FROM t.seen'), 0, 'nothing is looked up in the path of a writer');
is($node->safe_psql('postgres', q{SELECT string_agg(key_1::text, ' ' ORDER BY id) FROM app.t_sweep_changes}), '3 -41 4', 'a writer that has no right on the keys writes them');
is(error_as('writer', 'SELECT * FROM app.t_sweep_changes'), 'permission denied for table t_sweep_changes', 'and cannot read them');
is(error_as('writer', 'INSERT INTO app.t_sweep_changes (truncated) VALUES (true)'), 'permission denied for table t_sweep_changes', 'nor write others');
like(error_as('mallory', q{CREATE TABLE mal.other (id int); CREATE TRIGGER t AFTER TRUNCATE ON mal.other EXECUTE FUNCTION app.t_sweep_changes()}),
	qr/^permission denied for function/, 'nor make a trigger of its function');
is(run_error('copy_t'), '', 'they are copied');
is($node->safe_psql('postgres', $differ), 0, 'as they are');
as('writer', 'TRUNCATE app.t');
as('owner', q{INSERT INTO app.t SELECT n, 'again' FROM generate_series(1, 20) AS n});
is(run_error('copy_t'), '', 'so is a TRUNCATE by a role that has no right on the copy');
is($node->safe_psql('postgres', $differ), 0, 'and what comes after it');

# ---------------------------------------------------------------- who refers to the copy
as('mallory', q{
	CREATE TABLE mal.child (id int REFERENCES app.n ON DELETE CASCADE);
	INSERT INTO mal.child VALUES (5);
	CREATE FUNCTION mal.mislead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('search_path', 'mal', false); INSERT INTO t.seen VALUES ('trigger'); RETURN OLD; END $$;
	CREATE TRIGGER misleads BEFORE DELETE ON mal.child FOR EACH ROW EXECUTE FUNCTION mal.mislead();
});
as('writer', q{UPDATE app.t SET v = 'referred' WHERE id = 5});
is(run_error('copy_t'), 'foreign key "child_id_fkey" of mal.child refers to app.n', 'a table that refers to the copy gets no code into the run');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.seen WHERE what = 'trigger'}), 0, 'not even once');
as('mallory', 'DROP TABLE mal.child');

# ---------------------------------------------------------------- what changes meanwhile
as('owner', 'ALTER TABLE app.t FORCE ROW LEVEL SECURITY');
is(run_error('copy_t'), 'policies of app.t may hide rows from role "member"', 'rows that would be hidden now are not taken for deleted ones');
as('owner', 'ALTER TABLE app.t NO FORCE ROW LEVEL SECURITY');
is(run_error('copy_t'), '', 'it goes on');
$node->safe_psql('postgres', q{ALTER ROLE member SET default_transaction_isolation = 'serializable'});
is(run_error('copy_t'), 'changes cannot be followed with the isolation level "serializable"', 'an isolation level that hides what is committed behind a lock is refused');
$node->safe_psql('postgres', 'ALTER ROLE member RESET default_transaction_isolation');
$node->safe_psql('postgres', 'ALTER TABLE app.n OWNER TO mallory');
is(run_error('copy_t'), 'permission denied for table n', 'a copy that another role owns now is not written to');
$node->safe_psql('postgres', 'ALTER TABLE app.n OWNER TO member');

# ---------------------------------------------------------------- the switch
as('owner', 'GRANT SELECT ON app.t TO mallory');
as('mallory', 'CREATE VIEW mal.seen AS SELECT id FROM app.t');
like(error_as('mallory', q{SELECT sweep.switch_copy('copy_t')}), qr/^(?:permission denied|job "copy_t" does not exist)/, 'another role does not switch it');
my (undef, undef, $error) = $node->psql('postgres', q{SELECT sweep.switch_copy('copy_t', carry => true)}, extra_params => [ '-U', 'member' ]);
like($error, qr/DETAIL: +view mal\.seen\./, 'a view of another role is not moved, but named');
my $run = as('member', q{SELECT sweep.switch_copy('copy_t', carry => true, leave => '{view}')});
like(ended_run($node, $run), qr/^succeeded drained /, 'it can be left');
is($node->safe_psql('postgres', q{SELECT relowner::regrole, relrowsecurity FROM pg_class WHERE oid = 'app.t'::regclass}), 'owner|t', 'the copy has the owner of its source');
is($node->safe_psql('postgres', q{SELECT count(*) FROM app.t_old EXCEPT SELECT count(*) FROM app.t}), '', 'and its rows');
is(as('writer', q{UPDATE app.t SET v = 'after' WHERE id IN (1, 20)}), '', 'a writer goes on');
is($node->safe_psql('postgres', q{SELECT string_agg(id::text, ' ') FROM app.t WHERE v = 'after'}), '1', 'under the same policy');

# ---------------------------------------------------------------- the end
as('owner', 'TRUNCATE app.t_old');
as('member', q{SELECT sweep.drop_job('copy_t'); SELECT sweep.create_copy('app.t', 'app.t_old', with_changes => true)});
soon($node, q{SELECT status, stop_reason FROM sweep.runs WHERE job = 'copy_t' AND finished_at IS NOT NULL AND run_id > } . $run, 'succeeded|drained', 'a copy in the other direction');
$node->safe_psql('postgres', 'ALTER FUNCTION app.t_sweep_changes() OWNER TO mallory');
my (undef, undef, $warning) = $node->psql('postgres', q{SELECT sweep.drop_job('copy_t')}, extra_params => [ '-U', 'member' ]);
like($warning, qr/WARNING: +the trigger of job "copy_t" is not dropped/, 'what the role of a job could not drop is not dropped for it, and said');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'sweep%'}), 2, 'it is still there');

done_testing();
