-- name: put_program
-- gives: program_id
-- Its id stays through all deployments: runs, schedules and slots name it.
INSERT INTO program (program_id, namespace, app, name, kind, spec, bundle, spark_profile)
VALUES (:program_id, :namespace, :app, :name, :kind, :spec, :bundle, :spark_profile)
ON CONFLICT (namespace, app, name) DO UPDATE SET kind = excluded.kind, spec = excluded.spec, bundle = excluded.bundle,
       spark_profile = excluded.spark_profile, retired = 0
RETURNING program_id

-- name: find_program
-- gives: program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile
SELECT program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile
  FROM program WHERE namespace = :namespace AND app = :app AND name = :name

-- name: find_by_id
-- gives: program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile
SELECT program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile FROM program WHERE program_id = :program_id

-- name: find_by_ids
-- gives: program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile
SELECT program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile FROM program WHERE program_id IN ({texts:program_ids})

-- name: list_programs
-- gives: program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile
SELECT program_id, namespace, app, name, kind, spec, bundle, retired, spark_profile FROM program ORDER BY namespace, app, name

-- name: list_declared
-- gives: program_id, namespace, app, name, spec
SELECT program_id, namespace, app, name, spec FROM program WHERE retired = 0 ORDER BY namespace, app, name

-- name: retire_others
-- gives: program_id, name
-- Programs of an app that it does not declare any more.
UPDATE program SET retired = 1
 WHERE namespace = :namespace AND app = :app AND retired = 0
   AND program_id NOT IN (SELECT value FROM ({texts:program_ids}) AS kept)
RETURNING program_id, name
