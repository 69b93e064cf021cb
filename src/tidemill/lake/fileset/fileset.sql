-- name: find_schema
-- gives: schema
-- The newest: under the policy `evolve` there are earlier ones.
SELECT schema FROM dataset_schema WHERE dataset_id = :dataset_id ORDER BY commit_seq DESC LIMIT 1

-- name: read_visible
-- gives: partition_key, write_pointer, commit_seq, op, location, manifest, metadata, compacts
-- Changes that are current and were committed before the snapshot, and changes that were replaced since, each by its
-- own index. The cost is the current changes and those that came since, never the history. (Found by their successors,
-- the replaced changes cost the history of their keys. Without the || '' PostgreSQL would do so too.) In no order: to
-- sort by key SQLite would walk the history. The >= includes changes that the very next commit replaced, for readers as
-- of a commit. If :compacted is 1 (else 0), a change whose rows a compaction holds has :no_files as manifest, and the
-- compaction stands beside the change. One statement, so that a reader sees both or neither.
SELECT partition_key, write_pointer, commit_seq, op, location,
       CASE WHEN :compacted = 1 AND compacted_seq < :write_pointer THEN :no_files ELSE manifest END AS manifest,
       metadata, 0 AS compacts
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND +commit_seq < :write_pointer
   AND partition_key >= :lower AND partition_key < :upper
 UNION ALL
SELECT partition_key, write_pointer, commit_seq, op, location,
       CASE WHEN :compacted = 1 AND compacted_seq < :write_pointer THEN :no_files ELSE manifest END, metadata, 0
  FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :write_pointer AND +commit_seq < :write_pointer
   AND partition_key || '' >= :lower AND partition_key || '' < :upper
 UNION ALL
SELECT partition_key, write_pointer, commit_seq, 'append', location, manifest, NULL, 1
  FROM compaction {indexed_by:compaction_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND :compacted = 1 AND +commit_seq < :write_pointer
   AND partition_key >= :lower AND partition_key < :upper
 UNION ALL
SELECT partition_key, write_pointer, commit_seq, 'append', location, manifest, NULL, 1
  FROM compaction {indexed_by:compaction_superseded}
 WHERE :compacted = 1 AND dataset_id = :dataset_id AND superseded_seq >= :write_pointer
   AND +commit_seq < :write_pointer AND partition_key || '' >= :lower AND partition_key || '' < :upper

-- name: lock_dataset
-- gives: dataset, horizon
-- locks: dataset
SELECT namespace || '.' || name AS dataset, horizon FROM dataset
 WHERE dataset_id = :dataset_id AND dropped_at IS NULL {for_update}

-- name: insert_pin
INSERT INTO reader_pin (pin_id, dataset_id, commit_seq, run_id, until)
VALUES (:pin_id, :dataset_id, :commit_seq, :run_id, :until)

-- name: delete_pins
DELETE FROM reader_pin WHERE run_id = :run_id
