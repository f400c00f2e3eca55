--
-- 1,000,000 pending deletions of git refs in 12,000 projects, 83 or 84 in each,
-- in the order in which pipelines of all projects end.
--
INSERT INTO p_batched_git_ref_updates_deletions (id, project_id, created_at, updated_at, ref)
SELECT i, 1 + i * 7919 % 12000, now() - interval '2 hours', now() - interval '2 hours', 'refs/pipelines/' || i
FROM generate_series(1::bigint, 1000000) AS i;
SELECT setval('to_be_deleted_git_refs_id_seq', 1000000) \g /dev/null
