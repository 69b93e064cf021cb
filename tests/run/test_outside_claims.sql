-- name: count_runs
SELECT count(*) FROM run

-- name: quarantine
UPDATE inbox_file SET status = 'QUARANTINED' WHERE name = :name
