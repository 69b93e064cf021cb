-- name: list_datasets
-- gives: name, kind, location, spec
SELECT name, kind, location, spec FROM dataset
 WHERE namespace = :namespace AND app = :app AND dropped_at IS NULL

-- name: list_programs
-- gives: name, kind, spec, instances, windows, spark_profile
SELECT program.name, program.kind, program.spec, worker.instances, window_program.definition AS windows,
       nullif(program.spark_profile, '') AS spark_profile
  FROM program
  LEFT JOIN worker ON worker.program_id = program.program_id
  LEFT JOIN window_program ON window_program.program_id = program.program_id
 WHERE program.namespace = :namespace AND program.app = :app AND program.retired = 0

-- name: list_consumers
-- gives: name, namespace, dataset, spec
-- Consumers of retired programs too: a deployment leaves most of them. Cost: the consumers.
SELECT consumer.name, dataset.namespace, dataset.name AS dataset, consumer.spec
  FROM consumer JOIN dataset ON dataset.dataset_id = consumer.dataset_id
 WHERE substr(consumer.name, 1, length(CAST(:prefix AS TEXT))) = :prefix

-- name: list_schedules
-- gives: namespace, app, name, spec, owner, program_namespace, program_app, program
-- The schedules of the app, and those of other apps that start one of its programs.
SELECT schedule.namespace, schedule.app, schedule.name, schedule.spec, schedule.owner,
       program.namespace AS program_namespace, program.app AS program_app, program.name AS program
  FROM schedule JOIN program ON program.program_id = schedule.program_id
 WHERE schedule.namespace = :namespace AND schedule.app = :app
 UNION ALL
SELECT schedule.namespace, schedule.app, schedule.name, schedule.spec, schedule.owner,
       program.namespace, program.app, program.name
  FROM program JOIN schedule ON schedule.program_id = program.program_id
 WHERE program.namespace = :namespace AND program.app = :app
   AND NOT (schedule.namespace = :namespace AND schedule.app = :app)

-- name: list_alerts
-- gives: name, spec
SELECT name, spec FROM alert_rule WHERE namespace = :namespace AND app = :app
