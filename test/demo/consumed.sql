--
-- What the consumer of environments_auto_stop did.
--
\set QUIET on
\pset footer off

\echo :bold'The consumer (view sweep.consumers)':normal
SELECT queue, handler, workers, batch, lpad(to_char(handled, 'FM999,990'), 7) AS handled, failed, state
FROM sweep.consumers;

\echo :bold'What became of the 100,000 environments that were due':normal
SELECT lpad(to_char(count(*), 'FM999,990'), 7) AS environments, state, count(auto_stop_at) AS "still with a time"
FROM environments WHERE id % 10 = 0
GROUP BY state;
