-- name: find_schema
SELECT schema_id, schema FROM dataset_schema WHERE dataset_id = :dataset_id

-- name: read_visible
-- What is current and was committed before the snapshot, and what was replaced since, each by its index: the cost is
-- what is current plus what came since, never the history. (Found by the later overwrites, what was replaced cost the
-- history of their keys.) In no order: for one by key SQLite would walk the history.
SELECT partition_key, write_pointer, commit_seq, op, location, manifest
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND +commit_seq < :write_pointer
 UNION ALL
SELECT partition_key, write_pointer, commit_seq, op, location, manifest
  FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq > :write_pointer AND +commit_seq < :write_pointer

-- name: lock_dataset
SELECT dataset_id FROM dataset WHERE dataset_id = :dataset_id AND dropped_at IS NULL {for_update}

-- name: insert_pin
INSERT INTO reader_pin (pin_id, dataset_id, commit_seq, run_id, until)
VALUES (:pin_id, :dataset_id, :commit_seq, :run_id, :until)

-- name: delete_pins
DELETE FROM reader_pin WHERE run_id = :run_id
