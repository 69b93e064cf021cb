-- name: read_version
SELECT coalesce(max(version), 0) FROM migration

-- name: read_incarnation
SELECT incarnation FROM clock WHERE id = 1
