/*
 * compat.h
 *		Every difference between server versions, as wrappers with the newest signature.
 *
 * Supported are PostgreSQL 15 to 18. Remove a branch when its version is dropped.
 */
#ifndef SWEEP_COMPAT_H
#define SWEEP_COMPAT_H

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

/* 17: a worker may connect as a role without LOGIN. */
#if PG_VERSION_NUM >= 170000
#define SWEEP_CONNECT_FLAGS BGWORKER_BYPASS_ROLELOGINCHECK
#else
#define SWEEP_CONNECT_FLAGS 0
#endif

/* 17: extensions name their wait events. */
static inline uint32
sweep_wait_event(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("PgSweepMain");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* 16: one function asks for the ownership of any object. */
#if PG_VERSION_NUM >= 160000
#include "utils/acl.h"
#include "catalog/pg_database.h"
#include "catalog/pg_proc.h"
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

/* 16: to have the rights of a role and to become it are granted apart; before, every member may do both. */
#if PG_VERSION_NUM >= 160000
#define sweep_member_can_set_role(member, role) member_can_set_role((member), (role))
#else
#define sweep_member_can_set_role(member, role) is_member_of_role((member), (role))
#endif

/* 16: takes a last argument, for updates. Entries in the tolerant indexes may be duplicates. */
#include "executor/executor.h"
#if PG_VERSION_NUM >= 160000
#define sweep_insert_index_tuples(relation, slot, estate, tolerant) \
	ExecInsertIndexTuples((relation), (slot), (estate), false, (tolerant) != NIL, NULL, (tolerant), false)
#else
#define sweep_insert_index_tuples(relation, slot, estate, tolerant) \
	ExecInsertIndexTuples((relation), (slot), (estate), false, (tolerant) != NIL, NULL, (tolerant))
#endif

/* 18: takes a place for statistics. */
#include "access/genam.h"
#if PG_VERSION_NUM >= 180000
#define sweep_index_beginscan(relation, index, snapshot, keys) \
	index_beginscan((relation), (index), (snapshot), NULL, (keys), 0)
#else
#define sweep_index_beginscan(relation, index, snapshot, keys) \
	index_beginscan((relation), (index), (snapshot), (keys), 0)
#endif

/* 16: an update says which indexes need an entry, not only whether any does; maybe only those that summarize. */
#include "access/tableam.h"
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes SweepUpdateIndexes;
#define SWEEP_UPDATE_NO_INDEX TU_None
#define sweep_update_index_tuples(relation, slot, estate, indexes) \
	ExecInsertIndexTuples((relation), (slot), (estate), false, false, NULL, NIL, (indexes) == TU_Summarizing)
#else
typedef bool SweepUpdateIndexes;
#define SWEEP_UPDATE_NO_INDEX false
#define sweep_update_index_tuples(relation, slot, estate, indexes) \
	sweep_insert_index_tuples((relation), (slot), (estate), NIL)
#endif

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

#endif							/* SWEEP_COMPAT_H */
