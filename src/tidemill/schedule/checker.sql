-- name: lock_limits
SELECT limit_key FROM slot_limit WHERE limit_key IN ({texts:limit_keys}) ORDER BY limit_key {for_update}

-- name: count_slots
-- A statement of its own after the lock: it sees what those before us under the lock have committed.
SELECT limit_key, count(*) FROM slot WHERE limit_key IN ({texts:limit_keys}) GROUP BY limit_key

-- name: find_next
SELECT min(next_check_at) FROM job WHERE next_check_at IS NOT NULL
