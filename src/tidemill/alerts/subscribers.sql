-- name: insert_subscriber
INSERT INTO outside_subscriber (name, topic, event_type, key_prefix, target, seq, n, created_at)
VALUES (:name, :topic, :event_type, :key_prefix, :target, :seq, :n, tidemill_now())
    ON CONFLICT (name) DO NOTHING

-- name: delete_subscriber
DELETE FROM outside_subscriber WHERE name = :name

-- name: find_subscriber
-- gives: name, topic, event_type, key_prefix, target, seq, n, created_at, attempt, failures, refused_since, error, next_try_at
SELECT name, topic, event_type, key_prefix, target, seq, n, created_at, attempt, failures, refused_since, error, next_try_at
  FROM outside_subscriber WHERE name = :name

-- name: list_subscribers
-- gives: name, topic, event_type, key_prefix, target, seq, n, created_at, attempt, failures, refused_since, error, next_try_at
-- An empty filter fits all. Cost: the subscribers between those of the page; with a state, two look-ups in the topic of
-- each.
SELECT name, topic, event_type, key_prefix, target, seq, n, created_at, attempt, failures, refused_since, error, next_try_at
  FROM outside_subscriber
 WHERE name > :after
   AND :topic IN ('', topic)
   AND :kind IN ('', CASE WHEN target IS NULL THEN 'pull' ELSE 'push' END)
   AND (:state = ''
        OR :state = CASE
           WHEN failures > 0 THEN 'failing'
           WHEN (SELECT max(seq) FROM message WHERE message.topic = outside_subscriber.topic) > outside_subscriber.seq
             OR (SELECT max(n) FROM message
                  WHERE message.topic = outside_subscriber.topic AND message.seq = outside_subscriber.seq)
                > outside_subscriber.n
           THEN 'behind' ELSE 'current' END)
 ORDER BY name LIMIT :limit

-- name: list_nearest
-- gives: name
SELECT name FROM outside_subscriber ORDER BY name LIMIT :limit

-- name: move_by_hand
-- Fences a sender: its next record finds another attempt.
UPDATE outside_subscriber
   SET seq = :seq, n = :n, attempt = attempt + 1, failures = 0, refused_since = NULL, error = NULL, next_try_at = 0
 WHERE name = :name

-- name: list_due
-- gives: name
-- Two looks at the end of a topic for each subscriber that is pushed to. (PostgreSQL reads the whole topic for EXISTS.)
SELECT name FROM outside_subscriber
 WHERE target IS NOT NULL AND next_try_at <= tidemill_now()
   AND ((SELECT max(seq) FROM message WHERE message.topic = outside_subscriber.topic) > outside_subscriber.seq
        OR (SELECT max(n) FROM message
             WHERE message.topic = outside_subscriber.topic AND message.seq = outside_subscriber.seq)
           > outside_subscriber.n)
 ORDER BY next_try_at LIMIT :limit

-- name: find_next_try
-- gives: next_try_at
SELECT min(next_try_at) AS next_try_at FROM outside_subscriber
 WHERE target IS NOT NULL AND next_try_at > tidemill_now()

-- name: begin_push
-- quiet
-- gives: name, topic, event_type, key_prefix, target, seq, n, created_at, attempt, failures, refused_since, error, next_try_at
-- Fences other senders, and the earlier tries of this one.
UPDATE outside_subscriber SET attempt = attempt + 1, next_try_at = :next_try_at
 WHERE name = :name AND target IS NOT NULL AND next_try_at <= tidemill_now()
RETURNING name, topic, event_type, key_prefix, target, seq, n, created_at, attempt, failures, refused_since, error, next_try_at

-- name: record_push
-- quiet
UPDATE outside_subscriber
   SET seq = :seq, n = :n, failures = 0, refused_since = NULL, error = NULL, next_try_at = :next_try_at
 WHERE name = :name AND attempt = :attempt

-- name: record_failure
-- quiet
UPDATE outside_subscriber
   SET failures = :failures, refused_since = :refused_since, error = :error, next_try_at = :next_try_at
 WHERE name = :name AND attempt = :attempt

-- name: bury
-- A message that a receiver refused for too long.
INSERT INTO delivery
       (delivery_id, target, seq, n, about, event, body, state, attempt, error, made_at, ended_at)
VALUES (:delivery_id, :target, {commit_seq}, 0, :about, :event, :body, 'DEAD', :failures, :error, tidemill_now(),
        tidemill_now())

-- name: find_newest
-- gives: seq, n
SELECT seq, n FROM message WHERE topic = :topic ORDER BY seq DESC, n DESC LIMIT 1

-- name: count_behind
-- gives: messages
SELECT count(*) AS messages FROM (
    SELECT * FROM (SELECT 1 FROM message WHERE topic = :topic AND seq = :seq AND n > :n LIMIT :limit) AS same
     UNION ALL
    SELECT * FROM (SELECT 1 FROM message WHERE topic = :topic AND seq > :seq LIMIT :limit) AS later) AS behind
