-- name: list_run_spans
-- gives: began_at, ended_at
SELECT coalesce(started_at, created_at) AS began_at, ended_at FROM run
 WHERE program_id = :program_id AND state = 'COMPLETED' ORDER BY ended_at DESC LIMIT :limit

-- name: list_job_spans
-- gives: began_at, ended_at
SELECT created_at AS began_at, ended_at FROM job_history
 WHERE schedule_id = :schedule_id ORDER BY ended_at DESC LIMIT :limit

-- name: list_ends
-- gives: state, ended_at, app_version
SELECT state, ended_at, app_version FROM run
 WHERE program_id = :program_id AND ended_at IS NOT NULL ORDER BY created_at DESC LIMIT :limit
