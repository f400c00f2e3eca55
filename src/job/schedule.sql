-- Schedules: the moments at which a job is due. The language is described in ../cron/cron.h and doc/reference.md. The functions
-- return moments only from the schedule: a moment may have no run, because the job is paused or a run of it is in progress.

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

-- STABLE, not IMMUTABLE: an update may replace the time zone files of the server.
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
'Kind of a schedule: interval (every N ...), repeating (second, minute or hour is * or has a step), fixed (any other). Raises for a bad schedule.';

-- A query calls this for all jobs at once, so a schedule that cannot be read must not raise an error. The pattern accepts the
-- same white space, and upper and lower case, as cron.c.
CREATE FUNCTION sweep._is_reboot(schedule text)
RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN schedule COLLATE pg_catalog."C" ~* E'^[ \\t\\n\\v\\f\\r]*@reboot[ \\t\\n\\v\\f\\r]*$';

COMMENT ON FUNCTION sweep._is_reboot(text) IS
'Whether the schedule is @reboot: due once after each start of the server and at no other moment. False if it cannot be read.';

-- A job can have only a zone of pg_timezone_names: PostgreSQL accepts any text such as "x5" as a time zone, and a process keeps
-- each zone that it has looked up in memory.
CREATE FUNCTION sweep._find_zone(name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.text := CASE WHEN name IN ('UTC', 'GMT') THEN name END;
	posix pg_catalog.text[];
BEGIN
	IF name IS NULL OR known IS NOT NULL THEN
		RETURN name;
	END IF;
	IF pg_catalog.octet_length(name) > 255 THEN
		RAISE EXCEPTION 'name of a time zone is too large: % bytes', pg_catalog.octet_length(name)
			USING ERRCODE = 'program_limit_exceeded', HINT = 'It may have 255 bytes.';
	END IF;
	SELECT z.name INTO known FROM pg_catalog.pg_timezone_names z WHERE pg_catalog.lower(z.name COLLATE "C") = pg_catalog.lower(_find_zone.name COLLATE "C") LIMIT 1;
	IF known IS NULL THEN
		posix := pg_catalog.regexp_match(name, '^(?:<[^>]*>|[[:alpha:]]+)?([+-]?)0*([0-9]{1,2})$');
		RAISE EXCEPTION 'time zone "%" does not exist', name USING ERRCODE = 'invalid_parameter_value',
			HINT = 'The view pg_timezone_names lists what there is, for example Europe/Berlin'
				|| CASE WHEN posix IS NULL THEN '.' ELSE pg_catalog.format(' or, for a fixed offset, Etc/GMT%s%s.', coalesce(nullif(posix[1], ''), '+'), posix[2]) END;
	END IF;
	RETURN known;
END
$$;
COMMENT ON FUNCTION sweep._find_zone(text) IS 'the name of a time zone as the server writes it; raises when pg_timezone_names does not have it';
