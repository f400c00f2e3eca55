--
-- What a claim takes in the server, in microseconds: the mean of 1,000 of :batch
-- messages each. With :refill the queue is almost empty: it gets the messages of
-- 20 claims at a time. Without, they are taken from the front of what is there.
-- In one session, for a round trip takes 20 µs or 80 as the processes sleep or not.
--
SET client_min_messages = warning;
SET synchronous_commit = off;
CREATE PROCEDURE pg_temp.claims(batch int, refill boolean, INOUT us float8 DEFAULT 0)
	LANGUAGE plpgsql
AS $$
DECLARE
	rounds constant int := 50;
	claims constant int := 20;
	began timestamptz;
	held uuid;
BEGIN
	FOR round IN 1 .. rounds LOOP
		IF refill THEN
			PERFORM sweep.send_many('bench', ARRAY(
				SELECT jsonb_build_object('n', n, 't', 0, 'pad', repeat('x', 40)) FROM generate_series(1, claims * batch) AS n));
			COMMIT;
		END IF;
		FOR claim IN 1 .. claims LOOP
			began := clock_timestamp();
			held := (SELECT min(c.lease::text) FROM sweep.claim('bench', batch) AS c);
			us := us + extract(epoch FROM clock_timestamp() - began) * 1e6 / (rounds * claims);
			COMMIT;
			IF sweep.ack(held) <> batch THEN
				RAISE EXCEPTION 'a claim found less than % messages', batch;
			END IF;
			COMMIT;
		END LOOP;
	END LOOP;
END
$$;
CALL pg_temp.claims(:batch, :refill);
