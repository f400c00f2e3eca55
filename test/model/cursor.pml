/*
 * cursor.pml - a job that keeps its cursor: runs that are queued in the order of their ids and begin in any order, under the
 * lock of the job; batches; a clock that is set to anything at any time; failovers to a standby that is behind and has
 * another clock.  Claim: of the rows that the present server knows none is done twice and none is left out.
 *
 * A run goes on from the cursor of the run that began last, by a number of a sequence.  UNMENDED_CLOCK: by the time at
 * which it began.  UNMENDED_ID: by its id.
 */
#ifndef RUNS
#define RUNS 4
#endif
#ifndef CLOCKS
#define CLOCKS 3
#endif
#ifndef FAILOVERS
#define FAILOVERS 2
#endif
#define ROWS (2 * RUNS)
#define NONE 15

/* Committed state: the rows of runs and of the job, the sequence. */
typedef Server {
	byte begun[RUNS];		/* number of the sequence; 0: it waits */
	byte started_at[RUNS];
	byte cursor[RUNS];		/* the last row that it did */
	bool done[ROWS + 1];
	byte drawn
};
Server server[2];			/* the one that works, and the standby */
byte now = 0;
bool locked = false;
byte epoch = 0;				/* failovers so far: they end all runs */

/* Whether run a counts as the later one of two that have begun. */
#ifdef UNMENDED_CLOCK
#define LATER(a, b) (server[0].started_at[a] >= server[0].started_at[b])
#else
#ifdef UNMENDED_ID
#define LATER(a, b) (a > b)
#else
#define LATER(a, b) (server[0].begun[a] > server[0].begun[b])
#endif
#endif

inline copy(from, to)
{
	i = 0;
	do
	:: i < RUNS ->
		server[to].begun[i] = server[from].begun[i]; server[to].started_at[i] = server[from].started_at[i];
		server[to].cursor[i] = server[from].cursor[i]; i++
	:: else -> break
	od;
	i = 0;
	do
	:: i <= ROWS -> server[to].done[i] = server[from].done[i]; i++
	:: else -> break
	od;
	server[to].drawn = server[from].drawn;
	i = 0
}

inline do_batch()
{
	cursor++;
	assert(!server[0].done[cursor]);
	assert(cursor == 1 || server[0].done[cursor - 1]);
	server[0].done[cursor] = true;
	server[0].cursor[me] = cursor
}

active [RUNS] proctype job_run()
{
	byte me = _pid;
	byte i, last, cursor, mine;

ready:
	/* The commit that takes the lock, draws the number and reads the cursor. */
	atomic {
		!locked && server[0].begun[me] == 0 -> locked = true; mine = epoch;
		last = NONE; i = 0;
		do
		:: i < RUNS ->
			if
			:: server[0].begun[i] != 0 && (last == NONE || LATER(i, last)) -> last = i
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		cursor = (last == NONE -> 0 : server[0].cursor[last]); last = 0;
		server[0].drawn++; server[0].begun[me] = server[0].drawn;
		server[0].started_at[me] = now; server[0].cursor[me] = cursor
	};
	/* One batch or two, each a commit; a run whose server has gone is queued again with its row, or has begun there. */
	if
	:: atomic { mine == epoch -> do_batch() }
	:: mine != epoch -> goto gone
	fi;
	if
	:: atomic { mine == epoch -> do_batch() }
	:: true
	fi;
	if
	:: atomic { mine == epoch -> locked = false }
	:: mine != epoch -> goto gone
	fi;
	goto over;
gone:
	cursor = 0; mine = 0;
over:
	/* A failover to a standby that has not seen the start lets the run begin again. */
	if
	:: atomic { server[0].begun[me] == 0 -> cursor = 0; mine = 0 }; goto ready
	:: atomic { epoch == FAILOVERS -> skip }
	fi
}

active proctype world()
{
	byte i, sets;

	do
	:: atomic { sets < 2 -> sets++; if :: now = 0 :: now = 1 :: now = CLOCKS - 1 fi }
	:: d_step { epoch < FAILOVERS -> copy(0, 1) }		/* the standby has received all so far */
	:: atomic { epoch < FAILOVERS -> copy(1, 0); epoch++; locked = false; if :: now = 0 :: now = 1 :: now = CLOCKS - 1 fi }
	:: epoch == FAILOVERS && sets == 2 -> break
	od
}
