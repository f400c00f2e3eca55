/*
 * redis_reply_class_test.c
 *	  What error replies mean; their texts are those of Redis 5 to 8.
 */
#include "check.h"
#include "redis/reply_class.h"

static void
is_class(SweepRedisClass class, const char *reply)
{
	check_number(sweep_redis_reply_class(reply), class, reply);
}

static void
test_retry(void)
{
	is_class(REDIS_CLASS_RETRY, "LOADING Redis is loading the dataset in memory");
	is_class(REDIS_CLASS_RETRY, "READONLY You can't write against a read only replica.");
	is_class(REDIS_CLASS_RETRY, "OOM command not allowed when used memory > 'maxmemory'.");
	is_class(REDIS_CLASS_RETRY, "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
	is_class(REDIS_CLASS_RETRY, "TRYAGAIN Multiple keys request during rehashing of slot");
	is_class(REDIS_CLASS_RETRY, "CLUSTERDOWN The cluster is down");
	is_class(REDIS_CLASS_RETRY, "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.");
	is_class(REDIS_CLASS_RETRY, "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
	is_class(REDIS_CLASS_RETRY, "NOREPLICAS Not enough good replicas to write.");
	is_class(REDIS_CLASS_RETRY, "ERR max number of clients reached");
	is_class(REDIS_CLASS_RETRY, "ERR Error running script (call to f_0123): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'. ");
	is_class(REDIS_CLASS_RETRY, "ERR Error running script (call to f_0123): @user_script:9: @user_script: 9: -READONLY You can't write against a read only slave. ");
}

static void
test_configuration(void)
{
	is_class(REDIS_CLASS_CONFIGURATION, "NOAUTH Authentication required.");
	is_class(REDIS_CLASS_CONFIGURATION, "WRONGPASS invalid username-password pair or user is disabled.");
	is_class(REDIS_CLASS_CONFIGURATION, "NOPERM this user has no permissions to run the 'eval' command");
	is_class(REDIS_CLASS_CONFIGURATION, "WRONGTYPE Operation against a key holding the wrong kind of value");
	is_class(REDIS_CLASS_CONFIGURATION, "WRONGTYPE Operation against a key holding the wrong kind of value script: 0123, on @user_script:2.");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR Error running script (call to f_0123): @user_script:2: WRONGTYPE Operation against a key holding the wrong kind of value ");
	is_class(REDIS_CLASS_CONFIGURATION, "DENIED Redis is running in protected mode because protected mode is enabled");
	is_class(REDIS_CLASS_CONFIGURATION, "MOVED 3999 127.0.0.1:6381");
	is_class(REDIS_CLASS_CONFIGURATION, "ASK 3999 127.0.0.1:6381");
	is_class(REDIS_CLASS_CONFIGURATION, "CROSSSLOT Keys in request don't hash to the same slot");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR invalid password");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR Client sent AUTH, but no password is set");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR wrong number of arguments for 'auth' command");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR DB index is out of range");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR unknown command 'EVAL', with args beginning with: 'return'");
	is_class(REDIS_CLASS_CONFIGURATION, "ERR Error running script (call to f_0123): @user_script:2: Write commands not allowed after non deterministic commands.");
}

static void
test_message(void)
{
	is_class(REDIS_CLASS_MESSAGE, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
	is_class(REDIS_CLASS_MESSAGE, "ERR Protocol error: invalid bulk length");
	is_class(REDIS_CLASS_MESSAGE, "ERR value is not an integer or out of range");
	is_class(REDIS_CLASS_MESSAGE, "");
	is_class(REDIS_CLASS_MESSAGE, "OOMPH what begins like a code is none");
	is_class(REDIS_CLASS_MESSAGE, "ERR a LOADINGS word that only begins like a code");
	is_class(REDIS_CLASS_MESSAGE, "oom");
}

static void
test_hints(void)
{
	check_text(sweep_redis_reply_hint("NOAUTH Authentication required."),
			   "Set pg_sweep.redis_password_file, and pg_sweep.redis_user if Redis has users.", "a hint");
	check_text(sweep_redis_reply_hint("TRYAGAIN"), NULL, "no hint, where there is nothing to do");
	check_text(sweep_redis_reply_hint("ERR something new"), NULL, "no hint for what is not known");
}

int
main(void)
{
	test_retry();
	test_configuration();
	test_message();
	test_hints();
	return check_finish();
}
