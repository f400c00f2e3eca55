--
-- 500,000 builds in three partitions. 20,000 are canceling and have been for
-- 2 to 16 hours: their runners are gone. The others have ended, or run, or wait, or
-- have been canceling for minutes.
--
-- 30 of those that hang refuse to be failed, 10 of these whatever one writes:
-- that is what the trigger is for.
--
INSERT INTO p_ci_builds (id, partition_id, type, status, created_at, updated_at, started_at, finished_at, project_id, commit_id, stage_id,
	runner_id, user_id, name, ref, lock_version, retried, processed, allow_failure)
SELECT i, 100 + i / 166667,
	CASE WHEN NOT hangs AND i % 11 = 0 THEN 'Ci::Bridge' ELSE 'Ci::Build' END,
	CASE WHEN hangs THEN 'canceling' ELSE (ARRAY['success', 'success', 'success', 'success', 'success', 'failed', 'canceled', 'skipped', 'manual',
		'running', 'pending', 'canceling'])[1 + i % 12] END,
	at, at, at, CASE WHEN NOT hangs AND i % 12 < 7 THEN at END,
	1 + i % 1000, i / 10, i / 3, 1 + i % 200, 1 + i % 500, 'rspec ' || i % 40, 'main', 0, false, true, false
FROM (SELECT i, i % 25 = 0 AS hangs,
		now() AT TIME ZONE 'UTC' - interval '1 s' * CASE WHEN i % 25 = 0 THEN 7200 + (500000 - i) / 10 ELSE (500000 - i) / 150 END AS at
	FROM generate_series(1::bigint, 500000) AS i) AS build;
SELECT setval('ci_builds_id_seq', 500000) \g /dev/null

CREATE OR REPLACE FUNCTION refuse_build() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.failure_reason = 12 AND NEW.id / 16500 % 3 > 0 THEN
		RETURN NEW;
	END IF;
	RAISE EXCEPTION 'build % refuses', NEW.id;
END
$$;
CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON p_ci_builds
	FOR EACH ROW WHEN (NEW.id % 16500 = 0) EXECUTE FUNCTION refuse_build();
