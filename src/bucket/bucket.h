/*
 * bucket.h
 *		What other rooms use of the buckets.
 */
#ifndef SWEEP_BUCKET_H
#define SWEEP_BUCKET_H

#include "bucket/fence.h"
#include "bucket/store.h"

#endif							/* SWEEP_BUCKET_H */
