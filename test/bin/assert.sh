# shellcheck shell=sh
# assert.sh: servers with assertions, for check-assert and check-memory.
#
# Source it after debian.sh, with debian_root set.
#
#	assert_server VERSION     a Debian with that server in /opt/postgresql; fails with a word why
#	assert_inside VERSION COMMAND  in it, as debian_inside, with that server's pg_config as PG_CONFIG
#	assert_caches VERSION keeps|forgets  what the caches of that server do with an entry that is not referenced any more

: "${debian_root:?the directory of the servers}"
assert_packages='gcc libc6-dev libicu-dev pkg-config make bison flex perl bzip2 libipc-run-perl valgrind libhiredis-dev libssl-dev redis-server'

# The orig archive is enough: Debian's patches concern where its packages put things.
assert_build()
{
	debian_inside "$1" "
		sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list
		echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io
		printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
		chmod 755 /usr/sbin/policy-rc.d
		apt-get update -q
		apt-get install -y -q --no-install-recommends $assert_packages
		id postgres >/dev/null 2>&1 || useradd --create-home postgres
		mkdir -p /tmp/source
		cd /tmp/source
		apt-get source -q --download-only --tar-only 'postgresql-$1'
		tar -xf postgresql-*.orig.tar.*
		cd postgresql-$1*/
		icu=\$(./configure --help | sed -n 's/^ *\(--with-icu\) .*/\1/p')
		./configure --quiet --prefix=/opt/postgresql --enable-cassert --enable-debug --enable-tap-tests \
			--without-readline --without-zlib \$icu CFLAGS='-O1 -fno-omit-frame-pointer' CPPFLAGS=-DUSE_VALGRIND
		make -s -j \"\$(nproc)\" world-bin
		make -s install-world-bin
		cp /opt/postgresql/bin/postgres /opt/postgresql/bin/postgres.keeps
		grep -rl --include='*.c' CACHE_FORCE_RELEASE src/backend | xargs touch
		make -s -C src/backend COPT='-DRELCACHE_FORCE_RELEASE -DCATCACHE_FORCE_RELEASE'
		cp src/backend/postgres /opt/postgresql/bin/postgres.forgets
		cp src/tools/valgrind.supp /opt/postgresql/
		rm -rf /tmp/source" >>"$debian_root/$1.log" 2>&1 ||
		{ tail "$debian_root/$1.log" >&2; sweep_say "PostgreSQL $1 cannot be built"; return 1; }
	touch "$debian_root/$1/.complete"
}

assert_server()
{
	if test -e "$debian_root/$1/.complete"
	then
		debian_mount "$1"
		return
	fi
	suite=${SUITE:-$(debian_suite_with "postgresql-$1")}
	test -n "$suite" || return 1
	debian_create "$1" "$suite" "postgresql-$1" && assert_build "$1"
}

assert_inside()
{
	debian_inside "$1" "export PG_CONFIG=/opt/postgresql/bin/pg_config; $2"
}

# Which of the two servers the next check copies, see test/bin/server-root.
assert_caches()
{
	ln -f "$debian_root/$1/opt/postgresql/bin/postgres.$2" "$debian_root/$1/opt/postgresql/bin/postgres"
}
