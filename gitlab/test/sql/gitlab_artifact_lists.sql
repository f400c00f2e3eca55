-- The lists in which a share notes for all shares where expired artifacts are: to whom they belong, in which order they
-- are taken, and from where a share reads. What other sessions hold is in gitlab_artifacts_race.spec.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep_gitlab CASCADE;
\set SHOW_CONTEXT never
CREATE TABLE one ();
CREATE TABLE two ();
CREATE ROLE regress_sweep_alice IN ROLE sweep_user;
CREATE ROLE regress_sweep_bob IN ROLE sweep_user;
CREATE VIEW pg_temp.lists AS
	SELECT role_id::regrole AS role, table_id::regclass AS of_table, buckets, bucket, rank() OVER (ORDER BY list_id) AS nth, is_last, partition_ids, places
	FROM sweep_gitlab.artifact_list WHERE table_id IN ('one'::regclass, 'two'::regclass) ORDER BY list_id;
CREATE VIEW pg_temp.positions AS
	SELECT role_id::regrole AS role, table_id::regclass AS of_table, buckets, read_from AT TIME ZONE 'UTC' AS read_from, drained
	FROM sweep_gitlab.artifact_position WHERE table_id IN ('one'::regclass, 'two'::regclass) ORDER BY 1, 2, 3;
-- the number that a list has in the view
CREATE FUNCTION pg_temp.after(nth bigint) RETURNS bigint
	LANGUAGE sql AS 'SELECT coalesce((SELECT list_id FROM sweep_gitlab.artifact_list WHERE table_id IN (''one''::regclass, ''two''::regclass) ORDER BY list_id OFFSET nth - 1 LIMIT 1), 0)';
CREATE FUNCTION pg_temp.list_for(role text, of_table regclass, buckets int, read_from timestamptz) RETURNS jsonb
	LANGUAGE plpgsql AS $$
DECLARE
	reader jsonb;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', 'regress_sweep_' || role);
	reader := sweep_gitlab.start_reading(of_table, buckets, 0, 0, true, true);
	PERFORM sweep_gitlab.list_artifacts(of_table, buckets, 2, read_from, true, '{0,1,0,0,1,0,0}', '{100,101,102,100,101,102,100}',
		'{"(0,1)","(0,2)","(0,3)","(0,4)","(0,5)","(0,6)","(0,7)"}');
	RESET ROLE;
	RETURN reader;
END
$$;
CREATE FUNCTION pg_temp.take(role text, of_table regclass, buckets int, bucket int, after bigint, size int DEFAULT 2,
		OUT is_last boolean, OUT partition_ids bigint[], OUT places tid[], OUT is_before boolean)
	LANGUAGE plpgsql AS $$
DECLARE
	list sweep_gitlab.artifact_list;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', 'regress_sweep_' || role);
	list := sweep_gitlab.take_artifacts(of_table, buckets, bucket, after, size);
	RESET ROLE;
	SELECT list.is_last, list.partition_ids, list.places, list.list_id < (SELECT min(l.list_id) FROM sweep_gitlab.artifact_list AS l WHERE l.role_id = list.role_id AND l.table_id = list.table_id
		AND l.buckets = list.buckets AND l.bucket = list.bucket) INTO is_last, partition_ids, places, is_before;
END
$$;
CREATE FUNCTION pg_temp.start(role text, of_table regclass, buckets int, bucket int, after bigint DEFAULT 0, first boolean DEFAULT false, wait boolean DEFAULT true)
	RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	reader jsonb;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', 'regress_sweep_' || role);
	SET LOCAL timezone = 'UTC';
	reader := sweep_gitlab.start_reading(of_table, buckets, bucket, after, first, wait);
	RESET ROLE;
	RETURN reader;
END
$$;

-- a list of two, of two and of one for share 0, one of two for share 1; in the order in which they were read
SELECT pg_temp.list_for('alice', 'one', 2, '2026-01-01Z');
SELECT * FROM pg_temp.lists;
-- those of another role, table or number of shares are others
SELECT pg_temp.list_for('bob', 'one', 2, '2026-01-02Z'), pg_temp.list_for('alice', 'two', 2, '2026-01-03Z'), pg_temp.list_for('alice', 'one', 3, '2026-01-04Z'),
	pg_temp.list_for('bob', 'one', 3, '2026-01-07Z'), pg_temp.list_for('alice', 'two', 3, '2026-01-08Z');
SELECT * FROM pg_temp.positions;
SELECT role, of_table, buckets, bucket, count(*) FROM pg_temp.lists GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;

-- the first of a share, the next behind a number, one after the other until there is none; is_before: those that are left
BEGIN;
SELECT * FROM pg_temp.take('alice', 'one', 2, 1, 0);
SELECT * FROM pg_temp.take('alice', 'one', 2, 1, 0);
SELECT * FROM pg_temp.take('alice', 'one', 2, 0, pg_temp.after(1));
SELECT * FROM pg_temp.take('alice', 'one', 2, 0, 0);
SELECT * FROM pg_temp.take('alice', 'one', 2, 0, 0);
SELECT * FROM pg_temp.take('alice', 'one', 2, 0, 0);
SELECT role, of_table, buckets, bucket, count(*) FROM pg_temp.lists GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
ROLLBACK;
-- none, however many others have
BEGIN;
DELETE FROM sweep_gitlab.artifact_list WHERE (role_id, table_id, buckets, bucket) = ('regress_sweep_alice'::regrole, 'one'::regclass, 2, 0);
SELECT * FROM pg_temp.take('alice', 'one', 2, 0, 0);
SELECT count(*) FROM pg_temp.lists;
ROLLBACK;
-- a smaller batch takes a part; what is left is found again behind the number that it got
BEGIN;
SELECT * FROM pg_temp.take('alice', 'one', 2, 0, 0, 1);
SELECT * FROM pg_temp.take('alice', 'one', 2, 1, 0, 1);
SELECT * FROM pg_temp.lists LIMIT 2;
SELECT * FROM pg_temp.take('alice', 'one', 2, 0, pg_temp.after(1) - 1, 5);
SELECT count(*) FROM pg_temp.lists;
ROLLBACK;

-- from where a share reads, and for which shares: a list that is there is taken first
SELECT pg_temp.start('alice', 'one', 2, 0), pg_temp.start('alice', 'one', 2, 1), pg_temp.start('alice', 'one', 2, 0, pg_temp.after(2));
-- behind the last one; lists of another share, role, table or number of shares do not count
SELECT pg_temp.start('alice', 'one', 2, 2), pg_temp.start('alice', 'one', 2, 0, pg_temp.after(4)), pg_temp.start('alice', 'one', 2, 0, pg_temp.after(8));
BEGIN;
DELETE FROM sweep_gitlab.artifact_list WHERE (role_id, table_id, buckets) = ('regress_sweep_alice'::regrole, 'one'::regclass, 2);
SELECT pg_temp.start('alice', 'one', 2, 0);
ROLLBACK;
-- the first reading of all begins at the front, and not at the end of a batch
SELECT pg_temp.start('bob', 'two', 2, 0, wait => false);
BEGIN;
SELECT pg_temp.start('bob', 'two', 2, 0, wait => true);
SELECT * FROM pg_temp.positions;
ROLLBACK;
SELECT pg_temp.start('alice', 'one', 2, 2), pg_temp.start('bob', 'one', 2, 2), pg_temp.start('alice', 'two', 2, 2), pg_temp.start('alice', 'one', 3, 2);

-- reading for one share lists, and leaves the position as it is; nothing left to read ends a pass, and keeps the position
BEGIN;
SELECT sweep_gitlab._list_artifacts('regress_sweep_alice'::regrole, 'one'::regclass, 2, 2, '2026-01-05Z', false, '{7}', '{107}', '{"(7,7)"}');
SELECT * FROM pg_temp.lists WHERE bucket = 7;
SELECT * FROM pg_temp.positions;
SELECT sweep_gitlab._list_artifacts('regress_sweep_alice'::regrole, 'one'::regclass, 2, 2, '2026-01-06Z', true, '{}', '{}', '{}');
SELECT * FROM pg_temp.positions;
SELECT sweep_gitlab._list_artifacts('regress_sweep_alice'::regrole, 'one'::regclass, 2, 2, NULL, true, '{}', '{}', '{}');
SELECT * FROM pg_temp.positions;
-- the next run begins at the front; within a run it goes on
SELECT pg_temp.start('alice', 'one', 2, 2, first => false);
SELECT role, of_table, buckets, count(*) FROM pg_temp.lists GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
-- and forgets the lists of this role and table for this and other numbers of shares
SAVEPOINT s;
SELECT pg_temp.start('alice', 'one', 2, 2, first => true);
SELECT role, of_table, buckets, count(*) FROM pg_temp.lists GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
SELECT * FROM pg_temp.positions;
ROLLBACK TO s;
-- but not those of a number of shares without a position: a share begins there just now
DELETE FROM sweep_gitlab.artifact_position WHERE (role_id, table_id, buckets) = ('regress_sweep_alice'::regrole, 'one'::regclass, 3);
SELECT pg_temp.start('alice', 'one', 2, 2, first => true);
SELECT role, of_table, buckets, count(*) FROM pg_temp.lists GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
ROLLBACK;
-- a first batch while others are in the middle of a pass
SELECT pg_temp.start('alice', 'one', 2, 2, first => true);

-- 2,000 lists wait: a share reads for itself, from where reading has come; those of another role, table or number do not count
BEGIN;
INSERT INTO sweep_gitlab.artifact_list (role_id, table_id, buckets, bucket, is_last, partition_ids, places)
	SELECT 'regress_sweep_alice'::regrole, 'one'::regclass, 2, 1, false, '{100}', '{"(0,1)"}' FROM generate_series(1, 1995);
SELECT count(*), pg_temp.start('alice', 'one', 2, 2) FROM pg_temp.lists WHERE role::text LIKE '%alice' AND of_table = 'one'::regclass AND buckets = 2;
INSERT INTO sweep_gitlab.artifact_list (role_id, table_id, buckets, bucket, is_last, partition_ids, places)
	VALUES ('regress_sweep_alice'::regrole, 'one'::regclass, 2, 1, false, '{100}', '{"(0,1)"}');
SELECT count(*), pg_temp.start('alice', 'one', 2, 2) FROM pg_temp.lists WHERE role::text LIKE '%alice' AND of_table = 'one'::regclass AND buckets = 2;
ROLLBACK;

TRUNCATE sweep_gitlab.artifact_list, sweep_gitlab.artifact_position;
DROP TABLE one, two CASCADE;
DROP ROLE regress_sweep_alice, regress_sweep_bob;
