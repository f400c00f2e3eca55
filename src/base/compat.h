/*
 * compat.h
 *		Differences between server versions, as wrappers with the newest signature, without arguments that pg_sweep does not use.
 *
 * Supported are PostgreSQL 15 to 19. Remove a branch when its version is dropped. A wrapper in this file is a macro: the file
 * that uses it includes the header of the server. Wrappers that are functions, or need a type, are in compat_table.h,
 * compat_query.h, compat_statistics.h and compat_value.h. Each says in which version the server has changed. Without a wrapper:
 *
 *	18	disabled_nodes				of a plan is new; before, the cost of what is disabled was raised
 *	19	get_database_name			is declared in utils/lsyscache.h, no more in commands/dbcommands.h: include both
 */
#ifndef SWEEP_COMPAT_H
#define SWEEP_COMPAT_H

#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "pg_sweep needs PostgreSQL 15 or later"
#endif

/* Whether a constraint is enforced, by its form of pg_constraint. 18: it may not be. */
#if PG_VERSION_NUM >= 180000
#define sweep_constraint_enforced(form) ((form)->conenforced)
#else
#define sweep_constraint_enforced(form) ((void) (form), true)
#endif

/* 17: the number of a process has a type of its own. */
#if PG_VERSION_NUM < 170000
typedef int ProcNumber;
#define INVALID_PROC_NUMBER (-1)
#define MyProcNumber (MyProc->pgprocno)
#else
#include "storage/procnumber.h"
#endif

/* Whether this process holds a lock. 17: takes a third argument. */
#if PG_VERSION_NUM >= 170000
#define sweep_lock_held_by_me(tag, mode) LockHeldByMe((tag), (mode), false)
#else
#define sweep_lock_held_by_me(tag, mode) LockHeldByMe((tag), (mode))
#endif

/* Takes a lock of the session without waiting; false also when the lock table is full. 18: takes whether to log a failure. */
#if PG_VERSION_NUM >= 180000
#define sweep_lock_try_quietly(tag, mode) \
	(LockAcquireExtended((tag), (mode), true, true, false, NULL, false) != LOCKACQUIRE_NOT_AVAIL)
#else
#define sweep_lock_try_quietly(tag, mode) (LockAcquireExtended((tag), (mode), true, true, false, NULL) != LOCKACQUIRE_NOT_AVAIL)
#endif

/* A minor release of each version has replaced a field by a flag. The header is replication/walsender_private.h. */
#ifdef SYNC_STANDBY_DEFINED
#define sweep_sync_standbys_defined() ((((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_status & SYNC_STANDBY_DEFINED) != 0)
#else
#define sweep_sync_standbys_defined() (((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_defined)
#endif

/* 17: there is a timeout of transactions. */
#if PG_VERSION_NUM >= 170000
#define sweep_stop_transaction_timeout() disable_timeout(TRANSACTION_TIMEOUT, false)
#define sweep_start_transaction_timeout() \
	do { \
		if (TransactionTimeout > 0) \
			enable_timeout_after(TRANSACTION_TIMEOUT, TransactionTimeout); \
	} while (0)
#else
#define sweep_stop_transaction_timeout() ((void) 0)
#define sweep_start_transaction_timeout() ((void) 0)
#endif

/* 17: a worker may connect as a role without LOGIN. */
#if PG_VERSION_NUM >= 170000
#define SWEEP_CONNECT_FLAGS BGWORKER_BYPASS_ROLELOGINCHECK
#define SWEEP_WORKERS_NEED_LOGIN false
#else
#define SWEEP_CONNECT_FLAGS 0
#define SWEEP_WORKERS_NEED_LOGIN true
#endif

/* The purposes for which a process waits, and the wait events that show them. 17: extensions name their wait events. */
typedef enum SweepWait
{
	SWEEP_WAIT_IDLE,			/* waits for work, or for the end of a run or process */
	SWEEP_WAIT_BRAKE,
	SWEEP_WAIT_LOCK,
	SWEEP_WAIT_REDIS,
	SWEEP_WAIT_QUEUE
} SweepWait;

#if PG_VERSION_NUM >= 170000
static inline uint32
sweep_wait_event(SweepWait wait)
{
	static const char *const names[] = {"PgSweepIdle", "PgSweepBrake", "PgSweepLock", "PgSweepRedis", "PgSweepQueue"};
	static uint32 events[lengthof(names)];

	StaticAssertStmt(lengthof(names) == SWEEP_WAIT_QUEUE + 1, "each purpose has a name");
	if (events[wait] == 0)
		events[wait] = WaitEventExtensionNew(names[wait]);
	return events[wait];
}
#else
#define sweep_wait_event(wait) ((void) (wait), PG_WAIT_EXTENSION)
#endif

/* 16: one function checks the ownership of any kind of object, and one its privileges. */
#if PG_VERSION_NUM >= 160000
#define sweep_database_is_owned(database, role) object_ownercheck(DatabaseRelationId, (database), (role))
#define sweep_extension_is_owned(extension, role) object_ownercheck(ExtensionRelationId, (extension), (role))
#define sweep_may_connect(role) (object_aclcheck(DatabaseRelationId, MyDatabaseId, (role), ACL_CONNECT) == ACLCHECK_OK)
#define sweep_execute_right(function) object_aclcheck(ProcedureRelationId, (function), GetUserId(), ACL_EXECUTE)
#else
#define sweep_database_is_owned(database, role) pg_database_ownercheck((database), (role))
#define sweep_extension_is_owned(extension, role) pg_extension_ownercheck((extension), (role))
#define sweep_may_connect(role) (pg_database_aclcheck(MyDatabaseId, (role), ACL_CONNECT) == ACLCHECK_OK)
#define sweep_execute_right(function) pg_proc_aclcheck((function), GetUserId(), ACL_EXECUTE)
#endif

/* Raises unless the current user may execute a function. */
#define sweep_check_execute(function, name) \
	do { \
		AclResult	right = sweep_execute_right(function); \
		if (right != ACLCHECK_OK) \
			aclcheck_error(right, OBJECT_FUNCTION, (name)); \
	} while (0)

/* 16: INHERIT and SET are granted separately; before, every member has both. */
#if PG_VERSION_NUM >= 160000
#define sweep_member_can_set_role(member, role) member_can_set_role((member), (role))
#else
#define sweep_member_can_set_role(member, role) is_member_of_role((member), (role))
#endif

/* The arguments of a signal handler, passed on to another one. 19: also the sender of the signal. */
#if PG_VERSION_NUM >= 190000
#define SWEEP_SIGNAL_ARGUMENTS postgres_signal_arg, pg_siginfo
#else
#define SWEEP_SIGNAL_ARGUMENTS postgres_signal_arg
#endif

/* 19: standard_conforming_strings is always on. */
#if PG_VERSION_NUM >= 190000
#define sweep_strings_conform() true
#else
#define sweep_strings_conform() standard_conforming_strings
#endif

/* 16: takes an error context for soft errors. */
#if PG_VERSION_NUM >= 160000
#define sweep_qualified_name_list(text) stringToQualifiedNameList((text), NULL)
#else
#define sweep_qualified_name_list(text) stringToQualifiedNameList(text)
#endif

/* 18: a module may name itself. */
#if PG_VERSION_NUM >= 180000
#define SWEEP_MODULE_MAGIC(name_text, version_text) \
	PG_MODULE_MAGIC_EXT(.name = name_text, .version = version_text)
#else
#define SWEEP_MODULE_MAGIC(name_text, version_text) PG_MODULE_MAGIC
#endif

/* Until 17 it is pg_attribute_noreturn(), after the declaration. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn __attribute__((noreturn))
#endif

#endif							/* SWEEP_COMPAT_H */
