-- Divided jobs: their definition, the store of buckets in a table, which shares are queued, one share in a session. Processes are in test/t/bucket_runs.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS buckets CASCADE;
DROP ROLE IF EXISTS buckets_one, buckets_two;
CREATE SCHEMA buckets;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
CREATE TABLE buckets.todo (id int PRIMARY KEY, done int NOT NULL DEFAULT 0);
CREATE FUNCTION buckets.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	n int;
BEGIN
	UPDATE buckets.todo SET done = done + 1 WHERE id IN (SELECT id FROM buckets.todo
		WHERE mod(id, b.buckets) = b.bucket AND id > coalesce((b.cursor ->> 'id')::int, 0) ORDER BY id LIMIT b.size);
	GET DIAGNOSTICS n = ROW_COUNT;
	IF b.args ? 'then' THEN
		EXECUTE b.args ->> 'then';
	END IF;
	RETURN ROW(n, jsonb_build_object('id', (SELECT max(id) FROM buckets.todo WHERE mod(id, b.buckets) = b.bucket AND done > 0)),
		jsonb_build_object('buckets', b.buckets::text))::sweep.progress;
END
$$;
CREATE FUNCTION buckets.some(b sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT (b.args ->> 'some')::int $$;
CREATE FUNCTION buckets.wrong(b sweep.batch) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
CREATE PROCEDURE buckets.fails(sql text) LANGUAGE plpgsql AS $$
DECLARE
	sqlstate_found text;
	hint_found text;
BEGIN
	EXECUTE sql;
	RAISE NOTICE 'no error: %', sql;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS sqlstate_found = RETURNED_SQLSTATE, hint_found = PG_EXCEPTION_HINT;
	RAISE NOTICE '% %: %', sqlstate_found, SQLERRM, hint_found;
END
$$;
RESET client_min_messages;

-- ------------------------------------------------------------------ definition
DO $$
DECLARE
	definition text;
BEGIN
	FOREACH definition IN ARRAY ARRAY['buckets => 0', 'buckets => 1025', 'buckets => 5, bucket_store => ''file''', 'buckets => 5, bucket_store => NULL',
		'buckets => 5, bucket_recovery => ''0''', 'buckets => 5, bucket_key => ''a{b''', 'buckets_function => ''buckets.some''',
		'buckets => 5, buckets_function => ''buckets.wrong''', 'buckets => 5, buckets_function => ''buckets.none''',
		'buckets => 5, stop_after => ''10 min''', 'buckets => 5, stop_after => ''5 min'', bucket_recovery => ''4 min''', 'buckets => 5, cursor => ''drain'''] LOOP
		CALL buckets.fails(format('SELECT sweep.create_job(''buckets wrong'', step => ''buckets.step'', %s)', definition));
	END LOOP;
END
$$;
SELECT sweep.create_job('buckets', step => 'buckets.step', buckets => 1024, stop_after => '9 min');
SELECT sweep.alter_job('buckets', '{"buckets": 3, "stop_after": null, "bucket_key": "other", "bucket_recovery": "1 min"}');
SELECT buckets, bucket_store, bucket_recovery, bucket_key, buckets_function, stop_after FROM sweep.job WHERE name = 'buckets';
SELECT sweep.alter_job('buckets', '{"bucket_key": null}');
SELECT bucket_key FROM sweep.job WHERE name = 'buckets';
CALL buckets.fails($$SELECT sweep.alter_job('buckets', '{"stop_after": "1 min"}')$$);
CALL buckets.fails($$SELECT sweep.alter_job('buckets', '{"bucket_store": "elsewhere"}')$$);
-- braces in a name matter where it is part of keys in Redis, and nowhere else
SELECT sweep.create_job('buckets of {x}', step => 'buckets.step', buckets => 2);
CALL buckets.fails($$SELECT sweep.alter_job('buckets of {x}', '{"bucket_store": "redis"}')$$);
CALL buckets.fails($$SELECT sweep.alter_job('buckets of {x}', '{"bucket_key": "of {y}"}')$$);
SELECT sweep.drop_job('buckets of {x}');

-- ------------------------------------------------------------------ the store in a table
BEGIN;
CREATE VIEW buckets.seen AS SELECT bucket, state, run_id, pid, since FROM sweep.bucket WHERE job = 'store' ORDER BY bucket;
-- all missing at first
SELECT * FROM sweep._maintain_buckets('store', 3, '10 min', '2026-01-01 12:00Z');
TABLE buckets.seen;
SELECT * FROM sweep._maintain_buckets('store', 3, '10 min', '2026-01-01 12:00Z');
-- each is claimed once, and then none is left
SELECT array_agg(b ORDER BY b) AS claimed FROM (SELECT sweep._claim_bucket('store', 3, n, 7, -1) AS b FROM generate_series(11, 14) AS n) AS c;
SELECT state, run_id BETWEEN 11 AND 13 AS by_run, pid, since > now() - interval '1 min' AS now FROM buckets.seen;
-- recovered after so long, inclusive, and not before
UPDATE sweep.bucket SET since = '2026-01-01 12:00Z', run_id = 11 + bucket WHERE job = 'store';
UPDATE sweep.bucket SET since = '2026-01-01 12:00:00.000001Z' WHERE job = 'store' AND bucket = 1;
SELECT * FROM sweep._maintain_buckets('store', 3, '10 min', '2026-01-01 12:09:59.999999Z');
SELECT * FROM sweep._maintain_buckets('store', 3, '10 min', '2026-01-01 12:10Z');
SELECT bucket, state, run_id, since FROM buckets.seen;
-- who lost it cannot give it back, nor hold it; neither can who has another one
SELECT sweep._release_bucket('store', 3, 11, 0) AS lost, sweep._release_bucket('store', 3, 12, 2) AS of_another;
SELECT sweep._claim_bucket('store', 3, 20, 8, -1) IN (0, 2) AS claimed_again;
SELECT sweep._release_bucket('store', 3, 13, 2) AS lost, sweep._release_bucket('store', 3, 11, 0) AS lost, count(*) AS occupied
	FROM sweep.bucket WHERE job = 'store' AND state = 'occupied';
-- given back
SELECT sweep._release_bucket('store', 3, 12, 1);
SELECT state, run_id, pid FROM buckets.seen WHERE bucket = 1;
-- fewer: what is free beyond is dropped at once, what is occupied when it is given back or recovered
UPDATE sweep.bucket SET state = 'occupied', run_id = 30 + bucket, since = '2026-01-01 13:00Z' WHERE job = 'store' AND bucket > 0;
UPDATE sweep.bucket SET state = 'available', run_id = NULL WHERE job = 'store' AND bucket = 0;
SELECT * FROM sweep._maintain_buckets('store', 0, '10 min', '2026-01-01 13:00Z');
SELECT bucket, state FROM buckets.seen;
SELECT sweep._claim_bucket('store', 1, 40, 9, -1);
SELECT sweep._release_bucket('store', 1, 31, 1), sweep._release_bucket('store', 1, 31, 1) AS again;
SELECT * FROM sweep._maintain_buckets('store', 1, '10 min', '2026-01-01 13:10Z');
SELECT bucket, state FROM buckets.seen;
-- more again
SELECT * FROM sweep._maintain_buckets('store', 4, '10 min', '2026-01-01 13:10Z');
-- the one that is free for longest comes first
UPDATE sweep.bucket SET since = '2026-01-01 10:00Z' WHERE job = 'store' AND bucket = 2;
SELECT sweep._claim_bucket('store', 4, 50, 9, -1);
-- or the one that is wanted, if it is free
SELECT sweep._claim_bucket('store', 4, 51, 9, 3);
SELECT sweep._claim_bucket('store', 4, 52, 9, 3) IN (0, 1) AS another;
CALL buckets.fails($$UPDATE sweep.bucket SET state = 'available' WHERE job = 'store' AND bucket = 2$$);
ROLLBACK;

-- ------------------------------------------------------------------ which shares are queued
BEGIN;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 5000000, false);
INSERT INTO sweep.run_live (job, trigger, due_at, args, pid, status) VALUES ('buckets', 'manual', now(), '{"a": 1}', pg_backend_pid(), 'running');
INSERT INTO sweep.bucket (job, bucket, since) SELECT 'buckets', n, now() FROM generate_series(0, 9) AS n;
CREATE VIEW buckets.queued AS SELECT job, trigger, status, args, bucket, shares_left FROM sweep.run_live WHERE run_id > 5000000 AND status = 'waiting' ORDER BY run_id;
-- enough workers: one for each, the dispatcher is one of them
SAVEPOINT s;
SELECT shares_left, wanted FROM sweep._queue_shares(5000000, 'buckets', '0', 3, 10, 3) \gset
SELECT :shares_left AS shares_left, :wanted BETWEEN 0 AND 2 AS anywhere;
-- each wishes for a bucket of its own, side by side
SELECT job, trigger, status, args, (bucket - :wanted + 3) % 3 AS bucket_behind, shares_left FROM buckets.queued;
-- those that wait count, and what they wish for is left to them
SELECT shares_left, wanted = :wanted AS the_same FROM sweep._queue_shares(5000000, 'buckets', '0', 3, 10, 3);
SELECT count(*) FROM buckets.queued;
ROLLBACK TO s;
-- fewer workers: the others follow, evenly
SELECT shares_left, wanted FROM sweep._queue_shares(5000000, 'buckets', '0', 10, 2, 10) \gset
SELECT :shares_left AS shares_left;
SELECT job, trigger, status, args, (bucket - :wanted + 10) % 10 AS bucket_behind, shares_left FROM buckets.queued;
ROLLBACK TO s;
-- none: they follow the dispatcher
SELECT shares_left FROM sweep._queue_shares(5000000, 'buckets', '0', 10, 0, 10);
SELECT count(*) FROM buckets.queued;
ROLLBACK TO s;
-- what is occupied nobody wishes for, and what is freed meanwhile anybody may take
UPDATE sweep.bucket SET state = 'occupied', run_id = 1 WHERE job = 'buckets' AND bucket IN (0, 1, 4, 7, 8);
SELECT wanted FROM sweep._queue_shares(5000000, 'buckets', '0', 6, 10, 9) \gset
SELECT array_agg(b ORDER BY b) FROM (SELECT :wanted UNION ALL SELECT bucket FROM buckets.queued) AS wish (b);
ROLLBACK TO s;
-- in Redis it is not known which are free
UPDATE sweep.job_definition SET bucket_store = 'redis' WHERE name = 'buckets';
SELECT shares_left, wanted FROM sweep._queue_shares(5000000, 'buckets', '0', 10, 3, 10) \gset
SELECT :shares_left AS shares_left, :wanted BETWEEN 0 AND 9 AS anywhere;
SELECT (bucket - :wanted + 10) % 10 AS bucket_behind, shares_left FROM buckets.queued ORDER BY 1;
ROLLBACK TO s;
-- nothing free
SELECT shares_left FROM sweep._queue_shares(5000000, 'buckets', '0', 0, 10, 3);
SELECT count(*) FROM buckets.queued;
-- a parent is no share, and its worker is free in a moment
SELECT sweep.create_job('buckets parent', step => 'buckets.step', on_start => '{"buckets": "5 min"}');
UPDATE sweep.run_live SET job = 'buckets parent' WHERE run_id = 5000000;
SELECT name, bucket_store, bucket_recovery, bucket_key, args, delay FROM sweep._divided_children(5000000, current_user::regrole);
-- of the same role only, whatever role the jobs have been given meanwhile
SELECT count(*) FROM sweep._divided_children(5000000, 'sweep_user'::regrole);
SELECT shares_left, wanted FROM sweep._queue_shares(5000000, 'buckets', '5 min', 3, 1, 3) \gset
SELECT :shares_left AS shares_left;
SELECT job, trigger, status, args, (bucket - :wanted + 3) % 3 AS bucket_behind, shares_left FROM buckets.queued;
-- its child is queued as shares only
SELECT sweep._start_hooks(5000000);
SELECT count(*) FROM buckets.queued;
ROLLBACK TO s;
-- a job that is paused gets none, and is followed by none
SELECT sweep.pause('buckets');
SELECT shares_left FROM sweep._queue_shares(5000000, 'buckets', '0', 3, 10, 3);
SELECT sweep._follow_share(5000000, false, 'max_batches', 0, 3, '0');
SELECT count(*) FROM buckets.queued;
ROLLBACK TO s;
-- which ends are followed by another share: where something is left, and where others are to follow
CREATE FUNCTION buckets.follows(reason text, rows bigint, shares_left int, bucket int, buckets int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found_share text;
BEGIN
	UPDATE sweep.run_live AS r SET rows = follows.rows, batches = (follows.rows > 0)::int, shares_left = follows.shares_left WHERE r.run_id = 5000000;
	PERFORM sweep._follow_share(5000000, false, reason, bucket, buckets, '0');
	DELETE FROM sweep.run_live AS r WHERE r.status = 'waiting' AND r.run_id > 5000000
		RETURNING coalesce(r.bucket::text, 'any') || ', then ' || r.shares_left INTO found_share;
	RETURN found_share;
END
$$;
SELECT reason, buckets.follows(reason, 10, 0, 1, 3) AS alone, buckets.follows(reason, 0, 0, 1, 3) AS without_rows, buckets.follows(reason, 10, 2, 1, 3) AS of_many,
	buckets.follows(reason, 10, 0, 3, 3) AS beyond, buckets.follows(reason, 10, 2, 0, 0) AS switched_off
	FROM unnest(ARRAY['drained', 'max_batches', 'stop_after', 'max_rows', 'rescaled', 'error', 'timeout', 'cancelled']) AS reason;
-- the next one that is free; its own was the last of them
UPDATE sweep.bucket SET state = 'occupied', run_id = 1 WHERE job = 'buckets' AND bucket IN (0, 2, 3);
SELECT bucket, buckets.follows('drained', 10, 2, bucket, 6) FROM generate_series(0, 5) AS bucket;
UPDATE sweep.bucket SET state = 'occupied', run_id = 1 WHERE job = 'buckets';
SELECT buckets.follows('drained', 10, 2, 1, 6) AS none_free;
UPDATE sweep.job_definition SET bucket_store = 'redis' WHERE name = 'buckets';
SELECT reason, buckets.follows(reason, 10, 2, 1, 3) AS of_many, buckets.follows(reason, 10, 2, 2, 3) AS of_the_last
	FROM unnest(ARRAY['drained', 'max_batches', 'error']) AS reason;
ROLLBACK;

-- ------------------------------------------------------------------ one share in a session: of a job that is paused no others are queued
INSERT INTO buckets.todo SELECT n FROM generate_series(1, 30) AS n;
SELECT sweep.pause('buckets');
SELECT sweep.alter_job('buckets', '{"batch_size": 4}');
CALL sweep.run('buckets');
SELECT bucket IS NOT NULL AS bucket, shares_left, status, stop_reason, rows, detail FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
CALL sweep.run('buckets');
CALL sweep.run('buckets');
-- each took the bucket that was free for longest: all rows are done, once
SELECT done, count(*) FROM buckets.todo GROUP BY done;
SELECT job, bucket, state, holder, pid, since > now() - interval '1 min' AS now FROM sweep.buckets WHERE job = 'buckets' ORDER BY bucket;
-- none free
UPDATE sweep.bucket SET state = 'occupied', run_id = 1, since = clock_timestamp() WHERE job = 'buckets';
CALL sweep.run('buckets');
SELECT status, stop_reason, bucket, detail FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
-- recovered
UPDATE buckets.todo SET done = 0;
UPDATE sweep.bucket SET since = clock_timestamp() - interval '1 min' WHERE job = 'buckets' AND bucket = 2;
CALL sweep.run('buckets');
SELECT bucket, detail FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
DELETE FROM sweep.bucket WHERE job = 'buckets';
-- a share that has lost its bucket commits nothing, and leaves the bucket to its new owner
UPDATE buckets.todo SET done = 0;
SELECT sweep.alter_job('buckets', '{"buckets": 1}');
\set VERBOSITY terse
CALL sweep.run('buckets', '{"then": "UPDATE sweep.bucket SET run_id = 1 WHERE job = ''buckets''"}');
SELECT status, stop_reason, batches, sqlstate FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
-- what took it away was rolled back with the batch, so that it was given back
SELECT bucket, state FROM sweep.buckets WHERE job = 'buckets';
SELECT sum(done) FROM buckets.todo;
-- one that failed gives it back
CALL sweep.run('buckets', '{"then": "SELECT 1/0"}');
SELECT state, holder FROM sweep.buckets WHERE job = 'buckets';
-- the number changes while it runs: it ends before the next batch; a bucket beyond is dropped
SELECT sweep.alter_job('buckets', '{"buckets": 2}');
CALL sweep.run('buckets', '{"then": "SELECT sweep.alter_job(''buckets'', ''{\"buckets\": 4}'')"}');
SELECT status, stop_reason, batches, rows, detail ->> 'buckets' AS buckets FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
SELECT bucket, state FROM sweep.buckets WHERE job = 'buckets' ORDER BY bucket;
DELETE FROM sweep.bucket WHERE job = 'buckets' AND bucket < 3;
INSERT INTO sweep.bucket (job, bucket, state, run_id, since) SELECT 'buckets', n, 'occupied', 1, clock_timestamp() FROM generate_series(0, 2) AS n;
CALL sweep.run('buckets', '{"then": "SELECT sweep.alter_job(''buckets'', ''{\"buckets\": 3}'')"}');
SELECT bucket, stop_reason FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
SELECT bucket, state FROM sweep.buckets WHERE job = 'buckets' ORDER BY bucket;
DELETE FROM sweep.bucket WHERE job = 'buckets';

-- ------------------------------------------------------------------ how many there are is said by a function
SELECT sweep.alter_job('buckets', '{"buckets": 3, "buckets_function": "buckets.some"}');
UPDATE buckets.todo SET done = 0;
CALL sweep.run('buckets', '{"some": 2}');
SELECT detail FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
UPDATE buckets.todo SET done = 0;
-- at most those of the job
CALL sweep.run('buckets', '{"some": 100}');
SELECT detail FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
-- none: nothing is touched
DELETE FROM sweep.bucket WHERE job = 'buckets';
CALL sweep.run('buckets', '{"some": 0}');
SELECT status, stop_reason, detail FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
SELECT count(*) FROM sweep.bucket WHERE job = 'buckets';
-- an error fails the run
CALL sweep.run('buckets', '{"some": -1}');
CALL sweep.run('buckets');
CALL sweep.run('buckets', '{"some": "many"}');
SELECT status, stop_reason, sqlstate, bucket FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
SELECT count(*) FROM sweep.bucket WHERE job = 'buckets';
-- it is asked once before the run begins and once before each batch
CREATE SEQUENCE buckets.calls;
CREATE FUNCTION buckets.counts(b sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT nextval('buckets.calls'); SELECT 1 $$;
UPDATE buckets.todo SET done = 0;
SELECT sweep.alter_job('buckets', '{"buckets_function": "buckets.counts"}');
CALL sweep.run('buckets');
SELECT last_value AS calls FROM buckets.calls;
-- the transactions of a role may be serialized
SET default_transaction_isolation = 'serializable';
CALL sweep.run('buckets');
RESET default_transaction_isolation;
-- it is not told of a bucket, so that it cannot make its answer depend on one
UPDATE buckets.todo SET done = 0;
CREATE FUNCTION buckets.told(b sweep.batch) RETURNS int LANGUAGE sql AS $$ SELECT CASE WHEN b.bucket IS NULL AND b.buckets IS NULL THEN 1 ELSE 2 END $$;
SELECT sweep.alter_job('buckets', '{"buckets_function": "buckets.told"}');
CALL sweep.run('buckets');
SELECT sweep.alter_job('buckets', '{"buckets_function": "buckets.some"}');
-- buckets that are kept elsewhere now are none of this run's
CALL sweep.run('buckets', '{"some": 1, "then": "SELECT sweep.alter_job(''buckets'', ''{\"bucket_key\": \"elsewhere\"}'')"}');
SELECT sweep.alter_job('buckets', '{"bucket_key": null}');
-- executed as the role of the job: who may not become that role may not say which function that is
CREATE ROLE buckets_one IN ROLE sweep_admin;
SET ROLE buckets_one;
SELECT sweep.alter_job('buckets', '{"buckets_function": null}');
SELECT sweep.alter_job('buckets', '{"buckets": 2}');
RESET ROLE;
-- a function that is gone
ALTER FUNCTION buckets.some(sweep.batch) RENAME TO others;
SELECT state FROM sweep.jobs WHERE name = 'buckets';
SELECT sweep.alter_job('buckets', '{"buckets_function": null}');

-- ------------------------------------------------------------------ preview, item jobs, locks
UPDATE buckets.todo SET done = 0;
SELECT rows, cursor FROM sweep.preview('buckets', '{"then": "SELECT 1"}');
CREATE FUNCTION buckets.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
	SELECT to_jsonb(id) FROM buckets.todo WHERE mod(id, b.buckets) = b.bucket AND id > coalesce((b.cursor)::int, 0) ORDER BY id LIMIT b.size
$$;
CREATE FUNCTION buckets.handle(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	UPDATE buckets.todo SET done = done + 100 WHERE id = ANY (SELECT i::int FROM unnest(b.items) AS i);
	PERFORM 1 / (i::int - 5) FROM unnest(b.items) AS i;
	IF b.args ? 'then' THEN
		EXECUTE b.args ->> 'then';
	END IF;
	RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
END
$$;
UPDATE buckets.todo SET done = 0;
DELETE FROM sweep.bucket WHERE job = 'buckets';
INSERT INTO sweep.bucket (job, bucket, since) SELECT 'buckets', n, now() - interval '1 min' * (2 - n) FROM generate_series(0, 1) AS n;
SELECT sweep.alter_job('buckets', '{"step": "buckets.handle", "pick": "buckets.pick"}');
CALL sweep.run('buckets');
CALL sweep.run('buckets');
SELECT done, count(*) FROM buckets.todo GROUP BY done ORDER BY done;
SELECT item FROM sweep.quarantine WHERE job = 'buckets';
-- a bucket that is lost is the fault of no item
CALL sweep.run('buckets', '{"then": "UPDATE sweep.bucket SET run_id = 1 WHERE job = ''buckets'' AND state = ''occupied''"}');
SELECT stop_reason, rescued, quarantined FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.alter_job('buckets', '{"transaction": "row"}');
CALL sweep.run('buckets', '{"then": "UPDATE sweep.bucket SET run_id = 1 WHERE job = ''buckets'' AND state = ''occupied''"}');
SELECT stop_reason, rescued, quarantined FROM sweep.runs WHERE job = 'buckets' ORDER BY run_id DESC LIMIT 1;
-- a lock taken by hand keeps shares out; one that a share has is shared
SELECT sweep.try_lock('buckets');
SELECT sweep.release_lock('buckets');
UPDATE buckets.todo SET done = 0;
SELECT sweep.alter_job('buckets', '{"pick": null, "step": "buckets.step", "transaction": "batch"}');
CALL sweep.run('buckets', '{"then": "DO $$BEGIN RAISE NOTICE ''%'', (SELECT array_agg(mode) FROM pg_locks WHERE locktype = ''advisory'' AND objsubid = 21335); END$$"}');

-- ------------------------------------------------------------------ who sees the buckets
CREATE ROLE buckets_two IN ROLE sweep_user;
SET ROLE buckets_two;
SELECT count(*) FROM sweep.buckets;
SELECT count(*) FROM sweep.bucket;
RESET ROLE;
GRANT sweep_monitor TO buckets_two;
SET ROLE buckets_two;
SELECT count(*) > 0 FROM sweep.buckets WHERE job = 'buckets';
RESET ROLE;

-- keys in Redis are shared with others: only sweep_admin decides about them
GRANT USAGE ON SCHEMA buckets TO buckets_two;
ALTER ROLE buckets_two LOGIN;
SET ROLE buckets_two;
CALL buckets.fails($$SELECT sweep.create_job('buckets mine', step => 'buckets.step', buckets => 2, bucket_store => 'redis')$$);
SELECT sweep.create_job('buckets mine', step => 'buckets.step', buckets => 2);
CALL buckets.fails($$SELECT sweep.alter_job('buckets mine', '{"bucket_store": "redis"}')$$);
RESET ROLE;
SELECT sweep.alter_job('buckets mine', '{"bucket_store": "redis"}');
SET ROLE buckets_two;
CALL buckets.fails($$SELECT sweep.alter_job('buckets mine', '{"bucket_key": "yours"}')$$);
SELECT sweep.alter_job('buckets mine', '{"description": "all the same"}');
SELECT sweep.drop_job('buckets mine');
RESET ROLE;

-- ------------------------------------------------------------------ no longer divided, dropped
SELECT sweep.alter_job('buckets', '{"buckets": null}');
SELECT count(*) FROM sweep.bucket WHERE job = 'buckets';
SELECT sweep.alter_job('buckets', '{"buckets": 2}');
INSERT INTO sweep.bucket (job, bucket, since) VALUES ('buckets', 0, now());
SELECT sweep.drop_job('buckets');
SELECT count(*) FROM sweep.bucket WHERE job = 'buckets';
-- as if nothing had been
DELETE FROM sweep.run_live WHERE job LIKE 'buckets%';
DELETE FROM sweep.run_history WHERE job LIKE 'buckets%';
SET client_min_messages = warning;
DO $$BEGIN PERFORM setval('sweep.run_live_run_id_seq', 1 + (SELECT coalesce(max(run_id), 0) FROM sweep.runs)); END$$;
DROP SCHEMA buckets CASCADE;
DROP ROLE buckets_one, buckets_two;
