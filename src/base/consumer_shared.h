/*
 * consumer_shared.h
 *		Shared memory of the consumers in the databases: one slot per process.
 */
#ifndef SWEEP_CONSUMER_SHARED_H
#define SWEEP_CONSUMER_SHARED_H

#include "base/compat.h"
#include "base/quota.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/spin.h"

#define SWEEP_CONSUMER_ERROR_SIZE 512

typedef enum SweepConsumerState
{
	CONSUMER_FREE,				/* next: STARTING (scheduler) */
	CONSUMER_STARTING,			/* worker registered; next: RUNNING, FREE */
	CONSUMER_RUNNING,			/* its process is attached; next: FREE */
} SweepConsumerState;

typedef struct SweepConsumerSlot
{
	/* Guarded by the lock: shared to read, exclusive to change. */
	SweepConsumerState state;
	uint64		generation;		/* changes with each claim, so that a slot is not mistaken for its successor */
	Oid			database;
	Oid			role;			/* its process is connected as */
	int32		consumer_id;
	int			pid;			/* 0 until the process is attached */
	ProcNumber	procno;
	TimestampTz claimed_at;		/* shown */
	int64		claimed_us;		/* the same moment, measured */
	/* Set by anybody, read by the process between two turns. */
	pg_atomic_uint32 leave;
	/* The columns of sweep.consumers; guarded by the mutex. */
	slock_t		mutex;
	int64		handled;
	int64		failed;
	char		last_error[SWEEP_CONSUMER_ERROR_SIZE];
} SweepConsumerSlot;

/* Requests the memory, and finds or makes it; only while the server starts, see pg_sweep.c. */
extern void sweep_consumer_shared_request(void);
extern void sweep_consumer_shared_initialize(void);

extern int	sweep_consumer_shared_count(void);
extern SweepConsumerSlot *sweep_consumer_shared_slot(int index);

/* Takes a slot for a worker of this database, or -1, and says what refuses it; unlimited: its role has no share. */
extern int	sweep_consumer_shared_claim(int32 consumer_id, Oid role, bool unlimited, SweepRefusal *refusal);

/* Adds the processes of consumers to what is in use. Returns how many there are that have not started yet. */
extern int	sweep_consumer_shared_add_use(Oid role, SweepUse *use);

/* Takes back a claim that came to nothing. */
extern void sweep_consumer_shared_unclaim(int index);

/* Takes over the slot a worker was started with; false when it is no longer meant. */
extern bool sweep_consumer_shared_attach(int index, uint64 generation);

/* Gives it back and wakes the scheduler of its database. */
extern void sweep_consumer_shared_release(int index);

/* Copies a slot, and returns its use in this database; CONSUMER_FREE when this database does not use it, or there is none of that number. */
extern SweepConsumerState sweep_consumer_shared_look(int index, SweepConsumerSlot *copy);

/* How many processes a consumer of this database has. */
extern int	sweep_consumer_shared_processes(int32 consumer_id);

/*
 * Asks processes of a database to leave: "surplus" of those of one consumer, or all there are when the
 * id is negative.
 */
extern void sweep_consumer_shared_dismiss(Oid database, int32 consumer_id, int surplus);

/* Asks as many consumers of a database to leave as there are, in all databases, beyond pg_sweep.max_consumers. */
extern void sweep_consumer_shared_dismiss_excess(Oid database);

/* Whether a database has such processes. */
extern bool sweep_consumer_shared_any(Oid database);

/* Counts in the slot of this process; error NULL = handled. */
extern void sweep_consumer_shared_note(int index, int64 messages, const char *error);

#endif							/* SWEEP_CONSUMER_SHARED_H */
