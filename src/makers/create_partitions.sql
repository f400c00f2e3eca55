--
-- sweep.create_partitions: creates partitions ahead of time, and drops or detaches old ones, each in a batch of its own.
--
-- An error in creating a partition does not keep old ones from being dropped: the cursor has the error meanwhile, and it is raised afterwards.
--
-- Reading the bounds of thousands of partitions takes long, so the cursor keeps the next ranges without a partition.
CREATE FUNCTION sweep._find_missing(relation regclass, b sweep.batch, state jsonb, key_name text, type text, present bigint) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found pg_catalog.jsonb := state -> 'ranges';
	behind bigint;
BEGIN
	IF pg_catalog.jsonb_array_length(found) > 0 THEN
		RETURN state;
	END IF;
	SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(m) ORDER BY m.place) INTO found FROM sweep._missing_ranges(relation, type, b.args, greatest(present, (state ->> 'next')::bigint), present + (b.args ->> 'ahead')::bigint, 32) AS m;
	IF found IS NULL THEN
		behind := sweep._left_behind(relation, key_name, type, b.args, present);
		SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(m)) INTO found FROM sweep._missing_ranges(relation, type, b.args, behind, behind, 1) AS m;
	END IF;
	RETURN state || pg_catalog.jsonb_build_object('ranges', coalesce(found, '[]'), 'model', sweep._table_name(sweep._newest_part(relation, type)));
END
$$;
COMMENT ON FUNCTION sweep._find_missing(regclass, sweep.batch, jsonb, text, text, bigint) IS 'the cursor, with the next ranges for which partitions are to be created, and the partition whose storage parameters they get';

CREATE FUNCTION sweep._make_next(relation regclass, b sweep.batch, path text) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	state pg_catalog.jsonb := coalesce(b.cursor, '{}');
	key constant pg_catalog.record := sweep._partition_key(relation);
	rest constant pg_catalog.regclass := sweep._default_part(relation);
	present constant bigint := sweep._grid_place(key.type, b.args, sweep._present(relation, key.name, key.type, b.args, b.as_of));
	many constant int := coalesce((state ->> 'many')::int, 1);
	ranges sweep._partition_range[];
	count int;
	took double precision;
	detail pg_catalog.jsonb;
BEGIN
	IF state ? 'emptying' THEN
		RETURN sweep._empty_next(relation, b.size, state, path);
	END IF;
	state := sweep._find_missing(relation, b, state, key.name, key.type, present);
	ranges := ARRAY(SELECT r FROM pg_catalog.jsonb_populate_recordset(NULL::sweep._partition_range, state -> 'ranges') AS r LIMIT many);
	IF ranges = '{}' THEN
		RETURN NULL;
	END IF;
	PERFORM sweep._await_turn(state);
	BEGIN
		detail := sweep._make_partitions(relation, key.name, key.type, b.args, ranges, pg_catalog.to_regclass(state ->> 'model'), b.size, path);
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		-- If two partitions are ahead, the rest can be left to the next run.
		IF (ranges[1]).place > present + 2 AND (state ->> 'tries')::int >= 9 THEN
			RAISE WARNING 'partitions of % are left to the next run, for it could not be locked', relation;
			RETURN ROW(1, (state - '{tries,tried_at}'::pg_catalog.text[]) || '{"later": true}', '{"lock_timeouts": 1}')::sweep.progress;
		END IF;
		RETURN ROW(1, sweep._note_try(state, relation::pg_catalog.text, ARRAY[sweep._table_name(relation), sweep._table_name(rest)]), '{"lock_timeouts": 1}')::sweep.progress;
	END;
	state := state - '{tries,tried_at}'::pg_catalog.text[];
	IF detail IS NULL THEN
		RETURN ROW(1, (state - 'ranges') || (SELECT pg_catalog.jsonb_build_object('emptying', pg_catalog.jsonb_build_object('copy', n.copy, 'changes', n.changes)) FROM sweep._emptying_names(rest) AS n), NULL)::sweep.progress;
	END IF;
	count := coalesce(pg_catalog.jsonb_array_length(detail -> 'made'), 0);
	took := detail ->> 'took';
	state := state || pg_catalog.jsonb_build_object('many', CASE WHEN took > 0.2 THEN greatest(many / 2, 1) WHEN took < 0.1 THEN least(many * 2, 16) ELSE many END,
		'ranges', CASE WHEN count > 0 THEN pg_catalog.jsonb_path_query_array(state -> 'ranges', pg_catalog.format('$[%s to last]', count)::pg_catalog.jsonpath) ELSE '[]' END);
	IF (ranges[1]).place >= present THEN
		state := state || pg_catalog.jsonb_build_object('next', (ranges[greatest(count, 1)]).place + 1);
	END IF;
	RETURN ROW(greatest(count, 1), state, detail - 'took')::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._make_next(regclass, sweep.batch, text) IS 'creates the next missing partitions, or tries to lock the table for that; NULL: none is missing';

CREATE FUNCTION sweep._drop_next(relation regclass, b sweep.batch, state jsonb) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	type constant pg_catalog.text := (sweep._partition_key(relation)).type;
	age_limit pg_catalog.text;
	dropped pg_catalog.record;
BEGIN
	IF b.args ->> 'partitions' = 'detach' THEN
		PERFORM sweep._check_detachable(relation);
	END IF;
	-- The same text as in sweep._retention_statements.
	EXECUTE pg_catalog.format('SELECT pg_catalog.to_jsonb(%s) OPERATOR(pg_catalog.#>>) ''{}''', sweep._age_limit(type, b.args)) INTO age_limit USING NULL::int, NULL::pg_catalog.jsonb, b.as_of;
	dropped := sweep._drop_partition(sweep._table_name(relation), type, age_limit, b.args ->> 'partitions' = 'detach', true, state);
	RETURN ROW(dropped.rows, dropped.next_cursor, dropped.detail)::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._drop_next(regclass, sweep.batch, jsonb) IS 'drops or detaches the oldest partition that is too old, or tries to lock the table for that; rows is NULL: none is too old';

CREATE FUNCTION sweep._partitions_batch(b sweep.batch, path text) RETURNS sweep.progress
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := (b.args ->> 'target')::pg_catalog.regclass;
	type constant pg_catalog.text := (sweep._partition_key(relation)).type;
	-- The cursor of an earlier run is only used for a default partition that is being emptied.
	emptying constant pg_catalog.jsonb := CASE WHEN b.cursor ? 'emptying' THEN pg_catalog.jsonb_build_object('emptying', b.cursor -> 'emptying') ELSE '{}' END;
	state pg_catalog.jsonb := CASE WHEN b.cursor -> 'run' IS NOT DISTINCT FROM pg_catalog.to_jsonb(b.run_id) THEN b.cursor ELSE emptying || pg_catalog.jsonb_build_object('run', b.run_id) END;
	done sweep.progress;
	code pg_catalog.text;
	message pg_catalog.text;
	detail pg_catalog.text;
	hint pg_catalog.text;
BEGIN
	b.cursor := state;
	-- The args may have been altered.
	b.args := sweep._life_args(relation, type, b.args ->> 'every', (b.args ->> 'ahead')::int, (b.args ->> 'keep')::interval, b.args ->> 'partitions', b.args ->> 'origin', coalesce(b.args ->> 'timezone', 'UTC'));
	IF NOT state ?| '{failure,later}' THEN
		BEGIN
			done := sweep._make_next(relation, b, path);
			IF done.rows > 0 THEN
				RETURN done;
			END IF;
		EXCEPTION WHEN OTHERS THEN
			IF NOT b.args ? 'keep' THEN
				RAISE;
			END IF;
			GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			state := (state - '{tries,tried_at}'::pg_catalog.text[]) || pg_catalog.jsonb_build_object('failure', pg_catalog.jsonb_build_array(code, message, detail, hint));
		END;
	END IF;
	IF b.args ? 'keep' THEN
		BEGIN
			done := sweep._drop_next(relation, b, state);
			IF done.rows > 0 THEN
				RETURN done;
			END IF;
		EXCEPTION WHEN OTHERS THEN
			IF NOT state ? 'failure' THEN
				RAISE;
			END IF;
			state := pg_catalog.jsonb_set(state, '{failure,2}', pg_catalog.to_jsonb(pg_catalog.concat_ws(' ', nullif(state #>> '{failure,2}', ''), 'Nor could old partitions be dropped: ' || SQLERRM || '.')));
		END;
	END IF;
	IF state ? 'failure' THEN
		RAISE EXCEPTION USING ERRCODE = state #>> '{failure,0}', MESSAGE = state #>> '{failure,1}', DETAIL = coalesce(nullif(state #>> '{failure,2}', ''), 'A partition could not be made.'),
			HINT = coalesce(nullif(state #>> '{failure,3}', ''), 'Partitions that were too old have been dropped before this was raised.');
	END IF;
	RETURN ROW(0, nullif(emptying, '{}'), NULL)::sweep.progress;
END
$$;
COMMENT ON FUNCTION sweep._partitions_batch(sweep.batch, text) IS 'creates, drops or detaches one partition; path: the search_path of the run';

CREATE FUNCTION sweep.partitions_step(b sweep.batch) RETURNS sweep.progress
	LANGUAGE sql VOLATILE PARALLEL UNSAFE RETURN sweep._partitions_batch(b, pg_catalog.current_setting('search_path'));
COMMENT ON FUNCTION sweep.partitions_step(sweep.batch) IS 'step of the jobs that sweep.create_partitions makes';

-- ------------------------------------------------------------------ the job
CREATE FUNCTION sweep._check_detachable(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	keys constant pg_catalog.text := (SELECT pg_catalog.string_agg(pg_catalog.format('"%s" of %s', r.name, r.child), ', ') FROM sweep._referencing(relation, '', '') AS r);
BEGIN
	IF keys IS NOT NULL THEN
		RAISE EXCEPTION 'partitions cannot be detached: foreign keys refer to %', relation USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = keys || '.',
			HINT = 'With partitions => ''drop'' they are dropped when no row refers to them any more.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_detachable(regclass) IS 'raises when foreign keys refer to the table';

CREATE FUNCTION sweep._check_life(role text, relation regclass, args jsonb) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known pg_catalog.record;
	foreign_key pg_catalog.record;
	lacking pg_catalog.text;
BEGIN
	SELECT c.relowner, pg_catalog.pg_get_userbyid(c.relowner) AS owner, n.nspname INTO known FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
	IF NOT sweep._owns(sweep._role_oid(role), known.relowner) THEN
		RAISE EXCEPTION 'role "%" does not own %', role, relation USING ERRCODE = 'insufficient_privilege', DETAIL = 'The checks and expressions of the table are executed as the role of the job.',
			HINT = pg_catalog.format('Its partitions are made by its owner: write run_as => %L.', known.owner);
	END IF;
	lacking := CASE WHEN NOT pg_catalog.has_schema_privilege(sweep._role_oid(role), known.nspname, 'CREATE') THEN role WHEN NOT pg_catalog.has_schema_privilege(known.relowner, known.nspname, 'CREATE') THEN known.owner END;
	IF lacking IS NOT NULL THEN
		RAISE EXCEPTION 'role "%" may not create tables in schema "%"', lacking, known.nspname USING ERRCODE = 'insufficient_privilege', HINT = pg_catalog.format('GRANT USAGE, CREATE ON SCHEMA %I TO %I;', known.nspname, lacking);
	END IF;
	IF args ? 'keep' AND args ->> 'partitions' = 'detach' THEN
		PERFORM sweep._check_detachable(relation);
	ELSIF args ? 'keep' THEN
		FOR foreign_key IN SELECT r.name, r.child, c.relowner FROM sweep._referencing(relation, '', '') AS r JOIN pg_catalog.pg_class c ON c.oid = r.child LOOP
			IF NOT sweep._owns(sweep._role_oid(role), foreign_key.relowner) THEN
				RAISE EXCEPTION 'foreign key "%" of % refers to %', foreign_key.name, foreign_key.child, relation USING ERRCODE = 'insufficient_privilege',
					DETAIL = pg_catalog.format('Before a partition is dropped, PostgreSQL reads %s as role "%s", which does not act for its owner.', foreign_key.child, role), HINT = 'Leave keep out, or give both tables the same owner.';
			END IF;
		END LOOP;
		PERFORM sweep._check_references(role, relation, ARRAY[relation], true);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_life(text, regclass, jsonb) IS 'raises unless the role can make partitions of the table, and drop them if it is to';

CREATE FUNCTION sweep._life_args(relation regclass, key_type text, every text, ahead int, keep interval, partitions text, origin text, zone text) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	missing constant pg_catalog.text := CASE WHEN every IS NULL THEN 'every' WHEN ahead IS NULL THEN 'ahead' WHEN partitions IS NULL THEN 'partitions' END;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION '% must not be null', missing USING ERRCODE = 'null_value_not_allowed', HINT = CASE missing WHEN 'every' THEN 'Say how much a partition has, for example: 1 day, or 1000000 for ids.'
			WHEN 'ahead' THEN 'Say how many partitions are made ahead.' ELSE 'Write "drop" or "detach".' END;
	END IF;
	IF ahead NOT BETWEEN 1 AND 10000 THEN
		RAISE EXCEPTION 'invalid ahead %', ahead USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 1 to 10000.';
	END IF;
	IF partitions NOT IN ('drop', 'detach') THEN
		RAISE EXCEPTION 'invalid partitions "%"', partitions USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be "drop" or "detach".';
	END IF;
	IF keep IS NOT NULL AND key_type = 'bigint' THEN
		RAISE EXCEPTION 'partitions of % have no age', relation USING ERRCODE = 'invalid_parameter_value', DETAIL = 'It is partitioned by ranges of a bigint.', HINT = 'Leave keep out.';
	END IF;
	IF keep <= interval '0' OR keep > interval '1000 years' OR sweep._least_seconds(keep) < 0 THEN
		RAISE EXCEPTION 'invalid keep %', keep USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be greater than zero, from any date on, and at most 1000 years.';
	END IF;
	RETURN pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('target', sweep._table_name(relation), 'every', sweep._check_every(key_type, every), 'origin', sweep._check_origin(key_type, origin),
		'ahead', ahead, 'keep', keep, 'partitions', partitions, 'timezone', zone));
END
$$;
COMMENT ON FUNCTION sweep._life_args(regclass, text, text, int, interval, text, text, text) IS 'the args of a job that makes partitions; raises unless they mean something for the type of the key';

CREATE FUNCTION sweep._check_lead(job sweep.job_definition) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	lead constant interval := (job.args ->> 'every')::interval * (job.args ->> 'ahead')::int;
	gap interval;
BEGIN
	-- Many moments are read, because the longest gap, such as a weekend, may come late.
	SELECT pg_catalog.max(r.gap) INTO gap FROM (SELECT n.moment - pg_catalog.lag(n.moment) OVER (ORDER BY n.moment) AS gap
		FROM sweep.next_runs(job.schedule, job.timezone, pg_catalog.now(), 10000, job.name) AS n (moment)) AS r WHERE job.schedule IS NOT NULL;
	IF gap >= lead THEN
		RAISE EXCEPTION 'partitions are made for % ahead, and the next run may be % later', lead, gap USING ERRCODE = 'invalid_parameter_value', HINT = 'Raise ahead, or write a schedule with shorter pauses.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_lead(sweep.job_definition) IS 'raises when the partitions could be used up before the next run creates more';

CREATE FUNCTION sweep._create_partitions(caller oid, job sweep.job_definition, target text, every text, ahead int, keep interval, partitions text, origin text,
	run_as regrole, paused boolean, replace boolean) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation constant pg_catalog.regclass := sweep._find_table('target', target, coalesce(run_as::pg_catalog.oid, caller));
	key pg_catalog.record;
	present bigint;
	missing sweep._partition_range;
	zone constant pg_catalog.text := coalesce(sweep._find_zone(job.timezone), 'UTC');
BEGIN
	job.cursor := 'always';
	job := sweep._begin_maker(caller, job, 'partitions', relation, run_as);
	PERFORM sweep._check_table(job.run_as, relation, '{}');
	key := sweep._partition_key(relation);
	job.args := sweep._life_args(relation, key.type, every, ahead, keep, partitions, origin, zone);
	PERFORM sweep._check_life(job.run_as, relation, job.args), sweep._newest_part(relation, key.type);
	-- Not for ids: their present is the greatest one in the table, which is not read here.
	IF key.type <> 'bigint' THEN
		present := sweep._grid_place(key.type, job.args, sweep._present(relation, key.name, key.type, job.args, pg_catalog.now()));
		missing := sweep._missing_range(relation, key.type, job.args, present, present + ahead);
		PERFORM sweep._check_range(relation, missing) WHERE missing.place IS NOT NULL;
	END IF;
	PERFORM sweep._create_job(caller, job, sweep._role_oid(job.run_as)::pg_catalog.regrole, paused, replace);
	PERFORM sweep._check_lead(job) WHERE key.type <> 'bigint';
	RETURN job.name;
END
$$;
COMMENT ON FUNCTION sweep._create_partitions IS 'implements sweep.create_partitions';

CREATE FUNCTION sweep.create_partitions(target text, every text, ahead int DEFAULT 7, keep interval DEFAULT NULL, schedule text DEFAULT 'H * * * *', partitions text DEFAULT 'drop',
	origin text DEFAULT NULL, name text DEFAULT NULL, timezone text DEFAULT 'UTC', batch_size int DEFAULT 1000, max_batches int DEFAULT NULL, max_rows bigint DEFAULT NULL,
	stop_after interval DEFAULT NULL, timeout interval DEFAULT NULL, pause interval DEFAULT '100 ms', settings jsonb DEFAULT NULL, lock_key text DEFAULT NULL,
	lock_retries int DEFAULT NULL, lock_retry_delay interval DEFAULT NULL, max_attempts int DEFAULT NULL, overlap text DEFAULT NULL, catch_up text DEFAULT NULL,
	jitter interval DEFAULT NULL, estimate text DEFAULT NULL, on_start jsonb DEFAULT NULL, on_success jsonb DEFAULT NULL, on_failure jsonb DEFAULT NULL,
	alert_queue text DEFAULT NULL, priority int DEFAULT NULL, flush text DEFAULT NULL, run_as regrole DEFAULT NULL, description text DEFAULT NULL,
	paused boolean DEFAULT false, replace boolean DEFAULT false) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_partitions IS
	'creates a job that creates partitions of a table ahead of time, and drops or detaches those that are too old; returns its name';
