--
-- Due moments: which jobs are due, and the runs that are queued for them.
--
CREATE FUNCTION sweep._insert_scheduled(j sweep.job_definition, due timestamptz, trigger text, ignore_overlap boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	in_the_way bigint;
BEGIN
	IF NOT ignore_overlap THEN
		-- By the overlap rule, the run in_the_way keeps the new one from being queued (skip, queue_one) or is cancelled for it
		-- (cancel_previous). OFFSET 0 keeps the planner from looking for the smallest run_id through the runs of all jobs.
		-- A run in progress of a divided job is not in the way: it is one share, and the buckets decide whether there is room for
		-- more. A waiting run counts as in progress when its process has been started or when it follows another share
		-- (shares_left). A waiting run that is neither is in the way, so that such runs do not pile up.
		in_the_way := least(
			(SELECT pg_catalog.min(w.run_id) FROM (SELECT r.run_id FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as
				AND r.trigger IN ('schedule', 'catch_up', 'retry', 'parent')
				AND r.due_at <= due AND r.status = 'waiting' AND r.pid IS NULL
				AND (j.buckets IS NULL OR r.shares_left IS NULL AND NOT EXISTS (SELECT FROM sweep._running() p WHERE p.run_id = r.run_id)) OFFSET 0) AS w),
			(SELECT pg_catalog.min(w.run_id) FROM (SELECT r.run_id FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running'
				AND j.overlap = 'skip' AND j.buckets IS NULL AND sweep._run_is_alive(r.run_id) OFFSET 0) AS w));
		IF j.overlap = 'cancel_previous' THEN
			-- A run that another session has locked is being cancelled by that session, or begins just now.
			UPDATE sweep.run_live AS r SET status = 'cancelled', stop_reason = 'cancelled', finished_at = pg_catalog.clock_timestamp(), pid = coalesce(r.pid, pg_catalog.pg_backend_pid())
				WHERE r.run_id = in_the_way AND sweep._lock_waiting_run(r.run_id);
			PERFORM sweep._signal_cancel(in_the_way);
			PERFORM sweep._signal_cancel(r.run_id) FROM sweep.run_live r WHERE r.job = j.name AND r.run_as = j.run_as AND r.pid IS NOT NULL AND r.status = 'running' AND j.buckets IS NULL;
		ELSIF in_the_way IS NOT NULL THEN
			INSERT INTO sweep.run_live (job, run_as, trigger, due_at, finished_at, pid, status, stop_reason, detail)
				VALUES (j.name, j.run_as, trigger, due, pg_catalog.clock_timestamp(), pg_catalog.pg_backend_pid(), 'skipped', 'skipped',
					pg_catalog.jsonb_build_object('reason', 'overlap', 'run_id', in_the_way));
			RETURN;
		END IF;
	END IF;
	INSERT INTO sweep.run_live (job, run_as, trigger, due_at) VALUES (j.name, j.run_as, trigger, due);
END
$$;
COMMENT ON FUNCTION sweep._insert_scheduled(sweep.job_definition, timestamptz, text, boolean) IS 'queues the run of a due moment, as the overlap rule of the job says';

-- The rule is that of vixie-cron. After the clock was set back by up to three hours, a fixed moment (30 2 * * *) that had its run
-- does not run a second time. The function looks for the run of that moment. It does not compare with last_due alone: the clock may have
-- been far ahead, and then no moment would be due until that time. A repeating schedule has all of its moments again, else
-- the job would stand still. An interval has them again, too, except the moment of its last run.
CREATE FUNCTION sweep._has_run(j sweep.job_definition, last_due timestamptz, due timestamptz) RETURNS boolean
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
	kind pg_catalog.text;
BEGIN
	IF last_due - due BETWEEN '0' AND '3 h' THEN
		kind := sweep._schedule_kind(j.schedule);
		RETURN kind <> 'repeating' AND coalesce((SELECT CASE kind WHEN 'fixed' THEN pg_catalog.bool_or(r.due_at = due)
					ELSE (pg_catalog.array_agg(r.due_at ORDER BY r.run_id DESC))[1] = due END
				FROM (SELECT l.run_id, l.trigger, l.due_at FROM sweep.run_live l WHERE l.job = j.name
					UNION ALL SELECT h.run_id, h.trigger, h.due_at FROM sweep.run_history h WHERE h.job = j.name) AS r
				WHERE r.trigger IN ('schedule', 'catch_up')), false);
	END IF;
	RETURN false;
END
$$;
COMMENT ON FUNCTION sweep._has_run(sweep.job_definition, timestamptz, timestamptz) IS 'whether a moment of the schedule had its run before the clock was set back, and does not run a second time';

CREATE FUNCTION sweep._enqueue_job(j sweep.job_definition, s sweep.job_state, at timestamptz) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- A moment that the scheduler sees later than this counts as missed, and catch_up decides.
	grace constant interval := '1 min';
	most constant int := 100;
	problem pg_catalog.text := coalesce(sweep._job_problem(j, s.as_user), sweep._crash_problem(s.crashes));
	late boolean := at - s.next_start > grace;
	due pg_catalog.timestamptz := s.next_due;
	queued pg_catalog.timestamptz;
	counted int := 0;
BEGIN
	IF problem IS DISTINCT FROM s.broken THEN
		PERFORM sweep._set_broken(j.name, problem);
		IF problem IS NOT NULL THEN
			RAISE WARNING 'job "%" is broken: %', j.name, problem;
		END IF;
	END IF;
	IF problem IS NULL AND due IS NOT NULL THEN
		IF j.catch_up = 'all' THEN
			WHILE due <= at AND counted < most LOOP
				IF NOT sweep._has_run(j, s.last_due, due) THEN
					PERFORM sweep._insert_scheduled(j, due, CASE WHEN at - due > grace THEN 'catch_up' ELSE 'schedule' END, queued IS NOT NULL);
					queued := due;
				END IF;
				due := sweep._next_run(j.schedule, j.timezone, due, j.name);
				counted := counted + 1;
			END LOOP;
		ELSIF (j.catch_up = 'once' OR NOT late) AND NOT sweep._has_run(j, s.last_due, due) THEN
			PERFORM sweep._insert_scheduled(j, due, CASE WHEN late THEN 'catch_up' ELSE 'schedule' END, false);
			queued := due;
		END IF;
	END IF;
	PERFORM sweep._reschedule(j.name, at, queued);
END
$$;
COMMENT ON FUNCTION sweep._enqueue_job(sweep.job_definition, sweep.job_state, timestamptz) IS 'queues runs for the missed and due moments of a job, and sets its next moment';

-- The scheduler decides about many jobs at a time and needs none of their long texts. A new setting that can be large is dropped here.
CREATE FUNCTION sweep._job_frame(name text) RETURNS sweep.job_definition
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j sweep.job_definition;
BEGIN
	-- SELECT INTO copies the pointers to large values, which are stored out of line. They are dropped before they are read.
	SELECT * INTO j FROM sweep.job_definition t WHERE t.name = _job_frame.name;
	j.sql := NULL;
	j.batch_sql := NULL;
	j.args := '{}';
	j.on_start := NULL;
	j.on_success := NULL;
	j.on_failure := NULL;
	j.description := NULL;
	RETURN j;
END
$$;
COMMENT ON FUNCTION sweep._job_frame(text) IS 'the job without its large columns: sql, batch_sql, args, hooks, description';

-- The number of jobs is limited, so that startable runs do not wait for long. The roles take turns: the oldest moment of each role
-- comes first, then the second ones. Thousands of jobs of one role do not delay the jobs of other roles.
CREATE FUNCTION sweep._enqueue_due(at timestamptz, most int) RETURNS int
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	due_job pg_catalog.record;
	state sweep.job_state;
	counted int := 0;
BEGIN
	FOR due_job IN SELECT s.job FROM (SELECT d.job, d.next_start, pg_catalog.row_number() OVER (PARTITION BY j.run_as ORDER BY d.next_start, d.job) AS nth
				FROM sweep.job_state d JOIN sweep.job_definition j ON j.name = d.job
				WHERE d.next_start <= at AND sweep._is_home(d.system_identifier, d.database) AND d.all_paused_at IS NULL
					AND NOT EXISTS (SELECT FROM sweep.control)) AS turn JOIN sweep.job_state s ON s.job = turn.job
			-- FOR UPDATE evaluates these conditions again on the row that it has locked: another session may have changed it since.
			WHERE s.next_start <= at AND s.all_paused_at IS NULL
			ORDER BY turn.nth, turn.next_start LIMIT most FOR UPDATE OF s SKIP LOCKED LOOP
		-- One job that cannot be scheduled must not keep the others from it.
		BEGIN
			SELECT * INTO state FROM sweep.job_state s WHERE s.job = due_job.job;
			state.kept_cursor := NULL;
			PERFORM sweep._enqueue_job(sweep._job_frame(due_job.job), state, at);
			counted := counted + 1;
		-- These errors concern the server or tables of all jobs: they end the tick, and the next one tries again.
		EXCEPTION WHEN insufficient_resources OR operator_intervention OR system_error OR lock_not_available OR serialization_failure OR deadlock_detected THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', due_job.job, SQLERRM;
			UPDATE sweep.job_state AS t SET next_start = at + interval '1 min' WHERE t.job = due_job.job;
			-- A damaged row (XX001, XX002) is logged, and the job is not marked as broken: its definition is not at fault.
			PERFORM sweep._set_broken(due_job.job, SQLERRM) WHERE SQLSTATE NOT IN ('XX001', 'XX002');
		END;
	END LOOP;
	RETURN counted;
END
$$;
COMMENT ON FUNCTION sweep._enqueue_due(timestamptz, int) IS 'queues a run for jobs that are due at the moment, so many at most, the roles in turn; returns how many jobs were';

CREATE FUNCTION sweep._enqueue_reboot() RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	due_job pg_catalog.record;
	seen int := 0;
	counted int := 0;
BEGIN
	SELECT pg_catalog.count(*) INTO seen FROM sweep.job_state s JOIN sweep.job_definition j ON j.name = s.job
		WHERE s.boot IS DISTINCT FROM pg_catalog.pg_postmaster_start_time() AND sweep._is_reboot(j.schedule) AND s.paused_at IS NULL
			AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL AND NOT EXISTS (SELECT FROM sweep.control);
	FOR due_job IN SELECT j.name, s.crashes FROM sweep.job_state s JOIN sweep.job_definition j ON j.name = s.job
			WHERE s.boot IS DISTINCT FROM pg_catalog.pg_postmaster_start_time() AND sweep._is_reboot(j.schedule)
				AND s.paused_at IS NULL AND sweep._is_home(s.system_identifier, s.database) AND s.all_paused_at IS NULL
				AND NOT EXISTS (SELECT FROM sweep.control) FOR UPDATE OF s SKIP LOCKED LOOP
		UPDATE sweep.job_state AS s SET boot = pg_catalog.pg_postmaster_start_time() WHERE s.job = due_job.name;
		BEGIN
			PERFORM sweep._insert_scheduled(sweep._job_frame(due_job.name), pg_catalog.clock_timestamp(), 'schedule', false), sweep._set_broken(due_job.name, sweep._crash_problem(due_job.crashes));
		EXCEPTION WHEN insufficient_resources OR operator_intervention OR system_error OR lock_not_available OR serialization_failure OR deadlock_detected THEN
			RAISE;
		WHEN OTHERS THEN
			RAISE WARNING 'job "%" could not be scheduled: %', due_job.name, SQLERRM;
			PERFORM sweep._set_broken(due_job.name, SQLERRM) WHERE SQLSTATE NOT IN ('XX001', 'XX002');
		END;
		counted := counted + 1;
	END LOOP;
	RETURN counted >= seen;
END
$$;
COMMENT ON FUNCTION sweep._enqueue_reboot() IS 'queues the @reboot jobs, once per start of the server; false when another session has locked some of them';
