-- name: lock_consumers
-- gives: consumer_id
-- locks: consumer
SELECT consumer_id FROM consumer WHERE consumer_id IN ({texts:ids}) ORDER BY consumer_id {for_update}

-- name: publish_backlog
-- locks: nothing, at consumer
-- One message for each consumer that has work which a run could claim now. After lock_consumers: each take under way
-- has ended, and this statement sees the work that the take did not claim.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq})
           + row_number() OVER (ORDER BY consumer.consumer_id) - 1,
       tidemill_now(), 'backlog', 'backlog:' || dataset.namespace || '.' || dataset.name,
       '{"consumer":"' || consumer.name || '"' || CAST(:heard_by AS TEXT) || '}'
  FROM consumer JOIN dataset ON dataset.dataset_id = consumer.dataset_id
 WHERE consumer.consumer_id IN ({texts:ids})
   AND EXISTS (SELECT 1 FROM consumer_work AS work
                WHERE work.consumer_id = consumer.consumer_id AND work.state = 'new'
                  AND work.not_before <= tidemill_now()
                  AND NOT EXISTS (SELECT 1 FROM consumer_work AS held
                                   WHERE held.consumer_id = work.consumer_id
                                     AND held.partition_key = work.partition_key
                                     AND held.state = 'in_progress'))

-- name: note_unseen
-- locks: nothing, at consumer
-- The first change that no take has seen becomes a row of the working set, one from each of the two ranges: so that it
-- counts as work left. The state stays: the next take goes over the same ranges, and finds the row there. (With the
-- consumer joined in the first range, PostgreSQL read all changes for its few.) Of a followed snapshot: the version that
-- the feed has not reached. Versions do not deliver, so that each data set has rows in its own ranges only.
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state)
SELECT CAST(:id AS TEXT), unread.write_pointer, unread.partition_key, unread.commit_seq, 'new'
  FROM (SELECT began_since.write_pointer, began_since.partition_key, began_since.commit_seq
          FROM (SELECT change.write_pointer, change.partition_key, change.commit_seq
                  FROM partition_change AS change
                 WHERE change.dataset_id = (SELECT dataset_id FROM consumer WHERE consumer_id = :id)
                   AND change.write_pointer >= (SELECT start_version FROM consumer WHERE consumer_id = :id)
                   AND change.delivers = 1
                   AND NOT EXISTS (SELECT 1 FROM consumer_work AS known
                                    WHERE known.consumer_id = :id
                                      AND known.write_pointer = change.write_pointer
                                      AND known.partition_key = change.partition_key)
                 ORDER BY change.write_pointer, change.partition_key LIMIT 1) AS began_since
         UNION ALL
        SELECT late.write_pointer, late.partition_key, late.commit_seq
          FROM (SELECT change.write_pointer, change.partition_key, change.commit_seq
                  FROM consumer CROSS JOIN partition_change AS change
                 WHERE consumer.consumer_id = :id AND change.dataset_id = consumer.dataset_id
                   AND change.write_pointer IN ({ints:consumer.versions_to_check}) AND change.delivers = 1
                   AND NOT EXISTS (SELECT 1 FROM consumer_work AS known
                                    WHERE known.consumer_id = :id
                                      AND known.write_pointer = change.write_pointer
                                      AND known.partition_key = change.partition_key)
                 ORDER BY change.write_pointer, change.partition_key LIMIT 1) AS late
         UNION ALL
        SELECT change.write_pointer, change.partition_key, change.commit_seq
          FROM consumer CROSS JOIN dataset CROSS JOIN partition_change AS change {indexed_by:version_current}
         WHERE consumer.consumer_id = :id AND dataset.dataset_id = consumer.dataset_id AND dataset.kind = 'snapshot'
           AND change.dataset_id = dataset.dataset_id AND change.partition_key = '' AND change.superseded_seq IS NULL
           AND change.commit_seq >= consumer.start_version) AS unread
 WHERE true
    ON CONFLICT (consumer_id, write_pointer, partition_key) DO NOTHING

-- name: postpone
-- locks: consumer_work
-- wakes: time
-- One row with a time is enough: the keeper then announces the consumer. A take may claim the other rows at once. The
-- wait is as long as the change has waited so far. So the waits double without a counter. (As NOT EXISTS, PostgreSQL
-- read all held rows.)
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
         WHERE waiting.consumer_id = :id AND waiting.state = 'new' AND waiting.not_before <= tidemill_now()
           AND (SELECT 1 FROM consumer_work AS held {indexed_by:consumer_work_held}
                 WHERE held.consumer_id = :id AND held.partition_key = waiting.partition_key
                   AND held.state = 'in_progress' LIMIT 1) IS NULL
         ORDER BY waiting.not_before, waiting.write_pointer LIMIT 1)

-- name: find_next_due
-- gives: due_at
SELECT min(not_before) AS due_at FROM consumer_work WHERE state = 'new' AND not_before > 0

-- name: find_due
-- gives: consumer_id
SELECT DISTINCT consumer_id FROM consumer_work
 WHERE state = 'new' AND not_before > 0 AND not_before <= tidemill_now()

-- name: clear_due
-- locks: consumer_work
-- So that the keeper announces them once.
UPDATE consumer_work SET not_before = 0
 WHERE state = 'new' AND not_before > 0 AND not_before <= tidemill_now() AND consumer_id IN ({texts:ids})
