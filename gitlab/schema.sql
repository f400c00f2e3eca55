--
-- GitLab: the schema of the extension. What is in it is described in README.md.
--
CREATE SCHEMA sweep_gitlab;
COMMENT ON SCHEMA sweep_gitlab IS 'the jobs of GitLab: install() creates them for the tables of a schema';
