/*
 * utility.h
 *		Stops processes that would block commands which need a database, or the extension, exclusively.
 */
#ifndef SWEEP_UTILITY_H
#define SWEEP_UTILITY_H

/* Installs the hook; only while the library is loaded at server start. */
extern void sweep_utility_install_hook(void);

#endif							/* SWEEP_UTILITY_H */
