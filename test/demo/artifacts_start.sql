--
-- Switches the artifact deletion on and starts its scheduler, once: its schedule
-- stays paused. :redis is yes when the buckets are to be in Redis.
--
\set QUIET on
\pset tuples_only on
SET client_min_messages = warning;
SELECT sweep.alter_job('ci_bulk_delete_expired_job_artifacts', jsonb_build_object('bucket_store', CASE :'redis' WHEN 'yes' THEN 'redis' ELSE 'table' END)) \g /dev/null
SELECT sweep.resume('ci_bulk_delete_expired_job_artifacts') \g /dev/null
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts') \g /dev/null
SELECT sweep.start('ci_schedule_bulk_delete_job_artifacts') AS run_id \gset
CALL sweep.wait(:run_id);
SELECT ' detail of its run: ' || detail::text FROM sweep.runs WHERE run_id = :run_id;
