-- name: list_inputs
-- gives: dataset_id, write_pointer, item, content_version
SELECT dataset_id, write_pointer, item, content_version
  FROM run_input WHERE run_id = :run_id
 ORDER BY dataset_id, write_pointer, item
 LIMIT :limit

-- name: count_claims
-- gives: partitions, files
SELECT (SELECT count(*) FROM consumer_work WHERE run_id = :run_id AND state = 'in_progress') AS partitions,
       (SELECT count(*) FROM inbox_file WHERE run_id = :run_id AND status = 'IN_PROGRESS') AS files
