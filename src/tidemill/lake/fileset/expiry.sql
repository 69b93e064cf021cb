-- name: find_next_superseded
-- The first change behind the horizon that was replaced: the oldest one whose files are still kept.
SELECT superseded_seq FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :horizon
 ORDER BY superseded_seq LIMIT 1

-- name: lock_horizon
SELECT horizon FROM dataset WHERE dataset_id = :dataset_id {for_update}

-- name: find_pinned
-- What pins and open transactions look at is what they saw at their begin, at any later time. (The + keeps PostgreSQL
-- from walking all transactions in order, to the first that is open: those that are open are the last ones.)
SELECT min(needed.pointer) FROM (
    SELECT min(commit_seq) AS pointer FROM reader_pin WHERE dataset_id = :dataset_id
     UNION ALL
    SELECT min(+write_pointer) FROM tx {indexed_by:tx_open} WHERE state = 'in_progress') AS needed

-- name: find_claimed
-- What a run holds comes again with its next attempt, though it was replaced meanwhile. (What merely waits does not.)
SELECT min(change.superseded_seq)
  FROM consumer CROSS JOIN consumer_work AS held {indexed_by:consumer_work_held}
 CROSS JOIN partition_change AS change
 WHERE consumer.dataset_id = :dataset_id AND held.consumer_id = consumer.consumer_id AND held.state = 'in_progress'
   AND change.dataset_id = :dataset_id AND change.write_pointer = held.write_pointer
   AND change.partition_key = held.partition_key AND change.superseded_seq >= :horizon

-- name: find_bound
-- Where a piece of work of about :most changes ends.
SELECT superseded_seq FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :horizon AND superseded_seq <= :bound
 ORDER BY superseded_seq LIMIT 1 OFFSET :most

-- name: list_superseded
SELECT write_pointer, partition_key, superseded_seq FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :horizon AND superseded_seq <= :bound

-- name: mark_expired
-- Never what is current, whatever the caller says.
UPDATE partition_change SET expired_at = tidemill_now()
 WHERE (dataset_id, write_pointer, partition_key) IN
       (SELECT CAST(:dataset_id AS TEXT), listed.write_pointer, listed.partition_key
          FROM {rows:changes(write_pointer bigint, partition_key text)} AS listed)
   AND superseded_seq IS NOT NULL AND expired_at IS NULL

-- name: insert_garbage
-- The name is only to be unique; the row of the change says where the files are.
INSERT INTO garbage (location, dataset_id, write_pointer, partition_key, reason, not_before)
SELECT change.dataset_id || '/' || change.location || ' ' || CAST(change.write_pointer AS TEXT) || ' '
           || change.partition_key,
       change.dataset_id, change.write_pointer, change.partition_key, 'superseded', tidemill_now() + :wait
  FROM {rows:changes(write_pointer bigint, partition_key text)} AS listed
 CROSS JOIN partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.write_pointer = listed.write_pointer
   AND change.partition_key = listed.partition_key AND change.expired_at IS NOT NULL
    ON CONFLICT (location) DO NOTHING

-- name: raise_horizon
UPDATE dataset SET horizon = :horizon WHERE dataset_id = :dataset_id AND horizon < :horizon
