--
-- 1,000,000 environments of 20,000 projects. Of ten
--   1  is available and due since some time in the last week
--   4  are available and due in one to thirty days
--   2  are available and have no time set
--   1  was due and is stopped
--   2  are stopped and have no time set
--
INSERT INTO environments (id, project_id, name, environment_type, slug, state, auto_stop_at, tier, created_at, updated_at)
SELECT i, 1 + i % 20000, 'review/' || i, 'review', 'review-' || i,
	CASE WHEN i % 10 < 7 THEN 'available' ELSE 'stopped' END,
	CASE
		WHEN i % 10 IN (0, 7) THEN now() - interval '1 s' * (60 + i * 7919 % 600000)
		WHEN i % 10 < 5 THEN now() + interval '1 s' * (86400 + i * 7919 % 2500000)
	END,
	4, now() - interval '40 days', now() - interval '8 days'
FROM generate_series(1::bigint, 1000000) AS i;
SELECT setval('environments_id_seq', 1000000) \g /dev/null
