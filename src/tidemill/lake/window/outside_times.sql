-- name: list_unread
-- gives: partition_key, commit_seq, read_seq
-- Partitions that a snapshot sees with a change that the program has not read, also those that were replaced since. Also
-- partitions that were dropped from the commit seen on, if the program has noted times of their rows.
SELECT c.partition_key, max(c.commit_seq) AS commit_seq, coalesce(max(o.commit_seq), -1) AS read_seq
  FROM (SELECT partition_key, commit_seq FROM partition_change {indexed_by:partition_by_time}
         WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
           AND +commit_seq < :write_pointer
         UNION ALL
        SELECT partition_key, commit_seq FROM partition_change {indexed_by:partition_superseded}
         WHERE dataset_id = :dataset_id AND superseded_seq >= :write_pointer AND +commit_seq < :write_pointer
           AND partition_time IS NOT NULL
         UNION ALL
        SELECT d.partition_key, d.commit_seq FROM partition_change AS d {indexed_by:partition_dropped}
         WHERE d.dataset_id = :dataset_id AND d.op = 'drop' AND d.commit_seq >= :seen AND d.commit_seq < :write_pointer
           AND EXISTS (SELECT 1 FROM outside_time AS n
                        WHERE n.program_id = :program_id AND n.dataset_id = :dataset_id
                          AND n.partition_key = d.partition_key AND n.stretches <> '[]')) AS c
  LEFT JOIN outside_time AS o
    ON o.program_id = :program_id AND o.dataset_id = :dataset_id AND o.partition_key = c.partition_key
 GROUP BY c.partition_key
HAVING max(c.commit_seq) > coalesce(max(o.commit_seq), -1)
 ORDER BY c.partition_key

-- name: list_times
-- gives: partition_key, stretches
SELECT partition_key, stretches FROM outside_time
 WHERE program_id = :program_id AND dataset_id = :dataset_id AND stretches <> '[]'

-- name: put_times
INSERT INTO outside_time (program_id, dataset_id, partition_key, commit_seq, stretches)
SELECT :program_id, t.dataset_id, t.partition_key, t.commit_seq, t.stretches
  FROM {rows:times(dataset_id text, partition_key text, commit_seq bigint, stretches text)} AS t
 WHERE true
    ON CONFLICT (program_id, dataset_id, partition_key) DO UPDATE
   SET commit_seq = excluded.commit_seq, stretches = excluded.stretches

-- name: forget_times
DELETE FROM outside_time WHERE program_id = :program_id
