-- name: pin_at_begin
-- In the begin of the transaction whose reads it keeps: what that sees cannot be gone before it is pinned.
INSERT INTO reader_pin (pin_id, dataset_id, commit_seq, run_id, until)
VALUES (:pin_id, :dataset_id, {commit_seq}, :run_id, NULL)

-- name: record_read
INSERT INTO run_input (run_id, dataset_id, write_pointer, item, commit_seq)
SELECT CAST(:run_id AS TEXT), seen.dataset_id, seen.version, '',
       (SELECT {commit_seq} FROM worker
         WHERE worker.program_id = (SELECT run.program_id FROM run WHERE run.run_id = :run_id) AND worker.instances > 0)
  FROM {rows:read(dataset_id text, version bigint)} AS seen
 WHERE true
    ON CONFLICT (run_id, dataset_id, write_pointer, item, content_version) DO NOTHING

-- name: find_visible
-- gives: version, commit_seq, superseded_seq, location, manifest, columns, run_id, at, metadata, expired_at, dataset
-- The version that a snapshot sees: the current one, or one that was replaced since.
SELECT change.write_pointer AS version, change.commit_seq, change.superseded_seq, change.location, change.manifest,
       schema.schema AS columns, change.run_id, change.at, change.metadata, change.expired_at,
       (SELECT namespace || '.' || name FROM dataset WHERE dataset.dataset_id = change.dataset_id) AS dataset
  FROM partition_change AS change {indexed_by:version_current}
  JOIN dataset_schema AS schema ON schema.dataset_id = change.dataset_id AND schema.schema_id = change.schema_id
 WHERE change.dataset_id = :dataset_id AND change.partition_key = '' AND change.superseded_seq IS NULL
   AND change.commit_seq < :write_pointer
 UNION ALL
SELECT change.write_pointer, change.commit_seq, change.superseded_seq, change.location, change.manifest, schema.schema,
       change.run_id, change.at, change.metadata, change.expired_at,
       (SELECT namespace || '.' || name FROM dataset WHERE dataset.dataset_id = change.dataset_id)
  FROM partition_change AS change {indexed_by:partition_superseded}
  JOIN dataset_schema AS schema ON schema.dataset_id = change.dataset_id AND schema.schema_id = change.schema_id
 WHERE change.dataset_id = :dataset_id AND change.superseded_seq >= :write_pointer
   AND +change.commit_seq < :write_pointer

-- name: supersede_older
-- Only a version that is earlier in the order of refreshes (refresh_order.sql): a later one that was faster stays current.
UPDATE partition_change {indexed_by:version_current} SET superseded_seq = {commit_seq}
 WHERE dataset_id = :dataset_id AND partition_key = '' AND superseded_seq IS NULL
   AND (coalesce(order_time, -9223372036854775807), write_pointer)
     < (coalesce(CAST(:order_time AS BIGINT), -9223372036854775807), :write_pointer)

-- name: insert_version
-- If the current version was not superseded, it is later in the order, and this one is history from the first.
INSERT INTO partition_change
       (dataset_id, write_pointer, partition_key, op, commit_seq, superseded_seq, delivers, location, manifest, files,
        bytes, row_count, schema_id, metadata, run_id, at, logical_time, order_time)
SELECT :dataset_id, :write_pointer, '', 'overwrite', {commit_seq},
       (SELECT {commit_seq} FROM partition_change AS newer {indexed_by:version_current}
         WHERE newer.dataset_id = :dataset_id AND newer.partition_key = '' AND newer.superseded_seq IS NULL),
       0, :location, version.manifest, version.files, version.bytes, version.row_count, :schema_id, :metadata, :run_id,
       tidemill_now(), CAST(:logical_time AS BIGINT), CAST(:order_time AS BIGINT)
  FROM {rows:version(manifest blob, files bigint, bytes bigint, row_count bigint)} AS version

-- name: publish_if_current
-- A refresh that came too late brings nothing to read.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}),
       tidemill_now(), 'refreshed', :event_key, :payload
  FROM partition_change AS change {indexed_by:version_current}
 WHERE change.dataset_id = :dataset_id AND change.partition_key = '' AND change.superseded_seq IS NULL
   AND change.write_pointer = :write_pointer
