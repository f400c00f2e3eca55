/*
 * store.c
 *		The store of buckets in the table sweep.bucket, and the loading of the Redis store.
 *
 * Called by bucket_run.c. The functions of bucket.sql decide which buckets there are and which run gets which one;
 * here each operation is a short transaction. Its commit waits for the disk, so that a bucket whose holder died in a
 * crash of the server is not free before its recovery time.
 */
#include "postgres.h"

#include <unistd.h>

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/shared.h"
#include "base/txn.h"
#include "bucket/bucket.h"

static SweepStatement maintain_buckets_sql = {
	.text = "SELECT available, occupied, stale, missing, claimable "
		"FROM sweep._maintain_buckets($1, $2, $3::pg_catalog.float8 * interval '1 us', pg_catalog.clock_timestamp())",
	.types = {TEXTOID, INT4OID, INT8OID}};
static SweepStatement claim_bucket_sql = {
	.text = "SELECT sweep._claim_bucket($1, $2, $3, $4, $5)",
	.types = {TEXTOID, INT4OID, INT8OID, INT4OID, INT4OID}};

#define REDIS_MODULE "pg_sweep_redis"

/* Only an uncommitted transaction that drops or alters the job locks these rows for long. */
#define LOCK_TIMEOUT "1s"

/* One operation on the table: its statement and the result. */
typedef struct TableWork
{
	const SweepBucketRequest *request;
	SweepStatement *statement;
	Datum		values[5];
	bool		found;			/* the first column is not null */
	int32		columns[5];		/* a boolean is 0 or 1 */
} TableWork;

static SweepBucketResult maintain_table(const SweepBucketRequest *request, SweepBucketCounts *counts, SweepBucketError *error);
static SweepBucketResult claim_from_table(const SweepBucketRequest *request, SweepBucketClaim *claim, SweepBucketError *error);
static SweepBucketResult release_to_table(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error);
static SweepBucketResult transact(TableWork *work, SweepBucketError *error);
static bool is_stopped(void *request);
static void table_work(void *arg);

static const SweepBucketStore table_store = {
	.version = SWEEP_BUCKET_STORE_VERSION,
	.name = "table",
	.maintain = maintain_table,
	.claim = claim_from_table,
	.release = release_to_table,
};

const SweepBucketStore *
sweep_bucket_find_store(const char *name)
{
	static const SweepBucketStore *redis_store = NULL;
	char		path[MAXPGPATH];
	SweepBucketStoreFunction function;

	if (strcmp(name, table_store.name) == 0)
		return &table_store;
	if (redis_store != NULL)
		return redis_store;
	snprintf(path, sizeof(path), "%s/%s%s", pkglib_path, REDIS_MODULE, DLSUFFIX);
	if (access(path, R_OK) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("bucket store \"%s\" is not installed", name),
				 errdetail("There is no module %s.", REDIS_MODULE),
				 errhint("Install that module, which may be a package of its own, or keep the buckets of the job in the store \"table\".")));
	function = (SweepBucketStoreFunction)
		load_external_function("$libdir/" REDIS_MODULE, "sweep_redis_bucket_store", true, NULL);
	redis_store = function();
	if (redis_store->version != SWEEP_BUCKET_STORE_VERSION)
	{
		redis_store = NULL;
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("module \"%s\" is of another version than pg_sweep", REDIS_MODULE),
				 errhint("Install both from the same build.")));
	}
	return redis_store;
}

bool
sweep_bucket_is_stopped(const SweepBucketRequest *request)
{
	if (ProcDiePending)
		return true;
	if (request->give_up_at_us != 0)
		return sweep_monotonic_us() >= request->give_up_at_us;
	return sweep_cancel_is_pending() || pg_atomic_read_u32(&request->slot->stop_request) != 0;
}

static SweepBucketResult
maintain_table(const SweepBucketRequest *request, SweepBucketCounts *counts, SweepBucketError *error)
{
	TableWork	work = {
		.request = request, .statement = &maintain_buckets_sql,
		.values = {[1] = Int32GetDatum(request->buckets), Int64GetDatum(request->recovery_us)}
	};
	SweepBucketResult result = transact(&work, error);

	*counts = (SweepBucketCounts) {
		.available = work.columns[0],
		.occupied = work.columns[1],
		.stale = work.columns[2],
		.missing = work.columns[3],
		.claimable = work.columns[4],
	};
	return result;
}

/* The token is the id of the run: a run does not claim a bucket twice. */
static SweepBucketResult
claim_from_table(const SweepBucketRequest *request, SweepBucketClaim *claim, SweepBucketError *error)
{
	TableWork	work = {
		.request = request, .statement = &claim_bucket_sql,
		.values = {[1] = Int32GetDatum(request->buckets), Int64GetDatum(request->run_id), Int32GetDatum(MyProcPid), Int32GetDatum(request->wanted)}
	};
	SweepBucketResult result = transact(&work, error);

	claim->bucket = work.columns[0];
	claim->token = request->run_id;
	return result == BUCKET_OK && !work.found ? BUCKET_NONE : result;
}

static SweepBucketResult
release_to_table(const SweepBucketRequest *request, const SweepBucketClaim *claim, SweepBucketError *error)
{
	TableWork	work = {
		.request = request, .statement = &sweep_release_bucket_sql,
		.values = {[1] = Int32GetDatum(request->buckets), Int64GetDatum(claim->token), Int32GetDatum(claim->bucket)}
	};
	SweepBucketResult result = transact(&work, error);

	return result == BUCKET_OK && work.columns[0] == 0 ? BUCKET_NONE : result;
}

static SweepBucketResult
transact(TableWork *work, SweepBucketError *error)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pg_sweep bucket", ALLOCSET_SMALL_SIZES);
	const SweepTxnPolicy policy = {
		.error_context = context,
		.owner = unconstify(SweepBucketRequest *, work->request),
		.waits = true,
		.is_stopped = is_stopped,
		.required = true,
		.tries = SWEEP_TXN_SERIALIZATION_TRIES,
	};
	ErrorData  *raised = NULL;
	SweepTxnEnd end = sweep_txn_execute(&policy, table_work, work, &raised);
	SweepBucketResult result = end == TXN_COMMITTED ? BUCKET_OK : BUCKET_STOPPED;

	if (end == TXN_FAILED && raised->sqlerrcode != ERRCODE_QUERY_CANCELED)
	{
		result = BUCKET_FAILED;
		error->sqlstate = raised->sqlerrcode;
		strlcpy(error->message, raised->message ? raised->message : "", sizeof(error->message));
		strlcpy(error->detail, raised->detail ? raised->detail : "", sizeof(error->detail));
		strlcpy(error->hint, raised->hint ? raised->hint : raised->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE ? "" :
				"A session has locked rows of sweep.bucket for longer than " LOCK_TIMEOUT ": look in pg_locks.", sizeof(error->hint));
	}
	MemoryContextDelete(context);
	return result;
}

static bool
is_stopped(void *request)
{
	return sweep_bucket_is_stopped(request);
}

static void
table_work(void *arg)
{
	TableWork  *work = arg;
	bool		is_boolean = work->statement == &sweep_release_bucket_sql;

	(void) set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	(void) set_config_option("lock_timeout", LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	work->values[0] = CStringGetTextDatum(work->request->job);
	(void) sweep_sql_execute(work->statement, work->values, NULL);
	work->found = !sweep_sql_is_null(1);
	work->columns[0] = is_boolean ? (int32) sweep_sql_bool(1) : sweep_sql_int32(1);
	for (int i = 1; i < (int) lengthof(work->columns) && work->statement == &maintain_buckets_sql; i++)
		work->columns[i] = sweep_sql_int32(i + 1);
}
