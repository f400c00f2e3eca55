--
-- Pending deletions of git refs, in the order in which pipelines of all
-- projects end; here "last" is the number of projects.
--
INSERT INTO p_batched_git_ref_updates_deletions (id, project_id, created_at, updated_at, ref)
SELECT i, 1 + i * 7919 % :last, now() - interval '2 hours', now() - interval '2 hours', 'refs/pipelines/' || i
FROM generate_series(1::bigint, :rows) AS i;
