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

-- name: list_created
-- gives: schedule_id, created_seq
SELECT schedule_id, created_seq FROM schedule WHERE schedule_id IN ({texts:schedule_ids})

-- name: count_passed
-- Written by the holder of the topic's position alone, and by the deletion of a schedule, whose row comes first.
INSERT INTO passed_while_suspended (schedule_id, topic, messages, first_seq, first_n, last_seq, last_n)
SELECT r.schedule_id, r.topic, r.messages, r.first_seq, r.first_n, r.last_seq, r.last_n
  FROM {rows:passed(schedule_id text, topic text, messages bigint, first_seq bigint, first_n bigint, last_seq bigint,
                    last_n bigint)} AS r
 WHERE true
    ON CONFLICT (schedule_id, topic) DO UPDATE
   SET messages = passed_while_suspended.messages + excluded.messages, last_seq = excluded.last_seq,
       last_n = excluded.last_n

-- name: begin_stands
-- locks: nothing, at schedule
-- A stand that has not fired keeps its timer: the timer looks at the last move. The insert waits for a timekeeper that
-- deletes the timer of the stand before.
INSERT INTO timer (schedule_id, trigger_no, next_fire_at)
SELECT r.schedule_id, r.trigger_no, r.next_fire_at
  FROM {rows:stands(schedule_id text, trigger_no bigint, next_fire_at bigint)} AS r
 WHERE true
    ON CONFLICT (schedule_id, trigger_no) DO NOTHING
