-- name: list_incomplete
-- gives: slot_time, members
-- Slots from :low on that end after :ends. A slot that lies further ahead than is believed would not move W.
SELECT slot_time, (SELECT count(*) FROM slot_member AS m
                    WHERE m.dataset_id = :dataset_id AND m.slot_time = time_slot.slot_time) AS members
  FROM time_slot {indexed_by:time_slot_open}
 WHERE dataset_id = :dataset_id AND complete = 0 AND slot_time >= :low AND ends_at > :ends
   AND ends_at <= tidemill_now() * 1000 + :max_ahead
 ORDER BY slot_time LIMIT :limit

-- name: list_missing
-- gives: slot_time
-- Where the unbroken run of slots ends, and where it would end next, among the thousand slots from :low on.
SELECT c.slot_time
  FROM (SELECT next_time AS slot_time FROM watermark WHERE dataset_id = :dataset_id AND next_time IS NOT NULL
         UNION
        SELECT n.next_time FROM (SELECT next_time FROM time_slot WHERE dataset_id = :dataset_id AND slot_time >= :low
                                  ORDER BY slot_time LIMIT 1000) AS n) AS c
 WHERE NOT EXISTS (SELECT 1 FROM time_slot AS h WHERE h.dataset_id = :dataset_id AND h.slot_time = c.slot_time)
   AND EXISTS (SELECT 1 FROM time_slot AS l
                WHERE l.dataset_id = :dataset_id AND l.slot_time > c.slot_time
                  AND l.ends_at <= tidemill_now() * 1000 + :max_ahead)
 ORDER BY c.slot_time LIMIT :limit

-- name: list_waits
-- gives: partition_key, marked, due_at
SELECT w.partition_key, w.marked, w.due_at
  FROM slot_wait AS w JOIN time_slot AS s ON s.dataset_id = w.dataset_id AND s.slot_time = w.slot_time
 WHERE w.dataset_id = :dataset_id AND w.slot_time >= :low AND s.complete = 0 AND s.ends_at > :ends
 ORDER BY w.slot_time, w.partition_key LIMIT :limit

-- name: list_ahead
-- gives: slot_time, due_at, completed_at
-- Complete slots with partitions that lie further ahead than is believed, earliest first, and when each counts. A slot
-- whose partitions were dropped stays. (By EXISTS, PostgreSQL reads all partitions of the file set at once. By a join
-- with the watermark it reads all slots.)
SELECT s.slot_time, (s.ends_at - (SELECT max_ahead FROM watermark WHERE dataset_id = :dataset_id)) / 1000 + 1 AS due_at,
       s.completed_at
  FROM time_slot AS s {indexed_by:time_slot_complete}
 WHERE s.dataset_id = :dataset_id AND s.complete = 1
   AND s.ends_at > (SELECT tidemill_now() * 1000 + max_ahead FROM watermark WHERE dataset_id = :dataset_id)
   AND (SELECT c.commit_seq FROM partition_change AS c {indexed_by:partition_by_time}
         WHERE c.dataset_id = s.dataset_id AND c.superseded_seq IS NULL AND c.partition_time = s.slot_time
         ORDER BY c.partition_time LIMIT 1) IS NOT NULL
 ORDER BY s.ends_at LIMIT :limit

-- name: find_first_parked
-- gives: since
SELECT min(since) AS since FROM parked_partition {indexed_by:parked_partition_since} WHERE dataset_id = :dataset_id
