--
-- Consumers in the database: background workers that call a function for each
-- message of a queue.
--
-- A row says what is wanted; the scheduler keeps as many processes as that
-- (src/consumer_pool.c), each connected as run_as (src/consumer.c).  What a
-- handler does and the acknowledgement of its message are one commit.  A
-- queue has one consumer at most: more processes are its concurrency.
--
CREATE TABLE sweep.consumer (
	consumer_id int GENERATED ALWAYS AS IDENTITY,
	queue_id    int NOT NULL REFERENCES sweep.queue (queue_id) ON DELETE CASCADE,
	handler     text NOT NULL,
	run_as      regrole NOT NULL,
	concurrency int NOT NULL,
	batch       int NOT NULL,
	paused_at   timestamptz,
	CONSTRAINT consumer_pkey PRIMARY KEY (consumer_id),
	CONSTRAINT consumer_queue_key UNIQUE (queue_id),
	CONSTRAINT consumer_concurrency_check CHECK (concurrency BETWEEN 1 AND 1000),
	CONSTRAINT consumer_batch_check CHECK (batch BETWEEN 1 AND 10000)
);
COMMENT ON TABLE sweep.consumer IS 'the consumers in the database; sweep.create_consumer adds one';
COMMENT ON COLUMN sweep.consumer.consumer_id IS 'never used again, so that a process knows whether it is still meant';
COMMENT ON COLUMN sweep.consumer.queue_id IS 'the queue it empties';
COMMENT ON COLUMN sweep.consumer.handler IS 'the function that is called with each message, by name';
COMMENT ON COLUMN sweep.consumer.run_as IS 'the role its processes are connected as';
COMMENT ON COLUMN sweep.consumer.concurrency IS 'how many processes';
COMMENT ON COLUMN sweep.consumer.batch IS 'how many messages a process handles in one transaction';
COMMENT ON COLUMN sweep.consumer.paused_at IS 'since when it is paused; NULL: it is not';

-- A message in whose handling the server went down may be the reason for it,
-- so it is counted apart from its attempts: see src/consumer_note.c.
CREATE TABLE sweep.consumer_crash (
	queue_id   int NOT NULL REFERENCES sweep.queue (queue_id) ON DELETE CASCADE,
	message_id bigint NOT NULL,
	crashes    int NOT NULL,
	last_at    timestamptz NOT NULL,
	CONSTRAINT consumer_crash_pkey PRIMARY KEY (queue_id, message_id)
);
COMMENT ON TABLE sweep.consumer_crash IS 'messages that were being handled by a consumer in the database when the server went down';
COMMENT ON COLUMN sweep.consumer_crash.queue_id IS 'the queue it is in';
COMMENT ON COLUMN sweep.consumer_crash.message_id IS 'the message';
COMMENT ON COLUMN sweep.consumer_crash.crashes IS 'how often; with the third it is put among the dead';
COMMENT ON COLUMN sweep.consumer_crash.last_at IS 'the last time';

SELECT pg_catalog.pg_extension_config_dump('sweep.consumer', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.consumer_consumer_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sweep.consumer_crash', '');

CREATE FUNCTION sweep._consumer_changed() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._wake();
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._consumer_changed() IS 'has the scheduler look at the consumers, also when they go with their queue';
CREATE TRIGGER consumer_changed AFTER INSERT OR UPDATE OR DELETE ON sweep.consumer
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._consumer_changed();
-- whether there is a queue that wants notifications
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE ON sweep.queue
	FOR EACH STATEMENT EXECUTE FUNCTION sweep._consumer_changed();

-- ------------------------------------------------------------------ is it right?
CREATE FUNCTION sweep._find_handler(name text) RETURNS regprocedure
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts text[];
BEGIN
	parts := parse_ident(name);
	IF cardinality(parts) IS DISTINCT FROM 2 THEN
		RETURN NULL;
	END IF;
	RETURN (SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE p.proname = parts[2] AND n.nspname = parts[1] AND p.prokind = 'f'
			AND p.pronargs = 1 AND p.proargtypes[0] = 'sweep.message'::regtype);
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._find_handler(text) IS 'the function of one sweep.message that a text names; NULL when there is none';

CREATE FUNCTION sweep._consumer_problem(consumer sweep.consumer) RETURNS text
	LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role    constant oid := consumer.run_as;
	problem constant text := sweep._role_problem(role);
	handler constant regprocedure := sweep._find_handler(consumer.handler);
BEGIN
	IF problem IS NOT NULL THEN
		RETURN problem;
	END IF;
	IF NOT (pg_has_role(role, 'sweep_user', 'USAGE') OR pg_has_role(role, 'sweep_admin', 'USAGE')) THEN
		RETURN format('role "%s" is not a member of sweep_user', pg_get_userbyid(role));
	END IF;
	IF handler IS NULL THEN
		RETURN format('function %s(sweep.message) does not exist', consumer.handler);
	END IF;
	IF NOT has_function_privilege(role, handler, 'EXECUTE') OR NOT has_schema_privilege(role,
			(SELECT p.pronamespace FROM pg_proc p WHERE p.oid = handler), 'USAGE') THEN
		RETURN format('role "%s" may not execute function %s', pg_get_userbyid(role), handler);
	END IF;
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION sweep._consumer_problem(sweep.consumer) IS 'why the consumer cannot work; NULL when nothing is known to stand in the way';

CREATE FUNCTION sweep._find_consumer(caller oid, queue text, operators boolean) RETURNS sweep.consumer
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	consumer sweep.consumer;
	owner    regrole;
BEGIN
	SELECT c.* INTO consumer FROM sweep.consumer c JOIN sweep.queue q USING (queue_id) WHERE q.name = _find_consumer.queue;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" has no consumer', _find_consumer.queue
			USING ERRCODE = 'undefined_object', HINT = 'The view sweep.consumers lists the consumers of this database.';
	END IF;
	SELECT q.owner INTO owner FROM sweep.queue q WHERE q.queue_id = consumer.queue_id;
	IF NOT (pg_has_role(caller, consumer.run_as, 'MEMBER') OR pg_has_role(caller, owner, 'MEMBER') OR pg_has_role(caller, 'sweep_admin', 'MEMBER')
			OR operators AND pg_has_role(caller, 'sweep_operator', 'MEMBER')) THEN
		RAISE EXCEPTION 'permission denied for the consumer of queue "%"', _find_consumer.queue
			USING ERRCODE = 'insufficient_privilege',
				HINT = format('Members of %s%s and sweep_admin may do this.', concat_ws(', ', consumer.run_as, nullif(owner, consumer.run_as)),
					CASE WHEN operators THEN ', sweep_operator' ELSE '' END);
	END IF;
	RETURN consumer;
END
$$;
COMMENT ON FUNCTION sweep._find_consumer(oid, text, boolean) IS 'the consumer of the queue, if the caller may act on it';

-- ------------------------------------------------------------------ create, drop, pause
CREATE FUNCTION sweep._create_consumer(caller oid, queue text, handler text, concurrency int, batch int, run_as regrole) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role     oid := coalesce(run_as, caller::regrole);
	id       int := (sweep._find_queue(caller, _create_consumer.queue, 'consume')).queue_id;
	consumer sweep.consumer;
	problem  text;
	-- as in the CHECK constraints
	most_processes constant int := 1000;
	most_messages  constant int := 10000;
BEGIN
	PERFORM sweep._require_workers();
	IF NOT sweep._can_become(caller, role) THEN
		RAISE EXCEPTION 'permission denied to consume queue "%" as role %', _create_consumer.queue, role::regrole
			USING ERRCODE = 'insufficient_privilege', HINT = 'run_as must be a role that you could SET ROLE to.';
	END IF;
	IF (concurrency BETWEEN 1 AND most_processes) IS NOT TRUE OR (batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid % %', CASE WHEN (batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN 'batch' ELSE 'concurrency' END,
				CASE WHEN (batch BETWEEN 1 AND most_messages) IS NOT TRUE THEN batch ELSE concurrency END
			USING ERRCODE = 'invalid_parameter_value',
				HINT = format('concurrency is a number of processes from 1 to %s, batch one of messages from 1 to %s.', most_processes, most_messages);
	END IF;
	IF sweep._find_handler(handler) IS NULL THEN
		RAISE EXCEPTION 'function %(sweep.message) does not exist', handler
			USING ERRCODE = 'undefined_function',
				HINT = 'A handler is named with its schema and is a function(sweep.message); what it returns is ignored.';
	END IF;
	PERFORM sweep._find_queue(role, _create_consumer.queue, 'consume');
	consumer := ROW(0, id, handler, role, concurrency, batch, NULL);
	problem := sweep._consumer_problem(consumer);
	IF problem IS NOT NULL THEN
		RAISE EXCEPTION 'queue "%" could not be consumed: %', _create_consumer.queue, problem
			USING ERRCODE = 'insufficient_privilege',
				HINT = format('The role needs LOGIN (before version 17), CONNECT on the database, membership in sweep_user '
					'and EXECUTE on the handler: see ALTER ROLE %s LOGIN and GRANT.', role::regrole);
	END IF;
	INSERT INTO sweep.consumer (queue_id, handler, run_as, concurrency, batch)
		VALUES (id, _create_consumer.handler, role, _create_consumer.concurrency, _create_consumer.batch)
		ON CONFLICT ON CONSTRAINT consumer_queue_key DO NOTHING;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" already has a consumer', _create_consumer.queue
			USING ERRCODE = 'duplicate_object', HINT = 'More processes are its concurrency: sweep.drop_consumer removes it, then create it anew.';
	END IF;
	INSERT INTO sweep.control (system_identifier, database)
		SELECT sweep._system_identifier(), d.oid FROM pg_database d WHERE d.datname = current_database()
		ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION sweep._create_consumer(oid, text, text, int, int, regrole) IS 'implements sweep.create_consumer';

CREATE FUNCTION sweep.create_consumer(queue text, handler text, concurrency int DEFAULT 1, batch int DEFAULT 1, run_as regrole DEFAULT NULL)
	RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_consumer(text, text, int, int, regrole) IS 'has background workers call handler(sweep.message) for each message of the queue; its effect and the acknowledgement are one commit';

CREATE FUNCTION sweep._drop_consumer(caller oid, queue text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._find_consumer(caller, queue, false)).consumer_id;
BEGIN
	DELETE FROM sweep.consumer c WHERE c.consumer_id = id;
END
$$;
COMMENT ON FUNCTION sweep._drop_consumer(oid, text) IS 'implements sweep.drop_consumer';

CREATE FUNCTION sweep.drop_consumer(queue text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_consumer(text) IS 'removes the consumer of the queue; what its processes are handling is finished first, the queue and its messages stay';

CREATE FUNCTION sweep._pause_consumer(caller oid, queue text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id int := (sweep._find_consumer(caller, queue, true)).consumer_id;
BEGIN
	UPDATE sweep.consumer AS c SET paused_at = coalesce(c.paused_at, now()) WHERE c.consumer_id = id;
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
	id int := (sweep._find_consumer(caller, queue, true)).consumer_id;
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
	-- Told apart by 0: the process that sends the notifications of this database.
	IF EXISTS (SELECT FROM sweep.queue q WHERE q.notify) THEN
		RETURN QUERY SELECT 0, 'notifier', 0::oid, 1;
	END IF;
	IF EXISTS (SELECT FROM sweep.consumer c WHERE c.paused_at IS NULL) AND sweep._at_home() THEN
		RETURN QUERY SELECT c.consumer_id, q.name, c.run_as::oid, c.concurrency
			FROM sweep.consumer c JOIN sweep.queue q USING (queue_id)
			WHERE c.paused_at IS NULL AND sweep._consumer_problem(c) IS NULL
			ORDER BY c.consumer_id;
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._wanted_consumers() IS 'the consumers that should have processes, and how many';

-- Commits with a wait for the disk: the next crash may be a moment away. The
-- server may have gone down between the commit of a message and the note that
-- it is done: what is no longer in the queue is no suspect.
CREATE FUNCTION sweep._count_crash(queue_id int, message_ids bigint[]) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	PERFORM set_config('synchronous_commit', 'local', true);
	DELETE FROM sweep.consumer_crash AS c WHERE c.last_at < now() - interval '30 days';
	INSERT INTO sweep.consumer_crash AS c (queue_id, message_id, crashes, last_at)
		SELECT m.queue_id, m.message_id, 1, now() FROM sweep.queue_message m
		WHERE m.queue_id = _count_crash.queue_id AND m.message_id = ANY (message_ids)
		ON CONFLICT (queue_id, message_id) DO UPDATE SET crashes = c.crashes + 1, last_at = excluded.last_at;
END
$$;
COMMENT ON FUNCTION sweep._count_crash(int, bigint[]) IS 'the server went down while a consumer handled these';

-- ------------------------------------------------------------------ what an operator reads
CREATE FUNCTION sweep._consumer_processes(OUT consumer_id int, OUT pid int, OUT handled bigint, OUT failed bigint,
	OUT started_at timestamptz, OUT last_error text)
	RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sweep_consumer_shared_list';
COMMENT ON FUNCTION sweep._consumer_processes() IS 'the processes of consumers in this database, from shared memory';

CREATE VIEW sweep.consumers WITH (security_barrier) AS
	SELECT q.name AS queue, c.handler, c.run_as, c.concurrency, c.batch,
		CASE
			WHEN problem.reason IS NOT NULL THEN 'broken: ' || problem.reason
			WHEN c.paused_at IS NOT NULL OR NOT home.here THEN 'paused'
			WHEN p.workers >= c.concurrency THEN 'running'
			ELSE 'waiting_for_slot'
		END AS state,
		p.workers, p.handled, p.failed, p.last_error
	FROM sweep.consumer c
		JOIN sweep.queue q USING (queue_id)
		CROSS JOIN (SELECT sweep._at_home() AS here) AS home
		CROSS JOIN LATERAL (SELECT sweep._consumer_problem(c) AS reason) AS problem
		CROSS JOIN LATERAL (SELECT count(*)::int AS workers, coalesce(sum(l.handled), 0)::bigint AS handled,
				coalesce(sum(l.failed), 0)::bigint AS failed, max(l.last_error) AS last_error
			FROM sweep._consumer_processes() l WHERE l.consumer_id = c.consumer_id) AS p
	WHERE sweep._may_see(c.run_as);
COMMENT ON VIEW sweep.consumers IS 'consumers in the database with their processes';
COMMENT ON COLUMN sweep.consumers.queue IS 'the queue it empties';
COMMENT ON COLUMN sweep.consumers.handler IS 'the function that is called with each message';
COMMENT ON COLUMN sweep.consumers.run_as IS 'the role it runs as';
COMMENT ON COLUMN sweep.consumers.concurrency IS 'how many processes are wanted';
COMMENT ON COLUMN sweep.consumers.batch IS 'messages per transaction';
COMMENT ON COLUMN sweep.consumers.state IS 'running, waiting_for_slot (fewer processes than wanted), paused, or broken: and why';
COMMENT ON COLUMN sweep.consumers.workers IS 'how many processes there are';
COMMENT ON COLUMN sweep.consumers.handled IS 'messages handled by these processes';
COMMENT ON COLUMN sweep.consumers.failed IS 'messages that failed in these processes';
COMMENT ON COLUMN sweep.consumers.last_error IS 'an error of one of these processes, its last one';
