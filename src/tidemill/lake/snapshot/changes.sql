-- name: forget_feeds
DELETE FROM consumer
 WHERE name = :name AND dataset_id IN (SELECT dataset_id FROM dataset WHERE kind = 'snapshot')
   AND NOT (dataset_id IN ({texts:followed}))

-- name: find_unseen
SELECT change.bytes, change.at
  FROM partition_change AS change {indexed_by:version_current}
 WHERE change.dataset_id = :dataset_id AND change.partition_key = '' AND change.superseded_seq IS NULL
   AND change.commit_seq >= :position

-- name: refuse_if_feed_moved
-- rank: consumer
SELECT tidemill_refuse('feed_moved', CAST(:name AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM consumer
                    WHERE consumer_id = :consumer_id AND start_version = :position {for_update})

-- name: move_feed
UPDATE consumer SET start_version = :write_pointer, revision = revision + 1
 WHERE consumer_id = :consumer_id AND start_version = :position
