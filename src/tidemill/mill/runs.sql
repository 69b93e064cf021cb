-- name: list_inputs
-- gives: dataset_id, write_pointer, item, content_version
SELECT dataset_id, write_pointer, item, content_version
  FROM run_input WHERE run_id = :run_id
 ORDER BY dataset_id, write_pointer, item
 LIMIT :limit
