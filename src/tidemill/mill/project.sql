-- name: name_programs
-- gives: id, namespace, app, name
SELECT program_id AS id, namespace, app, name FROM program WHERE program_id IN ({texts:ids})

-- name: name_schedules
-- gives: id, namespace, app, name
SELECT schedule_id AS id, namespace, app, name FROM schedule WHERE schedule_id IN ({texts:ids})

-- name: find_namespace_of_run
-- gives: namespace
SELECT program.namespace FROM run JOIN program ON program.program_id = run.program_id WHERE run.run_id = :run_id

-- name: find_namespace_of_job
-- gives: namespace
-- Of a job that waits, or has ended.
SELECT schedule.namespace
  FROM schedule
 WHERE schedule.schedule_id IN (SELECT schedule_id FROM job WHERE job_id = :job_id
                                 UNION ALL SELECT schedule_id FROM job_history WHERE job_id = :job_id)
