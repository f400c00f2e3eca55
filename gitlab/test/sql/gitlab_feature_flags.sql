-- Feature flags: off until switched on, for all who ask; what a misspelt name does, and who may switch.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
\set SHOW_CONTEXT never

-- off until switched on
SELECT * FROM sweep_gitlab.feature_flag ORDER BY name;
SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts'), sweep_gitlab.feature_enabled('bulk_delete_job_artifacts_high_concurrency');

-- on, again, off, again
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts'), sweep_gitlab.feature_enabled('bulk_delete_job_artifacts_high_concurrency');
SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts');
SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts');
SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts');
SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts_high_concurrency');
SELECT * FROM sweep_gitlab.feature_flag ORDER BY name;

-- it is the transaction's like any row
BEGIN;
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts');
ROLLBACK;
SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts');

-- names that there are not
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artefacts');
SELECT sweep_gitlab.disable_feature('BULK_DELETE_JOB_ARTIFACTS');
SELECT sweep_gitlab.feature_enabled('');
SELECT sweep_gitlab.enable_feature(NULL);
SELECT sweep_gitlab.feature_enabled(NULL);
SELECT count(*) FROM sweep_gitlab.feature_flag;

-- one more; one that is there already, as when a dump is restored
BEGIN;
INSERT INTO sweep_gitlab.feature_flag VALUES ('of_mine', true), ('bulk_delete_job_artifacts', true);
SELECT sweep_gitlab.feature_enabled('of_mine'), sweep_gitlab.feature_enabled('bulk_delete_job_artifacts');
SELECT sweep_gitlab.disable_feature('of_mine');
SELECT * FROM sweep_gitlab.feature_flag ORDER BY name;
ROLLBACK;

-- how many buckets the artifact deletion has: what the flags and the args say
CREATE FUNCTION pg_temp.buckets(args jsonb DEFAULT '{"buckets": 5, "buckets_high": 10}') RETURNS int
	LANGUAGE sql AS $$
	SELECT sweep_gitlab.artifact_buckets(ROW(100, NULL, args, now(), NULL, NULL, NULL, 1)::sweep.batch)
$$;
SELECT pg_temp.buckets();
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts_high_concurrency');
SELECT pg_temp.buckets();
SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts');
SELECT pg_temp.buckets(), pg_temp.buckets('{"buckets": 2, "buckets_high": 3}');
-- none at all is no number of buckets
SELECT pg_temp.buckets('{"schema": "public", "table": "p_ci_job_artifacts", "refresh_states": [], "buckets": 2, "buckets_high": 0}');
SELECT sweep_gitlab.disable_feature('bulk_delete_job_artifacts_high_concurrency');
SELECT pg_temp.buckets(), pg_temp.buckets('{"buckets": 2, "buckets_high": 3}');

-- everybody asks, operators switch, nobody writes the table
CREATE ROLE regress_sweep_feature;
CREATE FUNCTION pg_temp.outcome(statement text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE statement INTO result;
	RETURN coalesce(nullif(result, ''), 'done');
EXCEPTION WHEN insufficient_privilege THEN
	RETURN SQLERRM;
END
$$;
CREATE PROCEDURE pg_temp.try_all(role text, INOUT asks text DEFAULT NULL, INOUT switches text DEFAULT NULL, INOUT writes text DEFAULT NULL)
	LANGUAGE plpgsql AS $$
BEGIN
	IF role IS NOT NULL THEN
		EXECUTE format('GRANT %I TO regress_sweep_feature', role);
	END IF;
	SET LOCAL ROLE regress_sweep_feature;
	asks := pg_temp.outcome($q$SELECT sweep_gitlab.feature_enabled('bulk_delete_job_artifacts')$q$);
	switches := pg_temp.outcome($q$SELECT sweep_gitlab.enable_feature('bulk_delete_job_artifacts')$q$);
	writes := pg_temp.outcome($q$UPDATE sweep_gitlab.feature_flag SET enabled = true$q$);
	RESET ROLE;
	IF role IS NOT NULL THEN
		EXECUTE format('REVOKE %I FROM regress_sweep_feature', role);
	END IF;
END
$$;
CALL pg_temp.try_all('sweep_monitor');
CALL pg_temp.try_all('sweep_user');
CALL pg_temp.try_all('sweep_operator');
CALL pg_temp.try_all('sweep_admin');
CALL pg_temp.try_all(NULL);
DROP ROLE regress_sweep_feature;

SELECT sweep_gitlab.disable_feature(name) FROM sweep_gitlab.feature_flag;
