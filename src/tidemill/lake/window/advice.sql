-- name: find_uneven
-- gives: slot_time, follower
-- The latest two slots, among the latest hundred, that overlap, or whose distance is no multiple of :length, the interval
-- in microseconds. Months and years are not of one length: of these (:length = 0), only an overlap counts.
SELECT max(s.slot_time) AS slot_time, max(s.follower) AS follower
  FROM (SELECT t.slot_time, t.next_time,
               (SELECT n.slot_time FROM time_slot AS n
                 WHERE n.dataset_id = t.dataset_id AND n.slot_time > t.slot_time
                 ORDER BY n.slot_time LIMIT 1) AS follower
          FROM (SELECT dataset_id, slot_time, next_time FROM time_slot
                 WHERE dataset_id = :dataset_id ORDER BY slot_time DESC LIMIT 100) AS t) AS s
 WHERE s.follower < s.next_time
    OR (s.follower - s.slot_time) % nullif(CAST(:length AS BIGINT), 0) <> 0

-- name: count_appended
-- gives: slots
-- Of the latest complete slots, those to which two commits or more appended rows after the slots were complete.
SELECT count(*) AS slots
  FROM (SELECT dataset_id, slot_time, completed_at FROM time_slot
         WHERE dataset_id = :dataset_id AND complete = 1 ORDER BY slot_time DESC LIMIT :latest) AS s
 WHERE 2 <= (SELECT count(DISTINCT c.commit_seq) FROM partition_change AS c {indexed_by:partition_by_time}
              WHERE c.dataset_id = s.dataset_id AND c.superseded_seq IS NULL AND c.partition_time = s.slot_time
                AND c.op = 'append' AND c.files > 0 AND c.at > s.completed_at)
