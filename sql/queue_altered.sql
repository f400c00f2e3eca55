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

-- a lane that no priority has
INSERT INTO sweep.queue_message (queue_id, lane, due_at, payload) SELECT queue_id, -30000, now(), '1' FROM sweep.queue WHERE name = 'altered';
INSERT INTO sweep.queue_message (queue_id, lane, due_at, payload) SELECT queue_id, 50, now(), '1' FROM sweep.queue WHERE name = 'altered';

SELECT sweep.send('altered', '"last"') > 0 AS sent;
SELECT count(*) FROM sweep.queue_message;
SELECT sweep.purge_queue('altered');
SELECT sweep.drop_queue('altered');
