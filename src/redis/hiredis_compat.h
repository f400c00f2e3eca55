/*
 * hiredis_compat.h
 *		The parts of hiredis that are used, and what differs between 0.14 and 1.x.
 *
 * Used are its writer of commands and its reader of replies, never its sockets (see socket.c).
 */
#ifndef SWEEP_REDIS_HIREDIS_COMPAT_H
#define SWEEP_REDIS_HIREDIS_COMPAT_H

#include <hiredis/hiredis.h>

/* 1.0: an array is created with a size_t. */
#if HIREDIS_MAJOR >= 1
typedef size_t SweepRedisElements;
#else
typedef int SweepRedisElements;
#endif

#endif							/* SWEEP_REDIS_HIREDIS_COMPAT_H */
