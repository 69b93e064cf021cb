-- name: list_failing
-- gives: run_id
-- The newest run that has ended of each program that is there, if it failed. Cost: a look-up for each program.
-- With the CASE no database begins with all runs that have ever failed.
SELECT newest.run_id
  FROM (SELECT (SELECT run_id FROM run
                 WHERE run.program_id = program.program_id AND ended_at IS NOT NULL
                 ORDER BY created_at DESC LIMIT 1) AS run_id
          FROM program) AS newest
  JOIN run ON run.run_id = newest.run_id
 WHERE CASE run.state WHEN 'FAILED' THEN 1 END = 1
 ORDER BY newest.run_id DESC LIMIT :limit

-- name: list_broken
-- gives: dataset_id
SELECT dataset_id FROM expectation WHERE broken_since IS NOT NULL ORDER BY broken_since LIMIT :limit

-- name: list_quarantined
-- gives: dataset_id, name, error, failures
-- The index has these files alone.
SELECT dataset_id, name, error, failures FROM inbox_file
 WHERE status = 'QUARANTINED' ORDER BY first_seen LIMIT :limit

-- name: list_arrivals
-- gives: event_key, at
-- The newest messages about data, of whatever data set.
SELECT event_key, at FROM message WHERE topic = 'data' ORDER BY seq DESC, n DESC LIMIT :limit

-- name: count_waiting_files
-- gives: files
SELECT count(*) AS files
  FROM (SELECT 1 FROM inbox_file {indexed_by:inbox_file_open}
         WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') LIMIT :limit) AS waiting

-- name: count_waiting_partitions
-- gives: partitions
SELECT count(*) AS partitions
  FROM (SELECT 1 FROM consumer_work
         WHERE state = 'new'
           AND consumer_id IN (SELECT consumer_id FROM consumer WHERE dataset_id = :dataset_id) LIMIT :limit) AS waiting
