/*
 * elsewhere.h
 *		Whether a transaction commits on other servers as well.
 */
#ifndef SWEEP_ELSEWHERE_H
#define SWEEP_ELSEWHERE_H

/*
 * Whether other servers commit with this transaction, as far as it can be known: those of Citus, and those
 * that a foreign data wrapper or dblink has talked to in this process. Called last in a transaction: where
 * the others can commit in two phases, it has them do so.
 */
extern bool sweep_elsewhere_prepare_commit(void);

#endif							/* SWEEP_ELSEWHERE_H */
