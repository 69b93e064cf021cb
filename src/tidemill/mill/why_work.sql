-- name: list_holders
-- gives: limit_key, run_id, taken_at
-- The runs with slots of these limits, oldest first.
SELECT limit_key, run_id, taken_at FROM slot WHERE limit_key IN ({texts:limit_keys})
 ORDER BY taken_at, run_id LIMIT :limit

-- name: list_open
-- gives: schedule_id, job_id
-- The open jobs of these schedules.
SELECT schedule_id, job_id FROM job WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id, job_id

-- name: find_message
-- gives: topic, seq, n, at, event_type, event_key, payload
SELECT topic, seq, n, at, event_type, event_key, payload FROM message
 WHERE topic = :topic AND seq = :seq AND n = :n

-- name: find_fed
-- gives: trigger_no
-- The triggers of an open job that the message has fed: a look-up by the primary key.
SELECT trigger_no FROM job_message
 WHERE job_id = :job_id AND topic = :topic AND seq = :seq AND n = :n
 ORDER BY trigger_no

-- name: list_ended_since
-- gives: job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail
-- The first jobs of a schedule that ended after a message: the job that the message has fed is among them.
SELECT job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail
  FROM job_history
 WHERE schedule_id = :schedule_id AND ended_at >= :since
 ORDER BY ended_at, job_id LIMIT :limit

-- name: list_quarantines
-- gives: name, reason, at
SELECT name, reason, at FROM quarantined_message WHERE topic = :topic AND seq = :seq AND n = :n ORDER BY name
