#!/bin/bash
# burst.sh [JOBS [AT_A_TIME]]: many jobs that are due in the same minute.
#
# Each of 1,000 jobs writes down when it ran. Printed, for pg_sweep and, where the server has it, for pg_cron with
# background workers in the same cluster, both with as many at a time (16): how long after the full minute the first,
# the median and the last one ran. They have different minutes, in turns, three times.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../bin/lib.sh
. "$(dirname "$0")/../bin/lib.sh"

jobs=${1:-1000}
at_a_time=${2:-16}
cluster=$sweep_top/tmp_burst
peer=
test ! -e "$(pg_config --pkglibdir)/pg_cron.so" || peer=yes

sweep_server_root
sweep_cluster_remove "$cluster"
sweep_cluster_start "$cluster" "max_worker_processes = $((at_a_time * 2 + 16))" "pg_sweep.max_running_jobs = $at_a_time" \
	"pg_sweep.max_share_per_role = 1" "max_connections = 200" \
	${peer:+"shared_preload_libraries = 'pg_sweep,pg_cron'" "cron.use_background_workers = on" "cron.max_running_jobs = $at_a_time" "cron.database_name = 'postgres'" "cron.log_statement = off"}
trap 'sweep_cluster_stop "$cluster" immediate' EXIT
sweep_cluster_use "$cluster"

sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 "$@"
}

# measure METHOD CREATE DROP
measure()
{
	sql -c 'TRUNCATE hit'
	# the minute must not begin while the jobs are created
	until test "$(sql -c 'SELECT extract(second FROM clock_timestamp()) BETWEEN 1 AND 50')" = t
	do
		read -rt 0.2 <> <(:) || :
	done
	sql -c "$2" >/dev/null
	until test "$(sql -c 'SELECT count(DISTINCT name) FROM hit')" -eq "$jobs"
	do
		read -rt 0.2 <> <(:) || :
	done
	sql -c "$3" >/dev/null
	sql -F '	' -c "SELECT '$1', round(extract(epoch FROM min(at) - m), 3), round(extract(epoch FROM percentile_disc(0.5) WITHIN GROUP (ORDER BY at) - m), 3),
		round(extract(epoch FROM max(at) - m), 3) FROM (SELECT name, min(at) AS at FROM hit GROUP BY 1) h, (SELECT date_trunc('minute', min(at)) AS m FROM hit) x GROUP BY m"
}

sql -c 'CREATE EXTENSION pg_sweep' -c 'CREATE UNLOGGED TABLE hit (name int, at timestamptz, pid int DEFAULT pg_backend_pid())' ${peer:+-c 'CREATE EXTENSION pg_cron'}
sql -c "CREATE FUNCTION note(n int) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = public AS
	\$\$ BEGIN INSERT INTO hit (name, at) VALUES (n, clock_timestamp()); RETURN ROW(0::bigint, NULL::jsonb, NULL::jsonb); END \$\$"
sql -c "CREATE FUNCTION note_batch(b sweep.batch) RETURNS sweep.progress LANGUAGE sql SET search_path = public AS
	\$\$ SELECT note((b.args->>'n')::int) \$\$"
printf 'method\tfirst\tmedian\tlast (s)\n'
for _ in 1 2 3
do
	measure pg_sweep "SELECT sweep.create_job('burst' || n, '* * * * *', step => 'public.note_batch', args => jsonb_build_object('n', n)) FROM generate_series(1, $jobs) AS n" \
		"SELECT sweep.drop_job('burst' || n) FROM generate_series(1, $jobs) AS n"
	test -z "$peer" || measure pg_cron "SELECT cron.schedule('burst' || n, '* * * * *', format('SELECT note(%s)', n)) FROM generate_series(1, $jobs) AS n" \
		"SELECT cron.unschedule('burst' || n) FROM generate_series(1, $jobs) AS n"
done
