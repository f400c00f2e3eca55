--
-- Fills one table of gitlab_schema.sql with rows of rows_of_<table>.sql:
--
--	psql -v table=environments -f fill.sql
--
-- demo.sh calls it once per table, all at the same time. The order is for
-- speed: secondary indexes come after the rows, from their own definitions, so
-- the shapes stay those of the schema; and as the table gets a new file in
-- this transaction, a server with wal_level = minimal writes neither rows nor
-- indexes to the log. VACUUM at the end: hint bits, the visibility map and
-- statistics are those of a table that has been there for a while.
--
\set QUIET on
SET client_min_messages = warning;
SET timezone = 'UTC';
SET maintenance_work_mem = '256MB';
SET work_mem = '64MB';
SET max_parallel_maintenance_workers = 0; -- the other tables use the other cores

BEGIN;
TRUNCATE :table;

-- ONLY would leave out the partitions of a partitioned table
CREATE TEMP TABLE secondary_index ON COMMIT DROP AS
	SELECT i.indexrelid::regclass::text AS name, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') AS definition
	FROM pg_index i
	WHERE i.indrelid = :'table'::regclass AND NOT i.indisprimary;
SELECT 'DROP INDEX ' || name FROM secondary_index \gexec
\ir rows_of_:table.sql
SELECT definition FROM secondary_index \gexec
COMMIT;

VACUUM (ANALYZE) :table;
