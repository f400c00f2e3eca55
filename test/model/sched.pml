/*
 * sched.pml - scheduler of a database: flag "asked", latch, tick, next_wake; sessions that queue runs (due now or
 * later).  One tick is: take the flag; read the clock; startable_work; start; due_work; end_work, which asks when to
 * wake with the same clock.  UNMENDED_NEXT: with a later one (number 37).
 */
#ifndef NRUN
#define NRUN 2
#endif
#ifndef TMAX
#define TMAX 6
#endif
#define NOTHING 15
byte now = 0;
#define ABSENT 0
#define WAITING 1
#define STARTED 2
#define ENDED 3
byte runs[NRUN]; byte due[NRUN];
bool asked, latch;
bool resting; byte wake_at = NOTHING;
#define MIN(a,b) ((a) < (b) -> (a) : (b))

active [NRUN] proctype session() {
	byte me = _pid;
	atomic { runs[me] = WAITING; if :: due[me] = now :: due[me] = now + 1 :: due[me] = now + 2 fi };       /* commit visible */
	atomic { asked = true };		/* wake_after_commit: under the lock */
	latch = true
	/* its runner ends at any time, or never: not here */
}

active proctype scheduler() {
	byte at, i;
tick:
	atomic { asked = false; at = now };
	/* startable_work: a snapshot and its clock */
	atomic { i = 0; do :: i < NRUN -> if :: runs[i] == WAITING && due[i] <= at -> runs[i] = STARTED :: else fi; i++ :: else -> break od; i = 0 };
	/* start_runs rests for 5 ms, due_work; then end_work: _next_wake() with clock_timestamp() */
	atomic {
		wake_at = NOTHING; i = 0;
		do
		:: i < NRUN ->
#ifndef UNMENDED_NEXT
			/* what was not startable when the tick looked */
			if :: runs[i] == WAITING && due[i] > at -> wake_at = MIN(wake_at, due[i]) :: else fi;
#else
			if :: runs[i] == WAITING && due[i] > now -> wake_at = MIN(wake_at, due[i]) :: else fi;
#endif
			i++
		:: else -> break
		od; i = 0
	};
rest:
	if
	:: asked -> goto tick
	:: else
	fi;
	atomic { resting = true };
	if
	:: latch -> atomic { resting = false; latch = false };
		goto rest
	:: wake_at <= now -> atomic { resting = false; latch = false }; goto tick
	fi
}

active proctype clock() {
	byte i;
	do
	:: now < TMAX -> now++
	:: timeout ->
		if :: now < TMAX -> now++ :: else -> break fi
	od;
	do
	:: i < NRUN -> assert(!(runs[i] == WAITING && due[i] <= now)); i++
	:: else -> break
	od
}
