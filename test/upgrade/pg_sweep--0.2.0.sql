\echo Use "CREATE EXTENSION pg_sweep" to load this file. \quit
--
-- The shapes that cross the border between SQL and C.
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
COMMENT ON COLUMN sweep.progress.detail IS 'merged by key into the detail of the run: numbers are added, arrays appended, of anything else the last one stands';
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

-- Asked of all jobs at once: one that cannot be read must not keep the others from being found. Words and cases as in cron.c.
CREATE FUNCTION sweep._is_reboot(schedule text)
RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN schedule COLLATE pg_catalog."C" ~* E'^[ \\t\\n\\v\\f\\r]*@reboot[ \\t\\n\\v\\f\\r]*$';

COMMENT ON FUNCTION sweep._is_reboot(text) IS
'Is the schedule @reboot, due when the scheduler starts and at no other moment? No when it cannot be read.';
--
-- What should run, when, within which limits, and as whom.
--
-- sweep.job is the definition, written only by the functions below; sweep.job_state is what time
-- made of it, a small row that the scheduler updates. A public function is a C dispatcher that calls
-- its namesake with a leading underscore as the owner of the extension and passes the caller's role.
--
CREATE TABLE sweep.job (
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
	CONSTRAINT job_transaction_check CHECK (transaction IN ('batch', 'row')),
	CONSTRAINT job_overlap_check CHECK (overlap IN ('skip', 'queue_one', 'cancel_previous')),
	CONSTRAINT job_catch_up_check CHECK (catch_up IN ('once', 'skip', 'all')),
	CONSTRAINT job_cursor_check CHECK (cursor IN ('run', 'drain', 'always')),
	CONSTRAINT job_flush_check CHECK (flush IN ('run', 'batch')),
	CONSTRAINT job_bucket_store_check CHECK (bucket_store IN ('table', 'redis'))
);
CREATE INDEX job_lock_key_idx ON sweep.job (lock_key);
COMMENT ON INDEX sweep.job_lock_key_idx IS 'for sweep.try_lock';
COMMENT ON TABLE sweep.job IS 'jobs: what runs, when, within which limits, as whom';
COMMENT ON COLUMN sweep.job.name IS 'name of the job';
COMMENT ON COLUMN sweep.job.step IS 'function(sweep.batch) that does one batch, schema-qualified; NULL when sql or batch_sql is set';
COMMENT ON COLUMN sweep.job.sql IS 'statements that are executed once, each in a transaction of its own unless they say BEGIN; NULL when batch_sql or step is set';
COMMENT ON COLUMN sweep.job.batch_sql IS 'statement that does one batch: $1 is the batch size, $2 the batch; NULL when sql or step is set';
COMMENT ON COLUMN sweep.job.schedule IS 'cron expression or interval; NULL: started by hand only';
COMMENT ON COLUMN sweep.job.timezone IS 'time zone of the schedule, whether there is one or not';
COMMENT ON COLUMN sweep.job.args IS 'args of every batch; the args of a run are merged over them';
COMMENT ON COLUMN sweep.job.pick IS 'function(sweep.batch) RETURNS SETOF jsonb that picks the items of a batch; NULL: the step finds its rows itself';
COMMENT ON COLUMN sweep.job.rescue IS 'function(sweep.batch, error jsonb) RETURNS sweep.progress for the single item that the step fails with';
COMMENT ON COLUMN sweep.job.transaction IS 'batch: the items of a batch are committed together; row: each by itself';
COMMENT ON COLUMN sweep.job.row_retries IS 'further tries, at once, when items fail for a passing reason';
COMMENT ON COLUMN sweep.job.flush IS 'run: the last commit of a run waits for the disk; batch: every commit does; NULL: the last one does, and those that other servers take part in';
COMMENT ON COLUMN sweep.job.batch_size IS 'rows of one batch at most';
COMMENT ON COLUMN sweep.job.max_batches IS 'batches of one run at most; NULL: no limit';
COMMENT ON COLUMN sweep.job.max_rows IS 'rows of one run at most; NULL: no limit';
COMMENT ON COLUMN sweep.job.stop_after IS 'no new batch begins after this time; NULL: no limit';
COMMENT ON COLUMN sweep.job.lock_key IS 'name of the lock that a run holds; jobs of a role that share it exclude each other';
COMMENT ON COLUMN sweep.job.timeout IS 'a run is stopped after this time, its batch in flight rolled back; NULL: no limit';
COMMENT ON COLUMN sweep.job.pause IS 'time between two batches in which a run does nothing; NULL: none';
COMMENT ON COLUMN sweep.job.settings IS 'settings of a run, on top of those of its role: {"work_mem": "256MB"}';
COMMENT ON COLUMN sweep.job.lock_retries IS 'further tries to take the lock';
COMMENT ON COLUMN sweep.job.lock_retry_delay IS 'pause between two tries to take the lock';
COMMENT ON COLUMN sweep.job.max_attempts IS 'runs that one due moment may take when they fail';
COMMENT ON COLUMN sweep.job.overlap IS 'what happens when the job is due while a run of it is in progress: skip, queue_one, cancel_previous';
COMMENT ON COLUMN sweep.job.catch_up IS 'what happens to due moments that passed unseen: once, skip, all';
COMMENT ON COLUMN sweep.job.jitter IS 'a start is delayed by a random time up to this';
COMMENT ON COLUMN sweep.job.cursor IS 'how long the cursor is kept: run: until the run ends; drain: until a run drains; always: for good';
COMMENT ON COLUMN sweep.job.estimate IS 'SELECT of one number, the rows that there are to do: asked when a run starts; $1 is the batch. NULL: those of the last run that drained';
COMMENT ON COLUMN sweep.job.run_as IS 'name of the role the job runs as; a name, because the number of a role is that of another one where a dump is restored';
COMMENT ON COLUMN sweep.job.on_start IS 'jobs that each run of this one queues a run of when it starts, with the delays: {"name": "15 min"}';
COMMENT ON COLUMN sweep.job.on_success IS 'the same when a run has succeeded, of a divided job all shares together';
COMMENT ON COLUMN sweep.job.on_failure IS 'the same when a run has failed or was lost, and is not tried again';
COMMENT ON COLUMN sweep.job.alert_queue IS 'queue that is told when a run has failed, and when the job is broken; NULL: pg_sweep.alert_queue, if there is one';
COMMENT ON COLUMN sweep.job.priority IS 'which run gets the next free worker: the one of the highest priority';
COMMENT ON COLUMN sweep.job.buckets IS 'number of shares the job is divided into; NULL: it is not';
COMMENT ON COLUMN sweep.job.bucket_store IS 'where its buckets are kept: table or redis';
COMMENT ON COLUMN sweep.job.bucket_recovery IS 'a bucket that was taken so long ago is free again, whoever has it';
COMMENT ON COLUMN sweep.job.bucket_key IS 'name of its buckets in the store redis';
COMMENT ON COLUMN sweep.job.buckets_function IS 'function(sweep.batch) RETURNS int that says how many of the buckets there are just now; NULL: all of them';
COMMENT ON COLUMN sweep.job.description IS 'a word to the reader';

-- No foreign key: its checks would lock the job, and whoever changes a job must never wait for the
-- scheduler while the scheduler waits for them.
CREATE TABLE sweep.job_state (
	job          text PRIMARY KEY,
	next_due     timestamptz,
	next_start   timestamptz,
	paused_at    timestamptz,
	broken       text,
	boot         timestamptz,
	drained_rows bigint,
	kept_cursor  jsonb,
	last_start   timestamptz,
	-- Where the job is at home. It is in the row that says when the job is due, so that whoever reads one reads
	-- both, whatever else of a dump has arrived. What was never said is nowhere at home.
	system_identifier bigint NOT NULL DEFAULT 0,
	database          oid NOT NULL DEFAULT 0,
	all_paused_at     timestamptz
) WITH (fillfactor = 50);
CREATE INDEX job_state_next_start_idx ON sweep.job_state (next_start) WHERE next_start IS NOT NULL;
COMMENT ON TABLE sweep.job_state IS 'when each job is due next, and what keeps it from running';
COMMENT ON COLUMN sweep.job_state.job IS 'name of the job';
COMMENT ON COLUMN sweep.job_state.next_due IS 'next moment of the schedule; NULL: none, or the schedule does not apply';
COMMENT ON COLUMN sweep.job_state.next_start IS 'next_due plus the jitter drawn for it';
COMMENT ON COLUMN sweep.job_state.paused_at IS 'since when the job is paused by its name; NULL: it is not';
COMMENT ON COLUMN sweep.job_state.broken IS 'why the job could not be started when it was last due';
COMMENT ON COLUMN sweep.job_state.drained_rows IS 'rows of the last run that drained: what to expect of the next one';
COMMENT ON COLUMN sweep.job_state.kept_cursor IS 'where the last run stopped; NULL when it drained, unless the job keeps its cursor for good';
COMMENT ON COLUMN sweep.job_state.last_start IS 'start of the run that drained_rows and kept_cursor are from';
COMMENT ON COLUMN sweep.job_state.boot IS 'server start for which an @reboot job has been started';
COMMENT ON COLUMN sweep.job_state.system_identifier IS 'cluster the job is meant for';
COMMENT ON COLUMN sweep.job_state.database IS 'database the job is meant for: a copy of it elsewhere is paused until sweep.resume_all() is called there';
COMMENT ON COLUMN sweep.job_state.all_paused_at IS 'since when it is paused together with all others; NULL: it is not, or was created since';

-- A row while all jobs are paused. It holds for jobs that are created meanwhile too, and for those whose rows somebody
-- had locked: sweep.pause_all() waits for nobody. A row that is missing never makes a job start that is not at home.
CREATE TABLE sweep.control (
	only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
	paused_at timestamptz NOT NULL
);
COMMENT ON TABLE sweep.control IS 'whether all jobs and consumers of this database are paused';
COMMENT ON COLUMN sweep.control.only_row IS 'always true';
COMMENT ON COLUMN sweep.control.paused_at IS 'since when all are paused';

SELECT pg_catalog.pg_extension_config_dump('sweep.job', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.job_state', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.control', '');

-- ------------------------------------------------------------------ what C offers to the functions below
CREATE FUNCTION sweep._wake() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_worker_wake';
COMMENT ON FUNCTION sweep._wake() IS 'wakes the scheduler of this database when the transaction commits';

CREATE FUNCTION sweep._require_workers() RETURNS void
	LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_worker_require';
COMMENT ON FUNCTION sweep._require_workers() IS 'raises when this server cannot start background workers for the database';

CREATE FUNCTION sweep._check_batch_sql(role oid, batch_sql text, search_path text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_definition_check_batch_sql';
COMMENT ON FUNCTION sweep._check_batch_sql(oid, text, text) IS 'raises unless the text is one INSERT, UPDATE, DELETE or MERGE that the role can have analysed, with that search_path';

CREATE FUNCTION sweep._check_setting(role oid, name text, value text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_environment_check';
COMMENT ON FUNCTION sweep._check_setting(oid, text, text) IS 'raises unless the role may set it to that';

CREATE FUNCTION sweep._check_estimate(role oid, estimate text, search_path text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_estimate_check';
COMMENT ON FUNCTION sweep._check_estimate(oid, text, text) IS 'raises unless the text is one SELECT of a number that the role can have analysed, with that search_path';

CREATE FUNCTION sweep._signal_cancel(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_shared_signal_cancel';
COMMENT ON FUNCTION sweep._signal_cancel(bigint) IS 'asks the process of a run to stop; false when there is none';

-- ------------------------------------------------------------------ rights
-- A role is stored by its name; what asks is an OID. Decided in base/role.c, which says what the two rights are.
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

CREATE FUNCTION sweep._check_job_right(caller oid, name text, job sweep.job, operators boolean) RETURNS void
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
COMMENT ON FUNCTION sweep._check_job_right(oid, text, sweep.job, boolean) IS 'raises unless there is the job and the caller may act on it';

-- Rights are those on the job as it is once it is locked: whoever held it may have given it to another role,
-- or dropped it and somebody else has taken its name. Who has no right to begin with waits for nobody.
CREATE FUNCTION sweep._lock_job(caller oid, name text, operators boolean, shared boolean) RETURNS sweep.job
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job sweep.job;
BEGIN
	SELECT * INTO job FROM sweep.job j WHERE j.name = _lock_job.name;
	PERFORM sweep._check_job_right(caller, name, job, operators);
	IF shared THEN
		SELECT * INTO job FROM sweep.job j WHERE j.name = _lock_job.name FOR KEY SHARE;
	ELSE
		SELECT * INTO job FROM sweep.job j WHERE j.name = _lock_job.name FOR UPDATE;
	END IF;
	PERFORM sweep._check_job_right(caller, name, job, operators);
	RETURN job;
END
$$;
COMMENT ON FUNCTION sweep._lock_job(oid, text, boolean, boolean) IS
	'locks the job, for changing it or (shared) to keep others from that, and returns it, if the caller may act on it then';

-- ------------------------------------------------------------------ time
CREATE FUNCTION sweep._reschedule(job text, after timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job;
	due pg_catalog.timestamptz;
BEGIN
	SELECT * INTO j FROM sweep.job WHERE name = _reschedule.job;
	IF j.schedule IS NOT NULL THEN
		due := sweep._next_run(j.schedule, j.timezone, after, j.name);
	END IF;
	UPDATE sweep.job_state AS s SET next_due = CASE WHEN s.paused_at IS NULL THEN due END,
			next_start = CASE WHEN s.paused_at IS NULL THEN due + pg_catalog.random() * j.jitter END
		WHERE s.job = _reschedule.job;
EXCEPTION WHEN invalid_parameter_value THEN
	-- A zone that this server does not know: looked at again in a minute, so that it heals by itself.
	UPDATE sweep.job_state AS s SET next_due = NULL, next_start = after + interval '1 min'
		WHERE s.job = _reschedule.job AND s.paused_at IS NULL;
	PERFORM sweep._set_broken(job, SQLERRM) WHERE FOUND;
END
$$;
COMMENT ON FUNCTION sweep._reschedule(text, timestamptz) IS 'sets when the job is due next after a moment';

CREATE FUNCTION sweep._system_identifier() RETURNS bigint
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_worker_system_identifier';
COMMENT ON FUNCTION sweep._system_identifier() IS 'identifies the cluster; pg_control_system() would read a file each time';

CREATE FUNCTION sweep._is_home(system_identifier bigint, database oid) RETURNS boolean
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_worker_is_home';
COMMENT ON FUNCTION sweep._is_home(bigint, oid) IS 'whether this is that cluster and that database: asked in the statement that reads what is to be started';
--
-- What a job with sql, whose text is executed once, needs beside the checks of all jobs.
--
CREATE FUNCTION sweep._check_sql(sql text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_definition_check_sql';
COMMENT ON FUNCTION sweep._check_sql(text) IS 'raises unless the text consists of statements that can be executed in the background; names are looked up when it is executed';

CREATE FUNCTION sweep._check_sql_settings(job sweep.job) RETURNS void
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
COMMENT ON FUNCTION sweep._check_sql_settings(sweep.job) IS 'raises when a job with sql has a setting that means something only where there are batches';
--
-- With which settings a job runs, and whether those that it has itself are right. See src/engine/environment.c.
--
-- What decides: the settings of the role in this database, of the role, of the database, of all; then the configuration.
CREATE FUNCTION sweep._login_path(role oid) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(
		(SELECT pg_catalog.substring(c.entry, '=(.*)$') FROM pg_catalog.pg_db_role_setting s CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (entry)
			WHERE s.setrole IN (0, role) AND s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
				AND pg_catalog.starts_with(c.entry, 'search_path=') ORDER BY s.setrole = 0, s.setdatabase = 0 LIMIT 1),
		(SELECT f.setting FROM pg_catalog.pg_file_settings f WHERE f.name = 'search_path' AND f.applied ORDER BY f.seqno DESC LIMIT 1),
		(SELECT p.boot_val FROM pg_catalog.pg_settings p WHERE p.name = 'search_path'))
$$;
COMMENT ON FUNCTION sweep._login_path(oid) IS 'the search_path that a role has after it has logged in to this database';

CREATE FUNCTION sweep._run_path(job sweep.job) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce((SELECT s.value FROM pg_catalog.jsonb_each_text(job.settings) AS s WHERE pg_catalog.lower(s.key) = 'search_path' LIMIT 1),
		sweep._login_path(sweep._role_oid(job.run_as)))
$$;
COMMENT ON FUNCTION sweep._run_path(sweep.job) IS 'the search_path of background runs of a job';

CREATE FUNCTION sweep._check_settings(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	setting pg_catalog.record;
	refused pg_catalog.text;
BEGIN
	FOR setting IN SELECT s.key, s.value, job.settings ->> s.key AS text FROM pg_catalog.jsonb_each(job.settings) AS s LOOP
		IF pg_catalog.jsonb_typeof(setting.value) NOT IN ('string', 'number', 'boolean') THEN
			RAISE EXCEPTION 'invalid value % of setting "%"', setting.value, setting.key USING ERRCODE = 'invalid_parameter_value',
				HINT = 'Write a text, a number, true or false. What is left out is as the role has it.';
		END IF;
		-- These would be in the way of the engine, or have no effect.
		SELECT r.why INTO refused FROM (VALUES
				('application_name', 'It names the run.'),
				('client_encoding', 'It is between a session and its client.'),
				('default_transaction_deferrable', 'The transactions of a run are begun by pg_sweep.'),
				('default_transaction_isolation', 'The transactions of a run are begun by pg_sweep; ALTER ROLE ... SET says how those of a role are.'),
				('default_transaction_read_only', 'The transactions of a run are begun by pg_sweep; ALTER ROLE ... SET says how those of a role are.'),
				('exit_on_error', 'An error ends a batch; with the process, nobody could record it.'),
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
COMMENT ON FUNCTION sweep._check_settings(sweep.job) IS 'raises unless the role of the job, which exists, may set what the settings of the job say';
--
-- Whether the definition of a job is right. What can be known beforehand is refused when the job is
-- created or changed; what turns out later makes the job broken, with a reason, until it heals.
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
	-- By name through the indexes: this is asked each time a job is due, of each job that sweep.jobs shows.
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
COMMENT ON FUNCTION sweep._caller_search_path() IS 'the names in the search_path of whoever has called the public function that is being executed';

-- Without a schema it is the first one in the search_path of the caller, as the role of the job would look: never a temporary
-- one, which is gone when the job runs. What is not found stays as it is, for others to say so.
CREATE FUNCTION sweep._find_function(role text, kind text, name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	bare constant pg_catalog.text := pg_catalog.regexp_replace(name, E'\\s*\\([^()"]*\\)\\s*$', '');
	types constant pg_catalog.text := pg_catalog.regexp_replace(pg_catalog.lower(pg_catalog.substring(name, E'\\(([^()"]*)\\)\\s*$')), E'\\s|pg_catalog\\.', '', 'g');
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
	RETURN pg_catalog.btrim(bare);
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN name;
END
$$;
COMMENT ON FUNCTION sweep._find_function(text, text, text) IS 'the name of a function as it is stored, with its schema, of one that may be without and may have its arguments in parentheses';

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
	-- Asked of each job that is due, and hardly ever wrong.
	IF sweep._is_trusted(function, role) THEN
		RETURN NULL;
	END IF;
	RETURN (SELECT pg_catalog.format('function %s belongs to role "%s", which could not become role "%s"', function, pg_catalog.pg_get_userbyid(p.proowner), role)
		FROM pg_catalog.pg_proc p WHERE p.oid = function);
END
$$;
COMMENT ON FUNCTION sweep._owner_problem(text, regprocedure) IS 'why the function must not be executed as the role: whoever owns it decides what it does; NULL when it may';

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

CREATE FUNCTION sweep._role_problem(role text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.record;
BEGIN
	-- No more columns than are looked at: the others are from another table.
	SELECT r.oid, r.rolcanlogin INTO known FROM pg_catalog.pg_roles r WHERE r.oid = sweep._role_oid(role);
	IF NOT FOUND THEN
		RETURN pg_catalog.format('role "%s" does not exist', role);
	END IF;
	IF NOT known.rolcanlogin AND pg_catalog.current_setting('server_version_num')::int < 170000 THEN
		RETURN pg_catalog.format('role "%s" is not permitted to log in', role);
	END IF;
	IF NOT pg_catalog.has_database_privilege(known.oid, pg_catalog.current_database(), 'CONNECT') THEN
		RETURN pg_catalog.format('role "%s" may not connect to the database', role);
	END IF;
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._role_problem(text) IS 'why no process can connect as the role; NULL when one can';

CREATE FUNCTION sweep._has_redis_url() RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_settings_has_redis_url';
COMMENT ON FUNCTION sweep._has_redis_url() IS 'whether pg_sweep.redis_url is set; its value is shown to few';

CREATE FUNCTION sweep._job_problem(job sweep.job) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text := sweep._role_problem(job.run_as);
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
COMMENT ON FUNCTION sweep._job_problem(sweep.job) IS 'why the job cannot be started; NULL when nothing is known to stand in the way';

-- Only schedule and sql are meant to be passed by position; a step may have been, or the command alone.
CREATE FUNCTION sweep._check_position(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._resolve('step', sweep._find_function(job.run_as, 'step', job.schedule)) IS NOT NULL THEN
		RAISE EXCEPTION 'schedule "%" of job "%" is a function', job.schedule, job.name USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('The second argument is the schedule. Write sweep.create_job(%L, step => %L).', job.name, job.schedule);
	END IF;
	IF job.schedule ~* E'^\\s*(delete|update|insert|merge|with|select|truncate|call|vacuum|analyze|reindex|refresh|do|begin|create|alter|drop|copy|set)\\s' THEN
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
COMMENT ON FUNCTION sweep._check_position(sweep.job) IS 'raises when a function or a statement stands where another argument belongs';

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

CREATE FUNCTION sweep._check_step(job sweep.job) RETURNS void
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
			PERFORM sweep._check_batch_sql(sweep._role_oid(job.run_as), job.batch_sql, sweep._run_path(job)),
				sweep._check_estimate(sweep._role_oid(job.run_as), job.estimate, sweep._run_path(job));
		EXCEPTION WHEN undefined_table OR undefined_function OR undefined_object THEN
			RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE,
				HINT = pg_catalog.format('Write names with their schema, or name it in settings => ''{"search_path": "..."}''. The job would run with search_path %s.', sweep._run_path(job));
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
	-- The server may be told of its Redis later; until then the job is broken.
	job.bucket_store := 'table';
	problem := sweep._job_problem(job);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" could not run: %', job.name, problem
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('Before version 17, PostgreSQL lets a background worker connect only as a role with LOGIN; '
					'the role needs CONNECT on the database, USAGE on the schema of the step and EXECUTE on the step: '
					'see ALTER ROLE %I LOGIN and GRANT.', job.run_as);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_step(sweep.job) IS 'raises unless the job names something that its role can run';

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

-- Only of what is new: a limit that was lowered keeps nobody from changing something else.
CREATE FUNCTION sweep._check_sizes(job sweep.job, old sweep.job) RETURNS void
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
		('schedule', pg_catalog.octet_length(job.schedule), 1024, job.schedule IS DISTINCT FROM old.schedule),
		('lock_key', pg_catalog.octet_length(job.lock_key), 1024, job.lock_key IS DISTINCT FROM old.lock_key)
	) AS c (what, size, most, is_new) WHERE c.size > c.most AND c.is_new LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION '% of job "%" is too large: % bytes', wrong.what, job.name, wrong.size
			USING ERRCODE = 'program_limit_exceeded', HINT = pg_catalog.format('It may have %s bytes.', wrong.most);
	END IF;
	IF job.args IS DISTINCT FROM old.args THEN
		PERFORM sweep._check_args_size(job.name, job.args);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_sizes(sweep.job, sweep.job) IS 'raises when a text of the definition, or its args, are too large and not those of the old one';

CREATE FUNCTION sweep._check_hooks(job sweep.job) RETURNS void
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
COMMENT ON FUNCTION sweep._check_hooks(sweep.job) IS 'raises unless the hooks of the job have names of other jobs with delays';

CREATE FUNCTION sweep._check_limits(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong pg_catalog.text;
	wanted pg_catalog.text;
BEGIN
	SELECT a.attname INTO wrong FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'sweep.job'::pg_catalog.regclass AND a.attnotnull
		AND pg_catalog.to_jsonb(job) -> a.attname = 'null'::pg_catalog.jsonb ORDER BY a.attnum LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION '% must not be null', wrong USING ERRCODE = 'null_value_not_allowed',
			HINT = 'Leave it out to get its default, or to keep what it is.';
	END IF;
	SELECT c.message, c.hint INTO wrong, wanted FROM (VALUES
		(job.name = '' OR pg_catalog.octet_length(job.name) > 63, 'job name "' || job.name || '"', 'A name has 1 to 63 bytes.'),
		(job.name ~ '[[:cntrl:]]', 'job name with a control character', 'Use printable characters.'),
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
		(job.bucket_key !~ '^[^{}[:cntrl:]]{1,200}$', 'bucket_key "' || job.bucket_key || '"', 'Use 1 to 200 printable characters, no braces.'),
		(job.buckets IS NULL AND job.buckets_function IS NOT NULL, 'buckets_function without buckets', 'Say in buckets how many there are at most.'),
		(job.buckets IS NOT NULL AND job.stop_after >= job.bucket_recovery, 'stop_after ' || job.stop_after || ' of a divided job',
			pg_catalog.format('It must be less than bucket_recovery, %s: a share that is as old as that loses its bucket.', job.bucket_recovery)),
		(job.cursor NOT IN ('run', 'drain', 'always'), 'cursor "' || job.cursor || '"', 'It must be "run", "drain" or "always".'),
		(job.buckets IS NOT NULL AND job.cursor <> 'run', 'cursor "' || job.cursor || '" of a divided job', 'Each share begins at the start: leave it out.')
	) AS c (bad, message, hint) WHERE c.bad LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'invalid %', wrong USING ERRCODE = 'invalid_parameter_value', HINT = wanted;
	END IF;
	PERFORM sweep._check_args(job.name, job.args), sweep._check_hooks(job), sweep._check_sql_settings(job);
END
$$;
COMMENT ON FUNCTION sweep._check_limits(sweep.job) IS 'raises when a limit or word of the definition is out of its range';

CREATE FUNCTION sweep._check_schedule(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	smallest interval := pg_catalog.current_setting('pg_sweep.min_interval')::interval;
	shortest interval;
BEGIN
	-- The zone has to be right also before there is a schedule.
	PERFORM sweep._next_run(coalesce(job.schedule, '@reboot'), job.timezone, pg_catalog.now(), job.name);
	IF job.schedule IS NULL THEN
		RETURN;
	END IF;
	SELECT pg_catalog.min(n.gap) INTO shortest FROM (SELECT r.moment - pg_catalog.lag(r.moment) OVER (ORDER BY r.moment) AS gap
		FROM sweep.next_runs(job.schedule, job.timezone, pg_catalog.now(), 100, job.name) AS r (moment)) AS n;
	IF shortest < smallest THEN
		RAISE EXCEPTION 'schedule "%" is due every %, more often than pg_sweep.min_interval allows', job.schedule, shortest
			USING ERRCODE = 'invalid_parameter_value', DETAIL = pg_catalog.format('The setting is %s.', smallest),
				HINT = 'Choose a longer interval, or lower pg_sweep.min_interval.';
	END IF;
	IF NOT sweep._has_workers() THEN
		RAISE WARNING 'job "%" will not be started by its schedule', job.name
			USING DETAIL = 'pg_sweep is not loaded at server start.',
				HINT = 'Add pg_sweep to shared_preload_libraries and restart the server; CALL sweep.run() works without.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_schedule(sweep.job) IS 'raises unless the schedule and its time zone are right, warns when nothing will serve it';

CREATE FUNCTION sweep._has_workers() RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_worker_available';
COMMENT ON FUNCTION sweep._has_workers() IS 'whether pg_sweep was loaded at server start, so that it can start workers';

CREATE FUNCTION sweep._check_role(caller oid, job sweep.job) RETURNS void
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
COMMENT ON FUNCTION sweep._check_role(oid, sweep.job) IS 'raises unless the caller could SET ROLE to the role of the job';

CREATE FUNCTION sweep._check_priority(caller oid, job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Whoever may go before others could take every worker from them.
	IF job.priority > 0 AND NOT (sweep._acts_for(caller, 'sweep_operator') OR sweep._acts_for(caller, 'sweep_admin')) THEN
		RAISE EXCEPTION 'permission denied to give job "%" priority %', job.name, job.priority USING ERRCODE = 'insufficient_privilege',
			HINT = 'Members of sweep_operator and sweep_admin may go before the jobs of others; anybody may choose 0 or less.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_priority(oid, sweep.job) IS 'raises unless the caller may have the job go before others';

CREATE FUNCTION sweep._check_bucket_store(caller oid, job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- The keys in Redis are shared with others, and the connection is that of the superuser who set it up.
	IF job.bucket_store = 'redis' AND NOT sweep._acts_for(caller, 'sweep_admin') THEN
		RAISE EXCEPTION 'permission denied to keep the buckets of job "%" in Redis', job.name
			USING ERRCODE = 'insufficient_privilege', HINT = 'Members of sweep_admin may do this; the store "table" is open to all.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_bucket_store(oid, sweep.job) IS 'raises unless the caller may have the job keep its buckets where it says';
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
COMMENT ON FUNCTION sweep._check_paused(boolean) IS 'raises unless it is said whether the job is to be paused';

CREATE FUNCTION sweep._complete_job(job sweep.job) RETURNS sweep.job
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	job.step := sweep._find_function(job.run_as, 'step', job.step);
	job.pick := sweep._find_function(job.run_as, 'pick', job.pick);
	job.rescue := sweep._find_function(job.run_as, 'rescue', job.rescue);
	job.buckets_function := sweep._find_function(job.run_as, 'buckets_function', job.buckets_function);
	job.lock_key := coalesce(job.lock_key, job.name);
	job.bucket_key := coalesce(job.bucket_key, job.name);
	RETURN job;
END
$$;
COMMENT ON FUNCTION sweep._complete_job(sweep.job) IS 'the job with what follows from other settings where it was left out, and functions named with their schemas';

CREATE FUNCTION sweep._replace_job(caller oid, job sweep.job) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.job;
BEGIN
	SELECT * INTO old FROM sweep.job j WHERE j.name = job.name;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM sweep._check_job_right(caller, job.name, old, false);
	-- Nothing is written, not even a lock, when nothing is to be changed.
	IF job IS DISTINCT FROM old THEN
		PERFORM sweep._change_job(caller, sweep._lock_job(caller, job.name, false, false), job);
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._replace_job(oid, sweep.job) IS 'gives a job of that name this definition; false when there is none';

-- The arguments of sweep.create_job that are columns of sweep.job arrive in the row, see caller.c: none of them is named here.
CREATE FUNCTION sweep._create_job(caller oid, job sweep.job, run_as regrole, paused boolean, replace boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	job.run_as := sweep._role_name(coalesce(run_as::pg_catalog.oid, caller));
	job := sweep._complete_job(job);
	PERFORM sweep._check_position(job), sweep._check_limits(job), sweep._check_paused(paused), sweep._check_sizes(job, NULL),
		sweep._check_role(caller, job);
	IF replace AND sweep._replace_job(caller, job) THEN
		RETURN;
	END IF;
	PERFORM sweep._check_alert_queue(job), sweep._check_bucket_store(caller, job), sweep._check_priority(caller, job), sweep._check_schedule(job), sweep._check_step(job);
	BEGIN
		INSERT INTO sweep.job SELECT (job).*;
	EXCEPTION WHEN unique_violation THEN
		-- Somebody else has just created it.
		IF replace AND sweep._replace_job(caller, job) THEN
			RETURN;
		END IF;
		RAISE EXCEPTION 'job "%" already exists', job.name
			USING ERRCODE = 'duplicate_object', HINT = 'sweep.alter_job changes it, sweep.drop_job removes it; replace => true gives it this definition.';
	END;
	INSERT INTO sweep.job_state (job, boot, paused_at, system_identifier, database)
		SELECT job.name, pg_catalog.pg_postmaster_start_time(), CASE WHEN paused THEN pg_catalog.now() END, sweep._system_identifier(), d.oid
			FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();
	PERFORM sweep._reschedule(job.name, pg_catalog.clock_timestamp()), sweep._wake();
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
			PERFORM sweep._reschedule(name, pg_catalog.clock_timestamp()), sweep._wake();
		END IF;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._set_paused(text, boolean) IS 'suspends the schedule of a job that the caller has locked, or ends that; runs in progress and those that were started go on';

CREATE FUNCTION sweep._job_columns() RETURNS text[]
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = 'sweep.job'::pg_catalog.regclass AND a.attname <> 'name' AND a.attnum > 0 AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION sweep._job_columns() IS 'what can be changed of a job';

-- Those whom the changes are not for are refused here; that the caller may change the job at all is known.
CREATE FUNCTION sweep._change_job(caller oid, old sweep.job, job sweep.job) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	columns pg_catalog.text[] := sweep._job_columns();
BEGIN
	PERFORM sweep._check_limits(job), sweep._check_sizes(job, old);
	-- What the job's role executes may be changed only by those who could be that role.
	IF (job.step, job.sql, job.batch_sql, job.pick, job.rescue, job.estimate, job.args, job.on_start, job.on_success, job.on_failure, job.buckets_function, job.settings, job.run_as)
			IS DISTINCT FROM (old.step, old.sql, old.batch_sql, old.pick, old.rescue, old.estimate, old.args, old.on_start, old.on_success, old.on_failure, old.buckets_function, old.settings, old.run_as) THEN
		-- What belonged to a role that is gone is for sweep_admin to give to another one; nobody else has come this far.
		PERFORM sweep._check_role(caller, old) WHERE sweep._role_oid(old.run_as) IS NOT NULL;
		PERFORM sweep._check_role(caller, job);
	END IF;
	IF (job.alert_queue, job.run_as) IS DISTINCT FROM (old.alert_queue, old.run_as) THEN
		PERFORM sweep._check_alert_queue(job);
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
	EXECUTE pg_catalog.format('UPDATE sweep.job AS j SET (%s) = (SELECT %s) WHERE j.name = $2',
		(SELECT pg_catalog.string_agg(pg_catalog.format('%I', c), ', ') FROM pg_catalog.unnest(columns) AS c),
		(SELECT pg_catalog.string_agg(pg_catalog.format('($1).%I', c), ', ') FROM pg_catalog.unnest(columns) AS c)) USING job, job.name;
	IF job.buckets IS NULL OR job.bucket_store <> 'table' THEN
		DELETE FROM sweep.bucket b WHERE b.job = job.name AND b.state = 'available';
	END IF;
	IF job.run_as <> old.run_as THEN
		UPDATE sweep.run_live AS r SET run_as = job.run_as WHERE r.job = job.name AND r.run_as = old.run_as AND r.status = 'waiting';
	END IF;
	IF (job.schedule, job.timezone, job.jitter) IS DISTINCT FROM (old.schedule, old.timezone, old.jitter) THEN
		PERFORM sweep._check_schedule(job), sweep._reschedule(job.name, pg_catalog.clock_timestamp());
	END IF;
	-- What the scheduler has listed, and is about to start, is as it was.
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._change_job(oid, sweep.job, sweep.job) IS 'makes a job that is locked another one of the same name, with what follows from that; a run in progress goes on';

CREATE FUNCTION sweep._alter_job(caller oid, name text, changes jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.job := sweep._lock_job(caller, name, false, false);
	job sweep.job;
	paused boolean;
	known pg_catalog.text[] := sweep._job_columns() || ARRAY['paused'];
	word pg_catalog.text;
BEGIN
	IF pg_catalog.jsonb_typeof(changes) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'changes must be a JSON object' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'For example: {"batch_size": 100, "schedule": "@hourly"}.';
	END IF;
	SELECT k INTO word FROM pg_catalog.jsonb_object_keys(changes) AS k WHERE k <> ALL (known) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'unknown key "%" in changes', word USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('The keys are %s.', pg_catalog.array_to_string(known, ', '));
	END IF;
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
			RAISE EXCEPTION 'invalid value % for key "%"', changes -> word, word USING ERRCODE = 'invalid_parameter_value',
				DETAIL = SQLERRM || '.', HINT = 'Write what sweep.create_job would take for the argument of that name.';
		END;
	END LOOP;
	job := sweep._complete_job(job);
	PERFORM sweep._check_paused(paused) WHERE changes ? 'paused';
	PERFORM sweep._change_job(caller, old, job);
	PERFORM sweep._set_paused(name, paused) WHERE paused IS NOT NULL;
END
$$;
COMMENT ON FUNCTION sweep._alter_job(oid, text, jsonb) IS 'implements sweep.alter_job';

CREATE FUNCTION sweep.alter_job(name text, changes jsonb) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.alter_job(text, jsonb) IS 'changes a job: keys are the argument names of sweep.create_job; a run in progress keeps what it began with';

CREATE FUNCTION sweep._drop_job(caller oid, name text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._lock_job(caller, name, false, false);
	-- Whoever was told of it is told that it has an end.
	PERFORM sweep._set_broken(name, NULL);
	DELETE FROM sweep.job j WHERE j.name = _drop_job.name;
	DELETE FROM sweep.job_state s WHERE s.job = _drop_job.name;
	DELETE FROM sweep.quarantine q WHERE q.job = _drop_job.name;
	DELETE FROM sweep.bucket b WHERE b.job = _drop_job.name;
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
		WHERE r.job = _drop_job.name AND r.status = 'waiting';
	PERFORM sweep._signal_cancel(r.run_id) FROM sweep.run_live r WHERE r.job = _drop_job.name AND r.status = 'running';
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._drop_job(oid, text) IS 'implements sweep.drop_job';

CREATE FUNCTION sweep.drop_job(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_job(text) IS 'removes a job and cancels its run in progress; its history stays until it is too old';

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

CREATE FUNCTION sweep._resume(caller oid, name text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._lock_job(caller, name, true, false);
	PERFORM sweep._set_paused(name, false);
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
	-- In each row as well, so that it arrives with the row where a dump is restored. Nobody who has a row locked
	-- keeps all others from being paused; for that one sweep.control has to do.
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

-- A run that arrived before the state of its job was archived without it.
CREATE FUNCTION sweep._adopt_cursors() RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Whoever has locked the history keeps nobody from this but in a copy.
	IF EXISTS (SELECT FROM sweep.job_state s JOIN sweep.job j ON j.name = s.job WHERE j.cursor <> 'run' AND NOT sweep._is_home(s.system_identifier, s.database)) THEN
		UPDATE sweep.job_state AS s SET last_start = last.began, kept_cursor = CASE WHEN last.stop_reason IS DISTINCT FROM 'drained' OR j.cursor = 'always' THEN last.cursor END
			FROM sweep.job j CROSS JOIN LATERAL (SELECT h.cursor, h.stop_reason, coalesce(h.started_at, h.finished_at) AS began FROM sweep.run_history h
				WHERE h.job = j.name AND h.run_as = j.run_as AND (h.batches > 0 OR h.cursor IS NOT NULL) ORDER BY began DESC, h.run_id DESC LIMIT 1) AS last
			WHERE s.job = j.name AND j.cursor <> 'run' AND NOT sweep._is_home(s.system_identifier, s.database) AND coalesce(s.last_start, '-infinity') < last.began;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._adopt_cursors() IS 'gives jobs of a copy that keep their cursor that of their last run, if they do not have it';

CREATE FUNCTION sweep._resume_all(caller oid) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_operator(caller);
	-- They were queued where this database was copied from, and belong there.
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
		FROM sweep.job_state s WHERE s.job = r.job AND NOT sweep._is_home(s.system_identifier, s.database)
			AND r.status = 'waiting' AND r.pid IS NULL;
	PERFORM sweep._adopt_cursors();
	DELETE FROM sweep.control;
	UPDATE sweep.job_state AS s SET system_identifier = sweep._system_identifier(), database = d.oid, all_paused_at = NULL
		FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();
	UPDATE sweep.consumer AS c SET system_identifier = sweep._system_identifier(), database = d.oid, all_paused_at = NULL
		FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();
	PERFORM sweep._reschedule(j.name, pg_catalog.clock_timestamp()) FROM sweep.job j;
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._resume_all(oid) IS 'implements sweep.resume_all';

CREATE FUNCTION sweep.resume_all() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.resume_all() IS 'ends sweep.pause_all, and makes a restored copy run its schedules; jobs paused by name stay paused';
--
-- sweep.import_pg_cron: the entries of pg_cron's table as jobs.
--
-- What is asked with the rights of the caller, and in C for that: which entries there are. Everything else, the
-- settings of pg_cron among it, is read as the owner; a job is created as the functions that make jobs do it.
--
CREATE FUNCTION sweep._pg_cron_entries(caller oid) RETURNS jsonb
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_pg_cron_entries';
COMMENT ON FUNCTION sweep._pg_cron_entries(oid) IS 'the rows of cron.job that the caller sees, whatever columns they have';

CREATE FUNCTION sweep._count_statements(sql text) RETURNS int
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_pg_cron_statements';
COMMENT ON FUNCTION sweep._count_statements(text) IS 'how many statements a text has; raises where it is not SQL';

-- A field as pg_cron reads it: elements as far as they go; what follows is passed over. What pg_cron refuses is left as it is.
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
		-- Only a field of days that begins with a star is unrestricted.
		IF range = '*' AND meaning IS NOT NULL THEN
			range := coalesce(all_days, range);
		END IF;
		-- A step beyond the range of its field does not get anywhere, and ours does not take it.
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
		IF fields[5] ~* '(^|,)([1-7]|mon|tue|wed|thu|fri|sat)-sun' THEN
			remarks := remarks || pg_catalog.format('pg_cron takes a range that ends with sun, as in "%s", for empty', fields[5]);
		END IF;
		IF both_days AND fields[3] !~ E'^\\*' AND fields[5] !~ E'^\\*' THEN
			RAISE EXCEPTION 'cron.match_dom_and_dow is on, so "%" is due where both days match', schedule USING ERRCODE = 'feature_not_supported',
				HINT = 'Here either is enough: schedule it for the one, and have the statement ask for the other.';
		END IF;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._read_pg_cron_schedule(text, boolean) IS 'a schedule of pg_cron, written so that it means the same here, and what there is to say of it';

-- Where pg_cron executes an entry, and whether that is here. Its workers connect to this server, whatever the entry says.
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
COMMENT ON FUNCTION sweep._pg_cron_place(jsonb) IS 'where else an entry of pg_cron is to be executed; NULL when it is here';

CREATE FUNCTION sweep._check_pg_cron(caller oid) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	home constant pg_catalog.text := pg_catalog.current_setting('cron.database_name', true);
BEGIN
	-- The table of the extension and no other: anybody may have a schema of that name.
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

-- Creates the job of one entry and says what became of it. What is wrong with one keeps no other from being created.
CREATE FUNCTION sweep._import_pg_cron_entry(caller oid, entry jsonb, dry_run boolean, OUT definition text, OUT note text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job_name constant pg_catalog.text := coalesce(entry ->> 'jobname', 'pg_cron_' || (entry ->> 'jobid'));
	zone constant pg_catalog.text := coalesce(pg_catalog.current_setting('cron.timezone', true), 'GMT');
	meaning pg_catalog.text := entry ->> 'schedule';
	created sweep.job;
	remarks pg_catalog.text[];
	hint pg_catalog.text;
BEGIN
	BEGIN
		SELECT r.meaning, r.remarks INTO meaning, remarks
			FROM sweep._read_pg_cron_schedule(entry ->> 'schedule', coalesce(pg_catalog.current_setting('cron.match_dom_and_dow', true), 'off') = 'on') AS r;
		note := sweep._pg_cron_place(entry);
		IF note IS NULL THEN
			IF EXISTS (SELECT FROM sweep.job j WHERE (j.name, j.schedule, j.sql, j.timezone, j.run_as)
					= (job_name, meaning, entry ->> 'command', zone, entry ->> 'username')) THEN
				note := 'exists already';
			ELSE
				created := pg_catalog.jsonb_populate_record(NULL::sweep.job, sweep._job_defaults() || pg_catalog.jsonb_build_object(
					'name', job_name, 'schedule', meaning, 'sql', entry -> 'command', 'timezone', zone));
				PERFORM sweep._create_job(caller, created, pg_catalog.quote_ident(entry ->> 'username')::pg_catalog.regrole, true, false);
				note := CASE WHEN dry_run THEN 'to be created' ELSE 'created, paused' END;
			END IF;
		END IF;
		IF sweep._count_statements(entry ->> 'command') > 1 THEN
			remarks := remarks || 'pg_cron executes its statements in one transaction, here each has its own unless the text says BEGIN and COMMIT'::pg_catalog.text;
		END IF;
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
		note := 'not created: ' || SQLERRM || CASE WHEN hint <> '' THEN pg_catalog.format(' (%s)', hint) ELSE '' END;
	END;
	IF entry ->> 'active' = 'false' THEN
		remarks := remarks || 'not active in pg_cron'::pg_catalog.text;
	END IF;
	note := pg_catalog.array_to_string(note || remarks, '; ');
	definition := pg_catalog.format('SELECT sweep.create_job(%L, %L, %L, timezone => %L, run_as => %L, paused => true);',
		job_name, meaning, entry ->> 'command', zone, pg_catalog.quote_ident(entry ->> 'username'));
END
$$;
COMMENT ON FUNCTION sweep._import_pg_cron_entry(oid, jsonb, boolean) IS 'creates the job of an entry of pg_cron, and says so, or why not';

-- A dry run does the same and is rolled back, so that it says what would come of it.
CREATE FUNCTION sweep._import_pg_cron(caller oid, dry_run boolean, OUT jobid bigint, OUT job text, OUT definition text, OUT note text) RETURNS SETOF record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	entry pg_catalog.jsonb;
BEGIN
	IF dry_run IS NULL THEN
		RAISE EXCEPTION 'dry_run must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	PERFORM sweep._check_pg_cron(caller);
	FOR entry IN SELECT e.value FROM pg_catalog.jsonb_array_elements(sweep._pg_cron_entries(caller)) AS e LOOP
		jobid := (entry ->> 'jobid')::bigint;
		job := coalesce(entry ->> 'jobname', 'pg_cron_' || jobid);
		SELECT i.definition, i.note INTO definition, note FROM sweep._import_pg_cron_entry(caller, entry, dry_run) AS i;
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

CREATE FUNCTION sweep.import_pg_cron(dry_run boolean DEFAULT true, OUT jobid bigint, OUT job text, OUT definition text, OUT note text) RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.import_pg_cron(boolean) IS
	'creates the entries of pg_cron that the caller sees as paused jobs, or only says what would be created; definition: the call that does it';
--
-- What ran and how it ended.
--
-- A run is a row of sweep.run_live while it waits and runs, written in the transactions of its batches.
-- Once it has ended it is moved to sweep.run_history, which the engine never waits for: a lock on the
-- history delays the history and nothing else. The view sweep.runs shows both.
--
-- Domains rather than constraints of the table: those would be planned anew by every update of a batch.
CREATE DOMAIN sweep.run_trigger AS text
	CONSTRAINT run_trigger_check CHECK (VALUE IN ('schedule', 'manual', 'parent', 'retry', 'catch_up'));
COMMENT ON DOMAIN sweep.run_trigger IS 'what caused a run';

CREATE DOMAIN sweep.run_status AS text
	CONSTRAINT run_status_check CHECK (VALUE IN ('waiting', 'running', 'succeeded', 'skipped', 'failed', 'cancelled', 'lost'));
COMMENT ON DOMAIN sweep.run_status IS 'how far a run is, or how it ended';

CREATE DOMAIN sweep.run_stop_reason AS text
	CONSTRAINT run_stop_reason_check CHECK (VALUE IN ('drained', 'done', 'max_batches', 'max_rows', 'stop_after', 'cancelled', 'timeout',
		'no_progress', 'error', 'skipped', 'lost', 'rescaled'));
COMMENT ON DOMAIN sweep.run_stop_reason IS 'why a run ended';

-- In an order in which those of the indexes are soonest found in a row: each batch compares them with what they were.
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
	error       text
) WITH (fillfactor = 50);
-- Whatever there is to do is found without a look at the runs that are not due yet. No column of these changes with a
-- batch or at the end, which would cost an entry in each index. So a run that ends before it began gets a pid as well.
CREATE INDEX run_live_due_idx ON sweep.run_live (due_at);
CREATE INDEX run_live_job_idx ON sweep.run_live (job, trigger, due_at);
CREATE INDEX run_live_begun_idx ON sweep.run_live (job, run_id) WHERE pid IS NOT NULL;
COMMENT ON INDEX sweep.run_live_due_idx IS 'what is due';
COMMENT ON INDEX sweep.run_live_job_idx IS 'what waits of a job';
COMMENT ON INDEX sweep.run_live_begun_idx IS 'what runs or has ended';
CREATE INDEX run_live_parent_idx ON sweep.run_live (parent_run_id) WHERE parent_run_id IS NOT NULL;
COMMENT ON INDEX sweep.run_live_parent_idx IS 'what a run has queued';
-- A restored database goes on counting, so that what its job_state remembers of runs stays older.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live_run_id_seq', '');
-- And it goes on where the last runs of jobs that keep their cursor were: that is in sweep.job_state only when they have ended and been archived.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live', $$WHERE pid IS NOT NULL AND (batches > 0 OR cursor IS NOT NULL)
	AND EXISTS (SELECT FROM sweep.job AS j WHERE j.name = job AND j.run_as = run_live.run_as AND j.cursor <> 'run')$$);
COMMENT ON TABLE sweep.run_live IS 'runs that wait, run, or have just ended; see sweep.runs';

CREATE TABLE sweep.run_history (LIKE sweep.run_live INCLUDING DEFAULTS, PRIMARY KEY (run_id));
CREATE INDEX run_history_job_idx ON sweep.run_history (job, run_id);
CREATE INDEX run_history_outcome_idx ON sweep.run_history (job, run_as, status, run_id);
CREATE INDEX run_history_finished_at_idx ON sweep.run_history (finished_at);
CREATE INDEX run_history_parent_idx ON sweep.run_history (parent_run_id) WHERE parent_run_id IS NOT NULL;
COMMENT ON TABLE sweep.run_history IS 'runs that have ended, bounded by pg_sweep.history_per_job and pg_sweep.history_max_age; see sweep.runs';

CREATE FUNCTION sweep._may_see(run_as text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_role_may_see';
COMMENT ON FUNCTION sweep._may_see(text) IS 'whether the current user may see jobs and runs of a role: its members, and those who watch or act on all';

-- A barrier: no function of the reader sees a row that the reader may not see.
CREATE VIEW sweep.runs WITH (security_barrier) AS
	WITH roles AS MATERIALIZED (SELECT r.rolname::pg_catalog.text AS name FROM pg_catalog.pg_roles r WHERE sweep._may_see(r.rolname)),
		everything AS MATERIALIZED (SELECT sweep._may_see(NULL) AS allowed)
	SELECT r.run_id, r.job, r.args, r.trigger, r.attempt, r.due_at, r.started_at, r.finished_at, r.status, r.stop_reason, r.batches, r.rows, r.rescued,
			r.quarantined, r.braked_ms, r.cursor, r.detail, r.sqlstate, r.error, r.pid, r.run_as, r.bucket, r.shares_left, r.parent_run_id, r.hook_depth
		FROM (SELECT * FROM sweep.run_live UNION ALL SELECT * FROM sweep.run_history) AS r
		WHERE (SELECT e.allowed FROM everything e) OR r.run_as IN (SELECT m.name FROM roles m);
COMMENT ON VIEW sweep.runs IS 'runs: waiting, running and ended; one sees those of the roles one is a member of, or all of them as sweep_monitor';

DO $$
DECLARE
	target pg_catalog.text;
	note pg_catalog.text[];
BEGIN
	FOREACH target IN ARRAY ARRAY['run_live', 'run_history', 'runs'] LOOP
		FOREACH note SLICE 1 IN ARRAY ARRAY[
			['run_id', 'number of the run'], ['job', 'name of the job'], ['args', 'args of this run, merged over those of the job'],
			['trigger', 'what caused it: schedule, manual, parent, retry, catch_up'], ['attempt', 'number of the attempt, from 1'],
			['due_at', 'when it was meant to start'], ['started_at', 'when it had its lock'], ['finished_at', 'when it ended'],
			['status', 'waiting, running, succeeded, skipped, failed, cancelled or lost'],
			['stop_reason', 'why it ended: drained, done, max_batches, max_rows, stop_after, cancelled, timeout, no_progress, error, skipped, lost or rescaled'],
			['batches', 'batches committed'], ['rows', 'rows handled in them'], ['rescued', 'items for which the rescue function reported rows'],
			['quarantined', 'items put into quarantine'], ['braked_ms', 'time in pauses between its batches'], ['cursor', 'where the next batch would go on'], ['detail', 'what the step reported'],
			['sqlstate', 'code of the error that ended it'], ['error', 'that error, with its detail, hint and context'],
			['pid', 'process that runs it, ran it, or has ended it before it began'],
			['run_as', 'role of its job: a job of the same name that belongs to another role has nothing to do with it'],
			['bucket', 'share of a divided job that it has or had; while it waits the one it would have'],
			['shares_left', 'how many shares follow this one, one after the other; NULL: it was not begun as a share'],
			['parent_run_id', 'run that has queued it: of a share the one that divided the job, of a retry the one that is tried again, of one that a hook has queued the run that it tells of'],
			['hook_depth', 'how many hooks have led to it, one after the other']] LOOP
			EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', target, note[1], note[2]);
		END LOOP;
	END LOOP;
END
$$;

CREATE FUNCTION sweep._is_retried(status text, stop_reason text, attempt int, max_attempts int) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- What makes no progress would not make any the next time.
	SELECT status IN ('failed', 'lost') AND stop_reason IS DISTINCT FROM 'no_progress' AND attempt < max_attempts
$$;
COMMENT ON FUNCTION sweep._is_retried(text, text, int, int) IS 'whether a run that has ended so is tried again';

-- ------------------------------------------------------------------ what C offers to the functions below
CREATE FUNCTION sweep._run_is_alive(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_run_is_alive';
COMMENT ON FUNCTION sweep._run_is_alive(bigint) IS 'whether a process holds the lock of the run';

-- As costly as it is so that it is asked last: the scheduler looks again soon when it has said yes.
CREATE FUNCTION sweep._lock_is_held(role oid, key text, shared boolean) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 1000000 AS 'MODULE_PATHNAME', 'sweep_lock_probe';
COMMENT ON FUNCTION sweep._lock_is_held(oid, text, boolean) IS 'whether a run of the role with this lock_key could not take its lock now, alone or (a share of a divided job) together with others';

CREATE FUNCTION sweep.try_lock(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_try';
COMMENT ON FUNCTION sweep.try_lock(text) IS 'takes the lock of that key for this session, if it is free; runs with this lock_key, of the roles one may act for, then wait or are skipped';

CREATE FUNCTION sweep.release_lock(key text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_release';
COMMENT ON FUNCTION sweep.release_lock(text) IS 'gives back a lock that this session took with sweep.try_lock; false when it had none';

-- ------------------------------------------------------------------ rows that somebody has locked
-- The scheduler and the processes of runs wait for no row that a session may have locked: one open transaction would
-- stop all jobs. What is locked is left alone until it no longer is.
CREATE FUNCTION sweep._lock_waiting_run(run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM FROM sweep.run_live r WHERE r.run_id = _lock_waiting_run.run_id AND r.status = 'waiting' FOR UPDATE SKIP LOCKED;
	RETURN CASE WHEN FOUND THEN true
		WHEN NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.run_id = _lock_waiting_run.run_id AND r.status = 'waiting') THEN false END;
END
$$;
COMMENT ON FUNCTION sweep._lock_waiting_run(bigint) IS 'locks the row of a run that waits; false when it does not wait any more, NULL when somebody else has locked it';

-- ------------------------------------------------------------------ starts
CREATE FUNCTION sweep._startable_runs(at timestamptz)
	RETURNS TABLE (run_id bigint, job text, run_as text, expected_rows bigint)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	most int := pg_catalog.current_setting('pg_sweep.max_running_jobs', true);
BEGIN
	-- A run started by hand ignores pauses, and leaves it to the lock whether it overlaps. Scheduled runs
	-- of one job follow each other. Whether all jobs are paused is asked once, and only if there is another.
	RETURN QUERY WITH ready AS (SELECT r.run_id, r.job, r.run_as, r.due_at, s.drained_rows, j.priority, j.lock_key, j.buckets IS NOT NULL AS divided,
			-- What was started waits for its turn; what is due tries to take the lock at its moment.
			r.trigger NOT IN ('schedule', 'catch_up') AS takes_turns,
			pg_catalog.row_number() OVER (PARTITION BY r.run_as, j.lock_key, r.trigger NOT IN ('schedule', 'catch_up') AND j.buckets IS NULL
				ORDER BY r.due_at, r.run_id) AS turn
		FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as JOIN sweep.job_state s ON s.job = j.name
		WHERE r.status = 'waiting' AND r.due_at <= at AND r.pid IS NULL AND sweep._is_home(s.system_identifier, s.database)
			AND (r.trigger = 'manual' OR NOT EXISTS (SELECT FROM sweep.control) AND s.all_paused_at IS NULL AND s.paused_at IS NULL
				AND (r.trigger = 'parent' OR j.buckets IS NOT NULL
					OR NOT EXISTS (SELECT FROM sweep.run_live o WHERE o.job = r.job AND o.run_as = r.run_as AND o.pid IS NOT NULL AND o.status = 'running')
						AND NOT EXISTS (SELECT FROM sweep.run_live o WHERE o.job = r.job AND o.run_as = r.run_as AND o.trigger IN ('schedule', 'catch_up', 'retry')
							AND o.due_at <= r.due_at AND (o.due_at, o.run_id) < (r.due_at, r.run_id) AND o.status = 'waiting' AND o.pid IS NULL)))
			-- Nobody has locked it, as who is cancelling it has: its process would have to wait for them. Hardly any row
			-- has ever been locked, so that is looked at first.
			AND (r.xmax = 0 OR sweep._lock_waiting_run(r.run_id)))
	-- Of those that wait for the same lock one, however many there are, and no more of a role than could start, and some
	-- that follow them: so none keeps another job or role from being seen. And nothing of what their owners have written.
	SELECT w.run_id, w.job, w.run_as, w.drained_rows FROM (SELECT f.*, pg_catalog.row_number() OVER (PARTITION BY f.run_as ORDER BY f.priority DESC, f.due_at, f.run_id) AS nth
			FROM ready f WHERE NOT f.takes_turns
				OR (f.turn = 1 OR f.divided) AND sweep._lock_is_held(sweep._role_oid(f.run_as), f.lock_key, f.divided) IS NOT TRUE) AS w
		WHERE w.nth <= coalesce(most, 1000) + 100 ORDER BY w.priority DESC, w.due_at, w.run_id;
END
$$;
COMMENT ON FUNCTION sweep._startable_runs(timestamptz) IS 'the waiting runs that may start now, of each lock and each role the oldest ones';

CREATE FUNCTION sweep._next_wake(listed_at timestamptz) RETURNS timestamptz
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
	-- In each tick: not in SQL, which would be planned anew each time.
	RETURN least((SELECT pg_catalog.min(s.next_start) FROM sweep.job_state s WHERE pg_catalog.isfinite(s.next_start)
			AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL AND NOT EXISTS (SELECT FROM sweep.control)),
		(SELECT pg_catalog.min(r.due_at) FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at > listed_at AND pg_catalog.isfinite(r.due_at)),
		-- Whoever has locked a run says nothing on rollback.
		(SELECT pg_catalog.clock_timestamp() + interval '1 s' FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at <= listed_at
			AND r.xmax <> 0 LIMIT 1));
END
$$;
COMMENT ON FUNCTION sweep._next_wake(timestamptz) IS 'when the scheduler has to look again that has listed what may start at the given time';

CREATE FUNCTION sweep._fail_start(run_id bigint, stop_reason text, sqlstate text, error text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text;
BEGIN
	-- Of one that somebody has locked it is tried again when it is free, and so it is while another share ends: it still waits.
	-- What does not has its end already.
	IF NOT sweep._may_end(run_id) OR sweep._lock_waiting_run(run_id) IS NOT TRUE THEN
		RETURN;
	END IF;
	-- What is known to be wrong with the job says more than that its process ended.
	SELECT sweep._job_problem(sweep._job_frame(j.name)) INTO problem FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as
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
	always constant boolean := EXISTS (SELECT FROM sweep.job j WHERE j.name = _kept_cursor.job AND j.cursor = 'always');
BEGIN
	-- A run that has not been moved to the history yet is the last one; else the state remembers it.
	SELECT r.* INTO last FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as WHERE r.job = _kept_cursor.job
		AND r.pid IS NOT NULL AND (r.batches > 0 OR r.cursor IS NOT NULL) ORDER BY coalesce(r.started_at, r.finished_at) DESC, r.run_id DESC LIMIT 1;
	IF FOUND THEN
		RETURN CASE WHEN last.stop_reason IS DISTINCT FROM 'drained' OR always THEN last.cursor END;
	END IF;
	RETURN (SELECT s.kept_cursor FROM sweep.job_state s WHERE s.job = _kept_cursor.job);
END
$$;
COMMENT ON FUNCTION sweep._kept_cursor(text) IS 'where the last run of the job stopped; NULL when it drained, unless the job keeps its cursor for good';

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
	-- Whoever drops the job or gives it to another role waits for us, or we for him.
	job sweep.job := sweep._lock_job(caller, name, true, true);
	problem pg_catalog.text := sweep._job_problem(job);
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
	PERFORM sweep._wake();
	RETURN new_id;
END
$$;
COMMENT ON FUNCTION sweep._start(oid, text, jsonb, interval, timestamptz) IS 'implements sweep.start';

CREATE FUNCTION sweep.start(name text, args jsonb DEFAULT '{}', delay interval DEFAULT '0', at timestamptz DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.start(text, jsonb, interval, timestamptz) IS 'runs a job in the background once the transaction has committed, after the delay, or at that moment; returns the run_id';

CREATE FUNCTION sweep._cancel(caller oid, run_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	target sweep.run_live;
	was_waiting boolean;
BEGIN
	LOOP
		SELECT * INTO target FROM sweep.run_live r WHERE r.run_id = _cancel.run_id;
		IF NOT FOUND THEN
			IF EXISTS (SELECT FROM sweep.run_history h WHERE h.run_id = _cancel.run_id) THEN
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
			WHERE r.run_id = _cancel.run_id AND r.status = 'waiting' AND r.run_as = target.run_as;
		was_waiting := FOUND;
		-- While we waited it may have got another role, with its job: then the right is another one.
		EXIT WHEN was_waiting OR NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.run_id = _cancel.run_id AND r.status = 'waiting');
	END LOOP;
	PERFORM sweep._wake();
	RETURN was_waiting;
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
-- Due moments: which jobs are due, and what is queued for them.
--
CREATE FUNCTION sweep._insert_scheduled(j sweep.job, due timestamptz, trigger text, always boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	in_the_way bigint;
BEGIN
	IF NOT always THEN
		-- OFFSET 0: a look for the smallest key would go through all runs of all jobs.
		-- Of a divided job a run in progress is one share: the buckets say whether there is room for more. So is
		-- one whose process has not begun it yet. But those that wait for a process are not piled up.
		in_the_way := least(
			(SELECT pg_catalog.min(w.run_id) FROM (SELECT r.run_id FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as
				AND r.trigger IN ('schedule', 'catch_up', 'retry', 'parent')
				AND r.due_at <= due AND r.status = 'waiting' AND r.pid IS NULL
				AND (j.buckets IS NULL OR r.shares_left IS NULL AND NOT EXISTS (SELECT FROM sweep._running() p WHERE p.run_id = r.run_id)) OFFSET 0) AS w),
			(SELECT pg_catalog.min(w.run_id) FROM (SELECT r.run_id FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running'
				AND j.overlap = 'skip' AND j.buckets IS NULL AND sweep._run_is_alive(r.run_id) OFFSET 0) AS w));
		IF j.overlap = 'cancel_previous' THEN
			-- One that somebody has locked is being cancelled already.
			UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
				WHERE r.run_id = in_the_way AND sweep._lock_waiting_run(r.run_id);
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
COMMENT ON FUNCTION sweep._insert_scheduled(sweep.job, timestamptz, text, boolean) IS 'queues the run of a due moment, as the overlap rule of the job says';

CREATE FUNCTION sweep._enqueue_job(j sweep.job, s sweep.job_state, at timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- A start that the scheduler sees later than this counts as missed.
	grace constant interval := '1 min';
	most constant int := 100;
	problem pg_catalog.text := sweep._job_problem(j);
	late boolean := at - s.next_start > grace;
	due pg_catalog.timestamptz := s.next_due;
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
				PERFORM sweep._insert_scheduled(j, due, CASE WHEN at - due > grace THEN 'catch_up' ELSE 'schedule' END, counted > 0);
				due := sweep._next_run(j.schedule, j.timezone, due, j.name);
				counted := counted + 1;
			END LOOP;
		ELSIF j.catch_up = 'once' OR NOT late THEN
			PERFORM sweep._insert_scheduled(j, due, CASE WHEN late THEN 'catch_up' ELSE 'schedule' END, false);
		END IF;
	END IF;
	PERFORM sweep._reschedule(j.name, at);
END
$$;
COMMENT ON FUNCTION sweep._enqueue_job(sweep.job, sweep.job_state, timestamptz) IS 'queues what a due job missed and is due for, and sets its next moment';

-- The scheduler decides about many jobs at a time. What their owners have written is none of its business.
CREATE FUNCTION sweep._job_frame(name text) RETURNS sweep.job
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job;
BEGIN
	-- A variable takes large values as they are stored, elsewhere; here they are dropped before anybody reads them.
	SELECT * INTO j FROM sweep.job t WHERE t.name = _job_frame.name;
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
COMMENT ON FUNCTION sweep._job_frame(text) IS 'the job without what can be large: sql, batch_sql, args, hooks, description';

-- So many at a time that runs which may start need not wait for long. Roles take turns, first the oldest moment of each,
-- then the second ones: thousands of jobs of one role delay no other role's.
CREATE FUNCTION sweep._enqueue_due(at timestamptz, most int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	due pg_catalog.record;
	state sweep.job_state;
	counted int := 0;
BEGIN
	FOR due IN SELECT s.job FROM (SELECT d.job, d.next_start, pg_catalog.row_number() OVER (PARTITION BY j.run_as ORDER BY d.next_start, d.job) AS nth
				FROM sweep.job_state d JOIN sweep.job j ON j.name = d.job
				WHERE d.next_start <= at AND sweep._is_home(d.system_identifier, d.database) AND d.all_paused_at IS NULL
					AND NOT EXISTS (SELECT FROM sweep.control)) AS turn JOIN sweep.job_state s ON s.job = turn.job
			-- Looked at again when it is locked: what somebody has committed since is not for us.
			WHERE s.next_start <= at AND s.all_paused_at IS NULL
			ORDER BY turn.nth, turn.next_start LIMIT most FOR UPDATE OF s SKIP LOCKED LOOP
		-- One job that cannot be scheduled must not keep the others from it.
		BEGIN
			SELECT * INTO state FROM sweep.job_state s WHERE s.job = due.job;
			state.kept_cursor := NULL;
			PERFORM sweep._enqueue_job(sweep._job_frame(due.job), state, at);
			counted := counted + 1;
		EXCEPTION WHEN lock_not_available THEN
			-- Of a table, not of this job.
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', due.job, SQLERRM;
			UPDATE sweep.job_state AS t SET next_start = at + interval '1 min' WHERE t.job = due.job;
			PERFORM sweep._set_broken(due.job, SQLERRM);
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
	due pg_catalog.record;
	seen int := 0;
	counted int := 0;
BEGIN
	SELECT pg_catalog.count(*) INTO seen FROM sweep.job_state s JOIN sweep.job j ON j.name = s.job
		WHERE s.boot IS DISTINCT FROM pg_catalog.pg_postmaster_start_time() AND sweep._is_reboot(j.schedule) AND s.paused_at IS NULL
			AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL AND NOT EXISTS (SELECT FROM sweep.control);
	FOR due IN SELECT j.name FROM sweep.job_state s JOIN sweep.job j ON j.name = s.job
			WHERE s.boot IS DISTINCT FROM pg_catalog.pg_postmaster_start_time() AND sweep._is_reboot(j.schedule)
				AND s.paused_at IS NULL AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL
				AND NOT EXISTS (SELECT FROM sweep.control) FOR UPDATE OF s SKIP LOCKED LOOP
		UPDATE sweep.job_state AS s SET boot = pg_catalog.pg_postmaster_start_time() WHERE s.job = due.name;
		BEGIN
			PERFORM sweep._insert_scheduled(sweep._job_frame(due.name), pg_catalog.clock_timestamp(), 'schedule', false), sweep._set_broken(due.name, NULL);
		EXCEPTION WHEN lock_not_available THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', due.name, SQLERRM;
			PERFORM sweep._set_broken(due.name, SQLERRM);
		END;
		counted := counted + 1;
	END LOOP;
	RETURN counted >= seen;
END
$$;
COMMENT ON FUNCTION sweep._enqueue_reboot() IS 'queues the @reboot jobs, once per start of the server; false when somebody has locked some of them';
--
-- How runs end when they cannot say so themselves, what follows from an end, and the history.
--
CREATE FUNCTION sweep._retry(run_id bigint) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A share that failed has queued those that follow it; one that was lost has not.
	INSERT INTO sweep.run_live (job, run_as, args, trigger, attempt, bucket, shares_left, parent_run_id, hook_depth, due_at)
		SELECT r.job, r.run_as, r.args, 'retry', r.attempt + 1, r.bucket, r.shares_left * (r.status = 'lost')::int, r.run_id, r.hook_depth,
			pg_catalog.clock_timestamp() + interval '1 s' * (r.attempt ^ 4 + 15 + pg_catalog.floor(pg_catalog.random() * 10 * (r.attempt + 1)))
		FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _retry.run_id AND sweep._is_retried(r.status, r.stop_reason, r.attempt, j.max_attempts)
$$;
COMMENT ON FUNCTION sweep._retry(bigint) IS 'queues the next attempt of a run that failed or was lost, with the backoff of Sidekiq';

CREATE FUNCTION sweep._cancel_orphans(due timestamptz) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	counted bigint;
BEGIN
	-- In each tick: not in SQL, which would be planned anew each time.
	WITH orphan AS (SELECT o.run_id FROM sweep.run_live o WHERE o.status = 'waiting' AND o.pid IS NULL AND o.due_at <= due
			AND NOT EXISTS (SELECT FROM sweep.job j WHERE j.name = o.job AND j.run_as = o.run_as) FOR UPDATE OF o SKIP LOCKED)
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
		FROM orphan WHERE r.run_id = orphan.run_id;
	GET DIAGNOSTICS counted = ROW_COUNT;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._cancel_orphans(timestamptz) IS 'ends what was queued while its job was dropped or given to another role, as far as it is due; returns how many';

CREATE FUNCTION sweep._mark_lost() RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	gone pg_catalog.record;
	counted int := 0;
BEGIN
	PERFORM sweep._cancel_orphans(pg_catalog.clock_timestamp());
	-- That of a copy is not lost: it goes on where this database was copied from.
	FOR gone IN SELECT r.run_id, r.status, CASE WHEN (SELECT sweep._is_home(s.system_identifier, s.database) IS NOT TRUE
				FROM sweep.job j LEFT JOIN sweep.job_state s ON s.job = j.name WHERE j.name = r.job) THEN 'cancelled' ELSE 'lost' END AS outcome
			FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.status IN ('waiting', 'running') AND NOT sweep._run_is_alive(r.run_id) FOR UPDATE OF r SKIP LOCKED LOOP
		CONTINUE WHEN NOT sweep._may_end(gone.run_id);
		UPDATE sweep.run_live AS r SET status = gone.outcome, stop_reason = gone.outcome, finished_at = pg_catalog.clock_timestamp()
			WHERE r.run_id = gone.run_id AND r.status = gone.status;
		IF FOUND THEN
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
	-- Looked for by itself: in a query that locks rows, those that are left out by an OFFSET are locked, that is written, as well.
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

-- A job whose schedule or zone cannot be read any more keeps the others from nothing: it is as if it were late, and
-- whoever sets its next moment says what is wrong with it.
CREATE FUNCTION sweep._is_too_late(name text, schedule text, timezone text, next_due timestamptz, at timestamptz) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN next_due > sweep._next_run(schedule, timezone, at, name);
EXCEPTION WHEN OTHERS THEN
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._is_too_late(text, text, text, timestamptz, timestamptz) IS 'whether a job is due later than its schedule says, or nobody can say';

CREATE FUNCTION sweep._mend_clock(at timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	late pg_catalog.record;
BEGIN
	-- A clock that ran ahead and was set back leaves moments that are too far off.
	FOR late IN SELECT j.name FROM sweep.job j JOIN sweep.job_state s ON s.job = j.name
			WHERE s.next_due > at AND s.broken IS NULL AND sweep._is_too_late(j.name, j.schedule, j.timezone, s.next_due, at)
			FOR UPDATE OF s SKIP LOCKED LOOP
		BEGIN
			PERFORM sweep._reschedule(late.name, at);
		EXCEPTION WHEN lock_not_available THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'next moment of job "%" could not be checked: %', late.name, SQLERRM;
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._mend_clock(timestamptz) IS 'brings forward what is due later than its schedule says';

CREATE FUNCTION sweep._archivable_jobs(OUT free text[], OUT locked boolean)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	ended pg_catalog.text[];
BEGIN
	-- From one job to the next in the index, however many runs of it there are; those that wait for longest first.
	WITH RECURSIVE step AS (
		(SELECT r.job, r.run_id FROM sweep.run_live r WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL ORDER BY r.job, r.run_id LIMIT 1)
		UNION ALL
		SELECT n.job, n.run_id FROM step s CROSS JOIN LATERAL (SELECT r.job, r.run_id FROM sweep.run_live r
			WHERE r.pid IS NOT NULL AND r.finished_at IS NOT NULL AND r.job > s.job ORDER BY r.job, r.run_id LIMIT 1) AS n)
	SELECT pg_catalog.array_agg(s.job ORDER BY s.run_id) INTO ended FROM step s;
	-- Somebody who changes a job just now may wait for us: its runs are left to the next time.
	SELECT pg_catalog.array_agg(e.job ORDER BY e.n) INTO free FROM pg_catalog.unnest(ended) WITH ORDINALITY AS e (job, n)
		LEFT JOIN (SELECT s.job FROM sweep.job_state s WHERE s.job = ANY (ended) FOR UPDATE SKIP LOCKED) AS ours ON ours.job = e.job
		WHERE ours.job IS NOT NULL OR NOT EXISTS (SELECT FROM sweep.job_state s WHERE s.job = e.job);
	locked := coalesce(pg_catalog.cardinality(free), 0) < coalesce(pg_catalog.cardinality(ended), 0);
END
$$;
COMMENT ON FUNCTION sweep._archivable_jobs() IS 'the jobs of which runs have ended, their states locked for us, and whether some are locked by others';

CREATE FUNCTION sweep._archive_runs(age_out boolean) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	-- So many at a time that the scheduler is not kept from its work, and of one job so many that others get their turn.
	most constant int := 1000;
	most_of_job int;
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
		-- Column by column: as one value it might be larger than any value may be.
		WITH moved AS (DELETE FROM sweep.run_live r WHERE r.run_id = ended.run_id RETURNING r.*)
		INSERT INTO sweep.run_history SELECT m.* FROM moved m;
		IF ended.batches > 0 OR ended.cursor IS NOT NULL THEN
			UPDATE sweep.job_state AS s SET last_start = coalesce(ended.started_at, ended.finished_at),
					drained_rows = CASE WHEN ended.stop_reason = 'drained' THEN ended.rows ELSE s.drained_rows END,
					kept_cursor = CASE WHEN ended.stop_reason IS DISTINCT FROM 'drained' OR EXISTS (SELECT FROM sweep.job j WHERE j.name = ended.job AND j.cursor = 'always')
						THEN ended.cursor END
				WHERE s.job = ended.job AND coalesce(s.last_start, '-infinity') <= coalesce(ended.started_at, ended.finished_at)
					AND EXISTS (SELECT FROM sweep.job j WHERE j.name = ended.job AND j.run_as = ended.run_as);
		END IF;
		moved := moved || ended.run_id;
	END LOOP;
	-- Once for all runs of a kind: each time looks at as many as are kept.
	PERFORM sweep._prune(k.job, k.run_as, k.status)
		FROM (SELECT DISTINCT h.job, h.run_as, h.status FROM pg_catalog.unnest(moved) AS m (run_id) JOIN sweep.run_history h USING (run_id)) AS k;
	IF age_out THEN
		PERFORM sweep._mend_clock(pg_catalog.clock_timestamp());
		DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
				WHERE k.finished_at < pg_catalog.clock_timestamp() - pg_catalog.current_setting('pg_sweep.history_max_age')::interval
				ORDER BY k.finished_at LIMIT 10000 FOR UPDATE SKIP LOCKED) AS old
			WHERE h.run_id = old.run_id;
		-- What was due to be tried again so long ago and was not is no longer picked.
		DELETE FROM sweep.quarantine AS q USING (SELECT o.job, o.item_hash FROM sweep.quarantine o
				WHERE o.next_try < pg_catalog.clock_timestamp() - pg_catalog.current_setting('pg_sweep.history_max_age')::interval FOR UPDATE SKIP LOCKED) AS old
			WHERE q.job = old.job AND q.item_hash = old.item_hash;
	END IF;
	RETURN CASE WHEN NOT jobs.locked THEN pg_catalog.cardinality(moved) END;
END
$$;
COMMENT ON FUNCTION sweep._archive_runs(boolean) IS 'moves ended runs to the history and prunes it, by age too if asked; NULL when a lock kept it from some';

-- ------------------------------------------------------------------ what sweep.wait waits for
CREATE FUNCTION sweep._wait_outcome(caller oid, run_id bigint, OUT job text, OUT status text, OUT stop_reason text, OUT batches bigint, OUT rows bigint,
	OUT error text, OUT ended boolean, OUT decisive bigint, OUT reason text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- Asked before the rows are read: a process that is gone by now has written all that it queues.
	alive bigint[] := ARRAY(SELECT p.run_id FROM sweep._running() p);
	asked sweep.run_live := sweep._run_outcome(caller, run_id);
	begun boolean;
BEGIN
	WITH RECURSIVE everything AS NOT MATERIALIZED (SELECT * FROM sweep.run_live UNION ALL SELECT * FROM sweep.run_history),
		share AS (
			SELECT _wait_outcome.run_id
			UNION ALL
			-- A retry is not waited for: the run it repeats has failed.
			SELECT e.run_id FROM share s JOIN everything e ON e.parent_run_id = s.run_id
				WHERE e.job = asked.job AND e.run_as = asked.run_as AND e.trigger <> 'retry'),
		-- A share that found no bucket has left them to others.
		run AS (SELECT e.*, pg_catalog.array_position('{failed,lost,cancelled,succeeded,skipped}'::pg_catalog.text[], e.status::pg_catalog.text) AS rank
			FROM share s JOIN everything e ON e.run_id = s.run_id)
	SELECT pg_catalog.bool_and(r.finished_at IS NOT NULL AND r.run_id <> ALL (alive)), pg_catalog.bool_or(r.status <> 'waiting'), pg_catalog.sum(r.batches), pg_catalog.sum(r.rows),
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
COMMENT ON FUNCTION sweep._wait_outcome(oid, bigint) IS 'what came of a run and, if it has divided its job, of all shares of that, and which of them says so; their processes are done with it when it has ended';
--
-- Hooks: the runs of other jobs that a run queues when it starts, succeeds or fails, in the commit that says so.
--
-- A run that is tried again has not failed yet: its last attempt decides. A divided job has ended when all shares of
-- a dispatch have, with the last one to end. Two that end at once would each see the other one in progress, so they end
-- one after the other, by a lock (SWEEP_LOCK_ENDING) that is held until the commit; see batch.c. The scheduler, which
-- waits for nobody, leaves the end of a share to its next tick while somebody has that lock.
--
CREATE FUNCTION sweep._try_lock_ending(job text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_try_ending';
COMMENT ON FUNCTION sweep._try_lock_ending(text) IS 'keeps the other shares of a divided job from ending until the transaction ends; false when one of them is just doing so';

CREATE FUNCTION sweep._may_end(run_id bigint) RETURNS boolean
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce((SELECT sweep._try_lock_ending(j.name) FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _may_end.run_id AND j.buckets IS NOT NULL AND (j.on_success IS NOT NULL OR j.on_failure IS NOT NULL)), true)
$$;
COMMENT ON FUNCTION sweep._may_end(bigint) IS 'whether a run may be ended in this transaction; false when another share of its job is just ending';

-- ------------------------------------------------------------------ what the queued run is told
CREATE FUNCTION sweep._hook_of(status text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN status = 'succeeded' THEN 'on_success' WHEN status IN ('failed', 'lost') THEN 'on_failure' ELSE 'on_start' END
$$;
COMMENT ON FUNCTION sweep._hook_of(text) IS 'the hook that queues runs when the run that it belongs to has this status';

CREATE FUNCTION sweep._error_message(error text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- No regular expression: while a request to cancel is pending it fails, and with it what records the outcome.
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
COMMENT ON FUNCTION sweep._ends_chain(int) IS 'whether a run that so many hooks have led to queues none any more: a circle of definitions would go round for ever';

CREATE FUNCTION sweep._queue_hooks(run_id bigint, hook text, parent_args jsonb) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	named pg_catalog.record;
	child pg_catalog.record;
	reason pg_catalog.text;
	not_started pg_catalog.jsonb;
	queued boolean := false;
BEGIN
	SELECT l.job, l.run_as, l.status, l.hook_depth,
			CASE hook WHEN 'on_start' THEN j.on_start WHEN 'on_success' THEN j.on_success ELSE j.on_failure END AS hooks INTO r
		FROM sweep.run_live l JOIN sweep.job j ON j.name = l.job AND j.run_as = l.run_as WHERE l.run_id = _queue_hooks.run_id;
	FOR named IN SELECT h.key AS name, h.value::interval AS delay FROM pg_catalog.jsonb_each_text(r.hooks) AS h ORDER BY h.key LOOP
		SELECT j.name, j.run_as, s.paused_at IS NOT NULL AS paused, sweep._is_home(s.system_identifier, s.database) AS at_home,
				-- Queued as shares, before the run began: sweep._divided_children().
				hook = 'on_start' AND r.status = 'running' AND j.buckets IS NOT NULL AND j.run_as = r.run_as AS divided INTO child
			FROM sweep.job j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = named.name;
		reason := CASE
			WHEN child.name IS NULL THEN 'it does not exist'
			WHEN child.paused THEN 'it is paused'
			WHEN NOT sweep._has_workers() THEN 'pg_sweep is not loaded at server start'
			WHEN NOT child.at_home THEN 'the database is a copy: its jobs are paused'
			-- Only jobs that the role of the parent may start.
			WHEN NOT sweep._may_act_on(sweep._role_oid(r.run_as), child.run_as, true) THEN 'the role of its parent may not start it'
			WHEN sweep._ends_chain(r.hook_depth) THEN 'the chain of hooks that led to this run is too long' END;
		IF reason IS NOT NULL THEN
			-- A run that succeeds while the work is left to nobody has to say so.
			RAISE NOTICE 'job "%" in % of job "%" is not started: %', named.name, hook, r.job, reason;
			not_started := coalesce(not_started, '{}') || pg_catalog.jsonb_build_object(named.name, reason);
		ELSIF NOT child.divided THEN
			-- One of this hook that waits already will do, if it begins when this is committed: it has to find what was done.
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
	RETURN CASE WHEN not_started IS NOT NULL THEN pg_catalog.jsonb_build_object('not_started', not_started) END;
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
	-- One that somebody has locked waits on.
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
COMMENT ON FUNCTION sweep._start_hooks(bigint) IS 'queues what a run queues when it starts, or when its moment has come and it does not get its lock; returns detail for it';

-- ------------------------------------------------------------------ ends
-- All runs of the job that hang together by what has queued what: shares, those that follow them, and retries. What has
-- queued them is a run of the job, or one of another job that has divided it.
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
	-- Another hook of that job may have queued a run of this one as well.
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
		-- Somebody has stopped it: it has neither succeeded nor failed. What was tried again does not count.
		counted AS (SELECT s.*, pg_catalog.array_position('{cancelled,failed,lost,succeeded}'::pg_catalog.text[], s.status::pg_catalog.text) AS rank FROM share s
			WHERE s.status <> 'skipped' AND NOT EXISTS (SELECT FROM share t WHERE t.parent_run_id = s.run_id AND t.trigger = 'retry'))
	SELECT (SELECT pg_catalog.bool_and(s.finished_at IS NOT NULL) FROM share s),
			(pg_catalog.array_agg(c.run_id ORDER BY c.rank, c.run_id))[1], (pg_catalog.array_agg(c.status::pg_catalog.text ORDER BY c.rank, c.run_id))[1]
		INTO ended, decisive, status FROM counted c;
END
$$;
COMMENT ON FUNCTION sweep._dispatch_outcome(bigint) IS 'whether all shares of the dispatch have ended that a run of a divided job belongs to, the first of them, and which of them says what came of it';

CREATE FUNCTION sweep._end_hooks(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	dispatch pg_catalog.record;
	-- The run that the hook tells of, and the one of which the error is.
	told bigint := run_id;
	decisive bigint := run_id;
	status pg_catalog.text;
	failure pg_catalog.record;
BEGIN
	-- Whether it is tried again is known by the run that does: max_attempts may have changed since that was queued.
	SELECT l.job, l.status, EXISTS (SELECT FROM sweep.run_live t WHERE t.parent_run_id = l.run_id AND t.trigger = 'retry') AS retried, j.buckets IS NOT NULL OR l.shares_left IS NOT NULL AS divided INTO r
		FROM sweep.run_live l JOIN sweep.job j ON j.name = l.job AND j.run_as = l.run_as
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
COMMENT ON FUNCTION sweep._end_hooks(bigint) IS 'queues what a run queues when it has succeeded, or failed for good; a run of a divided job when it is the last of its dispatch to end';

CREATE FUNCTION sweep._follow_end(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._retry(run_id);
	PERFORM sweep._end_hooks(run_id), sweep._alert_failed(run_id);
END
$$;
COMMENT ON FUNCTION sweep._follow_end(bigint) IS 'what follows from the end of a run, in the transaction that records it: another attempt, or hooks and an alert';
--
-- The buckets of divided jobs: who works on which share.
--
-- A run of a divided job works on one bucket, which it claims before its first batch and gives back at
-- its end. Whoever dies with a bucket does not: it is free again once it was occupied for the
-- bucket_recovery of its job. The run that holds it is the fence. Before each commit of a batch the run
-- locks the row of its bucket, FOR SHARE, which it can do only while it is still its own; so a run that
-- lost its bucket commits nothing more, and recovery passes over a bucket whose run is just committing.
--
-- Dispatching: a run that was not begun as a share (shares_left IS NULL) maintains the buckets, queues as
-- many shares as there are free buckets and free workers, and goes on as a share itself. What there is no
-- worker for follows later: shares_left says how many shares a share is followed by. Each of them prefers
-- a bucket of its own (run_live.bucket of a waiting run). To take the one that is free for longest would not
-- be enough: who is about to lock that may find that another one has had it and given it back meanwhile. A
-- share that reached a limit is followed by one that takes its bucket up again.
--
CREATE TABLE sweep.bucket (
	job    text,
	bucket int,
	state  text NOT NULL DEFAULT 'available',
	run_id bigint,
	pid    int,
	since  timestamptz NOT NULL,
	PRIMARY KEY (job, bucket),
	CONSTRAINT bucket_state_check CHECK (state IN ('available', 'occupied')),
	CONSTRAINT bucket_holder_check CHECK ((state = 'occupied') = (run_id IS NOT NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE sweep.bucket IS 'buckets of divided jobs with bucket_store table; made when the job runs, see sweep.buckets';
COMMENT ON COLUMN sweep.bucket.job IS 'name of the job';
COMMENT ON COLUMN sweep.bucket.bucket IS 'number of the bucket, from 0';
COMMENT ON COLUMN sweep.bucket.state IS 'available or occupied';
COMMENT ON COLUMN sweep.bucket.run_id IS 'run that holds it';
COMMENT ON COLUMN sweep.bucket.pid IS 'process of that run';
COMMENT ON COLUMN sweep.bucket.since IS 'since when it is in that state';

-- ------------------------------------------------------------------ the store
CREATE FUNCTION sweep._maintain_buckets(job text, buckets int, recovery interval, at timestamptz,
	OUT available int, OUT occupied int, OUT stale int, OUT missing int, OUT claimable int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Whoever has one of these rows locked is claiming it, giving it back or committing: it needs no care.
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
COMMENT ON FUNCTION sweep._maintain_buckets(text, int, interval, timestamptz) IS 'recovers the buckets that were occupied for so long, adds the missing ones and drops those beyond';

CREATE FUNCTION sweep._claim_bucket(job text, buckets int, run_id bigint, pid int, wanted int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	free int;
BEGIN
	SELECT b.bucket INTO free FROM sweep.bucket b
		WHERE b.job = _claim_bucket.job AND b.state = 'available' AND b.bucket < buckets
		ORDER BY b.bucket <> wanted, b.since, pg_catalog.random() LIMIT 1 FOR UPDATE SKIP LOCKED;
	UPDATE sweep.bucket AS b SET state = 'occupied', run_id = _claim_bucket.run_id, pid = _claim_bucket.pid, since = pg_catalog.clock_timestamp()
		WHERE b.job = _claim_bucket.job AND b.bucket = free;
	RETURN free;
END
$$;
COMMENT ON FUNCTION sweep._claim_bucket(text, int, bigint, int, int) IS 'takes the wanted bucket, else the one that is free for longest, at random among several; NULL when none is';

CREATE FUNCTION sweep._release_bucket(job text, buckets int, run_id bigint, bucket int) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
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
COMMENT ON FUNCTION sweep._release_bucket(text, int, bigint, int) IS 'gives a bucket back, or drops one beyond the number of buckets; false when it is no longer that run''s';

-- ------------------------------------------------------------------ shares
CREATE FUNCTION sweep._divided_children(run_id bigint, role oid) RETURNS TABLE (name text, bucket_store text, bucket_recovery interval,
	bucket_key text, buckets_function text, args jsonb, delay text)
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- Of the very role that asks: it executes the buckets_function of the child. Others divide themselves.
	SELECT child.name, child.bucket_store, child.bucket_recovery, child.bucket_key, child.buckets_function, child.args, c.value
		FROM sweep.run_live r JOIN sweep.job parent ON parent.name = r.job
			CROSS JOIN LATERAL pg_catalog.jsonb_each_text(parent.on_start) AS c
			JOIN sweep.job child ON child.name = c.key JOIN sweep.job_state s ON s.job = child.name
		WHERE r.run_id = _divided_children.run_id AND NOT sweep._ends_chain(r.hook_depth) AND child.buckets IS NOT NULL
			AND sweep._role_oid(parent.run_as) = role AND child.run_as = parent.run_as AND child.name <> parent.name
			AND s.paused_at IS NULL AND sweep._has_workers()
		ORDER BY child.name
$$;
COMMENT ON FUNCTION sweep._divided_children(bigint, oid) IS 'the divided jobs that a run of their parent dispatches';

CREATE FUNCTION sweep._queue_shares(run_id bigint, job text, delay interval, claimable int, workers int, buckets int,
	OUT shares_left int, OUT wanted int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	dispatcher sweep.run_live;
	divided sweep.job;
	own int;
	shares int;
	chains int;
	first int;
	preferred int[];
BEGIN
	shares_left := 0;
	SELECT * INTO dispatcher FROM sweep.run_live r WHERE r.run_id = _queue_shares.run_id;
	SELECT j.* INTO divided FROM sweep.job j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = _queue_shares.job
		AND j.run_as = dispatcher.run_as AND j.buckets IS NOT NULL AND s.paused_at IS NULL AND sweep._has_workers();
	IF NOT FOUND THEN
		RETURN;
	END IF;
	own := (dispatcher.job = job)::int;
	shares := claimable - (SELECT pg_catalog.count(*) FROM sweep.run_live w
		WHERE w.job = _queue_shares.job AND w.run_as = dispatcher.run_as AND w.status = 'waiting' AND w.shares_left IS NOT NULL AND w.due_at <= pg_catalog.clock_timestamp() + delay
			AND NOT EXISTS (SELECT FROM sweep.bucket b WHERE b.job = w.job AND b.run_id = w.run_id));
	-- The worker of the dispatcher counts: it becomes a share itself, or is free in a moment.
	chains := greatest(least(shares, workers + 1), own);
	IF chains = 0 THEN
		RETURN;
	END IF;
	-- Each chain of shares has numbers of its own, one after the other and beginning anywhere. Which of
	-- them are free in Redis is not known here.
	first := pg_catalog.floor(pg_catalog.random() * buckets);
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
COMMENT ON FUNCTION sweep._queue_shares(bigint, text, interval, int, int, int) IS 'queues shares up to the free buckets and workers; returns how many follow that of the dispatcher, and the bucket it would have';

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
	SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.hook_depth, r.batches, r.rows + r.rescued + r.quarantined AS handled INTO share
		FROM sweep.run_live r WHERE r.run_id = _follow_share.run_id;
	IF NOT FOUND THEN
		SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.hook_depth, r.batches, r.rows + r.rescued + r.quarantined AS handled INTO share
			FROM sweep.run_history r WHERE r.run_id = _follow_share.run_id;
	END IF;
	-- More is left to do where this share ends: that is one share more. One that did nothing would be followed for ever.
	goes_on := stop_reason IN ('max_batches', 'stop_after') AND share.handled > 0
		OR stop_reason = 'rescaled' AND bucket < buckets AND share.batches > 0;
	SELECT j.bucket_store INTO bucket_store FROM sweep.job j JOIN sweep.job_state s ON s.job = j.name
		WHERE j.name = share.job AND j.run_as = share.run_as AND j.buckets IS NOT NULL AND s.paused_at IS NULL;
	IF FOUND AND stop_reason <> 'cancelled' AND buckets > 0 AND (goes_on OR share.shares_left > 0) AND sweep._has_workers() THEN
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
COMMENT ON FUNCTION sweep._follow_share(bigint, boolean, text, int, int, interval) IS 'queues the share that follows one which has ended, if there is to be one, and returns it; divides: that one has divided the job itself';

-- ------------------------------------------------------------------ what an operator reads
CREATE VIEW sweep.buckets WITH (security_barrier) AS
	SELECT b.job, b.bucket, b.state, b.run_id AS holder, b.pid, b.since
		FROM sweep.bucket b JOIN sweep.job j ON j.name = b.job AND j.bucket_store = 'table' AND j.buckets IS NOT NULL
		WHERE sweep._may_see(j.run_as)
	UNION ALL
	SELECT r.job, r.bucket, 'occupied', r.run_id, r.pid, r.started_at
		FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as AND j.bucket_store = 'redis'
		WHERE r.status = 'running' AND r.bucket IS NOT NULL AND sweep._may_see(j.run_as);
COMMENT ON VIEW sweep.buckets IS 'buckets of divided jobs; of those in redis the ones that runs of this database hold';
COMMENT ON COLUMN sweep.buckets.job IS 'name of the job';
COMMENT ON COLUMN sweep.buckets.bucket IS 'number of the bucket, from 0';
COMMENT ON COLUMN sweep.buckets.state IS 'available or occupied';
COMMENT ON COLUMN sweep.buckets.holder IS 'run that holds it';
COMMENT ON COLUMN sweep.buckets.pid IS 'process of that run';
COMMENT ON COLUMN sweep.buckets.since IS 'since when it is in that state';
--
-- Items that neither the step nor the rescue function of their job could handle. They are left alone
-- until their next try, ever later, so that they hold up nothing else.
--
CREATE TABLE sweep.quarantine (
	job       text NOT NULL,
	item      jsonb NOT NULL,
	item_hash text NOT NULL GENERATED ALWAYS AS (pg_catalog.md5(item::pg_catalog.text)) STORED,
	sqlstate  text NOT NULL,
	message   text NOT NULL,
	attempts  int NOT NULL DEFAULT 1,
	first_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	last_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	next_try  timestamptz NOT NULL,
	PRIMARY KEY (job, item_hash)
);
COMMENT ON TABLE sweep.quarantine IS 'items that failed, with their errors and when they are tried again';
COMMENT ON COLUMN sweep.quarantine.job IS 'name of the job';
COMMENT ON COLUMN sweep.quarantine.item IS 'the item, as its pick function returned it';
COMMENT ON COLUMN sweep.quarantine.item_hash IS 'the item in a size that an index takes';
COMMENT ON COLUMN sweep.quarantine.sqlstate IS 'code of its last error';
COMMENT ON COLUMN sweep.quarantine.message IS 'its last error, with detail, hint and context';
COMMENT ON COLUMN sweep.quarantine.attempts IS 'how many runs it has failed in';
COMMENT ON COLUMN sweep.quarantine.first_at IS 'when it failed first';
COMMENT ON COLUMN sweep.quarantine.last_at IS 'when it failed last';
COMMENT ON COLUMN sweep.quarantine.next_try IS 'it is left alone until then';
SELECT pg_catalog.pg_extension_config_dump('sweep.quarantine', '');

CREATE FUNCTION sweep._quarantine(job text, role oid, item jsonb, sqlstate text, message text) RETURNS boolean
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A run may still be in progress when its job is dropped and another role creates one of that name,
	-- which must not get to see the items; or its role is renamed meanwhile.
	INSERT INTO sweep.quarantine AS q (job, item, sqlstate, message, first_at, last_at, next_try)
		SELECT job, item, sqlstate, message, moment.now, moment.now, moment.now + interval '10 min'
			FROM (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) AS moment
			WHERE EXISTS (SELECT FROM sweep.job j WHERE j.name = _quarantine.job AND sweep._role_oid(j.run_as) = _quarantine.role)
		ON CONFLICT ON CONSTRAINT quarantine_pkey DO UPDATE SET sqlstate = excluded.sqlstate, message = excluded.message,
			attempts = q.attempts + 1, last_at = excluded.last_at,
			next_try = excluded.last_at + interval '10 min' * 2 ^ least(q.attempts, 10)
		RETURNING true
$$;
COMMENT ON FUNCTION sweep._quarantine(text, oid, jsonb, text, text) IS
	'puts an item into quarantine: 10 minutes at first, twice as long after each further failure, about 7 days at most; NULL: the job is no longer one of that role, and nothing was done';

CREATE FUNCTION sweep._release_quarantine(caller oid, name text, item jsonb) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	released bigint;
BEGIN
	PERFORM sweep._lock_job(caller, name, true, true);
	UPDATE sweep.quarantine AS q SET next_try = pg_catalog.clock_timestamp()
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
-- Queues: how a batch hands follow-up work on.
--
-- A send is part of the sender's transaction, so a batch and its messages are
-- one commit.  Delivery is at least once: a claim is a lease for a time, and
-- what is not acknowledged within it comes again.
--
-- All messages of all queues are rows of sweep.queue_message; the type
-- sweep.message is what a consumer gets to see and stays the same when the
-- storage changes.  Users touch neither table: the functions check the caller
-- against the owner of the queue and those it was granted to.
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
COMMENT ON COLUMN sweep.queue.notify IS 'whether LISTEN hears of new messages';
COMMENT ON COLUMN sweep.queue.key_policy IS 'no second message with a key is queued: while_queued (while one waits to be claimed, also again), while_queued_or_running (until it is acknowledged), once_more_if_running (like while_queued, but the second one is not delivered before the first has ended)';
COMMENT ON COLUMN sweep.queue.senders IS 'names of the roles that were granted to send';
COMMENT ON COLUMN sweep.queue.consumers IS 'names of the roles that were granted to consume';

-- The columns of eight bytes come first and the wide ones last; table.h
-- has them in this order.  There is no foreign key to sweep.queue, which would
-- look up the queue for every message instead of once per call; sweep.drop_queue
-- keeps the two together.  Keys are compared, never sorted for anybody: byte by
-- byte is the fastest.
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
	CONSTRAINT queue_message_pkey PRIMARY KEY (queue_id, lane, message_id)
) WITH (
	-- A queue of any length is short-lived rows: vacuum by their number, not
	-- by their share of the backlog.
	autovacuum_vacuum_scale_factor = 0.01,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_insert_scale_factor = 0.05,
	autovacuum_analyze_scale_factor = 0.05
);
COMMENT ON TABLE sweep.queue_message IS 'the messages of all queues, waiting or held by a consumer; who holds which is in shared memory';
COMMENT ON COLUMN sweep.queue_message.message_id IS 'order within a queue';
COMMENT ON COLUMN sweep.queue_message.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep.queue_message.due_at IS 'not delivered before; NULL unless it was sent with a delay, has failed or was redriven';
COMMENT ON COLUMN sweep.queue_message.queue_id IS 'the queue it is in';
COMMENT ON COLUMN sweep.queue_message.lane IS 'its priority; with a due time: its priority + 100';
COMMENT ON COLUMN sweep.queue_message.attempts IS 'how often it was delivered when it last failed';
COMMENT ON COLUMN sweep.queue_message.claimed IS 'its key is free: it was claimed, and has not taken it back';
COMMENT ON COLUMN sweep.queue_message.key IS 'no second message with this key is queued, for as long as the queue''s key_policy says';
COMMENT ON COLUMN sweep.queue_message.headers IS 'what the sender says beside the payload, such as traceparent';
COMMENT ON COLUMN sweep.queue_message.error IS 'why it failed the last time: an object with a message, and of a handler in the database its sqlstate, detail, hint and context';
COMMENT ON COLUMN sweep.queue_message.payload IS 'what the sender says';

-- The index decides whether a key is waiting, so two senders at once, or one
-- that rolls back, can neither double nor lose a message.
CREATE UNIQUE INDEX queue_message_waiting_key ON sweep.queue_message (queue_id, key)
	WHERE key IS NOT NULL AND NOT claimed;
COMMENT ON INDEX sweep.queue_message_waiting_key IS 'at most one message per key whose key is not free';

CREATE INDEX queue_message_due ON sweep.queue_message (queue_id, due_at)
	WHERE due_at IS NOT NULL;
COMMENT ON INDEX sweep.queue_message_due IS 'what is due when';

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

-- Processes remember queues, and where the messages of a queue are to be found.
-- Statements on these tables that are none of the extension's own, such as
-- those of a restore, make them forget it.
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
COMMENT ON FUNCTION sweep._note_foreign_statement() IS 'internal: has the queues looked at from their start after a statement that is not the extension''s own';

CREATE TRIGGER note_foreign_statement BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON sweep.queue_message
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._note_foreign_statement();
CREATE TRIGGER note_foreign_statement BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON sweep.queue_dead
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._note_foreign_statement();

-- Also where those of others are turned off.
ALTER TABLE sweep.queue ENABLE ALWAYS TRIGGER note_change;
ALTER TABLE sweep.queue_message ENABLE ALWAYS TRIGGER note_foreign_statement;
ALTER TABLE sweep.queue_dead ENABLE ALWAYS TRIGGER note_foreign_statement;

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
COMMENT ON COLUMN sweep.message.lease IS 'what sweep.ack asks for';
--
-- Queues: creating, sharing, emptying and dropping them; dead messages.
--

CREATE FUNCTION sweep._sees_queue(caller oid, q sweep.queue)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._acts_for(caller, 'sweep_monitor')
		OR EXISTS (SELECT FROM pg_catalog.unnest(q.owner || q.senders || q.consumers) AS g (role) WHERE sweep._may_act_on(caller, g.role, true))
$$;
COMMENT ON FUNCTION sweep._sees_queue(oid, sweep.queue) IS 'internal: whether the caller may see the queue: its owner, whom it was granted to, and those who watch or act on all';

-- Members of the owner and of sweep_admin have all of the rights: 'send', 'consume', 'redrive' and 'own'.
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

-- The queue of that name, when the caller has the right.
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
		-- the closest name is right at its beginning and end for at least half
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

-- Statements between these two are the extension's own.  The first waits until
-- nobody drops the queue, or alone until nobody else works with it, and keeps
-- them from it until the transaction ends; the second says what they did: how
-- many rows have come, in lanes without and with a due time, how many dead
-- ones, from when something is due.
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
COMMENT ON FUNCTION sweep._note_purged(int, smallint, bigint) IS 'internal: this message was purged; whoever holds it need not any more when that has committed';

-- Nothing is written when nothing is to be changed.  Its owner, those it was granted to and its messages stay.
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
		IF (pause >= interval '0') IS NOT TRUE THEN
			RAISE EXCEPTION 'invalid backoff "%" for queue "%"', _create_queue.backoff, _create_queue.name
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
COMMENT ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text, boolean) IS 'creates a queue of the caller, or with replace gives an existing one these settings: how long a claim holds a message, how often and after which pauses a failed one comes again, how long acknowledged ones are kept, whether LISTEN hears of new ones, for how long a key is unique';

-- First a lock of this queue that lets its open senders and consumers finish, so
-- that what they sent goes too.  A sender looks for the queue again after it got
-- its own, so none can slip in behind.  To delete anything before would have
-- consumers wait for us, whose locks we wait for.  Waiting for the lock is given
-- up soon: the others who work with the queue wait behind it.
CREATE FUNCTION sweep._drop_queue(caller oid, name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '2s'
AS $$
DECLARE
	id int := (sweep._find_queue(caller, _drop_queue.name, 'own')).queue_id;
BEGIN
	PERFORM sweep._begin_queue_statement(id, true);
	DELETE FROM sweep.queue_message m WHERE m.queue_id = id;
	DELETE FROM sweep.queue_dead d WHERE d.queue_id = id;
	DELETE FROM sweep.queue_done d WHERE d.queue_id = id;
	DELETE FROM sweep.queue q WHERE q.queue_id = id;
	PERFORM sweep._end_queue_statement(id, 0, 0, 0, NULL, false, true);
END
$$;
COMMENT ON FUNCTION sweep._drop_queue(oid, text) IS 'internal: implements sweep.drop_queue';

CREATE FUNCTION sweep.drop_queue(name text)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_queue(text) IS 'removes a queue and every message in it';

-- Rows that others are removing or changing are left to them: to wait for them
-- while they wait for what was deleted here would be a deadlock.
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
COMMENT ON FUNCTION sweep.purge_queue(text) IS 'removes every message of a queue, claimed and delayed ones too, but for the dead and those that open transactions are just removing, and returns how many';

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
	-- The owner of a queue never changes: who may own it now may when it is locked, unless it is another one by then.
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

-- Execution of the message functions is what sweep_client has; each of them checks the right on its queue.  The
-- membership is one of the whole cluster, and is made by the owner of the extension.
CREATE FUNCTION sweep._make_client(role regrole)
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
		-- Before version 16, whether a role inherits is for the role to say.
		EXECUTE pg_catalog.format('GRANT sweep_client TO %I', grantee)
			|| CASE WHEN pg_catalog.current_setting('server_version_num')::int >= 160000 THEN ' WITH INHERIT TRUE' ELSE '' END;
	EXCEPTION
		WHEN unique_violation THEN
			NULL; -- somebody else has just made it a member
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

CREATE FUNCTION sweep._dead(caller oid, queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT priority int, OUT sent_at timestamptz, OUT died_at timestamptz, OUT error jsonb)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._find_queue(caller, _dead.queue, 'redrive')).queue_id;
BEGIN
	RETURN QUERY
	SELECT d.message_id, d.payload, d.key, d.attempts::int, d.headers, d.priority::int, d.sent_at, d.died_at, d.error
	FROM sweep.queue_dead d
	WHERE d.queue_id = id
	ORDER BY d.message_id;
END
$$;
COMMENT ON FUNCTION sweep._dead(oid, text) IS 'internal: implements sweep.dead';

CREATE FUNCTION sweep.dead(queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT priority int, OUT sent_at timestamptz, OUT died_at timestamptz, OUT error jsonb)
RETURNS SETOF record
LANGUAGE c STABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.dead(text) IS 'the messages of a queue that failed as often as it allows, with their last error: an object of sqlstate, message, detail, hint and context, or only the message that sweep.fail was told';

CREATE FUNCTION sweep._done(caller oid, queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT sent_at timestamptz, OUT done_at timestamptz)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._find_queue(caller, _done.queue, 'redrive')).queue_id;
BEGIN
	RETURN QUERY
	SELECT d.message_id, d.payload, d.key, d.attempts::int, d.headers, d.sent_at, d.done_at
	FROM sweep.queue_done d
	WHERE d.queue_id = id
	ORDER BY d.done_at, d.message_id;
END
$$;
COMMENT ON FUNCTION sweep._done(oid, text) IS 'internal: implements sweep.done';

CREATE FUNCTION sweep.done(queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT sent_at timestamptz, OUT done_at timestamptz)
RETURNS SETOF record
LANGUAGE c STABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.done(text) IS 'the acknowledged messages of a queue that keep_done has kept, oldest first';

-- They come back with their ids, due at once, a microsecond apart so that their
-- order stays. One whose key another message has stays where it is.
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
		SELECT pg_catalog.count(*) INTO moved FROM (
			SELECT FROM sweep.queue_dead d
			WHERE d.queue_id = q.queue_id AND (_redrive.filter IS NULL OR pg_catalog.to_jsonb(d) @> _redrive.filter)
			LIMIT _redrive.max) AS meant;
		RETURN moved;
	END IF;
	PERFORM sweep._begin_queue_statement(q.queue_id, false);
	WITH meant AS (
		SELECT d.*
		FROM sweep.queue_dead d
		WHERE d.queue_id = q.queue_id AND (_redrive.filter IS NULL OR pg_catalog.to_jsonb(d) @> _redrive.filter)
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
COMMENT ON FUNCTION sweep.redrive(text, jsonb, int, boolean) IS 'puts dead messages back into their queue, with all their attempts before them, and returns how many; filter is what they must contain, for example {"error": {"message": "timeout"}}';
--
-- Queues: sending, claiming, acknowledging. These are C, without a detour: they
-- are called for every message.
--
CREATE FUNCTION sweep.send(queue text, payload jsonb, key text DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0, headers jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send';
COMMENT ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb) IS 'queues a message in the caller''s transaction and returns its id; NULL when one with this key is already waiting';

CREATE FUNCTION sweep._try_send(queue_id int, queue text, payload jsonb)
RETURNS text
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_try_send';
COMMENT ON FUNCTION sweep._try_send(int, text, jsonb) IS 'internal: sends without waiting for who drops the queue, in a transaction that goes on in any case; NULL, or what has kept it from being sent';

CREATE FUNCTION sweep.send_many(queue text, payloads jsonb[], keys text[] DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send_many';
COMMENT ON FUNCTION sweep.send_many(text, jsonb[], text[], interval, int) IS 'queues any number of messages in the caller''s transaction and returns how many; those whose key is already waiting are left out';

CREATE FUNCTION sweep.claim(queue text, max int DEFAULT 1, visibility interval DEFAULT NULL)
RETURNS SETOF sweep.message
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_claim';
COMMENT ON FUNCTION sweep.claim(text, int, interval) IS 'takes up to max messages, by priority and then oldest first, under one lease; skips what others hold and does not wait for it';

CREATE FUNCTION sweep.ack(lease uuid, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_ack';
COMMENT ON FUNCTION sweep.ack(uuid, bigint[]) IS 'removes messages of a lease, all of them unless told which, and returns how many; what the lease no longer holds is left alone';

CREATE FUNCTION sweep.fail(lease uuid, error text DEFAULT NULL, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_fail';
COMMENT ON FUNCTION sweep.fail(uuid, text, bigint[]) IS 'has messages of a lease come again after a pause, or moves them to the dead-letter table when they were delivered as often as the queue allows; returns how many';

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

-- What shared memory knows of the queues of this database. Without it, or on a
-- standby, the rows are counted.
CREATE FUNCTION sweep._queue_states(OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint, OUT ready_held int, OUT delayed_held int,
	OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[], OUT positions bigint[],
	OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 50
AS 'MODULE_PATHNAME', 'sweep_queue_states';
COMMENT ON FUNCTION sweep._queue_states() IS 'internal: counters and positions of the queues of this database';

-- A view calls functions with the rights of its reader, so everybody may call these two directly: they know who
-- asks and tell of no queue but those that sweep.queues shows.
CREATE FUNCTION sweep.__seen_queues(caller oid, OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint,
	OUT ready_held int, OUT delayed_held int, OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[],
	OUT positions bigint[], OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT q.queue_id, s.ready_rows, s.delayed_rows, s.dead, s.ready_held, s.delayed_held, s.due_from, s.due_known, s.due_inside,
			s.lanes, s.positions, s.sent_per_second, s.acked_per_second
		FROM sweep.queue AS q LEFT JOIN sweep._queue_states() AS s ON s.queue_id = q.queue_id
		WHERE sweep._sees_queue(caller, q);
END
$$;
COMMENT ON FUNCTION sweep.__seen_queues(oid) IS 'internal: implements sweep._seen_queues';

CREATE FUNCTION sweep._seen_queues(OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint,
	OUT ready_held int, OUT delayed_held int, OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[],
	OUT positions bigint[], OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 50
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._seen_queues() IS 'internal: the queues that the caller may see, with their counters and positions';

-- What must be read of a queue: how many delayed messages are due and not found
-- yet, ten thousand at most, and how long the oldest has been waiting.  A function
-- for the sake of its settings: the planner takes this for a large query, and
-- compiling it would take a hundred times as long as executing it.
CREATE FUNCTION sweep.__read_queue(caller oid, queue_id int, delayed_rows bigint, due_from timestamptz, due_known int, due_inside int, lanes smallint[],
	positions bigint[], OUT due bigint, OUT oldest_age interval)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	id int := __read_queue.queue_id;
BEGIN
	IF NOT EXISTS (SELECT FROM sweep.queue AS q WHERE q.queue_id = id AND sweep._sees_queue(caller, q)) THEN
		RETURN;
	END IF;
	SELECT coalesce(greatest(pg_catalog.count(*) - __read_queue.due_inside, 0) + __read_queue.due_known, 0) INTO __read_queue.due
	FROM (SELECT FROM sweep.queue_message AS m
		WHERE m.queue_id = id AND m.due_at >= __read_queue.due_from AND m.due_at <= pg_catalog.clock_timestamp()
			AND __read_queue.delayed_rows > 0
		LIMIT 10000) AS found;
	SELECT greatest(pg_catalog.clock_timestamp() - pg_catalog.min(w.waits_from), interval '0') INTO __read_queue.oldest_age
	FROM (
		SELECT (SELECT m.sent_at FROM sweep.queue_message AS m
			WHERE m.queue_id = id AND m.lane = l.lane AND m.message_id >= l.from_id
			ORDER BY m.message_id LIMIT 1)
		FROM unnest(__read_queue.lanes, __read_queue.positions) AS l (lane, from_id)
		UNION ALL
		(SELECT m.due_at FROM sweep.queue_message AS m
			WHERE m.queue_id = id AND m.due_at >= __read_queue.due_from AND m.due_at <= pg_catalog.clock_timestamp()
			ORDER BY m.due_at LIMIT 1)) AS w (waits_from);
END
$$;
COMMENT ON FUNCTION sweep.__read_queue(oid, int, bigint, timestamptz, int, int, smallint[], bigint[]) IS 'internal: implements sweep._read_queue';

CREATE FUNCTION sweep._read_queue(queue_id int, delayed_rows bigint, due_from timestamptz, due_known int, due_inside int, lanes smallint[],
	positions bigint[], OUT due bigint, OUT oldest_age interval)
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._read_queue(int, bigint, timestamptz, int, int, smallint[], bigint[]) IS 'internal: what sweep.queues reads from the messages of a queue that the caller may see';

-- A barrier: no function of the reader sees a queue that the reader may not see.
CREATE VIEW sweep.queues WITH (security_barrier) AS
	SELECT q.name AS queue,
		coalesce(s.ready_rows + s.delayed_rows, 0) AS depth,
		greatest(s.ready_rows - s.ready_held + r.due, 0) AS ready,
		greatest(s.delayed_rows - s.delayed_held - r.due, 0) AS delayed,
		coalesce(least(s.ready_held + s.delayed_held, s.ready_rows + s.delayed_rows), 0) AS in_flight,
		coalesce(s.dead, 0) AS dead,
		CASE WHEN greatest(s.ready_rows - s.ready_held + r.due, 0) > 0 THEN r.oldest_age END AS oldest_age,
		coalesce(s.sent_per_second, 0) AS sent_per_second,
		coalesce(s.acked_per_second, 0) AS acked_per_second,
		q.owner
	FROM sweep.queue AS q
	JOIN sweep._seen_queues() AS s ON s.queue_id = q.queue_id
	CROSS JOIN LATERAL sweep._read_queue(q.queue_id, s.delayed_rows, s.due_from, s.due_known, s.due_inside, s.lanes, s.positions) AS r;
COMMENT ON VIEW sweep.queues IS 'how much is in each queue; known without counting, whatever the number; one sees those one may use, or all of them as sweep_monitor';
COMMENT ON COLUMN sweep.queues.queue IS 'name of the queue';
COMMENT ON COLUMN sweep.queues.depth IS 'all messages but the dead: ready, delayed and in_flight';
COMMENT ON COLUMN sweep.queues.ready IS 'can be claimed now';
COMMENT ON COLUMN sweep.queues.delayed IS 'to be delivered later: sent with a delay, or failed';
COMMENT ON COLUMN sweep.queues.in_flight IS 'held by a claim that has not run out';
COMMENT ON COLUMN sweep.queues.dead IS 'failed as often as the queue allows; see sweep.dead';
COMMENT ON COLUMN sweep.queues.oldest_age IS 'how long the oldest of the ready ones has been waiting';
COMMENT ON COLUMN sweep.queues.sent_per_second IS 'messages sent, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.acked_per_second IS 'messages acknowledged, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.owner IS 'role the queue belongs to';
--
-- Waiting for messages, see wait.c.
--
CREATE PROCEDURE sweep.wait_for_message(queue text, timeout interval DEFAULT '30 s')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_queue_wait_call';
COMMENT ON PROCEDURE sweep.wait_for_message(text, interval) IS 'ends the transaction and waits, without a snapshot, until the queue has something to claim or the time is over';
--
-- Alerts: messages that tell of a job that failed or is broken, in the commit that records it.
--
-- They go to the alert_queue of the job, as far as its role may send there, else to that of the server,
-- pg_sweep.alert_queue, in the databases that have such a queue. What keeps one from being sent is a WARNING: it
-- keeps nothing from being recorded, and waits for nobody.
--
CREATE FUNCTION sweep._send_alert(job text, alert jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j pg_catalog.record;
	target sweep.queue;
	problem pg_catalog.text;
BEGIN
	SELECT k.alert_queue AS own, k.run_as, coalesce(k.alert_queue, pg_catalog.current_setting('pg_sweep.alert_queue')) AS queue INTO j
		FROM sweep.job k WHERE k.name = _send_alert.job;
	IF coalesce(j.queue, '') = '' THEN
		RETURN;
	END IF;
	SELECT q.* INTO target FROM sweep.queue q WHERE q.name = j.queue;
	IF target.queue_id IS NULL AND j.own IS NULL THEN
		RETURN;
	END IF;
	problem := CASE WHEN target.queue_id IS NULL THEN 'it does not exist'
		WHEN j.own IS NOT NULL AND NOT sweep._may_use_queue(sweep._role_oid(j.run_as), target, 'send') THEN 'the role of the job may not send to it'
		-- Anybody may have a queue of that name, and who has it hands on what it is told.
		WHEN j.own IS NULL AND NOT (sweep._may_act_on(sweep._role_oid(target.owner), j.run_as, true) OR sweep._acts_for(sweep._role_oid(target.owner), 'sweep_monitor'))
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
		FROM sweep.run_live l JOIN sweep.job j ON j.name = l.job AND j.run_as = l.run_as
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
COMMENT ON FUNCTION sweep._alert_failed(bigint) IS 'tells of a run that has failed or was lost and is not tried again';

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
COMMENT ON FUNCTION sweep._set_broken(text, text) IS 'notes why a job cannot be started, or (NULL) that it can, and tells of it when that has changed';

CREATE FUNCTION sweep._check_alert_queue(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._find_queue(sweep._role_oid(job.run_as), job.alert_queue, 'send') WHERE job.alert_queue IS NOT NULL;
END
$$;
COMMENT ON FUNCTION sweep._check_alert_queue(sweep.job) IS 'raises unless the role of the job may send to its alert_queue';
--
-- Consumers in the database: background workers that call a function for each
-- message of a queue, or for each batch of them.
--
-- A row says what is wanted; the scheduler keeps as many processes as that
-- (consumer_pool.c), each connected as run_as (consumer.c).  What a
-- handler does and the acknowledgement of its message are one commit.  A
-- queue has one consumer at most: more processes are its concurrency.
--
CREATE TABLE sweep.consumer (
	consumer_id int GENERATED ALWAYS AS IDENTITY,
	queue_id    int NOT NULL REFERENCES sweep.queue (queue_id) ON DELETE CASCADE,
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
	CONSTRAINT consumer_batch_check CHECK (batch BETWEEN 1 AND 10000)
);
COMMENT ON TABLE sweep.consumer IS 'the consumers in the database; sweep.create_consumer adds one';
COMMENT ON COLUMN sweep.consumer.consumer_id IS 'never used again, so that a process knows whether it is still meant';
COMMENT ON COLUMN sweep.consumer.queue_id IS 'the queue it empties';
COMMENT ON COLUMN sweep.consumer.handler IS 'the function that is called with each message or with a batch of them, by name';
COMMENT ON COLUMN sweep.consumer.run_as IS 'name of the role its processes are connected as';
COMMENT ON COLUMN sweep.consumer.concurrency IS 'how many processes';
COMMENT ON COLUMN sweep.consumer.batch IS 'how many messages a process handles in one transaction';
COMMENT ON COLUMN sweep.consumer.paused_at IS 'since when it is paused; NULL: it is not';
COMMENT ON COLUMN sweep.consumer.system_identifier IS 'cluster it is meant for';
COMMENT ON COLUMN sweep.consumer.database IS 'database it is meant for: a copy of it elsewhere is paused until sweep.resume_all() is called there';
COMMENT ON COLUMN sweep.consumer.all_paused_at IS 'since when it is paused together with all others; NULL: it is not, or was created since';

-- A message in whose handling the server went down may be the reason for it,
-- so it is counted apart from its attempts: see consumer_note.c.
CREATE TABLE sweep.consumer_crash (
	queue_id   int NOT NULL REFERENCES sweep.queue (queue_id) ON DELETE CASCADE,
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

CREATE FUNCTION sweep._consumer_changed() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._wake();
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._consumer_changed() IS 'has the scheduler look at the consumers, also when they go with their queue';
CREATE TRIGGER consumer_changed AFTER INSERT OR UPDATE OR DELETE ON sweep.consumer
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._consumer_changed();
-- whether there is a queue that wants notifications
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE ON sweep.queue
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._consumer_changed();

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

-- The call would be resolved by the type of the argument, so with two of them it is not known which one is meant.
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
	role    constant pg_catalog.oid := sweep._role_oid(consumer.run_as);
	problem pg_catalog.text := sweep._role_problem(consumer.run_as);
BEGIN
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	IF NOT (sweep._acts_for(role, 'sweep_user') OR sweep._acts_for(role, 'sweep_admin')) THEN
		RETURN pg_catalog.format('role "%s" is not a member of sweep_user', consumer.run_as);
	END IF;
	problem := sweep._handler_problem(consumer.handler);
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	RETURN sweep._execute_problem(consumer.run_as, (sweep._find_handlers(consumer.handler))[1]);
END
$$;
COMMENT ON FUNCTION sweep._consumer_problem(sweep.consumer) IS 'why the consumer cannot work; NULL when nothing is known to stand in the way';

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
COMMENT ON FUNCTION sweep._check_consumer_right(oid, text, sweep.consumer, boolean) IS 'raises unless there is the consumer and the caller may act on it';

-- Rights are those on the consumer as it is once it is locked, as in sweep._lock_job().
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
COMMENT ON FUNCTION sweep._lock_consumer(oid, text, boolean) IS 'locks the consumer of the queue and returns it, if the caller may act on it then';

-- ------------------------------------------------------------------ create, drop, pause
CREATE FUNCTION sweep._create_consumer(caller oid, queue text, handler text, concurrency int, batch int, run_as regrole) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role     pg_catalog.oid := coalesce(run_as, caller);
	name     pg_catalog.text := sweep._role_name(role);
	id       int := (sweep._find_queue(caller, _create_consumer.queue, 'consume')).queue_id;
	consumer sweep.consumer;
	problem  pg_catalog.text := sweep._handler_problem(handler);
	function pg_catalog.regprocedure := (sweep._find_handlers(handler))[1];
	owned_by pg_catalog.text;
	-- as in the CHECK constraints
	most_processes constant int := 1000;
	most_messages  constant int := 10000;
BEGIN
	PERFORM sweep._require_workers();
	IF NOT sweep._can_become(caller, name) THEN
		RAISE EXCEPTION 'permission denied to consume queue "%" as role %', _create_consumer.queue, pg_catalog.quote_ident(name)
			USING ERRCODE = 'insufficient_privilege', HINT = 'run_as must be a role that you could SET ROLE to.';
	END IF;
	IF (concurrency BETWEEN 1 AND most_processes) IS NOT TRUE OR (batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid % %', CASE WHEN (batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN 'batch' ELSE 'concurrency' END,
				CASE WHEN (batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN batch ELSE concurrency END
			USING ERRCODE = 'invalid_parameter_value',
				HINT = pg_catalog.format('concurrency is a number of processes from 1 to %s, batch one of messages from 1 to %s.', most_processes, most_messages);
	END IF;
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION '%', problem
			USING ERRCODE = CASE WHEN function IS NULL THEN 'undefined_function' ELSE 'ambiguous_function' END,
				HINT = CASE WHEN function IS NULL THEN 'A handler is named with its schema and is a function(sweep.message), or a function(sweep.message[]) '
						'that is called once for a batch; what it returns is ignored.'
					ELSE 'Drop or rename the one that is not meant.' END;
	END IF;
	PERFORM sweep._find_queue(role, _create_consumer.queue, 'consume');
	owned_by := sweep._owner_problem(name, function);
	IF owned_by IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _create_consumer.queue, owned_by
			USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its owner decides what is executed as that role.',
				HINT = pg_catalog.format('ALTER FUNCTION %s OWNER TO %I gives it to the role of the consumer.', function, name);
	END IF;
	consumer := ROW(0, id, handler, name, concurrency, batch, NULL, 0, 0, NULL);
	problem := sweep._consumer_problem(consumer);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _create_consumer.queue, problem
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('The role needs LOGIN (before version 17), CONNECT on the database, membership in sweep_user '
					'and EXECUTE on the handler: see ALTER ROLE %I LOGIN and GRANT.', name);
	END IF;
	INSERT INTO sweep.consumer (queue_id, handler, run_as, concurrency, batch, system_identifier, database)
		SELECT id, _create_consumer.handler, name, _create_consumer.concurrency, _create_consumer.batch, sweep._system_identifier(), d.oid
			FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
		ON CONFLICT ON CONSTRAINT consumer_queue_key DO NOTHING;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" already has a consumer', _create_consumer.queue
			USING ERRCODE = 'duplicate_object', HINT = 'More processes are its concurrency: sweep.drop_consumer removes it, then create it anew.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._create_consumer(oid, text, text, int, int, regrole) IS 'implements sweep.create_consumer';

CREATE FUNCTION sweep.create_consumer(queue text, handler text, concurrency int DEFAULT 1, batch int DEFAULT 1, run_as regrole DEFAULT NULL)
	RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_consumer(text, text, int, int, regrole) IS 'has background workers call handler(sweep.message) for each message of the queue, or handler(sweep.message[]) for each batch of them; its effect and the acknowledgement are one commit';

CREATE FUNCTION sweep._drop_consumer(caller oid, queue text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._lock_consumer(caller, queue, false)).consumer_id;
BEGIN
	DELETE FROM sweep.consumer c WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._drop_consumer(oid, text) IS 'implements sweep.drop_consumer';

CREATE FUNCTION sweep.drop_consumer(queue text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_consumer(text) IS 'removes the consumer of the queue; what its processes are handling is finished first, the queue and its messages stay';

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
	-- Told apart by 0: the process that sends the notifications of this database.
	IF EXISTS (SELECT FROM sweep.queue q WHERE q.notify) THEN
		RETURN QUERY SELECT 0, 'notifier', 0::pg_catalog.oid, 1;
	END IF;
	RETURN QUERY SELECT c.consumer_id, q.name, sweep._role_oid(c.run_as), c.concurrency
		FROM sweep.consumer c JOIN sweep.queue q USING (queue_id)
		WHERE c.paused_at IS NULL AND c.all_paused_at IS NULL AND sweep._is_home(c.system_identifier, c.database)
			AND NOT EXISTS (SELECT FROM sweep.control) AND sweep._consumer_problem(c) IS NULL
		ORDER BY c.consumer_id;
END
$$;
COMMENT ON FUNCTION sweep._wanted_consumers() IS 'the consumers that should have processes, and how many';

-- Commits with a wait for the disk: the next crash may be a moment away. The
-- server may have gone down between the commit of a message and the note that
-- it is done: what is no longer in the queue is no suspect.
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
	-- Who is just dropping the queue, or working with these messages in a prepared transaction, is not waited for.
	PERFORM FROM sweep.consumer_crash c WHERE c.queue_id = _count_crash.queue_id AND c.message_id = ANY (message_ids) FOR UPDATE SKIP LOCKED;
	GET DIAGNOSTICS free = ROW_COUNT;
	PERFORM FROM sweep.queue q WHERE q.queue_id = _count_crash.queue_id FOR KEY SHARE SKIP LOCKED;
	IF NOT FOUND OR free < known THEN
		RETURN NOT EXISTS (SELECT FROM sweep.queue q WHERE q.queue_id = _count_crash.queue_id);
	END IF;
	INSERT INTO sweep.consumer_crash AS c (queue_id, message_id, crashes, last_at)
		SELECT m.queue_id, m.message_id, 1, pg_catalog.now() FROM sweep.queue_message m
		WHERE m.queue_id = _count_crash.queue_id AND m.message_id = ANY (message_ids)
		ON CONFLICT (queue_id, message_id) DO UPDATE SET crashes = c.crashes + 1, last_at = excluded.last_at;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._count_crash(int, bigint[]) IS 'the server went down while a consumer handled these; false when that could not be written down because somebody has them locked';

-- ------------------------------------------------------------------ what an operator reads
CREATE FUNCTION sweep._consumer_processes(OUT consumer_id int, OUT pid int, OUT handled bigint, OUT failed bigint,
	OUT started_at timestamptz, OUT last_error text)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_consumer_shared_list';
COMMENT ON FUNCTION sweep._consumer_processes() IS 'the processes of consumers in this database, from shared memory';

CREATE VIEW sweep.consumers WITH (security_barrier) AS
	SELECT q.name AS queue, c.handler, c.run_as, c.concurrency, c.batch,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN c.paused_at IS NOT NULL OR c.all_paused_at IS NOT NULL OR NOT sweep._is_home(c.system_identifier, c.database)
				OR EXISTS (SELECT FROM sweep.control) THEN 'paused'
			WHEN p.workers >= c.concurrency THEN 'running'
			ELSE 'waiting_for_slot'
		END AS state,
		p.workers, p.handled, p.failed, p.last_error
	FROM sweep.consumer c
		JOIN sweep.queue q USING (queue_id)
		CROSS JOIN LATERAL (SELECT sweep._consumer_problem(c) AS reason) AS problem
		CROSS JOIN LATERAL (SELECT pg_catalog.count(*)::int AS workers, coalesce(pg_catalog.sum(l.handled), 0)::bigint AS handled,
				coalesce(pg_catalog.sum(l.failed), 0)::bigint AS failed, pg_catalog.max(l.last_error) AS last_error
			FROM sweep._consumer_processes() l WHERE l.consumer_id = c.consumer_id) AS p
	WHERE sweep._may_see(c.run_as);
COMMENT ON VIEW sweep.consumers IS 'consumers in the database with their processes';
COMMENT ON COLUMN sweep.consumers.queue IS 'the queue it empties';
COMMENT ON COLUMN sweep.consumers.handler IS 'the function that is called with each message or with a batch of them';
COMMENT ON COLUMN sweep.consumers.run_as IS 'the role it runs as';
COMMENT ON COLUMN sweep.consumers.concurrency IS 'how many processes are wanted';
COMMENT ON COLUMN sweep.consumers.batch IS 'messages per transaction';
COMMENT ON COLUMN sweep.consumers.state IS 'running, waiting_for_slot (fewer processes than wanted), paused, or broken: and why';
COMMENT ON COLUMN sweep.consumers.workers IS 'how many processes there are';
COMMENT ON COLUMN sweep.consumers.handled IS 'messages handled by these processes';
COMMENT ON COLUMN sweep.consumers.failed IS 'messages that failed in these processes';
COMMENT ON COLUMN sweep.consumers.last_error IS 'an error of one of these processes, its last one';
--
-- Effects that happen once, for consumers outside of the database.
--
-- Delivery is at least once: an acknowledgement that is lost, or a consumer
-- that is slower than its lease, brings a message a second time.  Whoever
-- begins the transaction of its effect with sweep.begin_once is told so.
--
CREATE TABLE sweep.once_key (
	role    text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	done_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	CONSTRAINT once_key_pkey PRIMARY KEY (role, key)
);
COMMENT ON TABLE sweep.once_key IS 'what was begun with sweep.begin_once and committed, for pg_sweep.once_retention';
COMMENT ON COLUMN sweep.once_key.role IS 'each role, by its name, has keys of its own';
COMMENT ON COLUMN sweep.once_key.key IS 'the key, at most 1000 bytes';
COMMENT ON COLUMN sweep.once_key.done_at IS 'when the transaction began';
CREATE INDEX once_key_done_at ON sweep.once_key (done_at);
COMMENT ON INDEX sweep.once_key_done_at IS 'for the removal of what is too old';
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
	-- Of two at once the second waits: only the end of the first tells.
	INSERT INTO sweep.once_key (role, key) VALUES (sweep._role_name(caller), _begin_once.key)
		ON CONFLICT ON CONSTRAINT once_key_pkey DO NOTHING;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION sweep._begin_once(oid, text) IS 'implements sweep.begin_once';

CREATE FUNCTION sweep.begin_once(key text) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.begin_once(text) IS 'true when no committed transaction of this role has begun with this key before; then it counts when this one commits';

-- So many at a time that the scheduler is not kept from its work.
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
-- What the makers of retention, backfill and copy have in common: which table is meant, by which index its rows are
-- gone through in ranges, and the statements of a batch. ../engine/ranges.c executes these, and says in which order.
--
-- Statements are made of names that were looked up and are quoted, of values as constants, and of texts of the user that
-- are whole expressions by themselves. All operators and functions are qualified, for they run with the search_path of the job.
-- Their parameters: $1 the size, $2 the cursor, $3 as_of, $4 the last key of the batch as a cursor, $5 the run.
--
CREATE TYPE sweep._statements AS (
	prologue     text,
	edge         text,
	rest         text,
	before       text,
	work         text,
	pick         text,
	epilogue     text,
	key          text,
	part         text,
	next_part    text,
	counter      text,
	rest_counter text,
	checked      boolean,
	restarts     boolean,
	parts        text
);
COMMENT ON TYPE sweep._statements IS 'the statements of a batch that is a range of keys';
COMMENT ON COLUMN sweep._statements.prologue IS 'before each batch, returns rows (not null: that was the batch), cursor and detail; NULL: none';
COMMENT ON COLUMN sweep._statements.edge IS 'returns the last key of the batch, and the one behind it where keys are not unique';
COMMENT ON COLUMN sweep._statements.rest IS 'returns the last key of what is left, and how many rows these are';
COMMENT ON COLUMN sweep._statements.before IS 'returns the next smaller key than $4';
COMMENT ON COLUMN sweep._statements.work IS 'does the rows behind the cursor up to $4';
COMMENT ON COLUMN sweep._statements.pick IS 'does at most $1 rows whose key is $4';
COMMENT ON COLUMN sweep._statements.epilogue IS 'returns whether anything is left when there is nothing behind the cursor; NULL: that is not asked';
COMMENT ON COLUMN sweep._statements.key IS 'the columns of the key, as they are in the cursor';
COMMENT ON COLUMN sweep._statements.part IS 'the partition that they are for; NULL: the table as a whole';
COMMENT ON COLUMN sweep._statements.next_part IS 'the cursor that the next partition begins with; NULL: there is none';
COMMENT ON COLUMN sweep._statements.counter IS 'how the detail calls the rows that were done';
COMMENT ON COLUMN sweep._statements.rest_counter IS 'how it calls those that were looked at and left; NULL: not counted';
COMMENT ON COLUMN sweep._statements.checked IS 'whether work returns how many rows it has done, and the key of one that would be done again';
COMMENT ON COLUMN sweep._statements.restarts IS 'whether a cursor of another key is forgotten; otherwise it is an error';
COMMENT ON COLUMN sweep._statements.parts IS 'the partitions that are gone through one after the other, an array; NULL: none';

CREATE FUNCTION sweep._check_condition(condition text) RETURNS void
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_fragment_check_condition';
COMMENT ON FUNCTION sweep._check_condition(text) IS 'raises unless the text is a single expression without parameters';

CREATE FUNCTION sweep._set_columns(assignments text) RETURNS text[]
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_fragment_set_columns';
COMMENT ON FUNCTION sweep._set_columns(text) IS 'the columns that are set; raises unless the text is nothing but what stands behind SET';

-- ------------------------------------------------------------------ the table
-- One without a schema is looked for in the search_path of the caller, as the role of the job would; what is stored has its schema.
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
		-- A number is no name, and what is in pg_temp or pg_catalog is not what is meant.
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
		WHERE c.relname = pg_catalog.lower(name) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_';
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
	IF known.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = relation) THEN
		RAISE EXCEPTION '% has tables that inherit from it', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'An index of the one is none of the others. Create a job for each of them, or make it a partitioned table.';
	END IF;
	IF NOT pg_catalog.has_schema_privilege(sweep._role_oid(role), known.nspname, 'USAGE') THEN
		RAISE EXCEPTION 'role "%" may not use schema "%"', role, known.nspname USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I;', known.nspname, role);
	END IF;
	SELECT pg_catalog.string_agg(p, ', ') INTO missing FROM pg_catalog.unnest(privileges) AS p
		WHERE NOT pg_catalog.has_table_privilege(sweep._role_oid(role), relation, p)
			-- Of these a column may be enough; the statement itself will say which.
			AND (p = 'DELETE' OR NOT pg_catalog.has_any_column_privilege(sweep._role_oid(role), relation, p));
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION 'role "%" lacks privileges on %: %', role, relation, missing USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT %s ON %s TO %I;', missing, relation, role);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_table(text, regclass, text[]) IS 'raises unless it is a table through which the role can go in batches';

CREATE FUNCTION sweep._create_index(relation regclass, columns text[]) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('CREATE INDEX %sON %s (%s);', CASE c.relkind WHEN 'p' THEN '' ELSE 'CONCURRENTLY ' END, relation,
			(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n)))
		|| CASE c.relkind WHEN 'p' THEN ' It takes over indexes that its partitions have already, which can be created CONCURRENTLY.' ELSE '' END
		FROM pg_catalog.pg_class c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION sweep._create_index(regclass, text[]) IS 'the statement that creates an index, for a hint';

CREATE FUNCTION sweep._table_name(relation regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._table_name(regclass) IS 'its name with its schema, quoted';

-- By its own name in either case, so that what the user has written means the same.
CREATE FUNCTION sweep._source(relation regclass, part regclass) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('%s AS %I', sweep._table_name(coalesce(part, relation)), c.relname) FROM pg_catalog.pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._source(regclass, regclass) IS 'what stands behind FROM for a table, or for a part of it';

CREATE FUNCTION sweep._check_fragment(role text, statement text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_batch_sql(sweep._role_oid(role), statement, sweep._login_path(sweep._role_oid(role)));
EXCEPTION WHEN undefined_table OR undefined_function OR undefined_object THEN
	RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE,
		HINT = pg_catalog.format('Write names with their schema. The job would run with search_path %s.', sweep._login_path(sweep._role_oid(role)));
END
$$;
COMMENT ON FUNCTION sweep._check_fragment(text, text) IS 'has a statement with what the user has written in it analysed, as the role of the job';

-- ------------------------------------------------------------------ the key
-- In PL/pgSQL also where it is one expression: a function in SQL is planned at each call, and these are called for each partition.
-- Only of columns whose order and equality are the plain ones, all in the same direction: then a comparison of rows is a range of
-- the index. The first column may be null, which is in no range; the others may not.
CREATE FUNCTION sweep._index_key(index oid, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.array_agg(p.attname::pg_catalog.text ORDER BY p.n), pg_catalog.array_agg(p.nulls ORDER BY p.n) INTO columns, nulls
		FROM (SELECT k.n, a.attname, CASE WHEN (i.indoption[k.n] & 2 = 2) <> (i.indoption[k.n] & 1 = 1) THEN 'first' ELSE 'last' END AS nulls,
				pg_catalog.bool_and(a.attnum IS NOT NULL AND (k.n = 0 OR a.attnotnull) AND i.indoption[k.n] & 1 = i.indoption[0] & 1
					AND o.opcdefault AND o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace AND i.indcollation[k.n] = a.attcollation) OVER (ORDER BY k.n) AS fits
			FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
				LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n] AND a.attnum > 0
				JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[k.n]
			WHERE i.indexrelid = index AND i.indisvalid AND i.indisready AND i.indislive AND i.indpred IS NULL) AS p
			JOIN pg_catalog.pg_class c ON c.oid = index JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname = 'btree'
		WHERE p.fits;
END
$$;
COMMENT ON FUNCTION sweep._index_key(oid) IS 'the leading columns of an index by which rows can be gone through in ranges, and where their nulls are; NULL: none';

CREATE FUNCTION sweep._is_unique(relation regclass, columns text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = relation AND i.indisunique AND i.indimmediate AND i.indisvalid
		AND i.indpred IS NULL AND i.indexprs IS NULL
		AND NOT EXISTS (SELECT FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = relation AND a.attnum = i.indkey[k.n] WHERE a.attname::pg_catalog.text <> ALL (columns))));
END
$$;
COMMENT ON FUNCTION sweep._is_unique(regclass, text[]) IS 'whether no two rows without nulls have the same values in these columns';

-- In SQL: the key that a cursor has, and comparisons with it.
CREATE FUNCTION sweep._key_value(relation regclass, name text, place bigint, source text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('((%s OPERATOR(pg_catalog.#>>) ''{after,%s}'')::%s)', source, place - 1, pg_catalog.format_type(a.atttypid, a.atttypmod))
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = name AND NOT a.attisdropped);
END
$$;
COMMENT ON FUNCTION sweep._key_value(regclass, text, bigint, text) IS 'an expression: a column of the key in a cursor';

CREATE FUNCTION sweep._key_compare(relation regclass, columns text[], operator text, source text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE pg_catalog.cardinality(columns) WHEN 1 THEN pg_catalog.min(k.name) || o.compare || pg_catalog.min(k.value)
			ELSE pg_catalog.format('ROW(%s)%sROW(%s)', pg_catalog.string_agg(k.name, ', ' ORDER BY k.n), o.compare, pg_catalog.string_agg(k.value, ', ' ORDER BY k.n))
			-- Says the same of the first one alone, which is what partitions are left out by.
			|| CASE operator WHEN '=' THEN '' ELSE pg_catalog.format(' AND %s OPERATOR(pg_catalog.%s=) %s', pg_catalog.min(k.name) FILTER (WHERE k.n = 1),
				pg_catalog.left(operator, 1), pg_catalog.min(k.value) FILTER (WHERE k.n = 1)) END END
		FROM (SELECT u.n, pg_catalog.format('%I.%I', c.relname, u.name) AS name, sweep._key_value(relation, u.name, u.n, source) AS value
				FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = relation) AS k,
			(SELECT pg_catalog.format(' OPERATOR(pg_catalog.%s) ', operator) AS compare) AS o
		GROUP BY o.compare);
END
$$;
COMMENT ON FUNCTION sweep._key_compare(regclass, text[], text, text) IS 'a condition: the key of a row is greater, less, … than that of a cursor';

CREATE FUNCTION sweep._key_json(columns text[], part text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.format('pg_catalog.jsonb_build_object(''by'', %1$L, ''after'', pg_catalog.jsonb_build_array(%3$s)%2$s)',
			pg_catalog.array_to_string(columns, ', '), CASE WHEN part IS NULL THEN '' ELSE pg_catalog.format(', ''part'', %L', part) END, pg_catalog.string_agg(pg_catalog.format('k.%I', u.name), ', ' ORDER BY u.n))
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n));
END
$$;
COMMENT ON FUNCTION sweep._key_json(text[], text) IS 'an expression: the key of row k as a cursor, of a partition or not';

CREATE FUNCTION sweep._key_order(relation regclass, columns text[], nulls text[], down boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I %s NULLS %s', c.relname, u.name, CASE WHEN down THEN 'DESC' ELSE 'ASC' END,
			CASE WHEN (nulls[u.n] = 'first') <> down THEN 'FIRST' ELSE 'LAST' END), ', ' ORDER BY u.n)
		FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = relation);
END
$$;
COMMENT ON FUNCTION sweep._key_order(regclass, text[], text[], boolean) IS 'what stands behind ORDER BY, from the smallest key or, down, from the largest';

CREATE FUNCTION sweep._range(relation regclass, columns text[], first boolean) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE WHEN first THEN '' ELSE sweep._key_compare(relation, columns, '>', '$2') || ' AND ' END || sweep._key_compare(relation, columns, '<=', '$4'));
END
$$;
COMMENT ON FUNCTION sweep._range(regclass, text[], boolean) IS 'a condition: the row is of the batch, behind the cursor, if any, and not behind its last key';

-- What is found is the edge of a batch of those rows for which the filter holds. JSON is made outside of the subquery: of one row, and not
-- of each that is passed over.
CREATE FUNCTION sweep._edge_statements(relation regclass, part regclass, columns text[], nulls text[], filter text, first boolean) RETURNS sweep._statements
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	is_unique constant boolean := sweep._is_unique(coalesce(part, relation), columns);
	json constant pg_catalog.text := sweep._key_json(columns, sweep._table_name(part));
	behind constant pg_catalog.text := pg_catalog.format('SELECT %s FROM %s WHERE %s',
		(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n)
			FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = relation),
		sweep._source(relation, part), filter || CASE WHEN first THEN '' ELSE ' AND ' || sweep._key_compare(relation, columns, '>', '$2') END);
	upwards constant pg_catalog.text := sweep._key_order(relation, columns, nulls, false);
BEGIN
	made.key := pg_catalog.array_to_string(columns, ', ');
	made.edge := pg_catalog.format('SELECT %s FROM (%s ORDER BY %s OFFSET ($1 OPERATOR(pg_catalog.-) 1) LIMIT %s) AS k',
		json, behind, upwards, CASE WHEN is_unique THEN 1 ELSE 2 END);
	-- JSON of the last one alone
	made.rest := pg_catalog.format('SELECT %s, k.sweep_count FROM (SELECT * FROM (SELECT *, pg_catalog.row_number() OVER () AS sweep_count FROM (%s ORDER BY %s LIMIT $1) AS b) AS n'
		' ORDER BY sweep_count DESC LIMIT 1) AS k', json, behind, upwards);
	IF NOT is_unique THEN
		made.before := pg_catalog.format('SELECT %s FROM (%s AND %s ORDER BY %s LIMIT 1) AS k', json, behind,
			sweep._key_compare(relation, columns, '<', '$4'), sweep._key_order(relation, columns, nulls, true));
	END IF;
	made.part := sweep._table_name(part);
	made.checked := false;
	made.restarts := true;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._edge_statements(regclass, regclass, text[], text[], text, boolean) IS
	'the statements that find the edge of a batch among the rows of a table, or of a part of it, for which the filter holds, behind the cursor or, first, from the start';

-- By the primary key, or by the columns that are named: an index must have them in this order, and tell all rows apart.
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
			AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = wanted[1] AND a.attnotnull) ORDER BY i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no unique index by which to go through it in the order of (%)', relation,
				coalesce(order_by, pg_catalog.array_to_string(wanted, ', ')) USING ERRCODE = 'invalid_parameter_value',
			HINT = 'It is a btree index of these columns and no others, all NOT NULL and in one direction, without a WHERE. Name its columns in order_by.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._ordered_key(regclass, text) IS 'the columns by which a table is gone through, and where their nulls are in the index; raises when there is no such index';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep._job_defaults() RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	defaults pg_catalog.jsonb;
BEGIN
	EXECUTE (SELECT pg_catalog.format('SELECT pg_catalog.jsonb_object_agg(d.name, d.value) FROM (VALUES %s) AS d (name, value)',
			pg_catalog.string_agg(pg_catalog.format('(%L, pg_catalog.to_jsonb(%s))', a.attname, pg_catalog.pg_get_function_arg_default(p.oid, g.n::pg_catalog.int4)), ', '))
		FROM pg_catalog.pg_proc p CROSS JOIN LATERAL pg_catalog.unnest(p.proargnames) WITH ORDINALITY AS g (name, n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = 'sweep.job'::pg_catalog.regclass AND a.attname = g.name AND a.attnum > 0
		WHERE p.oid = 'sweep.create_job'::pg_catalog.regproc AND pg_catalog.pg_get_function_arg_default(p.oid, g.n::pg_catalog.int4) IS NOT NULL) INTO defaults;
	RETURN defaults;
END
$$;
COMMENT ON FUNCTION sweep._job_defaults() IS 'what sweep.create_job makes of the settings of a job that are left out';

CREATE FUNCTION sweep._begin_maker(caller oid, job sweep.job, word text, relation regclass, run_as regrole) RETURNS sweep.job
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF job.name IS NULL THEN
		job.name := word || '_' || (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = relation);
		WHILE pg_catalog.octet_length(job.name) > 63 LOOP
			job.name := pg_catalog.left(job.name, -1);
		END LOOP;
	END IF;
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
	-- Whatever else a job may have is as sweep.create_job has it.
	RETURN pg_catalog.jsonb_populate_record(NULL::sweep.job, sweep._job_defaults() || (SELECT pg_catalog.jsonb_object_agg(e.key, e.value)
		FROM pg_catalog.jsonb_each(pg_catalog.to_jsonb(job)) AS e WHERE e.value <> 'null'));
END
$$;
COMMENT ON FUNCTION sweep._begin_maker(oid, sweep.job, text, regclass, regrole) IS 'completes the settings of a job that is being made, and raises unless the caller may make it for that role';

CREATE FUNCTION sweep._start_maker(job sweep.job, paused boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF job.schedule IS NOT NULL OR paused THEN
		RETURN;
	END IF;
	IF sweep._has_workers() THEN
		PERFORM sweep.start(job.name);
	ELSE
		RAISE NOTICE 'job "%" is not started: pg_sweep is not loaded at server start', job.name
			USING HINT = pg_catalog.format('CALL sweep.run(%L);', job.name);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._start_maker(sweep.job, boolean) IS 'starts a job that is to be done once, unless it is paused or left to a schedule';
--
-- Partitions in a retention: which of them are gone through, one after the other, and which are dropped.
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

-- A statement about a table of many partitions has to begin with all of them and to merge what they give, which takes as long as the
-- batch. So they are gone through one after the other where that makes no other difference: no policies, no rules, no triggers of the statement,
-- all rights on each of them. Those that are empty, or in which nothing can be too old, are left out.
CREATE FUNCTION sweep._parts(relation regclass, age_column text, role oid, type text, age_limit text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
	is_by_age constant boolean := sweep._is_ranged_by(relation, age_column);
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_class c ON c.oid = t.relid
			WHERE c.relrowsecurity OR c.relhasrules OR t.isleaf AND (c.relkind <> 'r' OR NOT pg_catalog.has_schema_privilege(role, c.relnamespace, 'USAGE')
					OR NOT pg_catalog.has_table_privilege(role, c.oid, 'SELECT') OR NOT pg_catalog.has_table_privilege(role, c.oid, 'DELETE'))
				-- of the statement, of DELETE
				OR EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid = c.oid AND g.tgtype & 1 = 0 AND g.tgtype & 8 = 8)) THEN
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
COMMENT ON FUNCTION sweep._parts(regclass, text, oid, text, text) IS 'the partitions that the role can go through one after the other, in the order of their names; NULL: the table as a whole';

CREATE FUNCTION sweep._check_partitions(role text, relation regclass, args jsonb) RETURNS void
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
		WHEN EXISTS (SELECT FROM sweep._referencing(relation, '', '')) THEN pg_catalog.format('foreign keys refer to %s', relation) END;
	IF reason IS NOT NULL THEN
		RAISE EXCEPTION 'partitions cannot be dropped: %', reason USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave partitions out: they are emptied then.';
	END IF;
	IF NOT pg_catalog.pg_has_role(sweep._role_oid(role), owner, 'USAGE') THEN
		RAISE EXCEPTION 'role "%" does not own %', role, relation USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('Only its owner can drop partitions: write run_as => %L, or leave partitions out: they are emptied then.', pg_catalog.pg_get_userbyid(owner));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_partitions(text, regclass, jsonb) IS 'raises unless partitions that are too old can be dropped, if they are to be';

-- DETACH CONCURRENTLY cannot be in a transaction. So the lock on the table is waited for half a second at a time, and whoever waits behind us
-- has his turn in between.
CREATE FUNCTION sweep._drop_partition(relation text, type text, age_limit text, cursor jsonb, OUT rows bigint, OUT next_cursor jsonb, OUT detail jsonb)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
	parent constant pg_catalog.regclass := relation::pg_catalog.regclass;
	tries constant int := coalesce((cursor ->> 'tries')::int, 0);
	found pg_catalog.regclass;
BEGIN
	-- Of a bound of several columns there may be rows that have the first of them. A bound as it is shown has no quotes within.
	EXECUTE pg_catalog.format($find$
		SELECT p.partition FROM (SELECT c.oid::pg_catalog.regclass AS partition, t.partnatts,
				pg_catalog.substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid), '[)] TO [(]''([^'']*)''') AS bound
			FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid JOIN pg_catalog.pg_partitioned_table t ON t.partrelid = i.inhparent
			WHERE i.inhparent = $1 AND NOT i.inhdetachpending) AS p
		WHERE p.bound::%1$s < $2::%1$s OR p.bound::%1$s = $2::%1$s AND p.partnatts = 1 ORDER BY p.bound::%1$s LIMIT 1 $find$, type) INTO found USING parent, age_limit;
	IF found IS NULL THEN
		next_cursor := cursor;
		RETURN;
	END IF;
	rows := 1;
	detail := pg_catalog.jsonb_build_object('dropped', pg_catalog.jsonb_build_array(found));
	BEGIN
		EXECUTE pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s', parent, found);
		EXECUTE pg_catalog.format('DROP TABLE %s', found);
	EXCEPTION WHEN lock_not_available THEN
		IF tries >= 9 THEN
			RAISE EXCEPTION 'partition % could not be locked', found USING ERRCODE = 'lock_not_available',
				DETAIL = pg_catalog.format('It was tried %s times, for half a second each.', tries + 1), HINT = 'Look in pg_stat_activity for a transaction that is open for long.';
		END IF;
		next_cursor := pg_catalog.jsonb_build_object('tries', tries + 1);
		detail := '{"lock_timeouts": 1}';
	END;
END
$$;
COMMENT ON FUNCTION sweep._drop_partition(text, text, text, jsonb) IS 'drops a partition in which every row is too old; rows is NULL when there is none';
--
-- Retention: rows that are older than they are to be kept are deleted, or moved to another table, in the order of their age.
--
-- ------------------------------------------------------------------ foreign keys
CREATE FUNCTION sweep._referencing(relation regclass, parent_alias text, child_alias text) RETURNS TABLE (name text, child regclass, columns text[], joined text, action "char")
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT c.conname::pg_catalog.text, c.conrelid::pg_catalog.regclass, pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n),
			pg_catalog.string_agg(pg_catalog.format('%I.%I OPERATOR(%I.%s) %I.%I', parent_alias, r.attname, n.nspname, o.oprname, child_alias, a.attname), ' AND ' ORDER BY k.n),
			c.confdeltype
		FROM pg_catalog.pg_constraint c CROSS JOIN LATERAL pg_catalog.generate_subscripts(c.conkey, 1) AS k (n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[k.n]
			JOIN pg_catalog.pg_attribute r ON r.attrelid = c.confrelid AND r.attnum = c.confkey[k.n]
			JOIN pg_catalog.pg_operator o ON o.oid = c.conpfeqop[k.n] JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
		WHERE c.contype = 'f' AND c.confrelid = relation
			-- Partitions of a table that refers to it have a row of their own.
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = c.conparentid AND p.confrelid = c.confrelid)
		GROUP BY c.oid, c.conname, c.conrelid, c.confdeltype ORDER BY c.conname, c.conrelid;
END
$$;
COMMENT ON FUNCTION sweep._referencing(regclass, text, text) IS 'the foreign keys that refer to a table, with the conditions that join the two';

-- A row of a table that goes with it, ON DELETE CASCADE, is asked for what refers to that. A circle of tables is gone through once.
CREATE FUNCTION sweep._blockers(relation regclass, alias text, path regclass[]) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
	child_alias constant pg_catalog.text := 'sweep_' || pg_catalog.cardinality(path);
	found pg_catalog.text := NULL;
	deeper pg_catalog.text[];
	blockers pg_catalog.text[] := '{}';
BEGIN
	-- Hardly any table has one, and to look for them properly takes longer.
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE c.confrelid = relation AND c.contype = 'f') THEN
		RETURN blockers;
	END IF;
	FOR foreign_key IN SELECT * FROM sweep._referencing(relation, alias, child_alias) LOOP
		found := pg_catalog.format('SELECT FROM %s AS %I WHERE %s', sweep._table_name(foreign_key.child), child_alias, foreign_key.joined);
		IF foreign_key.action IN ('a', 'r') THEN
			-- A row that refers to itself may go.
			blockers := blockers || (found || CASE WHEN foreign_key.child = relation THEN pg_catalog.format(
				' AND NOT (%1$I.ctid OPERATOR(pg_catalog.=) %2$I.ctid AND %1$I.tableoid OPERATOR(pg_catalog.=) %2$I.tableoid)', child_alias, alias) ELSE '' END);
		ELSIF foreign_key.action = 'c' AND foreign_key.child <> ALL (path) THEN
			deeper := sweep._blockers(foreign_key.child, child_alias, path || foreign_key.child);
			IF pg_catalog.cardinality(deeper) > 0 THEN
				blockers := blockers || pg_catalog.format('%s AND (EXISTS (%s))', found, pg_catalog.array_to_string(deeper, ') OR EXISTS ('));
			END IF;
		END IF;
	END LOOP;
	RETURN blockers;
END
$$;
COMMENT ON FUNCTION sweep._blockers(regclass, text, regclass[]) IS 'queries that find a row because of which a row of the table cannot be deleted';

CREATE FUNCTION sweep._check_references(role text, relation regclass, path regclass[]) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	foreign_key pg_catalog.record;
BEGIN
	FOR foreign_key IN SELECT * FROM sweep._referencing(relation, '', '') LOOP
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam
				WHERE i.indrelid = foreign_key.child AND i.indisvalid AND i.indisready AND i.indislive AND m.amname IN ('btree', 'hash')
					AND (i.indpred IS NULL OR pg_catalog.pg_get_expr(i.indpred, i.indrelid) = pg_catalog.format('(%I IS NOT NULL)', foreign_key.columns[1]))
					AND NOT EXISTS (SELECT FROM pg_catalog.unnest(foreign_key.columns) AS f (name) WHERE NOT EXISTS (
						SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attname = f.name
							AND a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:pg_catalog.cardinality(foreign_key.columns) - 1])))) THEN
			RAISE EXCEPTION 'foreign key "%" of % has no index', foreign_key.name, foreign_key.child USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('For each row that is deleted from %s all of %s would be read.', relation, foreign_key.child),
				HINT = sweep._create_index(foreign_key.child, foreign_key.columns);
		END IF;
		IF foreign_key.action IN ('a', 'r') OR foreign_key.action = 'c' AND pg_catalog.cardinality(sweep._blockers(foreign_key.child, '', path || foreign_key.child)) > 0 THEN
			PERFORM sweep._check_table(role, foreign_key.child, '{SELECT}');
		END IF;
		IF foreign_key.action = 'c' AND foreign_key.child <> ALL (path) THEN
			PERFORM sweep._check_references(role, foreign_key.child, path || foreign_key.child);
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._check_references(text, regclass, regclass[]) IS 'raises unless each foreign key that refers to the table can be followed by an index, and by the role where it has to';

-- ------------------------------------------------------------------ age
CREATE FUNCTION sweep._age_type(relation regclass, age_column text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	type pg_catalog.text;
BEGIN
	SELECT pg_catalog.format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL) INTO type FROM pg_catalog.pg_attribute a
		JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE a.attrelid = relation AND a.attname = age_column AND a.attnum > 0 AND NOT a.attisdropped;
	IF type IS NULL THEN
		RAISE EXCEPTION 'column "%" of % does not exist', age_column, relation USING ERRCODE = 'undefined_column',
			HINT = coalesce('There is ' || (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
				WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
					AND a.atttypid IN ('pg_catalog.timestamptz'::pg_catalog.regtype, 'pg_catalog.timestamp'::pg_catalog.regtype, 'pg_catalog.date'::pg_catalog.regtype)) || '.', 'Name a column that says since when the row is there.');
	END IF;
	IF type NOT IN ('timestamp with time zone', 'timestamp without time zone', 'date') THEN
		RAISE EXCEPTION 'column "%" of % is of type %', age_column, relation, type USING ERRCODE = 'datatype_mismatch',
			HINT = 'The age of a row is a timestamptz, timestamp or date. For another type write the batch yourself: sweep.create_job(..., step => ...).';
	END IF;
	RETURN type;
END
$$;
COMMENT ON FUNCTION sweep._age_type(regclass, text) IS 'timestamptz, timestamp or date, as the catalogue calls it; raises for any other type';

-- Days and months are those of the time zone, and so are values without one.
CREATE FUNCTION sweep._age_limit(type text, args jsonb) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT CASE type WHEN 'timestamp with time zone' THEN pg_catalog.format('pg_catalog.timezone(%L, %s)', z.zone, z.moment)
			WHEN 'date' THEN pg_catalog.format('(%s)::pg_catalog.date', z.moment) ELSE '(' || z.moment || ')' END
		FROM (SELECT p.zone, pg_catalog.format('pg_catalog.timezone(%L, $3) OPERATOR(pg_catalog.-) %L::pg_catalog.interval', p.zone, (args ->> 'keep')::interval) AS moment
			FROM (SELECT coalesce(args ->> 'timezone', 'UTC') AS zone) AS p) AS z);
END
$$;
COMMENT ON FUNCTION sweep._age_limit(text, jsonb) IS 'an expression: rows that are older are not kept';

CREATE FUNCTION sweep._age_key(relation regclass, age_column text, OUT columns text[], OUT nulls text[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Best is one that tells all rows apart, with no more columns than that takes, else the one that tells most apart.
	SELECT k.columns, k.nulls INTO columns, nulls FROM pg_catalog.pg_index i
			JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = age_column
			CROSS JOIN LATERAL sweep._index_key(i.indexrelid) AS k CROSS JOIN LATERAL sweep._is_unique(relation, k.columns) AS u (is_unique)
		WHERE i.indrelid = relation AND k.columns IS NOT NULL
		ORDER BY u.is_unique DESC, CASE WHEN u.is_unique THEN pg_catalog.cardinality(k.columns) ELSE - pg_catalog.cardinality(k.columns) END, i.indexrelid LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION '% has no index that begins with "%"', relation, age_column USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Each batch would read the whole table. It must be a valid btree index without a WHERE.', HINT = sweep._create_index(relation, ARRAY[age_column]);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._age_key(regclass, text) IS 'the columns by which the oldest rows are found, and where their nulls are in the index; raises when there is no such index';

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
	-- What is generated there is generated anew.
	RETURN (SELECT pg_catalog.array_agg(b.attname::pg_catalog.text ORDER BY b.attnum) FROM pg_catalog.pg_attribute b WHERE b.attrelid = archive AND b.attnum > 0 AND NOT b.attisdropped
		AND b.attgenerated = '' AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attname = b.attname AND a.attnum > 0 AND NOT a.attisdropped));
END
$$;
COMMENT ON FUNCTION sweep._archive_columns(regclass, regclass) IS 'the columns that are moved; raises unless the other table has all of them';

-- One statement in either case: what is moved is in one of the two tables for everybody at any time.
CREATE FUNCTION sweep._removal(relation regclass, part regclass, archive regclass, picked text, condition text) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names pg_catalog.text;
	removal constant pg_catalog.text := pg_catalog.format('DELETE FROM %s WHERE %s', sweep._source(relation, part), condition);
	with_picked constant pg_catalog.text := CASE WHEN picked IS NULL THEN '' ELSE pg_catalog.format('WITH picked AS MATERIALIZED (%s) ', picked) END;
BEGIN
	IF archive IS NULL THEN
		RETURN with_picked || removal;
	END IF;
	SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n) INTO names
		FROM pg_catalog.unnest(sweep._archive_columns(relation, archive)) WITH ORDINALITY AS u (name, n);
	RETURN pg_catalog.format('%s gone AS (%s RETURNING %s) INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM gone',
		CASE WHEN picked IS NULL THEN 'WITH' ELSE with_picked || ',' END, removal, names, sweep._table_name(archive), names, names);
END
$$;
COMMENT ON FUNCTION sweep._removal(regclass, regclass, regclass, text, text) IS 'the statement that deletes the rows of a condition, or moves them to the other table';

-- ------------------------------------------------------------------ the statements
CREATE FUNCTION sweep._retention_statements(args jsonb, again boolean, role oid, as_of timestamptz, part text, known_parts text[]) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	archive constant pg_catalog.regclass := CASE WHEN args ? 'archive_to' THEN sweep._find_table('archive_to', args ->> 'archive_to', NULL) END;
	age constant pg_catalog.text := args ->> 'age_column';
	type constant pg_catalog.text := sweep._age_type(relation, age);
	age_limit constant pg_catalog.text := sweep._age_limit(type, args);
	key pg_catalog.record;
	table_name constant pg_catalog.text := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = relation);
	blockers constant pg_catalog.text[] := sweep._blockers(relation, table_name, ARRAY[relation]);
	due pg_catalog.text := pg_catalog.format('%I.%I OPERATOR(pg_catalog.<) %s', table_name, age, age_limit);
	free pg_catalog.text := '';
	same_key pg_catalog.text;
	moment pg_catalog.text;
	parts pg_catalog.text[] := known_parts;
	place pg_catalog.regclass;
	next_part pg_catalog.text;
	first boolean;
BEGIN
	IF args ? 'condition' THEN
		PERFORM sweep._check_condition(args ->> 'condition');
		due := pg_catalog.format(E'%s AND (%s\n)', due, args ->> 'condition');
	END IF;
	IF pg_catalog.cardinality(blockers) > 0 THEN
		free := pg_catalog.format(' AND NOT EXISTS (%s)', pg_catalog.array_to_string(blockers, ') AND NOT EXISTS ('));
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = relation) THEN
		IF parts IS NULL THEN
			EXECUTE pg_catalog.format('SELECT (%s)::pg_catalog.text', age_limit) INTO moment USING NULL::int, NULL::pg_catalog.jsonb, as_of;
			parts := sweep._parts(relation, age, role, type, moment);
		END IF;
		SELECT pg_catalog.to_regclass(u.name), (SELECT pg_catalog.jsonb_build_object('part', parts[u.n + 1]) WHERE u.n < pg_catalog.cardinality(parts)) INTO place, next_part
			FROM pg_catalog.unnest(parts) WITH ORDINALITY AS u (name, n)
			WHERE (part IS NULL OR u.name COLLATE "C" >= part COLLATE "C") AND pg_catalog.to_regclass(u.name) IS NOT NULL ORDER BY u.n LIMIT 1;
	END IF;
	key := sweep._age_key(coalesce(place, relation), age);
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(relation, place, key.columns, key.nulls, due || CASE WHEN again THEN free ELSE '' END, first);
		made.next_part := next_part;
		made.parts := parts;
		made.counter := CASE WHEN archive IS NULL THEN 'deleted' ELSE 'moved' END;
		IF free <> '' THEN
			made.rest_counter := 'referenced';
			made.epilogue := pg_catalog.format('SELECT EXISTS (SELECT FROM %s WHERE %s%s)', sweep._source(relation, NULL), due, free);
		END IF;
		made.work := sweep._removal(relation, place, archive, NULL, pg_catalog.format('%s AND %s%s', due, sweep._range(relation, key.columns, first), free));
		IF made.before IS NOT NULL THEN
			same_key := pg_catalog.format('%s AND %s%s', due, sweep._key_compare(relation, key.columns, '=', '$4'), free);
			-- By their places, which are those of a partition each.
			made.pick := sweep._removal(relation, place, archive, pg_catalog.format('SELECT %1$I.tableoid AS part, %1$I.ctid AS place FROM %2$s WHERE %3$s LIMIT $1',
				table_name, sweep._source(relation, place), same_key), pg_catalog.format('%1$I.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT p.place FROM picked AS p))'
				' AND EXISTS (SELECT FROM picked AS p WHERE p.place OPERATOR(pg_catalog.=) %1$I.ctid AND p.part OPERATOR(pg_catalog.=) %1$I.tableoid) AND %2$s', table_name, same_key));
		END IF;
		IF args ->> 'partitions' = 'drop' THEN
			made.prologue := pg_catalog.format('SELECT d.rows, d.next_cursor, d.detail FROM sweep._drop_partition(%L, %L, (%s)::pg_catalog.text, $2) AS d'
				' WHERE (($2 OPERATOR(pg_catalog.->) ''after'') IS NULL)', sweep._table_name(relation), type, age_limit);
		END IF;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._retention_statements(jsonb, boolean, oid, timestamptz, text, text[]) IS 'the statements of a retention, of a partition of its table or of all of it';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep.retention_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.retention_step(sweep.batch) IS 'step of the jobs that sweep.create_retention makes';

CREATE FUNCTION sweep._check_retention(role text, args jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	archive pg_catalog.regclass;
	foreign_key pg_catalog.record;
BEGIN
	PERFORM sweep._check_table(role, relation, '{SELECT,DELETE}');
	PERFORM sweep._age_key(relation, args ->> 'age_column') FROM sweep._age_type(relation, args ->> 'age_column');
	PERFORM sweep._check_references(role, relation, ARRAY[relation]);
	IF EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t JOIN pg_catalog.pg_constraint c ON c.confrelid = t.relid AND c.contype = 'f' AND c.conparentid = 0
			WHERE t.relid <> relation) THEN
		RAISE EXCEPTION 'foreign keys refer to partitions of %', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Have them refer to the table itself, or create a job for each partition.';
	END IF;
	PERFORM sweep._check_partitions(role, relation, args);
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
		PERFORM sweep._check_fragment(role, pg_catalog.format(E'DELETE FROM %s WHERE $1 IS NOT NULL AND (%s\n)', sweep._source(relation, NULL), args ->> 'condition'));
	END IF;
	PERFORM FROM sweep._retention_statements(args, false, sweep._role_oid(role), pg_catalog.now(), NULL, NULL);
END
$$;
COMMENT ON FUNCTION sweep._check_retention(text, jsonb) IS 'raises unless the role can delete what is too old, or move it';

CREATE FUNCTION sweep._create_retention(caller oid, job sweep.job, target text, age_column text, keep interval, condition text, archive_to text,
	partitions text, run_as regrole, paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	wrong constant pg_catalog.text := CASE WHEN age_column IS NULL THEN 'age_column' WHEN keep IS NULL THEN 'keep' WHEN partitions IS NULL THEN 'partitions' END;
	zone constant pg_catalog.text := coalesce(job.timezone, 'UTC');
BEGIN
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', wrong USING ERRCODE = 'null_value_not_allowed',
			HINT = CASE wrong WHEN 'keep' THEN 'Say for how long rows are kept, for example: 90 days.' WHEN 'partitions' THEN 'Write "empty" or "drop".'
				ELSE 'Name the column that says since when a row is there.' END;
	END IF;
	IF keep <= interval '0' OR keep > interval '1000 years' THEN
		RAISE EXCEPTION 'invalid keep %', keep USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be greater than zero and at most 1000 years.';
	END IF;
	job := sweep._begin_maker(caller, job, 'retention', relation, run_as);
	-- The next run goes on where one has stopped at a limit, and not over what that one has left dead.
	job.cursor := 'drain';
	job.args := pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'age_column', age_column, 'keep', keep,
		'timezone', zone, 'condition', condition, 'partitions', partitions,
		'archive_to', CASE WHEN archive_to IS NOT NULL THEN sweep._table_name(sweep._find_table('archive_to', archive_to, coalesce(run_as::pg_catalog.oid, caller))) END));
	BEGIN
		PERFORM pg_catalog.timezone(zone, pg_catalog.now());
	EXCEPTION WHEN invalid_parameter_value THEN
		RAISE EXCEPTION 'time zone "%" is not known', zone USING ERRCODE = 'invalid_parameter_value', HINT = 'The view pg_timezone_names lists those that are.';
	END;
	PERFORM sweep._check_retention(job.run_as, job.args);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_retention IS 'implements sweep.create_retention';

CREATE FUNCTION sweep.create_retention(target text, age_column text, keep interval, schedule text DEFAULT 'H 3 * * *', condition text DEFAULT NULL,
	archive_to text DEFAULT NULL, name text DEFAULT NULL, partitions text DEFAULT 'empty', timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000,
	max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, max_attempts int DEFAULT NULL, on_start jsonb DEFAULT NULL,
	run_as regrole DEFAULT NULL, description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_retention IS
	'creates a job that deletes the rows of a table that are older than they are to be kept, or moves them to another one; returns its name';
--
-- Backfill: an UPDATE of all rows that meet a condition, once, by ranges of a unique key.
--
-- The first pass goes through all rows, so that a batch reads no more of them than it may change, however few meet the condition. Then
-- it is asked whether any row does: those that came behind the cursor are found by the condition.
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
		made := sweep._edge_statements(relation, NULL, key.columns, key.nulls, CASE WHEN again THEN condition ELSE 'true' END, first);
		made.counter := 'updated';
		made.work := pg_catalog.format(E'WITH done AS (UPDATE %1$s SET %2$s\n WHERE %3$s AND %4$s RETURNING %4$s AS again, pg_catalog.concat_ws('', '', %5$s) AS key)'
			' SELECT pg_catalog.count(*), (SELECT d.key FROM done AS d WHERE d.again LIMIT 1) FROM done',
			name, args ->> 'set', sweep._range(relation, key.columns, first), condition,
			(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', c.relname, u.name), ', ' ORDER BY u.n)
				FROM pg_catalog.unnest(key.columns) WITH ORDINALITY AS u (name, n) JOIN pg_catalog.pg_class c ON c.oid = relation));
		made.epilogue := pg_catalog.format('SELECT EXISTS (SELECT FROM %s WHERE %s)', name, condition);
		made.checked := true;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._backfill_statements(jsonb, boolean) IS 'the statements of a backfill';

CREATE FUNCTION sweep.backfill_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.backfill_step(sweep.batch) IS 'step of the jobs that sweep.create_backfill makes';

CREATE FUNCTION sweep._create_backfill(caller oid, job sweep.job, target text, set text, condition text, order_by text, run_as regrole, paused boolean, replace boolean) RETURNS text
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
	job := sweep._begin_maker(caller, job, 'backfill', relation, run_as);
	job.cursor := 'drain';
	-- The rows of a run are those that it has looked at, which are all; of a table that was never analysed it is not known how many.
	job.estimate := coalesce(job.estimate, pg_catalog.format('SELECT sum(c.reltuples) FROM pg_catalog.pg_partition_tree(%L) AS t'
		' JOIN pg_catalog.pg_class AS c ON c.oid = t.relid WHERE t.isleaf AND c.reltuples >= 0', sweep._table_name(relation)));
	PERFORM sweep._check_table(job.run_as, relation, '{SELECT,UPDATE}');
	job.args := pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'set', set, 'condition', condition,
		'order_by', (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n)
			FROM pg_catalog.unnest((sweep._ordered_key(relation, order_by)).columns) WITH ORDINALITY AS u (name, n)));
	PERFORM FROM sweep._backfill_statements(job.args, false);
	PERFORM sweep._check_fragment(job.run_as, pg_catalog.format(E'UPDATE %1$s SET %2$s\n WHERE $1 IS NOT NULL AND (%3$s\n) RETURNING (%3$s\n)',
		sweep._source(relation, NULL), set, condition));
	existed := EXISTS (SELECT FROM sweep.job j WHERE j.name = job.name);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._start_maker(job, paused) WHERE NOT existed;
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_backfill IS 'implements sweep.create_backfill';

CREATE FUNCTION sweep.create_backfill(target text, set text, condition text, order_by text DEFAULT NULL, name text DEFAULT NULL, schedule text DEFAULT NULL,
	timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL,
	pause interval DEFAULT '10 ms', estimate text DEFAULT NULL,
	max_attempts int DEFAULT NULL, on_start jsonb DEFAULT NULL, run_as regrole DEFAULT NULL, description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_backfill IS
	'creates a job that updates the rows of a table until none meets the condition, and starts it unless it has a schedule; returns its name';
--
-- Copy: rows of one table are inserted into another one, by ranges of a unique key, and, when the cursor is kept for good, those that have
-- come since.
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

-- A transaction in progress may still commit rows with smaller keys than some that can be seen: a cursor behind those would pass them
-- over for ever. It holds a lock on the table since before it drew its keys. So what is the newest key now is the last one to be copied only
-- when all these transactions have ended: "settled" is such a key, "newest" the one that is to become so next.
CREATE FUNCTION sweep._settle(source text, cursor jsonb, run_id bigint, newest jsonb) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	state pg_catalog.jsonb := coalesce(cursor, '{}') || pg_catalog.jsonb_build_object('run', run_id);
	writers constant pg_catalog.jsonb := (SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT l.virtualtransaction), '[]') FROM pg_catalog.pg_locks l
		WHERE l.locktype = 'relation' AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
			AND (l.relation = source::pg_catalog.regclass OR l.relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(source::pg_catalog.regclass) AS t))
			AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
			AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'));
BEGIN
	IF writers = '[]' THEN
		RETURN state - ARRAY['newest', 'writers'] || pg_catalog.jsonb_build_object('settled', newest);
	END IF;
	IF state ? 'newest' AND NOT EXISTS (SELECT FROM pg_catalog.jsonb_array_elements_text(state -> 'writers') AS w WHERE writers ? w) THEN
		state := (state || pg_catalog.jsonb_build_object('settled', state -> 'newest')) - 'newest';
	END IF;
	IF NOT state ? 'newest' THEN
		state := state || pg_catalog.jsonb_build_object('newest', newest, 'writers', writers);
	END IF;
	RETURN state;
END
$$;
COMMENT ON FUNCTION sweep._settle(text, jsonb, bigint, jsonb) IS 'the cursor with the last key to be copied: no transaction in progress can insert a smaller one';

CREATE FUNCTION sweep._copy_statements(args jsonb) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	source constant pg_catalog.regclass := sweep._find_table('source', args ->> 'source', NULL);
	target constant pg_catalog.regclass := sweep._find_table('target', args ->> 'target', NULL);
	key pg_catalog.record := sweep._ordered_key(source, args ->> 'order_by');
	is_settled constant boolean := (args ->> 'settled')::boolean;
	source_name constant pg_catalog.text := (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = source);
	columns constant pg_catalog.text[] := sweep._copy_columns(source, target);
	first boolean;
BEGIN
	PERFORM sweep._check_condition(args ->> 'condition');
	FOREACH first IN ARRAY '{true,false}'::boolean[] LOOP
		made := sweep._edge_statements(source, NULL, key.columns, key.nulls, CASE WHEN is_settled
			THEN sweep._key_compare(source, key.columns, '<=', '($2 OPERATOR(pg_catalog.->) ''settled'')') ELSE 'true' END, first);
		made.counter := 'copied';
		made.work := pg_catalog.format(E'INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s AND (%s\n)%s', sweep._table_name(target),
			(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n)),
			(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', source_name, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(columns) WITH ORDINALITY AS u (name, n)),
			sweep._source(source, NULL), sweep._range(source, key.columns, first), coalesce(args ->> 'condition', 'true'),
			CASE args ->> 'on_conflict' WHEN 'nothing' THEN ' ON CONFLICT DO NOTHING' ELSE '' END);
		IF is_settled THEN
			made.prologue := pg_catalog.format('SELECT NULL::pg_catalog.int8, sweep._settle(%L, $2, $5, (SELECT %s FROM (SELECT %s FROM %s ORDER BY %s LIMIT 1) AS k)),'
				' NULL::pg_catalog.jsonb WHERE (($2 OPERATOR(pg_catalog.->>) ''run'')::pg_catalog.int8 IS DISTINCT FROM $5)', sweep._table_name(source), sweep._key_json(key.columns, NULL),
				(SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', source_name, u.name), ', ' ORDER BY u.n) FROM pg_catalog.unnest(key.columns) WITH ORDINALITY AS u (name, n)),
				sweep._source(source, NULL), sweep._key_order(source, key.columns, key.nulls, true));
		END IF;
		-- What was copied already cannot be told by another key.
		made.restarts := NOT is_settled;
		RETURN NEXT made;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._copy_statements(jsonb) IS 'the statements of a copy';

-- Made for each partition: what is looked up in the catalogue is few rows of large tables, and to plan that takes longer than the look.
CREATE FUNCTION sweep._range_statements(step text, args jsonb, again boolean, role oid, as_of timestamptz, part text, parts text) RETURNS SETOF sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
	CASE step
		WHEN 'retention_step' THEN
			RETURN QUERY SELECT * FROM sweep._retention_statements(args, again, role, as_of, part, parts::pg_catalog.text[]);
		WHEN 'backfill_step' THEN
			RETURN QUERY SELECT * FROM sweep._backfill_statements(args, again);
		WHEN 'copy_step' THEN
			RETURN QUERY SELECT * FROM sweep._copy_statements(args);
	END CASE;
END
$$;
COMMENT ON FUNCTION sweep._range_statements(text, jsonb, boolean, oid, timestamptz, text, text) IS
	'the statements of a job that was made, in its first pass or a further one: those of the first batch of the pass, and those of the next ones';

CREATE FUNCTION sweep.copy_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_ranges_step';
COMMENT ON FUNCTION sweep.copy_step(sweep.batch) IS 'step of the jobs that sweep.create_copy makes';

CREATE FUNCTION sweep._create_copy(caller oid, job sweep.job, source text, target text, condition text, order_by text, on_conflict text, run_as regrole,
	paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	existed pg_catalog.bool;
	source_table constant pg_catalog.regclass := sweep._find_table('source', source, coalesce(run_as::pg_catalog.oid, caller));
	target_table constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	names pg_catalog.text;
BEGIN
	IF on_conflict IS NULL OR on_conflict NOT IN ('error', 'nothing') THEN
		RAISE EXCEPTION 'invalid on_conflict "%"', coalesce(on_conflict, 'NULL') USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "error" or "nothing".';
	END IF;
	IF on_conflict = 'nothing' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = target_table AND i.indisunique AND i.indisvalid) THEN
		RAISE EXCEPTION 'rows of % are never in conflict', target_table USING ERRCODE = 'invalid_parameter_value', HINT = 'It has no unique index. Leave on_conflict out.';
	END IF;
	IF source_table = target_table OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(source_table)) AS t WHERE t.relid = target_table) THEN
		RAISE EXCEPTION '% cannot be copied to itself', source_table USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another table as the target.';
	END IF;
	job := sweep._begin_maker(caller, job, 'copy', source_table, run_as);
	PERFORM sweep._check_table(job.run_as, source_table, '{SELECT}'), sweep._check_table(job.run_as, target_table, '{INSERT}');
	job.args := pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('source', sweep._table_name(source_table), 'target', sweep._table_name(target_table),
		'condition', condition, 'on_conflict', on_conflict, 'settled', job.cursor = 'always',
		'order_by', (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(u.name), ', ' ORDER BY u.n)
			FROM pg_catalog.unnest((sweep._ordered_key(source_table, order_by)).columns) WITH ORDINALITY AS u (name, n))));
	PERFORM FROM sweep._copy_statements(job.args);
	SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ') INTO names FROM pg_catalog.unnest(sweep._copy_columns(source_table, target_table)) AS c;
	PERFORM sweep._check_fragment(job.run_as, pg_catalog.format(E'INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %3$s WHERE $1 IS NOT NULL AND (%4$s\n)',
		sweep._table_name(target_table), names, sweep._source(source_table, NULL), coalesce(condition, 'true')));
	existed := EXISTS (SELECT FROM sweep.job j WHERE j.name = job.name);
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._start_maker(job, paused) WHERE NOT existed;
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_copy IS 'implements sweep.create_copy';

CREATE FUNCTION sweep.create_copy(source text, target text, condition text DEFAULT NULL, order_by text DEFAULT NULL, on_conflict text DEFAULT 'error',
	cursor text DEFAULT 'always', name text DEFAULT NULL, schedule text DEFAULT NULL, timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_rows bigint DEFAULT NULL,
	stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, max_attempts int DEFAULT NULL, on_start jsonb DEFAULT NULL, run_as regrole DEFAULT NULL,
	description text DEFAULT NULL, paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_copy IS
	'creates a job that inserts the rows of one table into another one, and later those that have come since; starts it unless it has a schedule; returns its name';
--
-- What an operator reads.
--
CREATE FUNCTION sweep._running(OUT run_id bigint, OUT job text, OUT pid int, OUT phase text, OUT batches bigint, OUT rows bigint,
	OUT last_batch_ms float8, OUT batch_size int, OUT estimated_rows bigint, OUT started_at timestamptz, OUT deadline timestamptz, OUT rows_per_second float8, OUT eta timestamptz, OUT braked_ms bigint)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_running';
COMMENT ON FUNCTION sweep._running() IS 'the runs in progress in this database, from shared memory';

CREATE VIEW sweep.running WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.pid, r.phase, r.batches, r.rows,
		pg_catalog.round(r.rows_per_second::numeric, 1) AS rows_per_second,
		pg_catalog.round(r.last_batch_ms::numeric, 3) AS last_batch_ms, nullif(r.batch_size, 0) AS batch_size, r.estimated_rows,
		CASE WHEN r.estimated_rows IS NOT NULL THEN pg_catalog.round(least(r.rows::numeric / nullif(r.estimated_rows, 0), 1), 3) END AS fraction,
		-- A batch may take longer than all before it have let expect.
		CASE WHEN r.eta IS NOT NULL THEN greatest(r.eta, pg_catalog.clock_timestamp()) END AS eta, r.started_at, r.deadline, r.braked_ms
	-- Which the reader may see is asked there, by the role of the run: its job may be gone, or another role's by now.
	FROM sweep._running() r;
COMMENT ON VIEW sweep.running IS 'live progress of the runs in progress';

CREATE FUNCTION sweep._missing_worker(role oid, priority int) RETURNS text
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_missing';
COMMENT ON FUNCTION sweep._missing_worker(oid, int) IS 'the setting that keeps runs of the role and priority in this database waiting just now; NULL when there is room for one';

-- Of a divided job all shares of a dispatch are one run to the reader. A function for the sake of its settings: the
-- planner takes this for a large query and would have it compiled. It reads what its reader may see.
CREATE FUNCTION sweep._last_dispatch(job text, newest bigint) RETURNS TABLE (run_id bigint, status sweep.run_status, stop_reason sweep.run_stop_reason,
	started_at timestamptz, finished_at timestamptz, rows bigint, sqlstate text, error text)
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	first bigint := newest;
	parent bigint;
	shares bigint[];
	added bigint[];
	tried_again bigint[];
BEGIN
	-- One look after the other, each by a key: the view sweep.runs cannot be joined by one.
	LOOP
		parent := (SELECT r.parent_run_id FROM sweep.runs r WHERE r.run_id = first);
		EXIT WHEN NOT EXISTS (SELECT FROM sweep.runs r WHERE r.run_id = parent AND r.job = _last_dispatch.job);
		first := parent;
	END LOOP;
	-- What has divided it is a run of it, or the run of a parent.
	shares := ARRAY[first] || ARRAY(SELECT r.run_id FROM sweep.runs r WHERE r.parent_run_id = parent AND r.job = _last_dispatch.job AND r.run_id <> first);
	added := shares;
	WHILE pg_catalog.cardinality(added) > 0 LOOP
		added := ARRAY(SELECT r.run_id FROM sweep.runs r WHERE r.parent_run_id = ANY (added) AND r.job = _last_dispatch.job);
		shares := shares || added;
	END LOOP;
	tried_again := ARRAY(SELECT r.parent_run_id FROM sweep.runs r WHERE r.parent_run_id = ANY (shares) AND r.trigger = 'retry' AND r.finished_at IS NOT NULL);
	RETURN QUERY SELECT pg_catalog.min(a.run_id), (pg_catalog.array_agg(a.status ORDER BY a.rank, a.finished_at DESC, a.run_id))[1],
			(pg_catalog.array_agg(a.stop_reason ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], pg_catalog.min(a.started_at), pg_catalog.max(a.finished_at), pg_catalog.sum(a.rows)::bigint,
			(pg_catalog.array_agg(a.sqlstate ORDER BY a.rank, a.finished_at DESC, a.run_id))[1], (pg_catalog.array_agg(a.error ORDER BY a.rank, a.finished_at DESC, a.run_id))[1]
		-- What was skipped, has not ended or was tried again does not count; its rows do.
		FROM (SELECT r.*, CASE WHEN r.finished_at IS NOT NULL AND r.run_id <> ALL (tried_again)
				THEN pg_catalog.array_position('{failed,lost,cancelled,succeeded}'::pg_catalog.text[], r.status::pg_catalog.text) END AS rank
			FROM sweep.runs r WHERE r.run_id = ANY (shares)) AS a;
END
$$;
COMMENT ON FUNCTION sweep._last_dispatch(text, bigint) IS 'what all shares of the dispatch have come to that a run of a divided job belongs to; for sweep.jobs';

CREATE VIEW sweep.jobs WITH (security_barrier) AS
	SELECT j.name, j.schedule, j.sql, j.batch_sql, j.step, j.timezone, s.next_due AS next_run, s.paused_at IS NOT NULL AS paused,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN live.running THEN CASE WHEN held.back THEN 'paused (running)' ELSE 'running' END
			WHEN live.waiting THEN 'waiting_for_slot' || coalesce(': ' || sweep._missing_worker(sweep._role_oid(j.run_as), j.priority), '')
			WHEN held.back THEN 'paused'
			WHEN j.schedule IS NOT NULL AND NOT sweep._has_workers() THEN 'broken: pg_sweep is not in shared_preload_libraries'
			WHEN last.sqlstate ~ '^(42|3D|3F)' THEN 'broken: ' || pg_catalog.split_part(last.error, E'\n', 1)
			WHEN last.status IN ('failed', 'lost') THEN 'failing'
			ELSE 'idle'
		END AS state,
		last.run_id AS last_run_id, last.status AS last_status, last.stop_reason AS last_stop_reason, last.started_at AS last_started_at,
		last.rows AS last_rows, last.finished_at - last.started_at AS last_duration, last.error AS last_error, j.run_as, j.description
	FROM sweep.job j
		JOIN sweep.job_state s ON s.job = j.name
		CROSS JOIN LATERAL (SELECT s.paused_at IS NOT NULL OR s.all_paused_at IS NOT NULL OR NOT sweep._is_home(s.system_identifier, s.database)
			OR EXISTS (SELECT FROM sweep.control) AS back) AS held
		CROSS JOIN LATERAL (SELECT coalesce(sweep._job_problem(j), s.broken) AS reason) AS problem
		CROSS JOIN LATERAL (SELECT
				EXISTS (SELECT FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running') AS running,
				EXISTS (SELECT FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.status = 'waiting' AND r.pid IS NULL
					AND r.trigger IN ('schedule', 'catch_up', 'retry', 'parent', 'manual') AND r.due_at < pg_catalog.statement_timestamp() - interval '1 s'
					AND (r.trigger = 'manual' AND sweep._is_home(s.system_identifier, s.database) OR NOT held.back)) AS waiting) AS live
		-- Of this role: a job of the same name that belonged to another one has nothing to do with it.
		LEFT JOIN LATERAL (SELECT * FROM (
				(SELECT * FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.finished_at IS NOT NULL
					AND r.status <> 'skipped' ORDER BY r.run_id DESC LIMIT 1)
				UNION ALL
				(SELECT * FROM sweep.run_history h WHERE h.job = j.name AND h.run_as = j.run_as AND h.status <> 'skipped'
					ORDER BY h.run_id DESC LIMIT 1)) AS ended
			ORDER BY ended.run_id DESC LIMIT 1) AS newest ON true
		LEFT JOIN LATERAL (
			SELECT newest.run_id, newest.status, newest.stop_reason, newest.started_at, newest.finished_at, newest.rows, newest.sqlstate, newest.error
				WHERE j.buckets IS NULL
			UNION ALL
			SELECT d.* FROM sweep._last_dispatch(j.name, newest.run_id) d WHERE j.buckets IS NOT NULL AND newest.run_id IS NOT NULL
		) AS last ON true
	WHERE sweep._may_see(j.run_as);
COMMENT ON VIEW sweep.jobs IS 'jobs with their state and what came of their last run';

DO $$
DECLARE
	note pg_catalog.text[];
BEGIN
	FOREACH note SLICE 1 IN ARRAY ARRAY[
		['running', 'run_id', 'number of the run'], ['running', 'job', 'name of the job'], ['running', 'pid', 'its process'],
		['running', 'phase', 'starting, lock (trying to take it), estimate (asking how many rows there are to do), step, commit, braked (between two batches, on purpose) or ending'],
		['running', 'batches', 'batches committed so far'], ['running', 'rows', 'rows handled so far'],
		['running', 'rows_per_second', 'rows per second from its first batch to its last commit, without the time in braked_ms'], ['running', 'last_batch_ms', 'how long the last batch took'],
		['running', 'batch_size', 'rows of one batch at most just now, less than that of the job after batches that took too long; NULL: a job with sql, whose batches are its statements'],
		['running', 'estimated_rows', 'what the estimate of the job says, without one the rows of the last run that drained; at most what the limits of this one allow. NULL: not known'],
		['running', 'fraction', 'rows as a part of estimated_rows, from 0 to 1'], ['running', 'eta', 'when the rows that are left are done if it goes on as until now; NULL: not known'], ['running', 'started_at', 'when it had its lock'],
		['running', 'deadline', 'when its stop_after or its timeout has passed, whichever is first'],
		['running', 'braked_ms', 'time in pauses between its batches so far'],
		['jobs', 'name', 'name of the job'], ['jobs', 'schedule', 'its schedule; NULL: started by hand only'],
		['jobs', 'sql', 'what it executes once'], ['jobs', 'batch_sql', 'or the statement that does a batch'], ['jobs', 'step', 'or the function that does'],
		['jobs', 'timezone', 'time zone of the schedule'], ['jobs', 'next_run', 'next moment of the schedule'],
		['jobs', 'paused', 'whether it is paused by its name; that all are paused, or are a copy, is in state'],
		['jobs', 'state', 'running, waiting_for_slot: and the setting that is short, paused, paused (running): a run goes on to its end, failing: the last run did, broken: and why, or idle'],
		['jobs', 'last_run_id', 'the last run that ended and was not skipped; of a divided job its last dispatch, by the run that made it: all of its shares are meant in what follows'],
		['jobs', 'last_status', 'how it ended; of several shares: failed if one has and was not tried again, else lost or cancelled'],
		['jobs', 'last_stop_reason', 'why it ended'], ['jobs', 'last_started_at', 'when it had its lock'],
		['jobs', 'last_rows', 'rows it handled, all shares together'], ['jobs', 'last_duration', 'how long it took'], ['jobs', 'last_error', 'its error'],
		['jobs', 'run_as', 'role the job runs as'], ['jobs', 'description', 'a word to the reader']] LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', note[1], note[2], note[3]);
	END LOOP;
END
$$;
--
-- Who may do what. Every grant of the extension is here.
--
DO $$
DECLARE
	wanted pg_catalog.text;
BEGIN
	FOREACH wanted IN ARRAY ARRAY['sweep_admin', 'sweep_operator', 'sweep_user', 'sweep_monitor', 'sweep_client'] LOOP
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = wanted) THEN
			EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted);
		END IF;
	END LOOP;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sweep FROM PUBLIC;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA sweep FROM PUBLIC;
REVOKE ALL ON TYPE sweep.batch, sweep.progress, sweep.message, sweep._statements, sweep.run_trigger, sweep.run_status, sweep.run_stop_reason FROM PUBLIC;

GRANT USAGE ON SCHEMA sweep TO sweep_admin, sweep_operator, sweep_user, sweep_monitor, sweep_client;
GRANT USAGE ON TYPE sweep.batch, sweep.progress TO sweep_admin, sweep_user;
GRANT USAGE ON TYPE sweep.message TO sweep_admin, sweep_user, sweep_client;

-- Views, and the functions that they call with the rights of whoever reads them.
GRANT SELECT ON sweep.jobs, sweep.runs, sweep.running, sweep.buckets, sweep.queues TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._may_see(text), sweep._running(), sweep._missing_worker(oid, int), sweep._has_workers(), sweep._seen_queues(), sweep._read_queue(int, bigint, timestamptz, int, int, smallint[], bigint[]), sweep._is_home(bigint, oid), sweep._last_dispatch(text, bigint), sweep._job_problem(sweep.job), sweep._has_redis_url(), sweep._role_problem(text), sweep._role_oid(text), sweep._is_trusted(regprocedure, text), sweep._acts_for(oid, text), sweep._owner_problem(text, regprocedure), sweep._execute_problem(text, regprocedure),
	sweep._resolve(text, text), sweep._function_form(text, text), sweep._function_problem(text, text, text), sweep._next_run(text, text, timestamptz, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The table of jobs shows its own to everybody who may see them.
GRANT SELECT ON sweep.job TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY job_select ON sweep.job FOR SELECT USING (sweep._may_see(run_as));
COMMENT ON POLICY job_select ON sweep.job IS 'one sees the jobs of the roles one is a member of, or all of them as sweep_monitor, sweep_operator or sweep_admin';

-- Jobs: what a function does for whom is checked by the function.
GRANT EXECUTE ON FUNCTION sweep.create_job, sweep.alter_job(text, jsonb), sweep.drop_job(text), sweep.import_pg_cron(boolean) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.create_retention, sweep.create_backfill, sweep.create_copy TO sweep_admin, sweep_user;
-- Steps, and what their statements call as the role of the job.
GRANT EXECUTE ON FUNCTION sweep.retention_step(sweep.batch), sweep.backfill_step(sweep.batch), sweep.copy_step(sweep.batch),
	sweep._drop_partition(text, text, text, jsonb), sweep._settle(text, jsonb, bigint, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.run(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.preview(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.try_lock(text), sweep.release_lock(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause(text), sweep.resume(text), sweep.start(text, jsonb, interval, timestamptz), sweep.cancel(bigint)
	TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_all(), sweep.resume_all() TO sweep_admin, sweep_operator;
GRANT EXECUTE ON PROCEDURE sweep.wait(bigint, interval) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

GRANT EXECUTE ON FUNCTION sweep.release_quarantine(text, jsonb) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.quarantine TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.quarantine ENABLE ROW LEVEL SECURITY;
CREATE POLICY quarantine_select ON sweep.quarantine FOR SELECT USING (EXISTS (SELECT FROM sweep.job j WHERE j.name = job));
COMMENT ON POLICY quarantine_select ON sweep.quarantine IS 'one sees the items of the jobs one sees';

-- Queues.
GRANT EXECUTE ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text, boolean), sweep.drop_queue(text), sweep.purge_queue(text),
	sweep.grant_queue(text, regrole, text[]), sweep.revoke_queue(text, regrole, text[]) TO sweep_admin, sweep_user;
-- What sweep.grant_queue lets an application do, by making its role a member of sweep_client.
GRANT EXECUTE ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb), sweep.send_many(text, jsonb[], text[], interval, int),
	sweep.claim(text, int, interval), sweep.ack(uuid, bigint[]), sweep.fail(uuid, text, bigint[]), sweep.release(uuid, bigint[]),
	sweep.extend(uuid, interval) TO sweep_admin, sweep_user, sweep_client;
GRANT EXECUTE ON FUNCTION sweep.dead(text), sweep.done(text), sweep.redrive(text, jsonb, int, boolean) TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.wait_for_message(text, interval) TO sweep_admin, sweep_user, sweep_client;

-- Consumers in the database, and keys for those outside.
GRANT EXECUTE ON FUNCTION sweep.create_consumer(text, text, int, int, regrole), sweep.drop_consumer(text),
	sweep.begin_once(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_consumer(text), sweep.resume_consumer(text) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.consumers TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._consumer_processes(), sweep._consumer_problem(sweep.consumer), sweep._find_handlers(text),
	sweep._handler_problem(text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The launcher has a scheduler started here once this is committed.
SELECT sweep._wake();
