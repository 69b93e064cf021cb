-- name: complete_claim
-- locks: run, at inbox_file
-- wakes: run, job, time
-- The guard has locked the run's row: if two callers close the last files, the later one sees that none is left.
UPDATE run
   SET state = 'COMPLETED', ended_at = tidemill_now(), lease_until = NULL, exit_reason = '', facts = :facts
 WHERE run_id = :run_id AND epoch = :epoch
   AND NOT EXISTS (SELECT 1 FROM inbox_file AS file WHERE file.run_id = :run_id AND file.status = 'IN_PROGRESS')

-- name: find_closed
-- gives: name, status
SELECT name, status FROM inbox_file
 WHERE dataset_id = :dataset_id AND run_id = :run_id AND name IN ({texts:names}) AND status <> 'IN_PROGRESS'
