/*
 * settings.c
 *		The settings, in tables by their types, each in alphabetical order.
 *
 * Called once per process by _PG_init. All settings can be changed by a reload, except those that the size of shared
 * memory depends on.
 */
#include "postgres.h"

#include <limits.h>

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "base/settings.h"
#include "pure/redis_url.h"

bool		sweep_enabled = true;
bool		sweep_start_paused = false;
char	   *sweep_databases = NULL;
int			sweep_log_batches = LOG_BATCHES_OFF;
int			sweep_max_args_size = 64;
int			sweep_max_consumers = 8;
int			sweep_max_in_flight = 65536;
int			sweep_max_queues = 256;
int			sweep_max_running_jobs = 8;
int			sweep_reserved_workers = 0;
int			sweep_max_wait = -1;
double		sweep_max_share_per_database = 1;
double		sweep_max_share_per_role = 0.75;
int			sweep_no_progress_after = 10000;
int			sweep_notify_interval = 100;
double		sweep_notify_queue_limit = 0.5;

/* These are read by SQL, by their names. */
static char *alert_queue = NULL;
static int	history_max_age = 30 * 24 * 60;
static int	history_per_job = 1000;
static int	min_interval = 1000;
static int	once_retention = 30 * 24 * 60;

/* These are read by the module pg_sweep_redis, by their names. */
static char *redis_key_prefix = NULL;
static char *redis_password_file = NULL;
static int	redis_timeout = 5000;
static char *redis_tls_ca_file = NULL;
static char *redis_tls_cert_file = NULL;
static char *redis_tls_key_file = NULL;
static char *redis_url = NULL;
static char *redis_user = NULL;

static const struct config_enum_entry log_batches_options[] = {
	{"off", LOG_BATCHES_OFF, false},
	{"batches", LOG_BATCHES_BATCHES, false},
	{"items", LOG_BATCHES_ITEMS, false},
	{NULL, 0, false}
};

static bool check_databases(char **newval, void **extra, GucSource source);
static bool check_redis_key_prefix(char **newval, void **extra, GucSource source);
static bool check_redis_text(char **newval, void **extra, GucSource source);
static bool check_redis_url(char **newval, void **extra, GucSource source);

/* Numbers; the value of the variable is the default. */
static const struct
{
	const char *name;
	const char *description;
	const char *detail;
	int		   *variable;
	int			least;
	int			most;
	GucContext	context;
	int			unit;
	bool		needs_preload;	/* exists only when the library is loaded at server start */
}			numbers[] = {
	{"pg_sweep.history_max_age", "Sets the age at which the record of a run is deleted.",
		NULL, &history_max_age, 1, INT_MAX / 60, PGC_SIGHUP, GUC_UNIT_MIN, false},
	{"pg_sweep.history_per_job", "Sets how many runs are recorded per job, role and outcome.",
		NULL, &history_per_job, 1, 1000000, PGC_SIGHUP, 0, false},
	{"pg_sweep.max_args_size", "Sets how large the args of a job or a run may be.",
		NULL, &sweep_max_args_size, 1, 256 * 1024, PGC_SIGHUP, GUC_UNIT_KB, false},
	{"pg_sweep.max_consumers", "Sets how many processes of consumers there may be at a time.",
		"Each takes one of max_worker_processes.", &sweep_max_consumers, 0, 1000, PGC_SIGHUP, 0, true},
	{"pg_sweep.max_in_flight", "Sets how many messages of queues may be claimed at a time.",
		"Each takes about 150 bytes of shared memory.", &sweep_max_in_flight, 64, 16 * 1024 * 1024, PGC_POSTMASTER, 0, true},
	{"pg_sweep.max_queues", "Sets how many queues may be in use at a time, in all databases.",
		"Each takes about 34 kB of shared memory; one more takes the place of an idle one.", &sweep_max_queues, 1, 10000, PGC_POSTMASTER, 0, true},
	{"pg_sweep.max_running_jobs", "Sets how many runs may be in progress in the background at a time.",
		"Each takes one of max_worker_processes.", &sweep_max_running_jobs, 1, 1000, PGC_SIGHUP, 0, true},
	{"pg_sweep.max_wait", "Sets the longest time that sweep.wait_for_message may wait.",
		"For roles whose sessions share the connections of a pooler. -1 means as long as the caller says.", &sweep_max_wait, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MS, false},
	{"pg_sweep.min_interval", "Sets the shortest interval that a schedule may have.",
		NULL, &min_interval, 1000, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, false},
	{"pg_sweep.no_progress_after", "Sets how long a run may report rows without progress.",
		"It ends then, if it has handled twice as many rows as there are. -1 means never.", &sweep_no_progress_after, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MS, false},
	{"pg_sweep.notify_interval", "Sets the shortest time between two notifications of a queue.",
		NULL, &sweep_notify_interval, 1, 3600000, PGC_SIGHUP, GUC_UNIT_MS, false},
	{"pg_sweep.once_retention", "Sets how long a key of sweep.begin_once is remembered.",
		NULL, &once_retention, 1, INT_MAX / 60, PGC_SIGHUP, GUC_UNIT_MIN, false},
	{"pg_sweep.redis_timeout", "Sets how long Redis may take to be connected, and to reply to a command.",
		NULL, &redis_timeout, 10, 600 * 1000, PGC_SIGHUP, GUC_UNIT_MS, false},
	{"pg_sweep.reserved_workers", "Sets how many of max_running_jobs are kept for jobs of a priority above 0.",
		"One is left to the others in any case.", &sweep_reserved_workers, 0, 999, PGC_SIGHUP, 0, true},
};

/* Fractions; all can be changed by a reload. */
static const struct
{
	const char *name;
	const char *description;
	const char *detail;
	double	   *variable;
	double		least;
}			fractions[] = {
	{"pg_sweep.max_share_per_database", "Sets how much of what all databases share one of them may use.",
		"A fraction of the background runs, processes of consumers, claimed messages and queues in use.", &sweep_max_share_per_database, 0.01},
	{"pg_sweep.max_share_per_role", "Sets how much of what all roles share one of them may use.",
		"The same fraction for a role; superusers and members of sweep_admin may use everything.", &sweep_max_share_per_role, 0.01},
	{"pg_sweep.notify_queue_limit", "Sets how full the notification queue of the server may be when queues notify.",
		"A fraction; above it nothing is sent until there is room again.", &sweep_notify_queue_limit, 0},
};

/*
 * Texts; all can be changed by a reload, and are empty by default. The settings of Redis hold no secret, but only superusers may
 * read its address and the names of its files.
 */
static const struct
{
	const char *name;
	const char *description;
	const char *detail;
	char	  **variable;
	int			flags;
	bool		(*check) (char **newval, void **extra, GucSource source);
}			texts[] = {
	{"pg_sweep.alert_queue", "Sets the queue that gets a message when a job fails or is broken.",
		"For jobs without an alert_queue of their own, in databases that have a queue of that name. Empty means none.", &alert_queue, 0, NULL},
	{"pg_sweep.databases", "Restricts the databases in which jobs are started by their schedules.",
		"Names separated by commas; empty means every database that has the extension.", &sweep_databases, GUC_LIST_INPUT, check_databases},
	{"pg_sweep.redis_key_prefix", "Sets what the names of all keys in Redis begin with.",
		"Needed to share buckets with a GitLab whose keys have a namespace.", &redis_key_prefix, 0, check_redis_key_prefix},
	{"pg_sweep.redis_password_file", "Sets the file that holds the password for Redis.",
		"Read for each connection; only the server's user may have access to it. Empty means no password.", &redis_password_file, GUC_SUPERUSER_ONLY, check_redis_text},
	{"pg_sweep.redis_tls_ca_file", "Sets the file of the certificates that the one of Redis must be signed by.",
		"Used with rediss://. Empty means those that OpenSSL is configured to trust.", &redis_tls_ca_file, GUC_SUPERUSER_ONLY, check_redis_text},
	{"pg_sweep.redis_tls_cert_file", "Sets the file of the certificate that is shown to Redis.",
		"Used with rediss://, together with redis_tls_key_file.", &redis_tls_cert_file, GUC_SUPERUSER_ONLY, check_redis_text},
	{"pg_sweep.redis_tls_key_file", "Sets the file of the private key of redis_tls_cert_file.",
		"Without a passphrase; only the server's user may have access to it.", &redis_tls_key_file, GUC_SUPERUSER_ONLY, check_redis_text},
	{"pg_sweep.redis_url", "Sets where Redis is.",
		"redis://host:port/db, rediss:// with TLS, or unix:///path?db=n.", &redis_url, GUC_SUPERUSER_ONLY, check_redis_url},
	{"pg_sweep.redis_user", "Sets the user as whom to log in to Redis.",
		"Empty means Redis's own default user.", &redis_user, GUC_SUPERUSER_ONLY, check_redis_text},
};

PG_FUNCTION_INFO_V1(sweep_settings_database_is_allowed);
PG_FUNCTION_INFO_V1(sweep_settings_has_redis_url);

void
sweep_settings_define(bool at_server_start)
{
	for (size_t i = 0; i < lengthof(numbers); i++)
	{
		if (at_server_start || !numbers[i].needs_preload)
			DefineCustomIntVariable(numbers[i].name, numbers[i].description, numbers[i].detail, numbers[i].variable, *numbers[i].variable,
									numbers[i].least, numbers[i].most, numbers[i].context, numbers[i].unit, NULL, NULL, NULL);
	}
	for (size_t i = 0; i < lengthof(fractions); i++)
		DefineCustomRealVariable(fractions[i].name, fractions[i].description, fractions[i].detail, fractions[i].variable,
								 *fractions[i].variable, fractions[i].least, 1, PGC_SIGHUP, 0, NULL, NULL, NULL);
	for (size_t i = 0; i < lengthof(texts); i++)
		DefineCustomStringVariable(texts[i].name, texts[i].description, texts[i].detail, texts[i].variable, "", PGC_SIGHUP,
								   texts[i].flags, texts[i].check, NULL, NULL);
	DefineCustomEnumVariable("pg_sweep.log_batches", "Logs the progress of runs.",
							 NULL, &sweep_log_batches, LOG_BATCHES_OFF, log_batches_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	if (at_server_start)
	{
		DefineCustomBoolVariable("pg_sweep.enabled", "Sets whether runs and consumers of all databases are started.",
								 NULL, &sweep_enabled, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
		DefineCustomBoolVariable("pg_sweep.start_paused", "Sets whether runs and consumers of all databases are kept from being started.",
								 "For a server that goes down before a job could be paused.", &sweep_start_paused, false, PGC_SIGHUP, 0,
								 NULL, NULL, NULL);
	}
	MarkGUCPrefixReserved("pg_sweep");
}

bool
sweep_settings_allow_database(const char *name)
{
	char	   *names = pstrdup(sweep_databases ? sweep_databases : "");
	List	   *list = NIL;
	ListCell   *cell;

	if (!SplitIdentifierString(names, ',', &list) || list == NIL)
		return true;
	foreach(cell, list)
	{
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	}
	return false;
}

static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char	   *names = pstrdup(*newval);
	List	   *list = NIL;

	if (SplitIdentifierString(names, ',', &list))
		return true;
	GUC_check_errdetail("The list of names is not well-formed.");
	return false;
}

static bool
check_redis_key_prefix(char **newval, void **extra, GucSource source)
{
	if (strlen(*newval) <= 200 && strpbrk(*newval, "{}") == NULL)
		return true;
	GUC_check_errdetail("It must have at most 200 bytes and no braces, which belong to the names of jobs.");
	return false;
}

/* The module pg_sweep_redis has buffers of MAXPGPATH bytes for these texts. */
static bool
check_redis_text(char **newval, void **extra, GucSource source)
{
	if (strlen(*newval) < MAXPGPATH)
		return true;
	GUC_check_errdetail("It must have at most %d bytes.", MAXPGPATH - 1);
	return false;
}

/* The server's own message would show the value, which may contain a password. */
static bool
check_redis_url(char **newval, void **extra, GucSource source)
{
	SweepRedisUrl url;
	const char *error = (*newval)[0] ? sweep_redis_url_parse(*newval, &url) : NULL;

	if (error == NULL)
		return true;
	GUC_check_errmsg("invalid value for parameter \"pg_sweep.redis_url\"");
	GUC_check_errdetail("%s", error);
	if (sweep_redis_url_has_login(*newval))
		GUC_check_errhint("Put the password into a file, name that in pg_sweep.redis_password_file, and the user in pg_sweep.redis_user.");
	return false;
}

/* SQL: sweep._database_is_allowed() RETURNS boolean */
Datum
sweep_settings_database_is_allowed(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sweep_settings_allow_database(get_database_name(MyDatabaseId)));
}

/* SQL: sweep._has_redis_url() RETURNS boolean */
Datum
sweep_settings_has_redis_url(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(redis_url != NULL && redis_url[0] != '\0');
}
