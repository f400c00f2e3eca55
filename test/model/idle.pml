/*
 * idle.pml - databases without a scheduler: asking, leaving, and what the launcher remembers. In the end everything that was
 * committed has been looked at, and no scheduler is left.
 *
 * Each atomic block is one section under the lock of shared memory, one transaction, or one look of a session without the lock.
 * Both databases share one bit. mem: what the launcher knows of a database; moment: what a scheduler leaves in its entry.
 *
 * UNMENDED_EARLY: a session asks before its commit is visible. UNMENDED_TAKEBACK: a scheduler takes the flag back after its snapshot.
 * UNMENDED_LEAVE: a scheduler decides that it may leave, and leaves then. UNMENDED_ORDER: the launcher takes the bit before the
 * moments that schedulers have left. UNMENDED_DIED: a scheduler that dies leaves the moment "when asked". UNMENDED_UNKNOWN: a
 * launcher that starts asks for no look. UNMENDED_SHARED: the launcher does not pass a bit on to a scheduler that it has started
 * since: a later commit may have found the bit set.
 */
#ifndef NDB
#define NDB 2
#endif
#ifndef CAP
#define CAP 1			/* so many schedulers */
#endif
#ifndef COMMITS
#define COMMITS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef LAUNCHERS
#define LAUNCHERS 1
#endif
#define FREE 0
#define STARTING 1
#define RUNNING 2
#define LEFT 3
#define WHEN_ASKED 0
#define NOW 1

bool due[NDB];
byte st[NDB]; bool asked[NDB]; byte moment[NDB];
bool flag; bool call;
byte mem[NDB];
byte commits = COMMITS, deaths = DEATHS, launchers = LAUNCHERS;
hidden byte k, n;

inline take_bit() {
	if
	:: flag -> flag = false; k = 0;
		do
#ifdef UNMENDED_SHARED
		:: k < NDB -> if :: st[k] == FREE -> mem[k] = NOW :: else fi; k++
#else
		:: k < NDB -> if :: st[k] == STARTING || st[k] == RUNNING -> asked[k] = true :: else -> mem[k] = NOW fi; k++
#endif
		:: else -> break
		od; k = 0
	:: else
	fi
}
inline take_left() {
	k = 0;
	do
	:: k < NDB -> if :: st[k] == LEFT -> mem[k] = moment[k]; st[k] = FREE; asked[k] = false :: else fi; k++
	:: else -> break
	od; k = 0
}
inline forget() {
	k = 0;
	do
#ifdef UNMENDED_UNKNOWN
	:: k < NDB -> mem[k] = WHEN_ASKED; k++
#else
	:: k < NDB -> mem[k] = NOW; k++
#endif
	:: else -> break
	od; k = 0; call = true
}

active proctype launcher() {
	byte i;
	atomic { forget() };
	do
	:: atomic { call -> call = false;
#ifdef UNMENDED_ORDER
			take_bit(); take_left()
#else
			take_left(); take_bit()
#endif
		};
		i = 0;
		do
		:: i < NDB -> atomic {
				n = 0; k = 0;
				do :: k < NDB -> if :: st[k] == STARTING || st[k] == RUNNING -> n++ :: else fi; k++ :: else -> break od;
				if :: st[i] == FREE && mem[i] == NOW && n < CAP -> st[i] = STARTING :: else fi;
				n = 0; k = 0; i++ }
		:: else -> break
		od; i = 0
	:: atomic { launchers > 0 -> launchers--; i = 0; forget() }
	od
}

active [NDB] proctype scheduler() {
	byte me = _pid - 1;
start:
	atomic { st[me] == STARTING -> st[me] = RUNNING };
tick:
	if
	:: atomic { deaths > 0 -> deaths--; goto died }
	:: true
	fi;
#ifndef UNMENDED_TAKEBACK
	atomic { asked[me] = false };
	atomic { due[me] = false };
#else
	atomic { due[me] = false };
	atomic { asked[me] = false };
#endif
#ifdef UNMENDED_LEAVE
	if :: asked[me] -> goto tick :: else fi;
	atomic { moment[me] = WHEN_ASKED; st[me] = LEFT };
#else
	atomic { if :: asked[me] -> goto tick :: else -> moment[me] = WHEN_ASKED; st[me] = LEFT fi };
#endif
	atomic { call = true; goto start };
died:
	atomic {
#ifdef UNMENDED_DIED
		moment[me] = WHEN_ASKED;
#else
		moment[me] = NOW;
#endif
		st[me] = LEFT };
	atomic { call = true; goto start }
}

active [2] proctype session() {
	byte d;
	do
	:: atomic { commits > 0 -> commits--; d = 0; do :: d < NDB - 1 -> d++ :: break od
#ifndef UNMENDED_EARLY
			; due[d] = true
#endif
		};
		/* without the lock: asked already */
		if
		:: atomic { flag || asked[d] -> skip }
		:: atomic { !(flag || asked[d]) -> skip };
			atomic {
				if
				:: st[d] == STARTING || st[d] == RUNNING -> asked[d] = true; d = d + 16
				:: else -> flag = true
				fi };
			if :: d < 16 -> call = true :: else -> d = d - 16 fi
		fi
#ifdef UNMENDED_EARLY
		; atomic { due[d] = true }
#endif
		; d = 0
	:: break
	od
}

active proctype watch() {
	timeout;
	assert(!due[0] && !due[NDB - 1] && st[0] == FREE && st[NDB - 1] == FREE)
}
