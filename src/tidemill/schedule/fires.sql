-- name: list_timers
-- gives: schedule_id, trigger_no, next_fire_at
-- The timers that fire up to a time, those that wait for the end of a job, and as many of the next ones as the list has
-- fires: no later timer has a fire in the list.
SELECT schedule_id, trigger_no, next_fire_at FROM timer WHERE behind IS NULL AND next_fire_at <= :at
 UNION ALL
SELECT schedule_id, trigger_no, next_fire_at FROM timer WHERE behind IS NOT NULL
 UNION ALL
SELECT schedule_id, trigger_no, next_fire_at
  FROM (SELECT schedule_id, trigger_no, next_fire_at FROM timer
         WHERE behind IS NULL AND next_fire_at > :at
         ORDER BY next_fire_at, schedule_id, trigger_no LIMIT :limit) AS later
