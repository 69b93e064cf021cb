-- name: pick_ints
SELECT n FROM {rows:rs(n bigint)} AS r WHERE n IN ({ints:wanted}) ORDER BY n

-- name: leave_ints
SELECT n FROM {rows:rs(n bigint)} AS r WHERE n NOT IN ({ints:left}) ORDER BY n

-- name: date_ints
SELECT tidemill_now() AS at FROM {rows:rs(n bigint)} AS r WHERE n >= 0

-- name: pick_texts
SELECT t FROM {rows:rs(t text)} AS r WHERE t IN ({texts:wanted}) ORDER BY t

-- name: read_rows
SELECT a, b, c FROM {rows:rs(a bigint, b text, c blob)} AS r ORDER BY a

-- name: echo
SELECT CAST(:number AS BIGINT), CAST(:text AS TEXT), CAST(:bytes AS {blob})

-- name: own_text
-- only: sqlite
SELECT 'sqlite' AS name
-- name: own_text
-- only: postgres
SELECT 'postgres' AS name

-- name: sqlite_alone
-- only: sqlite
SELECT 1

-- name: lock_run
-- locks: run
SELECT run_id FROM run WHERE run_id = :run_id {for_update}

-- name: lock_job
-- locks: job
SELECT job_id FROM job WHERE job_id = :job_id {skip_locked}

-- name: share_schedule
-- locks: schedule
SELECT schedule_id FROM schedule WHERE schedule_id = :schedule_id {for_share}

-- name: look_at_job
SELECT job_id FROM job WHERE job_id = :job_id

-- name: renew_run
-- locks: run
-- quiet
UPDATE run SET lease_until = 1 WHERE run_id = :run_id

-- name: change_job_at_the_limit
-- locks: job, at slot_limit
UPDATE job SET next_check_at = 1 WHERE job_id = :job_id

-- name: read_tick
SELECT CAST({commit_seq} AS BIGINT)

-- name: read_now
SELECT tidemill_now()

-- name: refuse_always
SELECT tidemill_refuse('test_named', CAST(:first AS TEXT), :second)

-- name: write_limit
INSERT INTO slot_limit (limit_key) VALUES (:limit_key)

-- name: wake_schedulers
-- wakes: job
INSERT INTO slot_limit (limit_key) SELECT CAST({commit_seq} AS TEXT)

-- name: read_limits
SELECT limit_key FROM slot_limit ORDER BY limit_key

-- name: refuse_if_limit
SELECT tidemill_refuse('test_named', limit_key, 'again') FROM slot_limit WHERE limit_key = :limit_key

-- name: refuse_oddly
SELECT tidemill_refuse('never_declared')
