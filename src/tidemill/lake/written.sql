-- name: read_written
-- gives: partition_key, write_pointer, commit_seq, op, location, manifest, columns
-- What a transaction has published to one data set, with the columns of its files.
SELECT change.partition_key, change.write_pointer, change.commit_seq, change.op, change.location, change.manifest,
       (SELECT schema.schema FROM dataset_schema AS schema
         WHERE schema.dataset_id = change.dataset_id AND schema.schema_id = change.schema_id) AS columns
  FROM partition_change AS change
 WHERE change.write_pointer = :write_pointer AND change.dataset_id = :dataset_id
 ORDER BY change.partition_key

-- name: find_writers
-- gives: partition_key, run_id, is_dropped
-- The runs whose changes some partitions, or a snapshot, have now, and the runs that have dropped others of them.
-- (As in `find_keys`: one look-up by key each, the last change of it.)
SELECT partition_key, run_id, 0 AS is_dropped FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key IN ({texts:keys})
 UNION ALL
SELECT dropped.partition_key, dropped.run_id, 1 AS is_dropped
  FROM ({texts:keys}) AS wanted CROSS JOIN partition_change AS dropped
 WHERE dropped.dataset_id = :dataset_id AND dropped.partition_key = wanted.value AND dropped.op || '' = 'drop'
   AND dropped.write_pointer = (SELECT change.write_pointer FROM partition_change AS change
                                 WHERE change.dataset_id = :dataset_id AND change.partition_key = wanted.value
                                 ORDER BY change.commit_seq DESC LIMIT 1)
 ORDER BY partition_key, run_id
