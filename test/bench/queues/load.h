/*
 * load.h
 *		What load.c (the connections) and books.c (the loss checker and the
 *		times) share.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stdint.h>

/* What is known about message n of this run. */
typedef enum Fate
{
	FATE_UNKNOWN,				/* not sent, or the connection broke before the answer */
	FATE_SENT,					/* its commit was confirmed */
	FATE_LEFT_OUT,				/* another message with its key waited; it may have been queued at the commit */
	FATE_NEVER					/* it was rolled back */
} Fate;

typedef enum Metric
{
	METRIC_SEND,				/* from the moment it was due to the confirmed commit */
	METRIC_LAG,					/* how late a send began: a producer that cannot keep up */
	METRIC_CLAIM,				/* a claim that found something */
	METRIC_CLAIM_EMPTY,
	METRIC_ACK,
	METRIC_DELAY,				/* from the send to the claim */
	METRIC_COUNT
} Metric;

/* A new message number, and what became of it. */
extern int64_t books_next(void);
extern void books_skip(int64_t count);
extern void books_fate(int64_t n, Fate fate);
/* A consumer got it; gave it back unhandled; had its ack confirmed. */
extern void books_got(int64_t n, int64_t now);
extern void books_returned(int64_t n);
extern void books_acked(int64_t n);

/* The server has crashed before it said whether that was acknowledged; it was when it does not come again. */
extern void books_ack_in_doubt(int64_t n);
/* It is not to come before that. */
extern void books_not_before(int64_t n, int64_t then);
extern void books_fail(const char *what);
/* Somebody works on a message with this key, and nobody else may until he ends. */
extern void books_set_keys(int count);
extern void books_key_begins(int64_t key);
extern void books_key_ends(int64_t key);
/* A consumer's connection broke: what comes twice from now on is expected. */
extern void books_crashed(void);

extern int64_t books_acked_count(void);
/* Is everything that was sent acknowledged, or in doubt? What is in doubt may come again. */
extern bool books_complete(void);

/* A time in microseconds, noted in the slice of `now`. */
extern void books_time(Metric metric, int64_t us, int64_t now);
extern void books_begin(int64_t now, int64_t slice_us);
/*
 * Prints everything, one "name<TAB>value" per line; returns the exit status.
 * The rates are those of `timed` messages sent and of all acknowledged. When
 * nobody was to receive everything, what was not received is not called lost.
 */
extern int	books_report(int64_t timed, double send_seconds, double drain_seconds, bool cut_short);

#endif
