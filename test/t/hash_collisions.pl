# room: base
# Texts that are made to have the hash of another: hashes of PostgreSQL are invertible in no time, those that the engine trusts
# are made under a secret of the server.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SweepTest;

my $node = new_cluster('hash_collisions');

# ---------------------------------------------------------------- hash_bytes_extended(), up to its last block of 12 bytes
sub rot { return (($_[0] << $_[1]) | ($_[0] >> (32 - $_[1]))) & 0xffffffff; }

sub mix
{
	my ($a, $b, $c) = @_;

	$a = ($a - $c) & 0xffffffff; $a ^= rot($c, 4);  $c = ($c + $b) & 0xffffffff;
	$b = ($b - $a) & 0xffffffff; $b ^= rot($a, 6);  $a = ($a + $c) & 0xffffffff;
	$c = ($c - $b) & 0xffffffff; $c ^= rot($b, 8);  $b = ($b + $a) & 0xffffffff;
	$a = ($a - $c) & 0xffffffff; $a ^= rot($c, 16); $c = ($c + $b) & 0xffffffff;
	$b = ($b - $a) & 0xffffffff; $b ^= rot($a, 19); $a = ($a + $c) & 0xffffffff;
	$c = ($c - $b) & 0xffffffff; $c ^= rot($b, 4);  $b = ($b + $a) & 0xffffffff;
	return ($a, $b, $c);
}

# The state after whole blocks of a message of so many bytes.
sub state_after
{
	my ($seed, $length, $blocks) = @_;
	my @state = ((0x9e3779b9 + $length + 3923095) & 0xffffffff) x 3;

	@state = mix($state[0], ($state[1] + $seed) & 0xffffffff, $state[2]) if $seed;
	for my $block (unpack '(a12)*', $blocks)
	{
		my @word = unpack 'V3', $block;

		@state = mix(map { ($state[$_] + $word[$_]) & 0xffffffff } 0 .. 2);
	}
	return @state;
}

# Another text of the same length whose hash is that of this one. Header: what comes before both.
sub collide
{
	my ($text, $seed, $other_seed, $header) = @_;
	my $length = length("$header$text");
	my $last = substr($text, -12);
	my @wanted = state_after($seed, $length, $header . substr($text, 0, -12));
	my @word = unpack 'V3', $last;

	for my $try (1 .. 10000000)
	{
		my $front = sprintf '%0*d', length($text) - 12, $try;
		my @state = state_after($other_seed, $length, "$header$front");
		my $back = pack 'V3', map { ($wanted[$_] + $word[$_] - $state[$_]) & 0xffffffff } 0 .. 2;

		return "$front$back" if $back =~ /^[\x20-\x7e]{12}\z/;
	}
	die 'no text was found';
}

# ---------------------------------------------------------------- locks
sql(q{CREATE ROLE alice LOGIN IN ROLE sweep_user; CREATE ROLE mallory LOGIN IN ROLE sweep_user});
my ($alice, $mallory) = map { sql("SELECT '$_'::regrole::oid") } qw(alice mallory);
my $key = 'nightly clean-up of shop';
my $same = collide($key, $alice, $mallory, '');
is(sql("SELECT hashtextextended('$key', $alice) = hashtextextended(\$key\$$same\$key\$, $mallory)"), 't', 'two keys have the same hash');
sql("SELECT sweep.create_job('clean-up', step => 't.note', lock_key => '$key', args => '{\"job\": \"clean-up\"}')", user => 'alice');
my $session = session($node, user => 'mallory');
is($session->query_safe("SELECT sweep.try_lock(\$key\$$same\$key\$)"), 't', 'another role takes the one');
is(ended_run($node, due_run($node, 'clean-up')), 'succeeded drained 1 0', 'and keeps no run away that has the other');
my $number = q{SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 21335};
my $taken = sql($number);
isnt($taken, sql("SELECT hashtextextended('$key', $alice)"), 'the number of its lock is not that hash');
is($taken, sql("SELECT sweep._lock_number($mallory, \$key\$$same\$key\$)"), 'it can be asked for');
my ($status) = $node->psql('postgres', "SELECT sweep._lock_number($mallory, 'any')", extra_params => [ '-U', 'mallory' ]);
isnt($status, 0, 'though not by every role');
$session->quit;
$node->restart;
isnt(sql("SELECT sweep._lock_number($mallory, \$key\$$same\$key\$)"), $taken, 'it is another one after a restart');

# ---------------------------------------------------------------- items
# A string as jsonb: an array of one element that stands for it, its length, its bytes.
my $name = 'a name that has a length of forty bytes.';
my $header = pack 'V2', 0x50000001, 0x80000000 | length($name);
my $other = collide($name, 0, 0, $header);
sql("CREATE TABLE t.named (id int PRIMARY KEY, name text, done boolean);
	INSERT INTO t.named VALUES (1, 'first'), (2, '$name'), (3, 'third'), (4, \$name\$$other\$name\$), (5, 'fifth')");
sql(q{
	CREATE FUNCTION t.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql
		AS 'SELECT to_jsonb(name) FROM t.named WHERE done IS NULL ORDER BY id LIMIT b.size';
	CREATE FUNCTION t.finish(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE t.named SET done = true WHERE name IN (SELECT i #>> '{}' FROM unnest(b.items) AS i);
		RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
	END $$;
	SELECT sweep.create_job('items', step => 't.finish', pick => 't.pick', batch_size => 2);
});
is(ended_run($node, sql(q{SELECT sweep.start('items')})), 'succeeded drained 4 5', 'items with the same hash are two items');
$node->stop;
done_testing();
