-- Savepoints, several queues in one transaction, and what they do to leases and counters.
SELECT sweep.create_queue('a', visibility => '1 hour'), sweep.create_queue('b', visibility => '1 hour');
SELECT sweep.send('a', '1') IS NOT NULL AS sent, sweep.send('b', '1') IS NOT NULL AS sent;
SELECT payload, (SELECT payload FROM sweep.claim('b')) FROM sweep.claim('a');
-- kept, in any order of the queues
BEGIN;
SELECT sweep.send('a', '2') IS NOT NULL AS sent;
SAVEPOINT s;
SELECT sweep.send('a', '3') IS NOT NULL AS sent, sweep.send('b', '2') IS NOT NULL AS sent;
SAVEPOINT i;
SELECT sweep.send('b', '3') IS NOT NULL AS sent, sweep.send('a', '4') IS NOT NULL AS sent;
RELEASE i;
RELEASE s;
COMMIT;
SELECT queue, ready, delayed, in_flight FROM sweep.queues ORDER BY queue;
-- undone, in parts and as a whole
BEGIN;
SAVEPOINT s;
SELECT sweep.send('a', '"undone"') IS NOT NULL AS sent, sweep.send('b', '"undone"') IS NOT NULL AS sent;
ROLLBACK TO s;
SELECT sweep.send('b', '4') IS NOT NULL AS sent;
COMMIT;
BEGIN;
SELECT sweep.send('a', '"undone"') IS NOT NULL AS sent;
SAVEPOINT s;
SELECT sweep.send('b', '"undone"') IS NOT NULL AS sent;
RELEASE s;
ROLLBACK;
SELECT queue, ready, delayed, in_flight FROM sweep.queues ORDER BY queue;
SELECT payload FROM sweep.claim('a', 10);
SELECT payload FROM sweep.claim('b', 10);
SELECT sweep.purge_queue('a'), sweep.purge_queue('b');
SELECT queue, ready, delayed, in_flight FROM sweep.queues ORDER BY queue;
-- blocks with EXCEPTION are savepoints, too
DO $$
DECLARE
	held uuid;
BEGIN
	FOR i IN 1 .. 5 LOOP
		BEGIN
			PERFORM sweep.send('a', to_jsonb(i)), sweep.send('b', to_jsonb(i));
			IF i % 2 = 0 THEN
				RAISE division_by_zero;
			END IF;
		EXCEPTION WHEN division_by_zero THEN
			PERFORM sweep.send('b', '"instead"');
		END;
	END LOOP;
END
$$;
SELECT array_agg(payload) FROM sweep.claim('a', 10);
SELECT array_agg(payload) FROM sweep.claim('b', 10);
-- an acknowledgement that is undone, and one that is not, of one lease
SELECT sweep.purge_queue('a'), sweep.purge_queue('b');
SELECT sweep.send_many('a', ARRAY['1', '2', '3']::jsonb[]);
SELECT lease, min(message_id) AS first, array_agg(message_id) AS ids FROM sweep.claim('a', 3) GROUP BY lease \gset
BEGIN;
SELECT sweep.ack(:'lease', ARRAY[:first]);
SAVEPOINT s;
SELECT sweep.ack(:'lease');
ROLLBACK TO s;
SELECT sweep.fail(:'lease', 'broken', ARRAY[:first + 1]);
COMMIT;
SELECT queue, ready, delayed, in_flight FROM sweep.queues WHERE queue = 'a';
SELECT sweep.ack(:'lease', ARRAY[:first + 2]);
SELECT queue, ready, delayed, in_flight FROM sweep.queues WHERE queue = 'a';
-- a purge that is kept, behind and before one that is undone
SELECT sweep.purge_queue('a');
SELECT sweep.send_many('a', ARRAY['1', '2', '3']::jsonb[]);
SELECT lease, count(*) FROM sweep.claim('a', 2) GROUP BY lease \gset
BEGIN;
SAVEPOINT s;
SELECT sweep.purge_queue('a');
ROLLBACK TO s;
SELECT sweep.extend(:'lease', '1 hour') AS held;
SELECT sweep.purge_queue('a');
SAVEPOINT i;
SELECT sweep.purge_queue('a');
ROLLBACK TO i;
COMMIT;
SET client_min_messages = warning;
SELECT sweep.extend(:'lease', '1 hour') AS held;
RESET client_min_messages;
-- somebody's trigger with a savepoint, in a statement that is ours: those by hand are noticed after it as before
CREATE FUNCTION note_in_savepoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		RETURN NEW;
	END;
END
$$;
CREATE TRIGGER note_in_savepoint BEFORE UPDATE ON sweep.queue_message FOR EACH ROW EXECUTE FUNCTION note_in_savepoint();
SELECT sweep.purge_queue('b');
SELECT sweep.send('b', '1') IS NOT NULL AS sent;
SELECT lease FROM sweep.claim('b') \gset
SELECT count(*) FROM sweep.claim('b');
BEGIN;
SELECT sweep.fail(:'lease', 'broken');
INSERT INTO sweep.queue_message (queue_id, payload) SELECT queue_id, '"by hand"' FROM sweep.queue WHERE name = 'b';
COMMIT;
SELECT payload FROM sweep.claim('b');
DROP TRIGGER note_in_savepoint ON sweep.queue_message;
DROP FUNCTION note_in_savepoint();
-- messages that are left out keep no memory when their savepoint, or their transaction, has ended
SELECT sweep.purge_queue('a'), sweep.purge_queue('b'), sweep.send('a', '1', 'k') IS NOT NULL AS sent;
CREATE TABLE left_out (n int);
CREATE FUNCTION used_memory() RETURNS numeric LANGUAGE sql AS $$ SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name <> 'CacheMemoryContext' $$;
DO $$
DECLARE
	used numeric := used_memory();
BEGIN
	FOR i IN 1 .. 300 LOOP
		BEGIN
			PERFORM sweep.send('a', to_jsonb(repeat('x', 10000)), 'k', headers => jsonb_build_object('h', repeat('x', 10000)));
			RAISE division_by_zero;
		EXCEPTION
			WHEN division_by_zero THEN
		END;
	END LOOP;
	RAISE NOTICE 'savepoints keep memory: %', used_memory() - used > 1000000;
	COMMIT;
	used := used_memory();
	FOR i IN 1 .. 300 LOOP
		PERFORM sweep.send('a', '1', 'k');
		COMMIT;
		INSERT INTO left_out VALUES (i);
		PERFORM sweep.send('a', '2', 'k');
		DELETE FROM sweep.queue_message;
		COMMIT;
	END LOOP;
	RAISE NOTICE 'commits keep memory: %', used_memory() - used > 500000;
END
$$;
SELECT payload FROM sweep.claim('a', 10);
DROP FUNCTION used_memory();
DROP TABLE left_out;
SELECT sweep.drop_queue('a'), sweep.drop_queue('b');
