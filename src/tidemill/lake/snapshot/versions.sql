-- name: list_kept
-- gives: version, commit_seq, superseded_seq, files, bytes, row_count, run_id, at, metadata, logical_time,
--   replaced_at
-- All versions that can still be read, the last in the order of refreshes first, with when each was replaced: as many as
-- retention keeps.
SELECT change.write_pointer AS version, change.commit_seq, change.superseded_seq, change.files, change.bytes,
       change.row_count, change.run_id, change.at, change.metadata, change.logical_time,
       (SELECT tx.ended_at FROM tx WHERE tx.commit_seq = change.superseded_seq) AS replaced_at
  FROM partition_change AS change {indexed_by:version_kept}
 WHERE change.dataset_id = :dataset_id AND change.partition_key = '' AND change.expired_at IS NULL
 ORDER BY coalesce(change.order_time, -9223372036854775807) DESC, change.write_pointer DESC

-- name: list_readers
-- gives: commit_seq, run_id
-- At which pointer each reader looks: by pins, all that is open, which may pin what it sees later, and programs that
-- want to know next what has changed since.
SELECT commit_seq, run_id FROM reader_pin WHERE dataset_id = :dataset_id
 UNION
SELECT write_pointer, run_id FROM tx {indexed_by:tx_open} WHERE state = 'in_progress'
 UNION
SELECT start_version, 'changes for ' || name FROM consumer WHERE dataset_id = :dataset_id

-- name: find_version
-- gives: version, commit_seq, superseded_seq, location, manifest, columns, run_id, at, metadata, expired_at, dataset
SELECT change.write_pointer AS version, change.commit_seq, change.superseded_seq, change.location, change.manifest,
       schema.schema AS columns, change.run_id, change.at, change.metadata, change.expired_at,
       (SELECT namespace || '.' || name FROM dataset WHERE dataset.dataset_id = change.dataset_id) AS dataset
  FROM partition_change AS change
  JOIN dataset_schema AS schema ON schema.dataset_id = change.dataset_id AND schema.schema_id = change.schema_id
 WHERE change.dataset_id = :dataset_id AND change.write_pointer = :version AND change.partition_key = ''

-- name: refuse_expired
-- Under the data set's lock, under which versions expire.
SELECT tidemill_refuse('version_gone', CAST(:dataset AS TEXT), CAST(write_pointer AS TEXT))
  FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer = :version AND partition_key = '' AND expired_at IS NOT NULL

-- name: refuse_refreshed
-- A roll-back has looked at the current version, and must not hide a newer one.
SELECT tidemill_refuse('refreshed_meanwhile', CAST(:dataset AS TEXT), CAST(write_pointer AS TEXT), run_id)
  FROM partition_change
 WHERE dataset_id = :dataset_id AND commit_seq > :write_pointer
 ORDER BY commit_seq DESC LIMIT 1
