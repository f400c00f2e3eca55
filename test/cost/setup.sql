--
-- The database of test/bin/check-cost: jobs that do nothing, and those of
-- GitLab with rows to work on.
--
SET client_min_messages = warning;
\ir ../demo/gitlab_schema.sql
CREATE EXTENSION pg_sweep_gitlab CASCADE;
SELECT sweep.create_queue(name) FROM unnest('{environments_auto_stop,ci_pipeline_process,ci_build_finished,plain,keyed,keys_to_free}'::text[]) AS name \g /dev/null
CREATE SCHEMA cost;
CREATE FUNCTION cost.nothing(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ROW(1::bigint, NULL::jsonb, NULL::jsonb);
END
$$;
CREATE FUNCTION cost.drained(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ROW(0::bigint, NULL::jsonb, NULL::jsonb);
END
$$;
SELECT sweep.create_job('empty', step => 'cost.nothing'), sweep.create_job('drained', step => 'cost.drained'),
	sweep.create_job('purge', step => 'sweep_gitlab.ci_runners_stale_machines_cleanup', batch_size => 100,
		args => '{"schema": "public", "stale_after": "7 days"}'),
	sweep.create_job('fan_out', step => 'sweep_gitlab.environments_auto_stop', batch_size => 100, args => '{"schema": "public"}'),
	sweep_gitlab.create_stuck_builds_job('build', 'costs', '{"status": "canceling", "created_older_than": "1 hour", "updated_older_than": "1 hour"}',
		'{"schema": "public", "table": "p_ci_builds"}', NULL, NULL) \g /dev/null
\set rows 40000
\set every 2
\set last 40000
\set scattered false
\ir ../bench/rows_of_ci_runner_machines.sql
\ir ../bench/rows_of_environments.sql
\ir ../bench/rows_of_p_ci_builds.sql
SELECT sweep.send('plain', jsonb_build_object('n', n)), sweep.send('keys_to_free', jsonb_build_object('n', n), key => 'key ' || n)
	FROM generate_series(1, 5000) AS n \g /dev/null
CREATE TABLE cost.event (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, data text);
INSERT INTO cost.event (at, data) SELECT '2020-01-01Z'::timestamptz + n * interval '1 s', 'event ' || n FROM generate_series(1, 40000) AS n;
CREATE INDEX ON cost.event (at);
SELECT sweep.create_retention('cost.event', 'at', '90 days', name => 'retention', schedule => NULL) \g /dev/null
VACUUM (ANALYZE);
