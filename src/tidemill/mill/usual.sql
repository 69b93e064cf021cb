-- name: list_run_spans
-- gives: began_at, ended_at
SELECT coalesce(started_at, created_at) AS began_at, ended_at FROM run
 WHERE program_id = :program_id AND state = 'COMPLETED' AND replay_of IS NULL ORDER BY ended_at DESC LIMIT :limit

-- name: list_longest_waits
-- gives: schedule_id, jobs, longest
-- The longest wait of the last jobs of each schedule. Cost: the rows of these jobs.
SELECT s.schedule_id,
       (SELECT count(*) FROM (SELECT 1 FROM job_history AS h WHERE h.schedule_id = s.schedule_id
                               ORDER BY h.ended_at DESC LIMIT :limit) AS last) AS jobs,
       (SELECT max(span) FROM (SELECT h.ended_at - h.created_at AS span FROM job_history AS h
                                WHERE h.schedule_id = s.schedule_id
                                ORDER BY h.ended_at DESC LIMIT :limit) AS last) AS longest
  FROM {rows:schedules(schedule_id text)} AS s

-- name: list_ends
-- gives: state, ended_at, app_version
SELECT state, ended_at, app_version FROM run
 WHERE program_id = :program_id AND ended_at IS NOT NULL AND replay_of IS NULL ORDER BY created_at DESC LIMIT :limit
