/*
 * books.c
 *		The books of a run: which message was sent, received and acknowledged
 *		how often, and how long everything took.
 *
 * This is the loss checker: a message whose commit was confirmed must have been
 * received; one that was rolled back must not; none may come twice unless a
 * consumer gave it back or lost its connection, and none may come after its
 * acknowledgement was confirmed. A send whose answer never came (the server
 * crashed) may have happened or not.
 *
 * Times go into histograms of 1/16 octave, one per slice of the run, so a run
 * of any length needs the same memory and no percentile is estimated over
 * slices.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define SUB_BUCKETS 16
#define BUCKETS (40 * SUB_BUCKETS)
#define MAX_SLICES 256
#define MAX_FAILURES 5

typedef struct Entry
{
	int64_t		not_before;
	uint8_t		fate;
	uint8_t		got;
	uint8_t		acked;
	uint8_t		received_ever;
	uint8_t		in_doubt;		/* whether it was acknowledged: the server crashed before it said so */
} Entry;

typedef struct Histogram
{
	int64_t		count;
	int64_t		max;
	uint32_t	bucket[BUCKETS];
} Histogram;

static const char *const metric_names[METRIC_COUNT] = {
	[METRIC_SEND] = "send",
	[METRIC_LAG] = "lag",
	[METRIC_CLAIM] = "claim",
	[METRIC_CLAIM_EMPTY] = "empty_claim",
	[METRIC_ACK] = "ack",
	[METRIC_DELAY] = "delay",
};

static Entry *entries;
static int64_t entry_count,
			entry_room;
static int64_t sent,
			acked,
			acked_and_sent,
			duplicates,
			expected_duplicates,
			after_ack,
			foreign,
			failures,
			keys_shared,
			early;
static int *key_holders;
static bool crashed;
static int64_t begin,
			slice_length;
static Histogram *slices[MAX_SLICES];	/* METRIC_COUNT of them each */
static Histogram totals[METRIC_COUNT];

static Entry *
entry_at(int64_t n)
{
	if (n < 0 || n >= entry_count)
	{
		foreign++;
		return NULL;
	}
	return &entries[n];
}

int64_t
books_next(void)
{
	if (entry_count == entry_room)
	{
		entry_room = entry_room ? entry_room * 2 : 1 << 16;
		entries = realloc(entries, entry_room * sizeof(Entry));
		if (entries == NULL)
			abort();
	}
	memset(&entries[entry_count], 0, sizeof(Entry));
	return entry_count++;
}

/* Messages 0 to count - 1 have been sent by somebody else. */
void
books_skip(int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		books_fate(books_next(), FATE_SENT);
}

void
books_fate(int64_t n, Fate fate)
{
	Entry	   *entry = &entries[n];

	entry->fate = fate;
	if (fate == FATE_SENT)
	{
		sent++;
		acked_and_sent += entry->acked > 0;
	}
}

void
books_got(int64_t n, int64_t now)
{
	Entry	   *entry = entry_at(n);

	if (entry == NULL)
		return;
	early += now < entry->not_before && !crashed;
	/* It has come again, so it was not. */
	entry->in_doubt = 0;
	if (entry->acked > 0)
		after_ack++;
	else if (entry->got > 0)
	{
		if (crashed)
			expected_duplicates++;
		else
			duplicates++;
	}
	if (entry->got < UINT8_MAX)
		entry->got++;
	entry->received_ever = 1;
}

void
books_returned(int64_t n)
{
	Entry	   *entry = entry_at(n);

	if (entry != NULL && entry->got > 0)
		entry->got--;
}

void
books_not_before(int64_t n, int64_t then)
{
	Entry	   *entry = entry_at(n);

	if (entry != NULL)
		entry->not_before = then;
}

void
books_acked(int64_t n)
{
	Entry	   *entry = entry_at(n);

	if (entry == NULL || entry->acked > 0)
		return;
	entry->acked = 1;
	acked++;
	acked_and_sent += entry->fate == FATE_SENT;
}

void
books_ack_in_doubt(int64_t n)
{
	Entry	   *entry = entry_at(n);

	if (entry != NULL && entry->acked == 0)
		entry->in_doubt = 1;
}

void
books_fail(const char *what)
{
	if (failures++ < MAX_FAILURES)
		fprintf(stderr, "load: %s\n", what);
}

void
books_crashed(void)
{
	crashed = true;
}

void
books_set_keys(int count)
{
	key_holders = calloc(count + 1, sizeof(int));
}

void
books_key_begins(int64_t key)
{
	keys_shared += key_holders[key]++ > 0;
}

void
books_key_ends(int64_t key)
{
	key_holders[key]--;
}

int64_t
books_acked_count(void)
{
	return acked;
}

static bool
is_in_doubt(const Entry *entry)
{
	return entry->fate == FATE_SENT && entry->acked == 0 && entry->in_doubt;
}

bool
books_complete(void)
{
	int64_t		open = sent - acked_and_sent;

	for (int64_t n = 0; crashed && open > 0 && n < entry_count; n++)
		open -= is_in_doubt(&entries[n]);
	return open == 0;
}

/* ------------------------------------------------------------------ times */

static int
bucket_of(int64_t us)
{
	int			octave = 0;
	int			bucket;

	if (us < SUB_BUCKETS)
		return us < 0 ? 0 : (int) us;
	while ((us >> octave) >= 2 * SUB_BUCKETS)
		octave++;
	bucket = (octave + 1) * SUB_BUCKETS + (int) ((us >> octave) - SUB_BUCKETS);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* the upper end of a bucket */
static int64_t
bucket_end(int bucket)
{
	int			octave = bucket / SUB_BUCKETS - 1;

	if (octave < 0)
		return bucket + 1;
	return ((int64_t) (bucket % SUB_BUCKETS) + SUB_BUCKETS + 1) << octave;
}

static void
histogram_add(Histogram *histogram, int64_t us)
{
	histogram->count++;
	histogram->bucket[bucket_of(us)]++;
	if (us > histogram->max)
		histogram->max = us;
}

static int64_t
histogram_at(const Histogram *histogram, double percent)
{
	int64_t		wanted = (int64_t) (histogram->count * percent / 100);
	int64_t		seen = 0;

	for (int i = 0; i < BUCKETS; i++)
	{
		seen += histogram->bucket[i];
		if (seen > wanted)
			return bucket_end(i) < histogram->max ? bucket_end(i) : histogram->max;
	}
	return histogram->max;
}

void
books_begin(int64_t now, int64_t slice_us)
{
	begin = now;
	slice_length = slice_us;
}

void
books_time(Metric metric, int64_t us, int64_t now)
{
	int64_t		slice = slice_length > 0 ? (now - begin) / slice_length : 0;

	histogram_add(&totals[metric], us);
	if (slice < 0 || slice >= MAX_SLICES)
		return;
	if (slices[slice] == NULL)
	{
		slices[slice] = calloc(METRIC_COUNT, sizeof(Histogram));
		if (slices[slice] == NULL)
			abort();
	}
	histogram_add(&slices[slice][metric], us);
}

static void
report_times(const char *prefix, const Histogram *histograms)
{
	for (int i = 0; i < METRIC_COUNT; i++)
	{
		const Histogram *histogram = &histograms[i];

		if (histogram->count == 0)
			continue;
		printf("%s%s_count\t%lld\n", prefix, metric_names[i], (long long) histogram->count);
		printf("%s%s_p50_us\t%lld\n", prefix, metric_names[i], (long long) histogram_at(histogram, 50));
		printf("%s%s_p99_us\t%lld\n", prefix, metric_names[i], (long long) histogram_at(histogram, 99));
		printf("%s%s_max_us\t%lld\n", prefix, metric_names[i], (long long) histogram->max);
	}
}

int
books_report(int64_t timed, double send_seconds, double drain_seconds, bool cut_short)
{
	int64_t		lost = 0,
				ghosts = 0,
				in_doubt = 0;
	char		prefix[32];

	for (int64_t n = 0; n < entry_count; n++)
	{
		lost += !cut_short && entries[n].fate == FATE_SENT && !entries[n].received_ever;
		in_doubt += is_in_doubt(&entries[n]);
		ghosts += entries[n].fate == FATE_NEVER && entries[n].received_ever;
	}
	printf("sent\t%lld\nacked\t%lld\n", (long long) sent, (long long) acked);
	printf("lost\t%lld\nrolled_back_but_received\t%lld\nforeign\t%lld\n", (long long) lost, (long long) ghosts, (long long) foreign);
	printf("unacknowledged\t%lld\n", (long long) (sent - acked_and_sent - in_doubt));
	printf("in_doubt\t%lld\n", (long long) in_doubt);
	printf("duplicates\t%lld\nduplicates_after_crash\t%lld\nafter_ack\t%lld\n", (long long) duplicates, (long long) expected_duplicates, (long long) after_ack);
	printf("failures\t%lld\nkeys_shared\t%lld\nearly\t%lld\n", (long long) failures, (long long) keys_shared, (long long) early);
	printf("send_seconds\t%.6f\nsend_rate\t%.1f\n", send_seconds, send_seconds > 0 ? timed / send_seconds : 0);
	printf("drain_seconds\t%.6f\ndrain_rate\t%.1f\n", drain_seconds, drain_seconds > 0 ? acked / drain_seconds : 0);
	report_times("", totals);
	for (int i = 0; slice_length > 0 && i < MAX_SLICES; i++)
	{
		if (slices[i] == NULL)
			continue;
		snprintf(prefix, sizeof(prefix), "slice%03d_", i);
		report_times(prefix, slices[i]);
	}
	return lost + ghosts + foreign + duplicates + after_ack + failures + keys_shared + early > 0 ? 1 : 0;
}
