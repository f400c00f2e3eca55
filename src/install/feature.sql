--
-- Feature flags: what an operator switches on and off while jobs run.
--
-- A flag is known by its name; one that was never set is off. A step, or the
-- buckets_function of a job, asks sweep.feature_enabled(); nothing else in here
-- knows what a flag is for.
--
CREATE TABLE sweep.feature_flag (
	name    text PRIMARY KEY,
	enabled boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE sweep.feature_flag IS 'feature flags that were ever set; sweep.enable_feature and sweep.disable_feature write it';
COMMENT ON COLUMN sweep.feature_flag.name IS 'name of the flag';
COMMENT ON COLUMN sweep.feature_flag.enabled IS 'whether it is on';
SELECT pg_catalog.pg_extension_config_dump('sweep.feature_flag', '');

-- A misspelt name would be a switch without a lamp.
CREATE FUNCTION sweep._check_feature(name text) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known constant text[] := '{bulk_delete_job_artifacts,bulk_delete_job_artifacts_high_concurrency}';
BEGIN
	IF name IS NULL OR name <> ALL (known) THEN
		RAISE EXCEPTION 'feature "%" does not exist', name
			USING ERRCODE = 'undefined_object', HINT = format('There are: %s.', array_to_string(known, ', '));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_feature(text) IS 'raises unless there is a feature flag of this name';

CREATE FUNCTION sweep._feature_enabled(caller oid, name text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_feature(_feature_enabled.name);
	RETURN coalesce((SELECT f.enabled FROM sweep.feature_flag AS f WHERE f.name = _feature_enabled.name), false);
END
$$;
COMMENT ON FUNCTION sweep._feature_enabled(oid, text) IS 'implements sweep.feature_enabled';

CREATE FUNCTION sweep.feature_enabled(name text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.feature_enabled(text) IS 'whether the feature of this name is on; it is off until sweep.enable_feature';

CREATE FUNCTION sweep._set_feature(name text, enabled boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._check_feature(_set_feature.name);
	INSERT INTO sweep.feature_flag AS f (name, enabled) VALUES (_set_feature.name, _set_feature.enabled)
		ON CONFLICT ON CONSTRAINT feature_flag_pkey DO UPDATE SET enabled = excluded.enabled WHERE f.enabled <> excluded.enabled;
END
$$;
COMMENT ON FUNCTION sweep._set_feature(text, boolean) IS 'switches a feature; sweep.enable_feature and sweep.disable_feature call it';

CREATE FUNCTION sweep._enable_feature(caller oid, name text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._set_feature(name, true)
$$;
COMMENT ON FUNCTION sweep._enable_feature(oid, text) IS 'implements sweep.enable_feature';

CREATE FUNCTION sweep.enable_feature(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.enable_feature(text) IS 'switches a feature on, for all jobs of the database; runs in progress see it before their next batch';

CREATE FUNCTION sweep._disable_feature(caller oid, name text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._set_feature(name, false)
$$;
COMMENT ON FUNCTION sweep._disable_feature(oid, text) IS 'implements sweep.disable_feature';

CREATE FUNCTION sweep.disable_feature(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.disable_feature(text) IS 'switches a feature off, for all jobs of the database; runs in progress see it before their next batch';
