--
-- The proof of a retention that has drained: its table has no rows older than a given age, except those that are counted.
--
-- It is computed by one statement, in one snapshot, in the batch that finds nothing more to do, and committed with that batch. It is true only
-- for that time. A restored database has no proofs, and proofs of another cluster or database do not count: see the view.
--
CREATE TABLE sweep.retention_proof (
	job          text PRIMARY KEY,
	run_as       text NOT NULL,
	run_id       bigint NOT NULL,
	proved_at    timestamptz NOT NULL,
	proof        jsonb NOT NULL,
	system_identifier bigint NOT NULL,
	database     oid NOT NULL
);
COMMENT ON TABLE sweep.retention_proof IS 'what the last run of each retention that drained has proved; see sweep.retentions';
COMMENT ON COLUMN sweep.retention_proof.job IS 'name of the job';
COMMENT ON COLUMN sweep.retention_proof.run_as IS 'role of the run';
COMMENT ON COLUMN sweep.retention_proof.run_id IS 'number of the run';
COMMENT ON COLUMN sweep.retention_proof.proved_at IS 'when its last statement was executed';
COMMENT ON COLUMN sweep.retention_proof.proof IS 'the result of sweep._proof_expression';
COMMENT ON COLUMN sweep.retention_proof.system_identifier IS 'cluster and extension it was proved in';
COMMENT ON COLUMN sweep.retention_proof.database IS 'database it was proved in';

CREATE FUNCTION sweep._count_up_to(relation regclass, condition text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- OFFSET 0: see sweep._rest_statement.
	RETURN pg_catalog.format('(SELECT CASE WHEN c.rows OPERATOR(pg_catalog.>) 10000 THEN pg_catalog.to_jsonb(''more than 10000''::pg_catalog.text) ELSE pg_catalog.to_jsonb(nullif(c.rows, 0)) END'
		' FROM (SELECT %s OFFSET 0) AS c (rows))', sweep._count_some(relation, condition, 10001));
END
$$;
COMMENT ON FUNCTION sweep._count_up_to(regclass, text) IS 'an expression: how many rows meet a condition, as JSON; NULL: none does';

CREATE FUNCTION sweep._proof_of(args jsonb) RETURNS jsonb
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT pg_catalog.jsonb_object_agg(e.key, e.value) FROM pg_catalog.jsonb_each(args) AS e WHERE e.key IN ('target', 'age_column', 'condition', 'timezone'));
END
$$;
COMMENT ON FUNCTION sweep._proof_of(jsonb) IS 'the args of a retention that identify the rows of a proof';

-- The proof may not have seen rows of the transactions that were in progress then, or of later ones. If several jobs have proofs of
-- the same rows, that up to the latest age says most.
CREATE FUNCTION sweep._late_rows(role oid, args jsonb, relation regclass, type text, age text, due text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(args ->> 'timezone', 'UTC');
	last pg_catalog.jsonb;
	bound pg_catalog.text;
BEGIN
	SELECT p.proof INTO last FROM sweep.retention_proof p WHERE p.run_as = sweep._role_name(role) AND p.proof -> 'of' = sweep._proof_of(args) AND sweep._is_home(p.system_identifier, p.database)
		ORDER BY (p.proof ->> 'complete_to')::pg_catalog.timestamptz DESC NULLS LAST, p.run_id DESC LIMIT 1;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	bound := pg_catalog.format(CASE type WHEN 'timestamp with time zone' THEN '%2$L::pg_catalog.timestamptz' WHEN 'date' THEN '(pg_catalog.timezone(%1$L, %2$L::pg_catalog.timestamptz))::pg_catalog.date'
		ELSE 'pg_catalog.timezone(%1$L, %2$L::pg_catalog.timestamptz)' END, zone, last ->> 'complete_to');
	RETURN sweep._count_some(relation, pg_catalog.format('%s OPERATOR(pg_catalog.<) %s AND %s AND pg_catalog.age(%I.xmin) OPERATOR(pg_catalog.>=) 0 AND pg_catalog.age(%4$I.xmin) OPERATOR(pg_catalog.<=) pg_catalog.age(%5$L::pg_catalog.xid)',
		(sweep._key_expression(relation, age)).expression, bound, due, sweep._relation_name(relation), ((last ->> 'since_xid')::bigint % 4294967296)::pg_catalog.text), 10000);
END
$$;
COMMENT ON FUNCTION sweep._late_rows(oid, jsonb, regclass, text, text, text) IS 'an expression: the number of late rows, which are due although the last proof says that there are none so old; NULL: there is no proof';

CREATE FUNCTION sweep._late_prologue(late text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'SELECT NULL::pg_catalog.int8, coalesce($2, ''{}'') OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(''late'', l.rows),'
		' CASE WHEN l.rows OPERATOR(pg_catalog.>) 0 THEN pg_catalog.jsonb_build_object(''late_rows'', l.rows) END'
		' FROM (SELECT ' || late || ' OFFSET 0) AS l (rows) WHERE ($2 OPERATOR(pg_catalog.->) ''late'') IS NULL';
END
$$;
COMMENT ON FUNCTION sweep._late_prologue(text) IS 'the statement before each batch of a retention: counts late rows, once; NULL: there is no proof';

CREATE FUNCTION sweep._proof_expression(relation regclass, type text, args jsonb, age text, due text, free text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := pg_catalog.quote_literal(coalesce(args ->> 'timezone', 'UTC'));
	moment constant pg_catalog.text := sweep._age_limit(type, args);
	aged constant pg_catalog.text := (sweep._key_expression(relation, age)).expression;
	old constant pg_catalog.text := pg_catalog.format('%s OPERATOR(pg_catalog.<) %s', aged, moment);
	-- Converts an age of any type to timestamptz.
	absolute constant pg_catalog.text := CASE type WHEN 'timestamp with time zone' THEN '%s' ELSE pg_catalog.format('pg_catalog.timezone(%s, (%%s)::pg_catalog.timestamp)', zone) END;
BEGIN
	RETURN pg_catalog.format('pg_catalog.jsonb_build_object(''of'', %L::pg_catalog.jsonb, ''complete_to'', %s, ''oldest_kept'', (SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT 1), ''hidden'', pg_catalog.row_security_active(%L), ''late_rows'', $2 OPERATOR(pg_catalog.->) ''late'','
			' ''since_xid'', pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text,'
			' ''kept'', pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(''left'', %s, ''referenced'', %s, ''condition'', %s, ''null_age'', %s)))',
		sweep._proof_of(args), pg_catalog.replace(absolute, '%s', moment), pg_catalog.replace(absolute, '%s', aged), sweep._source(relation, NULL), old, aged, sweep._table_name(relation),
		sweep._count_up_to(relation, due || free), CASE free WHEN '' THEN 'NULL' ELSE sweep._count_up_to(relation, pg_catalog.format('%s AND (true%s) IS FALSE', due, free)) END,
		CASE WHEN args ? 'condition' THEN sweep._count_up_to(relation, pg_catalog.format(E'%s AND (%s\n) IS NOT TRUE', old, args ->> 'condition')) ELSE 'NULL' END,
		sweep._count_up_to(relation, aged || ' IS NULL'));
END
$$;
COMMENT ON FUNCTION sweep._proof_expression(regclass, text, jsonb, text, text, text) IS
	'an expression, the proof: the time before which all rows are gone, how many are kept and why: {"of", "complete_to", "oldest_kept", "hidden", "late_rows", "since_xid", "kept"}; hidden: policies may have hidden rows; since_xid: the oldest transaction in progress';

-- ------------------------------------------------------------------ the view
-- The owner of the job may have written any values into its args, and an error for one row would make the view unreadable.
-- Statistics contain values of rows, so they are only used for tables of which the role may read the age of all rows.
CREATE FUNCTION sweep._retention_age(args jsonb, role text, OUT keep interval, OUT age_limit timestamptz, OUT tables oid[]) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := coalesce(args ->> 'timezone', 'UTC');
	reader constant pg_catalog.oid := sweep._role_oid(role);
	days interval;
	name pg_catalog.text[];
BEGIN
	keep := (args ->> 'keep')::interval;
	days := pg_catalog.date_trunc('day', keep);
	-- Computes the same as the text of sweep._age_limit; a view must not execute a text that was built from args.
	age_limit := CASE WHEN days = interval '0' THEN pg_catalog.now() ELSE pg_catalog.timezone(zone, pg_catalog.timezone(zone, pg_catalog.now()) - days) END - (keep - days);
	name := pg_catalog.parse_ident(args ->> 'target');
	-- Computed in this function, because a view with a recursive query cannot be used in statements over distributed tables of Citus.
	tables := ARRAY(WITH RECURSIVE part AS (
			SELECT c.oid FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid JOIN pg_catalog.pg_roles r ON r.oid = reader
				WHERE n.nspname = name[1] AND c.relname = name[2] AND c.relkind IN ('r', 'p') AND pg_catalog.has_schema_privilege(reader, n.oid, 'USAGE')
					AND (pg_catalog.has_table_privilege(reader, c.oid, 'SELECT')
						OR EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = args ->> 'age_column' AND pg_catalog.has_column_privilege(reader, c.oid, a.attnum, 'SELECT')))
					AND (NOT c.relrowsecurity OR r.rolsuper OR r.rolbypassrls OR NOT c.relforcerowsecurity AND pg_catalog.pg_has_role(reader, c.relowner, 'USAGE'))
			UNION SELECT i.inhrelid FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.oid)
		SELECT p.oid FROM part AS p);
EXCEPTION WHEN OTHERS THEN
	tables := NULL;
END
$$;
COMMENT ON FUNCTION sweep._retention_age(jsonb, text) IS 'what the args of a retention of a role mean now: for how long rows are kept, the present limit of the age, and the tables: the target, its partitions and children; no tables if the role may not see the age of all rows';

-- Values are checked, because the step may be called with any cursor, and the age may have any type that can be compared.
CREATE FUNCTION sweep._proof_values(proof jsonb, OUT hidden boolean, OUT complete_to timestamptz, OUT oldest_kept timestamptz, OUT open_since timestamptz, OUT late_rows bigint) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	hidden := (proof ->> 'hidden')::boolean;
	complete_to := CASE WHEN NOT hidden THEN (proof ->> 'complete_to')::pg_catalog.timestamptz END;
	oldest_kept := (proof ->> 'oldest_kept')::pg_catalog.timestamptz;
	open_since := (proof ->> 'open_since')::pg_catalog.timestamptz;
	late_rows := (proof ->> 'late_rows')::bigint;
EXCEPTION WHEN data_exception THEN
	complete_to := NULL;
END
$$;
COMMENT ON FUNCTION sweep._proof_values(jsonb) IS 'the values of a proof, with the types of the columns of sweep.retentions; complete_to is NULL when a value has another type';

-- Computed as in the planner; "bounds" are the histogram bounds, which divide the other values into equal parts.
CREATE FUNCTION sweep._share_older(type oid, zone text, age_limit timestamptz, common text, frequencies real[], bounds text, nulls real) RETURNS float8
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_absolute constant boolean := type = 'pg_catalog.timestamptz'::pg_catalog.regtype;
	moment constant pg_catalog.timestamptz := CASE type WHEN 'pg_catalog.date'::pg_catalog.regtype THEN pg_catalog.timezone(zone, pg_catalog.date_trunc('day', pg_catalog.timezone(zone, age_limit))) ELSE age_limit END;
	older pg_catalog.float8;
	parts int;
	below int;
BEGIN
	SELECT coalesce(pg_catalog.sum(f.frequency) FILTER (WHERE v.value < moment), 0) INTO older FROM pg_catalog.unnest(frequencies) WITH ORDINALITY AS f (frequency, n)
		JOIN (SELECT u.n, CASE WHEN is_absolute THEN u.value::pg_catalog.timestamptz ELSE pg_catalog.timezone(zone, u.value::timestamp) END AS value
			FROM pg_catalog.unnest(common::pg_catalog.text[]) WITH ORDINALITY AS u (value, n)) AS v ON v.n = f.n;
	SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE CASE WHEN is_absolute THEN u.value::pg_catalog.timestamptz ELSE pg_catalog.timezone(zone, u.value::timestamp) END < moment)
		INTO parts, below FROM pg_catalog.unnest(bounds::pg_catalog.text[]) AS u (value);
	IF parts > 1 AND below > 0 THEN
		older := older + (1 - nulls - coalesce((SELECT pg_catalog.sum(f) FROM pg_catalog.unnest(frequencies) AS f), 0)) * CASE WHEN below = parts THEN 1 ELSE (below - 0.5) / (parts - 1) END;
	END IF;
	RETURN greatest(least(older, 1), 0);
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._share_older(oid, text, timestamptz, text, real[], text, real) IS 'the fraction of rows with an age before age_limit, by the statistics of its column: most common values with their frequencies, histogram bounds, fraction of nulls';
