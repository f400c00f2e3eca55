#!/bin/bash
# run.sh [--quick] [--runs N] [case ...]: the measurements of doc/performance.md.
#
# "make bench" runs all cases; CASES="..." and QUICK=yes do there what the
# arguments do here. Each case has its own database on a private server in
# ./tmp_bench. Methods that are compared are measured in turns, so that a slow
# minute of the machine hits all of them, and each begins with the same data:
# restored, in memory, after a CHECKPOINT. Every measurement is one line of
# tmp_bench/results; report.sql makes the tables of it.
#
#	fan_out purge distinct  batches against a procedure and against one statement
#	long                    the same SQL in longer runs, engine against procedure
#	scattered               rows that are due in an order unlike that of the table
#	packed                  the purge of a table without any room in its pages
#	artifacts               one job, divided into shares that run side by side
#	items                   stuck builds, against one statement and against a client
#	stop                    a consumer that stops environments, against one UPDATE
#	fixed_cost              of a batch that does nothing
#	first_batch             time from sweep.start() to it
#	flat                    cost per row: many rows against few, a dead front, an old snapshot
#	retention               that of sweep.create_retention, against a procedure that picks ids and one statement;
#	                        PEER_TTL=<pg_ttl_index--3.0.0.sql> brings that in
#	scheduler               idle with 1,000 jobs, and a job that is due every second
#
# --quick takes small numbers: it shows that everything works, not how fast.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../bin/lib.sh
. "$(dirname "$0")/../bin/lib.sh"

all_cases='fan_out purge distinct long scattered packed items artifacts retention stop fixed_cost first_batch flat scheduler'
cases=${CASES-}
quick=${QUICK-}
runs=
while test $# -gt 0
do
	case $1 in
		--quick) quick=yes ;;
		--runs) runs=$2; shift ;;
		-*) sweep_die "usage: run.sh [--quick] [--runs N] [$all_cases]" ;;
		*) cases="$cases $1" ;;
	esac
	shift
done
if test -n "$quick"
then
	rows=20000 every=10 stuck_every=50 projects=500 few=1000 dead=2000 empty_batches=1000 starts=5 seconds=5 segments=5 runs=${runs:-1}
else
	rows=1000000 every=10 stuck_every=50 projects=10000 few=10000 dead=100000 empty_batches=50000 starts=100 seconds=60 segments=100 runs=${runs:-5}
fi

cluster=$sweep_top/tmp_bench
results=$cluster/results
here=test/bench

# --------------------------------------------------------------- the server
start_server()
{
	local buffers=2GB

	test "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 6 || buffers=512MB
	sweep_cluster_remove "$cluster"
	sweep_cluster_start "$cluster" 'fsync = on' "shared_buffers = $buffers" 'max_wal_size = 8GB' 'min_wal_size = 4GB' \
		'checkpoint_timeout = 30min' 'wal_level = replica' 'autovacuum = off' 'jit = off' 'max_worker_processes = 24' 'pg_sweep.max_running_jobs = 12' \
		"pg_sweep.databases = 'bench_run'"
	trap 'stop_server' EXIT
	sweep_cluster_use "$cluster"
	sweep_cluster_make_wal "$cluster" "$segments"
	: >"$results"
	note server "$(psql_in postgres -c 'SHOW server_version')" 0
}

stop_server()
{
	sweep_cluster_stop "$cluster" immediate
	rm -rf "$cluster/data"
}

psql_in()
{
	psql -XAtq -F ' ' -v ON_ERROR_STOP=1 -d "$@"
}

# note CASE METHOD MS [ROWS]: one measurement
note()
{
	printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-0}" >>"$results"
}

# --------------------------------------------------------------- databases
# make_template NAME FILE [TABLE EVERY LAST [SCATTERED]]: a database to copy from
make_template()
{
	sweep_say "  data of $1"
	psql_in postgres -c "DROP DATABASE IF EXISTS $1" -c "CREATE DATABASE $1" 2>/dev/null
	psql_in "$1" -f "$here/template.sql"
	if test $# -gt 2
	then
		psql_in "$1" -v table="$3" -v every="$4" -v last="$5" -v scattered="${6:-false}" -v rows="$rows" -f "$here/fill.sql"
	fi
	psql_in "$1" -v rows="$rows" -v shape="${shape-}" -f "$here/$2.sql"
}

# make_machines EVERY [SCATTERED]: the template of a purge, a table that has been in use
make_machines()
{
	make_template bench_compare purge ci_runner_machines "$1" "$rows" "${2:-false}"
	psql_in bench_compare -f "$here/heartbeats.sql"
}

drop_database()
{
	psql_in postgres -c "DROP DATABASE IF EXISTS $1 WITH (FORCE)" 2>/dev/null
}

# The database everything is measured in, as a fresh copy.
copy_template()
{
	drop_database bench_run
	psql_in postgres -c "CREATE DATABASE bench_run TEMPLATE $1 STRATEGY file_copy"
	psql_in bench_run -c 'SELECT sweep.resume_all()' >/dev/null
	settle
}

# Everything in memory, nothing to write back, the scheduler at rest.
settle()
{
	psql_in bench_run -c "SELECT pg_prewarm(oid) FROM pg_class WHERE relkind IN ('r', 'i', 't', 'm')" >/dev/null
	until test "$(psql_in postgres -c "SELECT count(*) FROM pg_stat_activity WHERE datname = 'bench_run'
		AND backend_type = 'pg_sweep scheduler' AND state = 'idle'")" -eq 1
	do
		:
	done
	psql_in postgres -c CHECKPOINT
}

expect_effect()
{
	local effect

	effect=$(psql_in bench_run -c 'SELECT bench.effect()')
	test "$effect" -eq "$2" || sweep_die "$1: $effect rows handled instead of $2"
}

# --------------------------------------------------------------- methods
# engine CASE SIZE FLUSH ROWS [MAX_BATCHES]
engine()
{
	local own total

	read -r own total < <(psql_in bench_run -v size="$2" -v flush="$3" -v max_batches="${5:-0}" -f "$here/engine.sql")
	note "$1" "engine $2 $3" "$own" "$4"
	note "$1" "engine $2 $3, from start to end" "$total" "$4"
}

# procedure CASE SIZE FLUSH ROWS
procedure()
{
	local setting=on

	test "$3" = batch || setting=off
	note "$1" "procedure $2 $3" "$(PGOPTIONS="-c synchronous_commit=$setting" psql_in bench_run -c "CALL bench.batches($2)")" "$4"
}

# by_key CASE SIZE ROWS: a loop written by hand, with the plans it should have
by_key()
{
	local options='-c plan_cache_mode=force_generic_plan' way

	for way in seqscan bitmapscan hashjoin mergejoin
	do
		options="$options -c enable_$way=off"
	done
	note "$1" "by key $2 batch" "$(PGOPTIONS=$options psql_in bench_run -c "CALL bench.by_key($2)")" "$3"
}

# by_id CASE SIZE ROWS: a loop that picks ids and deletes by them
by_id()
{
	note "$1" "by id $2 batch" "$(psql_in bench_run -c "CALL bench.by_id($2)")" "$3"
}

# ttl CASE SIZE ROWS: pg_ttl_index, without the process that calls its function
ttl()
{
	note "$1" "pg_ttl_index $2" "$(psql_in bench_run -c "SELECT ttl_create_index('bench.event', 'created_at', 8640000, $2)" -c '\timing on' \
		-c 'SELECT ttl_runner()' | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p')" "$3"
}

# one_statement CASE PLAN ROWS
one_statement()
{
	local options=

	test "$2" = planner || options='-c enable_seqscan=off'
	note "$1" "one statement, $2" "$(PGOPTIONS=$options psql_in bench_run -c 'CALL bench.one_statement()')" "$3"
}

# shares CASE STEP N ROWS
shares()
{
	local step=sweep_gitlab.ci_bulk_delete_expired_job_artifacts ms pages

	test "$2" = lists || step=bench.filter
	read -r ms pages < <(psql_in bench_run -v step="$step" -v shares="$3" -f "$here/shares.sql")
	note "$1" "$2 $3" "$ms" "$4"
	note "pages read for $1" "$2 $3" "$pages" "$4"
}

# items_engine CASE TRANSACTION ROWS
items_engine()
{
	local own total

	psql_in bench_run -c "SELECT sweep.alter_job('bench', '{\"transaction\": \"$2\"}')" >/dev/null
	read -r own total < <(psql_in bench_run -v size=100 -v flush=run -v max_batches=0 -f "$here/engine.sql")
	note "$1" "engine, transaction $2" "$own" "$3"
	note "$1" "engine, transaction $2, from start to end" "$total" "$3"
}

# items_client CASE ROWS: one transaction for each row, over the socket, each waits for the disk
items_client()
{
	note "$1" 'client, a transaction for each' "$(pgbench -n -M prepared -f "$here/items_client.sql" -t "$2" -D n=0 \
		-D every="$stuck_every" -D rows=$(($2 * stuck_every)) bench_run | awk -v rows="$2" '/^tps/ { print rows * 1000 / $3 }')" "$2"
}

# consumer CASE HANDLER PROCESSES SIZE ROWS
consumer()
{
	note "$1" "$2, $3 x $4" "$(psql_in bench_run -c "CALL bench.consume('$2', $3, $4)")" "$5"
}

# --------------------------------------------------------------- cases
short_methods=('one_statement planner' 'engine 100 run' 'procedure 100 batch' 'engine 100 batch' 'procedure 100 run'
	'one_statement index' 'engine 1000 run' 'procedure 1000 batch' 'engine 1000 batch' 'procedure 1000 run')
long_methods=('engine 100 run' 'procedure 100 run' 'engine 100 batch' 'procedure 100 batch')
items_methods=('one_statement planner' 'items_engine row' 'items_client' 'items_engine batch')
scattered_methods=('one_statement planner' 'engine 100 run' 'one_statement index' 'engine 1000 run')
stop_methods=('one_statement planner' 'consumer sweep_gitlab.stop_environment 2 1000' 'consumer bench.stop_one 2 100'
	'consumer sweep_gitlab.stop_environment 2 100' 'consumer sweep_gitlab.stop_environment 1 1000')
packed_methods=("${scattered_methods[@]}" 'procedure 100 batch')

# compare TEST ROWS METHOD ...: in turns, on the template bench_compare; a new copy for each where it cannot be restored
compare()
{
	local test=$1 rows=$2 run restores method words

	shift 2
	copy_template bench_compare
	restores=$(psql_in bench_run -c "SELECT to_regprocedure('bench.restore()') IS NOT NULL")
	for run in $(seq "$runs")
	do
		for method
		do
			sweep_say "  $test, run $run of $runs: $method"
			if test "$restores" = f
			then
				copy_template bench_compare
			else
				psql_in bench_run -c 'CALL bench.restore()' -c 'VACUUM sweep.run_live, sweep.run_history, sweep.queue_message'
				settle
			fi
			read -ra words <<<"$method"
			"${words[0]}" "$test" "${words[@]:1}" "$rows"
			expect_effect "$test" "$rows"
		done
	done
	drop_database bench_compare
}

case_fan_out()
{
	make_template bench_compare fan_out environments "$every" "$rows"
	compare fan_out $((rows / every)) "${short_methods[@]}"
}

case_purge()
{
	make_machines "$every"
	compare purge $((rows / every)) "${short_methods[@]}" 'by_key 100'
}

case_distinct()
{
	make_template bench_compare distinct p_batched_git_ref_updates_deletions "$projects" "$projects"
	compare distinct "$projects" "${short_methods[@]}"
}

case_long()
{
	make_template bench_compare fan_out environments 3 "$rows"
	compare 'long fan_out' $((rows / 3)) "${long_methods[@]}"
	make_machines 3
	compare 'long purge' $((rows / 3)) "${long_methods[@]}" 'by_key 100'
}

case_scattered()
{
	make_template bench_compare fan_out environments "$every" "$rows" true
	compare 'scattered fan_out' $((rows / every)) "${scattered_methods[@]}"
	make_machines "$every" true
	compare 'scattered purge' $((rows / every)) "${scattered_methods[@]}"
}

case_packed()
{
	make_template bench_compare purge ci_runner_machines "$every" "$rows"
	compare 'packed purge' $((rows / every)) "${packed_methods[@]}"
}

case_artifacts()
{
	make_template bench_compare artifacts p_ci_job_artifacts 5 "$rows"
	compare artifacts $((rows / 5)) 'shares lists 1' 'shares lists 5' 'shares lists 10' 'shares filter 5' 'shares filter 10'
}

case_items()
{
	make_template bench_compare items p_ci_builds "$stuck_every" "$rows"
	compare items $((rows / stuck_every)) "${items_methods[@]}"
}

case_stop()
{
	make_template bench_compare stop environments "$every" "$rows"
	compare stop $((rows / every)) "${stop_methods[@]}"
}

case_retention()
{
	local old=$((rows * 5184 / 10000)) shape
	local methods=('one_statement planner' 'engine 1000 run' 'by_id 1000' 'one_statement index' 'engine 100 run')

	shape=plain
	make_template bench_compare retention
	if test -n "${PEER_TTL-}"
	then
		# but for its functions in C, which start and stop its process
		psql -Xq -d bench_compare -f "$PEER_TTL" >/dev/null 2>&1 || true
		methods+=('ttl 1000')
	fi
	compare retention "$old" "${methods[@]}"
	methods=('one_statement planner' 'engine 1000 run' 'one_statement index')
	for shape in by_age by_account cascade
	do
		make_template bench_compare retention
		compare "retention $shape" "$old" "${methods[@]}"
	done
	shape=referenced
	make_template bench_compare retention
	compare "retention $shape" $((old - old / 50)) "${methods[@]}"
}

case_fixed_cost()
{
	local run

	make_template bench_fixed_cost fixed_cost
	copy_template bench_fixed_cost
	for run in $(seq "$runs")
	do
		sweep_say "  run $run of $runs"
		settle
		engine 'nothing' 1 run "$empty_batches" "$empty_batches"
		psql_in bench_run -c "SELECT sweep.alter_job('bench', '{\"step\": \"bench.one_row\"}')" >/dev/null
		engine 'one row' 1 run "$empty_batches" "$empty_batches"
		engine 'one row' 1 batch "$empty_batches" "$empty_batches"
		note 'one row' 'procedure 1 run' "$(PGOPTIONS='-c synchronous_commit=off' psql_in bench_run \
			-c "CALL bench.rows_one_by_one($empty_batches)")" "$empty_batches"
		note 'one row' 'procedure 1 batch' "$(psql_in bench_run -c "CALL bench.rows_one_by_one($empty_batches)")" "$empty_batches"
		psql_in bench_run -c "SELECT sweep.alter_job('bench', '{\"step\": \"bench.nothing\"}')" >/dev/null
	done
	drop_database bench_fixed_cost
}

case_first_batch()
{
	local ms

	make_template bench_first_batch first_batch
	copy_template bench_first_batch
	PGOPTIONS='-c synchronous_commit=off -c client_min_messages=warning' psql_in bench_run -c "CALL bench.starts($starts)"
	psql_in bench_run -c 'SELECT extract(epoch FROM f.at - s.at) * 1000 FROM bench.first f JOIN bench.started s USING (run_id)' |
		while read -r ms
		do
			note first_batch start "$ms"
		done
	drop_database bench_first_batch
}

# A session with an old REPEATABLE READ snapshot, until release_snapshot.
hold_snapshot()
{
	PGAPPNAME=bench_snapshot psql_in bench_run -c 'BEGIN ISOLATION LEVEL REPEATABLE READ' -c 'SELECT count(*) FROM pg_class' \
		-c 'SELECT pg_sleep(3600) -- the sleep is the work: a report that takes an hour' >/dev/null 2>&1 &
	until test "$(psql_in postgres -c "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bench_snapshot'
		AND wait_event = 'PgSleep'")" -eq 1
	do
		:
	done
}

release_snapshot()
{
	psql_in postgres -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bench_snapshot'" >/dev/null
	wait
}

# flat CASE TABLE: few due rows, many of them, many behind a dead front, the same with an old snapshot
flat()
{
	local run many=$rows dead_rows=$dead

	make_template bench_few "$1" "$2" 1 "$few"
	make_template bench_many "$1" "$2" 1 "$many"
	if test "$1" = distinct
	then
		dead_rows=$((dead / 10))
	fi
	for run in $(seq "$runs")
	do
		sweep_say "  $1, run $run of $runs"
		copy_template bench_few
		engine "flat $1, few" 100 run "$few"
		expect_effect "$1" "$few"

		copy_template bench_many
		engine "flat $1, many" 100 run "$many"
		expect_effect "$1" "$many"

		copy_template bench_many
		psql_in bench_run -c "CALL bench.kill_front($dead_rows)"
		settle
		engine "flat $1, many behind dead rows" 100 run $((many - dead_rows))

		copy_template bench_many
		hold_snapshot
		psql_in bench_run -c "CALL bench.kill_front($dead_rows)"
		settle
		engine "flat $1, many behind dead rows, old snapshot" 100 run $((many - dead_rows))
		release_snapshot
	done
	drop_database bench_few
	drop_database bench_many
}

case_flat()
{
	flat fan_out environments
	flat purge ci_runner_machines
	flat distinct p_batched_git_ref_updates_deletions
}

# CPU time of a process in ms; schedstat counts nanoseconds, stat only ticks
cpu_ms()
{
	if test -r "/proc/$1/schedstat"
	then
		awk '{ print $1 / 1000000 }' "/proc/$1/schedstat"
	else
		awk -v ticks="$(getconf CLK_TCK)" '{ print ($14 + $15) * 1000 / ticks }' "/proc/$1/stat"
	fi
}

wake_ups()
{
	awk '/^voluntary_ctxt_switches/ { print $2 }' "/proc/$1/status"
}

case_scheduler()
{
	local process pid before lateness
	local -A cpu wakes pids

	make_template bench_scheduler idle
	copy_template bench_scheduler
	for process in scheduler launcher
	do
		pid=$(psql_in postgres -c "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_sweep $process'")
		pids[$process]=$pid cpu[$process]=$(cpu_ms "$pid") wakes[$process]=$(wake_ups "$pid")
	done
	before=$(psql_in postgres -c "SELECT xact_commit FROM pg_stat_database WHERE datname = 'bench_run'")
	sweep_say "  idle for $seconds seconds"
	sleep "$seconds" # the sleep is the work: the scheduler has nothing to do
	for process in scheduler launcher
	do
		pid=${pids[$process]}
		note "idle $process" 'CPU ms' "$(echo "$(cpu_ms "$pid") ${cpu[$process]}" | awk '{ print $1 - $2 }')" "$seconds"
		note "idle $process" 'wake-ups' $(($(wake_ups "$pid") - wakes[$process])) "$seconds"
	done
	note 'idle scheduler' transactions "$(psql_in postgres \
		-c "SELECT xact_commit - $before FROM pg_stat_database WHERE datname = 'bench_run'")" "$seconds"

	sweep_say "  a job that is due every second, for $seconds seconds"
	psql_in bench_run -c "SELECT sweep.create_job('each_second', step => 'bench.nothing', schedule => '* * * * * *')" >/dev/null
	until test "$(psql_in bench_run -c "SELECT count(*) FROM sweep.runs WHERE job = 'each_second' AND finished_at IS NOT NULL")" -ge "$seconds"
	do
		sleep 1 # the sleep is the work: runs start meanwhile
	done
	psql_in bench_run -c "SELECT extract(epoch FROM started_at - due_at) * 1000 FROM sweep.runs
		WHERE job = 'each_second' AND started_at IS NOT NULL ORDER BY run_id LIMIT $seconds" |
		while read -r lateness
		do
			note 'each second' lateness "$lateness"
		done
	drop_database bench_scheduler
}

start_server
for name in ${cases:-$all_cases}
do
	case " $all_cases " in
		*" $name "*) ;;
		*) sweep_die "there is no case $name; there are $all_cases" ;;
	esac
	sweep_say "$name"
	"case_$name"
	drop_database bench_run
done
psql -Xq -v ON_ERROR_STOP=1 -v results="$results" -f "$here/report.sql"
