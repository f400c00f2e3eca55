-- The step batched_git_ref_updates_cleanup_scheduler: distinct pending
-- projects in ascending order, the wrap-around, both names of the table.
\set ECHO none
\i gitlab/test/include/gitlab.sql
CREATE TABLE gitlab_partitions_dynamic.p_batched_git_ref_updates_deletions_2
	PARTITION OF gitlab.p_batched_git_ref_updates_deletions FOR VALUES IN (2);
CREATE SCHEMA plain;
CREATE TABLE plain.batched_git_ref_updates_deletions (LIKE gitlab.p_batched_git_ref_updates_deletions INCLUDING ALL);
SELECT sweep.create_queue('batched_git_ref_updates_project_cleanup', key_policy => 'while_queued_or_running');

CREATE PROCEDURE pg_temp.deletion(project_ids bigint[], status int DEFAULT 1, partition_id bigint DEFAULT 1)
	LANGUAGE sql AS $$
	INSERT INTO gitlab.p_batched_git_ref_updates_deletions (project_id, partition_id, created_at, updated_at, status, ref)
		SELECT p, partition_id, now(), now(), status, 'refs/' || p FROM unnest(project_ids) AS p;
	INSERT INTO plain.batched_git_ref_updates_deletions (project_id, partition_id, created_at, updated_at, status, ref)
		SELECT p, partition_id, now(), now(), status, 'refs/' || p FROM unnest(project_ids) AS p;
$$;
-- what the engine does with a job that keeps its cursor: it hands it to the next run unless the run drained
CREATE TABLE pg_temp.kept (cursor jsonb);
INSERT INTO pg_temp.kept VALUES (NULL);
CREATE FUNCTION pg_temp.run(run_id bigint, size int, max_rows int DEFAULT 1000, schema text DEFAULT 'gitlab')
	RETURNS TABLE (batch int, rows bigint, sent text, detail jsonb)
	LANGUAGE plpgsql AS $$
DECLARE
	c jsonb := (SELECT k.cursor FROM pg_temp.kept k);
	args jsonb := jsonb_build_object('schema', schema, 'table',
		CASE schema WHEN 'plain' THEN 'batched_git_ref_updates_deletions' ELSE 'p_batched_git_ref_updates_deletions' END);
	total bigint := 0;
BEGIN
	FOR i IN 1 .. 20 LOOP
		batch := i;
		SELECT p.rows, p.cursor, p.detail INTO rows, c, detail
			FROM sweep_gitlab.batched_git_ref_updates_cleanup_scheduler(
				ROW(least(size, max_rows - total), c, args, '2026-01-01Z', NULL, NULL, NULL, run_id)::sweep.batch) AS p;
		-- as if it had been claimed, which it can be once it is committed
		WITH m AS (UPDATE sweep.queue_message m SET claimed = true FROM sweep.queue q
			WHERE q.queue_id = m.queue_id AND q.name = 'batched_git_ref_updates_project_cleanup' AND NOT m.claimed RETURNING m.*)
		SELECT string_agg(m.key, ' ' ORDER BY m.message_id) INTO sent FROM m;
		RETURN NEXT;
		total := total + rows;
		EXIT WHEN rows = 0 OR total >= max_rows;
	END LOOP;
	UPDATE pg_temp.kept SET cursor = CASE WHEN rows > 0 THEN c END;
END
$$;

-- nothing there
SELECT * FROM pg_temp.run(1, 100);

-- each project once, however many rows and partitions it has; only pending ones
CALL pg_temp.deletion('{7, 3, 3, 3, 5, 1, 7}');
CALL pg_temp.deletion('{3, 9, 5}', partition_id => 2);
CALL pg_temp.deletion('{2, 3, 4}', status => 2);
CALL pg_temp.deletion('{6, 9}', status => 2, partition_id => 2);
SELECT * FROM pg_temp.run(2, 100);
SELECT * FROM pg_temp.run(3, 100, schema => 'plain');
SELECT * FROM pg_temp.run(4, 2);
SELECT * FROM pg_temp.run(5, 2, schema => 'plain');
SELECT * FROM pg_temp.run(6, 5);
SELECT rows FROM sweep_gitlab.batched_git_ref_updates_cleanup_scheduler(ROW(1, NULL,
	'{"schema": "gitlab", "table": "p_batched_git_ref_updates_deletions"}', '2026-01-01Z', NULL, NULL, NULL, 1)::sweep.batch);
SELECT payload FROM sweep.claim('batched_git_ref_updates_project_cleanup');

-- a run that follows one stopped by its cap goes on behind it and wraps around, each project once
CALL pg_temp.deletion('{11, 13}');
SELECT batch, rows, sent FROM pg_temp.run(7, 2, max_rows => 4);
SELECT batch, rows, sent FROM pg_temp.run(8, 2, max_rows => 4);
SELECT batch, rows, sent FROM pg_temp.run(9, 3);
-- it drained, so the next one begins at the front
SELECT batch, rows, sent FROM pg_temp.run(10, 4);
-- capped behind the wrap
SELECT batch, rows, sent FROM pg_temp.run(11, 2, max_rows => 5);
SELECT batch, rows, sent FROM pg_temp.run(12, 2, max_rows => 3);
SELECT batch, rows, sent FROM pg_temp.run(13, 2);
-- nothing is left behind the place where it begins, or nothing before it
SELECT batch, rows, sent FROM pg_temp.run(14, 7, max_rows => 7);
SELECT batch, rows, sent FROM pg_temp.run(15, 3);
SELECT batch, rows, sent FROM pg_temp.run(16, 1, max_rows => 1);
DELETE FROM gitlab.p_batched_git_ref_updates_deletions WHERE project_id = 1;
SELECT batch, rows, sent FROM pg_temp.run(17, 10);
-- nothing is left at all
SELECT batch, rows, sent FROM pg_temp.run(18, 2, max_rows => 2);
DELETE FROM gitlab.p_batched_git_ref_updates_deletions;
SELECT batch, rows, sent FROM pg_temp.run(19, 2);

-- what still waits in the queue is counted, but not queued again
CALL pg_temp.deletion('{21, 22, 23}');
SELECT sweep.send('batched_git_ref_updates_project_cleanup', '{"project_id": 22}', '22') IS NOT NULL AS sent;
SELECT * FROM pg_temp.run(20, 100);

-- ids at the ends of their range
TRUNCATE gitlab.p_batched_git_ref_updates_deletions, plain.batched_git_ref_updates_deletions;
CALL pg_temp.deletion('{9223372036854775807, 0, -9223372036854775807}');
SELECT batch, rows, sent FROM pg_temp.run(21, 2);
SELECT batch, rows, sent FROM pg_temp.run(22, 2, schema => 'plain');

SELECT sweep.drop_queue('batched_git_ref_updates_project_cleanup');
DROP SCHEMA gitlab, gitlab_partitions_dynamic, plain CASCADE;
