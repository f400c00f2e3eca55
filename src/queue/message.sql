--
-- Queues: sending, claiming, acknowledging. The public functions are in C, since they
-- are called for every message.
--
CREATE FUNCTION sweep.send(queue text, payload jsonb, key text DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0, headers jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send';
COMMENT ON FUNCTION sweep.send(text, jsonb, text, interval, int, jsonb) IS 'queues a message in the caller''s transaction and returns its id; NULL when a message with this key is already waiting';

CREATE FUNCTION sweep._try_send(queue_id int, queue text, payload jsonb)
RETURNS text
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_try_send';
COMMENT ON FUNCTION sweep._try_send(int, text, jsonb) IS 'internal: sends without waiting for a transaction that drops the queue; NULL, or why the message was not sent: the transaction goes on';

CREATE FUNCTION sweep.send_many(queue text, payloads jsonb[], keys text[] DEFAULT NULL, delay interval DEFAULT '0', priority int DEFAULT 0)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_send_many';
COMMENT ON FUNCTION sweep.send_many(text, jsonb[], text[], interval, int) IS 'queues any number of messages in the caller''s transaction and returns how many; those whose key is already waiting are left out';

CREATE FUNCTION sweep.claim(queue text, max int DEFAULT 1, visibility interval DEFAULT NULL)
RETURNS SETOF sweep.message
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_claim';
COMMENT ON FUNCTION sweep.claim(text, int, interval) IS 'takes up to max messages, by priority and then oldest first, under one lease; skips messages that others hold and does not wait for them';

CREATE FUNCTION sweep.ack(lease uuid, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_ack';
COMMENT ON FUNCTION sweep.ack(uuid, bigint[]) IS 'removes messages of a lease, all of them unless message_ids is given, and returns how many; ignores messages that the lease no longer holds';

CREATE FUNCTION sweep.fail(lease uuid, error text DEFAULT NULL, message_ids bigint[] DEFAULT NULL)
RETURNS int
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_fail';
COMMENT ON FUNCTION sweep.fail(uuid, text, bigint[]) IS 'delivers messages of a lease again after a pause, or moves them to the dead-letter table when they were delivered as often as the queue allows; returns how many';

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

-- The state of the queues of this database in shared memory. Without shared memory, or on a standby, the rows are counted.
CREATE FUNCTION sweep._queue_states(OUT queue_id int, OUT ready_rows bigint, OUT delayed_rows bigint, OUT dead bigint, OUT ready_held int, OUT delayed_held int,
	OUT due_from timestamptz, OUT due_known int, OUT due_inside int, OUT lanes smallint[], OUT positions bigint[], OUT unsearched smallint,
	OUT sent_per_second double precision, OUT acked_per_second double precision)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_queue_states';
COMMENT ON FUNCTION sweep._queue_states() IS 'internal: counters and positions of the queues of this database';

-- The list of columns of the view sweep.queues and of the functions that it reads.
CREATE TYPE sweep._seen_queue AS (queue text, depth bigint, ready bigint, delayed bigint, in_flight bigint, dead bigint, oldest_age interval,
	sent_per_second double precision, acked_per_second double precision, owner text);
COMMENT ON TYPE sweep._seen_queue IS 'a row of sweep.queues';

-- Must be fast with 10,000 queues. The rights are checked once for each role. The tables are read, along indexes, only for numbers that shared
-- memory does not have: how many delayed messages are due and not found yet, at most ten thousand, and the age of the oldest message, in each
-- lane from its position on. Lanes that no search has reached, for most queues all 16, are read only if they have messages. The planner takes
-- this for a large query; JIT compilation would take a hundred times as long as the execution.
CREATE FUNCTION sweep.__seen_queues(caller oid)
RETURNS SETOF sweep._seen_queue
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
	moment constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	watches constant boolean := sweep._acts_for(caller, 'sweep_monitor');
	roles constant pg_catalog.text[] := ARRAY(SELECT r.role FROM (SELECT DISTINCT u.role FROM sweep.queue q CROSS JOIN LATERAL pg_catalog.unnest(q.owner || q.senders || q.consumers) AS u (role) OFFSET 0) AS r
		WHERE watches OR sweep._may_act_on(caller, r.role, true));
BEGIN
	RETURN QUERY
	SELECT q.name, coalesce(s.ready_rows + s.delayed_rows, 0), n.ready, n.delayed, n.in_flight, coalesce(s.dead, 0),
		CASE WHEN n.ready > 0 THEN greatest(sweep._elapsed(o.oldest, moment), interval '0') END,
		coalesce(s.sent_per_second, 0), coalesce(s.acked_per_second, 0), q.owner
	FROM (SELECT a.* FROM sweep.queue AS a WHERE a.owner = ANY (roles) OR a.senders && roles OR a.consumers && roles) AS q
		LEFT JOIN sweep._queue_states() AS s ON s.queue_id = q.queue_id
		CROSS JOIN LATERAL (SELECT CASE WHEN s.delayed_rows > 0 THEN greatest((SELECT pg_catalog.count(*) FROM (SELECT FROM sweep.queue_message AS m
			WHERE m.queue_id = q.queue_id AND m.due_at >= s.due_from AND m.due_at <= moment LIMIT 10000) AS found) - s.due_inside, 0) + s.due_known
			ELSE coalesce(s.due_known, 0) END AS due OFFSET 0) AS d
		CROSS JOIN LATERAL (SELECT greatest(s.ready_rows - s.ready_held + d.due, 0) AS ready, greatest(s.delayed_rows - s.delayed_held - d.due, 0) AS delayed,
			coalesce(least(s.ready_held + s.delayed_held, s.ready_rows + s.delayed_rows), 0) AS in_flight) AS n
		CROSS JOIN LATERAL (SELECT CASE WHEN n.ready > 0 THEN least(
			(SELECT pg_catalog.min((SELECT m.sent_at FROM sweep.queue_message AS m
					WHERE m.queue_id = q.queue_id AND m.lane = l.lane AND m.message_id >= l.from_id
					ORDER BY m.message_id LIMIT 1))
				FROM unnest(s.lanes, s.positions) AS l (lane, from_id)),
			(WITH RECURSIVE l AS (
				(SELECT m.lane, m.sent_at FROM sweep.queue_message AS m
					WHERE m.queue_id = q.queue_id AND m.lane <= s.unsearched
					ORDER BY m.lane, m.message_id LIMIT 1)
				UNION ALL SELECT following.* FROM l CROSS JOIN LATERAL (SELECT m.lane, m.sent_at FROM sweep.queue_message AS m
					WHERE m.queue_id = q.queue_id AND m.lane > l.lane AND m.lane <= s.unsearched
					ORDER BY m.lane, m.message_id LIMIT 1) AS following)
				SELECT pg_catalog.min(l.sent_at) FROM l),
			(SELECT m.due_at FROM sweep.queue_message AS m
				WHERE m.queue_id = q.queue_id AND m.due_at >= s.due_from AND m.due_at <= moment
				ORDER BY m.due_at LIMIT 1)) END AS oldest OFFSET 0) AS o;
END
$$;
COMMENT ON FUNCTION sweep.__seen_queues(oid) IS 'internal: implements sweep._seen_queues';

CREATE FUNCTION sweep._seen_queues()
RETURNS SETOF sweep._seen_queue
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep._seen_queues() IS 'internal: the queues that the caller may see, for sweep.queues';

CREATE VIEW sweep.queues WITH (security_barrier) AS
	SELECT * FROM sweep._seen_queues();
COMMENT ON VIEW sweep.queues IS 'the number of messages in each queue, from counters; shows the queues that the user may use, and all of them to sweep_monitor';
COMMENT ON COLUMN sweep.queues.queue IS 'name of the queue';
COMMENT ON COLUMN sweep.queues.depth IS 'all messages except dead ones: ready, delayed and in_flight';
COMMENT ON COLUMN sweep.queues.ready IS 'can be claimed now';
COMMENT ON COLUMN sweep.queues.delayed IS 'to be delivered later: sent with a delay, or failed';
COMMENT ON COLUMN sweep.queues.in_flight IS 'held by a claim that has not run out';
COMMENT ON COLUMN sweep.queues.dead IS 'failed as often as the queue allows; see sweep.dead';
COMMENT ON COLUMN sweep.queues.oldest_age IS 'how long the oldest of the ready ones has been waiting';
COMMENT ON COLUMN sweep.queues.sent_per_second IS 'messages sent, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.acked_per_second IS 'messages acknowledged, over the last ten seconds';
COMMENT ON COLUMN sweep.queues.owner IS 'role the queue belongs to';
