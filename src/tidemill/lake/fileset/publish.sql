-- name: refuse_existing
-- `create` against a key that exists: the partial index of what is current holds at most a few rows for each key.
-- CROSS JOIN keeps SQLite from turning the loops round; PostgreSQL does not mind.
SELECT CASE WHEN change.commit_seq > CAST(:write_pointer AS BIGINT)
            THEN tidemill_refuse('partition_conflict', CAST(:dataset AS TEXT), wanted.shown, change.op, change.run_id,
                                 CAST(change.write_pointer AS TEXT))
            ELSE tidemill_refuse('partition_exists', CAST(:dataset AS TEXT), wanted.shown, change.run_id,
                                 CAST(change.write_pointer AS TEXT))
       END
  FROM {rows:wanted(partition_key text, shown text)} AS wanted
 CROSS JOIN partition_change AS change {indexed_by:partition_current}
 WHERE change.dataset_id = :dataset_id AND change.partition_key = wanted.partition_key
   AND change.superseded_seq IS NULL

-- name: refuse_any_later
-- `overwrite` and `drop` against anything on the key that committed after this transaction began: first committer wins.
SELECT tidemill_refuse('partition_conflict', CAST(:dataset AS TEXT), wanted.shown, change.op, change.run_id,
                       CAST(change.write_pointer AS TEXT))
  FROM {rows:wanted(partition_key text, shown text)} AS wanted
 CROSS JOIN partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.partition_key = wanted.partition_key
   AND change.commit_seq > :write_pointer

-- name: refuse_later_overwrite
-- `append`, and metadata, against a later overwrite or drop only: appends commute with one another.
SELECT tidemill_refuse('partition_conflict', CAST(:dataset AS TEXT), wanted.shown, change.op, change.run_id,
                       CAST(change.write_pointer AS TEXT))
  FROM {rows:wanted(partition_key text, shown text)} AS wanted
 CROSS JOIN partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.partition_key = wanted.partition_key
   AND change.commit_seq > :write_pointer AND change.op IN ('overwrite', 'drop')

-- name: refuse_same_metadata
-- Metadata that another transaction has set or removed since. `pattern` is the name as JSON with its colon, which no
-- value holds: quotes in values are escaped.
SELECT tidemill_refuse('metadata_conflict', CAST(:dataset AS TEXT), wanted.shown, wanted.name, change.run_id,
                       CAST(change.write_pointer AS TEXT))
  FROM {rows:wanted(partition_key text, shown text, name text, pattern text)} AS wanted
 CROSS JOIN partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.partition_key = wanted.partition_key
   AND change.commit_seq > :write_pointer AND replace(change.metadata, wanted.pattern, '') <> change.metadata

-- name: refuse_other_schema
-- The policy `fail`: a file set has one schema, that of its first commit.
SELECT tidemill_refuse('schema_changed', CAST(:dataset AS TEXT), schema, CAST(:schema AS TEXT), run_id)
  FROM dataset_schema
 WHERE dataset_id = :dataset_id AND schema_id <> :schema_id

-- name: refuse_evolved
-- The policy `evolve`: these columns were made from the newest columns. Refused if another run has changed them since.
SELECT tidemill_refuse('schema_conflict', CAST(:dataset AS TEXT), newest.run_id)
  FROM (SELECT schema_id, run_id FROM dataset_schema
         WHERE dataset_id = :dataset_id ORDER BY commit_seq DESC LIMIT 1) AS newest
 WHERE newest.schema_id <> :schema_id AND newest.schema_id <> :base_id

-- name: insert_schema
INSERT INTO dataset_schema (dataset_id, schema_id, schema, commit_seq, run_id)
VALUES (:dataset_id, :schema_id, :schema, {commit_seq}, :run_id)
    ON CONFLICT (dataset_id, schema_id) DO NOTHING

-- name: supersede
-- Before the new rows are inserted: they are current.
UPDATE partition_change SET superseded_seq = {commit_seq}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key IN ({texts:keys})

-- name: insert_changes
-- A drop is superseded by its own commit: no snapshot ever sees it, and the history keeps it.
INSERT INTO partition_change
       (dataset_id, write_pointer, partition_key, op, commit_seq, superseded_seq, delivers, location, manifest, files,
        bytes, row_count, schema_id, partition_time, metadata, run_id, at)
SELECT :dataset_id, :write_pointer, change.partition_key, change.op, {commit_seq},
       CASE WHEN change.op = 'drop' THEN {commit_seq} END, change.delivers, change.location, change.manifest,
       change.files, change.bytes, change.row_count, :schema_id, change.partition_time,
       change.metadata, :run_id, tidemill_now()
  FROM {rows:changes(partition_key text, op text, delivers integer, location text, manifest blob, files bigint, bytes bigint, row_count bigint,
                     partition_time bigint, metadata text)} AS change

-- name: find_keys
-- gives: value
-- Which of these keys a snapshot sees: one look-up by key each, the last change of it. (For EXISTS PostgreSQL may walk
-- the whole history beside the sorted keys.)
SELECT wanted.value
  FROM ({texts:keys}) AS wanted
 WHERE 'drop' <> (SELECT change.op FROM partition_change AS change
                   WHERE change.dataset_id = :dataset_id AND change.partition_key = wanted.value
                     AND change.commit_seq < :write_pointer
                   ORDER BY change.commit_seq DESC LIMIT 1)
