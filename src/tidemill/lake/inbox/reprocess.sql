-- name: find_processed
-- gives: name, content_version, etag, bytes, modified_at
SELECT name, content_version, etag, bytes, modified_at FROM inbox_file
 WHERE dataset_id = :dataset_id AND name IN ({texts:names}) AND coalesce(status = 'SUCCESS', FALSE)
 ORDER BY name, content_version

-- name: guard_processed
-- Each file is processed still, the janitor has nothing to do with it, and no other content of its name waits or is
-- being processed: of one name one content is delivered.
SELECT tidemill_refuse('files_changed', CAST(CAST(:wanted AS BIGINT) AS TEXT), CAST(ready.files AS TEXT))
  FROM (SELECT count(*) AS files
          FROM {rows:files(dataset_id text, name text, content_version text)} AS wanted
          JOIN inbox_file AS file ON file.dataset_id = wanted.dataset_id AND file.name = wanted.name
           AND file.content_version = wanted.content_version
         WHERE coalesce(file.status = 'SUCCESS' AND file.leave_at IS NULL, FALSE)
           AND (SELECT 1 FROM inbox_file AS other
                 WHERE other.dataset_id = wanted.dataset_id AND other.name = wanted.name
                   AND coalesce(other.status IN ('NEW', 'ERROR', 'IN_PROGRESS'), FALSE) LIMIT 1) IS NULL) AS ready
 WHERE ready.files <> :wanted

-- name: keep_record
-- locks: nothing, at inbox_file
-- What the audit compares the inputs of earlier runs with.
INSERT INTO inbox_reprocessed (dataset_id, name, run_id, content_version, row_count, by_whom, at, seq)
SELECT file.dataset_id, file.name, file.run_id, file.content_version, file.row_count, :by_whom, tidemill_now(),
       {commit_seq}
  FROM {rows:files(dataset_id text, name text, content_version text)} AS wanted
  JOIN inbox_file AS file ON file.dataset_id = wanted.dataset_id AND file.name = wanted.name
   AND file.content_version = wanted.content_version

-- name: deliver_again
-- locks: inbox_file
UPDATE inbox_file
   SET status = 'NEW', failures = 0, alone = 0, not_before = 0, error = NULL, run_id = NULL, epoch = NULL,
       row_count = NULL, afterwards = NULL, archive = NULL
  FROM {rows:files(dataset_id text, name text, content_version text)} AS wanted
 WHERE inbox_file.dataset_id = wanted.dataset_id AND inbox_file.name = wanted.name
   AND inbox_file.content_version = wanted.content_version AND coalesce(inbox_file.status = 'SUCCESS', FALSE)

-- name: publish_again
-- As for files that are found: whatever their arrival triggers, this does.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}),
       tidemill_now(), 'files', :event_key,
       '{"count": ' || CAST(count(*) AS TEXT) || ', "bytes": ' || CAST(sum(file.bytes) AS TEXT) || '}'
  FROM {rows:files(dataset_id text, name text, content_version text)} AS wanted
  JOIN inbox_file AS file ON file.dataset_id = wanted.dataset_id AND file.name = wanted.name
   AND file.content_version = wanted.content_version
HAVING count(*) > 0
