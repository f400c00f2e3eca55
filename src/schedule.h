/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  Due times of schedules in PostgreSQL's time zones and timestamps.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SWEEP_SCHEDULE_H
#define SWEEP_SCHEDULE_H

#include "datatype/timestamp.h"

/*
 * The first moment after "after" at which the schedule is due, or DT_NOEND when
 * there is none (@reboot). timezone NULL: the session's. job_name is what H is
 * derived from; NULL counts as "".
 *
 * Raises invalid_parameter_value for a schedule that cannot be parsed, a zone
 * that does not exist and an "after" that is -infinity.
 */
extern TimestampTz sweep_schedule_next(const char *schedule, const char *timezone,
									   const char *job_name, TimestampTz after);

#endif							/* SWEEP_SCHEDULE_H */
