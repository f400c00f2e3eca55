/*
 * detail.h
 *		The detail of a run: what its steps reported, merged by key.
 */
#ifndef SWEEP_DETAIL_H
#define SWEEP_DETAIL_H

#include "utils/jsonb.h"

/*
 * Merges what one batch reported into the detail of the run: numbers are added, arrays appended (up to SWEEP_DETAIL_MAX_ELEMENTS),
 * objects merged in the same way; any other value replaces the earlier one. The total may be NULL. The result is a new value in that
 * memory context. Raises unless the part is an object.
 */
extern Jsonb *sweep_detail_merge(Jsonb *total, Jsonb *part, MemoryContext context);

/* A JSON value from its text, in the current memory context. */
extern Jsonb *sweep_detail_read(const char *json);

/* Number of elements that an array of the detail keeps, because it is written with every batch. */
#define SWEEP_DETAIL_MAX_ELEMENTS 32

#endif							/* SWEEP_DETAIL_H */
