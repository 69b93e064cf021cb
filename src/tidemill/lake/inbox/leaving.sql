-- name: find_leaving
-- gives: dataset_id, name, content_version, etag, bytes, afterwards, archive, location, root, checksum, modified_at
-- Not a file that was chosen for a run which has not ended: the input of such a run is recorded before it has read.
SELECT file.dataset_id, file.name, file.content_version, file.etag, file.bytes, file.afterwards, file.archive,
       dataset.location, dataset.root, file.checksum, file.modified_at
  FROM inbox_file AS file JOIN dataset ON dataset.dataset_id = file.dataset_id
 WHERE file.leave_at IS NOT NULL AND file.leave_at <= tidemill_now()
   AND (SELECT 1 FROM run_input AS input {indexed_by:run_input_item} CROSS JOIN run
         WHERE input.dataset_id = file.dataset_id AND input.item = file.name AND input.write_pointer = 0
           AND input.content_version = file.content_version AND run.run_id = input.run_id
           AND run.state NOT IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')
         LIMIT 1) IS NULL
 ORDER BY file.leave_at LIMIT :most

-- name: note_left
-- locks: inbox_file
-- Only what no other janitor has noted meanwhile. With a wait it is looked at again.
UPDATE inbox_file
   SET afterwards = seen.afterwards, archive = seen.archive, error = seen.error,
       leave_at = CASE WHEN seen.wait IS NULL THEN NULL ELSE tidemill_now() + seen.wait END
  FROM {rows:files(dataset_id text, name text, content_version text, afterwards text, archive text, error text, wait bigint)} AS seen
 WHERE inbox_file.dataset_id = seen.dataset_id AND inbox_file.name = seen.name
   AND inbox_file.content_version = seen.content_version AND coalesce(inbox_file.leave_at IS NOT NULL, FALSE)
