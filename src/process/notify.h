/*
 * notify.h
 *		Sends the notifications of the queues of a database.
 */
#ifndef SWEEP_NOTIFY_H
#define SWEEP_NOTIFY_H

/*
 * Sends the notifications that may be sent now, in a transaction of its own, and sets lock_timeout back to this value.
 * Returns the milliseconds until the next ones may be sent.
 */
extern long sweep_notify_send(const char *lock_timeout);

/* Whether notifications could not be sent; then the scheduler does not leave. */
extern bool sweep_notify_has_unsent(void);

/* Milliseconds until the scheduler is to look for notifications again, as of the last call of sweep_notify_send(). */
extern long sweep_notify_rest(void);

#endif							/* SWEEP_NOTIFY_H */
