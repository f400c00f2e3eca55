#!/bin/bash
# cascades.sh [SHAPE ...]: deletes of rows with which others go by foreign keys.
#
# Each shape is filled anew for each way, in turns: one statement that cascades ("statement"); a loop that deletes the children of a
# parent by their places, 1,000 at a time, and then the parent, one commit each ("loop", where children have none themselves);
# sweep.create_retention ("sweep"). Printed: seconds, WAL in MB, and both divided by those of the statement. SCALE=0.1 takes a tenth
# of the rows.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../bin/lib.sh
. "$(dirname "$0")/../bin/lib.sh"

shapes=${*:-side spread two chain diamond self one}
scale=${SCALE:-1}
cluster=$sweep_top/tmp_cascades

sweep_server_root
sweep_cluster_remove "$cluster"
sweep_cluster_start "$cluster" "shared_buffers = 512MB" "max_wal_size = 16GB" "autovacuum = off" "fsync = off"
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

# measure SHAPE WAY STATEMENT
measure()
{
	fill "$1"
	sql -v statement="$3" <<-'EOF' | awk -v shape="$1" -v way="$2" '{ printf "%s\t%s\t%.2f\t%.0f\n", shape, way, $1, $2 }' >>"$cluster/results"
		SELECT pg_current_wal_lsn() AS wal, clock_timestamp() AS begun \gset
		:statement;
		SELECT extract(epoch FROM clock_timestamp() - :'begun') || ' ' || pg_wal_lsn_diff(pg_current_wal_lsn(), :'wal') / 1048576;
	EOF
	test "$(sql -c 'SELECT count(*) FROM parent')" -eq 0 || sweep_die "$2 has left rows of $1"
}

sql -c 'CREATE EXTENSION pg_sweep'
sql <<'EOF'
CREATE PROCEDURE by_loop() LANGUAGE plpgsql AS $$
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
EOF
: >"$cluster/results"
printf 'shape\tway\ts\tWAL MB\tof the statement\n'
for shape in $shapes
do
	measure "$shape" statement 'DELETE FROM parent'
	case $shape in
		side | spread | one) measure "$shape" loop 'CALL by_loop()' ;;
	esac
	sql -c "SELECT sweep.create_retention('public.parent', 'at', '1 day', name => 'r', schedule => NULL, replace => true)" >/dev/null
	measure "$shape" sweep "CALL sweep.run('r')"
	awk -F '\t' -v shape="$shape" '$1 == shape { if ($2 == "statement") { s = $3; wal = $4 }
		printf "%s\t%s\t%s\t%s\t%.2f, WAL %.2f\n", $1, $2, $3, $4, $3 / s, $4 / (wal > 0 ? wal : 1) }' "$cluster/results"
done
