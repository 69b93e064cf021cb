-- name: measure_days
-- gives: day, changes, files, bytes, row_count, since, counted
-- The newest changes of a data set, by the day of their commit, in UTC. A drop has no rows.
SELECT c.at / 86400000 AS day, count(*) AS changes, CAST(sum(c.files) AS BIGINT) AS files,
       CAST(sum(c.bytes) AS BIGINT) AS bytes, CAST(coalesce(sum(c.row_count), 0) AS BIGINT) AS row_count,
       min(c.at) AS since, CAST(sum(c.one) AS BIGINT) AS counted
  FROM (SELECT at, files, bytes, row_count, 1 AS one FROM partition_change {indexed_by:partition_commit}
         WHERE dataset_id = :dataset_id ORDER BY commit_seq DESC LIMIT :most) AS c
 GROUP BY c.at / 86400000 ORDER BY day

-- name: list_history
-- gives: op, write_pointer, commit_seq, superseded_seq, files, bytes, row_count, run_id, at, expired_at, metadata
-- The newest changes of one partition.
SELECT op, write_pointer, commit_seq, superseded_seq, files, bytes, row_count, run_id, at, expired_at, metadata
  FROM partition_change {indexed_by:partition_history}
 WHERE dataset_id = :dataset_id AND partition_key = :partition_key
 ORDER BY commit_seq DESC LIMIT :limit

-- name: list_takers
-- gives: run_id, program_id, state, write_pointer, started_at, ended_at
-- The runs that had the newest changes of one partition as their input.
SELECT r.run_id, r.program_id, r.state, i.write_pointer, r.started_at, r.ended_at
  FROM (SELECT run_id, write_pointer FROM run_input
         WHERE dataset_id = :dataset_id AND item = :partition_key
         ORDER BY write_pointer DESC LIMIT :limit) AS i
  JOIN run AS r ON r.run_id = i.run_id
 ORDER BY i.write_pointer DESC, r.run_id DESC
