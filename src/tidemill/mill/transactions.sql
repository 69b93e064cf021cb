-- name: list_runs
-- gives: run_id, namespace, triggered_by
-- Namespaces of the programs of runs; a run of a writer outside has no program, and tells what it has declared.
SELECT run.run_id, program.namespace, run.triggered_by
  FROM run LEFT JOIN program ON program.program_id = run.program_id
 WHERE run.run_id IN ({texts:run_ids})

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
