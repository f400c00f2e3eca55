--
-- What becomes of the rows of 0.1.0 and 0.2.0.
--
CREATE FUNCTION _sweep_before.put_back(source text, target text, computed text[], gone text[]) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old constant pg_catalog.regclass := pg_catalog.to_regclass('_sweep_before.' || source);
	lost pg_catalog.text;
	wrong pg_catalog.text;
	row pg_catalog.text;
BEGIN
	SELECT pg_catalog.string_agg(a.attname, ', ') INTO lost FROM pg_catalog.pg_attribute a WHERE a.attrelid = old AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (gone)
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute n WHERE n.attrelid = target::pg_catalog.regclass AND n.attname = a.attname);
	IF lost IS NOT NULL THEN
		RAISE EXCEPTION 'column % of table "%" would be lost', lost, source USING ERRCODE = 'dependent_objects_still_exist', HINT = 'Drop it, and execute ALTER EXTENSION again.';
	END IF;
	EXECUTE (SELECT pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS o', target, pg_catalog.string_agg(pg_catalog.quote_ident(c.name), ', ' ORDER BY c.name),
			pg_catalog.string_agg(c.value, ', ' ORDER BY c.name), old)
		FROM (SELECT a.attname AS name, coalesce((SELECT computed[i][2] FROM pg_catalog.generate_subscripts(computed, 1) AS i WHERE computed[i][1] = a.attname),
				(SELECT pg_catalog.format('o.%I', b.attname) FROM pg_catalog.pg_attribute b WHERE b.attrelid = old AND b.attname = a.attname AND b.attnum > 0 AND NOT b.attisdropped)) AS value
			FROM pg_catalog.pg_attribute a WHERE a.attrelid = target::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS c
		WHERE c.value IS NOT NULL);
-- Such as a row that was written by hand, which the old version did not check.
EXCEPTION WHEN check_violation OR not_null_violation OR unique_violation THEN
	GET STACKED DIAGNOSTICS wrong = CONSTRAINT_NAME, row = PG_EXCEPTION_DETAIL;
	RAISE EXCEPTION 'table "sweep.%" has a row that version @version@ does not accept: %', source, coalesce(nullif(wrong, ''), SQLERRM) USING ERRCODE = SQLSTATE,
		DETAIL = row, HINT = 'Correct or delete this row, and execute ALTER EXTENSION again.';
END
$$;

-- The runs that have begun get the numbers that they would have drawn.
CREATE TABLE _sweep_before.begun AS
	SELECT r.run_id, r.started_at, pg_catalog.row_number() OVER (ORDER BY r.started_at, r.run_id) AS begun
	FROM (SELECT l.run_id, l.started_at FROM _sweep_before.run_live l WHERE l.pid IS NOT NULL UNION ALL SELECT h.run_id, h.started_at FROM _sweep_before.run_history h) AS r
	WHERE r.started_at IS NOT NULL;
CREATE UNIQUE INDEX ON _sweep_before.begun (run_id);

DO $$
DECLARE
	-- The cluster alone identified it.
	home constant pg_catalog.text := 'CASE o.system_identifier WHEN (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c) THEN sweep._system_identifier() ELSE o.system_identifier END';
BEGIN
	PERFORM _sweep_before.put_back('queue', 'sweep.queue', '{}', '{}'), _sweep_before.put_back('queue_message', 'sweep.queue_message', '{}', '{}'),
		_sweep_before.put_back('queue_dead', 'sweep.queue_dead', '{}', '{}'), _sweep_before.put_back('queue_done', 'sweep.queue_done', '{}', '{}'),
		_sweep_before.put_back('consumer', 'sweep.consumer', ARRAY[['system_identifier', home]], '{}'), _sweep_before.put_back('consumer_crash', 'sweep.consumer_crash', '{}', '{}'),
		_sweep_before.put_back('once_key', 'sweep.once_key', '{}', '{}'), _sweep_before.put_back('bucket', 'sweep.bucket', '{}', '{}'),
		_sweep_before.put_back('control', 'sweep.control', '{}', '{}'), _sweep_before.put_back('quarantine', 'sweep.quarantined_item', '{}', '{}');
	PERFORM _sweep_before.put_back('job', 'sweep.job_definition', ARRAY[
		-- A zone is one of pg_timezone_names now. What is none, as of an old server, stays: the job says that it is broken.
		['timezone', $e$coalesce((SELECT z.name FROM pg_catalog.pg_timezone_names z WHERE lower(z.name COLLATE "C") = lower(o.timezone COLLATE "C") LIMIT 1), (SELECT z.name FROM pg_catalog.pg_timezone_names z,
			regexp_match(o.timezone, '^(?:<[^>]*>|[[:alpha:]]+)?([+-]?)0*([0-9]{1,2})$') AS m WHERE z.name = 'Etc/GMT' || coalesce(nullif(m[1], ''), '+') || m[2]), o.timezone, 'UTC')$e$],
		-- Rows that refer to those that are deleted go as before: with them.
		['args', $e$o.args || CASE WHEN o.step = 'sweep.retention_step' THEN '{"cascade": "at_once"}' ELSE '{}' END::jsonb$e$],
		['settings', $e$coalesce(to_jsonb(o) -> 'settings', '{}')$e$],
		['priority', $e$coalesce((to_jsonb(o) ->> 'priority')::int, 0)$e$]], '{}');
	PERFORM _sweep_before.put_back('job_state', 'sweep.job_state', ARRAY[
		['system_identifier', home],
		['as_user', $e$coalesce((SELECT sweep._is_user(j.run_as) FROM sweep.job_definition j WHERE j.name = o.job), false)$e$],
		['last_begun', $e$(SELECT count(*) FROM _sweep_before.begun b WHERE b.started_at <= o.last_start)$e$],
		['alert_queue_owner', $e$(SELECT q.owner FROM sweep.job_definition j JOIN sweep.queue q ON q.name = j.alert_queue WHERE j.name = o.job)$e$],
		['hook_roles', $e$(SELECT sweep._roles_of_jobs(ARRAY[j.on_start, j.on_success, j.on_failure]) FROM sweep.job_definition j WHERE j.name = o.job)$e$]], '{last_start}');
	PERFORM _sweep_before.put_back('run_live', 'sweep.run_live', ARRAY[['begun', '(SELECT b.begun FROM _sweep_before.begun b WHERE b.run_id = o.run_id)']], '{}'),
		_sweep_before.put_back('run_history', 'sweep.run_history', ARRAY[['begun', '(SELECT b.begun FROM _sweep_before.begun b WHERE b.run_id = o.run_id)']], '{}');
	PERFORM pg_catalog.setval('sweep.run_begun_seq', greatest((SELECT count(*) FROM _sweep_before.begun), 1));
END
$$;

DO $$
DECLARE
	shown constant pg_catalog.text := pg_catalog.current_setting('client_min_messages');
	retentions constant pg_catalog.text := (SELECT pg_catalog.string_agg(pg_catalog.format('"%s"', j.name), ', ' ORDER BY j.name) FROM sweep.job_definition j WHERE j.step = 'sweep.retention_step');
BEGIN
	IF retentions IS NOT NULL THEN
		-- The script of an extension shows warnings alone; this is to be seen whatever the session shows.
		PERFORM pg_catalog.set_config('client_min_messages', 'notice', true);
		RAISE NOTICE 'these retentions keep cascade => ''at_once'': %', retentions
			USING HINT = 'sweep.create_retention(..., replace => true) bounds a transaction by all rows that go by foreign keys, too.';
		PERFORM pg_catalog.set_config('client_min_messages', shown, true);
	END IF;
	-- As CREATE EXTENSION does when it creates the role. An administrator may have made the one a member of the other in the other direction.
	IF NOT pg_catalog.pg_has_role('sweep_monitor', 'pg_monitor', 'MEMBER') THEN
		GRANT sweep_monitor TO pg_monitor;
	END IF;
END
$$;
DROP TABLE _sweep_before.begun;
DROP FUNCTION _sweep_before.put_back(text, text, text[], text[]);
