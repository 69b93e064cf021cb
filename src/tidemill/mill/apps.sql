-- name: list_apps
-- gives: namespace, name, version, spec, deployed_at
SELECT namespace, name, version, spec, deployed_at FROM app WHERE deleted = 0 ORDER BY namespace, name

-- name: find_app
-- gives: found
SELECT 1 AS found FROM app WHERE namespace = :namespace AND name = :name AND deleted = 0
