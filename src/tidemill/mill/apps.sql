-- name: list_apps
SELECT namespace, name, version, spec, deployed_at FROM app ORDER BY namespace, name
