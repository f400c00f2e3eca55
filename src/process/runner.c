/*
 * runner.c
 *		The process of a run: connects as the job's owner, performs the run, writes its own result.
 *
 * It is connected as the owner from the beginning, so that the job's SQL has no other identity to go back to. However it ends, an
 * exit callback gives its slot back and the server its locks; if the row still says 'running' then, the run is lost. While more
 * runs wait than there is room for, the process performs further runs of the same role; see base/reuse.c. While no other run
 * waits, it goes on with the next share of its job, without a scheduler or a new process.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/ask.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/processes.h"
#include "base/reuse.h"
#include "base/sql.h"
#include "base/worker.h"
#include "engine/batch.h"
#include "engine/definition.h"
#include "engine/run.h"
#include "engine/run_row.h"
#include "process/crash_note.h"
#include "process/databases.h"
#include "process/runner.h"

static SweepStatement read_run_sql = {
	.text = "SELECT " SWEEP_DEFINITION_OF_RUN
		" FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as WHERE r.run_id = $1 AND r.status = 'waiting'",
	.types = {INT8OID}};
/* The same conditions as those under which a scheduler starts a share. */
static SweepStatement read_follower_sql = {
	.text = "SELECT " SWEEP_DEFINITION_OF_RUN
		" FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as JOIN sweep.job_state s ON s.job = j.name WHERE r.run_id = $1 AND r.status = 'waiting' "
		"AND NOT EXISTS (SELECT FROM sweep.control) AND s.all_paused_at IS NULL AND s.paused_at IS NULL AND s.crashes = 0 AND (NOT s.as_user OR sweep._is_user(r.run_as)) AND r.xmax = 0",
	.types = {INT8OID}};

/* Time for which an idle process waits for another run, and age after which it takes no further run, in us. */
#define IDLE_US INT64CONST(100000)
#define LONGEST_LIFE_US INT64CONST(60000000)

/* While a run is younger than this, in us, a scheduler waits for its end instead of leaving its own process to another run. */
#define YOUNG_US INT64CONST(2000000)

typedef struct RunnerContext
{
	SweepSlot  *slot;
	SweepRun   *run;
	bool		opened;
	bool		found;
	bool		follows;		/* the run is the next share, which the process took itself and not from a scheduler */
	int64		began_us;		/* 0 = not connected yet */
	uint64		login;			/* stamp of the login, see reuse.h; 0 = the process performs one run */
} RunnerContext;

static SweepSlot *next_wanted(void);
static void perform(void);
static void read_work(void *arg);
static bool may_perform_another(void);
static bool go_on(void);
static bool stay(void);
static void forget_run(void);
static bool await_run(void);
static void give_slot_back(int code, Datum arg);

static RunnerContext runner;

SweepRefusal
sweep_runner_start(SweepPool *pool, const SweepRun *run, int64 expected_rows, bool unlimited, bool preferred, bool *started)
{
	SweepWorkerArgs args = {.database = MyDatabaseId, .role = run->run_as, .run_id = run->run_id};
	SweepClaimant claimant = {.role = run->run_as, .unlimited = unlimited, .preferred = preferred, .worker = true, .run_id = run->run_id, .job = run->job};
	SweepRefusal refusal;
	SweepSlot  *slot;
	char		name[BGW_MAXLEN];

	*started = false;
	sweep_shared_lock(LW_EXCLUSIVE);
	refusal = unlimited || sweep_processes_room(run->run_as) > 0 ? REFUSED_NOT : REFUSED_ROLE_PROCESSES;
	slot = refusal == REFUSED_NOT ? sweep_shared_claim(&claimant, &refusal) : NULL;
	sweep_shared_unlock();
	if (slot == NULL)
		return refusal;
	/* The role of the job is gone: the run is ended like a run whose process could not begin, with the reason. */
	if (!OidIsValid(run->run_as))
	{
		sweep_shared_release(slot, false, false);
		return REFUSED_NOT;
	}
	slot->live.estimated_rows = expected_rows;
	slot->definition_size = run->unread ? 0 : sweep_definition_pack(run, slot->definition, sizeof(slot->definition));
	*started = true;
	if (slot->procno != INVALID_PROC_NUMBER)
	{
		sweep_reuse_hand_over(slot);
		return REFUSED_NOT;
	}
	if (pool == NULL)
	{
		sweep_shared_lock(LW_EXCLUSIVE);
		slot->state = SLOT_WANTED;
		slot->launched = true;
		sweep_shared_unlock();
		return REFUSED_NOT;
	}
	args.index = slot - sweep_shared()->slots;
	args.generation = slot->generation;
	snprintf(name, sizeof(name), "pg_sweep runner %s", run->job);
	if (sweep_pool_register(pool, "pg_sweep runner", name, "sweep_runner_main", &args))
		return REFUSED_NOT;
	*started = false;
	sweep_shared_lock(LW_EXCLUSIVE);
	sweep_shared_unclaim(slot);
	sweep_shared_unlock();
	return REFUSED_PROCESSES;
}

bool
sweep_runner_start_wanted(SweepPool *pool)
{
	SweepSlot  *slot;

	while ((slot = next_wanted()) != NULL)
	{
		SweepWorkerArgs args = {.database = slot->database, .role = slot->role, .run_id = slot->run_id, .index = slot - sweep_shared()->slots, .generation = slot->generation};
		char		name[BGW_MAXLEN];

		/* The hold is checked after the slot was claimed, see clear_database() in utility.c. */
		if (sweep_databases_find(args.database) == NULL || sweep_lock_database_is_held(args.database))
		{
			sweep_shared_lock(LW_EXCLUSIVE);
			sweep_shared_unclaim(slot);
			sweep_shared_unlock();
			sweep_ask(args.database);
			continue;
		}
		snprintf(name, sizeof(name), "pg_sweep runner %s", slot->job);
		if (sweep_pool_register(pool, "pg_sweep runner", name, "sweep_runner_main", &args))
			continue;
		sweep_shared_lock(LW_EXCLUSIVE);
		slot->state = SLOT_WANTED;
		sweep_shared_unlock();
		return true;
	}
	return false;
}

/* The slot that has been wanted for longest; from now on it is starting. */
static SweepSlot *
next_wanted(void)
{
	SweepShared *shared = sweep_shared();
	SweepSlot  *next = NULL;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (slot->state == SLOT_WANTED && (next == NULL || slot->generation < next->generation))
			next = slot;
	}
	if (next != NULL)
	{
		next->state = SLOT_STARTING;
		next->claimed_us = sweep_monotonic_us();
	}
	sweep_shared_unlock();
	return next;
}

bool
sweep_runner_any_young(void)
{
	SweepShared *shared = sweep_shared();
	bool		young = false;

	sweep_shared_lock(LW_SHARED);
	for (int i = 0; i < shared->slot_count; i++)
		young |= shared->slots[i].worker && shared->slots[i].consumer_id == 0 && sweep_shared_is_claimed(&shared->slots[i]) && sweep_monotonic_us() - shared->slots[i].claimed_us < YOUNG_US;
	sweep_shared_unlock();
	return young;
}

bool
sweep_runner_is_starting(int index)
{
	const SweepSlot *slot = &sweep_shared()->slots[index];

	return slot->state == SLOT_STARTING && !slot->launched && sweep_shared_has_run(slot);
}

List *
sweep_runner_collect_unopened(const SweepPool *pool, long *starting_ms, bool *waits_on)
{
	SweepShared *shared = sweep_shared();
	List	   *unopened = NIL;

	sweep_shared_lock(LW_EXCLUSIVE);
	for (int i = 0; i < shared->slot_count; i++)
	{
		SweepSlot  *slot = &shared->slots[i];

		if (slot->database != MyDatabaseId)
			continue;
		if (sweep_runner_is_starting(i) && sweep_pool_has_lost(pool, i, slot->claimed_us))
			slot->state = SLOT_UNOPENED;
		if (sweep_runner_is_starting(i))
			*starting_ms = Min(*starting_ms, sweep_pool_patience(slot->claimed_us));
		if (slot->state != SLOT_UNOPENED)
			continue;
		if (slot->waits_on && pg_atomic_read_u32(&slot->stop_request) == 0)
		{
			slot->state = SLOT_FREE;
			*waits_on = true;
		}
		else
			unopened = lappend(unopened, slot);
	}
	sweep_shared_unlock();
	return unopened;
}

void
sweep_runner_fail_start(SweepSlot *slot)
{
	bool		cancelled = (pg_atomic_read_u32(&slot->stop_request) & SWEEP_STOP_REQUEST_CANCEL) != 0;
	Datum		values[] = {
		Int64GetDatum(slot->run_id),
		CStringGetTextDatum(sweep_loop_stop_name(cancelled ? SWEEP_STOP_CANCELLED : SWEEP_STOP_ERROR)), CStringGetTextDatum("08006"),
		PointerGetDatum(cstring_to_text("background worker ended before it began the run\n"
										"HINT: The server log says why; the role must be able to connect to the database."))
	};

	(void) sweep_sql_execute(&sweep_fail_start_sql, values, cancelled ? "  nn" : NULL);
	sweep_shared_lock(LW_EXCLUSIVE);
	slot->state = SLOT_FREE;
	sweep_shared_unlock();
}

/* The note has the name of the job after the run_id, because the row of the run may not have reached the disk. */
static void
note_run(int64 run_id)
{
	int64		note[1 + (sizeof(runner.slot->job) + sizeof(int64) - 1) / sizeof(int64)] = {run_id};

	strlcpy((char *) &note[1], runner.slot->job, sizeof(runner.slot->job));
	sweep_crash_note_write(0, note, lengthof(note));
}

void
sweep_runner_main(Datum arg)
{
	SweepWorkerArgs args;

	sweep_worker_args(&args);
	runner.slot = &sweep_shared()->slots[args.index];
	if (!sweep_shared_attach(runner.slot, args.generation))
		proc_exit(0);
	before_shmem_exit(give_slot_back, 0);
	sweep_worker_begin();
	sweep_worker_connect(args.database, args.role);
	sweep_crash_note_open(NOTE_OF_RUN, args.index);
	runner.login = sweep_reuse_is_wanted() ? sweep_reuse_login_stamp() : 0;
	runner.began_us = sweep_monotonic_us();
	do
		perform();
	while (may_perform_another() && (go_on() || (stay() && await_run())));
	proc_exit(0);
}

static void
perform(void)
{
	ErrorData  *error = NULL;
	int64		run_id = runner.slot->run_id;

	note_run(run_id);
	runner.run = sweep_run_create(TopMemoryContext, runner.slot);
	runner.run->run_id = run_id;
	runner.found = false;
	if (runner.slot->definition_size > 0)
	{
		sweep_definition_unpack(runner.run, runner.slot->definition);
		sweep_extension_assume(&runner.run->extension);
		runner.found = sweep_lock_acquire_number(SWEEP_LOCK_RUN, run_id);
	}
	else if (sweep_batch_transact(runner.run, read_work, &runner, &error) == TXN_FAILED)
		ereport(FATAL,
				(errcode(error->sqlerrcode),
				 errmsg("run %lld could not be read: %s", (long long) run_id, error->message)));
	if (runner.found)
	{
		char		name[NAMEDATALEN + 32];

		/* The process of a share may go on with the next share. */
		if (runner.login == 0 && runner.run->bucket_count > 0)
			runner.login = sweep_reuse_login_stamp();
		snprintf(name, sizeof(name), "pg_sweep: %s #%lld", runner.run->job, (long long) run_id);
		sweep_worker_set("application_name", name);
		sweep_run_perform(runner.run);
		runner.slot->put_back = runner.run->stage == RUN_PUT_BACK;
	}
	sweep_crash_note_clear();
	runner.opened = !runner.found || runner.run->stage == RUN_ENDED || runner.run->reason == SWEEP_STOP_CANCELLED;
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* If the run belongs to another role by now, it is not found, and waits for a process of that role. */
static void
read_work(void *arg)
{
	RunnerContext *context = arg;
	Datum		run_id = Int64GetDatum(context->run->run_id);

	if ((context->follows ? sweep_sql_execute(&read_follower_sql, &run_id, NULL) : sweep_sql_execute(&read_run_sql, &run_id, NULL)) == 0)
		return;
	sweep_definition_read(context->run, 1);
	context->found = context->run->run_as == context->slot->role && sweep_lock_acquire_number(SWEEP_LOCK_RUN, context->run->run_id);
}

static bool
may_perform_another(void)
{
	return runner.login != 0 && runner.opened && runner.run->stage != RUN_PUT_BACK && runner.run->status != NULL && strcmp(runner.run->status, "succeeded") == 0 &&
		sweep_monotonic_us() - runner.began_us <= LONGEST_LIFE_US;
}

/* Whether the process goes on with the next share. The session is cleaned before that run. */
static bool
go_on(void)
{
	runner.follows = runner.slot->follower != 0 && sweep_reuse_login_stamp() == runner.login && sweep_shared_go_on(runner.slot);
	if (!runner.follows)
		return false;
	sweep_worker_discard_session();
	pgstat_report_stat(true);
	forget_run();
	return true;
}

/* Whether the process stays, because a run waits. The session is cleaned then. */
static bool
stay(void)
{
	if (!sweep_reuse_is_wanted())
		return false;
	sweep_worker_discard_session();
	pgstat_report_stat(true);
	sweep_shared_release(runner.slot, true, true);
	forget_run();
	return true;
}

static void
forget_run(void)
{
	MemoryContextDelete(runner.run->context);
	runner.run = NULL;
	runner.opened = false;
}

/*
 * False when no run has come, or when the run needs a new process because its role has changed since this process logged in. The slot
 * is given back then.
 */
static bool
await_run(void)
{
	int64		end_us = sweep_monotonic_us() + IDLE_US;
	SweepReuse	look;

	do
	{
		(void) sweep_worker_wait((long) Max((end_us - sweep_monotonic_us()) / 1000, 1));
		look = sweep_reuse_look(runner.slot, sweep_monotonic_us() >= end_us);
	} while (look == REUSE_NOT_YET);
	if (look == REUSE_LEAVE)
		runner.slot = NULL;
	/* If this process is to end, another process begins the run. */
	CHECK_FOR_INTERRUPTS();
	return look == REUSE_TAKEN && sweep_reuse_login_stamp() == runner.login;
}

/* Registered before the connection is made, so it runs after the locks are released. */
static void
give_slot_back(int code, Datum arg)
{
	sweep_crash_note_close();
	if (runner.slot == NULL)
		return;
	if (runner.run == NULL && runner.began_us != 0)
		sweep_reuse_give_up(runner.slot);
	else
		sweep_shared_release(runner.slot, runner.opened || (runner.run != NULL && runner.run->stage >= RUN_BEGUN), false);
}
