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
