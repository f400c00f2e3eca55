#!/bin/bash
# parallel.sh [MAKER ...]: jobs that are made with parallel => n, beside loops in psql over halves of the key.
#
# MAKER is delete, backfill or batched. Each way has a table of ROWS rows (2,000,000), filled anew, in turns, ROUNDS times (3): one and two
# loops in psql that do 1,000 keys at a time with a commit each, and the job with parallel 1, 2 and 8 and pause => NULL. Printed: the
# median of the seconds of each, the speed-up of two over one, and what the must of two workers comes to: the speed-up of two
# workers, divided by that of two loops; at least 0.9. And eight workers, divided by one; at most 1.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../bin/lib.sh
. "$(dirname "$0")/../bin/lib.sh"

makers=${*:-delete backfill batched}
rows=${ROWS:-2000000}
rounds=${ROUNDS:-3}
cluster=$sweep_top/tmp_parallel

sweep_server_root
sweep_cluster_remove "$cluster"
sweep_cluster_start "$cluster" "shared_buffers = 512MB" "max_wal_size = 16GB" "autovacuum = off" "max_worker_processes = 24" "pg_sweep.max_running_jobs = 12"
trap 'sweep_cluster_stop "$cluster" immediate' EXIT
sweep_cluster_use "$cluster"

sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 "$@"
}

fill()
{
	sql <<-EOF
		SET client_min_messages = warning;
		DROP TABLE IF EXISTS line;
		CREATE TABLE line (id int PRIMARY KEY, price int NOT NULL, total int, pad text NOT NULL);
		INSERT INTO line SELECT n, n % 100, NULL, 'some text of a row that is as long as most are' FROM generate_series(1, $rows) AS n;
		VACUUM (ANALYZE) line;
		CHECKPOINT;
	EOF
}

# What a loop does with the rows behind :last.
loop_statement()
{
	case $1 in
		delete) echo 'DELETE FROM line WHERE id > last AND id <= last + 1000' ;;
		backfill) echo 'UPDATE line SET total = price * 2 WHERE id > last AND id <= last + 1000 AND total IS NULL' ;;
		batched) echo 'UPDATE line SET price = price + 1 WHERE id > last AND id <= last + 1000' ;;
		*) sweep_die "unknown maker $1" ;;
	esac
}

job()
{
	case $1 in
		delete) echo "SELECT run_id FROM sweep.delete('line', 'id > 0', name => 'j', keep_job => true, pause => NULL, parallel => $2)" ;;
		backfill) echo "SELECT sweep.create_backfill('line', 'total = price * 2', 'total IS NULL', name => 'j', pause => NULL, parallel => $2)" ;;
		batched) echo "SELECT sweep.batched('UPDATE line SET price = price + 1', name => 'j', keep_job => true, pause => NULL, parallel => $2)" ;;
	esac
}

is_done()
{
	case $1 in
		delete) echo 'SELECT count(*) = 0 FROM line' ;;
		backfill) echo 'SELECT bool_and(total = price * 2) FROM line' ;;
		batched) echo 'SELECT bool_and(price = 1 + id % 100) FROM line' ;;
	esac
}

# measure MAKER WAY N
measure()
{
	local begun run children=()

	fill
	begun=$(date +%s.%N)
	if test "$2" = loops
	then
		for n in $(seq 1 "$3")
		do
			sql -c "CALL by_loop(\$\$$(loop_statement "$1")\$\$, $rows / $3 * ($n - 1), $rows / $3 * $n)" &
			children+=($!)
		done
		wait "${children[@]}"
	else
		sql -c "$(job "$1" "$3")" >/dev/null
		run=$(sql -c "SELECT min(run_id) FROM sweep.runs WHERE job = 'j'")
		sql -c "CALL sweep.wait($run, '1 h')"
	fi
	echo "$1 $2 $3 $(date +%s.%N) $begun" | awk '{ printf "%s\t%s\t%s\t%.2f\n", $1, $2, $3, $4 - $5 }' >>"$cluster/results"
	test "$(sql -c "$(is_done "$1")")" = t || sweep_die "$1 by $3 $2 has not done all rows"
	if test "$2" = workers
	then
		sql -c "SELECT sweep.drop_job('j')" -c "DELETE FROM sweep.run_history" -c "DELETE FROM sweep.run_live" >/dev/null
	fi
}

sql -c 'CREATE EXTENSION pg_sweep'
sql <<'EOF'
CREATE PROCEDURE by_loop(statement text, after int, upto int) LANGUAGE plpgsql AS $$
BEGIN
	WHILE after < upto LOOP
		EXECUTE replace(statement, 'last', '$1') USING after;
		COMMIT;
		after := after + 1000;
	END LOOP;
END $$;
EOF
: >"$cluster/results"
printf 'maker\tway\t1\t2\t8\tspeed-up of two\n'
for maker in $makers
do
	for _ in $(seq 1 "$rounds")
	do
		measure "$maker" loops 1
		measure "$maker" workers 1
		measure "$maker" loops 2
		measure "$maker" workers 2
		measure "$maker" workers 8
	done
	sort -t "$(printf '\t')" -k 1,1 -k 2,2 -k 3,3n -k 4,4n "$cluster/results" | awk -F '\t' -v maker="$maker" -v rounds="$rounds" '
		$1 == maker { seen[$2 $3]++; if (seen[$2 $3] == int((rounds + 1) / 2)) median[$2 $3] = $4 }
		END {
			loops = median["loops1"] / median["loops2"]
			workers = median["workers1"] / median["workers2"]
			printf "%s\tloops\t%.2f\t%.2f\t\t%.2f\n", maker, median["loops1"], median["loops2"], loops
			printf "%s\tworkers\t%.2f\t%.2f\t%.2f\t%.2f\n", maker, median["workers1"], median["workers2"], median["workers8"], workers
			printf "%s: two workers %.2f of two loops (must be 0.9), eight %.2f of the time of one (must be 1 at most)\n", maker, workers / loops, median["workers8"] / median["workers1"]
		}'
done
