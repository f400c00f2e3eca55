/*
 * address_shim.c
 *		Gives the host several.test two addresses, 127.0.0.2 and then 127.0.0.1: preloaded by redis_connection.pl.
 *
 *		cc -shared -fPIC -o address_shim.so address_shim.c -ldl
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

typedef int (*GetAddrInfo) (const char *host, const char *service, const struct addrinfo *hint, struct addrinfo **list);

int
getaddrinfo(const char *host, const char *service, const struct addrinfo *hint, struct addrinfo **list)
{
	GetAddrInfo real = (GetAddrInfo) dlsym(RTLD_NEXT, "getaddrinfo");
	int			error;

	if (host == NULL || strcmp(host, "several.test") != 0)
		return real(host, service, hint, list);
	error = real("127.0.0.2", service, hint, list);
	return error != 0 ? error : real("127.0.0.1", service, hint, &(*list)->ai_next);
}
