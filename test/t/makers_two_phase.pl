# room: makers
# Prepared transactions beside the makers, also after a restart of the server: no row that they commit is passed over.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SweepTest;
use Test::More;

my $node = new_cluster('makers_two_phase', conf => ['max_prepared_transactions = 10']);

# ---------------------------------------------------------------- a copy of what comes
# Other sessions see the transaction as that of a process at first, then as a prepared one of the same number, then as one of another number.
sql(q{
	CREATE TABLE public.source (id int PRIMARY KEY);
	CREATE TABLE public.target (id int);
	SELECT sweep.create_copy('public.source', 'public.target', name => 'copy', paused => true);
});

sub run_copy
{
	sql(q{CALL sweep.run('copy')});
	return sql(q{SELECT stop_reason, coalesce(detail ->> 'waits_for', '') FROM sweep.runs WHERE job = 'copy' ORDER BY run_id DESC LIMIT 1});
}

my $writer = session($node);
$writer->query_safe('BEGIN; INSERT INTO public.source VALUES (1)');
sql('INSERT INTO public.source VALUES (2)');
like(run_copy(), qr/^waits\|\[\d+\]$/, 'a copy waits for a transaction that may have a smaller key');
$writer->query_safe(q{PREPARE TRANSACTION 'late'});
$writer->quit;
is(run_copy(), 'waits|["prepared transaction"]', 'also when it is prepared');
$node->restart;
sql('INSERT INTO public.source VALUES (3)');
is(run_copy(), 'waits|["prepared transaction"]', 'also after a restart');
sql(q{COMMIT PREPARED 'late'});
is(run_copy(), 'drained|', 'it goes on when that has ended');
is(sql('SELECT string_agg(id::text, $$ $$ ORDER BY id) FROM public.target'), '1 2 3', 'and has all rows');

done_testing();
