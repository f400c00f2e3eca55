\echo Use "CREATE EXTENSION pg_sweep" to load this file. \quit
SET LOCAL quote_all_identifiers = off;
--
-- The types of the values that SQL and C exchange.
--
CREATE SCHEMA sweep;
COMMENT ON SCHEMA sweep IS 'pg_sweep: scheduled, guarded, bounded batch jobs, one commit per batch';

CREATE TYPE sweep.batch AS (
	size    int,
	cursor  jsonb,
	args    jsonb,
	as_of   timestamptz,
	bucket  int,
	buckets int,
	items   jsonb[],
	run_id  bigint
);
COMMENT ON TYPE sweep.batch IS 'what a step is asked to do: one batch';
COMMENT ON COLUMN sweep.batch.size IS 'handle at most this many rows';
COMMENT ON COLUMN sweep.batch.cursor IS 'what the previous batch returned; NULL in the first, or where the last run stopped when the job keeps its cursor';
COMMENT ON COLUMN sweep.batch.args IS 'the args of the job, merged with those of the run';
COMMENT ON COLUMN sweep.batch.as_of IS 'the clock of this batch: predicates use it, never now()';
COMMENT ON COLUMN sweep.batch.bucket IS 'the share to handle, from 0; NULL unless the job is divided';
COMMENT ON COLUMN sweep.batch.buckets IS 'number of shares; NULL unless the job is divided';
COMMENT ON COLUMN sweep.batch.items IS 'the items to handle; NULL unless the job picks its items first';
COMMENT ON COLUMN sweep.batch.run_id IS 'the run this batch belongs to';

CREATE TYPE sweep.progress AS (
	rows   bigint,
	cursor jsonb,
	detail jsonb
);
COMMENT ON TYPE sweep.progress IS 'what a step did in one batch';
COMMENT ON COLUMN sweep.progress.rows IS 'rows handled; 0 means nothing is left';
COMMENT ON COLUMN sweep.progress.cursor IS 'where the next batch goes on; NULL means from the start again';
COMMENT ON COLUMN sweep.progress.detail IS 'merged by key into the detail of the run: numbers are added, arrays appended, objects merged in the same way; of anything else the last one stands';

-- The library looks this type up, see extension.c. A script that updates to another interface renames it.
CREATE TYPE sweep._interface_1 AS ENUM ();
COMMENT ON TYPE sweep._interface_1 IS 'number of the interface between the library and the objects of the extension';
--
-- Compares the library that is loaded with the objects that are to be created, before there is a function that calls it: a server that
-- was not restarted after the files were installed has an older one, which may lack this very function. In the install script of
-- pg_sweep the schema comes first; in all others this does. The Makefile puts in what is between two @.
--
DO $$
BEGIN
	IF 'pg_sweep' <> 'pg_sweep' AND (SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'pg_sweep') <> '0.3.0' THEN
		RAISE EXCEPTION 'extension pg_sweep 0.3.0 needs pg_sweep 0.3.0' USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Execute ALTER EXTENSION pg_sweep UPDATE first.';
	ELSIF pg_catalog.to_regproc('sweep._require_library') IS NULL THEN
		CREATE FUNCTION sweep._require_library(version text) RETURNS void
			LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_extension_require_library';
		COMMENT ON FUNCTION sweep._require_library(text) IS 'raises unless the library that is loaded is of this version: the first statement of each update script';
	END IF;
	PERFORM sweep._require_library('0.3.0');
EXCEPTION WHEN undefined_function THEN
	RAISE EXCEPTION 'extension pg_sweep 0.3.0 needs its library, and an older one is loaded' USING ERRCODE = 'object_not_in_prerequisite_state',
		HINT = 'Restart the server after the files of the extension were installed.';
END
$$;
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
--
-- Jobs: their text, schedule, limits and role.
--
-- sweep.job_definition has the settings of the jobs. Users see it as the view sweep.job (../api/monitor.sql). Only the functions
-- in job_api.sql write it. sweep.job_state has a small row per job with what changes while time passes: when the job is due
-- next, whether it is paused or broken. The scheduler updates that row. README.md says how to add a setting.
--
-- A public function is a C dispatcher (../api/caller.c). It calls its namesake with one more leading underscore, as the owner
-- of the extension, and passes the caller's role as the first argument.
--
CREATE TABLE sweep.job_definition (
	name             text PRIMARY KEY,
	schedule         text,
	sql              text,
	batch_sql        text,
	step             text,
	timezone         text NOT NULL,
	args             jsonb NOT NULL,
	pick             text,
	rescue           text,
	transaction      text NOT NULL,
	row_retries      int NOT NULL,
	batch_size       int NOT NULL,
	max_batches      int,
	max_rows         bigint,
	stop_after       interval,
	timeout          interval,
	pause            interval,
	settings         jsonb NOT NULL,
	lock_key         text NOT NULL,
	lock_retries     int NOT NULL,
	lock_retry_delay interval NOT NULL,
	max_attempts     int NOT NULL,
	overlap          text NOT NULL,
	catch_up         text NOT NULL,
	jitter           interval NOT NULL,
	cursor           text NOT NULL,
	estimate         text,
	on_start         jsonb,
	on_success       jsonb,
	on_failure       jsonb,
	alert_queue      text,
	priority         int NOT NULL,
	flush            text,
	buckets          int,
	bucket_store     text NOT NULL,
	bucket_recovery  interval NOT NULL,
	bucket_key       text NOT NULL,
	buckets_function text,
	run_as           text NOT NULL,
	description      text,
	-- The scheduler parses these texts: a long one would delay all jobs. sweep._check_sizes refuses it first, with a message
	-- that names the text.
	CONSTRAINT job_size_check CHECK (greatest(pg_catalog.octet_length(name), pg_catalog.octet_length(schedule), pg_catalog.octet_length(step), pg_catalog.octet_length(timezone),
		pg_catalog.octet_length(pick), pg_catalog.octet_length(rescue), pg_catalog.octet_length(lock_key), pg_catalog.octet_length(alert_queue), pg_catalog.octet_length(bucket_key),
		pg_catalog.octet_length(buckets_function), pg_catalog.octet_length(run_as)) <= 1024),
	CONSTRAINT job_transaction_check CHECK (transaction IN ('batch', 'row')),
	CONSTRAINT job_overlap_check CHECK (overlap IN ('skip', 'queue_one', 'cancel_previous')),
	CONSTRAINT job_catch_up_check CHECK (catch_up IN ('once', 'skip', 'all')),
	CONSTRAINT job_cursor_check CHECK (cursor IN ('run', 'drain', 'always')),
	CONSTRAINT job_flush_check CHECK (flush IN ('run', 'batch')),
	CONSTRAINT job_bucket_store_check CHECK (bucket_store IN ('table', 'redis'))
);
CREATE INDEX job_lock_key_idx ON sweep.job_definition (lock_key);
COMMENT ON INDEX sweep.job_lock_key_idx IS 'for sweep.try_lock';
COMMENT ON TABLE sweep.job_definition IS 'jobs: what runs, when, within which limits, as whom';
COMMENT ON COLUMN sweep.job_definition.name IS 'name of the job';
COMMENT ON COLUMN sweep.job_definition.step IS 'function(sweep.batch) that does one batch, schema-qualified; NULL when sql or batch_sql is set';
COMMENT ON COLUMN sweep.job_definition.sql IS 'statements that are executed once, each in a transaction of its own unless they say BEGIN; NULL when batch_sql or step is set';
COMMENT ON COLUMN sweep.job_definition.batch_sql IS 'statement that does one batch: $1 is the batch size, $2 the batch; NULL when sql or step is set';
COMMENT ON COLUMN sweep.job_definition.schedule IS 'cron expression or interval; NULL: started by hand only';
COMMENT ON COLUMN sweep.job_definition.timezone IS 'time zone of the schedule, also stored without a schedule';
COMMENT ON COLUMN sweep.job_definition.args IS 'args of every batch; the args of a run are merged over them';
COMMENT ON COLUMN sweep.job_definition.pick IS 'function(sweep.batch) RETURNS SETOF jsonb that picks the items of a batch; NULL: the step finds its rows itself';
COMMENT ON COLUMN sweep.job_definition.rescue IS 'function(sweep.batch, error jsonb) RETURNS sweep.progress for the single item that the step fails with';
COMMENT ON COLUMN sweep.job_definition.transaction IS 'batch: the items of a batch are committed together; row: each by itself';
COMMENT ON COLUMN sweep.job_definition.row_retries IS 'further tries, at once, when items fail for a passing reason';
COMMENT ON COLUMN sweep.job_definition.flush IS 'run: the last commit of a run waits for the disk; batch: every commit does; NULL: the last one does, and commits in which other servers take part';
COMMENT ON COLUMN sweep.job_definition.batch_size IS 'maximal number of rows of a batch';
COMMENT ON COLUMN sweep.job_definition.max_batches IS 'maximal number of batches of a run; NULL: no limit';
COMMENT ON COLUMN sweep.job_definition.max_rows IS 'maximal number of rows of a run; NULL: no limit';
COMMENT ON COLUMN sweep.job_definition.stop_after IS 'no new batch begins after this time; NULL: no limit';
COMMENT ON COLUMN sweep.job_definition.lock_key IS 'name of the lock that a run holds; jobs of a role that share it exclude each other';
COMMENT ON COLUMN sweep.job_definition.timeout IS 'a run is stopped after this time, its batch in flight rolled back; NULL: no limit';
COMMENT ON COLUMN sweep.job_definition.pause IS 'time between two batches in which a run does nothing; NULL: none';
COMMENT ON COLUMN sweep.job_definition.settings IS 'settings of a run, on top of those of its role: {"work_mem": "256MB"}';
COMMENT ON COLUMN sweep.job_definition.lock_retries IS 'further tries to take the lock';
COMMENT ON COLUMN sweep.job_definition.lock_retry_delay IS 'pause between two tries to take the lock';
COMMENT ON COLUMN sweep.job_definition.max_attempts IS 'maximal number of runs for one due moment, if they fail';
COMMENT ON COLUMN sweep.job_definition.overlap IS 'what happens when the job is due while a run of it is in progress: skip, queue_one, cancel_previous';
COMMENT ON COLUMN sweep.job_definition.catch_up IS 'what happens to due moments that passed while no scheduler was working: once, skip, all';
COMMENT ON COLUMN sweep.job_definition.jitter IS 'a start is delayed by a random time up to this';
COMMENT ON COLUMN sweep.job_definition.cursor IS 'how long the cursor is kept: run: until the run ends; drain: until a run drains; always: for good';
COMMENT ON COLUMN sweep.job_definition.estimate IS 'SELECT of one number, the rows that are to be processed, executed when a run starts; $1 is the batch. NULL: the rows of the last run that drained';
COMMENT ON COLUMN sweep.job_definition.run_as IS 'name of the role the job runs as; not its OID, which may be that of another role after a dump is restored';
COMMENT ON COLUMN sweep.job_definition.on_start IS 'jobs of which a run is queued when a run of this job starts, with the delays: {"name": "15 min"}';
COMMENT ON COLUMN sweep.job_definition.on_success IS 'the same when a run has succeeded; in a divided job when all shares have';
COMMENT ON COLUMN sweep.job_definition.on_failure IS 'the same when a run has failed or was lost, and is not tried again';
COMMENT ON COLUMN sweep.job_definition.alert_queue IS 'queue that gets a message when a run has failed, and when the job is broken; NULL: pg_sweep.alert_queue, if it exists';
COMMENT ON COLUMN sweep.job_definition.priority IS 'the waiting run of the highest priority gets the next free worker';
COMMENT ON COLUMN sweep.job_definition.buckets IS 'number of shares the job is divided into; NULL: it is not';
COMMENT ON COLUMN sweep.job_definition.bucket_store IS 'where its buckets are kept: table or redis';
COMMENT ON COLUMN sweep.job_definition.bucket_recovery IS 'time after which a claimed bucket is free again';
COMMENT ON COLUMN sweep.job_definition.bucket_key IS 'name of its buckets in the store redis';
COMMENT ON COLUMN sweep.job_definition.buckets_function IS 'function(sweep.batch) RETURNS int: the present number of buckets; NULL: all of them';
COMMENT ON COLUMN sweep.job_definition.description IS 'free text that says what the job is for';

-- No foreign key: its checks would lock the job. A session that changes a job could then wait for a scheduler that waits for the
-- same session.
CREATE TABLE sweep.job_state (
	job          text PRIMARY KEY,
	next_due     timestamptz,
	next_start   timestamptz,
	last_due     timestamptz,
	paused_at    timestamptz,
	broken       text,
	as_user      boolean NOT NULL DEFAULT false,
	boot         timestamptz,
	drained_rows bigint,
	kept_cursor  jsonb,
	last_begun   bigint,
	alert_queue_owner text,
	hook_roles   jsonb,
	failed_before text,
	crashes      int NOT NULL DEFAULT 0,
	crashed_at   timestamptz,
	goes_with_history boolean NOT NULL DEFAULT false,
	-- The home of the job: the cluster and database that it was made for. It is in the same row as the due time, so that both are
	-- read together, whatever part of a dump is restored. A job without these values has no home.
	system_identifier bigint NOT NULL DEFAULT 0,
	database          oid NOT NULL DEFAULT 0,
	all_paused_at     timestamptz
) WITH (fillfactor = 50);
CREATE INDEX job_state_next_start_idx ON sweep.job_state (next_start) WHERE next_start IS NOT NULL;
CREATE INDEX job_state_crashes_idx ON sweep.job_state (job) WHERE crashes > 0;
COMMENT ON TABLE sweep.job_state IS 'when each job is due next, and whether it is paused or broken';
COMMENT ON COLUMN sweep.job_state.job IS 'name of the job';
COMMENT ON COLUMN sweep.job_state.next_due IS 'next moment of the schedule; NULL: none, or the schedule does not apply';
COMMENT ON COLUMN sweep.job_state.next_start IS 'next_due plus the jitter drawn for it';
COMMENT ON COLUMN sweep.job_state.last_due IS 'latest moment of the schedule that a run was queued for: an earlier moment may have had its run before the clock was set back';
COMMENT ON COLUMN sweep.job_state.paused_at IS 'since when this job alone is paused (sweep.pause); NULL: it is not';
COMMENT ON COLUMN sweep.job_state.failed_before IS 'the failure of its last run, from when it belonged to another role; it counts until a run of the present role has ended';
COMMENT ON COLUMN sweep.job_state.crashes IS 'how often in a row the server crashed while the job ran; begins at 1 again if a run has ended in between';
COMMENT ON COLUMN sweep.job_state.crashed_at IS 'when the server last crashed while the job ran';
COMMENT ON COLUMN sweep.job_state.goes_with_history IS 'whether a job that has drained is dropped when its last run is removed from the history';
COMMENT ON COLUMN sweep.job_state.broken IS 'why the job could not be started when it was last due';
COMMENT ON COLUMN sweep.job_state.as_user IS 'whether its role was a member of sweep_user when the job was given to it: then the job runs only while the role is a member';
COMMENT ON COLUMN sweep.job_state.drained_rows IS 'rows of the last run that drained: the estimate for the next one';
COMMENT ON COLUMN sweep.job_state.kept_cursor IS 'where the last run stopped; NULL when it drained, unless the job keeps its cursor for good';
COMMENT ON COLUMN sweep.job_state.last_begun IS 'value of begun in the run that has set drained_rows and kept_cursor; initially a number less than that of any run of the job';
COMMENT ON COLUMN sweep.job_state.boot IS 'server start for which an @reboot job has been started';
COMMENT ON COLUMN sweep.job_state.alert_queue_owner IS 'owner of the alert_queue when that was set: if the queue gets another owner, it gets no alerts unless that role may see the runs';
COMMENT ON COLUMN sweep.job_state.hook_roles IS 'roles of the jobs in the hooks at the time when the hooks were set: {"name": "role"}';
COMMENT ON COLUMN sweep.job_state.system_identifier IS 'cluster the job is meant for, and CREATE EXTENSION: see sweep._system_identifier';
COMMENT ON COLUMN sweep.job_state.database IS 'database the job is meant for: a copy of it elsewhere is paused until sweep.resume_all() is called there';
COMMENT ON COLUMN sweep.job_state.all_paused_at IS 'since when it is paused by sweep.pause_all; NULL: it is not, or was created afterwards';

-- Has a row while all jobs are paused. The row also pauses jobs that are created meanwhile, and jobs whose rows were locked,
-- since sweep.pause_all() does not wait for locks. Without the row, a job still never starts outside its home.
CREATE TABLE sweep.control (
	only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
	paused_at timestamptz NOT NULL
);
COMMENT ON TABLE sweep.control IS 'whether all jobs and consumers of this database are paused';
COMMENT ON COLUMN sweep.control.only_row IS 'always true';
COMMENT ON COLUMN sweep.control.paused_at IS 'since when all are paused';

SELECT pg_catalog.pg_extension_config_dump('sweep.job_definition', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.job_state', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.control', '');

-- ------------------------------------------------------------------ C functions for the functions below
CREATE FUNCTION sweep._wake() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_worker_wake';
COMMENT ON FUNCTION sweep._wake() IS 'wakes a scheduler for this database when the transaction commits';

CREATE FUNCTION sweep._wake_for_change() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._wake();
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._wake_for_change() IS 'wakes a scheduler for this database when the table has changed';
-- The trigger also wakes the scheduler when a dump is restored, which calls no function of the extension.
CREATE TRIGGER job_added AFTER INSERT ON sweep.job_state
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._wake_for_change();

CREATE FUNCTION sweep._has_workers() RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_ask_has_workers';
COMMENT ON FUNCTION sweep._has_workers() IS 'whether pg_sweep was loaded at server start, so that it can start workers';

CREATE FUNCTION sweep._database_is_allowed() RETURNS boolean
	LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_settings_database_is_allowed';
COMMENT ON FUNCTION sweep._database_is_allowed() IS 'whether pg_sweep.databases allows this database';

CREATE FUNCTION sweep._require_workers() RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT sweep._has_workers() THEN
		RAISE EXCEPTION 'pg_sweep cannot start background workers' USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'The library was not loaded at server start.',
			HINT = 'Add pg_sweep to shared_preload_libraries and restart the server; CALL sweep.run() works without, for a job that has batches.';
	ELSIF NOT sweep._database_is_allowed() THEN
		RAISE EXCEPTION 'pg_sweep does not start background workers in database "%"', pg_catalog.current_database()
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Add the database to pg_sweep.databases and reload the configuration.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._require_workers() IS 'raises when this server cannot start background workers for the database';

CREATE FUNCTION sweep._no_scheduler() RETURNS text
	LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_ask_obstacle';
COMMENT ON FUNCTION sweep._no_scheduler() IS 'why no scheduler starts in this database, whatever is due; NULL when one does';

CREATE FUNCTION sweep._warn_no_scheduler(what text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	obstacle constant pg_catalog.text := sweep._no_scheduler();
BEGIN
	IF obstacle IS NOT NULL THEN
		RAISE WARNING '%', what USING DETAIL = pg_catalog.format('No scheduler works here: %s.', obstacle), HINT = CASE obstacle
			WHEN 'pg_sweep is not in shared_preload_libraries' THEN
				'Add pg_sweep to shared_preload_libraries and restart the server; CALL sweep.run() works without, for a job that has batches.'
			WHEN 'the server is a standby' THEN 'Jobs run on the primary, and here after a promotion.'
			WHEN 'pg_sweep.enabled is off' THEN 'Set pg_sweep.enabled to on and reload the configuration.'
			WHEN 'pg_sweep.start_paused is on' THEN 'Set pg_sweep.start_paused to off and reload the configuration.'
			WHEN 'the database is not in pg_sweep.databases' THEN 'Add the database to pg_sweep.databases and reload the configuration.'
			WHEN 'the database is a template' THEN 'ALTER DATABASE with IS_TEMPLATE false makes it an ordinary one.'
			ELSE 'The postmaster starts it again, if max_worker_processes lets it; the server log has the error that ended it.' END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._warn_no_scheduler(text) IS 'if no scheduler works here, raises a warning with that text';

CREATE FUNCTION sweep._check_batch_sql(role oid, batch_sql text, settings jsonb) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_definition_check_batch_sql';
COMMENT ON FUNCTION sweep._check_batch_sql(oid, text, jsonb) IS 'raises unless the text is one INSERT, UPDATE, DELETE or MERGE that the role can have analysed, with these settings';

CREATE FUNCTION sweep._check_setting(role oid, name text, value text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_environment_check';
COMMENT ON FUNCTION sweep._check_setting(oid, text, text) IS 'raises unless the role may set it to that';

CREATE FUNCTION sweep._check_estimate(role oid, estimate text, settings jsonb) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_estimate_check';
COMMENT ON FUNCTION sweep._check_estimate(oid, text, jsonb) IS 'raises unless the text is one SELECT of a number that the role can have analysed, with these settings';

CREATE FUNCTION sweep._signal_cancel(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_shared_signal_cancel';
COMMENT ON FUNCTION sweep._signal_cancel(bigint) IS 'asks the process of a run to stop; false when there is none';

-- ------------------------------------------------------------------ rights
-- Tables have the name of a role, the caller is an OID. base/role.c decides and describes the two rights: to act for a role, and
-- to become it.
CREATE FUNCTION sweep._role_oid(role text) RETURNS oid
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_to_oid';
COMMENT ON FUNCTION sweep._role_oid(text) IS 'the role of that name; NULL when there is none';

CREATE FUNCTION sweep._role_name(role oid) RETURNS text
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_to_name';
COMMENT ON FUNCTION sweep._role_name(oid) IS 'the name of a role, as it is stored; raises when there is none';

CREATE FUNCTION sweep._acts_for(caller oid, role text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_may_act';
COMMENT ON FUNCTION sweep._acts_for(oid, text) IS 'whether the caller has the rights of the role, which exists';

CREATE FUNCTION sweep._can_become(caller oid, role text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_may_become';
COMMENT ON FUNCTION sweep._can_become(oid, text) IS 'whether the caller may SET ROLE to the role, which exists';

CREATE FUNCTION sweep._may_see(run_as text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_may_see';
COMMENT ON FUNCTION sweep._may_see(text) IS 'whether the current user may see jobs and runs of a role: its members, and roles that watch or act on all';

CREATE FUNCTION sweep._is_trusted(function regprocedure, role text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_step_is_trusted';
COMMENT ON FUNCTION sweep._is_trusted(regprocedure, text) IS 'whether the owner of the function could become the role, or is that of the extension';

CREATE FUNCTION sweep._may_act_on(caller oid, role text, operators boolean) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN sweep._acts_for(caller, role) OR sweep._acts_for(caller, 'sweep_admin') OR operators AND sweep._acts_for(caller, 'sweep_operator');
END
$$;
COMMENT ON FUNCTION sweep._may_act_on(oid, text, boolean) IS 'whether the caller may act on what belongs to the role, as its member, sweep_admin, or sweep_operator if these may';

CREATE FUNCTION sweep._check_job_right(caller oid, name text, job sweep.job_definition, operators boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF job.name IS NULL THEN
		RAISE EXCEPTION 'job "%" does not exist', _check_job_right.name
			USING ERRCODE = 'undefined_object', HINT = 'The view sweep.jobs lists the jobs of this database.';
	END IF;
	IF NOT sweep._may_act_on(caller, job.run_as, operators) THEN
		RAISE EXCEPTION 'permission denied for job "%"', job.name
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('Members of %s%s and sweep_admin may do this.', pg_catalog.quote_ident(job.run_as),
					CASE WHEN operators THEN ', sweep_operator' ELSE '' END);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_job_right(oid, text, sweep.job_definition, boolean) IS 'raises unless there is the job and the caller may act on it';

-- The rights are checked again on the locked job: the session that held the lock may have given the job to another role, or
-- dropped it, and another role may have taken the name. A caller without a right is refused before it waits.
CREATE FUNCTION sweep._lock_job(caller oid, name text, operators boolean, shared boolean) RETURNS sweep.job_definition
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job sweep.job_definition;
BEGIN
	SELECT * INTO job FROM sweep.job_definition j WHERE j.name = _lock_job.name;
	PERFORM sweep._check_job_right(caller, name, job, operators);
	IF shared THEN
		SELECT * INTO job FROM sweep.job_definition j WHERE j.name = _lock_job.name FOR KEY SHARE;
	ELSE
		SELECT * INTO job FROM sweep.job_definition j WHERE j.name = _lock_job.name FOR UPDATE;
	END IF;
	PERFORM sweep._check_job_right(caller, name, job, operators);
	RETURN job;
END
$$;
COMMENT ON FUNCTION sweep._lock_job(oid, text, boolean, boolean) IS
	'locks the job, for changing it or (shared) to keep others from that, and returns it, if the caller may act on it then';

-- ------------------------------------------------------------------ time
CREATE FUNCTION sweep._reschedule(job text, after timestamptz, queued timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job_definition;
	due pg_catalog.timestamptz;
BEGIN
	SELECT * INTO j FROM sweep.job_definition WHERE name = _reschedule.job;
	IF j.schedule IS NOT NULL THEN
		due := sweep._next_run(j.schedule, j.timezone, after, j.name);
	END IF;
	UPDATE sweep.job_state AS s SET next_due = CASE WHEN s.paused_at IS NULL THEN due END,
			next_start = CASE WHEN s.paused_at IS NULL THEN due + pg_catalog.random() * j.jitter END,
			last_due = CASE WHEN s.last_due - queued BETWEEN '0' AND '3 h' THEN s.last_due ELSE coalesce(queued, s.last_due) END
		WHERE s.job = _reschedule.job;
EXCEPTION WHEN invalid_parameter_value THEN
	-- The server does not know the time zone, or the schedule cannot be read. The job is broken, and is tried again in a minute, so
	-- that it runs again when the cause is gone.
	UPDATE sweep.job_state AS s SET next_due = NULL, next_start = after + interval '1 min'
		WHERE s.job = _reschedule.job AND s.paused_at IS NULL;
	PERFORM sweep._set_broken(job, SQLERRM) WHERE FOUND;
END
$$;
COMMENT ON FUNCTION sweep._reschedule(text, timestamptz, timestamptz) IS 'computes next_due and next_start: the first moment of the schedule after the given one; queued: if a run was just queued, the moment that it is for, which is stored as last_due';

CREATE FUNCTION sweep._system_identifier() RETURNS bigint
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_worker_system_identifier';
COMMENT ON FUNCTION sweep._system_identifier() IS 'identifies the cluster and, in it, what CREATE EXTENSION has created; unlike pg_control_system() it reads no file';

CREATE FUNCTION sweep._is_home(system_identifier bigint, database oid) RETURNS boolean
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_worker_is_home';
COMMENT ON FUNCTION sweep._is_home(bigint, oid) IS 'whether this is that cluster, extension and database; used in the statement that reads which jobs are to be started';
--
-- Checks of a job with sql, whose text is executed once per run.
--
CREATE FUNCTION sweep._check_sql(sql text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_definition_check_sql';
COMMENT ON FUNCTION sweep._check_sql(text) IS 'raises unless the text consists of statements that can be executed in the background; names are looked up when it is executed';

CREATE FUNCTION sweep._check_sql_settings(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	IF job.sql IS NULL THEN
		RETURN;
	END IF;
	SELECT c.* INTO wrong FROM (VALUES
		('max_batches', job.max_batches IS NOT NULL, 'It is executed once: timeout limits it.'),
		('max_rows', job.max_rows IS NOT NULL, 'It is executed once: timeout limits it.'),
		('stop_after', job.stop_after IS NOT NULL, 'It is executed once: timeout limits it.'),
		('pause', job.pause IS NOT NULL, 'It has no batches to pause between.'),
		('estimate', job.estimate IS NOT NULL, 'How much of it is done is known by its statements: batches in sweep.running.'),
		('cursor', job.cursor <> 'run', 'It is executed once and begins at the start each time.'),
		('args', job.args <> '{}', 'It has no parameters: write values into the text.'),
		('pick', job.pick IS NOT NULL, 'It has no items: for those write a step.'),
		('rescue', job.rescue IS NOT NULL, 'It has no items: for those write a step.'),
		('transaction', job.transaction <> 'batch', 'Each statement is a transaction: write BEGIN and COMMIT around those that belong together.'),
		('flush', job.flush IS NOT NULL, 'It commits as a session would: SET synchronous_commit in the text.'),
		('buckets', job.buckets IS NOT NULL, 'It is executed once, as a whole: to be divided it needs a step or a batch_sql.'),
		('buckets_function', job.buckets_function IS NOT NULL, 'It is executed once, as a whole: to be divided it needs a step or a batch_sql.')
	) AS c (name, given, hint) WHERE c.given LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'job "%" has sql, for which % means nothing', job.name, wrong.name
			USING ERRCODE = 'invalid_parameter_value', HINT = wrong.hint || pg_catalog.format(' Leave %s out.', wrong.name);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_sql_settings(sweep.job_definition) IS 'raises when a job with sql has a setting that only has a meaning for batches';
--
-- The kinds of jobs, and the settings that have no meaning for a kind. sql_job.sql and job_check.sql refuse such settings, too, with a hint for
-- each.
--
CREATE FUNCTION sweep._job_defaults() RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	defaults pg_catalog.jsonb;
BEGIN
	EXECUTE (SELECT pg_catalog.format('SELECT pg_catalog.jsonb_object_agg(d.name, d.value) FROM (VALUES %s) AS d (name, value)',
			pg_catalog.string_agg(pg_catalog.format('(%L, pg_catalog.to_jsonb(%s))', a.attname, pg_catalog.pg_get_function_arg_default(p.oid, g.n::pg_catalog.int4)), ', '))
		FROM pg_catalog.pg_proc p CROSS JOIN LATERAL pg_catalog.unnest(p.proargnames) WITH ORDINALITY AS g (name, n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = 'sweep.job_definition'::pg_catalog.regclass AND a.attname = g.name AND a.attnum > 0
		WHERE p.oid = 'sweep.create_job'::pg_catalog.regproc AND pg_catalog.pg_get_function_arg_default(p.oid, g.n::pg_catalog.int4) IS NOT NULL) INTO defaults;
	RETURN defaults;
END
$$;
COMMENT ON FUNCTION sweep._job_defaults() IS 'the values that sweep.create_job gives to settings that are left out';

CREATE FUNCTION sweep._job_kind(job sweep.job_definition) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN job.sql IS NOT NULL THEN 'sql' WHEN job.batch_sql IS NOT NULL THEN 'batch_sql'
		WHEN job.step ~ E'^sweep\\.[a-z]+_step$' THEN pg_catalog.substring(job.step, E'^sweep\\.(.*)_step$')
		WHEN job.pick IS NOT NULL THEN 'items' ELSE 'step' END;
END
$$;
COMMENT ON FUNCTION sweep._job_kind(sweep.job_definition) IS 'sql, batch_sql, step, items (a step with a pick), or its maker: retention, backfill, copy, partitions';

-- Checks only the settings in "named". A setting with its default value counts as left out.
CREATE FUNCTION sweep._check_kind(job sweep.job_definition, named text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	kind constant pg_catalog.text := sweep._job_kind(job);
	given constant pg_catalog.jsonb := pg_catalog.to_jsonb(job);
	defaults constant pg_catalog.jsonb := sweep._job_defaults();
	wrong pg_catalog.text;
	of_items constant pg_catalog.text[] := '{pick,rescue,transaction,row_retries}';
	of_shares constant pg_catalog.text[] := '{buckets,buckets_function,bucket_store,bucket_recovery}';
	meaningless pg_catalog.text[];
BEGIN
	-- The check that there is exactly one of these is in job_check.sql.
	IF pg_catalog.num_nonnulls(job.sql, job.batch_sql, job.step) <> 1 THEN
		RETURN;
	END IF;
	meaningless := CASE kind WHEN 'items' THEN '{}' WHEN 'sql' THEN '{batch_size}' || of_items || of_shares WHEN 'batch_sql' THEN of_items WHEN 'step' THEN '{row_retries}'
		-- A maker that divides its job sets these settings itself.
		ELSE of_items || CASE WHEN job.buckets_function = 'sweep.range_count' AND named @> of_shares THEN '{}' ELSE of_shares END END;
	SELECT u.name INTO wrong FROM pg_catalog.unnest(meaningless) WITH ORDINALITY AS u (name, n)
		WHERE u.name = ANY (named) AND given -> u.name <> 'null' AND given -> u.name IS DISTINCT FROM defaults -> u.name ORDER BY u.n LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'job "%" %, for which % means nothing', job.name, CASE kind WHEN 'sql' THEN 'has sql' WHEN 'batch_sql' THEN 'has batch_sql'
				WHEN 'step' THEN 'has a step and no pick' WHEN 'partitions' THEN 'makes partitions' ELSE 'is a ' || kind END, wrong USING ERRCODE = 'invalid_parameter_value',
			HINT = CASE WHEN wrong = 'batch_size' THEN 'It is executed once and has no batches.'
				WHEN wrong = ANY (of_items) THEN 'It is for jobs with items: those that have a pick and a step.'
				WHEN kind = 'sql' THEN 'It is executed once, as a whole: to be divided it needs a step or a batch_sql.'
				WHEN kind = 'partitions' THEN 'Its batches are a partition each and follow each other: it cannot be divided.'
				WHEN kind IN ('retention', 'backfill', 'copy', 'delete', 'update') THEN 'It is divided into ranges of its key by parallel, when it is made.'
				ELSE 'Its batches are ranges of one key and follow each other: it cannot be divided.' END || pg_catalog.format(' Leave %s out.', wrong);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_kind(sweep.job_definition, text[]) IS 'raises when a setting that is named means nothing for a job of that kind';
--
-- The settings of PostgreSQL, such as search_path, with which a job runs, and the checks of the argument "settings" of a job. The
-- settings of a job itself, such as batch_size, are in job.sql. ../engine/environment.c sets them for a run.
--
-- Where a setting has several values, the first of these decides: the settings of the job; ALTER ROLE IN DATABASE, ALTER ROLE, ALTER DATABASE,
-- ALTER ROLE ALL; the configuration files.
CREATE FUNCTION sweep._run_meaning(role oid, settings jsonb) RETURNS jsonb
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.jsonb_object_agg(p.name, coalesce(
			(SELECT j.value FROM pg_catalog.jsonb_each_text(settings) AS j WHERE pg_catalog.lower(j.key COLLATE "C") = pg_catalog.lower(p.name COLLATE "C") LIMIT 1),
			(SELECT pg_catalog.substring(c.entry, '=(.*)$') FROM pg_catalog.pg_db_role_setting s CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (entry)
				WHERE s.setrole IN (0, role) AND s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
					AND pg_catalog.lower(pg_catalog.split_part(c.entry, '=', 1) COLLATE "C") = pg_catalog.lower(p.name COLLATE "C") ORDER BY s.setrole = 0, s.setdatabase = 0 LIMIT 1),
			(SELECT f.setting FROM pg_catalog.pg_file_settings f WHERE pg_catalog.lower(f.name COLLATE "C") = pg_catalog.lower(p.name COLLATE "C") AND f.applied ORDER BY f.seqno DESC LIMIT 1),
			p.boot_val))
		FROM pg_catalog.pg_settings p WHERE p.name IN ('search_path', 'transform_null_equals', 'array_nulls', 'DateStyle', 'IntervalStyle', 'TimeZone')
$$;
COMMENT ON FUNCTION sweep._run_meaning(oid, jsonb) IS
	'those settings of a background run of a role in this database, with the settings of the job, that decide the meaning of a statement';

CREATE FUNCTION sweep._check_settings(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	setting pg_catalog.record;
	refused pg_catalog.text;
BEGIN
	FOR setting IN SELECT s.key, s.value, job.settings ->> s.key AS text FROM pg_catalog.jsonb_each(job.settings) AS s LOOP
		IF pg_catalog.jsonb_typeof(setting.value) NOT IN ('string', 'number', 'boolean') THEN
			RAISE EXCEPTION 'invalid value % of setting "%"', setting.value, setting.key USING ERRCODE = 'invalid_parameter_value',
				HINT = 'Write a text, a number, true or false. Settings that are left out are those of the role.';
		END IF;
		-- A job must not have these settings: the engine needs them itself, or they would have no effect.
		SELECT r.why INTO refused FROM (VALUES
				('application_name', 'It names the run.'),
				('client_encoding', 'It is between a session and its client.'),
				('default_transaction_deferrable', 'The transactions of a run are begun by pg_sweep.'),
				('default_transaction_isolation', 'The transactions of a run are begun by pg_sweep; ALTER ROLE ... SET says how those of a role are.'),
				('default_transaction_read_only', 'The transactions of a run are begun by pg_sweep; ALTER ROLE ... SET says how those of a role are.'),
				('exit_on_error', 'An error ends a batch; with the process, nobody could record it.'),
				('quote_all_identifiers', 'Steps of pg_sweep compare names as text.'),
				('role', 'A run is the role that run_as names.'),
				('session_authorization', 'A run is the role that run_as names.'),
				('transaction_deferrable', 'The transactions of a run are begun by pg_sweep.'),
				('transaction_isolation', 'The transactions of a run are begun by pg_sweep.'),
				('transaction_read_only', 'The transactions of a run are begun by pg_sweep.'),
				('transaction_timeout', 'It would end the process. A batch is one transaction: use statement_timeout.')) AS r (name, why) WHERE r.name = pg_catalog.lower(setting.key COLLATE pg_catalog."C");
		IF FOUND THEN
			RAISE EXCEPTION '"%" is no setting of a job', pg_catalog.lower(setting.key COLLATE pg_catalog."C") USING ERRCODE = 'invalid_parameter_value', DETAIL = refused;
		END IF;
		BEGIN
			PERFORM sweep._check_setting(sweep._role_oid(job.run_as), setting.key, setting.text);
		EXCEPTION WHEN insufficient_privilege THEN
			RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE, HINT = pg_catalog.format('A job can set what its role may SET: see GRANT SET ON PARAMETER %s TO %I.',
				pg_catalog.quote_ident(setting.key), job.run_as);
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._check_settings(sweep.job_definition) IS 'raises unless the role of the job, which exists, may set what the settings of the job say';
--
-- Checks of the definition of a job. A definition with a known error is refused when the job is created or changed; an error that
-- appears later makes the job broken, with a reason, until its cause is gone.
--
CREATE FUNCTION sweep._resolve(kind text, name text) RETURNS regprocedure
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
BEGIN
	parts := pg_catalog.parse_ident(name);
	IF pg_catalog.cardinality(parts) <> 2 THEN
		RETURN NULL;
	END IF;
	-- Looks the function up by name, through the indexes, because this is done each time a job is due, and when sweep.jobs is read.
	RETURN (SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		WHERE p.proname = parts[2] AND n.nspname = parts[1] AND p.prokind = 'f' AND p.proargtypes[0] = 'sweep.batch'::pg_catalog.regtype
			AND CASE kind
				WHEN 'step' THEN p.pronargs = 1 AND NOT p.proretset AND p.prorettype = 'sweep.progress'::pg_catalog.regtype
				WHEN 'buckets_function' THEN p.pronargs = 1 AND NOT p.proretset AND p.prorettype = 'int'::pg_catalog.regtype
				WHEN 'pick' THEN p.pronargs = 1 AND p.proretset AND p.prorettype = 'pg_catalog.jsonb'::pg_catalog.regtype
				WHEN 'rescue' THEN p.pronargs = 2 AND p.proargtypes[1] = 'pg_catalog.jsonb'::pg_catalog.regtype AND NOT p.proretset
					AND p.prorettype = 'sweep.progress'::pg_catalog.regtype END);
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._resolve(text, text) IS 'the function a text names; NULL when there is none of the right form';

CREATE FUNCTION sweep._caller_search_path() RETURNS text[]
	LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_search_path';
COMMENT ON FUNCTION sweep._caller_search_path() IS 'the names in the search_path with which the public function that is being executed was called';

CREATE FUNCTION sweep._caller_formats() RETURNS text[]
	LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_formats';
COMMENT ON FUNCTION sweep._caller_formats() IS 'names and values of the settings that convert values from and to text and differ while a public function is executed';

-- A name without a schema stands for the first function in the search_path of the caller in a schema that the role of the job may use. Temporary
-- schemas are left out, since they do not exist when the job runs. A name that is not found is returned as it is; another check refuses it.
CREATE FUNCTION sweep._find_function(role text, kind text, name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	bare constant pg_catalog.text := pg_catalog.regexp_replace(name, E'\\s*\\([^()"]*\\)\\s*$', '');
	types constant pg_catalog.text := pg_catalog.regexp_replace(pg_catalog.lower(pg_catalog.substring(name COLLATE "C", E'\\(([^()"]*)\\)\\s*$')), E'\\s|pg_catalog\\.', '', 'g');
	parts pg_catalog.text[];
	found pg_catalog.text;
BEGIN
	IF types NOT IN ('', CASE kind WHEN 'rescue' THEN 'sweep.batch,jsonb' ELSE 'sweep.batch' END) THEN
		RETURN name;
	END IF;
	parts := pg_catalog.parse_ident(bare);
	IF pg_catalog.cardinality(parts) = 1 THEN
		SELECT n.nspname INTO found FROM pg_catalog.unnest(sweep._caller_search_path()) WITH ORDINALITY AS p (name, nth)
				JOIN pg_catalog.pg_namespace n ON n.nspname = CASE p.name WHEN '$user' THEN role ELSE p.name END
			WHERE n.nspname !~ '^pg_temp' AND pg_catalog.has_schema_privilege(sweep._role_oid(role), n.oid, 'USAGE')
				AND sweep._resolve(kind, pg_catalog.format('%I.%I', n.nspname, parts[1])) IS NOT NULL ORDER BY p.nth LIMIT 1;
		RETURN CASE WHEN found IS NULL THEN name ELSE pg_catalog.format('%I.%I', found, parts[1]) END;
	END IF;
	RETURN CASE pg_catalog.cardinality(parts) WHEN 2 THEN pg_catalog.format('%I.%I', parts[1], parts[2]) ELSE bare END;
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN name;
END
$$;
COMMENT ON FUNCTION sweep._find_function(text, text, text) IS 'the name of a function as it is stored, with its schema; the given name may lack the schema and may have arguments in parentheses';

CREATE FUNCTION sweep._function_form(kind text, name text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE kind
		WHEN 'pick' THEN pg_catalog.format('function %s(sweep.batch) returning setof jsonb', name)
		WHEN 'buckets_function' THEN pg_catalog.format('function %s(sweep.batch) returning int', name)
		WHEN 'rescue' THEN pg_catalog.format('function %s(sweep.batch, jsonb) returning sweep.progress', name)
		ELSE pg_catalog.format('function %s(sweep.batch) returning sweep.progress', name) END
$$;
COMMENT ON FUNCTION sweep._function_form(text, text) IS 'how a function of that kind is declared';

CREATE FUNCTION sweep._owner_problem(role text, function regprocedure) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- The cheap check comes first. It is made for each due job, and nearly always succeeds.
	IF sweep._is_trusted(function, role) THEN
		RETURN NULL;
	END IF;
	RETURN (SELECT pg_catalog.format('function %s belongs to role "%s", which could not become role "%s"', function, pg_catalog.pg_get_userbyid(p.proowner), role)
		FROM pg_catalog.pg_proc p WHERE p.oid = function);
END
$$;
COMMENT ON FUNCTION sweep._owner_problem(text, regprocedure) IS 'why the function must not be executed as the role (its owner decides what it does); NULL when it may';

CREATE FUNCTION sweep._execute_problem(role text, function regprocedure) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id constant pg_catalog.oid := sweep._role_oid(role);
BEGIN
	IF NOT pg_catalog.has_function_privilege(id, function, 'EXECUTE') OR NOT pg_catalog.has_schema_privilege(id,
			(SELECT p.pronamespace FROM pg_catalog.pg_proc p WHERE p.oid = function), 'USAGE') THEN
		RETURN pg_catalog.format('role "%s" may not execute function %s', role, function);
	END IF;
	RETURN sweep._owner_problem(role, function);
END
$$;
COMMENT ON FUNCTION sweep._execute_problem(text, regprocedure) IS 'why a function is not executed as the role, which exists; NULL when it is';

CREATE FUNCTION sweep._function_problem(role text, kind text, name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found pg_catalog.regprocedure := sweep._resolve(kind, name);
BEGIN
	IF found IS NULL THEN
		RETURN sweep._function_form(kind, name) || ' does not exist';
	END IF;
	RETURN sweep._execute_problem(role, found);
END
$$;
COMMENT ON FUNCTION sweep._function_problem(text, text, text) IS 'why the role, which exists, cannot execute the function; NULL when it can';

CREATE FUNCTION sweep._role_problem(role text, as_user boolean) RETURNS text
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_to_problem';
COMMENT ON FUNCTION sweep._role_problem(text, boolean) IS 'why no process can work for the role, or (as_user) may work for it; NULL when one can';

CREATE FUNCTION sweep._is_user(role text) RETURNS boolean
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_to_is_user';
COMMENT ON FUNCTION sweep._is_user(text) IS 'whether the role is a member of sweep_user or sweep_admin; NULL when there is no such role';

CREATE FUNCTION sweep._has_redis_url() RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_settings_has_redis_url';
COMMENT ON FUNCTION sweep._has_redis_url() IS 'whether pg_sweep.redis_url is set; only few roles can read its value';

CREATE FUNCTION sweep._job_problem(job sweep.job_definition, as_user boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text := sweep._role_problem(job.run_as, coalesce(as_user, false));
BEGIN
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	SELECT p.problem INTO problem
		FROM (VALUES ('step', job.step), ('pick', job.pick), ('rescue', job.rescue), ('buckets_function', job.buckets_function)) AS f (kind, name)
			CROSS JOIN LATERAL (SELECT sweep._function_problem(job.run_as, f.kind, f.name) AS problem) AS p
		WHERE f.name IS NOT NULL AND p.problem IS NOT NULL LIMIT 1;
	IF FOUND THEN
		RETURN problem;
	END IF;
	IF job.schedule IS NOT NULL THEN
		PERFORM sweep._next_run(job.schedule, job.timezone, pg_catalog.now(), job.name);
	END IF;
	IF job.buckets IS NOT NULL AND job.bucket_store = 'redis' AND NOT sweep._has_redis_url() THEN
		RETURN 'pg_sweep.redis_url is not set';
	END IF;
	RETURN NULL;
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN SQLERRM;
END
$$;
COMMENT ON FUNCTION sweep._job_problem(sweep.job_definition, boolean) IS 'why the job cannot be started; NULL when no reason is known. sweep.__seen_jobs() has a list of the settings that it reads';

-- Only schedule and sql are passed by position; a step, or the command alone, may have been passed in their place.
CREATE FUNCTION sweep._check_position(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._resolve('step', sweep._find_function(job.run_as, 'step', job.schedule)) IS NOT NULL THEN
		RAISE EXCEPTION 'schedule "%" of job "%" is a function', job.schedule, job.name USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('The second argument is the schedule. Write sweep.create_job(%L, step => %L).', job.name, job.schedule);
	END IF;
	IF job.schedule COLLATE "C" ~* E'^\\s*(delete|update|insert|merge|with|select|truncate|call|vacuum|analyze|reindex|refresh|do|begin|create|alter|drop|copy|set)\\s' THEN
		RAISE EXCEPTION 'schedule "%" of job "%" is a statement', job.schedule, job.name USING ERRCODE = 'invalid_parameter_value',
			HINT = 'The second argument is the schedule. Statements to be executed once are the third, sql; one that does a batch is passed by name: batch_sql => ''...''.';
	END IF;
	IF sweep._resolve('step', coalesce(job.sql, job.batch_sql)) IS NOT NULL THEN
		RAISE EXCEPTION '% "%" of job "%" is a function', CASE WHEN job.sql IS NOT NULL THEN 'sql' ELSE 'batch_sql' END, coalesce(job.sql, job.batch_sql), job.name
			USING ERRCODE = 'invalid_parameter_value',
				HINT = pg_catalog.format('A function that does one batch is a step. Write sweep.create_job(%L, %L, step => %L).', job.name, job.schedule, coalesce(job.sql, job.batch_sql));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_position(sweep.job_definition) IS 'raises when a function or a statement stands where another argument belongs';

CREATE FUNCTION sweep._check_function(kind text, name text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	candidates pg_catalog.text;
	bare constant pg_catalog.text := pg_catalog.regexp_replace(name, E'\\s*\\([^()"]*\\)\\s*$', '');
BEGIN
	IF name IS NULL OR sweep._resolve(kind, name) IS NOT NULL THEN
		RETURN;
	END IF;
	SELECT pg_catalog.string_agg(c.name, ', ' ORDER BY c.name) INTO candidates
		FROM (SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, p.proname) AS name
			FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname !~ '^pg_temp' AND p.proname = pg_catalog.regexp_replace(bare, E'^.*\\.', '')) AS c
		WHERE sweep._resolve(kind, c.name) IS NOT NULL;
	RAISE EXCEPTION '% does not exist', sweep._function_form(kind, bare)
		USING ERRCODE = 'undefined_function',
			HINT = coalesce('Write the name with its schema: ' || candidates || '.',
				pg_catalog.format('A %s is named with its schema, unless that is in the search_path, and is a %s.', kind,
					pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(sweep._function_form(kind, ''), 'function ', 'function'), 'returning', 'RETURNS'), 'setof', 'SETOF')));
END
$$;
COMMENT ON FUNCTION sweep._check_function(text, text) IS 'raises unless the text names a function of that kind';

CREATE FUNCTION sweep._check_step(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text;
	untrusted pg_catalog.regprocedure;
BEGIN
	IF pg_catalog.num_nonnulls(job.sql, job.batch_sql, job.step) <> 1 THEN
		RAISE EXCEPTION 'job "%" must have exactly one of sql, batch_sql and step', job.name USING ERRCODE = 'invalid_parameter_value',
			HINT = 'sql is executed once; a batch_sql or a step is repeated until nothing is left.';
	END IF;
	IF job.pick IS NOT NULL AND job.step IS NULL OR job.pick IS NULL AND (job.rescue IS NOT NULL OR job.transaction = 'row') THEN
		RAISE EXCEPTION 'job "%" has a % without a %', job.name,
				CASE WHEN job.pick IS NOT NULL THEN 'pick' WHEN job.rescue IS NOT NULL THEN 'rescue' ELSE 'transaction "row"' END,
				CASE WHEN job.pick IS NOT NULL THEN 'step' ELSE 'pick' END
			USING ERRCODE = 'invalid_parameter_value', HINT = 'An item job has a pick function and a step function.';
	END IF;
	PERFORM sweep._check_settings(job);
	PERFORM sweep._check_function('step', job.step), sweep._check_function('pick', job.pick), sweep._check_function('rescue', job.rescue),
		sweep._check_function('buckets_function', job.buckets_function), sweep._check_sql(job.sql);
	IF coalesce(job.batch_sql, job.estimate) IS NOT NULL THEN
		BEGIN
			PERFORM sweep._check_batch_sql(sweep._role_oid(job.run_as), job.batch_sql, m.settings), sweep._check_estimate(sweep._role_oid(job.run_as), job.estimate, m.settings)
				FROM sweep._run_meaning(sweep._role_oid(job.run_as), job.settings) AS m (settings);
		EXCEPTION WHEN undefined_table OR undefined_function OR undefined_object THEN
			RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE,
				HINT = pg_catalog.format('Write names with their schema, or name it in settings => ''{"search_path": "..."}''. The job would run with search_path %s.', sweep._run_meaning(sweep._role_oid(job.run_as), job.settings) ->> 'search_path');
		END;
	END IF;
	SELECT f.problem, f.found INTO problem, untrusted FROM (SELECT p.problem, r.found
		FROM (VALUES ('step', job.step), ('pick', job.pick), ('rescue', job.rescue), ('buckets_function', job.buckets_function)) AS n (kind, name)
			CROSS JOIN LATERAL (SELECT sweep._resolve(n.kind, n.name) AS found) AS r
			CROSS JOIN LATERAL (SELECT sweep._owner_problem(job.run_as, r.found) AS problem) AS p
		WHERE n.name IS NOT NULL) AS f WHERE f.problem IS NOT NULL LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'job "%" could not run: %', job.name, problem USING ERRCODE = 'insufficient_privilege',
			DETAIL = 'Its owner decides what is executed as that role.',
			HINT = pg_catalog.format('ALTER FUNCTION %s OWNER TO %I gives it to the role of the job.', untrusted, job.run_as);
	END IF;
	-- The bucket store is not checked: Redis may be configured later, and the job is broken until then.
	job.bucket_store := 'table';
	problem := sweep._job_problem(job, false);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" could not run: %', job.name, problem
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('Before version 17, PostgreSQL lets a background worker connect only as a role with LOGIN; '
					'the role needs CONNECT on the database, USAGE on the schema of the step and EXECUTE on the step: '
					'see ALTER ROLE %I LOGIN and GRANT.', job.run_as);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_step(sweep.job_definition) IS 'raises unless the job names something that its role can run';

CREATE FUNCTION sweep._check_args(name text, args jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF pg_catalog.jsonb_typeof(args) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'invalid args % for job "%"', coalesce(args::pg_catalog.text, 'NULL'), name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The args must be a JSON object.';
	END IF;
	IF pg_catalog.jsonb_typeof(args -> 'as_of') NOT IN ('string', 'null') OR NOT pg_catalog.isfinite((args ->> 'as_of')::pg_catalog.timestamptz) THEN
		RAISE invalid_datetime_format;
	END IF;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR invalid_text_representation THEN
	RAISE EXCEPTION 'invalid as_of "%" in the args of job "%"', args ->> 'as_of', name
		USING ERRCODE = 'invalid_parameter_value', HINT = 'Write a timestamp with its zone: "2026-01-01T00:00:00Z".';
END
$$;
COMMENT ON FUNCTION sweep._check_args(text, jsonb) IS 'raises unless the args are an object, and its as_of, if any, a timestamp';

CREATE FUNCTION sweep._check_args_size(name text, args jsonb) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_run_check_args_size';
COMMENT ON FUNCTION sweep._check_args_size(text, jsonb) IS 'raises when the args are larger than pg_sweep.max_args_size';

-- Checks only changed values, so that after a limit was lowered other settings can still be changed.
CREATE FUNCTION sweep._check_sizes(job sweep.job_definition, old sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	SELECT c.* INTO wrong FROM (VALUES
		('sql', pg_catalog.octet_length(job.sql), 1024 * 1024, job.sql IS DISTINCT FROM old.sql),
		('batch_sql', pg_catalog.octet_length(job.batch_sql), 1024 * 1024, job.batch_sql IS DISTINCT FROM old.batch_sql),
		('estimate', pg_catalog.octet_length(job.estimate), 64 * 1024, job.estimate IS DISTINCT FROM old.estimate),
		('description', pg_catalog.octet_length(job.description), 64 * 1024, job.description IS DISTINCT FROM old.description),
		('settings', pg_catalog.octet_length(job.settings::pg_catalog.text), 16 * 1024, job.settings IS DISTINCT FROM old.settings),
		('on_start', pg_catalog.octet_length(job.on_start::pg_catalog.text), 64 * 1024, job.on_start IS DISTINCT FROM old.on_start),
		('on_success', pg_catalog.octet_length(job.on_success::pg_catalog.text), 64 * 1024, job.on_success IS DISTINCT FROM old.on_success),
		('on_failure', pg_catalog.octet_length(job.on_failure::pg_catalog.text), 64 * 1024, job.on_failure IS DISTINCT FROM old.on_failure),
		('name', pg_catalog.octet_length(job.name), 1024, true),
		('schedule', pg_catalog.octet_length(job.schedule), 255, true),
		('step', pg_catalog.octet_length(job.step), 1024, true),
		('pick', pg_catalog.octet_length(job.pick), 1024, true),
		('rescue', pg_catalog.octet_length(job.rescue), 1024, true),
		('lock_key', pg_catalog.octet_length(job.lock_key), 1024, true),
		('alert_queue', pg_catalog.octet_length(job.alert_queue), 1024, true),
		('bucket_key', pg_catalog.octet_length(job.bucket_key), 1024, true),
		('buckets_function', pg_catalog.octet_length(job.buckets_function), 1024, true)
	) AS c (what, size, most, is_new) WHERE c.size > c.most AND c.is_new LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION '% of job "%" is too large: % bytes', wrong.what, pg_catalog.substring(job.name, 1, 63), wrong.size
			USING ERRCODE = 'program_limit_exceeded', HINT = pg_catalog.format('It may have %s bytes.', wrong.most);
	END IF;
	IF job.args IS DISTINCT FROM old.args THEN
		PERFORM sweep._check_args_size(job.name, job.args);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_sizes(sweep.job_definition, sweep.job_definition) IS 'raises when a text of the definition, or its args, are too large and differ from those of the old definition';

CREATE FUNCTION sweep._check_hooks(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	hook pg_catalog.record;
	child pg_catalog.record;
BEGIN
	FOR hook IN SELECT * FROM (VALUES ('on_start', job.on_start), ('on_success', job.on_success), ('on_failure', job.on_failure)) AS h (name, jobs)
			WHERE h.jobs IS NOT NULL LOOP
		IF pg_catalog.jsonb_typeof(hook.jobs) <> 'object' THEN
			RAISE EXCEPTION 'invalid % %', hook.name, hook.jobs USING ERRCODE = 'invalid_parameter_value',
				HINT = 'Write an object of names and delays: {"other_job": "15 min"}.';
		END IF;
		FOR child IN SELECT c.key, c.value FROM pg_catalog.jsonb_each_text(hook.jobs) AS c LOOP
			IF child.key = job.name THEN
				RAISE EXCEPTION 'job "%" names itself in %', job.name, hook.name USING ERRCODE = 'invalid_parameter_value',
					HINT = 'It would go on for ever. max_attempts has a run that failed tried again, a schedule has a job run again.';
			END IF;
			IF coalesce(child.value::interval < interval '0' OR child.value::interval > interval '100 years', true) THEN
				RAISE EXCEPTION 'invalid delay "%" of job "%" in %', child.value, child.key, hook.name
					USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be between zero and 100 years.';
			END IF;
		END LOOP;
	END LOOP;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR interval_field_overflow THEN
	RAISE EXCEPTION 'invalid delay "%" of job "%" in %', child.value, child.key, hook.name
		USING ERRCODE = 'invalid_parameter_value', HINT = 'Write an interval such as "15 min".';
END
$$;
COMMENT ON FUNCTION sweep._check_hooks(sweep.job_definition) IS 'raises unless the hooks of the job have names of other jobs with delays';

CREATE FUNCTION sweep._check_limits(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.text;
	wanted pg_catalog.text;
	-- [[:cntrl:]] has the codes from 128 to 159, too, which are letters in WIN866, and parts of them in SQL_ASCII.
	control constant pg_catalog.text := CASE WHEN pg_catalog.getdatabaseencoding() ~ '^(UTF8|LATIN|ISO)' THEN '[[:cntrl:]]' ELSE E'[\\x01-\\x1f\\x7f]' END;
BEGIN
	SELECT a.attname INTO wrong FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'sweep.job_definition'::pg_catalog.regclass AND a.attnotnull
		AND pg_catalog.to_jsonb(job) -> a.attname = 'null'::pg_catalog.jsonb ORDER BY a.attnum LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION '% must not be null', wrong USING ERRCODE = 'null_value_not_allowed',
			HINT = 'Leave it out to get its default, or to keep what it is.';
	END IF;
	SELECT c.message, c.hint INTO wrong, wanted FROM (VALUES
		(job.name = '' OR pg_catalog.octet_length(job.name) > 63 AND NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = job.name), 'job name "' || job.name || '"', 'A name has 1 to 63 bytes.'),
		(job.name ~ control, 'job name with a control character', 'Use printable characters.'),
		(job.batch_size < 1 OR job.batch_size > 1000000, 'batch_size ' || job.batch_size, 'It must be between 1 and 1000000.'),
		(job.max_batches < 1, 'max_batches ' || job.max_batches, 'It must be greater than zero, or NULL for no limit.'),
		(job.max_rows < 1, 'max_rows ' || job.max_rows, 'It must be greater than zero, or NULL for no limit.'),
		(job.stop_after < interval '0' OR job.stop_after > interval '100 years', 'stop_after ' || job.stop_after,
			'It must be between zero and 100 years, or NULL for no limit.'),
		(job.lock_key = '', 'lock_key ""', 'Leave it out to use the name of the job.'),
		(job.timeout <= interval '0' OR job.timeout > interval '100 years', 'timeout ' || job.timeout,
			'It must be greater than zero and at most 100 years, or NULL for no hard limit.'),
		(job.stop_after > job.timeout, pg_catalog.format('stop_after %s, which is later than timeout %s', job.stop_after, job.timeout),
			'A run is to stop between batches before it is stopped within one.'),
		(job.pause <= interval '0' OR job.pause > interval '1 day', 'pause ' || job.pause,
			'It must be greater than zero and at most one day, or NULL for none.'),
		(pg_catalog.jsonb_typeof(job.settings) <> 'object', 'settings ' || job.settings::pg_catalog.text, 'Write an object of names and values: {"work_mem": "256MB"}.'),
		(job.lock_retries < 0 OR job.lock_retries > 10000, 'lock_retries ' || job.lock_retries, 'It must be between 0 and 10000.'),
		(job.lock_retry_delay < interval '1 ms' OR job.lock_retry_delay > interval '1 hour',
			'lock_retry_delay ' || job.lock_retry_delay, 'It must be between 1 ms and 1 hour.'),
		(job.max_attempts < 1 OR job.max_attempts > 25, 'max_attempts ' || job.max_attempts, 'It must be between 1 and 25.'),
		(job.row_retries < 0 OR job.row_retries > 100, 'row_retries ' || job.row_retries, 'It must be between 0 and 100.'),
		(job.transaction NOT IN ('batch', 'row'), 'transaction "' || job.transaction || '"', 'It must be "batch" or "row".'),
		(job.flush NOT IN ('run', 'batch'), 'flush "' || job.flush || '"', 'It must be "run" or "batch", or NULL: "batch" where other servers commit, too.'),
		(job.overlap NOT IN ('skip', 'queue_one', 'cancel_previous'), 'overlap "' || job.overlap || '"',
			'It must be "skip", "queue_one" or "cancel_previous".'),
		(job.catch_up NOT IN ('once', 'skip', 'all'), 'catch_up "' || job.catch_up || '"', 'It must be "once", "skip" or "all".'),
		(job.jitter < interval '0' OR job.jitter > interval '1 year', 'jitter ' || job.jitter, 'It must be between zero and one year.'),
		(job.priority < -100 OR job.priority > 100, 'priority ' || job.priority, 'It must be between -100 and 100.'),
		(job.buckets < 1 OR job.buckets > 1024, 'buckets ' || job.buckets, 'It must be between 1 and 1024, or NULL when the job is not divided.'),
		(job.bucket_store NOT IN ('table', 'redis'), 'bucket_store "' || job.bucket_store || '"', 'It must be "table" or "redis".'),
		(job.bucket_recovery < interval '1 s' OR job.bucket_recovery > interval '1 year', 'bucket_recovery ' || job.bucket_recovery,
			'It must be between one second and one year.'),
		-- The default is the name of the job, which may have braces if the store is not Redis.
		((job.bucket_store = 'redis' OR job.bucket_key <> job.name) AND (job.bucket_key !~ '^[^{}]{1,200}$' OR job.bucket_key ~ control), 'bucket_key "' || job.bucket_key || '"', 'Use 1 to 200 printable characters, no braces.'),
		(job.buckets_function = 'sweep.range_count' AND job.bucket_store <> 'table', 'bucket_store "' || job.bucket_store || '"', 'Ranges are kept in the table.'),
		(job.buckets IS NULL AND job.buckets_function IS NOT NULL, 'buckets_function without buckets', 'Say in buckets how many there are at most.'),
		(job.buckets IS NOT NULL AND job.stop_after >= job.bucket_recovery, 'stop_after ' || job.stop_after || ' of a divided job',
			pg_catalog.format('It must be less than bucket_recovery, %s: a share that is as old as that loses its bucket.', job.bucket_recovery)),
		(job.cursor NOT IN ('run', 'drain', 'always'), 'cursor "' || job.cursor || '"', 'It must be "run", "drain" or "always".'),
		(job.buckets IS NOT NULL AND job.cursor <> 'run', 'cursor "' || job.cursor || '" of a divided job', 'Each share begins at the start: leave it out.'),
		-- Such a copy would go on after keys whose rows are not committed yet.
		(job.step = 'sweep.copy_step' AND job.cursor = 'always' AND job.args ->> 'settled' = 'false', 'cursor "always" of a copy that was made with another one', 'Call sweep.create_copy with replace => true.')
	) AS c (bad, message, hint) WHERE c.bad LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'invalid %', wrong USING ERRCODE = 'invalid_parameter_value', HINT = wanted;
	END IF;
	PERFORM sweep._check_args(job.name, job.args), sweep._check_hooks(job), sweep._check_sql_settings(job);
END
$$;
COMMENT ON FUNCTION sweep._check_limits(sweep.job_definition) IS 'raises when a limit or word of the definition is out of its range';

CREATE FUNCTION sweep._check_schedule(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	allowed interval := pg_catalog.current_setting('pg_sweep.min_interval')::interval;
	shortest interval;
BEGIN
	-- Without a schedule @reboot stands in, so that the time zone is checked.
	PERFORM sweep._next_run(coalesce(job.schedule, '@reboot'), job.timezone, pg_catalog.now(), job.name);
	IF job.schedule IS NULL THEN
		RETURN;
	END IF;
	SELECT pg_catalog.min(n.gap) INTO shortest FROM (SELECT r.moment - pg_catalog.lag(r.moment) OVER (ORDER BY r.moment) AS gap
		FROM sweep.next_runs(job.schedule, job.timezone, pg_catalog.now(), 100, job.name) AS r (moment)) AS n;
	IF shortest < allowed THEN
		RAISE EXCEPTION 'schedule "%" is due every %, more often than pg_sweep.min_interval allows', job.schedule, shortest
			USING ERRCODE = 'invalid_parameter_value', DETAIL = pg_catalog.format('The setting is %s.', allowed),
				HINT = 'Choose a longer interval, or lower pg_sweep.min_interval.';
	END IF;
	PERFORM sweep._warn_no_scheduler(pg_catalog.format('job "%s" will not be started by its schedule', job.name));
END
$$;
COMMENT ON FUNCTION sweep._check_schedule(sweep.job_definition) IS 'raises unless the schedule and its time zone are right, warns when no scheduler works here';

CREATE FUNCTION sweep._check_role(caller oid, job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._role_oid(job.run_as) IS NULL THEN
		RAISE EXCEPTION 'role "%" does not exist', job.run_as USING ERRCODE = 'undefined_object',
			HINT = pg_catalog.format('Name another role as run_as, or create it again: CREATE ROLE %I.', job.run_as);
	END IF;
	IF NOT sweep._can_become(caller, job.run_as) THEN
		RAISE EXCEPTION 'permission denied to run job "%" as role %', job.name, job.run_as
			USING ERRCODE = 'insufficient_privilege', HINT = 'run_as must be a role that you could SET ROLE to.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_role(oid, sweep.job_definition) IS 'raises unless the caller could SET ROLE to the role of the job';

CREATE FUNCTION sweep._check_priority(caller oid, job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- A job with a higher priority could take all workers from others.
	IF job.priority > 0 AND NOT (sweep._acts_for(caller, 'sweep_operator') OR sweep._acts_for(caller, 'sweep_admin')) THEN
		RAISE EXCEPTION 'permission denied to give job "%" priority %', job.name, job.priority USING ERRCODE = 'insufficient_privilege',
			HINT = 'Members of sweep_operator and sweep_admin may go before the jobs of others; anybody may choose 0 or less.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_priority(oid, sweep.job_definition) IS 'raises unless the caller may have the job go before others';

CREATE FUNCTION sweep._check_bucket_store(caller oid, job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- All roles share the keys in Redis, under the login that a superuser has configured.
	IF job.bucket_store = 'redis' AND NOT sweep._acts_for(caller, 'sweep_admin') THEN
		RAISE EXCEPTION 'permission denied to keep the buckets of job "%" in Redis', job.name
			USING ERRCODE = 'insufficient_privilege', HINT = 'Members of sweep_admin may do this; the store "table" is open to all.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_bucket_store(oid, sweep.job_definition) IS 'raises unless the caller may have the job keep its buckets where it says';
--
-- Creating, changing, dropping and pausing jobs.
--
-- ------------------------------------------------------------------ create, alter, drop
CREATE FUNCTION sweep._check_paused(paused boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF paused IS NULL THEN
		RAISE EXCEPTION 'paused must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_paused(boolean) IS 'raises when paused is NULL';

CREATE FUNCTION sweep._complete_job(job sweep.job_definition, old sweep.job_definition) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- The sizes are checked first, so that no text that is too large is parsed.
	PERFORM sweep._check_sizes(job, old);
	IF job.timezone IS DISTINCT FROM old.timezone THEN
		job.timezone := sweep._find_zone(job.timezone);
	END IF;
	job.step := sweep._find_function(job.run_as, 'step', job.step);
	job.pick := sweep._find_function(job.run_as, 'pick', job.pick);
	job.rescue := sweep._find_function(job.run_as, 'rescue', job.rescue);
	job.buckets_function := sweep._find_function(job.run_as, 'buckets_function', job.buckets_function);
	job.lock_key := coalesce(job.lock_key, job.name);
	job.bucket_key := coalesce(job.bucket_key, job.name);
	RETURN job;
END
$$;
COMMENT ON FUNCTION sweep._complete_job(sweep.job_definition, sweep.job_definition) IS 'the job with settings that follow from others filled in, and with the names of functions and time zone as in the catalogue; raises when a text is too large';

CREATE FUNCTION sweep._replace_job(caller oid, job sweep.job_definition) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.job_definition;
BEGIN
	SELECT * INTO old FROM sweep.job_definition j WHERE j.name = job.name;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM sweep._check_job_right(caller, job.name, old, false);
	-- An equal definition changes nothing: the row is neither written nor locked.
	IF job IS DISTINCT FROM old THEN
		PERFORM sweep._change_job(caller, sweep._lock_job(caller, job.name, false, false), job);
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._replace_job(oid, sweep.job_definition) IS 'gives a job of that name this definition; false when there is none';

-- The arguments of sweep.create_job that are columns of sweep.job_definition arrive in the row, see caller.c: none of them is named here.
CREATE FUNCTION sweep._remove_remains(name text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	DELETE FROM sweep.quarantined_item q WHERE q.job = _remove_remains.name;
	DELETE FROM sweep.bucket b WHERE b.job = _remove_remains.name;
	DELETE FROM sweep.retention_proof p WHERE p.job = _remove_remains.name;
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
		WHERE r.job = _remove_remains.name AND r.status = 'waiting';
	PERFORM sweep._signal_cancel(r.run_id) FROM sweep.run_live r WHERE r.job = _remove_remains.name AND r.status = 'running';
END
$$;
COMMENT ON FUNCTION sweep._remove_remains(text) IS 'removes what belongs to a job that was dropped, and cancels its runs';

CREATE FUNCTION sweep._create_job(caller oid, job sweep.job_definition, run_as regrole, paused boolean, replace boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	alert_queue_owner pg_catalog.text;
BEGIN
	job.run_as := sweep._role_name(coalesce(run_as::pg_catalog.oid, caller));
	job := sweep._complete_job(job, NULL);
	PERFORM sweep._check_position(job), sweep._check_limits(job), sweep._check_kind(job, sweep._job_columns()), sweep._check_paused(paused), sweep._check_role(caller, job);
	IF replace AND sweep._replace_job(caller, job) THEN
		RETURN;
	END IF;
	alert_queue_owner := sweep._check_alert_queue(job);
	PERFORM sweep._check_bucket_store(caller, job), sweep._check_priority(caller, job), sweep._check_schedule(job), sweep._check_step(job);
	BEGIN
		INSERT INTO sweep.job_definition SELECT (job).*;
	EXCEPTION WHEN unique_violation THEN
		-- Another session has just created the job.
		IF replace AND sweep._replace_job(caller, job) THEN
			RETURN;
		END IF;
		RAISE EXCEPTION 'job "%" already exists', job.name
			USING ERRCODE = 'duplicate_object', HINT = 'sweep.alter_job changes it, sweep.drop_job removes it; replace => true gives it this definition.';
	END;
	-- A transaction above READ COMMITTED that has dropped a job of this name did not remove what has come since its snapshot.
	PERFORM sweep._remove_remains(job.name);
	-- A dropped job of this name may have runs in the history: their cursors must not be taken over.
	INSERT INTO sweep.job_state (job, as_user, boot, paused_at, alert_queue_owner, hook_roles, last_begun, system_identifier, database)
		SELECT job.name, sweep._is_user(job.run_as), pg_catalog.pg_postmaster_start_time(), CASE WHEN paused THEN pg_catalog.now() END, alert_queue_owner,
				sweep._roles_of_jobs(ARRAY[job.on_start, job.on_success, job.on_failure]), pg_catalog.nextval('sweep.run_begun_seq'), sweep._system_identifier(), d.oid
			FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();
	PERFORM sweep._reschedule(job.name, pg_catalog.clock_timestamp(), NULL), sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._create_job IS 'implements sweep.create_job';

CREATE FUNCTION sweep.create_job(name text, schedule text DEFAULT NULL, sql text DEFAULT NULL, batch_sql text DEFAULT NULL,
	step text DEFAULT NULL, timezone text DEFAULT 'UTC', args jsonb DEFAULT '{}', pick text DEFAULT NULL, rescue text DEFAULT NULL,
	transaction text DEFAULT 'batch', row_retries int DEFAULT 3, batch_size int DEFAULT 1000, max_batches int DEFAULT NULL,
	max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT NULL, settings jsonb DEFAULT '{}', lock_key text DEFAULT NULL,
	lock_retries int DEFAULT 0, lock_retry_delay interval DEFAULT '10 ms', max_attempts int DEFAULT 1, overlap text DEFAULT 'skip',
	catch_up text DEFAULT 'once', jitter interval DEFAULT '0', cursor text DEFAULT 'run', estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL,
	on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT 0, flush text DEFAULT NULL, buckets int DEFAULT NULL, bucket_store text DEFAULT 'table', bucket_recovery interval DEFAULT '10 min',
	bucket_key text DEFAULT NULL, buckets_function text DEFAULT NULL, run_as regrole DEFAULT NULL, description text DEFAULT NULL,
	paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_job IS 'creates a job; with replace gives an existing one of that name this definition, and leaves alone whether it is paused, its cursor and its runs';

CREATE FUNCTION sweep._set_paused(name text, paused boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF paused THEN
		UPDATE sweep.job_state AS s SET paused_at = coalesce(s.paused_at, pg_catalog.now()), next_due = NULL, next_start = NULL
			WHERE s.job = _set_paused.name;
		UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
			WHERE r.job = _set_paused.name AND r.status = 'waiting' AND r.trigger <> 'manual' AND r.pid IS NULL;
		PERFORM sweep._wake();
	ELSE
		UPDATE sweep.job_state AS s SET paused_at = NULL WHERE s.job = _set_paused.name AND s.paused_at IS NOT NULL;
		IF FOUND THEN
			PERFORM sweep._reschedule(name, pg_catalog.clock_timestamp(), NULL), sweep._wake();
		END IF;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._set_paused(text, boolean) IS 'pauses or resumes the schedule of a job that the caller has locked; runs in progress and runs that were started by hand are not affected';

CREATE FUNCTION sweep._job_columns() RETURNS text[]
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = 'sweep.job_definition'::pg_catalog.regclass AND a.attname <> 'name' AND a.attnum > 0 AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION sweep._job_columns() IS 'the settings of a job that can be changed';

CREATE FUNCTION sweep._roles_of_jobs(hooks jsonb[]) RETURNS jsonb
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(pg_catalog.jsonb_object_agg(j.name, j.run_as), '{}') FROM sweep.job_definition j
		WHERE j.name IN (SELECT pg_catalog.jsonb_object_keys(h.jobs) FROM pg_catalog.unnest(hooks) AS h (jobs))
$$;
COMMENT ON FUNCTION sweep._roles_of_jobs(jsonb[]) IS 'the roles that the jobs of hooks have: {"name": "role"}';

-- The caller may change the job. Refuses changes that need further rights.
CREATE FUNCTION sweep._change_job(caller oid, old sweep.job_definition, job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns pg_catalog.text[] := sweep._job_columns();
	queue_owner pg_catalog.text;
BEGIN
	PERFORM sweep._check_limits(job);
	-- A change of the code that the role of the job executes needs the right to become that role.
	IF (job.step, job.sql, job.batch_sql, job.pick, job.rescue, job.estimate, job.args, job.on_start, job.on_success, job.on_failure, job.buckets_function, job.settings, job.run_as)
			IS DISTINCT FROM (old.step, old.sql, old.batch_sql, old.pick, old.rescue, old.estimate, old.args, old.on_start, old.on_success, old.on_failure, old.buckets_function, old.settings, old.run_as) THEN
		-- The role of the job may have been dropped: then only sweep_admin gets here, and can give the job to another role.
		PERFORM sweep._check_role(caller, old) WHERE sweep._role_oid(old.run_as) IS NOT NULL;
		PERFORM sweep._check_role(caller, job);
	END IF;
	IF (job.alert_queue, job.run_as) IS DISTINCT FROM (old.alert_queue, old.run_as) THEN
		queue_owner := sweep._check_alert_queue(job);
	END IF;
	-- The owner of the alert queue and the roles of the jobs in hooks are stored when they are set. For a queue or job that this
	-- change does not name, the stored owner or role stays.
	IF (job.alert_queue, job.on_start, job.on_success, job.on_failure) IS DISTINCT FROM (old.alert_queue, old.on_start, old.on_success, old.on_failure) THEN
		UPDATE sweep.job_state AS s SET alert_queue_owner = CASE WHEN job.alert_queue IS DISTINCT FROM old.alert_queue THEN queue_owner ELSE s.alert_queue_owner END,
				hook_roles = coalesce(s.hook_roles, '{}') || sweep._roles_of_jobs(ARRAY[CASE WHEN job.on_start IS DISTINCT FROM old.on_start THEN job.on_start END,
					CASE WHEN job.on_success IS DISTINCT FROM old.on_success THEN job.on_success END, CASE WHEN job.on_failure IS DISTINCT FROM old.on_failure THEN job.on_failure END])
			WHERE s.job = job.name;
	END IF;
	IF (job.buckets, job.bucket_store, job.bucket_recovery, job.bucket_key, job.buckets_function)
			IS DISTINCT FROM (old.buckets, old.bucket_store, old.bucket_recovery, old.bucket_key, old.buckets_function) THEN
		PERFORM sweep._check_bucket_store(caller, job);
	END IF;
	PERFORM sweep._check_priority(caller, job) WHERE job.priority <> old.priority;
	IF (job.step, job.sql, job.batch_sql, job.pick, job.rescue, job.transaction, job.estimate, job.buckets_function, job.settings, job.run_as)
			IS DISTINCT FROM (old.step, old.sql, old.batch_sql, old.pick, old.rescue, old.transaction, old.estimate, old.buckets_function, old.settings, old.run_as) THEN
		PERFORM sweep._check_step(job);
	END IF;
	EXECUTE pg_catalog.format('UPDATE sweep.job_definition AS j SET (%s) = (SELECT %s) WHERE j.name = $2',
		(SELECT pg_catalog.string_agg(pg_catalog.format('%I', c), ', ') FROM pg_catalog.unnest(columns) AS c),
		(SELECT pg_catalog.string_agg(pg_catalog.format('($1).%I', c), ', ') FROM pg_catalog.unnest(columns) AS c)) USING job, job.name;
	IF job.buckets IS NULL OR job.bucket_store <> 'table' THEN
		DELETE FROM sweep.bucket b WHERE b.job = job.name AND b.state = 'available';
	END IF;
	IF job.args IS DISTINCT FROM old.args OR job.buckets IS NULL THEN
		DELETE FROM sweep.bucket b WHERE b.job = job.name AND b.range IS NOT NULL;
	END IF;
	IF job.run_as <> old.run_as THEN
		UPDATE sweep.run_live AS r SET run_as = job.run_as WHERE r.job = job.name AND r.run_as = old.run_as AND r.status = 'waiting';
		UPDATE sweep.job_state AS s SET as_user = sweep._is_user(job.run_as), failed_before = sweep._failure(old, s.failed_before) WHERE s.job = job.name;
	END IF;
	IF (job.schedule, job.timezone, job.jitter) IS DISTINCT FROM (old.schedule, old.timezone, old.jitter) THEN
		PERFORM sweep._check_schedule(job), sweep._reschedule(job.name, pg_catalog.clock_timestamp(), NULL);
	END IF;
	-- The scheduler may have read the old definition.
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._change_job(oid, sweep.job_definition, sweep.job_definition) IS 'gives a locked job a new definition, and updates what depends on it; a run in progress goes on';

-- These two serve jobs and consumers.
CREATE FUNCTION sweep._check_changes(changes jsonb, known text[], example text) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	word pg_catalog.text;
BEGIN
	IF pg_catalog.jsonb_typeof(changes) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'changes must be a JSON object' USING ERRCODE = 'invalid_parameter_value', HINT = pg_catalog.format('For example: %s.', example);
	END IF;
	SELECT k INTO word FROM pg_catalog.jsonb_object_keys(changes) AS k WHERE k <> ALL (known) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'unknown key "%" in changes', word USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('The keys are %s.', pg_catalog.array_to_string(known, ', '));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_changes(jsonb, text[], text) IS 'raises unless the changes are an object of known keys';

CREATE FUNCTION sweep._refuse_change(changes jsonb, key text, reason text, creator text) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'invalid value % for key "%"', changes -> key, key USING ERRCODE = 'invalid_parameter_value',
		DETAIL = reason || '.', HINT = pg_catalog.format('Write what %s would take for the argument of that name.', creator);
END
$$;
COMMENT ON FUNCTION sweep._refuse_change(jsonb, text, text, text) IS 'raises that a value is not one of its setting';

CREATE FUNCTION sweep._alter_job(caller oid, name text, changes jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.job_definition := sweep._lock_job(caller, name, false, false);
	job sweep.job_definition;
	paused boolean;
	word pg_catalog.text;
BEGIN
	PERFORM sweep._check_changes(changes, sweep._job_columns() || ARRAY['paused'], '{"batch_size": 100, "schedule": "@hourly"}');
	job := old;
	FOR word IN SELECT pg_catalog.jsonb_object_keys(changes) LOOP
		BEGIN
			IF word = 'paused' THEN
				paused := (changes ->> word)::boolean;
			END IF;
			job := pg_catalog.jsonb_populate_record(job, pg_catalog.jsonb_build_object(word, changes -> word));
			IF word = 'run_as' THEN
				job.run_as := sweep._role_name(job.run_as::pg_catalog.regrole);
			END IF;
		EXCEPTION WHEN data_exception OR syntax_error_or_access_rule_violation THEN
			PERFORM sweep._refuse_change(changes, word, SQLERRM, 'sweep.create_job');
		END;
	END LOOP;
	job := sweep._complete_job(job, old);
	PERFORM sweep._check_kind(job, ARRAY(SELECT pg_catalog.jsonb_object_keys(changes)));
	-- A queue or job that is named in the changes counts as changed even if the name is the same, so that its present owner is stored.
	old.alert_queue := CASE WHEN changes ->> 'alert_queue' IS NULL THEN old.alert_queue END;
	old.on_start := CASE WHEN changes ->> 'on_start' IS NULL THEN old.on_start END;
	old.on_success := CASE WHEN changes ->> 'on_success' IS NULL THEN old.on_success END;
	old.on_failure := CASE WHEN changes ->> 'on_failure' IS NULL THEN old.on_failure END;
	PERFORM sweep._check_paused(paused) WHERE changes ? 'paused';
	PERFORM sweep._change_job(caller, old, job);
	PERFORM sweep._set_paused(name, paused) WHERE paused IS NOT NULL;
	PERFORM sweep._forget_crashes(name);
END
$$;
COMMENT ON FUNCTION sweep._alter_job(oid, text, jsonb) IS 'implements sweep.alter_job';

CREATE FUNCTION sweep.alter_job(name text, changes jsonb) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.alter_job(text, jsonb) IS 'changes a job: keys are the argument names of sweep.create_job; a run in progress keeps what it began with';

CREATE FUNCTION sweep._remove_job(name text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- If an alert said that the job is broken, another one says that it is not.
	PERFORM sweep._set_broken(name, NULL);
	DELETE FROM sweep.job_definition j WHERE j.name = _remove_job.name;
	DELETE FROM sweep.job_state s WHERE s.job = _remove_job.name;
	PERFORM sweep._remove_remains(name);
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._remove_job(text) IS 'removes a job that is locked, with what belongs to it; its runs stay in the history';

CREATE FUNCTION sweep._drop_job(caller oid, name text, if_exists boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF if_exists AND NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = _drop_job.name) THEN
		RAISE NOTICE 'job "%" does not exist, skipping', name;
		RETURN;
	END IF;
	PERFORM sweep._lock_job(caller, name, false, false), sweep._remove_job(name);
END
$$;
COMMENT ON FUNCTION sweep._drop_job(oid, text, boolean) IS 'implements sweep.drop_job';

CREATE FUNCTION sweep.drop_job(name text, if_exists boolean DEFAULT false) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_job(text, boolean) IS 'removes a job and cancels its run in progress; its history stays until it is too old; with if_exists a job that does not exist is a NOTICE';

-- ------------------------------------------------------------------ pause and resume
CREATE FUNCTION sweep._pause(caller oid, name text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._lock_job(caller, name, true, false);
	PERFORM sweep._set_paused(name, true);
END
$$;
COMMENT ON FUNCTION sweep._pause(oid, text) IS 'implements sweep.pause';

CREATE FUNCTION sweep.pause(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.pause(text) IS 'suspends the schedule of a job; a run in progress ends as usual';

CREATE FUNCTION sweep._warn_of_other_pauses(name text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	reason pg_catalog.text;
BEGIN
	SELECT CASE WHEN NOT sweep._is_home(s.system_identifier, s.database) THEN 'This database is a copy of the one that the job is for.'
			WHEN s.all_paused_at IS NOT NULL OR EXISTS (SELECT FROM sweep.control) THEN 'All jobs are paused, by sweep.pause_all().' END INTO reason
		FROM sweep.job_state s WHERE s.job = _warn_of_other_pauses.name;
	IF reason IS NOT NULL THEN
		RAISE WARNING 'job "%" stays paused', name USING DETAIL = reason,
			HINT = 'SELECT sweep.resume_all(); makes all jobs of this database run; members of sweep_operator and sweep_admin may call it.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._warn_of_other_pauses(text) IS 'warns when a job that was resumed stays paused for another reason';

CREATE FUNCTION sweep._resume(caller oid, name text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._lock_job(caller, name, true, false);
	PERFORM sweep._set_paused(name, false), sweep._forget_crashes(name), sweep._warn_of_other_pauses(name);
	PERFORM sweep._warn_no_scheduler(pg_catalog.format('job "%s" will not be started by its schedule', _resume.name))
		FROM sweep.job_definition j WHERE j.name = _resume.name AND j.schedule IS NOT NULL;
END
$$;
COMMENT ON FUNCTION sweep._resume(oid, text) IS 'implements sweep.resume';

CREATE FUNCTION sweep.resume(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.resume(text) IS 'ends a pause; moments that passed meanwhile are not caught up';

CREATE FUNCTION sweep._check_operator(caller oid) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT (sweep._acts_for(caller, 'sweep_operator') OR sweep._acts_for(caller, 'sweep_admin')) THEN
		RAISE EXCEPTION 'permission denied to act on all jobs' USING ERRCODE = 'insufficient_privilege',
			HINT = 'Members of sweep_operator and sweep_admin may do this.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_operator(oid) IS 'raises unless the caller may act on all jobs';

CREATE FUNCTION sweep._pause_all(caller oid) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_operator(caller);
	INSERT INTO sweep.control (paused_at) VALUES (pg_catalog.now()) ON CONFLICT DO NOTHING;
	-- The pause is also written into each row, so that a dump restores it with the row. Locked rows are skipped, in order not to
	-- delay the pause of the others; the row in sweep.control pauses those jobs.
	UPDATE sweep.job_state AS s SET all_paused_at = pg_catalog.now() FROM (SELECT o.job FROM sweep.job_state o
		WHERE o.all_paused_at IS NULL FOR UPDATE SKIP LOCKED) AS free WHERE s.job = free.job;
	UPDATE sweep.consumer AS c SET all_paused_at = pg_catalog.now() FROM (SELECT o.consumer_id FROM sweep.consumer o
		WHERE o.all_paused_at IS NULL FOR UPDATE SKIP LOCKED) AS free WHERE c.consumer_id = free.consumer_id;
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._pause_all(oid) IS 'implements sweep.pause_all';

CREATE FUNCTION sweep.pause_all() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.pause_all() IS 'suspends all schedules of this database; runs in progress end as usual';

-- In a copy of a database, the row of a run may arrive before the state of its job. Such a run was archived without writing its
-- cursor into that state.
CREATE FUNCTION sweep._adopt_cursors() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Reads the history only in a copy of a database, so that a lock on the history delays nothing elsewhere.
	IF EXISTS (SELECT FROM sweep.job_state s JOIN sweep.job_definition j ON j.name = s.job WHERE j.cursor <> 'run' AND NOT sweep._is_home(s.system_identifier, s.database)) THEN
		UPDATE sweep.job_state AS s SET last_begun = last.begun, kept_cursor = CASE WHEN last.stop_reason IS DISTINCT FROM 'drained' OR j.cursor = 'always' THEN last.cursor END
			FROM sweep.job_definition j CROSS JOIN LATERAL (SELECT h.cursor, h.stop_reason, h.begun FROM sweep.run_history h
				WHERE h.job = j.name AND h.run_as = j.run_as AND (h.batches > 0 OR h.cursor IS NOT NULL) ORDER BY h.begun DESC NULLS LAST, h.run_id DESC LIMIT 1) AS last
			WHERE s.job = j.name AND j.cursor <> 'run' AND NOT sweep._is_home(s.system_identifier, s.database) AND coalesce(s.last_begun, 0) < last.begun;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._adopt_cursors() IS 'in a copy of a database, sets the kept cursor of jobs to that of their last run, where it is missing';

CREATE FUNCTION sweep._resume_all(caller oid) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_operator(caller);
	-- These runs were queued, or in progress, in the database of which this one is a copy, and are executed there.
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
		FROM sweep.job_state s WHERE s.job = r.job AND NOT sweep._is_home(s.system_identifier, s.database)
			AND (r.status = 'waiting' AND r.pid IS NULL OR r.status IN ('waiting', 'running') AND NOT sweep._run_is_alive(r.run_id));
	PERFORM sweep._set_sequences(), sweep._adopt_cursors();
	-- A restore with disabled triggers has written messages that no process knows of. This statement fires the trigger that resets all queues.
	DELETE FROM sweep.queue_message m WHERE false;
	DELETE FROM sweep.control;
	UPDATE sweep.job_state AS s SET system_identifier = sweep._system_identifier(), database = d.oid, all_paused_at = NULL
		FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();
	UPDATE sweep.consumer AS c SET system_identifier = sweep._system_identifier(), database = d.oid, all_paused_at = NULL
		FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();
	PERFORM sweep._reschedule(j.name, pg_catalog.clock_timestamp(), NULL) FROM sweep.job_definition j;
	PERFORM sweep._wake(), sweep._warn_of_foreign_grants();
	PERFORM sweep._warn_no_scheduler(pg_catalog.format('jobs of database "%s" will not be started by their schedules', pg_catalog.current_database()))
		WHERE EXISTS (SELECT FROM sweep.job_definition j WHERE j.schedule IS NOT NULL);
END
$$;
COMMENT ON FUNCTION sweep._resume_all(oid) IS 'implements sweep.resume_all';

CREATE FUNCTION sweep.resume_all() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.resume_all() IS 'ends sweep.pause_all, and makes a restored or replicated copy of a database run its schedules; jobs paused by sweep.pause stay paused';
--
-- Crashes: runs of background workers that were in progress when the server went down, see process/crash_note.c.
--
-- Each of these runs may be the reason. Its job is a suspect until one of its runs ends; it may run again 1 s after the first
-- crash, 2 s after the second. Suspects begin at least 10 s apart, and if the server goes down again, only the suspect that
-- began last is counted, because a run that crashes the server usually does so at once. After the third crash in a row the job
-- is broken, until sweep.alter_job or sweep.resume is called.
--
CREATE FUNCTION sweep._crash_problem(crashes int) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN crashes >= 3 THEN pg_catalog.format('the server went down %s times while it ran', crashes) END
$$;
COMMENT ON FUNCTION sweep._crash_problem(int) IS 'why a job is broken when the server went down so often in a row during its runs; NULL: it is not';

CREATE FUNCTION sweep._is_suspect(state sweep.job_state) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT state.crashes > 0 AND NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.job = state.job AND r.finished_at > state.crashed_at AND r.batches > 0
			AND r.status IN ('succeeded', 'failed', 'cancelled'))
		AND NOT EXISTS (SELECT FROM sweep.run_history r WHERE r.job = state.job AND r.finished_at > state.crashed_at AND r.batches > 0
			AND r.status IN ('succeeded', 'failed', 'cancelled'))
$$;
COMMENT ON FUNCTION sweep._is_suspect(sweep.job_state) IS 'whether the server went down while the job ran, and none of its runs has ended since';

CREATE FUNCTION sweep._may_run_again(state sweep.job_state, at timestamptz) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT state.crashes = 0 OR NOT sweep._is_suspect(state)
		OR sweep._crash_problem(state.crashes) IS NULL
			AND at NOT BETWEEN state.crashed_at - interval '1 min' AND state.crashed_at + interval '1 s' * (1 << state.crashes - 1)
			AND NOT EXISTS (SELECT FROM sweep.run_live r JOIN sweep.job_state s ON s.job = r.job WHERE r.status = 'running' AND s.crashes > 0
				AND s.job <> state.job AND r.started_at > state.crashed_at AND at BETWEEN r.started_at - interval '10 s' AND r.started_at + interval '10 s' AND sweep._is_suspect(s))
$$;
COMMENT ON FUNCTION sweep._may_run_again(sweep.job_state, timestamptz) IS 'whether a run of the job may start, as far as crashes of the server are concerned';

-- Commits with a wait for the disk: the next crash may follow at once. A state that a prepared transaction has locked is skipped.
CREATE FUNCTION sweep._count_run_crashes(jobs text[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	down sweep.job_state;
	last pg_catalog.text;
	count pg_catalog.int4;
BEGIN
	PERFORM pg_catalog.set_config('synchronous_commit', 'local', true);
	-- The row of a run that was queued or begun just before the crash may be lost, because its commit did not wait for the disk.
	SELECT s.job INTO last FROM sweep.job_state s WHERE s.job = ANY (jobs) AND sweep._is_suspect(s)
		ORDER BY (SELECT pg_catalog.max(r.started_at) FROM sweep.run_live r WHERE r.job = s.job AND r.status = 'running') DESC NULLS FIRST LIMIT 1;
	FOR down IN SELECT s.* FROM sweep.job_state s WHERE s.job = ANY (jobs) FOR UPDATE SKIP LOCKED LOOP
		count := CASE WHEN NOT sweep._is_suspect(down) THEN 1 WHEN down.job = last THEN down.crashes + 1 ELSE down.crashes END;
		UPDATE sweep.job_state AS s SET crashes = count, crashed_at = pg_catalog.clock_timestamp() WHERE s.job = down.job;
		RAISE WARNING 'the server went down while job "%" ran', down.job;
		PERFORM sweep._set_broken(down.job, sweep._crash_problem(count)) WHERE sweep._crash_problem(count) IS NOT NULL;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._count_run_crashes(text[]) IS 'the server went down while runs of these jobs were in progress';

CREATE FUNCTION sweep._forget_crashes(job text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep.job_state AS s SET crashes = 0, crashed_at = NULL WHERE s.job = _forget_crashes.job AND s.crashes > 0;
	IF FOUND THEN
		PERFORM sweep._set_broken(job, NULL), sweep._wake();
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._forget_crashes(text) IS 'lets a job run again after the server went down during its runs';
--
-- Runs: the tables with their states, which of them may start, and the functions that start and cancel them.
--
-- A run is a row of sweep.run_live while it waits and runs, written in the transactions of its batches. Once it has ended it is moved to
-- sweep.run_history, which the engine never waits for: a lock on the history delays only the history. The view sweep.runs shows both.
--
-- Domains are used instead of constraints of the table, because the UPDATE of every batch would plan a constraint anew.
CREATE DOMAIN sweep.run_trigger AS text
	CONSTRAINT run_trigger_check CHECK (VALUE IN ('schedule', 'manual', 'parent', 'retry', 'catch_up'));
COMMENT ON DOMAIN sweep.run_trigger IS 'what caused a run';

CREATE DOMAIN sweep.run_status AS text
	CONSTRAINT run_status_check CHECK (VALUE IN ('waiting', 'running', 'succeeded', 'skipped', 'failed', 'cancelled', 'lost'));
COMMENT ON DOMAIN sweep.run_status IS 'how far a run is, or how it ended';

CREATE DOMAIN sweep.run_stop_reason AS text
	CONSTRAINT run_stop_reason_check CHECK (VALUE IN ('drained', 'done', 'max_batches', 'max_rows', 'stop_after', 'cancelled', 'timeout',
		'no_progress', 'error', 'skipped', 'lost', 'rescaled', 'waits'));
COMMENT ON DOMAIN sweep.run_stop_reason IS 'why a run ended';

-- The columns of the indexes come first. Each batch compares their old and new values, and the first columns of a row are found soonest.
CREATE TABLE sweep.run_live (
	run_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	due_at      timestamptz NOT NULL,
	rows        bigint NOT NULL DEFAULT 0,
	rescued     bigint NOT NULL DEFAULT 0,
	quarantined bigint NOT NULL DEFAULT 0,
	braked_ms   bigint NOT NULL DEFAULT 0,
	batches     int NOT NULL DEFAULT 0,
	attempt     int NOT NULL DEFAULT 1,
	hook_depth  int NOT NULL DEFAULT 0,
	pid         int,
	job         text NOT NULL,
	trigger     sweep.run_trigger NOT NULL,
	parent_run_id bigint,
	status      sweep.run_status NOT NULL DEFAULT 'waiting',
	run_as      text NOT NULL DEFAULT current_user,
	started_at  timestamptz,
	finished_at timestamptz,
	bucket      int,
	shares_left int,
	stop_reason sweep.run_stop_reason,
	args        jsonb NOT NULL DEFAULT '{}',
	cursor      jsonb,
	detail      jsonb,
	sqlstate    text,
	error       text,
	begun       bigint
) WITH (fillfactor = 50);
-- The runs of a job are ordered by a number that they draw when they begin. A clock cannot order them, because it may be set back, or
-- be the clock of another server. The run_id cannot either, because it is the order in which runs were queued.
CREATE SEQUENCE sweep.run_begun_seq OWNED BY sweep.run_live.begun;
-- With these indexes the scheduler finds what it has to do without reading the runs that are not due yet. A batch or the end of a
-- run changes no column of an index, because each change would add an entry to every index. For the same reason pid IS NOT NULL
-- stands for "has begun or ended": a run that ends before it has begun gets a pid as well.
CREATE INDEX run_live_due_idx ON sweep.run_live (due_at);
CREATE INDEX run_live_job_idx ON sweep.run_live (job, trigger, due_at);
CREATE INDEX run_live_begun_idx ON sweep.run_live (job, run_id) WHERE pid IS NOT NULL;
COMMENT ON INDEX sweep.run_live_due_idx IS 'what is due';
COMMENT ON INDEX sweep.run_live_job_idx IS 'what waits of a job';
COMMENT ON INDEX sweep.run_live_begun_idx IS 'what runs or has ended';
CREATE INDEX run_live_parent_idx ON sweep.run_live (parent_run_id) WHERE parent_run_id IS NOT NULL;
COMMENT ON INDEX sweep.run_live_parent_idx IS 'what a run has queued';
-- A restored database goes on counting: new runs have higher numbers than those in its job_state.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live_run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.run_begun_seq', '');
-- The dump has the runs of jobs that keep their cursor, or that of each range: the cursor is in sweep.job_state only when the run has ended and was archived.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live', $$WHERE pid IS NOT NULL AND (batches > 0 OR cursor IS NOT NULL)
	AND EXISTS (SELECT FROM sweep.job_definition AS j WHERE j.name = job AND j.run_as = run_live.run_as AND (j.cursor <> 'run' OR j.buckets_function = 'sweep.range_count'))$$);
COMMENT ON TABLE sweep.run_live IS 'runs that wait, run, or have just ended; see sweep.runs';

CREATE TABLE sweep.run_history (LIKE sweep.run_live INCLUDING DEFAULTS, PRIMARY KEY (run_id));
CREATE INDEX run_history_job_idx ON sweep.run_history (job, run_id);
CREATE INDEX run_history_role_idx ON sweep.run_history (run_as);
CREATE INDEX run_history_outcome_idx ON sweep.run_history (job, run_as, status, run_id);
CREATE INDEX run_history_finished_at_idx ON sweep.run_history (finished_at);
CREATE INDEX run_history_parent_idx ON sweep.run_history (parent_run_id) WHERE parent_run_id IS NOT NULL;
COMMENT ON TABLE sweep.run_history IS 'runs that have ended, bounded by pg_sweep.history_per_job and pg_sweep.history_max_age; see sweep.runs';

CREATE VIEW sweep._run WITH (security_barrier) AS
	SELECT * FROM sweep.run_live UNION ALL SELECT * FROM sweep.run_history;
COMMENT ON VIEW sweep._run IS 'all runs, for functions that look one up by its number; granted to no role';

CREATE FUNCTION sweep._elapsed(started_at timestamptz, finished_at timestamptz) RETURNS interval
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	-- An interval can hold the time between any two moments since 2000.
	RETURN CASE WHEN pg_catalog.isfinite(started_at) AND pg_catalog.isfinite(finished_at) AND least(started_at, finished_at) >= '2000-01-01 00:00Z' THEN finished_at - started_at END;
COMMENT ON FUNCTION sweep._elapsed(timestamptz, timestamptz) IS 'the time from one to the other; NULL when there is no interval for it';

-- A security barrier, like all views: ../api/README.md has the reason. For a reader without the right to see all rows, the history is read
-- along the index of run_as. There is no recursive query, because Citus refuses one together with a distributed table.
CREATE VIEW sweep.runs WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.args, r.trigger, r.attempt, r.due_at, r.started_at, r.finished_at, r.status, r.stop_reason, r.batches, r.rows, r.rescued,
			r.quarantined, r.braked_ms, r.cursor, r.detail, r.sqlstate, r.error, r.pid, r.run_as, r.bucket, r.shares_left, r.parent_run_id, r.hook_depth
		FROM (SELECT l.* FROM sweep.run_live l WHERE sweep._may_see(l.run_as)
			UNION ALL SELECT h.* FROM sweep.run_history h WHERE (SELECT sweep._may_see(NULL))
			UNION ALL SELECT h.* FROM pg_catalog.pg_roles AS m CROSS JOIN LATERAL (SELECT * FROM sweep.run_history o WHERE o.run_as = m.rolname::pg_catalog.text COLLATE "default" OFFSET 0) AS h
				WHERE NOT (SELECT sweep._may_see(NULL)) AND sweep._may_see(m.rolname::pg_catalog.text)) AS r
		OFFSET 0;
COMMENT ON VIEW sweep.runs IS 'runs: waiting, running and ended; a role sees the runs of roles that it is a member of, a member of sweep_monitor all of them';

DO $$
DECLARE
	target pg_catalog.text;
	note pg_catalog.text[];
BEGIN
	FOREACH target IN ARRAY ARRAY['run_live', 'run_history', 'runs', '_run'] LOOP
		FOREACH note SLICE 1 IN ARRAY ARRAY[
			['run_id', 'number of the run'], ['job', 'name of the job'], ['args', 'args of this run, merged over those of the job'],
			['trigger', 'what caused it: schedule, manual, parent, retry, catch_up'], ['attempt', 'number of the attempt, from 1'],
			['due_at', 'when it was meant to start'], ['started_at', 'when it had its lock'], ['finished_at', 'when it ended'],
			['status', 'waiting, running, succeeded, skipped, failed, cancelled or lost'],
			['stop_reason', 'why it ended: drained, done, max_batches, max_rows, stop_after, cancelled, timeout, no_progress, error, skipped, lost, rescaled or waits'],
			['batches', 'batches committed'], ['rows', 'rows handled in them'], ['rescued', 'items for which the rescue function reported rows'],
			['quarantined', 'items put into quarantine'], ['braked_ms', 'time in pauses between its batches'], ['cursor', 'where the next batch would go on'], ['detail', 'what the step reported'],
			['sqlstate', 'code of the error that ended it'], ['error', 'that error, with its detail, hint and context'],
			['pid', 'process that runs it, ran it, or has ended it before it began'],
			['run_as', 'role of its job: a job of the same name that belongs to another role has nothing to do with it'],
			['bucket', 'share of a divided job that it has or had; while it waits the one that it prefers'],
			['shares_left', 'how many shares follow this one, one after the other; NULL: it was not begun as a share'],
			['parent_run_id', 'run that has queued it: of a share the one that divided the job, of a retry the one that is tried again, of one that a hook has queued the run that it tells of'],
			['hook_depth', 'how many hooks have led to it, one after the other']] LOOP
			EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', target, note[1], note[2]);
		END LOOP;
	END LOOP;
END
$$;
COMMENT ON COLUMN sweep.run_live.begun IS 'number drawn when it had its lock, which orders the runs of a job; NULL: it has not begun';
COMMENT ON COLUMN sweep.run_history.begun IS 'number drawn when it had its lock, which orders the runs of a job; NULL: it has not begun';
COMMENT ON COLUMN sweep._run.begun IS 'number drawn when it had its lock, which orders the runs of a job; NULL: it has not begun';

CREATE FUNCTION sweep._is_retried(status text, stop_reason text, attempt int, max_attempts int) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A run that made no progress would make no progress in another attempt either.
	SELECT status IN ('failed', 'lost') AND stop_reason IS DISTINCT FROM 'no_progress' AND attempt < max_attempts
$$;
COMMENT ON FUNCTION sweep._is_retried(text, text, int, int) IS 'whether a run that has ended so is tried again';

-- ------------------------------------------------------------------ what C offers to the functions below
CREATE FUNCTION sweep._run_is_alive(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_run_is_alive';
COMMENT ON FUNCTION sweep._run_is_alive(bigint) IS 'whether a process holds the lock of the run';

CREATE FUNCTION sweep._lock_number(role oid, key text) RETURNS bigint
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_lock_number';
COMMENT ON FUNCTION sweep._lock_number(oid, text) IS 'number of the lock of the role with this lock_key, (classid, objid) in pg_locks; changes with each start of the server';

-- The high COST makes the planner call it after all other conditions: when it returns true, the scheduler looks again soon.
CREATE FUNCTION sweep._lock_is_held(role oid, key text, shared boolean) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 1000000 AS 'MODULE_PATHNAME', 'sweep_lock_probe';
COMMENT ON FUNCTION sweep._lock_is_held(oid, text, boolean) IS 'whether a run of the role with this lock_key could not take its lock now, alone or (a share of a divided job) together with others';

CREATE FUNCTION sweep.try_lock(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_try';
COMMENT ON FUNCTION sweep.try_lock(text) IS 'takes the lock of that key for this session, if it is free; runs with this lock_key, of the roles one may act for, then wait or are skipped';

CREATE FUNCTION sweep.release_lock(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_release';
COMMENT ON FUNCTION sweep.release_lock(text) IS 'gives back a lock that this session took with sweep.try_lock; false when it had none';

-- ------------------------------------------------------------------ rows that a session has locked
-- The scheduler and the processes of runs never wait for a row that a session may have locked: one open transaction would
-- stop all jobs. They skip a locked row and come back to it.
CREATE FUNCTION sweep._lock_waiting_run(run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM FROM sweep.run_live r WHERE r.run_id = _lock_waiting_run.run_id AND r.status = 'waiting' FOR UPDATE SKIP LOCKED;
	RETURN CASE WHEN FOUND THEN true
		WHEN NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.run_id = _lock_waiting_run.run_id AND r.status = 'waiting') THEN false END;
END
$$;
COMMENT ON FUNCTION sweep._lock_waiting_run(bigint) IS 'locks the row of a waiting run; false when it does not wait any more, NULL when another session has locked it';

-- ------------------------------------------------------------------ starts
CREATE FUNCTION sweep._startable_runs(at timestamptz)
	RETURNS TABLE (run_id bigint, job text, run_as text, expected_rows bigint)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	most int := pg_catalog.current_setting('pg_sweep.max_running_jobs', true);
BEGIN
	-- A run that was started by hand ignores pauses, and the lock of its job decides whether it overlaps. Scheduled runs of one job
	-- follow each other. sweep.control is read once, and only when a run waits that was not started by hand.
	RETURN QUERY WITH ready AS (SELECT r.run_id, r.job, r.run_as, r.due_at, s.drained_rows, s.crashes > 0 AND sweep._is_suspect(s) AS suspect,
			pg_catalog.row_number() OVER (PARTITION BY s.crashes > 0 AND sweep._is_suspect(s) ORDER BY r.due_at, r.run_id) AS trial, j.priority, j.lock_key, j.buckets IS NOT NULL AS divided,
			-- Runs that were started (manual, parent, retry) wait for their turn at the lock; a run of the schedule tries to take the lock
			-- when it is due.
			r.trigger NOT IN ('schedule', 'catch_up') AS takes_turns,
			pg_catalog.row_number() OVER (PARTITION BY r.run_as, j.lock_key, r.trigger NOT IN ('schedule', 'catch_up') AND j.buckets IS NULL
				ORDER BY r.due_at, r.run_id) AS turn
		FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as JOIN sweep.job_state s ON s.job = j.name
		WHERE r.status = 'waiting' AND r.due_at <= at AND r.pid IS NULL AND sweep._is_home(s.system_identifier, s.database)
			-- A run of a role that is no longer a member of sweep_user waits until it is a member again.
			AND (NOT s.as_user OR sweep._is_user(r.run_as) IS NOT FALSE)
			AND (r.trigger = 'manual' OR NOT EXISTS (SELECT FROM sweep.control) AND s.all_paused_at IS NULL AND s.paused_at IS NULL
				AND (r.trigger = 'parent' OR j.buckets IS NOT NULL
					OR NOT EXISTS (SELECT FROM sweep.run_live o WHERE o.job = r.job AND o.run_as = r.run_as AND o.pid IS NOT NULL AND o.status = 'running')
						AND NOT EXISTS (SELECT FROM sweep.run_live o WHERE o.job = r.job AND o.run_as = r.run_as AND o.trigger IN ('schedule', 'catch_up', 'retry')
							AND o.due_at <= r.due_at AND (o.due_at, o.run_id) < (r.due_at, r.run_id) AND o.status = 'waiting' AND o.pid IS NULL)))
			AND (s.crashes = 0 OR sweep._may_run_again(s, at))
			-- The row is not locked, for example by a session that is cancelling the run: the process of the run would have to wait.
			-- xmax is tested first, because hardly any row has ever been locked.
			AND (r.xmax = 0 OR sweep._lock_waiting_run(r.run_id)))
	-- Only one of the runs that wait for the same lock is listed, and per role 100 more than could start, so that the runs of one
	-- job or role do not hide those of others. The columns that their owners write (args) are left out.
	SELECT w.run_id, w.job, w.run_as, w.drained_rows FROM (SELECT f.*, pg_catalog.row_number() OVER (PARTITION BY f.run_as ORDER BY f.priority DESC, f.due_at, f.run_id) AS nth
			FROM ready f WHERE (f.trial = 1 OR NOT f.suspect) AND (NOT f.takes_turns
				OR (f.turn = 1 OR f.divided) AND sweep._lock_is_held(sweep._role_oid(f.run_as), f.lock_key, f.divided) IS NOT TRUE)) AS w
		WHERE w.nth <= coalesce(most, 1000) + 100 ORDER BY w.priority DESC, w.due_at, w.run_id;
END
$$;
COMMENT ON FUNCTION sweep._startable_runs(timestamptz) IS 'the waiting runs that may start now, of each lock and each role the oldest ones';

CREATE FUNCTION sweep._next_wake(listed_at timestamptz) RETURNS timestamptz
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
	-- PL/pgSQL and not SQL, because it is called in each tick: an SQL function would be planned each time.
	RETURN least((SELECT pg_catalog.min(s.next_start) FROM sweep.job_state s WHERE pg_catalog.isfinite(s.next_start)
			AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL AND NOT EXISTS (SELECT FROM sweep.control)),
		(SELECT pg_catalog.min(r.due_at) FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at > listed_at AND pg_catalog.isfinite(r.due_at)),
		-- A run may wait because of a crash: until a moment, or for other suspects.
		(SELECT pg_catalog.clock_timestamp() + interval '1 s' FROM sweep.job_state s WHERE s.crashes BETWEEN 1 AND 2
			AND EXISTS (SELECT FROM sweep.run_live r WHERE r.job = s.job AND r.status = 'waiting' AND r.pid IS NULL AND r.due_at <= listed_at) LIMIT 1),
		-- A session that has locked a run and rolls back wakes no scheduler.
		(SELECT pg_catalog.clock_timestamp() + interval '1 s' FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at <= listed_at
			AND r.xmax <> 0 LIMIT 1),
		-- GRANT sweep_user wakes no scheduler, nor does the end of a transaction that was prepared before the server started.
		(SELECT pg_catalog.clock_timestamp() + interval '1 min' FROM sweep.run_live r JOIN sweep.job_state s ON s.job = r.job WHERE r.status = 'waiting' AND r.pid IS NULL
			AND r.due_at <= listed_at AND s.as_user AND sweep._is_user(r.run_as) IS FALSE AND sweep._is_home(s.system_identifier, s.database) LIMIT 1),
		CASE WHEN pg_catalog.current_setting('max_prepared_transactions') <> '0' AND EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts x
				WHERE x.database = pg_catalog.current_database() AND x.prepared < pg_catalog.pg_postmaster_start_time())
			THEN pg_catalog.clock_timestamp() + interval '1 min' END);
END
$$;
COMMENT ON FUNCTION sweep._next_wake(timestamptz) IS 'when a scheduler that has listed the startable runs of the given time has to look again';

CREATE FUNCTION sweep._fail_start(run_id bigint, stop_reason text, sqlstate text, error text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text;
BEGIN
	-- If the row of the run is locked, or another share of its job is ending, the run stays waiting, and the scheduler calls this
	-- again. A run that no longer waits has ended already.
	IF NOT sweep._may_end(run_id) OR sweep._lock_waiting_run(run_id) IS NOT TRUE THEN
		RETURN;
	END IF;
	-- The problem of the job is a better error text than the end of its process.
	SELECT sweep._job_problem(sweep._job_frame(j.name), false) INTO problem FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _fail_start.run_id AND _fail_start.stop_reason = 'error';
	UPDATE sweep.run_live AS r SET status = CASE _fail_start.stop_reason WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END,
			stop_reason = _fail_start.stop_reason, finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid()),
			sqlstate = CASE WHEN problem IS NULL THEN _fail_start.sqlstate ELSE '55000' END,
			error = coalesce(problem, _fail_start.error), bucket = NULL
		WHERE r.run_id = _fail_start.run_id AND r.status = 'waiting';
	PERFORM sweep._follow_end(run_id);
END
$$;
COMMENT ON FUNCTION sweep._fail_start(bigint, text, text, text) IS 'ends a run that could not begin: stop_reason error, timeout, or cancelled';

CREATE FUNCTION sweep._kept_cursor(job text) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	last sweep.run_live;
	state sweep.job_state;
	always constant boolean := EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = _kept_cursor.job AND j.cursor = 'always');
BEGIN
	-- job_state has the cursor of the runs that were moved to the history. A later run may have been moved before an earlier one, so
	-- last_begun decides which of the two is the last.
	SELECT * INTO state FROM sweep.job_state s WHERE s.job = _kept_cursor.job;
	SELECT r.* INTO last FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as WHERE r.job = _kept_cursor.job
		AND r.pid IS NOT NULL AND (r.batches > 0 OR r.cursor IS NOT NULL) AND coalesce(r.begun, 0) >= coalesce(state.last_begun, 0) ORDER BY r.begun DESC NULLS LAST, r.run_id DESC LIMIT 1;
	IF FOUND THEN
		RETURN CASE WHEN last.stop_reason IS DISTINCT FROM 'drained' OR always THEN last.cursor END;
	END IF;
	RETURN state.kept_cursor;
END
$$;
COMMENT ON FUNCTION sweep._kept_cursor(text) IS 'cursor at which the last run of the job stopped; NULL when the run drained, unless the job always keeps its cursor';

CREATE FUNCTION sweep._run_outcome(caller oid, run_id bigint) RETURNS sweep.run_live
	LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found_run sweep.run_live;
BEGIN
	SELECT * INTO found_run FROM sweep.run_live r WHERE r.run_id = _run_outcome.run_id;
	IF NOT FOUND THEN
		SELECT * INTO found_run FROM sweep.run_history r WHERE r.run_id = _run_outcome.run_id;
	END IF;
	IF found_run.run_id IS NULL THEN
		RAISE EXCEPTION 'run % does not exist', run_id USING ERRCODE = 'undefined_object',
			HINT = 'The view sweep.runs lists the runs of this database.';
	END IF;
	IF NOT (sweep._may_act_on(caller, found_run.run_as, true) OR sweep._acts_for(caller, 'sweep_monitor')) THEN
		RAISE EXCEPTION 'permission denied for run %', run_id USING ERRCODE = 'insufficient_privilege',
			HINT = 'Members of the role of its job and of sweep_monitor may see it.';
	END IF;
	RETURN found_run;
END
$$;
COMMENT ON FUNCTION sweep._run_outcome(oid, bigint) IS 'a run, if the caller may see it';

-- ------------------------------------------------------------------ public
CREATE FUNCTION sweep._start(caller oid, name text, args jsonb, delay interval, at timestamptz) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- The shared lock on the job: a session that drops the job, or gives it to another role, waits for this transaction, or this call
	-- waits for that session.
	job sweep.job_definition := sweep._lock_job(caller, name, true, true);
	problem pg_catalog.text := coalesce(sweep._job_problem(job, (SELECT s.as_user FROM sweep.job_state s WHERE s.job = name)),
		(SELECT sweep._crash_problem(s.crashes) FROM sweep.job_state s WHERE s.job = name));
	new_id bigint;
BEGIN
	PERFORM sweep._require_workers();
	PERFORM sweep._check_args(name, args), sweep._check_args_size(name, args);
	IF delay IS NULL OR delay < interval '0' OR delay > interval '100 years' THEN
		RAISE EXCEPTION 'invalid delay % for job "%"', coalesce(delay::pg_catalog.text, 'NULL'), name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be between zero and 100 years.';
	END IF;
	IF at IS NOT NULL AND delay <> interval '0' THEN
		RAISE EXCEPTION 'job "%" cannot start both at % and after %', name, at, delay
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass at or delay.';
	END IF;
	IF at > pg_catalog.clock_timestamp() + interval '100 years' OR at = '-infinity' THEN
		RAISE EXCEPTION 'invalid moment % for job "%"', at, name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be finite, and at most 100 years from now.';
	END IF;
	IF args <> '{}' AND job.sql IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" takes no args', name USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Its sql has no parameters; those of a step or a batch_sql are in its batch.';
	END IF;
	IF args <> '{}' AND NOT sweep._can_become(caller, job.run_as) THEN
		RAISE EXCEPTION 'permission denied to pass args to job "%"', name USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('Whoever could SET ROLE to %s may pass args; start it without.', job.run_as);
	END IF;
	IF NOT EXISTS (SELECT FROM sweep.job_state s WHERE s.job = name AND sweep._is_home(s.system_identifier, s.database)) THEN
		RAISE EXCEPTION 'database "%" is a copy: its jobs are paused', pg_catalog.current_database()
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'If they are meant to run here, call sweep.resume_all(); CALL sweep.run() works without.';
	END IF;
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" is broken: %', name, problem USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Mend what the message names, or change the job with sweep.alter_job.';
	END IF;
	INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at)
		VALUES (name, job.run_as, args, 'manual', greatest(at, pg_catalog.clock_timestamp() + delay))
		RETURNING run_id INTO new_id;
	PERFORM sweep._wake(), sweep._warn_no_scheduler(pg_catalog.format('run %s of job "%s" waits', new_id, name));
	RETURN new_id;
END
$$;
COMMENT ON FUNCTION sweep._start(oid, text, jsonb, interval, timestamptz) IS 'implements sweep.start';

CREATE FUNCTION sweep.start(name text, args jsonb DEFAULT '{}', delay interval DEFAULT '0', at timestamptz DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.start(text, jsonb, interval, timestamptz) IS 'runs a job in the background once the transaction has committed, after the delay, or at that moment; returns the run_id';

CREATE FUNCTION sweep._cancel_one(caller oid, run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	target sweep.run_live;
BEGIN
	LOOP
		SELECT * INTO target FROM sweep.run_live r WHERE r.run_id = _cancel_one.run_id;
		IF NOT FOUND THEN
			IF EXISTS (SELECT FROM sweep.run_history h WHERE h.run_id = _cancel_one.run_id) THEN
				RETURN false;
			END IF;
			RAISE EXCEPTION 'run % does not exist', run_id USING ERRCODE = 'undefined_object',
				HINT = 'The view sweep.runs lists the runs of this database.';
		END IF;
		IF NOT sweep._may_act_on(caller, target.run_as, true) THEN
			RAISE EXCEPTION 'permission denied for run %', run_id USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('Members of %s, sweep_operator and sweep_admin may do this.', pg_catalog.quote_ident(target.run_as));
		END IF;
		IF target.status <> 'waiting' OR sweep._signal_cancel(run_id) THEN
			RETURN target.finished_at IS NULL AND sweep._signal_cancel(run_id);
		END IF;
		UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
			WHERE r.run_id = _cancel_one.run_id AND r.status = 'waiting' AND r.run_as = target.run_as;
		-- Before the UPDATE had its lock, the run may have begun, or may have been given to another role, with its job: it is looked at again.
		EXIT WHEN FOUND;
	END LOOP;
	PERFORM sweep._wake();
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._cancel_one(oid, bigint) IS 'stops a run, as sweep.cancel says';

CREATE FUNCTION sweep._cancel(caller oid, run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	was_stopped boolean := sweep._cancel_one(caller, run_id);
	other bigint;
BEGIN
	-- All shares of a job that is done by ranges are cancelled together: to its user they are one run, and the first share may have ended.
	FOR other IN SELECT o.run_id FROM sweep._run r JOIN sweep.run_live o ON o.job = r.job AND o.run_as = r.run_as AND o.run_id <> r.run_id
			WHERE r.run_id = _cancel.run_id AND o.finished_at IS NULL AND o.shares_left IS NOT NULL AND sweep._has_ranges(r.job) ORDER BY o.run_id LOOP
		was_stopped := sweep._cancel_one(caller, other) OR was_stopped;
	END LOOP;
	RETURN was_stopped;
END
$$;
COMMENT ON FUNCTION sweep._cancel(oid, bigint) IS 'implements sweep.cancel';

CREATE FUNCTION sweep.cancel(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.cancel(bigint) IS 'stops a run: between batches at the latest, a statement in flight is cancelled; false when it had ended';

CREATE PROCEDURE sweep.run(name text, args jsonb DEFAULT '{}')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_run_call';
COMMENT ON PROCEDURE sweep.run(text, jsonb) IS 'runs a job in this session, one commit per batch; raises unless the run succeeded';

CREATE PROCEDURE sweep.wait(run_id bigint, timeout interval DEFAULT '1 min')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_run_wait';
COMMENT ON PROCEDURE sweep.wait(bigint, interval) IS 'ends the transaction and waits until a run and all its shares have ended; raises unless they succeeded, or when the time is over';

CREATE FUNCTION sweep.preview(name text, args jsonb DEFAULT '{}', OUT rows bigint, OUT cursor jsonb, OUT plan text, OUT notes text)
	RETURNS record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_preview';
COMMENT ON FUNCTION sweep.preview(text, jsonb) IS 'executes one batch of a job and rolls it back; shows what it would do, and its plan';
--
-- Due moments: which jobs are due, and the runs that are queued for them.
--
CREATE FUNCTION sweep._insert_scheduled(j sweep.job_definition, due timestamptz, trigger text, ignore_overlap boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	in_the_way bigint;
BEGIN
	IF NOT ignore_overlap THEN
		-- By the overlap rule, the run in_the_way keeps the new one from being queued (skip, queue_one) or is cancelled for it
		-- (cancel_previous). OFFSET 0 keeps the planner from looking for the smallest run_id through the runs of all jobs.
		-- A run in progress of a divided job is not in the way: it is one share, and the buckets decide whether there is room for
		-- more. A waiting run counts as in progress when its process has been started or when it follows another share
		-- (shares_left). A waiting run that is neither is in the way, so that such runs do not pile up.
		in_the_way := least(
			(SELECT pg_catalog.min(w.run_id) FROM (SELECT r.run_id FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as
				AND r.trigger IN ('schedule', 'catch_up', 'retry', 'parent')
				AND r.due_at <= due AND r.status = 'waiting' AND r.pid IS NULL
				AND (j.buckets IS NULL OR r.shares_left IS NULL AND NOT EXISTS (SELECT FROM sweep._running() p WHERE p.run_id = r.run_id)) OFFSET 0) AS w),
			(SELECT pg_catalog.min(w.run_id) FROM (SELECT r.run_id FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running'
				AND j.overlap = 'skip' AND j.buckets IS NULL AND sweep._run_is_alive(r.run_id) OFFSET 0) AS w));
		IF j.overlap = 'cancel_previous' THEN
			-- A run that another session has locked is being cancelled by that session, or begins just now.
			UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
				WHERE r.run_id = in_the_way AND sweep._lock_waiting_run(r.run_id);
			PERFORM sweep._signal_cancel(in_the_way);
			PERFORM sweep._signal_cancel(r.run_id) FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running' AND j.buckets IS NULL;
		ELSIF in_the_way IS NOT NULL THEN
			INSERT INTO sweep.run_live (job, run_as, trigger, due_at, finished_at, pid, status, stop_reason, detail)
				VALUES (j.name, j.run_as, trigger, due, pg_catalog.clock_timestamp(), pg_catalog.pg_backend_pid(), 'skipped', 'skipped',
					pg_catalog.jsonb_build_object('reason', 'overlap', 'run_id', in_the_way));
			RETURN;
		END IF;
	END IF;
	INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES (j.name, j.run_as, trigger, due);
END
$$;
COMMENT ON FUNCTION sweep._insert_scheduled(sweep.job_definition, timestamptz, text, boolean) IS 'queues the run of a due moment, as the overlap rule of the job says';

-- The rule is that of vixie-cron. After the clock was set back by up to three hours, a fixed moment (30 2 * * *) that had its run
-- does not run a second time. The function looks for the run of that moment. It does not compare with last_due alone: the clock may have
-- been far ahead, and then no moment would be due until that time. A repeating schedule has all of its moments again, else
-- the job would stand still. An interval has them again, too, except the moment of its last run.
CREATE FUNCTION sweep._has_run(j sweep.job_definition, last_due timestamptz, due timestamptz) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	kind pg_catalog.text;
BEGIN
	IF last_due - due BETWEEN '0' AND '3 h' THEN
		kind := sweep._schedule_kind(j.schedule);
		RETURN kind <> 'repeating' AND coalesce((SELECT CASE kind WHEN 'fixed' THEN pg_catalog.bool_or(r.due_at = due)
					ELSE (pg_catalog.array_agg(r.due_at ORDER BY r.run_id DESC))[1] = due END
				FROM (SELECT l.run_id, l.trigger, l.due_at FROM sweep.run_live l WHERE l.job = j.name
					UNION ALL SELECT h.run_id, h.trigger, h.due_at FROM sweep.run_history h WHERE h.job = j.name) AS r
				WHERE r.trigger IN ('schedule', 'catch_up')), false);
	END IF;
	RETURN false;
END
$$;
COMMENT ON FUNCTION sweep._has_run(sweep.job_definition, timestamptz, timestamptz) IS 'whether a moment of the schedule had its run before the clock was set back, and does not run a second time';

CREATE FUNCTION sweep._enqueue_job(j sweep.job_definition, s sweep.job_state, at timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- A moment that the scheduler sees later than this counts as missed, and catch_up decides.
	grace constant interval := '1 min';
	most constant int := 100;
	problem pg_catalog.text := coalesce(sweep._job_problem(j, s.as_user), sweep._crash_problem(s.crashes));
	late boolean := at - s.next_start > grace;
	due pg_catalog.timestamptz := s.next_due;
	queued pg_catalog.timestamptz;
	counted int := 0;
BEGIN
	IF problem IS DISTINCT FROM s.broken THEN
		PERFORM sweep._set_broken(j.name, problem);
		IF problem IS NOT NULL THEN
			RAISE WARNING 'job "%" is broken: %', j.name, problem;
		END IF;
	END IF;
	IF problem IS NULL AND due IS NOT NULL THEN
		IF j.catch_up = 'all' THEN
			WHILE due <= at AND counted < most LOOP
				IF NOT sweep._has_run(j, s.last_due, due) THEN
					PERFORM sweep._insert_scheduled(j, due, CASE WHEN at - due > grace THEN 'catch_up' ELSE 'schedule' END, queued IS NOT NULL);
					queued := due;
				END IF;
				due := sweep._next_run(j.schedule, j.timezone, due, j.name);
				counted := counted + 1;
			END LOOP;
		ELSIF (j.catch_up = 'once' OR NOT late) AND NOT sweep._has_run(j, s.last_due, due) THEN
			PERFORM sweep._insert_scheduled(j, due, CASE WHEN late THEN 'catch_up' ELSE 'schedule' END, false);
			queued := due;
		END IF;
	END IF;
	PERFORM sweep._reschedule(j.name, at, queued);
END
$$;
COMMENT ON FUNCTION sweep._enqueue_job(sweep.job_definition, sweep.job_state, timestamptz) IS 'queues runs for the missed and due moments of a job, and sets its next moment';

-- The scheduler decides about many jobs at a time and needs none of their long texts. A new setting that can be large is dropped here.
CREATE FUNCTION sweep._job_frame(name text) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job_definition;
BEGIN
	-- SELECT INTO copies the pointers to large values, which are stored out of line. They are dropped before they are read.
	SELECT * INTO j FROM sweep.job_definition t WHERE t.name = _job_frame.name;
	j.sql := NULL;
	j.batch_sql := NULL;
	j.args := '{}';
	j.on_start := NULL;
	j.on_success := NULL;
	j.on_failure := NULL;
	j.description := NULL;
	RETURN j;
END
$$;
COMMENT ON FUNCTION sweep._job_frame(text) IS 'the job without its large columns: sql, batch_sql, args, hooks, description';

-- The number of jobs is limited, so that startable runs do not wait for long. The roles take turns: the oldest moment of each role
-- comes first, then the second ones. Thousands of jobs of one role do not delay the jobs of other roles.
CREATE FUNCTION sweep._enqueue_due(at timestamptz, most int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	due_job pg_catalog.record;
	state sweep.job_state;
	counted int := 0;
BEGIN
	FOR due_job IN SELECT s.job FROM (SELECT d.job, d.next_start, pg_catalog.row_number() OVER (PARTITION BY j.run_as ORDER BY d.next_start, d.job) AS nth
				FROM sweep.job_state d JOIN sweep.job_definition j ON j.name = d.job
				WHERE d.next_start <= at AND sweep._is_home(d.system_identifier, d.database) AND d.all_paused_at IS NULL
					AND NOT EXISTS (SELECT FROM sweep.control)) AS turn JOIN sweep.job_state s ON s.job = turn.job
			-- FOR UPDATE evaluates these conditions again on the row that it has locked: another session may have changed it since.
			WHERE s.next_start <= at AND s.all_paused_at IS NULL
			ORDER BY turn.nth, turn.next_start LIMIT most FOR UPDATE OF s SKIP LOCKED LOOP
		-- One job that cannot be scheduled must not keep the others from it.
		BEGIN
			SELECT * INTO state FROM sweep.job_state s WHERE s.job = due_job.job;
			state.kept_cursor := NULL;
			PERFORM sweep._enqueue_job(sweep._job_frame(due_job.job), state, at);
			counted := counted + 1;
		-- These errors concern the server or tables of all jobs: they end the tick, and the next one tries again.
		EXCEPTION WHEN insufficient_resources OR operator_intervention OR system_error OR lock_not_available OR serialization_failure OR deadlock_detected THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', due_job.job, SQLERRM;
			UPDATE sweep.job_state AS t SET next_start = at + interval '1 min' WHERE t.job = due_job.job;
			-- A damaged row (XX001, XX002) is logged, and the job is not marked as broken: its definition is not at fault.
			PERFORM sweep._set_broken(due_job.job, SQLERRM) WHERE SQLSTATE NOT IN ('XX001', 'XX002');
		END;
	END LOOP;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._enqueue_due(timestamptz, int) IS 'queues a run for jobs that are due at the moment, so many at most, the roles in turn; returns how many jobs were';

CREATE FUNCTION sweep._enqueue_reboot() RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	due_job pg_catalog.record;
	seen int := 0;
	counted int := 0;
BEGIN
	SELECT pg_catalog.count(*) INTO seen FROM sweep.job_state s JOIN sweep.job_definition j ON j.name = s.job
		WHERE s.boot IS DISTINCT FROM pg_catalog.pg_postmaster_start_time() AND sweep._is_reboot(j.schedule) AND s.paused_at IS NULL
			AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL AND NOT EXISTS (SELECT FROM sweep.control);
	FOR due_job IN SELECT j.name, s.crashes FROM sweep.job_state s JOIN sweep.job_definition j ON j.name = s.job
			WHERE s.boot IS DISTINCT FROM pg_catalog.pg_postmaster_start_time() AND sweep._is_reboot(j.schedule)
				AND s.paused_at IS NULL AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL
				AND NOT EXISTS (SELECT FROM sweep.control) FOR UPDATE OF s SKIP LOCKED LOOP
		UPDATE sweep.job_state AS s SET boot = pg_catalog.pg_postmaster_start_time() WHERE s.job = due_job.name;
		BEGIN
			PERFORM sweep._insert_scheduled(sweep._job_frame(due_job.name), pg_catalog.clock_timestamp(), 'schedule', false), sweep._set_broken(due_job.name, sweep._crash_problem(due_job.crashes));
		EXCEPTION WHEN insufficient_resources OR operator_intervention OR system_error OR lock_not_available OR serialization_failure OR deadlock_detected THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', due_job.name, SQLERRM;
			PERFORM sweep._set_broken(due_job.name, SQLERRM) WHERE SQLSTATE NOT IN ('XX001', 'XX002');
		END;
		counted := counted + 1;
	END LOOP;
	RETURN counted >= seen;
END
$$;
COMMENT ON FUNCTION sweep._enqueue_reboot() IS 'queues the @reboot jobs, once per start of the server; false when another session has locked some of them';
--
-- Ends runs that cannot record their own end, queues retries, and moves ended runs to the history.
--
CREATE FUNCTION sweep._retry(run_id bigint) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A share that failed has queued the next shares itself; a share that was lost has not.
	INSERT INTO sweep.run_live (job, run_as, args, trigger, attempt, bucket, shares_left, parent_run_id, hook_depth, due_at)
		SELECT r.job, r.run_as, r.args, 'retry', r.attempt + 1, r.bucket, r.shares_left * (r.status = 'lost')::int, r.run_id, r.hook_depth,
			pg_catalog.clock_timestamp() + interval '1 s' * (r.attempt ^ 4 + 15 + pg_catalog.floor(pg_catalog.random() * 10 * (r.attempt + 1)))
		FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _retry.run_id AND sweep._is_retried(r.status, r.stop_reason, r.attempt, j.max_attempts)
$$;
COMMENT ON FUNCTION sweep._retry(bigint) IS 'queues the next attempt of a run that failed or was lost, with the backoff of Sidekiq';

-- A replicated run is ended by the database that it comes from. If it were moved to the history here, the row that arrives when it is
-- moved there would be a duplicate, and end the replication.
CREATE FUNCTION sweep._is_subscriber() RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = 'sweep.run_live'::pg_catalog.regclass);
END
$$;
COMMENT ON FUNCTION sweep._is_subscriber() IS 'whether a subscription brings runs of another database';

CREATE FUNCTION sweep._cancel_orphans(due timestamptz) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	counted bigint;
BEGIN
	-- PL/pgSQL and not SQL, because it is called in each tick: an SQL function would be planned each time.
	WITH orphan AS (SELECT o.run_id FROM sweep.run_live o WHERE o.status = 'waiting' AND o.pid IS NULL AND o.due_at <= due
			AND NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = o.job AND j.run_as = o.run_as) AND NOT sweep._is_subscriber() FOR UPDATE OF o SKIP LOCKED)
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
		FROM orphan WHERE r.run_id = orphan.run_id;
	GET DIAGNOSTICS counted = ROW_COUNT;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._cancel_orphans(timestamptz) IS 'ends due runs that were queued while their job was dropped or given to another role; returns how many';

CREATE FUNCTION sweep._mark_lost() RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	gone pg_catalog.record;
	again pg_catalog.text;
	counted int := 0;
BEGIN
	PERFORM sweep._cancel_orphans(pg_catalog.clock_timestamp());
	-- In a copy of a database the run is cancelled and not lost, because it goes on in the original database.
	FOR gone IN SELECT r.run_id, r.status, r.job, r.run_as, CASE WHEN pg_catalog.pg_postmaster_start_time() > r.started_at
				THEN pg_catalog.format('the server was restarted while process %s performed the run', r.pid)
				ELSE pg_catalog.format('process %s has ended without an outcome: it was terminated, or the server went down', r.pid) END AS reason, CASE WHEN (SELECT sweep._is_home(s.system_identifier, s.database) IS NOT TRUE
				FROM sweep.job_definition j LEFT JOIN sweep.job_state s ON s.job = j.name WHERE j.name = r.job) THEN 'cancelled' ELSE 'lost' END AS outcome
			FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.status IN ('waiting', 'running') AND NOT sweep._run_is_alive(r.run_id)
			ORDER BY r.job, r.run_id FOR UPDATE OF r SKIP LOCKED LOOP
		-- The job of a run that a subscription has brought may not be copied yet, or be dropped already.
		CONTINUE WHEN NOT sweep._may_end(gone.run_id)
			OR (gone.outcome = 'cancelled' OR NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = gone.job)) AND sweep._is_subscriber();
		-- The changes of a job with sql are not committed together with the row of its run.
		again := CASE WHEN gone.status = 'running' AND EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = gone.job AND j.sql IS NOT NULL)
			THEN 'All of its statements may have been executed; the next run begins with the first one.' END;
		UPDATE sweep.run_live AS r SET status = gone.outcome, stop_reason = gone.outcome, finished_at = pg_catalog.clock_timestamp(),
				error = CASE gone.outcome WHEN 'lost' THEN gone.reason || coalesce(E'\nHINT: ' || again, '') END
			WHERE r.run_id = gone.run_id AND r.status = gone.status;
		IF FOUND THEN
			IF gone.outcome = 'lost' THEN
				RAISE WARNING 'run % of job "%" is lost: %', gone.run_id, gone.job, gone.reason USING DETAIL = pg_catalog.format('It ran as role "%s".', gone.run_as),
					HINT = coalesce(again, 'What it had committed stays; the next run goes on.');
			END IF;
			PERFORM sweep._release_range(b.job, b.run_id, b.bucket) FROM sweep.bucket b WHERE b.job = gone.job AND b.run_id = gone.run_id AND b.range IS NOT NULL;
			PERFORM sweep._follow_end(gone.run_id);
			counted := counted + 1;
		END IF;
	END LOOP;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._mark_lost() IS 'ends the runs whose process is gone: status lost, in a copy cancelled; returns how many';

CREATE FUNCTION sweep._prune(job text, run_as text, status text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- This is a separate query, because FOR UPDATE would also lock the rows that OFFSET leaves out, and each row lock is a write.
	youngest constant bigint := (SELECT k.run_id FROM sweep.run_history k
		WHERE k.job = _prune.job AND k.run_as = _prune.run_as AND k.status = _prune.status ORDER BY k.run_id DESC
		OFFSET pg_catalog.current_setting('pg_sweep.history_per_job')::int LIMIT 1);
BEGIN
	IF youngest IS NULL THEN
		RETURN;
	END IF;
	DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
			WHERE k.job = _prune.job AND k.run_as = _prune.run_as AND k.status = _prune.status AND k.run_id <= youngest
			ORDER BY k.run_id DESC LIMIT 1000 FOR UPDATE SKIP LOCKED) AS old
		WHERE h.run_id = old.run_id;
END
$$;
COMMENT ON FUNCTION sweep._prune(text, text, text) IS 'deletes the oldest runs of a job, role and outcome beyond pg_sweep.history_per_job';

-- A schedule or time zone that cannot be read must not stop the check of the other jobs. The job counts as too late:
-- sweep._reschedule then sets its next moment, finds the error and marks the job as broken.
CREATE FUNCTION sweep._is_too_late(name text, schedule text, timezone text, next_due timestamptz, at timestamptz) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- The handler below does not catch errors of DECLARE.
	RETURN next_due > sweep._next_run(schedule, timezone, at, name);
EXCEPTION WHEN OTHERS THEN
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._is_too_late(text, text, text, timestamptz, timestamptz) IS 'true if next_due is later than the schedule says, or if the schedule cannot be read';

CREATE FUNCTION sweep._mend_clock(at timestamptz, back interval) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	late pg_catalog.record;
BEGIN
	-- If the clock was wrong by so much, the moments are wrong: all of them are set by the new clock.
	IF back > interval '3 h' THEN
		UPDATE sweep.job_state AS s SET last_due = NULL FROM (SELECT o.job FROM sweep.job_state o
			WHERE o.last_due > at FOR UPDATE SKIP LOCKED) AS free WHERE s.job = free.job;
	END IF;
	-- A clock that ran ahead and was set back leaves moments that are too far off.
	FOR late IN SELECT j.name FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name
			WHERE s.next_due > at AND sweep._is_too_late(j.name, j.schedule, j.timezone, s.next_due, at)
				OR s.next_due IS NULL AND s.next_start > at + interval '1 min'
			FOR UPDATE OF s SKIP LOCKED LOOP
		BEGIN
			PERFORM sweep._reschedule(late.name, at, NULL);
		EXCEPTION WHEN insufficient_resources OR operator_intervention OR system_error OR lock_not_available OR serialization_failure OR deadlock_detected THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'next moment of job "%" could not be checked: %', late.name, SQLERRM;
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._mend_clock(timestamptz, interval) IS 'brings forward jobs that are due later than their schedule says; the clock was set back by so much';

CREATE FUNCTION sweep._archivable_jobs(OUT free text[], OUT locked boolean)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	ended pg_catalog.text[];
BEGIN
	-- The recursion goes from one job to the next in the index, however many runs a job has; the jobs that have
	-- waited for longest come first.
	WITH RECURSIVE step AS (
		(SELECT r.job, r.run_id FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL ORDER BY r.job, r.run_id LIMIT 1)
		UNION ALL
		SELECT n.job, n.run_id FROM step s CROSS JOIN LATERAL (SELECT r.job, r.run_id FROM sweep.run_live r
			WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL AND r.job > s.job ORDER BY r.job, r.run_id LIMIT 1) AS n)
	SELECT pg_catalog.array_agg(s.job ORDER BY s.run_id) INTO ended FROM step s
		WHERE EXISTS (SELECT FROM sweep.job_state h WHERE h.job = s.job AND sweep._is_home(h.system_identifier, h.database)) OR NOT sweep._is_subscriber();
	-- A session that is changing a job has locked its state and may wait for the scheduler. The runs of that job are left to the
	-- next call.
	SELECT pg_catalog.array_agg(e.job ORDER BY e.n) INTO free FROM pg_catalog.unnest(ended) WITH ORDINALITY AS e (job, n)
		LEFT JOIN (SELECT s.job FROM sweep.job_state s WHERE s.job = ANY (ended) FOR UPDATE SKIP LOCKED) AS ours ON ours.job = e.job
		WHERE ours.job IS NOT NULL OR NOT EXISTS (SELECT FROM sweep.job_state s WHERE s.job = e.job);
	locked := coalesce(pg_catalog.cardinality(free), 0) < coalesce(pg_catalog.cardinality(ended), 0);
END
$$;
COMMENT ON FUNCTION sweep._archivable_jobs() IS 'the jobs with ended runs, whose states it locks, and whether other sessions have locked some';

-- A job that has not completed its work stays: in a restored database, where the history is missing, or because its run has failed. A job
-- that was altered to be of another kind also stays, because tables may be dropped with it, which may take long or fail, and this runs in
-- the scheduler.
CREATE FUNCTION sweep._drop_jobs_without_history() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ended pg_catalog.text;
BEGIN
	FOR ended IN SELECT j.name FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name
			WHERE s.goes_with_history AND j.step IN ('sweep.delete_step', 'sweep.update_step') AND s.drained_rows IS NOT NULL AND sweep._is_home(s.system_identifier, s.database)
				AND NOT EXISTS (SELECT FROM sweep.run_history h WHERE h.job = j.name) FOR UPDATE OF j, s SKIP LOCKED LOOP
		-- Checked after the job is locked, because a session may just have started it.
		PERFORM sweep._remove_job(ended) WHERE NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.job = ended);
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._drop_jobs_without_history() IS 'drops jobs that were made for one run when the history of that run is gone';

CREATE FUNCTION sweep._archive_runs(age_out boolean) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	-- The number of runs is limited, so that the scheduler gets back to its work, and per job, so that all jobs have their turn.
	most constant int := 1000;
	most_of_job int;
	-- The size is limited, too: the owner of a job decides on its args, cursor and detail, which may be megabytes.
	most_bytes constant bigint := 4 * 1024 * 1024;
	bytes bigint := 0;
	jobs pg_catalog.record;
	ended sweep.run_live;
	moved bigint[] := '{}';
BEGIN
	IF NOT age_out AND NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL) THEN
		RETURN 0;
	END IF;
	BEGIN
		LOCK TABLE sweep.run_history IN ROW EXCLUSIVE MODE NOWAIT;
	EXCEPTION WHEN lock_not_available THEN
		RETURN NULL;
	END;
	SELECT * INTO jobs FROM sweep._archivable_jobs();
	most_of_job := greatest(most / greatest(pg_catalog.cardinality(jobs.free), 1), 100);
	FOR ended IN SELECT f.* FROM pg_catalog.unnest(jobs.free) WITH ORDINALITY AS k (job, n)
			CROSS JOIN LATERAL (SELECT * FROM sweep.run_live r WHERE r.job = k.job AND r.pid IS NOT NULL AND r.finished_at IS NOT NULL
				ORDER BY r.run_id LIMIT most_of_job FOR UPDATE SKIP LOCKED) AS f
			ORDER BY k.n, f.run_id LIMIT most LOOP
		-- The row is moved column by column: as one composite value it could exceed the size limit of a value.
		WITH moved AS (DELETE FROM sweep.run_live r WHERE r.run_id = ended.run_id RETURNING r.*)
		INSERT INTO sweep.run_history SELECT m.* FROM moved m;
		IF ended.batches > 0 OR ended.cursor IS NOT NULL THEN
			UPDATE sweep.job_state AS s SET last_begun = ended.begun,
					drained_rows = CASE WHEN ended.stop_reason = 'drained' THEN ended.rows ELSE s.drained_rows END,
					kept_cursor = CASE WHEN ended.stop_reason IS DISTINCT FROM 'drained' OR EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = ended.job AND j.cursor = 'always')
						THEN ended.cursor END
				WHERE s.job = ended.job AND coalesce(s.last_begun, 0) <= coalesce(ended.begun, 0)
					AND EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = ended.job AND j.run_as = ended.run_as);
		END IF;
		moved := moved || ended.run_id;
		-- The sizes of stored values are known without reading them.
		bytes := bytes + pg_catalog.pg_column_size(ended.args) + coalesce(pg_catalog.pg_column_size(ended.cursor), 0) + coalesce(pg_catalog.pg_column_size(ended.detail), 0);
		EXIT WHEN bytes > most_bytes;
	END LOOP;
	-- One call for all moved runs of a job, role and status: each call reads as many rows of the history as are kept.
	PERFORM sweep._prune(k.job, k.run_as, k.status)
		FROM (SELECT DISTINCT h.job, h.run_as, h.status FROM pg_catalog.unnest(moved) AS m (run_id) JOIN sweep.run_history h USING (run_id)) AS k;
	IF age_out THEN
		DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
				WHERE k.finished_at < pg_catalog.clock_timestamp() - pg_catalog.current_setting('pg_sweep.history_max_age')::interval
				ORDER BY k.finished_at LIMIT 10000 FOR UPDATE SKIP LOCKED) AS old
			WHERE h.run_id = old.run_id;
		PERFORM sweep._drop_jobs_without_history();
		-- If the next try of an item is so long overdue, its job no longer picks it.
		DELETE FROM sweep.quarantined_item AS q USING (SELECT o.job, o.item_hash FROM sweep.quarantined_item o
				WHERE o.next_try < pg_catalog.clock_timestamp() - pg_catalog.current_setting('pg_sweep.history_max_age')::interval FOR UPDATE SKIP LOCKED) AS old
			WHERE q.job = old.job AND q.item_hash = old.item_hash;
	END IF;
	RETURN CASE WHEN bytes > most_bytes THEN most WHEN NOT jobs.locked THEN pg_catalog.cardinality(moved) END;
END
$$;
COMMENT ON FUNCTION sweep._archive_runs(boolean) IS 'moves ended runs to the history and prunes it, by age too if asked; returns how many, 1000 also after a few large ones; else NULL when a lock kept it from some';

-- lock_timeout: a lock on the history delays the process for 5 s at most. Without the note, the log still has the warning.
CREATE FUNCTION sweep._note_unreplicated(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
BEGIN
	UPDATE sweep.run_live AS r SET detail = coalesce(r.detail, '{}') || '{"unreplicated": true}' WHERE r.run_id = _note_unreplicated.run_id;
	IF NOT FOUND THEN
		UPDATE sweep.run_history AS r SET detail = coalesce(r.detail, '{}') || '{"unreplicated": true}' WHERE r.run_id = _note_unreplicated.run_id;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._note_unreplicated(bigint) IS 'notes in the detail of a run that has ended that no standby has its last commit';

-- ------------------------------------------------------------------ what sweep.wait waits for
CREATE FUNCTION sweep._wait_outcome(caller oid, run_id bigint, OUT job text, OUT status text, OUT stop_reason text, OUT batches bigint, OUT rows bigint,
	OUT error text, OUT ended boolean, OUT decisive bigint, OUT reason text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- Checked before the rows are read: a process that has ended by now has committed all runs that it queues.
	alive bigint[] := ARRAY(SELECT p.run_id FROM sweep._running() p);
	asked sweep.run_live := sweep._run_outcome(caller, run_id);
	begun boolean;
BEGIN
	WITH RECURSIVE everything AS NOT MATERIALIZED (SELECT * FROM sweep.run_live UNION ALL SELECT * FROM sweep.run_history),
		share AS (
			SELECT _wait_outcome.run_id
			UNION ALL
			-- A retry is not waited for, because the run that it repeats has failed.
			SELECT e.run_id FROM share s JOIN everything e ON e.parent_run_id = s.run_id
				WHERE e.job = asked.job AND e.run_as = asked.run_as AND e.trigger <> 'retry'),
		-- A share that found no bucket has left them to others.
		run AS (SELECT e.*, pg_catalog.array_position('{failed,lost,cancelled,succeeded,skipped}'::pg_catalog.text[], e.status::pg_catalog.text) AS rank
			FROM share s JOIN everything e ON e.run_id = s.run_id)
	SELECT pg_catalog.bool_and(r.finished_at IS NOT NULL AND r.run_id <> ALL (alive)), pg_catalog.bool_or(r.status <> 'waiting'), pg_catalog.sum(r.batches), least(pg_catalog.sum(r.rows), 9223372036854775807),
			(pg_catalog.array_agg(r.run_id ORDER BY r.rank, r.finished_at DESC, r.run_id))[1]
		INTO ended, begun, batches, rows, decisive FROM run r;
	job := asked.job;
	IF NOT ended THEN
		status := CASE WHEN begun THEN 'running' ELSE 'waiting' END;
		RETURN;
	END IF;
	asked := sweep._run_outcome(caller, decisive);
	status := asked.status;
	stop_reason := asked.stop_reason;
	error := asked.error;
	reason := asked.detail ->> 'reason';
END
$$;
COMMENT ON FUNCTION sweep._wait_outcome(oid, bigint) IS 'the outcome of a run (if it has divided its job, of all shares), and the run that decides it; an ended run no longer has a process';
--
-- Hooks: runs of other jobs that a run queues when it starts, succeeds or fails, in the commit that records this.
--
-- A run that is tried again has not failed yet: its last attempt decides. A divided job has ended when all shares of
-- a dispatch have ended. Two shares that end at once would each see the other in progress, so a lock (SWEEP_LOCK_ENDING)
-- that is held until the commit lets them end one after the other; see batch.c. The scheduler, which
-- waits for no session, leaves the end of a share to its next tick while another session has that lock.
--
CREATE FUNCTION sweep._try_lock_ending(job text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_try_ending';
COMMENT ON FUNCTION sweep._try_lock_ending(text) IS 'keeps the other shares of a divided job from ending until the transaction ends; false when a share is just ending';

CREATE FUNCTION sweep._may_end(run_id bigint) RETURNS boolean
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce((SELECT sweep._try_lock_ending(j.name) FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _may_end.run_id AND j.buckets IS NOT NULL AND (j.on_success IS NOT NULL OR j.on_failure IS NOT NULL OR sweep._has_ranges(j.name))), true)
$$;
COMMENT ON FUNCTION sweep._may_end(bigint) IS 'whether a run may be ended in this transaction; false when another share of its job is just ending';

-- ------------------------------------------------------------------ args of the queued run
CREATE FUNCTION sweep._hook_of(status text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN status = 'succeeded' THEN 'on_success' WHEN status IN ('failed', 'lost') THEN 'on_failure' ELSE 'on_start' END
$$;
COMMENT ON FUNCTION sweep._hook_of(text) IS 'the hook that queues runs when the run that it belongs to has this status';

CREATE FUNCTION sweep._error_message(error text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- No regular expression: it fails while a request to cancel is pending, and the outcome would not be recorded.
	SELECT pg_catalog.split_part(pg_catalog.split_part(pg_catalog.split_part(error, E'\nDETAIL: ', 1), E'\nHINT: ', 1), E'\nCONTEXT: ', 1)
$$;
COMMENT ON FUNCTION sweep._error_message(text) IS 'the error of a run without its detail, hint and context';

CREATE FUNCTION sweep._parent_args(job text, run_id bigint, status text, sqlstate text, error text) RETURNS jsonb
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.jsonb_build_object('parent', pg_catalog.jsonb_build_object('job', job, 'run_id', run_id, 'status', status,
		'error', CASE WHEN error IS NOT NULL THEN pg_catalog.jsonb_build_object('sqlstate', sqlstate, 'message', sweep._error_message(error)) END))
$$;
COMMENT ON FUNCTION sweep._parent_args(text, bigint, text, text, text) IS 'args of the runs that a hook queues: what caused them';

-- ------------------------------------------------------------------ queueing
CREATE FUNCTION sweep._ends_chain(hook_depth int) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT hook_depth >= 16
$$;
COMMENT ON FUNCTION sweep._ends_chain(int) IS 'whether a run after so many hooks queues no further run, because a circle of hooks would never end';

CREATE FUNCTION sweep._queue_hooks(run_id bigint, hook text, parent_args jsonb) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	named pg_catalog.record;
	child pg_catalog.record;
	reason pg_catalog.text;
	-- Arrays, because an object would be copied for each name, and the scheduler may call this.
	names pg_catalog.text[] := '{}';
	reasons pg_catalog.text[] := '{}';
	queued boolean := false;
BEGIN
	SELECT l.job, l.run_as, l.status, l.hook_depth, (SELECT s.hook_roles FROM sweep.job_state s WHERE s.job = l.job) AS roles,
			CASE hook WHEN 'on_start' THEN j.on_start WHEN 'on_success' THEN j.on_success ELSE j.on_failure END AS hooks INTO r
		FROM sweep.run_live l JOIN sweep.job_definition j ON j.name = l.job AND j.run_as = l.run_as WHERE l.run_id = _queue_hooks.run_id;
	FOR named IN SELECT h.key AS name, h.value::interval AS delay FROM pg_catalog.jsonb_each_text(r.hooks) AS h ORDER BY h.key LOOP
		SELECT j.name, j.run_as, s.paused_at IS NOT NULL AS paused, sweep._is_home(s.system_identifier, s.database) AS at_home,
				-- The shares were queued before the run began: sweep._divided_children().
				hook = 'on_start' AND r.status = 'running' AND j.buckets IS NOT NULL AND j.run_as = r.run_as AND NOT sweep._has_ranges(j.name) AS divided INTO child
			FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = named.name;
		reason := CASE
			WHEN child.name IS NULL THEN 'it does not exist'
			WHEN child.paused THEN 'it is paused'
			WHEN NOT sweep._has_workers() THEN 'pg_sweep is not loaded at server start'
			WHEN NOT child.at_home THEN 'the database is a copy: its jobs are paused'
			-- Jobs that the role of the parent may not start are left out.
			WHEN NOT sweep._may_act_on(sweep._role_oid(r.run_as), child.run_as, true) THEN 'the role of its parent may not start it'
			-- A job that another role creates under a name that was given up must not be started in place of the old job.
			WHEN child.run_as IS DISTINCT FROM r.roles ->> child.name AND sweep._may_act_on(sweep._role_oid(child.run_as), r.run_as, true) IS NOT TRUE
				THEN pg_catalog.format('it is now of role "%s": sweep.alter_job can name it again', child.run_as)
			WHEN sweep._ends_chain(r.hook_depth) THEN 'the chain of hooks that led to this run is too long' END;
		IF reason IS NOT NULL THEN
			-- If a run succeeds and leaves work, but the job that would continue it is not started, the run has to report this.
			RAISE NOTICE 'job "%" in % of job "%" is not started: %', named.name, hook, r.job, reason;
			names := names || named.name;
			reasons := reasons || reason;
		ELSIF NOT child.divided THEN
			-- A waiting run of this hook is enough. The lock keeps it from beginning before this commit, so that it sees the work.
			PERFORM FROM sweep.run_live w WHERE w.job = child.name AND w.trigger = 'parent' AND w.run_as = child.run_as
				AND w.status = 'waiting' AND w.shares_left IS NULL
				AND w.args #>> '{parent,job}' = r.job AND sweep._hook_of(w.args #>> '{parent,status}') = hook LIMIT 1 FOR SHARE SKIP LOCKED;
			IF NOT FOUND THEN
				INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at, parent_run_id, hook_depth)
					VALUES (child.name, child.run_as, parent_args, 'parent', pg_catalog.clock_timestamp() + named.delay,
						(parent_args #>> '{parent,run_id}')::bigint, r.hook_depth + 1);
				queued := true;
			END IF;
		END IF;
	END LOOP;
	PERFORM sweep._wake() WHERE queued;
	RETURN CASE WHEN names <> '{}' THEN pg_catalog.jsonb_build_object('not_started', pg_catalog.jsonb_object(names, reasons)) END;
END
$$;
COMMENT ON FUNCTION sweep._queue_hooks(bigint, text, jsonb) IS 'queues the runs that a hook of the job of a run names; returns detail for it when some are not started';

CREATE FUNCTION sweep._note_not_started(run_id bigint, found jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	UPDATE sweep.run_live AS r SET detail = coalesce(r.detail, '{}') || pg_catalog.jsonb_build_object('not_started',
			CASE WHEN pg_catalog.jsonb_typeof(r.detail -> 'not_started') = 'object' THEN r.detail -> 'not_started' ELSE '{}' END || (found -> 'not_started'))
		WHERE r.run_id = _note_not_started.run_id AND found IS NOT NULL
$$;
COMMENT ON FUNCTION sweep._note_not_started(bigint, jsonb) IS 'adds to the detail of a run that has ended which jobs of its hooks are not started';

CREATE FUNCTION sweep._start_hooks(run_id bigint) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	not_started pg_catalog.jsonb;
BEGIN
	-- A run that is still waiting, because another session has locked it, queues nothing.
	SELECT l.job, l.status INTO r FROM sweep.run_live l WHERE l.run_id = _start_hooks.run_id AND l.status <> 'waiting';
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	not_started := sweep._queue_hooks(run_id, 'on_start', sweep._parent_args(r.job, run_id, r.status, NULL, NULL));
	IF r.status <> 'running' THEN
		PERFORM sweep._note_not_started(run_id, not_started);
	END IF;
	RETURN not_started;
END
$$;
COMMENT ON FUNCTION sweep._start_hooks(bigint) IS 'queues the on_start of a run when it starts, or when its moment has come and it does not get its lock; returns detail for it';

-- ------------------------------------------------------------------ ends
-- A dispatch is all runs of the job that are linked by parent_run_id: shares, the shares that follow them, and retries.
-- Their parent is a run of the job itself, or of another job that has divided it.
CREATE FUNCTION sweep._dispatch_outcome(run_id bigint, OUT ended boolean, OUT first bigint, OUT decisive bigint, OUT status text)
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
	asked pg_catalog.record;
	parent bigint;
	above bigint;
	shares bigint[];
	added bigint[];
BEGIN
	SELECT r.job, r.run_as, r.parent_run_id, r.args -> 'parent' AS cause INTO asked FROM sweep.run_live r WHERE r.run_id = _dispatch_outcome.run_id;
	first := run_id;
	parent := asked.parent_run_id;
	LOOP
		SELECT e.parent_run_id INTO above FROM (SELECT r.parent_run_id FROM sweep.run_live r WHERE r.run_id = parent AND r.job = asked.job AND r.run_as = asked.run_as
			UNION ALL SELECT h.parent_run_id FROM sweep.run_history h WHERE h.run_id = parent AND h.job = asked.job AND h.run_as = asked.run_as) AS e;
		EXIT WHEN NOT FOUND;
		first := parent;
		parent := above;
	END LOOP;
	-- Another hook of the parent may have queued a run of this job as well.
	shares := ARRAY[first] || ARRAY(SELECT r.run_id FROM sweep.run_live r WHERE r.parent_run_id = parent AND r.job = asked.job AND r.run_as = asked.run_as
			AND r.run_id <> first AND r.args -> 'parent' IS NOT DISTINCT FROM asked.cause
		UNION ALL SELECT h.run_id FROM sweep.run_history h WHERE h.parent_run_id = parent AND h.job = asked.job AND h.run_as = asked.run_as
			AND h.run_id <> first AND h.args -> 'parent' IS NOT DISTINCT FROM asked.cause);
	added := shares;
	WHILE pg_catalog.cardinality(added) > 0 LOOP
		added := ARRAY(SELECT r.run_id FROM sweep.run_live r WHERE r.parent_run_id = ANY (added) AND r.job = asked.job AND r.run_as = asked.run_as
			UNION ALL SELECT h.run_id FROM sweep.run_history h WHERE h.parent_run_id = ANY (added) AND h.job = asked.job AND h.run_as = asked.run_as);
		shares := shares || added;
	END LOOP;
	first := (SELECT pg_catalog.min(s.id) FROM pg_catalog.unnest(shares) AS s (id));
	WITH share AS (SELECT r.run_id, r.status, r.finished_at, r.parent_run_id, r.trigger FROM sweep.run_live r WHERE r.run_id = ANY (shares)
			UNION ALL SELECT h.run_id, h.status, h.finished_at, h.parent_run_id, h.trigger FROM sweep.run_history h WHERE h.run_id = ANY (shares)),
		-- A dispatch with a cancelled share has neither succeeded nor failed. A run that was tried again does not count.
		counted AS (SELECT s.*, pg_catalog.array_position('{cancelled,failed,lost,succeeded}'::pg_catalog.text[], s.status::pg_catalog.text) AS rank FROM share s
			WHERE s.status <> 'skipped' AND NOT EXISTS (SELECT FROM share t WHERE t.parent_run_id = s.run_id AND t.trigger = 'retry'))
	SELECT (SELECT pg_catalog.bool_and(s.finished_at IS NOT NULL) FROM share s),
			(pg_catalog.array_agg(c.run_id ORDER BY c.rank, c.run_id))[1], (pg_catalog.array_agg(c.status::pg_catalog.text ORDER BY c.rank, c.run_id))[1]
		INTO ended, decisive, status FROM counted c;
END
$$;
COMMENT ON FUNCTION sweep._dispatch_outcome(bigint) IS 'whether all shares of the dispatch of a run of a divided job have ended, the first of them, and the share that decides the outcome';

CREATE FUNCTION sweep._end_hooks(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	dispatch pg_catalog.record;
	-- The run that the hook reports, and the run whose error it reports.
	told bigint := run_id;
	decisive bigint := run_id;
	status pg_catalog.text;
	failure pg_catalog.record;
BEGIN
	-- A queued retry shows that the run is tried again; max_attempts may have changed since the retry was queued.
	SELECT l.job, l.status, EXISTS (SELECT FROM sweep.run_live t WHERE t.parent_run_id = l.run_id AND t.trigger = 'retry') AS retried, j.buckets IS NOT NULL OR l.shares_left IS NOT NULL AS divided INTO r
		FROM sweep.run_live l JOIN sweep.job_definition j ON j.name = l.job AND j.run_as = l.run_as
		WHERE l.run_id = _end_hooks.run_id AND (j.on_success IS NOT NULL OR j.on_failure IS NOT NULL);
	IF NOT FOUND THEN
		RETURN;
	END IF;
	status := r.status;
	IF r.divided THEN
		SELECT * INTO dispatch FROM sweep._dispatch_outcome(run_id);
		IF NOT dispatch.ended THEN
			RETURN;
		END IF;
		told := dispatch.first;
		decisive := dispatch.decisive;
		status := dispatch.status;
	ELSIF r.retried THEN
		RETURN;
	END IF;
	IF status IN ('succeeded', 'failed', 'lost') THEN
		SELECT e.sqlstate, e.error INTO failure FROM (SELECT l.sqlstate, l.error FROM sweep.run_live l WHERE l.run_id = decisive
			UNION ALL SELECT h.sqlstate, h.error FROM sweep.run_history h WHERE h.run_id = decisive) AS e;
		PERFORM sweep._note_not_started(run_id, sweep._queue_hooks(run_id, sweep._hook_of(status),
			sweep._parent_args(r.job, told, status, failure.sqlstate, failure.error)));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._end_hooks(bigint) IS 'queues the on_success or on_failure of a run that has succeeded or finally failed; of a divided job when the last run of the dispatch ends';

CREATE FUNCTION sweep._follow_end(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._retry(run_id);
	PERFORM sweep._end_hooks(run_id), sweep._alert_failed(run_id);
END
$$;
COMMENT ON FUNCTION sweep._follow_end(bigint) IS 'queues another attempt, or queues hooks and sends an alert, in the transaction that records the end of a run';
--
-- The buckets of divided jobs: which run works on which bucket.
--
-- A run of a divided job works on one bucket, which it claims before its first batch and gives back at its end. If its process dies, the
-- bucket is free again after the bucket_recovery of its job. The run_id in the row is the fence. Before each commit of a batch the run
-- locks the row of its bucket, FOR SHARE, which it can do only while the bucket is still its own: a run that has lost its bucket cannot
-- commit, and recovery skips a bucket whose run is just committing.
--
-- Dispatching: a run that was not begun as a share (shares_left IS NULL) maintains the buckets, queues as many shares as there are free
-- buckets and free workers, and goes on as a share itself. Shares without a worker follow later: shares_left says how many shares follow a
-- share. Each share prefers a bucket of its own (run_live.bucket of a waiting run). Taking the bucket that is free for longest would not be
-- enough, because another share may have claimed it and given it back before the row lock is granted. A share that reached a limit is
-- followed by a share that continues with its bucket.
--
CREATE TABLE sweep.bucket (
	job    text,
	bucket int,
	state  text NOT NULL DEFAULT 'available',
	run_id bigint,
	pid    int,
	since  timestamptz NOT NULL,
	range  jsonb,
	cursor jsonb,
	PRIMARY KEY (job, bucket),
	CONSTRAINT bucket_state_check CHECK (state IN ('available', 'occupied') OR range IS NOT NULL AND state IN ('done', 'failed')),
	CONSTRAINT bucket_holder_check CHECK ((state = 'occupied') = (run_id IS NOT NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE sweep.bucket IS 'buckets of divided jobs with bucket_store table; made when the job runs, see sweep.buckets';
COMMENT ON COLUMN sweep.bucket.job IS 'name of the job';
COMMENT ON COLUMN sweep.bucket.bucket IS 'number of the bucket, from 0';
COMMENT ON COLUMN sweep.bucket.state IS 'available or occupied; of a range also done or failed';
COMMENT ON COLUMN sweep.bucket.run_id IS 'run that holds it';
COMMENT ON COLUMN sweep.bucket.pid IS 'process of that run';
COMMENT ON COLUMN sweep.bucket.since IS 'since when it is in that state';
COMMENT ON COLUMN sweep.bucket.range IS 'of a job that works on ranges of a key: {"by": columns, "after": key, "upto": key}, or {"final": true}; NULL: of another divided job';
COMMENT ON COLUMN sweep.bucket.cursor IS 'where the next share goes on in the range';
-- The ranges of a table that are done are dumped, because a job may process a table only once.
SELECT pg_catalog.pg_extension_config_dump('sweep.bucket', 'WHERE range IS NOT NULL');

-- ------------------------------------------------------------------ the store
CREATE FUNCTION sweep._maintain_buckets(job text, buckets int, recovery interval, at timestamptz,
	OUT available int, OUT occupied int, OUT stale int, OUT missing int, OUT claimable int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._has_ranges(job) THEN
		SELECT r.* INTO available, occupied, stale, missing, claimable FROM sweep._maintain_ranges(job, recovery, at) AS r;
		RETURN;
	END IF;
	-- A run that has locked one of these rows is claiming it, giving it back or committing, so the row is skipped.
	WITH old AS (SELECT b.bucket FROM sweep.bucket b WHERE b.job = _maintain_buckets.job AND b.state = 'occupied'
			AND b.since <= at - recovery FOR UPDATE SKIP LOCKED)
	UPDATE sweep.bucket AS b SET state = 'available', run_id = NULL, pid = NULL, since = at
		FROM old WHERE b.job = _maintain_buckets.job AND b.bucket = old.bucket;
	GET DIAGNOSTICS stale = ROW_COUNT;
	SELECT pg_catalog.count(*) FILTER (WHERE b.state = 'available'), pg_catalog.count(*) FILTER (WHERE b.state = 'occupied') INTO available, occupied
		FROM sweep.bucket b WHERE b.job = _maintain_buckets.job;
	WITH surplus AS (SELECT b.bucket FROM sweep.bucket b WHERE b.job = _maintain_buckets.job AND b.state = 'available'
			AND b.bucket >= buckets FOR UPDATE SKIP LOCKED)
	DELETE FROM sweep.bucket AS b USING surplus WHERE b.job = _maintain_buckets.job AND b.bucket = surplus.bucket;
	INSERT INTO sweep.bucket (job, bucket, since) SELECT _maintain_buckets.job, n, at FROM pg_catalog.generate_series(0, buckets - 1) AS n
		ON CONFLICT DO NOTHING;
	GET DIAGNOSTICS missing = ROW_COUNT;
	SELECT pg_catalog.count(*) INTO claimable FROM sweep.bucket b
		WHERE b.job = _maintain_buckets.job AND b.state = 'available' AND b.bucket < buckets;
END
$$;
COMMENT ON FUNCTION sweep._maintain_buckets(text, int, interval, timestamptz) IS 'recovers buckets that were occupied for longer than recovery, adds missing ones and drops surplus ones';

CREATE FUNCTION sweep._claim_bucket(job text, buckets int, run_id bigint, pid int, wanted int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	free int;
BEGIN
	IF sweep._has_ranges(job) THEN
		RETURN sweep._claim_range(job, run_id, pid, wanted);
	END IF;
	-- This waits for a locked row, because the share that claims it commits soon, and the other free buckets may be done already.
	SELECT b.bucket INTO free FROM sweep.bucket b
		WHERE b.job = _claim_bucket.job AND b.state = 'available' AND b.bucket < buckets
		ORDER BY b.bucket <> wanted, b.since, pg_catalog.random() LIMIT 1 FOR UPDATE;
	UPDATE sweep.bucket AS b SET state = 'occupied', run_id = _claim_bucket.run_id, pid = _claim_bucket.pid, since = pg_catalog.clock_timestamp()
		WHERE b.job = _claim_bucket.job AND b.bucket = free;
	RETURN free;
END
$$;
COMMENT ON FUNCTION sweep._claim_bucket(text, int, bigint, int, int) IS 'takes the wanted bucket if it is free, otherwise the one that is free for longest (of several a random one); NULL when none is free';

CREATE FUNCTION sweep._release_bucket(job text, buckets int, run_id bigint, bucket int) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._has_ranges(job) THEN
		RETURN sweep._release_range(job, run_id, bucket);
	END IF;
	IF bucket < buckets THEN
		UPDATE sweep.bucket AS b SET state = 'available', run_id = NULL, pid = NULL, since = pg_catalog.clock_timestamp()
			WHERE b.job = _release_bucket.job AND b.bucket = _release_bucket.bucket AND b.run_id = _release_bucket.run_id;
	ELSE
		DELETE FROM sweep.bucket AS b
			WHERE b.job = _release_bucket.job AND b.bucket = _release_bucket.bucket AND b.run_id = _release_bucket.run_id;
	END IF;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION sweep._release_bucket(text, int, bigint, int) IS 'gives a bucket back, or drops it when its number is beyond buckets; false when the run no longer has it';

-- ------------------------------------------------------------------ shares
CREATE FUNCTION sweep._divided_children(run_id bigint, role oid) RETURNS TABLE (name text, bucket_store text, bucket_recovery interval,
	bucket_key text, buckets_function text, args jsonb, delay text)
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- Only children of the same role: the parent executes their buckets_function. Other jobs are divided by their own first run.
	SELECT child.name, child.bucket_store, child.bucket_recovery, child.bucket_key, child.buckets_function, child.args, c.value
		FROM sweep.run_live r JOIN sweep.job_definition parent ON parent.name = r.job
			CROSS JOIN LATERAL pg_catalog.jsonb_each_text(parent.on_start) AS c
			JOIN sweep.job_definition child ON child.name = c.key JOIN sweep.job_state s ON s.job = child.name
		WHERE r.run_id = _divided_children.run_id AND NOT sweep._ends_chain(r.hook_depth) AND child.buckets IS NOT NULL
			AND sweep._role_oid(parent.run_as) = role AND child.run_as = parent.run_as AND child.name <> parent.name
			AND NOT sweep._has_ranges(child.name) AND s.paused_at IS NULL AND sweep._has_workers()
		ORDER BY child.name
$$;
COMMENT ON FUNCTION sweep._divided_children(bigint, oid) IS 'the divided jobs that a run of their parent dispatches';

CREATE FUNCTION sweep._queue_shares(run_id bigint, job text, delay interval, claimable int, workers int, buckets int,
	OUT shares_left int, OUT wanted int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	dispatcher sweep.run_live;
	divided sweep.job_definition;
	own int;
	shares int;
	chains int;
	first int;
	preferred int[];
BEGIN
	shares_left := 0;
	SELECT * INTO dispatcher FROM sweep.run_live r WHERE r.run_id = _queue_shares.run_id;
	SELECT j.* INTO divided FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = _queue_shares.job
		AND j.run_as = dispatcher.run_as AND j.buckets IS NOT NULL AND s.paused_at IS NULL AND sweep._has_workers();
	IF NOT FOUND THEN
		RETURN;
	END IF;
	own := (dispatcher.job = job)::int;
	shares := claimable - (SELECT pg_catalog.count(*) FROM sweep.run_live w
		WHERE w.job = _queue_shares.job AND w.run_as = dispatcher.run_as AND w.status = 'waiting' AND w.shares_left IS NOT NULL AND w.due_at <= pg_catalog.clock_timestamp() + delay
			AND NOT EXISTS (SELECT FROM sweep.bucket b WHERE b.job = w.job AND b.run_id = w.run_id));
	-- The worker of the dispatcher counts, because the dispatcher becomes a share itself, or ends soon.
	chains := greatest(least(shares, workers + 1), own);
	IF chains = 0 THEN
		RETURN;
	END IF;
	-- Each chain of shares has consecutive numbers of its own, from a random number on. The free numbers in Redis are not known here.
	first := pg_catalog.floor(pg_catalog.random() * buckets);
	IF sweep._has_ranges(job) THEN
		-- As long as a range is free, a share is followed by one more.
		shares := greatest(least(chains, sweep._missing_shares(job, run_id)), own);
		chains := shares;
		first := 0;
	END IF;
	preferred := ARRAY(SELECT n FROM pg_catalog.generate_series(0, buckets - 1) AS n
		WHERE divided.bucket_store = 'redis'
			OR EXISTS (SELECT FROM sweep.bucket b WHERE b.job = _queue_shares.job AND b.bucket = n AND b.state = 'available')
				AND NOT EXISTS (SELECT FROM sweep.run_live w WHERE w.job = _queue_shares.job AND w.run_as = dispatcher.run_as AND w.status = 'waiting' AND w.bucket = n)
		ORDER BY (n - first + buckets) % buckets);
	shares := greatest(shares - chains, 0);
	shares_left := shares / chains + (0 < shares % chains)::int;
	wanted := preferred[1];
	INSERT INTO sweep.run_live (job, run_as, args, trigger, parent_run_id, hook_depth, bucket, shares_left, due_at)
		SELECT _queue_shares.job, dispatcher.run_as,
			CASE own WHEN 1 THEN dispatcher.args ELSE sweep._parent_args(dispatcher.job, run_id, 'running', NULL, NULL) END, 'parent', run_id, dispatcher.hook_depth + 1 - own,
			preferred[1 + n + n * (shares / chains) + least(n, shares % chains)],
			shares / chains + (n < shares % chains)::int, pg_catalog.clock_timestamp() + delay
		FROM pg_catalog.generate_series(own, chains - 1) AS n;
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._queue_shares(bigint, text, interval, int, int, int) IS 'queues shares up to the free buckets and workers; returns how many shares follow that of the dispatcher, and the bucket that it prefers';

CREATE FUNCTION sweep._follow_share(run_id bigint, divides boolean, stop_reason text, bucket int, buckets int, delay interval) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	share pg_catalog.record;
	bucket_store pg_catalog.text;
	goes_on boolean;
	preferred int := bucket;
	follower bigint;
BEGIN
	SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.hook_depth, r.batches, greatest(r.rows, r.rescued, r.quarantined) AS handled INTO share
		FROM sweep.run_live r WHERE r.run_id = _follow_share.run_id;
	IF NOT FOUND THEN
		SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.hook_depth, r.batches, greatest(r.rows, r.rescued, r.quarantined) AS handled INTO share
			FROM sweep.run_history r WHERE r.run_id = _follow_share.run_id;
	END IF;
	-- A share that stops at a limit is followed by one more share, but only if it has handled rows; otherwise the chain would not end.
	goes_on := stop_reason IN ('max_batches', 'stop_after') AND share.handled > 0
		OR stop_reason = 'rescaled' AND bucket < buckets AND share.batches > 0;
	SELECT j.bucket_store INTO bucket_store FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name
		WHERE j.name = share.job AND j.run_as = share.run_as AND j.buckets IS NOT NULL AND s.paused_at IS NULL;
	IF FOUND AND sweep._has_ranges(share.job) THEN
		preferred := CASE WHEN sweep._is_cancelled(run_id) THEN NULL WHEN goes_on THEN bucket ELSE sweep._next_range(share.job, bucket) END;
		goes_on := preferred IS NOT NULL;
	END IF;
	IF bucket_store IS NOT NULL AND stop_reason <> 'cancelled' AND buckets > 0 AND (goes_on OR share.shares_left > 0) AND sweep._has_workers() THEN
		-- The next number, in the table the next one that is free.
		IF NOT goes_on THEN
			preferred := (bucket + 1) % buckets;
			IF bucket_store = 'table' THEN
				preferred := (SELECT b.bucket FROM sweep.bucket b WHERE b.job = share.job AND b.state = 'available' AND b.bucket < buckets
					ORDER BY (b.bucket - preferred + buckets) % buckets LIMIT 1);
			END IF;
		END IF;
		INSERT INTO sweep.run_live (job, run_as, args, trigger, parent_run_id, hook_depth, bucket, shares_left, due_at)
			VALUES (share.job, share.run_as, share.args, 'parent', CASE WHEN divides THEN run_id ELSE share.parent_run_id END, share.hook_depth, preferred, share.shares_left - (NOT goes_on)::int, pg_catalog.clock_timestamp() + delay)
			RETURNING run_live.run_id INTO follower;
	END IF;
	RETURN follower;
END
$$;
COMMENT ON FUNCTION sweep._follow_share(bigint, boolean, text, int, int, interval) IS 'queues the next share after a share that has ended, if there is to be one, and returns it; divides: the ended share has divided the job itself';

-- ------------------------------------------------------------------ the view
CREATE VIEW sweep.buckets WITH (security_barrier) AS
	SELECT * FROM (SELECT b.job, b.bucket, b.state, b.run_id AS holder, b.pid, b.since
		FROM sweep.bucket b JOIN sweep.job_definition j ON j.name = b.job AND j.bucket_store = 'table' AND j.buckets IS NOT NULL
		WHERE sweep._may_see(j.run_as)
	UNION ALL
	SELECT r.job, r.bucket, 'occupied', r.run_id, r.pid, r.started_at
		FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as AND j.bucket_store = 'redis'
		WHERE r.status = 'running' AND r.bucket IS NOT NULL AND sweep._may_see(j.run_as)) AS b
	OFFSET 0;
COMMENT ON VIEW sweep.buckets IS 'buckets of divided jobs; if they are in Redis, only those that runs of this database hold';
COMMENT ON COLUMN sweep.buckets.job IS 'name of the job';
COMMENT ON COLUMN sweep.buckets.bucket IS 'number of the bucket, from 0';
COMMENT ON COLUMN sweep.buckets.state IS 'available or occupied; of a job with parallel also done or failed';
COMMENT ON COLUMN sweep.buckets.holder IS 'run that holds it';
COMMENT ON COLUMN sweep.buckets.pid IS 'process of that run';
COMMENT ON COLUMN sweep.buckets.since IS 'since when it is in that state';
--
-- Ranges: the buckets of a job that works on ranges of the key of its table (parallel => n of the makers).
--
-- Each bucket has a range, and is done when no rows of the range are left. If a share fails, its bucket waits for the run that tries
-- again; the others go on. Each share keeps the cursor of its range, and the next run with this range goes on there. The last bucket
-- has no range and becomes free when all others are done: its share checks the whole table once more.
--
-- The first run of a dispatch divides the table, unless ranges of the dispatch before are left. At most as many shares as the job has
-- workers hold a bucket, and each is followed by another one as long as a bucket is free. Shares end one after the other, as in jobs
-- with hooks: of two that ended at the same time, neither would see that the last bucket is free.
--
CREATE FUNCTION sweep._has_ranges(job text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = _has_ranges.job AND j.buckets_function = 'sweep.range_count');
END
$$;
COMMENT ON FUNCTION sweep._has_ranges(text) IS 'whether the buckets of a job are ranges of the key of its table';

CREATE FUNCTION sweep._range_workers(job text) RETURNS int
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce((SELECT (j.args ->> 'parallel')::int FROM sweep.job_definition j WHERE j.name = _range_workers.job), 1);
END
$$;
COMMENT ON FUNCTION sweep._range_workers(text) IS 'how many shares of such a job hold a bucket at a time';

CREATE FUNCTION sweep._free_ranges(job text) RETURNS SETOF int
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT b.bucket FROM sweep.bucket b WHERE b.job = _free_ranges.job AND b.state = 'available'
		AND (NOT b.range ? 'final' OR NOT EXISTS (SELECT FROM sweep.bucket o WHERE o.job = b.job AND o.bucket <> b.bucket AND o.state <> 'done')) ORDER BY b.bucket;
END
$$;
COMMENT ON FUNCTION sweep._free_ranges(text) IS 'the buckets that a share may take';

CREATE FUNCTION sweep._maintain_ranges(job text, recovery interval, at timestamptz,
	OUT available int, OUT occupied int, OUT stale int, OUT missing int, OUT claimable int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	missing := 0;
	-- The bucket of a share whose process is gone is free at once, because the fence keeps that share from committing.
	SELECT pg_catalog.count(*) FILTER (WHERE sweep._release_range(job, old.run_id, old.bucket)) INTO stale
		FROM (SELECT b.run_id, b.bucket FROM sweep.bucket b WHERE b.job = _maintain_ranges.job AND b.state = 'occupied'
			AND (b.since <= at - recovery OR NOT sweep._run_is_alive(b.run_id)) FOR UPDATE SKIP LOCKED) AS old;
	SELECT pg_catalog.count(*) FILTER (WHERE b.state = 'available'), pg_catalog.count(*) FILTER (WHERE b.state = 'occupied') INTO available, occupied
		FROM sweep.bucket b WHERE b.job = _maintain_ranges.job;
	SELECT pg_catalog.count(*) INTO claimable FROM sweep._free_ranges(job);
END
$$;
COMMENT ON FUNCTION sweep._maintain_ranges(text, interval, timestamptz) IS 'frees the buckets of shares that are gone, or have held them for longer than recovery';

CREATE FUNCTION sweep._claim_range(job text, run_id bigint, pid int, wanted int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	free int;
BEGIN
	IF wanted >= 0 AND EXISTS (SELECT FROM sweep.run_live r WHERE r.run_id = _claim_range.run_id AND r.trigger = 'retry') THEN
		SELECT b.bucket INTO free FROM sweep.bucket b WHERE b.job = _claim_range.job AND b.bucket = wanted AND b.state IN ('available', 'failed') FOR UPDATE SKIP LOCKED;
	ELSIF (SELECT pg_catalog.count(*) FROM sweep.bucket b WHERE b.job = _claim_range.job AND b.state = 'occupied') < sweep._range_workers(job) THEN
		SELECT b.bucket INTO free FROM sweep.bucket b WHERE b.job = _claim_range.job AND b.state = 'available' AND b.bucket IN (SELECT sweep._free_ranges(_claim_range.job))
			ORDER BY b.bucket <> wanted, b.bucket LIMIT 1 FOR UPDATE SKIP LOCKED;
	END IF;
	UPDATE sweep.bucket AS b SET state = 'occupied', run_id = _claim_range.run_id, pid = _claim_range.pid, since = pg_catalog.clock_timestamp()
		WHERE b.job = _claim_range.job AND b.bucket = free;
	RETURN free;
END
$$;
COMMENT ON FUNCTION sweep._claim_range(text, bigint, int, int) IS 'takes the wanted bucket if it is free, otherwise the first free one; a run that tries again takes the bucket of the failed run. NULL when there is none';

-- The row of the run says why it has ended, and has the cursor of its last batch.
CREATE FUNCTION sweep._release_range(job text, run_id bigint, bucket int) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ended pg_catalog.record;
BEGIN
	SELECT r.stop_reason, r.cursor INTO ended FROM sweep.run_live r WHERE r.run_id = _release_range.run_id;
	UPDATE sweep.bucket AS b SET run_id = NULL, pid = NULL, since = pg_catalog.clock_timestamp(), cursor = coalesce(ended.cursor, b.cursor),
			state = CASE WHEN ended.stop_reason = 'drained' THEN 'done' WHEN ended.stop_reason IN ('error', 'timeout', 'no_progress', 'lost') THEN 'failed' ELSE 'available' END
		WHERE b.job = _release_range.job AND b.bucket = _release_range.bucket AND b.run_id = _release_range.run_id;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION sweep._release_range(text, bigint, int) IS 'gives a bucket back as done, as failed, or with the cursor for the next share; false when the run no longer has it';

-- Each waiting share will take one bucket. The next share does not take the range that has just failed.
CREATE FUNCTION sweep._next_range(job text, failed int) RETURNS int
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT f.bucket FROM sweep._free_ranges(job) AS f (bucket) WHERE f.bucket <> failed
		OFFSET (SELECT pg_catalog.count(*) FROM sweep.run_live r WHERE r.job = _next_range.job AND r.status = 'waiting' AND r.shares_left IS NOT NULL AND r.trigger <> 'retry') LIMIT 1);
END
$$;
COMMENT ON FUNCTION sweep._next_range(text, int) IS 'the bucket for the next share; NULL: none is left';

-- A request to cancel one run of a dispatch ends the whole dispatch.
CREATE FUNCTION sweep._is_cancelled(run_id bigint) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	share pg_catalog.record;
BEGIN
	SELECT r.job, coalesce(r.parent_run_id, r.run_id) AS first INTO share FROM sweep._run r WHERE r.run_id = _is_cancelled.run_id;
	RETURN EXISTS (SELECT FROM sweep._run r WHERE r.run_id = share.first AND r.job = share.job AND r.status = 'cancelled')
		OR EXISTS (SELECT FROM sweep._run r WHERE r.parent_run_id = share.first AND r.job = share.job AND r.status = 'cancelled');
END
$$;
COMMENT ON FUNCTION sweep._is_cancelled(bigint) IS 'whether a run of the dispatch of a share was cancelled';

CREATE FUNCTION sweep._missing_shares(job text, run_id bigint) RETURNS int
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN sweep._range_workers(job) - (SELECT pg_catalog.count(*) FROM sweep.run_live r WHERE r.job = _missing_shares.job AND r.run_id <> _missing_shares.run_id
		AND (r.status = 'running' OR r.status = 'waiting' AND r.shares_left IS NOT NULL AND r.trigger <> 'retry'));
END
$$;
COMMENT ON FUNCTION sweep._missing_shares(text, bigint) IS 'how many shares, including that run, may work besides those of other dispatches';

-- A range contains keys of a table, and a direct call of the step may pass any run_id, so the run must belong to the calling role.
CREATE FUNCTION sweep._range_of(run_id bigint, bucket int, role oid, OUT range jsonb, OUT cursor jsonb) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.jsonb_build_object('range', b.range), b.cursor INTO range, cursor FROM sweep.bucket b JOIN sweep.run_live r ON r.run_id = b.run_id AND r.job = b.job
		WHERE b.run_id = _range_of.run_id AND b.bucket = _range_of.bucket AND b.range IS NOT NULL AND sweep._role_oid(r.run_as) = role;
END
$$;
COMMENT ON FUNCTION sweep._range_of(bigint, int, oid) IS 'the range of the bucket that a run of the role holds, as an addition to its args, and where to go on in it';

-- ------------------------------------------------------------------ division These functions accept only runs of the calling role, because
-- a direct call of the public function may pass any run_id.
CREATE FUNCTION sweep._ranges_left(run_id bigint, role oid, OUT job text, OUT ranges int, OUT divides boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	run pg_catalog.record;
	unfinished int;
BEGIN
	SELECT r.job, r.status, r.trigger, r.shares_left, r.bucket INTO run FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _ranges_left.run_id AND sweep._role_oid(r.run_as) = role;
	SELECT run.job, pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE b.state <> 'done') INTO job, ranges, unfinished
		FROM sweep.bucket b WHERE b.job = run.job AND b.range IS NOT NULL;
	-- A share never divides the table; a run that takes up a bucket of an earlier dispatch does not divide it either.
	divides := unfinished = 0 AND run.status = 'waiting' AND run.shares_left IS NULL AND (run.trigger <> 'retry' OR run.bucket IS NULL);
	IF unfinished > 0 AND run.status = 'waiting' AND run.shares_left IS NULL AND run.trigger <> 'retry' THEN
		UPDATE sweep.bucket AS b SET state = 'available' WHERE b.job = run.job AND b.state = 'failed';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._ranges_left(bigint, oid) IS 'the job of a run, how many ranges it has, and whether the run divides its table anew; a run that goes on with the remaining ranges makes failed ones available';

-- Two runs may divide the table at the same time: the division that is committed first counts.
CREATE FUNCTION sweep._keep_ranges(job text, columns text[], keys jsonb, cursor jsonb) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	most constant int := coalesce(pg_catalog.jsonb_array_length(keys), 0);
BEGIN
	DELETE FROM sweep.bucket AS b WHERE b.job = _keep_ranges.job AND (b.range IS NULL OR b.state = 'done');
	BEGIN
		INSERT INTO sweep.bucket (job, bucket, since, range, cursor) SELECT _keep_ranges.job, n, pg_catalog.clock_timestamp(),
				CASE WHEN n > most THEN '{"final": true}' ELSE pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('by', columns, 'after', keys -> (n - 1), 'upto', keys -> n))
					- CASE n WHEN 0 THEN 'after' ELSE '' END END, _keep_ranges.cursor
			FROM pg_catalog.generate_series(0, most + 1) AS n;
	EXCEPTION WHEN unique_violation THEN
		NULL;
	END;
	RETURN (SELECT pg_catalog.count(*) FROM sweep.bucket b WHERE b.job = _keep_ranges.job);
END
$$;
COMMENT ON FUNCTION sweep._keep_ranges(text, text[], jsonb, jsonb) IS 'makes the buckets of the ranges between these keys, which are in order, and the last one; returns their number';
--
-- Items that neither the step nor the rescue function of their job could handle. They are left out until their next
-- try, at growing intervals, so that they do not delay other items.
--
-- The hash is not a generated column: since version 18 no row of a table that is published can be deleted by a key with such a column.
CREATE TABLE sweep.quarantined_item (
	job       text NOT NULL,
	item      jsonb NOT NULL,
	item_hash text NOT NULL,
	sqlstate  text NOT NULL,
	message   text NOT NULL,
	attempts  int NOT NULL DEFAULT 1,
	first_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	last_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	next_try  timestamptz NOT NULL,
	PRIMARY KEY (job, item_hash)
);
COMMENT ON TABLE sweep.quarantined_item IS 'items that failed, with their errors and when they are tried again';
COMMENT ON COLUMN sweep.quarantined_item.job IS 'name of the job';
COMMENT ON COLUMN sweep.quarantined_item.item IS 'the item, as its pick function returned it';
COMMENT ON COLUMN sweep.quarantined_item.item_hash IS 'MD5 of the item: it is of a size that an index takes';
COMMENT ON COLUMN sweep.quarantined_item.sqlstate IS 'code of its last error';
COMMENT ON COLUMN sweep.quarantined_item.message IS 'its last error, with detail, hint and context';
COMMENT ON COLUMN sweep.quarantined_item.attempts IS 'how many runs it has failed in';
COMMENT ON COLUMN sweep.quarantined_item.first_at IS 'when it failed first';
COMMENT ON COLUMN sweep.quarantined_item.last_at IS 'when it failed last';
COMMENT ON COLUMN sweep.quarantined_item.next_try IS 'it is left alone until then';
SELECT pg_catalog.pg_extension_config_dump('sweep.quarantined_item', '');

CREATE FUNCTION sweep._quarantine(job text, role oid, item jsonb, sqlstate text, message text) RETURNS boolean
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A run may still be in progress when its job is dropped and another role creates a job of that name. That role
	-- must not see the items of the run. The role may also be renamed meanwhile.
	INSERT INTO sweep.quarantined_item AS q (job, item, item_hash, sqlstate, message, first_at, last_at, next_try)
		SELECT job, item, pg_catalog.md5(item::pg_catalog.text), sqlstate, message, moment.now, moment.now, moment.now + interval '10 min'
			FROM (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) AS moment
			WHERE EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = _quarantine.job AND sweep._role_oid(j.run_as) = _quarantine.role)
		ON CONFLICT ON CONSTRAINT quarantined_item_pkey DO UPDATE SET sqlstate = excluded.sqlstate, message = excluded.message,
			attempts = q.attempts + 1, last_at = excluded.last_at,
			next_try = excluded.last_at + interval '10 min' * 2 ^ least(q.attempts, 10)
		RETURNING true
$$;
COMMENT ON FUNCTION sweep._quarantine(text, oid, jsonb, text, text) IS
	'puts an item into quarantine: 10 minutes at first, twice as long after each further failure, about 7 days at most; NULL: the job no longer belongs to that role, and nothing was done';

CREATE FUNCTION sweep._release_quarantine(caller oid, name text, item jsonb) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	released bigint;
BEGIN
	PERFORM sweep._lock_job(caller, name, true, true);
	UPDATE sweep.quarantined_item AS q SET next_try = pg_catalog.clock_timestamp()
		WHERE q.job = _release_quarantine.name AND q.next_try > pg_catalog.clock_timestamp()
			AND (_release_quarantine.item IS NULL OR q.item_hash = pg_catalog.md5(_release_quarantine.item::pg_catalog.text));
	GET DIAGNOSTICS released = ROW_COUNT;
	RETURN released;
END
$$;
COMMENT ON FUNCTION sweep._release_quarantine(oid, text, jsonb) IS 'implements sweep.release_quarantine';

CREATE FUNCTION sweep.release_quarantine(name text, item jsonb DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.release_quarantine(text, jsonb) IS
	'has the next run of the job try an item again, or all of them; returns how many were waiting for a later try';
--
-- Queues, by which a batch can hand on follow-up work.
--
-- A send is part of the sender's transaction, so a batch and its messages commit together. Delivery is at least once: a claim is
-- a lease for a time, and messages that are not acknowledged within it are delivered again.
--
-- All messages of all queues are rows of sweep.queue_message. A consumer gets them as the type sweep.message, which stays the
-- same when the storage changes. Users have no rights on the tables: the functions check whether the caller is the owner of the
-- queue or has a grant on it.
--
CREATE TABLE sweep.queue (
	queue_id     int GENERATED BY DEFAULT AS IDENTITY,
	name         text NOT NULL,
	owner        text NOT NULL,
	visibility   interval NOT NULL,
	max_attempts int NOT NULL DEFAULT 25,
	backoff      text NOT NULL DEFAULT 'sidekiq',
	keep_done    interval NOT NULL DEFAULT '0',
	notify       boolean NOT NULL DEFAULT true,
	key_policy   text NOT NULL DEFAULT 'while_queued',
	senders      text[] NOT NULL DEFAULT '{}',
	consumers    text[] NOT NULL DEFAULT '{}',
	CONSTRAINT queue_pkey PRIMARY KEY (queue_id),
	CONSTRAINT queue_name_key UNIQUE (name),
	CONSTRAINT queue_name_check CHECK (name ~ '^[A-Za-z0-9_]{1,48}$'),
	CONSTRAINT queue_visibility_check CHECK (visibility > interval '0'),
	CONSTRAINT queue_max_attempts_check CHECK (max_attempts BETWEEN 1 AND 32767),
	CONSTRAINT queue_keep_done_check CHECK (keep_done >= interval '0'),
	CONSTRAINT queue_key_policy_check CHECK (key_policy IN ('while_queued', 'while_queued_or_running', 'once_more_if_running'))
);
COMMENT ON TABLE sweep.queue IS 'the queues; sweep.create_queue adds one';
COMMENT ON COLUMN sweep.queue.queue_id IS 'never used again after the queue is dropped';
COMMENT ON COLUMN sweep.queue.name IS 'letters, digits and _, at most 48';
COMMENT ON COLUMN sweep.queue.owner IS 'name of the role that created the queue: it, its members and sweep_admin may use it';
COMMENT ON COLUMN sweep.queue.visibility IS 'how long a claim holds a message unless it says otherwise';
COMMENT ON COLUMN sweep.queue.max_attempts IS 'deliveries after which a message that failed is dead';
COMMENT ON COLUMN sweep.queue.backoff IS 'pause before a failed message comes again: sidekiq (grows with the fourth power of the attempts), none, or an interval';
COMMENT ON COLUMN sweep.queue.keep_done IS 'how long acknowledged messages stay in sweep.queue_done; 0: they do not';
COMMENT ON COLUMN sweep.queue.notify IS 'whether new messages send a notification (LISTEN)';
COMMENT ON COLUMN sweep.queue.key_policy IS 'no second message with a key is queued: while_queued (while one waits to be claimed, also again), while_queued_or_running (until it is acknowledged), once_more_if_running (like while_queued, but the second one is not delivered before the first has ended)';
COMMENT ON COLUMN sweep.queue.senders IS 'names of the roles that were granted to send';
COMMENT ON COLUMN sweep.queue.consumers IS 'names of the roles that were granted to consume';

-- The columns of eight bytes come first and those of variable length last; table.h has the same order. There is no foreign key to
-- sweep.queue: it would look up the queue for every message instead of once per call. sweep.drop_queue deletes the messages of a
-- queue. Keys are only compared for equality, which is fastest byte by byte.
CREATE TABLE sweep.queue_message (
	message_id bigint GENERATED BY DEFAULT AS IDENTITY,
	sent_at    timestamptz NOT NULL DEFAULT pg_catalog.now(),
	due_at     timestamptz,
	queue_id   int NOT NULL,
	lane       smallint NOT NULL DEFAULT 0,
	attempts   smallint NOT NULL DEFAULT 0,
	claimed    boolean NOT NULL DEFAULT false,
	key        text COLLATE "C",
	headers    jsonb,
	error      jsonb,
	payload    jsonb NOT NULL,
	CONSTRAINT queue_message_pkey PRIMARY KEY (queue_id, lane, message_id),
	-- Checks rows that are inserted by hand: shared memory has arrays indexed by priority, and no search finds a delayed message that is never due.
	CONSTRAINT queue_message_lane_check CHECK (lane BETWEEN -8 AND 7 OR (lane BETWEEN 92 AND 107 AND due_at IS NOT NULL))
) WITH (
	-- Rows are short-lived, however long the queues are: VACUUM depends on their number rather than on their share of the table.
	autovacuum_vacuum_scale_factor = 0.01,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_insert_scale_factor = 0.05,
	autovacuum_analyze_scale_factor = 0.05
);
COMMENT ON TABLE sweep.queue_message IS 'the messages of all queues, waiting or claimed by a consumer; the claims are in shared memory';
COMMENT ON COLUMN sweep.queue_message.message_id IS 'order within a queue';
COMMENT ON COLUMN sweep.queue_message.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep.queue_message.due_at IS 'not delivered before this time; NULL unless it was sent with a delay, has failed or was redriven';
COMMENT ON COLUMN sweep.queue_message.queue_id IS 'the queue it is in';
COMMENT ON COLUMN sweep.queue_message.lane IS 'its priority; with a due time: its priority + 100';
COMMENT ON COLUMN sweep.queue_message.attempts IS 'how often it was delivered when it last failed';
COMMENT ON COLUMN sweep.queue_message.claimed IS 'its key is free: it was claimed, and has not taken it back';
COMMENT ON COLUMN sweep.queue_message.key IS 'no second message with this key is queued, for as long as the queue''s key_policy says';
COMMENT ON COLUMN sweep.queue_message.headers IS 'values that the sender adds to the payload, such as traceparent';
COMMENT ON COLUMN sweep.queue_message.error IS 'why it failed the last time: an object with a message, and of a handler in the database its sqlstate, detail, hint and context';
COMMENT ON COLUMN sweep.queue_message.payload IS 'the payload that was sent';

-- This index decides whether a key is waiting, so that concurrent senders and rollbacks neither duplicate nor lose a message.
CREATE UNIQUE INDEX queue_message_waiting_key ON sweep.queue_message (queue_id, key)
	WHERE key IS NOT NULL AND NOT claimed;
COMMENT ON INDEX sweep.queue_message_waiting_key IS 'at most one message per key whose key is not free';

CREATE INDEX queue_message_due ON sweep.queue_message (queue_id, due_at)
	WHERE due_at IS NOT NULL;
COMMENT ON INDEX sweep.queue_message_due IS 'delayed messages by their due times';

CREATE TABLE sweep.queue_dead (
	message_id bigint NOT NULL,
	queue_id   int NOT NULL,
	priority   smallint NOT NULL,
	attempts   smallint NOT NULL,
	sent_at    timestamptz NOT NULL,
	died_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	key        text,
	headers    jsonb,
	error      jsonb,
	payload    jsonb NOT NULL,
	CONSTRAINT queue_dead_pkey PRIMARY KEY (queue_id, message_id)
);
COMMENT ON TABLE sweep.queue_dead IS 'messages that failed as often as their queue allows; sweep.redrive returns them';
COMMENT ON COLUMN sweep.queue_dead.message_id IS 'as it was in the queue';
COMMENT ON COLUMN sweep.queue_dead.queue_id IS 'the queue it was in';
COMMENT ON COLUMN sweep.queue_dead.priority IS 'the priority it was sent with';
COMMENT ON COLUMN sweep.queue_dead.attempts IS 'how often it was delivered';
COMMENT ON COLUMN sweep.queue_dead.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep.queue_dead.died_at IS 'when it was given up';
COMMENT ON COLUMN sweep.queue_dead.key IS 'the key it was sent with; it keeps no other message away';
COMMENT ON COLUMN sweep.queue_dead.headers IS 'what the sender said beside the payload';
COMMENT ON COLUMN sweep.queue_dead.error IS 'why it failed the last time: an object with a message, and of a handler in the database its sqlstate, detail, hint and context';
COMMENT ON COLUMN sweep.queue_dead.payload IS 'what the sender said';

CREATE TABLE sweep.queue_done (
	message_id bigint NOT NULL,
	queue_id   int NOT NULL,
	attempts   smallint NOT NULL,
	sent_at    timestamptz NOT NULL,
	done_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	key        text,
	headers    jsonb,
	payload    jsonb NOT NULL,
	CONSTRAINT queue_done_pkey PRIMARY KEY (queue_id, done_at, message_id)
);
COMMENT ON TABLE sweep.queue_done IS 'acknowledged messages of queues with keep_done';
COMMENT ON COLUMN sweep.queue_done.message_id IS 'as it was in the queue';
COMMENT ON COLUMN sweep.queue_done.queue_id IS 'the queue it was in';
COMMENT ON COLUMN sweep.queue_done.attempts IS 'how often it was delivered';
COMMENT ON COLUMN sweep.queue_done.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep.queue_done.done_at IS 'when it was acknowledged; deleted keep_done later, by acknowledgements in the same queue';
COMMENT ON COLUMN sweep.queue_done.key IS 'the key it was sent with, or NULL';
COMMENT ON COLUMN sweep.queue_done.headers IS 'what the sender said beside the payload';
COMMENT ON COLUMN sweep.queue_done.payload IS 'what the sender said';

SELECT pg_catalog.pg_extension_config_dump('sweep.queue', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_queue_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_message', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_message_message_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_dead', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_done', '');

-- Processes cache queues, and shared memory has the places of their messages. Statements on these tables other than the
-- extension's own, such as those of a restore, invalidate both.
CREATE FUNCTION sweep._note_queue_change()
RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_note_change';
COMMENT ON FUNCTION sweep._note_queue_change() IS 'internal: tells every process that sweep.queue has changed';

CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON sweep.queue
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._note_queue_change();

CREATE FUNCTION sweep._note_foreign_statement()
RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_note_foreign';
COMMENT ON FUNCTION sweep._note_foreign_statement() IS 'internal: resets the queues, which are then searched from their start, after a statement that is not the extension''s own';

CREATE TRIGGER note_foreign_statement BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON sweep.queue_message
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._note_foreign_statement();
CREATE TRIGGER note_foreign_statement BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON sweep.queue_dead
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._note_foreign_statement();

-- Fired even if session_replication_role turns off other triggers.
ALTER TABLE sweep.queue ENABLE ALWAYS TRIGGER note_change;
ALTER TABLE sweep.queue_message ENABLE ALWAYS TRIGGER note_foreign_statement;
ALTER TABLE sweep.queue_dead ENABLE ALWAYS TRIGGER note_foreign_statement;

-- Logical replication applies single rows and fires no statement triggers. With ENABLE REPLICA no other session fires these.
CREATE TRIGGER note_applied_row AFTER INSERT OR UPDATE OR DELETE ON sweep.queue
	FOR EACH ROW EXECUTE FUNCTION sweep._note_queue_change();
CREATE TRIGGER note_applied_row AFTER INSERT OR UPDATE OR DELETE ON sweep.queue_message
	FOR EACH ROW EXECUTE FUNCTION sweep._note_foreign_statement();
CREATE TRIGGER note_applied_row AFTER INSERT OR UPDATE OR DELETE ON sweep.queue_dead
	FOR EACH ROW EXECUTE FUNCTION sweep._note_foreign_statement();
ALTER TABLE sweep.queue ENABLE REPLICA TRIGGER note_applied_row;
ALTER TABLE sweep.queue_message ENABLE REPLICA TRIGGER note_applied_row;
ALTER TABLE sweep.queue_dead ENABLE REPLICA TRIGGER note_applied_row;

CREATE TYPE sweep.message AS (
	message_id bigint,
	queue      text,
	payload    jsonb,
	key        text,
	attempts   int,
	headers    jsonb,
	sent_at    timestamptz,
	lease      uuid
);
COMMENT ON TYPE sweep.message IS 'a message as its consumer gets it';
COMMENT ON COLUMN sweep.message.message_id IS 'order within the queue';
COMMENT ON COLUMN sweep.message.queue IS 'name of the queue';
COMMENT ON COLUMN sweep.message.payload IS 'what the sender said';
COMMENT ON COLUMN sweep.message.key IS 'the key it was sent with, or NULL';
COMMENT ON COLUMN sweep.message.attempts IS 'how often it was delivered, this time included';
COMMENT ON COLUMN sweep.message.headers IS 'what the sender said beside the payload, or NULL';
COMMENT ON COLUMN sweep.message.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep.message.lease IS 'argument of sweep.ack, release, fail and extend';
--
-- Queues: creating, granting, purging and dropping them; dead messages.
--

CREATE FUNCTION sweep._sees_queue(caller oid, q sweep.queue)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._acts_for(caller, 'sweep_monitor')
		OR EXISTS (SELECT FROM pg_catalog.unnest(q.owner || q.senders || q.consumers) AS g (role) WHERE sweep._may_act_on(caller, g.role, true))
$$;
COMMENT ON FUNCTION sweep._sees_queue(oid, sweep.queue) IS 'internal: whether the caller may see the queue: its owner, roles with a grant on it, and roles that watch or act on all';

-- Members of the owner's role and of sweep_admin have all rights: 'send', 'consume', 'redrive' and 'own'.
CREATE FUNCTION sweep._may_use_queue(caller oid, q sweep.queue, wanted text)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._may_act_on(caller, q.owner, wanted = 'redrive')
		OR EXISTS (SELECT FROM pg_catalog.unnest(CASE wanted WHEN 'send' THEN q.senders WHEN 'consume' THEN q.consumers END) AS r (role)
			WHERE sweep._acts_for(caller, r.role))
$$;
COMMENT ON FUNCTION sweep._may_use_queue(oid, sweep.queue, text) IS 'internal: whether the caller has that right on the queue';

-- Returns the queue of that name if the caller has the right.
CREATE FUNCTION sweep._find_queue(caller oid, queue text, wanted text)
RETURNS sweep.queue
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found_queue sweep.queue;
	closest     pg_catalog.text;
BEGIN
	SELECT * INTO found_queue FROM sweep.queue q WHERE q.name = _find_queue.queue;
	IF NOT FOUND THEN
		-- the closest name has at least half of its characters right, at its start and end
		SELECT q.name INTO closest
			FROM sweep.queue q,
				LATERAL (SELECT pg_catalog.count(*) FILTER (WHERE pg_catalog.left(q.name, i) = pg_catalog.left(_find_queue.queue, i))
						+ pg_catalog.count(*) FILTER (WHERE pg_catalog.right(q.name, i) = pg_catalog.right(_find_queue.queue, i)) AS right_letters
					FROM pg_catalog.generate_series(1, least(pg_catalog.length(q.name), pg_catalog.length(_find_queue.queue))) AS i) AS alike
			WHERE right_letters * 2 >= greatest(pg_catalog.length(q.name), pg_catalog.length(_find_queue.queue)) AND sweep._sees_queue(caller, q)
			ORDER BY right_letters DESC, q.name
			LIMIT 1;
		RAISE EXCEPTION 'queue "%" does not exist', _find_queue.queue
			USING ERRCODE = 'undefined_object',
				HINT = coalesce('Perhaps you meant "' || closest || '".', 'sweep.create_queue creates a queue.');
	END IF;
	IF NOT sweep._may_use_queue(caller, found_queue, wanted) THEN
		RAISE EXCEPTION 'permission denied for queue "%"', found_queue.name
			USING ERRCODE = 'insufficient_privilege',
				HINT = CASE WHEN wanted IN ('send', 'consume')
					THEN pg_catalog.format('Members of %s and sweep_admin may use it, and grant it with sweep.grant_queue.', pg_catalog.quote_ident(found_queue.owner))
					ELSE pg_catalog.format('Members of %s and sweep_admin may do this.', pg_catalog.quote_ident(found_queue.owner)) END;
	END IF;
	RETURN found_queue;
END
$$;
COMMENT ON FUNCTION sweep._find_queue(oid, text, text) IS 'internal: the queue of this name, or an error when there is none or the caller lacks the right';

-- The extension's own statements are executed between these two calls. The first one waits for a transaction that drops the
-- queue. With "alone" it waits for all transactions that work with the queue, and keeps others out until this transaction ends.
-- The second one reports the changes: rows added in lanes without and with a due time, dead messages, and the first due time.
CREATE FUNCTION sweep._begin_queue_statement(queue_id int, alone boolean)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_begin';
COMMENT ON FUNCTION sweep._begin_queue_statement(int, boolean) IS 'internal: the following statements on messages are those of the extension';

CREATE FUNCTION sweep._end_queue_statement(queue_id int, ready bigint, delayed bigint, dead bigint, first_due timestamptz, emptied boolean, dropped boolean)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_end';
COMMENT ON FUNCTION sweep._end_queue_statement(int, bigint, bigint, bigint, timestamptz, boolean, boolean) IS 'internal: what the statements since sweep._begin_queue_statement have changed';

CREATE FUNCTION sweep._note_purged(queue_id int, lane smallint, message_id bigint)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_note_purged';
COMMENT ON FUNCTION sweep._note_purged(int, smallint, bigint) IS 'internal: this message was purged; its claim ends when the transaction commits';

-- Writes only when a setting changes. Does not change owner, grants and messages of the queue.
CREATE FUNCTION sweep._replace_queue(caller oid, name text, visibility interval, max_attempts int, backoff text, keep_done interval, notify boolean, key_policy text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.queue;
BEGIN
	IF NOT EXISTS (SELECT FROM sweep.queue q WHERE q.name = _replace_queue.name) THEN
		RETURN false;
	END IF;
	old := sweep._find_queue(caller, name, 'own');
	IF (old.visibility, old.max_attempts, old.backoff, old.keep_done, old.notify, old.key_policy)
			IS DISTINCT FROM (visibility, max_attempts, backoff, keep_done, notify, key_policy)
	THEN
		UPDATE sweep.queue AS q SET (visibility, max_attempts, backoff, keep_done, notify, key_policy) = (_replace_queue.visibility, _replace_queue.max_attempts,
				_replace_queue.backoff, _replace_queue.keep_done, _replace_queue.notify, _replace_queue.key_policy)
			WHERE q.queue_id = old.queue_id;
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._replace_queue(oid, text, interval, int, text, interval, boolean, text) IS 'internal: gives a queue of that name these settings; false when there is none';

CREATE FUNCTION sweep._create_queue(caller oid, name text, visibility interval, max_attempts int, backoff text, keep_done interval, notify boolean, key_policy text, replace boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	pause interval;
BEGIN
	IF (_create_queue.name ~ '^[A-Za-z0-9_]{1,48}$') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid queue name "%"', _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'A queue name has letters, digits and _, at most 48 of them.';
	END IF;
	IF (_create_queue.visibility > interval '0') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid visibility "%" for queue "%"', _create_queue.visibility, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The visibility is the time a consumer has for a message and must be greater than zero, for example ''30 s''.';
	END IF;
	IF (_create_queue.max_attempts BETWEEN 1 AND 32767) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid max_attempts % for queue "%"', _create_queue.max_attempts, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'A message is delivered between 1 and 32767 times.';
	END IF;
	IF (_create_queue.backoff IN ('sidekiq', 'none')) IS NOT TRUE THEN
		BEGIN
			pause := _create_queue.backoff::interval;
		EXCEPTION WHEN data_exception THEN
			pause := NULL;
		END;
		IF (pause >= interval '0' AND pg_catalog.octet_length(_create_queue.backoff) <= 255) IS NOT TRUE THEN
			RAISE EXCEPTION 'invalid backoff "%" for queue "%"', pg_catalog.substring(_create_queue.backoff, 1, 255), _create_queue.name
				USING ERRCODE = 'invalid_parameter_value', HINT = 'A backoff is sidekiq, none or an interval such as ''1 min''.';
		END IF;
	END IF;
	IF (_create_queue.keep_done >= interval '0') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid keep_done "%" for queue "%"', _create_queue.keep_done, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'keep_done is how long acknowledged messages are kept, ''0'' for not at all.';
	END IF;
	IF (_create_queue.key_policy IN ('while_queued', 'while_queued_or_running', 'once_more_if_running')) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid key_policy "%" for queue "%"', _create_queue.key_policy, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'A key_policy is while_queued, while_queued_or_running or once_more_if_running.';
	END IF;
	LOOP
		IF replace AND sweep._replace_queue(caller, _create_queue.name, _create_queue.visibility, _create_queue.max_attempts,
				coalesce(pause::pg_catalog.text, _create_queue.backoff), _create_queue.keep_done, coalesce(_create_queue.notify, true), _create_queue.key_policy) THEN
			RETURN;
		END IF;
		INSERT INTO sweep.queue (name, owner, visibility, max_attempts, backoff, keep_done, notify, key_policy)
		VALUES (_create_queue.name, sweep._role_name(caller), _create_queue.visibility, _create_queue.max_attempts,
			coalesce(pause::pg_catalog.text, _create_queue.backoff), _create_queue.keep_done, coalesce(_create_queue.notify, true), _create_queue.key_policy)
		ON CONFLICT ON CONSTRAINT queue_name_key DO NOTHING;
		EXIT WHEN FOUND;
		IF NOT coalesce(replace, false) THEN
			RAISE EXCEPTION 'queue "%" already exists', _create_queue.name
				USING ERRCODE = 'duplicate_object', HINT = 'sweep.drop_queue removes a queue with its messages; replace => true gives it these settings.';
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._create_queue(oid, text, interval, int, text, interval, boolean, text, boolean) IS 'internal: implements sweep.create_queue';

CREATE FUNCTION sweep.create_queue(name text, visibility interval DEFAULT '30 s', max_attempts int DEFAULT 25, backoff text DEFAULT 'sidekiq',
	keep_done interval DEFAULT '0', notify boolean DEFAULT true, key_policy text DEFAULT 'while_queued', replace boolean DEFAULT false)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text, boolean) IS 'creates a queue of the caller, or with replace gives an existing one these settings: how long a claim holds a message, how often and after which pauses a failed message is delivered again, how long acknowledged messages are kept, whether new messages send a notification, for how long a key is unique';

-- Locks the queue first. This waits for open transactions of senders and consumers, so that their messages are deleted, too. A
-- sender looks up the queue again after it has got its own lock, so no messages come later. Deleting rows before the lock would
-- be a deadlock with consumers that wait for these rows. lock_timeout is short because all sessions that work with the queue wait
-- behind this one.
CREATE FUNCTION sweep._drop_queue(caller oid, name text, if_exists boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '2s'
AS $$
DECLARE
	id int;
BEGIN
	IF if_exists AND NOT EXISTS (SELECT FROM sweep.queue q WHERE q.name = _drop_queue.name) THEN
		RAISE NOTICE 'queue "%" does not exist, skipping', _drop_queue.name;
		RETURN;
	END IF;
	id := (sweep._find_queue(caller, _drop_queue.name, 'own')).queue_id;
	PERFORM sweep._begin_queue_statement(id, true);
	DELETE FROM sweep.queue q WHERE q.queue_id = id;
	PERFORM sweep._end_queue_statement(id, 0, 0, 0, NULL, false, true);
END
$$;
COMMENT ON FUNCTION sweep._drop_queue(oid, text, boolean) IS 'internal: implements sweep.drop_queue';

CREATE FUNCTION sweep.drop_queue(name text, if_exists boolean DEFAULT false)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_queue(text, boolean) IS 'removes a queue, every message in it and its consumer; with if_exists a queue that does not exist is a NOTICE';

-- Skips rows that another transaction is removing or changing: waiting for it, while it waits for a row that was deleted here,
-- would be a deadlock.
CREATE FUNCTION sweep._purge_queue(caller oid, name text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id      int := (sweep._find_queue(caller, _purge_queue.name, 'own')).queue_id;
	ready   bigint;
	delayed bigint;
BEGIN
	PERFORM sweep._begin_queue_statement(id, false);
	WITH gone AS (
		DELETE FROM sweep.queue_message m
		WHERE m.ctid = ANY (ARRAY(SELECT o.ctid FROM sweep.queue_message o WHERE o.queue_id = id FOR UPDATE SKIP LOCKED))
		RETURNING m.lane, sweep._note_purged(m.queue_id, m.lane, m.message_id)
	)
	SELECT pg_catalog.count(*) FILTER (WHERE g.lane < 50), pg_catalog.count(*) FILTER (WHERE g.lane > 50) INTO ready, delayed FROM gone AS g;
	PERFORM sweep._end_queue_statement(id, -ready, -delayed, 0, NULL, true, false);
	RETURN ready + delayed;
END
$$;
COMMENT ON FUNCTION sweep._purge_queue(oid, text) IS 'internal: implements sweep.purge_queue';

CREATE FUNCTION sweep.purge_queue(name text)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.purge_queue(text) IS 'removes every message of a queue, also claimed and delayed ones, except dead ones and those that open transactions are removing, and returns how many';

CREATE FUNCTION sweep._change_queue_grants(caller oid, queue text, role regrole, privileges text[], granted boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id      int := (sweep._find_queue(caller, _change_queue_grants.queue, 'own')).queue_id;
	grantee pg_catalog.text;
	wrong   pg_catalog.text;
BEGIN
	SELECT coalesce(p.privilege, 'NULL') INTO wrong
	FROM pg_catalog.unnest(privileges) AS p (privilege)
	WHERE (p.privilege IN ('send', 'consume')) IS NOT TRUE
	LIMIT 1;
	IF FOUND OR coalesce(pg_catalog.cardinality(privileges), 0) = 0 THEN
		RAISE EXCEPTION 'invalid privilege "%" for queue "%"', coalesce(wrong, ''), _change_queue_grants.queue
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The privileges of a queue are ''send'' and ''consume'', for example ''{send,consume}''.';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = _change_queue_grants.role) THEN
		RAISE EXCEPTION 'role "%" does not exist', coalesce(_change_queue_grants.role::pg_catalog.text, 'NULL')
			USING ERRCODE = 'undefined_object';
	END IF;
	grantee := sweep._role_name(_change_queue_grants.role);
	-- The owner of a queue never changes, so the check above still holds for the locked row, unless the name is another queue by
	-- then.
	UPDATE sweep.queue q
	SET senders = CASE WHEN 'send' = ANY (privileges)
			THEN pg_catalog.array_remove(q.senders, grantee) || CASE WHEN granted THEN ARRAY[grantee] ELSE '{}' END
			ELSE q.senders END,
		consumers = CASE WHEN 'consume' = ANY (privileges)
			THEN pg_catalog.array_remove(q.consumers, grantee) || CASE WHEN granted THEN ARRAY[grantee] ELSE '{}' END
			ELSE q.consumers END
	WHERE q.queue_id = id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" does not exist', _change_queue_grants.queue
			USING ERRCODE = 'undefined_object', HINT = 'It has just been dropped.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._change_queue_grants(oid, text, regrole, text[], boolean) IS 'internal: grants or revokes';

-- sweep_client may execute the message functions; each function checks the right on its queue.  The owner of the
-- extension grants the membership, which holds in the whole cluster.
CREATE FUNCTION sweep._add_member(role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	grantee pg_catalog.text := sweep._role_name(role);
BEGIN
	IF pg_catalog.pg_has_role(role, 'sweep_client', 'USAGE') THEN
		RETURN;
	END IF;
	BEGIN
		-- Before version 16, inheritance is an attribute of the role.
		EXECUTE pg_catalog.format('GRANT sweep_client TO %I', grantee)
			|| CASE WHEN pg_catalog.current_setting('server_version_num')::int >= 160000 THEN ' WITH INHERIT TRUE' ELSE '' END;
	EXCEPTION
		WHEN unique_violation THEN
			NULL; -- another session has just made it a member
		WHEN insufficient_privilege THEN
			RAISE EXCEPTION 'role "%" cannot be made a member of sweep_client', grantee
				USING ERRCODE = 'insufficient_privilege',
					DETAIL = pg_catalog.format('The extension belongs to %I, which may not grant this membership.', current_user),
					HINT = pg_catalog.format('Have GRANT sweep_client TO %I executed by a role that may; then repeat this call.', grantee);
	END;
	IF NOT pg_catalog.pg_has_role(role, 'sweep_client', 'USAGE') THEN
		RAISE WARNING 'role "%" does not inherit the rights of sweep_client', grantee
			USING HINT = pg_catalog.format('ALTER ROLE %I INHERIT lets it call sweep.send and the other functions of messages.', grantee);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._add_member(regrole) IS 'internal: makes the role a member of sweep_client unless it has its rights, in this transaction';

CREATE FUNCTION sweep._add_member_apart(role regrole)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_member_add_apart';
COMMENT ON FUNCTION sweep._add_member_apart(regrole) IS 'internal: the same in a transaction of its own, which has ended when this returns';

-- A transaction that adds a membership waits for an open one that has added the same. The membership is therefore added in a
-- transaction of its own, which ends at once. Only a role whose creation is not committed yet gets it in the transaction that has
-- created it; no other transaction sees that role.
CREATE FUNCTION sweep._make_client(role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT pg_catalog.pg_has_role(role, 'sweep_client', 'USAGE') THEN
		PERFORM sweep._add_member_apart(role);
		PERFORM sweep._add_member(role);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._make_client(regrole) IS 'internal: makes the role a member of sweep_client unless it has its rights';

CREATE FUNCTION sweep._grant_queue(caller oid, queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._change_queue_grants(caller, _grant_queue.queue, _grant_queue.role, _grant_queue.privileges, true);
	PERFORM sweep._make_client(_grant_queue.role);
END
$$;
COMMENT ON FUNCTION sweep._grant_queue(oid, text, regrole, text[]) IS 'internal: implements sweep.grant_queue';

CREATE FUNCTION sweep.grant_queue(queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.grant_queue(text, regrole, text[]) IS 'lets a role and its members send to a queue, or consume from it: {send,consume}; makes the role a member of sweep_client, so that nothing else is needed';

CREATE FUNCTION sweep._revoke_queue(caller oid, queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._change_queue_grants(caller, _revoke_queue.queue, _revoke_queue.role, _revoke_queue.privileges, false);
END
$$;
COMMENT ON FUNCTION sweep._revoke_queue(oid, text, regrole, text[]) IS 'internal: implements sweep.revoke_queue';

CREATE FUNCTION sweep.revoke_queue(queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.revoke_queue(text, regrole, text[]) IS 'takes back what sweep.grant_queue has given on this queue; the role remains a member of sweep_client';

CREATE FUNCTION sweep._key_is_given_back(queue_id int, key text)
RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_key_is_given_back';
COMMENT ON FUNCTION sweep._key_is_given_back(int, text) IS 'internal: whether a message with this key was claimed and waits again; its row does not say so';

-- Messages return to the queue with their ids, due at once, a microsecond apart to keep their order. A message stays dead if a
-- waiting message has its key, also one that was claimed and has returned to the queue.
CREATE FUNCTION sweep._redrive(caller oid, queue text, filter jsonb, max int, dry_run boolean)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	q      sweep.queue := sweep._find_queue(caller, _redrive.queue, 'redrive');
	moment pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	moved  bigint;
BEGIN
	IF _redrive.max <= 0 THEN
		RAISE EXCEPTION 'cannot redrive % messages', _redrive.max
			USING ERRCODE = 'invalid_parameter_value', HINT = 'max must be greater than zero, or NULL for all.';
	END IF;
	IF _redrive.dry_run THEN
		-- Only one of the messages with the same key goes back, and none while another message waits with that key.
		SELECT pg_catalog.count(*) FILTER (WHERE meant.key IS NULL) + pg_catalog.count(DISTINCT meant.key) INTO moved FROM (
			SELECT d.key FROM sweep.queue_dead d
			WHERE d.queue_id = q.queue_id AND (_redrive.filter IS NULL OR pg_catalog.to_jsonb(d) @> _redrive.filter)
				AND sweep._key_is_given_back(d.queue_id, d.key) IS NOT TRUE
			ORDER BY d.message_id
			LIMIT _redrive.max) AS meant
		WHERE NOT EXISTS (SELECT FROM sweep.queue_message m
			WHERE m.queue_id = q.queue_id AND m.key = meant.key COLLATE pg_catalog."C" AND NOT m.claimed);
		RETURN moved;
	END IF;
	PERFORM sweep._begin_queue_statement(q.queue_id, false);
	WITH meant AS (
		SELECT d.*
		FROM sweep.queue_dead d
		WHERE d.queue_id = q.queue_id AND (_redrive.filter IS NULL OR pg_catalog.to_jsonb(d) @> _redrive.filter)
			AND sweep._key_is_given_back(d.queue_id, d.key) IS NOT TRUE
		ORDER BY d.message_id
		LIMIT _redrive.max
		FOR UPDATE SKIP LOCKED
	), returned AS (
		INSERT INTO sweep.queue_message (message_id, queue_id, lane, due_at, sent_at, key, headers, error, payload)
		SELECT m.message_id, m.queue_id, m.priority + 100, moment + pg_catalog.row_number() OVER (ORDER BY m.message_id) * interval '1 microsecond', m.sent_at,
			m.key, m.headers, m.error, m.payload
		FROM meant AS m
		ON CONFLICT (queue_id, key) WHERE key IS NOT NULL AND NOT claimed DO NOTHING
		RETURNING message_id
	)
	DELETE FROM sweep.queue_dead d USING returned AS r
	WHERE d.queue_id = q.queue_id AND d.message_id = r.message_id;
	GET DIAGNOSTICS moved = ROW_COUNT;
	PERFORM sweep._end_queue_statement(q.queue_id, 0, moved, -moved, moment, false, false);
	RETURN moved;
END
$$;
COMMENT ON FUNCTION sweep._redrive(oid, text, jsonb, int, boolean) IS 'internal: implements sweep.redrive';

CREATE FUNCTION sweep.redrive(queue text, filter jsonb DEFAULT NULL, max int DEFAULT NULL, dry_run boolean DEFAULT false)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.redrive(text, jsonb, int, boolean) IS 'puts dead messages back into their queue, with 0 attempts, and returns how many; filter: what they must contain, for example {"error": {"message": "timeout"}}';
--
-- Queues: sending, claiming, acknowledging. The public functions are in C, since they
-- are called for every message.
--
CREATE FUNCTION sweep.send(queue text, payload jsonb, key text DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0, headers jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send';
COMMENT ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb) IS 'queues a message in the caller''s transaction and returns its id; NULL when a message with this key is already waiting';

CREATE FUNCTION sweep._try_send(queue_id int, queue text, payload jsonb)
RETURNS text
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_try_send';
COMMENT ON FUNCTION sweep._try_send(int, text, jsonb) IS 'internal: sends without waiting for a transaction that drops the queue; NULL, or why the message was not sent: the transaction goes on';

CREATE FUNCTION sweep.send_many(queue text, payloads jsonb[], keys text[] DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send_many';
COMMENT ON FUNCTION sweep.send_many(text, jsonb[], text[], interval, int) IS 'queues any number of messages in the caller''s transaction and returns how many; those whose key is already waiting are left out';

CREATE FUNCTION sweep.claim(queue text, max int DEFAULT 1, visibility interval DEFAULT NULL)
RETURNS SETOF sweep.message
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_claim';
COMMENT ON FUNCTION sweep.claim(text, int, interval) IS 'takes up to max messages, by priority and then oldest first, under one lease; skips messages that others hold and does not wait for them';

CREATE FUNCTION sweep.ack(lease uuid, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_ack';
COMMENT ON FUNCTION sweep.ack(uuid, bigint[]) IS 'removes messages of a lease, all of them unless message_ids is given, and returns how many; ignores messages that the lease no longer holds';

CREATE FUNCTION sweep.fail(lease uuid, error text DEFAULT NULL, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_fail';
COMMENT ON FUNCTION sweep.fail(uuid, text, bigint[]) IS 'delivers messages of a lease again after a pause, or moves them to the dead-letter table when they were delivered as often as the queue allows; returns how many';

CREATE FUNCTION sweep.release(lease uuid, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_release';
COMMENT ON FUNCTION sweep.release(uuid, bigint[]) IS 'gives messages of a lease back at once, as if they had not been claimed, and returns how many';

CREATE FUNCTION sweep.extend(lease uuid, by interval)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_extend';
COMMENT ON FUNCTION sweep.extend(uuid, interval) IS 'has a lease end this long from now, and returns how many messages it holds';

-- The state of the queues of this database in shared memory. Without shared memory, or on a standby, the rows are counted.
CREATE FUNCTION sweep._queue_states(OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint, OUT ready_held int, OUT delayed_held int,
	OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[], OUT positions bigint[], OUT unsearched smallint,
	OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_states';
COMMENT ON FUNCTION sweep._queue_states() IS 'internal: counters and positions of the queues of this database';

-- The list of columns of the view sweep.queues and of the functions that it reads.
CREATE TYPE sweep._seen_queue AS (queue text, depth bigint, ready bigint, delayed bigint, in_flight bigint, dead bigint, oldest_age interval,
	sent_per_second double precision, acked_per_second double precision, owner text);
COMMENT ON TYPE sweep._seen_queue IS 'a row of sweep.queues';

-- Must be fast with 10,000 queues. The rights are checked once for each role. The tables are read, along indexes, only for numbers that shared
-- memory does not have: how many delayed messages are due and not found yet, at most ten thousand, and the age of the oldest message, in each
-- lane from its position on. Lanes that no search has reached, for most queues all 16, are read only if they have messages. The planner takes
-- this for a large query; JIT compilation would take a hundred times as long as the execution.
CREATE FUNCTION sweep.__seen_queues(caller oid)
RETURNS SETOF sweep._seen_queue
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
	moment constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	watches constant boolean := sweep._acts_for(caller, 'sweep_monitor');
	roles constant pg_catalog.text[] := ARRAY(SELECT r.role FROM (SELECT DISTINCT u.role FROM sweep.queue q CROSS JOIN LATERAL pg_catalog.unnest(q.owner || q.senders || q.consumers) AS u (role) OFFSET 0) AS r
		WHERE watches OR sweep._may_act_on(caller, r.role, true));
BEGIN
	RETURN QUERY
	SELECT q.name, coalesce(s.ready_rows + s.delayed_rows, 0), n.ready, n.delayed, n.in_flight, coalesce(s.dead, 0),
		CASE WHEN n.ready > 0 THEN greatest(sweep._elapsed(o.oldest, moment), interval '0') END,
		coalesce(s.sent_per_second, 0), coalesce(s.acked_per_second, 0), q.owner
	FROM (SELECT a.* FROM sweep.queue AS a WHERE a.owner = ANY (roles) OR a.senders && roles OR a.consumers && roles) AS q
		LEFT JOIN sweep._queue_states() AS s ON s.queue_id = q.queue_id
		CROSS JOIN LATERAL (SELECT CASE WHEN s.delayed_rows > 0 THEN greatest((SELECT pg_catalog.count(*) FROM (SELECT FROM sweep.queue_message AS m
			WHERE m.queue_id = q.queue_id AND m.due_at >= s.due_from AND m.due_at <= moment LIMIT 10000) AS found) - s.due_inside, 0) + s.due_known
			ELSE coalesce(s.due_known, 0) END AS due OFFSET 0) AS d
		CROSS JOIN LATERAL (SELECT greatest(s.ready_rows - s.ready_held + d.due, 0) AS ready, greatest(s.delayed_rows - s.delayed_held - d.due, 0) AS delayed,
			coalesce(least(s.ready_held + s.delayed_held, s.ready_rows + s.delayed_rows), 0) AS in_flight) AS n
		CROSS JOIN LATERAL (SELECT CASE WHEN n.ready > 0 THEN least(
			(SELECT pg_catalog.min((SELECT m.sent_at FROM sweep.queue_message AS m
					WHERE m.queue_id = q.queue_id AND m.lane = l.lane AND m.message_id >= l.from_id
					ORDER BY m.message_id LIMIT 1))
				FROM unnest(s.lanes, s.positions) AS l (lane, from_id)),
			(WITH RECURSIVE l AS (
				(SELECT m.lane, m.sent_at FROM sweep.queue_message AS m
					WHERE m.queue_id = q.queue_id AND m.lane <= s.unsearched
					ORDER BY m.lane, m.message_id LIMIT 1)
				UNION ALL SELECT following.* FROM l CROSS JOIN LATERAL (SELECT m.lane, m.sent_at FROM sweep.queue_message AS m
					WHERE m.queue_id = q.queue_id AND m.lane > l.lane AND m.lane <= s.unsearched
					ORDER BY m.lane, m.message_id LIMIT 1) AS following)
				SELECT pg_catalog.min(l.sent_at) FROM l),
			(SELECT m.due_at FROM sweep.queue_message AS m
				WHERE m.queue_id = q.queue_id AND m.due_at >= s.due_from AND m.due_at <= moment
				ORDER BY m.due_at LIMIT 1)) END AS oldest OFFSET 0) AS o;
END
$$;
COMMENT ON FUNCTION sweep.__seen_queues(oid) IS 'internal: implements sweep._seen_queues';

CREATE FUNCTION sweep._seen_queues()
RETURNS SETOF sweep._seen_queue
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._seen_queues() IS 'internal: the queues that the caller may see, for sweep.queues';

CREATE VIEW sweep.queues WITH (security_barrier) AS
	SELECT * FROM sweep._seen_queues();
COMMENT ON VIEW sweep.queues IS 'the number of messages in each queue, from counters; shows the queues that the user may use, and all of them to sweep_monitor';
COMMENT ON COLUMN sweep.queues.queue IS 'name of the queue';
COMMENT ON COLUMN sweep.queues.depth IS 'all messages except dead ones: ready, delayed and in_flight';
COMMENT ON COLUMN sweep.queues.ready IS 'can be claimed now';
COMMENT ON COLUMN sweep.queues.delayed IS 'to be delivered later: sent with a delay, or failed';
COMMENT ON COLUMN sweep.queues.in_flight IS 'held by a claim that has not run out';
COMMENT ON COLUMN sweep.queues.dead IS 'failed as often as the queue allows; see sweep.dead';
COMMENT ON COLUMN sweep.queues.oldest_age IS 'how long the oldest of the ready ones has been waiting';
COMMENT ON COLUMN sweep.queues.sent_per_second IS 'messages sent, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.acked_per_second IS 'messages acknowledged, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.owner IS 'role the queue belongs to';
--
-- Queues: viewing waiting, claimed, dead and acknowledged messages, and cancelling one.
--
CREATE FUNCTION sweep._in_flight_messages(queue_id int, OUT lane smallint, OUT message_id bigint, OUT claimed_until timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_list_in_flight';
COMMENT ON FUNCTION sweep._in_flight_messages(int) IS 'internal: the messages of a queue that are claimed or being ended, and when their leases run out';

CREATE TYPE sweep._seen_message AS (message_id bigint, state text, payload jsonb, key text, attempts int, headers jsonb, priority int, sent_at timestamptz,
	due_at timestamptz, claimed_until timestamptz, error jsonb);
COMMENT ON TYPE sweep._seen_message IS 'a row of sweep.messages';
COMMENT ON COLUMN sweep._seen_message.message_id IS 'order within the queue; argument of sweep.cancel_message';
COMMENT ON COLUMN sweep._seen_message.state IS 'in_flight, ready or delayed, as sweep.queues counts it';
COMMENT ON COLUMN sweep._seen_message.payload IS 'the payload that was sent';
COMMENT ON COLUMN sweep._seen_message.key IS 'the key it was sent with, or NULL';
COMMENT ON COLUMN sweep._seen_message.attempts IS 'how often it was delivered when it last failed';
COMMENT ON COLUMN sweep._seen_message.headers IS 'the headers that it was sent with, or NULL';
COMMENT ON COLUMN sweep._seen_message.priority IS 'the priority it was sent with';
COMMENT ON COLUMN sweep._seen_message.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep._seen_message.due_at IS 'not delivered before; NULL unless it was sent with a delay, has failed or was redriven';
COMMENT ON COLUMN sweep._seen_message.claimed_until IS 'when the lease of its claim runs out; NULL: it is not claimed, or the end is not known';
COMMENT ON COLUMN sweep._seen_message.error IS 'why it failed the last time, or NULL';

-- Reads along the indexes, and only as many rows as are wanted: each lane by its ids, delayed messages by their due times.
CREATE FUNCTION sweep._messages(caller oid, queue text, state text, max int)
RETURNS SETOF sweep._seen_message
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	id     constant int := (sweep._find_queue(caller, _messages.queue, 'consume')).queue_id;
	wanted constant pg_catalog.text := _messages.state;
	most   constant int := _messages.max;
	moment constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
	IF wanted NOT IN ('in_flight', 'ready', 'delayed') THEN
		RAISE EXCEPTION 'invalid state "%"', wanted
			USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "in_flight", "ready" or "delayed", or NULL for all of them; sweep.dead and sweep.done show the others.';
	END IF;
	IF most <= 0 THEN
		RAISE EXCEPTION 'cannot show % messages', most
			USING ERRCODE = 'invalid_parameter_value', HINT = 'max must be greater than zero, or NULL for all.';
	END IF;
	RETURN QUERY
	WITH taken AS MATERIALIZED (
		SELECT f.lane, f.message_id, f.claimed_until FROM sweep._in_flight_messages(id) AS f
	), seen AS (
		(SELECT 1 AS nth, 'in_flight'::pg_catalog.text AS state, t.claimed_until, m.*
			FROM taken AS t CROSS JOIN LATERAL (SELECT o.* FROM sweep.queue_message AS o
				WHERE o.queue_id = id AND o.lane = t.lane AND o.message_id = t.message_id LIMIT 1) AS m
			WHERE coalesce(wanted, 'in_flight') = 'in_flight' ORDER BY t.message_id LIMIT most)
		UNION ALL
		(SELECT 2, 'ready', NULL, m.*
			FROM pg_catalog.generate_series(7, -8, -1) AS p (priority) CROSS JOIN LATERAL (SELECT o.* FROM sweep.queue_message AS o
				WHERE o.queue_id = id AND o.lane = p.priority::smallint AND (o.lane, o.message_id) NOT IN (SELECT t.lane, t.message_id FROM taken AS t)
				ORDER BY o.message_id LIMIT most) AS m
			WHERE coalesce(wanted, 'ready') = 'ready' LIMIT most)
		UNION ALL
		(SELECT 2, 'ready', NULL, o.*
			FROM sweep.queue_message AS o
			WHERE o.queue_id = id AND o.due_at <= moment AND (o.lane, o.message_id) NOT IN (SELECT t.lane, t.message_id FROM taken AS t)
				AND coalesce(wanted, 'ready') = 'ready' ORDER BY o.due_at LIMIT most)
		UNION ALL
		(SELECT 3, 'delayed', NULL, o.*
			FROM sweep.queue_message AS o
			WHERE o.queue_id = id AND o.due_at > moment AND (o.lane, o.message_id) NOT IN (SELECT t.lane, t.message_id FROM taken AS t)
				AND coalesce(wanted, 'delayed') = 'delayed' ORDER BY o.due_at LIMIT most)
	)
	SELECT s.message_id, s.state, s.payload, s.key, s.attempts::int, s.headers, l.priority, s.sent_at, s.due_at, s.claimed_until, s.error
	FROM seen AS s CROSS JOIN LATERAL (SELECT CASE WHEN s.lane > 50 THEN s.lane - 100 ELSE s.lane END AS priority) AS l
	ORDER BY s.nth, CASE s.nth WHEN 2 THEN -l.priority END, CASE s.nth WHEN 3 THEN s.due_at END, s.message_id
	LIMIT most;
END
$$;
COMMENT ON FUNCTION sweep._messages(oid, text, text, int) IS 'internal: implements sweep.messages';

CREATE FUNCTION sweep.messages(queue text, state text DEFAULT NULL, max int DEFAULT 100)
RETURNS SETOF sweep._seen_message
LANGUAGE c STABLE PARALLEL UNSAFE ROWS 10
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.messages(text, text, int) IS 'up to max messages of a queue without claiming them: those in flight, then ready ones by priority, then delayed ones by their due times; also those that the transaction itself has sent';

CREATE FUNCTION sweep.cancel_message(queue text, message_id bigint DEFAULT NULL, key text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_cancel';
COMMENT ON FUNCTION sweep.cancel_message(text, bigint, text) IS 'removes a message that waits, by its id or its key, in the caller''s transaction; false when it is claimed or gone';

-- sweep.dead and sweep.done read pages, each of which begins after the last row of the page before, so that rows beyond a LIMIT are not
-- read. PostgreSQL inlines a function in SQL, and the statement then reads a page only when it needs the rows; of any other function it
-- would read all rows first. The declared number of rows of a page is too small on purpose: with hundreds of full pages the planner would
-- take the query for a large one and compile it.
CREATE FUNCTION sweep.__ended_page(caller oid, queue text, is_dead boolean, after_at timestamptz, after_id bigint, OUT message_id bigint, OUT payload jsonb,
	OUT key text, OUT attempts int, OUT headers jsonb, OUT priority int, OUT sent_at timestamptz, OUT ended_at timestamptz, OUT error jsonb, OUT goes_on boolean)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	id int := (sweep._find_queue(caller, __ended_page.queue, 'redrive')).queue_id;
BEGIN
	IF is_dead THEN
		RETURN QUERY
		SELECT d.message_id, d.payload, d.key, d.attempts::int, d.headers, d.priority::int, d.sent_at, d.died_at, d.error, pg_catalog.row_number() OVER () = 500
		FROM (SELECT * FROM sweep.queue_dead o WHERE o.queue_id = id AND o.message_id > after_id ORDER BY o.message_id LIMIT 500) AS d;
	ELSE
		RETURN QUERY
		SELECT d.message_id, d.payload, d.key, d.attempts::int, d.headers, NULL::int, d.sent_at, d.done_at, NULL::pg_catalog.jsonb, pg_catalog.row_number() OVER () = 500
		FROM (SELECT * FROM sweep.queue_done o WHERE o.queue_id = id AND (o.done_at, o.message_id) > (after_at, after_id) ORDER BY o.done_at, o.message_id LIMIT 500) AS d;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep.__ended_page(oid, text, boolean, timestamptz, bigint) IS 'internal: implements sweep._ended_page';

CREATE FUNCTION sweep._ended_page(queue text, is_dead boolean, after_at timestamptz, after_id bigint, OUT message_id bigint, OUT payload jsonb, OUT key text,
	OUT attempts int, OUT headers jsonb, OUT priority int, OUT sent_at timestamptz, OUT ended_at timestamptz, OUT error jsonb, OUT goes_on boolean)
RETURNS SETOF record
LANGUAGE c STABLE PARALLEL UNSAFE ROWS 10
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._ended_page(text, boolean, timestamptz, bigint) IS 'internal: a page of the dead messages after an id, or of the acknowledged ones after a time and id; goes_on: a further page may follow';

CREATE FUNCTION sweep.dead(queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT priority int, OUT sent_at timestamptz, OUT died_at timestamptz, OUT error jsonb)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	WITH RECURSIVE page AS (
		SELECT f.* FROM sweep._ended_page(queue, true, NULL, '-9223372036854775808') AS f
		UNION ALL
		SELECT n.* FROM page AS p CROSS JOIN LATERAL sweep._ended_page(queue, true, NULL, p.message_id) AS n WHERE p.goes_on)
	SELECT p.message_id, p.payload, p.key, p.attempts, p.headers, p.priority, p.sent_at, p.ended_at, p.error FROM page AS p;
END;
COMMENT ON FUNCTION sweep.dead(text) IS 'the messages of a queue that failed as often as it allows, with their last error: an object of sqlstate, message, detail, hint and context, or only the message that was given to sweep.fail';

CREATE FUNCTION sweep.done(queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT sent_at timestamptz, OUT done_at timestamptz)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	WITH RECURSIVE page AS (
		SELECT f.* FROM sweep._ended_page(queue, false, '-infinity', '-9223372036854775808') AS f
		UNION ALL
		SELECT n.* FROM page AS p CROSS JOIN LATERAL sweep._ended_page(queue, false, p.ended_at, p.message_id) AS n WHERE p.goes_on)
	SELECT p.message_id, p.payload, p.key, p.attempts, p.headers, p.sent_at, p.ended_at FROM page AS p;
END;
COMMENT ON FUNCTION sweep.done(text) IS 'the acknowledged messages of a queue that keep_done has kept, oldest first';
--
-- Waiting for messages, see wait.c.
--
CREATE PROCEDURE sweep.wait_for_message(queue text, timeout interval DEFAULT '30 s')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_queue_wait_call';
COMMENT ON PROCEDURE sweep.wait_for_message(text, interval) IS 'ends the transaction and waits, without a snapshot, until the queue has something to claim or the time is over';
--
-- Alerts: messages about jobs that failed or are broken, sent in the commit that records the event.
--
-- An alert is sent to the alert_queue of the job if its role may send there, otherwise to pg_sweep.alert_queue in the
-- databases that have such a queue. If an alert cannot be sent, there is a WARNING and the event is recorded
-- nevertheless. Sending waits for no session.
--
CREATE FUNCTION sweep._send_alert(job text, alert jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j pg_catalog.record;
	target sweep.queue;
	sees boolean;
	problem pg_catalog.text;
BEGIN
	SELECT k.alert_queue AS own, k.run_as, coalesce(k.alert_queue, pg_catalog.current_setting('pg_sweep.alert_queue')) AS queue, s.alert_queue_owner INTO j
		FROM sweep.job_definition k LEFT JOIN sweep.job_state s ON s.job = k.name WHERE k.name = _send_alert.job;
	IF coalesce(j.queue, '') = '' THEN
		RETURN;
	END IF;
	SELECT q.* INTO target FROM sweep.queue q WHERE q.name = j.queue;
	IF target.queue_id IS NULL AND j.own IS NULL THEN
		RETURN;
	END IF;
	sees := sweep._may_act_on(sweep._role_oid(target.owner), j.run_as, true) OR sweep._acts_for(sweep._role_oid(target.owner), 'sweep_monitor');
	problem := CASE WHEN target.queue_id IS NULL THEN 'it does not exist'
		-- A role that creates a queue under a name that was given up must not get the alerts for the old queue.
		WHEN target.owner IS DISTINCT FROM j.alert_queue_owner AND j.own IS NOT NULL AND sees IS NOT TRUE
			THEN pg_catalog.format('it is now of role "%s": sweep.alter_job can name it again', target.owner)
		WHEN j.own IS NOT NULL AND NOT sweep._may_use_queue(sweep._role_oid(j.run_as), target, 'send') THEN 'the role of the job may not send to it'
		-- Any role may own a queue of that name, and its owner reads the alerts.
		WHEN j.own IS NULL AND sees IS NOT TRUE
			THEN pg_catalog.format('role "%s", which owns it, may not see the runs of the job', target.owner)
		ELSE sweep._try_send(target.queue_id, target.name, alert) END;
	IF problem IS NOT NULL THEN
		RAISE WARNING 'alert of job "%" could not be sent to queue "%": %', job, j.queue, problem;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._send_alert(text, jsonb) IS 'sends an alert to the alert_queue of the job or of the server, if there is one';

CREATE FUNCTION sweep._alert_failed(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
BEGIN
	SELECT l.job, l.run_id, l.status, l.sqlstate, l.error, l.finished_at INTO r
		FROM sweep.run_live l JOIN sweep.job_definition j ON j.name = l.job AND j.run_as = l.run_as
		WHERE l.run_id = _alert_failed.run_id AND l.status IN ('failed', 'lost')
			AND NOT EXISTS (SELECT FROM sweep.run_live t WHERE t.parent_run_id = l.run_id AND t.trigger = 'retry');
	IF FOUND THEN
		PERFORM sweep._send_alert(r.job, pg_catalog.jsonb_build_object('kind', 'failed', 'severity', 'error', 'job', r.job, 'run_id', r.run_id,
			'text', pg_catalog.format(CASE r.status WHEN 'lost' THEN 'run %s of job "%s" was lost' ELSE 'run %s of job "%s" failed: %s' END,
				r.run_id, r.job, sweep._error_message(r.error)),
			'hint', CASE r.status WHEN 'lost' THEN 'Its process ended without an outcome: the server log says why.'
				ELSE pg_catalog.format('SELECT error FROM sweep.runs WHERE run_id = %s shows all of the error.', r.run_id) END,
			'status', r.status, 'sqlstate', r.sqlstate, 'since', r.finished_at, 'ended', false));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._alert_failed(bigint) IS 'sends an alert about a run that has failed or was lost and is not tried again';

CREATE FUNCTION sweep._set_broken(job text, problem text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep.job_state AS s SET broken = problem WHERE s.job = _set_broken.job AND s.broken IS DISTINCT FROM problem;
	IF FOUND THEN
		PERFORM sweep._send_alert(job, pg_catalog.jsonb_build_object('kind', 'broken', 'severity', 'error', 'job', job, 'run_id', NULL,
			'text', CASE WHEN problem IS NULL THEN pg_catalog.format('job "%s" is no longer broken', job) ELSE pg_catalog.format('job "%s" is broken: %s', job, problem) END,
			'hint', CASE WHEN problem IS NOT NULL THEN 'Mend what the text names, or change the job with sweep.alter_job.' END,
			'since', pg_catalog.clock_timestamp(), 'ended', problem IS NULL));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._set_broken(text, text) IS 'notes why a job cannot be started, or (NULL) that it can, and sends an alert when that has changed';

CREATE FUNCTION sweep._check_alert_queue(job sweep.job_definition) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN job.alert_queue IS NOT NULL THEN (sweep._find_queue(sweep._role_oid(job.run_as), job.alert_queue, 'send')).owner END;
END
$$;
COMMENT ON FUNCTION sweep._check_alert_queue(sweep.job_definition) IS 'raises unless the role of the job may send to its alert_queue; returns the owner of the queue';
--
-- Consumers in the database: background workers that call a function for each
-- message of a queue, or for each batch of them.
--
-- A row says how many processes are wanted; the scheduler keeps so many (consumer_pool.c), each connected as run_as
-- (consumer.c). The changes of a handler and the acknowledgement of its message are one commit. A queue has one
-- consumer at most: more processes are its concurrency.
--
-- No table here has a foreign key: a restore with several jobs copies the tables in any order, and a row that came
-- before the row it refers to would be lost. A consumer without its queue is broken until the queue is there.
--
CREATE TABLE sweep.consumer (
	consumer_id int GENERATED ALWAYS AS IDENTITY,
	queue_id    int NOT NULL,
	handler     text NOT NULL,
	run_as      text NOT NULL,
	concurrency int NOT NULL,
	batch       int NOT NULL,
	paused_at   timestamptz,
	-- as in sweep.job_state
	system_identifier bigint NOT NULL DEFAULT 0,
	database          oid NOT NULL DEFAULT 0,
	all_paused_at     timestamptz,
	CONSTRAINT consumer_pkey PRIMARY KEY (consumer_id),
	CONSTRAINT consumer_queue_key UNIQUE (queue_id),
	CONSTRAINT consumer_concurrency_check CHECK (concurrency BETWEEN 1 AND 1000),
	CONSTRAINT consumer_handler_check CHECK (pg_catalog.octet_length(handler) <= 1024),
	CONSTRAINT consumer_batch_check CHECK (batch BETWEEN 1 AND 10000)
);
COMMENT ON TABLE sweep.consumer IS 'the consumers in the database; sweep.create_consumer adds one';
COMMENT ON COLUMN sweep.consumer.consumer_id IS 'never used again, so that a process notices when its consumer was replaced';
COMMENT ON COLUMN sweep.consumer.queue_id IS 'the queue whose messages it handles';
COMMENT ON COLUMN sweep.consumer.handler IS 'the function that is called with each message or with a batch of them, by name';
COMMENT ON COLUMN sweep.consumer.run_as IS 'name of the role its processes are connected as';
COMMENT ON COLUMN sweep.consumer.concurrency IS 'how many processes';
COMMENT ON COLUMN sweep.consumer.batch IS 'how many messages a process handles in one transaction';
COMMENT ON COLUMN sweep.consumer.paused_at IS 'since when it is paused; NULL: it is not';
COMMENT ON COLUMN sweep.consumer.system_identifier IS 'cluster and extension that it belongs to';
COMMENT ON COLUMN sweep.consumer.database IS 'database that it belongs to: in a copy of the database it is paused until sweep.resume_all() is called there';
COMMENT ON COLUMN sweep.consumer.all_paused_at IS 'since when it is paused together with all others; NULL: it is not, or was created since';

-- A message that was being handled when the server went down may be the reason, so crashes are counted separately
-- from attempts: see crash_note.c.
CREATE TABLE sweep.consumer_crash (
	queue_id   int NOT NULL,
	message_id bigint NOT NULL,
	crashes    int NOT NULL,
	last_at    timestamptz NOT NULL,
	CONSTRAINT consumer_crash_pkey PRIMARY KEY (queue_id, message_id)
);
COMMENT ON TABLE sweep.consumer_crash IS 'messages that were being handled by a consumer in the database when the server went down';
COMMENT ON COLUMN sweep.consumer_crash.queue_id IS 'the queue it is in';
COMMENT ON COLUMN sweep.consumer_crash.message_id IS 'the message';
COMMENT ON COLUMN sweep.consumer_crash.crashes IS 'how often; with the third it is moved to the dead-letter table';
COMMENT ON COLUMN sweep.consumer_crash.last_at IS 'the last time';

SELECT pg_catalog.pg_extension_config_dump('sweep.consumer', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.consumer_consumer_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.consumer_crash', '');

CREATE TRIGGER consumer_changed AFTER INSERT OR UPDATE OR DELETE ON sweep.consumer
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._wake_for_change();

-- ------------------------------------------------------------------ is it right?
CREATE FUNCTION sweep._find_handlers(name text) RETURNS regprocedure[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
BEGIN
	parts := pg_catalog.parse_ident(name);
	IF pg_catalog.cardinality(parts) IS DISTINCT FROM 2 THEN
		RETURN '{}';
	END IF;
	RETURN ARRAY(SELECT p.oid::pg_catalog.regprocedure FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		WHERE p.proname = parts[2] AND n.nspname = parts[1] AND p.prokind = 'f' AND p.pronargs = 1 AND p.provariadic = 0
			AND p.proargtypes[0] IN ('sweep.message'::pg_catalog.regtype, 'sweep.message[]'::pg_catalog.regtype));
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN '{}';
END
$$;
COMMENT ON FUNCTION sweep._find_handlers(text) IS 'the functions of one sweep.message or sweep.message[] that a text names; a handler must be the only one';

-- With two such functions the call would be ambiguous, because it is resolved by the type of the argument.
CREATE FUNCTION sweep._handler_problem(name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found constant int := pg_catalog.cardinality(sweep._find_handlers(name));
BEGIN
	RETURN CASE found
		WHEN 0 THEN pg_catalog.format('function %s(sweep.message) or (sweep.message[]) does not exist', coalesce(name, '<NULL>'))
		WHEN 2 THEN pg_catalog.format('function %s is not unique: there is one of sweep.message and one of sweep.message[]', name)
	END;
END
$$;
COMMENT ON FUNCTION sweep._handler_problem(text) IS 'why a text does not name a handler; NULL when it does';

CREATE FUNCTION sweep._consumer_problem(consumer sweep.consumer) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text := sweep._role_problem(consumer.run_as, true);
BEGIN
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	problem := sweep._handler_problem(consumer.handler);
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	RETURN sweep._execute_problem(consumer.run_as, (sweep._find_handlers(consumer.handler))[1]);
END
$$;
COMMENT ON FUNCTION sweep._consumer_problem(sweep.consumer) IS 'why the consumer cannot work; NULL when no problem is known';

CREATE FUNCTION sweep._check_consumer_right(caller oid, queue text, consumer sweep.consumer, operators boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner pg_catalog.text := (SELECT q.owner FROM sweep.queue q WHERE q.queue_id = consumer.queue_id);
BEGIN
	IF consumer.consumer_id IS NULL THEN
		RAISE EXCEPTION 'queue "%" has no consumer', _check_consumer_right.queue
			USING ERRCODE = 'undefined_object', HINT = 'The view sweep.consumers lists the consumers of this database.';
	END IF;
	IF NOT (sweep._may_act_on(caller, consumer.run_as, operators) OR sweep._acts_for(caller, owner)) THEN
		RAISE EXCEPTION 'permission denied for the consumer of queue "%"', _check_consumer_right.queue
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('Members of %s%s and sweep_admin may do this.',
					pg_catalog.concat_ws(', ', pg_catalog.quote_ident(consumer.run_as), pg_catalog.quote_ident(nullif(owner, consumer.run_as))),
					CASE WHEN operators THEN ', sweep_operator' ELSE '' END);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_consumer_right(oid, text, sweep.consumer, boolean) IS 'raises unless the consumer exists and the caller may change it';

-- Rights are checked on the consumer after it is locked, as in sweep._lock_job().
CREATE FUNCTION sweep._lock_consumer(caller oid, queue text, operators boolean) RETURNS sweep.consumer
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	consumer sweep.consumer;
BEGIN
	SELECT c.* INTO consumer FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE q.name = _lock_consumer.queue;
	PERFORM sweep._check_consumer_right(caller, queue, consumer, operators);
	SELECT c.* INTO consumer FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE q.name = _lock_consumer.queue FOR UPDATE OF c;
	PERFORM sweep._check_consumer_right(caller, queue, consumer, operators);
	RETURN consumer;
END
$$;
COMMENT ON FUNCTION sweep._lock_consumer(oid, text, boolean) IS 'locks the consumer of the queue and returns it; raises unless the caller may change it';

-- ------------------------------------------------------------------ what it executes
CREATE FUNCTION sweep._check_consumer_sizes(consumer sweep.consumer) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- as in the CHECK constraints
	most_processes constant int := 1000;
	most_messages  constant int := 10000;
BEGIN
	IF (consumer.concurrency BETWEEN 1 AND most_processes) IS NOT TRUE OR (consumer.batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid % %', CASE WHEN (consumer.batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN 'batch' ELSE 'concurrency' END,
				CASE WHEN (consumer.batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN consumer.batch ELSE consumer.concurrency END
			USING ERRCODE = 'invalid_parameter_value',
				HINT = pg_catalog.format('concurrency is a number of processes from 1 to %s, batch one of messages from 1 to %s.', most_processes, most_messages);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_consumer_sizes(sweep.consumer) IS 'raises unless the number of processes and the size of a batch are allowed';

-- Checks a consumer that its role is to execute. Returns it with the name of the handler in the form that is stored.
CREATE FUNCTION sweep._check_consumer(caller oid, queue text, consumer sweep.consumer) RETURNS sweep.consumer
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name     constant pg_catalog.text := consumer.run_as;
	problem  pg_catalog.text;
	function pg_catalog.regprocedure;
	owned_by pg_catalog.text;
BEGIN
	IF pg_catalog.octet_length(consumer.handler) > 1024 THEN
		RAISE EXCEPTION 'handler is too large: % bytes', pg_catalog.octet_length(consumer.handler)
			USING ERRCODE = 'program_limit_exceeded', HINT = 'It may have 1024 bytes.';
	END IF;
	problem := sweep._handler_problem(consumer.handler);
	function := (sweep._find_handlers(consumer.handler))[1];
	IF NOT sweep._can_become(caller, name) THEN
		RAISE EXCEPTION 'permission denied to consume queue "%" as role %', _check_consumer.queue, pg_catalog.quote_ident(name)
			USING ERRCODE = 'insufficient_privilege', HINT = 'run_as must be a role that you could SET ROLE to.';
	END IF;
	PERFORM sweep._check_consumer_sizes(consumer);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION '%', problem
			USING ERRCODE = CASE WHEN function IS NULL THEN 'undefined_function' ELSE 'ambiguous_function' END,
				HINT = CASE WHEN function IS NULL THEN 'A handler is named with its schema and is a function(sweep.message), or a function(sweep.message[]) '
						'that is called once for a batch; what it returns is ignored.'
					ELSE 'Drop or rename the one that is not meant.' END;
	END IF;
	PERFORM sweep._find_queue(sweep._role_oid(name), _check_consumer.queue, 'consume');
	owned_by := sweep._owner_problem(name, function);
	IF owned_by IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _check_consumer.queue, owned_by
			USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its owner decides what is executed as that role.',
				HINT = pg_catalog.format('ALTER FUNCTION %s OWNER TO %I gives it to the role of the consumer.', function, name);
	END IF;
	consumer.handler := (SELECT pg_catalog.format('%I.%I', n.nspname, p.proname)
		FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = function);
	problem := sweep._consumer_problem(consumer);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _check_consumer.queue, problem
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('The role needs LOGIN (before version 17), CONNECT on the database, membership in sweep_user '
					'and EXECUTE on the handler: see ALTER ROLE %I LOGIN and GRANT.', name);
	END IF;
	RETURN consumer;
END
$$;
COMMENT ON FUNCTION sweep._check_consumer(oid, text, sweep.consumer) IS 'raises unless the caller may create this consumer for the queue; returns the consumer as it is stored';

-- A process has read the handler, its role and the size of a batch when it started. With a new id the existing processes end after
-- the messages that they are handling, and new ones begin.
CREATE FUNCTION sweep._change_consumer(old sweep.consumer, consumer sweep.consumer) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Without a change no row is written.
	IF consumer IS NOT DISTINCT FROM old THEN
		RETURN;
	END IF;
	UPDATE sweep.consumer AS c SET handler = consumer.handler, run_as = consumer.run_as, concurrency = consumer.concurrency, batch = consumer.batch,
			paused_at = consumer.paused_at
		WHERE c.consumer_id = old.consumer_id;
	IF (consumer.handler, consumer.run_as, consumer.batch) IS DISTINCT FROM (old.handler, old.run_as, old.batch) THEN
		UPDATE sweep.consumer AS c SET consumer_id = DEFAULT WHERE c.consumer_id = old.consumer_id;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._change_consumer(sweep.consumer, sweep.consumer) IS 'changes a locked consumer to the other row; a batch in progress is finished with the old definition';

-- ------------------------------------------------------------------ create, alter, drop, pause
CREATE FUNCTION sweep._create_consumer(caller oid, queue text, handler text, concurrency int, batch int, run_as regrole, replace boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id       int;
	old      sweep.consumer;
	consumer sweep.consumer;
BEGIN
	PERFORM sweep._require_workers();
	id := (sweep._find_queue(caller, _create_consumer.queue, 'consume')).queue_id;
	consumer := sweep._check_consumer(caller, queue, ROW(0, id, handler, sweep._role_name(coalesce(run_as, caller)), concurrency, batch, NULL, 0, 0, NULL));
	-- The lock keeps the queue from being dropped before the consumer, which would be dropped with it, is visible.
	PERFORM FROM sweep.queue q WHERE q.queue_id = id FOR KEY SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" does not exist', _create_consumer.queue
			USING ERRCODE = 'undefined_object', HINT = 'It has just been dropped.';
	END IF;
	INSERT INTO sweep.consumer (queue_id, handler, run_as, concurrency, batch, system_identifier, database)
		SELECT id, consumer.handler, consumer.run_as, consumer.concurrency, consumer.batch, sweep._system_identifier(), d.oid
			FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
		ON CONFLICT ON CONSTRAINT consumer_queue_key DO NOTHING;
	IF FOUND THEN
		RETURN;
	END IF;
	IF NOT coalesce(replace, false) THEN
		RAISE EXCEPTION 'queue "%" already has a consumer', _create_consumer.queue
			USING ERRCODE = 'duplicate_object', HINT = 'More processes are its concurrency: sweep.alter_consumer changes it; replace => true gives it this definition.';
	END IF;
	old := sweep._lock_consumer(caller, queue, false);
	PERFORM sweep._change_consumer(old, ROW(old.consumer_id, old.queue_id, consumer.handler, consumer.run_as, consumer.concurrency, consumer.batch, old.paused_at,
		old.system_identifier, old.database, old.all_paused_at));
END
$$;
COMMENT ON FUNCTION sweep._create_consumer(oid, text, text, int, int, regrole, boolean) IS 'implements sweep.create_consumer';

CREATE FUNCTION sweep.create_consumer(queue text, handler text, concurrency int DEFAULT 1, batch int DEFAULT 1, run_as regrole DEFAULT NULL, replace boolean DEFAULT false)
	RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_consumer(text, text, int, int, regrole, boolean) IS 'has background workers call handler(sweep.message) for each message of the queue, or handler(sweep.message[]) for each batch of them; its effect and the acknowledgement are one commit; with replace gives an existing consumer this definition, and leaves alone whether it is paused';

CREATE FUNCTION sweep._alter_consumer(caller oid, queue text, changes jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old      sweep.consumer := sweep._lock_consumer(caller, queue, false);
	consumer sweep.consumer := old;
	paused   boolean;
	word     pg_catalog.text;
BEGIN
	PERFORM sweep._check_changes(changes, '{handler,concurrency,batch,run_as,paused}', '{"concurrency": 4}');
	FOR word IN SELECT pg_catalog.jsonb_object_keys(changes) LOOP
		IF changes -> word = 'null' THEN
			RAISE EXCEPTION '% must not be null', word USING ERRCODE = 'null_value_not_allowed', HINT = 'Leave it out to keep what it is.';
		END IF;
		BEGIN
			CASE word
				WHEN 'paused' THEN paused := (changes ->> word)::boolean;
				WHEN 'run_as' THEN consumer.run_as := sweep._role_name((changes ->> word)::pg_catalog.regrole);
				ELSE consumer := pg_catalog.jsonb_populate_record(consumer, pg_catalog.jsonb_build_object(word, changes -> word));
			END CASE;
		EXCEPTION WHEN data_exception OR syntax_error_or_access_rule_violation THEN
			PERFORM sweep._refuse_change(changes, word, SQLERRM, 'sweep.create_consumer');
		END;
	END LOOP;
	-- An unchanged handler and role are not checked, so that a broken consumer can be paused, and one with a role
	-- that the owner of the queue cannot SET ROLE to.
	IF (consumer.handler, consumer.run_as) IS DISTINCT FROM (old.handler, old.run_as) THEN
		consumer := sweep._check_consumer(caller, queue, consumer);
	ELSE
		PERFORM sweep._check_consumer_sizes(consumer);
	END IF;
	consumer.paused_at := CASE WHEN paused THEN coalesce(old.paused_at, pg_catalog.now()) WHEN paused IS NULL THEN old.paused_at END;
	PERFORM sweep._change_consumer(old, consumer);
END
$$;
COMMENT ON FUNCTION sweep._alter_consumer(oid, text, jsonb) IS 'implements sweep.alter_consumer';

CREATE FUNCTION sweep.alter_consumer(queue text, changes jsonb) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.alter_consumer(text, jsonb) IS 'changes a consumer: keys are handler, concurrency, batch, run_as and paused; what its processes are handling is finished as it was begun';

CREATE FUNCTION sweep._drop_consumer(caller oid, queue text, if_exists boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int;
BEGIN
	IF if_exists AND NOT EXISTS (SELECT FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE q.name = _drop_consumer.queue) THEN
		RAISE NOTICE 'queue "%" has no consumer, skipping', _drop_consumer.queue;
		RETURN;
	END IF;
	id := (sweep._lock_consumer(caller, _drop_consumer.queue, false)).consumer_id;
	DELETE FROM sweep.consumer c WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._drop_consumer(oid, text, boolean) IS 'implements sweep.drop_consumer';

CREATE FUNCTION sweep.drop_consumer(queue text, if_exists boolean DEFAULT false) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_consumer(text, boolean) IS 'removes the consumer of the queue; what its processes are handling is finished first, the queue and its messages stay; with if_exists a queue without one is a NOTICE';

CREATE FUNCTION sweep._pause_consumer(caller oid, queue text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._lock_consumer(caller, queue, true)).consumer_id;
BEGIN
	UPDATE sweep.consumer AS c SET paused_at = coalesce(c.paused_at, pg_catalog.now()) WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._pause_consumer(oid, text) IS 'implements sweep.pause_consumer';

CREATE FUNCTION sweep.pause_consumer(queue text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.pause_consumer(text) IS 'ends the processes of the consumer once they have finished what they are handling';

CREATE FUNCTION sweep._resume_consumer(caller oid, queue text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._lock_consumer(caller, queue, true)).consumer_id;
BEGIN
	UPDATE sweep.consumer AS c SET paused_at = NULL WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._resume_consumer(oid, text) IS 'implements sweep.resume_consumer';

CREATE FUNCTION sweep.resume_consumer(queue text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.resume_consumer(text) IS 'starts the processes of the consumer again';

-- ------------------------------------------------------------------ what the processes ask
CREATE FUNCTION sweep._wanted_consumers() RETURNS TABLE (consumer_id int, queue text, run_as oid, concurrency int)
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT c.consumer_id, q.name, sweep._role_oid(c.run_as), CASE WHEN sweep._consumer_problem(c) IS NULL THEN c.concurrency ELSE 0 END
		FROM sweep.consumer c JOIN sweep.queue q USING (queue_id)
		WHERE c.paused_at IS NULL AND c.all_paused_at IS NULL AND sweep._is_home(c.system_identifier, c.database)
			AND NOT EXISTS (SELECT FROM sweep.control)
		ORDER BY c.consumer_id;
END
$$;
COMMENT ON FUNCTION sweep._wanted_consumers() IS 'the consumers that are not paused, and how many processes each should have: none while there is a problem';

-- Commits with a wait for the disk: the next crash may follow at once. The server may have gone down between the
-- commit of a message and the note that it is done, so a message that is no longer in the queue is no suspect.
CREATE FUNCTION sweep._count_crash(queue_id int, message_ids bigint[]) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	known int := (SELECT pg_catalog.count(*) FROM sweep.consumer_crash c WHERE c.queue_id = _count_crash.queue_id AND c.message_id = ANY (message_ids));
	free int;
BEGIN
	PERFORM pg_catalog.set_config('synchronous_commit', 'local', true);
	DELETE FROM sweep.consumer_crash AS c USING (SELECT o.queue_id, o.message_id FROM sweep.consumer_crash o
			WHERE o.last_at < pg_catalog.now() - interval '30 days' FOR UPDATE SKIP LOCKED) AS old
		WHERE c.queue_id = old.queue_id AND c.message_id = old.message_id;
	-- A session that is dropping the queue, or a prepared transaction that has locked these rows, must not delay the
	-- scheduler.
	PERFORM FROM sweep.consumer_crash c WHERE c.queue_id = _count_crash.queue_id AND c.message_id = ANY (message_ids) FOR UPDATE SKIP LOCKED;
	GET DIAGNOSTICS free = ROW_COUNT;
	PERFORM FROM sweep.queue q WHERE q.queue_id = _count_crash.queue_id FOR KEY SHARE SKIP LOCKED;
	IF NOT FOUND OR free < known THEN
		RETURN NOT EXISTS (SELECT FROM sweep.queue q WHERE q.queue_id = _count_crash.queue_id);
	END IF;
	-- The whole primary key is needed: without the lane each id would be searched among all messages of the queue.
	INSERT INTO sweep.consumer_crash AS c (queue_id, message_id, crashes, last_at)
		SELECT _count_crash.queue_id, m.message_id, 1, pg_catalog.now()
		FROM pg_catalog.generate_series(0, 100, 100) AS delayed, pg_catalog.generate_series(-8, 7) AS priority,
			LATERAL (SELECT l.lane FROM sweep.queue_message l
				WHERE l.queue_id = _count_crash.queue_id AND l.lane = (delayed + priority)::smallint LIMIT 1) AS used,
			pg_catalog.unnest(message_ids) AS i (id),
			LATERAL (SELECT o.message_id FROM sweep.queue_message o
				WHERE o.queue_id = _count_crash.queue_id AND o.lane = used.lane AND o.message_id = i.id LIMIT 1) AS m
		ON CONFLICT (queue_id, message_id) DO UPDATE SET crashes = c.crashes + 1, last_at = excluded.last_at;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._count_crash(int, bigint[]) IS 'counts a crash of the server while a consumer handled these messages; false when that failed because another transaction has locked them';

-- ------------------------------------------------------------------ what an operator reads
CREATE FUNCTION sweep._consumer_processes(OUT consumer_id int, OUT pid int, OUT handled bigint, OUT failed bigint,
	OUT started_at timestamptz, OUT last_error text)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_consumer_shared_list';
COMMENT ON FUNCTION sweep._consumer_processes() IS 'the processes of consumers in this database, from shared memory';

-- Each sub-select has a column, because Citus cannot plan one without columns together with a distributed table.
CREATE VIEW sweep.consumers WITH (security_barrier) AS
	SELECT q.name AS queue, c.handler, c.run_as, c.concurrency, c.batch,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN NOT sweep._is_home(c.system_identifier, c.database) THEN 'paused: the database is a copy'
			WHEN c.all_paused_at IS NOT NULL OR EXISTS (SELECT 1 FROM sweep.control) THEN 'paused: by pause_all'
			WHEN c.paused_at IS NOT NULL THEN 'paused'
			WHEN obstacle.reason IS NOT NULL THEN 'no_scheduler: ' || obstacle.reason
			WHEN p.workers >= c.concurrency THEN 'running'
			ELSE 'waiting_for_slot'
		END AS state,
		p.workers, p.handled, p.failed, p.last_error
	FROM sweep.consumer c
		LEFT JOIN sweep.queue q USING (queue_id)
		CROSS JOIN sweep._no_scheduler() AS obstacle (reason)
		CROSS JOIN LATERAL (SELECT CASE WHEN q.name IS NULL THEN pg_catalog.format('queue %s does not exist', c.queue_id)
			ELSE sweep._consumer_problem(c) END AS reason) AS problem
		CROSS JOIN LATERAL (SELECT pg_catalog.count(*)::int AS workers, least(coalesce(pg_catalog.sum(l.handled), 0), 9223372036854775807)::bigint AS handled,
				least(coalesce(pg_catalog.sum(l.failed), 0), 9223372036854775807)::bigint AS failed, pg_catalog.max(l.last_error) AS last_error
			FROM sweep._consumer_processes() l WHERE l.consumer_id = c.consumer_id) AS p
	WHERE sweep._may_see(c.run_as)
	OFFSET 0;
COMMENT ON VIEW sweep.consumers IS 'consumers in the database with their processes';
COMMENT ON COLUMN sweep.consumers.queue IS 'the queue whose messages it handles; NULL when the queue does not exist, as during a restore';
COMMENT ON COLUMN sweep.consumers.handler IS 'the function that is called with each message or with a batch of them';
COMMENT ON COLUMN sweep.consumers.run_as IS 'the role it runs as';
COMMENT ON COLUMN sweep.consumers.concurrency IS 'how many processes are wanted';
COMMENT ON COLUMN sweep.consumers.batch IS 'messages per transaction';
COMMENT ON COLUMN sweep.consumers.state IS 'running, no_scheduler: and why none works in this database, waiting_for_slot (fewer processes than wanted), paused: and by what, or broken: and why';
COMMENT ON COLUMN sweep.consumers.workers IS 'how many processes there are';
COMMENT ON COLUMN sweep.consumers.handled IS 'messages handled by these processes';
COMMENT ON COLUMN sweep.consumers.failed IS 'messages that failed in these processes';
COMMENT ON COLUMN sweep.consumers.last_error IS 'last error of one of these processes';
--
-- Warns, when the extension is created, if there cannot be enough background processes.
--
DO $$
DECLARE
	-- The minimum: the launcher, one process in which schedulers and runs take turns, and the launcher of logical replication.
	needed pg_catalog.int4 := 2 + least(pg_catalog.current_setting('max_logical_replication_workers')::pg_catalog.int4, 1);
	there pg_catalog.int4 := pg_catalog.current_setting('max_worker_processes');
BEGIN
	IF there < needed THEN
		RAISE WARNING 'max_worker_processes = % leaves no process for the runs of jobs', there
			USING DETAIL = pg_catalog.format('It must be %s at least: the launcher of pg_sweep, a process in which its scheduler and runs take turns%s.', needed, CASE needed WHEN 3 THEN ', and the launcher of logical replication' END),
				HINT = pg_catalog.format('Raise max_worker_processes, which needs a restart of the server, and have max_parallel_workers (%s) at most max_worker_processes - 3: parallel queries use the same processes.',
					pg_catalog.current_setting('max_parallel_workers'));
	END IF;
END
$$;
--
-- Processing a message only once, for consumers outside of the database.
--
-- Delivery is at least once: a message is delivered a second time if its acknowledgement is lost, or if the consumer takes longer
-- than its lease. A consumer notices this if it begins the transaction with its changes by sweep.begin_once.
--
CREATE TABLE sweep.once_key (
	role    text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	done_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	CONSTRAINT once_key_pkey PRIMARY KEY (role, key)
);
COMMENT ON TABLE sweep.once_key IS 'keys of committed transactions that began with sweep.begin_once, for pg_sweep.once_retention';
COMMENT ON COLUMN sweep.once_key.role IS 'name of the role: each role has keys of its own';
COMMENT ON COLUMN sweep.once_key.key IS 'the key, at most 1000 bytes';
COMMENT ON COLUMN sweep.once_key.done_at IS 'when the transaction began';
CREATE INDEX once_key_done_at ON sweep.once_key (done_at);
COMMENT ON INDEX sweep.once_key_done_at IS 'for the removal of old keys';
SELECT pg_catalog.pg_extension_config_dump('sweep.once_key', '');

CREATE FUNCTION sweep._begin_once(caller oid, key text) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF key IS NULL OR pg_catalog.octet_length(key) > 1000 THEN
		RAISE EXCEPTION 'key %', CASE WHEN key IS NULL THEN 'must not be null' ELSE pg_catalog.format('"%s..." is too long', pg_catalog.left(key, 40)) END
			USING ERRCODE = CASE WHEN key IS NULL THEN 'null_value_not_allowed' ELSE 'string_data_right_truncation' END,
				HINT = 'A key is at most 1000 bytes, for example the name of the queue and the id of the message.';
	END IF;
	-- The second of two transactions with the same key waits for the end of the first.
	INSERT INTO sweep.once_key (role, key) VALUES (sweep._role_name(caller), _begin_once.key)
		ON CONFLICT ON CONSTRAINT once_key_pkey DO NOTHING;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION sweep._begin_once(oid, text) IS 'implements sweep.begin_once';

CREATE FUNCTION sweep.begin_once(key text) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.begin_once(text) IS 'true when no committed transaction of this role has begun with this key before; the key is taken when this transaction commits';

-- Called by the scheduler, so it removes only a limited number of keys at a time.
CREATE FUNCTION sweep._forget_once() RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	forgotten bigint;
BEGIN
	DELETE FROM sweep.once_key WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM sweep.once_key o
		WHERE o.done_at < pg_catalog.now() - pg_catalog.current_setting('pg_sweep.once_retention')::interval ORDER BY o.done_at LIMIT 10000 FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS forgotten = ROW_COUNT;
	RETURN forgotten;
END
$$;
COMMENT ON FUNCTION sweep._forget_once() IS 'removes keys that are older than pg_sweep.once_retention';
--
-- Common parts of the makers of retention, backfill and copy: the table, and the statements of a batch, which is a range of an index (keys.sql).
-- ranges.c executes the statements, and documents their order.
--
-- Statements are built from names that were looked up and quoted, from values as constants, and from texts of the user that are checked to be
-- whole expressions. All operators and functions are qualified, because statements are executed with the search_path of the job. Parameters: $1
-- size, $2 cursor, $3 as_of, $4 last key of the batch as a cursor, $5 run_id, $6 and $7 places of rows and their tables.
--
CREATE TYPE sweep._statements AS (
	prologue     text,
	edge         text,
	rest         text,
	before       text,
	work         text,
	pick         text,
	roots        text,
	same_roots   text,
	epilogue     text,
	ordering     text,
	reads        text,
	key          text,
	part         text,
	next_part    text,
	counter      text,
	rest_counter text,
	checked      boolean,
	restarts     boolean,
	custom       boolean,
	optimistic   boolean,
	parts        text,
	cascading    oid
);
COMMENT ON TYPE sweep._statements IS 'the statements of a batch that is a range of keys';
COMMENT ON COLUMN sweep._statements.prologue IS 'executed before each batch; returns rows (not null: the batch is done), cursor and detail; NULL: none';
COMMENT ON COLUMN sweep._statements.edge IS 'returns the last key of the batch and, if keys are not unique, the next key, and whether both are equal';
COMMENT ON COLUMN sweep._statements.rest IS 'returns the last key of the remaining rows, and their number';
COMMENT ON COLUMN sweep._statements.before IS 'returns the greatest key that is smaller than $4';
COMMENT ON COLUMN sweep._statements.work IS 'deletes, moves, updates or copies the rows after the cursor up to $4';
COMMENT ON COLUMN sweep._statements.pick IS 'does the same with at most $1 rows whose key is $4';
COMMENT ON COLUMN sweep._statements.roots IS 'returns the places and keys of the rows of the range, if deleting them affects other rows; pick then deletes the rows at given places, and work is not used; NULL: no other rows are affected';
COMMENT ON COLUMN sweep._statements.same_roots IS 'the same for at most $1 rows whose key is $4; if no other rows are affected, finds whether there are such rows';
COMMENT ON COLUMN sweep._statements.epilogue IS 'executed when there are no rows after the cursor; returns whether rows are left, how many, how many of them are referred to (NULL: not counted), and a proof; NULL: not checked';
COMMENT ON COLUMN sweep._statements.ordering IS 'raises when the order of the key has changed since the cursor was set, or other columns are to be taken; NULL: not checked';
COMMENT ON COLUMN sweep._statements.reads IS 'raises when the key of the cursor has a value that its column does not accept; executed when edge has raised an error';
COMMENT ON COLUMN sweep._statements.key IS 'the columns of the key, as they are in the cursor';
COMMENT ON COLUMN sweep._statements.part IS 'the partition that the statements are for; NULL: the whole table';
COMMENT ON COLUMN sweep._statements.next_part IS 'the cursor with which the next partition begins; NULL: there is none';
COMMENT ON COLUMN sweep._statements.counter IS 'key of the detail for the number of rows done';
COMMENT ON COLUMN sweep._statements.rest_counter IS 'key of the detail for the number of rows read and left; NULL: not counted';
COMMENT ON COLUMN sweep._statements.checked IS 'whether work returns the number of its rows, and the key of a row that a later batch would do again';
COMMENT ON COLUMN sweep._statements.restarts IS 'whether a cursor of another key is discarded; otherwise it is an error';
COMMENT ON COLUMN sweep._statements.custom IS 'whether they are planned for each batch, because they join other tables and the best plan depends on the size of the range; NULL: no';
COMMENT ON COLUMN sweep._statements.optimistic IS 'whether rows that affect others are deleted without being locked before, because nothing but their own columns decides on them: no condition, policy or foreign key; NULL: no';
COMMENT ON COLUMN sweep._statements.parts IS 'array of the partitions that are processed one by one; NULL: none';
COMMENT ON COLUMN sweep._statements.cascading IS 'the table whose deleted rows affect other rows; NULL: none';

CREATE FUNCTION sweep._check_condition(condition text) RETURNS void
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_fragment_check_condition';
COMMENT ON FUNCTION sweep._check_condition(text) IS 'raises unless the text is a single expression without parameters';

-- A false match only costs one plan per batch.
CREATE FUNCTION sweep._has_select(fragment text) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(fragment COLLATE "C" ~* E'\\m(select|table|values)\\M', false);
END
$$;
COMMENT ON FUNCTION sweep._has_select(text) IS 'whether a condition, or what is set, may have a sub-select, so that its statements join other tables';

CREATE FUNCTION sweep._set_columns(assignments text) RETURNS text[]
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_fragment_set_columns';
COMMENT ON FUNCTION sweep._set_columns(text) IS 'the columns that are set; raises unless the text is a list of assignments, as after SET';

-- ------------------------------------------------------------------ the table
-- A name without a schema is looked up in the search_path of the caller, with the rights of the job's role, and stored with its schema.
CREATE FUNCTION sweep._find_table(argument text, name text, role oid) RETURNS regclass
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
	found pg_catalog.regclass;
	candidates pg_catalog.text;
BEGIN
	IF name IS NULL THEN
		RAISE EXCEPTION '% must not be null', argument USING ERRCODE = 'null_value_not_allowed', HINT = 'Name a table.';
	END IF;
	BEGIN
		parts := pg_catalog.parse_ident(name);
		-- Numbers (OIDs) are not accepted, nor are tables of pg_temp and pg_catalog.
		IF pg_catalog.cardinality(parts) = 2 THEN
			found := pg_catalog.to_regclass(name);
		ELSIF pg_catalog.cardinality(parts) = 1 AND role IS NOT NULL THEN
			SELECT c.oid INTO found FROM pg_catalog.unnest(sweep._caller_search_path()) WITH ORDINALITY AS p (name, nth)
					JOIN pg_catalog.pg_namespace n ON n.nspname = CASE p.name WHEN '$user' THEN sweep._role_name(role) ELSE p.name END
					JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = parts[1]
				WHERE n.nspname !~ '^pg_' AND pg_catalog.has_schema_privilege(role, n.oid, 'USAGE') ORDER BY p.nth LIMIT 1;
		END IF;
	EXCEPTION WHEN invalid_parameter_value OR invalid_name OR syntax_error THEN
		found := NULL;
	END;
	IF found IS NOT NULL THEN
		RETURN found;
	END IF;
	SELECT pg_catalog.string_agg(c.oid::pg_catalog.regclass::pg_catalog.text, ', ' ORDER BY c.oid::pg_catalog.regclass::pg_catalog.text) INTO candidates
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = pg_catalog.lower(name COLLATE "C") AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_';
	RAISE EXCEPTION 'table "%" does not exist', name USING ERRCODE = 'undefined_table',
		HINT = coalesce('Write the name with its schema: ' || candidates || '.', 'Write the name with its schema, for example: app.event.');
END
$$;
COMMENT ON FUNCTION sweep._find_table(text, text, oid) IS 'the table that an argument names; raises when there is none';

CREATE FUNCTION sweep._check_table(role text, relation regclass, privileges text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.record;
	missing pg_catalog.text;
	distributed boolean;
BEGIN
	SELECT c.relkind, c.relpersistence, n.nspname, CASE c.relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view'
			WHEN 'f' THEN 'a foreign table' WHEN 'S' THEN 'a sequence' WHEN 'i' THEN 'an index' WHEN 'I' THEN 'an index' ELSE 'a type' END AS word INTO known
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
	IF known.relkind NOT IN ('r', 'p') THEN
		RAISE EXCEPTION '% is %', relation, known.word USING ERRCODE = 'wrong_object_type',
			HINT = CASE known.relkind WHEN 'v' THEN 'Name the table that the view reads; batches go by an index of it.'
				WHEN 'f' THEN 'Create the job on the server where the table is; batches go by an index of it.'
				ELSE 'Name a table or a partitioned table.' END;
	END IF;
	IF known.relpersistence = 't' THEN
		RAISE EXCEPTION '% is a temporary table', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'A job runs in a session of its own, which does not see it.';
	END IF;
	PERFORM sweep._check_heirs(relation);
	-- For a distributed table some of the statements would find no rows, and the run would succeed.
	IF pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
		EXECUTE 'SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = $1)' INTO distributed USING relation;
		IF distributed THEN
			RAISE EXCEPTION '% is a table of Citus', relation USING ERRCODE = 'feature_not_supported',
				DETAIL = 'The rows of a batch are found by statements that Citus does not distribute.', HINT = 'Create a job with batch_sql, or with a step.';
		END IF;
	END IF;
	IF NOT pg_catalog.has_schema_privilege(sweep._role_oid(role), known.nspname, 'USAGE') THEN
		RAISE EXCEPTION 'role "%" may not use schema "%"', role, known.nspname USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I;', known.nspname, role);
	END IF;
	SELECT pg_catalog.string_agg(p, ', ') INTO missing FROM pg_catalog.unnest(privileges) AS p
		WHERE NOT pg_catalog.has_table_privilege(sweep._role_oid(role), relation, p)
			-- A right on some columns may be enough; the statement itself raises if it is not.
			AND (p = 'DELETE' OR NOT pg_catalog.has_any_column_privilege(sweep._role_oid(role), relation, p));
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION 'role "%" lacks privileges on %: %', role, relation, missing USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT %s ON %s TO %I;', missing, relation, role);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_table(text, regclass, text[]) IS 'raises unless it is a table that the role can process in batches';

CREATE FUNCTION sweep._column_list(columns text[]) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n));
END
$$;
COMMENT ON FUNCTION sweep._column_list(text[]) IS 'a list of quoted names, separated by commas';

CREATE FUNCTION sweep._qualified_list(alias text, columns text[]) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', alias, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n));
END
$$;
COMMENT ON FUNCTION sweep._qualified_list(text, text[]) IS 'the same, each with the alias of its table';

CREATE FUNCTION sweep._table_name(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._table_name(regclass) IS 'its name with its schema, quoted';

CREATE FUNCTION sweep._relation_name(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._relation_name(regclass) IS 'its name alone, as it is: the alias that it has in the statements';

-- The alias is the name of the table, also for a partition, so that texts of the user have the same meaning.
CREATE FUNCTION sweep._source(relation regclass, part regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%s AS %I', sweep._table_name(coalesce(part, relation)), c.relname) FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._source(regclass, regclass) IS 'the FROM item for a table, or for a partition of it';

CREATE FUNCTION sweep._job_meaning(role text, settings jsonb) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Settings that are no JSON object are ignored here; they are refused when the job is created.
	RETURN sweep._run_meaning(sweep._role_oid(role), CASE pg_catalog.jsonb_typeof(settings) WHEN 'object' THEN settings END);
END
$$;
COMMENT ON FUNCTION sweep._job_meaning(text, jsonb) IS 'the settings that decide the meaning of texts in a job that is being created';

CREATE FUNCTION sweep._check_fragment(role text, statement text, settings jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	meaning constant pg_catalog.jsonb := sweep._job_meaning(role, settings);
BEGIN
	PERFORM sweep._check_batch_sql(sweep._role_oid(role), statement, meaning);
EXCEPTION WHEN undefined_table OR undefined_function OR undefined_object THEN
	RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE,
		HINT = pg_catalog.format('Write names with their schema%s. The job would run with search_path %s.',
			CASE SQLSTATE WHEN '42P01' THEN ', and columns of the target with its name alone, as in event.id' END, meaning ->> 'search_path');
END
$$;
COMMENT ON FUNCTION sweep._check_fragment(text, text, jsonb) IS 'analyses a statement that contains a text of the user, as the role of the job and with its settings';

CREATE FUNCTION sweep._range(relation regclass, columns text[], first boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN first THEN '' ELSE sweep._key_compare(relation, columns, '>', '$2') || ' AND ' END || sweep._key_compare(relation, columns, '<=', '$4'));
END
$$;
COMMENT ON FUNCTION sweep._range(regclass, text[], boolean) IS 'a condition: the row is in the batch, which is after the cursor, if any, up to its last key';

-- The statements that find the edge of a batch among the rows that match the filter. JSON is built outside of the subquery, for
-- one row only, and not for each row that is skipped.
CREATE FUNCTION sweep._edge_statements(relation regclass, part regclass, columns text[], nulls text[], filter text, first boolean) RETURNS sweep._statements
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	is_unique constant boolean := sweep._is_unique(coalesce(part, relation), columns);
	json constant pg_catalog.text := sweep._key_json(relation, columns, sweep._table_name(part));
	behind constant pg_catalog.text := pg_catalog.format('SELECT %s FROM %s WHERE %s', sweep._key_list(relation, columns),
		sweep._source(relation, part), filter || CASE WHEN first THEN '' ELSE ' AND ' || sweep._key_compare(relation, columns, '>', '$2') END);
	upwards constant pg_catalog.text := sweep._key_order(relation, columns, nulls, false);
BEGIN
	made.key := pg_catalog.array_to_string(columns, ', ');
	-- Compares values, because equal keys may have different texts.
	made.edge := pg_catalog.format('SELECT %s%s FROM (%s ORDER BY %s OFFSET ($1 OPERATOR(pg_catalog.-) 1) LIMIT %s) AS k',
		json, CASE WHEN NOT is_unique THEN (SELECT ', ' || pg_catalog.string_agg(pg_catalog.format('k.sweep_%1$s OPERATOR(pg_catalog.=) pg_catalog.lag(k.sweep_%1$s) OVER ()', n), ' AND ')
			FROM pg_catalog.generate_subscripts(columns, 1) AS n) END, behind, upwards, CASE WHEN is_unique THEN 1 ELSE 2 END);
	-- builds JSON only for the last row
	made.rest := pg_catalog.format('SELECT %s, k.sweep_count FROM (SELECT * FROM (SELECT *, pg_catalog.row_number() OVER () AS sweep_count FROM (%s ORDER BY %s LIMIT $1) AS b) AS n'
		' ORDER BY sweep_count DESC LIMIT 1) AS k', json, behind, upwards);
	IF NOT is_unique THEN
		made.before := pg_catalog.format('SELECT %s FROM (%s AND %s ORDER BY %s LIMIT 1) AS k', json, behind,
			sweep._key_compare(relation, columns, '<', '$4'), sweep._key_order(relation, columns, nulls, true));
	END IF;
	made.reads := pg_catalog.format('SELECT sweep._read_key(%L, %L, $2)', relation::pg_catalog.oid, columns);
	made.part := sweep._table_name(part);
	made.checked := false;
	made.restarts := true;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._edge_statements(regclass, regclass, text[], text[], text, boolean) IS
	'the statements that find the edge of a batch among the rows of a table, or of a part of it, for which the filter holds: after the cursor or, first, from the start';

-- The columns of the primary key, or those that are named: a unique index must have them in this order.
CREATE FUNCTION sweep._ordered_key(relation regclass, order_by text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wanted pg_catalog.text[];
BEGIN
	IF order_by IS NULL THEN
		SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n) INTO wanted
			FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n]
			WHERE i.indrelid = relation AND i.indisprimary;
		IF wanted IS NULL THEN
			RAISE EXCEPTION '% has no primary key', relation USING ERRCODE = 'invalid_parameter_value',
				HINT = 'Name in order_by the columns of a unique index, none of which may be null.';
		END IF;
	ELSE
		BEGIN
			SELECT pg_catalog.array_agg(CASE WHEN pg_catalog.cardinality(p.parts) = 1 THEN p.parts[1] END ORDER BY p.n) INTO wanted
				FROM (SELECT u.n, pg_catalog.parse_ident(pg_catalog.btrim(u.name)) AS parts
					FROM pg_catalog.string_to_table(order_by, ',') WITH ORDINALITY AS u (name, n)) AS p;
		EXCEPTION WHEN invalid_parameter_value THEN
			wanted := NULL;
		END;
	END IF;
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = relation AND k.columns = wanted AND sweep._is_unique(relation, wanted)
			AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = wanted[1] AND sweep._never_null(relation, a.attnum)) ORDER BY i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no unique index by which to go through it in the order of (%)', relation,
				coalesce(order_by, pg_catalog.array_to_string(wanted, ', ')) USING ERRCODE = 'invalid_parameter_value',
			HINT = 'It is a btree index of these columns and no others, of types of PostgreSQL, all NOT NULL and in one direction, without a WHERE. Name its columns in order_by.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._ordered_key(regclass, text) IS 'the columns of the index that gives the order of the batches, and where its nulls are; raises when there is no such index';
--
-- Keys of the makers: the columns or the expression of an index, their values in a cursor, and their order.
--
CREATE FUNCTION sweep._index_expression(index oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	definition constant pg_catalog.text := pg_catalog.pg_get_indexdef(index, 1, false);
BEGIN
	-- pg_get_indexdef() writes a function call without parentheses around it.
	RETURN CASE WHEN definition LIKE '(%' THEN definition ELSE pg_catalog.format('(%s)', definition) END;
END
$$;
COMMENT ON FUNCTION sweep._index_expression(oid) IS 'the expression with which an index begins, in parentheses, with qualified names';

-- PL/pgSQL although it is one expression: a function in SQL is planned at each call, and these are called for each partition.
-- Since version 18 a NOT NULL constraint may be NOT VALID: older rows may have a null.
CREATE FUNCTION sweep._never_null(relation oid, attnum int) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attnum = _never_null.attnum AND a.attnotnull
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.conrelid = relation AND c.contype = 'n' AND NOT c.convalidated AND c.conkey[1] = a.attnum));
END
$$;
COMMENT ON FUNCTION sweep._never_null(oid, int) IS 'whether no row of a table has a null in a column; false for no column';

-- In an array, a row or a range, a regclass or the like is written as a name, which may later be that of no object, or of several.
CREATE FUNCTION sweep._has_names(type oid) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (WITH RECURSIVE part AS (
			SELECT _has_names.type AS oid
			UNION SELECT m.oid FROM part p JOIN pg_catalog.pg_type t ON t.oid = p.oid CROSS JOIN LATERAL (SELECT t.typelem UNION ALL SELECT t.typbasetype
				UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
				UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)) AS m (oid) WHERE m.oid <> 0)
		SELECT pg_catalog.bool_or(e.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND e.typname ~ '^reg') FROM part p JOIN pg_catalog.pg_type e ON e.oid = p.oid);
END
$$;
COMMENT ON FUNCTION sweep._has_names(oid) IS 'whether the text of a value of this type has names of objects: of a regclass or the like, or of a type with such a part';

-- Only columns with a default operator class of pg_catalog and their own collation, all in one direction: then a row comparison
-- is a range of the index. The first column may be nullable (a null is in no range) and may be an expression; the others may not.
CREATE FUNCTION sweep._index_key(index oid, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.array_agg(p.attname ORDER BY p.n), pg_catalog.array_agg(p.nulls ORDER BY p.n) INTO columns, nulls
		FROM (SELECT k.n, coalesce(a.attname::pg_catalog.text, CASE WHEN k.n = 0 THEN sweep._index_expression(index) END) AS attname,
				CASE WHEN (i.indoption[k.n] & 2 = 2) <> (i.indoption[k.n] & 1 = 1) THEN 'first' ELSE 'last' END AS nulls,
				pg_catalog.bool_and((k.n = 0 OR sweep._never_null(i.indrelid, a.attnum)) AND i.indoption[k.n] & 1 = i.indoption[0] & 1
					AND o.opcdefault AND o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace AND i.indcollation[k.n] = coalesce(a.attcollation, 0::pg_catalog.oid)
					-- PostgreSQL has no operators for a domain of an enum.
					AND (o.opcintype = 'pg_catalog.anyenum'::pg_catalog.regtype AND t.typtype = 'd' OR t.typcategory IN ('A', 'C', 'R') AND sweep._has_names(t.oid)) IS NOT TRUE) OVER (ORDER BY k.n) AS fits
			FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
				LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n] AND a.attnum > 0
				LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[k.n]
			WHERE i.indexrelid = index AND i.indisvalid AND i.indisready AND i.indislive AND i.indpred IS NULL) AS p
			JOIN pg_catalog.pg_class c ON c.oid = index JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname = 'btree'
		WHERE p.fits;
END
$$;
COMMENT ON FUNCTION sweep._index_key(oid) IS 'the leading columns of an index that can be read in ranges, the first of which may be an expression in parentheses, and where their nulls are; NULL: none';

CREATE FUNCTION sweep._is_unique(relation regclass, columns text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = relation AND i.indisunique AND i.indimmediate AND i.indisvalid
		AND i.indpred IS NULL AND i.indexprs IS NULL
		AND NOT EXISTS (SELECT FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = relation AND a.attnum = i.indkey[k.n] WHERE a.attname::pg_catalog.text <> ALL (columns) OR a.attcollation <> i.indcollation[k.n])));
END
$$;
COMMENT ON FUNCTION sweep._is_unique(regclass, text[]) IS 'whether no two rows without nulls have the same values in these columns';

-- In a cursor, a value of the key must be text from which the same value can be read. That is not so for the JSON of an array, a row or a jsonb,
-- nor for a floating-point number with the extra_float_digits of a role, nor for a range of timestamps in its DateStyle, in which the
-- abbreviation of a time zone may be read as another zone, nor for money: lc_monetary decides as what amount its text is read, and how many
-- decimals the money of a number has.
CREATE FUNCTION sweep._key_value(value anyelement) RETURNS jsonb
	LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET lc_monetary = 'C'
AS $$
BEGIN
	RETURN pg_catalog.to_jsonb(pg_catalog.format('%s', value));
END
$$;
COMMENT ON FUNCTION sweep._key_value(anyelement) IS 'the value of a key column for a cursor, if plain JSON is not enough';

-- With array_nulls off, a null in an array would be read as a text. In any DateStyle and IntervalStyle the texts above have the same meaning.
CREATE FUNCTION sweep._read_value(value text, type anyelement) RETURNS anyelement
	LANGUAGE c STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET array_nulls = on SET lc_monetary = 'C' AS 'MODULE_PATHNAME', 'sweep_range_read_value';
COMMENT ON FUNCTION sweep._read_value(text, anyelement) IS 'the value that sweep._key_value has written; type: a null of its type';

-- name: a column, or an expression as PostgreSQL writes it, in parentheses. COLLATE is added if the collation is not that of the type.
CREATE FUNCTION sweep._key_expression(relation regclass, name text, OUT expression text, OUT type text, OUT value_format text, OUT read_format text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT k.expression, sweep._type_name(k.atttypid, k.atttypmod)
			|| coalesce((SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, c.collname) FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
				WHERE c.oid = k.attcollation AND t.typtype = 'd' AND c.oid <> t.typcollation), ''),
			-- A key of regclass or the like is kept as OID: its name may by then be that of no object, or of several.
			CASE WHEN b.is_named THEN '(%s)::pg_catalog.oid' WHEN b.is_special THEN 'sweep._key_value(%s)' ELSE '%s' END,
			CASE WHEN b.is_named THEN '%s::pg_catalog.oid::' WHEN b.is_special THEN pg_catalog.format('sweep._read_value(%%s, NULL::%s)::', pg_catalog.replace(sweep._type_name(b.oid, -1), '%', '%%')) ELSE '%s::' END
		INTO expression, type, value_format, read_format
		FROM (SELECT pg_catalog.format('%I.%I', sweep._relation_name(relation), name) AS expression, a.atttypid, a.atttypmod, a.attcollation
				FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped
			UNION ALL SELECT name, a.atttypid, a.atttypmod, a.attcollation FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = 1
				WHERE i.indrelid = relation AND i.indkey[0] = 0 AND sweep._index_expression(i.indexrelid) = name) AS k
			JOIN pg_catalog.pg_type t ON t.oid = k.atttypid CROSS JOIN LATERAL (SELECT e.oid, e.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND e.typname ~ '^reg',
					t.typtype = 'd' OR t.typcategory IN ('A', 'C', 'R') OR t.oid IN ('pg_catalog.jsonb'::pg_catalog.regtype, 'pg_catalog.float4'::pg_catalog.regtype, 'pg_catalog.float8'::pg_catalog.regtype,
						'pg_catalog.interval'::pg_catalog.regtype, 'pg_catalog.money'::pg_catalog.regtype)
				FROM pg_catalog.pg_type e WHERE e.oid = sweep._base_type(t.oid)) AS b (oid, is_named, is_special) LIMIT 1;
	read_format := read_format || pg_catalog.replace(type, '%', '%%');
END
$$;
COMMENT ON FUNCTION sweep._key_expression(regclass, text) IS
	'a column of the key in a statement, its type, and the formats to write its value into a cursor and to read it; NULL: the table has neither the column nor an index that begins with the expression';

CREATE FUNCTION sweep._key_list(relation regclass, columns text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s AS sweep_%s', e.expression, u.n), ', ' ORDER BY u.n)
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e);
END
$$;
COMMENT ON FUNCTION sweep._key_list(regclass, text[]) IS 'the columns of a subquery k that sweep._key_json reads';

-- The next functions return SQL texts: the key of a cursor, and comparisons with it.
CREATE FUNCTION sweep._key_compare(relation regclass, columns text[], operator text, source text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE pg_catalog.cardinality(columns) WHEN 1 THEN pg_catalog.min(k.name) || o.compare || pg_catalog.min(k.value)
			ELSE pg_catalog.format('ROW(%s)%sROW(%s)', pg_catalog.string_agg(k.name, ', ' ORDER BY k.n), o.compare, pg_catalog.string_agg(k.value, ', ' ORDER BY k.n))
			-- Repeats the condition for the first column alone, because the planner needs it for partition pruning.
			|| CASE operator WHEN '=' THEN '' ELSE pg_catalog.format(' AND %s OPERATOR(pg_catalog.%s=) %s', pg_catalog.min(k.name) FILTER (WHERE k.n = 1),
				pg_catalog.left(operator, 1), pg_catalog.min(k.value) FILTER (WHERE k.n = 1)) END END
		FROM (SELECT u.n, e.expression AS name, pg_catalog.format('(' || e.read_format || ')', pg_catalog.format('(%s OPERATOR(pg_catalog.#>>) ''{after,%s}'')', source, u.n - 1)) AS value
				FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e) AS k,
			(SELECT pg_catalog.format(' OPERATOR(pg_catalog.%s) ', operator) AS compare) AS o
		GROUP BY o.compare);
END
$$;
COMMENT ON FUNCTION sweep._key_compare(regclass, text[], text, text) IS 'a condition: the key of a row is greater or less than, or equal to, that of a cursor';

CREATE FUNCTION sweep._key_values(relation regclass, columns text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('pg_catalog.jsonb_build_array(%s)', pg_catalog.string_agg(pg_catalog.format(e.value_format, 'k.sweep_' || u.n), ', ' ORDER BY u.n))
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e);
END
$$;
COMMENT ON FUNCTION sweep._key_values(regclass, text[]) IS 'an expression: the key of row k as a JSON array';

CREATE FUNCTION sweep._key_json(relation regclass, columns text[], part text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('pg_catalog.jsonb_build_object(''by'', %1$L, ''after'', %3$s%2$s)',
			pg_catalog.array_to_string(columns, ', '), ', ''part'', ' || pg_catalog.quote_literal(part), sweep._key_values(relation, columns));
END
$$;
COMMENT ON FUNCTION sweep._key_json(regclass, text[], text) IS 'an expression: the key of row k as a cursor, of a partition or not';

CREATE FUNCTION sweep._key_order(relation regclass, columns text[], nulls text[], down boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s %s NULLS %s', e.expression, CASE WHEN down THEN 'DESC' ELSE 'ASC' END,
			CASE WHEN (nulls[u.n] = 'first') <> down THEN 'FIRST' ELSE 'LAST' END), ', ' ORDER BY u.n)
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e);
END
$$;
COMMENT ON FUNCTION sweep._key_order(regclass, text[], text[], boolean) IS 'the ORDER BY list, from the smallest key on, or (down) from the largest';

-- With another collation or type the keys have another order, and other keys are after the cursor or up to a bound. The order stays the same
-- when integers or texts get a longer type.
CREATE FUNCTION sweep._key_ordering(relation text, key text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s.%s: %s%s', a.attrelid, a.attnum,
			CASE WHEN a.atttypid IN ('pg_catalog.int2'::pg_catalog.regtype, 'pg_catalog.int4'::pg_catalog.regtype) THEN 'bigint' WHEN a.atttypid = 'pg_catalog.varchar'::pg_catalog.regtype THEN 'text' ELSE pg_catalog.format_type(a.atttypid, NULL) END,
			CASE WHEN a.attcollation <> 0 THEN ' COLLATE ' || a.attcollation::pg_catalog.regcollation ELSE '' END), ', ' ORDER BY pg_catalog.array_position(key, a.attname::pg_catalog.text))
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = pg_catalog.to_regclass(relation) AND a.attname = ANY (key));
END
$$;
COMMENT ON FUNCTION sweep._key_ordering(text, text[]) IS 'what decides the order of a key: its columns, with their types and collations';

-- Another table may have that name, also after a restore; then the columns have other numbers.
CREATE FUNCTION sweep._check_ordering(relation text, key text[], cursor jsonb, advice text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns constant pg_catalog.text := E'[0-9]+\\.[0-9]+: ';
	known constant pg_catalog.text := cursor ->> 'ordering';
	ordering constant pg_catalog.text := sweep._key_ordering(relation, key);
	order_before constant pg_catalog.text := pg_catalog.regexp_replace(known, columns, '', 'g');
	order_now constant pg_catalog.text := pg_catalog.regexp_replace(ordering, columns, '', 'g');
BEGIN
	-- An older version stored no order for keys that are numbers.
	IF order_before <> order_now OR order_before = order_now AND known <> ordering AND pg_catalog.split_part(known, '.', 1) = pg_catalog.split_part(ordering, '.', 1)
			OR known IS NULL AND EXISTS (SELECT FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_attribute a ON a.attrelid = pg_catalog.to_regclass(relation) AND a.attname = u.name AND a.attcollation <> 0
				WHERE pg_catalog.jsonb_typeof(cursor -> 'after' -> (u.n - 1)::int) = 'number') THEN
		RAISE EXCEPTION 'the keys of % have another order since the job began', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = CASE WHEN order_before = order_now THEN pg_catalog.format('(%s) is of other columns than before', sweep._column_list(key)) ELSE pg_catalog.format('(%s) was %s, and is %s', sweep._column_list(key), coalesce(order_before, 'a number'), order_now) END
				|| ': it cannot be known which rows are done.',
			HINT = advice;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_ordering(text, text[], jsonb, text) IS 'raises when the order of the key of a cursor has changed; advice: the hint';
--
-- Common parts of the functions that make jobs: the name, the settings and the role of the job, and its start.
--
-- pg_partition_tree has no row for an ordinary table. reltuples is -1 for a table that was never analysed: its size is not known.
CREATE FUNCTION sweep._rows_estimate(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('SELECT pg_catalog.sum(c.reltuples) FROM (SELECT %1$L::pg_catalog.regclass AS relid'
		' UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(%1$L) AS p) AS t'
		' JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) t.relid'
		' WHERE c.relkind OPERATOR(pg_catalog.=) ''r'' AND c.reltuples OPERATOR(pg_catalog.>=) 0', sweep._table_name(relation));
END
$$;
COMMENT ON FUNCTION sweep._rows_estimate(regclass) IS 'the estimate for a job: a query of the number of rows of a table and its partitions, by their statistics';

CREATE FUNCTION sweep._fitting_name(stem text, suffix text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	WHILE pg_catalog.octet_length(stem || suffix) > 63 LOOP
		stem := pg_catalog.left(stem, -1);
	END LOOP;
	RETURN stem || suffix;
END
$$;
COMMENT ON FUNCTION sweep._fitting_name(text, text) IS 'stem and suffix as a name; the stem is truncated if the name would be too long';

CREATE FUNCTION sweep._maker_name(word text, relation regclass, suffix text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN sweep._fitting_name(pg_catalog.format('%s_%s', word, sweep._relation_name(relation)), suffix);
END
$$;
COMMENT ON FUNCTION sweep._maker_name(text, regclass, text) IS 'the name of a job for which none was given';

CREATE FUNCTION sweep._begin_maker(caller oid, job sweep.job_definition, word text, relation regclass, run_as regrole) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	job.name := coalesce(job.name, sweep._maker_name(word, relation, ''));
	job.run_as := sweep._role_name(coalesce(run_as::pg_catalog.oid, caller));
	PERFORM sweep._check_role(caller, job);
	job.step := pg_catalog.format('sweep.%s_step', word);
	IF NOT pg_catalog.has_function_privilege(sweep._role_oid(job.run_as), job.step || '(sweep.batch)', 'EXECUTE') THEN
		RAISE EXCEPTION 'role "%" may not run job "%"', job.run_as, job.name USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT sweep_user TO %I;', job.run_as);
	END IF;
	IF job.schedule IS NULL THEN
		job.timezone := NULL;
	END IF;
	-- All other settings have the defaults of sweep.create_job.
	RETURN pg_catalog.jsonb_populate_record(NULL::sweep.job_definition, sweep._job_defaults() || (SELECT pg_catalog.jsonb_object_agg(e.key, e.value)
		FROM pg_catalog.jsonb_each(pg_catalog.to_jsonb(job)) AS e WHERE e.value <> 'null'));
END
$$;
COMMENT ON FUNCTION sweep._begin_maker(oid, sweep.job_definition, text, regclass, regrole) IS 'completes the settings of a job that is being created, and raises unless the caller may create it for that role';

CREATE FUNCTION sweep._can_start(name text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT sweep._has_workers() THEN
		RAISE NOTICE 'job "%" is not started: pg_sweep is not loaded at server start', name USING HINT = pg_catalog.format('CALL sweep.run(%L);', name);
		RETURN false;
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._can_start(text) IS 'whether a new job can be started here; raises a NOTICE if not';

CREATE FUNCTION sweep._start_maker(job sweep.job_definition, paused boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep.start(job.name) WHERE job.schedule IS NULL AND NOT paused AND sweep._can_start(job.name);
END
$$;
COMMENT ON FUNCTION sweep._start_maker(sweep.job_definition, boolean) IS 'starts a job that runs once, unless it is paused or has a schedule';

-- The run_id is given, because the name of the job may contain it.
CREATE FUNCTION sweep._start_once(job sweep.job_definition, run_id bigint, keep_job boolean) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep.job_state AS s SET goes_with_history = NOT keep_job WHERE s.job = job.name;
	IF NOT sweep._can_start(job.name) THEN
		RETURN NULL;
	END IF;
	INSERT INTO sweep.run_live (run_id, job, run_as, trigger, due_at) OVERRIDING SYSTEM VALUE VALUES (run_id, job.name, job.run_as, 'manual', pg_catalog.clock_timestamp());
	PERFORM sweep._wake(), sweep._warn_no_scheduler(pg_catalog.format('run %s of job "%s" waits', run_id, job.name));
	RETURN run_id;
END
$$;
COMMENT ON FUNCTION sweep._start_once(sweep.job_definition, bigint, boolean) IS 'starts a job that was created for one run; returns the run_id; NULL: it cannot be started here';

CREATE FUNCTION sweep._owns(role oid, owner oid) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.pg_has_role(role, owner, 'USAGE') AND (o.rolsuper OR NOT r.rolsuper) FROM pg_catalog.pg_roles r, pg_catalog.pg_roles o WHERE r.oid = role AND o.oid = owner);
END
$$;
COMMENT ON FUNCTION sweep._owns(oid, oid) IS 'whether a role acts for an owner and may execute code of its objects: a superuser may only for another superuser';
--
-- parallel => n: the table of a job is divided into ranges of its key, on which several shares work at the same time.
--
-- The keys that separate the ranges come from a sorted sample of pages of the table. This needs neither statistics nor a numeric key,
-- and the sample has only rows that the role sees and that meet the condition. The sample only decides how even the ranges are: the
-- first range has no lower bound and the last one no upper bound, so that all ranges together cover the table.
--
-- jit is off because the query of the sample has a high estimated cost, and its compilation would take longer than its execution.
CREATE FUNCTION sweep.range_count(b sweep.batch) RETURNS int
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET jit = off AS 'MODULE_PATHNAME', 'sweep_range_count';
COMMENT ON FUNCTION sweep.range_count(sweep.batch) IS 'buckets_function of jobs with parallel: divides the table when a run begins';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep._divide(job sweep.job_definition, parallel int) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	most constant int := 64;
	wrong pg_catalog.text;
BEGIN
	IF parallel IS NULL OR parallel < 1 OR parallel > most THEN
		RAISE EXCEPTION 'invalid parallel %', coalesce(parallel::pg_catalog.text, 'NULL') USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('It must be between 1 and %s: how many processes work on the table at a time.', most);
	END IF;
	IF parallel = 1 THEN
		RETURN job;
	END IF;
	wrong := CASE WHEN job.max_batches IS NOT NULL THEN 'max_batches' WHEN job.max_rows IS NOT NULL THEN 'max_rows' WHEN job.stop_after IS NOT NULL THEN 'stop_after' END;
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION '% has no meaning with parallel => %', wrong, parallel USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'It would end the work on one range, and not that on the table.', HINT = pg_catalog.format('Leave %s out, or parallel.', wrong);
	END IF;
	-- Several ranges per process, because they are not equally long, and one bucket for the final check.
	job.buckets := 4 * parallel + 1;
	job.buckets_function := 'sweep.range_count';
	job.max_attempts := coalesce(job.max_attempts, 3);
	job.args := pg_catalog.jsonb_build_object('parallel', parallel);
	RETURN job;
END
$$;
COMMENT ON FUNCTION sweep._divide(sweep.job_definition, int) IS 'the job with the settings for that many processes; raises when it cannot be divided';

CREATE FUNCTION sweep._kept_by(job sweep.job_definition) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Each range keeps its own cursor.
	RETURN CASE WHEN job.buckets IS NULL THEN 'drain' ELSE 'run' END;
END
$$;
COMMENT ON FUNCTION sweep._kept_by(sweep.job_definition) IS 'the setting cursor of a job whose next run goes on where a run has stopped';

-- ------------------------------------------------------------------ the statements of a range
CREATE FUNCTION sweep._in_range(relation regclass, range jsonb, again boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(range -> 'by'));
	edge pg_catalog.record;
	bounds pg_catalog.text := '';
BEGIN
	-- The last bucket has no range: it only checks whether anything is left.
	IF range ? 'final' THEN
		RETURN CASE WHEN again THEN '' ELSE ' AND false' END;
	END IF;
	FOR edge IN SELECT k.key, CASE k.key WHEN 'after' THEN '>' ELSE '<=' END AS operator FROM pg_catalog.jsonb_object_keys(range) AS k (key) WHERE k.key IN ('after', 'upto') LOOP
		bounds := bounds || ' AND ' || sweep._key_compare(relation, columns, edge.operator,
			pg_catalog.format('%L::pg_catalog.jsonb', pg_catalog.jsonb_build_object('after', range -> edge.key)));
	END LOOP;
	RETURN bounds;
END
$$;
COMMENT ON FUNCTION sweep._in_range(regclass, jsonb, boolean) IS 'text to add to a condition: the row is in the range of a share; empty without a range';

CREATE FUNCTION sweep._looks_at_rest(args jsonb) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN NOT args ? 'range' OR args -> 'range' ? 'final';
END
$$;
COMMENT ON FUNCTION sweep._looks_at_rest(jsonb) IS 'whether a run checks at its end what is left in the whole table';

-- ------------------------------------------------------------------ division
-- If the first sample finds few rows, a second one reads ten times as many pages. The number of ranges is reduced to one per process if they
-- would have less than a hundred batches each, and further if they would have less than one batch.
CREATE FUNCTION sweep._separators(relation regclass, columns text[], filter text, ranges int, batch_size int, prologue text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	pages constant pg_catalog.numeric := 500;
	few constant int := 100;
	all_pages constant pg_catalog.numeric := (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(t.id)), 0) / pg_catalog.current_setting('block_size')::int
		FROM (SELECT relation AS id UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(relation) AS p) AS t);
	percent constant pg_catalog.numeric := least(pages * 100 / greatest(all_pages, 1), 100);
	sample constant pg_catalog.text := pg_catalog.format('SELECT %s, %%s::pg_catalog.int8 AS weight FROM %s TABLESAMPLE SYSTEM (%%s) WHERE %s AND (%s) IS NOT NULL',
		pg_catalog.replace(sweep._key_list(relation, columns), '%', '%%'), pg_catalog.replace(sweep._source(relation, NULL), '%', '%%'), pg_catalog.replace(filter, '%', '%%'),
		pg_catalog.replace((sweep._key_expression(relation, columns[1])).expression, '%', '%%'));
	names constant pg_catalog.text := (SELECT pg_catalog.string_agg('k.sweep_' || n, ', ' ORDER BY n) FROM pg_catalog.generate_subscripts(columns, 1) AS n);
	found constant pg_catalog.text := '(SELECT n.rows FROM sweep_size AS n)';
	place constant pg_catalog.text := '((%s) OPERATOR(pg_catalog.*) k.ranges OPERATOR(pg_catalog./) k.sampled)';
BEGIN
	RETURN pg_catalog.format('WITH sweep_few AS MATERIALIZED (%s), sweep_many AS MATERIALIZED (%s AND (SELECT pg_catalog.count(*) FROM sweep_few) OPERATOR(pg_catalog.<) %s), ',
			pg_catalog.format(sample, pg_catalog.ceil(100 / percent), percent), pg_catalog.format(sample, pg_catalog.ceil(100 / least(percent * 10, 100)), least(percent * 10, 100)),
			CASE WHEN percent < 100 THEN few * ranges ELSE 0 END)
		|| 'sweep_found AS MATERIALIZED (SELECT * FROM sweep_many UNION ALL SELECT * FROM sweep_few WHERE NOT EXISTS (SELECT FROM sweep_many)), '
			'sweep_size AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM sweep_found), '
		-- For even ranges, the rows should come from many pages, rather than many rows from few pages.
		|| pg_catalog.format('sweep_rows AS (SELECT * FROM sweep_found WHERE pg_catalog.random() OPERATOR(pg_catalog.*) %s OPERATOR(pg_catalog.<=) %s), ', found, 1000 * ranges)
		|| pg_catalog.format('sweep_placed AS (SELECT k.*, least(%1$s, greatest(1, least(k.batches, greatest(%1$s OPERATOR(pg_catalog./) 4, k.batches OPERATOR(pg_catalog./) 100)))) AS ranges'
			' FROM (SELECT k.*, %4$s OPERATOR(pg_catalog.*) k.weight OPERATOR(pg_catalog./) %2$s AS batches'
			' FROM (SELECT k.*, pg_catalog.row_number() OVER (ORDER BY %3$s) AS place, pg_catalog.count(*) OVER () AS sampled FROM sweep_rows AS k) AS k) AS k)', ranges, batch_size, names, found)
		|| pg_catalog.format(' SELECT (SELECT pg_catalog.jsonb_agg(s.key ORDER BY s.place) FROM (SELECT %s AS key, pg_catalog.min(k.place) AS place'
			' FROM sweep_placed AS k WHERE k.place OPERATOR(pg_catalog.<) k.sampled AND %s OPERATOR(pg_catalog.<>) %s GROUP BY 1) AS s), %s',
			sweep._key_values(relation, columns), pg_catalog.format(place, 'k.place'), pg_catalog.format(place, 'k.place OPERATOR(pg_catalog.-) 1'),
			coalesce('(SELECT p.cursor FROM (' || prologue || ') AS p (rows, cursor, detail))', 'NULL::pg_catalog.jsonb'));
END
$$;
COMMENT ON FUNCTION sweep._separators(regclass, text[], text, int, int, text) IS
	'a query: the keys that separate the ranges of a table, and the cursor with which each range begins, which a prologue makes';

CREATE FUNCTION sweep._division(job text, args jsonb, role oid, OUT columns text[], OUT query text) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job_definition;
	relation pg_catalog.regclass;
	filter pg_catalog.text := 'true';
	prologue pg_catalog.text;
BEGIN
	SELECT * INTO j FROM sweep.job_definition d WHERE d.name = job;
	relation := CASE j.step WHEN 'sweep.copy_step' THEN sweep._find_table('source', args ->> 'source', NULL) ELSE sweep._find_table('target', args ->> 'target', NULL) END;
	CASE j.step
		WHEN 'sweep.retention_step' THEN
			SELECT k.columns, d.due INTO columns, filter FROM sweep._due_rows(relation, args, role) AS d CROSS JOIN LATERAL sweep._age_key(relation, d.age) AS k;
		WHEN 'sweep.backfill_step', 'sweep.copy_step' THEN
			columns := (sweep._ordered_key(relation, args ->> 'order_by')).columns;
			prologue := CASE j.step WHEN 'sweep.copy_step' THEN sweep._copy_prologue(relation, sweep._find_table('target', args ->> 'target', NULL), columns) END;
		WHEN 'sweep.delete_step', 'sweep.update_step' THEN
			columns := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(args -> 'key'));
			prologue := (sweep._run_bound(relation, columns)).prologue;
			IF args ->> 'serves' = 'true' THEN
				filter := CASE j.step WHEN 'sweep.update_step' THEN sweep._found_by(sweep._stored_parts(args, role, 'update')) ELSE (sweep._deletion_condition(args, role)).text END;
			END IF;
		ELSE
			RAISE EXCEPTION 'job "%" has no ranges', job USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'sweep.range_count is for the jobs that sweep makes with parallel.';
	END CASE;
	query := sweep._separators(relation, columns, pg_catalog.format(E'(%s\n)', filter), j.buckets - 1, j.batch_size, prologue);
END
$$;
COMMENT ON FUNCTION sweep._division(text, jsonb, oid) IS 'the columns by which the table of a job is divided, and the query of the keys that separate its ranges';
--
-- Rows that are deleted, or lose their reference, together with a deleted row: the tables with foreign keys with ON DELETE CASCADE, SET
-- NULL or SET DEFAULT, and the statements by which cascade.c and dismantle.c count, find and delete their rows.
--
CREATE FUNCTION sweep._referred_columns(relation regclass, is_asked boolean) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum), '{}') FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = relation AND EXISTS (SELECT FROM pg_catalog.pg_constraint c
			WHERE c.contype = 'f' AND c.confrelid = relation AND a.attnum = ANY (c.confkey))
		AND (is_asked OR EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.contype = 'f' AND c.confrelid = relation AND c.confdeltype IN ('c', 'n', 'd')
				AND pg_catalog.to_jsonb(c) -> 'conenforced' IS DISTINCT FROM 'false')));
END
$$;
COMMENT ON FUNCTION sweep._referred_columns(regclass, boolean) IS 'the columns of a table to which foreign keys refer; none when no other rows are deleted or changed with its rows; is_asked: also foreign keys that keep its rows';

-- "removes" returns for each changed row whether it refers to the same row again: true if a trigger has set that, NULL if the default has. Rows
-- of a table to which no further rows refer are counted. In other tables the keys are read, by "places", or by "counts", which locks the rows,
-- so that no rows are added below them.
CREATE FUNCTION sweep._cascade_statements(fk oid, child regclass, action "char", is_asked boolean, parent_columns text[], joined text, OUT counts text, OUT places text, OUT removes text, OUT holds text) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	below constant pg_catalog.text[] := CASE WHEN action = 'c' THEN sweep._referred_columns(child, is_asked) ELSE '{}' END;
	next constant int := pg_catalog.cardinality(parent_columns) + 1;
	key constant pg_catalog.text := (SELECT pg_catalog.format('ROWS FROM (%s) AS sweep_parent (%s)',
			pg_catalog.string_agg(pg_catalog.format('pg_catalog.unnest($%s)', u.n), ', ' ORDER BY u.n), pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n))
		FROM pg_catalog.unnest(parent_columns) WITH ORDINALITY AS u (name, n));
	-- The key of a single row is not joined as a table, which would be copied for each child.
	one_key constant pg_catalog.text := (SELECT pg_catalog.format('(SELECT %s) AS sweep_parent', pg_catalog.string_agg(pg_catalog.format('(SELECT ($%s)[1]) AS %I', u.n, u.name), ', ' ORDER BY u.n))
		FROM pg_catalog.unnest(parent_columns) WITH ORDINALITY AS u (name, n));
	source constant pg_catalog.text := sweep._referring_source(child, 'sweep_child');
	read constant pg_catalog.text := 'sweep_child.tableoid, sweep_child.ctid' || (SELECT coalesce(pg_catalog.string_agg(pg_catalog.format(', sweep_child.%I', u.name), '' ORDER BY u.n), '')
		FROM pg_catalog.unnest(below) WITH ORDINALITY AS u (name, n));
	there constant pg_catalog.text := pg_catalog.format('%s AND sweep_child.ctid OPERATOR(pg_catalog.=) ANY ($%s) AND sweep_child.tableoid OPERATOR(pg_catalog.=) $%s', joined, next, next + 1);
BEGIN
	counts := CASE WHEN below = '{}' THEN pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT FROM %s JOIN %s ON %s LIMIT $%s) AS sweep_counted', key, source, joined, next)
		ELSE pg_catalog.format('SELECT %s FROM %s JOIN %s ON %s LIMIT $%s FOR UPDATE OF sweep_child', read, key, source, joined, next) END;
	places := pg_catalog.format('SELECT %s FROM %s JOIN %s ON %s LIMIT $%s', read, key, source, joined, next);
	removes := CASE action WHEN 'c' THEN pg_catalog.format('DELETE FROM %s USING %s WHERE %s', source, one_key, there)
		ELSE (SELECT pg_catalog.format('UPDATE %s SET %s FROM %s WHERE %s RETURNING %s', source,
				pg_catalog.string_agg(pg_catalog.format('%I = %s', a.attname, CASE action WHEN 'n' THEN 'NULL' ELSE 'DEFAULT' END), ', ' ORDER BY a.attnum), one_key, there, pg_catalog.format(CASE action WHEN 'n' THEN '(%s) IS TRUE' ELSE 'CASE WHEN %s THEN NULL ELSE false END' END, joined))
			FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid
				AND a.attnum = ANY (CASE WHEN pg_catalog.cardinality(c.confdelsetcols) > 0 THEN c.confdelsetcols ELSE c.conkey END)
			WHERE c.oid = fk) END;
	holds := CASE WHEN below <> '{}' THEN pg_catalog.format('SELECT %s FROM %s CROSS JOIN %s WHERE %s FOR UPDATE OF sweep_child', read, source, one_key, there) END;
END
$$;
COMMENT ON FUNCTION sweep._cascade_statements(oid, regclass, "char", boolean, text[], text) IS
	'statements for the rows that refer by a foreign key to any of the keys in the first parameters: counts them, or reads and locks them; places finds them, both up to the number in the next parameter; removes deletes or changes those at the given places of a table; holds locks and reads those to which further rows refer';

CREATE FUNCTION sweep._circular_tables(relation regclass) RETURNS oid[]
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE step AS (
		SELECT c.confrelid AS parent, c.conrelid AS child FROM pg_catalog.pg_constraint c WHERE c.contype = 'f' AND c.confdeltype = 'c'
	), below AS (
		SELECT relation::pg_catalog.oid AS root, relation::pg_catalog.oid AS child
		UNION SELECT b.root, s.child FROM below b JOIN step s ON s.parent = b.child
	), reached AS (
		SELECT s.parent AS root, s.child FROM step s WHERE s.parent IN (SELECT b.child FROM below b)
		UNION SELECT r.root, s.child FROM reached r JOIN step s ON s.parent = r.child
	)
	SELECT coalesce(pg_catalog.array_agg(DISTINCT r.child), '{}') FROM reached r WHERE EXISTS (SELECT FROM reached c WHERE c.root = r.root AND c.child = r.root)
$$;
COMMENT ON FUNCTION sweep._circular_tables(regclass) IS 'of the tables whose rows are deleted with those of a table, those that are in a circle of foreign keys, or that refer to a table in one, directly or not';

CREATE FUNCTION sweep._cascades(role oid, relation regclass) RETURNS TABLE (foreign_key oid, parent oid, child oid, root oid, places oid[], types oid[], keeps boolean, deletes boolean, attributes oid[], counts text, finds text, removes text, holds text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	tables pg_catalog.oid[] := ARRAY[relation::pg_catalog.oid];
	circular constant pg_catalog.oid[] := sweep._circular_tables(relation);
	place int := 1;
	fk pg_catalog.record;
	referred pg_catalog.text[];
	names pg_catalog.text[];
BEGIN
	IF NOT pg_catalog.has_table_privilege(role, relation, 'DELETE') THEN
		RAISE EXCEPTION 'permission denied for table %', relation USING ERRCODE = 'insufficient_privilege', HINT = 'Only roles that may delete rows of the table can see what is deleted with them.';
	END IF;
	-- The condition of the batch has checked which rows are kept, also below a row, but it follows a circle of tables only once.
	WHILE place <= pg_catalog.cardinality(tables) LOOP
		referred := sweep._referred_columns(tables[place], tables[place] = ANY (circular));
		FOR fk IN SELECT * FROM sweep._referencing(tables[place], 'sweep_parent', 'sweep_child') AS r WHERE r.action IN ('c', 'n', 'd') OR tables[place] = ANY (circular) LOOP
			foreign_key := fk.fk;
			parent := tables[place];
			child := fk.child;
			root := coalesce(pg_catalog.pg_partition_root(fk.child)::pg_catalog.oid, fk.child);
			SELECT pg_catalog.array_agg(pg_catalog.array_position(referred, a.attname::pg_catalog.text)::pg_catalog.oid ORDER BY k.n), pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n)
				INTO places, names
				FROM pg_catalog.pg_constraint c CROSS JOIN LATERAL pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k (attnum, n)
					JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum WHERE c.oid = fk.fk;
			types := fk.types;
			keeps := fk.action IN ('a', 'r');
			deletes := fk.action = 'c';
			attributes := (SELECT pg_catalog.array_agg(a.attnum::pg_catalog.int4::pg_catalog.oid ORDER BY a.attnum) FROM pg_catalog.pg_attribute a WHERE fk.action = 'c' AND a.attrelid = fk.child
				AND a.attname::pg_catalog.text = ANY (sweep._referred_columns(fk.child, fk.child::pg_catalog.oid = ANY (circular))));
			SELECT m.counts, m.places, m.removes, m.holds INTO counts, finds, removes, holds FROM sweep._cascade_statements(fk.fk, fk.child, fk.action, fk.child::pg_catalog.oid = ANY (circular), names, fk.joined) AS m;
			RETURN NEXT;
			IF fk.action = 'c' AND fk.child::pg_catalog.oid <> ALL (tables) THEN
				tables := tables || fk.child::pg_catalog.oid;
			END IF;
		END LOOP;
		place := place + 1;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._cascades(oid, regclass) IS
	'the foreign keys by which rows are deleted or changed with those of a table, directly or indirectly; raises unless the role may delete its rows';

-- A ctid does not identify the partition. If possible, all rows of a batch are in one partition.
CREATE FUNCTION sweep._at_places(relation regclass, part regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%I.ctid OPERATOR(pg_catalog.=) ANY ($6)', c.relname) || CASE WHEN part IS NULL AND c.relkind = 'p' THEN ' AND EXISTS ' || sweep._among_places(c.relname) ELSE '' END
		FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._at_places(regclass, regclass) IS 'a condition: the row is at one of the places in $6, in the table beside it in $7';

CREATE FUNCTION sweep._among_places(alias text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('(SELECT FROM ROWS FROM (pg_catalog.unnest($6), pg_catalog.unnest($7)) AS sweep_place (place, part)'
		' WHERE sweep_place.place OPERATOR(pg_catalog.=) %1$I.ctid AND sweep_place.part OPERATOR(pg_catalog.=) %1$I.tableoid)', alias);
END
$$;
COMMENT ON FUNCTION sweep._among_places(text) IS 'a subquery: the place of a row, when it is among those in $6 and $7';

CREATE FUNCTION sweep._roots(relation regclass, part regclass, condition text, most text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('SELECT %1$I.tableoid, %1$I.ctid, %2$s FROM %3$s WHERE %4$s AND NOT EXISTS %5$s%6$s', c.relname,
			(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(sweep._referred_columns(relation, false)) WITH ORDINALITY AS u (name, n)),
			sweep._source(relation, part), condition, sweep._among_places(c.relname), ' LIMIT ' || most)
		FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._roots(regclass, regclass, text, text) IS 'the statement that finds the places and keys of rows whose deletion affects other rows, except those at the places in $6';
--
-- Foreign keys that refer to a table whose rows are to be deleted: which rows they keep, and the checks whether that can be found out.
--
CREATE FUNCTION sweep._referencing(relation regclass, parent_alias text, child_alias text)
	RETURNS TABLE (fk oid, name text, child regclass, columns text[], keys text[], types oid[], joined text, action "char")
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT c.oid, c.conname::pg_catalog.text, c.conrelid::pg_catalog.regclass, pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n),
			pg_catalog.array_agg(p.key ORDER BY k.n), pg_catalog.array_agg(r.atttypid ORDER BY k.n),
			-- Casts to the argument types of the operator, because its schema may have another operator of that name for the
			-- types of the columns.
			pg_catalog.string_agg(pg_catalog.format('%s%s OPERATOR(%I.%s) %I.%I%s%s', p.key,
				sweep._cast_to(r.atttypid, o.oprleft), n.nspname, o.oprname, child_alias, a.attname, sweep._cast_to(a.atttypid, o.oprright), sweep._collation_of(a.attcollation, r.attcollation)), ' AND ' ORDER BY k.n),
			c.confdeltype
		FROM pg_catalog.pg_constraint c CROSS JOIN LATERAL pg_catalog.generate_subscripts(c.conkey, 1) AS k (n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[k.n]
			JOIN pg_catalog.pg_attribute r ON r.attrelid = c.confrelid AND r.attnum = c.confkey[k.n]
			JOIN pg_catalog.pg_operator o ON o.oid = c.conpfeqop[k.n] JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
			CROSS JOIN LATERAL (SELECT CASE WHEN parent_alias IS NULL THEN '$' || k.n ELSE pg_catalog.format('%I.%I', parent_alias, r.attname) END) AS p (key)
		WHERE c.contype = 'f' AND c.confrelid = relation
			-- Since version 18 a foreign key may be NOT ENFORCED: then it neither keeps rows nor deletes others.
			AND pg_catalog.to_jsonb(c) -> 'conenforced' IS DISTINCT FROM 'false'
			-- Leaves out the constraints of partitions of the referring table.
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = c.conparentid AND p.confrelid = c.confrelid)
		GROUP BY c.oid, c.conname, c.conrelid, c.confdeltype ORDER BY c.conname, c.conrelid;
END
$$;
COMMENT ON FUNCTION sweep._referencing(regclass, text, text) IS
	'the foreign keys that refer to a table, with the conditions that join both tables; without an alias of the table its keys are parameters';

-- Types have their schema, because statements are analysed with the search_path of the job, which may have another schema before pg_catalog.
CREATE FUNCTION sweep._type_name(type oid, typmod int) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN e.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND pg_catalog.split_part(pg_catalog.split_part(f.name, '(', 1), '[', 1) = pg_catalog.quote_ident(e.typname) THEN 'pg_catalog.' ELSE '' END || f.name
		FROM pg_catalog.pg_type t CROSS JOIN LATERAL pg_catalog.format_type(t.oid, typmod) AS f (name)
			-- An oidvector has elements and a name of its own.
			JOIN pg_catalog.pg_type e ON e.oid = CASE WHEN pg_catalog.right(f.name, 2) = '[]' THEN t.typelem ELSE t.oid END WHERE t.oid = type);
END
$$;
COMMENT ON FUNCTION sweep._type_name(oid, int) IS 'the name of a type in a statement: with its schema, unless it is a keyword of the grammar such as integer';

CREATE FUNCTION sweep._base_type(type oid) RETURNS oid
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	base pg_catalog.oid := type;
BEGIN
	WHILE (SELECT t.typtype = 'd' FROM pg_catalog.pg_type t WHERE t.oid = base) LOOP
		base := (SELECT t.typbasetype FROM pg_catalog.pg_type t WHERE t.oid = base);
	END LOOP;
	RETURN base;
END
$$;
COMMENT ON FUNCTION sweep._base_type(oid) IS 'the base type of a domain, also of a domain over a domain; any other type itself';

CREATE FUNCTION sweep._read_key(relation regclass, columns text[], cursor jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE (SELECT 'SELECT ' || pg_catalog.string_agg(pg_catalog.format(e.read_format, pg_catalog.format('($1 OPERATOR(pg_catalog.#>>) ''{after,%s}'')', u.n - 1)), ', ' ORDER BY u.n)
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) CROSS JOIN LATERAL sweep._key_expression(relation, u.name) AS e) USING cursor;
END
$$;
COMMENT ON FUNCTION sweep._read_key(regclass, text[], jsonb) IS 'raises when the key of a cursor has a value that its column does not accept';

CREATE FUNCTION sweep._cast_to(type oid, wanted oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN type = wanted OR t.typtype = 'p' THEN '' ELSE '::' || sweep._type_name(wanted, -1) END FROM pg_catalog.pg_type t WHERE t.oid = wanted);
END
$$;
COMMENT ON FUNCTION sweep._cast_to(oid, oid) IS 'the cast to append to a value of one type for another type, which may be polymorphic';

-- As in PostgreSQL's own checks: keys are compared by the collation of the referenced table if it is nondeterministic, else by that of the
-- referring table.
CREATE FUNCTION sweep._collation_of(referring oid, referred oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF referring = referred OR 0 IN (referring, referred) THEN
		RETURN '';
	END IF;
	RETURN (SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, c.collname) FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
		WHERE c.oid IN (referring, referred) ORDER BY c.oid = referred AND NOT c.collisdeterministic DESC, c.oid = referring DESC LIMIT 1);
END
$$;
COMMENT ON FUNCTION sweep._collation_of(oid, oid) IS 'the COLLATE clause to append to a column of a foreign key, if its collation differs from that of the referenced column';

-- Includes partitions of the table; child tables (INHERITS) do not share its foreign keys, so ONLY leaves them out.
CREATE FUNCTION sweep._referring_source(relation regclass, alias text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%s%s AS %I', CASE c.relkind WHEN 'p' THEN '' ELSE 'ONLY ' END, sweep._table_name(relation), alias) FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._referring_source(regclass, text) IS 'the FROM item for a table that refers to another table';

-- For ON DELETE CASCADE, also follows the tables that refer to the deleted rows. A circle of tables is followed once.
CREATE FUNCTION sweep._asked_owners(referring regclass, action "char", path regclass[]) RETURNS oid[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner constant pg_catalog.oid := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = referring);
	deeper pg_catalog.oid[];
BEGIN
	IF action IN ('a', 'r') THEN
		RETURN ARRAY[owner];
	END IF;
	IF action = 'c' AND referring <> ALL (path) THEN
		SELECT pg_catalog.array_agg(o.owner) INTO deeper
			FROM sweep._referencing(referring, '', '') AS r CROSS JOIN LATERAL pg_catalog.unnest(sweep._asked_owners(r.child, r.action, path || referring)) AS o (owner);
	END IF;
	RETURN CASE WHEN deeper IS NULL THEN '{}' ELSE deeper || owner END;
END
$$;
COMMENT ON FUNCTION sweep._asked_owners(regclass, "char", regclass[]) IS 'the owners of the tables that must be read for a foreign key before a row is deleted; none: no row keeps it';

-- A table of another owner is neither read nor planned in the statement itself: code of its owner would be executed as the role of the job.
CREATE FUNCTION sweep._blockers(relation regclass, alias text, path regclass[]) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
	owner constant pg_catalog.oid := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = relation);
	child_alias constant pg_catalog.text := 'sweep_' || pg_catalog.cardinality(path);
	owners pg_catalog.oid[];
	found pg_catalog.text := NULL;
	blockers pg_catalog.text[] := '{}';
BEGIN
	-- A quick check first, because few tables are referred to, and the complete query takes longer.
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.confrelid = relation AND c.contype = 'f') THEN
		RETURN blockers;
	END IF;
	FOR foreign_key IN SELECT * FROM sweep._referencing(relation, alias, child_alias) LOOP
		owners := sweep._asked_owners(foreign_key.child, foreign_key.action, path);
		CONTINUE WHEN owners = '{}';
		IF NOT owners <@ ARRAY[owner] THEN
			blockers := blockers || pg_catalog.format('sweep._reference_exists(%s, %s)', foreign_key.fk, pg_catalog.array_to_string(foreign_key.keys, ', '));
			CONTINUE;
		END IF;
		found := pg_catalog.format('SELECT FROM %s WHERE %s', sweep._referring_source(foreign_key.child, child_alias), foreign_key.joined);
		IF foreign_key.action = 'c' THEN
			found := pg_catalog.format('%s AND (%s)', found, pg_catalog.array_to_string(sweep._blockers(foreign_key.child, child_alias, path || foreign_key.child), ' OR '));
		ELSIF foreign_key.child = relation THEN
			-- A row that refers to itself can be deleted.
			found := pg_catalog.format('%1$s AND NOT (%2$I.ctid OPERATOR(pg_catalog.=) %3$I.ctid AND %2$I.tableoid OPERATOR(pg_catalog.=) %3$I.tableoid)', found, child_alias, alias);
		END IF;
		blockers := blockers || pg_catalog.format('EXISTS (%s)', found);
	END LOOP;
	RETURN blockers;
END
$$;
COMMENT ON FUNCTION sweep._blockers(regclass, text, regclass[]) IS 'conditions, each of which says that a row of the table cannot be deleted because of rows that refer to it';

CREATE FUNCTION sweep._reference_exists(oid, VARIADIC "any") RETURNS boolean
	LANGUAGE c STABLE PARALLEL UNSAFE COST 1000 AS 'MODULE_PATHNAME', 'sweep_reference_exists';
COMMENT ON FUNCTION sweep._reference_exists(oid, "any") IS
	'whether a row with this key cannot be deleted, because of rows that refer to it by a foreign key, or to rows that would be deleted with it; read as the owners of these tables';

-- A foreign key, followed by those that are checked for each row that would be deleted by it, and so on, with increasing depth.
CREATE FUNCTION sweep._reference_tree(foreign_key oid, path regclass[], column_of_key int)
	RETURNS TABLE (depth int, relation oid, types oid[], first_column int, statement text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	asked pg_catalog.record;
	below pg_catalog.record;
	names pg_catalog.text[] := '{}';
	deeper pg_catalog.oid[] := '{}';
	columns int[] := '{}';
BEGIN
	SELECT r.* INTO asked FROM sweep._referencing(path[pg_catalog.cardinality(path)], NULL, 'sweep') AS r WHERE r.fk = foreign_key;
	depth := pg_catalog.cardinality(path);
	relation := asked.child;
	types := asked.types;
	first_column := column_of_key;
	statement := asked.joined;
	IF asked.child = path[depth] THEN
		-- A row that refers to itself can be deleted.
		types := types || ARRAY['pg_catalog.tid'::pg_catalog.regtype, 'pg_catalog.oid'::pg_catalog.regtype]::pg_catalog.oid[];
		statement := pg_catalog.format('%s AND NOT (sweep.ctid OPERATOR(pg_catalog.=) $%s AND sweep.tableoid OPERATOR(pg_catalog.=) $%s)', statement,
			pg_catalog.cardinality(types) - 1, pg_catalog.cardinality(types));
	END IF;
	IF asked.action = 'c' AND asked.child <> ALL (path) THEN
		FOR below IN SELECT r.fk, r.keys || CASE WHEN r.child = asked.child THEN '{sweep.ctid,sweep.tableoid}'::pg_catalog.text[] END AS keys
				FROM sweep._referencing(asked.child, 'sweep', '') AS r WHERE sweep._asked_owners(r.child, r.action, path || asked.child) <> '{}' LOOP
			deeper := deeper || below.fk;
			columns := columns || pg_catalog.cardinality(names) + 1;
			names := names || below.keys;
		END LOOP;
	END IF;
	statement := pg_catalog.format('SELECT %s FROM %s WHERE %s%s', pg_catalog.array_to_string(names, ', '), sweep._referring_source(asked.child, 'sweep'), statement,
		CASE WHEN names = '{}' AND asked.action NOT IN ('a', 'r') THEN ' AND false' ELSE '' END);
	RETURN NEXT;
	RETURN QUERY SELECT t.* FROM pg_catalog.generate_subscripts(deeper, 1) AS b (n)
		CROSS JOIN LATERAL sweep._reference_tree(deeper[b.n], path || asked.child, columns[b.n]) AS t;
END
$$;
COMMENT ON FUNCTION sweep._reference_tree(oid, regclass[], int) IS
	'the statements that read, as its owner, a table that refers to the last one of the path; each with the position of its key in the rows of the statement above';

CREATE FUNCTION sweep._reference_queries(role oid, foreign_key oid) RETURNS TABLE (depth int, relation oid, types oid[], first_column int, statement text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	target pg_catalog.regclass;
BEGIN
	SELECT c.confrelid INTO target FROM pg_catalog.pg_constraint c WHERE c.oid = foreign_key AND c.contype = 'f';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'foreign key with OID % does not exist', foreign_key USING ERRCODE = 'undefined_object';
	END IF;
	IF NOT pg_catalog.has_table_privilege(role, target, 'DELETE') THEN
		RAISE EXCEPTION 'permission denied for table %', target USING ERRCODE = 'insufficient_privilege', HINT = 'Only roles that may delete rows of the table can see what refers to it.';
	END IF;
	RETURN QUERY SELECT t.* FROM sweep._reference_tree(foreign_key, ARRAY[target], 1) AS t;
END
$$;
COMMENT ON FUNCTION sweep._reference_queries(oid, oid) IS 'the statements of sweep._reference_exists; raises unless the role may delete from the table that is referred to';

CREATE FUNCTION sweep._create_index(relation regclass, columns text[]) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('CREATE INDEX %sON %s (%s);', CASE c.relkind WHEN 'p' THEN '' ELSE 'CONCURRENTLY ' END, relation,
			sweep._column_list(columns))
		|| CASE c.relkind WHEN 'p' THEN ' It takes over indexes that its partitions have already, which can be created CONCURRENTLY.' ELSE '' END
		FROM pg_catalog.pg_class c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION sweep._create_index(regclass, text[]) IS 'the statement that creates an index, for a hint';

CREATE FUNCTION sweep._check_references(role text, relation regclass, path regclass[], is_inline boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
	owners pg_catalog.oid[];
	is_read boolean;
BEGIN
	FOR foreign_key IN SELECT * FROM sweep._referencing(relation, '', '') LOOP
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam
				WHERE i.indrelid = foreign_key.child AND i.indisvalid AND i.indisready AND i.indislive
					-- A foreign key with PERIOD looks for what overlaps, which an index of the kind that its key has serves.
					AND (m.amname IN ('btree', 'hash') OR m.amname = 'gist' AND (SELECT pg_catalog.to_jsonb(c) -> 'conperiod' = 'true' FROM pg_catalog.pg_constraint c WHERE c.oid = foreign_key.fk))
					AND (i.indpred IS NULL OR pg_catalog.pg_get_expr(i.indpred, i.indrelid) = pg_catalog.format('(%I IS NOT NULL)', foreign_key.columns[1]))
					AND NOT EXISTS (SELECT FROM pg_catalog.unnest(foreign_key.columns) AS f (name) WHERE NOT EXISTS (
						SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attname = f.name
							AND a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:pg_catalog.cardinality(foreign_key.columns) - 1])))) THEN
			RAISE EXCEPTION 'foreign key "%" of % has no index', foreign_key.name, foreign_key.child USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('For each row that is deleted from %s all of %s would be read.', relation, foreign_key.child),
				HINT = sweep._create_index(foreign_key.child, foreign_key.columns);
		END IF;
		owners := sweep._asked_owners(foreign_key.child, foreign_key.action, path);
		is_read := is_inline AND owners <@ ARRAY[(SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = relation)];
		IF is_read AND owners <> '{}' THEN
			PERFORM sweep._check_table(role, foreign_key.child, '{SELECT}');
		END IF;
		IF foreign_key.action = 'c' AND foreign_key.child <> ALL (path) THEN
			PERFORM sweep._check_references(role, foreign_key.child, path || foreign_key.child, is_read);
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._check_references(text, regclass, regclass[], boolean) IS
	'raises unless there is an index for each foreign key that refers to the table, and the role may read the tables that its statements read themselves';

CREATE FUNCTION sweep._check_referring(role text, relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_references(role, relation, ARRAY[relation], true);
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_constraint c ON c.confrelid = t.relid AND c.contype = 'f' AND c.conparentid = 0
			WHERE t.relid <> relation) THEN
		RAISE EXCEPTION 'foreign keys refer to partitions of %', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Have them refer to the table itself, or create a job for each partition.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_referring(text, regclass) IS 'raises unless the foreign keys that refer to a table allow its rows to be deleted in batches';

CREATE FUNCTION sweep._not_referenced(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	blockers constant pg_catalog.text[] := sweep._blockers(relation, sweep._relation_name(relation), ARRAY[relation]);
BEGIN
	RETURN coalesce(' AND NOT ' || pg_catalog.array_to_string(nullif(blockers, '{}'), ' AND NOT '), '');
END
$$;
COMMENT ON FUNCTION sweep._not_referenced(regclass) IS 'text to append to a condition: no row of another table keeps the row from being deleted; empty when none can';
--
-- Partitions in a retention: which of them are processed one after the other, and which are dropped.
--
CREATE FUNCTION sweep._is_ranged_by(relation regclass, column_name text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
		WHERE p.partrelid = relation AND p.partstrat = 'r' AND a.attname = column_name));
END
$$;
COMMENT ON FUNCTION sweep._is_ranged_by(regclass, text) IS 'whether it is partitioned by ranges of the column, alone or before others';

CREATE FUNCTION sweep._column_names(relation regclass) RETURNS name[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ARRAY(SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum);
END
$$;
COMMENT ON FUNCTION sweep._column_names(regclass) IS 'the columns of a table, in their order';

-- A statement on a table of many partitions opens all of them and merges their rows, which takes as long as the batch. The step
-- therefore works on one partition after the other, if the result is the same: there are no policies, rules or statement triggers, and
-- the role has all rights on each partition. Partitions that are empty, or that cannot have old rows, are left out. If the condition
-- uses the name of the table as a whole row, partitions must have their columns in the same order.
CREATE FUNCTION sweep._parts(relation regclass, age_column text, role oid, type text, age_limit text, privilege text, written text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	parts pg_catalog.text[];
	is_by_age constant boolean := sweep._is_ranged_by(relation, age_column);
BEGIN
	IF pg_catalog.strpos(written || pg_catalog.lower(written) || pg_catalog.lower(written COLLATE "C"), sweep._relation_name(relation)) > 0
			AND EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t WHERE t.isleaf AND sweep._column_names(t.relid) <> sweep._column_names(relation)) THEN
		RETURN NULL;
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_class c ON c.oid = t.relid
			WHERE c.relrowsecurity OR c.relhasrules OR t.isleaf AND (c.relkind <> 'r' OR NOT pg_catalog.has_schema_privilege(role, c.relnamespace, 'USAGE')
					OR NOT pg_catalog.has_table_privilege(role, c.oid, 'SELECT') OR NOT pg_catalog.has_table_privilege(role, c.oid, privilege))
				-- a statement trigger for DELETE or UPDATE
				OR EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid = c.oid AND g.tgtype & 1 = 0 AND g.tgtype & CASE privilege WHEN 'DELETE' THEN 8 ELSE 16 END <> 0)) THEN
		RETURN NULL;
	END IF;
	SELECT pg_catalog.array_agg(p.name ORDER BY p.name COLLATE "C") INTO parts FROM (SELECT sweep._table_name(c.oid) AS name,
			CASE WHEN t.parentrelid = relation AND is_by_age THEN pg_catalog.substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([^'']*)''') END AS bound
		FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_class c ON c.oid = t.relid WHERE t.isleaf AND t.relid <> relation
			AND pg_catalog.pg_relation_size(c.oid) > 0) AS p
		WHERE CASE type WHEN 'date' THEN p.bound::pg_catalog.date >= age_limit::pg_catalog.date WHEN 'timestamp without time zone' THEN p.bound::timestamp >= age_limit::timestamp
			ELSE p.bound::pg_catalog.timestamptz >= age_limit::pg_catalog.timestamptz END IS NOT TRUE;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._parts(regclass, text, oid, text, text, text, text) IS 'the partitions, in the order of their names, that the role can process one by one; NULL: the table as a whole';

CREATE FUNCTION sweep._is_partitioned(relation regclass) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = relation);
END
$$;
COMMENT ON FUNCTION sweep._is_partitioned(regclass) IS 'whether a table has partitions, or could have';

CREATE FUNCTION sweep._next_place(relation regclass, parts text[], after text, OUT part regclass, OUT next_part text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.to_regclass(u.name), (SELECT pg_catalog.jsonb_build_object('part', parts[u.n + 1]) WHERE u.n < pg_catalog.cardinality(parts)) INTO part, next_part
		FROM (SELECT p.name, p.n FROM pg_catalog.unnest(parts) WITH ORDINALITY AS p (name, n) WHERE after IS NULL OR p.name COLLATE "C" >= after COLLATE "C" ORDER BY p.n OFFSET 0) AS u
		WHERE EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(pg_catalog.to_regclass(u.name)) AS a WHERE a.relid = relation)
		LIMIT 1;
END
$$;
COMMENT ON FUNCTION sweep._next_place(regclass, text[], text) IS 'the partition of that name, or the next one when it was dropped or detached, and the cursor with which the partition after it begins';

-- An existing job does not raise an error, but keeps partitions to which rows refer.
CREATE FUNCTION sweep._check_partitions(role text, relation regclass, args jsonb, is_new boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner constant pg_catalog.oid := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = relation);
	reason pg_catalog.text;
BEGIN
	IF args ->> 'partitions' NOT IN ('empty', 'drop') THEN
		RAISE EXCEPTION 'invalid partitions "%"', args ->> 'partitions' USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "empty" or "drop".';
	END IF;
	IF args ->> 'partitions' = 'empty' THEN
		RETURN;
	END IF;
	reason := CASE
		WHEN NOT sweep._is_ranged_by(relation, args ->> 'age_column') THEN pg_catalog.format('%s is not partitioned by ranges of "%s"', relation, args ->> 'age_column')
		WHEN args ? 'condition' THEN 'rows in them may not meet the condition'
		WHEN args ? 'archive_to' THEN 'their rows are to be moved'
		WHEN is_new AND EXISTS (SELECT FROM sweep._referencing(relation, '', '')) THEN pg_catalog.format('foreign keys refer to %s', relation) END;
	IF reason IS NOT NULL THEN
		RAISE EXCEPTION 'partitions cannot be dropped: %', reason USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave partitions out: they are emptied then.';
	END IF;
	IF NOT pg_catalog.pg_has_role(sweep._role_oid(role), owner, 'USAGE') THEN
		RAISE EXCEPTION 'role "%" does not own %', role, relation USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('Only its owner can drop partitions: write run_as => %L, or leave partitions out: they are emptied then.', pg_catalog.pg_get_userbyid(owner));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_partitions(text, regclass, jsonb, boolean) IS 'raises unless partitions that are too old can be dropped, if they are to be';

-- ------------------------------------------------------------------ bounds
-- The text of a bound contains no quotes, and with these settings it means the same in any session.
CREATE FUNCTION sweep._bounds(relation regclass, one regclass) RETURNS TABLE (part regclass, is_default boolean, lower text, upper text)
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
BEGIN
	RETURN QUERY SELECT c.oid::pg_catalog.regclass, b.bound = 'DEFAULT', nullif(pg_catalog.substring(b.bound, 'FROM [(]''?([^'',)]*)'), 'MINVALUE'), nullif(pg_catalog.substring(b.bound, '[)] TO [(]''?([^'',)]*)'), 'MAXVALUE')
		FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid CROSS JOIN LATERAL pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS b (bound)
		WHERE i.inhparent = relation AND NOT i.inhdetachpending AND (one IS NULL OR i.inhrelid = one);
END
$$;
COMMENT ON FUNCTION sweep._bounds(regclass, regclass) IS 'the partitions of a table that is partitioned by ranges, or one of them, with their bounds in its first column; NULL: there is no bound';

-- ------------------------------------------------------------------ a lock that is tried again
-- Other sessions wait behind a statement that waits for its lock. It therefore waits only for a fraction of a second, and the other
-- sessions go on until the next attempt.
CREATE FUNCTION sweep._await_turn(cursor jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	waited constant double precision := extract(epoch FROM pg_catalog.clock_timestamp() - (cursor ->> 'tried_at')::pg_catalog.timestamptz);
BEGIN
	-- Also limits the wait if the clock was set back.
	IF waited < 1 THEN
		PERFORM pg_catalog.pg_sleep(1 - greatest(waited, 0));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._await_turn(jsonb) IS 'waits until a second has passed since the last attempt to get a lock, if the cursor has one';

CREATE FUNCTION sweep._note_try(cursor jsonb, wanted text, tables text[]) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tries constant int := coalesce((cursor ->> 'tries')::int, 0) + 1;
BEGIN
	IF tries >= 10 THEN
		-- Not the code lock_not_available: the engine would do the batch again with fewer rows.
		RAISE EXCEPTION '% could not be locked', wanted USING ERRCODE = 'object_in_use',
			DETAIL = pg_catalog.format('It was tried %s times, once a second. %s', tries, coalesce(sweep._holders(tables) || '.', 'The locks were given back meanwhile.')),
			HINT = 'Look in pg_stat_activity for a transaction that is open for long.';
	END IF;
	RETURN coalesce(cursor, '{}') || pg_catalog.jsonb_build_object('tries', tries, 'tried_at', pg_catalog.clock_timestamp());
END
$$;
COMMENT ON FUNCTION sweep._note_try(jsonb, text, text[]) IS 'the cursor after an attempt to get a lock has failed; raises when that was the last attempt';

-- A statement looks the table up by name before it has the lock, so the name may belong to another table by then.
CREATE FUNCTION sweep._lock_table(relation regclass, parts boolean, mode text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name constant pg_catalog.text := sweep._table_name(relation);
	known constant pg_catalog.pg_class := (SELECT c FROM pg_catalog.pg_class c WHERE c.oid = relation);
BEGIN
	IF known.relkind = 'f' THEN
		-- LOCK TABLE refuses a foreign table. This statement changes nothing, and takes an exclusive lock.
		EXECUTE pg_catalog.format('ALTER FOREIGN TABLE %s OWNER TO %I', name, pg_catalog.pg_get_userbyid(known.relowner));
	ELSIF name IS NOT NULL THEN
		EXECUTE pg_catalog.format('LOCK TABLE %s IN %s MODE', CASE WHEN parts THEN '' ELSE 'ONLY ' END || name, mode);
	END IF;
	IF pg_catalog.to_regclass(name) IS DISTINCT FROM relation THEN
		RAISE EXCEPTION 'table % was renamed or dropped while it was being locked', relation USING ERRCODE = 'lock_not_available';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._lock_table(regclass, boolean, text) IS 'locks a table, with its partitions or without; raises lock_not_available when the name belongs to another table';

-- ------------------------------------------------------------------ the end of a partition
-- Checked because rows that policies hide from the role must count, too.
CREATE FUNCTION sweep._check_visible(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF pg_catalog.row_security_active(relation) THEN
		RAISE EXCEPTION 'policies of % may hide rows from role "%"', relation, current_user USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or run the job as its owner.', sweep._table_name(relation));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_visible(regclass) IS 'raises when row level security hides rows of a table from the role of the job';

-- PostgreSQL refuses to detach a partition to whose rows others refer; it searches for these under the lock, as the role of the job. This
-- therefore searches before, without a lock, and only in tables whose owners the role acts for: code of other owners would be executed as the
-- role.
CREATE FUNCTION sweep._is_referred_to(parent regclass, part regclass) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role constant pg_catalog.oid := (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
	part_name constant pg_catalog.text := sweep._table_name(part);
	started constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	foreign_key pg_catalog.record;
	found boolean;
BEGIN
	FOR foreign_key IN SELECT r.name, r.child, r.joined, c.relowner FROM sweep._referencing(parent, 'sweep_part', 'sweep_child') AS r JOIN pg_catalog.pg_class c ON c.oid = r.child LOOP
		IF NOT sweep._owns(role, foreign_key.relowner) THEN
			RAISE EXCEPTION 'foreign key "%" of % refers to %', foreign_key.name, foreign_key.child, parent USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('To detach a partition, PostgreSQL reads %s as role "%s", which does not act for its owner.', foreign_key.child, current_user), HINT = 'Drop the foreign key, or give both tables the same owner.';
		END IF;
		PERFORM sweep._check_visible(part), sweep._check_visible(foreign_key.child);
		EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM ONLY %s AS sweep_part JOIN %s ON %s)', part_name, sweep._referring_source(foreign_key.child, 'sweep_child'), foreign_key.joined) INTO found;
		IF found THEN
			RETURN true;
		END IF;
		IF pg_catalog.clock_timestamp() - started > interval '1 second' THEN
			RAISE EXCEPTION 'whether rows refer to partition % takes too long to see', part USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('It took %s, and PostgreSQL looks again while all sessions wait. Foreign key "%s" of %s refers to its table.', pg_catalog.clock_timestamp() - started, foreign_key.name, foreign_key.child),
				HINT = 'Empty the partition first: sweep.create_retention deletes its rows in batches.';
		END IF;
	END LOOP;
	RETURN false;
END
$$;
COMMENT ON FUNCTION sweep._is_referred_to(regclass, regclass) IS 'whether rows refer by a foreign key to those of a partition; raises when that cannot be seen quickly, or not by the role of the job';

-- DETACH CONCURRENTLY is not used: it is not possible in a transaction, nor if there is a default partition. When a foreign table that is a
-- partition, or below one, is dropped, its rows stay on their server: a retention deletes them there instead.
CREATE FUNCTION sweep._drop_partition(relation text, type text, age_limit text, is_kept boolean, foreign_too boolean, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	parent constant pg_catalog.regclass := relation::pg_catalog.regclass;
	found pg_catalog.regclass;
	found_upper pg_catalog.text;
	is_foreign boolean;
BEGIN
	-- If the bound has several columns, rows may have its first value. The cursor is after partitions that were kept because rows refer to them.
	EXECUTE pg_catalog.format($find$
		SELECT b.part, b.upper, c.relkind = 'f' FROM sweep._bounds($1, NULL) AS b JOIN pg_catalog.pg_partitioned_table t ON t.partrelid = $1 JOIN pg_catalog.pg_class c ON c.oid = b.part
		WHERE ($4 OR c.relkind = 'r' OR NOT EXISTS (WITH RECURSIVE below AS (SELECT b.part::pg_catalog.oid AS id UNION ALL SELECT i.inhrelid FROM below JOIN pg_catalog.pg_inherits i ON i.inhparent = below.id)
				SELECT FROM below WHERE (SELECT f.relkind FROM pg_catalog.pg_class f WHERE f.oid = below.id) = 'f'))
			AND (b.upper::%1$s < $2::%1$s OR b.upper::%1$s = $2::%1$s AND t.partnatts = 1) AND ($3 IS NULL OR b.upper::%1$s > $3::%1$s) ORDER BY b.upper::%1$s LIMIT 1 $find$, type)
		INTO found, found_upper, is_foreign USING parent, age_limit, cursor ->> 'referred_to', foreign_too;
	IF found IS NULL THEN
		next_cursor := cursor;
		RETURN;
	END IF;
	rows := 1;
	PERFORM sweep._await_turn(cursor);
	BEGIN
		IF sweep._is_referred_to(parent, found) THEN
			RAISE foreign_key_violation;
		END IF;
		PERFORM sweep._lock_table(parent, false, 'ACCESS EXCLUSIVE'), sweep._lock_table(found, true, 'ACCESS EXCLUSIVE');
		-- The partition may have been detached, and attached with newer rows, before it was locked.
		IF NOT EXISTS (SELECT FROM sweep._bounds(parent, found) AS b WHERE b.upper = found_upper) THEN
			RAISE lock_not_available;
		END IF;
		detail := pg_catalog.jsonb_build_object(CASE WHEN is_kept THEN 'detached' ELSE 'dropped' END, pg_catalog.jsonb_build_array(found));
		EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', sweep._table_name(parent), sweep._table_name(found));
		IF NOT is_kept THEN
			EXECUTE pg_catalog.format('DROP %s %s', CASE WHEN is_foreign THEN 'FOREIGN TABLE' ELSE 'TABLE' END, sweep._table_name(found));
		END IF;
		next_cursor := nullif(cursor - '{tries,tried_at}'::pg_catalog.text[], '{}');
	EXCEPTION
		WHEN lock_not_available OR deadlock_detected THEN
			next_cursor := sweep._note_try(cursor, 'partition ' || found, ARRAY[sweep._table_name(parent), sweep._table_name(found)]);
			detail := '{"lock_timeouts": 1}';
		WHEN foreign_key_violation THEN
			next_cursor := coalesce(cursor - '{tries,tried_at}'::pg_catalog.text[], '{}') || pg_catalog.jsonb_build_object('referred_to', found_upper);
			detail := pg_catalog.jsonb_build_object('referred_to', pg_catalog.jsonb_build_array(found));
	END;
END
$$;
COMMENT ON FUNCTION sweep._drop_partition(text, text, text, boolean, boolean, jsonb) IS 'drops, or detaches (is_kept), a partition in which all rows are too old; rows is NULL when there is none';

-- In a function of its own, so that the statement that reads the table has ended before a partition is dropped.
CREATE FUNCTION sweep._drop_too_old(relation text, type text, age_limit text, late text, as_of timestamptz, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	counted bigint;
BEGIN
	IF late IS NOT NULL AND NOT coalesce(cursor ? 'late', false) THEN
		EXECUTE 'SELECT ' || late INTO counted USING NULL::int, NULL::pg_catalog.jsonb, as_of;
		cursor := coalesce(cursor, '{}') || pg_catalog.jsonb_build_object('late', counted);
	END IF;
	SELECT d.rows, d.next_cursor, d.detail INTO rows, next_cursor, detail FROM sweep._drop_partition(relation, type, age_limit, false, false, cursor) AS d;
	IF counted > 0 THEN
		detail := coalesce(detail, '{}') || pg_catalog.jsonb_build_object('late_rows', counted);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._drop_too_old(text, text, text, text, timestamptz, jsonb) IS 'drops a partition as sweep._drop_partition does; before the first one, counts late rows by the expression "late"';
--
-- The statements that delete rows, or move them to another table, for the jobs of sweep.create_retention and sweep.delete.
--
-- Deleting and moving are one statement each, so that a moved row is visible in exactly one of the two tables at any time.
CREATE FUNCTION sweep._removal(relation regclass, part regclass, archive regclass, picked text, condition text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names pg_catalog.text;
	removal constant pg_catalog.text := pg_catalog.format('DELETE FROM %s WHERE %s', sweep._source(relation, part), condition);
	with_picked constant pg_catalog.text := CASE WHEN picked IS NULL THEN '' ELSE pg_catalog.format('WITH sweep_picked AS MATERIALIZED (%s) ', picked) END;
BEGIN
	IF archive IS NULL THEN
		RETURN with_picked || removal;
	END IF;
	names := sweep._column_list(sweep._archive_columns(relation, archive));
	RETURN pg_catalog.format('%s gone AS (%s RETURNING %s) INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM gone',
		CASE WHEN picked IS NULL THEN 'WITH' ELSE with_picked || ',' END, removal, names, sweep._table_name(archive), names, names);
END
$$;
COMMENT ON FUNCTION sweep._removal(regclass, regclass, regclass, text, text) IS 'the statement that deletes the rows of a condition, or moves them to the archive table';

-- After a deletion an index is full of dead entries, which the planner does not know. With a constant limit, or an index that has all columns,
-- it would search the first rows there. Therefore the limit is an expression, for which it compares whole scans, and ctids are counted.
CREATE FUNCTION sweep._count_some(relation regclass, condition text, most int) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('(SELECT pg_catalog.count(sweep_counted.ctid) FROM (SELECT %I.ctid FROM %s WHERE %s LIMIT (SELECT %s)) AS sweep_counted)',
		sweep._relation_name(relation), sweep._source(relation, NULL), condition, most);
END
$$;
COMMENT ON FUNCTION sweep._count_some(regclass, text, int) IS 'an expression: how many rows meet a condition, up to that many';

CREATE FUNCTION sweep._rest_statement(relation regclass, condition text, bound text, referenced text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Without OFFSET 0 the planner would inline the column, and the rows would be counted twice. The bound holds for nearly all rows; IS
	-- TRUE keeps the planner from using an index for it.
	RETURN pg_catalog.format('SELECT e.stays OPERATOR(pg_catalog.>) 0, e.stays, %s::pg_catalog.int8, NULL::pg_catalog.jsonb FROM (SELECT %s OFFSET 0) AS e (stays)',
		coalesce(referenced, 'NULL'), sweep._count_some(relation, pg_catalog.format('%s AND (%s) IS TRUE', condition, bound), 10000));
END
$$;
COMMENT ON FUNCTION sweep._rest_statement(regclass, text, text, text) IS
	'an epilogue: the number of rows within the bound that still meet a condition, and the expression "referenced", which counts those that other rows keep';

-- Rows of one key, by their places, together with the partition of each. Rows that a trigger or a policy has kept would come first again, so they are skipped.
CREATE FUNCTION sweep._rows_of_key(relation regclass, part regclass, same_key text, OUT untried text, OUT picked text, OUT at_picked text, OUT finds text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	source constant pg_catalog.text := sweep._source(relation, part);
BEGIN
	untried := ' OFFSET coalesce(($2 OPERATOR(pg_catalog.->>) ''tried'')::pg_catalog.int8, 0)';
	picked := pg_catalog.format('SELECT %1$I.tableoid AS part, %1$I.ctid AS place FROM %2$s WHERE %3$s LIMIT $1%4$s', sweep._relation_name(relation), source, same_key, untried);
	at_picked := pg_catalog.format('%1$I.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT sweep_p.place FROM sweep_picked AS sweep_p))'
		' AND EXISTS (SELECT FROM sweep_picked AS sweep_p WHERE sweep_p.place OPERATOR(pg_catalog.=) %1$I.ctid AND sweep_p.part OPERATOR(pg_catalog.=) %1$I.tableoid)', sweep._relation_name(relation));
	finds := pg_catalog.format('SELECT FROM %s WHERE %s LIMIT 1%s', source, same_key, untried);
END
$$;
COMMENT ON FUNCTION sweep._rows_of_key(regclass, regclass, text) IS
	'parts of the statements for at most $1 rows of one key: an OFFSET, a query "sweep_picked", a condition that a row is in it, and a query that finds whether there are more';

-- seen: the condition of the rows that a batch reads; due: of the rows that are to be deleted; free: leaves out rows that others keep.
CREATE FUNCTION sweep._removal_statements(relation regclass, part regclass, archive regclass, columns text[], nulls text[], seen text, due text, free text, cascading boolean, first boolean)
	RETURNS sweep._statements LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements := sweep._edge_statements(relation, part, columns, nulls, seen, first);
	range constant pg_catalog.text := pg_catalog.format('%s AND %s%s', due, sweep._range(relation, columns, first), free);
	same_key constant pg_catalog.text := pg_catalog.format('%s AND %s%s', due, sweep._key_compare(relation, columns, '=', '$4'), free);
	of_key constant pg_catalog.record := sweep._rows_of_key(relation, part, same_key);
BEGIN
	made.counter := CASE WHEN archive IS NULL THEN 'deleted' ELSE 'moved' END;
	IF cascading THEN
		-- The rows affected by a deletion are counted first; the statement then deletes the counted rows by their places.
		made.cascading := relation;
		made.roots := sweep._roots(relation, part, range, NULL);
		made.pick := sweep._removal(relation, part, archive, NULL, pg_catalog.format('%s AND %s%s', sweep._at_places(relation, part), due, free));
		made.same_roots := CASE WHEN made.before IS NOT NULL THEN sweep._roots(relation, part, same_key, '$1' || of_key.untried) END;
		RETURN made;
	END IF;
	made.work := sweep._removal(relation, part, archive, NULL, range);
	IF made.before IS NOT NULL THEN
		made.pick := sweep._removal(relation, part, archive, of_key.picked, pg_catalog.format('%s AND %s', of_key.at_picked, same_key));
		made.same_roots := of_key.finds;
	END IF;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._removal_statements(regclass, regclass, regclass, text[], text[], text, text, text, boolean, boolean) IS
	'the statements of a batch that deletes or moves the rows of a range of keys; cascading: other rows are deleted or changed with them';

-- PostgreSQL executes the further statements of a rule only for a plain DELETE: not for moved rows, nor where a batch takes some of the rows of one key.
CREATE FUNCTION sweep._check_rules(role text, relation regclass, made sweep._statements, settings jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rule constant pg_catalog.text := (SELECT r.rulename FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation AND r.ev_type = '4' ORDER BY r.oid LIMIT 1);
	is_moved constant boolean := made.counter = 'moved';
BEGIN
	IF rule IS NOT NULL AND (made.pick LIKE 'WITH %' OR made.work LIKE 'WITH %') THEN
		PERFORM sweep._check_fragment(role, pg_catalog.format(CASE WHEN is_moved THEN 'WITH gone AS (DELETE FROM %s WHERE $1 IS NOT NULL RETURNING 1) SELECT FROM gone'
			ELSE 'WITH picked AS (SELECT $1) DELETE FROM %s WHERE EXISTS (SELECT FROM picked)' END, sweep._source(relation, NULL)), settings);
	END IF;
EXCEPTION WHEN feature_not_supported THEN
	RAISE EXCEPTION 'rule "%" of % does not allow its rows to be %', rule, relation, CASE WHEN is_moved THEN 'moved' ELSE 'deleted in batches' END USING ERRCODE = SQLSTATE,
		DETAIL = CASE WHEN is_moved THEN SQLERRM || '.' ELSE pg_catalog.format('More rows than a batch takes may have the same (%s). PostgreSQL does not execute the rule for some of them.', made.key) END,
		HINT = 'Replace the rule by a trigger FOR EACH ROW' || CASE WHEN is_moved THEN '.' ELSE ', or create a unique index that begins with ' || pg_catalog.split_part(made.key, ', ', 1) || '.' END;
END
$$;
COMMENT ON FUNCTION sweep._check_rules(text, regclass, sweep._statements, jsonb) IS 'raises when a rule of the table cannot be executed with the statements that delete or move its rows';
--
-- Batches by places: for sweep.delete and sweep.batched on a table without a suitable index.
--
-- A batch consists of the rows in the next blocks that meet the condition, up to its size. A place (ctid) is no key: an updated row gets another
-- one, which the pass may have passed already. Passes are therefore repeated until one finds no row that can be deleted or updated. A pass ends
-- with the last block at its start, and begins again when the table was rewritten meanwhile, for example by VACUUM FULL. Rows that other
-- sessions have locked are left to the next pass.
--
CREATE FUNCTION sweep._next_blocks(relation regclass, part text, cursor jsonb, size int) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	file constant pg_catalog.oid := pg_catalog.pg_relation_filenode(relation);
	goes_on constant boolean := coalesce(cursor ? 'after' AND (cursor ->> 'file')::pg_catalog.oid = file, false);
	blocks constant bigint := CASE WHEN goes_on THEN (cursor ->> 'blocks')::bigint ELSE pg_catalog.pg_relation_size(relation) / pg_catalog.current_setting('block_size')::bigint END;
	place constant pg_catalog.text := CASE WHEN goes_on THEN cursor #>> '{after,0}' ELSE '(0,0)' END;
	block constant bigint := pg_catalog.split_part(pg_catalog.substr(place, 2), ',', 1)::bigint;
BEGIN
	IF block >= blocks THEN
		RETURN NULL;
	END IF;
	-- If few rows meet the condition, a batch reads some megabytes.
	RETURN pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('by', 'ctid', 'from', place, 'after', pg_catalog.jsonb_build_array(pg_catalog.format('(%s,0)', least(block + 4 * size::bigint, blocks))),
		'blocks', blocks, 'file', file, 'part', part));
END
$$;
COMMENT ON FUNCTION sweep._next_blocks(regclass, text, jsonb, int) IS 'the next blocks after a cursor that a batch of that size reads, in a table or in this partition, as the next cursor; NULL: the pass has ended';

CREATE FUNCTION sweep._check_heirs(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT sweep._is_partitioned(relation) AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = relation) THEN
		RAISE EXCEPTION '% has tables that inherit from it', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Neither the indexes nor the blocks of the table include rows of the others. Create a job for each of them, or make it a partitioned table.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_heirs(regclass) IS 'raises when other tables, except partitions, inherit from it';

-- Blocks belong to one partition. A statement must name this partition, so the role needs rights on it, and policies, rules and statement
-- triggers of the table would not apply.
CREATE FUNCTION sweep._place_parts(relation regclass, role oid, privilege text, written text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts constant pg_catalog.text[] := CASE WHEN sweep._is_partitioned(relation) THEN sweep._parts(relation, NULL, role, NULL, NULL, privilege, written) END;
BEGIN
	-- Child tables may have been added since the job was created.
	PERFORM sweep._check_heirs(relation);
	IF parts IS NULL AND EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t WHERE t.isleaf AND t.relid <> relation AND pg_catalog.pg_relation_size(t.relid) > 0) THEN
		RAISE EXCEPTION '% has no index by which to go through it, and cannot be gone through partition by partition', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'The role needs its rights on each partition, and foreign tables have no blocks here; policies, rules and triggers FOR EACH STATEMENT are those of the table as a whole, and so is a row where columns have another order.',
			HINT = 'Add a primary key, or call this for each partition.';
	END IF;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._place_parts(regclass, oid, text, text) IS 'the partitions of a table, which are processed by places one after the other; NULL: it has none, or no rows; raises when that is not possible';

CREATE FUNCTION sweep._place_statements(relation regclass, part regclass, condition text) RETURNS sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	name constant pg_catalog.text := sweep._relation_name(relation);
BEGIN
	made.key := 'ctid';
	made.part := sweep._table_name(part);
	made.edge := pg_catalog.format('SELECT n.blocks FROM sweep._next_blocks(%L, %L, $2, $1) AS n (blocks) WHERE n.blocks IS NOT NULL', sweep._table_name(coalesce(part, relation)), made.part);
	made.roots := pg_catalog.format('SELECT %1$s FROM %2$s WHERE %3$I.ctid OPERATOR(pg_catalog.>) (($4 OPERATOR(pg_catalog.#>>) ''{from}'')::pg_catalog.tid)'
		' AND %3$I.ctid OPERATOR(pg_catalog.<=) (($4 OPERATOR(pg_catalog.#>>) ''{after,0}'')::pg_catalog.tid) AND %4$s LIMIT $1',
		sweep._qualified_list(name, '{tableoid,ctid}'::pg_catalog.text[] || sweep._referred_columns(relation, false)), sweep._source(relation, part), name, condition);
	made.checked := false;
	made.restarts := true;
	-- Planned for each batch: the planner then knows the number of blocks, and chooses the best plan for the rest of the condition.
	made.custom := true;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._place_statements(regclass, regclass, text) IS 'the statements that find the rows of a batch by their places, of a table or of a part of it';

CREATE FUNCTION sweep._place_removal(relation regclass, part regclass, due text, free text) RETURNS sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements := sweep._place_statements(relation, part, due || free);
BEGIN
	made.counter := 'deleted';
	made.cascading := CASE WHEN sweep._referred_columns(relation, false) <> '{}' THEN relation END;
	made.pick := sweep._removal(relation, part, NULL, NULL, pg_catalog.format('%s AND %s%s', sweep._at_places(relation, part), due, free));
	IF free <> '' THEN
		made.epilogue := pg_catalog.format('SELECT false, NULL::pg_catalog.int8, %s::pg_catalog.int8, NULL::pg_catalog.jsonb', sweep._count_some(relation, due || pg_catalog.format(' AND (true%s) IS FALSE', free), 10000));
	END IF;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._place_removal(regclass, regclass, text, text) IS 'the statements of a deletion by places';
--
-- Retention: rows that are older than the retention time are deleted, or moved to another table, in the order of their age.
--
-- ------------------------------------------------------------------ age
CREATE FUNCTION sweep._age_type(relation regclass, age_column text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	type pg_catalog.text;
BEGIN
	SELECT pg_catalog.format_type(sweep._base_type(a.atttypid), NULL) INTO type FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = relation AND a.attname = age_column AND a.attnum > 0 AND NOT a.attisdropped;
	type := coalesce(type, pg_catalog.replace((sweep._key_expression(relation, age_column)).type, 'pg_catalog.', ''));
	IF type IS NULL THEN
		RAISE EXCEPTION 'column "%" of % does not exist', age_column, relation USING ERRCODE = 'undefined_column',
			HINT = coalesce('There is ' || (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
				WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
					AND a.atttypid IN ('pg_catalog.timestamptz'::pg_catalog.regtype, 'pg_catalog.timestamp'::pg_catalog.regtype, 'pg_catalog.date'::pg_catalog.regtype)) || '.', 'Name a column that says since when the row is there.');
	END IF;
	IF type NOT IN ('timestamp with time zone', 'timestamp without time zone', 'date') THEN
		RAISE EXCEPTION '% of % is of type %', CASE WHEN age_column LIKE '(%' THEN age_column ELSE pg_catalog.format('column "%s"', age_column) END, relation, type USING ERRCODE = 'datatype_mismatch',
			HINT = 'The age of a row is a timestamptz, timestamp or date. For another type write the batch yourself: sweep.create_job(..., step => ...).';
	END IF;
	RETURN type;
END
$$;
COMMENT ON FUNCTION sweep._age_type(regclass, text) IS 'timestamptz, timestamp or date, as the catalogue calls it; raises for any other type';

-- Days and months, and values without a time zone, are those of the time zone. Hours are elapsed time. Where the clock of the zone jumps, a
-- value without a zone must be too old by elapsed time and by the clock, since its hour may come twice.
CREATE FUNCTION sweep._age_limit(type text, args jsonb) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(args ->> 'timezone', 'UTC');
	keep constant interval := (args ->> 'keep')::interval;
	days constant interval := pg_catalog.date_trunc('day', keep);
	clock constant pg_catalog.text := pg_catalog.format('pg_catalog.timezone(%L, $3) OPERATOR(pg_catalog.-) %%L::pg_catalog.interval', zone);
	-- The clock alone does not show which of two equal hours it is.
	moment pg_catalog.text := CASE WHEN days = interval '0' THEN '$3' ELSE pg_catalog.format('pg_catalog.timezone(%L, %s)', zone, pg_catalog.format(clock, days)) END;
	shown pg_catalog.text := '(' || pg_catalog.format(clock, keep) || ')';
BEGIN
	IF days <> keep THEN
		moment := pg_catalog.format('(%s OPERATOR(pg_catalog.-) %L::pg_catalog.interval)', moment, keep - days);
		shown := pg_catalog.format('least(pg_catalog.timezone(%L, %s), %s)', zone, moment, shown);
	END IF;
	RETURN CASE type WHEN 'timestamp with time zone' THEN moment WHEN 'date' THEN shown || '::pg_catalog.date' ELSE shown END;
END
$$;
COMMENT ON FUNCTION sweep._age_limit(text, jsonb) IS 'an expression: the limit of the age; older rows are not kept';

CREATE FUNCTION sweep._expression_index(role oid, relation regclass, expression text, settings jsonb) RETURNS oid
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_expression_index';
COMMENT ON FUNCTION sweep._expression_index(oid, regclass, text, jsonb) IS 'an index of the table that begins with this expression, analysed as the role; NULL: none';

-- An expression is stored as PostgreSQL writes it, with qualified names; another version may write it differently.
CREATE FUNCTION sweep._find_age(role text, relation regclass, age text, settings jsonb) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	index pg_catalog.oid;
BEGIN
	IF age ~ '^[[:alnum:]_]+$' OR EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = age AND a.attnum > 0 AND NOT a.attisdropped) THEN
		RETURN age;
	END IF;
	BEGIN
		PERFORM sweep._check_condition(age);
	EXCEPTION WHEN syntax_error OR invalid_parameter_value THEN
		RETURN age;
	END;
	index := sweep._expression_index(sweep._role_oid(role), relation, age, settings);
	IF index IS NULL THEN
		RAISE EXCEPTION '% has no index that begins with %', relation, age USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each batch would read the whole table. It must be a valid btree index without a WHERE.',
			HINT = pg_catalog.format('CREATE INDEX %sON %s ((%s));', CASE WHEN NOT sweep._is_partitioned(relation) THEN 'CONCURRENTLY ' ELSE '' END, relation, age);
	END IF;
	RETURN coalesce((SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = relation AND a.attnum = i.indkey[0] WHERE i.indexrelid = index),
		sweep._index_expression(index));
END
$$;
COMMENT ON FUNCTION sweep._find_age(text, regclass, text, jsonb) IS 'the age of a row: an expression as it is in an index; any other text is returned unchanged and may be the name of a column';

CREATE FUNCTION sweep._age_key(relation regclass, age_column text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Prefers a unique index with as few columns as possible, else the index with the most columns.
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i
			CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k CROSS JOIN LATERAL sweep._is_unique(relation, k.columns) AS u (is_unique)
		WHERE i.indrelid = relation AND k.columns[1] = age_column
		ORDER BY u.is_unique DESC, CASE WHEN u.is_unique THEN pg_catalog.cardinality(k.columns) ELSE - pg_catalog.cardinality(k.columns) END, i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no index that begins with "%"', relation, age_column USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each batch would read the whole table. It must be a valid btree index without a WHERE.',
			HINT = CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = age_column AND a.attgenerated = 'v')
				THEN 'A virtual generated column cannot have one. Write its expression as age_column, and create an index of that.' ELSE sweep._create_index(relation, ARRAY[age_column]) END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._age_key(regclass, text) IS 'the columns of the index by which the oldest rows are found, and where its nulls are; raises when there is no such index';

-- ------------------------------------------------------------------ another table
CREATE FUNCTION sweep._archive_columns(relation regclass, archive regclass) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, pg_catalog.format_type(b.atttypid, b.atttypmod) AS other_type INTO wrong
		FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attribute b ON b.attrelid = archive AND b.attname = a.attname AND b.attnum > 0 AND NOT b.attisdropped
		WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND (b.atttypid, b.atttypmod) IS DISTINCT FROM (a.atttypid, a.atttypmod) ORDER BY a.attnum LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is not in % with type %', wrong.attname, relation, archive, wrong.type USING ERRCODE = 'datatype_mismatch',
			DETAIL = CASE WHEN wrong.other_type IS NULL THEN 'There is no such column.' ELSE pg_catalog.format('There it has type %s.', wrong.other_type) END,
			HINT = pg_catalog.format('ALTER TABLE %s %s COLUMN %I %s%s;', archive, CASE WHEN wrong.other_type IS NULL THEN 'ADD' ELSE 'ALTER' END, wrong.attname,
				CASE WHEN wrong.other_type IS NULL THEN '' ELSE 'TYPE ' END, wrong.type);
	END IF;
	SELECT b.attname INTO wrong FROM pg_catalog.pg_attribute b WHERE b.attrelid = archive AND b.attnum > 0 AND NOT b.attisdropped AND b.attnotnull AND NOT b.atthasdef
		AND b.attidentity = '' AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is not in %', wrong.attname, archive, relation USING ERRCODE = 'datatype_mismatch',
			HINT = 'It is NOT NULL, so it needs a default.';
	END IF;
	-- If the column is generated only in the archive, the value of the row would be lost.
	SELECT b.attname INTO wrong FROM pg_catalog.pg_attribute b JOIN pg_catalog.pg_attribute a ON a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND a.attgenerated = ''
		WHERE b.attrelid = archive AND b.attnum > 0 AND b.attgenerated <> '' ORDER BY b.attnum LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is generated', wrong.attname, archive USING ERRCODE = 'datatype_mismatch',
			DETAIL = pg_catalog.format('The values that it has in %s would be gone.', relation), HINT = 'ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION;';
	END IF;
	-- Columns that are generated in both tables are computed again.
	RETURN (SELECT pg_catalog.array_agg(b.attname::pg_catalog.text ORDER BY b.attnum) FROM pg_catalog.pg_attribute b WHERE b.attrelid = archive AND b.attnum > 0 AND NOT b.attisdropped
		AND b.attgenerated = '' AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped));
END
$$;
COMMENT ON FUNCTION sweep._archive_columns(regclass, regclass) IS 'the columns that are moved; raises unless the other table has all of them';

-- ------------------------------------------------------------------ the statements
CREATE FUNCTION sweep._due_rows(relation regclass, args jsonb, role oid, OUT age text, OUT type text, OUT age_limit text, OUT due text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	age := sweep._find_age(sweep._role_name(role), relation, args ->> 'age_column', '{}');
	type := sweep._age_type(relation, age);
	age_limit := sweep._age_limit(type, args);
	due := pg_catalog.format('%s OPERATOR(pg_catalog.<) %s', (sweep._key_expression(relation, age)).expression, age_limit);
	IF args ? 'condition' THEN
		PERFORM sweep._check_condition(args ->> 'condition');
		due := pg_catalog.format(E'%s AND (%s\n)', due, args ->> 'condition');
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._due_rows(regclass, jsonb, oid) IS 'the condition of the rows that a retention is to delete, the age of a row, its type, and its limit';

-- If the type of the column were altered during a run, values could be compared with the time zone of the session, and dates before their
-- day is over. The statement that contains this check locks the table for the batch, and is analysed again when the table was altered.
CREATE FUNCTION sweep._refuse_age_type(relation text, age text) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'the type of "%" of % has changed since the run began', age, relation USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Start the job again.';
END
$$;
COMMENT ON FUNCTION sweep._refuse_age_type(text, text) IS 'raises: called when the age of the rows of a table, or of a partition, has another type';

-- Intervals are compared with months of 30 days. One whose parts have different signs may be longer than zero by that, and reach into the
-- future from some dates.
CREATE FUNCTION sweep._least_seconds(keep interval) RETURNS bigint
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT p.seconds + p.days::bigint * CASE WHEN p.days > 0 THEN 23 ELSE 25 END * 3600 + p.months::bigint * CASE WHEN p.months > 0 THEN 28 ELSE 31 END * 86400
		FROM sweep._interval_parts(keep) AS p);
END
$$;
COMMENT ON FUNCTION sweep._least_seconds(interval) IS 'the least time that an interval may be, with the shortest months and days';

CREATE FUNCTION sweep._check_keep(keep interval, cascade text) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF keep IS NULL OR keep < interval '0' OR keep > interval '1000 years' OR sweep._least_seconds(keep) < 0 THEN
		RAISE EXCEPTION 'invalid keep %', keep USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be at least zero, from any date on, and at most 1000 years.';
	END IF;
	IF cascade IS NULL OR cascade NOT IN ('batched', 'at_once', 'refuse') THEN
		RAISE EXCEPTION 'invalid cascade "%"', cascade USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "batched", "at_once" or "refuse".';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_keep(interval, text) IS 'raises unless these args of a retention mean something';

CREATE FUNCTION sweep._retention_statements(args jsonb, again boolean, role oid, as_of timestamptz, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	archive constant pg_catalog.regclass := CASE WHEN args ? 'archive_to' THEN sweep._find_table('archive_to', args ->> 'archive_to', NULL) END;
	rows constant pg_catalog.record := sweep._due_rows(relation, args, role);
	age constant pg_catalog.text := rows.age;
	type constant pg_catalog.text := rows.type;
	age_limit constant pg_catalog.text := rows.age_limit;
	key pg_catalog.record;
	due constant pg_catalog.text := rows.due || sweep._in_range(relation, args -> 'range', again);
	free constant pg_catalog.text := sweep._not_referenced(relation);
	cascading constant pg_catalog.bool := sweep._referred_columns(relation, false) <> '{}' AND args ->> 'cascade' = 'batched';
	-- The DateStyle of a role may write an abbreviation such as CST, which is read as another time zone; JSON has the numeric offset.
	limit_text constant pg_catalog.text := pg_catalog.format('(pg_catalog.to_jsonb(%s) OPERATOR(pg_catalog.#>>) ''{}'')', age_limit);
	moment pg_catalog.text;
	late pg_catalog.text;
	seen pg_catalog.text;
	parts pg_catalog.text[] := known_parts;
	place pg_catalog.record;
	first boolean;
BEGIN
	-- The args may have been altered, and columns renamed.
	PERFORM sweep._check_keep((args ->> 'keep')::interval, args ->> 'cascade');
	IF args ->> 'partitions' <> 'empty' THEN
		PERFORM sweep._check_partitions(sweep._role_name(role), relation, args, false);
	END IF;
	IF archive IS NOT NULL THEN
		-- Child tables (INHERITS) may have further columns, which would not be moved.
		PERFORM sweep._check_logged(archive), sweep._check_heirs(relation);
	END IF;
	IF args ->> 'cascade' = 'refuse' AND sweep._referred_columns(relation, false) <> '{}' THEN
		RAISE EXCEPTION 'rows of other tables go, or change, with those of %', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = (SELECT pg_catalog.format('Foreign key "%s" of %s has an ON DELETE action.', r.name, r.child) FROM sweep._referencing(relation, '', '') AS r WHERE r.action IN ('c', 'n', 'd') LIMIT 1),
			HINT = 'Write cascade => ''batched'' to have them deleted batch by batch.';
	END IF;
	IF parts IS NULL AND sweep._is_partitioned(relation) THEN
		EXECUTE 'SELECT ' || limit_text INTO moment USING NULL::int, NULL::pg_catalog.jsonb, as_of;
		parts := sweep._parts(relation, age, role, type, moment, 'DELETE', args ->> 'condition');
	END IF;
	place := sweep._next_place(relation, parts, part);
	key := sweep._age_key(coalesce(place.part, relation), age);
	-- With ranges late rows cannot be counted: other shares have deleted some of the rows by then.
	seen := due || coalesce((SELECT pg_catalog.format(' AND (SELECT pg_catalog.pg_typeof((NULL::%1$s).%2$I) OPERATOR(pg_catalog.=) %3$L::pg_catalog.regtype OR sweep._refuse_age_type(%1$L, %2$L))', sweep._table_name(a.attrelid::pg_catalog.regclass), age, sweep._type_name(a.atttypid, -1))
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = coalesce(place.part, relation) AND a.attname = age),
		-- For an expression, only its type is determined, with the columns of a null row; it is not executed.
		pg_catalog.format(' AND (SELECT pg_catalog.pg_typeof(CASE WHEN false THEN %2$s END) OPERATOR(pg_catalog.=) %3$L::pg_catalog.regtype OR sweep._refuse_age_type(%1$L, %2$L) FROM (SELECT (NULL::%1$s).*) AS %4$I)',
			sweep._table_name(coalesce(place.part, relation)), age, sweep._type_name(type::pg_catalog.regtype, -1), sweep._relation_name(relation))) || CASE WHEN again THEN free ELSE '' END;
	late := CASE WHEN NOT args ? 'range' THEN sweep._late_rows(role, args, relation, type, age, due) END;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._removal_statements(relation, place.part, archive, key.columns, key.nulls, seen, due, free, cascading, first);
		made.custom := sweep._has_select(args ->> 'condition');
		made.optimistic := args ->> 'condition' IS NULL AND free = '' AND NOT (SELECT c.relrowsecurity FROM pg_catalog.pg_class c WHERE c.oid = relation);
		made.next_part := place.next_part;
		made.parts := parts;
		made.rest_counter := CASE WHEN free <> '' THEN 'referenced' END;
		made.epilogue := CASE WHEN sweep._looks_at_rest(args) THEN pg_catalog.format('SELECT %s, NULL::pg_catalog.int8, NULL::pg_catalog.int8, %s',
			CASE free WHEN '' THEN 'false' ELSE pg_catalog.format('EXISTS (SELECT FROM %s WHERE %s%s)', sweep._source(relation, NULL), rows.due, free) END,
			sweep._proof_expression(relation, type, args, age, rows.due, free)) END;
		made.prologue := CASE args ->> 'partitions' WHEN 'drop' THEN pg_catalog.format('SELECT d.rows, d.next_cursor, d.detail FROM sweep._drop_too_old(%L, %L, %s, %L, $3, $2) AS d'
				' WHERE (($2 OPERATOR(pg_catalog.->) ''after'') IS NULL)', sweep._table_name(relation), type, limit_text, late)
			ELSE sweep._late_prologue(late) END;
		-- Checked while the table is locked, because the values of a column that was added since would be lost.
		IF archive IS NOT NULL THEN
			made.ordering := pg_catalog.format('SELECT sweep._check_columns(%1$L, %3$L, sweep._archive_columns(%1$L, %2$L)), sweep._check_heirs(%1$L)', sweep._table_name(relation), sweep._table_name(archive),
				sweep._archive_columns(relation, archive));
		END IF;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._retention_statements(jsonb, boolean, oid, timestamptz, text, text[]) IS 'the statements of a retention, of a partition of its table or of all of it';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep.retention_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.retention_step(sweep.batch) IS 'step of the jobs of sweep.create_retention';

CREATE FUNCTION sweep._check_retention(role text, args jsonb, settings jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	archive pg_catalog.regclass;
	foreign_key pg_catalog.record;
BEGIN
	PERFORM sweep._check_table(role, relation, '{SELECT,DELETE}');
	PERFORM sweep._age_key(relation, args ->> 'age_column') FROM sweep._age_type(relation, args ->> 'age_column');
	PERFORM sweep._check_referring(role, relation);
	PERFORM sweep._check_partitions(role, relation, args, true);
	IF args ? 'archive_to' THEN
		archive := sweep._find_table('archive_to', args ->> 'archive_to', NULL);
		PERFORM sweep._check_table(role, archive, '{INSERT}');
		IF archive = relation OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(relation)) AS t WHERE t.relid = archive) THEN
			RAISE EXCEPTION 'rows of % cannot be moved to itself', relation USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another table in archive_to.';
		END IF;
		FOR foreign_key IN SELECT r.name, r.child FROM sweep._referencing(relation, '', '') AS r WHERE r.action = 'c' LOOP
			RAISE WARNING 'rows of % that refer to those that are moved are deleted', foreign_key.child
				USING DETAIL = pg_catalog.format('Foreign key "%s" is ON DELETE CASCADE.', foreign_key.name);
		END LOOP;
	END IF;
	IF args ? 'condition' THEN
		PERFORM sweep._check_condition(args ->> 'condition');
		PERFORM sweep._check_fragment(role, pg_catalog.format(E'DELETE FROM %s WHERE $1 IS NOT NULL AND (%s\n)', sweep._source(relation, NULL), args ->> 'condition'), settings);
	END IF;
	PERFORM sweep._check_rules(role, relation, s, settings) FROM sweep._retention_statements(args, false, sweep._role_oid(role), pg_catalog.now(), NULL, NULL) AS s;
END
$$;
COMMENT ON FUNCTION sweep._check_retention(text, jsonb, jsonb) IS 'raises unless the role can delete or move rows that are too old';

CREATE FUNCTION sweep._create_retention(caller oid, job sweep.job_definition, target text, age_column text, keep interval, condition text, archive_to text,
	partitions text, cascade text, parallel int, run_as regrole, paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	wrong constant pg_catalog.text := CASE WHEN age_column IS NULL THEN 'age_column' WHEN keep IS NULL THEN 'keep' WHEN partitions IS NULL THEN 'partitions' WHEN cascade IS NULL THEN 'cascade' END;
	zone constant pg_catalog.text := coalesce(sweep._find_zone(job.timezone), 'UTC');
BEGIN
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', wrong USING ERRCODE = 'null_value_not_allowed',
			HINT = CASE wrong WHEN 'keep' THEN 'Say for how long rows are kept, for example: 90 days.' WHEN 'partitions' THEN 'Write "empty" or "drop".'
				WHEN 'cascade' THEN 'Write "batched", "at_once" or "refuse".'
				ELSE 'Name the column that says since when a row is there.' END;
	END IF;
	PERFORM sweep._check_keep(keep, cascade);
	IF parallel > 1 AND partitions = 'drop' THEN
		RAISE EXCEPTION 'partitions cannot be dropped with parallel => %', parallel USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Leave parallel out: to drop a partition takes no longer when it has more rows. Or leave partitions out: their rows are then deleted.';
	END IF;
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'retention', relation, run_as);
	age_column := sweep._find_age(job.run_as, relation, age_column, sweep._job_meaning(job.run_as, job.settings));
	-- If a run stops at a limit, the next one goes on there, and does not read the dead rows before.
	job.cursor := sweep._kept_by(job);
	job.args := job.args || pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'age_column', age_column, 'keep', keep,
		'timezone', zone, 'condition', condition, 'partitions', partitions, 'cascade', cascade,
		'archive_to', CASE WHEN archive_to IS NOT NULL THEN sweep._table_name(sweep._find_table('archive_to', archive_to, coalesce(run_as::pg_catalog.oid, caller))) END));
	PERFORM sweep._check_retention(job.run_as, job.args, job.settings);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_retention IS 'implements sweep.create_retention';

CREATE FUNCTION sweep.create_retention(target text, age_column text, keep interval, schedule text DEFAULT 'H 3 * * *', condition text DEFAULT NULL,
	archive_to text DEFAULT NULL, name text DEFAULT NULL, partitions text DEFAULT 'empty', cascade text DEFAULT 'batched', timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000,
	max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT NULL,
	settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL,
	overlap text DEFAULT NULL, catch_up text DEFAULT NULL, jitter interval DEFAULT NULL, estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL,
	on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL,
	parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_retention IS
	'creates a job that deletes rows that are older than the retention time, or moves them to another table; returns its name';
--
-- The proof of a retention that has drained: its table has no rows older than a given age, except those that are counted.
--
-- It is computed by one statement, in one snapshot, in the batch that finds nothing more to do, and committed with that batch. It is true only
-- for that time. A restored database has no proofs, and proofs of another cluster or database do not count: see the view.
--
CREATE TABLE sweep.retention_proof (
	job          text PRIMARY KEY,
	run_as       text NOT NULL,
	run_id       bigint NOT NULL,
	proved_at    timestamptz NOT NULL,
	proof        jsonb NOT NULL,
	system_identifier bigint NOT NULL,
	database     oid NOT NULL
);
COMMENT ON TABLE sweep.retention_proof IS 'what the last run of each retention that drained has proved; see sweep.retentions';
COMMENT ON COLUMN sweep.retention_proof.job IS 'name of the job';
COMMENT ON COLUMN sweep.retention_proof.run_as IS 'role of the run';
COMMENT ON COLUMN sweep.retention_proof.run_id IS 'number of the run';
COMMENT ON COLUMN sweep.retention_proof.proved_at IS 'when its last statement was executed';
COMMENT ON COLUMN sweep.retention_proof.proof IS 'the result of sweep._proof_expression';
COMMENT ON COLUMN sweep.retention_proof.system_identifier IS 'cluster and extension it was proved in';
COMMENT ON COLUMN sweep.retention_proof.database IS 'database it was proved in';

CREATE FUNCTION sweep._count_up_to(relation regclass, condition text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- OFFSET 0: see sweep._rest_statement.
	RETURN pg_catalog.format('(SELECT CASE WHEN c.rows OPERATOR(pg_catalog.>) 10000 THEN pg_catalog.to_jsonb(''more than 10000''::pg_catalog.text) ELSE pg_catalog.to_jsonb(nullif(c.rows, 0)) END'
		' FROM (SELECT %s OFFSET 0) AS c (rows))', sweep._count_some(relation, condition, 10001));
END
$$;
COMMENT ON FUNCTION sweep._count_up_to(regclass, text) IS 'an expression: how many rows meet a condition, as JSON; NULL: none does';

CREATE FUNCTION sweep._proof_of(args jsonb) RETURNS jsonb
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.jsonb_object_agg(e.key, e.value) FROM pg_catalog.jsonb_each(args) AS e WHERE e.key IN ('target', 'age_column', 'condition', 'timezone'));
END
$$;
COMMENT ON FUNCTION sweep._proof_of(jsonb) IS 'the args of a retention that identify the rows of a proof';

-- The proof may not have seen rows of the transactions that were in progress then, or of later ones. If several jobs have proofs of
-- the same rows, that up to the latest age says most.
CREATE FUNCTION sweep._late_rows(role oid, args jsonb, relation regclass, type text, age text, due text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(args ->> 'timezone', 'UTC');
	last pg_catalog.jsonb;
	bound pg_catalog.text;
BEGIN
	SELECT p.proof INTO last FROM sweep.retention_proof p WHERE p.run_as = sweep._role_name(role) AND p.proof -> 'of' = sweep._proof_of(args) AND sweep._is_home(p.system_identifier, p.database)
		ORDER BY (p.proof ->> 'complete_to')::pg_catalog.timestamptz DESC NULLS LAST, p.run_id DESC LIMIT 1;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	bound := pg_catalog.format(CASE type WHEN 'timestamp with time zone' THEN '%2$L::pg_catalog.timestamptz' WHEN 'date' THEN '(pg_catalog.timezone(%1$L, %2$L::pg_catalog.timestamptz))::pg_catalog.date'
		ELSE 'pg_catalog.timezone(%1$L, %2$L::pg_catalog.timestamptz)' END, zone, last ->> 'complete_to');
	RETURN sweep._count_some(relation, pg_catalog.format('%s OPERATOR(pg_catalog.<) %s AND %s AND pg_catalog.age(%I.xmin) OPERATOR(pg_catalog.>=) 0 AND pg_catalog.age(%4$I.xmin) OPERATOR(pg_catalog.<=) pg_catalog.age(%5$L::pg_catalog.xid)',
		(sweep._key_expression(relation, age)).expression, bound, due, sweep._relation_name(relation), ((last ->> 'since_xid')::bigint % 4294967296)::pg_catalog.text), 10000);
END
$$;
COMMENT ON FUNCTION sweep._late_rows(oid, jsonb, regclass, text, text, text) IS 'an expression: the number of late rows, which are due although the last proof says that there are none so old; NULL: there is no proof';

CREATE FUNCTION sweep._late_prologue(late text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'SELECT NULL::pg_catalog.int8, coalesce($2, ''{}'') OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(''late'', l.rows),'
		' CASE WHEN l.rows OPERATOR(pg_catalog.>) 0 THEN pg_catalog.jsonb_build_object(''late_rows'', l.rows) END'
		' FROM (SELECT ' || late || ' OFFSET 0) AS l (rows) WHERE ($2 OPERATOR(pg_catalog.->) ''late'') IS NULL';
END
$$;
COMMENT ON FUNCTION sweep._late_prologue(text) IS 'the statement before each batch of a retention: counts late rows, once; NULL: there is no proof';

CREATE FUNCTION sweep._proof_expression(relation regclass, type text, args jsonb, age text, due text, free text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := pg_catalog.quote_literal(coalesce(args ->> 'timezone', 'UTC'));
	moment constant pg_catalog.text := sweep._age_limit(type, args);
	aged constant pg_catalog.text := (sweep._key_expression(relation, age)).expression;
	old constant pg_catalog.text := pg_catalog.format('%s OPERATOR(pg_catalog.<) %s', aged, moment);
	-- Converts an age of any type to timestamptz.
	absolute constant pg_catalog.text := CASE type WHEN 'timestamp with time zone' THEN '%s' ELSE pg_catalog.format('pg_catalog.timezone(%s, (%%s)::pg_catalog.timestamp)', zone) END;
BEGIN
	RETURN pg_catalog.format('pg_catalog.jsonb_build_object(''of'', %L::pg_catalog.jsonb, ''complete_to'', %s, ''oldest_kept'', (SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT 1), ''hidden'', pg_catalog.row_security_active(%L), ''late_rows'', $2 OPERATOR(pg_catalog.->) ''late'','
			' ''since_xid'', pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text,'
			' ''kept'', pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(''left'', %s, ''referenced'', %s, ''condition'', %s, ''null_age'', %s)))',
		sweep._proof_of(args), pg_catalog.replace(absolute, '%s', moment), pg_catalog.replace(absolute, '%s', aged), sweep._source(relation, NULL), old, aged, sweep._table_name(relation),
		sweep._count_up_to(relation, due || free), CASE free WHEN '' THEN 'NULL' ELSE sweep._count_up_to(relation, pg_catalog.format('%s AND (true%s) IS FALSE', due, free)) END,
		CASE WHEN args ? 'condition' THEN sweep._count_up_to(relation, pg_catalog.format(E'%s AND (%s\n) IS NOT TRUE', old, args ->> 'condition')) ELSE 'NULL' END,
		sweep._count_up_to(relation, aged || ' IS NULL'));
END
$$;
COMMENT ON FUNCTION sweep._proof_expression(regclass, text, jsonb, text, text, text) IS
	'an expression, the proof: the time before which all rows are gone, how many are kept and why: {"of", "complete_to", "oldest_kept", "hidden", "late_rows", "since_xid", "kept"}; hidden: policies may have hidden rows; since_xid: the oldest transaction in progress';

-- ------------------------------------------------------------------ the view
-- The owner of the job may have written any values into its args, and an error for one row would make the view unreadable.
-- Statistics contain values of rows, so they are only used for tables of which the role may read the age of all rows.
CREATE FUNCTION sweep._retention_age(args jsonb, role text, OUT keep interval, OUT age_limit timestamptz, OUT tables oid[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(args ->> 'timezone', 'UTC');
	reader constant pg_catalog.oid := sweep._role_oid(role);
	days interval;
	name pg_catalog.text[];
BEGIN
	keep := (args ->> 'keep')::interval;
	days := pg_catalog.date_trunc('day', keep);
	-- Computes the same as the text of sweep._age_limit; a view must not execute a text that was built from args.
	age_limit := CASE WHEN days = interval '0' THEN pg_catalog.now() ELSE pg_catalog.timezone(zone, pg_catalog.timezone(zone, pg_catalog.now()) - days) END - (keep - days);
	name := pg_catalog.parse_ident(args ->> 'target');
	-- Computed in this function, because a view with a recursive query cannot be used in statements over distributed tables of Citus.
	tables := ARRAY(WITH RECURSIVE part AS (
			SELECT c.oid FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid JOIN pg_catalog.pg_roles r ON r.oid = reader
				WHERE n.nspname = name[1] AND c.relname = name[2] AND c.relkind IN ('r', 'p') AND pg_catalog.has_schema_privilege(reader, n.oid, 'USAGE')
					AND (pg_catalog.has_table_privilege(reader, c.oid, 'SELECT')
						OR EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = args ->> 'age_column' AND pg_catalog.has_column_privilege(reader, c.oid, a.attnum, 'SELECT')))
					AND (NOT c.relrowsecurity OR r.rolsuper OR r.rolbypassrls OR NOT c.relforcerowsecurity AND pg_catalog.pg_has_role(reader, c.relowner, 'USAGE'))
			UNION SELECT i.inhrelid FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.oid)
		SELECT p.oid FROM part AS p);
EXCEPTION WHEN OTHERS THEN
	tables := NULL;
END
$$;
COMMENT ON FUNCTION sweep._retention_age(jsonb, text) IS 'what the args of a retention of a role mean now: for how long rows are kept, the present limit of the age, and the tables: the target, its partitions and children; no tables if the role may not see the age of all rows';

-- Values are checked, because the step may be called with any cursor, and the age may have any type that can be compared.
CREATE FUNCTION sweep._proof_values(proof jsonb, OUT hidden boolean, OUT complete_to timestamptz, OUT oldest_kept timestamptz, OUT open_since timestamptz, OUT late_rows bigint) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	hidden := (proof ->> 'hidden')::boolean;
	complete_to := CASE WHEN NOT hidden THEN (proof ->> 'complete_to')::pg_catalog.timestamptz END;
	oldest_kept := (proof ->> 'oldest_kept')::pg_catalog.timestamptz;
	open_since := (proof ->> 'open_since')::pg_catalog.timestamptz;
	late_rows := (proof ->> 'late_rows')::bigint;
EXCEPTION WHEN data_exception THEN
	complete_to := NULL;
END
$$;
COMMENT ON FUNCTION sweep._proof_values(jsonb) IS 'the values of a proof, with the types of the columns of sweep.retentions; complete_to is NULL when a value has another type';

-- Computed as in the planner; "bounds" are the histogram bounds, which divide the other values into equal parts.
CREATE FUNCTION sweep._share_older(type oid, zone text, age_limit timestamptz, common text, frequencies real[], bounds text, nulls real) RETURNS float8
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_absolute constant boolean := type = 'pg_catalog.timestamptz'::pg_catalog.regtype;
	moment constant pg_catalog.timestamptz := CASE type WHEN 'pg_catalog.date'::pg_catalog.regtype THEN pg_catalog.timezone(zone, pg_catalog.date_trunc('day', pg_catalog.timezone(zone, age_limit))) ELSE age_limit END;
	older pg_catalog.float8;
	parts int;
	below int;
BEGIN
	SELECT coalesce(pg_catalog.sum(f.frequency) FILTER (WHERE v.value < moment), 0) INTO older FROM pg_catalog.unnest(frequencies) WITH ORDINALITY AS f (frequency, n)
		JOIN (SELECT u.n, CASE WHEN is_absolute THEN u.value::pg_catalog.timestamptz ELSE pg_catalog.timezone(zone, u.value::timestamp) END AS value
			FROM pg_catalog.unnest(common::pg_catalog.text[]) WITH ORDINALITY AS u (value, n)) AS v ON v.n = f.n;
	SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE CASE WHEN is_absolute THEN u.value::pg_catalog.timestamptz ELSE pg_catalog.timezone(zone, u.value::timestamp) END < moment)
		INTO parts, below FROM pg_catalog.unnest(bounds::pg_catalog.text[]) AS u (value);
	IF parts > 1 AND below > 0 THEN
		older := older + (1 - nulls - coalesce((SELECT pg_catalog.sum(f) FROM pg_catalog.unnest(frequencies) AS f), 0)) * CASE WHEN below = parts THEN 1 ELSE (below - 0.5) / (parts - 1) END;
	END IF;
	RETURN greatest(least(older, 1), 0);
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._share_older(oid, text, timestamptz, text, real[], text, real) IS 'the fraction of rows with an age before age_limit, by the statistics of its column: most common values with their frequencies, histogram bounds, fraction of nulls';
--
-- sweep.delete: rows that meet a condition are deleted once, in batches, with the rows that refer to them.
--
-- A job uses the order of an index that serves its condition: a batch then reads only rows that meet it. If there is none, it uses a
-- unique key, and a batch reads as many rows as it may delete, however few meet the condition.
--
CREATE FUNCTION sweep._key_cost(role oid, statement text, settings jsonb, OUT cost float8, OUT filters boolean) RETURNS record
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_key_cost';
COMMENT ON FUNCTION sweep._key_cost(oid, text, jsonb) IS
	'the estimated cost of reading rows in the order of an index, planned as the role, and whether more rows are read than are returned; NULL: there is no such index, or rows may have a null in a column of the order';

CREATE FUNCTION sweep._count_deletion(role oid, relation regclass, roots text, settings jsonb) RETURNS jsonb
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_delete_count';
COMMENT ON FUNCTION sweep._count_deletion(oid, regclass, text, jsonb) IS
	'how many rows would be deleted, or lose their reference, with those that the statement finds as the role: {"table": {"deleted": 1, "nulled": 2}}';

CREATE FUNCTION sweep._index_uses(index oid, columns text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attname = ANY (columns)
		WHERE i.indexrelid = index AND (a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1])
			-- in an expression, or in the WHERE of the index
			OR (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
				AND EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = index
					AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = i.indrelid AND d.refobjsubid = a.attnum))));
END
$$;
COMMENT ON FUNCTION sweep._index_uses(oid, text[]) IS 'whether the position of a row in an index depends on one of these columns';

-- Compares the planner's costs of reading all rows of the condition. An index that is not unique, or has nulls, does not order all rows.
CREATE FUNCTION sweep._run_key(role text, relation regclass, condition text, settings jsonb, changed text[], only_unique boolean, OUT columns text[], OUT serves boolean) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	meaning constant pg_catalog.jsonb := sweep._job_meaning(role, settings);
	candidate pg_catalog.record;
	best_cost pg_catalog.float8;
	best_filters boolean;
	serving pg_catalog.text[];
	reading pg_catalog.text;
	ordered pg_catalog.text;
	matching pg_catalog.record;
	whole pg_catalog.float8;
	best_whole pg_catalog.float8;
BEGIN
	FOR candidate IN SELECT DISTINCT ON (k.columns) k.columns, k.nulls, sweep._is_unique(relation, k.columns) AS is_unique, i.indisprimary
			FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
			WHERE i.indrelid = relation AND k.columns IS NOT NULL AND NOT sweep._index_uses(i.indexrelid, changed) AND (NOT only_unique OR sweep._tells_done(i.indexrelid, k.columns))
			ORDER BY k.columns, i.indisprimary DESC LOOP
		reading := pg_catalog.format('SELECT %s FROM %s WHERE ', sweep._key_list(relation, candidate.columns), sweep._source(relation, NULL));
		ordered := ' ORDER BY ' || sweep._key_order(relation, candidate.columns, candidate.nulls, false);
		matching := sweep._key_cost(sweep._role_oid(role), reading || pg_catalog.format(E'(%s\n)', condition) || ordered, meaning);
		whole := (sweep._key_cost(sweep._role_oid(role), reading || 'true' || ordered, meaning)).cost;
		IF candidate.is_unique AND whole IS NOT NULL AND (best_whole IS NULL OR candidate.indisprimary) THEN
			best_whole := whole;
			columns := candidate.columns;
		END IF;
		IF matching.cost IS NOT NULL AND (serving IS NULL OR matching.cost < best_cost OR matching.cost = best_cost AND candidate.indisprimary) THEN
			best_cost := matching.cost;
			best_filters := matching.filters;
			serving := candidate.columns;
		END IF;
	END LOOP;
	IF best_whole IS NULL AND NOT only_unique THEN
		best_whole := sweep._scan_cost(relation);
		columns := '{ctid}';
	END IF;
	-- If other rows are read, too, any number of them may lie between two rows that meet the condition.
	serves := coalesce(serving IS NOT NULL AND CASE WHEN best_filters THEN best_cost * CASE WHEN columns = '{ctid}' THEN 1 ELSE 5 END < best_whole ELSE best_cost < best_whole * 3 END, false);
	-- A unique index that has nulls orders only the rows of the condition.
	IF serves OR columns IS NULL THEN
		columns := serving;
	END IF;
	IF columns IS NULL THEN
		RAISE EXCEPTION '% has no unique index by which to go through it', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each row is to be updated once. The index must be a valid btree index without a WHERE, not deferrable, of columns that are not set, of types of PostgreSQL and in one direction, and in which no row that meets the condition has a null.',
			HINT = 'Add a primary key, or a condition that no row meets after the update, for example: ... SET state = ''done'' WHERE state = ''new''.';
	END IF;
	-- A batch by ctid consists of rows that meet the condition.
	serves := serves OR columns = '{ctid}';
END
$$;
COMMENT ON FUNCTION sweep._run_key(text, regclass, text, jsonb, text[], boolean) IS
	'the columns of the index in whose order a deletion or an update works, none of which changes, and whether the index serves the condition, so that a batch reads only rows that meet it; ctid: by places';

CREATE FUNCTION sweep._scan_cost(relation regclass) RETURNS float8
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.sum(pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::pg_catalog.float8 * pg_catalog.current_setting('seq_page_cost')::pg_catalog.float8
			+ greatest(c.reltuples, 0) * pg_catalog.current_setting('cpu_tuple_cost')::pg_catalog.float8)
		FROM (SELECT relation::pg_catalog.oid AS id UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(relation) AS p) AS t JOIN pg_catalog.pg_class c ON c.oid = t.id);
END
$$;
COMMENT ON FUNCTION sweep._scan_cost(regclass) IS 'the cost of reading a table block by block, in the units of the planner';

-- The greatest key at the start of the run bounds the rows that the run deletes. If the run uses another index, IS TRUE keeps the
-- planner from using this condition as an index range. Unless the index is the primary key, its first column may be null in rows that do
-- not meet the condition.
CREATE FUNCTION sweep._run_bound(relation regclass, key text[], OUT condition text, OUT prologue text, OUT ordering text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	bound pg_catalog.record;
	ordered pg_catalog.text[];
	most constant pg_catalog.text := 'pg_catalog.jsonb_build_object(''after'', $2 OPERATOR(pg_catalog.->) ''most'')';
BEGIN
	IF key = '{ctid}' THEN
		condition := 'true';
		RETURN;
	END IF;
	SELECT k.columns, k.nulls, i.indisprimary INTO bound FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = relation AND k.columns IS NOT NULL AND (i.indisprimary OR k.columns = key) ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1;
	condition := sweep._key_compare(relation, bound.columns, '<=', most);
	IF bound.columns <> key THEN
		condition := pg_catalog.format('(%s) IS TRUE', condition);
	END IF;
	-- In this order, not sorted by name, since a column may be renamed.
	ordered := ARRAY(SELECT u.c FROM pg_catalog.unnest(bound.columns || key) WITH ORDINALITY AS u (c, n) GROUP BY u.c ORDER BY pg_catalog.min(u.n));
	prologue := pg_catalog.format('SELECT NULL::pg_catalog.int8, coalesce($2, ''{}'') OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(''ordering'', sweep._key_ordering(%L, %L), ''most'','
		' (SELECT %s FROM (SELECT %s FROM %s%s ORDER BY %s LIMIT 1) AS k)), NULL::pg_catalog.jsonb WHERE ($2 OPERATOR(pg_catalog.->) ''most'') IS NULL', sweep._table_name(relation), ordered,
		sweep._key_values(relation, bound.columns), sweep._key_list(relation, bound.columns), sweep._source(relation, NULL),
		CASE WHEN NOT bound.indisprimary THEN pg_catalog.format(' WHERE %s IS NOT NULL', (sweep._key_expression(relation, bound.columns[1])).expression) END, sweep._key_order(relation, bound.columns, bound.nulls, true));
	ordering := pg_catalog.format('SELECT sweep._check_ordering(%L, %L, $2, %L)', sweep._table_name(relation), ordered, 'Drop the job, and execute the statement for the rows that are left.');
END
$$;
COMMENT ON FUNCTION sweep._run_bound(regclass, text[]) IS 'the condition that the key of a row is at most the greatest key at the start of the run, the statement that puts that key into the cursor, and the one that checks whether the order of keys has changed';

-- With a condition such as id = (SELECT max(id) ...), each batch would find another row, until none is left.
CREATE FUNCTION sweep._check_deletion(role text, relation regclass, condition text, meaning jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
BEGIN
	SELECT p.reads, p.is_limited INTO parts FROM sweep._batched_parts(sweep._role_oid(role), pg_catalog.format(E'DELETE FROM %s WHERE (%s\n)', sweep._table_name(relation), condition), meaning, false) AS p;
	PERFORM sweep._check_batched_reads(role, relation, parts.reads, parts.is_limited);
END
$$;
COMMENT ON FUNCTION sweep._check_deletion(text, regclass, text, jsonb) IS 'raises when batches of a deletion would choose other rows than the condition does now';

-- The condition is checked again, because the owner of the job may have altered it.
CREATE FUNCTION sweep._deletion_condition(args jsonb, role oid, OUT text text, OUT joins boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
BEGIN
	IF args ? 'statement' THEN
		parts := sweep._stored_parts(args, role, 'delete');
		text := sweep._found_by(parts);
		joins := parts.reads <> '{}';
	ELSE
		PERFORM sweep._check_condition(args ->> 'condition');
		text := args ->> 'condition';
		joins := sweep._has_select(text);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._deletion_condition(jsonb, oid) IS 'the condition of a deletion, from its args or from the statement in them, and whether it uses other tables';

CREATE FUNCTION sweep._delete_statements(args jsonb, again boolean, role oid, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	key constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(args -> 'key'));
	by_place constant boolean := key = '{ctid}';
	condition constant pg_catalog.record := sweep._deletion_condition(args, role);
	parts constant pg_catalog.text[] := CASE WHEN known_parts IS NOT NULL THEN known_parts WHEN by_place THEN sweep._place_parts(relation, role, 'DELETE', condition.text)
		WHEN sweep._is_partitioned(relation) THEN sweep._parts(relation, NULL, role, NULL, NULL, 'DELETE', condition.text) END;
	place constant pg_catalog.record := sweep._next_place(relation, parts, part);
	bound constant pg_catalog.record := sweep._run_bound(relation, key);
	due constant pg_catalog.text := pg_catalog.format(E'(%s\n) AND %s', condition.text, bound.condition);
	free constant pg_catalog.text := sweep._not_referenced(relation);
	in_range constant pg_catalog.text := sweep._in_range(relation, args -> 'range', again);
	nulls pg_catalog.text[];
	first boolean;
BEGIN
	SELECT k.nulls INTO nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = coalesce(place.part, relation) AND k.columns = key ORDER BY i.indexrelid LIMIT 1;
	IF NOT FOUND AND NOT by_place THEN
		RAISE EXCEPTION '% has no index of (%) any more', relation, sweep._column_list(key) USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Create the index again, or drop the job and delete by a new one, which chooses another index.';
	END IF;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		IF by_place THEN
			made := sweep._place_removal(relation, place.part, due, free);
			made.next_part := place.next_part;
			made.parts := parts;
			RETURN NEXT made;
			CONTINUE;
		END IF;
		made := sweep._removal_statements(relation, place.part, NULL, key, nulls,
			CASE WHEN again THEN due || free WHEN (args -> 'serves')::boolean THEN due ELSE bound.condition END || in_range, due || in_range, free, sweep._referred_columns(relation, false) <> '{}', first);
		made.custom := condition.joins;
		made.next_part := place.next_part;
		made.parts := parts;
		made.prologue := CASE WHEN part IS NULL AND first THEN bound.prologue END;
		made.ordering := bound.ordering;
		made.epilogue := CASE WHEN sweep._looks_at_rest(args) THEN sweep._rest_statement(relation, pg_catalog.format(E'(%s\n)%s', condition.text, free), bound.condition,
			CASE WHEN free <> '' THEN sweep._count_some(relation, due || pg_catalog.format(' AND (true%s) IS FALSE', free), 10000) END) END;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._delete_statements(jsonb, boolean, oid, text, text[]) IS 'the statements of a deletion, of a partition of its table or of all of it';

CREATE FUNCTION sweep.delete_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.delete_step(sweep.batch) IS 'step of the jobs that sweep.delete makes';

CREATE FUNCTION sweep._check_delete(role text, relation regclass, condition text, settings jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF condition IS NULL THEN
		RAISE EXCEPTION 'condition must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Say which rows are to go, for example: tenant_id = 42. For all rows write true.';
	END IF;
	PERFORM sweep._check_table(role, relation, '{SELECT,DELETE}'), sweep._check_condition(condition);
	PERFORM sweep._check_fragment(role, pg_catalog.format(E'DELETE FROM %s WHERE $1 IS NOT NULL AND (%s\n)', sweep._source(relation, NULL), condition), settings);
	PERFORM sweep._check_deletion(role, relation, condition, sweep._job_meaning(role, settings)), sweep._check_referring(role, relation);
END
$$;
COMMENT ON FUNCTION sweep._check_delete(text, regclass, text, jsonb) IS 'raises unless the role can delete the rows of the condition in batches';

CREATE FUNCTION sweep._note_whole(job sweep.job_definition, relation regclass, columns text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rows pg_catalog.float8;
BEGIN
	EXECUTE sweep._rows_estimate(relation) INTO rows;
	IF rows > 100 * job.batch_size THEN
		RAISE NOTICE 'job "%" looks at all rows of %, about %', job.name, relation, rows::bigint
			USING DETAIL = pg_catalog.format('It goes by (%s), because no index serves the condition.', sweep._column_list(columns));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._note_whole(sweep.job_definition, regclass, text[]) IS 'raises a NOTICE when a job will read all rows of a table, in many batches';

CREATE FUNCTION sweep._create_once(caller oid, job sweep.job_definition, relation regclass, run_id bigint, keep_job boolean) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	serves constant boolean := (job.args -> 'serves')::boolean;
BEGIN
	IF job.buckets IS NOT NULL AND job.args -> 'key' = '["ctid"]' THEN
		RAISE EXCEPTION '% has no index by which it could be divided', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'The places of its rows change meanwhile.', HINT = 'Add a primary key, or leave parallel out.';
	END IF;
	job.estimate := CASE WHEN NOT serves THEN sweep._rows_estimate(relation) END;
	-- If a run stops at a limit, the next one goes on there.
	job.cursor := sweep._kept_by(job);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, false, false);
	PERFORM sweep._note_whole(job, relation, ARRAY(SELECT pg_catalog.jsonb_array_elements_text(job.args -> 'key'))) WHERE NOT serves OR job.args -> 'key' = '["ctid"]';
	RETURN sweep._start_once(job, run_id, keep_job);
END
$$;
COMMENT ON FUNCTION sweep._create_once(oid, sweep.job_definition, regclass, bigint, boolean) IS 'creates a job that deletes or updates rows once, in the order of the key in its args, and starts it; returns the run_id';

CREATE FUNCTION sweep._delete(caller oid, job sweep.job_definition, target text, condition text, dry_run boolean, keep_job boolean, parallel int, run_as regrole, OUT run_id bigint, OUT tables jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	new_id constant bigint := CASE WHEN NOT dry_run THEN pg_catalog.nextval('sweep.run_live_run_id_seq') END;
	key pg_catalog.record;
BEGIN
	IF dry_run IS NULL OR keep_job IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN dry_run IS NULL THEN 'dry_run' ELSE 'keep_job' END USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	job.name := coalesce(job.name, sweep._maker_name('delete', relation, '_' || new_id));
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'delete', relation, run_as);
	PERFORM sweep._check_delete(job.run_as, relation, condition, job.settings);
	IF dry_run THEN
		IF pg_catalog.jsonb_typeof(job.settings) <> 'object' THEN
			RAISE EXCEPTION 'invalid settings %', job.settings USING ERRCODE = 'invalid_parameter_value', HINT = 'Write an object of names and values: {"work_mem": "256MB"}.';
		END IF;
		PERFORM sweep._check_settings(job);
		tables := sweep._count_deletion(sweep._role_oid(job.run_as), relation, sweep._deletion_roots(relation, condition), sweep._job_meaning(job.run_as, job.settings));
		RETURN;
	END IF;
	key := sweep._run_key(job.run_as, relation, condition, job.settings, '{}', false);
	job.args := job.args || pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'condition', condition, 'key', key.columns, 'serves', key.serves);
	PERFORM sweep._check_rules(job.run_as, relation, s, job.settings) FROM sweep._delete_statements(job.args, false, sweep._role_oid(job.run_as), NULL, NULL) AS s;
	run_id := sweep._create_once(caller, job, relation, new_id, keep_job);
END
$$;
COMMENT ON FUNCTION sweep._delete IS 'implements sweep.delete';

CREATE FUNCTION sweep._deletion_roots(relation regclass, condition text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format(E'SELECT %1$s FROM %2$s WHERE (%3$s\n)%4$s', sweep._qualified_list(sweep._relation_name(relation), '{tableoid,ctid}'::pg_catalog.text[] || sweep._referred_columns(relation, false)),
		sweep._source(relation, NULL), condition, sweep._not_referenced(relation));
END
$$;
COMMENT ON FUNCTION sweep._deletion_roots(regclass, text) IS 'the statement that finds the rows that would be deleted: their places, and what other rows refer to';

CREATE FUNCTION sweep.delete(target text, condition text, dry_run boolean DEFAULT false, name text DEFAULT NULL, keep_job boolean DEFAULT false, batch_size int DEFAULT 1000,
	max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT '10 ms',
	settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT 5,
	on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL,
	parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL, OUT run_id bigint, OUT tables jsonb)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.delete IS
	'deletes the rows that meet a condition, with the rows that refer to them, by a job that is started when the transaction has committed; returns the run_id or, for a dry run, how many rows of which tables would be deleted or changed';
--
-- Backfill: an UPDATE of all rows that meet a condition, once, by ranges of a unique key.
--
-- The first pass goes through all rows, so that a batch reads no more rows than it may change, however few meet the condition. A
-- further pass searches by the condition, for rows that were inserted before the cursor.
--
CREATE FUNCTION sweep._backfill_statements(args jsonb, again boolean) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	key pg_catalog.record := sweep._ordered_key(relation, args ->> 'order_by');
	name constant pg_catalog.text := sweep._source(relation, NULL);
	condition constant pg_catalog.text := pg_catalog.format(E'(%s\n)', args ->> 'condition');
	in_range constant pg_catalog.text := sweep._in_range(relation, args -> 'range', again);
	columns pg_catalog.text[];
	first boolean;
BEGIN
	PERFORM sweep._check_condition(args ->> 'condition');
	BEGIN
		columns := sweep._set_columns(args ->> 'set');
	EXCEPTION WHEN syntax_error THEN
		RAISE EXCEPTION '"%" is not what can stand behind SET', args ->> 'set' USING ERRCODE = 'syntax_error',
			HINT = 'Write columns and their values, for example: total = price * quantity. The condition is another argument.';
	END;
	IF columns && key.columns THEN
		RAISE EXCEPTION 'column "%" cannot be set: the rows are gone through in its order',
				(SELECT c FROM pg_catalog.unnest(columns) AS c WHERE c = ANY (key.columns) LIMIT 1) USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Name in order_by the columns of another unique index.';
	END IF;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(relation, NULL, key.columns, key.nulls, CASE WHEN again THEN condition ELSE 'true' END || in_range, first);
		made.counter := 'updated';
		made.work := pg_catalog.format(E'WITH done AS (UPDATE %1$s SET %2$s\n WHERE %3$s AND %4$s RETURNING %4$s AS again, pg_catalog.concat_ws('', '', %5$s) AS key)'
			' SELECT pg_catalog.count(*), (SELECT d.key FROM done AS d WHERE d.again LIMIT 1) FROM done',
			name, args ->> 'set', sweep._range(relation, key.columns, first) || in_range, condition,
			(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n)
				FROM pg_catalog.unnest(key.columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = relation));
		made.epilogue := CASE WHEN sweep._looks_at_rest(args) THEN pg_catalog.format('SELECT EXISTS (SELECT FROM %s WHERE %s), NULL::pg_catalog.int8, NULL::pg_catalog.int8, NULL::pg_catalog.jsonb', name, condition) END;
		made.checked := true;
		made.custom := sweep._has_select(pg_catalog.concat_ws(' ', args ->> 'condition', args ->> 'set'));
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._backfill_statements(jsonb, boolean) IS 'the statements of a backfill';

CREATE FUNCTION sweep.backfill_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.backfill_step(sweep.batch) IS 'step of the jobs of sweep.create_backfill';

CREATE FUNCTION sweep._create_backfill(caller oid, job sweep.job_definition, target text, set text, condition text, order_by text, parallel int, run_as regrole, paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	existed pg_catalog.bool;
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
BEGIN
	IF set IS NULL OR condition IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN set IS NULL THEN 'set' ELSE 'condition' END USING ERRCODE = 'null_value_not_allowed',
			HINT = CASE WHEN set IS NULL THEN 'Write what stands behind SET, for example: total = price * quantity.'
				ELSE 'Say which rows are to be updated still, for example: total IS NULL.' END;
	END IF;
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'backfill', relation, run_as);
	job.cursor := sweep._kept_by(job);
	-- The number of rows of a run is that of all rows that it has read: all rows of the table.
	job.estimate := coalesce(job.estimate, sweep._rows_estimate(relation));
	PERFORM sweep._check_table(job.run_as, relation, '{SELECT,UPDATE}');
	job.args := job.args || pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'set', set, 'condition', condition,
		'order_by', sweep._column_list((sweep._ordered_key(relation, order_by)).columns));
	PERFORM FROM sweep._backfill_statements(job.args, false);
	PERFORM sweep._check_fragment(job.run_as, pg_catalog.format(E'WITH done AS (UPDATE %1$s SET %2$s\n WHERE $1 IS NOT NULL AND (%3$s\n) RETURNING (%3$s\n)) SELECT FROM done',
		sweep._source(relation, NULL), set, condition), job.settings);
	existed := EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = job.name);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._start_maker(job, paused) WHERE NOT existed;
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_backfill IS 'implements sweep.create_backfill';

CREATE FUNCTION sweep.create_backfill(target text, set text, condition text, order_by text DEFAULT NULL, name text DEFAULT NULL, schedule text DEFAULT NULL,
	timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL,
	timeout interval DEFAULT NULL, pause interval DEFAULT '10 ms', settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL,
	lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL, overlap text DEFAULT NULL, catch_up text DEFAULT NULL, jitter interval DEFAULT NULL,
	estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL,
	priority int DEFAULT NULL, flush text DEFAULT NULL, parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_backfill IS
	'creates a job that updates the rows of a table until none meets the condition, and starts it unless it has a schedule; returns its name';
--
-- sweep.batched: a DELETE or UPDATE, written as for one transaction, is done in batches. The checks, and the statements of an UPDATE.
--
-- The job stores the statement as PostgreSQL writes it, with all names qualified. It is analysed again whenever the statements of a run are
-- generated, because the owner of the job may have altered it. An UPDATE goes through the table by a unique key, up to the greatest key at its
-- start, so that each row is updated once. The cursor is committed with the batch, so this also holds after a crash. If no row meets the
-- condition after the update, further passes find the rows that were left out.
--
CREATE FUNCTION sweep._batched_parts(role oid, statement text, settings jsonb, freezes boolean, OUT word text, OUT target oid, OUT written text, OUT set text, OUT source text,
	OUT own text, OUT others text, OUT sets text[], OUT reads oid[], OUT is_limited boolean, OUT falsifies boolean) RETURNS record
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_batched_parts';
COMMENT ON FUNCTION sweep._batched_parts(oid, text, jsonb, boolean) IS 'the parts of a DELETE or UPDATE; freezes: with now() and the like replaced by $3; raises for other statements, and for those that are never possible in batches';

-- ------------------------------------------------------------------ the table
CREATE FUNCTION sweep._check_batched_table(role text, relation regclass, word text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_table(role, relation, ARRAY['SELECT', pg_catalog.upper(word COLLATE "C")]);
	IF EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.oid = relation AND (n.nspname ~ '^pg_' OR n.nspname = 'information_schema')) THEN
		RAISE EXCEPTION '% is a table of the system', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Its rows are changed by commands such as ALTER and DROP.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition WHERE i.inhrelid = relation) THEN
		RAISE EXCEPTION '% inherits from another table', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Take it out with ALTER TABLE ... NO INHERIT, or execute the statement as a whole.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation) THEN
		RAISE EXCEPTION '% has the rule "%"', relation, (SELECT r.rulename FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation ORDER BY r.oid LIMIT 1)
			USING ERRCODE = 'feature_not_supported', HINT = 'Replace it by a trigger FOR EACH ROW: a rule changes the statements of the batches.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_table(text, regclass, text) IS 'raises unless it is a table in which the role can delete or update in batches';

-- A sub-select on the table itself would see rows that earlier batches have changed.
CREATE FUNCTION sweep._check_batched_reads(role text, relation regclass, reads oid[], is_limited boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tables pg_catalog.oid[];
	other pg_catalog.regclass;
BEGIN
	WITH RECURSIVE seen AS (
			SELECT u.id FROM pg_catalog.unnest(reads) AS u (id)
			UNION SELECT d.refobjid FROM seen JOIN pg_catalog.pg_class c ON c.oid = seen.id AND c.relkind = 'v' JOIN pg_catalog.pg_rewrite w ON w.ev_class = seen.id
				JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = w.oid
					AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid <> seen.id)
		SELECT pg_catalog.array_agg(seen.id) INTO tables FROM seen;
	SELECT t.id INTO other FROM pg_catalog.unnest(tables) AS t (id) WHERE t.id = relation
		OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(relation)) AS p WHERE p.relid = t.id) ORDER BY t.id = relation DESC LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'the statement reads %, which it changes', other USING ERRCODE = 'feature_not_supported',
			DETAIL = 'A batch would see what the batches before it have done, and choose other rows than the statement as a whole.',
			HINT = CASE WHEN is_limited THEN 'Leave the sub-select with its LIMIT out, and write its condition: how many rows a batch has is the argument batch_size.'
				ELSE 'Write what is to be read into another table first (CREATE TABLE ... AS SELECT ...), and have the statement read that one.' END;
	END IF;
	SELECT c.oid INTO other FROM pg_catalog.pg_class c WHERE c.oid = ANY (reads) AND c.relpersistence = 't' LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION '% is a temporary table', other USING ERRCODE = 'wrong_object_type',
			HINT = 'A job runs in a session of its own, which does not see it. Make it an ordinary table, and drop that afterwards.';
	END IF;
	SELECT c.oid INTO other FROM pg_catalog.pg_class c WHERE c.oid = ANY (reads) AND NOT pg_catalog.has_any_column_privilege(sweep._role_oid(role), c.oid, 'SELECT') LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'role "%" may not read %', role, other USING ERRCODE = 'insufficient_privilege', HINT = pg_catalog.format('GRANT SELECT ON %s TO %I;', other, role);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_reads(text, regclass, oid[], boolean) IS 'raises when the statement reads what it changes, or what its job cannot see';

-- A generated column changes with the columns from which it is computed.
CREATE FUNCTION sweep._changed_columns(relation regclass, sets text[]) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN sets || ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum AND a.attgenerated <> ''
			JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = relation
			JOIN pg_catalog.pg_attribute s ON s.attrelid = relation AND s.attnum = d.refobjsubid
		WHERE f.adrelid = relation AND s.attname = ANY (sets) AND (d.classid, d.objid) IN (('pg_catalog.pg_attrdef'::pg_catalog.regclass, f.oid))
		UNION SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = relation AND d.objsubid = a.attnum
				AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = relation
			JOIN pg_catalog.pg_attribute s ON s.attrelid = relation AND s.attnum = d.refobjsubid
		WHERE a.attrelid = relation AND a.attgenerated <> '' AND s.attname = ANY (sets));
END
$$;
COMMENT ON FUNCTION sweep._changed_columns(regclass, text[]) IS 'the columns that are set, and those that are generated from them';

CREATE FUNCTION sweep._check_batched_sets(relation regclass, sets text[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	SELECT a.attname AS name INTO wrong FROM (SELECT a.relid AS id FROM pg_catalog.pg_partition_ancestors(relation) AS a UNION SELECT t.relid FROM pg_catalog.pg_partition_tree(relation) AS t) AS r JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = r.id
			JOIN pg_catalog.pg_attribute a ON a.attrelid = r.id AND a.attname = ANY (sets)
		WHERE a.attnum = ANY (p.partattrs::pg_catalog.int2[])
			OR EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = r.id AND d.objsubid = 0
				AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = r.id AND d.refobjsubid = a.attnum) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" cannot be set: it is of the partition key of %', wrong.name, relation USING ERRCODE = 'feature_not_supported',
			HINT = 'Rows would move to other partitions, and could be updated twice. Execute the statement as a whole.';
	END IF;
	SELECT u.name, i.indexrelid::pg_catalog.regclass AS index, CASE WHEN i.indisprimary THEN 'primary key' WHEN i.indisexclusion THEN 'exclusion constraint' ELSE 'unique index' END AS word INTO wrong
		FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.unnest(sets) AS u (name)
		WHERE (i.indrelid = relation OR i.indrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(relation) AS t)) AND (i.indisunique OR i.indisexclusion) AND sweep._index_uses(i.indexrelid, ARRAY[u.name])
		ORDER BY i.indrelid = relation DESC, i.indisprimary DESC, i.indexrelid LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" cannot be set: it is of the % %', wrong.name, wrong.word, wrong.index
			USING ERRCODE = 'feature_not_supported',
			DETAIL = 'A row may get a value that another row has until a later batch: that batch would fail, and the batches before have committed.',
			HINT = 'Execute the statement as a whole, or drop the index for the time of the update.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_sets(regclass, text[]) IS 'raises when a column is set that tells rows apart, or says in which partition they are';

-- ------------------------------------------------------------------ the job
-- The search_path is that of the caller: names in the statement are looked up as in any statement of the session.
CREATE FUNCTION sweep._batched_meaning(settings jsonb) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.jsonb_build_object('search_path', coalesce(pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n), ''))
			FROM pg_catalog.unnest(sweep._caller_search_path()) WITH ORDINALITY AS u (name, n))
		|| coalesce((SELECT pg_catalog.jsonb_object_agg(CASE pg_catalog.lower(s.key COLLATE "C") WHEN 'search_path' THEN 'search_path' ELSE s.key END, s.value)
			FROM pg_catalog.jsonb_each_text(CASE pg_catalog.jsonb_typeof(settings) WHEN 'object' THEN settings END) AS s
			WHERE s.value IS NOT NULL AND pg_catalog.lower(s.key COLLATE "C") IN ('search_path', 'transform_null_equals', 'array_nulls', 'datestyle', 'intervalstyle', 'timezone')), '{}');
END
$$;
COMMENT ON FUNCTION sweep._batched_meaning(jsonb) IS 'those settings of the session and of the job that decide the meaning of a statement and differ from the present ones';

CREATE FUNCTION sweep._batched_args(role text, statement text, settings jsonb, OUT word text, OUT target regclass, OUT args jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
	key pg_catalog.record;
	fires pg_catalog.text;
BEGIN
	IF statement IS NULL THEN
		RAISE EXCEPTION 'statement must not be null' USING ERRCODE = 'null_value_not_allowed',
			HINT = 'Write one DELETE or UPDATE, for example: UPDATE app.line SET total = price * quantity WHERE total IS NULL.';
	END IF;
	parts := sweep._checked_parts(role, statement, sweep._batched_meaning(settings), false);
	word := parts.word;
	target := parts.target;
	SELECT pg_catalog.string_agg(pg_catalog.quote_ident(t.tgname), ', ' ORDER BY t.tgname) INTO fires FROM pg_catalog.pg_trigger t
		WHERE t.tgrelid = target AND NOT t.tgisinternal AND t.tgenabled NOT IN ('D', 'R') AND t.tgtype & CASE word WHEN 'delete' THEN 8 ELSE 16 END <> 0
			AND (t.tgtype & 1 = 0 OR t.tgoldtable IS NOT NULL OR t.tgnewtable IS NOT NULL);
	IF fires IS NOT NULL THEN
		RAISE WARNING 'triggers of % fire for each batch: %', target, fires USING HINT = 'They are FOR EACH STATEMENT, or have a transition table: they see the rows of a batch.';
	END IF;
	args := pg_catalog.jsonb_build_object('target', sweep._table_name(target), 'statement', parts.written);
	PERFORM sweep._check_batched_path(role, parts.written, sweep._job_meaning(role, settings) ->> 'search_path', sweep._batched_meaning(settings) ->> 'search_path');
	-- In the parts, names of pg_catalog have no schema.
	key := sweep._run_key(role, target, sweep._found_by(parts), coalesce((SELECT pg_catalog.jsonb_object_agg(s.key, s.value)
		FROM pg_catalog.jsonb_each(CASE pg_catalog.jsonb_typeof(settings) WHEN 'object' THEN settings END) AS s WHERE pg_catalog.lower(s.key COLLATE "C") <> 'search_path'), '{}') || '{"search_path": "pg_catalog"}', sweep._changed_columns(target, parts.sets), word = 'update' AND NOT sweep._repeats(parts));
	args := args || pg_catalog.jsonb_build_object('key', key.columns, 'serves', key.serves);
END
$$;
COMMENT ON FUNCTION sweep._batched_args(text, text, jsonb) IS 'the command (delete or update), the table, and the args of the job; raises when the statement cannot be done in batches';

-- PostgreSQL prefers a function for exactly these types to one with polymorphic types, in whatever schema it is.
CREATE FUNCTION sweep._check_batched_path(role text, statement text, path text, meant_path text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	meant constant pg_catalog.text := (sweep._batched_parts(sweep._role_oid(role), statement, '{"search_path": "pg_catalog"}', false)).written;
	found constant pg_catalog.text := (sweep._batched_parts(sweep._role_oid(role), statement, pg_catalog.jsonb_build_object('search_path', pg_catalog.concat_ws(', ', 'pg_catalog', nullif(path, ''))), false)).written;
BEGIN
	IF found <> meant THEN
		RAISE EXCEPTION 'the statement means something else with the search_path of the job, %', path USING ERRCODE = 'ambiguous_function',
			DETAIL = pg_catalog.format('There it is: %s', found),
			HINT = pg_catalog.format('Give the job the search_path of the session: settings => %L.', pg_catalog.jsonb_build_object('search_path', meant_path));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_batched_path(text, text, text, text) IS 'raises when names in the stored statement would mean other objects with the search_path of the job';

CREATE FUNCTION sweep._checked_parts(role text, statement text, meaning jsonb, freezes boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
	missing pg_catalog.text;
BEGIN
	SELECT p.* INTO parts FROM sweep._batched_parts(sweep._role_oid(role), statement, meaning, freezes) AS p;
	PERFORM sweep._check_batched_table(role, parts.target::pg_catalog.regclass, parts.word);
	PERFORM sweep._check_batched_reads(role, parts.target, parts.reads, parts.is_limited);
	IF parts.word = 'update' THEN
		SELECT sweep._column_list(pg_catalog.array_agg(s.name)) INTO missing FROM pg_catalog.unnest(parts.sets) AS s (name)
			WHERE NOT pg_catalog.has_column_privilege(sweep._role_oid(role), parts.target, s.name, 'UPDATE');
		IF missing IS NOT NULL THEN
			RAISE EXCEPTION 'role "%" may not set % of %', role, missing, parts.target::pg_catalog.regclass USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('GRANT UPDATE (%s) ON %s TO %I;', missing, parts.target::pg_catalog.regclass, role);
		END IF;
		PERFORM sweep._check_batched_sets(parts.target, sweep._changed_columns(parts.target, parts.sets));
	END IF;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._checked_parts(text, text, jsonb, boolean) IS 'the parts of a statement; raises when it cannot be done in batches';

CREATE FUNCTION sweep._stored_parts(args jsonb, role oid, word text) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.record;
BEGIN
	parts := sweep._checked_parts(sweep._role_name(role), args ->> 'statement', '{"search_path": "pg_catalog"}', true);
	IF parts.word <> word OR sweep._table_name(parts.target) IS DISTINCT FROM args ->> 'target' THEN
		RAISE EXCEPTION 'the statement of the job is no % of %', pg_catalog.upper(word COLLATE "C"), args ->> 'target' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Call sweep.batched with the statement, instead of altering the args of a job.';
	END IF;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._stored_parts(jsonb, oid, text) IS 'the parts of the statement in the args of a job, which its owner may have altered';

-- The condition on the row alone is not inside the EXISTS, so that an index can be used for it.
CREATE FUNCTION sweep._found_by(parts record) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('(%s)', coalesce(parts.own, 'true'))
		|| CASE WHEN parts.source IS NOT NULL THEN pg_catalog.format(' AND EXISTS (SELECT FROM %s WHERE %s)', parts.source, coalesce(parts.others, 'true')) ELSE '' END;
END
$$;
COMMENT ON FUNCTION sweep._found_by(record) IS 'an expression: whether a row meets the condition with a row of other tables, if there are any';

-- ------------------------------------------------------------------ the statements of an UPDATE
-- Another session, or a trigger, may set a column of an updated row, such as the time of the update, to a value after the cursor. The primary
-- key of a row is taken to stay. A key WITHOUT OVERLAPS has no order.
CREATE FUNCTION sweep._tells_done(index oid, columns text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT sweep._is_unique(i.indrelid, columns) AND CASE WHEN p.indkey IS NULL THEN i.indisunique
			ELSE NOT sweep._index_uses(index, ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum > 0 AND NOT a.attisdropped
				AND a.attnum <> ALL (p.indkey::pg_catalog.int2[]))) END
		FROM pg_catalog.pg_index i LEFT JOIN pg_catalog.pg_index p ON p.indrelid = i.indrelid AND p.indisprimary AND NOT p.indisexclusion WHERE i.indexrelid = index);
END
$$;
COMMENT ON FUNCTION sweep._tells_done(oid, text[]) IS 'whether the position of a row in an index shows that it has been updated: the index has only columns of the primary key, or there is no primary key that has an order';

-- False if there are BEFORE UPDATE triggers of rows, which may set other values than the statement.
CREATE FUNCTION sweep._repeats(parts record) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN parts.falsifies AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgtype & 19 = 19
		AND (t.tgrelid = parts.target OR t.tgrelid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(parts.target::pg_catalog.regclass) AS p)));
END
$$;
COMMENT ON FUNCTION sweep._repeats(record) IS 'whether no row meets the condition of an UPDATE after it, so that updated rows are recognized';

CREATE FUNCTION sweep._update_statements(args jsonb, again boolean, role oid, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	parts constant pg_catalog.record := sweep._stored_parts(args, role, 'update');
	relation constant pg_catalog.regclass := parts.target;
	repeats constant pg_catalog.bool := sweep._repeats(parts);
	key constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.jsonb_array_elements_text(args -> 'key'));
	bound constant pg_catalog.record := sweep._run_bound(relation, key);
	due constant pg_catalog.text := pg_catalog.format('%s AND %s', sweep._found_by(parts), bound.condition);
	parts_of pg_catalog.text[] := known_parts;
	place pg_catalog.record;
	in_range constant pg_catalog.text := sweep._in_range(relation, args -> 'range', again);
	nulls pg_catalog.text[];
	of_key pg_catalog.record;
	first boolean;
BEGIN
	IF key = '{ctid}' AND repeats THEN
		parts_of := coalesce(known_parts, sweep._place_parts(relation, role, 'UPDATE', pg_catalog.concat_ws(' ', due, parts.set)));
		place := sweep._next_place(relation, parts_of, part);
		made := sweep._place_statements(relation, place.part, due);
		made.counter := 'updated';
		made.pick := sweep._update_of(parts, place.part, NULL, sweep._at_places(relation, place.part));
		made.next_part := place.next_part;
		made.parts := parts_of;
		RETURN QUERY SELECT (made).* FROM pg_catalog.generate_series(1, 2);
		RETURN;
	END IF;
	SELECT k.nulls INTO nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k
		WHERE i.indrelid = relation AND k.columns = key AND (repeats OR sweep._tells_done(i.indexrelid, key)) AND NOT sweep._index_uses(i.indexrelid, sweep._changed_columns(relation, parts.sets))
		ORDER BY i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no index of (%) by which the update can go', relation, sweep._column_list(key) USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'It is a valid index of columns that the update does not set, and of those of the primary key alone if there is one.',
			HINT = 'Create the index again, or drop the job and call sweep.batched again, which chooses another index.';
	END IF;
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(relation, NULL, key, nulls, CASE WHEN again OR coalesce(args ->> 'serves' = 'true', false) THEN due ELSE bound.condition END || in_range, first);
		made.counter := 'updated';
		made.prologue := CASE WHEN first THEN bound.prologue END;
		made.ordering := bound.ordering;
		made.work := sweep._update_of(parts, NULL, NULL, pg_catalog.format('%s AND %s', sweep._range(relation, key, first), bound.condition || in_range));
		IF made.before IS NOT NULL THEN
			of_key := sweep._rows_of_key(relation, NULL, pg_catalog.format('%s AND %s', due || in_range, sweep._key_compare(relation, key, '=', '$4')));
			made.same_roots := of_key.finds;
			made.pick := sweep._update_of(parts, NULL, of_key.picked, of_key.at_picked);
		END IF;
		IF repeats AND sweep._looks_at_rest(args) THEN
			made.epilogue := sweep._rest_statement(relation, sweep._found_by(parts), bound.condition, NULL);
		END IF;
		-- With another key it is not known which rows were updated.
		made.restarts := repeats;
		made.custom := parts.reads <> '{}';
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._update_statements(jsonb, boolean, oid, text, text[]) IS 'the statements of an UPDATE in batches';

CREATE FUNCTION sweep._update_of(parts record, part regclass, picked text, rows text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('%sUPDATE %s SET %s%s WHERE %s AND (%s) AND (%s)', 'WITH sweep_picked AS MATERIALIZED (' || picked || ') ', sweep._source(parts.target, part), parts.set,
		' FROM ' || parts.source, rows, coalesce(parts.own, 'true'), coalesce(parts.others, 'true'));
END
$$;
COMMENT ON FUNCTION sweep._update_of(record, regclass, text, text) IS 'the UPDATE for some rows, selected by the condition "rows"; picked: a query that returns ctids';

CREATE FUNCTION sweep.update_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.update_step(sweep.batch) IS 'step of the jobs that sweep.batched makes of an UPDATE';

-- ------------------------------------------------------------------ sweep.batched
CREATE FUNCTION sweep._batched(caller oid, job sweep.job_definition, statement text, keep_job boolean, parallel int, run_as regrole) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	new_id constant bigint := pg_catalog.nextval('sweep.run_live_run_id_seq');
	asked sweep.job_definition;
	made pg_catalog.record;
	of_role constant pg_catalog.text[] := ARRAY(SELECT pg_catalog.lower(pg_catalog.split_part(c, '=', 1) COLLATE "C") FROM pg_catalog.pg_db_role_setting r
		CROSS JOIN LATERAL pg_catalog.unnest(r.setconfig) AS c WHERE r.setrole = coalesce(run_as::pg_catalog.oid, caller));
BEGIN
	IF keep_job IS NULL THEN
		RAISE EXCEPTION 'keep_job must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	-- Set first, because names are looked up as that role.
	job.run_as := sweep._role_name(coalesce(run_as::pg_catalog.oid, caller));
	asked := job;
	asked.name := coalesce(job.name, 'batched');
	PERFORM sweep._check_role(caller, asked);
	-- Values are converted as in the session that has written the statement: with its time zone, with what it has set itself, and with its value
	-- of what the role of the job has set.
	IF job.settings IS NULL OR pg_catalog.jsonb_typeof(job.settings) = 'object' THEN
		job.settings := coalesce((SELECT pg_catalog.jsonb_object_agg(p.name, coalesce(f.formats ->> p.name, p.setting))
			FROM pg_catalog.pg_settings p, pg_catalog.jsonb_object(sweep._caller_formats()) AS f (formats)
			WHERE (p.name = 'TimeZone' OR (p.source IN ('session', 'client', 'user', 'database user') OR pg_catalog.lower(p.name COLLATE "C") = ANY (of_role))
					AND p.name IN ('DateStyle', 'IntervalStyle', 'array_nulls', 'bytea_output', 'default_text_search_config', 'extra_float_digits', 'lc_monetary', 'lc_numeric', 'lc_time',
						'transform_null_equals', 'xmlbinary', 'xmloption'))
				AND NOT EXISTS (SELECT FROM pg_catalog.jsonb_object_keys(job.settings) AS k WHERE pg_catalog.lower(k COLLATE "C") = pg_catalog.lower(p.name COLLATE "C"))), '{}') || coalesce(job.settings, '{}');
	END IF;
	made := sweep._batched_args(job.run_as, statement, job.settings);
	job.name := coalesce(job.name, sweep._maker_name(made.word, made.target, '_' || new_id));
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), made.word, made.target, run_as);
	-- now() in the statement is the time of this call in all batches, also in a run that goes on where another one has failed.
	job.args := job.args || made.args || pg_catalog.jsonb_build_object('as_of', pg_catalog.now());
	IF made.word = 'delete' THEN
		PERFORM sweep._check_referring(job.run_as, made.target);
		PERFORM FROM sweep._delete_statements(job.args, false, sweep._role_oid(job.run_as), NULL, NULL);
	ELSE
		PERFORM FROM sweep._update_statements(job.args, false, sweep._role_oid(job.run_as), NULL, NULL);
	END IF;
	RETURN sweep._create_once(caller, job, made.target, new_id, keep_job);
END
$$;
COMMENT ON FUNCTION sweep._batched IS 'implements sweep.batched';

CREATE FUNCTION sweep.batched(statement text, name text DEFAULT NULL, keep_job boolean DEFAULT false, batch_size int DEFAULT 1000,
	max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT '10 ms',
	settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT 5,
	on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL,
	parallel int DEFAULT 1, run_as regrole DEFAULT NULL, description text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.batched IS
	'executes a DELETE or UPDATE in batches, each with its own commit, by a job that is started when the transaction has committed; returns the run_id';
--
-- Changes of the source of a copy: a trigger writes the keys of changed rows into a table, and the job copies these rows again.
--
-- The job creates table, function and trigger in its first batch, as its role, which acts for the owners of both tables and may execute
-- their code (sweep._check_acting). The function is SECURITY DEFINER, so that roles that write to the source need no right on the table
-- of keys; no setting of the writer changes its meaning. Triggers are ENABLE ALWAYS, because a session with session_replication_role =
-- replica changes rows, too. They do not depend on the extension: adding the dependency would lock it against all others.
--
-- A key is taken and its row is read in one transaction, the row in the same or a later snapshot. A later change of the row writes a
-- further key. A key only says that the row must be read again, not how it was changed; so the order of keys does not matter.
--
-- The digest has the numbers of columns, which change when a column is dropped and added again; collations, since these give the order of
-- keys; and expressions of columns generated in the source, since a new one changes values without firing a trigger. Columns generated in the
-- target are not copied. The function has fixed settings, because the text of an expression depends on them.
CREATE FUNCTION sweep._copy_shape(args jsonb, source regclass, target regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET timezone = 'UTC'
	SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' SET quote_all_identifiers = off
AS $$
BEGIN
	RETURN (SELECT pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.replace((args - 'switch') || pg_catalog.string_agg(pg_catalog.format('%s %s %s %s %s%s', a.attrelid = source, a.attnum, a.attname,
				pg_catalog.format_type(a.atttypid, a.atttypmod), a.attcollation::pg_catalog.regcollation,
				CASE WHEN a.attrelid = target AND a.attgenerated <> '' THEN ' generated'
					WHEN a.attgenerated <> '' THEN ' ' || (SELECT pg_catalog.pg_get_expr(d.adbin, source) FROM pg_catalog.pg_attrdef d WHERE d.adrelid = source AND d.adnum = a.attnum) END), ', ' ORDER BY a.attrelid = source, a.attname), E'\\', E'\\\\')::pg_catalog.bytea), 'hex'), 32)
		FROM pg_catalog.pg_attribute a WHERE a.attrelid IN (source, target) AND a.attnum > 0 AND NOT a.attisdropped);
END
$$;
COMMENT ON FUNCTION sweep._copy_shape(jsonb, regclass, regclass) IS 'a digest of what must not change while a copy follows its source: its args, and the columns of both tables';

CREATE FUNCTION sweep._change_texts(args jsonb, source regclass, target regclass, key text[], nulls text[], columns text[]) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	changes constant pg_catalog.text := args ->> 'changes';
	source_name constant pg_catalog.text := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = source);
	keys pg_catalog.text;
	types pg_catalog.text;
	old_values pg_catalog.text;
	new_values pg_catalog.text;
	differs pg_catalog.text;
	of_source pg_catalog.text;
	of_target pg_catalog.text;
	kept pg_catalog.text;
	taken pg_catalog.text;
BEGIN
	SELECT pg_catalog.string_agg('key_' || u.n, ', ' ORDER BY u.n),
			-- The base type of a domain, since a key may be NULL here; without length, so that keys of a column that is made longer fit.
			pg_catalog.string_agg(pg_catalog.format('key_%s %s%s', u.n, sweep._type_name(sweep._base_type(a.atttypid), -1),
				sweep._collate_as(source, u.name)), ', ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('OLD.%I', u.name), ', ' ORDER BY u.n), pg_catalog.string_agg(pg_catalog.format('NEW.%I', u.name), ', ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', u.name), ' OR ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('%I.%I OPERATOR(pg_catalog.=) sweep_key.key_%s', source_name, u.name, u.n), ' AND ' ORDER BY u.n),
			pg_catalog.string_agg(pg_catalog.format('sweep_target.%I OPERATOR(pg_catalog.=) sweep_key.key_%s%s', u.name, u.n, sweep._collate_as(target, u.name)), ' AND ' ORDER BY u.n),
			sweep._keeps_key(source, target, key, pg_catalog.array_agg('sweep_key.key_' || u.n ORDER BY u.n))
		INTO keys, types, old_values, new_values, differs, of_source, of_target, kept
		FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attname = u.name;
	taken := pg_catalog.format('(SELECT DISTINCT %s FROM %s AS c WHERE c.id OPERATOR(pg_catalog.=) ANY ($1) AND NOT c.truncated) AS sweep_key', keys, changes);
	RETURN pg_catalog.jsonb_build_object('changes', changes, 'source', sweep._table_name(source), 'target', sweep._table_name(target), 'shape', sweep._copy_shape(args, source, target),
		'capture', pg_catalog.jsonb_build_array(
			pg_catalog.format('CREATE TABLE %s (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, truncated boolean NOT NULL DEFAULT false, %s)'
				' WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)', changes, types),
			pg_catalog.format('CREATE INDEX ON %s (id) WHERE truncated', changes),
			pg_catalog.format('COMMENT ON TABLE %s IS %L', changes, 'keys of rows that a job of sweep.create_copy copies anew'),
			pg_catalog.format('CREATE FUNCTION %s() RETURNS pg_catalog.trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', changes, pg_catalog.format(
				E'BEGIN\n\tIF TG_OP = ''TRUNCATE'' THEN\n\t\tINSERT INTO %1$s (truncated) VALUES (true);\n\t\tRETURN NULL;\n\tEND IF;\n'
				|| E'\tIF TG_OP <> ''INSERT'' THEN\n\t\tINSERT INTO %1$s (%2$s) VALUES (%3$s);\n\tEND IF;\n'
				|| E'\tIF TG_OP = ''INSERT'' THEN\n\t\tINSERT INTO %1$s (%2$s) VALUES (%4$s);\n'
				|| E'\tELSIF TG_OP = ''UPDATE'' THEN\n\t\tIF %5$s THEN\n\t\t\tINSERT INTO %1$s (%2$s) VALUES (%4$s);\n\t\tEND IF;\n\tEND IF;\n\tRETURN NULL;\nEND',
				changes, keys, old_values, new_values, differs)),
			pg_catalog.format('CREATE TRIGGER sweep_changes AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s()', sweep._table_name(source), changes),
			pg_catalog.format('CREATE TRIGGER sweep_changes_truncate AFTER TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()', sweep._table_name(source), changes),
			pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER sweep_changes, ENABLE ALWAYS TRIGGER sweep_changes_truncate', sweep._table_name(source))),
		'newest', pg_catalog.format('SELECT %s FROM (SELECT %s FROM %s ORDER BY %s LIMIT 1) AS k', sweep._key_json(source, key, NULL),
			sweep._key_list(source, key),
			sweep._source(source, NULL), sweep._key_order(source, key, nulls, true)),
		'behind', pg_catalog.format('SELECT true FROM %s WHERE %s AND ($2 OR %s) ORDER BY %s LIMIT 1', sweep._source(source, NULL), sweep._key_compare(source, key, '<=', '($1 OPERATOR(pg_catalog.->) ''settled'')'),
			sweep._key_compare(source, key, '>', '$1'), sweep._key_order(source, key, nulls, false)),
		-- A mark of a TRUNCATE is taken at once, whatever keys come before it: rows that were inserted since are copied by their keys.
		'take', pg_catalog.format('SELECT pg_catalog.array_agg(c.id), pg_catalog.bool_or(c.truncated) FROM %1$s AS c WHERE c.id OPERATOR(pg_catalog.=) ANY'
			' (ARRAY(SELECT i.id FROM %1$s AS i ORDER BY i.id LIMIT $1)) OR c.id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT i.id FROM %1$s AS i WHERE i.truncated))', changes),
		'rounded', pg_catalog.format('SELECT sweep_key::pg_catalog.text FROM %s CROSS JOIN LATERAL (SELECT ', taken) || kept
			|| pg_catalog.format(E' AS kept FROM %s WHERE %s AND (%s\n) OFFSET 0) AS r WHERE NOT r.kept LIMIT 1', sweep._source(source, NULL), of_source, coalesce(args ->> 'condition', 'true')),
		'remove', pg_catalog.format('DELETE FROM %s AS sweep_target USING %s WHERE %s', sweep._table_name(target), taken, of_target),
		'kept', pg_catalog.format('SELECT sweep_key::pg_catalog.text FROM %s JOIN %s AS sweep_target ON %s LIMIT 1', taken, sweep._table_name(target), of_target),
		'insert', sweep._insert_text(source, target, key, columns, pg_catalog.format(E'SELECT %s FROM %s CROSS JOIN LATERAL (SELECT %s%s FROM %s WHERE %s AND (%s\n) OFFSET 0) AS r%s',
			sweep._qualified_list('r', columns), taken, sweep._qualified_list(source_name, columns), coalesce(', ' || kept || ' AS sweep_kept', ''),
			sweep._source(source, NULL), of_source, coalesce(args ->> 'condition', 'true'), CASE WHEN kept IS NOT NULL THEN ' WHERE r.sweep_kept' END)),
		'forget', pg_catalog.format('DELETE FROM %s AS c WHERE c.id OPERATOR(pg_catalog.=) ANY ($1)', changes));
END
$$;
COMMENT ON FUNCTION sweep._change_texts(jsonb, regclass, regclass, text[], text[], text[]) IS 'the statements that record and copy changes of the source of a copy';

-- Rows of the range that cannot be inserted now get an entry in the table of keys, and are copied by it later: rows that are in the target
-- already, as their key was copied first; rows that a unique index refuses, because another row has not been copied again yet; and rows whose
-- key would have another value in the target. For rows of the last kind the copy by keys raises an error, unless the row is gone.
CREATE FUNCTION sweep._change_work(args jsonb, source regclass, target regclass, key text[], columns text[], first boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names constant pg_catalog.text := sweep._column_list(columns);
	keys constant pg_catalog.text := sweep._column_list(key);
BEGIN
	RETURN pg_catalog.format(E'WITH sweep_range AS MATERIALIZED (SELECT %1$s FROM %2$s WHERE %3$s AND (%4$s\n)), done AS (INSERT INTO %5$s (%6$s) OVERRIDING SYSTEM VALUE'
		' SELECT * FROM sweep_range%11$s ON CONFLICT DO NOTHING RETURNING %7$s), put_off AS (INSERT INTO %8$s (%9$s) SELECT %7$s FROM sweep_range EXCEPT SELECT %10$s FROM done)'
		' SELECT pg_catalog.count(*), NULL::pg_catalog.text FROM done',
		(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = source),
		sweep._source(source, NULL), sweep._range(source, key, first), coalesce(args ->> 'condition', 'true'), sweep._table_name(target), names, keys, args ->> 'changes',
		(SELECT pg_catalog.string_agg('key_' || u.n, ', ' ORDER BY u.n) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n)),
		(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name) || coalesce(sweep._collate_as(source, u.name), ''), ', ' ORDER BY u.n) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n)),
		' WHERE ' || sweep._keeps_key(source, target, key, ARRAY(SELECT pg_catalog.quote_ident(u.name) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) ORDER BY u.n)));
END
$$;
COMMENT ON FUNCTION sweep._change_work(jsonb, regclass, regclass, text[], text[], boolean) IS 'the statement that copies a range of the source';

-- ------------------------------------------------------------------ the batch
-- While this waits for its lock, all writers wait behind it. It therefore waits only 50 ms, and writers go on before the next attempt.
CREATE FUNCTION sweep._capture_changes(texts jsonb) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT * FROM pg_catalog.jsonb_array_elements_text(texts -> 'capture') LOOP
		EXECUTE line;
	END LOOP;
	-- ALTER DEFAULT PRIVILEGES may have granted rights on the table, or on the function, which others could use in a trigger of another table.
	FOR line IN SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s FROM %s', o.object, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END)
			FROM (SELECT 'TABLE ' || (texts ->> 'changes'), c.relowner, c.relacl FROM pg_catalog.pg_class c WHERE c.oid = (texts ->> 'changes')::pg_catalog.regclass
				UNION ALL SELECT 'FUNCTION ' || (texts ->> 'changes') || '()', p.proowner, coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))
					FROM pg_catalog.pg_proc p WHERE p.oid = ((texts ->> 'changes') || '()')::pg_catalog.regprocedure) AS o (object, owner, acl)
				CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS g WHERE g.grantee <> o.owner LOOP
		EXECUTE line;
	END LOOP;
	RETURN true;
EXCEPTION WHEN lock_not_available THEN
	RETURN false;
END
$$;
COMMENT ON FUNCTION sweep._capture_changes(jsonb) IS 'creates table, function and triggers that record the keys of changed rows; false when the source could not be locked, and nothing was created';

-- Called in each batch that has changes, because a trigger may be created during a run.
CREATE FUNCTION sweep._may_keep(target regclass) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_catalog.pg_rewrite w WHERE w.ev_class = target) OR EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgtype & 11 = 11 AND t.tgenabled <> 'D'
		AND t.tgrelid = ANY (ARRAY(SELECT target UNION ALL SELECT p.relid FROM pg_catalog.pg_partition_tree(target) AS p)));
END
$$;
COMMENT ON FUNCTION sweep._may_keep(regclass) IS 'whether a rule, or a trigger BEFORE DELETE, may keep a row of the target of a copy';

-- A row can conflict with another one that is copied again later; when all keys are copied, the target equals the source. The condition,
-- and triggers of the target, are executed with the search_path of the run; the function itself looks up no names while that is set.
CREATE FUNCTION sweep._apply_changes(texts jsonb, size bigint, path text, OUT keys bigint, OUT truncated boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ids bigint[];
	rounded pg_catalog.text;
	kept pg_catalog.text;
	wanted bigint := size;
	clear constant pg_catalog.text := pg_catalog.format('TRUNCATE %s', texts ->> 'target');
	source constant pg_catalog.text := texts ->> 'source';
	target constant pg_catalog.text := texts ->> 'target';
	find_rounded constant pg_catalog.text := texts ->> 'rounded';
	find_kept constant pg_catalog.text := texts ->> 'kept';
	remove constant pg_catalog.text := texts ->> 'remove';
	insertion constant pg_catalog.text := texts ->> 'insert';
	forget constant pg_catalog.text := texts ->> 'forget';
BEGIN
	FOR attempt IN 1 .. 5 LOOP
		EXECUTE texts ->> 'take' INTO ids, truncated USING wanted;
		keys := coalesce(pg_catalog.cardinality(ids), 0);
		truncated := coalesce(truncated, false);
		IF keys = 0 THEN
			RETURN;
		END IF;
		BEGIN
			PERFORM pg_catalog.set_config('search_path', path, true);
			IF truncated THEN
				EXECUTE clear;
			END IF;
			IF find_rounded IS NOT NULL THEN
				EXECUTE find_rounded INTO rounded USING ids;
			END IF;
			IF rounded IS NOT NULL THEN
				RAISE EXCEPTION 'key % of % is another one in %', rounded, source, target USING ERRCODE = 'datatype_mismatch', HINT = 'Drop the job, and create it anew with a target whose key has a type that keeps all values.';
			END IF;
			EXECUTE remove USING ids;
			IF sweep._may_keep(target::pg_catalog.regclass) THEN
				EXECUTE find_kept INTO kept USING ids;
			END IF;
			IF kept IS NOT NULL THEN
				RAISE EXCEPTION 'row % of % cannot be removed', kept, target USING ERRCODE = 'triggered_data_change_violation', DETAIL = 'Where it is gone from the source, it would be there again after a switch.',
					HINT = 'Look for a trigger BEFORE DELETE or a rule of the copy, and make it when the copy has taken the name; sweep.switch_copy can move triggers.';
			END IF;
			EXECUTE insertion INTO kept USING ids;
			IF kept IS NOT NULL THEN
				RAISE EXCEPTION 'row % of % cannot be copied to %', kept, source, target USING ERRCODE = 'triggered_data_change_violation', DETAIL = 'It would be missing after a switch.',
					HINT = 'Look for a trigger BEFORE INSERT of the copy. Drop the job, and create it anew with an empty target without that; sweep.switch_copy can move triggers.';
			END IF;
			EXECUTE forget USING ids;
			RETURN;
		EXCEPTION WHEN unique_violation OR exclusion_violation THEN
			IF attempt = 5 THEN
				RAISE;
			END IF;
			wanted := NULL;
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._apply_changes(jsonb, bigint, text) IS 'copies the rows of that many keys again; NULL: of all keys';

CREATE FUNCTION sweep._begin_changes(args jsonb, texts jsonb, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	newest pg_catalog.jsonb;
	found boolean;
	tries constant int := coalesce((cursor ->> 'tries')::int, 0);
BEGIN
	next_cursor := cursor;
	IF texts IS NULL THEN
		RAISE EXCEPTION 'table "%" does not exist', args ->> 'target' USING ERRCODE = 'undefined_table', HINT = 'Drop the job, and create it anew.';
	END IF;
	-- After the lock of a switch, everything that was committed before must be visible.
	IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'changes cannot be followed with the isolation level "%"', pg_catalog.current_setting('transaction_isolation') USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER ROLE %I SET default_transaction_isolation = ''read committed'';', current_user);
	END IF;
	-- With this lock no foreign key can be added after the check.
	EXECUTE pg_catalog.format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', texts ->> 'target');
	PERFORM sweep._check_acting((SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user), (texts ->> 'source')::pg_catalog.regclass, (texts ->> 'target')::pg_catalog.regclass);
	-- Compares with the present tables; the texts were generated when the run began.
	IF next_cursor ->> 'captured' <> sweep._copy_shape(args, (texts ->> 'source')::pg_catalog.regclass, (texts ->> 'target')::pg_catalog.regclass) THEN
		RAISE EXCEPTION 'the columns of % or %, or the args of the job, have changed since the copy began', texts ->> 'source', texts ->> 'target' USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Rows that were copied before do not have what has changed.', HINT = 'Drop the job, and create it anew with an empty target.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid IN ((texts ->> 'source')::pg_catalog.regclass, (texts ->> 'target')::pg_catalog.regclass) AND c.relpersistence <> 'p') THEN
		RAISE EXCEPTION '% or % is unlogged since the copy began', texts ->> 'source', texts ->> 'target' USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'A crash would empty it.',
			HINT = 'If the server has not crashed since: ALTER TABLE ... SET LOGGED;';
	END IF;
	IF next_cursor ? 'settled' THEN
		RETURN;
	END IF;
	EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM %s)', texts ->> 'target') INTO found;
	IF found THEN
		RAISE EXCEPTION '% is not empty', texts ->> 'target' USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A copy with changes is what the source is: empty it first.';
	END IF;
	IF next_cursor ? 'captured' THEN
		EXECUTE texts ->> 'newest' INTO newest;
		next_cursor := next_cursor || pg_catalog.jsonb_build_object('settled', newest);
		RETURN;
	END IF;
	rows := 1;
	IF sweep._capture_changes(texts) THEN
		next_cursor := pg_catalog.jsonb_build_object('captured', texts ->> 'shape');
	ELSIF tries >= 100 THEN
		RAISE EXCEPTION '% could not be locked', texts ->> 'source' USING ERRCODE = 'object_in_use',
			DETAIL = sweep._holders(ARRAY[texts ->> 'source']), HINT = 'Start the job again when these transactions have ended.';
	ELSE
		next_cursor := pg_catalog.jsonb_build_object('tries', tries + 1);
		detail := '{"lock_timeouts": 1}';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._begin_changes(jsonb, jsonb, jsonb) IS 'checks what may have changed since the last batch, and creates the trigger in the first batch; rows is not NULL when the batch has done its work';

-- The prologue of a batch: the first one creates the trigger, others copy the rows of recorded keys; rows is NULL when the next range follows.
CREATE FUNCTION sweep._change_batch(args jsonb, texts jsonb, cursor jsonb, size int, run_id bigint, path text, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	applied pg_catalog.record;
	found boolean;
	started pg_catalog.timestamptz;
BEGIN
	IF cursor ? 'switched' THEN
		SELECT s.rows, s.next_cursor, s.detail INTO rows, next_cursor, detail FROM sweep._end_switch(cursor) AS s;
		RETURN;
	END IF;
	PERFORM pg_catalog.pg_sleep(least(coalesce((cursor ->> 'tries')::int, 0), 10) * 0.03);
	SELECT b.rows, b.next_cursor, b.detail INTO rows, next_cursor, detail FROM sweep._begin_changes(args, texts, coalesce(cursor, '{}')) AS b;
	IF rows IS NOT NULL THEN
		RETURN;
	END IF;
	-- This run has caught up with all changes.
	IF next_cursor -> 'caught_up' = pg_catalog.to_jsonb(run_id) THEN
		rows := 0;
		RETURN;
	END IF;
	started := pg_catalog.clock_timestamp();
	SELECT * INTO applied FROM sweep._apply_changes(texts, size, path);
	IF applied.truncated THEN
		next_cursor := next_cursor || '{"settled": null}';
	END IF;
	IF applied.keys > 0 THEN
		detail := pg_catalog.jsonb_build_object('changes', applied.keys);
	END IF;
	IF NOT next_cursor ? 'copied' THEN
		EXECUTE texts ->> 'behind' INTO found USING next_cursor, NOT next_cursor ? 'after';
		IF found THEN
			RETURN;
		END IF;
		next_cursor := next_cursor || '{"copied": true}';
	END IF;
	rows := applied.keys;
	IF applied.keys < size AND args ? 'switch' THEN
		SELECT s.rows, s.next_cursor, coalesce(_change_batch.detail, '{}') || coalesce(s.detail, '{}') INTO rows, next_cursor, detail
			FROM sweep._switch_batch(args, texts, next_cursor, run_id, path, pg_catalog.clock_timestamp() - started) AS s;
	ELSIF applied.keys < size THEN
		next_cursor := next_cursor || pg_catalog.jsonb_build_object('caught_up', run_id);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._change_batch(jsonb, jsonb, jsonb, int, bigint, text) IS 'the work of a batch of a copy with changes before it copies a range';

-- ------------------------------------------------------------------ the job
-- Code of the tables is executed as the role of the job: their triggers, index expressions, defaults. A role may trust the owners
-- for whom it acts; only a superuser must not, because it acts for all.
CREATE FUNCTION sweep._check_acting(role oid, source regclass, target regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.record;
BEGIN
	SELECT c.oid::pg_catalog.regclass AS name, c.relowner, pg_catalog.pg_get_userbyid(role) AS role INTO wrong FROM pg_catalog.pg_class c
		WHERE c.oid IN (source, target) AND NOT sweep._owns(role, c.relowner) ORDER BY c.oid = target LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'role "%" does not own %', wrong.role, wrong.name USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its triggers and expressions are executed as the role of the job.',
			HINT = pg_catalog.format('A copy with changes makes a trigger and exchanges tables: write run_as => %L.', pg_catalog.pg_get_userbyid(wrong.relowner));
	END IF;
	SELECT c.oid::pg_catalog.regclass AS name INTO wrong FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = role WHERE c.oid IN (source, target)
		AND c.relrowsecurity AND c.relforcerowsecurity AND NOT r.rolbypassrls AND NOT r.rolsuper;
	IF FOUND THEN
		RAISE EXCEPTION 'policies of % may hide rows from role "%"', wrong.name, pg_catalog.pg_get_userbyid(role) USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY;', wrong.name);
	END IF;
	-- Triggers of the referring table would be executed in the session of the job, and rows of the target are deleted and inserted again.
	SELECT c.conname, c.conrelid::pg_catalog.regclass AS child INTO wrong FROM pg_catalog.pg_constraint c WHERE c.contype = 'f' AND c.confrelid = target AND c.conrelid <> target LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'foreign key "%" of % refers to %', wrong.conname, wrong.child, target USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Rows are deleted there and inserted again.', HINT = 'Drop it; sweep.switch_copy can move those that refer to the source.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_acting(oid, regclass, regclass) IS 'raises unless a role acts for the owners of both tables and sees all of their rows, and no foreign key refers to the copy';

CREATE FUNCTION sweep._check_follows(job sweep.job_definition, source regclass, target regclass, key text[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role constant pg_catalog.oid := sweep._role_oid(job.run_as);
	wrong pg_catalog.record;
	columns constant pg_catalog.text[] := sweep._copy_columns(source, target);
BEGIN
	PERFORM sweep._check_acting(role, source, target);
	-- Jobs whose role could not create the trigger are ignored: they copy nothing, whatever their args say.
	IF EXISTS (SELECT FROM sweep.job_definition j WHERE j.args ->> 'changes' = job.args ->> 'changes' AND j.name <> job.name
			AND sweep._owns(sweep._role_oid(j.run_as), (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = source))) THEN
		RAISE EXCEPTION 'the changes of % are copied by another job', source USING ERRCODE = 'duplicate_object', HINT = 'A table has one copy with changes at a time.';
	END IF;
	SELECT c.oid::pg_catalog.regclass AS name INTO wrong FROM pg_catalog.pg_class c WHERE c.oid IN (source, target)
		AND (c.oid = source AND c.relkind = 'p' OR c.relpersistence <> 'p' OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid));
	IF FOUND THEN
		RAISE EXCEPTION 'changes of % cannot be copied', wrong.name USING ERRCODE = 'feature_not_supported',
			DETAIL = 'It is a partitioned table, a partition, inherits from another one, or is unlogged.', HINT = 'The source is an ordinary table; the target may be partitioned.';
	END IF;
	SELECT p.pubname INTO wrong FROM pg_catalog.pg_publication p WHERE p.puballtables OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid
		WHERE n.pnpubid = p.oid AND c.oid = source) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'publication "%" would publish the keys of changed rows', wrong.pubname USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'They are in a table beside the source, which a subscriber does not have.', HINT = 'Publish the source by its name.';
	END IF;
	IF NOT pg_catalog.has_schema_privilege(role, (SELECT c.relnamespace FROM pg_catalog.pg_class c WHERE c.oid = source), 'CREATE') THEN
		RAISE EXCEPTION 'role "%" may not create tables in the schema of %', job.run_as, source USING ERRCODE = 'insufficient_privilege', HINT = 'The keys of changed rows are in a table there.';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = target AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
			AND i.indnkeyatts >= pg_catalog.cardinality(key) AND (SELECT pg_catalog.bool_and(a.attnotnull AND a.attname::pg_catalog.text = ANY (columns)
					AND (k.n >= pg_catalog.cardinality(key) OR a.attname::pg_catalog.text = ANY (key)))
				FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n) JOIN pg_catalog.pg_attribute a ON a.attrelid = target AND a.attnum = i.indkey[k.n])) THEN
		RAISE EXCEPTION '% has no unique index that begins with (%)', target, pg_catalog.array_to_string(key, ', ') USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Its columns must be NOT NULL and columns of the source.', HINT = pg_catalog.format('ALTER TABLE %s ADD PRIMARY KEY (%s);', target, pg_catalog.array_to_string(key, ', '));
	END IF;
	-- Analysed and not executed, as the role of the job: a comparison of types of users calls their casts.
	BEGIN
		PERFORM sweep._check_fragment(job.run_as, (SELECT pg_catalog.format('DELETE FROM %s WHERE $1 IS NOT NULL AND %s', sweep._table_name(target), pg_catalog.string_agg(pg_catalog.format(
				'EXISTS (SELECT NULL::%2$s EXCEPT SELECT NULL::%1$s) AND NULL::%1$s OPERATOR(pg_catalog.=) NULL::%2$s', sweep._type_name(sweep._base_type(n.atttypid), -1), sweep._type_name(sweep._base_type(a.atttypid), -1)), ' AND '))
			FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname
			WHERE a.attrelid = source AND a.attname = ANY (key)), job.settings);
	EXCEPTION WHEN undefined_function OR datatype_mismatch THEN
		RAISE EXCEPTION 'keys of % cannot be compared with those of %', target, source USING ERRCODE = 'datatype_mismatch', DETAIL = SQLERRM || '.',
			HINT = pg_catalog.format('Rows that change are found by their keys: (%s) must be of types that compare, as int and bigint do.', pg_catalog.array_to_string(key, ', '));
	END;
	-- Keys that are equal in one of the tables could be different in the other one: a deletion would delete two rows, or none.
	SELECT a.attname INTO wrong FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname AND n.attcollation <> a.attcollation
		WHERE a.attrelid = source AND a.attname = ANY (key) AND EXISTS (SELECT FROM pg_catalog.pg_collation c WHERE c.oid IN (a.attcollation, n.attcollation) AND NOT c.collisdeterministic) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'keys of % cannot be compared with those of %', target, source USING ERRCODE = 'collation_mismatch', DETAIL = pg_catalog.format('The collations of "%s" differ, and by one of them different texts are equal.', wrong.attname),
			HINT = 'Give both the same collation, and alter it when the copy has taken the name.';
	END IF;
	IF job.cursor <> 'always' OR job.args ->> 'on_conflict' <> 'error' THEN
		RAISE EXCEPTION '% does not go with with_changes', CASE WHEN job.cursor <> 'always' THEN 'cursor' ELSE 'on_conflict' END USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_follows(sweep.job_definition, regclass, regclass, text[]) IS 'raises unless a job can follow the changes of its source';

-- For a dropped job. The objects are found by the names in its args, and dropped only if its role could drop them.
CREATE FUNCTION sweep._drop_changes() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
	role constant pg_catalog.oid := sweep._role_oid(OLD.run_as);
	changes pg_catalog.regclass;
	maker pg_catalog.regprocedure;
	line pg_catalog.text;
	-- A job of sweep.create_partitions may be emptying a default partition.
	emptying pg_catalog.jsonb;
	copy pg_catalog.regclass;
	name pg_catalog.text := OLD.args ->> 'changes';
BEGIN
	BEGIN
		IF OLD.args ? 'changes' THEN
			name := sweep._moved_changes(name, role);
			changes := pg_catalog.to_regclass(name);
			maker := pg_catalog.to_regprocedure(name || '()');
		ELSE
			-- The default partition may have been detached since, or renamed.
			emptying := coalesce(sweep._kept_cursor(OLD.name) -> 'emptying', (SELECT pg_catalog.jsonb_build_object('copy', n.copy, 'changes', n.changes)
				FROM pg_catalog.pg_partitioned_table p CROSS JOIN LATERAL sweep._emptying_names(p.partdefid::pg_catalog.regclass) AS n WHERE p.partrelid = pg_catalog.to_regclass(OLD.args ->> 'target') AND p.partdefid <> 0));
			IF emptying IS NULL OR NOT sweep._is_emptying(emptying ->> 'copy') THEN
				RETURN OLD;
			END IF;
			name := emptying ->> 'changes';
			copy := pg_catalog.to_regclass(emptying ->> 'copy');
			changes := pg_catalog.to_regclass(name);
			maker := pg_catalog.to_regprocedure(name || '()');
		END IF;
	EXCEPTION WHEN syntax_error OR invalid_name OR invalid_parameter_value OR undefined_object THEN
		RETURN OLD;
	END;
	IF changes IS NULL AND maker IS NULL AND copy IS NULL THEN
		RETURN OLD;
	END IF;
	IF role IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid IN (changes, copy) AND (c.relkind NOT IN ('r', 'p') OR NOT pg_catalog.pg_has_role(role, c.relowner, 'USAGE')))
			OR EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.oid = maker AND NOT pg_catalog.pg_has_role(role, p.proowner, 'USAGE'))
			OR EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid WHERE t.tgfoid = maker AND NOT pg_catalog.pg_has_role(role, c.relowner, 'USAGE')) THEN
		RAISE WARNING 'the trigger of job "%" is not dropped', OLD.name USING DETAIL = pg_catalog.format('Role "%s" could not drop %s and its function.', OLD.run_as, name),
			HINT = 'Changed rows are still written down there until its owner drops both.';
		RETURN OLD;
	END IF;
	FOR attempt IN 1 .. 100 LOOP
		BEGIN
			FOR line IN SELECT pg_catalog.format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::pg_catalog.regclass) FROM pg_catalog.pg_trigger t WHERE t.tgfoid = maker
					UNION ALL SELECT pg_catalog.format('DROP FUNCTION %s', maker) WHERE maker IS NOT NULL UNION ALL SELECT pg_catalog.format('DROP TABLE %s', t) FROM pg_catalog.unnest(ARRAY[changes, copy]) AS t WHERE t IS NOT NULL LOOP
				EXECUTE line;
			END LOOP;
			RETURN OLD;
		EXCEPTION WHEN lock_not_available THEN
			IF attempt = 100 THEN
				RAISE EXCEPTION 'the trigger of job "%" could not be dropped', OLD.name USING ERRCODE = 'object_in_use',
					DETAIL = sweep._holders(ARRAY(SELECT t.tgrelid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_trigger t WHERE t.tgfoid = maker) || changes::pg_catalog.text),
					HINT = 'Drop the job when these transactions have ended.';
			END IF;
			PERFORM pg_catalog.pg_sleep(0.05);
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._drop_changes() IS 'drops the table, function and triggers that record changes for a copy whose job is dropped';

CREATE TRIGGER drop_changes BEFORE DELETE ON sweep.job_definition FOR EACH ROW WHEN (OLD.step = 'sweep.copy_step' AND OLD.args ? 'changes' OR OLD.step = 'sweep.partitions_step')
	EXECUTE FUNCTION sweep._drop_changes();

-- Copied rows and recorded keys belong to the args with which they were made.
CREATE FUNCTION sweep._keep_changes() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'the args of job "%" cannot be changed', OLD.name USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'What it has copied, and the keys of changed rows, fit these alone.',
		HINT = pg_catalog.format('SELECT sweep.drop_job(%L); and create it anew with an empty target.', OLD.name);
END
$$;
COMMENT ON FUNCTION sweep._keep_changes() IS 'raises when the args of a copy with changes are changed';

CREATE TRIGGER keep_changes BEFORE UPDATE ON sweep.job_definition FOR EACH ROW
	WHEN (NEW.step = 'sweep.copy_step' AND (OLD.args ? 'changes' OR NEW.args ? 'changes') AND OLD.args <> NEW.args OR OLD.step = 'sweep.copy_step' AND OLD.args ? 'changes' AND NEW.step IS DISTINCT FROM OLD.step)
	EXECUTE FUNCTION sweep._keep_changes();
--
-- Views, triggers, privileges and other objects refer to a table by its OID. When a copy takes the name of its source, they stay with the
-- source, unless they are moved to the copy.
--
-- Each item has the statements that move it. They are executed as the role of the job after both tables were renamed: the name of the source
-- is then that of the copy. An item without statements cannot be moved. Columns, defaults, checks and indexes are no items, because the
-- copy's own definition is the wanted one; only a missing column is an item.
--
CREATE TYPE sweep._staying AS (
	kind  text,
	name  text,
	lock  text,
	lines text[],
	after text
);
COMMENT ON TYPE sweep._staying IS 'an object that stays with the source of a copy when the names are switched';
COMMENT ON COLUMN sweep._staying.kind IS 'kind of object, for the argument leave of sweep.switch_copy';
COMMENT ON COLUMN sweep._staying.name IS 'its name, for messages';
COMMENT ON COLUMN sweep._staying.lock IS 'statement that locks it before the source is locked; NULL: it is locked with the source';
COMMENT ON COLUMN sweep._staying.lines IS 'statements that move it; NULL: it cannot be moved';
COMMENT ON COLUMN sweep._staying.after IS 'statement to execute in a transaction of its own after the switch; NULL: none';

CREATE FUNCTION sweep._privileges(relation regclass) RETURNS TABLE (privilege text, grantee text, grantable boolean, of_column text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT g.privilege_type || coalesce(' (' || pg_catalog.quote_ident(p.of_column) || ')', ''), CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END, g.is_grantable, p.of_column
		FROM (SELECT c.relowner, c.relacl, NULL::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.oid = relation
			UNION ALL SELECT c.relowner, a.attacl, a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid WHERE a.attrelid = relation AND NOT a.attisdropped) AS p (owner, acl, of_column)
			CROSS JOIN LATERAL pg_catalog.aclexplode(p.acl) AS g WHERE g.grantee <> p.owner;
END
$$;
COMMENT ON FUNCTION sweep._privileges(regclass) IS 'the privileges of other roles than the owner on a table and its columns, or a sequence, in the terms of GRANT';

CREATE FUNCTION sweep._sequences(source regclass, target regclass) RETURNS TABLE (name text, old regclass, new regclass)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT a.attname::pg_catalog.text, q.old, q.new FROM pg_catalog.pg_attribute a
			JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname AND NOT n.attisdropped
			CROSS JOIN LATERAL (SELECT pg_catalog.pg_get_serial_sequence(sweep._table_name(source), a.attname)::pg_catalog.regclass, pg_catalog.pg_get_serial_sequence(sweep._table_name(target), n.attname)::pg_catalog.regclass) AS q (old, new)
		WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped AND q.old IS NOT NULL;
END
$$;
COMMENT ON FUNCTION sweep._sequences(regclass, regclass) IS 'sequences of identity and serial columns of a table, and of the same columns of its copy, if they have one';

-- ------------------------------------------------------------------ of the table itself
CREATE FUNCTION sweep._stays_settings(source regclass, target regclass, table_name text) RETURNS SETOF sweep._staying
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old constant pg_catalog.pg_class := (SELECT c FROM pg_catalog.pg_class c WHERE c.oid = source);
	new constant pg_catalog.pg_class := (SELECT c FROM pg_catalog.pg_class c WHERE c.oid = target);
BEGIN
	RETURN QUERY SELECT 'owner', pg_catalog.pg_get_userbyid(old.relowner)::pg_catalog.text, NULL, ARRAY[pg_catalog.format('ALTER TABLE %s OWNER TO %I', table_name, pg_catalog.pg_get_userbyid(old.relowner))], NULL
		WHERE old.relowner <> new.relowner;
	RETURN QUERY SELECT 'privilege', pg_catalog.format('%s of %s%s', pg_catalog.string_agg(a.privilege, ', ' ORDER BY a.privilege), a.grantee, ' on ' || o.sequence), NULL,
			pg_catalog.array_agg(pg_catalog.format('GRANT %s ON %s TO %s%s', a.privilege, o.object, a.grantee, CASE WHEN a.grantable THEN ' WITH GRANT OPTION' ELSE '' END)), NULL
		FROM (SELECT source, target, table_name, NULL UNION ALL SELECT q.old, q.new, 'SEQUENCE ' || sweep._table_name(q.new), q.old::pg_catalog.text FROM sweep._sequences(source, target) AS q WHERE q.new <> q.old) AS o (old, new, object, sequence)
			CROSS JOIN LATERAL sweep._privileges(o.old) AS a
		WHERE NOT EXISTS (SELECT FROM sweep._privileges(o.new) AS n WHERE (n.privilege, n.grantee, n.grantable) = (a.privilege, a.grantee, a.grantable))
			AND (a.of_column IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_attribute n WHERE n.attrelid = target AND n.attname = a.of_column AND NOT n.attisdropped)) GROUP BY a.grantee, o.sequence;
	RETURN QUERY SELECT CASE WHEN a.attidentity <> '' THEN 'identity' ELSE 'sequence' END, a.attname::pg_catalog.text, NULL,
			CASE WHEN n.attidentity = '' AND a.attidentity <> '' THEN ARRAY[pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (INCREMENT %s CACHE %s)', table_name, a.attname, i.kind, s.seqincrement, s.seqcache)]
				WHEN a.attidentity <> '' THEN ARRAY[pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I SET GENERATED %s', table_name, a.attname, i.kind)]
				WHEN n.attidentity = '' THEN ARRAY[pg_catalog.format('ALTER SEQUENCE %s OWNED BY %s.%I', q.old, table_name, a.attname)] END, NULL
		FROM sweep._sequences(source, target) AS q JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attname = q.name JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = q.name
			JOIN pg_catalog.pg_sequence s ON s.seqrelid = q.old CROSS JOIN LATERAL (SELECT CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END) AS i (kind)
		WHERE a.attidentity <> n.attidentity AND a.attidentity <> '' OR q.new IS NULL;
	RETURN QUERY SELECT 'column', a.attname::pg_catalog.text, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_attribute a WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute n WHERE n.attrelid = target AND n.attname = a.attname AND NOT n.attisdropped);
	RETURN QUERY SELECT 'replica identity', CASE old.relreplident WHEN 'i' THEN 'index' WHEN 'f' THEN 'full' WHEN 'n' THEN 'nothing' ELSE 'default' END, NULL,
		CASE WHEN old.relreplident <> 'i' THEN ARRAY[pg_catalog.format('ALTER TABLE %s REPLICA IDENTITY %s', table_name, CASE old.relreplident WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING' ELSE 'DEFAULT' END)] END, NULL
		WHERE old.relreplident <> new.relreplident;
	RETURN QUERY SELECT 'policy', 'row level security', NULL, ARRAY[pg_catalog.format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY%s', table_name, CASE WHEN old.relforcerowsecurity THEN ', FORCE ROW LEVEL SECURITY' ELSE '' END)], NULL
		WHERE old.relrowsecurity AND (NOT new.relrowsecurity OR old.relforcerowsecurity AND NOT new.relforcerowsecurity);
	RETURN QUERY SELECT 'policy', p.polname::pg_catalog.text, NULL, ARRAY[pg_catalog.format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', p.polname, table_name, CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
				CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
				(SELECT pg_catalog.string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(r)) END, ', ') FROM pg_catalog.unnest(p.polroles) AS r),
				' USING (' || pg_catalog.pg_get_expr(p.polqual, source) || ')', ' WITH CHECK (' || pg_catalog.pg_get_expr(p.polwithcheck, source) || ')')]
			|| sweep._comment_line('pg_policy', p.oid, pg_catalog.format('POLICY %I ON %s', p.polname, table_name)), NULL
		FROM pg_catalog.pg_policy p WHERE p.polrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy n WHERE n.polrelid = target AND n.polname = p.polname);
	RETURN QUERY SELECT 'trigger', t.tgname::pg_catalog.text, NULL, ARRAY[pg_catalog.pg_get_triggerdef(t.oid)]
			|| CASE t.tgenabled WHEN 'O' THEN '{}' ELSE ARRAY[pg_catalog.format('ALTER TABLE %s %s TRIGGER %I', table_name, CASE t.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE REPLICA' END, t.tgname)] END
			|| sweep._comment_line('pg_trigger', t.oid, pg_catalog.format('TRIGGER %I ON %s', t.tgname, table_name)), NULL
		FROM pg_catalog.pg_trigger t WHERE t.tgrelid = source AND NOT t.tgisinternal AND t.tgname NOT IN ('sweep_changes', 'sweep_changes_truncate')
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger n WHERE n.tgrelid = target AND n.tgname = t.tgname);
	RETURN QUERY SELECT 'comment', coalesce('on column ' || n.attname, 'on the table'), NULL,
			ARRAY[pg_catalog.format('COMMENT ON %s IS %L', coalesce(pg_catalog.format('COLUMN %s.', table_name) || pg_catalog.quote_ident(n.attname), 'TABLE ' || table_name), d.description)], NULL
		FROM pg_catalog.pg_description d LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attnum = d.objsubid AND d.objsubid > 0
			LEFT JOIN pg_catalog.pg_attribute n ON n.attrelid = target AND n.attname = a.attname AND NOT n.attisdropped
		WHERE d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objoid = source AND (d.objsubid = 0 OR n.attname IS NOT NULL)
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_description e WHERE e.classoid = d.classoid AND e.objoid = target AND e.objsubid = coalesce(n.attnum, 0));
END
$$;
COMMENT ON FUNCTION sweep._stays_settings(regclass, regclass, text) IS 'properties of a table that its copy lacks; table_name: the name of the copy when the statements are executed';

CREATE FUNCTION sweep._comment_line(catalog text, object oid, name text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ARRAY(SELECT pg_catalog.format('COMMENT ON %s IS %L', name, d.description) FROM pg_catalog.pg_description d
		WHERE d.classoid = ('pg_catalog.' || catalog)::pg_catalog.regclass AND d.objoid = object AND d.objsubid = 0);
END
$$;
COMMENT ON FUNCTION sweep._comment_line(text, oid, text) IS 'the statement that gives another object the comment of this one; empty: it has none';

-- ------------------------------------------------------------------ of others
CREATE FUNCTION sweep._stays_others(source regclass, target regclass, role oid, old_name text) RETURNS SETOF sweep._staying
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	table_name constant pg_catalog.text := sweep._table_name(source);
	types constant pg_catalog.oid[] := ARRAY(SELECT t.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_type t ON c.reltype IN (t.oid, t.typelem) WHERE c.oid = source);
BEGIN
	RETURN QUERY SELECT 'publication', p.pubname::pg_catalog.text, NULL, CASE WHEN sweep._owns(role, p.pubowner) THEN ARRAY[
			pg_catalog.format('ALTER PUBLICATION %I ADD TABLE %s%s%s', p.pubname, table_name, ' (' || (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum)
				FROM pg_catalog.pg_attribute a WHERE a.attrelid = source AND a.attnum = ANY (r.prattrs)) || ')', ' WHERE (' || pg_catalog.pg_get_expr(r.prqual, source) || ')'),
			pg_catalog.format('ALTER PUBLICATION %I DROP TABLE %s', p.pubname, (SELECT pg_catalog.format('%I.%I', n.nspname, old_name) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source))] END, NULL
		FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
		WHERE r.prrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel n WHERE n.prrelid = target AND n.prpubid = p.oid);
	RETURN QUERY SELECT DISTINCT CASE WHEN v.oid = source THEN 'rule' WHEN v.relkind = 'v' THEN 'view' WHEN v.relkind = 'm' THEN 'materialized view' ELSE 'rule' END,
			CASE WHEN v.relkind IN ('v', 'm') THEN v.oid::pg_catalog.regclass::pg_catalog.text ELSE pg_catalog.format('%I on %s', w.rulename, v.oid::pg_catalog.regclass) END,
			-- Not LOCK TABLE, which would also lock all tables that the view reads.
			pg_catalog.format('ALTER VIEW %s OWNER TO %I', sweep._table_name(v.oid::pg_catalog.regclass), pg_catalog.pg_get_userbyid(v.relowner)),
			CASE WHEN v.relkind = 'v' AND w.rulename = '_RETURN' AND sweep._owns(role, v.relowner) THEN
				ARRAY[pg_catalog.format('CREATE %s VIEW %s%s AS %s', 'OR REPLACE', sweep._table_name(v.oid::pg_catalog.regclass), ' WITH (' || pg_catalog.array_to_string(v.reloptions, ', ') || ')', pg_catalog.pg_get_viewdef(v.oid))] END, NULL
		FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite w ON w.oid = d.objid JOIN pg_catalog.pg_class v ON v.oid = w.ev_class
		WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND (d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = source OR d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = ANY (types));
	RETURN QUERY SELECT 'foreign key', pg_catalog.format('%I on %s', c.conname, c.conrelid::pg_catalog.regclass), CASE WHEN c.conrelid <> source THEN pg_catalog.format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', k.child) END,
			CASE WHEN c.conrelid <> target AND sweep._owns(role, r.relowner) AND (k.is_plain OR pg_catalog.current_setting('server_version_num')::int >= 180000) THEN
				ARRAY[pg_catalog.format('ALTER TABLE %s%s ADD CONSTRAINT %I %s%s', k.child, CASE WHEN c.conrelid <> source THEN pg_catalog.format(' DROP CONSTRAINT %I,', c.conname) END, c.conname,
					pg_catalog.pg_get_constraintdef(c.oid), CASE WHEN c.convalidated THEN ' NOT VALID' END)] || sweep._comment_line('pg_constraint', c.oid, pg_catalog.format('CONSTRAINT %I ON %s', c.conname, k.child)) END,
			CASE WHEN c.convalidated THEN pg_catalog.format('ALTER TABLE %s VALIDATE CONSTRAINT %I', k.child, c.conname) END
		FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class r ON r.oid = c.conrelid CROSS JOIN LATERAL (SELECT sweep._table_name(c.conrelid::pg_catalog.regclass),
				(SELECT t.relkind = 'r' FROM pg_catalog.pg_class t WHERE t.oid = CASE c.conrelid WHEN source THEN target ELSE c.conrelid END)) AS k (child, is_plain)
		WHERE c.contype = 'f' AND c.conparentid = 0 AND (c.confrelid = source AND c.conrelid <> source
			OR c.conrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint n WHERE n.contype = 'f' AND n.conrelid = target AND n.confrelid = CASE c.confrelid WHEN source THEN target ELSE c.confrelid END
				AND pg_catalog.regexp_replace(pg_catalog.pg_get_constraintdef(n.oid), E' REFERENCES .*\\(', '') = pg_catalog.regexp_replace(pg_catalog.pg_get_constraintdef(c.oid), E' REFERENCES .*\\(', '')));
	RETURN QUERY SELECT 'statistics', s.stxname::pg_catalog.text, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_statistic_ext s
		WHERE s.stxrelid = source AND NOT EXISTS (SELECT FROM pg_catalog.pg_statistic_ext n WHERE n.stxrelid = target AND pg_catalog.pg_get_statisticsobjdef_columns(n.oid) = pg_catalog.pg_get_statisticsobjdef_columns(s.oid));
	RETURN QUERY SELECT 'subscription', 'of the table', NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = source;
	RETURN QUERY SELECT 'inheritance', CASE i.inhrelid WHEN source THEN 'from ' || i.inhparent::pg_catalog.regclass ELSE 'of ' || i.inhrelid::pg_catalog.regclass END, NULL, NULL::pg_catalog.text[], NULL
		FROM pg_catalog.pg_inherits i WHERE source IN (i.inhrelid, i.inhparent);
	RETURN QUERY SELECT 'extension', e.extname::pg_catalog.text, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
		WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = source AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype = 'e';
	-- All other objects, such as a function with an SQL body, or a column of the table's row type.
	RETURN QUERY SELECT DISTINCT i.type, i.identity, NULL, NULL::pg_catalog.text[], NULL FROM pg_catalog.pg_depend d CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) AS i
		WHERE d.deptype <> 'i' AND (d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = source OR d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = ANY (types))
			AND CASE d.classid WHEN 'pg_catalog.pg_class'::pg_catalog.regclass THEN d.objsubid > 0 AND d.objid <> source
				WHEN 'pg_catalog.pg_attrdef'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_attrdef a WHERE a.oid = d.objid AND a.adrelid = source)
				WHEN 'pg_catalog.pg_policy'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.oid = d.objid AND p.polrelid = source)
				WHEN 'pg_catalog.pg_trigger'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.oid = d.objid AND (t.tgrelid = source OR t.tgisinternal))
				WHEN 'pg_catalog.pg_constraint'::pg_catalog.regclass THEN NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.oid = d.objid AND (c.conrelid = source OR c.contype = 'f'))
				ELSE d.classid NOT IN ('pg_catalog.pg_rewrite'::pg_catalog.regclass, 'pg_catalog.pg_publication_rel'::pg_catalog.regclass, 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass) END;
END
$$;
COMMENT ON FUNCTION sweep._stays_others(regclass, regclass, oid, text) IS 'objects that refer to a table and not to its copy';

-- ------------------------------------------------------------------ whether it can be switched
CREATE FUNCTION sweep._check_switch(args jsonb, source regclass, target regclass, role oid, captured boolean) RETURNS SETOF sweep._staying
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	carry constant boolean := coalesce((args #>> '{switch,carry}')::boolean, false);
	leave constant pg_catalog.text[] := ARRAY(SELECT * FROM pg_catalog.jsonb_array_elements_text(args #> '{switch,leave}'));
	old_name constant pg_catalog.text := sweep._old_name(args, source);
	items constant sweep._staying[] := ARRAY(SELECT (s.kind, s.name, s.lock, s.lines, s.after)::sweep._staying FROM (SELECT * FROM sweep._stays_settings(source, target, sweep._table_name(source)) UNION ALL SELECT * FROM sweep._stays_others(source, target, role, old_name)) AS s
		WHERE (s.kind = ANY (leave)) IS NOT TRUE);
	staying pg_catalog.record;
BEGIN
	IF (SELECT pg_catalog.count(DISTINCT c.relnamespace) FROM pg_catalog.pg_class c WHERE c.oid IN (source, target)) > 1 THEN
		RAISE EXCEPTION '% is in another schema than %', target, source USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A copy can take the name of a table of its own schema.';
	END IF;
	IF pg_catalog.octet_length(old_name) > 63 OR old_name = '' OR EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relname = old_name AND c.relnamespace = (SELECT s.relnamespace FROM pg_catalog.pg_class s WHERE s.oid = source)) THEN
		RAISE EXCEPTION '% cannot be renamed to "%"', source, old_name USING ERRCODE = 'duplicate_table', HINT = 'Name in old_name one that is free and has 63 bytes at most.';
	END IF;
	IF captured AND (SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = source AND t.tgname IN ('sweep_changes', 'sweep_changes_truncate') AND t.tgenabled = 'A'
			AND t.tgfoid = pg_catalog.to_regprocedure((args ->> 'changes') || '()')) < 2 THEN
		RAISE EXCEPTION 'a trigger that follows the changes of % was dropped or disabled', source USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Changes are lost: drop the job, and create it anew with an empty target.';
	END IF;
	SELECT pg_catalog.count(*) AS many, pg_catalog.string_agg(s.kind || ' ' || s.name, ', ' ORDER BY s.kind, s.name) AS names, pg_catalog.bool_and(s.lines IS NOT NULL) AS all_move INTO staying
		FROM pg_catalog.unnest(items) AS s WHERE NOT (carry AND s.lines IS NOT NULL);
	IF staying.many > 0 THEN
		RAISE EXCEPTION '% cannot be switched: what is known by its OID would stay behind', source USING ERRCODE = 'dependent_objects_still_exist', DETAIL = staying.names || '.',
			HINT = CASE WHEN staying.all_move THEN 'carry => true moves all of it.' ELSE 'Make it for the copy, or drop it; carry => true moves what can be moved, leave => ARRAY[...] names kinds that may stay.' END;
	END IF;
	RETURN QUERY SELECT * FROM pg_catalog.unnest(items);
END
$$;
COMMENT ON FUNCTION sweep._check_switch(jsonb, regclass, regclass, oid, boolean) IS 'the objects that are moved with the name; raises unless the copy can take the name of its source';

CREATE FUNCTION sweep._old_name(args jsonb, source regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(args #>> '{switch,old_name}', (SELECT c.relname || '_old' FROM pg_catalog.pg_class c WHERE c.oid = source));
END
$$;
COMMENT ON FUNCTION sweep._old_name(jsonb, regclass) IS 'the name that the source gets';
--
-- The switch of a copy with changes: it takes the name of its source, and the source another one.
--
-- A run of the job does it at its end: batches copy the remaining changes, execute ANALYZE, and then try to lock the source, waiting 50 ms each.
-- The batch that gets the lock does everything else in its transaction, as the role of the job; foreign keys are validated in further batches.
--
-- Locks are taken in the same order as by others: views and tables that refer to the source before the source. Under these locks nothing
-- takes long: the statements that move objects were determined before, and few keys are left.
--
CREATE FUNCTION sweep._exchange_lines(source regclass, target regclass) RETURNS SETOF text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY WITH named AS (
			SELECT i.indrelid = source AS is_old, c.relname, 'INDEX' AS kind, n.nspname, def || pg_catalog.row_number() OVER (PARTITION BY i.indrelid, def ORDER BY c.relname) AS key
				FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
					CROSS JOIN LATERAL pg_catalog.pg_get_indexdef(i.indexrelid) AS d CROSS JOIN LATERAL pg_catalog.format('%s %s %s ', i.indisunique, i.indisprimary, pg_catalog.substr(d, pg_catalog.strpos(d, ' USING '))) AS def
				WHERE i.indrelid IN (source, target)
			UNION ALL SELECT u.is_old, c.relname, 'SEQUENCE', n.nspname, q.name FROM sweep._sequences(source, target) AS q CROSS JOIN LATERAL (VALUES (true, q.old), (false, q.new)) AS u (is_old, oid)
				JOIN pg_catalog.pg_class c ON c.oid = u.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE q.old <> q.new)
		SELECT pg_catalog.format('ALTER %s %I.%I RENAME TO %I', o.kind, o.nspname, x.from_name, x.to_name) FROM named o JOIN named n ON n.is_old < o.is_old AND n.kind = o.kind AND n.key = o.key AND n.nspname = o.nspname
			CROSS JOIN LATERAL (VALUES (1, o.relname, 'sweep_switched'), (2, n.relname, o.relname), (3, 'sweep_switched', n.relname)) AS x (nth, from_name, to_name) ORDER BY o.kind, o.relname, x.nth;
END
$$;
COMMENT ON FUNCTION sweep._exchange_lines(regclass, regclass) IS 'the statements that exchange the names of equal indexes (and their constraints) and of the sequences of the same column';

CREATE FUNCTION sweep._switch(args jsonb, texts jsonb, path text) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
	source constant pg_catalog.regclass := texts ->> 'source';
	target constant pg_catalog.regclass := texts ->> 'target';
	role constant pg_catalog.oid := (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
	table_name constant pg_catalog.text := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = source);
	old_name constant pg_catalog.text := sweep._old_name(args, source);
	items sweep._staying[];
	lines pg_catalog.text[];
	line pg_catalog.text;
	left_keys bigint;
BEGIN
	items := ARRAY(SELECT s FROM sweep._check_switch(args, source, target, role, true) AS s);
	lines := ARRAY(SELECT * FROM sweep._exchange_lines(source, target));
	FOR line IN SELECT s.lock FROM pg_catalog.unnest(items) AS s WHERE s.lock IS NOT NULL GROUP BY s.kind, s.lock ORDER BY s.kind DESC, s.lock LOOP
		EXECUTE line;
	END LOOP;
	PERFORM sweep._lock_table(source, true, 'ACCESS EXCLUSIVE');
	IF pg_catalog.to_regclass(texts ->> 'source') IS DISTINCT FROM source THEN
		RAISE EXCEPTION '% is another table since', texts ->> 'source' USING ERRCODE = 'lock_not_available';
	END IF;
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT FROM %s LIMIT 1001) AS c', texts ->> 'changes') INTO left_keys;
	IF left_keys > 1000 THEN
		RAISE EXCEPTION 'more than 1000 rows of % were changed while it was being locked', source USING ERRCODE = 'lock_not_available';
	END IF;
	PERFORM sweep._apply_changes(texts, NULL, path);
	-- Checks again, because the source may have been changed before it was locked.
	items := ARRAY(SELECT s FROM sweep._check_switch(args, source, target, role, true) AS s);
	IF texts ->> 'shape' <> sweep._copy_shape(args, source, target) THEN
		RAISE EXCEPTION 'the columns of % or % were changed', source, target USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop the job, and create it anew with an empty target.';
	END IF;
	lines := ARRAY[pg_catalog.format('DROP TRIGGER sweep_changes ON %s', texts ->> 'source'), pg_catalog.format('DROP TRIGGER sweep_changes_truncate ON %s', texts ->> 'source'),
			pg_catalog.format('DROP FUNCTION %s()', texts ->> 'changes'), pg_catalog.format('DROP TABLE %s', texts ->> 'changes'),
			pg_catalog.format('ALTER TABLE %s RENAME TO %I', texts ->> 'source', old_name), pg_catalog.format('ALTER TABLE %s RENAME TO %I', texts ->> 'target', table_name)]
		|| ARRAY(SELECT l FROM pg_catalog.unnest(items) AS s CROSS JOIN LATERAL pg_catalog.unnest(s.lines) AS l)
		|| ARRAY(SELECT pg_catalog.format('SELECT pg_catalog.setval(n.name, s.last_value, s.is_called) FROM %s AS s, pg_catalog.pg_get_serial_sequence(%L, %L) AS n (name) WHERE n.name::pg_catalog.regclass OPERATOR(pg_catalog.<>) %1$L::pg_catalog.regclass',
			sweep._table_name(q.old), texts ->> 'source', q.name) FROM sweep._sequences(source, target) AS q)
		|| lines;
	FOREACH line IN ARRAY lines LOOP
		EXECUTE line;
	END LOOP;
	RETURN (SELECT coalesce(pg_catalog.jsonb_agg(s.after), '[]') FROM pg_catalog.unnest(items) AS s WHERE s.after IS NOT NULL);
END
$$;
COMMENT ON FUNCTION sweep._switch(jsonb, jsonb, text) IS 'gives the copy the name of its source; returns the statements that validate the foreign keys that were moved';

CREATE FUNCTION sweep._switch_batch(args jsonb, texts jsonb, cursor jsonb, run_id bigint, path text, took interval, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tries constant int := coalesce((cursor ->> 'tries')::int, 0);
	keys pg_catalog.jsonb;
BEGIN
	rows := 1;
	next_cursor := cursor;
	IF cursor -> 'switch' IS DISTINCT FROM pg_catalog.to_jsonb(run_id) THEN
		EXECUTE pg_catalog.format('ANALYZE %s', texts ->> 'target');
		next_cursor := (cursor - 'tries') || pg_catalog.jsonb_build_object('switch', run_id);
		RETURN;
	END IF;
	BEGIN
		IF took > interval '100 ms' THEN
			RAISE EXCEPTION 'the last changes took % to copy, for which writers would have waited', took USING ERRCODE = 'lock_not_available';
		END IF;
		keys := sweep._switch(args, texts, path);
		next_cursor := pg_catalog.jsonb_build_object('switched', pg_catalog.clock_timestamp(), 'validate', keys);
		detail := '{"switched": true}';
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		next_cursor := next_cursor || pg_catalog.jsonb_build_object('tries', tries + 1);
		detail := '{"lock_timeouts": 1}';
		IF tries >= 200 THEN
			RAISE EXCEPTION '% could not be locked', texts ->> 'source' USING ERRCODE = 'object_in_use', DETAIL = coalesce(sweep._holders((texts ->> 'source') || ARRAY(SELECT c.conrelid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_constraint c
					WHERE c.contype = 'f' AND c.confrelid = (texts ->> 'source')::pg_catalog.regclass)), SQLERRM),
				HINT = 'Nothing was changed. Call sweep.switch_copy again when these transactions have ended.';
		END IF;
	END;
END
$$;
COMMENT ON FUNCTION sweep._switch_batch(jsonb, jsonb, jsonb, bigint, text, interval) IS 'analyses the copy, or tries to give it the name of its source';

-- The validation does not block writers.
CREATE FUNCTION sweep._end_switch(cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	next_cursor := cursor;
	rows := 0;
	IF pg_catalog.jsonb_array_length(cursor -> 'validate') > 0 THEN
		BEGIN
			EXECUTE cursor #>> '{validate,0}';
			detail := '{"validated": 1}';
		-- The foreign key has been dropped since.
		EXCEPTION WHEN undefined_object OR undefined_table OR invalid_schema_name THEN
			detail := '{"gone": 1}';
		END;
		next_cursor := cursor || pg_catalog.jsonb_build_object('validate', (cursor -> 'validate') - 0);
		rows := 1;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._end_switch(jsonb) IS 'validates the next foreign key that was moved, the only work that is left after a switch';

CREATE FUNCTION sweep._switch_copy(caller oid, name text, carry boolean, leave text[], old_name text) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job constant sweep.job_definition := sweep._lock_job(caller, name, false, true);
	state pg_catalog.jsonb;
	wish pg_catalog.jsonb;
BEGIN
	IF job.step <> 'sweep.copy_step' OR NOT job.args ? 'changes' THEN
		RAISE EXCEPTION 'job "%" is no copy with changes', name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Create it with sweep.create_copy(..., with_changes => true).';
	END IF;
	IF carry IS NULL OR leave IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN carry IS NULL THEN 'carry' ELSE 'leave' END USING ERRCODE = 'null_value_not_allowed', HINT = 'Leave it out for its default.';
	END IF;
	state := sweep._kept_cursor(name);
	IF state ? 'switched' THEN
		RAISE EXCEPTION 'job "%" was switched already', name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = pg_catalog.format('SELECT sweep.drop_job(%L);', name);
	END IF;
	wish := pg_catalog.jsonb_build_object('switch', pg_catalog.jsonb_build_object('carry', carry, 'leave', leave, 'old_name', old_name));
	PERFORM FROM sweep._check_switch(job.args || wish, sweep._find_table('source', job.args ->> 'source', NULL), sweep._find_table('target', job.args ->> 'target', NULL), sweep._role_oid(job.run_as), state ? 'captured');
	RETURN sweep._start(caller, name, wish, interval '0', NULL);
END
$$;
COMMENT ON FUNCTION sweep._switch_copy(oid, text, boolean, text[], text) IS 'implements sweep.switch_copy';

CREATE FUNCTION sweep.switch_copy(name text, carry boolean DEFAULT false, leave text[] DEFAULT '{}', old_name text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.switch_copy(text, boolean, text[], text) IS
	'starts a run that copies the last changes and gives the copy the name of its source; raises when objects would stay with the source; returns the run_id';
--
-- Copy: inserts the rows of one table into another one, by ranges of a unique key; if the cursor is kept for good, further runs insert
-- rows that were added since.
--
CREATE FUNCTION sweep._copy_columns(source regclass, target regclass) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns pg_catalog.text[];
	missing pg_catalog.text;
BEGIN
	SELECT pg_catalog.array_agg(b.attname::pg_catalog.text ORDER BY b.attnum) INTO columns FROM pg_catalog.pg_attribute b
		WHERE b.attrelid = target AND b.attnum > 0 AND NOT b.attisdropped AND b.attgenerated = ''
			AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = source AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped);
	IF columns IS NULL THEN
		RAISE EXCEPTION '% and % have no column in common', source, target USING ERRCODE = 'invalid_parameter_value', HINT = 'Columns are copied by their names.';
	END IF;
	SELECT b.attname INTO missing FROM pg_catalog.pg_attribute b WHERE b.attrelid = target AND b.attnum > 0 AND NOT b.attisdropped AND b.attnotnull
		AND NOT b.atthasdef AND b.attidentity = '' AND b.attname::pg_catalog.text <> ALL (columns) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of % is not in %', missing, target, source USING ERRCODE = 'invalid_parameter_value', HINT = 'It is NOT NULL, so it needs a default.';
	END IF;
	RETURN columns;
END
$$;
COMMENT ON FUNCTION sweep._copy_columns(regclass, regclass) IS 'the columns that two tables have in common; raises when a row of one cannot become one of the other';

-- An INSERT into the partitioned table of which the source is a partition locks the source only after it has drawn keys.
--
-- DML takes ROW EXCLUSIVE even if its transaction has a stronger lock already. A transaction that only has another lock, such as
-- SHARE ROW EXCLUSIVE for a switch of tables, has inserted no rows.
CREATE FUNCTION sweep._writers(source regclass) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.jsonb_object_agg(l.virtualtransaction, coalesce(pg_catalog.to_jsonb(l.pid), '"prepared transaction"')), '{}') FROM pg_catalog.pg_locks l
		WHERE l.locktype = 'relation' AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
			AND (l.relation = source OR l.relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(source) AS t UNION ALL SELECT a.relid FROM pg_catalog.pg_partition_ancestors(source) AS a))
			AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() AND l.mode = 'RowExclusiveLock');
END
$$;
COMMENT ON FUNCTION sweep._writers(regclass) IS 'the transactions in progress that may have inserted rows into a table: {"virtual transaction": pid}';

-- A transaction in progress may still commit rows with smaller keys than visible ones, and a cursor after those would skip them for ever. Such a
-- transaction has locked the table before it drew its keys. A key is therefore "settled", and rows are copied up to it, when all transactions
-- that held such a lock have ended; "newest" is the key that will be settled next. Most transactions end soon, so a run waits a second. After a
-- restart of the server a prepared transaction has another number, -1/...: it may be any of those that held a lock.
CREATE FUNCTION sweep._settle(source text, cursor jsonb, run_id bigint, newest jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	state pg_catalog.jsonb := coalesce(cursor, '{}') || pg_catalog.jsonb_build_object('run', run_id);
	writers pg_catalog.jsonb := sweep._writers(source::pg_catalog.regclass);
	deadline constant pg_catalog.timestamptz := pg_catalog.clock_timestamp() + interval '1 second';
	pids pg_catalog.jsonb;
BEGIN
	IF state ? 'newest' THEN
		state := state || pg_catalog.jsonb_build_object('writers', (SELECT coalesce(pg_catalog.jsonb_agg(w), '[]') FROM
			(SELECT pg_catalog.jsonb_array_elements_text(state -> 'writers') UNION SELECT r FROM pg_catalog.jsonb_object_keys(writers) AS r WHERE r LIKE '-1/%') AS u (w)));
	END IF;
	IF state ? 'newest' AND NOT EXISTS (SELECT FROM pg_catalog.jsonb_array_elements_text(state -> 'writers') AS w WHERE writers ? w) THEN
		state := (state || pg_catalog.jsonb_build_object('settled', state -> 'newest')) - 'newest';
	END IF;
	IF NOT state ? 'newest' THEN
		state := state || pg_catalog.jsonb_build_object('newest', newest,
			'writers', (SELECT coalesce(pg_catalog.jsonb_agg(w), '[]') FROM pg_catalog.jsonb_object_keys(writers) AS w));
	END IF;
	LOOP
		SELECT pg_catalog.jsonb_agg(DISTINCT writers -> w) INTO pids FROM pg_catalog.jsonb_array_elements_text(state -> 'writers') AS w WHERE writers ? w;
		EXIT WHEN pids IS NULL OR pg_catalog.clock_timestamp() > deadline;
		PERFORM pg_catalog.pg_sleep(0.01);
		writers := sweep._writers(source::pg_catalog.regclass);
	END LOOP;
	IF pids IS NULL THEN
		state := state - ARRAY['newest', 'writers'] || pg_catalog.jsonb_build_object('settled', state -> 'newest');
	ELSIF state #> '{settled,after}' IS DISTINCT FROM newest -> 'after' THEN
		detail := pg_catalog.jsonb_build_object('waits_for', pids);
	END IF;
	next_cursor := state;
	-- The snapshot of this batch may be older than their commits; the next batch has a new one.
	IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
		rows := 1;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._settle(text, jsonb, bigint, jsonb) IS
	'the cursor with the last key to be copied, such that no transaction in progress can insert a smaller one; the detail names the transactions that are waited for; rows is not NULL when the batch has done its work';

-- A cursor of an older version has neither the order of the key nor the tables.
CREATE FUNCTION sweep._with_ordering(source regclass, target regclass, key text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('pg_catalog.jsonb_build_object(''ordering'', sweep._key_ordering(%L, %L)) OPERATOR(pg_catalog.||) coalesce($2, ''{}'') OPERATOR(pg_catalog.||) %L::pg_catalog.jsonb',
		sweep._table_name(source), key, pg_catalog.jsonb_build_object('copies', sweep._copied_tables(source, target)));
END
$$;
COMMENT ON FUNCTION sweep._with_ordering(regclass, regclass, text[]) IS 'an expression: the cursor, completed by the order of the key and the tables of the copy';

CREATE FUNCTION sweep._copy_prologue(source regclass, target regclass, key text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('SELECT NULL::pg_catalog.int8, %s, NULL::pg_catalog.jsonb WHERE ($2 OPERATOR(pg_catalog.->) ''ordering'') IS NULL', sweep._with_ordering(source, target, key));
END
$$;
COMMENT ON FUNCTION sweep._copy_prologue(regclass, regclass, text[]) IS 'a prologue that puts the order of the key and the tables of the copy into the cursor';

CREATE FUNCTION sweep._copied_tables(source regclass, target regclass) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.jsonb_build_array(source::pg_catalog.oid, sweep._table_name(source), target::pg_catalog.oid, sweep._table_name(target));
END
$$;
COMMENT ON FUNCTION sweep._copied_tables(regclass, regclass) IS 'the tables of a copy, by their OIDs and names';

-- A renamed table is recognized by its OID, a restored one by its name.
CREATE FUNCTION sweep._check_copied(cursor jsonb, tables jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known constant pg_catalog.jsonb := cursor -> 'copies';
BEGIN
	IF cursor ? 'after' AND (known -> 0 <> tables -> 0 AND known -> 1 <> tables -> 1 OR known -> 2 <> tables -> 2 AND known -> 3 <> tables -> 3) THEN
		RAISE EXCEPTION 'the job has copied % to %, and is to copy % to %', known ->> 1, known ->> 3, tables ->> 1, tables ->> 3 USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'It would go on behind the last key that it has copied there.', HINT = 'Create another job for these tables.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_copied(jsonb, jsonb) IS 'raises when the cursor of a copy is of other tables';

-- A statement has the columns of the time when it was generated.
CREATE FUNCTION sweep._check_columns(relation text, known text[], columns text[]) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF columns <> known THEN
		RAISE EXCEPTION 'the columns of % have changed since the run began', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = pg_catalog.format('It was to take (%s), and is to take (%s).', sweep._column_list(known), sweep._column_list(columns)), HINT = 'Start the job again.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_columns(text, text[], text[]) IS 'raises when other columns are to be taken from a table than when the run began';

CREATE FUNCTION sweep._collate_as(relation regclass, name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, c.collname) FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
			JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace WHERE a.attrelid = relation AND a.attname = name);
END
$$;
COMMENT ON FUNCTION sweep._collate_as(regclass, text) IS 'the COLLATE clause with the collation of a column; NULL: it has none';

-- A key that the type of the target rounds would not be found again.
CREATE FUNCTION sweep._keeps_key(source regclass, target regclass, key text[], terms text[]) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%s OPERATOR(pg_catalog.=) %1$s::%s%s', terms[u.n], sweep._type_name(o.atttypid, o.atttypmod),
			-- A domain may have a collation of its own.
			CASE WHEN o.attcollation <> 0 THEN sweep._collate_as(source, u.name) END), ' AND ' ORDER BY u.n)
		FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_attribute a ON a.attrelid = source AND a.attname = u.name JOIN pg_catalog.pg_attribute o ON o.attrelid = target AND o.attname = u.name
		WHERE (a.atttypid, a.atttypmod) <> (o.atttypid, o.atttypmod) AND NOT (o.atttypmod = -1
			AND (a.atttypid = o.atttypid OR a.atttypid = 'pg_catalog.int4'::pg_catalog.regtype AND o.atttypid = 'pg_catalog.int8'::pg_catalog.regtype)));
END
$$;
COMMENT ON FUNCTION sweep._keeps_key(regclass, regclass, text[], text[]) IS 'a condition: the key, given as these terms, has the same value in the target of a copy as in the source; NULL: the types ensure it';

CREATE FUNCTION sweep._holders(tables text[]) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(DISTINCT pg_catalog.format('%s has %s on %s', coalesce('process ' || l.pid, 'a prepared transaction'), l.mode, l.relation::pg_catalog.regclass), ', ')
		FROM pg_catalog.pg_locks l WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
			AND l.relation IN (SELECT pg_catalog.to_regclass(t) FROM pg_catalog.unnest(tables) AS t)
			AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()));
END
$$;
COMMENT ON FUNCTION sweep._holders(text[]) IS 'a text: which processes have which locks on these tables; NULL: none';

-- A trigger may leave a row out, or give it another key. The rows are read once: another session may add some meanwhile.
CREATE FUNCTION sweep._insert_text(source regclass, target regclass, key text[], columns text[], rows text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names constant pg_catalog.text := sweep._column_list(columns);
	keys constant pg_catalog.text := sweep._column_list(key);
BEGIN
	RETURN pg_catalog.format('WITH sweep_rows AS MATERIALIZED (%s), done AS (INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM sweep_rows RETURNING %s)'
		' SELECT sweep_left::pg_catalog.text FROM (SELECT %s FROM sweep_rows EXCEPT SELECT %s FROM done) AS sweep_left LIMIT 1', rows, sweep._table_name(target), names, names, keys, keys,
		(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name) || coalesce(sweep._collate_as(source, u.name), ''), ', ' ORDER BY u.n) FROM pg_catalog.unnest(key) WITH ORDINALITY AS u (name, n)));
END
$$;
COMMENT ON FUNCTION sweep._insert_text(regclass, regclass, text[], text[], text) IS 'the statement that inserts rows of the source of a copy, and returns the key of one that has not come to the target';

CREATE FUNCTION sweep._changes_name(source regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema pg_catalog.text;
	base pg_catalog.text;
BEGIN
	SELECT n.nspname, c.relname INTO schema, base FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source;
	WHILE pg_catalog.octet_length(base) > 45 LOOP
		base := pg_catalog.left(base, -1);
	END LOOP;
	RETURN pg_catalog.format('%I.%I', schema, base || '_sweep_changes');
END
$$;
COMMENT ON FUNCTION sweep._changes_name(regclass) IS 'the table, and the trigger function, of keys of changed rows of a table; a table has one copy with changes at a time';

-- The schema of the table may have been renamed; if the trigger stayed, each write to the source would fail. The table is checked, because any
-- role can create a table of that name, or a job with such args.
CREATE FUNCTION sweep._moved_changes(changes text, role oid) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce((SELECT sweep._table_name(c.oid) FROM pg_catalog.pg_class c WHERE pg_catalog.to_regclass(changes) IS NULL AND c.relname = (pg_catalog.parse_ident(changes))[2]
			AND pg_catalog.obj_description(c.oid, 'pg_class') = 'keys of rows that a job of sweep.create_copy copies anew'
			AND pg_catalog.pg_has_role(role, c.relowner, 'USAGE')
			AND NOT EXISTS (SELECT FROM sweep.job_definition j WHERE j.args ->> 'changes' = sweep._table_name(c.oid) AND pg_catalog.pg_has_role(sweep._role_oid(j.run_as), c.relowner, 'USAGE')) ORDER BY c.oid LIMIT 1), changes);
END
$$;
COMMENT ON FUNCTION sweep._moved_changes(text, oid) IS 'the name of a table of keys of changed rows, also where its schema was renamed';

CREATE FUNCTION sweep._check_logged(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.record;
BEGIN
	SELECT c.oid::pg_catalog.regclass AS name, c.relpersistence = 't' AS is_temporary INTO known FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND c.relpersistence <> 'p'
		AND c.oid = ANY (ARRAY(SELECT t.relid FROM pg_catalog.pg_partition_tree(relation) AS t) || relation) LIMIT 1;
	IF known.is_temporary THEN
		RAISE EXCEPTION '% is a temporary table', known.name USING ERRCODE = 'wrong_object_type', HINT = 'It goes with its session, and rows that it was given would not come again.';
	ELSIF known.name IS NOT NULL THEN
		RAISE EXCEPTION '% is unlogged', known.name USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'A crash would empty it, and rows that it was given before would not come again.',
			HINT = pg_catalog.format('ALTER TABLE %s SET LOGGED; what it was given before a crash is gone already.', known.name);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_logged(regclass) IS 'raises when a crash, or the end of a session, would empty the table, or a partition of it';

CREATE FUNCTION sweep._copy_statements(args jsonb, again boolean) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	source pg_catalog.regclass;
	target pg_catalog.regclass;
	key pg_catalog.record;
	is_settled constant boolean := (args ->> 'settled')::boolean;
	source_name pg_catalog.text;
	in_range pg_catalog.text;
	columns pg_catalog.text[];
	first boolean;
BEGIN
	-- After a switch the copy has another name; the cursor has the remaining work.
	IF args ? 'changes' AND pg_catalog.to_regclass(args ->> 'target') IS NULL AND pg_catalog.to_regclass(args ->> 'changes') IS NULL THEN
		made.prologue := pg_catalog.format('SELECT c.rows, c.next_cursor, c.detail FROM sweep._change_batch(%L, NULL, $2, $1, $5, NULL) AS c', args);
		made.key := 'a copy that was switched';
		made.checked := true;
		made.restarts := false;
		RETURN QUERY SELECT made.* UNION ALL SELECT made.*;
		RETURN;
	END IF;
	source := sweep._find_table('source', args ->> 'source', NULL);
	target := sweep._find_table('target', args ->> 'target', NULL);
	PERFORM sweep._check_logged(target);
	-- Child tables (INHERITS) have keys of their own: their rows with keys before the cursor would be left out.
	PERFORM sweep._check_heirs(source) WHERE NOT args ? 'changes';
	source_name := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = source);
	key := sweep._ordered_key(source, args ->> 'order_by');
	columns := sweep._copy_columns(source, target);
	in_range := sweep._in_range(source, args -> 'range', again);
	PERFORM sweep._check_condition(args ->> 'condition');
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(source, NULL, key.columns, key.nulls, CASE WHEN is_settled
			THEN sweep._key_compare(source, key.columns, '<=', '($2 OPERATOR(pg_catalog.->) ''settled'')') ELSE 'true' END || in_range, first);
		made.counter := 'copied';
		made.work := pg_catalog.format(E'INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s AND (%s\n)%s', sweep._table_name(target),
			sweep._column_list(columns),
			sweep._qualified_list(source_name, columns),
			sweep._source(source, NULL), sweep._range(source, key.columns, first) || in_range, coalesce(args ->> 'condition', 'true'),
			CASE args ->> 'on_conflict' WHEN 'nothing' THEN ' ON CONFLICT DO NOTHING' ELSE '' END);
		made.prologue := sweep._copy_prologue(source, target, key.columns);
		IF is_settled THEN
			made.prologue := pg_catalog.format('SELECT s.rows, s.next_cursor, s.detail FROM sweep._settle(%L, %s, $5, (SELECT %s FROM (SELECT %s FROM %s ORDER BY %s LIMIT 1) AS k)) AS s'
				' WHERE (($2 OPERATOR(pg_catalog.->>) ''run'')::pg_catalog.int8 IS DISTINCT FROM $5)', sweep._table_name(source), sweep._with_ordering(source, target, key.columns), sweep._key_json(source, key.columns, NULL),
				sweep._key_list(source, key.columns),
				sweep._source(source, NULL), sweep._key_order(source, key.columns, key.nulls, true));
		END IF;
		made.ordering := pg_catalog.format('SELECT sweep._check_copied($2, %L), sweep._check_ordering(%2$L, %L, $2, %L), sweep._check_columns(%2$L, %5$L, sweep._copy_columns(%2$L, %6$L))', sweep._copied_tables(source, target),
			sweep._table_name(source), key.columns, 'Drop the job, and create it anew with an empty target.', columns, sweep._table_name(target));
		IF args ? 'changes' THEN
			made.ordering := NULL;
			made.work := sweep._change_work(args, source, target, key.columns, columns, first);
			made.checked := true;
			made.prologue := pg_catalog.format('SELECT c.rows, c.next_cursor, c.detail FROM sweep._change_batch(%L, %L, $2, $1, $5, pg_catalog.current_setting(''search_path'')) AS c', args,
				sweep._change_texts(args, source, target, key.columns, key.nulls, columns));
		END IF;
		-- With another key it is not known which rows were copied.
		made.restarts := NOT is_settled;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._copy_statements(jsonb, boolean) IS 'the statements of a copy';

-- Executed for each partition. It reads few rows of large catalogues, so planning takes longer than execution.
CREATE FUNCTION sweep._range_statements(step text, args jsonb, again boolean, role oid, as_of timestamptz, part text, parts text, path text) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
	CASE step
		WHEN 'retention_step' THEN
			RETURN QUERY SELECT * FROM sweep._retention_statements(args, again, role, as_of, part, parts::pg_catalog.text[]);
		WHEN 'delete_step' THEN
			-- Checked once per run, since the args may have been altered. A stored statement is checked by sweep._stored_parts.
			PERFORM sweep._check_deletion(sweep._role_name(role), sweep._find_table('target', args ->> 'target', NULL), args ->> 'condition', pg_catalog.jsonb_build_object('search_path', path)) WHERE parts IS NULL AND NOT args ? 'statement';
			RETURN QUERY SELECT * FROM sweep._delete_statements(args, again, role, part, parts::pg_catalog.text[]);
		WHEN 'backfill_step' THEN
			RETURN QUERY SELECT * FROM sweep._backfill_statements(args, again);
		WHEN 'copy_step' THEN
			RETURN QUERY SELECT * FROM sweep._copy_statements(args, again);
		WHEN 'update_step' THEN
			RETURN QUERY SELECT * FROM sweep._update_statements(args, again, role, part, parts::pg_catalog.text[]);
	END CASE;
END
$$;
COMMENT ON FUNCTION sweep._range_statements(text, jsonb, boolean, oid, timestamptz, text, text, text) IS
	'the statements of the job of a maker, in its first or a further pass: those for the first batch of the pass, and those for the next batches; path: the search_path of the run';

CREATE FUNCTION sweep.copy_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.copy_step(sweep.batch) IS 'step of the jobs that sweep.create_copy makes';

CREATE FUNCTION sweep._create_copy(caller oid, job sweep.job_definition, source text, target text, condition text, order_by text, on_conflict text, with_changes boolean, parallel int, run_as regrole,
	paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	existed pg_catalog.bool;
	source_table constant pg_catalog.regclass := sweep._find_table('source', source, coalesce(run_as::pg_catalog.oid, caller));
	target_table constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	deferred pg_catalog.text;
	names pg_catalog.text;
BEGIN
	IF with_changes IS NULL THEN
		RAISE EXCEPTION 'with_changes must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	IF on_conflict IS NULL OR on_conflict NOT IN ('error', 'nothing') THEN
		RAISE EXCEPTION 'invalid on_conflict "%"', coalesce(on_conflict, 'NULL') USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "error" or "nothing".';
	END IF;
	IF on_conflict = 'nothing' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = target_table AND i.indisunique AND i.indisvalid) THEN
		RAISE EXCEPTION 'rows of % are never in conflict', target_table USING ERRCODE = 'invalid_parameter_value', HINT = 'It has no unique index. Leave on_conflict out.';
	END IF;
	SELECT c.conname INTO deferred FROM pg_catalog.pg_constraint c WHERE c.contype IN ('p', 'u', 'x') AND c.condeferrable AND (with_changes OR on_conflict = 'nothing')
		AND (c.conrelid = target_table OR c.conrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(target_table) AS t)) ORDER BY c.conname LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'constraint "%" of % is deferrable', deferred, target_table USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'PostgreSQL inserts no rows ON CONFLICT DO NOTHING there.',
			HINT = 'Drop it, and add it again when the job has done its work.';
	END IF;
	IF source_table = target_table OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(source_table)) AS t WHERE t.relid = target_table) THEN
		RAISE EXCEPTION '% cannot be copied to itself', source_table USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another table as the target.';
	END IF;
	IF parallel > 1 AND (with_changes OR job.cursor = 'always') THEN
		RAISE EXCEPTION '% is not possible with parallel => %', CASE WHEN with_changes THEN 'with_changes' ELSE 'cursor "always"' END, parallel USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Ranges are done in any order: there is no key up to which all is copied.',
			HINT = 'Leave parallel out; or leave cursor and with_changes out: the job then copies what is there when it runs.';
	END IF;
	job.cursor := coalesce(job.cursor, CASE WHEN parallel > 1 THEN 'run' ELSE 'always' END);
	job := sweep._begin_maker(caller, sweep._divide(job, parallel), 'copy', source_table, run_as);
	IF job.buckets IS NOT NULL THEN
		job.cursor := sweep._kept_by(job);
	END IF;
	PERFORM sweep._check_table(job.run_as, source_table, '{SELECT}'), sweep._check_table(job.run_as, target_table, '{INSERT}');
	job.args := job.args || pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('source', sweep._table_name(source_table), 'target', sweep._table_name(target_table),
		'condition', condition, 'on_conflict', on_conflict, 'settled', job.cursor = 'always',
		'order_by', sweep._column_list((sweep._ordered_key(source_table, order_by)).columns)));
	IF with_changes THEN
		job.args := job.args || pg_catalog.jsonb_build_object('changes', sweep._changes_name(source_table));
		PERFORM sweep._check_follows(job, source_table, target_table, (sweep._ordered_key(source_table, order_by)).columns);
	END IF;
	PERFORM FROM sweep._copy_statements(job.args, false);
	SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ') INTO names FROM pg_catalog.unnest(sweep._copy_columns(source_table, target_table)) AS c;
	PERFORM sweep._check_fragment(job.run_as, pg_catalog.format(E'INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %3$s WHERE $1 IS NOT NULL AND (%4$s\n)',
		sweep._table_name(target_table), names, sweep._source(source_table, NULL), coalesce(condition, 'true')), job.settings);
	existed := EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = job.name);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._start_maker(job, paused) WHERE NOT existed;
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_copy IS 'implements sweep.create_copy';

CREATE FUNCTION sweep.create_copy(source text, target text, condition text DEFAULT NULL, order_by text DEFAULT NULL, on_conflict text DEFAULT 'error',
	with_changes boolean DEFAULT false, cursor text DEFAULT NULL, name text DEFAULT NULL, schedule text DEFAULT NULL, timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_batches int DEFAULT NULL,
	max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT NULL, settings jsonb DEFAULT NULL,
	lock_key text DEFAULT NULL, lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL, overlap text DEFAULT NULL,
	catch_up text DEFAULT NULL, jitter interval DEFAULT NULL, estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL,
	on_failure jsonb DEFAULT NULL, alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL, parallel int DEFAULT 1, run_as regrole DEFAULT NULL,
	description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_copy IS
	'creates a job that inserts the rows of one table into another one, and in later runs the rows that were added since; starts it unless it has a schedule; returns its name';
--
-- The ranges of partitions that are created ahead of time: a grid of calendar days, weeks, months or years in a time zone, of fixed lengths of
-- time, or of ids. The ranges are numbered: number n begins at the origin and n times "every", and ends where the next one begins.
--
-- Bounds are texts for the type of the key, written such that they mean the same in any session.
--
CREATE TYPE sweep._partition_range AS (
	place       bigint,
	lower       text,
	upper       text,
	suffix      text,
	overlapping text
);
COMMENT ON TYPE sweep._partition_range IS 'a range for which there is no partition';
COMMENT ON COLUMN sweep._partition_range.place IS 'its number; NULL: there is none';
COMMENT ON COLUMN sweep._partition_range.lower IS 'its lower bound';
COMMENT ON COLUMN sweep._partition_range.upper IS 'its upper bound, which is not in it';
COMMENT ON COLUMN sweep._partition_range.suffix IS 'suffix to the name of the table in the name of the partition';
COMMENT ON COLUMN sweep._partition_range.overlapping IS 'names of partitions that overlap it; NULL: none';

CREATE FUNCTION sweep._partition_key(relation regclass, OUT name text, OUT type text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_plain boolean;
BEGIN
	SELECT a.attname, pg_catalog.format_type(a.atttypid, NULL), o.opcdefault AND o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace INTO name, type, is_plain
		FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] AND a.attnum > 0
			JOIN pg_catalog.pg_opclass o ON o.oid = p.partclass[0] WHERE p.partrelid = relation AND p.partstrat = 'r' AND p.partnatts = 1;
	IF is_plain IS NOT TRUE THEN
		RAISE EXCEPTION '% is not partitioned by ranges of one column', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Name a table that was created with PARTITION BY RANGE (column).';
	END IF;
	IF type NOT IN ('timestamp with time zone', 'timestamp without time zone', 'date', 'bigint') THEN
		RAISE EXCEPTION 'column "%" of % is of type %', name, relation, type USING ERRCODE = 'datatype_mismatch',
			HINT = 'Partitions are made for a timestamptz, timestamp, date or bigint.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._partition_key(regclass) IS 'the column by whose ranges a table is partitioned, and its type; raises unless partitions can be made for it';

-- ------------------------------------------------------------------ the grid
CREATE FUNCTION sweep._interval_parts(every interval, OUT months int, OUT days int, OUT seconds bigint) RETURNS record
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	months := extract(year FROM every) * 12 + extract(month FROM every);
	days := extract(day FROM every);
	seconds := extract(epoch FROM every - pg_catalog.make_interval(months => months, days => days));
END
$$;
COMMENT ON FUNCTION sweep._interval_parts(interval) IS 'months, days and seconds of an interval, without fractions of a second';

CREATE FUNCTION sweep._check_every(type text, every text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
AS $$
DECLARE
	width interval;
	hint pg_catalog.text := 'Write a number of ids, for example: 1000000.';
BEGIN
	IF type = 'bigint' THEN
		IF every ~ '^[1-9][0-9]{0,17}$' THEN
			RETURN every;
		END IF;
	ELSE
		hint := 'Write one of years, months, weeks or days' || CASE WHEN type = 'date' THEN '' ELSE ', hours, minutes or seconds' END || ', for example: 1 month. It is at most 1000 years.';
		BEGIN
			width := every::interval;
		EXCEPTION WHEN data_exception THEN
			width := NULL;
		END;
		-- A number without a unit, which would mean seconds, is refused.
		IF every ~ '[[:alpha:]:]' AND width > interval '0' AND width <= interval '1000 years' AND (SELECT width = pg_catalog.make_interval(months => p.months, days => p.days, secs => p.seconds)
				AND ((p.months > 0)::int + (p.days > 0)::int + (p.seconds > 0)::int) = 1 AND least(p.months, p.days, p.seconds) = 0 AND (p.seconds = 0 OR type <> 'date') FROM sweep._interval_parts(width) AS p) THEN
			RETURN width::pg_catalog.text;
		END IF;
	END IF;
	RAISE EXCEPTION 'invalid every "%"', every USING ERRCODE = 'invalid_parameter_value', HINT = hint;
END
$$;
COMMENT ON FUNCTION sweep._check_every(text, text) IS 'the width of the partitions, as it is stored; raises unless it is one unit of time, or a number of ids for a bigint';

-- By default weeks begin on Mondays, and all other ranges with the calendar unit.
CREATE FUNCTION sweep._check_origin(type text, origin text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	moment timestamp;
BEGIN
	IF type = 'bigint' THEN
		IF coalesce(origin, '0') ~ '^-?[0-9]{1,18}$' THEN
			RETURN coalesce(origin, '0')::bigint::pg_catalog.text;
		END IF;
	ELSE
		BEGIN
			moment := coalesce(origin, '2001-01-01')::timestamp;
		EXCEPTION WHEN data_exception THEN
			moment := NULL;
		END;
		IF moment BETWEEN timestamp '1900-01-01' AND timestamp '2200-01-01' AND (type <> 'date' OR moment = pg_catalog.date_trunc('day', moment)) AND moment = pg_catalog.date_trunc('second', moment) THEN
			RETURN moment::pg_catalog.text;
		END IF;
	END IF;
	RAISE EXCEPTION 'invalid origin "%"', origin USING ERRCODE = 'invalid_parameter_value',
		HINT = CASE type WHEN 'bigint' THEN 'Write an id with which a partition begins, for example: 1.' ELSE 'Write a moment at which a partition begins, without a zone, for example: 2026-01-04.' END;
END
$$;
COMMENT ON FUNCTION sweep._check_origin(text, text) IS 'a bound of the grid, as it is stored; raises for an invalid one';

-- Days, months and years are those of the time zone. Hours, minutes and seconds are elapsed time, since a clock may show an hour twice.
CREATE FUNCTION sweep._grid_bound(type text, args jsonb, place bigint, OUT bound text, OUT suffix text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	id numeric;
	width pg_catalog.record;
	moment timestamp;
BEGIN
	IF type = 'bigint' THEN
		id := (args ->> 'origin')::numeric + (args ->> 'every')::numeric * place;
		IF id BETWEEN -9223372036854775808 AND 9223372036854775807 THEN
			bound := id::pg_catalog.text;
		END IF;
		suffix := bound;
		RETURN;
	END IF;
	width := sweep._interval_parts((args ->> 'every')::interval);
	moment := (args ->> 'origin')::timestamp;
	IF width.seconds > 0 AND type = 'timestamp with time zone' THEN
		moment := pg_catalog.timezone('UTC', pg_catalog.timezone(args ->> 'timezone', moment));
	END IF;
	moment := moment + pg_catalog.make_interval(months => (width.months * place)::int, days => (width.days * place)::int, secs => (width.seconds * place)::double precision);
	suffix := pg_catalog.to_char(moment, CASE WHEN width.seconds > 0 THEN CASE WHEN width.seconds % 60 = 0 THEN 'YYYYMMDD_HH24MI' ELSE 'YYYYMMDD_HH24MISS' END
		WHEN width.months > 0 AND width.months % 12 = 0 AND moment = pg_catalog.date_trunc('year', moment) THEN 'YYYY'
		WHEN width.months > 0 AND moment = pg_catalog.date_trunc('month', moment) THEN 'YYYYMM' ELSE 'YYYYMMDD' END);
	bound := CASE WHEN type = 'date' THEN moment::pg_catalog.date::pg_catalog.text WHEN type = 'timestamp without time zone' THEN moment::pg_catalog.text
		ELSE pg_catalog.timezone(CASE WHEN width.seconds > 0 THEN 'UTC' ELSE args ->> 'timezone' END, moment)::pg_catalog.text END;
END
$$;
COMMENT ON FUNCTION sweep._grid_bound(text, jsonb, bigint) IS 'the lower bound of the range of that number, NULL: outside of the type, and the suffix of its partition''s name';

CREATE FUNCTION sweep._grid_place(type text, args jsonb, value text) RETURNS bigint
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	width pg_catalog.record;
	moment timestamp;
	origin timestamp;
	place bigint;
BEGIN
	IF type = 'bigint' THEN
		RETURN pg_catalog.floor((value::numeric - (args ->> 'origin')::numeric) / (args ->> 'every')::numeric);
	END IF;
	width := sweep._interval_parts((args ->> 'every')::interval);
	origin := args ->> 'origin';
	IF type <> 'timestamp with time zone' THEN
		moment := value;
	ELSIF width.seconds = 0 THEN
		moment := pg_catalog.timezone(args ->> 'timezone', value::pg_catalog.timestamptz);
	ELSE
		moment := pg_catalog.timezone('UTC', value::pg_catalog.timestamptz);
		origin := pg_catalog.timezone('UTC', pg_catalog.timezone(args ->> 'timezone', origin));
	END IF;
	IF width.months = 0 THEN
		place := pg_catalog.floor(extract(epoch FROM moment - origin) / (width.days * 86400::bigint + width.seconds));
	ELSE
		place := pg_catalog.floor(((extract(year FROM moment) - extract(year FROM origin)) * 12 + extract(month FROM moment) - extract(month FROM origin)) / width.months);
		IF origin + pg_catalog.make_interval(months => (width.months * place)::int) > moment THEN
			place := place - 1;
		END IF;
	END IF;
	-- If midnight comes twice, the day begins with the second one; the hour before belongs to the day before.
	RETURN CASE WHEN type = 'timestamp with time zone' AND value::pg_catalog.timestamptz < (sweep._grid_bound(type, args, place)).bound::pg_catalog.timestamptz THEN place - 1 ELSE place END;
END
$$;
COMMENT ON FUNCTION sweep._grid_place(text, jsonb, text) IS 'the number of the range that contains a value';

-- ------------------------------------------------------------------ what is there, and what is not
-- For ids, the present is the greatest id. It is searched from the newest partition backwards, and in the default partition.
CREATE FUNCTION sweep._present(relation regclass, key text, type text, args jsonb, as_of timestamptz) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	part pg_catalog.record;
	found bigint;
	newest bigint;
BEGIN
	IF type <> 'bigint' THEN
		RETURN CASE type WHEN 'timestamp with time zone' THEN as_of::pg_catalog.text ELSE pg_catalog.timezone(args ->> 'timezone', as_of)::pg_catalog.text END;
	END IF;
	FOR part IN SELECT b.part, sweep._table_name(b.part) AS name, b.is_default FROM sweep._bounds(relation, NULL) AS b ORDER BY b.is_default DESC, b.upper::bigint DESC NULLS FIRST LOOP
		PERFORM sweep._check_visible(part.part);
		EXECUTE pg_catalog.format('SELECT pg_catalog.max(sweep_part.%I) FROM %s AS sweep_part', key, part.name) INTO found;
		newest := greatest(newest, found);
		EXIT WHEN found IS NOT NULL AND NOT part.is_default;
	END LOOP;
	RETURN coalesce(newest, (args ->> 'origin')::bigint)::pg_catalog.text;
END
$$;
COMMENT ON FUNCTION sweep._present(regclass, text, text, jsonb, timestamptz) IS 'the value of the key that new rows have: the time, or the greatest id';

-- A range that is covered by partitions of any width needs no partition.
CREATE FUNCTION sweep._missing_ranges(relation regclass, type text, args jsonb, first bigint, last bigint, many int) RETURNS SETOF sweep._partition_range
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	ranges constant pg_catalog.text := sweep._range_type(type);
BEGIN
	RETURN QUERY EXECUTE pg_catalog.format('WITH have AS MATERIALIZED (SELECT b.part, pg_catalog.%1$s(b.lower::%3$s, b.upper::%3$s) AS range FROM sweep._bounds($1, NULL) AS b WHERE NOT b.is_default),'
		' missing AS (SELECT g.n, l.bound AS lower, u.bound AS upper, l.suffix, r.range FROM (SELECT pg_catalog.generate_series($2, $3) AS n ORDER BY 1) AS g'
		' CROSS JOIN LATERAL sweep._grid_bound($4, $5, g.n) AS l CROSS JOIN LATERAL sweep._grid_bound($4, $5, g.n + 1) AS u CROSS JOIN LATERAL pg_catalog.%1$s(l.bound::%3$s, u.bound::%3$s) AS r (range)'
		' WHERE l.bound IS NOT NULL AND u.bound IS NOT NULL AND NOT r.range <@ coalesce((SELECT pg_catalog.range_agg(h.range) FROM have h), ''{}''::pg_catalog.%2$s) LIMIT $6)'
		' SELECT m.n, m.lower, m.upper, m.suffix, (SELECT pg_catalog.string_agg(h.part::pg_catalog.text, '', '' ORDER BY h.range) FROM have h WHERE h.range && m.range) FROM missing m ORDER BY m.n',
		ranges, pg_catalog.replace(ranges, 'range', 'multirange'), type) USING relation, first, last, type, args, many;
END
$$;
COMMENT ON FUNCTION sweep._missing_ranges(regclass, text, jsonb, bigint, bigint, int) IS 'the first of these ranges that partitions do not cover, up to that many, with the names of partitions that overlap them';

CREATE FUNCTION sweep._missing_range(relation regclass, type text, args jsonb, first bigint, last bigint) RETURNS sweep._partition_range
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found sweep._partition_range;
BEGIN
	SELECT * INTO found FROM sweep._missing_ranges(relation, type, args, first, last, 1);
	RETURN found;
END
$$;
COMMENT ON FUNCTION sweep._missing_range(regclass, text, jsonb, bigint, bigint) IS 'the first of the missing ranges; place is NULL when there is none';

CREATE FUNCTION sweep._check_range(relation regclass, missing sweep._partition_range) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name constant pg_catalog.text := sweep._partition_name(relation, missing.suffix);
BEGIN
	IF missing.overlapping IS NOT NULL THEN
		RAISE EXCEPTION 'partition % overlaps the range from % to %', missing.overlapping, missing.lower, missing.upper USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'A partition can be made only for a range of which no other partition has a part.',
			HINT = 'Make partitions for the rest of this range, drop the one that is named, or write another "every" or "origin".';
	END IF;
	IF pg_catalog.to_regclass(name) IS NOT NULL THEN
		RAISE EXCEPTION 'the name % is taken', name USING ERRCODE = 'duplicate_table',
			DETAIL = pg_catalog.format('The partition from %s to %s would have this name.', missing.lower, missing.upper), HINT = 'Rename or drop the object with this name.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_range(regclass, sweep._partition_range) IS 'raises unless a partition can be made for the range';

CREATE FUNCTION sweep._range_type(type text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE type WHEN 'bigint' THEN 'int8range' WHEN 'date' THEN 'daterange' WHEN 'timestamp without time zone' THEN 'tsrange' ELSE 'tstzrange' END;
END
$$;
COMMENT ON FUNCTION sweep._range_type(text) IS 'the type of the ranges of a key';

-- Rows that were inserted while no job was running are in the default partition. If they come after the last partition before the present,
-- partitions are created for them.
CREATE FUNCTION sweep._left_behind(relation regclass, key text, type text, args jsonb, first bigint) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	rest constant pg_catalog.text := (SELECT sweep._table_name(p.partdefid::pg_catalog.regclass) FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = relation AND p.partdefid <> 0);
	present constant pg_catalog.text := (sweep._grid_bound(type, args, first)).bound;
	newest pg_catalog.text;
	oldest pg_catalog.text;
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.max(b.upper::%1$s)::pg_catalog.text FROM sweep._bounds($1, NULL) AS b WHERE b.upper::%1$s <= $2::%1$s', type) INTO newest USING relation, present;
	IF rest IS NULL OR newest IS NULL THEN
		RETURN NULL;
	END IF;
	EXECUTE pg_catalog.format('SELECT pg_catalog.min(r.%1$I)::pg_catalog.text FROM %2$s AS r WHERE r.%1$I OPERATOR(pg_catalog.>=) %3$L::%5$s AND r.%1$I OPERATOR(pg_catalog.<) %4$L::%5$s', key, rest, newest, present, type) INTO oldest;
	RETURN (SELECT p.n FROM sweep._grid_place(type, args, oldest) AS p (n) CROSS JOIN LATERAL sweep._missing_range(relation, type, args, p.n, p.n) AS m WHERE m.overlapping IS NULL);
END
$$;
COMMENT ON FUNCTION sweep._left_behind(regclass, text, text, jsonb, bigint) IS 'the number of the oldest range before "first" of which the default partition has rows, after the last partition before that; NULL: there is none';
--
-- Creates a partition: as a table first, which is then attached, together with the rows that the default partition has for it.
--
-- ATTACH alone allows inserts meanwhile; those of rows that the default partition must not have any more fail. Therefore the table is
-- locked, without its partitions, so that inserts wait. Rows are moved in the same transaction, and then readers wait, too: one that has
-- read the list of partitions already, and waits for the default partition, would find the rows in neither. Everything is executed as the
-- role of the job, which has the rights of the owners.
--
CREATE FUNCTION sweep._partition_name(relation regclass, suffix text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%I.%I', n.nspname, sweep._fitting_name(c.relname, '_' || suffix)) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._partition_name(regclass, text) IS 'the name of a partition, with its schema, quoted';

-- ------------------------------------------------------------------ the table
-- A partitioned table has no storage parameters, so those of the newest partition are used. Its tablespace and access method are the defaults
-- for partitions.
CREATE FUNCTION sweep._create_like(parent regclass, model regclass, name text) RETURNS regclass
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	options pg_catalog.text;
	made pg_catalog.regclass;
	line pg_catalog.text;
BEGIN
	SELECT pg_catalog.string_agg(pg_catalog.format('%s%I=%L', o.prefix, pg_catalog.split_part(u.option, '=', 1), pg_catalog.substr(u.option, pg_catalog.strpos(u.option, '=') + 1)), ', ') INTO options
		FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid CROSS JOIN LATERAL (VALUES ('', c.reloptions), ('toast.', t.reloptions)) AS o (prefix, options)
			CROSS JOIN LATERAL pg_catalog.unnest(o.options) AS u (option) WHERE c.oid = model AND c.relkind = 'r';
	EXECUTE (SELECT pg_catalog.format('CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING IDENTITY)%s%s%s', name, sweep._table_name(parent), ' USING ' || pg_catalog.quote_ident(m.amname),
			' WITH (' || options || ')', ' TABLESPACE ' || pg_catalog.quote_ident(s.spcname))
		FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam LEFT JOIN pg_catalog.pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = parent);
	made := name::pg_catalog.regclass;
	FOR line IN SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s FROM %s', name, p.grantee) FROM sweep._privileges(made) AS p LOOP
		EXECUTE line;
	END LOOP;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._create_like(regclass, regclass, text) IS 'creates a table with the definition of a partitioned table and the storage parameters of the model';

-- Indexes, checks, defaults and their comments were copied before; ATTACH adds triggers and foreign keys.
CREATE FUNCTION sweep._equip_like(source regclass, made regclass, kinds text[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT u.line FROM sweep._stays_settings(source, made, sweep._table_name(made)) WITH ORDINALITY AS s (kind, name, lock, lines, after, n)
			CROSS JOIN LATERAL pg_catalog.unnest(s.lines) WITH ORDINALITY AS u (line, n) WHERE s.kind = ANY (kinds) ORDER BY s.n, u.n LOOP
		EXECUTE line;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._equip_like(regclass, regclass, text[]) IS 'copies properties of these kinds from a table to another: owner, privilege, comment, replica identity, policy';

-- Roles get the same privileges on the partition as on the table, and the table's policies are copied. A replica identity by an index
-- needs the attached index.
CREATE FUNCTION sweep._finish_partition(parent regclass, made regclass) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	identity_index pg_catalog.name;
BEGIN
	SELECT n.relname INTO identity_index FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisreplident
		JOIN pg_catalog.pg_inherits h ON h.inhparent = i.indexrelid JOIN pg_catalog.pg_index p ON p.indexrelid = h.inhrelid AND p.indrelid = made JOIN pg_catalog.pg_class n ON n.oid = p.indexrelid
		WHERE c.oid = parent AND c.relreplident = 'i';
	IF FOUND THEN
		EXECUTE pg_catalog.format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', sweep._table_name(made), identity_index);
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = parent AND (c.relrowsecurity OR c.relforcerowsecurity)) OR EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = parent) THEN
		PERFORM sweep._equip_like(parent, made, '{policy}');
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._finish_partition(regclass, regclass) IS 'gives a partition the properties that it can only get after ATTACH, or when its rows are there';

-- ------------------------------------------------------------------ rows of the default partition
CREATE FUNCTION sweep._default_part(relation regclass) RETURNS regclass
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rest pg_catalog.record;
BEGIN
	SELECT c.oid::pg_catalog.regclass AS part, c.relowner, c.relrowsecurity AND c.relforcerowsecurity AND NOT r.rolbypassrls AND NOT r.rolsuper AS hides, r.oid AS role INTO rest
		FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_class c ON c.oid = p.partdefid JOIN pg_catalog.pg_roles r ON r.rolname = current_user WHERE p.partrelid = relation;
	IF rest.part IS NOT NULL AND NOT sweep._owns(rest.role, rest.relowner) THEN
		RAISE EXCEPTION 'role "%" does not own default partition %', current_user, rest.part USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('ALTER TABLE %s OWNER TO %I;', rest.part, (SELECT pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c WHERE c.oid = relation));
	END IF;
	IF rest.hides THEN
		RAISE EXCEPTION 'policies of default partition % may hide rows from role "%"', rest.part, current_user USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = pg_catalog.format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY;', rest.part);
	END IF;
	RETURN rest.part;
END
$$;
COMMENT ON FUNCTION sweep._default_part(regclass) IS 'the default partition of a table; raises unless its rows can be moved; NULL: there is none';

CREATE FUNCTION sweep._lock_default(parent regclass, rest regclass, mode text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._lock_table(parent, false, mode), sweep._lock_table(rest, true, 'ACCESS EXCLUSIVE');
	-- The partition may have been detached before it was locked; then its rows stay there.
	IF sweep._default_part(parent) IS DISTINCT FROM rest THEN
		RAISE EXCEPTION '% has another default partition since', parent USING ERRCODE = 'lock_not_available';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._lock_default(regclass, regclass, text) IS 'locks a table in that mode, and its default partition with the partitions of that; raises lock_not_available when another table is the default partition by now';

-- Moving a row is not a deletion and an insertion for users, so their triggers are disabled.
CREATE FUNCTION sweep._switch_triggers(triggers jsonb, is_on boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT pg_catalog.format('ALTER TABLE %s %s TRIGGER %I', t.relation, CASE WHEN NOT is_on THEN 'DISABLE' WHEN t.always THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END, t.name)
			FROM pg_catalog.jsonb_to_recordset(triggers) AS t (relation pg_catalog.text, name pg_catalog.text, always boolean) LOOP
		EXECUTE line;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._switch_triggers(jsonb, boolean) IS 'disables triggers, or enables them as they were';

CREATE FUNCTION sweep._firing_triggers(relation regclass) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('relation', sweep._table_name(relation), 'name', t.tgname, 'always', t.tgenabled = 'A')), '[]')
		FROM pg_catalog.pg_trigger t WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A'));
END
$$;
COMMENT ON FUNCTION sweep._firing_triggers(regclass) IS 'the enabled user triggers of a table';

-- The rows are inserted after ATTACH: then the partition is published like the others, and subscribers see the same as for an UPDATE that moves
-- a row. Until then the rows are in an array; its type comes from the first argument, which is NULL.
CREATE FUNCTION sweep._attach_with_rows(type_of_rows anyarray, parent regclass, rest regclass, made regclass, bounds text, in_range text, size int, path text) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	taken _attach_with_rows.type_of_rows%TYPE;
	removed bigint;
	triggers pg_catalog.jsonb := sweep._firing_triggers(rest);
	names constant pg_catalog.text := (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = parent AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '');
BEGIN
	EXECUTE pg_catalog.format('SELECT ARRAY(SELECT sweep_row FROM ONLY %s AS sweep_row WHERE %s LIMIT %s)', sweep._table_name(rest), in_range, size + 1) INTO taken;
	IF pg_catalog.cardinality(taken) > size THEN
		RAISE EXCEPTION 'rows of the range came while % was being locked', parent USING ERRCODE = 'lock_not_available';
	END IF;
	IF pg_catalog.cardinality(taken) = 0 THEN
		EXECUTE bounds;
		RETURN 0;
	END IF;
	PERFORM sweep._switch_triggers(triggers, false);
	EXECUTE pg_catalog.format('DELETE FROM ONLY %s AS sweep_row WHERE %s', sweep._table_name(rest), in_range);
	GET DIAGNOSTICS removed = ROW_COUNT;
	IF removed <> pg_catalog.cardinality(taken) THEN
		RAISE EXCEPTION '% of % rows could be deleted from %', removed, pg_catalog.cardinality(taken), rest USING ERRCODE = 'triggered_data_change_violation', HINT = 'Look for a rule or policy of the table.';
	END IF;
	EXECUTE bounds;
	-- ATTACH has added triggers to the partition.
	triggers := triggers || sweep._firing_triggers(made);
	PERFORM sweep._switch_triggers(sweep._firing_triggers(made), false);
	-- Checks, generated columns and index expressions are executed with the search_path of the run.
	PERFORM pg_catalog.set_config('search_path', path, true);
	EXECUTE pg_catalog.format('INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM pg_catalog.unnest($1) AS sweep_row', sweep._table_name(made), names) USING taken;
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	-- A table with pending checks of foreign keys cannot be altered.
	SET CONSTRAINTS ALL IMMEDIATE;
	PERFORM sweep._switch_triggers(triggers, true);
	RETURN removed;
END
$$;
COMMENT ON FUNCTION sweep._attach_with_rows(anyarray, regclass, regclass, regclass, text, text, int, text) IS 'attaches a partition, and moves the rows of the default partition that are for it; the table is locked';

-- ------------------------------------------------------------------ a default partition that becomes another one
CREATE FUNCTION sweep._default_extent(rest regclass, key text, OUT lowest text, OUT highest text, OUT is_ranged boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.min(r.%1$I)::pg_catalog.text, pg_catalog.max(r.%1$I)::pg_catalog.text, NOT EXISTS (SELECT FROM %2$s AS r WHERE r.%1$I IS NULL) FROM %2$s AS r', key, sweep._table_name(rest))
		INTO lowest, highest, is_ranged;
	is_ranged := is_ranged AND lowest <> '-infinity' AND highest <> 'infinity';
END
$$;
COMMENT ON FUNCTION sweep._default_extent(regclass, text) IS 'the smallest and the greatest key of a default partition, and whether all of its rows have a key that is not infinite';

CREATE FUNCTION sweep._exchange_default(parent regclass, rest regclass, type text, args jsonb, first bigint, last bigint) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rest_name constant pg_catalog.text := sweep._table_name(rest);
	parent_name constant pg_catalog.text := sweep._table_name(parent);
	grid constant pg_catalog.record := sweep._grid_bound(type, args, first);
	name constant pg_catalog.text := sweep._partition_name(parent, grid.suffix);
	made pg_catalog.regclass;
BEGIN
	PERFORM sweep._lock_default(parent, rest, 'ACCESS EXCLUSIVE');
	EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', parent_name, rest_name);
	EXECUTE pg_catalog.format('ALTER TABLE %s RENAME TO %s', rest_name, pg_catalog.quote_ident((pg_catalog.parse_ident(name))[2]));
	BEGIN
		EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', parent_name, sweep._table_name(rest), grid.bound, (sweep._grid_bound(type, args, last + 1)).bound);
	EXCEPTION WHEN check_violation THEN
		RAISE EXCEPTION 'rows of another range came while % was being locked', parent USING ERRCODE = 'lock_not_available';
	END;
	made := sweep._create_like(parent, rest, rest_name);
	PERFORM sweep._equip_like(rest, made, '{owner,privilege,comment,replica identity,policy}');
	EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s DEFAULT', parent_name, rest_name);
	RETURN rest::pg_catalog.text;
END
$$;
COMMENT ON FUNCTION sweep._exchange_default(regclass, regclass, text, jsonb, bigint, bigint) IS 'makes the default partition the partition of the ranges of its rows, and an empty table the default partition; returns its new name';

-- ------------------------------------------------------------------ one range
CREATE FUNCTION sweep._check_default(parent regclass, rest regclass, in_range text, size int, OUT rows bigint, OUT is_large boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
	widths constant pg_catalog.text := (SELECT pg_catalog.string_agg(pg_catalog.format('coalesce(pg_catalog.pg_column_size(sweep_row.%I)::bigint, 0)', a.attname), ' + ') FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = rest AND a.attnum > 0 AND NOT a.attisdropped AND a.attlen = -1);
	bytes bigint;
BEGIN
	rows := 0;
	IF rest IS NULL THEN
		RETURN;
	END IF;
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*), pg_catalog.sum(c.bytes) FROM (SELECT %s AS bytes FROM %s AS sweep_row WHERE %s LIMIT %s) AS c',
		coalesce(widths, '0'), sweep._table_name(rest), in_range, size + 1) INTO rows, bytes;
	-- Rows are in memory while they are moved, so their size counts, too.
	IF bytes > 256 * 1024 * 1024 THEN
		rows := size + 1;
	END IF;
	-- PostgreSQL scans the default partition when another one is attached, and inserts wait meanwhile.
	is_large := pg_catalog.pg_relation_size(rest) > 256 * 1024 * 1024;
	IF rows > 0 AND (SELECT c.relkind <> 'r' OR c.relhasrules FROM pg_catalog.pg_class c WHERE c.oid = rest) THEN
		RAISE EXCEPTION 'rows of default partition % cannot be moved', rest USING ERRCODE = 'wrong_object_type', DETAIL = 'It is a partitioned or foreign table, or has rules.', HINT = 'Move or delete its rows that are for the new partition.';
	END IF;
	-- Foreign keys may also refer to the default partition itself.
	SELECT r.name, r.child INTO foreign_key FROM (VALUES (1, parent), (2, rest)) AS t (n, relation) CROSS JOIN LATERAL sweep._referencing(t.relation, '', '') AS r ORDER BY t.n LIMIT 1;
	IF (rows > 0 OR is_large) AND FOUND THEN
		RAISE EXCEPTION 'rows of default partition % cannot be moved', rest USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = pg_catalog.format('Foreign key "%s" of %s refers to them: a row that is taken out of a partition is deleted there, or refused.', foreign_key.name, foreign_key.child),
			HINT = 'Drop the foreign key, run the job, and add it again; or delete the rows.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_default(regclass, regclass, text, int) IS 'how many rows of a range the default partition has, up to size + 1, and whether it is too large to be scanned quickly; raises when the rows cannot be moved';

CREATE FUNCTION sweep._make_of_default(parent regclass, rest regclass, key text, type text, args jsonb) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	extent constant pg_catalog.record := sweep._default_extent(rest, key);
	first bigint;
	last bigint;
	is_split boolean;
BEGIN
	IF extent.is_ranged IS NOT TRUE THEN
		RETURN NULL;
	END IF;
	first := sweep._grid_place(type, args, extent.lowest);
	last := sweep._grid_place(type, args, extent.highest);
	EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM sweep._bounds($1, NULL) AS b'
		' WHERE NOT b.is_default AND pg_catalog.%1$s(b.lower::%2$s, b.upper::%2$s) && pg_catalog.%1$s($2::%2$s, $3::%2$s))', sweep._range_type(type), type)
		INTO is_split USING parent, (sweep._grid_bound(type, args, first)).bound, (sweep._grid_bound(type, args, last + 1)).bound;
	RETURN CASE WHEN NOT is_split THEN sweep._exchange_default(parent, rest, type, args, first, last) END;
END
$$;
COMMENT ON FUNCTION sweep._make_of_default(regclass, regclass, text, text, jsonb) IS
	'makes the default partition the partition of all ranges of its rows; NULL: there are partitions between its rows';

-- It is not known how a new partition would have to be divided: the newest one may be a special case.
CREATE FUNCTION sweep._newest_part(parent regclass, type text) RETURNS regclass
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	newest pg_catalog.record;
BEGIN
	EXECUTE pg_catalog.format('SELECT b.part, c.relkind FROM sweep._bounds($1, NULL) AS b JOIN pg_catalog.pg_class c ON c.oid = b.part WHERE NOT b.is_default ORDER BY b.lower::%s DESC NULLS LAST LIMIT 1', type) INTO newest USING parent;
	IF newest.relkind = 'p' THEN
		RAISE EXCEPTION 'partition % of % is partitioned itself', newest.part, parent USING ERRCODE = 'wrong_object_type',
			DETAIL = 'The next partitions would be ordinary tables.', HINT = 'Make the partitions of this table yourself, or create a job for those of its partition.';
	END IF;
	RETURN CASE newest.relkind WHEN 'r' THEN newest.part END;
END
$$;
COMMENT ON FUNCTION sweep._newest_part(regclass, text) IS 'the newest partition, NULL if it is no ordinary table or there is none; raises when it is partitioned itself';

-- Several at a time, because all sessions must read the list of partitions again whenever it has changed. Sessions wait during ATTACH; the
-- detail says for how long.
CREATE FUNCTION sweep._make_partitions(parent regclass, key text, type text, args jsonb, ranges sweep._partition_range[], model regclass, size int, path text) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	rest constant pg_catalog.regclass := sweep._default_part(parent);
	missing sweep._partition_range;
	name pg_catalog.text;
	conditions pg_catalog.text[] := '{}';
	condition pg_catalog.text;
	found pg_catalog.record;
	exchanged pg_catalog.text;
	made pg_catalog.regclass[] := '{}';
	rows bigint := 0;
	moved bigint := 0;
	moved_now bigint := 0;
	locked_at pg_catalog.timestamptz;
BEGIN
	-- If the cursor was lost, tables that were made to empty the default partition may have names that are needed now.
	PERFORM sweep._drop_emptying(n.copy, n.changes) FROM sweep._emptying_names(rest) AS n WHERE rest IS NOT NULL;
	FOREACH missing IN ARRAY ranges LOOP
		name := sweep._partition_name(parent, missing.suffix);
		EXIT WHEN made <> '{}' AND (missing.overlapping IS NOT NULL OR pg_catalog.to_regclass(name) IS NOT NULL);
		PERFORM sweep._check_range(parent, missing);
		condition := pg_catalog.format('sweep_row.%1$I OPERATOR(pg_catalog.>=) %2$L::%4$s AND sweep_row.%1$I OPERATOR(pg_catalog.<) %3$L::%4$s', key, missing.lower, missing.upper, type);
		found := sweep._check_default(parent, rest, condition, size);
		EXIT WHEN made <> '{}' AND (rows + found.rows > size OR found.is_large);
		IF found.rows > size AND NOT found.is_large THEN
			exchanged := sweep._make_of_default(parent, rest, key, type, args);
		END IF;
		IF exchanged IS NOT NULL THEN
			RETURN pg_catalog.jsonb_build_object('exchanged', pg_catalog.jsonb_build_array(exchanged));
		ELSIF found.rows > size OR found.is_large THEN
			PERFORM sweep._begin_emptying(parent, rest, key, type, args, size, missing.place);
			RETURN NULL;
		END IF;
		rows := rows + found.rows;
		made := made || sweep._create_like(parent, model, name);
		conditions := conditions || condition;
		PERFORM sweep._equip_like(parent, name::pg_catalog.regclass, '{owner,privilege,comment,replica identity}');
	END LOOP;
	IF rest IS NOT NULL THEN
		PERFORM sweep._lock_default(parent, rest, CASE WHEN rows > 0 THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
	END IF;
	locked_at := pg_catalog.clock_timestamp();
	FOR n IN 1 .. pg_catalog.cardinality(made) LOOP
		condition := pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', sweep._table_name(parent), sweep._table_name(made[n]), (ranges[n]).lower, (ranges[n]).upper);
		IF rest IS NULL THEN
			EXECUTE condition;
		ELSE
			EXECUTE pg_catalog.format('SELECT sweep._attach_with_rows(NULL::%s[], $1, $2, $3, $4, $5, $6, $7)', sweep._table_name(rest)) INTO moved_now
				USING parent, rest, made[n], condition, conditions[n], CASE WHEN rows > 0 THEN size ELSE 0 END, path;
		END IF;
		moved := moved + moved_now;
		PERFORM sweep._finish_partition(parent, made[n]);
	END LOOP;
	RETURN pg_catalog.jsonb_build_object('made', pg_catalog.to_jsonb(made), 'took', extract(epoch FROM pg_catalog.clock_timestamp() - locked_at))
		|| CASE WHEN moved > 0 THEN pg_catalog.jsonb_build_object('moved', moved) ELSE '{}' END;
END
$$;
COMMENT ON FUNCTION sweep._make_partitions(regclass, text, text, jsonb, sweep._partition_range[], regclass, int, text) IS
	'creates and attaches partitions for the first of these ranges, with their rows from the default partition; returns the detail; NULL: the default partition must be emptied first';
--
-- Empties a default partition that has more rows than can be moved in one transaction, by means of a copy.
--
-- The copy is a table with the same partition key, whose partitions are those that are missing in the table. Batches fill it in the order of an
-- index, and the trigger of a copy with changes records changes made meanwhile. In one transaction with an exclusive lock on the table, the last
-- changes are copied, the default partition is truncated, and the partitions of the copy are attached. PostgreSQL does not scan them: each has a
-- CHECK constraint with its bounds. The default partition stays the same table, with all objects that refer to it.
--
-- A transaction whose snapshot is older than the copied rows would find them in neither table. The exchange therefore waits for the
-- end of all transactions that were in progress when the last row was copied.
--
-- The cursor is kept from run to run. If it is lost, the tables made before are dropped, and everything begins again.
--
CREATE FUNCTION sweep._is_emptying(copy text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.obj_description(pg_catalog.to_regclass(copy), 'pg_class') IS NOT DISTINCT FROM 'rows of a default partition, for a job of sweep.create_partitions' AND pg_catalog.to_regclass(copy) IS NOT NULL;
END
$$;
COMMENT ON FUNCTION sweep._is_emptying(text) IS 'whether the table exists and has the comment of a copy for emptying a default partition, by which it is told from a table of a user';

CREATE FUNCTION sweep._emptying_names(rest regclass, OUT copy text, OUT changes text, OUT is_there boolean) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.format('%I.%I', n.nspname, sweep._fitting_name(c.relname, '_sweep_copy')) INTO copy FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = rest;
	changes := sweep._changes_name(rest);
	is_there := sweep._is_emptying(copy);
END
$$;
COMMENT ON FUNCTION sweep._emptying_names(regclass) IS 'the names of the tables for emptying a default partition, and whether the copy exists';

-- The trigger is dropped wherever it is: the table may have been renamed, or may not be the default partition any more.
CREATE FUNCTION sweep._drop_emptying(copy text, changes text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	IF NOT sweep._is_emptying(copy) THEN
		RETURN;
	END IF;
	IF pg_catalog.to_regclass(changes) IS NOT NULL THEN
		FOR line IN SELECT pg_catalog.format('DROP TRIGGER %I ON %s', t.tgname, sweep._table_name(t.tgrelid::pg_catalog.regclass)) FROM pg_catalog.pg_trigger t WHERE t.tgfoid = pg_catalog.to_regprocedure(changes || '()') LOOP
			EXECUTE line;
		END LOOP;
		EXECUTE pg_catalog.format('DROP FUNCTION IF EXISTS %s()', changes);
		EXECUTE pg_catalog.format('DROP TABLE %s', changes);
	END IF;
	EXECUTE pg_catalog.format('DROP TABLE %s', copy);
END
$$;
COMMENT ON FUNCTION sweep._drop_emptying(text, text) IS 'drops the tables and triggers that were made to empty a default partition, if there are any';

-- ------------------------------------------------------------------ whether it can be done
-- A row is identified by the key: for a change all rows with its key are copied again. Without a unique index, too many rows may
-- share a date.
CREATE FUNCTION sweep._emptying_key(parent regclass, name text, type text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k CROSS JOIN LATERAL sweep._is_unique(parent, k.columns) AS u (is_unique)
		WHERE i.indrelid = parent AND k.columns[1] NOT LIKE '(%' AND (u.is_unique OR k.columns[1] = name AND type <> 'date')
		ORDER BY u.is_unique DESC, (k.columns[1] = name) DESC, pg_catalog.cardinality(k.columns) DESC, i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the default partition of % has too many rows to be moved', parent USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'They are copied by an index while others write, and the table has none for that.', HINT = CASE type WHEN 'date' THEN 'Add a primary key.' ELSE pg_catalog.format('CREATE INDEX ON %s (%I); or add a primary key.', parent, name) END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._emptying_key(regclass, text, text) IS 'the columns in whose order the rows of a default partition are copied; raises when there is no such index';

CREATE FUNCTION sweep._check_emptying(parent regclass, rest regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	reason pg_catalog.text;
	hint pg_catalog.text;
	publication constant pg_catalog.text := (SELECT p.pubname FROM pg_catalog.pg_publication p CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(p.pubname) AS t
		WHERE t.relid = rest OR t.relid IN (SELECT a.relid FROM pg_catalog.pg_partition_ancestors(rest) AS a) OR p.puballtables LIMIT 1);
BEGIN
	IF publication IS NOT NULL THEN
		reason := pg_catalog.format('Publication "%s" publishes it, and a subscriber would miss the rows or have them twice.', publication);
		hint := 'Raise batch_size, or leave the table out of the publication.';
	ELSIF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
		reason := pg_catalog.format('Changes cannot be followed with the isolation level "%s".', pg_catalog.current_setting('transaction_isolation'));
		hint := pg_catalog.format('ALTER ROLE %I SET default_transaction_isolation = ''read committed'';', current_user);
	ELSIF (SELECT c.relkind <> 'r' OR c.relhasrules OR c.relpersistence <> 'p' FROM pg_catalog.pg_class c WHERE c.oid = rest) THEN
		reason := 'It is a partitioned, foreign or unlogged table, or has rules.';
		hint := 'Move or delete its rows.';
	-- PostgreSQL checks foreign keys while the table is locked.
	ELSIF pg_catalog.pg_relation_size(rest) > 256 * 1024 * 1024 AND EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.conrelid = parent AND c.contype = 'f') THEN
		reason := 'It has more than 256 MB, and foreign keys, which PostgreSQL would check while all others wait.';
		hint := 'Move or delete its rows, or drop the foreign keys of the table.';
	END IF;
	IF reason IS NOT NULL THEN
		RAISE EXCEPTION 'rows of default partition % cannot be copied to others', rest USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = reason, HINT = hint;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_emptying(regclass, regclass) IS 'raises unless the rows of a default partition can be copied to new partitions';

-- ------------------------------------------------------------------ the ranges
CREATE FUNCTION sweep._key_of_default(rest regclass, key text, type text, function text, lower text, upper text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	found pg_catalog.text;
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.%1$s(r.%2$I)::pg_catalog.text FROM %3$s AS r WHERE (%4$L IS NULL OR r.%2$I OPERATOR(pg_catalog.>=) %4$L::%6$s) AND (%5$L IS NULL OR r.%2$I OPERATOR(pg_catalog.<) %5$L::%6$s)%7$s',
		function, key, sweep._table_name(rest), lower, upper, type, CASE WHEN type <> 'bigint' THEN pg_catalog.format(' AND r.%I OPERATOR(pg_catalog.>) ''-infinity'' AND r.%1$I OPERATOR(pg_catalog.<) ''infinity''', key) END) INTO found;
	RETURN found;
END
$$;
COMMENT ON FUNCTION sweep._key_of_default(regclass, text, text, text, text, text) IS 'the smallest or greatest finite key that the default partition has in a range';

-- One range for each gap between partitions, if single ranges would be too many: each ATTACH takes some time, during which others wait.
CREATE FUNCTION sweep._gap_at(parent regclass, rest regclass, key text, type text, args jsonb, value text) RETURNS sweep._partition_range
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	made sweep._partition_range;
	start pg_catalog.text;
	stop pg_catalog.text;
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.max(b.upper::%1$s) FILTER (WHERE b.upper::%1$s <= $2::%1$s), pg_catalog.min(b.lower::%1$s) FILTER (WHERE b.lower::%1$s > $2::%1$s) FROM sweep._bounds($1, NULL) AS b', type)
		INTO start, stop USING parent, value;
	made.place := sweep._grid_place(type, args, value);
	SELECT g.bound, g.suffix INTO made.lower, made.suffix FROM sweep._grid_bound(type, args, made.place) AS g;
	made.upper := (sweep._grid_bound(type, args, sweep._grid_place(type, args, sweep._key_of_default(rest, key, type, 'max', value, stop)) + 1)).bound;
	EXECUTE pg_catalog.format('SELECT greatest($1::%1$s, $2::%1$s)::pg_catalog.text, least($3::%1$s, $4::%1$s)::pg_catalog.text', type) INTO made.lower, made.upper USING made.lower, start, made.upper, stop;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._gap_at(regclass, regclass, text, text, jsonb, text) IS 'the range between two partitions that has the rows of the default partition from a value on';

CREATE FUNCTION sweep._ranges_to_fill(parent regclass, rest regclass, key text, type text, args jsonb, size int, by_gap boolean) RETURNS SETOF sweep._partition_range
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	value pg_catalog.text := sweep._key_of_default(rest, key, type, 'min', NULL, NULL);
	place bigint;
	range sweep._partition_range;
	stays bigint := 0;
	many bigint;
	counted constant pg_catalog.text := 'SELECT pg_catalog.count(*) FROM (SELECT FROM %1$s AS r WHERE %4$s LIMIT %3$s) AS c';
BEGIN
	EXECUTE pg_catalog.format(counted, sweep._table_name(rest), key, size + 1, pg_catalog.format('r.%1$I IS NULL', key) || CASE WHEN type <> 'bigint' THEN pg_catalog.format(' OR r.%1$I IN (''infinity'', ''-infinity'')', key) ELSE '' END) INTO stays;
	WHILE value IS NOT NULL AND stays <= size LOOP
		place := sweep._grid_place(type, args, value);
		range := CASE WHEN by_gap THEN sweep._gap_at(parent, rest, key, type, args, value) ELSE sweep._missing_range(parent, type, args, place, place) END;
		IF range.place IS NOT NULL AND range.overlapping IS NULL AND range.upper IS NOT NULL THEN
			RETURN NEXT range;
		ELSE
			-- Another partition has a part of this range.
			range.upper := (sweep._grid_bound(type, args, place + 1)).bound;
			EXECUTE pg_catalog.format(counted, sweep._table_name(rest), key, size + 1, pg_catalog.format('r.%1$I OPERATOR(pg_catalog.>=) %2$L::%4$s AND (%3$L IS NULL OR r.%1$I OPERATOR(pg_catalog.<) %3$L::%4$s)', key, value, range.upper, type)) INTO many;
			stays := stays + many;
		END IF;
		value := CASE WHEN range.upper IS NOT NULL THEN sweep._key_of_default(rest, key, type, 'min', range.upper, NULL) END;
	END LOOP;
	IF stays > size THEN
		RAISE EXCEPTION 'default partition % has more than % rows for which no partition can be made', rest, size USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Partitions have a part of their ranges, or their key is null or infinite.', HINT = 'Make partitions for what is left of these ranges, raise batch_size, or move or delete the rows.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._ranges_to_fill(regclass, regclass, text, text, jsonb, int, boolean) IS 'the ranges of which the default partition has rows, or those between two partitions; raises when too many rows are in none';

-- Includes ranges of the present and the near future, since such rows may be inserted while the others are copied.
CREATE FUNCTION sweep._all_to_fill(parent regclass, rest regclass, key text, type text, args jsonb, size int, present bigint) RETURNS SETOF sweep._partition_range
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ranges sweep._partition_range[] := ARRAY(SELECT r FROM (SELECT * FROM sweep._ranges_to_fill(parent, rest, key, type, args, size, false) LIMIT 101) AS r);
	coming sweep._partition_range;
	is_known boolean;
BEGIN
	IF pg_catalog.cardinality(ranges) > 100 THEN
		ranges := ARRAY(SELECT r FROM sweep._ranges_to_fill(parent, rest, key, type, args, size, true) AS r);
	END IF;
	FOR n IN 0 .. least((args ->> 'ahead')::int, 7) LOOP
		coming := sweep._missing_range(parent, type, args, present + n, present + n);
		EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM pg_catalog.unnest($1) AS r WHERE r.lower::%1$s < $2::%1$s AND r.upper::%1$s > $3::%1$s)', type) INTO is_known USING ranges, coming.upper, coming.lower;
		IF coming.place IS NOT NULL AND coming.overlapping IS NULL AND NOT is_known THEN
			ranges := ranges || coming;
		END IF;
	END LOOP;
	RETURN QUERY SELECT * FROM pg_catalog.unnest(ranges);
END
$$;
COMMENT ON FUNCTION sweep._all_to_fill(regclass, regclass, text, text, jsonb, int, bigint) IS 'the ranges for which partitions are created to empty the default partition, including those of the present and the near future';

-- ------------------------------------------------------------------ the copy
CREATE FUNCTION sweep._begin_emptying(parent regclass, rest regclass, key text, type text, args jsonb, size int, present bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names constant pg_catalog.record := sweep._emptying_names(rest);
	has_policies constant boolean := (SELECT c.relrowsecurity FROM pg_catalog.pg_class c WHERE c.oid = parent);
	above constant pg_catalog.text := pg_catalog.pg_get_partition_constraintdef(parent);
	model constant pg_catalog.regclass := sweep._newest_part(parent, type);
	range sweep._partition_range;
	name pg_catalog.text;
	line pg_catalog.text;
BEGIN
	PERFORM sweep._check_emptying(parent, rest), sweep._emptying_key(parent, key, type);
	EXECUTE pg_catalog.format('CREATE TABLE %s (LIKE %s INCLUDING GENERATED) PARTITION BY RANGE (%I)', names.copy, sweep._table_name(parent), key);
	EXECUTE pg_catalog.format('COMMENT ON TABLE %s IS %L', names.copy, 'rows of a default partition, for a job of sweep.create_partitions');
	FOR line IN SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s FROM %s', names.copy, p.grantee) FROM sweep._privileges(names.copy::pg_catalog.regclass) AS p LOOP
		EXECUTE line;
	END LOOP;
	name := pg_catalog.format('%I.%I', (pg_catalog.parse_ident(names.copy))[1], sweep._fitting_name((pg_catalog.parse_ident(names.copy))[2], '_rest'));
	PERFORM sweep._create_like(parent, rest, name);
	EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s DEFAULT', names.copy, name);
	FOR range IN SELECT * FROM sweep._all_to_fill(parent, rest, key, type, args, size, present) LOOP
		PERFORM sweep._check_range(parent, range);
		name := sweep._partition_name(parent, range.suffix);
		PERFORM sweep._create_like(parent, model, name);
		-- If there are policies, privileges are granted later, together with these.
		PERFORM sweep._equip_like(parent, name::pg_catalog.regclass, CASE WHEN has_policies THEN '{owner,comment,replica identity}' ELSE '{owner,privilege,comment,replica identity}' END::pg_catalog.text[]);
		EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', names.copy, name, range.lower, range.upper);
		EXECUTE pg_catalog.format('ALTER TABLE %s ADD CONSTRAINT sweep_range CHECK (%s)', name, pg_catalog.concat_ws(' AND ', pg_catalog.pg_get_partition_constraintdef(name::pg_catalog.regclass), above));
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._begin_emptying(regclass, regclass, text, text, jsonb, int, bigint) IS 'makes the table to which the rows of a default partition are copied; raises when that cannot be done';

CREATE FUNCTION sweep._fill_next(rest regclass, texts jsonb, state jsonb, size int, path text, OUT rows bigint, OUT edge jsonb) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	key constant pg_catalog.text[] := ARRAY(SELECT * FROM pg_catalog.jsonb_array_elements_text(texts -> 'key'));
	nulls constant pg_catalog.text[] := ARRAY(SELECT * FROM pg_catalog.jsonb_array_elements_text(texts -> 'nulls'));
	columns constant pg_catalog.text[] := sweep._copy_columns(rest, (texts ->> 'target')::pg_catalog.regclass);
	alias constant pg_catalog.text := sweep._relation_name(rest);
	range pg_catalog.text;
	remove pg_catalog.text;
	insert pg_catalog.text;
BEGIN
	-- If keys are not unique, the statement has a second column.
	EXECUTE pg_catalog.format('SELECT k.edge FROM (%s) AS k (edge)', (sweep._edge_statements(rest, NULL, key, nulls, pg_catalog.format('%I.%I IS NOT NULL', alias, key[1]), NOT state ? 'after')).edge) INTO edge USING size, state;
	range := pg_catalog.concat_ws(' AND ', pg_catalog.format('%I.%I IS NOT NULL', alias, key[1]), CASE WHEN state ? 'after' THEN sweep._key_compare(rest, key, '>', '$1') END, CASE WHEN edge IS NOT NULL THEN sweep._key_compare(rest, key, '<=', '$2') END);
	-- Rows may be there already, copied by recorded keys.
	remove := pg_catalog.format('DELETE FROM %s AS %I WHERE %s', texts ->> 'target', alias, range);
	insert := pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s', texts ->> 'target', sweep._column_list(columns), sweep._qualified_list(alias, columns), sweep._source(rest, NULL), range);
	PERFORM pg_catalog.set_config('search_path', path, true);
	EXECUTE remove USING state, edge;
	EXECUTE insert USING state, edge;
	GET DIAGNOSTICS rows = ROW_COUNT;
END
$$;
COMMENT ON FUNCTION sweep._fill_next(regclass, jsonb, jsonb, int, text) IS 'copies the next rows of a default partition; edge: the last key; NULL: these were the last rows';

-- Reads locks, because the role of the job does not see snapshots of other roles' transactions, but the locks of all.
CREATE FUNCTION sweep._transactions() RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(pg_catalog.jsonb_object_agg(l.virtualtransaction, l.pid), '{}') FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_catalog.pg_backend_pid() AND a.usesysid IS NOT NULL AND a.datname = pg_catalog.current_database());
END
$$;
COMMENT ON FUNCTION sweep._transactions() IS 'the transactions in progress in sessions of this database: {"virtual transaction": pid}';

-- ------------------------------------------------------------------ the exchange
CREATE FUNCTION sweep._exchange_emptied(parent regclass, rest regclass, texts jsonb, size int, path text) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
	names constant pg_catalog.record := sweep._emptying_names(rest);
	columns constant pg_catalog.text := sweep._column_list(sweep._copy_columns(rest, names.copy::pg_catalog.regclass));
	without_key constant pg_catalog.text := pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %3$s AS r WHERE r.%4$I IS NULL', names.copy, columns, sweep._table_name(rest), texts #>> '{key,0}');
	triggers pg_catalog.jsonb;
	back pg_catalog.text;
	many bigint;
	part pg_catalog.record;
	made pg_catalog.jsonb := '[]';
BEGIN
	PERFORM sweep._lock_default(parent, rest, 'ACCESS EXCLUSIVE');
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT FROM %s LIMIT %s) AS c', names.changes, size + 1) INTO many;
	IF many > size THEN
		RAISE EXCEPTION 'more than % rows were changed while % was being locked', size, rest USING ERRCODE = 'lock_not_available';
	END IF;
	PERFORM sweep._apply_changes(texts, NULL, path), sweep._check_emptying(parent, rest);
	-- Checks again, because the table may have been changed before it was locked.
	IF (SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = rest AND t.tgenabled = 'A' AND t.tgfoid = (names.changes || '()')::pg_catalog.regprocedure) < 2
			OR texts ->> 'shape' <> sweep._copy_shape(pg_catalog.jsonb_build_object('changes', names.changes), rest, names.copy::pg_catalog.regclass) THEN
		RETURN NULL;
	END IF;
	PERFORM pg_catalog.set_config('search_path', path, true);
	EXECUTE without_key;
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	SELECT pg_catalog.format('FROM ONLY %s', sweep._table_name(b.part)) INTO back FROM sweep._bounds(names.copy::pg_catalog.regclass, NULL) AS b WHERE b.is_default;
	EXECUTE pg_catalog.format('SELECT pg_catalog.count(*) FROM (SELECT %s LIMIT %s) AS c', back, size + 1) INTO many;
	IF many > size THEN
		RETURN NULL;
	END IF;
	EXECUTE pg_catalog.format('DROP TRIGGER sweep_changes ON %s', sweep._table_name(rest));
	EXECUTE pg_catalog.format('DROP TRIGGER sweep_changes_truncate ON %s', sweep._table_name(rest));
	triggers := sweep._firing_triggers(rest);
	PERFORM sweep._switch_triggers(triggers, false);
	EXECUTE pg_catalog.format('TRUNCATE ONLY %s', sweep._table_name(rest));
	FOR part IN SELECT b.part, sweep._table_name(b.part) AS name, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound FROM sweep._bounds(names.copy::pg_catalog.regclass, NULL) AS b JOIN pg_catalog.pg_class c ON c.oid = b.part WHERE NOT b.is_default ORDER BY b.part::pg_catalog.text LOOP
		EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', names.copy, part.name);
		EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %s %s', sweep._table_name(parent), part.name, part.bound);
		EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT sweep_range', part.name);
		IF (SELECT c.relrowsecurity OR c.relreplident = 'i' FROM pg_catalog.pg_class c WHERE c.oid = parent) THEN
			PERFORM sweep._finish_partition(parent, part.part), sweep._equip_like(parent, part.part, '{privilege}');
		END IF;
		made := made || pg_catalog.to_jsonb(part.part);
	END LOOP;
	IF many > 0 THEN
		PERFORM pg_catalog.set_config('search_path', path, true);
		EXECUTE pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %2$s %s', sweep._table_name(rest), columns, back);
		PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		SET CONSTRAINTS ALL IMMEDIATE;
	END IF;
	PERFORM sweep._switch_triggers(triggers, true);
	EXECUTE pg_catalog.format('DROP FUNCTION %s()', names.changes);
	EXECUTE pg_catalog.format('DROP TABLE %s, %s', names.changes, names.copy);
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._exchange_emptied(regclass, regclass, jsonb, int, text) IS 'replaces the rows of the default partition by the partitions of the copy; returns their names; NULL: the copy must be begun again';

CREATE FUNCTION sweep._emptying_texts(parent regclass, rest regclass) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part_key constant pg_catalog.record := sweep._partition_key(parent);
	key constant pg_catalog.record := sweep._emptying_key(parent, part_key.name, part_key.type);
	names constant pg_catalog.record := sweep._emptying_names(rest);
	copy constant pg_catalog.regclass := names.copy;
BEGIN
	RETURN sweep._change_texts(pg_catalog.jsonb_build_object('changes', names.changes), rest, copy, key.columns, key.nulls, sweep._copy_columns(rest, copy))
		|| pg_catalog.jsonb_build_object('key', pg_catalog.to_jsonb(key.columns), 'nulls', pg_catalog.to_jsonb(key.nulls));
END
$$;
COMMENT ON FUNCTION sweep._emptying_texts(regclass, regclass) IS 'the statements by which a default partition is copied, and the columns of the key';

-- ------------------------------------------------------------------ the batch
CREATE FUNCTION sweep._empty_next(parent regclass, size int, state jsonb, path text) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rest constant pg_catalog.regclass := sweep._default_part(parent);
	names pg_catalog.record;
	at pg_catalog.jsonb := state -> 'emptying';
	again constant pg_catalog.jsonb := state - '{tries,tried_at,emptying}'::pg_catalog.text[];
	detail pg_catalog.jsonb := '{}';
	texts pg_catalog.jsonb;
	applied pg_catalog.record;
	filled pg_catalog.record;
	done bigint := 1;
	made pg_catalog.jsonb;
	left_open pg_catalog.jsonb;
	deadline constant pg_catalog.timestamptz := pg_catalog.clock_timestamp() + interval '1 second';
BEGIN
	SELECT n.copy, n.changes, n.is_there INTO names FROM sweep._emptying_names(coalesce(rest, parent)) AS n;
	PERFORM sweep._await_turn(state);
	BEGIN
		-- The default partition was detached or renamed.
		IF rest IS NULL OR NOT names.is_there OR names.copy <> at ->> 'copy' THEN
			PERFORM sweep._drop_emptying(at ->> 'copy', at ->> 'changes');
			RETURN ROW(1, again, '{"restarted": 1}')::sweep.progress;
		END IF;
		texts := sweep._emptying_texts(parent, rest);
		IF NOT at ? 'shape' THEN
			IF NOT sweep._capture_changes(texts) THEN
				RAISE lock_not_available;
			END IF;
			at := at || pg_catalog.jsonb_build_object('shape', texts -> 'shape');
		ELSIF at ->> 'shape' <> texts ->> 'shape' OR pg_catalog.to_regclass(texts ->> 'changes') IS NULL THEN
			PERFORM sweep._drop_emptying(names.copy, names.changes);
			RETURN ROW(1, again, '{"restarted": 1}')::sweep.progress;
		ELSE
			applied := sweep._apply_changes(texts, size, path);
			done := greatest(done, applied.keys);
			detail := CASE WHEN applied.keys > 0 THEN pg_catalog.jsonb_build_object('changes', applied.keys) ELSE '{}' END;
			IF NOT at ? 'copied' THEN
				filled := sweep._fill_next(rest, texts, at, size, path);
				done := greatest(done, filled.rows);
				at := at || coalesce(filled.edge, '{"copied": true}');
				detail := detail || pg_catalog.jsonb_build_object('copied', filled.rows);
			ELSIF NOT at ? 'older' THEN
				EXECUTE pg_catalog.format('ANALYZE %s', texts ->> 'target');
				at := at || pg_catalog.jsonb_build_object('older', sweep._transactions());
			ELSIF applied.keys < size THEN
				LOOP
					SELECT pg_catalog.jsonb_object_agg(o.key, o.value) INTO left_open FROM pg_catalog.jsonb_each(at -> 'older') AS o WHERE sweep._transactions() @> pg_catalog.jsonb_build_object(o.key, o.value);
					EXIT WHEN left_open IS NULL OR pg_catalog.clock_timestamp() > deadline;
					PERFORM pg_catalog.pg_sleep(0.05);
				END LOOP;
				at := at || pg_catalog.jsonb_build_object('older', coalesce(left_open, '{}'));
				IF left_open IS NULL THEN
					made := sweep._exchange_emptied(parent, rest, texts, size, path);
					IF made IS NULL THEN
						PERFORM sweep._drop_emptying(names.copy, names.changes);
						RETURN ROW(1, again, '{"restarted": 1}')::sweep.progress;
					END IF;
					RETURN ROW(1, again, detail || pg_catalog.jsonb_build_object('emptied', pg_catalog.jsonb_build_array(rest), 'made', made))::sweep.progress;
				END IF;
				detail := detail || pg_catalog.jsonb_build_object('waits_for', (SELECT pg_catalog.jsonb_agg(DISTINCT o.value) FROM pg_catalog.jsonb_each(left_open) AS o));
				at := at || pg_catalog.jsonb_build_object('waited', coalesce((at ->> 'waited')::int, 0) + 1);
			END IF;
		END IF;
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		RETURN ROW(1, sweep._note_try(state, parent::pg_catalog.text, ARRAY[sweep._table_name(parent), sweep._table_name(rest)]), '{"lock_timeouts": 1}')::sweep.progress;
	END;
	-- If the copy waits for long transactions, which the detail names, the next run goes on with it.
	RETURN ROW(done, again || pg_catalog.jsonb_build_object('emptying', at - 'waited')
		|| CASE WHEN (at ->> 'waited')::int >= 60 THEN '{"later": true}' ELSE pg_catalog.jsonb_build_object('emptying', at) END, detail)::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._empty_next(regclass, int, jsonb, text) IS 'the next batch that empties a default partition';
--
-- sweep.create_partitions: creates partitions ahead of time, and drops or detaches old ones, each in a batch of its own.
--
-- An error in creating a partition does not keep old ones from being dropped: the cursor has the error meanwhile, and it is raised afterwards.
--
-- Reading the bounds of thousands of partitions takes long, so the cursor keeps the next ranges without a partition.
CREATE FUNCTION sweep._find_missing(relation regclass, b sweep.batch, state jsonb, key_name text, type text, present bigint) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found pg_catalog.jsonb := state -> 'ranges';
	behind bigint;
BEGIN
	IF pg_catalog.jsonb_array_length(found) > 0 THEN
		RETURN state;
	END IF;
	SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(m) ORDER BY m.place) INTO found FROM sweep._missing_ranges(relation, type, b.args, greatest(present, (state ->> 'next')::bigint), present + (b.args ->> 'ahead')::bigint, 32) AS m;
	IF found IS NULL THEN
		behind := sweep._left_behind(relation, key_name, type, b.args, present);
		SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(m)) INTO found FROM sweep._missing_ranges(relation, type, b.args, behind, behind, 1) AS m;
	END IF;
	RETURN state || pg_catalog.jsonb_build_object('ranges', coalesce(found, '[]'), 'model', sweep._table_name(sweep._newest_part(relation, type)));
END
$$;
COMMENT ON FUNCTION sweep._find_missing(regclass, sweep.batch, jsonb, text, text, bigint) IS 'the cursor, with the next ranges for which partitions are to be created, and the partition whose storage parameters they get';

CREATE FUNCTION sweep._make_next(relation regclass, b sweep.batch, path text) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	state pg_catalog.jsonb := coalesce(b.cursor, '{}');
	key constant pg_catalog.record := sweep._partition_key(relation);
	rest constant pg_catalog.regclass := sweep._default_part(relation);
	present constant bigint := sweep._grid_place(key.type, b.args, sweep._present(relation, key.name, key.type, b.args, b.as_of));
	many constant int := coalesce((state ->> 'many')::int, 1);
	ranges sweep._partition_range[];
	count int;
	took double precision;
	detail pg_catalog.jsonb;
BEGIN
	IF state ? 'emptying' THEN
		RETURN sweep._empty_next(relation, b.size, state, path);
	END IF;
	state := sweep._find_missing(relation, b, state, key.name, key.type, present);
	ranges := ARRAY(SELECT r FROM pg_catalog.jsonb_populate_recordset(NULL::sweep._partition_range, state -> 'ranges') AS r LIMIT many);
	IF ranges = '{}' THEN
		RETURN NULL;
	END IF;
	PERFORM sweep._await_turn(state);
	BEGIN
		detail := sweep._make_partitions(relation, key.name, key.type, b.args, ranges, pg_catalog.to_regclass(state ->> 'model'), b.size, path);
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		-- If two partitions are ahead, the rest can be left to the next run.
		IF (ranges[1]).place > present + 2 AND (state ->> 'tries')::int >= 9 THEN
			RAISE WARNING 'partitions of % are left to the next run, for it could not be locked', relation;
			RETURN ROW(1, (state - '{tries,tried_at}'::pg_catalog.text[]) || '{"later": true}', '{"lock_timeouts": 1}')::sweep.progress;
		END IF;
		RETURN ROW(1, sweep._note_try(state, relation::pg_catalog.text, ARRAY[sweep._table_name(relation), sweep._table_name(rest)]), '{"lock_timeouts": 1}')::sweep.progress;
	END;
	state := state - '{tries,tried_at}'::pg_catalog.text[];
	IF detail IS NULL THEN
		RETURN ROW(1, (state - 'ranges') || (SELECT pg_catalog.jsonb_build_object('emptying', pg_catalog.jsonb_build_object('copy', n.copy, 'changes', n.changes)) FROM sweep._emptying_names(rest) AS n), NULL)::sweep.progress;
	END IF;
	count := coalesce(pg_catalog.jsonb_array_length(detail -> 'made'), 0);
	took := detail ->> 'took';
	state := state || pg_catalog.jsonb_build_object('many', CASE WHEN took > 0.2 THEN greatest(many / 2, 1) WHEN took < 0.1 THEN least(many * 2, 16) ELSE many END,
		'ranges', CASE WHEN count > 0 THEN pg_catalog.jsonb_path_query_array(state -> 'ranges', pg_catalog.format('$[%s to last]', count)::pg_catalog.jsonpath) ELSE '[]' END);
	IF (ranges[1]).place >= present THEN
		state := state || pg_catalog.jsonb_build_object('next', (ranges[greatest(count, 1)]).place + 1);
	END IF;
	RETURN ROW(greatest(count, 1), state, detail - 'took')::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._make_next(regclass, sweep.batch, text) IS 'creates the next missing partitions, or tries to lock the table for that; NULL: none is missing';

CREATE FUNCTION sweep._drop_next(relation regclass, b sweep.batch, state jsonb) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	type constant pg_catalog.text := (sweep._partition_key(relation)).type;
	age_limit pg_catalog.text;
	dropped pg_catalog.record;
BEGIN
	IF b.args ->> 'partitions' = 'detach' THEN
		PERFORM sweep._check_detachable(relation);
	END IF;
	-- The same text as in sweep._retention_statements.
	EXECUTE pg_catalog.format('SELECT pg_catalog.to_jsonb(%s) OPERATOR(pg_catalog.#>>) ''{}''', sweep._age_limit(type, b.args)) INTO age_limit USING NULL::int, NULL::pg_catalog.jsonb, b.as_of;
	dropped := sweep._drop_partition(sweep._table_name(relation), type, age_limit, b.args ->> 'partitions' = 'detach', true, state);
	RETURN ROW(dropped.rows, dropped.next_cursor, dropped.detail)::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._drop_next(regclass, sweep.batch, jsonb) IS 'drops or detaches the oldest partition that is too old, or tries to lock the table for that; rows is NULL: none is too old';

CREATE FUNCTION sweep._partitions_batch(b sweep.batch, path text) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := (b.args ->> 'target')::pg_catalog.regclass;
	type constant pg_catalog.text := (sweep._partition_key(relation)).type;
	-- The cursor of an earlier run is only used for a default partition that is being emptied.
	emptying constant pg_catalog.jsonb := CASE WHEN b.cursor ? 'emptying' THEN pg_catalog.jsonb_build_object('emptying', b.cursor -> 'emptying') ELSE '{}' END;
	state pg_catalog.jsonb := CASE WHEN b.cursor -> 'run' IS NOT DISTINCT FROM pg_catalog.to_jsonb(b.run_id) THEN b.cursor ELSE emptying || pg_catalog.jsonb_build_object('run', b.run_id) END;
	done sweep.progress;
	code pg_catalog.text;
	message pg_catalog.text;
	detail pg_catalog.text;
	hint pg_catalog.text;
BEGIN
	b.cursor := state;
	-- The args may have been altered.
	b.args := sweep._life_args(relation, type, b.args ->> 'every', (b.args ->> 'ahead')::int, (b.args ->> 'keep')::interval, b.args ->> 'partitions', b.args ->> 'origin', coalesce(b.args ->> 'timezone', 'UTC'));
	IF NOT state ?| '{failure,later}' THEN
		BEGIN
			done := sweep._make_next(relation, b, path);
			IF done.rows > 0 THEN
				RETURN done;
			END IF;
		EXCEPTION WHEN OTHERS THEN
			IF NOT b.args ? 'keep' THEN
				RAISE;
			END IF;
			GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			state := (state - '{tries,tried_at}'::pg_catalog.text[]) || pg_catalog.jsonb_build_object('failure', pg_catalog.jsonb_build_array(code, message, detail, hint));
		END;
	END IF;
	IF b.args ? 'keep' THEN
		BEGIN
			done := sweep._drop_next(relation, b, state);
			IF done.rows > 0 THEN
				RETURN done;
			END IF;
		EXCEPTION WHEN OTHERS THEN
			IF NOT state ? 'failure' THEN
				RAISE;
			END IF;
			state := pg_catalog.jsonb_set(state, '{failure,2}', pg_catalog.to_jsonb(pg_catalog.concat_ws(' ', nullif(state #>> '{failure,2}', ''), 'Nor could old partitions be dropped: ' || SQLERRM || '.')));
		END;
	END IF;
	IF state ? 'failure' THEN
		RAISE EXCEPTION USING ERRCODE = state #>> '{failure,0}', MESSAGE = state #>> '{failure,1}', DETAIL = coalesce(nullif(state #>> '{failure,2}', ''), 'A partition could not be made.'),
			HINT = coalesce(nullif(state #>> '{failure,3}', ''), 'Partitions that were too old have been dropped before this was raised.');
	END IF;
	RETURN ROW(0, nullif(emptying, '{}'), NULL)::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._partitions_batch(sweep.batch, text) IS 'creates, drops or detaches one partition; path: the search_path of the run';

CREATE FUNCTION sweep.partitions_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE sql VOLATILE PARALLEL UNSAFE RETURN sweep._partitions_batch(b, pg_catalog.current_setting('search_path'));
COMMENT ON FUNCTION sweep.partitions_step(sweep.batch) IS 'step of the jobs that sweep.create_partitions makes';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep._check_detachable(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	keys constant pg_catalog.text := (SELECT pg_catalog.string_agg(pg_catalog.format('"%s" of %s', r.name, r.child), ', ') FROM sweep._referencing(relation, '', '') AS r);
BEGIN
	IF keys IS NOT NULL THEN
		RAISE EXCEPTION 'partitions cannot be detached: foreign keys refer to %', relation USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = keys || '.',
			HINT = 'With partitions => ''drop'' they are dropped when no row refers to them any more.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_detachable(regclass) IS 'raises when foreign keys refer to the table';

CREATE FUNCTION sweep._check_life(role text, relation regclass, args jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.record;
	foreign_key pg_catalog.record;
	lacking pg_catalog.text;
BEGIN
	SELECT c.relowner, pg_catalog.pg_get_userbyid(c.relowner) AS owner, n.nspname INTO known FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
	IF NOT sweep._owns(sweep._role_oid(role), known.relowner) THEN
		RAISE EXCEPTION 'role "%" does not own %', role, relation USING ERRCODE = 'insufficient_privilege', DETAIL = 'The checks and expressions of the table are executed as the role of the job.',
			HINT = pg_catalog.format('Its partitions are made by its owner: write run_as => %L.', known.owner);
	END IF;
	lacking := CASE WHEN NOT pg_catalog.has_schema_privilege(sweep._role_oid(role), known.nspname, 'CREATE') THEN role WHEN NOT pg_catalog.has_schema_privilege(known.relowner, known.nspname, 'CREATE') THEN known.owner END;
	IF lacking IS NOT NULL THEN
		RAISE EXCEPTION 'role "%" may not create tables in schema "%"', lacking, known.nspname USING ERRCODE = 'insufficient_privilege', HINT = pg_catalog.format('GRANT USAGE, CREATE ON SCHEMA %I TO %I;', known.nspname, lacking);
	END IF;
	IF args ? 'keep' AND args ->> 'partitions' = 'detach' THEN
		PERFORM sweep._check_detachable(relation);
	ELSIF args ? 'keep' THEN
		FOR foreign_key IN SELECT r.name, r.child, c.relowner FROM sweep._referencing(relation, '', '') AS r JOIN pg_catalog.pg_class c ON c.oid = r.child LOOP
			IF NOT sweep._owns(sweep._role_oid(role), foreign_key.relowner) THEN
				RAISE EXCEPTION 'foreign key "%" of % refers to %', foreign_key.name, foreign_key.child, relation USING ERRCODE = 'insufficient_privilege',
					DETAIL = pg_catalog.format('Before a partition is dropped, PostgreSQL reads %s as role "%s", which does not act for its owner.', foreign_key.child, role), HINT = 'Leave keep out, or give both tables the same owner.';
			END IF;
		END LOOP;
		PERFORM sweep._check_references(role, relation, ARRAY[relation], true);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_life(text, regclass, jsonb) IS 'raises unless the role can make partitions of the table, and drop them if it is to';

CREATE FUNCTION sweep._life_args(relation regclass, key_type text, every text, ahead int, keep interval, partitions text, origin text, zone text) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	missing constant pg_catalog.text := CASE WHEN every IS NULL THEN 'every' WHEN ahead IS NULL THEN 'ahead' WHEN partitions IS NULL THEN 'partitions' END;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed', HINT = CASE missing WHEN 'every' THEN 'Say how much a partition has, for example: 1 day, or 1000000 for ids.'
			WHEN 'ahead' THEN 'Say how many partitions are made ahead.' ELSE 'Write "drop" or "detach".' END;
	END IF;
	IF ahead NOT BETWEEN 1 AND 10000 THEN
		RAISE EXCEPTION 'invalid ahead %', ahead USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 1 to 10000.';
	END IF;
	IF partitions NOT IN ('drop', 'detach') THEN
		RAISE EXCEPTION 'invalid partitions "%"', partitions USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "drop" or "detach".';
	END IF;
	IF keep IS NOT NULL AND key_type = 'bigint' THEN
		RAISE EXCEPTION 'partitions of % have no age', relation USING ERRCODE = 'invalid_parameter_value', DETAIL = 'It is partitioned by ranges of a bigint.', HINT = 'Leave keep out.';
	END IF;
	IF keep <= interval '0' OR keep > interval '1000 years' OR sweep._least_seconds(keep) < 0 THEN
		RAISE EXCEPTION 'invalid keep %', keep USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be greater than zero, from any date on, and at most 1000 years.';
	END IF;
	RETURN pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'every', sweep._check_every(key_type, every), 'origin', sweep._check_origin(key_type, origin),
		'ahead', ahead, 'keep', keep, 'partitions', partitions, 'timezone', zone));
END
$$;
COMMENT ON FUNCTION sweep._life_args(regclass, text, text, int, interval, text, text, text) IS 'the args of a job that makes partitions; raises unless they mean something for the type of the key';

CREATE FUNCTION sweep._check_lead(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	lead constant interval := (job.args ->> 'every')::interval * (job.args ->> 'ahead')::int;
	gap interval;
BEGIN
	-- Many moments are read, because the longest gap, such as a weekend, may come late.
	SELECT pg_catalog.max(r.gap) INTO gap FROM (SELECT n.moment - pg_catalog.lag(n.moment) OVER (ORDER BY n.moment) AS gap
		FROM sweep.next_runs(job.schedule, job.timezone, pg_catalog.now(), 10000, job.name) AS n (moment)) AS r WHERE job.schedule IS NOT NULL;
	IF gap >= lead THEN
		RAISE EXCEPTION 'partitions are made for % ahead, and the next run may be % later', lead, gap USING ERRCODE = 'invalid_parameter_value', HINT = 'Raise ahead, or write a schedule with shorter pauses.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_lead(sweep.job_definition) IS 'raises when the partitions could be used up before the next run creates more';

CREATE FUNCTION sweep._create_partitions(caller oid, job sweep.job_definition, target text, every text, ahead int, keep interval, partitions text, origin text,
	run_as regrole, paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	key pg_catalog.record;
	present bigint;
	missing sweep._partition_range;
	zone constant pg_catalog.text := coalesce(sweep._find_zone(job.timezone), 'UTC');
BEGIN
	job.cursor := 'always';
	job := sweep._begin_maker(caller, job, 'partitions', relation, run_as);
	PERFORM sweep._check_table(job.run_as, relation, '{}');
	key := sweep._partition_key(relation);
	job.args := sweep._life_args(relation, key.type, every, ahead, keep, partitions, origin, zone);
	PERFORM sweep._check_life(job.run_as, relation, job.args), sweep._newest_part(relation, key.type);
	-- Not for ids: their present is the greatest one in the table, which is not read here.
	IF key.type <> 'bigint' THEN
		present := sweep._grid_place(key.type, job.args, sweep._present(relation, key.name, key.type, job.args, pg_catalog.now()));
		missing := sweep._missing_range(relation, key.type, job.args, present, present + ahead);
		PERFORM sweep._check_range(relation, missing) WHERE missing.place IS NOT NULL;
	END IF;
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._check_lead(job) WHERE key.type <> 'bigint';
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_partitions IS 'implements sweep.create_partitions';

CREATE FUNCTION sweep.create_partitions(target text, every text, ahead int DEFAULT 7, keep interval DEFAULT NULL, schedule text DEFAULT 'H * * * *', partitions text DEFAULT 'drop',
	origin text DEFAULT NULL, name text DEFAULT NULL, timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL,
	stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT '100 ms', settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL,
	lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL, overlap text DEFAULT NULL, catch_up text DEFAULT NULL,
	jitter interval DEFAULT NULL, estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL,
	alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL, run_as regrole DEFAULT NULL, description text DEFAULT NULL,
	paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_partitions IS
	'creates a job that creates partitions of a table ahead of time, and drops or detaches those that are too old; returns its name';
--
-- The result of CALL sweep.wait. call.c calls sweep._wait, in a transaction of its own each time, until it returns a text or raises an error.
--
CREATE FUNCTION sweep._count_of(number bigint, noun text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('%s %s%s', coalesce(number, 0), noun, CASE WHEN number = 1 THEN '' WHEN noun = 'batch' THEN 'es' ELSE 's' END)
$$;
COMMENT ON FUNCTION sweep._count_of(bigint, text) IS 'a number with its noun, for a message: batch or row';

CREATE FUNCTION sweep._wait(caller oid, run_id bigint, is_late boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found constant pg_catalog.record := sweep._wait_outcome(caller, run_id);
	done constant pg_catalog.text := pg_catalog.concat_ws(', ', sweep._count_of(found.batches, 'batch'), sweep._count_of(found.rows, 'row'));
	decisive constant pg_catalog.text := CASE WHEN found.decisive = run_id THEN run_id::pg_catalog.text ELSE pg_catalog.format('%s, a share of run %s,', found.decisive, run_id) END;
BEGIN
	IF NOT found.ended AND is_late THEN
		RAISE EXCEPTION 'run % of job "%" has not ended in time', run_id, found.job USING ERRCODE = 'query_canceled',
			DETAIL = pg_catalog.format('It is %s: %s so far.', found.status, done), HINT = 'It goes on; wait again, or stop it with sweep.cancel().';
	ELSIF NOT found.ended THEN
		RETURN NULL;
	ELSIF found.status = 'skipped' THEN
		RAISE EXCEPTION 'run % of job "%" was skipped: %', run_id, found.job,
				CASE found.reason WHEN 'lock_held' THEN 'its lock was held' WHEN 'no_bucket' THEN 'none of its buckets was free' ELSE 'another run was in progress' END
			USING ERRCODE = CASE WHEN found.reason = 'lock_held' THEN 'lock_not_available' ELSE 'object_in_use' END,
				HINT = 'The detail of its row in sweep.runs says by whom; sweep.start() runs the job when its turn has come.';
	ELSIF found.status = 'cancelled' THEN
		RAISE EXCEPTION 'run % of job "%" was cancelled', decisive, found.job USING ERRCODE = 'query_canceled',
			HINT = 'What was committed before stays: see sweep.runs.';
	ELSIF found.status <> 'succeeded' THEN
		RAISE EXCEPTION 'run % of job "%" %: %', decisive, found.job, CASE found.status WHEN 'lost' THEN 'was lost' ELSE 'failed' END,
				coalesce(found.error, 'its process ended')
			USING ERRCODE = 'external_routine_exception',
				HINT = 'What was committed before stays: see sweep.runs. With max_attempts a job is tried again by itself.';
	END IF;
	RETURN pg_catalog.format('job "%s" run %s: %s in %s, %s', found.job, run_id, sweep._count_of(found.rows, 'row'), sweep._count_of(found.batches, 'batch'), found.stop_reason);
END
$$;
COMMENT ON FUNCTION sweep._wait(oid, bigint, boolean) IS 'implements CALL sweep.wait: the outcome of a run that has succeeded; NULL while it goes on; raises for any other outcome, and when it is late';
--
-- Sets the sequences after a cutover by logical replication, which replicates rows but not the positions of sequences.
--
-- Uses the primary keys to find the highest numbers of large tables. The messages kept by keep_done have no index on their ids.
CREATE FUNCTION sweep._used_numbers() RETURNS TABLE (sequence text, used bigint)
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT 'sweep.run_live_run_id_seq', greatest((SELECT pg_catalog.max(r.run_id) FROM sweep.run_live r), (SELECT pg_catalog.max(r.run_id) FROM sweep.run_history r))
	UNION ALL
	SELECT 'sweep.run_begun_seq', greatest((SELECT pg_catalog.max(r.begun) FROM sweep.run_live r), (SELECT pg_catalog.max(r.begun) FROM sweep.run_history r),
		(SELECT pg_catalog.max(s.last_begun) FROM sweep.job_state s))
	UNION ALL
	SELECT 'sweep.consumer_consumer_id_seq', (SELECT pg_catalog.max(c.consumer_id) FROM sweep.consumer c)
	UNION ALL
	SELECT 'sweep.queue_queue_id_seq', (SELECT pg_catalog.max(q.queue_id) FROM sweep.queue q)
	UNION ALL
	SELECT 'sweep.queue_message_message_id_seq', greatest(
		(SELECT pg_catalog.max(m.message_id) FROM sweep.queue q CROSS JOIN pg_catalog.generate_series(0, 100, 100) AS delayed, pg_catalog.generate_series(-8, 7) AS priority,
			LATERAL (SELECT o.message_id FROM sweep.queue_message o WHERE o.queue_id = q.queue_id AND o.lane = (delayed + priority)::smallint ORDER BY o.message_id DESC LIMIT 1) AS m),
		(SELECT pg_catalog.max(m.message_id) FROM sweep.queue q, LATERAL (SELECT o.message_id FROM sweep.queue_dead o WHERE o.queue_id = q.queue_id ORDER BY o.message_id DESC LIMIT 1) AS m),
		(SELECT pg_catalog.max(o.message_id) FROM sweep.queue_done o))
$$;
COMMENT ON FUNCTION sweep._used_numbers() IS 'the sequences of the extension, and the highest number of each that is used in a row';

CREATE FUNCTION sweep._set_sequences() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- A sequence that is ahead of its rows, as usual, is not changed.
	PERFORM pg_catalog.setval(u.sequence::pg_catalog.regclass, u.used) FROM sweep._used_numbers() AS u
		WHERE u.used > coalesce(pg_catalog.pg_sequence_last_value(u.sequence::pg_catalog.regclass), 0);
END
$$;
COMMENT ON FUNCTION sweep._set_sequences() IS 'advances the sequences of the extension to the highest numbers that rows have';
--
-- sweep.import_pg_cron: the entries of pg_cron's table as jobs.
--
-- C code reads the entries with the rights of the caller. Everything else, for example the settings of pg_cron, is read as the
-- owner; jobs are created in the same way as by the makers.
--
CREATE FUNCTION sweep._pg_cron_entries(caller oid) RETURNS jsonb
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_pg_cron_entries';
COMMENT ON FUNCTION sweep._pg_cron_entries(oid) IS 'the rows of cron.job that the caller sees, whatever columns they have';

CREATE FUNCTION sweep._count_statements(sql text) RETURNS int
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_pg_cron_statements';
COMMENT ON FUNCTION sweep._count_statements(text) IS 'how many statements a text has; raises where it is not SQL';

-- A field as pg_cron reads it: its elements, without text after them, which pg_cron ignores. A field that pg_cron refuses is returned unchanged.
CREATE FUNCTION sweep._read_pg_cron_field(field text, number int) RETURNS text
	LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	element constant pg_catalog.text := E'(?:\\*(?:/[a-zA-Z0-9]+)?|[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+(?:/[a-zA-Z0-9]+)?)?)';
	values_of_field constant pg_catalog.int4 := (ARRAY[60, 24, 31, 12, 7])[number];
	all_days constant pg_catalog.text := CASE number WHEN 3 THEN '1-31' WHEN 5 THEN '0-6' END;
	taken constant pg_catalog.text := pg_catalog.substring(field, pg_catalog.format('^%1$s(?:,%1$s)*', element));
	rest constant pg_catalog.text := pg_catalog.substr(field, pg_catalog.length(taken) + 1);
	part pg_catalog.text;
	range pg_catalog.text;
	step pg_catalog.text;
	meaning pg_catalog.text;
BEGIN
	IF taken IS NULL OR rest ~ '^,' OR rest ~ '^/' AND taken !~ '/[^,]*$' OR rest ~ '^-' AND taken ~ '(^|,)[a-zA-Z0-9]+$' THEN
		RETURN field;
	END IF;
	FOREACH part IN ARRAY pg_catalog.string_to_array(taken, ',') LOOP
		range := pg_catalog.split_part(part, '/', 1);
		step := nullif(pg_catalog.split_part(part, '/', 2), '');
		-- A field of days is unrestricted only if it begins with a star.
		IF range = '*' AND meaning IS NOT NULL THEN
			range := coalesce(all_days, range);
		END IF;
		-- pg_sweep refuses a step that is longer than the range of the field; the longest allowed one has the same effect.
		IF step ~ '^[0-9]{1,9}$' THEN
			step := least(step::int, values_of_field);
		END IF;
		meaning := pg_catalog.concat_ws(',', meaning, pg_catalog.concat_ws('/', range, step));
	END LOOP;
	RETURN meaning;
END
$$;
COMMENT ON FUNCTION sweep._read_pg_cron_field(text, int) IS 'a field of a schedule of pg_cron (1 is the minute), written so that it means the same here';

CREATE FUNCTION sweep._read_pg_cron_schedule(schedule text, both_days boolean, OUT meaning text, OUT remarks text[])
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	words pg_catalog.text[] := pg_catalog.regexp_split_to_array(pg_catalog.btrim(schedule, E' \t\n\r'), E'\\s+');
	fields pg_catalog.text[];
BEGIN
	meaning := schedule;
	IF words[1] ~ '^@' THEN
		meaning := CASE words[1] WHEN '@restart' THEN '@reboot' ELSE words[1] END;
		IF meaning IN ('@yearly', '@annually') THEN
			remarks := remarks || pg_catalog.format('pg_cron 1.6 and later never start %s', meaning);
		END IF;
	ELSIF pg_catalog.cardinality(words) >= 5 THEN
		SELECT pg_catalog.array_agg(sweep._read_pg_cron_field(w.word, w.n::int) ORDER BY w.n) INTO fields
			FROM pg_catalog.unnest(words[1:5]) WITH ORDINALITY AS w (word, n);
		meaning := pg_catalog.array_to_string(fields, ' ');
		IF fields <> words THEN
			remarks := remarks || pg_catalog.format('pg_cron reads "%s" as this schedule', schedule);
		END IF;
		IF fields[5] COLLATE "C" ~* '(^|,)([1-7]|mon|tue|wed|thu|fri|sat)-sun' THEN
			remarks := remarks || pg_catalog.format('pg_cron takes a range that ends with sun, as in "%s", for empty', fields[5]);
		END IF;
		IF both_days AND fields[3] !~ E'^\\*' AND fields[5] !~ E'^\\*' THEN
			RAISE EXCEPTION 'cron.match_dom_and_dow is on, so "%" is due where both days match', schedule USING ERRCODE = 'feature_not_supported',
				HINT = 'In pg_sweep one matching day is enough: write one of both days in the schedule, and check the other in the statement.';
		END IF;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._read_pg_cron_schedule(text, boolean) IS 'a schedule of pg_cron, written so that it means the same here, and remarks about it';

-- pg_cron may execute an entry on another server or in another database. If it uses background workers, they connect to this
-- server, whatever the entry says.
CREATE FUNCTION sweep._pg_cron_place(entry jsonb) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE
		WHEN coalesce(pg_catalog.current_setting('cron.use_background_workers', true), 'off') = 'off'
			AND (entry ->> 'nodename' NOT IN ('', 'localhost', '127.0.0.1', '::1', coalesce(pg_catalog.current_setting('cron.host', true), 'localhost'))
					AND entry ->> 'nodename' !~ '^[/@]'
				OR entry ->> 'nodeport' <> pg_catalog.current_setting('port'))
			THEN pg_catalog.format('is for host "%s", port %s, database "%s": execute the definition there', entry ->> 'nodename', entry ->> 'nodeport', entry ->> 'database')
		WHEN entry ->> 'database' <> pg_catalog.current_database()
			THEN pg_catalog.format('is for database "%s": execute the definition there', entry ->> 'database') END
$$;
COMMENT ON FUNCTION sweep._pg_cron_place(jsonb) IS 'where an entry of pg_cron is executed; NULL: in this database';

CREATE FUNCTION sweep._check_pg_cron(caller oid) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	home constant pg_catalog.text := pg_catalog.current_setting('cron.database_name', true);
BEGIN
	-- It must be the table of the extension, since any role may have created a schema of that name.
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension e
			JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid
				AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype = 'e'
			WHERE e.extname = 'pg_cron' AND d.objid = pg_catalog.to_regclass('cron.job')) THEN
		RAISE EXCEPTION 'extension pg_cron is not installed in database "%"', pg_catalog.current_database() USING ERRCODE = 'undefined_object',
			HINT = CASE WHEN home <> pg_catalog.current_database()
				THEN pg_catalog.format('The entries of all databases are in database "%s": call sweep.import_pg_cron() there.', home)
				ELSE 'Call sweep.import_pg_cron() in the database that has the table cron.job.' END;
	END IF;
	IF NOT pg_catalog.has_schema_privilege(caller, 'cron', 'USAGE') OR NOT pg_catalog.has_table_privilege(caller, 'cron.job', 'SELECT') THEN
		RAISE EXCEPTION 'permission denied for table cron.job' USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT USAGE ON SCHEMA cron TO %I shows it its own entries.', pg_catalog.pg_get_userbyid(caller));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_pg_cron(oid) IS 'raises unless cron.job is the table of the extension pg_cron, and the caller may read it';

-- The history of pg_cron grows without limit, so many installations have an entry that trims it. When pg_cron is dropped, the
-- history is dropped, too, and such a job would fail from then on.
CREATE FUNCTION sweep._trims_pg_cron(command text) RETURNS boolean
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT command COLLATE "C" ~* E'^\\s*(delete\\s+from|truncate(\\s+table)?)\\s+(only\\s+)?"?cron"?\\s*\\.\\s*"?job_run_details\\M'
$$;
COMMENT ON FUNCTION sweep._trims_pg_cron(text) IS 'whether a command begins with a DELETE or TRUNCATE of the history of pg_cron';

-- The job for an entry. In pg_cron entries of two owners may have the same name; the second one gets the name of its owner added.
CREATE FUNCTION sweep._pg_cron_job(entry jsonb, meaning text, zone text, is_second boolean) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name pg_catalog.text := coalesce(entry ->> 'jobname', 'pg_cron_' || (entry ->> 'jobid'));
BEGIN
	IF is_second THEN
		name := name || '_' || (entry ->> 'username');
		WHILE pg_catalog.octet_length(name) > 63 LOOP
			name := pg_catalog.left(name, -1);
		END LOOP;
	END IF;
	RETURN pg_catalog.jsonb_populate_record(NULL::sweep.job_definition, sweep._job_defaults() || pg_catalog.jsonb_build_object(
		'name', name, 'schedule', meaning, 'sql', entry -> 'command', 'timezone', zone, 'run_as', entry ->> 'username'));
END
$$;
COMMENT ON FUNCTION sweep._pg_cron_job(jsonb, text, text, boolean) IS 'the job for an entry of pg_cron; is_second: its name includes that of its role';

CREATE FUNCTION sweep._is_imported(job sweep.job_definition) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM sweep.job_definition j WHERE (j.name, j.schedule, j.sql, pg_catalog.lower(j.timezone COLLATE "C"), j.run_as)
		= (job.name, job.schedule, job.sql, pg_catalog.lower(job.timezone COLLATE "C"), job.run_as))
$$;
COMMENT ON FUNCTION sweep._is_imported(sweep.job_definition) IS 'whether there is this job';

-- Makes those checks of sweep.create_job that are also possible for a job in another database.
CREATE FUNCTION sweep._check_pg_cron_job(caller oid, job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	job := sweep._complete_job(job, NULL);
	PERFORM sweep._check_limits(job), sweep._check_role(caller, job), sweep._check_schedule(job), sweep._check_sql(job.sql);
END
$$;
COMMENT ON FUNCTION sweep._check_pg_cron_job(oid, sweep.job_definition) IS 'raises when the job cannot be created, in whatever database';

-- Creates the job of one entry, if it is for this database, and returns the result. A wrong entry does not stop the import of others.
CREATE FUNCTION sweep._import_pg_cron_entry(caller oid, entry jsonb, dry_run boolean, names text[], OUT job text, OUT definition text, OUT note text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(pg_catalog.current_setting('cron.timezone', true), 'GMT');
	place constant pg_catalog.text := sweep._pg_cron_place(entry);
	wanted sweep.job_definition := sweep._pg_cron_job(entry, entry ->> 'schedule', zone, false);
	second sweep.job_definition;
	remarks pg_catalog.text[];
	hint pg_catalog.text;
	of_role pg_catalog.text;
BEGIN
	BEGIN
		SELECT r.meaning, r.remarks INTO wanted.schedule, remarks
			FROM sweep._read_pg_cron_schedule(entry ->> 'schedule', coalesce(pg_catalog.current_setting('cron.match_dom_and_dow', true), 'off') = 'on') AS r;
		second := sweep._pg_cron_job(entry, wanted.schedule, zone, true);
		SELECT j.run_as INTO of_role FROM sweep.job_definition j WHERE j.name = wanted.name AND place IS NULL;
		IF of_role IS NULL THEN
			SELECT pg_catalog.split_part(u.name, E'\n', 2) INTO of_role FROM pg_catalog.unnest(names) AS u (name)
				WHERE pg_catalog.split_part(u.name, E'\n', 1) = wanted.name AND place IS NOT NULL;
		END IF;
		IF place IS NULL AND (sweep._is_imported(wanted) OR sweep._is_imported(second)) THEN
			wanted := CASE WHEN sweep._is_imported(wanted) THEN wanted ELSE second END;
			note := 'exists already';
		ELSIF sweep._trims_pg_cron(entry ->> 'command') AND sweep._count_statements(entry ->> 'command') = 1 THEN
			note := 'not needed: it trims the history of pg_cron; that of pg_sweep is bounded by pg_sweep.history_per_job and history_max_age';
			job := wanted.name;
			RETURN;
		ELSE
			IF of_role <> wanted.run_as THEN
				wanted := second;
				note := pg_catalog.format('another role has a job of that name: the definition creates it as "%s"', wanted.name);
			END IF;
			IF note IS NOT NULL OR place IS NOT NULL THEN
				PERFORM sweep._check_pg_cron_job(caller, wanted);
				remarks := note || remarks;
				note := coalesce(place, 'name taken: execute the definition');
			ELSE
				PERFORM sweep._create_job(caller, wanted, pg_catalog.quote_ident(wanted.run_as)::pg_catalog.regrole, true, false);
				note := CASE WHEN dry_run THEN 'to be created' ELSE 'created, paused' END;
			END IF;
		END IF;
		IF sweep._count_statements(entry ->> 'command') > 1 THEN
			remarks := remarks || 'pg_cron executes its statements in one transaction, here each has its own unless the text says BEGIN and COMMIT'::pg_catalog.text;
		END IF;
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
		note := 'not created: ' || SQLERRM || CASE WHEN hint <> '' THEN pg_catalog.format(' (%s)', hint) ELSE '' END;
		remarks := pg_catalog.substring(place, '^(.*):') || remarks;
	END;
	IF entry ->> 'active' = 'false' THEN
		remarks := remarks || 'not active in pg_cron'::pg_catalog.text;
	END IF;
	job := wanted.name;
	note := pg_catalog.array_to_string(note || remarks, '; ');
	definition := pg_catalog.format('SELECT sweep.create_job(%L, %L, %L, timezone => %L, run_as => %L, paused => true);',
		wanted.name, wanted.schedule, wanted.sql, zone, pg_catalog.quote_ident(wanted.run_as));
END
$$;
COMMENT ON FUNCTION sweep._import_pg_cron_entry(oid, jsonb, boolean, text[]) IS
	'creates the job of an entry of pg_cron; returns the result, or why it was not created; names: the names of earlier entries in the same database, each with its role in a second line';

-- A dry run does the same and is rolled back, so that its result is exact.
CREATE FUNCTION sweep._import_pg_cron(caller oid, dry_run boolean, OUT jobid bigint, OUT job text, OUT definition text, OUT note text, OUT database text, OUT active boolean)
	RETURNS SETOF record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	entry pg_catalog.jsonb;
	names pg_catalog.jsonb := '{}';
BEGIN
	IF dry_run IS NULL THEN
		RAISE EXCEPTION 'dry_run must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	PERFORM sweep._check_pg_cron(caller);
	FOR entry IN SELECT e.value FROM pg_catalog.jsonb_array_elements(sweep._pg_cron_entries(caller)) AS e LOOP
		jobid := (entry ->> 'jobid')::bigint;
		database := entry ->> 'database';
		active := coalesce((entry ->> 'active')::boolean, true);
		SELECT i.job, i.definition, i.note INTO job, definition, note
			FROM sweep._import_pg_cron_entry(caller, entry, dry_run, ARRAY(SELECT pg_catalog.jsonb_array_elements_text(names -> database))) AS i;
		names := names || pg_catalog.jsonb_build_object(database, coalesce(names -> database, '[]') || pg_catalog.to_jsonb(job || E'\n' || (entry ->> 'username')));
		RETURN NEXT;
	END LOOP;
	IF dry_run THEN
		RAISE SQLSTATE 'SW000';
	END IF;
EXCEPTION WHEN SQLSTATE 'SW000' THEN
	RETURN;
END
$$;
COMMENT ON FUNCTION sweep._import_pg_cron(oid, boolean) IS 'implements sweep.import_pg_cron';

CREATE FUNCTION sweep.import_pg_cron(dry_run boolean DEFAULT true, OUT jobid bigint, OUT job text, OUT definition text, OUT note text, OUT database text, OUT active boolean)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.import_pg_cron(boolean) IS
	'creates paused jobs from the entries of pg_cron that the caller sees and that are for this database, or (dry run) shows what would be created; definition: the call that creates the job, also in another database';
--
-- The views for jobs, runs and retentions.
--
-- OFFSET 0 keeps conditions of the reader out of the subquery, so that neither the counts nor the estimates of EXPLAIN reveal hidden rows.
CREATE VIEW sweep.job WITH (security_barrier) AS
	SELECT j.* FROM sweep.job_definition j WHERE sweep._may_see(j.run_as) OFFSET 0;
COMMENT ON VIEW sweep.job IS 'jobs: what runs, when, within which limits, as whom';

CREATE VIEW sweep.quarantine WITH (security_barrier) AS
	SELECT q.* FROM sweep.job j CROSS JOIN LATERAL (SELECT * FROM sweep.quarantined_item i WHERE i.job = j.name OFFSET 0) AS q OFFSET 0;
COMMENT ON VIEW sweep.quarantine IS 'items that failed, with their errors and when they are tried again';

CREATE VIEW sweep.retentions WITH (security_barrier) AS
	SELECT j.name AS job, j.args ->> 'target' AS target, j.args ->> 'age_column' AS age_column, a.keep,
		v.complete_to, p.proof -> 'kept' AS kept, v.oldest_kept,
		-- Computed from the statistics: planning a statement on the table would execute code of its owner, and wait for locks. Citus cannot
		-- execute an outer join with a condition on three tables in a statement over distributed tables.
		-- Since version 18 the owner of a table may store any numbers as its statistics, so they are bounded.
		(SELECT pg_catalog.round(pg_catalog.sum(least(c.reltuples, 1e13) * sweep._share_older(b.atttypid, coalesce(j.args ->> 'timezone', 'UTC'), a.age_limit, CASE WHEN s.stakind1 = 1 THEN s.stavalues1::pg_catalog.text END,
					CASE WHEN s.stakind1 = 1 THEN s.stanumbers1 END, CASE 2 WHEN s.stakind1 THEN s.stavalues1::pg_catalog.text WHEN s.stakind2 THEN s.stavalues2::pg_catalog.text END, s.stanullfrac)))::bigint
				FROM pg_catalog.pg_class c, pg_catalog.pg_attribute b, pg_catalog.pg_statistic s
				WHERE c.oid = ANY (a.tables) AND c.relkind = 'r' AND c.reltuples >= 0 AND (b.attrelid = c.oid AND b.attname = j.args ->> 'age_column' OR b.attnum = 1 AND b.attrelid IN
						(SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND x.indkey[0] = 0 AND pg_catalog.strpos(j.args ->> 'age_column', pg_catalog.pg_get_indexdef(x.indexrelid, 1, false)) > 0))
					AND s.starelid = b.attrelid AND s.staattnum = b.attnum AND NOT s.stainherit) AS overdue_rows,
		p.proved_at, v.open_since, v.late_rows, CASE WHEN p.run_id IS NULL THEN 'unknown' WHEN v.hidden THEN 'of the rows that the role may see' ELSE 'of all rows' END AS scope, p.run_id
	FROM sweep.job j LEFT JOIN sweep.retention_proof p ON p.job = j.name AND p.run_as = j.run_as AND p.proof -> 'of' = sweep._proof_of(j.args)
			AND sweep._is_home(p.system_identifier, p.database)
		CROSS JOIN LATERAL sweep._retention_age(j.args, j.run_as) AS a CROSS JOIN LATERAL sweep._proof_values(p.proof) AS v
	WHERE j.step = 'sweep.retention_step' OFFSET 0;
COMMENT ON VIEW sweep.retentions IS 'retentions, and up to which age each has proved that no row is left';
COMMENT ON COLUMN sweep.retentions.job IS 'name of the job';
COMMENT ON COLUMN sweep.retentions.target IS 'its table';
COMMENT ON COLUMN sweep.retentions.age_column IS 'the column, or expression, that is the age of a row';
COMMENT ON COLUMN sweep.retentions.keep IS 'for how long rows are kept now';
COMMENT ON COLUMN sweep.retentions.complete_to IS 'at the time of the proof, all rows older than this were gone, except those counted in kept; NULL: not known';
COMMENT ON COLUMN sweep.retentions.kept IS 'how many older rows were left, and why: {"referenced": 3, "condition": 12, "left": 1}, and null_age, rows without an age; up to 10000 each';
COMMENT ON COLUMN sweep.retentions.oldest_kept IS 'the age of the oldest row in kept; NULL: there was none';
COMMENT ON COLUMN sweep.retentions.overdue_rows IS 'estimated number of rows that are older than keep now, including those in kept, from the last ANALYZE; NULL: not analysed, or the role of the job may not read them';
COMMENT ON COLUMN sweep.retentions.proved_at IS 'the time of the proof';
COMMENT ON COLUMN sweep.retentions.open_since IS 'start of the oldest transaction that was in progress then and had written something, which the proof does not see; NULL: there was none';
COMMENT ON COLUMN sweep.retentions.late_rows IS 'how many rows the run found that were older than complete_to of the proof before: inserted, committed or changed since then; up to 10000; NULL: there was no proof before, or the job has parallel';
COMMENT ON COLUMN sweep.retentions.scope IS 'the rows that the proof is about: unknown: nothing is proved in this database; all rows; or the rows that the role may see, as policies may hide others';
COMMENT ON COLUMN sweep.retentions.run_id IS 'the run that has proved it';

CREATE FUNCTION sweep._running(OUT run_id bigint, OUT job text, OUT pid int, OUT phase text, OUT batches bigint, OUT rows bigint,
	OUT last_batch_ms float8, OUT batch_size int, OUT estimated_rows bigint, OUT started_at timestamptz, OUT deadline timestamptz, OUT rows_per_second float8, OUT eta timestamptz, OUT braked_ms bigint)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_running';
COMMENT ON FUNCTION sweep._running() IS 'the runs in progress in this database, from shared memory';

CREATE VIEW sweep.running WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.pid, r.phase, r.batches, r.rows,
		pg_catalog.round(r.rows_per_second::numeric, 1) AS rows_per_second,
		pg_catalog.round(r.last_batch_ms::numeric, 3) AS last_batch_ms, nullif(r.batch_size, 0) AS batch_size, r.estimated_rows,
		CASE WHEN r.estimated_rows IS NOT NULL THEN pg_catalog.round(least(r.rows::numeric / nullif(r.estimated_rows, 0), 1), 3) END AS fraction,
		-- A batch may take longer than the batches before it.
		CASE WHEN r.eta IS NOT NULL THEN greatest(r.eta, pg_catalog.clock_timestamp()) END AS eta, r.started_at, r.deadline, r.braked_ms
	-- The function filters by the role of the run, because the job may have been dropped, or may have another role by now. It reads no table,
	-- since a session could have locked it.
	FROM sweep._running() r;
COMMENT ON VIEW sweep.running IS 'live progress of the runs in progress';

CREATE FUNCTION sweep._missing_worker(role oid, priority int) RETURNS text
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_processes_missing';
COMMENT ON FUNCTION sweep._missing_worker(oid, int) IS 'the setting because of which runs of this role and priority in this database have to wait now; NULL when a run can start';

-- sweep.jobs shows all shares of a dispatch of a divided job as one run.
CREATE FUNCTION sweep._last_dispatch(job text, run_as text, newest bigint) RETURNS TABLE (run_id bigint, status sweep.run_status, stop_reason sweep.run_stop_reason,
	started_at timestamptz, finished_at timestamptz, rows bigint, sqlstate text, error text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	first bigint := newest;
	parent bigint;
	shares bigint[];
	added bigint[];
	tried_again bigint[];
BEGIN
	LOOP
		parent := (SELECT r.parent_run_id FROM sweep._run r WHERE r.run_id = first);
		EXIT WHEN NOT EXISTS (SELECT FROM sweep._run r WHERE r.run_id = parent AND r.job = _last_dispatch.job AND r.run_as = _last_dispatch.run_as);
		first := parent;
	END LOOP;
	-- The run that has divided the job is a run of the job itself, or of its parent.
	shares := ARRAY[first] || ARRAY(SELECT r.run_id FROM sweep._run r WHERE r.parent_run_id = parent AND r.job = _last_dispatch.job AND r.run_as = _last_dispatch.run_as AND r.run_id <> first);
	added := shares;
	WHILE pg_catalog.cardinality(added) > 0 LOOP
		added := ARRAY(SELECT r.run_id FROM sweep._run r WHERE r.parent_run_id = ANY (added) AND r.job = _last_dispatch.job AND r.run_as = _last_dispatch.run_as);
		shares := shares || added;
	END LOOP;
	tried_again := ARRAY(SELECT r.parent_run_id FROM sweep._run r WHERE r.parent_run_id = ANY (shares) AND r.trigger = 'retry' AND r.finished_at IS NOT NULL);
	RETURN QUERY SELECT pg_catalog.min(a.run_id), (pg_catalog.array_agg(a.status ORDER BY a.rank, a.finished_at DESC, a.run_id))[1],
			(pg_catalog.array_agg(a.stop_reason ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], pg_catalog.min(a.started_at), pg_catalog.max(a.finished_at),
			least(pg_catalog.sum(a.rows), 9223372036854775807)::bigint,
			(pg_catalog.array_agg(a.sqlstate ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], (pg_catalog.array_agg(a.error ORDER BY a.rank, a.finished_at DESC, a.run_id))[1]
		-- A run that was skipped, has not ended or was tried again does not count; its rows do.
		FROM (SELECT r.*, CASE WHEN r.finished_at IS NOT NULL AND r.run_id <> ALL (tried_again)
				THEN pg_catalog.array_position('{failed,lost,cancelled,succeeded}'::pg_catalog.text[], r.status::pg_catalog.text) END AS rank
			FROM sweep._run r WHERE r.run_id = ANY (shares)) AS a;
END
$$;
COMMENT ON FUNCTION sweep._last_dispatch(text, text, bigint) IS 'the common result of all shares of the dispatch to which a run of a divided job belongs; for sweep.jobs';

-- Does not contain the error text, which readers of the new role must not see.
CREATE FUNCTION sweep._failure(job sweep.job_definition, failed_before text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	last pg_catalog.record;
BEGIN
	SELECT r.run_id, coalesce(d.status, r.status) AS status INTO last
		FROM (SELECT a.run_id, a.status FROM sweep._run a WHERE a.job = job.name AND a.run_as = job.run_as AND a.finished_at IS NOT NULL AND a.status <> 'skipped'
				ORDER BY a.run_id DESC LIMIT 1) AS r
			LEFT JOIN LATERAL sweep._last_dispatch(job.name, job.run_as, r.run_id) AS d ON job.buckets IS NOT NULL;
	RETURN CASE WHEN NOT FOUND THEN failed_before
		WHEN last.status IN ('failed', 'lost') THEN pg_catalog.format('run %s %s as role "%s"', last.run_id, CASE last.status WHEN 'lost' THEN 'was lost' ELSE 'failed' END, job.run_as) END;
END
$$;
COMMENT ON FUNCTION sweep._failure(sweep.job_definition, text) IS 'the text that describes the failure of the last run of a job that is given to another role; NULL: it did not fail';

-- The list of columns of the view sweep.jobs and of the functions that it reads.
CREATE TYPE sweep._seen_job AS (name text, schedule text, sql text, batch_sql text, step text, timezone text, next_run timestamptz, paused boolean, state text, since timestamptz,
	last_run_id bigint, last_status sweep.run_status, last_stop_reason sweep.run_stop_reason, last_started_at timestamptz, last_rows bigint, last_duration interval,
	last_error text, run_as text, description text);
COMMENT ON TYPE sweep._seen_job IS 'a row of sweep.jobs';

-- This has to be fast with 100,000 jobs. The right to see a job is checked once per role. sweep._job_problem() is called once for
-- all jobs with equal values of the settings that it reads. The last run is found along an index. The JIT compiler is off: the
-- planner overestimates the cost, and compiling would take longer than the query.
CREATE FUNCTION sweep.__seen_jobs(caller oid) RETURNS SETOF sweep._seen_job
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	all_paused constant boolean := EXISTS (SELECT FROM sweep.control);
	no_scheduler constant pg_catalog.text := sweep._no_scheduler();
	watches constant boolean := sweep._acts_for(caller, 'sweep_monitor');
BEGIN
	RETURN QUERY WITH role AS MATERIALIZED (
		SELECT r.run_as FROM (SELECT DISTINCT j.run_as FROM sweep.job_definition j OFFSET 0) AS r WHERE watches OR sweep._may_act_on(caller, r.run_as, true)
	), seen AS MATERIALIZED (
		SELECT j.name, j.schedule, j.sql, j.batch_sql, j.step, j.timezone, j.run_as, j.description, j.priority, j.buckets, s.failed_before, s.next_due, s.next_start, s.paused_at IS NOT NULL AS paused, s.broken,
				h.at_home, CASE WHEN NOT h.at_home THEN 'paused: the database is a copy' WHEN all_paused OR s.all_paused_at IS NOT NULL THEN 'paused: by pause_all'
					WHEN s.paused_at IS NOT NULL THEN 'paused' END AS held_back,
				-- All settings that sweep._job_problem() reads must be in this list.
				ARRAY[j.run_as, j.step, j.pick, j.rescue, j.buckets_function, j.schedule, j.timezone, CASE WHEN j.buckets IS NOT NULL THEN j.bucket_store END, s.as_user::pg_catalog.text] AS looked_at
			FROM role JOIN sweep.job_definition j ON j.run_as = role.run_as JOIN sweep.job_state s ON s.job = j.name
				CROSS JOIN LATERAL (SELECT sweep._is_home(s.system_identifier, s.database) AS at_home OFFSET 0) AS h
	), problem AS MATERIALIZED (
		SELECT k.looked_at, sweep._job_problem(j, t.as_user) AS reason
			FROM (SELECT s.looked_at, pg_catalog.min(s.name) AS name FROM seen s GROUP BY s.looked_at) AS k JOIN sweep.job_definition j ON j.name = k.name JOIN sweep.job_state t ON t.job = k.name
	), live AS MATERIALIZED (
		-- Without a scheduler it is not recorded when the process of a run has gone.
		SELECT r.job, r.run_as, pg_catalog.bool_or(r.status = 'running' AND (no_scheduler IS NULL OR sweep._run_is_alive(r.run_id))) AS running,
				pg_catalog.min(r.started_at) FILTER (WHERE r.status = 'running') AS started_at, pg_catalog.bool_or(r.status = 'waiting' AND r.trigger = 'manual') AS started,
				pg_catalog.bool_or(r.status = 'waiting' AND r.trigger <> 'manual') AS due, pg_catalog.min(r.due_at) FILTER (WHERE r.status = 'waiting') AS due_at
			FROM sweep.run_live r
			WHERE r.pid IS NOT NULL AND r.status = 'running' OR r.pid IS NULL AND r.status = 'waiting' AND r.due_at < pg_catalog.statement_timestamp() - interval '1 s'
			GROUP BY r.job, r.run_as
	), ended AS MATERIALIZED (
		SELECT DISTINCT ON (r.job, r.run_as) r.* FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL AND r.status <> 'skipped'
			ORDER BY r.job, r.run_as, r.run_id DESC
	)
	SELECT s.name, s.schedule, s.sql, s.batch_sql, s.step, s.timezone, s.next_due, s.paused,
			CASE
				WHEN coalesce(problem.reason, s.broken) IS NOT NULL THEN 'broken: ' || coalesce(problem.reason, s.broken)
				WHEN live.running THEN CASE WHEN s.held_back IS NOT NULL THEN 'paused (running)' ELSE 'running' END
				WHEN no_scheduler IS NOT NULL AND (s.held_back IS NULL OR live.started AND s.at_home) THEN 'no_scheduler: ' || no_scheduler
				-- A run that was started by hand begins although the job is paused.
				WHEN live.started AND s.at_home OR (live.started OR live.due) AND s.held_back IS NULL
					THEN 'waiting_for_slot' || coalesce(': ' || sweep._missing_worker(sweep._role_oid(s.run_as), s.priority), '')
				WHEN s.held_back IS NOT NULL THEN s.held_back
				-- The job is due, and no scheduler has queued its run.
				WHEN s.next_start < pg_catalog.statement_timestamp() - interval '1 s' AND sweep._missing_worker(sweep._role_oid(s.run_as), s.priority) IS NOT NULL
					THEN 'waiting_for_slot: ' || sweep._missing_worker(sweep._role_oid(s.run_as), s.priority)
				WHEN s.next_start < pg_catalog.statement_timestamp() - interval '10 s' THEN 'overdue'
				WHEN last.sqlstate ~ '^(42|3D|3F)' THEN 'broken: ' || pg_catalog.split_part(last.error, E'\n', 1)
				WHEN last.status IN ('failed', 'lost') OR last.run_id IS NULL AND s.failed_before IS NOT NULL THEN 'failing'
				ELSE 'idle'
			END,
			-- since
			CASE
				WHEN live.running THEN live.started_at
				WHEN live.started AND s.at_home OR (live.started OR live.due) AND s.held_back IS NULL THEN live.due_at
				WHEN s.held_back IS NULL AND s.next_start < pg_catalog.statement_timestamp() - interval '1 s' THEN s.next_start
			END,
			last.run_id, last.status, last.stop_reason, last.started_at, last.rows, sweep._elapsed(last.started_at, last.finished_at),
			CASE WHEN last.run_id IS NULL THEN s.failed_before ELSE last.error END, s.run_as, s.description
		FROM seen s
			LEFT JOIN problem ON problem.looked_at = s.looked_at
			LEFT JOIN live ON live.job = s.name AND live.run_as = s.run_as
			-- Only runs of this role: a job of the same name of another role is a different job.
			LEFT JOIN ended ON ended.job = s.name AND ended.run_as = s.run_as
			LEFT JOIN LATERAL (SELECT * FROM sweep.run_history h WHERE h.job = s.name AND h.run_as = s.run_as AND h.status <> 'skipped'
				ORDER BY h.run_id DESC LIMIT 1) AS archived ON true
			LEFT JOIN LATERAL (SELECT ended.* WHERE ended.run_id > coalesce(archived.run_id, 0) UNION ALL
				SELECT archived.* WHERE archived.run_id > coalesce(ended.run_id, 0)) AS newest ON true
			LEFT JOIN LATERAL (
				SELECT newest.run_id, newest.status, newest.stop_reason, newest.started_at, newest.finished_at, newest.rows, newest.sqlstate, newest.error
					WHERE s.buckets IS NULL
				UNION ALL
				SELECT d.* FROM sweep._last_dispatch(s.name, s.run_as, newest.run_id) d WHERE s.buckets IS NOT NULL AND newest.run_id IS NOT NULL
			) AS last ON true;
END
$$;
COMMENT ON FUNCTION sweep.__seen_jobs(oid) IS 'implements sweep._seen_jobs';

CREATE FUNCTION sweep._seen_jobs() RETURNS SETOF sweep._seen_job
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._seen_jobs() IS 'the jobs that the caller may see; for sweep.jobs';

CREATE VIEW sweep.jobs WITH (security_barrier) AS
	SELECT * FROM sweep._seen_jobs();
COMMENT ON VIEW sweep.jobs IS 'jobs with their state and the result of their last run';

DO $$
DECLARE
	note pg_catalog.text[];
BEGIN
	FOREACH note SLICE 1 IN ARRAY ARRAY[
		['running', 'run_id', 'number of the run'], ['running', 'job', 'name of the job'], ['running', 'pid', 'its process'],
		['running', 'phase', 'starting, lock (trying to take it), estimate (finding out how many rows there are to process), step, commit, standby (its commit waits for a synchronous standby), braked (pausing between two batches) or ending'],
		['running', 'batches', 'batches committed so far'], ['running', 'rows', 'rows handled so far'],
		['running', 'rows_per_second', 'rows per second from its first batch to its last commit, without the time in braked_ms'], ['running', 'last_batch_ms', 'how long the last batch took'],
		['running', 'batch_size', 'present maximal number of rows of a batch, less than that of the job after batches that took too long; NULL: a job with sql, whose batches are its statements'],
		['running', 'estimated_rows', 'result of the estimate of the job, or the rows of the last run that drained; at most as many as the limits of the run allow. NULL: not known'],
		['running', 'fraction', 'rows as a part of estimated_rows, from 0 to 1'], ['running', 'eta', 'when all rows will be processed, at the rate so far; NULL: not known'], ['running', 'started_at', 'when it had its lock'],
		['running', 'deadline', 'when its stop_after or its timeout ends, whichever is first'],
		['running', 'braked_ms', 'time in pauses between its batches so far'],
		['jobs', 'name', 'name of the job'], ['jobs', 'schedule', 'its schedule; NULL: started by hand only'],
		['jobs', 'sql', 'what it executes once'], ['jobs', 'batch_sql', 'or the statement that does a batch'], ['jobs', 'step', 'or the function that does'],
		['jobs', 'timezone', 'time zone of the schedule'], ['jobs', 'next_run', 'next moment of the schedule'],
		['jobs', 'paused', 'whether this job alone is paused (sweep.pause); state also shows whether all jobs are paused, or the database is a copy'],
		['jobs', 'state', 'running, no_scheduler: (and why), waiting_for_slot: (and the setting that limits it), overdue, paused: (and by what), paused (running): a run goes on to its end, failing: the last run failed, broken: (and why), or idle'],
		['jobs', 'since', 'since when a run is in progress, or is waiting to begin, or else since when the schedule has been due; NULL: none of these'],
		['jobs', 'last_run_id', 'the last run that ended and was not skipped; for a divided job the run that made the last dispatch: the next columns are about all of its shares'],
		['jobs', 'last_status', 'how it ended; for several shares: failed if one has failed and was not tried again, else lost or cancelled'],
		['jobs', 'last_stop_reason', 'why it ended'], ['jobs', 'last_started_at', 'when it had its lock'],
		['jobs', 'last_rows', 'rows it handled, all shares together'], ['jobs', 'last_duration', 'how long it took'], ['jobs', 'last_error', 'its error'],
		['jobs', 'run_as', 'role the job runs as'], ['jobs', 'description', 'free text that says what the job is for']] LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
	FOR note IN SELECT ARRAY[v.name, a.attname, pg_catalog.col_description(a.attrelid, a.attnum)]
			FROM (VALUES ('job', 'sweep.job_definition'::pg_catalog.regclass), ('quarantine', 'sweep.quarantined_item'), ('_seen_job', 'sweep.jobs'), ('_seen_queue', 'sweep.queues')) AS v (name, of)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = v.of AND a.attnum > 0 LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
END
$$;
--
-- Roles of the extension, and all of its grants.
--
DO $$
DECLARE
	wanted pg_catalog.text;
BEGIN
	FOREACH wanted IN ARRAY ARRAY['sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'sweep_client'] LOOP
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = wanted) THEN
			EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted);
			-- Only when the role is created: if an administrator has revoked the membership, CREATE EXTENSION in another database
			-- does not grant it again.
			IF wanted = 'sweep_monitor' THEN
				GRANT sweep_monitor TO pg_monitor;
			END IF;
		END IF;
	END LOOP;
END
$$;

-- A new object has privileges that its extension did not grant: PUBLIC may execute a function and use a type, and ALTER DEFAULT PRIVILEGES of
-- the database adds others. pg_init_privs has the grants of the extension for each object on which its script has granted or revoked anything.
-- An administrator may grant SELECT on a view, EXECUTE on a public function, and USAGE on a public type or the schema.
CREATE FUNCTION sweep._foreign_grants(extension name) RETURNS SETOF text
	LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('REVOKE %s ON %s %s FROM %s CASCADE', pg_catalog.string_agg(DISTINCT g.privilege_type, ', '), o.kind, o.name,
			CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::pg_catalog.regrole::pg_catalog.text END)
	FROM pg_catalog.pg_extension e
	JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	CROSS JOIN LATERAL (
		SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::pg_catalog.regclass::pg_catalog.text, c.relowner, c.relacl, CASE c.relkind WHEN 'v' THEN 'SELECT' END
			FROM pg_catalog.pg_class c WHERE (c.tableoid, c.oid) = (d.classid, d.objid)
		UNION ALL SELECT 'TABLE', c.oid::pg_catalog.regclass::pg_catalog.text, c.relowner, a.attacl, CASE c.relkind WHEN 'v' THEN 'SELECT' END
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid WHERE (c.tableoid, c.oid) = (d.classid, d.objid) AND a.attacl IS NOT NULL
		UNION ALL SELECT 'ROUTINE', p.oid::pg_catalog.regprocedure::pg_catalog.text, p.proowner, coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), CASE WHEN p.proname NOT LIKE E'\\_%' THEN 'EXECUTE' END
			FROM pg_catalog.pg_proc p WHERE (p.tableoid, p.oid) = (d.classid, d.objid)
		UNION ALL SELECT 'TYPE', t.oid::pg_catalog.regtype::pg_catalog.text, t.typowner, coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner)), CASE WHEN t.typname NOT LIKE E'\\_%' THEN 'USAGE' END
			FROM pg_catalog.pg_type t WHERE (t.tableoid, t.oid) = (d.classid, d.objid)
				-- Since version 18 array types and row types of tables are members of the extension, too. An array type has the
				-- privileges of its element type; default privileges never apply to the row type of a table.
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_type AS element WHERE element.typarray = t.oid)
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = t.typrelid AND c.relkind <> 'c')
		UNION ALL SELECT 'SCHEMA', n.oid::pg_catalog.regnamespace::pg_catalog.text, n.nspowner, n.nspacl, 'USAGE'
			FROM pg_catalog.pg_namespace n WHERE (n.tableoid, n.oid) = (d.classid, d.objid)
	) AS o (kind, name, owner, acl, may_be_added)
	LEFT JOIN pg_catalog.pg_init_privs i ON i.classoid = d.classid AND i.objoid = d.objid AND i.objsubid = 0
	CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS g
	WHERE e.extname = extension AND g.grantee <> o.owner
		AND NOT EXISTS (SELECT FROM pg_catalog.aclexplode(i.initprivs) AS own WHERE (own.grantee, own.privilege_type) = (g.grantee, g.privilege_type))
		AND (g.privilege_type = o.may_be_added AND g.grantee <> 0 AND i.initprivs IS NOT NULL) IS NOT TRUE
	GROUP BY o.kind, o.name, g.grantee
$$;
COMMENT ON FUNCTION sweep._foreign_grants(name) IS 'the REVOKE statements for privileges on objects of pg_sweep or pg_sweep_gitlab that the extension did not grant, and that an administrator has no reason to grant';

-- Called by each script that creates objects, after their creation and before the grants.
CREATE FUNCTION sweep._revoke_foreign_grants(extension name) RETURNS void
	LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	line pg_catalog.text;
BEGIN
	FOR line IN SELECT sweep._foreign_grants(extension) LOOP
		EXECUTE line;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._revoke_foreign_grants(name) IS 'executes what sweep._foreign_grants lists';

-- A dump of a database with such privileges restores them.
CREATE FUNCTION sweep._warn_of_foreign_grants() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found pg_catalog.record;
BEGIN
	FOR found IN SELECT e.extname, pg_catalog.count(*) AS many, pg_catalog.min(line) AS first FROM pg_catalog.pg_extension e, sweep._foreign_grants(e.extname) AS line
			WHERE e.extname IN ('pg_sweep', 'pg_sweep_gitlab') GROUP BY e.extname ORDER BY e.extname LOOP
		RAISE WARNING 'privileges on objects of extension % were granted that it does not grant', found.extname
			USING ERRCODE = 'invalid_grant_operation',
				DETAIL = pg_catalog.format('There are %s of them. This revokes the first: %s', found.many, found.first),
				HINT = pg_catalog.format('Look at them with: SELECT sweep._foreign_grants(%L); take them back with: SELECT sweep._revoke_foreign_grants(%1$L).', found.extname);
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._warn_of_foreign_grants() IS 'warns of the privileges that sweep._foreign_grants lists, for both extensions';

SELECT sweep._revoke_foreign_grants('pg_sweep');

GRANT USAGE ON SCHEMA sweep TO sweep_admin, sweep_operator, sweep_user, sweep_monitor, sweep_client;
GRANT USAGE ON TYPE sweep.batch, sweep.progress TO sweep_admin, sweep_user;
GRANT USAGE ON TYPE sweep.message TO sweep_admin, sweep_user, sweep_client;

-- Views, and the functions that they call with the rights of the reader.
GRANT SELECT ON sweep.job, sweep.quarantine, sweep.jobs, sweep.runs, sweep.running, sweep.buckets, sweep.queues, sweep.retentions TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._may_see(text), sweep._running(), sweep._seen_jobs(), sweep._seen_queues(), sweep._consumer_processes(), sweep._consumer_problem(sweep.consumer),
	sweep._find_handlers(text), sweep._handler_problem(text), sweep._role_problem(text, boolean), sweep._role_oid(text), sweep._acts_for(oid, text), sweep._execute_problem(text, regprocedure),
	sweep._owner_problem(text, regprocedure), sweep._is_trusted(regprocedure, text), sweep._is_home(bigint, oid), sweep._no_scheduler(), sweep._proof_of(jsonb), sweep._proof_values(jsonb), sweep._retention_age(jsonb, text), sweep._share_older(oid, text, timestamptz, text, real[], text, real) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- Jobs: each function checks the rights of its caller.
GRANT EXECUTE ON FUNCTION sweep.create_job, sweep.alter_job(text, jsonb), sweep.drop_job(text, boolean), sweep.import_pg_cron(boolean) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.create_retention, sweep.create_backfill, sweep.create_copy, sweep.create_partitions, sweep.switch_copy, sweep.delete, sweep.batched TO sweep_admin, sweep_user;
-- Steps, and the functions that their statements call as the role of the job.
GRANT EXECUTE ON FUNCTION sweep.retention_step(sweep.batch), sweep.delete_step(sweep.batch), sweep.backfill_step(sweep.batch), sweep.copy_step(sweep.batch), sweep.partitions_step(sweep.batch), sweep.update_step(sweep.batch), sweep.range_count(sweep.batch),
	sweep._reference_exists(oid, VARIADIC "any"), sweep._drop_partition(text, text, text, boolean, boolean, jsonb), sweep._drop_too_old(text, text, text, text, timestamptz, jsonb), sweep._writers(regclass), sweep._settle(text, jsonb, bigint, jsonb),
	sweep._change_batch(jsonb, jsonb, jsonb, int, bigint, text), sweep._begin_changes(jsonb, jsonb, jsonb), sweep._check_acting(oid, regclass, regclass), sweep._owns(oid, oid),
	sweep._next_blocks(regclass, text, jsonb, int), sweep._capture_changes(jsonb), sweep._apply_changes(jsonb, bigint, text), sweep._holders(text[]), sweep._copy_shape(jsonb, regclass, regclass), sweep._table_name(regclass), sweep._type_name(oid, int), sweep._base_type(oid), sweep._read_key(regclass, text[], jsonb), sweep._may_keep(regclass),
	sweep._switch_batch(jsonb, jsonb, jsonb, bigint, text, interval), sweep._switch(jsonb, jsonb, text), sweep._end_switch(jsonb), sweep._check_switch(jsonb, regclass, regclass, oid, boolean), sweep._old_name(jsonb, regclass),
	sweep._exchange_lines(regclass, regclass), sweep._sequences(regclass, regclass), sweep._stays_settings(regclass, regclass, text), sweep._stays_others(regclass, regclass, oid, text),
	sweep._comment_line(text, oid, text), sweep._privileges(regclass),
	sweep._bounds(regclass, regclass), sweep._key_ordering(text, text[]), sweep._check_ordering(text, text[], jsonb, text), sweep._check_copied(jsonb, jsonb), sweep._check_columns(text, text[], text[]), sweep._archive_columns(regclass, regclass), sweep._check_heirs(regclass), sweep._is_partitioned(regclass), sweep._refuse_age_type(text, text), sweep._lock_table(regclass, boolean, text), sweep._lock_default(regclass, regclass, text), sweep._await_turn(jsonb), sweep._note_try(jsonb, text, text[]), sweep._check_visible(regclass), sweep._is_referred_to(regclass, regclass), sweep._referencing(regclass, text, text), sweep._referring_source(regclass, text),
	sweep._cast_to(oid, oid), sweep._collation_of(oid, oid), sweep._age_limit(text, jsonb), sweep._partition_key(regclass), sweep._interval_parts(interval), sweep._grid_bound(text, jsonb, bigint), sweep._grid_place(text, jsonb, text),
	sweep._present(regclass, text, text, jsonb, timestamptz), sweep._missing_range(regclass, text, jsonb, bigint, bigint), sweep._missing_ranges(regclass, text, jsonb, bigint, bigint, int), sweep._check_range(regclass, sweep._partition_range), sweep._range_type(text),
	sweep._left_behind(regclass, text, text, jsonb, bigint), sweep._partition_name(regclass, text), sweep._fitting_name(text, text), sweep._create_like(regclass, regclass, text), sweep._equip_like(regclass, regclass, text[]),
	sweep._finish_partition(regclass, regclass), sweep._default_part(regclass), sweep._switch_triggers(jsonb, boolean), sweep._firing_triggers(regclass),
	sweep._attach_with_rows(anyarray, regclass, regclass, regclass, text, text, int, text), sweep._default_extent(regclass, text), sweep._exchange_default(regclass, regclass, text, jsonb, bigint, bigint),
	sweep._check_default(regclass, regclass, text, int), sweep._make_of_default(regclass, regclass, text, text, jsonb), sweep._newest_part(regclass, text),
	sweep._make_partitions(regclass, text, text, jsonb, sweep._partition_range[], regclass, int, text), sweep._find_missing(regclass, sweep.batch, jsonb, text, text, bigint), sweep._make_next(regclass, sweep.batch, text), sweep._drop_next(regclass, sweep.batch, jsonb),
	sweep._emptying_names(regclass), sweep._is_emptying(text), sweep._drop_emptying(text, text), sweep._emptying_key(regclass, text, text), sweep._check_emptying(regclass, regclass), sweep._key_of_default(regclass, text, text, text, text, text),
	sweep._gap_at(regclass, regclass, text, text, jsonb, text), sweep._ranges_to_fill(regclass, regclass, text, text, jsonb, int, boolean), sweep._all_to_fill(regclass, regclass, text, text, jsonb, int, bigint),
	sweep._begin_emptying(regclass, regclass, text, text, jsonb, int, bigint), sweep._fill_next(regclass, jsonb, jsonb, int, text), sweep._transactions(), sweep._exchange_emptied(regclass, regclass, jsonb, int, text),
	sweep._emptying_texts(regclass, regclass), sweep._empty_next(regclass, int, jsonb, text), sweep._change_texts(jsonb, regclass, regclass, text[], text[], text[]), sweep._collate_as(regclass, text), sweep._keeps_key(regclass, regclass, text[], text[]), sweep._insert_text(regclass, regclass, text[], text[], text), sweep._copy_columns(regclass, regclass), sweep._changes_name(regclass),
	sweep._index_key(oid), sweep._index_expression(oid), sweep._is_unique(regclass, text[]), sweep._never_null(oid, int), sweep._key_expression(regclass, text), sweep._key_list(regclass, text[]), sweep._key_compare(regclass, text[], text, text),
	sweep._has_names(oid), sweep._key_value(anyelement), sweep._read_value(text, anyelement), sweep._key_values(regclass, text[]), sweep._key_json(regclass, text[], text), sweep._key_order(regclass, text[], text[], boolean), sweep._edge_statements(regclass, regclass, text[], text[], text, boolean), sweep._column_list(text[]), sweep._qualified_list(text, text[]),
	sweep._relation_name(regclass), sweep._source(regclass, regclass),
	sweep._least_seconds(interval), sweep._check_every(text, text), sweep._check_origin(text, text), sweep._life_args(regclass, text, text, int, interval, text, text, text), sweep._check_detachable(regclass), sweep._partitions_batch(sweep.batch, text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.run(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.preview(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.try_lock(text), sweep.release_lock(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause(text), sweep.resume(text), sweep.start(text, jsonb, interval, timestamptz), sweep.cancel(bigint)
	TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON FUNCTION sweep._lock_number(oid, text) TO sweep_admin;
GRANT EXECUTE ON FUNCTION sweep.pause_all(), sweep.resume_all() TO sweep_admin, sweep_operator;
GRANT EXECUTE ON PROCEDURE sweep.wait(bigint, interval) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

GRANT EXECUTE ON FUNCTION sweep.release_quarantine(text, jsonb) TO sweep_admin, sweep_operator, sweep_user;

-- Queues.
GRANT EXECUTE ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text, boolean), sweep.drop_queue(text, boolean), sweep.purge_queue(text),
	sweep.grant_queue(text, regrole, text[]), sweep.revoke_queue(text, regrole, text[]) TO sweep_admin, sweep_user;
-- Rights of applications, whose roles sweep.grant_queue makes members of sweep_client.
GRANT EXECUTE ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb), sweep.send_many(text, jsonb[], text[], interval, int),
	sweep.claim(text, int, interval), sweep.ack(uuid, bigint[]), sweep.fail(uuid, text, bigint[]), sweep.release(uuid, bigint[]),
	sweep.extend(uuid, interval), sweep.messages(text, text, int), sweep.cancel_message(text, bigint, text) TO sweep_admin, sweep_user, sweep_client;
GRANT EXECUTE ON FUNCTION sweep.dead(text), sweep.done(text), sweep._ended_page(text, boolean, timestamptz, bigint), sweep.redrive(text, jsonb, int, boolean) TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.wait_for_message(text, interval) TO sweep_admin, sweep_user, sweep_client;

-- Consumers in the database, and keys for those outside.
GRANT EXECUTE ON FUNCTION sweep.create_consumer(text, text, int, int, regrole, boolean), sweep.alter_consumer(text, jsonb), sweep.drop_consumer(text, boolean),
	sweep.begin_once(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_consumer(text), sweep.resume_consumer(text) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.consumers TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The launcher starts a scheduler here when this has committed.
SELECT sweep._wake();
