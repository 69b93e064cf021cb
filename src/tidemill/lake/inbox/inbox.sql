-- name: insert_marker
INSERT INTO inbox_marker (dataset_id, next_listing_at, attempts, retry_after, afterwards, archive)
VALUES (:dataset_id, tidemill_now(), :attempts, :retry_after, :afterwards, :archive)
    ON CONFLICT (dataset_id) DO UPDATE
   SET next_listing_at = excluded.next_listing_at, in_charge = NULL, attempts = excluded.attempts,
       retry_after = excluded.retry_after, afterwards = excluded.afterwards, archive = excluded.archive

-- name: list_files
-- gives: name, content_version, bytes, modified_at, first_seen, status, failures, retry_at, error, run_id,
--   row_count, afterwards, archive
SELECT name, content_version, bytes, modified_at, first_seen, status, failures, nullif(not_before, 0) AS retry_at,
       error, run_id, row_count, afterwards, archive
  FROM inbox_file
 WHERE dataset_id = :dataset_id AND name > :after AND (:state = '' OR status = :state)
 ORDER BY name, content_version LIMIT :limit

-- name: list_versions
-- gives: name, content_version, bytes, modified_at, first_seen, status, failures, retry_at, error, run_id,
--   row_count, afterwards, archive
SELECT name, content_version, bytes, modified_at, first_seen, status, failures, nullif(not_before, 0) AS retry_at,
       error, run_id, row_count, afterwards, archive
  FROM inbox_file
 WHERE dataset_id = :dataset_id AND name = :name AND content_version > :content_version
   AND (:state = '' OR status = :state)
 ORDER BY content_version

-- name: count_files
-- gives: status, files, bytes
SELECT status, count(*) AS files, coalesce(sum(bytes), 0) AS bytes FROM inbox_file WHERE dataset_id = :dataset_id
 GROUP BY status ORDER BY status
