-- name: lock_due
-- gives: schedule_id, trigger_no, next_fire_at, counted_from
-- locks: timer
-- Skipped when locked: another timekeeper has it.
SELECT schedule_id, trigger_no, next_fire_at, counted_from FROM timer
 WHERE behind IS NULL AND next_fire_at <= :now ORDER BY next_fire_at LIMIT :limit {skip_locked}

-- name: lock_ahead
-- gives: schedule_id, trigger_no, next_fire_at, counted_from
-- locks: timer
-- Timers that count from a time to come: the clock was set back since they were set.
SELECT schedule_id, trigger_no, next_fire_at, counted_from FROM timer
 WHERE counted_from > :now ORDER BY counted_from LIMIT :limit {skip_locked}

-- name: lock_freed
-- gives: schedule_id, trigger_no, next_fire_at, counted_from, behind
-- locks: timer
-- Timers that waited for a job which was dropped, or whose run has ended. Cost: those that wait, two look-ups each.
SELECT schedule_id, trigger_no, next_fire_at, counted_from, behind FROM timer
 WHERE behind IS NOT NULL AND NOT EXISTS (SELECT 1 FROM job WHERE job.job_id = timer.behind)
   AND NOT EXISTS (SELECT 1 FROM run WHERE run.job_id = timer.behind AND run.ended_at IS NULL)
 ORDER BY behind LIMIT :limit {skip_locked}

-- name: read_last_launches
-- gives: schedule_id, created_at
-- One look at the end of an index for each schedule, whatever it has launched so far.
SELECT r.schedule_id,
       (SELECT run.created_at FROM run WHERE run.schedule_id = r.schedule_id ORDER BY run.created_at DESC LIMIT 1)
       AS created_at
  FROM {rows:schedules(schedule_id text)} AS r

-- name: find_fired
-- gives: schedule_id, trigger_no, fire_time
-- What has fired before. No other process adds fires of a timer that we hold.
SELECT fire.schedule_id, fire.trigger_no, fire.fire_time
  FROM {rows:fires(schedule_id text, generation bigint, trigger_no bigint, fire_time bigint)} AS r
  JOIN fire ON fire.schedule_id = r.schedule_id AND fire.generation = r.generation AND fire.trigger_no = r.trigger_no
           AND fire.fire_time = r.fire_time

-- name: insert_fires
-- locks: fire, at slot_limit
-- A time that has fired before fires again when the clock was set back: in another job.
INSERT INTO fire (schedule_id, generation, trigger_no, fire_time, state, job_id)
SELECT r.schedule_id, r.generation, r.trigger_no, r.fire_time, 'joined', r.job_id
  FROM {rows:fires(schedule_id text, generation bigint, trigger_no bigint, fire_time bigint, job_id text)} AS r
 WHERE true
    ON CONFLICT (schedule_id, generation, trigger_no, fire_time) DO UPDATE SET job_id = excluded.job_id

-- name: move_timers
-- locks: timer, at slot_limit
-- Their rows are held since they were found due.
UPDATE timer SET next_fire_at = r.next_fire_at, behind = r.behind, counted_from = r.counted_from
  FROM {rows:timers(schedule_id text, trigger_no bigint, next_fire_at bigint, behind text, counted_from bigint)} AS r
 WHERE timer.schedule_id = r.schedule_id AND timer.trigger_no = r.trigger_no

-- name: remove_timers
-- locks: timer, at slot_limit
-- Of stands of watermarks that have fired, and those left behind by a suspension and a resumption that crossed.
DELETE FROM timer WHERE (schedule_id, trigger_no) IN (
    SELECT r.schedule_id, r.trigger_no FROM {rows:timers(schedule_id text, trigger_no bigint)} AS r)

-- name: find_next
-- gives: at
-- A timer that waited for a job that is gone is due, whatever time it stands at: it goes on by the clock. A timer that
-- counts from a time to come is due too: it has to be set right.
SELECT min(at) AS at FROM (
    SELECT min(next_fire_at) AS at FROM timer WHERE behind IS NULL
     UNION ALL
    SELECT tidemill_now()
      FROM (SELECT behind FROM timer
             WHERE behind IS NOT NULL AND NOT EXISTS (SELECT 1 FROM job WHERE job.job_id = timer.behind)
               AND NOT EXISTS (SELECT 1 FROM run WHERE run.job_id = timer.behind AND run.ended_at IS NULL)
             LIMIT 1) AS freed
     UNION ALL
    SELECT tidemill_now()
      FROM (SELECT counted_from FROM timer WHERE counted_from IS NOT NULL
             ORDER BY counted_from DESC LIMIT 1) AS latest
     WHERE latest.counted_from > tidemill_now()) AS due
