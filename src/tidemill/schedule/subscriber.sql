-- name: find_unhandled
-- gives: seq
-- The newest message of the topic, unless it has been handled. Before the first subscription there is no position.
SELECT seq FROM (SELECT seq, n FROM message WHERE topic = :topic ORDER BY seq DESC, n DESC LIMIT 1) AS newest
 WHERE NOT EXISTS (SELECT 1 FROM subscriber
                    WHERE topic = :topic AND name = :name
                      AND (subscriber.seq > newest.seq OR (subscriber.seq = newest.seq AND subscriber.n >= newest.n)))
