-- name: insert_change
INSERT INTO partition_change (dataset_id, write_pointer, partition_key, op, commit_seq, delivers, location, manifest,
                              files, bytes, run_id, at)
SELECT :dataset_id, :write_pointer, k.value, 'create', {commit_seq}, 1, '', CAST('' AS {blob}), 0, 0, '', tidemill_now()
  FROM ({texts:keys}) AS k

-- name: read_changes
SELECT write_pointer, partition_key, commit_seq FROM partition_change
 WHERE dataset_id = :dataset_id AND commit_seq < :write_pointer
 ORDER BY commit_seq, partition_key
