# shellcheck shell=sh
# lib.sh: private servers for tests, benchmarks and the demonstration.
#
# Source it from a script two directories below the top of the checkout:
#
#	set -eu
#	. "$(dirname "$0")/../bin/lib.sh"
#	sweep_prerequisites            # packages; nothing when all are there
#	sweep_server_root              # server + pg_sweep in tmp_install
#	sweep_cluster_start "$sweep_top/tmp_demo" 'fsync = on' 'max_worker_processes = 16'
#	sweep_psql "$sweep_top/tmp_demo" -c 'CREATE EXTENSION pg_sweep'
#	sweep_cluster_stop "$sweep_top/tmp_demo"
#
# A cluster is a directory: data/ (the data directory), log, socket (a link to
# where its unix socket is), private.conf (the lines of the last start).
# Clusters preload pg_sweep, listen on a unix socket only, know no passwords and
# keep time in UTC. Servers never run as root: when root calls, they run as user
# postgres. Nothing is installed outside the checkout, and a server is stopped
# by its own pg_ctl on its own data directory, never by name.
#
#	$sweep_top                     the checkout, and the current directory from now on
#	$sweep_pure                    the files of pure C, which know no server
#	sweep_say TEXT, sweep_die TEXT a line on stderr; and exit 1
#	sweep_command NAME [PACKAGE]   is there a command? root on Debian installs its package
#	sweep_as_server_user CMD ...   as postgres when root, else as we are
#	sweep_bindir                   prints the directory of the binaries: the private ones once there are any
#	sweep_cluster_exists DIR       has it been created?
#	sweep_cluster_running DIR      does it run?
#	sweep_cluster_start DIR [LINE ...]  creates it if needed, starts it with these settings
#	sweep_cluster_stop DIR [MODE]  fast unless said otherwise; no error if it does not run
#	sweep_cluster_remove DIR       stops it and removes everything
#	sweep_cluster_use DIR          PGHOST, PGPORT, PGUSER, PGDATABASE and PATH for what follows
#	sweep_psql DIR ARGS ...        psql without psqlrc that stops at errors
#	sweep_cluster_make_wal DIR N   N segments of WAL that can be used again
#	sweep_scripts VERSION          prints the scripts of both extensions that this version installs

sweep_top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$sweep_top" || exit
sweep_root=$sweep_top/tmp_install
sweep_port=${SWEEP_PORT:-65432}
sweep_server_user=postgres
# what the unit tests are linked with
# shellcheck disable=SC2034 # for those who source this
sweep_pure=$(echo "$sweep_top"/src/pure/*.c "$sweep_top"/src/cron/*.c "$sweep_top"/src/redis/reply_class.c)
# absolute, because the private server in PATH brings a pg_config of its own
PG_CONFIG=$(command -v "${PG_CONFIG:-pg_config}" || echo "${PG_CONFIG:-pg_config}")
export PG_CONFIG

# What the caller's own PostgreSQL session is must not leak into ours.
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGPASSWORD PGPASSFILE \
	PGSERVICE PGSERVICEFILE PGOPTIONS PGDATA PGCLUSTER PGAPPNAME PGSSLMODE \
	PGTZ PGDATESTYLE PGCLIENTENCODING PSQLRC
export LC_ALL=C.UTF-8 LANG=C.UTF-8 HOME="${HOME:-/tmp}"

sweep_say()
{
	echo "$*" >&2
}

sweep_die()
{
	sweep_say "$*"
	exit 1
}

sweep_is_root()
{
	test "$(id -u)" -eq 0
}

sweep_command()
{
	if command -v "$1" >/dev/null
	then
		return 0
	fi
	sweep_is_root && command -v apt-get >/dev/null || return 1
	sweep_say "installing with apt-get: ${2:-$1}"
	{
		apt-get update -q
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${2:-$1}"
	} </dev/null >&2 && command -v "$1" >/dev/null
}

sweep_as_server_user()
{
	if sweep_is_root
	then
		runuser -u "$sweep_server_user" -- env HOME=/tmp "$@"
	else
		"$@"
	fi
}

sweep_prerequisites()
{
	"$sweep_top/test/bin/prerequisites"
}

sweep_server_root()
{
	"$sweep_top/test/bin/server-root"
}

sweep_bindir()
{
	sweep_bin=$("$PG_CONFIG" --bindir)
	if test -d "$sweep_root$sweep_bin"
	then
		sweep_bin=$sweep_root$sweep_bin
	fi
	echo "$sweep_bin"
}

# A directory of ours that the server's user owns.
sweep_make_directory()
{
	mkdir -p "$1"
	if sweep_is_root
	then
		chown "$sweep_server_user" "$1"
	fi
}

# The path of a unix socket is at most 107 bytes; deep checkouts get a short one.
sweep_socket_directory()
{
	if test -e "$1/socket/."
	then
		return
	fi
	sweep_make_directory "$1/socket.d"
	sweep_target=$1/socket.d
	if test "${#sweep_target}" -gt 85
	then
		sweep_target=$(mktemp -d /tmp/pg_sweep.XXXXXX)
		sweep_make_directory "$sweep_target"
	fi
	chmod 700 "$sweep_target"
	ln -sfn "$sweep_target" "$1/socket"
}

sweep_cluster_exists()
{
	test -f "$1/data/PG_VERSION"
}

sweep_cluster_running()
{
	sweep_cluster_exists "$1" &&
		sweep_as_server_user "$(sweep_bindir)/pg_ctl" -D "$1/data" status >/dev/null 2>&1
}

sweep_cluster_create()
{
	sweep_make_directory "$1"
	if ! sweep_as_server_user "$(sweep_bindir)/initdb" -D "$1/data" -U postgres -N \
		--auth=trust --locale=C --encoding=UTF8 --no-instructions >"$1/initdb.log" 2>&1
	then
		cat "$1/initdb.log" >&2
		sweep_die "initdb failed in $1"
	fi
	echo "include = '$1/private.conf'" >>"$1/data/postgresql.conf"
}

sweep_cluster_start()
{
	sweep_dir=$1
	shift
	if sweep_cluster_running "$sweep_dir"
	then
		return
	fi
	sweep_cluster_exists "$sweep_dir" || sweep_cluster_create "$sweep_dir"
	sweep_socket_directory "$sweep_dir"
	{
		printf "listen_addresses = ''\n"
		printf "unix_socket_directories = '%s'\n" "$(readlink "$sweep_dir/socket")"
		printf "unix_socket_permissions = 0700\n"
		printf "port = %s\n" "$sweep_port"
		printf "shared_preload_libraries = 'pg_sweep'\n"
		printf "timezone = 'UTC'\nlog_timezone = 'UTC'\n"
		echo "log_line_prefix = '%m [%p] %b %q%a '"
		for sweep_line
		do
			printf '%s\n' "$sweep_line"
		done
	} >"$sweep_dir/private.conf"
	if ! sweep_as_server_user "$(sweep_bindir)/pg_ctl" -D "$sweep_dir/data" \
		-l "$sweep_dir/log" -w -t 60 start >"$sweep_dir/start.log" 2>&1 </dev/null
	then
		tail -n 20 "$sweep_dir/start.log" "$sweep_dir/log" >&2 || true
		sweep_die "the server in $sweep_dir did not start"
	fi
}

sweep_cluster_stop()
{
	if sweep_cluster_running "$1"
	then
		sweep_as_server_user "$(sweep_bindir)/pg_ctl" -D "$1/data" -w -m "${2:-fast}" \
			stop >/dev/null </dev/null
	fi
	# a socket directory outside of it lasts as long as the server
	if test -L "$1/socket" && test "$(readlink "$1/socket")" != "$1/socket.d"
	then
		rm -rf "$(readlink "$1/socket")"
	fi
}

sweep_cluster_remove()
{
	sweep_cluster_stop "$1" immediate
	rm -rf "$1"
}

sweep_cluster_use()
{
	PGHOST=$(readlink "$1/socket")
	PGPORT=$sweep_port
	PGUSER=postgres
	PGDATABASE=postgres
	PATH=$(sweep_bindir):$PATH
	export PGHOST PGPORT PGUSER PGDATABASE PATH
}

# As on any server that has run for a while. Else whoever is measured first makes them, and finds that a
# commit waits for 16 MB of zeros, and the others write over them.
sweep_cluster_make_wal()
{
	sweep_psql "$1" -qAt -d postgres -c CHECKPOINT \
		-c "SELECT pg_logical_emit_message(false, 'wal', ''), pg_switch_wal() FROM generate_series(1, $2)" -c CHECKPOINT >/dev/null
}

# Its own, and those of each version that is kept, with the way from there.
sweep_scripts()
{
	for sweep_extension in pg_sweep pg_sweep_gitlab
	do
		echo "$sweep_extension--$1.sql"
		for sweep_kept in "$sweep_top/test/upgrade/$sweep_extension"--*.sql
		do
			sweep_kept=$(basename "$sweep_kept" .sql)
			test "$sweep_kept" = "$sweep_extension--$1" || printf '%s\n' "$sweep_kept.sql" "$sweep_kept--$1.sql"
		done
	done
}

sweep_psql()
{
	sweep_dir=$1
	shift
	"$(sweep_bindir)/psql" -X -v ON_ERROR_STOP=1 -h "$(readlink "$sweep_dir/socket")" \
		-p "$sweep_port" -U postgres -d postgres "$@"
}
