--
-- What a batch costs that does nothing but report one row.
--
\set QUIET on
SET client_min_messages = warning;
CREATE FUNCTION bench.nothing(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql
AS $$
BEGIN
	RETURN ROW(1::bigint, NULL::jsonb, NULL::jsonb);
END
$$;
SELECT sweep.create_job('bench', step => 'bench.nothing') \g /dev/null

-- One row is written, so that the batch is a transaction with a commit record.
CREATE TABLE bench.written (i int);
CREATE FUNCTION bench.one_row(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql
AS $$
BEGIN
	INSERT INTO bench.written VALUES (1);
	RETURN ROW(1::bigint, NULL::jsonb, NULL::jsonb);
END
$$;
CREATE PROCEDURE bench.rows_one_by_one(batches int, INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
	progress sweep.progress;
BEGIN
	FOR i IN 1 .. batches LOOP
		progress := bench.one_row(ROW(1, progress.cursor, '{}', clock_timestamp(), NULL, NULL, NULL, 1)::sweep.batch);
		COMMIT;
	END LOOP;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;
