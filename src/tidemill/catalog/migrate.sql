-- name: read_version
SELECT coalesce(max(version), 0) FROM migration
