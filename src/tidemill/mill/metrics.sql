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

-- name: count_holding_workflows
-- gives: workflows
SELECT count(*) AS workflows FROM workflow_run WHERE holds_until IS NOT NULL

-- name: count_jobs
-- gives: state, jobs
SELECT 'PENDING_TRIGGER' AS state, count(*) AS jobs
  FROM (SELECT 1 FROM job WHERE state = 'PENDING_TRIGGER' LIMIT :limit) AS waiting
 UNION ALL
SELECT 'PENDING_CONSTRAINT' AS state, count(*) AS jobs
  FROM (SELECT 1 FROM job WHERE state = 'PENDING_CONSTRAINT' LIMIT :limit) AS waiting

-- name: list_waiting_jobs
-- gives: status, next_check_at, spec, verdict
-- Ids are in the order of creation: the oldest jobs. Look-ups, since PostgreSQL reads all schedules for a join.
SELECT (SELECT status FROM schedule WHERE schedule.schedule_id = job.schedule_id) AS status, job.next_check_at,
       (SELECT spec FROM schedule WHERE schedule.schedule_id = job.schedule_id) AS spec, job.verdict
  FROM (SELECT schedule_id, next_check_at, verdict FROM job {indexed_by:job_state}
         WHERE state = :state ORDER BY job_id LIMIT :limit) AS job

-- name: find_oldest_job
-- gives: satisfied_at
-- The order of ids is that of creation. A job may have waited for its trigger for weeks before.
SELECT min(satisfied_at) AS satisfied_at
  FROM (SELECT satisfied_at FROM job WHERE state = 'PENDING_CONSTRAINT' LIMIT :limit) AS waiting

-- name: count_open_transactions
-- gives: transactions, began_at
SELECT count(*) AS transactions, min(began_at) AS began_at FROM tx WHERE state = 'in_progress'

-- name: find_fence_floor
-- gives: write_pointer
-- All transactions that can be fenced from now on have this write pointer or a greater one.
-- The sum: no database may look for the minimum by the primary key, along the history.
SELECT coalesce((SELECT min(write_pointer + 0) FROM tx {indexed_by:tx_open} WHERE state = 'in_progress'),
                (SELECT max(write_pointer) FROM tx), 0) AS write_pointer

-- name: list_fenced
-- gives: write_pointer
SELECT write_pointer FROM tx {indexed_by:tx_failed}
 WHERE state = :state AND state IN ('aborted', 'invalid') AND write_pointer > :after
 ORDER BY write_pointer LIMIT :limit

-- name: list_spans
-- gives: run_id, created_at, started_at, commit_began_at, ended_at, core_time
SELECT run_id, created_at, started_at, commit_began_at, ended_at, core_time FROM run
 WHERE run_id IN ({texts:runs}) AND ended_at IS NOT NULL

-- name: count_garbage
-- gives: locations
SELECT count(*) AS locations
  FROM (SELECT 1 FROM garbage WHERE not_before <= tidemill_now() LIMIT :limit) AS due

-- name: count_files
-- gives: status, files
-- Processed files are the history, and no index of states has them.
SELECT status, count(*) AS files
  FROM (SELECT status FROM inbox_file {indexed_by:inbox_file_open}
         WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') LIMIT :limit) AS waiting
 GROUP BY status
 UNION ALL
SELECT 'IN_PROGRESS' AS status, count(*) AS files
  FROM (SELECT 1 FROM inbox_file {indexed_by:inbox_file_claimed}
         WHERE dataset_id = :dataset_id AND status = 'IN_PROGRESS' LIMIT :limit) AS held

-- name: count_quarantined_files
-- gives: dataset_id, files
SELECT dataset_id, count(*) AS files
  FROM (SELECT dataset_id FROM inbox_file WHERE status = 'QUARANTINED' LIMIT :limit) AS bad
 GROUP BY dataset_id

-- name: list_watermarks
-- gives: dataset_id, value
SELECT dataset_id, value FROM watermark

-- name: count_open_slots
-- gives: slots
SELECT count(*) AS slots
  FROM (SELECT 1 FROM time_slot {indexed_by:time_slot_open}
         WHERE dataset_id = :dataset_id AND complete = 0 LIMIT :limit) AS waiting

-- name: find_oldest_holder
-- gives: began_at
SELECT min(t.began_at) AS began_at
  FROM in_progress AS i JOIN tx AS t ON t.write_pointer = i.write_pointer
 WHERE i.dataset_id = :dataset_id AND i.from_time IS NOT NULL

-- name: count_parked
-- gives: partitions
SELECT count(*) AS partitions
  FROM (SELECT 1 FROM parked_partition WHERE dataset_id = :dataset_id LIMIT :limit) AS part

-- name: list_window_programs
-- gives: program_id, name, computed
SELECT w.program_id, w.name, w.computed
  FROM window_program AS w JOIN program AS p ON p.program_id = w.program_id
 WHERE p.retired = 0 ORDER BY w.name

-- name: count_postponed
-- gives: windows
SELECT count(*) AS windows FROM (SELECT 1 FROM window_failure WHERE program_id = :program_id LIMIT :limit) AS part

-- name: count_left_out
-- gives: partitions, late_rows, outside_rows
SELECT count(*) AS partitions, coalesce(sum(late_rows), 0) AS late_rows, coalesce(sum(outside_rows), 0) AS outside_rows
  FROM (SELECT late_rows, outside_rows FROM left_out WHERE program_id = :program_id LIMIT :limit) AS part

-- name: count_idle_inputs
-- gives: inputs
-- Tables for which the windows of a program do not wait.
SELECT count(*) AS inputs
  FROM window_input AS i CROSS JOIN dataset AS d CROSS JOIN watermark AS w
 WHERE i.program_id = :program_id AND d.dataset_id = i.dataset_id AND w.dataset_id = i.dataset_id
   AND w.idle_timeout + coalesce(w.committed_at, d.created_at) <= tidemill_now()

-- name: measure_waiting_partitions
-- gives: partitions, bytes
-- Of the complete slots whose end the windows of a program have not reached: at most :limit commits to partitions.
WITH slots AS MATERIALIZED (
SELECT i.dataset_id, s.slot_time
  FROM window_input AS i CROSS JOIN time_slot AS s {indexed_by:time_slot_complete}
 WHERE i.program_id = :program_id AND s.dataset_id = i.dataset_id AND s.complete = 1 AND s.ends_at > :computed + i.lag
 LIMIT :limit)
SELECT count(DISTINCT part.name) AS partitions, coalesce(sum(part.bytes), 0) AS bytes
  FROM (SELECT s.dataset_id || ' ' || c.partition_key AS name, c.bytes
          FROM slots AS s CROSS JOIN partition_change AS c {indexed_by:partition_by_time}
         WHERE c.dataset_id = s.dataset_id AND c.superseded_seq IS NULL AND c.partition_time = s.slot_time
         LIMIT :limit) AS part

-- name: find_last_windows
-- gives: payload, started_at, ended_at
-- The message of the newest commit of windows of a program, and the times of the run that has committed them.
SELECT m.payload, r.started_at, t.ended_at
  FROM (SELECT seq, payload FROM message {indexed_by:message_data}
         WHERE topic = 'data' AND event_key = :event_key AND event_type = 'windows' ORDER BY at DESC LIMIT 1) AS m
  JOIN tx AS t ON t.commit_seq = m.seq
  JOIN run AS r ON r.run_id = t.run_id

-- name: count_waiting_slots
-- gives: slots
-- Complete slots whose end the windows of a program have not reached, of all its inputs. The windows may wait for later
-- slots of an input.
SELECT count(*) AS slots
  FROM (SELECT 1 FROM window_input AS i CROSS JOIN time_slot AS s {indexed_by:time_slot_complete}
         WHERE i.program_id = :program_id AND s.dataset_id = i.dataset_id AND s.complete = 1 AND s.ends_at > :computed + i.lag
         LIMIT :limit) AS waiting

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
