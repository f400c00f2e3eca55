/*
 * notifier.h
 *		The process that sends the notifications of the queues of a database.
 */
#ifndef SWEEP_NOTIFIER_H
#define SWEEP_NOTIFIER_H

/* With the index and generation of its slot among those of the consumers. */
extern PGDLLEXPORT void sweep_notifier_main(Datum arg);

#endif							/* SWEEP_NOTIFIER_H */
