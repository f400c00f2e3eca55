--
-- GitLab: projects with git refs to delete are handed on, one message each.
--
-- Purpose    Deletions of refs pile up in a table; a worker per project does
--            them in bulk.  This job says which projects have some.
-- Predicate  status = 1 (pending).
-- Order      the distinct project_id, ascending; a run that follows one
--            stopped by its cap begins behind that one's last project and
--            wraps around, so that high ids do not starve.
-- Effect     one message {"project_id"} each in the queue
--            batched_git_ref_updates_project_cleanup, its key the id: a
--            project that still waits there is not queued again.
--            detail {"total_projects"}.
-- Done when  every project has been looked at once: at the highest id, or
--            after the wrap at the place where the run began.
-- Args       schema, table: p_batched_git_ref_updates_deletions, or
--            batched_git_ref_updates_deletions in an older GitLab.
--
-- The cursor says how far the run is, where it began and whether it has
-- wrapped; a cursor of another run is only where this one begins.  The job
-- keeps its cursor for that, and the engine forgets it when a run drained.
--
-- The distinct ids come from a loose index scan: the next higher id is looked
-- up in the index for each id found, so the cost is that of the projects and
-- not that of their refs.  The two names of the table take the same statement
-- twice; see environments_auto_stop.sql for why it is static.
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

	-- upto ends the walk from outside: in the look-up the index would compare every entry of a page with it.
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
