/*
 * statements.h
 *		The constant statements of the engine.
 */
#ifndef SWEEP_STATEMENTS_H
#define SWEEP_STATEMENTS_H

#include "postgres_ext.h"

/* The constant statements, see the table in statements.c for their texts and parameters. */
typedef enum SweepStatement
{
	SWEEP_SQL_READ_RUN,
	SWEEP_SQL_READ_JOB,
	SWEEP_SQL_INSERT_RUN,
	SWEEP_SQL_START_RUN,
	SWEEP_SQL_SAVE_RUN,
	SWEEP_SQL_SAVE_RUN_BY_KEY,
	SWEEP_SQL_FIND_QUARANTINED,
	SWEEP_SQL_QUARANTINE,
	SWEEP_SQL_UNQUARANTINE,
	SWEEP_SQL_SKIP_RUN,
	SWEEP_SQL_START_CHILDREN,
	SWEEP_SQL_RETRY_RUN,
	SWEEP_SQL_RUN_OUTCOME,
	SWEEP_SQL_TICK,
	SWEEP_SQL_REBOOT,
	SWEEP_SQL_STARTABLE_RUNS,
	SWEEP_SQL_NEXT_WAKE,
	SWEEP_SQL_FAIL_START,
	SWEEP_SQL_ARCHIVE,
	SWEEP_SQL_READ_QUEUE,		/* this and the following: of queues, see sweep_sql_execute */
	SWEEP_SQL_QUEUE_NAME,
	SWEEP_SQL_FIND_QUEUE,
	SWEEP_SQL_SEND_KEY,
	SWEEP_SQL_SEND_KEYS,
	SWEEP_SQL_FREE_KEYS,
	SWEEP_SQL_RETRY_MESSAGE,
	SWEEP_SQL_BURY_MESSAGE,
	SWEEP_SQL_KEEP_DONE,
	SWEEP_SQL_PRUNE_DONE,
	SWEEP_SQL_PREPARED_XIDS,
} SweepStatement;

#define SWEEP_STATEMENT_COUNT (SWEEP_SQL_PREPARED_XIDS + 1)
#define SWEEP_STATEMENT_MAX_PARAMETERS 12

typedef struct SweepStatementText
{
	const char *text;
	int			count;			/* of its parameters */
	Oid			types[SWEEP_STATEMENT_MAX_PARAMETERS];
} SweepStatementText;

extern const SweepStatementText *sweep_statement_text(SweepStatement statement);

#endif							/* SWEEP_STATEMENTS_H */
