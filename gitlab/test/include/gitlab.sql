-- The begin of the tests of GitLab's jobs: \set ECHO none and \i of this file.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
\set SHOW_CONTEXT never
CREATE SCHEMA gitlab;
SET search_path = gitlab, public;
\i test/demo/gitlab_schema.sql
RESET search_path;
-- as in a run
SET jit = off;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\set ECHO all
