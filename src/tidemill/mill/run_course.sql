-- name: list_attempts
-- gives: epoch, write_pointer, state, commit_seq, began_at, ended_at, reason
-- The newest transactions of a run: one for each attempt that began, for a worker one for each commit.
SELECT epoch, write_pointer, state, commit_seq, began_at, ended_at, reason
  FROM tx WHERE run_id = :run_id ORDER BY write_pointer DESC LIMIT :limit

-- name: list_published
-- gives: topic, seq, n, event_type, event_key
-- The messages of one commit: a walk over the names of topics, and a look into each at the commit.
WITH RECURSIVE topics (topic) AS (
    SELECT min(topic) FROM message
     UNION ALL
    SELECT (SELECT min(topic) FROM message WHERE message.topic > topics.topic) FROM topics WHERE topics.topic IS NOT NULL
)
SELECT message.topic, message.seq, message.n, message.event_type, message.event_key
  FROM topics JOIN message ON message.topic = topics.topic AND message.seq = :seq
 ORDER BY message.topic, message.n LIMIT :limit
