-- room: api
-- What must hold for every object of both extensions, asked of the catalogue. Each query finds the
-- objects for which it does not hold: zero rows. A new object comes under these rules by itself.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
\set VERBOSITY terse

CREATE TEMP VIEW member AS
	SELECT d.classid, d.objid, substr(e.extname, 4)::regnamespace AS home FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname IN ('pg_sweep', 'pg_sweep_gitlab');
CREATE TEMP VIEW function AS
	SELECT p.*, m.home, p.oid::regprocedure AS signature, l.lanname AS language, array_to_string(p.proconfig, ',') AS config
	FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid JOIN pg_language l ON l.oid = p.prolang;
CREATE TEMP VIEW relation AS
	SELECT c.*, m.home, c.oid::regclass AS name FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid;
CREATE TEMP VIEW dumped AS SELECT unnest(extconfig) AS oid FROM pg_extension WHERE extname IN ('pg_sweep', 'pg_sweep_gitlab');

-- the queries below look at something
SELECT h AS home, (SELECT count(*) > 50 FROM function WHERE home = h) AS functions, (SELECT count(*) >= 4 FROM relation WHERE home = h AND relkind IN ('r', 'v')) AS relations
	FROM unnest('{sweep,sweep_gitlab}'::regnamespace[]) AS h;
-- few enough to be read: what users of the engine call
SELECT count(DISTINCT proname) < 50 AS few FROM function WHERE home = 'sweep'::regnamespace AND proname NOT LIKE '\_%' AND proname NOT LIKE '%\_step';

-- everything is in the schema of its extension
SELECT signature FROM function WHERE pronamespace <> home;
SELECT name FROM relation WHERE relnamespace <> home;
-- and everything in these schemas is the extensions'
SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace) AND NOT EXISTS (SELECT FROM function f WHERE f.oid = p.oid);
SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace IN ('sweep'::regnamespace, 'sweep_gitlab'::regnamespace) AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
	AND NOT EXISTS (SELECT FROM relation r WHERE r.oid = c.oid);

-- documented: functions and procedures, tables and views, their columns, types and theirs, policies, the schema
SELECT signature FROM function WHERE obj_description(oid, 'pg_proc') IS NULL;
SELECT name FROM relation WHERE relkind IN ('r', 'v', 'm', 'p', 'f') AND obj_description(oid, 'pg_class') IS NULL;
SELECT r.name, a.attname FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
	WHERE r.relkind IN ('r', 'v', 'm', 'p', 'f') AND col_description(r.oid, a.attnum) IS NULL ORDER BY 1, a.attnum;
SELECT t.oid::regtype FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
	LEFT JOIN pg_class c ON c.oid = t.typrelid
	WHERE t.typelem = 0 AND coalesce(c.relkind, 'c') = 'c' AND obj_description(t.oid, 'pg_type') IS NULL;
SELECT t.oid::regtype, a.attname FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
	JOIN pg_class c ON c.oid = t.typrelid AND c.relkind = 'c' JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
	WHERE col_description(c.oid, a.attnum) IS NULL;
SELECT p.polname FROM pg_policy p JOIN relation r ON r.oid = p.polrelid WHERE obj_description(p.oid, 'pg_policy') IS NULL;
SELECT n.nspname FROM pg_namespace n WHERE n.nspname IN ('sweep', 'sweep_gitlab') AND obj_description(n.oid, 'pg_namespace') IS NULL;
-- a comment is a sentence fragment or sentences, not a stub
SELECT signature, obj_description(oid, 'pg_proc') FROM function WHERE length(obj_description(oid, 'pg_proc')) < 10;

-- nobody can put a function or table of his own in front of ours
SELECT signature FROM function WHERE prosecdef AND config !~ '(^|,)search_path=pg_catalog, pg_temp(,|$)' IS NOT FALSE;
SELECT signature, config FROM function WHERE language IN ('plpgsql', 'sql') AND prosqlbody IS NULL
	AND (config ~ '(^|,)search_path=(")?pg_catalog(")?, (")?pg_temp(")?(,|$)') IS NOT TRUE;

-- nothing is granted to PUBLIC: functions, types, relations, the schema
SELECT signature FROM function WHERE has_function_privilege('public', oid, 'EXECUTE');
SELECT name FROM relation, unnest(relacl) AS acl WHERE relkind IN ('r', 'v', 'S') AND acl::text LIKE '=%';
SELECT nspname FROM pg_namespace, unnest(nspacl) AS acl WHERE nspname IN ('sweep', 'sweep_gitlab') AND acl::text LIKE '=%';
SELECT t.oid::regtype FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
	LEFT JOIN pg_class c ON c.oid = t.typrelid
	WHERE t.typelem = 0 AND coalesce(c.relkind, 'c') = 'c' AND has_type_privilege('public', t.oid, 'USAGE');
-- nor on the row type of a table, which pg_dump could not dump and says so each time
SELECT p.objoid::regtype FROM pg_init_privs p JOIN pg_type t ON t.oid = p.objoid JOIN pg_class c ON c.oid = t.typrelid
	WHERE p.classoid = 'pg_type'::regclass AND c.relkind <> 'c';
-- functions whose names begin with _ are granted to nobody, but for those that views and policies call with their reader's rights, and steps with their job's
SELECT signature FROM function WHERE proname LIKE '\_%' AND proname NOT IN ('_may_see', '_running', '_is_home', '_role_problem', '_role_oid', '_is_trusted', '_acts_for', '_owner_problem', '_execute_problem', '_consumer_processes', '_consumer_problem',
	'_find_handlers', '_handler_problem', '_seen_jobs', '_seen_queues', '_ended_page', '_drop_partition', '_drop_too_old', '_next_blocks', '_settle', '_writers', '_change_batch', '_begin_changes', '_check_acting', '_owns', '_capture_changes', '_apply_changes', '_holders', '_copy_shape', '_table_name', '_type_name', '_base_type', '_read_key', '_may_keep', '_switch_batch', '_switch', '_end_switch', '_check_switch', '_old_name', '_exchange_lines',
	'_sequences', '_stays_settings', '_stays_others', '_comment_line', '_privileges', '_reference_exists', '_lock_number', '_no_scheduler', '_proof_of', '_proof_values', '_retention_age', '_share_older', '_fitting_name',
	'_bounds', '_key_ordering', '_check_ordering', '_check_copied', '_check_columns', '_archive_columns', '_check_heirs', '_is_partitioned', '_refuse_age_type', '_lock_table', '_lock_default', '_await_turn', '_note_try', '_check_visible', '_is_referred_to', '_referencing', '_referring_source', '_cast_to', '_collation_of', '_has_names', '_key_value', '_read_value', '_key_values', '_age_limit', '_partition_key', '_interval_parts', '_grid_bound', '_grid_place', '_present', '_missing_range', '_check_range', '_missing_ranges',
	'_range_type', '_left_behind', '_partition_name', '_create_like', '_equip_like', '_finish_partition', '_default_part', '_switch_triggers', '_firing_triggers', '_attach_with_rows', '_default_extent', '_exchange_default',
	'_emptying_names', '_is_emptying', '_drop_emptying', '_emptying_key', '_check_emptying', '_key_of_default', '_gap_at', '_ranges_to_fill', '_all_to_fill', '_begin_emptying', '_fill_next', '_transactions', '_exchange_emptied',
	'_emptying_texts', '_empty_next', '_change_texts', '_collate_as', '_keeps_key', '_insert_text', '_copy_columns', '_changes_name', '_index_key', '_index_expression', '_is_unique', '_never_null', '_key_expression', '_key_list', '_key_compare', '_key_json', '_key_order', '_edge_statements',
	'_column_list', '_qualified_list', '_relation_name', '_source',
	'_check_default', '_make_of_default', '_newest_part', '_make_partitions', '_find_missing', '_make_next', '_drop_next', '_least_seconds', '_check_every', '_check_origin', '_life_args', '_check_detachable', '_partitions_batch')
	AND EXISTS (SELECT FROM aclexplode(proacl) AS g WHERE g.grantee <> proowner);
-- tables can be written by nobody, and read by nobody: what EXPLAIN says of them tells of rows that a policy hides; feature_flag has none to hide
SELECT name, g.grantee::regrole, g.privilege_type FROM relation, aclexplode(relacl) AS g WHERE relkind IN ('r', 'S') AND g.grantee <> relowner
	AND (g.privilege_type, relname) <> ('SELECT', 'feature_flag');
SELECT name, g.grantee::regrole, g.privilege_type FROM relation, aclexplode(relacl) AS g WHERE relkind = 'v' AND g.grantee <> relowner AND g.privilege_type <> 'SELECT';

-- what users put in is dumped: each table but the runs, the buckets, what a job has read ahead and what was proved, each sequence of a table that is
SELECT name FROM relation WHERE relkind = 'r' AND relname NOT IN ('run_live', 'run_history', 'bucket', 'artifact_list', 'artifact_position', 'retention_proof')
	AND oid NOT IN (SELECT oid FROM dumped);
SELECT r.name FROM relation r JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = r.oid AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0
	WHERE r.relkind = 'S' AND d.refobjid IN (SELECT oid FROM dumped)
	AND r.oid NOT IN (SELECT oid FROM dumped);
-- each table has a primary key, by which logical replication finds its rows: no extension can keep FOR ALL TABLES from publishing them; since
-- version 18 no row can be deleted by a key with a generated column
SELECT name FROM relation r WHERE relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = r.oid AND i.indisprimary
	AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = r.oid AND a.attnum = ANY (i.indkey) AND a.attgenerated <> ''));
-- of the runs those of jobs that keep their cursor, of the buckets those that are ranges
SELECT c.oid::regclass FROM pg_class c WHERE c.oid IN (SELECT oid FROM dumped)
	AND c.relname IN ('run_live', 'run_history', 'bucket', 'artifact_list', 'artifact_position') ORDER BY c.relname;

-- a public function that dispatches has its implementation: the caller first, then the same arguments, less those that are columns of a row that
-- it takes; the same result and owner; in PL/pgSQL when it returns a set
CREATE TEMP VIEW argument AS
	SELECT p.oid AS function, a.n, a.type, p.proargnames[a.n] AS name FROM function p, unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, n);
SELECT f.signature FROM function f WHERE f.prosrc = 'sweep_caller_dispatch' AND NOT EXISTS (SELECT FROM function i
	LEFT JOIN argument AS r ON r.function = i.oid AND r.n = 2 AND i.pronargs <= f.pronargs
	WHERE i.proname = '_' || f.proname AND i.home = f.home AND i.proargtypes[0] = 'oid'::regtype AND i.prorettype = f.prorettype
		AND i.proretset = f.proretset AND i.proowner = f.proowner AND i.provolatile = f.provolatile AND i.proisstrict <= f.proisstrict
		AND (NOT i.proretset OR i.language = 'plpgsql')
		AND ARRAY(SELECT (a.name, a.type)::text FROM argument a WHERE a.function = i.oid AND a.n > 1 AND a.n IS DISTINCT FROM r.n ORDER BY a.n)
			= ARRAY(SELECT (a.name, a.type)::text FROM argument a WHERE a.function = f.oid
				AND NOT EXISTS (SELECT FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid
					WHERE c.reltype = r.type AND t.attname = a.name AND t.atttypid = a.type) ORDER BY a.n));
-- only the C ones have defaults: the others are called with all arguments
SELECT signature FROM function WHERE proname LIKE '\_%' AND pronargdefaults > 0;
-- no overloads: arguments are called by name
SELECT proname FROM function GROUP BY home, proname HAVING count(*) > 1;
-- arguments have names
SELECT signature FROM function WHERE proname NOT LIKE '\_%' AND pronargs > 0 AND (proargnames IS NULL OR '' = ANY (proargnames));
-- nothing that writes is anything but volatile and unsafe in parallel
SELECT signature FROM function WHERE prosrc = 'sweep_caller_dispatch' AND proname NOT IN ('feature_enabled', 'messages', '_ended_page', 'kept_until', 'environments_args') AND (provolatile, proparallel) <> ('v', 'u');
SELECT signature FROM function WHERE language <> 'c' AND prokind = 'f' AND prosrc ~* '\m(INSERT INTO|UPDATE (sweep|sweep_gitlab)\.|DELETE FROM|LOCK TABLE)\M' AND provolatile <> 'v';
-- nor anything that sets a parameter
SELECT signature FROM function WHERE prosrc ~* '\mset_config\(' AND proparallel <> 'u';
-- nor is it safe to begin a subtransaction, which a parallel query cannot, or to call what is not safe
SELECT signature FROM function WHERE prosrc ~ '\mEXCEPTION\s+WHEN\M' AND proparallel <> 'u';
SELECT f.signature, g.signature AS calls FROM function f JOIN function g ON g.proparallel = 'u' AND strpos(f.prosrc, g.home || '.' || g.proname || '(') > 0
	WHERE f.proparallel <> 'u';
-- C functions that look at the state of processes or take locks are volatile
SELECT signature, provolatile FROM function WHERE prosrc IN ('sweep_lock_try', 'sweep_lock_release', 'sweep_lock_run_is_alive', 'sweep_shared_running',
	'sweep_shared_signal_cancel', 'sweep_worker_wake', 'sweep_preview') AND provolatile <> 'v';
-- those that depend on the time zone of the session, or the catalogue, are not immutable
SELECT signature, provolatile FROM function WHERE prosrc IN ('sweep_schedule_next_run', 'sweep_schedule_next_runs', 'sweep_definition_check_batch_sql', 'sweep_ask_has_workers', 'sweep_ask_obstacle', 'sweep_settings_database_is_allowed')
	AND provolatile <> 's';
-- a C function that is not strict looks for NULLs itself: these do
SELECT signature FROM function WHERE language = 'c' AND prokind = 'f' AND NOT proisstrict AND pronargs > 0
	AND prosrc NOT IN ('sweep_caller_dispatch', 'sweep_preview', 'sweep_schedule_next_runs', 'sweep_schedule_next_run', 'sweep_statement_end',
		'sweep_role_may_act', 'sweep_role_may_become', 'sweep_role_may_see', 'sweep_step_is_trusted',
		'sweep_reference_exists', 'sweep_range_read_value')
	AND prosrc !~ '^sweep_queue_(send|send_many|claim|ack|fail|release|extend|cancel)$';

-- states: their words are in the comments of the columns, and the columns of both tables of runs are the same, in the same order
CREATE TEMP VIEW word AS
	SELECT c.conname, c.conrelid, c.contypid, m[1] AS word
	FROM pg_constraint c, regexp_matches(pg_get_constraintdef(c.oid), '''([a-z_]+)''::text', 'g') AS m
	WHERE c.contype = 'c' AND c.connamespace = 'sweep'::regnamespace AND pg_get_constraintdef(c.oid) LIKE '%ANY (ARRAY[%';
SELECT conname, string_agg(word, ' ' ORDER BY word) AS words FROM word GROUP BY conname ORDER BY conname;
SELECT r.name, a.attname, w.word FROM word w JOIN pg_attribute a ON a.atttypid = w.contypid AND a.attnum > 0
		OR a.attrelid = w.conrelid AND w.conname = (SELECT relname FROM pg_class WHERE oid = w.conrelid) || '_' || a.attname || '_check'
	JOIN relation r ON r.oid = a.attrelid AND r.relkind = 'r'
	WHERE strpos(col_description(a.attrelid, a.attnum), w.word) = 0;
SELECT attname, attnum, atttypid::regtype, attnotnull FROM pg_attribute WHERE attrelid = 'sweep.run_live'::regclass AND attnum > 0
EXCEPT SELECT attname, attnum, atttypid::regtype, attnotnull FROM pg_attribute WHERE attrelid = 'sweep.run_history'::regclass AND attnum > 0;

-- no view shows its reader rows that it hides: a function of the reader is called after the conditions of the view
SELECT name FROM relation WHERE relkind = 'v' AND reloptions::text NOT LIKE '%security_barrier%' IS NOT FALSE;
-- and no condition of a reader gets below it, where EXPLAIN would count the hidden rows that meet it: a view ends in OFFSET 0, or reads nothing but functions
SELECT name FROM relation v WHERE relkind = 'v' AND pg_get_viewdef(oid) !~ 'OFFSET 0;$' AND EXISTS (SELECT FROM aclexplode(relacl) AS g WHERE g.grantee <> relowner) AND EXISTS (SELECT FROM pg_rewrite r
	JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> v.oid
	JOIN pg_class t ON t.oid = d.refobjid AND t.relkind <> 'c' WHERE r.ev_class = v.oid);

-- tables of a dump arrive in any order, and side by side: none refers to another one
SELECT c.conrelid::regclass, c.conname FROM pg_constraint c JOIN relation r ON c.contype = 'f' AND r.oid IN (c.conrelid, c.confrelid);

-- every table has a primary key
SELECT name FROM relation r WHERE relkind = 'r' AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = r.oid AND c.contype = 'p');

-- settings: described, changed by a reload or at server start only, but for one that a superuser may set for a role; the prefix is ours
SELECT count(*) > 4 AS some FROM pg_settings WHERE name LIKE 'pg\_sweep.%';
SELECT name, short_desc FROM pg_settings WHERE name LIKE 'pg\_sweep.%' AND (short_desc !~ '^(Sets|Logs|Restricts|Enables|Shows) .*\.$' OR context NOT IN ('sighup', 'postmaster') AND name NOT IN ('pg_sweep.max_wait', 'pg_sweep.no_progress_after'));
SET pg_sweep.no_such_setting = 1;

-- C changes rows of sweep.run_live by the numbers of its columns (run_row.h), past triggers, rules and policies
SELECT a.attname, c.name FROM (SELECT * FROM pg_attribute WHERE attrelid = 'sweep.run_live'::regclass AND attnum > 0) AS a
	FULL JOIN unnest('{run_id, due_at, rows, rescued, quarantined, braked_ms, batches, attempt, hook_depth, pid, job, trigger, parent_run_id,
		status, run_as, started_at, finished_at, bucket, shares_left, stop_reason, args, cursor, detail, sqlstate, error, begun}'::text[]) WITH ORDINALITY AS c (name, number) ON c.number = a.attnum
	WHERE a.attname IS DISTINCT FROM c.name;
SELECT relname FROM pg_class WHERE oid = 'sweep.run_live'::regclass AND (relhastriggers OR relhasrules OR relrowsecurity);
-- a run that ends has a pid, for the index of those that have begun or ended; those that are lost have one
SELECT count(*) > 5 AS some FROM pg_proc WHERE pronamespace = 'sweep'::regnamespace AND prosrc ~ 'UPDATE sweep.run_live[^;]* finished_at = [^;]* pid = ';
SELECT proname FROM pg_proc WHERE pronamespace = 'sweep'::regnamespace AND proname <> '_mark_lost'
	AND EXISTS (SELECT FROM regexp_matches(prosrc, 'UPDATE sweep.run_live[^;]*', 'g') AS m WHERE m[1] ~ ' finished_at = ' AND m[1] !~ ' pid = ');
