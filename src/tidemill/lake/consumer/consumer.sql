-- name: unread_changes
-- gives: partition_key, write_pointer, commit_seq, op, location, manifest
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

-- name: find_fates
-- gives: partition_key, write_pointer, existed, superseded
-- Of each change taken: whether its key had been there before it, and whether it was overwritten before the snapshot.
-- Sub-selects of one value are look-ups by key on both databases.
SELECT taken.partition_key, taken.write_pointer,
       coalesce((SELECT CASE WHEN earlier.op = 'drop' THEN 0 ELSE 1 END FROM partition_change AS earlier
                  WHERE earlier.dataset_id = :dataset_id AND earlier.partition_key = taken.partition_key
                    AND earlier.commit_seq < (SELECT commit_seq FROM partition_change
                                               WHERE dataset_id = :dataset_id AND write_pointer = taken.write_pointer
                                                 AND partition_key = taken.partition_key)
                  ORDER BY earlier.commit_seq DESC LIMIT 1), 0) AS existed,
       CASE WHEN (SELECT superseded_seq FROM partition_change
                   WHERE dataset_id = :dataset_id AND write_pointer = taken.write_pointer
                     AND partition_key = taken.partition_key) < :write_pointer THEN 1 ELSE 0 END AS superseded
  FROM {rows:taken(partition_key text, write_pointer bigint)} AS taken
