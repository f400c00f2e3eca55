-- room: makers
-- Retention where foreign keys refer to the table: what goes with a row goes, what is referred to stays, and is no reason to fail.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS retention_references CASCADE;
CREATE SCHEMA retention_references;
SET timezone = 'UTC';
SET search_path = retention_references, pg_catalog;
CREATE VIEW last_run AS SELECT status, stop_reason AS stop, batches, rows, detail, error FROM sweep.runs WHERE job LIKE 'retention%' ORDER BY run_id DESC LIMIT 1;
-- 3000 customers, a third of them to be kept
CREATE TABLE customer (id int PRIMARY KEY, at timestamptz);
CREATE INDEX ON customer (at);
\set fill 'TRUNCATE customer CASCADE; INSERT INTO customer SELECT n, ''2026-01-01Z''::timestamptz + interval ''1 minute'' * n FROM generate_series(1, 3000) AS n'
\set now '''{"as_of": "2026-01-12 09:20:00Z"}'''

-- what goes with them needs an index
CREATE TABLE note (id int PRIMARY KEY, customer_id int REFERENCES customer ON DELETE CASCADE);
SELECT sweep.create_retention('retention_references.customer', 'at', '10 days');
CREATE INDEX ON note (id, customer_id);
SELECT sweep.create_retention('retention_references.customer', 'at', '10 days');
CREATE INDEX ON note (customer_id) WHERE customer_id > 7;
SELECT sweep.create_retention('retention_references.customer', 'at', '10 days');
CREATE INDEX ON note (customer_id) WHERE customer_id IS NOT NULL;
SELECT sweep.create_retention('retention_references.customer', 'at', '10 days');
:fill;
INSERT INTO note SELECT n, n FROM generate_series(1, 3000) AS n;
CALL sweep.run('retention_customer', :now);
SELECT *, (SELECT count(*) FROM customer) AS customers, (SELECT min(customer_id) FROM note) AS first_note FROM last_run;

-- what is referred to stays: each third one, of a whole batch all, and those behind are deleted
CREATE TABLE bill (id int PRIMARY KEY, customer_id int NOT NULL REFERENCES customer);
CREATE INDEX ON bill (customer_id);
:fill;
INSERT INTO bill SELECT n, n FROM generate_series(3, 3000, 3) AS n;
INSERT INTO bill SELECT 10000 + n, n FROM generate_series(500, 1499) AS n;
SELECT sweep.alter_job('retention_customer', '{"batch_size": 100}');
SELECT plan ~ 'Nested Loop Anti Join' AS anti_join, plan ~ 'Seq Scan|Hash' AS otherwise FROM sweep.preview('retention_customer', :now);
CALL sweep.run('retention_customer', :now);
SELECT *, (SELECT count(*) FROM customer WHERE id < 2000 AND NOT EXISTS (SELECT FROM bill WHERE customer_id = customer.id)) AS left, (SELECT count(*) FROM customer WHERE id >= 2000) AS kept FROM last_run;
CALL sweep.run('retention_customer', :now);
SELECT * FROM last_run;
DELETE FROM bill WHERE customer_id < 1000;
CALL sweep.run('retention_customer', :now);
SELECT *, (SELECT min(id) FROM customer) AS first FROM last_run;

-- the same where many are of one moment
:fill;
UPDATE customer SET at = '2026-01-01Z' WHERE id < 1000;
INSERT INTO bill SELECT n, n FROM generate_series(1, 3000, 2) AS n;
CALL sweep.run('retention_customer', :now);
SELECT *, (SELECT count(*) FROM customer WHERE id < 2000 AND NOT EXISTS (SELECT FROM bill WHERE customer_id = customer.id)) AS left FROM last_run;

-- to what goes with them
CREATE TABLE item (id int PRIMARY KEY, note_id int REFERENCES note DEFERRABLE INITIALLY DEFERRED);
SELECT sweep.create_retention('retention_references.customer', 'at', '10 days', name => 'retention two');
CREATE INDEX ON item USING hash (note_id);
SELECT sweep.create_retention('retention_references.customer', 'at', '10 days', name => 'retention two', batch_size => 300);
:fill;
INSERT INTO note SELECT n, n FROM generate_series(1, 3000) AS n;
INSERT INTO item SELECT n, n FROM generate_series(1, 3000, 10) AS n;
INSERT INTO bill SELECT n, n FROM generate_series(1, 3000, 15) AS n;
CALL sweep.run('retention two', :now);
SELECT *, (SELECT count(*) FROM customer WHERE id < 2000) AS left, (SELECT count(*) FROM note WHERE customer_id < 2000) AS notes FROM last_run;
SELECT count(*) FROM customer WHERE id < 2000 AND id % 10 <> 1 AND id % 15 <> 1;
DROP TABLE item, note, bill;

-- to itself: a tree of 200 that hang on each other goes from its leaves on, one that somebody younger hangs on stays, one that refers to itself goes
ALTER TABLE customer ADD COLUMN parent_id int REFERENCES customer;
CREATE INDEX ON customer (parent_id);
:fill;
UPDATE customer SET parent_id = id - 1 WHERE id BETWEEN 2 AND 200 OR id = 2500;
UPDATE customer SET parent_id = 300 WHERE id = 2501;
UPDATE customer SET parent_id = 400 WHERE id = 400;
SELECT sweep.alter_job('retention_customer', '{"batch_size": 10}');
CALL sweep.run('retention_customer', :now);
SELECT status, stop, rows, detail, (SELECT array_agg(id) FROM customer WHERE id < 2000) AS left FROM last_run;
ALTER TABLE customer DROP CONSTRAINT customer_parent_id_fkey, ADD FOREIGN KEY (parent_id) REFERENCES customer ON DELETE CASCADE;
:fill;
UPDATE customer SET parent_id = id - 1 WHERE id BETWEEN 2 AND 200;
CALL sweep.run('retention_customer', :now);
SELECT *, (SELECT count(*) FROM customer) FROM last_run;

-- partitions on both sides, two columns, and moved instead of deleted
CREATE TABLE visit (at timestamptz, id int, tenant int, PRIMARY KEY (tenant, id)) PARTITION BY LIST (tenant);
CREATE TABLE visit_1 PARTITION OF visit FOR VALUES IN (1);
CREATE TABLE visit_2 PARTITION OF visit FOR VALUES IN (2);
CREATE INDEX ON visit (at);
CREATE TABLE page (visit_id int, tenant int, day date, FOREIGN KEY (tenant, visit_id) REFERENCES visit (tenant, id)) PARTITION BY RANGE (day);
CREATE TABLE page_1 PARTITION OF page FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE page_2 PARTITION OF page FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE old_visit (LIKE visit);
SELECT sweep.create_retention('retention_references.visit', 'at', '10 days', archive_to => 'retention_references.old_visit');
CREATE INDEX ON page (visit_id, tenant);
SELECT sweep.create_retention('retention_references.visit', 'at', '10 days', archive_to => 'retention_references.old_visit', batch_size => 130);
INSERT INTO visit SELECT '2026-01-01Z'::timestamptz + interval '1 minute' * (n / 2), n, n % 2 + 1 FROM generate_series(1, 4000) AS n;
INSERT INTO page SELECT n, n % 2 + 1, date '2026-01-01' + n % 50 FROM generate_series(1, 4000, 7) AS n;
CALL sweep.run('retention_visit', '{"as_of": "2026-01-12 00:00:00Z"}');
SELECT *, (SELECT count(*) FROM visit WHERE at < '2026-01-02Z') AS left, (SELECT count(*) FROM old_visit) AS moved,
	(SELECT count(*) FROM page JOIN visit ON page.tenant = visit.tenant AND visit_id = id) AS pages FROM last_run;
-- of one of the partitions
ALTER TABLE page DROP CONSTRAINT page_tenant_visit_id_fkey;
ALTER TABLE page_1 ADD FOREIGN KEY (tenant, visit_id) REFERENCES visit_2 (tenant, id) NOT VALID;
SELECT sweep.create_retention('retention_references.visit', 'at', '10 days', name => 'retention of partitions');

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'retention%' ORDER BY name;
DELETE FROM sweep.run_live WHERE job LIKE 'retention%';
DELETE FROM sweep.run_history WHERE job LIKE 'retention%';
DROP SCHEMA retention_references CASCADE;
