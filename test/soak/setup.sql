--
-- What the soak works on.  Effects are rows that no lock and no constraint keeps
-- from being written twice: a row in soak.done that is there twice, or is missing,
-- is a batch that was done twice, or was lost.
--
-- A number below soak.walked is the next one after the cursor: should the cursor
-- and the effects of a run part from each other, a number is missing or doubled.
--
CREATE EXTENSION pg_sweep;
CREATE ROLE soaker LOGIN IN ROLE sweep_user;
CREATE SCHEMA soak;

CREATE TABLE soak.fed (kind text, id bigint);
CREATE TABLE soak.todo (kind text, id bigint, handled boolean NOT NULL DEFAULT false, PRIMARY KEY (kind, id));
CREATE INDEX ON soak.todo (kind, id) WHERE NOT handled;
CREATE TABLE soak.done (kind text, id bigint, run_id bigint);
-- A crash takes the statistics along: without an index the questions of wrong.sql are then asked row by row.
CREATE INDEX ON soak.done (kind, id);
CREATE TABLE soak.walked (job text, n bigint, run_id bigint);
CREATE INDEX ON soak.walked (job, n);
CREATE TABLE soak.rescued (n bigint);
CREATE TABLE soak.started (job text, run_id bigint, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE soak.overlap (job text, run_id bigint);
CREATE TABLE soak.sent (queue text, n bigint);
-- Left out for another message with their key. One is sent at the commit nevertheless if that message was handled meanwhile.
CREATE TABLE soak.left_out (queue text, n bigint);
CREATE INDEX ON soak.left_out (n);
CREATE TABLE soak.handled (queue text, n bigint, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE SEQUENCE soak.number CACHE 1;

-- ---------------------------------------------------------------- jobs

-- Fails where two runs of a job are in a batch at once.
CREATE FUNCTION soak.note(job text, run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT pg_try_advisory_xact_lock(4711, hashtext(job)) THEN
		INSERT INTO soak.overlap VALUES (job, run_id);
	END IF;
	INSERT INTO soak.started VALUES (job, run_id);
END
$$;

CREATE FUNCTION soak.feed(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM soak.note('feed', b.run_id);
	WITH fed AS (INSERT INTO soak.fed SELECT k, nextval('soak.number') FROM unnest('{sql,step,call,divided}'::text[]) AS k,
		generate_series(1, b.size) RETURNING kind, id)
	INSERT INTO soak.todo SELECT kind, id FROM fed;
	RETURN ROW(4 * b.size, NULL, NULL)::sweep.progress;
END
$$;

-- No lock, and the update does not look again: only the lock keeps others away.
CREATE FUNCTION soak.handle_some(job text, b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	last_id bigint := coalesce((b.cursor #>> '{}')::bigint, 0);
	ids     bigint[];
BEGIN
	SELECT array_agg(id ORDER BY id) INTO ids FROM (SELECT id FROM soak.todo
		WHERE kind = job AND NOT handled AND id > last_id
			AND (b.bucket IS NULL OR mod(id, b.buckets) = b.bucket) ORDER BY id LIMIT b.size) AS t;
	PERFORM pg_sleep(0.01); -- the sleep is the work
	UPDATE soak.todo SET handled = true WHERE kind = job AND id = ANY (ids);
	INSERT INTO soak.done SELECT job, i, b.run_id FROM unnest(ids) AS i;
	RETURN ROW(coalesce(cardinality(ids), 0), to_jsonb(ids[cardinality(ids)]), NULL)::sweep.progress;
END
$$;

CREATE FUNCTION soak.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM soak.note('step', b.run_id);
	RETURN soak.handle_some('step', b);
END
$$;

CREATE FUNCTION soak.by_call(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM soak.note('call', b.run_id);
	RETURN soak.handle_some('call', b);
END
$$;

CREATE FUNCTION soak.divided(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM soak.note('divided ' || b.bucket, b.run_id);
	RETURN soak.handle_some('divided', b);
END
$$;

CREATE FUNCTION soak.walk(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	last_n bigint := coalesce((b.cursor #>> '{}')::bigint, 0);
BEGIN
	PERFORM soak.note('walk', b.run_id);
	INSERT INTO soak.walked SELECT 'walk', last_n + i, b.run_id FROM generate_series(1, b.size) AS i;
	RETURN ROW(b.size, to_jsonb(last_n + b.size), NULL)::sweep.progress;
END
$$;

-- Every 37th item fails, and every second one of these cannot be rescued either.
CREATE FUNCTION soak.pick(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql AS $$
	SELECT to_jsonb(coalesce((b.cursor #>> '{}')::bigint, 0) + i) FROM generate_series(1, b.size) AS i ORDER BY i;
$$;

CREATE FUNCTION soak.walk_items(job text, b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM soak.note(job, b.run_id);
	IF EXISTS (SELECT FROM unnest(b.items) AS i WHERE mod(i::bigint, 37) = 0) THEN
		RAISE EXCEPTION 'item is bad';
	END IF;
	INSERT INTO soak.walked SELECT job, i::bigint, b.run_id FROM unnest(b.items) AS i;
	RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
END
$$;

CREATE FUNCTION soak.items(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$SELECT * FROM soak.walk_items('items', b)$$;
CREATE FUNCTION soak.rows(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$SELECT * FROM soak.walk_items('rows', b)$$;

CREATE FUNCTION soak.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	IF mod(b.items[1]::bigint, 74) = 0 THEN
		RAISE EXCEPTION 'item cannot be rescued';
	END IF;
	INSERT INTO soak.rescued VALUES (b.items[1]::bigint);
	INSERT INTO soak.walked VALUES ('items', b.items[1]::bigint, b.run_id);
	RETURN ROW(1, NULL, NULL)::sweep.progress;
END
$$;

CREATE FUNCTION soak.only_note(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM soak.note(b.args ->> 'job', b.run_id);
	RETURN ROW(0, NULL, NULL)::sweep.progress;
END
$$;

-- ---------------------------------------------------------------- queues

CREATE FUNCTION soak.send(to_queue text, how_many int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	n      bigint;
	chance int;
BEGIN
	FOR i IN 1 .. how_many LOOP
		n := nextval('soak.number');
		chance := random() * 9;
		IF sweep.send(to_queue, to_jsonb(n), key => CASE WHEN chance < 3 THEN 'key ' || mod(n, 20) END,
			delay => CASE chance WHEN 4 THEN random() * interval '1 s' ELSE '0' END, priority => chance - 5) IS NOT NULL
		THEN
			INSERT INTO soak.sent VALUES (to_queue, n);
		ELSE
			INSERT INTO soak.left_out VALUES (to_queue, n);
		END IF;
		IF chance = 6 THEN
			BEGIN
				PERFORM sweep.send(to_queue, to_jsonb(-n));
				INSERT INTO soak.sent VALUES (to_queue, -n);
				RAISE EXCEPTION USING ERRCODE = 'U0001';
			EXCEPTION WHEN SQLSTATE 'U0001' THEN
				NULL;
			END;
		END IF;
	END LOOP;
	IF random() < 0.1 THEN
		RAISE EXCEPTION 'undo all of it';
	END IF;
END
$$;

CREATE FUNCTION soak.send_step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	numbers bigint[] := ARRAY(SELECT nextval('soak.number') FROM generate_series(1, b.size));
BEGIN
	PERFORM soak.note('send', b.run_id);
	PERFORM sweep.send_many('inside', (SELECT array_agg(to_jsonb(i)) FROM unnest(numbers) AS i));
	INSERT INTO soak.sent SELECT 'inside', i FROM unnest(numbers) AS i;
	RETURN ROW(b.size, NULL, NULL)::sweep.progress;
END
$$;

-- Effect and acknowledgement are one transaction.
CREATE FUNCTION soak.handle(m sweep.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF mod(m.payload::bigint, 97) = 0 OR mod(m.payload::bigint, 31) = 0 AND m.attempts = 1 THEN
		RAISE EXCEPTION 'message is bad';
	END IF;
	INSERT INTO soak.handled VALUES ('inside', m.payload::bigint);
END
$$;

CREATE FUNCTION soak.nothing(m sweep.message) RETURNS void LANGUAGE sql AS '';

CREATE FUNCTION soak.consume(from_queue text, how_many int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	held    uuid;
	ids     bigint[];
	numbers bigint[];
BEGIN
	SELECT (array_agg(c.lease))[1], array_agg(c.message_id), array_agg(c.payload::bigint) INTO held, ids, numbers
		FROM sweep.claim(from_queue, how_many) AS c;
	IF held IS NULL THEN
		RETURN 0;
	END IF;
	IF random() < 0.05 THEN
		PERFORM sweep.release(held);
		RETURN 0;
	END IF;
	INSERT INTO soak.handled SELECT from_queue, n FROM unnest(numbers) AS n;
	IF sweep.ack(held) <> cardinality(ids) THEN
		RAISE EXCEPTION 'somebody else has them now';
	END IF;
	RETURN cardinality(ids);
END
$$;

CREATE FUNCTION soak.consume_step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
BEGIN
	PERFORM soak.note('consume', b.run_id);
	RETURN ROW(soak.consume('by_job', b.size), NULL, NULL)::sweep.progress;
END
$$;

-- As a client does it that works outside of the database: three transactions.
CREATE PROCEDURE soak.consume_outside() LANGUAGE plpgsql AS $$
DECLARE
	held    uuid;
	ids     bigint[];
	numbers bigint[];
BEGIN
	SELECT (array_agg(c.lease))[1], array_agg(c.message_id), array_agg(c.payload::bigint) INTO held, ids, numbers
		FROM sweep.claim('outside', 5) AS c;
	COMMIT;
	IF held IS NULL THEN
		RETURN;
	END IF;
	IF random() < 0.02 THEN
		PERFORM pg_sleep(3); -- the sleep is the work: longer than the visibility
	ELSIF random() < 0.05 THEN
		PERFORM sweep.fail(held, 'as it happens');
		RETURN;
	END IF;
	INSERT INTO soak.handled SELECT 'outside', n FROM unnest(numbers) AS n;
	COMMIT;
	PERFORM sweep.ack(held);
END
$$;

-- Each effect in a transaction of its own, and once.
CREATE PROCEDURE soak.consume_once() LANGUAGE plpgsql AS $$
DECLARE
	held    uuid;
	numbers bigint[];
BEGIN
	SELECT (array_agg(c.lease))[1], array_agg(c.payload::bigint) INTO held, numbers FROM sweep.claim('once', 5) AS c;
	COMMIT;
	FOR i IN 1 .. coalesce(cardinality(numbers), 0) LOOP
		IF sweep.begin_once('soak:' || numbers[i]) THEN
			INSERT INTO soak.handled VALUES ('once', numbers[i]);
		END IF;
		-- It would have keys of its own.
		IF current_user <> 'soaker' THEN
			RAISE EXCEPTION 'the role was renamed meanwhile';
		END IF;
		COMMIT;
	END LOOP;
	IF held IS NOT NULL AND random() < 0.9 THEN
		PERFORM sweep.ack(held);
	END IF;
END
$$;

GRANT USAGE ON SCHEMA soak TO soaker;
GRANT ALL ON ALL TABLES IN SCHEMA soak TO soaker;
GRANT ALL ON ALL SEQUENCES IN SCHEMA soak TO soaker;

-- Functions named by a job belong to its role.
SELECT format('ALTER ROUTINE %s OWNER TO soaker', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'soak'::regnamespace \gexec

SET SESSION AUTHORIZATION soaker;
SELECT sweep.create_queue('inside', visibility => '2 s', max_attempts => 3, backoff => '100 ms');
SELECT sweep.create_queue('outside', visibility => '2 s', max_attempts => 1000, backoff => '100 ms', key_policy => 'while_queued_or_running');
SELECT sweep.create_queue('once', visibility => '2 s', max_attempts => 1000, backoff => '100 ms', key_policy => 'once_more_if_running');
SELECT sweep.create_queue('by_job', visibility => '2 s', max_attempts => 1000, backoff => '100 ms');
SELECT sweep.create_consumer('inside', 'soak.handle', concurrency => 2, batch => 10);

SELECT sweep.create_job('feed', step => 'soak.feed', schedule => 'every 1 second', batch_size => 20, max_batches => 1);
SELECT sweep.create_job('sql', batch_sql => $$
	WITH gone AS (UPDATE soak.todo SET handled = true WHERE kind = 'sql' AND id IN
		(SELECT id FROM soak.todo WHERE kind = 'sql' AND NOT handled ORDER BY id LIMIT $1) RETURNING id)
	INSERT INTO soak.done SELECT 'sql', id, ($2).run_id FROM gone $$,
	schedule => '* * * * * *', timezone => 'UTC', batch_size => 7, overlap => 'queue_one', catch_up => 'all', max_attempts => 3);
SELECT sweep.create_job('step', step => 'soak.step', schedule => 'every 1 second', batch_size => 5, flush => 'batch', timeout => '10 s',
	lock_retries => 3, lock_retry_delay => '100 ms');
SELECT sweep.create_job('call', step => 'soak.by_call', batch_size => 10);
SELECT sweep.create_job('divided', step => 'soak.divided', schedule => 'every 1 second', batch_size => 5, buckets => 3, bucket_recovery => '6 s', stop_after => '2 s');
SELECT sweep.create_job('walk', step => 'soak.walk', schedule => 'every 1 second', batch_size => 10, max_batches => 5, cursor => 'drain', overlap => 'cancel_previous');
SELECT sweep.create_job('items', pick => 'soak.pick', step => 'soak.items', rescue => 'soak.rescue', schedule => 'every 2 seconds', batch_size => 20, max_batches => 3, cursor => 'drain');
SELECT sweep.create_job('rows', pick => 'soak.pick', step => 'soak.rows', transaction => 'row', schedule => 'every 2 seconds', batch_size => 20, max_batches => 1, cursor => 'drain');
SELECT sweep.create_job('send', step => 'soak.send_step', schedule => 'every 1 second', batch_size => 10, max_batches => 2);
SELECT sweep.create_job('consume', step => 'soak.consume_step', schedule => 'every 1 second', batch_size => 10);
SELECT sweep.create_job('parent', step => 'soak.only_note', schedule => 'every 3 seconds', args => '{"job": "parent"}', on_start => '{"child": "500 ms"}');
SELECT sweep.create_job('child', step => 'soak.only_note', args => '{"job": "child"}');
SELECT sweep.create_job('dropped', step => 'soak.only_note', schedule => 'every 1 second', args => '{"job": "dropped"}');
