/*
 * known.h
 *		Lists of what is known of databases, roles, consumers, queues or tables, by their number.
 */
#ifndef SWEEP_KNOWN_H
#define SWEEP_KNOWN_H

#include "nodes/pg_list.h"

/*
 * The member of the list with that number, which is its first field, of four bytes. If there is none, one with zeroes is added: it lives in
 * that context, as does the list, unless the caller takes it from the list and frees it.
 */
extern void *sweep_known_find(List **list, uint32 number, Size size, MemoryContext context);

#endif							/* SWEEP_KNOWN_H */
