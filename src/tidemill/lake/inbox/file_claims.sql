-- name: lock_owner
-- gives: found
-- locks: tx
-- A fenced attempt must not claim: its run may have ended, and no end of the run would then return the files.
SELECT 1 AS found FROM tx
 WHERE write_pointer = :write_pointer AND state = 'in_progress' AND run_id = :run_id AND epoch = :epoch {for_share}

-- name: select_claims
-- gives: dataset_id, name, content_version, etag, bytes, modified_at, failures, alone
SELECT dataset_id, name, content_version, etag, bytes, modified_at, failures, alone FROM inbox_file
 WHERE run_id = :run_id AND status = 'IN_PROGRESS'
 ORDER BY modified_at, dataset_id, name

-- name: find_held
-- gives: claims, failures
SELECT count(*) AS claims, coalesce(max(failures), 0) AS failures
  FROM inbox_file WHERE run_id = :run_id AND status = 'IN_PROGRESS'

-- name: refuse_if_moved
SELECT tidemill_refuse('claims_moved', CAST(:run_id AS TEXT))
  FROM (SELECT count(*) AS claims FROM inbox_file WHERE run_id = :run_id AND status = 'IN_PROGRESS') AS held
 WHERE held.claims <> :claims

-- name: select_claimed_names
-- gives: location, dataset_id, name, content_version, etag, bytes, modified_at, failures, alone
-- With the location, so that the path in an error leads to the file.
SELECT dataset.location, file.dataset_id, file.name, file.content_version, file.etag, file.bytes, file.modified_at,
       file.failures, file.alone
  FROM inbox_file AS file JOIN dataset ON dataset.dataset_id = file.dataset_id
 WHERE file.run_id = :run_id AND file.status = 'IN_PROGRESS'

-- name: select_claimable
-- gives: dataset_id, name, content_version, etag, bytes, modified_at, failures, alone
-- locks: inbox_file
-- In the order of the index, so that the cost is what is taken, and what is skipped because its time has not come. A
-- content waits while an earlier one of its name is being processed: a look-up by its key each, and not an anti-join,
-- for which PostgreSQL without statistics read for each file all that others hold (10,000 of each took minutes).
SELECT dataset_id, name, content_version, etag, bytes, modified_at, failures, alone FROM inbox_file
 WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') AND not_before <= tidemill_now()
   AND (SELECT 1 FROM inbox_file AS other
         WHERE other.dataset_id = inbox_file.dataset_id AND other.name = inbox_file.name
           AND coalesce(other.status = 'IN_PROGRESS', FALSE) LIMIT 1) IS NULL
 ORDER BY modified_at, name LIMIT :limit {skip_locked}

-- name: claim
-- locks: inbox_file
UPDATE inbox_file SET status = 'IN_PROGRESS', run_id = :run_id, epoch = :epoch, not_before = 0
  FROM {rows:files(dataset_id text, name text, content_version text)} AS file
 WHERE inbox_file.dataset_id = file.dataset_id AND inbox_file.name = file.name
   AND inbox_file.content_version = file.content_version AND coalesce(inbox_file.status IN ('NEW', 'ERROR'), FALSE)

-- name: return_others
-- locks: inbox_file
-- All but those kept. A content that was replaced meanwhile is never delivered.
UPDATE inbox_file
   SET status = CASE WHEN EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED' ELSE 'NEW' END,
       run_id = NULL, epoch = NULL
 WHERE run_id = :run_id AND status = 'IN_PROGRESS'
   AND (dataset_id, name, content_version) NOT IN (SELECT file.dataset_id, file.name, file.content_version
          FROM {rows:files(dataset_id text, name text, content_version text)} AS file)

-- name: restamp
-- locks: inbox_file
UPDATE inbox_file SET epoch = :epoch WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch < :epoch

-- name: hand_over
-- locks: inbox_file
UPDATE inbox_file SET run_id = :heir, epoch = 1 WHERE run_id = :run_id AND status = 'IN_PROGRESS'

-- name: select_claimed_inboxes
-- gives: dataset_id
SELECT DISTINCT dataset_id FROM inbox_file WHERE run_id = :run_id AND status = 'IN_PROGRESS'
