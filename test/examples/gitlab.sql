-- A GitLab: its tables in schema public, and who operates it.
CREATE EXTENSION pg_sweep;  -- the document adds pg_sweep_gitlab
\i test/demo/gitlab_schema.sql
CREATE ROLE operator LOGIN IN ROLE sweep_operator;
CREATE ROLE admin LOGIN IN ROLE sweep_admin;
CREATE TABLE project_build_artifacts_size_refreshes (project_id bigint PRIMARY KEY, state smallint NOT NULL);
