/*
 * statement.h
 *		Statements on the table of messages.
 */
#ifndef SWEEP_QUEUE_STATEMENT_H
#define SWEEP_QUEUE_STATEMENT_H

/*
 * Between these two calls, statements on the table of messages are the extension's own: it notes their changes itself.
 * After any other statement, all queues of the database are searched from their start when it commits.
 */
extern void sweep_statement_open(void);
extern void sweep_statement_close(void);

#endif							/* SWEEP_QUEUE_STATEMENT_H */
