--
-- Each machine that is alive is heard of once more. That writes its row anew,
-- for contacted_at is in an index, so it does not stay where it was: one in five
-- rows at a time, with a VACUUM after each, as autovacuum does by default when a
-- fifth of a table is dead. A table that was only filled has no room in its pages.
--
\set QUIET on
SET synchronous_commit = off;
SELECT format('UPDATE ci_runner_machines SET contacted_at = contacted_at + interval ''1 ms''
		WHERE contacted_at > now() - interval ''1 day'' AND mod(id, 5) = %s', turn),
	'VACUUM (ANALYZE) ci_runner_machines'
	FROM generate_series(0, 4) AS turn \gexec
