-- name: list_by_time
-- gives: partition_key, slot_time, rewritten, files, bytes, row_count, run_id, at, passed
-- Current changes of the partitions with a time in a period. passed is the watermark before the commit of the change.
SELECT c.partition_key, c.partition_time AS slot_time,
       CASE WHEN c.op = 'overwrite' AND EXISTS (SELECT 1 FROM partition_change AS e
                                                 WHERE e.dataset_id = c.dataset_id AND e.partition_key = c.partition_key
                                                   AND e.commit_seq < c.commit_seq AND e.op <> 'drop')
            THEN 1 ELSE 0 END AS rewritten,
       c.files, c.bytes, c.row_count, c.run_id, c.at,
       (SELECT m.value FROM watermark_move AS m WHERE m.dataset_id = c.dataset_id AND m.commit_seq < c.commit_seq
         ORDER BY m.commit_seq DESC LIMIT 1) AS passed
  FROM partition_change AS c {indexed_by:partition_by_time}
 WHERE c.dataset_id = :dataset_id AND c.superseded_seq IS NULL AND c.partition_time IS NOT NULL
   AND c.partition_time >= :low AND c.partition_time < :high AND c.op <> 'drop'
 ORDER BY c.partition_time LIMIT :most

-- name: list_by_key
-- gives: partition_key, slot_time, rewritten, files, bytes, row_count, run_id, at, passed
SELECT c.partition_key, c.partition_time AS slot_time,
       CASE WHEN c.op = 'overwrite' AND EXISTS (SELECT 1 FROM partition_change AS e
                                                 WHERE e.dataset_id = c.dataset_id AND e.partition_key = c.partition_key
                                                   AND e.commit_seq < c.commit_seq AND e.op <> 'drop')
            THEN 1 ELSE 0 END AS rewritten,
       c.files, c.bytes, c.row_count, c.run_id, c.at, NULL AS passed
  FROM partition_change AS c {indexed_by:partition_current}
 WHERE c.dataset_id = :dataset_id AND c.superseded_seq IS NULL
   AND c.partition_key >= :lower AND c.partition_key < :upper AND c.op <> 'drop'
 ORDER BY c.partition_key LIMIT :most

-- name: measure_by_time
-- gives: changes, partitions, bytes, row_count
SELECT count(*) AS changes, count(DISTINCT c.partition_key) AS partitions,
       CAST(coalesce(sum(c.bytes), 0) AS BIGINT) AS bytes, CAST(coalesce(sum(c.row_count), 0) AS BIGINT) AS row_count
  FROM (SELECT partition_key, bytes, row_count FROM partition_change {indexed_by:partition_by_time}
         WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
           AND partition_time >= :low AND partition_time < :high AND op <> 'drop'
         ORDER BY partition_time LIMIT :most) AS c

-- name: measure_by_key
-- gives: changes, partitions, bytes, row_count
SELECT count(*) AS changes, count(DISTINCT c.partition_key) AS partitions,
       CAST(coalesce(sum(c.bytes), 0) AS BIGINT) AS bytes, CAST(coalesce(sum(c.row_count), 0) AS BIGINT) AS row_count
  FROM (SELECT partition_key, bytes, row_count FROM partition_change {indexed_by:partition_current}
         WHERE dataset_id = :dataset_id AND superseded_seq IS NULL
           AND partition_key >= :lower AND partition_key < :upper AND op <> 'drop'
         ORDER BY partition_key LIMIT :most) AS c

-- name: next_time
-- gives: slot_time
SELECT partition_time AS slot_time FROM partition_change {indexed_by:partition_by_time}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
   AND partition_time >= :low AND op <> 'drop'
 ORDER BY partition_time LIMIT 1

-- name: last_time
-- gives: slot_time
SELECT partition_time AS slot_time FROM partition_change {indexed_by:partition_by_time}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
   AND partition_time < :high AND op <> 'drop'
 ORDER BY partition_time DESC LIMIT 1

-- name: next_key
-- gives: partition_key
SELECT partition_key FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key >= :lower AND op <> 'drop'
 ORDER BY partition_key LIMIT 1

-- name: last_key
-- gives: partition_key
SELECT partition_key FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key < :upper AND op <> 'drop'
 ORDER BY partition_key DESC LIMIT 1

-- name: list_slots
-- gives: slot_time, begins_at, ends_at, next_time, complete, members
SELECT s.slot_time, s.begins_at, s.ends_at, s.next_time, s.complete,
       (SELECT count(*) FROM slot_member AS m
         WHERE m.dataset_id = s.dataset_id AND m.slot_time = s.slot_time) AS members
  FROM time_slot AS s
 WHERE s.dataset_id = :dataset_id AND s.slot_time >= :low AND s.slot_time < :high
 ORDER BY s.slot_time LIMIT :most

-- name: first_slot
-- gives: slot_time
SELECT slot_time FROM time_slot WHERE dataset_id = :dataset_id ORDER BY slot_time LIMIT 1

-- name: last_slot
-- gives: slot_time
SELECT slot_time FROM time_slot WHERE dataset_id = :dataset_id AND slot_time < :high ORDER BY slot_time DESC LIMIT 1
