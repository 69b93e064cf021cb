-- name: measure_filesets
-- Of each file set: current changes, files, bytes, rows, and how many partitions. Cost: what is current.
SELECT dataset_id, CAST(count(DISTINCT partition_key) AS BIGINT), CAST(sum(files) AS BIGINT),
       CAST(sum(bytes) AS BIGINT), CAST(sum(row_count) AS BIGINT)
  FROM partition_change {indexed_by:partition_current}
 WHERE superseded_seq IS NULL AND op <> 'drop' AND dataset_id IN ({texts:dataset_ids})
 GROUP BY dataset_id

-- name: list_current
SELECT partition_key, op, write_pointer, commit_seq, files, bytes, row_count, run_id, at, metadata
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop'
 ORDER BY partition_key, commit_seq
 LIMIT :limit

-- name: list_first_changes
-- The files of the first partitions by key, or of one: `lower` and `upper` are keys, both included.
SELECT partition_key, write_pointer, commit_seq, op, location, manifest
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop'
   AND partition_key >= :lower AND partition_key <= :upper
 ORDER BY partition_key, commit_seq
 LIMIT :limit

-- name: list_dropped
SELECT partition_key, write_pointer, commit_seq, run_id, at
  FROM partition_change {indexed_by:partition_dropped}
 WHERE dataset_id = :dataset_id AND op = 'drop'
 ORDER BY commit_seq DESC, partition_key
 LIMIT :limit

-- name: list_schemas
SELECT schema, commit_seq, run_id FROM dataset_schema WHERE dataset_id = :dataset_id ORDER BY commit_seq
