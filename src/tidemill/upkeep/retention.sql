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
-- in each state, stays, but for replays: triggers and lists look at it. So does a run that has not ended, has a
-- transaction at or above the horizon, or is a failed workflow that holds claims. A run of a node stays as long as each
-- workflow that has the node; a workflow that was resumed shares nodes with the run that goes on. Runs that constraints
-- count stay too (facts.sql): the last success that is no backfill's, and launches in the longest window. So do runs that
-- alerts count (conditions.sql): the last success, failures since, and the times of programs in :timed.
SELECT run.run_id, run.created_at,
       CASE WHEN run.ended_at < :before
             AND (SELECT 1 FROM tx
                   WHERE tx.run_id = run.run_id AND (tx.state = 'in_progress' OR tx.commit_seq > :seq) LIMIT 1) IS NULL
             AND coalesce((SELECT later.run_id FROM run AS later {indexed_by:run_ended_of_program}
                            WHERE later.program_id = run.program_id AND later.state = run.state
                              AND later.state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')
                              AND later.replay_of IS NULL
                            ORDER BY later.created_at DESC, later.run_id DESC LIMIT 1), '') <> run.run_id
             AND coalesce((SELECT later.run_id FROM run AS later {indexed_by:run_schedule}
                            WHERE later.schedule_id = run.schedule_id
                            ORDER BY later.created_at DESC LIMIT 1), '') <> run.run_id
             AND (run.backfill_id IS NOT NULL
                  OR run.created_at <= tidemill_now() - coalesce((SELECT max(counted.length) FROM start_window AS counted
                                                                   WHERE counted.program_id = run.program_id), 0))
             AND (run.state <> 'COMPLETED'
                  OR (coalesce((SELECT last.run_id FROM run AS last {indexed_by:run_own_success}
                                 WHERE last.program_id = run.program_id AND last.state = 'COMPLETED'
                                   AND last.backfill_id IS NULL AND coalesce(last.exit_reason, '') <> 'sandbox'
                                 ORDER BY last.ended_at DESC LIMIT 1), '') <> run.run_id
                      AND coalesce((SELECT last.run_id FROM run AS last {indexed_by:run_success}
                                     WHERE last.program_id = run.program_id AND last.state = 'COMPLETED'
                                       AND last.replay_of IS NULL
                                     ORDER BY last.ended_at DESC LIMIT 1), '') <> run.run_id
                      AND (run.replay_of IS NOT NULL OR coalesce(run.program_id, '') NOT IN ({texts:timed})
                           OR run.ended_at < coalesce((SELECT later.ended_at FROM run AS later {indexed_by:run_success}
                                                        WHERE later.program_id = run.program_id
                                                          AND later.state = 'COMPLETED'
                                                          AND later.started_at IS NOT NULL AND later.replay_of IS NULL
                                                        ORDER BY later.ended_at DESC LIMIT 1 OFFSET :other_times), 0))))
             AND (run.state <> 'FAILED' OR run.replay_of IS NOT NULL OR run.program_id IS NULL
                  OR (SELECT 1 FROM run AS success {indexed_by:run_success}
                       WHERE success.program_id = run.program_id AND success.state = 'COMPLETED'
                         AND success.ended_at > run.ended_at AND success.replay_of IS NULL LIMIT 1) = 1
                  OR run.ended_at < coalesce((SELECT later.ended_at FROM run AS later {indexed_by:run_failure}
                                               WHERE later.program_id = run.program_id AND later.state = 'FAILED'
                                                 AND later.replay_of IS NULL
                                               ORDER BY later.ended_at DESC LIMIT 1 OFFSET :other_failures), 0))
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

-- name: find_past_input
-- gives: commit_seq
-- The first commit of which an input of a worker is left.
SELECT min(commit_seq) AS commit_seq FROM run_input {indexed_by:run_input_of_worker} WHERE commit_seq IS NOT NULL

-- name: delete_past_inputs
-- A part of what workers have taken up to a commit. A worker may go on for years, and take millions of partitions.
DELETE FROM run_input
 WHERE (run_id, dataset_id, write_pointer, item, content_version) IN
       (SELECT run_id, dataset_id, write_pointer, item, content_version FROM run_input {indexed_by:run_input_of_worker}
         WHERE commit_seq IS NOT NULL AND commit_seq <= :seq ORDER BY commit_seq LIMIT :most)

-- name: list_workers
-- gives: run_id
-- The runs of workers that have not ended. A worker may commit for years.
SELECT slot.run_id FROM worker CROSS JOIN slot WHERE slot.limit_key = 'program:' || worker.program_id

-- name: list_past_transactions
-- gives: write_pointer, may_go
-- A part of the old transactions of a run that goes on, in order. A change or compaction keeps its transaction. The
-- last transaction of the run stays too: audits compare the two.
SELECT tx.write_pointer,
       CASE WHEN tx.state <> 'in_progress' AND tx.ended_at < :before AND coalesce(tx.commit_seq <= :seq, TRUE)
             AND (SELECT 1 FROM run WHERE run.run_id = tx.run_id AND run.write_pointer = tx.write_pointer) IS NULL
             AND (SELECT 1 FROM partition_change AS change WHERE change.write_pointer = tx.write_pointer LIMIT 1) IS NULL
             AND (SELECT 1 FROM compaction AS merged WHERE merged.write_pointer = tx.write_pointer LIMIT 1) IS NULL
            THEN 1 ELSE 0 END AS may_go
  FROM tx {indexed_by:tx_run}
 WHERE tx.run_id = :run_id AND tx.write_pointer > :after AND tx.write_pointer < :seq
 ORDER BY tx.write_pointer LIMIT :most

-- name: delete_past_transactions
-- locks: tx
DELETE FROM tx WHERE write_pointer IN ({ints:pointers}) AND state <> 'in_progress'

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
-- The last fire of each trigger stays: a changed schedule goes on behind it. So do the fires of an open job: a backfill
-- would process them a second time.
SELECT fire.schedule_id, fire.generation, fire.trigger_no, fire.fire_time
  FROM fire {indexed_by:fire_by_time}
 WHERE fire.fire_time >= :after AND fire.fire_time < :before
   AND fire.fire_time < (SELECT max(later.fire_time) FROM fire AS later
                          WHERE later.schedule_id = fire.schedule_id
                            AND later.generation = fire.generation AND later.trigger_no = fire.trigger_no)
   AND (SELECT 1 FROM job WHERE job.job_id = fire.job_id) IS NULL
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

-- name: read_histories
-- gives: partition_key, write_pointer, may_go
-- The oldest change of each partition, and so many others. A change may go when it was replaced before the horizon, its
-- files are deleted, and no input of a run, no claim and no consumer needs it. By the change that gave a window its rows
-- a window program finds the rows, though others of the partition were computed again since: it stays while the partition
-- is there. The change before a live one stays: it tells a consumer
-- that the partition was there before. So does what a consumer has consumed last of a partition that is still there.
SELECT change.partition_key, change.write_pointer,
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
             AND ((SELECT 1 FROM window_result AS computed {indexed_by:window_result_written}
                    WHERE computed.write_pointer = change.write_pointer LIMIT 1) IS NULL
                  OR (SELECT 1 FROM partition_change AS live {indexed_by:partition_current}
                       WHERE live.dataset_id = change.dataset_id AND live.partition_key = change.partition_key
                         AND live.superseded_seq IS NULL AND live.op <> 'drop' LIMIT 1) IS NULL)
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
  FROM {rows:keys(partition_key text)} AS r CROSS JOIN partition_change AS change {indexed_by:partition_history}
 WHERE change.dataset_id = :dataset_id AND change.partition_key = r.partition_key
   AND change.commit_seq <= coalesce((SELECT newest.commit_seq
                                        FROM partition_change AS newest {indexed_by:partition_history}
                                       WHERE newest.dataset_id = :dataset_id AND newest.partition_key = r.partition_key
                                       ORDER BY newest.commit_seq LIMIT 1 OFFSET :others), 2305843009213693952)
 ORDER BY change.partition_key, change.commit_seq

-- name: delete_changes
-- Never what is current: only what was replaced expires.
DELETE FROM partition_change
 WHERE dataset_id = :dataset_id AND partition_key = :partition_key AND write_pointer IN ({ints:pointers})
   AND expired_at IS NOT NULL

-- name: delete_ended_transactions
-- locks: tx
-- The transactions of deleted changes and compactions, once their runs are deleted and nothing else is left of them.
DELETE FROM tx
 WHERE write_pointer IN ({ints:pointers}) AND state <> 'in_progress'
   AND (SELECT 1 FROM run WHERE run.run_id = tx.run_id) IS NULL
   AND (SELECT 1 FROM partition_change AS change WHERE change.write_pointer = tx.write_pointer LIMIT 1) IS NULL
   AND (SELECT 1 FROM compaction AS merged WHERE merged.write_pointer = tx.write_pointer LIMIT 1) IS NULL

-- name: list_compacted
-- gives: dataset_id, horizon
-- The file sets, dropped ones too, that may have compactions to delete.
SELECT own.dataset_id, own.horizon FROM dataset AS own
 WHERE own.kind = 'fileset'
   AND (SELECT min(superseded_seq) FROM compaction {indexed_by:compaction_superseded}
         WHERE compaction.dataset_id = own.dataset_id AND superseded_seq IS NOT NULL) <= :seq
 ORDER BY own.dataset_id

-- name: list_old_compactions
-- gives: write_pointer, partition_key
-- Compactions of which no file is left. No reader sees them any more, and no consumer reads a compaction.
SELECT merged.write_pointer, merged.partition_key
  FROM compaction AS merged {indexed_by:compaction_superseded}
 WHERE merged.dataset_id = :dataset_id AND merged.superseded_seq <= :bound AND merged.expired_at IS NOT NULL
   AND (SELECT 1 FROM garbage
         WHERE garbage.location = merged.dataset_id || '/' || merged.location || ' '
                                  || CAST(merged.write_pointer AS TEXT) || ' ' || merged.partition_key) IS NULL
 LIMIT :most

-- name: delete_compactions
-- Never what is current: only what was replaced expires.
DELETE FROM compaction
 WHERE (dataset_id, write_pointer, partition_key) IN
       (SELECT CAST(:dataset_id AS TEXT), r.write_pointer, r.partition_key
          FROM {rows:compactions(write_pointer bigint, partition_key text)} AS r)
   AND expired_at IS NOT NULL

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
