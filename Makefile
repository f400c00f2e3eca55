# pg_sweep and pg_sweep_gitlab: a module and an install script each; scripts from explicit lists.
# "make help" says what there is to do. Everything about servers, tests and
# packages is in test/bin; this file only names it.

EXTENSION = pg_sweep gitlab/pg_sweep_gitlab
MODULE_big = pg_sweep
SWEEP_VERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" pg_sweep.control)
PGFILEDESC = "pg_sweep - scheduled batch jobs inside the database"

# The rooms of the house, lower ones first: a file uses its own room and those before it
# (test/bin/check-rooms). A file that is in a room is built.
ROOMS = pure cron base job queue bucket engine makers api process
SOURCES = $(sort $(foreach room,$(ROOMS),$(wildcard src/$(room)/*.c))) src/pg_sweep.c
OBJS = $(SOURCES:.c=.o)

# Everything that talks to Redis is a module of its own, loaded when a job needs
# it; WITH_REDIS=no builds and installs without. TLS needs hiredis 1.0 with its
# hiredis_ssl, and the headers of OpenSSL.
WITH_REDIS ?= yes
REDIS_MODULE = pg_sweep_redis
REDIS_SOURCES = $(sort $(wildcard src/redis/*.c))
# the one file that is in both modules
REDIS_OBJS = $(REDIS_SOURCES:.c=.o) src/pure/redis_url.o

# The jobs of GitLab are an extension of their own, in a folder of their own.
GITLAB_MODULE = pg_sweep_gitlab
GITLAB_SOURCES = $(sort $(wildcard gitlab/*.c))
GITLAB_OBJS = $(GITLAB_SOURCES:.c=.o)

# The install scripts are these parts, in the order in which they depend on each
# other.
INSTALL_PARTS = \
	src/base/types.sql \
	src/base/library.sql \
	src/job/schedule.sql \
	src/job/job.sql \
	src/job/sql_job.sql \
	src/job/job_kind.sql \
	src/job/run_settings.sql \
	src/job/job_check.sql \
	src/job/job_api.sql \
	src/engine/crashes.sql \
	src/engine/run.sql \
	src/engine/run_due.sql \
	src/engine/run_end.sql \
	src/engine/hooks.sql \
	src/bucket/bucket.sql \
	src/bucket/range.sql \
	src/engine/quarantine.sql \
	src/queue/queue.sql \
	src/queue/admin.sql \
	src/queue/message.sql \
	src/queue/look.sql \
	src/queue/wait.sql \
	src/engine/alerts.sql \
	src/process/consumer.sql \
	src/process/capacity.sql \
	src/queue/once.sql \
	src/makers/ranges.sql \
	src/makers/keys.sql \
	src/makers/make_job.sql \
	src/makers/division.sql \
	src/makers/cascade.sql \
	src/makers/references.sql \
	src/makers/partitions.sql \
	src/makers/removal.sql \
	src/makers/places.sql \
	src/makers/retention.sql \
	src/makers/proof.sql \
	src/makers/delete.sql \
	src/makers/backfill.sql \
	src/makers/batched.sql \
	src/makers/changes.sql \
	src/makers/switch.sql \
	src/makers/switch_run.sql \
	src/makers/copy.sql \
	src/makers/partition_ranges.sql \
	src/makers/make_partition.sql \
	src/makers/empty_default.sql \
	src/makers/create_partitions.sql \
	src/api/wait.sql \
	src/api/cutover.sql \
	src/api/pg_cron.sql \
	src/api/monitor.sql \
	src/api/privileges.sql
GITLAB_PARTS = \
	gitlab/schema.sql \
	gitlab/feature.sql \
	gitlab/check_args.sql \
	gitlab/environments_auto_stop.sql \
	gitlab/ci_stuck_builds.sql \
	gitlab/ci_runners_stale_machines_cleanup.sql \
	gitlab/batched_git_ref_updates_cleanup_scheduler.sql \
	gitlab/artifact_lists.sql \
	gitlab/ci_bulk_delete_job_artifacts.sql \
	gitlab/install.sql \
	gitlab/privileges.sql
INSTALL_SCRIPT_FILE = pg_sweep--$(SWEEP_VERSION).sql
GITLAB_SCRIPT_FILE = pg_sweep_gitlab--$(SWEEP_VERSION).sql
INSTALL_SCRIPTS = $(INSTALL_SCRIPT_FILE) $(GITLAB_SCRIPT_FILE)
# Released versions, whose install scripts are kept and installed, too: a dump of one is restored into its own objects.
# An update script makes the current objects anew, by the same parts, and converts the rows.
KEPT_SCRIPTS = $(filter-out $(INSTALL_SCRIPTS:%=test/upgrade/%),$(wildcard test/upgrade/pg_sweep*--[0-9]*.sql))
UPGRADE_SCRIPTS = $(patsubst test/upgrade/%.sql,%--$(SWEEP_VERSION).sql,$(KEPT_SCRIPTS))
DATA_built = $(INSTALL_SCRIPTS) $(UPGRADE_SCRIPTS)
DATA = $(KEPT_SCRIPTS)

PG_CPPFLAGS = -Isrc -DSWEEP_VERSION='"$(SWEEP_VERSION)"'
# Servers differ in what their own headers warn about, hence the two -Wno.
# WERROR=yes (make check sets it) turns warnings into errors, and traps where a
# function is given NULL that must not be, as memcpy even for nothing; check-memory has that reported.
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter \
	-Wno-declaration-after-statement -MMD -MP $(if $(WERROR),-Werror \
	$(if $(findstring -fsanitize,$(COPT)),,-fsanitize=nonnull-attribute -fsanitize-undefined-trap-on-error))

# For packagers: make install, preload the library, make installcheck.
GITLAB_REGRESS = $(shell CHECK_ROOM=gitlab test/bin/list-tests regress)
GITLAB_ISOLATION = $(shell CHECK_ROOM=gitlab test/bin/list-tests isolation)
REGRESS = $(filter-out $(GITLAB_REGRESS),$(shell test/bin/list-tests regress))
REGRESS_OPTS = --load-extension=pg_sweep
ISOLATION = $(filter-out $(GITLAB_ISOLATION),$(shell test/bin/list-tests isolation))
ISOLATION_OPTS = --inputdir=test --load-extension=pg_sweep
# For them, too: make prove_installcheck, which installcheck does not do by itself: it takes a quarter of an hour.
PROVE_TESTS ?= test/t/*.pl gitlab/test/t/*.pl

EXTRA_CLEAN = $(SOURCES:.c=.d) $(REDIS_SOURCES:.c=.d) $(REDIS_SOURCES:.c=.o) $(REDIS_MODULE).so \
	$(GITLAB_SOURCES:.c=.d) $(GITLAB_OBJS) $(GITLAB_MODULE).so .build-flags pg_sweep*--*.sql.new

# The targets that bring their own server. They must work before there is a
# pg_config, so they never include PGXS; their scripts call make again for that.
CHECK_PARTS = check-lint check-unit check-model check-regress check-isolation check-tap
HARNESS = help check quick $(CHECK_PARTS) check-fuzz check-cascades check-cost check-mutants check-versions check-versions-tap check-pg-upgrade check-assert check-memory check-bare check-packages check-citus check-dist check-site soak lint unit \
	demo demo-shell demo-stop bench bench-queues drawings dist site prerequisites server-root distclean
export PG_CONFIG ?= pg_config
export WITH_REDIS

ifneq (,$(filter $(HARNESS),$(MAKECMDGOALS)))

.PHONY: $(HARNESS) $(filter-out $(HARNESS),$(MAKECMDGOALS))
.NOTPARALLEL:

help:
	@echo 'make                  build pg_sweep, pg_sweep_gitlab and, unless WITH_REDIS=no, pg_sweep_redis'
	@echo 'make install          install them where $$PG_CONFIG says'
	@echo 'make demo             a private server, GitLab jobs on tables of a million rows'
	@echo 'make demo REDIS=1     the same with buckets in a private Redis'
	@echo 'make demo-shell       psql on it;  make demo-stop  stops it'
	@echo 'make check            every test, on private servers, side by side; installs what is missing (root)'
	@echo 'make quick ROOM=queue unit, regression and isolation tests of one room of src, in seconds'
	@echo 'make check-unit       one part: check-lint, -unit, -regress, -isolation, -tap'
	@echo 'make check-cascades   300 schemas of foreign keys, drawn by lot, through which rows are deleted'
	@echo 'make check-fuzz       200,000 random calls as roles without rights; FUZZ_SEED repeats one'
	@echo 'make check-model      the models of the protocols, the slow ones too (needs spin)'
	@echo 'make soak             faults thrown at a busy server for SOAK_SECONDS (120), looking for what is lost, doubled, stuck'
	@echo 'make check-versions   build, unit, pg_regress and isolation on PostgreSQL 17, 18 and 19 (root, slow)'
	@echo 'make check-versions-tap  the TAP tests there (slower); VERSIONS=19 restricts either'
	@echo 'make check-pg-upgrade pg_upgrade from 15 to 17, 18 and 19 with jobs, runs and messages (root, slow)'
	@echo 'make check-assert     the tests on PostgreSQL 15 and 18 with assertions, built from source (root, slow)'
	@echo 'make check-memory     some of them under valgrind, and with our modules under sanitizers (root, slow)'
	@echo 'make check-bare       make demo and make check-unit on a Debian from nothing (root, slow)'
	@echo 'make check-packages   Debian packages, rpm, extension image: built, installed, tested, removed (root, slow)'
	@echo 'make check-cost       instructions of batches, runs and messages, against the numbers in test/cost'
	@echo 'make check-mutants    wrong changes of the statements of the GitLab jobs, each of which a test has to notice'
	@echo 'make check-citus      on a coordinator and two workers; CITUS_SRC=<archive of Citus>'
	@echo 'make check-dist       make dist, twice, and build, install and test what is in it'
	@echo 'make check-site       make site, and every page of it in a browser (needs npm and Chromium)'
	@echo 'make bench            the benchmarks of doc/performance.md'
	@echo 'make bench-queues     queues against others; PEER_PGMQ=<its SQL file> brings pgmq in'
	@echo 'make drawings         the drawings of doc/drawings from their text (needs npm and Chromium)'
	@echo 'make dist             a release in tmp_dist: tarball, zip for PGXN, checksums'
	@echo 'make site             the documents as pages, in tmp_site (needs npm)'
	@echo 'make installcheck     pg_regress and isolation on an installed, running server'
	@echo 'make prove_installcheck  the TAP tests on an installed server; PROVE_TESTS=test/t/job_lock.pl picks one'
	@echo 'make keep-install-scripts  keeps the install script of a version that is released, for test/t/upgrade.pl'
	@echo 'make clean            removes what was built;  make distclean  the private servers, too'

check $(CHECK_PARTS):
	@test/bin/prerequisites --with-lint
	@$(if $(filter check-model,$@),MODEL_RUNS=all )test/bin/reachable test/bin/check $(patsubst check-%,%,$(filter $@,$(CHECK_PARTS)))

quick: prerequisites
	@ROOM='$(ROOM)' test/bin/reachable test/bin/quick

lint: check-lint
unit: check-unit

# Many more calls than in check, with a seed of their own.
check-fuzz:
	@test/bin/prerequisites
	@TESTS=fuzz FUZZ_CALLS=$${FUZZ_CALLS:-200000} TAP_TIMEOUT=$${TAP_TIMEOUT:-3600} test/bin/reachable test/bin/check tap

check-cascades:
	@test/bin/prerequisites
	@TESTS='cascade_graphs retention_locked' GRAPHS=$${GRAPHS:-300} KILLS=$${KILLS:-50} TAP_TIMEOUT=$${TAP_TIMEOUT:-3600} test/bin/reachable test/bin/check tap

check-versions check-pg-upgrade check-assert check-memory check-bare check-packages check-citus:
	@test/bin/$@
check-versions-tap:
	@PARTS=tap test/bin/check-versions

check-cost check-mutants: prerequisites
	@test/bin/reachable test/bin/$@

check-dist: prerequisites
	@test/bin/check-dist
check-site:
	@test/bin/check-site

soak: server-root
	@test/bin/reachable test/bin/soak

demo: server-root
	@test/bin/reachable test/demo/demo.sh start
demo-shell:
	@test/bin/reachable test/demo/demo.sh shell
demo-stop:
	@test/bin/reachable test/demo/demo.sh stop
bench: server-root
	@test/bin/reachable test/bench/run.sh
bench-queues: server-root
	@test/bin/reachable test/bench/queues.sh

drawings dist site:
	@test/bin/$@

prerequisites:
	@test/bin/prerequisites
server-root: prerequisites
	@test/bin/reachable test/bin/server-root

distclean:
	@test/bin/reachable test/bin/remove-all
	@$(MAKE) --no-print-directory clean

# What else was asked for in the same command ("make clean check").
$(filter-out $(HARNESS),$(MAKECMDGOALS)):
	@$(MAKE) --no-print-directory $@

else

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
# pgxs.mk alone says little: it comes with Debian's client package.
ifeq (,$(shell test -f '$(PGXS)' && test -f "$$($(PG_CONFIG) --includedir-server)/postgres.h" && echo found))

.DEFAULT_GOAL := all
$(sort all $(MAKECMDGOALS)):
	@echo '$(PG_CONFIG) finds no server headers: "make prerequisites" installs them' >&2
	@echo '(as root on Debian or Ubuntu), or set PG_CONFIG to the right pg_config.' >&2
	@false

else

# No bitcode: none of our functions is worth inlining into a query, and jobs run
# without JIT. It also spares a build from needing clang.
override with_llvm = no
include $(PGXS)

# PGXS knows one directory of tests.
.PHONY: installcheck-gitlab
installcheck: installcheck-gitlab
installcheck-gitlab:
	$(pg_regress_installcheck) --inputdir=gitlab/test $(REGRESS_OPTS) $(GITLAB_REGRESS)
	$(pg_isolation_regress_installcheck) $(ISOLATION_OPTS) --inputdir=gitlab/test $(GITLAB_ISOLATION)

# The recipe is that of PGXS; its clusters are of the server that PG_CONFIG names.
.PHONY: prove_installcheck
prove_installcheck: PROVE_FLAGS += -I test/t
prove_installcheck:
	$(prove_installcheck)

# Flags and server are a prerequisite like any source: another one rebuilds.
BUILD_FLAGS = $(CC) $(CFLAGS) $(CPPFLAGS) $(HIREDIS_SSL) $(shell $(PG_CONFIG) --version)
.PHONY: force
.build-flags: force
	@echo '$(subst ','\'',$(BUILD_FLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(BUILD_FLAGS))' >$@
$(OBJS) $(GITLAB_OBJS) $(REDIS_OBJS): .build-flags
-include $(SOURCES:.c=.d) $(GITLAB_SOURCES:.c=.d) $(REDIS_SOURCES:.c=.d)

$(GITLAB_MODULE)$(DLSUFFIX): $(GITLAB_OBJS)
	$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) $(LDFLAGS_SL)
all: $(GITLAB_MODULE)$(DLSUFFIX)
install: install-gitlab
install-gitlab: $(GITLAB_MODULE)$(DLSUFFIX) installdirs
	$(INSTALL_SHLIB) $< '$(DESTDIR)$(pkglibdir)/'
uninstall: uninstall-gitlab
uninstall-gitlab:
	rm -f '$(DESTDIR)$(pkglibdir)/$(GITLAB_MODULE)$(DLSUFFIX)'
.PHONY: install-gitlab uninstall-gitlab

ifneq ($(WITH_REDIS),no)
hash := \#
have_header = $(shell echo '$(hash)include <$(1)>' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 && echo found)
HIREDIS_SSL := $(if $(call have_header,hiredis/hiredis_ssl.h),$(if $(call have_header,openssl/ssl.h),-DSWEEP_HIREDIS_SSL))
ifeq (,$(call have_header,hiredis/hiredis.h))
$(REDIS_SOURCES:.c=.o): | need-hiredis
.PHONY: need-hiredis
need-hiredis:
	@echo 'hiredis is missing: "make prerequisites" installs it (as root on Debian or' >&2
	@echo 'Ubuntu); make WITH_REDIS=no builds without the module for Redis.' >&2
	@false
endif
$(REDIS_SOURCES:.c=.o): override CPPFLAGS += $(HIREDIS_SSL)
$(REDIS_MODULE)$(DLSUFFIX): $(REDIS_OBJS)
	$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) $(LDFLAGS_SL) $(if $(HIREDIS_SSL),-lhiredis_ssl -lssl -lcrypto) -lhiredis
all: $(REDIS_MODULE)$(DLSUFFIX)
install: install-redis
install-redis: $(REDIS_MODULE)$(DLSUFFIX) installdirs
	$(INSTALL_SHLIB) $< '$(DESTDIR)$(pkglibdir)/'
uninstall: uninstall-redis
uninstall-redis:
	rm -f '$(DESTDIR)$(pkglibdir)/$(REDIS_MODULE)$(DLSUFFIX)'
.PHONY: install-redis uninstall-redis
endif

# What stands between two @ in a script of this extension.
put_in = -e 's/@extension@/$(1)/g' -e 's/@version@/$(SWEEP_VERSION)/g'

# Names in the text of functions, and in the search_path that is kept with them, are as they are written.
SCRIPT_SETTING = SET LOCAL quote_all_identifiers = off;
$(INSTALL_SCRIPT_FILE): $(INSTALL_PARTS)
$(GITLAB_SCRIPT_FILE): src/base/library.sql $(GITLAB_PARTS)
$(INSTALL_SCRIPTS): Makefile pg_sweep.control
	@echo 'cat the parts of the install script >$@'
	@{ printf '%s\n' '\echo Use "CREATE EXTENSION $(firstword $(subst --, ,$@))" to load this file. \quit' '$(SCRIPT_SETTING)'; \
	   cat $(filter %.sql,$^); } | sed $(call put_in,$(firstword $(subst --, ,$@))) >$@.new && mv $@.new $@

# Types that functions of users have as arguments; the script of an update leaves them as they are.
KEPT_TYPES = batch progress message
pg_sweep--%--$(SWEEP_VERSION).sql: $(INSTALL_PARTS) upgrade/before.sql upgrade/rows.sql upgrade/after.sql Makefile pg_sweep.control
	@$(call write_upgrade,pg_sweep,sweep,upgrade/rows.sql,$(INSTALL_PARTS))
pg_sweep_gitlab--%--$(SWEEP_VERSION).sql: src/base/library.sql $(GITLAB_PARTS) upgrade/before.sql upgrade/gitlab_rows.sql upgrade/after.sql Makefile pg_sweep.control
	@$(call write_upgrade,pg_sweep_gitlab,sweep_gitlab,upgrade/gitlab_rows.sql,$(GITLAB_PARTS))
comma = ,
empty =
space = $(empty) $(empty)
define write_upgrade
{ printf '%s\n' '\echo Use "ALTER EXTENSION $(1) UPDATE" to load this file. \quit' '$(SCRIPT_SETTING)'; cat src/base/library.sql upgrade/before.sql; \
  sed -E -e '/^CREATE SCHEMA /d' -e '/^CREATE TYPE sweep\.($(subst $(space),|,$(KEPT_TYPES))) AS \(/,/^\);/d' $(4); cat $(3) upgrade/after.sql; } | \
  sed $(put_in) -e 's/@schema@/$(2)/g' -e 's/@kept_types@/$(subst $(space),$(comma),$(KEPT_TYPES))/g' >$@.new && mv $@.new $@
endef

# A version that is released: its install scripts stay as they are, test/t/upgrade.pl compares; updates begin with them.
.PHONY: keep-install-scripts
keep-install-scripts: $(INSTALL_SCRIPTS)
	cp $(INSTALL_SCRIPTS) test/upgrade/
	sed -i "s/^## $(SWEEP_VERSION) (unreleased)/## $(SWEEP_VERSION) ($$(date -u +%F))/" CHANGELOG.md
	sed -i 's/"release_status": "[a-z]*"/"release_status": "stable"/' META.json

endif
endif
