-- What the page of operations looks at: the job of its quarantine, and who looks.
CREATE EXTENSION pg_sweep;
CREATE ROLE monitor LOGIN IN ROLE sweep_monitor, pg_monitor;
CREATE ROLE operator LOGIN IN ROLE sweep_operator;
CREATE ROLE app LOGIN IN ROLE sweep_user;
CREATE SCHEMA shop;
CREATE TABLE shop.payment (id bigint PRIMARY KEY);
CREATE FUNCTION shop.pick_payments(b sweep.batch) RETURNS SETOF jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp
	BEGIN ATOMIC SELECT NULL::jsonb WHERE false; END;
CREATE FUNCTION shop.capture_payments(b sweep.batch) RETURNS sweep.progress LANGUAGE sql SET search_path = pg_catalog, pg_temp
	RETURN ROW(0, NULL, NULL)::sweep.progress;
SELECT sweep.create_job('capture_payments', step => 'shop.capture_payments', pick => 'shop.pick_payments');
