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
