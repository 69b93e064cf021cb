-- name: lock_feeds
-- gives: consumer_id, dataset_id, name
-- locks: consumer
-- Those of all programs that an app has ever had. Locked before what waits for them, as everywhere: a reset under way has
-- ended, and gives its new id.
SELECT consumer_id, dataset_id, name FROM consumer
 WHERE dataset_id IN (SELECT dataset_id FROM dataset WHERE kind = 'snapshot')
   AND name IN (SELECT namespace || '.' || app || '.' || name FROM program WHERE namespace = :namespace AND app = :app)
 ORDER BY consumer_id {for_update}

-- name: forget_all_unseen
-- locks: consumer_work
-- A feed that is declared again has its old id.
DELETE FROM consumer_work {indexed_by:consumer_work_new} WHERE consumer_id IN ({texts:feeds}) AND state = 'new'

-- name: forget_feeds
-- locks: consumer
DELETE FROM consumer WHERE consumer_id IN ({texts:feeds})

-- name: find_unseen
-- gives: bytes, at
SELECT change.bytes, change.at
  FROM partition_change AS change {indexed_by:version_current}
 WHERE change.dataset_id = :dataset_id AND change.partition_key = '' AND change.superseded_seq IS NULL
   AND change.commit_seq >= :position

-- name: forget_unseen
-- locks: consumer_work
DELETE FROM consumer_work {indexed_by:consumer_work_new}
 WHERE consumer_id = :consumer_id AND state = 'new' AND commit_seq < :write_pointer

-- name: refuse_if_feed_moved
-- locks: consumer
SELECT tidemill_refuse('feed_moved', CAST(:name AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM consumer
                    WHERE consumer_id = :consumer_id AND start_version = :position {for_update})

-- name: move_feed
-- locks: consumer
UPDATE consumer SET start_version = :write_pointer, revision = revision + 1
 WHERE consumer_id = :consumer_id AND start_version = :position
