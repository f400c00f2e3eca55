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
    timezone text DEFAULT NULL,
    after timestamptz DEFAULT pg_catalog.now(),
    n int DEFAULT 5,
    job text DEFAULT NULL)
RETURNS SETOF timestamptz
LANGUAGE C STABLE PARALLEL SAFE ROWS 5
AS 'MODULE_PATHNAME', 'sweep_schedule_next_runs';

COMMENT ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) IS
'The next n moments at which a schedule is due, in a time zone (default: the session''s). job: the name that H is derived from.';

-- The zone comes from the session when it is NULL, hence stable.
CREATE FUNCTION sweep._next_run(schedule text, timezone text, after timestamptz, job text)
RETURNS timestamptz
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sweep_schedule_next_run';

COMMENT ON FUNCTION sweep._next_run(text, text, timestamptz, text) IS
'The first moment after another one at which a job''s schedule is due; NULL when there is none (no schedule, @reboot). Raises for a bad schedule or time zone.';

CREATE FUNCTION sweep._is_reboot(schedule text)
RETURNS boolean
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'sweep_schedule_is_reboot';

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
	batch_sql        text,
	step             text,
	timezone         text,
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
	lock_key         text NOT NULL,
	lock_retries     int NOT NULL,
	lock_retry_delay interval NOT NULL,
	max_attempts     int NOT NULL,
	overlap          text NOT NULL,
	catch_up         text NOT NULL,
	jitter           interval NOT NULL,
	cursor           text NOT NULL,
	on_start         jsonb,
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
COMMENT ON COLUMN sweep.job.step IS 'function(sweep.batch) that does one batch, schema-qualified; NULL when batch_sql is set';
COMMENT ON COLUMN sweep.job.batch_sql IS 'statement that does one batch: $1 is the batch size, $2 the batch; NULL when step is set';
COMMENT ON COLUMN sweep.job.schedule IS 'cron expression or interval; NULL: started by hand only';
COMMENT ON COLUMN sweep.job.timezone IS 'time zone of the schedule';
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
COMMENT ON COLUMN sweep.job.lock_retries IS 'further tries to take the lock';
COMMENT ON COLUMN sweep.job.lock_retry_delay IS 'pause between two tries to take the lock';
COMMENT ON COLUMN sweep.job.max_attempts IS 'runs that one due moment may take when they fail';
COMMENT ON COLUMN sweep.job.overlap IS 'what happens when the job is due while a run of it is in progress: skip, queue_one, cancel_previous';
COMMENT ON COLUMN sweep.job.catch_up IS 'what happens to due moments that passed unseen: once, skip, all';
COMMENT ON COLUMN sweep.job.jitter IS 'a start is delayed by a random time up to this';
COMMENT ON COLUMN sweep.job.cursor IS 'how long the cursor is kept: run: until the run ends; drain: until a run drains; always: for good';
COMMENT ON COLUMN sweep.job.run_as IS 'name of the role the job runs as; a name, because the number of a role is that of another one where a dump is restored';
COMMENT ON COLUMN sweep.job.on_start IS 'jobs that each run of this one queues a run of, with the delays: {"name": "15 min"}';
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

CREATE FUNCTION sweep._check_batch_sql(role oid, batch_sql text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_definition_check_batch_sql';
COMMENT ON FUNCTION sweep._check_batch_sql(oid, text) IS 'raises unless the text is one SELECT, INSERT, UPDATE, DELETE or MERGE that the role can have analysed';

CREATE FUNCTION sweep._signal_cancel(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_shared_signal_cancel';
COMMENT ON FUNCTION sweep._signal_cancel(bigint) IS 'asks the process of a run to stop; false when there is none';

-- ------------------------------------------------------------------ rights
-- A role is stored by its name; what asks is an OID. Decided in src/role.c, which says what the two rights are.
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
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._acts_for(caller, role) OR sweep._acts_for(caller, 'sweep_admin') OR operators AND sweep._acts_for(caller, 'sweep_operator')
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
	UPDATE sweep.job_state AS s SET broken = SQLERRM, next_due = NULL, next_start = after + interval '1 min'
		WHERE s.job = _reschedule.job AND s.paused_at IS NULL;
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
	IF job.timezone IS NOT NULL AND job.schedule IS NOT NULL THEN
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

-- Only schedule and batch_sql are meant to be passed by position; a step may have been, or the command alone.
CREATE FUNCTION sweep._check_position(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._resolve('step', job.schedule) IS NOT NULL THEN
		RAISE EXCEPTION 'schedule "%" of job "%" is a function', job.schedule, job.name USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('The second argument is the schedule. Write sweep.create_job(%L, step => %L).', job.name, job.schedule);
	END IF;
	IF job.schedule ~* E'^\\s*(delete|update|insert|merge|with|select|truncate|call|vacuum)\\s' THEN
		RAISE EXCEPTION 'schedule "%" of job "%" is a statement', job.schedule, job.name USING ERRCODE = 'invalid_parameter_value',
			HINT = 'The second argument is the schedule. A statement is the third, or passed by name: batch_sql => ''...''.';
	END IF;
	IF sweep._resolve('step', job.batch_sql) IS NOT NULL THEN
		RAISE EXCEPTION 'batch_sql "%" of job "%" is a function', job.batch_sql, job.name USING ERRCODE = 'invalid_parameter_value',
			HINT = pg_catalog.format('The third argument is the statement. Write sweep.create_job(%L, %L, step => %L).', job.name, job.schedule, job.batch_sql);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_position(sweep.job) IS 'raises when a function or a statement stands where another argument belongs';

CREATE FUNCTION sweep._check_function(kind text, name text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	candidates pg_catalog.text;
BEGIN
	IF name IS NULL OR sweep._resolve(kind, name) IS NOT NULL THEN
		RETURN;
	END IF;
	SELECT pg_catalog.string_agg(c.name, ', ' ORDER BY c.name) INTO candidates
		FROM (SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, p.proname) AS name
			FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE p.proname = pg_catalog.regexp_replace(_check_function.name, E'^.*\\.', '')) AS c
		WHERE sweep._resolve(kind, c.name) IS NOT NULL;
	RAISE EXCEPTION '% does not exist', sweep._function_form(kind, name)
		USING ERRCODE = 'undefined_function',
			HINT = coalesce('Write the name with its schema: ' || candidates || '.',
				pg_catalog.format('A %s is named with its schema and is a %s.', kind,
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
	IF (job.step IS NULL) = (job.batch_sql IS NULL) THEN
		RAISE EXCEPTION 'job "%" must have either a step or a batch_sql', job.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass exactly one of the two.';
	END IF;
	IF job.pick IS NOT NULL AND job.step IS NULL OR job.pick IS NULL AND (job.rescue IS NOT NULL OR job.transaction = 'row') THEN
		RAISE EXCEPTION 'job "%" has a % without a %', job.name,
				CASE WHEN job.pick IS NOT NULL THEN 'pick' WHEN job.rescue IS NOT NULL THEN 'rescue' ELSE 'transaction "row"' END,
				CASE WHEN job.pick IS NOT NULL THEN 'step' ELSE 'pick' END
			USING ERRCODE = 'invalid_parameter_value', HINT = 'An item job has a pick function and a step function.';
	END IF;
	PERFORM sweep._check_function('step', job.step), sweep._check_function('pick', job.pick), sweep._check_function('rescue', job.rescue),
		sweep._check_function('buckets_function', job.buckets_function);
	IF job.batch_sql IS NOT NULL THEN
		BEGIN
			PERFORM sweep._check_batch_sql(sweep._role_oid(job.run_as), job.batch_sql);
		EXCEPTION WHEN undefined_table OR undefined_function OR undefined_object THEN
			RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE,
				HINT = 'A job runs with search_path "pg_catalog, pg_temp": write names with their schema.';
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
		('batch_sql', pg_catalog.octet_length(job.batch_sql), 1024 * 1024, job.batch_sql IS DISTINCT FROM old.batch_sql),
		('description', pg_catalog.octet_length(job.description), 64 * 1024, job.description IS DISTINCT FROM old.description),
		('on_start', pg_catalog.octet_length(job.on_start::pg_catalog.text), 64 * 1024, job.on_start IS DISTINCT FROM old.on_start),
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

CREATE FUNCTION sweep._check_on_start(on_start jsonb) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	child pg_catalog.record;
BEGIN
	IF pg_catalog.jsonb_typeof(on_start) <> 'object' THEN
		RAISE EXCEPTION 'invalid on_start %', on_start USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Write an object of names and delays: {"other_job": "15 min"}.';
	END IF;
	FOR child IN SELECT c.key, c.value FROM pg_catalog.jsonb_each_text(on_start) AS c LOOP
		IF coalesce(child.value::interval < interval '0' OR child.value::interval > interval '100 years', true) THEN
			RAISE EXCEPTION 'invalid delay "%" of child "%"', child.value, child.key
				USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be between zero and 100 years.';
		END IF;
	END LOOP;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR interval_field_overflow THEN
	RAISE EXCEPTION 'invalid delay "%" of child "%"', child.value, child.key
		USING ERRCODE = 'invalid_parameter_value', HINT = 'Write an interval such as "15 min".';
END
$$;
COMMENT ON FUNCTION sweep._check_on_start(jsonb) IS 'raises unless on_start has names with delays';

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
		(job.buckets < 1 OR job.buckets > 1024, 'buckets ' || job.buckets, 'It must be between 1 and 1024, or NULL when the job is not divided.'),
		(job.bucket_store NOT IN ('table', 'redis'), 'bucket_store "' || job.bucket_store || '"', 'It must be "table" or "redis".'),
		(job.bucket_recovery < interval '1 s' OR job.bucket_recovery > interval '1 year', 'bucket_recovery ' || job.bucket_recovery,
			'It must be between one second and one year.'),
		(job.bucket_key !~ '^[^{}[:cntrl:]]{1,200}$', 'bucket_key "' || job.bucket_key || '"', 'Use 1 to 200 printable characters, no braces.'),
		(job.buckets IS NULL AND job.buckets_function IS NOT NULL, 'buckets_function without buckets', 'Say in buckets how many there are at most.'),
		(job.buckets IS NOT NULL AND job.stop_after >= job.bucket_recovery, 'stop_after ' || job.stop_after || ' of a divided job',
			pg_catalog.format('It must be less than bucket_recovery, %s: a share that is as old as that loses its bucket.', job.bucket_recovery)),
		(job.cursor NOT IN ('run', 'drain', 'always'), 'cursor "' || job.cursor || '"', 'It must be "run", "drain" or "always".'),
		(job.buckets IS NOT NULL AND job.cursor <> 'run', 'cursor "' || job.cursor || '" of a divided job', 'Each share begins at the start: leave it out.'),
		(job.timezone IS NOT NULL AND job.schedule IS NULL, 'timezone "' || job.timezone || '" without a schedule',
			'A time zone belongs to a schedule.')
	) AS c (bad, message, hint) WHERE c.bad LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'invalid %', wrong USING ERRCODE = 'invalid_parameter_value', HINT = wanted;
	END IF;
	PERFORM sweep._check_args(job.name, job.args), sweep._check_on_start(job.on_start);
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
	IF job.schedule IS NULL THEN
		RETURN;
	END IF;
	PERFORM sweep._next_run(job.schedule, job.timezone, pg_catalog.now(), job.name);
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

CREATE FUNCTION sweep._create_job(caller oid, name text, schedule text, batch_sql text, step text, timezone text, args jsonb,
	pick text, rescue text, transaction text, row_retries int, batch_size int, max_batches int, max_rows bigint, stop_after interval, timeout interval,
	lock_key  text, lock_retries int, lock_retry_delay interval, max_attempts int, overlap text, catch_up text, jitter interval,
	cursor text, on_start jsonb, flush text, buckets int, bucket_store text, bucket_recovery interval, bucket_key text, buckets_function text,
	run_as regrole, description text, paused boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job sweep.job;
BEGIN
	job := ROW(name, schedule, batch_sql, step,
		CASE WHEN schedule IS NOT NULL THEN coalesce(timezone, pg_catalog.current_setting('TimeZone')) ELSE timezone END, args,
		pick, rescue, transaction, row_retries, batch_size, max_batches, max_rows, stop_after, timeout, coalesce(lock_key, name),
		lock_retries, lock_retry_delay, max_attempts, overlap, catch_up, jitter, cursor, on_start, flush,
		buckets, bucket_store, bucket_recovery, coalesce(bucket_key, name), buckets_function,
		sweep._role_name(coalesce(run_as::pg_catalog.oid, caller)), description);
	PERFORM sweep._check_position(job), sweep._check_limits(job), sweep._check_paused(paused), sweep._check_sizes(job, NULL),
		sweep._check_role(caller, job), sweep._check_bucket_store(caller, job), sweep._check_schedule(job), sweep._check_step(job);
	BEGIN
		INSERT INTO sweep.job SELECT (job).*;
	EXCEPTION WHEN unique_violation THEN
		RAISE EXCEPTION 'job "%" already exists', name
			USING ERRCODE = 'duplicate_object', HINT = 'sweep.alter_job changes it, sweep.drop_job removes it.';
	END;
	INSERT INTO sweep.job_state (job, boot, paused_at, system_identifier, database)
		SELECT name, pg_catalog.pg_postmaster_start_time(), CASE WHEN paused THEN pg_catalog.now() END, sweep._system_identifier(), d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();
	PERFORM sweep._reschedule(name, pg_catalog.clock_timestamp()), sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._create_job(oid, text, text, text, text, text, jsonb, text, text, text, int, int, int, bigint,
	interval, interval, text, int, interval, int, text, text, interval, text, jsonb, text, int, text, interval, text, text, regrole, text, boolean) IS 'implements sweep.create_job';

CREATE FUNCTION sweep.create_job(name text, schedule text DEFAULT NULL, batch_sql text DEFAULT NULL, step text DEFAULT NULL,
	timezone text DEFAULT NULL, args jsonb DEFAULT '{}', pick text DEFAULT NULL, rescue text DEFAULT NULL,
	transaction text DEFAULT 'batch', row_retries int DEFAULT 3, batch_size int DEFAULT 1000, max_batches int DEFAULT NULL,
	max_rows bigint DEFAULT NULL, stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, lock_key text DEFAULT NULL,
	lock_retries int DEFAULT 0, lock_retry_delay interval DEFAULT '10 ms', max_attempts int DEFAULT 1, overlap text DEFAULT 'skip',
	catch_up text DEFAULT 'once', jitter interval DEFAULT '0', cursor text DEFAULT 'run', on_start jsonb DEFAULT NULL,
	flush text DEFAULT NULL, buckets int DEFAULT NULL, bucket_store text DEFAULT 'table', bucket_recovery interval DEFAULT '10 min',
	bucket_key text DEFAULT NULL, buckets_function text DEFAULT NULL, run_as regrole DEFAULT NULL, description text DEFAULT NULL,
	paused boolean DEFAULT false) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_job(text, text, text, text, text, jsonb, text, text, text, int, int, int, bigint,
	interval, interval, text, int, interval, int, text, text, interval, text, jsonb, text, int, text, interval, text, text, regrole, text, boolean) IS 'creates a job';

CREATE FUNCTION sweep._set_paused(name text, paused boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF paused THEN
		UPDATE sweep.job_state AS s SET paused_at = coalesce(s.paused_at, pg_catalog.now()), next_due = NULL, next_start = NULL
			WHERE s.job = _set_paused.name;
		UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp()
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

CREATE FUNCTION sweep._alter_job(caller oid, name text, changes jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.job := sweep._lock_job(caller, name, false, false);
	job sweep.job;
	paused boolean;
	known pg_catalog.text[];
	word pg_catalog.text;
BEGIN
	IF pg_catalog.jsonb_typeof(changes) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'changes must be a JSON object' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'For example: {"batch_size": 100, "schedule": "@hourly"}.';
	END IF;
	SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum) || ARRAY['paused'] INTO known FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = 'sweep.job'::pg_catalog.regclass AND a.attnum > 1 AND NOT a.attisdropped;
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
	job.lock_key := coalesce(job.lock_key, job.name);
	job.bucket_key := coalesce(job.bucket_key, job.name);
	IF job.schedule IS NOT NULL THEN
		job.timezone := coalesce(job.timezone, pg_catalog.current_setting('TimeZone'));
	ELSIF NOT changes ? 'timezone' THEN
		job.timezone := NULL;
	END IF;
	PERFORM sweep._check_limits(job), sweep._check_sizes(job, old);
	PERFORM sweep._check_paused(paused) WHERE changes ? 'paused';
	-- What the job's role executes may be changed only by those who could be that role.
	IF (job.step, job.batch_sql, job.pick, job.rescue, job.args, job.on_start, job.buckets_function, job.run_as)
			IS DISTINCT FROM (old.step, old.batch_sql, old.pick, old.rescue, old.args, old.on_start, old.buckets_function, old.run_as) THEN
		-- What belonged to a role that is gone is for sweep_admin to give to another one; nobody else has come this far.
		PERFORM sweep._check_role(caller, old) WHERE sweep._role_oid(old.run_as) IS NOT NULL;
		PERFORM sweep._check_role(caller, job);
	END IF;
	IF (job.buckets, job.bucket_store, job.bucket_recovery, job.bucket_key, job.buckets_function)
			IS DISTINCT FROM (old.buckets, old.bucket_store, old.bucket_recovery, old.bucket_key, old.buckets_function) THEN
		PERFORM sweep._check_bucket_store(caller, job);
	END IF;
	IF (job.step, job.batch_sql, job.pick, job.rescue, job.transaction, job.buckets_function, job.run_as)
			IS DISTINCT FROM (old.step, old.batch_sql, old.pick, old.rescue, old.transaction, old.buckets_function, old.run_as) THEN
		PERFORM sweep._check_step(job);
	END IF;
	UPDATE sweep.job AS j SET (schedule, batch_sql, step, timezone, args, pick, rescue, transaction, row_retries, batch_size, max_batches, max_rows,
			stop_after, timeout, lock_key, lock_retries, lock_retry_delay, max_attempts, overlap, catch_up, jitter, cursor, on_start, flush,
			buckets, bucket_store, bucket_recovery, bucket_key, buckets_function, run_as, description)
		= ROW(job.schedule, job.batch_sql, job.step, job.timezone, job.args, job.pick, job.rescue, job.transaction, job.row_retries, job.batch_size,
			job.max_batches, job.max_rows, job.stop_after, job.timeout, job.lock_key, job.lock_retries, job.lock_retry_delay, job.max_attempts,
			job.overlap, job.catch_up, job.jitter, job.cursor, job.on_start, job.flush, job.buckets, job.bucket_store, job.bucket_recovery,
			job.bucket_key, job.buckets_function, job.run_as, job.description)
		WHERE j.name = _alter_job.name;
	IF job.buckets IS NULL OR job.bucket_store <> 'table' THEN
		DELETE FROM sweep.bucket b WHERE b.job = _alter_job.name AND b.state = 'available';
	END IF;
	IF job.run_as <> old.run_as THEN
		UPDATE sweep.run_live AS r SET run_as = job.run_as WHERE r.job = _alter_job.name AND r.run_as = old.run_as AND r.status = 'waiting';
	END IF;
	IF (job.schedule, job.timezone, job.jitter) IS DISTINCT FROM (old.schedule, old.timezone, old.jitter) THEN
		PERFORM sweep._check_schedule(job), sweep._reschedule(name, pg_catalog.clock_timestamp()), sweep._wake();
	END IF;
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
	DELETE FROM sweep.job j WHERE j.name = _drop_job.name;
	DELETE FROM sweep.job_state s WHERE s.job = _drop_job.name;
	DELETE FROM sweep.quarantine q WHERE q.job = _drop_job.name;
	DELETE FROM sweep.bucket b WHERE b.job = _drop_job.name;
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp()
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

CREATE FUNCTION sweep._resume_all(caller oid) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_operator(caller);
	-- They were queued where this database was copied from, and belong there.
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp()
		FROM sweep.job_state s WHERE s.job = r.job AND NOT sweep._is_home(s.system_identifier, s.database)
			AND r.status = 'waiting' AND r.pid IS NULL;
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
	CONSTRAINT run_stop_reason_check CHECK (VALUE IN ('drained', 'max_batches', 'max_rows', 'stop_after', 'cancelled', 'timeout',
		'no_progress', 'error', 'skipped', 'lost', 'rescaled'));
COMMENT ON DOMAIN sweep.run_stop_reason IS 'why a run ended';

CREATE TABLE sweep.run_live (
	run_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job         text NOT NULL,
	args        jsonb NOT NULL DEFAULT '{}',
	trigger     sweep.run_trigger NOT NULL,
	attempt     int NOT NULL DEFAULT 1,
	due_at      timestamptz NOT NULL,
	started_at  timestamptz,
	finished_at timestamptz,
	status      sweep.run_status NOT NULL DEFAULT 'waiting',
	stop_reason sweep.run_stop_reason,
	batches     int NOT NULL DEFAULT 0,
	rows        bigint NOT NULL DEFAULT 0,
	rescued     bigint NOT NULL DEFAULT 0,
	quarantined bigint NOT NULL DEFAULT 0,
	cursor      jsonb,
	detail      jsonb,
	sqlstate    text,
	error       text,
	pid         int,
	run_as      text NOT NULL DEFAULT current_user,
	bucket      int,
	shares_left int,
	parent_run_id bigint
) WITH (fillfactor = 50);
-- Whatever there is to do is found without a look at the runs that are not due yet. No column of these changes with a
-- batch, which would cost an entry in each index for each batch.
CREATE INDEX run_live_due_idx ON sweep.run_live (due_at);
CREATE INDEX run_live_job_idx ON sweep.run_live (job, trigger, due_at);
CREATE INDEX run_live_begun_idx ON sweep.run_live (job, run_id) WHERE pid IS NOT NULL OR finished_at IS NOT NULL;
COMMENT ON INDEX sweep.run_live_due_idx IS 'what is due';
COMMENT ON INDEX sweep.run_live_job_idx IS 'what waits of a job';
COMMENT ON INDEX sweep.run_live_begun_idx IS 'what runs or has ended';
CREATE INDEX run_live_parent_idx ON sweep.run_live (parent_run_id) WHERE parent_run_id IS NOT NULL;
COMMENT ON INDEX sweep.run_live_parent_idx IS 'what a run has queued';
-- A restored database goes on counting, so that what its job_state remembers of runs stays older.
SELECT pg_catalog.pg_extension_config_dump('sweep.run_live_run_id_seq', '');
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
	SELECT r.* FROM sweep.run_live r WHERE (SELECT e.allowed FROM everything e) OR r.run_as IN (SELECT m.name FROM roles m)
	UNION ALL
	SELECT r.* FROM sweep.run_history r WHERE (SELECT e.allowed FROM everything e) OR r.run_as IN (SELECT m.name FROM roles m);
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
			['stop_reason', 'why it ended: drained, max_batches, max_rows, stop_after, cancelled, timeout, no_progress, error, skipped, lost or rescaled'],
			['batches', 'batches committed'], ['rows', 'rows handled in them'], ['rescued', 'items for which the rescue function reported rows'],
			['quarantined', 'items put into quarantine'], ['cursor', 'where the next batch would go on'], ['detail', 'what the step reported'],
			['sqlstate', 'code of the error that ended it'], ['error', 'that error, with its detail, hint and context'],
			['pid', 'process that runs it, or ran it'],
			['run_as', 'role of its job: a job of the same name that belongs to another role has nothing to do with it'],
			['bucket', 'share of a divided job that it has or had; while it waits the one it would have'],
			['shares_left', 'how many shares follow this one, one after the other; NULL: it was not begun as a share'],
			['parent_run_id', 'run that has queued it: of a share the one that divided the job, of a retry the one that is tried again, of a child that of the parent']] LOOP
			EXECUTE pg_catalog.format('COMMENT ON COLUMN sweep.%I.%I IS %L', target, note[1], note[2]);
		END LOOP;
	END LOOP;
END
$$;

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
	RETURN QUERY WITH ready AS (SELECT r.run_id, r.job, r.run_as, r.due_at, s.drained_rows, j.lock_key, j.buckets IS NOT NULL AS divided,
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
	-- Of those that wait for the same lock one, however many there are, and no more of a role than could start, and one
	-- that cannot: so none keeps another job or role from being seen. And nothing of what their owners have written.
	SELECT w.run_id, w.job, w.run_as, w.drained_rows FROM (SELECT f.*, pg_catalog.row_number() OVER (PARTITION BY f.run_as ORDER BY f.due_at, f.run_id) AS nth
			FROM ready f WHERE NOT f.takes_turns
				OR (f.turn = 1 OR f.divided) AND sweep._lock_is_held(sweep._role_oid(f.run_as), f.lock_key, f.divided) IS NOT TRUE) AS w
		WHERE w.nth <= coalesce(most, 1000) + 1 ORDER BY w.due_at, w.run_id;
END
$$;
COMMENT ON FUNCTION sweep._startable_runs(timestamptz) IS 'the waiting runs that may start now, of each lock and each role the oldest ones';

CREATE FUNCTION sweep._next_wake(listed_at timestamptz) RETURNS timestamptz
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
	SELECT least((SELECT pg_catalog.min(s.next_start) FROM sweep.job_state s WHERE pg_catalog.isfinite(s.next_start)
			AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL AND NOT EXISTS (SELECT FROM sweep.control)),
		(SELECT pg_catalog.min(r.due_at) FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at > listed_at AND pg_catalog.isfinite(r.due_at)),
		-- Whoever has locked a run says nothing on rollback.
		(SELECT pg_catalog.clock_timestamp() + interval '1 s' FROM sweep.run_live r WHERE r.status = 'waiting' AND r.pid IS NULL AND r.due_at <= listed_at
			AND r.xmax <> 0 LIMIT 1))
$$;
COMMENT ON FUNCTION sweep._next_wake(timestamptz) IS 'when the scheduler has to look again that has listed what may start at the given time';

CREATE FUNCTION sweep._parent_args(job text, run_id bigint) RETURNS jsonb
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.jsonb_build_object('parent', pg_catalog.jsonb_build_object('job', job, 'run_id', run_id, 'status', 'running', 'error', NULL))
$$;
COMMENT ON FUNCTION sweep._parent_args(text, bigint) IS 'args of the runs that a run queues when it starts: what caused them';

CREATE FUNCTION sweep._start_children(run_id bigint) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	idle pg_catalog.record;
	not_started pg_catalog.jsonb;
BEGIN
	-- Only jobs that the role of the parent may start; one that waits already is not queued twice.
	INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at, parent_run_id)
		SELECT child.name, child.run_as, sweep._parent_args(r.job, r.run_id), 'parent', pg_catalog.clock_timestamp() + c.value::interval, r.run_id
		FROM sweep.run_live r JOIN sweep.job parent ON parent.name = r.job AND parent.run_as = r.run_as
			CROSS JOIN LATERAL pg_catalog.jsonb_each_text(parent.on_start) AS c
			JOIN sweep.job child ON child.name = c.key JOIN sweep.job_state s ON s.job = child.name
		-- A child queues no children: a circle of definitions would go round for ever.
		-- The shares of a divided one are queued by sweep._queue_shares.
		WHERE r.run_id = _start_children.run_id AND r.trigger <> 'parent' AND (child.buckets IS NULL OR child.run_as <> parent.run_as) AND s.paused_at IS NULL AND sweep._is_home(s.system_identifier, s.database) AND sweep._has_workers()
			AND sweep._may_act_on(sweep._role_oid(parent.run_as), child.run_as, true)
			AND NOT EXISTS (SELECT FROM sweep.run_live w WHERE w.job = child.name AND w.run_as = child.run_as AND w.status = 'waiting' AND w.trigger = 'parent');
	PERFORM sweep._wake();
	-- A run that succeeds while the work is left to nobody has to say so.
	FOR idle IN SELECT parent.name AS parent, c.key AS name, n.reason
			FROM sweep.run_live r JOIN sweep.job parent ON parent.name = r.job
				CROSS JOIN LATERAL pg_catalog.jsonb_each_text(parent.on_start) AS c
				LEFT JOIN sweep.job child ON child.name = c.key LEFT JOIN sweep.job_state s ON s.job = child.name
				CROSS JOIN LATERAL (SELECT CASE
					WHEN child.name IS NULL THEN 'it does not exist'
					WHEN s.paused_at IS NOT NULL THEN 'it is paused'
					WHEN NOT sweep._has_workers() THEN 'pg_sweep is not loaded at server start'
					WHEN (child.buckets IS NULL OR child.run_as <> parent.run_as)
							AND NOT EXISTS (SELECT FROM sweep.run_live w WHERE w.job = child.name AND w.run_as = child.run_as AND w.status = 'waiting' AND w.trigger = 'parent')
						THEN 'the role of its parent may not start it' END AS reason) AS n
			WHERE r.run_id = _start_children.run_id AND r.trigger <> 'parent' AND n.reason IS NOT NULL ORDER BY c.key LOOP
		RAISE NOTICE 'child "%" of job "%" is not started: %', idle.name, idle.parent, idle.reason;
		not_started := coalesce(not_started, '{}') || pg_catalog.jsonb_build_object(idle.name, idle.reason);
	END LOOP;
	RETURN CASE WHEN not_started IS NOT NULL THEN pg_catalog.jsonb_build_object('not_started', not_started) END;
END
$$;
COMMENT ON FUNCTION sweep._start_children(bigint) IS 'queues the runs that a run of a parent causes, whatever becomes of itself; returns detail for it when some are not started';

CREATE FUNCTION sweep._fail_start(run_id bigint, stop_reason text, sqlstate text, error text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text;
BEGIN
	-- Of one that somebody has locked it is tried again when it is free: it still waits.
	IF sweep._lock_waiting_run(run_id) IS NULL THEN
		RETURN;
	END IF;
	-- What is known to be wrong with the job says more than that its process ended.
	SELECT sweep._job_problem(sweep._job_frame(j.name)) INTO problem FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _fail_start.run_id AND _fail_start.stop_reason = 'error';
	UPDATE sweep.run_live AS r SET status = CASE _fail_start.stop_reason WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END,
			stop_reason = _fail_start.stop_reason, finished_at = pg_catalog.clock_timestamp(),
			sqlstate = CASE WHEN problem IS NULL THEN _fail_start.sqlstate ELSE '55000' END,
			error = coalesce(problem, _fail_start.error), bucket = NULL
		WHERE r.run_id = _fail_start.run_id AND r.status = 'waiting';
	PERFORM sweep._retry(run_id);
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
		AND (r.pid IS NOT NULL OR r.finished_at IS NOT NULL) AND (r.batches > 0 OR r.cursor IS NOT NULL) ORDER BY coalesce(r.started_at, r.finished_at) DESC, r.run_id DESC LIMIT 1;
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
CREATE FUNCTION sweep._start(caller oid, name text, args jsonb, delay interval) RETURNS bigint
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
		VALUES (name, job.run_as, args, 'manual', pg_catalog.clock_timestamp() + delay)
		RETURNING run_id INTO new_id;
	PERFORM sweep._wake();
	RETURN new_id;
END
$$;
COMMENT ON FUNCTION sweep._start(oid, text, jsonb, interval) IS 'implements sweep.start';

CREATE FUNCTION sweep.start(name text, args jsonb DEFAULT '{}', delay interval DEFAULT '0') RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.start(text, jsonb, interval) IS 'runs a job in the background once the transaction has committed, or after the delay; returns the run_id';

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
		UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp()
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
			UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp()
				WHERE r.run_id = in_the_way AND sweep._lock_waiting_run(r.run_id);
			PERFORM sweep._signal_cancel(r.run_id) FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running' AND j.buckets IS NULL;
		ELSIF in_the_way IS NOT NULL THEN
			INSERT INTO sweep.run_live (job, run_as, trigger, due_at, finished_at, status, stop_reason, detail)
				VALUES (j.name, j.run_as, trigger, due, pg_catalog.clock_timestamp(), 'skipped', 'skipped',
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
		UPDATE sweep.job_state AS t SET broken = problem WHERE t.job = j.name;
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
	j.batch_sql := NULL;
	j.args := '{}';
	j.on_start := NULL;
	j.description := NULL;
	RETURN j;
END
$$;
COMMENT ON FUNCTION sweep._job_frame(text) IS 'the job without what can be large: batch_sql, args, on_start, description';

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
			UPDATE sweep.job_state AS t SET broken = SQLERRM, next_start = at + interval '1 min' WHERE t.job = due.job;
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
		UPDATE sweep.job_state AS s SET boot = pg_catalog.pg_postmaster_start_time(), broken = NULL WHERE s.job = due.name;
		BEGIN
			PERFORM sweep._insert_scheduled(sweep._job_frame(due.name), pg_catalog.clock_timestamp(), 'schedule', false);
		EXCEPTION WHEN lock_not_available THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', due.name, SQLERRM;
			UPDATE sweep.job_state AS s SET broken = SQLERRM WHERE s.job = due.name;
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
	INSERT INTO sweep.run_live (job, run_as, args, trigger, attempt, bucket, shares_left, parent_run_id, due_at)
		SELECT r.job, r.run_as, r.args, 'retry', r.attempt + 1, r.bucket, r.shares_left * (r.status = 'lost')::int, r.run_id,
			pg_catalog.clock_timestamp() + interval '1 s' * (r.attempt ^ 4 + 15 + pg_catalog.floor(pg_catalog.random() * 10 * (r.attempt + 1)))
		FROM sweep.run_live r JOIN sweep.job j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _retry.run_id AND r.status IN ('failed', 'lost') AND r.attempt < j.max_attempts
$$;
COMMENT ON FUNCTION sweep._retry(bigint) IS 'queues the next attempt of a run that failed or was lost, with the backoff of Sidekiq';

CREATE FUNCTION sweep._cancel_orphans(due timestamptz) RETURNS bigint
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
	WITH orphan AS (SELECT o.run_id FROM sweep.run_live o WHERE o.status = 'waiting' AND o.pid IS NULL AND o.due_at <= due
			AND NOT EXISTS (SELECT FROM sweep.job j WHERE j.name = o.job AND j.run_as = o.run_as) FOR UPDATE OF o SKIP LOCKED),
		ended AS (UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp()
			FROM orphan WHERE r.run_id = orphan.run_id RETURNING r.run_id)
	SELECT pg_catalog.count(*) FROM ended
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
	FOR gone IN SELECT r.run_id, r.status FROM sweep.run_live r
			WHERE r.pid IS NOT NULL AND r.status IN ('waiting', 'running') AND NOT sweep._run_is_alive(r.run_id) FOR UPDATE SKIP LOCKED LOOP
		UPDATE sweep.run_live AS r SET status = 'lost', stop_reason = 'lost', finished_at = pg_catalog.clock_timestamp()
			WHERE r.run_id = gone.run_id AND r.status = gone.status;
		IF FOUND THEN
			PERFORM sweep._retry(gone.run_id);
			counted := counted + 1;
		END IF;
	END LOOP;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._mark_lost() IS 'ends the runs whose process is gone: status lost; returns how many';

CREATE FUNCTION sweep._prune(job text, run_as text, status text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	DELETE FROM sweep.run_history AS h USING (SELECT k.run_id FROM sweep.run_history k
			WHERE k.job = _prune.job AND k.run_as = _prune.run_as AND k.status = _prune.status ORDER BY k.run_id DESC
			OFFSET pg_catalog.current_setting('pg_sweep.history_per_job')::int LIMIT 1000 FOR UPDATE SKIP LOCKED) AS old
		WHERE h.run_id = old.run_id
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
		(SELECT r.job, r.run_id FROM sweep.run_live r WHERE r.finished_at IS NOT NULL ORDER BY r.job, r.run_id LIMIT 1)
		UNION ALL
		SELECT n.job, n.run_id FROM step s CROSS JOIN LATERAL (SELECT r.job, r.run_id FROM sweep.run_live r
			WHERE r.finished_at IS NOT NULL AND r.job > s.job ORDER BY r.job, r.run_id LIMIT 1) AS n)
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
	IF NOT age_out AND NOT EXISTS (SELECT FROM sweep.run_live r WHERE r.finished_at IS NOT NULL) THEN
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
			CROSS JOIN LATERAL (SELECT * FROM sweep.run_live r WHERE r.job = k.job AND r.finished_at IS NOT NULL
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
-- worker for follows later: shares_left says how many shares a share is followed by. Each of them wishes for
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
		WHERE r.run_id = _divided_children.run_id AND r.trigger <> 'parent' AND child.buckets IS NOT NULL
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
	wishes int[];
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
	wishes := ARRAY(SELECT n FROM pg_catalog.generate_series(0, buckets - 1) AS n
		WHERE divided.bucket_store = 'redis'
			OR EXISTS (SELECT FROM sweep.bucket b WHERE b.job = _queue_shares.job AND b.bucket = n AND b.state = 'available')
				AND NOT EXISTS (SELECT FROM sweep.run_live w WHERE w.job = _queue_shares.job AND w.run_as = dispatcher.run_as AND w.status = 'waiting' AND w.bucket = n)
		ORDER BY (n - first + buckets) % buckets);
	shares := greatest(shares - chains, 0);
	shares_left := shares / chains + (0 < shares % chains)::int;
	wanted := wishes[1];
	INSERT INTO sweep.run_live (job, run_as, args, trigger, parent_run_id, bucket, shares_left, due_at)
		SELECT _queue_shares.job, dispatcher.run_as, CASE own WHEN 1 THEN dispatcher.args ELSE sweep._parent_args(dispatcher.job, run_id) END, 'parent', run_id,
			wishes[1 + n + n * (shares / chains) + least(n, shares % chains)],
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
	wish int := bucket;
	follower bigint;
BEGIN
	SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.batches, r.rows + r.rescued + r.quarantined AS handled INTO share
		FROM sweep.run_live r WHERE r.run_id = _follow_share.run_id;
	IF NOT FOUND THEN
		SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.batches, r.rows + r.rescued + r.quarantined AS handled INTO share
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
			wish := (bucket + 1) % buckets;
			IF bucket_store = 'table' THEN
				wish := (SELECT b.bucket FROM sweep.bucket b WHERE b.job = share.job AND b.state = 'available' AND b.bucket < buckets
					ORDER BY (b.bucket - wish + buckets) % buckets LIMIT 1);
			END IF;
		END IF;
		INSERT INTO sweep.run_live (job, run_as, args, trigger, parent_run_id, bucket, shares_left, due_at)
			VALUES (share.job, share.run_as, share.args, 'parent', CASE WHEN divides THEN run_id ELSE share.parent_run_id END, wish, share.shares_left - (NOT goes_on)::int, pg_catalog.clock_timestamp() + delay)
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

-- The queue of that name, when the caller has the right: 'send', 'consume',
-- 'redrive' or 'own'.  Members of the owner and of sweep_admin have all of them.
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
	IF NOT (sweep._may_act_on(caller, found_queue.owner, wanted = 'redrive')
		OR EXISTS (SELECT FROM pg_catalog.unnest(CASE wanted WHEN 'send' THEN found_queue.senders WHEN 'consume' THEN found_queue.consumers END) AS r (role)
			WHERE sweep._acts_for(caller, r.role)))
	THEN
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

-- Statements between these two are the extension's own; the second says what
-- they did: how many rows have come, in lanes without and with a due time, how
-- many dead ones, from when something is due.
CREATE FUNCTION sweep._begin_queue_statement(queue_id int)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_begin';
COMMENT ON FUNCTION sweep._begin_queue_statement(int) IS 'internal: the following statements on messages are those of the extension';

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

CREATE FUNCTION sweep._create_queue(caller oid, name text, visibility interval, max_attempts int, backoff text, keep_done interval, notify boolean, key_policy text)
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
	INSERT INTO sweep.queue (name, owner, visibility, max_attempts, backoff, keep_done, notify, key_policy)
	VALUES (_create_queue.name, sweep._role_name(caller), _create_queue.visibility, _create_queue.max_attempts,
		coalesce(pause::pg_catalog.text, _create_queue.backoff), _create_queue.keep_done, coalesce(_create_queue.notify, true), _create_queue.key_policy)
	ON CONFLICT ON CONSTRAINT queue_name_key DO NOTHING;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" already exists', _create_queue.name
			USING ERRCODE = 'duplicate_object', HINT = 'sweep.drop_queue removes a queue with its messages.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._create_queue(oid, text, interval, int, text, interval, boolean, text) IS 'internal: implements sweep.create_queue';

CREATE FUNCTION sweep.create_queue(name text, visibility interval DEFAULT '30 s', max_attempts int DEFAULT 25, backoff text DEFAULT 'sidekiq',
	keep_done interval DEFAULT '0', notify boolean DEFAULT true, key_policy text DEFAULT 'while_queued')
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text) IS 'creates a queue of the caller: how long a claim holds a message, how often and after which pauses a failed one comes again, how long acknowledged ones are kept, whether LISTEN hears of new ones, for how long a key is unique';

CREATE FUNCTION sweep._lock_queue(queue_id int)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_lock_to_drop';
COMMENT ON FUNCTION sweep._lock_queue(int) IS 'internal: waits until nobody works with the queue, and keeps everybody from it until the transaction ends';

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
	PERFORM sweep._lock_queue(id), sweep._begin_queue_statement(id);
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
	PERFORM sweep._begin_queue_statement(id);
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
	PERFORM sweep._begin_queue_statement(q.queue_id);
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
COMMENT ON FUNCTION sweep.fail(uuid, text, bigint[]) IS 'has messages of a lease come again after a pause, or puts them among the dead when they were delivered as often as the queue allows; returns how many';

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
-- Consumers in the database: background workers that call a function for each
-- message of a queue.
--
-- A row says what is wanted; the scheduler keeps as many processes as that
-- (src/consumer_pool.c), each connected as run_as (src/consumer.c).  What a
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
COMMENT ON COLUMN sweep.consumer.handler IS 'the function that is called with each message, by name';
COMMENT ON COLUMN sweep.consumer.run_as IS 'name of the role its processes are connected as';
COMMENT ON COLUMN sweep.consumer.concurrency IS 'how many processes';
COMMENT ON COLUMN sweep.consumer.batch IS 'how many messages a process handles in one transaction';
COMMENT ON COLUMN sweep.consumer.paused_at IS 'since when it is paused; NULL: it is not';
COMMENT ON COLUMN sweep.consumer.system_identifier IS 'cluster it is meant for';
COMMENT ON COLUMN sweep.consumer.database IS 'database it is meant for: a copy of it elsewhere is paused until sweep.resume_all() is called there';
COMMENT ON COLUMN sweep.consumer.all_paused_at IS 'since when it is paused together with all others; NULL: it is not, or was created since';

-- A message in whose handling the server went down may be the reason for it,
-- so it is counted apart from its attempts: see src/consumer_note.c.
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
CREATE FUNCTION sweep._find_handler(name text) RETURNS regprocedure
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
BEGIN
	parts := pg_catalog.parse_ident(name);
	IF pg_catalog.cardinality(parts) IS DISTINCT FROM 2 THEN
		RETURN NULL;
	END IF;
	RETURN (SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		WHERE p.proname = parts[2] AND n.nspname = parts[1] AND p.prokind = 'f'
			AND p.pronargs = 1 AND p.proargtypes[0] = 'sweep.message'::pg_catalog.regtype);
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._find_handler(text) IS 'the function of one sweep.message that a text names; NULL when there is none';

CREATE FUNCTION sweep._consumer_problem(consumer sweep.consumer) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role    constant pg_catalog.oid := sweep._role_oid(consumer.run_as);
	problem constant pg_catalog.text := sweep._role_problem(consumer.run_as);
	handler constant pg_catalog.regprocedure := sweep._find_handler(consumer.handler);
BEGIN
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	IF NOT (sweep._acts_for(role, 'sweep_user') OR sweep._acts_for(role, 'sweep_admin')) THEN
		RETURN pg_catalog.format('role "%s" is not a member of sweep_user', consumer.run_as);
	END IF;
	IF handler IS NULL THEN
		RETURN pg_catalog.format('function %s(sweep.message) does not exist', consumer.handler);
	END IF;
	RETURN sweep._execute_problem(consumer.run_as, handler);
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
	problem  pg_catalog.text;
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
	IF sweep._find_handler(handler) IS NULL THEN
		RAISE EXCEPTION 'function %(sweep.message) does not exist', handler
			USING ERRCODE = 'undefined_function',
				HINT = 'A handler is named with its schema and is a function(sweep.message); what it returns is ignored.';
	END IF;
	PERFORM sweep._find_queue(role, _create_consumer.queue, 'consume');
	owned_by := sweep._owner_problem(name, sweep._find_handler(handler));
	IF owned_by IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _create_consumer.queue, owned_by
			USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its owner decides what is executed as that role.',
				HINT = pg_catalog.format('ALTER FUNCTION %s OWNER TO %I gives it to the role of the consumer.', sweep._find_handler(handler), name);
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
COMMENT ON FUNCTION sweep.create_consumer(text, text, int, int, regrole) IS 'has background workers call handler(sweep.message) for each message of the queue; its effect and the acknowledgement are one commit';

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
COMMENT ON COLUMN sweep.consumers.handler IS 'the function that is called with each message';
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
-- What an operator reads.
--
CREATE FUNCTION sweep._running(OUT run_id bigint, OUT job text, OUT pid int, OUT phase text, OUT batches bigint, OUT rows bigint,
	OUT last_batch_ms float8, OUT batch_size int, OUT estimated_rows bigint, OUT started_at timestamptz, OUT deadline timestamptz)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_running';
COMMENT ON FUNCTION sweep._running() IS 'the runs in progress in this database, from shared memory';

CREATE VIEW sweep.running WITH (security_barrier) AS
	SELECT r.run_id, r.job, r.pid, r.phase, r.batches, r.rows,
		pg_catalog.round((r.rows / nullif(extract(epoch FROM pg_catalog.clock_timestamp() - r.started_at), 0))::numeric, 1) AS rows_per_second,
		pg_catalog.round(r.last_batch_ms::numeric, 3) AS last_batch_ms, r.batch_size, r.estimated_rows,
		CASE WHEN r.estimated_rows > 0 THEN pg_catalog.round(least(r.rows::numeric / r.estimated_rows, 1), 3) END AS fraction, r.started_at, r.deadline
	-- Which the reader may see is asked there, by the role of the run: its job may be gone, or another role's by now.
	FROM sweep._running() r;
COMMENT ON VIEW sweep.running IS 'live progress of the runs in progress';

CREATE FUNCTION sweep._missing_worker(role oid) RETURNS text
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_shared_missing';
COMMENT ON FUNCTION sweep._missing_worker(oid) IS 'the setting that keeps runs of the role in this database waiting just now; NULL when there is room for one';

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
	SELECT j.name, j.schedule, j.timezone, s.next_due AS next_run, s.paused_at IS NOT NULL AS paused,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN live.running THEN CASE WHEN held.back THEN 'paused (running)' ELSE 'running' END
			WHEN live.waiting THEN 'waiting_for_slot' || coalesce(': ' || sweep._missing_worker(sweep._role_oid(j.run_as)), '')
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
				(SELECT * FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.finished_at IS NOT NULL
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
		['running', 'phase', 'starting, lock (trying to take it), step, commit or ending'],
		['running', 'batches', 'batches committed so far'], ['running', 'rows', 'rows handled so far'],
		['running', 'rows_per_second', 'rows per second since the run began'], ['running', 'last_batch_ms', 'how long the last batch took'],
		['running', 'batch_size', 'rows of one batch at most'],
		['running', 'estimated_rows', 'rows of the last run that drained, or what the limits of this one allow; NULL: not known'],
		['running', 'fraction', 'rows as a part of estimated_rows, from 0 to 1'], ['running', 'started_at', 'when it had its lock'],
		['running', 'deadline', 'when its stop_after or its timeout has passed, whichever is first'],
		['jobs', 'name', 'name of the job'], ['jobs', 'schedule', 'its schedule; NULL: started by hand only'],
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
REVOKE ALL ON TYPE sweep.batch, sweep.progress, sweep.message, sweep.run_trigger, sweep.run_status, sweep.run_stop_reason FROM PUBLIC;

GRANT USAGE ON SCHEMA sweep TO sweep_admin, sweep_operator, sweep_user, sweep_monitor, sweep_client;
GRANT USAGE ON TYPE sweep.batch, sweep.progress TO sweep_admin, sweep_user;
GRANT USAGE ON TYPE sweep.message TO sweep_admin, sweep_user, sweep_client;

-- Views, and the functions that they call with the rights of whoever reads them.
GRANT SELECT ON sweep.jobs, sweep.runs, sweep.running, sweep.buckets, sweep.queues TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep._may_see(text), sweep._running(), sweep._missing_worker(oid), sweep._has_workers(), sweep._seen_queues(), sweep._read_queue(int, bigint, timestamptz, int, int, smallint[], bigint[]), sweep._is_home(bigint, oid), sweep._last_dispatch(text, bigint), sweep._job_problem(sweep.job), sweep._has_redis_url(), sweep._role_problem(text), sweep._role_oid(text), sweep._is_trusted(regprocedure, text), sweep._acts_for(oid, text), sweep._owner_problem(text, regprocedure), sweep._execute_problem(text, regprocedure),
	sweep._resolve(text, text), sweep._function_form(text, text), sweep._function_problem(text, text, text), sweep._next_run(text, text, timestamptz, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep.next_runs(text, text, timestamptz, int, text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The table of jobs shows its own to everybody who may see them.
GRANT SELECT ON sweep.job TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY job_select ON sweep.job FOR SELECT USING (sweep._may_see(run_as));
COMMENT ON POLICY job_select ON sweep.job IS 'one sees the jobs of the roles one is a member of, or all of them as sweep_monitor, sweep_operator or sweep_admin';

-- Jobs: what a function does for whom is checked by the function.
GRANT EXECUTE ON FUNCTION sweep.create_job(text, text, text, text, text, jsonb, text, text, text, int, int, int, bigint,
	interval, interval, text, int, interval, int, text, text, interval, text, jsonb, text, int, text, interval, text, text, regrole, text, boolean), sweep.alter_job(text, jsonb), sweep.drop_job(text)
	TO sweep_admin, sweep_user;
GRANT EXECUTE ON PROCEDURE sweep.run(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.preview(text, jsonb) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.try_lock(text), sweep.release_lock(text) TO sweep_admin, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause(text), sweep.resume(text), sweep.start(text, jsonb, interval), sweep.cancel(bigint)
	TO sweep_admin, sweep_operator, sweep_user;
GRANT EXECUTE ON FUNCTION sweep.pause_all(), sweep.resume_all() TO sweep_admin, sweep_operator;
GRANT EXECUTE ON PROCEDURE sweep.wait(bigint, interval) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

GRANT EXECUTE ON FUNCTION sweep.release_quarantine(text, jsonb) TO sweep_admin, sweep_operator, sweep_user;
GRANT SELECT ON sweep.quarantine TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
ALTER TABLE sweep.quarantine ENABLE ROW LEVEL SECURITY;
CREATE POLICY quarantine_select ON sweep.quarantine FOR SELECT USING (EXISTS (SELECT FROM sweep.job j WHERE j.name = job));
COMMENT ON POLICY quarantine_select ON sweep.quarantine IS 'one sees the items of the jobs one sees';

-- Queues.
GRANT EXECUTE ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text), sweep.drop_queue(text), sweep.purge_queue(text),
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
GRANT EXECUTE ON FUNCTION sweep._consumer_processes(), sweep._consumer_problem(sweep.consumer), sweep._find_handler(text) TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;

-- The launcher has a scheduler started here once this is committed.
SELECT sweep._wake();
