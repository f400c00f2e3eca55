--
-- The settings of PostgreSQL, such as search_path, with which a job runs, and the checks of the argument "settings" of a job. The
-- settings of a job itself, such as batch_size, are in job.sql. ../engine/environment.c sets them for a run.
--
-- Where a setting has several values, the first of these decides: the settings of the job; ALTER ROLE IN DATABASE, ALTER ROLE, ALTER DATABASE,
-- ALTER ROLE ALL; the configuration files.
CREATE FUNCTION sweep._run_meaning(role oid, settings jsonb) RETURNS jsonb
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT pg_catalog.jsonb_object_agg(p.name, coalesce(
			(SELECT j.value FROM pg_catalog.jsonb_each_text(settings) AS j WHERE pg_catalog.lower(j.key COLLATE "C") = pg_catalog.lower(p.name COLLATE "C") LIMIT 1),
			(SELECT pg_catalog.substring(c.entry, '=(.*)$') FROM pg_catalog.pg_db_role_setting s CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (entry)
				WHERE s.setrole IN (0, role) AND s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
					AND pg_catalog.lower(pg_catalog.split_part(c.entry, '=', 1) COLLATE "C") = pg_catalog.lower(p.name COLLATE "C") ORDER BY s.setrole = 0, s.setdatabase = 0 LIMIT 1),
			(SELECT f.setting FROM pg_catalog.pg_file_settings f WHERE pg_catalog.lower(f.name COLLATE "C") = pg_catalog.lower(p.name COLLATE "C") AND f.applied ORDER BY f.seqno DESC LIMIT 1),
			p.boot_val))
		FROM pg_catalog.pg_settings p WHERE p.name IN ('search_path', 'transform_null_equals', 'array_nulls', 'DateStyle', 'IntervalStyle', 'TimeZone')
$$;
COMMENT ON FUNCTION sweep._run_meaning(oid, jsonb) IS
	'those settings of a background run of a role in this database, with the settings of the job, that decide the meaning of a statement';

CREATE FUNCTION sweep._check_settings(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	setting pg_catalog.record;
	refused pg_catalog.text;
BEGIN
	FOR setting IN SELECT s.key, s.value, job.settings ->> s.key AS text FROM pg_catalog.jsonb_each(job.settings) AS s LOOP
		IF pg_catalog.jsonb_typeof(setting.value) NOT IN ('string', 'number', 'boolean') THEN
			RAISE EXCEPTION 'invalid value % of setting "%"', setting.value, setting.key USING ERRCODE = 'invalid_parameter_value',
				HINT = 'Write a text, a number, true or false. Settings that are left out are those of the role.';
		END IF;
		-- A job must not have these settings: the engine needs them itself, or they would have no effect.
		SELECT r.why INTO refused FROM (VALUES
				('application_name', 'It names the run.'),
				('client_encoding', 'It is between a session and its client.'),
				('default_transaction_deferrable', 'The transactions of a run are begun by pg_sweep.'),
				('default_transaction_isolation', 'The transactions of a run are begun by pg_sweep; ALTER ROLE ... SET says how those of a role are.'),
				('default_transaction_read_only', 'The transactions of a run are begun by pg_sweep; ALTER ROLE ... SET says how those of a role are.'),
				('exit_on_error', 'An error ends a batch; with the process, nobody could record it.'),
				('quote_all_identifiers', 'Steps of pg_sweep compare names as text.'),
				('role', 'A run is the role that run_as names.'),
				('session_authorization', 'A run is the role that run_as names.'),
				('transaction_deferrable', 'The transactions of a run are begun by pg_sweep.'),
				('transaction_isolation', 'The transactions of a run are begun by pg_sweep.'),
				('transaction_read_only', 'The transactions of a run are begun by pg_sweep.'),
				('transaction_timeout', 'It would end the process. A batch is one transaction: use statement_timeout.')) AS r (name, why) WHERE r.name = pg_catalog.lower(setting.key COLLATE pg_catalog."C");
		IF FOUND THEN
			RAISE EXCEPTION '"%" is no setting of a job', pg_catalog.lower(setting.key COLLATE pg_catalog."C") USING ERRCODE = 'invalid_parameter_value', DETAIL = refused;
		END IF;
		BEGIN
			PERFORM sweep._check_setting(sweep._role_oid(job.run_as), setting.key, setting.text);
		EXCEPTION WHEN insufficient_privilege THEN
			RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE, HINT = pg_catalog.format('A job can set what its role may SET: see GRANT SET ON PARAMETER %s TO %I.',
				pg_catalog.quote_ident(setting.key), job.run_as);
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._check_settings(sweep.job_definition) IS 'raises unless the role of the job, which exists, may set what the settings of the job say';
