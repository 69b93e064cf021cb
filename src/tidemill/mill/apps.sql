-- name: list_apps
-- gives: namespace, name, version, spec, deployed_at
SELECT namespace, name, version, spec, deployed_at FROM app
 WHERE deleted = 0 AND (namespace, name) > (:after_namespace, :after_name) AND namespace <= :until
 ORDER BY namespace, name LIMIT :limit

-- name: find_app
-- gives: namespace, name, version, spec, deployed_at
SELECT namespace, name, version, spec, deployed_at FROM app
 WHERE namespace = :namespace AND name = :name AND deleted = 0

-- name: list_names
-- gives: namespace, name
SELECT namespace, name FROM app WHERE deleted = 0 ORDER BY namespace, name

-- name: list_owned
-- gives: kind, name, spark_profile
-- Cost: the data sets, programs and schedules of a namespace.
SELECT 'dataset' AS kind, name, '' AS spark_profile FROM dataset WHERE namespace = :namespace AND app = :app AND dropped_at IS NULL
 UNION ALL
SELECT 'program', name, coalesce(spark_profile, '') FROM program WHERE namespace = :namespace AND app = :app AND retired = 0
 UNION ALL
SELECT 'schedule', name, '' FROM schedule WHERE namespace = :namespace AND app = :app
 ORDER BY kind, name
