# shellcheck shell=sh
# debian.sh: a Debian from nothing in a directory, for check-versions, check-bare and check-packages.
#
# Source it after lib.sh, with debian_root set to the directory that has them all.
# Needs root and debootstrap, which it installs. The mirror, and how to reach it,
# are what this machine's apt is configured with; elsewhere set MIRROR.
#
#	debian_suite_with PACKAGE      the oldest suite that has it; fails with a word why
#	debian_create NAME SUITE [SOURCE]  $debian_root/NAME, with lists of packages; fails with a word why.
#	                               experimental is a sid that takes only this source package from there
#	debian_mount NAME              /proc in it, again after a restart of the machine
#	debian_inside NAME COMMAND     in it, with an empty environment
#	debian_create_server VERSION   $debian_root/VERSION with this PostgreSQL, of the oldest suite that has it or of SUITE
#	debian_copy_sources NAME       this checkout into /build, what was built there before removed
#	debian_unmount_all

: "${debian_root:?the directory of the releases}" "${sweep_top:?lib.sh comes first}"
debian_suites='bookworm trixie forky sid experimental'

debian_unmount_all()
{
	for mounted in "$debian_root"/*/proc
	do
		if mountpoint -q "$mounted" 2>/dev/null
		then
			umount "$mounted"
		fi
	done
}

# The first mirror of this Debian (not its security archive).
debian_mirror()
{
	if test -n "${MIRROR-}"
	then
		echo "$MIRROR"
		return
	fi
	# shellcheck disable=SC2016 # apt's own placeholders
	apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' |
		sed -n 's/ Debian$//p' | head -n 1
}

# What apt says about proxies and about dates of snapshots holds in there, too.
debian_copy_network_settings()
{
	cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
	apt-config dump Acquire | grep -E '^Acquire::(http|https|Retries|Check-)' \
		>"$1/etc/apt/apt.conf.d/90host" || true
}

debian_mount()
{
	mkdir -p "$debian_root/$1/proc"
	mountpoint -q "$debian_root/$1/proc" || mount -t proc proc "$debian_root/$1/proc"
}

debian_inside()
{
	chroot "$debian_root/$1" env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		DEBIAN_FRONTEND=noninteractive sh -euc "$2" </dev/null
}

# Asked of lists of its own, which all targets share and read once an hour: those of this machine stay as they are.
debian_suite_with()
{
	test -n "$(debian_mirror)" || { sweep_say "apt here knows no Debian mirror; set MIRROR"; return 1; }
	lists=$sweep_top/tmp_cache/debian-lists
	mkdir -p "$lists/partial" "$debian_root"
	for suite in $debian_suites
	do
		echo "deb $(debian_mirror) $suite main"
	done >"$lists.new"
	cmp -s "$lists.new" "$lists.list" || rm -f "$lists.log"
	mv "$lists.new" "$lists.list"
	wanted=$1
	set -- -o Dir::Etc::SourceList="$lists.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o Acquire::Languages=none
	# a suite that cannot be had does not keep from the others
	test -n "$(find "$lists.log" -mmin -60 2>/dev/null)" || flock "$lists" apt-get update -q "$@" >"$lists.log" 2>&1 </dev/null ||
		{ tail -n 3 "$lists.log" >&2; rm "$lists.log"; }
	apt-cache "$@" madison "$wanted" >"$debian_root/found" || true
	for suite in $debian_suites
	do
		if grep -q " $suite/main " "$debian_root/found"
		then
			echo "$suite"
			return
		fi
	done
	sweep_say "no suite of $(debian_mirror) has $wanted"
	return 1
}

# A suite that is not complete: what is wanted from it and comes of the same source has precedence.
debian_add_experimental()
{
	sed 's/ sid / experimental /' "$debian_root/$1/etc/apt/sources.list" \
		>"$debian_root/$1/etc/apt/sources.list.d/experimental.list"
	printf 'Package: src:%s\nPin: release a=experimental\nPin-Priority: 990\n' "$2" \
		>"$debian_root/$1/etc/apt/preferences.d/experimental"
}

# Each suite is made once, and unpacked from then on: other targets of this checkout begin with the same.
debian_bootstrap()
{
	archive=$sweep_top/tmp_cache/debian-$2.tar
	if test -e "$archive"
	then
		mkdir "$debian_root/$1"
		tar -xf "$archive" -C "$debian_root/$1"
		return
	fi
	# shellcheck disable=SC2086 # several options
	debootstrap --variant=minbase ${DEBOOTSTRAP_OPTIONS-} "$2" "$debian_root/$1" "$(debian_mirror)" \
		/usr/share/debootstrap/scripts/sid >"$debian_root/$1.log" 2>&1 ||
		{ tail "$debian_root/$1.log" >&2; sweep_say "debootstrap $2 failed"; return 1; }
	mkdir -p "$sweep_top/tmp_cache"
	tar -cf "$archive.new" --one-file-system -C "$debian_root/$1" . && mv "$archive.new" "$archive"
}

debian_create()
{
	base=$2
	test "$2" != experimental || base=sid
	command -v debootstrap >/dev/null ||
		{ apt-get update -q && apt-get install -y -q debootstrap; } </dev/null >&2 || return 1
	sweep_say "installing Debian $2 in $debian_root/$1"
	if ! test -x "$debian_root/$1/usr/bin/apt-get"
	then
		test -n "$(debian_mirror)" || { sweep_say "apt here knows no Debian mirror; set MIRROR"; return 1; }
		rm -rf --one-file-system "${debian_root:?}/$1"
		debian_bootstrap "$1" "$base" || return 1
	fi
	debian_copy_network_settings "$debian_root/$1"
	test "$2" = "$base" || debian_add_experimental "$1" "$3"
	debian_inside "$1" 'apt-get update -q' >>"$debian_root/$1.log" 2>&1 ||
		{ tail "$debian_root/$1.log" >&2; sweep_say "apt-get update in $1 failed"; return 1; }
	debian_mount "$1"
}

debian_copy_sources()
{
	mkdir -p "$debian_root/$1/build"
	find "$debian_root/$1/build" -mindepth 1 -maxdepth 1 ! -name 'tmp_*' -exec rm -rf {} +
	tar -cf - --exclude='./tmp_*' --exclude=./.git --exclude='*.o' --exclude='*.so' --exclude='*.d' . |
		tar -xf - -C "$debian_root/$1/build"
}

# PGXS wants LLVM to compile bitcode, which is not made here: an empty package says that it is there, and
# saves 1 GB. Nor is what can be made again worth waiting for the disk.
debian_install_server()
{
	root=$debian_root/$1
	llvm=$(debian_inside "$1" "apt-cache depends postgresql-server-dev-$1" |
		sed -n 's/^ *Depends: \(clang-[0-9.]*\|llvm-[0-9.]*-dev\)$/\1/p' | paste -s -d , -)
	mkdir -p "$root/tmp/no-llvm/DEBIAN" "$root/etc/postgresql-common"
	printf '%s\n' 'Package: no-llvm' 'Version: 1' 'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \
		"Provides: ${llvm:-no-clang}" 'Description: empty' >"$root/tmp/no-llvm/DEBIAN/control"
	echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
	echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
	debian_inside "$1" "cd /tmp; dpkg-deb --build no-llvm; dpkg -i no-llvm.deb
		apt-get install -y -q --no-install-recommends postgresql-$1 postgresql-server-dev-$1" >>"$root.log" 2>&1 ||
		{ tail "$root.log" >&2; sweep_say "PostgreSQL $1 cannot be installed"; return 1; }
}

debian_create_server()
{
	if test -e "$debian_root/$1/.complete"
	then
		debian_mount "$1"
		return
	fi
	suite=${SUITE:-$(debian_suite_with "postgresql-$1")}
	test -n "$suite" || return 1
	debian_create "$1" "$suite" "postgresql-$1" && debian_install_server "$1"
}
