-- name: list_declared
-- gives: dataset_id
SELECT dataset_id FROM in_progress WHERE write_pointer = :write_pointer ORDER BY dataset_id

-- name: note_commit
-- locks: run
-- quiet
UPDATE run SET facts = :facts
 WHERE run_id = :run_id AND epoch = :epoch AND state || '' = 'RUNNING' AND coalesce(facts, :facts) = :facts
