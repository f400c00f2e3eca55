-- room: makers
-- Partitions made ahead of time, and dropped or detached when they are old.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS parted CASCADE;
CREATE SCHEMA parted;
CREATE ROLE regress_sweep_parted LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_reader;
GRANT USAGE, CREATE ON SCHEMA parted TO regress_sweep_parted;
GRANT USAGE ON SCHEMA parted TO regress_sweep_reader;
-- the bounds of the partitions, without the parent
CREATE FUNCTION parted.parts(relation regclass) RETURNS TABLE (part text, bound text) LANGUAGE sql AS $$
	SELECT c.relname, replace(pg_get_expr(c.relpartbound, c.oid), 'FOR VALUES ', '') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = relation ORDER BY c.relname COLLATE "C"
$$;
-- batches at a moment of the clock, until there is nothing left to do; each makes one partition, however quickly that is done
CREATE FUNCTION parted.run_at(job text, as_of timestamptz, size int DEFAULT 1000, batches int DEFAULT 100, meanwhile text DEFAULT NULL) RETURNS SETOF jsonb LANGUAGE plpgsql AS $$
DECLARE
	done sweep.progress;
	definition sweep.job := (SELECT j FROM sweep.job j WHERE j.name = run_at.job);
BEGIN
	FOR n IN 1 .. batches LOOP
		done := sweep.partitions_step(ROW(size, coalesce(done.cursor, '{"run": 1}') || '{"many": 1}', definition.args, as_of, NULL, NULL, NULL, 1)::sweep.batch);
		EXIT WHEN done.rows = 0;
		RETURN NEXT done.detail;
		IF done.detail ->> 'copied' = '4' AND meanwhile IS NOT NULL THEN
			EXECUTE meanwhile;
			meanwhile := NULL;
		END IF;
	END LOOP;
END
$$;
CREATE FUNCTION parted.refused_at(job text, as_of timestamptz, size int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM parted.run_at(job, as_of, size);
	RETURN 'not refused';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', SQLSTATE, SQLERRM, detail, hint);
END
$$;
-- what is granted to the reader
CREATE VIEW parted.granted AS SELECT p.relation, p.name || coalesce(' on ' || p.attname, '') || CASE WHEN p.is_grantable THEN ' *' ELSE '' END AS privilege
	FROM (SELECT c.oid::regclass AS relation, NULL AS attname, g.* FROM pg_class c, aclexplode(c.relacl) AS g (grantor, grantee, name, is_grantable)
		UNION ALL SELECT a.attrelid, a.attname, g.* FROM pg_attribute a, aclexplode(a.attacl) AS g) AS p WHERE p.grantee = (SELECT r.oid FROM pg_roles r WHERE r.rolname = 'regress_sweep_reader') ORDER BY 2;
CREATE FUNCTION parted.refuse(arguments text) RETURNS TABLE (state text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT sweep.create_partitions(' || arguments || ')';
	message := 'not refused: ' || arguments;
	RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END
$$;
GRANT SELECT ON parted.granted TO regress_sweep_parted;
SET ROLE regress_sweep_parted;

-- ---------------------------------------------------------------- days of a zone
CREATE TABLE parted.day (at timestamptz NOT NULL, id int) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.day', '1 day', ahead => 3, timezone => 'Europe/Berlin', paused => true);
SELECT args FROM sweep.job WHERE name = 'partitions_day';
SELECT parted.run_at('partitions_day', '2026-03-28 12:00+01');
SELECT * FROM parted.parts('parted.day');
-- once more, and a day later
SELECT parted.run_at('partitions_day', '2026-03-28 12:00+01');
SELECT parted.run_at('partitions_day', '2026-03-29 00:00+01');
-- a day of 25 hours
SELECT parted.run_at('partitions_day', '2026-10-24 12:00+02');
SELECT * FROM parted.parts('parted.day') WHERE part ~ '_202610';
-- a zone whose midnight does not exist on a day
CREATE TABLE parted.cairo (at timestamptz NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.cairo', '1 day', ahead => 2, timezone => 'Africa/Cairo', paused => true);
SELECT parted.run_at('partitions_cairo', '2026-04-23 12:00Z');
SELECT * FROM parted.parts('parted.cairo');

-- ---------------------------------------------------------------- other widths and types
CREATE TABLE parted.month (at timestamp NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.month', '1 month', ahead => 2, timezone => 'Asia/Tokyo', paused => true);
SELECT parted.run_at('partitions_month', '2026-12-31 16:00Z');
SELECT * FROM parted.parts('parted.month');
CREATE TABLE parted."Quar""ter" ("The day" date NOT NULL) PARTITION BY RANGE ("The day");
SELECT sweep.create_partitions('parted."Quar""ter"', '3 months', ahead => 2, name => 'partitions quarter', paused => true);
SELECT parted.run_at('partitions quarter', '2026-02-11');
SELECT * FROM parted.parts('parted."Quar""ter"');
CREATE TABLE parted.year (at date NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.year', '1 year', ahead => 1, paused => true);
SELECT parted.run_at('partitions_year', '1999-12-31 23:59:59Z');
SELECT * FROM parted.parts('parted.year');
-- weeks begin on Mondays, or where the origin says
CREATE TABLE parted.week (at timestamptz NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.week', '1 week', ahead => 1, timezone => 'America/New_York', paused => true);
SELECT parted.run_at('partitions_week', '2026-03-04 12:00Z');
CREATE TABLE parted.sunday (at date NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.sunday', '7 days', ahead => 1, origin => '2026-01-04', paused => true);
SELECT parted.run_at('partitions_sunday', '2026-03-07 12:00Z');
SELECT * FROM parted.parts('parted.week') UNION ALL SELECT * FROM parted.parts('parted.sunday');
-- months from another day on
CREATE TABLE parted.bill (at date NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.bill', '1 month', ahead => 2, origin => '2026-01-31', paused => true);
SELECT parted.run_at('partitions_bill', '2026-02-27 12:00Z');
SELECT * FROM parted.parts('parted.bill');
-- hours are time that passes
CREATE TABLE parted.hour (at timestamptz NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.hour', '1 hour', ahead => 3, timezone => 'Europe/Berlin', paused => true);
SELECT parted.run_at('partitions_hour', '2026-10-25 00:10Z');
SELECT * FROM parted.parts('parted.hour');
CREATE TABLE parted.half (at timestamp NOT NULL) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.half', '12:00', ahead => 1, timezone => 'Europe/Berlin', paused => true);
SELECT parted.run_at('partitions_half', '2026-10-25 00:10Z');
SELECT * FROM parted.parts('parted.half');
-- ids: the greatest one is the present
CREATE TABLE parted.id (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
SELECT sweep.create_partitions('parted.id', '1000', ahead => 2, paused => true);
SELECT parted.run_at('partitions_id', now());
INSERT INTO parted.id SELECT generate_series(1, 2500, 7);
SELECT parted.run_at('partitions_id', now());
SELECT * FROM parted.parts('parted.id');
CREATE TABLE parted.id_from_1 (id bigint) PARTITION BY RANGE (id);
CREATE TABLE parted.id_made PARTITION OF parted.id_from_1 FOR VALUES FROM (MINVALUE) TO (1001);
SELECT sweep.create_partitions('parted.id_from_1', '1000', ahead => 1, origin => '1', paused => true);
SELECT parted.run_at('partitions_id_from_1', now());
SELECT * FROM parted.parts('parted.id_from_1');
-- the type ends
CREATE TABLE parted.last_id (id bigint) PARTITION BY RANGE (id);
CREATE TABLE parted.last_default PARTITION OF parted.last_id DEFAULT;
INSERT INTO parted.last_id VALUES (9223372036854775807), (NULL);
SELECT sweep.create_partitions('parted.last_id', '1000000000000000', ahead => 1, paused => true);
SELECT parted.run_at('partitions_last_id', now());
SELECT * FROM parted.parts('parted.last_id');
-- a long name
CREATE TABLE parted.a_table_whose_name_is_as_long_as_a_name_can_be_in_postgresql_12 (at date) PARTITION BY RANGE (at);
SELECT sweep.create_partitions('parted.a_table_whose_name_is_as_long_as_a_name_can_be_in_postgresql_12', '1 day', ahead => 1, name => 'partitions long', paused => true);
SELECT parted.run_at('partitions long', '2026-02-27 12:00Z');

-- ---------------------------------------------------------------- what is there already
-- a range that others cover needs nothing; a part of one ends the run
CREATE TABLE parted.hand (at timestamptz NOT NULL) PARTITION BY RANGE (at);
CREATE TABLE parted.hand_old PARTITION OF parted.hand FOR VALUES FROM (MINVALUE) TO ('2016-05-01 12:00Z');
CREATE TABLE parted.hand_rest PARTITION OF parted.hand FOR VALUES FROM ('2016-05-01 12:00Z') TO ('2016-05-03 00:00Z');
CREATE TABLE parted.hand_half PARTITION OF parted.hand FOR VALUES FROM ('2016-05-04 06:00Z') TO ('2016-05-04 12:00Z');
SELECT sweep.create_partitions('parted.hand', '1 day', ahead => 4, paused => true);
SELECT parted.run_at('partitions_hand', '2016-04-29');
\set VERBOSITY sqlstate
SELECT parted.run_at('partitions_hand', '2016-04-30');
\set VERBOSITY default
DROP TABLE parted.hand_half;
CREATE TABLE parted."hand_20160504" (at int);
SELECT parted.run_at('partitions_hand', '2016-04-30');
DROP TABLE parted."hand_20160504";
SELECT parted.run_at('partitions_hand', '2016-04-30');
SELECT * FROM parted.parts('parted.hand');
-- it is refused at once for the present
CREATE TABLE parted.now (at timestamptz NOT NULL) PARTITION BY RANGE (at);
DO $$
DECLARE
	today timestamptz := date_trunc('day', now());
BEGIN
	FOR n IN 0 .. 1 LOOP
		EXECUTE format('CREATE TABLE parted.now_%s PARTITION OF parted.now FOR VALUES FROM (%L) TO (%L)', n, today + interval '1 day' * n - interval '1 hour', today + interval '1 day' * n + interval '1 hour');
	END LOOP;
END
$$;
SELECT regexp_replace(r.message, 'partition .* overlaps the range from .*', 'overlaps') AS message FROM parted.refuse($$'parted.now', '1 day'$$) AS r;

-- ---------------------------------------------------------------- as the parent is
RESET ROLE;
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_sweep_parted LOCATION '';
GRANT CREATE ON TABLESPACE regress_sweep_parted TO regress_sweep_parted;
CREATE ROLE regress_sweep_parted_owner;
GRANT regress_sweep_parted_owner TO regress_sweep_parted;
GRANT USAGE, CREATE ON SCHEMA parted TO regress_sweep_parted_owner;
CREATE TABLE parted.shelf (id int PRIMARY KEY);
CREATE TABLE parted.book (
	dropped int,
	id bigint GENERATED ALWAYS AS IDENTITY,
	at timestamptz NOT NULL DEFAULT now(),
	kind text COLLATE "C" CONSTRAINT book_kind CHECK (kind <> ''),
	size int GENERATED ALWAYS AS (length(kind)) STORED,
	shelf int REFERENCES parted.shelf DEFERRABLE INITIALLY DEFERRED,
	note text,
	PRIMARY KEY (id, at)) PARTITION BY RANGE (at) TABLESPACE regress_sweep_parted;
ALTER TABLE parted.book DROP COLUMN dropped, ALTER COLUMN note SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX book_identity ON parted.book (at, id);
CREATE INDEX ON parted.book (lower(kind));
ALTER TABLE parted.book REPLICA IDENTITY USING INDEX book_identity;
CREATE TABLE parted.book_first PARTITION OF parted.book FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z') WITH (fillfactor = 77, autovacuum_enabled = off, toast.autovacuum_vacuum_threshold = 99);
CREATE TABLE parted.book_second PARTITION OF parted.book FOR VALUES FROM ('2020-02-01Z') TO ('2020-03-01Z') WITH (fillfactor = 88);
GRANT SELECT, INSERT (kind), UPDATE (kind, shelf) ON parted.book TO regress_sweep_reader;
GRANT DELETE ON parted.book TO regress_sweep_reader WITH GRANT OPTION;
COMMENT ON TABLE parted.book IS 'What is read';
COMMENT ON COLUMN parted.book.kind IS 'of paper';
COMMENT ON INDEX parted.book_identity IS 'to find them';
CREATE STATISTICS parted.book_statistics ON kind, shelf FROM parted.book;
ALTER TABLE parted.book ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON parted.book FOR SELECT TO regress_sweep_reader USING (kind <> 'secret');
CREATE FUNCTION parted.noise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING '% on %', TG_OP, TG_TABLE_NAME; RETURN NEW; END $$;
CREATE TRIGGER noise BEFORE INSERT OR DELETE OR UPDATE ON parted.book FOR EACH ROW EXECUTE FUNCTION parted.noise();
CREATE TRIGGER silent AFTER INSERT ON parted.book FOR EACH ROW EXECUTE FUNCTION parted.noise();
ALTER TABLE parted.book DISABLE TRIGGER silent;
CREATE TABLE parted.book_default PARTITION OF parted.book DEFAULT;
SET client_min_messages = error;
CREATE PUBLICATION regress_sweep_parted FOR TABLE parted.book;
SET client_min_messages = warning;
DO $$ DECLARE t regclass; BEGIN FOR t IN SELECT relid FROM pg_partition_tree('parted.book') LOOP EXECUTE format('ALTER TABLE %s OWNER TO regress_sweep_parted_owner', t); END LOOP; END $$;
ALTER DEFAULT PRIVILEGES FOR ROLE regress_sweep_parted IN SCHEMA parted GRANT TRUNCATE ON TABLES TO regress_sweep_reader;
ALTER TABLE parted.book DISABLE TRIGGER noise;
INSERT INTO parted.shelf VALUES (1), (2);
INSERT INTO parted.book (at, kind, shelf, note) VALUES ('2020-03-03Z', 'Novel', 1, 'x'), ('2020-03-31Z', 'secret', 2, NULL), ('2020-04-03Z', 'Atlas', NULL, repeat('long ', 3000)), ('2020-09-09Z', 'future', 1, 'y');
ALTER TABLE parted.book ENABLE TRIGGER noise;
SET ROLE regress_sweep_parted;
SELECT sweep.create_partitions('parted.book', '1 month', ahead => 1, paused => true);
SELECT parted.run_at('partitions_book', '2020-03-15');
SELECT tableoid::regclass, id, at, kind, size, shelf, length(note) FROM parted.book ORDER BY id;
RESET ROLE;
SELECT c.relname, pg_get_userbyid(c.relowner) AS owner, t.spcname, c.reloptions, c.relreplident, c.relrowsecurity, obj_description(c.oid, 'pg_class') FROM pg_class c LEFT JOIN pg_tablespace t ON t.oid = c.reltablespace
	WHERE c.oid IN ('parted.book'::regclass, 'parted.book_202004'::regclass) ORDER BY c.relname;
SELECT relation, privilege FROM parted.granted WHERE relation = 'parted.book_202004'::regclass;
SELECT count(*) AS differ FROM (SELECT privilege FROM parted.granted WHERE relation = 'parted.book'::regclass EXCEPT SELECT privilege FROM parted.granted WHERE relation = 'parted.book_202004'::regclass) AS d;
SELECT attname, format_type(atttypid, atttypmod) AS type, attcollation::regcollation AS collation, attnotnull, attgenerated, attstorage, col_description(attrelid, attnum),
	(SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = attrelid AND d.adnum = attnum) AS def FROM pg_attribute WHERE attrelid = 'parted.book_202004'::regclass AND attnum > 0 ORDER BY attnum;
SELECT indexrelid::regclass, regexp_replace(pg_get_indexdef(indexrelid), '.* USING ', '') AS definition, indisunique, indisprimary, indisreplident, obj_description(indexrelid, 'pg_class') FROM pg_index WHERE indrelid = 'parted.book_202004'::regclass ORDER BY indexrelid::regclass::text COLLATE "C";
SELECT conname, pg_get_constraintdef(oid), conislocal FROM pg_constraint WHERE conrelid = 'parted.book_202004'::regclass AND contype IN ('c', 'f') ORDER BY 1;
SELECT polname, polcmd, polroles::regrole[], pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = 'parted.book_202004'::regclass;
SELECT count(*) AS statistics FROM pg_statistic_ext WHERE stxrelid = 'parted.book_202004'::regclass;
SELECT tablename FROM pg_publication_tables WHERE pubname = 'regress_sweep_parted' ORDER BY 1;
SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN ('parted.book_default'::regclass, 'parted.book_202004'::regclass) ORDER BY tgrelid::regclass::text COLLATE "C", 2;
SET ROLE regress_sweep_reader;
SELECT kind FROM parted.book_202003;
RESET ROLE;
DROP PUBLICATION regress_sweep_parted;
ALTER DEFAULT PRIVILEGES FOR ROLE regress_sweep_parted IN SCHEMA parted REVOKE TRUNCATE ON TABLES FROM regress_sweep_reader;

-- ---------------------------------------------------------------- more rows in the default partition than a batch may have
SET ROLE regress_sweep_parted;
CREATE TABLE parted.many (at timestamptz NOT NULL PRIMARY KEY, n int) PARTITION BY RANGE (at);
CREATE TABLE parted.many_default PARTITION OF parted.many DEFAULT WITH (fillfactor = 66);
GRANT SELECT ON parted.many_default TO regress_sweep_reader;
COMMENT ON TABLE parted.many_default IS 'the rest';
CREATE TABLE parted.many_1 PARTITION OF parted.many FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
INSERT INTO parted.many SELECT timestamptz '2026-01-05 12:00Z' + interval '1 hour' * n, n FROM generate_series(1, 60) AS n;
SELECT sweep.create_partitions('parted.many', '1 day', ahead => 1, paused => true);
SELECT parted.run_at('partitions_many', '2026-01-07 11:00Z', 10);
SELECT * FROM parted.parts('parted.many');
SELECT tableoid::regclass, count(*), min(n), max(n) FROM parted.many GROUP BY tableoid ORDER BY tableoid::regclass::text COLLATE "C";
SELECT c.relname, (SELECT string_agg(g.privilege, ' ') FROM parted.granted g WHERE g.relation = c.oid) AS granted, c.reloptions, obj_description(c.oid, 'pg_class') FROM pg_class c WHERE c.relname LIKE 'many%' AND c.relkind = 'r' ORDER BY c.relname;
-- where they are on both sides of a partition, they are copied
INSERT INTO parted.many SELECT timestamptz '2026-01-03 12:00Z' + interval '1 minute' * n, n FROM generate_series(1, 20) AS n;
INSERT INTO parted.many VALUES ('2026-01-20 00:00Z', 1);
SELECT parted.run_at('partitions_many', '2026-01-03 11:00Z', 10);
SELECT tableoid::regclass, count(*) FROM parted.many GROUP BY tableoid ORDER BY tableoid::regclass::text COLLATE "C";
DROP TABLE parted.many_20260120;
-- rows that came while no job was running, a day each, but none of before the last partition
INSERT INTO parted.many VALUES ('2025-01-01', 0), ('2026-01-14 12:00', 14), ('2026-01-16 12:00', 16), ('2026-01-16 13:00', 16);
SELECT parted.run_at('partitions_many', '2026-01-20 11:00Z', 10);
SELECT tableoid::regclass, count(*) FROM parted.many WHERE at < '2026-01-02' OR at > '2026-01-10' GROUP BY tableoid ORDER BY tableoid::regclass::text COLLATE "C";
-- its rows cannot be moved while others refer to them
CREATE TABLE parted.ref (at timestamptz REFERENCES parted.many);
INSERT INTO parted.many VALUES ('2026-02-01', 0);
SELECT parted.run_at('partitions_many', '2026-02-01 11:00Z', 10);
DELETE FROM parted.many WHERE at = '2026-02-01';
SELECT parted.run_at('partitions_many', '2026-02-01 11:00Z', 10);
-- what a check reads is found as in the session of the run
CREATE FUNCTION parted.is_fine(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN also_fine($1); END $$;
CREATE FUNCTION parted.also_fine(int) RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT $1 > 0 $$;
CREATE TABLE parted.checked (at date, n int CHECK (parted.is_fine(n))) PARTITION BY RANGE (at);
CREATE TABLE parted.checked_default PARTITION OF parted.checked DEFAULT;
SELECT sweep.create_partitions('parted.checked', '1 day', ahead => 1, paused => true);
SET search_path = parted, public;
INSERT INTO parted.checked VALUES ('2026-05-05', 1);
SELECT parted.run_at('partitions_checked', '2026-05-05');
RESET search_path;

-- ---------------------------------------------------------------- a default partition that is emptied by a copy
RESET ROLE;
GRANT ALL ON parted.shelf TO regress_sweep_parted;
SET ROLE regress_sweep_parted;
CREATE TABLE parted.split (at timestamp, n int CHECK (parted.is_fine(n)), double int GENERATED ALWAYS AS (n * 2) STORED, shelf int REFERENCES parted.shelf) PARTITION BY RANGE (at);
CREATE TABLE parted.split_rest PARTITION OF parted.split DEFAULT;
CREATE TABLE parted.split_middle PARTITION OF parted.split FOR VALUES FROM ('2026-05-05') TO ('2026-05-06');
CREATE TABLE parted.split_half PARTITION OF parted.split FOR VALUES FROM ('2026-05-01') TO ('2026-05-01 12:00');
CREATE VIEW parted.split_seen AS SELECT * FROM parted.split_rest;
GRANT SELECT (at) ON parted.split TO regress_sweep_reader;
ALTER TABLE parted.split ENABLE ROW LEVEL SECURITY;
CREATE POLICY late ON parted.split TO regress_sweep_reader USING (at > '2026-05-03');
CREATE FUNCTION parted.shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING '% on %', TG_OP, TG_TABLE_NAME; RETURN NULL; END $$;
CREATE TRIGGER shout_truncate AFTER TRUNCATE ON parted.split_rest EXECUTE FUNCTION parted.shout();
SET search_path = parted, public;
-- two of each key, one without, two that are infinite, one of a range of which a partition has a half
INSERT INTO parted.split (at, n, shelf) SELECT timestamp '2026-05-03' + interval '6 hours' * (n / 2), n, 1 + n % 2 FROM generate_series(1, 31) AS n;
INSERT INTO parted.split (at, n) VALUES (NULL, 1), ('infinity', 2), ('-infinity', 3), ('2026-05-01 13:00', 4);
CREATE TRIGGER shout AFTER INSERT OR UPDATE OR DELETE ON parted.split FOR EACH ROW EXECUTE FUNCTION parted.shout();
SELECT sweep.create_partitions('parted.split', '1 day', ahead => 1, paused => true);
SELECT parted.refused_at('partitions_split', '2026-05-04 12:00Z', 4);
CREATE INDEX ON parted.split (at);
SELECT parted.run_at('partitions_split', '2026-05-04 12:00Z', 4, 4);
SELECT relname, relkind FROM pg_class WHERE relname ~ '^split.*sweep' AND relkind IN ('r', 'p') ORDER BY relname COLLATE "C";
-- a cursor that is lost: it begins again
SELECT parted.run_at('partitions_split', '2026-05-04 12:00Z', 4, 6);
-- what is changed meanwhile, in the batches after the next one; a trigger of the session says nothing of it
ALTER TABLE parted.split DISABLE TRIGGER shout;
SELECT parted.run_at('partitions_split', '2026-05-04 12:00Z', 4, 100, $$
	UPDATE parted.split SET n = n + 100 WHERE n IN (3, 20); DELETE FROM parted.split WHERE n = 5;
	INSERT INTO parted.split (at, n) VALUES ('2026-05-03 01:00', 50), ('2026-05-09 01:00', 51)$$);
ALTER TABLE parted.split ENABLE TRIGGER shout;
SELECT tableoid::regclass, count(*), sum(n), sum(double) FROM parted.split GROUP BY tableoid ORDER BY tableoid::regclass::text COLLATE "C";
SELECT count(*) FROM parted.split_seen;
SELECT relname FROM pg_class WHERE relname ~ '^split.*sweep' UNION ALL SELECT tgname FROM pg_trigger WHERE tgname ~ '^sweep' AND tgrelid = 'parted.split_rest'::regclass UNION ALL SELECT conname FROM pg_constraint WHERE conname = 'sweep_range';
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid IN ('parted.split_rest'::regclass, 'parted.split_20260503'::regclass) AND NOT tgisinternal ORDER BY tgrelid::regclass::text COLLATE "C", 1;
SELECT c.relrowsecurity, (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid) AS policies, (SELECT count(*) FROM pg_constraint o WHERE o.conrelid = c.oid AND o.contype = 'f' AND o.conparentid <> 0) AS foreign_keys,
	(SELECT string_agg(g.privilege, ' ') FROM parted.granted g WHERE g.relation = c.oid) AS granted FROM pg_class c WHERE c.oid = 'parted.split_20260503'::regclass;
-- a job that is dropped takes the copy along
DROP TRIGGER shout ON parted.split;
INSERT INTO parted.split (at, n) SELECT timestamp '2026-05-20' + interval '1 hour' * n, 1 FROM generate_series(0, 30) AS n;
INSERT INTO parted.split (at, n) SELECT timestamp '2026-05-16' + interval '1 hour' * n, 1 FROM generate_series(0, 10) AS n;
CREATE TABLE parted.split_17 PARTITION OF parted.split FOR VALUES FROM ('2026-05-17') TO ('2026-05-18');
SELECT parted.run_at('partitions_split', '2026-05-20 12:00Z', 10, 4);
SELECT count(*) FROM pg_class WHERE relname ~ '^split.*sweep' AND relkind IN ('r', 'p');
RESET search_path;
SELECT sweep.drop_job('partitions_split');
SELECT count(*) FROM pg_class WHERE relname ~ '^split.*sweep' OR relname = 'split_20260520';
-- what is not done
SELECT sweep.create_partitions('parted.split', '1 day', ahead => 1, paused => true);
SET search_path = parted, public;
SELECT parted.refused_at('partitions_split', '2026-05-20 12:00Z', 2);
CREATE TABLE parted.split_rest_sweep_copy (mine int);
SELECT parted.refused_at('partitions_split', '2026-05-20 12:00Z', 10);
DROP TABLE parted.split_rest_sweep_copy;
RESET ROLE;
SET client_min_messages = error;
CREATE PUBLICATION regress_sweep_parted FOR TABLE parted.split WITH (publish_via_partition_root);
SET client_min_messages = warning;
SET ROLE regress_sweep_parted;
SELECT parted.refused_at('partitions_split', '2026-05-20 12:00Z', 10);
RESET ROLE;
DROP PUBLICATION regress_sweep_parted;
SET ROLE regress_sweep_parted;
-- from partition to partition, when there would be more than a hundred
INSERT INTO parted.split (at, n) SELECT timestamp '2025-10-01 05:00' + interval '1 day' * n, 1 FROM generate_series(0, 120) AS n;
SELECT parted.run_at('partitions_split', '2026-05-20 12:00Z', 10, 100);
SELECT * FROM parted.parts('parted.split');
SELECT tableoid::regclass, count(*) FROM parted.split GROUP BY tableoid ORDER BY tableoid::regclass::text COLLATE "C";
RESET search_path;

-- ---------------------------------------------------------------- the end
CREATE TABLE parted.life (at timestamptz NOT NULL, id int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
CREATE TABLE parted.life_default PARTITION OF parted.life DEFAULT;
SELECT sweep.create_partitions('parted.life', '1 day', ahead => 2, keep => '2 days', timezone => 'Europe/Berlin', paused => true);
SELECT args FROM sweep.job WHERE name = 'partitions_life';
SELECT parted.run_at('partitions_life', '2026-03-26 12:00Z');
SELECT parted.run_at('partitions_life', '2026-03-28 22:59Z');
SELECT parted.run_at('partitions_life', '2026-03-28 23:00Z');
SELECT parted.run_at('partitions_life', '2026-03-31 12:00Z');
SELECT * FROM parted.parts('parted.life');
-- detached
SELECT sweep.create_partitions('parted.life', '1 day', ahead => 2, keep => '2 days', timezone => 'Europe/Berlin', partitions => 'detach', paused => true, replace => true);
SELECT parted.run_at('partitions_life', '2026-04-01 12:00Z');
SELECT relname, relispartition FROM pg_class WHERE oid = 'parted.life_20260329'::regclass;
-- what is refused keeps none from being made, and one that cannot be made none from being dropped
CREATE TABLE parted.life_ref (at timestamptz, id int, FOREIGN KEY (at, id) REFERENCES parted.life);
CREATE INDEX ON parted.life_ref (at, id);
SELECT parted.run_at('partitions_life', '2026-04-02 12:00Z');
SELECT * FROM parted.parts('parted.life');
SELECT sweep.create_partitions('parted.life', '1 day', ahead => 2, keep => '2 days', timezone => 'Europe/Berlin', paused => true, replace => true);
-- one to which a row refers waits, the others do not
INSERT INTO parted.life VALUES ('2026-03-30 12:00', 1), ('2026-03-31 12:00', 1);
INSERT INTO parted.life_ref VALUES ('2026-03-30 12:00', 1);
SELECT parted.run_at('partitions_life', '2026-04-03 12:00Z');
SELECT parted.run_at('partitions_life', '2026-04-03 12:00Z');
DELETE FROM parted.life_ref;
SELECT parted.run_at('partitions_life', '2026-04-03 12:00Z');
CREATE TABLE parted.life_half PARTITION OF parted.life FOR VALUES FROM ('2026-04-07 12:00Z') TO ('2026-04-07 13:00Z');
\set VERBOSITY sqlstate
SELECT parted.run_at('partitions_life', '2026-04-05 12:00Z');
\set VERBOSITY default
SELECT * FROM parted.parts('parted.life');
-- args that were altered are checked again; those that are left out are as in the maker
SELECT sweep.alter_job('partitions_life', '{"args": {"target": "parted.life", "every": "1 day", "ahead": 0, "partitions": "drop"}}');
SELECT parted.run_at('partitions_life', '2026-04-03 12:00Z');
SELECT sweep.alter_job('partitions_life', '{"args": {"target": "parted.life", "every": "1 day", "ahead": 3, "partitions": "drop"}}');
SELECT parted.run_at('partitions_life', '2026-04-03 12:00Z');

-- a retention that drops partitions leaves those to which rows of a table refer that has come since
CREATE TABLE parted.kept (at timestamptz NOT NULL PRIMARY KEY) PARTITION BY RANGE (at);
CREATE TABLE parted.kept_1 PARTITION OF parted.kept FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
CREATE TABLE parted.kept_2 PARTITION OF parted.kept FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');
INSERT INTO parted.kept VALUES ('2020-02-02'), ('2020-03-03'), ('2021-02-02');
SELECT sweep.create_retention('parted.kept', 'at', '1 year', partitions => 'drop', paused => true);
CREATE TABLE parted.kept_ref (at timestamptz REFERENCES parted.kept);
INSERT INTO parted.kept_ref VALUES ('2020-02-02');
SELECT d.* FROM sweep._drop_partition('parted.kept', 'timestamp with time zone', '2023-01-01', false, true, NULL) AS d;
SELECT d.* FROM sweep._drop_partition('parted.kept', 'timestamp with time zone', '2023-01-01', false, true, '{"referred_to": "2021-01-01"}') AS d;
SELECT d.* FROM sweep._drop_partition('parted.kept', 'timestamp with time zone', '2023-01-01', false, true, '{"referred_to": "2021-01-01"}') AS d;

-- ---------------------------------------------------------------- what is refused
\pset format unaligned
\pset tuples_only on
\pset fieldsep ' | '
SELECT * FROM parted.refuse($$NULL, '1 day'$$);
SELECT * FROM parted.refuse($$'parted.no_such', '1 day'$$);
CREATE VIEW parted.seen AS SELECT * FROM parted.day;
SELECT * FROM parted.refuse($$'parted.seen', '1 day'$$);
CREATE TABLE parted.plain (at timestamptz);
SELECT * FROM parted.refuse($$'parted.plain', '1 day'$$);
CREATE TABLE parted.listed (at timestamptz) PARTITION BY LIST (at);
SELECT * FROM parted.refuse($$'parted.listed', '1 day'$$);
CREATE TABLE parted.two (at timestamptz, n int) PARTITION BY RANGE (at, n);
SELECT * FROM parted.refuse($$'parted.two', '1 day'$$);
CREATE TABLE parted.expression (at timestamptz) PARTITION BY RANGE ((at AT TIME ZONE 'UTC'));
SELECT * FROM parted.refuse($$'parted.expression', '1 day'$$);
CREATE TABLE parted.worded (word text) PARTITION BY RANGE (word);
SELECT * FROM parted.refuse($$'parted.worded', '1 day'$$);
CREATE TABLE parted.nested (at date) PARTITION BY RANGE (at);
CREATE TABLE parted.nested_1 PARTITION OF parted.nested FOR VALUES FROM ('2026-01-01') TO ('2026-02-01') PARTITION BY LIST (at);
SELECT * FROM parted.refuse($$'parted.nested', '1 month'$$);
SELECT * FROM parted.refuse($$'parted.day', NULL$$);
SELECT r.* FROM unnest('{one,10,"",0,-1 day,1 month 1 day,1 day 1 hour,1.5 months,0.5 seconds,1001 years,1 day -1 hour,infinity}'::text[]) AS every, LATERAL parted.refuse(format($$'parted.day', %L$$, every)) AS r;
SELECT * FROM parted.refuse($$'parted.year', '12 hours'$$);
SELECT r.* FROM unnest('{1 day,0,-5,1.5,1e6,9999999999999999999}'::text[]) AS every, LATERAL parted.refuse(format($$'parted.id', %L$$, every)) AS r;
SELECT * FROM parted.refuse($$'parted.id', '1000', keep => '1 day'$$);
SELECT * FROM parted.refuse($$'parted.id', '1000', origin => 'today'$$);
SELECT r.* FROM unnest('{x,1000-01-01,2026-01-01 00:00:00.5,infinity}'::text[]) AS origin, LATERAL parted.refuse(format($$'parted.day', '1 day', origin => %L$$, origin)) AS r;
SELECT * FROM parted.refuse($$'parted.year', '1 year', origin => '2026-01-01 06:00'$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', ahead => 0$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', ahead => NULL$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', ahead => 10001$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', keep => '0'$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', keep => '2 mons -59 days'$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', keep => '1 day', partitions => 'burn'$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', partitions => NULL$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', timezone => 'Mars/Olympus'$$);
SELECT * FROM parted.refuse($$'parted.day', '1 minute', ahead => 60, name => 'too late', schedule => '0 * * * *'$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', ahead => 2, name => 'too late', schedule => '0 * * * mon-fri'$$);
SELECT * FROM parted.refuse($$'parted.day', '1 day', schedule => 'sometimes', name => 'too late'$$);
SELECT count(*) FROM sweep.job WHERE name = 'too late';
SELECT * FROM parted.refuse($$'parted.life', '1 day', keep => '2 days', partitions => 'detach'$$);
DROP INDEX parted.life_ref_at_id_idx;
SELECT * FROM parted.refuse($$'parted.life', '1 day', keep => '2 days', name => 'other'$$);
-- whose table it is
RESET ROLE;
CREATE TABLE parted.others (at timestamptz PRIMARY KEY) PARTITION BY RANGE (at);
GRANT ALL ON parted.others TO regress_sweep_parted;
SELECT replace(r::text, current_user, 'superuser') FROM parted.refuse($$'parted.others', '1 day', run_as => 'regress_sweep_parted'$$) AS r;
SELECT replace(r::text, current_user, 'superuser') FROM parted.refuse($$'parted.day', '1 day'$$) AS r;
ALTER TABLE parted.others OWNER TO regress_sweep_parted;
CREATE TABLE parted.others_child (at timestamptz REFERENCES parted.others);
CREATE INDEX ON parted.others_child (at);
SELECT * FROM parted.refuse($$'parted.others', '1 day', keep => '1 day', run_as => 'regress_sweep_parted'$$);
REVOKE CREATE ON SCHEMA parted FROM regress_sweep_parted, regress_sweep_parted_owner;
SELECT * FROM parted.refuse($$'parted.book', '1 month', run_as => 'regress_sweep_parted', name => 'book 2'$$);
GRANT CREATE ON SCHEMA parted TO regress_sweep_parted;
SELECT * FROM parted.refuse($$'parted.book', '1 month', run_as => 'regress_sweep_parted', name => 'book 2'$$);
-- a default partition of another owner is not touched, nor one whose policies hide rows
CREATE TABLE parted.others_default PARTITION OF parted.others DEFAULT;
SELECT sweep.create_partitions('parted.others', '1 day', run_as => 'regress_sweep_parted', paused => true);
SET ROLE regress_sweep_parted;
SELECT parted.run_at('partitions_others', '2026-05-05');
RESET ROLE;
ALTER TABLE parted.others_default OWNER TO regress_sweep_parted;
ALTER TABLE parted.others_default ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SET ROLE regress_sweep_parted;
SELECT parted.run_at('partitions_others', '2026-05-05');
-- nor one whose rows a rule keeps
CREATE TABLE parted.ruled (at date) PARTITION BY RANGE (at);
CREATE TABLE parted.ruled_default PARTITION OF parted.ruled DEFAULT;
INSERT INTO parted.ruled VALUES ('2026-05-05');
CREATE RULE kept AS ON DELETE TO parted.ruled_default DO INSTEAD NOTHING;
SELECT sweep.create_partitions('parted.ruled', '1 day', paused => true);
SELECT parted.run_at('partitions_ruled', '2026-05-05');
\pset format aligned
\pset tuples_only off

RESET ROLE;
SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'partitions%' OR name = 'retention_kept';
DROP SCHEMA parted CASCADE;
DROP TABLESPACE regress_sweep_parted;
DROP ROLE regress_sweep_parted, regress_sweep_reader, regress_sweep_parted_owner;
