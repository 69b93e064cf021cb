-- name: find_last_before
-- gives: commit_seq
-- From the newest commit back: as many as will be delivered.
SELECT commit_seq FROM partition_change
 WHERE dataset_id = :dataset_id AND at < :moment
 ORDER BY commit_seq DESC LIMIT 1
