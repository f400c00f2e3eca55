--
-- Job 4: every expired artifact is deleted, by one share or by several at once;
-- and, to compare with, by a step with the same DELETE and the bucket as a filter,
-- so that each share reads what the others delete.
--
\set QUIET on
SET client_min_messages = warning;
SELECT sweep.create_job('bench', step => 'sweep_gitlab.ci_bulk_delete_expired_job_artifacts', batch_size => 100,
	args => '{"schema": "public", "table": "p_ci_job_artifacts", "refresh_states": [2, 3, 4]}') \g /dev/null

CREATE FUNCTION bench.filter(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
	last_at timestamptz := coalesce((b.cursor ->> 'expire_at')::timestamptz, '-infinity');
	found record;
	statistics jsonb[] := '{}';
	partition bigint;
BEGIN
	SELECT max(expire_at) AS last_at, array_agg(partition_id) AS partition_ids, array_agg(place) AS places INTO found
		FROM (SELECT expire_at, partition_id, ctid AS place FROM public.p_ci_job_artifacts
			WHERE locked = 0 AND file_type <> 3 AND expire_at > last_at AND expire_at < b.as_of
				AND mod(project_id + job_id, b.buckets::bigint) = b.bucket::bigint
			ORDER BY expire_at FETCH FIRST (b.size) ROWS WITH TIES) AS artifact;
	FOR partition IN SELECT DISTINCT p FROM unnest(found.partition_ids) AS p LOOP
		statistics := statistics || sweep_gitlab.delete_artifacts(b, b.bucket, b.buckets, partition,
			ARRAY(SELECT f.place FROM unnest(found.partition_ids, found.places) AS f (p, place) WHERE f.p = partition), '{}', false);
	END LOOP;
	PERFORM sweep.send_many('ci_artifact_statistics', statistics);
	RETURN ROW((SELECT coalesce(sum((s -> 'count')::bigint), 0) FROM unnest(statistics) AS s)::bigint, jsonb_build_object('expire_at', found.last_at), NULL::jsonb);
END
$$;

-- Each deleted and handed on once, and the statistics exact; else nothing that could be right.
CREATE FUNCTION bench.effect() RETURNS bigint
	LANGUAGE sql
AS $$
	SELECT CASE WHEN count(*) = count(DISTINCT store_dir) AND count(*) = (SELECT sum((payload -> 'count')::bigint) FROM sweep.queue_message)
			AND NOT EXISTS (SELECT FROM p_ci_job_artifacts WHERE expire_at < now() - interval '1 hour') THEN count(*) ELSE -1 END
		FROM ci_deleted_objects
$$;
