/*
 * utility.h
 *		Getting out of the way of commands that need a database, or the extension, for themselves.
 */
#ifndef SWEEP_UTILITY_H
#define SWEEP_UTILITY_H

/* Installs the hook; only while the library is loaded at server start. */
extern void sweep_utility_install_hook(void);

#endif							/* SWEEP_UTILITY_H */
