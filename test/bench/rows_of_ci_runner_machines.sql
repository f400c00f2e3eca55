--
-- Runner machines of the three types. Those that are due have been silent for 8
-- to 60 days, one in a hundred never made contact; the others did within the
-- last two hours. A machine lives for a day or so, hence they fell silent in
-- the order in which they were created, give or take that day; or, scattered,
-- in an order that has nothing to do with it.
--
INSERT INTO ci_runner_machines (id, runner_id, runner_type, system_xid, created_at, updated_at, contacted_at,
	platform, architecture, version, ip_address)
SELECT i, 1 + i / 20, 1 + i / 20 % 3, 'r_' || i, now() - interval '1 day' * (70 + i % 300), now() - interval '1 day',
	CASE
		WHEN due AND i * 7919 % 100 = 0 THEN NULL
		WHEN due THEN now() - interval '8 days' - interval '1 s' * CASE WHEN :scattered THEN i * 7919 % 4500000
			ELSE (:rows - i) * 4400000 / :rows + i * 7919 % 86400 END
		ELSE now() - interval '1 s' * (i % 7200)
	END,
	'linux', 'amd64', '17.' || i % 9 || '.0', '10.0.' || i / 250 % 250 || '.' || i % 250
FROM (SELECT i, i % :every = 0 AND i <= :last AS due FROM generate_series(1::bigint, :rows) AS i) AS machine;
