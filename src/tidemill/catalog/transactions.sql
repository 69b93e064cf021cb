-- name: insert_tx
INSERT INTO tx (write_pointer, state, run_id, epoch, began_at)
VALUES ({commit_seq}, 'in_progress', :run_id, :epoch, tidemill_now())

-- name: declare_writes
-- A data set may have been dropped since it was looked up. A drop refuses while a transaction has declared to write.
INSERT INTO in_progress (dataset_id, write_pointer, from_time, to_time)
SELECT CASE WHEN known.dropped_at IS NULL THEN d.dataset_id
            ELSE CAST(tidemill_refuse('dataset_dropped', known.namespace || '.' || known.name) AS TEXT) END,
       {commit_seq}, d.from_time, d.to_time
  FROM {rows:declared(dataset_id text, from_time bigint, to_time bigint)} AS d
  LEFT JOIN dataset AS known ON known.dataset_id = d.dataset_id

-- name: refuse_second
-- A begin sent again after a lost reply, while the first is still on its way, would leave one open for ever.
SELECT tidemill_refuse('transaction_open', CAST(write_pointer AS TEXT), run_id)
  FROM tx WHERE run_id = :run_id AND epoch = :epoch AND state = 'in_progress'

-- name: find_begun
-- gives: write_pointer
SELECT write_pointer FROM tx WHERE run_id = :run_id AND epoch = :epoch AND state = 'in_progress'

-- name: refuse_unless_open
-- locks: tx
-- The fence: the row is open with this epoch, or the commit is refused. Each block that ends a transaction takes the
-- clock first. The lock on the row protects against a block that does not.
SELECT tidemill_refuse('transaction_ended', CAST(CAST(:write_pointer AS BIGINT) AS TEXT),
                       coalesce((SELECT CASE WHEN state = 'in_progress' THEN 'taken over by a newer attempt' ELSE state END
                                   FROM tx WHERE write_pointer = :write_pointer), 'unknown'),
                       (SELECT reason FROM tx WHERE write_pointer = :write_pointer))
 WHERE NOT EXISTS (SELECT 1 FROM tx
                    WHERE write_pointer = :write_pointer AND epoch = :epoch AND state = 'in_progress' {for_update})

-- name: lock_open
-- gives: write_pointer
-- locks: tx
-- Makes a fence or an end of the attempt wait until what the attempt holds is stored, so that the end can give it up.
SELECT write_pointer FROM tx
 WHERE write_pointer = :write_pointer AND epoch = :epoch AND state = 'in_progress' {for_share}

-- name: commit_tx
-- locks: tx
UPDATE tx SET state = 'committed', commit_seq = {commit_seq}, ended_at = tidemill_now()
 WHERE write_pointer = :write_pointer AND state = 'in_progress'

-- name: forget_declared
DELETE FROM in_progress WHERE write_pointer = :write_pointer

-- name: find_committed
-- gives: commit_seq
-- locks: tx
-- Locked, since an unlocked read can still say "in progress" while the server commits.
SELECT commit_seq FROM tx
 WHERE write_pointer = :write_pointer AND epoch = :epoch AND state = 'committed' {for_update}

-- name: end_tx
-- locks: tx
UPDATE tx SET state = :state, reason = :reason, ended_at = tidemill_now()
 WHERE write_pointer = :write_pointer AND state = 'in_progress'

-- name: leave_garbage
-- Only of a transaction that can never commit. The location names it; the janitor finds the directory from the rest.
INSERT INTO garbage (location, dataset_id, write_pointer, reason, not_before)
SELECT i.dataset_id || '/tx-' || CAST(i.write_pointer AS TEXT), i.dataset_id, i.write_pointer, t.state, tidemill_now()
  FROM in_progress AS i JOIN tx AS t ON t.write_pointer = i.write_pointer
 WHERE i.write_pointer = :write_pointer AND t.state IN ('aborted', 'invalid')
    ON CONFLICT (location) DO NOTHING

-- name: forget_ended
-- Only what has ended: a commit that won keeps nothing here either.
DELETE FROM in_progress
 WHERE write_pointer = :write_pointer
   AND EXISTS (SELECT 1 FROM tx WHERE tx.write_pointer = :write_pointer AND state <> 'in_progress')

-- name: find_in_progress
-- gives: write_pointer
-- The + keeps SQLite on the index over commit_seq: by write_pointer it would read the whole history.
SELECT write_pointer FROM in_progress WHERE dataset_id = :dataset_id AND write_pointer < :write_pointer
 UNION
SELECT write_pointer FROM partition_change
 WHERE dataset_id = :dataset_id AND commit_seq > :write_pointer AND +write_pointer < :write_pointer
 ORDER BY write_pointer

-- name: find_tx
-- gives: write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
SELECT write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
  FROM tx WHERE write_pointer = :write_pointer

-- name: list_open
-- gives: write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
-- With the + not even PostgreSQL walks all transactions in order, to the few that are open.
SELECT write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
  FROM tx {indexed_by:tx_open} WHERE state = 'in_progress' AND +write_pointer > :after ORDER BY +write_pointer LIMIT :limit

-- name: list_committed
-- gives: write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
-- Cost: the page, and the others between its rows.
SELECT write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
  FROM tx WHERE write_pointer < :before AND commit_seq IS NOT NULL ORDER BY write_pointer DESC LIMIT :limit

-- name: list_failed
-- gives: write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
SELECT write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
  FROM tx WHERE state = :state AND state IN ('aborted', 'invalid') AND write_pointer < :before
 ORDER BY write_pointer DESC LIMIT :limit

-- name: list_newest
-- gives: write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
SELECT write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at, reason
  FROM tx WHERE write_pointer < :before ORDER BY write_pointer DESC LIMIT :limit
