\echo Use "CREATE EXTENSION pg_sweep_gitlab" to load this file. \quit
SET LOCAL quote_all_identifiers = off;
--
-- Compares the library that is loaded with the objects that are to be created, before there is a function that calls it: a server that
-- was not restarted after the files were installed has an older one, which may lack this very function. In the install script of
-- pg_sweep the schema comes first; in all others this does. The Makefile puts in what is between two @.
--
DO $$
BEGIN
	IF 'pg_sweep_gitlab' <> 'pg_sweep' AND (SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'pg_sweep') <> '0.3.0' THEN
		RAISE EXCEPTION 'extension pg_sweep_gitlab 0.3.0 needs pg_sweep 0.3.0' USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Execute ALTER EXTENSION pg_sweep UPDATE first.';
	ELSIF pg_catalog.to_regproc('sweep._require_library') IS NULL THEN
		CREATE FUNCTION sweep._require_library(version text) RETURNS void
			LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_extension_require_library';
		COMMENT ON FUNCTION sweep._require_library(text) IS 'raises unless the library that is loaded is of this version: the first statement of each update script';
	END IF;
	PERFORM sweep._require_library('0.3.0');
EXCEPTION WHEN undefined_function THEN
	RAISE EXCEPTION 'extension pg_sweep_gitlab 0.3.0 needs its library, and an older one is loaded' USING ERRCODE = 'object_not_in_prerequisite_state',
		HINT = 'Restart the server after the files of the extension were installed.';
END
$$;
--
-- GitLab: the schema of the extension, see README.md.
--
CREATE SCHEMA sweep_gitlab;
COMMENT ON SCHEMA sweep_gitlab IS 'the jobs of GitLab: install() creates them for the tables of a schema';

-- The library checks whether this type exists, see build.c. An update script renames it when the interface changes.
CREATE TYPE sweep_gitlab._interface_1 AS ENUM ();
COMMENT ON TYPE sweep_gitlab._interface_1 IS 'number of the interface between the library and the objects of the extension';
--
-- Feature flags, which an operator switches on and off while jobs run.
--
-- A flag is a row with a name. A step, or the buckets_function of a job, calls sweep_gitlab.feature_enabled(); this file does not
-- know what a flag is for.
--
CREATE TABLE sweep_gitlab.feature_flag (
	name    text PRIMARY KEY,
	enabled boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE sweep_gitlab.feature_flag IS 'the feature flags; sweep_gitlab.enable_feature and sweep_gitlab.disable_feature switch them';
COMMENT ON COLUMN sweep_gitlab.feature_flag.name IS 'name of the flag';
COMMENT ON COLUMN sweep_gitlab.feature_flag.enabled IS 'whether it is on';
SELECT pg_catalog.pg_extension_config_dump('sweep_gitlab.feature_flag', '');

-- When a dump is restored, the rows of the install script exist already: the values of the dump replace them.
CREATE FUNCTION sweep_gitlab._replace_feature() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep_gitlab.feature_flag AS f SET enabled = new.enabled WHERE f.name = new.name;
	RETURN CASE WHEN NOT FOUND THEN new END;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._replace_feature() IS 'trigger of sweep_gitlab.feature_flag: a flag that is inserted again is set';
CREATE TRIGGER replace_feature BEFORE INSERT ON sweep_gitlab.feature_flag FOR EACH ROW EXECUTE FUNCTION sweep_gitlab._replace_feature();

-- A misspelt name raises an error, because it would have no effect.
CREATE FUNCTION sweep_gitlab._no_such_feature(name text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'feature "%" does not exist', name
		USING ERRCODE = 'undefined_object',
			HINT = pg_catalog.format('There are: %s.', (SELECT pg_catalog.string_agg(f.name, ', ' ORDER BY f.name) FROM sweep_gitlab.feature_flag AS f));
END
$$;
COMMENT ON FUNCTION sweep_gitlab._no_such_feature(text) IS 'raises the error for a name that no feature flag has';

CREATE FUNCTION sweep_gitlab._feature_enabled(caller oid, name text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	enabled boolean := (SELECT f.enabled FROM sweep_gitlab.feature_flag AS f WHERE f.name = _feature_enabled.name);
BEGIN
	IF enabled IS NULL THEN
		PERFORM sweep_gitlab._no_such_feature(name);
	END IF;
	RETURN enabled;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._feature_enabled(oid, text) IS 'implements sweep_gitlab.feature_enabled';

CREATE FUNCTION sweep_gitlab.feature_enabled(name text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.feature_enabled(text) IS 'whether the feature of this name is on; it is off until sweep_gitlab.enable_feature';

CREATE FUNCTION sweep_gitlab._set_feature(name text, enabled boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep_gitlab.feature_flag AS f SET enabled = _set_feature.enabled WHERE f.name = _set_feature.name;
	IF NOT FOUND THEN
		PERFORM sweep_gitlab._no_such_feature(name);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._set_feature(text, boolean) IS 'switches a feature; sweep_gitlab.enable_feature and sweep_gitlab.disable_feature call it';

CREATE FUNCTION sweep_gitlab._enable_feature(caller oid, name text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab._set_feature(name, true)
$$;
COMMENT ON FUNCTION sweep_gitlab._enable_feature(oid, text) IS 'implements sweep_gitlab.enable_feature';

CREATE FUNCTION sweep_gitlab.enable_feature(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.enable_feature(text) IS 'switches a feature on, for all jobs of the database; runs in progress see it before their next batch';

CREATE FUNCTION sweep_gitlab._disable_feature(caller oid, name text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab._set_feature(name, false)
$$;
COMMENT ON FUNCTION sweep_gitlab._disable_feature(oid, text) IS 'implements sweep_gitlab.disable_feature';

CREATE FUNCTION sweep_gitlab.disable_feature(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.disable_feature(text) IS 'switches a feature off, for all jobs of the database; runs in progress see it before their next batch';
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
--
-- GitLab: sends a message for each environment that is due to be stopped.
--
-- Purpose    A review environment costs money until it is stopped; each
--            one may say when that should happen (auto_stop_at).
-- Predicate  state = 'available' and auto_stop_at < as_of.  Strict; NULL is
--            never due.  Left out: environments that sweep_gitlab.stop_environment
--            could not stop, until their auto_stop_at, their auto_stop_setting or
--            the result of stop_action for them changes.
-- Order      (auto_stop_at, id), the longest overdue first.
-- Effect     one message {"environment_id", "project_id"} each in the queue
--            environments_auto_stop, with the id as key: while a message for
--            an environment is there, no other one is queued.  The table is
--            not changed: only the cursor keeps a run from reading an
--            environment twice, however slow the consumers are.
-- Done when  no due environment is after the cursor.
-- Args       schema: where the table environments is; stop_action: see below.
--
-- All GitLab steps are written like this. The statements are static, so that they are planned once per run (planning in every
-- batch of 100 would double its time). They find their table by the search_path that the step sets first. GitLab's schema comes
-- after pg_catalog in it, and each name that a function or operator in that schema could match better is qualified, or has
-- arguments of exactly matching types. The plan must not depend on the planner's guesses about a parameter or a table without
-- statistics: it is the generic plan, and with the settings of the function only the index can be used.
--
-- The index is (state, auto_stop_at) WHERE state = 'available' AND auto_stop_at IS NOT NULL. Because of that WHERE the planner
-- drops state = 'available' from the index conditions. Without the leading column, the bounds on auto_stop_at do not limit the
-- scan, and each batch would read the index from its start. The planner keeps state = ANY (available).
--
-- The index does not order environments with the same auto_stop_at by id, so each batch reads all that are left with the same
-- value. If there are so many that reading along the ids costs less, as after an UPDATE of all environments of a customer, the
-- cursor gets "upto" and the next batches do so.
--
CREATE FUNCTION sweep_gitlab.environments_auto_stop(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_sort = off
AS $$
DECLARE
	available constant pg_catalog.text[] := '{available}';
	last_at pg_catalog.timestamptz := coalesce(b.cursor ->> 'auto_stop_at', '-infinity');
	last_id bigint := coalesce(b.cursor ->> 'id', '-9223372036854775808');
	upto bigint := b.cursor ->> 'upto';
	none_kept boolean;
	due pg_catalog.record;
	same pg_catalog.record;
BEGIN
	IF b.cursor IS NULL THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.environments_auto_stop', b.args);
		PERFORM sweep_gitlab.review_kept_environments(b);
	END IF;
	none_kept := NOT EXISTS (SELECT FROM sweep_gitlab.kept_environment);
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	LOOP
		SELECT pg_catalog.count(*) AS rows, pg_catalog.min(e.auto_stop_at) AS first_at, pg_catalog.max(e.auto_stop_at) AS last_at, pg_catalog.array_agg(e.id) AS ids,
				pg_catalog.array_agg(pg_catalog.jsonb_build_object('environment_id', e.id, 'project_id', e.project_id)) AS payloads
			INTO due
			FROM (
				(SELECT id, project_id, auto_stop_at
				FROM environments
				WHERE state::pg_catalog.text = 'available'::pg_catalog.text AND state::pg_catalog.text = ANY (available)
					AND auto_stop_at < b.as_of AND (auto_stop_at, id) > (last_at, last_id)
					AND (none_kept OR auto_stop_at IS DISTINCT FROM sweep_gitlab.kept_until(id))
					AND upto IS NULL
				ORDER BY state, auto_stop_at, id
				LIMIT b.size)
				UNION ALL
				(SELECT id, project_id, auto_stop_at
				FROM environments
				WHERE state::pg_catalog.text = 'available'::pg_catalog.text AND auto_stop_at < b.as_of
					AND auto_stop_at = last_at AND id > last_id AND id <= upto
					AND (none_kept OR auto_stop_at IS DISTINCT FROM sweep_gitlab.kept_until(id))
				ORDER BY id
				LIMIT b.size)) AS e;
		EXIT WHEN due.rows > 0 OR upto IS NULL;
		upto := NULL;
	END LOOP;

	IF due.rows > 0 THEN
		PERFORM sweep.send_many('environments_auto_stop', due.payloads, due.ids::pg_catalog.text[]);
		last_at := due.last_at;
		last_id := due.ids[due.rows];
	END IF;
	IF upto IS NULL AND due.rows = b.size AND due.first_at = due.last_at THEN
		SELECT pg_catalog.count(*) AS rows, pg_catalog.max(id) AS last_id INTO same
			FROM environments
			WHERE state::pg_catalog.text = 'available'::pg_catalog.text AND state::pg_catalog.text = ANY (available)
				AND auto_stop_at = last_at AND id > last_id;
		IF same.rows * same.rows / 2 / b.size > same.last_id::numeric - last_id THEN
			upto := same.last_id;
		END IF;
	END IF;
	RETURN ROW(due.rows, pg_catalog.jsonb_strip_nulls(
		pg_catalog.jsonb_build_object('auto_stop_at', last_at, 'id', last_id, 'upto', upto)), NULL::pg_catalog.jsonb);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.environments_auto_stop(sweep.batch) IS 'step of the job environments_auto_stop: queues environments that are due to be stopped';

CREATE FUNCTION sweep_gitlab.create_environments_auto_stop(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job('environments_auto_stop',
		step => 'sweep_gitlab.environments_auto_stop', args => args,
		schedule => '24 * * * *', timezone => 'UTC',
		batch_size => 100, max_batches => 1000, stop_after => '45 min',
		lock_key => 'environments:auto_stop:lock', timeout => '50 min', lock_retries => 1,
		description => 'GitLab: hands on environments that are due to be stopped')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_environments_auto_stop(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

-- ------------------------------------------------------------------ environments that could not be stopped
-- Only the job uses these rows. The next run deletes rows that belong to an earlier job of this name of another role. No foreign
-- key, because a dump may restore the tables in any order.
CREATE TABLE sweep_gitlab.kept (
	environment_id bigint PRIMARY KEY,
	auto_stop_at   timestamptz NOT NULL,
	run_as         text NOT NULL
);
COMMENT ON TABLE sweep_gitlab.kept IS 'environments that stop only by a stop action and have none: no message is sent for them until that changes';
COMMENT ON COLUMN sweep_gitlab.kept.environment_id IS 'id of the environment';
COMMENT ON COLUMN sweep_gitlab.kept.auto_stop_at IS 'its auto_stop_at at that time';
COMMENT ON COLUMN sweep_gitlab.kept.run_as IS 'name of the role of the job at that time';
SELECT pg_catalog.pg_extension_config_dump('sweep_gitlab.kept', '');

-- A role that sees the job sees all its rows. OFFSET 0 keeps conditions of the reader out of the subquery: see the README of
-- src/api.
CREATE VIEW sweep_gitlab.kept_environment WITH (security_barrier) AS
	SELECT k.* FROM sweep_gitlab.kept AS k
		WHERE (SELECT sweep._may_see(j.run_as) FROM sweep.job_definition AS j WHERE j.name = 'environments_auto_stop')
	OFFSET 0;
COMMENT ON VIEW sweep_gitlab.kept_environment IS 'environments that stop only by a stop action and have none: no message is sent for them until that changes';
COMMENT ON COLUMN sweep_gitlab.kept_environment.environment_id IS 'id of the environment';
COMMENT ON COLUMN sweep_gitlab.kept_environment.auto_stop_at IS 'its auto_stop_at at that time';
COMMENT ON COLUMN sweep_gitlab.kept_environment.run_as IS 'name of the role of the job at that time';

-- The view is always read completely. These two functions find a row by its key, but only for the role of the job and its
-- members. For other roles they do not read the tables, because the statistics would reveal whether there is a row.
CREATE FUNCTION sweep_gitlab._kept_until(caller oid, environment_id bigint) RETURNS timestamptz
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
	RETURN (SELECT k.auto_stop_at FROM sweep_gitlab.kept AS k WHERE k.environment_id = _kept_until.environment_id
		AND (SELECT sweep._acts_for(caller, j.run_as) FROM sweep.job_definition AS j WHERE j.name = 'environments_auto_stop'));
END
$$;
COMMENT ON FUNCTION sweep_gitlab._kept_until(oid, bigint) IS 'implements sweep_gitlab.kept_until';

CREATE FUNCTION sweep_gitlab.kept_until(environment_id bigint) RETURNS timestamptz
	LANGUAGE c STABLE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.kept_until(bigint) IS
	'part of the step of environments_auto_stop: while an environment has this auto_stop_at, no message is sent for it; NULL when it is not kept';

CREATE FUNCTION sweep_gitlab._environments_args(caller oid) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
	RETURN (SELECT j.args FROM sweep.job_definition AS j WHERE j.name = 'environments_auto_stop' AND sweep._role_oid(j.run_as) = caller);
END
$$;
COMMENT ON FUNCTION sweep_gitlab._environments_args(oid) IS 'implements sweep_gitlab.environments_args';

CREATE FUNCTION sweep_gitlab.environments_args() RETURNS jsonb
	LANGUAGE c STABLE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.environments_args() IS
	'part of the consumer of environments_auto_stop: the args of the job of the current role; NULL when it has none';

-- Keeps the job from being dropped or given to another role until the end of the transaction.
CREATE FUNCTION sweep_gitlab._lock_environments_job(caller oid) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM FROM sweep.job_definition AS j WHERE j.name = 'environments_auto_stop' AND EXISTS (SELECT FROM pg_catalog.pg_roles AS r
		WHERE r.rolname::pg_catalog.text IN (j.run_as, 'sweep_admin') AND pg_catalog.pg_has_role(caller, r.oid, 'USAGE')) FOR KEY SHARE;
	IF FOUND THEN
		RETURN;
	ELSIF NOT EXISTS (SELECT FROM sweep.job_definition AS j WHERE j.name = 'environments_auto_stop') THEN
		RAISE EXCEPTION 'job "environments_auto_stop" does not exist'
			USING ERRCODE = 'undefined_object', HINT = 'sweep_gitlab.install() creates it.';
	END IF;
	RAISE EXCEPTION 'permission denied for job "environments_auto_stop"'
		USING ERRCODE = 'insufficient_privilege', HINT = 'Members of its role and of sweep_admin may say which environments it leaves out.';
END
$$;
COMMENT ON FUNCTION sweep_gitlab._lock_environments_job(oid) IS 'locks the job environments_auto_stop against changes; raises unless the caller may act on it';

CREATE FUNCTION sweep_gitlab._keep_environment(caller oid, environment_id bigint, auto_stop_at timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	PERFORM sweep_gitlab._lock_environments_job(caller);
	INSERT INTO sweep_gitlab.kept AS k (environment_id, auto_stop_at, run_as)
		SELECT _keep_environment.environment_id, _keep_environment.auto_stop_at, j.run_as FROM sweep.job_definition AS j WHERE j.name = 'environments_auto_stop'
		ON CONFLICT (environment_id) DO UPDATE SET auto_stop_at = excluded.auto_stop_at, run_as = excluded.run_as;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._keep_environment(oid, bigint, timestamptz) IS 'implements sweep_gitlab.keep_environment';

CREATE FUNCTION sweep_gitlab.keep_environment(environment_id bigint, auto_stop_at timestamptz) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.keep_environment(bigint, timestamptz) IS 'no further message to stop the environment is sent while it has this auto_stop_at';

CREATE FUNCTION sweep_gitlab._forget_environments(caller oid, environment_ids bigint[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	PERFORM sweep_gitlab._lock_environments_job(caller);
	-- Rows that a consumer has locked are skipped; the next run checks them.
	DELETE FROM sweep_gitlab.kept AS k WHERE k.environment_id IN (
		SELECT o.environment_id FROM sweep_gitlab.kept AS o
		WHERE o.environment_id = ANY (_forget_environments.environment_ids) FOR UPDATE SKIP LOCKED);
END
$$;
COMMENT ON FUNCTION sweep_gitlab._forget_environments(oid, bigint[]) IS 'implements sweep_gitlab.forget_environments';

CREATE FUNCTION sweep_gitlab.forget_environments(environment_ids bigint[]) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.forget_environments(bigint[]) IS 'messages to stop these environments are sent again, if they are due';

-- Called once per run, before its first batch. Deletes the row of a kept environment when the environment is gone or no longer
-- available, when it could be stopped now, or when the row belongs to a job of another role.
CREATE FUNCTION sweep_gitlab.review_kept_environments(b sweep.batch) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	always constant smallint := 0;
	changed bigint[];
BEGIN
	IF NOT EXISTS (SELECT FROM sweep_gitlab.kept_environment) THEN
		RETURN;
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	SELECT pg_catalog.array_agg(k.environment_id) INTO changed
		FROM sweep_gitlab.kept_environment AS k LEFT JOIN environments AS e ON e.id = k.environment_id
		WHERE CASE WHEN k.run_as = current_user::pg_catalog.text AND e.state::pg_catalog.text = 'available'::pg_catalog.text AND e.auto_stop_at = k.auto_stop_at
			AND e.auto_stop_setting <> always
			THEN sweep_gitlab.may_have_stop_action(b.args ->> 'schema'::pg_catalog.text, b.args ->> 'stop_action'::pg_catalog.text, e.id) ELSE true END;
	IF changed IS NOT NULL THEN
		PERFORM sweep_gitlab.forget_environments(changed);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.review_kept_environments(sweep.batch) IS
	'part of the step of environments_auto_stop: deletes the rows of kept environments that are gone, or could be stopped now';

-- The stop_action also starts the action, which only the consumer may do. Therefore it is first called in a read-only subtransaction,
-- which is rolled back. A stop_action that writes before it checks fails there, and is called again in a subtransaction that may write,
-- and is rolled back, too. The result is true when it returns true or changes the state of the environment; other effects do not count. If
-- the stop_action fails for another reason, there may be an action, and the consumer calls it again.
CREATE FUNCTION sweep_gitlab.may_have_stop_action(schema text, stop_action text, environment_id bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	read_only pg_catalog.text;
	answer boolean;
BEGIN
	IF stop_action IS NULL THEN
		RETURN false;
	END IF;
	-- The same search_path as in the consumer.
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', schema), true);
	FOREACH read_only IN ARRAY '{on,off}'::pg_catalog.text[] LOOP
		BEGIN
			-- The error below resets it. Version 17 does not accept transaction_read_only in the SET clause of a function.
			PERFORM pg_catalog.set_config('transaction_read_only', read_only, true), pg_catalog.set_config('sweep_gitlab.only_asks', 'on', true);
			EXECUTE pg_catalog.format('SELECT coalesce(%s($1), false)', stop_action::pg_catalog.regproc) INTO answer USING environment_id;
			answer := answer OR NOT EXISTS (SELECT FROM environments AS e
				WHERE e.id = may_have_stop_action.environment_id AND e.state::pg_catalog.text = 'available'::pg_catalog.text);
			RAISE EXCEPTION 'undone';
		EXCEPTION
			WHEN read_only_sql_transaction THEN
				CONTINUE;
			WHEN OTHERS THEN
				RETURN coalesce(answer, true);
		END;
	END LOOP;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.may_have_stop_action(text, text, bigint) IS
	'part of the step of environments_auto_stop: false when the stop_action returns false for the environment and does not change its state; has no effects';

-- ------------------------------------------------------------------ the consumer
-- Stops environments in the database instead of leaving that to GitLab.  It
-- has no args of its own, so it reads those of the job:
--   schema       where the table environments is
--   stop_action  name of a function(environment_id bigint) RETURNS boolean that
--                checks whether an environment has a stop action, then starts it,
--                and returns whether there is one; without this arg no environment
--                has an action.  Each run of the job calls it for the environments
--                that were kept, uses its result, and rolls it back
-- stop_action is called for one environment after the other, by id.  One UPDATE
-- stops environments without an action, except those that may only stop by an
-- action: these are kept.  An environment that is no longer due is left as it is.
CREATE FUNCTION sweep_gitlab.stop_environment(messages sweep.message[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	always constant smallint := 0;
	-- Only the args of a job of the current role: they decide what is executed here.
	args pg_catalog.jsonb := sweep_gitlab.environments_args();
	ids bigint[] := ARRAY(SELECT DISTINCT (m.payload -> 'environment_id')::pg_catalog.text::bigint AS id FROM pg_catalog.unnest(messages) AS m ORDER BY id);
	without_action bigint[] := '{}';
	environment_id bigint;
	has_action boolean;
	stopped int;
	environment pg_catalog.record;
BEGIN
	IF args IS NULL THEN
		RAISE EXCEPTION 'job "environments_auto_stop" of the current role does not exist'
			USING ERRCODE = 'undefined_object', HINT = 'sweep_gitlab.install creates it, and its args say where the environments are.';
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', args ->> 'schema'), true);
	IF args ->> 'stop_action' IS NOT NULL THEN
		FOREACH environment_id IN ARRAY ids LOOP
			PERFORM FROM environments AS e
				WHERE e.id = environment_id AND e.state::pg_catalog.text = 'available'::pg_catalog.text AND e.auto_stop_at < pg_catalog.now() FOR UPDATE;
			CONTINUE WHEN NOT FOUND;
			EXECUTE pg_catalog.format('SELECT %s($1)', (args ->> 'stop_action')::pg_catalog.regproc) INTO has_action USING environment_id;
			IF has_action THEN
				-- Not if stop_action has changed the state.
				UPDATE environments AS e SET state = 'stopping', updated_at = pg_catalog.now() AT TIME ZONE 'UTC'
					WHERE e.id = environment_id AND e.state::pg_catalog.text = 'available'::pg_catalog.text;
			ELSE
				without_action := pg_catalog.array_append(without_action, environment_id);
			END IF;
		END LOOP;
		ids := without_action;
	END IF;

	UPDATE environments AS e SET state = 'stopped', auto_stop_at = NULL, updated_at = pg_catalog.now() AT TIME ZONE 'UTC'
		WHERE e.id = ANY (ids) AND e.state::pg_catalog.text = 'available'::pg_catalog.text AND e.auto_stop_at < pg_catalog.now()
			AND e.auto_stop_setting = always;
	GET DIAGNOSTICS stopped = ROW_COUNT;
	IF stopped = pg_catalog.cardinality(ids) THEN
		RETURN;
	END IF;
	FOR environment IN SELECT e.id, e.auto_stop_at FROM environments AS e
		WHERE e.id = ANY (ids) AND e.state::pg_catalog.text = 'available'::pg_catalog.text AND e.auto_stop_at < pg_catalog.now()
			AND e.auto_stop_setting IS DISTINCT FROM always
		ORDER BY e.id FOR UPDATE
	LOOP
		PERFORM sweep_gitlab.keep_environment(environment.id, environment.auto_stop_at);
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.stop_environment(sweep.message[]) IS 'consumer of the queue environments_auto_stop: stops a batch of environments in the database; the stop_action of the job must look first, then write, and return whether there is a stop action';
--
-- GitLab: builds that are stuck in a status are ended.
--
-- Purpose    A build whose runner is gone stays pending, running or canceling,
--            and its pipeline never ends; a scheduled build may miss its time.
--            ci_stuck_jobs, once an hour, queues a run of each
--            ci_stuck_builds_drop_* job, 15 minutes apart, even if it does not
--            get its own lock, and drops the pending builds itself.
-- Predicate  type = 'Ci::Build', the status, and for each bound in the args that
--            the timestamp is older: created_at, updated_at, scheduled_at <
--            as_of - bound.  Strict; NULL is never older.
--              ci_stuck_jobs                 pending     created and updated 24 hours
--              ci_stuck_builds_drop_running    running     updated 1 hour
--              ci_stuck_builds_drop_scheduled  scheduled   scheduled 1 hour
--              ci_stuck_builds_drop_canceling  canceling   created and updated 1 hour
-- Order      (created_at, project_id, id, partition_id), created_at NULL last.
-- Effect     status, failure_reason, finished_at, updated_at, lock_version + 1,
--            scheduled_at NULL, and processed so that the pipeline handles the
--            build again; its rows in ci_pending_builds and ci_running_builds
--            are deleted, if these tables exist: a row that stays there makes
--            its project count as busy.  Messages {"pipeline_id"} in the queue
--            ci_pipeline_process and {"build_id", "project_id"} in the queue
--            ci_build_finished, keys: the ids.  A build that cannot be written
--            is doomed: the same with status failed, reason data integrity.
-- Done when  there is no stuck build after the last one picked.
-- Args       schema, table: p_ci_builds, or ci_builds in an older GitLab; status;
--            created_older_than, updated_older_than, scheduled_older_than, as far
--            as they apply; final_status: unless it is "failed", the reason is not
--            changed; failure_reason and doom_reason if the column has numbers,
--            failure_reason_name and doom_reason_name if it has names.  They
--            are checked before the first build is picked (check_args.sql).
--
-- All four jobs use the same pick, step and rescue functions. The UPDATE repeats the predicate and the lock_version that was
-- picked, so that a build that has changed meanwhile is not written. It is read and tried again up to 3 times; if it is no longer
-- stuck, it is left as it is. The rescue repeats the predicate without the lock_version: a build that the step could not drop is
-- not doomed if it is no longer stuck.
--
-- created_at, updated_at and finished_at are timestamps without time zone and
-- hold UTC; scheduled_at has its zone. Both are compared with as_of in UTC, where
-- every day has 24 hours, and never with the time zone of the session.
--
-- The index is (status, created_at, project_id) WHERE type = 'Ci::Build' in each partition. The plan is a merge of these, with
-- the ids of the same created_at and project sorted, so a batch reads only what it returns. If many builds of a project have the
-- same created_at, as after a bulk insert, each batch would read all that are left of them. Therefore it first looks for a full
-- batch of them among the next ids of the project. IS NOT DISTINCT FROM and ANY keep that statement from the index above and from
-- the primary key, in which it would read the builds of all projects in each partition. The UPDATE is by the primary key, with
-- partition_id, so that it reads only one partition.
--
-- See environments_auto_stop.sql for the way the table is addressed.
-- The predicate is only in sweep_gitlab.is_stuck, which the planner can inline: it has no SET clause, and its body is parsed when
-- it is created. The pick repeats the bound at which reading the index ends.
--
CREATE TYPE sweep_gitlab.stuck AS (
	status           text,
	created_before   timestamp,
	updated_before   timestamp,
	scheduled_before timestamptz
);
COMMENT ON TYPE sweep_gitlab.stuck IS 'when a build is stuck: it has this status, and each of its timestamps is before the bound here that is not NULL';
COMMENT ON COLUMN sweep_gitlab.stuck.status IS 'the status it is stuck in';
COMMENT ON COLUMN sweep_gitlab.stuck.created_before IS 'its created_at, in UTC, is before this';
COMMENT ON COLUMN sweep_gitlab.stuck.updated_before IS 'its updated_at, in UTC, is before this';
COMMENT ON COLUMN sweep_gitlab.stuck.scheduled_before IS 'its scheduled_at is before this';

-- For a single build the statement of sweep_gitlab.build_statement computes the same, because this function would take a tenth of
-- the time of the rest.
CREATE FUNCTION sweep_gitlab.when_stuck(args jsonb, as_of timestamptz) RETURNS sweep_gitlab.stuck
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT ROW(args ->> 'status', at - (args ->> 'created_older_than')::interval, at - (args ->> 'updated_older_than')::interval,
		(at - (args ->> 'scheduled_older_than')::interval) AT TIME ZONE 'UTC')::sweep_gitlab.stuck
	FROM (SELECT as_of AT TIME ZONE 'UTC') AS moment (at)
$$;
COMMENT ON FUNCTION sweep_gitlab.when_stuck(jsonb, timestamptz) IS 'when a build is stuck at that moment, by the args of a job';

CREATE FUNCTION sweep_gitlab.is_stuck(type text, status text, created_at timestamp, updated_at timestamp, scheduled_at timestamptz,
	stuck sweep_gitlab.stuck) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN type = 'Ci::Build' AND status = (stuck).status
		AND ((stuck).created_before IS NULL OR created_at < (stuck).created_before)
		AND ((stuck).updated_before IS NULL OR updated_at < (stuck).updated_before)
		AND ((stuck).scheduled_before IS NULL OR scheduled_at < (stuck).scheduled_before);
COMMENT ON FUNCTION sweep_gitlab.is_stuck(text, text, timestamp, timestamp, timestamptz, sweep_gitlab.stuck) IS
	'the predicate of the jobs for stuck builds; the planner inlines it';

CREATE FUNCTION sweep_gitlab.next_lock_version(lock_version int) RETURNS int
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN lock_version % 2147483647 + 1;
COMMENT ON FUNCTION sweep_gitlab.next_lock_version(int) IS 'the next lock_version of a build: one more, and 1 after the highest; the planner inlines it';

-- Returns runner, pipeline and project of the build, and whether it is in one of the tables of queues that there are: a look costs
-- hardly anything, a DELETE of no row as much as the rest of the statement. The planner puts the row of sweep_gitlab.stuck into the
-- body of the predicate. Parameters: id, partition_id, lock_version and the moment, in UTC.
CREATE FUNCTION sweep_gitlab.build_statement(args jsonb, reason text, queues text[]) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.format('UPDATE %I.%I AS p SET status = %L, ', args ->> 'schema', args ->> 'table', args ->> 'final_status')
		|| CASE WHEN args ->> 'final_status' = 'failed' THEN pg_catalog.format('failure_reason = %L, ', reason) ELSE '' END
		|| 'finished_at = $4, updated_at = $4, scheduled_at = NULL, lock_version = sweep_gitlab.next_lock_version(p.lock_version), processed = p.retried IS TRUE '
		|| 'WHERE p.id = $1 AND p.partition_id = $2 AND p.lock_version = $3 '
		|| 'AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, '
		|| pg_catalog.format('ROW(%L, $4 - %L::interval, $4 - %L::interval, ($4 - %L::interval) AT TIME ZONE ''UTC'')::sweep_gitlab.stuck) ',
			args ->> 'status', (args ->> 'created_older_than')::interval, (args ->> 'updated_older_than')::interval, (args ->> 'scheduled_older_than')::interval)
		|| 'RETURNING p.runner_id::bigint, p.commit_id::bigint, p.project_id::bigint, (false'
		|| coalesce((SELECT pg_catalog.string_agg(pg_catalog.format(' OR EXISTS (SELECT FROM %I.%I AS q WHERE q.build_id = $1 AND q.partition_id = $2)', args ->> 'schema', q), '')
			FROM pg_catalog.unnest(queues) AS q), '') || ')::int::bigint'
$$;
COMMENT ON FUNCTION sweep_gitlab.build_statement(jsonb, text, text[]) IS
	'part of sweep_gitlab.drop_stuck_builds: the statement that ends one build, with the args of a job, the reason and the tables of queues in it';

CREATE FUNCTION sweep_gitlab.pick_stuck_builds(b sweep.batch) RETURNS SETOF jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	created_before constant timestamp := coalesce(stuck.created_before, 'infinity');
	lowest_id constant bigint := -9223372036854775808;
	among_nulls constant boolean := coalesce(b.cursor -> 'created_at' = 'null', false);
	last_at constant timestamp := CASE WHEN among_nulls THEN 'infinity' ELSE coalesce(b.cursor ->> 'created_at', '-infinity') END;
	last_project constant bigint := coalesce((b.cursor ->> 'project_id')::bigint, lowest_id);
	last_id constant bigint := coalesce((b.cursor ->> 'id')::bigint, lowest_id);
	last_partition constant bigint := coalesce((b.cursor ->> 'partition_id')::bigint, lowest_id);
	-- Builds that were inserted together have ids that are close to each other.
	far_id constant bigint := least(last_id::numeric + b.size * 16, 9223372036854775807);
	together pg_catalog.jsonb[];
BEGIN
	IF b.cursor IS NULL THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.drop_stuck_builds', b.args);
		RAISE LOG 'Cleaning %, timed-out builds', stuck.status;
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	IF b.cursor IS NOT NULL THEN
		together := ARRAY(SELECT pg_catalog.to_jsonb(p)
			FROM (SELECT created_at, project_id, id, partition_id, lock_version
				FROM p_ci_builds
				WHERE sweep_gitlab.is_stuck(type, status, created_at, updated_at, scheduled_at, stuck)
					AND created_at IS NOT DISTINCT FROM last_at AND project_id = ANY (ARRAY[last_project])
					AND id BETWEEN last_id AND far_id AND (id, partition_id) > (last_id, last_partition)
				ORDER BY project_id, id, partition_id
				LIMIT b.size) AS p);
		IF pg_catalog.cardinality(together) = b.size THEN
			RETURN QUERY SELECT * FROM pg_catalog.unnest(together);
			RETURN;
		END IF;
	END IF;

	RETURN QUERY
		SELECT pg_catalog.to_jsonb(p)
		FROM (
			(SELECT created_at, project_id, id, partition_id, lock_version
			FROM p_ci_builds
			WHERE sweep_gitlab.is_stuck(type, status, created_at, updated_at, scheduled_at, stuck)
				AND (created_at, project_id, id, partition_id) > (last_at, last_project, last_id, last_partition) AND created_at <= created_before AND NOT among_nulls
			ORDER BY created_at, project_id, id, partition_id
			LIMIT b.size)
			UNION ALL
			(SELECT created_at, project_id, id, partition_id, lock_version
			FROM p_ci_builds
			WHERE sweep_gitlab.is_stuck(type, status, created_at, updated_at, scheduled_at, stuck)
				AND created_at IS NULL AND stuck.created_before IS NULL AND (NOT among_nulls OR (project_id, id, partition_id) > (last_project, last_id, last_partition))
			ORDER BY created_at, project_id, id, partition_id
			LIMIT b.size)) AS p
		LIMIT b.size;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.pick_stuck_builds(sweep.batch) IS 'pick of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: builds that are stuck in a status';

-- Most batches have one build. C code (build.c) does this case, because PL/pgSQL prepares its expressions again in every
-- transaction; the function below does all others.
CREATE FUNCTION sweep_gitlab.drop_stuck_builds(b sweep.batch) RETURNS sweep.progress
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_gitlab_drop_builds';
COMMENT ON FUNCTION sweep_gitlab.drop_stuck_builds(sweep.batch) IS 'step of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: ends builds that are still stuck';

CREATE FUNCTION sweep_gitlab.drop_stuck_builds_in_batch(b sweep.batch) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	retries constant int := 3;
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	unwritten constant pg_catalog.jsonb[] := sweep_gitlab.drop_stuck_builds_at_once(b);
	rows bigint := pg_catalog.cardinality(b.items) - pg_catalog.cardinality(unwritten);
	item pg_catalog.jsonb;
	version int;
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	-- These builds have changed since they were read. A build that is still stuck is tried again as it is now.
	FOREACH item IN ARRAY unwritten LOOP
		FOR try IN 0 .. retries LOOP
			SELECT p.lock_version INTO version
				FROM p_ci_builds AS p
				WHERE p.id = (item ->> 'id'::pg_catalog.text)::bigint AND p.partition_id = (item ->> 'partition_id'::pg_catalog.text)::bigint
					AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, stuck);
			EXIT WHEN NOT FOUND;
			IF try = retries THEN
				RAISE EXCEPTION 'build % changes faster than it can be dropped', item ->> 'id'::pg_catalog.text
					USING ERRCODE = 'serialization_failure', DETAIL = CASE retries WHEN 0 THEN 'It was tried once.' ELSE pg_catalog.format('It was tried %s times.', retries + 1) END;
			END IF;
			b.items := ARRAY[item || pg_catalog.jsonb_build_object('lock_version', version)];
			IF pg_catalog.cardinality(sweep_gitlab.drop_stuck_builds_at_once(b)) = 0 THEN
				rows := rows + 1;
				EXIT;
			END IF;
		END LOOP;
	END LOOP;
	RETURN rows;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.drop_stuck_builds_in_batch(sweep.batch) IS
	'part of sweep_gitlab.drop_stuck_builds: ends the builds of a batch, again if they have changed and are still stuck, and returns how many';

-- The effects of a change of status outside of the table of the builds.
CREATE FUNCTION sweep_gitlab.follow_builds(schema text, ids bigint[], partition_ids bigint[], project_ids bigint[], pipeline_ids bigint[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
	IF pg_catalog.cardinality(ids) = 0 THEN
		RETURN;
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', schema), true);
	IF pg_catalog.to_regclass(pg_catalog.format('%I.ci_pending_builds', schema)) IS NOT NULL THEN
		DELETE FROM ci_pending_builds AS q USING unnest(ids, partition_ids) AS b (id, partition_id)
			WHERE q.build_id = b.id AND q.partition_id = b.partition_id;
	END IF;
	IF pg_catalog.to_regclass(pg_catalog.format('%I.ci_running_builds', schema)) IS NOT NULL THEN
		DELETE FROM ci_running_builds AS q USING unnest(ids, partition_ids) AS b (id, partition_id)
			WHERE q.build_id = b.id AND q.partition_id = b.partition_id;
	END IF;
	PERFORM sweep.send_many('ci_pipeline_process', pg_catalog.array_agg(pg_catalog.jsonb_build_object('pipeline_id', id)), pg_catalog.array_agg(id::pg_catalog.text))
		FROM pg_catalog.unnest(pipeline_ids) AS id WHERE id IS NOT NULL HAVING pg_catalog.count(*) > 0;
	PERFORM sweep.send_many('ci_build_finished',
		pg_catalog.array_agg(pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('build_id', b.id, 'project_id', b.project_id))),
		pg_catalog.array_agg(b.id::pg_catalog.text))
		FROM unnest(ids, project_ids) AS b (id, project_id);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.follow_builds(text, bigint[], bigint[], bigint[], bigint[]) IS
	'part of the jobs for stuck builds: removes builds that were ended from the queues of runners, and sends their messages';

-- Ends any number of builds in one statement; returns the items that it did not write.
CREATE FUNCTION sweep_gitlab.drop_stuck_builds_at_once(b sweep.batch) RETURNS jsonb[]
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	final_status constant pg_catalog.text := b.args ->> 'final_status';
	reason pg_catalog.jsonb;
	dropped pg_catalog.record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	reason := CASE WHEN pg_catalog.pg_typeof((NULL::p_ci_builds).failure_reason)::pg_catalog.oid IN ('pg_catalog.text'::pg_catalog.regtype::pg_catalog.oid, 'varchar'::pg_catalog.regtype::pg_catalog.oid)
		THEN b.args -> 'failure_reason_name'::pg_catalog.text ELSE b.args -> 'failure_reason'::pg_catalog.text END;
	reason := pg_catalog.jsonb_build_object('failure_reason', reason);

	WITH item AS (
		SELECT (i ->> 'id'::pg_catalog.text)::bigint AS id, (i ->> 'partition_id'::pg_catalog.text)::bigint AS partition_id,
			(i ->> 'lock_version'::pg_catalog.text)::int AS lock_version
		FROM pg_catalog.unnest(b.items) AS i
	), written AS (
		UPDATE p_ci_builds AS p
		SET status = final_status,
			failure_reason = CASE WHEN final_status = 'failed'::pg_catalog.text
				THEN (SELECT (pg_catalog.jsonb_populate_record(NULL::p_ci_builds, reason)).failure_reason) ELSE p.failure_reason END,
			finished_at = at, updated_at = at, scheduled_at = NULL, lock_version = sweep_gitlab.next_lock_version(p.lock_version), processed = p.retried IS TRUE
		FROM item
		WHERE p.id = item.id AND p.partition_id = item.partition_id AND p.lock_version = item.lock_version
			AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, stuck)
		RETURNING p.id, p.partition_id, p.project_id, p.runner_id, p.commit_id
	)
	SELECT coalesce(pg_catalog.array_agg(id), '{}') AS ids, pg_catalog.array_agg(partition_id) AS partition_ids,
			pg_catalog.array_agg(project_id::bigint) AS project_ids, pg_catalog.array_agg(commit_id::bigint) AS pipeline_ids,
			pg_catalog.array_agg(runner_id) AS runner_ids
		INTO dropped FROM written;
	PERFORM sweep_gitlab.follow_builds(b.args ->> 'schema', dropped.ids, dropped.partition_ids, dropped.project_ids, dropped.pipeline_ids);
	IF pg_catalog.current_setting('pg_sweep.log_batches', true) = 'items' THEN
		FOR i IN 1 .. pg_catalog.cardinality(dropped.ids) LOOP
			RAISE LOG 'Dropping outdated build: build_id %, runner_id %, status %, failure_reason %', dropped.ids[i],
				coalesce(dropped.runner_ids[i]::pg_catalog.text, 'none'), stuck.status, reason ->> 'failure_reason'::pg_catalog.text;
		END LOOP;
	END IF;
	IF pg_catalog.cardinality(dropped.ids) = pg_catalog.cardinality(b.items) THEN
		RETURN '{}';
	END IF;
	RETURN ARRAY(SELECT i FROM pg_catalog.unnest(b.items) AS i
		WHERE NOT EXISTS (SELECT FROM unnest(dropped.ids, dropped.partition_ids) AS d (id, partition_id)
			WHERE d.id = (i ->> 'id'::pg_catalog.text)::bigint AND d.partition_id = (i ->> 'partition_id'::pg_catalog.text)::bigint));
END
$$;
COMMENT ON FUNCTION sweep_gitlab.drop_stuck_builds_at_once(sweep.batch) IS
	'part of sweep_gitlab.drop_stuck_builds: ends the builds of a batch that have not changed since they were picked, and returns the others';

CREATE FUNCTION sweep_gitlab.doom_stuck_build(b sweep.batch, error jsonb) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	stuck constant sweep_gitlab.stuck := sweep_gitlab.when_stuck(b.args, b.as_of);
	at constant timestamp := b.as_of AT TIME ZONE 'UTC';
	doomed_id constant bigint := b.items[1] -> 'id';
	doomed_partition constant bigint := b.items[1] -> 'partition_id';
	schema constant pg_catalog.text := b.args ->> 'schema';
	reason pg_catalog.jsonb;
	doomed pg_catalog.record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', schema), true);
	reason := CASE WHEN pg_catalog.pg_typeof((NULL::p_ci_builds).failure_reason)::pg_catalog.oid IN ('pg_catalog.text'::pg_catalog.regtype::pg_catalog.oid, 'varchar'::pg_catalog.regtype::pg_catalog.oid)
		THEN b.args -> 'doom_reason_name'::pg_catalog.text ELSE b.args -> 'doom_reason'::pg_catalog.text END;
	reason := pg_catalog.jsonb_build_object('failure_reason', reason);

	UPDATE p_ci_builds AS p
		SET status = 'failed'::pg_catalog.text,
			failure_reason = (pg_catalog.jsonb_populate_record(NULL::p_ci_builds, reason)).failure_reason,
			finished_at = coalesce(p.finished_at, at), updated_at = at, scheduled_at = NULL, lock_version = sweep_gitlab.next_lock_version(p.lock_version),
			processed = p.retried IS TRUE
		WHERE p.id = doomed_id AND p.partition_id = doomed_partition
			AND sweep_gitlab.is_stuck(p.type, p.status, p.created_at, p.updated_at, p.scheduled_at, stuck)
		RETURNING p.project_id::bigint, p.runner_id, p.commit_id::bigint INTO doomed;
	IF NOT FOUND THEN
		RETURN ROW(0::bigint, NULL::pg_catalog.jsonb, NULL::pg_catalog.jsonb);
	END IF;
	RAISE LOG 'Dooming build: build_id %, runner_id %, status %, failure_reason %', doomed_id,
			coalesce(doomed.runner_id::pg_catalog.text, 'none'), stuck.status, reason ->> 'failure_reason'::pg_catalog.text
		USING DETAIL = pg_catalog.format('Dropping it has failed: %s.', error ->> 'message'::pg_catalog.text);
	PERFORM sweep_gitlab.follow_builds(schema, ARRAY[doomed_id], ARRAY[doomed_partition], ARRAY[doomed.project_id], ARRAY[doomed.commit_id]);
	RETURN ROW(1::bigint, NULL::pg_catalog.jsonb, NULL::pg_catalog.jsonb);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.doom_stuck_build(sweep.batch, jsonb) IS
	'rescue of ci_stuck_jobs and the ci_stuck_builds_drop_* jobs: ends a build that could not be dropped, unless it is no longer stuck';

-- ------------------------------------------------------------------ an older GitLab
-- The same four functions for the table ci_builds. They are generated from those above, because static statements cannot have the
-- name of a table as an argument; nothing else differs.
DO $$
DECLARE
	original pg_catalog.regprocedure;
	copy pg_catalog.text;
BEGIN
	FOREACH original IN ARRAY ARRAY['sweep_gitlab.pick_stuck_builds(sweep.batch)', 'sweep_gitlab.drop_stuck_builds(sweep.batch)',
			'sweep_gitlab.drop_stuck_builds_in_batch(sweep.batch)', 'sweep_gitlab.drop_stuck_builds_at_once(sweep.batch)', 'sweep_gitlab.doom_stuck_build(sweep.batch, jsonb)']::pg_catalog.regprocedure[] LOOP
		copy := pg_catalog.replace(original::pg_catalog.text, 'stuck_build', 'stuck_ci_build');
		EXECUTE pg_catalog.regexp_replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.pg_get_functiondef(original), 'stuck_build', 'stuck_ci_build'),
			'p_ci_builds', 'ci_builds'), E'^CREATE OR \\w+', 'CREATE');
		EXECUTE pg_catalog.format('COMMENT ON FUNCTION %s IS %L', copy, pg_catalog.obj_description(original, 'pg_proc') || ', in the table ci_builds');
	END LOOP;
END
$$;

-- ------------------------------------------------------------------ the jobs
CREATE FUNCTION sweep_gitlab.stuck_builds_functions(table_name text) RETURNS jsonb
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE table_name
		WHEN 'p_ci_builds' THEN pg_catalog.jsonb_build_object('pick', 'sweep_gitlab.pick_stuck_builds',
			'step', 'sweep_gitlab.drop_stuck_builds', 'rescue', 'sweep_gitlab.doom_stuck_build')
		WHEN 'ci_builds' THEN pg_catalog.jsonb_build_object('pick', 'sweep_gitlab.pick_stuck_ci_builds',
			'step', 'sweep_gitlab.drop_stuck_ci_builds', 'rescue', 'sweep_gitlab.doom_stuck_ci_build') END
$$;
COMMENT ON FUNCTION sweep_gitlab.stuck_builds_functions(text) IS 'pick, step and rescue functions for the table with builds; sweep_gitlab.install uses it';

CREATE FUNCTION sweep_gitlab.create_stuck_builds_job(name text, description text, defaults jsonb, args jsonb, schedule text, on_start jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job(name, pick => f ->> 'pick', step => f ->> 'step', rescue => f ->> 'rescue',
		args => '{"final_status": "failed", "failure_reason": 3, "failure_reason_name": "stuck_or_timeout_failure",
			"doom_reason": 12, "doom_reason_name": "data_integrity_failure"}' || defaults || args,
		schedule => schedule, on_start => on_start,
		transaction => 'row', row_retries => 3, batch_size => 100, timeout => '30 min', description => description)
	FROM sweep_gitlab.stuck_builds_functions(args ->> 'table') AS f
$$;
COMMENT ON FUNCTION sweep_gitlab.create_stuck_builds_job(text, text, jsonb, jsonb, text, jsonb) IS 'creates a job for stuck builds; the functions below call it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_running(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_builds_drop_running', 'GitLab: ends builds that are running and have not been updated',
		'{"status": "running", "updated_older_than": "1 hour"}', args, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_running(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_scheduled(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_builds_drop_scheduled', 'GitLab: ends builds that have missed their scheduled moment',
		'{"status": "scheduled", "scheduled_older_than": "1 hour", "failure_reason": 7, "failure_reason_name": "stale_schedule"}',
		args, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_scheduled(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_canceling(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_builds_drop_canceling', 'GitLab: ends builds whose cancellation does not end',
		'{"status": "canceling", "created_older_than": "1 hour", "updated_older_than": "1 hour"}', args, NULL, NULL)
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_builds_drop_canceling(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_stuck_jobs(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab.create_stuck_builds_job('ci_stuck_jobs', 'GitLab: ends builds that have been pending for too long, and queues the ci_stuck_builds_drop_* jobs',
		'{"status": "pending", "created_older_than": "24 hours", "updated_older_than": "24 hours"}', args, '0 * * * *',
		'{"ci_stuck_builds_drop_running": "15 min", "ci_stuck_builds_drop_scheduled": "30 min", "ci_stuck_builds_drop_canceling": "45 min"}')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_stuck_jobs(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';
--
-- GitLab: deletes runner machines that have not made contact for a week.
--
-- Purpose    Autoscaled runners leave a row for every machine they ever had;
--            the list of machines and every query on it grow with them.
-- Predicate  (contacted_at IS NULL OR contacted_at <= as_of - stale_after)
--            AND created_at <= as_of - stale_after.  Both bounds inclusive.
-- Order      first those that never made contact, by (id, runner_type), then by
--            (contacted_at, id, runner_type): the one that is silent for longest first.
-- Effect     DELETE; the triggers of the table fire (loose foreign keys).
--            detail {"status", "total_deleted", "batch_counts"}, and "locked" when some
--            were locked by others.
-- Done when  a batch finds nothing to delete; its 0 is part of batch_counts.
-- Args       schema: where the table ci_runner_machines is; stale_after.
--
-- The key of the table is (id, runner_type), and no index has both after contacted_at. When machines with the same id are at the
-- edge of a batch, the batch ends between two of them and the cursor is before both. A separate statement deletes the machines of
-- that id, which costs less than reading the type of each machine.
--
-- One index, (contacted_at DESC, id DESC) read backwards, finds both kinds of machines, but not if they are combined by OR.
-- Therefore there are two phases, and a batch that ends the first goes on with the second. Each phase looks up the key at which
-- the batch is full and deletes the range up to it. A DELETE by key (id, runner_type) or by ctid would find each machine a second
-- time, and take up to 1.5 times as long. The DELETE repeats the whole predicate and checks each row again under its lock: a
-- machine that makes contact meanwhile stays. IS TRUE keeps the planner from using the index on created_at, in which it would
-- read nearly all machines, since most are old.
--
-- GitLab's own worker deletes the same machines, in another order and at the same minute, which could lead to deadlocks. Therefore
-- a batch waits 0.2 s for a lock, and the engine then does it again with half the size. A single machine that is locked is left to
-- the next run. (Locking the rows first, with SKIP LOCKED, would need the right to UPDATE.)
--
-- See environments_auto_stop.sql for the way the table is addressed.
--
CREATE FUNCTION sweep_gitlab.ci_runners_stale_machines_cleanup(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	-- computed in UTC, where every day has 24 hours
	stale pg_catalog.timestamptz := (b.as_of AT TIME ZONE 'UTC' - (b.args ->> 'stale_after')::interval) AT TIME ZONE 'UTC';
	never_done boolean := coalesce(b.cursor ? 'contacted_at', false);
	lowest_id constant bigint := -9223372036854775808;
	highest_id constant bigint := 9223372036854775807;
	last_at pg_catalog.timestamptz := coalesce(b.cursor ->> 'contacted_at', '-infinity');
	last_id bigint := coalesce((b.cursor ->> 'id')::bigint, lowest_id);
	longest constant pg_catalog.text := '200ms';
	waits constant pg_catalog.text := pg_catalog.current_setting('lock_timeout');
	edge pg_catalog.record;
	deleted bigint := 0;
	locked int;
	n bigint;
BEGIN
	IF b.cursor IS NULL THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.ci_runners_stale_machines_cleanup', b.args);
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	-- Takes the lock of the table without that timeout.
	LOCK TABLE ci_runner_machines IN ROW EXCLUSIVE MODE;
	BEGIN
		IF waits = '0' OR waits::interval > longest::interval THEN
			PERFORM pg_catalog.set_config('lock_timeout', longest, true);
		END IF;

		IF NOT never_done THEN
			SELECT pg_catalog.count(*) AS tied, coalesce(pg_catalog.max(m.id), highest_id) AS id INTO edge
				FROM (SELECT id
					FROM ci_runner_machines
					WHERE contacted_at IS NULL AND id > last_id AND (created_at <= stale) IS TRUE
					ORDER BY contacted_at, id
					OFFSET b.size - 1 FETCH FIRST 1 ROW WITH TIES) AS m;
			IF edge.tied > 1 THEN
				DELETE FROM ci_runner_machines
					WHERE contacted_at IS NULL AND id = edge.id AND (created_at <= stale) IS TRUE
						AND runner_type <= (SELECT m.runner_type
							FROM ci_runner_machines m
							WHERE m.contacted_at IS NULL AND m.id = edge.id AND (m.created_at <= stale) IS TRUE
							ORDER BY m.runner_type DESC OFFSET edge.tied - 1 LIMIT 1);
				GET DIAGNOSTICS deleted = ROW_COUNT;
				edge.id := edge.id - 1;
			END IF;
			DELETE FROM ci_runner_machines
				WHERE contacted_at IS NULL AND id > last_id AND id <= edge.id AND (created_at <= stale) IS TRUE;
			GET DIAGNOSTICS n = ROW_COUNT;
			deleted := deleted + n;
			never_done := edge.tied = 0;
			last_id := CASE WHEN never_done THEN lowest_id ELSE edge.id END;
		END IF;

		IF never_done AND deleted < b.size THEN
			SELECT pg_catalog.count(*) AS tied, coalesce(pg_catalog.max(m.contacted_at), stale) AS contacted_at, coalesce(pg_catalog.max(m.id), highest_id) AS id INTO edge
				FROM (SELECT contacted_at, id
					FROM ci_runner_machines
					WHERE (contacted_at, id) > (last_at, last_id) AND contacted_at <= stale AND (created_at <= stale) IS TRUE
					ORDER BY contacted_at, id
					OFFSET b.size - 1 - deleted FETCH FIRST 1 ROW WITH TIES) AS m;
			IF edge.tied > 1 THEN
				DELETE FROM ci_runner_machines
					WHERE contacted_at = edge.contacted_at AND id = edge.id AND (created_at <= stale) IS TRUE
						AND runner_type <= (SELECT m.runner_type
							FROM ci_runner_machines m
							WHERE m.contacted_at = edge.contacted_at AND m.id = edge.id AND (m.created_at <= stale) IS TRUE
							ORDER BY m.runner_type DESC OFFSET edge.tied - 1 LIMIT 1);
				GET DIAGNOSTICS n = ROW_COUNT;
				deleted := deleted + n;
				edge.id := edge.id - 1;
			END IF;
			DELETE FROM ci_runner_machines
				WHERE (contacted_at, id) > (last_at, last_id) AND (contacted_at, id) <= (edge.contacted_at, edge.id)
					AND contacted_at <= stale AND (created_at <= stale) IS TRUE;
			GET DIAGNOSTICS n = ROW_COUNT;
			deleted := deleted + n;
			last_at := edge.contacted_at;
			last_id := edge.id;
		END IF;
		PERFORM pg_catalog.set_config('lock_timeout', waits, true);
	EXCEPTION WHEN lock_not_available THEN
		IF b.size > 1 THEN
			RAISE;
		END IF;
		-- The variables still have the values of the machine that was found.
		locked := 1;
		IF never_done THEN
			last_at := edge.contacted_at;
		END IF;
		last_id := edge.id;
	END;

	-- If all machines of a full batch have made contact meanwhile, or are gone, the run has not drained.
	RETURN ROW(CASE WHEN edge.tied > 0 THEN greatest(deleted, 1) ELSE deleted END,
		CASE WHEN never_done THEN pg_catalog.jsonb_build_object('contacted_at', last_at, 'id', last_id)
			ELSE pg_catalog.jsonb_build_object('id', last_id) END,
		CASE WHEN locked IS NULL THEN pg_catalog.jsonb_build_object('status', 'success', 'total_deleted', deleted,
				'batch_counts', pg_catalog.jsonb_build_array(deleted))
			ELSE pg_catalog.jsonb_build_object('status', 'success', 'total_deleted', 0, 'batch_counts', '[]'::pg_catalog.jsonb, 'locked', locked) END);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.ci_runners_stale_machines_cleanup(sweep.batch) IS 'step of the job ci_runners_stale_machines_cleanup: deletes runner machines that are silent for too long';

CREATE FUNCTION sweep_gitlab.create_ci_runners_stale_machines_cleanup(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job('ci_runners_stale_machines_cleanup',
		step => 'sweep_gitlab.ci_runners_stale_machines_cleanup', args => '{"stale_after": "7 days"}' || args,
		schedule => '36 * * * *', timezone => 'UTC',
		batch_size => 100, max_rows => 1000, timeout => '30 min',
		description => 'GitLab: deletes runner machines that are silent for too long')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_runners_stale_machines_cleanup(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';
--
-- GitLab: sends a message for each project with git refs to delete.
--
-- Purpose    Deletions of refs are collected in a table; a worker per project
--            executes them in bulk.  This job finds projects with deletions.
-- Predicate  status = 1 (pending).
-- Order      the distinct project_id, ascending.  After a run that was stopped
--            by a limit, the next one begins after its last project and wraps
--            around, so that projects with high ids are reached, too.
-- Effect     one message {"project_id"} each in the queue
--            batched_git_ref_updates_project_cleanup, with the id as key:
--            while a message for a project waits, no other one is queued.
--            detail {"total_projects"}.
-- Done when  every project was read once: at the highest id, or after the wrap
--            at the place where the run began.
-- Args       schema, table: p_batched_git_ref_updates_deletions, or
--            batched_git_ref_updates_deletions in an older GitLab.
--
-- The cursor has the position of the run, where it began and whether it has
-- wrapped.  A run only uses the position in the cursor of an earlier run, as its
-- beginning.  The job keeps its cursor for that; the engine discards it when a run
-- has drained.
--
-- The distinct ids come from a loose index scan: for each id the next higher one
-- is looked up in the index, so the cost depends on the number of projects and not
-- of refs.  The statement is there twice, for both names of the table;
-- environments_auto_stop.sql says why it is static.
--
CREATE FUNCTION sweep_gitlab.batched_git_ref_updates_cleanup_scheduler(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	lowest_id constant bigint := -9223372036854775808;
	highest_id constant bigint := 9223372036854775807;
	partitioned boolean := b.args ->> 'table' = 'p_batched_git_ref_updates_deletions';
	same_run boolean := (b.cursor ->> 'run_id')::bigint IS NOT DISTINCT FROM b.run_id;
	last_id bigint := coalesce((b.cursor ->> 'project_id')::bigint, lowest_id);
	began_at bigint := b.cursor ->> CASE WHEN same_run THEN 'began_at' ELSE 'project_id' END;
	wrapped boolean := same_run AND b.cursor ? 'wrapped';
	upto bigint := CASE WHEN wrapped THEN began_at ELSE highest_id END;
	ids bigint[];
	payloads pg_catalog.jsonb[];
	n bigint;
BEGIN
	IF NOT same_run THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.batched_git_ref_updates_cleanup_scheduler', b.args);
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	-- "upto" is checked outside of the look-up, where the index scan would compare every entry of a page with it.
	LOOP
		IF partitioned THEN
			WITH RECURSIVE pending AS (
				(SELECT d.project_id
					FROM p_batched_git_ref_updates_deletions AS d
					WHERE d.status = 1 AND d.project_id > last_id
					ORDER BY d.project_id
					LIMIT 1)
				UNION ALL
				SELECT (SELECT d.project_id
						FROM p_batched_git_ref_updates_deletions AS d
						WHERE d.status = 1 AND d.project_id > p.project_id
						ORDER BY d.project_id
						LIMIT 1)
					FROM pending AS p
					WHERE p.project_id <= upto)
			SELECT pg_catalog.array_agg(p.project_id), pg_catalog.array_agg(pg_catalog.jsonb_build_object('project_id', p.project_id))
				INTO ids, payloads
				FROM (SELECT project_id FROM pending WHERE project_id <= upto LIMIT b.size) AS p;
		ELSE
			WITH RECURSIVE pending AS (
				(SELECT d.project_id
					FROM batched_git_ref_updates_deletions AS d
					WHERE d.status = 1 AND d.project_id > last_id
					ORDER BY d.project_id
					LIMIT 1)
				UNION ALL
				SELECT (SELECT d.project_id
						FROM batched_git_ref_updates_deletions AS d
						WHERE d.status = 1 AND d.project_id > p.project_id
						ORDER BY d.project_id
						LIMIT 1)
					FROM pending AS p
					WHERE p.project_id <= upto)
			SELECT pg_catalog.array_agg(p.project_id), pg_catalog.array_agg(pg_catalog.jsonb_build_object('project_id', p.project_id))
				INTO ids, payloads
				FROM (SELECT project_id FROM pending WHERE project_id <= upto LIMIT b.size) AS p;
		END IF;
		EXIT WHEN ids IS NOT NULL OR wrapped OR began_at IS NULL;
		wrapped := true;
		last_id := lowest_id;
		upto := began_at;
	END LOOP;

	n := coalesce(pg_catalog.cardinality(ids), 0);
	IF n > 0 THEN
		PERFORM sweep.send_many('batched_git_ref_updates_project_cleanup', payloads, ids::pg_catalog.text[]);
		last_id := ids[n];
	END IF;
	RETURN ROW(n,
		pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('run_id', b.run_id, 'project_id', last_id,
			'began_at', began_at, 'wrapped', CASE WHEN wrapped THEN true END)),
		pg_catalog.jsonb_build_object('total_projects', n));
END
$$;
COMMENT ON FUNCTION sweep_gitlab.batched_git_ref_updates_cleanup_scheduler(sweep.batch) IS 'step of the job batched_git_ref_updates_cleanup_scheduler: queues projects with pending deletions of git refs';

CREATE FUNCTION sweep_gitlab.create_batched_git_ref_updates_cleanup_scheduler(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job('batched_git_ref_updates_cleanup_scheduler',
		step => 'sweep_gitlab.batched_git_ref_updates_cleanup_scheduler', args => args,
		schedule => '* * * * *', timezone => 'UTC',
		batch_size => 100, max_rows => 10000, cursor => 'drain',
		lock_key => 'BatchedGitRefUpdates::CleanupSchedulerService', timeout => '10 min', lock_retries => 0,
		description => 'GitLab: hands on projects with pending deletions of git refs')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_batched_git_ref_updates_cleanup_scheduler(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';
--
-- GitLab: lists of expired artifacts, one per share, by which one share reads for all.
--
-- Used by ci_bulk_delete_job_artifacts.sql, whose header says why. Lists belong to a role, a table and a number of shares. A row
-- of artifact_position says how far the table has been read; the share that reads locks this row until the end of its batch. A
-- batch in a list is a row. The transaction that handles the batch deletes this row, so a rollback restores it.
--
-- The rows may be lost: after a crash both tables are empty, and reading begins again.
--
CREATE UNLOGGED TABLE sweep_gitlab.artifact_list (
	role_id       oid NOT NULL,
	table_id      oid NOT NULL,
	buckets       int NOT NULL,
	bucket        int NOT NULL,
	list_id       bigint GENERATED ALWAYS AS IDENTITY,
	is_last       boolean NOT NULL,
	partition_ids bigint[] NOT NULL,
	places        tid[] NOT NULL,
	PRIMARY KEY (role_id, table_id, buckets, bucket, list_id)
);
COMMENT ON TABLE sweep_gitlab.artifact_list IS 'places of artifacts that a share has read for all shares, one row for each batch; the rows may be lost';
COMMENT ON COLUMN sweep_gitlab.artifact_list.role_id IS 'role of the job';
COMMENT ON COLUMN sweep_gitlab.artifact_list.table_id IS 'table of the artifacts';
COMMENT ON COLUMN sweep_gitlab.artifact_list.buckets IS 'number of shares for which it was read';
COMMENT ON COLUMN sweep_gitlab.artifact_list.bucket IS 'the share that deletes them';
COMMENT ON COLUMN sweep_gitlab.artifact_list.list_id IS 'order within a bucket';
COMMENT ON COLUMN sweep_gitlab.artifact_list.is_last IS 'whether it is the last row that was read for this bucket at that time';
COMMENT ON COLUMN sweep_gitlab.artifact_list.partition_ids IS 'partition_id of each artifact';
COMMENT ON COLUMN sweep_gitlab.artifact_list.places IS 'place (ctid) of each artifact in its partition when it was read';

CREATE UNLOGGED TABLE sweep_gitlab.artifact_position (
	role_id   oid NOT NULL,
	table_id  oid NOT NULL,
	buckets   int NOT NULL,
	read_from timestamptz NOT NULL DEFAULT '-infinity',
	drained   boolean NOT NULL DEFAULT false,
	PRIMARY KEY (role_id, table_id, buckets)
);
COMMENT ON TABLE sweep_gitlab.artifact_position IS 'how far artifacts have been read for all shares; the share that reads holds a lock on the row';
COMMENT ON COLUMN sweep_gitlab.artifact_position.role_id IS 'role of the job';
COMMENT ON COLUMN sweep_gitlab.artifact_position.table_id IS 'table of the artifacts';
COMMENT ON COLUMN sweep_gitlab.artifact_position.buckets IS 'number of shares';
COMMENT ON COLUMN sweep_gitlab.artifact_position.read_from IS 'expire_at from which on artifacts are read next; all that expire at the same time are read together';
COMMENT ON COLUMN sweep_gitlab.artifact_position.drained IS 'whether nothing was left to read: the next run begins at the start';

-- ------------------------------------------------------------------ the lists
CREATE FUNCTION sweep_gitlab._take_artifacts(caller oid, table_id oid, buckets int, bucket int, after bigint, size int) RETURNS sweep_gitlab.artifact_list
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	taken sweep_gitlab.artifact_list;
BEGIN
	SELECT l.* INTO taken FROM sweep_gitlab.artifact_list AS l
		WHERE l.role_id = caller AND l.table_id = _take_artifacts.table_id AND l.buckets = _take_artifacts.buckets
			AND l.bucket = _take_artifacts.bucket AND l.list_id > after
		ORDER BY l.list_id LIMIT 1 FOR UPDATE SKIP LOCKED;
	IF pg_catalog.cardinality(taken.places) <= size THEN
		DELETE FROM sweep_gitlab.artifact_list AS l WHERE l.role_id = caller AND l.table_id = taken.table_id AND l.buckets = taken.buckets
			AND l.bucket = taken.bucket AND l.list_id = taken.list_id;
	ELSIF FOUND THEN
		-- The row was read for larger batches; its rest stays in the list, and is found by the number before it.
		UPDATE sweep_gitlab.artifact_list AS l SET partition_ids = l.partition_ids[size + 1:], places = l.places[size + 1:]
			WHERE l.role_id = caller AND l.table_id = taken.table_id AND l.buckets = taken.buckets
				AND l.bucket = taken.bucket AND l.list_id = taken.list_id;
		taken.partition_ids := taken.partition_ids[:size];
		taken.places := taken.places[:size];
		taken.is_last := false;
		taken.list_id := taken.list_id - 1;
	END IF;
	RETURN taken;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._take_artifacts(oid, oid, int, int, bigint, int) IS 'implements sweep_gitlab.take_artifacts';

CREATE FUNCTION sweep_gitlab.take_artifacts(table_id oid, buckets int, bucket int, after bigint, size int) RETURNS sweep_gitlab.artifact_list
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.take_artifacts(oid, int, int, bigint, int) IS 'takes the next batch, after the given number, from the list of a bucket; NULL when there is none, or all are locked';

-- Returns where reading begins ("from"), and whether the share reads for all shares or for itself ("for"). With another value of "for" it
-- does not read: another share reads, or has just read for this bucket. A share that reads for all keeps the lock until its commit.
CREATE FUNCTION sweep_gitlab._start_reading(caller oid, table_id oid, buckets int, bucket int, after bigint, first boolean, wait boolean) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
AS $$
#variable_conflict use_column
DECLARE
	-- Maximal number of batches in lists. Without it, reading for all would make the lists longer and longer while no share takes
	-- batches of other buckets.
	longest constant int := 2000;
	position sweep_gitlab.artifact_position;
	of_table constant pg_catalog.oid := _start_reading.table_id;
	of_buckets constant int := _start_reading.buckets;
BEGIN
	SELECT * INTO position FROM sweep_gitlab.artifact_position
		WHERE role_id = caller AND table_id = of_table AND buckets = of_buckets FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		IF NOT wait THEN
			RETURN '{"for": "nobody"}';
		END IF;
		BEGIN
			INSERT INTO sweep_gitlab.artifact_position (role_id, table_id, buckets) VALUES (caller, of_table, of_buckets)
				ON CONFLICT DO NOTHING;
			SELECT * INTO position FROM sweep_gitlab.artifact_position
				WHERE role_id = caller AND table_id = of_table AND buckets = of_buckets FOR UPDATE;
			IF NOT FOUND THEN -- a restart with another number of buckets has just removed it
				RETURN '{"for": "nobody"}';
			END IF;
		EXCEPTION WHEN lock_not_available THEN
			SELECT * INTO position FROM sweep_gitlab.artifact_position
				WHERE role_id = caller AND table_id = of_table AND buckets = of_buckets;
			-- This share begins at the start if everything was drained, as the reading share does, or if its own lists are locked.
			RETURN pg_catalog.jsonb_build_object('for', 'self', 'from', CASE WHEN position.drained IS NOT FALSE OR EXISTS (
				SELECT FROM sweep_gitlab.artifact_list WHERE role_id = caller AND table_id = of_table
					AND buckets = of_buckets AND bucket = _start_reading.bucket AND list_id > after) THEN '-infinity' ELSE position.read_from END);
		END;
	END IF;
	IF EXISTS (SELECT FROM sweep_gitlab.artifact_list WHERE role_id = caller AND table_id = of_table
			AND buckets = of_buckets AND bucket = _start_reading.bucket AND list_id > after FOR UPDATE SKIP LOCKED) THEN
		RETURN '{"for": "nobody"}';
	END IF;
	IF position.drained AND first THEN
		-- Removes lists and positions for other numbers of shares.
		WITH other AS (
			DELETE FROM sweep_gitlab.artifact_position WHERE ctid = ANY (ARRAY(
				SELECT o.ctid FROM sweep_gitlab.artifact_position o
				WHERE o.role_id = caller AND o.table_id = of_table AND o.buckets <> of_buckets FOR UPDATE SKIP LOCKED))
			RETURNING buckets
		)
		DELETE FROM sweep_gitlab.artifact_list WHERE ctid = ANY (ARRAY(
			SELECT o.ctid FROM sweep_gitlab.artifact_list o WHERE o.role_id = caller AND o.table_id = of_table
				AND (o.buckets = of_buckets OR o.buckets IN (SELECT other.buckets FROM other)) FOR UPDATE SKIP LOCKED));
		RETURN '{"for": "all", "from": "-infinity"}';
	END IF;
	-- Another share has locked the lists of this bucket: its artifacts are searched in the table.
	IF EXISTS (SELECT FROM sweep_gitlab.artifact_list WHERE role_id = caller AND table_id = of_table
			AND buckets = of_buckets AND bucket = _start_reading.bucket AND list_id > after) THEN
		RETURN '{"for": "self", "from": "-infinity"}';
	END IF;
	IF (SELECT pg_catalog.count(*) FROM (SELECT FROM sweep_gitlab.artifact_list WHERE role_id = caller AND table_id = of_table
			AND buckets = of_buckets LIMIT longest) AS l) = longest THEN
		RETURN pg_catalog.jsonb_build_object('for', 'self', 'from', position.read_from);
	END IF;
	RETURN pg_catalog.jsonb_build_object('for', 'all', 'from', position.read_from);
END
$$;
COMMENT ON FUNCTION sweep_gitlab._start_reading(oid, oid, int, int, bigint, boolean, boolean) IS 'implements sweep_gitlab.start_reading';

CREATE FUNCTION sweep_gitlab.start_reading(table_id oid, buckets int, bucket int, after bigint, first boolean, wait boolean) RETURNS jsonb
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.start_reading(oid, int, int, bigint, boolean, boolean) IS 'where a share that has no list left begins to read, and for which shares';

CREATE FUNCTION sweep_gitlab._list_artifacts(caller oid, table_id oid, buckets int, size int, read_from timestamptz, for_all boolean,
	bucket_of int[], partition_of bigint[], place_of tid[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	UPDATE sweep_gitlab.artifact_position AS p
		SET read_from = coalesce(_list_artifacts.read_from, p.read_from), drained = _list_artifacts.read_from IS NULL
		WHERE for_all AND p.role_id = caller AND p.table_id = _list_artifacts.table_id AND p.buckets = _list_artifacts.buckets;
	INSERT INTO sweep_gitlab.artifact_list (role_id, table_id, buckets, bucket, is_last, partition_ids, places)
		SELECT caller, _list_artifacts.table_id, _list_artifacts.buckets, a.bucket, pg_catalog.max(a.nth) = a.of_bucket,
			pg_catalog.array_agg(a.partition_id), pg_catalog.array_agg(a.place)
		FROM (SELECT bucket, partition_id, place, pg_catalog.row_number() OVER (PARTITION BY bucket ORDER BY nth) AS nth, pg_catalog.count(*) OVER (PARTITION BY bucket) AS of_bucket
			FROM unnest(bucket_of, partition_of, place_of) WITH ORDINALITY AS r (bucket, partition_id, place, nth)) AS a
		GROUP BY a.bucket, a.of_bucket, (a.nth - 1) / size
		ORDER BY a.bucket, pg_catalog.min(a.nth);
END
$$;
COMMENT ON FUNCTION sweep_gitlab._list_artifacts(oid, oid, int, int, timestamptz, boolean, int[], bigint[], tid[]) IS 'implements sweep_gitlab.list_artifacts';

CREATE FUNCTION sweep_gitlab.list_artifacts(table_id oid, buckets int, size int, read_from timestamptz, for_all boolean,
	bucket_of int[], partition_of bigint[], place_of tid[]) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.list_artifacts(oid, int, int, timestamptz, boolean, int[], bigint[], tid[]) IS
	'lists artifacts that were read, for all shares or for one; read_from: where the next reading begins, NULL: nothing was left to read';
--
-- GitLab: job artifacts that have expired are deleted, by several shares at once.
--
-- Purpose    Artifacts are most of what a GitLab stores; each has a time when it expires.
--            ci_schedule_bulk_delete_job_artifacts, every 5 minutes, recovers the
--            buckets and starts shares of ci_bulk_delete_expired_job_artifacts.
-- Predicate  expire_at < as_of AND file_type <> 3 (trace) AND locked = 0 (unlocked)
--            AND mod(project_id + job_id, buckets) = bucket.  Strict; NULL never
--            expires, -infinity has.  Left out: projects whose artifact size is
--            being recounted.
-- Order      expire_at, the longest expired first.
-- Effect     DELETE; for each deleted row that has a file, a
--            row in ci_deleted_objects, from which GitLab removes the file; a message
--            {"project_id", "bytes", "count"} for each project of the batch in the
--            queue ci_artifact_statistics.
-- Done when  no expired artifact is left to read, and those that were read are gone.
-- Args       schema, table: p_ci_job_artifacts, or ci_job_artifacts in an older GitLab;
--            refresh_states: states of project_build_artifacts_size_refreshes in which
--            a project is left alone; buckets, and buckets_high while the feature
--            bulk_delete_job_artifacts_high_concurrency is on.
--
-- No index has the bucket of an artifact. With a filter, each share would read the artifacts of all others. Instead one of them
-- reads for all: it reads the index on expire_at from where the last one stopped, some batches for each bucket at a time, and
-- adds the places of the rows (partition and ctid) to the list of their bucket. A share takes a batch from the list of its
-- bucket; it reads on when that was the last one, or when there was none. N shares together read as much as one.
--
-- A list is only a hint: the DELETE repeats the whole predicate, and any row that is at a place and meets it may be deleted, even
-- if it is another row by now. Therefore lists can be unlogged, and rows that are left by a crash, a rollback or a second list of
-- the same artifacts do no harm. An artifact that becomes deletable before the place where reading has stopped, for example
-- because it is unlocked, is found by the next pass: the first run after one that has drained reads from the start again.
--
-- No share waits for one that hangs. When others have locked its lists, or the position, a share reads for itself alone, with the
-- filter: a lock that it does not get does not mean that the bucket is empty. Rows that are locked are left to the next pass, and
-- counted as locked in the detail of the run. A batch that has found only such rows for ten seconds is committed, as one row
-- handled, so that the run goes on from there and does not begin with these rows again. An artifact that cannot be deleted is
-- left, too: it is logged, and counted as failed.
--
-- See environments_auto_stop.sql for the way the table is addressed.
--
-- mod(project_id + job_id, buckets), also if the sum, of two numbers of the same sign, exceeds a bigint. Negative sums belong to
-- no share, as in GitLab. Without SET clause, so that the planner can inline it.
CREATE FUNCTION sweep_gitlab.artifact_bucket(project_id bigint, job_id bigint, buckets int) RETURNS int
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN CASE WHEN (project_id < 0) = (job_id < 0) THEN pg_catalog.mod(pg_catalog.mod(project_id, buckets::bigint) + pg_catalog.mod(job_id, buckets::bigint), buckets::bigint)
		ELSE pg_catalog.mod(project_id + job_id, buckets::bigint) END;
COMMENT ON FUNCTION sweep_gitlab.artifact_bucket(bigint, bigint, int) IS 'the share to which an artifact belongs; the planner inlines it';

CREATE FUNCTION sweep_gitlab.read_artifacts(b sweep.batch, bucket int, buckets int, read_from timestamptz, for_all boolean, refreshing bigint[],
	OUT next_from timestamptz, OUT bucket_of int[], OUT partition_of bigint[], OUT place_of tid[])
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	-- batches for each bucket
	at_once constant int := 10;
	-- at most that many times as much when many expire at the same time; the next pass finds the others
	most_tied constant int := 100;
	most constant bigint := b.size::bigint * at_once * CASE WHEN for_all THEN buckets ELSE 1 END;
	-- the first timestamp after -infinity
	earliest constant pg_catalog.timestamptz := '4714-11-24 00:00Z BC';
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	SELECT pg_catalog.max(greatest(expire_at + '1 microsecond'::interval, earliest)), pg_catalog.array_agg(in_bucket), pg_catalog.array_agg(partition_id), pg_catalog.array_agg(place)
		INTO next_from, bucket_of, partition_of, place_of
		FROM (SELECT * FROM (SELECT expire_at, sweep_gitlab.artifact_bucket(project_id, job_id, buckets) AS in_bucket, partition_id, ctid AS place
			FROM p_ci_job_artifacts
			WHERE locked = 0 AND file_type <> 3 AND expire_at >= read_from AND expire_at < b.as_of AND project_id <> ALL (refreshing)
				AND CASE WHEN for_all THEN sweep_gitlab.artifact_bucket(project_id, job_id, buckets) >= 0
					ELSE sweep_gitlab.artifact_bucket(project_id, job_id, buckets) = bucket END
			ORDER BY expire_at
			FETCH FIRST (most) ROWS WITH TIES) AS tied FETCH FIRST (most * most_tied) ROWS ONLY) AS artifact;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.read_artifacts(sweep.batch, int, int, timestamptz, boolean, bigint[]) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: where the next expired artifacts are, of all buckets or of one';

CREATE FUNCTION sweep_gitlab.delete_artifacts(b sweep.batch, bucket int, buckets int, partition bigint, places tid[], refreshing bigint[], is_part boolean)
	RETURNS jsonb[]
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = off SET lock_timeout = '100ms'
AS $$
DECLARE
	-- all other values, also NULL, mean a hashed path
	legacy_path constant smallint := 1;
	statistics pg_catalog.jsonb[];
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	IF is_part THEN -- a part of rows that could not be deleted together, as one of them may be locked
		PERFORM pg_catalog.set_config('lock_timeout', '2ms', true);
	END IF;
	BEGIN
		WITH deleted AS (
			DELETE FROM p_ci_job_artifacts
				WHERE partition_id = partition AND ctid = ANY (places)
					AND locked = 0 AND file_type <> 3 AND expire_at < b.as_of
					AND sweep_gitlab.artifact_bucket(project_id, job_id, buckets) = bucket AND project_id <> ALL (refreshing)
				RETURNING id, project_id, job_id, size, created_at, expire_at, file_store, file_location,
					nullif(file_final_path, ''::pg_catalog.text) AS final_path, nullif(file::pg_catalog.text, ''::pg_catalog.text) AS file_name
		), stored AS (
			SELECT *, coalesce(pg_catalog.regexp_replace(final_path, '^.*/'::pg_catalog.text, ''::pg_catalog.text), file_name) AS file,
				pg_catalog.encode(pg_catalog.sha256(project_id::pg_catalog.text::pg_catalog.bytea), 'hex'::pg_catalog.text) AS hex
			FROM deleted
		), queued AS (
			INSERT INTO ci_deleted_objects (file_store, project_id, store_dir, file, pick_up_at)
				SELECT file_store::smallint, project_id,
					CASE
						WHEN final_path IS NULL AND file_location = legacy_path THEN pg_catalog.format('%s/%s/%s'::pg_catalog.text,
							pg_catalog.to_char(created_at AT TIME ZONE 'UTC'::pg_catalog.text, 'YYYY_MM'::pg_catalog.text), project_id, job_id)
						WHEN final_path IS NULL THEN pg_catalog.format('%s/%s/%s/%s/%s/%s'::pg_catalog.text, pg_catalog.substr(hex, 1, 2), pg_catalog.substr(hex, 3, 2), hex,
							pg_catalog.to_char(created_at AT TIME ZONE 'UTC'::pg_catalog.text, 'YYYY_MM_DD'::pg_catalog.text), job_id, id)
						WHEN pg_catalog.strpos(final_path, '/'::pg_catalog.text) = 0 THEN '.'::pg_catalog.text
						ELSE pg_catalog.regexp_replace(final_path, '/[^/]*$'::pg_catalog.text, ''::pg_catalog.text)
					END,
					file, greatest(least(expire_at, b.as_of + '1 hour'::interval), b.as_of - '1 day'::interval)
				FROM stored
				WHERE file <> ''::pg_catalog.text
		)
		SELECT pg_catalog.array_agg(pg_catalog.jsonb_build_object('project_id', project_id, 'bytes', bytes, 'count', rows)) INTO statistics
			FROM (SELECT project_id, coalesce(pg_catalog.sum(size), 0::numeric) AS bytes, pg_catalog.count(*) AS rows FROM deleted GROUP BY project_id) AS project;
		RETURN statistics;
	EXCEPTION WHEN OTHERS THEN
		-- Missing rights or tables, lacking resources of the server, and conflicts of transactions are not errors of an artifact.
		IF SQLSTATE ~ '^(25|40|42|53|57|58|XX)' THEN
			RAISE;
		END IF;
		IF pg_catalog.cardinality(places) = 1 THEN
			IF SQLSTATE = '55P03' THEN
				RETURN ARRAY[pg_catalog.jsonb_build_object('locked', 1)];
			END IF;
			RAISE WARNING 'artifact % cannot be deleted: %',
				(SELECT pg_catalog.min(id) FROM p_ci_job_artifacts WHERE partition_id = partition AND ctid = ANY (places)), SQLERRM;
			RETURN ARRAY[pg_catalog.jsonb_build_object('failed', 1)];
		END IF;
	END;
	-- Tries both halves, until an artifact that is locked or cannot be deleted is alone.
	RETURN sweep_gitlab.delete_artifacts(b, bucket, buckets, partition, places[:pg_catalog.cardinality(places) / 2], refreshing, true)
		|| sweep_gitlab.delete_artifacts(b, bucket, buckets, partition, places[pg_catalog.cardinality(places) / 2 + 1:], refreshing, true);
END
$$;
COMMENT ON FUNCTION sweep_gitlab.delete_artifacts(sweep.batch, int, int, bigint, tid[], bigint[], boolean) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: deletes the expired ones of these artifacts of a partition, and returns statistics for each project';

-- listed: whether the list may have new rows. Without "wait" it does nothing when another share reads.
CREATE FUNCTION sweep_gitlab.read_on(b sweep.batch, table_id oid, bucket int, buckets int, refreshing bigint[], after bigint,
	first boolean, wait boolean, INOUT own_from timestamptz, OUT listed boolean)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	reader pg_catalog.jsonb := sweep_gitlab.start_reading(table_id, buckets, bucket, after, first, wait);
	for_all boolean := reader ->> 'for' = 'all';
	read pg_catalog.record;
BEGIN
	listed := true;
	IF for_all OR wait AND reader ->> 'for' = 'self' THEN
		read := sweep_gitlab.read_artifacts(b, bucket, buckets, CASE WHEN for_all THEN (reader ->> 'from')::pg_catalog.timestamptz
			ELSE greatest(own_from, (reader ->> 'from')::pg_catalog.timestamptz) END, for_all, refreshing);
		PERFORM sweep_gitlab.list_artifacts(table_id, buckets, b.size, read.next_from, for_all, read.bucket_of, read.partition_of, read.place_of);
		listed := read.next_from IS NOT NULL;
		own_from := CASE WHEN for_all THEN own_from ELSE coalesce(read.next_from, own_from) END;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep_gitlab.read_on(sweep.batch, oid, int, int, bigint[], bigint, boolean, boolean, timestamptz) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: a share reads on for all shares, or for itself when another one reads for all';

CREATE FUNCTION sweep_gitlab.refreshing_projects(b sweep.batch) RETURNS bigint[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF pg_catalog.to_regclass(pg_catalog.format('%I.project_build_artifacts_size_refreshes', b.args ->> 'schema')) IS NULL THEN
		RETURN '{}';
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);
	RETURN ARRAY(SELECT project_id FROM project_build_artifacts_size_refreshes WHERE b.args -> 'refresh_states'::pg_catalog.text @> pg_catalog.to_jsonb(state));
END
$$;
COMMENT ON FUNCTION sweep_gitlab.refreshing_projects(sweep.batch) IS
	'part of the step of ci_bulk_delete_expired_job_artifacts: projects whose artifact size is being recounted';

CREATE FUNCTION sweep_gitlab.ci_bulk_delete_expired_job_artifacts(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	buckets constant int := coalesce(b.buckets, 1);
	bucket constant int := coalesce(b.bucket, 0);
	table_id constant pg_catalog.oid := pg_catalog.format('%I.%I', b.args ->> 'schema', b.args ->> 'table')::pg_catalog.regclass;
	refreshing constant bigint[] := sweep_gitlab.refreshing_projects(b);
	began constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	last_list bigint := coalesce((b.cursor ->> 'list')::bigint, 0);
	own_from pg_catalog.timestamptz := coalesce(b.cursor ->> 'expire_at', '-infinity');
	first boolean := b.cursor IS NULL;
	list sweep_gitlab.artifact_list;
	read_on pg_catalog.record;
	partition bigint;
	statistics pg_catalog.jsonb[] := '{}';
	rows bigint := 0;
	detail pg_catalog.jsonb;
BEGIN
	IF first THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.ci_bulk_delete_expired_job_artifacts', b.args);
	END IF;
	IF pg_catalog.to_regclass(pg_catalog.format('%I.ci_deleted_objects', b.args ->> 'schema')) IS NULL THEN
		RAISE EXCEPTION 'table "%.ci_deleted_objects" does not exist', b.args ->> 'schema'
			USING ERRCODE = 'undefined_table', DETAIL = 'Nothing was deleted: nobody would remove the files of the artifacts.',
				HINT = 'It is a table of GitLab, in the same schema as its artifacts.';
	END IF;

	WHILE rows = 0 LOOP
		list := sweep_gitlab.take_artifacts(table_id, buckets, bucket, last_list, b.size);
		IF list.list_id IS NULL THEN
			read_on := sweep_gitlab.read_on(b, table_id, bucket, buckets, refreshing, last_list, first, true, own_from);
			first := false;
			own_from := read_on.own_from;
			CONTINUE WHEN read_on.listed;
			-- Lists that another share has made for all, while this one read for itself, have lower numbers than its own.
			IF own_from > '-infinity' THEN
				list := sweep_gitlab.take_artifacts(table_id, buckets, bucket, 0, b.size);
			END IF;
			EXIT WHEN list.list_id IS NULL;
		END IF;
		last_list := list.list_id;
		FOR partition IN SELECT DISTINCT p FROM pg_catalog.unnest(list.partition_ids) AS p ORDER BY p LOOP
			statistics := statistics || sweep_gitlab.delete_artifacts(b, bucket, buckets, partition,
				ARRAY(SELECT l.place FROM unnest(list.partition_ids, list.places) AS l (p, place) WHERE l.p = partition), refreshing, false);
		END LOOP;
		rows := coalesce((SELECT pg_catalog.sum((s -> 'count')::bigint) FROM pg_catalog.unnest(statistics) AS s), 0);
		EXIT WHEN pg_catalog.clock_timestamp() > began + interval '10 s';
	END LOOP;

	detail := (SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('failed', pg_catalog.sum((s -> 'failed')::int), 'locked', pg_catalog.sum((s -> 'locked')::int)))
		FROM pg_catalog.unnest(statistics) AS s);
	IF rows > 0 THEN
		PERFORM sweep.send_many('ci_artifact_statistics', pg_catalog.array_agg(pg_catalog.jsonb_build_object('project_id', p.project_id, 'bytes', p.bytes, 'count', p.count)))
			FROM (SELECT s -> 'project_id' AS project_id, pg_catalog.sum((s -> 'bytes')::numeric) AS bytes, pg_catalog.sum((s -> 'count')::bigint) AS count
				FROM pg_catalog.unnest(statistics) AS s WHERE s ? 'project_id' GROUP BY 1) AS p;
	END IF;
	-- The list is used up. Reading for all at the end of a batch keeps the lock only for a short time.
	IF list.is_last THEN
		PERFORM sweep_gitlab.read_on(b, table_id, bucket, buckets, refreshing, last_list, false, false, own_from);
	END IF;
	RETURN ROW(CASE WHEN list.list_id IS NOT NULL THEN greatest(rows, 1) ELSE 0 END, pg_catalog.jsonb_build_object('list', last_list, 'expire_at', own_from), nullif(detail, '{}'));
END
$$;
COMMENT ON FUNCTION sweep_gitlab.ci_bulk_delete_expired_job_artifacts(sweep.batch) IS 'step of the job ci_bulk_delete_expired_job_artifacts: deletes expired artifacts of a share';

-- ------------------------------------------------------------------ the same in ci_job_artifacts
-- The functions for this table are copies of those above, so that their statements are static, too.
DO $$
DECLARE
	original pg_catalog.regprocedure;
	copy pg_catalog.text;
BEGIN
	FOREACH original IN ARRAY ARRAY['sweep_gitlab.read_artifacts(sweep.batch, int, int, timestamptz, boolean, bigint[])',
			'sweep_gitlab.delete_artifacts(sweep.batch, int, int, bigint, tid[], bigint[], boolean)',
			'sweep_gitlab.read_on(sweep.batch, oid, int, int, bigint[], bigint, boolean, boolean, timestamptz)',
			'sweep_gitlab.ci_bulk_delete_expired_job_artifacts(sweep.batch)']::pg_catalog.regprocedure[] LOOP
		-- read_artifacts becomes read_plain_artifacts, and so on
		copy := pg_catalog.pg_get_functiondef(original);
		copy := pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(copy, 'sweep_gitlab.read_artifacts', 'sweep_gitlab.read_plain_artifacts'),
			'sweep_gitlab.delete_artifacts', 'sweep_gitlab.delete_plain_artifacts'), 'sweep_gitlab.read_on', 'sweep_gitlab.read_plain_on'),
			'sweep_gitlab.ci_bulk_delete_expired_job_artifacts',
			'sweep_gitlab.ci_bulk_delete_expired_plain_job_artifacts');
		EXECUTE pg_catalog.regexp_replace(pg_catalog.replace(copy, 'p_ci_job_artifacts', 'ci_job_artifacts'), E'^CREATE OR \\w+', 'CREATE');
	END LOOP;
	FOR original IN SELECT oid FROM pg_catalog.pg_proc WHERE proname ~ '_plain_' AND pronamespace = 'sweep_gitlab'::pg_catalog.regnamespace LOOP
		EXECUTE pg_catalog.format('COMMENT ON FUNCTION %s IS %L', original, 'the same as the function without "plain" in its name, for the table ci_job_artifacts');
	END LOOP;
END
$$;

CREATE FUNCTION sweep_gitlab.artifacts_step(table_name text) RETURNS text
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE table_name WHEN 'p_ci_job_artifacts' THEN 'sweep_gitlab.ci_bulk_delete_expired_job_artifacts'
		WHEN 'ci_job_artifacts' THEN 'sweep_gitlab.ci_bulk_delete_expired_plain_job_artifacts' END
$$;
COMMENT ON FUNCTION sweep_gitlab.artifacts_step(text) IS 'step function for the table with artifacts; sweep_gitlab.install uses it';

-- ------------------------------------------------------------------ the scheduler
INSERT INTO sweep_gitlab.feature_flag (name) VALUES ('bulk_delete_job_artifacts'), ('bulk_delete_job_artifacts_high_concurrency');

-- The current number of buckets; 0: the job does nothing.
CREATE FUNCTION sweep_gitlab.artifact_buckets(b sweep.batch) RETURNS int
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A missing number, or one less than 1, is an error: 0 would mean that the job is switched off.
	SELECT CASE WHEN number >= 0 THEN number
		ELSE (SELECT 0 FROM sweep_gitlab.check_args('sweep_gitlab.ci_bulk_delete_expired_job_artifacts', b.args)) END
	FROM (SELECT CASE
		WHEN NOT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts') THEN 0
		WHEN sweep_gitlab.feature_enabled('bulk_delete_job_artifacts_high_concurrency') THEN nullif((b.args ->> 'buckets_high')::int, 0)
		ELSE nullif((b.args ->> 'buckets')::int, 0) END) AS n (number)
$$;
COMMENT ON FUNCTION sweep_gitlab.artifact_buckets(sweep.batch) IS 'buckets_function of ci_bulk_delete_expired_job_artifacts: the number of buckets according to the feature flags';

-- The engine recovers the buckets of the child job and starts its shares; the batch itself has nothing to do.
CREATE FUNCTION sweep_gitlab.ci_schedule_bulk_delete_job_artifacts(b sweep.batch) RETURNS sweep.progress
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT ROW(0, NULL, NULL)::sweep.progress
$$;
COMMENT ON FUNCTION sweep_gitlab.ci_schedule_bulk_delete_job_artifacts(sweep.batch) IS
	'step of the job ci_schedule_bulk_delete_job_artifacts: does nothing itself; the engine recovers the buckets of its child and starts the shares';

CREATE FUNCTION sweep_gitlab.create_ci_bulk_delete_expired_job_artifacts(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job('ci_bulk_delete_expired_job_artifacts',
		step => sweep_gitlab.artifacts_step(args ->> 'table'),
		args => '{"buckets": 5, "buckets_high": 10, "refresh_states": [2, 3, 4]}' || args,
		batch_size => 100, max_batches => 500, stop_after => '5 min',
		buckets => 10, buckets_function => 'sweep_gitlab.artifact_buckets', bucket_recovery => '10 min',
		bucket_key => 'bulk_delete_expired_job_artifacts',
		description => 'GitLab: deletes job artifacts that have expired')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_bulk_delete_expired_job_artifacts(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';

CREATE FUNCTION sweep_gitlab.create_ci_schedule_bulk_delete_job_artifacts(args jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep.create_job('ci_schedule_bulk_delete_job_artifacts',
		step => 'sweep_gitlab.ci_schedule_bulk_delete_job_artifacts', args => args,
		schedule => '*/5 * * * *', timezone => 'UTC', on_start => '{"ci_bulk_delete_expired_job_artifacts": "0"}',
		description => 'GitLab: keeps the buckets of ci_bulk_delete_expired_job_artifacts and starts its shares')
$$;
COMMENT ON FUNCTION sweep_gitlab.create_ci_schedule_bulk_delete_job_artifacts(jsonb) IS 'creates the job with its limits; sweep_gitlab.install calls it';
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
--
-- GitLab: privileges. Every grant of the extension is here.
--
-- Jobs have the rights of their role, functions those of their caller. A role that may create jobs may call all functions, but it
-- also needs rights on the tables of GitLab. Functions whose names begin with _ are called only by other functions. Feature flags
-- apply to the whole database.
--
SELECT sweep._revoke_foreign_grants('pg_sweep_gitlab');

GRANT USAGE ON SCHEMA sweep_gitlab TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT USAGE ON TYPE sweep_gitlab.stuck TO sweep_admin, sweep_user;
DO $$
DECLARE
	granted pg_catalog.regprocedure;
BEGIN
	FOR granted IN SELECT p.oid FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'sweep_gitlab'::pg_catalog.regnamespace
			AND p.proname NOT LIKE E'\\_%' AND p.proname NOT IN ('enable_feature', 'disable_feature') LOOP
		EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO sweep_admin, sweep_user', granted);
	END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION sweep_gitlab.feature_enabled(text) TO sweep_operator, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep_gitlab.enable_feature(text), sweep_gitlab.disable_feature(text) TO sweep_admin, sweep_operator;

GRANT SELECT ON sweep_gitlab.feature_flag TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT SELECT ON sweep_gitlab.kept_environment TO sweep_admin, sweep_user;
