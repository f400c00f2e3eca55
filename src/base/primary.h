/*
 * primary.h
 *		What can be done on the primary server only.
 */
#ifndef SWEEP_PRIMARY_H
#define SWEEP_PRIMARY_H

/* Raises while the server is in recovery; the name is that of the SQL function, with its parentheses. */
extern void sweep_primary_require(const char *name);

#endif							/* SWEEP_PRIMARY_H */
