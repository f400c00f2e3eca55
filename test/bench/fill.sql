--
-- Fills one of the tables with a number of rows, of which some are due:
--
--	psql -v table=environments -v rows=1000000 -v every=10 -v last=1000000 -f fill.sql
--
-- Due are the rows with i % every = 0 AND i <= last. Secondary indexes are
-- built after the rows. VACUUM at the end, so that no run pays for hint bits.
--
\set QUIET on
SET client_min_messages = warning;
SET timezone = 'UTC';
SET maintenance_work_mem = '256MB';
SET synchronous_commit = off;

BEGIN;
CREATE TEMP TABLE secondary_index ON COMMIT DROP AS
	SELECT i.indexrelid::regclass::text AS name, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') AS definition
	FROM pg_index i
	WHERE i.indrelid = :'table'::regclass AND NOT i.indisprimary;
SELECT 'DROP INDEX ' || name FROM secondary_index \gexec
\ir rows_of_:table.sql
SELECT definition FROM secondary_index \gexec
COMMIT;

VACUUM (ANALYZE) :table;
