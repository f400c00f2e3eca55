--
-- The types of the values that SQL and C exchange.
--
CREATE SCHEMA sweep;
COMMENT ON SCHEMA sweep IS 'pg_sweep: scheduled, guarded, bounded batch jobs, one commit per batch';

CREATE TYPE sweep.batch AS (
	size    int,
	cursor  jsonb,
	args    jsonb,
	as_of   timestamptz,
	bucket  int,
	buckets int,
	items   jsonb[],
	run_id  bigint
);
COMMENT ON TYPE sweep.batch IS 'what a step is asked to do: one batch';
COMMENT ON COLUMN sweep.batch.size IS 'handle at most this many rows';
COMMENT ON COLUMN sweep.batch.cursor IS 'what the previous batch returned; NULL in the first, or where the last run stopped when the job keeps its cursor';
COMMENT ON COLUMN sweep.batch.args IS 'the args of the job, merged with those of the run';
COMMENT ON COLUMN sweep.batch.as_of IS 'the clock of this batch: predicates use it, never now()';
COMMENT ON COLUMN sweep.batch.bucket IS 'the share to handle, from 0; NULL unless the job is divided';
COMMENT ON COLUMN sweep.batch.buckets IS 'number of shares; NULL unless the job is divided';
COMMENT ON COLUMN sweep.batch.items IS 'the items to handle; NULL unless the job picks its items first';
COMMENT ON COLUMN sweep.batch.run_id IS 'the run this batch belongs to';

CREATE TYPE sweep.progress AS (
	rows   bigint,
	cursor jsonb,
	detail jsonb
);
COMMENT ON TYPE sweep.progress IS 'what a step did in one batch';
COMMENT ON COLUMN sweep.progress.rows IS 'rows handled; 0 means nothing is left';
COMMENT ON COLUMN sweep.progress.cursor IS 'where the next batch goes on; NULL means from the start again';
COMMENT ON COLUMN sweep.progress.detail IS 'merged by key into the detail of the run: numbers are added, arrays appended, objects merged in the same way; of anything else the last one stands';

-- The library looks this type up, see extension.c. A script that updates to another interface renames it.
CREATE TYPE sweep._interface_1 AS ENUM ();
COMMENT ON TYPE sweep._interface_1 IS 'number of the interface between the library and the objects of the extension';
