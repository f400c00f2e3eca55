/*
 * login.h
 *		What a session has read of its role and database when it logged in.
 */
#ifndef SWEEP_LOGIN_H
#define SWEEP_LOGIN_H

#include "postgres.h"

/*
 * Another number once the role as which this process has connected, its database, or a setting of them has changed; never 0.
 * Has a transaction of its own.
 */
extern uint64 sweep_login_stamp(void);

#endif							/* SWEEP_LOGIN_H */
