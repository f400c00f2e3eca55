#!/bin/bash
# databases.sh [CASE ...]: many databases, each with jobs of its own.
#
# turns: 7 and 40 databases, each with a job that is due every 10 seconds, at max_worker_processes = WORKERS (8 16 64), for SECONDS_EACH (120).
# long: the same of 7 at 8, beside seven runs of 10 minutes whose jobs have taken longer than a minute before.
# one: three databases that share one process, all that is left beside the launcher.
# many: DATABASES (300) of which none, and then 10, have such a job: processes of pg_sweep, and what they use of a core.
# cold: sweep.start in a database without a scheduler until the run has begun, ROUNDS times (30), and the scheduled moments of a database that has
# a scheduler and of one that has none: p50 and least, in ms.
# Printed: each figure, with what it must be. On a busy machine the least of the times is the nearest to the truth.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../bin/lib.sh
. "$(dirname "$0")/../bin/lib.sh"

cases=${*:-turns long one many cold}
seconds=${SECONDS_EACH:-120}
count=${DATABASES:-300}
read -ra sizes <<<"${WORKERS:-8 16 64}"
rounds=${ROUNDS:-30}
cluster=$sweep_top/tmp_databases
clock_ticks=$(getconf CLK_TCK)

sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 "$@"
}

# restart WORKERS [LINE ...]
restart()
{
	local workers=$1

	shift
	sweep_cluster_stop "$cluster"
	sweep_cluster_start "$cluster" "max_worker_processes = $workers" "autovacuum = off" "max_connections = 200" "$@"
}

# in_each FROM TO SQL: executed in each of these databases; what it returns
in_each()
{
	for n in $(seq "$1" "$2")
	do
		printf '\\c d%s\n%s;\n' "$n" "$3"
	done | sql
}

pause_until()
{
	until test "$(date +%s)" -ge "$1"
	do
		read -rt 0.5 <> <(:) || :
	done
}

# observe N JOB: what the runs of a job in N databases did in the next seconds: runs, their delays, the longest time without one
observe()
{
	local begin end

	begin=$(($(date +%s) / 10 * 10 + 15))
	end=$((begin + seconds))
	pause_until $((end + 8))
	in_each 1 "$1" "SELECT current_database(), extract(epoch FROM due_at), extract(epoch FROM started_at) FROM sweep.runs WHERE job = '$2' AND trigger IN ('schedule', 'catch_up')
		AND started_at IS NOT NULL AND status <> 'skipped' AND due_at >= to_timestamp($begin) AND due_at < to_timestamp($end) ORDER BY due_at" |
		awk -F '|' -v begin="$begin" -v end="$end" -v n="$1" '
			function gap(from, to) { if (to - from > longest) longest = to - from }
			{ print $3 - $2 >"/dev/stderr"; if (!($1 in last)) { seen++; last[$1] = begin }; gap(last[$1], $3); last[$1] = $3; runs++ }
			END { for (d in last) gap(last[d], end); printf "%d of %d runs in %d databases, longest time without one %.1f s", runs, n * (end - begin) / 10, seen, longest }' 2>"$cluster/delays"
	sort -n "$cluster/delays" | awk '{ delay[NR] = $1 } END { if (NR) printf ", delay p50 %.2f max %.2f s", delay[int((NR + 1) / 2)], delay[NR] }'
}

# Ticks of a core that the processes of pg_sweep have used, those that have ended as well: the postmaster has waited for them.
ticks_of_ours()
{
	sql -c "SELECT pid FROM pg_stat_activity WHERE backend_type ~ '^pg_sweep'" | while read -r pid
	do
		sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | awk '{ print $12 + $13 }' || :
	done | awk '{ sum += $1 } END { print sum + 0 }'
	sed 's/.*) //' "/proc/$(head -n 1 "$cluster/data/postmaster.pid")/stat" | awk '{ print $14 + $15 }'
}

# load_of N: runs in N databases at rest: processes at most, share of a core
load_of()
{
	local begin end most=0 now before after

	begin=$(date +%s)
	end=$((begin + seconds))
	# the connection that asks stays, so that the postmaster waits for no session
	coproc LOOK { psql -XAtq -d postgres; }
	before=$(ticks_of_ours | awk '{ sum += $1 } END { print sum }')
	while test "$(date +%s)" -lt "$end"
	do
		echo "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_sweep';" >&"${LOOK[1]}"
		read -r now <&"${LOOK[0]}"
		test "$now" -le "$most" || most=$now
		read -rt 0.1 <> <(:) || :
	done
	after=$(ticks_of_ours | awk '{ sum += $1 } END { print sum }')
	echo '\q' >&"${LOOK[1]}"
	wait "$LOOK_PID" || :
	awk -v ticks="$((after - before))" -v hz="$clock_ticks" -v s="$seconds" -v most="$most" -v n="$1" -v all="$count" \
		'BEGIN { printf "many\t%d of %d databases with a job\t%d processes at most, %.3f %% of a core\n", n, all, most, 100 * ticks / hz / s }'
}

turns()
{
	for databases in 7 40
	do
		for workers in "${sizes[@]}"
		do
			restart "$workers"
			in_each 1 "$databases" "SELECT sweep.resume('short')" >/dev/null
			printf 'turns\t%s databases, %s workers\t%s\t(must be: 7 within 5 s, 40 once a minute)\n' "$databases" "$workers" "$(observe "$databases" short)"
			in_each 1 "$databases" "SELECT sweep.pause('short')" >/dev/null
		done
	done
}

# start_long SECONDS
start_long()
{
	in_each 1 7 "SELECT sweep.alter_job('long', '{\"sql\": \"SELECT pg_sleep($1)\"}'), sweep.start('long')" >/dev/null # the sleep is the work
}

long()
{
	restart 64
	start_long 61
	until test "$(in_each 1 7 "SELECT count(*) FROM sweep.runs WHERE job = 'long' AND finished_at IS NULL" | sort -u)" = 0
	do
		read -rt 1 <> <(:) || :
	done
	restart 8
	start_long 600
	in_each 1 7 "SELECT sweep.resume('short')" >/dev/null
	printf 'long\t7 databases, 8 workers, %s\t%s\t(must be 5 s at most)\n' "seven runs of 10 minutes" "$(observe 7 short)"
	printf 'long\t%s\t%s\n' 'runs of 10 minutes in progress' "$(in_each 1 7 "SELECT count(*) FROM sweep.runs WHERE job = 'long' AND status = 'running'" | awk '{ sum += $1 } END { print sum }')"
	in_each 1 7 "SELECT sweep.pause('short'), sweep.cancel(run_id) FROM sweep.runs WHERE job = 'long' AND finished_at IS NULL" >/dev/null
}

one()
{
	restart 2 "max_logical_replication_workers = 0"
	# all 40 databases are looked into first
	pause_until $(($(date +%s) + 30))
	in_each 1 3 "SELECT sweep.resume('short')" >/dev/null
	printf 'one\t3 databases, one process beside the launcher\t%s\t(must be all of them in turns)\n' "$(observe 3 short)"
	in_each 1 3 "SELECT sweep.pause('short')" >/dev/null
}

many()
{
	restart 64
	sweep_say "creating $count databases"
	for n in $(seq 41 "$count")
	do
		echo "CREATE DATABASE d$n TEMPLATE pattern STRATEGY wal_log;"
	done | sql
	# each is looked into once, at most a minute after it was created
	pause_until $(($(date +%s) + 75))
	load_of 0
	in_each 41 50 "SELECT sweep.resume_all(), sweep.resume('short')" >/dev/null
	pause_until $(($(date +%s) + 15))
	load_of 10
	in_each 41 50 "SELECT sweep.pause('short')" >/dev/null
}

middle()
{
	sort -n | awk '{ at[NR] = $1 } END { printf "p50 %.1f, least %.1f ms (%d times)", at[int((NR + 1) / 2)], at[1], NR }'
}

# The clock is read before the commit, and the database is left alone until its scheduler has left.
cold()
{
	restart 16
	for n in $(seq "$rounds")
	do
		sql -d d1 -c "SELECT sweep.start('look')" >/dev/null
		until test "$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_sweep (sch|run)'")" -eq 0 &&
			test "$(sql -d d1 -c "SELECT count(*) FROM sweep.runs WHERE finished_at IS NULL")" -eq 0
		do
			read -rt 0.1 <> <(:) || :
		done
	done
	sql -d d1 -c "SELECT 1000 * extract(epoch FROM started_at - due_at) FROM sweep.runs WHERE job = 'look'" >"$cluster/starts"
	printf 'cold\tsweep.start without a scheduler\t%s\t(must be 25 ms)\n' "$(middle <"$cluster/starts")"
	# d2 has a scheduler, because a run of it is due within a minute of each moment; d3 to d12 have none: their jobs are due every two
	# minutes, one after the other and between the moments of d2.
	in_each 2 2 "SELECT sweep.resume('short')" >/dev/null
	for n in $(seq 3 12)
	do
		in_each "$n" "$n" "SELECT sweep.alter_job('look', '{\"schedule\": \"$(((n - 3) % 6 * 10 + 5)) $(((n - 3) / 6))-59/2 * * * *\"}'), sweep.resume('look')" >/dev/null
	done
	pause_until $(($(date +%s) + seconds * 2))
	in_each 2 12 "SELECT 1000 * extract(epoch FROM started_at - due_at) FROM sweep.runs WHERE job = 'short' AND trigger = 'schedule' AND started_at IS NOT NULL OFFSET 1" >"$cluster/warm"
	in_each 3 12 "SELECT 1000 * extract(epoch FROM started_at - due_at) FROM sweep.runs WHERE job = 'look' AND trigger = 'schedule' AND started_at IS NOT NULL" >"$cluster/ahead"
	printf 'cold\tscheduled, with a scheduler\t%s\ncold\tscheduled, without\t%s\t(must be the same)\n' "$(middle <"$cluster/warm")" "$(middle <"$cluster/ahead")"
}

sweep_server_root
sweep_cluster_remove "$cluster"
sweep_cluster_start "$cluster" "max_worker_processes = 64" "autovacuum = off"
trap 'sweep_cluster_stop "$cluster" immediate' EXIT
sweep_cluster_use "$cluster"
sql -c 'CREATE DATABASE pattern'
sql -d pattern -c 'CREATE EXTENSION pg_sweep' \
	-c "SELECT sweep.create_job('short', sql => 'SELECT 1', schedule => '10 seconds'), sweep.create_job('long', sql => 'SELECT 1'), sweep.create_job('look', sql => 'SELECT 1')" >/dev/null
sql -d pattern -c "SELECT sweep.pause('short')" >/dev/null
until test "$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE datname = 'pattern'")" -eq 0
do
	read -rt 0.1 <> <(:) || :
done
for n in $(seq 40)
do
	echo "CREATE DATABASE d$n TEMPLATE pattern STRATEGY wal_log;"
done | sql
in_each 1 40 "SELECT sweep.resume_all()" >/dev/null
for case in $cases
do
	"$case"
done
