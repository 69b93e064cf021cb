-- name: list_resets
-- gives: consumer_id, dataset_id, name, start_version, versions_to_check, asked, by, at
SELECT consumer_id, dataset_id, name, start_version, versions_to_check, asked, by_whom AS by, at
  FROM consumer_reset ORDER BY name, dataset_id, reset_seq

-- name: list_resets_of
-- gives: consumer_id, dataset_id, name, start_version, versions_to_check, asked, by, at
SELECT consumer_id, dataset_id, name, start_version, versions_to_check, asked, by_whom AS by, at
  FROM consumer_reset WHERE dataset_id = :dataset_id AND name = :name ORDER BY reset_seq

-- name: refuse_if_gone
-- locks: consumer
-- Locked: a take from the consumer at this moment either ended before this block, or finds the old id gone.
SELECT tidemill_refuse('consumer_moved', CAST(:name AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM consumer WHERE consumer_id = :consumer_id {for_update})

-- name: refuse_if_claimed
SELECT tidemill_refuse('claims_in_progress', CAST(:name AS TEXT),
                       (SELECT run_id FROM consumer_work
                         WHERE consumer_id = :consumer_id AND state = 'in_progress' LIMIT 1))
 WHERE EXISTS (SELECT 1 FROM consumer_work WHERE consumer_id = :consumer_id AND state = 'in_progress')

-- name: keep_past
-- locks: nothing, at consumer
INSERT INTO consumer_reset (consumer_id, dataset_id, name, since_seq, start_version, versions_to_check, to_seq, asked,
                            by_whom, at, reset_seq)
SELECT consumer_id, dataset_id, name, since_seq, start_version, versions_to_check, :since_seq, :asked,
       :by_whom, tidemill_now(), {commit_seq}
  FROM consumer WHERE consumer_id = :consumer_id

-- name: find_reset
-- gives: reset_seq
-- Whether the reset to the new id has happened: that is the consumer now, or was until a later one.
SELECT reset_seq FROM consumer_reset
 WHERE consumer_id = :consumer_id
   AND (EXISTS (SELECT 1 FROM consumer WHERE consumer_id = :new_id)
        OR EXISTS (SELECT 1 FROM consumer_reset AS later WHERE later.consumer_id = :new_id))

-- name: forget_waiting
-- locks: consumer_work
-- Changes that no run has taken. The new start decides which of them are delivered.
DELETE FROM consumer_work WHERE consumer_id = :consumer_id AND state = 'new'

-- name: restart
-- locks: consumer
UPDATE consumer
   SET consumer_id = :new_id, since_seq = :since_seq, start_version = :start_version,
       versions_to_check = :versions_to_check, dropped = 0, revision = revision + 1
 WHERE consumer_id = :consumer_id

-- name: deliver_chosen
-- locks: nothing, at consumer
-- After restart: changes from before the new start, of the partitions that were chosen.
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state)
SELECT CAST(:new_id AS TEXT), change.write_pointer, change.partition_key, change.commit_seq, 'new'
  FROM {rows:chosen(write_pointer bigint, partition_key text)} AS chosen
 CROSS JOIN partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.write_pointer = chosen.write_pointer
   AND change.partition_key = chosen.partition_key AND change.delivers = 1

-- name: find_discarded
-- gives: write_pointer, partition_key
SELECT write_pointer, partition_key FROM consumer_work {indexed_by:consumer_work_discarded}
 WHERE consumer_id = :consumer_id AND state = 'discarded'

-- name: requeue
-- locks: consumer_work
-- The error stays: it says that the partition was offered before.
UPDATE consumer_work SET state = 'new', run_id = NULL, epoch = NULL, failures = 0, not_before = 0, reported_by = NULL
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT CAST(:consumer_id AS TEXT), listed.write_pointer, listed.partition_key
          FROM {rows:discarded(write_pointer bigint, partition_key text)} AS listed)
   AND state = 'discarded'

-- name: drop_consumer
-- locks: consumer
DELETE FROM consumer WHERE consumer_id = :consumer_id
