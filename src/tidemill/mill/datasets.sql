-- name: list_current
-- gives: partition_key, op, write_pointer, commit_seq, files, bytes, row_count, run_id, at, metadata
-- Changes, of which a compaction may hold the rows, and compactions. Each kind stops at :limit.
SELECT listed.partition_key, listed.op, listed.write_pointer, listed.commit_seq, listed.files, listed.bytes,
       listed.row_count, listed.run_id, listed.at, listed.metadata
  FROM (SELECT changed.partition_key, changed.op, changed.write_pointer, changed.commit_seq, changed.files,
               changed.bytes, changed.row_count, changed.run_id, changed.at, changed.metadata
          FROM (SELECT partition_key, op, write_pointer, commit_seq,
                       CASE WHEN compacted_seq IS NULL THEN files ELSE 0 END AS files,
                       CASE WHEN compacted_seq IS NULL THEN bytes ELSE 0 END AS bytes,
                       CASE WHEN compacted_seq IS NULL THEN row_count ELSE 0 END AS row_count, run_id, at, metadata
                  FROM partition_change {indexed_by:partition_current}
                 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop'
                   AND (partition_key, commit_seq) > (:after_key, :after_seq) AND partition_key < :upper
                 ORDER BY partition_key, commit_seq
                 LIMIT :limit) AS changed
         UNION ALL
        SELECT merged.partition_key, 'compact', merged.write_pointer, merged.commit_seq, merged.files, merged.bytes,
               merged.row_count, merged.run_id, merged.at, NULL
          FROM (SELECT partition_key, write_pointer, commit_seq, files, bytes, row_count, run_id, at
                  FROM compaction {indexed_by:compaction_current}
                 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL
                   AND (partition_key, commit_seq) > (:after_key, :after_seq) AND partition_key < :upper
                 ORDER BY partition_key
                 LIMIT :limit) AS merged) AS listed
 ORDER BY listed.partition_key, listed.commit_seq
 LIMIT :limit

-- name: list_first_changes
-- gives: partition_key, write_pointer, commit_seq, op, location, manifest
-- The files of the first partitions by key, or of one: `lower` and `upper` are keys, both included.
SELECT partition_key, write_pointer, commit_seq, op, location, manifest
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop'
   AND partition_key >= :lower AND partition_key <= :upper
 ORDER BY partition_key, commit_seq
 LIMIT :limit

-- name: list_dropped
-- gives: partition_key, write_pointer, commit_seq, run_id, at
SELECT partition_key, write_pointer, commit_seq, run_id, at
  FROM partition_change {indexed_by:partition_dropped}
 WHERE dataset_id = :dataset_id AND op = 'drop' AND (commit_seq, partition_key) < (:before_seq, :before_key)
 ORDER BY commit_seq DESC, partition_key DESC
 LIMIT :limit

-- name: list_schemas
-- gives: schema, commit_seq, run_id
SELECT schema, commit_seq, run_id FROM dataset_schema
 WHERE dataset_id = :dataset_id AND commit_seq > :after ORDER BY commit_seq LIMIT :limit

-- name: list_keys
-- gives: partition_key
SELECT DISTINCT partition_key FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key >= :lower AND partition_key < :upper
 ORDER BY partition_key LIMIT :limit
