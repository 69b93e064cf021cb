-- name: find_unread
-- gives: write_pointer
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

-- name: find_any
-- gives: found
-- Whether anything waits that could be claimed, or has committed that no take has seen.
SELECT 1 AS found
 WHERE EXISTS (SELECT 1 FROM consumer_work AS waiting {indexed_by:consumer_work_new}
                WHERE waiting.consumer_id = :consumer_id AND waiting.state = 'new'
                  AND waiting.not_before <= tidemill_now()
                  AND (SELECT 1 FROM consumer_work AS held {indexed_by:consumer_work_held}
                        WHERE held.consumer_id = :consumer_id AND held.partition_key = waiting.partition_key
                          AND held.state = 'in_progress' LIMIT 1) IS NULL)
    OR EXISTS (SELECT 1 FROM partition_change
                WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND delivers = 1)
    OR EXISTS (SELECT 1 FROM partition_change
                WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND delivers = 1)

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

-- name: lock_consumer
-- gives: consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped
-- locks: consumer
SELECT consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped FROM consumer
 WHERE consumer_id = :consumer_id {for_update}

-- name: move_state
-- locks: consumer
UPDATE consumer SET start_version = :start_version, versions_to_check = :versions_to_check, revision = revision + 1
 WHERE consumer_id = :consumer_id

-- name: count_dropped
-- locks: consumer
UPDATE consumer SET dropped = dropped + :dropped WHERE consumer_id = :consumer_id

-- name: find_claimable
-- gives: partition_key, write_pointer, failures, bytes, superseded_seq, successor_op
-- All waiting rows of the keys of the first :most waiting ones with this many failures, the oldest key first; what
-- waited for a time after what never had to. A key comes with all its rows once one of them is due: a newer row never
-- overtakes an older one that waits for another attempt. A key of which some run holds a row waits. The order by
-- not_before is that of the index; if :newest (1, else 0), what never had to wait is read backwards. CROSS JOIN has
-- SQLite begin with the few keys. Sub-selects of one value are look-ups on both databases: as joins, PostgreSQL found the
-- changes first, with all that their keys had before, and compared all that is held.
SELECT work.partition_key, work.write_pointer, work.failures,
       (SELECT bytes FROM partition_change
         WHERE dataset_id = :dataset_id AND write_pointer = work.write_pointer AND partition_key = work.partition_key)
       AS bytes,
       (SELECT superseded_seq FROM partition_change
         WHERE dataset_id = :dataset_id AND write_pointer = work.write_pointer AND partition_key = work.partition_key
           AND superseded_seq < :write_pointer) AS superseded_seq,
       (SELECT successor.op FROM partition_change AS successor
         WHERE successor.dataset_id = :dataset_id AND successor.partition_key = work.partition_key
           AND successor.commit_seq = (SELECT superseded_seq FROM partition_change
                                        WHERE dataset_id = :dataset_id AND write_pointer = work.write_pointer
                                          AND partition_key = work.partition_key)) AS successor_op
  FROM (SELECT first.partition_key, min(first.place) AS place
          FROM (SELECT next.partition_key, next.write_pointer AS place
                  FROM (SELECT waiting.partition_key, waiting.write_pointer
                          FROM consumer_work AS waiting {indexed_by:consumer_work_new}
                         WHERE waiting.consumer_id = :consumer_id AND waiting.state = 'new'
                           AND waiting.not_before >= :newest AND waiting.not_before <= tidemill_now()
                           AND waiting.commit_seq < :write_pointer
                           AND waiting.failures BETWEEN :from_failures AND :to_failures
                           AND (SELECT 1 FROM consumer_work AS held {indexed_by:consumer_work_held}
                                 WHERE held.consumer_id = :consumer_id AND held.partition_key = waiting.partition_key
                                   AND held.state = 'in_progress' LIMIT 1) IS NULL
                         ORDER BY waiting.not_before, waiting.write_pointer
                         LIMIT :most) AS next
                 UNION ALL
                SELECT newest.partition_key, -newest.write_pointer AS place
                  FROM (SELECT waiting.partition_key, waiting.write_pointer
                          FROM consumer_work AS waiting {indexed_by:consumer_work_new}
                         WHERE :newest = 1 AND waiting.consumer_id = :consumer_id AND waiting.state = 'new'
                           AND waiting.not_before = 0
                           AND waiting.commit_seq < :write_pointer
                           AND waiting.failures BETWEEN :from_failures AND :to_failures
                           AND (SELECT 1 FROM consumer_work AS held {indexed_by:consumer_work_held}
                                 WHERE held.consumer_id = :consumer_id AND held.partition_key = waiting.partition_key
                                   AND held.state = 'in_progress' LIMIT 1) IS NULL
                         ORDER BY waiting.write_pointer DESC
                         LIMIT :most) AS newest) AS first
         GROUP BY first.partition_key) AS wanted
 CROSS JOIN consumer_work AS work {indexed_by:consumer_work_key}
 WHERE work.partition_key = wanted.partition_key AND work.consumer_id = :consumer_id
   AND work.state = 'new' AND work.commit_seq < :write_pointer
 ORDER BY wanted.place, work.partition_key, work.commit_seq

-- name: find_repeated
-- gives: partition_key
-- Of the oldest waiting row of each key: whether it follows one that this consumer has consumed since the key was last
-- dropped: a partition that is created again is new. A row that was offered before (it failed, or was requeued) has an
-- error, and passes. The nearest earlier change is looked at first, and the search ends at the last drop.
SELECT offered.partition_key
  FROM {rows:offered(partition_key text, write_pointer bigint)} AS offered
 CROSS JOIN consumer_work AS work
 WHERE work.consumer_id = :consumer_id AND work.write_pointer = offered.write_pointer
   AND work.partition_key = offered.partition_key AND work.error IS NULL
   AND (SELECT earlier.op FROM partition_change AS earlier
         WHERE earlier.dataset_id = :dataset_id AND earlier.partition_key = offered.partition_key
           AND earlier.commit_seq < work.commit_seq
           AND (earlier.op = 'drop'
                OR (SELECT 1 FROM consumer_work AS done
                     WHERE done.consumer_id = :consumer_id AND done.write_pointer = earlier.write_pointer
                       AND done.partition_key = offered.partition_key
                       AND done.state = 'completed' AND done.error IS NULL) IS NOT NULL)
         ORDER BY earlier.commit_seq DESC LIMIT 1) <> 'drop'

-- name: find_offered
-- gives: partition_key
-- The partitions of one transaction that a take would offer: not those that a run has skipped as its own, and, unless
-- :repeats, not those of which the consumer has consumed something since the last drop. The nearest earlier change that
-- says so is looked at first.
SELECT change.partition_key
  FROM partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.write_pointer = :write_pointer AND change.delivers = 1
   AND (SELECT 1 FROM consumer_work AS own
         WHERE own.consumer_id = :consumer_id AND own.write_pointer = change.write_pointer
           AND own.partition_key = change.partition_key AND own.run_id = change.run_id) IS NULL
   AND (:repeats = 1
        OR coalesce((SELECT before.op FROM partition_change AS before
                      WHERE before.dataset_id = change.dataset_id AND before.partition_key = change.partition_key
                        AND before.commit_seq < change.commit_seq
                        AND (before.op = 'drop'
                             OR (SELECT 1 FROM consumer_work AS done
                                  WHERE done.consumer_id = :consumer_id AND done.write_pointer = before.write_pointer
                                    AND done.partition_key = change.partition_key
                                    AND done.state = 'completed' AND done.error IS NULL) IS NOT NULL)
                      ORDER BY before.commit_seq DESC LIMIT 1), 'drop') = 'drop')

-- name: claim
-- locks: consumer_work
-- The key's three columns as one value: each row is found by it. (As a join SQLite compares all that is new with all
-- that is claimed.)
UPDATE consumer_work SET state = 'in_progress', run_id = :run_id, epoch = :epoch
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT CAST(:consumer_id AS TEXT), claims.write_pointer, claims.partition_key
          FROM {rows:claims(write_pointer bigint, partition_key text)} AS claims)
   AND run_id IS NULL

-- name: close
-- locks: consumer_work
-- What a take finds and does not deliver.
UPDATE consumer_work SET state = :state, run_id = :run_id, epoch = :epoch, error = :error
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT CAST(:consumer_id AS TEXT), closed.write_pointer, closed.partition_key
          FROM {rows:closed(write_pointer bigint, partition_key text)} AS closed)
   AND run_id IS NULL

-- name: find_claims
-- gives: consumer_id, failures, partition_key, write_pointer, commit_seq, op, location, manifest, existed
-- What a run holds, with the content to deliver, and whether the key had been there before.
SELECT work.consumer_id, work.failures, change.partition_key, change.write_pointer, change.commit_seq, change.op,
       change.location, change.manifest,
       coalesce((SELECT CASE WHEN earlier.op = 'drop' THEN 0 ELSE 1 END FROM partition_change AS earlier
                  WHERE earlier.dataset_id = change.dataset_id AND earlier.partition_key = change.partition_key
                    AND earlier.commit_seq < change.commit_seq
                  ORDER BY earlier.commit_seq DESC LIMIT 1), 0) AS existed
  FROM consumer_work AS work
  JOIN consumer ON consumer.consumer_id = work.consumer_id
  JOIN partition_change AS change
    ON change.dataset_id = consumer.dataset_id AND change.write_pointer = work.write_pointer
   AND change.partition_key = work.partition_key
 WHERE work.run_id = :run_id AND work.state = 'in_progress'
 ORDER BY work.consumer_id, change.partition_key, change.commit_seq
