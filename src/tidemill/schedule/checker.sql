-- name: find_next
-- gives: next_check_at
SELECT min(next_check_at) AS next_check_at FROM job WHERE next_check_at IS NOT NULL
