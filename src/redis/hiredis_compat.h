/*
 * hiredis_compat.h
 *		The parts of hiredis that are used, and what differs between 0.14 and 1.x.
 */
#ifndef SWEEP_REDIS_HIREDIS_COMPAT_H
#define SWEEP_REDIS_HIREDIS_COMPAT_H

#include <hiredis/hiredis.h>

/* 1.0: an array is created with a size_t, and there is hiredis_ssl. The Makefile looks for its header. */
#if HIREDIS_MAJOR >= 1
typedef size_t SweepRedisElements;
#ifdef SWEEP_HIREDIS_SSL
#define SWEEP_REDIS_TLS
#endif
#else
typedef int SweepRedisElements;
#endif

#endif							/* SWEEP_REDIS_HIREDIS_COMPAT_H */
