--
-- Queues: creating, granting, purging and dropping them; dead messages.
--

CREATE FUNCTION sweep._sees_queue(caller oid, q sweep.queue)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._acts_for(caller, 'sweep_monitor')
		OR EXISTS (SELECT FROM pg_catalog.unnest(q.owner || q.senders || q.consumers) AS g (role) WHERE sweep._may_act_on(caller, g.role, true))
$$;
COMMENT ON FUNCTION sweep._sees_queue(oid, sweep.queue) IS 'internal: whether the caller may see the queue: its owner, roles with a grant on it, and roles that watch or act on all';

-- Members of the owner's role and of sweep_admin have all rights: 'send', 'consume', 'redrive' and 'own'.
CREATE FUNCTION sweep._may_use_queue(caller oid, q sweep.queue, wanted text)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT sweep._may_act_on(caller, q.owner, wanted = 'redrive')
		OR EXISTS (SELECT FROM pg_catalog.unnest(CASE wanted WHEN 'send' THEN q.senders WHEN 'consume' THEN q.consumers END) AS r (role)
			WHERE sweep._acts_for(caller, r.role))
$$;
COMMENT ON FUNCTION sweep._may_use_queue(oid, sweep.queue, text) IS 'internal: whether the caller has that right on the queue';

-- Returns the queue of that name if the caller has the right.
CREATE FUNCTION sweep._find_queue(caller oid, queue text, wanted text)
RETURNS sweep.queue
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	found_queue sweep.queue;
	closest     pg_catalog.text;
BEGIN
	SELECT * INTO found_queue FROM sweep.queue q WHERE q.name = _find_queue.queue;
	IF NOT FOUND THEN
		-- the closest name has at least half of its characters right, at its start and end
		SELECT q.name INTO closest
			FROM sweep.queue q,
				LATERAL (SELECT pg_catalog.count(*) FILTER (WHERE pg_catalog.left(q.name, i) = pg_catalog.left(_find_queue.queue, i))
						+ pg_catalog.count(*) FILTER (WHERE pg_catalog.right(q.name, i) = pg_catalog.right(_find_queue.queue, i)) AS right_letters
					FROM pg_catalog.generate_series(1, least(pg_catalog.length(q.name), pg_catalog.length(_find_queue.queue))) AS i) AS alike
			WHERE right_letters * 2 >= greatest(pg_catalog.length(q.name), pg_catalog.length(_find_queue.queue)) AND sweep._sees_queue(caller, q)
			ORDER BY right_letters DESC, q.name
			LIMIT 1;
		RAISE EXCEPTION 'queue "%" does not exist', _find_queue.queue
			USING ERRCODE = 'undefined_object',
				HINT = coalesce('Perhaps you meant "' || closest || '".', 'sweep.create_queue creates a queue.');
	END IF;
	IF NOT sweep._may_use_queue(caller, found_queue, wanted) THEN
		RAISE EXCEPTION 'permission denied for queue "%"', found_queue.name
			USING ERRCODE = 'insufficient_privilege',
				HINT = CASE WHEN wanted IN ('send', 'consume')
					THEN pg_catalog.format('Members of %s and sweep_admin may use it, and grant it with sweep.grant_queue.', pg_catalog.quote_ident(found_queue.owner))
					ELSE pg_catalog.format('Members of %s and sweep_admin may do this.', pg_catalog.quote_ident(found_queue.owner)) END;
	END IF;
	RETURN found_queue;
END
$$;
COMMENT ON FUNCTION sweep._find_queue(oid, text, text) IS 'internal: the queue of this name, or an error when there is none or the caller lacks the right';

-- The extension's own statements are executed between these two calls. The first one waits for a transaction that drops the
-- queue. With "alone" it waits for all transactions that work with the queue, and keeps others out until this transaction ends.
-- The second one reports the changes: rows added in lanes without and with a due time, dead messages, and the first due time.
CREATE FUNCTION sweep._begin_queue_statement(queue_id int, alone boolean)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_begin';
COMMENT ON FUNCTION sweep._begin_queue_statement(int, boolean) IS 'internal: the following statements on messages are those of the extension';

CREATE FUNCTION sweep._end_queue_statement(queue_id int, ready bigint, delayed bigint, dead bigint, first_due timestamptz, emptied boolean, dropped boolean)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_end';
COMMENT ON FUNCTION sweep._end_queue_statement(int, bigint, bigint, bigint, timestamptz, boolean, boolean) IS 'internal: what the statements since sweep._begin_queue_statement have changed';

CREATE FUNCTION sweep._note_purged(queue_id int, lane smallint, message_id bigint)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_statement_note_purged';
COMMENT ON FUNCTION sweep._note_purged(int, smallint, bigint) IS 'internal: this message was purged; its claim ends when the transaction commits';

-- Writes only when a setting changes. Does not change owner, grants and messages of the queue.
CREATE FUNCTION sweep._replace_queue(caller oid, name text, visibility interval, max_attempts int, backoff text, keep_done interval, notify boolean, key_policy text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old sweep.queue;
BEGIN
	IF NOT EXISTS (SELECT FROM sweep.queue q WHERE q.name = _replace_queue.name) THEN
		RETURN false;
	END IF;
	old := sweep._find_queue(caller, name, 'own');
	IF (old.visibility, old.max_attempts, old.backoff, old.keep_done, old.notify, old.key_policy)
			IS DISTINCT FROM (visibility, max_attempts, backoff, keep_done, notify, key_policy)
	THEN
		UPDATE sweep.queue AS q SET (visibility, max_attempts, backoff, keep_done, notify, key_policy) = (_replace_queue.visibility, _replace_queue.max_attempts,
				_replace_queue.backoff, _replace_queue.keep_done, _replace_queue.notify, _replace_queue.key_policy)
			WHERE q.queue_id = old.queue_id;
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION sweep._replace_queue(oid, text, interval, int, text, interval, boolean, text) IS 'internal: gives a queue of that name these settings; false when there is none';

CREATE FUNCTION sweep._create_queue(caller oid, name text, visibility interval, max_attempts int, backoff text, keep_done interval, notify boolean, key_policy text, replace boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	pause interval;
BEGIN
	IF (_create_queue.name ~ '^[A-Za-z0-9_]{1,48}$') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid queue name "%"', _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'A queue name has letters, digits and _, at most 48 of them.';
	END IF;
	IF (_create_queue.visibility > interval '0') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid visibility "%" for queue "%"', _create_queue.visibility, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The visibility is the time a consumer has for a message and must be greater than zero, for example ''30 s''.';
	END IF;
	IF (_create_queue.max_attempts BETWEEN 1 AND 32767) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid max_attempts % for queue "%"', _create_queue.max_attempts, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'A message is delivered between 1 and 32767 times.';
	END IF;
	IF (_create_queue.backoff IN ('sidekiq', 'none')) IS NOT TRUE THEN
		BEGIN
			pause := _create_queue.backoff::interval;
		EXCEPTION WHEN data_exception THEN
			pause := NULL;
		END;
		IF (pause >= interval '0' AND pg_catalog.octet_length(_create_queue.backoff) <= 255) IS NOT TRUE THEN
			RAISE EXCEPTION 'invalid backoff "%" for queue "%"', pg_catalog.substring(_create_queue.backoff, 1, 255), _create_queue.name
				USING ERRCODE = 'invalid_parameter_value', HINT = 'A backoff is sidekiq, none or an interval such as ''1 min''.';
		END IF;
	END IF;
	IF (_create_queue.keep_done >= interval '0') IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid keep_done "%" for queue "%"', _create_queue.keep_done, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'keep_done is how long acknowledged messages are kept, ''0'' for not at all.';
	END IF;
	IF (_create_queue.key_policy IN ('while_queued', 'while_queued_or_running', 'once_more_if_running')) IS NOT TRUE THEN
		RAISE EXCEPTION 'invalid key_policy "%" for queue "%"', _create_queue.key_policy, _create_queue.name
			USING ERRCODE = 'invalid_parameter_value', HINT = 'A key_policy is while_queued, while_queued_or_running or once_more_if_running.';
	END IF;
	LOOP
		IF replace AND sweep._replace_queue(caller, _create_queue.name, _create_queue.visibility, _create_queue.max_attempts,
				coalesce(pause::pg_catalog.text, _create_queue.backoff), _create_queue.keep_done, coalesce(_create_queue.notify, true), _create_queue.key_policy) THEN
			RETURN;
		END IF;
		INSERT INTO sweep.queue (name, owner, visibility, max_attempts, backoff, keep_done, notify, key_policy)
		VALUES (_create_queue.name, sweep._role_name(caller), _create_queue.visibility, _create_queue.max_attempts,
			coalesce(pause::pg_catalog.text, _create_queue.backoff), _create_queue.keep_done, coalesce(_create_queue.notify, true), _create_queue.key_policy)
		ON CONFLICT ON CONSTRAINT queue_name_key DO NOTHING;
		EXIT WHEN FOUND;
		IF NOT coalesce(replace, false) THEN
			RAISE EXCEPTION 'queue "%" already exists', _create_queue.name
				USING ERRCODE = 'duplicate_object', HINT = 'sweep.drop_queue removes a queue with its messages; replace => true gives it these settings.';
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION sweep._create_queue(oid, text, interval, int, text, interval, boolean, text, boolean) IS 'internal: implements sweep.create_queue';

CREATE FUNCTION sweep.create_queue(name text, visibility interval DEFAULT '30 s', max_attempts int DEFAULT 25, backoff text DEFAULT 'sidekiq',
	keep_done interval DEFAULT '0', notify boolean DEFAULT true, key_policy text DEFAULT 'while_queued', replace boolean DEFAULT false)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.create_queue(text, interval, int, text, interval, boolean, text, boolean) IS 'creates a queue of the caller, or with replace gives an existing one these settings: how long a claim holds a message, how often and after which pauses a failed message is delivered again, how long acknowledged messages are kept, whether new messages send a notification, for how long a key is unique';

-- Locks the queue first. This waits for open transactions of senders and consumers, so that their messages are deleted, too. A
-- sender looks up the queue again after it has got its own lock, so no messages come later. Deleting rows before the lock would
-- be a deadlock with consumers that wait for these rows. lock_timeout is short because all sessions that work with the queue wait
-- behind this one.
CREATE FUNCTION sweep._drop_queue(caller oid, name text, if_exists boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '2s'
AS $$
DECLARE
	id int;
BEGIN
	IF if_exists AND NOT EXISTS (SELECT FROM sweep.queue q WHERE q.name = _drop_queue.name) THEN
		RAISE NOTICE 'queue "%" does not exist, skipping', _drop_queue.name;
		RETURN;
	END IF;
	id := (sweep._find_queue(caller, _drop_queue.name, 'own')).queue_id;
	PERFORM sweep._begin_queue_statement(id, true);
	DELETE FROM sweep.queue q WHERE q.queue_id = id;
	PERFORM sweep._end_queue_statement(id, 0, 0, 0, NULL, false, true);
END
$$;
COMMENT ON FUNCTION sweep._drop_queue(oid, text, boolean) IS 'internal: implements sweep.drop_queue';

CREATE FUNCTION sweep.drop_queue(name text, if_exists boolean DEFAULT false)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.drop_queue(text, boolean) IS 'removes a queue, every message in it and its consumer; with if_exists a queue that does not exist is a NOTICE';

-- Skips rows that another transaction is removing or changing: waiting for it, while it waits for a row that was deleted here,
-- would be a deadlock.
CREATE FUNCTION sweep._purge_queue(caller oid, name text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id      int := (sweep._find_queue(caller, _purge_queue.name, 'own')).queue_id;
	ready   bigint;
	delayed bigint;
BEGIN
	PERFORM sweep._begin_queue_statement(id, false);
	WITH gone AS (
		DELETE FROM sweep.queue_message m
		WHERE m.ctid = ANY (ARRAY(SELECT o.ctid FROM sweep.queue_message o WHERE o.queue_id = id FOR UPDATE SKIP LOCKED))
		RETURNING m.lane, sweep._note_purged(m.queue_id, m.lane, m.message_id)
	)
	SELECT pg_catalog.count(*) FILTER (WHERE g.lane < 50), pg_catalog.count(*) FILTER (WHERE g.lane > 50) INTO ready, delayed FROM gone AS g;
	PERFORM sweep._end_queue_statement(id, -ready, -delayed, 0, NULL, true, false);
	RETURN ready + delayed;
END
$$;
COMMENT ON FUNCTION sweep._purge_queue(oid, text) IS 'internal: implements sweep.purge_queue';

CREATE FUNCTION sweep.purge_queue(name text)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.purge_queue(text) IS 'removes every message of a queue, also claimed and delayed ones, except dead ones and those that open transactions are removing, and returns how many';

CREATE FUNCTION sweep._change_queue_grants(caller oid, queue text, role regrole, privileges text[], granted boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	id      int := (sweep._find_queue(caller, _change_queue_grants.queue, 'own')).queue_id;
	grantee pg_catalog.text;
	wrong   pg_catalog.text;
BEGIN
	SELECT coalesce(p.privilege, 'NULL') INTO wrong
	FROM pg_catalog.unnest(privileges) AS p (privilege)
	WHERE (p.privilege IN ('send', 'consume')) IS NOT TRUE
	LIMIT 1;
	IF FOUND OR coalesce(pg_catalog.cardinality(privileges), 0) = 0 THEN
		RAISE EXCEPTION 'invalid privilege "%" for queue "%"', coalesce(wrong, ''), _change_queue_grants.queue
			USING ERRCODE = 'invalid_parameter_value', HINT = 'The privileges of a queue are ''send'' and ''consume'', for example ''{send,consume}''.';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = _change_queue_grants.role) THEN
		RAISE EXCEPTION 'role "%" does not exist', coalesce(_change_queue_grants.role::pg_catalog.text, 'NULL')
			USING ERRCODE = 'undefined_object';
	END IF;
	grantee := sweep._role_name(_change_queue_grants.role);
	-- The owner of a queue never changes, so the check above still holds for the locked row, unless the name is another queue by
	-- then.
	UPDATE sweep.queue q
	SET senders = CASE WHEN 'send' = ANY (privileges)
			THEN pg_catalog.array_remove(q.senders, grantee) || CASE WHEN granted THEN ARRAY[grantee] ELSE '{}' END
			ELSE q.senders END,
		consumers = CASE WHEN 'consume' = ANY (privileges)
			THEN pg_catalog.array_remove(q.consumers, grantee) || CASE WHEN granted THEN ARRAY[grantee] ELSE '{}' END
			ELSE q.consumers END
	WHERE q.queue_id = id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'queue "%" does not exist', _change_queue_grants.queue
			USING ERRCODE = 'undefined_object', HINT = 'It has just been dropped.';
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._change_queue_grants(oid, text, regrole, text[], boolean) IS 'internal: grants or revokes';

-- sweep_client may execute the message functions; each function checks the right on its queue.  The owner of the
-- extension grants the membership, which holds in the whole cluster.
CREATE FUNCTION sweep._add_member(role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	grantee pg_catalog.text := sweep._role_name(role);
BEGIN
	IF pg_catalog.pg_has_role(role, 'sweep_client', 'USAGE') THEN
		RETURN;
	END IF;
	BEGIN
		-- Before version 16, inheritance is an attribute of the role.
		EXECUTE pg_catalog.format('GRANT sweep_client TO %I', grantee)
			|| CASE WHEN pg_catalog.current_setting('server_version_num')::int >= 160000 THEN ' WITH INHERIT TRUE' ELSE '' END;
	EXCEPTION
		WHEN unique_violation THEN
			NULL; -- another session has just made it a member
		WHEN insufficient_privilege THEN
			RAISE EXCEPTION 'role "%" cannot be made a member of sweep_client', grantee
				USING ERRCODE = 'insufficient_privilege',
					DETAIL = pg_catalog.format('The extension belongs to %I, which may not grant this membership.', current_user),
					HINT = pg_catalog.format('Have GRANT sweep_client TO %I executed by a role that may; then repeat this call.', grantee);
	END;
	IF NOT pg_catalog.pg_has_role(role, 'sweep_client', 'USAGE') THEN
		RAISE WARNING 'role "%" does not inherit the rights of sweep_client', grantee
			USING HINT = pg_catalog.format('ALTER ROLE %I INHERIT lets it call sweep.send and the other functions of messages.', grantee);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._add_member(regrole) IS 'internal: makes the role a member of sweep_client unless it has its rights, in this transaction';

CREATE FUNCTION sweep._add_member_apart(role regrole)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_member_add_apart';
COMMENT ON FUNCTION sweep._add_member_apart(regrole) IS 'internal: the same in a transaction of its own, which has ended when this returns';

-- A transaction that adds a membership waits for an open one that has added the same. The membership is therefore added in a
-- transaction of its own, which ends at once. Only a role whose creation is not committed yet gets it in the transaction that has
-- created it; no other transaction sees that role.
CREATE FUNCTION sweep._make_client(role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT pg_catalog.pg_has_role(role, 'sweep_client', 'USAGE') THEN
		PERFORM sweep._add_member_apart(role);
		PERFORM sweep._add_member(role);
	END IF;
END
$$;
COMMENT ON FUNCTION sweep._make_client(regrole) IS 'internal: makes the role a member of sweep_client unless it has its rights';

CREATE FUNCTION sweep._grant_queue(caller oid, queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._change_queue_grants(caller, _grant_queue.queue, _grant_queue.role, _grant_queue.privileges, true);
	PERFORM sweep._make_client(_grant_queue.role);
END
$$;
COMMENT ON FUNCTION sweep._grant_queue(oid, text, regrole, text[]) IS 'internal: implements sweep.grant_queue';

CREATE FUNCTION sweep.grant_queue(queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.grant_queue(text, regrole, text[]) IS 'lets a role and its members send to a queue, or consume from it: {send,consume}; makes the role a member of sweep_client, so that nothing else is needed';

CREATE FUNCTION sweep._revoke_queue(caller oid, queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM sweep._change_queue_grants(caller, _revoke_queue.queue, _revoke_queue.role, _revoke_queue.privileges, false);
END
$$;
COMMENT ON FUNCTION sweep._revoke_queue(oid, text, regrole, text[]) IS 'internal: implements sweep.revoke_queue';

CREATE FUNCTION sweep.revoke_queue(queue text, role regrole, privileges text[])
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.revoke_queue(text, regrole, text[]) IS 'takes back what sweep.grant_queue has given on this queue; the role remains a member of sweep_client';

CREATE FUNCTION sweep._key_is_given_back(queue_id int, key text)
RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_key_is_given_back';
COMMENT ON FUNCTION sweep._key_is_given_back(int, text) IS 'internal: whether a message with this key was claimed and waits again; its row does not say so';

-- Messages return to the queue with their ids, due at once, a microsecond apart to keep their order. A message stays dead if a
-- waiting message has its key, also one that was claimed and has returned to the queue.
CREATE FUNCTION sweep._redrive(caller oid, queue text, filter jsonb, max int, dry_run boolean)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	q      sweep.queue := sweep._find_queue(caller, _redrive.queue, 'redrive');
	moment pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	moved  bigint;
BEGIN
	IF _redrive.max <= 0 THEN
		RAISE EXCEPTION 'cannot redrive % messages', _redrive.max
			USING ERRCODE = 'invalid_parameter_value', HINT = 'max must be greater than zero, or NULL for all.';
	END IF;
	IF _redrive.dry_run THEN
		-- Only one of the messages with the same key goes back, and none while another message waits with that key.
		SELECT pg_catalog.count(*) FILTER (WHERE meant.key IS NULL) + pg_catalog.count(DISTINCT meant.key) INTO moved FROM (
			SELECT d.key FROM sweep.queue_dead d
			WHERE d.queue_id = q.queue_id AND (_redrive.filter IS NULL OR pg_catalog.to_jsonb(d) @> _redrive.filter)
				AND sweep._key_is_given_back(d.queue_id, d.key) IS NOT TRUE
			ORDER BY d.message_id
			LIMIT _redrive.max) AS meant
		WHERE NOT EXISTS (SELECT FROM sweep.queue_message m
			WHERE m.queue_id = q.queue_id AND m.key = meant.key COLLATE pg_catalog."C" AND NOT m.claimed);
		RETURN moved;
	END IF;
	PERFORM sweep._begin_queue_statement(q.queue_id, false);
	WITH meant AS (
		SELECT d.*
		FROM sweep.queue_dead d
		WHERE d.queue_id = q.queue_id AND (_redrive.filter IS NULL OR pg_catalog.to_jsonb(d) @> _redrive.filter)
			AND sweep._key_is_given_back(d.queue_id, d.key) IS NOT TRUE
		ORDER BY d.message_id
		LIMIT _redrive.max
		FOR UPDATE SKIP LOCKED
	), returned AS (
		INSERT INTO sweep.queue_message (message_id, queue_id, lane, due_at, sent_at, key, headers, error, payload)
		SELECT m.message_id, m.queue_id, m.priority + 100, moment + pg_catalog.row_number() OVER (ORDER BY m.message_id) * interval '1 microsecond', m.sent_at,
			m.key, m.headers, m.error, m.payload
		FROM meant AS m
		ON CONFLICT (queue_id, key) WHERE key IS NOT NULL AND NOT claimed DO NOTHING
		RETURNING message_id
	)
	DELETE FROM sweep.queue_dead d USING returned AS r
	WHERE d.queue_id = q.queue_id AND d.message_id = r.message_id;
	GET DIAGNOSTICS moved = ROW_COUNT;
	PERFORM sweep._end_queue_statement(q.queue_id, 0, moved, -moved, moment, false, false);
	RETURN moved;
END
$$;
COMMENT ON FUNCTION sweep._redrive(oid, text, jsonb, int, boolean) IS 'internal: implements sweep.redrive';

CREATE FUNCTION sweep.redrive(queue text, filter jsonb DEFAULT NULL, max int DEFAULT NULL, dry_run boolean DEFAULT false)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.redrive(text, jsonb, int, boolean) IS 'puts dead messages back into their queue, with 0 attempts, and returns how many; filter: what they must contain, for example {"error": {"message": "timeout"}}';
