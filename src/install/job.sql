--
-- What should run, when, within which limits, and as whom.
--
-- sweep.job is the definition, written only by the functions below; sweep.job_state is what time
-- made of it, a small row that the scheduler updates. A public function is a C dispatcher that calls
-- its namesake with a leading underscore as the owner of the extension and passes the caller's role.
--
CREATE TABLE sweep.job (
	name             text PRIMARY KEY,
	step             text,
	batch_sql        text,
	schedule         text,
	timezone         text,
	args             jsonb NOT NULL,
	flush            text NOT NULL,
	batch_size       int NOT NULL,
	max_batches      int,
	max_rows         bigint,
	timeout          interval,
	lease_key        text NOT NULL,
	lease_ttl        interval,
	lock_retries     int NOT NULL,
	lock_retry_delay interval NOT NULL,
	max_attempts     int NOT NULL,
	overlap          text NOT NULL,
	catch_up         text NOT NULL,
	jitter           interval NOT NULL,
	keep_cursor      boolean NOT NULL,
	enabled          boolean NOT NULL,
	run_as           regrole NOT NULL,
	description      text,
	CONSTRAINT job_flush_check CHECK (flush IN ('run', 'batch')),
	CONSTRAINT job_overlap_check CHECK (overlap IN ('skip', 'queue_one', 'cancel_previous')),
	CONSTRAINT job_catch_up_check CHECK (catch_up IN ('once', 'skip', 'all'))
);
COMMENT ON TABLE sweep.job IS 'jobs: what runs, when, within which limits, as whom';
COMMENT ON COLUMN sweep.job.name IS 'name of the job';
COMMENT ON COLUMN sweep.job.step IS 'function(sweep.batch) that does one batch, schema-qualified; NULL when batch_sql is set';
COMMENT ON COLUMN sweep.job.batch_sql IS 'statement that does one batch: $1 is the batch size, $2 the batch; NULL when step is set';
COMMENT ON COLUMN sweep.job.schedule IS 'cron expression or interval; NULL: started by hand only';
COMMENT ON COLUMN sweep.job.timezone IS 'time zone of the schedule';
COMMENT ON COLUMN sweep.job.args IS 'args of every batch; the args of a run are merged over them';
COMMENT ON COLUMN sweep.job.flush IS 'run: the last commit of a run waits for the disk; batch: every commit does';
COMMENT ON COLUMN sweep.job.batch_size IS 'rows of one batch at most';
COMMENT ON COLUMN sweep.job.max_batches IS 'batches of one run at most; NULL: no limit';
COMMENT ON COLUMN sweep.job.max_rows IS 'rows of one run at most; NULL: no limit';
COMMENT ON COLUMN sweep.job.timeout IS 'no new batch begins after this time; NULL: no limit';
COMMENT ON COLUMN sweep.job.lease_key IS 'name of the lease that a run holds; jobs that share it exclude each other';
COMMENT ON COLUMN sweep.job.lease_ttl IS 'a run is stopped after this time, its batch in flight rolled back; NULL: no limit';
COMMENT ON COLUMN sweep.job.lock_retries IS 'further tries to take the lease';
COMMENT ON COLUMN sweep.job.lock_retry_delay IS 'pause between two tries to take the lease';
COMMENT ON COLUMN sweep.job.max_attempts IS 'runs that one due moment may take when they fail';
COMMENT ON COLUMN sweep.job.overlap IS 'what happens when the job is due while a run of it is in progress: skip, queue_one, cancel_previous';
COMMENT ON COLUMN sweep.job.catch_up IS 'what happens to due moments that passed unseen: once, skip, all';
COMMENT ON COLUMN sweep.job.jitter IS 'a start is delayed by a random time up to this';
COMMENT ON COLUMN sweep.job.keep_cursor IS 'the next run goes on where the last one stopped, unless that one drained';
COMMENT ON COLUMN sweep.job.enabled IS 'whether the schedule applies';
COMMENT ON COLUMN sweep.job.run_as IS 'role the job runs as';
COMMENT ON COLUMN sweep.job.description IS 'a word to the reader';

CREATE TABLE sweep.job_state (
	job        text PRIMARY KEY REFERENCES sweep.job (name) ON DELETE CASCADE,
	next_due   timestamptz,
	next_start timestamptz,
	paused_at  timestamptz,
	broken     text,
	boot       timestamptz
) WITH (fillfactor = 50);
CREATE INDEX job_state_next_start_idx ON sweep.job_state (next_start) WHERE next_start IS NOT NULL;
COMMENT ON TABLE sweep.job_state IS 'when each job is due next, and what keeps it from running';
COMMENT ON COLUMN sweep.job_state.job IS 'name of the job';
COMMENT ON COLUMN sweep.job_state.next_due IS 'next moment of the schedule; NULL: none, or the schedule does not apply';
COMMENT ON COLUMN sweep.job_state.next_start IS 'next_due plus the jitter drawn for it';
COMMENT ON COLUMN sweep.job_state.paused_at IS 'since when the job is paused; NULL: it is not';
COMMENT ON COLUMN sweep.job_state.broken IS 'why the job could not be started when it was last due';
COMMENT ON COLUMN sweep.job_state.boot IS 'server start for which an @reboot job has been started';

-- One row or none. It says for which cluster and database the schedules are meant: a restored copy
-- elsewhere comes up paused until somebody calls sweep.resume_all() there.
CREATE TABLE sweep.control (
	only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
	paused_at         timestamptz,
	system_identifier bigint NOT NULL,
	database          oid NOT NULL
);
COMMENT ON TABLE sweep.control IS 'whether the schedules of this database apply, and where they are at home';
COMMENT ON COLUMN sweep.control.only_row IS 'always true';
COMMENT ON COLUMN sweep.control.paused_at IS 'since when all jobs are paused; NULL: they are not';
COMMENT ON COLUMN sweep.control.system_identifier IS 'cluster the schedules are meant for';
COMMENT ON COLUMN sweep.control.database IS 'database the schedules are meant for';

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

CREATE FUNCTION sweep._check_batch_sql(batch_sql text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_step_check_batch_sql';
COMMENT ON FUNCTION sweep._check_batch_sql(text) IS 'raises unless the text is one SELECT, INSERT, UPDATE, DELETE or MERGE';

CREATE FUNCTION sweep._signal_cancel(run_id bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_shared_signal_cancel';
COMMENT ON FUNCTION sweep._signal_cancel(bigint) IS 'asks the process of a run to stop; false when there is none';

-- ------------------------------------------------------------------ rights
CREATE FUNCTION sweep._can_become(caller oid, role oid) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN current_setting('server_version_num')::int >= 160000
		THEN pg_has_role(caller, role, 'SET') ELSE pg_has_role(caller, role, 'MEMBER') END
$$;
COMMENT ON FUNCTION sweep._can_become(oid, oid) IS 'whether the caller may SET ROLE to the role';

CREATE FUNCTION sweep._find_job(caller oid, name text, operators boolean) RETURNS sweep.job
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found_job sweep.job;
BEGIN
	SELECT * INTO found_job FROM sweep.job j WHERE j.name = _find_job.name;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'job "%" does not exist', _find_job.name
			USING ERRCODE = 'undefined_object', HINT = 'The view sweep.jobs lists the jobs of this database.';
	END IF;
	IF NOT (pg_has_role(caller, found_job.run_as, 'MEMBER') OR pg_has_role(caller, 'sweep_admin', 'MEMBER')
			OR operators AND pg_has_role(caller, 'sweep_operator', 'MEMBER')) THEN
		RAISE EXCEPTION 'permission denied for job "%"', _find_job.name
			USING ERRCODE = 'insufficient_privilege',
				HINT = format('Members of %s%s and sweep_admin may do this.', found_job.run_as,
					CASE WHEN operators THEN ', sweep_operator' ELSE '' END);
	END IF;
	RETURN found_job;
END
$$;
COMMENT ON FUNCTION sweep._find_job(oid, text, boolean) IS 'the job, if the caller may act on it';

-- ------------------------------------------------------------------ checks of a definition
CREATE FUNCTION sweep._resolve_step(step text) RETURNS regprocedure
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts text[] := parse_ident(step);
BEGIN
	IF cardinality(parts) <> 2 THEN
		RETURN NULL;
	END IF;
	RETURN (SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = parts[1] AND p.proname = parts[2] AND p.prokind = 'f' AND NOT p.proretset
			AND p.proargtypes[0] = 'sweep.batch'::regtype AND p.pronargs = 1
			AND p.prorettype = 'sweep.progress'::regtype);
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._resolve_step(text) IS 'the function a step text names; NULL when there is none of the right form';

CREATE FUNCTION sweep._job_problem(job sweep.job) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner pg_roles;
	step_function regprocedure;
BEGIN
	SELECT * INTO owner FROM pg_roles r WHERE r.oid = job.run_as;
	IF NOT FOUND THEN
		RETURN format('role with OID %s does not exist', job.run_as::oid);
	END IF;
	IF NOT owner.rolcanlogin AND current_setting('server_version_num')::int < 170000 THEN
		RETURN format('role "%s" is not permitted to log in', owner.rolname);
	END IF;
	IF NOT has_database_privilege(owner.oid, current_database(), 'CONNECT') THEN
		RETURN format('role "%s" may not connect to the database', owner.rolname);
	END IF;
	IF job.step IS NOT NULL THEN
		step_function := sweep._resolve_step(job.step);
		IF step_function IS NULL THEN
			RETURN format('function %s(sweep.batch) returning sweep.progress does not exist', job.step);
		END IF;
		IF NOT has_function_privilege(owner.oid, step_function, 'EXECUTE') OR NOT has_schema_privilege(owner.oid,
				(SELECT p.pronamespace FROM pg_proc p WHERE p.oid = step_function), 'USAGE') THEN
			RETURN format('role "%s" may not execute function %s', owner.rolname, step_function);
		END IF;
	END IF;
	IF job.timezone IS NOT NULL AND job.schedule IS NOT NULL THEN
		PERFORM sweep._next_run(job.schedule, job.timezone, now(), job.name);
	END IF;
	RETURN NULL;
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN SQLERRM;
END
$$;
COMMENT ON FUNCTION sweep._job_problem(sweep.job) IS 'why the job cannot be started; NULL when nothing is known to stand in the way';

CREATE FUNCTION sweep._check_step(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	candidates text;
	problem text;
BEGIN
	IF (job.step IS NULL) = (job.batch_sql IS NULL) THEN
		RAISE EXCEPTION 'job "%" must have either a step or a batch_sql', job.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass exactly one of the two.';
	END IF;
	IF job.batch_sql IS NOT NULL THEN
		PERFORM sweep._check_batch_sql(job.batch_sql);
	ELSIF sweep._resolve_step(job.step) IS NULL THEN
		SELECT string_agg(format('%I.%I', n.nspname, p.proname), ', ' ORDER BY n.nspname, p.proname) INTO candidates
			FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
			WHERE p.proname = regexp_replace(job.step, '^.*\.', '') AND p.prorettype = 'sweep.progress'::regtype;
		RAISE EXCEPTION 'function %(sweep.batch) returning sweep.progress does not exist', job.step
			USING ERRCODE = 'undefined_function',
				HINT = coalesce(format('Write the name with its schema: %s.', candidates),
					'A step is named with its schema and is a function(sweep.batch) RETURNS sweep.progress.');
	END IF;
	problem := sweep._job_problem(job);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'job "%" could not run: %', job.name, problem
			USING ERRCODE = 'insufficient_privilege',
				HINT = format('Before version 17, PostgreSQL lets a background worker connect only as a role with LOGIN; '
					'the role needs CONNECT on the database, USAGE on the schema of the step and EXECUTE on the step: '
					'see ALTER ROLE %s LOGIN and GRANT.', job.run_as);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_step(sweep.job) IS 'raises unless the job names something that its role can run';

CREATE FUNCTION sweep._check_limits(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wrong text;
	wanted text;
BEGIN
	SELECT a.attname INTO wrong FROM pg_attribute a WHERE a.attrelid = 'sweep.job'::regclass AND a.attnotnull
		AND to_jsonb(job) -> a.attname = 'null'::jsonb ORDER BY a.attnum LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION '% must not be null', wrong USING ERRCODE = 'null_value_not_allowed',
			HINT = 'Leave it out to get its default, or to keep what it is.';
	END IF;
	SELECT c.message, c.hint INTO wrong, wanted FROM (VALUES
		(job.name = '' OR octet_length(job.name) > 63, 'job name "' || job.name || '"', 'A name has 1 to 63 bytes.'),
		(job.name ~ '[[:cntrl:]]', 'job name with a control character', 'Use printable characters.'),
		(job.batch_size < 1 OR job.batch_size > 1000000, 'batch_size ' || job.batch_size, 'It must be between 1 and 1000000.'),
		(job.max_batches < 1, 'max_batches ' || job.max_batches, 'It must be greater than zero, or NULL for no limit.'),
		(job.max_rows < 1, 'max_rows ' || job.max_rows, 'It must be greater than zero, or NULL for no limit.'),
		(job.timeout < interval '0', 'timeout ' || job.timeout, 'It must be zero or more, or NULL for no limit.'),
		(job.lease_key = '', 'lease_key ""', 'Leave it out to use the name of the job.'),
		(job.lease_ttl <= interval '0', 'lease_ttl ' || job.lease_ttl, 'It must be greater than zero, or NULL for no hard limit.'),
		(job.lock_retries < 0 OR job.lock_retries > 10000, 'lock_retries ' || job.lock_retries, 'It must be between 0 and 10000.'),
		(job.lock_retry_delay < interval '1 ms' OR job.lock_retry_delay > interval '1 hour',
			'lock_retry_delay ' || job.lock_retry_delay, 'It must be between 1 ms and 1 hour.'),
		(job.max_attempts < 1 OR job.max_attempts > 25, 'max_attempts ' || job.max_attempts, 'It must be between 1 and 25.'),
		(job.flush NOT IN ('run', 'batch'), 'flush "' || job.flush || '"', 'It must be "run" or "batch".'),
		(job.overlap NOT IN ('skip', 'queue_one', 'cancel_previous'), 'overlap "' || job.overlap || '"',
			'It must be "skip", "queue_one" or "cancel_previous".'),
		(job.catch_up NOT IN ('once', 'skip', 'all'), 'catch_up "' || job.catch_up || '"', 'It must be "once", "skip" or "all".'),
		(job.jitter < interval '0', 'jitter ' || job.jitter, 'It must be zero or more.'),
		(jsonb_typeof(job.args) <> 'object', 'args ' || job.args::text, 'The args must be a JSON object.'),
		(job.timezone IS NOT NULL AND job.schedule IS NULL, 'timezone "' || job.timezone || '" without a schedule',
			'A time zone belongs to a schedule.')
	) AS c (bad, message, hint) WHERE c.bad LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'invalid %', wrong USING ERRCODE = 'invalid_parameter_value', HINT = wanted;
	END IF;
	IF job.args ? 'as_of' THEN
		BEGIN
			PERFORM (job.args ->> 'as_of')::timestamptz;
		EXCEPTION WHEN data_exception THEN
			RAISE EXCEPTION 'invalid as_of "%" in the args', job.args ->> 'as_of'
				USING ERRCODE = 'invalid_parameter_value', HINT = 'Write a timestamp with its zone: "2026-01-01T00:00:00Z".';
		END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_limits(sweep.job) IS 'raises when a limit or word of the definition is out of its range';

CREATE FUNCTION sweep._check_schedule(job sweep.job) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	smallest interval := current_setting('pg_sweep.min_interval')::interval;
	shortest interval;
BEGIN
	IF job.schedule IS NULL THEN
		RETURN;
	END IF;
	PERFORM sweep._next_run(job.schedule, job.timezone, now(), job.name);
	SELECT min(n.gap) INTO shortest FROM (SELECT r.moment - lag(r.moment) OVER (ORDER BY r.moment) AS gap
		FROM sweep.next_runs(job.schedule, job.timezone, now(), 100, job.name) AS r (moment)) AS n;
	IF shortest < smallest THEN
		RAISE EXCEPTION 'schedule "%" is due every %, more often than pg_sweep.min_interval allows', job.schedule, shortest
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('The setting is %s.', smallest),
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
	IF NOT sweep._can_become(caller, job.run_as) THEN
		RAISE EXCEPTION 'permission denied to run job "%" as role %', job.name, job.run_as
			USING ERRCODE = 'insufficient_privilege', HINT = 'run_as must be a role that you could SET ROLE to.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_role(oid, sweep.job) IS 'raises unless the caller could SET ROLE to the role of the job';

-- ------------------------------------------------------------------ time
CREATE FUNCTION sweep._reschedule(job text, after timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job;
	due timestamptz;
BEGIN
	SELECT * INTO j FROM sweep.job WHERE name = _reschedule.job;
	IF j.schedule IS NOT NULL AND j.enabled THEN
		due := sweep._next_run(j.schedule, j.timezone, after, j.name);
	END IF;
	UPDATE sweep.job_state AS s SET next_due = CASE WHEN s.paused_at IS NULL THEN due END,
			next_start = CASE WHEN s.paused_at IS NULL THEN due + random() * j.jitter END
		WHERE s.job = _reschedule.job;
EXCEPTION WHEN invalid_parameter_value THEN
	-- A zone that this server does not know: looked at again in a minute, so that it heals by itself.
	UPDATE sweep.job_state AS s SET broken = SQLERRM, next_due = NULL, next_start = after + interval '1 min'
		WHERE s.job = _reschedule.job AND s.paused_at IS NULL;
END
$$;
COMMENT ON FUNCTION sweep._reschedule(text, timestamptz) IS 'sets when the job is due next after a moment';

CREATE FUNCTION sweep._at_home() RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT NOT EXISTS (SELECT FROM sweep.control c WHERE c.paused_at IS NOT NULL
		OR c.system_identifier <> (SELECT s.system_identifier FROM pg_control_system() s)
		OR c.database <> (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
$$;
COMMENT ON FUNCTION sweep._at_home() IS 'false when all jobs are paused, or the database is a copy of the one the schedules are meant for';

CREATE FUNCTION sweep._settle(paused timestamptz, move boolean) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	INSERT INTO sweep.control AS c (paused_at, system_identifier, database)
		SELECT paused, s.system_identifier, d.oid FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
		ON CONFLICT (only_row) DO UPDATE SET paused_at = excluded.paused_at,
			system_identifier = CASE WHEN move THEN excluded.system_identifier ELSE c.system_identifier END,
			database = CASE WHEN move THEN excluded.database ELSE c.database END
$$;
COMMENT ON FUNCTION sweep._settle(timestamptz, boolean) IS 'records that all jobs are paused, or that they are at home here';

-- ------------------------------------------------------------------ create, alter, drop
CREATE FUNCTION sweep._create_job(caller oid, name text, step text, batch_sql text, schedule text, timezone text, args jsonb,
	flush text, batch_size int, max_batches int, max_rows bigint, timeout interval, lease_key text, lease_ttl interval,
	lock_retries int, lock_retry_delay interval, max_attempts int, overlap text, catch_up text, jitter interval,
	keep_cursor boolean, enabled boolean, run_as regrole, description text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job sweep.job;
BEGIN
	job := ROW(name, step, batch_sql, schedule,
		CASE WHEN schedule IS NOT NULL THEN coalesce(timezone, current_setting('TimeZone')) ELSE timezone END, args,
		flush, batch_size, max_batches, max_rows, timeout, coalesce(lease_key, name), lease_ttl,
		lock_retries, lock_retry_delay, max_attempts, overlap, catch_up, jitter, keep_cursor, enabled,
		coalesce(run_as, caller::regrole), description);
	PERFORM sweep._check_limits(job), sweep._check_role(caller, job), sweep._check_step(job), sweep._check_schedule(job);
	BEGIN
		INSERT INTO sweep.job SELECT (job).*;
	EXCEPTION WHEN unique_violation THEN
		RAISE EXCEPTION 'job "%" already exists', name
			USING ERRCODE = 'duplicate_object', HINT = 'sweep.alter_job changes it, sweep.drop_job removes it.';
	END;
	INSERT INTO sweep.job_state (job, boot) VALUES (name, pg_postmaster_start_time());
	INSERT INTO sweep.control (system_identifier, database)
		SELECT s.system_identifier, d.oid FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
		ON CONFLICT DO NOTHING;
	PERFORM sweep._reschedule(name, clock_timestamp()), sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._create_job(oid, text, text, text, text, text, jsonb, text, int, int, bigint, interval, text, interval,
	int, interval, int, text, text, interval, boolean, boolean, regrole, text) IS 'implements sweep.create_job';

CREATE FUNCTION sweep.create_job(name text, step text DEFAULT NULL, batch_sql text DEFAULT NULL, schedule text DEFAULT NULL,
	timezone text DEFAULT NULL, args jsonb DEFAULT '{}', flush text DEFAULT 'run', batch_size int DEFAULT 1000,
	max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL, timeout interval DEFAULT NULL, lease_key text DEFAULT NULL,
	lease_ttl interval DEFAULT NULL, lock_retries int DEFAULT 0, lock_retry_delay interval DEFAULT '10 ms',
	max_attempts int DEFAULT 1, overlap text DEFAULT 'skip', catch_up text DEFAULT 'once', jitter interval DEFAULT '0',
	keep_cursor boolean DEFAULT false, enabled boolean DEFAULT true, run_as regrole DEFAULT NULL,
	description text DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_job(text, text, text, text, text, jsonb, text, int, int, bigint, interval, text, interval,
	int, interval, int, text, text, interval, boolean, boolean, regrole, text) IS 'creates a job';

CREATE FUNCTION sweep._alter_job(caller oid, name text, changes jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.job := sweep._find_job(caller, name, false);
	job sweep.job;
	known text[];
	word text;
BEGIN
	IF jsonb_typeof(changes) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'changes must be a JSON object' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'For example: {"batch_size": 100, "schedule": "@hourly"}.';
	END IF;
	SELECT array_agg(a.attname ORDER BY a.attnum) INTO known FROM pg_attribute a
		WHERE a.attrelid = 'sweep.job'::regclass AND a.attnum > 1 AND NOT a.attisdropped;
	SELECT k INTO word FROM jsonb_object_keys(changes) AS k WHERE k <> ALL (known) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'unknown key "%" in changes', word USING ERRCODE = 'invalid_parameter_value',
			HINT = format('The keys are %s.', array_to_string(known, ', '));
	END IF;
	SELECT * INTO old FROM sweep.job j WHERE j.name = _alter_job.name FOR UPDATE;
	job := jsonb_populate_record(old, changes);
	job.lease_key := coalesce(job.lease_key, job.name);
	IF job.schedule IS NOT NULL THEN
		job.timezone := coalesce(job.timezone, current_setting('TimeZone'));
	ELSIF NOT changes ? 'timezone' THEN
		job.timezone := NULL;
	END IF;
	-- What the job's role executes may be changed only by those who could be that role.
	IF (job.step, job.batch_sql, job.args, job.run_as) IS DISTINCT FROM (old.step, old.batch_sql, old.args, old.run_as) THEN
		PERFORM sweep._check_role(caller, old), sweep._check_role(caller, job);
	END IF;
	PERFORM sweep._check_limits(job);
	IF (job.step, job.batch_sql, job.run_as) IS DISTINCT FROM (old.step, old.batch_sql, old.run_as) THEN
		PERFORM sweep._check_step(job);
	END IF;
	UPDATE sweep.job AS j SET (step, batch_sql, schedule, timezone, args, flush, batch_size, max_batches, max_rows, timeout, lease_key,
			lease_ttl, lock_retries, lock_retry_delay, max_attempts, overlap, catch_up, jitter, keep_cursor, enabled, run_as, description)
		= ROW(job.step, job.batch_sql, job.schedule, job.timezone, job.args, job.flush, job.batch_size, job.max_batches, job.max_rows,
			job.timeout, job.lease_key, job.lease_ttl, job.lock_retries, job.lock_retry_delay, job.max_attempts, job.overlap,
			job.catch_up, job.jitter, job.keep_cursor, job.enabled, job.run_as, job.description)
		WHERE j.name = _alter_job.name;
	IF (job.schedule, job.timezone, job.jitter, job.enabled) IS DISTINCT FROM (old.schedule, old.timezone, old.jitter, old.enabled) THEN
		PERFORM sweep._check_schedule(job), sweep._reschedule(name, clock_timestamp()), sweep._wake();
	END IF;
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
	PERFORM sweep._find_job(caller, name, false);
	DELETE FROM sweep.job j WHERE j.name = _drop_job.name;
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = clock_timestamp()
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
	PERFORM sweep._find_job(caller, name, true);
	UPDATE sweep.job_state AS s SET paused_at = coalesce(s.paused_at, now()), next_due = NULL, next_start = NULL
		WHERE s.job = _pause.name;
	UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = clock_timestamp()
		WHERE r.job = _pause.name AND r.status = 'waiting' AND r.trigger IN ('schedule', 'catch_up', 'retry') AND r.pid IS NULL;
	PERFORM sweep._wake();
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
	PERFORM sweep._find_job(caller, name, true);
	UPDATE sweep.job_state AS s SET paused_at = NULL WHERE s.job = _resume.name AND s.paused_at IS NOT NULL;
	IF FOUND THEN
		PERFORM sweep._reschedule(name, clock_timestamp()), sweep._wake();
	END IF;
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
	IF NOT (pg_has_role(caller, 'sweep_operator', 'MEMBER') OR pg_has_role(caller, 'sweep_admin', 'MEMBER')) THEN
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
	PERFORM sweep._check_operator(caller), sweep._settle(now(), false), sweep._wake();
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
	PERFORM sweep._check_operator(caller), sweep._settle(NULL, true);
	PERFORM sweep._reschedule(j.name, clock_timestamp()) FROM sweep.job j;
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._resume_all(oid) IS 'implements sweep.resume_all';

CREATE FUNCTION sweep.resume_all() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.resume_all() IS 'ends sweep.pause_all, and makes a restored copy run its schedules; jobs paused by name stay paused';
