/*
 * clock_shim.c
 *		Shifts the wall clock of a server while it runs: preloaded by tests, which compile it.
 *
 *		cc -shared -fPIC -o clock_shim.so clock_shim.c -ldl
 *		LD_PRELOAD=./clock_shim.so CLOCK_SHIM=./clock pg_ctl start ...
 *
 * The file CLOCK_SHIM has eight bytes, a signed number of microseconds in the byte order of the machine, that is added to
 * the wall clock: gettimeofday(), time() and clock_gettime() of CLOCK_REALTIME. All processes of the server map the
 * file, so whoever writes into it (in place; a file that is cut or replaced is another one) steps the clock of all of them
 * at once. CLOCK_MONOTONIC, sleeps, timeouts of system calls and timers of the kernel go on as they are, as they do when
 * the clock of a machine is set. Two servers with a file each have clocks that differ. Without CLOCK_SHIM nothing is shifted.
 *
 * In Perl: new_cluster('name', clock => 1) starts such a server, set_clock($node, -2) sets its clock 2 s back,
 * start_with_clock($node) starts one that was stopped or that the test has made itself (a standby).
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define US_PER_S INT64_C(1000000)

typedef int (*ClockGetTime) (clockid_t clock, struct timespec *now);

static const int64_t no_offset = 0;
static const volatile int64_t *offset_us = &no_offset;
static ClockGetTime real_clock_gettime = NULL;

/* Before main(), and in each process: what is called later may be called in a signal handler. */
__attribute__((constructor)) static void
attach(void)
{
	const char *name = getenv("CLOCK_SHIM");
	int			file = name != NULL ? open(name, O_RDONLY) : -1;
	void	   *mapped;

	real_clock_gettime = (ClockGetTime) dlsym(RTLD_NEXT, "clock_gettime");
	if (name == NULL)
		return;
	/* A test that only seems to set the clock would pass. */
	if (file < 0)
		abort();
	mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	if (mapped == MAP_FAILED)
		abort();
	close(file);
	offset_us = mapped;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result;

	/* Other constructors may ask for the time before ours has run. */
	if (real_clock_gettime == NULL)
		real_clock_gettime = (ClockGetTime) dlsym(RTLD_NEXT, "clock_gettime");
	result = real_clock_gettime(clock, now);
	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
	{
		int64_t		us = now->tv_sec * US_PER_S + now->tv_nsec / 1000 + *offset_us;

		now->tv_sec = us / US_PER_S;
		now->tv_nsec = us % US_PER_S * 1000 + now->tv_nsec % 1000;
	}
	return result;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;

	(void) zone;
	if (now == NULL)
		return 0;
	if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
		return -1;
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_REALTIME, &now);
	if (result != NULL)
		*result = now.tv_sec;
	return now.tv_sec;
}
