-- name: pass_time
-- What waits for its time waits no longer.
UPDATE consumer_work SET not_before = 1 WHERE not_before > 0

-- name: read_work
SELECT write_pointer, partition_key, state, failures, run_id FROM consumer_work ORDER BY write_pointer, partition_key

-- name: read_input
SELECT run_id, write_pointer, item FROM run_input ORDER BY write_pointer, item
