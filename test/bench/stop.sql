--
-- The consumer of job 1: environments whose messages wait are stopped. Batches by one call each, against one UPDATE of
-- the same rows, and against a call for each message, which is what there was in version 0.1.0.
--
\set QUIET on
SET client_min_messages = warning;
SELECT sweep_gitlab.create_environments_auto_stop('{"schema": "public"}'), sweep.pause('environments_auto_stop') \g /dev/null
SELECT sweep.send_many('environments_auto_stop', array_agg(jsonb_build_object('environment_id', id, 'project_id', project_id) ORDER BY auto_stop_at, id),
	array_agg(id::text ORDER BY auto_stop_at, id)) FROM environments WHERE state = 'available' AND auto_stop_at < now() \g /dev/null

CREATE PROCEDURE bench.one_statement(INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	UPDATE environments SET state = 'stopped', auto_stop_at = NULL, updated_at = now() AT TIME ZONE 'UTC'
		WHERE state = 'available' AND auto_stop_at < now() AND auto_stop_setting = 0;
	COMMIT;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$;

-- The handler of one message as it was.
CREATE FUNCTION bench.stop_one(message sweep.message) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	always constant smallint := 0;
	args pg_catalog.jsonb := (SELECT j.args FROM sweep.job AS j WHERE j.name = 'environments_auto_stop' AND j.run_as = current_user);
	environment_id bigint := message.payload -> 'environment_id';
	environment pg_catalog.record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', args ->> 'schema'), true);
	SELECT e.auto_stop_at, e.auto_stop_setting INTO environment FROM environments AS e
		WHERE e.id = environment_id AND e.state::pg_catalog.text = 'available'::pg_catalog.text AND e.auto_stop_at < pg_catalog.now() FOR UPDATE;
	IF environment.auto_stop_setting = always THEN
		UPDATE environments AS e SET state = 'stopped', auto_stop_at = NULL, updated_at = pg_catalog.now() AT TIME ZONE 'UTC' WHERE e.id = environment_id;
	END IF;
END
$$;

-- From the creation of the consumer until its queue is empty. Whoever waits looks a hundred times a second.
CREATE PROCEDURE bench.consume(handler text, processes int, size int, INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	PERFORM sweep.create_consumer('environments_auto_stop', handler, concurrency => processes, batch => size);
	COMMIT;
	WHILE (SELECT q.depth > 0 FROM sweep.queues AS q WHERE q.queue = 'environments_auto_stop') LOOP
		COMMIT;
		PERFORM pg_sleep(0.01);		-- the sleep is the work: the consumer has the processors
	END LOOP;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
	PERFORM sweep.drop_consumer('environments_auto_stop');
END
$$;

CREATE FUNCTION bench.effect() RETURNS bigint
	LANGUAGE sql
AS $$
	SELECT count(*) FROM environments WHERE state = 'stopped' AND auto_stop_at IS NULL AND updated_at > created_at + interval '33 days'
$$;
