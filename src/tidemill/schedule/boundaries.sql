-- name: queue
-- Of the same leaf what was passed later joins what still waits.
INSERT INTO boundary (schedule_id, trigger_no, next_at, last_at)
SELECT r.schedule_id, r.trigger_no, r.next_at, r.last_at
  FROM {rows:passed(schedule_id text, trigger_no bigint, next_at bigint, last_at bigint)} AS r
 WHERE true
    ON CONFLICT (schedule_id, trigger_no) DO UPDATE SET last_at = excluded.last_at

-- name: remove_beyond
-- Of a leaf whose watermark has moved back behind all that waits; without last_at nothing of it is passed any more.
DELETE FROM boundary WHERE (schedule_id, trigger_no) IN (
    SELECT r.schedule_id, r.trigger_no
      FROM {rows:rewound(schedule_id text, trigger_no bigint, last_at bigint)} AS r
      JOIN boundary AS b ON b.schedule_id = r.schedule_id AND b.trigger_no = r.trigger_no
     WHERE r.last_at IS NULL OR b.next_at > r.last_at)

-- name: cut
UPDATE boundary SET last_at = r.last_at
  FROM {rows:rewound(schedule_id text, trigger_no bigint, last_at bigint)} AS r
 WHERE boundary.schedule_id = r.schedule_id AND boundary.trigger_no = r.trigger_no AND boundary.last_at > r.last_at

-- name: find_ready
-- Those whose job is gone. Cost: those that catch up, a look-up each.
SELECT schedule_id, trigger_no FROM boundary
 WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.job_id = boundary.behind)
 ORDER BY schedule_id, trigger_no LIMIT :limit

-- name: lock
-- Skipped when locked: another scheduler has it.
SELECT schedule_id, trigger_no, next_at, last_at FROM boundary
 WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id, trigger_no {skip_locked}

-- name: move
-- rank: job
-- Their rows are held since they were found ready.
UPDATE boundary SET next_at = r.next_at, behind = r.behind
  FROM {rows:moved(schedule_id text, trigger_no bigint, next_at bigint, behind text)} AS r
 WHERE boundary.schedule_id = r.schedule_id AND boundary.trigger_no = r.trigger_no

-- name: remove
-- rank: job
DELETE FROM boundary WHERE (schedule_id, trigger_no) IN (
    SELECT r.schedule_id, r.trigger_no FROM {rows:done(schedule_id text, trigger_no bigint)} AS r)
