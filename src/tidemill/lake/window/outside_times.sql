-- name: find_seen
-- gives: outside_seen
SELECT outside_seen FROM window_input WHERE program_id = :program_id AND dataset_id = :dataset_id

-- name: list_unread
-- gives: partition_key, unread_since
-- Partitions that commits from :since on have changed or dropped, and partitions that earlier runs could not read.
SELECT c.partition_key, max(o.unread_since) AS unread_since
  FROM (SELECT partition_key FROM partition_change {indexed_by:partition_commit}
         WHERE dataset_id = :dataset_id AND commit_seq >= :since AND commit_seq < :until AND (files > 0 OR op <> 'append')
         UNION
        SELECT partition_key FROM outside_time {indexed_by:outside_time_unread}
         WHERE program_id = :program_id AND dataset_id = :dataset_id AND unread_since IS NOT NULL) AS c
  LEFT JOIN outside_time AS o
    ON o.program_id = :program_id AND o.dataset_id = :dataset_id AND o.partition_key = c.partition_key
 GROUP BY c.partition_key
 ORDER BY c.partition_key

-- name: list_times
-- gives: partition_key, stretches
SELECT partition_key, stretches FROM outside_time WHERE program_id = :program_id AND dataset_id = :dataset_id

-- name: put_times
INSERT INTO outside_time (program_id, dataset_id, partition_key, stretches)
SELECT :program_id, :dataset_id, t.partition_key, t.stretches FROM {rows:times(partition_key text, stretches text)} AS t
 WHERE true
    ON CONFLICT (program_id, dataset_id, partition_key) DO UPDATE SET stretches = excluded.stretches, unread_since = NULL

-- name: delete_times
-- Partitions that were read, and have no row outside.
DELETE FROM outside_time
 WHERE program_id = :program_id AND dataset_id = :dataset_id AND partition_key IN ({texts:keys})

-- name: put_unread
-- What was read of these partitions before stays.
INSERT INTO outside_time (program_id, dataset_id, partition_key, stretches, unread_since)
SELECT :program_id, :dataset_id, u.partition_key, '[]', :since FROM {rows:unread(partition_key text)} AS u
 WHERE true
    ON CONFLICT (program_id, dataset_id, partition_key) DO UPDATE
   SET unread_since = coalesce(outside_time.unread_since, excluded.unread_since)

-- name: put_released
-- Partitions without a time until now: no program over the file set has read their rows.
INSERT INTO outside_time (program_id, dataset_id, partition_key, stretches, unread_since)
SELECT i.program_id, i.dataset_id, r.partition_key, '[]', 0
  FROM {rows:released(partition_key text)} AS r CROSS JOIN window_input AS i
 WHERE i.dataset_id = :dataset_id
    ON CONFLICT (program_id, dataset_id, partition_key) DO UPDATE SET unread_since = 0

-- name: set_seen
UPDATE window_input SET outside_seen = :until WHERE program_id = :program_id AND dataset_id = :dataset_id

-- name: forget_times
DELETE FROM outside_time WHERE program_id = :program_id

-- name: forget_seen
UPDATE window_input SET outside_seen = 0 WHERE program_id = :program_id
