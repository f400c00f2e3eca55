# shellcheck shell=sh
# packages.sh: the steps of check-packages, each a function whose status is its outcome; 77: it cannot be done here.
#
# Source it after debian.sh. A step runs with "set -e", and what it prints is its log. N is a version of PostgreSQL.
#
#	packages_machine N             the machines base-N and N
#	packages_build N               the Debian packages, in /packages of N
#	packages_contents N            which file needs what, which package depends on which
#	packages_lintian N             neither errors nor warnings
#	packages_document N            installed on a copy of base-N, "try", by the words of doc/install.md
#	packages_update N              then a new revision of the package, while a job runs
#	packages_remove N              then removed, with and without what the document says before it
#	packages_pg_upgrade 15 N       on a copy of base-N: the packages of both, 15 from its own suite, and pg_upgradecluster
#	packages_installcheck N        debian/tests, by autopkgtest on N
#	packages_rpm_build N, packages_rpm_contents N
#	packages_image N DOCKERFILE    its steps, in a copy of base-N; what it makes from scratch is in try-image
#	packages_cnpg_server N, packages_docker_server N  a server with that
#	packages_stop_servers          on "try"

: "${debian_root:?the directory of the machines}"
packages_upstream=$(sed -n '1s/^pg-sweep (\(.*\)-.*/\1/p' debian/changelog)

packages_install()
{
	machine=$1
	shift
	debian_inside "$machine" "apt-get install -y -q --no-install-recommends $*" || return 77
}

# What a machine starts by itself would be in the way of the servers of this one.
packages_base()
{
	test ! -e "$debian_root/base-$1/.complete" || return 0
	suite=$(debian_suite_with "postgresql-$1") || return 77
	debian_create "base-$1" "$suite" "postgresql-$1" || return 77
	printf '#!/bin/sh\nexit 101\n' >"$debian_root/base-$1/usr/sbin/policy-rc.d"
	chmod 755 "$debian_root/base-$1/usr/sbin/policy-rc.d"
	echo force-unsafe-io >"$debian_root/base-$1/etc/dpkg/dpkg.cfg.d/unsafe-io"
	packages_install "base-$1" "postgresql-$1"
	umount "$debian_root/base-$1/proc"
	touch "$debian_root/base-$1/.complete"
}

packages_copy_base()
{
	debian_unmount_all
	rm -rf --one-file-system "${debian_root:?}/$2"
	cp -a "$debian_root/base-$1" "$debian_root/$2"
	rm "$debian_root/$2/.complete"
	debian_mount "$2" || return 77
}

# An empty package instead of LLVM, which PGXS wants for bitcode, and, where its tools are in a package of their own, of
# postgresql-server-dev-all, which may be for other servers.
packages_empty_package()
{
	provides=$(debian_inside "$1" "apt-cache depends postgresql-server-dev-$1" |
		sed -n 's/^ *Depends: \(clang-[0-9.]*\|llvm-[0-9.]*-dev\)$/\1/p' | paste -s -d , -)
	test "$(packages_tools "$1")" = postgresql-server-dev-all ||
		provides="${provides:+$provides, }postgresql-server-dev-all (= 999)"
	mkdir -p "$debian_root/$1/tmp/empty/DEBIAN"
	printf '%s\n' 'Package: empty' 'Version: 1' 'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \
		"Provides: ${provides:-nothing-at-all}" 'Description: empty' >"$debian_root/$1/tmp/empty/DEBIAN/control"
	debian_inside "$1" 'cd /tmp; dpkg-deb --build empty; dpkg -i empty.deb'
}

# The package with pg_buildext.
packages_tools()
{
	debian_inside "$1" 'apt-cache pkgnames | grep -x postgresql-common-dev' || echo postgresql-server-dev-all
}

packages_machine()
{
	packages_base "$1"
	if test -e "$debian_root/$1/.complete"
	then
		debian_mount "$1" || return 77
		return
	fi
	packages_copy_base "$1" "$1"
	echo 'create_main_cluster = false' >"$debian_root/$1/etc/postgresql-common/createcluster.conf"
	packages_empty_package "$1"
	packages_install "$1" build-essential debhelper libhiredis-dev libssl-dev lintian autopkgtest \
		"postgresql-server-dev-$1" "$(packages_tools "$1")"
	touch "$debian_root/$1/.complete"
}

packages_build()
{
	debian_mount "$1"
	debian_copy_sources "$1"
	debian_inside "$1" "rm -rf /packages; mkdir /packages; cp -a /build /packages/pg-sweep-$packages_upstream; cd /packages
		rm -rf pg-sweep-$packages_upstream/pg_sweep*--*.sql pg-sweep-$packages_upstream/.build-flags
		tar -cJf pg-sweep_$packages_upstream.orig.tar.xz --exclude=pg-sweep-$packages_upstream/debian pg-sweep-$packages_upstream
		cd pg-sweep-$packages_upstream; export PG_SUPPORTED_VERSIONS=$1 DEB_BUILD_OPTIONS=parallel=$(nproc)
		pg_buildext updatecontrol; dpkg-buildpackage -us -uc"
}

# A folder with what a package brings, and what its modules are linked with.
packages_needed()
{
	debian_inside "$1" "cd /packages; rm -rf look; dpkg-deb -x $2_*.deb look
		for module in \$(find look -name '*.so'); do objdump -p \$module; done" |
		awk '/NEEDED/ && $2 !~ /^ld-linux/ { print $2 }'
}

packages_depends()
{
	debian_inside "$1" "cd /packages; dpkg-deb -f $2_*.deb Depends"
}

packages_contents()
{
	package=postgresql-$1-sweep
	for suffix in '' -gitlab
	do
		test "$(packages_needed "$1" "$package$suffix")" = libc.so.6
	done
	packages_needed "$1" "$package-redis" | grep hiredis
	packages_depends "$1" "$package" | grep -E "^postgresql-$1( \([^,]*\))?, libc6 \([^,]*\)\$"
	packages_depends "$1" "$package-redis" | grep "^$package (= .*libhiredis"
	packages_depends "$1" "$package-gitlab" | grep "^$package (= [^,]*), libc6 ([^,]*)\$"
}

# There is no report of Debian's about this package that its first changelog could close.
packages_lintian()
{
	debian_inside "$1" "cd /packages; lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs *.changes"
}

# The fenced blocks of a section of doc/install.md, as files NUMBER.LANGUAGE in a folder, for another version of PostgreSQL.
packages_section()
{
	rm -rf "$debian_root/section"
	mkdir "$debian_root/section"
	awk -v title="### $1" -v folder="$debian_root/section" '
		/^```/ && file { close(file); file = ""; next }
		/^```/ { language = substr($0, 4); file = inside && language ? sprintf("%s/%02d.%s", folder, ++blocks, language) : "/dev/null"; next }
		/^#/ && !file { inside = $0 == title }
		file { print >file }' doc/install.md
	sed -i "s/\\b15\\b/$2/g" "$debian_root"/section/*.sh
	test -s "$debian_root/section/01.${3:-sh}"
}

packages_psql()
{
	debian_inside try 'runuser -u postgres -- psql -X -q -At -v ON_ERROR_STOP=1 -f /tmp/statements.sql'
}

packages_sql()
{
	printf '%s\n' "$*" >"$debian_root/try/tmp/statements.sql"
	packages_psql
}

# The conf blocks belong into one file, the sh blocks are for root, the sql blocks for a superuser.
packages_follow()
{
	for block in "$debian_root"/section/*
	do
		cat "$block"
		case $block in
			*.sh) debian_inside try "cd /packages; $(cat "$block")" ;;
			*.conf) cat "$block" >>"$debian_root/try/etc/postgresql/$1/main/postgresql.conf" ;;
			*.sql)
				cp "$block" "$debian_root/try/tmp/statements.sql"
				packages_psql >"$debian_root/said"
				cat "$debian_root/said" ;;
		esac
	done
}

packages_document()
{
	packages_copy_base "$1" try
	mkdir "$debian_root/try/packages"
	cp "$debian_root/$1"/packages/*.deb "$debian_root/try/packages/"
	# a port of this machine would be in use by others
	debian_inside try "pg_conftool $1 main set listen_addresses ''; pg_ctlcluster $1 main start"
	begin=$(date +%s)
	packages_section 'Install them' "$1"
	packages_follow "$1"
	grep -x 'hello|succeeded' "$debian_root/said"
	seconds=$(($(date +%s) - begin))
	release=$(sed -n 's/^VERSION_ID="\(.*\)"/\1/p' "$debian_root/try/etc/os-release")
	echo "Debian ${release:-testing}, from apt-get install to the first run of a job in $seconds s" | tee "$debian_root/note"
	test "$seconds" -lt 300
}

# Does the server, or the process with this number, use a library that is not in its place any more?
packages_maps()
{
	sed -n 's/.*\(pg_sweep\.so.*\)/\1/p' "/proc/${2:-$(head -n 1 "$debian_root/try/var/lib/postgresql/$1/main/postmaster.pid")}/maps" | sort -u
}

packages_soon()
{
	deadline=$(($(date +%s) + 180))
	until packages_sql "$1" | grep -x "$2"
	do
		test "$(date +%s)" -lt "$deadline"
	done
}

packages_update()
{
	package=postgresql-$1-sweep
	packages_sql "CREATE TABLE public.gate (open boolean);
		SELECT sweep.create_job('long', NULL, \$\$DO 'BEGIN
			WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.1); END LOOP; -- the sleep is the work
			END'\$\$);
		SELECT sweep.start('long')"
	packages_soon "SELECT count(*) FROM sweep.runs WHERE job = 'long' AND status = 'running'" 1
	worker=$(packages_sql "SELECT pid FROM sweep.runs WHERE job = 'long'")
	debian_inside try "cd /packages; dpkg-deb -R ${package}_*.deb new; sed -i 's/^Version: .*/&+1/' new/DEBIAN/control
		dpkg-deb --build new new.deb; rm -r new; apt-get install -y ./new.deb"
	packages_maps "$1" "$worker" | grep '(deleted)'
	packages_sql "INSERT INTO public.gate VALUES (true)"
	packages_soon "SELECT status FROM sweep.runs WHERE job = 'long'" succeeded
	packages_sql "CALL sweep.wait(sweep.start('hello'))"
	packages_maps "$1" | grep '(deleted)'
	debian_inside try "pg_ctlcluster $1 main restart"
	packages_maps "$1" | grep -x 'pg_sweep\.so'
	packages_sql "CALL sweep.wait(sweep.start('hello'))"
}

packages_remove()
{
	package=postgresql-$1-sweep
	debian_inside try "apt-get remove -y $package" >"$debian_root/removal" 2>&1
	grep "cluster $1/main preloads pg_sweep" "$debian_root/removal"
	grep 'Databases that have the extension need the package back' "$debian_root/removal"
	# the server runs on; with the package back all is as before
	packages_sql "SELECT extname FROM pg_extension" | grep -x pg_sweep
	packages_section 'Install them' "$1"
	debian_inside try "cd /packages; rm -f new.deb; $(cat "$debian_root/section/01.sh"); pg_ctlcluster $1 main restart"
	packages_sql "CALL sweep.wait(sweep.start('hello'))"
	packages_section 'Remove them' "$1" sql
	packages_follow "$1" >"$debian_root/removal" 2>&1
	cat "$debian_root/removal"
	test "$(grep -c 'preloads pg_sweep' "$debian_root/removal")" -eq 0
	packages_sql 'SELECT 1'
	left=$(debian_inside try "find / -xdev -name '*sweep*' ! -path '/packages/*' ! -path '/proc/*'; dpkg-query -W | grep sweep || true")
	test -z "$left" || { echo "left: $left"; return 1; }
}

# Both servers with their packages on one machine, as whoever upgrades the suite of Debian has them; data, jobs and messages come along.
packages_pg_upgrade()
{
	suite=$(debian_suite_with "postgresql-$1") || return 77
	packages_copy_base "$2" try
	echo "deb $(debian_mirror) $suite main" >"$debian_root/try/etc/apt/sources.list.d/old.list"
	mkdir "$debian_root/try/packages"
	cp "$debian_root/$1/packages/postgresql-$1-sweep"_*.deb "$debian_root/$2/packages/postgresql-$2-sweep"_*.deb "$debian_root/try/packages/"
	debian_inside try "apt-get update -q; pg_dropcluster --stop $2 main
		apt-get install -y --no-install-recommends postgresql-$1 /packages/*.deb
		test -d /etc/postgresql/$1/main || pg_createcluster $1 main
		pg_conftool $1 main set listen_addresses ''
		pg_conftool $1 main set shared_preload_libraries pg_sweep; pg_ctlcluster $1 main start"
	packages_sql "CREATE EXTENSION pg_sweep; CREATE TABLE public.tick (at timestamptz DEFAULT now());
		SELECT sweep.create_queue('mail'), sweep.send_many('mail', ARRAY['1', '2', '3']::jsonb[]);
		SELECT sweep.create_job('tick', '* * * * * *', 'INSERT INTO public.tick DEFAULT VALUES');
		SELECT sweep.create_job('hello', NULL, 'VACUUM')"
	packages_soon 'SELECT count(*) > 1 FROM public.tick' t
	debian_inside try "pg_upgradecluster -v $2 -m upgrade $1 main"
	packages_sql 'SHOW server_version' | grep "^$2"
	packages_sql 'SHOW shared_preload_libraries' | grep -x pg_sweep
	packages_sql "SELECT DISTINCT state FROM sweep.jobs" | grep -x 'paused: the database is a copy'
	before=$(packages_sql 'SELECT count(*) FROM public.tick')
	packages_sql "SELECT sweep.resume_all()"
	packages_soon "SELECT count(*) > $before + 1 FROM public.tick" t
	packages_sql "CALL sweep.wait(sweep.start('hello')); SELECT job, status FROM sweep.runs WHERE job = 'hello'" | grep -x 'hello|succeeded'
	packages_sql "SELECT string_agg(payload::text, ',' ORDER BY message_id) FROM sweep.claim('mail', 10)" | grep -x 1,2,3
	debian_inside try "pg_dropcluster $1 main; apt-get purge -y postgresql-$1-sweep postgresql-$1"
	packages_sql "CALL sweep.wait(sweep.start('hello'))"
}

# The tests are in the sources, the files under test are those of the packages.
packages_installcheck()
{
	set +e
	debian_inside "$1" "cd /packages; rm -rf pg-sweep-$packages_upstream/debian/postgresql-*; autopkgtest -B *.deb pg-sweep-$packages_upstream/ -- null"
	outcome=$?
	set -e
	debian_inside "$1" "apt-get purge -y -q 'postgresql-$1-sweep*'"
	return "$outcome"
}

packages_stop_servers()
{
	test -d "$debian_root/try" || return 0
	for pid_file in "$debian_root"/try/var/lib/postgresql/*/*/postmaster.pid
	do
		test -e "$pid_file" || continue
		directory=${pid_file#"$debian_root/try"}
		directory=${directory%/*}
		debian_inside try "runuser -u postgres -- /usr/lib/postgresql/$(cat "$debian_root/try$directory/PG_VERSION")/bin/pg_ctl -D $directory -s -m immediate stop" ||
			true
	done
}

packages_rpm_build()
{
	debian_mount "$1"
	packages_install "$1" rpm rpmlint
	# what PostgreSQL's own repository defines, with the paths of Debian
	debian_inside "$1" "cd /packages; rm -rf rpm; mkdir -p rpm/SOURCES; cp -a pg-sweep-$packages_upstream pg_sweep-$packages_upstream
		tar -czf rpm/SOURCES/pg_sweep-$packages_upstream.tar.gz pg_sweep-$packages_upstream; rm -r pg_sweep-$packages_upstream
		rpmbuild -bb --nodeps --define '_topdir /packages/rpm' --define 'pgmajorversion $1' --define 'pginstdir /usr/lib/postgresql/$1' \
			--define 'pgsharedir /usr/share/postgresql/$1' --define 'debug_package %{nil}' --define '_build_id_links none' /build/packaging/rpm/pg_sweep.spec"
	debian_inside "$1" "rpmlint -c /build/packaging/rpm/rpmlint.toml /build/packaging/rpm/pg_sweep.spec /packages/rpm/RPMS/*/*.rpm"
}

packages_rpm_contents()
{
	debian_inside "$1" "cd /packages/rpm/RPMS/*; for suffix in '' -gitlab -redis; do rpm -qp --list --requires pg_sweep_$1\$suffix-$packages_upstream*.rpm >/tmp/rpm\$suffix; done
		for suffix in '' -gitlab -redis; do cat /tmp/rpm\$suffix; done
		grep /pg_sweep.so /tmp/rpm; grep /pg_sweep_gitlab.so /tmp/rpm-gitlab; grep /pg_sweep_gitlab.control /tmp/rpm-gitlab; grep /pg_sweep_redis.so /tmp/rpm-redis
		grep libhiredis /tmp/rpm-redis; grep 'pg_sweep_$1.* = ' /tmp/rpm-gitlab; ! grep -E 'libhiredis|pg_sweep_(gitlab|redis)' /tmp/rpm"
}

# Of a Dockerfile: FROM, COPY and RUN, a line each. The base image is a copy of base-N, "scratch" an empty folder.
packages_image()
{
	packages_copy_base "$1" try
	rm -rf "$debian_root/try-image"
	# as in the image of PostgreSQL
	mkdir -p "$debian_root/try/docker-entrypoint-initdb.d" "$debian_root/try-image"
	mv "$debian_root/try/usr/share/postgresql/$1/postgresql.conf.sample" "$debian_root/try/usr/share/postgresql/"
	ln -s ../postgresql.conf.sample "$debian_root/try/usr/share/postgresql/$1/postgresql.conf.sample"
	stage=$debian_root/try
	sed -e "s/\${PG_MAJOR}/$1/g" "$2" >"$debian_root/steps"
	while read -r word rest
	do
		echo "$word $rest"
		case $word in
			FROM) test "$rest" != scratch || stage=$debian_root/try-image ;;
			RUN) debian_inside "$(basename "$stage")" "$rest" ;;
			COPY) packages_copy "$debian_root/$1/packages" "$stage" "$rest" ;;
			''|'#'|'#'*|ARG|USER) ;;
			*) return 1 ;;
		esac
	done <"$debian_root/steps"
}

# From the folder of the build or, with --from, the first stage.
packages_copy()
{
	context=$1
	image=$2
	case $3 in
		--from=*) context=$debian_root/try ;;
	esac
	target=$image${3##* }
	mkdir -p "$target"
	for pattern in ${3% *}
	do
		case $pattern in
			--from=*) ;;
			*)
				# shellcheck disable=SC2086 # a pattern of file names
				cp -a "$context"/$pattern "$target" ;;
		esac
	done
}

# The files of the image, where CloudNativePG mounts them, and none of the packages.
packages_cnpg_server()
{
	debian_inside try "apt-get purge -y -q 'postgresql-$1-sweep*'; ! find /usr -name 'pg_sweep*' | grep ."
	{
		printf './%s\n' lib/pg_sweep.so lib/pg_sweep_gitlab.so "licenses/postgresql-$1-sweep/copyright" \
			share/extension/pg_sweep.control share/extension/pg_sweep_gitlab.control
		sweep_scripts "$packages_upstream" | sed 's|^|./share/extension/|'
	} | sort >"$debian_root/wanted"
	(cd "$debian_root/try-image"; find . -type f) | sort | diff "$debian_root/wanted" -
	mkdir "$debian_root/try/extensions"
	mv "$debian_root/try-image" "$debian_root/try/extensions/pg-sweep"
	printf '%s\n' "listen_addresses = ''" "shared_preload_libraries = 'pg_sweep'" 'max_worker_processes = 20' \
		"extension_control_path = '\$system:/extensions/pg-sweep/share'" "dynamic_library_path = '\$libdir:/extensions/pg-sweep/lib'" \
		>>"$debian_root/try/etc/postgresql/$1/main/postgresql.conf"
	debian_inside try "pg_ctlcluster $1 main start"
	packages_sql 'CREATE EXTENSION pg_sweep_gitlab CASCADE'
	packages_hello
}

packages_hello()
{
	packages_sql "SELECT sweep.create_job('hello', NULL, 'VACUUM'); CALL sweep.wait(sweep.start('hello'));
		SELECT job, status FROM sweep.runs" | grep -x 'hello|succeeded'
}

# The entry point of the image of PostgreSQL: initdb, then what is in docker-entrypoint-initdb.d.
packages_docker_server()
{
	debian_inside try "runuser -u postgres -- /usr/lib/postgresql/$1/bin/initdb -D /var/lib/postgresql/$1/docker
		runuser -u postgres -- /usr/lib/postgresql/$1/bin/pg_ctl -D /var/lib/postgresql/$1/docker -w -l /tmp/log -o \"-c listen_addresses=''\" start"
	for script in "$debian_root"/try/docker-entrypoint-initdb.d/*.sql
	do
		cp "$script" "$debian_root/try/tmp/statements.sql"
		packages_psql
	done
	packages_hello
}
