/*
 * slot.pml - runs whose process the launcher starts: CAP processes that schedulers and runs of NDB databases take turns in. In the end
 * every run that was committed is performed once, or recorded as cancelled or failed, and no process is left.
 *
 * Each atomic block is one section under the lock of shared memory, one transaction, or one registration. A process is free again only
 * when the postmaster has reaped it, of which the launcher is told. How a scheduler is asked is modelled in idle.pml.
 *
 * UNMENDED_STAY: a scheduler that finds no process for a run waits in its own. UNMENDED_TOLD: the launcher is told when a process
 * leaves, not when it is reaped. UNMENDED_LOST: the launcher does not look whether what it has started has come up.
 */
#ifndef NDB
#define NDB 2
#endif
#ifndef CAP
#define CAP 1
#endif
#define FREE 0
#define WANTED 1
#define STARTING 2
#define RUNNING 3
#define UNOPENED 4
#define ABSENT 0
#define THERE 1

bool due[NDB];			/* the row of a run waits */
byte slot[NDB];			/* of that run */
byte st[NDB];			/* the scheduler */
bool asked[NDB]; bool call;
byte used;				/* processes, those that have not been reaped as well */
byte done[NDB];
bool dead[NDB];			/* it has ended before it began, and the launcher has its handle */
byte deaths = 1, launchers = 1, cancels = 1, holds = 1;

#define reaped() used--; call = true

active proctype launcher() {
	byte i; bool refused;
	do
	:: atomic { call -> call = false; refused = false };
		i = 0;
		do
		:: i < NDB -> atomic {
				if
				:: slot[i] == WANTED && used < CAP -> used++; slot[i] = STARTING
				:: slot[i] == WANTED && used >= CAP -> refused = true
				:: slot[i] == WANTED && holds > 0 -> holds--; slot[i] = FREE; asked[i] = true; call = true		/* a session holds the database */
#ifndef UNMENDED_LOST
				:: slot[i] == STARTING && dead[i] -> dead[i] = false; slot[i] = UNOPENED; asked[i] = true; call = true
#endif
				:: else
				fi; i++ }
		:: else -> break
		od; i = 0;
		do
		:: i < NDB -> atomic {
				if
				:: !refused && st[i] == ABSENT && asked[i] && used < CAP -> used++; asked[i] = false; st[i] = THERE
				:: else
				fi; i++ }
		:: else -> break
		od; i = 0
	:: atomic { launchers > 0 -> launchers--; call = true }		/* started again: it looks at everything */
	od
}

active [NDB] proctype scheduler() {
	byte me = _pid - 1;
	do
	:: atomic { st[me] == THERE -> skip };
again:	atomic {
			if
			:: slot[me] == UNOPENED -> slot[me] = FREE; if :: due[me] -> due[me] = false; done[me]++ :: else fi
			:: else
			fi;
			if
			:: due[me] && slot[me] == FREE && used < CAP -> used++; slot[me] = STARTING
#ifdef UNMENDED_STAY
			:: due[me] && slot[me] == FREE && used >= CAP -> goto stay
#else
			:: due[me] && slot[me] == FREE && used >= CAP -> slot[me] = WANTED
#endif
			:: else
			fi };
		atomic {
			if
			:: asked[me] && slot[me] != WANTED -> asked[me] = false; goto again
			:: else -> st[me] = ABSENT + 2
			fi
#ifdef UNMENDED_TOLD
			; call = true
#endif
			};
#ifdef UNMENDED_TOLD
		atomic { st[me] = ABSENT; used-- }
#else
		atomic { st[me] = ABSENT; reaped() }
#endif
	od;
stay:
	atomic { used < CAP -> goto again }
}

active [NDB] proctype runner() {
	byte me = _pid - 1 - NDB;
	do
	:: atomic { slot[me] == STARTING && !dead[me] ->
			if
			:: slot[me] = RUNNING
			:: deaths > 0 -> deaths--; dead[me] = true
			fi };
		if
		:: dead[me] -> atomic { reaped() }
		:: else ->
			atomic { if :: due[me] -> due[me] = false; done[me]++ :: else fi };
			atomic { slot[me] = FREE; asked[me] = true; call = true };
			atomic { reaped() }
		fi
	od
}

/* Each starts a run. One of them is cancelled: while no process has it, the row decides. */
active [NDB] proctype session() {
	byte me = _pid - 1 - 2 * NDB;
	atomic { due[me] = true };
	atomic { asked[me] = true; call = true };
	if
	:: atomic { cancels > 0 && (slot[me] == FREE || slot[me] == WANTED) -> cancels-- };
		atomic { if :: due[me] -> due[me] = false; done[me]++ :: else fi; asked[me] = true; call = true }
	:: skip
	fi
}

active proctype watch() {
	byte i;
	do
	:: timeout -> break
	:: atomic { used > CAP -> assert(false) }
	od;
	i = 0;
	do
	:: i < NDB -> assert(!due[i] && done[i] == 1 && slot[i] == FREE); i++
	:: else -> break
	od;
	assert(used == 0)
}
