-- name: list_topics
-- gives: topic, time_to_live
-- A look at each topic that has messages, whatever it holds.
WITH RECURSIVE topics (topic) AS (
    SELECT min(topic) FROM message
     UNION ALL
    SELECT (SELECT min(topic) FROM message WHERE message.topic > topics.topic)
      FROM topics WHERE topics.topic IS NOT NULL
)
SELECT topics.topic, (SELECT own.time_to_live FROM topic AS own WHERE own.topic = topics.topic) AS time_to_live
  FROM topics WHERE topics.topic IS NOT NULL

-- name: list_positions
-- gives: seq, n
SELECT seq, n FROM subscriber WHERE topic = :topic

-- name: list_held
-- gives: topic, seq, job_id
-- The oldest message of each topic that an open job holds, and one of these jobs. Cost: what open jobs hold.
SELECT topic, min(seq) AS seq, min(job_id) AS job_id FROM job_message GROUP BY topic

-- name: list_causes
-- gives: run_id, triggered_by
-- Cost: the runs that have not ended.
SELECT run_id, triggered_by FROM run WHERE state = 'PENDING'
 UNION ALL
SELECT run_id, triggered_by FROM run WHERE state IN ('STARTING', 'RUNNING', 'STOPPING')

-- name: list_oldest
-- gives: seq, n, at
SELECT seq, n, at FROM message WHERE topic = :topic ORDER BY seq, n LIMIT :most

-- name: delete_messages
DELETE FROM message WHERE topic = :topic AND seq <= :seq AND (seq < :seq OR n <= :n)

-- name: delete_quarantined
DELETE FROM quarantined_message WHERE topic = :topic AND seq <= :seq AND (seq < :seq OR n <= :n)

-- name: note_expired
INSERT INTO topic (topic, expired_seq, expired_n) VALUES (:topic, :seq, :n)
    ON CONFLICT (topic) DO UPDATE SET expired_seq = excluded.expired_seq, expired_n = excluded.expired_n
 WHERE (topic.expired_seq, topic.expired_n) < (excluded.expired_seq, excluded.expired_n)
