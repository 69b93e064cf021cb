-- name: list_inputs
-- gives: dataset_id, write_pointer, item, content_version
SELECT dataset_id, write_pointer, item, content_version FROM run_input
 WHERE run_id = :run_id
 ORDER BY dataset_id, write_pointer, item, content_version
 LIMIT :limit

-- name: list_outputs
-- gives: dataset_id, write_pointer, item
-- By the transactions of the run: a worker commits many. (The + keeps SQLite on the index of write pointers.)
SELECT change.dataset_id, change.write_pointer, change.partition_key AS item
  FROM tx CROSS JOIN partition_change AS change {indexed_by:partition_unmarked}
 WHERE tx.run_id = :run_id AND tx.commit_seq IS NOT NULL AND change.write_pointer = tx.write_pointer
 ORDER BY change.write_pointer DESC, change.dataset_id, change.partition_key
 LIMIT :limit

-- name: list_readers
-- gives: run_id
-- The runs that have taken one content: a partition's change, a version, or a content of a file.
SELECT run_id FROM run_input {indexed_by:run_input_item}
 WHERE dataset_id = :dataset_id AND item = :item AND write_pointer = :write_pointer
   AND content_version = :content_version
 ORDER BY run_id DESC
 LIMIT :limit

-- name: find_writer
-- gives: run_id
SELECT run_id FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer = :write_pointer AND partition_key = :item

-- name: list_current_changes
-- gives: write_pointer
-- The current changes of one partition, newest first: several after appends.
SELECT write_pointer FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND partition_key = :item AND superseded_seq IS NULL
 ORDER BY commit_seq DESC
 LIMIT :limit

-- name: describe_runs
-- gives: run_id, program_id, state, at
SELECT run_id, program_id, state, coalesce(ended_at, started_at, created_at) AS at FROM run
 WHERE run_id IN ({texts:run_ids})

-- name: describe_changes
-- gives: dataset_id, write_pointer, item, op, is_current, at
SELECT change.dataset_id, change.write_pointer, change.partition_key AS item, change.op,
       CASE WHEN change.superseded_seq IS NULL THEN 1 ELSE 0 END AS is_current, change.at
  FROM {rows:contents(dataset_id text, write_pointer bigint, item text)} AS wanted
  JOIN partition_change AS change
    ON change.dataset_id = wanted.dataset_id AND change.write_pointer = wanted.write_pointer
   AND change.partition_key = wanted.item

-- name: describe_files
-- gives: dataset_id, item, content_version, status, at
SELECT file.dataset_id, file.name AS item, file.content_version, file.status, file.first_seen AS at
  FROM {rows:contents(dataset_id text, item text, content_version text)} AS wanted
  JOIN inbox_file AS file
    ON file.dataset_id = wanted.dataset_id AND file.name = wanted.item
   AND file.content_version = wanted.content_version
