-- name: list_newest
-- The newest message of each topic: one look at the end of each, whatever it holds (a recursive walk over the names).
WITH RECURSIVE topics (topic) AS (
    SELECT min(topic) FROM message
     UNION ALL
    SELECT (SELECT min(topic) FROM message WHERE message.topic > topics.topic) FROM topics WHERE topics.topic IS NOT NULL
)
SELECT message.topic, message.seq, message.n, message.at
  FROM topics JOIN message ON message.topic = topics.topic
   AND (message.seq, message.n) = (SELECT last.seq, last.n FROM message AS last WHERE last.topic = topics.topic
                                    ORDER BY last.seq DESC, last.n DESC LIMIT 1)
 ORDER BY message.topic

-- name: list_positions
SELECT topic, name, seq, n FROM subscriber ORDER BY topic, name

-- name: read_newest
SELECT topic, seq, n, at, event_type, event_key, payload FROM message
 WHERE topic = :topic ORDER BY seq DESC, n DESC LIMIT :limit
