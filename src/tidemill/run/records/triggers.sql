-- name: read_fed
-- gives: topic, seq, n, at, event_type, event_key, payload
-- Messages by their positions: a look-up for each. A payload above the limit is left out, and so never read whole.
SELECT message.topic, message.seq, message.n, message.at, message.event_type, message.event_key,
       CASE WHEN length(message.payload) <= CAST(:most AS BIGINT) THEN message.payload END AS payload
  FROM {rows:positions(topic text, seq bigint, n bigint)} AS wanted
  JOIN message ON message.topic = wanted.topic AND message.seq = wanted.seq AND message.n = wanted.n
