#!/bin/bash
# queues.sh [--quick] [--runs N] [--peers "X ..."] [case ...]: queues, side by side.
#
# "make bench-queues" runs all cases; CASES, PEERS, RUNS and QUICK=yes do there
# what the arguments do here, and PEER_PGMQ=<its SQL file> brings pgmq in. A peer
# that cannot be had is left out, and the report says so.
#
# Every measurement has a fresh database of a private server in
# ./tmp_bench_queues, made from a template, after a CHECKPOINT; peers are measured
# in turns. The load comes from queues/load.c, which also checks that no message is
# lost or doubled: a run in which one was is an error, not a number. Measurements
# are lines of tmp_bench_queues/results; queues/report.sql makes the tables of them.
#
#	enqueue     1 and 100 messages per transaction
#	drain       claim and ack of a backlog, by batch and number of consumers
#	together    the same with claim and ack in one transaction
#	steady      2,000 messages/s for a minute: nothing special, with an old snapshot
#	            held, with a session idle in a transaction that has written elsewhere
#	notify      producers with notification against without
#	depth       an almost empty queue against 1,000,000 waiting and 100,000 delayed
#	consumers   64 against 8
#	stress      slow, undone, nested and prepared producers, consumers that give
#	            back and forget: nothing lost
#
# --quick takes small numbers: it shows that everything works, not how fast.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../bin/lib.sh
. "$(dirname "$0")/../bin/lib.sh"

here=test/bench/queues
cluster=$sweep_top/tmp_bench_queues
peers=$cluster/peers
results=$cluster/results
create_options=
# shellcheck source-path=SCRIPTDIR source=queues/peers.sh
. "$here/peers.sh"

all_cases='enqueue drain together steady notify depth consumers stress'
cases=${CASES-}
quick=${QUICK-}
runs=${RUNS-}
wanted_peers=${PEERS:-$all_peers}
while test $# -gt 0
do
	case $1 in
		--quick) quick=yes ;;
		--runs) runs=$2; shift ;;
		--peers) wanted_peers=$2; shift ;;
		-*) sweep_die "usage: queues.sh [--quick] [--runs N] [--peers \"$all_peers\"] [$all_cases]" ;;
		*) cases="$cases $1" ;;
	esac
	shift
done
# messages to enqueue one by one and in hundreds; to drain by 1, 10, 100
if test -n "$quick"
then
	ones=4000 hundreds=40000 backlog=([1]=2000 [10]=10000 [100]=40000) waiting=250000 delayed=5000
	seconds=10 stressed=3000 limit=3 segments=5 runs=${runs:-1}
else
	ones=40000 hundreds=400000 backlog=([1]=10000 [10]=50000 [100]=200000) waiting=1000000 delayed=100000
	seconds=60 stressed=20000 limit=5 segments=40 runs=${runs:-5}
fi

# --------------------------------------------------------------- the server
build_load()
{
	libraries=$("$PG_CONFIG" --libdir)
	cc -O2 -Wall -Wextra -std=gnu11 -I"$("$PG_CONFIG" --includedir)" -L"$libraries" -Wl,-rpath,"$libraries" \
		-o "$cluster/load" "$here/load.c" "$here/books.c" -lpq
}

start_server()
{
	local buffers=2GB

	test "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 6 || buffers=512MB
	sweep_cluster_stop "$cluster" immediate
	rm -rf "$cluster/data" "$results" "$cluster"/*.in
	sweep_make_directory "$cluster"
	mkdir -p "$peers"
	sweep_cluster_start "$cluster" 'fsync = on' "shared_buffers = $buffers" 'max_wal_size = 8GB' 'min_wal_size = 4GB' \
		'checkpoint_timeout = 30min' 'wal_level = replica' 'jit = off' 'max_worker_processes = 24' 'max_connections = 150' \
		'max_prepared_transactions = 100' 'log_autovacuum_min_duration = -1' "pg_sweep.databases = 'bench_run'"
	trap 'stop_server' EXIT
	sweep_cluster_use "$cluster"
	sweep_cluster_make_wal "$cluster" "$segments"
	: >"$results"
}

stop_server()
{
	local job

	for job in $(jobs -p)
	do
		kill "$job" 2>/dev/null || true
	done
	sweep_cluster_stop "$cluster" immediate
	rm -rf "$cluster/data"
}

psql_in()
{
	PGOPTIONS='-c client_min_messages=warning' psql -XAtq -v ON_ERROR_STOP=1 -d "$@" >/dev/null
}

value_in()
{
	psql -XAtq -v ON_ERROR_STOP=1 -d "$@"
}

# note CASE PEER VARIANT NAME VALUE
note()
{
	printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$results"
}

# --------------------------------------------------------------- databases and peers
find_peers()
{
	local peer why

	found_peers=
	for peer in $wanted_peers
	do
		why=
		if "install_$peer" </dev/null
		then
			found_peers="$found_peers $peer"
			make_template "bench_$peer" "$peer"
		else
			sweep_say "  without $peer: $why"
			note missing "$peer" '' "$why" 0
		fi
	done
}

make_template()
{
	psql_in postgres -c "DROP DATABASE IF EXISTS $1" -c "CREATE DATABASE $1"
	"template_$2" "$1"
}

# A fresh copy of a template, everything written back.
fresh()
{
	psql_in postgres -c 'DROP DATABASE IF EXISTS bench_run WITH (FORCE)' -c "CREATE DATABASE bench_run TEMPLATE $1"
	psql_in postgres -c CHECKPOINT
	export PGDATABASE=bench_run
}

# those of the found peers that are among the arguments
among()
{
	local peer

	for peer in $found_peers
	do
		case " $* " in
			*" $peer "*) echo "$peer" ;;
		esac
	done
}

# load CASE PEER VARIANT ARGS ...: runs it and keeps what it says
load()
{
	local test=$1 peer=$2 variant=$3 send send_many claim='' ack=''

	shift 3
	"statements_$peer"
	set -- --claim "$claim" --ack "$ack" --preload-send "$send_many" "$@"
	case " $* " in
		*' --send-batch '*) set -- --send "$send_many" "$@" ;;
		*) set -- --send "$send" "$@" ;;
	esac
	if ! "$cluster/load" "$@" >"$cluster/out"
	then
		note "$test" "$peer" "$variant" wrong 1
		sweep_say "  $test $peer $variant: $(grep -E '^(lost|rolled|foreign|unack|dupl|after|fail)' "$cluster/out" | tr '\n\t' ' =')"
	fi
	keep "$test" "$peer" "$variant"
}

keep()
{
	local name value

	while IFS=$'\t' read -r name value
	do
		note "$1" "$2" "$3" "$name" "$value"
	done <"$cluster/out"
}

# --------------------------------------------------------------- cases
case_enqueue()
{
	local run peer

	for run in $(seq "$runs")
	do
		for peer in $found_peers
		do
			sweep_say "  run $run of $runs: $peer"
			fresh "bench_$peer"
			load enqueue "$peer" 1 --producers 4 --messages "$ones"
			expect_rows "$peer" "$ones"
			fresh "bench_$peer"
			load enqueue "$peer" 100 --producers 4 --send-batch 100 --messages "$hundreds"
			expect_rows "$peer" "$hundreds"
		done
	done
}

# what is in the queue after an enqueue: nothing lost, nothing doubled
expect_rows()
{
	local table found

	case $1 in
		pg_sweep) table='SELECT payload FROM sweep.queue_message' ;;
		pgmq) table='SELECT message FROM pgmq.q_bench' ;;
		pgq) table="SELECT ev_data::jsonb FROM pgq.event_$(value_in bench_run -c 'SELECT queue_id FROM pgq.queue')" ;;
		graphile) table='SELECT payload::jsonb FROM graphile_worker._private_jobs' ;;
		pgboss) table='SELECT data FROM pgboss.job' ;;
	esac
	found=$(value_in bench_run -c "SELECT count(*) || ' ' || count(DISTINCT payload -> 'n') FROM ($table) AS q (payload)")
	test "$found" = "$2 $2" || { note enqueue "$1" '' wrong 1; sweep_say "  $1: $found messages instead of $2"; }
}

# drain CASE PEER CONSUMERS BATCH [ARGS ...]
drain()
{
	local test=$1 peer=$2 consumers=$3 batch=$4 variant="$3 x $4" times=${times:-1}

	shift 4
	fresh "bench_$peer"
	case $peer in
		graphile | pgboss)
			if ! NODE_PATH=$peers/node_modules node "$here/$peer.js" "${backlog[$batch]}" "$consumers" "$batch" "$limit" >"$cluster/out"
			then
				note "$test" "$peer" "$variant" wrong 1
				return
			fi
			keep "$test" "$peer" "$variant" ;;
		pgq)
			# every consumer of PgQ gets all events: there is no sharing to measure
			test "$consumers" -eq 1 || return 0
			load "$test" "$peer" "$variant" --preload $((${backlog[$batch]} / 2)) --preload-batch "$batch" \
				--tick "SELECT pgq.force_tick('bench'), pgq.ticker('bench')" --consumers 1 --batch "$batch" "$@" ;;
		*)
			load "$test" "$peer" "$variant" --preload $((${backlog[$batch]} * times)) --consumers "$consumers" --batch "$batch" "$@" ;;
	esac
}

case_drain()
{
	local run peer consumers batch

	for run in $(seq "$runs")
	do
		for batch in 1 10 100
		do
			for consumers in 1 4 16
			do
				for peer in $found_peers
				do
					sweep_say "  run $run of $runs: $peer, $consumers consumers, batch $batch"
					drain drain "$peer" "$consumers" "$batch"
				done
			done
		done
	done
}

case_together()
{
	local run peer consumers batch

	for run in $(seq "$runs")
	do
		for batch in 1 10 100
		do
			for consumers in 1 4 16
			do
				for peer in $(among pg_sweep pgmq pgq)
				do
					sweep_say "  run $run of $runs: $peer, $consumers consumers, batch $batch, one transaction"
					drain together "$peer" "$consumers" "$batch" --one-transaction 1
				done
			done
		done
	done
}

# A session that others wait for: hold NAME STATEMENT ..., until let_go NAME.
hold()
{
	local name=$1

	shift
	mkfifo "$cluster/$name.in"
	PGAPPNAME=$name psql -Xq -d bench_run <"$cluster/$name.in" >/dev/null 2>&1 &
	exec 8>"$cluster/$name.in"
	printf '%s;\n' "$@" >&8
	until test "$(value_in postgres -c "SELECT count(*) FROM pg_stat_activity WHERE application_name = '$name' AND state = 'idle in transaction'")" -eq 1
	do
		:
	done
}

let_go()
{
	exec 8>&-
	rm -f "$cluster/$1.in"
}

steady()
{
	local peer=$1 variant=$2

	shift 2
	load steady "$peer" "$variant" --producers 4 --rate 2000 --batch 10 --seconds "$seconds" --slice 5 --limit $((seconds * 3 / 2)) "$@"
}

case_steady()
{
	local peer variant

	for variant in plain snapshot writer
	do
		for peer in $(among pg_sweep pgmq pgq)
		do
			sweep_say "  $peer, $variant, $seconds seconds"
			fresh "bench_$peer"
			psql_in bench_run -c 'CREATE TABLE elsewhere (n int)'
			case $variant in
				snapshot) hold bench_holder 'BEGIN ISOLATION LEVEL REPEATABLE READ' 'SELECT count(*) FROM pg_class' ;;
				writer) hold bench_holder 'BEGIN' 'INSERT INTO elsewhere VALUES (1)' ;;
			esac
			if test "$peer" = pgq
			then
				# one consumer, and somebody who ticks
				psql_in bench_run -c "SELECT pgq.set_queue_config('bench', 'ticker_max_lag', '100 ms')"
				echo 'SELECT pgq.ticker() \watch 0.1' | psql -Xq -d bench_run >/dev/null 2>&1 &
				steady "$peer" "$variant" --consumers 1
				kill "$!" 2>/dev/null || true
			else
				steady "$peer" "$variant" --consumers 4
			fi
			test "$variant" = plain || let_go bench_holder
		done
	done
}

case_notify()
{
	local run option

	for option in false true
	do
		create_options="notify => $option"
		make_template "bench_notify_$option" pg_sweep
	done
	create_options=
	for run in $(seq "$runs")
	do
		for option in false true
		do
			sweep_say "  run $run of $runs: notify => $option"
			fresh "bench_notify_$option"
			mkfifo "$cluster/listener.in"
			psql -Xq -d bench_run <"$cluster/listener.in" >/dev/null 2>&1 &
			exec 8>"$cluster/listener.in"
			echo 'LISTEN "sweep.bench";' >&8
			load notify pg_sweep "8 producers, notify $option" --producers 8 --messages "$ones"
			let_go listener
		done
	done
}

# One consumer drains 1,000 batches from the front of a queue of any depth; then so does a session in the server.
case_depth()
{
	local run variant batch label refill

	fresh bench_pg_sweep
	make_template bench_deep pg_sweep
	psql_in bench_deep -v waiting="$waiting" -v delayed="$delayed" -f "$here/deep.sql"
	for run in $(seq "$runs")
	do
		for batch in 1 10 100
		do
			for variant in pg_sweep deep
			do
				sweep_say "  run $run of $runs: $variant, batch $batch"
				fresh "bench_$variant"
				psql_in bench_run -c 'CREATE EXTENSION IF NOT EXISTS pg_prewarm' \
					-c "SELECT pg_prewarm(oid) FROM pg_class WHERE relkind IN ('r', 'i') AND relnamespace = 'sweep'::regnamespace"
				if test "$variant" = pg_sweep
				then
					label="few x $batch" refill=true
					load depth pg_sweep "$label" --preload $((batch * 1000)) --consumers 1 --batch "$batch"
				else
					label="many x $batch" refill=false
					load depth pg_sweep "$label" --first "$waiting" --consumers 1 --batch "$batch" --stop-after $((batch * 1000))
				fi
				note depth pg_sweep "$label" claim_server_us "$(value_in bench_run -v batch="$batch" -v refill=$refill -f "$here/claims.sql")"
			done
		done
	done
	psql_in postgres -c 'DROP DATABASE bench_deep'
}

# What 64 sessions need to get going is not to count: their first calls are made before the clock starts, and
# five times the backlog takes seconds.
case_consumers()
{
	local run consumers batch times=5

	for run in $(seq "$runs")
	do
		for batch in 1 10 100
		do
			for consumers in 8 64
			do
				sweep_say "  run $run of $runs: $consumers consumers, batch $batch"
				drain consumers pg_sweep "$consumers" "$batch" --warm-up 10
			done
		done
	done
}

case_stress()
{
	local run

	for run in $(seq "$runs")
	do
		sweep_say "  run $run of $runs"
		fresh bench_pg_sweep
		load stress pg_sweep 'two transactions' --producers 16 --hold-ms 30 --mixed 1 --messages "$stressed" --consumers 32 --batch 7 \
			--release "SELECT sweep.release(\$2::uuid)"
		fresh bench_pg_sweep
		load stress pg_sweep 'one transaction' --producers 16 --hold-ms 30 --mixed 1 --messages "$stressed" --consumers 32 --batch 7 \
			--one-transaction 1 --release "SELECT sweep.release(\$2::uuid)"
		fresh bench_pg_sweep
		load stress pg_sweep 'forgotten' --producers 8 --hold-ms 5 --messages "$stressed" --consumers 16 --batch 3 --forget 0.02 \
			--claim "SELECT message_id, payload, lease FROM sweep.claim('bench', 3, interval '1 s')"
	done
}

start_server
build_load
note server "$(value_in postgres -c 'SHOW server_version')" "$(nproc) cores" synchronous_commit 1
find_peers
for name in ${cases:-$all_cases}
do
	case " $all_cases " in
		*" $name "*) ;;
		*) sweep_die "there is no case $name; there are $all_cases" ;;
	esac
	sweep_say "$name"
	"case_$name"
done
unset PGDATABASE
psql -Xq -d postgres -v ON_ERROR_STOP=1 -v results="$results" -f "$here/report.sql"
