/*
 * range_cursor.h
 *		Cursor and detail of a batch that is a range of keys: JSON objects.
 */
#ifndef SWEEP_RANGE_CURSOR_H
#define SWEEP_RANGE_CURSOR_H

#include "utils/jsonb.h"

/* Merges two objects; either may be NULL. In the current memory context. */
extern Jsonb *sweep_range_merge(Jsonb *a, Jsonb *b);

/* Removes a key from the object; in the current memory context. */
extern Jsonb *sweep_range_without(Jsonb *object, const char *key);

/* The value of a key, in the buffer; NULL when the key is missing, or "object" is no object. */
extern JsonbValue *sweep_range_value(const Jsonb *object, const char *key, JsonbValue *buffer);

/* The text of a key; NULL when there is none. */
extern char *sweep_range_text(const Jsonb *object, const char *key);

/* The number of a key; "otherwise" when there is none. */
extern int64 sweep_range_number(const Jsonb *object, const char *key, int64 otherwise);

#endif							/* SWEEP_RANGE_CURSOR_H */
