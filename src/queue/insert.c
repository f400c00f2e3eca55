/*
 * insert.c
 *		Inserts rows into sweep.queue_message without SQL, many at a time.
 *
 * Called by whoever sends or puts back (send.c, key.c). The rows of a page are one record of the WAL, and
 * nothing is planned or executed. Triggers and defaults do not take part: all columns are filled here.
 * Which indexes there are is asked, so that one that somebody has added is kept up to date.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "queue/insert.h"
#include "queue/table.h"

void
sweep_inserter_open(SweepInserter *inserter, const SweepSendRequest *request)
{
	inserter->request = request;
	inserter->estate = CreateExecutorState();
	inserter->relation = makeNode(ResultRelInfo);
	inserter->sent_at = GetCurrentTransactionStartTimestamp();
	inserter->room = Min(request->count, SWEEP_INSERT_ROWS);
	inserter->filled = 0;
	inserter->slots = palloc(inserter->room * sizeof(TupleTableSlot *));
	InitResultRelInfo(inserter->relation, request->messages, 0, NULL, 0);
	ExecOpenIndices(inserter->relation, false);
	for (int i = 0; i < inserter->room; i++)
		inserter->slots[i] = table_slot_create(request->messages, NULL);
}

void
sweep_inserter_close(SweepInserter *inserter)
{
	for (int i = 0; i < inserter->room; i++)
		ExecDropSingleTupleTableSlot(inserter->slots[i]);
	ExecCloseIndices(inserter->relation);
	FreeExecutorState(inserter->estate);
	pfree(inserter->slots);
}

void
sweep_inserter_add_row(SweepInserter *inserter, int64 message_id, text *key, int number)
{
	const SweepSendRequest *request = inserter->request;
	TupleTableSlot *slot = inserter->slots[inserter->filled++];

	ExecClearTuple(slot);
	memset(slot->tts_isnull, false, MESSAGE_COLUMNS * sizeof(bool));
	slot->tts_values[MESSAGE_ID - 1] = Int64GetDatum(message_id);
	slot->tts_values[MESSAGE_SENT_AT - 1] = TimestampTzGetDatum(inserter->sent_at);
	/* A microsecond apart, so that a search goes on from where it stopped. */
	slot->tts_values[MESSAGE_DUE_AT - 1] = TimestampTzGetDatum(request->due_at + number);
	slot->tts_isnull[MESSAGE_DUE_AT - 1] = !SWEEP_LANE_IS_DELAYED(request->lane);
	slot->tts_values[MESSAGE_QUEUE_ID - 1] = Int32GetDatum(request->queue_id);
	slot->tts_values[MESSAGE_LANE - 1] = Int16GetDatum(request->lane);
	slot->tts_values[MESSAGE_ATTEMPTS - 1] = Int16GetDatum(0);
	slot->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(false);
	slot->tts_values[MESSAGE_KEY - 1] = PointerGetDatum(key);
	slot->tts_isnull[MESSAGE_KEY - 1] = key == NULL;
	slot->tts_values[MESSAGE_HEADERS - 1] = request->headers;
	slot->tts_isnull[MESSAGE_HEADERS - 1] = !request->has_headers;
	slot->tts_isnull[MESSAGE_ERROR - 1] = true;
	slot->tts_values[MESSAGE_PAYLOAD - 1] = request->payloads[number];
	ExecStoreVirtualTuple(slot);
}

void
sweep_inserter_add_again(SweepInserter *inserter, TupleTableSlot *old, bool claimed, int attempts, Jsonb *error)
{
	TupleTableSlot *slot = inserter->slots[inserter->filled++];

	slot_getallattrs(old);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, old->tts_values, MESSAGE_COLUMNS * sizeof(Datum));
	memcpy(slot->tts_isnull, old->tts_isnull, MESSAGE_COLUMNS * sizeof(bool));
	slot->tts_values[MESSAGE_LANE - 1] = Int16GetDatum(inserter->request->lane);
	slot->tts_values[MESSAGE_DUE_AT - 1] = TimestampTzGetDatum(inserter->request->due_at);
	slot->tts_isnull[MESSAGE_DUE_AT - 1] = false;
	slot->tts_values[MESSAGE_CLAIMED - 1] = BoolGetDatum(claimed);
	slot->tts_values[MESSAGE_ATTEMPTS - 1] = Int16GetDatum((int16) Min(attempts, PG_INT16_MAX));
	slot->tts_values[MESSAGE_ERROR - 1] = PointerGetDatum(error);
	slot->tts_isnull[MESSAGE_ERROR - 1] = error == NULL;
	ExecStoreVirtualTuple(slot);
}

void
sweep_inserter_write_rows(SweepInserter *inserter)
{
	table_multi_insert(inserter->request->messages, inserter->slots, inserter->filled, GetCurrentCommandId(true), 0, NULL);
}

bool
sweep_inserter_write_entries(SweepInserter *inserter, int row, Oid index)
{
	List	   *tolerant = OidIsValid(index) ? list_make1_oid(index) : NIL;
	List	   *doubtful = sweep_insert_index_tuples(inserter->relation, inserter->slots[row], inserter->estate, tolerant);

	ResetPerTupleExprContext(inserter->estate);
	return doubtful == NIL;
}

void
sweep_inserter_withdraw(SweepInserter *inserter, int row)
{
	/* A row of the command that is under way cannot be deleted by it. */
	CommandCounterIncrement();
	for (int i = row; i < inserter->filled; i++)
		simple_table_tuple_delete(inserter->request->messages, &inserter->slots[i]->tts_tid, SnapshotAny);
}
