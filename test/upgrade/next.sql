-- What each update script has besides its own changes. The tests install this one as the way from the current version to "next".

-- First: what is created here calls the new library. VERSION is that of the library, put in where this script is installed.
SELECT sweep._require_library('VERSION');

-- What is new has whatever ALTER DEFAULT PRIVILEGES gives.
CREATE TABLE sweep.next_table (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CREATE TYPE sweep.next_type AS ENUM ();
CREATE VIEW sweep.next_view WITH (security_barrier) AS SELECT t.id FROM sweep.next_table AS t;
CREATE FUNCTION sweep.next_function() RETURNS int LANGUAGE sql AS 'SELECT 1';

-- Last: when all is there, and before anything is granted.
SELECT sweep._revoke_foreign_grants('pg_sweep');
GRANT SELECT ON sweep.next_view TO sweep_user;
