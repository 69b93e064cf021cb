-- name: find_partitions
-- gives: partition_key, write_pointer
-- The current changes of some partitions, each by its key.
SELECT partition_key, write_pointer FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key IN ({texts:keys})
 ORDER BY partition_key, commit_seq

-- name: find_files
-- gives: dataset_id, item, content_version, afterwards, archive
-- The contents of some files that were not replaced and did not leave by themselves, the latest of each name first.
SELECT dataset_id, name AS item, content_version, afterwards, archive FROM inbox_file
 WHERE dataset_id = :dataset_id AND name IN ({texts:names}) AND status || '' <> 'SKIPPED'
   AND coalesce(afterwards <> 'replaced', TRUE)
 ORDER BY name, modified_at DESC, first_seen DESC

-- name: record_input
-- With the run, before its first attempt. Of the node of a workflow with its commit.
INSERT INTO run_input (run_id, dataset_id, write_pointer, item, content_version)
SELECT r.run_id, r.dataset_id, r.write_pointer, r.item, r.content_version
  FROM {rows:items(run_id text, dataset_id text, write_pointer bigint, item text, content_version text)} AS r

-- name: list_given
-- gives: dataset_id
SELECT DISTINCT dataset_id FROM run_input WHERE run_id = :run_id ORDER BY dataset_id

-- name: read_changes
-- gives: partition_key, write_pointer, commit_seq, op, location, manifest, existed
-- The changes of one file set that a run was given, and whether the key had been there before.
SELECT change.partition_key, change.write_pointer, change.commit_seq, change.op, change.location, change.manifest,
       coalesce((SELECT CASE WHEN earlier.op = 'drop' THEN 0 ELSE 1 END FROM partition_change AS earlier
                  WHERE earlier.dataset_id = change.dataset_id AND earlier.partition_key = change.partition_key
                    AND earlier.commit_seq < change.commit_seq
                  ORDER BY earlier.commit_seq DESC LIMIT 1), 0) AS existed
  FROM run_input AS input CROSS JOIN partition_change AS change
 WHERE input.run_id = :run_id AND input.dataset_id = :dataset_id
   AND change.dataset_id = input.dataset_id AND change.write_pointer = input.write_pointer
   AND change.partition_key = input.item
 ORDER BY change.partition_key, change.commit_seq

-- name: read_files
-- gives: dataset_id, name, content_version, etag, bytes, modified_at, failures
-- The files of one inbox that a run was given, oldest first. Their failures are of other runs.
SELECT file.dataset_id, file.name, file.content_version, file.etag, file.bytes, file.modified_at, 0 AS failures
  FROM run_input AS input CROSS JOIN inbox_file AS file
 WHERE input.run_id = :run_id AND input.dataset_id = :dataset_id
   AND file.dataset_id = input.dataset_id AND file.name = input.item AND file.content_version = input.content_version
 ORDER BY file.modified_at, file.name

-- name: read_items
-- gives: dataset_id, write_pointer, item, content_version
SELECT dataset_id, write_pointer, item, content_version FROM run_input
 WHERE run_id = :run_id
 ORDER BY dataset_id, item, write_pointer, content_version

-- name: find_of_worker
-- gives: commit_seq
-- The last commit of a worker whose input is still there; nothing for other runs. (The + keeps PostgreSQL off the index
-- of all workers.) Cost: the input.
SELECT max(commit_seq + 0) AS commit_seq FROM run_input WHERE run_id = :run_id

-- name: find_replaced
-- gives: dataset_id, write_pointer, item, superseded_seq, is_kept
-- The changes and versions that a run was given: when each was replaced, and whether its files are kept.
SELECT change.dataset_id, change.write_pointer, change.partition_key AS item, change.superseded_seq,
       CASE WHEN change.expired_at IS NULL THEN 1 ELSE 0 END AS is_kept
  FROM run_input AS input CROSS JOIN partition_change AS change
 WHERE input.run_id = :run_id AND input.write_pointer > 0
   AND change.dataset_id = input.dataset_id AND change.write_pointer = input.write_pointer
   AND change.partition_key = input.item

-- name: find_left
-- gives: dataset_id, item, content_version, afterwards, archive
-- The files that a run was given, with what became of each.
SELECT file.dataset_id, file.name AS item, file.content_version, file.afterwards, file.archive
  FROM run_input AS input CROSS JOIN inbox_file AS file
 WHERE input.run_id = :run_id AND input.write_pointer = 0
   AND file.dataset_id = input.dataset_id AND file.name = input.item AND file.content_version = input.content_version

-- name: find_published
-- gives: dataset_id, write_pointer, item, superseded_seq, is_kept
-- What a transaction has published, but for drops: when each change was replaced, and whether its files are kept.
SELECT dataset_id, write_pointer, partition_key AS item, superseded_seq,
       CASE WHEN expired_at IS NULL THEN 1 ELSE 0 END AS is_kept
  FROM partition_change WHERE write_pointer = :write_pointer AND op <> 'drop'

-- name: read_versions
-- gives: version
-- The versions of a snapshot that a run was given, in the order in which they were committed.
SELECT change.write_pointer AS version
  FROM run_input AS input CROSS JOIN partition_change AS change
 WHERE input.run_id = :run_id AND input.dataset_id = :dataset_id
   AND change.dataset_id = input.dataset_id AND change.write_pointer = input.write_pointer
   AND change.partition_key = input.item
 ORDER BY change.commit_seq
