-- name: put_consumer
-- One that is there keeps its state: only its terms change.
INSERT INTO consumer (consumer_id, dataset_id, name, since_seq, start_version, versions_to_check, spec, attempts,
                      revision)
VALUES (:consumer_id, :dataset_id, :name, :since_seq, :start_version, :versions_to_check, :spec, :attempts, 0)
    ON CONFLICT (dataset_id, name) DO UPDATE SET spec = excluded.spec, attempts = excluded.attempts

-- name: find_consumer
-- gives: consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped
SELECT consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped FROM consumer
 WHERE dataset_id = :dataset_id AND name = :name

-- name: find_readers
-- gives: consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped
-- The consumers of these names, with the data sets that they read: look-ups by name.
SELECT consumer.consumer_id, consumer.dataset_id, consumer.name, consumer.start_version, consumer.versions_to_check,
       consumer.since_seq, consumer.spec, consumer.dropped
  FROM {rows:wanted(namespace text, dataset text, consumer text)} AS wanted
 CROSS JOIN dataset CROSS JOIN consumer
 WHERE dataset.namespace = wanted.namespace AND dataset.name = wanted.dataset AND dataset.dropped_at IS NULL
   AND consumer.dataset_id = dataset.dataset_id AND consumer.name = wanted.consumer

-- name: find_holding
-- gives: consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped
SELECT consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped FROM consumer
 WHERE consumer_id IN (SELECT consumer_id FROM consumer_work WHERE run_id = :run_id AND state = 'in_progress')
 ORDER BY consumer_id

-- name: list_consumers
-- gives: consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped
SELECT consumer_id, dataset_id, name, start_version, versions_to_check, since_seq, spec, dropped FROM consumer
 WHERE (:dataset_id = '' OR dataset_id = :dataset_id) AND (:name = '' OR name = :name)
   AND (name, dataset_id) > (:after_name, :after_dataset)
 ORDER BY name, dataset_id LIMIT :limit

-- name: measure_lag
-- gives: partitions, bytes, oldest
-- What waits in the working set, and what no take has seen: by start_version and versions_to_check, never the history.
-- What was noted as unread, or is a run's own, is in the working set already.
SELECT coalesce(sum(waiting.partitions), 0) AS partitions, coalesce(sum(waiting.bytes), 0) AS bytes,
       min(waiting.oldest) AS oldest
  FROM (SELECT count(*) AS partitions, sum(change.bytes) AS bytes, min(change.at) AS oldest
          FROM consumer_work AS work CROSS JOIN partition_change AS change
         WHERE work.consumer_id = :consumer_id AND work.state = 'new'
           AND change.dataset_id = :dataset_id AND change.write_pointer = work.write_pointer
           AND change.partition_key = work.partition_key
         UNION ALL
        SELECT count(*), sum(bytes), min(at) FROM partition_change AS change
         WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND delivers = 1
           AND (SELECT 1 FROM consumer_work AS known
                 WHERE known.consumer_id = :consumer_id AND known.write_pointer = change.write_pointer
                   AND known.partition_key = change.partition_key) IS NULL
         UNION ALL
        SELECT count(*), sum(bytes), min(at) FROM partition_change AS change
         WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND delivers = 1
           AND (SELECT 1 FROM consumer_work AS known
                 WHERE known.consumer_id = :consumer_id AND known.write_pointer = change.write_pointer
                   AND known.partition_key = change.partition_key) IS NULL) AS waiting

-- name: list_work
-- gives: write_pointer, partition_key, state, failures, not_before, run_id, error
-- Each state has its index; what is completed has none, and is the whole history.
SELECT write_pointer, partition_key, state, failures, nullif(not_before, 0) AS not_before, run_id, error
  FROM consumer_work {indexed_by:consumer_work_new}
 WHERE consumer_id = :consumer_id AND state = 'new' AND :state = 'new'
 UNION ALL
SELECT write_pointer, partition_key, state, failures, nullif(not_before, 0) AS not_before, run_id, error
  FROM consumer_work {indexed_by:consumer_work_held}
 WHERE consumer_id = :consumer_id AND state = 'in_progress' AND :state = 'in_progress'
 UNION ALL
SELECT write_pointer, partition_key, state, failures, nullif(not_before, 0) AS not_before, run_id, error
  FROM consumer_work {indexed_by:consumer_work_discarded}
 WHERE consumer_id = :consumer_id AND state = 'discarded' AND :state = 'discarded'
 ORDER BY write_pointer, partition_key LIMIT :limit

-- name: count_lives
-- gives: lives
SELECT count(*) AS lives FROM consumer_reset WHERE dataset_id = :dataset_id AND name = :name

-- name: count_work
-- gives: in_progress, discarded
-- By the index of each state: never what is completed.
SELECT (SELECT count(*) FROM consumer_work {indexed_by:consumer_work_held}
         WHERE consumer_id = :consumer_id AND state = 'in_progress') AS in_progress,
       (SELECT count(*) FROM consumer_work {indexed_by:consumer_work_discarded}
         WHERE consumer_id = :consumer_id AND state = 'discarded') AS discarded
