-- name: find_unreported
-- gives: write_pointer, partition_key, error
SELECT write_pointer, partition_key, error FROM consumer_work {indexed_by:consumer_work_unreported}
 WHERE consumer_id = :consumer_id AND state = 'discarded' AND reported_by IS NULL
 ORDER BY write_pointer, partition_key LIMIT :most

-- name: refuse_if_reported
-- A partition that was requeued meanwhile does not refuse the commit: if it is discarded again, it is reported again.
SELECT tidemill_refuse('discards_reported', CAST(:consumer AS TEXT))
 WHERE EXISTS (SELECT 1 FROM consumer_work
                WHERE (consumer_id, write_pointer, partition_key) IN
                      (SELECT CAST(:consumer_id AS TEXT), reported.write_pointer, reported.partition_key
                         FROM {rows:discards(write_pointer bigint, partition_key text)} AS reported)
                  AND state = 'discarded' AND reported_by IS NOT NULL)

-- name: report
-- locks: consumer_work
UPDATE consumer_work SET reported_by = :run_id
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT CAST(:consumer_id AS TEXT), reported.write_pointer, reported.partition_key
          FROM {rows:discards(write_pointer bigint, partition_key text)} AS reported)
   AND state = 'discarded'
