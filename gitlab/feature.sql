--
-- Feature flags, which an operator switches on and off while jobs run.
--
-- A flag is a row with a name. A step, or the buckets_function of a job, calls sweep_gitlab.feature_enabled(); this file does not
-- know what a flag is for.
--
CREATE TABLE sweep_gitlab.feature_flag (
	name    text PRIMARY KEY,
	enabled boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE sweep_gitlab.feature_flag IS 'the feature flags; sweep_gitlab.enable_feature and sweep_gitlab.disable_feature switch them';
COMMENT ON COLUMN sweep_gitlab.feature_flag.name IS 'name of the flag';
COMMENT ON COLUMN sweep_gitlab.feature_flag.enabled IS 'whether it is on';
SELECT pg_catalog.pg_extension_config_dump('sweep_gitlab.feature_flag', '');

-- When a dump is restored, the rows of the install script exist already: the values of the dump replace them.
CREATE FUNCTION sweep_gitlab._replace_feature() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep_gitlab.feature_flag AS f SET enabled = new.enabled WHERE f.name = new.name;
	RETURN CASE WHEN NOT FOUND THEN new END;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._replace_feature() IS 'trigger of sweep_gitlab.feature_flag: a flag that is inserted again is set';
CREATE TRIGGER replace_feature BEFORE INSERT ON sweep_gitlab.feature_flag FOR EACH ROW EXECUTE FUNCTION sweep_gitlab._replace_feature();

-- A misspelt name raises an error, because it would have no effect.
CREATE FUNCTION sweep_gitlab._no_such_feature(name text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'feature "%" does not exist', name
		USING ERRCODE = 'undefined_object',
			HINT = pg_catalog.format('There are: %s.', (SELECT pg_catalog.string_agg(f.name, ', ' ORDER BY f.name) FROM sweep_gitlab.feature_flag AS f));
END
$$;
COMMENT ON FUNCTION sweep_gitlab._no_such_feature(text) IS 'raises the error for a name that no feature flag has';

CREATE FUNCTION sweep_gitlab._feature_enabled(caller oid, name text) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	enabled boolean := (SELECT f.enabled FROM sweep_gitlab.feature_flag AS f WHERE f.name = _feature_enabled.name);
BEGIN
	IF enabled IS NULL THEN
		PERFORM sweep_gitlab._no_such_feature(name);
	END IF;
	RETURN enabled;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._feature_enabled(oid, text) IS 'implements sweep_gitlab.feature_enabled';

CREATE FUNCTION sweep_gitlab.feature_enabled(name text) RETURNS boolean
	LANGUAGE c STABLE PARALLEL SAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.feature_enabled(text) IS 'whether the feature of this name is on; it is off until sweep_gitlab.enable_feature';

CREATE FUNCTION sweep_gitlab._set_feature(name text, enabled boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep_gitlab.feature_flag AS f SET enabled = _set_feature.enabled WHERE f.name = _set_feature.name;
	IF NOT FOUND THEN
		PERFORM sweep_gitlab._no_such_feature(name);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep_gitlab._set_feature(text, boolean) IS 'switches a feature; sweep_gitlab.enable_feature and sweep_gitlab.disable_feature call it';

CREATE FUNCTION sweep_gitlab._enable_feature(caller oid, name text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab._set_feature(name, true)
$$;
COMMENT ON FUNCTION sweep_gitlab._enable_feature(oid, text) IS 'implements sweep_gitlab.enable_feature';

CREATE FUNCTION sweep_gitlab.enable_feature(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.enable_feature(text) IS 'switches a feature on, for all jobs of the database; runs in progress see it before their next batch';

CREATE FUNCTION sweep_gitlab._disable_feature(caller oid, name text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep_gitlab._set_feature(name, false)
$$;
COMMENT ON FUNCTION sweep_gitlab._disable_feature(oid, text) IS 'implements sweep_gitlab.disable_feature';

CREATE FUNCTION sweep_gitlab.disable_feature(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep_gitlab.disable_feature(text) IS 'switches a feature off, for all jobs of the database; runs in progress see it before their next batch';
