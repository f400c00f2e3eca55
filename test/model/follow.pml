/*
 * follow.pml - a share whose process goes on with the share that follows it: that process, its slot, and a scheduler that looks at any time.
 * Checked: the share that follows is performed once, whether its process goes on, leaves it to the scheduler, or ends in between.
 * UNMENDED_LATE: the slot keeps its process for the share only when others can see already that it waits.
 * UNMENDED_SILENT: a process that does not go on frees its slot without asking for a look.
 */
bool waits = false;		/* the row of the share that follows is committed */
bool kept = false;		/* the slot keeps its process for it */
bool has = false;		/* the slot is that of it */
bool asked = false;
bool gone = false;		/* the process */
byte done = 0;			/* how often it was performed */

inline leave() {
	atomic {
		kept = false; has = false;
#ifndef UNMENDED_SILENT
		asked = true;
#endif
		gone = true
	}
}

active proctype worker() {
#ifndef UNMENDED_LATE
	kept = true;
#endif
	if
	:: waits = true					/* the commit that ends the share before it */
	:: kept = false; waits = true	/* rolled back, and done again by a transaction that keeps nothing */
	fi;
#ifdef UNMENDED_LATE
	kept = true;
#endif
	if
	:: atomic { kept -> has = true; kept = false };
		if
		:: atomic { done++; assert(done == 1); waits = false }
		:: skip						/* it ends before it has begun the share, or may not begin it */
		fi
	:: skip							/* other runs wait for a process, or it is terminated */
	fi;
	leave()
}

active proctype scheduler() {
	bool listed;

	do
	:: atomic { asked || !gone -> asked = false };
		listed = waits;
		if
		:: atomic { listed && !kept && !has && waits -> done++; assert(done == 1); waits = false }
		:: atomic { !(listed && !kept && !has && waits) -> skip }
		fi
	:: atomic { gone && !asked -> break }
	od;
	assert(done == 1)
}
