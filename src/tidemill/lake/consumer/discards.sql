-- name: find_untold
-- gives: write_pointer, partition_key, error
SELECT write_pointer, partition_key, error FROM consumer_work {indexed_by:consumer_work_untold}
 WHERE consumer_id = :consumer_id AND state = 'discarded' AND told_by IS NULL
 ORDER BY write_pointer, partition_key LIMIT :most

-- name: refuse_if_told
-- What was requeued meanwhile is no reason to lose the run's work: it is told again should it be given up again.
SELECT tidemill_refuse('discards_told', CAST(:consumer AS TEXT))
 WHERE EXISTS (SELECT 1 FROM consumer_work
                WHERE (consumer_id, write_pointer, partition_key) IN
                      (SELECT CAST(:consumer_id AS TEXT), told.write_pointer, told.partition_key
                         FROM {rows:discards(write_pointer bigint, partition_key text)} AS told)
                  AND state = 'discarded' AND told_by IS NOT NULL)

-- name: tell
-- locks: consumer_work
UPDATE consumer_work SET told_by = :run_id
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT CAST(:consumer_id AS TEXT), told.write_pointer, told.partition_key
          FROM {rows:discards(write_pointer bigint, partition_key text)} AS told)
   AND state = 'discarded'
