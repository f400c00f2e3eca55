-- room: queue
-- Messages are read and written by the numbers of the columns of sweep.queue_message. A superuser can alter that table, and write
-- into it: the server stays up.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
SELECT sweep.create_queue('altered', backoff => '1 day') IS NULL AS no_id;
SELECT sweep.send('altered', '"claimed"', 'claimed') > 0 AS sent;
SELECT payload, lease FROM sweep.claim('altered') \gset
SELECT sweep.send('altered', '"waiting"', 'waiting') > 0 AS sent;

-- a column that was added is NULL in new messages, and keeps its value in old ones; one that was dropped does no harm
BEGIN;
ALTER TABLE sweep.queue_message ADD COLUMN note text, ADD COLUMN number int DEFAULT 5;
SELECT payload FROM sweep.claim('altered');
UPDATE sweep.queue_message SET note = 'kept' WHERE key = 'claimed';
SELECT sweep.send('altered', '"new"') > 0 AS sent, sweep.send('altered', '"keyed"', 'new') > 0 AS keyed, sweep.send_many('altered', '{"1", "2"}') AS many;
SELECT sweep.fail(:'lease', 'no');
SELECT payload, note, number, attempts FROM sweep.queue_message ORDER BY message_id;
ALTER TABLE sweep.queue_message DROP COLUMN note, DROP COLUMN number;
SELECT sweep.send('altered', '"behind"', 'behind') > 0 AS sent;
ROLLBACK;

-- what cannot be written is refused
\set VERBOSITY default
BEGIN;
ALTER TABLE sweep.queue_message ADD COLUMN note text NOT NULL DEFAULT 'x';
SELECT sweep.send('altered', '1');
ROLLBACK;
\set VERBOSITY terse
BEGIN;
ALTER TABLE sweep.queue_message ADD COLUMN doubled int GENERATED ALWAYS AS (lane * 2) STORED;
SELECT sweep.send('altered', '1');
ROLLBACK;
BEGIN;
ALTER TABLE sweep.queue_message ALTER headers TYPE json;
SELECT * FROM sweep.claim('altered');
ROLLBACK;
BEGIN;
ALTER TABLE sweep.queue_message ALTER attempts DROP DEFAULT, ALTER attempts TYPE text;
SELECT sweep.cancel_message('altered', key => 'waiting');
ROLLBACK;

-- an index that is gone, or is just being made concurrently, tells of no key and of no message that is due
\set VERBOSITY default
BEGIN;
DROP INDEX sweep.queue_message_waiting_key;
SELECT sweep.send('altered', '1', 'another');
ROLLBACK;
\set VERBOSITY terse
BEGIN;
UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indexrelid = 'sweep.queue_message_waiting_key'::regclass;
SELECT sweep.send('altered', '1') > 0 AS sent_without_key;
SAVEPOINT s;
SELECT sweep.send('altered', '1', 'another');
ROLLBACK TO s;
SELECT sweep.fail(:'lease', 'no');
ROLLBACK TO s;
SELECT sweep.cancel_message('altered', key => 'waiting');
ROLLBACK;
SELECT sweep.send('altered', '"due"', 'due', delay => '1 us', priority => 7) > 0 AS sent;
BEGIN;
UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indexrelid = 'sweep.queue_message_due'::regclass;
SELECT payload FROM sweep.claim('altered');
ROLLBACK;
BEGIN;
SELECT payload FROM sweep.claim('altered', 10) ORDER BY payload::text;
ROLLBACK;
SELECT sweep.cancel_message('altered', key => 'due');

-- the same of the types of messages and batches: what is added is NULL, and another type is refused
BEGIN;
ALTER TYPE sweep.message ADD ATTRIBUTE note text, ADD ATTRIBUTE number int;
SELECT payload, note, number FROM sweep.claim('altered');
ROLLBACK;
BEGIN;
ALTER TYPE sweep.message ADD ATTRIBUTE note text, ADD ATTRIBUTE number int;
ALTER TYPE sweep.message DROP ATTRIBUTE note;
SELECT payload, number FROM sweep.claim('altered');
ROLLBACK;
\set VERBOSITY default
BEGIN;
ALTER TYPE sweep.message ALTER ATTRIBUTE payload TYPE json;
SELECT payload FROM sweep.claim('altered');
ROLLBACK;
\set VERBOSITY terse
CREATE FUNCTION public.altered_step(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT CASE WHEN b.cursor IS NULL THEN 1 ELSE 0 END::bigint, '1'::jsonb, '{"seen": 1}'::jsonb $$;
SELECT sweep.create_job('altered', step => 'public.altered_step', schedule => NULL);
CREATE TABLE public.altered (id int PRIMARY KEY, at timestamptz);
CREATE INDEX ON public.altered (at);
INSERT INTO public.altered SELECT n, '2026-01-01Z' FROM generate_series(1, 3) AS n;
SELECT sweep.create_retention('public.altered', 'at', '1 day', name => 'altered_rows');
BEGIN;
ALTER TYPE sweep.batch ADD ATTRIBUTE note text;
SELECT rows FROM sweep.preview('altered');
ALTER TYPE sweep.progress ADD ATTRIBUTE note text, ADD ATTRIBUTE number int;
ALTER TYPE sweep.progress DROP ATTRIBUTE note;
SELECT rows FROM sweep.preview('altered_rows');
ROLLBACK;
BEGIN;
ALTER TYPE sweep.batch DROP ATTRIBUTE items;
SELECT sweep.retention_step(ROW(1, NULL, '{}', now(), NULL, NULL, 1));
ROLLBACK;
BEGIN;
ALTER TYPE sweep.batch DROP ATTRIBUTE items;
SELECT rows FROM sweep.preview('altered');
ROLLBACK;
BEGIN;
ALTER TYPE sweep.progress ALTER ATTRIBUTE rows TYPE text;
SELECT rows FROM sweep.preview('altered');
ROLLBACK;
BEGIN;
ALTER TYPE sweep.progress ALTER ATTRIBUTE rows TYPE text;
SELECT rows FROM sweep.preview('altered_rows');
ROLLBACK;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'altered%';
DELETE FROM sweep.run_live WHERE job LIKE 'altered%';
DELETE FROM sweep.run_history WHERE job LIKE 'altered%';
DROP FUNCTION public.altered_step;
DROP TABLE public.altered;

-- a lane that no priority has, or a delayed message that is never due
INSERT INTO sweep.queue_message (queue_id, lane, due_at, payload) SELECT queue_id, -30000, now(), '1' FROM sweep.queue WHERE name = 'altered';
INSERT INTO sweep.queue_message (queue_id, lane, due_at, payload) SELECT queue_id, 50, now(), '1' FROM sweep.queue WHERE name = 'altered';
INSERT INTO sweep.queue_message (queue_id, lane, payload) SELECT queue_id, 100, '1' FROM sweep.queue WHERE name = 'altered';

SELECT sweep.send('altered', '"last"') > 0 AS sent;
SELECT count(*) FROM sweep.queue_message;
SELECT sweep.purge_queue('altered');
SELECT sweep.drop_queue('altered');
