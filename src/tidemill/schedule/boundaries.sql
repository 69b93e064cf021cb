-- name: queue
-- Ends that are passed later join those that still wait. A queue without any goes on with the first of them: after a move
-- back that may be an end that was fed before.
INSERT INTO boundary (schedule_id, trigger_no, next_at, last_at, zone)
SELECT r.schedule_id, r.trigger_no, r.next_at, r.last_at, r.zone
  FROM {rows:passed(schedule_id text, trigger_no bigint, next_at bigint, last_at bigint, zone text)} AS r
 WHERE true
    ON CONFLICT (schedule_id, trigger_no) DO UPDATE
   SET next_at = CASE WHEN boundary.next_at > boundary.last_at THEN excluded.next_at ELSE boundary.next_at END,
       last_at = excluded.last_at, zone = excluded.zone

-- name: cut
-- locks: boundary
-- Of a leaf whose watermark has moved back, or over a gap: without last_at no end goes on waiting. The row stays, with or without
-- ends: the run of the end that was fed last may still go on.
UPDATE boundary SET last_at = coalesce(r.last_at, boundary.next_at - 1)
  FROM {rows:rewound(schedule_id text, trigger_no bigint, last_at bigint)} AS r
 WHERE boundary.schedule_id = r.schedule_id AND boundary.trigger_no = r.trigger_no
   AND (r.last_at IS NULL OR boundary.last_at > r.last_at)

-- name: find_free
-- gives: schedule_id, trigger_no
-- Queues whose last end is in no open job and in no run that goes on. Cost: the queues that there are, two look-ups each.
SELECT schedule_id, trigger_no FROM boundary
 WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.job_id = boundary.behind)
   AND NOT EXISTS (SELECT 1 FROM run WHERE run.job_id = boundary.behind AND run.ended_at IS NULL)
 ORDER BY schedule_id, trigger_no LIMIT :limit

-- name: lock
-- gives: schedule_id, trigger_no, next_at, last_at, zone, behind
-- locks: boundary
-- Skipped when locked: another scheduler has it.
SELECT schedule_id, trigger_no, next_at, last_at, zone, behind FROM boundary
 WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id, trigger_no {skip_locked}

-- name: move
-- locks: boundary, at job
-- Their rows are held since they were found free.
UPDATE boundary SET next_at = r.next_at, behind = r.behind
  FROM {rows:moved(schedule_id text, trigger_no bigint, next_at bigint, behind text)} AS r
 WHERE boundary.schedule_id = r.schedule_id AND boundary.trigger_no = r.trigger_no

-- name: remove
-- locks: boundary, at job
DELETE FROM boundary WHERE (schedule_id, trigger_no) IN (
    SELECT r.schedule_id, r.trigger_no FROM {rows:empty(schedule_id text, trigger_no bigint)} AS r)
