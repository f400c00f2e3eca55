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
