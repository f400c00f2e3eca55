--
-- Queues: sending, claiming, acknowledging. These are C, without a detour: they
-- are called for every message.
--
CREATE FUNCTION sweep.send(queue text, payload jsonb, key text DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0, headers jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send';
COMMENT ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb) IS 'queues a message in the caller''s transaction and returns its id; NULL when one with this key is already waiting';

CREATE FUNCTION sweep._try_send(queue_id int, queue text, payload jsonb)
RETURNS text
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_try_send';
COMMENT ON FUNCTION sweep._try_send(int, text, jsonb) IS 'internal: sends without waiting for who drops the queue, in a transaction that goes on in any case; NULL, or what has kept it from being sent';

CREATE FUNCTION sweep.send_many(queue text, payloads jsonb[], keys text[] DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send_many';
COMMENT ON FUNCTION sweep.send_many(text, jsonb[], text[], interval, int) IS 'queues any number of messages in the caller''s transaction and returns how many; those whose key is already waiting are left out';

CREATE FUNCTION sweep.claim(queue text, max int DEFAULT 1, visibility interval DEFAULT NULL)
RETURNS SETOF sweep.message
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_claim';
COMMENT ON FUNCTION sweep.claim(text, int, interval) IS 'takes up to max messages, by priority and then oldest first, under one lease; skips what others hold and does not wait for it';

CREATE FUNCTION sweep.ack(lease uuid, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_ack';
COMMENT ON FUNCTION sweep.ack(uuid, bigint[]) IS 'removes messages of a lease, all of them unless told which, and returns how many; what the lease no longer holds is left alone';

CREATE FUNCTION sweep.fail(lease uuid, error text DEFAULT NULL, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_fail';
COMMENT ON FUNCTION sweep.fail(uuid, text, bigint[]) IS 'has messages of a lease come again after a pause, or moves them to the dead-letter table when they were delivered as often as the queue allows; returns how many';

CREATE FUNCTION sweep.release(lease uuid, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_release';
COMMENT ON FUNCTION sweep.release(uuid, bigint[]) IS 'gives messages of a lease back at once, as if they had not been claimed, and returns how many';

CREATE FUNCTION sweep.extend(lease uuid, by interval)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_extend';
COMMENT ON FUNCTION sweep.extend(uuid, interval) IS 'has a lease end this long from now, and returns how many messages it holds';

-- What shared memory knows of the queues of this database. Without it, or on a
-- standby, the rows are counted.
CREATE FUNCTION sweep._queue_states(OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint, OUT ready_held int, OUT delayed_held int,
	OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[], OUT positions bigint[],
	OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 50
AS 'MODULE_PATHNAME', 'sweep_queue_states';
COMMENT ON FUNCTION sweep._queue_states() IS 'internal: counters and positions of the queues of this database';

-- A view calls functions with the rights of its reader, so everybody may call these two directly: they know who
-- asks and tell of no queue but those that sweep.queues shows.
CREATE FUNCTION sweep.__seen_queues(caller oid, OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint,
	OUT ready_held int, OUT delayed_held int, OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[],
	OUT positions bigint[], OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT q.queue_id, s.ready_rows, s.delayed_rows, s.dead, s.ready_held, s.delayed_held, s.due_from, s.due_known, s.due_inside,
			s.lanes, s.positions, s.sent_per_second, s.acked_per_second
		FROM sweep.queue AS q LEFT JOIN sweep._queue_states() AS s ON s.queue_id = q.queue_id
		WHERE sweep._sees_queue(caller, q);
END
$$;
COMMENT ON FUNCTION sweep.__seen_queues(oid) IS 'internal: implements sweep._seen_queues';

CREATE FUNCTION sweep._seen_queues(OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint,
	OUT ready_held int, OUT delayed_held int, OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[],
	OUT positions bigint[], OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 50
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._seen_queues() IS 'internal: the queues that the caller may see, with their counters and positions';

-- What must be read of a queue: how many delayed messages are due and not found
-- yet, ten thousand at most, and how long the oldest has been waiting.  A function
-- for the sake of its settings: the planner takes this for a large query, and
-- compiling it would take a hundred times as long as executing it.
CREATE FUNCTION sweep.__read_queue(caller oid, queue_id int, delayed_rows bigint, due_from timestamptz, due_known int, due_inside int, lanes smallint[],
	positions bigint[], OUT due bigint, OUT oldest_age interval)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	id int := __read_queue.queue_id;
BEGIN
	IF NOT EXISTS (SELECT FROM sweep.queue AS q WHERE q.queue_id = id AND sweep._sees_queue(caller, q)) THEN
		RETURN;
	END IF;
	SELECT coalesce(greatest(pg_catalog.count(*) - __read_queue.due_inside, 0) + __read_queue.due_known, 0) INTO __read_queue.due
	FROM (SELECT FROM sweep.queue_message AS m
		WHERE m.queue_id = id AND m.due_at >= __read_queue.due_from AND m.due_at <= pg_catalog.clock_timestamp()
			AND __read_queue.delayed_rows > 0
		LIMIT 10000) AS found;
	SELECT greatest(pg_catalog.clock_timestamp() - pg_catalog.min(w.waits_from), interval '0') INTO __read_queue.oldest_age
	FROM (
		SELECT (SELECT m.sent_at FROM sweep.queue_message AS m
			WHERE m.queue_id = id AND m.lane = l.lane AND m.message_id >= l.from_id
			ORDER BY m.message_id LIMIT 1)
		FROM unnest(__read_queue.lanes, __read_queue.positions) AS l (lane, from_id)
		UNION ALL
		(SELECT m.due_at FROM sweep.queue_message AS m
			WHERE m.queue_id = id AND m.due_at >= __read_queue.due_from AND m.due_at <= pg_catalog.clock_timestamp()
			ORDER BY m.due_at LIMIT 1)) AS w (waits_from);
END
$$;
COMMENT ON FUNCTION sweep.__read_queue(oid, int, bigint, timestamptz, int, int, smallint[], bigint[]) IS 'internal: implements sweep._read_queue';

CREATE FUNCTION sweep._read_queue(queue_id int, delayed_rows bigint, due_from timestamptz, due_known int, due_inside int, lanes smallint[],
	positions bigint[], OUT due bigint, OUT oldest_age interval)
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._read_queue(int, bigint, timestamptz, int, int, smallint[], bigint[]) IS 'internal: what sweep.queues reads from the messages of a queue that the caller may see';

-- A barrier: no function of the reader sees a queue that the reader may not see.
CREATE VIEW sweep.queues WITH (security_barrier) AS
	SELECT q.name AS queue,
		coalesce(s.ready_rows + s.delayed_rows, 0) AS depth,
		greatest(s.ready_rows - s.ready_held + r.due, 0) AS ready,
		greatest(s.delayed_rows - s.delayed_held - r.due, 0) AS delayed,
		coalesce(least(s.ready_held + s.delayed_held, s.ready_rows + s.delayed_rows), 0) AS in_flight,
		coalesce(s.dead, 0) AS dead,
		CASE WHEN greatest(s.ready_rows - s.ready_held + r.due, 0) > 0 THEN r.oldest_age END AS oldest_age,
		coalesce(s.sent_per_second, 0) AS sent_per_second,
		coalesce(s.acked_per_second, 0) AS acked_per_second,
		q.owner
	FROM sweep.queue AS q
	JOIN sweep._seen_queues() AS s ON s.queue_id = q.queue_id
	CROSS JOIN LATERAL sweep._read_queue(q.queue_id, s.delayed_rows, s.due_from, s.due_known, s.due_inside, s.lanes, s.positions) AS r
	OFFSET 0;
COMMENT ON VIEW sweep.queues IS 'how much is in each queue; known without counting, whatever the number; one sees those one may use, or all of them as sweep_monitor';
COMMENT ON COLUMN sweep.queues.queue IS 'name of the queue';
COMMENT ON COLUMN sweep.queues.depth IS 'all messages but the dead: ready, delayed and in_flight';
COMMENT ON COLUMN sweep.queues.ready IS 'can be claimed now';
COMMENT ON COLUMN sweep.queues.delayed IS 'to be delivered later: sent with a delay, or failed';
COMMENT ON COLUMN sweep.queues.in_flight IS 'held by a claim that has not run out';
COMMENT ON COLUMN sweep.queues.dead IS 'failed as often as the queue allows; see sweep.dead';
COMMENT ON COLUMN sweep.queues.oldest_age IS 'how long the oldest of the ready ones has been waiting';
COMMENT ON COLUMN sweep.queues.sent_per_second IS 'messages sent, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.acked_per_second IS 'messages acknowledged, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.owner IS 'role the queue belongs to';
