-- name: read_horizon
-- gives: horizon
SELECT horizon FROM dataset WHERE dataset_id = :dataset_id

-- name: find_commit_at
-- gives: commit_seq
-- The last commit at that time. Several may be of one millisecond.
SELECT commit_seq FROM tx {indexed_by:tx_ended}
 WHERE commit_seq IS NOT NULL AND ended_at <= :at
 ORDER BY ended_at DESC, commit_seq DESC LIMIT 1

-- name: read_clock
-- gives: value
-- only: sqlite
SELECT value FROM clock WHERE id = 1

-- name: read_clock
-- only: postgres
SELECT last_value AS value FROM tidemill_clock
