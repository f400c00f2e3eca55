--
-- Hooks: runs of other jobs that a run queues when it starts, succeeds or fails, in the commit that records this.
--
-- A run that is tried again has not failed yet: its last attempt decides. A divided job has ended when all shares of
-- a dispatch have ended. Two shares that end at once would each see the other in progress, so a lock (SWEEP_LOCK_ENDING)
-- that is held until the commit lets them end one after the other; see batch.c. The scheduler, which
-- waits for no session, leaves the end of a share to its next tick while another session has that lock.
--
CREATE FUNCTION sweep._try_lock_ending(job text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_lock_try_ending';
COMMENT ON FUNCTION sweep._try_lock_ending(text) IS 'keeps the other shares of a divided job from ending until the transaction ends; false when a share is just ending';

CREATE FUNCTION sweep._may_end(run_id bigint) RETURNS boolean
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce((SELECT sweep._try_lock_ending(j.name) FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _may_end.run_id AND j.buckets IS NOT NULL AND (j.on_success IS NOT NULL OR j.on_failure IS NOT NULL OR sweep._has_ranges(j.name))), true)
$$;
COMMENT ON FUNCTION sweep._may_end(bigint) IS 'whether a run may be ended in this transaction; false when another share of its job is just ending';

-- ------------------------------------------------------------------ args of the queued run
CREATE FUNCTION sweep._hook_of(status text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN status = 'succeeded' THEN 'on_success' WHEN status IN ('failed', 'lost') THEN 'on_failure' ELSE 'on_start' END
$$;
COMMENT ON FUNCTION sweep._hook_of(text) IS 'the hook that queues runs when the run that it belongs to has this status';

CREATE FUNCTION sweep._error_message(error text) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- No regular expression: it fails while a request to cancel is pending, and the outcome would not be recorded.
	SELECT pg_catalog.split_part(pg_catalog.split_part(pg_catalog.split_part(error, E'\nDETAIL: ', 1), E'\nHINT: ', 1), E'\nCONTEXT: ', 1)
$$;
COMMENT ON FUNCTION sweep._error_message(text) IS 'the error of a run without its detail, hint and context';

CREATE FUNCTION sweep._parent_args(job text, run_id bigint, status text, sqlstate text, error text) RETURNS jsonb
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.jsonb_build_object('parent', pg_catalog.jsonb_build_object('job', job, 'run_id', run_id, 'status', status,
		'error', CASE WHEN error IS NOT NULL THEN pg_catalog.jsonb_build_object('sqlstate', sqlstate, 'message', sweep._error_message(error)) END))
$$;
COMMENT ON FUNCTION sweep._parent_args(text, bigint, text, text, text) IS 'args of the runs that a hook queues: what caused them';

-- ------------------------------------------------------------------ queueing
CREATE FUNCTION sweep._ends_chain(hook_depth int) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT hook_depth >= 16
$$;
COMMENT ON FUNCTION sweep._ends_chain(int) IS 'whether a run after so many hooks queues no further run, because a circle of hooks would never end';

CREATE FUNCTION sweep._queue_hooks(run_id bigint, hook text, parent_args jsonb) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	named pg_catalog.record;
	child pg_catalog.record;
	reason pg_catalog.text;
	-- Arrays, because an object would be copied for each name, and the scheduler may call this.
	names pg_catalog.text[] := '{}';
	reasons pg_catalog.text[] := '{}';
	queued boolean := false;
BEGIN
	SELECT l.job, l.run_as, l.status, l.hook_depth, (SELECT s.hook_roles FROM sweep.job_state s WHERE s.job = l.job) AS roles,
			CASE hook WHEN 'on_start' THEN j.on_start WHEN 'on_success' THEN j.on_success ELSE j.on_failure END AS hooks INTO r
		FROM sweep.run_live l JOIN sweep.job_definition j ON j.name = l.job AND j.run_as = l.run_as WHERE l.run_id = _queue_hooks.run_id;
	FOR named IN SELECT h.key AS name, h.value::interval AS delay FROM pg_catalog.jsonb_each_text(r.hooks) AS h ORDER BY h.key LOOP
		SELECT j.name, j.run_as, s.paused_at IS NOT NULL AS paused, sweep._is_home(s.system_identifier, s.database) AS at_home,
				-- The shares were queued before the run began: sweep._divided_children().
				hook = 'on_start' AND r.status = 'running' AND j.buckets IS NOT NULL AND j.run_as = r.run_as AND NOT sweep._has_ranges(j.name) AS divided INTO child
			FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = named.name;
		reason := CASE
			WHEN child.name IS NULL THEN 'it does not exist'
			WHEN child.paused THEN 'it is paused'
			WHEN NOT sweep._has_workers() THEN 'pg_sweep is not loaded at server start'
			WHEN NOT child.at_home THEN 'the database is a copy: its jobs are paused'
			-- Jobs that the role of the parent may not start are left out.
			WHEN NOT sweep._may_act_on(sweep._role_oid(r.run_as), child.run_as, true) THEN 'the role of its parent may not start it'
			-- A job that another role creates under a name that was given up must not be started in place of the old job.
			WHEN child.run_as IS DISTINCT FROM r.roles ->> child.name AND sweep._may_act_on(sweep._role_oid(child.run_as), r.run_as, true) IS NOT TRUE
				THEN pg_catalog.format('it is now of role "%s": sweep.alter_job can name it again', child.run_as)
			WHEN sweep._ends_chain(r.hook_depth) THEN 'the chain of hooks that led to this run is too long' END;
		IF reason IS NOT NULL THEN
			-- If a run succeeds and leaves work, but the job that would continue it is not started, the run has to report this.
			RAISE NOTICE 'job "%" in % of job "%" is not started: %', named.name, hook, r.job, reason;
			names := names || named.name;
			reasons := reasons || reason;
		ELSIF NOT child.divided THEN
			-- A waiting run of this hook is enough. The lock keeps it from beginning before this commit, so that it sees the work.
			PERFORM FROM sweep.run_live w WHERE w.job = child.name AND w.trigger = 'parent' AND w.run_as = child.run_as
				AND w.status = 'waiting' AND w.shares_left IS NULL
				AND w.args #>> '{parent,job}' = r.job AND sweep._hook_of(w.args #>> '{parent,status}') = hook LIMIT 1 FOR SHARE SKIP LOCKED;
			IF NOT FOUND THEN
				INSERT INTO sweep.run_live (job, run_as, args, trigger, due_at, parent_run_id, hook_depth)
					VALUES (child.name, child.run_as, parent_args, 'parent', pg_catalog.clock_timestamp() + named.delay,
						(parent_args #>> '{parent,run_id}')::bigint, r.hook_depth + 1);
				queued := true;
			END IF;
		END IF;
	END LOOP;
	PERFORM sweep._wake() WHERE queued;
	RETURN CASE WHEN names <> '{}' THEN pg_catalog.jsonb_build_object('not_started', pg_catalog.jsonb_object(names, reasons)) END;
END
$$;
COMMENT ON FUNCTION sweep._queue_hooks(bigint, text, jsonb) IS 'queues the runs that a hook of the job of a run names; returns detail for it when some are not started';

CREATE FUNCTION sweep._note_not_started(run_id bigint, found jsonb) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	UPDATE sweep.run_live AS r SET detail = coalesce(r.detail, '{}') || pg_catalog.jsonb_build_object('not_started',
			CASE WHEN pg_catalog.jsonb_typeof(r.detail -> 'not_started') = 'object' THEN r.detail -> 'not_started' ELSE '{}' END || (found -> 'not_started'))
		WHERE r.run_id = _note_not_started.run_id AND found IS NOT NULL
$$;
COMMENT ON FUNCTION sweep._note_not_started(bigint, jsonb) IS 'adds to the detail of a run that has ended which jobs of its hooks are not started';

CREATE FUNCTION sweep._start_hooks(run_id bigint) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	not_started pg_catalog.jsonb;
BEGIN
	-- A run that is still waiting, because another session has locked it, queues nothing.
	SELECT l.job, l.status INTO r FROM sweep.run_live l WHERE l.run_id = _start_hooks.run_id AND l.status <> 'waiting';
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	not_started := sweep._queue_hooks(run_id, 'on_start', sweep._parent_args(r.job, run_id, r.status, NULL, NULL));
	IF r.status <> 'running' THEN
		PERFORM sweep._note_not_started(run_id, not_started);
	END IF;
	RETURN not_started;
END
$$;
COMMENT ON FUNCTION sweep._start_hooks(bigint) IS 'queues the on_start of a run when it starts, or when its moment has come and it does not get its lock; returns detail for it';

-- ------------------------------------------------------------------ ends
-- A dispatch is all runs of the job that are linked by parent_run_id: shares, the shares that follow them, and retries.
-- Their parent is a run of the job itself, or of another job that has divided it.
CREATE FUNCTION sweep._dispatch_outcome(run_id bigint, OUT ended boolean, OUT first bigint, OUT decisive bigint, OUT status text)
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
	asked pg_catalog.record;
	parent bigint;
	above bigint;
	shares bigint[];
	added bigint[];
BEGIN
	SELECT r.job, r.run_as, r.parent_run_id, r.args -> 'parent' AS cause INTO asked FROM sweep.run_live r WHERE r.run_id = _dispatch_outcome.run_id;
	first := run_id;
	parent := asked.parent_run_id;
	LOOP
		SELECT e.parent_run_id INTO above FROM (SELECT r.parent_run_id FROM sweep.run_live r WHERE r.run_id = parent AND r.job = asked.job AND r.run_as = asked.run_as
			UNION ALL SELECT h.parent_run_id FROM sweep.run_history h WHERE h.run_id = parent AND h.job = asked.job AND h.run_as = asked.run_as) AS e;
		EXIT WHEN NOT FOUND;
		first := parent;
		parent := above;
	END LOOP;
	-- Another hook of the parent may have queued a run of this job as well.
	shares := ARRAY[first] || ARRAY(SELECT r.run_id FROM sweep.run_live r WHERE r.parent_run_id = parent AND r.job = asked.job AND r.run_as = asked.run_as
			AND r.run_id <> first AND r.args -> 'parent' IS NOT DISTINCT FROM asked.cause
		UNION ALL SELECT h.run_id FROM sweep.run_history h WHERE h.parent_run_id = parent AND h.job = asked.job AND h.run_as = asked.run_as
			AND h.run_id <> first AND h.args -> 'parent' IS NOT DISTINCT FROM asked.cause);
	added := shares;
	WHILE pg_catalog.cardinality(added) > 0 LOOP
		added := ARRAY(SELECT r.run_id FROM sweep.run_live r WHERE r.parent_run_id = ANY (added) AND r.job = asked.job AND r.run_as = asked.run_as
			UNION ALL SELECT h.run_id FROM sweep.run_history h WHERE h.parent_run_id = ANY (added) AND h.job = asked.job AND h.run_as = asked.run_as);
		shares := shares || added;
	END LOOP;
	first := (SELECT pg_catalog.min(s.id) FROM pg_catalog.unnest(shares) AS s (id));
	WITH share AS (SELECT r.run_id, r.status, r.finished_at, r.parent_run_id, r.trigger FROM sweep.run_live r WHERE r.run_id = ANY (shares)
			UNION ALL SELECT h.run_id, h.status, h.finished_at, h.parent_run_id, h.trigger FROM sweep.run_history h WHERE h.run_id = ANY (shares)),
		-- A dispatch with a cancelled share has neither succeeded nor failed. A run that was tried again does not count.
		counted AS (SELECT s.*, pg_catalog.array_position('{cancelled,failed,lost,succeeded}'::pg_catalog.text[], s.status::pg_catalog.text) AS rank FROM share s
			WHERE s.status <> 'skipped' AND NOT EXISTS (SELECT FROM share t WHERE t.parent_run_id = s.run_id AND t.trigger = 'retry'))
	SELECT (SELECT pg_catalog.bool_and(s.finished_at IS NOT NULL) FROM share s),
			(pg_catalog.array_agg(c.run_id ORDER BY c.rank, c.run_id))[1], (pg_catalog.array_agg(c.status::pg_catalog.text ORDER BY c.rank, c.run_id))[1]
		INTO ended, decisive, status FROM counted c;
END
$$;
COMMENT ON FUNCTION sweep._dispatch_outcome(bigint) IS 'whether all shares of the dispatch of a run of a divided job have ended, the first of them, and the share that decides the outcome';

CREATE FUNCTION sweep._end_hooks(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
	dispatch pg_catalog.record;
	-- The run that the hook reports, and the run whose error it reports.
	told bigint := run_id;
	decisive bigint := run_id;
	status pg_catalog.text;
	failure pg_catalog.record;
BEGIN
	-- A queued retry shows that the run is tried again; max_attempts may have changed since the retry was queued.
	SELECT l.job, l.status, EXISTS (SELECT FROM sweep.run_live t WHERE t.parent_run_id = l.run_id AND t.trigger = 'retry') AS retried, j.buckets IS NOT NULL OR l.shares_left IS NOT NULL AS divided INTO r
		FROM sweep.run_live l JOIN sweep.job_definition j ON j.name = l.job AND j.run_as = l.run_as
		WHERE l.run_id = _end_hooks.run_id AND (j.on_success IS NOT NULL OR j.on_failure IS NOT NULL);
	IF NOT FOUND THEN
		RETURN;
	END IF;
	status := r.status;
	IF r.divided THEN
		SELECT * INTO dispatch FROM sweep._dispatch_outcome(run_id);
		IF NOT dispatch.ended THEN
			RETURN;
		END IF;
		told := dispatch.first;
		decisive := dispatch.decisive;
		status := dispatch.status;
	ELSIF r.retried THEN
		RETURN;
	END IF;
	IF status IN ('succeeded', 'failed', 'lost') THEN
		SELECT e.sqlstate, e.error INTO failure FROM (SELECT l.sqlstate, l.error FROM sweep.run_live l WHERE l.run_id = decisive
			UNION ALL SELECT h.sqlstate, h.error FROM sweep.run_history h WHERE h.run_id = decisive) AS e;
		PERFORM sweep._note_not_started(run_id, sweep._queue_hooks(run_id, sweep._hook_of(status),
			sweep._parent_args(r.job, told, status, failure.sqlstate, failure.error)));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._end_hooks(bigint) IS 'queues the on_success or on_failure of a run that has succeeded or finally failed; of a divided job when the last run of the dispatch ends';

CREATE FUNCTION sweep._follow_end(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._retry(run_id);
	PERFORM sweep._end_hooks(run_id), sweep._alert_failed(run_id);
END
$$;
COMMENT ON FUNCTION sweep._follow_end(bigint) IS 'queues another attempt, or queues hooks and sends an alert, in the transaction that records the end of a run';
