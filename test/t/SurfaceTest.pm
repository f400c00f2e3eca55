# What the tests of the SQL surface share (privileges_rows.pl, fuzz.pl): whatever a role may call and read, found
# in the catalogue; values for the types of arguments; a role with something of everything, marked; and what
# must not become of it.
package SurfaceTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use SweepTest;

our @EXPORT = qw(create_roles create_victim secret literal surface call_of value_of choose chance
  run_statements remember_rows changed_rows gained_privileges remember_privileges);

# In each secret of the victim, and in nothing that a statement of ours says.
sub secret { return qr/secret of the victim|4242424242/; }

# A text as a constant of SQL.
sub literal
{
	my ($text) = @_;

	return 'NULL' unless defined $text;
	return "'" . $text =~ s/'/''/gr . "'";
}

# One random number generator, so that a seed says everything.
sub choose { return $_[ int(rand(@_)) ]; }
sub chance { return rand() < $_[0]; }

# ---------------------------------------------------------------- who there is
sub create_roles
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		CREATE ROLE victim LOGIN IN ROLE sweep_user;
		CREATE ROLE attacker LOGIN IN ROLE sweep_user;
		CREATE ROLE watcher LOGIN IN ROLE sweep_monitor;
		CREATE ROLE helper LOGIN IN ROLE sweep_operator;
		CREATE SCHEMA victim AUTHORIZATION victim;
		CREATE SCHEMA attacker AUTHORIZATION attacker;
	});
}

# Something of everything that the engine keeps for a role, each with a secret. Everything is named vict_…, but
# "heir", whose job was dropped and is now one of the attacker, and "inbox", to which the attacker may send.
sub create_victim
{
	my ($node, $gate) = @_;
	my $as = sub { $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'victim' ]) };
	my $fails = sub { $node->psql('postgres', $_[0], extra_params => [ '-U', 'victim' ]) };

	$as->(q{
		CREATE FUNCTION victim.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
		BEGIN
			IF b.args ? 'gate' THEN
				PERFORM pg_advisory_xact_lock((b.args ->> 'gate')::bigint);
			END IF;
			IF b.args ? 'fail' THEN
				RAISE EXCEPTION 'secret of the victim: error' USING DETAIL = 'secret of the victim: detail';
			END IF;
			RETURN ROW(1, '"secret of the victim: cursor"', '{"done": "secret of the victim: detail"}')::sweep.progress;
		END $$;
		CREATE FUNCTION victim.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql
			AS $$ SELECT '"secret of the victim: item"'::jsonb WHERE b.cursor IS NULL $$;
		CREATE FUNCTION victim.handle(m sweep.message) RETURNS void LANGUAGE plpgsql
			AS $$ BEGIN RAISE EXCEPTION 'secret of the victim: consumer error'; END $$;
		SELECT sweep.create_job('vict_job', step => 'victim.step', args => '{"x": "secret of the victim: args"}', max_batches => 1,
			description => 'secret of the victim: description', cursor => 'drain');
		SELECT sweep.create_job('vict_batch', batch_sql => $$UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0 AND 'secret of the victim: sql' = ''$$);
		SELECT sweep.create_job('vict_sql', NULL, $$SELECT 'secret of the victim: sql'$$);
		SELECT sweep.create_job('vict_item', step => 'victim.step', pick => 'victim.pick', args => '{"fail": 1}');
		SELECT sweep.create_job('vict_divided', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0', buckets => 3);
		SELECT sweep.create_job('heir', step => 'victim.step', args => '{"fail": 1}');
		SELECT sweep.create_job('environments_auto_stop', step => 'victim.step', max_batches => 1);
		SELECT sweep_gitlab.keep_environment(4242424242, now());
		SELECT sweep.create_queue('vict_queue', keep_done => '1 day', backoff => '10 hours'), sweep.create_queue('vict_dead', max_attempts => 1),
			sweep.create_queue('vict_work', backoff => '10 hours'), sweep.create_queue('inbox');
		SELECT sweep.send('vict_queue', '"secret of the victim: payload"', 'secret of the victim: key', headers => '{"x": "secret of the victim: header"}')
			FROM generate_series(1, 5);
		SELECT sweep.send(q, '"secret of the victim: payload"', headers => '{"x": "secret of the victim: header"}')
			FROM generate_series(1, 5), unnest(ARRAY['vict_queue', 'vict_dead', 'vict_work', 'inbox']) AS q;
		SELECT sweep.ack(lease) FROM sweep.claim('vict_queue');
		SELECT sweep.fail(lease, 'secret of the victim: failure') FROM sweep.claim('vict_queue');
		SELECT sweep.fail(lease, 'secret of the victim: failure') FROM sweep.claim('vict_dead');
		SELECT sweep.create_consumer('vict_work', 'victim.handle');
		SELECT sweep.begin_once('secret of the victim: once');
		SELECT sweep.grant_queue('inbox', 'attacker', '{send}');
	});
	$as->('CALL sweep.run(' . literal($_) . ')') for qw(vict_job vict_item vict_divided);
	$fails->(q{CALL sweep.run('vict_job', '{"fail": 1}')});
	$fails->(q{CALL sweep.run('heir')});
	$as->(q{SELECT sweep.drop_job('heir')});
	$node->safe_psql('postgres', q{SELECT sweep.create_job('heir', batch_sql => 'UPDATE pg_catalog.pg_settings SET setting = setting WHERE $1 < 0')}, extra_params => [ '-U', 'attacker' ]);
	$as->(q{SELECT sweep.start('vict_batch', '{"x": "secret of the victim: args of a run"}', '10 years')});
	$as->(qq{SELECT sweep.start('vict_job', '{"x": "secret of the victim: args of a run", "gate": $gate}')});
	at_gate($node, $gate, 'a run of the victim is in progress');
	soon($node, q{SELECT failed FROM sweep.consumers WHERE queue = 'vict_work'}, 5, 'and a consumer of its has failed');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sweep.quarantine WHERE job = 'vict_item'}), 1, 'and an item is in quarantine');
	soon($node, q{SELECT count(*) FROM sweep.run_live WHERE finished_at IS NOT NULL OR job = 'vict_divided'}, 0, 'and what has ended is history');
}

# ---------------------------------------------------------------- what there is to call
# The functions, procedures, tables and views in the schemas of both extensions that a role may use, with what is known of the types
# of their arguments. A type is a name, and: base (of a domain), element (of an array), fields (of a row).
sub surface
{
	my ($node, $role) = @_;
	my %found = (functions => [], relations => []);
	my @rows = map { [ split /\t/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', qq{
		SELECT p.oid, p.pronamespace::regnamespace, p.proname, p.prokind, p.pronargs - p.pronargdefaults, a.nth, coalesce(p.proargnames[a.nth], ''), t.oid::regtype
		FROM pg_proc p LEFT JOIN LATERAL unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, nth) ON true LEFT JOIN pg_type t ON t.oid = a.type
		WHERE p.pronamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace) AND has_function_privilege('$role', p.oid, 'EXECUTE')
			AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
		ORDER BY p.proname, a.nth}, extra_params => [ '-F', "\t" ]);

	for my $row (@rows)
	{
		my ($oid, $schema, $name, $kind, $needed, $nth, $argument, $type) = @$row;

		push @{ $found{functions} }, { schema => $schema, name => $name, kind => $kind, needed => $needed, arguments => [], oid => $oid }
		  unless @{ $found{functions} } && $found{functions}[-1]{oid} eq $oid;
		push @{ $found{functions}[-1]{arguments} }, { name => $argument, type => $type } if $nth ne '';
	}
	$found{relations} = [ split /\n/, $node->safe_psql('postgres', qq{SELECT oid::regclass FROM pg_class WHERE relnamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace)
		AND relkind IN ('r', 'v', 'm', 'p', 'f', 'S') AND (has_any_column_privilege('$role', oid, 'SELECT') OR has_table_privilege('$role', oid, 'SELECT')) ORDER BY 1}) ];
	$found{types} = { map { my ($name, $base, $element, $fields) = split /\t/, $_, -1;
			($name => { base => $base, element => $element, fields => [ split /\|/, $fields ] }) } split /\n/, $node->safe_psql('postgres', q{
		SELECT t.oid::regtype, CASE WHEN t.typtype = 'd' THEN t.typbasetype::regtype::text END, CASE WHEN t.typcategory = 'A' THEN t.typelem::regtype::text END,
			(SELECT string_agg(a.attname || ' ' || a.atttypid::regtype, '|' ORDER BY a.attnum) FROM pg_attribute a
				WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
		FROM pg_type t WHERE t.typnamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace, 'pg_catalog'::regnamespace)}, extra_params => [ '-F', "\t" ]) };
	return \%found;
}

# A constant for an argument. "simple" gives one for a name of an argument and a plain type, undef for a type
# that it does not know: then the test must learn it.
sub value_of
{
	my ($surface, $name, $type, $simple) = @_;
	my $value = $simple->($name, $type);
	my $known = $surface->{types}{$type};

	return $value if defined $value;
	die "no value for type $type: teach it to this test" unless $known;
	return value_of($surface, $name, $known->{base}, $simple) . "::$type" if $known->{base};
	if ($known->{element})
	{
		return "NULL::$type" if chance(0.1);
		return 'ARRAY[' . join(', ', map { value_of($surface, $name, $known->{element}, $simple) } 1 .. int(rand(4))) . "]::$type";
	}
	die "no value for type $type: teach it to this test" unless @{ $known->{fields} };
	return "NULL::$type" if chance(0.05);
	return 'ROW(' . join(', ', map { my ($field, $field_type) = split / /, $_, 2; value_of($surface, $field, $field_type, $simple) } @{ $known->{fields} }) . ")::$type";
}

# The statement that calls it with these values, by name where it has names; undef leaves an argument out.
sub call_of
{
	my ($function, @values) = @_;
	my @given;

	for my $i (0 .. $#{ $function->{arguments} })
	{
		my $argument = $function->{arguments}[$i];

		next unless defined $values[$i];
		push @given, ($argument->{name} eq '' ? '' : "\"$argument->{name}\" => ") . $values[$i];
	}
	return ($function->{kind} eq 'p' ? 'CALL' : 'SELECT * FROM') . " $function->{schema}.$function->{name}(" . join(', ', @given) . ')';
}

# ---------------------------------------------------------------- calling it
# Executes statements as a role, one after the other in one session, whatever comes of them. Returns for each what
# it printed and what it complained of; fewer when the session was lost.
sub run_statements
{
	my ($node, $role, $statements, @settings) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir;
	my @streams;
	my $number = 0;

	open(my $script, '>:raw', "$directory/script.sql") or die $!;
	print $script "\\set VERBOSITY verbose\n\\pset null <NULL>\n\\set lease 00000000-0000-0000-0000-000000000000\n\\set run 0\n\\set message 0\n";
	print $script "$_\n" for @settings;
	for my $statement (@$statements)
	{
		print $script "\\echo =$number=\n\\warn =$number=\n$statement", $statement =~ /\\gset$/ ? "\n" : ";\n";
		$number++;
	}
	print $script "\\echo =$number=\n\\warn =$number=\n";
	close $script;
	system(sprintf("psql -XqAt -h '%s' -p %d -U %s -d postgres -f '%s/script.sql' >'%s/out' 2>'%s/err'",
			$node->host, $node->port, $role, ($directory) x 3));
	for my $stream (qw(out err))
	{
		# What is said behind a number belongs to the statement of that number.
		my @part = split /^=(\d+)=\n/m, slurp_file("$directory/$stream");

		shift @part;
		while (@part)
		{
			my $nth = shift @part;
			my $said = shift @part;

			$streams[$nth]{$stream} = $said // '' if $nth < $number;
			$streams[$number]{ended} = 1 if $nth == $number;
		}
	}
	return @streams;
}

# ---------------------------------------------------------------- what must stay as it is
# The rows of all tables in these schemas that are the victim's: that have its name, its OID, its objects' names or
# its secrets in them, and nothing of anybody else's.
sub victims_rows
{
	my ($node) = @_;
	# Somebody else's job may have the name of a queue of the victim: what has no role has that of its job.
	my @tables = split /\n/, $node->safe_psql('postgres',
		q{SELECT c.oid::regclass || ' ' || CASE WHEN a.attname IS NOT NULL THEN 'job' ELSE '' END FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'job'
				AND NOT EXISTS (SELECT FROM pg_attribute o WHERE o.attrelid = c.oid AND o.attname IN ('run_as', 'role', 'owner'))
			WHERE c.relnamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace) AND c.relkind IN ('r', 'p') ORDER BY 1});
	my @rows = map {
		my ($table, $job) = split / /;
		my $role = $job ? q{ || coalesce((SELECT ' ' || j.run_as FROM sweep.job AS j WHERE j.name = t.job), '')} : '';
		"SELECT '$table' AS name, t::text$role AS row FROM $table AS t"
	} @tables;

	return 'SELECT name, row FROM (' . join(' UNION ALL ', @rows) . q{) AS r,
			(SELECT oid FROM pg_roles WHERE rolname = 'victim') AS v,
			(SELECT string_agg(rolname || '|\m' || oid || '\M', '|') AS any FROM pg_roles WHERE rolname IN ('attacker', 'client', 'watcher', 'helper', 'sweep_user')) AS others
		WHERE row ~ ('vict|secret of the|4242424242|\m' || v.oid || '\M') AND row !~ others.any};
}

sub remember_rows
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS rows_before; CREATE TABLE rows_before AS ' . victims_rows($node));
	$node->safe_psql('postgres', q{DROP TABLE IF EXISTS queues_before;
		CREATE TABLE queues_before AS SELECT queue, depth, ready, delayed, in_flight, dead FROM sweep.queues WHERE queue LIKE 'vict%' AND owner::text = 'victim'});
	return $node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT name) FROM rows_before');
}

# What has come or gone since; nothing is the right answer. What the attacker sends to the inbox is allowed.
sub changed_rows
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'WITH now AS MATERIALIZED (' . victims_rows($node) . q{)
		SELECT 'gone: ' || b::text FROM (TABLE rows_before EXCEPT ALL TABLE now) AS b
		UNION ALL SELECT 'come: ' || n::text FROM (TABLE now EXCEPT ALL TABLE rows_before) AS n
			WHERE n.name NOT IN ('sweep.queue_message', 'sweep.queue_done') OR n.row ~ 'secret of'
		UNION ALL SELECT 'queue: ' || q::text FROM (SELECT queue, depth, ready, delayed, in_flight, dead FROM sweep.queues WHERE queue LIKE 'vict%' AND owner::text = 'victim'
			EXCEPT TABLE queues_before) AS q LIMIT 20});
}

# Roles with their attributes, memberships and settings; owners and rights of everything outside of the attacker's schema.
sub privileges
{
	return q{
		SELECT 'role' AS kind, r::text AS what FROM (SELECT oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls FROM pg_roles) AS r
		UNION ALL SELECT 'member', m::text FROM pg_auth_members AS m
		UNION ALL SELECT 'setting', s::text FROM pg_db_role_setting AS s
		UNION ALL SELECT 'database', d::text FROM (SELECT oid, datname, datdba, datacl FROM pg_database) AS d
		UNION ALL SELECT 'schema', n::text FROM (SELECT oid, nspname, nspowner, nspacl FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp') AS n
		UNION ALL SELECT 'relation', c::text FROM (SELECT oid, relname, relowner, relacl, relrowsecurity FROM pg_class
			WHERE relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('attacker', 'public', 'pg_toast') OR nspname ~ '^pg_(toast_)?temp')) AS c
		UNION ALL SELECT 'function', p::text FROM (SELECT oid, proname, proowner, prosecdef, proacl FROM pg_proc
			WHERE pronamespace <> ALL (ARRAY(SELECT oid FROM pg_namespace WHERE nspname = 'attacker' OR nspname ~ '^pg_temp'))) AS p
		UNION ALL SELECT 'extension', e::text FROM (SELECT extname, extowner FROM pg_extension) AS e
		UNION ALL SELECT 'type', t::text FROM (SELECT oid, typname, typowner FROM pg_type
			WHERE typnamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace, 'pg_catalog'::regnamespace)) AS t
		UNION ALL SELECT 'flag', f::text FROM sweep_gitlab.feature_flag AS f};
}

sub remember_privileges
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS privileges_before; CREATE TABLE privileges_before AS ' . privileges());
}

sub gained_privileges
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'WITH now AS MATERIALIZED (' . privileges() . q{)
		SELECT 'gone: ' || b::text FROM (TABLE privileges_before EXCEPT ALL TABLE now) AS b
		UNION ALL SELECT 'come: ' || n::text FROM (TABLE now EXCEPT ALL TABLE privileges_before) AS n LIMIT 20});
}

1;
