-- name: find_commits_of_runs
-- gives: run_id
-- Whether runs without a record have committed: for what should not be there, reads all transactions.
SELECT DISTINCT run_id FROM tx WHERE state = 'committed' AND run_id IN ({texts:runs})
