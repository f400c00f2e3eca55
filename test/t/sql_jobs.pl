# room: engine
# Jobs with sql: each kind of statement that psql could execute from a file, by a role of an application; what it
# does, and what the run says of it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('sql_jobs', conf => ['max_prepared_transactions = 5', 'max_parallel_maintenance_workers = 2']);
my $jobs = 0;

$node->safe_psql('postgres', q{CREATE ROLE app LOGIN IN ROLE sweep_user; CREATE SCHEMA app AUTHORIZATION app});
as_app(q{
	CREATE TABLE t (id int PRIMARY KEY, at timestamptz DEFAULT now());
	CREATE TABLE seen (n int, xid bigint DEFAULT txid_current());
});

# What an application would do, as its own role. The schema is in its search_path by the rule of "$user".
sub as_app
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query, extra_params => [ '-U', 'app' ]);
}

# Runs a text as a job of app, or of another role, in the background: status, stop_reason, batches, rows and tags.
sub run_sql
{
	my ($sql, %option) = @_;
	my $name = 'job ' . ++$jobs;
	my $run;

	$node->safe_psql('postgres', "SELECT sweep.create_job('$name', NULL, \$job\$$sql\$job\$" . ($option{settings} // '') . ')',
		extra_params => [ '-U', $option{user} // 'app' ]);
	$run = sql("SELECT sweep.start('$name')");
	ended_run($node, $run);
	return sql("SELECT concat_ws(' ', status, stop_reason, batches, rows, detail ->> 'tags') FROM sweep.runs WHERE run_id = $run");
}

sub last_error
{
	return sql(q{SELECT sqlstate || ' ' || error FROM sweep.runs ORDER BY run_id DESC LIMIT 1});
}

# ---------------------------------------------------------------- the lines that people have in pg_cron, as they type them
subtest 'VACUUM ANALYZE' => sub {
	as_app('INSERT INTO t SELECT i FROM generate_series(1, 1000) AS i');
	is(run_sql('VACUUM ANALYZE t'), 'succeeded done 1 0 ["VACUUM"]', 'the run');
	is(sql(q{SELECT reltuples FROM pg_class WHERE oid = 'app.t'::regclass}), 1000, 'it is known how many rows there are');
	soon($node, q{SELECT vacuum_count || ' ' || analyze_count FROM pg_stat_user_tables WHERE relid = 'app.t'::regclass}, '1 1', 'both were done, and counted');
	is(run_sql('VACUUM (FULL) t; VACUUM (PARALLEL 2, INDEX_CLEANUP on) t; ANALYZE t'), 'succeeded done 3 0 ["VACUUM", "VACUUM", "ANALYZE"]', 'other forms');
};

subtest 'a function call' => sub {
	as_app(q{CREATE TABLE rollup (day int PRIMARY KEY, n bigint);
		CREATE FUNCTION refresh_rollups() RETURNS bigint LANGUAGE sql AS $$
			INSERT INTO rollup SELECT id % 7, count(*) FROM t GROUP BY 1 ON CONFLICT (day) DO UPDATE SET n = excluded.n; SELECT 7::bigint $$});
	is(run_sql('SELECT refresh_rollups()'), 'succeeded done 1 1 ["SELECT 1"]', 'it was called once');
	is(sql('SELECT count(*), sum(n) FROM app.rollup'), '7|1000', 'and did its work');
};

subtest 'CALL of a procedure that commits' => sub {
	as_app(q{CREATE PROCEDURE purge_old() LANGUAGE plpgsql AS $$
		DECLARE
			batch int;
		BEGIN
			FOR batch IN SELECT i FROM generate_series(1, 5) AS i LOOP
				DELETE FROM t WHERE id BETWEEN batch * 100 - 99 AND batch * 100;
				INSERT INTO seen VALUES (batch);
				COMMIT;
			END LOOP;
			INSERT INTO seen VALUES (6);
			ROLLBACK;
		END $$});
	is(run_sql('CALL purge_old()'), 'succeeded done 1 0 ["CALL"]', 'the run');
	is(sql('SELECT count(*), (SELECT count(*) FROM app.seen), (SELECT count(DISTINCT xid) FROM app.seen) FROM app.t'), '500|5|5', 'five commits, and what it rolled back is not there');
	as_app('TRUNCATE seen');
};

subtest 'DELETE' => sub {
	is(run_sql('DELETE FROM t WHERE id > 900'), 'succeeded done 1 100 ["DELETE 100"]', 'its row count is rows');
	is(sql('SELECT count(*) FROM app.t'), 400, 'they are gone');
};

subtest 'REFRESH MATERIALIZED VIEW CONCURRENTLY' => sub {
	as_app('CREATE MATERIALIZED VIEW m AS SELECT id FROM t; CREATE UNIQUE INDEX ON m (id); DELETE FROM t WHERE id > 800');
	is(run_sql('REFRESH MATERIALIZED VIEW CONCURRENTLY m'), 'succeeded done 1 0 ["REFRESH MATERIALIZED VIEW"]', 'the run');
	is(sql('SELECT count(*) FROM app.m'), 300, 'it is as the table is');
};

subtest 'two statements' => sub {
	is(run_sql('INSERT INTO seen VALUES (1); INSERT INTO seen SELECT i FROM generate_series(2, 4) AS i'), 'succeeded done 2 4 ["INSERT 0 1", "INSERT 0 3"]', 'rows are added up');
	is(sql('SELECT count(*), count(DISTINCT xid) FROM app.seen'), '4|2', 'each in a transaction of its own');
	as_app('TRUNCATE seen');
};

subtest 'by a schedule, and when the server has started' => sub {
	as_app(q{CREATE TABLE tick (at timestamptz DEFAULT now()); CREATE TABLE boot (at timestamptz DEFAULT now())});
	as_app(q{SELECT sweep.create_job('tick', 'every 1 second', 'INSERT INTO tick DEFAULT VALUES'), sweep.create_job('boot', '@reboot', 'INSERT INTO boot DEFAULT VALUES')});
	soon($node, 'SELECT count(*) >= 2 FROM app.tick', 't', 'twice, by its schedule');
	as_app(q{SELECT sweep.drop_job('tick')});
	is(sql('SELECT count(*) FROM app.boot'), 0, 'not when it is created');
	$node->restart;
	soon($node, q{SELECT count(*) FROM app.boot}, 1, 'once after a restart');
	soon($node, q{SELECT string_agg(status || ' ' || stop_reason, ',') FROM sweep.runs WHERE job = 'boot'}, 'succeeded done', 'and that was a run');
};

# ---------------------------------------------------------------- what cannot be in a transaction block
subtest 'CREATE INDEX, REINDEX, DROP INDEX, CONCURRENTLY' => sub {
	is(run_sql('CREATE INDEX CONCURRENTLY t_at ON t (at)'), 'succeeded done 1 0 ["CREATE INDEX"]', 'CREATE');
	my $file = sql(q{SELECT relfilenode FROM pg_class WHERE oid = 'app.t_at'::regclass});
	is(sql(q{SELECT indisvalid FROM pg_index WHERE indexrelid = 'app.t_at'::regclass}), 't', 'it is valid');
	is(run_sql('REINDEX INDEX CONCURRENTLY t_at; REINDEX TABLE CONCURRENTLY t'), 'succeeded done 2 0 ["REINDEX", "REINDEX"]', 'REINDEX');
	isnt(sql(q{SELECT relfilenode FROM pg_class WHERE oid = 'app.t_at'::regclass}), $file, 'it is another file');
	is(run_sql('DROP INDEX CONCURRENTLY t_at; CLUSTER t USING t_pkey'), 'succeeded done 2 0 ["DROP INDEX", "CLUSTER"]', 'DROP');
	is(sql(q{SELECT to_regclass('app.t_at') IS NULL}), 't', 'it is gone');
};

subtest 'DETACH PARTITION CONCURRENTLY' => sub {
	as_app('CREATE TABLE parts (id int) PARTITION BY RANGE (id); CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (1) TO (10);
		CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (10) TO (20); INSERT INTO parts SELECT i FROM generate_series(1, 19) AS i');
	is(run_sql('ALTER TABLE parts DETACH PARTITION part_1 CONCURRENTLY; DROP TABLE part_1'), 'succeeded done 2 0 ["ALTER TABLE", "DROP TABLE"]', 'the run');
	is(sql('SELECT count(*), min(id) FROM app.parts'), '10|10', 'its rows are gone with it');
};

subtest 'databases and the configuration' => sub {
	is(run_sql(q{CREATE DATABASE another; ALTER SYSTEM SET work_mem = '5MB'; ALTER SYSTEM RESET work_mem; DROP DATABASE another}, user => 'postgres'),
		'succeeded done 4 0 ["CREATE DATABASE", "ALTER SYSTEM", "ALTER SYSTEM", "DROP DATABASE"]', 'as superuser');
};

# ---------------------------------------------------------------- transactions
subtest 'DO with COMMIT' => sub {
	is(run_sql(q{DO $$ BEGIN FOR i IN 1..3 LOOP INSERT INTO seen VALUES (i); COMMIT; END LOOP; END $$}), 'succeeded done 1 0 ["DO"]', 'the run');
	is(sql('SELECT count(*), count(DISTINCT xid) FROM app.seen'), '3|3', 'three commits');
	as_app('TRUNCATE seen');
};

subtest 'BEGIN and COMMIT' => sub {
	is(run_sql('BEGIN; INSERT INTO seen VALUES (1); INSERT INTO seen VALUES (2); COMMIT; START TRANSACTION ISOLATION LEVEL REPEATABLE READ; INSERT INTO seen VALUES (3); END'),
		'succeeded done 7 3 ["BEGIN", "INSERT 0 1", "INSERT 0 1", "COMMIT", "START TRANSACTION", "INSERT 0 1", "COMMIT"]', 'the run');
	is(sql('SELECT string_agg(c::text, $$,$$ ORDER BY c) FROM (SELECT count(*) AS c FROM app.seen GROUP BY xid) AS x'), '1,2', 'two together, and one');
	is(run_sql('BEGIN; INSERT INTO seen VALUES (4); COMMIT AND CHAIN; INSERT INTO seen VALUES (5); ROLLBACK'),
		'succeeded done 5 2 ["BEGIN", "INSERT 0 1", "COMMIT", "INSERT 0 1", "ROLLBACK"]', 'COMMIT AND CHAIN');
	is(sql('SELECT max(n) FROM app.seen'), 4, 'what the text rolls back is not there');
	as_app('TRUNCATE seen');
};

subtest 'SAVEPOINT' => sub {
	is(run_sql('BEGIN; INSERT INTO seen VALUES (1); SAVEPOINT s; INSERT INTO seen VALUES (2); ROLLBACK TO s; RELEASE s; INSERT INTO seen VALUES (3); COMMIT'),
		'succeeded done 8 3 ["BEGIN", "INSERT 0 1", "SAVEPOINT", "INSERT 0 1", "ROLLBACK", "RELEASE", "INSERT 0 1", "COMMIT"]', 'the run');
	is(sql(q{SELECT string_agg(n::text, ',' ORDER BY n) FROM app.seen}), '1,3', 'without what was rolled back');
	as_app('TRUNCATE seen');
};

subtest 'PREPARE TRANSACTION' => sub {
	is(run_sql(q{BEGIN; INSERT INTO seen VALUES (1); PREPARE TRANSACTION 'prepared'}), 'succeeded done 3 1 ["BEGIN", "INSERT 0 1", "PREPARE TRANSACTION"]', 'the run');
	is(sql('SELECT gid, owner FROM pg_prepared_xacts'), 'prepared|app', 'it is prepared');
	is(run_sql(q{COMMIT PREPARED 'prepared'}), 'succeeded done 1 0 ["COMMIT PREPARED"]', 'another job commits it');
	is(sql('SELECT count(*) FROM app.seen'), 1, 'it is there');
	as_app('TRUNCATE seen');
};

subtest 'a block that fails' => sub {
	like(run_sql('INSERT INTO seen VALUES (1); BEGIN; INSERT INTO seen VALUES (2); INSERT INTO seen VALUES (3 / 0); COMMIT; INSERT INTO seen VALUES (4)'),
		qr/^failed error 1 1 \["INSERT 0 1"\]$/, 'the run counts what was committed');
	is(sql(q{SELECT string_agg(n::text, ',' ORDER BY n) FROM app.seen}), '1', 'so it is, and nothing else');
	like(last_error(), qr/^22012 division by zero\nCONTEXT: statement 4 of the sql of the job: INSERT INTO seen VALUES \(3 \/ 0\)$/, 'it says which statement it was');
	as_app('TRUNCATE seen');
};

subtest 'a deferred trigger' => sub {
	as_app(q{CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.id < 0 THEN RAISE EXCEPTION 'no' USING ERRCODE = 'P0007'; END IF; INSERT INTO seen VALUES (NEW.id); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER note AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()});
	is(run_sql('INSERT INTO t VALUES (5001); INSERT INTO t VALUES (5002)'), 'succeeded done 2 2 ["INSERT 0 1", "INSERT 0 1"]', 'the run');
	is(sql(q{SELECT string_agg(n::text, ',' ORDER BY n) FROM app.seen}), '5001,5002', 'it has fired');
	is(run_sql('INSERT INTO t VALUES (5003); INSERT INTO t VALUES (-1); INSERT INTO t VALUES (5004)'), 'failed error 1 1 ["INSERT 0 1"]', 'one that raises at the commit');
	like(last_error(), qr/^P0007 no\n.*statement 2 of/s, 'is an error of its statement');
	as_app('DROP TRIGGER note ON t; TRUNCATE seen');
};

# ---------------------------------------------------------------- the session
subtest 'SET, RESET and what a session keeps' => sub {
	is(run_sql(q{SET work_mem = '1234kB'; CREATE TABLE setting AS SELECT current_setting('work_mem') AS a; RESET work_mem;
		CREATE TEMP TABLE passing AS SELECT i FROM generate_series(1, 10) AS i; INSERT INTO setting SELECT count(*)::text FROM passing;
		PREPARE p (int) AS INSERT INTO setting VALUES ($1::text || current_setting('work_mem')); EXECUTE p(9); DEALLOCATE p;
		BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT i FROM passing; COMMIT; FETCH 4 FROM c; MOVE 2 IN c; CLOSE c}),
		'succeeded done 14 19 ["SET", "SELECT 1", "RESET", "SELECT 10", "INSERT 0 1", "PREPARE", "INSERT 0 1", "DEALLOCATE", "BEGIN", "DECLARE CURSOR", "COMMIT", "FETCH 4", "MOVE 2", "CLOSE CURSOR"]', 'the run');
	is(sql(q{SELECT string_agg(a, ',' ORDER BY a) FROM app.setting}), '10,1234kB,94MB', 'each statement finds what those before it have left');
};

subtest 'SET search_path' => sub {
	is(run_sql(q{CREATE TABLE path AS SELECT current_setting('search_path') AS a, current_setting('jit') AS jit, current_setting('max_parallel_workers_per_gather') AS parallel,
		current_setting('synchronous_commit') AS commit}), 'succeeded done 1 1 ["SELECT 1"]', 'the run');
	is(sql('SELECT * FROM app.path'), '"$user", public|off|0|on', 'of the role; neither JIT nor parallel query');
	sql(q{ALTER ROLE app SET search_path = pg_catalog; ALTER ROLE app SET synchronous_commit = local});
	is(run_sql(q{INSERT INTO path VALUES ('')}), 'failed error 0 0', 'a path in which the table is not');
	like(last_error(), qr/^42P01 relation "path" does not exist\nHINT: Names without a schema are looked up in the search_path of the job's settings, or of its role, or the one that the sql has set\.\n/, 'it says where names are looked up');
	is(run_sql(q{SET search_path = app; TRUNCATE path; INSERT INTO path SELECT current_setting('search_path'), current_setting('synchronous_commit')}),
		'succeeded done 3 1 ["SET", "TRUNCATE TABLE", "INSERT 0 1"]', 'the text may set another one');
	is(sql('SELECT a, jit FROM app.path'), 'app|local', 'that is in force, and so are settings of the role');
	sql('ALTER ROLE app RESET ALL');
};

subtest 'a file of the server' => sub {
	my $file = $node->basedir . '/copied';

	is(run_sql("COPY (SELECT i FROM generate_series(1, 5) AS i) TO '$file'; COPY app.seen (n) FROM '$file'", user => 'postgres'), 'succeeded done 2 10 ["COPY 5", "COPY 5"]', 'COPY');
	is(sql('SELECT sum(n) FROM app.seen'), 15, 'there and back');
	as_app('TRUNCATE seen');
};

subtest 'messages and notifications' => sub {
	my $listener = session($node);

	as_app(q{SELECT sweep.create_queue('mail')});
	$listener->query_safe('LISTEN news');
	is(run_sql(q{SELECT sweep.send('mail', '{"to": 1}'); BEGIN; SELECT sweep.send('mail', '{"to": 2}'); ROLLBACK; NOTIFY news, 'told'}),
		'succeeded done 5 2 ["SELECT 1", "BEGIN", "SELECT 1", "ROLLBACK", "NOTIFY"]', 'the run');
	is(sql(q{SELECT ready FROM sweep.queues WHERE queue = 'mail'}), 1, 'a message is sent with its transaction');
	like($listener->query('SELECT 1'), qr/Asynchronous notification "news" with payload "told"/, 'a notification arrives');
	$listener->quit;
};

subtest 'runs of other jobs' => sub {
	as_app(q{SELECT sweep.create_job('inner', batch_sql => 'DELETE FROM app.seen WHERE n IN (SELECT n FROM app.seen ORDER BY n LIMIT $1)', batch_size => 2);
		INSERT INTO seen VALUES (1), (2), (3)});
	is(run_sql(q{CALL sweep.run('inner'); CALL sweep.wait(sweep.start('inner')); SELECT 1}), 'succeeded done 3 1 ["CALL", "CALL", "SELECT 1"]', 'the run');
	is(sql(q{SELECT string_agg(status || ' ' || batches || ' ' || rows, ',' ORDER BY run_id) FROM sweep.runs WHERE job = 'inner'}),
		'succeeded 3 3,succeeded 1 0', 'one in its session, one beside it');
	is(run_sql(q{CALL sweep.run('inner'); SELECT pg_sleep(1000)}, settings => q{, timeout => '1 s'}),  # the sleep is the work
		'failed timeout 1 0 ["CALL"]', 'its timeout holds behind a run that it has called');
	as_app(q{CREATE FUNCTION app.slow(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_sleep(0.1);  -- the sleep is the work
			RETURN ROW(1, NULL, NULL)::sweep.progress; END $$;
		SELECT sweep.create_job('slow', step => 'app.slow', max_batches => 600)});
	is(run_sql(q{SET statement_timeout = '1s'; CALL sweep.run('slow')}), 'failed error 1 0 ["SET"]', 'the statement_timeout of a CALL');
	is(sql(q{SELECT string_agg(status || ' ' || sqlstate, ', ') FROM (SELECT * FROM sweep.runs ORDER BY run_id DESC LIMIT 2) AS r}),
		'failed 57014, failed 57014', 'is in force behind the first batch of the run, and both say so');
	is(run_sql(q{CALL sweep.run('nothing')}), 'failed error 0 0', 'a CALL that raises');
	like(sql(q{SELECT error FROM sweep.runs ORDER BY run_id DESC LIMIT 1}), qr/^job "nothing" does not exist\n/, 'is recorded');
	as_app(q{SELECT sweep.create_job('waiting', NULL, $$CALL sweep.wait(sweep.start('inner', delay => '1 h'), '1 h')$$)});
	my $run = sql(q{SELECT sweep.start('waiting')});
	soon($node, q{SELECT count(*) FROM sweep.runs WHERE job = 'inner' AND status = 'waiting'}, 1, 'a CALL that waits');
	sql("SELECT sweep.cancel($run)");
	is(ended_run($node, $run), 'cancelled cancelled 0 0', 'can be cancelled');
};

# ---------------------------------------------------------------- many, and much
subtest '20,000 statements' => sub {
	as_app('CREATE TABLE counted (n int)');
	sql(q{CREATE TABLE t.many AS SELECT string_agg('INSERT INTO counted VALUES (' || i || ')', ';') AS sql FROM generate_series(1, 20000) AS i; GRANT SELECT ON t.many TO app});
	as_app(q{CREATE FUNCTION memory() RETURNS bigint LANGUAGE sql AS $$ SELECT coalesce(substring(pg_read_file('/proc/self/statm') FROM '^\d+ (\d+)')::bigint * 4096, 0) $$});
	sql('GRANT pg_read_server_files TO app; GRANT EXECUTE ON FUNCTION pg_read_file(text) TO app');
	as_app(q{CREATE TABLE memory (n bigint);
		SELECT sweep.create_job('many', NULL, 'INSERT INTO memory SELECT memory();' || sql || '; INSERT INTO memory SELECT memory()') FROM t.many});
	my $run = sql(q{SELECT sweep.start('many')});
	is(ended_run($node, $run), 'succeeded done 20002 20002', 'all of them');
	is(sql('SELECT count(*), sum(n) FROM app.counted'), '20000|200010000', 'each has had its effect');
	is(sql("SELECT jsonb_array_length(detail -> 'tags') FROM sweep.runs WHERE run_id = $run"), 32, 'so many tags are kept');
	my $grown = sql('SELECT (max(n) - min(n)) / 1024 FROM app.memory');
	cmp_ok($grown, '<', 8 * 1024, "the process has grown by $grown kB");
};

subtest 'a large result' => sub {
	as_app('TRUNCATE memory');
	is(run_sql('INSERT INTO memory SELECT memory(); SELECT i, repeat($$x$$, 200) FROM generate_series(1, 5000000) AS i; INSERT INTO memory SELECT memory()'),
		'succeeded done 3 5000002 ["INSERT 0 1", "SELECT 5000000", "INSERT 0 1"]', 'it is counted');
	my $grown = sql('SELECT (max(n) - min(n)) / 1024 FROM app.memory');
	cmp_ok($grown, '<', 16 * 1024, "and not kept: the process has grown by $grown kB");
};

$node->stop;
done_testing();
