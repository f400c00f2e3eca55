--
-- Two ways to do the batches of a step, included with its name in "step" and
-- its args in "args": the job "bench", and a procedure that calls the very same
-- function in a loop and commits after each batch. Where these commits do not
-- wait for the disk the last one does, as in a run of ours.
--
SELECT sweep.create_job('bench', step => :'step', args => :'args') \g /dev/null

SELECT format($procedure$
CREATE PROCEDURE bench.batches(size int, INOUT ms float8 DEFAULT NULL)
	LANGUAGE plpgsql
AS $$
DECLARE
	began timestamptz := clock_timestamp();
	progress sweep.progress;
BEGIN
	LOOP
		progress := %s(ROW(size, progress.cursor, %L, clock_timestamp(), NULL, NULL, NULL, 1)::sweep.batch);
		IF progress.rows = 0 AND current_setting('synchronous_commit') = 'off' THEN
			PERFORM pg_current_xact_id(), set_config('synchronous_commit', 'on', true);
		END IF;
		COMMIT;
		EXIT WHEN progress.rows = 0;
	END LOOP;
	ms := extract(epoch FROM clock_timestamp() - began) * 1000;
END
$$
$procedure$, :'step', :'args') \gexec
