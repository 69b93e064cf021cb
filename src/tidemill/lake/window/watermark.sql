-- name: refuse_other_declaration
-- A partition's time is found by the writer, before its commit: by the declaration that is there at the commit, or not.
SELECT tidemill_refuse('watermark_changed', CAST(:dataset AS TEXT))
 WHERE coalesce((SELECT declared FROM watermark WHERE dataset_id = :dataset_id), '') <> :declared

-- name: last_slot
-- gives: slot_time
SELECT slot_time FROM time_slot WHERE dataset_id = :dataset_id AND slot_time <= :upto ORDER BY slot_time DESC LIMIT 1

-- name: first_begin
-- gives: begins_at
SELECT begins_at FROM time_slot WHERE dataset_id = :dataset_id ORDER BY slot_time LIMIT 1

-- name: go_on
-- locks: watermark
-- Never back: what is before has been walked.
UPDATE watermark SET next_time = :next_time
 WHERE dataset_id = :dataset_id AND CAST(:next_time AS BIGINT) > coalesce(next_time, -2305843009213693952)

-- name: insert_slots
-- None where the watermark follows the window programs that write the file set.
INSERT INTO time_slot (dataset_id, slot_time, begins_at, ends_at, next_time, complete, completed_at)
SELECT :dataset_id, s.slot_time, s.begins_at, s.ends_at, s.next_time, :complete,
       CASE WHEN CAST(:complete AS INTEGER) = 1 THEN tidemill_now() END
  FROM {rows:slots(slot_time bigint, begins_at bigint, ends_at bigint, next_time bigint)} AS s
 WHERE CAST(:follows AS INTEGER) = 0 OR NOT EXISTS (SELECT 1 FROM window_output WHERE dataset_id = :dataset_id)
    ON CONFLICT (dataset_id, slot_time) DO NOTHING

-- name: insert_members
INSERT INTO slot_member (dataset_id, slot_time, member)
SELECT :dataset_id, m.slot_time, m.member FROM {rows:members(slot_time bigint, member text)} AS m
 WHERE true
    ON CONFLICT (dataset_id, slot_time, member) DO NOTHING

-- name: complete_slots
UPDATE time_slot SET complete = 1, completed_at = tidemill_now()
 WHERE dataset_id = :dataset_id AND slot_time IN ({ints:times}) AND complete = 0
   AND :expected <= (SELECT count(*) FROM slot_member AS m
                      WHERE m.dataset_id = time_slot.dataset_id AND m.slot_time = time_slot.slot_time)

-- name: insert_waits
-- Partitions that are there and may not be complete. A slot that is complete stays so.
INSERT INTO slot_wait (dataset_id, slot_time, partition_key, marked, due_at)
SELECT :dataset_id, w.slot_time, w.partition_key, w.marked, (SELECT tidemill_now()) + :delay
  FROM {rows:waits(slot_time bigint, partition_key text, marked integer)} AS w
 WHERE NOT EXISTS (SELECT 1 FROM time_slot AS s
                    WHERE s.dataset_id = :dataset_id AND s.slot_time = w.slot_time AND s.complete = 1)
    ON CONFLICT (dataset_id, slot_time, partition_key) DO UPDATE SET marked = excluded.marked, due_at = excluded.due_at

-- name: mark_waits
-- Cost: the partitions of the file set that are not complete.
UPDATE slot_wait SET marked = 1 WHERE dataset_id = :dataset_id AND partition_key IN ({texts:keys})

-- name: forget_waits
DELETE FROM slot_wait
 WHERE dataset_id = :dataset_id
   AND (slot_time, partition_key) IN (SELECT m.slot_time, m.partition_key
                                        FROM {rows:found(slot_time bigint, partition_key text)} AS m)

-- name: forget_members
-- A partition that has vanished completes no slot. Its member may have other partitions in the slot, whose keys are as
-- pattern says.
DELETE FROM slot_member
 WHERE dataset_id = :dataset_id
   AND (slot_time, member) IN (SELECT m.slot_time, m.member
                                 FROM {rows:found(slot_time bigint, member text, pattern text)} AS m
                                WHERE NOT EXISTS (SELECT 1 FROM partition_change AS c {indexed_by:partition_by_time}
                                                   WHERE c.dataset_id = :dataset_id AND c.superseded_seq IS NULL
                                                     AND c.partition_time = m.slot_time
                                                     AND c.partition_key LIKE m.pattern ESCAPE '\'))
   AND EXISTS (SELECT 1 FROM time_slot AS s
                WHERE s.dataset_id = :dataset_id AND s.slot_time = slot_member.slot_time AND s.complete = 0)

-- name: park_partitions
-- A partition that is parked already keeps its time.
INSERT INTO parked_partition (dataset_id, partition_key, since)
SELECT :dataset_id, p.partition_key, tidemill_now() FROM {rows:parked(partition_key text)} AS p
 WHERE true
    ON CONFLICT (dataset_id, partition_key) DO NOTHING

-- name: forget_parked
DELETE FROM parked_partition WHERE dataset_id = :dataset_id AND partition_key IN ({texts:keys})

-- name: delete_parked
DELETE FROM parked_partition WHERE dataset_id = :dataset_id

-- name: end_waits
DELETE FROM slot_wait WHERE dataset_id = :dataset_id AND marked = 1 AND due_at <= (SELECT tidemill_now())

-- name: complete_waiting
-- Cost: the slots that are not complete.
UPDATE time_slot {indexed_by:time_slot_open} SET complete = 1, completed_at = tidemill_now()
 WHERE dataset_id = :dataset_id AND complete = 0
   AND :expected <= (SELECT count(*) FROM slot_member AS m
                      WHERE m.dataset_id = time_slot.dataset_id AND m.slot_time = time_slot.slot_time)
   AND NOT EXISTS (SELECT 1 FROM slot_wait AS w
                    WHERE w.dataset_id = time_slot.dataset_id AND w.slot_time = time_slot.slot_time)

-- name: list_unmarked
-- gives: partition_key
SELECT partition_key FROM slot_wait WHERE dataset_id = :dataset_id AND marked = 0

-- name: raise_target_skipping
-- locks: watermark
-- The latest end of a complete slot that is not too far ahead of the clock.
UPDATE watermark SET target = found.ends_at - watermark.row_lag
  FROM (SELECT s.ends_at
          FROM watermark AS w JOIN time_slot AS s ON s.dataset_id = w.dataset_id
         WHERE w.dataset_id = :dataset_id AND s.complete = 1 AND s.ends_at <= tidemill_now() * 1000 + w.max_ahead
         ORDER BY s.ends_at DESC LIMIT 1) AS found
 WHERE watermark.dataset_id = :dataset_id AND watermark.gap = 'skip'
   AND (watermark.target IS NULL OR watermark.target < found.ends_at - watermark.row_lag)

-- name: raise_target_following
-- locks: watermark
-- The least of the window programs that write the file set, once each of them has come somewhere.
UPDATE watermark SET target = found.value
  FROM (SELECT min(o.value) AS value, count(*) - count(o.value) AS missing
          FROM (SELECT CASE WHEN CAST(:time_column AS TEXT) = 'window_time' THEN time_value ELSE start_value END AS value
                  FROM window_output WHERE dataset_id = :dataset_id) AS o) AS found
 WHERE watermark.dataset_id = :dataset_id AND found.missing = 0 AND found.value IS NOT NULL
   AND (watermark.target IS NULL OR watermark.target < found.value)

-- name: forget_target
-- locks: watermark
UPDATE watermark SET target = NULL, next_time = NULL WHERE dataset_id = :dataset_id

-- name: raise_target_waiting
-- locks: watermark
-- The end of the unbroken run of complete slots from the first; only what is new of it is walked. With a gap_wait, a
-- missing slot counts as empty that long after a later slot became complete: the run goes on with the next slot that is
-- there. Where that one is not complete, the run ends at its begin. (The + keep SQLite off the index of all that is
-- complete.)
WITH RECURSIVE unbroken (next_time, reached, goes_on) AS (
    SELECT coalesce(w.next_time, (SELECT f.slot_time FROM time_slot AS f WHERE f.dataset_id = w.dataset_id
                                   ORDER BY f.slot_time LIMIT 1)), CAST(NULL AS BIGINT), 1
      FROM watermark AS w WHERE w.dataset_id = :dataset_id AND w.gap = 'wait'
     UNION ALL
    SELECT CASE WHEN s.complete = 1 AND s.ends_at <= tidemill_now() * 1000 + w.max_ahead
                THEN s.next_time ELSE s.slot_time END,
           CASE WHEN s.complete = 1 AND s.ends_at <= tidemill_now() * 1000 + w.max_ahead
                THEN s.ends_at ELSE s.begins_at END,
           CASE WHEN s.complete = 1 AND s.ends_at <= tidemill_now() * 1000 + w.max_ahead THEN 1 ELSE 0 END
      FROM unbroken AS u JOIN watermark AS w ON w.dataset_id = :dataset_id
      JOIN time_slot AS s ON s.dataset_id = w.dataset_id
                         AND s.slot_time = (SELECT min(n.slot_time) FROM time_slot AS n
                                             WHERE n.dataset_id = w.dataset_id AND n.slot_time >= u.next_time)
     WHERE u.goes_on = 1
       AND ((s.slot_time = u.next_time AND +s.complete = 1 AND +s.ends_at <= tidemill_now() * 1000 + w.max_ahead)
            OR (s.slot_time > u.next_time AND w.gap_wait IS NOT NULL
                AND EXISTS (SELECT 1 FROM time_slot AS c
                             WHERE c.dataset_id = w.dataset_id AND c.slot_time > u.next_time AND +c.complete = 1
                               AND +c.ends_at <= tidemill_now() * 1000 + w.max_ahead
                               AND c.completed_at <= tidemill_now() - w.gap_wait))))
UPDATE watermark SET target = CASE WHEN watermark.target >= found.reached - watermark.row_lag THEN watermark.target
                                   ELSE found.reached - watermark.row_lag END,
                     next_time = found.next_time
  FROM (SELECT u.reached, u.next_time FROM unbroken AS u WHERE u.reached IS NOT NULL
         ORDER BY u.next_time DESC LIMIT 1) AS found
 WHERE watermark.dataset_id = :dataset_id

-- name: postpone_check
-- locks: watermark
-- A slot that lies further ahead than is believed (a partition of 2099) is looked at again when its time has come. So
-- is a missing slot, when it has been waited for as long as gap_wait says.
UPDATE watermark
   SET next_check_at = (SELECT min(due.at)
                          FROM (SELECT min((s.ends_at - watermark.max_ahead) / 1000 + 1) AS at FROM time_slot AS s
                                 WHERE s.dataset_id = watermark.dataset_id AND s.complete = 1
                                   AND s.ends_at > tidemill_now() * 1000 + watermark.max_ahead
                                 UNION ALL
                                SELECT min(c.completed_at) + watermark.gap_wait FROM time_slot AS c
                                 WHERE c.dataset_id = watermark.dataset_id AND c.slot_time > watermark.next_time
                                   AND watermark.gap_wait IS NOT NULL AND +c.complete = 1 AND +c.ends_at <= tidemill_now() * 1000 + watermark.max_ahead
                                   AND NOT EXISTS (SELECT 1 FROM time_slot AS h
                                                    WHERE h.dataset_id = watermark.dataset_id
                                                      AND h.slot_time = watermark.next_time)) AS due)
 WHERE dataset_id = :dataset_id

-- name: note_commit
-- locks: watermark
UPDATE watermark SET committed_at = tidemill_now() WHERE dataset_id = :dataset_id

-- name: note_move
-- W = the target, or where an open transaction holds it that may still write rows of an earlier time. What such a
-- transaction declared is behind W already, when its end is. W goes back only with :rereads, when its times are read in
-- another way; it is NULL then if no partition has a time.
INSERT INTO watermark_move (dataset_id, commit_seq, value, previous, cause, at, rewinds)
SELECT w.dataset_id, {commit_seq}, free.value, w.value, :cause, tidemill_now(),
       CASE WHEN free.value > coalesce(w.value, -2305843009213693952) THEN 0 ELSE 1 END
  FROM watermark AS w
 CROSS JOIN (SELECT min(bound.value) AS value
               FROM (SELECT t.target AS value FROM watermark AS t WHERE t.dataset_id = :dataset_id
                      UNION ALL
                     SELECT i.from_time - o.row_lag
                       FROM in_progress AS i JOIN watermark AS o ON o.dataset_id = i.dataset_id
                      WHERE o.target IS NOT NULL AND i.dataset_id = :dataset_id AND i.from_time IS NOT NULL
                        AND (o.value IS NULL OR i.to_time > o.value)) AS bound) AS free
 WHERE w.dataset_id = :dataset_id
   AND (free.value > coalesce(w.value, -2305843009213693952)
        OR (CAST(:rereads AS INTEGER) = 1 AND free.value IS DISTINCT FROM w.value))

-- name: note_advance
-- By hand.
INSERT INTO watermark_move (dataset_id, commit_seq, value, previous, cause, at)
SELECT dataset_id, {commit_seq}, CAST(:value AS BIGINT), value, :cause, tidemill_now()
  FROM watermark WHERE dataset_id = :dataset_id

-- name: forget_slots_beyond
-- Slots that end after :ends count again when a commit brings partitions of theirs. None of them has a time below :low.
DELETE FROM time_slot WHERE dataset_id = :dataset_id AND slot_time >= :low AND ends_at > :ends

-- name: forget_members_beyond
DELETE FROM slot_member
 WHERE dataset_id = :dataset_id AND slot_time >= :low
   AND NOT EXISTS (SELECT 1 FROM time_slot AS s
                    WHERE s.dataset_id = slot_member.dataset_id AND s.slot_time = slot_member.slot_time
                      AND s.slot_time >= :low)

-- name: first_beyond
-- gives: slot_time
SELECT min(slot_time) AS slot_time FROM time_slot WHERE dataset_id = :dataset_id AND slot_time >= :low AND ends_at > :ends

-- name: lower_target
-- locks: watermark
-- An unbroken run of slots goes on from the first slot that is forgotten, if it had come that far.
UPDATE watermark
   SET target = CASE WHEN target > :value THEN :value ELSE target END,
       next_time = CASE WHEN next_time > :first THEN :first ELSE next_time END
 WHERE dataset_id = :dataset_id

-- name: note_rewind
-- By hand.
INSERT INTO watermark_move (dataset_id, commit_seq, value, previous, cause, at, rewinds)
SELECT dataset_id, {commit_seq}, CAST(:value AS BIGINT), value, :cause, tidemill_now(), 1
  FROM watermark WHERE dataset_id = :dataset_id

-- name: first_time
-- gives: partition_time
-- Of the partitions that are current: what ends before it was computed from partitions that are deleted by now.
SELECT partition_time FROM partition_change {indexed_by:partition_by_time}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
 ORDER BY partition_time LIMIT 1

-- name: move
-- locks: watermark
-- After publish_move, which begins where the previous message ended.
UPDATE watermark SET value = m.value, announced = CASE WHEN :quiet = 1 THEN watermark.announced ELSE m.value END
  FROM watermark_move AS m
 WHERE watermark.dataset_id = :dataset_id AND m.dataset_id = :dataset_id AND m.commit_seq = {commit_seq}

-- name: publish_move
-- wakes: message, time
-- from: where the previous message ended. A quiet run may have moved the watermark since, past times of other runs.
-- since: where rows of the first time slot may begin, in the message of a first move only. zone: the time zone of the
-- windows, on whose wall clock triggers count periods. One message a commit: a watermark that follows window programs is
-- moved by their commits, and asked for by the partitions of these commits.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', m.commit_seq,
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}),
       tidemill_now(), 'watermark', :event_key,
       '{"dataset":"' || CAST(:dataset AS TEXT) || '","zone":"' || CAST(:zone AS TEXT) || '"'
           || ',"from":' || coalesce(CAST(moved.announced AS TEXT), 'null') || ',"to":' || coalesce(CAST(m.value AS TEXT), 'null')
           || coalesce(',"since":' || CAST((SELECT s.begins_at - w.row_lag FROM watermark AS w CROSS JOIN time_slot AS s
                                             WHERE moved.announced IS NULL AND w.dataset_id = m.dataset_id
                                               AND s.dataset_id = m.dataset_id
                                             ORDER BY s.slot_time LIMIT 1) AS TEXT), '') || '}'
  FROM watermark_move AS m JOIN watermark AS moved ON moved.dataset_id = m.dataset_id
 WHERE m.dataset_id = :dataset_id AND m.commit_seq = {commit_seq}
   AND coalesce(m.value, moved.announced) IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM message AS sent
                    WHERE sent.topic = 'data' AND sent.seq = {commit_seq} AND sent.event_type = 'watermark'
                      AND sent.event_key = :event_key)

-- name: refuse_retreat
SELECT tidemill_refuse('watermark_passed', CAST(:dataset AS TEXT), CAST(value AS TEXT))
  FROM watermark WHERE dataset_id = :dataset_id AND value >= :value

-- name: find_releasable
-- gives: dataset_id
-- The file sets for the keeper: W is behind its target and no transaction holds it any more, or a slot's time has come.
SELECT w.dataset_id
  FROM watermark AS w
 WHERE w.target IS NOT NULL AND (w.value IS NULL OR w.value < w.target)
   AND NOT EXISTS (SELECT 1 FROM in_progress AS i
                    WHERE i.dataset_id = w.dataset_id AND i.from_time - w.row_lag <= coalesce(w.value, -2305843009213693952)
                      AND (w.value IS NULL OR i.to_time > w.value))
 UNION
SELECT dataset_id FROM watermark WHERE next_check_at <= tidemill_now()
 UNION
SELECT dataset_id FROM slot_wait {indexed_by:slot_wait_due} WHERE marked = 1 AND due_at <= tidemill_now()
 ORDER BY dataset_id

-- name: next_check
-- gives: at
SELECT min(due.at) AS at
  FROM (SELECT min(next_check_at) AS at FROM watermark
         UNION ALL
        SELECT min(due_at) FROM slot_wait {indexed_by:slot_wait_due} WHERE marked = 1) AS due

-- name: put_watermark
-- With :rereads the target is found from the start, since its times are read in another way.
INSERT INTO watermark (dataset_id, declared, gap, gap_wait, row_lag, max_ahead, includes, idle_timeout, committed_at)
VALUES (:dataset_id, :declared, :gap, :gap_wait, :row_lag, :max_ahead, :includes, :idle_timeout,
        (SELECT c.at FROM partition_change AS c WHERE c.dataset_id = :dataset_id ORDER BY c.commit_seq DESC LIMIT 1))
    ON CONFLICT (dataset_id) DO UPDATE
   SET declared = excluded.declared, gap = excluded.gap, gap_wait = excluded.gap_wait, row_lag = excluded.row_lag,
       max_ahead = excluded.max_ahead, includes = excluded.includes, idle_timeout = excluded.idle_timeout,
       next_time = NULL, target = CASE WHEN CAST(:rereads AS INTEGER) = 1 THEN NULL ELSE watermark.target END

-- name: delete_watermark
-- locks: watermark
DELETE FROM watermark WHERE dataset_id = :dataset_id

-- name: delete_slots
DELETE FROM time_slot WHERE dataset_id = :dataset_id

-- name: delete_waits
DELETE FROM slot_wait WHERE dataset_id = :dataset_id

-- name: delete_members
DELETE FROM slot_member WHERE dataset_id = :dataset_id

-- name: read_keys
-- gives: partition_key, location
-- All that is current, for a declaration that is new or another one. Of a partition in several places any one.
SELECT partition_key, min(location) AS location FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL
 GROUP BY partition_key

-- name: find_times
-- gives: partition_key, partition_time
SELECT DISTINCT partition_key, partition_time FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_time IS NOT NULL
   AND partition_key IN ({texts:keys})

-- name: set_times
UPDATE partition_change {indexed_by:partition_current} SET partition_time = t.slot_time
  FROM {rows:times(partition_key text, slot_time bigint)} AS t
 WHERE partition_change.dataset_id = :dataset_id AND partition_change.partition_key = t.partition_key
   AND partition_change.superseded_seq IS NULL

-- name: find_watermark
-- gives: dataset_id, declared, value, target, next_time, next_check_at
SELECT dataset_id, declared, value, target, next_time, next_check_at FROM watermark WHERE dataset_id = :dataset_id

-- name: list_watermarks
-- gives: dataset_id, declared, value, target, next_time, next_check_at
SELECT w.dataset_id, w.declared, w.value, w.target, w.next_time, w.next_check_at
  FROM dataset AS d JOIN watermark AS w ON w.dataset_id = d.dataset_id
 WHERE d.dropped_at IS NULL AND (d.namespace, d.name) > (:after_namespace, :after_name)
   AND (w.value IS NULL OR w.value < :before)
 ORDER BY d.namespace, d.name LIMIT :limit

-- name: list_of_app
-- gives: dataset_id, declared, value, target, next_time, next_check_at
-- Cost: the data sets of the namespace.
SELECT w.dataset_id, w.declared, w.value, w.target, w.next_time, w.next_check_at
  FROM dataset AS d JOIN watermark AS w ON w.dataset_id = d.dataset_id
 WHERE d.dropped_at IS NULL AND d.namespace = :namespace AND d.name > :after_name AND d.app = :app
   AND (w.value IS NULL OR w.value < :before)
 ORDER BY d.namespace, d.name LIMIT :limit

-- name: value_at
-- gives: value
SELECT value FROM watermark_move
 WHERE dataset_id = :dataset_id AND commit_seq < :commit_seq ORDER BY commit_seq DESC LIMIT 1

-- name: find_old_moves
-- gives: dataset_id, last
-- For each watermark the last of its old first moves. No reader asks for the moves before it: the value at any later
-- moment is in this move or in a later one. Unless an earlier transaction is still open.
SELECT w.dataset_id,
       (SELECT CASE WHEN count(*) > 1 THEN max(o.commit_seq) END
          FROM (SELECT m.commit_seq, m.at FROM watermark_move AS m
                 WHERE m.dataset_id = w.dataset_id ORDER BY m.commit_seq LIMIT 100) AS o
         WHERE o.at < tidemill_now() - :keep) AS last
  FROM watermark AS w

-- name: forget_moves
DELETE FROM watermark_move
 WHERE dataset_id = :dataset_id AND commit_seq < :last_move
   AND NOT EXISTS (SELECT 1 FROM tx WHERE state = 'in_progress' AND +write_pointer <= :last_move)

-- name: list_moves
-- gives: commit_seq, value, previous, cause, at
SELECT commit_seq, value, previous, cause, at FROM watermark_move
 WHERE dataset_id = :dataset_id ORDER BY commit_seq DESC LIMIT :limit

-- name: read_last_moves
-- gives: namespace, name, at
-- One look at the end of an index for each file set, however often its watermark has moved.
SELECT r.namespace, r.name,
       (SELECT m.at FROM watermark_move AS m WHERE m.dataset_id = d.dataset_id ORDER BY m.commit_seq DESC LIMIT 1) AS at
  FROM {rows:datasets(namespace text, name text)} AS r
  JOIN dataset AS d ON d.namespace = r.namespace AND d.name = r.name AND d.dropped_at IS NULL

-- name: list_holders
-- gives: write_pointer, run_id, began_at, begins, ends
SELECT i.write_pointer, t.run_id, t.began_at, i.from_time AS begins, i.to_time AS ends
  FROM in_progress AS i JOIN tx AS t ON t.write_pointer = i.write_pointer
 WHERE i.dataset_id = :dataset_id AND i.from_time IS NOT NULL
 ORDER BY i.write_pointer

-- name: list_parked
-- gives: partition_key
SELECT partition_key FROM parked_partition
 WHERE dataset_id = :dataset_id AND partition_key > :after ORDER BY partition_key LIMIT :limit

-- name: list_parking
-- gives: dataset_id
-- Cost: the data sets of the namespace.
SELECT d.dataset_id FROM dataset AS d
 WHERE d.namespace = :namespace AND d.dropped_at IS NULL
   AND EXISTS (SELECT 1 FROM parked_partition AS p WHERE p.dataset_id = d.dataset_id)
 ORDER BY d.dataset_id

-- name: find_parked
-- gives: partition_key
SELECT partition_key FROM parked_partition WHERE dataset_id = :dataset_id AND partition_key IN ({texts:keys})

-- name: list_incomplete
-- gives: slot_time, members
SELECT s.slot_time, (SELECT count(*) FROM slot_member AS m
                      WHERE m.dataset_id = s.dataset_id AND m.slot_time = s.slot_time) AS members
  FROM time_slot AS s WHERE s.dataset_id = :dataset_id AND s.complete = 0 ORDER BY s.slot_time LIMIT :limit

-- name: list_holes
-- gives: next_time
-- Slots whose follower is missing though a later one is there, among the latest thousand: the past may be long.
SELECT s.next_time
  FROM (SELECT dataset_id, slot_time, next_time FROM time_slot
         WHERE dataset_id = :dataset_id ORDER BY slot_time DESC LIMIT 1000) AS s
 WHERE NOT EXISTS (SELECT 1 FROM time_slot AS n WHERE n.dataset_id = s.dataset_id AND n.slot_time = s.next_time)
   AND EXISTS (SELECT 1 FROM time_slot AS n WHERE n.dataset_id = s.dataset_id AND n.slot_time > s.next_time)
 ORDER BY s.slot_time DESC LIMIT :limit
