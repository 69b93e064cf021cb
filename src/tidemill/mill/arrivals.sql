-- name: count_arrivals
-- gives: slot, status, files, bytes, counted
-- The newest files of an inbox that were seen since a time, by the hour in which they were seen and their state now.
SELECT f.first_seen / :step AS slot, f.status, count(*) AS files, CAST(sum(f.bytes) AS BIGINT) AS bytes,
       CAST(sum(f.one) AS BIGINT) AS counted
  FROM (SELECT first_seen, status, bytes, 1 AS one FROM inbox_file {indexed_by:inbox_file_seen}
         WHERE dataset_id = :dataset_id AND first_seen >= :since
         ORDER BY first_seen DESC LIMIT :most) AS f
 GROUP BY f.first_seen / :step, f.status ORDER BY slot, f.status

-- name: list_completed
-- gives: run_id, facts
-- The newest runs of a program that were made since a time, those that completed.
SELECT r.run_id, r.facts
  FROM (SELECT run_id, facts, state FROM run
         WHERE program_id = :program_id AND created_at >= :since ORDER BY created_at DESC LIMIT :most) AS r
 WHERE r.state = 'COMPLETED'
