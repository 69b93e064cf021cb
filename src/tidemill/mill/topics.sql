-- name: list_newest
-- gives: topic, seq, n, at
-- The newest message of each topic, none of one that has none yet, or none any more: one look at the end of each,
-- whatever it holds (a recursive walk over the names).
WITH RECURSIVE topics (topic) AS (
    SELECT min(first.topic)
      FROM (SELECT min(topic) AS topic FROM message WHERE topic > :after AND topic >= :text AND topic < :upto
             UNION ALL
            SELECT min(topic) FROM topic
             WHERE topic > :after AND topic >= :text AND topic < :upto) AS first
     UNION ALL
    SELECT (SELECT min(next.topic)
              FROM (SELECT min(topic) AS topic FROM message
                     WHERE message.topic > topics.topic AND message.topic < :upto
                     UNION ALL
                    SELECT min(topic) FROM topic
                     WHERE topic.topic > topics.topic AND topic.topic < :upto) AS next)
      FROM topics WHERE topics.topic IS NOT NULL
)
SELECT newest.topic, newest.seq,
       (SELECT max(n) FROM message WHERE message.topic = newest.topic AND message.seq = newest.seq) AS n,
       (SELECT at FROM message WHERE message.topic = newest.topic AND message.seq = newest.seq
         ORDER BY n DESC LIMIT 1) AS at
  FROM (SELECT topics.topic,
               (SELECT max(message.seq) FROM message WHERE message.topic = topics.topic) AS seq
          FROM topics
         WHERE topics.topic IS NOT NULL
           AND :kind IN ('', CASE WHEN topics.topic IN ({texts:built_in}) THEN 'built_in' ELSE 'own' END)) AS newest
 ORDER BY newest.topic LIMIT :limit

-- name: has_topic
-- gives: there
SELECT 1 AS there
 WHERE (SELECT seq FROM message WHERE topic = :topic ORDER BY seq LIMIT 1) IS NOT NULL
    OR (SELECT 1 FROM topic WHERE topic = :topic) IS NOT NULL

-- name: find_newest
-- gives: seq, n
SELECT seq, n FROM message WHERE topic = :topic ORDER BY seq DESC, n DESC LIMIT 1

-- name: find_newest_at
-- gives: topic, seq, n, at
SELECT topic, seq, n, at FROM message WHERE topic = :topic ORDER BY seq DESC, n DESC LIMIT 1

-- name: list_positions
-- gives: topic, name, seq, n
SELECT topic, name, seq, n FROM subscriber WHERE topic IN ({texts:topics}) ORDER BY topic, name

-- name: list_outside
-- gives: name, seq, n
SELECT name, seq, n FROM outside_subscriber WHERE topic = :topic ORDER BY name LIMIT :limit

-- name: read_newest
-- gives: topic, seq, n, at, event_type, event_key, payload
SELECT topic, seq, n, at, event_type, event_key, payload FROM message
 WHERE topic = :topic ORDER BY seq DESC, n DESC LIMIT :limit

-- name: count_quarantined
-- gives: topic, messages
SELECT topic, count(*) AS messages FROM quarantined_message
 WHERE topic IN ({texts:topics}) GROUP BY topic

-- name: list_quarantined
-- gives: seq, n, name, reason, at, event_key
SELECT quarantined.seq, quarantined.n, quarantined.name, quarantined.reason, quarantined.at,
       (SELECT event_key FROM message
         WHERE message.topic = quarantined.topic AND message.seq = quarantined.seq AND message.n = quarantined.n)
       AS event_key
  FROM quarantined_message AS quarantined
 WHERE quarantined.topic = :topic
   AND (quarantined.seq, quarantined.n, quarantined.name) < (:before_seq, :before_n, :before_name)
 ORDER BY quarantined.seq DESC, quarantined.n DESC, quarantined.name DESC LIMIT :limit
