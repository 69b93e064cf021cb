-- name: list_declared
-- gives: namespace, app, name
SELECT namespace, app, name FROM program WHERE retired = 0 ORDER BY namespace, app, name

-- name: count_live_runs
-- gives: program_id, state, runs
-- The runs of programs with an attempt under way.
SELECT program_id, state, count(*) AS runs
  FROM run {indexed_by:run_live}
 WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') AND program_id IS NOT NULL GROUP BY program_id, state

-- name: count_pending_runs
-- gives: runs
SELECT count(*) AS runs FROM (SELECT 1 FROM run WHERE state = 'PENDING' LIMIT :limit) AS pending

-- name: count_jobs
-- gives: state, jobs
SELECT 'PENDING_TRIGGER' AS state, count(*) AS jobs
  FROM (SELECT 1 FROM job WHERE state = 'PENDING_TRIGGER' LIMIT :limit) AS waiting
 UNION ALL
SELECT 'PENDING_CONSTRAINT' AS state, count(*) AS jobs
  FROM (SELECT 1 FROM job WHERE state = 'PENDING_CONSTRAINT' LIMIT :limit) AS waiting

-- name: find_oldest_job
-- gives: satisfied_at
-- The order of ids is that of creation. A job may have waited for its trigger for weeks before.
SELECT min(satisfied_at) AS satisfied_at
  FROM (SELECT satisfied_at FROM job WHERE state = 'PENDING_CONSTRAINT' LIMIT :limit) AS waiting

-- name: count_open_transactions
-- gives: transactions, began_at
SELECT count(*) AS transactions, min(began_at) AS began_at FROM tx WHERE state = 'in_progress'

-- name: count_garbage
-- gives: locations
SELECT count(*) AS locations
  FROM (SELECT 1 FROM garbage WHERE not_before <= tidemill_now() LIMIT :limit) AS due

-- name: count_quarantined_files
-- gives: dataset_id, files
SELECT dataset_id, count(*) AS files
  FROM (SELECT dataset_id FROM inbox_file WHERE status = 'QUARANTINED' LIMIT :limit) AS bad
 GROUP BY dataset_id

-- name: list_watermarks
-- gives: dataset_id, value
SELECT dataset_id, value FROM watermark WHERE value IS NOT NULL

-- name: count_alerts
-- gives: rule, alerts
SELECT rule, count(*) AS alerts
  FROM (SELECT rule FROM alert {indexed_by:alert_unresolved} WHERE state <> 'RESOLVED' LIMIT :limit) AS live
 GROUP BY rule

-- name: count_waiting_deliveries
-- gives: deliveries
SELECT count(*) AS deliveries FROM (SELECT 1 FROM delivery WHERE state = 'WAITING' LIMIT :limit) AS waiting

-- name: count_dead_deliveries
-- gives: deliveries
SELECT count(*) AS deliveries FROM (SELECT 1 FROM delivery WHERE state = 'DEAD' LIMIT :limit) AS dead
