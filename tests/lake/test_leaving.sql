-- name: come_due
-- locks: inbox_file
UPDATE inbox_file SET leave_at = 1 WHERE leave_at IS NOT NULL

-- name: count_leaving
SELECT count(*) FROM inbox_file WHERE leave_at IS NOT NULL
