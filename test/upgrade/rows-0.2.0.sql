-- What version 0.2.0 had, filled by itself: the schema u of a user, and the rows of all tables as they were when the server was stopped in the middle of a
-- run, with messages in flight. test/t/upgrade.pl loads it into the objects of that version.
SET check_function_bodies = off;
CREATE SCHEMA u;
CREATE FUNCTION u.fail(b sweep.batch) RETURNS sweep.progress
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'on purpose'; END $$;
CREATE FUNCTION u.get(m sweep.message) RETURNS void
    LANGUAGE sql
    AS $$ INSERT INTO u.got VALUES ((m).message_id, ((m).payload ->> 'n')::int) $$;
CREATE FUNCTION u.handle(m sweep.message) RETURNS void
    LANGUAGE sql
    AS $$ SELECT $$;
CREATE FUNCTION u.handle_all(m sweep.message[]) RETURNS void
    LANGUAGE sql
    AS $$ SELECT $$;
CREATE FUNCTION u.items(b sweep.batch) RETURNS sweep.progress
    LANGUAGE plpgsql
    AS $$
BEGIN
	IF '3' = ANY (b.items) THEN
		RAISE EXCEPTION 'not this one';
	END IF;
	RETURN ROW(cardinality(b.items), NULL, NULL)::sweep.progress;
END
$$;
CREATE FUNCTION u.pick(b sweep.batch) RETURNS SETOF jsonb
    LANGUAGE sql
    AS $$ SELECT to_jsonb(i) FROM generate_series(1, 4) AS i WHERE b.cursor IS NULL $$;
CREATE FUNCTION u.rescue(b sweep.batch, error jsonb) RETURNS sweep.progress
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'nor so'; END $$;
CREATE FUNCTION u.shares(b sweep.batch) RETURNS integer
    LANGUAGE sql
    AS $$ SELECT 1 $$;
CREATE FUNCTION u.slow(b sweep.batch) RETURNS sweep.progress
    LANGUAGE plpgsql
    AS $$
DECLARE
	n int;
BEGIN
	IF coalesce((b.cursor ->> 'n')::int, 0) >= 2 THEN
		PERFORM pg_advisory_xact_lock(70);
	END IF;
	DELETE FROM u.todo WHERE id IN (SELECT id FROM u.todo ORDER BY id LIMIT b.size);
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN ROW(n, jsonb_build_object('n', coalesce((b.cursor ->> 'n')::int, 0) + 1), NULL)::sweep.progress;
END
$$;
CREATE FUNCTION u.step(b sweep.batch) RETURNS sweep.progress
    LANGUAGE sql
    AS $$ SELECT ROW(0, '{"at": 1}', '{"n": 1}')::sweep.progress $$;
CREATE TABLE u.aged (
    id integer NOT NULL,
    at timestamp with time zone NOT NULL
);
CREATE TABLE u.copied (
    id integer NOT NULL
);
CREATE TABLE u.got (
    message_id bigint,
    n integer
);
CREATE TABLE u."row" (
    id integer NOT NULL
);
CREATE TABLE u.todo (
    id integer NOT NULL
);
COPY u.aged (id, at) FROM stdin;
\.
COPY u.copied (id) FROM stdin;
1
2
3
4
5
6
7
8
9
10
11
12
13
14
15
16
17
18
19
20
21
22
23
24
25
\.
COPY u.got (message_id, n) FROM stdin;
\.
COPY u."row" (id) FROM stdin;
1
2
3
4
5
6
7
8
9
10
11
12
13
14
15
16
17
18
19
20
21
22
23
24
25
\.
COPY u.todo (id) FROM stdin;
21
22
23
24
25
26
27
28
29
30
31
32
33
34
35
36
37
38
39
40
41
42
43
44
45
46
47
48
49
50
51
52
53
54
55
56
57
58
59
60
61
62
63
64
65
66
67
68
69
70
71
72
73
74
75
76
77
78
79
80
81
82
83
84
85
86
87
88
89
90
91
92
93
94
95
96
97
98
99
100
\.
ALTER TABLE ONLY u.aged
    ADD CONSTRAINT aged_pkey PRIMARY KEY (at);
ALTER TABLE ONLY u.copied
    ADD CONSTRAINT copied_pkey PRIMARY KEY (id);
ALTER TABLE ONLY u."row"
    ADD CONSTRAINT row_pkey PRIMARY KEY (id);
ALTER TABLE ONLY u.todo
    ADD CONSTRAINT todo_pkey PRIMARY KEY (id);
GRANT USAGE ON SCHEMA u TO jobber;
GRANT SELECT,DELETE ON TABLE u."row" TO jobber;
GRANT SELECT,DELETE ON TABLE u.todo TO jobber;
COPY sweep.job (name, schedule, sql, batch_sql, step, timezone, args, pick, rescue, transaction, row_retries, batch_size, max_batches, max_rows, stop_after, timeout, pause, settings, lock_key, lock_retries, lock_retry_delay, max_attempts, overlap, catch_up, jitter, cursor, estimate, on_start, on_success, on_failure, alert_queue, priority, flush, buckets, bucket_store, bucket_recovery, bucket_key, buckets_function, run_as, description) FROM stdin;
of sql	@yearly	\N	DELETE FROM u.row WHERE id IN (SELECT id FROM u.row ORDER BY id LIMIT $1)	\N	Europe/Berlin	{}	\N	\N	batch	3	10	\N	\N	\N	\N	\N	{}	of sql	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	\N	\N	0	\N	\N	table	00:10:00	of sql	\N	jobber	a word
of steps	\N	\N	\N	u.step	UTC	{"a": 1}	\N	\N	batch	3	1000	\N	\N	\N	\N	\N	{}	of steps	0	00:00:00.01	1	skip	once	00:00:00	drain	\N	{"of sql": "1 day"}	\N	\N	\N	0	\N	\N	table	00:10:00	of steps	\N	postgres	\N
of items	\N	\N	\N	u.items	UTC	{}	u.pick	u.rescue	row	0	1000	\N	\N	\N	\N	\N	{}	of items	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	\N	\N	0	\N	\N	table	00:10:00	of items	\N	postgres	\N
divided	\N	\N	\N	u.step	UTC	{}	\N	\N	batch	3	1000	\N	\N	00:01:00	\N	\N	{}	divided	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	\N	\N	0	\N	3	table	00:10:00	divided	\N	postgres	\N
paused	@daily	\N	\N	u.step	UTC	{}	\N	\N	batch	3	1000	\N	\N	\N	\N	\N	{}	paused	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	\N	\N	0	\N	\N	redis	00:10:00	paused	\N	postgres	\N
of statements	30 2 L * *	VACUUM u.row; SELECT 1	\N	\N	America/St_Johns	{}	\N	\N	batch	3	1000	\N	\N	\N	\N	\N	{"work_mem": "3MB", "search_path": "u"}	shared	2	00:00:01	1	queue_one	all	00:01:00	run	\N	\N	{"of sql": "0"}	\N	alerts	-3	\N	\N	table	00:10:00	of statements	\N	jobber	\N
with limits	@reboot	\N	DELETE FROM u.row WHERE id IN (SELECT id FROM u.row WHERE id > 1000 LIMIT $1)	\N	UTC	{}	\N	\N	batch	3	1000	9	90	00:01:00	00:02:00	00:00:00.01	{}	with limits	0	00:00:00.01	4	skip	once	00:00:00	drain	SELECT count(*) FROM u.row	\N	\N	\N	\N	100	batch	\N	table	00:10:00	with limits	\N	postgres	all that bounds a run
that fails	\N	\N	\N	u.fail	UTC	{}	\N	\N	batch	3	1000	\N	\N	\N	\N	\N	{}	that fails	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	{"of steps": "1 hour"}	alerts	0	\N	\N	table	00:10:00	that fails	\N	postgres	\N
divided elsewhere	every 1 day	\N	\N	u.step	UTC	{}	\N	\N	batch	3	1000	\N	\N	\N	\N	\N	{}	divided elsewhere	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	\N	\N	0	\N	2	table	01:00:00	of others	u.shares	postgres	\N
retention_aged	H 3 * * *	\N	\N	sweep.retention_step	UTC	{"keep": "90 days", "target": "u.aged", "timezone": "UTC", "condition": "id > 0", "age_column": "at", "partitions": "empty"}	\N	\N	batch	3	1000	\N	\N	\N	\N	\N	{}	retention_aged	0	00:00:00.01	1	skip	once	00:00:00	drain	\N	\N	\N	\N	\N	0	\N	\N	table	00:10:00	retention_aged	\N	postgres	\N
backfill	\N	\N	\N	sweep.backfill_step	UTC	{"set": "id = id", "target": "u.aged", "order_by": "at", "condition": "false"}	\N	\N	batch	3	1000	\N	\N	\N	\N	00:00:01	{}	backfill	0	00:00:00.01	1	skip	once	00:00:00	drain	SELECT sum(c.reltuples) FROM pg_catalog.pg_partition_tree('u.aged') AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.relid WHERE t.isleaf AND c.reltuples >= 0	\N	\N	\N	\N	0	\N	\N	table	00:10:00	backfill	\N	postgres	\N
copy	\N	\N	\N	sweep.copy_step	UTC	{"source": "u.\\"row\\"", "target": "u.copied", "settled": true, "order_by": "id", "on_conflict": "error"}	\N	\N	batch	3	1000	\N	\N	\N	\N	\N	{}	copy	0	00:00:00.01	1	skip	once	00:00:00	always	\N	\N	\N	\N	\N	0	\N	\N	table	00:10:00	copy	\N	postgres	\N
in progress	\N	\N	\N	u.slow	UTC	{}	\N	\N	batch	3	10	\N	\N	\N	\N	\N	{}	in progress	0	00:00:00.01	3	skip	once	00:00:00	drain	\N	\N	\N	\N	\N	0	\N	\N	table	00:10:00	in progress	\N	postgres	\N
\.
COPY sweep.queue (queue_id, name, owner, visibility, max_attempts, backoff, keep_done, notify, key_policy, senders, consumers) FROM stdin;
1	alerts	postgres	00:01:00	25	00:00:10	00:00:00	f	while_queued	{jobber}	{jobber}
3	keyed	postgres	00:00:30	1	sidekiq	1 day	t	while_queued_or_running	{}	{}
2	plain	postgres	00:00:30	25	sidekiq	00:00:00	t	while_queued	{jobber}	{jobber}
4	of_another	jobber	00:00:30	25	sidekiq	00:00:00	t	while_queued	{}	{}
5	flight	postgres	00:00:30	25	sidekiq	00:00:00	t	while_queued	{}	{}
6	crowd	postgres	00:00:30	25	sidekiq	00:00:00	t	while_queued	{}	{}
\.
COPY sweep.bucket (job, bucket, state, run_id, pid, since) FROM stdin;
\.
COPY sweep.consumer (consumer_id, queue_id, handler, run_as, concurrency, batch, paused_at, system_identifier, database, all_paused_at) FROM stdin;
1	2	u.handle	postgres	2	1	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
2	1	u.handle_all	jobber	1	5	2026-11-25 22:55:46.798455+00	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
\.
COPY sweep.control (only_row, paused_at) FROM stdin;
t	2026-11-25 22:55:58.426888+00
\.
COPY sweep.job_state (job, next_due, next_start, paused_at, broken, boot, drained_rows, kept_cursor, last_start, system_identifier, database, all_paused_at) FROM stdin;
of sql	2026-12-31 23:00:00+00	2026-12-31 23:00:00+00	\N	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
divided	\N	\N	\N	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
paused	\N	\N	2026-11-25 22:55:44.694539+00	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
of statements	2026-11-30 06:00:00+00	2026-11-30 06:00:28.438088+00	\N	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
with limits	\N	\N	2026-11-25 22:55:44.892818+00	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
that fails	\N	\N	\N	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
divided elsewhere	\N	\N	2026-11-25 22:55:45.068348+00	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
retention_aged	2026-11-26 03:31:00+00	2026-11-26 03:31:00+00	\N	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
backfill	\N	\N	2026-11-25 22:55:45.850975+00	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
of steps	\N	\N	\N	\N	2026-11-25 22:55:37.177526+00	0	\N	2026-11-25 22:55:46.232792+00	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
of items	\N	\N	\N	\N	2026-11-25 22:55:37.177526+00	3	\N	2026-11-25 22:55:46.284347+00	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
copy	\N	\N	2026-11-25 22:55:46.036406+00	\N	2026-11-25 22:55:37.177526+00	25	{"by": "id", "run": 5, "after": [25], "settled": {"by": "id", "after": [25]}}	2026-11-25 22:55:46.338453+00	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
in progress	\N	\N	\N	\N	2026-11-25 22:55:37.177526+00	\N	\N	\N	7712246548564140573	16385	2026-11-25 22:55:58.426888+00
\.
COPY sweep.once_key (role, key, done_at) FROM stdin;
postgres	once	2026-11-25 22:55:46.829626+00
\.
COPY sweep.quarantine (job, item, sqlstate, message, attempts, first_at, last_at, next_try) FROM stdin;
of items	3	P0001	nor so\nCONTEXT: PL/pgSQL function u.rescue(sweep.batch,jsonb) line 1 at RAISE	1	2026-11-25 22:55:46.296156+00	2026-11-25 22:55:46.296156+00	2026-11-25 23:05:46.296156+00
\.
COPY sweep.queue_dead (message_id, queue_id, priority, attempts, sent_at, died_at, key, headers, error, payload) FROM stdin;
4	3	0	1	2026-11-25 22:55:46.562716+00	2026-11-25 22:55:46.622826+00	k	\N	{"message": "no good"}	{"n": 3}
\.
COPY sweep.queue_done (message_id, queue_id, attempts, sent_at, done_at, key, headers, payload) FROM stdin;
5	3	1	2026-11-25 22:55:46.599301+00	2026-11-25 22:55:46.635398+00	a	\N	{"n": 4}
\.
COPY sweep.queue_message (message_id, sent_at, due_at, queue_id, lane, attempts, claimed, key, headers, error, payload) FROM stdin;
1	2026-11-25 22:55:46.437378+00	\N	1	0	0	f	\N	\N	\N	{"job": "that fails", "hint": "SELECT error FROM sweep.runs WHERE run_id = 6 shows all of the error.", "kind": "failed", "text": "run 6 of job \\"that fails\\" failed: on purpose", "ended": false, "since": "2026-11-25T22:55:46.437577+00:00", "run_id": 6, "status": "failed", "severity": "error", "sqlstate": "P0001"}
3	2026-11-25 22:55:46.562716+00	2026-11-26 22:55:46.56422+00	2	103	0	f	\N	\N	\N	{"n": 2}
6	2026-11-25 22:55:46.599301+00	\N	3	0	0	f	b	\N	\N	{"n": 5}
7	2026-11-25 22:55:48.390385+00	\N	5	0	0	f	\N	\N	\N	{"n": 1}
8	2026-11-25 22:55:48.390385+00	\N	5	0	0	f	\N	\N	\N	{"n": 2}
9	2026-11-25 22:55:48.390385+00	\N	5	0	0	f	\N	\N	\N	{"n": 3}
10	2026-11-25 22:55:48.454602+00	\N	6	0	0	f	\N	\N	\N	{"n": 7}
11	2026-11-25 22:55:48.454602+00	\N	6	3	0	f	\N	\N	\N	{"n": 8}
\.
COPY sweep.run_history (run_id, due_at, rows, rescued, quarantined, braked_ms, batches, attempt, hook_depth, pid, job, trigger, parent_run_id, status, run_as, started_at, finished_at, bucket, shares_left, stop_reason, args, cursor, detail, sqlstate, error) FROM stdin;
2	2026-11-25 22:55:46.216462+00	0	0	0	0	1	1	0	13187	of steps	manual	\N	succeeded	postgres	2026-11-25 22:55:46.232792+00	2026-11-25 22:55:46.264893+00	\N	\N	drained	{}	{"at": 1}	{"n": 1}	\N	\N
4	2026-11-25 22:55:46.278652+00	3	0	1	0	2	1	0	13187	of items	manual	\N	succeeded	postgres	2026-11-25 22:55:46.284347+00	2026-11-25 22:55:46.310519+00	\N	\N	drained	{}	\N	\N	\N	\N
5	2026-11-25 22:55:46.323935+00	25	0	0	0	2	1	0	13187	copy	manual	\N	succeeded	postgres	2026-11-25 22:55:46.338453+00	2026-11-25 22:55:46.39709+00	\N	\N	drained	{}	{"by": "id", "run": 5, "after": [25], "settled": {"by": "id", "after": [25]}}	{"copied": 25}	\N	\N
6	2026-11-25 22:55:46.429117+00	0	0	0	0	0	1	0	13187	that fails	manual	\N	failed	postgres	2026-11-25 22:55:46.437322+00	2026-11-25 22:55:46.437577+00	\N	\N	error	{}	\N	\N	P0001	on purpose\nCONTEXT: PL/pgSQL function u.fail(sweep.batch) line 1 at RAISE
\.
COPY sweep.run_live (run_id, due_at, rows, rescued, quarantined, braked_ms, batches, attempt, hook_depth, pid, job, trigger, parent_run_id, status, run_as, started_at, finished_at, bucket, shares_left, stop_reason, args, cursor, detail, sqlstate, error) FROM stdin;
1	2076-11-25 22:55:46.179701+00	0	0	0	0	0	1	0	\N	of items	manual	\N	waiting	postgres	\N	\N	\N	\N	\N	{"later": true}	\N	\N	\N	\N
3	2026-11-26 22:55:46.257218+00	0	0	0	0	0	1	1	\N	of sql	parent	2	waiting	jobber	\N	\N	\N	\N	\N	{"parent": {"job": "of steps", "error": null, "run_id": 2, "status": "running"}}	\N	\N	\N	\N
7	2026-11-25 23:55:46.445252+00	0	0	0	0	0	1	1	\N	of steps	parent	6	waiting	postgres	\N	\N	\N	\N	\N	{"parent": {"job": "that fails", "error": {"message": "on purpose", "sqlstate": "P0001"}, "run_id": 6, "status": "failed"}}	\N	\N	\N	\N
8	2026-11-25 22:55:54.164896+00	20	0	0	0	2	1	0	13378	in progress	manual	\N	running	postgres	2026-11-25 22:55:54.35335+00	\N	\N	\N	\N	{}	{"n": 2}	\N	\N	\N
9	2026-11-26 22:55:58.579787+00	0	0	0	0	0	1	0	\N	of sql	manual	\N	waiting	jobber	\N	\N	\N	\N	\N	{}	\N	\N	\N	\N
\.
COPY sweep.consumer_crash (queue_id, message_id, crashes, last_at) FROM stdin;
2	3	1	2026-11-25 22:55:46.850428+00
\.
COPY sweep_gitlab.kept_environment (environment_id, auto_stop_at, job) FROM stdin;
\.
COPY sweep_gitlab.feature_flag (name, enabled) FROM stdin;
bulk_delete_job_artifacts	f
bulk_delete_job_artifacts_high_concurrency	f
\.
SELECT pg_catalog.setval('sweep.run_live_run_id_seq', 9, 't');
SELECT pg_catalog.setval('sweep.queue_queue_id_seq', 6, 't');
SELECT pg_catalog.setval('sweep.queue_message_message_id_seq', 11, 't');
SELECT pg_catalog.setval('sweep.consumer_consumer_id_seq', 2, 't');
