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
	pick             text,
	rescue           text,
	transaction      text NOT NULL,
	flush            text NOT NULL,
	batch_size       int NOT NULL,
	max_batches      int,
	max_rows         bigint,
	timeout          interval,
	lease_key        text NOT NULL,
	lease_ttl        interval,
	lock_retries     int NOT NULL,
	lock_retry_delay interval NOT NULL,
	row_retries      int NOT NULL,
	max_attempts     int NOT NULL,
	overlap          text NOT NULL,
	catch_up         text NOT NULL,
	jitter           interval NOT NULL,
	keep_cursor      boolean NOT NULL,
	enabled          boolean NOT NULL,
	run_as           regrole NOT NULL,
	description      text,
	children         jsonb,
	buckets          int,
	bucket_store     text NOT NULL,
	bucket_recovery  interval NOT NULL,
	bucket_key       text NOT NULL,
	buckets_function text,
	CONSTRAINT job_bucket_store_check CHECK (bucket_store IN ('table', 'redis')),
	CONSTRAINT job_transaction_check CHECK (transaction IN ('batch', 'row')),
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
COMMENT ON COLUMN sweep.job.pick IS 'function(sweep.batch) RETURNS SETOF jsonb that picks the items of a batch; NULL: the step finds its rows itself';
COMMENT ON COLUMN sweep.job.rescue IS 'function(sweep.batch, error jsonb) RETURNS sweep.progress for the single item that the step fails with';
COMMENT ON COLUMN sweep.job.transaction IS 'batch: the items of a batch are committed together; row: each by itself';
COMMENT ON COLUMN sweep.job.row_retries IS 'further tries, at once, when items fail for a passing reason';
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
COMMENT ON COLUMN sweep.job.children IS 'jobs that each run of this one queues a run of, with the delays: {"name": "15 min"}';
COMMENT ON COLUMN sweep.job.buckets IS 'number of shares the job is divided into; NULL: it is not';
COMMENT ON COLUMN sweep.job.bucket_store IS 'where its buckets are kept: table or redis';
COMMENT ON COLUMN sweep.job.bucket_recovery IS 'a bucket that was taken so long ago is free again, whoever has it';
COMMENT ON COLUMN sweep.job.bucket_key IS 'name of its buckets in the store redis';
COMMENT ON COLUMN sweep.job.buckets_function IS 'function(sweep.batch) RETURNS int that says how many of the buckets there are just now; NULL: all of them';
COMMENT ON COLUMN sweep.job.description IS 'a word to the reader';

-- No foreign key: its checks would lock the job, and whoever changes a job must never wait for the
-- scheduler while the scheduler waits for him.
CREATE TABLE sweep.job_state (
	job          text PRIMARY KEY,
	next_due     timestamptz,
	next_start   timestamptz,
	paused_at    timestamptz,
	broken       text,
	boot         timestamptz,
	drained_rows bigint,
	kept_cursor  jsonb,
	last_start   timestamptz
) WITH (fillfactor = 50);
CREATE INDEX job_state_next_start_idx ON sweep.job_state (next_start) WHERE next_start IS NOT NULL;
COMMENT ON TABLE sweep.job_state IS 'when each job is due next, and what keeps it from running';
COMMENT ON COLUMN sweep.job_state.job IS 'name of the job';
COMMENT ON COLUMN sweep.job_state.next_due IS 'next moment of the schedule; NULL: none, or the schedule does not apply';
COMMENT ON COLUMN sweep.job_state.next_start IS 'next_due plus the jitter drawn for it';
COMMENT ON COLUMN sweep.job_state.paused_at IS 'since when the job is paused; NULL: it is not';
COMMENT ON COLUMN sweep.job_state.broken IS 'why the job could not be started when it was last due';
COMMENT ON COLUMN sweep.job_state.drained_rows IS 'rows of the last run that drained: what to expect of the next one';
COMMENT ON COLUMN sweep.job_state.kept_cursor IS 'where the last run stopped; NULL when it drained';
COMMENT ON COLUMN sweep.job_state.last_start IS 'start of the run that drained_rows and kept_cursor are from';
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

CREATE FUNCTION sweep._check_batch_sql(role oid, batch_sql text) RETURNS void
	LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_step_check_batch_sql';
COMMENT ON FUNCTION sweep._check_batch_sql(oid, text) IS 'raises unless the text is one SELECT, INSERT, UPDATE, DELETE or MERGE that the role can have analysed';

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

CREATE FUNCTION sweep._lock_job(name text) RETURNS sweep.job
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	locked sweep.job;
BEGIN
	SELECT * INTO locked FROM sweep.job j WHERE j.name = _lock_job.name FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'job "%" does not exist', name USING ERRCODE = 'undefined_object', HINT = 'It has just been dropped.';
	END IF;
	RETURN locked;
END
$$;
COMMENT ON FUNCTION sweep._lock_job(text) IS 'the job as it is once whoever else changes it is done';

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

CREATE FUNCTION sweep._system_identifier() RETURNS bigint
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_worker_system_identifier';
COMMENT ON FUNCTION sweep._system_identifier() IS 'identifies the cluster; pg_control_system() would read a file each time';

CREATE FUNCTION sweep._is_copy() RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM sweep.control c WHERE c.system_identifier <> sweep._system_identifier()
		OR c.database <> (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
END
$$;
COMMENT ON FUNCTION sweep._is_copy() IS 'whether the database is a copy of the one its schedules are meant for';

CREATE FUNCTION sweep._at_home() RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN NOT sweep._is_copy() AND NOT EXISTS (SELECT FROM sweep.control c WHERE c.paused_at IS NOT NULL);
END
$$;
COMMENT ON FUNCTION sweep._at_home() IS 'whether schedules apply: not all jobs are paused, and the database is no copy';

CREATE FUNCTION sweep._settle(paused timestamptz, move boolean) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	INSERT INTO sweep.control AS c (paused_at, system_identifier, database)
		SELECT paused, sweep._system_identifier(), d.oid FROM pg_database d WHERE d.datname = current_database()
		ON CONFLICT (only_row) DO UPDATE SET paused_at = excluded.paused_at,
			system_identifier = CASE WHEN move THEN excluded.system_identifier ELSE c.system_identifier END,
			database = CASE WHEN move THEN excluded.database ELSE c.database END
$$;
COMMENT ON FUNCTION sweep._settle(timestamptz, boolean) IS 'records that all jobs are paused, or that they are at home here';
