/*
 * elsewhere.c
 *		Whether a transaction commits on other servers as well.
 *
 * Called at the end of a batch (batch.c) and of what a consumer handles (consumer_turn.c). A commit that does
 * not wait for the disk may be undone by a crash of this server; one of another server is not undone with it.
 * So the engine has to know.
 *
 * Citus commits on its workers in two phases, and then the record of our commit decides for them, unless the
 * transaction has written on one worker alone: that one is committed before us, and a crash in between loses
 * our part. Citus has a function for those who need two phases all the same, and one that says whether the
 * transaction is a distributed one; they are called by name where Citus is loaded and has them.
 *
 * Of foreign data wrappers nothing says who has an open transaction. But their libraries are loaded when
 * they are used first, so a process without one has used none; dblink is the same. With one that is preloaded
 * that errs on the safe side.
 */
#include "postgres.h"

#include <link.h>

#include "fmgr.h"

#include "base/elsewhere.h"

typedef struct Libraries
{
	unsigned long long count;	/* how many were loaded when this was looked up */
	bool		reach_out;		/* one of them talks to other servers */
	bool		has_citus;
} Libraries;

static bool look_at_libraries(Libraries *libraries);
static int	count_libraries(struct dl_phdr_info *library, size_t size, void *arg);
static int	look_at_library(struct dl_phdr_info *library, size_t size, void *arg);
static bool has_suffix(const char *text, const char *suffix);
static bool prepare_citus(void);

bool
sweep_elsewhere_prepare_commit(void)
{
	static Libraries libraries;

	if (!look_at_libraries(&libraries))
		return false;
	return (libraries.has_citus && prepare_citus()) || libraries.reach_out;
}

/* False when none of them matters. Looked at again when a library was loaded meanwhile. */
static bool
look_at_libraries(Libraries *libraries)
{
	unsigned long long count = 0;

	(void) dl_iterate_phdr(count_libraries, &count);
	if (count != libraries->count)
	{
		*libraries = (Libraries) {.count = count};
		(void) dl_iterate_phdr(look_at_library, libraries);
	}
	return libraries->reach_out || libraries->has_citus;
}

/* Each entry has the number of libraries ever loaded: the first will do. */
static int
count_libraries(struct dl_phdr_info *library, size_t size, void *arg)
{
	*(unsigned long long *) arg = library->dlpi_adds;
	return 1;
}

static int
look_at_library(struct dl_phdr_info *library, size_t size, void *arg)
{
	Libraries  *libraries = arg;

	if (has_suffix(library->dlpi_name, "_fdw" DLSUFFIX) || has_suffix(library->dlpi_name, "/dblink" DLSUFFIX))
		libraries->reach_out = true;
	if (has_suffix(library->dlpi_name, "/citus" DLSUFFIX))
		libraries->has_citus = true;
	return 0;
}

static bool
has_suffix(const char *text, const char *suffix)
{
	size_t		length = strlen(text);

	return length >= strlen(suffix) && strcmp(text + length - strlen(suffix), suffix) == 0;
}

/* Whether this is a distributed transaction; then it commits in two phases. */
static bool
prepare_citus(void)
{
	static bool (*is_distributed) (void) = NULL;
	static void (*use_two_phases) (void) = NULL;
	static bool looked_up = false;

	if (!looked_up)
	{
		is_distributed = (bool (*) (void)) load_external_function("$libdir/citus", "InCoordinatedTransaction", false, NULL);
		use_two_phases = (void (*) (void)) load_external_function("$libdir/citus", "Use2PCForCoordinatedTransaction", false, NULL);
	}
	looked_up = true;
	if (is_distributed != NULL && !is_distributed())
		return false;
	if (use_two_phases != NULL)
		use_two_phases();
	return true;
}
