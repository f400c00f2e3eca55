/*
 * reuse.pml - a runner that stays for another run: scheduler, one slot, and the worker whose slot is idle.
 * Checked: a run that the slot is claimed for is performed once, by it or another one, or recorded as cancelled, whatever the order of
 * hand-over, timeout, termination and the end of a scheduler; nobody touches a slot that is somebody else's.
 * UNMENDED_READY: the worker takes the slot as soon as it is claimed, before its definition is written.
 * UNMENDED_LATE: a worker whose time is over leaves without looking again under the lock.
 */
#ifndef RUNS
#define RUNS 3
#endif
#define FREE 0
#define STARTING 1
#define RUNNING 2
#define UNOPENED 3
#define IDLE 4
#define NOBODY 9

byte state = RUNNING, owner = 0, current = 0;	/* of the slot; owner: the worker that it has, NOBODY = a new one is registered */
bool handed_over, defined, latch, scheduler_latch;
byte done[RUNS + 1];	/* how often a run was performed, left to another worker, or recorded as cancelled */
byte next = 1;			/* the run that waits */
bool old_scheduler;		/* claimed, and ended before it handed over */
bool alive = true;

#define take(r) assert(done[r] == 0); done[r]++

active proctype worker() {
	/* it performs run 0 */
	atomic { done[0]++; state = IDLE; owner = 0; scheduler_latch = true };
	do
	:: true ->
		if
		:: atomic { latch -> latch = false }		/* woken, or a latch that was set for something else */
		:: skip									/* the time is over */
			-> atomic {
				if
#ifdef UNMENDED_LATE
				:: true -> state = FREE; alive = false; goto gone
#else
				:: owner == 0 && state == IDLE -> state = FREE; alive = false; goto gone
				:: else
#endif
				fi };
		:: atomic { true ->						/* terminated */
				alive = false;
				if
				:: owner == 0 && state == IDLE -> state = FREE
				:: owner == 0 && state == STARTING -> state = UNOPENED; scheduler_latch = true
				:: else
				fi; goto gone }
		fi;
		atomic {
			if
			:: owner == 0 && state == STARTING &&
#ifdef UNMENDED_READY
				true
#else
				handed_over
#endif
				-> state = RUNNING; assert(defined)
			:: owner == 0 && (state == IDLE || state == STARTING) -> goto again
			:: else -> alive = false; goto gone		/* given up by a scheduler: not its own any more */
			fi };
		atomic {
			if
			:: take(current); state = IDLE; scheduler_latch = true
			:: alive = false; state = UNOPENED; scheduler_latch = true; goto gone	/* its role has changed since it logged in */
			fi };
again:	skip
	od;
gone: skip
}

active proctype scheduler() {
	do
	:: next > RUNS -> break
	:: atomic { next <= RUNS && state == IDLE -> state = STARTING; current = next; next++; handed_over = false; defined = false };
		if
		:: defined = true; atomic { handed_over = true; latch = true }
		:: old_scheduler = true						/* it ends here; the next one knows nothing of the worker */
		fi
	:: atomic { next <= RUNS && state == FREE -> current = next; next++; owner = NOBODY; take(current); owner = 0; state = FREE }	/* a new worker */
	:: atomic { state == IDLE -> state = FREE; latch = true }		/* there is no room for another worker: it is to leave */
	:: atomic { state == UNOPENED -> take(current); state = FREE; owner = 0 }
	:: atomic { old_scheduler && state == STARTING && owner == 0 && !handed_over -> state = UNOPENED; owner = NOBODY; old_scheduler = false }
	od;
	/* at rest: whoever was claimed for is performed or recorded */
	do
	:: atomic { state == UNOPENED -> take(current); state = FREE; owner = NOBODY }
	:: atomic { old_scheduler && state == STARTING && owner == 0 && !handed_over -> state = UNOPENED; owner = NOBODY; old_scheduler = false }
	:: atomic { !alive && state != UNOPENED && !(old_scheduler && state == STARTING) -> break }
	od;
	assert(state == FREE);
	byte i = 0;
	do :: i <= RUNS -> assert(done[i] == 1); i++ :: else -> break od
}
