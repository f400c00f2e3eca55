-- room: api
-- What it takes to read the views does not grow with what they show faster than their rows: functions are called once for each role
-- and each kind of job, messages are found along an index, and sweep.dead and sweep.done read no more than what a LIMIT wants.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
BEGIN;
SET LOCAL track_functions = 'pl';
CREATE SCHEMA view_reads;
GRANT USAGE ON SCHEMA view_reads TO PUBLIC;
CREATE FUNCTION view_reads.step(sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$ SELECT 0::bigint, NULL::jsonb, NULL::jsonb $$;
CREATE ROLE regress_sweep_reader LOGIN IN ROLE sweep_user;
SELECT sweep.create_job('reads 0', '@yearly', 'SELECT 1'), sweep.create_job('reads 1', '@daily', step => 'view_reads.step', run_as => 'regress_sweep_reader'), sweep.create_job('reads 2', step => 'view_reads.step');

-- How often functions are called, and how many rows of messages and runs are fetched, by a query; as a role.
CREATE FUNCTION view_reads.calls() RETURNS bigint LANGUAGE sql AS $$ SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_xact_user_functions WHERE schemaname = 'sweep' $$;
CREATE FUNCTION view_reads.fetched() RETURNS bigint LANGUAGE sql AS $$
	SELECT sum(pg_stat_get_xact_tuples_returned(o.oid))::bigint FROM (SELECT i.indexrelid AS oid FROM pg_index AS i WHERE i.indrelid IN (SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'sweep'::regnamespace)
		UNION ALL SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'sweep'::regnamespace AND c.relname ~ '^(queue_|run_history)' AND c.relkind = 'r') AS o
$$;
CREATE FUNCTION view_reads.reads(query text, role text DEFAULT NULL, OUT rows bigint, OUT calls bigint, OUT fetched bigint) LANGUAGE plpgsql AS $$
BEGIN
	calls := view_reads.calls();
	fetched := view_reads.fetched();
	EXECUTE format('SET LOCAL ROLE %I', coalesce(role, session_user));
	EXECUTE format('SELECT count(*) FROM (SELECT * FROM %s) AS r', query) INTO rows;
	RESET ROLE;
	calls := view_reads.calls() - calls;
	fetched := view_reads.fetched() - fetched;
END
$$;

-- sweep.jobs: of 3 jobs, and of 900 of the same kinds; each has run twice
CREATE FUNCTION view_reads.add_jobs(count int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO sweep.job_definition SELECT (jsonb_populate_record(j, jsonb_build_object('name', j.name || ' ' || n))).* FROM sweep.job_definition AS j, generate_series(1, count) AS n WHERE j.name LIKE 'reads _';
	INSERT INTO sweep.job_state SELECT (jsonb_populate_record(s, jsonb_build_object('job', s.job || ' ' || n))).* FROM sweep.job_state AS s, generate_series(1, count) AS n WHERE s.job LIKE 'reads _';
	INSERT INTO sweep.run_history (run_id, job, run_as, trigger, due_at, started_at, finished_at, status, stop_reason)
		SELECT 1700000 + row_number() OVER (), j.name, j.run_as, 'manual', now(), now(), now(), 'succeeded', 'drained' FROM sweep.job_definition AS j, generate_series(1, 2) AS n
			WHERE NOT EXISTS (SELECT FROM sweep.run_history AS h WHERE h.job = j.name);
$$;
SELECT rows FROM view_reads.reads('sweep.jobs WHERE name LIKE ''reads%''');
SELECT calls AS few_jobs FROM view_reads.reads('sweep.jobs WHERE name LIKE ''reads%''') \gset
SELECT view_reads.add_jobs(300);
ANALYZE sweep.run_history, sweep.job_definition, sweep.job_state;
SELECT rows, calls = :few_jobs AS as_often, fetched <= 4 * rows + 1000 AS few FROM view_reads.reads('sweep.jobs WHERE name LIKE ''reads%''');
SELECT rows, calls <= :few_jobs AS as_often FROM view_reads.reads('sweep.jobs WHERE name LIKE ''reads%''', 'regress_sweep_reader');
-- sweep.runs: along the index of the reader's roles
INSERT INTO sweep.run_history (run_id, job, run_as, trigger, due_at, finished_at, status) SELECT 1800000 + n, 'reads of others', 'other ' || n % 30, 'manual', now(), now(), 'cancelled' FROM generate_series(1, 30000) AS n;
ANALYZE sweep.run_history;
SELECT rows, fetched < 10000 AS few FROM view_reads.reads('sweep.runs', 'regress_sweep_reader');

-- sweep.queues: of 3 queues, and of 900, with messages, some of which are delayed
SELECT count(sweep.create_queue('reads_' || n)) FROM generate_series(1, 3) AS n;
SELECT rows FROM view_reads.reads('sweep.queues WHERE queue LIKE ''reads%''');
SELECT calls AS few_queues FROM view_reads.reads('sweep.queues') \gset
SELECT count(sweep.create_queue('reads_' || n)) FROM generate_series(4, 900) AS n;
INSERT INTO sweep.queue_message (queue_id, payload) SELECT queue_id, '1' FROM sweep.queue, generate_series(1, 3) WHERE name LIKE 'reads%';
INSERT INTO sweep.queue_message (queue_id, lane, due_at, payload) SELECT queue_id, 100, now() + n * interval '1 day', '1' FROM sweep.queue, generate_series(-1, 3) AS n WHERE name LIKE 'reads%';
ANALYZE sweep.queue, sweep.queue_message;
SELECT rows, calls = :few_queues AS as_often FROM view_reads.reads('sweep.queues WHERE queue LIKE ''reads%''');

-- sweep.dead, sweep.done: nothing is read above a limit, and nothing is left out without one
INSERT INTO sweep.queue_dead (message_id, queue_id, priority, attempts, sent_at, payload) SELECT n, queue_id, 0, 1, now(), '1' FROM sweep.queue, generate_series(1, 5000) AS n WHERE name = 'reads_1';
INSERT INTO sweep.queue_done (message_id, queue_id, attempts, sent_at, done_at, payload) SELECT n, queue_id, 1, now(), now() + n % 7 * interval '1 s', '1' FROM sweep.queue, generate_series(1, 5000) AS n WHERE name = 'reads_1';
SELECT rows, fetched <= 2000 AS few FROM view_reads.reads('sweep.dead(''reads_1'') LIMIT 10');
SELECT rows, fetched <= 2000 AS few FROM view_reads.reads('sweep.done(''reads_1'') LIMIT 10');
SELECT count(*), count(DISTINCT message_id), bool_and(message_id = nth) AS in_order FROM sweep.dead('reads_1') WITH ORDINALITY AS d (message_id, p, k, a, h, pr, s, di, e, nth);
SELECT count(*), count(DISTINCT message_id), bool_and(in_order) AS in_order FROM (SELECT message_id, (done_at, message_id) > lag((done_at, message_id)) OVER () IS NOT FALSE AS in_order FROM sweep.done('reads_1')) AS d;
-- pages end where the queue does
SELECT count(*) FROM sweep.dead('reads_2');
INSERT INTO sweep.queue_dead (message_id, queue_id, priority, attempts, sent_at, payload) SELECT n, queue_id, 0, 1, now(), '1' FROM sweep.queue, generate_series(1, CASE name WHEN 'reads_2' THEN 500 WHEN 'reads_3' THEN 501 ELSE 1000 END) AS n
	WHERE name IN ('reads_2', 'reads_3', 'reads_4');
SELECT n, (SELECT count(*) FROM sweep.dead('reads_' || n)) FROM unnest('{2,3,4}'::int[]) AS n;
ROLLBACK;

-- sweep.queues searches the lanes that have messages, and not each of 16 of a queue that nothing was claimed from. Committed, for the counters are of what is.
SELECT count(sweep.create_queue('reads_' || n)) FROM generate_series(1, 100) AS n;
SELECT count(sweep.send('reads_' || n, '1', priority => n % 3)) FROM generate_series(1, 100) AS n;
BEGIN;
SELECT sum(pg_stat_get_xact_numscans(indexrelid)) AS before FROM pg_index WHERE indrelid = 'sweep.queue_message'::regclass \gset
SELECT count(*) AS queues FROM sweep.queues \gset
SELECT sum(pg_stat_get_xact_numscans(indexrelid)) - :before BETWEEN 100 AND 5 * :queues AS few FROM pg_index WHERE indrelid = 'sweep.queue_message'::regclass;
COMMIT;
-- the oldest is found in whatever lane it is, whether some, none or all of them were searched
DELETE FROM sweep.queue_message AS m USING sweep.queue AS q WHERE m.queue_id = q.queue_id AND q.name LIKE 'reads%';
INSERT INTO sweep.queue_message (queue_id, lane, sent_at, payload) SELECT queue_id, lane, now() - age, '1' FROM sweep.queue, (VALUES ('reads_1', 7, interval '25 h'), ('reads_2', -8, '49 h'),
	('reads_3', 3, '73 h'), ('reads_3', 7, '25 h'), ('reads_3', 2, '49 h'), ('reads_4', -8, '25 h'), ('reads_4', -7, '97 h'), ('reads_4', 0, '49 h')) AS m (queue, lane, age) WHERE name = queue;
SELECT queue, depth, ready, extract(epoch FROM oldest_age)::int / 86400 AS days FROM sweep.queues WHERE queue ~ '^reads_[1-5]$' ORDER BY queue;
SELECT (sweep.claim('reads_3', 1)).payload IS NOT NULL AS claimed UNION ALL SELECT (sweep.claim('reads_4', 1)).payload IS NOT NULL;
SELECT queue, depth, ready, extract(epoch FROM oldest_age)::int / 86400 AS days FROM sweep.queues WHERE queue ~ '^reads_[1-5]$' ORDER BY queue;
SELECT count(*) AS claimed FROM sweep.claim('reads_4', 2);
SELECT queue, depth, ready, extract(epoch FROM oldest_age)::int / 86400 AS days FROM sweep.queues WHERE queue ~ '^reads_[1-5]$' ORDER BY queue;
SELECT count(sweep.drop_queue('reads_' || n)) FROM generate_series(1, 100) AS n;
