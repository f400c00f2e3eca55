#!/bin/bash
# cascades.sh [SHAPE ...]: deletes of rows with which others go by foreign keys.
#
# Each shape is filled anew for each way, in turns: one statement that cascades ("statement"); loops as they are written by hand, one commit for
# each 1,000 rows: the children of a parent by their places, then the parent ("places"); table by table, the lowest first ("levels"); as many
# whole subtrees as are 1,000 rows ("subtrees"); sweep.create_retention ("sweep"). The shape "one" has a snapshot held meanwhile.
#
# Printed: seconds, those of CPU of the session, WAL in MB, the p99 and the longest of the times between two commits in ms; the time, the CPU time
# and the WAL divided by those of the statement, and time and CPU time by the least of a loop; at the end, how long updates of the child that goes
# last have waited at most. SCALE=0.1 takes a tenth of the rows, of which a larger share of the time is that of the start of a run.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../bin/lib.sh
. "$(dirname "$0")/../bin/lib.sh"

shapes=${*:-side spread two chain diamond self one}
scale=${SCALE:-1}
cluster=$sweep_top/tmp_cascades

sweep_server_root
sweep_cluster_remove "$cluster"
sweep_cluster_start "$cluster" "shared_buffers = 512MB" "max_wal_size = 16GB" "autovacuum = off" "fsync = off" "track_commit_timestamp = on"
trap 'sweep_cluster_stop "$cluster" immediate' EXIT
sweep_cluster_use "$cluster"

sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 "$@"
}

rows()
{
	awk -v n="$1" -v scale="$scale" 'BEGIN { printf "%d", n * scale }'
}

# The parents of "side" have their children side by side, those of "spread" all over the table.
fill()
{
	local children

	children=$(rows 2000000)

	sql -c 'SET client_min_messages = warning; DROP TABLE IF EXISTS e, d, c, b, parent CASCADE'
	sql -c 'CREATE TABLE parent (id int PRIMARY KEY, at timestamptz DEFAULT now() - interval '"'1 year'"'); CREATE INDEX ON parent (at)'
	case $1 in
		side) child b parent; some parent 200; insert b "SELECT n, 1 + (n - 1) / ($children / 200) FROM generate_series(1, $children) AS n" ;;
		spread) child b parent; some parent 200; insert b "SELECT n, 1 + n % 200 FROM generate_series(1, $children) AS n" ;;
		two) child b parent; some parent "$(rows 1000000)"; insert b "SELECT n, (n + 1) / 2 FROM generate_series(1, $(rows 2000000)) AS n" ;;
		chain)
			child b parent; child c b; child d c; child e d
			some parent "$(rows 100)"
			for table in b c d e
			do
				insert $table "SELECT row_number() OVER (), p.id FROM $(case $table in b) echo parent ;; c) echo b ;; d) echo c ;; e) echo d ;; esac) AS p, generate_series(1, 10)"
			done ;;
		diamond)
			child b parent; child c parent; child d b
			sql -c 'ALTER TABLE d ADD other_id int REFERENCES c ON DELETE CASCADE; CREATE INDEX ON d (other_id)'
			some parent "$(rows 20000)"
			insert b 'SELECT id, id FROM parent'; insert c 'SELECT id, id FROM parent'
			sql -c 'INSERT INTO d (id, parent_id, other_id) SELECT row_number() OVER (), id, id FROM parent, generate_series(1, 20)' ;;
		self)
			sql -c 'ALTER TABLE parent ADD parent_id int REFERENCES parent ON DELETE CASCADE; CREATE INDEX ON parent (parent_id)'
			sql -c "INSERT INTO parent (id, parent_id) SELECT n, nullif(n - 1, (n - 1) / 1000 * 1000) FROM generate_series(1, $(rows 100000)) AS n" ;;
		one) child b parent; some parent 1; insert b "SELECT n, 1 FROM generate_series(1, $(rows 200000)) AS n" ;;
		*) sweep_die "unknown shape $1" ;;
	esac
	sql -c 'VACUUM (ANALYZE)' -c 'CHECKPOINT'
}

child()
{
	sql -c "CREATE TABLE $1 (id int PRIMARY KEY, parent_id int REFERENCES $2 ON DELETE CASCADE, pad text DEFAULT 'some text of a row'); CREATE INDEX ON $1 (parent_id)"
}

some()
{
	sql -c "INSERT INTO $1 SELECT n FROM generate_series(1, $2) AS n"
}

insert()
{
	sql -c "INSERT INTO $1 (id, parent_id) $2"
}

# A session whose snapshot keeps all that goes from being removed.
hold_snapshot()
{
	coproc holder { psql -XAtq; }
	echo 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM parent LIMIT 1;' >&"${holder[1]}"
	read -r _ <&"${holder[0]}"
}

let_snapshot_go()
{
	# shellcheck disable=SC2154 # coproc sets it
	local pid=$holder_PID

	echo '\q' >&"${holder[1]}"
	wait "$pid"
}

# measure SHAPE WAY STATEMENT
measure()
{
	fill "$1"
	test "$1" != one || hold_snapshot
	sql -v statement="$3" <<-'EOF' | awk -F '|' -v shape="$1" -v way="$2" '{ printf "%s\t%s\t%.2f\t%.2f\t%.1f\t%.0f\t%.0f\n", shape, way, $1, $2, $3, $4, $5 }' >>"$cluster/results"
		SELECT pg_current_wal_lsn() AS wal, pg_snapshot_xmax(pg_current_snapshot()) AS xid, cpu() AS cpu, clock_timestamp() AS begun \gset
		:statement;
		SELECT extract(epoch FROM clock_timestamp() - :'begun') AS seconds, cpu() - :'cpu' AS cpu, pg_wal_lsn_diff(pg_current_wal_lsn(), :'wal') / 1048576 AS wal \gset
		WITH gap AS (SELECT extract(epoch FROM c.at - lag(c.at, 1, :'begun') OVER (ORDER BY c.at)) * 1000 AS ms
			FROM (SELECT DISTINCT pg_xact_commit_timestamp(x::text::xid) AS at FROM generate_series(:'xid'::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1) AS x) AS c)
		SELECT :'seconds', :'cpu', :'wal', percentile_disc(0.99) WITHIN GROUP (ORDER BY ms), max(ms) FROM gap;
	EOF
	test "$1" != one || let_snapshot_go
	test "$(sql -c 'SELECT count(*) FROM parent')" -eq 0 || sweep_die "$2 has left rows of $1"
}

create_job()
{
	sql -c "SELECT sweep.create_retention('public.parent', 'at', '1 day', name => 'r', schedule => NULL, replace => true)" >/dev/null
}

sql -c 'CREATE EXTENSION pg_sweep'
sql <<'EOF'
CREATE FUNCTION cpu() RETURNS numeric AS $$ SELECT (f[14]::int + f[15]::int) / 100.0 FROM string_to_array(pg_read_file('/proc/self/stat'), ' ') AS f $$ LANGUAGE sql;

CREATE PROCEDURE by_places() LANGUAGE plpgsql AS $$
DECLARE
	one int;
	places tid[];
BEGIN
	FOR one IN SELECT id FROM parent ORDER BY at, id LOOP
		places := ARRAY(SELECT ctid FROM b WHERE parent_id = one);
		FOR n IN 1 .. cardinality(places) BY 1000 LOOP
			DELETE FROM b WHERE ctid = ANY (places[n : n + 999]) AND parent_id = one;
			COMMIT;
		END LOOP;
		DELETE FROM parent WHERE id = one;
		COMMIT;
	END LOOP;
END $$;

-- The rows of the first table, which refer to those of the next one, and these to old parents.
CREATE PROCEDURE by_level(VARIADIC tables text[]) LANGUAGE plpgsql AS $$
DECLARE
	condition text := format('at < %L', now() - interval '1 day');
	name text := 'parent';
	places tid[];
BEGIN
	FOR n IN REVERSE cardinality(tables) .. 1 LOOP
		condition := format('parent_id IN (SELECT id FROM %I WHERE %s)', name, condition);
		name := tables[n];
	END LOOP;
	EXECUTE format('SELECT ARRAY(SELECT ctid FROM %I WHERE %s)', name, condition) INTO places;
	FOR n IN 1 .. cardinality(places) BY 1000 LOOP
		EXECUTE format('DELETE FROM %I WHERE ctid = ANY ($1)', name) USING places[n : n + 999];
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE by_subtrees(condition text, per int) LANGUAGE plpgsql AS $$
DECLARE
	ids int[];
BEGIN
	EXECUTE format('SELECT ARRAY(SELECT id FROM parent WHERE %s ORDER BY at, id)', condition) INTO ids;
	FOR n IN 1 .. cardinality(ids) BY per LOOP
		DELETE FROM parent WHERE id = ANY (ids[n : n + per - 1]);
		COMMIT;
	END LOOP;
END $$;

-- In the chain a row of c is 111 rows, one of b 1,111.
CREATE PROCEDURE by_subtrees_of_chain() LANGUAGE plpgsql AS $$
DECLARE
	one int;
	ids int[];
BEGIN
	FOR one IN SELECT id FROM b ORDER BY parent_id, id LOOP
		ids := ARRAY(SELECT id FROM c WHERE parent_id = one);
		DELETE FROM c WHERE id = ANY (ids[1 : 9]);
		COMMIT;
		DELETE FROM b WHERE id = one;
		COMMIT;
	END LOOP;
	CALL by_subtrees('true', 1000);
END $$;
EOF
: >"$cluster/results"
printf 'shape\tway\ts\tCPU s\tWAL MB\tp99 ms\tlongest\tof the statement\n'
for shape in $shapes
do
	measure "$shape" statement 'DELETE FROM parent'
	case $shape in
		side | spread | one) measure "$shape" places 'CALL by_places()' ;;
	esac
	parents='CALL by_subtrees('"'true'"', 1000)'
	case $shape in
		side | spread | one | two) measure "$shape" levels "CALL by_level('b'); $parents" ;;
		chain) measure chain levels "CALL by_level('e', 'd', 'c', 'b'); CALL by_level('d', 'c', 'b'); CALL by_level('c', 'b'); CALL by_level('b'); $parents" ;;
		diamond) measure diamond levels "CALL by_level('d', 'b'); CALL by_level('b'); CALL by_level('c'); $parents" ;;
	esac
	case $shape in
		two) measure two subtrees "CALL by_subtrees('true', 333)" ;;
		chain) measure chain subtrees 'CALL by_subtrees_of_chain()' ;;
		diamond) measure diamond subtrees "CALL by_subtrees('true', 43)" ;;
		self) measure self subtrees "CALL by_subtrees('parent_id IS NULL', 1)" ;;
	esac
	create_job
	measure "$shape" sweep "CALL sweep.run('r')"
	awk -F '\t' -v shape="$shape" '$1 == shape { if ($2 == "statement") { s = $3; cpu = $4; wal = $5 } else if ($2 != "sweep") { best = least(best, $3); best_cpu = least(best_cpu, $4) }
		printf "%s\t%.2f, CPU %.2f, WAL %.2f%s\n", $0, $3 / s, ratio($4, cpu), ratio($5, wal), $2 == "sweep" ? sprintf("; %.2f of the quickest loop, CPU %.2f", $3 / best, ratio($4, best_cpu)) : "" }
		function least(a, b) { return a == "" || b < a ? b : a }
		function ratio(a, b) { return a / (b > 0 ? b : 1) }' "$cluster/results"
done

# The child whose place is last goes last.
fill one
create_job
sql -c "CALL sweep.run('r')" &
run=$!
sql <<'EOF'
CREATE TABLE waited (ms numeric);
DO $$
DECLARE
	begun timestamptz;
	last int := (SELECT max(id) FROM b);
BEGIN
	LOOP
		begun := clock_timestamp();
		UPDATE b SET pad = 'another text' WHERE id = last;
		EXIT WHEN NOT FOUND;
		INSERT INTO waited VALUES (extract(epoch FROM clock_timestamp() - begun) * 1000);
		COMMIT;
		PERFORM pg_sleep(0.002); -- the sleep is the work
	END LOOP;
END $$;
SELECT format('updates of the child that goes last: %s, the longest %s ms', count(*), round(max(ms), 1)) FROM waited;
EOF
wait "$run"
