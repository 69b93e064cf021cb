-- name: publish
-- gives: wakes
-- wakes: message, unheard, streamed
-- Two messages a run, which mostly no schedule hears, had a scheduler of each node look. The commit holds the tick. A
-- schedule that is created at the same time has committed before this look, or it hears later messages only. A worker or
-- an outside subscriber that is created at the same time hears of this message within a second.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT :topic, {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = :topic AND seq = {commit_seq}),
       tidemill_now(), :event_type, :event_key, :payload
RETURNING CASE WHEN EXISTS (SELECT 1 FROM trigger_key AS k WHERE k.event_key IN ({texts:listened}))
               THEN 'message'
            WHEN EXISTS (SELECT 1 FROM worker WHERE instances > 0)
                 OR (SELECT min(o.name) FROM outside_subscriber AS o WHERE o.topic = :topic) IS NOT NULL
               THEN 'unheard, streamed'
               ELSE 'unheard' END AS wakes

-- name: read_after
-- gives: topic, seq, n, at, event_type, event_key, payload
-- Two ranges of the primary key: a row comparison would do on PostgreSQL, and reads the whole topic on SQLite.
SELECT * FROM (
    SELECT topic, seq, n, at, event_type, event_key, payload FROM message
     WHERE topic = :topic AND seq = :seq AND n > :n
     ORDER BY n LIMIT :limit) AS same
 UNION ALL
SELECT * FROM (
    SELECT topic, seq, n, at, event_type, event_key, payload FROM message
     WHERE topic = :topic AND seq > :seq
     ORDER BY seq, n LIMIT :limit) AS later
 ORDER BY seq, n
 LIMIT :limit

-- name: find_position
-- gives: seq, n
SELECT seq, n FROM subscriber WHERE topic = :topic AND name = :name

-- name: add_position
INSERT INTO subscriber (topic, name, seq, n) VALUES (:topic, :name, 0, -1) ON CONFLICT (topic, name) DO NOTHING

-- name: lock_position
-- gives: seq, n
-- locks: subscriber
SELECT seq, n FROM subscriber WHERE topic = :topic AND name = :name {skip_locked}

-- name: move_position
-- locks: subscriber
UPDATE subscriber SET seq = :seq, n = :n WHERE topic = :topic AND name = :name

-- name: quarantine
INSERT INTO quarantined_message (topic, seq, n, name, reason, at)
SELECT :topic, r.seq, r.n, :name, r.reason, tidemill_now()
  FROM {rows:messages(seq bigint, n bigint, reason text)} AS r
 WHERE true
    ON CONFLICT (topic, seq, n, name) DO NOTHING

-- name: find_expired
-- gives: seq, n
SELECT expired_seq AS seq, expired_n AS n FROM topic WHERE topic = :topic

-- name: seek
-- gives: seq, n, at
SELECT seq, n, at FROM message WHERE topic = :topic AND seq >= :seq ORDER BY seq, n LIMIT 1
