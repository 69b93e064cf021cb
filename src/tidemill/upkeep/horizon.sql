-- name: read_horizon
-- gives: seq, at, moved_at, delete_seq, delete_at
SELECT seq, at, moved_at, delete_seq, delete_at FROM retention WHERE id = 1

-- name: find_oldest_run
-- gives: created_at
SELECT min(created_at) AS created_at FROM run
