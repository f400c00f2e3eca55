--
-- One run of the job "bench" in the background: its own time, and the time from
-- sweep.start() until the waiting session knows that it has ended.
--
SET client_min_messages = warning;
SELECT sweep.alter_job('bench', jsonb_build_object('batch_size', :size, 'flush', :'flush', 'max_batches', nullif(:max_batches, 0))) \g /dev/null
SELECT clock_timestamp() AS began, sweep.start('bench') AS run_id \gset
CALL sweep.wait(:run_id, '1 hour');
SELECT clock_timestamp() AS ended \gset
SELECT extract(epoch FROM finished_at - started_at) * 1000, extract(epoch FROM :'ended'::timestamptz - :'began'::timestamptz) * 1000
	FROM sweep.runs WHERE run_id = :run_id;
