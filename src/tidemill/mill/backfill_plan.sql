-- name: list_partitions
-- gives: partition_key, write_pointer, commit_seq, delivered, bytes, row_count
-- Current partitions, each with its newest change, and the newest one that consumers get.
SELECT partition_key, max(write_pointer) AS write_pointer, max(commit_seq) AS commit_seq,
       max(CASE WHEN delivers = 1 THEN write_pointer ELSE 0 END) AS delivered, CAST(sum(bytes) AS BIGINT) AS bytes,
       CAST(sum(coalesce(row_count, 0)) AS BIGINT) AS row_count
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop'
   AND partition_key >= :lower AND partition_key > :after AND partition_key < :upper
 GROUP BY partition_key ORDER BY partition_key LIMIT :most

-- name: list_named
-- gives: partition_key, write_pointer, commit_seq, delivered, bytes, row_count
SELECT partition_key, max(write_pointer) AS write_pointer, max(commit_seq) AS commit_seq,
       max(CASE WHEN delivers = 1 THEN write_pointer ELSE 0 END) AS delivered, CAST(sum(bytes) AS BIGINT) AS bytes,
       CAST(sum(coalesce(row_count, 0)) AS BIGINT) AS row_count
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop' AND partition_key IN ({texts:keys})
 GROUP BY partition_key ORDER BY partition_key

-- name: list_changed
-- gives: partition_key
-- Cost: the changes of the transactions between two write pointers.
SELECT DISTINCT partition_key FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer >= :first AND write_pointer <= :last
 ORDER BY partition_key LIMIT :most

-- name: list_course
-- gives: partition_key, run_state, work_state
-- The state of the program's newest run that had a partition as input, and what its consumer did with the newest change.
SELECT one.partition_key,
       (SELECT run.state FROM run_input AS input JOIN run ON run.run_id = input.run_id
         WHERE input.dataset_id = :dataset_id AND input.item = one.partition_key AND run.program_id = :program_id
         ORDER BY run.created_at DESC, run.run_id DESC LIMIT 1) AS run_state,
       (SELECT work.state FROM consumer_work AS work
         WHERE work.consumer_id = :consumer_id AND work.write_pointer = one.write_pointer
           AND work.partition_key = one.partition_key) AS work_state
  FROM {rows:partitions(partition_key text, write_pointer bigint)} AS one
