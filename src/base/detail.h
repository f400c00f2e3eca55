/*
 * detail.h
 *		The detail of a run: what its steps reported, merged by key.
 */
#ifndef SWEEP_DETAIL_H
#define SWEEP_DETAIL_H

#include "utils/jsonb.h"

/*
 * Merges what one batch reported into the detail of the run: numbers are added, arrays appended (up
 * to SWEEP_DETAIL_MAX_ELEMENTS), objects merged in the same way; of anything else the last one stands. The total may be NULL. The result is
 * a new one in that memory context. Raises unless the part is an object.
 */
extern Jsonb *sweep_detail_merge(Jsonb *total, Jsonb *part, MemoryContext context);

/* A JSON value from its text, in the current memory context. */
extern Jsonb *sweep_detail_read(const char *json);

/* An array of the detail keeps its first elements: it is written with every batch. */
#define SWEEP_DETAIL_MAX_ELEMENTS 32

#endif							/* SWEEP_DETAIL_H */
