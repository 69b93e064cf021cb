-- name: insert_backfill
INSERT INTO backfill (backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state,
                      concurrency, priority, quiet, actor, waiting, created_at)
VALUES (:backfill_id, :program_id, :namespace, :item_kind, :takes_all, :choice, :dataset_id, :arguments, 'RUNNING',
        :concurrency, :priority, :quiet, :actor, :waiting, tidemill_now())

-- name: insert_items
INSERT INTO backfill_item (backfill_id, no, item)
SELECT :backfill_id, r.no, r.item FROM {rows:items(no bigint, item text)} AS r

-- name: find_due
-- gives: backfill_id
-- A backfill with an item whose run has ended, or whose last advance left off within its items. Cost: the items whose
-- runs have not ended.
SELECT due.backfill_id
  FROM (SELECT item.backfill_id FROM backfill_item AS item {indexed_by:backfill_item_running}
         WHERE item.state = 'RUNNING'
           AND (SELECT 1 FROM run WHERE run.run_id = item.run_id AND run.ended_at IS NULL) IS NULL
         UNION ALL
        SELECT backfill_id FROM backfill {indexed_by:backfill_unfilled}
         WHERE state = 'RUNNING' AND waiting > 0 AND running < concurrency) AS due
 LIMIT 1

-- name: list_due
-- gives: backfill_id
-- Cost: as find_due.
SELECT item.backfill_id FROM backfill_item AS item {indexed_by:backfill_item_running}
 WHERE item.state = 'RUNNING'
   AND (SELECT 1 FROM run WHERE run.run_id = item.run_id AND run.ended_at IS NULL) IS NULL
 UNION
SELECT backfill_id FROM backfill {indexed_by:backfill_unfilled}
 WHERE state = 'RUNNING' AND waiting > 0 AND running < concurrency
 ORDER BY backfill_id

-- name: lock_backfill
-- gives: backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason, concurrency,
--   priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
-- locks: backfill
SELECT backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason,
       concurrency, priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
  FROM backfill WHERE backfill_id = :backfill_id {for_update}

-- name: list_ended
-- gives: no, run_id, state, exit_reason
-- The running items whose runs have ended. A run that is not there any more has no state.
SELECT item.no, item.run_id, run.state, run.exit_reason
  FROM backfill_item AS item {indexed_by:backfill_item_state} LEFT JOIN run ON run.run_id = item.run_id
 WHERE item.backfill_id = :backfill_id AND item.state = 'RUNNING' AND (run.run_id IS NULL OR run.ended_at IS NOT NULL)

-- name: list_next
-- gives: no, item
SELECT no, item FROM backfill_item {indexed_by:backfill_item_state}
 WHERE backfill_id = :backfill_id AND state = 'WAITING' AND no > :after ORDER BY no LIMIT :most

-- name: list_running
-- gives: run_id
SELECT run_id FROM backfill_item {indexed_by:backfill_item_state}
 WHERE backfill_id = :backfill_id AND state = 'RUNNING' ORDER BY no

-- name: list_open_items
-- gives: item, state
-- Cost: the backfills of the program, and the items.
SELECT item.item, item.state
  FROM backfill {indexed_by:backfill_program}
  JOIN backfill_item AS item {indexed_by:backfill_item_state} ON item.backfill_id = backfill.backfill_id
 WHERE backfill.program_id = :program_id AND backfill.ended_at IS NULL
   AND coalesce(backfill.dataset_id, '') = :dataset_id AND item.state IN ('WAITING', 'RUNNING')

-- name: store_items
-- locks: backfill_item, at slot_limit
-- Items change under the lock of their backfill, which the transaction holds.
UPDATE backfill_item SET state = r.state, run_id = coalesce(r.run_id, backfill_item.run_id), why = r.why
  FROM {rows:items(backfill_id text, no bigint, state text, run_id text, why text)} AS r
 WHERE backfill_item.backfill_id = r.backfill_id AND backfill_item.no = r.no

-- name: move_items
-- locks: backfill_item
-- Before the runs of these items are made, which locks their data sets. The items of `but` stay as they are.
UPDATE backfill_item {indexed_by:backfill_item_state} SET state = :after, why = ''
 WHERE backfill_id = :backfill_id AND state = :before AND no NOT IN ({ints:but})

-- name: store_backfill
-- locks: backfill, at slot_limit
UPDATE backfill
   SET state = :state, reason = :reason, waiting = :waiting, running = :running, done = :done, failed = :failed,
       dropped = :dropped,
       ended_at = CASE WHEN :over = 0 THEN NULL ELSE coalesce(ended_at, tidemill_now()) END
 WHERE backfill_id = :backfill_id

-- name: find_backfill
-- gives: backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason, concurrency,
--   priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
SELECT backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason,
       concurrency, priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
  FROM backfill WHERE backfill_id = :backfill_id

-- name: list_newest
-- gives: backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason, concurrency,
--   priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
SELECT backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason,
       concurrency, priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
  FROM backfill {indexed_by:backfill_created}
 WHERE (created_at, backfill_id) < (:created_before, :before)
 ORDER BY created_at DESC, backfill_id DESC LIMIT :most

-- name: list_of_program
-- gives: backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason, concurrency,
--   priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
-- Cost: with a state also the other backfills of the program.
SELECT backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason,
       concurrency, priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
  FROM backfill {indexed_by:backfill_program}
 WHERE program_id = :program_id AND (created_at, backfill_id) < (:created_before, :before)
   AND (:state = '' OR state = :state)
 ORDER BY created_at DESC, backfill_id DESC LIMIT :most

-- name: list_of_namespace
-- gives: backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason, concurrency,
--   priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
-- Cost: with a state also the other backfills of the namespace.
SELECT backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason,
       concurrency, priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
  FROM backfill {indexed_by:backfill_namespace}
 WHERE namespace = :namespace AND (created_at, backfill_id) < (:created_before, :before)
   AND (:state = '' OR state = :state)
 ORDER BY created_at DESC, backfill_id DESC LIMIT :most

-- name: list_in_state
-- gives: backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason, concurrency,
--   priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
SELECT backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state, reason,
       concurrency, priority, quiet, actor, waiting, running, done, failed, dropped, created_at, ended_at
  FROM backfill {indexed_by:backfill_state}
 WHERE state = :state AND (created_at, backfill_id) < (:created_before, :before)
 ORDER BY created_at DESC, backfill_id DESC LIMIT :most

-- name: list_items
-- gives: no, item, state, run_id, why
SELECT no, item, state, run_id, why FROM backfill_item
 WHERE backfill_id = :backfill_id AND no > :after ORDER BY no LIMIT :most

-- name: list_items_in_state
-- gives: no, item, state, run_id, why
SELECT no, item, state, run_id, why FROM backfill_item {indexed_by:backfill_item_state}
 WHERE backfill_id = :backfill_id AND state = :state AND no > :after ORDER BY no LIMIT :most
