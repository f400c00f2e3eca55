--
-- Items that neither the step nor the rescue function of their job could handle. They are left out until their next
-- try, at growing intervals, so that they do not delay other items.
--
-- The hash is not a generated column: since version 18 no row of a table that is published can be deleted by a key with such a column.
CREATE TABLE sweep.quarantined_item (
	job       text NOT NULL,
	item      jsonb NOT NULL,
	item_hash text NOT NULL,
	sqlstate  text NOT NULL,
	message   text NOT NULL,
	attempts  int NOT NULL DEFAULT 1,
	first_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	last_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	next_try  timestamptz NOT NULL,
	PRIMARY KEY (job, item_hash)
);
COMMENT ON TABLE sweep.quarantined_item IS 'items that failed, with their errors and when they are tried again';
COMMENT ON COLUMN sweep.quarantined_item.job IS 'name of the job';
COMMENT ON COLUMN sweep.quarantined_item.item IS 'the item, as its pick function returned it';
COMMENT ON COLUMN sweep.quarantined_item.item_hash IS 'MD5 of the item: it is of a size that an index takes';
COMMENT ON COLUMN sweep.quarantined_item.sqlstate IS 'code of its last error';
COMMENT ON COLUMN sweep.quarantined_item.message IS 'its last error, with detail, hint and context';
COMMENT ON COLUMN sweep.quarantined_item.attempts IS 'how many runs it has failed in';
COMMENT ON COLUMN sweep.quarantined_item.first_at IS 'when it failed first';
COMMENT ON COLUMN sweep.quarantined_item.last_at IS 'when it failed last';
COMMENT ON COLUMN sweep.quarantined_item.next_try IS 'it is left alone until then';
SELECT pg_catalog.pg_extension_config_dump('sweep.quarantined_item', '');

CREATE FUNCTION sweep._quarantine(job text, role oid, item jsonb, sqlstate text, message text) RETURNS boolean
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
	-- A run may still be in progress when its job is dropped and another role creates a job of that name. That role
	-- must not see the items of the run. The role may also be renamed meanwhile.
	INSERT INTO sweep.quarantined_item AS q (job, item, item_hash, sqlstate, message, first_at, last_at, next_try)
		SELECT job, item, pg_catalog.md5(item::pg_catalog.text), sqlstate, message, moment.now, moment.now, moment.now + interval '10 min'
			FROM (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) AS moment
			WHERE EXISTS (SELECT FROM sweep.job_definition j WHERE j.name = _quarantine.job AND sweep._role_oid(j.run_as) = _quarantine.role)
		ON CONFLICT ON CONSTRAINT quarantined_item_pkey DO UPDATE SET sqlstate = excluded.sqlstate, message = excluded.message,
			attempts = q.attempts + 1, last_at = excluded.last_at,
			next_try = excluded.last_at + interval '10 min' * 2 ^ least(q.attempts, 10)
		RETURNING true
$$;
COMMENT ON FUNCTION sweep._quarantine(text, oid, jsonb, text, text) IS
	'puts an item into quarantine: 10 minutes at first, twice as long after each further failure, about 7 days at most; NULL: the job no longer belongs to that role, and nothing was done';

CREATE FUNCTION sweep._release_quarantine(caller oid, name text, item jsonb) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	released bigint;
BEGIN
	PERFORM sweep._lock_job(caller, name, true, true);
	UPDATE sweep.quarantined_item AS q SET next_try = pg_catalog.clock_timestamp()
		WHERE q.job = _release_quarantine.name AND q.next_try > pg_catalog.clock_timestamp()
			AND (_release_quarantine.item IS NULL OR q.item_hash = pg_catalog.md5(_release_quarantine.item::pg_catalog.text));
	GET DIAGNOSTICS released = ROW_COUNT;
	RETURN released;
END
$$;
COMMENT ON FUNCTION sweep._release_quarantine(oid, text, jsonb) IS 'implements sweep.release_quarantine';

CREATE FUNCTION sweep.release_quarantine(name text, item jsonb DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sweep_caller_dispatch';
COMMENT ON FUNCTION sweep.release_quarantine(text, jsonb) IS
	'has the next run of the job try an item again, or all of them; returns how many were waiting for a later try';
