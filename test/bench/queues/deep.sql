--
-- A deep queue: messages that wait, numbered like those of load, and delayed ones.
--
SELECT sweep.send_many('bench', ARRAY(
		SELECT jsonb_build_object('n', n, 't', 0, 'pad', repeat('x', 40)) FROM generate_series(1000 * k, 1000 * k + 999) AS n))
	FROM generate_series(0, :waiting / 1000 - 1) AS k;
SELECT sweep.send_many('bench', ARRAY(SELECT jsonb_build_object('n', -1, 't', 0) FROM generate_series(1, 1000)), delay => '1 day')
	FROM generate_series(1, :delayed / 1000);
VACUUM ANALYZE;
