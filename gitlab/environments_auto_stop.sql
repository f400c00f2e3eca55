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
