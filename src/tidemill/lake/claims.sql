-- name: find_unread
-- The write pointers of the first unread changes, one row a change; at most :most from each of the two ranges.
SELECT write_pointer FROM (
    SELECT write_pointer FROM partition_change
     WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :write_pointer
       AND +commit_seq < :write_pointer AND delivers = 1
     ORDER BY write_pointer LIMIT :most) AS began_since
 UNION ALL
SELECT write_pointer FROM (
    SELECT write_pointer FROM partition_change
     WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check})
       AND +commit_seq < :write_pointer AND delivers = 1
     ORDER BY write_pointer LIMIT :most) AS late
 ORDER BY write_pointer
 LIMIT 1 OFFSET :place

-- name: fill
-- The unread changes below :bound become rows of the working set. A row may be there: what a run has added itself.
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state)
SELECT :consumer_id, write_pointer, partition_key, commit_seq, 'new'
  FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :bound
   AND +commit_seq < :write_pointer AND delivers = 1
 UNION ALL
SELECT :consumer_id, write_pointer, partition_key, commit_seq, 'new'
  FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND +write_pointer < :bound
   AND +commit_seq < :write_pointer AND delivers = 1
    ON CONFLICT (consumer_id, write_pointer, partition_key) DO NOTHING

-- name: insert_consumer
INSERT INTO consumer (consumer_id, dataset_id, name, start_version, versions_to_check, spec, revision)
VALUES (:consumer_id, :dataset_id, :name, 0, '[]', '{}', 0)
    ON CONFLICT (dataset_id, name) DO NOTHING

-- name: find_consumer
SELECT consumer_id, dataset_id, name, start_version, versions_to_check FROM consumer
 WHERE dataset_id = :dataset_id AND name = :name

-- name: list_consumers
SELECT consumer_id, dataset_id, name, start_version, versions_to_check FROM consumer ORDER BY name, dataset_id

-- name: lock_consumer
SELECT consumer_id, dataset_id, name, start_version, versions_to_check FROM consumer
 WHERE consumer_id = :consumer_id {for_update}

-- name: lock_consumers
SELECT consumer_id FROM consumer WHERE consumer_id IN ({texts:consumers}) ORDER BY consumer_id {for_update}

-- name: move_state
UPDATE consumer SET start_version = :start_version, versions_to_check = :versions_to_check, revision = revision + 1
 WHERE consumer_id = :consumer_id

-- name: lock_open_tx
-- Holds off whoever would fence or end the attempt until its claims are there to be re-stamped or released.
SELECT write_pointer FROM tx
 WHERE write_pointer = :write_pointer AND epoch = :epoch AND state = 'in_progress' {for_share}

-- name: find_claimable
-- All waiting rows of the keys of the first :most waiting ones with this many failures, the oldest key first; what
-- waited for a time after what never had to. A key of which some run holds a row waits. The order by not_before is that
-- of the index; CROSS JOIN has SQLite begin with the few keys. Sub-selects of one value are look-ups on both databases:
-- as joins, PostgreSQL found the changes first, with all that their keys had before, and compared all that is held.
SELECT work.partition_key, work.write_pointer, work.failures,
       (SELECT bytes FROM partition_change
         WHERE dataset_id = :dataset_id AND write_pointer = work.write_pointer AND partition_key = work.partition_key),
       CASE WHEN (SELECT superseded_seq FROM partition_change
                   WHERE dataset_id = :dataset_id AND write_pointer = work.write_pointer
                     AND partition_key = work.partition_key) < :write_pointer THEN 1 ELSE 0 END
  FROM (SELECT first.partition_key, min(first.write_pointer) AS oldest
          FROM (SELECT waiting.partition_key, waiting.write_pointer
                  FROM consumer_work AS waiting {indexed_by:consumer_work_new}
                 WHERE waiting.consumer_id = :consumer_id AND waiting.state = 'new'
                   AND waiting.not_before <= tidemill_now() AND waiting.commit_seq < :write_pointer
                   AND waiting.failures BETWEEN :from_failures AND :to_failures
                   AND (SELECT 1 FROM consumer_work AS held {indexed_by:consumer_work_held}
                         WHERE held.consumer_id = :consumer_id AND held.partition_key = waiting.partition_key
                           AND held.state = 'in_progress' LIMIT 1) IS NULL
                 ORDER BY waiting.not_before, waiting.write_pointer
                 LIMIT :most) AS first
         GROUP BY first.partition_key) AS wanted
 CROSS JOIN consumer_work AS work {indexed_by:consumer_work_key}
 WHERE work.partition_key = wanted.partition_key AND work.consumer_id = :consumer_id
   AND work.state = 'new' AND work.not_before <= tidemill_now() AND work.commit_seq < :write_pointer
 ORDER BY wanted.oldest, work.partition_key, work.commit_seq

-- name: claim
-- The key's three columns as one value: each row is found by it. (As a join SQLite compares all that is new with all
-- that is claimed.)
UPDATE consumer_work SET state = 'in_progress', run_id = :run_id, epoch = :epoch
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT CAST(:consumer_id AS TEXT), claims.write_pointer, claims.partition_key
          FROM {rows:claims(write_pointer bigint, partition_key text)} AS claims)
   AND run_id IS NULL

-- name: close_superseded
-- Overwritten before anybody took it: what the overwrite brought is delivered instead.
UPDATE consumer_work
   SET state = 'completed', run_id = :run_id, epoch = :epoch, error = 'overwritten before it was taken'
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT CAST(:consumer_id AS TEXT), closed.write_pointer, closed.partition_key
          FROM {rows:closed(write_pointer bigint, partition_key text)} AS closed)
   AND run_id IS NULL

-- name: find_claims
-- What a run holds, with the content to deliver, and whether the key had been there before.
SELECT work.consumer_id, work.failures, change.partition_key, change.write_pointer, change.commit_seq, change.op,
       change.location, change.manifest,
       CASE WHEN EXISTS (SELECT 1 FROM partition_change AS earlier
                          WHERE earlier.dataset_id = change.dataset_id
                            AND earlier.partition_key = change.partition_key
                            AND earlier.commit_seq < change.commit_seq) THEN 1 ELSE 0 END
  FROM consumer_work AS work
  JOIN consumer ON consumer.consumer_id = work.consumer_id
  JOIN partition_change AS change
    ON change.dataset_id = consumer.dataset_id AND change.write_pointer = work.write_pointer
   AND change.partition_key = work.partition_key
 WHERE work.run_id = :run_id AND work.state = 'in_progress'
 ORDER BY work.consumer_id, change.partition_key, change.commit_seq

-- name: put_back
-- Given back without a failure: whoever comes next may have it at once. coalesce() has PostgreSQL hash the list: it
-- takes what a run holds for a row or two, and compared each with the whole list (10,000 ran into the time-out).
UPDATE consumer_work SET state = 'new', run_id = NULL, epoch = NULL, not_before = 0
 WHERE run_id = :run_id AND state = 'in_progress'
   AND coalesce((consumer_id, partition_key) IN
                (SELECT returned.consumer_id, returned.partition_key
                   FROM {rows:returned(consumer_id text, partition_key text)} AS returned), FALSE)

-- name: find_holding
SELECT 1 WHERE EXISTS (SELECT 1 FROM consumer_work WHERE run_id = :run_id AND state = 'in_progress')
            OR EXISTS (SELECT 1 FROM inbox_file WHERE run_id = :run_id AND status = 'IN_PROGRESS')

-- name: refuse_other_epoch
SELECT tidemill_refuse('claims_taken_over', run_id, CAST(epoch AS TEXT))
  FROM consumer_work
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <> :epoch

-- name: restamp
UPDATE consumer_work SET epoch = :epoch WHERE run_id = :run_id AND state = 'in_progress'

-- name: record_input
-- Before the claims are completed: what a run took is what it held at its commit.
INSERT INTO run_input (run_id, dataset_id, write_pointer, item)
SELECT work.run_id, consumer.dataset_id, work.write_pointer, work.partition_key
  FROM consumer_work AS work JOIN consumer ON consumer.consumer_id = work.consumer_id
 WHERE work.run_id = :run_id AND work.state = 'in_progress'

-- name: complete
UPDATE consumer_work SET state = 'completed', error = NULL WHERE run_id = :run_id AND state = 'in_progress'

-- name: count_failure
UPDATE consumer_work SET failures = failures + 1, error = :error
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <= :epoch

-- name: discard_alone
-- After the failure was counted. Only what failed alone: beside it nothing else can have been the cause.
UPDATE consumer_work SET state = 'discarded'
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <= :epoch AND failures >= :most_failures
   AND 1 = (SELECT count(*) FROM (SELECT DISTINCT held.consumer_id, held.partition_key FROM consumer_work AS held
                                   WHERE held.run_id = :run_id AND held.state = 'in_progress') AS keys)
   AND NOT EXISTS (SELECT 1 FROM inbox_file WHERE inbox_file.run_id = :run_id AND inbox_file.status = 'IN_PROGRESS')

-- name: release
-- The wait doubles with each failure, up to an hour.
UPDATE consumer_work
   SET state = 'new', run_id = NULL, epoch = NULL,
       not_before = CASE WHEN CAST(:backoff AS BIGINT) = 0 THEN 0
                         WHEN failures > 20 THEN tidemill_now() + 3600000
                         WHEN :backoff * (CAST(1 AS BIGINT) << CAST(failures - 1 AS INTEGER)) > 3600000
                         THEN tidemill_now() + 3600000
                         ELSE tidemill_now() + :backoff * (CAST(1 AS BIGINT) << CAST(failures - 1 AS INTEGER)) END
 WHERE run_id = :run_id AND state = 'in_progress' AND epoch <= :epoch

-- name: publish_backlog
-- rank: consumer
-- One message for each of the consumers that has rows left which somebody could claim now. After lock_consumers: a take
-- under way has ended, and this statement sees what it left.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq})
           + row_number() OVER (ORDER BY consumer.consumer_id) - 1,
       tidemill_now(), 'backlog', 'backlog:' || dataset.namespace || '.' || dataset.name,
       '{"consumer":"' || consumer.name || '"}'
  FROM consumer JOIN dataset ON dataset.dataset_id = consumer.dataset_id
 WHERE consumer.consumer_id IN ({texts:consumers})
   AND EXISTS (SELECT 1 FROM consumer_work AS work
                WHERE work.consumer_id = consumer.consumer_id AND work.state = 'new'
                  AND work.not_before <= tidemill_now()
                  AND NOT EXISTS (SELECT 1 FROM consumer_work AS held
                                   WHERE held.consumer_id = work.consumer_id
                                     AND held.partition_key = work.partition_key
                                     AND held.state = 'in_progress'))

-- name: note_unread
-- rank: consumer
-- The first change that no take has seen becomes a row of the working set, one from each of the two ranges: so that it
-- counts as work left. The state stays: the next take goes over the same ranges, and finds the row there. (With the
-- consumer joined in the first range, PostgreSQL read all changes for its few.)
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state)
SELECT CAST(:consumer_id AS TEXT), unread.write_pointer, unread.partition_key, unread.commit_seq, 'new'
  FROM (SELECT began_since.write_pointer, began_since.partition_key, began_since.commit_seq
          FROM (SELECT change.write_pointer, change.partition_key, change.commit_seq
                  FROM partition_change AS change
                 WHERE change.dataset_id = (SELECT dataset_id FROM consumer WHERE consumer_id = :consumer_id)
                   AND change.write_pointer >= (SELECT start_version FROM consumer WHERE consumer_id = :consumer_id)
                   AND change.delivers = 1
                   AND NOT EXISTS (SELECT 1 FROM consumer_work AS known
                                    WHERE known.consumer_id = :consumer_id
                                      AND known.write_pointer = change.write_pointer
                                      AND known.partition_key = change.partition_key)
                 ORDER BY change.write_pointer, change.partition_key LIMIT 1) AS began_since
         UNION ALL
        SELECT late.write_pointer, late.partition_key, late.commit_seq
          FROM (SELECT change.write_pointer, change.partition_key, change.commit_seq
                  FROM consumer CROSS JOIN partition_change AS change
                 WHERE consumer.consumer_id = :consumer_id AND change.dataset_id = consumer.dataset_id
                   AND change.write_pointer IN ({ints:consumer.versions_to_check}) AND change.delivers = 1
                   AND NOT EXISTS (SELECT 1 FROM consumer_work AS known
                                    WHERE known.consumer_id = :consumer_id
                                      AND known.write_pointer = change.write_pointer
                                      AND known.partition_key = change.partition_key)
                 ORDER BY change.write_pointer, change.partition_key LIMIT 1) AS late) AS unread
 WHERE true
    ON CONFLICT (consumer_id, write_pointer, partition_key) DO NOTHING

-- name: put_off
-- One row is enough to have the keeper announce the consumer at its time; the others are there for whoever comes. As
-- long again as the change has waited, so that the waits double without anybody counting.
UPDATE consumer_work
   SET not_before = tidemill_now() + (SELECT CASE WHEN tidemill_now() - change.at > 3600000 THEN 3600000
                                                  WHEN tidemill_now() - change.at > :wait THEN tidemill_now() - change.at
                                                  ELSE :wait END
                                        FROM consumer JOIN partition_change AS change
                                          ON change.dataset_id = consumer.dataset_id
                                       WHERE consumer.consumer_id = consumer_work.consumer_id
                                         AND change.write_pointer = consumer_work.write_pointer
                                         AND change.partition_key = consumer_work.partition_key)
 WHERE (consumer_id, write_pointer, partition_key) =
       (SELECT waiting.consumer_id, waiting.write_pointer, waiting.partition_key
          FROM consumer_work AS waiting {indexed_by:consumer_work_new}
         WHERE waiting.consumer_id = :consumer_id AND waiting.state = 'new' AND waiting.not_before <= tidemill_now()
           AND NOT EXISTS (SELECT 1 FROM consumer_work AS held
                            WHERE held.consumer_id = :consumer_id AND held.partition_key = waiting.partition_key
                              AND held.state = 'in_progress')
         ORDER BY waiting.not_before, waiting.write_pointer LIMIT 1)

-- name: find_next_due
SELECT min(not_before) FROM consumer_work WHERE state = 'new' AND not_before > 0

-- name: find_due
SELECT DISTINCT consumer_id FROM consumer_work
 WHERE state = 'new' AND not_before > 0 AND not_before <= tidemill_now()

-- name: clear_due
-- So that the keeper announces them once.
UPDATE consumer_work SET not_before = 0
 WHERE state = 'new' AND not_before > 0 AND not_before <= tidemill_now() AND consumer_id IN ({texts:consumers})

-- name: skip_own
-- rank: consumer
-- After the change rows of the same commit: they are in the working set already, and done.
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state, run_id, epoch)
SELECT :consumer_id, change.write_pointer, change.partition_key, change.commit_seq, 'completed', change.run_id, :epoch
  FROM partition_change AS change JOIN consumer
    ON consumer.consumer_id = :consumer_id AND consumer.dataset_id = change.dataset_id
 WHERE change.write_pointer = :write_pointer

-- name: measure_lag
-- What waits in the working set, and what no take has seen: by start_version and versions_to_check, never the history.
SELECT coalesce(sum(waiting.partitions), 0), coalesce(sum(waiting.bytes), 0), min(waiting.oldest)
  FROM (SELECT count(*) AS partitions, sum(change.bytes) AS bytes, min(change.at) AS oldest
          FROM consumer_work AS work CROSS JOIN partition_change AS change
         WHERE work.consumer_id = :consumer_id AND work.state = 'new'
           AND change.dataset_id = :dataset_id AND change.write_pointer = work.write_pointer
           AND change.partition_key = work.partition_key
         UNION ALL
        SELECT count(*), sum(bytes), min(at) FROM partition_change
         WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND delivers = 1
         UNION ALL
        SELECT count(*), sum(bytes), min(at) FROM partition_change
         WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND delivers = 1) AS waiting

-- name: list_work
-- Each state has its index; what is completed has none, and is the whole history.
SELECT write_pointer, partition_key, state, failures, not_before, run_id, error
  FROM consumer_work {indexed_by:consumer_work_new}
 WHERE consumer_id = :consumer_id AND state = 'new' AND :state = 'new'
 UNION ALL
SELECT write_pointer, partition_key, state, failures, not_before, run_id, error
  FROM consumer_work {indexed_by:consumer_work_held}
 WHERE consumer_id = :consumer_id AND state = 'in_progress' AND :state = 'in_progress'
 UNION ALL
SELECT write_pointer, partition_key, state, failures, not_before, run_id, error
  FROM consumer_work {indexed_by:consumer_work_discarded}
 WHERE consumer_id = :consumer_id AND state = 'discarded' AND :state = 'discarded'
 ORDER BY write_pointer, partition_key LIMIT :limit
