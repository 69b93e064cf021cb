-- name: read_horizon
SELECT horizon FROM dataset WHERE dataset_id = :dataset_id

-- name: find_commit_at
-- The last commit at that time.
SELECT commit_seq FROM tx {indexed_by:tx_ended}
 WHERE commit_seq IS NOT NULL AND ended_at <= :at
 ORDER BY ended_at DESC LIMIT 1

-- name: read_clock
-- only: sqlite
SELECT value FROM clock WHERE id = 1

-- name: read_clock
-- only: postgres
SELECT last_value FROM tidemill_clock
