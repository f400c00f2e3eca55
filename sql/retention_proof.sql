-- room: makers
-- sweep.retentions: what a retention proves when it has drained, and what tries to make that a lie.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS proof CASCADE;
CREATE SCHEMA proof;
SET timezone = 'UTC';
CREATE ROLE regress_sweep_prover LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_reader LOGIN IN ROLE sweep_user;
GRANT USAGE ON SCHEMA proof TO regress_sweep_prover;
CREATE FUNCTION proof.show(job text) RETURNS TABLE (scope text, complete text, kept jsonb, fresh boolean) LANGUAGE sql STABLE AS $$
	SELECT r.scope, (now() - r.keep - r.complete_to BETWEEN '0' AND '10 min')::text, r.kept, r.run_id = (SELECT max(run_id) FROM sweep.runs u WHERE u.job = r.job)
	FROM sweep.retentions r WHERE r.job = show.job
$$;

CREATE TABLE proof.event (id int PRIMARY KEY, at timestamptz, kind text NOT NULL DEFAULT 'done');
CREATE TABLE proof.invoice (id int PRIMARY KEY, event_id int REFERENCES proof.event);
CREATE INDEX ON proof.invoice (event_id);
CREATE INDEX ON proof.event (at);
INSERT INTO proof.event SELECT n, now() - n * interval '1 day', CASE WHEN n % 50 = 0 THEN 'open' ELSE 'done' END FROM generate_series(0, 500) AS n;
INSERT INTO proof.event VALUES (1000, NULL), (1001, NULL);
INSERT INTO proof.invoice VALUES (1, 301), (2, 302), (3, 5);
SELECT sweep.create_retention('proof.event', 'at', '100 days', condition => 'kind = ''done'' -- not open', name => 'proof', schedule => NULL, batch_size => 90);
SELECT job, target, age_column, keep, complete_to, kept, oldest_kept, scope, run_id FROM sweep.retentions WHERE job = 'proof';
CALL sweep.run('proof');
SELECT scope, complete, kept, fresh FROM proof.show('proof');
SELECT date_trunc('day', now() - oldest_kept) AS oldest FROM sweep.retentions WHERE job = 'proof';
SELECT count(*) FROM proof.event WHERE at < now() - interval '100 days';
-- a run that stops at a limit proves nothing new
INSERT INTO proof.event SELECT 2000 + n, now() - interval '1 year' FROM generate_series(1, 500) AS n;
SELECT complete_to AS before FROM sweep.retentions WHERE job = 'proof' \gset
SELECT sweep.alter_job('proof', '{"max_batches": 1}');
CALL sweep.run('proof');
SELECT complete_to = :'before' AS as_before FROM sweep.retentions WHERE job = 'proof';
SELECT sweep.alter_job('proof', '{"max_batches": null}');
CALL sweep.run('proof');
SELECT complete_to > :'before' AS later, kept FROM sweep.retentions WHERE job = 'proof';
-- a call of the step by hand, a preview, a batch that is rolled back
SELECT complete_to AS before FROM sweep.retentions WHERE job = 'proof' \gset
SELECT (sweep.retention_step((1000, NULL, j.args, now() + interval '10 years', NULL, NULL, NULL, (SELECT max(run_id) FROM sweep.runs))::sweep.batch)).rows > 0 AS stepped FROM sweep.job j WHERE name = 'proof';
SELECT (sweep.retention_step((1000, NULL, j.args, now() - interval '10 years', NULL, NULL, NULL, (SELECT max(run_id) FROM sweep.runs))::sweep.batch)).rows FROM sweep.job j WHERE name = 'proof';
SELECT rows FROM sweep.preview('proof');
SELECT complete_to = :'before' AS as_before FROM sweep.retentions WHERE job = 'proof';
-- another keep, by the args of a run as well
SELECT sweep.alter_job('proof', jsonb_build_object('args', (SELECT args || '{"keep": "50 days"}' FROM sweep.job WHERE name = 'proof')));
SELECT keep, complete_to = :'before' AS as_before FROM sweep.retentions WHERE job = 'proof';
CALL sweep.run('proof', '{"keep": "70 days"}');
SELECT keep, now() - complete_to BETWEEN '69 days' AND '71 days' AS of_the_run FROM sweep.retentions WHERE job = 'proof';
-- of other rows: nothing is known
CALL sweep.run('proof', '{"condition": "false"}');
SELECT scope, complete_to, kept FROM sweep.retentions WHERE job = 'proof';
CALL sweep.run('proof');
SELECT scope FROM sweep.retentions WHERE job = 'proof';
SELECT sweep.alter_job('proof', jsonb_build_object('args', (SELECT args - 'condition' FROM sweep.job WHERE name = 'proof')));
SELECT scope, complete_to, kept FROM sweep.retentions WHERE job = 'proof';
CALL sweep.run('proof');
SELECT scope, complete, kept FROM proof.show('proof');
-- more than can be counted
INSERT INTO proof.event SELECT 10000 + n, NULL FROM generate_series(1, 10001) AS n;
CALL sweep.run('proof');
SELECT scope, complete, kept FROM proof.show('proof');
-- in a copy, and after a restore
UPDATE sweep.retention_proof SET database = 1 WHERE job = 'proof';
SELECT scope, complete_to, proved_at FROM sweep.retentions WHERE job = 'proof';
SELECT 'sweep.retention_proof'::regclass = ANY (extconfig) AS dumped FROM pg_extension WHERE extname = 'pg_sweep';
CALL sweep.run('proof');
SELECT scope FROM sweep.retentions WHERE job = 'proof';
-- a job that is made anew under the name
SELECT sweep.drop_job('proof');
SELECT count(*) FROM sweep.retention_proof WHERE job = 'proof';

-- policies, other types, days of another zone
CREATE TABLE proof.local (id int PRIMARY KEY, at timestamp NOT NULL, day date NOT NULL);
CREATE INDEX ON proof.local (at);
CREATE INDEX ON proof.local (day);
INSERT INTO proof.local SELECT n, (now() AT TIME ZONE 'Asia/Tokyo') - n * interval '1 h', ((now() AT TIME ZONE 'Asia/Tokyo') - n * interval '1 h')::date FROM generate_series(1, 100) AS n;
GRANT SELECT, DELETE ON proof.local TO regress_sweep_prover;
SELECT sweep.create_retention('proof.local', 'at', '2 days', timezone => 'Asia/Tokyo', name => 'proof local', schedule => NULL, run_as => 'regress_sweep_prover');
SELECT sweep.create_retention('proof.local', 'day', '1 day', timezone => 'Asia/Tokyo', name => 'proof day', schedule => NULL);
SELECT sweep.start('proof local') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
CALL sweep.run('proof day');
SELECT scope, complete, kept FROM proof.show('proof local');
SELECT complete_to = ((now() AT TIME ZONE 'Asia/Tokyo' - interval '1 day')::date::timestamp AT TIME ZONE 'Asia/Tokyo') AS at_midnight, kept FROM sweep.retentions WHERE job = 'proof day';
ALTER TABLE proof.local ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON proof.local TO regress_sweep_prover USING (id % 2 = 0);
SELECT sweep.start('proof local') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT scope, complete_to, kept FROM sweep.retentions WHERE job = 'proof local';
-- who sees it
SET ROLE regress_sweep_reader;
SELECT count(*) FROM sweep.retentions;
SELECT count(*) FROM sweep.retention_proof;
RESET ROLE;
SET ROLE regress_sweep_prover;
SELECT job FROM sweep.retentions;
RESET ROLE;

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'proof%';
DELETE FROM sweep.run_live WHERE job LIKE 'proof%';
DELETE FROM sweep.run_history WHERE job LIKE 'proof%';
DROP SCHEMA proof CASCADE;
DROP ROLE regress_sweep_prover, regress_sweep_reader;
