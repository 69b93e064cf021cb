-- name: lock_limits
-- gives: limit_key
-- locks: slot_limit
SELECT limit_key FROM slot_limit WHERE limit_key IN ({texts:limit_keys}) ORDER BY limit_key {for_update}

-- name: count_slots
-- gives: limit_key, held
-- A statement of its own after the lock: it sees what those before us under the lock have committed.
SELECT limit_key, count(*) AS held FROM slot WHERE limit_key IN ({texts:limit_keys}) GROUP BY limit_key

-- name: find_next
-- gives: next_check_at
SELECT min(next_check_at) AS next_check_at FROM job WHERE next_check_at IS NOT NULL
