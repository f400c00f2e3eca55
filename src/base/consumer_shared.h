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
	Oid			role;			/* that its process is connected as */
	int32		consumer_id;
	int			pid;			/* 0 until the process is attached */
	ProcNumber	procno;
	TimestampTz claimed_at;		/* wall clock, shown to users */
	int64		claimed_us;		/* the same moment by the monotonic clock */
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

/* Claims a slot for a worker of this database; -1 and the limit that refuses it otherwise. unlimited: its role has no limit, see quota.h. */
extern int	sweep_consumer_shared_claim(int32 consumer_id, Oid role, bool unlimited, SweepRefusal *refusal);

/* Adds the processes of consumers to "use". Returns how many of them have not started yet. */
extern int	sweep_consumer_shared_add_use(Oid role, SweepUse *use);

/* Takes back a claim whose process could not be started. */
extern void sweep_consumer_shared_unclaim(int index);

/* Attaches a worker to the slot that it was started for; false when the slot has another owner now. */
extern bool sweep_consumer_shared_attach(int index, uint64 generation);

/* Frees the slot and wakes the scheduler of its database. */
extern void sweep_consumer_shared_release(int index);

/* Copies a slot and returns its state; CONSUMER_FREE when this database does not use it, or there is no slot of that number. */
extern SweepConsumerState sweep_consumer_shared_look(int index, SweepConsumerSlot *copy);

/* How many processes a consumer of this database has. */
extern int	sweep_consumer_shared_processes(int32 consumer_id);

/*
 * Asks processes of a database to leave: "surplus" processes of one consumer, or all processes when the id is
 * negative.
 */
extern void sweep_consumer_shared_dismiss(Oid database, int32 consumer_id, int surplus);

/* If all databases together have more consumer processes than pg_sweep.max_consumers, asks as many of this database to leave. */
extern void sweep_consumer_shared_dismiss_excess(Oid database);

/* Whether a database has processes of consumers. */
extern bool sweep_consumer_shared_any(Oid database);

/* Counts messages in the slot of this process as handled, or with an error as failed. */
extern void sweep_consumer_shared_note(int index, int64 messages, const char *error);

#endif							/* SWEEP_CONSUMER_SHARED_H */
