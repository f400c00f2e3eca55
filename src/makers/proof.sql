--
-- The proof of a retention that has drained: up to which age its table has no row any more, but for those that are counted.
--
-- One statement, in one snapshot, of the batch that has found nothing more to do; it is kept in the commit of that batch. It is true of that moment,
-- and of no later one. A restored database has no proofs, and one of another cluster or database is none: see the view.
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
COMMENT ON COLUMN sweep.retention_proof.proof IS 'what that returned: sweep._proof_expression';
COMMENT ON COLUMN sweep.retention_proof.system_identifier IS 'cluster it was proved in';
COMMENT ON COLUMN sweep.retention_proof.database IS 'database it was proved in';

CREATE FUNCTION sweep._count_up_to(relation regclass, condition text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_catalog.format('(SELECT CASE WHEN c.rows OPERATOR(pg_catalog.>) 10000 THEN pg_catalog.to_jsonb(''more than 10000''::pg_catalog.text) ELSE pg_catalog.to_jsonb(nullif(c.rows, 0)) END'
		' FROM (SELECT %s) AS c (rows))', sweep._count_some(relation, condition, 10001));
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
COMMENT ON FUNCTION sweep._proof_of(jsonb) IS 'the args of a retention that say of which rows a proof is';

CREATE FUNCTION sweep._proof_expression(relation regclass, type text, args jsonb, age text, due text, free text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	zone constant pg_catalog.text := pg_catalog.quote_literal(coalesce(args ->> 'timezone', 'UTC'));
	moment constant pg_catalog.text := sweep._age_limit(type, args);
	aged constant pg_catalog.text := (sweep._key_expression(relation, age)).expression;
	old constant pg_catalog.text := pg_catalog.format('%s OPERATOR(pg_catalog.<) %s', aged, moment);
	-- As a moment, whatever the type of the age.
	absolute constant pg_catalog.text := CASE type WHEN 'timestamp with time zone' THEN '%s' ELSE pg_catalog.format('pg_catalog.timezone(%s, (%%s)::pg_catalog.timestamp)', zone) END;
BEGIN
	RETURN pg_catalog.format('pg_catalog.jsonb_build_object(''of'', %L::pg_catalog.jsonb, ''complete_to'', %s, ''oldest_kept'', (SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT 1), ''hidden'', pg_catalog.row_security_active(%L),'
			' ''kept'', pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(''left'', %s, ''referenced'', %s, ''condition'', %s, ''null_age'', %s)))',
		sweep._proof_of(args), pg_catalog.replace(absolute, '%s', moment), pg_catalog.replace(absolute, '%s', aged), sweep._source(relation, NULL), old, aged, sweep._table_name(relation),
		sweep._count_up_to(relation, due || free), CASE free WHEN '' THEN 'NULL' ELSE sweep._count_up_to(relation, pg_catalog.format('%s AND (true%s) IS FALSE', due, free)) END,
		CASE WHEN args ? 'condition' THEN sweep._count_up_to(relation, pg_catalog.format(E'%s AND (%s\n) IS NOT TRUE', old, args ->> 'condition')) ELSE 'NULL' END,
		sweep._count_up_to(relation, aged || ' IS NULL'));
END
$$;
COMMENT ON FUNCTION sweep._proof_expression(regclass, text, jsonb, text, text, text) IS
	'an expression: up to which moment all rows are gone, and how many of them are kept, why: {"of", "complete_to", "oldest_kept", "hidden", "kept"}; hidden: policies may have hidden rows';
