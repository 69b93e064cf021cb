-- name: list_inputs
SELECT dataset_id, write_pointer, item, content_version
  FROM run_input WHERE run_id = :run_id
 ORDER BY dataset_id, write_pointer, item
 LIMIT :limit
