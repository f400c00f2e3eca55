--
-- What becomes of the rows of the jobs of GitLab. The lists of artifacts are read anew.
--
INSERT INTO sweep_gitlab.feature_flag SELECT * FROM _sweep_before.feature_flag;
INSERT INTO sweep_gitlab.kept (environment_id, auto_stop_at, run_as)
	SELECT k.environment_id, k.auto_stop_at, j.run_as FROM _sweep_before.kept_environment k JOIN sweep.job_definition j ON j.name = k.job;
