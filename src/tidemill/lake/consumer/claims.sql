-- name: return_some
-- locks: consumer_work
-- Returned without a failure: the next take may claim the partition at once. coalesce() makes PostgreSQL hash the list.
-- Without it PostgreSQL expects a row or two for a run, and compares each with the whole list (10,000 ran into the
-- time-out).
UPDATE consumer_work SET state = 'new', run_id = NULL, epoch = NULL, not_before = 0
 WHERE run_id = :run_id AND state = 'in_progress'
   AND coalesce((consumer_id, partition_key) IN
                (SELECT returned.consumer_id, returned.partition_key
                   FROM {rows:returned(consumer_id text, partition_key text)} AS returned), FALSE)

-- name: return_for_later
-- locks: consumer_work
-- wakes: time
-- As long again as the change has waited, as with postponed work; the keeper announces it then.
UPDATE consumer_work
   SET state = 'new', run_id = NULL, epoch = NULL,
       not_before = tidemill_now() + (SELECT CASE WHEN tidemill_now() - change.at > 3600000 THEN 3600000
                                                  WHEN tidemill_now() - change.at > :wait THEN tidemill_now() - change.at
                                                  ELSE :wait END
                                        FROM consumer JOIN partition_change AS change
                                          ON change.dataset_id = consumer.dataset_id
                                       WHERE consumer.consumer_id = consumer_work.consumer_id
                                         AND change.write_pointer = consumer_work.write_pointer
                                         AND change.partition_key = consumer_work.partition_key)
 WHERE run_id = :run_id AND state = 'in_progress'
   AND coalesce((consumer_id, partition_key) IN
                (SELECT returned.consumer_id, returned.partition_key
                   FROM {rows:returned(consumer_id text, partition_key text)} AS returned), FALSE)

-- name: return_of_consumers
-- locks: consumer_work
UPDATE consumer_work SET state = 'new', run_id = NULL, epoch = NULL, not_before = 0
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch = :epoch AND consumer_id IN ({texts:consumers})

-- name: find_held
-- gives: claims, failures
-- A partition with several changes is one claim.
SELECT count(*) AS claims, coalesce(max(failures), 0) AS failures
  FROM (SELECT max(failures) AS failures FROM consumer_work
         WHERE run_id = :run_id AND state = 'in_progress' GROUP BY consumer_id, partition_key) AS keys

-- name: refuse_if_moved
SELECT tidemill_refuse('claims_moved', CAST(:run_id AS TEXT))
  FROM (SELECT count(*) AS claims
          FROM (SELECT DISTINCT consumer_id, partition_key FROM consumer_work
                 WHERE run_id = :run_id AND state = 'in_progress') AS keys) AS held
 WHERE held.claims <> :claims

-- name: refuse_other_epoch
SELECT tidemill_refuse('claims_taken_over', run_id, CAST(epoch AS TEXT))
  FROM consumer_work
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <> :epoch

-- name: restamp
-- locks: consumer_work
UPDATE consumer_work SET epoch = :epoch WHERE run_id = :run_id AND state = 'in_progress'

-- name: hand_over
-- locks: consumer_work
UPDATE consumer_work SET run_id = :heir, epoch = 1 WHERE run_id = :run_id AND state = 'in_progress'

-- name: record_input
-- Before the claims are completed: what a run took is what it held at its commit. A worker may take a partition again,
-- after a reset.
INSERT INTO run_input (run_id, dataset_id, write_pointer, item, commit_seq)
SELECT work.run_id, consumer.dataset_id, work.write_pointer, work.partition_key,
       (SELECT {commit_seq} FROM worker
         WHERE worker.program_id = (SELECT run.program_id FROM run WHERE run.run_id = :run_id) AND worker.instances > 0)
  FROM consumer_work AS work JOIN consumer ON consumer.consumer_id = work.consumer_id
 WHERE work.run_id = :run_id AND work.state = 'in_progress' AND work.epoch = :epoch
    ON CONFLICT (run_id, dataset_id, write_pointer, item, content_version) DO NOTHING

-- name: complete
-- locks: consumer_work
UPDATE consumer_work SET state = 'completed', error = NULL 
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch = :epoch

-- name: count_failure
-- locks: consumer_work
UPDATE consumer_work SET failures = failures + 1, error = :error
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <= :epoch

-- name: discard
-- locks: consumer_work
-- After the failure was counted, of a run that held nothing else.
UPDATE consumer_work SET state = 'discarded'
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <= :epoch
   AND failures >= (SELECT attempts FROM consumer WHERE consumer.consumer_id = consumer_work.consumer_id)

-- name: return_claims
-- locks: consumer_work
-- The wait doubles with each failure, up to an hour. Without a wait there is no time: the end of the run announces the
-- work, and the keeper would announce a time again.
UPDATE consumer_work
   SET state = 'new', run_id = NULL, epoch = NULL,
       not_before = CASE WHEN :failed = 0 OR :backoff = 0 THEN 0
                         WHEN failures > 20 THEN tidemill_now() + 3600000
                         WHEN CAST(:backoff AS BIGINT) * (CAST(1 AS BIGINT) << CAST(failures - 1 AS INTEGER)) > 3600000
                         THEN tidemill_now() + 3600000
                         ELSE tidemill_now() + :backoff * (CAST(1 AS BIGINT) << CAST(failures - 1 AS INTEGER)) END
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <= :epoch

-- name: skip_own
-- locks: nothing, at consumer
-- After the change rows of the same commit: they are in the working set already, and done.
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state, run_id, epoch)
SELECT consumer.consumer_id, change.write_pointer, change.partition_key, change.commit_seq, 'completed', change.run_id,
       :epoch
  FROM partition_change AS change JOIN consumer
    ON consumer.name = :consumer AND consumer.dataset_id = change.dataset_id
 WHERE change.write_pointer = :write_pointer AND change.dataset_id = :dataset_id
