--
-- GitLab: the checks of the args of a job.
--
-- A wrong arg must raise an error before anything is written. Otherwise a misspelt final_status would be written into every
-- build, a reason that the column cannot hold would doom every build, and a bound that is null would match no build. The args are
-- checked twice, with the same errors: sweep.alter_job checks those in the job, and each run, before its first batch, checks them
-- with those of the run merged, against the table as it is then.
--
-- The insertion of a job is not checked, because restoring a dump must not fail because of an arg; its runs are.
--
CREATE FUNCTION sweep_gitlab.arg_rules(step text, args jsonb) RETURNS TABLE (arg text, needed boolean, kind text, wanted text[])
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	WITH reason AS (
		-- The type of the column: a number, or in an older GitLab a name. A missing table is not reported here.
		SELECT pg_catalog.max(t.typname::pg_catalog.text) FILTER (WHERE t.typname IN ('text', 'varchar')) IS NOT NULL AS named,
			CASE pg_catalog.max(t.typname::pg_catalog.text) WHEN 'int2' THEN '32767' ELSE '2147483647' END AS highest
		FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
		WHERE a.attrelid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', coalesce(args ->> 'schema', ''), coalesce(args ->> 'table', '')))
			AND a.attname = 'failure_reason'
	)
	SELECT r.arg, r.needed, r.kind, r.wanted
	FROM reason CROSS JOIN LATERAL (VALUES
		('', 'schema', true, 'name', NULL),
		('drop_stuck_builds', 'table', true, 'word', '{p_ci_builds}'),
		('drop_stuck_ci_builds', 'table', true, 'word', '{ci_builds}'),
		('drop_stuck', 'status', true, 'word',
			'{created,waiting_for_resource,preparing,waiting_for_callback,pending,running,canceling,manual,scheduled}'),
		('drop_stuck', 'final_status', true, 'word', '{failed,canceled,skipped,success}'),
		('drop_stuck', 'created_older_than', false, 'interval', NULL),
		('drop_stuck', 'updated_older_than', false, 'interval', NULL),
		('drop_stuck', 'scheduled_older_than', false, 'interval', NULL),
		('drop_stuck', CASE WHEN reason.named THEN 'failure_reason_name' ELSE 'failure_reason' END, true,
			CASE WHEN reason.named THEN 'name' ELSE 'number' END, ARRAY['0', reason.highest]),
		('drop_stuck', CASE WHEN reason.named THEN 'doom_reason_name' ELSE 'doom_reason' END, true,
			CASE WHEN reason.named THEN 'name' ELSE 'number' END, ARRAY['0', reason.highest]),
		('ci_runners_stale_machines_cleanup', 'stale_after', true, 'interval', NULL),
		('environments_auto_stop', 'stop_action', false, 'name', NULL),
		('ci_bulk_delete_expired_job_artifacts', 'table', true, 'word', '{p_ci_job_artifacts}'),
		('ci_bulk_delete_expired_plain_job_artifacts', 'table', true, 'word', '{ci_job_artifacts}'),
		('ci_bulk_delete_expired', 'refresh_states', true, 'numbers', '{0,32767}'),
		('ci_bulk_delete_expired', 'buckets', false, 'number', '{1,1024}'),
		('ci_bulk_delete_expired', 'buckets_high', false, 'number', '{1,1024}'),
		('batched_git_ref_updates_cleanup_scheduler', 'table', true, 'word',
			'{p_batched_git_ref_updates_deletions,batched_git_ref_updates_deletions}')
	) AS r (of_step, arg, needed, kind, wanted)
	WHERE step LIKE E'sweep\\_gitlab.' || pg_catalog.replace(r.of_step, '_', E'\\_') || '%'
$$;
COMMENT ON FUNCTION sweep_gitlab.arg_rules(text, jsonb) IS 'what the args of a GitLab job with this step must be';

CREATE FUNCTION sweep_gitlab.arg_fits(value jsonb, kind text, wanted text[]) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	CASE kind
		WHEN 'word' THEN
			RETURN pg_catalog.jsonb_typeof(value) = 'string' AND value #>> '{}' = ANY (wanted);
		WHEN 'name' THEN
			RETURN pg_catalog.jsonb_typeof(value) = 'string' AND value #>> '{}' <> '';
		WHEN 'interval' THEN
			RETURN pg_catalog.jsonb_typeof(value) = 'string' AND (value #>> '{}')::interval BETWEEN interval '0' AND interval '100 years' AND sweep._least_seconds((value #>> '{}')::interval) >= 0;
		WHEN 'number' THEN
			RETURN CASE WHEN pg_catalog.jsonb_typeof(value) = 'number' THEN
				value::numeric BETWEEN wanted[1]::numeric AND wanted[2]::numeric AND value::numeric = pg_catalog.trunc(value::numeric) ELSE false END;
		WHEN 'numbers' THEN
			RETURN CASE WHEN pg_catalog.jsonb_typeof(value) = 'array' THEN
				(SELECT coalesce(pg_catalog.bool_and(sweep_gitlab.arg_fits(e, 'number', wanted)), true) FROM pg_catalog.jsonb_array_elements(value) AS e) ELSE false END;
	END CASE;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR interval_field_overflow THEN
	RETURN false;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.arg_fits(jsonb, text, text[]) IS 'part of sweep_gitlab.check_args: whether a value is of that kind';

-- A GitLab that is split into databases has all tables in each of them, perhaps with old rows. Its task gitlab:db:lock_writes gives
-- those that are in use in another database a trigger with this function, whatever the trigger's name is.
CREATE FUNCTION sweep_gitlab.is_locked_for_writes(schema text, table_name text) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
		WHERE t.tgrelid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', schema, table_name)) AND t.tgenabled <> 'D'
			AND p.proname = 'gitlab_schema_prevent_write')
$$;
COMMENT ON FUNCTION sweep_gitlab.is_locked_for_writes(text, text) IS 'whether GitLab uses this table in another of its databases';

CREATE FUNCTION sweep_gitlab.check_args(step text, args jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rule pg_catalog.record;
	wish pg_catalog.text;
	used_table pg_catalog.text;
BEGIN
	FOR rule IN SELECT * FROM sweep_gitlab.arg_rules(step, args) LOOP
		CONTINUE WHEN NOT args ? rule.arg AND NOT rule.needed;
		CONTINUE WHEN args ? rule.arg AND sweep_gitlab.arg_fits(args -> rule.arg, rule.kind, rule.wanted);
		wish := CASE rule.kind
			WHEN 'word' THEN pg_catalog.format('It must be %s"%s".', CASE WHEN pg_catalog.cardinality(rule.wanted) > 1 THEN 'one of ' ELSE '' END,
				pg_catalog.array_to_string(rule.wanted, '", "'))
			WHEN 'name' THEN 'It must be a text that is not empty.'
			WHEN 'interval' THEN 'It must be an interval between zero and 100 years, such as "1 hour".'
			WHEN 'number' THEN pg_catalog.format('It must be a whole number from %s to %s.', rule.wanted[1], rule.wanted[2])
			WHEN 'numbers' THEN pg_catalog.format('It must be an array of whole numbers from %s to %s.', rule.wanted[1], rule.wanted[2]) END;
		IF args ? rule.arg THEN
			RAISE EXCEPTION 'invalid arg "%": %', rule.arg, args -> rule.arg USING ERRCODE = 'invalid_parameter_value', HINT = wish;
		END IF;
		RAISE EXCEPTION 'arg "%" is missing', rule.arg
			USING ERRCODE = 'invalid_parameter_value', DETAIL = pg_catalog.format('The args are %s.', coalesce(args::pg_catalog.text, 'NULL')),
				HINT = wish || ' Changed args replace the former ones as a whole.';
	END LOOP;
	IF step LIKE E'sweep\\_gitlab.drop\\_stuck\\_%' AND NOT args ?| '{created_older_than,updated_older_than,scheduled_older_than}' THEN
		RAISE EXCEPTION 'args of the job do not say how long a build must have been stuck'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = pg_catalog.format('The args are %s.', args),
				HINT = 'They need one or more of "created_older_than", "updated_older_than", "scheduled_older_than".';
	END IF;
	-- A job of one possible table has no arg for its name, and the name of its step.
	used_table := coalesce(args ->> 'table', (SELECT d.tables[1] FROM sweep_gitlab.jobs() AS d WHERE 'sweep_gitlab.' || d.job = step));
	IF sweep_gitlab.is_locked_for_writes(args ->> 'schema', used_table) THEN
		RAISE EXCEPTION 'table "%.%" is locked for writes by GitLab', args ->> 'schema', used_table
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'Another database of this GitLab has the rows that are in use.',
				HINT = 'Install the job in that database, and drop it in this one.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.check_args(text, jsonb) IS 'raises unless the args are valid for a GitLab job with this step';

CREATE FUNCTION sweep_gitlab._check_job() RETURNS trigger
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep_gitlab.check_args(new.step, new.args);
	RETURN new;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._check_job() IS 'trigger of the jobs: raises unless changed args of a GitLab job are valid';
CREATE TRIGGER sweep_gitlab_check_job BEFORE UPDATE ON sweep.job_definition FOR EACH ROW
	WHEN (new.step LIKE E'sweep\\_gitlab.%' AND (new.step, new.args) IS DISTINCT FROM (old.step, old.args))
	EXECUTE FUNCTION sweep_gitlab._check_job();
-- A trigger is no member of an extension: without this, DROP EXTENSION pg_sweep_gitlab would need CASCADE.
ALTER TRIGGER sweep_gitlab_check_job ON sweep.job_definition DEPENDS ON EXTENSION pg_sweep_gitlab;
