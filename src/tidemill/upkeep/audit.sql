-- name: find_bound_of_changes
-- gives: bound
-- Windows are ranges of a key: the bound of the next, or the greatest there is; none when nothing is left.
SELECT coalesce((SELECT write_pointer FROM partition_change
                  WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer < :pointer
                  ORDER BY write_pointer LIMIT 1 OFFSET :place),
                (SELECT max(write_pointer) FROM partition_change
                  WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer < :pointer)) AS bound

-- name: read_changes
-- gives: write_pointer, partition_key, commit_seq, superseded_seq, delivers, mismatch, hidden_seq
-- A window of a file set, with what the transaction says, and when each change had to be superseded: by the next change
-- of its key if that replaces, else together with it; a drop by itself. One look-up each.
SELECT change.write_pointer, change.partition_key, change.commit_seq, change.superseded_seq, change.delivers,
       (SELECT CASE WHEN tx.state = 'committed' AND tx.commit_seq = change.commit_seq THEN ''
                    ELSE tx.state || ' ' || coalesce(CAST(tx.commit_seq AS TEXT), '') END
          FROM tx WHERE tx.write_pointer = change.write_pointer) AS mismatch,
       CASE WHEN change.op = 'drop' THEN change.commit_seq ELSE
       (SELECT CASE WHEN later.op IN ('overwrite', 'drop') THEN later.commit_seq ELSE later.superseded_seq END
          FROM partition_change AS later
         WHERE later.dataset_id = :dataset_id AND later.partition_key = change.partition_key
           AND later.commit_seq > change.commit_seq
         ORDER BY later.commit_seq LIMIT 1) END AS hidden_seq
  FROM partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.write_pointer > :after AND change.write_pointer <= :bound
   AND +change.commit_seq < :pointer
 ORDER BY change.write_pointer, change.partition_key

-- name: deliver_by_pointer
-- gives: write_pointer, partition_key
-- What the seed's consumer gets at a snapshot: the two ranges of consumer.unread_changes, without the content.
SELECT write_pointer, partition_key FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :pointer
   AND +commit_seq < :pointer AND delivers = 1
 UNION ALL
SELECT write_pointer, partition_key FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND +commit_seq < :pointer
   AND delivers = 1

-- name: find_late
-- gives: write_pointer
-- Its in-progress list at that snapshot, from the list of the one before: transactions.find_in_progress gives the same
-- and reads all that came since, which for each snapshot of a long past is the history again and again.
SELECT DISTINCT write_pointer FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :pointer
   AND +commit_seq >= :pointer
 UNION
SELECT DISTINCT write_pointer FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND +commit_seq >= :pointer
 ORDER BY write_pointer

-- name: deliver_by_commit
-- gives: write_pointer, partition_key
-- The same by the index over commit sequences: what committed between two snapshots.
SELECT write_pointer, partition_key FROM partition_change
 WHERE dataset_id = :dataset_id AND commit_seq >= :after AND commit_seq < :pointer AND delivers = 1

-- name: find_untaken
-- gives: write_pointer, partition_key
-- What lies below the state of a consumer, and its working set does not have: only what its list names may be there.
SELECT change.write_pointer, change.partition_key
  FROM partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.write_pointer > :after AND change.write_pointer <= :bound
   AND change.write_pointer < :start_version AND +change.commit_seq < :pointer AND change.delivers = 1
   AND change.commit_seq >= :since_seq
   AND (SELECT 1 FROM consumer_work AS work
         WHERE work.consumer_id = :consumer_id AND work.write_pointer = change.write_pointer
           AND work.partition_key = change.partition_key) IS NULL

-- name: find_bound_of_work
-- gives: bound
SELECT coalesce((SELECT write_pointer FROM consumer_work
                  WHERE consumer_id = :consumer_id AND write_pointer > :after AND write_pointer < :pointer
                  ORDER BY write_pointer LIMIT 1 OFFSET :place),
                (SELECT max(write_pointer) FROM consumer_work
                  WHERE consumer_id = :consumer_id AND write_pointer > :after AND write_pointer < :pointer)) AS bound

-- name: read_work
-- gives: write_pointer, partition_key, commit_seq, state, run_id, error, change_run_id, superseded_seq, has_input, run_state,
--   tx_state, is_freed
-- A window of a working set: each row with its change, and what is known of the run that holds or has completed it.
-- A worker and a workflow complete claims before their end.
SELECT work.write_pointer, work.partition_key, work.commit_seq, work.state, work.run_id, work.error,
       (SELECT change.run_id FROM partition_change AS change
         WHERE change.dataset_id = :dataset_id AND change.write_pointer = work.write_pointer
           AND change.partition_key = work.partition_key) AS change_run_id,
       (SELECT change.superseded_seq FROM partition_change AS change
         WHERE change.dataset_id = :dataset_id AND change.write_pointer = work.write_pointer
           AND change.partition_key = work.partition_key) AS superseded_seq,
       (SELECT 1 FROM run_input AS input
         WHERE input.run_id = work.run_id AND input.dataset_id = :dataset_id
           AND input.write_pointer = work.write_pointer AND input.item = work.partition_key) AS has_input,
       (SELECT CASE WHEN (SELECT 1 FROM workflow_run
                           WHERE workflow_run.run_id = run.run_id AND workflow_run.holding = 'held') IS NOT NULL
                    THEN 'holding' ELSE run.state END
          FROM run WHERE run.run_id = work.run_id) AS run_state,
       (SELECT tx.state FROM tx
         WHERE tx.write_pointer = (SELECT run.write_pointer FROM run WHERE run.run_id = work.run_id)) AS tx_state,
       coalesce((SELECT 1 FROM workflow_run WHERE workflow_run.run_id = work.run_id),
                (SELECT 1 FROM worker
                  WHERE worker.program_id = (SELECT run.program_id FROM run WHERE run.run_id = work.run_id))) AS is_freed
  FROM consumer_work AS work
 WHERE work.consumer_id = :consumer_id AND work.write_pointer > :after AND work.write_pointer <= :bound
 ORDER BY work.write_pointer, work.partition_key

-- name: find_last_runs
-- gives: run_id, input_run_id
-- Where to stop: there may be new ones faster than an audit reads.
SELECT (SELECT max(run_id) FROM run) AS run_id, (SELECT max(run_id) FROM run_input) AS input_run_id

-- name: find_bound_of_inputs
-- gives: bound
SELECT coalesce((SELECT run_id FROM run_input
                  WHERE run_id > :after AND run_id <= :last ORDER BY run_id LIMIT 1 OFFSET :place),
                (SELECT max(run_id) FROM run_input WHERE run_id > :after AND run_id <= :last)) AS bound

-- name: find_unheld_inputs
-- gives: run_id, dataset_id, write_pointer, item, content_version
-- Inputs of runs that neither a working set, also of a consumer before a reset, nor an inbox knows as completed by that
-- very run: another run has completed them too, or none. A file that a person has had
-- delivered again has a record of each earlier run. Of a file that has gone since no row is left. A version of
-- a snapshot may be read by any number.
SELECT input.run_id, input.dataset_id, input.write_pointer, input.item, input.content_version
  FROM run_input AS input
 WHERE input.run_id > :after AND input.run_id <= :bound
   AND (SELECT kind FROM dataset WHERE dataset.dataset_id = input.dataset_id) <> 'snapshot'
   AND (SELECT 1 FROM consumer CROSS JOIN consumer_work AS work
         WHERE consumer.dataset_id = input.dataset_id AND work.consumer_id = consumer.consumer_id
           AND work.write_pointer = input.write_pointer AND work.partition_key = input.item
           AND coalesce(work.run_id = input.run_id AND work.state = 'completed', FALSE)
         LIMIT 1) IS NULL
   AND (SELECT 1 FROM consumer_reset AS past CROSS JOIN consumer_work AS work
         WHERE past.dataset_id = input.dataset_id AND work.consumer_id = past.consumer_id
           AND work.write_pointer = input.write_pointer AND work.partition_key = input.item
           AND coalesce(work.run_id = input.run_id AND work.state = 'completed', FALSE)
         LIMIT 1) IS NULL
   AND (input.write_pointer > 0
        OR (SELECT 1 FROM inbox_file AS file
             WHERE file.dataset_id = input.dataset_id AND file.name = input.item
               AND file.content_version = input.content_version
               AND NOT coalesce(file.run_id = input.run_id AND file.status = 'SUCCESS', FALSE)) IS NOT NULL)
   AND (SELECT 1 FROM inbox_reprocessed AS past
         WHERE past.dataset_id = input.dataset_id AND past.name = input.item AND past.run_id = input.run_id) IS NULL

-- name: find_bound_of_commits
-- gives: bound
SELECT coalesce((SELECT commit_seq FROM tx WHERE commit_seq > :after AND commit_seq < :pointer
                  ORDER BY commit_seq LIMIT 1 OFFSET :place),
                (SELECT max(commit_seq) FROM tx WHERE commit_seq > :after AND commit_seq < :pointer)) AS bound

-- name: read_commits
-- gives: commit_seq, write_pointer, run_id, state, run_write_pointer, facts, has_worker
-- A window of commits, each with its run as that says itself.
SELECT tx.commit_seq, tx.write_pointer, tx.run_id, run.state, run.write_pointer AS run_write_pointer, run.facts,
       (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) AS has_worker
  FROM tx LEFT JOIN run ON run.run_id = tx.run_id
 WHERE tx.commit_seq > :after AND tx.commit_seq <= :bound
 ORDER BY tx.commit_seq

-- name: read_published
-- gives: commit_seq, dataset_id, partition_key, delivers, row_count, write_pointer, superseded_seq
SELECT tx.commit_seq, change.dataset_id, change.partition_key, change.delivers, change.row_count,
       change.write_pointer, change.superseded_seq
  FROM tx CROSS JOIN partition_change AS change
 WHERE tx.commit_seq > :after AND tx.commit_seq <= :bound AND change.write_pointer = tx.write_pointer

-- name: read_announced
-- gives: seq, event_type, event_key, payload
SELECT seq, event_type, event_key, payload FROM message
 WHERE topic = 'data' AND seq > :after AND seq <= :bound AND event_type IN ('partitions', 'files', 'refreshed')

-- name: find_bound_of_runs
-- gives: bound
SELECT coalesce((SELECT run_id FROM run
                  WHERE run_id > :after AND run_id <= :last ORDER BY run_id LIMIT 1 OFFSET :place),
                (SELECT max(run_id) FROM run WHERE run_id > :after AND run_id <= :last)) AS bound

-- name: read_runs
-- gives: run_id, state, write_pointer, tx_state
-- A window of runs, each with its last transaction: the ends of both are set by one commit.
SELECT run.run_id, run.state, run.write_pointer,
       (SELECT tx.state FROM tx WHERE tx.write_pointer = run.write_pointer) AS tx_state
  FROM run
 WHERE (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) IS NULL
   AND run.run_id > :after AND run.run_id <= :bound
 ORDER BY run.run_id

-- name: list_open
-- gives: write_pointer, run_id, run_state
-- What is open or held now, with its holder: as much as there is work.
SELECT tx.write_pointer, tx.run_id,
       (SELECT CASE WHEN run.epoch <> tx.epoch THEN 'in another attempt' ELSE run.state END
          FROM run WHERE run.run_id = tx.run_id) AS run_state
  FROM tx {indexed_by:tx_open}
 WHERE tx.state = 'in_progress'
 ORDER BY tx.write_pointer

-- name: list_idle_workflows
-- gives: run_id, state
-- Each end of a node starts the next nodes or ends the workflow. Cost: the runs under way.
SELECT run.run_id, run.state
  FROM run {indexed_by:run_live} CROSS JOIN workflow_run
 WHERE run.state IN ('STARTING', 'RUNNING', 'STOPPING') AND workflow_run.run_id = run.run_id
   AND (SELECT 1 FROM workflow_node AS node WHERE node.workflow_id = run.run_id AND node.outcome IS NULL LIMIT 1) IS NULL
 ORDER BY run.run_id

-- name: list_declarations
-- gives: dataset_id, write_pointer, tx_state
SELECT declared.dataset_id, declared.write_pointer,
       (SELECT tx.state FROM tx WHERE tx.write_pointer = declared.write_pointer) AS tx_state
  FROM in_progress AS declared
 ORDER BY declared.write_pointer, declared.dataset_id

-- name: list_backfills
-- gives: backfill_id, counts, found, completed, done
-- The kept and the counted numbers of items by state, and the completed runs beside the items that they are for. Runs
-- are deleted before their backfill. The id of a node's run has a hyphen behind that of its workflow's run.
SELECT kept.backfill_id,
       kept.waiting || ' ' || kept.running || ' ' || kept.done || ' ' || kept.failed || ' ' || kept.dropped AS counts,
       (SELECT count(CASE state WHEN 'WAITING' THEN 1 END) || ' ' || count(CASE state WHEN 'RUNNING' THEN 1 END) || ' '
               || count(CASE state WHEN 'DONE' THEN 1 END) || ' ' || count(CASE state WHEN 'FAILED' THEN 1 END) || ' '
               || count(CASE state WHEN 'DROPPED' THEN 1 END)
          FROM backfill_item AS item WHERE item.backfill_id = kept.backfill_id) AS found,
       (SELECT count(*) FROM run WHERE run.backfill_id = kept.backfill_id AND run.state = 'COMPLETED'
           AND coalesce(run.exit_reason, '') <> 'no_input' AND run.run_id NOT LIKE '%-%') AS completed,
       kept.done + kept.running AS done
  FROM backfill AS kept
 WHERE kept.ended_at IS NULL OR kept.ended_at >= :horizon_at
 ORDER BY kept.backfill_id

-- name: list_slots
-- gives: limit_key, run_id, run_state
SELECT slot.limit_key, slot.run_id, (SELECT run.state FROM run WHERE run.run_id = slot.run_id) AS run_state
  FROM slot
 ORDER BY slot.limit_key, slot.run_id

-- name: list_pins
-- gives: pin_id, run_id, run_state
SELECT pin.pin_id, pin.run_id, (SELECT run.state FROM run WHERE run.run_id = pin.run_id) AS run_state
  FROM reader_pin AS pin
 ORDER BY pin.pin_id

-- name: list_garbage
-- gives: location, write_pointer, tx_state
-- Directories; what has expired is of transactions that have committed.
SELECT garbage.location, garbage.write_pointer,
       (SELECT tx.state FROM tx WHERE tx.write_pointer = garbage.write_pointer) AS tx_state
  FROM garbage
 WHERE garbage.partition_key IS NULL
 ORDER BY garbage.location

-- name: count_untaken
-- gives: untaken
-- What lies behind the state of a consumer, less what its own runs have put into the working set as done.
SELECT (SELECT count(*) FROM partition_change
         WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :pointer
           AND +commit_seq < :pointer AND delivers = 1)
     + (SELECT count(*) FROM partition_change
         WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND +commit_seq < :pointer
           AND delivers = 1)
     - (SELECT count(*) FROM consumer_work
         WHERE consumer_id = :consumer_id AND write_pointer >= :start_version AND write_pointer < :pointer)
     - (SELECT count(*) FROM consumer_work
         WHERE consumer_id = :consumer_id AND write_pointer IN ({ints:versions_to_check})) AS untaken

-- name: read_state
-- gives: start_version, versions_to_check
SELECT start_version, versions_to_check FROM consumer WHERE consumer_id = :consumer_id

-- name: list_named
-- gives: dataset_id, namespace, name, kind, location, spec, app, root, generation
-- Dropped ones too: a message names a data set by its name, which a later data set may have.
SELECT dataset_id, namespace, name, kind, location, spec, app, root, generation FROM dataset
 WHERE namespace || '.' || name IN ({texts:datasets})
