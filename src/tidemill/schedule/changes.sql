-- name: begin_topics
-- locks: subscriber
-- The first schedule that listens to a topic besides data begins there: history is never read. Where another schedule
-- listens, the position stays. The lock keeps a scheduler from forgetting the topic meanwhile.
INSERT INTO subscriber (topic, name, seq, n)
SELECT r.topic, :name, :seq - 1, 0 FROM {rows:topics(topic text)} AS r WHERE true
    ON CONFLICT (topic, name) DO UPDATE
   SET seq = CASE WHEN EXISTS (SELECT 1 FROM trigger_key WHERE event_key = 'topic:' || subscriber.topic)
                  THEN subscriber.seq ELSE excluded.seq END,
       n = CASE WHEN EXISTS (SELECT 1 FROM trigger_key WHERE event_key = 'topic:' || subscriber.topic)
                THEN subscriber.n ELSE excluded.n END

-- name: insert_schedules
INSERT INTO schedule (schedule_id, namespace, app, name, generation, created_seq, since_seq, since_at, program_id, spec,
                      priority, owner, status, suspended_at, suspended_mode)
SELECT r.schedule_id, r.namespace, r.app, r.name, r.generation, r.since_seq, r.since_seq, r.since_at, r.program_id,
       r.spec, r.priority, r.owner, r.status, r.suspended_at, r.suspended_mode
  FROM {rows:schedules(schedule_id text, namespace text, app text, name text, generation bigint, since_seq bigint,
                       since_at bigint, program_id text, spec text, priority bigint, owner text, status text,
                       suspended_at bigint, suspended_mode text)} AS r
 WHERE true
    ON CONFLICT (namespace, app, name) DO NOTHING

-- name: update_schedules
-- locks: schedule
UPDATE schedule
   SET generation = r.generation, since_seq = r.since_seq, since_at = r.since_at, program_id = r.program_id,
       spec = r.spec, priority = r.priority, status = r.status, suspended_at = r.suspended_at,
       suspended_mode = r.suspended_mode
  FROM {rows:schedules(schedule_id text, generation bigint, since_seq bigint, since_at bigint, program_id text,
                       spec text, priority bigint, status text, suspended_at bigint, suspended_mode text)} AS r
 WHERE schedule.schedule_id = r.schedule_id

-- name: delete_schedules
-- locks: schedule
DELETE FROM schedule WHERE schedule_id IN ({texts:schedule_ids})

-- name: insert_trigger_keys
INSERT INTO trigger_key (event_key, schedule_id, trigger_no)
SELECT r.event_key, r.schedule_id, r.trigger_no
  FROM {rows:keys(event_key text, schedule_id text, trigger_no bigint)} AS r

-- name: delete_trigger_keys
DELETE FROM trigger_key WHERE schedule_id IN ({texts:schedule_ids})

-- name: insert_trigger_types
INSERT INTO trigger_type (schedule_id, trigger_type, namespace, app, name)
SELECT r.schedule_id, r.trigger_type, r.namespace, r.app, r.name
  FROM {rows:types(schedule_id text, trigger_type text, namespace text, app text, name text)} AS r

-- name: delete_trigger_types
DELETE FROM trigger_type WHERE schedule_id IN ({texts:schedule_ids})

-- name: insert_start_windows
INSERT INTO start_window (schedule_id, program_id, length)
SELECT r.schedule_id, r.program_id, r.length
  FROM {rows:windows(schedule_id text, program_id text, length bigint)} AS r

-- name: delete_start_windows
DELETE FROM start_window WHERE schedule_id IN ({texts:schedule_ids})

-- name: insert_timers
-- locks: nothing, at schedule
-- The block has deleted the schedule's timers before. A timer is there only if another process resumed the schedule
-- between that statement and our lock. The insert then locks that timer out of order, and the engine repeats the block
-- after a deadlock. A time that wants a run of its own stays behind the job that the last time of the generation
-- `fed_in` has fed.
INSERT INTO timer (schedule_id, trigger_no, next_fire_at, counted_from, behind)
SELECT r.schedule_id, r.trigger_no, r.next_fire_at, r.counted_from,
       (SELECT fire.job_id FROM fire
         WHERE fire.schedule_id = r.schedule_id AND fire.generation = r.fed_in AND fire.trigger_no = r.trigger_no
         ORDER BY fire.fire_time DESC LIMIT 1)
  FROM {rows:timers(schedule_id text, trigger_no bigint, next_fire_at bigint, counted_from bigint,
                    fed_in bigint)} AS r
 WHERE true
    ON CONFLICT (schedule_id, trigger_no) DO UPDATE
   SET next_fire_at = excluded.next_fire_at, behind = excluded.behind, counted_from = excluded.counted_from

-- name: delete_timers
-- locks: timer
DELETE FROM timer WHERE schedule_id IN ({texts:schedule_ids})

-- name: empty_boundaries
-- locks: boundary
-- The rows stay until the run of the end that was fed last has ended: the first end that is passed next waits for it.
UPDATE boundary SET last_at = next_at - 1 WHERE schedule_id IN ({texts:schedule_ids})

-- name: insert_limits
INSERT INTO slot_limit (limit_key) SELECT r.limit_key FROM {rows:limits(limit_key text)} AS r WHERE true
    ON CONFLICT (limit_key) DO NOTHING

-- name: delete_passed
DELETE FROM passed_while_suspended WHERE schedule_id IN ({texts:schedule_ids})
