--
-- GitLab: the jobs and queues for the tables of one schema.
--
-- Both functions can be repeated and act with the rights of their caller.
-- What an operator has altered in a job stays: a second install sets where
-- the table is and whether the job is enabled, nothing else. A job whose table
-- is gone is left as it is, and uninstall keeps a queue in which messages
-- wait; both say so.
--
CREATE FUNCTION sweep.gitlab_jobs() RETURNS TABLE (job text, tables text[], queue text)
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	VALUES
		('environments_auto_stop', ARRAY['environments'], 'environments_auto_stop'),
		('ci_stuck_jobs', ARRAY['p_ci_builds', 'ci_builds'], 'ci_pipeline_process'),
		('ci_stuck_builds_drop_running', ARRAY['p_ci_builds', 'ci_builds'], 'ci_pipeline_process'),
		('ci_stuck_builds_drop_scheduled', ARRAY['p_ci_builds', 'ci_builds'], 'ci_pipeline_process'),
		('ci_stuck_builds_drop_canceling', ARRAY['p_ci_builds', 'ci_builds'], 'ci_pipeline_process'),
		('ci_runners_stale_machines_cleanup', ARRAY['ci_runner_machines'], NULL),
		('ci_schedule_bulk_delete_job_artifacts', ARRAY['p_ci_job_artifacts', 'ci_job_artifacts'], NULL),
		('ci_bulk_delete_expired_job_artifacts', ARRAY['p_ci_job_artifacts', 'ci_job_artifacts'], 'ci_artifact_statistics'),
		('batched_git_ref_updates_cleanup_scheduler',
			ARRAY['p_batched_git_ref_updates_deletions', 'batched_git_ref_updates_deletions'],
			'batched_git_ref_updates_project_cleanup')
$$;
COMMENT ON FUNCTION sweep.gitlab_jobs() IS 'the GitLab jobs, the tables each can work on (the first that exists is taken) and the queue it fills';

CREATE FUNCTION sweep.install_gitlab(target_schema text DEFAULT 'public', enabled boolean DEFAULT true)
	RETURNS TABLE (job text, table_found text, note text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	definition record;
	table_name text;
	args jsonb;
	old_args jsonb;
BEGIN
	IF to_regnamespace(quote_ident(target_schema)) IS NULL THEN
		RAISE EXCEPTION 'schema "%" does not exist', target_schema
			USING ERRCODE = 'invalid_schema_name', HINT = 'target_schema is the schema with the tables of GitLab, mostly "public".';
	END IF;
	FOR definition IN SELECT * FROM sweep.gitlab_jobs() LOOP
		job := definition.job;
		old_args := (SELECT j.args FROM sweep.job AS j WHERE j.name = definition.job);
		SELECT t INTO table_name
			FROM unnest(definition.tables) WITH ORDINALITY AS candidate (t, nth)
			JOIN pg_class c ON c.oid = to_regclass(format('%I.%I', target_schema, t)) AND c.relkind IN ('r', 'p')
			ORDER BY nth LIMIT 1;
		IF NOT FOUND THEN
			table_found := NULL;
			note := format('no table %s in schema %I: %s', array_to_string(definition.tables, ' or '), target_schema,
				CASE WHEN old_args IS NULL THEN 'left out' ELSE 'the job is left as it is' END);
			RETURN NEXT;
			CONTINUE;
		END IF;
		table_found := format('%I.%I', target_schema, table_name);
		args := jsonb_build_object('schema', target_schema);
		IF cardinality(definition.tables) > 1 THEN
			args := args || jsonb_build_object('table', table_name);
		END IF;
		-- Whoever creates one of these names first must not get our messages, or our rights.
		SELECT format('job "%s" belongs to role %s', j.name, j.run_as) INTO note FROM sweep.job AS j
			WHERE j.name = definition.job AND j.run_as <> current_user::regrole
		UNION ALL SELECT format('queue "%s" belongs to role %s', q.queue, q.owner) FROM sweep.queues AS q
			WHERE q.queue = definition.queue AND q.owner <> current_user::regrole LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION '%', note USING ERRCODE = 'duplicate_object', HINT = 'Install as that role, or drop it first.';
		END IF;
		IF definition.queue IS NOT NULL AND NOT EXISTS (SELECT FROM sweep.queues AS q WHERE q.queue = definition.queue) THEN
			PERFORM sweep.create_queue(definition.queue);
		END IF;
		IF old_args IS NULL THEN
			EXECUTE format('SELECT sweep.%I($1, $2)', 'gitlab_create_' || job) USING args, enabled;
			note := 'created';
		ELSE
			PERFORM sweep.alter_job(job, jsonb_build_object('args', old_args || args, 'enabled', enabled)
				|| CASE
					WHEN job LIKE 'ci\_stuck\_%' THEN sweep.gitlab_stuck_builds_functions(table_name)
					WHEN job = 'ci_bulk_delete_expired_job_artifacts' THEN jsonb_build_object('step', sweep.gitlab_artifacts_step(table_name))
					ELSE '{}' END);
			note := 'installed before: its schema and enabled are set, the rest is as it was';
		END IF;
		IF job = 'ci_schedule_bulk_delete_job_artifacts' AND NOT sweep.feature_enabled('bulk_delete_job_artifacts') THEN
			note := note || '; does nothing until sweep.enable_feature(''bulk_delete_job_artifacts'')';
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep.install_gitlab(text, boolean) IS 'creates the queues and jobs for the GitLab tables of a schema, or points those that exist there; can be repeated';

CREATE FUNCTION sweep.uninstall_gitlab() RETURNS TABLE (name text, note text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	definition record;
	waiting bigint;
BEGIN
	-- A queue that several jobs fill goes with the last of them.
	FOR definition IN SELECT d.job, CASE WHEN d.nth = max(d.nth) OVER (PARTITION BY d.queue) THEN d.queue END AS queue
			FROM sweep.gitlab_jobs() WITH ORDINALITY AS d (job, tables, queue, nth) ORDER BY d.nth LOOP
		IF EXISTS (SELECT FROM sweep.job AS j WHERE j.name = definition.job) THEN
			PERFORM sweep.drop_job(definition.job);
			name := definition.job;
			note := 'job dropped';
			RETURN NEXT;
		END IF;
		SELECT q.depth INTO waiting FROM sweep.queues AS q WHERE q.queue = definition.queue;
		IF FOUND THEN
			name := definition.queue;
			IF waiting = 0 THEN
				PERFORM sweep.drop_queue(definition.queue);
				note := 'queue dropped';
			ELSE
				note := format('queue kept: %s messages wait in it; sweep.drop_queue(%L) removes it with them', waiting, definition.queue);
			END IF;
			RETURN NEXT;
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep.uninstall_gitlab() IS 'drops the GitLab jobs and those of their queues that are empty; can be repeated';
