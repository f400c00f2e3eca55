--
-- Waiting for messages, see wait.c.
--
CREATE PROCEDURE sweep.wait_for_message(queue text, timeout interval DEFAULT '30 s')
	LANGUAGE c AS 'MODULE_PATHNAME', 'sweep_queue_wait_call';
COMMENT ON PROCEDURE sweep.wait_for_message(text, interval) IS 'ends the transaction and waits, without a snapshot, until the queue has something to claim or the time is over';
