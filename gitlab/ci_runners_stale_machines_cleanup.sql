--
-- GitLab: runner machines that have not been heard of for a week are deleted.
--
-- Purpose    Autoscaled runners leave a row for every machine they ever had;
--            the list of machines and every query on it grow with them.
-- Predicate  (contacted_at IS NULL OR contacted_at <= as_of - stale_after)
--            AND created_at <= as_of - stale_after.  Both bounds inclusive.
-- Order      first those that never made contact, by id, then by
--            (contacted_at, id): the longest silent first.
-- Effect     DELETE; the triggers of the table fire (loose foreign keys).
--            detail {"status", "total_deleted", "batch_counts"}.
-- Done when  a batch deletes nothing; its 0 is part of batch_counts.
-- Args       schema: where the table ci_runner_machines is; stale_after.
--
-- One index serves both kinds, (contacted_at DESC, id DESC) read backwards,
-- but not with OR between them: hence two phases, and a batch that ends the
-- first goes on with the second.  Each looks up the key at which the batch is
-- full and deletes the range up to it. By key (id, runner_type) or by ctid each
-- machine would be found a second time on its own, which takes up to half as
-- long again. The DELETE repeats the whole predicate and looks at each row again
-- under its lock: a machine that makes contact meanwhile stays. (created_at <= stale) IS TRUE is
-- the same as without, but says nothing to an index: most machines are old, so
-- the one on created_at leads through all of them.
--
-- See environments_auto_stop.sql for the way the table is addressed.
--
CREATE FUNCTION sweep_gitlab.ci_runners_stale_machines_cleanup(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	-- in UTC, where every day has 24 hours
	stale pg_catalog.timestamptz := (b.as_of AT TIME ZONE 'UTC' - (b.args ->> 'stale_after')::interval) AT TIME ZONE 'UTC';
	never_done boolean := coalesce(b.cursor ? 'contacted_at', false);
	last_at pg_catalog.timestamptz := coalesce(b.cursor ->> 'contacted_at', '-infinity');
	last_id bigint := coalesce(b.cursor ->> 'id', '0');
	highest_id constant bigint := 9223372036854775807;
	upto_at pg_catalog.timestamptz;
	upto_id bigint;
	deleted bigint := 0;
	n bigint;
BEGIN
	IF b.cursor IS NULL THEN
		PERFORM sweep_gitlab.check_args('sweep_gitlab.ci_runners_stale_machines_cleanup', b.args);
	END IF;
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', b.args ->> 'schema'), true);

	IF NOT never_done THEN
		SELECT id INTO upto_id
			FROM ci_runner_machines
			WHERE contacted_at IS NULL AND id > last_id AND (created_at <= stale) IS TRUE
			ORDER BY contacted_at, id
			OFFSET b.size - 1 LIMIT 1;
		never_done := NOT FOUND;
		DELETE FROM ci_runner_machines
			WHERE contacted_at IS NULL AND id > last_id AND id <= coalesce(upto_id, highest_id) AND (created_at <= stale) IS TRUE;
		GET DIAGNOSTICS deleted = ROW_COUNT;
		last_id := CASE WHEN never_done THEN 0 ELSE upto_id END;
	END IF;

	IF never_done AND deleted < b.size THEN
		SELECT contacted_at, id INTO upto_at, upto_id
			FROM ci_runner_machines
			WHERE (contacted_at, id) > (last_at, last_id) AND contacted_at <= stale AND (created_at <= stale) IS TRUE
			ORDER BY contacted_at, id
			OFFSET b.size - 1 - deleted LIMIT 1;
		IF NOT FOUND THEN
			upto_at := stale;
			upto_id := highest_id;
		END IF;
		DELETE FROM ci_runner_machines
			WHERE (contacted_at, id) > (last_at, last_id) AND (contacted_at, id) <= (upto_at, upto_id)
				AND contacted_at <= stale AND (created_at <= stale) IS TRUE;
		GET DIAGNOSTICS n = ROW_COUNT;
		deleted := deleted + n;
		last_at := upto_at;
		last_id := upto_id;
	END IF;

	RETURN ROW(deleted,
		CASE WHEN never_done THEN pg_catalog.jsonb_build_object('contacted_at', last_at, 'id', last_id)
			ELSE pg_catalog.jsonb_build_object('id', last_id) END,
		pg_catalog.jsonb_build_object('status', 'success', 'total_deleted', deleted,
			'batch_counts', pg_catalog.jsonb_build_array(deleted)));
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
