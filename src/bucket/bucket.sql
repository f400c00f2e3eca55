--
-- The buckets of divided jobs: which run works on which bucket.
--
-- A run of a divided job works on one bucket, which it claims before its first batch and gives back at its end. If its process dies, the
-- bucket is free again after the bucket_recovery of its job. The run_id in the row is the fence. Before each commit of a batch the run
-- locks the row of its bucket, FOR SHARE, which it can do only while the bucket is still its own: a run that has lost its bucket cannot
-- commit, and recovery skips a bucket whose run is just committing.
--
-- Dispatching: a run that was not begun as a share (shares_left IS NULL) maintains the buckets, queues as many shares as there are free
-- buckets and free workers, and goes on as a share itself. Shares without a worker follow later: shares_left says how many shares follow a
-- share. Each share prefers a bucket of its own (run_live.bucket of a waiting run). Taking the bucket that is free for longest would not be
-- enough, because another share may have claimed it and given it back before the row lock is granted. A share that reached a limit is
-- followed by a share that continues with its bucket.
--
CREATE TABLE sweep.bucket (
	job    text,
	bucket int,
	state  text NOT NULL DEFAULT 'available',
	run_id bigint,
	pid    int,
	since  timestamptz NOT NULL,
	range  jsonb,
	cursor jsonb,
	PRIMARY KEY (job, bucket),
	CONSTRAINT bucket_state_check CHECK (state IN ('available', 'occupied') OR range IS NOT NULL AND state IN ('done', 'failed')),
	CONSTRAINT bucket_holder_check CHECK ((state = 'occupied') = (run_id IS NOT NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE sweep.bucket IS 'buckets of divided jobs with bucket_store table; made when the job runs, see sweep.buckets';
COMMENT ON COLUMN sweep.bucket.job IS 'name of the job';
COMMENT ON COLUMN sweep.bucket.bucket IS 'number of the bucket, from 0';
COMMENT ON COLUMN sweep.bucket.state IS 'available or occupied; of a range also done or failed';
COMMENT ON COLUMN sweep.bucket.run_id IS 'run that holds it';
COMMENT ON COLUMN sweep.bucket.pid IS 'process of that run';
COMMENT ON COLUMN sweep.bucket.since IS 'since when it is in that state';
COMMENT ON COLUMN sweep.bucket.range IS 'of a job that works on ranges of a key: {"by": columns, "after": key, "upto": key}, or {"final": true}; NULL: of another divided job';
COMMENT ON COLUMN sweep.bucket.cursor IS 'where the next share goes on in the range';
-- The ranges of a table that are done are dumped, because a job may process a table only once.
SELECT pg_catalog.pg_extension_config_dump('sweep.bucket', 'WHERE range IS NOT NULL');

-- ------------------------------------------------------------------ the store
CREATE FUNCTION sweep._maintain_buckets(job text, buckets int, recovery interval, at timestamptz,
	OUT available int, OUT occupied int, OUT stale int, OUT missing int, OUT claimable int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._has_ranges(job) THEN
		SELECT r.* INTO available, occupied, stale, missing, claimable FROM sweep._maintain_ranges(job, recovery, at) AS r;
		RETURN;
	END IF;
	-- A run that has locked one of these rows is claiming it, giving it back or committing, so the row is skipped.
	WITH old AS (SELECT b.bucket FROM sweep.bucket b WHERE b.job = _maintain_buckets.job AND b.state = 'occupied'
			AND b.since <= at - recovery FOR UPDATE SKIP LOCKED)
	UPDATE sweep.bucket AS b SET state = 'available', run_id = NULL, pid = NULL, since = at
		FROM old WHERE b.job = _maintain_buckets.job AND b.bucket = old.bucket;
	GET DIAGNOSTICS stale = ROW_COUNT;
	SELECT pg_catalog.count(*) FILTER (WHERE b.state = 'available'), pg_catalog.count(*) FILTER (WHERE b.state = 'occupied') INTO available, occupied
		FROM sweep.bucket b WHERE b.job = _maintain_buckets.job;
	WITH surplus AS (SELECT b.bucket FROM sweep.bucket b WHERE b.job = _maintain_buckets.job AND b.state = 'available'
			AND b.bucket >= buckets FOR UPDATE SKIP LOCKED)
	DELETE FROM sweep.bucket AS b USING surplus WHERE b.job = _maintain_buckets.job AND b.bucket = surplus.bucket;
	INSERT INTO sweep.bucket (job, bucket, since) SELECT _maintain_buckets.job, n, at FROM pg_catalog.generate_series(0, buckets - 1) AS n
		ON CONFLICT DO NOTHING;
	GET DIAGNOSTICS missing = ROW_COUNT;
	SELECT pg_catalog.count(*) INTO claimable FROM sweep.bucket b
		WHERE b.job = _maintain_buckets.job AND b.state = 'available' AND b.bucket < buckets;
END
$$;
COMMENT ON FUNCTION sweep._maintain_buckets(text, int, interval, timestamptz) IS 'recovers buckets that were occupied for longer than recovery, adds missing ones and drops surplus ones';

CREATE FUNCTION sweep._claim_bucket(job text, buckets int, run_id bigint, pid int, wanted int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	free int;
BEGIN
	IF sweep._has_ranges(job) THEN
		RETURN sweep._claim_range(job, run_id, pid, wanted);
	END IF;
	-- This waits for a locked row, because the share that claims it commits soon, and the other free buckets may be done already.
	SELECT b.bucket INTO free FROM sweep.bucket b
		WHERE b.job = _claim_bucket.job AND b.state = 'available' AND b.bucket < buckets
		ORDER BY b.bucket <> wanted, b.since, pg_catalog.random() LIMIT 1 FOR UPDATE;
	UPDATE sweep.bucket AS b SET state = 'occupied', run_id = _claim_bucket.run_id, pid = _claim_bucket.pid, since = pg_catalog.clock_timestamp()
		WHERE b.job = _claim_bucket.job AND b.bucket = free;
	RETURN free;
END
$$;
COMMENT ON FUNCTION sweep._claim_bucket(text, int, bigint, int, int) IS 'takes the wanted bucket if it is free, otherwise the one that is free for longest (of several a random one); NULL when none is free';

CREATE FUNCTION sweep._release_bucket(job text, buckets int, run_id bigint, bucket int) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF sweep._has_ranges(job) THEN
		RETURN sweep._release_range(job, run_id, bucket);
	END IF;
	IF bucket < buckets THEN
		UPDATE sweep.bucket AS b SET state = 'available', run_id = NULL, pid = NULL, since = pg_catalog.clock_timestamp()
			WHERE b.job = _release_bucket.job AND b.bucket = _release_bucket.bucket AND b.run_id = _release_bucket.run_id;
	ELSE
		DELETE FROM sweep.bucket AS b
			WHERE b.job = _release_bucket.job AND b.bucket = _release_bucket.bucket AND b.run_id = _release_bucket.run_id;
	END IF;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION sweep._release_bucket(text, int, bigint, int) IS 'gives a bucket back, or drops it when its number is beyond buckets; false when the run no longer has it';

-- ------------------------------------------------------------------ shares
CREATE FUNCTION sweep._divided_children(run_id bigint, role oid) RETURNS TABLE (name text, bucket_store text, bucket_recovery interval,
	bucket_key text, buckets_function text, args jsonb, delay text)
	LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- Only children of the same role: the parent executes their buckets_function. Other jobs are divided by their own first run.
	SELECT child.name, child.bucket_store, child.bucket_recovery, child.bucket_key, child.buckets_function, child.args, c.value
		FROM sweep.run_live r JOIN sweep.job_definition parent ON parent.name = r.job
			CROSS JOIN LATERAL pg_catalog.jsonb_each_text(parent.on_start) AS c
			JOIN sweep.job_definition child ON child.name = c.key JOIN sweep.job_state s ON s.job = child.name
		WHERE r.run_id = _divided_children.run_id AND NOT sweep._ends_chain(r.hook_depth) AND child.buckets IS NOT NULL
			AND sweep._role_oid(parent.run_as) = role AND child.run_as = parent.run_as AND child.name <> parent.name
			AND NOT sweep._has_ranges(child.name) AND s.paused_at IS NULL AND sweep._has_workers()
		ORDER BY child.name
$$;
COMMENT ON FUNCTION sweep._divided_children(bigint, oid) IS 'the divided jobs that a run of their parent dispatches';

CREATE FUNCTION sweep._queue_shares(run_id bigint, job text, delay interval, claimable int, workers int, buckets int,
	OUT shares_left int, OUT wanted int)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	dispatcher sweep.run_live;
	divided sweep.job_definition;
	own int;
	shares int;
	chains int;
	first int;
	preferred int[];
BEGIN
	shares_left := 0;
	SELECT * INTO dispatcher FROM sweep.run_live r WHERE r.run_id = _queue_shares.run_id;
	SELECT j.* INTO divided FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name WHERE j.name = _queue_shares.job
		AND j.run_as = dispatcher.run_as AND j.buckets IS NOT NULL AND s.paused_at IS NULL AND sweep._has_workers();
	IF NOT FOUND THEN
		RETURN;
	END IF;
	own := (dispatcher.job = job)::int;
	shares := claimable - (SELECT pg_catalog.count(*) FROM sweep.run_live w
		WHERE w.job = _queue_shares.job AND w.run_as = dispatcher.run_as AND w.status = 'waiting' AND w.shares_left IS NOT NULL AND w.due_at <= pg_catalog.clock_timestamp() + delay
			AND NOT EXISTS (SELECT FROM sweep.bucket b WHERE b.job = w.job AND b.run_id = w.run_id));
	-- The worker of the dispatcher counts, because the dispatcher becomes a share itself, or ends soon.
	chains := greatest(least(shares, workers + 1), own);
	IF chains = 0 THEN
		RETURN;
	END IF;
	-- Each chain of shares has consecutive numbers of its own, from a random number on. The free numbers in Redis are not known here.
	first := pg_catalog.floor(pg_catalog.random() * buckets);
	IF sweep._has_ranges(job) THEN
		-- As long as a range is free, a share is followed by one more.
		shares := greatest(least(chains, sweep._missing_shares(job, run_id)), own);
		chains := shares;
		first := 0;
	END IF;
	preferred := ARRAY(SELECT n FROM pg_catalog.generate_series(0, buckets - 1) AS n
		WHERE divided.bucket_store = 'redis'
			OR EXISTS (SELECT FROM sweep.bucket b WHERE b.job = _queue_shares.job AND b.bucket = n AND b.state = 'available')
				AND NOT EXISTS (SELECT FROM sweep.run_live w WHERE w.job = _queue_shares.job AND w.run_as = dispatcher.run_as AND w.status = 'waiting' AND w.bucket = n)
		ORDER BY (n - first + buckets) % buckets);
	shares := greatest(shares - chains, 0);
	shares_left := shares / chains + (0 < shares % chains)::int;
	wanted := preferred[1];
	INSERT INTO sweep.run_live (job, run_as, args, trigger, parent_run_id, hook_depth, bucket, shares_left, due_at)
		SELECT _queue_shares.job, dispatcher.run_as,
			CASE own WHEN 1 THEN dispatcher.args ELSE sweep._parent_args(dispatcher.job, run_id, 'running', NULL, NULL) END, 'parent', run_id, dispatcher.hook_depth + 1 - own,
			preferred[1 + n + n * (shares / chains) + least(n, shares % chains)],
			shares / chains + (n < shares % chains)::int, pg_catalog.clock_timestamp() + delay
		FROM pg_catalog.generate_series(own, chains - 1) AS n;
	PERFORM sweep._wake();
END
$$;
COMMENT ON FUNCTION sweep._queue_shares(bigint, text, interval, int, int, int) IS 'queues shares up to the free buckets and workers; returns how many shares follow that of the dispatcher, and the bucket that it prefers';

CREATE FUNCTION sweep._follow_share(run_id bigint, divides boolean, stop_reason text, bucket int, buckets int, delay interval) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	share pg_catalog.record;
	bucket_store pg_catalog.text;
	goes_on boolean;
	preferred int := bucket;
	follower bigint;
BEGIN
	SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.hook_depth, r.batches, greatest(r.rows, r.rescued, r.quarantined) AS handled INTO share
		FROM sweep.run_live r WHERE r.run_id = _follow_share.run_id;
	IF NOT FOUND THEN
		SELECT r.job, r.run_as, r.args, r.shares_left, r.parent_run_id, r.hook_depth, r.batches, greatest(r.rows, r.rescued, r.quarantined) AS handled INTO share
			FROM sweep.run_history r WHERE r.run_id = _follow_share.run_id;
	END IF;
	-- A share that stops at a limit is followed by one more share, but only if it has handled rows; otherwise the chain would not end.
	goes_on := stop_reason IN ('max_batches', 'stop_after') AND share.handled > 0
		OR stop_reason = 'rescaled' AND bucket < buckets AND share.batches > 0;
	SELECT j.bucket_store INTO bucket_store FROM sweep.job_definition j JOIN sweep.job_state s ON s.job = j.name
		WHERE j.name = share.job AND j.run_as = share.run_as AND j.buckets IS NOT NULL AND s.paused_at IS NULL;
	IF FOUND AND sweep._has_ranges(share.job) THEN
		preferred := CASE WHEN sweep._is_cancelled(run_id) THEN NULL WHEN goes_on THEN bucket ELSE sweep._next_range(share.job, bucket) END;
		goes_on := preferred IS NOT NULL;
	END IF;
	IF bucket_store IS NOT NULL AND stop_reason <> 'cancelled' AND buckets > 0 AND (goes_on OR share.shares_left > 0) AND sweep._has_workers() THEN
		-- The next number, in the table the next one that is free.
		IF NOT goes_on THEN
			preferred := (bucket + 1) % buckets;
			IF bucket_store = 'table' THEN
				preferred := (SELECT b.bucket FROM sweep.bucket b WHERE b.job = share.job AND b.state = 'available' AND b.bucket < buckets
					ORDER BY (b.bucket - preferred + buckets) % buckets LIMIT 1);
			END IF;
		END IF;
		INSERT INTO sweep.run_live (job, run_as, args, trigger, parent_run_id, hook_depth, bucket, shares_left, due_at)
			VALUES (share.job, share.run_as, share.args, 'parent', CASE WHEN divides THEN run_id ELSE share.parent_run_id END, share.hook_depth, preferred, share.shares_left - (NOT goes_on)::int, pg_catalog.clock_timestamp() + delay)
			RETURNING run_live.run_id INTO follower;
	END IF;
	RETURN follower;
END
$$;
COMMENT ON FUNCTION sweep._follow_share(bigint, boolean, text, int, int, interval) IS 'queues the next share after a share that has ended, if there is to be one, and returns it; divides: the ended share has divided the job itself';

-- ------------------------------------------------------------------ the view
CREATE VIEW sweep.buckets WITH (security_barrier) AS
	SELECT * FROM (SELECT b.job, b.bucket, b.state, b.run_id AS holder, b.pid, b.since
		FROM sweep.bucket b JOIN sweep.job_definition j ON j.name = b.job AND j.bucket_store = 'table' AND j.buckets IS NOT NULL
		WHERE sweep._may_see(j.run_as)
	UNION ALL
	SELECT r.job, r.bucket, 'occupied', r.run_id, r.pid, r.started_at
		FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as AND j.bucket_store = 'redis'
		WHERE r.status = 'running' AND r.bucket IS NOT NULL AND sweep._may_see(j.run_as)) AS b
	OFFSET 0;
COMMENT ON VIEW sweep.buckets IS 'buckets of divided jobs; if they are in Redis, only those that runs of this database hold';
COMMENT ON COLUMN sweep.buckets.job IS 'name of the job';
COMMENT ON COLUMN sweep.buckets.bucket IS 'number of the bucket, from 0';
COMMENT ON COLUMN sweep.buckets.state IS 'available or occupied; of a job with parallel also done or failed';
COMMENT ON COLUMN sweep.buckets.holder IS 'run that holds it';
COMMENT ON COLUMN sweep.buckets.pid IS 'process of that run';
COMMENT ON COLUMN sweep.buckets.since IS 'since when it is in that state';
