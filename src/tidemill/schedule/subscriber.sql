-- name: find_unhandled
-- gives: topic
-- The topics with messages that no scheduler has handled yet. The topic of data has no position before the first
-- subscription. Cost: two look-ups for each topic that schedules listen to. (An EXISTS read a million messages on SQLite.)
SELECT s.topic FROM subscriber AS s
 WHERE s.name = :name
   AND ((SELECT m.seq FROM message AS m WHERE m.topic = s.topic ORDER BY m.seq DESC, m.n DESC LIMIT 1) > s.seq
        OR (SELECT m.n FROM message AS m WHERE m.topic = s.topic AND m.seq = s.seq ORDER BY m.n DESC LIMIT 1) > s.n)
 UNION ALL
SELECT :topic
 WHERE NOT EXISTS (SELECT 1 FROM subscriber WHERE topic = :topic AND name = :name)
   AND (SELECT m.seq FROM message AS m WHERE m.topic = :topic ORDER BY m.seq DESC, m.n DESC LIMIT 1) IS NOT NULL
 ORDER BY 1

-- name: find_listener
-- gives: schedule_id
SELECT schedule_id FROM trigger_key WHERE event_key = :event_key LIMIT 1

-- name: forget_topic
-- locks: subscriber
DELETE FROM subscriber WHERE topic = :topic AND name = :name
