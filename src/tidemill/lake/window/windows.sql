-- name: find_state
-- gives: program_id, name, definition, computed, seen, revision, resets, moved_seq
SELECT program_id, name, definition, computed, seen, revision, resets, moved_seq
  FROM window_program
 WHERE program_id = :program_id

-- name: list_states
-- gives: program_id, name, definition, computed, seen, revision, resets, moved_seq
SELECT program_id, name, definition, computed, seen, revision, resets, moved_seq FROM window_program ORDER BY name

-- name: find_states_of
-- gives: program_id, name, definition, computed, seen, revision, resets, moved_seq
SELECT p.program_id, p.name, p.definition, p.computed, p.seen, p.revision, p.resets, p.moved_seq
  FROM window_input AS i CROSS JOIN window_program AS p
 WHERE i.dataset_id = :dataset_id AND p.program_id = i.program_id
 ORDER BY p.name

-- name: list_inputs
-- gives: dataset_id
SELECT dataset_id FROM window_input WHERE program_id = :program_id ORDER BY dataset_id

-- name: put_state
INSERT INTO window_program (program_id, name, definition, computed, seen, revision)
VALUES (:program_id, :name, :definition, NULL, 0, 0)
    ON CONFLICT (program_id) DO UPDATE SET name = excluded.name

-- name: put_inputs
INSERT INTO window_input (program_id, dataset_id, late, lag)
SELECT :program_id, i.dataset_id, i.late, i.lag FROM {rows:inputs(dataset_id text, late text, lag bigint)} AS i
 WHERE true
    ON CONFLICT (program_id, dataset_id) DO UPDATE SET late = excluded.late, lag = excluded.lag

-- name: forget_inputs
DELETE FROM window_input WHERE program_id = :program_id AND dataset_id NOT IN ({texts:kept})

-- name: set_definition
-- A run that began under another definition is refused.
UPDATE window_program SET definition = :definition, revision = revision + 1, moved_seq = {commit_seq}
 WHERE program_id = :program_id AND definition <> :definition

-- name: refuse_moved
SELECT tidemill_refuse('windows_moved', CAST(:name AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM window_program
                    WHERE program_id = :program_id AND revision = :revision AND moved_seq < :write_pointer)

-- name: move_state
-- Nothing is left to be tried again, unless what follows says so.
UPDATE window_program
   SET computed = :computed, seen = :seen, revision = revision + 1, moved_seq = {commit_seq},
       retry_at = NULL, failing_since = NULL
 WHERE program_id = :program_id AND revision = :revision

-- name: put_results
INSERT INTO window_result (program_id, window_end, window_start, write_pointer, stale)
SELECT :program_id, w.window_end, w.window_start, :write_pointer, 0
  FROM {rows:windows(window_start bigint, window_end bigint)} AS w
 WHERE true
    ON CONFLICT (program_id, window_end, window_start) DO UPDATE SET write_pointer = excluded.write_pointer, stale = 0

-- name: put_left
-- Late windows that later runs compute again. Such a window may have had no rows before, and then gets its first row here.
INSERT INTO window_result (program_id, window_end, window_start, write_pointer, stale)
SELECT :program_id, w.window_end, w.window_start, :write_pointer, 1
  FROM {rows:windows(window_start bigint, window_end bigint)} AS w
 WHERE true
    ON CONFLICT (program_id, window_end, window_start) DO UPDATE SET stale = 1

-- name: keep_results
-- Late windows of another size than those of the query, which was changed with its state kept: they stay as they are.
UPDATE window_result SET stale = 0
 WHERE program_id = :program_id
   AND (window_end, window_start) IN (SELECT w.window_end, w.window_start
                                        FROM {rows:windows(window_start bigint, window_end bigint)} AS w)

-- name: forget_results
DELETE FROM window_result
 WHERE program_id = :program_id
   AND (window_end, window_start) IN (SELECT w.window_end, w.window_start
                                        FROM {rows:windows(window_start bigint, window_end bigint)} AS w)

-- name: find_results
-- gives: window_start, window_end, write_pointer
SELECT r.window_start, r.window_end, r.write_pointer
  FROM {rows:windows(window_start bigint, window_end bigint)} AS w
 CROSS JOIN window_result AS r
 WHERE r.program_id = :program_id AND r.window_end = w.window_end AND r.window_start = w.window_start

-- name: list_stale
-- gives: window_start, window_end, write_pointer
SELECT window_start, window_end, write_pointer FROM window_result {indexed_by:window_result_stale}
 WHERE program_id = :program_id AND stale = 1 AND window_end <= :upto
 ORDER BY window_end LIMIT :limit

-- name: mark_stale
-- A reset: all that was computed from there on is to be replaced.
UPDATE window_result SET stale = 1 WHERE program_id = :program_id AND window_end > :from_end

-- name: reset_state
-- seen stays: late changes of windows that end before are still to be looked at.
UPDATE window_program
   SET computed = :computed, revision = revision + 1, resets = resets + 1, moved_seq = {commit_seq}
 WHERE program_id = :program_id

-- name: set_late
UPDATE window_input SET late = :late WHERE dataset_id = :dataset_id

-- name: list_results
-- gives: window_start, window_end, write_pointer, stale
SELECT window_start, window_end, write_pointer, stale FROM window_result
 WHERE program_id = :program_id ORDER BY window_end DESC, window_start DESC LIMIT :limit

-- name: find_cut
-- gives: partition_time
-- The time behind so many changes, or behind so many times of these changes, whichever comes first. Changes that a
-- snapshot does not see count too: each time is a cut.
SELECT min(partition_time) AS partition_time
  FROM (SELECT * FROM (SELECT partition_time FROM partition_change {indexed_by:partition_by_time}
                        WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
                          AND partition_time >= :low
                        ORDER BY partition_time LIMIT 1 OFFSET :changes) AS by_change
         UNION ALL
        SELECT * FROM (SELECT DISTINCT partition_time
                         FROM (SELECT partition_time FROM partition_change {indexed_by:partition_by_time}
                                WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
                                  AND partition_time >= :low
                                ORDER BY partition_time LIMIT :changes) AS first
                        ORDER BY partition_time LIMIT 1 OFFSET :times) AS by_time) AS cuts

-- name: list_within
-- gives: partition_key, partition_time, bytes
-- What a snapshot sees of partitions of these times: what is current, and what was replaced since.
SELECT partition_key, partition_time, bytes FROM partition_change {indexed_by:partition_by_time}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
   AND partition_time >= :low AND partition_time < :high AND +commit_seq < :write_pointer
 UNION ALL
SELECT partition_key, partition_time, bytes FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :write_pointer AND +commit_seq < :write_pointer
   AND +partition_time >= :low AND +partition_time < :high

-- name: read_keys
-- gives: partition_key, write_pointer, commit_seq, op, location, manifest, metadata
-- What a snapshot sees of these partitions.
SELECT partition_key, write_pointer, commit_seq, op, location, manifest, metadata
  FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND +commit_seq < :write_pointer
   AND partition_key IN ({texts:keys})
 UNION ALL
SELECT partition_key, write_pointer, commit_seq, op, location, manifest, metadata
  FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :write_pointer AND +commit_seq < :write_pointer
   AND partition_key || '' IN ({texts:keys})

-- name: find_times
-- gives: partition_key, partition_time
-- The times of these partitions, of those that a snapshot sees and that have a time.
SELECT partition_key, partition_time FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND +commit_seq < :write_pointer
   AND partition_time IS NOT NULL AND partition_key IN ({texts:keys})
 UNION
SELECT partition_key, partition_time FROM partition_change {indexed_by:partition_superseded}
 WHERE dataset_id = :dataset_id AND superseded_seq >= :write_pointer AND +commit_seq < :write_pointer
   AND partition_time IS NOT NULL AND partition_key || '' IN ({texts:keys})

-- name: list_dirty
-- gives: commit_seq, partition_time
-- What has come since, also what is gone: a partition that was dropped changes its windows. Metadata change nothing.
SELECT DISTINCT commit_seq, partition_time FROM partition_change
 WHERE dataset_id = :dataset_id AND commit_seq >= :seen AND commit_seq < :write_pointer
   AND partition_time IS NOT NULL AND (files > 0 OR op <> 'append')

-- name: list_late
-- gives: partition_key, partition_time, row_count
-- The partitions that have come since, with their new rows.
SELECT partition_key, partition_time, sum(row_count) AS row_count FROM partition_change
 WHERE dataset_id = :dataset_id AND commit_seq >= :seen AND commit_seq < :until
   AND partition_time IS NOT NULL AND files > 0
 GROUP BY partition_key, partition_time

-- name: list_arrivals
-- gives: commit_seq, partition_key, rows
-- As list_dirty and list_late, with the key of each partition.
SELECT commit_seq, partition_key, coalesce(row_count, 0) AS rows FROM partition_change
 WHERE dataset_id = :dataset_id AND commit_seq >= :seen AND commit_seq < :until
   AND (files > 0 OR op <> 'append')
 ORDER BY commit_seq, partition_key

-- name: add_left_out
INSERT INTO left_out (program_id, dataset_id, partition_key, slot_time, late_rows, counted_at)
SELECT :program_id, r.dataset_id, r.partition_key, r.slot_time, r.late_rows, tidemill_now()
  FROM {rows:late(dataset_id text, partition_key text, slot_time bigint, late_rows bigint)} AS r
 WHERE true
    ON CONFLICT (program_id, dataset_id, partition_key) DO UPDATE
   SET late_rows = left_out.late_rows + excluded.late_rows, counted_at = excluded.counted_at

-- name: list_late_counted
-- gives: partition_key
SELECT partition_key FROM left_out
 WHERE program_id = :program_id AND dataset_id = :dataset_id AND partition_key IN ({texts:keys}) AND late_rows > 0

-- name: clear_outside
-- Before what these partitions hold now is put in.
UPDATE left_out SET outside_rows = 0
 WHERE program_id = :program_id
   AND (dataset_id, partition_key) IN (SELECT r.dataset_id, r.partition_key
                                         FROM {rows:partitions(dataset_id text, partition_key text)} AS r)

-- name: put_outside
-- Not added up: a run that reads a partition again finds all its rows again.
INSERT INTO left_out (program_id, dataset_id, partition_key, slot_time, late_rows, outside_rows, counted_at)
SELECT :program_id, r.dataset_id, r.partition_key, r.slot_time, 0, r.outside_rows, tidemill_now()
  FROM {rows:outside(dataset_id text, partition_key text, slot_time bigint, outside_rows bigint)} AS r
 WHERE true
    ON CONFLICT (program_id, dataset_id, partition_key) DO UPDATE
   SET outside_rows = excluded.outside_rows, counted_at = excluded.counted_at

-- name: forget_without_rows
DELETE FROM left_out
 WHERE program_id = :program_id AND late_rows = 0 AND outside_rows = 0
   AND (dataset_id, partition_key) IN (SELECT r.dataset_id, r.partition_key
                                         FROM {rows:partitions(dataset_id text, partition_key text)} AS r)

-- name: forget_left_out
-- A reset: the windows from there on are computed again, from all rows.
DELETE FROM left_out WHERE program_id = :program_id AND slot_time >= :from_time

-- name: count_left_out
-- gives: partitions, late_rows, outside_rows
-- Of present partitions of one input. A dropped partition keeps its row here: a run that read the partition before the
-- drop may still commit and write that row. (By EXISTS, PostgreSQL reads all partitions of the file set at once.)
SELECT count(*) AS partitions, coalesce(sum(l.late_rows), 0) AS late_rows, coalesce(sum(l.outside_rows),
       0) AS outside_rows
  FROM left_out AS l
 WHERE l.program_id = :program_id AND l.dataset_id = :dataset_id
   AND (SELECT 1 FROM partition_change AS c
         WHERE c.dataset_id = l.dataset_id AND c.partition_key = l.partition_key
           AND c.superseded_seq IS NULL AND c.op <> 'drop' LIMIT 1) = 1

-- name: list_left_out
-- gives: partition_key, late_rows, outside_rows, counted_at
-- Of the partitions that are there, as above.
SELECT l.partition_key, l.late_rows, l.outside_rows, l.counted_at
  FROM left_out AS l
 WHERE l.program_id = :program_id AND l.dataset_id = :dataset_id
   AND (SELECT 1 FROM partition_change AS c
         WHERE c.dataset_id = l.dataset_id AND c.partition_key = l.partition_key
           AND c.superseded_seq IS NULL AND c.op <> 'drop' LIMIT 1) = 1
 ORDER BY l.partition_key DESC LIMIT :limit

-- name: list_touched
-- gives: partition_key
-- The partitions that these transactions have changed: rows of what they computed lie nowhere else.
SELECT DISTINCT partition_key FROM partition_change {indexed_by:partition_unmarked}
 WHERE write_pointer IN ({ints:pointers}) AND dataset_id = :dataset_id

-- name: announce_late
-- With the commit of a partition that may touch computed windows: its programs have work, though W does not move. So
-- have programs that have computed nothing yet, if W stood above the partition before this commit. A day of a lag may
-- have an hour more or less. A commit of a window program has noted the times of its rows, which are fewer than those of
-- its partitions.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq})
           + row_number() OVER (ORDER BY p.program_id) - 1,
       tidemill_now(), 'backlog', :event_key,
       '{"dataset":"' || CAST(:dataset AS TEXT) || '","consumer":"' || p.name || '"}'
  FROM window_input AS i CROSS JOIN window_program AS p
 WHERE i.dataset_id = :dataset_id AND p.program_id = i.program_id
   AND ((i.late <> 'drop'
          AND p.computed + i.lag + abs(i.lag) / 24
              > coalesce((SELECT min(c.begins) FROM window_change AS c
                           WHERE c.dataset_id = :dataset_id AND c.commit_seq = {commit_seq}), :begins))
        OR (p.computed IS NULL
            AND (SELECT m.value FROM watermark_move AS m
                  WHERE m.dataset_id = i.dataset_id AND m.commit_seq < {commit_seq}
                  ORDER BY m.commit_seq DESC LIMIT 1) > :begins))

-- name: announce_left
-- With the commit of a run. A partition that was published while the run computed may touch the run's windows. That
-- publish announced nothing, since the windows were not computed then.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}),
       tidemill_now(), 'backlog', :event_key,
       '{"dataset":"' || CAST(:dataset AS TEXT) || '","consumer":"' || CAST(:name AS TEXT) || '"}'
 WHERE CAST(:more AS INTEGER) = 1
    OR EXISTS (SELECT 1 FROM partition_change {indexed_by:partition_commit}
                WHERE dataset_id = :dataset_id AND commit_seq > :write_pointer
                  AND +partition_time < :high + coalesce((SELECT i.lag FROM window_input AS i
                                                           WHERE i.program_id = :program_id
                                                             AND i.dataset_id = :dataset_id), 0))

-- name: find_last_commit
-- gives: at
-- The time of the last commit to a file set, or of its declaration.
SELECT coalesce(w.committed_at, d.created_at) AS at
  FROM dataset AS d LEFT JOIN watermark AS w ON w.dataset_id = d.dataset_id
 WHERE d.dataset_id = :dataset_id

-- name: publish_closed
-- For programs that begin to be listened for: windows that the watermarks of all inputs have passed but for idle inputs
-- (`least.py` has the rule), results of before a reset, late windows that a run has left, late changes that no run has
-- seen, and failed windows whose next try was announced already. Rows lie before the time of their partition, by the row
-- lag at most, or anywhere if rows outside count. A message for each input: a schedule may listen to any.
WITH input AS (
    SELECT i.program_id, w.value - i.lag AS closed,
           coalesce(w.idle_timeout + coalesce(w.committed_at, d.created_at), 2305843009213693952) AS idle_at
      FROM window_input AS i CROSS JOIN dataset AS d
      LEFT JOIN watermark AS w ON w.dataset_id = d.dataset_id
     WHERE i.program_id IN ({texts:ids}) AND d.dataset_id = i.dataset_id)
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq})
           + row_number() OVER (ORDER BY p.program_id, i.dataset_id) - 1,
       tidemill_now(), 'backlog', 'backlog:' || dataset.namespace || '.' || dataset.name,
       '{"dataset":"' || dataset.namespace || '.' || dataset.name || '","consumer":"' || p.name || '"'
           || CAST(:heard_by AS TEXT) || '}'
  FROM window_program AS p CROSS JOIN window_input AS i CROSS JOIN dataset
 WHERE p.program_id IN ({texts:ids}) AND i.program_id = p.program_id AND dataset.dataset_id = i.dataset_id
   AND (NOT EXISTS (SELECT 1 FROM input AS n
                     WHERE n.program_id = p.program_id
                       AND (n.closed IS NULL OR n.closed <= coalesce(p.computed, -2305843009213693952))
                       AND n.idle_at >= (SELECT CASE WHEN max(m.idle_at) > tidemill_now() THEN tidemill_now() + 1
                                                     ELSE max(m.idle_at) END
                                           FROM input AS m WHERE m.program_id = n.program_id))
        OR EXISTS (SELECT 1 FROM window_result AS r WHERE r.program_id = p.program_id AND r.stale = 1)
        OR EXISTS (SELECT 1 FROM window_input AS n CROSS JOIN watermark AS w
                    WHERE n.program_id = p.program_id AND n.late <> 'drop' AND w.dataset_id = n.dataset_id
                      AND EXISTS (SELECT 1 FROM partition_change AS change {indexed_by:partition_commit}
                                   WHERE change.dataset_id = n.dataset_id AND change.commit_seq >= p.seen
                                     AND (w.includes = 1
                                          OR +change.partition_time < p.computed + w.row_lag + n.lag + :margin)))
        OR (p.retry_at IS NULL
            AND EXISTS (SELECT 1 FROM window_failure AS f WHERE f.program_id = p.program_id)))
