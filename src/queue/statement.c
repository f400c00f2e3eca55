/*
 * statement.c
 *		SQL statements on the table of messages: the extension's own, and those of others.
 *
 * An SQL function that writes to the table calls a begin function and an end function, which reports the changes; a purge also reports each
 * row that it deletes. A trigger notes any other statement, such as one of a superuser or a restore, and a row trigger the rows that logical
 * replication applies. After those all queues of the database are searched from their start. When the table or the database is dropped,
 * their slots are freed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/extension.h"
#include "base/lock.h"
#include "base/sql.h"
#include "queue/in_flight.h"
#include "queue/queue.h"
#include "queue/table.h"
#include "queue/transaction.h"

/* All rows of a queue, also those that others have committed since the snapshot of the transaction: they would stay for ever. */
static SweepStatement drop_rows_sql = {
	.text = "WITH m AS (DELETE FROM sweep.queue_message m WHERE m.queue_id = $1), d AS (DELETE FROM sweep.queue_dead d WHERE d.queue_id = $1), "
		"k AS (DELETE FROM sweep.queue_done k WHERE k.queue_id = $1), x AS (DELETE FROM sweep.consumer_crash x WHERE x.queue_id = $1) "
		"DELETE FROM sweep.consumer c WHERE c.queue_id = $1",
	.types = {INT4OID},
	.reads_latest = true};

PG_FUNCTION_INFO_V1(sweep_statement_begin);
PG_FUNCTION_INFO_V1(sweep_statement_end);
PG_FUNCTION_INFO_V1(sweep_statement_note_purged);
PG_FUNCTION_INFO_V1(sweep_statement_note_foreign);

/* SQL: sweep._begin_queue_statement(queue_id, alone) */
Datum
sweep_statement_begin(PG_FUNCTION_ARGS)
{
	SweepQueueChange *change;

	sweep_extension_require(sweep_extension_find());
	/* The lock keeps the queue from being dropped meanwhile; its rows would stay for ever. */
	(void) sweep_lock_acquire_queue(PG_GETARG_INT32(0), PG_GETARG_BOOL(1) ? ExclusiveLock : ShareLock, true);
	change = sweep_transaction_change(sweep_queue_relation(), PG_GETARG_INT32(0));
	change->reset_if_undone = true;
	change->own_statements++;
	PG_RETURN_VOID();
}

/* SQL: sweep._note_purged(queue_id, lane, message_id), for each row that a purge deletes */
Datum
sweep_statement_note_purged(PG_FUNCTION_ARGS)
{
	Oid			relation = sweep_queue_relation();
	TransactionId xid = GetTopTransactionId();
	SweepQueueSlot *slot;
	int			number;

	if (!sweep_queue_memory_exists())
		PG_RETURN_VOID();
	sweep_transaction_reserve(1);
	sweep_queue_lock(LW_EXCLUSIVE);
	slot = sweep_queue_find_slot(relation, PG_GETARG_INT32(0));
	number = slot != NULL ? sweep_in_flight_find(slot, PG_GETARG_INT16(1), PG_GETARG_INT64(2)) : -1;
	if (number >= 0)
	{
		sweep_in_flight(number)->purged_by = xid;
		sweep_transaction_note(PENDING_PURGED, number, NULL);
	}
	sweep_queue_unlock();
	if (number >= 0)
		sweep_transaction_change(relation, PG_GETARG_INT32(0))->purged = true;
	PG_RETURN_VOID();
}

/*
 * SQL: sweep._end_queue_statement(queue_id, ready, delayed, dead, first_due, emptied, dropped). With "emptied" the queue is searched
 * from its start; SweepQueueChange.emptied is something else: it is about the whole table. With "dropped" the rows of the queue are deleted.
 */
Datum
sweep_statement_end(PG_FUNCTION_ARGS)
{
	SweepQueueChange *change = sweep_transaction_change(sweep_queue_relation(), PG_GETARG_INT32(0));
	Datum		queue_id = PG_GETARG_DATUM(0);

	if (PG_GETARG_BOOL(6))
	{
		sweep_sql_begin_call();
		(void) sweep_sql_execute(&drop_rows_sql, &queue_id, NULL);
		sweep_sql_end_call();
	}
	change->own_statements--;
	/* When a queue is dropped, prepared transactions that have worked with it have ended; their changes are applied first. */
	sweep_queue_settle_prepared();
	change->rows[0] += PG_GETARG_INT64(1);
	change->rows[1] += PG_GETARG_INT64(2);
	change->dead += PG_GETARG_INT64(3);
	if (!PG_ARGISNULL(4))
		change->first_due = Min(change->first_due, PG_GETARG_TIMESTAMPTZ(4));
	change->reset |= PG_GETARG_BOOL(5);
	change->dropped |= PG_GETARG_BOOL(6);
	PG_RETURN_VOID();
}

/* SQL: a trigger before every statement that writes to sweep.queue_message, and after each row that logical replication applies to it */
Datum
sweep_statement_note_foreign(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("sweep._note_foreign_statement must be called as a trigger")));
	/* Prepared transactions that have worked with the table must have ended, since they held a lock on it. */
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		sweep_queue_settle_prepared();
	if (!sweep_transaction_in_own_statement())
	{
		SweepQueueChange *change = sweep_transaction_change(sweep_queue_relation(), 0);

		change->reset = true;
		if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) && change->relation == RelationGetRelid(trigger->tg_relation))
			change->emptied = true;
	}
	PG_RETURN_POINTER(NULL);
}

void
sweep_queue_note_dropped(Oid database, Oid relation)
{
	if (!sweep_queue_memory_exists())
		return;
	if (OidIsValid(database))
		sweep_transaction_forget_database(database);
	if (OidIsValid(relation) && !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)))
		sweep_transaction_change(relation, 0)->dropped = true;
}
