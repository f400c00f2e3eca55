--
-- The ranges of partitions that are created ahead of time: a grid of calendar days, weeks, months or years in a time zone, of fixed lengths of
-- time, or of ids. The ranges are numbered: number n begins at the origin and n times "every", and ends where the next one begins.
--
-- Bounds are texts for the type of the key, written such that they mean the same in any session.
--
CREATE TYPE sweep._partition_range AS (
	place       bigint,
	lower       text,
	upper       text,
	suffix      text,
	overlapping text
);
COMMENT ON TYPE sweep._partition_range IS 'a range for which there is no partition';
COMMENT ON COLUMN sweep._partition_range.place IS 'its number; NULL: there is none';
COMMENT ON COLUMN sweep._partition_range.lower IS 'its lower bound';
COMMENT ON COLUMN sweep._partition_range.upper IS 'its upper bound, which is not in it';
COMMENT ON COLUMN sweep._partition_range.suffix IS 'suffix to the name of the table in the name of the partition';
COMMENT ON COLUMN sweep._partition_range.overlapping IS 'names of partitions that overlap it; NULL: none';

CREATE FUNCTION sweep._partition_key(relation regclass, OUT name text, OUT type text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_plain boolean;
BEGIN
	SELECT a.attname, pg_catalog.format_type(a.atttypid, NULL), o.opcdefault AND o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace INTO name, type, is_plain
		FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] AND a.attnum > 0
			JOIN pg_catalog.pg_opclass o ON o.oid = p.partclass[0] WHERE p.partrelid = relation AND p.partstrat = 'r' AND p.partnatts = 1;
	IF is_plain IS NOT TRUE THEN
		RAISE EXCEPTION '% is not partitioned by ranges of one column', relation USING ERRCODE = 'wrong_object_type',
			HINT = 'Name a table that was created with PARTITION BY RANGE (column).';
	END IF;
	IF type NOT IN ('timestamp with time zone', 'timestamp without time zone', 'date', 'bigint') THEN
		RAISE EXCEPTION 'column "%" of % is of type %', name, relation, type USING ERRCODE = 'datatype_mismatch',
			HINT = 'Partitions are made for a timestamptz, timestamp, date or bigint.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._partition_key(regclass) IS 'the column by whose ranges a table is partitioned, and its type; raises unless partitions can be made for it';

-- ------------------------------------------------------------------ the grid
CREATE FUNCTION sweep._interval_parts(every interval, OUT months int, OUT days int, OUT seconds bigint) RETURNS record
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	months := extract(year FROM every) * 12 + extract(month FROM every);
	days := extract(day FROM every);
	seconds := extract(epoch FROM every - pg_catalog.make_interval(months => months, days => days));
END
$$;
COMMENT ON FUNCTION sweep._interval_parts(interval) IS 'months, days and seconds of an interval, without fractions of a second';

CREATE FUNCTION sweep._check_every(type text, every text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
AS $$
DECLARE
	width interval;
	hint pg_catalog.text := 'Write a number of ids, for example: 1000000.';
BEGIN
	IF type = 'bigint' THEN
		IF every ~ '^[1-9][0-9]{0,17}$' THEN
			RETURN every;
		END IF;
	ELSE
		hint := 'Write one of years, months, weeks or days' || CASE WHEN type = 'date' THEN '' ELSE ', hours, minutes or seconds' END || ', for example: 1 month. It is at most 1000 years.';
		BEGIN
			width := every::interval;
		EXCEPTION WHEN data_exception THEN
			width := NULL;
		END;
		-- A number without a unit, which would mean seconds, is refused.
		IF every ~ '[[:alpha:]:]' AND width > interval '0' AND width <= interval '1000 years' AND (SELECT width = pg_catalog.make_interval(months => p.months, days => p.days, secs => p.seconds)
				AND ((p.months > 0)::int + (p.days > 0)::int + (p.seconds > 0)::int) = 1 AND least(p.months, p.days, p.seconds) = 0 AND (p.seconds = 0 OR type <> 'date') FROM sweep._interval_parts(width) AS p) THEN
			RETURN width::pg_catalog.text;
		END IF;
	END IF;
	RAISE EXCEPTION 'invalid every "%"', every USING ERRCODE = 'invalid_parameter_value', HINT = hint;
END
$$;
COMMENT ON FUNCTION sweep._check_every(text, text) IS 'the width of the partitions, as it is stored; raises unless it is one unit of time, or a number of ids for a bigint';

-- By default weeks begin on Mondays, and all other ranges with the calendar unit.
CREATE FUNCTION sweep._check_origin(type text, origin text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	moment timestamp;
BEGIN
	IF type = 'bigint' THEN
		IF coalesce(origin, '0') ~ '^-?[0-9]{1,18}$' THEN
			RETURN coalesce(origin, '0')::bigint::pg_catalog.text;
		END IF;
	ELSE
		BEGIN
			moment := coalesce(origin, '2001-01-01')::timestamp;
		EXCEPTION WHEN data_exception THEN
			moment := NULL;
		END;
		IF moment BETWEEN timestamp '1900-01-01' AND timestamp '2200-01-01' AND (type <> 'date' OR moment = pg_catalog.date_trunc('day', moment)) AND moment = pg_catalog.date_trunc('second', moment) THEN
			RETURN moment::pg_catalog.text;
		END IF;
	END IF;
	RAISE EXCEPTION 'invalid origin "%"', origin USING ERRCODE = 'invalid_parameter_value',
		HINT = CASE type WHEN 'bigint' THEN 'Write an id with which a partition begins, for example: 1.' ELSE 'Write a moment at which a partition begins, without a zone, for example: 2026-01-04.' END;
END
$$;
COMMENT ON FUNCTION sweep._check_origin(text, text) IS 'a bound of the grid, as it is stored; raises for an invalid one';

-- Days, months and years are those of the time zone. Hours, minutes and seconds are elapsed time, since a clock may show an hour twice.
CREATE FUNCTION sweep._grid_bound(type text, args jsonb, place bigint, OUT bound text, OUT suffix text) RETURNS record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	id numeric;
	width pg_catalog.record;
	moment timestamp;
BEGIN
	IF type = 'bigint' THEN
		id := (args ->> 'origin')::numeric + (args ->> 'every')::numeric * place;
		IF id BETWEEN -9223372036854775808 AND 9223372036854775807 THEN
			bound := id::pg_catalog.text;
		END IF;
		suffix := bound;
		RETURN;
	END IF;
	width := sweep._interval_parts((args ->> 'every')::interval);
	moment := (args ->> 'origin')::timestamp;
	IF width.seconds > 0 AND type = 'timestamp with time zone' THEN
		moment := pg_catalog.timezone('UTC', pg_catalog.timezone(args ->> 'timezone', moment));
	END IF;
	moment := moment + pg_catalog.make_interval(months => (width.months * place)::int, days => (width.days * place)::int, secs => (width.seconds * place)::double precision);
	suffix := pg_catalog.to_char(moment, CASE WHEN width.seconds > 0 THEN CASE WHEN width.seconds % 60 = 0 THEN 'YYYYMMDD_HH24MI' ELSE 'YYYYMMDD_HH24MISS' END
		WHEN width.months > 0 AND width.months % 12 = 0 AND moment = pg_catalog.date_trunc('year', moment) THEN 'YYYY'
		WHEN width.months > 0 AND moment = pg_catalog.date_trunc('month', moment) THEN 'YYYYMM' ELSE 'YYYYMMDD' END);
	bound := CASE WHEN type = 'date' THEN moment::pg_catalog.date::pg_catalog.text WHEN type = 'timestamp without time zone' THEN moment::pg_catalog.text
		ELSE pg_catalog.timezone(CASE WHEN width.seconds > 0 THEN 'UTC' ELSE args ->> 'timezone' END, moment)::pg_catalog.text END;
END
$$;
COMMENT ON FUNCTION sweep._grid_bound(text, jsonb, bigint) IS 'the lower bound of the range of that number, NULL: outside of the type, and the suffix of its partition''s name';

CREATE FUNCTION sweep._grid_place(type text, args jsonb, value text) RETURNS bigint
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	width pg_catalog.record;
	moment timestamp;
	origin timestamp;
	place bigint;
BEGIN
	IF type = 'bigint' THEN
		RETURN pg_catalog.floor((value::numeric - (args ->> 'origin')::numeric) / (args ->> 'every')::numeric);
	END IF;
	width := sweep._interval_parts((args ->> 'every')::interval);
	origin := args ->> 'origin';
	IF type <> 'timestamp with time zone' THEN
		moment := value;
	ELSIF width.seconds = 0 THEN
		moment := pg_catalog.timezone(args ->> 'timezone', value::pg_catalog.timestamptz);
	ELSE
		moment := pg_catalog.timezone('UTC', value::pg_catalog.timestamptz);
		origin := pg_catalog.timezone('UTC', pg_catalog.timezone(args ->> 'timezone', origin));
	END IF;
	IF width.months = 0 THEN
		place := pg_catalog.floor(extract(epoch FROM moment - origin) / (width.days * 86400::bigint + width.seconds));
	ELSE
		place := pg_catalog.floor(((extract(year FROM moment) - extract(year FROM origin)) * 12 + extract(month FROM moment) - extract(month FROM origin)) / width.months);
		IF origin + pg_catalog.make_interval(months => (width.months * place)::int) > moment THEN
			place := place - 1;
		END IF;
	END IF;
	-- If midnight comes twice, the day begins with the second one; the hour before belongs to the day before.
	RETURN CASE WHEN type = 'timestamp with time zone' AND value::pg_catalog.timestamptz < (sweep._grid_bound(type, args, place)).bound::pg_catalog.timestamptz THEN place - 1 ELSE place END;
END
$$;
COMMENT ON FUNCTION sweep._grid_place(text, jsonb, text) IS 'the number of the range that contains a value';

-- ------------------------------------------------------------------ what is there, and what is not
-- For ids, the present is the greatest id. It is searched from the newest partition backwards, and in the default partition.
CREATE FUNCTION sweep._present(relation regclass, key text, type text, args jsonb, as_of timestamptz) RETURNS text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	part pg_catalog.record;
	found bigint;
	newest bigint;
BEGIN
	IF type <> 'bigint' THEN
		RETURN CASE type WHEN 'timestamp with time zone' THEN as_of::pg_catalog.text ELSE pg_catalog.timezone(args ->> 'timezone', as_of)::pg_catalog.text END;
	END IF;
	FOR part IN SELECT b.part, sweep._table_name(b.part) AS name, b.is_default FROM sweep._bounds(relation, NULL) AS b ORDER BY b.is_default DESC, b.upper::bigint DESC NULLS FIRST LOOP
		PERFORM sweep._check_visible(part.part);
		EXECUTE pg_catalog.format('SELECT pg_catalog.max(sweep_part.%I) FROM %s AS sweep_part', key, part.name) INTO found;
		newest := greatest(newest, found);
		EXIT WHEN found IS NOT NULL AND NOT part.is_default;
	END LOOP;
	RETURN coalesce(newest, (args ->> 'origin')::bigint)::pg_catalog.text;
END
$$;
COMMENT ON FUNCTION sweep._present(regclass, text, text, jsonb, timestamptz) IS 'the value of the key that new rows have: the time, or the greatest id';

-- A range that is covered by partitions of any width needs no partition.
CREATE FUNCTION sweep._missing_ranges(relation regclass, type text, args jsonb, first bigint, last bigint, many int) RETURNS SETOF sweep._partition_range
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	ranges constant pg_catalog.text := sweep._range_type(type);
BEGIN
	RETURN QUERY EXECUTE pg_catalog.format('WITH have AS MATERIALIZED (SELECT b.part, pg_catalog.%1$s(b.lower::%3$s, b.upper::%3$s) AS range FROM sweep._bounds($1, NULL) AS b WHERE NOT b.is_default),'
		' missing AS (SELECT g.n, l.bound AS lower, u.bound AS upper, l.suffix, r.range FROM (SELECT pg_catalog.generate_series($2, $3) AS n ORDER BY 1) AS g'
		' CROSS JOIN LATERAL sweep._grid_bound($4, $5, g.n) AS l CROSS JOIN LATERAL sweep._grid_bound($4, $5, g.n + 1) AS u CROSS JOIN LATERAL pg_catalog.%1$s(l.bound::%3$s, u.bound::%3$s) AS r (range)'
		' WHERE l.bound IS NOT NULL AND u.bound IS NOT NULL AND NOT r.range <@ coalesce((SELECT pg_catalog.range_agg(h.range) FROM have h), ''{}''::pg_catalog.%2$s) LIMIT $6)'
		' SELECT m.n, m.lower, m.upper, m.suffix, (SELECT pg_catalog.string_agg(h.part::pg_catalog.text, '', '' ORDER BY h.range) FROM have h WHERE h.range && m.range) FROM missing m ORDER BY m.n',
		ranges, pg_catalog.replace(ranges, 'range', 'multirange'), type) USING relation, first, last, type, args, many;
END
$$;
COMMENT ON FUNCTION sweep._missing_ranges(regclass, text, jsonb, bigint, bigint, int) IS 'the first of these ranges that partitions do not cover, up to that many, with the names of partitions that overlap them';

CREATE FUNCTION sweep._missing_range(relation regclass, type text, args jsonb, first bigint, last bigint) RETURNS sweep._partition_range
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found sweep._partition_range;
BEGIN
	SELECT * INTO found FROM sweep._missing_ranges(relation, type, args, first, last, 1);
	RETURN found;
END
$$;
COMMENT ON FUNCTION sweep._missing_range(regclass, text, jsonb, bigint, bigint) IS 'the first of the missing ranges; place is NULL when there is none';

CREATE FUNCTION sweep._check_range(relation regclass, missing sweep._partition_range) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name constant pg_catalog.text := sweep._partition_name(relation, missing.suffix);
BEGIN
	IF missing.overlapping IS NOT NULL THEN
		RAISE EXCEPTION 'partition % overlaps the range from % to %', missing.overlapping, missing.lower, missing.upper USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'A partition can be made only for a range of which no other partition has a part.',
			HINT = 'Make partitions for the rest of this range, drop the one that is named, or write another "every" or "origin".';
	END IF;
	IF pg_catalog.to_regclass(name) IS NOT NULL THEN
		RAISE EXCEPTION 'the name % is taken', name USING ERRCODE = 'duplicate_table',
			DETAIL = pg_catalog.format('The partition from %s to %s would have this name.', missing.lower, missing.upper), HINT = 'Rename or drop the object with this name.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_range(regclass, sweep._partition_range) IS 'raises unless a partition can be made for the range';

CREATE FUNCTION sweep._range_type(type text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE type WHEN 'bigint' THEN 'int8range' WHEN 'date' THEN 'daterange' WHEN 'timestamp without time zone' THEN 'tsrange' ELSE 'tstzrange' END;
END
$$;
COMMENT ON FUNCTION sweep._range_type(text) IS 'the type of the ranges of a key';

-- Rows that were inserted while no job was running are in the default partition. If they come after the last partition before the present,
-- partitions are created for them.
CREATE FUNCTION sweep._left_behind(relation regclass, key text, type text, args jsonb, first bigint) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY'
AS $$
DECLARE
	rest constant pg_catalog.text := (SELECT sweep._table_name(p.partdefid::pg_catalog.regclass) FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = relation AND p.partdefid <> 0);
	present constant pg_catalog.text := (sweep._grid_bound(type, args, first)).bound;
	newest pg_catalog.text;
	oldest pg_catalog.text;
BEGIN
	EXECUTE pg_catalog.format('SELECT pg_catalog.max(b.upper::%1$s)::pg_catalog.text FROM sweep._bounds($1, NULL) AS b WHERE b.upper::%1$s <= $2::%1$s', type) INTO newest USING relation, present;
	IF rest IS NULL OR newest IS NULL THEN
		RETURN NULL;
	END IF;
	EXECUTE pg_catalog.format('SELECT pg_catalog.min(r.%1$I)::pg_catalog.text FROM %2$s AS r WHERE r.%1$I OPERATOR(pg_catalog.>=) %3$L::%5$s AND r.%1$I OPERATOR(pg_catalog.<) %4$L::%5$s', key, rest, newest, present, type) INTO oldest;
	RETURN (SELECT p.n FROM sweep._grid_place(type, args, oldest) AS p (n) CROSS JOIN LATERAL sweep._missing_range(relation, type, args, p.n, p.n) AS m WHERE m.overlapping IS NULL);
END
$$;
COMMENT ON FUNCTION sweep._left_behind(regclass, text, text, jsonb, bigint) IS 'the number of the oldest range before "first" of which the default partition has rows, after the last partition before that; NULL: there is none';
