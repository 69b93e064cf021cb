-- name: read_deleted
-- gives: deleted
SELECT deleted FROM retention WHERE id = 1

-- name: store_deleted
UPDATE retention SET deleted = :deleted WHERE id = 1

-- name: move_horizon
-- The horizon before becomes the bound of deletions: audits that began before have ended since. Of two janitors one
-- moves. The horizon never goes back, though the commits by which it is found are deleted behind it.
INSERT INTO retention (id, seq, at, moved_at, tick, delete_seq, delete_at)
VALUES (1, :seq, :at, tidemill_now(), {commit_seq}, 0, 0)
    ON CONFLICT (id) DO UPDATE
   SET delete_seq = retention.seq, delete_at = retention.at,
       seq = CASE WHEN retention.seq < excluded.seq THEN excluded.seq ELSE retention.seq END,
       at = CASE WHEN retention.at < excluded.at THEN excluded.at ELSE retention.at END,
       moved_at = excluded.moved_at, tick = excluded.tick
 WHERE retention.moved_at = :moved_at

-- name: list_old_runs
-- gives: run_id, created_at, may_go
-- A part of the runs that were made before a time, oldest first. The newest run of each schedule, and of each program
-- in each state, stays: triggers, constraints, alerts and lists look at it. So does a run that has not ended, has a
-- transaction at or above the horizon, or is a failed workflow that holds claims. A run of a node stays as long as each
-- workflow that has the node; a workflow that was resumed shares nodes with the run that goes on.
SELECT run.run_id, run.created_at,
       CASE WHEN run.ended_at < :before
             AND (SELECT 1 FROM tx
                   WHERE tx.run_id = run.run_id AND (tx.state = 'in_progress' OR tx.commit_seq > :seq) LIMIT 1) IS NULL
             AND coalesce((SELECT later.run_id FROM run AS later {indexed_by:run_ended_of_program}
                            WHERE later.program_id = run.program_id AND later.state = run.state
                              AND later.state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')
                            ORDER BY later.created_at DESC, later.run_id DESC LIMIT 1), '') <> run.run_id
             AND coalesce((SELECT later.run_id FROM run AS later {indexed_by:run_schedule}
                            WHERE later.schedule_id = run.schedule_id
                            ORDER BY later.created_at DESC LIMIT 1), '') <> run.run_id
             AND (SELECT 1 FROM workflow_run
                   WHERE workflow_run.run_id = run.run_id AND workflow_run.holds_until IS NOT NULL) IS NULL
             AND (SELECT 1 FROM workflow_node WHERE workflow_node.run_id = run.run_id LIMIT 1) IS NULL
            THEN 1 ELSE 0 END AS may_go
  FROM run {indexed_by:run_created}
 WHERE (run.created_at, run.run_id) > (:created_after, :after) AND run.created_at < :before
 ORDER BY run.created_at, run.run_id LIMIT :most

-- name: delete_transactions
-- locks: tx
-- Transactions that published nothing, or whose changes were deleted. A change or compaction keeps its transaction.
DELETE FROM tx
 WHERE run_id IN ({texts:runs}) AND state <> 'in_progress'
   AND (SELECT 1 FROM partition_change AS change WHERE change.write_pointer = tx.write_pointer LIMIT 1) IS NULL
   AND (SELECT 1 FROM compaction AS merged WHERE merged.write_pointer = tx.write_pointer LIMIT 1) IS NULL

-- name: delete_inputs
DELETE FROM run_input WHERE run_id IN ({texts:runs})

-- name: delete_workflow_nodes
DELETE FROM workflow_node WHERE workflow_id IN ({texts:runs})

-- name: delete_workflows
DELETE FROM workflow_run WHERE run_id IN ({texts:runs})

-- name: delete_runs
-- locks: run
DELETE FROM run WHERE run_id IN ({texts:runs}) AND ended_at IS NOT NULL

-- name: list_old_jobs
-- gives: job_id, created_at, may_go
-- Ids are in about the order of time. A job stays as long as its run.
SELECT job.job_id, job.created_at,
       CASE WHEN job.ended_at < :before AND (SELECT 1 FROM run WHERE run.run_id = job.run_id) IS NULL
            THEN 1 ELSE 0 END AS may_go
  FROM job_history AS job
 WHERE job.job_id > :after
 ORDER BY job.job_id LIMIT :most

-- name: delete_jobs
DELETE FROM job_history WHERE job_id IN ({texts:jobs})

-- name: list_old_fires
-- gives: schedule_id, generation, trigger_no, fire_time
-- The last fire of each trigger stays: a changed schedule goes on behind it.
SELECT fire.schedule_id, fire.generation, fire.trigger_no, fire.fire_time
  FROM fire {indexed_by:fire_by_time}
 WHERE fire.fire_time >= :after AND fire.fire_time < :before
   AND fire.fire_time < (SELECT max(later.fire_time) FROM fire AS later
                          WHERE later.schedule_id = fire.schedule_id
                            AND later.generation = fire.generation AND later.trigger_no = fire.trigger_no)
 ORDER BY fire.fire_time LIMIT :most

-- name: delete_fires
-- locks: fire
DELETE FROM fire WHERE (schedule_id, generation, trigger_no, fire_time) IN (
    SELECT r.schedule_id, r.generation, r.trigger_no, r.fire_time
      FROM {rows:fires(schedule_id text, generation bigint, trigger_no bigint, fire_time bigint)} AS r)

-- name: list_histories
-- gives: dataset_id, dropped_at
-- The data sets, dropped ones too, whose history may have something to delete.
SELECT own.dataset_id, own.dropped_at FROM dataset AS own
 WHERE own.kind <> 'inbox'
   AND (SELECT min(superseded_seq) FROM partition_change {indexed_by:partition_superseded}
         WHERE partition_change.dataset_id = own.dataset_id AND superseded_seq IS NOT NULL) <= :seq
 ORDER BY own.dataset_id

-- name: list_positions
-- gives: consumer_id, start_version, versions_to_check
SELECT consumer_id, start_version, versions_to_check FROM consumer WHERE dataset_id = :dataset_id

-- name: find_least_seen
-- gives: seq
-- The commit up to which each window program has seen the changes of a data set.
SELECT min(program.seen) AS seq
  FROM window_input AS input JOIN window_program AS program ON program.program_id = input.program_id
 WHERE input.dataset_id = :dataset_id

-- name: list_old_changes
-- gives: superseded_seq, partition_key
SELECT superseded_seq, partition_key FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq > :after AND superseded_seq <= :bound
 ORDER BY superseded_seq

-- name: find_bound
-- gives: seq
-- The commit at which a part of about :most changes ends.
SELECT coalesce((SELECT superseded_seq FROM partition_change {indexed_by:partition_superseded}
                  WHERE dataset_id = :dataset_id AND superseded_seq > :after AND superseded_seq <= :seq
                  ORDER BY superseded_seq LIMIT 1 OFFSET :most),
                (SELECT max(superseded_seq) FROM partition_change {indexed_by:partition_superseded}
                  WHERE dataset_id = :dataset_id AND superseded_seq > :after AND superseded_seq <= :seq)) AS seq

-- name: read_history
-- gives: write_pointer, may_go
-- The oldest changes of a partition. A change may go when it was replaced before the horizon, its files are deleted,
-- and no input of a run, no claim and no consumer needs it. The change before a live one stays: it tells a consumer
-- that the partition was there before. So does what a consumer has consumed last of a partition that is still there.
SELECT change.write_pointer,
       CASE WHEN coalesce(change.superseded_seq <= :seq, FALSE) AND change.expired_at IS NOT NULL
             AND change.write_pointer < :floor
             AND (change.op = 'drop' OR :is_dropped = 1
                  OR coalesce((SELECT CASE WHEN later.op = 'drop'
                                             OR (later.expired_at IS NOT NULL AND later.superseded_seq <= :seq)
                                           THEN 1 ELSE 0 END
                                 FROM partition_change AS later {indexed_by:partition_history}
                                WHERE later.dataset_id = change.dataset_id
                                  AND later.partition_key = change.partition_key
                                  AND later.commit_seq > change.commit_seq
                                ORDER BY later.commit_seq LIMIT 1), 0) = 1)
             AND (SELECT 1 FROM garbage
                   WHERE garbage.location = change.dataset_id || '/' || change.location || ' '
                                            || CAST(change.write_pointer AS TEXT) || ' ' || change.partition_key) IS NULL
             AND (SELECT 1 FROM run_input AS input {indexed_by:run_input_item}
                   WHERE input.dataset_id = change.dataset_id AND input.item = change.partition_key
                     AND input.write_pointer = change.write_pointer LIMIT 1) IS NULL
             AND (SELECT 1 FROM consumer CROSS JOIN consumer_work AS work
                   WHERE consumer.dataset_id = change.dataset_id AND work.consumer_id = consumer.consumer_id
                     AND work.write_pointer = change.write_pointer AND work.partition_key = change.partition_key
                     AND (work.state IN ('new', 'in_progress')
                          OR (work.state = 'discarded' AND work.reported_by IS NULL)
                          OR (work.error IS NULL AND change.op <> 'drop' AND :is_dropped = 0
                              AND (SELECT 1 FROM partition_change AS later {indexed_by:partition_history}
                                    WHERE later.dataset_id = change.dataset_id
                                      AND later.partition_key = change.partition_key
                                      AND later.commit_seq > change.commit_seq
                                      AND (later.op = 'drop'
                                           OR (SELECT 1 FROM consumer_work AS done
                                                WHERE done.consumer_id = work.consumer_id
                                                  AND done.write_pointer = later.write_pointer
                                                  AND done.partition_key = later.partition_key
                                                  AND done.state = 'completed' AND done.error IS NULL) IS NOT NULL)
                                    LIMIT 1) IS NULL))
                   LIMIT 1) IS NULL
            THEN 1 ELSE 0 END AS may_go
  FROM partition_change AS change {indexed_by:partition_history}
 WHERE change.dataset_id = :dataset_id AND change.partition_key = :partition_key
 ORDER BY change.commit_seq LIMIT :most

-- name: delete_changes
-- Never what is current: only what was replaced expires.
DELETE FROM partition_change
 WHERE dataset_id = :dataset_id AND partition_key = :partition_key AND write_pointer IN ({ints:pointers})
   AND expired_at IS NOT NULL

-- name: delete_ended_transactions
-- locks: tx
-- The transactions of deleted changes, once their runs are deleted and nothing else is left of them.
DELETE FROM tx
 WHERE write_pointer IN ({ints:pointers}) AND state <> 'in_progress'
   AND (SELECT 1 FROM run WHERE run.run_id = tx.run_id) IS NULL
   AND (SELECT 1 FROM partition_change AS change WHERE change.write_pointer = tx.write_pointer LIMIT 1) IS NULL
   AND (SELECT 1 FROM compaction AS merged WHERE merged.write_pointer = tx.write_pointer LIMIT 1) IS NULL

-- name: list_past_consumers
-- gives: consumer_id
-- Consumers before their resets.
SELECT consumer_id FROM consumer_reset WHERE dataset_id = :dataset_id

-- name: delete_work
-- locks: consumer_work
DELETE FROM consumer_work
 WHERE (consumer_id, write_pointer, partition_key) IN
       (SELECT r.consumer_id, r.write_pointer, CAST(:partition_key AS TEXT)
          FROM {rows:work(consumer_id text, write_pointer bigint)} AS r)

-- name: find_old_backfill
-- gives: backfill_id
-- The oldest backfill that ended before a time, and of which no run is under way.
SELECT backfill_id FROM backfill {indexed_by:backfill_ended}
 WHERE ended_at < :before AND running = 0 ORDER BY ended_at LIMIT 1

-- name: close_backfill
-- locks: backfill
-- From now on no retry goes on with it, though its items are deleted in parts.
UPDATE backfill SET state = 'CANCELLED' WHERE backfill_id = :backfill_id AND ended_at < :before AND running = 0

-- name: delete_items
-- locks: backfill_item
DELETE FROM backfill_item
 WHERE backfill_id = :backfill_id
   AND no IN (SELECT no FROM backfill_item WHERE backfill_id = :backfill_id ORDER BY no LIMIT :most)

-- name: delete_backfill
-- locks: backfill
-- It goes with the last of its items.
DELETE FROM backfill
 WHERE backfill_id = :backfill_id
   AND (SELECT 1 FROM backfill_item WHERE backfill_id = :backfill_id LIMIT 1) IS NULL
