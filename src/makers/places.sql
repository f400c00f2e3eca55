--
-- Batches by places: for sweep.delete and sweep.batched on a table without a suitable index.
--
-- A batch consists of the rows in the next blocks that meet the condition, up to its size. A place (ctid) is no key: an updated row gets another
-- one, which the pass may have passed already. Passes are therefore repeated until one finds no row that can be deleted or updated. A pass ends
-- with the last block at its start, and begins again when the table was rewritten meanwhile, for example by VACUUM FULL. Rows that other
-- sessions have locked are left to the next pass.
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
	-- If few rows meet the condition, a batch reads some megabytes.
	RETURN pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('by', 'ctid', 'from', place, 'after', pg_catalog.jsonb_build_array(pg_catalog.format('(%s,0)', least(block + 4 * size::bigint, blocks))),
		'blocks', blocks, 'file', file, 'part', part));
END
$$;
COMMENT ON FUNCTION sweep._next_blocks(regclass, text, jsonb, int) IS 'the next blocks after a cursor that a batch of that size reads, in a table or in this partition, as the next cursor; NULL: the pass has ended';

CREATE FUNCTION sweep._check_heirs(relation regclass) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT sweep._is_partitioned(relation) AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = relation) THEN
		RAISE EXCEPTION '% has tables that inherit from it', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Neither the indexes nor the blocks of the table include rows of the others. Create a job for each of them, or make it a partitioned table.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_heirs(regclass) IS 'raises when other tables, except partitions, inherit from it';

-- Blocks belong to one partition. A statement must name this partition, so the role needs rights on it, and policies, rules and statement
-- triggers of the table would not apply.
CREATE FUNCTION sweep._place_parts(relation regclass, role oid, privilege text, written text) RETURNS text[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts constant pg_catalog.text[] := CASE WHEN sweep._is_partitioned(relation) THEN sweep._parts(relation, NULL, role, NULL, NULL, privilege, written) END;
BEGIN
	-- Child tables may have been added since the job was created.
	PERFORM sweep._check_heirs(relation);
	IF parts IS NULL AND EXISTS (SELECT FROM pg_catalog.pg_partition_tree(relation) AS t WHERE t.isleaf AND t.relid <> relation AND pg_catalog.pg_relation_size(t.relid) > 0) THEN
		RAISE EXCEPTION '% has no index by which to go through it, and cannot be gone through partition by partition', relation USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'The role needs its rights on each partition, and foreign tables have no blocks here; policies, rules and triggers FOR EACH STATEMENT are those of the table as a whole, and so is a row where columns have another order.',
			HINT = 'Add a primary key, or call this for each partition.';
	END IF;
	RETURN parts;
END
$$;
COMMENT ON FUNCTION sweep._place_parts(regclass, oid, text, text) IS 'the partitions of a table, which are processed by places one after the other; NULL: it has none, or no rows; raises when that is not possible';

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
	-- Planned for each batch: the planner then knows the number of blocks, and chooses the best plan for the rest of the condition.
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
