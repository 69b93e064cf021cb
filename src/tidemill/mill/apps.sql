-- name: list_apps
SELECT namespace, name, version, spec, deployed_at FROM app WHERE deleted = 0 ORDER BY namespace, name

-- name: find_app
SELECT 1 FROM app WHERE namespace = :namespace AND name = :name AND deleted = 0
