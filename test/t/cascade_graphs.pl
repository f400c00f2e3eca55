# room: makers
# Retention over tables that refer to each other in ways drawn by lot: what is left is what is left when each row is deleted by itself,
# and what its keys refuse is undone, until none goes any more. No transaction touches more rows than a batch may.
# The schemas are the same each time; SEED=n draws others, GRAPHS=n says how many are tried.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $graphs = $ENV{GRAPHS} || 30;
my $seed = $ENV{SEED} // 24;
my $batch_size = 20;

srand($seed);
diag("SEED=$seed repeats these schemas");

my $node = new_cluster('cascade_graphs', conf => [ 'autovacuum = off' ]);

sub pick { return $_[ int(rand(@_)) ] }

# Tables t0 (the target) to tn, each of which refers to earlier ones, or itself. What keeps rows refers to one table and is referred to by none,
# so that it is never in the tree of a row that it keeps.
sub draw_schema
{
	my $count = 2 + int(rand(6));
	my @tables = ({ name => 't0', keys => [] });
	my @trees = (0);

	push @{ $tables[0]{keys} }, { to => 0, action => pick('CASCADE', 'SET NULL') } if rand() < 0.3;
	# The triggers that count make it one that is not gone through partition by partition.
	$tables[0]{partitioned} = rand() < 0.3;
	for my $n (1 .. $count)
	{
		my $table = { name => "t$n", keys => [] };

		if (rand() < 0.25)
		{
			$table->{keys} = [ { to => pick(@trees), action => pick('RESTRICT', 'NO ACTION', 'NO ACTION DEFERRABLE INITIALLY DEFERRED') } ];
		}
		else
		{
			push @{ $table->{keys} }, { to => pick(@trees), action => pick('CASCADE', 'CASCADE', 'CASCADE', 'SET NULL', 'SET DEFAULT') } for 0 .. int(rand(2.3));
			push @{ $table->{keys} }, { to => $n, action => 'CASCADE' } if rand() < 0.2;
			$table->{partitioned} = rand() < 0.2 && !grep { $_->{to} == $n } @{ $table->{keys} };
			push @trees, $n;
		}
		push @tables, $table;
	}
	return @tables;
}

sub create_schema
{
	my ($schema, @tables) = @_;
	my $script = "DROP SCHEMA IF EXISTS $schema CASCADE; CREATE SCHEMA $schema; SET search_path = $schema;\n";

	for my $table (@tables)
	{
		my @columns = ('a int', 'b int', 'at timestamptz', 'PRIMARY KEY (a, b)');
		my $nth = 0;

		for my $key (@{ $table->{keys} })
		{
			push @columns, "k${nth}_a int", "k${nth}_b int", "FOREIGN KEY (k${nth}_a, k${nth}_b) REFERENCES $tables[$key->{to}]{name} ON DELETE $key->{action}";
			$nth++;
		}
		$script .= "CREATE TABLE $table->{name} (" . join(', ', @columns) . ')' . ($table->{partitioned} ? ' PARTITION BY HASH (a)' : '') . ";\n";
		$script .= "CREATE TABLE $table->{name}_$_ PARTITION OF $table->{name} FOR VALUES WITH (MODULUS 2, REMAINDER $_);\n" for $table->{partitioned} ? (0, 1) : ();
		$script .= "CREATE INDEX ON $table->{name} (k${_}_a, k${_}_b);\n" for 0 .. $nth - 1;
	}
	return $script . "CREATE INDEX ON t0 (at);\n";
}

# Half of the rows of the target are old. A row refers to one that is there already, so none refers to a later one.
sub draw_rows
{
	my (@tables) = @_;
	my @scripts;

	for my $n (0 .. $#tables)
	{
		my $rows = 20 + int(rand(60));
		my @values;

		$tables[$n]{rows} = $rows;
		for my $row (1 .. $rows)
		{
			my @value = ($row, $row % 3, rand() < 0.5 ? q{'2026-01-01Z'} : q{'2026-03-01Z'});

			for my $key (@{ $tables[$n]{keys} })
			{
				my $there = $key->{to} == $n ? $row - 1 : $tables[ $key->{to} ]{rows};
				# Some rows have many that refer to them.
				my $to = rand() < 0.3 ? 1 + int(rand(3)) : 1 + int(rand($there));

				push @value, $there < 1 || $to > $there || rand() < 0.1 ? ('NULL', 'NULL') : ($to, $to % 3);
			}
			push @values, '(' . join(', ', @value) . ')';
		}
		push @scripts, "INSERT INTO t$n VALUES " . join(', ', @values) . ";\n";
	}
	return join '', @scripts;
}

# All rows, with what they refer to.
sub rows_of
{
	my ($schema, @tables) = @_;

	return $node->safe_psql('postgres', join(' UNION ALL ', map { "SELECT '$_->{name} ' || t::text FROM $schema.$_->{name} AS t" } @tables) . ' ORDER BY 1');
}

$node->safe_psql('postgres', q{
	CREATE TABLE t.touched (txid bigint, rows bigint);
	CREATE FUNCTION t.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t.touched SELECT txid_current(), count(*) FROM old; RETURN NULL; END $$;
	CREATE PROCEDURE t.one_by_one() LANGUAGE plpgsql AS $$
	DECLARE
		row record;
		gone bool;
		found_it bool;
	BEGIN
		LOOP
			gone := false;
			FOR row IN SELECT a, b FROM plain.t0 WHERE at < '2026-02-01Z' LOOP
				BEGIN
					DELETE FROM plain.t0 WHERE (a, b) = (row.a, row.b);
					found_it := FOUND;
					SET CONSTRAINTS ALL IMMEDIATE;
					SET CONSTRAINTS ALL DEFERRED;
					gone := gone OR found_it;
				EXCEPTION WHEN foreign_key_violation OR restrict_violation THEN
					NULL;
				END;
				-- PostgreSQL checks all keys of a row that is updated again in one transaction, also those whose rows go in the same statement.
				COMMIT;
			END LOOP;
			EXIT WHEN NOT gone;
		END LOOP;
	END
	$$;
});

for my $graph (1 .. $graphs)
{
	my @tables = draw_schema();
	my $rows = draw_rows(@tables);
	my $name = "schema $graph of SEED=$seed";

	$node->safe_psql('postgres', create_schema('plain', @tables) . $rows . create_schema('swept', @tables) . $rows
		. join('', map { "CREATE TRIGGER d AFTER DELETE ON $_->{name} REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION t.note();
			CREATE TRIGGER u AFTER UPDATE ON $_->{name} REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION t.note();\n" } @tables));
	$node->safe_psql('postgres', 'CALL t.one_by_one()');
	# What fails is in the row of the run.
	$node->psql('postgres', qq{TRUNCATE t.touched;
		SELECT sweep.create_retention('swept.t0', 'at', '10 days', name => 'swept', schedule => NULL, batch_size => $batch_size, replace => true);
		CALL sweep.run('swept', '{"as_of": "2026-02-10Z"}')});
	my $same = rows_of('plain', @tables) eq rows_of('swept', @tables);
	my $outcome = $node->safe_psql('postgres', q{SELECT status, coalesce((SELECT max(sum) FROM (SELECT sum(rows) FROM t.touched GROUP BY txid) AS t), 0), detail, error FROM sweep.runs WHERE job = 'swept' ORDER BY run_id DESC LIMIT 1});
	my ($status, $most) = split /\|/, $outcome;
	ok($same && $status eq 'succeeded', "$name: what is left is right") or diag("$outcome\n" . create_schema('swept', @tables));
	cmp_ok($most, '<=', $batch_size, "$name: no transaction touches more than a batch may") or diag($outcome);
}

$node->stop;
done_testing();
