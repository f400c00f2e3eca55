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
