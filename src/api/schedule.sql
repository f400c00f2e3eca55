-- Schedules: when a text is due. The language is described in cron.h and doc/reference.md.

CREATE FUNCTION sweep.next_runs(
    schedule text,
    timezone text DEFAULT 'UTC',
    after timestamptz DEFAULT pg_catalog.now(),
    n int DEFAULT 5,
    job text DEFAULT NULL)
RETURNS SETOF timestamptz
LANGUAGE C STABLE PARALLEL SAFE ROWS 5
AS 'MODULE_PATHNAME', 'sweep_schedule_next_runs';

COMMENT ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) IS
'The next n moments at which a schedule is due, in a time zone (never the session''s). job: the name that H is derived from.';

-- The zones are those of the server's files, which an update may replace: hence stable.
CREATE FUNCTION sweep._next_run(schedule text, timezone text, after timestamptz, job text)
RETURNS timestamptz
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sweep_schedule_next_run';

COMMENT ON FUNCTION sweep._next_run(text, text, timestamptz, text) IS
'The first moment after another one at which a job''s schedule is due; NULL when there is none (no schedule, @reboot). Raises for a bad schedule or time zone.';

CREATE FUNCTION sweep._schedule_kind(schedule text)
RETURNS text
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sweep_schedule_kind';

COMMENT ON FUNCTION sweep._schedule_kind(text) IS
'What a schedule goes by: interval (every N ...), repeating (second, minute or hour is * or has a step), fixed (any other). Raises for a bad schedule.';

-- Asked of all jobs at once: one that cannot be read must not keep the others from being found. Words and cases as in cron.c.
CREATE FUNCTION sweep._is_reboot(schedule text)
RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN schedule COLLATE pg_catalog."C" ~* E'^[ \\t\\n\\v\\f\\r]*@reboot[ \\t\\n\\v\\f\\r]*$';

COMMENT ON FUNCTION sweep._is_reboot(text) IS
'Is the schedule @reboot, due when the scheduler starts and at no other moment? No when it cannot be read.';
