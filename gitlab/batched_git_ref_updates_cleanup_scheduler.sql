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
