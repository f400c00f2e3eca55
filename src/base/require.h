/*
 * require.h
 *		Requirements of functions: the primary, no transaction block.
 */
#ifndef SWEEP_REQUIRE_H
#define SWEEP_REQUIRE_H

#include "fmgr.h"

/*
 * Raises while the server is in recovery, and when there is no extension that the library fits; the name is that of the SQL function,
 * with its parentheses.
 */
extern void sweep_require_usable(const char *name);

/* Raises an error inside a transaction block or a function: the procedure of that name commits. */
extern void sweep_require_no_block(FunctionCallInfo fcinfo, const char *name);

#endif							/* SWEEP_REQUIRE_H */
