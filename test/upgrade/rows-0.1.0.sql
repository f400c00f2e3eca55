-- What version 0.1.0 had, filled by itself: the schema u of a user, and the rows of all tables as they were when the server was stopped in the middle of a
-- run, with messages in flight. test/t/upgrade.pl loads it into the objects of that version.
SET check_function_bodies = off;
CREATE SCHEMA u;
CREATE FUNCTION u.get(m sweep.message) RETURNS void
    LANGUAGE sql
    AS $$ INSERT INTO u.got VALUES ((m).message_id, ((m).payload ->> 'n')::int) $$;
CREATE FUNCTION u.handle(m sweep.message) RETURNS void
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
ALTER TABLE ONLY u."row"
    ADD CONSTRAINT row_pkey PRIMARY KEY (id);
ALTER TABLE ONLY u.todo
    ADD CONSTRAINT todo_pkey PRIMARY KEY (id);
GRANT USAGE ON SCHEMA u TO jobber;
GRANT SELECT,DELETE ON TABLE u."row" TO jobber;
GRANT SELECT,DELETE ON TABLE u.todo TO jobber;
COPY sweep.job (name, schedule, batch_sql, step, timezone, args, pick, rescue, transaction, row_retries, batch_size, max_batches, max_rows, stop_after, timeout, lock_key, lock_retries, lock_retry_delay, max_attempts, overlap, catch_up, jitter, cursor, on_start, flush, buckets, bucket_store, bucket_recovery, bucket_key, buckets_function, run_as, description) FROM stdin;
of sql	@yearly	DELETE FROM u.row WHERE id IN (SELECT id FROM u.row ORDER BY id LIMIT $1)	\N	Europe/Berlin	{}	\N	\N	batch	3	10	\N	\N	\N	\N	of sql	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	table	00:10:00	of sql	\N	jobber	a word
of steps	\N	\N	u.step	\N	{"a": 1}	\N	\N	batch	3	1000	\N	\N	\N	\N	of steps	0	00:00:00.01	1	skip	once	00:00:00	drain	{"of sql": "1 day"}	\N	\N	table	00:10:00	of steps	\N	postgres	\N
of items	\N	\N	u.items	\N	{}	u.pick	u.rescue	row	0	1000	\N	\N	\N	\N	of items	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	table	00:10:00	of items	\N	postgres	\N
divided	\N	\N	u.step	\N	{}	\N	\N	batch	3	1000	\N	\N	00:01:00	\N	divided	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	3	table	00:10:00	divided	\N	postgres	\N
paused	@daily	\N	u.step	UTC	{}	\N	\N	batch	3	1000	\N	\N	\N	\N	paused	0	00:00:00.01	1	skip	once	00:00:00	run	\N	\N	\N	table	00:10:00	paused	\N	postgres	\N
in progress	\N	\N	u.slow	\N	{}	\N	\N	batch	3	10	\N	\N	\N	\N	in progress	0	00:00:00.01	3	skip	once	00:00:00	drain	\N	\N	\N	table	00:10:00	in progress	\N	postgres	\N
\.
COPY sweep.queue (queue_id, name, owner, visibility, max_attempts, backoff, keep_done, notify, key_policy, senders, consumers) FROM stdin;
2	keyed	postgres	00:00:30	1	sidekiq	1 day	t	while_queued_or_running	{}	{}
1	plain	postgres	00:00:30	25	sidekiq	00:00:00	t	while_queued	{jobber}	{jobber}
3	flight	postgres	00:00:30	25	sidekiq	00:00:00	t	while_queued	{}	{}
4	crowd	postgres	00:00:30	25	sidekiq	00:00:00	t	while_queued	{}	{}
\.
COPY sweep.bucket (job, bucket, state, run_id, pid, since) FROM stdin;
\.
COPY sweep.consumer (consumer_id, queue_id, handler, run_as, concurrency, batch, paused_at, system_identifier, database, all_paused_at) FROM stdin;
1	1	u.handle	postgres	2	1	\N	7712246860072839189	16385	2026-11-25 22:57:11.940641+00
\.
COPY sweep.control (only_row, paused_at) FROM stdin;
t	2026-11-25 22:57:11.940641+00
\.
COPY sweep.job_state (job, next_due, next_start, paused_at, broken, boot, drained_rows, kept_cursor, last_start, system_identifier, database, all_paused_at) FROM stdin;
of sql	2026-12-31 23:00:00+00	2026-12-31 23:00:00+00	\N	\N	2026-11-25 22:56:50.525291+00	\N	\N	\N	7712246860072839189	16385	2026-11-25 22:57:11.940641+00
divided	\N	\N	\N	\N	2026-11-25 22:56:50.525291+00	\N	\N	\N	7712246860072839189	16385	2026-11-25 22:57:11.940641+00
paused	\N	\N	2026-11-25 22:56:58.660728+00	\N	2026-11-25 22:56:50.525291+00	\N	\N	\N	7712246860072839189	16385	2026-11-25 22:57:11.940641+00
of steps	\N	\N	\N	\N	2026-11-25 22:56:50.525291+00	0	\N	2026-11-25 22:56:58.98017+00	7712246860072839189	16385	2026-11-25 22:57:11.940641+00
of items	\N	\N	\N	\N	2026-11-25 22:56:50.525291+00	3	\N	2026-11-25 22:56:59.054636+00	7712246860072839189	16385	2026-11-25 22:57:11.940641+00
in progress	\N	\N	\N	\N	2026-11-25 22:56:50.525291+00	\N	\N	\N	7712246860072839189	16385	2026-11-25 22:57:11.940641+00
\.
COPY sweep.once_key (role, key, done_at) FROM stdin;
postgres	once	2026-11-25 22:56:59.490731+00
\.
COPY sweep.quarantine (job, item, sqlstate, message, attempts, first_at, last_at, next_try) FROM stdin;
of items	3	P0001	nor so\nCONTEXT: PL/pgSQL function u.rescue(sweep.batch,jsonb) line 1 at RAISE	1	2026-11-25 22:56:59.056894+00	2026-11-25 22:56:59.056894+00	2026-11-25 23:06:59.056894+00
\.
COPY sweep.queue_dead (message_id, queue_id, priority, attempts, sent_at, died_at, key, headers, error, payload) FROM stdin;
3	2	0	1	2026-11-25 22:56:59.183539+00	2026-11-25 22:56:59.273935+00	k	\N	{"message": "no good"}	{"n": 3}
\.
COPY sweep.queue_done (message_id, queue_id, attempts, sent_at, done_at, key, headers, payload) FROM stdin;
4	2	1	2026-11-25 22:56:59.256471+00	2026-11-25 22:56:59.335473+00	a	\N	{"n": 4}
\.
COPY sweep.queue_message (message_id, sent_at, due_at, queue_id, lane, attempts, claimed, key, headers, error, payload) FROM stdin;
2	2026-11-25 22:56:59.183539+00	2026-11-26 22:56:59.192922+00	1	103	0	f	\N	\N	\N	{"n": 2}
5	2026-11-25 22:56:59.256471+00	\N	2	0	0	f	b	\N	\N	{"n": 5}
6	2026-11-25 22:57:01.292864+00	\N	3	0	0	f	\N	\N	\N	{"n": 1}
7	2026-11-25 22:57:01.292864+00	\N	3	0	0	f	\N	\N	\N	{"n": 2}
8	2026-11-25 22:57:01.292864+00	\N	3	0	0	f	\N	\N	\N	{"n": 3}
9	2026-11-25 22:57:01.346514+00	\N	4	0	0	f	\N	\N	\N	{"n": 7}
10	2026-11-25 22:57:01.346514+00	\N	4	3	0	f	\N	\N	\N	{"n": 8}
\.
COPY sweep.run_history (run_id, job, args, trigger, attempt, due_at, started_at, finished_at, status, stop_reason, batches, rows, rescued, quarantined, cursor, detail, sqlstate, error, pid, run_as, bucket, shares_left, parent_run_id) FROM stdin;
1	of steps	{}	manual	1	2026-11-25 22:56:58.6873+00	2026-11-25 22:56:58.98017+00	2026-11-25 22:56:58.992979+00	succeeded	drained	1	0	0	0	{"at": 1}	{"n": 1}	\N	\N	14836	postgres	\N	\N	\N
3	of items	{}	manual	1	2026-11-25 22:56:59.031419+00	2026-11-25 22:56:59.054636+00	2026-11-25 22:56:59.124302+00	succeeded	drained	2	3	0	1	\N	\N	\N	\N	14836	postgres	\N	\N	\N
\.
COPY sweep.run_live (run_id, job, args, trigger, attempt, due_at, started_at, finished_at, status, stop_reason, batches, rows, rescued, quarantined, cursor, detail, sqlstate, error, pid, run_as, bucket, shares_left, parent_run_id) FROM stdin;
2	of sql	{"parent": {"job": "of steps", "error": null, "run_id": 1, "status": "running"}}	parent	1	2026-11-26 22:56:58.922617+00	\N	\N	waiting	\N	0	0	0	0	\N	\N	\N	\N	\N	jobber	\N	\N	1
4	in progress	{}	manual	1	2026-11-25 22:57:07.19905+00	2026-11-25 22:57:07.446785+00	\N	running	\N	2	20	0	0	{"n": 2}	\N	\N	\N	15222	postgres	\N	\N	\N
5	of sql	{}	manual	1	2026-11-26 22:57:12.148851+00	\N	\N	waiting	\N	0	0	0	0	\N	\N	\N	\N	\N	jobber	\N	\N	\N
\.
COPY sweep.consumer_crash (queue_id, message_id, crashes, last_at) FROM stdin;
\.
COPY sweep_gitlab.kept_environment (environment_id, auto_stop_at, job) FROM stdin;
\.
COPY sweep_gitlab.feature_flag (name, enabled) FROM stdin;
bulk_delete_job_artifacts	f
bulk_delete_job_artifacts_high_concurrency	f
\.
SELECT pg_catalog.setval('sweep.run_live_run_id_seq', 5, 't');
SELECT pg_catalog.setval('sweep.queue_queue_id_seq', 4, 't');
SELECT pg_catalog.setval('sweep.queue_message_message_id_seq', 10, 't');
SELECT pg_catalog.setval('sweep.consumer_consumer_id_seq', 1, 't');
