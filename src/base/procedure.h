/*
 * procedure.h
 *		What procedures that end transactions have in common.
 */
#ifndef SWEEP_PROCEDURE_H
#define SWEEP_PROCEDURE_H

#include "fmgr.h"

/* Raises an error inside a transaction block or a function: the procedure of that name commits. */
extern void sweep_procedure_require_no_block(FunctionCallInfo fcinfo, const char *name);

#endif							/* SWEEP_PROCEDURE_H */
