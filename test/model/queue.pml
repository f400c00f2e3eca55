/*
 * queue.pml - one lane of a queue, one index of due times.  Every atomic block is one section under the
 * lock of queue/shared.h, or one event of the transaction manager (a commit becomes visible; a snapshot).
 * Names are those of the code.  Ids are 0..NM-1; times are ticks.
 *
 * UNMENDED_EXPIRY: expiry looks again at a lease with a message that is being ended only if it gave nothing back, and
 * no process notes when that message is held again (number 39).  UNMENDED_TELL: waiting consumers are not woken when a
 * lease ends or a message falls due earlier than they know (number 40).  UNMENDED_ORDER: the changes of a transaction are
 * applied before the messages that it has ended are forgotten.  LEAVES: the client of a waiting consumer goes away;
 * UNMENDED_LEAVES: the consumer then loses a wake-up (number 18).
 */
#ifndef NM
#define NM 2            /* messages */
#endif
#ifndef NC
#define NC 2            /* consumers */
#endif
#ifndef WANTED
#define WANTED 1
#endif
#ifndef TMAX
#define TMAX 4
#endif
#ifndef VISIBILITY
#define VISIBILITY 1    /* of a claim; NOTHING: as a consumer in the database */
#endif
#ifndef VISIBILITY2
#define VISIBILITY2 VISIBILITY
#endif
#ifndef BACKOFF
#define BACKOFF 1
#endif
#define NPL 3           /* leases of a consumer; like a uuid, an index is used by one consumer only */
#define NL 6
#define NOTHING 15

/* rows */
#define NONE 0
#define OPEN 1          /* inserted, not committed */
#define VIS 2
#define DELG 3          /* being removed or put off by an open transaction */
#define GONE 4
byte row[NM]; byte due[NM];
byte untold[NM];        /* ghost: callbacks that are still to tell of the row */
/* holds */
#define FREE 0
#define HELD 1
#define ENDING 2
#define RETURNED 3
byte hold[NM]; byte hlease[NM]; byte hdue[NM];
bool found[NM]; byte fdue[NM];
/* leases */
bool lused[NL]; byte lexp[NL];
/* slot */
bool pending = true; byte position = 0; byte low = NOTHING;
byte due_from = 0; byte due_low = NOTHING; byte next_due = 0;
byte next_expiry = NOTHING;
byte looked_at = NOTHING; byte looked_for = NOTHING;
chan waiting = [NC] of { byte };
bool listed[NC]; bool latch[NC]; bool hung[NC]; bool asleep[NC]; byte until[NC];
bool searching;
byte now = 0; byte next_id = 0;
bool acked[NM];
hidden byte i, j, n, x;        /* of atomic blocks */

#define MIN(a,b) ((a) < (b) -> (a) : (b))

inline wake(count) {
	n = count;
	do
	:: n > 0 && len(waiting) > 0 -> waiting?x; listed[x] = false; latch[x] = true; n--
	:: else -> break
	od
}
/* tell_waiting: the consumers stay in the list, and set their alarms anew */
inline tell(at) {
#ifndef UNMENDED_TELL
	if
	:: at < MIN(next_due, next_expiry) ->
		n = 0;
		do :: n < NC -> if :: listed[n] -> latch[n] = true :: else fi; n++ :: else -> break od;
		n = 0
	:: else
	fi
#else
	skip
#endif
}
inline note_expiry(at) { tell(at); next_expiry = MIN(next_expiry, at) }
inline end_lease(l) {
	if
	:: lused[l] ->
		j = 0;
		do
		:: j < NM && !((hold[j] == HELD || hold[j] == ENDING) && hlease[j] == l) -> j++
		:: else -> break
		od;
		if :: j == NM -> lused[l] = false; lexp[l] = 0 :: else fi
	:: else
	fi;
	j = 0
}
inline give_back(m) { hold[m] = RETURNED; wake(1); end_lease(hlease[m]); hlease[m] = 0 }
inline free_hold(m) { hold[m] = FREE; hdue[m] = 0; end_lease(hlease[m]); hlease[m] = 0 }
hidden byte given;
inline give_back_lease(l) {
	given = 0; i = 0;
	do
	:: i < NM ->
		if :: hold[i] == HELD && hlease[i] == l -> give_back(i); given++ :: else fi; i++
	:: else -> break
	od;
	end_lease(l); i = 0
}
hidden byte k, ne;
inline expire() {
	if
	:: next_expiry <= now ->
		ne = NOTHING; k = 0;
		do
		:: k < NL ->
			if
			:: lused[k] && lexp[k] > now -> ne = MIN(ne, lexp[k])
			:: lused[k] && lexp[k] <= now ->
				give_back_lease(k);
#ifdef UNMENDED_EXPIRY
				if :: given == 0 && lused[k] -> ne = MIN(ne, now + 1) :: else fi
#endif
			:: else
			fi; k++
		:: else -> break
		od;
		next_expiry = ne; k = 0; ne = 0; given = 0
	:: else
	fi
}
inline note_due(d) { tell(d); due_from = MIN(due_from, d); due_low = MIN(due_low, d); next_due = MIN(next_due, d) }

#define ANY_FOUND (found[0] || found[1] || (NM > 2 && found[NM - 1]))
#define ANY_RETURNED (hold[0] == RETURNED || hold[1] == RETURNED || (NM > 2 && hold[NM - 1] == RETURNED))

inline is_ready(me, r, d) {
	d = MIN(next_due, next_expiry);
	if
	:: pending || ANY_FOUND || ANY_RETURNED -> r = true
	:: else ->
		if :: d <= now && d == looked_for && looked_at != NOTHING && now < looked_at + 1 -> d = looked_at + 1 :: else fi;
		r = (d <= now)
	fi
}

/* Whether a message is ready, by its row alone; ghost. */
inline check_quiet() {
	d_step {
	i = 0;
	do
	:: i < NM ->
		if
#ifdef PROP_STUCK	/* no process will look at it again, not even by the heartbeat of a waiting one */
		:: row[i] == VIS && hold[i] == HELD && lused[hlease[i]] && lexp[hlease[i]] <= now -> assert(next_expiry <= now + 1)
#else
		:: row[i] == VIS && (due[i] == 0 || due[i] <= now) && (hold[i] == FREE || hold[i] == RETURNED) ->
			j = 0;
			do :: j < NC -> assert(!(asleep[j] && until[j] > now + 2)); j++ :: else -> break od
		:: row[i] == VIS && hold[i] == HELD && lused[hlease[i]] && lexp[hlease[i]] <= now ->
			j = 0;
			do :: j < NC -> assert(!(asleep[j] && until[j] > now + 2)); j++ :: else -> break od
#endif
		:: else
		fi; i++
	:: else -> break
	od
	}
}

/* Never stepped over: an invariant while no process searches. */
#define KNOWN(m) (found[m] || hold[m] != FREE || (due[m] == 0 && pending && position <= m) || (due[m] != 0 && next_due <= due[m] && due_from <= due[m]))
inline invariant() {
	if
	:: !searching ->
		i = 0;
		do
		:: i < NM -> assert(!(row[i] == VIS && untold[i] == 0 && !KNOWN(i))); i++
		:: else -> break
		od; i = 0
	:: else
	fi
}

active [NM] proctype producer() {
	byte id;
	bool delayed;
	atomic { id = next_id; next_id++; row[id] = OPEN;
#ifdef DELAYED
		if :: due[id] = 0 :: due[id] = now + 1 fi
#endif
	}
	if
	:: atomic { row[id] = VIS; untold[id]++ };
		/* at_transaction_event */
		atomic {
			untold[id]--;
			if
			:: due[id] == 0 -> position = MIN(position, id); low = MIN(low, id); pending = true; wake(1)
			:: else ->
				note_due(due[id]); wake(1)	/* arrived = sent: also those that are not due */
			fi;
			invariant()
		}
#ifndef NO_ROLLBACK
	:: atomic { row[id] = NONE; due[id] = 0 }
#endif
	fi
}

#define SEARCH_NEEDED (pending || next_due <= now)

/* sweep_queue_search; sets worth */
inline search(ahead) {
	worth = true;
	if
	:: atomic { !searching -> searching = true;
			worth = ANY_FOUND || pending || next_due <= now;
			needed = (ahead || !ANY_FOUND) && SEARCH_NEEDED;
			with_due = next_due <= now; s_now = now; s_lane = pending;
			if
			:: needed -> due_low = NOTHING; low = NOTHING; s_pos = position; s_from = due_from
			:: else -> searching = false; with_due = false; s_now = 0; s_lane = false
			fi
		};
		if
		:: needed ->
			atomic {	/* GetLatestSnapshot */
				i = 0;
				do
				:: i < NM -> seen[i] = (row[i] == VIS || row[i] == DELG); sdue[i] = due[i]; hit[i] = false; i++
				:: else -> break
				od; i = 0
#ifdef SPLIT_SCAN
			};
			atomic {	/* the scans */
#else
				;
#endif
				s_next = NOTHING; i = 0;
				do
				:: i < NM ->
					if
					:: with_due && seen[i] && sdue[i] != 0 && sdue[i] >= s_from ->
						if
						:: sdue[i] > s_now -> s_next = MIN(s_next, sdue[i])
						:: sdue[i] <= s_now && row[i] != DELG -> hit[i] = true
						:: else
						fi
					:: s_lane && seen[i] && sdue[i] == 0 && i >= s_pos && row[i] != DELG -> hit[i] = true
					:: else
					fi; i++
				:: else -> break
				od; i = 0;
				/* due_from: the first that is not due yet, else the last that was found; kept lower here, which is more work and as safe */
				if :: with_due && s_next != NOTHING -> s_from = s_next
				   :: with_due && s_next == NOTHING -> i = 0; do :: i < NM -> if :: seen[i] && sdue[i] != 0 && sdue[i] > s_from -> s_from = sdue[i] :: else fi; i++ :: else -> break od; i = 0
				   :: else fi
			};
			atomic {	/* end_search */
				if
				:: s_lane ->
					/* exhausted: behind the last that the snapshot saw */
					i = NM;
					do :: i > s_pos && !(seen[i - 1] && sdue[i - 1] == 0) -> i-- :: else -> break od;
					position = MIN(MIN(NOTHING, (i > s_pos -> i : s_pos)), low);
					if :: low == NOTHING -> pending = false :: else fi
				:: else
				fi;
				if :: with_due -> due_from = MIN(s_from, due_low); next_due = MIN(s_next, due_low) :: else fi;
				i = 0; fc = 0;
				do
				:: i < NM ->
					if :: hit[i] && hold[i] == FREE && !(sdue[i] == 0 && due[i] != 0) -> found[i] = true; fdue[i] = sdue[i] :: else fi;
					if :: found[i] -> fc++ :: else fi;
					hit[i] = false; seen[i] = false; sdue[i] = 0; i++
				:: else -> break
				od; i = 0;
				if :: with_due && fc > WANTED -> wake((fc - 1) / WANTED) :: else fi;
				fc = 0; s_pos = 0; s_from = 0; s_next = 0;
				searching = false; needed = false; with_due = false; s_now = 0; s_lane = false;
				invariant()
			}
		:: else
		fi
#ifdef AHEAD
	:: ahead && searching -> skip
#endif
	:: !ahead && searching -> (!searching)
	fi
}

active [NC] proctype consumer() {
	byte me = _pid - NM;
	byte lease = NOTHING, count, mydue, fc, s_now, s_pos, s_from, s_next;
	bool worth, needed, with_due, s_lane, ready, woken;
	bool seen[NM], hit[NM], mine[NM]; byte sdue[NM];
	byte m;

claim:
	count = 0; worth = true;
	do
	:: count < WANTED && worth ->
		atomic {	/* take */
			expire();
			if :: lease != NOTHING && !lused[lease] -> lease = NOTHING :: else fi;
			m = NM; i = 0;
			do
			:: i < NM && hold[i] == RETURNED && m == NM -> m = i; i++
			:: i < NM && !(hold[i] == RETURNED && m == NM) -> i++
			:: else -> break
			od;
			/* what was found: delayed ones first, then by id; not what is held */
			i = 0;
			do :: i < NM -> if :: found[i] && (hold[i] != FREE || (fdue[i] == 0 && due[i] != 0)) -> found[i] = false; fdue[i] = 0 :: else fi; i++	/* holds and found ones are known by lane and id: of a lane it has left, it is dropped when it is read */ :: else -> break od;
			i = 0;
			do
			:: i < NM && m == NM && found[i] && fdue[i] != 0 -> m = i; i++
			:: i < NM && !(m == NM && found[i] && fdue[i] != 0) -> i++
			:: else -> break
			od;
			i = 0;
			do
			:: i < NM && m == NM && found[i] -> m = i; i++
			:: i < NM && !(m == NM && found[i]) -> i++
			:: else -> break
			od;
			i = 0;
			if
			:: m < NM ->
				if
				:: lease == NOTHING -> lease = NPL * me; do :: lused[lease] -> lease++; assert(lease < NPL * me + NPL) :: else -> break od; lused[lease] = true; lexp[lease] = NOTHING
				:: else
				fi;
				if :: hold[m] != RETURNED -> hdue[m] = fdue[m]; found[m] = false; fdue[m] = 0 :: else fi;
				hold[m] = HELD; hlease[m] = lease
			:: else
			fi
		}
		if
		:: m < NM ->
			atomic {	/* deliver, with a snapshot of its own; its lease has no end yet */
				assert(hold[m] != FREE || true);
				if
				:: (row[m] == VIS || row[m] == DELG) && due[m] == hdue[m] ->
					assert(!acked[m]);
					mine[m] = true; count++
				:: (row[m] == VIS || row[m] == DELG) && due[m] != hdue[m] ->
					/* put off since: sweep_queue_note_due; of a lane that is not delayed the row is gone */
					if :: hdue[m] != 0 -> note_due(due[m]) :: else fi;
					hold[m] = FREE; hdue[m] = 0; hlease[m] = 0
				:: else -> hold[m] = FREE; hdue[m] = 0; hlease[m] = 0
				fi
			}
		:: else -> search(false)
		fi
	:: else -> break
	od;
	atomic {	/* close_claim */
		m = 0;
		if
		:: lease != NOTHING && lused[lease] ->
			lexp[lease] = MIN(now + (me == 0 -> VISIBILITY : VISIBILITY2), NOTHING); note_expiry(lexp[lease]); end_lease(lease)
		:: else
		fi
	}
#ifdef AHEAD
	if :: count > 0 && SEARCH_NEEDED -> search(true) :: else fi;
#endif
	if
	:: count == 0 -> lease = NOTHING; goto wait
	:: else
	fi;
	if
#ifdef CLAIM_ROLLBACK
	:: atomic { skip; if :: lused[lease] -> give_back_lease(lease) :: else fi; m = 0; do :: m < NM -> mine[m] = false; m++ :: else -> break od; m = 0 }
#endif
#ifdef HANG
	:: atomic { !hung[0] && !hung[1] -> hung[me] = true }; goto hang
#endif
#ifdef DIES
	:: atomic { !hung[0] && !hung[1]; m = 0; do :: m < NM -> mine[m] = false; m++ :: else -> break od; m = 0; hung[me] = true }; goto hang	/* vanishes; what it holds expires */
#endif
#ifdef RELEASE
	:: atomic { skip; if :: lused[lease] -> give_back_lease(lease) :: else fi; m = 0; do :: m < NM -> mine[m] = false; m++ :: else -> break od; m = 0 }
#endif
	:: /* ends one after the other, each in a transaction of its own */
		m = 0;
		do
		:: m < NM && mine[m] ->
			if
			:: atomic { lused[lease] && hold[m] == HELD && hlease[m] == lease -> hold[m] = ENDING;
				assert(row[m] == VIS);
				row[m] = DELG };
				if
				:: atomic { row[m] = GONE; acked[m] = true };
					atomic { free_hold(m); mine[m] = false; invariant() }
#ifdef FAIL
				:: atomic { row[m] = VIS; due[m] = now + BACKOFF; untold[m]++ };
					/* settle(), in pieces: other processes have the lock before the change is applied */
#ifndef UNMENDED_ORDER
					atomic { free_hold(m) };
#endif
					atomic {
						untold[m]--;
#ifdef UNMENDED_TELL
						if
						:: due[m] < next_due -> note_due(due[m]); wake(1)
						:: else -> note_due(due[m]); if :: due[m] <= now -> wake(1) :: else fi
						fi;
#else
						note_due(due[m]); if :: due[m] <= now -> wake(1) :: else fi;
#endif
						invariant()
					}
#ifdef UNMENDED_ORDER
					atomic { free_hold(m); invariant() }
#endif
#endif
#ifdef ACK_ROLLBACK
				:: atomic { row[m] = VIS };
					atomic { hold[m] = HELD;
#ifndef UNMENDED_EXPIRY
						note_expiry(lexp[hlease[m]]);
#endif
						invariant() }
#endif
				fi
			:: else
			fi;
			mine[m] = false; m++
		:: m < NM && !mine[m] -> m++
		:: else -> break
		od;
		m = 0
	fi;
	lease = NOTHING; count = 0;
	goto claim;

wait:
	atomic { waiting!me; listed[me] = true; is_ready(me, ready, mydue); woken = false; if :: ready -> goto leave :: else -> asleep[me] = true; until[me] = mydue fi };
	do
	:: atomic {
			if
			:: latch[me] -> latch[me] = false
			:: mydue <= now
			fi;
			woken = !listed[me];
			is_ready(me, ready, mydue);
			/* without a wake-up: it leaves the messages to the woken consumers, for a while */
			if
			:: ready && !woken && (pending || ANY_FOUND || ANY_RETURNED) ->
				if :: looked_at != NOTHING && now < looked_at + 1 -> ready = false; mydue = looked_at + 1 :: else -> looked_at = now fi
			:: else
			fi;
			if :: ready || woken -> asleep[me] = false; goto leave :: else -> until[me] = mydue fi
		}
#ifdef LEAVES
	/* its client has gone, which it sees at any time, or when it is woken */
	:: atomic { !hung[0] && !hung[1] -> hung[me] = true; asleep[me] = false; until[me] = 0; latch[me] = false;
#ifndef UNMENDED_LEAVES
			if :: waiting??[eval(me)] -> waiting??eval(me); listed[me] = false :: else fi;
			is_ready(me, ready, mydue); if :: ready -> wake(1) :: else fi;
#endif
			ready = false; woken = false; mydue = 0 }
		goto hang
#endif
	od;
leave:
	atomic {
		asleep[me] = false; until[me] = 0;
		if :: waiting??[eval(me)] -> waiting??eval(me); listed[me] = false :: else fi;
		is_ready(me, ready, mydue);
		if :: ready && mydue <= now -> looked_at = now; looked_for = mydue :: else fi;
		latch[me] = false;	/* the look that follows makes up for it */
		ready = false; woken = false; mydue = 0
	}
	goto claim;
hang:
	(false)
}

active proctype clock() {
	do
	:: now < TMAX -> atomic { now++ }
	:: timeout -> check_quiet(); break
	od
}
