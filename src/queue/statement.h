/*
 * statement.h
 *		Statements on the table of messages.
 */
#ifndef SWEEP_QUEUE_STATEMENT_H
#define SWEEP_QUEUE_STATEMENT_H

/*
 * Statements on the table of messages between these two are the extension's own, and the changes say what they do.
 * After all others, every queue of the database is searched from its start when they commit.
 */
extern void sweep_statement_open(void);
extern void sweep_statement_close(void);

#endif							/* SWEEP_QUEUE_STATEMENT_H */
