-- name: add
INSERT INTO number (program_id, value, state, failures, not_before) VALUES (:id, :value, 'waiting', 0, 0)

-- name: list_numbers
-- gives: value, state, failures
SELECT value, state, failures FROM number ORDER BY value

-- name: let_time_pass
UPDATE number SET not_before = 1 WHERE not_before > 0

-- name: list_held
-- gives: value, failures
SELECT value, failures FROM number WHERE run_id = :run_id AND state = 'held' ORDER BY value

-- name: claim
UPDATE number SET state = 'held', run_id = :run_id, epoch = :epoch
 WHERE program_id = :id AND state = 'waiting' AND not_before <= tidemill_now()

-- name: keep
UPDATE number SET state = 'waiting', run_id = NULL, epoch = NULL
 WHERE run_id = :run_id AND state = 'held' AND NOT (value IN ({ints:numbers}))

-- name: find_held
-- gives: claims, failures
SELECT count(*) AS claims, coalesce(max(failures), 0) AS failures FROM number WHERE run_id = :run_id AND state = 'held'

-- name: refuse_if_moved
SELECT tidemill_refuse('claims_moved', CAST(:run_id AS TEXT))
 WHERE :claims <> (SELECT count(*) FROM number WHERE run_id = :run_id AND state = 'held')

-- name: restamp
UPDATE number SET epoch = :epoch WHERE run_id = :run_id AND state = 'held'

-- name: refuse_other_epoch
SELECT tidemill_refuse('claims_taken_over', run_id, CAST(epoch AS TEXT))
  FROM number WHERE run_id = :run_id AND state = 'held' AND epoch <> :epoch

-- name: complete
UPDATE number SET state = 'done' WHERE run_id = :run_id AND state = 'held' AND epoch = :epoch

-- name: count_failure
UPDATE number SET failures = failures + 1
 WHERE run_id = :run_id AND state = 'held' AND epoch <= :epoch AND :error <> ''

-- name: give_up
UPDATE number SET state = 'given up' WHERE run_id = :run_id AND state = 'held' AND epoch <= :epoch AND failures >= 3

-- name: return_claims
UPDATE number SET state = 'waiting', run_id = NULL, epoch = NULL,
       not_before = CASE WHEN :failed = 0 THEN 0 ELSE tidemill_now() + CAST(:backoff AS BIGINT) END
 WHERE run_id = :run_id AND state = 'held' AND epoch <= :epoch

-- name: publish
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}), tidemill_now(),
       'backlog', 'backlog:default.numbers', '{' || ltrim(CAST(:heard_by AS TEXT), ',') || '}'
 WHERE EXISTS (SELECT 1 FROM number
                WHERE program_id IN ({texts:ids}) AND state = 'waiting' AND not_before <= tidemill_now())

-- name: postpone
UPDATE number SET not_before = tidemill_now() + CAST(:wait AS BIGINT) WHERE program_id = :id AND state = 'waiting'

-- name: find_next_due
-- gives: due_at
SELECT min(not_before) AS due_at FROM number WHERE state = 'waiting' AND not_before > 0

-- name: find_due
-- gives: program_id
SELECT DISTINCT program_id FROM number WHERE state = 'waiting' AND not_before > 0 AND not_before <= tidemill_now()

-- name: clear_due
UPDATE number SET not_before = 0
 WHERE program_id IN ({texts:ids}) AND state = 'waiting' AND not_before > 0 AND not_before <= tidemill_now()
