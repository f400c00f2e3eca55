/*
 * member.h
 *		Makes a role a member of sweep_client in a transaction of its own.
 */
#ifndef SWEEP_MEMBER_H
#define SWEEP_MEMBER_H

/* Entry function of the process that adds it. */
extern PGDLLEXPORT void sweep_member_main(Datum arg);

#endif							/* SWEEP_MEMBER_H */
