--
-- Batches by places: rows of a table without an index by which to go through it, for sweep.delete and sweep.batched.
--
-- A batch is what meets the condition in the next blocks, up to its size. A place (ctid) is no key: a row that is updated gets another
-- one, which may lie where the pass has been. Passes are therefore repeated until one finds nothing that can go. A pass ends with the last block that
-- there was when it began, and begins again when the table was written anew meanwhile, as VACUUM FULL does it. Rows that other sessions hold are left to the next pass.
--
CREATE FUNCTION sweep._next_blocks(relation regclass, part text, cursor jsonb, size int) RETURNS jsonb
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	file constant pg_catalog.oid := pg_catalog.pg_relation_filenode(relation);
	goes_on constant boolean := coalesce(cursor ? 'after' AND (cursor ->> 'file')::pg_catalog.oid = file, false);
	blocks constant bigint := CASE WHEN goes_on THEN (cursor ->> 'blocks')::bigint ELSE pg_catalog.pg_relation_size(relation) / pg_catalog.current_setting('block_size')::bigint END;
	place constant pg_catalog.text := CASE WHEN goes_on THEN cursor #>> '{after,0}' ELSE '(0,0)' END;
	block constant bigint := pg_catalog.split_part(pg_catalog.substr(place, 2), ',', 1)::bigint;
BEGIN
	IF block >= blocks THEN
		RETURN NULL;
	END IF;
	-- Where few rows meet the condition, a batch looks at some megabytes.
	RETURN pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('by', 'ctid', 'from', place, 'after', pg_catalog.jsonb_build_array(pg_catalog.format('(%s,0)', least(block + 4 * size::bigint, blocks))),
		'blocks', blocks, 'file', file, 'part', part));
END
$$;
COMMENT ON FUNCTION sweep._next_blocks(regclass, text, jsonb, int) IS 'the blocks of a table, or of this part of one, in which a batch of that size looks behind a cursor, as the next cursor; NULL: the pass has ended';

CREATE FUNCTION sweep._check_heirs(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT sweep._is_partitioned(relation) AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = relation) THEN
		RAISE EXCEPTION '% has tables that inherit from it', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'An index of the one is none of the others, nor are its blocks. Create a job for each of them, or make it a partitioned table.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_heirs(regclass) IS 'raises when other tables inherit from it, but for partitions';

-- Blocks are those of one partition, which the role has to name: it needs its rights there, and policies, rules and statement triggers are left out then.
CREATE FUNCTION sweep._place_parts(relation regclass, role oid, privilege text, written text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts constant pg_catalog.text[] := CASE WHEN sweep._is_partitioned(relation) THEN sweep._parts(relation, NULL, role, NULL, NULL, privilege, written) END;
BEGIN
	-- They may have come since the job was made.
	PERFORM sweep._check_heirs(relation);
	IF parts IS NULL AND EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t WHERE t.isleaf AND t.relid <> relation AND pg_catalog.pg_relation_size(t.relid) > 0) THEN
		RAISE EXCEPTION '% has no index by which to go through it, and cannot be gone through partition by partition', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'The role needs its rights on each partition, and foreign tables have no blocks here; policies, rules and triggers FOR EACH STATEMENT are those of the table as a whole, and so is a row where columns have another order.',
			HINT = 'Add a primary key, or call this for each partition.';
	END IF;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._place_parts(regclass, oid, text, text) IS 'the partitions of a table that are gone through by places, one after the other; NULL: it has none, or no rows; raises when that is not possible';

CREATE FUNCTION sweep._place_statements(relation regclass, part regclass, condition text) RETURNS sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements;
	name constant pg_catalog.text := sweep._relation_name(relation);
BEGIN
	made.key := 'ctid';
	made.part := sweep._table_name(part);
	made.edge := pg_catalog.format('SELECT n.blocks FROM sweep._next_blocks(%L, %L, $2, $1) AS n (blocks) WHERE n.blocks IS NOT NULL', sweep._table_name(coalesce(part, relation)), made.part);
	made.roots := pg_catalog.format('SELECT %1$s FROM %2$s WHERE %3$I.ctid OPERATOR(pg_catalog.>) (($4 OPERATOR(pg_catalog.#>>) ''{from}'')::pg_catalog.tid)'
		' AND %3$I.ctid OPERATOR(pg_catalog.<=) (($4 OPERATOR(pg_catalog.#>>) ''{after,0}'')::pg_catalog.tid) AND %4$s LIMIT $1',
		sweep._qualified_list(name, '{tableoid,ctid}'::pg_catalog.text[] || sweep._referred_columns(relation, false)), sweep._source(relation, part), name, condition);
	made.checked := false;
	made.restarts := true;
	-- The planner knows how many blocks there are, and takes what is best for the rest of the condition.
	made.custom := true;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._place_statements(regclass, regclass, text) IS 'the statements that find the rows of a batch by their places, of a table or of a part of it';

CREATE FUNCTION sweep._place_removal(relation regclass, part regclass, due text, free text) RETURNS sweep._statements
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made sweep._statements := sweep._place_statements(relation, part, due || free);
BEGIN
	made.counter := 'deleted';
	made.cascading := CASE WHEN sweep._referred_columns(relation, false) <> '{}' THEN relation END;
	made.pick := sweep._removal(relation, part, NULL, NULL, pg_catalog.format('%s AND %s%s', sweep._at_places(relation, part), due, free));
	IF free <> '' THEN
		made.epilogue := pg_catalog.format('SELECT false, NULL::pg_catalog.int8, %s::pg_catalog.int8, NULL::pg_catalog.jsonb', sweep._count_some(relation, due || pg_catalog.format(' AND (true%s) IS FALSE', free), 10000));
	END IF;
	RETURN made;
END
$$;
COMMENT ON FUNCTION sweep._place_removal(regclass, regclass, text, text) IS 'the statements of a deletion by places';
