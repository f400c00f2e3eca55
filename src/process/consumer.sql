--
-- Consumers in the database: background workers that call a function for each
-- message of a queue, or for each batch of them.
--
-- A row says how many processes are wanted; the scheduler keeps so many (consumer_pool.c), each connected as run_as
-- (consumer.c). The changes of a handler and the acknowledgement of its message are one commit. A queue has one
-- consumer at most: more processes are its concurrency.
--
-- No table here has a foreign key: a restore with several jobs copies the tables in any order, and a row that came
-- before the row it refers to would be lost. A consumer without its queue is broken until the queue is there.
--
CREATE TABLE sweep.consumer (
	consumer_id int GENERATED ALWAYS AS IDENTITY,
	queue_id    int NOT NULL,
	handler     text NOT NULL,
	run_as      text NOT NULL,
	concurrency int NOT NULL,
	batch       int NOT NULL,
	paused_at   timestamptz,
	-- as in sweep.job_state
	system_identifier bigint NOT NULL DEFAULT 0,
	database          oid NOT NULL DEFAULT 0,
	all_paused_at     timestamptz,
	CONSTRAINT consumer_pkey PRIMARY KEY (consumer_id),
	CONSTRAINT consumer_queue_key UNIQUE (queue_id),
	CONSTRAINT consumer_concurrency_check CHECK (concurrency BETWEEN 1 AND 1000),
	CONSTRAINT consumer_handler_check CHECK (pg_catalog.octet_length(handler) <= 1024),
	CONSTRAINT consumer_batch_check CHECK (batch BETWEEN 1 AND 10000)
);
COMMENT ON TABLE sweep.consumer IS 'the consumers in the database; sweep.create_consumer adds one';
COMMENT ON COLUMN sweep.consumer.consumer_id IS 'never used again, so that a process notices when its consumer was replaced';
COMMENT ON COLUMN sweep.consumer.queue_id IS 'the queue whose messages it handles';
COMMENT ON COLUMN sweep.consumer.handler IS 'the function that is called with each message or with a batch of them, by name';
COMMENT ON COLUMN sweep.consumer.run_as IS 'name of the role its processes are connected as';
COMMENT ON COLUMN sweep.consumer.concurrency IS 'how many processes';
COMMENT ON COLUMN sweep.consumer.batch IS 'how many messages a process handles in one transaction';
COMMENT ON COLUMN sweep.consumer.paused_at IS 'since when it is paused; NULL: it is not';
COMMENT ON COLUMN sweep.consumer.system_identifier IS 'cluster and extension that it belongs to';
COMMENT ON COLUMN sweep.consumer.database IS 'database that it belongs to: in a copy of the database it is paused until sweep.resume_all() is called there';
COMMENT ON COLUMN sweep.consumer.all_paused_at IS 'since when it is paused together with all others; NULL: it is not, or was created since';

-- A message that was being handled when the server went down may be the reason, so crashes are counted separately
-- from attempts: see crash_note.c.
CREATE TABLE sweep.consumer_crash (
	queue_id   int NOT NULL,
	message_id bigint NOT NULL,
	crashes    int NOT NULL,
	last_at    timestamptz NOT NULL,
	CONSTRAINT consumer_crash_pkey PRIMARY KEY (queue_id, message_id)
);
COMMENT ON TABLE sweep.consumer_crash IS 'messages that were being handled by a consumer in the database when the server went down';
COMMENT ON COLUMN sweep.consumer_crash.queue_id IS 'the queue it is in';
COMMENT ON COLUMN sweep.consumer_crash.message_id IS 'the message';
COMMENT ON COLUMN sweep.consumer_crash.crashes IS 'how often; with the third it is moved to the dead-letter table';
COMMENT ON COLUMN sweep.consumer_crash.last_at IS 'the last time';

SELECT pg_catalog.pg_extension_config_dump('sweep.consumer', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.consumer_consumer_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.consumer_crash', '');

CREATE TRIGGER consumer_changed AFTER INSERT OR UPDATE OR DELETE ON sweep.consumer
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._wake_for_change();

-- ------------------------------------------------------------------ is it right?
CREATE FUNCTION sweep._find_handlers(name text) RETURNS regprocedure[]
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts pg_catalog.text[];
BEGIN
	parts := pg_catalog.parse_ident(name);
	IF pg_catalog.cardinality(parts) IS DISTINCT FROM 2 THEN
		RETURN '{}';
	END IF;
	RETURN ARRAY(SELECT p.oid::pg_catalog.regprocedure FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		WHERE p.proname = parts[2] AND n.nspname = parts[1] AND p.prokind = 'f' AND p.pronargs = 1 AND p.provariadic = 0
			AND p.proargtypes[0] IN ('sweep.message'::pg_catalog.regtype, 'sweep.message[]'::pg_catalog.regtype));
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN '{}';
END
$$;
COMMENT ON FUNCTION sweep._find_handlers(text) IS 'the functions of one sweep.message or sweep.message[] that a text names; a handler must be the only one';

-- With two such functions the call would be ambiguous, because it is resolved by the type of the argument.
CREATE FUNCTION sweep._handler_problem(name text) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found constant int := pg_catalog.cardinality(sweep._find_handlers(name));
BEGIN
	RETURN CASE found
		WHEN 0 THEN pg_catalog.format('function %s(sweep.message) or (sweep.message[]) does not exist', coalesce(name, '<NULL>'))
		WHEN 2 THEN pg_catalog.format('function %s is not unique: there is one of sweep.message and one of sweep.message[]', name)
	END;
END
$$;
COMMENT ON FUNCTION sweep._handler_problem(text) IS 'why a text does not name a handler; NULL when it does';

CREATE FUNCTION sweep._consumer_problem(consumer sweep.consumer) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	problem pg_catalog.text := sweep._role_problem(consumer.run_as, true);
BEGIN
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	problem := sweep._handler_problem(consumer.handler);
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	RETURN sweep._execute_problem(consumer.run_as, (sweep._find_handlers(consumer.handler))[1]);
END
$$;
COMMENT ON FUNCTION sweep._consumer_problem(sweep.consumer) IS 'why the consumer cannot work; NULL when no problem is known';

CREATE FUNCTION sweep._check_consumer_right(caller oid, queue text, consumer sweep.consumer, operators boolean) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner pg_catalog.text := (SELECT q.owner FROM sweep.queue q WHERE q.queue_id = consumer.queue_id);
BEGIN
	IF consumer.consumer_id IS NULL THEN
		RAISE EXCEPTION 'queue "%" has no consumer', _check_consumer_right.queue
			USING ERRCODE = 'undefined_object', HINT = 'The view sweep.consumers lists the consumers of this database.';
	END IF;
	IF NOT (sweep._may_act_on(caller, consumer.run_as, operators) OR sweep._acts_for(caller, owner)) THEN
		RAISE EXCEPTION 'permission denied for the consumer of queue "%"', _check_consumer_right.queue
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('Members of %s%s and sweep_admin may do this.',
					pg_catalog.concat_ws(', ', pg_catalog.quote_ident(consumer.run_as), pg_catalog.quote_ident(nullif(owner, consumer.run_as))),
					CASE WHEN operators THEN ', sweep_operator' ELSE '' END);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_consumer_right(oid, text, sweep.consumer, boolean) IS 'raises unless the consumer exists and the caller may change it';

-- Rights are checked on the consumer after it is locked, as in sweep._lock_job().
CREATE FUNCTION sweep._lock_consumer(caller oid, queue text, operators boolean) RETURNS sweep.consumer
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	consumer sweep.consumer;
BEGIN
	SELECT c.* INTO consumer FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE q.name = _lock_consumer.queue;
	PERFORM sweep._check_consumer_right(caller, queue, consumer, operators);
	SELECT c.* INTO consumer FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE q.name = _lock_consumer.queue FOR UPDATE OF c;
	PERFORM sweep._check_consumer_right(caller, queue, consumer, operators);
	RETURN consumer;
END
$$;
COMMENT ON FUNCTION sweep._lock_consumer(oid, text, boolean) IS 'locks the consumer of the queue and returns it; raises unless the caller may change it';

-- ------------------------------------------------------------------ what it executes
CREATE FUNCTION sweep._check_consumer_sizes(consumer sweep.consumer) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- as in the CHECK constraints
	most_processes constant int := 1000;
	most_messages  constant int := 10000;
BEGIN
	IF (consumer.concurrency BETWEEN 1 AND most_processes) IS NOT TRUE OR (consumer.batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid % %', CASE WHEN (consumer.batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN 'batch' ELSE 'concurrency' END,
				CASE WHEN (consumer.batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN consumer.batch ELSE consumer.concurrency END
			USING ERRCODE = 'invalid_parameter_value',
				HINT = pg_catalog.format('concurrency is a number of processes from 1 to %s, batch one of messages from 1 to %s.', most_processes, most_messages);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._check_consumer_sizes(sweep.consumer) IS 'raises unless the number of processes and the size of a batch are allowed';

-- Checks a consumer that its role is to execute. Returns it with the name of the handler in the form that is stored.
CREATE FUNCTION sweep._check_consumer(caller oid, queue text, consumer sweep.consumer) RETURNS sweep.consumer
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name     constant pg_catalog.text := consumer.run_as;
	problem  pg_catalog.text;
	function pg_catalog.regprocedure;
	owned_by pg_catalog.text;
BEGIN
	IF pg_catalog.octet_length(consumer.handler) > 1024 THEN
		RAISE EXCEPTION 'handler is too large: % bytes', pg_catalog.octet_length(consumer.handler)
			USING ERRCODE = 'program_limit_exceeded', HINT = 'It may have 1024 bytes.';
	END IF;
	problem := sweep._handler_problem(consumer.handler);
	function := (sweep._find_handlers(consumer.handler))[1];
	IF NOT sweep._can_become(caller, name) THEN
		RAISE EXCEPTION 'permission denied to consume queue "%" as role %', _check_consumer.queue, pg_catalog.quote_ident(name)
			USING ERRCODE = 'insufficient_privilege', HINT = 'run_as must be a role that you could SET ROLE to.';
	END IF;
	PERFORM sweep._check_consumer_sizes(consumer);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION '%', problem
			USING ERRCODE = CASE WHEN function IS NULL THEN 'undefined_function' ELSE 'ambiguous_function' END,
				HINT = CASE WHEN function IS NULL THEN 'A handler is named with its schema and is a function(sweep.message), or a function(sweep.message[]) '
						'that is called once for a batch; what it returns is ignored.'
					ELSE 'Drop or rename the one that is not meant.' END;
	END IF;
	PERFORM sweep._find_queue(sweep._role_oid(name), _check_consumer.queue, 'consume');
	owned_by := sweep._owner_problem(name, function);
	IF owned_by IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _check_consumer.queue, owned_by
			USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its owner decides what is executed as that role.',
				HINT = pg_catalog.format('ALTER FUNCTION %s OWNER TO %I gives it to the role of the consumer.', function, name);
	END IF;
	consumer.handler := (SELECT pg_catalog.format('%I.%I', n.nspname, p.proname)
		FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = function);
	problem := sweep._consumer_problem(consumer);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _check_consumer.queue, problem
			USING ERRCODE = 'insufficient_privilege',
				HINT = pg_catalog.format('The role needs LOGIN (before version 17), CONNECT on the database, membership in sweep_user '
					'and EXECUTE on the handler: see ALTER ROLE %I LOGIN and GRANT.', name);
	END IF;
	RETURN consumer;
END
$$;
COMMENT ON FUNCTION sweep._check_consumer(oid, text, sweep.consumer) IS 'raises unless the caller may create this consumer for the queue; returns the consumer as it is stored';

-- A process has read the handler, its role and the size of a batch when it started. With a new id the existing processes end after
-- the messages that they are handling, and new ones begin.
CREATE FUNCTION sweep._change_consumer(old sweep.consumer, consumer sweep.consumer) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Without a change no row is written.
	IF consumer IS NOT DISTINCT FROM old THEN
		RETURN;
	END IF;
	UPDATE sweep.consumer AS c SET handler = consumer.handler, run_as = consumer.run_as, concurrency = consumer.concurrency, batch = consumer.batch,
			paused_at = consumer.paused_at
		WHERE c.consumer_id = old.consumer_id;
	IF (consumer.handler, consumer.run_as, consumer.batch) IS DISTINCT FROM (old.handler, old.run_as, old.batch) THEN
		UPDATE sweep.consumer AS c SET consumer_id = DEFAULT WHERE c.consumer_id = old.consumer_id;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._change_consumer(sweep.consumer, sweep.consumer) IS 'changes a locked consumer to the other row; a batch in progress is finished with the old definition';

-- ------------------------------------------------------------------ create, alter, drop, pause
CREATE FUNCTION sweep._create_consumer(caller oid, queue text, handler text, concurrency int, batch int, run_as regrole, replace boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id       int;
	old      sweep.consumer;
	consumer sweep.consumer;
BEGIN
	PERFORM sweep._require_workers();
	id := (sweep._find_queue(caller, _create_consumer.queue, 'consume')).queue_id;
	consumer := sweep._check_consumer(caller, queue, ROW(0, id, handler, sweep._role_name(coalesce(run_as, caller)), concurrency, batch, NULL, 0, 0, NULL));
	-- The lock keeps the queue from being dropped before the consumer, which would be dropped with it, is visible.
	PERFORM FROM sweep.queue q WHERE q.queue_id = id FOR KEY SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" does not exist', _create_consumer.queue
			USING ERRCODE = 'undefined_object', HINT = 'It has just been dropped.';
	END IF;
	INSERT INTO sweep.consumer (queue_id, handler, run_as, concurrency, batch, system_identifier, database)
		SELECT id, consumer.handler, consumer.run_as, consumer.concurrency, consumer.batch, sweep._system_identifier(), d.oid
			FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
		ON CONFLICT ON CONSTRAINT consumer_queue_key DO NOTHING;
	IF FOUND THEN
		RETURN;
	END IF;
	IF NOT coalesce(replace, false) THEN
		RAISE EXCEPTION 'queue "%" already has a consumer', _create_consumer.queue
			USING ERRCODE = 'duplicate_object', HINT = 'More processes are its concurrency: sweep.alter_consumer changes it; replace => true gives it this definition.';
	END IF;
	old := sweep._lock_consumer(caller, queue, false);
	PERFORM sweep._change_consumer(old, ROW(old.consumer_id, old.queue_id, consumer.handler, consumer.run_as, consumer.concurrency, consumer.batch, old.paused_at,
		old.system_identifier, old.database, old.all_paused_at));
END
$$;
COMMENT ON FUNCTION sweep._create_consumer(oid, text, text, int, int, regrole, boolean) IS 'implements sweep.create_consumer';

CREATE FUNCTION sweep.create_consumer(queue text, handler text, concurrency int DEFAULT 1, batch int DEFAULT 1, run_as regrole DEFAULT NULL, replace boolean DEFAULT false)
	RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_consumer(text, text, int, int, regrole, boolean) IS 'has background workers call handler(sweep.message) for each message of the queue, or handler(sweep.message[]) for each batch of them; its effect and the acknowledgement are one commit; with replace gives an existing consumer this definition, and leaves alone whether it is paused';

CREATE FUNCTION sweep._alter_consumer(caller oid, queue text, changes jsonb) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old      sweep.consumer := sweep._lock_consumer(caller, queue, false);
	consumer sweep.consumer := old;
	paused   boolean;
	word     pg_catalog.text;
BEGIN
	PERFORM sweep._check_changes(changes, '{handler,concurrency,batch,run_as,paused}', '{"concurrency": 4}');
	FOR word IN SELECT pg_catalog.jsonb_object_keys(changes) LOOP
		IF changes -> word = 'null' THEN
			RAISE EXCEPTION '% must not be null', word USING ERRCODE = 'null_value_not_allowed', HINT = 'Leave it out to keep what it is.';
		END IF;
		BEGIN
			CASE word
				WHEN 'paused' THEN paused := (changes ->> word)::boolean;
				WHEN 'run_as' THEN consumer.run_as := sweep._role_name((changes ->> word)::pg_catalog.regrole);
				ELSE consumer := pg_catalog.jsonb_populate_record(consumer, pg_catalog.jsonb_build_object(word, changes -> word));
			END CASE;
		EXCEPTION WHEN data_exception OR syntax_error_or_access_rule_violation THEN
			PERFORM sweep._refuse_change(changes, word, SQLERRM, 'sweep.create_consumer');
		END;
	END LOOP;
	-- An unchanged handler and role are not checked, so that a broken consumer can be paused, and one with a role
	-- that the owner of the queue cannot SET ROLE to.
	IF (consumer.handler, consumer.run_as) IS DISTINCT FROM (old.handler, old.run_as) THEN
		consumer := sweep._check_consumer(caller, queue, consumer);
	ELSE
		PERFORM sweep._check_consumer_sizes(consumer);
	END IF;
	consumer.paused_at := CASE WHEN paused THEN coalesce(old.paused_at, pg_catalog.now()) WHEN paused IS NULL THEN old.paused_at END;
	PERFORM sweep._change_consumer(old, consumer);
END
$$;
COMMENT ON FUNCTION sweep._alter_consumer(oid, text, jsonb) IS 'implements sweep.alter_consumer';

CREATE FUNCTION sweep.alter_consumer(queue text, changes jsonb) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.alter_consumer(text, jsonb) IS 'changes a consumer: keys are handler, concurrency, batch, run_as and paused; what its processes are handling is finished as it was begun';

CREATE FUNCTION sweep._drop_consumer(caller oid, queue text, if_exists boolean) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int;
BEGIN
	IF if_exists AND NOT EXISTS (SELECT FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE q.name = _drop_consumer.queue) THEN
		RAISE NOTICE 'queue "%" has no consumer, skipping', _drop_consumer.queue;
		RETURN;
	END IF;
	id := (sweep._lock_consumer(caller, _drop_consumer.queue, false)).consumer_id;
	DELETE FROM sweep.consumer c WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._drop_consumer(oid, text, boolean) IS 'implements sweep.drop_consumer';

CREATE FUNCTION sweep.drop_consumer(queue text, if_exists boolean DEFAULT false) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_consumer(text, boolean) IS 'removes the consumer of the queue; what its processes are handling is finished first, the queue and its messages stay; with if_exists a queue without one is a NOTICE';

CREATE FUNCTION sweep._pause_consumer(caller oid, queue text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._lock_consumer(caller, queue, true)).consumer_id;
BEGIN
	UPDATE sweep.consumer AS c SET paused_at = coalesce(c.paused_at, pg_catalog.now()) WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._pause_consumer(oid, text) IS 'implements sweep.pause_consumer';

CREATE FUNCTION sweep.pause_consumer(queue text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.pause_consumer(text) IS 'ends the processes of the consumer once they have finished what they are handling';

CREATE FUNCTION sweep._resume_consumer(caller oid, queue text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._lock_consumer(caller, queue, true)).consumer_id;
BEGIN
	UPDATE sweep.consumer AS c SET paused_at = NULL WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._resume_consumer(oid, text) IS 'implements sweep.resume_consumer';

CREATE FUNCTION sweep.resume_consumer(queue text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.resume_consumer(text) IS 'starts the processes of the consumer again';

-- ------------------------------------------------------------------ what the processes ask
CREATE FUNCTION sweep._wanted_consumers() RETURNS TABLE (consumer_id int, queue text, run_as oid, concurrency int)
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT c.consumer_id, q.name, sweep._role_oid(c.run_as), CASE WHEN sweep._consumer_problem(c) IS NULL THEN c.concurrency ELSE 0 END
		FROM sweep.consumer c JOIN sweep.queue q USING (queue_id)
		WHERE c.paused_at IS NULL AND c.all_paused_at IS NULL AND sweep._is_home(c.system_identifier, c.database)
			AND NOT EXISTS (SELECT FROM sweep.control)
		ORDER BY c.consumer_id;
END
$$;
COMMENT ON FUNCTION sweep._wanted_consumers() IS 'the consumers that are not paused, and how many processes each should have: none while there is a problem';

-- Commits with a wait for the disk: the next crash may follow at once. The server may have gone down between the
-- commit of a message and the note that it is done, so a message that is no longer in the queue is no suspect.
CREATE FUNCTION sweep._count_crash(queue_id int, message_ids bigint[]) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	known int := (SELECT pg_catalog.count(*) FROM sweep.consumer_crash c WHERE c.queue_id = _count_crash.queue_id AND c.message_id = ANY (message_ids));
	free int;
BEGIN
	PERFORM pg_catalog.set_config('synchronous_commit', 'local', true);
	DELETE FROM sweep.consumer_crash AS c USING (SELECT o.queue_id, o.message_id FROM sweep.consumer_crash o
			WHERE o.last_at < pg_catalog.now() - interval '30 days' FOR UPDATE SKIP LOCKED) AS old
		WHERE c.queue_id = old.queue_id AND c.message_id = old.message_id;
	-- A session that is dropping the queue, or a prepared transaction that has locked these rows, must not delay the
	-- scheduler.
	PERFORM FROM sweep.consumer_crash c WHERE c.queue_id = _count_crash.queue_id AND c.message_id = ANY (message_ids) FOR UPDATE SKIP LOCKED;
	GET DIAGNOSTICS free = ROW_COUNT;
	PERFORM FROM sweep.queue q WHERE q.queue_id = _count_crash.queue_id FOR KEY SHARE SKIP LOCKED;
	IF NOT FOUND OR free < known THEN
		RETURN NOT EXISTS (SELECT FROM sweep.queue q WHERE q.queue_id = _count_crash.queue_id);
	END IF;
	-- The whole primary key is needed: without the lane each id would be searched among all messages of the queue.
	INSERT INTO sweep.consumer_crash AS c (queue_id, message_id, crashes, last_at)
		SELECT _count_crash.queue_id, m.message_id, 1, pg_catalog.now()
		FROM pg_catalog.generate_series(0, 100, 100) AS delayed, pg_catalog.generate_series(-8, 7) AS priority,
			LATERAL (SELECT l.lane FROM sweep.queue_message l
				WHERE l.queue_id = _count_crash.queue_id AND l.lane = (delayed + priority)::smallint LIMIT 1) AS used,
			pg_catalog.unnest(message_ids) AS i (id),
			LATERAL (SELECT o.message_id FROM sweep.queue_message o
				WHERE o.queue_id = _count_crash.queue_id AND o.lane = used.lane AND o.message_id = i.id LIMIT 1) AS m
		ON CONFLICT (queue_id, message_id) DO UPDATE SET crashes = c.crashes + 1, last_at = excluded.last_at;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._count_crash(int, bigint[]) IS 'counts a crash of the server while a consumer handled these messages; false when that failed because another transaction has locked them';

-- ------------------------------------------------------------------ what an operator reads
CREATE FUNCTION sweep._consumer_processes(OUT consumer_id int, OUT pid int, OUT handled bigint, OUT failed bigint,
	OUT started_at timestamptz, OUT last_error text)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_consumer_shared_list';
COMMENT ON FUNCTION sweep._consumer_processes() IS 'the processes of consumers in this database, from shared memory';

-- Each sub-select has a column, because Citus cannot plan one without columns together with a distributed table.
CREATE VIEW sweep.consumers WITH (security_barrier) AS
	SELECT q.name AS queue, c.handler, c.run_as, c.concurrency, c.batch,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN NOT sweep._is_home(c.system_identifier, c.database) THEN 'paused: the database is a copy'
			WHEN c.all_paused_at IS NOT NULL OR EXISTS (SELECT 1 FROM sweep.control) THEN 'paused: by pause_all'
			WHEN c.paused_at IS NOT NULL THEN 'paused'
			WHEN obstacle.reason IS NOT NULL THEN 'no_scheduler: ' || obstacle.reason
			WHEN p.workers >= c.concurrency THEN 'running'
			ELSE 'waiting_for_slot'
		END AS state,
		p.workers, p.handled, p.failed, p.last_error
	FROM sweep.consumer c
		LEFT JOIN sweep.queue q USING (queue_id)
		CROSS JOIN sweep._no_scheduler() AS obstacle (reason)
		CROSS JOIN LATERAL (SELECT CASE WHEN q.name IS NULL THEN pg_catalog.format('queue %s does not exist', c.queue_id)
			ELSE sweep._consumer_problem(c) END AS reason) AS problem
		CROSS JOIN LATERAL (SELECT pg_catalog.count(*)::int AS workers, least(coalesce(pg_catalog.sum(l.handled), 0), 9223372036854775807)::bigint AS handled,
				least(coalesce(pg_catalog.sum(l.failed), 0), 9223372036854775807)::bigint AS failed, pg_catalog.max(l.last_error) AS last_error
			FROM sweep._consumer_processes() l WHERE l.consumer_id = c.consumer_id) AS p
	WHERE sweep._may_see(c.run_as)
	OFFSET 0;
COMMENT ON VIEW sweep.consumers IS 'consumers in the database with their processes';
COMMENT ON COLUMN sweep.consumers.queue IS 'the queue whose messages it handles; NULL when the queue does not exist, as during a restore';
COMMENT ON COLUMN sweep.consumers.handler IS 'the function that is called with each message or with a batch of them';
COMMENT ON COLUMN sweep.consumers.run_as IS 'the role it runs as';
COMMENT ON COLUMN sweep.consumers.concurrency IS 'how many processes are wanted';
COMMENT ON COLUMN sweep.consumers.batch IS 'messages per transaction';
COMMENT ON COLUMN sweep.consumers.state IS 'running, no_scheduler: and why none works in this database, waiting_for_slot (fewer processes than wanted), paused: and by what, or broken: and why';
COMMENT ON COLUMN sweep.consumers.workers IS 'how many processes there are';
COMMENT ON COLUMN sweep.consumers.handled IS 'messages handled by these processes';
COMMENT ON COLUMN sweep.consumers.failed IS 'messages that failed in these processes';
COMMENT ON COLUMN sweep.consumers.last_error IS 'last error of one of these processes';
