/*
 * consumer.c
 *		The process of a consumer in the database: calls a function for each message of a queue, or each batch of them.
 *
 * Registered by consumer_pool.c and connected as the role of the consumer from the beginning, so that the handler has
 * no other identity to go back to. Its turns are in consumer_turn.c.
 *
 * A claim does not expire while its process lives; the exit callback gives its messages back. Therefore another
 * process never gets a message while its handler works, and gets it at once when the process ends.
 *
 * Contexts: data about the consumer is in TopMemoryContext; "turn" is reset at the top of each turn.
 */
#include "postgres.h"

#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/log_context.h"
#include "base/worker.h"
#include "process/consumer_handle.h"
#include "process/crash_note.h"
#include "process/consumer_turn.h"
#include "queue/queue.h"

static SweepStatement read_consumer_sql = {
	.text = "SELECT c.queue_id, q.name, c.batch, CASE WHEN sweep._handler_problem(c.handler) IS NULL "
		"THEN (sweep._find_handlers(c.handler))[1]::pg_catalog.oid END, "
		"EXISTS (SELECT FROM sweep.consumer_crash x WHERE x.queue_id = c.queue_id), "
		"'sweep.queue_message'::pg_catalog.regclass::pg_catalog.oid, q.visibility "
		"FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE c.consumer_id = $1",
	.types = {INT4OID}};

/* Entry function of the process. Its arguments have the index and generation of the slot, and the consumer_id as run_id. */
extern PGDLLEXPORT void sweep_consumer_main(Datum arg);

static SweepConsumer consumer;

static void read_work(void *arg);
static void prepare_session(void);
static void leave(int code, Datum arg);

void
sweep_consumer_main(Datum arg)
{
	SweepWorkerArgs args;
	ErrorData  *error = NULL;

	sweep_worker_args(&args);
	consumer.slot = &sweep_shared()->slots[args.index];
	consumer.consumer_id = (int32) args.run_id;
	consumer.role = args.role;
	if (!sweep_shared_attach(consumer.slot, args.generation))
		proc_exit(0);
	before_shmem_exit(leave, 0);
	sweep_worker_begin();
	sweep_worker_connect(args.database, args.role);
	sweep_crash_note_open(NOTE_OF_CONSUMER, args.index);

	consumer.turn_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep turn", ALLOCSET_DEFAULT_SIZES);
	consumer.session_context = AllocSetContextCreate(TopMemoryContext, "pg_sweep session", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(consumer.turn_context);
	if (!sweep_consumer_transact(&consumer, read_work, &error))
		ereport(FATAL,
				(errcode(error->sqlerrcode),
				 errmsg("consumer %d could not be read: %s", consumer.consumer_id, error->message)));
	if (consumer.present)
		sweep_log_context_say(psprintf("queue \"%s\"", consumer.queue));
	while (consumer.present && pg_atomic_read_u32(&consumer.slot->stop_request) == 0)
	{
		consumer.count = 0;
		MemoryContextReset(consumer.turn_context);
		MemoryContextSwitchTo(consumer.turn_context);
		sweep_worker_wait(0);	/* handles interrupts, and reloads the configuration */
		prepare_session();
		sweep_consumer_take_turn(&consumer);
	}
	proc_exit(0);
}

static void
read_work(void *arg)
{
	Datum		id = Int32GetDatum(consumer.consumer_id);

	consumer.present = sweep_sql_execute(&read_consumer_sql, &id, NULL) > 0;
	if (!consumer.present)
		return;
	consumer.queue_id = sweep_sql_int32(1);
	consumer.queue = sweep_sql_text(2, TopMemoryContext);
	consumer.batch = sweep_sql_int32(3);
	consumer.handler = sweep_sql_oid(4);
	consumer.has_suspects = sweep_sql_bool(5);
	consumer.relation = sweep_sql_oid(6);
	consumer.visibility_us = sweep_sql_interval_us(7, 0);
	consumer.present = OidIsValid(consumer.handler);
	/* The name as application_name will show it. */
	strlcpy(consumer.name, sweep_worker_ascii(psprintf("pg_sweep: %s", consumer.queue)), sizeof(consumer.name));
}

/* A handler may leave settings behind, so the settings that the engine relies on are set again. A new configuration takes effect in the next turn. */
static void
prepare_session(void)
{
	if (consumer.meaning == NULL || consumer.configured_at != PgReloadTime)
	{
		MemoryContextReset(consumer.session_context);
		sweep_worker_reset_session();
		sweep_worker_set("search_path", "pg_catalog, pg_temp");
		consumer.meaning = sweep_door_note_meaning(consumer.session_context, InvalidOid);
		consumer.configured_at = PgReloadTime;
	}
	sweep_door_put_back(consumer.meaning, consumer.role, GUC_ACTION_SET);
	if (strcmp(application_name, consumer.name) != 0)
		sweep_worker_set("application_name", consumer.name);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * Registered before the connection is made, so it runs after the transaction is rolled back: the messages that the
 * transaction was acknowledging are held again, and are given back here.
 */
static void
leave(int code, Datum arg)
{
	sweep_consumer_release(&consumer);
	if (consumer.queue != NULL)
		sweep_queue_pass_on(consumer.relation, consumer.queue_id);
	sweep_crash_note_close();
	sweep_shared_release(consumer.slot, true, false);
}
