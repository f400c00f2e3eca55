--
-- 200,000 runner machines of the three types, most of them old and in contact.
-- Stale are 1,500: 500 never made contact since they were created 8 to 30 days
-- ago, 1,000 have been silent for 8 to 60 days. 1,000 new ones that have not
-- made contact yet are not stale.
--
INSERT INTO ci_runner_machines (id, runner_id, runner_type, system_xid, created_at, updated_at, contacted_at,
	platform, architecture, version, ip_address)
SELECT i, 1 + i / 20, 1 + i / 20 % 3, 'r_' || i,
	now() - interval '1 day' * CASE
		WHEN never AND NOT stale THEN 1
		WHEN never THEN 8 + i % 23
		ELSE 70 + i % 300
	END,
	now() - interval '1 day',
	CASE
		WHEN never THEN NULL
		WHEN stale THEN now() - interval '1 day' * (8 + i % 53)
		ELSE now() - interval '1 s' * (i % 7200)
	END,
	'linux', 'amd64', '17.' || i % 9 || '.0', '10.0.' || i / 250 % 250 || '.' || i % 250
FROM (SELECT i, i % 128 = 0 AND i <= 1500 * 128 AS stale, i % 384 = 0 AND i <= 1500 * 128 OR i % 200 = 1 AS never
	FROM generate_series(1::bigint, 200000) AS i) AS machine;
SELECT setval('ci_runner_machines_id_seq', 200000) \g /dev/null
