#!/bin/sh
# demo.sh: GitLab jobs on 2.9 million rows, on a server of its own.
#
#	demo.sh start    (make demo)        starts over: server, rows, extension, runs, results
#	demo.sh shell    (make demo-shell)  psql on it
#	demo.sh stop     (make demo-stop)   stops it and removes its data
#
# With REDIS=1 in the environment the buckets of the artifact deletion are kept in
# Redis, by a redis-server of its own as well.
#
# The server lives in tmp_demo and stays until it is stopped. The demonstration
# is a test as well: every count it shows is compared with what it must be, and
# a difference is an error. It writes for 100 columns; on a terminal the lines of
# progress are overwritten, elsewhere each run prints a line per fifth of its way.
set -eu
. "$(dirname "$0")/../bin/lib.sh"

demo=$sweep_top/tmp_demo
here=test/demo
# in the order in which they are ready
tables='p_batched_git_ref_updates_deletions ci_runner_machines environments p_ci_builds p_ci_job_artifacts'
redis=no
test "${REDIS:-0}" = 0 || redis=yes
bold='' normal='' live=no
if test -t 1 && test "${TERM:-dumb}" != dumb
then
	bold=$(printf '\033[1m') normal=$(printf '\033[0m') live=yes
fi

main()
{
	case ${1-} in
		start) demo_start ;;
		shell) demo_shell ;;
		stop)  demo_stop ;;
		*)     sed -n '3,$s/^#\t/usage: /p' "$0" >&2; exit 2 ;;
	esac
}

demo_start()
{
	trap interrupted INT TERM HUP
	trap 'ended $?' EXIT
	began=$(milliseconds)
	phase_began=$began
	phases=

	heading "A server in tmp_demo, with tables as GitLab has them"
	start_server
	phase_ends 'server'
	fill_tables
	expect_nothing check_rows.sql
	phase_ends 'rows and indexes'

	heading "CREATE EXTENSION pg_sweep_gitlab CASCADE; SELECT * FROM sweep_gitlab.install();"
	demo_psql -f $here/install.sql
	echo ' (Schedules are paused until the end, so that this shows the same numbers at any minute.)'
	phase_ends 'install'

	heading "SELECT sweep.start('environments_auto_stop'), ...;  -- four at once, in the background"
	runs=$(start_runs)
	show_progress
	phase_ends 'jobs'

	echo
	demo_psql -v runs="$runs" -v bold="$bold" -v normal="$normal" -f $here/results.sql
	expect_nothing check_runs.sql -v runs="$runs"
	phase_ends 'results and checks'

	heading "SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');  -- expired artifacts, by five shares side by side"
	demo_psql -v redis=$redis -f $here/artifacts_start.sql
	show_buckets
	runs=$(demo_psql -At -c "SELECT string_agg(run_id::text, ',') FROM sweep.runs WHERE job = 'ci_bulk_delete_expired_job_artifacts'")
	show_progress
	echo
	demo_psql -v bold="$bold" -v normal="$normal" -f $here/artifacts_results.sql
	expect_nothing check_artifacts.sql
	phase_ends 'artifacts'

	heading "SELECT sweep.create_consumer('environments_auto_stop', 'sweep_gitlab.stop_environment', ...);"
	consume_environments
	echo
	demo_psql -v bold="$bold" -v normal="$normal" -f $here/consumed.sql
	expect_nothing check_consumed.sql
	demo_psql -q -c 'SELECT sweep.resume(name) FROM sweep.job' >/dev/null
	phase_ends 'consumer'
	echo "Every count above was checked. All of it took $(seconds_since "$began"):"
	echo " $phases"
	what_now
}

demo_shell()
{
	if ! sweep_cluster_running "$demo"
	then
		sweep_die 'The demonstration does not run: "make demo" starts it.'
	fi
	sweep_cluster_use "$demo"
	exec psql
}

demo_stop()
{
	if ! test -e "$demo"
	then
		sweep_say 'The demonstration does not run: nothing to stop.'
		return
	fi
	remove_servers
	sweep_say 'The server of the demonstration is stopped, its data removed.'
}

# ---------------------------------------------------------------- the phases

# wal_level = minimal is for fill.sql. Durability is that of any server: fsync
# and synchronous_commit stay on.
start_server()
{
	remove_servers
	url=
	if test $redis = yes
	then
		start_redis
	fi
	sweep_cluster_start "$demo" 'wal_level = minimal' 'max_wal_senders = 0' \
		'max_wal_size = 4GB' 'checkpoint_timeout = 30min' 'shared_buffers = 256MB' \
		'max_worker_processes = 16' 'pg_sweep.max_running_jobs = 5' "pg_sweep.redis_url = '$url'"
	demo_psql -q -f $here/gitlab_schema.sql
}

# On a unix socket only, and with nothing on disk.
start_redis()
{
	if ! command -v redis-server >/dev/null
	then
		fail 'REDIS=1 needs redis-server and redis-cli: as root, "make prerequisites" installs them'
	fi
	sweep_make_directory "$demo"
	sweep_socket_directory "$demo"
	url=unix://$(readlink "$demo/socket")/redis
	sweep_as_server_user redis-server --port 0 --unixsocket "${url#unix://}" --save '' --appendonly no \
		--dir "$(readlink "$demo/socket")" --daemonize yes --logfile "$(readlink "$demo/socket")/redis.log" >/dev/null
	give_up=$(($(milliseconds) + 10000))
	until demo_redis ping >/dev/null 2>&1
	do
		test "$(milliseconds)" -lt "$give_up" || fail 'redis-server does not answer'
	done
}

demo_redis()
{
	redis-cli -s "$(readlink "$demo/socket")/redis" "$@"
}

remove_servers()
{
	if test -S "$demo/socket/redis"
	then
		demo_redis shutdown nosave >/dev/null 2>&1 || true
	fi
	sweep_cluster_remove "$demo"
}

# All tables at once, one process each. Their messages go to a file, because an
# interruption stops the server under them.
fill_tables()
{
	processes=
	for table in $tables
	do
		demo_psql -v table="$table" -f $here/fill.sql >"$demo/fill.$table.log" 2>&1 &
		processes="$processes $!"
	done
	for table in $tables
	do
		process=${processes# }
		process=${process%% *}
		processes=${processes# "$process"}
		if ! wait "$process"
		then
			cat "$demo/fill.$table.log" >&2
			fail "table $table could not be filled"
		fi
		describe_table "$table"
	done
}

describe_table()
{
	case $1 in
		environments)       echo ' 1,000,000 environments                   100,000 of them are due to be stopped' ;;
		p_ci_builds)        echo '   500,000 builds                         20,000 of them are stuck, 30 of these refuse to be failed' ;;
		p_ci_job_artifacts) echo '   200,000 job artifacts                  50,000 of them have expired, and nothing keeps them' ;;
		ci_runner_machines) echo '   200,000 runner machines                1,500 of them have been silent for a week' ;;
		*)                  echo ' 1,000,000 pending deletions of git refs  in 12,000 projects' ;;
	esac
}

# Prints the numbers of the runs.
start_runs()
{
	demo_psql -At -c "SELECT string_agg(run_id::text, ',')
		FROM (SELECT sweep.start(name) AS run_id FROM (SELECT name FROM sweep.jobs WHERE name NOT SIMILAR TO 'ci\\_stuck%|%artifacts' OR name LIKE '%\\_canceling' ORDER BY name) AS job) AS run"
}

# Until every run has ended. The sleep only sets the rate of refreshing; what
# ends the loop is the state of the runs.
show_progress()
{
	give_up=$(($(milliseconds) + 60000))
	shown=
	lines_up=
	while :
	do
		state=$(demo_psql -At -F ' ' -v runs="$runs" -f $here/progress.sql)
		show_state
		in_progress=$(echo "$state" | grep -cv '^[0-9]* ended ') || break
		if test "$(milliseconds)" -gt "$give_up"
		then
			fail "$in_progress of the runs $runs have not ended within a minute"
		fi
		sleep 0.1 # showing the runs is what happens here, the sleep is the work
	done
}

# As they are while all of the shares work, unless that was too short to be seen.
show_buckets()
{
	give_up=$(($(milliseconds) + 10000))
	until test "$(demo_psql -At -c "SELECT count(*) FILTER (WHERE status = 'running' AND rows > 0) = 5
		OR bool_and(finished_at IS NOT NULL) FROM sweep.runs WHERE job = 'ci_bulk_delete_expired_job_artifacts'")" = t
	do
		test "$(milliseconds)" -lt "$give_up" || fail 'no shares have begun'
	done
	echo "${bold}The buckets while they work (view sweep.buckets)$normal"
	demo_psql -f $here/artifacts_buckets.sql
	if test $redis = yes
	then
		echo "${bold}The same in Redis, where GitLab's own workers look for them$normal"
		echo " {bulk_delete_expired_job_artifacts}:available_buckets: $(demo_redis smembers '{bulk_delete_expired_job_artifacts}:available_buckets' | sort -n | paste -sd ' ')"
		echo " {bulk_delete_expired_job_artifacts}:occupied_buckets: $(demo_redis zrange '{bulk_delete_expired_job_artifacts}:occupied_buckets' 0 -1 | paste -sd ' ')"
	fi
}

show_state()
{
	if test $live = yes
	then
		printf '%s' "$lines_up"
		echo "$state" | sed "s/^[0-9]* [^ ]* //; s/\$/$(printf '\033[K')/"
		lines_up=$(printf '\033[%dA' "$(echo "$state" | wc -l)")
		return
	fi
	while read -r run fifth text
	do
		case " $shown " in
			*" $run:$fifth "*) ;;
			*) echo "  $text"; shown="$shown $run:$fifth" ;;
		esac
	done <<-END
	$state
	END
}

# Two background workers stop what the job has sent, until the queue is empty. As
# above the sleep only sets the rate of refreshing.
consume_environments()
{
	demo_psql -q -c "SELECT sweep.create_consumer('environments_auto_stop', 'sweep_gitlab.stop_environment',
		concurrency => 2, batch => 1000)" >/dev/null
	give_up=$(($(milliseconds) + 180000))
	shown=-1
	while :
	do
		depth=$(demo_psql -At -c "SELECT depth FROM sweep.queues WHERE queue = 'environments_auto_stop'")
		stopped=$((100000 - depth))
		if test $live = yes
		then
			printf '\r  %6d of 100000 environments stopped' "$stopped"
		elif test $((stopped / 20000)) -gt "$shown"
		then
			shown=$((stopped / 20000))
			printf '  %6d of 100000 environments stopped\n' "$stopped"
		fi
		test "$depth" -gt 0 || break
		if test "$(milliseconds)" -gt "$give_up"
		then
			fail "$depth messages still wait after three minutes"
		fi
		sleep 0.1 # showing the number is what happens here, the sleep is the work
	done
	test $live = no || echo
}

what_now()
{
	cat <<-END

	${bold}What now${normal}   The server runs on and the jobs follow their schedules. Look at it with ${bold}make demo-shell${normal}:
	  SELECT run_id, job, trigger, rows, stop_reason FROM sweep.runs ORDER BY run_id;
	      -- the next minute sends the other projects
	  CALL sweep.run('ci_runners_stale_machines_cleanup');
	      -- runs a job in your session: deletes the other 500
	  DROP TRIGGER refuse ON p_ci_builds; SELECT sweep.release_quarantine('ci_stuck_builds_drop_canceling');
	  CALL sweep.run('ci_stuck_builds_drop_canceling');
	      -- the ten builds in quarantine refuse no more
	  SELECT * FROM sweep.claim('ci_pipeline_process', 3);
	      -- what a consumer outside of the database does; then sweep.ack(lease)
	${bold}make demo-stop${normal} stops the server and removes it.
	END
}

# ---------------------------------------------------------------- helpers

demo_psql()
{
	sweep_psql "$demo" -P pager=off "$@"
}

# A file of checks prints what is wrong, nothing when all is as it should be.
expect_nothing()
{
	file=$1
	shift
	wrong=$(demo_psql -At "$@" -f "$here/$file")
	if test -n "$wrong"
	then
		echo "$wrong" >&2
		fail 'the numbers above are not what they must be'
	fi
}

heading()
{
	printf '\n%s%s%s\n' "$bold" "$1" "$normal"
}

milliseconds()
{
	echo $(($(date +%s%N) / 1000000))
}

seconds_since()
{
	elapsed=$(($(milliseconds) - $1))
	printf '%d.%02d s' $((elapsed / 1000)) $((elapsed % 1000 / 10))
}

phase_ends()
{
	phases="$phases${phases:+, }$1 $(seconds_since "$phase_began")"
	phase_began=$(milliseconds)
}

fail()
{
	sweep_say "$@"
	exit 1
}

# What failed has said why; the server is left for a look at it.
ended()
{
	test "$1" -ne 0 || return 0
	sweep_say 'The demonstration FAILED.'
	if sweep_cluster_running "$demo"
	then
		sweep_say 'Its server still runs: make demo-shell, make demo-stop; its log is tmp_demo/log.'
	fi
}

interrupted()
{
	trap '' INT TERM HUP
	trap - EXIT
	remove_servers
	sweep_die 'Interrupted; the server of the demonstration is removed.'
}

main "$@"
