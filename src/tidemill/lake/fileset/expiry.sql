-- name: list_next_superseded
-- gives: dataset_id, changed, merged
-- Of each file set that has any, a dropped one too: the first commits behind its horizon that replaced a change, and a
-- compaction. They are the oldest whose files are still kept.
SELECT dataset_id, changed, merged FROM (
    SELECT own.dataset_id,
           (SELECT min(superseded_seq) FROM partition_change {indexed_by:partition_superseded}
             WHERE partition_change.dataset_id = own.dataset_id AND superseded_seq >= own.horizon) AS changed,
           (SELECT min(superseded_seq) FROM compaction {indexed_by:compaction_superseded}
             WHERE compaction.dataset_id = own.dataset_id AND superseded_seq >= own.horizon) AS merged
      FROM dataset AS own WHERE own.kind = 'fileset') AS found
 WHERE changed IS NOT NULL OR merged IS NOT NULL

-- name: lock_horizon
-- gives: horizon
-- locks: dataset
SELECT horizon FROM dataset WHERE dataset_id = :dataset_id {for_update}

-- name: find_pinned
-- gives: pointer
-- What pins and open transactions look at is what they saw at their begin, at any later time. (The + keeps PostgreSQL
-- from walking all transactions in order, to the first that is open: those that are open are the last ones.)
SELECT min(needed.pointer) AS pointer FROM (
    SELECT min(commit_seq) AS pointer FROM reader_pin WHERE dataset_id = :dataset_id
     UNION ALL
    SELECT min(+write_pointer) FROM tx {indexed_by:tx_open} WHERE state = 'in_progress') AS needed

-- name: find_claimed
-- gives: superseded_seq
-- What a run holds comes again with its next attempt, though it was replaced meanwhile. (What merely waits does not.)
SELECT min(change.superseded_seq) AS superseded_seq
  FROM consumer CROSS JOIN consumer_work AS held {indexed_by:consumer_work_held}
 CROSS JOIN partition_change AS change
 WHERE consumer.dataset_id = :dataset_id AND held.consumer_id = consumer.consumer_id AND held.state = 'in_progress'
   AND change.dataset_id = :dataset_id AND change.write_pointer = held.write_pointer
   AND change.partition_key = held.partition_key AND change.superseded_seq >= :horizon

-- name: find_bound
-- gives: seq
-- Where a piece of work of about :most changes ends.
SELECT found.seq FROM (
    SELECT changed.superseded_seq AS seq FROM (
        SELECT superseded_seq FROM partition_change {indexed_by:partition_superseded}
         WHERE dataset_id = :dataset_id AND superseded_seq >= :horizon AND superseded_seq <= :bound
         ORDER BY superseded_seq LIMIT :most + 1) AS changed
     UNION ALL
    SELECT merged.superseded_seq FROM (
        SELECT superseded_seq FROM compaction {indexed_by:compaction_superseded}
         WHERE dataset_id = :dataset_id AND superseded_seq >= :horizon AND superseded_seq <= :bound
         ORDER BY superseded_seq LIMIT :most + 1) AS merged) AS found
 ORDER BY found.seq LIMIT 1 OFFSET :most

-- name: list_superseded
-- gives: write_pointer, partition_key, superseded_seq
-- Changes and compactions. A transaction makes one of both for a key, so that its write pointer and the key name it.
SELECT write_pointer, partition_key, superseded_seq FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :horizon AND superseded_seq <= :bound
 UNION ALL
SELECT write_pointer, partition_key, superseded_seq FROM compaction {indexed_by:compaction_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :horizon AND superseded_seq <= :bound

-- name: mark_expired
-- Never what is current, whatever the caller says.
UPDATE partition_change SET expired_at = tidemill_now()
 WHERE (dataset_id, write_pointer, partition_key) IN
       (SELECT CAST(:dataset_id AS TEXT), listed.write_pointer, listed.partition_key
          FROM {rows:changes(write_pointer bigint, partition_key text)} AS listed)
   AND superseded_seq IS NOT NULL AND expired_at IS NULL

-- name: mark_compactions
-- As `mark_expired`, of another table.
UPDATE compaction SET expired_at = tidemill_now()
 WHERE (dataset_id, write_pointer, partition_key) IN
       (SELECT CAST(:dataset_id AS TEXT), listed.write_pointer, listed.partition_key
          FROM {rows:changes(write_pointer bigint, partition_key text)} AS listed)
   AND superseded_seq IS NOT NULL AND expired_at IS NULL

-- name: insert_garbage
-- The name is only to be unique; the row of the change or compaction says where the files are.
INSERT INTO garbage (location, dataset_id, write_pointer, partition_key, reason, not_before)
SELECT CAST(:dataset_id AS TEXT) || '/' || expired.location || ' ' || CAST(expired.write_pointer AS TEXT) || ' '
           || expired.partition_key,
       :dataset_id, expired.write_pointer, expired.partition_key, 'superseded', tidemill_now() + :wait
  FROM (SELECT change.location, change.write_pointer, change.partition_key
          FROM {rows:changes(write_pointer bigint, partition_key text)} AS listed
         CROSS JOIN partition_change AS change
         WHERE change.dataset_id = :dataset_id AND change.write_pointer = listed.write_pointer
           AND change.partition_key = listed.partition_key AND change.expired_at IS NOT NULL
         UNION ALL
        SELECT merged.location, merged.write_pointer, merged.partition_key
          FROM {rows:changes(write_pointer bigint, partition_key text)} AS listed
         CROSS JOIN compaction AS merged
         WHERE merged.dataset_id = :dataset_id AND merged.write_pointer = listed.write_pointer
           AND merged.partition_key = listed.partition_key AND merged.expired_at IS NOT NULL) AS expired
 WHERE true
    ON CONFLICT (location) DO NOTHING

-- name: supersede_all
UPDATE partition_change {indexed_by:partition_current} SET superseded_seq = :commit_seq
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL

-- name: supersede_compactions
UPDATE compaction {indexed_by:compaction_current} SET superseded_seq = :commit_seq
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL

-- name: raise_horizon
-- locks: dataset
UPDATE dataset SET horizon = :horizon WHERE dataset_id = :dataset_id AND horizon < :horizon
