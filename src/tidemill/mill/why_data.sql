-- name: find_contents
-- gives: dataset_id, name, content_version, bytes, modified_at, first_seen, status, failures, retry_at, error, run_id,
--   row_count, afterwards, archive
-- The contents of one name in these inboxes, in the order in which they were found. (The + keeps SQLite on the names.)
SELECT dataset_id, name, content_version, bytes, modified_at, first_seen, status, failures,
       nullif(not_before, 0) AS retry_at, error, run_id, row_count, afterwards, archive
  FROM inbox_file
 WHERE dataset_id IN ({texts:dataset_ids}) AND name = :name
 ORDER BY dataset_id, +first_seen, content_version

-- name: list_names_near
-- gives: name
-- Names that sort just before and just after another name, for a hint.
SELECT before.name FROM (SELECT name FROM inbox_file WHERE dataset_id = :dataset_id AND name < :name
                          ORDER BY name DESC LIMIT :limit) AS before
 UNION ALL
SELECT behind.name FROM (SELECT name FROM inbox_file WHERE dataset_id = :dataset_id AND name > :name
                          ORDER BY name LIMIT :limit) AS behind

-- name: find_oldest_waiting
-- gives: name, modified_at
SELECT name, modified_at FROM inbox_file {indexed_by:inbox_file_open}
 WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') ORDER BY modified_at, name LIMIT 1

-- name: count_waiting
-- gives: files
-- At most :limit are counted.
SELECT count(*) AS files FROM (SELECT 1 FROM inbox_file {indexed_by:inbox_file_open}
                                WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') LIMIT :limit) AS waiting

-- name: find_any_file
-- gives: name
SELECT name FROM inbox_file WHERE dataset_id = :dataset_id ORDER BY name LIMIT 1

-- name: list_changes
-- gives: write_pointer, commit_seq, op, delivers, run_id, at, partition_time, is_current
-- The last changes of one partition, newest first.
SELECT write_pointer, commit_seq, op, delivers, run_id, at, partition_time,
       CASE WHEN superseded_seq IS NULL THEN 1 ELSE 0 END AS is_current
  FROM partition_change
 WHERE dataset_id = :dataset_id AND partition_key = :partition_key
 ORDER BY commit_seq DESC LIMIT :limit

-- name: find_work
-- gives: write_pointer, state, failures, not_before, run_id, error
-- The rows of these changes of one partition in the working set of a consumer: look-ups by the primary key.
SELECT write_pointer, state, failures, nullif(not_before, 0) AS not_before, run_id, error FROM consumer_work
 WHERE consumer_id = :consumer_id AND write_pointer IN ({ints:write_pointers}) AND partition_key = :partition_key
 ORDER BY write_pointer DESC

-- name: find_last_change
-- gives: commit_seq, run_id, at
SELECT commit_seq, run_id, at FROM partition_change WHERE dataset_id = :dataset_id ORDER BY commit_seq DESC LIMIT 1

-- name: list_open_writers
-- gives: write_pointer, run_id, began_at
-- The open transactions that have declared to write to a data set, oldest first.
SELECT declared.write_pointer, tx.run_id, tx.began_at
  FROM in_progress AS declared CROSS JOIN tx
 WHERE declared.dataset_id = :dataset_id AND tx.write_pointer = declared.write_pointer
 ORDER BY declared.write_pointer LIMIT :limit

-- name: find_result
-- gives: write_pointer, stale
SELECT write_pointer, stale FROM window_result
 WHERE program_id = :program_id AND window_end = :window_end AND window_start = :window_start

-- name: find_failure
-- gives: reason, partitions, since, tried_at, retry_at
SELECT failure.reason, failure.partitions, failure.since, failure.tried_at,
       (SELECT program.retry_at FROM window_program AS program WHERE program.program_id = failure.program_id) AS retry_at
  FROM window_failure AS failure
 WHERE failure.program_id = :program_id AND failure.window_end = :window_end AND failure.window_start = :window_start
