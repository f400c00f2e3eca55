-- Tables and functions of the page of peers: what its lines work on.
CREATE EXTENSION pg_sweep;
CREATE ROLE operator LOGIN IN ROLE sweep_operator;
CREATE ROLE app LOGIN IN ROLE sweep_user;
CREATE SCHEMA app AUTHORIZATION app;
SET ROLE app;
CREATE TABLE app.event (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, created_at timestamptz NOT NULL, kind int NOT NULL);
CREATE INDEX ON app.event (created_at);
INSERT INTO app.event (created_at, kind) SELECT now() - interval '1 hour' * n, n % 5 FROM generate_series(1, 5000) AS n;
CREATE TABLE app.tenant (id int PRIMARY KEY);
CREATE TABLE app.document (id int PRIMARY KEY, tenant_id int REFERENCES app.tenant ON DELETE CASCADE);
CREATE INDEX ON app.document (tenant_id);
INSERT INTO app.tenant SELECT generate_series(1, 50);
INSERT INTO app.document SELECT n, 1 + n % 50 FROM generate_series(1, 5000) AS n;
CREATE TABLE app.reading (at timestamptz NOT NULL, value real) PARTITION BY RANGE (at);
CREATE TABLE app.reading_rest PARTITION OF app.reading DEFAULT;
INSERT INTO app.reading VALUES (now() + interval '1 day', 1);
CREATE TABLE app.log (id bigint PRIMARY KEY, body text);
INSERT INTO app.log SELECT n, 'line ' || n FROM generate_series(1, 5000) AS n;
CREATE TABLE app.log_new (LIKE app.log INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE app.log_new_0 PARTITION OF app.log_new FOR VALUES FROM (0) TO (1000000);
CREATE TABLE app.mail_sent (message_id bigint PRIMARY KEY);
CREATE FUNCTION app.send_mail(m sweep.message) RETURNS void LANGUAGE sql SET search_path = pg_catalog, app, pg_temp
	AS $$ INSERT INTO mail_sent VALUES (m.message_id) $$;
CREATE FUNCTION app.close_events(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql SET search_path = pg_catalog, app, pg_temp AS $$
DECLARE
	closed bigint;
BEGIN
	UPDATE event SET kind = -1 WHERE id = ANY (ARRAY(
		SELECT e.id FROM event AS e WHERE e.kind = 4 AND mod(e.id, b.buckets) = b.bucket LIMIT b.size FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS closed = ROW_COUNT;
	RETURN ROW(closed, NULL, NULL)::sweep.progress;
END
$$;
