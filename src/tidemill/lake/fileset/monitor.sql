-- name: put_charge
-- A table is listed as an inbox is, and needs nothing else of the row.
INSERT INTO inbox_marker (dataset_id, next_listing_at, attempts, retry_after)
VALUES (:dataset_id, tidemill_now(), 1, 0)
    ON CONFLICT (dataset_id) DO UPDATE SET next_listing_at = excluded.next_listing_at, in_charge = NULL

-- name: delete_charge
DELETE FROM inbox_marker WHERE dataset_id = :dataset_id

-- name: lock_charge
-- gives: in_charge
-- A process that takes the charge skips a locked row, and finds this commit when it takes it later.
SELECT in_charge FROM inbox_marker WHERE dataset_id = :dataset_id {for_update}

-- name: refuse_other_charge
SELECT tidemill_refuse('listed_elsewhere', CAST(:dataset AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM inbox_marker WHERE dataset_id = :dataset_id AND in_charge = :process)

-- name: find_newest
-- gives: commit_seq
SELECT max(commit_seq) AS commit_seq FROM partition_change {indexed_by:partition_commit} WHERE dataset_id = :dataset_id

-- name: count_others
-- gives: changes
-- Changes that other transactions have committed since.
SELECT count(*) AS changes FROM partition_change {indexed_by:partition_commit}
 WHERE dataset_id = :dataset_id AND commit_seq > :since AND write_pointer NOT IN ({ints:own})

-- name: note_root
-- locks: dataset
-- quiet
UPDATE dataset SET root = :root WHERE dataset_id = :dataset_id AND location = :location
