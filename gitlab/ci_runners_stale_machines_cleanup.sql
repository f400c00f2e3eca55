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
