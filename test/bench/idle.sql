--
-- A thousand jobs of which none is due for months.
--
\set QUIET on
SET client_min_messages = warning;
CREATE FUNCTION bench.nothing(b sweep.batch) RETURNS sweep.progress
	LANGUAGE plpgsql
AS $$
BEGIN
	RETURN ROW(0::bigint, NULL::jsonb, NULL::jsonb);
END
$$;
SELECT count(sweep.create_job('far_' || i, step => 'bench.nothing',
		schedule => format('%s %s %s %s *', i % 60, i % 24, extract(day FROM now() + interval '100 days'),
			extract(month FROM now() + interval '100 days'))))
	FROM generate_series(1, 1000) AS i \g /dev/null
