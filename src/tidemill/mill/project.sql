-- name: name_programs
-- gives: id, namespace, app, name
SELECT program_id AS id, namespace, app, name FROM program WHERE program_id IN ({texts:ids})

-- name: name_schedules
-- gives: id, namespace, app, name
SELECT schedule_id AS id, namespace, app, name FROM schedule WHERE schedule_id IN ({texts:ids})
