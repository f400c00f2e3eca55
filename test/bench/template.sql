--
-- What every database of the benchmark has: the shapes of GitLab's tables, the
-- extensions with the queues of the jobs, and pg_prewarm.
--
\set QUIET on
SET client_min_messages = warning;
\ir ../demo/gitlab_schema.sql
CREATE EXTENSION pg_sweep_gitlab CASCADE;
CREATE EXTENSION pg_prewarm;
CREATE SCHEMA bench;
SELECT sweep.create_queue('environments_auto_stop') \g /dev/null
SELECT sweep.create_queue('batched_git_ref_updates_project_cleanup') \g /dev/null
SELECT sweep.create_queue('ci_pipeline_process') \g /dev/null
SELECT sweep.create_queue('ci_build_finished') \g /dev/null
SELECT sweep.create_queue('ci_artifact_statistics') \g /dev/null
