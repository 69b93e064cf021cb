-- name: list_partitions
-- gives: partition_key, bytes, row_count
-- Current partitions with their sizes.
SELECT partition_key, CAST(sum(bytes) AS BIGINT) AS bytes, CAST(sum(coalesce(row_count, 0)) AS BIGINT) AS row_count
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop'
   AND partition_key >= :lower AND partition_key > :after AND partition_key < :upper
 GROUP BY partition_key ORDER BY partition_key LIMIT :most

-- name: list_named
-- gives: partition_key, bytes, row_count
SELECT partition_key, CAST(sum(bytes) AS BIGINT) AS bytes, CAST(sum(coalesce(row_count, 0)) AS BIGINT) AS row_count
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop' AND partition_key IN ({texts:keys})
 GROUP BY partition_key ORDER BY partition_key

-- name: list_changed
-- gives: partition_key
-- Cost: the changes of the transactions between two write pointers.
SELECT DISTINCT partition_key FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer >= :first AND write_pointer <= :last
 ORDER BY partition_key LIMIT :most

-- name: list_with_input
-- gives: run_id
-- Runs that have taken input. Cost: a look-up for each run, whatever the size of its input.
SELECT run_id FROM run
 WHERE run_id IN ({texts:runs})
   AND (SELECT 1 FROM run_input AS input WHERE input.run_id = run.run_id LIMIT 1) IS NOT NULL

-- name: list_open_times
-- gives: fire_time
-- The logical times of the open job of a schedule. Cost: the fires of this generation of the schedule.
SELECT fire.fire_time
  FROM job JOIN fire ON fire.schedule_id = job.schedule_id AND fire.generation = job.generation
                    AND fire.job_id = job.job_id
 WHERE job.schedule_id = :schedule_id AND fire.fire_time >= :since
