# pg_sweep: one module, one install script, both from explicit lists.
# "make help" says what there is to do. Everything about servers, tests and
# packages is in test/bin; this file only names it.

EXTENSION = pg_sweep
MODULE_big = pg_sweep
SWEEP_VERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" pg_sweep.control)
PGFILEDESC = "pg_sweep - scheduled batch jobs inside the database"

# Lower layers first; test/bin/check-lint has the rule and checks it.
SOURCES = \
	src/cron_field.c \
	src/cron_next.c \
	src/cron.c \
	src/loop.c \
	src/bisect.c \
	src/redis_url.c \
	src/detail.c \
	src/settings.c \
	src/role.c \
	src/quota.c \
	src/primary.c \
	src/shared.c \
	src/queue_memory.c \
	src/queue_holder.c \
	src/queue_shared.c \
	src/queue_count.c \
	src/queue_hold.c \
	src/queue_forget.c \
	src/consumer_shared.c \
	src/statements.c \
	src/door.c \
	src/elsewhere.c \
	src/sql.c \
	src/schedule.c \
	src/lease.c \
	src/bucket.c \
	src/worker.c \
	src/turns.c \
	src/function.c \
	src/step.c \
	src/run_row.c \
	src/consumer_note.c \
	src/caller.c \
	src/queue_books.c \
	src/queue_table.c \
	src/queue_search.c \
	src/queue_insert.c \
	src/queue_key.c \
	src/queue_send.c \
	src/queue_claim.c \
	src/queue_done.c \
	src/queue_end.c \
	src/queue_watch.c \
	src/report.c \
	src/guard.c \
	src/unit.c \
	src/share.c \
	src/dispatch.c \
	src/failure.c \
	src/items.c \
	src/gitlab_build.c \
	src/definition.c \
	src/run_args.c \
	src/run.c \
	src/call.c \
	src/preview.c \
	src/runner.c \
	src/queue_wait.c \
	src/consumer_turn.c \
	src/consumer.c \
	src/notifier.c \
	src/consumer_pool.c \
	src/watchdog.c \
	src/scheduler.c \
	src/launcher.c \
	src/utility.c \
	src/pg_sweep.c
OBJS = $(SOURCES:.c=.o)

# Everything that talks to Redis is a module of its own, loaded when a job needs
# it; WITH_REDIS=no builds and installs without. TLS needs the headers of OpenSSL.
WITH_REDIS ?= yes
REDIS_MODULE = pg_sweep_redis
REDIS_SOURCES = \
	src/redis/reply_class.c \
	src/redis/failure.c \
	src/redis/target.c \
	src/redis/tls.c \
	src/redis/socket.c \
	src/redis/connection.c \
	src/redis/bucket_store.c \
	src/redis/pg_sweep_redis.c
# the one file that is in both modules
REDIS_OBJS = $(REDIS_SOURCES:.c=.o) src/redis_url.o

# The install script is these parts, in the order in which they depend on each
# other.
INSTALL_PARTS = \
	src/install/types.sql \
	src/install/schedule.sql \
	src/install/job.sql \
	src/install/job_check.sql \
	src/install/job_api.sql \
	src/install/run.sql \
	src/install/run_due.sql \
	src/install/run_end.sql \
	src/install/bucket.sql \
	src/install/quarantine.sql \
	src/install/queue.sql \
	src/install/queue_admin.sql \
	src/install/queue_message.sql \
	src/install/queue_wait.sql \
	src/install/consumer.sql \
	src/install/once.sql \
	src/install/monitor.sql \
	src/install/feature.sql \
	src/install/gitlab/check_args.sql \
	src/install/gitlab/environments_auto_stop.sql \
	src/install/gitlab/ci_stuck_builds.sql \
	src/install/gitlab/ci_runners_stale_machines_cleanup.sql \
	src/install/gitlab/batched_git_ref_updates_cleanup_scheduler.sql \
	src/install/gitlab/artifact_lists.sql \
	src/install/gitlab/ci_bulk_delete_job_artifacts.sql \
	src/install/gitlab/install.sql \
	src/install/privileges.sql
INSTALL_SCRIPT_FILE = pg_sweep--$(SWEEP_VERSION).sql
DATA_built = $(INSTALL_SCRIPT_FILE)

PG_CPPFLAGS = -DSWEEP_VERSION='"$(SWEEP_VERSION)"'
# Servers differ in what their own headers warn about, hence the two -Wno.
# WERROR=yes (make check sets it) turns warnings into errors, and traps where a
# function is given NULL that must not be, as memcpy even for nothing.
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter \
	-Wno-declaration-after-statement -MMD -MP $(if $(WERROR),-Werror \
	-fsanitize=nonnull-attribute -fsanitize-undefined-trap-on-error)

# For packagers: make install, preload the library, make installcheck.
REGRESS = $(shell test/bin/list-tests regress)
REGRESS_OPTS = --load-extension=pg_sweep
ISOLATION = $(shell test/bin/list-tests isolation)
ISOLATION_OPTS = --inputdir=test --load-extension=pg_sweep

EXTRA_CLEAN = $(SOURCES:.c=.d) $(REDIS_SOURCES:.c=.d) $(REDIS_SOURCES:.c=.o) $(REDIS_MODULE).so .build-flags pg_sweep--*.sql.new

# The targets that bring their own server. They must work before there is a
# pg_config, so they never include PGXS; their scripts call make again for that.
CHECK_PARTS = check-lint check-unit check-model check-regress check-isolation check-tap
HARNESS = help check $(CHECK_PARTS) check-fuzz check-versions check-versions-tap check-bare check-citus soak lint unit \
	demo demo-shell demo-stop bench bench-queues prerequisites server-root distclean
export PG_CONFIG ?= pg_config
export WITH_REDIS

ifneq (,$(filter $(HARNESS),$(MAKECMDGOALS)))

.PHONY: $(HARNESS) $(filter-out $(HARNESS),$(MAKECMDGOALS))
.NOTPARALLEL:

help:
	@echo 'make                  build $(EXTENSION).so and $(INSTALL_SCRIPT_FILE)'
	@echo 'make install          install them where $$PG_CONFIG says'
	@echo 'make demo             a private server, GitLab jobs on tables of a million rows'
	@echo 'make demo REDIS=1     the same with buckets in a private Redis'
	@echo 'make demo-shell       psql on it;  make demo-stop  stops it'
	@echo 'make check            every test, on private servers; installs what is missing (root)'
	@echo 'make check-unit       one part: check-lint, -unit, -regress, -isolation, -tap'
	@echo 'make check-fuzz       200,000 random calls as roles without rights; FUZZ_SEED repeats one'
	@echo 'make check-model      the models of the protocols, the slow ones too (needs spin)'
	@echo 'make soak             faults thrown at a busy server for SOAK_SECONDS (120), looking for what is lost, doubled, stuck'
	@echo 'make check-versions   build, unit, pg_regress and isolation on PostgreSQL 17, 18 and 19 (root, slow)'
	@echo 'make check-versions-tap  the TAP tests there (slower); VERSIONS=19 restricts either'
	@echo 'make check-bare       make demo and make check-unit on a Debian from nothing (root, slow)'
	@echo 'make check-citus      on a coordinator and two workers; CITUS_SRC=<archive of Citus>'
	@echo 'make bench            the benchmarks of doc/performance.md'
	@echo 'make bench-queues     queues against others; PEER_PGMQ=<its SQL file> brings pgmq in'
	@echo 'make installcheck     pg_regress and isolation on an installed, running server'
	@echo 'make clean            removes what was built;  make distclean  the private servers, too'

check $(CHECK_PARTS):
	@test/bin/prerequisites --with-lint
	@$(if $(filter check-model,$@),MODEL_RUNS=all )test/bin/reachable test/bin/check $(patsubst check-%,%,$(filter $@,$(CHECK_PARTS)))

lint: check-lint
unit: check-unit

# Ten times as many calls as in check, with a seed of its own.
check-fuzz:
	@test/bin/prerequisites
	@TESTS=fuzz FUZZ_CALLS=$${FUZZ_CALLS:-200000} TAP_TIMEOUT=$${TAP_TIMEOUT:-3600} test/bin/reachable test/bin/check tap

check-versions check-bare check-citus:
	@test/bin/$@
check-versions-tap:
	@PARTS=tap test/bin/check-versions

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

# Flags and server are a prerequisite like any source: another one rebuilds.
BUILD_FLAGS = $(CC) $(CFLAGS) $(CPPFLAGS) $(REDIS_TLS) $(shell $(PG_CONFIG) --version)
.PHONY: force
.build-flags: force
	@echo '$(subst ','\'',$(BUILD_FLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(BUILD_FLAGS))' >$@
$(OBJS) $(REDIS_OBJS): .build-flags
-include $(SOURCES:.c=.d) $(REDIS_SOURCES:.c=.d)

ifneq ($(WITH_REDIS),no)
hash := \#
have_header = $(shell echo '$(hash)include <$(1)>' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 && echo found)
REDIS_TLS := $(if $(call have_header,openssl/ssl.h),-DSWEEP_REDIS_TLS)
ifeq (,$(call have_header,hiredis/hiredis.h))
$(REDIS_SOURCES:.c=.o): | need-hiredis
.PHONY: need-hiredis
need-hiredis:
	@echo 'hiredis is missing: "make prerequisites" installs it (as root on Debian or' >&2
	@echo 'Ubuntu); make WITH_REDIS=no builds without the module for Redis.' >&2
	@false
endif
$(REDIS_SOURCES:.c=.o): override CPPFLAGS += $(REDIS_TLS)
$(REDIS_MODULE)$(DLSUFFIX): $(REDIS_OBJS)
	$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) $(LDFLAGS_SL) -lhiredis $(if $(REDIS_TLS),-lssl -lcrypto)
all: $(REDIS_MODULE)$(DLSUFFIX)
install: install-redis
install-redis: $(REDIS_MODULE)$(DLSUFFIX) installdirs
	$(INSTALL_SHLIB) $< '$(DESTDIR)$(pkglibdir)/'
uninstall: uninstall-redis
uninstall-redis:
	rm -f '$(DESTDIR)$(pkglibdir)/$(REDIS_MODULE)$(DLSUFFIX)'
.PHONY: install-redis uninstall-redis
endif

$(INSTALL_SCRIPT_FILE): $(INSTALL_PARTS) Makefile pg_sweep.control
	@echo 'cat src/install/... >$@'
	@{ printf '%s\n' '\echo Use "CREATE EXTENSION pg_sweep" to load this file. \quit'; \
	   cat $(filter %.sql,$^); } >$@.new && mv $@.new $@

endif
endif
