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
