-- name: pass_time
-- locks: consumer_work
-- What waits for its time waits no longer.
UPDATE consumer_work SET not_before = 1 WHERE not_before > 0

-- name: read_work
SELECT write_pointer, partition_key, state, failures, run_id FROM consumer_work ORDER BY write_pointer, partition_key

-- name: read_input
SELECT run_id, write_pointer, item FROM run_input ORDER BY write_pointer, item

-- name: pass_garbage_time
UPDATE garbage SET not_before = 1

-- name: read_garbage
SELECT location, not_before, error FROM garbage ORDER BY location

-- name: insert_garbage
INSERT INTO garbage (location, dataset_id, write_pointer, reason, not_before)
VALUES ('by mistake', :dataset_id, :write_pointer, 'aborted', 1)

-- name: end_all
-- locks: tx
UPDATE tx SET state = 'aborted', ended_at = tidemill_now() WHERE state = 'in_progress'

-- name: age_transactions
-- locks: tx
UPDATE tx SET ended_at = ended_at - :by

-- name: count_closings
SELECT error, count(*) FROM consumer_work WHERE state = 'completed' AND error IS NOT NULL GROUP BY error

-- name: count_messages
SELECT count(*) FROM message

-- name: damage_manifest
UPDATE partition_change SET manifest = :manifest WHERE write_pointer = :write_pointer
