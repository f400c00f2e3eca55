--
-- GitLab: privileges. Every grant of the extension is here.
--
-- Jobs have the rights of their role, functions those of their caller. A role that may create jobs may call all functions, but it
-- also needs rights on the tables of GitLab. Functions whose names begin with _ are called only by other functions. Feature flags
-- apply to the whole database.
--
SELECT sweep._revoke_foreign_grants('pg_sweep_gitlab');

GRANT USAGE ON SCHEMA sweep_gitlab TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT USAGE ON TYPE sweep_gitlab.stuck TO sweep_admin, sweep_user;
DO $$
DECLARE
	granted pg_catalog.regprocedure;
BEGIN
	FOR granted IN SELECT p.oid FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'sweep_gitlab'::pg_catalog.regnamespace
			AND p.proname NOT LIKE E'\\_%' AND p.proname NOT IN ('enable_feature', 'disable_feature') LOOP
		EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO sweep_admin, sweep_user', granted);
	END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION sweep_gitlab.feature_enabled(text) TO sweep_operator, sweep_monitor;
GRANT EXECUTE ON FUNCTION sweep_gitlab.enable_feature(text), sweep_gitlab.disable_feature(text) TO sweep_admin, sweep_operator;

GRANT SELECT ON sweep_gitlab.feature_flag TO sweep_admin, sweep_operator, sweep_user, sweep_monitor;
GRANT SELECT ON sweep_gitlab.kept_environment TO sweep_admin, sweep_user;
