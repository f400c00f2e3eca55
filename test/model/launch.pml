/*
 * launch.pml - launcher and schedulers that start, find the extension absent, and leave; sessions that create it.
 * UNMENDED_START: a scheduler that is up does not wake the launcher (number 22). UNMENDED_LEAVE: a session looks and
 * asks in two steps, and who leaves does not look whether he was asked (number 38).
 */
#ifndef NDB
#define NDB 3
#endif
#ifndef MOST_STARTING
#define MOST_STARTING 2
#endif
#define FREE 0
#define STARTING 1
#define RUNNING 2
#define ABSENT_E 3
byte state[NDB]; bool has[NDB]; bool absent[NDB]; bool asked[NDB];
bool rescan, latch; bool launcher_sleeps;
bool created[NDB];
byte starting, d;

active proctype launcher() {
	byte i;
	do
	:: atomic { /* take_news */
		i = 0;
		do :: i < NDB -> if :: state[i] == ABSENT_E -> absent[i] = true; state[i] = FREE :: else fi; i++ :: else -> break od;
		if :: rescan -> rescan = false; i = 0; do :: i < NDB -> absent[i] = false; i++ :: else -> break od :: else fi; i = 0 };
		/* reconcile */
		i = 0;
		do
		:: i < NDB ->
			atomic { starting = 0; d = 0; do :: d < NDB -> if :: state[d] == STARTING -> starting++ :: else fi; d++ :: else -> break od; d = 0;
				if
				:: absent[i] || state[i] != FREE
				:: else -> if :: starting >= MOST_STARTING -> i = NDB - 1 :: else -> state[i] = STARTING fi
				fi; i++ }
		:: else -> break
		od;
		atomic { i = 0; launcher_sleeps = true };
		atomic { latch -> latch = false; launcher_sleeps = false }
	od
}

active [NDB] proctype scheduler() {
	byte me = _pid - 1;
	do
	:: atomic { state[me] == STARTING -> state[me] = RUNNING
#ifndef UNMENDED_START
		; latch = true
#endif
		};
		/* open gate: a snapshot */
		if
		:: atomic { has[me] -> break }
		:: atomic { !has[me] -> skip };
#ifndef UNMENDED_LEAVE	/* who was called meanwhile does not know that it is absent: the launcher starts it again */
			atomic { state[me] = (asked[me] -> FREE : ABSENT_E); asked[me] = false };
#else
			atomic { state[me] = ABSENT_E };	/* leave */
#endif
			latch = true
		fi
	od;
	end: (false)
}

active [NDB] proctype session() {		/* CREATE EXTENSION in some database; wake_after_commit */
	byte me = _pid - 1 - NDB; bool running;
	if
	:: atomic { has[me] = true };		/* visible */
#ifndef UNMENDED_LEAVE	/* looked at and asked under one lock, also while it is starting */
		atomic { running = (state[me] == STARTING || state[me] == RUNNING); if :: running -> asked[me] = true :: else fi };
#else
		atomic { running = (state[me] == STARTING || state[me] == RUNNING) };
#endif
		if
		:: running -> atomic { if :: state[me] == RUNNING -> asked[me] = true :: else fi }
		:: else -> atomic { rescan = true }; latch = true
		fi
	:: skip
	fi
}

active proctype watch() {
	timeout;
	d = 0;
	do :: d < NDB -> assert(!(has[d] && state[d] != RUNNING)); d++ :: else -> break od
}
