--
-- sweep.import_pg_cron: the entries of pg_cron's table as jobs.
--
-- C code reads the entries with the rights of the caller. Everything else, for example the settings of pg_cron, is read as the
-- owner; jobs are created in the same way as by the makers.
--
CREATE FUNCTION sweep._pg_cron_entries(caller oid) RETURNS jsonb
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_pg_cron_entries';
COMMENT ON FUNCTION sweep._pg_cron_entries(oid) IS 'the rows of cron.job that the caller sees, whatever columns they have';

CREATE FUNCTION sweep._count_statements(sql text) RETURNS int
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_pg_cron_statements';
COMMENT ON FUNCTION sweep._count_statements(text) IS 'how many statements a text has; raises where it is not SQL';

-- A field as pg_cron reads it: its elements, without text after them, which pg_cron ignores. A field that pg_cron refuses is returned unchanged.
CREATE FUNCTION sweep._read_pg_cron_field(field text, number int) RETURNS text
	LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	element constant pg_catalog.text := E'(?:\\*(?:/[a-zA-Z0-9]+)?|[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+(?:/[a-zA-Z0-9]+)?)?)';
	values_of_field constant pg_catalog.int4 := (ARRAY[60, 24, 31, 12, 7])[number];
	all_days constant pg_catalog.text := CASE number WHEN 3 THEN '1-31' WHEN 5 THEN '0-6' END;
	taken constant pg_catalog.text := pg_catalog.substring(field, pg_catalog.format('^%1$s(?:,%1$s)*', element));
	rest constant pg_catalog.text := pg_catalog.substr(field, pg_catalog.length(taken) + 1);
	part pg_catalog.text;
	range pg_catalog.text;
	step pg_catalog.text;
	meaning pg_catalog.text;
BEGIN
	IF taken IS NULL OR rest ~ '^,' OR rest ~ '^/' AND taken !~ '/[^,]*$' OR rest ~ '^-' AND taken ~ '(^|,)[a-zA-Z0-9]+$' THEN
		RETURN field;
	END IF;
	FOREACH part IN ARRAY pg_catalog.string_to_array(taken, ',') LOOP
		range := pg_catalog.split_part(part, '/', 1);
		step := nullif(pg_catalog.split_part(part, '/', 2), '');
		-- A field of days is unrestricted only if it begins with a star.
		IF range = '*' AND meaning IS NOT NULL THEN
			range := coalesce(all_days, range);
		END IF;
		-- pg_sweep refuses a step that is longer than the range of the field; the longest allowed one has the same effect.
		IF step ~ '^[0-9]{1,9}$' THEN
			step := least(step::int, values_of_field);
		END IF;
		meaning := pg_catalog.concat_ws(',', meaning, pg_catalog.concat_ws('/', range, step));
	END LOOP;
	RETURN meaning;
END
$$;
COMMENT ON FUNCTION sweep._read_pg_cron_field(text, int) IS 'a field of a schedule of pg_cron (1 is the minute), written so that it means the same here';

CREATE FUNCTION sweep._read_pg_cron_schedule(schedule text, both_days boolean, OUT meaning text, OUT remarks text[])
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	words pg_catalog.text[] := pg_catalog.regexp_split_to_array(pg_catalog.btrim(schedule, E' \t\n\r'), E'\\s+');
	fields pg_catalog.text[];
BEGIN
	meaning := schedule;
	IF words[1] ~ '^@' THEN
		meaning := CASE words[1] WHEN '@restart' THEN '@reboot' ELSE words[1] END;
		IF meaning IN ('@yearly', '@annually') THEN
			remarks := remarks || pg_catalog.format('pg_cron 1.6 and later never start %s', meaning);
		END IF;
	ELSIF pg_catalog.cardinality(words) >= 5 THEN
		SELECT pg_catalog.array_agg(sweep._read_pg_cron_field(w.word, w.n::int) ORDER BY w.n) INTO fields
			FROM pg_catalog.unnest(words[1:5]) WITH ORDINALITY AS w (word, n);
		meaning := pg_catalog.array_to_string(fields, ' ');
		IF fields <> words THEN
			remarks := remarks || pg_catalog.format('pg_cron reads "%s" as this schedule', schedule);
		END IF;
		IF fields[5] COLLATE "C" ~* '(^|,)([1-7]|mon|tue|wed|thu|fri|sat)-sun' THEN
			remarks := remarks || pg_catalog.format('pg_cron takes a range that ends with sun, as in "%s", for empty', fields[5]);
		END IF;
		IF both_days AND fields[3] !~ E'^\\*' AND fields[5] !~ E'^\\*' THEN
			RAISE EXCEPTION 'cron.match_dom_and_dow is on, so "%" is due where both days match', schedule USING ERRCODE = 'feature_not_supported',
				HINT = 'In pg_sweep one matching day is enough: write one of both days in the schedule, and check the other in the statement.';
		END IF;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._read_pg_cron_schedule(text, boolean) IS 'a schedule of pg_cron, written so that it means the same here, and remarks about it';

-- pg_cron may execute an entry on another server or in another database. If it uses background workers, they connect to this
-- server, whatever the entry says.
CREATE FUNCTION sweep._pg_cron_place(entry jsonb) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE
		WHEN coalesce(pg_catalog.current_setting('cron.use_background_workers', true), 'off') = 'off'
			AND (entry ->> 'nodename' NOT IN ('', 'localhost', '127.0.0.1', '::1', coalesce(pg_catalog.current_setting('cron.host', true), 'localhost'))
					AND entry ->> 'nodename' !~ '^[/@]'
				OR entry ->> 'nodeport' <> pg_catalog.current_setting('port'))
			THEN pg_catalog.format('is for host "%s", port %s, database "%s": execute the definition there', entry ->> 'nodename', entry ->> 'nodeport', entry ->> 'database')
		WHEN entry ->> 'database' <> pg_catalog.current_database()
			THEN pg_catalog.format('is for database "%s": execute the definition there', entry ->> 'database') END
$$;
COMMENT ON FUNCTION sweep._pg_cron_place(jsonb) IS 'where an entry of pg_cron is executed; NULL: in this database';

CREATE FUNCTION sweep._check_pg_cron(caller oid) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	home constant pg_catalog.text := pg_catalog.current_setting('cron.database_name', true);
BEGIN
	-- It must be the table of the extension, since any role may have created a schema of that name.
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension e
			JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid
				AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype = 'e'
			WHERE e.extname = 'pg_cron' AND d.objid = pg_catalog.to_regclass('cron.job')) THEN
		RAISE EXCEPTION 'extension pg_cron is not installed in database "%"', pg_catalog.current_database() USING ERRCODE = 'undefined_object',
			HINT = CASE WHEN home <> pg_catalog.current_database()
				THEN pg_catalog.format('The entries of all databases are in database "%s": call sweep.import_pg_cron() there.', home)
				ELSE 'Call sweep.import_pg_cron() in the database that has the table cron.job.' END;
	END IF;
	IF NOT pg_catalog.has_schema_privilege(caller, 'cron', 'USAGE') OR NOT pg_catalog.has_table_privilege(caller, 'cron.job', 'SELECT') THEN
		RAISE EXCEPTION 'permission denied for table cron.job' USING ERRCODE = 'insufficient_privilege',
			HINT = pg_catalog.format('GRANT USAGE ON SCHEMA cron TO %I shows it its own entries.', pg_catalog.pg_get_userbyid(caller));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_pg_cron(oid) IS 'raises unless cron.job is the table of the extension pg_cron, and the caller may read it';

-- The history of pg_cron grows without limit, so many installations have an entry that trims it. When pg_cron is dropped, the
-- history is dropped, too, and such a job would fail from then on.
CREATE FUNCTION sweep._trims_pg_cron(command text) RETURNS boolean
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT command COLLATE "C" ~* E'^\\s*(delete\\s+from|truncate(\\s+table)?)\\s+(only\\s+)?"?cron"?\\s*\\.\\s*"?job_run_details\\M'
$$;
COMMENT ON FUNCTION sweep._trims_pg_cron(text) IS 'whether a command begins with a DELETE or TRUNCATE of the history of pg_cron';

-- The job for an entry. In pg_cron entries of two owners may have the same name; the second one gets the name of its owner added.
CREATE FUNCTION sweep._pg_cron_job(entry jsonb, meaning text, zone text, is_second boolean) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name pg_catalog.text := coalesce(entry ->> 'jobname', 'pg_cron_' || (entry ->> 'jobid'));
BEGIN
	IF is_second THEN
		name := name || '_' || (entry ->> 'username');
		WHILE pg_catalog.octet_length(name) > 63 LOOP
			name := pg_catalog.left(name, -1);
		END LOOP;
	END IF;
	RETURN pg_catalog.jsonb_populate_record(NULL::sweep.job_definition, sweep._job_defaults() || pg_catalog.jsonb_build_object(
		'name', name, 'schedule', meaning, 'sql', entry -> 'command', 'timezone', zone, 'run_as', entry ->> 'username'));
END
$$;
COMMENT ON FUNCTION sweep._pg_cron_job(jsonb, text, text, boolean) IS 'the job for an entry of pg_cron; is_second: its name includes that of its role';

CREATE FUNCTION sweep._is_imported(job sweep.job_definition) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM sweep.job_definition j WHERE (j.name, j.schedule, j.sql, pg_catalog.lower(j.timezone COLLATE "C"), j.run_as)
		= (job.name, job.schedule, job.sql, pg_catalog.lower(job.timezone COLLATE "C"), job.run_as))
$$;
COMMENT ON FUNCTION sweep._is_imported(sweep.job_definition) IS 'whether there is this job';

-- Makes those checks of sweep.create_job that are also possible for a job in another database.
CREATE FUNCTION sweep._check_pg_cron_job(caller oid, job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	job := sweep._complete_job(job, NULL);
	PERFORM sweep._check_limits(job), sweep._check_role(caller, job), sweep._check_schedule(job), sweep._check_sql(job.sql);
END
$$;
COMMENT ON FUNCTION sweep._check_pg_cron_job(oid, sweep.job_definition) IS 'raises when the job cannot be created, in whatever database';

-- Creates the job of one entry, if it is for this database, and returns the result. A wrong entry does not stop the import of others.
CREATE FUNCTION sweep._import_pg_cron_entry(caller oid, entry jsonb, dry_run boolean, names text[], OUT job text, OUT definition text, OUT note text)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(pg_catalog.current_setting('cron.timezone', true), 'GMT');
	place constant pg_catalog.text := sweep._pg_cron_place(entry);
	wanted sweep.job_definition := sweep._pg_cron_job(entry, entry ->> 'schedule', zone, false);
	second sweep.job_definition;
	remarks pg_catalog.text[];
	hint pg_catalog.text;
	of_role pg_catalog.text;
BEGIN
	BEGIN
		SELECT r.meaning, r.remarks INTO wanted.schedule, remarks
			FROM sweep._read_pg_cron_schedule(entry ->> 'schedule', coalesce(pg_catalog.current_setting('cron.match_dom_and_dow', true), 'off') = 'on') AS r;
		second := sweep._pg_cron_job(entry, wanted.schedule, zone, true);
		SELECT j.run_as INTO of_role FROM sweep.job_definition j WHERE j.name = wanted.name AND place IS NULL;
		IF of_role IS NULL THEN
			SELECT pg_catalog.split_part(u.name, E'\n', 2) INTO of_role FROM pg_catalog.unnest(names) AS u (name)
				WHERE pg_catalog.split_part(u.name, E'\n', 1) = wanted.name AND place IS NOT NULL;
		END IF;
		IF place IS NULL AND (sweep._is_imported(wanted) OR sweep._is_imported(second)) THEN
			wanted := CASE WHEN sweep._is_imported(wanted) THEN wanted ELSE second END;
			note := 'exists already';
		ELSIF sweep._trims_pg_cron(entry ->> 'command') AND sweep._count_statements(entry ->> 'command') = 1 THEN
			note := 'not needed: it trims the history of pg_cron; that of pg_sweep is bounded by pg_sweep.history_per_job and history_max_age';
			job := wanted.name;
			RETURN;
		ELSE
			IF of_role <> wanted.run_as THEN
				wanted := second;
				note := pg_catalog.format('another role has a job of that name: the definition creates it as "%s"', wanted.name);
			END IF;
			IF note IS NOT NULL OR place IS NOT NULL THEN
				PERFORM sweep._check_pg_cron_job(caller, wanted);
				remarks := note || remarks;
				note := coalesce(place, 'name taken: execute the definition');
			ELSE
				PERFORM sweep._create_job(caller, wanted, pg_catalog.quote_ident(wanted.run_as)::pg_catalog.regrole, true, false);
				note := CASE WHEN dry_run THEN 'to be created' ELSE 'created, paused' END;
			END IF;
		END IF;
		IF sweep._count_statements(entry ->> 'command') > 1 THEN
			remarks := remarks || 'pg_cron executes its statements in one transaction, here each has its own unless the text says BEGIN and COMMIT'::pg_catalog.text;
		END IF;
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
		note := 'not created: ' || SQLERRM || CASE WHEN hint <> '' THEN pg_catalog.format(' (%s)', hint) ELSE '' END;
		remarks := pg_catalog.substring(place, '^(.*):') || remarks;
	END;
	IF entry ->> 'active' = 'false' THEN
		remarks := remarks || 'not active in pg_cron'::pg_catalog.text;
	END IF;
	job := wanted.name;
	note := pg_catalog.array_to_string(note || remarks, '; ');
	definition := pg_catalog.format('SELECT sweep.create_job(%L, %L, %L, timezone => %L, run_as => %L, paused => true);',
		wanted.name, wanted.schedule, wanted.sql, zone, pg_catalog.quote_ident(wanted.run_as));
END
$$;
COMMENT ON FUNCTION sweep._import_pg_cron_entry(oid, jsonb, boolean, text[]) IS
	'creates the job of an entry of pg_cron; returns the result, or why it was not created; names: the names of earlier entries in the same database, each with its role in a second line';

-- A dry run does the same and is rolled back, so that its result is exact.
CREATE FUNCTION sweep._import_pg_cron(caller oid, dry_run boolean, OUT jobid bigint, OUT job text, OUT definition text, OUT note text, OUT database text, OUT active boolean)
	RETURNS SETOF record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	entry pg_catalog.jsonb;
	names pg_catalog.jsonb := '{}';
BEGIN
	IF dry_run IS NULL THEN
		RAISE EXCEPTION 'dry_run must not be null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Write true or false.';
	END IF;
	PERFORM sweep._check_pg_cron(caller);
	FOR entry IN SELECT e.value FROM pg_catalog.jsonb_array_elements(sweep._pg_cron_entries(caller)) AS e LOOP
		jobid := (entry ->> 'jobid')::bigint;
		database := entry ->> 'database';
		active := coalesce((entry ->> 'active')::boolean, true);
		SELECT i.job, i.definition, i.note INTO job, definition, note
			FROM sweep._import_pg_cron_entry(caller, entry, dry_run, ARRAY(SELECT pg_catalog.jsonb_array_elements_text(names -> database))) AS i;
		names := names || pg_catalog.jsonb_build_object(database, coalesce(names -> database, '[]') || pg_catalog.to_jsonb(job || E'\n' || (entry ->> 'username')));
		RETURN NEXT;
	END LOOP;
	IF dry_run THEN
		RAISE SQLSTATE 'SW000';
	END IF;
EXCEPTION WHEN SQLSTATE 'SW000' THEN
	RETURN;
END
$$;
COMMENT ON FUNCTION sweep._import_pg_cron(oid, boolean) IS 'implements sweep.import_pg_cron';

CREATE FUNCTION sweep.import_pg_cron(dry_run boolean DEFAULT true, OUT jobid bigint, OUT job text, OUT definition text, OUT note text, OUT database text, OUT active boolean)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.import_pg_cron(boolean) IS
	'creates paused jobs from the entries of pg_cron that the caller sees and that are for this database, or (dry run) shows what would be created; definition: the call that creates the job, also in another database';
