--
-- Queues: how a batch hands follow-up work on.
--
-- A send is part of the sender's transaction, so a batch and its messages are
-- one commit.  Delivery is at least once: a claim is a lease for a time, and
-- what is not acknowledged within it comes again.
--
-- All messages of all queues are rows of sweep.queue_message; the type
-- sweep.message is what a consumer gets to see and stays the same when the
-- storage changes.  Users touch neither table: the functions below check the
-- caller against the owner of the queue.
--
CREATE TABLE sweep.queue (
	queue_id   int GENERATED ALWAYS AS IDENTITY,
	name       text NOT NULL,
	owner      regrole NOT NULL,
	visibility interval NOT NULL,
	CONSTRAINT queue_pkey PRIMARY KEY (queue_id),
	CONSTRAINT queue_name_key UNIQUE (name),
	CONSTRAINT queue_name_check CHECK (name ~ '^[A-Za-z0-9_]{1,48}$'),
	CONSTRAINT queue_visibility_check CHECK (visibility > interval '0')
);
COMMENT ON TABLE sweep.queue IS 'the queues; sweep.create_queue adds one';
COMMENT ON COLUMN sweep.queue.queue_id IS 'never used again after the queue is dropped';
COMMENT ON COLUMN sweep.queue.name IS 'letters, digits and _, at most 48';
COMMENT ON COLUMN sweep.queue.owner IS 'who created the queue: this role, its members and sweep_admin may use it';
COMMENT ON COLUMN sweep.queue.visibility IS 'how long a claim holds a message unless it says otherwise';

-- The wide columns come last and those of eight bytes first: a row of a
-- fan-out is a third smaller than with a name in it.  There is no foreign key
-- to sweep.queue, which would look up the queue for every message instead of
-- once per call; sweep.drop_queue keeps the two together. Keys are compared,
-- never sorted for anybody: byte by byte is the fastest.
CREATE TABLE sweep.queue_message (
	message_id    bigint GENERATED ALWAYS AS IDENTITY,
	sent_at       timestamptz NOT NULL DEFAULT pg_catalog.now(),
	visible_until timestamptz,
	queue_id      int NOT NULL,
	attempts      int NOT NULL DEFAULT 0,
	lease         uuid,
	key           text COLLATE "C",
	payload       jsonb NOT NULL,
	CONSTRAINT queue_message_pkey PRIMARY KEY (queue_id, message_id)
) WITH (
	-- A queue of any length is short-lived rows: vacuum by their number, not
	-- by their share of the backlog.
	autovacuum_vacuum_scale_factor = 0.01,
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_insert_scale_factor = 0.05,
	autovacuum_analyze_scale_factor = 0.05
);
COMMENT ON TABLE sweep.queue_message IS 'the messages of all queues, waiting or held by a consumer';
COMMENT ON COLUMN sweep.queue_message.message_id IS 'order within a queue';
COMMENT ON COLUMN sweep.queue_message.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep.queue_message.visible_until IS 'end of the lease; NULL until first claimed, past means claimable again';
COMMENT ON COLUMN sweep.queue_message.queue_id IS 'the queue it is in';
COMMENT ON COLUMN sweep.queue_message.attempts IS 'how often it was claimed';
COMMENT ON COLUMN sweep.queue_message.lease IS 'the claim that holds it; NULL until first claimed';
COMMENT ON COLUMN sweep.queue_message.key IS 'no second message with this key is queued while this one was never claimed';
COMMENT ON COLUMN sweep.queue_message.payload IS 'what the sender says';

-- The index decides whether a key is waiting, so two senders at once, or one
-- that rolls back, can neither double nor lose a message.
CREATE UNIQUE INDEX queue_message_waiting_key ON sweep.queue_message (queue_id, key)
	WHERE key IS NOT NULL AND attempts = 0;
COMMENT ON INDEX sweep.queue_message_waiting_key IS 'at most one message per key that nobody has claimed yet';

CREATE INDEX queue_message_lease ON sweep.queue_message (lease)
	WHERE lease IS NOT NULL;
COMMENT ON INDEX sweep.queue_message_lease IS 'what one claim holds';

SELECT pg_catalog.pg_extension_config_dump('sweep.queue', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_queue_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_message', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.queue_message_message_id_seq', '');

CREATE TYPE sweep.message AS (
	message_id bigint,
	queue      text,
	payload    jsonb,
	key        text,
	attempts   int,
	sent_at    timestamptz,
	lease      uuid
);
COMMENT ON TYPE sweep.message IS 'a message as its consumer gets it';
COMMENT ON COLUMN sweep.message.message_id IS 'order within the queue';
COMMENT ON COLUMN sweep.message.queue IS 'name of the queue';
COMMENT ON COLUMN sweep.message.payload IS 'what the sender said';
COMMENT ON COLUMN sweep.message.key IS 'the key it was sent with, or NULL';
COMMENT ON COLUMN sweep.message.attempts IS 'how often it was claimed, this time included';
COMMENT ON COLUMN sweep.message.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep.message.lease IS 'what sweep.ack asks for';

-- The queue of that name, when the caller may use it.  Every public function
-- of this file starts here.
CREATE FUNCTION sweep._find_queue(caller oid, queue text)
RETURNS sweep.queue
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found_queue sweep.queue;
	closest     text;
BEGIN
	SELECT * INTO found_queue FROM sweep.queue q WHERE q.name = _find_queue.queue;
	IF NOT FOUND THEN
		-- the closest name is right at its beginning and end for at least half
		SELECT q.name INTO closest
			FROM sweep.queue q,
				LATERAL (SELECT count(*) FILTER (WHERE left(q.name, i) = left(_find_queue.queue, i))
						+ count(*) FILTER (WHERE right(q.name, i) = right(_find_queue.queue, i)) AS right_letters
					FROM generate_series(1, least(length(q.name), length(_find_queue.queue))) AS i) AS alike
			WHERE right_letters * 2 >= greatest(length(q.name), length(_find_queue.queue))
			ORDER BY right_letters DESC, q.name
			LIMIT 1;
		RAISE EXCEPTION 'queue "%" does not exist', _find_queue.queue
			USING ERRCODE = 'undefined_object',
				HINT = coalesce('Perhaps you meant "' || closest || '".', 'sweep.create_queue creates a queue.');
	END IF;
	IF NOT (pg_has_role(caller, found_queue.owner, 'MEMBER') OR pg_has_role(caller, 'sweep_admin', 'MEMBER')) THEN
		RAISE EXCEPTION 'permission denied for queue "%"', found_queue.name
			USING ERRCODE = 'insufficient_privilege',
				HINT = format('Members of %s and sweep_admin may use it.', found_queue.owner);
	END IF;
	RETURN found_queue;
END
$$;
COMMENT ON FUNCTION sweep._find_queue(oid, text) IS 'internal: the queue of this name, or an error when there is none or it is not the caller''s';

CREATE FUNCTION sweep._create_queue(caller oid, name text, visibility interval)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF (_create_queue.name ~ '^[A-Za-z0-9_]{1,48}$') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid queue name "%"', _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'A queue name has letters, digits and _, at most 48 of them.';
	END IF;
	IF (_create_queue.visibility > interval '0') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid visibility "%" for queue "%"', _create_queue.visibility, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The visibility is the time a consumer has for a message and must be greater than zero, for example ''30 s''.';
	END IF;
	INSERT INTO sweep.queue (name, owner, visibility)
	VALUES (_create_queue.name, caller, _create_queue.visibility)
	ON CONFLICT ON CONSTRAINT queue_name_key DO NOTHING;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" already exists', _create_queue.name
			USING ERRCODE = 'duplicate_object', HINT = 'sweep.drop_queue removes a queue with its messages.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._create_queue(oid, text, interval) IS 'internal: implements sweep.create_queue';

CREATE FUNCTION sweep.create_queue(name text, visibility interval DEFAULT '30 s')
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_queue(text, interval) IS 'creates a queue of the caller; visibility is how long a claim holds a message';

-- Messages first, without a lock; then a lock that lets open senders finish,
-- so that what they sent goes too.  A send looks at sweep.queue in the very
-- statement that inserts, after it got its own lock on the table, so none can
-- slip in behind.  The lock is given up soon: other queues wait for it.
CREATE FUNCTION sweep._drop_queue(caller oid, name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '2s'
AS $$
DECLARE
	id int := (sweep._find_queue(caller, _drop_queue.name)).queue_id;
BEGIN
	DELETE FROM sweep.queue_message m WHERE m.queue_id = id;
	LOCK TABLE sweep.queue_message IN SHARE ROW EXCLUSIVE MODE;
	DELETE FROM sweep.queue_message m WHERE m.queue_id = id;
	DELETE FROM sweep.queue q WHERE q.queue_id = id;
END
$$;
COMMENT ON FUNCTION sweep._drop_queue(oid, text) IS 'internal: implements sweep.drop_queue';

CREATE FUNCTION sweep.drop_queue(name text)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_queue(text) IS 'removes a queue and every message in it';

-- A sender whose key is in an open transaction of another sender, or of a
-- consumer that is just claiming it, waits for that transaction: only its end
-- tells whether the key is waiting.
CREATE FUNCTION sweep._send(caller oid, queue text, payload jsonb, key text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	id   int := (sweep._find_queue(caller, _send.queue)).queue_id;
	sent bigint;
BEGIN
	IF _send.payload IS NULL THEN
		RAISE EXCEPTION 'payload must not be null'
			USING ERRCODE = 'null_value_not_allowed', HINT = 'Send ''{}'' or ''null'' when there is nothing to say.';
	END IF;
	INSERT INTO sweep.queue_message (queue_id, key, payload)
	SELECT q.queue_id, _send.key, _send.payload
	FROM sweep.queue q
	WHERE q.queue_id = id
	ON CONFLICT (queue_id, key) WHERE key IS NOT NULL AND attempts = 0 DO NOTHING
	RETURNING message_id INTO sent;
	IF sent IS NULL THEN
		-- a duplicate, or the queue was dropped while we waited
		PERFORM sweep._find_queue(caller, _send.queue);
	END IF;
	RETURN sent;
END
$$;
COMMENT ON FUNCTION sweep._send(oid, text, jsonb, text) IS 'internal: implements sweep.send';

CREATE FUNCTION sweep.send(queue text, payload jsonb, key text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.send(text, jsonb, text) IS 'queues a message in the caller''s transaction and returns its id; NULL when one with this key is already waiting';

CREATE FUNCTION sweep._send_many(caller oid, queue text, payloads jsonb[], keys text[])
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id   int := (sweep._find_queue(caller, _send_many.queue)).queue_id;
	sent bigint;
BEGIN
	IF keys IS NOT NULL AND cardinality(keys) <> coalesce(cardinality(payloads), 0) THEN
		RAISE EXCEPTION '% keys for % payloads', cardinality(keys), coalesce(cardinality(payloads), 0)
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one key for each payload, NULL where a message has none, or no keys at all.';
	END IF;
	IF array_position(payloads, NULL) IS NOT NULL THEN
		RAISE EXCEPTION 'payload % must not be null', array_position(payloads, NULL)
			USING ERRCODE = 'null_value_not_allowed', HINT = 'Send ''{}'' or ''null'' when there is nothing to say.';
	END IF;
	INSERT INTO sweep.queue_message (queue_id, key, payload)
	SELECT q.queue_id, m.key, m.payload
	FROM sweep.queue q, unnest(payloads, keys) AS m (payload, key)
	WHERE q.queue_id = id
	ON CONFLICT (queue_id, key) WHERE key IS NOT NULL AND attempts = 0 DO NOTHING;
	GET DIAGNOSTICS sent = ROW_COUNT;
	IF sent = 0 THEN
		-- duplicates, or the queue was dropped while we waited
		PERFORM sweep._find_queue(caller, _send_many.queue);
	END IF;
	RETURN sent;
END
$$;
COMMENT ON FUNCTION sweep._send_many(oid, text, jsonb[], text[]) IS 'internal: implements sweep.send_many';

CREATE FUNCTION sweep.send_many(queue text, payloads jsonb[], keys text[] DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.send_many(text, jsonb[], text[]) IS 'queues any number of messages in the caller''s transaction and returns how many; those whose key is already waiting are left out';

-- The rows are locked first and then found again by their place in the table,
-- which cannot change under our lock: no plan can turn that into a join over
-- the backlog.
CREATE FUNCTION sweep._claim(caller oid, queue text, max int, visibility interval)
RETURNS SETOF sweep.message
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	q         sweep.queue := sweep._find_queue(caller, _claim.queue);
	hold      interval := coalesce(_claim.visibility, q.visibility);
	moment    timestamptz := clock_timestamp();
	new_lease uuid := gen_random_uuid();
BEGIN
	IF (_claim.max > 0) IS NOT TRUE THEN
		RAISE EXCEPTION 'cannot claim % messages', _claim.max
			USING ERRCODE = 'invalid_parameter_value', HINT = 'max must be greater than zero.';
	END IF;
	IF hold <= interval '0' THEN
		RAISE EXCEPTION 'invalid visibility "%"', hold
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The visibility is the time this claim has for its messages and must be greater than zero.';
	END IF;
	RETURN QUERY
	WITH claimed AS (
		UPDATE sweep.queue_message m
		SET lease = new_lease,
			visible_until = moment + hold,
			attempts = m.attempts + 1
		WHERE m.ctid = ANY (ARRAY(
			SELECT w.ctid
			FROM sweep.queue_message w
			WHERE w.queue_id = q.queue_id
				AND (w.visible_until IS NULL OR w.visible_until <= moment)
			ORDER BY w.message_id
			LIMIT _claim.max
			FOR UPDATE SKIP LOCKED))
		RETURNING m.message_id, m.payload, m.key, m.attempts, m.sent_at, m.lease
	)
	SELECT c.message_id, q.name, c.payload, c.key, c.attempts, c.sent_at, c.lease
	FROM claimed c
	ORDER BY c.message_id;
END
$$;
COMMENT ON FUNCTION sweep._claim(oid, text, int, interval) IS 'internal: implements sweep.claim';

CREATE FUNCTION sweep.claim(queue text, max int DEFAULT 1, visibility interval DEFAULT NULL)
RETURNS SETOF sweep.message
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.claim(text, int, interval) IS 'takes up to max messages, oldest first, under one lease; skips what others hold and never waits';

CREATE FUNCTION sweep._ack(caller oid, lease uuid, message_ids bigint[])
RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	queue_name text;
	missed     bigint := cardinality(message_ids);
	acked      int := 0;
BEGIN
	-- a lease is of one queue
	SELECT q.name INTO queue_name
	FROM sweep.queue_message m JOIN sweep.queue q USING (queue_id)
	WHERE m.lease = _ack.lease
	LIMIT 1;
	IF FOUND THEN
		PERFORM sweep._find_queue(caller, queue_name);
		DELETE FROM sweep.queue_message m
		WHERE m.lease = _ack.lease
			AND (message_ids IS NULL OR m.message_id = ANY (message_ids));
		GET DIAGNOSTICS acked = ROW_COUNT;
	END IF;
	missed := coalesce(missed - acked, (acked = 0)::int);
	IF missed > 0 THEN
		RAISE NOTICE 'lease % does not hold % of the messages', _ack.lease, CASE WHEN message_ids IS NULL THEN 'any' ELSE missed::text END
			USING DETAIL = 'They were acknowledged before, or the lease ran out and another claim took them.';
	END IF;
	RETURN acked;
END
$$;
COMMENT ON FUNCTION sweep._ack(oid, uuid, bigint[]) IS 'internal: implements sweep.ack';

CREATE FUNCTION sweep.ack(lease uuid, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.ack(uuid, bigint[]) IS 'removes messages of a lease, all of them unless told which, and returns how many; what the lease no longer holds is left alone';

CREATE VIEW sweep.queues AS
	SELECT q.name AS queue, m.depth, m.depth - m.in_flight AS ready, m.in_flight, q.owner
	FROM sweep.queue q
	CROSS JOIN LATERAL (
		SELECT count(*) AS depth,
			count(*) FILTER (WHERE w.visible_until > pg_catalog.clock_timestamp()) AS in_flight
		FROM sweep.queue_message w
		WHERE w.queue_id = q.queue_id) AS m;
COMMENT ON VIEW sweep.queues IS 'how much waits in each queue; it counts, so it costs O(n) for n messages';
COMMENT ON COLUMN sweep.queues.queue IS 'name of the queue';
COMMENT ON COLUMN sweep.queues.depth IS 'all messages: ready and in_flight';
COMMENT ON COLUMN sweep.queues.ready IS 'can be claimed now';
COMMENT ON COLUMN sweep.queues.in_flight IS 'held by a claim that has not run out';
COMMENT ON COLUMN sweep.queues.owner IS 'role the queue belongs to';
