--
-- GitLab: the jobs and queues for the tables of one schema.
--
-- Both functions can be called repeatedly, and have only the rights of their caller.
-- A second install sets where the table is and, if asked, whether the job is
-- paused; all other settings of a job stay. A job whose table is gone is left
-- as it is, and uninstall keeps a queue in which messages wait; both report it.
--
CREATE FUNCTION sweep_gitlab.jobs() RETURNS TABLE (job text, tables text[], queues text[])
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	VALUES
		('environments_auto_stop', ARRAY['environments'], ARRAY['environments_auto_stop']),
		('ci_stuck_jobs', ARRAY['p_ci_builds', 'ci_builds'], ARRAY['ci_pipeline_process', 'ci_build_finished']),
		('ci_stuck_builds_drop_running', ARRAY['p_ci_builds', 'ci_builds'], ARRAY['ci_pipeline_process', 'ci_build_finished']),
		('ci_stuck_builds_drop_scheduled', ARRAY['p_ci_builds', 'ci_builds'], ARRAY['ci_pipeline_process', 'ci_build_finished']),
		('ci_stuck_builds_drop_canceling', ARRAY['p_ci_builds', 'ci_builds'], ARRAY['ci_pipeline_process', 'ci_build_finished']),
		('ci_runners_stale_machines_cleanup', ARRAY['ci_runner_machines'], '{}'),
		('ci_schedule_bulk_delete_job_artifacts', ARRAY['p_ci_job_artifacts', 'ci_job_artifacts'], '{}'),
		('ci_bulk_delete_expired_job_artifacts', ARRAY['p_ci_job_artifacts', 'ci_job_artifacts'], ARRAY['ci_artifact_statistics']),
		('batched_git_ref_updates_cleanup_scheduler',
			ARRAY['p_batched_git_ref_updates_deletions', 'batched_git_ref_updates_deletions'],
			ARRAY['batched_git_ref_updates_project_cleanup'])
$$;
COMMENT ON FUNCTION sweep_gitlab.jobs() IS 'the GitLab jobs, the tables of each (the first that exists is used), and the queues to which it sends';

-- Each run finds the same environments and projects again, so there must be no second message while the first one waits for a
-- retry. A pipeline that changes while its message is being handled needs a further message.
CREATE FUNCTION sweep_gitlab.key_policy(queue text) RETURNS text
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN queue IN ('environments_auto_stop', 'batched_git_ref_updates_project_cleanup')
		THEN 'while_queued_or_running' ELSE 'while_queued' END
$$;
COMMENT ON FUNCTION sweep_gitlab.key_policy(text) IS 'key_policy of a queue of the GitLab jobs';


CREATE FUNCTION sweep_gitlab.install(target_schema text DEFAULT 'public', paused boolean DEFAULT NULL)
	RETURNS TABLE (job text, table_found text, note text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	definition pg_catalog.record;
	table_name pg_catalog.text;
	queue_name pg_catalog.text;
	args pg_catalog.jsonb;
	old_args pg_catalog.jsonb;
BEGIN
	IF pg_catalog.to_regnamespace(pg_catalog.quote_ident(target_schema)) IS NULL THEN
		RAISE EXCEPTION 'schema "%" does not exist', target_schema
			USING ERRCODE = 'invalid_schema_name', HINT = 'target_schema is the schema with the tables of GitLab, mostly "public".';
	END IF;
	FOR definition IN SELECT * FROM sweep_gitlab.jobs() LOOP
		job := definition.job;
		old_args := (SELECT j.args FROM sweep.job AS j WHERE j.name = definition.job);
		SELECT t INTO table_name
			FROM pg_catalog.unnest(definition.tables) WITH ORDINALITY AS candidate (t, nth)
			JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', target_schema, t)) AND c.relkind IN ('r', 'p')
			ORDER BY nth LIMIT 1;
		IF NOT FOUND THEN
			table_found := NULL;
			note := pg_catalog.format('no table %s in schema %I: %s', pg_catalog.array_to_string(definition.tables, ' or '), target_schema,
				CASE WHEN old_args IS NULL THEN 'left out' ELSE 'the job is left as it is' END);
			RETURN NEXT;
			CONTINUE;
		END IF;
		table_found := pg_catalog.format('%I.%I', target_schema, table_name);
		IF sweep_gitlab.is_locked_for_writes(target_schema, table_name) THEN
			note := 'GitLab has locked the table for writes, as it uses that of another database: '
				|| CASE WHEN old_args IS NULL THEN 'left out' ELSE 'the job is left as it is' END;
			RETURN NEXT;
			CONTINUE;
		END IF;
		args := pg_catalog.jsonb_build_object('schema', target_schema);
		IF pg_catalog.cardinality(definition.tables) > 1 THEN
			args := args || pg_catalog.jsonb_build_object('table', table_name);
		END IF;
		-- If another role has created a job or queue of that name, it must not get the messages or the rights of the caller.
		SELECT pg_catalog.format('job "%s" belongs to role %s', j.name, j.run_as) INTO note FROM sweep.job AS j
			WHERE j.name = definition.job AND j.run_as <> current_user
		UNION ALL SELECT pg_catalog.format('queue "%s" belongs to role %s', q.queue, q.owner) FROM sweep.queues AS q
			WHERE q.queue = ANY (definition.queues) AND q.owner <> current_user LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION '%', note USING ERRCODE = 'duplicate_object', HINT = 'Install as that role, or drop it first.';
		END IF;
		FOREACH queue_name IN ARRAY definition.queues LOOP
			IF NOT EXISTS (SELECT FROM sweep.queues AS q WHERE q.queue = queue_name) THEN
				PERFORM sweep.create_queue(queue_name, key_policy => sweep_gitlab.key_policy(queue_name));
			END IF;
		END LOOP;
		IF old_args IS NULL THEN
			EXECUTE pg_catalog.format('SELECT sweep_gitlab.%I($1)', 'create_' || job) USING args;
			note := 'created';
		ELSE
			PERFORM sweep.alter_job(job, pg_catalog.jsonb_build_object('args', old_args || args)
				|| CASE
					WHEN job LIKE E'ci\\_stuck\\_%' THEN sweep_gitlab.stuck_builds_functions(table_name)
					WHEN job = 'ci_bulk_delete_expired_job_artifacts' THEN pg_catalog.jsonb_build_object('step', sweep_gitlab.artifacts_step(table_name))
					ELSE '{}' END);
			note := 'installed before: its schema ' || CASE WHEN paused IS NULL THEN 'is' ELSE 'and whether it is paused are' END || ' set, the rest is as it was';
		END IF;
		IF paused THEN
			PERFORM sweep.pause(job);
		ELSIF NOT paused THEN
			PERFORM sweep.resume(job);
		END IF;
		IF job = 'ci_schedule_bulk_delete_job_artifacts' AND NOT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts') THEN
			note := note || '; does nothing until sweep_gitlab.enable_feature(''bulk_delete_job_artifacts'')';
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.install(text, boolean) IS 'creates the queues and jobs for the GitLab tables of a schema, or makes existing jobs use that schema; can be repeated';

CREATE FUNCTION sweep_gitlab.uninstall() RETURNS TABLE (name text, note text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	definition pg_catalog.record;
	waiting bigint;
BEGIN
	-- A queue to which several jobs send is dropped with the last of them.
	FOR definition IN SELECT d.job, CASE WHEN d.nth = pg_catalog.max(d.nth) OVER (PARTITION BY q.queue) THEN q.queue END AS queue
			FROM sweep_gitlab.jobs() WITH ORDINALITY AS d (job, tables, queues, nth)
				LEFT JOIN LATERAL pg_catalog.unnest(d.queues) WITH ORDINALITY AS q (queue, nth) ON true
			ORDER BY d.nth, q.nth LOOP
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
				note := pg_catalog.format(CASE waiting WHEN 1 THEN 'queue kept: %s message waits in it; sweep.drop_queue(%L) removes both'
					ELSE 'queue kept: %s messages wait in it; sweep.drop_queue(%L) removes it with them' END, waiting, definition.queue);
			END IF;
			RETURN NEXT;
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.uninstall() IS 'drops the GitLab jobs and those of their queues that are empty; can be repeated';
