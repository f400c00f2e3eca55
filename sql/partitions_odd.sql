-- room: makers
-- Partitions of zones in which midnight comes twice, of tables whose rows policies hide, of a few rows that are large, on another server, and without the default partition that was being emptied.
\set SHOW_CONTEXT never
-- the error of a run is shown by odd.last, without its number
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET timezone = 'UTC';
SET datestyle = 'ISO, MDY';
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS odd CASCADE;
CREATE SCHEMA odd;
CREATE ROLE regress_sweep_odd LOGIN IN ROLE sweep_user;
GRANT CREATE, USAGE ON SCHEMA odd TO regress_sweep_odd;
CREATE FUNCTION odd.last(job text) RETURNS TABLE (status text, detail jsonb, error text) LANGUAGE sql AS $$
	SELECT status, detail, regexp_replace(error, E'\nCONTEXT.*', '') FROM sweep.runs WHERE runs.job = last.job ORDER BY run_id DESC LIMIT 1
$$;

-- ---------------------------------------------------------------- midnight comes twice
-- each range begins with its own number, and ends before the next one; Apia had no 30 December 2011
SELECT zone, every, count(*), count(*) FILTER (WHERE sweep._grid_place('timestamp with time zone', z.args, b.bound) <> n) AS other_place,
		count(*) FILTER (WHERE sweep._grid_place('timestamp with time zone', z.args, (b.bound::timestamptz - interval '30 min')::text) <> n - 1) AS other_before
	FROM unnest('{Atlantic/Azores,America/Havana,America/Sao_Paulo,Africa/Cairo,Australia/Lord_Howe,Pacific/Apia}'::text[]) AS zone, unnest('{1 day,1 mon}'::text[]) AS every,
		LATERAL (SELECT jsonb_build_object('every', every, 'origin', '2001-01-01 00:00:00', 'timezone', zone) AS args) AS z,
		generate_series(sweep._grid_place('timestamp with time zone', z.args, '2011-01-15Z'), sweep._grid_place('timestamp with time zone', z.args, '2012-12-15Z')) AS n,
		LATERAL sweep._grid_bound('timestamp with time zone', z.args, n) AS b
	GROUP BY zone, every ORDER BY zone COLLATE "C", every;
-- more rows than a batch may have are of the first hour, in the default partition alone
CREATE TABLE odd.twice (at timestamptz NOT NULL, id int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
CREATE TABLE odd.twice_rest PARTITION OF odd.twice DEFAULT;
INSERT INTO odd.twice SELECT '2025-10-26 00:10Z', n FROM generate_series(1, 30) AS n;
INSERT INTO odd.twice SELECT now(), n FROM generate_series(1, 30) AS n;
SELECT sweep.create_partitions('odd.twice', '1 day', ahead => 1, timezone => 'Atlantic/Azores', batch_size => 20, paused => true);
SELECT sweep.start('partitions_twice') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, detail ->> 'copied' AS copied, error FROM odd.last('partitions_twice');
SELECT tableoid::regclass AS part, count(*) FROM odd.twice WHERE at < '2026-01-01' GROUP BY 1;

-- ---------------------------------------------------------------- policies
-- the greatest id is not seen
CREATE TABLE odd.hidden (id bigint NOT NULL, tenant int) PARTITION BY RANGE (id);
CREATE TABLE odd.hidden_0 PARTITION OF odd.hidden FOR VALUES FROM (0) TO (100);
INSERT INTO odd.hidden VALUES (5, 1), (95, 2);
ALTER TABLE odd.hidden OWNER TO regress_sweep_odd;
ALTER TABLE odd.hidden_0 OWNER TO regress_sweep_odd;
ALTER TABLE odd.hidden_0 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY one ON odd.hidden_0 USING (tenant = 1);
SELECT sweep.create_partitions('odd.hidden', '50', ahead => 2, run_as => 'regress_sweep_odd', paused => true);
SELECT sweep.start('partitions_hidden') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT * FROM odd.last('partitions_hidden');
ALTER TABLE odd.hidden_0 NO FORCE ROW LEVEL SECURITY;
SELECT sweep.start('partitions_hidden') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT * FROM odd.last('partitions_hidden');
-- a row that refers to an old partition is not seen, neither by PostgreSQL
CREATE TABLE odd.event (at timestamptz PRIMARY KEY) PARTITION BY RANGE (at);
CREATE TABLE odd.event_old PARTITION OF odd.event FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
CREATE TABLE odd.note (at timestamptz REFERENCES odd.event, tenant int);
CREATE INDEX ON odd.note (at);
INSERT INTO odd.event VALUES ('2020-06-01');
INSERT INTO odd.note VALUES ('2020-06-01', 2);
ALTER TABLE odd.event OWNER TO regress_sweep_odd;
ALTER TABLE odd.event_old OWNER TO regress_sweep_odd;
ALTER TABLE odd.note OWNER TO regress_sweep_odd;
ALTER TABLE odd.note ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY one ON odd.note USING (tenant = 1);
SELECT sweep.create_partitions('odd.event', '1 year', ahead => 1, keep => '1 year', run_as => 'regress_sweep_odd', paused => true);
SELECT sweep.start('partitions_event') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, error FROM odd.last('partitions_event');
SELECT count(*) FROM odd.event;
ALTER TABLE odd.note NO FORCE ROW LEVEL SECURITY;
SELECT sweep.start('partitions_event') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT * FROM odd.last('partitions_event');
SELECT count(*) FROM odd.event;

-- ---------------------------------------------------------------- large rows
CREATE TABLE odd.large (at timestamptz NOT NULL, doc text) PARTITION BY RANGE (at);
CREATE TABLE odd.large_rest PARTITION OF odd.large DEFAULT;
ALTER TABLE odd.large_rest ALTER doc SET STORAGE EXTERNAL;
INSERT INTO odd.large SELECT now() + interval '1 hour', repeat('x', 60000000) FROM generate_series(1, 5);
SELECT sweep.create_partitions('odd.large', '1 year', ahead => 1, paused => true);
SELECT sweep.start('partitions_large') AS run_id \gset
CALL sweep.wait(:run_id, '1 min');
SELECT status, detail ? 'moved' AS moved, detail ? 'exchanged' AS exchanged, error FROM odd.last('partitions_large');

-- ---------------------------------------------------------------- a default partition that was being emptied is detached, and the job dropped
CREATE TABLE odd.sides (at timestamptz NOT NULL, id int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
CREATE TABLE odd.sides_rest PARTITION OF odd.sides DEFAULT;
CREATE TABLE odd.sides_2001 PARTITION OF odd.sides FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
INSERT INTO odd.sides SELECT timestamptz '2000-06-01' + interval '2 years' * (n % 2), n FROM generate_series(1, 20) AS n;
SELECT sweep.create_partitions('odd.sides', '1 year', ahead => 1, batch_size => 2, max_batches => 4, paused => true);
CALL sweep.run('partitions_sides');
SELECT relname FROM pg_class WHERE relnamespace = 'odd'::regnamespace AND relkind IN ('r', 'p') AND relname ~ '_sweep_' ORDER BY relname COLLATE "C";
ALTER TABLE odd.sides DETACH PARTITION odd.sides_rest;
SELECT sweep.drop_job('partitions_sides');
SELECT relname FROM pg_class WHERE relnamespace = 'odd'::regnamespace AND relname ~ '_sweep_' UNION ALL SELECT tgname FROM pg_trigger WHERE tgrelid = 'odd.sides_rest'::regclass;

-- ---------------------------------------------------------------- foreign tables that are too old; these cannot be read
CREATE FOREIGN DATA WRAPPER regress_sweep_odd;
CREATE SERVER regress_sweep_odd FOREIGN DATA WRAPPER regress_sweep_odd;
CREATE TABLE odd.afar (at timestamptz NOT NULL) PARTITION BY RANGE (at);
CREATE FOREIGN TABLE odd.afar_1 PARTITION OF odd.afar FOR VALUES FROM ('2001-01-01') TO ('2002-01-01') SERVER regress_sweep_odd;
CREATE TABLE odd.afar_2 PARTITION OF odd.afar FOR VALUES FROM ('2002-01-01') TO ('2003-01-01');
CREATE FOREIGN TABLE odd.afar_3 PARTITION OF odd.afar FOR VALUES FROM ('2003-01-01') TO ('2004-01-01') SERVER regress_sweep_odd;
CREATE TABLE odd.afar_0 PARTITION OF odd.afar FOR VALUES FROM ('2000-01-01') TO ('2001-01-01') PARTITION BY LIST (at);
CREATE FOREIGN TABLE odd.afar_0_0 PARTITION OF odd.afar_0 DEFAULT SERVER regress_sweep_odd;
CREATE INDEX ON odd.afar (at);
-- a retention has to delete the rows that are there
SELECT sweep.create_retention('odd.afar', 'at', '1 year', partitions => 'drop', name => 'partitions_kept', paused => true);
CALL sweep.run('partitions_kept');
SELECT * FROM odd.last('partitions_kept');
DROP TABLE odd.afar_0;
SELECT sweep.create_partitions('odd.afar', '1 year', ahead => 1, keep => '1 year', paused => true);
SELECT sweep.alter_job('partitions_afar', jsonb_build_object('args', args || '{"partitions": "detach"}')) FROM sweep.job WHERE name = 'partitions_afar';
CALL sweep.run('partitions_afar');
SELECT status, detail - 'made' AS detail, jsonb_array_length(detail -> 'made') AS made, error FROM odd.last('partitions_afar');
ALTER TABLE odd.afar ATTACH PARTITION odd.afar_1 FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
SELECT sweep.alter_job('partitions_afar', jsonb_build_object('args', args || '{"partitions": "drop"}')) FROM sweep.job WHERE name = 'partitions_afar';
CALL sweep.run('partitions_afar');
SELECT * FROM odd.last('partitions_afar');
SELECT relname, relkind FROM pg_class WHERE relnamespace = 'odd'::regnamespace AND relname ~ '^afar_.$' ORDER BY relname COLLATE "C";

-- ---------------------------------------------------------------- args and names that mean something else since the job was made
CREATE TABLE odd.kept (at timestamptz NOT NULL, read_at timestamptz) PARTITION BY RANGE (at);
CREATE TABLE odd.kept_1 PARTITION OF odd.kept FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
CREATE INDEX ON odd.kept (at);
CREATE INDEX ON odd.kept (read_at);
INSERT INTO odd.kept VALUES ('2001-02-01', now());
SELECT sweep.create_retention('odd.kept', 'at', '1 year', condition => 'read_at IS NULL', name => 'partitions_condition', paused => true);
SELECT sweep.alter_job('partitions_condition', jsonb_build_object('args', args || '{"partitions": "drop"}')) FROM sweep.job WHERE name = 'partitions_condition';
CALL sweep.run('partitions_condition');
SELECT count(*) FROM odd.kept;
SELECT sweep.create_retention('odd.kept', 'at', '1 year', partitions => 'drop', name => 'partitions_exchanged', paused => true);
ALTER TABLE odd.kept RENAME at TO written_at;
ALTER TABLE odd.kept RENAME read_at TO at;
SELECT sweep.create_retention('odd.kept', 'at', '1 year', name => 'partitions_keep', paused => true);
CALL sweep.run('partitions_exchanged');
CALL sweep.run('partitions_keep', '{"keep": "-1 year"}');
CALL sweep.run('partitions_keep', '{"cascade": "batch"}');
CALL sweep.run('partitions_keep', '{"cascade": null}');
SELECT count(*) FROM odd.kept;

-- ---------------------------------------------------------------- a foreign key that has come since: what it refers to is kept
CREATE TABLE odd.named (at date, id int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
CREATE TABLE odd.named_1 PARTITION OF odd.named FOR VALUES FROM ('2001-01-01') TO ('2002-01-01');
CREATE TABLE odd.named_2 PARTITION OF odd.named FOR VALUES FROM ('2002-01-01') TO ('2003-01-01');
INSERT INTO odd.named VALUES ('2001-02-01', 1), ('2002-02-01', 2);
SELECT sweep.create_retention('odd.named', 'at', '1 year', partitions => 'drop', name => 'partitions_named', paused => true);
CREATE TABLE odd.naming (at date, id int, FOREIGN KEY (at, id) REFERENCES odd.named);
CREATE INDEX ON odd.naming (at, id);
INSERT INTO odd.naming VALUES ('2002-02-01', 2);
CALL sweep.run('partitions_named');
SELECT detail FROM sweep.runs WHERE job = 'partitions_named';

SELECT count(sweep.drop_job(name)) FROM sweep.job WHERE name LIKE 'partitions%';
DELETE FROM sweep.run_live WHERE job LIKE 'partitions%';
DELETE FROM sweep.run_history WHERE job LIKE 'partitions%';
DROP SCHEMA odd CASCADE;
DROP FOREIGN DATA WRAPPER regress_sweep_odd CASCADE;
DROP ROLE regress_sweep_odd;
