/*
 * planted.h
 *		Errors that a checker of memory has to report.
 *
 * check-memory includes this file into a copy of the source of sweep._has_workers(), has that function call this one, and looks for the
 * reports. The values are volatile, so that no compiler finds the errors, or leaves them out.
 */
static pg_noinline void
planted_errors(void)
{
	volatile int forty = 40;
	volatile int places[4] = {0};
	volatile int *freed = palloc0(sizeof(int) * 4);

	pfree((void *) freed);
	places[0] = 1 << forty;
	if (places[forty / 10] == freed[1])
		places[0] = 0;
}
