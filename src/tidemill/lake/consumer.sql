-- name: unread_changes
-- What began since the last take, then what was still open at it: each a range of the primary key.
-- (One WHERE with OR reads the whole history, on both databases. The + keeps SQLite off the commit_seq index.)
-- commit_seq < :write_pointer is the snapshot: a later commit waits for the next take.
SELECT partition_key, write_pointer, commit_seq, op, location, manifest
  FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :write_pointer
   AND +commit_seq < :write_pointer AND delivers = 1
 UNION ALL
SELECT partition_key, write_pointer, commit_seq, op, location, manifest
  FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check})
   AND +commit_seq < :write_pointer AND delivers = 1
 ORDER BY write_pointer, partition_key
