/*
 * tls.c
 *		TLS on the socket to Redis, by OpenSSL.
 *
 * Called by socket.c only. Not by hiredis_ssl: hiredis 0.14 has none, that of 1.x does not compare the
 * name in the certificate with the host, and it does not say whether it waits to read or to write, so
 * that a wait without blocking would spin. Built without the headers of OpenSSL, rediss:// is refused.
 *
 * What OpenSSL allocates is in two static places, freed by sweep_redis_tls_end(); nothing here raises.
 */
#include "postgres.h"

#include <arpa/inet.h>

#include "storage/latch.h"

#include "redis/tls.h"

#ifdef SWEEP_REDIS_TLS

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

static SSL_CTX *context = NULL;
static SSL *session = NULL;
static char reason[256];

static const char *trust(const SweepRedisTarget *target);
static const char *identify(const SweepRedisTarget *target);
static int	give_no_passphrase(char *place, int size, int for_writing, void *arg);
static const char *expect_host(const char *host);
static ssize_t result_of(int result, uint32 *wants);

const char *
sweep_redis_tls_begin(const SweepRedisTarget *target, int fd)
{
	const char *error;

	sweep_redis_tls_end();
	ERR_clear_error();
	context = SSL_CTX_new(TLS_client_method());
	if (context == NULL)
		return "out of memory";
	if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
		return "TLS 1.2 is not available";
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	error = trust(target);
	if (error == NULL)
		error = identify(target);
	if (error != NULL)
		return error;
	session = SSL_new(context);
	if (session == NULL || SSL_set_fd(session, fd) != 1)
		return "out of memory";
	SSL_set_connect_state(session);
	return expect_host(target->url.host);
}

static const char *
trust(const SweepRedisTarget *target)
{
	if (target->ca_file[0] == '\0')
		return SSL_CTX_set_default_verify_paths(context) == 1 ? NULL : "the default certificates could not be loaded";
	return SSL_CTX_load_verify_locations(context, target->ca_file, NULL) == 1 ? NULL :
		"the certificates of pg_sweep.redis_tls_ca_file could not be loaded";
}

/* For a Redis that wants to see a certificate of its clients. */
static const char *
identify(const SweepRedisTarget *target)
{
	if (target->cert_file[0] == '\0')
		return NULL;
	SSL_CTX_set_default_passwd_cb(context, give_no_passphrase);
	if (SSL_CTX_use_certificate_chain_file(context, target->cert_file) != 1)
		return "the certificate of pg_sweep.redis_tls_cert_file could not be loaded";
	if (SSL_CTX_use_PrivateKey_file(context, target->key_file, SSL_FILETYPE_PEM) != 1)
		return "the key of pg_sweep.redis_tls_key_file could not be loaded, has a passphrase, or belongs to another certificate";
	return NULL;
}

/* Without this OpenSSL would ask for it at the terminal of the server. */
static int
give_no_passphrase(char *place, int size, int for_writing, void *arg)
{
	return 0;
}

/* The certificate must be for this name or address. */
static const char *
expect_host(const char *host)
{
	unsigned char address[sizeof(struct in6_addr)];
	bool		is_address = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
	int			done = is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host) : SSL_set1_host(session, host);

	if (done == 1 && !is_address)
		done = (int) SSL_set_tlsext_host_name(session, host);
	return done == 1 ? NULL : "the name of the host cannot be compared with a certificate";
}

int
sweep_redis_tls_handshake(uint32 *wants)
{
	int			result;

	ERR_clear_error();
	result = SSL_do_handshake(session);
	return (int) result_of(result, wants);
}

const char *
sweep_redis_tls_reason(void)
{
	unsigned long code = ERR_peek_last_error();

	if (sweep_redis_tls_is_cert_rejected())
		snprintf(reason, sizeof(reason), "its certificate is not accepted: %s",
				 X509_verify_cert_error_string(SSL_get_verify_result(session)));
	else if (code != 0 && ERR_reason_error_string(code) != NULL)
		snprintf(reason, sizeof(reason), "TLS could not be negotiated: %s", ERR_reason_error_string(code));
	else
		snprintf(reason, sizeof(reason), "it closed the connection while TLS was negotiated");
	return reason;
}

bool
sweep_redis_tls_is_cert_rejected(void)
{
	return session != NULL && SSL_get_verify_result(session) != X509_V_OK;
}

bool
sweep_redis_tls_is_active(void)
{
	return session != NULL;
}

bool
sweep_redis_tls_is_quiet(void)
{
	uint32		wants = 0;
	char		byte;

	ERR_clear_error();
	return result_of(SSL_peek(session, &byte, 1), &wants) < 0 && wants == WL_SOCKET_READABLE;
}

ssize_t
sweep_redis_tls_write(const char *data, size_t size, uint32 *wants)
{
	ERR_clear_error();
	return result_of(SSL_write(session, data, (int) Min(size, INT_MAX)), wants);
}

ssize_t
sweep_redis_tls_read(char *data, size_t size, uint32 *wants)
{
	ERR_clear_error();
	return result_of(SSL_read(session, data, (int) Min(size, INT_MAX)), wants);
}

static ssize_t
result_of(int result, uint32 *wants)
{
	*wants = 0;
	if (result > 0)
		return result;
	switch (SSL_get_error(session, result))
	{
		case SSL_ERROR_WANT_READ:
			*wants = WL_SOCKET_READABLE;
			return -1;
		case SSL_ERROR_WANT_WRITE:
			*wants = WL_SOCKET_WRITEABLE;
			return -1;
		case SSL_ERROR_ZERO_RETURN:
			return 0;
		default:
			return -1;
	}
}

void
sweep_redis_tls_end(void)
{
	SSL_free(session);
	SSL_CTX_free(context);
	session = NULL;
	context = NULL;
}

#else							/* without OpenSSL */

const char *
sweep_redis_tls_begin(const SweepRedisTarget *target, int fd)
{
	return "pg_sweep_redis was built without TLS";
}

int
sweep_redis_tls_handshake(uint32 *wants)
{
	*wants = 0;
	return -1;
}

const char *
sweep_redis_tls_reason(void)
{
	return "pg_sweep_redis was built without TLS";
}

bool
sweep_redis_tls_is_cert_rejected(void)
{
	return false;
}

bool
sweep_redis_tls_is_active(void)
{
	return false;
}

bool
sweep_redis_tls_is_quiet(void)
{
	return false;
}

ssize_t
sweep_redis_tls_write(const char *data, size_t size, uint32 *wants)
{
	*wants = 0;
	return -1;
}

ssize_t
sweep_redis_tls_read(char *data, size_t size, uint32 *wants)
{
	*wants = 0;
	return -1;
}

void
sweep_redis_tls_end(void)
{
}

#endif							/* SWEEP_REDIS_TLS */
