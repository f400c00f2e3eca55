/*
 * known.h
 *		Lists of what a process knows of databases, roles, consumers or queues, by their number.
 */
#ifndef SWEEP_KNOWN_H
#define SWEEP_KNOWN_H

#include "postgres.h"
#include "nodes/pg_list.h"

/*
 * The member of the list with that number, which is its first field, of four bytes. If there is none, one with zeroes is
 * added; it lives as long as the process, unless the caller takes it from the list and frees it.
 */
extern void *sweep_known_find(List **list, uint32 number, Size size);

#endif							/* SWEEP_KNOWN_H */
