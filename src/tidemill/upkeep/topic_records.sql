-- name: find_topic
-- gives: created_at, time_to_live, expired_seq, expired_n
SELECT created_at, time_to_live, expired_seq, expired_n FROM topic WHERE topic = :topic

-- name: create_topic
-- A topic whose messages have all expired has a row that says how far.
INSERT INTO topic (topic, created_at, time_to_live) VALUES (:topic, tidemill_now(), :time_to_live)
    ON CONFLICT (topic) DO UPDATE SET created_at = excluded.created_at, time_to_live = excluded.time_to_live
 WHERE topic.created_at IS NULL

-- name: keep_for
INSERT INTO topic (topic, time_to_live) VALUES (:topic, :time_to_live)
    ON CONFLICT (topic) DO UPDATE SET time_to_live = excluded.time_to_live

-- name: find_listener
-- gives: schedule
-- A schedule that listens to a topic, or an outside subscriber of the topic.
SELECT 'schedule ' || schedule.namespace || '.' || schedule.app || '.' || schedule.name AS schedule
  FROM trigger_key JOIN schedule ON schedule.schedule_id = trigger_key.schedule_id
 WHERE trigger_key.event_key = :event_key
 UNION ALL
SELECT 'subscriber ' || name FROM outside_subscriber WHERE topic = :topic
 LIMIT 1

-- name: delete_positions
-- locks: subscriber
DELETE FROM subscriber WHERE topic = :topic

-- name: note_deleted
-- All messages up to now have expired, though they are there for a while.
INSERT INTO topic (topic, expired_seq, expired_n) VALUES (:topic, :tick, 0)
    ON CONFLICT (topic) DO UPDATE
   SET created_at = NULL, time_to_live = NULL, expired_seq = excluded.expired_seq, expired_n = 0

-- name: forget_deleted
-- Unless the topic was made again meanwhile.
DELETE FROM topic WHERE topic = :topic AND created_at IS NULL AND time_to_live IS NULL AND expired_seq = :tick
