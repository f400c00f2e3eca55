/*
 * standby.h
 *		Whether the commit of a transaction waits for a synchronous standby, and whether that has it.
 */
#ifndef SWEEP_STANDBY_H
#define SWEEP_STANDBY_H

/* How far a standby must have got for the commit of the transaction in progress; SYNC_REP_NO_WAIT: no commit waits. */
extern int	sweep_standby_awaited(void);

/* Whether the last commit of this process has been confirmed by as many standbys as it had to wait for. */
extern bool sweep_standby_has_confirmed(int awaited);

#endif							/* SWEEP_STANDBY_H */
