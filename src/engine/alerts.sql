--
-- Alerts: messages about jobs that failed or are broken, sent in the commit that records the event.
--
-- An alert is sent to the alert_queue of the job if its role may send there, otherwise to pg_sweep.alert_queue in the
-- databases that have such a queue. If an alert cannot be sent, there is a WARNING and the event is recorded
-- nevertheless. Sending waits for no session.
--
CREATE FUNCTION sweep._send_alert(job text, alert jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	j pg_catalog.record;
	target sweep.queue;
	sees boolean;
	problem pg_catalog.text;
BEGIN
	SELECT k.alert_queue AS own, k.run_as, coalesce(k.alert_queue, pg_catalog.current_setting('pg_sweep.alert_queue')) AS queue, s.alert_queue_owner INTO j
		FROM sweep.job_definition k LEFT JOIN sweep.job_state s ON s.job = k.name WHERE k.name = _send_alert.job;
	IF coalesce(j.queue, '') = '' THEN
		RETURN;
	END IF;
	SELECT q.* INTO target FROM sweep.queue q WHERE q.name = j.queue;
	IF target.queue_id IS NULL AND j.own IS NULL THEN
		RETURN;
	END IF;
	sees := sweep._may_act_on(sweep._role_oid(target.owner), j.run_as, true) OR sweep._acts_for(sweep._role_oid(target.owner), 'sweep_monitor');
	problem := CASE WHEN target.queue_id IS NULL THEN 'it does not exist'
		-- A role that creates a queue under a name that was given up must not get the alerts for the old queue.
		WHEN target.owner IS DISTINCT FROM j.alert_queue_owner AND j.own IS NOT NULL AND sees IS NOT TRUE
			THEN pg_catalog.format('it is now of role "%s": sweep.alter_job can name it again', target.owner)
		WHEN j.own IS NOT NULL AND NOT sweep._may_use_queue(sweep._role_oid(j.run_as), target, 'send') THEN 'the role of the job may not send to it'
		-- Any role may own a queue of that name, and its owner reads the alerts.
		WHEN j.own IS NULL AND sees IS NOT TRUE
			THEN pg_catalog.format('role "%s", which owns it, may not see the runs of the job', target.owner)
		ELSE sweep._try_send(target.queue_id, target.name, alert) END;
	IF problem IS NOT NULL THEN
		RAISE WARNING 'alert of job "%" could not be sent to queue "%": %', job, j.queue, problem;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._send_alert(text, jsonb) IS 'sends an alert to the alert_queue of the job or of the server, if there is one';

CREATE FUNCTION sweep._alert_failed(run_id bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r pg_catalog.record;
BEGIN
	SELECT l.job, l.run_id, l.status, l.sqlstate, l.error, l.finished_at INTO r
		FROM sweep.run_live l JOIN sweep.job_definition j ON j.name = l.job AND j.run_as = l.run_as
		WHERE l.run_id = _alert_failed.run_id AND l.status IN ('failed', 'lost')
			AND NOT EXISTS (SELECT FROM sweep.run_live t WHERE t.parent_run_id = l.run_id AND t.trigger = 'retry');
	IF FOUND THEN
		PERFORM sweep._send_alert(r.job, pg_catalog.jsonb_build_object('kind', 'failed', 'severity', 'error', 'job', r.job, 'run_id', r.run_id,
			'text', pg_catalog.format(CASE r.status WHEN 'lost' THEN 'run %s of job "%s" was lost' ELSE 'run %s of job "%s" failed: %s' END,
				r.run_id, r.job, sweep._error_message(r.error)),
			'hint', CASE r.status WHEN 'lost' THEN 'Its process ended without an outcome: the server log says why.'
				ELSE pg_catalog.format('SELECT error FROM sweep.runs WHERE run_id = %s shows all of the error.', r.run_id) END,
			'status', r.status, 'sqlstate', r.sqlstate, 'since', r.finished_at, 'ended', false));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._alert_failed(bigint) IS 'sends an alert about a run that has failed or was lost and is not tried again';

CREATE FUNCTION sweep._set_broken(job text, problem text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	UPDATE sweep.job_state AS s SET broken = problem WHERE s.job = _set_broken.job AND s.broken IS DISTINCT FROM problem;
	IF FOUND THEN
		PERFORM sweep._send_alert(job, pg_catalog.jsonb_build_object('kind', 'broken', 'severity', 'error', 'job', job, 'run_id', NULL,
			'text', CASE WHEN problem IS NULL THEN pg_catalog.format('job "%s" is no longer broken', job) ELSE pg_catalog.format('job "%s" is broken: %s', job, problem) END,
			'hint', CASE WHEN problem IS NOT NULL THEN 'Mend what the text names, or change the job with sweep.alter_job.' END,
			'since', pg_catalog.clock_timestamp(), 'ended', problem IS NULL));
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._set_broken(text, text) IS 'notes why a job cannot be started, or (NULL) that it can, and sends an alert when that has changed';

CREATE FUNCTION sweep._check_alert_queue(job sweep.job_definition) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN job.alert_queue IS NOT NULL THEN (sweep._find_queue(sweep._role_oid(job.run_as), job.alert_queue, 'send')).owner END;
END
$$;
COMMENT ON FUNCTION sweep._check_alert_queue(sweep.job_definition) IS 'raises unless the role of the job may send to its alert_queue; returns the owner of the queue';
