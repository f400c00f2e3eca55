-- room: makers
-- Jobs that sweep.create_retention makes: nothing that is to be kept is deleted, and nothing else is left, in tables of all shapes.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS retention CASCADE;
CREATE SCHEMA retention;
SET timezone = 'Asia/Tokyo';
SET datestyle = 'SQL, DMY';
CREATE VIEW retention.last_run AS
	SELECT status, stop_reason AS stop, batches, rows, detail FROM sweep.runs WHERE job LIKE 'retention%' ORDER BY run_id DESC LIMIT 1;
-- A row each minute from 1 to 10 January, 10000 rows of one moment and 1500 of another, the first that is to be kept.
CREATE PROCEDURE retention.fill(name text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %s (at, tenant) SELECT timestamptz ''2026-01-01 00:00:00Z'' + interval ''1 minute'' * n, n %% 7 FROM generate_series(0, 14399) AS n', name);
	EXECUTE format('INSERT INTO %s (at, tenant) SELECT timestamptz ''2026-01-03 00:00:00Z'', n %% 7 FROM generate_series(1, 10000) AS n', name);
	EXECUTE format('INSERT INTO %s (at, tenant) SELECT timestamptz ''2026-01-06 00:00:00Z'', n %% 7 FROM generate_series(1, 1500) AS n', name);
END
$$;
CREATE FUNCTION retention.counts(name text, OUT too_old bigint, OUT kept bigint, OUT ageless bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT count(*) FILTER (WHERE at < ''2026-01-06 00:00:00Z''), count(*) FILTER (WHERE at >= ''2026-01-06 00:00:00Z''), count(*) FILTER (WHERE at IS NULL) FROM %s', name)
		INTO too_old, kept, ageless;
END
$$;
\set now '''{"as_of": "2026-01-16 00:00:00Z"}'''

-- plain: an index of nothing but the age, rows without one, for ever, since ever
CREATE TABLE retention.plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz, tenant int);
CALL retention.fill('retention.plain');
INSERT INTO retention.plain (at) SELECT NULL FROM generate_series(1, 100);
INSERT INTO retention.plain (at) VALUES ('infinity'), ('-infinity');
CREATE INDEX ON retention.plain (at);
SELECT sweep.create_retention('retention.plain', 'at', '10 days');
-- by the index, also in a table of few rows; what triggers execute is planned as ever
CREATE FUNCTION retention.look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM pg_settings WHERE name ~ '^enable_' AND setting <> boot_val) THEN
		RAISE EXCEPTION 'planned in another way';
	END IF;
	RETURN OLD;
END
$$;
CREATE TRIGGER look BEFORE DELETE ON retention.plain FOR EACH ROW WHEN (OLD.at < '2026-01-01 02:00Z') EXECUTE FUNCTION retention.look();
SELECT rows, plan ~ 'Index.* Scan using plain_at_idx on plain' AS by_index, plan ~ 'Seq Scan|Bitmap|Sort|pg_index' AS otherwise FROM sweep.preview('retention_plain', :now);
SELECT name, schedule, timezone, step, args, cursor, batch_size, overlap FROM sweep.job WHERE name = 'retention_plain';
CALL sweep.run('retention_plain', :now);
SELECT * FROM retention.last_run;
SELECT * FROM retention.counts('retention.plain');
CALL sweep.run('retention_plain', :now);
SELECT * FROM retention.last_run;
SELECT sweep.alter_job('retention_plain', jsonb_build_object('args', args || '{"keep": "9 days"}', 'batch_size', 300)) FROM sweep.job WHERE name = 'retention_plain';
CALL sweep.run('retention_plain', :now);
SELECT detail, (SELECT min(at) FROM retention.plain) FROM retention.last_run;

-- indexes of all kinds: that tell all rows apart or do not, upwards, downwards, nulls first or last, more than one
CREATE TABLE retention.ordered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz, tenant int, n int NOT NULL DEFAULT 3);
CREATE PROCEDURE retention.order_by(VARIADIC indexes text[]) LANGUAGE plpgsql AS $$
DECLARE
	index text;
BEGIN
	FOR index IN SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'retention.ordered'::regclass AND NOT indisprimary LOOP
		EXECUTE 'DROP INDEX ' || index;
	END LOOP;
	TRUNCATE retention.ordered;
	CALL retention.fill('retention.ordered');
	FOREACH index IN ARRAY indexes LOOP
		EXECUTE 'CREATE INDEX ON retention.ordered ' || index;
	END LOOP;
END
$$;
\set try 'CALL sweep.run(''retention_ordered'', ' :now '); SELECT j.cursor ->> ''by'' AS by, r.*, c.* FROM retention.last_run r, retention.counts(''retention.ordered'') c, (SELECT cursor FROM sweep.runs WHERE job = ''retention_ordered'' ORDER BY run_id DESC LIMIT 1) j'
CALL retention.order_by('(at, id)');
SELECT sweep.create_retention('retention.ordered', 'at', '10 days', batch_size => 700);
:try;
CALL retention.order_by('(at DESC, id DESC)');
:try;
CALL retention.order_by('(at NULLS FIRST, id NULLS FIRST)');
:try;
CALL retention.order_by('(at DESC NULLS LAST)');
:try;
-- not by what may be null, or in two directions; by the better one of two
CALL retention.order_by('(at, tenant)');
:try;
CALL retention.order_by('(at, id DESC)');
:try;
CALL retention.order_by('(at)', '(at, n)');
:try;
CALL retention.order_by('(at, n)', '(at, n, id)', '(at, id)');
:try;
SELECT sweep.alter_job('retention_ordered', '{"batch_size": 1, "max_rows": 50}');
CALL retention.order_by('(at)');
:try;
-- where a limit has stopped one run the next one goes on, unless another index has taken the place of that one
SELECT sweep.alter_job('retention_ordered', '{"batch_size": 600, "max_rows": 12000}');
:try;
CALL sweep.run('retention_ordered', :now);
SELECT * FROM retention.counts('retention.ordered');
CALL retention.order_by('(at)');
CALL sweep.run('retention_ordered', :now);
DROP INDEX retention.ordered_at_idx;
CREATE INDEX ON retention.ordered (at, id);
SELECT sweep.alter_job('retention_ordered', '{"max_rows": null}');
:try;

-- partitioned by age, and by something else
CREATE TABLE retention.by_age (id bigint GENERATED BY DEFAULT AS IDENTITY, at timestamptz NOT NULL, tenant int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
CREATE TABLE retention.by_age_1 PARTITION OF retention.by_age FOR VALUES FROM ('2026-01-01 00:00:00Z') TO ('2026-01-03 00:00:00Z');
CREATE TABLE retention.by_age_2 PARTITION OF retention.by_age FOR VALUES FROM ('2026-01-03 00:00:00Z') TO ('2026-01-06 00:00:00Z');
CREATE TABLE retention.by_age_3 PARTITION OF retention.by_age FOR VALUES FROM ('2026-01-06 00:00:00Z') TO ('2026-01-08 00:00:00Z');
CREATE TABLE retention.by_age_rest PARTITION OF retention.by_age DEFAULT;
CALL retention.fill('retention.by_age');
SELECT sweep.create_retention('retention.by_age', 'at', '10 days');
-- partitions in which nothing is too old are not looked at
SELECT rows, plan ~ 'Scan using by_age_1_pkey' AS old, plan ~ 'Scan using by_age_3_pkey' AS young FROM sweep.preview('retention_by_age', :now);
CALL sweep.run('retention_by_age', :now);
SELECT * FROM retention.last_run, retention.counts('retention.by_age');
CREATE TABLE retention.by_tenant (id bigint, at timestamptz, tenant int) PARTITION BY HASH (tenant);
SELECT format('CREATE TABLE retention.by_tenant_%s PARTITION OF retention.by_tenant FOR VALUES WITH (MODULUS 3, REMAINDER %s)', n, n) FROM generate_series(0, 2) AS n \gexec
CALL retention.fill('retention.by_tenant');
INSERT INTO retention.by_tenant (tenant) SELECT generate_series(1, 100);
CREATE INDEX ON retention.by_tenant (at);
SELECT sweep.create_retention('retention.by_tenant', 'at', '10 days');
-- one after the other, each by an index of its own; in a batch only rows of one of them
SELECT rows, cursor ->> 'part' AS part, plan ~ 'Append' AS together, plan ~ 'Seq Scan|Bitmap|Sort \(' AS otherwise FROM sweep.preview('retention_by_tenant', :now);
CALL sweep.run('retention_by_tenant', :now);
SELECT * FROM retention.last_run, retention.counts('retention.by_tenant');
-- one is gone, another one has come, and those that were done are full again, while the cursor is within the second
CALL retention.fill('retention.by_tenant');
SELECT sweep.alter_job('retention_by_tenant', '{"max_rows": 9000}');
CALL sweep.run('retention_by_tenant', :now);
SELECT r.rows, s.cursor ->> 'part' AS part FROM retention.last_run r, sweep.runs s WHERE s.job = 'retention_by_tenant' ORDER BY s.run_id DESC LIMIT 1;
ALTER TABLE retention.by_tenant DETACH PARTITION retention.by_tenant_1;
ALTER TABLE retention.by_tenant_1 RENAME TO by_tenant_9;
ALTER TABLE retention.by_tenant ATTACH PARTITION retention.by_tenant_9 FOR VALUES WITH (MODULUS 3, REMAINDER 1);
SELECT sweep.alter_job('retention_by_tenant', '{"max_rows": null}');
CALL sweep.run('retention_by_tenant', :now);
SELECT too_old, kept FROM retention.counts('retention.by_tenant');
-- all together where a trigger looks at the statement, or the role may not touch the partitions themselves
CREATE FUNCTION retention.note_statement() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM count(*) FROM gone; RETURN NULL; END $$;
CREATE TRIGGER note AFTER DELETE ON retention.by_tenant REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION retention.note_statement();
CALL retention.fill('retention.by_tenant');
SELECT rows, cursor, plan ~ 'Merge Append' AS together, plan ~ 'Seq Scan|Bitmap|Sort \(' AS otherwise FROM sweep.preview('retention_by_tenant', :now);
CALL sweep.run('retention_by_tenant', :now);
SELECT *, too_old FROM retention.last_run, retention.counts('retention.by_tenant');
DROP TRIGGER note ON retention.by_tenant;
CREATE ROLE regress_sweep_retention LOGIN IN ROLE sweep_user;
SELECT sweep._parts('retention.by_tenant', 'at', 'regress_sweep_retention'::regrole, 'timestamptz', 'infinity', 'DELETE', NULL);
GRANT USAGE ON SCHEMA retention TO regress_sweep_retention;
GRANT SELECT, DELETE ON retention.by_tenant, retention.by_tenant_0, retention.by_tenant_2, retention.by_tenant_9 TO regress_sweep_retention;
SELECT sweep._parts('retention.by_tenant', 'at', 'regress_sweep_retention'::regrole, 'timestamptz', 'infinity', 'DELETE', NULL);
ALTER TABLE retention.by_tenant_2 ENABLE ROW LEVEL SECURITY;
SELECT sweep._parts('retention.by_tenant', 'at', 'regress_sweep_retention'::regrole, 'timestamptz', 'infinity', 'DELETE', NULL);
ALTER TABLE retention.by_tenant_2 DISABLE ROW LEVEL SECURITY;
REVOKE DELETE ON retention.by_tenant_2 FROM regress_sweep_retention;
SELECT sweep._parts('retention.by_tenant', 'at', 'regress_sweep_retention'::regrole, 'timestamptz', 'infinity', 'DELETE', NULL);
SELECT sweep._parts('retention.by_age', 'at', 10, 'timestamptz', '2026-01-05 23:59:59Z', 'DELETE', NULL), sweep._parts('retention.by_age', 'at', 10, 'timestamptz', '2026-01-06 00:00:00.000001Z', 'DELETE', NULL);

-- what is wholly too old is dropped: not what has the moment itself, the rest is deleted
TRUNCATE retention.by_age;
CREATE TABLE retention.by_age_0 PARTITION OF retention.by_age FOR VALUES FROM (MINVALUE) TO ('2026-01-01 00:00:00Z');
INSERT INTO retention.by_age (at) VALUES ('2025-06-01Z'), ('1999-01-01Z');
CALL retention.fill('retention.by_age');
SELECT sweep.create_retention('retention.by_age', 'at', '10 days', partitions => 'drop', name => 'retention drops');
CALL sweep.run('retention drops', '{"as_of": "2026-01-15 23:59:59.999999Z"}');
SELECT * FROM retention.last_run, retention.counts('retention.by_age');
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'retention'::regnamespace AND c.relname LIKE 'by\_age\__' AND c.relkind = 'r' ORDER BY 1;
CALL sweep.run('retention drops', :now);
SELECT * FROM retention.last_run, retention.counts('retention.by_age');
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'retention'::regnamespace AND c.relname LIKE 'by\_age\__' AND c.relkind = 'r' ORDER BY 1;

-- bounds of two columns, in days
CREATE TABLE retention.by_day (day date NOT NULL, tenant int NOT NULL, PRIMARY KEY (day, tenant)) PARTITION BY RANGE (day, tenant);
CREATE TABLE retention.by_day_1 PARTITION OF retention.by_day FOR VALUES FROM ('2026-01-01', 0) TO ('2026-01-05', 0);
CREATE TABLE retention.by_day_2 PARTITION OF retention.by_day FOR VALUES FROM ('2026-01-05', 0) TO ('2026-01-06', 5);
CREATE TABLE retention.by_day_3 PARTITION OF retention.by_day FOR VALUES FROM ('2026-01-06', 5) TO ('2026-01-09', MAXVALUE);
INSERT INTO retention.by_day SELECT date '2026-01-01' + d, t FROM generate_series(0, 7) AS d, generate_series(0, 9) AS t;
SELECT sweep.create_retention('retention.by_day', 'day', '10 days', partitions => 'drop');
CALL sweep.run('retention_by_day', :now);
SELECT * FROM retention.last_run;
SELECT tableoid::regclass, min(day), max(day), count(*) FROM retention.by_day GROUP BY 1 ORDER BY 1;
-- sooner in a zone where it is later, and never before a day is over
SELECT sweep.create_retention('retention.by_day', 'day', '10 days', timezone => 'Pacific/Kiritimati', name => 'retention in another zone');
CALL sweep.run('retention in another zone', '{"as_of": "2026-01-16 09:59:59Z"}');
SELECT min(day) FROM retention.by_day;
CALL sweep.run('retention in another zone', '{"as_of": "2026-01-16 10:00:00Z"}');
SELECT min(day) FROM retention.by_day;
-- without a zone: of the job's, not of the session's; days of a zone are as long as they are there
CREATE DOMAIN retention.instant AS timestamp;
CREATE DOMAIN retention.moment AS retention.instant;
CREATE TABLE retention.local (at retention.moment);
CREATE INDEX ON retention.local (at);
INSERT INTO retention.local SELECT '2026-03-28 00:00'::timestamp + interval '1 hour' * n FROM generate_series(0, 71) AS n;
SELECT sweep.create_retention('retention.local', 'at', '1 day', timezone => 'Europe/Berlin');
CALL sweep.run('retention_local', '{"as_of": "2026-03-29 22:00:00Z"}');
SELECT min(at) FROM retention.local;
ALTER TABLE retention.local ALTER at TYPE timestamptz USING at AT TIME ZONE 'Europe/Berlin';
INSERT INTO retention.local VALUES ('2026-03-28 23:00:00Z'), ('2026-03-28 22:59:59Z');
CALL sweep.run('retention_local', '{"as_of": "2026-03-29 22:00:00Z"}');
SELECT min(at) AT TIME ZONE 'UTC' AS min FROM retention.local;

-- only what meets a condition, whatever is written in it
CREATE TABLE retention."Odd ""name" (id int PRIMARY KEY, "the at" timestamptz, state text);
CREATE INDEX ON retention."Odd ""name" ("the at");
INSERT INTO retention."Odd ""name" SELECT n, '2026-01-01Z'::timestamptz + interval '1 hour' * n, (ARRAY['done', 'open', NULL])[n % 3 + 1] FROM generate_series(1, 90) AS n;
SELECT sweep.create_retention('retention."Odd ""name"', 'the at', '10 days', batch_size => 10, condition => 'state = ''done'' OR id = 1 -- and nothing else');
CALL sweep.run('retention_Odd "name', :now);
SELECT * FROM retention.last_run;
SELECT state, count(*) FROM retention."Odd ""name" GROUP BY state ORDER BY state;
SELECT rows, cursor FROM sweep.preview('retention_Odd "name', '{"as_of": "2026-02-01Z", "condition": "id < 70"}');

-- moved to another table: of other order, with a column more, an identity and something generated there
CREATE TABLE retention.source (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gone int, at timestamptz, tenant int, twice int GENERATED ALWAYS AS (tenant * 2) STORED);
ALTER TABLE retention.source DROP COLUMN gone;
CREATE TABLE retention.archive (tenant int, twice int, archived boolean NOT NULL DEFAULT true, at timestamptz, id bigint GENERATED ALWAYS AS IDENTITY);
CALL retention.fill('retention.source');
CREATE INDEX ON retention.source (at);
SELECT sweep.create_retention('retention.source', 'at', '10 days', archive_to => 'retention.archive');
CREATE TABLE retention.before AS SELECT * FROM retention.source;
CALL sweep.run('retention_source', :now);
SELECT * FROM retention.last_run, retention.counts('retention.source');
SELECT count(*), count(DISTINCT id), bool_and(archived), max(at) < '2026-01-06 00:00:00Z' AS old FROM retention.archive;
SELECT count(*) FROM (SELECT id, at, tenant, twice FROM retention.before EXCEPT (SELECT id, at, tenant, twice FROM retention.source UNION ALL SELECT id, at, tenant, twice FROM retention.archive)) AS lost;
-- a column that has come since is not lost
ALTER TABLE retention.source ADD COLUMN note text;
INSERT INTO retention.source (at, note) VALUES ('2026-01-01Z', 'keep me');
\set VERBOSITY sqlstate
CALL sweep.run('retention_source', :now);
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'retention_source' ORDER BY run_id DESC LIMIT 1;
ALTER TABLE retention.archive ADD COLUMN note text;
CALL sweep.run('retention_source', :now);
SELECT note FROM retention.archive WHERE note IS NOT NULL;
-- a crash would empty it
ALTER TABLE retention.archive SET UNLOGGED;
\set VERBOSITY sqlstate
CALL sweep.run('retention_source', :now);
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'retention_source' ORDER BY run_id DESC LIMIT 1;
SELECT sweep.create_retention('retention.source', 'at', '10 days', archive_to => 'retention.archive', name => 'retention to an unlogged one');
ALTER TABLE retention.archive SET LOGGED;
-- nor do rows go to a table of the session, or without the columns of a table that inherits, or to be generated anew
CREATE TEMPORARY TABLE session_archive (LIKE retention.archive);
CREATE TABLE retention.generating (LIKE retention.source);
ALTER TABLE retention.generating DROP note, ADD note text GENERATED ALWAYS AS ('generated') STORED;
CREATE TABLE retention.heir (more text) INHERITS (retention.source);
INSERT INTO retention.heir (id, at, more) VALUES (9001, '2020-01-01Z', 'only here');
\set VERBOSITY sqlstate
CALL sweep.run('retention_source', :now);
ALTER TABLE retention.heir NO INHERIT retention.source;
CALL sweep.run('retention_source', jsonb :now || '{"archive_to": "pg_temp.session_archive"}');
CALL sweep.run('retention_source', jsonb :now || '{"archive_to": "retention.generating"}');
CALL sweep.run('retention_source', jsonb :now || '{"keep": null}');
\set VERBOSITY default
SELECT error FROM sweep.runs WHERE job = 'retention_source' ORDER BY run_id DESC LIMIT 4;
TABLE retention.heir;

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'retention%' ORDER BY name;
DELETE FROM sweep.run_live WHERE job LIKE 'retention%';
DELETE FROM sweep.run_history WHERE job LIKE 'retention%';
DROP SCHEMA retention CASCADE;
DROP ROLE regress_sweep_retention;
