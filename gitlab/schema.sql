--
-- GitLab: the schema of the extension, see README.md.
--
CREATE SCHEMA sweep_gitlab;
COMMENT ON SCHEMA sweep_gitlab IS 'the jobs of GitLab: install() creates them for the tables of a schema';

-- The library checks whether this type exists, see build.c. An update script renames it when the interface changes.
CREATE TYPE sweep_gitlab._interface_1 AS ENUM ();
COMMENT ON TYPE sweep_gitlab._interface_1 IS 'number of the interface between the library and the objects of the extension';
