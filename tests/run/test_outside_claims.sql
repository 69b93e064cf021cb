-- name: count_runs
SELECT count(*) FROM run

-- name: quarantine
-- locks: inbox_file
UPDATE inbox_file SET status = 'QUARANTINED' WHERE name = :name
