/*
 * compat.h
 *		Every difference between server versions, as wrappers with the newest signature, less what is always empty here.
 *
 * Supported are PostgreSQL 15 to 19. Remove a branch when its version is dropped. What has changed, and in which version:
 *
 *	16	ExecInsertIndexTuples		takes onlySummarizing
 *		table_tuple_update			returns TU_UpdateIndexes
 *		stringToQualifiedNameList	takes a place for soft errors
 *		pg_*_aclcheck, pg_*_ownercheck	are object_aclcheck and object_ownercheck
 *		is_member_of_role			is not enough for SET ROLE: member_can_set_role
 *		PgStat_StatTabEntry			has live_tuples instead of n_live_tuples, PgStat_TableStatus id and counts instead of t_id and t_counts
 *	17	LockHeldByMe				takes orstronger
 *		MyProc->pgprocno			is MyProcNumber
 *		WaitEventExtensionNew		is new, and so is BGWORKER_BYPASS_ROLELOGINCHECK
 *	18	index_beginscan				takes a place for statistics
 *		LockAcquireExtended			takes logLockFailure
 *		PortalRun					no longer asks whether it is run once
 *		RelationGetPrimaryKeyIndex	takes deferrable_ok
 *		PG_MODULE_MAGIC_EXT			is new, commands/explain_state.h and explain_format.h as well
 *		pg_noreturn					stands before the declaration; it was pg_attribute_noreturn()
 *	19	pushJsonbValue				takes a JsonbInState and returns nothing
 *		ExecInsertIndexTuples		takes flags, and the rest in another order
 *		index_beginscan, table_beginscan	take flags
 *		table_tuple_delete, table_tuple_update	take options
 *		heap_page_prune_opt			takes a page of the visibility map
 *		QueryDesc.totaltime			is query_instr, and ExecutorStart makes it on request
 *		StatementCancelHandler		is given who sent the signal, as is every handler
 *		standard_conforming_strings	is always on
 *		get_database_name			is declared in utils/lsyscache.h, no more in commands/dbcommands.h
 *		numeric_add_safe			is new; it was numeric_add_opt_error
 */
#ifndef SWEEP_COMPAT_H
#define SWEEP_COMPAT_H

#include "common/string.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "pg_sweep needs PostgreSQL 15 or later"
#endif

/* 17: a process is known by a number of its own type. */
#if PG_VERSION_NUM < 170000
typedef int ProcNumber;
#define INVALID_PROC_NUMBER (-1)
#define MyProcNumber (MyProc->pgprocno)
#endif

/* 17: LockHeldByMe() takes a third argument. */
static inline bool
sweep_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* Takes a lock of the session without waiting; false also where the table of locks is full. 18: says whether to log that. */
static inline bool
sweep_lock_try_quietly(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 180000
	return LockAcquireExtended(tag, mode, true, true, false, NULL, false) != LOCKACQUIRE_NOT_AVAIL;
#else
	return LockAcquireExtended(tag, mode, true, true, false, NULL) != LOCKACQUIRE_NOT_AVAIL;
#endif
}

/* A minor release of each version has made a flag of what was a field. The header is replication/walsender_private.h. */
#ifdef SYNC_STANDBY_DEFINED
#define sweep_sync_standbys_defined() ((((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_status & SYNC_STANDBY_DEFINED) != 0)
#else
#define sweep_sync_standbys_defined() (((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_defined)
#endif

/* 17: a worker may connect as a role without LOGIN. */
#if PG_VERSION_NUM >= 170000
#define SWEEP_CONNECT_FLAGS BGWORKER_BYPASS_ROLELOGINCHECK
#define SWEEP_WORKERS_NEED_LOGIN false
#else
#define SWEEP_CONNECT_FLAGS 0
#define SWEEP_WORKERS_NEED_LOGIN true
#endif

/* 17: extensions name their wait events. */
static inline uint32
sweep_named_wait_event(uint32 *event, const char *name)
{
#if PG_VERSION_NUM >= 170000
	if (*event == 0)
		*event = WaitEventExtensionNew(name);
	return *event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

static inline uint32
sweep_wait_event(void)
{
	static uint32 event = 0;

	return sweep_named_wait_event(&event, "PgSweepMain");
}

static inline uint32
sweep_brake_wait_event(void)
{
	static uint32 event = 0;

	return sweep_named_wait_event(&event, "PgSweepBrake");
}

/* 16: of the statistics of a table, how its OID is called. */
#if PG_VERSION_NUM >= 160000
#define sweep_table_of(status) ((status)->id)
#else
#define sweep_table_of(status) ((status)->t_id)
#endif

/* 16: one function asks for the ownership of any object. */
#if PG_VERSION_NUM >= 160000
#include "catalog/pg_database.h"
#include "catalog/pg_proc.h"
#include "utils/acl.h"
#define sweep_database_is_owned(database, role) \
	object_ownercheck(DatabaseRelationId, (database), (role))
#else
#include "utils/acl.h"
#define sweep_database_is_owned(database, role) \
	pg_database_ownercheck((database), (role))
#endif

/* 16: so does one for any other right. */
static inline void
sweep_check_execute(Oid function, const char *name)
{
#if PG_VERSION_NUM >= 160000
	AclResult	result = object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
	AclResult	result = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, name);
}

static inline bool
sweep_may_connect(Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(DatabaseRelationId, MyDatabaseId, role, ACL_CONNECT) == ACLCHECK_OK;
#else
	return pg_database_aclcheck(MyDatabaseId, role, ACL_CONNECT) == ACLCHECK_OK;
#endif
}

/* 16: to have the rights of a role and to become it are granted apart; before, every member may do both. */
#if PG_VERSION_NUM >= 160000
#define sweep_member_can_set_role(member, role) member_can_set_role((member), (role))
#else
#define sweep_member_can_set_role(member, role) is_member_of_role((member), (role))
#endif

/*
 * 19: takes flags; 16: whether only indexes that summarize need an entry. With EIIT_NO_DUPE_ERROR entries in the indexes
 * that are listed may be duplicates. EIIT_IS_UPDATE is not for us: it is a hint that needs a range table.
 */
#include "executor/executor.h"
#if PG_VERSION_NUM < 190000
#define EIIT_NO_DUPE_ERROR		(1 << 1)
#define EIIT_ONLY_SUMMARIZING	(1 << 2)
#endif
static inline List *
sweep_insert_index_tuples(ResultRelInfo *relation, EState *estate, uint32 flags, TupleTableSlot *slot, List *indexes)
{
#if PG_VERSION_NUM >= 190000
	return ExecInsertIndexTuples(relation, estate, flags, slot, indexes, NULL);
#elif PG_VERSION_NUM >= 160000
	return ExecInsertIndexTuples(relation, slot, estate, false, (flags & EIIT_NO_DUPE_ERROR) != 0, NULL, indexes,
								 (flags & EIIT_ONLY_SUMMARIZING) != 0);
#else
	return ExecInsertIndexTuples(relation, slot, estate, false, (flags & EIIT_NO_DUPE_ERROR) != 0, NULL, indexes);
#endif
}

/* 19: takes flags; 18: a place for statistics. */
#include "access/genam.h"
static inline IndexScanDesc
sweep_index_beginscan(Relation relation, Relation index, Snapshot snapshot, int keys)
{
#if PG_VERSION_NUM >= 190000
	return index_beginscan(relation, index, snapshot, NULL, keys, 0, 0);
#elif PG_VERSION_NUM >= 180000
	return index_beginscan(relation, index, snapshot, NULL, keys, 0);
#else
	return index_beginscan(relation, index, snapshot, keys, 0);
#endif
}

/* 19: takes flags. */
#include "access/tableam.h"
static inline TableScanDesc
sweep_table_beginscan(Relation relation, Snapshot snapshot)
{
#if PG_VERSION_NUM >= 190000
	return table_beginscan(relation, snapshot, 0, NULL, SO_NONE);
#else
	return table_beginscan(relation, snapshot, 0, NULL);
#endif
}

/* 19: takes options. */
static inline TM_Result
sweep_table_tuple_delete(Relation relation, ItemPointer place, CommandId command, Snapshot snapshot, bool wait,
						 TM_FailureData *failure)
{
#if PG_VERSION_NUM >= 190000
	return table_tuple_delete(relation, place, command, 0, snapshot, InvalidSnapshot, wait, failure);
#else
	return table_tuple_delete(relation, place, command, snapshot, InvalidSnapshot, wait, failure, false);
#endif
}

/* 19: takes options. 16: says which indexes need an entry, not only whether any does; maybe only those that summarize. */
#if PG_VERSION_NUM < 160000
typedef enum TU_UpdateIndexes
{
	TU_None,
	TU_All,
	TU_Summarizing
} TU_UpdateIndexes;
#endif
static inline TM_Result
sweep_table_tuple_update(Relation relation, ItemPointer place, TupleTableSlot *slot, CommandId command, Snapshot snapshot,
						 bool wait, TM_FailureData *failure, LockTupleMode *mode, TU_UpdateIndexes *indexes)
{
#if PG_VERSION_NUM >= 190000
	return table_tuple_update(relation, place, slot, command, 0, snapshot, InvalidSnapshot, wait, failure, mode, indexes);
#elif PG_VERSION_NUM >= 160000
	return table_tuple_update(relation, place, slot, command, snapshot, InvalidSnapshot, wait, failure, mode, indexes);
#else
	bool		all = false;
	TM_Result	result = table_tuple_update(relation, place, slot, command, snapshot, InvalidSnapshot, wait, failure, mode, &all);

	*indexes = all ? TU_All : TU_None;
	return result;
#endif
}

/* 19: takes a pin on the visibility map, and whether the query only reads the relation, for which it sets that map. */
#include "access/heapam.h"
#include "storage/bufmgr.h"
static inline void
sweep_heap_page_prune(Relation relation, Buffer buffer)
{
#if PG_VERSION_NUM >= 190000
	Buffer		map = InvalidBuffer;

	heap_page_prune_opt(relation, buffer, &map, false);
	if (BufferIsValid(map))
		ReleaseBuffer(map);
#else
	heap_page_prune_opt(relation, buffer);
#endif
}

/* 19: what is built has a type of its own, and holds the result. */
#include "utils/jsonb.h"
#if PG_VERSION_NUM < 190000
typedef struct JsonbInState
{
	JsonbValue *result;
	JsonbParseState *parseState;
} JsonbInState;
#endif
static inline void
sweep_push_jsonb_value(JsonbInState *state, JsonbIteratorToken token, JsonbValue *value)
{
#if PG_VERSION_NUM >= 190000
	pushJsonbValue(state, token, value);
#else
	state->result = pushJsonbValue(&state->parseState, token, value);
#endif
}

/* 19: the timer of a query is made by the start of its execution, if asked for; before, by who wants to know. */
#include "executor/instrument.h"
static inline void
sweep_start_timed_query(ExecutorStart_hook_type start, QueryDesc *query, int flags)
{
#if PG_VERSION_NUM >= 190000
	query->query_instr_options |= INSTRUMENT_TIMER;
	start(query, flags);
#else
	start(query, flags);
	if (query->totaltime == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(query->estate->es_query_cxt);

		query->totaltime = InstrAlloc(1, INSTRUMENT_TIMER, false);
		MemoryContextSwitchTo(old);
	}
#endif
}

static inline bool
sweep_query_is_timed(const QueryDesc *query)
{
#if PG_VERSION_NUM >= 190000
	return query->query_instr != NULL;
#else
	return query->totaltime != NULL;
#endif
}

/* Of a query that is timed, at its end. */
static inline double
sweep_query_ms(QueryDesc *query)
{
#if PG_VERSION_NUM >= 190000
	return INSTR_TIME_GET_MILLISEC(query->query_instr->total);
#else
	InstrEndLoop(query->totaltime);
	return query->totaltime->total * 1000.0;
#endif
}

/* What a signal handler was given, for another one. 19: also who sent the signal. */
#if PG_VERSION_NUM >= 190000
#define SWEEP_SIGNAL_ARGUMENTS postgres_signal_arg, pg_siginfo
#else
#define SWEEP_SIGNAL_ARGUMENTS postgres_signal_arg
#endif

/*
 * What the statistics say of a table, with what this process has not given to them yet, its transaction in progress
 * included. 16: other names, and what is pending includes the transaction.
 */
#include "pgstat.h"
typedef struct SweepTableCounts
{
	int64		inserted;
	int64		updated;
	int64		live;
} SweepTableCounts;

static inline SweepTableCounts
sweep_count_table(Oid table)
{
	const PgStat_StatTabEntry *told = pgstat_fetch_stat_tabentry(table);
	const PgStat_TableStatus *untold = find_tabstat_entry(table);
	SweepTableCounts counts = {0};

	if (told != NULL)
	{
		counts.inserted = told->tuples_inserted;
		counts.updated = told->tuples_updated;
#if PG_VERSION_NUM >= 160000
		counts.live = told->live_tuples;
#else
		counts.live = told->n_live_tuples;
#endif
	}
	if (untold == NULL)
		return counts;
#if PG_VERSION_NUM >= 160000
	counts.inserted += untold->counts.tuples_inserted;
	counts.updated += untold->counts.tuples_updated;
	counts.live += untold->counts.delta_live_tuples;
#else
	counts.inserted += untold->t_counts.t_tuples_inserted;
	counts.updated += untold->t_counts.t_tuples_updated;
	counts.live += untold->t_counts.t_delta_live_tuples;
	for (const PgStat_TableXactStatus *open = untold->trans; open != NULL; open = open->upper)
	{
		counts.inserted += open->tuples_inserted;
		counts.updated += open->tuples_updated;
	}
#endif
	return counts;
}

/* 19: a backslash in a literal has no meaning, and no setting gives it one. */
#include "parser/parser.h"
#if PG_VERSION_NUM >= 190000
#define sweep_strings_conform() true
#else
#define sweep_strings_conform() standard_conforming_strings
#endif

/* 19: get_database_name() is declared in the first, before in the second. */
#include "commands/dbcommands.h"
#include "utils/lsyscache.h"

/* 18: does not ask any more whether the portal is run once, to its end. Before, it did, and this is the only way we run one. */
#include "tcop/pquery.h"
static inline void
sweep_portal_run_once(Portal portal, DestReceiver *receiver, QueryCompletion *completion)
{
#if PG_VERSION_NUM >= 180000
	(void) PortalRun(portal, FETCH_ALL, true, receiver, receiver, completion);
#else
	(void) PortalRun(portal, FETCH_ALL, true, true, receiver, receiver, completion);
#endif
}

/* 16: takes a place for soft errors. */
#include "utils/regproc.h"
#if PG_VERSION_NUM >= 160000
#define sweep_qualified_name_list(text) stringToQualifiedNameList((text), NULL)
#else
#define sweep_qualified_name_list(text) stringToQualifiedNameList(text)
#endif

/* 18: explain state has a header of its own, and a module may name itself. */
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#define SWEEP_MODULE_MAGIC(name_text, version_text) \
	PG_MODULE_MAGIC_EXT(.name = name_text, .version = version_text)
#else
#define SWEEP_MODULE_MAGIC(name_text, version_text) PG_MODULE_MAGIC
#endif

/* 18: whether a deferrable primary key will do. */
#if PG_VERSION_NUM >= 180000
#define sweep_primary_key_index(relation) RelationGetPrimaryKeyIndex((relation), false)
#else
#define sweep_primary_key_index(relation) RelationGetPrimaryKeyIndex(relation)
#endif

/* pg_attribute_noreturn(), behind the declaration, until 17. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn __attribute__((noreturn))
#endif

/*
 * The set of events of a session and its client, and whether the client is still there. libpq/libpq.h has
 * them, but it includes a header of GSSAPI, which the packages of the server's headers do not bring along.
 */
#define SWEEP_CLIENT_SOCKET_POS 0	/* FeBeWaitSetSocketPos */
extern PGDLLIMPORT WaitEventSet *FeBeWaitSet;
extern bool pq_check_connection(void);

/* NULL when the sum is out of range. */
#include "utils/numeric.h"
#if PG_VERSION_NUM >= 190000
#include "nodes/miscnodes.h"
#endif
static inline Numeric
sweep_numeric_add(Numeric left, Numeric right)
{
#if PG_VERSION_NUM >= 190000
	ErrorSaveContext context = {.type = T_ErrorSaveContext};

	return numeric_add_safe(left, right, (Node *) &context);
#else
	bool		overflow = false;
	Numeric		sum = numeric_add_opt_error(left, right, &overflow);

	return overflow ? NULL : sum;
#endif
}

#endif							/* SWEEP_COMPAT_H */
