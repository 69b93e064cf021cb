-- name: list_published
-- gives: dataset_id, partition_key, op, files, bytes, row_count
SELECT dataset_id, partition_key, op, files, bytes, row_count
  FROM partition_change
 WHERE write_pointer = :write_pointer
 UNION ALL
SELECT dataset_id, partition_key, 'compact', files, bytes, row_count
  FROM compaction
 WHERE write_pointer = :write_pointer
 ORDER BY dataset_id, partition_key
 LIMIT :limit
