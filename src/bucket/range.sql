--
-- Ranges: the buckets of a job that works on ranges of the key of its table (parallel => n of the makers).
--
-- Each bucket has a range, and is done when no rows of the range are left. If a share fails, its bucket waits for the run that tries
-- again; the others go on. Each share keeps the cursor of its range, and the next run with this range goes on there. The last bucket
-- has no range and becomes free when all others are done: its share checks the whole table once more.
--
-- The first run of a dispatch divides the table, unless ranges of the dispatch before are left. At most as many shares as the job has
-- workers hold a bucket, and each is followed by another one as long as a bucket is free. Shares end one after the other, as in jobs
-- with hooks: of two that ended at the same time, neither would see that the last bucket is free.
--
CREATE FUNCTION sweep._has_ranges(job text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = _has_ranges.job AND j.buckets_function = 'sweep.range_count');
END
$$;
COMMENT ON FUNCTION sweep._has_ranges(text) IS 'whether the buckets of a job are ranges of the key of its table';

CREATE FUNCTION sweep._range_workers(job text) RETURNS int
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce((SELECT (j.args ->> 'parallel')::int FROM sweep.job_definition j WHERE j.name = _range_workers.job), 1);
END
$$;
COMMENT ON FUNCTION sweep._range_workers(text) IS 'how many shares of such a job hold a bucket at a time';

CREATE FUNCTION sweep._free_ranges(job text) RETURNS SETOF int
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT b.bucket FROM sweep.bucket b WHERE b.job = _free_ranges.job AND b.state = 'available'
		AND (NOT b.range ? 'final' OR NOT EXISTS (SELECT FROM sweep.bucket o WHERE o.job = b.job AND o.bucket <> b.bucket AND o.state <> 'done')) ORDER BY b.bucket;
END
$$;
COMMENT ON FUNCTION sweep._free_ranges(text) IS 'the buckets that a share may take';

CREATE FUNCTION sweep._maintain_ranges(job text, recovery interval, at timestamptz,
	OUT available int, OUT occupied int, OUT stale int, OUT missing int, OUT claimable int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	missing := 0;
	-- The bucket of a share whose process is gone is free at once, because the fence keeps that share from committing.
	SELECT pg_catalog.count(*) FILTER (WHERE sweep._release_range(job, old.run_id, old.bucket)) INTO stale
		FROM (SELECT b.run_id, b.bucket FROM sweep.bucket b WHERE b.job = _maintain_ranges.job AND b.state = 'occupied'
			AND (b.since <= at - recovery OR NOT sweep._run_is_alive(b.run_id)) FOR UPDATE SKIP LOCKED) AS old;
	SELECT pg_catalog.count(*) FILTER (WHERE b.state = 'available'), pg_catalog.count(*) FILTER (WHERE b.state = 'occupied') INTO available, occupied
		FROM sweep.bucket b WHERE b.job = _maintain_ranges.job;
	SELECT pg_catalog.count(*) INTO claimable FROM sweep._free_ranges(job);
END
$$;
COMMENT ON FUNCTION sweep._maintain_ranges(text, interval, timestamptz) IS 'frees the buckets of shares that are gone, or have held them for longer than recovery';

CREATE FUNCTION sweep._claim_range(job text, run_id bigint, pid int, wanted int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	free int;
BEGIN
	IF wanted >= 0 AND EXISTS (SELECT FROM sweep.run_live r WHERE r.run_id = _claim_range.run_id AND r.trigger = 'retry') THEN
		SELECT b.bucket INTO free FROM sweep.bucket b WHERE b.job = _claim_range.job AND b.bucket = wanted AND b.state IN ('available', 'failed') FOR UPDATE SKIP LOCKED;
	ELSIF (SELECT pg_catalog.count(*) FROM sweep.bucket b WHERE b.job = _claim_range.job AND b.state = 'occupied') < sweep._range_workers(job) THEN
		SELECT b.bucket INTO free FROM sweep.bucket b WHERE b.job = _claim_range.job AND b.state = 'available' AND b.bucket IN (SELECT sweep._free_ranges(_claim_range.job))
			ORDER BY b.bucket <> wanted, b.bucket LIMIT 1 FOR UPDATE SKIP LOCKED;
	END IF;
	UPDATE sweep.bucket AS b SET state = 'occupied', run_id = _claim_range.run_id, pid = _claim_range.pid, since = pg_catalog.clock_timestamp()
		WHERE b.job = _claim_range.job AND b.bucket = free;
	RETURN free;
END
$$;
COMMENT ON FUNCTION sweep._claim_range(text, bigint, int, int) IS 'takes the wanted bucket if it is free, otherwise the first free one; a run that tries again takes the bucket of the failed run. NULL when there is none';

-- The row of the run says why it has ended, and has the cursor of its last batch.
CREATE FUNCTION sweep._release_range(job text, run_id bigint, bucket int) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ended pg_catalog.record;
BEGIN
	SELECT r.stop_reason, r.cursor INTO ended FROM sweep.run_live r WHERE r.run_id = _release_range.run_id;
	UPDATE sweep.bucket AS b SET run_id = NULL, pid = NULL, since = pg_catalog.clock_timestamp(), cursor = coalesce(ended.cursor, b.cursor),
			state = CASE WHEN ended.stop_reason = 'drained' THEN 'done' WHEN ended.stop_reason IN ('error', 'timeout', 'no_progress', 'lost') THEN 'failed' ELSE 'available' END
		WHERE b.job = _release_range.job AND b.bucket = _release_range.bucket AND b.run_id = _release_range.run_id;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION sweep._release_range(text, bigint, int) IS 'gives a bucket back as done, as failed, or with the cursor for the next share; false when the run no longer has it';

-- Each waiting share will take one bucket. The next share does not take the range that has just failed.
CREATE FUNCTION sweep._next_range(job text, failed int) RETURNS int
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT f.bucket FROM sweep._free_ranges(job) AS f (bucket) WHERE f.bucket <> failed
		OFFSET (SELECT pg_catalog.count(*) FROM sweep.run_live r WHERE r.job = _next_range.job AND r.status = 'waiting' AND r.shares_left IS NOT NULL AND r.trigger <> 'retry') LIMIT 1);
END
$$;
COMMENT ON FUNCTION sweep._next_range(text, int) IS 'the bucket for the next share; NULL: none is left';

-- A request to cancel one run of a dispatch ends the whole dispatch.
CREATE FUNCTION sweep._is_cancelled(run_id bigint) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	share pg_catalog.record;
BEGIN
	SELECT r.job, coalesce(r.parent_run_id, r.run_id) AS first INTO share FROM sweep._run r WHERE r.run_id = _is_cancelled.run_id;
	RETURN EXISTS (SELECT FROM sweep._run r WHERE r.run_id = share.first AND r.job = share.job AND r.status = 'cancelled')
		OR EXISTS (SELECT FROM sweep._run r WHERE r.parent_run_id = share.first AND r.job = share.job AND r.status = 'cancelled');
END
$$;
COMMENT ON FUNCTION sweep._is_cancelled(bigint) IS 'whether a run of the dispatch of a share was cancelled';

CREATE FUNCTION sweep._missing_shares(job text, run_id bigint) RETURNS int
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN sweep._range_workers(job) - (SELECT pg_catalog.count(*) FROM sweep.run_live r WHERE r.job = _missing_shares.job AND r.run_id <> _missing_shares.run_id
		AND (r.status = 'running' OR r.status = 'waiting' AND r.shares_left IS NOT NULL AND r.trigger <> 'retry'));
END
$$;
COMMENT ON FUNCTION sweep._missing_shares(text, bigint) IS 'how many shares, including that run, may work besides those of other dispatches';

-- A range contains keys of a table, and a direct call of the step may pass any run_id, so the run must belong to the calling role.
CREATE FUNCTION sweep._range_of(run_id bigint, bucket int, role oid, OUT range jsonb, OUT cursor jsonb) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	SELECT pg_catalog.jsonb_build_object('range', b.range), b.cursor INTO range, cursor FROM sweep.bucket b JOIN sweep.run_live r ON r.run_id = b.run_id AND r.job = b.job
		WHERE b.run_id = _range_of.run_id AND b.bucket = _range_of.bucket AND b.range IS NOT NULL AND sweep._role_oid(r.run_as) = role;
END
$$;
COMMENT ON FUNCTION sweep._range_of(bigint, int, oid) IS 'the range of the bucket that a run of the role holds, as an addition to its args, and where to go on in it';

-- ------------------------------------------------------------------ division These functions accept only runs of the calling role, because
-- a direct call of the public function may pass any run_id.
CREATE FUNCTION sweep._ranges_left(run_id bigint, role oid, OUT job text, OUT ranges int, OUT divides boolean) RETURNS record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	run pg_catalog.record;
	unfinished int;
BEGIN
	SELECT r.job, r.status, r.trigger, r.shares_left, r.bucket INTO run FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as
		WHERE r.run_id = _ranges_left.run_id AND sweep._role_oid(r.run_as) = role;
	SELECT run.job, pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE b.state <> 'done') INTO job, ranges, unfinished
		FROM sweep.bucket b WHERE b.job = run.job AND b.range IS NOT NULL;
	-- A share never divides the table; a run that takes up a bucket of an earlier dispatch does not divide it either.
	divides := unfinished = 0 AND run.status = 'waiting' AND run.shares_left IS NULL AND (run.trigger <> 'retry' OR run.bucket IS NULL);
	IF unfinished > 0 AND run.status = 'waiting' AND run.shares_left IS NULL AND run.trigger <> 'retry' THEN
		UPDATE sweep.bucket AS b SET state = 'available' WHERE b.job = run.job AND b.state = 'failed';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._ranges_left(bigint, oid) IS 'the job of a run, how many ranges it has, and whether the run divides its table anew; a run that goes on with the remaining ranges makes failed ones available';

-- Two runs may divide the table at the same time: the division that is committed first counts.
CREATE FUNCTION sweep._keep_ranges(job text, columns text[], keys jsonb, cursor jsonb) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	most constant int := coalesce(pg_catalog.jsonb_array_length(keys), 0);
BEGIN
	DELETE FROM sweep.bucket AS b WHERE b.job = _keep_ranges.job AND (b.range IS NULL OR b.state = 'done');
	BEGIN
		INSERT INTO sweep.bucket (job, bucket, since, range, cursor) SELECT _keep_ranges.job, n, pg_catalog.clock_timestamp(),
				CASE WHEN n > most THEN '{"final": true}' ELSE pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('by', columns, 'after', keys -> (n - 1), 'upto', keys -> n))
					- CASE n WHEN 0 THEN 'after' ELSE '' END END, _keep_ranges.cursor
			FROM pg_catalog.generate_series(0, most + 1) AS n;
	EXCEPTION WHEN unique_violation THEN
		NULL;
	END;
	RETURN (SELECT pg_catalog.count(*) FROM sweep.bucket b WHERE b.job = _keep_ranges.job);
END
$$;
COMMENT ON FUNCTION sweep._keep_ranges(text, text[], jsonb, jsonb) IS 'makes the buckets of the ranges between these keys, which are in order, and the last one; returns their number';
