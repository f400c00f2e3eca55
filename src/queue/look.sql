--
-- Queues: viewing waiting, claimed, dead and acknowledged messages, and cancelling one.
--
CREATE FUNCTION sweep._in_flight_messages(queue_id int, OUT lane smallint, OUT message_id bigint, OUT claimed_until timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_list_in_flight';
COMMENT ON FUNCTION sweep._in_flight_messages(int) IS 'internal: the messages of a queue that are claimed or being ended, and when their leases run out';

CREATE TYPE sweep._seen_message AS (message_id bigint, state text, payload jsonb, key text, attempts int, headers jsonb, priority int, sent_at timestamptz,
	due_at timestamptz, claimed_until timestamptz, error jsonb);
COMMENT ON TYPE sweep._seen_message IS 'a row of sweep.messages';
COMMENT ON COLUMN sweep._seen_message.message_id IS 'order within the queue; argument of sweep.cancel_message';
COMMENT ON COLUMN sweep._seen_message.state IS 'in_flight, ready or delayed, as sweep.queues counts it';
COMMENT ON COLUMN sweep._seen_message.payload IS 'the payload that was sent';
COMMENT ON COLUMN sweep._seen_message.key IS 'the key it was sent with, or NULL';
COMMENT ON COLUMN sweep._seen_message.attempts IS 'how often it was delivered when it last failed';
COMMENT ON COLUMN sweep._seen_message.headers IS 'the headers that it was sent with, or NULL';
COMMENT ON COLUMN sweep._seen_message.priority IS 'the priority it was sent with';
COMMENT ON COLUMN sweep._seen_message.sent_at IS 'when the transaction that sent it began';
COMMENT ON COLUMN sweep._seen_message.due_at IS 'not delivered before; NULL unless it was sent with a delay, has failed or was redriven';
COMMENT ON COLUMN sweep._seen_message.claimed_until IS 'when the lease of its claim runs out; NULL: it is not claimed, or the end is not known';
COMMENT ON COLUMN sweep._seen_message.error IS 'why it failed the last time, or NULL';

-- Reads along the indexes, and only as many rows as are wanted: each lane by its ids, delayed messages by their due times.
CREATE FUNCTION sweep._messages(caller oid, queue text, state text, max int)
RETURNS SETOF sweep._seen_message
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	id     constant int := (sweep._find_queue(caller, _messages.queue, 'consume')).queue_id;
	wanted constant pg_catalog.text := _messages.state;
	most   constant int := _messages.max;
	moment constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
	IF wanted NOT IN ('in_flight', 'ready', 'delayed') THEN
		RAISE EXCEPTION 'invalid state "%"', wanted
			USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "in_flight", "ready" or "delayed", or NULL for all of them; sweep.dead and sweep.done show the others.';
	END IF;
	IF most <= 0 THEN
		RAISE EXCEPTION 'cannot show % messages', most
			USING ERRCODE = 'invalid_parameter_value', HINT = 'max must be greater than zero, or NULL for all.';
	END IF;
	RETURN QUERY
	WITH taken AS MATERIALIZED (
		SELECT f.lane, f.message_id, f.claimed_until FROM sweep._in_flight_messages(id) AS f
	), seen AS (
		(SELECT 1 AS nth, 'in_flight'::pg_catalog.text AS state, t.claimed_until, m.*
			FROM taken AS t CROSS JOIN LATERAL (SELECT o.* FROM sweep.queue_message AS o
				WHERE o.queue_id = id AND o.lane = t.lane AND o.message_id = t.message_id LIMIT 1) AS m
			WHERE coalesce(wanted, 'in_flight') = 'in_flight' ORDER BY t.message_id LIMIT most)
		UNION ALL
		(SELECT 2, 'ready', NULL, m.*
			FROM pg_catalog.generate_series(7, -8, -1) AS p (priority) CROSS JOIN LATERAL (SELECT o.* FROM sweep.queue_message AS o
				WHERE o.queue_id = id AND o.lane = p.priority::smallint AND (o.lane, o.message_id) NOT IN (SELECT t.lane, t.message_id FROM taken AS t)
				ORDER BY o.message_id LIMIT most) AS m
			WHERE coalesce(wanted, 'ready') = 'ready' LIMIT most)
		UNION ALL
		(SELECT 2, 'ready', NULL, o.*
			FROM sweep.queue_message AS o
			WHERE o.queue_id = id AND o.due_at <= moment AND (o.lane, o.message_id) NOT IN (SELECT t.lane, t.message_id FROM taken AS t)
				AND coalesce(wanted, 'ready') = 'ready' ORDER BY o.due_at LIMIT most)
		UNION ALL
		(SELECT 3, 'delayed', NULL, o.*
			FROM sweep.queue_message AS o
			WHERE o.queue_id = id AND o.due_at > moment AND (o.lane, o.message_id) NOT IN (SELECT t.lane, t.message_id FROM taken AS t)
				AND coalesce(wanted, 'delayed') = 'delayed' ORDER BY o.due_at LIMIT most)
	)
	SELECT s.message_id, s.state, s.payload, s.key, s.attempts::int, s.headers, l.priority, s.sent_at, s.due_at, s.claimed_until, s.error
	FROM seen AS s CROSS JOIN LATERAL (SELECT CASE WHEN s.lane > 50 THEN s.lane - 100 ELSE s.lane END AS priority) AS l
	ORDER BY s.nth, CASE s.nth WHEN 2 THEN -l.priority END, CASE s.nth WHEN 3 THEN s.due_at END, s.message_id
	LIMIT most;
END
$$;
COMMENT ON FUNCTION sweep._messages(oid, text, text, int) IS 'internal: implements sweep.messages';

CREATE FUNCTION sweep.messages(queue text, state text DEFAULT NULL, max int DEFAULT 100)
RETURNS SETOF sweep._seen_message
LANGUAGE c STABLE PARALLEL UNSAFE ROWS 10
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.messages(text, text, int) IS 'up to max messages of a queue without claiming them: those in flight, then ready ones by priority, then delayed ones by their due times; also those that the transaction itself has sent';

CREATE FUNCTION sweep.cancel_message(queue text, message_id bigint DEFAULT NULL, key text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_cancel';
COMMENT ON FUNCTION sweep.cancel_message(text, bigint, text) IS 'removes a message that waits, by its id or its key, in the caller''s transaction; false when it is claimed or gone';

-- sweep.dead and sweep.done read pages, each of which begins after the last row of the page before, so that rows beyond a LIMIT are not
-- read. PostgreSQL inlines a function in SQL, and the statement then reads a page only when it needs the rows; of any other function it
-- would read all rows first. The declared number of rows of a page is too small on purpose: with hundreds of full pages the planner would
-- take the query for a large one and compile it.
CREATE FUNCTION sweep.__ended_page(caller oid, queue text, is_dead boolean, after_at timestamptz, after_id bigint, OUT message_id bigint, OUT payload jsonb,
	OUT key text, OUT attempts int, OUT headers jsonb, OUT priority int, OUT sent_at timestamptz, OUT ended_at timestamptz, OUT error jsonb, OUT goes_on boolean)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	id int := (sweep._find_queue(caller, __ended_page.queue, 'redrive')).queue_id;
BEGIN
	IF is_dead THEN
		RETURN QUERY
		SELECT d.message_id, d.payload, d.key, d.attempts::int, d.headers, d.priority::int, d.sent_at, d.died_at, d.error, pg_catalog.row_number() OVER () = 500
		FROM (SELECT * FROM sweep.queue_dead o WHERE o.queue_id = id AND o.message_id > after_id ORDER BY o.message_id LIMIT 500) AS d;
	ELSE
		RETURN QUERY
		SELECT d.message_id, d.payload, d.key, d.attempts::int, d.headers, NULL::int, d.sent_at, d.done_at, NULL::pg_catalog.jsonb, pg_catalog.row_number() OVER () = 500
		FROM (SELECT * FROM sweep.queue_done o WHERE o.queue_id = id AND (o.done_at, o.message_id) > (after_at, after_id) ORDER BY o.done_at, o.message_id LIMIT 500) AS d;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep.__ended_page(oid, text, boolean, timestamptz, bigint) IS 'internal: implements sweep._ended_page';

CREATE FUNCTION sweep._ended_page(queue text, is_dead boolean, after_at timestamptz, after_id bigint, OUT message_id bigint, OUT payload jsonb, OUT key text,
	OUT attempts int, OUT headers jsonb, OUT priority int, OUT sent_at timestamptz, OUT ended_at timestamptz, OUT error jsonb, OUT goes_on boolean)
RETURNS SETOF record
LANGUAGE c STABLE PARALLEL UNSAFE ROWS 10
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._ended_page(text, boolean, timestamptz, bigint) IS 'internal: a page of the dead messages after an id, or of the acknowledged ones after a time and id; goes_on: a further page may follow';

CREATE FUNCTION sweep.dead(queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT priority int, OUT sent_at timestamptz, OUT died_at timestamptz, OUT error jsonb)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	WITH RECURSIVE page AS (
		SELECT f.* FROM sweep._ended_page(queue, true, NULL, '-9223372036854775808') AS f
		UNION ALL
		SELECT n.* FROM page AS p CROSS JOIN LATERAL sweep._ended_page(queue, true, NULL, p.message_id) AS n WHERE p.goes_on)
	SELECT p.message_id, p.payload, p.key, p.attempts, p.headers, p.priority, p.sent_at, p.ended_at, p.error FROM page AS p;
END;
COMMENT ON FUNCTION sweep.dead(text) IS 'the messages of a queue that failed as often as it allows, with their last error: an object of sqlstate, message, detail, hint and context, or only the message that was given to sweep.fail';

CREATE FUNCTION sweep.done(queue text, OUT message_id bigint, OUT payload jsonb, OUT key text, OUT attempts int, OUT headers jsonb,
	OUT sent_at timestamptz, OUT done_at timestamptz)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	WITH RECURSIVE page AS (
		SELECT f.* FROM sweep._ended_page(queue, false, '-infinity', '-9223372036854775808') AS f
		UNION ALL
		SELECT n.* FROM page AS p CROSS JOIN LATERAL sweep._ended_page(queue, false, p.ended_at, p.message_id) AS n WHERE p.goes_on)
	SELECT p.message_id, p.payload, p.key, p.attempts, p.headers, p.sent_at, p.ended_at FROM page AS p;
END;
COMMENT ON FUNCTION sweep.done(text) IS 'the acknowledged messages of a queue that keep_done has kept, oldest first';
