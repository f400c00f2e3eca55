--
-- Warns, when the extension is created, if there cannot be enough background processes.
--
DO $$
DECLARE
	-- The minimum: the launcher, one process in which schedulers and runs take turns, and the launcher of logical replication.
	needed pg_catalog.int4 := 2 + least(pg_catalog.current_setting('max_logical_replication_workers')::pg_catalog.int4, 1);
	there pg_catalog.int4 := pg_catalog.current_setting('max_worker_processes');
BEGIN
	IF there < needed THEN
		RAISE WARNING 'max_worker_processes = % leaves no process for the runs of jobs', there
			USING DETAIL = pg_catalog.format('It must be %s at least: the launcher of pg_sweep, a process in which its scheduler and runs take turns%s.', needed, CASE needed WHEN 3 THEN ', and the launcher of logical replication' END),
				HINT = pg_catalog.format('Raise max_worker_processes, which needs a restart of the server, and have max_parallel_workers (%s) at most max_worker_processes - 3: parallel queries use the same processes.',
					pg_catalog.current_setting('max_parallel_workers'));
	END IF;
END
$$;
