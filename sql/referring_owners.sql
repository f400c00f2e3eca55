-- room: makers
-- A retention where tables of other roles refer to the target: what these have in such a table (a policy, an expression of an
-- index, a cast of their own type) is executed as they and never as the role of the job, be it a superuser; and nothing
-- that it sets stays. What is referred to is kept all the same.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
CREATE ROLE regress_sweep_app LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_job LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_mallory LOGIN IN ROLE sweep_user;
CREATE ROLE regress_sweep_bob LOGIN;
CREATE SCHEMA referred AUTHORIZATION regress_sweep_app;
CREATE SCHEMA mal AUTHORIZATION regress_sweep_mallory;
CREATE SCHEMA bob AUTHORIZATION regress_sweep_bob;
CREATE SCHEMA referring_job AUTHORIZATION regress_sweep_job;
SELECT current_user AS superuser \gset
CREATE TABLE public.referring_seen (what text, as_whom text, path text);
GRANT INSERT ON public.referring_seen TO PUBLIC;
CREATE VIEW public.referring_run AS SELECT status, rows, detail, error FROM sweep.runs WHERE job LIKE 'referred%' ORDER BY run_id DESC LIMIT 1;
\set now '''{"as_of": "2026-01-12 09:20:00Z"}'''

\c - regress_sweep_app
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE TABLE referred.customer (id int PRIMARY KEY, at timestamptz);
CREATE INDEX ON referred.customer (at);
INSERT INTO referred.customer SELECT n, '2026-01-01Z' FROM generate_series(1, 200) AS n;
-- Whoever may refer to the table need not be able to read it.
GRANT USAGE ON SCHEMA referred TO regress_sweep_mallory, regress_sweep_bob, regress_sweep_job;
GRANT REFERENCES ON referred.customer TO regress_sweep_mallory, regress_sweep_bob;
GRANT SELECT, DELETE ON referred.customer TO regress_sweep_job;

-- ---------------------------------------------------------------- what mallory can put into such a table
\c - regress_sweep_mallory
SET client_min_messages = warning;
GRANT USAGE ON SCHEMA mal TO PUBLIC;
CREATE FUNCTION mal.note(what text) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog AS $$
	BEGIN INSERT INTO public.referring_seen VALUES (what, current_user); RETURN true; END $$;
CREATE FUNCTION mal.caught(what text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	-- A name that is found where the role of the job has put something, and nowhere else.
	BEGIN
		PERFORM careless();
	EXCEPTION WHEN undefined_function THEN NULL;
	END;
	PERFORM mal.note(what), pg_catalog.set_config('search_path', 'mal', false), pg_catalog.set_config('DateStyle', 'German', false);
	BEGIN
		PERFORM pg_catalog.set_config('role', 'none', false);
		PERFORM mal.note('role set');
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
	RETURN true;
END $$;
CREATE TYPE mal.number AS (v int);
-- FROM: what is planned as a simple expression and sets the search_path meets an assertion of PostgreSQL.
CREATE FUNCTION mal.to_int(mal.number) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM mal.caught('cast') FROM generate_series(1, 1); RETURN $1.v; END $$;
CREATE CAST (mal.number AS int) WITH FUNCTION mal.to_int(mal.number) AS IMPLICIT;
CREATE DOMAIN mal.checked AS int CHECK (mal.caught('domain'));
CREATE TABLE mal.bill (customer_id mal.checked REFERENCES referred.customer, other boolean DEFAULT mal.caught('default'),
	made boolean GENERATED ALWAYS AS (mal.caught('generated')) STORED, CHECK (mal.caught('check')), CHECK (customer_id > 0 AND mal.caught('check')));
CREATE INDEX ON mal.bill (customer_id);
CREATE INDEX ON mal.bill ((mal.caught('index')));
CREATE INDEX ON mal.bill (customer_id) WHERE mal.caught('predicate');
CREATE STATISTICS mal.of_bill ON (mal.caught('statistics')), customer_id FROM mal.bill;
CREATE POLICY reads ON mal.bill USING (mal.caught('policy'));
ALTER TABLE mal.bill ENABLE ROW LEVEL SECURITY;
ALTER TABLE mal.bill FORCE ROW LEVEL SECURITY;
INSERT INTO mal.bill SELECT n FROM generate_series(1, 200, 2) AS n;
CREATE TABLE mal.odd (customer_id mal.number REFERENCES referred.customer);
CREATE INDEX ON mal.odd (customer_id);
INSERT INTO mal.odd SELECT ROW(n)::mal.number FROM generate_series(2, 200, 20) AS n;

-- ---------------------------------------------------------------- a job of the owner, of another role, of a superuser
\c - :superuser
SET client_min_messages = warning;
TRUNCATE public.referring_seen;
GRANT USAGE ON SCHEMA mal TO regress_sweep_job;
\c - regress_sweep_job
SET client_min_messages = warning;
SET timezone = 'UTC';
-- The role may not read what refers to the table, and need not.
SELECT sweep.create_retention('referred.customer', 'at', '10 days', name => 'referred by another role', batch_size => 50);
GRANT USAGE ON SCHEMA referring_job TO PUBLIC;
SET search_path = referring_job;
SET constraint_exclusion = on;
CREATE FUNCTION careless() RETURNS void LANGUAGE sql AS $$ INSERT INTO public.referring_seen VALUES ('careless', current_user) $$;
SHOW search_path;
SET client_min_messages = warning;
CALL sweep.run('referred by another role', :now);
\c - :superuser
SET client_min_messages = warning;
SELECT * FROM public.referring_run;
SELECT count(*), count(*) FILTER (WHERE id % 2 = 1) AS billed, count(*) FILTER (WHERE id % 20 = 2) AS odd FROM referred.customer;
SELECT DISTINCT as_whom FROM public.referring_seen;

-- Of what is executed as another role a preview shows how long it took.
INSERT INTO referred.customer SELECT n, '2026-01-01Z' FROM generate_series(1, 200) AS n ON CONFLICT DO NOTHING;
\c - regress_sweep_job
SELECT rows, plan ~ 'rights of role "regress_sweep_mallory"' AS asked, plan ~ 'mal\.|Anti Join' AS shown FROM sweep.preview('referred by another role', :now);
SET client_min_messages = warning;
CALL sweep.run('referred by another role', :now);
\c - :superuser
SET client_min_messages = warning;

-- All are referred to: nothing is deleted, PostgreSQL asks nothing. What we ask leaves nothing behind, and finds nothing in the path of the job.
TRUNCATE public.referring_seen;
SET search_path = referring_job;
SET constraint_exclusion = on;
SELECT sweep.create_retention('referred.customer', 'at', '10 days', name => 'referred of a superuser', batch_size => 50);
SET client_min_messages = warning;
CALL sweep.run('referred of a superuser', :now);
SHOW search_path;
SHOW datestyle;
SELECT * FROM public.referring_run;
SELECT DISTINCT as_whom, what IN ('careless', 'policy', 'role set') AS wrong FROM public.referring_seen;
\c - regress_sweep_app
SET client_min_messages = warning;
SELECT sweep.create_retention('referred.customer', 'at', '10 days', name => 'referred of the owner', batch_size => 50);
SET client_min_messages = warning;
CALL sweep.run('referred of the owner', :now);

-- ---------------------------------------------------------------- chains: each table as its owner
INSERT INTO referred.customer SELECT n, '2026-01-01Z' FROM generate_series(1, 200) AS n ON CONFLICT DO NOTHING;
\c - regress_sweep_mallory
SET client_min_messages = warning;
DROP TABLE mal.odd, mal.bill;
CREATE TABLE mal.note (id int PRIMARY KEY, customer_id int REFERENCES referred.customer ON DELETE CASCADE);
CREATE INDEX ON mal.note (customer_id);
CREATE INDEX ON mal.note ((mal.caught('index of note')));
INSERT INTO mal.note SELECT n, (n + 1) / 2 FROM generate_series(1, 400) AS n;
GRANT USAGE ON SCHEMA mal TO regress_sweep_bob;
GRANT REFERENCES ON mal.note TO regress_sweep_bob;
-- one that refers to itself goes, one to which another note refers stays
ALTER TABLE mal.note ADD COLUMN before int REFERENCES mal.note;
CREATE INDEX ON mal.note (before);
UPDATE mal.note SET before = id WHERE id = 3;
UPDATE mal.note SET before = 7 WHERE id = 399;
\c - regress_sweep_bob
SET client_min_messages = warning;
CREATE FUNCTION bob.caught() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM mal.note('index of page'); RETURN true; END $$;
CREATE TABLE bob.page (note_id int REFERENCES mal.note, day date) PARTITION BY RANGE (day);
CREATE TABLE bob.page_1 PARTITION OF bob.page FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE INDEX ON bob.page (note_id);
CREATE INDEX ON bob.page ((bob.caught()));
INSERT INTO bob.page SELECT n, '2026-01-02' FROM generate_series(10, 400, 10) AS n;
\c - :superuser
SET client_min_messages = warning;
TRUNCATE public.referring_seen;
\c - regress_sweep_job
SET client_min_messages = warning;
CALL sweep.run('referred by another role', :now);
\c - :superuser
SELECT * FROM public.referring_run;
SELECT count(*), array_agg(id) FILTER (WHERE id % 5 <> 0) AS others FROM referred.customer;
SELECT DISTINCT as_whom FROM public.referring_seen ORDER BY as_whom;
-- one whose rows cascade is of the target's owner, and below it is another's
\c - regress_sweep_app
SET client_min_messages = warning;
CREATE TABLE referred.visit (id int PRIMARY KEY, customer_id int REFERENCES referred.customer ON DELETE CASCADE);
CREATE INDEX ON referred.visit (customer_id);
GRANT REFERENCES ON referred.visit TO regress_sweep_bob;
\c - regress_sweep_bob
SET client_min_messages = warning;
CREATE TABLE bob.click (visit_id int REFERENCES referred.visit);
CREATE INDEX ON bob.click (visit_id);
CREATE INDEX ON bob.click ((bob.caught()));
\c - :superuser
SET client_min_messages = warning;
TRUNCATE mal.note, bob.page, referred.customer, referred.visit, bob.click;
INSERT INTO referred.customer SELECT n, '2026-01-01Z' FROM generate_series(1, 200) AS n;
INSERT INTO referred.visit SELECT n, n % 100 + 1 FROM generate_series(1, 3000) AS n;
INSERT INTO referred.visit SELECT 10000 + n, 150 FROM generate_series(1, 2500) AS n;
INSERT INTO bob.click VALUES (2999), (4), (12500);
TRUNCATE public.referring_seen;
\c - regress_sweep_job
SET client_min_messages = warning;
CALL sweep.run('referred by another role', :now);
\c - :superuser
SELECT * FROM public.referring_run;
SELECT array_agg(id ORDER BY id) AS left FROM referred.customer;
SELECT DISTINCT as_whom FROM public.referring_seen ORDER BY as_whom;

-- ---------------------------------------------------------------- keys of two columns, in another order, of other types
\c - regress_sweep_app
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE TABLE referred.stay (at timestamptz, id bigint, tenant varchar(10), room int, PRIMARY KEY (tenant, id), UNIQUE (room));
CREATE INDEX ON referred.stay (at);
INSERT INTO referred.stay SELECT '2026-01-01Z'::timestamptz + interval '1 minute' * n, n, 'tenant ' || n % 2, nullif(n, 1) FROM generate_series(1, 40) AS n;
GRANT REFERENCES ON referred.stay TO regress_sweep_mallory;
\c - regress_sweep_mallory
SET client_min_messages = warning;
CREATE TABLE mal.page (stay_id int, tenant text, FOREIGN KEY (stay_id, tenant) REFERENCES referred.stay (id, tenant));
CREATE INDEX ON mal.page (stay_id, tenant);
INSERT INTO mal.page SELECT n, 'tenant ' || n % 2 FROM generate_series(4, 40, 4) AS n;
CREATE TABLE mal.guest (room smallint REFERENCES referred.stay (room));
CREATE INDEX ON mal.guest (room);
INSERT INTO mal.guest VALUES (NULL), (5);
\c - regress_sweep_app
SET client_min_messages = warning;
SELECT sweep.create_retention('referred.stay', 'at', '10 days', name => 'referred by two columns', batch_size => 7);
CALL sweep.run('referred by two columns', :now);
SELECT array_agg(id ORDER BY id) AS left FROM referred.stay;
\c - :superuser
SELECT * FROM public.referring_run;

-- ---------------------------------------------------------------- what can be asked, and by whom
SELECT c.oid AS fk FROM pg_constraint c WHERE c.conname = 'note_customer_id_fkey' \gset
SELECT c.oid AS own_fk FROM pg_constraint c WHERE c.conname = 'note_before_fkey' \gset
SELECT c.oid AS primary_key FROM pg_constraint c WHERE c.conname = 'customer_pkey' \gset
\c - regress_sweep_job
SELECT sweep._reference_exists(:fk, 3), sweep._reference_exists(:fk, NULL::int), sweep._reference_exists(NULL, 3);
\set VERBOSITY sqlstate
SELECT sweep._reference_exists(:fk, 3::bigint);
SELECT sweep._reference_exists(:fk, 'x'::text);
SELECT sweep._reference_exists(:fk, 3, 4);
SELECT sweep._reference_exists(:fk, VARIADIC ARRAY[3]);
SELECT sweep._reference_exists(:primary_key, 3);
SELECT sweep._reference_exists(0, 3);
SELECT sweep._reference_exists(:own_fk, 3);
\c - regress_sweep_mallory
\set VERBOSITY sqlstate
SELECT sweep._reference_exists(:fk, 3);
SELECT sweep._reference_exists(:own_fk, 3);
\c - regress_sweep_bob
\set VERBOSITY sqlstate
SELECT sweep._reference_exists(:fk, 3);

\c - :superuser
SET client_min_messages = warning;
SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'referred%' ORDER BY name;
DELETE FROM sweep.run_live WHERE job LIKE 'referred%';
DELETE FROM sweep.run_history WHERE job LIKE 'referred%';
DROP SCHEMA referred, mal, bob, referring_job CASCADE;
DROP VIEW public.referring_run;
DROP TABLE public.referring_seen;
DROP ROLE regress_sweep_app, regress_sweep_job, regress_sweep_mallory, regress_sweep_bob;
