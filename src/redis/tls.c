/*
 * tls.c
 *		The session of OpenSSL that hiredis_ssl uses for TLS to Redis.
 *
 * Called by network.c. hiredis_ssl transfers the data, but the session is created here, because a context of
 * hiredis_ssl does not compare the name in the certificate with the host, and asks for a passphrase at the terminal
 * of the server. The password is sent after the certificate was verified: hiredis writes no data before TLS is
 * negotiated.
 *
 * hiredis frees its reference to the session with the connection; the reference of this file is kept until
 * sweep_redis_tls_end(), so that the reason of a failure can be read. No function raises an error.
 */
#include "postgres.h"

#include "redis/tls.h"

#ifdef SWEEP_REDIS_TLS

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

static SSL *session = NULL;

/* OpenSSL's own function asks at the terminal of the server. */
static int
give_no_passphrase(char *place, int size, int for_writing, void *arg)
{
	return 0;
}

static const char *
load_files(SSL_CTX *context, const SweepRedisTarget *target)
{
	if (target->ca_file[0] == '\0')
	{
		if (SSL_CTX_set_default_verify_paths(context) != 1)
			return "the default certificates could not be loaded";
	}
	else if (SSL_CTX_load_verify_locations(context, target->ca_file, NULL) != 1)
		return "the certificates of pg_sweep.redis_tls_ca_file could not be loaded";
	if (target->cert_file[0] == '\0')
		return NULL;
	SSL_CTX_set_default_passwd_cb(context, give_no_passphrase);
	if (SSL_CTX_use_certificate_chain_file(context, target->cert_file) != 1)
		return "the certificate of pg_sweep.redis_tls_cert_file could not be loaded";
	if (SSL_CTX_use_PrivateKey_file(context, target->key_file, SSL_FILETYPE_PEM) != 1)
		return "the key of pg_sweep.redis_tls_key_file could not be loaded, has a passphrase, or belongs to another certificate";
	return NULL;
}

/* Accepts only a certificate for this name or address. */
static const char *
expect_host(const char *host)
{
	unsigned char address[sizeof(struct in6_addr)];
	bool		is_address = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
	int			done;

	if (is_address)
		done = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host);
	else
		done = SSL_set1_host(session, host) == 1 && SSL_set_tlsext_host_name(session, host) == 1;
	return done == 1 ? NULL : "the name of the host cannot be compared with a certificate";
}

/* Without renegotiation a write never has to wait for data to read. */
static const char *
create_session(SSL_CTX *context, const SweepRedisTarget *target)
{
	const char *error = load_files(context, target);

	if (error != NULL)
		return error;
	if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
		return "TLS 1.2 is not available";
	(void) SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	session = SSL_new(context);
	return session == NULL ? "out of memory" : expect_host(target->url.host);
}

const char *
sweep_redis_tls_begin(redisContext *context, const SweepRedisTarget *target)
{
	SSL_CTX    *settings = SSL_CTX_new(TLS_client_method());
	const char *error = settings ? create_session(settings, target) : "out of memory";

	SSL_CTX_free(settings);
	if (error != NULL)
		return error;
	if (redisInitiateSSL(context, session) == REDIS_OK)
		(void) SSL_up_ref(session);
	return NULL;
}

void
sweep_redis_tls_clear_errors(void)
{
	ERR_clear_error();
}

bool
sweep_redis_tls_is_negotiating(void)
{
	return session != NULL && !SSL_is_init_finished(session);
}

const char *
sweep_redis_tls_reason(const char *other, SweepRedisClass *class)
{
	static char reason[256];
	const char *error = ERR_reason_error_string(ERR_peek_last_error());
	long		verified = session == NULL ? X509_V_OK : SSL_get_verify_result(session);

	if (verified != X509_V_OK)
	{
		*class = REDIS_CLASS_CONFIGURATION;
		snprintf(reason, sizeof(reason), "its certificate is not accepted: %s", X509_verify_cert_error_string(verified));
	}
	else if (session != NULL && error != NULL)
		snprintf(reason, sizeof(reason), "TLS failed: %s", error);
	else
		return other;
	return reason;
}

void
sweep_redis_tls_end(void)
{
	SSL_free(session);
	session = NULL;
}

#else

const char *
sweep_redis_tls_begin(redisContext *context, const SweepRedisTarget *target)
{
	return "pg_sweep_redis was built without TLS";
}

#endif							/* SWEEP_REDIS_TLS */
