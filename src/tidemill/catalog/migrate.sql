-- name: read_version
-- gives: version
SELECT coalesce(max(version), 0) AS version FROM migration

-- name: read_incarnation
-- gives: incarnation
SELECT incarnation FROM clock WHERE id = 1
