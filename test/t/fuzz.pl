# room: api
# A fuzzer over the SQL surface: whatever the catalogue says that a role may call, with values of the types of its
# arguments, right, extreme and hostile ones. Nothing may crash, end in an internal error, give a privilege, show
# what is another role's or change it, and at the end the engine works.
#
# FUZZ_CALLS says how many calls, FUZZ_SEED which: the same seed makes the same calls. "make check-fuzz" makes
# many more.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SurfaceTest;
use SweepTest;
use Test::More;

my $calls = $ENV{FUZZ_CALLS} || 6000;
my $seed = $ENV{FUZZ_SEED} || int(time);
my $at_once = 1000;

# Three jobs at a time, so that the machine has time for the calls as well.
my $node = new_cluster('fuzz', bare => 1, conf => [ 'pg_sweep.max_running_jobs = 3', 'pg_sweep.max_consumers = 3', 'max_worker_processes = 16',
		"log_line_prefix = '%m [%p] %b %e '", 'log_min_error_statement = error' ]);
# Whatever the extensions create would be the guest's, who has been granted queues and nothing else.
$node->safe_psql('postgres', join(';', 'CREATE ROLE guest LOGIN', map { "ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO guest WITH GRANT OPTION" }
	  qw(TABLES SEQUENCES FUNCTIONS TYPES SCHEMAS)));
prepare_database($node, 'postgres');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_sweep_gitlab');
my $gate = hold_gate($node, 77);
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');

note("FUZZ_SEED=$seed FUZZ_CALLS=$calls");
diag("FUZZ_SEED=$seed FUZZ_CALLS=$calls");
srand($seed);

# ---------------------------------------------------------------- the roles, and what each of them has
create_roles($node);
create_victim($node, 77);
$node->safe_psql('postgres', q{
	CREATE ROLE client LOGIN IN ROLE sweep_user;
	GRANT USAGE ON SCHEMA attacker TO PUBLIC;
	CREATE TABLE attacker.gained (who text, at timestamptz DEFAULT now());
	GRANT ALL ON attacker.gained TO PUBLIC;
	CREATE DATABASE template_of_nothing TEMPLATE template0;
});

# The attacker's own functions: right ones, hostile ones, and some that are in front of those of pg_catalog in its
# search_path, and take whatever rights they are called with.
$node->safe_psql('postgres', q{
	CREATE TABLE attacker.todo (id bigint PRIMARY KEY);
	CREATE TABLE attacker.aged (id bigint PRIMARY KEY, at timestamptz, v text);
	CREATE INDEX ON attacker.aged (at);
	INSERT INTO attacker.aged SELECT n, now() - interval '1 hour' * n FROM generate_series(1, 1000) AS n;
	CREATE TABLE attacker.archive (LIKE attacker.aged INCLUDING ALL);
	GRANT ALL ON attacker.aged, attacker.archive TO PUBLIC;
	INSERT INTO attacker.todo SELECT generate_series(1, 1000);
	CREATE FUNCTION attacker.gain() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO attacker.gained SELECT current_user WHERE current_user NOT IN ('attacker', 'client', 'watcher', 'helper');
		EXECUTE 'ALTER ROLE attacker SUPERUSER';
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END $$;
	SET ROLE attacker;
	CREATE TABLE attacker.parted (at timestamptz, v text CHECK (attacker.gain() IS NOT NULL)) PARTITION BY RANGE (at);
	CREATE TABLE attacker.parted_default PARTITION OF attacker.parted DEFAULT;
	INSERT INTO attacker.parted VALUES (now()), (now() - interval '10 days');
	RESET ROLE;
	CREATE FUNCTION attacker.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	DECLARE
		n bigint;
	BEGIN
		PERFORM attacker.gain();
		DELETE FROM attacker.todo WHERE id IN (SELECT id FROM attacker.todo LIMIT least(b.size, 10));
		GET DIAGNOSTICS n = ROW_COUNT;
		RETURN ROW(n, b.args, '{"n": 1}')::sweep.progress;
	END $$;
	CREATE FUNCTION attacker.fails(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = repeat(E'\u2603%s\n', 3000), ERRCODE = 'ZZ999'; END $$;
	CREATE FUNCTION attacker.nothing(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS 'SELECT NULL::sweep.progress';
	CREATE FUNCTION attacker.odd(b sweep.batch) RETURNS sweep.progress LANGUAGE sql
		AS $$ SELECT ROW((ARRAY[-1, 0, NULL, 9223372036854775807])[1 + (random() * 3)::int], '[]', '[1]')::sweep.progress $$;
	CREATE FUNCTION attacker.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql
		AS $$ SELECT to_jsonb(i) FROM generate_series(1, 5) AS i WHERE i > coalesce((b.cursor #>> '{}')::int, 0) ORDER BY i LIMIT b.size $$;
	CREATE FUNCTION attacker.pick_null(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb FROM generate_series(1, 3) $$;
	CREATE FUNCTION attacker.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT ROW(1, NULL, error)::sweep.progress $$;
	CREATE FUNCTION attacker.buckets(b sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT (ARRAY[-1, 0, 2, NULL, 2147483647])[1 + (random() * 4)::int] $$;
	CREATE FUNCTION attacker.handle(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM attacker.gain();
		IF m.message_id % 3 = 0 THEN
			RAISE EXCEPTION 'no % %', m.payload, m.key;
		END IF;
	END $$;
	CREATE FUNCTION attacker.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM attacker.gain(); RETURN pg_catalog.now(); END $$;
	CREATE FUNCTION attacker.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM attacker.gain(); RETURN pg_catalog.now(); END $$;
	CREATE FUNCTION attacker.pg_has_role(oid, text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM attacker.gain(); RETURN true; END $$;
	CREATE FUNCTION attacker.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM attacker.gain(); RETURN true; END $$;
	CREATE FUNCTION attacker.jsonb_typeof(jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM attacker.gain(); RETURN 'object'; END $$;
	CREATE FUNCTION attacker.parse_ident(text) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN PERFORM attacker.gain(); RETURN '{attacker,step}'; END $$;
	CREATE FUNCTION attacker.same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM attacker.gain(); RETURN true; END $$;
	CREATE OPERATOR attacker.= (LEFTARG = text, RIGHTARG = text, FUNCTION = attacker.same);
	CREATE OPERATOR attacker.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = attacker.same);
	CREATE VIEW attacker.pg_roles AS SELECT *, attacker.now() FROM pg_catalog.pg_roles;
	SELECT sweep.create_queue('q_' || i, keep_done => CASE WHEN i = 1 THEN interval '1 day' ELSE '0' END, key_policy => p)
		FROM unnest(ARRAY['while_queued', 'while_queued_or_running', 'once_more_if_running']) WITH ORDINALITY AS k (p, i);
	SELECT sweep.send_many('q_' || i, ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 50) AS n)) FROM generate_series(1, 3) AS i;
	SELECT sweep.grant_queue('q_' || i, role, '{send,consume}') FROM generate_series(1, 3) AS i, unnest('{client,guest}'::regrole[]) AS role;
}, extra_params => [ '-U', 'attacker' ]);

# ---------------------------------------------------------------- values
my @queues = qw(q_1 q_2 q_3 q_new vict_queue vict_dead vict_work inbox);
my @jobs = (qw(f_1 f_2 f_3 f_4 f_5 f_6 f_7 vict_job vict_item vict_sql heir environments_auto_stop), 'f "6"');
my @functions = map { "attacker.$_" } qw(step fails nothing odd pick pick_null rescue buckets handle gain none);
my @hostile = ('', ' ', q{'}, q{"}, q{a'b"c}, q{'; DROP TABLE sweep.job; --}, '$1', '%s%n%d', "\n\t\x01\x7f", "\xe2\x98\x83\xf0\x9d\x84\x9e", "\xef\xbb\xbfx",
	'NULL', 'x' x 63, 'x' x 64, 'x' x 1001, "\xc3\xa4" x 40, 'pg_temp.x', '../../etc/passwd', 'a.b.c.d', '"a"."b', '\\', '{}', '{"a":1}', '-1', "\xff\xfe",
	'pg_sweep: suspected messages', 'sweep.job', 'public', 'true', '*', '/*redis_url*/');
my %word = (
	schedule => [ 'every 1 second', '* * * * * *', '* * * * *', '@hourly', '@reboot', 'H H * * *', '0 0 31 2 *', '61 * * * *', '1-0 * * * *', '*/0 * * * *', 'every 99999999999 years',
		'1,2,3-5/2 * L * *', 'every -1 second', '* * * *', '0 0 29 2 1' ],
	timezone => [ 'UTC', 'Europe/Berlin', 'no/zone', 'posixrules', '+25:00', 'EST5EDT', 'Pacific/Apia' ],
	sql => [ 'SELECT 1', 'VACUUM attacker.todo', 'BEGIN; INSERT INTO attacker.todo SELECT 1 WHERE false; COMMIT', 'BEGIN', 'DO $$ BEGIN COMMIT; END $$', 'CALL sweep.run($$f_2$$)', 'SELECT 1 / 0; SELECT 2',
		'SET ROLE victim; SELECT attacker.gain()', 'SET SESSION AUTHORIZATION victim', 'RESET SESSION AUTHORIZATION; RESET ROLE; SELECT attacker.gain()', 'DISCARD ALL', 'SELECT pg_advisory_unlock_all()',
		'SET search_path = attacker, pg_catalog; SET default_transaction_read_only = on; SET statement_timeout = 1', 'UPDATE sweep.run_live SET error = NULL', 'DELETE FROM sweep.job_definition', 'COPY attacker.todo TO STDOUT',
		'COPY attacker.todo TO PROGRAM \'true\'', 'SELECT pg_terminate_backend(pg_backend_pid())', 'SELECT sweep.drop_job(\'vict_job\')', 'LISTEN x', '/*', ';;', 'DROP EXTENSION pg_sweep', 'ALTER SYSTEM SET work_mem = 1' ],
	batch_sql => [ 'SELECT 1 WHERE false', 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', 'DELETE FROM attacker.todo WHERE id IN (SELECT id FROM attacker.todo LIMIT $1)', 'SELECT 1/0', 'SELECT $3', 'SELECT ($2).args WHERE ($2).size < 0',
		'DELETE FROM sweep.job_definition', 'TABLE sweep.run_live', 'COPY attacker.todo TO PROGRAM \'true\'', 'SELECT 1; SELECT 2', '', 'SELECT 1 FROM generate_series(1, 10000) WHERE $1 < 0', 'VACUUM', '/*', 'WITH x AS (DELETE FROM attacker.todo WHERE false RETURNING id) SELECT * FROM x',
		'SELECT sweep.drop_job(\'vict_job\')', 'INSERT INTO attacker.todo SELECT 1 WHERE false', 'MERGE INTO attacker.todo t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DO NOTHING', 'SELECT attacker.gain() WHERE false',
		'DECLARE c CURSOR FOR SELECT 1', 'SELECT * INTO attacker.x FROM attacker.todo' ],
	estimate => [ 'SELECT 1', 'SELECT count(*) FROM attacker.todo', 'SELECT ($1).run_id', 'SELECT 1/0', 'SELECT -1', 'SELECT $2', 'SELECT 1, 2', 'SELECT attacker.gain()', 'SELECT count(*) FROM sweep.run_live',
		'SELECT count(sweep.drop_job(\'vict_job\'))', 'SELECT generate_series(1, 3)', 'DELETE FROM attacker.todo', 'SELECT id FROM attacker.todo FOR UPDATE' ],
	(map { my $right = "attacker.$_->[1]"; ($_->[0] => [ ($right) x 8, @functions ]) }
		([ step => 'step' ], [ pick => 'pick' ], [ rescue => 'rescue' ], [ buckets_function => 'buckets' ], [ handler => 'handle' ])),
	(map { ($_ => [ ('attacker.aged') x 6, ('attacker.parted') x 2, 'attacker.archive', 'attacker.todo', 'aged', 'sweep.job', 'sweep.run_live', 'sweep.jobs', 'pg_catalog.pg_class', 'victim.none' ]) } qw(target source archive_to)),
	age_column => [qw(at at at id v none)], order_by => [ 'id', 'id', 'at', 'id, at', 'at,', '"' ], partitions => [qw(empty empty empty drop x)], on_conflict => [qw(error nothing update)],
	condition => [ 'v IS NULL', 'id > 10', 'attacker.gain() IS NULL', 'true) OR (true', 'attacker.now() > at', 'id IN (SELECT id FROM attacker.todo)', 'id > (SELECT count(*) FROM sweep.run_live)', '$1 > 0', 'true; SELECT attacker.gain()' ],
	set => [ q{v = 'x'}, q{v = 'x'}, 'v = attacker.now()::text', 'id = 1', 'v = 1 WHERE true', '(v, at) = (SELECT 1, now())', 'v = $1', q{v = 'x'; SELECT attacker.gain()} ],
	overlap => [qw(skip queue_one cancel_previous)], catch_up => [qw(once skip all)], transaction => [qw(batch row)], flush => [qw(run batch)],
	bucket_store => [qw(table redis)], backoff => [ 'sidekiq', 'none', '1 ms', '-1 s', '178000000 years', 'infinity' ],
	key_policy => [qw(while_queued while_queued_or_running once_more_if_running)], kind => [qw(step pick rescue buckets_function)],
	key => [qw(k_1 k_2 k_3 vict_job f_1)], queue => \@queues, job => \@jobs, target_schema => [qw(attacker victim sweep)], error => ['no']);
my @intervals = ('0', '1 s', '10 ms', '1 us', '-1 s', '-1 us', '1 day', '1 mon -30 days', '-1 mon 31 days', '100 years', '100 years 1 us', '300000 years', '178000000 years', '-178000000 years',
	'2562047788 hours', '-2562047788 hours', '2147483647 days', ($version >= 170000 ? ('infinity', '-infinity') : ()));
my @moments = ('now', 'infinity', '-infinity', '4713-01-01 00:00:00+00 BC', '294276-12-31 23:59:59+00', 'epoch', '2026-03-29 01:30:00+00', '2026-10-25 00:30:00+00', '1970-01-01 00:00:00+00');
my @roles = qw(attacker victim postgres sweep_admin sweep_operator sweep_monitor pg_monitor client);
my %number = (
	'smallint' => [qw(0 1 -1 100 99 -8 7 32767 -32768)],
	'integer' => [qw(0 1 1 2 3 5 10 100 1000 -1 65536 1000001 2147483647 -2147483648)],
	'bigint' => [qw(0 1 2 10 1000 -1 2147483648 9223372036854775807 -9223372036854775808)],
	'double precision' => [qw(0 1 -1 1e308 1e-300 NaN Infinity -Infinity)],
	'real' => [qw(0 0.5 1 -1 1e38 NaN Infinity -Infinity)],
	'numeric' => [qw(0 1 -1 1e1000 NaN)],
	'oid' => [qw(0 1259 4294967295)]);

sub json
{
	my ($depth) = @_;
	my $kind = int(rand($depth > 3 ? 4 : 7));

	return choose(qw(null true 0 -1 1.5 1e300 99999999999999999999999999 "" "x" "\u2603" "infinity" "2026-01-01" "15:min")) if $kind < 4;
	return '[' . join(', ', map { json($depth + 1) } 1 .. int(rand(4))) . ']' if $kind == 4;
	return '{' . join(', ', map { '"' . choose(qw(as_of schema table x gate fail timeout a), '', '\u0001') . '": ' . json($depth + 1) } 1 .. int(rand(4))) . '}';
}

sub random_json
{
	my ($name) = @_;
	my $way = rand();

	return 'NULL' if $way < 0.04;
	return choose('[' x 5000 . ']' x 5000, '"\u0000"', '{', '{"a": ' x 300 . '1' . '}' x 300, '"' . 'x' x 100000 . '"') if $way < 0.05;
	return '{"' . choose(qw(f_1 f_2 f_3 vict_job heir none)) . '": "' . choose('1 s', '15 min', '0', 'x', '-1 s', '300000 years', @intervals) . '"}' if $name eq 'children' && $way < 0.6;
	return '{"schema": "attacker", "table": "' . choose(qw(todo ci_builds p_ci_builds environments), '') . '"}' if $name eq 'args' && $way < 0.2;
	return '{"as_of": "' . choose(@moments, 'x') . '"}' if $name eq 'args' && $way < 0.3;
	return '{}' if $way < 0.4;
	return json(0);
}

# Changes of a job: the keys are the arguments that it could be created with.
my @changes;

sub changes
{
	return random_json('') if chance(0.1);
	return '{' . join(', ', map { my $a = choose(@changes);
			"\"$a->{name}\": " . (chance(0.1) ? json(1) : do { my $v = $a->{type} eq 'jsonb' ? random_json($a->{name}) : plain($a->{name}, $a->{type});
				$v eq 'NULL' ? 'null' : $a->{type} eq 'jsonb' ? $v : $v =~ /^'(.*)'(::.*)?$/s ? json_text($1) : $v =~ /^(true|false)$/ ? $v : 'null' }) } 1 .. 1 + int(rand(3))) . '}';
}

sub json_text
{
	my ($text) = @_;

	$text =~ s/''/'/g;
	$text =~ s/(["\\])/\\$1/g;
	$text =~ s/([\x00-\x1f])/sprintf('\\u%04x', ord($1))/ge;
	return "\"$text\"";
}

# A constant of a plain type without its name; undef for any other type.
sub plain
{
	my ($name, $type) = @_;

	return 'NULL' if chance(0.05) && $type ne 'jsonb';
	if ($type eq 'text' || $type eq 'name')
	{
		my $list = $word{$name} || ($name eq 'name' ? (chance(0.5) ? \@jobs : \@queues) : undef);

		return literal($list && chance(0.85) ? choose(@$list) : chance(0.02) ? 'y' x 100000 : choose(@hostile));
	}
	return literal(choose(@intervals[ 0 .. 2 ], @intervals)) if $type eq 'interval';
	return literal(choose(@moments)) if $type =~ /^timestamp|^date$/;
	return literal($name eq 'changes' ? changes() : random_json($name)) if $type eq 'jsonb';
	return choose(qw(true false)) if $type eq 'boolean';
	return choose(q{'{1}'::int[]}, 'NULL::text[]', 'NULL::attacker.parted_default[]') if $type eq 'anyarray';
	return choose('1', '1::bigint', q{'x'::text}, 'NULL::int', 'ARRAY[1]', 'ROW(1, 2)') if $type eq '"any"' || $type eq 'anyelement';
	return chance(0.6) ? ":'lease'" : literal(choose('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff')) if $type eq 'uuid';
	return literal(choose('(0,1)', '(0,0)', '(4294967295,65535)')) if $type eq 'tid';
	return choose("'pg_catalog.now()'", "'sweep.jobs_of_nobody'", "'sweep.send(text, jsonb, text, interval, int, jsonb)'", '0', '4294967295') if $type eq 'regprocedure';
	return chance(0.9) ? literal(choose(@roles)) : choose('0', '4294967295', "'nobody_at_all'") if $type eq 'regrole';
	return choose("'text'", "'sweep.batch'", '0', '4294967295', "'nowhere.at_all'") if $type eq 'regtype';
	return choose("'pg_catalog.pg_class'", "'sweep.run_live'", '0', '4294967295', "'nowhere.at_all'") if $type eq 'regclass';
	return $name eq 'run_id' && chance(0.5) ? ':run' : $name eq 'message_ids' && chance(0.5) ? ':message' : literal(choose(@{ $number{$type} })) if $number{$type};
	return;
}

sub value
{
	my ($name, $type) = @_;
	my $plain = plain($name, $type);

	# What waits is not to wait for long.
	return choose("'0'::interval", "'5 ms'::interval", "'5 ms'::interval", literal(choose(@intervals)) . '::interval') if $name eq 'timeout' && $type eq 'interval';
	# Ten thousand moments are as good as ten.
	return choose(qw(NULL 0 1 5 -1 10001 2147483647)) . '::integer' if $name eq 'n' && $type eq 'integer';
	return defined $plain && $type !~ /^("any"|anyarray|anyelement)$/ ? "$plain\::$type" : $plain;
}

# ---------------------------------------------------------------- calls
# What works, so that there is something to act on: each kind of job, runs, messages, a consumer.
my @good = (
	q{SELECT sweep.create_job('f_1', step => 'attacker.step', schedule => 'every 1 second', timezone => 'UTC', max_batches => 3, cursor => 'drain')},
	q{SELECT sweep.create_job('f_2', batch_sql => 'DELETE FROM attacker.todo WHERE id IN (SELECT id FROM attacker.todo LIMIT $1)', batch_size => 3, max_batches => 5)},
	q{SELECT sweep.create_job('f_3', step => 'attacker.odd', pick => 'attacker.pick', rescue => 'attacker.rescue', max_batches => 20)},
	q{SELECT sweep.create_job('f_4', step => 'attacker.step', buckets => 3, buckets_function => 'attacker.buckets', max_batches => 2)},
	q{SELECT sweep.create_job('f_5', step => 'attacker.fails', max_attempts => 2, on_start => '{"f_1": "0", "f_4": "1 s"}')},
	q{SELECT sweep.create_job('f "6"', step => 'attacker.fails', pick => 'attacker.pick', transaction => 'row')},
	q{SELECT sweep.create_job('f_7', 'every 1 second', 'VACUUM attacker.todo; SET search_path = attacker, pg_catalog; SET ROLE attacker; SELECT attacker.gain()')},
	q{SELECT sweep.start('f_7')},
	(map { $_, "CALL sweep.run('f_6')", "SELECT sweep.drop_job('f_6')" }
		q{SELECT sweep.create_retention('attacker.aged', 'at', '1 hour', name => 'f_6', condition => 'attacker.gain() IS NULL', archive_to => 'attacker.archive', max_rows => 50, batch_size => 7)},
		q{SELECT sweep.create_backfill('attacker.aged', 'v = attacker.now()', 'v IS NULL', name => 'f_6', paused => true, max_rows => 50, batch_size => 9)},
		q{SELECT sweep.create_copy('attacker.archive', 'attacker.aged', name => 'f_6', paused => true, on_conflict => 'nothing', max_rows => 50)},
		q{SELECT sweep.create_partitions('attacker.parted', '1 day', name => 'f_6', keep => '2 days', paused => true, max_rows => 5, batch_size => 3)},
		q{SELECT sweep.delete('attacker.aged', 'v = attacker.now() OR attacker.gain() IS NULL', name => 'f_6', max_rows => 50, batch_size => 7)},
		q{SELECT sweep.batched('UPDATE attacker.aged SET v = attacker.now() WHERE attacker.gain() IS NULL AND v IS NOT NULL', name => 'f_6', max_rows => 50, batch_size => 7)},
		q{SELECT sweep.batched('DELETE FROM attacker.aged a USING attacker.archive r WHERE r.id = a.id AND attacker.gain() IS NULL', name => 'f_6', max_rows => 50, batch_size => 7)}),
	q{SELECT sweep.delete('attacker.aged', 'attacker.gain() IS NULL', dry_run => true)},
	(map { (qq{SELECT sweep.start('f_$_')}, qq{CALL sweep.run('f_$_')}, qq{SELECT * FROM sweep.preview('f_$_')}, qq{SELECT sweep.start('f_$_', delay => '10 ms')}) } 1 .. 5),
	q{CALL sweep.run('f "6"')},
	(map { (qq{SELECT sweep.create_queue('q_$_', max_attempts => 3, backoff => '1 ms')}, qq{SELECT sweep.create_consumer('q_$_', 'attacker.handle', batch => 4)},
		qq{SELECT sweep.send_many('q_$_', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 30) AS n), ARRAY(SELECT 'k_' || n FROM generate_series(1, 30) AS n))},
		qq{SELECT sweep.fail(lease, 'no') FROM sweep.claim('q_$_')}, qq{SELECT sweep.ack(lease) FROM sweep.claim('q_$_', 3)}) } 1 .. 3),
	q{SELECT sweep.pause_consumer('q_1')}, q{SELECT sweep.resume_consumer('q_2')}, q{SELECT sweep.drop_consumer('q_3')},
	q{INSERT INTO attacker.todo SELECT generate_series(1, 1000) ON CONFLICT DO NOTHING});

sub random_call
{
	my ($surface) = @_;

	return choose(@good) if chance(0.06);
	return 'SELECT * FROM ' . choose(@{ $surface->{relations} }) . ' LIMIT 100' if chance(0.02);

	# What makes and uses jobs and queues is called more often than what GitLab's jobs are made of.
	my $function = choose(@{ $surface->{functions} });
	$function = choose(@{ $surface->{functions} }) if ($function->{schema} eq 'sweep_gitlab' || $function->{name} =~ /^_/) && chance(0.6);

	my $rare = chance(0.5) ? 0.1 : 0.5;
	my @values = map { my $a = $function->{arguments}[$_];
		$_ >= $function->{needed} && !chance($rare) ? undef : value_of($surface, $a->{name}, $a->{type}, \&value) } 0 .. $#{ $function->{arguments} };
	my $call = call_of($function, @values);

	$call .= ' LIMIT 1' if $function->{kind} ne 'p' && chance(0.02);
	return $call;
}

# A thousand calls or so, with what else happens in a session, and now and then fresh numbers to use.
sub random_statements
{
	my ($surface, $count) = @_;
	my @statements;
	my $made = 0;

	while ($made < $count)
	{
		my $way = rand();

		if ($way < 0.02)
		{
			push @statements, "SELECT lease, message_id AS message FROM sweep.claim('" . choose(qw(q_1 q_2 q_3)) . "', 2, '10 min') LIMIT 1 \\gset",
			  'SELECT run_id AS run FROM sweep.runs ORDER BY random() LIMIT 1 \\gset';
		}
		elsif ($way < 0.04)
		{
			my $end = choose(qw(COMMIT ROLLBACK ROLLBACK));
			my $in = 1 + int(rand(8));

			push @statements, 'BEGIN ' . choose('', 'ISOLATION LEVEL REPEATABLE READ', 'ISOLATION LEVEL SERIALIZABLE', 'READ ONLY'),
			  (map { ('SAVEPOINT s', random_call($surface), choose('ROLLBACK TO s', 'ROLLBACK TO s', 'RELEASE s')) } 1 .. $in), $end;
			$made += $in;
		}
		elsif ($way < 0.045)
		{
			my ($begin, $end) = @{ choose([ 'SET ROLE sweep_user', 'RESET ROLE' ], [ 'SET default_transaction_read_only = on', 'RESET default_transaction_read_only' ],
				[ 'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE' ], [ 'SET ROLE sweep_admin', 'SET ROLE NONE' ],
				$version >= 160000 ? [ 'SET debug_parallel_query = on', 'RESET debug_parallel_query' ] : [ 'SET force_parallel_mode = on', 'RESET force_parallel_mode' ]) };

			push @statements, $begin, (map { random_call($surface) } 1 .. 3), $end;
			$made += 3;
		}
		elsif ($way < 0.055)
		{
			push @statements, choose('SET search_path = attacker, pg_temp, pg_catalog', 'SET search_path = pg_temp, attacker, pg_catalog, sweep', "SET search_path = ''", 'RESET search_path',
				"SET datestyle = 'SQL, DMY'", 'RESET datestyle', "SET intervalstyle = 'iso_8601'", 'RESET intervalstyle', "SET timezone = 'Pacific/Apia'", 'RESET timezone',
				'SET row_security = off', 'RESET row_security',
				'SET work_mem = 64', 'SET quote_all_identifiers = on', 'RESET quote_all_identifiers', "SET default_transaction_isolation = 'serializable'", 'RESET default_transaction_isolation',
				"SET bytea_output = 'escape'", 'SET extra_float_digits = -15', 'SET plan_cache_mode = force_generic_plan', 'SET session_replication_role = replica', 'DISCARD ALL');
		}
		else
		{
			push @statements, random_call($surface);
			$made++;
		}
	}
	return @statements;
}

# ---------------------------------------------------------------- a pass
my $called = 0;
my %answers;

sub wrong_answers
{
	my ($role, $statements, $said) = @_;
	my @wrong;

	for my $i (0 .. $#$statements)
	{
		my ($out, $err) = map { $said->[$i]{$_} // '' } qw(out err);
		my ($code) = $err =~ /(?:ERROR|FATAL|PANIC):  ([0-9A-Z]{5}):/;

		$answers{ $code // 'done' }++;
		push @wrong, "$role: $statements->[$i]: " . substr("$err$out", 0, 2000)
		  if ($code // '') =~ /^XX/ || $role ne 'helper' && $role ne 'watcher' && "$out$err" =~ secret();
	}
	return @wrong;
}

sub pass
{
	my ($role, $count) = @_;
	my $surface = surface($node, $role);
	my $offset = -s $node->logfile;
	my @wrong;
	my $lost = 0;

	while ($count > 0)
	{
		my $some = $count < $at_once ? $count : $at_once;
		my @statements = random_statements($surface, $some);
		# In the options of the connection, so that DISCARD ALL does not undo them; for these sessions only.
		local $ENV{PGOPTIONS} = '-c statement_timeout=300ms -c lock_timeout=100ms';
		my @said = run_statements($node, $role, \@statements);

		push @wrong, wrong_answers($role, \@statements, \@said);
		unless ($said[@statements] && $said[@statements]{ended})
		{
			$lost++;
			push @wrong, "the session of $role was lost at: " . ($statements[ @said ? $#said : 0 ] // 'its end');
		}
		$count -= $some;
		$called += $some;
		last if @wrong > 10;
	}
	is(join("\n", @wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ]), '', "$role: no internal error, no secret of another role, no session lost");
	is(join('', grep { /\bPANIC\b|TRAP|terminated by signal|server process .* exited|ERROR:  XX|\sXX\d{3}\s/ } split /^/m, slurp_file($node->logfile, $offset)), '', "$role: nor in the server's log");
	return;
}

my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my ($launcher) = pid_of($node, 'launcher');

@changes = map { @{ $_->{arguments} } } grep { $_->{name} eq 'create_job' } @{ surface($node, 'attacker')->{functions} };
shift @changes;
remember_privileges($node);

my ($rows, $tables) = split /\|/, remember_rows($node);
cmp_ok($tables, '>=', 12, "the victim has rows in $tables tables");

# The last ones may act on what is the victim's, but not change whom it runs as.
pass('attacker', int($calls * 0.6));
pass('client', int($calls * 0.1));
is_deeply(surface($node, 'guest')->{relations}, [], 'default privileges have given no table of the extensions away');
pass('guest', int($calls * 0.1));
is(changed_rows($node), '', 'nothing of the victim has changed');
pass('watcher', int($calls * 0.1));
is(changed_rows($node), '', 'nor by who may only watch');
is(gained_privileges($node), '', 'no privilege was gained, nothing was left in schema sweep');

my $flags = $node->safe_psql('postgres', q{SELECT string_agg(name || enabled, ',' ORDER BY name) FROM sweep_gitlab.feature_flag});
my $definitions = q{SELECT md5(string_agg(row(name, step, sql, batch_sql, args, run_as, schedule)::text, ',' ORDER BY name)) FROM sweep.job WHERE run_as = 'victim'};
my $defined = $node->safe_psql('postgres', $definitions);

pass('helper', int($calls * 0.1));
is($node->safe_psql('postgres', $definitions), $defined, 'an operator has not changed what a job does, and as whom');
unlike(gained_privileges($node), qr/: \((?!flag)/, 'nor gained a privilege');
is($node->safe_psql('postgres', 'SELECT count(*) FROM attacker.gained'), 0, 'no function of the attacker was called as anybody else');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server is the same');
is(pid_of($node, 'launcher'), $launcher, 'and has not restarted its processes');
note('answers: ' . join(', ', map { "$_ $answers{$_}" } sort { $answers{$b} <=> $answers{$a} } keys %answers));
cmp_ok($called, '>=', $calls * 0.99, "$called calls");
cmp_ok($answers{done} // 0, '>', $called / 10, 'a good part of which was done');

# ---------------------------------------------------------------- the engine works
$node->safe_psql('postgres', q{
	SELECT sweep.resume_all();
	SELECT sweep.drop_job(name) FROM sweep.job;
	SELECT sweep.drop_consumer(queue) FROM sweep.consumers;
	SELECT sweep.cancel(run_id) FROM sweep.runs WHERE status IN ('waiting', 'running');
});
forget_session($gate);
soon($node, q{SELECT count(*) FROM sweep.running}, 0, 'what ran has ended');
$node->safe_psql('postgres', q{
	INSERT INTO t.todo SELECT generate_series(1, 25);
	SELECT sweep.create_queue('after');
	SELECT sweep.create_job('after', step => 't.work', batch_size => 10, args => '{"queue": "after"}', run_as => 'jobber');
	SELECT sweep.grant_queue('after', 'jobber', '{send}');
});
is(ended_run($node, $node->safe_psql('postgres', q{SELECT sweep.start('after')})), 'succeeded drained 4 25', 'a job runs');
is($node->safe_psql('postgres', q{SELECT count(*), sum(sweep.ack(lease, ARRAY[message_id])) FROM sweep.claim('after', 100)}), '25|25', 'its messages go through');
done_testing();
