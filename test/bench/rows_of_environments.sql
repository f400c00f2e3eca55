--
-- Environments of 20,000 projects. Those that are due have been so for up to a
-- week, in the order of their ids give or take a day, or, scattered, in an order
-- that has nothing to do with it; of the others half will be due later and half
-- are stopped.
--
INSERT INTO environments (id, project_id, name, environment_type, slug, state, auto_stop_at, tier, created_at, updated_at)
SELECT i, 1 + i % 20000, 'review/' || i, 'review', 'review-' || i,
	CASE WHEN due OR i % 2 = 0 THEN 'available' ELSE 'stopped' END,
	CASE
		WHEN due THEN now() - interval '1 s' * (60 + CASE WHEN :scattered THEN i * 7919 % 600000 ELSE (:rows - i) * 510000 / :rows + i * 7919 % 86400 END)
		ELSE now() + interval '1 s' * (86400 + i * 7919 % 2500000)
	END,
	4, now() - interval '40 days', now() - interval '8 days'
FROM (SELECT i, i % :every = 0 AND i <= :last AS due FROM generate_series(1::bigint, :rows) AS i) AS environment;
