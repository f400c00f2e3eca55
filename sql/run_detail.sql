-- room: engine
-- The detail of a run: what its batches report, merged by key.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
DROP SCHEMA IF EXISTS run_detail CASCADE;
CREATE SCHEMA run_detail;
SELECT setval(pg_get_serial_sequence('sweep.run_live', 'run_id'), 3300000, false);

-- Reports the parts of the args, one a batch.
CREATE FUNCTION run_detail.step(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	nth int := coalesce(b.cursor::int, 0);
BEGIN
	RETURN ROW(CASE WHEN nth + 1 < jsonb_array_length(b.args -> 'parts') THEN 1 ELSE 0 END, to_jsonb(nth + 1),
		nullif(b.args -> 'parts' -> nth, 'null'))::sweep.progress;
END
$$;
SELECT sweep.create_job('run_detail', step => 'run_detail.step');
\set run 'CALL sweep.run(\'run_detail\', jsonb_build_object(\'parts\', :\'parts\'::jsonb)); SELECT batches, detail FROM sweep.runs WHERE job = \'run_detail\' ORDER BY run_id DESC LIMIT 1;'

-- none at all, none in some batches
\set parts '[null, null]'
:run
\set parts '[null, {"n": 1}, null, {"n": 2}, null]'
:run
\set parts '[{}, {}]'
:run
-- numbers are added, exactly and beyond any integer
\set parts '[{"n": 1, "d": 0.1, "big": 9223372036854775807}, {"n": -3, "d": 0.20, "big": 9223372036854775807}]'
:run
-- arrays are appended, whatever is in them
\set parts '[{"a": [1, "x"]}, {"a": []}, {"a": [[2], {"k": null}, null]}]'
:run
-- of anything else the last one stands, also when the kind changes
\set parts '[{"s": "a", "b": true, "o": {"x": 1}, "z": null}, {"s": "b", "b": false, "o": {"y": 2}, "z": 1}]'
:run
\set parts '[{"a": 1, "b": [1], "c": "1", "d": 1, "e": {"x": 1}}, {"a": [2], "b": 2, "c": 2, "d": null, "e": [1]}]'
:run
-- a number in a string is no number, a number after a string begins anew
\set parts '[{"n": "1"}, {"n": 2}, {"n": 3}]'
:run
-- keys are kept apart, those of one batch stay
\set parts '[{"only first": 1}, {"only second": 2}, {"": 3}]'
:run
-- no key has a meaning: a run whose rows wait is that of a copy
\set parts '[{"waits_for": [1]}]'
:run
SELECT stop_reason FROM sweep.runs WHERE job = 'run_detail' ORDER BY run_id DESC LIMIT 1;
-- an array keeps its first 32 elements
SELECT jsonb_agg(jsonb_build_object('ids', ids)) AS parts FROM (
	SELECT jsonb_agg(i ORDER BY i) AS ids FROM generate_series(0, 79) AS i GROUP BY i / 20 ORDER BY min(i)) AS part \gset
CALL sweep.run('run_detail', jsonb_build_object('parts', :'parts'::jsonb));
SELECT batches, jsonb_array_length(detail -> 'ids') AS elements, detail -> 'ids' -> 0 AS first, detail -> 'ids' -> -1 AS last
	FROM sweep.runs WHERE job = 'run_detail' ORDER BY run_id DESC LIMIT 1;

-- as long as nothing but numbers of the same length changes it is added to in place: numbers that become longer and
-- shorter, change their sign and scale, next to an array that is full
SELECT jsonb_agg(jsonb_build_object('same', 'text', 'n', n, 'ids', (SELECT jsonb_agg(i) FROM generate_series(1, 40) AS i)) ORDER BY nth) AS parts
	FROM unnest('{1, 9998, 1, 1, 9999, -20000, -1, 1.5, 0.25, -0.75, 9999998999, 12345678901234567890, -12345678901234567890}'::numeric[])
		WITH ORDINALITY AS u (n, nth) \gset
SELECT jsonb_agg(jsonb_build_object('n', part -> 'n') ORDER BY nth) AS alone, sum((part ->> 'n')::numeric) AS right_sum
	FROM jsonb_array_elements(:'parts') WITH ORDINALITY AS u (part, nth) \gset
CALL sweep.run('run_detail', jsonb_build_object('parts', :'parts'::jsonb));
SELECT detail ->> 'n' = :'right_sum' AS is_right, detail ->> 'n' AS n, detail - 'ids' - 'n' AS others, jsonb_array_length(detail -> 'ids') AS elements,
	jsonb_path_query_array(detail, '$.ids[30 to 31]') AS last_elements FROM sweep.runs WHERE job = 'run_detail' ORDER BY run_id DESC LIMIT 1;
\set parts :alone
:run
-- a batch that is rolled back leaves it as it was
CREATE FUNCTION run_detail.fails(b sweep.batch) RETURNS sweep.progress LANGUAGE plpgsql AS $$
DECLARE
	nth int := coalesce(b.cursor::int, 0) + 1;
BEGIN
	IF nth > 3 THEN
		PERFORM 1 / 0;
	END IF;
	RETURN ROW(1, to_jsonb(nth), '{"n": 1, "s": "text"}'::jsonb)::sweep.progress;
END
$$;
SELECT sweep.create_job('run_detail fails', step => 'run_detail.fails');
CALL sweep.run('run_detail fails');
SELECT batches, detail FROM sweep.runs WHERE job = 'run_detail fails';
-- a text of the same length is another text
\set parts '[{"s": "one", "n": 1}, {"s": "two", "n": 2}, {"s": "two", "n": 3}]'
:run
-- objects are merged key by key, at any depth, whatever else is in them
\set parts '[{"tables": {"a": {"deleted": 1}}, "seen": {"rows": 1, "at": "x", "ids": [1], "of": {}}}, {"tables": {"a": {"deleted": 2, "nulled": 1}, "b": {"deleted": 5}}, "seen": {"rows": 2, "at": "y", "ids": [2], "of": {"b": 1}}}]'
:run
\set parts '[{"tables": {"a": {"deleted": 9998}}}, {"tables": {"a": {"deleted": 1}}}, {"tables": {"a": {"deleted": 1}}}, {"tables": {"a": {"deleted": "x"}}}]'
:run

-- the row of a run that went on for long is as it would be after one batch
CREATE FUNCTION run_detail.many(b sweep.batch) RETURNS sweep.progress LANGUAGE sql AS $$
	SELECT ROW(1, to_jsonb(coalesce(b.cursor::int, 0) + 1), jsonb_build_object('n', 1, 'last', coalesce(b.cursor::text, 'none')))::sweep.progress
$$;
SELECT sweep.create_job('run_detail many', step => 'run_detail.many', max_batches => 3000);
CALL sweep.run('run_detail many');
SELECT batches, rows, cursor, detail FROM sweep.runs WHERE job = 'run_detail many';

SELECT sweep.drop_job(name) FROM sweep.job WHERE name LIKE 'run\_detail%';
DELETE FROM sweep.run_live WHERE job LIKE 'run\_detail%';
DELETE FROM sweep.run_history WHERE job LIKE 'run\_detail%';
DROP SCHEMA run_detail CASCADE;
