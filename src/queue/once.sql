--
-- Processing a message only once, for consumers outside of the database.
--
-- Delivery is at least once: a message is delivered a second time if its acknowledgement is lost, or if the consumer takes longer
-- than its lease. A consumer notices this if it begins the transaction with its changes by sweep.begin_once.
--
CREATE TABLE sweep.once_key (
	role    text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	done_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	CONSTRAINT once_key_pkey PRIMARY KEY (role, key)
);
COMMENT ON TABLE sweep.once_key IS 'keys of committed transactions that began with sweep.begin_once, for pg_sweep.once_retention';
COMMENT ON COLUMN sweep.once_key.role IS 'name of the role: each role has keys of its own';
COMMENT ON COLUMN sweep.once_key.key IS 'the key, at most 1000 bytes';
COMMENT ON COLUMN sweep.once_key.done_at IS 'when the transaction began';
CREATE INDEX once_key_done_at ON sweep.once_key (done_at);
COMMENT ON INDEX sweep.once_key_done_at IS 'for the removal of old keys';
SELECT pg_catalog.pg_extension_config_dump('sweep.once_key', '');

CREATE FUNCTION sweep._begin_once(caller oid, key text) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF key IS NULL OR pg_catalog.octet_length(key) > 1000 THEN
		RAISE EXCEPTION 'key %', CASE WHEN key IS NULL THEN 'must not be null' ELSE pg_catalog.format('"%s..." is too long', pg_catalog.left(key, 40)) END
			USING ERRCODE = CASE WHEN key IS NULL THEN 'null_value_not_allowed' ELSE 'string_data_right_truncation' END,
				HINT = 'A key is at most 1000 bytes, for example the name of the queue and the id of the message.';
	END IF;
	-- The second of two transactions with the same key waits for the end of the first.
	INSERT INTO sweep.once_key (role, key) VALUES (sweep._role_name(caller), _begin_once.key)
		ON CONFLICT ON CONSTRAINT once_key_pkey DO NOTHING;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION sweep._begin_once(oid, text) IS 'implements sweep.begin_once';

CREATE FUNCTION sweep.begin_once(key text) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.begin_once(text) IS 'true when no committed transaction of this role has begun with this key before; the key is taken when this transaction commits';

-- Called by the scheduler, so it removes only a limited number of keys at a time.
CREATE FUNCTION sweep._forget_once() RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	forgotten bigint;
BEGIN
	DELETE FROM sweep.once_key WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM sweep.once_key o
		WHERE o.done_at < pg_catalog.now() - pg_catalog.current_setting('pg_sweep.once_retention')::interval ORDER BY o.done_at LIMIT 10000 FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS forgotten = ROW_COUNT;
	RETURN forgotten;
END
$$;
COMMENT ON FUNCTION sweep._forget_once() IS 'removes keys that are older than pg_sweep.once_retention';
